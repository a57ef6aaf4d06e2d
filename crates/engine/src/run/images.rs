//! The node images of a run (`behaviour.md` A4): Consistent is chosen when the run starts, out of what its regions have, and
//! then kept for every later try; Custom brings its own.

use flotta_model::{Goal, ImageSelection, NodeImage, UpgradeType};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    event::Event,
    state::{MemberPhase, Run, RunPhase},
};
use crate::images::{self, Common, Disagreement, PoolImages};

/// Regions that disagree, since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Apart {
    pub since: Timestamp,
    pub families: Vec<Disagreement>,
}

impl Run {
    /// The images the run moves to, one a family, once they are known. `None` for Latest.
    pub fn selected_images(&self) -> Option<&[NodeImage]> {
        let custom = match self.plan.goal.images() {
            Some(ImageSelection::Custom(images)) => Some(images),
            _ => None,
        };
        self.core.images.as_ref().or(self.plan.images.as_ref()).or(custom).map(Vec::as_slice)
    }

    /// Whether [`super::Work::ResolveImages`] is among the work, without asking for all of it.
    pub fn resolving_images(&self) -> bool {
        self.core.phase == RunPhase::Going && self.images_unresolved()
    }

    /// Members whose pools have a say in which images are chosen: those that may still be moved.
    pub fn images_to_read(&self) -> Vec<u32> {
        let ended = |member: &u32| matches!(self.member(*member).phase, MemberPhase::Ended(_));
        (0..self.plan.members.len() as u32).filter(|member| !ended(member)).collect()
    }

    /// Whether it is not known yet which images the run moves to.
    pub(super) fn images_unresolved(&self) -> bool {
        consistent(&self.plan.goal) && self.selected_images().is_none()
    }

    /// What follows from what the pools of the run can have.
    pub(super) fn images_seen(&self, pools: &[PoolImages]) -> Vec<Event> {
        if !self.images_unresolved() {
            return Vec::new();
        }
        let Common { mut images, apart } = images::consistent(pools);
        if self.plan.goal.accepts_newer() {
            let oldest = |apart: &Disagreement| images::oldest_of_newest(pools, &apart.family).cloned();
            images.extend(apart.iter().filter_map(oldest));
        } else if !apart.is_empty() {
            let known = self.core.apart.as_ref().is_some_and(|known| known.families == apart);
            return if known { Vec::new() } else { vec![Event::ImagesDisagree(apart)] };
        }
        vec![Event::ImagesSelected(images)]
    }

    pub(super) fn select_images(&mut self, images: &[NodeImage]) {
        (self.core.images, self.core.apart) = (Some(images.to_vec()), None);
        if let Some(stage) = self.core.current {
            self.refresh_stage(stage);
        }
    }

    pub(super) fn images_disagree(&mut self, families: &[Disagreement], at: Timestamp) {
        let since = self.core.apart.as_ref().map_or(at, |apart| apart.since);
        self.core.apart = Some(Apart { since, families: families.to_vec() });
    }
}

/// Whether a goal's images are chosen out of what the regions of the run have in common.
fn consistent(goal: &Goal) -> bool {
    goal.upgrade() != UpgradeType::ControlPlaneOnly && matches!(goal.images(), Some(ImageSelection::Consistent))
}
