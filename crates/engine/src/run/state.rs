//! The state of a run: what is remembered of each member, group and stage, and what is kept in order so that no event
//! has to look at everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flotta_model::{Budget, Fault, Hold, KubernetesVersion, MaintenanceWindow, NodeImage, Step};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    event::{Ticket, Work},
    gates::{Gate, Layout},
    images::Apart,
    windows::{Window, WindowOf},
};
use crate::plan::Plan;

/// The states that people see, at every level (`behaviour.md` B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the documented ones")]
pub enum State {
    NotStarted,
    Running,
    Stopping,
    Stopped,
    Skipped,
    Failed,
    Pending,
    Completed,
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Well enough: failures, if any, were within the limits.
    Completed,
    /// Badly.
    Failed,
    /// Left out, or there was nothing to do.
    Skipped,
}

impl From<Outcome> for State {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Failed => Self::Failed,
            Outcome::Skipped => Self::Skipped,
        }
    }
}

/// Where the run as a whole stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunPhase {
    /// Not started yet.
    Idle,
    /// Going on.
    Going,
    /// Nothing new starts, since somebody asked to stop.
    Stopping,
    /// Nothing new starts, since a limit of zero failures was exceeded.
    Failing,
    /// Stopped by somebody.
    Stopped,
    /// Ended. After Failed it may be started again.
    Ended(Outcome),
}

/// Where a stage or group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not reached yet.
    Idle,
    /// Reached.
    Entered,
    /// Ended.
    Ended(Outcome),
}

/// Where the wait after a stage stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Not begun; also where there is none.
    Idle,
    /// Begun.
    Running {
        /// When it began.
        since: Timestamp,
        /// When it ends.
        until: Timestamp,
    },
    /// Over.
    Over {
        /// When it began, unless it never did.
        since: Option<Timestamp>,
        /// When it was over.
        at: Timestamp,
        /// It was skipped, or never needed.
        skipped: bool,
    },
}

/// When something began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
}

/// Where a member stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberPhase {
    /// Its turn has not come.
    Waiting,
    /// Its maintenance window is closed.
    Shut,
    /// It has a slot; its cluster is looked at.
    Looking,
    /// A step was committed to and is being sent.
    Intended(Box<Pledge>),
    /// The provider is at it.
    Moving(Box<Pledge>),
    /// Something holds it.
    Held(Box<Held>),
    /// It is done.
    Ended(Outcome),
}

/// A step that was committed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pledge {
    /// The step.
    pub step: Step,
    /// The etag it must still find.
    pub guard: Option<String>,
    /// When it was committed to.
    pub at: Timestamp,
    /// Steps there were left, with this one.
    pub left: u32,
    /// It must not be sent any more from this instant on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
}

/// What holds a member, since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What.
    pub hold: Hold,
    /// Since when a hold of this kind has been there.
    pub since: Timestamp,
}

/// What is remembered of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where it stands.
    pub phase: MemberPhase,
    /// Grows with each thing asked for on its behalf.
    pub turn: u32,
    /// 1 at its first start, one more at each try after a failure.
    pub attempt: u32,
    /// Steps that ended well in this attempt.
    pub steps_done: u32,
    /// When it began and ended.
    pub times: Times,
    /// The provider's operation of the latest step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Box<str>>,
    /// What people should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Box<Fault>>,
    /// It is to be shown as Skipped when what is under way has ended.
    #[serde(default)]
    pub skip_asked: bool,
    /// A step of this run was accepted for its cluster, in whatever attempt.
    #[serde(default)]
    pub moved: bool,
    /// It was where it should be when its turn came.
    #[serde(default)]
    pub there: bool,
    /// Its maintenance window, as last read.
    #[serde(default)]
    pub window: WindowOf,
    /// How often that window had closed when it was first read.
    #[serde(default)]
    pub closings_before: u32,
}

/// How many members are in each state. All counts of a scope add up to its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Waiting for their turn or a slot.
    pub not_started: u32,
    /// Holding a slot.
    pub running: u32,
    /// Held by something.
    pub pending: u32,
    /// Done.
    pub completed: u32,
    /// Failed.
    pub failed: u32,
    /// Left out, or there already.
    pub skipped: u32,
    /// Among the skipped, those that were there already.
    #[serde(default)]
    pub there: u32,
}

impl Counts {
    pub(super) fn slot(&mut self, phase: &MemberPhase) -> &mut u32 {
        match phase {
            MemberPhase::Waiting => &mut self.not_started,
            MemberPhase::Looking | MemberPhase::Intended(_) | MemberPhase::Moving(_) => &mut self.running,
            MemberPhase::Shut | MemberPhase::Held(_) => &mut self.pending,
            MemberPhase::Ended(Outcome::Completed) => &mut self.completed,
            MemberPhase::Ended(Outcome::Failed) => &mut self.failed,
            MemberPhase::Ended(Outcome::Skipped) => &mut self.skipped,
        }
    }

    /// Members that are where they should be.
    pub fn succeeded(&self) -> u32 {
        self.completed + self.there
    }

    /// Members that are done, however.
    pub fn ended(&self) -> u32 {
        self.completed + self.failed + self.skipped
    }

    /// Members in all.
    pub fn total(&self) -> u32 {
        self.not_started + self.running + self.pending + self.ended()
    }
}

/// What is remembered of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Where it stands.
    pub phase: Phase,
    /// When it began and ended.
    pub times: Times,
    /// Somebody had it left out.
    #[serde(default)]
    pub skip_asked: bool,
    /// Its members by state.
    #[serde(skip)]
    pub counts: Counts,
    /// When all windows of its members were read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_read: Option<Timestamp>,
    /// They are to be read again.
    #[serde(default)]
    pub windows_stale: bool,
    /// Members whose turn has not come, and whose window was not read yet.
    #[serde(skip)]
    pub(super) unread: u32,
    /// Members whose window is closed.
    #[serde(skip)]
    pub(super) shut: u32,
    /// Members that may take a slot, the most urgent first.
    #[serde(skip)]
    pub(super) ready: BTreeSet<(Urgency, u32)>,
    /// The key under which it stands in [`Run::startable`], if it does.
    #[serde(skip)]
    pub(super) listed: Option<(u32, u32)>,
    /// The time under which it stands in [`Run::rereads`], if it does.
    #[serde(skip)]
    pub(super) rereads: Option<Timestamp>,
}

/// The order in which members of a group take slots (`behaviour.md` B4); inside a class, by place in the group. Members
/// whose window is closed are not among them, however soon it opens: an idle slot helps nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Under way before, between two steps.
    Returning,
    /// Its window is open now.
    OpenNow,
    /// It has no window.
    AnyTime,
}

/// What is remembered of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Where it stands.
    pub phase: Phase,
    /// When it began and ended.
    pub times: Times,
    /// Somebody had it left out.
    #[serde(default)]
    pub skip_asked: bool,
    /// The wait after it.
    pub wait: Wait,
    /// Its members by state.
    #[serde(skip)]
    pub counts: Counts,
    /// Groups that ended, by outcome: completed, failed, skipped.
    #[serde(skip)]
    pub(super) groups_ended: [u32; 3],
}

/// An update run. Changed only by [`Run::apply`].
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub(super) plan: Arc<Plan>,
    pub(super) core: Core,
    pub(super) counts: Counts,
    /// Groups of the current stage in which a member could take a slot, those with the fewest running first.
    pub(super) startable: BTreeSet<(u32, u32)>,
    /// Groups that can be seen to have ended.
    pub(super) closable: BTreeSet<u32>,
    /// Stages that somebody had left out, until they have ended.
    pub(super) skipping: BTreeSet<u32>,
    /// Members for which something goes on outside.
    pub(super) active: BTreeSet<u32>,
    /// Members that are held.
    pub(super) held: BTreeSet<u32>,
    /// When members whose hold wears out will have waited long enough.
    pub(super) wearing: BTreeSet<(Timestamp, u32)>,
    /// Members that wait, by their window.
    pub(super) behind: BTreeMap<u32, BTreeSet<u32>>,
    /// When windows turn that somebody waits behind.
    pub(super) windows_due: BTreeSet<(Timestamp, u32)>,
    /// The windows that are known, by what they are.
    pub(super) window_numbers: BTreeMap<MaintenanceWindow, u32>,
    /// Where the gates are.
    pub(super) layout: Arc<Layout>,
    /// When gates open or expire by themselves.
    pub(super) gates_due: BTreeSet<(Timestamp, u32)>,
    /// Groups of which gates are reached and not asked for yet.
    pub(super) reaching: BTreeSet<u32>,
    /// Groups of which windows are to be read now.
    pub(super) readers: BTreeSet<u32>,
    /// When groups should be read again.
    pub(super) rereads: BTreeSet<(Timestamp, u32)>,
}

/// The part of a run from which the rest can be rebuilt: what a snapshot keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Core {
    pub phase: RunPhase,
    pub times: Times,
    pub current: Option<u32>,
    pub version: Option<KubernetesVersion>,
    /// Those that were chosen when the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<NodeImage>>,
    /// Why none could be chosen yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
    pub stages: Vec<Stage>,
    pub groups: Vec<Group>,
    pub members: Vec<Member>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
}

impl Run {
    /// A run that has not started.
    pub fn new(plan: Arc<Plan>) -> Self {
        let member = Member {
            phase: MemberPhase::Waiting,
            turn: 0,
            attempt: 1,
            steps_done: 0,
            times: Times::default(),
            operation: None,
            message: None,
            fault: None,
            skip_asked: false,
            moved: false,
            there: false,
            window: WindowOf::Unread,
            closings_before: 0,
        };
        let group = Group {
            phase: Phase::Idle,
            times: Times::default(),
            skip_asked: false,
            counts: Counts::default(),
            windows_read: None,
            windows_stale: false,
            unread: 0,
            shut: 0,
            ready: BTreeSet::new(),
            listed: None,
            rereads: None,
        };
        let stage = Stage {
            phase: Phase::Idle,
            times: Times::default(),
            skip_asked: false,
            wait: Wait::Idle,
            counts: Counts::default(),
            groups_ended: [0; 3],
        };
        let core = Core {
            phase: RunPhase::Idle,
            times: Times::default(),
            current: None,
            version: plan.goal.version().and_then(|target| target.exact()),
            images: None,
            apart: None,
            stages: vec![stage; plan.stages.len()],
            groups: vec![group; plan.groups.len()],
            members: vec![member; plan.members.len()],
            gates: Vec::new(),
            windows: Vec::new(),
        };
        Self::rebuilt(plan, core)
    }

    /// A run from a snapshot of it.
    pub fn from_snapshot(plan: Arc<Plan>, snapshot: &RunSnapshot) -> Option<Self> {
        let core = snapshot.0.clone();
        let fits = core.stages.len() == plan.stages.len()
            && core.groups.len() == plan.groups.len()
            && core.members.len() == plan.members.len();
        fits.then(|| Self::rebuilt(plan, core))
    }

    /// What a snapshot keeps.
    pub fn snapshot(&self) -> RunSnapshot {
        RunSnapshot(self.core.clone())
    }

    /// Derives counts and orders from the core, in one pass.
    fn rebuilt(plan: Arc<Plan>, mut core: Core) -> Self {
        for group in &mut core.groups {
            (group.counts, group.listed, group.rereads) = (Counts::default(), None, None);
            (group.unread, group.shut) = (0, 0);
            group.ready.clear();
        }
        for stage in &mut core.stages {
            (stage.counts, stage.groups_ended) = (Counts::default(), [0; 3]);
        }
        let window_numbers = core.windows.iter().enumerate();
        let window_numbers = window_numbers.map(|(number, known)| (known.window.clone(), number as u32)).collect();
        let mut run = Self {
            layout: Arc::new(Layout::of(&plan)),
            plan,
            core,
            counts: Counts::default(),
            startable: BTreeSet::new(),
            closable: BTreeSet::new(),
            skipping: BTreeSet::new(),
            active: BTreeSet::new(),
            held: BTreeSet::new(),
            wearing: BTreeSet::new(),
            behind: BTreeMap::new(),
            windows_due: BTreeSet::new(),
            window_numbers,
            gates_due: BTreeSet::new(),
            reaching: BTreeSet::new(),
            readers: BTreeSet::new(),
            rereads: BTreeSet::new(),
        };
        run.list_gates();
        for member in 0..run.core.members.len() as u32 {
            run.count_in(member);
        }
        for group in 0..run.core.groups.len() as u32 {
            if let Phase::Ended(outcome) = run.core.groups[group as usize].phase {
                let stage = run.plan.groups[group as usize].stage;
                run.core.stages[stage as usize].groups_ended[outcome as usize] += 1;
            }
        }
        for stage in 0..run.core.stages.len() as u32 {
            let state = &run.core.stages[stage as usize];
            if state.skip_asked && !matches!(state.phase, Phase::Ended(_)) {
                run.skipping.insert(stage);
            }
        }
        for group in 0..run.core.groups.len() as u32 {
            run.refresh_group(group);
        }
        run
    }

    /// Puts a member into every count and order that its phase belongs to.
    pub(super) fn count_in(&mut self, member: u32) {
        let (group, stage) = self.places(member);
        let Core { members, groups, stages, .. } = &mut self.core;
        let state = &members[member as usize];
        *groups[group].counts.slot(&state.phase) += 1;
        *stages[stage].counts.slot(&state.phase) += 1;
        *self.counts.slot(&state.phase) += 1;
        for counts in [&mut groups[group].counts, &mut stages[stage].counts, &mut self.counts] {
            counts.there += u32::from(state.succeeded_before());
        }
        match &state.phase {
            MemberPhase::Waiting => match state.urgency() {
                Some(urgency) => {
                    groups[group].ready.insert((urgency, member));
                    self.stand_behind(member);
                }
                None => groups[group].unread += 1,
            },
            MemberPhase::Shut => {
                groups[group].shut += 1;
                self.stand_behind(member);
            }
            MemberPhase::Looking | MemberPhase::Intended(_) | MemberPhase::Moving(_) => {
                self.active.insert(member);
            }
            MemberPhase::Held(held) => {
                self.held.insert(member);
                if held.hold.wears_out() {
                    self.wearing.insert((worn_at(&self.plan, held), member));
                }
            }
            MemberPhase::Ended(_) => {}
        }
    }

    /// Takes a member out of all of them.
    pub(super) fn count_out(&mut self, member: u32) {
        let (group, stage) = self.places(member);
        let Core { members, groups, stages, .. } = &mut self.core;
        let state = &members[member as usize];
        *groups[group].counts.slot(&state.phase) -= 1;
        *stages[stage].counts.slot(&state.phase) -= 1;
        *self.counts.slot(&state.phase) -= 1;
        for counts in [&mut groups[group].counts, &mut stages[stage].counts, &mut self.counts] {
            counts.there -= u32::from(state.succeeded_before());
        }
        match &state.phase {
            MemberPhase::Waiting => match state.urgency() {
                Some(urgency) => {
                    groups[group].ready.remove(&(urgency, member));
                    self.leave_from_behind(member);
                }
                None => groups[group].unread -= 1,
            },
            MemberPhase::Shut => {
                groups[group].shut -= 1;
                self.leave_from_behind(member);
            }
            MemberPhase::Looking | MemberPhase::Intended(_) | MemberPhase::Moving(_) => {
                self.active.remove(&member);
            }
            MemberPhase::Held(held) => {
                self.held.remove(&member);
                if held.hold.wears_out() {
                    self.wearing.remove(&(worn_at(&self.plan, held), member));
                }
            }
            MemberPhase::Ended(_) => {}
        }
    }

    pub(super) fn places(&self, member: u32) -> (usize, usize) {
        let group = self.plan.members[member as usize].group as usize;
        (group, self.plan.groups[group].stage as usize)
    }

    /// Failures that a group may have: none where its stage may have none, else as many as it says itself.
    pub(super) fn failures_allowed(&self, group: u32) -> Option<u32> {
        let plan = &self.plan.groups[group as usize];
        match self.plan.stages[plan.stage as usize].max_allowed_failures {
            Some(0) => Some(0),
            _ => plan.max_allowed_failures,
        }
    }

    /// Whether a group has more failures than it may have, or has used up a strict budget with members left to move.
    pub(super) fn group_over(&self, group: u32) -> bool {
        let plan = &self.plan.groups[group as usize];
        over(&self.group(group).counts, self.failures_allowed(group), plan.budget)
    }

    /// The same of a stage.
    pub(super) fn stage_over(&self, stage: u32) -> bool {
        let plan = &self.plan.stages[stage as usize];
        over(&self.stage(stage).counts, plan.max_allowed_failures, plan.budget)
    }

    /// Members of a group that may move at once: a strict budget must bear that all of them fail.
    pub(super) fn group_room(&self, group: u32) -> u32 {
        let plan = &self.plan.groups[group as usize];
        room(&self.group(group).counts, plan.max_concurrency, plan.max_allowed_failures, plan.budget)
    }

    /// The same of a stage.
    pub(super) fn stage_room(&self, stage: u32) -> u32 {
        let plan = &self.plan.stages[stage as usize];
        room(&self.stage(stage).counts, plan.max_concurrency, plan.max_allowed_failures, plan.budget)
    }

    /// Whether a member's group or stage has a strict budget.
    pub(super) fn strict(&self, member: u32) -> bool {
        let (group, stage) = self.places(member);
        [self.plan.groups[group].budget, self.plan.stages[stage].budget].contains(&Budget::Strict)
    }

    /// Whether strict budgets bear that a member fails that is not under way.
    pub(super) fn bears_failure(&self, member: u32) -> bool {
        let (group, stage) = self.places(member);
        let (of_group, of_stage) = (&self.plan.groups[group], &self.plan.stages[stage]);
        bears(&self.core.groups[group].counts, of_group.max_allowed_failures, of_group.budget)
            && bears(&self.core.stages[stage].counts, of_stage.max_allowed_failures, of_stage.budget)
    }

    /// Whether too few members of a group that is done are where they should be.
    pub(super) fn group_short(&self, group: u32) -> bool {
        short(&self.group(group).counts, self.plan.groups[group as usize].min_success)
    }

    /// The same of a stage.
    pub(super) fn stage_short(&self, stage: u32) -> bool {
        let ended = self.all_groups_ended(stage);
        ended && short(&self.stage(stage).counts, self.plan.stages[stage as usize].min_success)
    }

    /// Whether a group may start members: its stage is under way, its target is known, nothing is
    /// exceeded, nothing is closed.
    pub(super) fn group_open(&self, group: u32) -> bool {
        let stage = self.plan.groups[group as usize].stage;
        self.core.phase == RunPhase::Going
            && !self.unresolved()
            && self.core.current == Some(stage)
            && !self.stage_gated(stage)
            && !self.group_gated(group)
            && !matches!(self.core.groups[group as usize].phase, Phase::Ended(_))
            && !self.group_over(group)
            && !self.stage_over(stage)
    }

    /// Brings a group's place among the startable, the closable and those that reach a gate up to date.
    pub(super) fn refresh_group(&mut self, group: u32) {
        let state = &self.core.groups[group as usize];
        let running = state.counts.running;
        let current = self.core.current == Some(self.plan.groups[group as usize].stage);
        let open = current && self.group_open(group);
        let (reads, again) = (open && self.reads_windows(group), self.read_again(group).filter(|_| current));
        let wants = open && !state.ready.is_empty() && running < self.group_room(group);
        let key = wants.then_some((running, group));
        if key != state.listed {
            if let Some(old) = state.listed {
                self.startable.remove(&old);
            }
            self.startable.extend(key);
            self.core.groups[group as usize].listed = key;
        }
        if again != self.core.groups[group as usize].rereads {
            if let Some(old) = self.core.groups[group as usize].rereads {
                self.rereads.remove(&(old, group));
            }
            self.rereads.extend(again.map(|at| (at, group)));
            self.core.groups[group as usize].rereads = again;
        }
        list(&mut self.readers, group, reads);
        let ended = self.group_outcome(group).is_some();
        list(&mut self.closable, group, ended);
        let reaches = self.group_reaches(group).is_some();
        list(&mut self.reaching, group, reaches);
    }

    /// How a group that has not been closed yet has ended, if it has.
    pub(super) fn group_outcome(&self, group: u32) -> Option<Outcome> {
        let plan = &self.plan.groups[group as usize];
        let state = &self.core.groups[group as usize];
        let reached = self.core.current == Some(plan.stage) || state.skip_asked;
        if matches!(state.phase, Phase::Ended(_)) || !reached || state.counts.running > 0 {
            return None;
        }
        let all_ended = state.counts.ended() == state.counts.total();
        match () {
            () if self.group_over(group) => Some(Outcome::Failed),
            () if !all_ended => None,
            () if state.skip_asked || state.counts.skipped == state.counts.total() => Some(Outcome::Skipped),
            () if self.group_short(group) => Some(Outcome::Failed),
            () if self.group_gated_after(group) => None,
            () => Some(Outcome::Completed),
        }
    }

    /// Whether a group is done but for its gates.
    pub(super) fn group_done(&self, group: u32) -> bool {
        let state = self.group(group);
        let all_ended = state.counts.ended() == state.counts.total();
        let skipped = state.skip_asked || state.counts.skipped == state.counts.total();
        all_ended && !skipped && !self.group_over(group) && !self.group_short(group)
    }

    /// Brings all groups of a stage up to date.
    pub(super) fn refresh_stage(&mut self, stage: u32) {
        for group in self.plan.stages[stage as usize].groups.clone() {
            self.refresh_group(group);
        }
    }

    /// What was resolved when the run was created.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Where the run stands.
    pub fn phase(&self) -> RunPhase {
        self.core.phase
    }

    /// Index of the stage that is under way, or was when the run came to a halt.
    pub fn current_stage(&self) -> Option<u32> {
        self.core.current
    }

    /// The exact version the run moves to, once it is known.
    pub fn version(&self) -> Option<KubernetesVersion> {
        self.core.version
    }

    /// When the run began and ended.
    pub fn times(&self) -> Times {
        self.core.times
    }

    /// All members by state.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A member.
    pub fn member(&self, member: u32) -> &Member {
        &self.core.members[member as usize]
    }

    /// A group.
    pub fn group(&self, group: u32) -> &Group {
        &self.core.groups[group as usize]
    }

    /// A stage.
    pub fn stage(&self, stage: u32) -> &Stage {
        &self.core.stages[stage as usize]
    }

    /// Whether it is not known yet what the run moves to: nobody starts before.
    pub(super) fn unresolved(&self) -> bool {
        self.version_unresolved() || self.images_unresolved()
    }

    /// Whether the minor asked for has not come to mean a version yet.
    pub(super) fn version_unresolved(&self) -> bool {
        self.core.version.is_none() && self.plan.goal.version().is_some()
    }

    /// When time alone will change something: the run wants a [`super::Input::Tick`] then.
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.core.phase != RunPhase::Going {
            return None;
        }
        let turns = self.windows_due.first().map(|(at, _)| *at);
        let again = self.rereads.first().map(|(at, _)| *at);
        let opens = self.gates_due.first().map(|(at, _)| *at);
        let wait = self.core.current.and_then(|stage| match self.stage(stage).wait {
            Wait::Running { until, .. } => Some(until),
            _ => None,
        });
        let worn = self.wearing.iter().find(|(_, member)| self.bears_failure(*member)).map(|(at, _)| *at);
        wait.into_iter().chain(worn).chain(turns).chain(opens).chain(again).min()
    }

    /// Whether [`Work::ResolveTarget`] is among the work, without asking for all of it.
    pub fn resolving(&self) -> bool {
        self.core.phase == RunPhase::Going && self.version_unresolved()
    }

    /// Everything that should be going on outside.
    pub fn work(&self) -> Vec<Work> {
        let resolve = self.resolving().then_some(Work::ResolveTarget);
        let images = self.resolving_images().then_some(Work::ResolveImages);
        let members = self.active.iter().chain(&self.held).filter_map(|member| self.work_of(*member));
        let read = self.reading().then_some(Work::ReadWindows);
        resolve.into_iter().chain(images).chain(read).chain(members).collect()
    }

    /// What should be going on outside for a member.
    pub fn work_of(&self, member: u32) -> Option<Work> {
        let state = self.member(member);
        let ticket = Ticket { member, turn: state.turn };
        match &state.phase {
            MemberPhase::Looking => Some(Work::Look(ticket)),
            MemberPhase::Intended(_) => Some(Work::Send(ticket)),
            MemberPhase::Moving(_) => Some(Work::Follow(ticket)),
            MemberPhase::Held(held) if !matches!(held.hold, Hold::StoppedBetweenSteps { .. }) => {
                self.group_open(self.plan.group_of(member)).then_some(Work::Probe(ticket))
            }
            MemberPhase::Waiting | MemberPhase::Shut | MemberPhase::Held(_) | MemberPhase::Ended(_) => None,
        }
    }
}

/// Puts a group on a list, or takes it off.
fn list(groups: &mut BTreeSet<u32>, group: u32, listed: bool) {
    if listed {
        groups.insert(group);
    } else {
        groups.remove(&group);
    }
}

/// Whether a scope has failed more than it may, or may not risk to go on.
fn over(counts: &Counts, limit: Option<u32>, budget: Budget) -> bool {
    let Some(limit) = limit else { return false };
    let left = counts.not_started + counts.pending;
    counts.failed > limit || (budget == Budget::Strict && counts.failed == limit && limit > 0 && left > 0)
}

/// How many members of a scope may move at once.
fn room(counts: &Counts, concurrency: u32, limit: Option<u32>, budget: Budget) -> u32 {
    match (budget, limit) {
        (Budget::Strict, Some(limit)) => concurrency.min(limit.saturating_sub(counts.failed)),
        _ => concurrency,
    }
}

/// Whether one more failure stays within a strict budget, whatever becomes of those under way.
fn bears(counts: &Counts, limit: Option<u32>, budget: Budget) -> bool {
    match (budget, limit) {
        (Budget::Strict, Some(limit)) => counts.failed + counts.running < limit,
        _ => true,
    }
}

/// How many members of a scope in which nothing has failed may move at once.
pub(super) fn strict_room(concurrency: u32, limit: Option<u32>, budget: Budget) -> u32 {
    room(&Counts::default(), concurrency, limit, budget)
}

/// Whether fewer members of a scope are where they should be than must be.
fn short(counts: &Counts, floor: Option<u32>) -> bool {
    floor.is_some_and(|floor| counts.succeeded() < floor)
}

impl Member {
    /// How urgent a member is that waits for its turn; unknown before its window was read.
    pub(super) fn urgency(&self) -> Option<Urgency> {
        match self.window {
            WindowOf::Unread => None,
            _ if self.steps_done > 0 => Some(Urgency::Returning),
            WindowOf::In(_) => Some(Urgency::OpenNow),
            WindowOf::Free => Some(Urgency::AnyTime),
        }
    }

    /// Whether it was where it should be without this run.
    fn succeeded_before(&self) -> bool {
        self.there && self.phase == MemberPhase::Ended(Outcome::Skipped)
    }

    /// The step that was committed to, if one is open.
    pub fn pledge(&self) -> Option<&Pledge> {
        match &self.phase {
            MemberPhase::Intended(pledge) | MemberPhase::Moving(pledge) => Some(pledge),
            _ => None,
        }
    }

    /// What holds it, if something does.
    pub fn held(&self) -> Option<&Held> {
        match &self.phase {
            MemberPhase::Held(held) => Some(held),
            _ => None,
        }
    }
}

/// When a hold will have been there for the run's patience.
fn worn_at(plan: &Plan, held: &Held) -> Timestamp {
    let patience = jiff::SignedDuration::from_secs(i64::from(plan.patience_seconds));
    held.since.saturating_add(patience).unwrap_or(Timestamp::MAX)
}

/// A folded run, for a store to keep. It can be thrown away: the journal has everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunSnapshot(Core);
