//! Channels that follow Kubernetes versions.

use flotta_engine::channels::Standing;
use flotta_model::{
    Channel, Hold, UpgradeType, VersionTarget,
    gate::Weekday,
    profile::{Calendar, CalendarFields, ProfileImages, UpgradePath},
    window::LocalTime,
};

use crate::world::{DAY, World, at, cluster, name, target, v};

const IMAGE: &str = "AKSUbuntu-2204gen2containerd-202509.01.0";
const LADDER: [&str; 7] = ["1.29.100l", "1.30.4", "1.30.5", "1.31.1", "1.31.2", "1.32.0", "1.33.0p"];

fn world(channel: Channel, versions: &[&str]) -> World {
    let mut world = World::new(channel);
    world.publish("weu", &LADDER);
    for (index, version) in versions.iter().enumerate() {
        world.join(&format!("m{index}"), cluster("weu", version, &[IMAGE]));
    }
    world
}

#[test]
fn a9_each_channel_points_at_what_the_documents_say() {
    for (channel, points_at) in [
        (Channel::Rapid, Some("1.32.0")),
        (Channel::Stable, Some("1.31.2")),
        (target(30, false), Some("1.30.5")),
        (target(29, false), None),
        (target(29, true), Some("1.29.100")),
        (target(33, false), None),
        (target(34, false), None),
    ] {
        let world = world(channel, &["1.30.4"]);
        assert_eq!(world.versions(), points_at.into_iter().map(str::to_owned).collect::<Vec<_>>(), "{channel:?}");
    }
}

#[test]
fn a9_rapid_and_stable_move_a_cluster_from_1_30_to_1_31_when_that_is_their_minor() {
    let mut stable = world(Channel::Stable, &["1.30.5"]);
    let run = &stable.make().runs[0];
    assert_eq!(run.goal.version(), Some(VersionTarget::Exact(v("1.31.2"))));
    assert_eq!((run.goal.upgrade(), run.goal.images()), (UpgradeType::Full, None));
    assert!(run.name.as_str().starts_with("auto-aup-stable-1-31-2-"), "{}", run.name);
    let mut rapid = World::new(Channel::Rapid);
    rapid.publish("weu", &["1.30.5", "1.31.2"]);
    rapid.join("m", cluster("weu", "1.30.5", &[IMAGE]));
    assert_eq!(rapid.make().runs[0].goal.version(), Some(VersionTarget::Exact(v("1.31.2"))));
}

#[test]
fn a9_no_minor_is_skipped_and_who_is_too_far_behind_is_told_the_way() {
    let world = world(Channel::Stable, &["1.29.9", "1.30.4", "1.31.2"]);
    let behind = world.standing("m0");
    assert_eq!(behind, Standing::TooFarBehind { from: v("1.29.9"), next: (1, 30) });
    assert!(behind.to_string().contains("bring it to 1.30 first"), "{behind}");
    assert_eq!((world.standing("m1").code(), world.standing("m2").code()), ("Eligible", "AtTarget"));
    assert_eq!(world.trigger().members, ["m0", "m1", "m2"].map(name), "all are in the run");
}

#[test]
fn a9_once_brought_within_reach_a_straggler_gets_a_run_of_its_own() {
    let mut world = world(Channel::Stable, &["1.29.9", "1.30.4"]);
    world.make();
    *world.cluster("m1") = cluster("weu", "1.31.2", &[IMAGE]);
    assert_eq!(world.code(), "NothingToDo");
    *world.cluster("m0") = cluster("weu", "1.30.5", &[IMAGE]);
    let trigger = world.make();
    assert_eq!(trigger.members, ["m0"].map(name).to_vec());
}

#[test]
fn choice_an_lts_target_fails_the_member_without_and_says_what_it_needs() {
    let mut world = world(target(29, true), &["1.29.9", "1.29.9"]);
    world.cluster("m0").long_term_support = true;
    assert_eq!(world.standing("m0").code(), "Eligible");
    let without = world.standing("m1");
    assert!(without.is_to_move() && without.to_string().contains("AKSLongTermSupport"), "{without}");
}

#[test]
fn e36_a_profile_made_after_a_release_and_a_cluster_that_was_away_catch_up() {
    let mut world = world(Channel::Stable, &["1.31.1"]);
    world.now = at(300 * DAY);
    world.make();
    *world.cluster("m0") = cluster("weu", "1.31.2", &[IMAGE]);
    world.members.push(crate::world::Member {
        name: name("late"),
        id: "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/late"
            .parse()
            .expect("id"),
        seen: Err(Hold::ClusterStopped),
    });
    assert_eq!((world.code(), world.standing("late").code()), ("NothingToDo", "NotSeen"));
    world.members[1].seen = Ok(cluster("weu", "1.31.0", &[IMAGE]));
    assert_eq!(world.make().members, ["late"].map(name).to_vec(), "it is not missed for ever");
}

#[test]
fn e37_the_target_channel_moves_over_a_minor_and_says_why_not_where_it_does_not() {
    let mut world = world(target(31, false), &["1.30.5"]);
    assert_eq!(world.make().runs[0].goal.version(), Some(VersionTarget::Exact(v("1.31.2"))));
    let told = world.reason();
    assert_eq!(told.code, "AlreadyTried");
    assert!(told.message.contains("1.31.2") && told.message.contains("generateUpdateRun"), "{}", told.message);
}

#[test]
fn e38_patches_trigger_as_image_releases_do() {
    let mut world = world(Channel::Stable, &["1.31.2"]);
    assert_eq!(world.code(), "NothingToDo");
    world.publish("weu", &["1.31.2", "1.31.3", "1.32.0"]);
    assert_eq!(world.make().runs[0].goal.version(), Some(VersionTarget::Exact(v("1.31.3"))));
}

#[test]
fn e39_control_planes_first_makes_two_runs_in_a_chain() {
    let mut world = world(Channel::Stable, &["1.30.5"]);
    world.profile.trigger.path = UpgradePath::ControlPlaneFirst;
    world.profile.images = Some(ProfileImages::Consistent);
    let trigger = world.make();
    let types: Vec<UpgradeType> = trigger.runs.iter().map(|run| run.goal.upgrade()).collect();
    assert_eq!(types, [UpgradeType::ControlPlaneOnly, UpgradeType::Full]);
    assert_ne!(trigger.runs[0].name, trigger.runs[1].name);
    // Control planes are there, pools are not: the chain is not done.
    world.cluster("m0").version = v("1.31.2");
    assert_eq!(world.standing("m0").code(), "Eligible");
}

#[test]
fn e40_the_target_channel_stays_on_its_minor() {
    let world = world(target(30, false), &["1.30.5", "1.31.1"]);
    assert_eq!((world.code(), world.standing("m1").code()), ("NothingToDo", "AtTarget"));
}

#[test]
fn e43_what_is_asked_for_by_hand_has_the_same_name_each_time_also_while_disabled() {
    let mut world = world(Channel::Rapid, &["1.31.2", "1.32.0"]);
    world.profile.disabled = true;
    let one = world.on_demand().expect("a run").runs;
    assert_eq!(world.on_demand().expect("a run").runs, one);
    assert_eq!(world.code(), "Disabled");
    world.profile.disabled = false;
    assert_eq!(world.trigger().runs, one, "the profile itself would make that one");
    let mut more = world;
    more.join("m9", cluster("weu", "1.31.2", &[IMAGE]));
    assert_ne!(more.on_demand().expect("a run").runs, one, "late joiners get a run of their own");
}

#[test]
fn e44_a_share_of_the_regions_is_waited_for() {
    let mut world = World::new(Channel::Rapid);
    for region in ["a", "b", "c"] {
        world.publish(region, &["1.32.0"]);
        world.join(region, cluster(region, "1.32.0", &[IMAGE]));
    }
    world.profile.trigger.regions_percent = 60;
    world.publish("a", &["1.32.0", "1.32.1"]);
    let waits = world.reason();
    assert!(waits.code == "Regions" && waits.message.contains("1 of the 3 regions"), "{waits:?}");
    assert_eq!(world.on_demand().expect("by hand").runs[0].goal.version(), Some(VersionTarget::Exact(v("1.32.1"))));
    world.publish("c", &["1.32.1"]);
    assert_eq!(world.make().runs[0].goal.version(), Some(VersionTarget::Exact(v("1.32.1"))));
    assert_eq!(world.standing("b").code(), "RegionLacks");
    let mut original = world;
    original.memory = flotta_engine::channels::Memory::default();
    original.profile.trigger.regions_percent = 0;
    original.publish("c", &["1.32.0"]);
    assert_eq!(original.code(), "Trigger", "one region is enough");
}

#[test]
fn ext_a_version_soaks_and_an_older_ripe_one_is_gone_to_meanwhile() {
    let mut world = World::new(Channel::Rapid);
    world.publish("weu", &["1.32.0"]);
    world.join("m", cluster("weu", "1.32.0", &[IMAGE]));
    world.profile.trigger.soak_seconds = 7 * DAY as u32;
    world.now = at(10 * DAY);
    world.publish("weu", &["1.32.0", "1.32.1"]);
    let waits = world.reason();
    assert_eq!((waits.code, waits.until), ("Soak", Some(at(17 * DAY))));
    world.now = at(15 * DAY);
    world.publish("weu", &["1.32.0", "1.32.1", "1.32.2"]);
    world.now = at(17 * DAY);
    assert_eq!(world.make().runs[0].goal.version(), Some(VersionTarget::Exact(v("1.32.1"))));
}

#[test]
fn ext_runs_are_made_in_the_hours_of_the_calendar() {
    let mut world = world(Channel::Rapid, &["1.31.2"]);
    let fields = CalendarFields {
        days: vec![Weekday::Monday],
        start_minute: 8 * 60,
        duration_hours: 4,
        local: LocalTime::Offset(0),
    };
    world.profile.trigger.calendar = Some(Calendar::try_from(fields).expect("calendar"));
    world.now = "2026-12-01T12:00:00Z".parse().expect("a Tuesday");
    let waits = world.reason();
    assert_eq!((waits.code, waits.until), ("Calendar", Some("2026-12-07T08:00:00Z".parse().expect("Monday"))));
    world.now = waits.until.expect("until");
    assert_eq!(world.code(), "Trigger");
}

#[test]
fn choice_the_next_target_waits_for_the_last_run_and_is_superseded_by_a_newer_one() {
    let mut world = world(Channel::Stable, &["1.31.1"]);
    let first = world.make().runs[0].name.to_string();
    world.active = Some(first.clone());
    world.publish("weu", &["1.31.3", "1.32.0"]);
    let waits = world.reason();
    assert!(
        waits.code == "RunActive" && waits.message.contains(&first) && waits.message.contains("1.31.3"),
        "{waits:?}"
    );
    world.publish("weu", &["1.31.3", "1.31.4", "1.32.0"]);
    world.active = None;
    assert_eq!(world.make().runs[0].goal.version(), Some(VersionTarget::Exact(v("1.31.4"))));
}

#[test]
fn choice_a_failed_target_is_not_made_again_and_a_late_joiner_gets_it() {
    let mut world = world(Channel::Stable, &["1.31.1"]);
    world.make();
    assert_eq!(world.code(), "AlreadyTried");
    world.join("late", cluster("weu", "1.31.1", &[IMAGE]));
    let trigger = world.make();
    assert_eq!(trigger.members, ["late"].map(name).to_vec());
    assert_eq!(world.code(), "AlreadyTried");
}

#[test]
fn choice_a_flapping_catalogue_makes_no_second_run_and_nothing_goes_back() {
    let mut world = world(Channel::Stable, &["1.31.1"]);
    world.make();
    for _ in 0..3 {
        world.publish("weu", &["1.31.1", "1.32.0"]);
        world.join(&format!("x{}", world.members.len()), cluster("weu", "1.31.0", &[IMAGE]));
        assert_eq!(world.code(), "Withdrawn");
        world.publish("weu", &["1.31.1", "1.31.2", "1.32.0"]);
        let late: Vec<_> = world.make().members;
        assert_eq!(late.len(), 1, "only who joined since: {late:?}");
    }
    world.profile.channel = Channel::Rapid;
    assert_eq!(world.code(), "Trigger", "another channel begins anew");
}
