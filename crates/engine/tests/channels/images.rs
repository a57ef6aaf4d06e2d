//! Channels that follow node images.

use flotta_engine::channels::Trigger;
use flotta_model::{Channel, ImageSelection, UpgradeType};

use crate::world::{World, cluster, image};

const LINUX: [&str; 2] = ["AKSUbuntu-2204gen2containerd-202509.01.0", "AKSUbuntu-2204gen2containerd-202510.03.1"];
const WINDOWS: [&str; 2] =
    ["AKSWindows-2022-containerd-20348.2700.240911", "AKSWindows-2022-containerd-20348.3207.250214"];

fn world(channel: Channel) -> World {
    let mut world = World::new(channel);
    for region in ["a", "b"] {
        world.publish(region, &["1.32.6", "1.33.1"]);
        for text in [LINUX[0], WINDOWS[0]] {
            world.publish_image(region, text);
        }
    }
    world.join("one", cluster("a", "1.32.6", &[LINUX[0], WINDOWS[0]]));
    world.join("two", cluster("b", "1.33.1", &[LINUX[0]]));
    world
}

fn images(trigger: &Trigger) -> Vec<String> {
    let goal = &trigger.runs[0].goal;
    assert_eq!(goal.upgrade(), UpgradeType::NodeImageOnly);
    match goal.images() {
        Some(ImageSelection::Custom(images)) => images.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a9_node_images_go_to_the_newest_of_each_family_windows_by_their_own() {
    let mut world = world(Channel::NodeImage);
    assert_eq!(world.code(), "NothingToDo");
    world.publish_image("a", WINDOWS[1]);
    let trigger = world.make();
    assert_eq!(images(&trigger), [LINUX[0], WINDOWS[1]]);
    assert!(trigger.runs[0].name.as_str().starts_with("auto-aup-nodeimage-"), "{}", trigger.runs[0].name);
    assert_eq!((world.standing("one").code(), world.standing("two").code()), ("Eligible", "AtTarget"));
    world.publish_image("b", LINUX[1]);
    assert_eq!(images(&world.make()), [LINUX[1], WINDOWS[1]]);
    assert_eq!(world.standing("one").code(), "RegionLacks");
}

#[test]
fn a9_a_withdrawn_patch_does_not_matter_while_its_minor_is_supported() {
    let mut world = world(Channel::NodeImage);
    world.publish("a", &["1.32.7", "1.33.1"]);
    world.publish_image("a", LINUX[1]);
    assert_eq!(world.standing("one").code(), "Eligible", "1.32.6 is gone, 1.32 is not");
    world.publish("a", &["1.33.1"]);
    assert_eq!(world.standing("one").code(), "MinorUnsupported");
}

#[test]
fn a9_security_patches_are_for_linux_alone() {
    let mut world = world(Channel::SecurityPatch);
    world.publish_image("a", WINDOWS[1]);
    assert_eq!(world.code(), "NothingToDo");
    let patched = image(LINUX[0]).with_patch("2025-09-20".parse().expect("date"));
    for member in ["one", "two"] {
        world.cluster(member).pools[0].live_patch = Some(patched.clone());
    }
    assert_eq!(images(&world.make()), [patched.to_string()]);
    world.cluster("two").pools[0].image = Some(patched);
    assert_eq!(world.standing("two").code(), "AtTarget");
    world.publish_image("a", LINUX[1]);
    assert_eq!(images(&world.make()), [LINUX[1]], "a newer image has newer patches in it");
}

#[test]
fn choice_images_that_come_and_go_make_no_second_run() {
    let mut world = world(Channel::NodeImage);
    world.publish_image("a", LINUX[1]);
    world.make();
    let mut without = world;
    without.releases.regions.get_mut("a").expect("region").images.values_mut().for_each(|images| {
        images.retain(|release| release.image.to_string() != LINUX[1]);
    });
    assert_eq!(without.code(), "AlreadyTried");
}
