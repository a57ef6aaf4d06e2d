//! What must hold of a run whatever happens (`behaviour.md` B5 and the rules of the design), recomputed from scratch out
//! of the states of its members. Each invariant is a function over plain data, so that tests can feed it bad data.

use flotta_engine::{
    Event, Plan, Run, Work,
    run::{Counts, MemberPhase, Outcome, Part, Phase, Reason, RunPhase, State, Times, Wait, Why},
};
use flotta_model::{KubernetesVersion, Step};
use jiff::Timestamp;

/// What can be seen of a run at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub state: State,
    pub phase: RunPhase,
    pub current: Option<u32>,
    pub version: Option<KubernetesVersion>,
    pub times: Times,
    pub counts: Counts,
    pub stages: Vec<Scope>,
    pub groups: Vec<Scope>,
    pub members: Vec<Seen>,
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
}

/// A member.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub state: State,
    pub attempt: u32,
    pub steps_done: u32,
    pub turn: u32,
    pub times: Times,
    pub skip_asked: bool,
    pub stopped_between: bool,
}

impl View {
    pub fn of(run: &Run) -> Self {
        let plan = run.plan();
        let seen = |member: u32| {
            let state = run.member(member);
            let between = matches!(&state.phase, MemberPhase::Held(held) if held.hold.code() == "StoppedBetweenSteps");
            Seen {
                state: run.member_state(member),
                attempt: state.attempt,
                steps_done: state.steps_done,
                turn: state.turn,
                times: state.times,
                skip_asked: state.skip_asked,
                stopped_between: between,
            }
        };
        let group = |at: u32| {
            let group = run.group(at);
            Scope {
                state: run.group_state(at),
                phase: group.phase,
                times: group.times,
                counts: group.counts,
                skip_asked: group.skip_asked,
                wait: None,
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
            }
        };
        Self {
            state: run.state(),
            phase: run.phase(),
            current: run.current_stage(),
            version: run.version(),
            times: run.times(),
            counts: *run.counts(),
            stages: (0..plan.stages.len() as u32).map(stage).collect(),
            groups: (0..plan.groups.len() as u32).map(group).collect(),
            members: (0..plan.members.len() as u32).map(seen).collect(),
        }
    }

    fn naive(&self, members: std::ops::Range<u32>) -> Counts {
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
        }
        counts
    }

    fn group(&self, plan: &Plan, group: u32) -> Counts {
        self.naive(plan.groups[group as usize].members.clone())
    }

    fn stage(&self, plan: &Plan, stage: u32) -> Counts {
        self.naive(plan.stages[stage as usize].members.clone())
    }

    fn group_over(&self, plan: &Plan, group: u32) -> bool {
        let failed = self.group(plan, group).failed;
        let strict = plan.stages[plan.groups[group as usize].stage as usize].max_allowed_failures == Some(0);
        let limit = if strict { Some(0) } else { plan.groups[group as usize].max_allowed_failures };
        limit.is_some_and(|limit| failed > limit)
    }

    fn stage_over(&self, plan: &Plan, stage: u32) -> bool {
        let limit = plan.stages[stage as usize].max_allowed_failures;
        limit.is_some_and(|limit| self.stage(plan, stage).failed > limit)
    }

    fn gated(&self, plan: &Plan, stage: u32) -> bool {
        let counts = self.stage(plan, stage);
        let scope = &self.stages[stage as usize];
        !plan.stages[stage as usize].before_gates.is_empty() && counts.ended() < counts.total() && !scope.skip_asked
    }

    /// Whether the minor that the run goes to means no version yet.
    fn unresolved(&self, plan: &Plan) -> bool {
        self.version.is_none() && plan.goal.version().is_some()
    }

    /// Whether a group may begin members.
    fn open(&self, plan: &Plan, group: u32) -> bool {
        let stage = plan.groups[group as usize].stage;
        self.phase == RunPhase::Going
            && !self.unresolved(plan)
            && self.current == Some(stage)
            && !matches!(self.groups[group as usize].phase, Phase::Ended(_))
            && plan.groups[group as usize].before_gates.is_empty()
            && !self.gated(plan, stage)
            && !self.group_over(plan, group)
            && !self.stage_over(plan, stage)
    }
}

pub type Invariant = fn(&Plan, &View, &Event, &View) -> Result<(), String>;

/// What holds after every event: of the view before it, the event, the view after it.
pub const AFTER_EACH_EVENT: [(&str, Invariant); 12] = [
    ("b5_1 limits are hard caps", limits),
    ("b5_2 stages are sequential", sequence),
    ("b5_3 closed gates hold", gates),
    ("b5_4 nothing begins after a limit was exceeded or a stop", no_start_after),
    ("b5_5 counts add up", counts),
    ("b5_6 stopping means halting with members running", stopping),
    ("b5_9 times are in order and ends are kept", times),
    ("b2 states roll up", roll_up),
    ("b2 ends are what they should be", ends),
    ("order of starts", order),
    ("retries are pinned", pinned),
    ("members change only as told", transitions),
];

fn fail<T>(message: impl Into<String>) -> Result<T, String> {
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

fn untouched(member: &Seen) -> bool {
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

fn gates(plan: &Plan, _: &View, event: &Event, view: &View) -> Result<(), String> {
    let left = match event {
        Event::GroupEnded(group, Outcome::Completed) => &plan.groups[*group as usize].after_gates,
        Event::StageEnded(stage, Outcome::Completed) => &plan.stages[*stage as usize].after_gates,
        _ => &Vec::new(),
    };
    if !left.is_empty() {
        return fail(format!("{event:?} before its gate was passed"));
    }
    for group in &plan.groups {
        let closed = !group.before_gates.is_empty() || !plan.stages[group.stage as usize].before_gates.is_empty();
        if closed && group.members.clone().any(|member| !untouched(&view.members[member as usize])) {
            return fail(format!("a member of {} moved behind a closed gate", group.name));
        }
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
    let naive = view.naive(0..plan.members.len() as u32);
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
    let expect = halting && view.naive(0..plan.members.len() as u32).running > 0;
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
        if matches!(old.state, State::Completed | State::Skipped) && old != new {
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
    let any_waits = counts.not_started > 0 && group.before_gates.is_empty() && !view.unresolved(plan);
    match () {
        () if counts.running > 0 || any_waits => State::Running,
        () if counts.total() > 0 || !group.before_gates.is_empty() => State::Pending,
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
    match () {
        () if halting && view.stage(plan, at).running > 0 => State::Stopping,
        () if (halting || still) && scope.times.started.is_some() => State::Stopped,
        () if halting || still => State::NotStarted,
        () if view.gated(plan, at) => State::Pending,
        () if matches!(scope.wait, Some(Wait::Running { .. })) => State::Running,
        () if any(&[State::Running, State::Stopping]) => State::Running,
        () if any(&[State::Pending]) || !stage.after_gates.is_empty() => State::Pending,
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
                () => Outcome::Completed,
            };
            counts.running == 0 && (over || all) && *outcome == naive
        }
        Event::StageEnded(stage, outcome) => {
            let scope = &before.stages[*stage as usize];
            let groups = || plan.stages[*stage as usize].groups.clone();
            let states = || groups().map(|group| before.groups[group as usize].state);
            let waited =
                plan.stages[*stage as usize].after_wait_seconds == 0 || matches!(scope.wait, Some(Wait::Over { .. }));
            let failed = states().any(|state| state == State::Failed) || before.stage_over(plan, *stage);
            before.stage(plan, *stage).running == 0
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
    let next = next_to_start(plan, before);
    if next != Some(*member) { fail(format!("member {member} started, it was the turn of {next:?}")) } else { Ok(()) }
}

fn next_to_start(plan: &Plan, view: &View) -> Option<u32> {
    let stage = view.current?;
    if view.stage(plan, stage).running >= plan.stages[stage as usize].max_concurrency {
        return None;
    }
    let waiting = |group: u32| {
        let members = plan.groups[group as usize].members.clone();
        members.filter(|member| view.members[*member as usize].state == State::NotStarted)
    };
    let may = |group: &u32| {
        let running = view.group(plan, *group).running;
        view.open(plan, *group)
            && running < plan.groups[*group as usize].max_concurrency
            && waiting(*group).next().is_some()
    };
    let groups = plan.stages[stage as usize].groups.clone().filter(may);
    let group = groups.min_by_key(|group| (view.group(plan, *group).running, *group))?;
    waiting(group).min_by_key(|member| (view.members[*member as usize].steps_done == 0, *member))
}

fn pinned(_: &Plan, before: &View, event: &Event, view: &View) -> Result<(), String> {
    if before.version.is_some() && before.version != view.version {
        return fail(format!("the target moved from {:?} to {:?}", before.version, view.version));
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

fn transitions(_: &Plan, before: &View, event: &Event, view: &View) -> Result<(), String> {
    for (at, (old, new)) in before.members.iter().zip(&view.members).enumerate() {
        if old == new {
            continue;
        }
        let right = match (old.state, new.state) {
            (State::Failed, State::NotStarted) => {
                *event == Event::Resumed && new.attempt == old.attempt + 1 && new.steps_done == 0
            }
            (State::Failed, State::Skipped) => matches!(event, Event::Skipped(_)),
            (State::Failed, _) => false,
            (State::Pending, State::NotStarted) if old.stopped_between => *event == Event::Resumed,
            (State::NotStarted, State::Running) => *event == Event::MemberStarted(at as u32),
            (State::NotStarted, State::NotStarted | State::Skipped) => true,
            (State::NotStarted, _) => false,
            (State::Pending, State::NotStarted | State::Pending | State::Failed | State::Skipped) => true,
            (State::Running, _) => true,
            _ => false,
        };
        let kept = old.attempt == new.attempt || (old.state == State::Failed && new.state == State::NotStarted);
        let stale = old.state != new.state && old.turn >= new.turn;
        if !right || !kept || stale {
            return fail(format!("member {at} went from {old:?} to {new:?} by {event:?}"));
        }
    }
    Ok(())
}

/// What a run that has come to rest says about going on.
#[derive(Clone, Debug)]
pub struct Outlook {
    pub view: View,
    pub now: Timestamp,
    pub work: Vec<Work>,
    pub wake: Option<Timestamp>,
    /// Of the run if nothing runs, of each stage and group that is pending, and of each member.
    pub run: Vec<Reason>,
    pub stages: Vec<Vec<Reason>>,
    pub groups: Vec<Vec<Reason>>,
    pub members: Vec<Vec<Reason>>,
}

impl Outlook {
    pub fn of(run: &Run, now: Timestamp) -> Self {
        let view = View::of(run);
        let pending = |state: State, part: Part| match state {
            State::Pending => run.waiting_on(part, now),
            _ => Vec::new(),
        };
        let stages = view.stages.iter().zip(0..).map(|(scope, at)| pending(scope.state, Part::Stage(at))).collect();
        let groups = view.groups.iter().zip(0..).map(|(scope, at)| pending(scope.state, Part::Group(at))).collect();
        Self {
            now,
            work: run.work(),
            wake: run.next_wake(),
            run: if view.counts.running > 0 { Vec::new() } else { run.waiting_on(Part::Run, now) },
            stages,
            groups,
            members: (0..view.members.len() as u32).map(|at| run.waiting_on(Part::Member(at), now)).collect(),
            view,
        }
    }
}

pub type RestInvariant = fn(&Plan, &Outlook) -> Result<(), String>;

/// What holds when all that follows from an input has followed.
pub const AT_REST: [(&str, RestInvariant); 4] = [
    ("rule 3: what does not move has a reason", reasons),
    ("no run is stuck", stuck),
    ("no slot is idle", idle),
    ("no wake-up is in the past", wake),
];

fn reasons(_: &Plan, rest: &Outlook) -> Result<(), String> {
    let view = &rest.view;
    for (at, (member, reasons)) in view.members.iter().zip(&rest.members).enumerate() {
        let still = matches!(member.state, State::NotStarted | State::Pending);
        if still == reasons.is_empty() {
            return fail(format!("member {at} is {:?} with reasons {reasons:?}", member.state));
        }
    }
    let scopes = view.stages.iter().zip(&rest.stages).chain(view.groups.iter().zip(&rest.groups));
    for (scope, reasons) in scopes {
        if scope.state == State::Pending && reasons.is_empty() {
            return fail("a stage or group is pending without a reason");
        }
    }
    let still = matches!(view.state, State::NotStarted | State::Pending | State::Stopped | State::Failed);
    if still && view.counts.running == 0 && rest.run.is_empty() {
        return fail(format!("the run is {:?} without a reason", view.state));
    }
    Ok(())
}

fn stuck(_: &Plan, rest: &Outlook) -> Result<(), String> {
    let closed = rest.run.iter().any(|reason| matches!(reason.why, Why::Gate { .. }));
    match rest.view.phase {
        RunPhase::Going if rest.work.is_empty() && rest.wake.is_none() && !closed => {
            fail("nothing goes on, nothing is waited for")
        }
        RunPhase::Stopping | RunPhase::Failing if rest.view.counts.running == 0 => {
            fail("the halt has nothing left to wait for")
        }
        _ => Ok(()),
    }
}

fn idle(plan: &Plan, rest: &Outlook) -> Result<(), String> {
    match next_to_start(plan, &rest.view) {
        Some(member) => fail(format!("member {member} could start")),
        None => Ok(()),
    }
}

fn wake(_: &Plan, rest: &Outlook) -> Result<(), String> {
    match rest.wake {
        Some(wake) if wake <= rest.now => fail(format!("wants to be woken at {wake}, it is {}", rest.now)),
        _ => Ok(()),
    }
}
