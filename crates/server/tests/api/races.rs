//! Requests at the same time: one at a time is what their outcomes look like.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::harness::{CLUSTERS, FIVE, FLEET, VERSION, World, full, stages};

/// Clusters that are slow to tell where they are.
const SLOW: &str = "
faults:
  - { call: getCluster, fault: { delayAnswer: { seconds: 3 } } }
";

#[tokio::test(start_paused = true)]
async fn nothing_is_put_into_a_fleet_while_it_is_deleted() {
    let world = World::new(&format!("{FIVE}{SLOW}")).await;
    let member = json!({"properties": {"clusterResourceId": format!("{CLUSTERS}/c1"), "group": "a"}});
    let join = world.put("/members/c1", member.clone());
    let delete = async {
        world.pass(1).await;
        world.delete("").await
    };
    let (joined, deleted) = tokio::join!(join, delete);
    assert_eq!((joined.status, deleted.status), (201, 202), "{} {}", joined.body, deleted.body);
    world.put("", json!({"location": "westeurope"})).await.with(201);
    assert_eq!(world.get("/members").await["value"], json!([]), "a member was left behind");
    world.put("/members/again", member).await.with(201);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_put_anew_is_there_all_the_time() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.create("r", stages(&[("one", &["a"])])).await;
    let (world, body) = (&world, full(stages(&[("two", &["a"])])).to_string());
    let asked = ["PUT", "GET", "GET", "waitingOn", "stop", "PUT", "GET", "skip"].map(|what| {
        let body = body.clone();
        async move {
            let on = |method: &'static str, below: &str, body: String| {
                let url = format!("{FLEET}/updateRuns/r{below}?api-version={VERSION}");
                async move { world.raw(method, &url, &[], body).await }
            };
            let answer = match what {
                "PUT" => on("PUT", "", body).await,
                "GET" => on("GET", "", String::new()).await,
                "waitingOn" => on("GET", "/waitingOn", String::new()).await,
                "skip" => on("POST", "/skip", json!({"targets": [{"type": "Member", "name": "c1"}]}).to_string()).await,
                action => on("POST", &format!("/{action}"), String::new()).await,
            };
            (what, answer)
        }
    });
    for (what, answer) in join_all(asked).await {
        let fine: &[u16] = match what {
            "PUT" => &[200, 409, 412],
            "stop" => &[409],
            _ => &[200],
        };
        assert!(fine.contains(&answer.status), "{what}: {} {}", answer.status, answer.body);
        assert_ne!(answer.body["error"]["code"], Value::from("ResourceNotFound"), "{what}");
    }
}
