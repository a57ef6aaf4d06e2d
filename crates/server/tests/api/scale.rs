//! Many members.

use serde_json::{Value, json};

use crate::harness::{REGION, World, members_of, stages};

#[tokio::test(start_paused = true)]
async fn a3_a_thousand_members_in_fifty_groups_of_one_stage_run_to_their_end() {
    let cloud = REGION.replace("throttling: false", "throttling: false, durationScale: 0");
    let template = "
templates:
  - count: 1000
    cluster: { name: 'c{n}', region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
";
    let world = World::without_fleet(&format!("{cloud}{template}")).await;
    world.put("", json!({"location": "westeurope"})).await.with(201);
    for number in 1..=1000 {
        world.join(&format!("c{number}"), &format!("g{}", number % 50)).await;
    }
    let groups: Vec<String> = (0..50).map(|group| format!("g{group}")).collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let mut strategy = stages(&[("one", &groups)]);
    for group in strategy["stages"][0]["groups"].as_array_mut().expect("groups") {
        group["maxConcurrency"] = json!("2");
    }
    let made = world.create("r1", strategy).await;
    assert_eq!(members_of(&made).len(), 1000);
    world.start("r1").await;
    let run = world.until("r1", "Completed").await;
    assert!(members_of(&run).iter().all(|(_, state)| state == "Completed"));
    assert_eq!((world.accepted(), &run["properties"]["status"]["failureCount"]), (1000, &Value::from(0)));
}
