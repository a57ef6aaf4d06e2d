//! Why something does not move: a typed reason for every state in which nothing does, with the earliest time at which it
//! can change.
//!
//! Of a member all rules are told that hold it: when each of them gives way the member moves, and not before. Of groups and
//! above, members are counted by the first of their rules.

use std::collections::{BTreeMap, BTreeSet};

use flotta_model::{Hold, Name};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{
    gates::Timing,
    state::{Held, MemberPhase, Outcome, Phase, Run, RunPhase, Urgency, Wait},
    status::Part,
    windows::WindowOf,
};
use crate::images::{self, Disagreement};

/// Why something does not move, and when at the earliest that can change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Why.
    pub why: Why,
    /// The earliest time at which it can change by itself, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How many members it is true of.
    pub members: u32,
}

/// The kinds of reasons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Why {
    /// The run was not started.
    NotStarted,
    /// The run is coming to a halt.
    Stopping,
    /// The run was stopped.
    Stopped,
    /// The run failed.
    Failed,
    /// The version that the run's minor means is not known yet.
    ResolvingTarget,
    /// The regions of the run are being asked for their node images.
    ResolvingImages,
    /// The regions of the run have no node image of these families in common. They are asked again.
    ImagesApart(Vec<Disagreement>),
    /// An earlier stage is under way.
    EarlierStage(Name),
    /// A gate is closed.
    Gate {
        /// The stage or group that it stands at.
        of: Name,
        /// The gate, as people call it.
        gate: String,
    },
    /// The wait after this stage is running.
    StageWait(Name),
    /// The maintenance windows of the group are being read.
    ReadingWindows,
    /// This group or stage has as many members under way as it may.
    Slot {
        /// The group or stage.
        of: Name,
        /// Its limit. A strict budget can be lower than the concurrency.
        limit: u32,
    },
    /// This group or stage has more failures than it may, or has used up its strict budget.
    FailureLimit {
        /// The group or stage.
        of: Name,
        /// Failures.
        failures: u32,
        /// Its limit.
        limit: u32,
    },
    /// The cluster's maintenance window is closed.
    Window,
    /// Something outside holds the member.
    Held(Hold),
}

/// Members of a group in the order in which they take slots.
type Queue = BTreeSet<(Urgency, u32)>;

impl Reason {
    fn of_one(why: Why, until: Option<Timestamp>) -> Self {
        Self { why, until, members: 1 }
    }

    /// The earliest time at which all of these can have given way, if each of them has one. Windows are read in no time
    /// that people would plan with.
    pub fn earliest(reasons: &[Self]) -> Option<Timestamp> {
        let lasting = reasons.iter().filter(|reason| reason.why != Why::ReadingWindows);
        let times: Option<Vec<Timestamp>> = lasting.map(|reason| reason.until).collect();
        times?.into_iter().max()
    }
}

impl Run {
    /// Why a part of the run does not move. Empty for what moves or is done. Of a member: every rule that holds it.
    pub fn waiting_on(&self, part: Part, now: Timestamp) -> Vec<Reason> {
        let plan = self.plan();
        let members = match part {
            Part::Member(member) => return self.rules(member, now),
            Part::Group(group) => plan.groups[group as usize].members.clone(),
            Part::Stage(stage) => plan.stages[stage as usize].members.clone(),
            Part::Run => 0..plan.members.len() as u32,
        };
        let mut reasons: BTreeMap<Why, Reason> = BTreeMap::new();
        for (why, until) in self.waits_itself(part, now) {
            reasons.insert(why.clone(), Reason { why, until, members: 0 });
        }
        for member in members {
            let Some((why, until)) = self.first_rule(member, now) else { continue };
            let reason = reasons.entry(why.clone()).or_insert(Reason { why, until, members: 0 });
            reason.members += 1;
            reason.until = reason.until.min(until).or(reason.until).or(until);
        }
        reasons.into_values().collect()
    }

    /// What a run, stage or group waits for as a whole.
    fn waits_itself(&self, part: Part, now: Timestamp) -> Vec<(Why, Option<Timestamp>)> {
        match part {
            Part::Run => match (self.run_waits(), self.core.current) {
                (Some(why), _) => vec![(why, None)],
                (None, _) if self.phase() == RunPhase::Going && self.unresolved() => self.target_rules(now),
                (None, Some(stage)) => self.stage_waits(stage, now),
                (None, None) => Vec::new(),
            },
            Part::Stage(stage) => self.stage_waits(stage, now),
            Part::Group(group) => self.group_waits(group, now),
            Part::Member(_) => Vec::new(),
        }
    }

    fn run_waits(&self) -> Option<Why> {
        match self.phase() {
            RunPhase::Idle => Some(Why::NotStarted),
            RunPhase::Stopped => Some(Why::Stopped),
            RunPhase::Ended(Outcome::Failed) => Some(Why::Failed),
            RunPhase::Going | RunPhase::Stopping | RunPhase::Failing | RunPhase::Ended(_) => None,
        }
    }

    /// The wait after a stage, and the gates that are all that is left of it or its groups.
    fn stage_waits(&self, stage: u32, now: Timestamp) -> Vec<(Why, Option<Timestamp>)> {
        let Phase::Entered = self.stage(stage).phase else { return Vec::new() };
        let plan = &self.plan().stages[stage as usize];
        if !self.all_groups_ended(stage) {
            return plan.groups.clone().flat_map(|group| self.group_waits(group, now)).collect();
        }
        let wait = self.waits_until(stage, now).map(|until| (Why::StageWait(plan.name.clone()), Some(until)));
        let gates = self.closed(self.stage_gates(stage, Timing::After));
        wait.into_iter().chain(gates.map(|gate| self.gate_closed(gate, now))).collect()
    }

    /// When the wait after a stage ends that is running at an instant.
    fn waits_until(&self, stage: u32, now: Timestamp) -> Option<Timestamp> {
        match self.stage(stage).wait {
            Wait::Running { until, .. } => Some(until).filter(|until| *until > now),
            Wait::Idle | Wait::Over { .. } => None,
        }
    }

    fn group_waits(&self, group: u32, now: Timestamp) -> Vec<(Why, Option<Timestamp>)> {
        let state = self.group(group);
        let done = state.phase == Phase::Entered && state.counts.ended() == state.counts.total();
        let gates = self.closed(self.group_gates(group, Timing::After)).filter(|_| done);
        gates.map(|gate| self.gate_closed(gate, now)).collect()
    }

    fn gate_closed(&self, gate: u32, now: Timestamp) -> (Why, Option<Timestamp>) {
        let view = self.gate_view(gate);
        let until = match view.config.kind {
            flotta_model::GateKind::ScheduledStart(_) => view.gate.due().filter(|due| *due > now),
            flotta_model::GateKind::Approval => None,
        };
        let of = view.group.unwrap_or(view.stage);
        (Why::Gate { of, gate: self.gate_title(gate) }, until)
    }

    /// The first rule that holds a member: what it is counted by.
    fn first_rule(&self, member: u32, now: Timestamp) -> Option<(Why, Option<Timestamp>)> {
        let state = self.member(member);
        if !matches!(state.phase, MemberPhase::Waiting | MemberPhase::Shut | MemberPhase::Held(_)) {
            return None;
        }
        let (group, stage) = (self.plan().group_of(member), self.plan().stage_of(member));
        let scope =
            self.halt_rule().map(|why| (why, None)).or_else(|| self.scope_rules(stage, group, now).into_iter().next());
        scope.or_else(|| self.own_rule(member, now)).or_else(|| Some((self.slot_rule(stage, group), None)))
    }

    /// Every rule that holds a member.
    fn rules(&self, member: u32, now: Timestamp) -> Vec<Reason> {
        let state = self.member(member);
        if !matches!(state.phase, MemberPhase::Waiting | MemberPhase::Shut | MemberPhase::Held(_)) {
            return Vec::new();
        }
        let (group, stage) = (self.plan().group_of(member), self.plan().stage_of(member));
        let mut rules: Vec<(Why, Option<Timestamp>)> = self.halt_rule().map(|why| (why, None)).into_iter().collect();
        rules.extend(self.scope_rules(stage, group, now));
        rules.extend(self.own_rule(member, now));
        if matches!(state.phase, MemberPhase::Held(_)) {
            rules.extend(self.window_rule(member, now));
        }
        if !self.would_start(member, now) {
            rules.push((self.slot_rule(stage, group), None));
        }
        rules.into_iter().map(|(why, until)| Reason::of_one(why, until)).collect()
    }

    /// The run does not go on at all.
    fn halt_rule(&self) -> Option<Why> {
        match self.phase() {
            RunPhase::Idle => Some(Why::NotStarted),
            RunPhase::Stopping | RunPhase::Failing => Some(Why::Stopping),
            RunPhase::Stopped => Some(Why::Stopped),
            RunPhase::Ended(_) => Some(Why::Failed),
            RunPhase::Going => None,
        }
    }

    /// What the run moves to is not known yet.
    fn target_rules(&self, now: Timestamp) -> Vec<(Why, Option<Timestamp>)> {
        let version = self.version_unresolved().then_some((Why::ResolvingTarget, None));
        let images = self.images_unresolved().then(|| match &self.core.apart {
            None => (Why::ResolvingImages, None),
            Some(apart) => {
                let again = next_look(apart.since, images::LOOKED_AT_EVERY, now);
                (Why::ImagesApart(apart.families.clone()), Some(again))
            }
        });
        version.into_iter().chain(images).collect()
    }

    /// What holds every member of a group, apart from a halt.
    fn scope_rules(&self, stage: u32, group: u32, now: Timestamp) -> Vec<(Why, Option<Timestamp>)> {
        let mut rules = self.target_rules(now);
        for earlier in (0..stage).filter(|earlier| !self.passed(*earlier, now)) {
            let name = self.plan().stages[earlier as usize].name.clone();
            rules.push((Why::EarlierStage(name), self.waits_until(earlier, now)));
        }
        let gates = self.stage_gates(stage, Timing::Before).chain(self.group_gates(group, Timing::Before));
        rules.extend(gates.filter(|gate| self.closed_at(*gate, now)).map(|gate| self.gate_closed(gate, now)));
        // What failed is tried again, and counts no longer, when a run that was halted is started.
        if self.phase() == RunPhase::Going {
            rules.extend(self.failure_rules(stage, group).map(|why| (why, None)));
        }
        rules
    }

    /// Whether a stage is done, or is as soon as the run comes to it or goes on: there is nobody to move, and no wait or
    /// gate is left.
    fn passed(&self, stage: u32, now: Timestamp) -> bool {
        let (state, plan) = (self.stage(stage), &self.plan().stages[stage as usize]);
        let waited = match state.wait {
            Wait::Idle => plan.after_wait_seconds == 0,
            Wait::Running { until, .. } => until <= now,
            Wait::Over { .. } => true,
        };
        let all_skipped = state.groups_ended[Outcome::Skipped as usize] as usize == plan.groups.len();
        match state.phase {
            Phase::Ended(Outcome::Completed | Outcome::Skipped) => true,
            Phase::Idle => state.counts.ended() == state.counts.total(),
            // What failed is tried again when the run goes on, and a stage that failed is judged anew.
            _ if !self.all_groups_ended(stage) || state.counts.failed > 0 => false,
            _ if self.stage_failed(stage) => false,
            Phase::Entered | Phase::Ended(_) => all_skipped || (waited && !self.stage_gated_after(stage)),
        }
    }

    fn failure_rules(&self, stage: u32, group: u32) -> impl Iterator<Item = Why> {
        let over = |of: &Name, failures, limit: Option<u32>| Why::FailureLimit {
            of: of.clone(),
            failures,
            limit: limit.unwrap_or(0),
        };
        let plan = &self.plan().stages[stage as usize];
        let of_stage = || over(&plan.name, self.stage(stage).counts.failed, plan.max_allowed_failures);
        let of_stage = self.stage_over(stage).then(of_stage);
        let plan = &self.plan().groups[group as usize];
        let of_group = || over(&plan.name, self.group(group).counts.failed, self.failures_allowed(group));
        of_stage.into_iter().chain(self.group_over(group).then(of_group))
    }

    /// What holds a member alone.
    fn own_rule(&self, member: u32, now: Timestamp) -> Option<(Why, Option<Timestamp>)> {
        let state = self.member(member);
        match &state.phase {
            MemberPhase::Waiting if state.window == WindowOf::Unread => Some((Why::ReadingWindows, None)),
            MemberPhase::Waiting | MemberPhase::Shut => self.window_rule(member, now),
            MemberPhase::Held(held) if matches!(held.hold, Hold::StoppedBetweenSteps { .. }) => None,
            MemberPhase::Held(held) => Some((Why::Held(held.hold.clone()), Some(held.looked_at_next(now)))),
            _ => None,
        }
    }

    fn window_rule(&self, member: u32, now: Timestamp) -> Option<(Why, Option<Timestamp>)> {
        self.shut_at(member, now).then(|| (Why::Window, self.opens_after(member, now)))
    }

    /// The rule that leaves no slot in a group: its own, or its stage's.
    fn slot_rule(&self, stage: u32, group: u32) -> Why {
        let (room, plan) = (self.group_room(group), &self.plan().groups[group as usize]);
        let waiting = self.group(group).counts.running + self.group(group).ready.len() as u32;
        if self.group(group).counts.running >= room || (self.core.current != Some(stage) && waiting >= room) {
            return Why::Slot { of: plan.name.clone(), limit: room };
        }
        Why::Slot { of: self.plan().stages[stage as usize].name.clone(), limit: self.stage_room(stage) }
    }

    /// Whether a member would be given a slot if nothing else held it, its stage were under way and its group open.
    fn would_start(&self, member: u32, now: Timestamp) -> bool {
        let (own, stage) = (self.plan().group_of(member), self.plan().stage_of(member));
        let going = self.phase() == RunPhase::Going;
        let queues = self.plan().stages[stage as usize].groups.clone().filter_map(|group| {
            let competes = group == own || (!self.group_gated_at(group, now) && self.may_go_on(group));
            let mut queue = competes.then(|| self.queue(group, own, member, now))?;
            if group == own {
                queue.insert((self.member(member).urgency().unwrap_or(Urgency::AnyTime), member));
            }
            let room = if going { self.group_room(group) } else { self.fresh_room(group) };
            let running = if going { self.group(group).counts.running } else { 0 };
            Some(((running, group), (room, queue)))
        });
        let mut queues: BTreeMap<(u32, u32), (u32, Queue)> = queues.collect();
        let free = match going {
            true => self.stage_room(stage).saturating_sub(self.stage(stage).counts.running),
            false => self.fresh_stage_room(stage),
        };
        for _ in 0..free {
            let next = loop {
                let Some(((running, group), (room, mut queue))) = queues.pop_first() else { return false };
                if running < room
                    && let Some((_, next)) = queue.pop_first()
                {
                    queues.insert((running + 1, group), (room, queue));
                    break next;
                }
            };
            if next == member {
                return true;
            }
        }
        false
    }

    fn group_gated_at(&self, group: u32, now: Timestamp) -> bool {
        self.group_gates(group, Timing::Before).any(|gate| self.closed_at(gate, now))
    }

    /// Whether a group has anything to do in a run that goes on.
    fn may_go_on(&self, group: u32) -> bool {
        match self.phase() {
            RunPhase::Going => !matches!(self.group(group).phase, Phase::Ended(_)) && !self.group_over(group),
            _ => true,
        }
    }

    /// Members of a group that would take slots beside `member`: those that are ready; in a run that is halted those that
    /// a start would make ready; in its own group, if its windows are yet to be read, those that turn out to have none.
    fn queue(&self, group: u32, own: u32, member: u32, now: Timestamp) -> Queue {
        let halted = self.phase() != RunPhase::Going;
        let with_unread = group == own && self.member(member).window == WindowOf::Unread;
        if !with_unread && !halted {
            return self.group(group).ready.clone();
        }
        let again = halted && self.core.current == Some(self.plan().groups[group as usize].stage);
        let joins = |member: u32| {
            let state = self.member(member);
            let (window, since) = (state.urgency(), state.steps_done > 0);
            let urgency = match &state.phase {
                MemberPhase::Waiting | MemberPhase::Shut => window.or(with_unread.then_some(Urgency::AnyTime))?,
                MemberPhase::Held(held) if matches!(held.hold, Hold::StoppedBetweenSteps { .. }) && again => window?,
                MemberPhase::Ended(Outcome::Failed) if again && since => match state.window {
                    WindowOf::In(_) => Urgency::OpenNow,
                    WindowOf::Free | WindowOf::Unread => Urgency::AnyTime,
                },
                MemberPhase::Ended(Outcome::Failed) if again => window?,
                _ => return None,
            };
            (!self.shut_at(member, now)).then_some((urgency, member))
        };
        self.plan().groups[group as usize].members.clone().filter_map(joins).collect()
    }

    /// Members of a group that may move at once when nothing in it has failed.
    fn fresh_room(&self, group: u32) -> u32 {
        let plan = &self.plan().groups[group as usize];
        super::state::strict_room(plan.max_concurrency, plan.max_allowed_failures, plan.budget)
    }

    fn fresh_stage_room(&self, stage: u32) -> u32 {
        let plan = &self.plan().stages[stage as usize];
        super::state::strict_room(plan.max_concurrency, plan.max_allowed_failures, plan.budget)
    }
}

impl Held {
    /// When what holds a member is looked at again, after `now`.
    pub fn looked_at_next(&self, now: Timestamp) -> Timestamp {
        next_look(self.since, self.hold.looked_at_every(), now)
    }
}

/// When something is looked at next, after `now`, that is looked at every so many seconds since an instant.
fn next_look(since: Timestamp, every: u32, now: Timestamp) -> Timestamp {
    let every = i64::from(every);
    let passed = now.duration_since(since).as_secs().max(0);
    let until = SignedDuration::from_secs((passed / every + 1) * every);
    since.saturating_add(until).unwrap_or(Timestamp::MAX)
}
