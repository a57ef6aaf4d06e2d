//! Update strategies.

use serde_json::json;

use crate::harness::{FIVE, FLEET, VERSION, World, full, members_of, stages};

#[tokio::test(start_paused = true)]
async fn a2_a_strategy_is_written_read_and_deleted_at_once() {
    let world = World::new(FIVE).await;
    let body = json!({"properties": {"strategy": stages(&[("b", &["x", "y"]), ("a", &["z"])])}});
    let answer = world.put("/updateStrategies/s1", body.clone()).await;
    assert!(answer.header("azure-asyncoperation").is_empty() && answer.header("location").is_empty());
    let made = answer.with(201);
    let properties = json!({"provisioningState": "Succeeded", "strategy": body["properties"]["strategy"]});
    assert_eq!(made["properties"], properties, "stages keep the order of the array");
    assert_eq!(made["id"], format!("{FLEET}/updateStrategies/s1"));
    assert_eq!(made["type"], "Microsoft.ContainerService/fleets/updateStrategies");
    assert_eq!(world.get("/updateStrategies/s1").await, made);
    assert_eq!(world.get("/updateStrategies").await, json!({"value": [made]}));
    world.pass(1).await;
    let again = world.put("/updateStrategies/s1", body).await.with(200);
    assert_ne!(again["eTag"], made["eTag"]);
    assert_eq!(again["systemData"]["createdAt"], made["systemData"]["createdAt"]);
    let gone = world.delete("/updateStrategies/s1").await;
    assert_eq!((gone.status, &gone.body), (200, &json!(null)));
    assert_eq!(world.delete("/updateStrategies/s1").await.status, 204);
    assert_eq!(world.by(VERSION, "GET", "/updateStrategies/s1", None).await.refusal(), (404, "ResourceNotFound", ""));
}

#[tokio::test(start_paused = true)]
async fn a4_a_run_has_its_own_copy_which_edits_and_the_end_of_the_strategy_do_not_reach() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    let strategy = stages(&[("one", &["a"])]);
    world.put("/updateStrategies/s1", json!({"properties": {"strategy": strategy}})).await.with(201);
    let mut request = full(json!(null));
    let id = format!("{FLEET}/UPDATESTRATEGIES/s1");
    request["properties"]["updateStrategyId"] = json!(id);
    let made = world.put("/updateRuns/r1", request.clone()).await.with(201);
    assert_eq!((&made["properties"]["strategy"], &made["properties"]["updateStrategyId"]), (&strategy, &json!(id)));

    let edited = stages(&[("two", &["b"])]);
    world.put("/updateStrategies/s1", json!({"properties": {"strategy": edited}})).await.with(200);
    assert_eq!(world.get("/updateRuns/r1").await, made);
    let again = world.put("/updateRuns/r1", request.clone()).await.with(200);
    assert_eq!(again["properties"]["strategy"], edited, "named again before the start, it is copied again");
    world.put("/updateStrategies/s1", json!({"properties": {"strategy": strategy}})).await.with(200);
    world.put("/updateRuns/r1", request).await.with(200);

    assert_eq!(world.delete("/updateStrategies/s1").await.status, 200);
    let run = world.get("/updateRuns/r1").await;
    let echoed = world.put("/updateRuns/r1", run).await.with(200);
    assert_eq!(echoed["properties"]["strategy"], strategy, "a copy sent back needs no strategy behind it");
    world.start("r1").await;
    let run = world.until("r1", "Completed").await;
    assert_eq!(members_of(&run), [("c1".to_owned(), "Completed".to_owned())]);
}
