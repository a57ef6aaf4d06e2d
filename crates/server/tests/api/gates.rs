//! Gates as people meet them: reached, listed, approved, skipped, gone with their run; and what they can ask for beyond
//! the documented API.

use flotta_store::{Collection, Store};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    examples::reference,
    harness::{Answer, FIVE, FLEET, VERSION, World, gated, members_of, stages, state_of, url},
};

/// Who asks.
const WHO: &str = "x-ms-client-principal-name";

async fn list(world: &World, query: &str) -> Vec<Value> {
    world.get(&format!("/gates{query}")).await["value"].as_array().expect("value").clone()
}

/// The gates that are waited for, by the stage or group that they stand at.
async fn pending(world: &World) -> Vec<(String, Value)> {
    let gates = list(world, "?$filter=state%20eq%20Pending").await;
    let place = |gate: &Value| {
        let target = &gate["properties"]["target"]["updateRunProperties"];
        let at = target.get("group").unwrap_or(&target["stage"]).as_str().expect("place");
        format!("{} {at}", target["timing"].as_str().expect("timing"))
    };
    gates.into_iter().map(|gate| (place(&gate), gate)).collect()
}

/// The only gate that is waited for.
async fn closed(world: &World) -> Value {
    let mut pending = pending(world).await;
    assert_eq!(pending.len(), 1, "{pending:?}");
    pending.remove(0).1
}

fn path(gate: &Value) -> String {
    format!("/gates/{}", gate["name"].as_str().expect("name"))
}

async fn decide(world: &World, gate: &Value, who: &str, properties: Value) -> Answer {
    world.on("PATCH", &path(gate), &[(WHO, who)], json!({"properties": properties})).await
}

async fn approve(world: &World, gate: &Value, who: &str) -> Answer {
    decide(world, gate, who, json!({"state": "Completed"})).await
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap_or_else(|| panic!("{value} is no time")).parse().expect("time")
}

fn stage_of(run: &Value) -> &Value {
    &run["properties"]["status"]["stages"][0]
}

fn approval(policy: Value) -> Value {
    json!({"type": "Approval", "displayName": "four eyes", "approvalPolicy": policy})
}

/// One stage with members c1 in group a and c2 in group b, changed as the test wants it.
async fn world_with(change: impl FnOnce(&mut Value)) -> World {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.join("c2", "b").await;
    let mut strategy = stages(&[("one", &["a", "b"])]);
    change(&mut strategy["stages"][0]);
    world.create("r1", strategy).await;
    world
}

async fn started(change: impl FnOnce(&mut Value)) -> World {
    let world = world_with(change).await;
    world.start("r1").await;
    world.pass(1).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a6_a_gate_is_there_once_it_is_reached_and_says_what_it_is() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    let made = world.create("r1", gated(&["a"])).await;
    assert_eq!(stage_of(&made)["beforeGates"], json!([{"displayName": "may we?", "status": {"state": "NotStarted"}}]));
    assert_eq!(list(&world, "").await, Vec::<Value>::new(), "nobody has come to it yet");
    world.start("r1").await;
    world.pass(1).await;
    let gate = closed(&world).await;
    let id = gate["name"].as_str().expect("name");
    assert_eq!(id.parse::<Uuid>().expect("a GUID").to_string(), id);
    let expect = json!({
        "id": format!("{FLEET}/gates/{id}"),
        "name": id,
        "type": "Microsoft.ContainerService/fleets/gates",
        "eTag": gate["eTag"],
        "properties": {
            "provisioningState": "Succeeded",
            "displayName": "may we?",
            "gateType": "Approval",
            "target": {
                "id": format!("{FLEET}/updateRuns/r1"),
                "updateRunProperties": {"name": "r1", "stage": "one", "timing": "Before"},
            },
            "state": "Pending",
        },
    });
    assert_eq!(gate, expect, "without systemData: it is nobody's until somebody decides");
    assert!(gate["eTag"].as_str().is_some_and(|etag| etag.starts_with('"')));
    assert_eq!(world.get(&path(&gate)).await, gate);
    let explained = world.get(&format!("{}?explain=true", path(&gate))).await;
    assert_eq!(list(&world, "?explain=true").await, std::slice::from_ref(&explained));
    let run = world.get("/updateRuns/r1").await;
    let shown = &stage_of(&run)["beforeGates"][0];
    assert_eq!((&shown["gateId"], &shown["status"]["state"]), (&gate["id"], &json!("Pending")));
    assert_eq!(explained["properties"]["reachedAt"], shown["status"]["startTime"], "since when, for who asks");
    assert_eq!((state_of(&run), &stage_of(&run)["status"]), ("Pending", &json!({"state": "Pending"})));
}

#[tokio::test(start_paused = true)]
async fn a6_who_approves_stands_in_the_gate_and_the_run_goes_on() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.create("r1", gated(&["a"])).await;
    world.start("r1").await;
    world.pass(3600).await;
    let gate = closed(&world).await;
    let before = world.clock.now();
    let approved = approve(&world, &gate, "ann@example.com").await.with(200);
    let at = time(&approved["systemData"]["createdAt"]);
    assert!(before.duration_since(at).as_secs() == 0, "{at} {before}");
    let by = json!({
        "createdBy": "ann@example.com", "createdByType": "User", "createdAt": approved["systemData"]["createdAt"],
        "lastModifiedBy": "ann@example.com", "lastModifiedByType": "User",
        "lastModifiedAt": approved["systemData"]["createdAt"],
    });
    assert_eq!(approved["systemData"], by);
    assert_eq!(approved["properties"]["state"], "Completed");
    assert_ne!(approved["eTag"], gate["eTag"]);
    world.pass(60).await;
    assert_eq!(world.get(&path(&gate)).await, approved);
    assert_eq!(list(&world, "").await, std::slice::from_ref(&approved));
    let shown = stage_of(&world.get("/updateRuns/r1").await)["beforeGates"][0].clone();
    assert_eq!((&shown["gateId"], &shown["status"]["state"]), (&gate["id"], &json!("Completed")));
    assert!(time(&shown["status"]["completedTime"]) > time(&shown["status"]["startTime"]));
    let again = approve(&world, &gate, "bob").await.with(200);
    assert_eq!(again, approved, "who comes second changes nothing");
    let run = world.until("r1", "Completed").await;
    assert_eq!((members_of(&run)[0].1.as_str(), world.accepted()), ("Completed", 1));
    assert_eq!(world.get(&path(&gate)).await, approved, "it stays until the run is deleted");
}

#[tokio::test(start_paused = true)]
async fn a6_a_patch_can_only_complete_and_a_refusal_changes_nothing() {
    let world = started(|stage| stage["beforeGates"] = json!([{"type": "Approval"}])).await;
    let gate = closed(&world).await;
    let before = world.dump().await;
    for (properties, target) in [
        (json!({"state": "Pending"}), "properties.state"),
        (json!({"state": "Skipped"}), "properties.state"),
        (json!({"state": "completed"}), "properties.state"),
        (json!({"state": 1}), "properties.state"),
        (json!({}), "properties.state"),
        (json!({"decision": "Perhaps"}), "properties.decision"),
        (json!({"state": "Completed", "comment": ""}), "properties.comment"),
        (json!({"state": "Completed", "comment": "é".repeat(1001)}), "properties.comment"),
        (json!({"state": "Completed", "decision": "Rejected"}), "properties.state"),
        (json!(7), "properties"),
    ] {
        let refused = decide(&world, &gate, "ann", properties.clone()).await;
        assert_eq!(refused.refusal(), (400, "InvalidParameter", target), "{properties}: {}", refused.body);
    }
    let refused = world.on("PATCH", &path(&gate), &[], json!({})).await;
    assert_eq!(refused.refusal(), (400, "InvalidParameter", "properties"));
    let rejected = decide(&world, &gate, "ann", json!({"decision": "Rejected"})).await;
    assert_eq!(rejected.refusal(), (409, "OperationNotAllowed", ""));
    assert!(rejected.message().contains("approvalPolicy.rejectable"), "{}", rejected.message());
    let named = world.on("PATCH", &path(&gate), &[(WHO, "")], json!({"properties": {"state": "Completed"}})).await;
    assert_eq!(named.refusal(), (400, "InvalidHeaderValue", WHO));
    assert_eq!(world.dump().await, before);
}

#[tokio::test(start_paused = true)]
async fn api5_a_gate_that_has_changed_is_not_decided_on() {
    let world = started(|stage| stage["beforeGates"] = json!([approval(json!({"approvers": 2}))])).await;
    let old = closed(&world).await;
    approve(&world, &old, "ann").await.with(200);
    let now = closed(&world).await;
    let (old_tag, new_tag) = (old["eTag"].as_str().expect("eTag"), now["eTag"].as_str().expect("eTag"));
    assert_ne!(old_tag, new_tag);
    let approving = async |header: &str, value: &str| {
        let body = json!({"properties": {"state": "Completed"}});
        world.on("PATCH", &path(&now), &[(WHO, "bob"), (header, value)], body).await
    };
    for (header, value) in [("if-match", old_tag), ("if-none-match", new_tag), ("if-none-match", "*")] {
        let refused = approving(header, value).await;
        assert_eq!((refused.status, refused.refusal().1), (412, "PreconditionFailed"), "{header}: {value}");
        assert_eq!(world.get(&path(&now)).await, now, "{header}: {value}");
    }
    assert_eq!(approving("if-match", new_tag).await.with(200)["properties"]["state"], "Completed");
}

#[tokio::test(start_paused = true)]
async fn api3_gates_are_found_in_their_fleet_by_their_guid_and_only_read_and_patched() {
    let world = started(|stage| stage["beforeGates"] = json!([{"type": "Approval"}])).await;
    let gate = closed(&world).await;
    let other = |path: &str| url(path, VERSION).replace("fleet1", "fleet2");
    world.raw("PUT", &other(""), &[], json!({"location": "westeurope"}).to_string()).await.with(201);
    let approve = json!({"properties": {"state": "Completed"}});
    for method in ["GET", "PATCH"] {
        let elsewhere = world.raw(method, &other(&path(&gate)), &[], approve.to_string()).await;
        assert_eq!(elsewhere.refusal(), (404, "ResourceNotFound", ""), "{method}");
        let unknown = world.on(method, "/gates/0d6f7a2e-9f1c-4b3a-8a5e-000000000000", &[], approve.clone()).await;
        assert_eq!(unknown.refusal(), (404, "ResourceNotFound", ""), "{method}");
        let malformed = world.on(method, "/gates/gate1", &[], approve.clone()).await;
        assert_eq!((malformed.status, malformed.refusal().2), (400, "gateName"), "{method}: {}", malformed.body);
    }
    let listed = world.raw("GET", &other("/gates"), &[], "").await.with(200);
    assert_eq!(listed["value"], json!([]));
    for method in ["PUT", "DELETE", "POST"] {
        let refused = world.on(method, &path(&gate), &[], approve.clone()).await;
        assert_eq!((refused.status, refused.header("allow")), (405, "GET, PATCH"), "{method}");
    }
    assert_eq!(closed(&world).await, gate);
    let upper = path(&gate).to_uppercase().replace("/GATES/", "/gates/");
    assert_eq!(world.get(&upper).await, gate, "a GUID is one in any case");
}

#[tokio::test(start_paused = true)]
async fn a6_of_several_gates_at_one_place_all_are_needed() {
    let names = ["ready?", "backed up?", "announced?"];
    let gates: Vec<Value> = names.iter().map(|name| json!({"type": "Approval", "displayName": name})).collect();
    let world = started(|stage| stage["beforeGates"] = json!(gates)).await;
    let pending = list(&world, "").await;
    let listed: Vec<&str> = pending.iter().filter_map(|gate| gate["properties"]["displayName"].as_str()).collect();
    assert_eq!(listed, names, "in the order of the strategy");
    for (at, gate) in [2, 0, 1].map(|at| (at, &pending[at])) {
        assert_eq!((state_of(&world.get("/updateRuns/r1").await), world.accepted()), ("Pending", 0), "before {at}");
        approve(&world, gate, "ann").await.with(200);
        world.pass(3600).await;
    }
    world.until("r1", "Completed").await;
    assert_eq!(list(&world, "").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a6_a_gate_of_a_group_holds_that_group_alone() {
    let world = started(|stage| stage["groups"][0]["beforeGates"] = json!([{"type": "Approval"}])).await;
    world.pass(24 * 3600).await;
    let run = world.get("/updateRuns/r1").await;
    let states: Vec<String> = members_of(&run).into_iter().map(|(_, state)| state).collect();
    assert_eq!((state_of(&run), states), ("Pending", vec!["NotStarted".to_owned(), "Completed".into()]));
    let gate = closed(&world).await;
    let target = &gate["properties"]["target"]["updateRunProperties"];
    assert_eq!(*target, json!({"name": "r1", "stage": "one", "group": "a", "timing": "Before"}));
    assert!(gate["properties"].get("displayName").is_none(), "it has none");
    approve(&world, &gate, "ann").await.with(200);
    world.until("r1", "Completed").await;
}

#[tokio::test(start_paused = true)]
async fn b4_gates_after_a_stage_and_the_wait_run_side_by_side_and_both_are_needed() {
    for (approved_after, ended_after) in [(60, 7200), (10_000, 10_000)] {
        let world = World::new(FIVE).await;
        world.join("c1", "a").await;
        world.join("c2", "b").await;
        let mut strategy = stages(&[("one", &["a"]), ("two", &["b"])]);
        strategy["stages"][0]["afterStageWaitInSeconds"] = json!(7200);
        strategy["stages"][0]["afterGates"] = json!([{"type": "Approval"}]);
        strategy["stages"][0]["groups"][0]["afterGates"] = json!([{"type": "Approval"}]);
        world.create("r1", strategy).await;
        world.start("r1").await;
        world.until("r1", "Pending").await;
        let of_group = closed(&world).await;
        let run = world.get("/updateRuns/r1").await;
        assert_eq!(stage_of(&run)["afterStageWaitStatus"]["status"]["state"], "NotStarted", "the group is not done");
        approve(&world, &of_group, "ann").await.with(200);
        world.pass(1).await;
        let run = world.get("/updateRuns/r1").await;
        let wait = &stage_of(&run)["afterStageWaitStatus"]["status"];
        assert_eq!((&wait["state"], state_of(&run)), (&json!("Running"), "Running"));
        let of_stage = closed(&world).await;
        let began = time(&wait["startTime"]);
        assert_eq!(time(&stage_of(&run)["afterGates"][0]["status"]["startTime"]), began, "reached together");
        world.pass(approved_after).await;
        approve(&world, &of_stage, "ann").await.with(200);
        let run = world.until("r1", "Completed").await;
        let went_on = time(&run["properties"]["status"]["stages"][1]["status"]["startTime"]);
        let passed = went_on.duration_since(began).as_secs();
        assert!((ended_after..ended_after + 60).contains(&passed), "{passed} instead of {ended_after} seconds");
    }
}

#[tokio::test(start_paused = true)]
async fn a6_what_is_skipped_takes_its_gates_along() {
    let world = started(|stage| {
        let gate = json!([{"type": "Approval"}]);
        stage["groups"][0]["beforeGates"] = gate.clone();
        stage["groups"][0]["afterGates"] = gate.clone();
        stage["afterGates"] = gate;
    })
    .await;
    let reached = closed(&world).await;
    let skip = json!({"targets": [{"type": "Group", "name": "a"}]});
    world.on("POST", "/updateRuns/r1/skip", &[], skip).await.with(200);
    let run = world.get("/updateRuns/r1").await;
    let group = &stage_of(&run)["groups"][0];
    assert_eq!(group["status"]["state"], "Skipped");
    let (before, after) = (&group["beforeGates"][0], &group["afterGates"][0]);
    for gate in [before, after] {
        assert_eq!(gate["status"]["state"], "Skipped");
        assert_eq!(time(&gate["status"]["completedTime"]), time(&group["status"]["completedTime"]));
    }
    assert_eq!(before["gateId"], reached["id"], "it had been reached");
    assert_eq!((after.get("gateId"), after["status"].get("startTime")), (None, None), "it never was");
    let listed = list(&world, "").await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((&listed[0]["name"], &listed[0]["properties"]["state"]), (&reached["name"], &json!("Skipped")));
    let late = approve(&world, &reached, "ann").await;
    assert_eq!(late.refusal(), (409, "OperationNotAllowed", ""));
    assert!(late.message().contains("skipped"), "{}", late.message());
    world.until("r1", "Pending").await;
    let skip = json!({"targets": [{"type": "Stage", "name": "one"}]});
    world.on("POST", "/updateRuns/r1/skip", &[], skip).await.with(200);
    let run = world.until("r1", "Skipped").await;
    assert_eq!(stage_of(&run)["afterGates"][0]["status"]["state"], "Skipped");
}

#[tokio::test(start_paused = true)]
async fn e30_what_no_member_is_in_asks_nobody() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    let mut strategy = stages(&[("empty", &["nobody"]), ("one", &["a"])]);
    let gate = json!([{"type": "Approval"}]);
    strategy["stages"][0]["beforeGates"] = gate.clone();
    strategy["stages"][0]["afterGates"] = gate.clone();
    strategy["stages"][0]["groups"][0]["beforeGates"] = gate;
    world.create("r1", strategy).await;
    world.start("r1").await;
    let run = world.until("r1", "Completed").await;
    let stage = stage_of(&run);
    for gate in [&stage["beforeGates"][0], &stage["afterGates"][0], &stage["groups"][0]["beforeGates"][0]] {
        assert_eq!((&gate["status"]["state"], gate.get("gateId")), (&json!("Skipped"), None), "{stage:#}");
    }
    assert_eq!(list(&world, "").await, Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn b5_10_a_deleted_run_takes_its_gates_along_and_the_next_of_its_name_sees_none() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    world.join("c2", "b").await;
    let mut strategy = stages(&[("one", &["a", "b"])]);
    strategy["stages"][0]["groups"][0]["beforeGates"] = json!([{"type": "Approval"}]);
    world.create("r1", strategy.clone()).await;
    world.start("r1").await;
    world.pass(120).await;
    let first = closed(&world).await;
    let stopping = world.post("/updateRuns/r1/stop").await.with(200);
    assert_eq!(state_of(&stopping), "Stopping", "c2 is under way");
    world.delete("/updateRuns/r1").await.with(200);
    assert_eq!(list(&world, "").await, Vec::<Value>::new());
    assert_eq!(world.on("GET", &path(&first), &[], Value::Null).await.status, 404);
    assert_eq!(approve(&world, &first, "ann").await.status, 404);
    assert!(world.store.scan(Collection::Gates, None, 10).await.expect("scan").is_empty());
    world.create("r1", strategy).await;
    assert_eq!(list(&world, "").await, Vec::<Value>::new());
    world.start("r1").await;
    world.pass(120).await;
    let second = closed(&world).await;
    assert_ne!(first["name"], second["name"]);
}

#[tokio::test(start_paused = true)]
async fn a6_what_is_approved_while_the_run_is_stopped_acts_at_the_start() {
    let world = started(|stage| stage["beforeGates"] = json!([{"type": "Approval"}])).await;
    assert_eq!(state_of(&world.post("/updateRuns/r1/stop").await.with(200)), "Stopped");
    let gate = closed(&world).await;
    assert_eq!(approve(&world, &gate, "ann").await.with(200)["properties"]["state"], "Completed");
    world.pass(24 * 3600).await;
    assert_eq!((state_of(&world.get("/updateRuns/r1").await), world.accepted()), ("Stopped", 0));
    world.start("r1").await;
    world.until("r1", "Completed").await;
    assert_eq!(list(&world, "").await.len(), 1, "nothing was asked again");
}

#[tokio::test(start_paused = true)]
async fn a6_gates_survive_a_restart_and_nothing_is_asked_twice() {
    let world = started(|stage| {
        stage["beforeGates"] = json!([
            approval(json!({"approvers": 2})),
            {"type": "ScheduledStart",
                "scheduledStartConfiguration": {"startDay": "Tuesday", "startTime": "08:00", "utcOffset": "+00:00"}},
        ]);
        stage["afterGates"] = json!([{"type": "Approval"}]);
    })
    .await;
    let before = list(&world, "").await;
    approve(&world, &before[0], "ann").await.with(200);
    let before = list(&world, "").await;
    let world = world.restarted().await;
    assert_eq!(list(&world, "").await, before);
    let twice = approve(&world, &before[0], "ann").await;
    assert_eq!(twice.status, 409, "her approval was not forgotten: {}", twice.body);
    approve(&world, &before[0], "bob").await.with(200);
    let world = world.restarted().await;
    assert_eq!((state_of(&world.get("/updateRuns/r1").await), world.accepted()), ("Pending", 0));
    world.pass(24 * 3600).await;
    let world = world.restarted().await;
    world.until("r1", "Pending").await;
    let gates = list(&world, "").await;
    assert_eq!(gates.len(), 3, "{gates:?}");
    assert_eq!(world.accepted(), 2);
    approve(&world, &closed(&world).await, "ann").await.with(200);
    world.until("r1", "Completed").await;
}

/// The clocks of these tests show Monday, 6 March 2023, 08:00 UTC at first.
fn scheduled(day: &str, at: &str, offset: &str) -> Value {
    let start = json!({"startDay": day, "startTime": at, "utcOffset": offset});
    json!({"type": "ScheduledStart", "displayName": "not before", "scheduledStartConfiguration": start})
}

#[tokio::test(start_paused = true)]
async fn e07_a_scheduled_start_opens_by_itself_at_the_time_that_it_tells() {
    for (day, at, offset, opens) in [
        ("Monday", "18:00", "+00:00", "2023-03-06T18:00:00Z"),
        ("Monday", "08:00", "+00:00", "2023-03-13T08:00:00Z"), // reached on the second: a week later
        ("Monday", "13:00", "+05:30", "2023-03-13T07:30:00Z"),
        ("Monday", "18:00", "-05:00", "2023-03-06T23:00:00Z"),
    ] {
        let world = world_with(|stage| stage["beforeGates"] = json!([scheduled(day, at, offset)])).await;
        world.start("r1").await;
        let gate = closed(&world).await;
        let expect = json!({"startDay": day, "startTime": at, "utcOffset": offset, "absoluteStartTime": opens});
        assert_eq!(gate["properties"]["scheduledStartProperties"], expect);
        assert_eq!((&gate["properties"]["gateType"], gate.get("systemData")), (&json!("ScheduledStart"), None));
        let opens: Timestamp = opens.parse().expect("time");
        let left = opens.duration_since(world.clock.now()).as_secs() as u64;
        world.pass(left - 60).await;
        assert_eq!((state_of(&world.get("/updateRuns/r1").await), world.accepted()), ("Pending", 0), "{opens}");
        world.pass(61).await;
        let open = world.get(&path(&gate)).await;
        assert_eq!(
            (&open["properties"]["state"], open.get("systemData")),
            (&json!("Completed"), None),
            "nobody did it"
        );
        assert_eq!(open["properties"]["scheduledStartProperties"], expect, "it still tells when");
        let run = world.get("/updateRuns/r1").await;
        assert_eq!(time(&stage_of(&run)["beforeGates"][0]["status"]["completedTime"]), opens);
        world.until("r1", "Completed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a6_a_scheduled_start_can_be_opened_by_hand_before_its_time() {
    let world = started(|stage| stage["beforeGates"] = json!([scheduled("Saturday", "02:00", "+00:00")])).await;
    let gate = closed(&world).await;
    let open = approve(&world, &gate, "ann").await.with(200);
    assert_eq!((&open["properties"]["state"], &open["systemData"]["createdBy"]), (&json!("Completed"), &json!("ann")));
    let run = world.until("r1", "Completed").await;
    assert!(world.clock.now() < "2023-03-07T08:00:00Z".parse().expect("time"), "{run:#}");
    world.pass(7 * 24 * 3600).await;
    assert_eq!(world.get(&path(&gate)).await, open, "its time passes without effect");
}

#[tokio::test(start_paused = true)]
async fn a6_while_stopped_a_scheduled_start_runs_on_and_opens_at_the_start() {
    let world = started(|stage| stage["beforeGates"] = json!([scheduled("Monday", "18:00", "+00:00")])).await;
    world.post("/updateRuns/r1/stop").await.with(200);
    world.pass(24 * 3600).await;
    assert_eq!((state_of(&world.get("/updateRuns/r1").await), world.accepted()), ("Stopped", 0));
    world.start("r1").await;
    world.until("r1", "Completed").await;
    assert!(world.clock.now() < "2023-03-08T08:00:00Z".parse().expect("time"), "not a week later");
}

#[tokio::test(start_paused = true)]
async fn e45_a_scheduled_start_in_a_zone_follows_its_daylight_saving() {
    for (day, zone, standard, opens) in [
        ("Saturday", "Europe/Rome", "+01:00", "2023-03-11T01:30:00Z"),
        ("Sunday", "America/New_York", "-05:00", "2023-03-12T07:30:00Z"), // 02:30 is skipped that day
    ] {
        let start = json!({"startDay": day, "startTime": "02:30", "timeZone": zone});
        let gate = json!({"type": "ScheduledStart", "scheduledStartConfiguration": start});
        let world = started(|stage| stage["beforeGates"] = json!([gate])).await;
        let shown = closed(&world).await["properties"]["scheduledStartProperties"].clone();
        let expect = json!({"startDay": day, "startTime": "02:30", "utcOffset": standard, "timeZone": zone,
            "absoluteStartTime": opens});
        assert_eq!(shown, expect);
    }
}

#[tokio::test(start_paused = true)]
async fn api1_versions_show_of_gates_what_they_know() {
    let gates = json!([scheduled("Saturday", "02:00", "+00:00"), {"type": "Approval"}]);
    let world = started(|stage| stage["beforeGates"] = gates).await;
    let gate = list(&world, "?$filter=gateType%20eq%20ScheduledStart").await.remove(0);
    assert!(gate["properties"].get("scheduledStartProperties").is_some());
    let at = |path: &str, version: &str| url(path, version);
    for version in ["2026-06-01", "2025-04-01-preview", "2025-08-01-preview"] {
        let shown = world.raw("GET", &at(&path(&gate), version), &[], "").await.with(200);
        let mut expect = gate.clone();
        expect["properties"].as_object_mut().expect("properties").remove("scheduledStartProperties");
        assert_eq!(shown, expect, "{version}");
        let run = world.raw("GET", &at("/updateRuns/r1", version), &[], "").await.with(200);
        assert_eq!(stage_of(&run)["beforeGates"][0]["gateId"], gate["id"], "{version}");
    }
    for version in ["2025-03-01", "2024-04-01", "2023-10-15"] {
        let run = world.raw("GET", &at("/updateRuns/r1", version), &[], "").await.with(200);
        assert!(!run.to_string().contains("Gate") && !run.to_string().contains("gate"), "{version}: {run}");
        assert_eq!(state_of(&run), "Pending", "{version}");
    }
}

/// Follows a list to its end: the places of the gates on each page.
async fn pages(world: &World, query: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut next = Some(url(&format!("/gates{query}"), VERSION));
    while let Some(at) = next {
        let page = world.raw("GET", &at, &[], "").await.with(200);
        let group = |gate: &Value| gate["properties"]["target"]["updateRunProperties"]["group"].clone();
        let groups = page["value"].as_array().expect("value").iter().map(group);
        pages.push(groups.map(|group| group.as_str().expect("group").to_owned()).collect());
        next = page.get("nextLink").map(|link| {
            link.as_str().expect("nextLink").strip_prefix("http://localhost:8642").expect("own").to_owned()
        });
        assert!(pages.len() < 100, "a list without an end");
    }
    pages
}

#[tokio::test(start_paused = true)]
async fn api6_gates_are_filtered_quoted_or_not_and_paged() {
    let world = World::new(FIVE).await;
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    for (name, group) in [("c1", "a"), ("c2", "b"), ("c3", "c"), ("c4", "d"), ("there", "e")] {
        world.join(name, group).await;
    }
    for (number, group) in [(1, "f"), (2, "g")] {
        let properties =
            json!({"clusterResourceId": format!("{}/x{number}", crate::harness::CLUSTERS), "group": group});
        world.put(&format!("/members/x{number}"), json!({"properties": properties})).await.with(201);
    }
    let mut strategy = stages(&[("one", &names)]);
    for at in 0..names.len() {
        let gate = if at % 2 == 0 { json!({"type": "Approval"}) } else { scheduled("Saturday", "02:00", "+00:00") };
        strategy["stages"][0]["groups"][at]["beforeGates"] = json!([gate]);
    }
    world.create("r1", strategy).await;
    world.start("r1").await;
    world.pass(1).await;
    let all = list(&world, "").await;
    approve(&world, &all[2], "ann").await.with(200);
    for query in ["state eq Pending", "state eq 'Pending'", "properties/state eq 'Pending'"] {
        let query = format!("?$filter={}", query.replace(' ', "%20"));
        assert_eq!(pages(&world, &query).await, [["a", "b", "d", "e", "f", "g"]], "{query}");
    }
    let asked = async |query: &str| pages(&world, &query.replace(' ', "%20")).await;
    assert_eq!(asked("?$top=3").await, [vec!["a", "b", "c"], vec!["d", "e", "f"], vec!["g"]]);
    assert_eq!(asked("?$top=7").await.len(), 1, "a last page that is full has no next one");
    assert_eq!(asked("?$filter=gateType eq ScheduledStart").await, [["b", "d", "f"]]);
    assert_eq!(asked("?$filter=gateType eq ScheduledStart&$top=1").await.concat(), ["b", "d", "f"]);
    assert_eq!(asked("?$filter=state eq Pending and gateType eq 'Approval'&$top=2").await, [vec!["a", "e"], vec!["g"]]);
    assert_eq!(asked("?$filter=state eq Completed").await, [["c"]]);
    assert_eq!(asked("?$filter=state eq Skipped").await, [Vec::<String>::new()]);
    let bad = world.raw("GET", &url("/gates?$filter=state%20eq%20Open", VERSION), &[], "").await;
    assert_eq!(bad.refusal(), (400, "InvalidParameter", "$filter"));
}

#[tokio::test(start_paused = true)]
async fn ext_as_many_people_approve_as_the_policy_wants_and_the_creator_may_be_left_out() {
    let world = World::new(FIVE).await;
    world.join("c1", "a").await;
    let mut strategy = stages(&[("one", &["a"])]);
    let policy = json!({"approvers": 2, "creatorMayApprove": false});
    strategy["stages"][0]["beforeGates"] = json!([approval(policy.clone())]);
    let body = crate::harness::full(strategy);
    world.on("PUT", "/updateRuns/r1", &[(WHO, "carl")], body).await.with(201);
    world.on("POST", "/updateRuns/r1/start", &[(WHO, "ann")], Value::Null).await.with(200);
    world.pass(1).await;
    let gate = closed(&world).await;
    assert_eq!((&gate["properties"]["approvalPolicy"], gate["properties"].get("approvals")), (&policy, None));
    let creator = approve(&world, &gate, "carl").await;
    assert_eq!(creator.refusal(), (409, "OperationNotAllowed", ""));
    assert!(creator.message().contains("'carl' created the run"), "{}", creator.message());
    let words = json!({"state": "Completed", "comment": "tried in staging"});
    let once = decide(&world, &gate, "ann", words).await.with(200);
    let first = json!({"by": "ann", "at": once["systemData"]["createdAt"], "comment": "tried in staging"});
    assert_eq!((&once["properties"]["state"], &once["properties"]["approvals"]), (&json!("Pending"), &json!([first])));
    let twice = approve(&world, &gate, "ann").await;
    assert_eq!((twice.status, twice.message().contains("1 of 2")), (409, true), "{}", twice.message());
    world.pass(24 * 3600).await;
    assert_eq!((state_of(&world.get("/updateRuns/r1").await), world.accepted()), ("Pending", 0));
    let open = approve(&world, &gate, "bob").await.with(200);
    let second = json!({"by": "bob", "at": open["systemData"]["lastModifiedAt"]});
    assert_eq!(open["properties"]["approvals"], json!([first, second]));
    assert_eq!(
        (&open["properties"]["state"], &open["systemData"]["lastModifiedBy"]),
        (&json!("Completed"), &json!("bob"))
    );
    world.until("r1", "Completed").await;
}

#[tokio::test(start_paused = true)]
async fn ext_who_rejects_stops_the_run_and_a_start_asks_anew() {
    let world = started(|stage| {
        stage["groups"][0]["beforeGates"] = json!([approval(json!({"approvers": 2, "rejectable": true}))]);
    })
    .await;
    let gate = closed(&world).await;
    approve(&world, &gate, "ann").await.with(200);
    let no = json!({"decision": "Rejected", "comment": "not on a Friday"});
    let rejected = decide(&world, &gate, "bob", no).await.with(200);
    assert_eq!(rejected["properties"]["state"], "Pending");
    let rejection = &rejected["properties"]["rejection"];
    assert_eq!((&rejection["by"], &rejection["comment"]), (&json!("bob"), &json!("not on a Friday")));
    assert_eq!(time(&rejection["at"]), world.clock.now());
    let run = world.get("/updateRuns/r1").await;
    assert_eq!(state_of(&run), "Stopping", "c2 is under way and ends");
    let run_stopped = world.until("r1", "Stopped").await;
    for run in [&run, &run_stopped] {
        let error = &run["properties"]["status"]["status"]["error"];
        assert_eq!(error["code"], "GateRejected", "{error}");
        let message = error["message"].as_str().expect("message");
        for part in ["'bob'", "not on a Friday", "group 'a'", "four eyes", "start the run"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let late = approve(&world, &gate, "carl").await;
    assert_eq!(late.refusal(), (409, "OperationNotAllowed", ""));
    assert!(late.message().contains("start the run again"), "{}", late.message());
    world.pass(3600).await;
    world.start("r1").await;
    let run = world.get("/updateRuns/r1").await;
    assert_eq!((state_of(&run), run["properties"]["status"]["status"].get("error")), ("Pending", None));
    let anew = closed(&world).await;
    assert_eq!(anew["name"], gate["name"], "it is the same gate");
    assert!(anew["properties"].get("rejection").is_none() && anew["properties"].get("approvals").is_none(), "{anew:#}");
    for who in ["ann", "carl"] {
        approve(&world, &anew, who).await.with(200);
    }
    world.until("r1", "Completed").await;
}

#[tokio::test(start_paused = true)]
async fn ext_a_gate_that_nobody_decides_on_expires_and_stops_the_run() {
    let world = started(|stage| stage["beforeGates"] = json!([approval(json!({"expiresAfterSeconds": 86_400}))])).await;
    let gate = closed(&world).await;
    let reached = time(&stage_of(&world.get("/updateRuns/r1").await)["beforeGates"][0]["status"]["startTime"]);
    let expires = time(&gate["properties"]["expiresAt"]);
    assert_eq!(expires.duration_since(reached).as_secs(), 86_400);
    world.pass(86_300).await;
    assert_eq!(state_of(&world.get("/updateRuns/r1").await), "Pending");
    world.pass(120).await;
    let run = world.get("/updateRuns/r1").await;
    assert_eq!(state_of(&run), "Stopped");
    assert_eq!(run["properties"]["status"]["status"]["error"]["code"], "GateExpired");
    let expired = world.get(&path(&gate)).await;
    assert_eq!(time(&expired["properties"]["expiredAt"]), expires);
    assert_eq!(approve(&world, &gate, "ann").await.status, 409);
    world.start("r1").await;
    let anew = closed(&world).await;
    assert!(
        time(&anew["properties"]["expiresAt"]) > expires && anew["properties"].get("expiredAt").is_none(),
        "{anew}"
    );
    approve(&world, &anew, "ann").await.with(200);
    world.until("r1", "Completed").await;
}

#[tokio::test(start_paused = true)]
async fn rule_3_of_a_member_every_rule_is_told_that_holds_it_and_of_more_than_one_they_are_counted() {
    let world = World::new(FIVE).await;
    for (name, group) in [("c1", "a"), ("c2", "a"), ("c3", "b"), ("c4", "late")] {
        world.join(name, group).await;
    }
    let mut strategy = stages(&[("one", &["a", "b"]), ("two", &["late"])]);
    strategy["stages"][0]["beforeGates"] = json!([scheduled("Saturday", "02:00", "+00:00")]);
    strategy["stages"][0]["groups"][0]["beforeGates"] = json!([{"type": "Approval", "displayName": "go"}]);
    world.create("r1", strategy).await;
    let why = async |query: &str| world.get(&format!("/updateRuns/r1/waitingOn{query}")).await;
    let not_started = why("?member=c3").await;
    assert_eq!(not_started["value"][0]["why"], "NotStarted", "{not_started}");
    world.start("r1").await;
    world.pass(1).await;
    let opens = "2023-03-11T02:00:00Z";
    let of_stage = json!({"Gate": {"of": "one", "gate": "scheduled start 'not before' before stage 'one'"}});
    let of_group = json!({"Gate": {"of": "a", "gate": "approval 'go' before group 'a'"}});
    let by_stage = json!({"why": of_stage, "until": opens, "members": 1});
    let unread = json!({"why": "ReadingWindows", "members": 1});
    let expect = json!({"state": "NotStarted", "value": [by_stage, unread], "earliest": opens});
    assert_eq!(why("?member=c3").await, expect);
    let both = json!([by_stage, {"why": of_group, "members": 1}, unread]);
    assert_eq!(why("?member=c1").await, json!({"state": "NotStarted", "value": both}), "no time for an approval");
    let second = why("?member=c2").await;
    assert!(second["value"].to_string().contains("Slot"), "c1 comes first: {second}");
    let counted = json!({"state": "NotStarted", "value": [{"why": of_stage, "until": opens, "members": 2}]});
    assert_eq!(why("?group=a").await, counted);
    assert_eq!(why("?stage=one").await["value"][0]["members"], 3);
    let later = why("?member=c4").await;
    assert_eq!(later["value"][0]["why"], json!({"EarlierStage": "one"}), "{later}");
    assert_eq!(why("").await["state"], "Pending");
    world.pass(5 * 24 * 3600).await;
    let done = why("?member=c3").await;
    assert_eq!(done, json!({"state": "Completed", "value": []}), "what is done waits for nothing");
    let left = json!({"state": "NotStarted", "value": [{"why": of_group, "members": 1}, unread]});
    assert_eq!(why("?member=c1").await, left);
    for (query, expect) in [
        ("?member=c9", (404, "NotFound", "member")),
        ("?group=nowhere", (404, "NotFound", "group")),
        ("?stage=three", (404, "NotFound", "stage")),
        ("?member=c1&group=a", (400, "InvalidParameter", "group")),
    ] {
        let answer = world.by(VERSION, "GET", &format!("/updateRuns/r1/waitingOn{query}"), None).await;
        assert_eq!(answer.refusal(), expect, "{query}: {}", answer.body);
    }
}

/// The paths of what a value holds, at every level.
fn shape(value: &Value, path: &str, keys: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| shape(value, &format!("{path}.{key}"), keys)),
        Value::Array(list) => list.iter().for_each(|value| shape(value, &format!("{path}[]"), keys)),
        Value::Null => {}
        _ => keys.push(path.to_owned()),
    }
}

fn keys(value: &Value) -> Vec<String> {
    let mut keys = Vec::new();
    shape(value, "", &mut keys);
    keys.sort();
    keys
}

/// Gates of the official examples, sent or answered.
fn official() -> Vec<(String, Value)> {
    let Some(folder) = reference() else { return Vec::new() };
    let mut gates = Vec::new();
    for version in ["2026-06-01", VERSION] {
        for file in ["Gates_Get", "Gates_Get_ScheduledStart", "Gates_ListByFleet", "Gates_Update"] {
            let path = folder.join("examples").join(version).join(format!("{file}.json"));
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let example: Value = serde_json::from_str(&text).expect(file);
            let body = &example["responses"]["200"]["body"];
            let one = body.get("value").is_none().then(|| vec![body.clone()]);
            let listed = || body["value"].as_array().expect("value").clone();
            gates.extend(one.unwrap_or_else(listed).into_iter().map(|gate| (format!("{version}/{file}"), gate)));
        }
    }
    assert!(gates.len() >= 7, "{} gates", gates.len());
    gates
}

#[tokio::test(start_paused = true)]
async fn api11_gates_have_every_field_of_the_official_ones_and_no_other() {
    for (name, example) in official() {
        let properties = &example["properties"];
        let target = &properties["target"]["updateRunProperties"];
        let mut gate = json!({"type": properties["gateType"], "displayName": properties["displayName"]});
        if let Some(start) = properties.get("scheduledStartProperties") {
            gate["scheduledStartConfiguration"] = start.clone();
            gate["scheduledStartConfiguration"].as_object_mut().expect("start").remove("absoluteStartTime");
        }
        let side = if target["timing"] == "Before" { "beforeGates" } else { "afterGates" };
        let world = World::new(FIVE).await;
        world.join("c1", "group1").await;
        let stage = target["stage"].as_str().expect("stage");
        let mut strategy = stages(&[(stage, &["group1"])]);
        match target.get("group") {
            Some(_) => strategy["stages"][0]["groups"][0][side] = json!([gate]),
            None => strategy["stages"][0][side] = json!([gate]),
        }
        world.create("run1", strategy).await;
        world.start("run1").await;
        world.until("run1", "Pending").await;
        let pending = closed(&world).await;
        // The examples show who made the gate before anybody decided; the service was seen to show it from then on.
        let mut expect = keys(&example);
        expect.retain(|key| !key.starts_with(".systemData"));
        assert_eq!(keys(&pending), expect, "{name}");
        let done = approve(&world, &pending, "someUser").await.with(200);
        assert_eq!(keys(&done), keys(&example), "{name}");
        for same in
            ["/type", "/properties/displayName", "/properties/gateType", "/properties/target/updateRunProperties"]
        {
            assert_eq!(done.pointer(same), example.pointer(same), "{name}: {same}");
        }
        world.until("run1", "Completed").await;
    }
}
