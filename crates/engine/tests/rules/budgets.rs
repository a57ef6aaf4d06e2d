//! Hard caps beyond the original: strict failure budgets, and floors of successes.

use flotta_engine::run::{Part, Why};

use crate::bench::{Bench, name};

#[test]
fn strict_budget_lets_no_more_move_than_could_all_fail() {
    let mut bench = Bench::started(&["s / a strict mf=2 mc=5 x6"]);
    bench.check("Running; s Running; a Running RRNNNN");
    assert_eq!(bench.why_member("a-2"), Why::Slot { of: name("a"), limit: 2 });
    bench.fail("a-0");
    bench.check("Running; s Running; a Running FRNNNN");
    bench.finish("a-1");
    bench.check("Running; s Running; a Running FCRNNN");
    bench.finish("a-2");
    bench.check("Running; s Running; a Running FCCRNN");
}

#[test]
fn strict_budget_that_is_used_up_fails_its_scope_before_it_can_be_exceeded() {
    let mut bench = Bench::started(&["s / a strict mf=2 mc=5 x4 / b x2"]);
    bench.fail("a-0");
    bench.fail("a-1");
    bench.check("Running; s Running; a Failed FFNN; b Running RN");
    assert_eq!(bench.why_member("a-2"), Why::FailureLimit { of: name("a"), failures: 2, limit: 2 });
    bench.finish("b-0");
    bench.finish("b-1");
    bench.check("Failed; s Failed; a Failed FFNN; b Completed CC");
    let error = bench.run.error(Part::Run).expect("why");
    assert!(error.message.contains("strict budget of 2: nothing more is risked"), "{error}");
    assert!(bench.run.counts().failed <= 2);
}

#[test]
fn strict_budget_of_a_stage_holds_over_all_its_groups() {
    let mut bench = Bench::started(&["s strict mf=3 / a mc=5 x5 / b mc=5 x5"]);
    bench.check("Running; s Running; a Running RRNNN; b Running RNNNN");
    assert_eq!(bench.why_member("b-1"), Why::Slot { of: name("s"), limit: 3 });
    bench.fail("a-0");
    bench.fail("b-0");
    bench.check("Running; s Running; a Running FRNNN; b Running FNNNN");
    bench.fail("a-1");
    bench.check("Failed; s Failed; a Stopped FFNNN; b Stopped FNNNN");
    assert_eq!(bench.run.counts().failed, 3);
}

#[test]
fn strict_budget_that_is_used_up_by_the_last_members_is_no_failure() {
    let mut bench = Bench::started(&["s / a strict mf=2 mc=5 x3"]);
    bench.finish("a-0");
    bench.fail("a-1");
    bench.fail("a-2");
    bench.check("Completed; s Completed; a Completed CFF");
}

#[test]
fn strict_budget_is_whole_again_when_failed_members_are_tried_again() {
    let mut bench = Bench::started(&["s / a strict mf=1 mc=5 x3"]);
    bench.fail("a-0");
    bench.check("Failed; s Failed; a Failed FNN");
    bench.start();
    bench.check("Running; s Running; a Running RNN");
    bench.finish("a-0");
    bench.finish("a-1");
    bench.finish("a-2");
    bench.check("Completed; s Completed; a Completed CCC");
}

#[test]
fn a_floor_of_successes_that_is_not_reached_fails_a_group_within_its_limit() {
    let mut bench = Bench::started(&["s / a mf=2 ms=75% x4", "t / b x1"]);
    bench.drive(&["a-0", "a-1"]);
    bench.check("Failed; s Failed; a Failed FFCC; t NotStarted; b NotStarted N");
    let error = bench.run.error(Part::Run).expect("why");
    assert_eq!(error.code, "MinSuccessNotReached");
    assert!(error.message.contains("2 member(s) that are where they should be, of at least 3"), "{error}");
    bench.start();
    bench.check("Running; s Running; a Running RNCC; t NotStarted; b NotStarted N");
    bench.drive(&["a-0"]);
    bench.check("Completed; s Completed; a Completed FCCC; t Completed; b Completed C");
}

#[test]
fn a_floor_of_successes_counts_members_that_were_there_and_not_those_left_out() {
    let mut bench = Bench::new(&["s ms=2 / a mf=1 x2 / b x1"]);
    bench.there_already("b-0");
    bench.start();
    bench.look("b-0");
    bench.fail("a-0");
    bench.finish("a-1");
    bench.check("Completed; s Completed; a Completed FC; b Skipped S");
    let mut bench = Bench::started(&["s ms=2 / a x2 / b x1"]);
    bench.skip(&["group b"]);
    bench.finish("a-0");
    bench.skip(&["member a-1"]);
    bench.check("Failed; s Failed; a Completed CS; b Skipped S");
    let error = bench.run.error(Part::Stage(0)).expect("why");
    assert_eq!((error.code.as_str(), error.message.contains("0 failed, 2 skipped")), ("MinSuccessNotReached", true));
}
