//! Headers, etags, operation URLs, repeatability.

use serde_json::json;

use crate::cloud::{Answer, Cloud, cloud, uri, version_body, with};

#[tokio::test(start_paused = true)]
async fn aks_wire_1_a_start_names_its_operation_and_its_signed_url() {
    let cloud = cloud(&with("")).await;
    let started =
        cloud.call("PUT", &uri("c1"), &[("host", "arm.example:8080")], Some(&version_body("1.33.1"))).await.expect(200);
    let url = started.header("azure-asyncoperation");
    let id = started.header("x-ms-request-id");
    let start = format!(
        "http://arm.example:8080/subscriptions/s1/providers/Microsoft.ContainerService/locations/westeurope/operations/{id}?api-version="
    );
    assert!(url.starts_with(&start), "{}", &url[..200]);
    assert!((3100..3600).contains(&url.len()), "{}", url.len());
    assert_eq!((started.header("location"), started.header("retry-after")), ("", ""));
    let body = cloud.poll(&started).await.expect(200).body;
    assert_eq!((body["name"].as_str(), body["status"].as_str()), (Some(id), Some("InProgress")));
    assert!(body["startTime"].as_str().is_some_and(|time| time.ends_with("00.000000Z")), "{body}");
    assert!(body.get("endTime").is_none() && body.get("percentComplete").is_none());
    let accepted = cloud.accepted().await;
    assert_eq!(accepted[0].operation.to_string(), id);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_1_an_operation_url_is_good_only_as_it_was_given() {
    let cloud = cloud(&with("")).await;
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    let (url, results) = (started.header("azure-asyncoperation"), started.header("location"));
    let query = |url: &str| url.split_once('?').expect("query").1.to_owned();
    assert_ne!(query(url), query(results));
    let bare = format!("{}?api-version=2025-10-01", url.split('?').next().expect("path"));
    let crossed = url.replace("/operations/", "/operationresults/");
    let spoilt = url.replace("&s=", "&s=x");
    for bad in [bare, crossed, spoilt] {
        assert_eq!(cloud.call("GET", &bad, &[], None).await.expect(403).code(), "AuthorizationFailed");
    }
    let running = cloud.call("GET", results, &[], None).await.expect(202);
    assert_ne!(cloud.finish(&started).await.body["endTime"], json!(null));
    let ended = cloud.call("GET", results, &[], None).await.expect(204);
    assert_ne!(query(running.header("location")), query(ended.header("location")));
    cloud.call("GET", ended.header("location"), &[], None).await.expect(204);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_2_operations_of_a_cluster_have_an_id_and_whole_seconds() {
    let cloud = cloud(&with("")).await;
    assert_eq!(cloud.get("c1/operations/latest").await.expect(404).code(), "NotFound");
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    cloud.finish(&started).await;
    let latest = cloud.get("c1/operations/latest").await.expect(200).body;
    let keys: Vec<&String> = latest.as_object().expect("object").keys().collect();
    assert_eq!(keys, ["endTime", "id", "name", "startTime", "status"]);
    assert_eq!(latest["startTime"], "2025-11-01T00:00:00Z");
    assert!(!latest["endTime"].as_str().expect("end").contains('.'));
    let name = started.header("x-ms-request-id");
    assert!(latest["id"].as_str().expect("id").ends_with(&format!("/managedClusters/c1/operations/{name}")));
    assert_eq!(cloud.get(&format!("c1/operations/{name}")).await.expect(200).body, latest);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_2_running_operations_say_more_than_in_progress() {
    let cloud = cloud(&with("")).await;
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    let mut texts = Vec::new();
    for _ in 0..400 {
        let status = cloud.poll(&started).await.body["status"].as_str().expect("status").to_owned();
        if texts.last() != Some(&status) {
            texts.push(status);
        }
        cloud.pass(10).await;
    }
    assert_eq!(texts, ["InProgress", "ProvisioningControlPlane", "ReconcilingAddons", "Succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_2_an_error_is_not_a_failure() {
    let fleet = with("").replace("throttling: false", "throttling: false, operationErrorRate: 1, retryAfter: 15");
    let cloud = cloud(&fleet).await;
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    assert_eq!(started.header("retry-after"), "15");
    assert_eq!(cloud.poll(&started).await.body["error"]["code"], "NotLatestOperation");
    let ended = cloud.finish(&started).await;
    assert_eq!(
        (&ended.body["status"], &ended.body["error"]["code"]),
        (&json!("Succeeded"), &json!("NotLatestOperation"))
    );
}

async fn etags(cloud: &Cloud) -> [String; 3] {
    let body = cloud.get("c1").await.body;
    let text = |value: &serde_json::Value| value["eTag"].as_str().expect("etag").to_owned();
    let pools = &body["properties"]["agentPoolProfiles"];
    assert_eq!(text(&cloud.get("c1/agentPools/system").await.body["properties"]), text(&pools[0]));
    [text(&body), text(&pools[0]), text(&pools[1])]
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_etags_are_new_at_every_write_and_when_the_operation_ends() {
    let cloud = cloud(&with("")).await;
    let mut seen = vec![etags(&cloud).await];
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    seen.push(etags(&cloud).await);
    assert_eq!(started.body["eTag"], seen[1][0].as_str());
    cloud.finish(&started).await;
    seen.push(etags(&cloud).await);
    for index in 0..3 {
        let mut of_one: Vec<&String> = seen.iter().map(|etags| &etags[index]).collect();
        of_one.dedup();
        assert_eq!(of_one.len(), 3);
        assert_eq!(of_one[0].len(), 36, "a bare uuid");
    }
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    cloud.finish(&started).await;
    let after = etags(&cloud).await;
    assert_eq!((&after[0], &after[2]), (&seen[2][0], &seen[2][2]));
    assert_ne!(after[1], seen[2][1]);
}

#[tokio::test(start_paused = true)]
async fn d4_etag_conditions_are_honoured() {
    let cloud = cloud(&with("")).await;
    let [cluster, pool, _] = etags(&cloud).await;
    let put = async |path: &str, name: &str, value: &str| -> Answer {
        let body = if path.contains('/') { json!({"properties": {}}) } else { version_body("1.32.6") };
        cloud.call("PUT", &uri(path), &[(name, value)], Some(&body)).await
    };
    for (path, name, value) in [
        ("c1", "if-match", pool.as_str()),
        ("c1", "if-none-match", "*"),
        ("none", "if-match", "*"),
        ("c1/agentPools/system", "if-match", &cluster),
    ] {
        assert_eq!(put(path, name, value).await.expect(412).code(), "EtagMismatch");
    }
    assert!(cloud.accepted().await.is_empty());
    let started = put("c1", "if-match", &format!("\"{cluster}\"")).await.expect(200);
    assert_eq!(put("c1", "if-match", &cluster).await.expect(412).code(), "EtagMismatch", "a late duplicate");
    cloud.finish(&started).await;
    assert_eq!(put("c1/agentPools/system", "if-match", &pool).await.expect(412).code(), "EtagMismatch");
    let [_, pool, _] = etags(&cloud).await;
    put("c1/agentPools/system", "if-match", &pool).await.expect(200);
}

/// Upgrades of many clusters, started in an order; what becomes of each.
async fn fates(order: impl Iterator<Item = usize>, seed: u64) -> Vec<(String, String)> {
    let mut more = String::new();
    for index in 0..30 {
        more += &format!(
            "\n  - {{ name: t{index}, region: westeurope, version: 1.32.6, pools: [{{ name: system, count: 2 }}] }}"
        );
    }
    let fleet = with(&more)
        .replace("throttling: false", "throttling: false, failureRate: 0.5")
        .replace("seed: 7", &format!("seed: {seed}"));
    let cloud = cloud(&fleet).await;
    let mut started = Vec::new();
    for index in order {
        started.push((index, cloud.full_upgrade(&format!("t{index}"), "1.33.1").await.expect(200)));
    }
    started.sort_by_key(|(index, _)| *index);
    let mut fates = Vec::new();
    for (_, started) in started {
        let ended = cloud.finish(&started).await.body;
        fates.push((ended["status"].to_string(), ended["endTime"].to_string()));
    }
    fates
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_fates_in_any_order() {
    let fates_of_seven = fates(0..30, 7).await;
    assert_eq!(fates((0..30).rev(), 7).await, fates_of_seven);
    assert_ne!(fates(0..30, 8).await, fates_of_seven);
    let failed = fates_of_seven.iter().filter(|(status, _)| status.contains("Failed")).count();
    assert!((5..=25).contains(&failed), "{failed} of 30 at a rate of one half");
}

#[tokio::test(start_paused = true)]
async fn the_admin_surface_tells_what_was_asked_and_accepted() {
    let cloud = cloud(&with("")).await;
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    cloud.put("c1", version_body("1.33.2")).await.expect(409);
    cloud.finish(&started).await;
    let control_plane = cloud.put("c1", version_body("1.33.2")).await.expect(200);
    cloud.finish(&control_plane).await;
    let accepted = cloud.call("GET", "/simulator/accepted", &[], None).await.body;
    let lines: Vec<_> = accepted["value"]
        .as_array()
        .expect("list")
        .iter()
        .map(|entry| (entry["step"].clone(), entry["target"].clone()))
        .collect();
    assert_eq!(lines, [(json!("clusterVersion"), json!("1.33.1")), (json!("controlPlaneVersion"), json!("1.33.2"))]);
    assert_eq!(accepted["count"], 2);
    let log = cloud.call("GET", "/simulator/requests?after=1&limit=2", &[], None).await.body;
    let log = log["value"].as_array().expect("list");
    assert_eq!((&log[0]["number"], &log[0]["call"], &log[0]["status"]), (&json!(2), &json!("putCluster"), &json!(200)));
    assert_eq!(log[0]["operation"], started.header("x-ms-request-id"));
    assert_eq!((&log[1]["status"], log[1].get("operation")), (&json!(409), None));
    assert!(!log[0]["path"].as_str().expect("path").contains('?'));
    let health = cloud.call("GET", "/simulator/health", &[], None).await.expect(200).body;
    assert_eq!((&health["status"], &health["clusters"]), (&json!("healthy"), &json!(1)));
}
