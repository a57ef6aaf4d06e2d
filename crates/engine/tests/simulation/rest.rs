//! What must hold of a run that has come to rest: all that follows from an input has followed.

use flotta_engine::{
    Plan, Run, Work,
    run::{Part, Reason, RunPhase, State, Wait, Why},
};
use jiff::Timestamp;

use crate::{check::fail, gates, shut, view::View};

/// What a run that has come to rest says about going on.
#[derive(Clone, Debug)]
pub struct Outlook {
    pub view: View,
    pub work: Vec<Work>,
    pub to_read: Vec<u32>,
    pub wake: Option<Timestamp>,
    /// Of the run if nothing runs, of each stage and group that is pending, and of some members.
    pub run: Option<Vec<Reason>>,
    pub stages: Vec<Option<Vec<Reason>>>,
    pub groups: Vec<Option<Vec<Reason>>>,
    pub members: Vec<(u32, Vec<Reason>)>,
}

impl Outlook {
    /// All rules of a member are asked for of at most so many, from one on, if at all.
    const ASKED: usize = 6;

    pub fn of(run: &Run, view: View, ask_from: Option<usize>) -> Self {
        let now = view.now;
        let pending = |state: State, part: Part| match state {
            State::Pending => ask_from.map(|_| run.waiting_on(part, now)),
            _ => None,
        };
        let stages = view.stages.iter().zip(0..).map(|(scope, at)| pending(scope.state, Part::Stage(at))).collect();
        let groups = view.groups.iter().zip(0..).map(|(scope, at)| pending(scope.state, Part::Group(at))).collect();
        let count = view.members.len();
        let asked =
            ask_from.into_iter().flat_map(|from| (0..count.min(Self::ASKED)).map(move |at| (from + at) % count));
        let still = view.counts.running == 0 && (ask_from.is_some() || run.next_wake().is_none());
        Self {
            work: run.work(),
            to_read: run.windows_to_read(),
            wake: run.next_wake(),
            run: still.then(|| run.waiting_on(Part::Run, now)),
            stages,
            groups,
            members: asked.map(|at| (at as u32, run.waiting_on(Part::Member(at as u32), now))).collect(),
            view,
        }
    }
}

pub type RestInvariant = fn(&Plan, &Outlook) -> Result<(), String>;

/// What holds when all that follows from an input has followed.
pub const AT_REST: [(&str, RestInvariant); 9] = [
    ("rule 3: what does not move has a reason", reasons),
    ("no run is stuck", stuck),
    ("no slot is idle", idle),
    ("wake-ups come when something changes by itself", wake),
    ("a6 gates are asked for and done in time", gates::in_time),
    ("a6 what was denied stops the run and says so", gates::denials),
    ("b4 gates after a stage stand beside its wait", gates::beside_the_wait),
    ("b4 who waits for a window knows it", shut::known),
    ("b4 windows are read and read again", shut::reading),
];

fn reasons(_: &Plan, rest: &Outlook) -> Result<(), String> {
    let view = &rest.view;
    for (at, reasons) in &rest.members {
        let member = &view.members[*at as usize];
        let still = matches!(member.state, State::NotStarted | State::Pending);
        if still == reasons.is_empty() {
            return fail(format!("member {at} is {:?} with reasons {reasons:?}", member.state));
        }
        let past = reasons.iter().find(|reason| reason.until.is_some_and(|until| until <= view.now));
        if let Some(past) = past {
            return fail(format!("member {at} waits for what is past at {}: {past:?}", view.now));
        }
    }
    let scopes = view.stages.iter().zip(&rest.stages).chain(view.groups.iter().zip(&rest.groups));
    for (scope, reasons) in scopes {
        if scope.state == State::Pending && reasons.as_ref().is_some_and(Vec::is_empty) {
            return fail("a stage or group is pending without a reason");
        }
    }
    let still = matches!(view.state, State::NotStarted | State::Pending | State::Stopped | State::Failed);
    if still && view.counts.running == 0 && rest.run.as_ref().is_some_and(Vec::is_empty) {
        return fail(format!("the run is {:?} without a reason", view.state));
    }
    Ok(())
}

fn stuck(_: &Plan, rest: &Outlook) -> Result<(), String> {
    let closed = rest.run.iter().flatten().any(|reason| matches!(reason.why, Why::Gate { .. } | Why::Window));
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
    match rest.view.next_to_start(plan) {
        Some(member) => fail(format!("member {member} could start")),
        None => Ok(()),
    }
}

/// The first instant at which something changes by itself: not later, or it is missed; not earlier, or nothing comes of it.
fn wake(plan: &Plan, rest: &Outlook) -> Result<(), String> {
    let naive = naive_wake(plan, &rest.view);
    if rest.wake != naive {
        return fail(format!("wants to be woken at {:?}, something changes at {naive:?}", rest.wake));
    }
    match rest.wake {
        Some(wake) if wake <= rest.view.now => fail(format!("wants to be woken at {wake}, it is {}", rest.view.now)),
        _ => Ok(()),
    }
}

fn naive_wake(plan: &Plan, view: &View) -> Option<Timestamp> {
    if view.phase != RunPhase::Going {
        return None;
    }
    let wait = view.current.and_then(|stage| match view.stages[stage as usize].wait {
        Some(Wait::Running { until, .. }) => Some(until),
        _ => None,
    });
    let gates = view.gates.iter().filter(|gate| gate.state == State::Pending && !gate.denied);
    let waiting = view.members.iter().filter(|member| member.waits());
    let turns = waiting.filter_map(|member| view.stand(member)?.turns);
    let held = (0..).zip(&view.members).filter_map(|(at, seen)| Some((at, seen.worn?)));
    let worn = held.filter(|(at, _)| view.may_fail(plan, *at)).map(|(_, worn)| worn);
    let again = (0..plan.groups.len() as u32).filter_map(|group| shut::rereads(plan, view, group));
    wait.into_iter().chain(gates.filter_map(|gate| gate.due)).chain(turns).chain(worn).chain(again).min()
}
