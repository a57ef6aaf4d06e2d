//! Auto-upgrade profiles, chained runs, campaigns and releases, from the request to what the cloud accepts.

use serde_json::{Value, json};

use crate::{
    examples::reference,
    harness::{CLUSTERS, FLEET, World, full, members_of, stages, state_of},
};

/// Two regions; the second gets 1.26.2 ten days later, and both a new image after twenty.
const CLOUD: &str = r"
seed: 7
behaviour: { throttling: false }
regions:
  westeurope:
    kubernetes:
      - { minor: '1.25', patches: [1.25.5] }
      - { minor: '1.26', patches: [1.26.1, { is: 1.26.2, afterSeconds: 864000 }] }
      - { minor: '1.27', preview: true, patches: [1.27.0] }
    images: [AKSUbuntu-2204gen2containerd-202303.06.0, { is: AKSUbuntu-2204gen2containerd-202303.20.0, afterSeconds: 1728000 }]
  eastus:
    kubernetes:
      - { minor: '1.25', patches: [1.25.5] }
      - { minor: '1.26', patches: [1.26.1, { is: 1.26.2, afterSeconds: 1728000 }] }
    images: [AKSUbuntu-2204gen2containerd-202303.06.0, { is: AKSUbuntu-2204gen2containerd-202303.20.0, afterSeconds: 1728000 }]
clusters:
  - { name: w1, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: e1, region: eastus, version: 1.26.1, pools: [{ name: p1 }] }
";

const DAY: u64 = 86_400;

async fn world() -> World {
    let world = World::without_fleet(CLOUD).await;
    world.put("", json!({"location": "westeurope"})).await.with(201);
    world.join("w1", "a").await;
    world.join("e1", "a").await;
    world
}

fn profile(properties: Value) -> Value {
    json!({ "properties": properties })
}

async fn runs(world: &World) -> Vec<Value> {
    world.get("/updateRuns").await["value"].as_array().expect("list").clone()
}

fn names(runs: &[Value]) -> Vec<&str> {
    runs.iter().map(|run| run["name"].as_str().expect("name")).collect()
}

/// Time passes until there are so many runs, and the last of them has ended.
async fn until_runs(world: &World, count: usize) -> Vec<Value> {
    for _ in 0..20_000 {
        let runs = runs(world).await;
        let ended = |run: &Value| ["Completed", "Skipped", "Failed"].contains(&state_of(run));
        if runs.len() >= count && runs.iter().all(ended) {
            assert_eq!(runs.len(), count, "{:?}", names(&runs));
            return runs;
        }
        world.pass(300).await;
    }
    panic!("never {count} runs: {:?}", names(&runs(world).await));
}

#[tokio::test(start_paused = true)]
async fn e36_a_profile_catches_up_and_follows_what_appears_without_being_told() {
    let world = world().await;
    let created = world.put("/autoUpgradeProfiles/aup", profile(json!({"channel": "Rapid"}))).await.with(201);
    assert_eq!(created["properties"].get("autoUpgradeProfileStatus"), None, "absent on a fresh profile");
    let first = until_runs(&world, 1).await;
    let run = &first[0];
    let name = run["name"].as_str().expect("name");
    assert!(name.starts_with("auto-aup-rapid-1-26-1-"), "{name}");
    assert_eq!(run["properties"]["autoUpgradeProfileId"], format!("{FLEET}/autoUpgradeProfiles/aup"));
    let moved = [("w1".to_owned(), "Completed".to_owned()), ("e1".to_owned(), "Skipped".to_owned())];
    assert_eq!(members_of(run), moved);
    let status = world.get("/autoUpgradeProfiles/aup").await["properties"]["autoUpgradeProfileStatus"].take();
    assert_eq!(
        (&status["lastTriggerStatus"], &status["lastTriggerUpgradeVersions"]),
        (&json!("Succeeded"), &json!(["1.26.1"]))
    );
    assert!(status["lastTriggerMessage"].as_str().expect("message").contains(name), "{status}");

    // A patch that one region has for ten days before the other: the member there waits for it.
    world.pass(11 * DAY).await;
    let pending = runs(&world).await.pop().expect("run");
    assert!(pending["name"].as_str().expect("name").starts_with("auto-aup-rapid-1-26-2-"), "{}", pending["name"]);
    let waits =
        world.get(&format!("/updateRuns/{}/waitingOn?member=e1", pending["name"].as_str().expect("name"))).await;
    assert!(waits.to_string().contains("VersionNotInRegion"), "{waits}");
    let why = world.get("/autoUpgradeProfiles/aup/why").await;
    assert_eq!((&why["decision"], &why["code"], &why["run"]), (&json!("Wait"), &json!("RunActive"), &pending["name"]));
    let all = until_runs(&world, 2).await;
    assert_eq!(members_of(&all[1]).iter().filter(|(_, state)| state == "Completed").count(), 2);
    world.pass(5 * DAY).await;
    assert_eq!(runs(&world).await.len(), 2, "nothing is made twice");
    let why = world.get("/autoUpgradeProfiles/aup/why").await;
    assert_eq!(
        (&why["decision"], &why["code"], &why["versions"]),
        (&json!("Nothing"), &json!("NothingToDo"), &json!(["1.26.2"]))
    );
}

#[tokio::test(start_paused = true)]
async fn e36_what_was_missed_while_the_server_was_down_is_caught_up_with_one_run() {
    let world = world().await;
    world.put("/autoUpgradeProfiles/aup", profile(json!({"channel": "Rapid"}))).await.with(201);
    until_runs(&world, 1).await;
    let clock = world.clock;
    let orchestrator =
        world.restarted_after(async move { clock.pause(std::time::Duration::from_secs(30 * DAY)).await });
    let world = orchestrator.await;
    let all = until_runs(&world, 2).await;
    assert!(names(&all)[1].starts_with("auto-aup-rapid-1-26-2-"), "{:?}", names(&all));
}

#[tokio::test(start_paused = true)]
async fn e38_a_profile_of_node_images_makes_runs_of_custom_images() {
    let world = world().await;
    world.put("/autoUpgradeProfiles/img", profile(json!({"channel": "NodeImage"}))).await.with(201);
    world.pass(DAY).await;
    assert_eq!(runs(&world).await.len(), 0, "nobody is behind");
    let why = world.get("/autoUpgradeProfiles/img/why").await;
    assert_eq!((&why["code"], &why["members"][0]["standing"]), (&json!("NothingToDo"), &json!("AtTarget")));
    let all = until_runs(&world, 1).await;
    assert!(names(&all)[0].starts_with("auto-img-nodeimage-"), "{:?}", names(&all));
    let goal = &all[0]["properties"]["managedClusterUpdate"];
    let expect = json!({"upgrade": {"type": "NodeImageOnly"}, "nodeImageSelection": {"type": "Custom",
        "customNodeImageVersions": [{"version": "AKSUbuntu-2204gen2containerd-202303.20.0"}]}});
    assert_eq!(*goal, expect);
    assert!(members_of(&all[0]).iter().all(|(_, state)| state == "Completed"), "{:?}", members_of(&all[0]));
}

#[tokio::test(start_paused = true)]
async fn e43_generate_answers_with_the_run_that_is_there_also_for_a_disabled_profile() {
    let world = world().await;
    let disabled = profile(json!({"channel": "Stable", "disabled": true}));
    world.put("/autoUpgradeProfiles/aup", disabled).await.with(201);
    world.pass(DAY).await;
    assert_eq!(runs(&world).await.len(), 0, "it is disabled");
    let generate = "/autoUpgradeProfiles/aup/generateUpdateRun";
    let made = world.post(generate).await.with(200);
    assert_eq!(made["existing"], false);
    let id = made["id"].as_str().expect("id").to_owned();
    assert!(id.starts_with(&format!("{FLEET}/updateRuns/auto-aup-stable-1-25-5-")), "{id}");
    let before = world.get(&id[FLEET.len()..]).await;
    assert_eq!(state_of(&before), "NotStarted", "nobody started it");
    let again = world.post(generate).await.with(200);
    assert_eq!(again, json!({"id": id, "existing": true}));
    assert_eq!(world.get(&id[FLEET.len()..]).await, before, "untouched");

    let missing = world.post("/autoUpgradeProfiles/other/generateUpdateRun").await;
    assert_eq!(missing.refusal().0, 404);
    let target = json!({"channel": "TargetKubernetesVersion", "targetKubernetesVersion": "1.31", "disabled": true});
    world.put("/autoUpgradeProfiles/late", profile(target)).await.with(201);
    let nothing = world.post("/autoUpgradeProfiles/late/generateUpdateRun").await;
    assert_eq!((nothing.status, nothing.message().contains("1.31")), (409, true), "{}", nothing.message());
}

#[tokio::test(start_paused = true)]
async fn e42_profiles_can_be_made_changed_listed_and_taken_away() {
    let world = world().await;
    let body = profile(json!({"channel": "Stable", "disabled": true}));
    let created = world.put("/autoUpgradeProfiles/aup", body.clone()).await;
    let etag = created.body["eTag"].as_str().expect("etag").to_owned();
    assert_eq!(created.status, 201);
    let same = world.put("/autoUpgradeProfiles/aup", body.clone()).await.with(200);
    assert_eq!(same["properties"], created.body["properties"]);
    let stale = world.on("PUT", "/autoUpgradeProfiles/aup", &[("If-Match", &etag)], body.clone()).await;
    assert_eq!(stale.refusal().0, 412);
    let strategy = format!("{FLEET}/updateStrategies/none");
    let bad = profile(json!({"channel": "Stable", "updateStrategyId": strategy}));
    let refused = world.put("/autoUpgradeProfiles/bad", bad).await;
    assert_eq!(refused.refusal(), (400, "InvalidParameter", "properties.updateStrategyId"));
    let list = world.get("/autoUpgradeProfiles").await;
    assert_eq!(list["value"].as_array().expect("list").len(), 1);
    assert_eq!(world.by("2026-06-01", "PATCH", "/autoUpgradeProfiles/aup", None).await.status, 405);
    assert_eq!(world.delete("/autoUpgradeProfiles/aup").await.status, 200);
    assert_eq!(world.delete("/autoUpgradeProfiles/aup").await.status, 204);
    assert_eq!(world.by("2026-06-01", "GET", "/autoUpgradeProfiles/aup", None).await.refusal().0, 404);
}

#[tokio::test(start_paused = true)]
async fn a9_a_profile_whose_strategy_is_gone_tells_so_once_and_goes_on_when_it_is_back() {
    let world = world().await;
    let strategy = json!({"properties": {"strategy": stages(&[("one", &["a"])])}});
    world.put("/updateStrategies/s", strategy.clone()).await.with(201);
    let id = format!("{FLEET}/updateStrategies/s");
    let body = profile(json!({"channel": "Rapid", "updateStrategyId": id, "disabled": true}));
    world.put("/autoUpgradeProfiles/aup", body.clone()).await.with(201);
    world.delete("/updateStrategies/s").await.with(200);
    world.pass(60).await;
    let enabled = profile(json!({"channel": "Rapid", "updateStrategyId": id}));
    let refused = world.put("/autoUpgradeProfiles/aup", enabled.clone()).await;
    assert_eq!(refused.refusal().0, 400, "a strategy that is not there");
    world.put("/updateStrategies/s", strategy.clone()).await.with(201);
    world.put("/autoUpgradeProfiles/aup", enabled).await.with(200);
    world.delete("/updateStrategies/s").await.with(200);
    world.pass(2 * 3600).await;
    // Whichever came first, the deletion or the look: a run is made once the strategy is there.
    world.put("/updateStrategies/s", strategy).await.with(201);
    until_runs(&world, 1).await;
}

#[tokio::test(start_paused = true)]
async fn e39_control_planes_first_then_nodes_as_a_chain_that_starts_by_itself() {
    let world = world().await;
    let body = profile(json!({"channel": "Rapid", "trigger": {"upgradePath": "ControlPlaneFirst"}}));
    world.put("/autoUpgradeProfiles/aup", body).await.with(201);
    let all = until_runs(&world, 2).await;
    let types: Vec<&str> = all
        .iter()
        .map(|run| run["properties"]["managedClusterUpdate"]["upgrade"]["type"].as_str().expect("type"))
        .collect();
    assert_eq!(types, ["ControlPlaneOnly", "Full"]);
    assert_eq!(all[1]["properties"]["startAfter"], all[0]["name"]);
    assert_eq!(members_of(&all[1])[0], ("w1".to_owned(), "Completed".to_owned()), "its pools were left");
}

#[tokio::test(start_paused = true)]
async fn ext_a_run_starts_when_the_one_before_has_come_to_a_good_end() {
    let world = world().await;
    let after = |name: Option<&str>| {
        let mut body = full(Value::Null);
        body["properties"].as_object_mut().expect("object").remove("strategy");
        body["properties"]["startAfter"] = json!(name);
        body
    };
    let refused = world.put("/updateRuns/two", after(Some("one"))).await;
    assert_eq!(refused.refusal(), (400, "InvalidParameter", "properties.startAfter"));
    world.put("/updateRuns/one", after(None)).await.with(201);
    world.put("/updateRuns/two", after(Some("one"))).await.with(201);
    let refused = world.put("/updateRuns/one", after(Some("two"))).await;
    assert!(refused.status == 400 && refused.message().contains("wait for itself"), "{}", refused.body);
    world.pass(3600).await;
    assert_eq!(state_of(&world.get("/updateRuns/two").await), "NotStarted");
    let waits = world.get("/updateRuns/two/waitingOn").await;
    assert_eq!(waits["startAfter"], "one", "it says for which: {waits}");
    world.start("one").await;
    world.until("one", "Completed").await;
    world.until("two", "Skipped").await;
    // One whose predecessor has ended already starts at once.
    world.put("/updateRuns/three", after(Some("two"))).await.with(201);
    world.until("three", "Skipped").await;
}

#[tokio::test(start_paused = true)]
async fn ext_releases_tell_what_each_region_offers_and_since_when() {
    let world = world().await;
    let first = world.get("/releases").await;
    world.pass(11 * DAY).await;
    let later = world.get("/releases").await;
    let version = |releases: &Value, region: &str, version: &str| {
        let regions = releases["value"].as_array().expect("regions");
        let region = regions.iter().find(|known| known["region"] == region).expect(region);
        region["versions"].as_array().expect("versions").iter().find(|known| known["version"] == version).cloned()
    };
    assert_eq!(version(&first, "westeurope", "1.26.2"), None);
    let new = version(&later, "westeurope", "1.26.2").expect("published");
    assert!(new["seenAt"].as_str() > version(&later, "westeurope", "1.26.1").expect("old")["seenAt"].as_str(), "{new}");
    assert_eq!(version(&later, "eastus", "1.26.2"), None, "late");
    assert_eq!(version(&later, "westeurope", "1.27.0").expect("preview")["preview"], true);
    let image = &later["value"][0]["nodeImages"][0];
    assert_eq!(
        (&image["family"], &image["version"]),
        (&json!("AKSUbuntu-2204gen2containerd"), &json!("AKSUbuntu-2204gen2containerd-202303.06.0"))
    );
}

#[tokio::test(start_paused = true)]
async fn ext_a_campaign_plans_the_chain_and_makes_it() {
    let world = World::without_fleet(
        r"
seed: 7
behaviour: { throttling: false }
regions:
  westeurope:
    kubernetes:
      - { minor: '1.25', patches: [1.25.5] }
      - { minor: '1.26', patches: [1.26.0, 1.26.1] }
      - { minor: '1.27', patches: [1.27.3] }
    images: [AKSUbuntu-2204gen2containerd-202303.06.0]
clusters:
  - { name: old, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: mid, region: westeurope, version: 1.26.0, pools: [{ name: p1 }] }
",
    )
    .await;
    world.put("", json!({"location": "westeurope"})).await.with(201);
    world.join("old", "a").await;
    world.join("mid", "a").await;
    let unknown = json!({"clusterResourceId": format!("{CLUSTERS}/gone")});
    world.put("/members/gone", json!({"properties": unknown})).await.with(201);
    let ask = |create: bool| json!({"kubernetesVersion": "1.27", "name": "up", "create": create});
    let plan = world.on("POST", "/campaign", &[], ask(false)).await.with(200);
    let leg = |at: usize| &plan["legs"][at];
    assert_eq!(
        (&leg(0)["run"], &leg(0)["members"]),
        (&json!("up-via-1-26-1"), &json!([{"member": "old", "from": "1.25.5", "to": "1.26.1"}]))
    );
    assert_eq!((&leg(1)["run"], &leg(1)["startAfter"]), (&json!("up-via-1-27-3"), &json!("up-via-1-26-1")));
    assert_eq!(plan["left"][0]["member"], "gone");
    assert_eq!(runs(&world).await.len(), 0, "a plan changes nothing");

    world.on("POST", "/campaign", &[], ask(true)).await.with(200);
    let taken = world.on("POST", "/campaign", &[], ask(true)).await;
    assert_eq!(taken.refusal(), (409, "Conflict", "name"));
    world.start("up-via-1-26-1").await;
    let last = world.until("up-via-1-27-3", "Completed").await;
    let done = |name: &str| (name.to_owned(), "Completed".to_owned());
    assert_eq!(members_of(&last), [done("old"), done("mid")]);

    for (body, target) in [
        (json!({}), "kubernetesVersion"),
        (json!({"kubernetesVersion": "x"}), "kubernetesVersion"),
        (json!({"kubernetesVersion": "1.40"}), "kubernetesVersion"),
        (json!({"kubernetesVersion": "1.27", "name": "No Name"}), "name"),
        (json!({"kubernetesVersion": "1.27", "create": 1}), "create"),
    ] {
        let refused = world.on("POST", "/campaign", &[], body).await;
        assert_eq!((refused.status, refused.refusal().2), (400, target), "{}", refused.body);
    }
}

#[tokio::test(start_paused = true)]
async fn api12_the_official_examples_of_profiles_are_taken_as_they_stand() {
    let Some(folder) = reference() else { return };
    let world = world().await;
    for name in ["strategy1"] {
        let strategy = json!({"properties": {"strategy": stages(&[("one", &["a"])])}});
        world.put(&format!("/updateStrategies/{name}"), strategy).await.with(201);
    }
    for version in ["2026-06-01", "2026-06-02-preview"] {
        let path = folder.join("examples").join(version).join("AutoUpgradeProfiles_CreateOrUpdate.json");
        let example: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("file")).expect("json");
        let mut sent = example["parameters"]["resource"].clone();
        sent["properties"]["updateStrategyId"] = format!("{FLEET}/updateStrategies/strategy1").into();
        let path = format!("/autoUpgradeProfiles/of-{version}");
        let shown = world.by(version, "PUT", &path, Some(sent.clone())).await.with(201);
        for (key, value) in sent["properties"].as_object().expect("properties") {
            assert_eq!(&shown["properties"][key], value, "{key} of {version}");
        }
        assert_eq!(shown["properties"]["provisioningState"], "Succeeded");
        assert_eq!(shown["type"], "Microsoft.ContainerService/fleets/autoUpgradeProfiles");
    }
}
