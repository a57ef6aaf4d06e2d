//! An operation is followed to its end, and believed when the resources agree.

use std::time::Duration;

use flotta_drivers::{ClusterDriver, Operation, Progress, Trouble};
use flotta_model::{Fault, Hold, Step};
use http::{Method, Response};
use serde_json::{Value, json};

use crate::fake::*;

fn operation() -> Operation {
    Operation { id: "op-1".into(), url: Some(OPERATION.into()) }
}

fn lost() -> Operation {
    Operation { id: "op-1".into(), url: None }
}

async fn poll(fake: &Fake, step: Step, operation: &Operation) -> Result<Progress, Trouble> {
    driver(fake).poll(&intent(step, "cluster-0", false), operation).await
}

fn running(detail: &str, seconds: u64) -> Progress {
    Progress::Running { detail: detail.into(), after: Duration::from_secs(seconds) }
}

fn fault(progress: Progress) -> Fault {
    match progress {
        Progress::Failed(fault) => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_address_of_an_operation_is_followed_character_for_character() {
    for url in [OPERATION.to_owned(), format!("{ENDPOINT}{OPERATION}"), format!("{OPERATION}{}", "x".repeat(3300))] {
        let fake = Fake::new();
        let operation = Operation { id: "op-1".into(), url: Some(url.clone()) };
        poll(&fake, full("1.33.2"), &operation).await.expect("polled");
        let asked = fake.with(|state| state.log[0].uri.clone());
        assert_eq!(asked, format!("{ENDPOINT}{}", url.trim_start_matches(ENDPOINT)));
    }
}

#[tokio::test]
async fn e64_only_three_words_end_an_operation_and_an_error_beside_another_word_is_not_one() {
    let fake = Fake::new();
    for word in
        ["InProgress", "CreatingAgentPools: 2/3 nodes completed", "Canceling", "succeeded?", "ReconcilingAddons"]
    {
        fake.with(|state| state.status = json!({"status": word, "endTime": "2024-06-14T10:55:27Z", "error": {"code": "ContextDeadlineExceeded", "message": "m"}}));
        assert_eq!(poll(&fake, full("1.33.2"), &operation()).await, Ok(running(word, 15)));
    }
    fake.with(|state| {
        state.status = json!({"status": "Succeeded", "error": {"code": "NotLatestOperation", "message": "m"}})
    });
    assert_eq!(poll(&fake, full("1.33.2"), &operation()).await, Ok(Progress::Succeeded));
}

#[tokio::test]
async fn a_good_end_is_believed_when_cluster_and_pools_have_come_to_rest() {
    let fake = Fake::new();
    fake.with(|state| {
        state.status = json!({"status": "Succeeded"});
        state.doing("Updating");
    });
    assert_eq!(poll(&fake, full("1.33.2"), &operation()).await, Ok(running("Updating", 5)));
    fake.with(|state| {
        state.doing("Succeeded");
        state.pool("win").expect("win")["provisioningState"] = "Upgrading".into();
    });
    assert_eq!(poll(&fake, full("1.33.2"), &operation()).await, Ok(running("Upgrading", 5)));
    fake.with(|state| {
        let pool = state.pool("win").expect("win");
        pool["provisioningState"] = "Failed".into();
        pool["status"] = json!({"provisioningError": {"code": "SubnetIsFull", "message": "no addresses"}});
    });
    let failed = fault(poll(&fake, full("1.33.2"), &operation()).await.expect("polled"));
    assert_eq!(failed.code, "SubnetIsFull");
    assert!(failed.message.starts_with("pool 'win': no addresses") && failed.message.contains("maxSurge"), "{failed}");
    // The same pool is nothing to the control plane, nor to another pool.
    assert_eq!(poll(&fake, control_plane("1.33.2"), &operation()).await, Ok(Progress::Succeeded));
    assert_eq!(poll(&fake, image(), &operation()).await, Ok(Progress::Succeeded));
    assert_eq!(fault(poll(&fake, pool_version("1.33.2"), &operation()).await.expect("polled")).code, "SubnetIsFull");
}

/// A step ends like this; what is told.
async fn ends(fake: &Fake, step: Step, status: &str, code: &str, message: &str) -> Fault {
    fake.with(|state| state.status = json!({"status": status, "error": {"code": code, "message": message}}));
    fault(poll(fake, step, &operation()).await.expect("polled"))
}

#[tokio::test]
async fn d4_e62_e63_e66_a_bad_end_is_told_in_the_providers_words_with_a_hint() {
    let quota = "Insufficient vcpu quota requested 4, remaining 0 for family StandardDSv3Family for region eastus.";
    let image = "ConfigurationVersion 20 is not supported for AgentBaker. Please upgrade agent pool to the latest NodeImageVersion";
    let lts = "The cluster is on version 1.30.100, which is only available for Long-Term Support (LTS).";
    let cases = [
        ("Failed", "QuotaExceeded", quota, "QuotaExceeded", "maxSurge"),
        ("Failed", "AllocationFailed", "m", "AllocationFailed", "capacity"),
        ("Failed", "SubnetIsFull", "m", "SubnetIsFull", "maxUnavailable"),
        ("Failed", "SKUNotAvailable", "m", "SKUNotAvailable", "node size"),
        ("Failed", "ReconcileVMSSAgentPoolFailed", image, "ReconcileVMSSAgentPoolFailed", "NodeImageOnly to Latest"),
        ("Failed", "K8sVersionNotSupported", lts, "K8sVersionNotSupported", "Premium tier"),
        ("Canceled", "Whatever", "by user", "Canceled", "aborted"),
    ];
    for (status, code, message, told, hint) in cases {
        let failed = ends(&Fake::new(), full("1.33.2"), status, code, message).await;
        let (said, way_out) = failed.message.split_once(" Hint: ").expect("a hint");
        assert!(failed.code == told && said.trim_end_matches('.') == message.trim_end_matches('.'), "{failed}");
        assert!(way_out.contains(hint), "{failed}");
    }
    assert_eq!(ends(&Fake::new(), full("1.33.2"), "Failed", "", "m").await, Fault::new("Failed", "m"));
}

#[tokio::test]
async fn e57_a_drain_that_fails_names_budget_namespace_and_pool() {
    let drain = |node: &str| {
        format!(
            "Drain node {node} failed when evicting pod web-0. Original error: Cannot evict pod as it would violate the \
             pod's disruption budget.. PDB debug info: shop/web-0 blocked by pdb web with 0 unready pods."
        )
    };
    let known = drain("aks-sys-12345678-vmss000002");
    for (step, message, pool) in [
        (full("1.33.2"), known.clone(), "sys"),
        (full("1.33.2"), drain("akswin000001"), "win"),
        (pool_version("1.33.2"), drain("akswin000001"), "win"),
        (image(), known, "sys"),
    ] {
        let fake = Fake::new();
        fake.with(|state| state.pool("win").expect("win")["provisioningState"] = "Failed".into());
        let failed = ends(&fake, step, "Failed", "UpgradeFailed", &message).await;
        let hint = "Hint: pod disruption budget shop/web lets no pod go: ";
        assert!(
            failed.message.starts_with(&format!("pool '{pool}': {message}")) && failed.message.contains(hint),
            "{failed}"
        );
    }
    // What cannot be read is not named; the failure is told all the same.
    let fake = Fake::new();
    fake.script(Method::GET, "/managedClusters/c1?", error(500, "x", "m"));
    let failed = ends(&fake, full("1.33.2"), "Failed", "UpgradeFailed", "no node").await;
    assert_eq!(failed, Fault::new("UpgradeFailed", "no node"));
}

#[tokio::test]
async fn d4_e59_an_overtaken_operation_is_looked_at_again_and_not_counted_as_failed() {
    let fake = Fake::new();
    for code in ["AKSOperationPreempted", "AKSOperationPreemptedByDelete", "NotLatestOperation"] {
        fake.with(|state| {
            state.status = json!({"status": "Failed", "error": {"code": code, "message": "m"}});
            state.doing("Upgrading");
        });
        assert_eq!(poll(&fake, full("1.33.2"), &operation()).await, Ok(running("Upgrading", 15)));
        fake.with(|state| state.doing("Succeeded"));
        assert_eq!(poll(&fake, full("1.33.2"), &operation()).await, Ok(Progress::Succeeded));
    }
    fake.with(|state| state.pool("win").expect("win")["provisioningState"] = "Failed".into());
    assert_eq!(fault(poll(&fake, full("1.33.2"), &operation()).await.expect("polled")).code, "Failed");
}

#[tokio::test]
async fn an_operation_without_an_address_is_followed_by_the_latest_and_else_by_state() {
    let fake = Fake::new();
    fake.with(|state| {
        state.latest = Some(json!({"name": "OP-1", "status": "ReconcilingDNS"}));
        state.doing("Upgrading");
    });
    assert_eq!(poll(&fake, full("1.33.2"), &lost()).await, Ok(running("ReconcilingDNS", 15)));
    fake.with(|state| state.latest = Some(json!({"name": "somebody-elses", "status": "Failed"})));
    assert_eq!(poll(&fake, full("1.33.2"), &lost()).await, Ok(running("Upgrading", 15)));
    fake.with(|state| {
        state.latest = None;
        state.doing("Succeeded");
    });
    for (step, there) in [
        (full("1.32.7"), true),
        (full("1.33.2"), false),
        (control_plane("1.33.2"), false),
        (pool_version("1.32.7"), true),
        (image(), true),
        (full_pinned("1.32.7"), false),
        (pool_version_pinned("1.32.7"), false),
        (pinned(NEW_IMAGE), false),
        (pinned("AKSUbuntu-2204gen2containerd-202509.01.0"), true),
    ] {
        let progress = poll(&fake, step.clone(), &lost()).await.expect("polled");
        assert_eq!(progress == Progress::Succeeded, there, "{step}: {progress:?}");
    }
    fake.with(|state| state.doing("Failed"));
    assert_eq!(fault(poll(&fake, full("1.33.2"), &lost()).await.expect("polled")).code, "Failed");
}

#[tokio::test]
async fn an_expired_address_is_given_up_and_a_foreign_one_never_asked() {
    for status in [404, 410, 403, 400] {
        let fake = Fake::new();
        fake.script(Method::GET, "/operations/op-1", error(status, "Gone", "expired"));
        assert_eq!(poll(&fake, full("1.32.7"), &operation()).await, Ok(Progress::Succeeded), "{status}");
    }
    let fake = Fake::new();
    for url in [
        "https://evil.example/operations/op-1",
        "//evil.example/x",
        "http://localhost:10/x",
        "http://u@localhost:9/x",
        "https://localhost:9/x",
        "not a url",
    ] {
        let foreign = Operation { id: "op-1".into(), url: Some(url.into()) };
        assert_eq!(poll(&fake, full("1.32.7"), &foreign).await, Ok(Progress::Succeeded));
    }
    assert!(fake.with(|state| state.log.iter().all(|seen| seen.uri.starts_with(&format!("{ENDPOINT}{ID}")))));
}

#[tokio::test]
async fn d4_passing_trouble_is_polled_through_and_a_pause_heeded() {
    let fake = Fake::new();
    for answer in [error(502, "BadGatewayConnection", "m"), error(504, "GatewayTimeout", "m"), error(500, "x", "m")] {
        fake.script(Method::GET, "/operations/op-1", answer);
        let trouble = poll(&fake, full("1.33.2"), &operation()).await.expect_err("passing");
        assert!(matches!(trouble, Trouble::Retry { after: None, .. }), "{trouble:?}");
    }
    let paused = |name: &str, value: &str| {
        let body = json!({"status": "InProgress"}).to_string();
        Ok(Response::builder().header(name, value).body(body.into()).expect("answer"))
    };
    for (name, value, seconds) in
        [("retry-after", "40", 40), ("x-ms-retry-after-ms", "3000", 3), ("retry-after", "0", 15)]
    {
        fake.script(Method::GET, "/operations/op-1", paused(name, value));
        assert_eq!(poll(&fake, full("1.33.2"), &operation()).await, Ok(running("InProgress", seconds)));
    }
}

#[tokio::test]
async fn a_cluster_or_pool_that_is_deleted_meanwhile_is_noticed() {
    let fake = Fake::new();
    fake.with(|state| {
        state.status = json!({"status": "Succeeded"});
        let pools = state.cluster["properties"]["agentPoolProfiles"].as_array_mut().expect("pools");
        pools.retain(|pool: &Value| pool["name"] != "win");
    });
    assert_eq!(
        fault(poll(&fake, pool_version("1.33.2"), &operation()).await.expect("polled")).code,
        "AgentPoolNotFound"
    );
    fake.script(Method::GET, ID, error(404, "NotFound", "gone"));
    let trouble = poll(&fake, full("1.33.2"), &operation()).await.expect_err("gone");
    assert!(matches!(trouble, Trouble::Wait(Hold::Unreachable(_))), "{trouble:?}");
}
