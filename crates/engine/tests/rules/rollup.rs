//! States at all levels, sequences, waits, gates (`behaviour.md` A4, A5, B1–B4).

use std::sync::Arc;

use flotta_engine::{
    Event, Input, Plan, Refusal, Run,
    run::{Part, State, Wait, Why},
};
use flotta_model::{Stage, Strategy, UpgradeType};

use crate::bench::{Bench, at_gate, ends, goal, member, name};

#[test]
fn a4_without_a_strategy_members_go_one_by_one() {
    let members = ["x", "y"].map(|text| member(text, None, &[]));
    let plan = Plan::resolve(goal(UpgradeType::Full, Some("1.33.2")), None, &members).expect("plan");
    let mut bench = Bench::of_plan(plan);
    bench.start();
    bench.check("Running; default Running; default Running RN");
    bench.finish("x");
    bench.check("Running; default Running; default Running CR");
    bench.finish("y");
    bench.check("Completed; default Completed; default Completed CC");
}

#[test]
fn a5_an_implicit_group_is_named_like_its_stage() {
    let bench = Bench::started(&["prod mc=2 x3"]);
    bench.check("Running; prod Running; prod Running RRN");
}

#[test]
fn choice_target_minor_is_resolved_when_the_run_starts_pinned_and_shown() {
    let mut bench = Bench::with_goal(goal(UpgradeType::Full, Some("1.33")), &["s / a x1"]);
    assert!(bench.run.work().is_empty(), "nothing before the start");
    bench.start();
    bench.check("Pending; s Pending; a Pending N");
    assert_eq!(bench.run.work(), [flotta_engine::Work::ResolveTarget]);
    assert_eq!(bench.why(Part::Run), [Why::ResolvingTarget]);
    assert_eq!(bench.why_member("a-0"), Why::ResolvingTarget);
    bench.tell(Input::TargetResolved("1.33.2".parse().expect("version")));
    bench.check("Running; s Running; a Running R");
    assert_eq!(bench.tell(Input::TargetResolved("1.33.9".parse().expect("version"))), [], "pinned");
    assert_eq!(bench.run.version(), Some("1.33.2".parse().expect("version")));
    bench.fail("a-0");
    bench.start();
    assert!(!bench.run.work().contains(&flotta_engine::Work::ResolveTarget), "a retry keeps the version");
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed C");
}

#[test]
fn choice_a_run_whose_members_are_all_left_out_ends_although_its_minor_means_nothing_yet() {
    let mut bench = Bench::with_goal(goal(UpgradeType::Full, Some("1.99")), &["s / a x2", "t / b x1"]);
    bench.start();
    bench.skip(&["stage s"]);
    bench.check("Pending; s Skipped; a Skipped SS; t Pending; b Pending N");
    bench.skip(&["member b-0"]);
    bench.check("Skipped; s Skipped; a Skipped SS; t Skipped; b Skipped S");
}

#[test]
fn b1_start_enters_and_completed_is_terminal() {
    let mut bench = Bench::new(&["s / a x1"]);
    bench.check("NotStarted; s NotStarted; a NotStarted N");
    assert_eq!(bench.why(Part::Run), [Why::NotStarted]);
    bench.start();
    assert!(bench.step(&Input::Start).is_err(), "running already");
    bench.finish("a-0");
    for input in [Input::Start, Input::Stop] {
        let refused = bench.step(&input).expect_err("completed is terminal");
        assert!(matches!(refused, Refusal::State { state: State::Completed, .. }), "{refused}");
    }
    assert!(bench.try_skip(&["member a-0"]).is_err());
}

#[test]
fn b1_stop_of_a_run_that_was_not_started_or_is_stopped_is_refused() {
    let mut bench = Bench::new(&["s / a x1"]);
    let refused = bench.step(&Input::Stop).expect_err("not started");
    assert_eq!(refused.to_string(), "cannot stop a run that is NotStarted; it must be Running or Pending");
    bench.start();
    bench.stop();
    assert!(bench.step(&Input::Stop).is_err());
}

#[test]
fn b2_running_wins_over_pending_and_completed_with_pending_is_pending() {
    let mut bench = Bench::started(&["s / a x1 / b x1"]);
    bench.hold("a-0", flotta_model::Hold::NoDriver);
    bench.check("Running; s Running; a Pending P; b Running R");
    bench.finish("b-0");
    bench.check("Pending; s Pending; a Pending P; b Completed C");
}

#[test]
fn choice_a_group_that_lacks_only_a_slot_is_running_and_its_members_not_started() {
    let bench = Bench::started(&["s mc=1 / a x1 / b x1"]);
    bench.check("Running; s Running; a Running R; b Running N");
    assert_eq!(bench.why_member("b-0"), Why::Slot { of: name("s"), limit: 1 });
    let bench = Bench::started(&["s / a x2"]);
    assert_eq!(bench.why_member("a-1"), Why::Slot { of: name("a"), limit: 1 });
}

#[test]
fn b3_an_empty_group_is_skipped_without_start_time_when_its_stage_is_entered() {
    let mut bench = Bench::new(&["s / a x1 / empty x0"]);
    bench.check("NotStarted; s NotStarted; a NotStarted N; empty NotStarted ");
    bench.start();
    bench.check("Running; s Running; a Running R; empty Skipped ");
    let times = bench.run.group(bench.group("empty")).times;
    assert_eq!((times.started, times.completed), (None, Some(bench.now)));
}

#[test]
fn b3_an_empty_stage_is_skipped_with_its_wait_and_the_next_begins() {
    let bench = Bench::started(&["none wait=60 / empty x0", "s / a x1"]);
    bench.check("Running; none Skipped; empty Skipped ; s Running; a Running R");
    assert_eq!(bench.run.wait_state(0), State::Skipped);
}

#[test]
fn b3_a_run_without_members_is_skipped() {
    let bench = Bench::started(&["s / a x0"]);
    bench.check("Skipped; s Skipped; a Skipped ");
}

#[test]
fn b3_start_times_are_set_from_the_first_member_up() {
    let mut bench = Bench::new(&["s / a x1 / b gate x1", "t / c x1"]);
    bench.start();
    for times in [bench.run.times(), bench.run.stage(0).times, bench.run.group(0).times, bench.run.member(0).times] {
        assert_eq!(times.started, Some(bench.now));
    }
    for times in [bench.run.stage(1).times, bench.run.group(1).times, bench.run.group(2).times] {
        assert_eq!(times.started, None);
    }
}

#[test]
fn b3_all_skipped_run_is_skipped_and_its_waits_are_skipped() {
    let mut bench = Bench::new(&["s wait=600 / a x2", "t wait=5 / b x1"]);
    ["a-0", "a-1", "b-0"].into_iter().for_each(|member| bench.there_already(member));
    bench.start();
    bench.look("a-0");
    bench.look("a-1");
    bench.look("b-0");
    bench.check("Skipped; s Skipped; a Skipped SS; t Skipped; b Skipped S");
    assert_eq!([bench.run.wait_state(0), bench.run.wait_state(1)], [State::Skipped; 2]);
    let message = bench.message("a-0");
    assert!(message.starts_with("Nothing to do: ") && message.contains("at or above the target"), "{message}");
}

#[test]
fn b3_one_completed_member_makes_the_run_completed() {
    let mut bench = Bench::new(&["s / a x2", "t / b x1"]);
    ["a-1", "b-0"].into_iter().for_each(|member| bench.there_already(member));
    bench.start();
    bench.drive(&[]);
    bench.check("Completed; s Completed; a Completed CS; t Skipped; b Skipped S");
}

#[test]
fn b4_the_wait_begins_when_the_members_are_done_and_the_next_stage_after_it() {
    let mut bench = Bench::started(&["one wait=60 / a x1", "two / b x1"]);
    assert_eq!(bench.run.wait_state(0), State::NotStarted);
    bench.finish("a-0");
    bench.check("Running; one Running; a Completed C; two NotStarted; b NotStarted N");
    assert_eq!(bench.run.wait_state(0), State::Running);
    let until = bench.now + jiff::SignedDuration::from_secs(60);
    assert_eq!(bench.run.next_wake(), Some(until));
    let reasons = bench.run.waiting_on(Part::Run, bench.now);
    let stage_wait = reasons.iter().find(|reason| reason.why == Why::StageWait(name("one"))).expect("a stage wait");
    assert_eq!(stage_wait.until, Some(until));
    let member = &bench.run.waiting_on(Part::Member(1), bench.now)[0];
    assert_eq!((&member.why, member.until), (&Why::EarlierStage(name("one")), Some(until)));
    bench.advance(59);
    assert_eq!(bench.tell(Input::Tick), [], "not yet");
    bench.advance(1);
    bench.check("Running; one Completed; a Completed C; two Running; b Running R");
    assert_eq!(bench.run.wait_state(0), State::Completed);
    assert_eq!(bench.run.stage(0).times.completed, Some(until));
}

#[test]
fn b4_the_last_stage_is_waited_for_too() {
    let mut bench = Bench::started(&["one wait=60 / a x1"]);
    bench.finish("a-0");
    assert_eq!(bench.run.state(), State::Running);
    bench.advance(60);
    bench.check("Completed; one Completed; a Completed C");
}

#[test]
fn b4_a_wait_is_over_although_after_gates_are_left_and_wakes_nobody_again() {
    let mut bench = Bench::started(&["one wait=60 aftergate / a x1"]);
    bench.finish("a-0");
    bench.advance(60);
    bench.check("Pending; one Pending; a Completed C");
    assert_eq!(bench.run.wait_state(0), State::Completed);
    assert_eq!(bench.run.next_wake(), None);
    assert_eq!(bench.why(Part::Run), [at_gate("one")]);
}

#[test]
fn choice_waits_run_on_while_stopped() {
    let mut bench = Bench::started(&["one wait=60 / a x1", "two / b x1"]);
    bench.finish("a-0");
    bench.stop();
    bench.check("Stopped; one Stopped; a Completed C; two NotStarted; b NotStarted N");
    assert_eq!(bench.run.wait_state(0), State::Running);
    assert_eq!(bench.run.next_wake(), None, "time alone changes nothing while stopped");
    assert_eq!(bench.why(Part::Run), [Why::Stopped]);
    bench.advance(100);
    bench.start();
    bench.check("Running; one Completed; a Completed C; two Running; b Running R");
}

#[test]
fn choice_a_stop_in_a_wait_that_is_not_over_goes_on_with_what_is_left() {
    let mut bench = Bench::started(&["one wait=60 / a x1", "two / b x1"]);
    bench.finish("a-0");
    bench.advance(20);
    bench.stop();
    bench.start();
    bench.advance(39);
    assert_eq!(bench.run.wait_state(0), State::Running);
    bench.advance(1);
    assert_eq!(bench.run.wait_state(0), State::Completed);
}

#[test]
fn b4_a_wait_begins_anew_after_members_that_are_tried_again() {
    let mut bench = Bench::started(&["one wait=60 / a mf=1 x2"]);
    bench.fail("a-0");
    bench.finish("a-1");
    assert!(matches!(bench.run.stage(0).wait, Wait::Running { .. }));
    bench.stop();
    bench.advance(100);
    bench.start();
    bench.check("Running; one Running; a Running RC");
    assert_eq!((bench.run.wait_state(0), bench.run.next_wake()), (State::NotStarted, None));
    bench.finish("a-0");
    assert_eq!(bench.run.next_wake(), Some(bench.now + jiff::SignedDuration::from_secs(60)));
}

#[test]
fn a6_a_gate_before_a_stage_holds_it_and_starts_no_member() {
    let mut bench = Bench::started(&["one gate / a x1 / b gate x1 / empty x0"]);
    bench.check("Pending; one Pending; a NotStarted N; b NotStarted N; empty Skipped ");
    assert!(bench.run.work().is_empty());
    assert_eq!(bench.why(Part::Run), [at_gate("one")]);
    assert_eq!(bench.why_member("b-0"), at_gate("one"));
    assert_eq!(bench.run.stage(0).times.started, None);
    assert!(bench.run.times().started.is_some());
    bench.advance(1_000_000);
    bench.check("Pending; one Pending; a NotStarted N; b NotStarted N; empty Skipped ");
}

#[test]
fn a6_a_gate_before_a_group_holds_that_group_only() {
    let mut bench = Bench::started(&["one / a gate x1 / b x1"]);
    bench.check("Running; one Running; a Pending N; b Running R");
    bench.finish("b-0");
    bench.check("Pending; one Pending; a Pending N; b Completed C");
    assert_eq!(bench.why(Part::Run), [at_gate("a")]);
    assert_eq!(bench.why_member("a-0"), at_gate("a"));
}

#[test]
fn a6_gates_after_a_group_or_stage_hold_what_follows() {
    let mut bench = Bench::started(&["one / a aftergate x1", "two / b x1"]);
    bench.finish("a-0");
    bench.check("Pending; one Pending; a Pending C; two NotStarted; b NotStarted N");
    for part in [Part::Group(0), Part::Stage(0)] {
        assert_eq!(bench.why(part), [at_gate("a")]);
    }
    assert!(bench.why(Part::Run).contains(&at_gate("a")));
    let mut bench = Bench::started(&["one aftergate / a x1", "two / b x1"]);
    bench.finish("a-0");
    bench.check("Pending; one Pending; a Completed C; two NotStarted; b NotStarted N");
    assert_eq!(bench.why(Part::Stage(0)), [at_gate("one")]);
}

#[test]
fn a6_skipping_what_a_gate_encloses_passes_it() {
    let mut bench = Bench::started(&["one gate / a x1", "two / b gate x1 / c x1"]);
    bench.skip(&["stage one"]);
    bench.check("Running; one Skipped; a Skipped S; two Running; b Pending N; c Running R");
    bench.skip(&["group b"]);
    bench.finish("c-0");
    bench.check("Completed; one Skipped; a Skipped S; two Completed; b Skipped S; c Completed C");
}

#[test]
fn b5_9_completed_is_never_before_started_and_ends_are_told_bottom_up() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.move_("a-0");
    bench.advance(300);
    bench.step_done("a-0");
    let events = bench.look("a-0");
    assert_eq!(ends(&events), ["member 0 Completed", "group 0 Completed", "stage 0 Completed", "run Completed"]);
    for times in [bench.run.times(), bench.run.stage(0).times, bench.run.group(0).times, bench.run.member(0).times] {
        let (started, completed) = (times.started.expect("started"), times.completed.expect("completed"));
        assert_eq!(completed.duration_since(started), jiff::SignedDuration::from_secs(300));
    }
}

#[test]
fn b5_5_failures_add_up_over_all_levels() {
    let mut bench = Bench::started(&["s mf=9 mc=9 / a x2 / b x2"]);
    bench.drive(&["a-0", "b-0", "b-1"]);
    let counts = |group| bench.run.group(group).counts.failed;
    assert_eq!([counts(0), counts(1), bench.run.stage(0).counts.failed, bench.run.counts().failed], [1, 2, 3, 3]);
}

#[test]
fn mechanics_a_snapshot_of_another_plan_is_refused() {
    let one = Bench::new(&["s / a x1"]);
    let other = Bench::new(&["s / a x2"]);
    assert_eq!(Run::from_snapshot(Arc::clone(other.run.plan()), &one.run.snapshot()), None);
}

#[test]
fn mechanics_repeated_and_stale_answers_change_nothing() {
    let mut bench = Bench::started(&["s / a x2"]);
    let seen = bench.seen("a-0");
    bench.tell(seen.clone());
    let ticket = bench.ticket("a-0");
    let accepted = Input::Accepted { ticket, operation: "op".into(), adopted: false };
    bench.tell(accepted.clone());
    let moving = bench.ticket("a-0");
    let fault = flotta_model::Fault::new("Late", "too late");
    let stale = [
        seen,
        accepted,
        Input::NotAccepted(ticket),
        Input::StepSucceeded(ticket),
        Input::StepFailed(ticket, fault),
        Input::Held(ticket, flotta_model::Hold::Throttled),
        Input::Tick,
        Input::NotAccepted(moving),
        Input::Held(moving, flotta_model::Hold::Throttled),
        Input::MemberLeft(99),
        Input::StepSucceeded(flotta_engine::run::Ticket { member: 99, turn: 0 }),
    ];
    for input in stale {
        assert_eq!(bench.tell(input.clone()), [], "{input:?}");
    }
    bench.tell(Input::StepSucceeded(moving));
    assert_eq!(bench.tell(Input::StepSucceeded(moving)), []);
}

#[test]
fn rule_4_events_of_each_kind_survive_being_written() {
    let mut bench = Bench::started(&["one wait=9 / a x2", "two / b x1"]);
    bench.drive(&[]);
    bench.advance(9);
    bench.fail("b-0");
    bench.start();
    bench.stop();
    let text = serde_json::to_string(&bench.journal).expect("journal");
    let read: Vec<(jiff::Timestamp, Event)> = serde_json::from_str(&text).expect("journal");
    assert_eq!(read, bench.journal);
}

#[test]
fn choice_one_strategy_makes_many_runs_and_a_selector_that_picks_nobody_an_empty_stage() {
    let mut stage = Stage::new(name("s"), Vec::new());
    stage.selector = Some("env=prod".parse().expect("selector"));
    let strategy = Strategy::new(vec![stage]).expect("strategy");
    let members = [member("x", None, &[("env", "dev")])];
    let plan = Plan::resolve(goal(UpgradeType::Full, Some("1.33.2")), Some(&strategy), &members).expect("plan");
    assert_eq!((plan.uncovered.count, plan.members.len()), (1, 0));
    let mut bench = Bench::of_plan(plan);
    bench.start();
    bench.check("Skipped; s Skipped; s Skipped ");
}

#[test]
fn rule_3_a_run_stopped_in_its_last_wait_says_that_it_is_stopped() {
    let mut bench = Bench::started(&["one wait=60 / a x1"]);
    bench.finish("a-0");
    assert_eq!(bench.why(Part::Run), [Why::StageWait(name("one"))]);
    bench.stop();
    bench.check("Stopped; one Stopped; a Completed C");
    assert_eq!(bench.why(Part::Run), [Why::Stopped]);
}
