//! Node images of a run over HTTP: Latest, Consistent, Custom (`behaviour.md` A4).

use serde_json::{Value, json};

use crate::harness::{VERSION, World, members_of, state_of};

const FAMILY: &str = "AKSUbuntu-2204gen2containerd";

/// Two regions, of which `eastus` is a week behind until five hours have passed; `bad` fails once.
fn cloud(behaviour: &str) -> String {
    format!(
        "
seed: 7
behaviour: {{ throttling: false, {behaviour} }}
regions:
  westeurope:
    kubernetes: &versions [{{ minor: '1.25', patches: [1.25.5] }}, {{ minor: '1.26', patches: [1.26.1] }}]
    images: [{FAMILY}-202302.06.0, {FAMILY}-202302.13.0, {FAMILY}-202302.20.0]
  eastus:
    kubernetes: *versions
    images: [{FAMILY}-202302.06.0, {FAMILY}-202302.13.0, {{ is: {FAMILY}-202302.20.0, afterSeconds: 18000 }}]
clusters:
  - {{ name: we, region: westeurope, version: 1.25.5, pools: [{{ name: p1, image: {FAMILY}-202302.06.0 }}] }}
  - {{ name: us, region: eastus, version: 1.25.5, pools: [{{ name: p1, image: {FAMILY}-202302.06.0 }}] }}
  - {{ name: bad, region: westeurope, version: 1.25.5, pools: [{{ name: p1, image: {FAMILY}-202302.06.0 }}], fails: {{ attempts: 1 }} }}
"
    )
}

async fn world(behaviour: &str, members: &[&str]) -> World {
    let world = World::without_fleet(&cloud(behaviour)).await;
    world.put("", json!({"location": "westeurope"})).await.with(201);
    for member in members {
        world.join(member, "a").await;
    }
    world
}

/// A run of node images alone that bears failures.
fn images(selection: Value) -> Value {
    let group = json!({"name": "a", "maxConcurrency": "5"});
    json!({"properties": {
        "managedClusterUpdate": {"upgrade": {"type": "NodeImageOnly"}, "nodeImageSelection": selection},
        "strategy": {"stages": [{"name": "one", "maxAllowedFailures": "100%", "groups": [group]}]},
    }})
}

fn custom(versions: &[&str]) -> Value {
    let versions: Vec<Value> =
        versions.iter().map(|version| json!({"version": format!("{FAMILY}-{version}")})).collect();
    json!({"type": "Custom", "customNodeImageVersions": versions})
}

/// The versions of the images that a run shows as selected.
fn selected(run: &Value) -> Vec<&str> {
    let selected = &run["properties"]["status"]["nodeImageSelection"]["selectedNodeImageVersions"];
    let images = selected.as_array().into_iter().flatten();
    images.filter_map(|image| image["version"].as_str()?.rsplit('-').next()).collect()
}

impl World {
    /// The images that clusters were moved to, by what the cloud accepted.
    fn moved(&self) -> Vec<String> {
        let mut moved: Vec<String> = self
            .simulator
            .accepted(0, 1000)
            .1
            .iter()
            .map(|start| {
                let name = start.cluster.rsplit('/').next().unwrap_or_default();
                let target = start.target.clone().unwrap_or_default();
                format!("{name} {}", target.rsplit('-').next().unwrap_or_default())
            })
            .collect();
        moved.sort_unstable();
        moved
    }
}

#[tokio::test(start_paused = true)]
async fn a4_consistent_moves_all_regions_to_one_image_and_shows_it_once_it_is_chosen() {
    let world = world("", &["we", "us"]).await;
    let made = world.put("/updateRuns/r1", images(json!({"type": "Consistent"}))).await.with(201);
    assert_eq!(made["properties"]["status"]["nodeImageSelection"], json!({}));
    assert_eq!(made["properties"]["managedClusterUpdate"]["nodeImageSelection"], json!({"type": "Consistent"}));
    world.start("r1").await;
    let done = world.until("r1", "Completed").await;
    assert_eq!(selected(&done), ["202302.13.0"]);
    assert_eq!(world.moved(), ["us 202302.13.0", "we 202302.13.0"]);
    // To the same client that made it by an older version nothing else is shown.
    let old = world.by("2023-10-15", "GET", "/updateRuns/r1", None).await.with(200);
    assert_eq!(selected(&old), ["202302.13.0"]);
}

#[tokio::test(start_paused = true)]
async fn a4_custom_shows_its_images_from_the_start_and_latest_none() {
    let world = world("", &["we"]).await;
    let made = world.put("/updateRuns/r1", images(custom(&["202302.13.0"]))).await.with(201);
    assert_eq!(selected(&made), ["202302.13.0"]);
    world.start("r1").await;
    assert_eq!(selected(&world.until("r1", "Completed").await), ["202302.13.0"]);
    world.put("/updateRuns/r2", images(json!({"type": "Latest"}))).await.with(201);
    world.start("r2").await;
    let latest = world.until("r2", "Completed").await;
    assert_eq!(latest["properties"]["status"]["nodeImageSelection"], json!({}));
    // Never back: the pool is ahead by now.
    world.put("/updateRuns/r3", images(custom(&["202302.13.0"]))).await.with(201);
    world.start("r3").await;
    let ahead = world.until("r3", "Skipped").await;
    let message = ahead.pointer("/properties/status/stages/0/groups/0/members/0/message").expect("message");
    assert!(message.as_str().expect("text").contains("at or ahead of node image"), "{message}");
    assert_eq!(world.moved(), ["we 202302.13.0", "we 202302.20.0"]);
}

#[tokio::test(start_paused = true)]
async fn choice_a_run_of_regions_that_disagree_is_pending_with_the_reason_and_survives_a_restart() {
    let mut world = world("pinImages: false", &["we", "us"]).await;
    world.put("/updateRuns/r1", images(json!({"type": "Consistent"}))).await.with(201);
    world.start("r1").await;
    for _ in 0..3 {
        world.pass(3600).await;
        let seen = world.get("/updateRuns/r1?explain=true").await;
        assert_eq!((state_of(&seen), selected(&seen), world.accepted()), ("Pending", vec![], 0));
        let waits = seen["properties"]["status"]["waitingOn"].to_string();
        for part in ["eastus", "202302.13.0", "westeurope", "202302.20.0"] {
            assert!(waits.contains(part), "{waits}");
        }
        world = world.restarted().await;
    }
    let done = world.until("r1", "Completed").await;
    assert_eq!(selected(&done), ["202302.20.0"]);
}

#[tokio::test(start_paused = true)]
async fn ext_newer_images_will_do_if_the_run_says_so_and_unaware_clients_leave_that_alone() {
    let world = world("pinImages: false", &["we", "us"]).await;
    let accepting = json!({"type": "Consistent", "acceptNewer": true});
    let made = world.put("/updateRuns/r1", images(accepting.clone())).await.with(201);
    assert_eq!(made["properties"]["managedClusterUpdate"]["nodeImageSelection"], accepting);
    let unaware = images(json!({"type": "Consistent"}));
    let kept = world.by("2026-06-01", "PUT", "/updateRuns/r1", Some(unaware.clone())).await.with(200);
    assert_eq!(kept["properties"]["managedClusterUpdate"]["nodeImageSelection"], accepting);
    world.start("r1").await;
    world.pass(60).await;
    world.by(VERSION, "PUT", "/updateRuns/r1", Some(unaware)).await.with(200);
    let done = world.until("r1", "Completed").await;
    assert_eq!(selected(&done), ["202302.13.0"]);
    assert_eq!(world.moved(), ["us 202302.13.0", "we 202302.20.0"]);
}

#[tokio::test(start_paused = true)]
async fn e02_a_retry_goes_to_the_images_that_the_old_run_came_to() {
    let world = world("", &["us", "bad"]).await;
    let accepting = json!({"type": "Consistent", "acceptNewer": true});
    world.put("/updateRuns/r1", images(accepting.clone())).await.with(201);
    world.start("r1").await;
    let done = world.until("r1", "Completed").await;
    let states: Vec<String> = members_of(&done).into_iter().map(|(name, state)| format!("{name} {state}")).collect();
    assert_eq!((states, selected(&done)), (vec!["us Completed".into(), "bad Failed".into()], vec!["202302.13.0"]));
    // Without `us` the newest that all have would be another one; so it would once `eastus` has caught up.
    let made = world.on("POST", "/updateRuns/r1/retry", &[], json!({"name": "again"})).await.with(201);
    assert_eq!(selected(&made), ["202302.13.0"], "known before it starts");
    assert_eq!(made["properties"]["managedClusterUpdate"]["nodeImageSelection"], accepting);
    let said = world.put("/updateRuns/again", made.clone()).await.with(200);
    assert_eq!(selected(&said), ["202302.13.0"]);
    world.start("again").await;
    let done = world.until("again", "Completed").await;
    assert_eq!((members_of(&done).len(), selected(&done)), (1, vec!["202302.13.0"]));
    assert_eq!(world.moved().last().map(String::as_str), Some("us 202302.13.0"));
}
