//! What happens, or why not. Decisions change nothing; they answer with events.
//!
//! One input leads to one layer of events. [`Run::step`] applies it and asks again with [`Input::Tick`] until nothing
//! more follows: a member that ends ends its group, which ends its stage, which begins a wait.

use std::collections::BTreeMap;

use flotta_model::{Fault, Hold, Name, Step};
use jiff::{SignedDuration, Timestamp};

use super::{
    apply::SKIPPED,
    event::{Event, Input, Refusal, Sighting, SkipTarget, Skipped, Ticket},
    gates::Timing,
    state::{Held, MemberPhase, Outcome, Phase, Run, RunPhase, State, Wait},
};
use crate::upgrade::{Needs, Target};

impl Run {
    /// Decides and applies until nothing more follows, and returns all events.
    pub fn step(&mut self, input: &Input, now: Timestamp) -> Result<Vec<Event>, Refusal> {
        let mut layer = self.decide(input, now)?;
        let mut events = Vec::new();
        loop {
            for event in &layer {
                self.apply(event, now);
            }
            events.append(&mut layer);
            layer = self.follow_up(now);
            if layer.is_empty() {
                return Ok(events);
            }
        }
    }

    /// What an input leads to at once.
    pub fn decide(&self, input: &Input, now: Timestamp) -> Result<Vec<Event>, Refusal> {
        match input {
            Input::Tick => Ok(self.follow_up(now)),
            Input::Start => self.start(),
            Input::Stop => self.stop(),
            Input::Skip(targets) => self.skip_targets(targets),
            Input::TargetResolved(version) if self.version_unresolved() => Ok(vec![Event::TargetResolved(*version)]),
            Input::TargetResolved(_) => Ok(Vec::new()),
            Input::ImagesResolved { pools } => Ok(self.images_seen(pools)),
            Input::Gate { gate, decision, by, comment } => self.decide_gate(*gate, *decision, by, comment.as_deref()),
            Input::WindowsSeen(windows) => Ok(self.windows_seen(windows, now)),
            Input::MemberLeft(member) => Ok(self.member_left(*member)),
            Input::Seen(ticket, sighting) => Ok(self.seen(*ticket, sighting, now)),
            Input::Held(ticket, hold) => Ok(self.held(*ticket, hold)),
            Input::Unfit(ticket, why) => Ok(self.unfit(*ticket, why)),
            Input::Accepted { ticket, operation, adopted } => Ok(self.accepted(*ticket, operation, *adopted)),
            Input::NotAccepted(ticket) => Ok(self.not_accepted(*ticket)),
            Input::StepSucceeded(ticket) => Ok(self.step_succeeded(*ticket)),
            Input::StepFailed(ticket, fault) => Ok(self.step_failed(*ticket, fault)),
        }
    }

    fn start(&self) -> Result<Vec<Event>, Refusal> {
        match self.phase() {
            RunPhase::Idle => Ok(vec![Event::Started]),
            RunPhase::Stopped | RunPhase::Ended(Outcome::Failed) => Ok(vec![Event::Resumed]),
            _ => Err(self.refuse("start", "NotStarted, Stopped or Failed")),
        }
    }

    fn stop(&self) -> Result<Vec<Event>, Refusal> {
        match self.phase() {
            RunPhase::Going => Ok(vec![Event::StopAsked]),
            RunPhase::Stopping | RunPhase::Failing => Ok(Vec::new()),
            _ => Err(self.refuse("stop", "Running or Pending")),
        }
    }

    fn refuse(&self, action: &'static str, allowed: &'static str) -> Refusal {
        Refusal::State { action, state: self.state(), allowed }
    }

    fn skip_targets(&self, targets: &[SkipTarget]) -> Result<Vec<Event>, Refusal> {
        if matches!(self.phase(), RunPhase::Ended(Outcome::Completed | Outcome::Skipped)) {
            return Err(self.refuse("skip parts of", "unfinished"));
        }
        if targets.is_empty() {
            return Err(Refusal::NoTargets);
        }
        let wants_members = targets.iter().any(|target| matches!(target, SkipTarget::Member(_)));
        let members: BTreeMap<&str, u32> = if wants_members {
            self.plan.members.iter().enumerate().map(|(index, member)| (member.name.as_str(), index as u32)).collect()
        } else {
            BTreeMap::new()
        };
        let mut skipped = Vec::new();
        for target in targets {
            skipped.push(self.skip_target(target, &members)?);
        }
        skipped.sort_unstable();
        skipped.dedup();
        Ok(vec![Event::Skipped(skipped)])
    }

    fn skip_target(&self, target: &SkipTarget, members: &BTreeMap<&str, u32>) -> Result<Skipped, Refusal> {
        let stage_named = |name: &Name| self.plan.stages.iter().position(|stage| stage.name == *name);
        let (kind, name, found) = match target {
            SkipTarget::Member(name) => {
                ("member", name, members.get(name.as_str()).map(|index| Skipped::Member(*index)))
            }
            SkipTarget::Group(name) => {
                let found = self.plan.groups.iter().position(|group| group.name == *name);
                ("group", name, found.map(|index| Skipped::Group(index as u32)))
            }
            SkipTarget::Stage(name) => ("stage", name, stage_named(name).map(|index| Skipped::Stage(index as u32))),
            SkipTarget::AfterStageWait(name) => {
                let found = stage_named(name).filter(|index| self.plan.stages[*index].after_wait_seconds > 0);
                ("wait after stage", name, found.map(|index| Skipped::Wait(index as u32)))
            }
        };
        let found = found.ok_or_else(|| Refusal::NoSuchTarget { kind, name: name.clone() })?;
        let state = match found {
            Skipped::Member(member) => self.member_state(member),
            Skipped::Group(group) => self.group_state(group),
            Skipped::Stage(stage) => self.stage_state(stage),
            Skipped::Wait(stage) => self.wait_state(stage),
        };
        if state == State::Completed {
            return Err(Refusal::Done { kind, name: name.clone(), state });
        }
        Ok(found)
    }

    fn member_left(&self, member: u32) -> Vec<Event> {
        let Some(state) = self.core.members.get(member as usize) else { return Vec::new() };
        match state.phase {
            MemberPhase::Waiting | MemberPhase::Shut | MemberPhase::Held(_) => {
                vec![skipped(member, "member left the fleet")]
            }
            MemberPhase::Looking if state.steps_done == 0 => vec![skipped(member, "member left the fleet")],
            _ => Vec::new(),
        }
    }

    /// Whether an answer belongs to what the member is at now.
    fn current(&self, ticket: Ticket) -> bool {
        self.core.members.get(ticket.member as usize).is_some_and(|state| state.turn == ticket.turn)
    }

    fn seen(&self, ticket: Ticket, sighting: &Sighting, now: Timestamp) -> Vec<Event> {
        if !self.current(ticket) {
            return Vec::new();
        }
        let needs = match &sighting.claimed_by {
            Some(by) => Needs::Hold(Hold::Claimed { by: by.clone() }),
            None => self.needs(sighting, now),
        };
        match (&self.member(ticket.member).phase, needs) {
            (MemberPhase::Looking, Needs::Hold(hold)) => vec![self.hold_back(ticket.member, hold)],
            (MemberPhase::Looking, Needs::Steps(_)) if self.shut_out(ticket.member) => {
                vec![Event::MemberReleased(ticket.member)]
            }
            (MemberPhase::Looking, Needs::Steps(_)) if self.shut_now(sighting, now) => {
                let mut events = self.window_seen(ticket.member, sighting.window.as_ref(), now);
                events.push(self.window_closed(ticket.member));
                events
            }
            (MemberPhase::Looking, Needs::Steps(steps)) => {
                let mut events = self.window_seen(ticket.member, sighting.window.as_ref(), now);
                events.extend(self.next_step(ticket.member, steps, sighting, now));
                events
            }
            (MemberPhase::Looking, Needs::Nothing(why)) => vec![self.there(ticket.member, why)],
            (MemberPhase::Looking, Needs::Unfit { why, .. }) => self.unfit(ticket, &why),
            (MemberPhase::Looking, Needs::Never(fault)) => vec![self.failed(ticket.member, fault)],
            (MemberPhase::Held(held), Needs::Hold(hold)) => self.still_held(ticket.member, held, hold),
            (MemberPhase::Held(_), _) => {
                let mut events = self.window_seen(ticket.member, sighting.window.as_ref(), now);
                events.push(Event::MemberReleased(ticket.member));
                events
            }
            _ => Vec::new(),
        }
    }

    /// What the cluster of a sighting needs for this run. Pure, for those who must wait for a budget before they tell.
    pub fn needs(&self, sighting: &Sighting, now: Timestamp) -> Needs {
        let target = Target {
            goal: &self.plan.goal,
            version: self.core.version,
            offer: sighting.offer,
            images: self.selected_images(),
            now,
            automatic: self.plan.profile.is_some(),
        };
        target.needs(&sighting.cluster)
    }

    /// Whether a member that has a slot may not begin any more, since a limit was exceeded or a stop asked for.
    fn shut_out(&self, member: u32) -> bool {
        self.member(member).steps_done == 0 && !self.group_open(self.plan.group_of(member))
    }

    /// Whether the window that was seen with a cluster keeps it from being changed now.
    fn shut_now(&self, sighting: &Sighting, now: Timestamp) -> bool {
        self.phase() != RunPhase::Stopping && sighting.window.as_ref().is_some_and(|window| !window.is_open(now))
    }

    /// A member whose window has closed gives its slot back; one that somebody had left out does not wait for it.
    fn window_closed(&self, member: u32) -> Event {
        let state = self.member(member);
        match (state.skip_asked, state.steps_done) {
            (false, _) => Event::MemberReleased(member),
            (true, 0) => skipped(member, SKIPPED),
            (true, done) => {
                skipped(member, &format!("{SKIPPED} Stopped after step {done}: its maintenance window closed."))
            }
        }
    }

    fn next_step(&self, member: u32, steps: Vec<Step>, sighting: &Sighting, now: Timestamp) -> Vec<Event> {
        let state = self.member(member);
        let left = steps.len() as u32;
        if self.phase() == RunPhase::Stopping && !state.skip_asked {
            let hold = Hold::StoppedBetweenSteps { done: state.steps_done, of: state.steps_done + left };
            return vec![Event::MemberHeld(member, hold)];
        }
        if self.phase() == RunPhase::Stopping {
            return vec![skipped(
                member,
                &format!("{SKIPPED} Stopped after step {} of {}.", state.steps_done, state.steps_done + left),
            )];
        }
        let Some(step) = steps.into_iter().next() else { return Vec::new() };
        let cluster = &sighting.cluster;
        let guard = match step.pool() {
            Some(pool) => cluster.pools.iter().find(|seen| seen.name == pool).and_then(|seen| seen.etag.clone()),
            None => cluster.etag.clone(),
        };
        let not_after = sighting.window.as_ref().and_then(|window| window.closes(now));
        vec![Event::StepIntended { member, step, guard, left, not_after }]
    }

    /// The member's cluster is where it should be: by our doing, or it was before.
    fn there(&self, member: u32, why: String) -> Event {
        let state = self.member(member);
        match (state.skip_asked, state.moved) {
            (true, _) => skipped(member, &format!("{SKIPPED} Its upgrade had begun and completed.")),
            (false, true) => {
                // Images that were chosen are told, with the pools that were left out.
                let message = self.sets_images().then_some(why).filter(|why| !why.is_empty());
                Event::MemberEnded { member, outcome: Outcome::Completed, message, fault: None, there: false }
            }
            (false, false) => {
                let message = Some(format!("Nothing to do: {why}"));
                Event::MemberEnded { member, outcome: Outcome::Skipped, message, fault: None, there: true }
            }
        }
    }

    /// The member's cluster is not for this run: it is passed over, whatever held it.
    fn unfit(&self, ticket: Ticket, why: &str) -> Vec<Event> {
        match self.core.members.get(ticket.member as usize).map(|state| &state.phase) {
            Some(MemberPhase::Looking | MemberPhase::Held(_)) if self.current(ticket) => {
                vec![skipped(ticket.member, &format!("Cannot be upgraded by this run: {why}."))]
            }
            _ => Vec::new(),
        }
    }

    fn failed(&self, member: u32, fault: Fault) -> Event {
        if self.member(member).skip_asked {
            return skipped(member, &format!("{SKIPPED} Its upgrade had begun and failed: {fault}"));
        }
        let message = Some(fault.message.clone());
        Event::MemberEnded { member, outcome: Outcome::Failed, message, fault: Some(fault), there: false }
    }

    fn still_held(&self, member: u32, held: &Held, hold: Hold) -> Vec<Event> {
        if held.hold == hold { Vec::new() } else { vec![Event::MemberHeld(member, hold)] }
    }

    fn held(&self, ticket: Ticket, hold: &Hold) -> Vec<Event> {
        let member = ticket.member;
        match &self.core.members.get(member as usize).map(|state| &state.phase) {
            Some(MemberPhase::Looking | MemberPhase::Intended(_)) if self.current(ticket) => {
                vec![self.hold_back(member, hold.clone())]
            }
            Some(MemberPhase::Held(held)) if self.current(ticket) => self.still_held(member, held, hold.clone()),
            _ => Vec::new(),
        }
    }

    /// A member that somebody had left out does not wait for anything.
    fn hold_back(&self, member: u32, hold: Hold) -> Event {
        let state = self.member(member);
        match (state.skip_asked, state.steps_done) {
            (false, _) => Event::MemberHeld(member, hold),
            (true, 0) => skipped(member, SKIPPED),
            (true, done) => skipped(member, &format!("{SKIPPED} Stopped after step {done}: {hold}.")),
        }
    }

    fn accepted(&self, ticket: Ticket, operation: &str, adopted: bool) -> Vec<Event> {
        let intended = self.current(ticket) && matches!(self.member(ticket.member).phase, MemberPhase::Intended(_));
        let accepted = Event::StepAccepted { member: ticket.member, operation: operation.into(), adopted };
        intended.then_some(accepted).into_iter().collect()
    }

    /// A step that was not taken is not tried again while nothing new may start.
    fn not_accepted(&self, ticket: Ticket) -> Vec<Event> {
        if !self.current(ticket) || !matches!(self.member(ticket.member).phase, MemberPhase::Intended(_)) {
            return Vec::new();
        }
        let state = self.member(ticket.member);
        match (self.phase(), state.pledge()) {
            _ if state.skip_asked && state.steps_done == 0 => vec![skipped(ticket.member, SKIPPED)],
            _ if self.shut_out(ticket.member) => vec![Event::MemberReleased(ticket.member)],
            (RunPhase::Stopping, Some(pledge)) => {
                let hold = Hold::StoppedBetweenSteps { done: state.steps_done, of: state.steps_done + pledge.left };
                vec![Event::MemberHeld(ticket.member, hold)]
            }
            _ => vec![Event::StepWithdrawn(ticket.member)],
        }
    }

    fn step_succeeded(&self, ticket: Ticket) -> Vec<Event> {
        let moving = self.current(ticket) && matches!(self.member(ticket.member).phase, MemberPhase::Moving(_));
        moving.then_some(Event::StepSucceeded(ticket.member)).into_iter().collect()
    }

    fn step_failed(&self, ticket: Ticket, fault: &Fault) -> Vec<Event> {
        let open = self.current(ticket)
            && matches!(
                self.member(ticket.member).phase,
                MemberPhase::Looking | MemberPhase::Intended(_) | MemberPhase::Moving(_)
            );
        open.then(|| self.failed(ticket.member, fault.clone())).into_iter().collect()
    }

    /// What follows from the state and the time alone: one layer of it.
    fn follow_up(&self, now: Timestamp) -> Vec<Event> {
        let closed: Vec<Event> = self
            .closable
            .iter()
            .filter_map(|group| Some(Event::GroupEnded(*group, self.group_outcome(*group)?)))
            .collect();
        if !closed.is_empty() {
            return closed;
        }
        if let Some(event) = self.skipped_stage() {
            return vec![event];
        }
        match self.phase() {
            RunPhase::Going => self.go_on(now),
            RunPhase::Stopping if self.counts.running == 0 => vec![Event::Stopped],
            RunPhase::Failing if self.counts.running == 0 => self.fail(),
            _ => Vec::new(),
        }
    }

    /// A stage that somebody had left out, and whose groups have all ended.
    fn skipped_stage(&self) -> Option<Event> {
        let done = |stage: &&u32| self.all_groups_ended(**stage);
        self.skipping.iter().find(done).map(|stage| Event::StageEnded(*stage, Outcome::Skipped))
    }

    pub(super) fn all_groups_ended(&self, stage: u32) -> bool {
        let ended: u32 = self.stage(stage).groups_ended.iter().sum();
        ended == self.plan.stages[stage as usize].groups.len() as u32
    }

    /// The end of a run that failed; or only a halt, if what failed has been left out since.
    fn fail(&self) -> Vec<Event> {
        // One that somebody had left out in the meantime has ended already, whatever became of its members.
        let open = self.core.current.filter(|stage| !matches!(self.stage(*stage).phase, Phase::Ended(_)));
        match open {
            Some(stage) if self.stage_failed(stage) => {
                vec![Event::StageEnded(stage, Outcome::Failed), Event::RunEnded(Outcome::Failed)]
            }
            _ => vec![Event::Stopped],
        }
    }

    pub(super) fn stage_failed(&self, stage: u32) -> bool {
        let [_, failed, skipped] = self.stage(stage).groups_ended;
        let skipped = skipped as usize == self.plan.stages[stage as usize].groups.len();
        failed > 0 || self.stage_over(stage) || (!skipped && self.stage_short(stage))
    }

    fn go_on(&self, now: Timestamp) -> Vec<Event> {
        let due = self.due_gates(now);
        if !due.is_empty() {
            return due;
        }
        let Some(stage) = self.core.current else { return self.enter_next(0) };
        if let Phase::Ended(_) = self.stage(stage).phase {
            return self.enter_next(stage + 1);
        }
        if let Some(group) = self.failed_fast(stage) {
            return vec![Event::FailedFast { group }];
        }
        if self.all_groups_ended(stage) || (self.stage_over(stage) && self.stage(stage).counts.running == 0) {
            return self.close_stage(stage, now);
        }
        let sources: [Source; 5] = [
            Self::reach_gates,
            |run, _, now| run.worn_out(now),
            |run, _, now| run.due_windows(now),
            |run, _, now| run.stale_windows(now),
            |run, stage, _| run.start_members(stage),
        ];
        sources.iter().map(|source| source(self, stage, now)).find(|events| !events.is_empty()).unwrap_or_default()
    }

    /// A group in which a limit of zero failures, its own or its stage's, was exceeded.
    fn failed_fast(&self, stage: u32) -> Option<u32> {
        if self.stage(stage).counts.failed == 0 {
            return None;
        }
        let mut groups = self.plan.stages[stage as usize].groups.clone();
        groups.find(|group| self.failures_allowed(*group) == Some(0) && self.group_over(*group))
    }

    fn enter_next(&self, from: u32) -> Vec<Event> {
        let count = self.plan.stages.len() as u32;
        let left = (from..count).find(|stage| !matches!(self.stage(*stage).phase, Phase::Ended(_)));
        if let Some(stage) = left {
            return vec![Event::StageEntered(stage)];
        }
        let skipped = (0..count).all(|stage| self.stage(stage).phase == Phase::Ended(Outcome::Skipped));
        vec![Event::RunEnded(if skipped { Outcome::Skipped } else { Outcome::Completed })]
    }

    fn close_stage(&self, stage: u32, now: Timestamp) -> Vec<Event> {
        let plan = &self.plan.stages[stage as usize];
        let state = self.stage(stage);
        if self.stage_failed(stage) {
            return self.fail();
        }
        let [_, _, skipped] = state.groups_ended;
        if skipped as usize == plan.groups.len() {
            return vec![Event::StageEnded(stage, Outcome::Skipped)];
        }
        // The wait and the gates after a stage begin together; it is done when both are.
        let mut events = self.reach(self.stage_gates(stage, Timing::After), now);
        let waits = match state.wait {
            Wait::Idle if plan.after_wait_seconds > 0 => {
                let length = SignedDuration::from_secs(i64::from(plan.after_wait_seconds));
                let until = now.saturating_add(length).unwrap_or(Timestamp::MAX);
                events.push(Event::WaitStarted { stage, until });
                true
            }
            Wait::Running { until, .. } if until <= now => {
                events.push(Event::WaitEnded(stage));
                true
            }
            Wait::Running { .. } => true,
            Wait::Idle | Wait::Over { .. } => false,
        };
        if events.is_empty() && !waits && !self.stage_gated_after(stage) {
            events.push(Event::StageEnded(stage, Outcome::Completed));
        }
        events
    }

    /// Members that were held for longer than the run has patience. Where a budget is strict it must bear that they fail:
    /// they go one by one, and some have to wait for those under way.
    fn worn_out(&self, now: Timestamp) -> Vec<Event> {
        let due = self.wearing.iter().take_while(|(at, _)| *at <= now).map(|(_, member)| *member);
        let mut members: Vec<u32> = due.filter(|member| self.bears_failure(*member)).take(Self::MOST_AT_ONCE).collect();
        if let Some(strict) = members.iter().position(|member| self.strict(*member)) {
            members.truncate(strict.max(1));
        }
        let hours = self.plan.patience_seconds / 3600;
        let worn = members.into_iter().filter_map(|member| {
            let hold = &self.member(member).held()?.hold;
            let fault = Fault::new(hold.code(), format!("{hold}; waited {hours} hours for it"));
            Some(self.failed(member, fault))
        });
        worn.collect()
    }

    /// Gives free slots to members: in turn to the group with the fewest running, inside a group in its order.
    fn start_members(&self, stage: u32) -> Vec<Event> {
        let free = self.stage_room(stage).saturating_sub(self.stage(stage).counts.running) as usize;
        if free == 0 || self.startable.is_empty() {
            return Vec::new();
        }
        let mut queues: BTreeMap<(u32, u32), _> =
            self.startable.iter().take(free).map(|key| (*key, self.group(key.1).ready.iter())).collect();
        let mut events = Vec::new();
        while events.len() < free.min(Self::MOST_AT_ONCE) {
            let Some(((running, group), mut ready)) = queues.pop_first() else { break };
            let Some((_, member)) = ready.next() else { continue };
            events.push(Event::MemberStarted(*member));
            if running + 1 < self.group_room(group) {
                queues.insert((running + 1, group), ready);
            }
        }
        events
    }

    /// Events of one kind in one layer at most.
    const MOST_AT_ONCE: usize = 1000;
}

/// What may follow in a stage that is under way.
type Source = fn(&Run, u32, Timestamp) -> Vec<Event>;

fn skipped(member: u32, message: &str) -> Event {
    Event::MemberEnded { member, outcome: Outcome::Skipped, message: Some(message.into()), fault: None, there: false }
}
