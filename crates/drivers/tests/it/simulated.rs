//! The real driver on a simulated cloud, in process and under a virtual clock: with its request limits, its times and
//! its faults.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flotta_clock::Clock;
use flotta_drivers::{
    ClusterDriver, Intent, Look, Progress, Started, Trouble,
    aks::{AksConfig, AksDriver, Reach},
    token::{TokenSource, Tokens},
    transport::{Transport, router_transport},
};
use flotta_model::{Cluster, ClusterId, Fault, Hold, Step};
use flotta_simulator::{FleetFile, Options, Simulator};
use http::Request;
use tower::{ServiceExt, util::service_fn};

use crate::fake::clock;

const CLOUD: &str = r#"
seed: 7
regions:
  westeurope:
    kubernetes:
      - { minor: "1.34", preview: true, patches: ["1.34.0"] }
      - { minor: "1.33", patches: ["1.33.1", "1.33.2"] }
      - { minor: "1.32", default: true, patches: ["1.32.6", "1.32.7"] }
    images:
      - AKSUbuntu-2204gen2containerd-202508.20.1
      - AKSUbuntu-2204gen2containerd-202510.03.1
      - AKSWindows-2022-containerd-20348.3207.250214
    securityPatches: [2025-12-01]
clusters:
  - { name: failing, region: westeurope, version: "1.32.7", pools: [{ name: sys }], fails: { attempts: 1 } }
  - { name: foreign, region: westeurope, version: "1.32.7", pools: [{ name: sys }], foreign: { seconds: 600 } }
templates:
  - count: 24
    cluster:
      name: "c{n}"
      region: westeurope
      version: "1.32"
      pools:
        - { name: sys, image: AKSUbuntu-2204gen2containerd-202508.20.1 }
        - { name: win, osType: Windows, osSKU: Windows2022, mode: User, count: 1 }
"#;

struct Cloud {
    simulator: Arc<Simulator>,
    driver: AksDriver,
    clock: Clock,
    throttled: Arc<AtomicUsize>,
}

/// A cloud, with these faults.
async fn cloud(faults: &str) -> Cloud {
    let clock = clock();
    let fleet = FleetFile::parse(&format!("{CLOUD}\nfaults: {faults}")).expect("fleet file");
    let simulator = Simulator::new(fleet, clock, Options::default()).await.expect("simulator");
    let (inner, throttled) = (router_transport(simulator.router()), Arc::new(AtomicUsize::new(0)));
    let counter = throttled.clone();
    let transport = Transport::new(service_fn(move |request: Request<Bytes>| {
        let (inner, counter) = (inner.clone(), counter.clone());
        async move {
            let answer = inner.oneshot(request).await?;
            counter.fetch_add(usize::from(answer.status() == 429), Ordering::Relaxed);
            Ok(answer)
        }
    }));
    let tokens = Tokens::new(TokenSource::None, "r", transport.clone());
    let config = AksConfig::new("http://localhost:8080", Reach::Everything);
    let driver = AksDriver::new(config, transport, tokens, clock).expect("config");
    Cloud { simulator, driver, clock, throttled }
}

impl Cloud {
    fn id(&self, name: &str) -> ClusterId {
        let clusters = self.simulator.clusters();
        clusters.iter().find(|cluster| cluster.id.name() == name).expect(name).id.clone()
    }

    async fn see(&self, cluster: &ClusterId) -> Cluster {
        let look = Look { images: true, machines: true, ..Look::default() };
        loop {
            match self.driver.observe(cluster, look).await {
                Ok(seen) => return seen,
                Err(Trouble::Retry { .. }) => self.clock.pause(Duration::from_secs(5)).await,
                Err(trouble) => panic!("{trouble:?}"),
            }
        }
    }

    /// Decides from what is seen, starts, and follows to the end, as an owner of a run would.
    async fn carry_out(&self, cluster: &ClusterId, decide: impl Fn(&Cluster) -> Step) -> Result<Started, Fault> {
        let (intent, started) = 'decided: loop {
            let seen = self.see(cluster).await;
            let step = decide(&seen);
            let pool = step.pool().and_then(|name| seen.pools.iter().find(|pool| pool.name == name));
            let guard = pool.map_or(&seen.etag, |pool| &pool.etag).clone();
            assert!(guard.is_some());
            let mut intent = Intent {
                cluster: cluster.clone(),
                step,
                guard,
                at: self.clock.now(),
                recovering: false,
                not_after: None,
            };
            self.driver.permit(cluster, &intent.step).await;
            loop {
                match self.driver.start(&intent).await {
                    Ok(started) => break 'decided (intent, started),
                    Err(Trouble::Unknown(_)) => intent.recovering = true,
                    Err(Trouble::Retry { .. } | Trouble::Wait(Hold::OtherOperation(_))) => {
                        self.clock.pause(Duration::from_secs(30)).await;
                        break;
                    }
                    Err(Trouble::Permanent(fault)) => return Err(fault),
                    Err(trouble) => panic!("{trouble:?}"),
                }
            }
        };
        loop {
            match self.driver.poll(&intent, &started.operation).await {
                Ok(Progress::Running { after, .. }) => self.clock.pause(after).await,
                Ok(Progress::Succeeded) => return Ok(started),
                Ok(Progress::Failed(fault)) => return Err(fault),
                Err(Trouble::Retry { after, .. }) => self.clock.pause(after.unwrap_or(Duration::from_secs(15))).await,
                Err(trouble) => panic!("{trouble:?}"),
            }
        }
    }

    /// How often each start was accepted.
    fn accepted(&self) -> BTreeMap<(String, String, Option<String>), usize> {
        let mut counts = BTreeMap::new();
        for start in self.simulator.accepted(0, usize::MAX).1 {
            *counts.entry((start.cluster.to_lowercase(), format!("{:?}", start.step), start.pool)).or_default() += 1;
        }
        counts
    }
}

fn whole(version: &str) -> impl Fn(&Cluster) -> Step {
    move |seen| {
        Step::cluster(version.parse().expect("version"), seen.pools.iter().map(|pool| pool.name.clone()).collect())
    }
}

fn newest_image(seen: &Cluster) -> Step {
    let pool = &seen.pools[0];
    Step::PoolImage { pool: pool.name.clone(), image: pool.latest_image.clone().expect("newest image") }
}

/// The image of the first pool, with the newest patches on it.
fn patch(seen: &Cluster) -> Step {
    let pool = &seen.pools[0];
    Step::PoolPinned { pool: pool.name.clone(), image: pool.live_patch.clone().expect("patch") }
}

/// Cluster and pools to a version, with the first pool's image as it is.
fn whole_with_its_image(seen: &Cluster) -> Step {
    let pool = &seen.pools[0];
    Step::Cluster {
        version: "1.33.1".parse().expect("version"),
        pools: seen.pools.iter().map(|pool| pool.name.clone()).collect(),
        images: [(pool.name.clone(), pool.image.clone().expect("image"))].into(),
    }
}

fn pinned_to_newest(seen: &Cluster) -> Step {
    let pool = &seen.pools[0];
    Step::PoolPinned { pool: pool.name.clone(), image: pool.offered_images.last().expect("offered").clone() }
}

fn pool_behind_its_control_plane(seen: &Cluster) -> Step {
    let pool = &seen.pools[0];
    Step::PoolVersion { pool: pool.name.clone(), version: seen.version, image: pool.image.clone() }
}

#[tokio::test(start_paused = true)]
async fn a4_pins_and_patches_are_accepted_once_whatever_breaks_on_the_wire() {
    // Of c11 and c12 no write is ever answered; of c13 each is answered at the second attempt.
    let (lost, late) = ("dropAnswer", "{ failAfter: { status: 504 } }");
    let mut rules = Vec::new();
    for call in ["putCluster", "putPool"] {
        rules.push(format!("{{ cluster: c11, call: {call}, times: 0, fault: {lost} }}"));
        rules.push(format!("{{ cluster: c12, call: {call}, times: 0, fault: {late} }}"));
        for nth in [1, 3, 5] {
            let fault = "{ failBefore: { status: 503 } }";
            rules.push(format!("{{ cluster: c13, call: {call}, nth: {nth}, fault: {fault} }}"));
        }
    }
    let cloud = cloud(&format!("[{}]", rules.join(", "))).await;
    for n in 0..4 {
        let id = cloud.id(&format!("c1{n}"));
        let old = cloud.see(&id).await.pools[0].image.clone().expect("image");
        cloud.carry_out(&id, patch).await.expect("patch");
        let patched = old.with_patch("2025-12-01".parse().expect("date"));
        let seen = cloud.see(&id).await;
        assert_eq!((seen.pools[0].image.as_ref(), &seen.pools[0].live_patch), (Some(&patched), &None));
        cloud.carry_out(&id, whole_with_its_image).await.expect("version");
        let alone = |_: &Cluster| Step::ControlPlane { version: "1.33.2".parse().expect("version") };
        cloud.carry_out(&id, alone).await.expect("control plane");
        cloud.carry_out(&id, pool_behind_its_control_plane).await.expect("pool");
        let seen = cloud.see(&id).await;
        let pool = &seen.pools[0];
        assert_eq!((pool.version, pool.image.as_ref()), ("1.33.2".parse().expect("version"), Some(&patched)));
        cloud.carry_out(&id, pinned_to_newest).await.expect("image");
        let seen = cloud.see(&id).await;
        assert_eq!(seen.pools[0].image, seen.pools[0].latest_image);
        assert!(seen.settled_well() && seen.pools[0].lagging_nodes == 0);
    }
    let accepted = cloud.accepted();
    assert_eq!(accepted.len(), 4 * 5, "{accepted:#?}");
    assert!(accepted.values().all(|count| *count == 1), "{accepted:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_goes_up_by_image_control_plane_and_pools() {
    let cloud = cloud("[]").await;
    let id = cloud.id("c1");
    let seen = cloud.see(&id).await;
    assert_eq!((seen.version.to_string(), seen.location.as_str()), ("1.32.7".into(), "westeurope"));
    let look = Look { target: Some("1.33.2".parse().expect("version")), ..Look::default() };
    let behind = cloud.driver.observe(&id, look).await.expect("seen");
    assert!(
        behind.upgrades.contains(&"1.33.2".parse().expect("version"))
            && !behind.upgrades.iter().any(|version| version.minor == 34)
    );
    let catalogue = cloud.driver.catalogue(&id, &seen.location).await.expect("catalogue");
    assert_eq!(catalogue.newest_patch(1, 33), Some("1.33.2".parse().expect("version")));

    assert!(!cloud.carry_out(&id, newest_image).await.expect("image").adopted);
    let seen = cloud.see(&id).await;
    assert_eq!(seen.pools[0].image, seen.pools[0].latest_image);
    let alone = |_: &Cluster| Step::ControlPlane { version: "1.33.2".parse().expect("version") };
    cloud.carry_out(&id, alone).await.expect("control plane");
    let seen = cloud.see(&id).await;
    assert_eq!((seen.version.to_string(), seen.pools[1].version.to_string()), ("1.33.2".into(), "1.32.7".into()));
    let pool = |_: &Cluster| Step::pool_version("win".into(), "1.33.2".parse().expect("version"));
    cloud.carry_out(&id, pool).await.expect("pool");
    cloud.carry_out(&id, whole("1.33.2")).await.expect("the rest");
    let seen = cloud.see(&id).await;
    assert!(
        seen.settled_well() && seen.pools.iter().all(|pool| pool.version == seen.version && pool.lagging_nodes == 0)
    );
    assert_eq!(cloud.accepted().values().sum::<usize>(), 4);
}

#[tokio::test(start_paused = true)]
async fn e03_e55_an_upgrade_that_fails_is_sent_again_and_one_in_the_way_is_waited_for() {
    let cloud = cloud("[]").await;
    let failing = cloud.id("failing");
    let fault = cloud.carry_out(&failing, whole("1.33.2")).await.expect_err("fails once");
    let told = fault.message.starts_with("pool 'sys': ") && fault.message.contains("budget shop/web lets no pod go");
    assert!(fault.code == "PodDrainFailure" && told, "{fault}");
    // The model shows the target already, and failed: the same step once more sets it right.
    let seen = cloud.see(&failing).await;
    assert!(seen.version.to_string() == "1.33.2" && !seen.settled_well(), "{seen:?}");
    cloud.carry_out(&failing, whole("1.33.2")).await.expect("the second attempt");
    assert!(cloud.see(&failing).await.settled_well());

    let start = cloud.clock.now();
    let foreign = cloud.id("foreign");
    assert!(!cloud.carry_out(&foreign, whole("1.33.2")).await.expect("after the other").adopted);
    assert!(cloud.clock.now().duration_since(start).as_secs() > 0);
    let fault = cloud.carry_out(&foreign, whole("1.31.1")).await.expect_err("never down");
    assert!(!fault.code.is_empty());
}

#[tokio::test(start_paused = true)]
async fn whatever_breaks_on_the_wire_each_step_is_accepted_once_and_no_limit_is_hit() {
    let mut faults = Vec::new();
    for (index, fault) in [
        "dropAnswer",
        "{ failAfter: { status: 504 } }",
        "{ failBefore: { status: 503 } }",
        "{ delayAnswer: { seconds: 300 } }",
    ]
    .iter()
    .enumerate()
    {
        for call in ["putCluster", "upgradeNodeImage", "getCluster", "getOperation"] {
            faults.push(format!("{{ cluster: \"c{}*\", call: {call}, fault: {fault} }}", index + 1));
        }
    }
    let cloud = Arc::new(cloud(&format!("[{}]", faults.join(", "))).await);
    let upgrades = (1..=24).map(|n| {
        let cloud = cloud.clone();
        tokio::spawn(async move {
            let id = cloud.id(&format!("c{n}"));
            cloud.carry_out(&id, newest_image).await.unwrap_or_else(|fault| panic!("c{n}: {fault}"));
            cloud.carry_out(&id, whole("1.33.2")).await.unwrap_or_else(|fault| panic!("c{n}: {fault}"));
            let seen = cloud.see(&id).await;
            assert!(seen.settled_well() && seen.version == "1.33.2".parse().expect("version"));
        })
    });
    for upgrade in futures::future::join_all(upgrades).await {
        upgrade.expect("upgraded");
    }
    let accepted = cloud.accepted();
    assert_eq!(accepted.len(), 48, "{accepted:#?}");
    assert!(accepted.values().all(|count| *count == 1), "{accepted:#?}");
    assert_eq!(cloud.throttled.load(Ordering::Relaxed), 0);
}
