//! The check before a run starts: a stored run, and a dry run of a new one.

use serde_json::{Value, json};

use crate::harness::{CLUSTERS, World, full, stages};

/// Clusters with something to say each, in a region that has the version and one that has not.
const CLOUD: &str = r"
seed: 7
behaviour: { throttling: false }
regions:
  westeurope:
    kubernetes:
      - { minor: '1.24', patches: [1.24.9] }
      - { minor: '1.25', patches: [1.25.4, 1.25.5] }
      - { minor: '1.26', supportPlan: [KubernetesOfficial, AKSLongTermSupport], patches: [1.26.0, 1.26.1] }
      - { minor: '1.27', supportPlan: [AKSLongTermSupport], patches: [1.27.3] }
    images: [AKSUbuntu-2204gen2containerd-202303.06.0]
  eastus2:
    kubernetes: [{ minor: '1.25', patches: [1.25.5] }]
    images: [AKSUbuntu-2204gen2containerd-202303.06.0]
clusters:
  - { name: ready, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: there, region: westeurope, version: 1.26.1, pools: [{ name: p1 }] }
  - { name: stopped, region: westeurope, version: 1.25.5, stopped: true, pools: [{ name: p1 }] }
  - { name: busy, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], foreign: { seconds: 600 } }
  - { name: far, region: eastus2, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: old, region: westeurope, version: 1.24.9, pools: [{ name: p1 }] }
  - { name: own, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], autoUpgradeChannel: patch, nodeOSUpgradeChannel: NodeImage }
  - { name: nap, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], nodeProvisioning: Auto }
  - { name: automatic, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], sku: Automatic }
  - { name: sunday, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], maintenance: { aksManagedAutoUpgradeSchedule: { maintenanceWindow: { schedule: { weekly: { intervalWeeks: 1, dayOfWeek: Sunday } }, durationHours: 4, startTime: '02:00', utcOffset: '+00:00' } } } }
  - { name: legacy, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], maintenance: { default: { timeInWeek: [{ day: Sunday, hourSlots: [2] }] } } }
  - { name: outside, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
";

const ARC: &str = "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Kubernetes/connectedClusters/edge";

async fn world() -> World {
    let world = World::without_fleet(CLOUD).await;
    world.put("", json!({"location": "westeurope"})).await.with(201);
    for cluster in
        ["ready", "there", "stopped", "busy", "far", "old", "own", "nap", "automatic", "sunday", "legacy", "missing"]
    {
        world.join(cluster, "a").await;
    }
    let edge = json!({"properties": {"clusterResourceId": ARC, "group": "a"}});
    world.put("/members/edge", edge).await.with(201);
    world.join("outside", "nobody").await;
    world
}

/// `member outcome: Severity Code, …` of each.
fn summary(report: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let members = report["value"].as_array().expect("value").iter();
    let line = |member: &Value| {
        let findings = member["findings"].as_array().expect("findings").iter();
        let findings: Vec<String> =
            findings.map(|finding| format!("{} {}", text(&finding["severity"]), text(&finding["code"]))).collect();
        format!("{} {}: {}", text(&member["member"]), text(&member["outcome"]), findings.join(", "))
    };
    members.map(line).collect()
}

fn member<'a>(report: &'a Value, name: &str) -> &'a Value {
    let members = report["value"].as_array().expect("value").iter();
    members.clone().find(|member| member["member"] == name).expect(name)
}

const EXPECTED: [&str; 14] = [
    "ready Upgrades: ",
    "there Skipped: Note AlreadyThere",
    "stopped Waits: Error ClusterStopped",
    "busy Waits: Warning AnotherOperationInProgress",
    "far Waits: Warning KubernetesVersionNotAvailable",
    "old Fails: Error OperationNotAllowed",
    "own Upgrades: Warning AutoUpgradeOn, Note NodeImageUpgradeOn",
    "nap Skipped: Warning NodeAutoProvisioning",
    "automatic Skipped: Warning NodeAutoProvisioning, Warning AutoUpgradeOn",
    "sunday Upgrades: Note OutsideMaintenanceWindow",
    "legacy Upgrades: ",
    "missing Waits: Error ClusterUnreachable",
    "edge Skipped: Warning NotUpgradable",
    "outside NotInRun: Warning NotCovered",
];

#[tokio::test(start_paused = true)]
async fn e10_what_stands_behind_a_gate_is_judged_by_stage_group_or_member() {
    let world = world().await;
    world.create("r1", stages(&[("one", &["a"])])).await;
    for part in ["stage=one", "group=a"] {
        let report = world.post(&format!("/updateRuns/r1/check?{part}")).await.with(200);
        assert_eq!(summary(&report), EXPECTED[..EXPECTED.len() - 1], "without those that are in no group");
        assert_eq!(report["uncoveredMembers"], 0);
    }
    let report = world.post("/updateRuns/r1/check?member=far").await.with(200);
    assert_eq!(summary(&report), ["far Waits: Warning KubernetesVersionNotAvailable"]);
    world.post("/updateRuns/r1/check?stage=two").await.with(404);
    world.post("/updateRuns/r1/check?stage=one&group=a").await.with(400);
}

#[tokio::test(start_paused = true)]
async fn e01_e10_e13_e14_a_stored_run_is_judged_member_by_member_and_nothing_changes() {
    let world = world().await;
    world.create("r1", stages(&[("one", &["a"])])).await;
    let before = world.dump().await;
    let report = world.post("/updateRuns/r1/check").await.with(200);
    assert_eq!(summary(&report), EXPECTED);
    let counts = ["errors", "warnings", "notes", "uncoveredMembers"].map(|key| report[key].clone());
    assert_eq!(counts, [3, 8, 3, 1].map(Value::from));
    assert_eq!(report["kubernetesVersion"], "1.26.1");
    let ready = member(&report, "ready");
    let expected = json!({
        "member": "ready", "stage": "one", "group": "a", "cluster": format!("{CLUSTERS}/ready"),
        "outcome": "Upgrades", "steps": ["cluster and 1 pool(s) to 1.26.1"], "findings": [],
    });
    assert_eq!(*ready, expected);
    assert_eq!(member(&report, "sunday")["nextOpen"], "2023-03-12T02:00:00Z");
    assert!(member(&report, "legacy").get("nextOpen").is_none(), "the older configuration holds no upgrade by a run");
    assert!(member(&report, "outside").get("stage").is_none());
    assert_eq!((world.dump().await, world.accepted()), (before, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_judged_like_a_run_and_stores_nothing_also_where_the_run_exists() {
    let world = world().await;
    let body = full(stages(&[("one", &["a"])]));
    let before = world.dump().await;
    let report = world.put("/updateRuns/r1?dryRun=true", body.clone()).await.with(200);
    assert_eq!(summary(&report), EXPECTED);
    assert_eq!(world.dump().await, before);
    world.by(crate::harness::VERSION, "GET", "/updateRuns/r1", None).await.with(404);
    world.create("r1", stages(&[("one", &["a"])])).await;
    let stored = world.dump().await;
    world.put("/updateRuns/r1?dryRun=true", full(stages(&[("other", &["nobody"])]))).await.with(200);
    assert_eq!(world.dump().await, stored);
    world.put("/updateRuns/r2?dryRun=false", body).await.with(201);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_refuses_what_a_create_refuses() {
    let world = world().await;
    let twice = full(json!({"stages": [{"name": "s", "groups": [{"name": "a"}]}, {"name": "s", "groups": []}]}));
    let goal = json!({"upgrade": {"type": "Full"}});
    let no_version = json!({"properties": {"managedClusterUpdate": goal}});
    let mut both = full(stages(&[("one", &["a"])]));
    both["properties"]["updateStrategyId"] = json!(format!("{}/updateStrategies/x", crate::harness::FLEET));
    for body in [twice, no_version, both] {
        let refused = world.put("/updateRuns/r1", body.clone()).await;
        let dry = world.put("/updateRuns/r1?dryRun=true", body).await;
        assert_eq!((dry.status, &dry.body), (400, &refused.body));
    }
    let odd = world.put("/updateRuns/r1?dryRun=perhaps", full(Value::Null)).await;
    assert_eq!(odd.refusal(), (400, "InvalidParameter", "dryRun"));
    assert_eq!(world.post("/updateRuns/r9/check").await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn e66_long_term_support_and_e69_pools_left_behind_are_told() {
    let world = world().await;
    let run = |kind: &str, version: &str| {
        let goal = json!({"upgrade": {"type": kind, "kubernetesVersion": version}});
        json!({"properties": {"strategy": stages(&[("one", &["a"])]), "managedClusterUpdate": goal}})
    };
    let report = world.put("/updateRuns/r1?dryRun=true", run("Full", "1.27.3")).await.with(200);
    let needs = member(&report, "there");
    assert_eq!((&needs["outcome"], &needs["findings"][0]["code"]), (&json!("Fails"), &json!("K8sVersionNotSupported")));
    assert!(needs["findings"][0]["message"].as_str().is_some_and(|text| text.contains("Premium")), "{needs}");
    let report = world.put("/updateRuns/r1?dryRun=true", run("ControlPlaneOnly", "1.26.1")).await.with(200);
    let nap = member(&report, "nap");
    assert_eq!((&nap["outcome"], &nap["findings"][0]["code"]), (&json!("Upgrades"), &json!("NodePoolsBehind")));
    let own = &member(&report, "own")["findings"][0];
    assert_eq!(own["code"], "NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged");
}

#[tokio::test(start_paused = true)]
async fn d1_a_minor_is_judged_as_the_patch_that_the_run_would_come_to() {
    let world = world().await;
    let run = |version: &str| {
        let goal = json!({"upgrade": {"type": "Full", "kubernetesVersion": version}});
        json!({"properties": {"strategy": stages(&[("one", &["a"])]), "managedClusterUpdate": goal}})
    };
    let report = world.put("/updateRuns/r1?dryRun=true", run("1.26")).await.with(200);
    assert_eq!(
        (&report["kubernetesVersion"], &summary(&report)[..]),
        (&json!("1.26.1"), &EXPECTED.map(String::from)[..])
    );
    let report = world.put("/updateRuns/r1?dryRun=true", run("1.31")).await.with(200);
    assert!(report.get("kubernetesVersion").is_none());
    assert_eq!(summary(&report)[0], "ready Waits: Warning KubernetesVersionNotAvailable");
}

#[tokio::test(start_paused = true)]
async fn what_another_run_holds_is_told_and_what_is_under_way_or_gone_is_left_out() {
    let world = world().await;
    for member in ["ready", "own"] {
        world.patch(&format!("/members/{member}"), json!({"properties": {"group": "two"}})).await.with(200);
    }
    world.create("r1", stages(&[("one", &["two"])])).await;
    world.create("r2", stages(&[("one", &["two"])])).await;
    world.start("r1").await;
    world.pass(60).await;
    let report = world.post("/updateRuns/r2/check").await.with(200);
    assert_eq!(summary(&report)[0], "ready Waits: Warning ClusterHeldByAnotherRun");
    assert!(member(&report, "ready")["findings"][0]["message"].as_str().is_some_and(|text| text.contains("fleet1/r1")));
    world.delete("/members/own").await;
    let report = world.post("/updateRuns/r2/check").await.with(200);
    assert!(!summary(&report).iter().any(|line| line.starts_with("own ")), "a run has no more to do with who left");
    let report = world.post("/updateRuns/r1/check").await.with(200);
    assert!(
        report["value"].as_array().is_some_and(|all| all.iter().all(|one| one["outcome"] == "NotInRun")),
        "{report}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_may_be_named_like_what_stands_beside_runs() {
    let world = world().await;
    for name in ["check", "waitingon"] {
        world.create(name, stages(&[("one", &["a"])])).await;
        world.get(&format!("/updateRuns/{name}")).await;
        world.post(&format!("/updateRuns/{name}/check")).await.with(200);
        world.get(&format!("/updateRuns/{name}/waitingOn")).await;
    }
    let answer = world.by(crate::harness::VERSION, "GET", "/updateRuns/check/check", None).await;
    assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
}

#[tokio::test(start_paused = true)]
async fn e13_e14_a_run_passes_over_what_it_cannot_move_and_completes() {
    let world = world().await;
    for member in ["edge", "nap", "ready"] {
        world.patch(&format!("/members/{member}"), json!({"properties": {"group": "two"}})).await.with(200);
    }
    world.create("r1", stages(&[("one", &["two"])])).await;
    world.start("r1").await;
    let run = world.until("r1", "Completed").await;
    let mut ends = crate::harness::members_of(&run);
    ends.sort();
    let expected = [("edge", "Skipped"), ("nap", "Skipped"), ("ready", "Completed")];
    assert_eq!(ends, expected.map(|(name, state)| (name.to_owned(), state.to_owned())));
    let text = run.to_string();
    assert!(text.contains("connected through Arc") && text.contains("ControlPlaneOnly"), "{text}");
    assert_eq!(world.accepted(), 1);
}
