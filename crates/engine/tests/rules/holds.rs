//! What keeps a member from moving, and what a sighting leads to (`behaviour.md` A4, A8, B2, D4).

use flotta_engine::{
    Input, Plan, Work,
    run::{Event, Outcome, Part, Sighting, Why},
};
use flotta_model::{Hold, Offer, Provisioning, Step, UpgradeType};

use crate::bench::{Bench, NEW_IMAGE, OLD, OLD_IMAGE, TARGET, goal, member, v};

const DAY: i64 = 24 * 60 * 60;

#[test]
fn b2_a_pending_member_gives_its_slot_back_and_goes_on_when_released() {
    let mut bench = Bench::started(&["s / a x3"]);
    bench.cluster("a-0").provisioning = Provisioning::Busy("Upgrading".into());
    bench.look("a-0");
    bench.check("Running; s Running; a Running PRN");
    assert_eq!(bench.message("a-0"), "another operation is in progress (Upgrading)");
    assert_eq!(bench.why_member("a-0"), Why::Held(Hold::OtherOperation("Upgrading".into())));
    assert_eq!(bench.run.error(Part::Member(0)).map(|fault| fault.code), Some("AnotherOperationInProgress".into()));
    assert_eq!(bench.look("a-0"), [], "still there");
    bench.cluster("a-0").provisioning = Provisioning::Succeeded;
    bench.look("a-0");
    bench.check("Running; s Running; a Running NRN");
    bench.finish("a-1");
    bench.check("Running; s Running; a Running RCN");
}

#[test]
fn a8_a_run_of_pending_members_alone_is_pending() {
    let mut bench = Bench::started(&["s / a x1", "t / b x1"]);
    bench.hold("a-0", Hold::NoDriver);
    bench.check("Pending; s Pending; a Pending P; t NotStarted; b NotStarted N");
    assert_eq!(
        bench.message("a-0"),
        "no driver reaches this cluster; see whether its id is right and flotta drives its subscription"
    );
    let reasons = bench.run.waiting_on(Part::Stage(0), bench.now);
    assert_eq!((reasons.len(), &reasons[0].why, reasons[0].members), (1, &Why::Held(Hold::NoDriver), 1));
}

#[test]
fn choice_one_cluster_in_two_runs_is_held_by_the_first() {
    let mut bench = Bench::started(&["s / a x1"]);
    let claimed = |bench: &Bench, by: Option<&str>| {
        let sighting =
            Sighting { cluster: bench.clusters[0].clone(), offer: None, claimed_by: by.map(Into::into), window: None };
        Input::Seen(bench.ticket("a-0"), Box::new(sighting))
    };
    let input = claimed(&bench, Some("fleet/other"));
    bench.tell(input);
    bench.check("Pending; s Pending; a Pending P");
    assert_eq!(bench.message("a-0"), "held by run fleet/other");
    let input = claimed(&bench, None);
    bench.tell(input);
    bench.check("Running; s Running; a Running R");
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed C");
}

#[test]
fn choice_stopped_or_unreachable_cluster_is_pending_and_failed_after_a_patience() {
    for hold in [Hold::ClusterStopped, Hold::Unreachable("no answer".into())] {
        let mut bench = Bench::started(&["s / a x1"]);
        bench.hold("a-0", hold.clone());
        bench.check("Pending; s Pending; a Pending P");
        bench.advance(DAY - 1);
        bench.check("Pending; s Pending; a Pending P");
        bench.advance(1);
        bench.check("Failed; s Failed; a Failed F");
        let error = bench.run.error(Part::Member(0)).expect("a failed member carries an error");
        assert_eq!(error.code, hold.code());
        assert!(error.message.ends_with("; waited 24 hours for it"), "{error}");
    }
}

#[test]
fn choice_patience_is_counted_over_changing_details_of_one_hold_and_anew_for_another_kind() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.hold("a-0", Hold::Unreachable("timeout".into()));
    bench.advance(DAY / 2);
    bench.hold("a-0", Hold::Unreachable("refused".into()));
    assert_eq!(bench.run.next_wake(), Some(bench.now + jiff::SignedDuration::from_secs(DAY / 2)));
    bench.hold("a-0", Hold::ClusterStopped);
    assert_eq!(bench.run.next_wake(), Some(bench.now + jiff::SignedDuration::from_secs(DAY)));
    bench.hold("a-0", Hold::Throttled);
    assert_eq!(bench.run.next_wake(), None, "only some holds wear out");
    bench.advance(30 * DAY);
    bench.check("Pending; s Pending; a Pending P");
}

#[test]
fn choice_patience_does_not_run_out_while_the_run_is_stopped_but_at_its_start() {
    let mut bench = Bench::started(&["s / a mf=1 x2"]);
    bench.hold("a-0", Hold::ClusterStopped);
    bench.stop();
    assert_eq!(bench.run.next_wake(), None);
    bench.advance(2 * DAY);
    bench.check("Stopped; s Stopped; a Stopped PN");
    bench.start();
    bench.check("Running; s Running; a Running FR");
}

#[test]
fn choice_many_members_wear_out_at_once_and_the_limit_still_holds() {
    let mut bench = Bench::started(&["s / a mc=9 mf=2 x3"]);
    for n in 0..3 {
        bench.hold(&format!("a-{n}"), Hold::ClusterStopped);
    }
    bench.advance(DAY);
    bench.check("Failed; s Failed; a Failed FFF");
}

#[test]
fn choice_member_left_the_fleet() {
    let mut bench = Bench::started(&["s / a mc=3 x5"]);
    bench.move_("a-0");
    bench.hold("a-1", Hold::NoDriver);
    bench.check("Running; s Running; a Running RPRRN");
    for member in 0..5 {
        bench.tell(Input::MemberLeft(member));
    }
    bench.check("Running; s Running; a Running RSSSS");
    for member in ["a-1", "a-2", "a-4"] {
        assert_eq!(bench.message(member), "member left the fleet");
    }
    assert_eq!(bench.tell(Input::MemberLeft(4)), [], "once is enough");
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed CSSSS");
}

#[test]
fn choice_member_that_leaves_before_the_start_is_skipped() {
    let mut bench = Bench::new(&["s / a x1"]);
    bench.tell(Input::MemberLeft(0));
    bench.check("NotStarted; s NotStarted; a NotStarted S");
    bench.start();
    bench.check("Skipped; s Skipped; a Skipped S");
}

#[test]
fn a5_a_member_that_is_never_going_to_get_there_fails() {
    let mut bench = Bench::started(&["s / a x1"]);
    bench.cluster("a-0").upgrades.clear();
    bench.look("a-0");
    bench.check("Failed; s Failed; a Failed F");
    assert_eq!(bench.run.error(Part::Member(0)).map(|fault| fault.code), Some("OperationNotAllowed".into()));
}

#[test]
fn d4_a_version_not_in_the_region_makes_the_member_pending() {
    let mut bench = Bench::started(&["s / a x1"]);
    let sighting =
        Sighting { cluster: bench.clusters[0].clone(), offer: Some(Offer::NotYet), claimed_by: None, window: None };
    bench.tell(Input::Seen(bench.ticket("a-0"), Box::new(sighting)));
    bench.check("Pending; s Pending; a Pending P");
    assert!(bench.message("a-0").contains("not available in region westeurope"), "{}", bench.message("a-0"));
}

#[test]
fn choice_lts_target_and_cluster_without_it_fails_with_what_it_needs() {
    let mut bench = Bench::started(&["s / a x1"]);
    let offer = Some(Offer::WithLongTermSupport);
    let sighting = Sighting { cluster: bench.clusters[0].clone(), offer, claimed_by: None, window: None };
    bench.tell(Input::Seen(bench.ticket("a-0"), Box::new(sighting)));
    bench.check("Failed; s Failed; a Failed F");
    assert!(bench.message("a-0").contains("AKSLongTermSupport"), "{}", bench.message("a-0"));
}

/// A run of one member that a profile made.
fn automatic(version: &str) -> Bench {
    let fleet = [member("a-0", None, &[])];
    let plan = Plan::resolve(goal(UpgradeType::Full, Some(TARGET)), None, &fleet).expect("plan");
    let mut bench = Bench::of_plan(Plan { profile: Some("fleets/f/autoUpgradeProfiles/p".into()), ..plan });
    bench.cluster("a-0").version = v(version);
    bench.start();
    bench
}

#[test]
fn choice_a_member_more_than_one_minor_behind_an_automatic_run_is_skipped_with_the_way_up() {
    let mut bench = automatic("1.31.9");
    bench.look("a-0");
    bench.check("Skipped; default Skipped; default Skipped S");
    let message = bench.message("a-0");
    for part in ["is at 1.31.9", "more than one minor behind 1.33.2", "bring it to 1.32", "runs of its own"] {
        assert!(message.contains(part), "{message}");
    }
    let mut next = automatic(OLD);
    next.finish("a-0");
    next.check("Completed; default Completed; default Completed C");
    let mut by_hand = Bench::started(&["s / a x1"]);
    by_hand.cluster("a-0").version = v("1.31.9");
    by_hand.cluster("a-0").upgrades.clear();
    by_hand.look("a-0");
    by_hand.check("Failed; s Failed; a Failed F");
}

#[test]
fn choice_an_automatic_run_to_long_term_support_fails_where_the_cluster_has_none() {
    let mut bench = automatic(OLD);
    let offer = Some(Offer::WithLongTermSupport);
    let sighting = Sighting { cluster: bench.clusters[0].clone(), offer, claimed_by: None, window: None };
    bench.tell(Input::Seen(bench.ticket("a-0"), Box::new(sighting)));
    bench.check("Failed; default Failed; default Failed F");
    let error = bench.run.error(Part::Member(0)).expect("an error");
    assert!(error.code == "K8sVersionNotSupported" && error.message.contains("AKSLongTermSupport"), "{error}");
}

#[test]
fn a4_each_upgrade_type_sends_its_steps_with_their_guards() {
    let image = || Step::PoolImage { pool: "pool".into(), image: NEW_IMAGE.parse().expect("image") };
    let cluster = Step::cluster(v(TARGET), vec!["pool".into()]);
    let plane = Step::ControlPlane { version: v(TARGET) };
    let cases = [
        (UpgradeType::Full, Some(TARGET), vec![(cluster, "cluster-1"), (image(), "pool-1")]),
        (UpgradeType::ControlPlaneOnly, Some(TARGET), vec![(plane, "cluster-1")]),
        (UpgradeType::NodeImageOnly, None, vec![(image(), "pool-1")]),
    ];
    for (upgrade, version, steps) in cases {
        let mut bench = Bench::with_goal(goal(upgrade, version), &["s / a x1"]);
        bench.cluster("a-0").pools[0].image = Some(OLD_IMAGE.parse().expect("image"));
        bench.start();
        for (step, guard) in steps {
            bench.look("a-0");
            let pledge = bench.run.member(0).pledge().expect("a step").clone();
            assert_eq!((&pledge.step, pledge.guard.as_deref()), (&step, Some(guard)));
            assert!(matches!(bench.run.work_of(0), Some(Work::Send(_))));
            bench.accept("a-0");
            assert!(matches!(bench.run.work_of(0), Some(Work::Follow(_))));
            bench.step_done("a-0");
        }
        bench.look("a-0");
        bench.check("Completed; s Completed; a Completed C");
        assert_eq!(bench.run.member(0).operation.as_deref(), Some("op-a-0"));
    }
}

#[test]
fn mechanics_a_step_not_taken_is_looked_at_again_in_the_same_slot() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.look("a-0");
    let ticket = bench.ticket("a-0");
    bench.tell(Input::NotAccepted(ticket));
    bench.check("Running; s Running; a Running RN");
    assert!(matches!(bench.run.work_of(0), Some(Work::Look(_))));
    bench.finish("a-0");
    bench.check("Running; s Running; a Running CR");
}

#[test]
fn mechanics_a_hold_while_a_step_is_sent_makes_the_member_pending() {
    let mut bench = Bench::started(&["s / a x2"]);
    bench.look("a-0");
    bench.hold("a-0", Hold::OtherOperation("Updating".into()));
    bench.check("Running; s Running; a Running PR");
}

#[test]
fn b2_held_members_of_a_group_that_may_not_start_are_not_probed() {
    let mut bench = Bench::started(&["s / a mf=1 mc=2 x3 / b x1"]);
    bench.hold("a-0", Hold::NoDriver);
    assert!(matches!(bench.run.work_of(0), Some(Work::Probe(_))));
    bench.fail("a-1");
    bench.fail("a-2");
    bench.check("Running; s Running; a Failed PFF; b Running R");
    assert_eq!(bench.run.work_of(0), None);
}

#[test]
fn e14_a_member_that_no_run_can_move_is_skipped_at_its_start_and_counts_as_no_failure() {
    let mut bench = Bench::started(&["s / a x2"]);
    let ticket = bench.ticket("a-0");
    let events = bench.tell(Input::Unfit(ticket, "it is connected through Arc".into()));
    assert!(matches!(&events[0], Event::MemberEnded { outcome: Outcome::Skipped, message: Some(why), fault: None, .. }
        if why.contains("Arc")));
    bench.check("Running; s Running; a Running SR");
    assert_eq!(bench.tell(Input::Unfit(ticket, "stale".into())), []);
    bench.hold("a-1", Hold::NoDriver);
    let held = bench.ticket("a-1");
    bench.tell(Input::Unfit(held, "it is connected through Arc".into()));
    bench.check("Skipped; s Skipped; a Skipped SS");
}
