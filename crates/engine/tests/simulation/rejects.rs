//! Each invariant is fed something bad, made by hand, and must reject it: a check that cannot fail is no check.

use std::{rc::Rc, sync::Arc};

use flotta_engine::{
    Event, Input, Plan, Run, Work,
    run::{Outcome, Phase, Reason, RunPhase, State, Wait, Why, Windows},
};
use flotta_model::{
    Budget, Fault, GateConfig, GateKind, Goal, Group, MaintenanceWindow, Member, Stage, Step, Strategy, UpgradeType,
    gate::{ApprovalPolicy, Creator, Rejection, ScheduledStart, Weekday},
    window::HoursOfWeek,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    check::{AFTER_EACH_EVENT, Invariant},
    cloud::{OLD, TARGET},
    regions::{FAMILIES, image},
    rest::{AT_REST, Outlook, RestInvariant},
    view::{Known, Outside, Stand, View},
};

/// Two stages: groups a (2 at once, one failure allowed) and b of three members; then group c of one.
fn plan() -> Plan {
    let group = |name: &str, at_once: &str, failures: &str| Group {
        max_concurrency: Some(at_once.parse().expect(at_once)),
        max_allowed_failures: Some(failures.parse().expect(failures)),
        ..Group::new(name.parse().expect(name))
    };
    let stage = |name: &str, groups| Stage::new(name.parse().expect(name), groups);
    let mut one = stage("one", vec![group("a", "2", "1"), group("b", "1", "1")]);
    one.max_concurrency = Some("2".parse().expect("2"));
    one.max_allowed_failures = Some("2".parse().expect("2"));
    let two = stage("two", vec![group("c", "1", "0")]);
    let members: Vec<Member> = "aaabbbc".chars().enumerate().map(|(at, group)| member(at, group)).collect();
    let goal = Goal::new(UpgradeType::Full, Some(TARGET.into()), None).expect("goal");
    Plan::resolve(goal, Some(&Strategy::new(vec![one, two]).expect("strategy")), &members).expect("plan")
}

fn member(at: usize, group: char) -> Member {
    let cluster =
        format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/m{at}");
    Member {
        name: format!("m{at}").parse().expect("name"),
        cluster: cluster.parse().expect("cluster"),
        group: Some(group.to_string().parse().expect("group")),
        labels: Default::default(),
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("time")
}

/// The window of members 2 and 5: closed now, a Thursday, and open on Mondays from 4 to 5.
fn window() -> MaintenanceWindow {
    MaintenanceWindow::HoursOfWeek(HoursOfWeek::new(vec![(Weekday::Monday, 4)], Vec::new()).expect("window"))
}

fn outside() -> Rc<Outside> {
    let of = (0..7).map(|member| [2, 5].contains(&member).then_some(0)).collect();
    let images = Rc::new(vec![vec![("pool".to_owned(), image(now(), FAMILIES[0], 5))]; 7]);
    Rc::new(Outside { windows: Rc::new(vec![window()]), stands: vec![Stand::of(&window(), now())], of, images })
}

/// The run just after its windows were read: members 0 and 3 run, 2 and 5 wait for their window.
fn run() -> Run {
    started(plan())
}

fn started(plan: Plan) -> Run {
    let mut run = Run::new(Arc::new(plan));
    run.step(&Input::Start, now()).expect("started");
    let mut windows = Windows::default();
    for member in run.windows_to_read() {
        windows.add(member, [2, 5].contains(&member).then(window));
    }
    run.step(&Input::WindowsSeen(windows), now()).expect("read");
    run
}

fn view(run: &Run) -> View {
    View::of(run, now(), &outside())
}

fn invariant(name: &str) -> Invariant {
    AFTER_EACH_EVENT.iter().find(|(found, _)| found.starts_with(name)).expect(name).1
}

fn rest_invariant(name: &str) -> RestInvariant {
    AT_REST.iter().find(|(found, _)| found.starts_with(name)).expect(name).1
}

/// The invariant of this name accepts the good and rejects the bad.
fn check(name: &str, event: &Event, spoil_before: impl Fn(&mut View), spoil: impl Fn(&mut View)) {
    check_plan(&plan(), name, event, spoil_before, spoil);
}

fn check_plan(plan: &Plan, name: &str, event: &Event, spoil_before: impl Fn(&mut View), spoil: impl Fn(&mut View)) {
    let good = view(&started(plan.clone()));
    let invariant = invariant(name);
    invariant(plan, &good, &Event::StopAsked, &good).expect("the good is accepted");
    let (mut before, mut after) = (good.clone(), good.clone());
    spoil_before(&mut before);
    spoil(&mut after);
    let answer = invariant(plan, &before, event, &after);
    assert!(answer.is_err(), "{name} accepts what is bad");
}

fn check_after(name: &str, spoil: impl Fn(&mut View)) {
    check(name, &Event::StopAsked, |_| {}, spoil);
}

fn check_rest(name: &str, spoil: impl Fn(&mut Outlook)) {
    check_rest_of(&run(), name, spoil);
}

fn check_rest_of(run: &Run, name: &str, spoil: impl Fn(&mut Outlook)) {
    let good = Outlook::of(run, view(run), Some(0));
    let invariant = rest_invariant(name);
    invariant(run.plan(), &good).expect("the good is accepted");
    let mut bad = good.clone();
    spoil(&mut bad);
    assert!(invariant(run.plan(), &bad).is_err(), "{name} accepts what is bad");
}

fn put(view: &mut View, member: usize, state: State) {
    view.members[member].state = state;
}

#[test]
fn checker_rejects_more_members_than_a_group_may_have_under_way() {
    check_after("b5_1", |view| {
        put(view, 0, State::NotStarted);
        put(view, 4, State::Running);
    });
}

#[test]
fn checker_rejects_more_members_than_a_stage_may_have_under_way() {
    check_after("b5_1", |view| put(view, 1, State::Running));
}

#[test]
fn checker_rejects_a_member_of_a_later_stage_under_way() {
    for state in [State::Running, State::Pending, State::Completed, State::Failed] {
        check_after("b5_2", |view| put(view, 6, state));
    }
}

#[test]
fn checker_rejects_more_failures_and_members_under_way_than_a_strict_budget_bears() {
    let mut plan = plan();
    plan.groups[0].budget = Budget::Strict;
    check_plan(&plan, "strict", &Event::StopAsked, |_| {}, |view| put(view, 1, State::Running));
    check_plan(&plan, "strict", &Event::StopAsked, |_| {}, |view| put(view, 1, State::Failed));
    plan.groups[0].budget = Budget::Watched;
    plan.stages[0].budget = Budget::Strict;
    check_plan(&plan, "strict", &Event::StopAsked, |_| {}, |view| put(view, 4, State::Failed));
}

#[test]
fn checker_rejects_a_start_after_a_limit_was_exceeded_or_a_stop() {
    let started = Event::MemberStarted(2);
    let over = |view: &mut View| [0, 1].into_iter().for_each(|member| put(view, member, State::Failed));
    check("b5_4", &started, over, |_| {});
    let stage_over = |view: &mut View| [0, 3, 4].into_iter().for_each(|member| put(view, member, State::Failed));
    check("b5_4", &started, stage_over, |_| {});
    check("b5_4", &started, |view| view.phase = RunPhase::Stopping, |_| {});
    check("b5_4", &started, |view| view.phase = RunPhase::Failing, |_| {});
    let step = Step::ControlPlane { version: TARGET };
    let intended = Event::StepIntended { member: 0, step, guard: None, left: 1, not_after: None };
    check("b5_4", &intended, |view| view.phase = RunPhase::Failing, |_| {});
    let between = |view: &mut View| (view.phase, view.members[0].steps_done) = (RunPhase::Stopping, 1);
    check("b5_4", &intended, between, |_| {});
}

#[test]
fn checker_rejects_counts_that_are_wrong_at_any_level() {
    check_after("b5_5", |view| view.counts.failed += 1);
    check_after("b5_5", |view| view.stages[0].counts.pending += 1);
    check_after("b5_5", |view| view.groups[1].counts.running -= 1);
    check_after("b5_5", |view| put(view, 1, State::Failed));
}

#[test]
fn checker_rejects_stopping_without_cause_and_halting_that_does_not_say_so() {
    check_after("b5_6", |view| view.state = State::Stopping);
    check_after("b5_6", |view| view.phase = RunPhase::Failing);
    check_after("b5_6", |view| view.phase = RunPhase::Stopped);
}

#[test]
fn checker_rejects_times_out_of_order_and_ends_that_change() {
    check_after("b5_9", |view| {
        view.members[0].state = State::Completed;
        view.members[0].times.completed = Some(now() - SignedDuration::from_secs(1));
    });
    check_after("b5_9", |view| put(view, 0, State::Completed));
    check_after("b5_9", |view| view.times.completed = Some(now()));
    check_after("b5_9", |view| view.members[1].times.started = Some(now()));
    let completed = |view: &mut View| {
        view.members[0].state = State::Completed;
        view.members[0].times.completed = Some(now());
    };
    check("b5_9", &Event::Resumed, completed, |_| {});
}

#[test]
fn checker_rejects_states_that_do_not_roll_up() {
    check_after("b2 states", |view| view.state = State::Pending);
    check_after("b2 states", |view| view.stages[1].state = State::Running);
    check_after("b2 states", |view| view.groups[0].state = State::Completed);
    check_after("b2 states", |view| (0..3).for_each(|member| put(view, member, State::Pending)));
    check_after("b2 states", |view| view.stages[0].phase = Phase::Ended(Outcome::Failed));
}

#[test]
fn checker_rejects_ends_that_are_not_so() {
    for outcome in [Outcome::Completed, Outcome::Failed, Outcome::Skipped] {
        for event in [Event::GroupEnded(0, outcome), Event::StageEnded(0, outcome), Event::RunEnded(outcome)] {
            check("b2 ends", &event, |_| {}, |_| {});
        }
    }
    let done = |view: &mut View| (0..3).for_each(|member| put(view, member, State::Completed));
    check("b2 ends", &Event::GroupEnded(0, Outcome::Skipped), done, |_| {});
    check("b2 ends", &Event::GroupEnded(0, Outcome::Failed), done, |_| {});
    let twice = |view: &mut View| {
        done(view);
        view.groups[0].phase = Phase::Ended(Outcome::Completed);
    };
    check("b2 ends", &Event::GroupEnded(0, Outcome::Completed), twice, |_| {});
    let groups_skipped = |view: &mut View| {
        (0..6).for_each(|member| put(view, member, State::Skipped));
        view.groups.iter_mut().for_each(|group| group.state = State::Skipped);
    };
    check("b2 ends", &Event::StageEnded(0, Outcome::Completed), groups_skipped, |_| {});
    let stage_twice = |view: &mut View| {
        groups_skipped(view);
        view.stages[0].phase = Phase::Ended(Outcome::Skipped);
    };
    check("b2 ends", &Event::StageEnded(0, Outcome::Skipped), stage_twice, |_| {});
    let stages_done = |view: &mut View| view.stages.iter_mut().for_each(|stage| stage.state = State::Completed);
    check("b2 ends", &Event::RunEnded(Outcome::Skipped), stages_done, |_| {});
}

#[test]
fn checker_rejects_a_start_out_of_turn() {
    let free = |view: &mut View| put(view, 0, State::NotStarted);
    for member in [1, 2, 4, 6] {
        check("order", &Event::MemberStarted(member), free, |_| {});
    }
    check("order", &Event::MemberStarted(1), |_| {}, |_| {});
}

#[test]
fn checker_rejects_another_target() {
    check_after("retries", |view| view.version = Some(OLD));
    let step = Step::pool_version("p".into(), OLD);
    check("retries", &Event::StepIntended { member: 0, step, guard: None, left: 1, not_after: None }, |_| {}, |_| {});
}

#[test]
fn checker_rejects_members_that_change_by_themselves() {
    check_after("members", |view| put(view, 1, State::Completed));
    check_after("members", |view| view.members[0].attempt = 2);
    check_after("members", |view| put(view, 0, State::Completed));
    check("members", &Event::StopAsked, |view| put(view, 0, State::Failed), |view| put(view, 0, State::NotStarted));
    let between = |view: &mut View| (view.members[1].state, view.members[1].stopped_between) = (State::Pending, true);
    check("members", &Event::MemberReleased(1), between, |view| view.members[1].turn += 1);
    check_after("members", |view| view.members[2].window = Known::Free);
    let opened = |view: &mut View| {
        put(view, 2, State::NotStarted);
        view.members[2].shut = false;
        view.members[2].turn += 1;
    };
    check_after("members", opened);
}

#[test]
fn checker_rejects_what_does_not_move_and_has_no_reason() {
    check_rest("rule 3", |rest| rest.members[1].1.clear());
    check_rest("rule 3", |rest| rest.members[0].1 = rest.members[1].1.clone());
    check_rest("rule 3", |rest| rest.members[1].1[0].until = Some(now()));
    check_rest("rule 3", |rest| (rest.view.groups[0].state, rest.groups[0]) = (State::Pending, Some(Vec::new())));
    check_rest("rule 3", |rest| {
        rest.run = Some(Vec::new());
        rest.view.state = State::Pending;
        rest.view.counts.running = 0;
    });
}

#[test]
fn checker_rejects_a_stuck_run_an_idle_slot_and_a_wake_up_in_the_past() {
    check_rest("no run", |rest| (rest.work, rest.wake) = (Vec::new(), None));
    check_rest("no run", |rest| {
        rest.view.phase = RunPhase::Stopping;
        rest.view.counts.running = 0;
    });
    check_rest("no slot", |rest| put(&mut rest.view, 0, State::Completed));
}

#[test]
fn checker_rejects_a_slot_that_is_idle_for_the_more_urgent() {
    let between = |view: &mut View| {
        put(view, 0, State::Completed);
        view.members[2].steps_done = 1;
    };
    check("order", &Event::MemberStarted(2), between, |_| {});
    // Its window opens: it goes before those that have none.
    let opened = |view: &mut View| {
        put(view, 0, State::Completed);
        put(view, 2, State::NotStarted);
        Rc::make_mut(&mut view.outside).stands[0].open = true;
    };
    check("order", &Event::MemberStarted(1), opened, |_| {});
    let mut good = view(&run());
    opened(&mut good);
    invariant("order")(&plan(), &good, &Event::MemberStarted(2), &good).expect("its turn");
}

#[test]
fn checker_rejects_wake_ups_that_are_late_in_the_past_or_for_nothing() {
    check_rest("wake-ups", |rest| rest.wake = Some(now()));
    check_rest("wake-ups", |rest| rest.wake = None);
    let later = |rest: &mut Outlook, seconds| rest.wake = rest.wake.map(|at| at + SignedDuration::from_secs(seconds));
    check_rest("wake-ups", |rest| later(rest, 1));
    check_rest("wake-ups", |rest| later(rest, -1));
    check_rest("wake-ups", |rest| rest.view.members[1].worn = Some(now() + SignedDuration::from_secs(9)));
    let until = now() + SignedDuration::from_secs(9);
    check_rest("wake-ups", |rest| rest.view.stages[0].wait = Some(Wait::Running { since: now(), until }));
    let soon = Stand { open: false, turns: Some(until) };
    check_rest("wake-ups", |rest| Rc::make_mut(&mut rest.view.outside).stands[0] = soon);
}

#[test]
fn checker_rejects_failures_that_only_pass_by_and_floors_that_are_missed() {
    let failed = |code: &str| {
        let fault = Some(Fault::new(code, "it"));
        Event::MemberEnded { member: 0, outcome: Outcome::Failed, message: None, fault, there: false }
    };
    check("nothing transient", &failed("Throttled"), |_| {}, |_| {});
    check("nothing transient", &failed("MaintenanceWindowClosed"), |_| {}, |_| {});
    check("nothing transient", &failed("ClusterStopped"), |_| {}, |_| {});
    check("nothing transient", &failed("UpgradeFailed"), |view| put(view, 0, State::Pending), |_| {});
    let mut plan = plan();
    plan.groups[0].min_success = Some(2);
    check_plan(
        &plan,
        "a5 floors",
        &Event::GroupEnded(0, Outcome::Completed),
        |view| put(view, 0, State::Completed),
        |_| {},
    );
    plan.stages[0].min_success = Some(1);
    check_plan(&plan, "a5 floors", &Event::StageEnded(0, Outcome::Completed), |_| {}, |_| {});
    let short = |view: &mut View| {
        put(view, 0, State::Completed);
        [1, 2].into_iter().for_each(|member| put(view, member, State::Skipped));
    };
    check_plan(&plan, "b2 ends", &Event::GroupEnded(0, Outcome::Completed), short, |_| {});
}

/// Windows: member 1 has none, member 2 waits for its own.
fn step(member: u32, not_after: Option<Timestamp>) -> Event {
    Event::StepIntended { member, step: Step::ControlPlane { version: TARGET }, guard: None, left: 1, not_after }
}

#[test]
fn checker_rejects_steps_outside_their_window_and_after_its_close() {
    let monday = |time: &str| format!("2026-01-05T{time}:00Z").parse::<Timestamp>().expect("time");
    check("e11", &step(2, Some(monday("05:00"))), |_| {}, |_| {});
    check("e11", &step(0, Some(now())), |_| {}, |_| {});
    let open = |view: &mut View| {
        Rc::make_mut(&mut view.outside).stands[0] = Stand { open: true, turns: Some(monday("05:00")) };
    };
    check("e11", &step(2, None), open, |_| {});
    check("e11", &step(2, Some(monday("05:01"))), open, |_| {});
    let other = |view: &mut View| {
        open(view);
        view.members[2].window = Known::Free;
    };
    check("e11", &step(2, Some(monday("05:00"))), other, |_| {});
    let mut good = view(&run());
    open(&mut good);
    invariant("e11")(&plan(), &good, &step(2, Some(monday("05:00"))), &good).expect("inside its window");
}

fn told(view: &mut View, told: Stand) {
    view.members[2].window = Known::In { which: 0, told };
}

#[test]
fn checker_rejects_windows_that_turn_when_they_do_not_and_members_shut_out_of_turn() {
    let open = Stand { open: true, turns: None };
    let turned = Event::WindowTurned { window: 0, open: true, next: None };
    check("b4 windows turn", &turned, |_| {}, |view| told(view, open));
    check_after("b4 windows turn", |view| put(view, 2, State::Running));
    check_rest("b4 who", |rest| told(&mut rest.view, open));
    check_rest("b4 who", |rest| rest.view.members[1].shut = true);
    check_rest("b4 who", |rest| rest.view.members[2].window = Known::Unread);
    check_rest("b4 who", |rest| Rc::make_mut(&mut rest.view.outside).stands[0].open = true);
    check_rest("b4 who", |rest| rest.members[2].1.clear());
    check_rest("b4 who", |rest| rest.members[2].1[0].until = None);
    let why = Reason { why: Why::Window, until: None, members: 1 };
    check_rest("b4 who", |rest| rest.members[1].1.push(why.clone()));
}

#[test]
fn checker_rejects_windows_that_are_not_read_or_not_read_again() {
    check_rest("b4 windows are read", |rest| rest.to_read.push(1));
    check_rest("b4 windows are read", |rest| rest.work.push(Work::ReadWindows));
    check_rest("b4 windows are read", |rest| rest.view.members[1].window = Known::Unread);
    check_rest("b4 windows are read", |rest| rest.view.groups[0].windows_stale = true);
    let hour_ago = now() - SignedDuration::from_hours(1);
    check_rest("b4 windows are read", |rest| rest.view.groups[0].windows_read = Some(hour_ago));
    let mut run = Run::new(Arc::new(plan()));
    run.step(&Input::Start, now()).expect("started");
    check_rest_of(&run, "b4 windows are read", |rest| rest.work.clear());
}

/// Stage one waits for two approvals by others than eve, who made the run; group a for Friday 18:00; group b is followed
/// by an approval, and so is stage one.
fn gated() -> Plan {
    let mut plan = plan();
    let policy = ApprovalPolicy {
        approvers: 2,
        expires_after_seconds: Some(3600),
        creator: Creator::MayNotApprove,
        rejection: Rejection::Offered,
    };
    plan.created_by = Some("eve".into());
    plan.stages[0].before_gates.push(GateConfig { policy, ..GateConfig::new(GateKind::Approval) });
    plan.stages[0].after_gates.push(GateConfig::new(GateKind::Approval));
    plan.stages[0].after_wait_seconds = 60;
    let friday = ScheduledStart { day: Weekday::Friday, minute: 1080, utc_offset_minutes: 0, zone: None };
    plan.groups[0].before_gates.push(GateConfig::new(GateKind::ScheduledStart(friday)));
    plan.groups[1].after_gates.push(GateConfig::new(GateKind::Approval));
    plan
}

/// Of those: the approvals before and after the stage, the scheduled start of a, the approval after b.
const BEFORE: u32 = 0;
const AFTER: u32 = 1;
const SCHEDULED: u32 = 2;
const AFTER_B: u32 = 3;

/// Whether all that is to be held of gates accepts an event.
fn at_gate(event: &Event, spoil_before: impl Fn(&mut View), spoil: impl Fn(&mut View)) -> Result<(), String> {
    let good = view(&started(gated()));
    let (mut before, mut after) = (good.clone(), good.clone());
    spoil_before(&mut before);
    spoil(&mut after);
    let names = ["a6 gates are", "a6 gates open", "a6 gates change", "b5_3"];
    names.into_iter().try_for_each(|name| invariant(name)(&gated(), &before, event, &after))
}

fn refuse_gate(event: &Event, spoil_before: impl Fn(&mut View), spoil: impl Fn(&mut View)) {
    assert!(at_gate(event, spoil_before, spoil).is_err(), "{event:?} is accepted");
}

/// A change of a gate.
fn to(view: &mut View, gate: u32, state: State) {
    let gate = &mut view.gates[gate as usize];
    (gate.state, gate.since) = (state, Some(now()));
    gate.revision += 1;
}

fn in_seconds(seconds: i64) -> Option<Timestamp> {
    Some(now() + SignedDuration::from_secs(seconds))
}

#[test]
fn checker_rejects_gates_that_are_reached_early_or_due_at_another_time() {
    let reached = |gate, due| Event::GateReached { gate, due };
    let idle = |view: &mut View| {
        view.gates[0].state = State::NotStarted;
        view.gates[0].revision = 0;
    };
    at_gate(&reached(BEFORE, in_seconds(3600)), idle, |_| {}).expect("reached");
    refuse_gate(&reached(BEFORE, in_seconds(3601)), idle, |_| {});
    refuse_gate(&reached(BEFORE, in_seconds(3600)), |_| {}, |_| {});
    for gate in [AFTER, SCHEDULED, AFTER_B] {
        refuse_gate(&reached(gate, None), |_| {}, |_| {});
    }
    let open = |view: &mut View| to(view, BEFORE, State::Completed);
    let friday = "2026-01-02T18:00:00Z".parse().ok();
    let asked = |view: &mut View| {
        open(view);
        to(view, SCHEDULED, State::Pending);
    };
    at_gate(&reached(SCHEDULED, friday), open, asked).expect("reached");
    refuse_gate(&reached(SCHEDULED, None), open, |_| {});
    refuse_gate(&reached(AFTER_B, None), open, |_| {});
    let nobody = |view: &mut View| (0..7).for_each(|member| put(view, member, State::Skipped));
    let left_out = |view: &mut View| {
        idle(view);
        nobody(view);
    };
    refuse_gate(&reached(BEFORE, in_seconds(3600)), left_out, |_| {});
    let over = |view: &mut View| {
        idle(view);
        view.phase = RunPhase::Stopping;
    };
    refuse_gate(&reached(BEFORE, in_seconds(3600)), over, |_| {});
}

#[test]
fn checker_rejects_gates_that_open_without_those_they_need() {
    let by = |people: &'static [&'static str]| {
        move |view: &mut View| view.gates[0].approvals = people.iter().map(|by| (*by).to_owned()).collect()
    };
    let opened = Event::GateOpened(BEFORE);
    let open = |view: &mut View| to(view, BEFORE, State::Completed);
    let opens = |people: &'static [&'static str]| {
        at_gate(&opened, by(people), |view| {
            by(people)(view);
            open(view);
        })
    };
    opens(&["ann", "bob"]).expect("enough");
    for people in [&[][..], &["ann"], &["ann", "ann"], &["ann", "eve"]] {
        assert!(opens(people).is_err(), "{people:?} open it");
    }
    let approved = |by: &str| Event::GateApproved { gate: BEFORE, by: by.into(), comment: None };
    let approve = |view: &mut View| {
        view.gates[0].approvals.push("ann".into());
        view.gates[0].revision += 1;
    };
    at_gate(&approved("ann"), |_| {}, approve).expect("approved");
    refuse_gate(&approved("bob"), |_| {}, approve);
    refuse_gate(&approved("eve"), |_| {}, |_| {});
    refuse_gate(&approved("ann"), by(&["ann"]), |_| {});
    refuse_gate(&approved("ann"), |view| view.gates[0].denied = true, |_| {});
    refuse_gate(&approved("ann"), |view| view.gates[0].state = State::Completed, |_| {});
    let pending = |view: &mut View| to(view, SCHEDULED, State::Pending);
    let due = |seconds| move |view: &mut View| view.gates[SCHEDULED as usize].due = in_seconds(seconds);
    let timed = |seconds| {
        let both = move |view: &mut View| {
            pending(view);
            due(seconds)(view);
        };
        at_gate(&Event::GateOpened(SCHEDULED), both, move |view| {
            both(view);
            to(view, SCHEDULED, State::Completed);
        })
    };
    timed(0).expect("its time has come");
    assert!(timed(1).is_err(), "opened before its time");
}

#[test]
fn checker_rejects_gates_that_are_denied_against_their_policy_or_without_effect() {
    let deny = |gate: u32, phase| {
        move |view: &mut View| {
            view.gates[gate as usize].denied = true;
            view.gates[gate as usize].revision += 1;
            view.phase = phase;
        }
    };
    let rejected = |gate| Event::GateRejected { gate, by: "ann".into(), comment: None };
    at_gate(&rejected(BEFORE), |_| {}, deny(BEFORE, RunPhase::Stopping)).expect("rejected");
    refuse_gate(&rejected(BEFORE), |_| {}, deny(BEFORE, RunPhase::Going));
    refuse_gate(&rejected(AFTER), |view| to(view, AFTER, State::Pending), deny(AFTER, RunPhase::Stopping));
    let due = |gate: u32, seconds| {
        move |view: &mut View| {
            view.gates[gate as usize].state = State::Pending;
            view.gates[gate as usize].due = in_seconds(seconds);
        }
    };
    let expires = |gate, seconds| {
        at_gate(&Event::GateExpired(gate), due(gate, seconds), |view| {
            due(gate, seconds)(view);
            deny(gate, RunPhase::Stopping)(view);
        })
    };
    expires(BEFORE, 0).expect("expired");
    assert!(expires(BEFORE, 1).is_err() && expires(SCHEDULED, 0).is_err());
}

#[test]
fn checker_rejects_gates_that_change_by_themselves_or_back() {
    refuse_gate(&Event::StopAsked, |_| {}, |view| to(view, BEFORE, State::Completed));
    refuse_gate(&Event::StopAsked, |_| {}, |view| to(view, BEFORE, State::Skipped));
    refuse_gate(&Event::StopAsked, |_| {}, |view| to(view, AFTER, State::Pending));
    for over in [State::Completed, State::Skipped] {
        refuse_gate(&Event::Resumed, |view| to(view, BEFORE, over), |_| {});
    }
    refuse_gate(&Event::Resumed, |view| view.gates[0].approvals.push("ann".into()), |_| {});
    let denied = |view: &mut View| view.gates[0].denied = true;
    let again = |view: &mut View| view.gates[0].revision += 1;
    at_gate(&Event::Resumed, denied, again).expect("asked for again");
    refuse_gate(&Event::StopAsked, denied, again);
    refuse_gate(&Event::Resumed, denied, |_| {});
    let skip = |view: &mut View| {
        view.stages[0].skip_asked = true;
        to(view, BEFORE, State::Skipped);
    };
    at_gate(&Event::StopAsked, |_| {}, skip).expect("left out with its stage");
}

#[test]
fn checker_rejects_a_member_that_moved_behind_a_closed_gate_and_ends_before_one() {
    for state in [State::Running, State::Pending, State::Completed, State::Failed] {
        refuse_gate(&Event::StopAsked, |_| {}, |view| put(view, 4, state));
    }
    let open = |view: &mut View| view.gates.iter_mut().for_each(|gate| gate.state = State::Completed);
    let after = |view: &mut View| {
        open(view);
        view.gates[AFTER_B as usize].state = State::Pending;
    };
    let ended = |outcome| at_gate(&Event::GroupEnded(1, outcome), after, after);
    assert!(ended(Outcome::Completed).is_err() && ended(Outcome::Skipped).is_ok());
    at_gate(&Event::GroupEnded(1, Outcome::Completed), open, open).expect("passed");
}

#[test]
fn checker_rejects_gates_that_nobody_is_asked_for_and_denials_that_are_not_told() {
    let run = started(gated());
    check_rest_of(&run, "a6 gates are asked", |rest| rest.view.gates[0].state = State::NotStarted);
    check_rest_of(&run, "a6 gates are asked", |rest| rest.view.gates[0].due = Some(now()));
    check_rest_of(&run, "a6 what was denied", |rest| rest.view.gates[0].denied = true);
    let halted = |rest: &mut Outlook| (rest.view.phase, rest.view.gates[0].denied) = (RunPhase::Stopped, true);
    check_rest_of(&run, "a6 what was denied", halted);
    check_rest_of(&run, "a6 what was denied", |rest| rest.view.error = Some("GateExpired".into()));
    let done = |view: &mut View| {
        (0..6).for_each(|member| put(view, member, State::Completed));
        view.groups[..2].iter_mut().for_each(|group| group.phase = Phase::Ended(Outcome::Completed));
    };
    check_rest_of(&run, "b4 gates after", |rest| done(&mut rest.view));
    check_rest_of(&run, "b4 gates after", |rest| {
        rest.view.stages[0].wait = Some(Wait::Running { since: now(), until: now() });
    });
}
