//! What must hold of gates (`behaviour.md` A6): when they are reached, what opens them, what they hold back.

use std::collections::BTreeSet;

use flotta_engine::{
    Event, Plan,
    run::{Outcome, Phase, RunPhase, State, Timing, Wait},
};
use flotta_model::{
    GateKind,
    gate::{Creator, Rejection},
};
use jiff::SignedDuration;

use crate::{
    check::{fail, untouched},
    rest::Outlook,
    view::{Spot, View, spots},
};

/// What stands behind a closed gate does not move; nothing is done before what stands after it is passed.
pub fn hold(plan: &Plan, _: &View, event: &Event, view: &View) -> Result<(), String> {
    if view.gates.is_empty() {
        return Ok(());
    }
    let ended = match event {
        Event::GroupEnded(group, Outcome::Completed) => Some((plan.groups[*group as usize].stage, Some(*group))),
        Event::StageEnded(stage, Outcome::Completed) => Some((*stage, None)),
        _ => None,
    };
    if let Some(place) = ended
        && (view.closed(plan, place, Timing::Before) || view.closed(plan, place, Timing::After))
    {
        return fail(format!("{event:?} before its gates were passed"));
    }
    for (at, group) in (0..).zip(&plan.groups) {
        let closed = view.group_gated(plan, at) || view.closed(plan, (group.stage, None), Timing::Before);
        if closed && group.members.clone().any(|member| !untouched(&view.members[member as usize])) {
            return fail(format!("a member of {} moved behind a closed gate", group.name));
        }
    }
    Ok(())
}

/// Whether all that is left to do before, or after, a place is to pass its gate.
fn is_reached(plan: &Plan, view: &View, spot: &Spot<'_>) -> bool {
    let stage = &view.stages[spot.stage as usize];
    let earlier = view.stages[..spot.stage as usize].iter();
    let earlier_done = earlier.clone().all(|stage| matches!(stage.state, State::Completed | State::Skipped));
    let here = view.phase == RunPhase::Going && view.current == Some(spot.stage) && earlier_done;
    if !here || matches!(stage.phase, Phase::Ended(_)) || stage.skip_asked {
        return false;
    }
    let Some(group) = spot.group else {
        let counts = view.stage(plan, spot.stage);
        return match spot.timing {
            Timing::Before => counts.ended() < counts.total(),
            Timing::After => view.stage_done(plan, spot.stage),
        };
    };
    let (scope, counts) = (&view.groups[group as usize], view.group(plan, group));
    let well = !view.group_over(plan, group) && !view.group_short(plan, group);
    let alive = !scope.skip_asked && !matches!(scope.phase, Phase::Ended(_)) && !view.gated(plan, spot.stage);
    let left = counts.ended() < counts.total();
    alive
        && match spot.timing {
            Timing::Before => left,
            Timing::After => !left && counts.skipped < counts.total() && well,
        }
}

pub fn reached(plan: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let Event::GateReached { gate, due } = event else { return Ok(()) };
    let spot = &spots(plan)[*gate as usize];
    if before.gates[*gate as usize].state != State::NotStarted || !is_reached(plan, before, spot) {
        return fail(format!("{event:?} too early: {spot:?}"));
    }
    if *due != naive_due(spot, before) {
        return fail(format!("{event:?} is not when it is due, at {}", before.now));
    }
    Ok(())
}

fn naive_due(spot: &Spot<'_>, view: &View) -> Option<jiff::Timestamp> {
    match &spot.config.kind {
        GateKind::ScheduledStart(start) => start.next_after(view.now),
        GateKind::Approval => {
            let seconds = spot.config.policy.expires_after_seconds?;
            Some(view.now + SignedDuration::from_secs(i64::from(seconds)))
        }
    }
}

pub fn decided(plan: &Plan, before: &View, event: &Event, view: &View) -> Result<(), String> {
    let gate = match event {
        Event::GateApproved { gate, .. } | Event::GateRejected { gate, .. } => *gate,
        Event::GateOpened(gate) | Event::GateExpired(gate) => *gate,
        _ => return Ok(()),
    };
    let (spot, gate) = (&spots(plan)[gate as usize], &before.gates[gate as usize]);
    let (policy, scheduled) = (&spot.config.policy, matches!(spot.config.kind, GateKind::ScheduledStart(_)));
    let due = gate.due.is_some_and(|due| due <= before.now);
    let creator = |by: &str| plan.created_by.as_deref() == Some(by);
    let right = match event {
        Event::GateApproved { by, .. } => {
            let barred = creator(by) && policy.creator == Creator::MayNotApprove;
            !barred && !gate.approvals.contains(by)
        }
        Event::GateOpened(_) => {
            let people: BTreeSet<&String> = gate.approvals.iter().collect();
            let barred = |by: &&&String| creator(by) && policy.creator == Creator::MayNotApprove;
            let enough = people.iter().filter(|by| !barred(by)).count() >= usize::from(policy.approvers);
            enough || (scheduled && due)
        }
        Event::GateRejected { .. } => policy.rejection == Rejection::Offered,
        Event::GateExpired(_) => !scheduled && due,
        _ => false,
    };
    if !right || gate.state != State::Pending || gate.denied {
        return fail(format!("{event:?} of a gate that was {gate:?}, {spot:?}"));
    }
    let denied = matches!(event, Event::GateRejected { .. } | Event::GateExpired(_));
    if denied && view.phase == RunPhase::Going {
        return fail(format!("the run goes on after {event:?}"));
    }
    Ok(())
}

pub fn transitions(plan: &Plan, before: &View, event: &Event, view: &View) -> Result<(), String> {
    if before.gates == view.gates {
        return Ok(());
    }
    for ((at, spot), (old, new)) in (0..).zip(spots(plan)).zip(before.gates.iter().zip(&view.gates)) {
        if old == new {
            continue;
        }
        let left_out = {
            let stage = &view.stages[spot.stage as usize];
            let group = spot.group.map(|group| &view.groups[group as usize]);
            let out = |scope: &crate::view::Scope| scope.skip_asked || scope.phase == Phase::Ended(Outcome::Skipped);
            out(stage) || group.is_some_and(out)
        };
        let right = match (old.state, new.state) {
            (State::NotStarted, State::Pending) => {
                matches!(event, Event::GateReached { gate, .. } if *gate == at) && new.since == Some(view.now)
            }
            (State::Pending, State::Completed) => *event == Event::GateOpened(at) && !new.denied,
            (State::NotStarted | State::Pending, State::Skipped) => left_out && !new.denied,
            (State::Pending, State::Pending) => match event {
                Event::GateApproved { gate, by, .. } => {
                    *gate == at && new.approvals.last() == Some(by) && new.approvals.len() == old.approvals.len() + 1
                }
                Event::GateRejected { gate, .. } | Event::GateExpired(gate) => *gate == at && new.denied,
                // Asked for anew, with the whole of its time.
                Event::Resumed => {
                    let asked = new.since == Some(view.now) && new.approvals.is_empty() && !new.denied;
                    let expired = old.due.is_some_and(|due| due <= view.now);
                    (old.denied || expired) && asked && new.due == naive_due(&spot, view)
                }
                _ => false,
            },
            _ => false,
        };
        if !right || new.revision <= old.revision {
            return fail(format!("gate {at} went from {old:?} to {new:?} by {event:?}"));
        }
    }
    Ok(())
}

/// What is reached is asked for, and what is due is done.
pub fn in_time(plan: &Plan, rest: &Outlook) -> Result<(), String> {
    let view = &rest.view;
    if view.gates.is_empty() {
        return Ok(());
    }
    for ((at, spot), gate) in (0..).zip(spots(plan)).zip(&view.gates) {
        if gate.state == State::NotStarted && is_reached(plan, view, &spot) {
            return fail(format!("gate {at} is reached and nobody is asked: {spot:?}"));
        }
        let due = gate.due.is_some_and(|due| due <= view.now);
        if view.phase == RunPhase::Going && gate.state == State::Pending && !gate.denied && due {
            return fail(format!("gate {at} is due: {gate:?}"));
        }
    }
    Ok(())
}

/// A gate that was rejected or expired has stopped the run, which says so until it is started again.
pub fn denials(_: &Plan, rest: &Outlook) -> Result<(), String> {
    let denied = rest.view.gates.iter().any(|gate| gate.denied);
    let said = matches!(rest.view.error.as_deref(), Some("GateRejected" | "GateExpired"));
    let halted = matches!(rest.view.phase, RunPhase::Stopping | RunPhase::Stopped);
    if denied && rest.view.phase == RunPhase::Going {
        return fail("the run goes on although a gate was denied");
    }
    if said != (denied && halted) {
        return fail(format!("denied {denied}, halted {halted}, the run's error is {:?}", rest.view.error));
    }
    Ok(())
}

/// The wait after a stage and the gates after it begin together.
pub fn beside_the_wait(plan: &Plan, rest: &Outlook) -> Result<(), String> {
    let view = &rest.view;
    let Some(stage) = view.current.filter(|_| view.phase == RunPhase::Going) else { return Ok(()) };
    let scope = &view.stages[stage as usize];
    let done = scope.phase == Phase::Entered && view.stage_done(plan, stage);
    let waits = plan.stages[stage as usize].after_wait_seconds > 0;
    match scope.wait {
        Some(Wait::Idle) if done && waits => fail(format!("stage {stage} is done and its wait has not begun")),
        Some(Wait::Running { until, .. }) if until <= view.now => fail(format!("the wait of stage {stage} is over")),
        _ => Ok(()),
    }
}
