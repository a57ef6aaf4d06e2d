//! Stop, start again, retries (`behaviour.md` A7, B1, B3 and the design's choices).

use flotta_engine::{
    Event, Input, Work,
    run::{Part, State, Why},
};
use flotta_model::Hold;

use crate::bench::{Bench, TARGET, ends, v};

#[test]
fn b3_stop_with_nothing_in_flight_is_stopped_at_once() {
    let mut bench = Bench::new(&["s gate / a x2"]);
    bench.start();
    let events = bench.stop();
    assert_eq!(ends(&events), ["stopped"]);
    bench.check("Stopped; s NotStarted; a NotStarted NN");
    assert_eq!(bench.run.times().completed, None);
    assert_eq!(bench.why(Part::Run), [Why::Stopped]);
}

#[test]
fn a7_stop_puts_members_back_that_were_only_looked_at() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.stop();
    bench.check("Stopped; s Stopped; a Stopped NN");
    assert_eq!(bench.run.member(0).times.started, None);
    assert!(bench.run.work().is_empty());
}

#[test]
fn a7_stop_lets_members_in_flight_end() {
    let mut bench = Bench::started(&["s / a mc=2 x3 / empty x0", "t wait=1 / b x1"]);
    bench.move_("a-0");
    bench.stop();
    let expect = "Stopping; s Stopping; a Stopping RNN; empty Skipped ; t NotStarted; b NotStarted N";
    bench.check(expect);
    assert_eq!(bench.why_member("a-1"), Why::Stopping);
    assert_eq!(bench.stop(), [], "stop again is fine");
    assert!(bench.step(&Input::Start).is_err(), "not before it has stopped");
    bench.finish("a-0");
    bench.check("Stopped; s Stopped; a Stopped CNN; empty Skipped ; t NotStarted; b NotStarted N");
    assert_eq!(bench.why_member("a-1"), Why::Stopped);
}

#[test]
fn a7_start_after_stopped_goes_on_with_the_first_that_is_not_done() {
    let mut bench = Bench::started(&["s / a x3"]);
    bench.finish("a-0");
    bench.stop();
    bench.start();
    bench.check("Running; s Running; a Running CRN");
    assert_eq!(bench.attempt("a-1"), 1);
}

#[test]
fn a7_a_failure_while_stopping_is_kept_and_tried_again_at_the_start() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.move_("a-0");
    bench.stop();
    bench.fail("a-0");
    bench.check("Stopped; s Stopped; a Failed FN");
    bench.start();
    bench.check("Running; s Running; a Running RN");
    assert_eq!(bench.attempt("a-0"), 2);
}

#[test]
fn choice_stop_between_steps_is_pending_and_goes_first_on_resume() {
    let mut bench = Bench::started(&["s / a mc=2 x4"]);
    bench.two_steps("a-1");
    bench.move_("a-0");
    bench.move_("a-1");
    bench.stop();
    bench.step_done("a-1");
    bench.look("a-1");
    bench.check("Stopping; s Stopping; a Stopping RPNN");
    assert_eq!(bench.message("a-1"), "stopped after step 1 of 2");
    bench.finish("a-0");
    bench.check("Stopped; s Stopped; a Stopped CPNN");
    assert!(bench.run.work().is_empty(), "nothing is asked while stopped");
    let events = bench.start();
    let started: Vec<&Event> = events.iter().filter(|event| matches!(event, Event::MemberStarted(_))).collect();
    assert_eq!(started, [&Event::MemberStarted(1), &Event::MemberStarted(2)]);
    assert_eq!(bench.attempt("a-1"), 1);
    bench.look("a-1");
    let step = bench.run.member(1).pledge().expect("the second step").step.clone();
    assert!(matches!(step, flotta_model::Step::PoolImage { .. }), "{step:?}");
    bench.drive(&[]);
    bench.check("Completed; s Completed; a Completed CCCC");
}

#[test]
fn choice_stop_while_a_step_is_sent_puts_back_what_was_not_taken() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.look("a-0");
    bench.stop();
    bench.check("Stopping; s Stopping; a Stopping RN");
    let ticket = bench.ticket("a-0");
    bench.tell(Input::NotAccepted(ticket));
    bench.check("Stopped; s Stopped; a Stopped NN");
    bench.start();
    bench.drive(&[]);
    bench.check("Completed; s Completed; a Completed CC");
}

#[test]
fn choice_a_second_step_that_is_not_taken_after_a_stop_is_pending_between_steps() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.two_steps("a-0");
    bench.move_("a-0");
    bench.step_done("a-0");
    bench.look("a-0");
    bench.stop();
    let ticket = bench.ticket("a-0");
    bench.tell(Input::NotAccepted(ticket));
    bench.check("Stopped; s Stopped; a Stopped P");
    assert_eq!(bench.message("a-0"), "stopped after step 1 of 2");
}

#[test]
fn choice_stopping_never_waits_for_a_held_member() {
    let mut bench = Bench::started(&["s / a mc=2 x2"]);
    bench.two_steps("a-0");
    bench.move_("a-0");
    bench.hold("a-1", Hold::NoDriver);
    bench.step_done("a-0");
    bench.stop();
    bench.check("Stopping; s Stopping; a Stopping RP");
    bench.hold("a-0", Hold::Throttled);
    bench.check("Stopped; s Stopped; a Stopped PP");
    bench.start();
    bench.check("Pending; s Pending; a Pending PP");
    assert_eq!(bench.why_member("a-1"), Why::Held(Hold::NoDriver));
    assert!(matches!(bench.run.work_of(0), Some(Work::Probe(_))));
}

#[test]
fn choice_start_after_failed_tries_failed_members_again_out_of_the_count() {
    let mut bench = Bench::started(&["s mf=1 / a x4"]);
    bench.fail("a-0");
    bench.fail("a-1");
    bench.check("Failed; s Failed; a Stopped FFNN");
    assert!(bench.run.times().completed.is_some());
    bench.start();
    bench.check("Running; s Running; a Running RNNN");
    assert_eq!((bench.run.counts().failed, bench.run.stage(0).counts.failed), (0, 0));
    assert_eq!((bench.attempt("a-0"), bench.attempt("a-1"), bench.attempt("a-2")), (2, 2, 1));
    assert_eq!(bench.run.version(), Some(v(TARGET)));
    assert_eq!(bench.run.times().completed, None);
    assert_eq!(bench.run.error(Part::Run), None);
    assert_eq!(bench.message("a-1"), "");
    bench.fail("a-0");
    bench.drive(&[]);
    bench.check("Completed; s Completed; a Completed FCCC");
}

#[test]
fn choice_a_failed_upgrade_that_shows_the_target_is_sent_again_and_completes() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.move_("a-0");
    bench.there_already("a-0");
    bench.cluster("a-0").provisioning = flotta_model::Provisioning::Failed;
    bench.fail("a-0");
    bench.start();
    bench.look("a-0");
    assert!(bench.run.member(0).pledge().is_some(), "sent again");
    bench.cluster("a-0").provisioning = flotta_model::Provisioning::Succeeded;
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed C");
}

#[test]
fn choice_a_group_over_its_limit_is_open_again_after_a_start() {
    let mut bench = Bench::started(&["s / a mf=1 x3 / b x1", "t / c x1"]);
    bench.fail("a-0");
    bench.fail("a-1");
    bench.finish("b-0");
    bench.check("Failed; s Failed; a Failed FFN; b Completed C; t NotStarted; c NotStarted N");
    bench.start();
    bench.check("Running; s Running; a Running RNN; b Completed C; t NotStarted; c NotStarted N");
    bench.drive(&[]);
    bench.check("Completed; s Completed; a Completed CCC; b Completed C; t Completed; c Completed C");
}

#[test]
fn b1_a_run_may_fail_again_and_again() {
    let mut bench = Bench::started(&["s / a x1"]);
    for attempt in 1..5 {
        assert_eq!(bench.attempt("a-0"), attempt);
        bench.fail("a-0");
        bench.check("Failed; s Failed; a Failed F");
        bench.start();
    }
    bench.finish("a-0");
    assert_eq!(bench.run.state(), State::Completed);
}

#[test]
fn a7_stop_before_the_minor_is_resolved() {
    let goal = crate::bench::goal(flotta_model::UpgradeType::Full, Some("1.33"));
    let mut bench = Bench::with_goal(goal, &["s / a x1"]);
    bench.start();
    bench.stop();
    bench.check("Stopped; s NotStarted; a NotStarted N");
    assert!(bench.run.work().is_empty());
    bench.start();
    assert_eq!(bench.run.work(), [Work::ResolveTarget]);
    bench.tell(Input::TargetResolved(v(TARGET)));
    bench.check("Running; s Running; a Running R");
}

#[test]
fn choice_a_member_that_fails_in_its_second_step_begins_anew() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.two_steps("a-0");
    bench.move_("a-0");
    bench.step_done("a-0");
    bench.fail("a-0");
    bench.start();
    assert_eq!((bench.attempt("a-0"), bench.run.member(0).steps_done), (2, 0));
    bench.stop();
    bench.check("Stopped; s Stopped; a Stopped NN");
    bench.start();
    bench.finish("a-0");
    bench.check("Running; s Running; a Running CR");
}

#[test]
fn choice_a_member_between_steps_goes_before_a_retry_that_stands_earlier() {
    let mut bench = Bench::started(&["s / a mc=2 mf=1 x2"]);
    bench.two_steps("a-1");
    bench.move_("a-0");
    bench.move_("a-1");
    bench.stop();
    bench.fail("a-0");
    bench.step_done("a-1");
    bench.look("a-1");
    bench.check("Stopped; s Stopped; a Stopped FP");
    let events = bench.start();
    let started: Vec<&Event> = events.iter().filter(|event| matches!(event, Event::MemberStarted(_))).collect();
    assert_eq!(started, [&Event::MemberStarted(1), &Event::MemberStarted(0)]);
}
