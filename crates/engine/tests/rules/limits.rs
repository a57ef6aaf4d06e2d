//! Concurrency and failure limits (`behaviour.md` A5), worked examples driven through whole runs.

use flotta_engine::run::{Part, State, Why};

use crate::bench::{Bench, name};

/// Stage, groups → the most that ran at once, in the stage and in each group.
#[test]
fn a5_concurrency_examples_through_a_whole_run() {
    let cases: [(&str, &str, u32, &[u32]); 6] = [
        ("1 fixed", "s mc=4 / a mc=2 x6 / b mc=2 x6", 4, &[2, 2]),
        ("2 stage throttles", "s mc=2 / a mc=5 x6 / b mc=5 x6", 2, &[1, 2]),
        ("3 percent", "s mc=25% / a mc=50% x8 / b mc=25% x12", 5, &[3, 3]),
        ("defaults: 50 and one after another", "s / a x3 / b x3", 2, &[1, 1]),
        ("UCS stage-1", "s mc=7 / a mc=3 x5 / b mc=50% x4", 5, &[3, 2]),
        ("implicit group: the stage rules", "s mc=3 x7", 3, &[3]),
    ];
    for (what, stage, most_in_stage, most_in_groups) in cases {
        let mut bench = Bench::started(&[stage]);
        let (stages, groups) = bench.drive(&[]);
        assert_eq!(stages, [most_in_stage], "{what}");
        assert_eq!(groups, most_in_groups, "{what}");
        for (at, group) in bench.run.plan().groups.iter().enumerate() {
            assert!(groups[at] <= group.max_concurrency, "{what}: {groups:?}");
        }
        assert_eq!(bench.run.state(), State::Completed, "{what}");
    }
}

#[test]
fn a5_a_stage_without_limit_runs_fifty_at_once() {
    let mut bench = Bench::started(&["s / a mc=60 x60"]);
    assert_eq!(bench.run.counts().running, 50);
    let (most, _) = bench.drive(&[]);
    assert_eq!(most, [50]);
}

#[test]
fn choice_group_concurrency_above_the_stage_is_accepted_and_the_stage_wins() {
    let bench = Bench::started(&["s mc=2 / a mc=5 x6"]);
    bench.check("Running; s Running; a Running RRNNNN");
    assert_eq!(bench.why_member("a-2"), Why::Slot { of: name("s"), limit: 2 });
}

#[test]
fn a5_slots_go_in_turn_to_the_group_with_the_fewest_running_and_inside_in_join_order() {
    let mut bench = Bench::started(&["s mc=3 / a mc=3 x4 / b mc=3 x4"]);
    bench.check("Running; s Running; a Running RRNN; b Running RNNN");
    bench.finish("b-0");
    bench.check("Running; s Running; a Running RRNN; b Running CRNN");
    bench.finish("a-0");
    bench.check("Running; s Running; a Running CRRN; b Running CRNN");
    bench.finish("a-1");
    bench.finish("a-2");
    bench.check("Running; s Running; a Running CCCR; b Running CRRN");
}

#[test]
fn a5_stages_are_strictly_sequential() {
    let mut bench = Bench::started(&["one / a x2", "two / b x1"]);
    bench.check("Running; one Running; a Running RN; two NotStarted; b NotStarted N");
    assert_eq!(bench.why_member("b-0"), Why::EarlierStage(name("one")));
    bench.finish("a-0");
    bench.check("Running; one Running; a Running CR; two NotStarted; b NotStarted N");
    bench.finish("a-1");
    bench.check("Running; one Completed; a Completed CC; two Running; b Running R");
    bench.finish("b-0");
    bench.check("Completed; one Completed; a Completed CC; two Completed; b Completed C");
}

/// Stage, who fails → states when all has come to rest.
#[test]
fn a5_failure_examples_through_a_whole_run() {
    let fixed = "s mc=20 mf=5 / a mc=6 mf=2 x6 / b mc=6 mf=3 x6";
    let percent = "s mc=20 mf=25% / a mc=7 mf=25% x7 / b mc=12 mf=25% x12";
    let (b4, b_most): (&[&str], &[&str]) = (&["b-0", "b-1", "b-2", "b-3"], &["b-0", "b-1", "b-2", "a-0", "a-1"]);
    let cases: [(&str, &str, &[&str], &str); 6] = [
        ("at each limit", fixed, b_most, "Completed; s Completed; a Completed FFCCCC; b Completed FFFCCC"),
        ("group a over", fixed, &["a-0", "a-1", "a-2"], "Failed; s Failed; a Failed FFFNNN; b Completed CCCCCC"),
        ("group b over", fixed, b4, "Failed; s Failed; a Completed CCCCCC; b Failed FFFFNN"),
        (
            "percent, at each limit",
            percent,
            b_most,
            "Completed; s Completed; a Completed FFCCCCC; b Completed FFFCCCCCCCCC",
        ),
        (
            "percent, a over: 1.75 is 2",
            percent,
            &["a-0", "a-1", "a-2"],
            "Failed; s Failed; a Failed FFFNNNN; b Completed CCCCCCCCCCCC",
        ),
        ("percent, b over: 3", percent, b4, "Failed; s Failed; a Completed CCCCCCC; b Failed FFFFNNNNNNNN"),
    ];
    for (what, stage, fails, expect) in cases {
        let mut bench = Bench::started(&[stage]);
        bench.drive(fails);
        assert_eq!(bench.states(), expect, "{what}");
        assert_eq!(bench.run.counts().failed as usize, fails.len(), "{what}");
    }
}

#[test]
fn a5_a_stage_over_its_limit_starts_nothing_new_in_any_of_its_groups() {
    let mut bench = Bench::started(&["s mf=1 / a mc=2 x3 / b mc=1 x3", "t / c x1"]);
    bench.move_("a-1");
    bench.move_("b-0");
    bench.fail("a-0");
    bench.check("Running; s Running; a Running FRR; b Running RNN; t NotStarted; c NotStarted N");
    bench.fail("a-1");
    bench.check("Stopping; s Stopping; a Stopping FFR; b Stopping RNN; t NotStarted; c NotStarted N");
    assert_eq!(bench.why_member("b-1"), Why::FailureLimit { of: name("s"), failures: 2, limit: 1 });
    bench.look("a-2");
    bench.check("Stopping; s Stopping; a Stopped FFN; b Stopping RNN; t NotStarted; c NotStarted N");
    bench.finish("b-0");
    bench.check("Failed; s Failed; a Stopped FFN; b Stopped CNN; t NotStarted; c NotStarted N");
}

#[test]
fn a5_running_members_finish_so_that_failures_may_exceed_the_limit() {
    let mut bench = Bench::started(&["s / a mc=3 x4"]);
    ["a-0", "a-1", "a-2"].into_iter().for_each(|member| bench.move_(member));
    bench.fail("a-0");
    bench.check("Stopping; s Stopping; a Stopping FRRN");
    bench.fail("a-1");
    bench.finish("a-2");
    bench.check("Failed; s Failed; a Failed FFCN");
    assert_eq!(bench.run.counts().failed, 2);
}

#[test]
fn a5_completed_with_every_member_failed_is_legal() {
    let mut bench = Bench::started(&["s / a mf=4 x4"]);
    bench.drive(&["a-0", "a-1", "a-2", "a-3"]);
    bench.check("Completed; s Completed; a Completed FFFF");
    assert_eq!(bench.run.error(Part::Run), None);
}

#[test]
fn choice_unset_failure_limit_is_zero_unless_the_stage_has_one() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.drive(&["a-0"]);
    bench.check("Failed; s Failed; a Failed FN");
    let mut bench = Bench::started(&["s mf=2 / a x3"]);
    bench.drive(&["a-0", "a-1"]);
    bench.check("Completed; s Completed; a Completed FFC");
}

#[test]
fn choice_fail_fast_starts_nothing_new_anywhere_and_in_flight_members_finish() {
    let mut bench = Bench::started(&["s / a x2 / b mf=5 x2", "t / c x1"]);
    bench.two_steps("b-0");
    bench.move_("b-0");
    bench.fail("a-0");
    bench.check("Stopping; s Stopping; a Failed FN; b Stopping RN; t NotStarted; c NotStarted N");
    assert_eq!(bench.why_member("b-1"), Why::Stopping);
    bench.step_done("b-0");
    bench.finish("b-0");
    bench.check("Failed; s Failed; a Failed FN; b Stopped CN; t NotStarted; c NotStarted N");
    assert_eq!(bench.why_member("c-0"), Why::Failed);
}

#[test]
fn choice_fail_fast_puts_back_members_that_have_begun_nothing() {
    let mut bench = Bench::started(&["s / a mc=3 x3"]);
    bench.move_("a-0");
    bench.look("a-1");
    bench.check("Running; s Running; a Running RRR");
    let stale = bench.seen("a-2");
    bench.fail("a-0");
    bench.check("Stopping; s Stopping; a Stopping FRN");
    assert_eq!(bench.tell(stale), [], "an answer that comes too late starts nothing");
    let ticket = bench.ticket("a-1");
    bench.tell(flotta_engine::Input::NotAccepted(ticket));
    bench.check("Failed; s Failed; a Failed FNN");
    assert_eq!(bench.run.member(1).times.started, None);
}

#[test]
fn choice_fail_fast_of_a_stage_fails_the_group_too() {
    let mut bench = Bench::started(&["s mf=0 / a x2 / b x1"]);
    bench.finish("b-0");
    bench.fail("a-0");
    bench.check("Failed; s Failed; a Failed FN; b Completed C");
    let error = bench.run.error(Part::Group(0)).expect("a failed group carries an error");
    assert_eq!(error.message, "group 'a' has 1 failed member(s), its limit is 0: 'a-0' (Boom)");
}

#[test]
fn choice_group_over_a_limit_above_zero_lets_siblings_finish() {
    let mut bench = Bench::started(&["s / a mc=1 mf=1 x4 / b x3", "t / c x1"]);
    bench.fail("a-0");
    bench.check("Running; s Running; a Running FRNN; b Running RNN; t NotStarted; c NotStarted N");
    bench.fail("a-1");
    bench.check("Running; s Running; a Failed FFNN; b Running RNN; t NotStarted; c NotStarted N");
    assert_eq!(bench.why_member("a-2"), Why::FailureLimit { of: name("a"), failures: 2, limit: 1 });
    bench.finish("b-0");
    bench.finish("b-1");
    bench.check("Running; s Running; a Failed FFNN; b Running CCR; t NotStarted; c NotStarted N");
    bench.finish("b-2");
    bench.check("Failed; s Failed; a Failed FFNN; b Completed CCC; t NotStarted; c NotStarted N");
}

#[test]
fn choice_group_over_its_limit_puts_back_members_that_have_begun_nothing() {
    let mut bench = Bench::started(&["s / a mc=3 mf=1 x4 / b x1"]);
    bench.fail("a-0");
    bench.fail("a-1");
    bench.check("Running; s Running; a Stopping FFRR; b Running R");
    bench.look("a-2");
    bench.look("a-3");
    bench.check("Running; s Running; a Failed FFNN; b Running R");
}

#[test]
fn choice_percent_of_failures_is_of_all_members_frozen_in_that_scope_skipped_ones_too() {
    let mut bench = Bench::new(&["s / a mf=50% x4"]);
    bench.skip(&["member a-0", "member a-1"]);
    bench.start();
    bench.drive(&["a-2", "a-3"]);
    bench.check("Completed; s Completed; a Completed SSFF");
}

#[test]
fn choice_failed_scopes_carry_code_failures_limit_and_the_first_three_causes() {
    let mut bench = Bench::started(&["s mf=3 / a mc=3 x3 / b mc=2 x3"]);
    ["a-0", "a-1", "a-2", "b-0", "b-1"].into_iter().for_each(|member| bench.move_(member));
    for (member, code) in [("a-0", "Zero"), ("a-1", "One"), ("b-0", "Two"), ("b-1", "Three")] {
        bench.fail_with(member, code);
    }
    bench.finish("a-2");
    bench.look("b-2");
    bench.check("Failed; s Failed; a Completed FFC; b Stopped FFN");
    let error = bench.run.error(Part::Stage(0)).expect("a failed stage carries an error");
    assert_eq!(error.code, "MaxAllowedFailuresExceeded");
    let message = "stage 's' has 4 failed member(s), its limit is 3: 'a-0' (Zero), 'a-1' (One), 'b-0' (Two) and 1 more";
    assert_eq!(error.message, message);
    assert_eq!(bench.run.error(Part::Run), Some(error), "the run says what its stage says");
    assert_eq!(bench.run.error(Part::Member(0)).map(|fault| fault.code), Some("Zero".into()));
    assert_eq!(bench.message("a-0"), "nodes did not drain");
}

#[test]
fn choice_more_failures_after_a_passed_limit_do_not_end_the_stage_twice() {
    let mut bench = Bench::started(&["s mf=1 mc=9 / a mc=4 x4"]);
    (0..4).for_each(|n| bench.move_(&format!("a-{n}")));
    (0..4).for_each(|n| bench.fail(&format!("a-{n}")));
    bench.check("Failed; s Failed; a Completed FFFF");
    let ended = bench.journal.iter().filter(|(_, event)| matches!(event, flotta_engine::Event::StageEnded(..)));
    assert_eq!(ended.count(), 1);
}
