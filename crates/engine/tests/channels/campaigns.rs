//! Chains of runs over several minors.

use flotta_engine::campaign::{self, Campaign};
use flotta_model::VersionTarget;

use crate::world::{World, cluster, target, v};

const LADDER: [&str; 6] = ["1.29.100l", "1.30.4", "1.30.5", "1.31.2", "1.32.0", "1.33.0p"];

fn world(versions: &[&str]) -> World {
    let mut world = World::new(target(32, false));
    world.publish("weu", &LADDER);
    for (index, version) in versions.iter().enumerate() {
        world.join(&format!("m{index}"), cluster("weu", version, &["A-202501.01.0"]));
    }
    world
}

fn plan(world: &World, target: &str) -> Campaign {
    campaign::plan(target.parse().expect(target), &world.known(), &world.releases).expect("a plan")
}

fn legs(campaign: &Campaign) -> Vec<(String, Vec<String>)> {
    let members = |leg: &campaign::Leg| leg.members.iter().map(|(name, from)| format!("{name} {from}")).collect();
    campaign.legs.iter().map(|leg| (leg.version.to_string(), members(leg))).collect()
}

fn leg(version: &str, members: &[&str]) -> (String, Vec<String>) {
    (version.into(), members.iter().map(|&member| member.into()).collect())
}

#[test]
fn d1_a_mixed_fleet_goes_up_one_minor_at_a_time() {
    let plan = plan(&world(&["1.29.9", "1.31.2", "1.30.5", "1.32.0"]), "1.32");
    let expect = [
        leg("1.30.5", &["m0 1.29.9"]),
        leg("1.31.2", &["m2 1.30.5", "m0 1.30.5"]),
        leg("1.32.0", &["m1 1.31.2", "m2 1.31.2", "m0 1.31.2"]),
    ];
    assert_eq!((plan.version, legs(&plan), plan.left), (v("1.32.0"), expect.to_vec(), vec![]));
}

#[test]
fn d1_only_what_every_region_on_the_way_has() {
    let mut world = world(&["1.29.9"]);
    world.publish("eus", &["1.30.4", "1.31.2", "1.32.0"]);
    world.join("far", cluster("eus", "1.29.9", &["A-202501.01.0"]));
    assert_eq!(legs(&plan(&world, "1.30.4"))[0], leg("1.30.4", &["m0 1.29.9", "far 1.29.9"]));
    let via = legs(&plan(&world, "1.31"));
    assert_eq!(via[0], leg("1.30.4", &["m0 1.29.9", "far 1.29.9"]), "1.30.5 is not in eus");
}

#[test]
fn d1_who_cannot_get_there_is_named_and_not_set_out_with() {
    let mut world = world(&["1.27.9", "1.30.5", "1.30.5", "1.31.2"]);
    world.cluster("m2").provisions_nodes = true;
    world.cluster("m3").upgrades = vec![v("1.31.3")];
    let plan = plan(&world, "1.32");
    let left: Vec<(String, &str)> = plan.left.iter().map(|left| (left.member.to_string(), left.code)).collect();
    let expect = [("m2", "Unfit"), ("m0", "VersionNotInRegion"), ("m3", "UpgradeNotListed")];
    assert_eq!(left, expect.map(|(name, code)| (name.to_owned(), code)));
    assert_eq!(legs(&plan), [leg("1.31.2", &["m1 1.30.5"]), leg("1.32.0", &["m1 1.31.2"])]);
}

#[test]
fn d1_the_way_over_long_term_support_needs_it() {
    let mut world = world(&["1.28.9", "1.28.9"]);
    world.cluster("m1").long_term_support = true;
    let plan = plan(&world, "1.30");
    assert_eq!((plan.left.len(), plan.left[0].code), (1, "NoLongTermSupport"));
    assert!(plan.left[0].message.contains("AKSLongTermSupport"), "{}", plan.left[0].message);
    assert_eq!(legs(&plan), [leg("1.29.100", &["m1 1.28.9"]), leg("1.30.5", &["m1 1.29.100"])]);
}

#[test]
fn d1_previews_are_not_gone_to_unless_asked_for_by_name() {
    let world = world(&["1.32.0"]);
    let target: VersionTarget = "1.33".parse().expect("minor");
    let refused = campaign::plan(target, &world.known(), &world.releases).expect_err("a preview");
    assert!(refused.to_string().contains("1.33"), "{refused}");
    assert_eq!(legs(&plan(&world, "1.33.0")), [leg("1.33.0", &["m0 1.32.0"])]);
}

#[test]
fn d1_pools_left_behind_are_brought_along_and_who_is_there_is_left_alone() {
    let mut world = world(&["1.32.0", "1.32.0"]);
    world.cluster("m1").pools[0].version = v("1.31.2");
    assert_eq!(legs(&plan(&world, "1.32")), [leg("1.32.0", &["m1 1.32.0"])]);
}
