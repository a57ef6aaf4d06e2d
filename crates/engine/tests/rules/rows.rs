//! What users of such systems complain about, and what has to happen instead (`behaviour.md` E1, E3, E4): the rows that
//! the state machine answers for.

use flotta_engine::{
    Event, Input,
    run::{Decision, Part, State, Ticket, Why},
};
use flotta_model::{Hold, Provisioning, Step, UpgradeType};

use crate::bench::{Bench, TARGET, at_gate, daily, goal, name};

const HOUR: i64 = 3600;

fn approve(bench: &mut Bench, gate: u32) -> Vec<Event> {
    bench.tell(Input::Gate { gate, decision: Decision::Approve, by: "ann".into(), comment: None })
}

#[test]
fn e01_one_stopped_cluster_holds_itself_alone_and_goes_on_when_it_is_started() {
    let mut bench = Bench::started(&["s / a mc=1 x3", "t / b x1"]);
    bench.cluster("a-0").running = false;
    bench.look("a-0");
    bench.finish("a-1");
    bench.finish("a-2");
    bench.check("Pending; s Pending; a Pending PCC; t NotStarted; b NotStarted N");
    assert_eq!(bench.message("a-0"), "the cluster is stopped; start it, or skip the member");
    bench.cluster("a-0").running = true;
    bench.look("a-0");
    bench.finish("a-0");
    bench.check("Running; s Completed; a Completed CCC; t Running; b Running R");
}

#[test]
fn e03_another_operation_on_the_cluster_is_waited_for_and_never_a_failure() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.look("a-0");
    // The upgrade is refused since another operation was quicker.
    bench.hold("a-0", Hold::OtherOperation("Updating".into()));
    bench.check("Pending; s Pending; a Pending P");
    bench.advance(30 * 24 * HOUR);
    bench.check("Pending; s Pending; a Pending P");
    assert_eq!(bench.run.counts().failed, 0);
    bench.look("a-0");
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed C");
}

#[test]
fn e04_a_limit_that_is_exceeded_names_itself_and_the_count_at_group_stage_and_run() {
    let mut bench = Bench::started(&["s mf=2 / a mf=1 mc=3 x4"]);
    bench.fail("a-0");
    bench.check("Running; s Running; a Running FRRR");
    bench.fail("a-1");
    bench.finish("a-2");
    bench.finish("a-3");
    for part in [Part::Run, Part::Stage(0), Part::Group(0)] {
        let error = bench.run.error(part).expect("why");
        assert_eq!(error.code, "MaxAllowedFailuresExceeded");
        assert!(error.message.starts_with("group 'a' has 2 failed member(s), its limit is 1"), "{error}");
    }
}

#[test]
fn e08_approvals_before_and_after_a_stage_hold_it_until_they_are_given() {
    let mut bench = Bench::started(&["one gate aftergate / a x1", "two / b x1"]);
    bench.check("Pending; one Pending; a NotStarted N; two NotStarted; b NotStarted N");
    approve(&mut bench, 0);
    bench.finish("a-0");
    bench.check("Pending; one Pending; a Completed C; two NotStarted; b NotStarted N");
    assert_eq!(bench.why_member("b-0"), Why::EarlierStage(name("one")));
    assert!(bench.why(Part::Run).contains(&at_gate("one")));
    approve(&mut bench, 1);
    bench.check("Running; one Completed; a Completed C; two Running; b Running R");
}

#[test]
fn e09_an_after_gate_is_a_manual_go_beside_the_wait_and_both_must_be_over() {
    let mut bench = Bench::started(&["one wait=3600 aftergate / a x1", "two / b x1"]);
    bench.finish("a-0");
    bench.check("Running; one Running; a Completed C; two NotStarted; b NotStarted N");
    approve(&mut bench, 0);
    bench.check("Running; one Running; a Completed C; two NotStarted; b NotStarted N");
    bench.advance(HOUR);
    bench.check("Running; one Completed; a Completed C; two Running; b Running R");
}

#[test]
fn e10_approved_although_a_region_is_late_its_members_wait_and_go_on_by_themselves() {
    let mut bench = Bench::started(&["one gate / a mc=2 x2"]);
    approve(&mut bench, 0);
    let late = Hold::VersionNotInRegion { version: TARGET.into(), region: "westeurope".into() };
    bench.hold("a-0", late.clone());
    bench.check("Running; one Running; a Running PR");
    assert!(bench.message("a-0").contains(TARGET) && bench.message("a-0").contains("westeurope"));
    let reasons = bench.run.waiting_on(Part::Member(0), bench.now);
    assert_eq!(reasons[0].why, Why::Held(late));
    assert_eq!(reasons[0].until, Some(bench.now + jiff::SignedDuration::from_secs(600)), "looked at again then");
    bench.finish("a-1");
    bench.advance(3 * 24 * HOUR);
    bench.check("Pending; one Pending; a Pending PC");
    bench.look("a-0");
    bench.finish("a-0");
    bench.check("Completed; one Completed; a Completed CC");
}

#[test]
fn e32_a_group_over_its_limit_fails_and_its_siblings_go_on_to_their_own_end() {
    let mut bench = Bench::started(&["s / a mf=1 mc=2 x3 / b x2", "t / c x1"]);
    bench.fail("a-0");
    bench.move_("a-2");
    bench.fail("a-1");
    bench.check("Running; s Running; a Stopping FFR; b Running RN; t NotStarted; c NotStarted N");
    bench.finish("a-2");
    bench.finish("b-0");
    bench.check("Running; s Running; a Failed FFC; b Running CR; t NotStarted; c NotStarted N");
    bench.finish("b-1");
    bench.check("Failed; s Failed; a Failed FFC; b Completed CC; t NotStarted; c NotStarted N");
}

#[test]
fn e33_percentages_round_concurrency_down_and_failures_up() {
    let bench = Bench::new(&["s mc=25% mf=25% / a mc=1% mf=1% x7"]);
    let plan = bench.run.plan();
    assert_eq!((plan.stages[0].max_concurrency, plan.stages[0].max_allowed_failures), (1, Some(2)));
    assert_eq!((plan.groups[0].max_concurrency, plan.groups[0].max_allowed_failures), (1, Some(1)));
}

#[test]
fn e51_the_image_is_the_newest_at_the_opening_not_the_one_when_the_wait_began() {
    let newer = "AKSUbuntu-2204gen2containerd-202511.07.0";
    let mut bench = Bench::with_goal(goal(UpgradeType::NodeImageOnly, None), &["s / a x1"]);
    bench.two_steps("a-0");
    bench.windows[0] = Some(daily("20:00", 4));
    bench.start();
    bench.check("Pending; s Pending; a Pending P");
    bench.cluster("a-0").pools[0].latest_image = Some(newer.parse().expect("image"));
    bench.advance(12 * HOUR);
    let events = bench.look("a-0");
    let image = Step::PoolImage { pool: "pool".into(), image: newer.parse().expect("image") };
    assert!(
        events.iter().any(|event| matches!(event, Event::StepIntended { step, .. } if *step == image)),
        "{events:?}"
    );
}

#[test]
fn e55_a_cluster_left_failed_by_a_disruption_budget_is_sent_the_upgrade_again() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.fail_with("a-0", "UpgradeFailed");
    bench.check("Failed; s Failed; a Failed F");
    // The provider's model shows the target although the nodes never came to it.
    bench.there_already("a-0");
    bench.cluster("a-0").pools[0].provisioning = Provisioning::Failed;
    bench.start();
    let events = bench.look("a-0");
    assert!(events.iter().any(|event| matches!(event, Event::StepIntended { .. })), "{events:?}");
    assert_eq!(bench.attempt("a-0"), 2);
    bench.accept("a-0");
    bench.cluster("a-0").pools[0].provisioning = Provisioning::Succeeded;
    bench.step_done("a-0");
    bench.look("a-0");
    bench.check("Completed; s Completed; a Completed C");
}

#[test]
fn e64_an_operation_that_takes_days_is_waited_for() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.move_("a-0");
    bench.advance(14 * 24 * HOUR);
    bench.check("Running; s Running; a Running R");
    let Ticket { member, .. } = bench.ticket("a-0");
    assert_eq!(bench.run.member_state(member), State::Running);
}
