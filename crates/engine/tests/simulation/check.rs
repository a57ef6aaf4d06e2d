//! What must hold of a run whatever happens (`behaviour.md` B5 and the rules of the design), recomputed from scratch out
//! of the states of its members. Each invariant is a function over plain data, so that tests can feed it bad data.

use flotta_engine::{
    Event, Plan,
    run::{Counts, Outcome, Phase, RunPhase, State, Timing, Wait},
};
use flotta_model::{Budget, NodeImage, Step};

use crate::{
    gates, shut,
    view::{Known, Scope, Seen, View},
};

pub type Invariant = fn(&Plan, &View, &Event, &View) -> Result<(), String>;

/// What holds after every event: of the view before it, the event, the view after it.
pub const AFTER_EACH_EVENT: [(&str, Invariant); 22] = [
    ("b5_1 limits are hard caps", limits),
    ("strict budgets are hard caps", strict),
    ("b5_2 stages are sequential", sequence),
    ("b5_3 closed gates hold", gates::hold),
    ("a6 gates are reached when all that is left is to pass them", gates::reached),
    ("a6 gates open, are rejected and expire by their policy", gates::decided),
    ("a6 gates change only as told", gates::transitions),
    ("e11 no step is begun outside its window", shut::steps),
    ("b4 windows turn when they do", shut::turns),
    ("b5_4 nothing begins after a limit was exceeded or a stop", no_start_after),
    ("b5_5 counts add up", counts),
    ("b5_6 stopping means halting with members running", stopping),
    ("b5_9 times are in order and ends are kept", times),
    ("b2 states roll up", roll_up),
    ("b2 ends are what they should be", ends),
    ("order of starts", order),
    ("retries are pinned", pinned),
    ("a4 pools go to the images that were chosen", chosen),
    ("e58 images are never taken back", never_back),
    ("members change only as told", transitions),
    ("nothing transient fails a member", failures),
    ("a5 floors of success are kept", floors),
];

pub fn fail<T>(message: impl Into<String>) -> Result<T, String> {
    Err(message.into())
}

fn limits(plan: &Plan, _: &View, _: &Event, view: &View) -> Result<(), String> {
    for (at, stage) in plan.stages.iter().enumerate() {
        let running = view.stage(plan, at as u32).running;
        if running > stage.max_concurrency {
            return fail(format!("stage {}: {running} running, limit {}", stage.name, stage.max_concurrency));
        }
    }
    for (at, group) in plan.groups.iter().enumerate() {
        let running = view.group(plan, at as u32).running;
        if running > group.max_concurrency {
            return fail(format!("group {}: {running} running, limit {}", group.name, group.max_concurrency));
        }
    }
    Ok(())
}

pub fn untouched(member: &Seen) -> bool {
    matches!(member.state, State::NotStarted | State::Skipped)
}

fn sequence(plan: &Plan, _: &View, _: &Event, view: &View) -> Result<(), String> {
    let passed = |scope: &Scope| matches!(scope.state, State::Completed | State::Skipped);
    let Some(open) = view.stages.iter().position(|stage| !passed(stage)) else { return Ok(()) };
    for stage in &plan.stages[open + 1..] {
        for member in stage.members.clone() {
            if !untouched(&view.members[member as usize]) {
                return fail(format!("member {member} of {} moved before {}", stage.name, plan.stages[open].name));
            }
        }
    }
    Ok(())
}

/// With a strict budget, all that are under way may fail and the limit still holds.
fn strict(plan: &Plan, _: &View, _: &Event, view: &View) -> Result<(), String> {
    let check = |name: &dyn std::fmt::Display, counts: Counts, limit: Option<u32>, budget: Budget| match limit {
        Some(limit) if budget == Budget::Strict && counts.failed + counts.running > limit => {
            fail(format!("{name}: {} failed, {} running, strict {limit}", counts.failed, counts.running))
        }
        _ => Ok(()),
    };
    for (at, stage) in (0..).zip(&plan.stages) {
        check(&stage.name, view.stage(plan, at), stage.max_allowed_failures, stage.budget)?;
    }
    for (at, group) in (0..).zip(&plan.groups) {
        check(&group.name, view.group(plan, at), group.max_allowed_failures, group.budget)?;
    }
    Ok(())
}

fn no_start_after(plan: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let (member, first) = match event {
        Event::MemberStarted(member) => (*member, true),
        Event::StepIntended { member, .. } => (*member, before.members[*member as usize].steps_done == 0),
        _ => return Ok(()),
    };
    let group = plan.group_of(member);
    if first && !before.open(plan, group) {
        return fail(format!("member {member} begins although its group may not begin anything"));
    }
    let strict_failed = |group: u32| {
        let limit = plan.groups[group as usize].max_allowed_failures;
        limit == Some(0) && before.group_over(plan, group)
    };
    if first && plan.stages[plan.stage_of(member) as usize].groups.clone().any(strict_failed) {
        return fail(format!("member {member} begins after a limit of zero was exceeded"));
    }
    if before.phase == RunPhase::Stopping {
        return fail(format!("member {member} begins a step after a stop"));
    }
    Ok(())
}

fn counts(plan: &Plan, _: &View, _: &Event, view: &View) -> Result<(), String> {
    for (at, scope) in view.groups.iter().enumerate() {
        let naive = view.group(plan, at as u32);
        if scope.counts != naive || scope.counts.total() != plan.groups[at].members.len() as u32 {
            return fail(format!("group {at}: {:?} is not {naive:?}", scope.counts));
        }
    }
    for (at, scope) in view.stages.iter().enumerate() {
        let naive = view.stage(plan, at as u32);
        let failed: u32 = plan.stages[at].groups.clone().map(|group| view.groups[group as usize].counts.failed).sum();
        if scope.counts != naive || scope.counts.failed != failed {
            return fail(format!("stage {at}: {:?} is not {naive:?}", scope.counts));
        }
    }
    let naive = view.count(0..plan.members.len() as u32);
    let failed: u32 = view.stages.iter().map(|stage| stage.counts.failed).sum();
    if view.counts != naive || view.counts.failed != failed {
        return fail(format!("run: {:?} is not {naive:?}", view.counts));
    }
    Ok(())
}

fn stopping(plan: &Plan, _: &View, _: &Event, view: &View) -> Result<(), String> {
    let spent = view
        .current
        .is_some_and(|stage| view.stage_over(plan, stage) && view.stages[stage as usize].phase == Phase::Entered);
    let halting = match view.phase {
        RunPhase::Stopping | RunPhase::Failing => true,
        RunPhase::Going => spent,
        _ => false,
    };
    let expect = halting && view.count(0..plan.members.len() as u32).running > 0;
    if expect != (view.state == State::Stopping) {
        return fail(format!("the run is {:?}; halting with members running: {expect}", view.state));
    }
    let still = matches!(view.phase, RunPhase::Idle | RunPhase::Stopped | RunPhase::Ended(_));
    if still && view.counts.running > 0 {
        return fail(format!("members run in a run that is {:?}", view.phase));
    }
    Ok(())
}

fn times(_: &Plan, before: &View, event: &Event, view: &View) -> Result<(), String> {
    let scopes = view.stages.iter().chain(&view.groups).map(|scope| (scope.state, scope.times));
    let between = |member: &Seen| member.state == State::NotStarted && member.steps_done > 0;
    let members = view.members.iter().filter(|member| !between(member)).map(|member| (member.state, member.times));
    for (state, times) in scopes.chain(members).chain([(view.state, view.times)]) {
        if let (Some(started), Some(completed)) = (times.started, times.completed)
            && completed < started
        {
            return fail(format!("{state:?}: completed {completed} before started {started}"));
        }
        let done = matches!(state, State::Completed | State::Failed | State::Skipped);
        if done != times.completed.is_some() {
            return fail(format!("{state:?} with completed {:?}", times.completed));
        }
        if state == State::NotStarted && times.started.is_some() {
            return fail("not started, with a start time");
        }
    }
    for (at, (old, new)) in before.members.iter().zip(&view.members).enumerate() {
        if matches!(old.state, State::Completed | State::Skipped) && !new.same(old) {
            return fail(format!("member {at} was {old:?} and is {new:?} after {event:?}"));
        }
    }
    Ok(())
}

fn group_state(plan: &Plan, view: &View, at: u32) -> State {
    let group = &plan.groups[at as usize];
    let scope = &view.groups[at as usize];
    let counts = view.group(plan, at);
    let halting = matches!(view.phase, RunPhase::Stopping | RunPhase::Failing)
        || view.group_over(plan, at)
        || view.stage_over(plan, group.stage);
    let still = matches!(view.phase, RunPhase::Stopped | RunPhase::Ended(_));
    match (scope.phase, view.stages[group.stage as usize].phase) {
        (Phase::Ended(outcome), _) => return outcome.into(),
        (_, Phase::Idle) => return State::NotStarted,
        _ => {}
    }
    if halting && counts.running > 0 {
        return State::Stopping;
    }
    if halting || still {
        return if scope.times.started.is_some() { State::Stopped } else { State::NotStarted };
    }
    if view.gated(plan, group.stage) {
        return State::NotStarted;
    }
    let any_waits = counts.not_started > 0 && !view.group_gated(plan, at) && !view.unresolved(plan);
    match () {
        () if counts.running > 0 || any_waits => State::Running,
        () if counts.total() > 0 => State::Pending,
        () => State::NotStarted,
    }
}

fn stage_state(plan: &Plan, view: &View, at: u32) -> State {
    let stage = &plan.stages[at as usize];
    let scope = &view.stages[at as usize];
    match scope.phase {
        Phase::Ended(outcome) => return outcome.into(),
        Phase::Idle => return State::NotStarted,
        Phase::Entered => {}
    }
    let halting = matches!(view.phase, RunPhase::Stopping | RunPhase::Failing) || view.stage_over(plan, at);
    let still = matches!(view.phase, RunPhase::Stopped | RunPhase::Ended(_));
    let groups: Vec<State> = stage.groups.clone().map(|group| group_state(plan, view, group)).collect();
    let any = |states: &[State]| groups.iter().any(|state| states.contains(state));
    let ended = stage.groups.clone().all(|group| matches!(view.groups[group as usize].phase, Phase::Ended(_)));
    let gate_left = ended && view.closed(plan, (at, None), Timing::After);
    match () {
        () if halting && view.stage(plan, at).running > 0 => State::Stopping,
        () if (halting || still) && scope.times.started.is_some() => State::Stopped,
        () if halting || still => State::NotStarted,
        () if view.gated(plan, at) => State::Pending,
        () if matches!(scope.wait, Some(Wait::Running { .. })) => State::Running,
        () if any(&[State::Running, State::Stopping]) => State::Running,
        () if any(&[State::Pending]) || gate_left => State::Pending,
        () => State::Running,
    }
}

fn roll_up(plan: &Plan, _: &View, _: &Event, view: &View) -> Result<(), String> {
    for (at, scope) in view.groups.iter().enumerate() {
        let naive = group_state(plan, view, at as u32);
        if scope.state != naive {
            return fail(format!("group {at} is {:?}, from scratch {naive:?}", scope.state));
        }
    }
    for (at, scope) in view.stages.iter().enumerate() {
        let naive = stage_state(plan, view, at as u32);
        if scope.state != naive {
            return fail(format!("stage {at} is {:?}, from scratch {naive:?}", scope.state));
        }
    }
    let stage = view.current.map(|stage| stage_state(plan, view, stage));
    let naive = match (view.phase, stage) {
        (RunPhase::Idle, _) => State::NotStarted,
        (RunPhase::Stopped, _) => State::Stopped,
        (RunPhase::Ended(outcome), _) => outcome.into(),
        (RunPhase::Stopping | RunPhase::Failing, _) if view.counts.running > 0 => State::Stopping,
        (RunPhase::Stopping | RunPhase::Failing, _) => State::Stopped,
        (RunPhase::Going, Some(state @ (State::Pending | State::Stopping))) => state,
        (RunPhase::Going, _) => State::Running,
    };
    if view.state != naive {
        return fail(format!("the run is {:?}, from scratch {naive:?}", view.state));
    }
    Ok(())
}

fn ends(plan: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let right = match event {
        Event::GroupEnded(group, outcome) => {
            let counts = before.group(plan, *group);
            let over = before.group_over(plan, *group);
            let all = counts.ended() == counts.total();
            let skipped = before.groups[*group as usize].skip_asked || counts.skipped == counts.total();
            let naive = match () {
                () if over => Outcome::Failed,
                () if skipped => Outcome::Skipped,
                () if before.group_short(plan, *group) => Outcome::Failed,
                () => Outcome::Completed,
            };
            let ended = matches!(before.groups[*group as usize].phase, Phase::Ended(_));
            !ended && counts.running == 0 && (over || all) && *outcome == naive
        }
        Event::StageEnded(stage, outcome) => {
            let scope = &before.stages[*stage as usize];
            let groups = || plan.stages[*stage as usize].groups.clone();
            let states = || groups().map(|group| before.groups[group as usize].state);
            let waited =
                plan.stages[*stage as usize].after_wait_seconds == 0 || matches!(scope.wait, Some(Wait::Over { .. }));
            let all_skipped = states().all(|state| state == State::Skipped);
            let short = !all_skipped && before.stage_short(plan, *stage);
            let failed = states().any(|state| state == State::Failed) || before.stage_over(plan, *stage) || short;
            !matches!(scope.phase, Phase::Ended(_))
                && before.stage(plan, *stage).running == 0
                && match outcome {
                    Outcome::Failed => failed,
                    Outcome::Skipped => {
                        states().all(|state| matches!(state, State::Completed | State::Skipped))
                            && (scope.skip_asked || states().all(|state| state == State::Skipped))
                    }
                    Outcome::Completed => {
                        !failed
                            && waited
                            && states().all(|state| matches!(state, State::Completed | State::Skipped))
                            && states().any(|state| state == State::Completed)
                    }
                }
        }
        Event::RunEnded(outcome) => {
            let all = |wanted: &[State]| before.stages.iter().all(|stage| wanted.contains(&stage.state));
            match outcome {
                Outcome::Failed => before.current.is_some_and(|at| before.stages[at as usize].state == State::Failed),
                Outcome::Skipped => all(&[State::Skipped]),
                Outcome::Completed => all(&[State::Completed, State::Skipped]) && !all(&[State::Skipped]),
            }
        }
        _ => true,
    };
    if right { Ok(()) } else { fail(format!("{event:?} is not how it ended")) }
}

/// A slot goes to the group with the fewest running, there to who was under way before, then by place.
fn order(plan: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let Event::MemberStarted(member) = event else { return Ok(()) };
    let next = before.next_to_start(plan);
    if next != Some(*member) { fail(format!("member {member} started, it was the turn of {next:?}")) } else { Ok(()) }
}

fn pinned(_: &Plan, before: &View, event: &Event, view: &View) -> Result<(), String> {
    if before.version.is_some() && before.version != view.version {
        return fail(format!("the target moved from {:?} to {:?}", before.version, view.version));
    }
    if before.images.is_some() && before.images != view.images {
        return fail(format!("the images changed from {:?} to {:?}", before.images, view.images));
    }
    let Event::StepIntended { step, .. } = event else { return Ok(()) };
    match step {
        Step::Cluster { version, .. } | Step::ControlPlane { version } | Step::PoolVersion { version, .. }
            if Some(*version) != view.version =>
        {
            fail(format!("a step to {version}, the run wants {:?}", view.version))
        }
        _ => Ok(()),
    }
}

/// The pools of a step that are set to an image, and whether it is to be exactly that one.
fn images_of(step: &Step) -> Vec<(&str, &NodeImage, bool)> {
    match step {
        Step::Cluster { images, .. } => images.iter().map(|(pool, image)| (pool.as_str(), image, true)).collect(),
        Step::PoolVersion { pool, image, .. } => image.iter().map(|image| (pool.as_str(), image, true)).collect(),
        Step::PoolPinned { pool, image } => vec![(pool, image, true)],
        Step::PoolImage { pool, image } => vec![(pool, image, false)],
        Step::ControlPlane { .. } => Vec::new(),
    }
}

/// A pool goes to the image of its family; one that is ahead stays on its own, or goes on to a newer one where its own is
/// not to be had with a new version. Others go to a newer one only where that was accepted.
fn chosen(plan: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let Event::StepIntended { member, step, .. } = event else { return Ok(()) };
    let Some(chosen) = &before.images else {
        let pinned = images_of(step).into_iter().any(|(_, _, pinned)| pinned);
        return if pinned { fail(format!("{event:?} although each region's newest is wanted")) } else { Ok(()) };
    };
    let newer = |image: &NodeImage| plan.goal.accepts_newer() && chosen.iter().any(|chosen| image > chosen);
    for (pool, image, _) in images_of(step) {
        let own = before.outside.image(*member, pool);
        let at = own == Some(image) && chosen.iter().any(|chosen| image >= chosen);
        let ahead = own.is_some_and(|own| image >= own && chosen.iter().any(|chosen| own > chosen));
        if !chosen.contains(image) && !at && !ahead && !newer(image) {
            return fail(format!("{event:?} of a pool on {own:?}, the run wants {chosen:?}"));
        }
    }
    let left_out = |(pool, own): &(String, NodeImage)| {
        let moves = match step {
            Step::Cluster { pools, .. } => pools.contains(pool),
            _ => step.pool() == Some(pool),
        };
        moves && chosen.iter().all(|chosen| chosen.family() != own.family())
    };
    match before.outside.images[*member as usize].iter().any(left_out) {
        true => fail(format!("{event:?} moves a pool for whose family there is no image")),
        false => Ok(()),
    }
}

fn never_back(_: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let Event::StepIntended { member, step, .. } = event else { return Ok(()) };
    for (pool, image, _) in images_of(step) {
        let own = before.outside.image(*member, pool);
        if own.is_some_and(|own| image < own) {
            return fail(format!("{event:?} takes a pool back that is on {own:?}"));
        }
    }
    Ok(())
}

fn transitions(_: &Plan, before: &View, event: &Event, view: &View) -> Result<(), String> {
    for (at, (old, new)) in before.members.iter().zip(&view.members).enumerate() {
        let which = |known: Known| match known {
            Known::In { which, .. } => Some(which),
            Known::Unread | Known::Free => None,
        };
        if which(old.window) != which(new.window) && !matches!(event, Event::WindowsRead { .. }) {
            return fail(format!("member {at} has another window by {event:?}"));
        }
        if new.same(old) {
            continue;
        }
        let back = new.state == State::NotStarted || new.shut;
        let turned = matches!(event, Event::WindowTurned { .. } | Event::WindowsRead { .. });
        let right = match (old.state, new.state) {
            (State::Failed, _) if back => {
                *event == Event::Resumed && new.attempt == old.attempt + 1 && new.steps_done == 0
            }
            (State::Failed, State::Skipped) => matches!(event, Event::Skipped(_)),
            (State::Failed, _) => false,
            (State::Pending, _) if back && old.stopped_between => *event == Event::Resumed,
            _ if old.waits() && back => old.state == new.state || turned,
            (State::NotStarted, State::Running) => *event == Event::MemberStarted(at as u32),
            (State::NotStarted, State::Skipped) => true,
            (State::NotStarted, _) => false,
            (State::Pending, State::Failed) => old.worn.is_some_and(|worn| worn <= view.now),
            (State::Pending, State::NotStarted | State::Pending | State::Skipped) => true,
            (State::Running, _) => true,
            _ => false,
        };
        let kept = old.attempt == new.attempt || (old.state == State::Failed && back);
        // Nothing is asked for on behalf of a member that waits: what is read of its window makes no answer stale.
        let read = matches!(event, Event::WindowsRead { .. }) && old.waits() && new.waits();
        let stale = old.state != new.state && old.turn >= new.turn && !read;
        if !right || !kept || stale {
            return fail(format!("member {at} went from {old:?} to {new:?} by {event:?}"));
        }
    }
    Ok(())
}

/// A member fails by what its step met, or since it was out of reach for longer than there is patience.
fn failures(plan: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let Event::MemberEnded { member, outcome: Outcome::Failed, fault, .. } = event else { return Ok(()) };
    let member = &before.members[*member as usize];
    let code = fault.as_ref().map_or("", |fault| fault.code.as_str());
    let right = match code {
        "Refused" | "UpgradeFailed" => member.state == State::Running,
        "NodeImageOvertaken" => member.state == State::Running && before.images.is_some() && !plan.goal.accepts_newer(),
        "NodePoolFromSnapshot" => member.state == State::Running && before.images.is_some(),
        "ClusterStopped" | "ClusterUnreachable" => member.worn.is_some_and(|worn| worn <= before.now),
        _ => false,
    };
    if right { Ok(()) } else { fail(format!("{event:?} of a member that was {member:?}")) }
}

/// What completed has as many members where they should be as it must.
fn floors(plan: &Plan, before: &View, event: &Event, _: &View) -> Result<(), String> {
    let short = match event {
        Event::GroupEnded(group, Outcome::Completed) => before.group_short(plan, *group),
        Event::StageEnded(stage, Outcome::Completed) => before.stage_short(plan, *stage),
        _ => false,
    };
    if short { fail(format!("{event:?} below its floor")) } else { Ok(()) }
}
