//! Node images that are chosen: Consistent over regions that differ, and Custom.

use std::time::Duration;

use flotta_engine::{
    Input, Plan, State,
    run::{Part, SkipTarget, Why},
};
use flotta_model::{Goal, ImageSelection, NodeImage, UpgradeType};
use flotta_orchestrator::RunRef;
use jiff::Timestamp;

use crate::World;

const FAMILY: &str = "AKSUbuntu-2204gen2containerd";

/// Two regions: `eastus` is a week behind `westeurope`, and catches up after three hours.
fn regions(behaviour: &str) -> String {
    format!(
        "
seed: 7
regions:
  westeurope:
    kubernetes: &versions [{{ minor: '1.32', patches: [1.32.6] }}, {{ minor: '1.33', patches: [1.33.1] }}]
    images: [{FAMILY}-202512.01.0, {FAMILY}-202512.08.0, {FAMILY}-202512.15.0]
  eastus:
    kubernetes: *versions
    images: [{FAMILY}-202512.01.0, {FAMILY}-202512.08.0, {{ is: {FAMILY}-202512.15.0, afterSeconds: 10800 }}]
behaviour: {{ {behaviour} }}
clusters:
  - {{ name: we, region: westeurope, version: 1.32.6, pools: [{{ name: p1, image: {FAMILY}-202512.01.0 }}] }}
  - {{ name: us, region: eastus, version: 1.32.6, pools: [{{ name: p1, image: {FAMILY}-202512.01.0 }}] }}
"
    )
}

fn image(version: &str) -> NodeImage {
    format!("{FAMILY}-{version}").parse().expect(version)
}

impl World {
    async fn image_run(&self, version: Option<&str>, selection: ImageSelection, accept_newer: bool) -> RunRef {
        let (upgrade, version) = match version {
            Some(version) => (UpgradeType::Full, Some(version.parse().expect("version"))),
            None => (UpgradeType::NodeImageOnly, None),
        };
        let goal = Goal::new(upgrade, version, Some(selection)).expect("goal").accepting_newer(accept_newer);
        let run = self.run_of("images", Plan::resolve(goal, None, &self.members()).expect("plan")).await;
        self.tell(&run, Input::Start).await.expect("started");
        run
    }

    /// The images that the run has chosen.
    async fn selected(&self, run: &RunRef) -> Option<Vec<NodeImage>> {
        self.see(run, |run| run.selected_images().map(<[NodeImage]>::to_vec)).await
    }

    /// The images that the pools of all clusters are on in the end, and what took them there.
    fn starts(&self) -> Vec<String> {
        let (_, accepted) = self.simulator.accepted(0, 100);
        let told = |start: &flotta_simulator::Accepted| {
            let name = start.cluster.rsplit('/').next().unwrap_or_default().to_owned();
            let target = start.target.clone().unwrap_or_default();
            format!("{name} {:?} {}", start.step, target.replace(FAMILY, ""))
        };
        accepted.iter().map(told).collect()
    }

    async fn images(&self) -> Vec<String> {
        let driver = crate::driver(&self.simulator, self.clock);
        let mut images = Vec::new();
        for member in self.members() {
            let seen = driver.observe(&member.cluster, flotta_drivers::Look::default()).await.expect("seen");
            let image = seen.pools[0].image.as_ref().expect("image").version().to_owned();
            images.push(format!("{} {image}", member.name));
        }
        images
    }

    async fn why(&self, run: &RunRef) -> Vec<Why> {
        self.see(run, |run| {
            run.waiting_on(Part::Run, Timestamp::UNIX_EPOCH).into_iter().map(|reason| reason.why).collect()
        })
        .await
    }

    async fn pass(&self, minutes: u64) {
        self.clock.pause(Duration::from_secs(60 * minutes)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a4_consistent_takes_every_region_to_the_newest_image_that_all_have() {
    let world = World::of(&regions("")).await;
    let run = world.image_run(None, ImageSelection::Consistent, false).await;
    world.until(&run, State::Completed).await;
    assert_eq!(world.selected(&run).await, Some(vec![image("202512.08.0")]));
    assert_eq!(world.images().await, ["we 202512.08.0", "us 202512.08.0"]);
    assert_eq!(world.starts(), ["we PoolImage -202512.08.0", "us PoolImage -202512.08.0"]);
}

#[tokio::test(start_paused = true)]
async fn a4_consistent_goes_with_the_version_in_one_request() {
    let world = World::of(&regions("")).await;
    let run = world.image_run(Some("1.33.1"), ImageSelection::Consistent, false).await;
    world.until(&run, State::Completed).await;
    assert_eq!(world.images().await, ["we 202512.08.0", "us 202512.08.0"]);
    assert_eq!(world.starts(), ["we ClusterVersion 1.33.1", "us ClusterVersion 1.33.1"]);
}

#[tokio::test(start_paused = true)]
async fn choice_regions_that_disagree_hold_the_run_until_they_agree_where_images_cannot_be_pinned() {
    let mut world = World::of(&regions("pinImages: false")).await;
    let run = world.image_run(None, ImageSelection::Consistent, false).await;
    for _ in 0..8 {
        world.pass(20).await;
        assert_eq!(world.see(&run, |run| run.state()).await, State::Pending);
        let why = world.why(&run).await;
        let told = matches!(&why[..], [Why::ImagesApart(apart)]
            if apart[0].to_string() == format!("{FAMILY}: eastus has 202512.08.0, westeurope has 202512.15.0"));
        assert!(told, "{why:?}");
        assert_eq!((world.starts(), world.selected(&run).await), (vec![], None));
        world.restart().await;
    }
    world.until(&run, State::Completed).await;
    assert_eq!(world.selected(&run).await, Some(vec![image("202512.15.0")]));
    assert_eq!(world.images().await, ["we 202512.15.0", "us 202512.15.0"]);
    assert_eq!(world.starts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a4_what_was_chosen_stays_chosen_when_regions_move_on_and_the_process_is_killed() {
    let mut world = World::of(&regions("")).await;
    let run = world.image_run(None, ImageSelection::Consistent, false).await;
    while world.starts().is_empty() {
        world.pass(1).await;
    }
    world.tell(&run, Input::Stop).await.expect("stopped");
    world.until(&run, State::Stopped).await;
    world.restart().await;
    world.pass(240).await;
    world.tell(&run, Input::Start).await.expect("started again");
    world.until(&run, State::Completed).await;
    assert_eq!(world.images().await, ["we 202512.08.0", "us 202512.08.0"]);
}

#[tokio::test(start_paused = true)]
async fn a4_whoever_is_skipped_has_no_say_in_the_images() {
    let world = World::of(&regions("pinImages: false")).await;
    let run = world.image_run(None, ImageSelection::Consistent, false).await;
    world.until(&run, State::Pending).await;
    world.pass(5).await;
    world.tell(&run, Input::Skip(vec![SkipTarget::Member("us".parse().expect("name"))])).await.expect("skipped");
    world.pass(1).await;
    assert_eq!(world.selected(&run).await, Some(vec![image("202512.15.0")]), "at once, not when it is looked at next");
    world.until(&run, State::Completed).await;
    assert_eq!(world.starts(), ["we PoolImage -202512.15.0"]);
}

#[tokio::test(start_paused = true)]
async fn a4_newer_images_will_do_where_the_run_says_so() {
    let world = World::of(&regions("pinImages: false")).await;
    let run = world.image_run(None, ImageSelection::Consistent, true).await;
    world.until(&run, State::Completed).await;
    assert_eq!(world.selected(&run).await, Some(vec![image("202512.08.0")]));
    assert_eq!(world.images().await, ["we 202512.15.0", "us 202512.08.0"]);
}

#[tokio::test(start_paused = true)]
async fn a4_clusters_out_of_reach_have_no_say_in_the_images() {
    let faults = "faults: [{ cluster: us, times: 0, fault: { failBefore: { status: 503 } } }]";
    let world = World::of(&format!("{}{faults}", regions("pinImages: false"))).await;
    let run = world.image_run(None, ImageSelection::Consistent, false).await;
    while world.selected(&run).await.is_none() {
        world.pass(1).await;
    }
    assert_eq!(world.selected(&run).await, Some(vec![image("202512.15.0")]));
}

#[tokio::test(start_paused = true)]
async fn a4_e58_custom_images_are_waited_for_where_their_region_lacks_them() {
    let mut world = World::of(&regions("")).await;
    let run = world.image_run(None, ImageSelection::Custom(vec![image("202512.15.0")]), false).await;
    world.until(&run, State::Pending).await;
    assert_eq!(world.starts(), ["we PoolImage -202512.15.0"]);
    world.restart().await;
    world.until(&run, State::Completed).await;
    assert_eq!(world.images().await, ["we 202512.15.0", "us 202512.15.0"]);
}
