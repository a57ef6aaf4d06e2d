//! What must hold of maintenance windows (`behaviour.md` B4, C): nothing is begun outside them, who waits for one holds
//! no slot and knows when it opens.

use flotta_engine::{
    Event, Plan, Work,
    run::{Phase, RunPhase, State, Why},
};
use jiff::SignedDuration;

use crate::{
    check::fail,
    rest::Outlook,
    view::{Known, Stand, View},
};

/// A step is begun only while the window is open that the cluster really has, and must be sent before that closes.
pub fn steps(_: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let Event::StepIntended { member, not_after, .. } = event else { return Ok(()) };
    let real = before.outside.real(*member);
    if real.is_some_and(|stand| !stand.open) {
        return fail(format!("member {member} begins a step while its window is closed"));
    }
    if *not_after != real.and_then(|stand| stand.turns) {
        return fail(format!("member {member} may send its step until {not_after:?}, its window is {real:?}"));
    }
    let known = match before.members[*member as usize].window {
        Known::In { which, .. } => Some(which),
        Known::Unread | Known::Free => None,
    };
    if known != before.outside.of[*member as usize] {
        return fail(format!("member {member} was seen, and its window was not taken over"));
    }
    Ok(())
}

/// What is told of a window's turn is so.
pub fn turns(_: &Plan, before: &View, event: &Event, view: &View) -> Result<(), String> {
    let turned = matches!(event, Event::WindowTurned { .. });
    for (old, new) in before.members.iter().zip(&view.members).filter(|_| turned) {
        let (Known::In { told: then, .. }, Known::In { which, told }) = (old.window, new.window) else { continue };
        if then != told && told != view.outside.stands[which] {
            return fail(format!("{event:?}: it is {:?}", view.outside.stands[which]));
        }
    }
    for member in view.members.iter().filter(|member| member.shut) {
        if member.state != State::Pending {
            return fail(format!("a member waits for its window, and is {:?}", member.state));
        }
    }
    Ok(())
}

/// Who waits behind a closed window is shut, who has slots to wait for is not, and both know when it turns.
pub fn known(_: &Plan, rest: &Outlook) -> Result<(), String> {
    let view = &rest.view;
    for (at, member) in view.members.iter().enumerate().filter(|(_, member)| member.waits()) {
        let Known::In { which, told } = member.window else {
            if member.shut {
                return fail(format!("member {at} waits for a window that it does not have"));
            }
            continue;
        };
        let stand = view.outside.stands[which];
        if view.phase == RunPhase::Going && (member.shut == stand.open || told != stand) {
            return fail(format!("member {at} is {member:?}, its window {stand:?}"));
        }
    }
    for (at, reasons) in &rest.members {
        let member = &view.members[*at as usize];
        let told = reasons.iter().find(|reason| reason.why == Why::Window);
        let stand = view.stand(member).filter(|stand| !stand.open);
        let between = member.state == State::Pending || member.state == State::NotStarted;
        if told.map(|reason| reason.until) != stand.filter(|_| between).map(|stand: Stand| stand.turns) {
            return fail(format!("member {at} waits for {reasons:?}, its window is {stand:?}"));
        }
    }
    Ok(())
}

/// Windows are read before anybody takes a slot, and again when they have been known for an hour.
pub fn reading(plan: &Plan, rest: &Outlook) -> Result<(), String> {
    let view = &rest.view;
    let mut wanted = Vec::new();
    for (at, group) in (0..).zip(&plan.groups) {
        let scope = &view.groups[at as usize];
        if view.open(plan, at) {
            let unread = |member: &u32| {
                let seen = &view.members[*member as usize];
                (seen.state == State::NotStarted && seen.window == Known::Unread) || (seen.shut && scope.windows_stale)
            };
            wanted.extend(group.members.clone().filter(unread));
        }
        if view.phase == RunPhase::Going && rereads(plan, view, at).is_some_and(|again| again <= view.now) {
            return fail(format!("the windows of group {at} have been known for too long"));
        }
    }
    if rest.to_read != wanted || (rest.work.contains(&Work::ReadWindows) && wanted.is_empty()) {
        return fail(format!("windows of {:?} are to be read, from scratch {wanted:?}", rest.to_read));
    }
    if !wanted.is_empty() && !rest.work.contains(&Work::ReadWindows) {
        return fail("windows are to be read, and nobody reads them");
    }
    Ok(())
}

/// When the windows of a group are to be read again.
pub fn rereads(plan: &Plan, view: &View, group: u32) -> Option<jiff::Timestamp> {
    let (planned, scope) = (&plan.groups[group as usize], &view.groups[group as usize]);
    let read = scope.windows_read.filter(|_| view.current == Some(planned.stage) && !scope.windows_stale)?;
    let waits = planned.members.clone().any(|member| view.members[member as usize].shut);
    let ended = matches!(scope.phase, Phase::Ended(_));
    (waits && !ended).then(|| read + SignedDuration::from_hours(1))
}
