//! Update runs: put, start, stop, skip, delete.

use serde_json::{Value, json};

use crate::harness::{FIVE, FLEET, VERSION, World, full, gated, members_of, stages, state_of, url};

fn states(run: &Value) -> Vec<String> {
    members_of(run).into_iter().map(|(_, state)| state).collect()
}

#[tokio::test(start_paused = true)]
async fn a2_a_run_is_made_at_once_with_its_whole_tree_not_started() {
    let world = World::new(FIVE).await;
    world.join("c2", "a").await;
    world.join("c1", "a").await;
    let mut strategy = stages(&[("one", &["a", "empty"]), ("two", &["b"])]);
    strategy["stages"][0]["afterStageWaitInSeconds"] = json!(60);
    let answer = world.put("/updateRuns/r1", full(strategy.clone())).await;
    for header in ["azure-asyncoperation", "location", "etag", "retry-after"] {
        assert!(answer.header(header).is_empty(), "{header}");
    }
    let run = answer.with(201);
    assert_eq!(run["id"], format!("{FLEET}/updateRuns/r1"));
    assert_eq!(run["type"], "Microsoft.ContainerService/fleets/updateRuns");
    let properties = &run["properties"];
    assert_eq!((&properties["provisioningState"], &properties["strategy"]), (&json!("Succeeded"), &strategy));
    let status = &properties["status"];
    assert_eq!((&status["status"], &status["nodeImageSelection"]), (&json!({"state": "NotStarted"}), &json!({})));
    let stage = &status["stages"][0];
    assert_eq!(stage["afterStageWaitStatus"], json!({"status": {"state": "NotStarted"}, "waitDurationInSeconds": 60}));
    assert_eq!((&stage["maxConcurrency"], &stage["groups"][0]["maxConcurrency"]), (&json!(50), &json!(1)));
    assert!(status["stages"][1].get("afterStageWaitStatus").is_none());
    let names: Vec<String> = members_of(&run).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["c2", "c1"], "in the order of joining");
    assert!(stage["groups"][1].get("members").is_none(), "an empty group has no members");
    assert_eq!(world.get("/updateRuns/r1").await, run);
}

#[tokio::test(start_paused = true)]
async fn a2_a_run_without_a_strategy_has_one_default_stage_and_goes_one_by_one() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.join("c2", "b").await;
    let run = world.create("r1", Value::Null).await;
    assert!(run["properties"].get("strategy").is_none());
    let stage = &run["properties"]["status"]["stages"][0];
    assert_eq!((&stage["name"], &stage["groups"][0]["name"]), (&json!("default"), &json!("default")));
    world.start("r1").await;
    world.pass(60).await;
    assert_eq!(states(&world.get("/updateRuns/r1").await), ["Running", "NotStarted"]);
    assert_eq!(states(&world.until("r1", "Completed").await), ["Completed", "Completed"]);
    assert_eq!(world.accepted(), 2);
}

#[tokio::test(start_paused = true)]
async fn a2_start_answers_with_the_run_as_it_was_and_then_it_runs() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    let made = world.create("r1", stages(&[("one", &["a"])])).await;
    assert_eq!(world.start("r1").await, made, "body and eTag are from before the start");
    world.pass(1).await;
    let running = world.get("/updateRuns/r1").await;
    assert_eq!(state_of(&running), "Running");
    assert!(running["properties"]["status"]["status"]["startTime"].is_string());
    assert_ne!(running["eTag"], made["eTag"]);
    let again = world.post("/updateRuns/r1/start").await;
    assert_eq!(again.refusal(), (409, "OperationNotAllowed", ""));
    assert!(again.message().contains("Running"), "{}", again.message());
}

#[tokio::test(start_paused = true)]
async fn a2_a_put_before_the_start_resolves_anew_and_clears_what_was_skipped() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    let made = world.create("r1", stages(&[("one", &["a"])])).await;
    let skip = json!({"targets": [{"type": "Member", "name": "c1"}]});
    let skipped = world.on("POST", "/updateRuns/r1/skip", &[], skip).await.with(200);
    assert_eq!(states(&skipped), ["Skipped"]);
    world.join("c2", "a").await;
    assert_eq!(states(&world.get("/updateRuns/r1").await), ["Skipped"], "who joins later is not in the run");
    world.pass(5).await;
    let again = world.put("/updateRuns/r1", full(stages(&[("one", &["a"])]))).await.with(200);
    assert_eq!(states(&again), ["NotStarted", "NotStarted"]);
    assert_ne!(again["eTag"], made["eTag"]);
    assert_ne!(again["systemData"]["createdAt"], made["systemData"]["createdAt"], "as the service does");
}

#[tokio::test(start_paused = true)]
async fn choice_after_the_start_a_run_may_only_be_said_again() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.create("r1", gated(&["a"])).await;
    world.start("r1").await;
    world.pass(1).await;
    let pending = world.get("/updateRuns/r1").await;
    assert_eq!(world.put("/updateRuns/r1", full(gated(&["a"]))).await.with(200), pending);
    assert_eq!(world.put("/updateRuns/r1", pending.clone()).await.with(200), pending);
    let other = world.put("/updateRuns/r1", full(stages(&[("one", &["a"])]))).await;
    assert_eq!(other.refusal(), (409, "Conflict", ""));
    assert!(other.message().contains("Pending"), "{}", other.message());
    assert_eq!(world.get("/updateRuns/r1").await, pending);
}

#[tokio::test(start_paused = true)]
async fn choice_uncovered_members_and_the_version_a_minor_came_to_are_shown_when_asked_for() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.join("c2", "elsewhere").await;
    world.create("r1", gated(&["a"])).await;
    let plain = world.get("/updateRuns/r1").await;
    assert!(plain["properties"]["status"].get("uncoveredMembers").is_none(), "not ARM's");
    let explained =
        world.raw("GET", &format!("{}&explain=true", url("/updateRuns/r1", VERSION)), &[], "").await.with(200);
    let status = &explained["properties"]["status"];
    assert_eq!(status["uncoveredMembers"], json!({"count": 1, "first": ["c2"]}));
    assert_eq!(status["kubernetesVersion"], "1.26.1");
    assert_eq!(status["waitingOn"][0]["members"], 1, "{status}");
}

#[tokio::test(start_paused = true)]
async fn a6_a_run_holds_at_its_gate_and_starts_nothing() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.create("r1", gated(&["a", "empty"])).await;
    world.start("r1").await;
    world.pass(7 * 24 * 3600).await;
    let run = world.get("/updateRuns/r1").await;
    assert_eq!(state_of(&run), "Pending");
    assert!(run["properties"]["status"]["status"]["startTime"].is_string());
    let stage = &run["properties"]["status"]["stages"][0];
    assert_eq!(stage["status"], json!({"state": "Pending"}), "no startTime");
    assert_eq!(stage["beforeGates"][0]["displayName"], "may we?");
    assert_eq!(stage["beforeGates"][0]["status"]["state"], "Pending");
    assert_eq!((states(&run), world.accepted()), (vec!["NotStarted".to_owned()], 0));
    let why = world.get("/updateRuns/r1/waitingOn").await;
    assert!(why["value"].to_string().to_lowercase().contains("gate"), "{why}");

    let stopped = world.post("/updateRuns/r1/stop").await.with(200);
    assert_eq!(state_of(&stopped), "Stopped", "nothing is under way, so it stops at once");
    assert_eq!(states(&stopped), ["NotStarted"]);
}

#[tokio::test(start_paused = true)]
async fn b3_stop_answers_with_the_new_state_while_what_is_under_way_ends() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.join("c2", "a").await;
    world.create("r1", stages(&[("one", &["a"])])).await;
    world.start("r1").await;
    world.pass(60).await;
    let stopping = world.post("/updateRuns/r1/stop").await.with(200);
    assert_eq!((state_of(&stopping), states(&stopping)), ("Stopping", vec!["Running".into(), "NotStarted".into()]));
    let group = &stopping["properties"]["status"]["stages"][0]["groups"][0];
    assert_eq!(group["status"]["state"], "Stopping");
    world.post("/updateRuns/r1/stop").await.with(200);
    let stopped = world.until("r1", "Stopped").await;
    assert_eq!((states(&stopped), world.accepted()), (vec!["Completed".into(), "NotStarted".into()], 1));
    assert_eq!(world.post("/updateRuns/r1/stop").await.refusal(), (409, "OperationNotAllowed", ""));
    world.start("r1").await;
    assert_eq!(states(&world.until("r1", "Completed").await), ["Completed", "Completed"]);
}

#[tokio::test(start_paused = true)]
async fn a7_skips_of_every_kind_are_taken_together_before_the_start() {
    let world = World::new(FIVE).await;
    for (name, group) in [("c1", "a"), ("c2", "b"), ("c3", "c"), ("c4", "d")] {
        world.join(name, group).await;
    }
    let mut strategy = stages(&[("one", &["a", "b"]), ("two", &["c"]), ("three", &["d"])]);
    strategy["stages"][0]["afterStageWaitInSeconds"] = json!(3600);
    world.create("r1", strategy).await;
    let targets = json!({"targets": [
        {"type": "Member", "name": "c1"}, {"type": "Group", "name": "b"}, {"type": "Stage", "name": "two"},
        {"type": "AfterStageWait", "name": "one"},
    ]});
    let run = world.on("POST", "/updateRuns/r1/skip", &[], targets).await.with(200);
    assert_eq!(states(&run), ["Skipped", "Skipped", "Skipped", "NotStarted"]);
    assert_eq!(state_of(&run), "NotStarted");
    let status = &run["properties"]["status"];
    assert_eq!(status["stages"][0]["afterStageWaitStatus"]["status"]["state"], "Skipped");
    let member = &status["stages"][0]["groups"][0]["members"][0];
    assert_eq!(member["message"], "skipped by request.");
    assert!(member["status"]["completedTime"].is_string() && member["status"].get("startTime").is_none(), "{member}");
    world.start("r1").await;
    assert_eq!(states(&world.until("r1", "Completed").await), ["Skipped", "Skipped", "Skipped", "Completed"]);
    assert_eq!(world.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn b2_a_run_of_clusters_that_are_there_is_skipped_and_says_why() {
    let world = World::new(FIVE).await;
    world.join("there", "a").await;
    world.create("r1", stages(&[("one", &["a"])])).await;
    world.start("r1").await;
    let run = world.until("r1", "Skipped").await;
    let member = &run["properties"]["status"]["stages"][0]["groups"][0]["members"][0];
    assert!(member["message"].as_str().is_some_and(|message| !message.is_empty()), "{member}");
    assert_eq!(world.accepted(), 0);
}

#[tokio::test(start_paused = true)]
async fn a7_a_run_is_deleted_at_once_even_while_it_runs_and_its_successor_sees_nothing_of_it() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.join("c2", "b").await;
    let made = world.create("r1", stages(&[("one", &["a"])])).await;
    world.start("r1").await;
    world.pass(60).await;
    let gone = world.delete("/updateRuns/r1").await;
    assert_eq!((gone.status, &gone.body), (200, &Value::Null));
    assert!(gone.header("location").is_empty() && gone.header("azure-asyncoperation").is_empty());
    assert_eq!(world.delete("/updateRuns/r1").await.status, 204);
    assert_eq!(world.by(VERSION, "GET", "/updateRuns/r1", None).await.refusal(), (404, "ResourceNotFound", ""));
    assert_eq!(world.post("/updateRuns/r1/start").await.status, 404);

    let second = world.create("r1", stages(&[("one", &["b", "a"])])).await;
    assert_ne!(second["eTag"], made["eTag"]);
    assert_eq!((state_of(&second), states(&second)), ("NotStarted", vec!["NotStarted".into(), "NotStarted".into()]));
    world.start("r1").await;
    world.pass(5).await;
    let run = world.get("/updateRuns/r1").await;
    assert!(members_of(&run).contains(&("c1".into(), "Pending".into())), "its cluster is still busy: {run:#}");
    world.until("r1", "Completed").await;
    assert_eq!(world.accepted(), 2, "the operation of the deleted run was not started again");
}

#[tokio::test(start_paused = true)]
async fn choice_another_operation_on_a_cluster_is_waited_for_and_shown_with_its_reason() {
    let busy = "\nclusters:\n  - { name: c1, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], foreign: { seconds: 7200 } }\n";
    let world = World::new(busy).await;
    world.join("c1", "a").await;
    world.create("r1", stages(&[("one", &["a"])])).await;
    world.start("r1").await;
    world.pass(120).await;
    let run = world.get("/updateRuns/r1").await;
    assert_eq!((state_of(&run), states(&run)), ("Pending", vec!["Pending".into()]));
    let message = &run["properties"]["status"]["stages"][0]["groups"][0]["members"][0]["message"];
    assert!(message.as_str().is_some_and(|message| message.contains("operation")), "{message}");
    assert_eq!(world.get("/updateRuns/r1/waitingOn").await["value"].as_array().map(Vec::len), Some(1));
    world.until("r1", "Completed").await;
}

#[tokio::test(start_paused = true)]
async fn a2_every_change_of_a_run_changes_its_etag_and_old_ones_are_refused_by_every_verb() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    let etag = |run: &Value| run["eTag"].as_str().expect("eTag").to_owned();
    let first = etag(&world.create("r1", gated(&["a", "b"])).await);
    let second = etag(&world.put("/updateRuns/r1", full(gated(&["a", "b"]))).await.with(200));
    assert_ne!(first, second);
    let skip = json!({"targets": [{"type": "Group", "name": "b"}]});
    let calls = [
        ("PUT", "/updateRuns/r1", full(gated(&["a", "b"]))),
        ("POST", "/updateRuns/r1/skip", skip),
        ("POST", "/updateRuns/r1/start", Value::Null),
        ("POST", "/updateRuns/r1/stop", Value::Null),
        ("DELETE", "/updateRuns/r1", Value::Null),
    ];
    for (method, path, body) in calls {
        let stale = world.on(method, path, &[("if-match", &first)], body.clone()).await;
        assert_eq!(stale.refusal(), (412, "PreconditionFailed", "If-Match"), "{method} {path}");
        world.pass(1).await;
        let current = etag(&world.get("/updateRuns/r1").await);
        let done = world.on(method, path, &[("if-match", &current)], body).await;
        assert_eq!(done.status, 200, "{method} {path}: {}", done.body);
    }
}

#[tokio::test(start_paused = true)]
async fn a7_what_is_completed_cannot_be_skipped_and_what_is_failed_can() {
    let clusters = "\nclusters:
  - { name: c1, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: c2, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], fails: { attempts: 9 } }
";
    let world = World::new(clusters).await;
    world.join("c1", "a").await;
    world.join("c2", "a").await;
    world.create("r1", stages(&[("one", &["a"])])).await;
    world.start("r1").await;
    let failed = world.until("r1", "Failed").await;
    assert_eq!(states(&failed), ["Completed", "Failed"]);
    let member = &failed["properties"]["status"]["stages"][0]["groups"][0]["members"][1];
    assert!(
        member["status"]["error"]["code"].is_string() && member["status"]["error"]["message"].is_string(),
        "{member}"
    );
    assert_eq!(failed["properties"]["status"]["failureCount"], 1);
    let skip = async |name: &str| {
        let targets = json!({"targets": [{"type": "Member", "name": name}]});
        world.on("POST", "/updateRuns/r1/skip", &[], targets).await
    };
    let done = skip("c1").await;
    assert_eq!(done.refusal(), (409, "OperationNotAllowed", ""));
    assert!(done.message().contains("'c1' is Completed"), "{}", done.message());
    assert_eq!(states(&skip("c2").await.with(200)), ["Completed", "Skipped"]);
}

#[tokio::test(start_paused = true)]
async fn a4_runs_of_every_type_go_to_their_end() {
    let old = "\nclusters:
  - { name: c1, region: westeurope, version: 1.25.4, pools: [{ name: p1, image: AKSUbuntu-2204gen2containerd-202302.01.0 }] }
";
    let upgrades = [
        json!({"type": "NodeImageOnly"}),
        json!({"type": "ControlPlaneOnly", "kubernetesVersion": "1.25.5"}),
        json!({"type": "Full", "kubernetesVersion": "1.26"}),
    ];
    let world = World::new(old).await;
    world.join("c1", "a").await;
    for (number, upgrade) in upgrades.into_iter().enumerate() {
        let name = format!("r{number}");
        let body = json!({"properties": {"managedClusterUpdate": {"upgrade": upgrade}}});
        let made = world.put(&format!("/updateRuns/{name}"), body).await.with(201);
        assert_eq!(made["properties"]["managedClusterUpdate"], json!({"upgrade": upgrade}), "no selection stays none");
        world.start(&name).await;
        world.until(&name, "Completed").await;
        assert_eq!(world.accepted(), number + 1, "{upgrade}");
    }
}

#[tokio::test(start_paused = true)]
async fn a2_a_version_that_nobody_has_is_taken_and_waited_for() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    let mut body = full(stages(&[("one", &["a"])]));
    body["properties"]["managedClusterUpdate"]["upgrade"]["kubernetesVersion"] = json!("1.26.7");
    world.put("/updateRuns/r1", body).await.with(201);
    world.start("r1").await;
    let run = world.until("r1", "Pending").await;
    let member = &run["properties"]["status"]["stages"][0]["groups"][0]["members"][0];
    assert!(member["message"].as_str().is_some_and(|message| message.contains("1.26.7")), "{member}");
    assert_eq!(world.accepted(), 0);
}
