//! What is refused: each gets its status, code and target, and nothing that is stored changes.

use serde_json::{Value, json};

use crate::harness::{CLUSTERS, FIVE, FLEET, VERSION, World, full, gated, stages, url};

/// What is asked, and how it is refused.
struct Row {
    name: &'static str,
    method: &'static str,
    uri: String,
    headers: &'static [(&'static str, &'static str)],
    body: String,
    /// Status, code and target.
    refusal: (u16, &'static str, &'static str),
    /// What the message must say.
    says: &'static str,
}

impl Row {
    fn header(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self
    }

    fn says(mut self, text: &'static str) -> Self {
        self.says = text;
        self
    }

    fn uri(mut self, uri: impl Into<String>) -> Self {
        self.uri = uri.into();
        self
    }
}

type Refusal = (u16, &'static str, &'static str);

fn text(name: &'static str, method: &'static str, path: &str, body: impl Into<String>, refusal: Refusal) -> Row {
    Row { name, method, uri: url(path, VERSION), headers: &[], body: body.into(), refusal, says: "" }
}

fn row(name: &'static str, method: &'static str, path: &str, body: Value, refusal: Refusal) -> Row {
    text(name, method, path, body.to_string(), refusal)
}

fn bare(name: &'static str, method: &'static str, path: &str, refusal: Refusal) -> Row {
    text(name, method, path, "", refusal)
}

/// A property that is wrong.
const fn wrong(target: &'static str) -> Refusal {
    (400, "InvalidParameter", target)
}

const BAD_JSON: Refusal = (400, "InvalidRequestContent", "");
const BAD_NAME: fn(&'static str) -> Refusal = |segment| (400, "InvalidResourceName", segment);
const STALE: Refusal = (412, "PreconditionFailed", "If-Match");
const EXISTS: Refusal = (412, "PreconditionFailed", "If-None-Match");
const NO_ROUTE: Refusal = (404, "InvalidResourceType", "");
const MISSING: Refusal = (404, "ResourceNotFound", "");
const NOT_NOW: Refusal = (409, "OperationNotAllowed", "");

/// A fleet with members c1 (a), c2 (b), c3 (none); a strategy; and runs that were never started, hold at a gate, were
/// stopped, and have ended.
async fn world() -> World {
    let world = World::new(FIVE).await;
    for (name, group, labels) in [("c1", "a", json!({"tier": "web", "env": "prod"})), ("c2", "b", json!({}))] {
        let properties = json!({"clusterResourceId": format!("{CLUSTERS}/{name}"), "group": group, "labels": labels});
        world.put(&format!("/members/{name}"), json!({"properties": properties})).await.with(201);
    }
    world.join("there", "t").await;
    world.put("/updateStrategies/s1", json!({"properties": {"strategy": stages(&[("one", &["a"])])}})).await.with(201);
    world.create("idle", stages(&[("one", &["a"])])).await;
    for name in ["held", "stopped"] {
        world.create(name, gated(&["a", "b"])).await;
        world.start(name).await;
    }
    world.post("/updateRuns/stopped/stop").await.with(200);
    let mut wait = stages(&[("one", &["t"])]);
    wait["stages"][0]["afterStageWaitInSeconds"] = json!(0);
    world.create("done", wait).await;
    world.start("done").await;
    world.until("done", "Skipped").await;
    world.pass(300).await;
    world
}

async fn check(rows: Vec<Row>) {
    let world = world().await;
    let before = world.dump().await;
    assert!(before.contains("updateruns/held") && before.contains("joined"), "the dump shows what is stored");
    for Row { name, method, uri, headers, body, refusal, says } in rows {
        let answer = world.raw(method, &uri, headers, body).await;
        assert_eq!(answer.refusal(), refusal, "{name}: {}", answer.body);
        let message = answer.message();
        assert!(message.contains(says), "{name}: {message}");
        assert!(!message.is_empty() && message.len() < 2_000, "{name}: {message}");
        assert!(!answer.header("x-ms-failure-cause").is_empty(), "{name}");
        assert!(world.dump().await == before, "{name} changed something");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_8_bodies_that_are_no_json_objects_are_refused() {
    let deep = format!("{{\"properties\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let mut rows = Vec::new();
    let paths = ["", "/members/m9", "/updateStrategies/s9", "/updateRuns/r9", "/updateRuns/idle"];
    for path in paths {
        for body in ["", "{", "nonsense", "{\"location\":}", "[]", "null", "3", "\"text\"", "{} {}", "\u{feff}{}"] {
            rows.push(text("no object", "PUT", path, body, BAD_JSON));
        }
        rows.push(text("deep nesting", "PUT", path, deep.clone(), BAD_JSON));
        rows.push(text("no UTF-8 escape", "PUT", path, r#"{"location": "\ud800"}"#, BAD_JSON));
    }
    rows.push(text("no object", "PATCH", "", "[]", BAD_JSON));
    rows.push(text("no object", "PATCH", "/members/c1", "7", BAD_JSON));
    rows.push(text("no body", "POST", "/updateRuns/held/skip", "", BAD_JSON));
    check(rows).await;
}

#[tokio::test(start_paused = true)]
async fn rule_7_bodies_of_more_than_four_mebibytes_are_refused() {
    let longest = 4 << 20;
    let body = |length: usize| format!("{{\"location\":\"{}\"}}", "x".repeat(length - 15));
    assert_eq!(body(longest).len(), longest);
    check(vec![
        text("one byte too long", "PUT", "", body(longest + 1), (413, "RequestEntityTooLarge", "")),
        text("as long as may be, and no region", "PUT", "", body(longest), wrong("location")),
        text("of a start", "POST", "/updateRuns/idle/start", body(longest + 1), (413, "RequestEntityTooLarge", "")),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn rule_8_wrong_types_are_refused_at_every_level() {
    let mut rows = vec![
        row("location", "PUT", "", json!({"location": 7}), wrong("location")),
        row("no location", "PUT", "", json!({}), wrong("location")),
        row("another location", "PUT", "", json!({"location": "eastus"}), wrong("location")),
        row("tags", "PUT", "", json!({"location": "westeurope", "tags": []}), wrong("tags")),
        row("a tag", "PATCH", "", json!({"tags": {"a": 1}}), wrong("tags['a']")),
        row("identity", "PATCH", "", json!({"identity": {"type": "none"}}), wrong("identity.type")),
        row("member without properties", "PUT", "/members/m9", json!({}), wrong("properties")),
        row("member of a list", "PUT", "/members/m9", json!({"properties": []}), wrong("properties")),
        row("skip of nothing", "POST", "/updateRuns/held/skip", json!({}), wrong("targets")),
        row("skip of none", "POST", "/updateRuns/held/skip", json!({"targets": []}), wrong("targets")),
        row("skip of text", "POST", "/updateRuns/held/skip", json!({"targets": "c1"}), wrong("targets")),
        row("skip of a text", "POST", "/updateRuns/held/skip", json!({"targets": ["c1"]}), wrong("targets[0]")),
    ];
    // Each puts one wrong value into a body that is otherwise right.
    let cases: &[(&str, Value, &str)] = &[
        ("/properties", json!("x"), "properties"),
        ("/properties/strategy", json!([]), "properties.strategy"),
        ("/properties/strategy/stages", json!({}), "properties.strategy.stages"),
        ("/properties/strategy/stages", json!([]), "properties.strategy.stages"),
        ("/properties/strategy/stages", Value::Null, "properties.strategy.stages"),
        ("/properties/strategy/stages/0", json!("one"), "properties.strategy.stages[0]"),
        ("/properties/strategy/stages/0/name", json!(1), "properties.strategy.stages[0].name"),
        ("/properties/strategy/stages/0/name", json!("One"), "properties.strategy.stages[0].name"),
        ("/properties/strategy/stages/0/name", Value::Null, "properties.strategy.stages[0].name"),
        ("/properties/strategy/stages/0/groups", json!({}), "properties.strategy.stages[0].groups"),
        ("/properties/strategy/stages/0/groups", json!([]), "properties.strategy.stages[0].groups"),
        ("/properties/strategy/stages/0/groups/0", json!("a"), "properties.strategy.stages[0].groups[0]"),
        ("/properties/strategy/stages/0/groups/0/name", json!("-a"), "properties.strategy.stages[0].groups[0].name"),
        (
            "/properties/strategy/stages/0/afterStageWaitInSeconds",
            json!("60"),
            "properties.strategy.stages[0].afterStageWaitInSeconds",
        ),
        (
            "/properties/strategy/stages/0/afterStageWaitInSeconds",
            json!(-1),
            "properties.strategy.stages[0].afterStageWaitInSeconds",
        ),
        (
            "/properties/strategy/stages/0/afterStageWaitInSeconds",
            json!(2_147_483_648_u64),
            "properties.strategy.stages[0].afterStageWaitInSeconds",
        ),
        ("/properties/strategy/stages/0/beforeGates", json!({}), "properties.strategy.stages[0].beforeGates"),
        ("/properties/strategy/stages/0/beforeGates", json!([{}]), "properties.strategy.stages[0].beforeGates[0].type"),
        (
            "/properties/strategy/stages/0/beforeGates",
            json!([{"type": "approval"}]),
            "properties.strategy.stages[0].beforeGates[0].type",
        ),
        (
            "/properties/strategy/stages/0/beforeGates",
            json!([{"type": "Approval", "displayName": ""}]),
            "properties.strategy.stages[0].beforeGates[0].displayName",
        ),
        (
            "/properties/strategy/stages/0/beforeGates",
            json!([{"type": "ScheduledStart"}]),
            "properties.strategy.stages[0].beforeGates[0].scheduledStartConfiguration",
        ),
    ];
    for (pointer, value, target) in cases {
        let mut body = full(stages(&[("one", &["a"])]));
        let (parent, key) = pointer.rsplit_once('/').expect("pointer");
        match body.pointer_mut(parent).expect(pointer) {
            Value::Object(object) => drop(object.insert(key.into(), value.clone())),
            Value::Array(array) => array[0] = value.clone(),
            _ => unreachable!("{pointer}"),
        }
        for path in ["/updateRuns/r9", "/updateRuns/idle", "/updateStrategies/s9", "/updateStrategies/s1"] {
            rows.push(row(pointer.rsplit('/').next().expect("name"), "PUT", path, body.clone(), wrong(target)));
        }
    }
    check(rows).await;
}

/// A run of a strategy in which one stage and group carry a property.
fn limited(key: &str, value: Value) -> [(Value, bool); 2] {
    let mut of_stage = full(stages(&[("one", &["a"])]));
    let mut of_group = of_stage.clone();
    of_stage["properties"]["strategy"]["stages"][0][key] = value.clone();
    of_group["properties"]["strategy"]["stages"][0]["groups"][0][key] = value;
    [(of_stage, true), (of_group, false)]
}

#[tokio::test(start_paused = true)]
async fn a5_limits_and_selectors_that_do_not_parse_are_refused() {
    let mut rows = Vec::new();
    let mut add = |key: &'static str, value: Value, below: &str, says: &'static str| {
        for (body, of_stage) in limited(key, value) {
            let at = if of_stage { "stages[0]" } else { "stages[0].groups[0]" };
            let target: &'static str = format!("properties.strategy.{at}.{key}{below}").leak();
            rows.push(row(key, "PUT", "/updateRuns/r9", body.clone(), wrong(target)).says(says));
            rows.push(row(key, "PUT", "/updateStrategies/s1", body, wrong(target)).says(says));
        }
    };
    add("maxConcurrency", json!(3), "", "write \"3\"");
    add("maxAllowedFailures", json!(0), "", "write \"0\"");
    for text in ["", "0", "-1", "01", "1.5", "0%", "101%", "ten", "5 %", "99999999999", "1001"] {
        add("maxConcurrency", json!(text), "", "");
    }
    for text in ["-1", "01", "1.5", "101%", "ten", "5 %", "99999999999"] {
        add("maxAllowedFailures", json!(text), "", "");
    }
    for text in ["", "=", "env in", "env in (a", "a,,b", "env==prod==x", "Ünknown", "a=b;c=d", "-a", "(a)", "!"] {
        add("memberSelector", json!({"byLabel": text}), ".byLabel", "");
    }
    add("memberSelector", json!({"byLabel": format!("a in ({})", "x,".repeat(300))}), ".byLabel", "512");
    add("memberSelector", json!({"byLabel": ["a"]}), ".byLabel", "");
    add("memberSelector", json!({}), ".byLabel", "");
    add("memberSelector", json!("a=b"), "", "");
    check(rows).await;
}

#[tokio::test(start_paused = true)]
async fn a5_strategies_that_contradict_themselves_are_refused() {
    let many: Vec<String> = (0..51).map(|group| format!("g{group}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut rows = Vec::new();
    let cases = [
        (stages(&[("one", &["a"]), ("one", &["b"])]), "properties.strategy.stages[1].name", "one"),
        (stages(&[("one", &["a", "a"])]), "properties.strategy.stages[0].groups[1].name", "twice"),
        (stages(&[("one", &["a"]), ("two", &["b", "a"])]), "properties.strategy.stages[1].groups[1].name", "'a'"),
        (stages(&[("one", &many)]), "properties.strategy.stages[0].groups", "50"),
        (stages(&[("one", &[])]), "properties.strategy.stages[0].groups", "memberSelector"),
    ];
    for (strategy, target, says) in cases {
        let body = full(strategy);
        rows.push(row("strategy", "PUT", "/updateStrategies/s9", body.clone(), wrong(target)).says(says));
        rows.push(row("run", "PUT", "/updateRuns/r9", body.clone(), wrong(target)).says(says));
        rows.push(row("run again", "PUT", "/updateRuns/idle", body, wrong(target)).says(says));
    }
    let mut overlap = stages(&[("one", &["x", "y"])]);
    overlap["stages"][0]["groups"][0]["memberSelector"] = json!({"byLabel": "tier=web"});
    overlap["stages"][0]["groups"][1]["memberSelector"] = json!({"byLabel": "env=prod"});
    let target = wrong("properties.strategy");
    rows.push(row("overlap", "PUT", "/updateRuns/r9", full(overlap.clone()), target).says("c1"));
    rows.push(row("overlap", "PUT", "/updateRuns/idle", full(overlap), target).says("!label"));
    let late = json!({"startDay": "Friday", "startTime": "18:00", "utcOffset": "+00:00"});
    let mut scheduled = stages(&[("one", &["a"])]);
    scheduled["stages"][0]["afterGates"] = json!([{"type": "ScheduledStart", "scheduledStartConfiguration": late}]);
    let target = wrong("properties.strategy.stages[0].afterGates[0].type");
    rows.push(row("a start that comes after", "PUT", "/updateRuns/r9", full(scheduled), target));
    check(rows).await;
}

/// A run with this `managedClusterUpdate`.
fn goal(update: Value) -> Value {
    json!({"properties": {"managedClusterUpdate": update}})
}

#[tokio::test(start_paused = true)]
async fn a4_goals_that_make_no_sense_are_refused() {
    let upgrade = |upgrade: Value| goal(json!({"upgrade": upgrade}));
    let images = |images: Value| goal(json!({"upgrade": {"type": "NodeImageOnly"}, "nodeImageSelection": images}));
    const UPDATE: &str = "properties.managedClusterUpdate";
    const TYPE: Refusal = wrong("properties.managedClusterUpdate.upgrade.type");
    const KUBERNETES: Refusal = wrong("properties.managedClusterUpdate.upgrade.kubernetesVersion");
    const IMAGES: Refusal = wrong("properties.managedClusterUpdate.nodeImageSelection.type");
    const NEWER: Refusal = wrong("properties.managedClusterUpdate.nodeImageSelection.acceptNewer");
    const CUSTOM: Refusal = wrong("properties.managedClusterUpdate.nodeImageSelection.customNodeImageVersions");
    const FIRST: Refusal =
        wrong("properties.managedClusterUpdate.nodeImageSelection.customNodeImageVersions[0].version");
    let image = "AKSUbuntu-2204gen2containerd-202303.06.0";
    let cases = [
        ("none", json!({"properties": {}}), wrong(UPDATE)),
        ("a text", goal(json!("Full")), wrong(UPDATE)),
        ("no upgrade", goal(json!({})), wrong("properties.managedClusterUpdate.upgrade")),
        ("no type", upgrade(json!({"kubernetesVersion": "1.26.1"})), TYPE),
        ("casing", upgrade(json!({"type": "full", "kubernetesVersion": "1.26.1"})), TYPE),
        ("another type", upgrade(json!({"type": "Everything"})), TYPE),
        ("no version", upgrade(json!({"type": "Full"})), KUBERNETES),
        ("empty version", upgrade(json!({"type": "Full", "kubernetesVersion": ""})), KUBERNETES),
        ("no version", upgrade(json!({"type": "ControlPlaneOnly"})), KUBERNETES),
        ("superfluous", upgrade(json!({"type": "NodeImageOnly", "kubernetesVersion": "1.26.1"})), KUBERNETES),
        ("a number", upgrade(json!({"type": "Full", "kubernetesVersion": 1.26})), KUBERNETES),
        ("no version", upgrade(json!({"type": "Full", "kubernetesVersion": "latest"})), KUBERNETES),
        ("four parts", upgrade(json!({"type": "Full", "kubernetesVersion": "1.26.1.0"})), KUBERNETES),
        ("no such selection", images(json!({"type": "latest"})), IMAGES),
        ("newer than Latest", images(json!({"type": "Latest", "acceptNewer": true})), NEWER),
        ("acceptNewer as text", images(json!({"type": "Consistent", "acceptNewer": "true"})), NEWER),
        ("Custom of none", images(json!({"type": "Custom"})), CUSTOM),
        ("Latest of some", images(json!({"type": "Latest", "customNodeImageVersions": [{"version": image}]})), CUSTOM),
        (
            "two of a family",
            images(json!({"type": "Custom", "customNodeImageVersions": [{"version": image}, {"version": image}]})),
            CUSTOM,
        ),
        ("no image", images(json!({"type": "Custom", "customNodeImageVersions": [{}]})), FIRST),
        ("no image", images(json!({"type": "Custom", "customNodeImageVersions": [{"version": "x"}]})), FIRST),
    ];
    let rows = cases.into_iter().flat_map(|(name, body, refusal)| {
        ["/updateRuns/r9", "/updateRuns/idle"].map(|path| row(name, "PUT", path, body.clone(), refusal))
    });
    check(rows.collect()).await;
}

#[tokio::test(start_paused = true)]
async fn a4_strategy_ids_that_lead_nowhere_are_refused() {
    let by_id = |id: Value, strategy: Value| {
        let mut body = full(strategy);
        body["properties"]["updateStrategyId"] = id;
        body
    };
    let id = format!("{FLEET}/updateStrategies/s1");
    let elsewhere = id.replace("fleet1", "fleet2");
    const ID: Refusal = wrong("properties.updateStrategyId");
    const STRATEGY: Refusal = wrong("properties.strategy");
    let (none, copy, other) = (Value::Null, stages(&[("one", &["a"])]), stages(&[("two", &["a"])]));
    check(vec![
        row("no id", "PUT", "/updateRuns/r9", by_id(json!("s1"), none.clone()), ID),
        row("a number", "PUT", "/updateRuns/r9", by_id(json!(1), none.clone()), ID),
        row(
            "of a run",
            "PUT",
            "/updateRuns/r9",
            by_id(json!(id.replace("updateStrategies", "updateRuns")), none.clone()),
            ID,
        ),
        row("missing", "PUT", "/updateRuns/r9", by_id(json!(id.replace("s1", "s9")), none.clone()), ID).says("s9"),
        row("missing", "PUT", "/updateRuns/idle", by_id(json!(id.replace("s1", "s9")), none.clone()), ID),
        row("of another fleet", "PUT", "/updateRuns/r9", by_id(json!(elsewhere), none), ID),
        row("with a strategy", "PUT", "/updateRuns/r9", by_id(json!(id), copy), STRATEGY).says("updateStrategyId"),
        row("with another strategy", "PUT", "/updateRuns/idle", by_id(json!(id), other), STRATEGY),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a2_members_that_cannot_be_are_refused() {
    let of = |properties: Value| json!({"properties": properties});
    let with = |key: &str, value: Value| {
        let mut properties = json!({"clusterResourceId": format!("{CLUSTERS}/c4")});
        properties[key] = value;
        json!({"properties": properties})
    };
    const CLUSTER: Refusal = wrong("properties.clusterResourceId");
    let labels: serde_json::Map<String, Value> = (0..101).map(|n| (format!("l{n}"), json!("x"))).collect();
    let mut rows = vec![
        row("no cluster", "PUT", "/members/m9", of(json!({})), CLUSTER),
        row("no id", "PUT", "/members/m9", of(json!({"clusterResourceId": "c4"})), CLUSTER),
        row("a number", "PUT", "/members/m9", of(json!({"clusterResourceId": 4})), CLUSTER),
        row("a fleet", "PUT", "/members/m9", of(json!({"clusterResourceId": FLEET})), CLUSTER),
        row("another cluster", "PUT", "/members/c1", with("group", json!("a")), CLUSTER).says("delete the member"),
        row(
            "joined",
            "PUT",
            "/members/m9",
            of(json!({"clusterResourceId": format!("{CLUSTERS}/C1")})),
            (409, "ClusterAlreadyJoinedAnotherFleet", "properties.clusterResourceId"),
        )
        .says("/members/c1"),
    ];
    let cases = [
        ("group", json!("A"), "properties.group"),
        ("group", json!(7), "properties.group"),
        ("group", json!("x".repeat(51)), "properties.group"),
        ("labels", json!([]), "properties.labels"),
        ("labels", json!({"a": 1}), "properties.labels['a']"),
        ("labels", json!({"a b": "x"}), "properties.labels['a b']"),
        ("labels", json!({"": "x"}), "properties.labels['']"),
        ("labels", json!({"Up/a": "x"}), "properties.labels['Up/a']"),
        ("labels", json!({"a": "-x"}), "properties.labels['a']"),
        ("labels", json!({"a": "x".repeat(64)}), "properties.labels['a']"),
        ("labels", Value::Object(labels), "properties.labels"),
    ];
    for (key, value, target) in cases {
        rows.push(row("new member", "PUT", "/members/m9", with(key, value.clone()), wrong(target)));
        rows.push(row("patched member", "PATCH", "/members/c1", of(json!({key: value})), wrong(target)));
    }
    rows.push(row("nobody", "PATCH", "/members/m9", json!({}), MISSING));
    check(rows).await;
}

#[tokio::test(start_paused = true)]
async fn a2_names_in_paths_are_checked() {
    let mut rows = Vec::new();
    let long = "x".repeat(51);
    for name in ["M1", "-m", "m-", "m_1", "m.1", "m%20", "%C3%BC", long.as_str()] {
        let parts = [
            ("/members", "fleetMemberName"),
            ("/updateStrategies", "updateStrategyName"),
            ("/updateRuns", "updateRunName"),
            ("/autoUpgradeProfiles", "autoUpgradeProfileName"),
        ];
        for (part, segment) in parts {
            rows.push(row("name", "PUT", &format!("{part}/{name}"), json!({}), BAD_NAME(segment)));
        }
    }
    let fleet = |name: &str| format!("{}?api-version={VERSION}", FLEET.replace("fleet1", name));
    for name in ["Fleet", "f_1", "x".repeat(64).as_str()] {
        rows.push(bare("fleet", "PUT", "", BAD_NAME("fleetName")).uri(fleet(name)));
    }
    rows.push(bare("gate", "GET", "/gates/gate1", BAD_NAME("gateName")));
    let group = fleet("fleet1").replace("/rg1/", "/r$g/");
    rows.push(bare("group", "GET", "", BAD_NAME("resourceGroupName")).uri(group));
    check(rows).await;
}

#[tokio::test(start_paused = true)]
async fn api0_versions_that_were_never_published_are_refused() {
    let without = |query: &str| format!("{FLEET}{query}");
    const MISSING_VERSION: Refusal = (400, "MissingApiVersionParameter", "api-version");
    const UNKNOWN: Refusal = (400, "InvalidApiVersionParameter", "api-version");
    check(vec![
        bare("none", "GET", "", MISSING_VERSION).uri(without("")),
        bare("empty", "GET", "", MISSING_VERSION).uri(without("?api-version=")),
        bare("none of a delete", "DELETE", "", MISSING_VERSION).uri(without("?a=b")),
        bare("never published", "GET", "", UNKNOWN).uri(without("?api-version=2026-05-01-preview")).says(VERSION),
        bare("no date", "GET", "", UNKNOWN).uri(without("?api%2Dversion=latest")),
        bare("too new", "DELETE", "", UNKNOWN).uri(without("?api-version=2027-01-01")),
        bare("broken encoding", "GET", "", (400, "InvalidQueryString", "")).uri(without("?api-version=%zz")),
        bare("many", "GET", "", (400, "InvalidQueryString", "")).uri(without(&format!("?{}", "a=b&".repeat(65)))),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn api5_conditions_that_do_not_hold_are_refused_by_every_verb() {
    let run = full(stages(&[("one", &["a"])]));
    let member = json!({"properties": {"clusterResourceId": format!("{CLUSTERS}/c1"), "group": "b"}});
    let strategy = json!({"properties": {"strategy": stages(&[("two", &["b"])])}});
    let skip = json!({"targets": [{"type": "Group", "name": "a"}]});
    let writes = [
        ("PUT", "", json!({"location": "westeurope"})),
        ("PATCH", "", json!({"tags": {"a": "b"}})),
        ("DELETE", "", Value::Null),
        ("PUT", "/members/c1", member.clone()),
        ("PATCH", "/members/c1", json!({"properties": {"group": "b"}})),
        ("DELETE", "/members/c1", Value::Null),
        ("PUT", "/updateStrategies/s1", strategy.clone()),
        ("DELETE", "/updateStrategies/s1", Value::Null),
        ("PUT", "/updateRuns/idle", run.clone()),
        ("DELETE", "/updateRuns/idle", Value::Null),
        ("POST", "/updateRuns/idle/start", Value::Null),
        ("POST", "/updateRuns/held/stop", Value::Null),
        ("POST", "/updateRuns/held/skip", skip),
    ];
    let mut rows = Vec::new();
    for (method, path, body) in writes {
        rows.push(row("stale", method, path, body.clone(), STALE).header(&[("if-match", "\"old\"")]));
        rows.push(row("stale", method, path, body.clone(), STALE).header(&[("if-match", "\"old\", W/\"older\"")]));
        rows.push(
            row("no etag", method, path, body.clone(), (400, "InvalidHeaderValue", "If-Match"))
                .header(&[("if-match", "\"\"")]),
        );
        rows.push(
            row("not text", method, path, body.clone(), (400, "InvalidHeaderValue", "If-Match"))
                .header(&[("if-match", "é")]),
        );
        const TWO: [(&str, &str); 2] = [("if-match", "*"), ("if-match", "\"b\"")];
        rows.push(row("two lists", method, path, body.clone(), STALE).header(&TWO));
        if method == "PUT" {
            rows.push(row("there", method, path, body, EXISTS).header(&[("if-none-match", "*")]));
        }
    }
    for (path, body) in [("/members/m9", member), ("/updateStrategies/s9", strategy), ("/updateRuns/r9", run)] {
        rows.push(row("absent", "PUT", path, body, STALE).header(&[("if-match", "*")]));
        rows.push(bare("absent", "DELETE", path, STALE).header(&[("if-match", "*")]));
    }
    check(rows).await;
}

#[tokio::test(start_paused = true)]
async fn a7_actions_in_the_wrong_state_or_on_nothing_are_refused() {
    let skip = |kind: &str, name: &str| json!({"targets": [{"type": kind, "name": name}]});
    let mixed = json!({"targets": [{"type": "Member", "name": "c1"}, {"type": "Group", "name": "nobody"}]});
    const TARGETS: Refusal = wrong("targets");
    check(vec![
        bare("start of one that waits", "POST", "/updateRuns/held/start", NOT_NOW).says("Pending"),
        bare("start of one that ended", "POST", "/updateRuns/done/start", NOT_NOW).says("Skipped"),
        bare("stop of one never started", "POST", "/updateRuns/idle/stop", NOT_NOW).says("NotStarted"),
        bare("stop of one stopped", "POST", "/updateRuns/stopped/stop", NOT_NOW).says("Stopped"),
        bare("stop of one that ended", "POST", "/updateRuns/done/stop", NOT_NOW).says("Skipped"),
        row("skip in one that ended", "POST", "/updateRuns/done/skip", skip("Member", "there"), NOT_NOW),
        row("skip of nobody", "POST", "/updateRuns/held/skip", skip("Member", "nobody"), TARGETS).says("nobody"),
        row("skip of one outside", "POST", "/updateRuns/idle/skip", skip("Member", "c2"), TARGETS),
        row("skip of no group", "POST", "/updateRuns/held/skip", skip("Group", "one"), TARGETS),
        row("skip of no stage", "POST", "/updateRuns/held/skip", skip("Stage", "a"), TARGETS),
        row("skip of no wait", "POST", "/updateRuns/held/skip", skip("AfterStageWait", "one"), TARGETS),
        row("skip of one that is and one that is not", "POST", "/updateRuns/held/skip", mixed, TARGETS),
        row("casing", "POST", "/updateRuns/held/skip", skip("member", "c1"), wrong("targets[0].type")),
        row("no name", "POST", "/updateRuns/held/skip", skip("Member", "C1"), wrong("targets[0].name")),
        row("skip in no run", "POST", "/updateRuns/r9/skip", skip("Member", "c1"), MISSING),
        bare("start of no run", "POST", "/updateRuns/r9/start", MISSING),
        bare("stop of no run", "POST", "/updateRuns/r9/stop", MISSING),
        bare("waits of no run", "GET", "/updateRuns/r9/waitingOn", MISSING),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn choice_a_started_run_takes_no_other_content_and_keeps_its_fleet() {
    const CONFLICT: Refusal = (409, "Conflict", "");
    let started = gated(&["a", "b"]);
    let mut other_goal = full(started.clone());
    other_goal["properties"]["managedClusterUpdate"]["upgrade"]["kubernetesVersion"] = json!("1.26.0");
    let mut rows = Vec::new();
    for path in ["/updateRuns/held", "/updateRuns/stopped"] {
        rows.push(row("another goal", "PUT", path, other_goal.clone(), CONFLICT));
        rows.push(row("another strategy", "PUT", path, full(stages(&[("one", &["a", "b"])])), CONFLICT));
        rows.push(row("no strategy", "PUT", path, full(Value::Null), CONFLICT).says("create another run"));
    }
    rows.push(row("of one that ended", "PUT", "/updateRuns/done", full(started), CONFLICT).says("Skipped"));
    rows.push(bare("fleet with a started run", "DELETE", "", CONFLICT).says("'held' is Pending"));
    check(rows).await;
}

#[tokio::test(start_paused = true)]
async fn rule_9_foreign_hosts_and_origins_are_refused() {
    const FOREIGN: Refusal = (403, "ForeignOrigin", "");
    check(vec![
        bare("host", "DELETE", "", FOREIGN).header(&[("host", "example.com")]),
        bare("host like ours", "GET", "", FOREIGN).header(&[("host", "localhost.example.com:8642")]),
        bare("a second host", "GET", "", FOREIGN).header(&[("host", "localhost"), ("host", "example.com")]),
        bare("host with a user", "GET", "", FOREIGN).header(&[("host", "localhost:80@example.com")]),
        bare("a second origin", "GET", "", FOREIGN)
            .header(&[("origin", "http://localhost"), ("origin", "https://example.com")]),
        bare("origin", "POST", "/updateRuns/idle/start", FOREIGN).header(&[("origin", "https://example.com")]),
        bare("opaque origin", "DELETE", "", FOREIGN).header(&[("origin", "null")]),
        bare("health", "GET", "", FOREIGN).uri("/healthz").header(&[("host", "example.com")]),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn api3_paths_and_methods_that_are_not_there_are_refused() {
    let fleets = FLEET.rsplit_once('/').expect("path").0.to_owned();
    const NO: Refusal = (405, "MethodNotAllowed", "");
    let mut rows = vec![
        bare("root", "GET", "", NO_ROUTE).uri("/"),
        bare("elsewhere", "GET", "", NO_ROUTE).uri("/subscriptions/s/resourceGroups/rg1"),
        bare("another provider", "GET", "", NO_ROUTE).uri(FLEET.replace("ContainerService", "Compute")),
        bare("another type", "GET", "/clusterMeshProfiles", NO_ROUTE),
        bare("another action", "POST", "/updateRuns/idle/restart", NO_ROUTE),
        bare("deeper", "GET", "/updateRuns/idle/start/now", NO_ROUTE),
        bare("waits of a fleet", "GET", "/waitingOn", NO_ROUTE),
        bare("waits of a member", "GET", "/members/c1/waitingOn", NO_ROUTE),
        bare("no member", "GET", "/members/m9", MISSING).says("fleet1/members/m9"),
        bare("no gate", "GET", "/gates/12345678-9abc-def0-1234-56789abcdef0", MISSING),
        bare("no profile", "GET", "/autoUpgradeProfiles/p", MISSING),
        bare("no such operation", "GET", "", (404, "OperationNotFound", "")).uri("/subscriptions/s/providers/Microsoft.ContainerService/locations/westeurope/operations/12345678-9abc-def0-1234-56789abcdef0?api-version=2016-03-30"),
        bare("hub", "POST", "/listCredentials", (400, "FleetHasNoHub", "")),
        bare("top", "GET", "/members?$top=0", wrong("$top")),
        bare("top", "GET", "/members?$top=many", wrong("$top")),
        bare("token", "GET", "/updateRuns?$skipToken=x", wrong("$skipToken")),
        bare("filter", "GET", "/members?$filter=name%20eq%20c1", wrong("$filter")),
    ];
    for part in ["/members/m9", "/updateStrategies/s9", "/updateRuns/r9", "/members", "/updateRuns"] {
        let uri = url(part, VERSION).replace("fleet1", "fleet2");
        rows.push(bare("no fleet", "GET", "", MISSING).uri(uri).says("fleets/fleet2"));
    }
    let run = full(Value::Null).to_string();
    let uri = url("/updateRuns/r9", VERSION).replace("fleet1", "fleet2");
    rows.push(text("a run of no fleet", "PUT", "", run, MISSING).uri(uri));
    rows.push(row("no fleet", "PATCH", "", json!({}), MISSING).uri(url("", VERSION).replace("fleet1", "fleet2")));
    let not_allowed = [
        ("POST", "", "GET, PUT, PATCH, DELETE"),
        ("PATCH", "/updateRuns/idle", "GET, PUT, DELETE"),
        ("PATCH", "/updateStrategies/s1", "GET, PUT, DELETE"),
        ("POST", "/members/c1", "GET, PUT, PATCH, DELETE"),
        ("DELETE", "/members", "GET"),
        ("PUT", "/gates/12345678-9abc-def0-1234-56789abcdef0", "GET, PATCH"),
        ("PATCH", "/autoUpgradeProfiles/p", "GET, PUT, DELETE"),
        ("GET", "/updateRuns/idle/start", "POST"),
        ("PUT", "/updateRuns/idle/skip", "POST"),
        ("POST", "/updateRuns/idle/waitingOn", "GET"),
        ("GET", "/listCredentials", "POST"),
    ];
    rows.extend(not_allowed.map(|(method, path, allowed)| bare("method", method, path, NO).says(allowed)));
    rows.push(bare("list", "PUT", "", NO).uri(format!("{fleets}?api-version={VERSION}")));
    rows.push(
        bare("operations", "POST", "", NO)
            .uri(format!("/providers/Microsoft.ContainerService/operations?api-version={VERSION}")),
    );
    check(rows).await;
    let answer = world().await.post("").await;
    assert_eq!((answer.status, answer.header("allow")), (405, "GET, PUT, PATCH, DELETE"));
}
