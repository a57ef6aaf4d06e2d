//! What people see: the state of each level, rolled up from what is remembered (`behaviour.md` B2, B3 and the choices
//! of the design), errors of what failed, and the reason for everything that does not move.

use std::borrow::Cow;

use flotta_model::{Fault, Name};

use super::state::{Counts, MemberPhase, Outcome, Phase, Run, RunPhase, State, Wait};

const SKIPPED_SINCE: &str =
    "a failure limit was exceeded; the members that failed have been skipped since: start the run to go on";

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
        // All groups ended, and the wait if there is one: what is left are gates.
        let gate_left = self.all_groups_ended(stage) && self.stage_gated_after(stage);
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
        let gated = self.group_gated(group) && state.counts.total() > 0;
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
            MemberPhase::Shut | MemberPhase::Held(_) => State::Pending,
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
                let shut = || Some(Fault::new(WINDOW_CLOSED, self.shut_message(member)?));
                state.fault.as_deref().cloned().or(hold).or_else(shut)
            }
            Part::Group(group) => {
                let plan = &plan.groups[group as usize];
                let limit = self.failures_allowed(group).unwrap_or(u32::MAX);
                let over = self.group_over(group).then(|| self.exceeded("group", &plan.name, group..group + 1, limit));
                let failed = self.group(group).phase == Phase::Ended(Outcome::Failed) && self.group_short(group);
                let short = || failed.then(|| missed("group", &plan.name, &self.group(group).counts, plan.min_success));
                over.or_else(short)
            }
            Part::Stage(stage) => self.stage_error(stage),
            Part::Run => {
                if let Some(denied) = self.halted_by_gate() {
                    return Some(denied);
                }
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
        let short = self.stage(stage).phase == Phase::Ended(Outcome::Failed) && self.stage_short(stage);
        let of_group = plan.groups.clone().find_map(|group| self.error(Part::Group(group)));
        of_group.or_else(|| short.then(|| missed("stage", &plan.name, &self.stage(stage).counts, plan.min_success)))
    }

    /// Why a gate brought the run to a halt, while that lasts.
    fn halted_by_gate(&self) -> Option<Fault> {
        matches!(self.phase(), RunPhase::Stopping | RunPhase::Stopped).then(|| self.denied()).flatten()
    }

    /// What people should know of a member.
    pub fn message(&self, member: u32) -> Option<Cow<'_, str>> {
        let told = self.member(member).message.as_deref().map(Cow::Borrowed);
        self.shut_message(member).map(Cow::Owned).or(told)
    }

    /// What there is to say of a member whose window is closed.
    fn shut_message(&self, member: u32) -> Option<String> {
        let window = self.shut_behind(member)?;
        let opens = match window.next {
            Some(next) => format!("until {next}"),
            None => "for good; change the cluster's maintenance configuration, or skip the member".into(),
        };
        let missed = match self.missed_windows(member) {
            0 => String::new(),
            1 => "; it was open once since the member began to wait".into(),
            count => format!("; it was open {count} times since the member began to wait"),
        };
        let steps = match self.member(member).steps_done {
            0 => String::new(),
            done => format!("; step {done} of the upgrade is done, the rest waits"),
        };
        Some(format!("maintenance window closed {opens}{missed}{steps}"))
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
        let limit = match failures > limit {
            true => format!("its limit is {limit}"),
            false => format!("and with them used up its strict budget of {limit}: nothing more is risked"),
        };
        let message = format!("{kind} '{name}' has {failures} failed member(s), {limit}: {}{more}", causes.join(", "));
        Fault::new("MaxAllowedFailuresExceeded", message)
    }
}

/// The code of a member that waits for its window.
const WINDOW_CLOSED: &str = "MaintenanceWindowClosed";

/// The summary of a floor of successes that was not reached.
fn missed(kind: &str, name: &Name, counts: &Counts, floor: Option<u32>) -> Fault {
    let message = format!(
        "{kind} '{name}' has {} member(s) that are where they should be, of at least {} (minSuccess); {} failed, {} skipped",
        counts.succeeded(),
        floor.unwrap_or_default(),
        counts.failed,
        counts.skipped - counts.there,
    );
    Fault::new("MinSuccessNotReached", message)
}
