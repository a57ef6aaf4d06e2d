//! Each invariant is fed something bad, made by hand, and must reject it: a check that cannot fail is no check.

use std::sync::Arc;

use flotta_engine::{
    Event, Input, Plan, Run,
    run::{Outcome, Phase, RunPhase, State},
};
use flotta_model::{Goal, Group, Member, Stage, Step, Strategy, UpgradeType};
use jiff::{SignedDuration, Timestamp};

use crate::{
    check::{AFTER_EACH_EVENT, AT_REST, Outlook, View},
    cloud::{OLD, TARGET},
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

/// The run just after its start: members 0 and 3 run.
fn run() -> Run {
    let mut run = Run::new(Arc::new(plan()));
    run.step(&Input::Start, now()).expect("started");
    run
}

/// The invariant of this name accepts the good and rejects the bad.
fn check(name: &str, event: &Event, spoil_before: impl Fn(&mut View), spoil: impl Fn(&mut View)) {
    let plan = plan();
    let good = View::of(&run());
    let (_, invariant) = AFTER_EACH_EVENT.iter().find(|(found, _)| found.starts_with(name)).expect(name);
    invariant(&plan, &good, &Event::StopAsked, &good).expect("the good is accepted");
    let (mut before, mut after) = (good.clone(), good);
    spoil_before(&mut before);
    spoil(&mut after);
    let answer = invariant(&plan, &before, event, &after);
    assert!(answer.is_err(), "{name} accepts what is bad");
}

fn check_after(name: &str, spoil: impl Fn(&mut View)) {
    check(name, &Event::StopAsked, |_| {}, spoil);
}

fn check_rest(name: &str, spoil: impl Fn(&mut Outlook)) {
    let plan = plan();
    let mut outlook = Outlook::of(&run(), now());
    let (_, invariant) = AT_REST.iter().find(|(found, _)| found.starts_with(name)).expect(name);
    invariant(&plan, &outlook).expect("the good is accepted");
    spoil(&mut outlook);
    assert!(invariant(&plan, &outlook).is_err(), "{name} accepts what is bad");
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
fn checker_rejects_a_member_that_moved_behind_a_closed_gate() {
    let mut plan = plan();
    let kind = flotta_model::GateKind::Approval;
    plan.groups[0].before_gates.push(flotta_model::GateConfig::new(kind));
    let view = View::of(&run());
    let (_, invariant) = AFTER_EACH_EVENT[2];
    assert!(invariant(&plan, &view, &Event::StopAsked, &view).is_err());
    plan.groups[0].after_gates = std::mem::take(&mut plan.groups[0].before_gates);
    assert!(invariant(&plan, &view, &Event::GroupEnded(0, Outcome::Completed), &view).is_err());
    assert!(invariant(&plan, &view, &Event::GroupEnded(0, Outcome::Skipped), &view).is_ok());
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
    let groups_skipped = |view: &mut View| {
        (0..6).for_each(|member| put(view, member, State::Skipped));
        view.groups.iter_mut().for_each(|group| group.state = State::Skipped);
    };
    check("b2 ends", &Event::StageEnded(0, Outcome::Completed), groups_skipped, |_| {});
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
    let step = Step::PoolVersion { pool: "p".into(), version: OLD };
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
}

#[test]
fn checker_rejects_what_does_not_move_and_has_no_reason() {
    check_rest("rule 3", |rest| rest.members[1].clear());
    check_rest("rule 3", |rest| rest.members[0] = rest.members[1].clone());
    check_rest("rule 3", |rest| rest.view.groups[0].state = State::Pending);
    check_rest("rule 3", |rest| {
        rest.view.state = State::Pending;
        rest.view.counts.running = 0;
    });
}

#[test]
fn checker_rejects_a_stuck_run_an_idle_slot_and_a_wake_up_in_the_past() {
    check_rest("no run", |rest| rest.work.clear());
    check_rest("no run", |rest| {
        rest.view.phase = RunPhase::Stopping;
        rest.view.counts.running = 0;
    });
    check_rest("no slot", |rest| put(&mut rest.view, 0, State::Completed));
    check_rest("no wake", |rest| rest.wake = Some(now()));
}
