//! A step is started at most once, whatever happened before.

use std::sync::Arc;

use flotta_drivers::{ClusterDriver, Intent, Look, Operation, Started, Trouble, transport::TransportError};
use flotta_model::{Hold, Step};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fake::*;

#[tokio::test]
async fn d6_full_sends_the_whole_cluster_with_exactly_its_pools_guarded_by_the_intent() {
    let fake = Fake::new();
    fake.with(|state| state.pool("sys").expect("sys")["creationData"] = json!({"sourceResourceId": "/snap"}));
    let mut expected = fake.with(|state| state.cluster.clone());
    let started = driver(&fake).start(&intent(full("1.33.2"), "cluster-0", false)).await.expect("started");
    assert_eq!(
        started,
        Started { operation: Operation { id: "op-1".into(), url: Some(OPERATION.into()) }, adopted: false }
    );

    for name in ["id", "name", "type", "eTag"] {
        expected.as_object_mut().expect("object").remove(name);
    }
    expected["identity"] = json!({"type": "SystemAssigned"});
    let properties = expected["properties"].as_object_mut().expect("properties");
    for name in ["provisioningState", "powerState", "currentKubernetesVersion", "maxAgentPools", "fqdn"] {
        properties.remove(name);
    }
    properties["kubernetesVersion"] = "1.33.2".into();
    for pool in properties["agentPoolProfiles"].as_array_mut().expect("pools") {
        let pool = pool.as_object_mut().expect("pool");
        for name in ["provisioningState", "currentOrchestratorVersion", "nodeImageVersion", "eTag", "creationData"] {
            pool.remove(name);
        }
        pool["orchestratorVersion"] = "1.33.2".into();
    }
    let writes = fake.writes();
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].body, expected);
    assert_eq!(writes[0].headers["if-match"], "cluster-0");
    assert!(writes[0].uri.starts_with(&format!("{ENDPOINT}{ID}?api-version=")), "{}", writes[0].uri);
}

#[tokio::test]
async fn d6_control_plane_keeps_the_version_and_snapshot_of_every_pool() {
    let fake = Fake::new();
    fake.with(|state| {
        state.pool("sys").expect("sys")["orchestratorVersion"] = "1.32".into();
        state.pool("sys").expect("sys")["creationData"] = json!({"sourceResourceId": "/snap"});
        state.pool("win").expect("win").as_object_mut().expect("pool").remove("orchestratorVersion");
    });
    driver(&fake).start(&intent(control_plane("1.33.2"), "cluster-0", false)).await.expect("started");
    let body = &fake.writes()[0].body["properties"];
    assert_eq!(body["kubernetesVersion"], "1.33.2");
    let versions: Vec<&Value> =
        body["agentPoolProfiles"].as_array().expect("pools").iter().map(|pool| &pool["orchestratorVersion"]).collect();
    assert_eq!(versions, ["1.32", "1.32.7"]);
    assert_eq!(body["agentPoolProfiles"][0]["creationData"]["sourceResourceId"], "/snap");
}

#[tokio::test]
async fn d6_a_pool_is_written_alone_and_its_image_asked_for_by_post() {
    let fake = Fake::new();
    driver(&fake).start(&intent(pool_version("1.32.9"), "win-0", false)).await.expect("started");
    fake.with(|state| state.doing("Succeeded"));
    driver(&fake).start(&intent(image(), "sys-0", false)).await.expect("started");
    let writes = fake.writes();
    assert!(writes[0].uri.contains("/agentPools/win?"), "{}", writes[0].uri);
    assert_eq!(writes[0].headers["if-match"], "win-0");
    let properties = writes[0].body["properties"].as_object().expect("properties");
    assert_eq!(properties["orchestratorVersion"], "1.32.9");
    assert_eq!(properties["newer"], json!({"unknown": [1, 2]}));
    for gone in ["provisioningState", "nodeImageVersion", "currentOrchestratorVersion", "eTag"] {
        assert!(!properties.contains_key(gone), "{gone}");
    }
    assert_eq!(writes[1].method, Method::POST);
    assert!(writes[1].uri.contains("/agentPools/sys/upgradeNodeImageVersion?"), "{}", writes[1].uri);
    assert!(!writes[1].headers.contains_key("if-match"));
}

#[tokio::test]
async fn a4_pinned_images_go_with_the_version_or_alone_and_take_pools_away_from_their_snapshot() {
    let properties = |fake: &Fake| fake.writes()[0].body["properties"].clone();
    let with_snapshots = || {
        let fake = Fake::new();
        fake.with(|state| {
            for name in ["sys", "win"] {
                state.pool(name).expect("pool")["creationData"] = json!({"sourceResourceId": "/snap"});
            }
        });
        fake
    };
    let fake = with_snapshots();
    driver(&fake).start(&intent(full_pinned("1.33.2"), "cluster-0", false)).await.expect("started");
    let pools = properties(&fake)["agentPoolProfiles"].clone();
    assert_eq!((&pools[0]["nodeImageVersion"], pools[1].get("nodeImageVersion")), (&json!(NEW_IMAGE), None));

    let fake = with_snapshots();
    driver(&fake).start(&intent(pool_version_pinned("1.33.2"), "win-0", false)).await.expect("started");
    let win = properties(&fake);
    assert_eq!((&win["orchestratorVersion"], &win["nodeImageVersion"]), (&json!("1.33.2"), &json!(NEW_WINDOWS)));
    assert_eq!(win.get("creationData"), None);

    let fake = with_snapshots();
    driver(&fake).start(&intent(pinned(PATCHED), "sys-0", false)).await.expect("started");
    let sys = properties(&fake);
    assert_eq!((&sys["orchestratorVersion"], &sys["nodeImageVersion"]), (&json!("1.32.7"), &json!(PATCHED)));
    assert_eq!((sys.get("creationData"), sys.get("eTag")), (None, None));
    assert_eq!(fake.writes()[0].headers["if-match"], "sys-0");
}

#[tokio::test]
async fn a4_what_reached_the_version_on_another_image_is_not_taken_for_ours() {
    use Etag::Other;
    for (ours, step, guard) in [
        (full("1.33.2"), full_pinned("1.33.2"), "cluster-0"),
        (pool_version("1.33.2"), pool_version_pinned("1.33.2"), "win-0"),
    ] {
        for (word, expected) in [("Upgrading", Outcome::OtherOperation), ("Succeeded", Outcome::LookAgain)] {
            let fake = Fake::new();
            arrange(&fake, &step, Other, word, false);
            fake.with(|state| show(state, &ours));
            let trouble = driver(&fake).start(&intent(step.clone(), guard, true)).await.expect_err("not ours");
            let got = match trouble {
                Trouble::Wait(Hold::OtherOperation(_)) => Outcome::OtherOperation,
                _ => Outcome::LookAgain,
            };
            assert_eq!(got, expected, "{step}, {word}: {trouble:?}");
        }
    }
    // A pool that is still bound to its snapshot is not where a pin takes it.
    let fake = Fake::new();
    arrange(&fake, &pinned(NEW_IMAGE), Other, "Succeeded", true);
    fake.with(|state| state.pool("sys").expect("sys")["creationData"] = json!({"sourceResourceId": "/snap"}));
    let trouble = driver(&fake).start(&intent(pinned(NEW_IMAGE), "sys-0", true)).await.expect_err("changed");
    assert!(matches!(trouble, Trouble::Retry { .. }), "{trouble:?}");
}

#[tokio::test]
async fn e63_an_image_that_is_gone_is_waited_for_and_one_that_cannot_be_pinned_or_is_too_old_never_works() {
    let start = async |step: Step, guard: &str, code: &str, message: &str| {
        let fake = Fake::new();
        fake.script(Method::PUT, "", error(400, code, message));
        driver(&fake).start(&intent(step, guard, false)).await.expect_err(code)
    };
    let gone = format!("Node image version {NEW_IMAGE} for agent pool sys is not available in this region");
    for (step, guard) in [(pinned(NEW_IMAGE), "sys-0"), (full_pinned("1.33.2"), "cluster-0")] {
        let trouble = start(step, guard, "NodeImageVersionNotAvailable", &gone).await;
        let hold = Hold::ImageNotInRegion { image: NEW_IMAGE.into(), region: "eastus".into() };
        assert_eq!(trouble, Trouble::Wait(hold));
    }
    let unpinnable = "Changing property 'properties.nodeImageVersion' is not allowed.";
    let too_old = "ConfigurationVersion 202501.01.0 is not supported for AgentBaker.";
    for (code, message, hint) in [
        ("PropertyChangeNotAllowed", unpinnable, "use Latest"),
        ("ReconcileVMSSAgentPoolFailed", too_old, "NodeImageOnly to Latest"),
    ] {
        let trouble = start(pinned(NEW_IMAGE), "sys-0", code, message).await;
        let told = matches!(&trouble, Trouble::Permanent(fault) if fault.code == code && fault.message.contains(hint));
        assert!(told, "{trouble:?}");
    }
}

#[tokio::test]
async fn d6_other_pools_than_those_decided_on_are_never_written() {
    let fake = Fake::new();
    let step = Step::cluster("1.33.2".parse().expect("version"), vec!["sys".into()]);
    let trouble = driver(&fake).start(&intent(step, "cluster-0", false)).await.expect_err("another decision");
    assert!(matches!(trouble, Trouble::Retry { .. }), "{trouble:?}");
    assert!(fake.writes().is_empty());
}

/// What may be seen when a step is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Etag {
    Guard,
    Other,
}

/// What came of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Sent,
    Adopted,
    OtherOperation,
    LookAgain,
}

/// Puts the thing that a step is about into a state.
fn arrange(fake: &Fake, step: &Step, etag: Etag, word: &str, ours: bool) {
    fake.with(|state| {
        match step.pool() {
            None => {
                state.doing(word);
                if etag == Etag::Other {
                    state.cluster["eTag"] = "elsewhere".into();
                }
            }
            Some(pool) => {
                let pool = state.pool(pool).expect("pool");
                pool["provisioningState"] = word.into();
                if etag == Etag::Other {
                    pool["eTag"] = "elsewhere".into();
                }
            }
        }
        if ours {
            show(state, step);
        }
    });
}

/// Makes the model show what a step wants.
fn show(state: &mut State, step: &Step) {
    let mut set = |pool: &str, key: &str, value: &str| state.pool(pool).expect("pool")[key] = value.into();
    match step {
        Step::Cluster { version, images, .. } => {
            for pool in ["sys", "win"] {
                set(pool, "currentOrchestratorVersion", &version.to_string());
            }
            for (pool, image) in images {
                set(pool, "nodeImageVersion", image.as_str());
            }
            state.cluster["properties"]["currentKubernetesVersion"] = version.to_string().into();
        }
        Step::ControlPlane { version } => {
            state.cluster["properties"]["currentKubernetesVersion"] = version.to_string().into();
        }
        Step::PoolVersion { pool, version, image } => {
            set(pool, "currentOrchestratorVersion", &version.to_string());
            if let Some(image) = image {
                set(pool, "nodeImageVersion", image.as_str());
            }
        }
        Step::PoolImage { pool, image } | Step::PoolPinned { pool, image } => {
            set(pool, "nodeImageVersion", image.as_str());
        }
    }
}

async fn outcome(step: &Step, guard: Option<&str>, etag: Etag, word: &str, ours: bool, recovering: bool) -> Outcome {
    let fake = Fake::new();
    arrange(&fake, step, etag, word, ours);
    fake.with(|state| state.latest = Some(json!({"name": "op-9", "status": "InProgress"})));
    let mut intent = intent(step.clone(), "", recovering);
    intent.guard = guard.map(str::to_owned);
    let got = match driver(&fake).start(&intent).await {
        Ok(Started { adopted: true, operation }) => {
            assert_eq!(operation, Operation { id: "op-9".into(), url: None });
            Outcome::Adopted
        }
        Ok(Started { adopted: false, .. }) => Outcome::Sent,
        Err(Trouble::Wait(Hold::OtherOperation(said))) => {
            assert_eq!(said, word);
            Outcome::OtherOperation
        }
        Err(Trouble::Retry { .. }) => Outcome::LookAgain,
        Err(trouble) => panic!("{trouble:?}"),
    };
    assert_eq!(fake.writes().len(), usize::from(got == Outcome::Sent));
    got
}

#[tokio::test]
async fn d6_a_start_sends_only_what_was_certainly_not_accepted() {
    use Etag::{Guard, Other};
    use Outcome::{Adopted, LookAgain, OtherOperation, Sent};
    // etag, the thing's own word (image: UpgradingNodeImageVersion), shows our target → first call, recovering
    let table = [
        (Guard, "Succeeded", false, Sent, Sent),
        (Guard, "Failed", true, Sent, Sent),
        (Guard, "Canceled", false, Sent, Sent),
        (Other, "Succeeded", false, LookAgain, LookAgain),
        (Other, "Failed", false, LookAgain, LookAgain),
        (Other, "Succeeded", true, LookAgain, Adopted),
        (Other, "Failed", true, LookAgain, Adopted),
        (Other, "Upgrading", false, OtherOperation, OtherOperation),
        (Other, "Scaling", true, OtherOperation, OtherOperation),
        (Guard, "Scaling", false, OtherOperation, OtherOperation),
        (Guard, "SomethingNew", true, OtherOperation, OtherOperation),
    ];
    for (step, guard) in &every_step() {
        for (etag, word, ours, first, recovering) in table {
            for (again, expected) in [(false, first), (true, recovering)] {
                let got = outcome(step, Some(guard), etag, word, ours, again).await;
                assert_eq!(got, expected, "{step}, {etag:?}, {word}, target shown: {ours}, recovering: {again}");
            }
        }
        let is_image = matches!(step, Step::PoolImage { .. });
        let word = if is_image { "UpgradingNodeImageVersion" } else { "Upgrading" };
        for again in [false, true] {
            assert_eq!(outcome(step, Some(guard), Other, word, true, again).await, Adopted, "{step}");
            let same = if is_image { Adopted } else { OtherOperation };
            assert_eq!(outcome(step, Some(guard), Guard, word, true, again).await, same, "{step}");
        }
        // Without etags the state alone tells.
        assert_eq!(outcome(step, None, Guard, "Succeeded", false, true).await, Sent, "{step}");
        assert_eq!(outcome(step, None, Guard, "Succeeded", true, true).await, Adopted, "{step}");
        assert_eq!(outcome(step, None, Guard, word, true, true).await, Adopted, "{step}");
    }
}

#[tokio::test]
async fn d6_a_pool_that_is_busy_keeps_its_cluster_from_being_written() {
    let fake = Fake::new();
    fake.with(|state| state.pool("win").expect("win")["provisioningState"] = "UpgradingNodeImageVersion".into());
    let trouble = driver(&fake).start(&intent(full("1.33.2"), "cluster-0", false)).await.expect_err("busy");
    assert_eq!(trouble, Trouble::Wait(Hold::OtherOperation("UpgradingNodeImageVersion".into())));
    assert!(fake.writes().is_empty());
}

#[tokio::test]
async fn d5_what_was_observed_is_written_from_without_a_second_read_unless_it_changed() {
    for (changed, reads) in [(false, 1), (true, 2)] {
        let fake = Fake::new();
        let driver = driver(&fake);
        let look = Look { target: Some("1.33.2".parse().expect("version")), ..Look::default() };
        let none = json!({"properties": {"controlPlaneProfile": {"upgrades": []}}});
        fake.script(Method::GET, "c1/upgradeProfiles/default", json_answer(200, &none));
        driver.observe(&id(), look).await.expect("seen");
        if changed {
            fake.with(|state| state.cluster["eTag"] = "cluster-9".into());
        }
        let guard = if changed { "cluster-9" } else { "cluster-0" };
        driver.start(&intent(full("1.33.2"), guard, false)).await.expect("started");
        assert_eq!(fake.reads("/managedClusters/c1?"), reads, "changed: {changed}");
        assert_eq!(fake.writes()[0].headers["if-match"], guard);
    }
}

/// The image of `sys` as it stands first, with security patches on it.
const PATCHED: &str = "AKSUbuntu-2204gen2containerd-202509.01.0-2025.12.01";

/// The steps, and the etag that guards each on the cluster as it stands first.
fn every_step() -> [(Step, &'static str); 8] {
    [
        (full_pinned("1.33.2"), "cluster-0"),
        (pool_version_pinned("1.33.2"), "win-0"),
        (pinned(NEW_IMAGE), "sys-0"),
        (pinned(PATCHED), "sys-0"),
        (full("1.33.2"), "cluster-0"),
        (control_plane("1.33.2"), "cluster-0"),
        (pool_version("1.33.2"), "win-0"),
        (image(), "sys-0"),
    ]
}

#[tokio::test(start_paused = true)]
async fn e48_c2_nothing_is_sent_from_the_instant_on_at_which_the_window_closes() {
    let start = clock().now();
    let ms = jiff::SignedDuration::from_millis;
    for (step, guard) in every_step() {
        for recovering in [false, true] {
            for (not_after, sent) in [(start, false), (start + ms(1), true)] {
                let fake = Fake::new();
                let intent = Intent { not_after: Some(not_after), ..intent(step.clone(), guard, recovering) };
                let outcome = driver(&fake).start(&intent).await;
                assert_eq!(fake.writes().len(), usize::from(sent), "{step}, until {not_after}: {outcome:?}");
                let late = "the maintenance window closed before the step was sent";
                let held_up = matches!(&outcome, Err(Trouble::Retry { detail, after: None, .. }) if detail == late);
                assert!(sent || held_up, "{step}: {outcome:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn e48_c2_a_window_that_closes_while_the_cluster_is_read_is_noticed() {
    for (step, guard) in every_step() {
        let fake = Fake::new();
        // The read fails once, and the pause before the next takes the window's last millisecond.
        fake.script(Method::GET, "", error(502, "BadGatewayConnection", "m"));
        let not_after = Some(clock().now() + jiff::SignedDuration::from_millis(1));
        let intent = Intent { not_after, ..intent(step.clone(), guard, false) };
        let trouble = driver(&fake).start(&intent).await.expect_err("too late");
        assert!(matches!(&trouble, Trouble::Retry { detail, .. } if detail.contains("window closed")), "{trouble:?}");
        assert!(fake.writes().is_empty(), "{step}");
    }
}

#[tokio::test]
async fn e48_c2_what_was_accepted_in_its_window_is_adopted_after_it_closed() {
    for (step, guard) in every_step() {
        let fake = Fake::new();
        driver(&fake).start(&intent(step.clone(), guard, false)).await.expect("sent");
        let late = Intent { not_after: Some(Timestamp::UNIX_EPOCH), ..intent(step.clone(), guard, true) };
        assert!(driver(&fake).start(&late).await.expect("adopted").adopted, "{step}");
        assert_eq!(fake.writes().len(), 1, "{step}");
    }
}

#[tokio::test]
async fn a_recovery_that_cannot_look_does_not_say_that_nothing_was_accepted() {
    let fake = Fake::new();
    let recovering = intent(full("1.33.2"), "cluster-0", true);
    for _ in 0..10 {
        fake.script(Method::GET, "", Err(TransportError::NotSent("connection refused".into())));
    }
    let trouble = driver(&fake).start(&recovering).await.expect_err("nobody answers");
    assert!(matches!(trouble, Trouble::Unknown(_)), "{trouble:?}");
    assert!(fake.writes().is_empty());
}

#[tokio::test]
async fn an_unknown_outcome_is_resolved_by_recovering_without_a_second_write() {
    let lost = || Err(TransportError::MaybeSent("connection reset".into()));
    for (step, guard) in every_step() {
        let method = if matches!(step, Step::PoolImage { .. }) { Method::POST } else { Method::PUT };
        let answers: [fn() -> Answer; 3] =
            [lost_answer, || error(504, "GatewayTimeout", "late"), || error(500, "InternalOperationError", "oops")];
        for answer in answers {
            // Accepted, and the answer lost.
            let fake = Fake::new();
            fake.lose(method.clone(), "", answer());
            let trouble = driver(&fake).start(&intent(step.clone(), guard, false)).await.expect_err("lost");
            assert!(matches!(trouble, Trouble::Unknown(_)), "{trouble:?}");
            let started = driver(&fake).start(&intent(step.clone(), guard, true)).await.expect("adopted");
            assert_eq!(started, Started { operation: Operation { id: "unknown".into(), url: None }, adopted: true });
            assert_eq!(fake.writes().len(), 1, "{step}");
        }
        // Never arrived.
        let fake = Fake::new();
        fake.script(method, "", lost());
        let trouble = driver(&fake).start(&intent(step.clone(), guard, false)).await.expect_err("lost");
        assert!(matches!(trouble, Trouble::Unknown(_)), "{trouble:?}");
        assert!(!driver(&fake).start(&intent(step.clone(), guard, true)).await.expect("sent").adopted);
    }
}

fn lost_answer() -> Answer {
    Err(TransportError::MaybeSent("connection reset".into()))
}

#[tokio::test]
async fn a_connection_that_never_came_about_is_not_an_unknown_outcome() {
    let fake = Fake::new();
    fake.script(Method::PUT, "", Err(TransportError::NotSent("refused".into())));
    let trouble = driver(&fake).start(&intent(full("1.33.2"), "cluster-0", false)).await.expect_err("refused");
    assert!(matches!(trouble, Trouble::Retry { .. }), "{trouble:?}");
}

#[tokio::test]
async fn d4_e03_a_busy_answer_means_read_again_and_adopt_what_is_ours() {
    let busy = || error(409, "OperationNotAllowed", "Another operation (Upgrading) is in progress, wait for it");
    for (step, guard) in [(full("1.33.2"), "cluster-0"), (pool_version("1.33.2"), "win-0"), (image(), "sys-0")] {
        let method = if matches!(step, Step::PoolImage { .. }) { Method::POST } else { Method::PUT };
        // A copy of the request was accepted a moment before.
        let fake = Fake::new();
        fake.lose(method.clone(), "", busy());
        assert!(driver(&fake).start(&intent(step.clone(), guard, false)).await.expect("adopted").adopted, "{step}");
        assert_eq!(fake.writes().len(), 1);
        // Somebody else's operation that the read does not show.
        let fake = Fake::new();
        fake.script(method, "", busy());
        let trouble = driver(&fake).start(&intent(step, guard, false)).await.expect_err("busy");
        assert_eq!(trouble, Trouble::Wait(Hold::OtherOperation("Upgrading".into())));
        assert_eq!(fake.writes().len(), 1);
    }
}

#[tokio::test]
async fn d4_e59_a_stale_etag_means_look_again() {
    for answer in
        [error(412, "PreconditionFailed", "etag"), error(409, "EtagMismatch", "Another operation is in progress.")]
    {
        let fake = Fake::new();
        fake.script(Method::PUT, "", answer);
        let trouble = driver(&fake).start(&intent(full("1.33.2"), "cluster-0", false)).await.expect_err("stale");
        assert!(matches!(trouble, Trouble::Retry { .. }), "{trouble:?}");
    }
}

#[tokio::test]
async fn d4_e62_what_will_never_work_is_refused_at_once_with_a_hint_and_its_pool() {
    let quota = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.";
    let budget = "Invalid PDBs details: 1 error occurred: * PDB shop/web has maxUnavailable == 0 can't proceed";
    let refusals = [
        (409, "OperationNotAllowed", quota, "capacity or quota"),
        (400, "QuotaExceeded", quota, "capacity or quota"),
        (409, "AllocationFailed", "m", "capacity or quota"),
        (409, "SkuNotAvailable", "m", "node size"),
        (400, "SubnetIsFull", "m", "subnet"),
        (400, "UnsatisfiablePDB", budget, "shop/web"),
        (403, "RequestDisallowedByPolicy", "m", "policy"),
    ];
    for (status, code, message, hint) in refusals {
        for (step, guard) in every_step() {
            let fake = Fake::new();
            let method = if matches!(step, Step::PoolImage { .. }) { Method::POST } else { Method::PUT };
            fake.script(method, "", error(status, code, message));
            match driver(&fake).start(&intent(step.clone(), guard, false)).await {
                Err(Trouble::Permanent(fault)) => {
                    let pool = step.pool().map(|pool| format!("pool '{pool}': ")).unwrap_or_default();
                    let told = fault.message.starts_with(&format!("{pool}{message}"));
                    let hinted = fault.message.split_once(" Hint: ").is_some_and(|(_, way_out)| way_out.contains(hint));
                    assert!(fault.code == code && told && hinted, "{step}: {fault}");
                }
                other => panic!("{code} on {step}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn d4_a_version_the_region_lacks_is_waited_for_only_if_it_may_still_come() {
    let refuse = |fake: &Fake| {
        fake.script(
            Method::PUT,
            "",
            error(400, "AgentPoolK8sVersionNotSupported", "Version is not supported in this region."),
        )
    };
    let fake = Fake::new();
    refuse(&fake);
    let trouble = driver(&fake).start(&intent(full("1.35.0"), "cluster-0", false)).await.expect_err("not yet");
    assert_eq!(trouble, Trouble::Wait(Hold::VersionNotInRegion { version: "1.35.0".into(), region: "eastus".into() }));
    refuse(&fake);
    let trouble = driver(&fake).start(&intent(full("1.33.1"), "cluster-0", false)).await.expect_err("withdrawn");
    assert!(
        matches!(&trouble, Trouble::Permanent(fault) if fault.code == "AgentPoolK8sVersionNotSupported"),
        "{trouble:?}"
    );
}

#[tokio::test]
async fn many_starts_of_one_intent_at_once_write_once() {
    let fake = Fake::new();
    let driver = Arc::new(driver(&fake));
    let starts = (0..20).map(|n| {
        let driver = driver.clone();
        tokio::spawn(async move { driver.start(&intent(full("1.33.2"), "cluster-0", n > 0)).await })
    });
    let mut sent = 0;
    for start in futures::future::join_all(starts).await {
        sent += usize::from(!start.expect("joined").expect("started").adopted);
    }
    assert_eq!(sent, 1);
}

#[tokio::test]
async fn an_operation_at_another_host_is_followed_by_state_only() {
    let fake = Fake::new();
    fake.with(|state| state.operation = "https://evil.example/subscriptions/s1/operations/op-7?s=1".into());
    let started = driver(&fake).start(&intent(full("1.33.2"), "cluster-0", false)).await.expect("started");
    assert_eq!(started.operation, Operation { id: "op-7".into(), url: None });
}
