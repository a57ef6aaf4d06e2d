//! The official examples, where they are at hand: every strategy and run in them is taken as it stands and comes back in
//! its shape, and runs go to their end, through whatever gates are in their way. A strategy in our own words stands in for
//! everybody else.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::harness::{FIVE, FLEET, REGION, World, full, members_of, state_of, url};

const VERSIONS: [&str; 2] = ["2026-06-01", "2026-06-02-preview"];

/// Keys that answers have beside those of an example: the examples are older than failure counts, and show a run's
/// images only once there are some, where the service always has them (`behaviour.md` A2).
const MORE: [&str; 3] = ["failureCount", "maxAllowedFailures", "nodeImageSelection"];
/// Keys that an example has beside those of an answer: it shows runs that were started, whose gates were reached.
const LESS: [&str; 2] = ["startTime", "gateId"];

/// An example as it was stored in a file.
struct Example {
    version: &'static str,
    /// File, and where in it.
    name: String,
    body: Value,
}

/// The folder of reference material; `None`, and a word about it, where it is missing.
pub fn reference() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let folder = std::env::var_os("FLOTTA_REFERENCE").map_or_else(beside, PathBuf::from);
    if !folder.is_dir() {
        eprintln!("skipped: no reference material here; set FLOTTA_REFERENCE to its folder");
        return None;
    }
    Some(folder)
}

/// Every body, sent or answered, in the files of a kind.
fn examples(kind: &str) -> Vec<Example> {
    let Some(folder) = reference() else { return Vec::new() };
    let mut examples = Vec::new();
    for version in VERSIONS {
        let folder = folder.join("examples").join(version);
        let entries = fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path());
        let mut paths: Vec<PathBuf> = entries.collect();
        paths.sort();
        for path in paths {
            let file = path.file_name().expect("name").to_string_lossy().into_owned();
            if file.starts_with(kind) {
                let text = fs::read_to_string(&path).expect("file");
                bodies(version, &file, &serde_json::from_str(&text).expect("json"), &mut examples);
            }
        }
    }
    assert!(examples.len() >= 6, "{} examples of {kind}", examples.len());
    examples
}

fn bodies(version: &'static str, file: &str, example: &Value, examples: &mut Vec<Example>) {
    let mut add = |part: String, body: &Value| {
        let name = format!("{version}/{file} {part}");
        examples.push(Example { version, name, body: body.clone() });
    };
    if let Some(sent) = example["parameters"].get("resource") {
        add("sent".into(), sent);
    }
    for (status, response) in example["responses"].as_object().into_iter().flatten() {
        match (response["body"]["value"].as_array(), &response["body"]) {
            (Some(list), _) => list.iter().for_each(|body| add(format!("listed {status}"), body)),
            (None, Value::Null) => {}
            (None, body) => add(format!("answered {status}"), body),
        }
    }
}

/// Two members as the examples name them, and one that their second stage picks.
async fn world() -> World {
    let cluster =
        |name: &str| format!("\n  - {{ name: {name}, region: westeurope, version: 1.25.5, pools: [{{ name: p1 }}] }}");
    let clusters = ["my-cluster-1", "my-cluster-2", "my-cluster-3"].map(cluster).concat();
    let world = World::new(&format!("\nclusters:{clusters}\n")).await;
    let members = [
        ("member-one", "group-a", json!({"tier": "frontend"}), 1),
        ("member-two", "group-b", json!({"tier": "backend"}), 2),
        ("member-three", "group-c", json!({"env": "production"}), 3),
    ];
    for (name, group, labels, cluster) in members {
        let id = format!("{}/my-cluster-{cluster}", crate::harness::CLUSTERS);
        let properties = json!({"clusterResourceId": id, "group": group, "labels": labels});
        world.put(&format!("/members/{name}"), json!({"properties": properties})).await.with(201);
    }
    world
}

/// Checks that an answer has the keys of an example, at every level, up to [`MORE`] and [`LESS`].
fn same_shape(name: &str, path: &str, example: &Value, answer: &Value) {
    match (example, answer) {
        (Value::Object(example), Value::Object(answer)) => {
            for key in answer.keys().filter(|key| !MORE.contains(&key.as_str())) {
                assert!(example.contains_key(key), "{name}: {path}.{key} is not in the example");
            }
            for (key, value) in example.iter().filter(|(key, _)| !LESS.contains(&key.as_str())) {
                let got = answer.get(key).unwrap_or_else(|| panic!("{name}: {path}.{key} is missing"));
                same_shape(name, &format!("{path}.{key}"), value, got);
            }
        }
        (Value::Array(example), Value::Array(answer)) => {
            // The one group that a stage has without naming it is shown from the start.
            assert!(
                example.len() == answer.len() || example.is_empty(),
                "{name}: {path} has {} elements",
                answer.len()
            );
            let pairs = example.iter().zip(answer).enumerate();
            pairs.for_each(|(at, (one, other))| same_shape(name, &format!("{path}[{at}]"), one, other));
        }
        _ => {
            let kind = |value: &Value| (value.is_string(), value.is_number(), value.is_boolean());
            assert_eq!(kind(example), kind(answer), "{name}: {path} is {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn api9_every_official_strategy_is_taken_and_comes_back_in_its_shape() {
    for Example { version, name, body } in examples("UpdateStrategies_") {
        let world = world().await;
        let made = world.by(version, "PUT", "/updateStrategies/strategy1", Some(body.clone())).await.with(201);
        assert_eq!(made["properties"]["strategy"], body["properties"]["strategy"], "{name}");
        if body.get("id").is_some() {
            same_shape(&name, "", &body, &made);
        }
        let listed = world.by(version, "GET", "/updateStrategies", None).await.with(200);
        assert_eq!(listed["value"], json!([made]), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn api9_every_official_run_without_a_contradiction_is_taken_and_goes_to_its_end() {
    let (mut free, mut gated) = (0, 0);
    for Example { version, name, mut body } in examples("UpdateRuns_") {
        let world = world().await;
        let put = async |body: &Value| world.by(version, "PUT", "/updateRuns/run1", Some(body.clone())).await;
        let refused = put(&body).await;
        match contradiction(&name) {
            Some((target, says)) => {
                assert_eq!(refused.refusal(), (400, "InvalidParameter", target), "{name}: {}", refused.body);
                assert!(refused.message().contains(says), "{name}: {}", refused.message());
                // Without the id, what it says is a run like any other.
                if body["properties"]
                    .as_object_mut()
                    .and_then(|properties| properties.remove("updateStrategyId"))
                    .is_none()
                {
                    continue;
                }
                put(&body).await.with(201);
            }
            None => drop(refused.with(201)),
        }
        let made = world.by(version, "GET", "/updateRuns/run1", None).await.with(200);
        for part in ["strategy", "managedClusterUpdate"] {
            assert_eq!(made["properties"][part], body["properties"][part], "{name}");
        }
        if body.get("id").is_some() {
            same_shape(&name, "", &body, &made);
        }
        world.start("run1").await;
        let opened = open_all(&world, &name, "run1").await;
        let run = world.until("run1", "Completed").await;
        assert_eq!(run.to_string().matches("gateId").count(), opened, "{name}: each gate was waited for once");
        match made["properties"]["strategy"].to_string().contains("Gates") {
            true => gated += usize::from(opened >= 3),
            false => free += usize::from(opened == 0),
        }
        let members = members_of(&run);
        assert!(members.iter().all(|(_, state)| state == "Completed"), "{name}: {members:?}");
        assert_eq!(world.accepted(), members.len(), "{name}");
        assert!(!run.to_string().contains("Pending"), "{name}: {run}");
    }
    assert!((free, gated) == (5, 10) || reference().is_none(), "{free} without gates, {gated} with");
}

/// Opens gate after gate until a run waits for none: approvals are given one at a time, schedules come. Answers how many
/// there were.
async fn open_all(world: &World, name: &str, run: &str) -> usize {
    let mut opened = 0;
    loop {
        let (mut seen, mut state) = (world.get(&format!("/updateRuns/{run}")).await, String::new());
        for _ in 0..5_000 {
            state = state_of(&seen).to_owned();
            if state == "Pending" || state == "Completed" {
                break;
            }
            world.pass(30).await;
            seen = world.get(&format!("/updateRuns/{run}")).await;
        }
        let gates = world.get("/gates?$filter=state%20eq%20Pending").await["value"].clone();
        let Some(gate) = gates.as_array().and_then(|gates| gates.first()) else { return opened };
        assert_eq!(state, "Pending", "{name}: {gate:#}");
        let before = world.accepted();
        match gate.pointer("/properties/scheduledStartProperties/absoluteStartTime").and_then(Value::as_str) {
            Some(at) => {
                let left = at.parse::<jiff::Timestamp>().expect("time").duration_since(world.clock.now());
                world.pass(left.as_secs().try_into().expect("still to come")).await;
                world.pass(1).await;
            }
            None => {
                world.pass(24 * 3600).await;
                assert_eq!(world.accepted(), before, "{name}: something moved behind {gate:#}");
                let path = format!("/gates/{}", gate["name"].as_str().expect("name"));
                world.patch(&path, json!({"properties": {"state": "Completed"}})).await.with(200);
            }
        }
        opened += 1;
    }
}

/// What an example says against the documented rules, by its name: target and part of the message.
fn contradiction(name: &str) -> Option<(&'static str, &'static str)> {
    // §13.3: a strategy and the id of one exclude each other.
    if name.contains("UpdateRuns_CreateOrUpdate") {
        return Some(("properties.strategy", "updateStrategyId exclude each other"));
    }
    // A5: two groups with one selector would both have the member.
    if name.contains("2026-06-02-preview/UpdateRuns_Skip") {
        return Some(("properties.strategy", "member-one"));
    }
    None
}

#[tokio::test(start_paused = true)]
async fn api9_the_official_run_is_taken_by_the_id_of_its_strategy_in_the_fleet_that_the_id_names() {
    for Example { version, name, body } in examples("UpdateRuns_CreateOrUpdate") {
        let world = World::without_fleet(REGION).await;
        let at = |path: &str| url(path, version).replace("/fleet1", "/myfleet");
        let put = async |path: &str, body: Value| world.raw("PUT", &at(path), &[], body.to_string()).await;
        put("", json!({"location": "westeurope"})).await.with(201);
        let strategy = &body["properties"]["strategy"];
        put("/updateStrategies/strategy1", json!({"properties": {"strategy": strategy}})).await.with(201);
        let mut by_id = body.clone();
        by_id["properties"].as_object_mut().expect("properties").remove("strategy");
        let made = put("/updateRuns/run1", by_id).await.with(201);
        assert_eq!(&made["properties"]["strategy"], strategy, "{name}");
        assert_eq!(made["properties"]["updateStrategyId"], body["properties"]["updateStrategyId"], "{name}");
        let again = put("/updateRuns/run1", body.clone()).await.with(200);
        assert_eq!(&again["properties"]["strategy"], strategy, "{name}: on an existing run the copy may come along");
    }
}

#[tokio::test(start_paused = true)]
async fn a5_a_strategy_with_everything_runs_to_its_end() {
    let world = World::new(FIVE).await;
    for (name, group) in [("c1", "canary"), ("c2", "east"), ("c3", "east"), ("c4", "west"), ("there", "west")] {
        world.join(name, group).await;
        world.patch(&format!("/members/{name}"), json!({"properties": {"labels": {"env": group}}})).await.with(200);
    }
    let strategy = json!({"stages": [
        {"name": "first", "maxConcurrency": "1", "groups": [{"name": "canary"}], "afterStageWaitInSeconds": 7200},
        {"name": "rest", "maxConcurrency": "50%", "maxAllowedFailures": "25%", "groups": [
            {"name": "east", "maxConcurrency": "2", "maxAllowedFailures": "1"},
            {"name": "sunset", "memberSelector": {"byLabel": "env in (west),env!=canary"}},
        ]},
    ]});
    world.put("/updateStrategies/waves", json!({"properties": {"strategy": strategy}})).await.with(201);
    let mut request = full(Value::Null);
    request["properties"]["updateStrategyId"] = json!(format!("{FLEET}/updateStrategies/waves"));
    world.put("/updateRuns/r1", request).await.with(201);
    world.start("r1").await;
    let run = world.until("r1", "Completed").await;
    let states: Vec<(String, String)> = members_of(&run);
    let expect =
        [("c1", "Completed"), ("c2", "Completed"), ("c3", "Completed"), ("c4", "Completed"), ("there", "Skipped")];
    assert_eq!(states, expect.map(|(name, state)| (name.to_owned(), state.to_owned())));
    assert_eq!(world.accepted(), 4);
    let time = |pointer: &str| -> jiff::Timestamp {
        run.pointer(pointer).and_then(Value::as_str).expect(pointer).parse().expect("time")
    };
    let waited = time("/properties/status/stages/0/afterStageWaitStatus/status/startTime");
    let went_on = time("/properties/status/stages/1/status/startTime");
    assert!(went_on.duration_since(waited).as_secs() >= 7200, "{waited} {went_on}");
}
