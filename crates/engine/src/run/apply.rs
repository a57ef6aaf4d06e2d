//! State is a fold over the journal.

use flotta_model::Hold;
use jiff::Timestamp;

use super::{
    event::{Event, Skipped},
    gates::Timing,
    state::{Held, MemberPhase, Outcome, Phase, Pledge, Run, RunPhase, Wait},
};

impl Run {
    /// Changes the state as an event of time `at` says. Events of one run are applied in the order of its journal;
    /// an event that does not fit its state is a corrupt journal, and asserted against.
    pub fn apply(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::Started => {
                self.core.times.started = Some(at);
                self.set_run_phase(RunPhase::Going);
            }
            Event::Resumed => self.resume(at),
            Event::StopAsked => self.halt(RunPhase::Stopping),
            Event::Stopped => self.set_run_phase(RunPhase::Stopped),
            Event::FailedFast { .. } => self.halt(RunPhase::Failing),
            Event::RunEnded(outcome) => {
                self.core.times.completed = Some(at);
                self.set_run_phase(RunPhase::Ended(*outcome));
            }
            Event::TargetResolved(version) => {
                self.core.version = Some(*version);
                if let Some(stage) = self.core.current {
                    self.refresh_stage(stage);
                }
            }
            Event::ImagesSelected(images) => self.select_images(images),
            Event::ImagesDisagree(families) => self.images_disagree(families, at),
            Event::Skipped(targets) => targets.iter().for_each(|target| self.skip(*target, at)),
            Event::StageEntered(stage) => self.enter_stage(*stage, at),
            Event::WaitStarted { stage, until } => {
                self.core.stages[*stage as usize].wait = Wait::Running { since: at, until: *until };
            }
            Event::WaitEnded(stage) => {
                let wait = &mut self.core.stages[*stage as usize].wait;
                if let Wait::Running { since, .. } = *wait {
                    *wait = Wait::Over { since: Some(since), at, skipped: false };
                }
            }
            Event::GateReached { .. }
            | Event::GateApproved { .. }
            | Event::GateOpened(_)
            | Event::GateRejected { .. }
            | Event::GateExpired(_) => self.apply_to_gate(event, at),
            Event::WindowsRead { new, members } => self.read_windows(new, members, at),
            Event::WindowsStale(group) => {
                self.core.groups[*group as usize].windows_stale = true;
                self.refresh_group(*group);
            }
            Event::WindowTurned { window, open, next } => self.turn_window(*window, *open, *next),
            Event::StageEnded(stage, outcome) => self.end_stage(*stage, *outcome, at),
            Event::GroupEnded(group, outcome) => self.end_group(*group, *outcome, at),
            _ => self.apply_to_member(event, at),
        }
    }

    fn apply_to_member(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::MemberStarted(member) => self.start_member(*member, at),
            Event::StepIntended { member, step, guard, left, not_after } => {
                let pledge =
                    Pledge { step: step.clone(), guard: guard.clone(), at, left: *left, not_after: *not_after };
                self.set_phase(*member, MemberPhase::Intended(Box::new(pledge)));
            }
            Event::StepAccepted { member, operation, .. } => {
                let state = &mut self.core.members[*member as usize];
                state.operation = Some(operation.as_str().into());
                state.moved = true;
                let pledge = match std::mem::replace(&mut state.phase, MemberPhase::Looking) {
                    MemberPhase::Intended(pledge) | MemberPhase::Moving(pledge) => pledge,
                    other => unreachable!("step accepted for a member that is {other:?}"),
                };
                self.set_phase(*member, MemberPhase::Moving(pledge));
            }
            Event::StepWithdrawn(member) => self.set_phase(*member, MemberPhase::Looking),
            Event::StepSucceeded(member) => {
                self.core.members[*member as usize].steps_done += 1;
                self.set_phase(*member, MemberPhase::Looking);
            }
            Event::MemberHeld(member, hold) => self.hold(*member, hold, at),
            Event::MemberReleased(member) => {
                let state = &mut self.core.members[*member as usize];
                (state.message, state.fault) = (None, None);
                if state.steps_done == 0 {
                    state.times.started = None;
                }
                self.put_back(*member);
            }
            Event::MemberEnded { member, outcome, message, fault, there } => {
                let state = &mut self.core.members[*member as usize];
                state.times.completed = Some(at);
                state.message = message.as_deref().map(Into::into);
                state.fault = fault.clone().map(Box::new);
                state.there = *there;
                self.set_phase(*member, MemberPhase::Ended(*outcome));
            }
            other => unreachable!("{other:?} is not about a member"),
        }
    }

    /// Moves a member to another phase, with all counts and orders.
    fn set_phase(&mut self, member: u32, phase: MemberPhase) {
        let (group, stage) = self.places(member);
        let over_before = self.stage_over(stage as u32);
        self.count_out(member);
        let state = &mut self.core.members[member as usize];
        state.phase = phase;
        state.turn += 1;
        self.count_in(member);
        if over_before == self.stage_over(stage as u32) {
            self.refresh_group(group as u32);
        } else {
            self.refresh_stage(stage as u32);
        }
    }

    /// A member begins nothing for now: it waits for its turn, or for its window.
    fn put_back(&mut self, member: u32) {
        let phase = self.at_rest(member);
        self.set_phase(member, phase);
    }

    fn set_run_phase(&mut self, phase: RunPhase) {
        self.core.phase = phase;
        if let Some(stage) = self.core.current {
            self.refresh_stage(stage);
        }
    }

    fn start_member(&mut self, member: u32, at: Timestamp) {
        let (group, stage) = self.places(member);
        let state = &mut self.core.members[member as usize];
        state.times.started.get_or_insert(at);
        (state.message, state.fault) = (None, None);
        let group = &mut self.core.groups[group];
        group.phase = Phase::Entered;
        group.times.started.get_or_insert(at);
        self.core.stages[stage].times.started.get_or_insert(at);
        self.set_phase(member, MemberPhase::Looking);
    }

    fn hold(&mut self, member: u32, hold: &Hold, at: Timestamp) {
        let since = match self.core.members[member as usize].held() {
            Some(held) if held.hold.code() == hold.code() => held.since,
            _ => at,
        };
        self.core.members[member as usize].message = Some(hold.to_string().into());
        self.set_phase(member, MemberPhase::Held(Box::new(Held { hold: hold.clone(), since })));
    }

    fn enter_stage(&mut self, stage: u32, at: Timestamp) {
        self.core.current = Some(stage);
        let gated = self.stage_gated(stage) || self.unresolved();
        let state = &mut self.core.stages[stage as usize];
        state.phase = Phase::Entered;
        if !gated && state.counts.total() > 0 {
            state.times.started = Some(at);
        }
        self.refresh_stage(stage);
    }

    fn end_group(&mut self, group: u32, outcome: Outcome, at: Timestamp) {
        let stage = self.plan.groups[group as usize].stage;
        let state = &mut self.core.groups[group as usize];
        state.phase = Phase::Ended(outcome);
        state.times.completed = Some(at);
        self.core.stages[stage as usize].groups_ended[outcome as usize] += 1;
        if outcome == Outcome::Skipped {
            self.skip_gates_of_group(group, at);
        }
        self.refresh_group(group);
    }

    fn end_stage(&mut self, stage: u32, outcome: Outcome, at: Timestamp) {
        let state = &mut self.core.stages[stage as usize];
        state.phase = Phase::Ended(outcome);
        state.times.completed = Some(at);
        if outcome != Outcome::Failed {
            let state = &mut self.core.stages[stage as usize];
            state.wait = match state.wait {
                Wait::Running { since, until } => {
                    Wait::Over { since: Some(since), at, skipped: state.skip_asked && at < until }
                }
                Wait::Idle => Wait::Over { since: None, at, skipped: true },
                over @ Wait::Over { .. } => over,
            };
        }
        self.skipping.remove(&stage);
        if outcome == Outcome::Skipped {
            self.skip_gates_of_stage(stage, at);
        }
        self.refresh_stage(stage);
    }

    /// What stands before and after a group that was left out is left out too.
    fn skip_gates_of_group(&mut self, group: u32, at: Timestamp) {
        for timing in [Timing::Before, Timing::After] {
            self.skip_gates(self.group_gates(group, timing), at);
        }
    }

    fn skip_gates_of_stage(&mut self, stage: u32, at: Timestamp) {
        for timing in [Timing::Before, Timing::After] {
            self.skip_gates(self.stage_gates(stage, timing), at);
        }
    }

    /// Members that were only looked at have not begun anything: they go back, and give up their slots.
    pub(super) fn halt(&mut self, phase: RunPhase) {
        let looking: Vec<u32> = self.active.iter().copied().filter(|member| self.untouched(*member)).collect();
        for member in looking {
            self.core.members[member as usize].times.started = None;
            self.put_back(member);
        }
        self.set_run_phase(phase);
    }

    /// Whether a member with a slot has begun nothing in this attempt.
    fn untouched(&self, member: u32) -> bool {
        let state = self.member(member);
        state.phase == MemberPhase::Looking && state.steps_done == 0
    }

    /// Failed members of the current stage are tried again and leave the counts; what they belong to is open again.
    fn resume(&mut self, at: Timestamp) {
        self.core.times.completed = None;
        self.core.phase = RunPhase::Going;
        self.ask_again(at);
        let Some(stage) = self.core.current else { return };
        if matches!(self.stage(stage).phase, Phase::Ended(Outcome::Completed | Outcome::Skipped)) {
            return;
        }
        let mut reopened = false;
        for group in self.plan.stages[stage as usize].groups.clone() {
            let failed = self.members_of(group, |phase| *phase == MemberPhase::Ended(Outcome::Failed));
            let again = !failed.is_empty() || self.group(group).phase == Phase::Ended(Outcome::Failed);
            for member in failed {
                self.try_again(member);
            }
            if again {
                reopened = true;
                self.reopen_group(group);
            }
            let back = |phase: &MemberPhase| matches!(phase, MemberPhase::Held(held) if matches!(held.hold, Hold::StoppedBetweenSteps { .. }));
            for member in self.members_of(group, back) {
                self.core.members[member as usize].message = None;
                self.put_back(member);
            }
        }
        if reopened {
            self.wait_anew(stage);
        }
        self.reopen_failed_stage(stage);
        self.refresh_stage(stage);
    }

    /// The wait after a stage follows the last of its members: once some are tried again, it has yet to begin.
    fn wait_anew(&mut self, stage: u32) {
        let wait = &mut self.core.stages[stage as usize].wait;
        if !matches!(wait, Wait::Over { skipped: true, .. }) {
            *wait = Wait::Idle;
        }
    }

    fn members_of(&self, group: u32, wanted: impl Fn(&MemberPhase) -> bool) -> Vec<u32> {
        let members = self.plan.groups[group as usize].members.clone();
        members.filter(|member| wanted(&self.member(*member).phase)).collect()
    }

    fn try_again(&mut self, member: u32) {
        let state = &mut self.core.members[member as usize];
        state.attempt += 1;
        state.steps_done = 0;
        state.times = Default::default();
        (state.message, state.fault, state.operation) = (None, None, None);
        self.put_back(member);
    }

    fn reopen_group(&mut self, group: u32) {
        let stage = self.plan.groups[group as usize].stage;
        let state = &mut self.core.groups[group as usize];
        if let Phase::Ended(outcome) = state.phase {
            self.core.stages[stage as usize].groups_ended[outcome as usize] -= 1;
            state.phase = Phase::Entered;
            state.times.completed = None;
        }
        self.refresh_group(group);
    }

    fn reopen_failed_stage(&mut self, stage: u32) {
        let state = &mut self.core.stages[stage as usize];
        if state.phase == Phase::Ended(Outcome::Failed) {
            state.phase = Phase::Entered;
            state.times.completed = None;
        }
    }

    fn skip(&mut self, target: Skipped, at: Timestamp) {
        match target {
            Skipped::Member(member) => self.skip_member(member, at),
            Skipped::Group(group) => self.skip_group(group, at),
            Skipped::Stage(stage) if matches!(self.stage(stage).phase, Phase::Ended(Outcome::Skipped)) => {}
            Skipped::Stage(stage) => {
                self.reopen_failed_stage(stage);
                self.core.stages[stage as usize].skip_asked = true;
                self.skipping.insert(stage);
                self.skip_gates_of_stage(stage, at);
                for group in self.plan.stages[stage as usize].groups.clone() {
                    self.skip_group(group, at);
                }
            }
            Skipped::Wait(stage) => {
                let wait = &mut self.core.stages[stage as usize].wait;
                let since = match *wait {
                    Wait::Idle => None,
                    Wait::Running { since, .. } => Some(since),
                    Wait::Over { .. } => return,
                };
                *wait = Wait::Over { since, at, skipped: true };
            }
        }
    }

    fn skip_group(&mut self, group: u32, at: Timestamp) {
        if matches!(self.group(group).phase, Phase::Ended(Outcome::Completed | Outcome::Skipped)) {
            return;
        }
        self.core.groups[group as usize].skip_asked = true;
        for member in self.plan.groups[group as usize].members.clone() {
            self.skip_member(member, at);
        }
        self.skip_gates_of_group(group, at);
        self.reopen_group(group);
    }

    /// What is under way ends first; all else is left out at once, and a failure counts no longer.
    fn skip_member(&mut self, member: u32, at: Timestamp) {
        let under_way = self.member(member).pledge().is_some() || self.member(member).steps_done > 0;
        let state = &mut self.core.members[member as usize];
        match state.phase {
            MemberPhase::Ended(Outcome::Completed | Outcome::Skipped) => return,
            MemberPhase::Looking | MemberPhase::Intended(_) | MemberPhase::Moving(_) if under_way => {
                state.skip_asked = true;
                return;
            }
            _ => {}
        }
        let failure = state.fault.take().filter(|_| state.phase == MemberPhase::Ended(Outcome::Failed));
        state.message = Some(match failure {
            Some(fault) => format!("{SKIPPED} Its upgrade had failed: {fault}").into(),
            None => SKIPPED.into(),
        });
        state.skip_asked = true;
        state.times.completed = Some(at);
        self.set_phase(member, MemberPhase::Ended(Outcome::Skipped));
        let group = self.plan.group_of(member);
        if self.group(group).phase == Phase::Ended(Outcome::Failed) && !self.group_over(group) {
            self.reopen_group(group);
        }
    }
}

/// What the service says of a member left out by request (`behaviour.md` A7).
pub(super) const SKIPPED: &str = "skipped by request.";
