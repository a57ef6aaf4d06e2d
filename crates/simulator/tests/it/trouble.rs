//! Refusals, failures and faults.

use crate::cloud::{Cloud, cloud, pool_body, states, version_body, with};
use serde_json::{Value, json};

const MORE: &str = "
  - { name: old, region: westeurope, version: 1.31.11, pools: [{ name: system, count: 1 }] }
  - { name: lts, region: westeurope, version: 1.30.14, tier: Premium, supportPlan: AKSLongTermSupport, pools: [{ name: system, count: 1 }] }
  - { name: lapsed, region: westeurope, version: 1.30.14, pools: [{ name: system, count: 1 }] }
  - { name: off, region: westeurope, version: 1.32.6, stopped: true, pools: [{ name: system, count: 1 }] }
  - { name: auto, region: westeurope, version: 1.32.6, autoUpgradeChannel: stable, pools: [{ name: system, count: 1 }] }
  - { name: taken, region: westeurope, version: 1.32.6, foreign: { seconds: 600 }, pools: [{ name: system, count: 1 }] }
  - { name: sick, region: westeurope, version: 1.32.6, fails: { attempts: 1 }, pools: [{ name: system, count: 4, maxSurge: 25% }] }
  - { name: east, region: eastus2, version: 1.32.6, pools: [{ name: system, count: 1 }] }
";

async fn refused(cloud: &Cloud, path: &str, body: Value, status: u16, code: &str, words: &str) {
    let before = cloud.get(path).await.body;
    let answer = cloud.put(path, body).await.expect(status);
    assert_eq!(answer.code(), code, "{}", answer.body);
    assert!(answer.message().contains(words), "{}", answer.message());
    assert_eq!(cloud.get(path).await.body, before, "a refused write changes nothing");
}

#[tokio::test(start_paused = true)]
async fn d4_version_rules_are_refused_in_the_words_of_aks() {
    let cloud = cloud(&with(MORE)).await;
    let to = version_body;
    refused(
        &cloud,
        "old",
        to("1.33.1"),
        409,
        "OperationNotAllowed",
        "Upgrading Kubernetes version 1.31.11 to 1.33.1 is not allowed. Available upgrades: [1.32.5 1.32.6 1.32.7]",
    )
    .await;
    refused(&cloud, "c1", to("1.32.5"), 409, "OperationNotAllowed", "Downgrading").await;
    refused(&cloud, "c1", to("1.33.9"), 400, "K8sVersionNotSupported", "Managed cluster c1 has invalid version 1.33.9")
        .await;
    refused(&cloud, "c1", to("1.99"), 400, "K8sVersionNotSupported", "1.99").await;
    refused(&cloud, "c1", to("latest"), 400, "K8sVersionNotSupported", "latest").await;
    refused(&cloud, "c1", json!({"properties": {"kubernetesVersion": 1.33}}), 400, "InvalidParameter", "not a text")
        .await;
    refused(&cloud, "c1", json!([]), 400, "InvalidParameter", "properties").await;
    refused(
        &cloud,
        "lapsed",
        to("1.30.100"),
        400,
        "K8sVersionNotSupported",
        "only available for Long-Term Support (LTS)",
    )
    .await;
    refused(
        &cloud,
        "auto",
        to("1.33.0"),
        400,
        "NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged",
        "auto upgrade",
    )
    .await;
    refused(&cloud, "off", to("1.33.0"), 409, "OperationNotAllowed", "Stopped").await;
    let strange = json!({"properties": {"agentPoolProfiles": [{"name": "strange", "count": 1}]}});
    refused(&cloud, "c1", strange, 400, "BadRequest", "A new agent pool was introduced").await;
    let plan = json!({"properties": {"supportPlan": "AKSLongTermSupport"}});
    refused(&cloud, "lapsed", plan, 400, "InvalidParameter", "needs tier Premium").await;
    let onboard = json!({"sku": {"tier": "Premium"}, "properties": {"supportPlan": "AKSLongTermSupport", "kubernetesVersion": "1.30.100"}});
    cloud.put("lapsed", onboard).await.expect(200);
    cloud.full_upgrade("lts", "1.33.1").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn d4_pool_rules_are_refused_in_the_words_of_aks() {
    let cloud = cloud(&with(MORE)).await;
    let pool = "c1/agentPools/system";
    refused(&cloud, pool, pool_body("1.33.1"), 400, "NodePoolMcVersionIncompatible", "control plane version 1.32.6")
        .await;
    refused(
        &cloud,
        pool,
        pool_body("1.32.9"),
        400,
        "AgentPoolK8sVersionNotSupported",
        "Version 1.32.9 is not supported in this region",
    )
    .await;
    refused(&cloud, pool, pool_body("1.32.5"), 400, "BadRequest", "Downgrading").await;
    for version in ["1.32.7", "1.33.0"] {
        let started = cloud.put("old", version_body(version)).await.expect(200);
        cloud.finish(&started).await;
    }
    refused(
        &cloud,
        "old/agentPools/system",
        pool_body("1.33.0"),
        400,
        "BadRequest",
        "you can only upgrade one minor version at a time",
    )
    .await;
    let started = cloud.put("old/agentPools/system", pool_body("1.32.7")).await.expect(200);
    cloud.finish(&started).await;
    cloud.put("old/agentPools/system", pool_body("1.33.0")).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn d4_one_operation_at_a_time_in_the_cluster_and_the_pool_form() {
    let cloud = cloud(&with(MORE)).await;
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    for answer in [
        cloud.put("c1", version_body("1.33.1")).await,
        cloud.put("c1/agentPools/win", pool_body("1.33.1")).await,
        cloud.post("c1/agentPools/win/upgradeNodeImageVersion").await,
        cloud.post("c1/stop").await,
    ] {
        assert_eq!(
            answer.expect(409).message(),
            "Operation is not allowed: Another operation (Upgrading) is in progress, please wait for it to finish before starting a new operation. See https://aka.ms/aks-pending-operation for more details"
        );
    }
    cloud.finish(&started).await;
    cloud.post("c1/agentPools/win/upgradeNodeImageVersion").await.expect(202);
    let answer = cloud.put("c1", version_body("1.33.2")).await.expect(409);
    assert!(answer.message().contains("Another agentpool operation (win - UpgradingNodeImageVersion) is in progress"));
    assert_eq!(answer.code(), "OperationNotAllowed");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_operation_holds_the_cluster_for_its_time() {
    let cloud = cloud(&with(MORE)).await;
    assert_eq!(states(&cloud.get("taken").await.body), ["Updating"; 2]);
    assert_eq!(cloud.get("taken/operations/latest").await.body["status"], "InProgress");
    assert_eq!(cloud.full_upgrade("taken", "1.33.0").await.expect(409).code(), "OperationNotAllowed");
    cloud.pass(600).await;
    assert_eq!(states(&cloud.get("taken").await.body), ["Succeeded"; 2]);
    cloud.full_upgrade("taken", "1.33.0").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn d4_a_failed_upgrade_shows_its_target_and_the_same_write_repairs_it() {
    let cloud = cloud(&with(MORE)).await;
    let started = cloud.full_upgrade("sick", "1.33.1").await.expect(200);
    let ended = cloud.finish(&started).await.body;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("Failed"), &json!("PodDrainFailure")));
    let message = ended["error"]["message"].as_str().expect("message");
    assert!(message.contains("aks-system-") && message.contains("disruption budget"), "{message}");
    let body = cloud.get("sick").await.body;
    assert_eq!(states(&body), ["Failed"; 2]);
    assert_eq!(body["properties"]["currentKubernetesVersion"], "1.33.1");
    let lagging = async || {
        let machines =
            cloud.get("sick/agentPools/system/machines").await.body["value"].as_array().expect("machines").clone();
        machines
            .iter()
            .filter(|machine| machine["properties"]["kubernetes"]["currentOrchestratorVersion"] == "1.32.6")
            .count()
    };
    assert_eq!(lagging().await, 2);
    let started = cloud.full_upgrade("sick", "1.33.1").await.expect(200);
    assert_eq!(states(&started.body), ["Updating"; 2]);
    assert_eq!(cloud.finish(&started).await.body["status"], "Succeeded");
    assert_eq!((states(&cloud.get("sick").await.body), lagging().await), (vec!["Succeeded".to_owned(); 2], 0));
}

#[tokio::test(start_paused = true)]
async fn d1_a_region_gets_a_version_later_than_others() {
    let cloud = cloud(&with(MORE)).await;
    assert_eq!(cloud.put("east", version_body("1.32.7")).await.expect(400).code(), "K8sVersionNotSupported");
    cloud.pass(3600).await;
    cloud.put("east", version_body("1.32.7")).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_8_bodies_of_the_front_end_are_wrapped_and_those_of_aks_are_flat() {
    let cloud = cloud(&with(MORE)).await;
    let front = cloud.get("nobody").await.expect(404);
    assert_eq!(
        (front.body["error"]["code"].as_str(), front.header("x-ms-failure-cause")),
        (Some("ResourceNotFound"), "gateway")
    );
    let service = cloud.put("c1", version_body("1.99.1")).await.expect(400);
    let keys: Vec<&String> = service.body.as_object().expect("object").keys().collect();
    assert_eq!(keys, ["code", "details", "message", "subcode"]);
    assert_eq!((service.body["subcode"].as_str(), service.header("x-ms-failure-cause")), (Some(""), ""));
    assert_eq!(cloud.get("c1/agentPools/none").await.expect(404).body["code"], "NotFound");
    let bare = cloud.call("GET", crate::cloud::uri("c1").split('?').next().expect("path"), &[], None).await.expect(400);
    assert_eq!(bare.code(), "MissingApiVersionParameter");
    assert_eq!(
        cloud
            .get("/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Other/things")
            .await
            .expect(404)
            .header("x-ms-failure-cause"),
        "gateway"
    );
}

#[tokio::test(start_paused = true)]
async fn faults_strike_before_or_after_the_call_takes_effect() {
    let faults = "
faults:
  - { cluster: c*, call: putCluster, nth: 1, fault: { failBefore: { status: 503 } } }
  - { cluster: c*, call: putCluster, nth: 2, fault: { throttle: { retryAfter: 30 } } }
  - { cluster: c*, call: putCluster, nth: 3, fault: { failAfter: { status: 502 } } }
  - { cluster: c*, call: getOperation, nth: 1, fault: { failBefore: { status: 502 } } }
";
    let cloud = cloud(&with(faults)).await;
    assert_eq!(cloud.full_upgrade("c1", "1.33.1").await.expect(503).header("x-ms-failure-cause"), "service");
    assert_eq!(cloud.full_upgrade("c1", "1.33.1").await.expect(429).header("retry-after"), "30");
    assert!(cloud.accepted().await.is_empty());
    assert_eq!(cloud.full_upgrade("c1", "1.33.1").await.expect(502).code(), "BadGatewayConnection");
    assert_eq!(states(&cloud.get("c1").await.body), ["Upgrading"; 3]);
    assert_eq!(cloud.accepted().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn faults_can_be_added_while_it_runs_and_an_answer_can_be_late() {
    let cloud = cloud(&with("")).await;
    let rule = json!({"cluster": "c1", "call": "upgradeNodeImage", "fault": {"delayAnswer": {"seconds": 90}}});
    cloud.call("POST", "/simulator/faults", &[], Some(&rule)).await.expect(201);
    for bad in [
        json!({"fault": "explode"}),
        json!({"fault": "dropAnswer", "more": 1}),
        json!({"fault": {"failAfter": {"status": 404}}}),
        json!({"nth": 0, "fault": "dropAnswer"}),
    ] {
        cloud.call("POST", "/simulator/faults", &[], Some(&bad)).await.expect(400);
    }
    let from = cloud.clock.now();
    cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    assert!(cloud.clock.now().duration_since(from).as_secs() >= 90);
    cloud.call("DELETE", "/simulator/faults", &[], None).await.expect(204);
    let rules = cloud.call("GET", "/simulator/faults", &[], None).await.body;
    assert_eq!(rules, json!({"value": []}));
}

#[tokio::test]
async fn a_dropped_answer_breaks_the_connection_after_the_call_took_effect() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cloud = cloud(&with("\nfaults: [{ call: upgradeNodeImage, fault: dropAnswer }]\n")).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("address");
    let router = cloud.router.clone();
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let mut socket = tokio::net::TcpStream::connect(address).await.expect("connect");
    let uri = crate::cloud::uri("c1/agentPools/system/upgradeNodeImageVersion");
    let request = format!("POST {uri} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\n\r\n");
    socket.write_all(request.as_bytes()).await.expect("send");
    let mut answer = Vec::new();
    // Whether the end comes as an orderly close or a reset does not matter.
    let _ = socket.read_to_end(&mut answer).await;
    assert_eq!(String::from_utf8_lossy(&answer), "");
    assert_eq!(cloud.accepted().await.len(), 1);
    let log = cloud.call("GET", "/simulator/requests", &[], None).await.body;
    assert_eq!((&log["value"][0]["status"], &log["value"][0]["call"]), (&json!(0), &json!("upgradeNodeImage")));
    server.abort();
}
