//! What a write does: the model, the states, the nodes, the lengths.

use flotta_simulator::record::StepKind;
use serde_json::{Value, json};

use crate::cloud::{cloud, pool_body, states, version_body, with};

const NEW_LINUX: &str = "AKSUbuntu-2204gen2containerd-202510.03.1";
const OLD_LINUX: &str = "AKSUbuntu-2204gen2containerd-202508.20.1";

#[tokio::test(start_paused = true)]
async fn aks_wire_3_model_jumps_at_acceptance() {
    let cloud = cloud(&with("")).await;
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    for body in [started.body.clone(), cloud.get("c1").await.body] {
        assert_eq!(states(&body), ["Upgrading"; 3]);
        let properties = &body["properties"];
        assert_eq!(
            (&properties["kubernetesVersion"], &properties["currentKubernetesVersion"]),
            (&json!("1.33.1"), &json!("1.33.1"))
        );
        for pool in properties["agentPoolProfiles"].as_array().expect("pools") {
            assert_eq!(
                (&pool["orchestratorVersion"], &pool["currentOrchestratorVersion"]),
                (&json!("1.33.1"), &json!("1.33.1"))
            );
        }
        assert_eq!(properties["agentPoolProfiles"][0]["nodeImageVersion"], NEW_LINUX);
        assert_eq!(
            properties["agentPoolProfiles"][1]["nodeImageVersion"],
            "AKSWindows-2022-containerd-20348.3207.250214"
        );
    }
    assert_eq!(cloud.finish(&started).await.body["status"], "Succeeded");
    assert_eq!(states(&cloud.get("c1").await.body), ["Succeeded"; 3]);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_machines_tell_the_truth_while_nodes_move_one_after_another() {
    let cloud = cloud(&with("")).await;
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    let mut seen = Vec::new();
    loop {
        let mut moved = 0;
        for pool in ["system", "win"] {
            let machines = cloud.get(&format!("c1/agentPools/{pool}/machines")).await.expect(200).body;
            let machines = machines["value"].as_array().expect("machines").clone();
            let new = |machine: &&Value| machine["properties"]["kubernetes"]["currentOrchestratorVersion"] == "1.33.1";
            moved += machines.iter().filter(new).count();
        }
        if seen.last() != Some(&moved) {
            seen.push(moved);
        }
        if cloud.poll(&started).await.body["status"] == "Succeeded" {
            break;
        }
        cloud.pass(20).await;
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_control_plane_only_marks_pools_and_leaves_their_versions() {
    let cloud = cloud(&with("")).await;
    let started = cloud.put("c1", version_body("1.33.1")).await.expect(200);
    assert_eq!(states(&started.body), ["Upgrading"; 3]);
    let pool = &started.body["properties"]["agentPoolProfiles"][0];
    assert_eq!((&pool["currentOrchestratorVersion"], &pool["nodeImageVersion"]), (&json!("1.32.6"), &json!(OLD_LINUX)));
    cloud.pass(130).await;
    assert_eq!(cloud.poll(&started).await.body["status"], "Succeeded");
    assert_eq!(states(&cloud.get("c1").await.body), ["Succeeded"; 3]);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_the_same_version_is_an_update_and_an_alias_of_it_too() {
    let cloud = cloud(&with("")).await;
    let started = cloud.put("c1", version_body("1.32.6")).await.expect(200);
    assert_eq!(states(&started.body), ["Updating"; 3]);
    cloud.finish(&started).await;
    let started = cloud.put("c1", version_body("1.32")).await.expect(200);
    assert_eq!(states(&started.body), ["Updating"; 3]);
    let properties = &started.body["properties"];
    assert_eq!(
        (&properties["kubernetesVersion"], &properties["currentKubernetesVersion"]),
        (&json!("1.32"), &json!("1.32.6"))
    );
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_a_node_image_upgrade_leaves_the_cluster_succeeded() {
    let cloud = cloud(&with("")).await;
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    assert_eq!(started.body["properties"]["provisioningState"], "UpgradingNodeImageVersion");
    assert_eq!(started.body["properties"]["nodeImageVersion"], NEW_LINUX);
    assert!(!started.header("location").is_empty() && !started.header("azure-asyncoperation").is_empty());
    assert_eq!(states(&cloud.get("c1").await.body), ["Succeeded", "UpgradingNodeImageVersion", "Succeeded"]);
    let from = cloud.clock.now();
    cloud.finish(&started).await;
    let seconds = cloud.clock.now().duration_since(from).as_secs();
    assert!((520..=760).contains(&seconds), "two nodes one after the other take about 618 s, not {seconds}");
    assert_eq!(states(&cloud.get("c1").await.body), ["Succeeded"; 3]);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_4_a_node_image_that_is_the_newest_is_a_short_no_op() {
    let cloud = cloud(&with("")).await;
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    cloud.finish(&started).await;
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    cloud.pass(10).await;
    assert_eq!(cloud.poll(&started).await.body["status"], "InProgress");
    cloud.pass(30).await;
    assert_eq!(cloud.poll(&started).await.body["status"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_pool_writes_upgrade_update_scale_stop_and_start_the_pool() {
    let cloud = cloud(&with("")).await;
    let started = cloud.put("c1", version_body("1.33.1")).await.expect(200);
    cloud.finish(&started).await;
    let cases = [
        (pool_body("1.33.1"), "Upgrading", "Running", 2),
        (pool_body("1.33.1"), "Updating", "Running", 2),
        (json!({"properties": {"count": 3}}), "Scaling", "Running", 3),
        (json!({"properties": {"powerState": {"code": "Stopped"}}}), "Stopping", "Stopped", 0),
        (json!({"properties": {"powerState": {"code": "Running"}}}), "Starting", "Running", 3),
    ];
    for (body, state, power, count) in cases {
        let started = cloud.put("c1/agentPools/system", body).await.expect(200);
        let properties = &started.body["properties"];
        let got = (&properties["provisioningState"], &properties["powerState"]["code"], &properties["count"]);
        assert_eq!(got, (&json!(state), &json!(power), &json!(count)));
        assert_eq!(started.header("location"), "");
        assert_eq!(cloud.get("c1").await.body["properties"]["provisioningState"], "Succeeded");
        assert_eq!(cloud.finish(&started).await.body["status"], "Succeeded");
        assert_eq!(cloud.get("c1/agentPools/system").await.body["properties"]["provisioningState"], "Succeeded");
    }
    assert_eq!(cloud.get("c1/agentPools/system").await.body["properties"]["nodeImageVersion"], NEW_LINUX);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_write_leaves_the_power_of_its_pools_alone() {
    let cloud = cloud(&with("")).await;
    let body = json!({"properties": {"agentPoolProfiles": [{"name": "system", "powerState": {"code": "Stopped"}}]}});
    let started = cloud.put("c1", body).await.expect(200);
    let pool = &started.body["properties"]["agentPoolProfiles"][0];
    assert_eq!((&pool["powerState"]["code"], &pool["count"]), (&json!("Running"), &json!(2)));
}

fn pin(image: &str) -> Value {
    json!({"properties": {"nodeImageVersion": image}})
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_a_pool_write_pins_an_image_of_its_family_that_the_region_has() {
    let cloud = cloud(&with("")).await;
    let profile = "c1/agentPools/system/upgradeProfiles/default";
    let offered = cloud.get(profile).await.body["properties"]["nodeImageVersions"].clone();
    assert_eq!(offered, json!([OLD_LINUX, NEW_LINUX]));
    let started = cloud.put("c1/agentPools/system", pin(NEW_LINUX)).await.expect(200);
    assert_eq!(started.body["properties"]["provisioningState"], "Upgrading");
    cloud.finish(&started).await;
    let again = cloud.put("c1/agentPools/system", pin(NEW_LINUX)).await.expect(200);
    assert_eq!(again.body["properties"]["provisioningState"], "Updating", "as the recorded rollback to the same image");
    cloud.finish(&again).await;
    for (bad, code) in [
        (OLD_LINUX, "BadRequest"),
        ("AKSUbuntu-2204gen2containerd-202512.01.0", "NodeImageVersionNotAvailable"),
        ("AKSUbuntu-2204gen2containerd-202510.03.1-2025.10.20", "NodeImageVersionNotAvailable"),
        ("AKSWindows-2022-containerd-20348.3207.250214", "InvalidParameter"),
        ("x", "InvalidParameter"),
    ] {
        assert_eq!(cloud.put("c1/agentPools/system", pin(bad)).await.expect(400).code(), code, "{bad}");
    }
    let accepted: Vec<_> = cloud.accepted().await.into_iter().map(|start| (start.step, start.target)).collect();
    assert_eq!(accepted, [(StepKind::PoolImage, Some(NEW_LINUX.into())), (StepKind::Update, None)]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_write_pins_the_images_that_go_with_the_version() {
    let cloud = cloud(&with("")).await;
    let pool = |name: &str| json!({"name": name, "orchestratorVersion": "1.33.1"});
    let mut pinned = pool("system");
    pinned["nodeImageVersion"] = OLD_LINUX.into();
    let pools = json!([pinned, pool("win")]);
    let body = json!({"properties": {"kubernetesVersion": "1.33.1", "agentPoolProfiles": pools}});
    let started = cloud.put("c1", body).await.expect(200);
    let images = |body: &Value| {
        let pools = body["properties"]["agentPoolProfiles"].as_array().expect("pools");
        pools.iter().map(|pool| pool["nodeImageVersion"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(images(&started.body), [OLD_LINUX, "AKSWindows-2022-containerd-20348.3207.250214"]);
}

#[tokio::test(start_paused = true)]
async fn without_pinning_pools_tell_of_no_images_and_take_none_as_public_aks() {
    let cloud = cloud(&with("").replace("throttling: false", "throttling: false, pinImages: false")).await;
    let profile = cloud.get("c1/agentPools/system/upgradeProfiles/default").await.body;
    assert_eq!(profile["properties"].get("nodeImageVersions"), None);
    let refused = cloud.put("c1/agentPools/system", pin(NEW_LINUX)).await.expect(400);
    assert_eq!(refused.code(), "PropertyChangeNotAllowed");
    let echoed = cloud.put("c1/agentPools/system", pin(OLD_LINUX)).await.expect(200);
    assert_eq!(echoed.body["properties"]["nodeImageVersion"], OLD_LINUX);
}

const PATCHED: &str =
    "\n    securityPatches: [2025-07-01, 2025-10-10, { is: 2025-10-20, afterSeconds: 3600 }]\n  eastus2:";

#[tokio::test(start_paused = true)]
async fn d2_security_patches_go_onto_running_nodes_of_linux_pools_in_a_short_while() {
    let cloud = cloud(&with("").replace("\n  eastus2:", PATCHED)).await;
    let patch = async |pool: &str| {
        let profile = cloud.get(&format!("c1/agentPools/{pool}/upgradeProfiles/default")).await.body;
        profile["properties"].get("latestSecurityPatch").cloned()
    };
    let (first, second) = (format!("{OLD_LINUX}-2025.10.10"), format!("{OLD_LINUX}-2025.10.20"));
    assert_eq!((patch("system").await, patch("win").await), (Some(json!(first)), None));
    let too_new = cloud.put("c1/agentPools/system", pin(&second)).await.expect(400);
    assert_eq!(too_new.code(), "NodeImageVersionNotAvailable");
    let started = cloud.put("c1/agentPools/system", pin(&first)).await.expect(200);
    let properties = &started.body["properties"];
    assert_eq!(
        (&properties["provisioningState"], &properties["nodeImageVersion"]),
        (&json!("Updating"), &json!(first))
    );
    let from = cloud.clock.now();
    cloud.finish(&started).await;
    assert!(cloud.clock.now().duration_since(from).as_secs() <= 100, "no node is made anew");
    let machines = cloud.get("c1/agentPools/system/machines").await.body;
    let patched = |machine: &Value| machine["properties"]["nodeImageVersion"] == *first;
    assert!(machines["value"].as_array().expect("machines").iter().all(patched));
    assert_eq!(patch("system").await, None, "it has them");
    cloud.pass(3600).await;
    assert_eq!(patch("system").await, Some(json!(second)));
    assert_eq!(cloud.accepted().await[0].step, StepKind::SecurityPatch);
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    assert_eq!(started.body["properties"]["nodeImageVersion"], NEW_LINUX, "a newer image ends the patches");
}

#[tokio::test(start_paused = true)]
async fn a4_a_pinned_image_takes_a_pool_away_from_its_snapshot() {
    let more = "
  - { name: c2, region: westeurope, version: 1.32.6, pools: [{ name: system, count: 1, snapshot: /snap, image: AKSUbuntu-2204gen2containerd-202508.20.1 }] }
";
    let cloud = cloud(&with(more)).await;
    let started = cloud.put("c2/agentPools/system", pin(NEW_LINUX)).await.expect(200);
    let properties = &started.body["properties"];
    assert_eq!((&properties["nodeImageVersion"], properties.get("creationData")), (&json!(NEW_LINUX), None));
}

#[tokio::test(start_paused = true)]
async fn e63_every_write_that_leaves_a_pool_on_an_expired_image_is_refused_when_asked_for() {
    // The present is 2025-11-01: an image of 2025-08-01 is past its 90 days, one of 2025-08-20 is not.
    let fleet = with("").replace("throttling: false", "throttling: false, expiredImages: refuse");
    let fleet = fleet.replace("202508.20.1", "202508.01.0").replace("20348.2700.240911", "20348.3930.250901");
    let cloud = cloud(&fleet).await;
    let pool = "c1/agentPools/system";
    for body in [pool_body("1.32.6"), pin("AKSUbuntu-2204gen2containerd-202508.01.0")] {
        let refused = cloud.put(pool, body).await.expect(400);
        assert_eq!(refused.code(), "ReconcileVMSSAgentPoolFailed");
        assert!(refused.message().contains("is not supported for AgentBaker"), "{}", refused.message());
    }
    assert_eq!(cloud.put("c1", version_body("1.33.1")).await.expect(400).code(), "ReconcileVMSSAgentPoolFailed");
    let started = cloud.post(&format!("{pool}/upgradeNodeImageVersion")).await.expect(202);
    cloud.finish(&started).await;
    cloud.put("c1", version_body("1.33.1")).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_a_snapshot_pool_keeps_its_image_only_while_the_snapshot_is_named() {
    let more = "
  - name: c2
    region: westeurope
    version: 1.32.6
    pools: [{ name: system, count: 1, snapshot: /snap, image: AKSUbuntu-2204gen2containerd-202508.20.1 }]
";
    let cloud = cloud(&with(more)).await;
    let named =
        json!({"name": "system", "orchestratorVersion": "1.32.7", "creationData": {"sourceResourceId": "/snap"}});
    let bare = json!({"name": "system", "orchestratorVersion": "1.33.0"});
    for (version, pool, image, snapshot) in [("1.32.7", named, OLD_LINUX, true), ("1.33.0", bare, NEW_LINUX, false)] {
        let body = json!({"properties": {"kubernetesVersion": version, "agentPoolProfiles": [pool]}});
        let started = cloud.put("c2", body).await.expect(200);
        let pool = &started.body["properties"]["agentPoolProfiles"][0];
        assert_eq!(pool["nodeImageVersion"], image);
        assert_eq!(pool.get("creationData").is_some(), snapshot);
        cloud.finish(&started).await;
    }
}

#[tokio::test(start_paused = true)]
async fn aks_wire_4_full_upgrades_take_as_long_as_measured() {
    let mut more = String::new();
    for index in 0..40 {
        more += &format!(
            "\n  - {{ name: t{index}, region: westeurope, version: 1.32.6, pools: [{{ name: system, count: 1 }}] }}"
        );
    }
    let cloud = cloud(&with(&more)).await;
    let mut lengths = Vec::new();
    for index in 0..40 {
        let started = cloud.full_upgrade(&format!("t{index}"), "1.33.0").await.expect(200);
        let end = cloud.finish(&started).await;
        let at = |key: &str| end.body[key].as_str().expect(key).parse::<jiff::Timestamp>().expect("time");
        lengths.push(at("endTime").duration_since(at("startTime")).as_secs());
    }
    lengths.sort();
    assert!(lengths[0] >= 560 && lengths[39] <= 870, "{lengths:?}");
    assert!((680..=800).contains(&lengths[20]), "{lengths:?}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_of_zero_ends_operations_as_they_begin() {
    let cloud = cloud(&with("").replace("throttling: false", "throttling: false, durationScale: 0")).await;
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    assert_eq!(states(&started.body), ["Upgrading"; 3]);
    assert_eq!(cloud.poll(&started).await.body["status"], "Succeeded");
    assert_eq!(states(&cloud.get("c1").await.body), ["Succeeded"; 3]);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_1_clusters_and_pools_are_made_and_taken_away() {
    let cloud = cloud(&with("")).await;
    let body = json!({"location": "westeurope", "properties": {"kubernetesVersion": "1.32", "agentPoolProfiles": [{"name": "system", "count": 2, "mode": "System"}]}});
    let started = cloud.put("new", body.clone()).await.expect(201);
    assert_eq!(states(&started.body), ["Creating"; 2]);
    assert_eq!(started.header("location"), "");
    assert_eq!(cloud.finish(&started).await.body["status"], "Succeeded");
    assert_eq!(cloud.get("new").await.body["properties"]["currentKubernetesVersion"], "1.32.7");
    let started = cloud.put("new/agentPools/more", json!({"properties": {"count": 1}})).await.expect(201);
    assert_eq!(cloud.finish(&started).await.body["status"], "Succeeded");
    let started = cloud.send("DELETE", "new/agentPools/more", None).await.expect(202);
    assert_eq!(started.body, Value::Null);
    cloud.finish(&started).await;
    cloud.get("new/agentPools/more").await.expect(404);
    let started = cloud.send("DELETE", "new", None).await.expect(202);
    assert_eq!(cloud.get("new").await.body["properties"]["provisioningState"], "Deleting");
    cloud.finish(&started).await;
    assert_eq!(cloud.get("new").await.expect(404).code(), "ResourceNotFound");
    cloud.send("DELETE", "new", None).await.expect(204);
    cloud.put("new", body).await.expect(201);
    assert_eq!(
        cloud.put("nowhere", json!({"location": "mars", "properties": {}})).await.expect(400).code(),
        "InvalidParameter"
    );
    cloud.get("nowhere").await.expect(404);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_1_stop_start_and_abort_answer_202_with_both_urls() {
    let cloud = cloud(&with("")).await;
    let started = cloud.post("c1/stop").await.expect(202);
    assert_eq!(started.body, Value::Null);
    assert!(started.header("location").contains("/operationresults/"));
    cloud.finish(&started).await;
    let stopped = cloud.get("c1").await.body;
    assert_eq!(stopped["properties"]["powerState"]["code"], "Stopped");
    let started = cloud.post("c1/start").await.expect(202);
    cloud.finish(&started).await;
    let upgrade = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    cloud.pass(60).await;
    let abort = cloud.post("c1/abort").await.expect(202);
    assert_eq!(states(&abort.body), ["Upgrading"; 3], "the answer shows the resource as before the abort");
    assert_eq!(states(&cloud.get("c1").await.body), ["Canceling"; 3]);
    assert_eq!(cloud.finish(&abort).await.body["status"], "Succeeded");
    assert_eq!(cloud.poll(&upgrade).await.body["status"], "Canceled");
    let after = cloud.get("c1").await.body;
    assert_eq!(states(&after), ["Canceled"; 3]);
    assert_eq!(after["properties"]["currentKubernetesVersion"], "1.33.1", "there is no way back");
    assert_eq!(cloud.post("c1/abort").await.expect(409).code(), "OperationNotAllowed");
    let started = cloud.post("c1/agentPools/system/upgradeNodeImageVersion").await.expect(202);
    assert_eq!(cloud.post("c1/agentPools/win/abort").await.expect(409).code(), "OperationNotAllowed");
    let abort = cloud.post("c1/agentPools/system/abort").await.expect(202);
    cloud.finish(&abort).await;
    assert_eq!(cloud.poll(&started).await.body["status"], "Canceled");
}

#[tokio::test(start_paused = true)]
async fn aks_wire_2_a_delete_cancels_what_is_going_on() {
    let cloud = cloud(&with("")).await;
    let upgrade = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    cloud.send("DELETE", "c1", None).await.expect(202);
    let canceled = cloud.poll(&upgrade).await.body;
    assert_eq!((&canceled["status"], &canceled["error"]["code"]), (&json!("Canceled"), &json!("Canceled")));
}
