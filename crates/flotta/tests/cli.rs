//! The binary as its users know it, against a server that answers as it is told.

use std::{
    collections::BTreeMap,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use serde_json::{Value, json};

const FLEETS: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/flotta/providers/Microsoft.ContainerService/fleets";

/// An answer: status, headers, body.
type Answer = (u16, Vec<(&'static str, String)>, Value);

/// A server that gives out prepared answers, each once, the last again and again.
#[derive(Clone, Default)]
struct Fake {
    answers: Arc<Mutex<BTreeMap<String, Vec<Answer>>>>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    /// Who asked.
    users: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn answer(&self, call: &str, status: u16, body: Value) {
        self.answer_with(call, status, vec![], body);
    }

    fn answer_with(&self, call: &str, status: u16, headers: Vec<(&'static str, String)>, body: Value) {
        let mut answers = self.answers.lock().expect("lock");
        answers.entry(call.to_owned()).or_default().push((status, headers, body));
    }

    /// What was asked, as `METHOD path?query`, without the api-version and the collection of fleets.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("lock").iter().map(|(call, _)| call.clone()).collect()
    }

    fn body(&self, call: &str) -> Value {
        let asked = self.asked.lock().expect("lock");
        asked.iter().find(|(asked, _)| asked == call).map(|(_, body)| body.clone()).expect("was asked")
    }

    fn users(&self) -> Vec<String> {
        std::mem::take(&mut self.users.lock().expect("lock"))
    }

    async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let router = Router::new().fallback(reply).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}")
    }
}

async fn reply(State(fake): State<Fake>, request: Request) -> Response {
    let uri = request.uri().to_string().replace(FLEETS, "").replace("?api-version=2026-06-02-preview", "");
    let if_match = request.headers().get("if-match").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let condition = if if_match.is_empty() { String::new() } else { format!(" if {if_match}") };
    let call = format!("{} {uri}{condition}", request.method());
    let user = request.headers().get("x-ms-client-principal-name").and_then(|name| name.to_str().ok());
    fake.users.lock().expect("lock").push(user.unwrap_or("nobody").to_owned());
    let bytes = to_bytes(request.into_body(), 1 << 20).await.expect("body");
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    fake.asked.lock().expect("lock").push((call.clone(), body));
    let mut answers = fake.answers.lock().expect("lock");
    let (status, headers, body) = match answers.get_mut(&call) {
        Some(left) if left.len() > 1 => left.remove(0),
        Some(left) => left[0].clone(),
        None => {
            (404, vec![], json!({"error": {"code": "ResourceNotFound", "message": format!("no answer for {call}")}}))
        }
    };
    let builder = headers
        .into_iter()
        .fold(Response::builder().status(status), |builder, (name, value)| builder.header(name, value));
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    builder.body(body).expect("response")
}

/// Runs the binary, away from the contexts and variables of whoever runs the tests.
async fn flotta(server: &str, line: &str) -> Output {
    flotta_in(server, line, &[]).await
}

async fn flotta_in(server: &str, line: &str, env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flotta"));
    command.args(line.split_whitespace()).env_clear().env("FLOTTA_CONFIG", "/nonexistent/config.yaml");
    if !server.is_empty() {
        command.env("FLOTTA_SERVER", server).env("FLOTTA_FLEET", "shop");
    }
    command.envs(env.iter().copied());
    tokio::task::spawn_blocking(move || command.output().expect("run")).await.expect("join")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("code")
}

fn run_in(state: &str) -> Value {
    json!({"name": "up", "properties": {
        "managedClusterUpdate": {"upgrade": {"type": "Full", "kubernetesVersion": "1.34.2"}},
        "status": {"status": {"state": state}, "stages": [{"name": "s", "status": {"state": state}, "groups": [
            {"name": "g", "status": {"state": state}, "members": [{"name": "m", "status": {"state": state}}]}]}]}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_running_operation_is_followed_to_its_end() {
    let fake = Fake::default();
    let operation = "https://elsewhere.example/operations/7".to_owned();
    fake.answer_with(
        "PUT /shop",
        201,
        vec![("azure-asyncoperation", operation)],
        json!({"name": "shop", "properties": {"provisioningState": "Creating"}}),
    );
    fake.answer("GET /operations/7", 200, json!({"status": "InProgress"}));
    fake.answer("GET /operations/7", 200, json!({"status": "Succeeded"}));
    fake.answer(
        "GET /shop",
        200,
        json!({"name": "shop", "location": "local", "properties": {"provisioningState": "Succeeded"}}),
    );
    let output = flotta(&fake.listen().await, "fleet create shop --tags a=b,c=d").await;
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert!(out(&output).contains("Succeeded"), "{}", out(&output));
    assert_eq!(fake.asked(), ["PUT /shop", "GET /operations/7", "GET /operations/7", "GET /shop"]);
    assert_eq!(fake.body("PUT /shop"), json!({"location": "local", "properties": {}, "tags": {"a": "b", "c": "d"}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn speeds_and_pauses_that_no_clock_can_have_are_refused() {
    for line in [
        "serve --aks-endpoint http://127.0.0.1:1 --aks-poll-seconds NaN",
        "serve --simulate no.yaml --speed inf",
        "simulator --fleet no.yaml --speed inf",
        "simulator --fleet no.yaml --speed NaN",
    ] {
        let output = flotta("http://127.0.0.1:1", line).await;
        assert_eq!(code(&output), 2, "{line}: {}", err(&output));
        assert!(err(&output).contains("use a number from"), "{line}: {}", err(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wait_does_not_follow() {
    let fake = Fake::default();
    fake.answer_with("DELETE /shop", 202, vec![("location", "/results/7".into())], json!({}));
    let output = flotta(&fake.listen().await, "fleet delete shop --no-wait").await;
    assert_eq!((code(&output), out(&output).as_str()), (0, "fleet 'shop' is being deleted\n"));
    assert_eq!(fake.asked(), ["DELETE /shop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_fails_is_a_failure_with_its_cause() {
    let fake = Fake::default();
    fake.answer_with(
        "DELETE /shop",
        202,
        vec![("location", "/results/7".into()), ("azure-asyncoperation", "/operations/7".into())],
        json!({}),
    );
    fake.answer(
        "GET /operations/7",
        200,
        json!({"status": "Failed", "error": {"code": "Busy", "message": "a run is going on"}}),
    );
    let output = flotta(&fake.listen().await, "fleet delete shop").await;
    assert_eq!(code(&output), 1);
    assert_eq!(err(&output), "error: cannot delete fleet 'shop'\n  (Busy) a run is going on\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_code_message_and_field_and_exits_with_3() {
    let fake = Fake::default();
    let error = json!({"error": {"code": "InvalidParameter", "message": "'Eu' is not a valid name", "target": "properties.group"}});
    fake.answer("PATCH /shop/members/a", 400, error);
    let server = fake.listen().await;
    let output = flotta(&server, "member update a --group eu --no-wait").await;
    assert_eq!(code(&output), 3);
    assert_eq!(
        err(&output),
        "error: cannot update member 'a'\n  (InvalidParameter) 'Eu' is not a valid name\n  field: properties.group\n"
    );
    assert_eq!(fake.body("PATCH /shop/members/a"), json!({"properties": {"group": "eu"}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_exits_with_4_and_says_how_to_start_a_server() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    let output = flotta(&format!("http://{free}"), "member list").await;
    assert_eq!(code(&output), 4);
    assert!(err(&output).contains("cannot be reached") && err(&output).contains("flotta serve"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_towards_a_server_without_it_is_told_as_that() {
    let server = Fake::default().listen().await;
    let output = flotta(&server.replace("http://", "https://"), "member list").await;
    assert_eq!(code(&output), 4);
    assert!(err(&output).contains(&format!("hint: use {server}\n")), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_on_what_is_not_there_has_its_own_way_out() {
    let fake = Fake::default();
    let error = json!({"error": {"code": "PreconditionFailed", "message": "the resource does not exist"}});
    fake.answer("PUT /shop if *", 412, error.clone());
    fake.answer("PUT /there if *", 412, error);
    fake.answer("GET /there", 200, json!({"name": "there"}));
    let server = fake.listen().await;
    let output = flotta(&server, "fleet create shop --if-match *").await;
    assert_eq!(code(&output), 3);
    assert!(err(&output).contains("without --if-match it is created"), "{}", err(&output));
    let output = flotta(&server, "fleet create there --if-match *").await;
    assert!(err(&output).contains("use the eTag it has now"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn mistyped_fields_reach_no_server() {
    let fake = Fake::default();
    let server = fake.listen().await;
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("strategy.yaml");
    std::fs::write(&file, "stages: [{name: a, maxConcurency: '1'}]").expect("write");
    let resource = folder.path().join("resource.yaml");
    let text = "kind: UpdateStrategy\nname: a\nproperties: {strategy: {stages: [{name: a, maxConcurency: '1'}]}}";
    std::fs::write(&resource, text).expect("write");
    for line in [
        format!("strategy create a -f {}", file.display()),
        format!("run create a --type NodeImageOnly --stages {}", file.display()),
        format!("apply -f {}", resource.display()),
    ] {
        let output = flotta(&server, &line).await;
        assert_eq!(code(&output), 2, "{line}: {}", err(&output));
        assert!(err(&output).contains("did you mean 'maxConcurrency'?"), "{line}: {}", err(&output));
    }
    assert_eq!(fake.asked(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn listening_where_others_can_call_is_a_wrong_command_line() {
    let folder = tempfile::tempdir().expect("folder");
    let output = flotta("", &format!("serve --listen 0.0.0.0:22999 --data {}", folder.path().display())).await;
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("such as 127.0.0.1:22999"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_command_line_exits_with_2() {
    for line in
        ["member create A --cluster-id x", "run create up", "run skip up", "member update a", "fleet create a --tags b"]
    {
        let output = flotta("http://127.0.0.1:1", line).await;
        assert_eq!(code(&output), 2, "{line}: {}", err(&output));
    }
    let output = flotta("", "member list").await;
    assert_eq!(code(&output), 2, "no fleet is named");
    assert!(err(&output).contains("FLOTTA_FLEET"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_followed_page_by_page() {
    let fake = Fake::default();
    let server = fake.listen().await;
    let member = |name: &str| json!({"name": name, "properties": {"group": "eu"}});
    fake.answer(
        "GET /shop/members",
        200,
        json!({"value": [member("a"), member("b")], "nextLink": format!("{server}/next?$skipToken=2")}),
    );
    fake.answer("GET /next?$skipToken=2", 200, json!({"value": [member("c")], "nextLink": null}));
    let output = flotta(&server, "member list -o json").await;
    let listed: Value = serde_json::from_slice(&output.stdout).expect("json");
    let names: Vec<&str> =
        listed.as_array().expect("list").iter().filter_map(|member| member["name"].as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_created_from_a_strategy_and_started() {
    let fake = Fake::default();
    fake.answer("PUT /shop/updateRuns/up", 201, run_in("NotStarted"));
    fake.answer("POST /shop/updateRuns/up/start", 200, run_in("NotStarted"));
    fake.answer("GET /shop/updateRuns/up", 200, run_in("Running"));
    let line = "run create up --type full --kubernetes-version v1.34.2 --node-image-selection Consistent --strategy careful --start";
    let output = flotta(&fake.listen().await, line).await;
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(fake.asked(), ["PUT /shop/updateRuns/up", "POST /shop/updateRuns/up/start", "GET /shop/updateRuns/up"]);
    assert!(out(&output).contains("Running"), "{}", out(&output));
    let expect = json!({"properties": {
        "updateStrategyId": format!("{FLEETS}/shop/updateStrategies/careful"),
        "managedClusterUpdate": {
            "upgrade": {"type": "Full", "kubernetesVersion": "1.34.2"},
            "nodeImageSelection": {"type": "Consistent"}}}});
    assert_eq!(fake.body("PUT /shop/updateRuns/up"), expect);
}

fn report(errors: u32, warnings: u32) -> Value {
    let severity = if errors > 0 { "Error" } else { "Warning" };
    let findings = match errors + warnings {
        0 => json!([]),
        _ => json!([{"severity": severity, "code": "ClusterStopped", "message": "start it"}]),
    };
    json!({"value": [{"member": "m", "stage": "s", "group": "g", "cluster": "/c", "outcome": "Waits", "steps": [],
        "findings": findings}], "kubernetesVersion": "1.34.2", "errors": errors, "warnings": warnings, "notes": 0,
        "uncoveredMembers": 0})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_shows_what_would_happen_and_its_exit_code_is_for_pipelines() {
    for (errors, warnings, expect, label) in
        [(0, 0, 0, ""), (0, 2, 5, "warning: run 'up'"), (3, 2, 1, "error: run 'up'")]
    {
        let fake = Fake::default();
        fake.answer("POST /shop/updateRuns/up/check", 200, report(errors, warnings));
        let server = fake.listen().await;
        let output = flotta(&server, "run check up").await;
        assert_eq!(code(&output), expect, "{}", err(&output));
        assert!(
            out(&output).contains("would wait: 1") && out(&output).contains("Kubernetes 1.34.2"),
            "{}",
            out(&output)
        );
        assert!(err(&output).starts_with(label), "{}", err(&output));
        let json = flotta(&server, "run check up -o json").await;
        assert_eq!(code(&json), expect);
        assert_eq!(serde_json::from_slice::<Value>(&json.stdout).expect("json"), report(errors, warnings));
    }
    let unknown = flotta(&Fake::default().listen().await, "run check up").await;
    assert_eq!(code(&unknown), 3, "{}", err(&unknown));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_creates_nothing_and_tells_where_a_server_did() {
    const CALL: &str = "PUT /shop/updateRuns/up&dryRun=true";
    let fake = Fake::default();
    fake.answer(CALL, 200, report(0, 1));
    let line = "run create up --type Full --kubernetes-version 1.34.2 --strategy careful --dry-run";
    let output = flotta(&fake.listen().await, line).await;
    assert_eq!((code(&output), fake.asked()), (5, vec![CALL.to_owned()]), "{}", err(&output));
    assert_eq!(fake.body(CALL)["properties"]["managedClusterUpdate"]["upgrade"]["type"], "Full");
    let fake = Fake::default();
    fake.answer(CALL, 201, run_in("NotStarted"));
    let output = flotta(&fake.listen().await, line).await;
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("it created run 'up'") && err(&output).contains("flotta run delete up"));
    let output = flotta("http://127.0.0.1:1", &format!("{line} --start")).await;
    assert_eq!(code(&output), 2, "{}", err(&output));
}

fn gate(id: &str, group: Option<&str>) -> Value {
    let place = json!({"name": "up", "stage": "prod", "group": group, "timing": "Before"});
    json!({"name": id, "properties": {"displayName": "go", "gateType": "Approval", "state": "Pending",
        "target": {"updateRunProperties": place}}})
}

const ONE: &str = "62b62d86-0824-4358-a380-ebba5ed54a71";
const TWO: &str = "62c00000-0824-4358-a380-ebba5ed54a71";
const GATES: &str = "GET /shop/gates&explain=true";
const PENDING: &str = "GET /shop/gates&explain=true&%24filter=state+eq+%27Pending%27";

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_named_by_its_id_the_first_letters_of_it_or_where_it_stands() {
    let fake = Fake::default();
    let listed = json!({"value": [gate(ONE, None), gate(TWO, Some("eu"))]});
    fake.answer(GATES, 200, listed.clone());
    fake.answer(PENDING, 200, listed);
    for id in [ONE, TWO] {
        let mut open = gate(id, None);
        open["properties"]["state"] = "Completed".into();
        fake.answer(&format!("PATCH /shop/gates/{id}"), 200, open);
    }
    let server = fake.listen().await;
    for (named, id) in [(ONE, ONE), ("62B6", ONE), ("62c", TWO), ("--run up --group eu", TWO)] {
        let before = fake.asked().len();
        let output = flotta(&server, &format!("gate approve {named}")).await;
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{named}");
        assert_eq!(
            out(&output),
            "approval 'go' before stage 'prod' is open: run 'up' goes on unless something else holds it\n"
        );
        let asked = fake.asked().split_off(before);
        assert_eq!(asked.last(), Some(&format!("PATCH /shop/gates/{id}")), "{named}");
        assert_eq!(fake.body(&format!("PATCH /shop/gates/{id}")), json!({"properties": {"state": "Completed"}}));
    }
    for (named, says) in [
        ("62", "2 gates have an id that begins with '62'"),
        ("--run up --stage prod", "2 gates of run 'up' at stage 'prod' are waited for"),
        ("ff", "no gate has an id that begins with 'ff'"),
        ("--run other", "no gate of run 'other' is waited for"),
    ] {
        let output = flotta(&server, &format!("gate approve {named}")).await;
        assert_eq!(code(&output), 2, "{named}");
        assert!(err(&output).contains(says), "{named}: {}", err(&output));
        assert_eq!(
            err(&output).contains(&format!("{TWO} approval 'go' before group 'eu' of run 'up'")),
            says.contains('2')
        );
    }
    for wrong in ["gate approve", "gate approve 62 --run up", "gate approve --stage prod", "gate list --state Open"] {
        assert_eq!(code(&flotta(&server, wrong).await), 2, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_carries_its_words_and_who_says_them() {
    let fake = Fake::default();
    let call = format!("PATCH /shop/gates/{ONE} if \"7\"");
    let mut rejected = gate(ONE, Some("eu"));
    rejected["properties"]["rejection"] = json!({"by": "ann", "comment": "no"});
    fake.answer(&call, 200, rejected);
    let server = fake.listen().await;
    let output = flotta(&server, &format!("gate reject {ONE} --comment no --as ann --if-match \"7\"")).await;
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert!(out(&output).starts_with("ann rejected approval 'go' before group 'eu': run 'up' comes to a halt"));
    assert_eq!(fake.body(&call), json!({"properties": {"decision": "Rejected", "comment": "no"}}));
    assert_eq!(fake.users(), ["ann"]);
    for (env, expect) in [
        (vec![("USER", "zoe")], "zoe"),
        (vec![("LOGNAME", "kim")], "kim"),
        (vec![("USER", "zoe"), ("FLOTTA_USER", "ann@example.com")], "ann@example.com"),
        (vec![("USER", "Zoë")], "nobody"), // a name that no header carries is not sent
        (vec![], "nobody"),
    ] {
        flotta_in(&server, "gate list", &env).await;
        assert_eq!(fake.users(), [expect], "{env:?}");
    }
    let output = flotta_in(&server, "gate list", &[("FLOTTA_USER", "Zoë")]).await;
    assert_eq!(code(&output), 2, "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_are_listed_by_state_type_and_run() {
    let fake = Fake::default();
    let call = "GET /shop/gates&explain=true&%24filter=state+eq+%27Pending%27+and+gateType+eq+%27Approval%27";
    let mut other = gate(TWO, None);
    other["properties"]["target"]["updateRunProperties"]["name"] = "other".into();
    fake.answer(call, 200, json!({"value": [gate(ONE, Some("eu")), other]}));
    let server = fake.listen().await;
    let output = flotta(&server, "gate list --state pending --type approval --run up").await;
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let shown = out(&output);
    let words: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split("   ").map(str::trim).filter(|w| !w.is_empty()).collect()).collect();
    assert_eq!(words[0], ["ID", "GATE", "RUN", "WHERE", "STATE", "SINCE", "DUE", "APPROVALS"]);
    assert_eq!(words[1..], [["62b62d86", "approval 'go'", "up", "before group eu", "Pending", "-", "-", "0 of 1"]]);
    fake.answer(GATES, 200, json!({"value": []}));
    assert_eq!(out(&flotta(&server, "gate list").await), "no gates found\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_tells_what_holds_and_how_to_open_a_gate() {
    let fake = Fake::default();
    let ask = "GET /shop/updateRuns/up/waitingOn";
    let held = json!({"why": {"Gate": {"of": "prod", "gate": "approval 'go' before stage 'prod'"}}, "members": 3});
    let now = || vec![("x-flotta-time", "2026-01-01T00:00:00Z".to_owned())];
    fake.answer_with(ask, 200, now(), json!({"state": "Pending", "value": [held]}));
    let window = json!({"why": "Window", "until": "2026-01-02T02:00:00Z", "members": 1});
    fake.answer_with(
        &format!("{ask}&member=m"),
        200,
        now(),
        json!({"state": "Pending", "value": [window], "earliest": "2026-01-02T02:00:00Z"}),
    );
    let stopped = json!([{"why": "Stopped", "members": 1}, {"why": {"Gate": {"of": "eu", "gate": "approval 'go' before group 'eu'"}}}]);
    fake.answer(&format!("{ask}&member=x"), 200, json!({"state": "NotStarted", "value": stopped}));
    let missing = json!({"error": {"code": "NotFound", "message": "run 'up' has no member 'y'", "target": "member"}});
    fake.answer(&format!("{ask}&member=y"), 404, missing);
    fake.answer(&format!("{ask}&stage=done"), 200, json!({"state": "Completed", "value": []}));
    fake.answer(&format!("{ask}&group=busy"), 200, json!({"state": "Running", "value": []}));
    let mut expired = gate(TWO, Some("eu"));
    expired["properties"]["expiredAt"] = "2026-01-01T00:00:00Z".into();
    fake.answer(PENDING, 200, json!({"value": [gate(ONE, None), expired]}));
    let server = fake.listen().await;
    for (line, expect) in [
        (
            "run why up x",
            "member 'x' is NotStarted, waiting\n  - because the run was stopped\n      to go on: flotta run start up\n  - for approval 'go' before group 'eu'\n      to ask for it anew: flotta run start up\nno time can be told: it depends on people, or on other members\n",
        ),
        (
            "run why up",
            "run 'up' is Pending, waiting\n  - 3 members for approval 'go' before stage 'prod'\n      to open it: flotta gate approve 62b62d86\n",
        ),
        (
            "run why up m",
            "member 'm' is Pending, waiting\n  - for a maintenance window to open, in 1d 02h at the earliest (Fri 2026-01-02 02:00 UTC)\nit can move in 1d 02h at the earliest (Fri 2026-01-02 02:00 UTC)\n",
        ),
        ("run why up --stage done", "stage 'done' is Completed: it is done\n"),
        ("run why up --group busy", "group 'busy' is Running: it moves\n"),
    ] {
        let output = flotta(&server, line).await;
        assert_eq!((code(&output), err(&output).as_str(), out(&output).as_str()), (0, "", expect), "{line}");
    }
    assert_eq!(code(&flotta(&server, "run why up m --stage done").await), 2);
    assert_eq!(code(&flotta(&server, "run why other").await), 3);
    let missing = flotta(&server, "run why up y").await;
    assert!(err(&missing).ends_with("hint: `flotta run show RUN -o yaml` shows what is in it\n"), "{}", err(&missing));
}

#[tokio::test(flavor = "multi_thread")]
async fn skip_takes_several_targets_and_if_match_is_sent() {
    let fake = Fake::default();
    let call = "POST /shop/updateRuns/up/skip if \"7\"";
    fake.answer(call, 200, run_in("Running"));
    let output =
        flotta(&fake.listen().await, "run skip up --member a --member b --after-stage-wait s -o json --if-match \"7\"")
            .await;
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let target = |kind: &str, name: &str| json!({"type": kind, "name": name});
    assert_eq!(
        fake.body(call),
        json!({"targets": [target("Member", "a"), target("Member", "b"), target("AfterStageWait", "s")]})
    );
}

/// A run that tries one member again.
fn retry_run(name: &str) -> Value {
    let mut run = run_in("NotStarted");
    run["name"] = name.into();
    run["properties"]["retryOf"] = format!("{FLEETS}/shop/updateRuns/up").into();
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn e02_a_retry_takes_the_first_free_name_and_tells_what_it_did() {
    let fake = Fake::default();
    let taken = json!({"error": {"code": "Conflict", "target": "name", "message": "there is an update run already"}});
    fake.answer("POST /shop/updateRuns/up/retry", 409, taken);
    fake.answer("POST /shop/updateRuns/up/retry", 201, retry_run("up-retry-2"));
    fake.answer("POST /shop/updateRuns/up-retry-2/start", 200, retry_run("up-retry-2"));
    fake.answer("GET /shop/updateRuns/up-retry-2", 200, run_in("Running"));
    let server = fake.listen().await;
    let output = flotta(&server, "run retry up --start").await;
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let (first, table) = out(&output).split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("lines");
    assert_eq!(first, "run 'up-retry-2' is to try 1 member of run 'up' again, to 1.34.2");
    assert!(table.contains("Running"), "{table}");
    let names: Vec<Value> = fake.asked.lock().expect("lock").iter().take(2).map(|(_, body)| body.clone()).collect();
    assert_eq!(names, [json!({"name": "up-retry"}), json!({"name": "up-retry-2"})]);
    assert_eq!(fake.asked()[2..], ["POST /shop/updateRuns/up-retry-2/start", "GET /shop/updateRuns/up-retry-2"]);

    let output = flotta(&server, "run retry up").await;
    assert!(out(&output).ends_with("start it with `flotta run start up-retry-2`\n"), "{}", out(&output));
    let output = flotta(&server, "run retry up -o json").await;
    assert_eq!(serde_json::from_str::<Value>(&out(&output)).expect("json"), retry_run("up-retry-2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn e02_a_retry_under_a_name_that_is_taken_or_of_a_run_under_way_is_refused() {
    let fake = Fake::default();
    let refused = |code: &str, target: &str| json!({"error": {"code": code, "target": target, "message": "no"}});
    fake.answer("POST /shop/updateRuns/up/retry", 409, refused("Conflict", "name"));
    let server = fake.listen().await;
    let output = flotta(&server, "run retry up --name other").await;
    assert_eq!((code(&output), fake.asked().len()), (3, 1), "a name that was asked for is not replaced");
    assert!(err(&output).contains("cannot retry run 'up'") && err(&output).contains("--name"), "{}", err(&output));
    assert_eq!(code(&flotta(&server, "run retry up").await), 3);
    assert_eq!(fake.asked().len(), 1 + 99, "there is an end to trying");

    let fake = Fake::default();
    fake.answer("POST /shop/updateRuns/up/retry", 409, refused("OperationNotAllowed", ""));
    let output = flotta(&fake.listen().await, "run retry up").await;
    assert_eq!((code(&output), fake.asked().len()), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_logs_changes_and_its_exit_code_tells_how_the_run_ended() {
    for (end, expect) in [("Completed", 0), ("Skipped", 0), ("Failed", 1), ("Stopped", 1)] {
        let fake = Fake::default();
        for state in ["NotStarted", "Running", "Running", end] {
            fake.answer("GET /shop/updateRuns/up", 200, run_in(state));
        }
        let output = flotta(&fake.listen().await, "run watch up --interval 0.1").await;
        assert_eq!(code(&output), expect, "{end}: {}", err(&output));
        let log = out(&output);
        assert_eq!(log.lines().filter(|line| line.ends_with("member m (s/g): Running")).count(), 1, "{log}");
        assert!(log.contains(&format!("run up {end}")), "{log}");
        let reasons = fake.asked().iter().filter(|call| call.contains("waitingOn")).count();
        assert_eq!(reasons, 1, "a server that does not know reasons is asked once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_bears_a_server_that_is_away_for_a_moment() {
    let fake = Fake::default();
    fake.answer("GET /shop/updateRuns/up", 200, run_in("Running"));
    fake.answer(
        "GET /shop/updateRuns/up",
        503,
        json!({"error": {"code": "ServiceUnavailable", "message": "restarting"}}),
    );
    fake.answer("GET /shop/updateRuns/up", 200, run_in("Completed"));
    let output = flotta(&fake.listen().await, "run watch up --interval 0.1").await;
    assert_eq!(code(&output), 0, "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_of_an_unknown_run_is_refused_at_once() {
    let output = flotta(&Fake::default().listen().await, "run watch up").await;
    assert_eq!(code(&output), 3);
    assert!(err(&output).contains("(ResourceNotFound)"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_creates_what_is_missing_and_leaves_what_is_equal() {
    let fake = Fake::default();
    let strategy =
        |wait: u32| json!({"properties": {"strategy": {"stages": [{"name": "a", "afterStageWaitInSeconds": wait}]}}});
    fake.answer("PUT /shop", 201, json!({"name": "shop", "location": "local"}));
    fake.answer("GET /shop/updateStrategies/equal", 200, strategy(1));
    fake.answer("GET /shop/updateStrategies/other", 200, strategy(2));
    fake.answer("PUT /shop/updateStrategies/other", 200, strategy(1));
    fake.answer("PUT /shop/updateStrategies/other", 409, json!({"error": {"code": "Busy", "message": "later"}}));
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("all.yaml");
    let stages = "properties: {strategy: {stages: [{name: a, afterStageWaitInSeconds: 1}]}}";
    let text = format!(
        "kind: UpdateStrategy\nname: equal\n{stages}\n---\nkind: UpdateStrategy\nname: other\n{stages}\n---\nkind: Fleet\nname: shop\nlocation: local\n"
    );
    std::fs::write(&file, text).expect("write");
    let (server, line) = (fake.listen().await, format!("apply -f {}", file.display()));
    let output = flotta_in(&server, &line, &[("FLOTTA_FLEET", "another")]).await;
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(out(&output), "fleet 'shop' created\nstrategy 'equal' unchanged\nstrategy 'other' changed\n");
    let asked = fake.asked();
    assert_eq!(asked.iter().filter(|call| call.starts_with("PUT")).count(), 2, "{asked:?}");
    let output = flotta(&server, &line).await;
    assert!(err(&output).contains("cannot change strategy 'other'"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_are_kept_and_flags_and_environment_come_first() {
    let folder = tempfile::tempdir().expect("folder");
    let config = folder.path().join("config.yaml").display().to_string();
    let shown = async |line: &str, env: &[(&str, &str)]| {
        let env: Vec<(&str, &str)> = [("FLOTTA_CONFIG", config.as_str())].iter().chain(env).copied().collect();
        let output = flotta_in("", line, &env).await;
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{line}");
        out(&output)
    };
    shown("context set a --server http://127.0.0.1:1 --fleet fa -g ga", &[]).await;
    shown("context set b --server http://127.0.0.1:2 --fleet fb", &[]).await;
    let settings = async |line: &str, env: &[(&str, &str)]| -> (String, String, String) {
        let text = shown(&format!("context show -o json {line}"), env).await;
        let value: Value = serde_json::from_str(&text).expect("json");
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        (text("context"), text("fleet"), text("resourceGroup"))
    };
    let expect = |context: &str, fleet: &str, group: &str| (context.to_owned(), fleet.to_owned(), group.to_owned());
    assert_eq!(settings("", &[]).await, expect("a", "fa", "ga"));
    assert_eq!(settings("", &[("FLOTTA_FLEET", "env")]).await, expect("a", "env", "ga"));
    assert_eq!(settings("--fleet flag", &[("FLOTTA_FLEET", "env")]).await, expect("a", "flag", "ga"));
    assert_eq!(settings("--context b", &[]).await, expect("b", "fb", "flotta"));
    shown("context use b", &[]).await;
    assert_eq!(settings("", &[]).await, expect("b", "fb", "flotta"));
    assert!(shown("context list", &[]).await.contains("http://127.0.0.1:2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn help_is_as_it_was_written() {
    let mut all = String::new();
    for line in [
        "",
        "fleet",
        "member create",
        "strategy",
        "run",
        "run create",
        "run check",
        "run skip",
        "run start",
        "run retry",
        "run watch",
        "run why",
        "gate",
        "gate list",
        "gate approve",
        "apply",
        "context",
        "demo",
    ] {
        let output = flotta_in("", &format!("{line} --help"), &[("COLUMNS", "100")]).await;
        assert_eq!(code(&output), 0, "{line}");
        all.push_str(&format!("$ flotta {line} --help\n{}\n", out(&output)));
    }
    insta::assert_snapshot!(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_version_and_completion_for_shells() {
    assert_eq!(out(&flotta("", "--version").await), format!("flotta {}\n", env!("CARGO_PKG_VERSION")));
    assert!(out(&flotta("", "completion bash").await).contains("_flotta"));
}
