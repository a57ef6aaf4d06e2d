//! Skip (`behaviour.md` A7 and the design's choices).

use flotta_engine::{
    Input, Refusal,
    run::{Outcome, Part, Phase, State, Wait},
};
use flotta_model::Hold;

use crate::bench::{Bench, name};

const SKIPPED: &str = "skipped by request.";

#[test]
fn a7_skip_before_the_start_leaves_run_and_stage_not_started() {
    let mut bench = Bench::new(&["s / a x1 / b x1"]);
    bench.skip(&["group a"]);
    bench.check("NotStarted; s NotStarted; a Skipped S; b NotStarted N");
    assert_eq!(bench.message("a-0"), SKIPPED);
    assert!(bench.run.group(0).times.completed.is_some());
    bench.start();
    bench.check("Running; s Running; a Skipped S; b Running R");
}

#[test]
fn a7_skip_of_a_whole_stage_before_the_start() {
    let mut bench = Bench::new(&["one wait=60 / a x1", "two / b x1"]);
    bench.skip(&["stage one"]);
    bench.check("NotStarted; one Skipped; a Skipped S; two NotStarted; b NotStarted N");
    assert_eq!(bench.run.wait_state(0), State::Skipped);
    bench.start();
    bench.check("Running; one Skipped; a Skipped S; two Running; b Running R");
}

#[test]
fn a7_skip_of_a_waiting_member_gives_its_turn_to_the_next() {
    let mut bench = Bench::started(&["s / a x3"]);
    bench.skip(&["member a-1"]);
    bench.finish("a-0");
    bench.check("Running; s Running; a Running CSR");
}

#[test]
fn choice_skip_of_a_member_only_looked_at_takes_effect_at_once() {
    let mut bench = Bench::started(&["s / a x2"]);
    let late = bench.seen("a-0");
    bench.skip(&["member a-0"]);
    bench.check("Running; s Running; a Running SR");
    assert_eq!(bench.tell(late), []);
}

#[test]
fn choice_skip_of_a_running_member_finishes_and_counts_nowhere() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.move_("a-0");
    bench.skip(&["member a-0"]);
    bench.check("Running; s Running; a Running RN");
    bench.finish("a-0");
    bench.check("Running; s Running; a Running SR");
    assert_eq!(bench.message("a-0"), format!("{SKIPPED} Its upgrade had begun and completed."));

    let mut bench = Bench::started(&["s / a x2"]);
    bench.move_("a-0");
    bench.skip(&["member a-0"]);
    bench.fail("a-0");
    bench.check("Running; s Running; a Running SR");
    let message = format!("{SKIPPED} Its upgrade had begun and failed: (Boom) nodes did not drain");
    assert_eq!(bench.message("a-0"), message);
    assert_eq!(bench.run.counts().failed, 0);
}

#[test]
fn choice_skip_of_a_running_member_lets_all_its_steps_finish() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.two_steps("a-0");
    bench.move_("a-0");
    bench.skip(&["member a-0"]);
    bench.step_done("a-0");
    bench.look("a-0");
    assert!(bench.run.member(0).pledge().is_some(), "the second step follows");
    bench.finish("a-0");
    bench.check("Skipped; s Skipped; a Skipped S");
}

#[test]
fn choice_skip_of_a_member_whose_step_was_not_taken_is_skipped_without_trying_again() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.look("a-0");
    bench.skip(&["member a-0"]);
    bench.check("Running; s Running; a Running RN");
    let ticket = bench.ticket("a-0");
    bench.tell(Input::NotAccepted(ticket));
    bench.check("Running; s Running; a Running SR");
    assert_eq!(bench.message("a-0"), SKIPPED);
}

#[test]
fn choice_a_member_left_out_between_steps_does_not_wait_for_a_hold() {
    for by_sighting in [true, false] {
        let mut bench = Bench::started(&["s / a x2"]);
        bench.two_steps("a-0");
        bench.move_("a-0");
        bench.skip(&["member a-0"]);
        bench.step_done("a-0");
        if by_sighting {
            bench.cluster("a-0").running = false;
            bench.look("a-0");
        } else {
            bench.hold("a-0", Hold::Throttled);
        }
        bench.check("Running; s Running; a Running SR");
        assert!(
            bench.message("a-0").starts_with(&format!("{SKIPPED} Stopped after step 1:")),
            "{}",
            bench.message("a-0")
        );
    }
}

#[test]
fn choice_skip_of_a_member_in_flight_when_the_run_stops_between_its_steps() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.two_steps("a-0");
    bench.move_("a-0");
    bench.skip(&["member a-0"]);
    bench.stop();
    bench.check("Stopping; s Stopping; a Stopping R");
    bench.step_done("a-0");
    bench.look("a-0");
    assert_eq!(bench.run.state(), State::Stopped);
    assert_eq!(bench.message("a-0"), format!("{SKIPPED} Stopped after step 1 of 2."));
}

#[test]
fn choice_skip_of_a_pending_member() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.hold("a-0", Hold::NoDriver);
    bench.check("Running; s Running; a Running PR");
    bench.skip(&["member a-0"]);
    bench.check("Running; s Running; a Running SR");
    assert_eq!(bench.message("a-0"), SKIPPED);
}

#[test]
fn choice_skip_of_a_failed_member_leaves_the_count_and_keeps_the_cause_in_the_message() {
    let mut bench = Bench::started(&["s / a mf=1 x3"]);
    bench.fail("a-0");
    bench.skip(&["member a-0"]);
    assert_eq!(bench.message("a-0"), format!("{SKIPPED} Its upgrade had failed: (Boom) nodes did not drain"));
    assert_eq!(bench.run.error(Part::Member(0)), None);
    bench.fail("a-1");
    bench.check("Running; s Running; a Running SFR");
    assert_eq!(bench.run.counts().failed, 1);
}

#[test]
fn choice_skip_of_the_failed_member_of_a_failed_run_and_start_goes_on() {
    let mut bench = Bench::started(&["s / a x3"]);
    bench.fail("a-0");
    bench.check("Failed; s Failed; a Failed FNN");
    bench.skip(&["member a-0"]);
    bench.check("Failed; s Failed; a Stopped SNN");
    let error = bench.run.error(Part::Run).expect("a failed run carries an error");
    assert!(error.message.contains("start the run to go on"), "{error}");
    bench.start();
    bench.check("Running; s Running; a Running SRN");
    assert_eq!(bench.attempt("a-0"), 1, "skipped is not tried again");
    bench.drive(&[]);
    bench.check("Completed; s Completed; a Completed SCC");
}

#[test]
fn choice_skip_of_the_last_failed_member_while_others_drain_stops_the_run() {
    let mut bench = Bench::started(&["s / a x2 / b x2"]);
    bench.move_("b-0");
    bench.fail("a-0");
    bench.check("Stopping; s Stopping; a Failed FN; b Stopping RN");
    bench.skip(&["member a-0"]);
    bench.finish("b-0");
    bench.check("Stopped; s Stopped; a Stopped SN; b Stopped CN");
    bench.start();
    bench.drive(&[]);
    bench.check("Completed; s Completed; a Completed SC; b Completed CC");
}

#[test]
fn choice_skip_of_a_failed_stage_then_start_goes_on_with_the_next() {
    let mut bench = Bench::started(&["one wait=60 / a x2", "two / b x1"]);
    bench.fail("a-0");
    bench.skip(&["stage one"]);
    bench.check("Failed; one Skipped; a Skipped SS; two NotStarted; b NotStarted N");
    bench.start();
    bench.check("Running; one Skipped; a Skipped SS; two Running; b Running R");
}

#[test]
fn a7_skip_of_a_group_with_members_in_every_state() {
    let mut bench = Bench::started(&["s / a mc=3 mf=3 x6 / b x1"]);
    bench.finish("a-0");
    bench.fail("a-1");
    bench.hold("a-2", Hold::NoDriver);
    bench.move_("a-3");
    bench.check("Running; s Running; a Running CFPRRR; b Running R");
    bench.skip(&["group a"]);
    bench.check("Running; s Running; a Running CSSRSS; b Running R");
    bench.finish("a-3");
    bench.check("Running; s Running; a Skipped CSSSSS; b Running R");
}

#[test]
fn a7_skip_of_a_stage_under_way_includes_its_wait_and_goes_on_to_the_next() {
    let mut bench = Bench::started(&["one wait=60 / a x2 / b x2", "two / c x1"]);
    bench.move_("a-0");
    bench.skip(&["stage one"]);
    bench.check("Running; one Running; a Running RS; b Skipped SS; two NotStarted; c NotStarted N");
    bench.finish("a-0");
    bench.check("Running; one Skipped; a Skipped SS; b Skipped SS; two Running; c Running R");
    assert_eq!(bench.run.wait_state(0), State::Skipped);
}

#[test]
fn a7_skip_of_a_stage_in_its_wait() {
    let mut bench = Bench::started(&["one wait=60 / a x1", "two / b x1"]);
    bench.finish("a-0");
    bench.skip(&["stage one"]);
    bench.check("Running; one Skipped; a Completed C; two Running; b Running R");
    assert_eq!(bench.run.wait_state(0), State::Skipped);
}

#[test]
fn a7_skip_of_a_wait_that_runs_or_has_yet_to_begin() {
    let mut bench = Bench::started(&["one wait=60 / a x1", "two wait=60 / b x1"]);
    bench.skip(&["wait two"]);
    bench.finish("a-0");
    bench.skip(&["wait one"]);
    bench.check("Running; one Completed; a Completed C; two Running; b Running R");
    let Wait::Over { since: Some(_), skipped: true, .. } = bench.run.stage(0).wait else { panic!("it had begun") };
    bench.finish("b-0");
    bench.check("Completed; one Completed; a Completed C; two Completed; b Completed C");
    assert_eq!(bench.run.wait_state(1), State::Skipped);
}

#[test]
fn a7_several_targets_at_once_all_or_none() {
    let mut bench = Bench::started(&["one wait=9 / a x1 / b x2", "two / c x1"]);
    let refused = bench.try_skip(&["member b-1", "group nope"]).expect_err("no such group");
    assert_eq!(refused, Refusal::NoSuchTarget { kind: "group", name: name("nope") });
    bench.check("Running; one Running; a Running R; b Running RN; two NotStarted; c NotStarted N");
    bench.skip(&["member b-1", "group a", "stage two", "wait one", "member b-1"]);
    bench.check("Running; one Running; a Skipped S; b Running RS; two Skipped; c Skipped S");
    bench.finish("b-0");
    bench.check("Completed; one Completed; a Skipped S; b Completed CS; two Skipped; c Skipped S");
}

#[test]
fn a7_unknown_done_and_missing_targets_are_refused() {
    let mut bench = Bench::started(&["one / a x1", "two / b x1"]);
    bench.finish("a-0");
    for (target, kind) in
        [("member x", "member"), ("group x", "group"), ("stage x", "stage"), ("wait one", "wait after stage")]
    {
        let refused = bench.try_skip(&[target]).expect_err(target);
        assert!(matches!(&refused, Refusal::NoSuchTarget { kind: got, .. } if *got == kind), "{refused}");
    }
    for target in ["member a-0", "group a", "stage one"] {
        let refused = bench.try_skip(&[target]).expect_err(target);
        assert!(matches!(refused, Refusal::Done { state: State::Completed, .. }), "{refused}");
    }
    assert_eq!(bench.try_skip(&[]), Err(Refusal::NoTargets));
}

#[test]
fn a7_skip_again_changes_nothing_that_people_see() {
    let mut bench = Bench::new(&["one wait=9 / a x1", "two wait=9 / b x1"]);
    bench.skip(&["stage one", "wait two"]);
    let (stage, wait) = (bench.run.stage(0).clone(), bench.run.stage(1).wait);
    bench.advance(100);
    bench.skip(&["stage one", "group a", "member a-0", "wait two"]);
    assert_eq!((bench.run.stage(0), bench.run.stage(1).wait), (&stage, wait));
    bench.check("NotStarted; one Skipped; a Skipped S; two NotStarted; b NotStarted N");
}

#[test]
fn a7_skip_while_stopped_and_while_stopping() {
    let mut bench = Bench::started(&["s / a mc=2 x3"]);
    bench.move_("a-0");
    bench.stop();
    bench.skip(&["member a-0", "member a-1"]);
    bench.check("Stopping; s Stopping; a Stopping RSN");
    bench.finish("a-0");
    bench.check("Stopped; s Stopped; a Stopped SSN");
    bench.skip(&["member a-2"]);
    bench.check("Stopped; s Stopped; a Skipped SSS");
    bench.start();
    bench.check("Skipped; s Skipped; a Skipped SSS");
}

#[test]
fn choice_a_run_in_which_every_member_was_skipped_is_skipped() {
    let mut bench = Bench::new(&["s / a x2"]);
    bench.skip(&["member a-0"]);
    bench.start();
    bench.move_("a-1");
    bench.skip(&["member a-1"]);
    bench.finish("a-1");
    bench.check("Skipped; s Skipped; a Skipped SS");
    assert_eq!(bench.run.group(0).phase, Phase::Ended(Outcome::Skipped));
}

#[test]
fn choice_skip_of_failed_members_of_a_group_over_its_limit_reopens_it() {
    let mut bench = Bench::started(&["s / a mf=1 x4 / b x2"]);
    bench.fail("a-0");
    bench.fail("a-1");
    bench.check("Running; s Running; a Failed FFNN; b Running RN");
    bench.skip(&["member a-1"]);
    bench.check("Running; s Running; a Running FSRN; b Running RN");
}
