//! What can be seen of a run at one instant, and what follows from it when it is recomputed from scratch.

use std::{cell::OnceCell, rc::Rc};

use flotta_engine::{
    Plan, Run,
    run::{Counts, GatePhase, MemberPhase, Outcome, Part, Phase, RunPhase, State, Times, Timing, Wait, WindowOf},
};
use flotta_model::{Budget, GateConfig, ImageSelection, KubernetesVersion, MaintenanceWindow, NodeImage};
use jiff::{SignedDuration, Timestamp};

/// What can be seen of a run at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub now: Timestamp,
    pub state: State,
    pub phase: RunPhase,
    pub current: Option<u32>,
    pub version: Option<KubernetesVersion>,
    pub images: Option<Vec<NodeImage>>,
    pub times: Times,
    pub counts: Counts,
    pub stages: Vec<Scope>,
    pub groups: Vec<Scope>,
    pub members: Vec<Seen>,
    pub gates: Vec<GateSeen>,
    /// The code of the run's error.
    pub error: Option<String>,
    pub outside: Rc<Outside>,
    pub naive: Memo,
}

/// What is recomputed from the members and gates of a view, once for each; a copy may be changed and has its own.
#[derive(Debug, Default)]
pub struct Memo(OnceCell<Naive>);

#[derive(Debug)]
pub struct Naive {
    groups: Vec<Counts>,
    stages: Vec<Counts>,
    /// Before and after each stage, then each group: whether a gate is closed there.
    closed: Vec<[bool; 2]>,
}

impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A stage or group.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    pub state: State,
    pub phase: Phase,
    pub times: Times,
    pub counts: Counts,
    pub skip_asked: bool,
    /// Of stages only.
    pub wait: Option<Wait>,
    /// Of groups only: when their windows were read, and whether they are to be read again.
    pub windows_read: Option<Timestamp>,
    pub windows_stale: bool,
}

/// A member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    pub state: State,
    pub attempt: u32,
    pub steps_done: u32,
    pub turn: u32,
    pub times: Times,
    pub skip_asked: bool,
    pub stopped_between: bool,
    pub there: bool,
    /// It waits for its window.
    pub shut: bool,
    pub window: Known,
    /// When what holds it will have lasted for too long.
    pub worn: Option<Timestamp>,
}

/// What a run knows of a member's window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    Unread,
    Free,
    In {
        /// Which one it is of those there are outside.
        which: usize,
        /// How it stands as far as the run knows.
        told: Stand,
    },
}

/// How a window stands, and when it turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stand {
    pub open: bool,
    pub turns: Option<Timestamp>,
}

/// A gate.
#[derive(Clone, Debug, PartialEq)]
pub struct GateSeen {
    pub state: State,
    pub since: Option<Timestamp>,
    pub due: Option<Timestamp>,
    pub approvals: Vec<String>,
    pub denied: bool,
    pub revision: u32,
}

/// The images of pools by name, by member.
pub type PoolImages = Rc<Vec<Vec<(String, NodeImage)>>>;

/// How it really is outside: windows, and who has which.
#[derive(Clone, Debug, PartialEq)]
pub struct Outside {
    pub windows: Rc<Vec<MaintenanceWindow>>,
    pub stands: Vec<Stand>,
    pub of: Vec<Option<usize>>,
    /// The images of all pools, by member.
    pub images: PoolImages,
}

/// Where a gate stands: its stage, its group if it is a group's, its side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spot<'p> {
    pub stage: u32,
    pub group: Option<u32>,
    pub timing: Timing,
    pub config: &'p GateConfig,
}

/// All gates of a plan in the order of their numbers.
pub fn spots(plan: &Plan) -> Vec<Spot<'_>> {
    let mut spots = Vec::new();
    for (at, stage) in (0..).zip(&plan.stages) {
        let spot = |timing| move |config| Spot { stage: at, group: None, timing, config };
        spots.extend(stage.before_gates.iter().map(spot(Timing::Before)));
        spots.extend(stage.after_gates.iter().map(spot(Timing::After)));
    }
    for (at, group) in (0..).zip(&plan.groups) {
        let spot = |timing| move |config| Spot { stage: group.stage, group: Some(at), timing, config };
        spots.extend(group.before_gates.iter().map(spot(Timing::Before)));
        spots.extend(group.after_gates.iter().map(spot(Timing::After)));
    }
    spots
}

impl Stand {
    pub fn of(window: &MaintenanceWindow, now: Timestamp) -> Self {
        let open = window.is_open(now);
        Self { open, turns: if open { window.closes(now) } else { window.next_open(now) } }
    }
}

impl Outside {
    /// How the window of a member's cluster really stands.
    pub fn real(&self, member: u32) -> Option<Stand> {
        self.of[member as usize].map(|which| self.stands[which])
    }

    /// The image that a pool is on.
    pub fn image(&self, member: u32, pool: &str) -> Option<&NodeImage> {
        self.images[member as usize].iter().find(|(name, _)| name == pool).map(|(_, image)| image)
    }
}

impl Seen {
    fn of(run: &Run, member: u32, outside: &Outside) -> Self {
        let state = run.member(member);
        let held = state.held();
        let patience = SignedDuration::from_secs(i64::from(run.plan().patience_seconds));
        let window = match state.window {
            WindowOf::Unread => Known::Unread,
            WindowOf::Free => Known::Free,
            WindowOf::In(number) => {
                let known = run.window(number);
                let which = outside.windows.iter().position(|window| *window == known.window);
                let which = which.expect("a window that there is outside");
                Known::In { which, told: Stand { open: known.open, turns: known.next } }
            }
        };
        Self {
            state: run.member_state(member),
            attempt: state.attempt,
            steps_done: state.steps_done,
            turn: state.turn,
            times: state.times,
            skip_asked: state.skip_asked,
            stopped_between: held.is_some_and(|held| held.hold.code() == "StoppedBetweenSteps"),
            there: state.there,
            shut: state.phase == MemberPhase::Shut,
            window,
            worn: held.filter(|held| held.hold.wears_out()).map(|held| held.since + patience),
        }
    }

    /// Whether all is as it was but for the window, which others may have too.
    pub fn same(&self, old: &Self) -> bool {
        *self == Self { window: self.window, ..*old }
    }

    /// Whether it waits: for its turn, or for its window.
    pub fn waits(&self) -> bool {
        self.state == State::NotStarted || self.shut
    }
}

impl GateSeen {
    fn of(run: &Run, gate: u32) -> Self {
        let gate = run.gate(gate);
        let since = match gate.phase {
            GatePhase::Idle => None,
            GatePhase::Pending { since, .. } => Some(since),
            GatePhase::Over { since, .. } => since,
        };
        Self {
            state: gate.state(),
            since,
            due: gate.due(),
            approvals: gate.approvals.iter().map(|verdict| verdict.by.clone()).collect(),
            denied: gate.denial.is_some(),
            revision: gate.revision,
        }
    }

    /// Whether it is open for good, or left out.
    pub fn over(&self) -> bool {
        matches!(self.state, State::Completed | State::Skipped)
    }
}

impl View {
    pub fn of(run: &Run, now: Timestamp, outside: &Rc<Outside>) -> Self {
        let plan = run.plan();
        let group = |at: u32| {
            let group = run.group(at);
            Scope {
                state: run.group_state(at),
                phase: group.phase,
                times: group.times,
                counts: group.counts,
                skip_asked: group.skip_asked,
                wait: None,
                windows_read: group.windows_read,
                windows_stale: group.windows_stale,
            }
        };
        let stage = |at: u32| {
            let stage = run.stage(at);
            Scope {
                state: run.stage_state(at),
                phase: stage.phase,
                times: stage.times,
                counts: stage.counts,
                skip_asked: stage.skip_asked,
                wait: Some(stage.wait),
                windows_read: None,
                windows_stale: false,
            }
        };
        Self {
            now,
            state: run.state(),
            phase: run.phase(),
            current: run.current_stage(),
            version: run.version(),
            images: run.selected_images().map(Into::into),
            times: run.times(),
            counts: *run.counts(),
            stages: (0..plan.stages.len() as u32).map(stage).collect(),
            groups: (0..plan.groups.len() as u32).map(group).collect(),
            members: (0..plan.members.len() as u32).map(|member| Seen::of(run, member, outside)).collect(),
            gates: (0..run.gate_count()).map(|gate| GateSeen::of(run, gate)).collect(),
            error: run.error(Part::Run).map(|fault| fault.code),
            outside: Rc::clone(outside),
            naive: Memo::default(),
        }
    }

    fn naive(&self, plan: &Plan) -> &Naive {
        self.naive.0.get_or_init(|| {
            let mut closed = vec![[false; 2]; plan.stages.len() + plan.groups.len()];
            let spots = if self.gates.is_empty() { Vec::new() } else { spots(plan) };
            for (spot, _) in spots.iter().zip(&self.gates).filter(|(_, gate)| !gate.over()) {
                let place = spot.group.map_or(spot.stage as usize, |group| plan.stages.len() + group as usize);
                closed[place][spot.timing as usize] = true;
            }
            Naive {
                groups: plan.groups.iter().map(|group| self.count(group.members.clone())).collect(),
                stages: plan.stages.iter().map(|stage| self.count(stage.members.clone())).collect(),
                closed,
            }
        })
    }

    /// How a window really stands that the run knows of a member.
    pub fn stand(&self, member: &Seen) -> Option<Stand> {
        match member.window {
            Known::In { which, .. } => Some(self.outside.stands[which]),
            Known::Unread | Known::Free => None,
        }
    }

    pub fn count(&self, members: std::ops::Range<u32>) -> Counts {
        let mut counts = Counts::default();
        for member in &self.members[members.start as usize..members.end as usize] {
            match member.state {
                State::NotStarted => counts.not_started += 1,
                State::Running => counts.running += 1,
                State::Pending => counts.pending += 1,
                State::Completed => counts.completed += 1,
                State::Failed => counts.failed += 1,
                State::Skipped => counts.skipped += 1,
                State::Stopping | State::Stopped => {}
            }
            counts.there += u32::from(member.there && member.state == State::Skipped);
        }
        counts
    }

    pub fn group(&self, plan: &Plan, group: u32) -> Counts {
        self.naive(plan).groups[group as usize]
    }

    pub fn stage(&self, plan: &Plan, stage: u32) -> Counts {
        self.naive(plan).stages[stage as usize]
    }

    pub fn group_over(&self, plan: &Plan, group: u32) -> bool {
        let planned = &plan.groups[group as usize];
        let fail_fast = plan.stages[planned.stage as usize].max_allowed_failures == Some(0);
        let limit = if fail_fast { Some(0) } else { planned.max_allowed_failures };
        over(self.group(plan, group), limit, planned.budget)
    }

    pub fn stage_over(&self, plan: &Plan, stage: u32) -> bool {
        let planned = &plan.stages[stage as usize];
        over(self.stage(plan, stage), planned.max_allowed_failures, planned.budget)
    }

    /// Whether too few members are where they should be.
    pub fn group_short(&self, plan: &Plan, group: u32) -> bool {
        plan.groups[group as usize].min_success.is_some_and(|floor| well(self.group(plan, group)) < floor)
    }

    pub fn stage_short(&self, plan: &Plan, stage: u32) -> bool {
        plan.stages[stage as usize].min_success.is_some_and(|floor| well(self.stage(plan, stage)) < floor)
    }

    /// Whether a gate of one side of a stage or group is closed.
    pub fn closed(&self, plan: &Plan, place: (u32, Option<u32>), side: Timing) -> bool {
        let place = place.1.map_or(place.0 as usize, |group| plan.stages.len() + group as usize);
        self.naive(plan).closed[place][side as usize]
    }

    pub fn group_gated(&self, plan: &Plan, group: u32) -> bool {
        self.closed(plan, (plan.groups[group as usize].stage, Some(group)), Timing::Before)
    }

    /// Whether a stage that has members to move stands behind a gate.
    pub fn gated(&self, plan: &Plan, stage: u32) -> bool {
        let counts = self.stage(plan, stage);
        let left = counts.ended() < counts.total() && !self.stages[stage as usize].skip_asked;
        left && self.closed(plan, (stage, None), Timing::Before)
    }

    /// Whether the minor that the run goes to means no version yet, or its images are not chosen.
    pub fn unresolved(&self, plan: &Plan) -> bool {
        let consistent = plan.goal.images() == Some(&ImageSelection::Consistent);
        (self.version.is_none() && plan.goal.version().is_some()) || (consistent && self.images.is_none())
    }

    /// Whether a group may begin members.
    pub fn open(&self, plan: &Plan, group: u32) -> bool {
        let stage = plan.groups[group as usize].stage;
        self.phase == RunPhase::Going
            && !self.unresolved(plan)
            && self.current == Some(stage)
            && !matches!(self.groups[group as usize].phase, Phase::Ended(_))
            && !self.group_gated(plan, group)
            && !self.gated(plan, stage)
            && !self.group_over(plan, group)
            && !self.stage_over(plan, stage)
    }

    /// Whether all groups of a stage have ended well, and not all of them left out.
    pub fn stage_done(&self, plan: &Plan, stage: u32) -> bool {
        let groups = || plan.stages[stage as usize].groups.clone().map(|group| &self.groups[group as usize].phase);
        groups().all(|phase| matches!(phase, Phase::Ended(Outcome::Completed | Outcome::Skipped)))
            && groups().any(|phase| *phase == Phase::Ended(Outcome::Completed))
            && !self.stage_over(plan, stage)
            && !self.stage_short(plan, stage)
    }

    /// Who takes the next slot: of the group with the fewest running its most urgent member, there by place.
    pub fn next_to_start(&self, plan: &Plan) -> Option<u32> {
        let stage = self.current?;
        let planned = &plan.stages[stage as usize];
        let counts = self.stage(plan, stage);
        if counts.running >= room(counts, planned.max_concurrency, planned.max_allowed_failures, planned.budget) {
            return None;
        }
        let waiting = |group: u32| {
            let members = plan.groups[group as usize].members.clone();
            members.filter_map(|member| Some((self.urgency(&self.members[member as usize])?, member)))
        };
        let may = |group: &u32| {
            let planned = &plan.groups[*group as usize];
            let counts = self.group(plan, *group);
            let room = room(counts, planned.max_concurrency, planned.max_allowed_failures, planned.budget);
            counts.running < room && self.open(plan, *group) && waiting(*group).next().is_some()
        };
        let groups = planned.groups.clone().filter(may);
        let group = groups.min_by_key(|group| (self.group(plan, *group).running, *group))?;
        waiting(group).min().map(|(_, member)| member)
    }

    /// Whether strict budgets bear that a member fails that is not under way.
    pub fn may_fail(&self, plan: &Plan, member: u32) -> bool {
        let (group, stage) = (plan.group_of(member), plan.stage_of(member));
        let bears = |counts: Counts, limit: Option<u32>, budget: Budget| {
            budget != Budget::Strict || limit.is_none_or(|limit| counts.failed + counts.running < limit)
        };
        let (of_group, of_stage) = (&plan.groups[group as usize], &plan.stages[stage as usize]);
        bears(self.group(plan, group), of_group.max_allowed_failures, of_group.budget)
            && bears(self.stage(plan, stage), of_stage.max_allowed_failures, of_stage.budget)
    }

    /// 0: under way before; 1: its window is open now; 2: it has none. Others do not wait for a slot.
    fn urgency(&self, member: &Seen) -> Option<u32> {
        if member.state != State::NotStarted {
            return None;
        }
        let class = match member.window {
            Known::Unread => return None,
            Known::Free => 2,
            Known::In { which, .. } if self.outside.stands[which].open => 1,
            Known::In { .. } => return None,
        };
        Some(if member.steps_done > 0 { 0 } else { class })
    }
}

fn over(counts: Counts, limit: Option<u32>, budget: Budget) -> bool {
    let Some(limit) = limit else { return false };
    let used_up = budget == Budget::Strict && limit > 0 && counts.failed == limit;
    counts.failed > limit || (used_up && counts.not_started + counts.pending > 0)
}

/// Members that may be under way: with a strict budget, all of them may fail.
fn room(counts: Counts, most: u32, limit: Option<u32>, budget: Budget) -> u32 {
    match (budget, limit) {
        (Budget::Strict, Some(limit)) => most.min(limit.saturating_sub(counts.failed)),
        _ => most,
    }
}

fn well(counts: Counts) -> u32 {
    counts.completed + counts.there
}
