//! Members.

use flotta_store::{Batch, Collection, Delete, Expect, Store};
use serde_json::{Value, json};

use crate::harness::{CLUSTERS, FIVE, FLEET, VERSION, World, members_of, stages, state_of};

#[tokio::test(start_paused = true)]
async fn a2_a_member_joins_with_an_operation_and_gets_the_labels_of_the_service() {
    let world = World::new(FIVE).await;
    let cluster = format!("{CLUSTERS}/c1").replace("resourceGroups", "resourcegroups");
    let properties = json!({
        "clusterResourceId": cluster, "group": "a",
        "labels": {"env": "prod", "fleet.azure.com/location": "mars"},
    });
    let answer = world.put("/members/m1", json!({"properties": properties})).await;
    let operation = answer.header("azure-asyncoperation").to_owned();
    assert!(answer.header("location").is_empty());
    let body = answer.with(201);
    assert_eq!(body["properties"]["provisioningState"], "Joining");
    assert_eq!(world.raw("GET", &operation, &[], "").await.with(200)["status"], "Succeeded");
    let member = world.get("/members/m1").await;
    let properties = &member["properties"];
    assert_eq!(properties["clusterResourceId"], cluster.as_str(), "in the casing of the caller");
    let labels = json!({
        "env": "prod",
        "fleet.azure.com/cluster-name": "c1",
        "fleet.azure.com/location": "westeurope",
        "fleet.azure.com/member-name": "m1",
        "fleet.azure.com/resource-group": "rg-fleet",
        "fleet.azure.com/subscription-id": "00000000-0000-0000-0000-000000000001",
    });
    assert_eq!(properties["labels"], labels);
    let id = properties["status"]["lastOperationId"].as_str().expect("lastOperationId");
    assert!(operation.contains(id), "{operation}");
    let expect = (&json!(format!("{FLEET}/members/m1")), &json!("Microsoft.ContainerService/fleets/members"));
    assert_eq!((&member["id"], &member["type"]), expect);
}

#[tokio::test(start_paused = true)]
async fn a2_a_member_is_patched_at_once_put_again_as_an_update_and_leaves_by_an_operation() {
    let world = World::new(FIVE).await;
    let joined = world.join("c1", "a").await;
    let answer = world.patch("/members/c1", json!({"properties": {"group": "b", "labels": {"x": "y"}}})).await;
    assert!(answer.header("azure-asyncoperation").is_empty());
    let patched = answer.with(200);
    assert_eq!((&patched["properties"]["group"], &patched["properties"]["labels"]["x"]), (&json!("b"), &json!("y")));
    assert_ne!(patched["eTag"], joined["eTag"]);
    assert_eq!(patched["properties"]["labels"]["fleet.azure.com/location"], "westeurope");

    let unchanged = [("if-match", patched["eTag"].as_str().expect("eTag"))];
    let again = world.on("PUT", "/members/c1", &unchanged, patched.clone()).await;
    assert!(!again.header("azure-asyncoperation").is_empty());
    let again = again.with(200);
    assert_eq!(again["properties"]["provisioningState"], "Updating");
    assert_eq!(
        again["properties"]["labels"], patched["properties"]["labels"],
        "labels of the service come back as they were"
    );

    let left = world.delete("/members/c1").await;
    let location = left.header("location").to_owned();
    assert!(left.header("azure-asyncoperation").contains("/operations/"));
    assert_eq!(left.with(202)["properties"]["provisioningState"], "Leaving");
    assert_eq!(world.raw("GET", &location, &[], "").await.status, 204);
    assert_eq!(world.by(VERSION, "GET", "/members/c1", None).await.status, 404);
    assert_eq!(world.delete("/members/c1").await.status, 204);
    world.join("c1", "a").await;
}

#[tokio::test(start_paused = true)]
async fn choice_a_cluster_that_nobody_reaches_joins_without_a_location() {
    let world = World::new(FIVE).await;
    let properties = json!({"clusterResourceId": format!("{CLUSTERS}/nowhere")});
    world.put("/members/m1", json!({"properties": properties})).await.with(201);
    let labels = &world.get("/members/m1").await["properties"]["labels"];
    assert_eq!(
        (&labels["fleet.azure.com/cluster-name"], &labels["fleet.azure.com/location"]),
        (&json!("nowhere"), &Value::Null)
    );
}

#[tokio::test(start_paused = true)]
async fn a8_a_member_that_leaves_is_skipped_if_it_waited_and_finished_if_it_moved() {
    let world = World::new(FIVE).await;
    for name in ["c1", "c2", "c3"] {
        world.join(name, "a").await;
    }
    world.create("r1", stages(&[("one", &["a"])])).await;
    world.start("r1").await;
    world.pass(60).await;
    world.delete("/members/c1").await.with(202);
    world.delete("/members/c2").await.with(202);
    let run = world.get("/updateRuns/r1").await;
    let states = members_of(&run);
    let expect = [("c1", "Running"), ("c2", "Skipped"), ("c3", "NotStarted")];
    assert_eq!(states, expect.map(|(name, state)| (name.to_owned(), state.to_owned())));
    let left = &run["properties"]["status"]["stages"][0]["groups"][0]["members"][1];
    assert_eq!(left["message"], "member left the fleet");
    let run = world.until("r1", "Completed").await;
    let states: Vec<String> = members_of(&run).into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, ["Completed", "Skipped", "Completed"]);
    assert_eq!(state_of(&run), "Completed");
}

#[tokio::test(start_paused = true)]
async fn choice_a_member_whose_leaving_was_told_to_nobody_is_not_moved_by_a_run_that_starts_later() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.join("c2", "a").await;
    world.create("r1", stages(&[("one", &["a"])])).await;
    // As if the server had been killed between deleting the member and telling its runs.
    let key = format!("{FLEET}/members/c2").to_lowercase();
    let delete = Delete { collection: Collection::Members, key, expect: Expect::Present };
    world.store.commit(Batch { deletes: vec![delete], ..Batch::default() }).await.expect("deleted");
    world.start("r1").await;
    let run = world.until("r1", "Completed").await;
    let members = members_of(&run);
    assert_eq!(members.iter().map(|(_, state)| state.as_str()).collect::<Vec<_>>(), ["Completed", "Skipped"]);
    assert_eq!(world.accepted(), 1);
}
