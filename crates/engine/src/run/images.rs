//! The node images of a run (`behaviour.md` A4): Consistent is chosen when the run starts, out of what its regions have, and
//! then kept for every later try; Custom brings its own.

use flotta_model::{NodeImage, UpgradeType};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    event::Event,
    state::{MemberPhase, Run, RunPhase},
};
use crate::images::{self, Disagreement, PoolImages};

/// Regions that disagree, since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Apart {
    pub since: Timestamp,
    pub families: Vec<Disagreement>,
}

impl Run {
    /// The images the run moves to, one a family, once they are known. `None` for Latest.
    pub fn selected_images(&self) -> Option<&[NodeImage]> {
        self.core.images.as_deref().or_else(|| self.plan.selected_images())
    }

    /// Whether [`super::Work::ResolveImages`] is among the work, without asking for all of it.
    pub fn resolving_images(&self) -> bool {
        self.core.phase == RunPhase::Going && self.images_unresolved()
    }

    /// Whether the run moves node pools to images that were chosen for it.
    pub(super) fn sets_images(&self) -> bool {
        self.plan.goal.upgrade() != UpgradeType::ControlPlaneOnly && self.selected_images().is_some()
    }

    /// Members whose pools have a say in which images are chosen: those that may still be moved.
    pub fn images_to_read(&self) -> Vec<u32> {
        let ended = |member: &u32| matches!(self.member(*member).phase, MemberPhase::Ended(_));
        (0..self.plan.members.len() as u32).filter(|member| !ended(member)).collect()
    }

    /// Whether it is not known yet which images the run moves to.
    pub(super) fn images_unresolved(&self) -> bool {
        self.core.images.is_none() && self.plan.chooses_images()
    }

    /// What follows from what the pools of the run can have.
    pub(super) fn images_seen(&self, pools: &[PoolImages]) -> Vec<Event> {
        if !self.images_unresolved() {
            return Vec::new();
        }
        match images::choose(&self.plan.goal, pools) {
            Ok(images) => vec![Event::ImagesSelected(images)],
            Err(apart) if self.core.apart.as_ref().is_some_and(|known| known.families == apart) => Vec::new(),
            Err(apart) => vec![Event::ImagesDisagree(apart)],
        }
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
