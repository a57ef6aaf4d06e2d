//! Fleets, their operations, and what the server says of itself.

use std::sync::Arc;

use flotta_store::{Batch, Collection, Expect, MemoryStore, Put, Store};
use serde_json::json;
use uuid::Uuid;

use crate::harness::{FIVE, FLEET, REGION, VERSION, World, full, stages, url};

#[tokio::test(start_paused = true)]
async fn a2_a_new_fleet_is_creating_and_its_operation_succeeds() {
    let world = World::without_fleet(&format!("{}{FIVE}", REGION)).await;
    let answer = world.put("", json!({"location": "West Europe", "tags": {"a": "b"}})).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.header("content-type"), "application/json; charset=utf-8");
    assert!(answer.header("location").is_empty() && answer.header("etag").is_empty(), "{:?}", answer.headers);
    assert!(!answer.header("x-ms-request-id").is_empty());
    let operation = answer.header("azure-asyncoperation").to_owned();
    assert!(operation.starts_with("http://localhost:8642/subscriptions/"), "{operation}");
    assert!(operation.contains("/locations/westeurope/operations/"), "{operation}");
    assert_eq!(answer.body["properties"]["provisioningState"], "Creating");

    let ended = world.raw("GET", &operation, &[], "").await.with(200);
    assert_eq!(ended["status"], "Succeeded");
    let id = ended["name"].as_str().expect("name");
    assert!(operation.contains(id) && ended["startTime"].is_string() && ended["endTime"].is_string(), "{ended}");
    let fleet = world.get("").await;
    assert_eq!(fleet["properties"]["provisioningState"], "Succeeded");
    assert_eq!(fleet["properties"]["status"]["lastOperationId"], id);
    assert_eq!(
        (&fleet["name"], &fleet["location"], &fleet["tags"]["a"]),
        (&json!("fleet1"), &json!("West Europe"), &json!("b"))
    );
    assert_eq!((&fleet["id"], &fleet["type"]), (&json!(FLEET), &json!("Microsoft.ContainerService/fleets")));
}

#[tokio::test(start_paused = true)]
async fn a2_a_fleet_put_again_is_updating_and_keeps_its_maker() {
    let world = World::new(FIVE).await;
    let before = world.get("").await;
    world.pass(60).await;
    let answer = world.put("", json!({"location": "westeurope"})).await;
    assert!(!answer.header("azure-asyncoperation").is_empty());
    let body = answer.with(200);
    assert_eq!(body["properties"]["provisioningState"], "Updating");
    assert_ne!(body["eTag"], before["eTag"]);
    assert_eq!(body["systemData"]["createdAt"], before["systemData"]["createdAt"]);
    assert_ne!(body["systemData"]["lastModifiedAt"], before["systemData"]["lastModifiedAt"]);
    let patched = world.patch("", json!({"tags": {"team": "blue"}})).await;
    assert!(patched.header("azure-asyncoperation").is_empty(), "a PATCH is done at once");
    let patched = patched.with(200);
    assert_eq!(
        (&patched["tags"], &patched["properties"]["provisioningState"]),
        (&json!({"team": "blue"}), &json!("Succeeded"))
    );
    assert_eq!(world.get("").await, patched);
}

#[tokio::test(start_paused = true)]
async fn a2_etags_are_quoted_and_change_with_every_change_and_with_no_read() {
    let world = World::new(FIVE).await;
    let etag = world.get("").await["eTag"].as_str().expect("eTag").to_owned();
    assert!(etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    assert_eq!(world.get("").await["eTag"], etag.as_str());
    let answer = world.on("PATCH", "", &[("if-match", &etag)], json!({"tags": {"a": "b"}})).await;
    assert_ne!(answer.with(200)["eTag"], etag.as_str());
    let stale = world.on("PATCH", "", &[("if-match", &etag)], json!({"tags": {}})).await;
    assert_eq!(stale.refusal(), (412, "PreconditionFailed", "If-Match"));
    let fresh = world.on("PUT", "", &[("if-none-match", "*")], json!({"location": "westeurope"})).await;
    assert_eq!(fresh.refusal(), (412, "PreconditionFailed", "If-None-Match"));
}

#[tokio::test(start_paused = true)]
async fn a2_a_deleted_fleet_takes_its_children_along_and_frees_its_clusters() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.put("/updateStrategies/s1", json!({"properties": {"strategy": stages(&[("one", &["a"])])}})).await.with(201);
    world.create("r1", stages(&[("one", &["a"])])).await;
    let answer = world.delete("").await;
    let (operation, location) =
        (answer.header("azure-asyncoperation").to_owned(), answer.header("location").to_owned());
    assert_eq!(answer.with(202)["properties"]["provisioningState"], "Deleting");
    assert_eq!(world.raw("GET", &operation, &[], "").await.with(200)["status"], "Succeeded");
    assert!(location.contains("/operationresults/"), "{location}");
    let result = world.raw("GET", &location, &[], "").await;
    assert_eq!((result.status, &result.body), (204, &json!(null)));
    assert_eq!(world.by(VERSION, "GET", "", None).await.refusal(), (404, "ResourceNotFound", ""));
    assert_eq!(world.delete("").await.status, 204);

    world.put("", json!({"location": "westeurope"})).await.with(201);
    for list in ["/members", "/updateStrategies", "/updateRuns"] {
        assert_eq!(world.get(list).await, json!({"value": []}), "{list}");
    }
    world.join("c1", "a").await;
}

#[tokio::test(start_paused = true)]
async fn choice_a_fleet_in_a_group_named_like_a_segment_is_deleted_with_its_runs() {
    let world = World::new(FIVE).await;
    let fleet = FLEET.replace("/rg1/", "/updateRuns/");
    let at = |path: &str| format!("{fleet}{path}?api-version={VERSION}");
    world.raw("PUT", &at(""), &[], json!({"location": "westeurope"}).to_string()).await.with(201);
    let run = full(stages(&[("one", &["a"])])).to_string();
    world.raw("PUT", &at("/updateRuns/r1"), &[], run).await.with(201);
    let etag = world.raw("GET", &at(""), &[], "").await.with(200)["eTag"].as_str().expect("eTag").to_owned();
    world.raw("DELETE", &at(""), &[("if-match", &etag)], "").await.with(202);
}

#[tokio::test(start_paused = true)]
async fn a2_paths_are_read_in_any_casing_and_ids_keep_that_of_the_caller() {
    let world = World::without_fleet(REGION).await;
    let shouted = FLEET
        .replace("resourceGroups/rg1", "RESOURCEGROUPS/Rg1")
        .replace("Microsoft.ContainerService/fleets", "microsoft.containerservice/FLEETS");
    let uri = format!("{shouted}?API-VERSION={VERSION}");
    let made = world.raw("PUT", &uri, &[], json!({"location": "westeurope"}).to_string()).await.with(201);
    let id = FLEET.replace("/rg1/", "/Rg1/");
    assert_eq!(made["id"], id.as_str(), "fixed words have one casing, names that of the caller");
    assert_eq!(world.get("").await["id"], id.as_str());
    let children = url("/UPDATERUNS", VERSION);
    assert_eq!(world.raw("GET", &children, &[], "").await.with(200), json!({"value": []}));
}

#[tokio::test(start_paused = true)]
async fn a_server_says_that_it_is_well_what_it_can_do_and_what_time_it_is() {
    let world = World::new(FIVE).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(world.raw("GET", path, &[], "").await.status, 200, "{path}");
    }
    let operations = format!("/providers/Microsoft.ContainerService/operations?api-version={VERSION}");
    let operations = world.raw("GET", &operations, &[], "").await;
    assert_eq!(operations.header("x-flotta-time"), "2023-03-06T08:00:00Z");
    let operations = operations.with(200);
    let named = |name: &str| operations["value"].as_array().expect("value").iter().any(|entry| entry["name"] == name);
    assert!(named("Microsoft.ContainerService/fleets/updateRuns/write"), "{operations}");
    let provider = "/subscriptions/s/providers/Microsoft.ContainerService?api-version=2022-09-01";
    let provider = world.raw("GET", provider, &[], "").await.with(200);
    assert_eq!(provider["resourceTypes"][0]["apiVersions"][0], VERSION);
}

#[tokio::test(start_paused = true)]
async fn rule_7_operations_are_forgotten_after_a_day() {
    let world = World::new(FIVE).await;
    let aged = |day: u64| Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, day * 86_400, 0)).to_string();
    let today = Uuid::now_v7().get_timestamp().expect("time").to_unix().0 / 86_400;
    let put = |key: String| Put {
        collection: Collection::Operations,
        key,
        parent: String::new(),
        body: "{}".into(),
        etag: "e".into(),
        expect: Expect::Absent,
    };
    world.store.commit(Batch { puts: vec![put(aged(today + 1))], ..Batch::default() }).await.expect("one to keep");
    let keys = async || {
        let all = world.store.scan(Collection::Operations, None, 100).await.expect("scan");
        all.into_iter().map(|document| document.key).collect::<Vec<String>>()
    };
    let fresh = keys().await;
    let store = Arc::new(MemoryStore::new());
    store
        .commit(Batch { puts: (1..=9).map(|day| put(aged(day))).collect(), ..Batch::default() })
        .await
        .expect("old ones");
    let old = World::over(store, REGION).await;
    for left in [6, 3, 3, 4] {
        old.put("", json!({"location": "westeurope"})).await;
        let all = old.store.scan(Collection::Operations, None, 100).await.expect("scan");
        assert_eq!(all.len(), left, "{all:?}");
    }
    world.put("", json!({"location": "westeurope"})).await.with(200);
    assert_eq!(keys().await[..fresh.len()], fresh, "what is young stays");
}
