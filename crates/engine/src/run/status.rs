//! What people see: the state of each level, rolled up from what is remembered (`behaviour.md` B2, B3 and the choices
//! of the design), errors of what failed, and the reason for everything that does not move.

use std::collections::BTreeMap;

use flotta_model::{Fault, Hold, Name};
use jiff::Timestamp;
use serde::Serialize;

use super::state::{Counts, MemberPhase, Outcome, Phase, Run, RunPhase, State, Wait};

const SKIPPED_SINCE: &str =
    "a failure limit was exceeded; the members that failed have been skipped since: start the run to go on";

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
    /// An earlier stage is under way.
    EarlierStage(Name),
    /// A gate of this stage or group is closed.
    Gate(Name),
    /// The wait after this stage is running.
    StageWait(Name),
    /// This group or stage has as many members under way as it may.
    Slot {
        /// The group or stage.
        of: Name,
        /// Its limit.
        limit: u32,
    },
    /// This group or stage has more failures than it may.
    FailureLimit {
        /// The group or stage.
        of: Name,
        /// Failures.
        failures: u32,
        /// Its limit.
        limit: u32,
    },
    /// Something outside holds the member.
    Held(Hold),
}

/// Something to ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The run.
    Run,
    /// A stage.
    Stage(u32),
    /// A group.
    Group(u32),
    /// A member.
    Member(u32),
}

impl Run {
    /// The state of the run.
    pub fn state(&self) -> State {
        match self.phase() {
            RunPhase::Idle => State::NotStarted,
            RunPhase::Stopping | RunPhase::Failing if self.counts().running > 0 => State::Stopping,
            RunPhase::Stopping | RunPhase::Failing => State::Stopped,
            RunPhase::Stopped => State::Stopped,
            RunPhase::Ended(outcome) => outcome.into(),
            RunPhase::Going => match self.current_stage().map(|stage| self.stage_state(stage)) {
                Some(halted @ (State::Pending | State::Stopping)) => halted,
                _ => State::Running,
            },
        }
    }

    /// The state of a stage.
    pub fn stage_state(&self, stage: u32) -> State {
        let state = self.stage(stage);
        match state.phase {
            Phase::Ended(outcome) => return outcome.into(),
            Phase::Idle => return State::NotStarted,
            Phase::Entered => {}
        }
        let over = self.stage_over(stage);
        if let Some(halted) = self.halted(&state.counts, state.times.started.is_some(), over) {
            return halted;
        }
        if self.stage_gated(stage) {
            return State::Pending;
        }
        if matches!(state.wait, Wait::Running { .. }) {
            return State::Running;
        }
        let groups = self.plan().stages[stage as usize].groups.clone();
        let mut pending = false;
        for group in groups {
            match self.group_state(group) {
                State::Running | State::Stopping => return State::Running,
                State::Pending => pending = true,
                _ => {}
            }
        }
        let gate_left = !self.plan().stages[stage as usize].after_gates.is_empty();
        if pending || gate_left { State::Pending } else { State::Running }
    }

    /// The state of a group.
    pub fn group_state(&self, group: u32) -> State {
        let state = self.group(group);
        if let Phase::Ended(outcome) = state.phase {
            return outcome.into();
        }
        let stage = self.plan().groups[group as usize].stage;
        if self.stage(stage).phase == Phase::Idle {
            return State::NotStarted;
        }
        let over = self.group_over(group) || self.stage_over(stage);
        if let Some(halted) = self.halted(&state.counts, state.times.started.is_some(), over) {
            return halted;
        }
        if self.stage_gated(stage) {
            return State::NotStarted;
        }
        let gated = !self.plan().groups[group as usize].before_gates.is_empty();
        match () {
            () if state.counts.running > 0 => State::Running,
            () if gated => State::Pending,
            () if state.counts.not_started > 0 && !self.unresolved() => State::Running,
            () if state.counts.not_started > 0 => State::Pending,
            () if state.counts.pending > 0 => State::Pending,
            () if state.counts.ended() == state.counts.total() && state.counts.total() > 0 => State::Pending,
            () => State::NotStarted,
        }
    }

    /// The state of something entered in a run that comes, or came, to a halt; `None` while it goes on.
    fn halted(&self, counts: &Counts, begun: bool, over: bool) -> Option<State> {
        let halting = matches!(self.phase(), RunPhase::Stopping | RunPhase::Failing);
        let stood_still = matches!(self.phase(), RunPhase::Stopped | RunPhase::Ended(_));
        match () {
            () if (halting || over) && counts.running > 0 => Some(State::Stopping),
            () if (halting || over || stood_still) && begun => Some(State::Stopped),
            () if halting || over || stood_still => Some(State::NotStarted),
            () => None,
        }
    }

    /// The state of a member.
    pub fn member_state(&self, member: u32) -> State {
        match &self.member(member).phase {
            MemberPhase::Waiting => State::NotStarted,
            MemberPhase::Looking | MemberPhase::Intended(_) | MemberPhase::Moving(_) => State::Running,
            MemberPhase::Held(_) => State::Pending,
            MemberPhase::Ended(outcome) => (*outcome).into(),
        }
    }

    /// The state of the wait after a stage.
    pub fn wait_state(&self, stage: u32) -> State {
        match self.stage(stage).wait {
            Wait::Idle => State::NotStarted,
            Wait::Running { .. } => State::Running,
            Wait::Over { skipped: true, .. } => State::Skipped,
            Wait::Over { .. } => State::Completed,
        }
    }

    /// What went wrong in a run, stage, group or member that is Failed, or is about to be.
    pub fn error(&self, part: Part) -> Option<Fault> {
        let plan = self.plan();
        match part {
            Part::Member(member) => {
                let state = self.member(member);
                let hold = state.held().map(|held| Fault::new(held.hold.code(), held.hold.to_string()));
                state.fault.as_deref().cloned().or(hold)
            }
            Part::Group(group) => {
                let over = self.group_over(group);
                let limit = self.failures_allowed(group).unwrap_or(u32::MAX);
                over.then(|| self.exceeded("group", &plan.groups[group as usize].name, group..group + 1, limit))
            }
            Part::Stage(stage) => self.stage_error(stage),
            Part::Run => {
                let failed = self.phase() == RunPhase::Ended(Outcome::Failed);
                let failing = failed || self.phase() == RunPhase::Failing;
                let error = self.current_stage().filter(|_| failing).and_then(|stage| self.stage_error(stage));
                let skipped_since = || Fault::new("MaxAllowedFailuresExceeded", SKIPPED_SINCE);
                error.or_else(|| failed.then(skipped_since))
            }
        }
    }

    fn stage_error(&self, stage: u32) -> Option<Fault> {
        let plan = &self.plan().stages[stage as usize];
        if let Some(limit) = plan.max_allowed_failures.filter(|_| self.stage_over(stage)) {
            return Some(self.exceeded("stage", &plan.name, plan.groups.clone(), limit));
        }
        plan.groups.clone().find_map(|group| self.error(Part::Group(group)))
    }

    /// The summary of a failure limit that was exceeded: how many, of how many, and the first three causes.
    fn exceeded(&self, kind: &str, name: &Name, groups: std::ops::Range<u32>, limit: u32) -> Fault {
        let failures: u32 = groups.clone().map(|group| self.group(group).counts.failed).sum();
        let members = groups
            .filter(|group| self.group(*group).counts.failed > 0)
            .flat_map(|group| self.plan().groups[group as usize].members.clone())
            .filter(|member| self.member(*member).phase == MemberPhase::Ended(Outcome::Failed));
        let causes: Vec<String> = members
            .take(3)
            .map(|member| {
                let code = self.member(member).fault.as_ref().map_or("Unknown", |fault| fault.code.as_str());
                format!("'{}' ({code})", self.plan().members[member as usize].name)
            })
            .collect();
        let more = failures.saturating_sub(causes.len() as u32);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!(
            "{kind} '{name}' has {failures} failed member(s), its limit is {limit}: {}{more}",
            causes.join(", ")
        );
        Fault::new("MaxAllowedFailuresExceeded", message)
    }

    /// Why a part of the run does not move. Empty for what moves or is done.
    pub fn waiting_on(&self, part: Part) -> Vec<Reason> {
        let plan = self.plan();
        let members = match part {
            Part::Member(member) => member..member + 1,
            Part::Group(group) => plan.groups[group as usize].members.clone(),
            Part::Stage(stage) => plan.stages[stage as usize].members.clone(),
            Part::Run => 0..plan.members.len() as u32,
        };
        let mut reasons: BTreeMap<Why, Reason> = BTreeMap::new();
        for (why, until) in self.waits_itself(part) {
            reasons.insert(why.clone(), Reason { why, until, members: 0 });
        }
        for member in members {
            let Some((why, until)) = self.member_waits_on(member) else { continue };
            let reason = reasons.entry(why.clone()).or_insert(Reason { why, until, members: 0 });
            reason.members += 1;
        }
        reasons.into_values().collect()
    }

    /// What a run, stage or group waits for as a whole.
    fn waits_itself(&self, part: Part) -> Vec<(Why, Option<Timestamp>)> {
        match part {
            Part::Run => match (self.run_waits(), self.core.current) {
                (Some(why), _) => vec![(why, None)],
                (None, Some(stage)) => self.stage_waits(stage),
                (None, None) => Vec::new(),
            },
            Part::Stage(stage) => self.stage_waits(stage),
            Part::Group(group) => self.group_waits(group).into_iter().collect(),
            Part::Member(_) => Vec::new(),
        }
    }

    fn run_waits(&self) -> Option<Why> {
        match self.phase() {
            RunPhase::Idle => Some(Why::NotStarted),
            RunPhase::Going if self.unresolved() => Some(Why::ResolvingTarget),
            RunPhase::Stopped => Some(Why::Stopped),
            RunPhase::Ended(Outcome::Failed) => Some(Why::Failed),
            RunPhase::Going | RunPhase::Stopping | RunPhase::Failing | RunPhase::Ended(_) => None,
        }
    }

    /// The wait after a stage, and the gates that are all that is left of it or its groups.
    fn stage_waits(&self, stage: u32) -> Vec<(Why, Option<Timestamp>)> {
        let Phase::Entered = self.stage(stage).phase else { return Vec::new() };
        let plan = &self.plan().stages[stage as usize];
        if !self.all_groups_ended(stage) {
            return plan.groups.clone().filter_map(|group| self.group_waits(group)).collect();
        }
        let wait = match self.stage(stage).wait {
            Wait::Running { until, .. } => Some((Why::StageWait(plan.name.clone()), Some(until))),
            _ => None,
        };
        let gate = (!plan.after_gates.is_empty()).then(|| (Why::Gate(plan.name.clone()), None));
        wait.into_iter().chain(gate).collect()
    }

    fn group_waits(&self, group: u32) -> Option<(Why, Option<Timestamp>)> {
        let plan = &self.plan().groups[group as usize];
        let state = self.group(group);
        let done = state.phase == Phase::Entered && state.counts.ended() == state.counts.total();
        (done && !plan.after_gates.is_empty()).then(|| (Why::Gate(plan.name.clone()), None))
    }

    fn member_waits_on(&self, member: u32) -> Option<(Why, Option<Timestamp>)> {
        let state = self.member(member);
        let held = match &state.phase {
            MemberPhase::Waiting => None,
            MemberPhase::Held(held) => Some(held),
            _ => return None,
        };
        match self.phase() {
            RunPhase::Idle => return Some((Why::NotStarted, None)),
            RunPhase::Stopping | RunPhase::Failing => return Some((Why::Stopping, None)),
            RunPhase::Stopped => return Some((Why::Stopped, None)),
            RunPhase::Ended(_) => return Some((Why::Failed, None)),
            RunPhase::Going => {}
        }
        let group = self.plan().group_of(member);
        let stage = self.plan().stage_of(member);
        if let Some(why) = self.scope_waits_on(stage, group) {
            return Some(why);
        }
        if let Some(held) = held {
            return Some((Why::Held(held.hold.clone()), None));
        }
        let plan = &self.plan().groups[group as usize];
        if self.group(group).counts.running >= plan.max_concurrency {
            return Some((Why::Slot { of: plan.name.clone(), limit: plan.max_concurrency }, None));
        }
        let plan = &self.plan().stages[stage as usize];
        Some((Why::Slot { of: plan.name.clone(), limit: plan.max_concurrency }, None))
    }

    /// What holds every member of a group in a run that goes on.
    fn scope_waits_on(&self, stage: u32, group: u32) -> Option<(Why, Option<Timestamp>)> {
        if self.unresolved() {
            return Some((Why::ResolvingTarget, None));
        }
        let stage_plan = &self.plan().stages[stage as usize];
        let plan = &self.plan().groups[group as usize];
        match self.current_stage() {
            Some(current) if current != stage => {
                let until = match self.stage(current).wait {
                    Wait::Running { until, .. } => Some(until),
                    _ => None,
                };
                return Some((Why::EarlierStage(self.plan().stages[current as usize].name.clone()), until));
            }
            None => return Some((Why::NotStarted, None)),
            Some(_) => {}
        }
        if self.stage_gated(stage) {
            return Some((Why::Gate(stage_plan.name.clone()), None));
        }
        if !plan.before_gates.is_empty() {
            return Some((Why::Gate(plan.name.clone()), None));
        }
        let over = |of: &Name, failures: u32, limit: Option<u32>| {
            (Why::FailureLimit { of: of.clone(), failures, limit: limit.unwrap_or(0) }, None)
        };
        if self.stage_over(stage) {
            return Some(over(&stage_plan.name, self.stage(stage).counts.failed, stage_plan.max_allowed_failures));
        }
        if self.group_over(group) {
            return Some(over(&plan.name, self.group(group).counts.failed, self.failures_allowed(group)));
        }
        None
    }
}
