//! A restart goes on with everything.

use flotta_clock::{Anchor, Clock};
use serde_json::json;

use crate::cloud::{Cloud, FLEET, at, states, with};

async fn on(folder: &std::path::Path, domain: &str) -> Cloud {
    let clock = Clock::scaled(Anchor { domain: domain.parse().expect("time"), speed: 1.0 });
    at(FLEET, clock, Some(folder.to_owned())).await
}

/// The database is given up when its last user is gone, a moment after the simulator.
async fn close(cloud: Cloud) {
    drop(cloud);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
}

#[tokio::test]
async fn a_restart_goes_on_with_operations_etags_and_numbers() {
    let folder = tempfile::tempdir().expect("folder");
    let cloud = on(folder.path(), "2025-11-01T00:00:00Z").await;
    cloud.put("c1/maintenanceConfigurations/default", json!({"properties": {"timeInWeek": []}})).await.expect(200);
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    let (before, accepted) = (cloud.get("c1").await.body, cloud.accepted().await);
    close(cloud).await;

    let cloud = on(folder.path(), "2025-11-01T00:01:00Z").await;
    assert_eq!(cloud.get("c1").await.body, before);
    assert_eq!(cloud.accepted().await, accepted);
    assert_eq!(accepted.len(), 1);
    assert_eq!(cloud.get("c1/maintenanceConfigurations").await.body["value"].as_array().map(Vec::len), Some(1));
    let polled = cloud.poll(&started).await.expect(200).body;
    assert_ne!(polled["status"], "Succeeded");
    assert_eq!(cloud.full_upgrade("c1", "1.33.2").await.expect(409).code(), "OperationNotAllowed");
    close(cloud).await;

    let cloud = on(folder.path(), "2025-11-01T02:00:00Z").await;
    assert_eq!(cloud.poll(&started).await.expect(200).body["status"], "Succeeded");
    assert_eq!(states(&cloud.get("c1").await.body), ["Succeeded"; 3]);
    assert_eq!(cloud.get("c1").await.body["properties"]["currentKubernetesVersion"], "1.33.1");
    let next = cloud.full_upgrade("c1", "1.33.2").await.expect(200);
    assert_ne!(next.header("x-ms-request-id"), started.header("x-ms-request-id"));
    assert_eq!(cloud.accepted().await.last().map(|entry| entry.number), Some(2));
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let lines = std::fs::read_to_string(folder.path().join("requests.jsonl")).expect("file of requests");
    assert!(lines.lines().any(|line| line.contains("\"call\":\"putCluster\"") && line.contains("\"status\":409")));
}

#[tokio::test]
async fn a_cluster_made_over_the_api_outlives_a_restart() {
    let folder = tempfile::tempdir().expect("folder");
    let cloud = on(folder.path(), "2025-11-01T00:00:00Z").await;
    let body = json!({"location": "westeurope", "properties": {"agentPoolProfiles": [{"name": "system", "count": 1}]}});
    cloud.put("new", body).await.expect(201);
    let made = cloud.get("new").await.body;
    close(cloud).await;
    assert_eq!(on(folder.path(), "2025-11-01T00:00:01Z").await.get("new").await.expect(200).body, made);
}

#[tokio::test]
async fn a_data_folder_belongs_to_one_seed_and_one_simulator() {
    let folder = tempfile::tempdir().expect("folder");
    let cloud = on(folder.path(), "2025-11-01T00:00:00Z").await;
    let open = async |fleet: &str| {
        let fleet = flotta_simulator::FleetFile::parse(fleet).expect("fleet");
        let options = flotta_simulator::Options { data: Some(folder.path().to_owned()) };
        flotta_simulator::Simulator::new(fleet, Clock::system(), options).await.err().map(|error| error.to_string())
    };
    let second = open(FLEET).await.expect("refused");
    assert!(second.contains("another simulator"), "{second}");
    close(cloud).await;
    let other = open(&with("").replace("seed: 7", "seed: 8")).await.expect("refused");
    assert!(other.contains("seed 7, not 8"), "{other}");
}

#[tokio::test]
async fn many_starts_at_once_are_each_accepted_once() {
    let folder = tempfile::tempdir().expect("folder");
    let cloud = on(folder.path(), "2025-11-01T00:00:00Z").await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let cloud = cloud.clone();
            tokio::spawn(async move { cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.status })
        })
        .collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.expect("call"));
    }
    statuses.sort();
    assert_eq!((statuses[0], &statuses[1..]), (202, &[409; 19][..]));
    assert_eq!(cloud.accepted().await.len(), 1);
}

#[tokio::test]
async fn a_number_lost_in_a_crash_is_a_gap_and_not_given_twice() {
    use sqlx::Connection;
    let folder = tempfile::tempdir().expect("folder");
    let cloud = on(folder.path(), "2025-11-01T00:00:00Z").await;
    cloud.put("c1/agentPools/system", json!({"properties": {}})).await.expect(200);
    cloud.post("c1/abort").await.expect(202);
    let numbers = async |cloud: &Cloud| cloud.accepted().await.iter().map(|entry| entry.number).collect::<Vec<_>>();
    let before = numbers(&cloud).await;
    close(cloud).await;
    let url = format!("sqlite://{}", folder.path().join("simulator.db").display());
    let mut database = sqlx::SqliteConnection::connect(&url).await.expect("database");
    sqlx::query("DELETE FROM accepted WHERE number = 1").execute(&mut database).await.expect("delete");
    database.close().await.expect("close");
    let cloud = on(folder.path(), "2025-11-01T02:00:00Z").await;
    cloud.put("c1/agentPools/system", json!({"properties": {}})).await.expect(200);
    let after = numbers(&cloud).await;
    assert_eq!(after.first(), Some(&2));
    assert_eq!(after.last(), before.last().map(|last| last + 1).as_ref());
}
