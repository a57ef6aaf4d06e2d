//! Api-versions: what each shows, and what each leaves alone.

use serde_json::{Value, json};

use crate::harness::{CLUSTERS, FIVE, VERSION, World, full, stages};

fn rich() -> Value {
    let mut strategy = stages(&[("one", &["a"])]);
    let stage = &mut strategy["stages"][0];
    stage["maxConcurrency"] = json!("7");
    stage["maxAllowedFailures"] = json!("2");
    stage["memberSelector"] = json!({"byLabel": "tier=web"});
    stage["groups"][0]["maxConcurrency"] = json!("3");
    stage["groups"][0]["afterGates"] = json!([{"type": "Approval"}]);
    strategy
}

#[tokio::test(start_paused = true)]
async fn api1_old_versions_do_not_show_what_they_do_not_know() {
    let world = World::new(FIVE).await;
    let properties = json!({"clusterResourceId": format!("{CLUSTERS}/c1"), "group": "a", "labels": {"tier": "web"}});
    world.put("/members/c1", json!({"properties": properties})).await.with(201);
    world.create("r1", rich()).await;
    let by = async |version: &str, path: &str| world.by(version, "GET", path, None).await.with(200);

    let member = by("2024-04-01", "/members/c1").await;
    assert!(member["properties"].get("labels").is_none() && member["properties"].get("status").is_none(), "{member}");
    assert!(by("2026-06-01", "/members/c1").await["properties"]["labels"].is_object());
    let old = by("2023-10-15", "/updateRuns/r1").await;
    let stage = &old["properties"]["status"]["stages"][0];
    for gone in ["maxConcurrency", "failureCount", "maxAllowedFailures", "afterGates"] {
        assert!(stage.get(gone).is_none() && stage["groups"][0].get(gone).is_none(), "{gone}: {stage}");
    }
    assert_eq!(old["properties"]["strategy"], stages(&[("one", &["a"])]));
    let stable = by("2026-06-01", "/updateRuns/r1").await;
    let stage = &stable["properties"]["status"]["stages"][0];
    assert_eq!((&stage["maxConcurrency"], stage.get("failureCount")), (&json!(7), None));
    let newest = by(VERSION, "/updateRuns/r1").await;
    let stage = &newest["properties"]["status"]["stages"][0];
    assert_eq!((&stage["maxAllowedFailures"], &stage["failureCount"]), (&json!(2), &json!(0)));
    let listed = by("2023-10-15", "/updateRuns").await;
    assert_eq!(listed["value"][0], old, "a list shows what a read shows");
}

#[tokio::test(start_paused = true)]
async fn choice_a_put_by_an_old_version_keeps_what_it_cannot_know() {
    let world = World::new(FIVE).await;
    let echo = async |path: &str, version: &str| {
        let seen = world.by(version, "GET", path, None).await.with(200);
        world.by(version, "PUT", path, Some(seen)).await.with(200);
        world.get(path).await
    };
    let fleet = json!({"location": "westeurope", "identity": {"type": "None"}, "properties": {"hubProfile": {"dnsPrefix": "x"}}});
    world.put("", fleet).await.with(200);
    world.by("2022-09-02-preview", "PUT", "", Some(json!({"location": "westeurope"}))).await.with(200);
    let fleet = world.get("").await;
    assert_eq!(
        (&fleet["identity"]["type"], &fleet["properties"]["hubProfile"]["dnsPrefix"]),
        (&json!("None"), &json!("x"))
    );

    let properties = json!({"clusterResourceId": format!("{CLUSTERS}/c1"), "group": "a", "labels": {"tier": "web"}});
    world.put("/members/c1", json!({"properties": properties})).await.with(201);
    assert_eq!(echo("/members/c1", "2023-10-15").await["properties"]["labels"]["tier"], "web");
    let patch = json!({"properties": {"labels": {"tier": "db"}}});
    world.by("2023-10-15", "PATCH", "/members/c1", Some(patch)).await.with(200);
    assert_eq!(world.get("/members/c1").await["properties"]["labels"]["tier"], "web");

    world.put("/updateStrategies/s1", json!({"properties": {"strategy": rich()}})).await.with(201);
    assert_eq!(echo("/updateStrategies/s1", "2023-10-15").await["properties"]["strategy"], rich());
    world.create("r1", rich()).await;
    assert_eq!(echo("/updateRuns/r1", "2023-10-15").await["properties"]["strategy"], rich());
    world.start("r1").await;
    world.pass(1).await;
    assert_eq!(echo("/updateRuns/r1", "2023-10-15").await["properties"]["strategy"], rich(), "after the start, too");
}

#[tokio::test(start_paused = true)]
async fn api1_what_a_version_does_not_know_is_not_made_by_it() {
    let world = World::new(FIVE).await;
    let made = world.by("2023-10-15", "PUT", "/updateRuns/r1", Some(full(rich()))).await.with(201);
    assert_eq!(made["properties"]["strategy"], stages(&[("one", &["a"])]));
    assert_eq!(world.get("/updateRuns/r1").await["properties"]["strategy"], made["properties"]["strategy"]);
}

#[tokio::test(start_paused = true)]
async fn api0_every_published_version_is_served_and_its_key_may_be_percent_encoded() {
    let world = World::new(FIVE).await;
    let versions = [
        "2022-09-02-preview",
        "2023-03-15-preview",
        "2023-06-15-preview",
        "2023-08-15-preview",
        "2023-10-15",
        "2024-02-02-preview",
        "2024-04-01",
        "2024-05-02-preview",
        "2025-03-01",
        "2025-04-01-preview",
        "2025-08-01-preview",
        "2026-02-01-preview",
        "2026-03-02-preview",
        "2026-06-01",
        "2026-06-02-preview",
    ];
    for version in versions {
        assert_eq!(world.by(version, "GET", "", None).await.status, 200, "{version}");
        let encoded = format!("{}?api%2Dversion={version}", crate::harness::FLEET);
        assert_eq!(world.raw("GET", &encoded, &[], "").await.status, 200, "{version}");
    }
}
