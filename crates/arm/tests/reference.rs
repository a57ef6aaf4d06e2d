//! The official examples and recorded traffic, where they are at hand: every strategy, goal and body in them is taken and
//! comes back as it was.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use flotta_arm::{Query, Target, api_version::ApiVersion, fleet, member, run, skip, strategy};
use serde_json::{Value, json};

/// The folder of reference material; `None`, and a word about it, where it is missing.
fn reference() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let folder = std::env::var_os("FLOTTA_REFERENCE").map_or_else(beside, PathBuf::from);
    if !folder.is_dir() {
        eprintln!("skipped: no reference material here; set FLOTTA_REFERENCE to its folder");
        return None;
    }
    Some(folder)
}

/// The JSON files of a folder below the reference, with their names.
fn files(folder: &Path) -> Vec<(String, Value)> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("file");
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        (name, serde_json::from_str(&text).expect("json"))
    };
    paths.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "json")).map(read).collect()
}

fn examples() -> Vec<(String, Value)> {
    let Some(reference) = reference() else { return Vec::new() };
    ["2026-06-01", "2026-06-02-preview"]
        .iter()
        .flat_map(|version| {
            files(&reference.join("examples").join(version))
                .into_iter()
                .map(move |(name, value)| (format!("{version}/{name}"), value))
        })
        .collect()
}

fn recorded() -> Vec<(String, Value)> {
    let Some(reference) = reference() else { return Vec::new() };
    let pairs = |(name, file): (String, Value)| {
        let pairs = file.get("pairs").and_then(Value::as_array).cloned().unwrap_or_default();
        pairs.into_iter().enumerate().map(move |(index, pair)| (format!("{name}[{index}]"), pair))
    };
    files(&reference.join("recorded")).into_iter().flat_map(pairs).collect()
}

/// Calls with every value under a key, however deep.
fn each<'a>(value: &'a Value, key: &str, visit: &mut impl FnMut(&'a Value)) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, child)| {
            if name == key {
                visit(child);
            }
            each(child, key, visit);
        }),
        Value::Array(elements) => elements.iter().for_each(|element| each(element, key, visit)),
        _ => {}
    }
}

/// Checks that every strategy and goal in a value comes back as it is; answers how many there were.
fn echoes(name: &str, value: &Value) -> usize {
    let mut count = 0;
    each(value, "strategy", &mut |sent| {
        let body = json!({"properties": {"strategy": sent}});
        let parsed = strategy::parse(&body).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(&strategy::render(&parsed), sent, "{name}");
        count += 1;
    });
    each(value, "managedClusterUpdate", &mut |sent| {
        let body = json!({"properties": {"managedClusterUpdate": sent}});
        let parsed = run::parse(&body).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(&run::render_goal(&parsed.goal), sent, "{name}");
        count += 1;
    });
    count
}

/// Reads a request body by what its operation expects.
fn takes(name: &str, operation: &str, body: &Value) -> bool {
    let outcome = match operation {
        "FleetUpdateStrategies_CreateOrUpdate" => strategy::parse(body).map(drop),
        "UpdateRuns_CreateOrUpdate" => run::parse(body).map(drop),
        "UpdateRuns_Skip" => skip::parse(body).map(drop),
        "Fleets_CreateOrUpdate" => fleet::parse(body).map(drop),
        "Fleets_Update" => fleet::parse_patch(body).map(drop),
        "FleetMembers_Create" => member::parse(body).map(drop),
        "FleetMembers_Update" => member::parse_patch(body).map(drop),
        _ => return false,
    };
    outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    true
}

#[test]
fn api9_official_examples_parse_and_come_back_as_they_are() {
    let examples = examples();
    if examples.is_empty() {
        return;
    }
    let mut operations = BTreeSet::new();
    let mut echoed = 0;
    for (name, example) in &examples {
        let parameters = &example["parameters"];
        let operation = example["operationId"].as_str().expect("operationId");
        for key in ["resource", "properties", "body"] {
            if let Some(body) = parameters.get(key)
                && takes(name, operation, body)
            {
                operations.insert(operation);
            }
        }
        ApiVersion::parse(parameters["api-version"].as_str().expect("api-version")).expect(name);
        echoed += echoes(name, parameters) + echoes(name, &example["responses"]);
    }
    assert_eq!(operations.len(), 7, "each kind of body was met: {operations:?}");
    assert!(echoed >= 40, "strategies and goals were met: {echoed}");
}

#[test]
fn api9_what_an_example_sends_is_what_its_answer_shows() {
    for (name, example) in examples() {
        let sent = &example["parameters"]["resource"]["properties"];
        for status in ["200", "201"] {
            let shown = &example["responses"][status]["body"]["properties"];
            for (key, echo) in [
                ("strategy", echo_of(sent, "strategy", |body| strategy::parse(body).map(|s| strategy::render(&s)))),
                (
                    "managedClusterUpdate",
                    echo_of(sent, "managedClusterUpdate", |body| run::parse(body).map(|r| run::render_goal(&r.goal))),
                ),
            ] {
                if let (Some(echo), Some(shown)) = (echo, shown.get(key)) {
                    assert_eq!(&echo, shown, "{name} {status} {key}");
                }
            }
        }
    }
}

fn echo_of(sent: &Value, key: &str, echo: impl Fn(&Value) -> Result<Value, flotta_arm::ArmError>) -> Option<Value> {
    let value = sent.get(key)?;
    Some(echo(&json!({"properties": {key: value}})).expect(key))
}

#[test]
fn clients_recorded_traffic_is_understood() {
    let recorded = recorded();
    if recorded.is_empty() {
        return;
    }
    let (mut paths, mut bodies, mut echoed) = (0, 0, 0);
    for (name, pair) in &recorded {
        let request = &pair["request"];
        let url = request["url"].as_str().expect("url").strip_prefix("https://management.azure.com").expect("host");
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let target = Target::parse(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let query = Query::parse(query).expect("query");
        if !matches!(target, Target::Operation { .. } | Target::OperationResult { .. }) {
            ApiVersion::of(&query).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        paths += 1;
        let operation = match (request["method"].as_str().expect("method"), &target) {
            ("PUT", Target::Fleet(_)) => "Fleets_CreateOrUpdate",
            ("PATCH", Target::Fleet(_)) => "Fleets_Update",
            ("PUT", Target::Member(..)) => "FleetMembers_Create",
            ("PATCH", Target::Member(..)) => "FleetMembers_Update",
            ("PUT", Target::Strategy(..)) => "FleetUpdateStrategies_CreateOrUpdate",
            ("PUT", Target::Run(..)) => "UpdateRuns_CreateOrUpdate",
            ("POST", Target::RunAction(..)) if !request["body"].is_null() => "UpdateRuns_Skip",
            _ => "",
        };
        bodies += usize::from(takes(name, operation, &request["body"]));
        echoed += echoes(name, &request["body"]) + echoes(name, &pair["response"]["body"]);
    }
    assert!(paths >= 40 && bodies >= 9 && echoed >= 20, "{paths} paths, {bodies} bodies, {echoed} echoes");
}

/// The keys at each level of a value: `a.b`, with `*` for the elements of arrays.
fn shape(value: &Value, at: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, child)| {
            let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            shape(child, &path, keys);
            keys.insert(path);
        }),
        Value::Array(elements) => elements.iter().for_each(|element| shape(element, &format!("{at}.*"), keys)),
        _ => {}
    }
}

/// Makes the run of a recording from what the recording shows of it, skips what was skipped, and answers what we would
/// show.
fn replayed(body: &Value, version: ApiVersion, skipped: Option<&Value>) -> Value {
    use flotta_arm::doc::{Principal, PrincipalKind, RunDoc, SystemData};
    use flotta_engine::{Plan, Run};
    let request = run::parse(body).expect("run");
    let mut members = Vec::new();
    for group in body["properties"]["status"]["stages"]
        .as_array()
        .expect("stages")
        .iter()
        .flat_map(|stage| stage["groups"].as_array().expect("groups"))
    {
        for member in group["members"].as_array().unwrap_or(&Vec::new()) {
            members.push(flotta_model::Member {
                name: member["name"].as_str().expect("name").parse().expect("name"),
                cluster: member["clusterResourceId"].as_str().expect("id").parse().expect("id"),
                group: group["name"].as_str().map(|name| name.parse().expect("group")),
                labels: flotta_model::Labels::new(),
            });
        }
    }
    let plan = Plan::resolve(request.goal.clone(), request.strategy.as_ref(), &members).expect("plan");
    let by = Principal { name: "user@example.com".into(), kind: PrincipalKind::User };
    let doc = RunDoc {
        run: uuid::Uuid::nil(),
        name: body["name"].as_str().expect("name").parse().expect("name"),
        strategy: request.strategy,
        strategy_id: request.strategy_id,
        goal: request.goal,
        system_data: SystemData::new(by, "2026-11-04T03:04:30.2146915Z".parse().expect("time")),
        profile_id: None,
        retry: None,
        start_after: None,
        only: None,
    };
    let mut run = Run::new(std::sync::Arc::new(plan));
    if let Some(body) = skipped {
        let targets = skip::parse(body).expect("targets");
        run.step(&flotta_engine::Input::Skip(targets), doc.system_data.created_at).expect("skipped");
    }
    let id = body["id"].as_str().expect("id");
    doc.render(id, "tag", version, &run, flotta_arm::status::Detail::Documented)
}

#[test]
fn api10_a_run_not_started_looks_as_recorded_at_every_level() {
    let mut seen = BTreeSet::new();
    for (name, pair) in recorded() {
        let body = &pair["response"]["body"];
        let not_started = body.pointer("/properties/status/status/state") == Some(&json!("NotStarted"));
        let asked_to_skip = Some(&pair["request"]["body"]).filter(|body| body.get("targets").is_some());
        let comparable = pristine(body) || asked_to_skip.is_some();
        if !not_started || body["type"] != "Microsoft.ContainerService/fleets/updateRuns" || !comparable {
            continue;
        }
        let url = pair["request"]["url"].as_str().expect("url");
        let query = Query::parse(url.split_once('?').expect("query").1).expect("query");
        let ours = replayed(body, ApiVersion::of(&query).expect("version"), asked_to_skip);
        let (mut got, mut want) = (BTreeSet::new(), BTreeSet::new());
        shape(&ours, "", &mut got);
        shape(body, "", &mut want);
        assert_eq!(got, want, "{name}");
        assert_eq!(timeless(&ours["properties"]), timeless(&body["properties"]), "{name}: properties, to the letter");
        seen.insert(asked_to_skip.is_some());
    }
    assert!(seen.len() == 2 || recorded().is_empty(), "runs with and without skips were met: {seen:?}");
}

/// Nothing in the run has moved or been skipped.
fn pristine(body: &Value) -> bool {
    let mut all = true;
    each(body, "state", &mut |state| all &= state == "NotStarted");
    all
}

/// The same without the times at which things were completed.
fn timeless(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let kept = object.iter().filter(|(key, _)| *key != "completedTime");
            Value::Object(kept.map(|(key, child)| (key.clone(), timeless(child))).collect())
        }
        Value::Array(elements) => elements.iter().map(timeless).collect(),
        other => other.clone(),
    }
}
