//! Which node images clusters go to (`behaviour.md` A4, D2, E4).

use flotta_engine::{
    Event, Input, Plan, Work,
    run::{Part, State, Why},
};
use flotta_model::{Goal, ImageSelection, NodeImage, UpgradeType};

use crate::bench::{Bench, member};

const FAMILY: &str = "AKSUbuntu-2204gen2containerd";

/// An image of October 2025.
fn image(day: u32) -> NodeImage {
    format!("{FAMILY}-202510.{day:02}.0").parse().expect("image")
}

fn goal(images: ImageSelection) -> Goal {
    Goal::new(UpgradeType::NodeImageOnly, None, Some(images)).expect("goal")
}

/// A cluster's region, its pool's image, the newest there, and what can be pinned.
fn put(bench: &mut Bench, member: &str, region: &str, days: (u32, u32), offered: &[u32]) {
    let cluster = bench.cluster(member);
    cluster.location = region.into();
    let pool = &mut cluster.pools[0];
    (pool.image, pool.latest_image) = (Some(image(days.0)), Some(image(days.1)));
    pool.offered_images = offered.iter().map(|day| image(*day)).collect();
}

/// Two members, in regions whose newest images are of different days.
fn two_regions(goal: Goal, offered: [&[u32]; 2]) -> Bench {
    let mut bench = Bench::with_goal(goal, &["s / a mc=2 x2"]);
    put(&mut bench, "a-0", "westeurope", (1, 12), offered[0]);
    put(&mut bench, "a-1", "eastus", (1, 17), offered[1]);
    bench
}

#[test]
fn a4_consistent_is_chosen_when_the_run_starts_and_kept_for_its_retries() {
    let mut bench = two_regions(goal(ImageSelection::Consistent), [&[1, 12], &[1, 12, 17]]);
    assert_eq!((bench.run.work(), bench.run.selected_images()), (vec![], None));
    bench.start();
    bench.check("Pending; s Pending; a Pending NN");
    assert_eq!((bench.run.work(), bench.why(Part::Run)), (vec![Work::ResolveImages], vec![Why::ResolvingImages]));
    assert_eq!(bench.why_member("a-0"), Why::ResolvingImages);
    assert!(bench.read_images().contains(&Event::ImagesSelected(vec![image(12)])));
    bench.check("Running; s Running; a Running RR");
    put(&mut bench, "a-1", "eastus", (1, 19), &[17, 19]);
    assert_eq!(bench.read_images(), [], "it is chosen once");
    bench.fail("a-0");
    bench.fail("a-1");
    bench.start();
    assert_eq!(bench.run.selected_images(), Some(&[image(12)][..]));
    assert!(!bench.run.work().contains(&Work::ResolveImages));
}

#[test]
fn a4_a_run_whose_regions_disagree_is_pending_before_anyone_moves_and_says_what_each_has() {
    let mut bench = two_regions(goal(ImageSelection::Consistent), [&[], &[]]);
    bench.start();
    bench.read_images();
    bench.check("Pending; s Pending; a Pending NN");
    let reasons = bench.run.waiting_on(Part::Run, bench.now);
    let Why::ImagesApart(apart) = &reasons[0].why else { panic!("{reasons:?}") };
    assert_eq!(apart[0].to_string(), format!("{FAMILY}: eastus has 202510.17.0, westeurope has 202510.12.0"));
    assert_eq!(reasons[0].until, Some(bench.now + jiff::SignedDuration::from_mins(10)));
    assert_eq!((bench.why_member("a-1"), bench.run.work()), (reasons[0].why.clone(), vec![Work::ResolveImages]));
    assert_eq!(bench.read_images(), [], "no news");
    bench.advance(700);
    assert_eq!(
        bench.run.waiting_on(Part::Run, bench.now)[0].until,
        reasons[0].until.map(|at| at + jiff::SignedDuration::from_mins(10))
    );
    put(&mut bench, "a-0", "westeurope", (1, 17), &[]);
    bench.read_images();
    bench.check("Running; s Running; a Running RR");
    assert_eq!(bench.run.selected_images(), Some(&[image(17)][..]));
}

#[test]
fn a4_accept_newer_takes_the_oldest_of_what_is_newest() {
    let mut bench = two_regions(goal(ImageSelection::Consistent).accepting_newer(true), [&[], &[]]);
    bench.start();
    assert!(bench.read_images().contains(&Event::ImagesSelected(vec![image(12)])));
    bench.check("Running; s Running; a Running RR");
}

#[test]
fn a4_images_are_known_without_a_look_where_they_are_given() {
    let custom = Bench::with_goal(goal(ImageSelection::Custom(vec![image(12)])), &["s / a x1"]);
    assert_eq!(custom.run.selected_images(), Some(&[image(12)][..]), "they are shown before the start");
    let plan = Plan::resolve(goal(ImageSelection::Consistent), None, &[member("a-0", None, &[])]).expect("plan");
    let mut again = Bench::of_plan(Plan { images: Some(vec![image(17)]), ..plan });
    for bench in [&mut again, &mut { custom }] {
        bench.start();
        assert_eq!(bench.run.state(), State::Running);
    }
    assert_eq!(again.run.selected_images(), Some(&[image(17)][..]), "those of the run before");
    let mut latest = Bench::with_goal(goal(ImageSelection::Latest), &["s / a x1"]);
    latest.start();
    assert_eq!(latest.tell(Input::ImagesResolved { pools: vec![] }), []);
    assert_eq!(latest.run.selected_images(), None);
    let version = Some("1.33.2".parse().expect("version"));
    let plane = Goal::new(UpgradeType::ControlPlaneOnly, version, Some(ImageSelection::Consistent)).expect("goal");
    let mut plane = Bench::with_goal(plane, &["s / a x1"]);
    plane.start();
    assert_eq!(plane.run.state(), State::Running, "a control plane has no images");
}
