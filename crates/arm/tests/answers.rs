//! Answers: what documents and runs look like on the wire, in our own fixtures.

use std::sync::Arc;

use flotta_arm::{
    ApiVersion,
    doc::{FleetDoc, MemberDoc, Principal, PrincipalKind, ProvisioningState, RunDoc, StrategyDoc, SystemData},
    fleet, member, run,
    status::{self, Detail},
    strategy,
};
use flotta_engine::{
    Input, Plan, Run,
    images::PoolImages,
    run::{Sighting, SkipTarget, Ticket, Windows, Work},
};
use flotta_model::{Cluster, Fault, Fleet, Hold, Member, Provisioning};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

const FLEET: &str = "/subscriptions/S1/resourceGroups/Rg/providers/Microsoft.ContainerService/fleets/f";

fn at(second: i64) -> Timestamp {
    let start: Timestamp = "2026-11-04T03:04:30.214691500Z".parse().expect("time");
    start + SignedDuration::from_secs(second)
}

fn cluster(name: &str) -> String {
    format!("/subscriptions/S1/resourcegroups/Rg/providers/Microsoft.ContainerService/managedClusters/{name}")
}

fn fleet_member(name: &str, group: &str) -> Member {
    let group = Some(group.parse().expect(group));
    let own = [("team".to_string(), "web".to_string())].into();
    let cluster = cluster(name).parse().expect("cluster");
    member::with_service_labels(name.parse().expect(name), cluster, group, own, Some("westus"))
}

fn system_data() -> SystemData {
    let by = |name: &str, kind| Principal { name: name.into(), kind };
    SystemData::new(by("ada", PrincipalKind::User), at(0)).touched(by("bot", PrincipalKind::Application), at(1))
}

fn system_data_shown() -> Value {
    json!({
        "createdBy": "ada", "createdByType": "User", "createdAt": "2026-11-04T03:04:30.2146915Z",
        "lastModifiedBy": "bot", "lastModifiedByType": "Application", "lastModifiedAt": "2026-11-04T03:04:31.2146915Z",
    })
}

fn version(text: &str) -> ApiVersion {
    ApiVersion::parse(text).expect(text)
}

/// Checks that a document survives its storage.
fn kept<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(doc: T) -> T {
    let text = serde_json::to_string(&doc).expect("json");
    let read: T = serde_json::from_str(&text).expect("document");
    assert_eq!(read, doc);
    read
}

#[test]
fn api9_fleets_are_shown_with_what_is_set() {
    let body = json!({"location": "East US", "tags": {"a": "b"}, "identity": {"type": "None", "tenantId": "x"},
        "properties": {"hubProfile": {"dnsPrefix": "p", "fqdn": "read-only"}}});
    let request = fleet::parse(&body).expect("fleet");
    let doc = kept(FleetDoc {
        fleet: Fleet { name: "f".parse().expect("name"), location: request.location, tags: request.tags },
        subscription: "S1".into(),
        resource_group: "Rg".into(),
        system_data: system_data(),
        provisioning_state: ProvisioningState::Creating,
        last_operation_id: Some(Uuid::nil()),
        last_operation_error: Some(Fault::new("Broken", "it broke")),
        hub_profile: request.hub_profile,
        identity: request.identity,
    });
    let expect = json!({
        "id": FLEET, "name": "f", "type": "Microsoft.ContainerService/fleets", "eTag": "\"tag\"",
        "location": "East US", "tags": {"a": "b"}, "identity": {"type": "None"}, "systemData": system_data_shown(),
        "properties": {
            "provisioningState": "Creating",
            "hubProfile": {"dnsPrefix": "p"},
            "status": {
                "lastOperationId": "00000000-0000-0000-0000-000000000000",
                "lastOperationError": {"code": "Broken", "message": "it broke"},
            },
        },
    });
    assert_eq!(doc.render(FLEET, "tag", ApiVersion::NEWEST), expect);
    let old = doc.render(FLEET, "tag", version("2023-10-15"));
    assert_eq!(old["properties"], json!({"provisioningState": "Creating"}), "no hub and no status then");
}

#[test]
fn api9_members_are_shown_with_the_callers_casing_and_all_labels() {
    let doc = kept(MemberDoc {
        member: fleet_member("m", "g"),
        system_data: system_data(),
        provisioning_state: ProvisioningState::Joining,
        last_operation_id: None,
        last_operation_error: None,
    });
    let id = format!("{FLEET}/members/m");
    let expect = json!({
        "id": id, "name": "m", "type": "Microsoft.ContainerService/fleets/members", "eTag": "\"tag\"",
        "systemData": system_data_shown(),
        "properties": {
            "clusterResourceId": cluster("m"), "group": "g", "provisioningState": "Joining",
            "labels": {
                "fleet.azure.com/cluster-name": "m", "fleet.azure.com/location": "westus",
                "fleet.azure.com/member-name": "m", "fleet.azure.com/resource-group": "Rg",
                "fleet.azure.com/subscription-id": "S1", "team": "web",
            },
        },
    });
    assert_eq!(doc.render(&id, "\"tag\"", version("2026-06-01")), expect, "an etag in quotes is not quoted again");
    let old = doc.render(&id, "tag", version("2025-03-01"));
    assert_eq!(old.pointer("/properties/labels"), None);
}

/// A stage with gates and a wait, then one without.
fn request() -> Value {
    json!({"properties": {
        "strategy": {"stages": [
            {"name": "first", "maxConcurrency": "50%", "afterStageWaitInSeconds": 60,
             "groups": [{"name": "a", "maxConcurrency": "2"}, {"name": "empty"}]},
            {"name": "second", "maxAllowedFailures": "1",
             "beforeGates": [{"type": "Approval", "displayName": "sign off"}], "groups": [
                {"name": "b", "afterGates": [{"type": "Approval"}]}]},
        ]},
        "managedClusterUpdate": {"upgrade": {"type": "Full", "kubernetesVersion": "1.33.2"}},
    }})
}

fn update_run() -> Run {
    let request = run::parse(&request()).expect("run");
    let members = [fleet_member("a1", "a"), fleet_member("a2", "a"), fleet_member("b1", "b"), fleet_member("x", "x")];
    let plan = Plan::resolve(request.goal, request.strategy.as_ref(), &members).expect("plan");
    Run::new(Arc::new(plan))
}

fn run_doc() -> RunDoc {
    let request = run::parse(&request()).expect("run");
    kept(RunDoc {
        run: Uuid::nil(),
        name: "r".parse().expect("name"),
        strategy: request.strategy,
        strategy_id: None,
        goal: request.goal,
        system_data: system_data(),
        profile_id: Some(format!("{FLEET}/autoUpgradeProfiles/p")),
        retry: None,
        start_after: None,
        only: None,
    })
}

/// A step; members have no maintenance windows.
fn step(run: &mut Run, input: Input, second: i64) {
    run.step(&input, at(second)).expect("accepted");
    while run.reading() {
        let mut windows = Windows::default();
        run.windows_to_read().into_iter().for_each(|member| windows.add(member, None));
        run.step(&Input::WindowsSeen(windows), at(second)).expect("accepted");
    }
}

fn ticket(run: &Run, member: u32) -> Ticket {
    run.work()
        .into_iter()
        .find_map(|work| match work {
            Work::Look(ticket) | Work::Send(ticket) | Work::Follow(ticket) if ticket.member == member => Some(ticket),
            _ => None,
        })
        .expect("work for the member")
}

#[test]
fn api10_a_run_not_started_shows_its_whole_tree() {
    let id = format!("{FLEET}/updateRuns/r");
    let idle = json!({"state": "NotStarted"});
    let member = |name: &str| json!({"name": name, "clusterResourceId": cluster(name), "status": idle});
    let shown = run_doc().render(&id, "tag", ApiVersion::NEWEST, &update_run(), Detail::Documented);
    let sent = request();
    let expect = json!({
        "id": id, "name": "r", "type": "Microsoft.ContainerService/fleets/updateRuns", "eTag": "\"tag\"",
        "systemData": system_data_shown(),
        "properties": {
            "provisioningState": "Succeeded",
            "autoUpgradeProfileId": format!("{FLEET}/autoUpgradeProfiles/p"),
            "strategy": sent["properties"]["strategy"],
            "managedClusterUpdate": sent["properties"]["managedClusterUpdate"],
            "status": {
                "status": idle, "failureCount": 0, "nodeImageSelection": {},
                "stages": [
                    {
                        "name": "first", "status": idle, "failureCount": 0, "maxConcurrency": 1, "maxAllowedFailures": 0,
                        "afterStageWaitStatus": {"status": idle, "waitDurationInSeconds": 60},
                        "groups": [
                            {"name": "a", "status": idle, "failureCount": 0, "maxConcurrency": 2, "maxAllowedFailures": 0,
                             "members": [member("a1"), member("a2")]},
                            {"name": "empty", "status": idle, "failureCount": 0, "maxConcurrency": 1,
                             "maxAllowedFailures": 0},
                        ],
                    },
                    {
                        "name": "second", "status": idle, "failureCount": 0, "maxConcurrency": 50,
                        "maxAllowedFailures": 1, "beforeGates": [{"displayName": "sign off", "status": idle}],
                        "groups": [{"name": "b", "status": idle, "failureCount": 0, "maxConcurrency": 1,
                            "maxAllowedFailures": 1, "afterGates": [{"status": idle}], "members": [member("b1")]}],
                    },
                ],
            },
        },
    });
    assert_eq!(shown, expect);
    assert_eq!(run_doc().request(), sent, "what a later PUT is merged with");
}

#[test]
fn api10_old_versions_see_the_tree_they_know() {
    let shown = run_doc().render("/r", "tag", version("2023-10-15"), &update_run(), Detail::Documented);
    let idle = json!({"state": "NotStarted"});
    let stage = json!({
        "name": "second", "status": idle,
        "groups": [{"name": "b", "status": idle,
            "members": [{"name": "b1", "clusterResourceId": cluster("b1"), "status": idle}]}],
    });
    assert_eq!(shown["properties"]["status"]["stages"][1], stage);
    assert_eq!(shown["properties"]["strategy"]["stages"][1], json!({"name": "second", "groups": [{"name": "b"}]}));
    assert_eq!(shown["properties"].get("autoUpgradeProfileId"), None);
}

#[test]
fn api10_times_operations_messages_errors_and_failures_are_shown_as_they_come() {
    let mut run = update_run();
    step(&mut run, Input::Start, 1);
    let looking = ticket(&run, 0);
    step(
        &mut run,
        Input::Seen(
            looking,
            Box::new(Sighting { cluster: old_cluster(), offer: None, claimed_by: None, window: None }),
        ),
        2,
    );
    let sending = ticket(&run, 0);
    step(&mut run, Input::Accepted { ticket: sending, operation: "op-1".into(), adopted: false }, 3);
    let tree = status::render(&run, "run", Detail::Documented);
    assert_eq!(tree["status"], json!({"state": "Running", "startTime": "2026-11-04T03:04:31.2146915Z"}));
    let first = json!({
        "name": "a1", "clusterResourceId": cluster("a1"), "operationId": "op-1",
        "status": {"state": "Running", "startTime": "2026-11-04T03:04:31.2146915Z"},
    });
    assert_eq!(tree["stages"][0]["groups"][0]["members"][0], first);
    let following = ticket(&run, 0);
    step(&mut run, Input::StepFailed(following, Fault::new("Broken", "it broke")), 4);
    let tree = status::render(&run, "run", Detail::Documented);
    let member = &tree["stages"][0]["groups"][0]["members"][0]["status"];
    let expect = json!({
        "state": "Failed", "startTime": "2026-11-04T03:04:31.2146915Z", "completedTime": "2026-11-04T03:04:34.2146915Z",
        "error": {"code": "Broken", "message": "it broke"},
    });
    assert_eq!(member, &expect);
    let counts =
        ["/failureCount", "/stages/0/failureCount", "/stages/0/groups/0/failureCount", "/stages/1/failureCount"];
    assert_eq!(counts.map(|path| tree.pointer(path).and_then(Value::as_u64)), [Some(1), Some(1), Some(1), Some(0)]);
    for path in ["/status", "/stages/0/status", "/stages/0/groups/0/status"] {
        let status = tree.pointer(path).expect(path);
        assert_eq!(status["state"], "Failed", "{path}");
        assert_eq!(status["error"]["code"], "MaxAllowedFailuresExceeded", "{path}");
    }
}

fn old_cluster() -> Cluster {
    Cluster {
        location: "westus".into(),
        version: "1.32.0".parse().expect("version"),
        provisioning: Provisioning::Succeeded,
        running: true,
        upgrades: vec!["1.33.2".parse().expect("version")],
        pools: Vec::new(),
        etag: None,
        long_term_support: false,
        automatic_upgrades: Vec::new(),
        provisions_nodes: false,
    }
}

#[test]
fn b3_a_held_member_is_pending_with_its_reason() {
    let mut run = update_run();
    step(&mut run, Input::Start, 1);
    let looking = ticket(&run, 0);
    step(&mut run, Input::Held(looking, Hold::NoDriver), 2);
    let tree = status::render(&run, "run", Detail::Documented);
    let status = &tree["stages"][0]["groups"][0]["members"][0]["status"];
    assert_eq!(status["state"], "Pending");
    assert_eq!(status["error"]["code"], "NoDriverForCluster");
}

#[test]
fn a7_a_skipped_group_shows_its_members_and_gates_skipped() {
    let mut run = update_run();
    step(&mut run, Input::Skip(vec![SkipTarget::Group("b".parse().expect("name"))]), 5);
    let tree = status::render(&run, "run", Detail::Documented);
    let skipped = json!({"state": "Skipped", "completedTime": "2026-11-04T03:04:35.2146915Z"});
    let group = &tree["stages"][1]["groups"][0];
    assert_eq!(group["status"], skipped);
    assert_eq!(group["afterGates"], json!([{"status": skipped}]));
    assert_eq!(group["members"][0]["status"], skipped);
    assert_eq!(group["members"][0]["message"], "skipped by request.");
    assert_eq!(tree["status"], json!({"state": "NotStarted"}));
    assert_eq!(tree["stages"][1]["status"], json!({"state": "NotStarted"}));
}

#[test]
fn a6_a_reached_gate_is_pending_and_so_are_stage_and_run() {
    let mut run = update_run();
    step(&mut run, Input::Skip(vec![SkipTarget::Stage("first".parse().expect("name"))]), 0);
    step(&mut run, Input::Start, 1);
    let tree = status::render(&run, "run", Detail::Documented);
    let states = [
        "/status/state",
        "/stages/1/status/state",
        "/stages/1/beforeGates/0/status/state",
        "/stages/1/groups/0/status/state",
        "/stages/1/groups/0/afterGates/0/status/state",
    ];
    let shown = states.map(|path| tree.pointer(path).and_then(Value::as_str).expect(path));
    assert_eq!(shown, ["Pending", "Pending", "Pending", "NotStarted", "NotStarted"]);
    assert_eq!(tree["stages"][0]["afterStageWaitStatus"]["status"]["state"], "Skipped");
}

#[test]
fn a6_a_gate_of_a_group_blocks_that_group_only() {
    let body = json!({"properties": {
        "strategy": {"stages": [{"name": "s", "groups": [
            {"name": "a", "beforeGates": [{"type": "Approval"}], "afterGates": [{"type": "Approval"}]}, {"name": "b"}]}]},
        "managedClusterUpdate": {"upgrade": {"type": "NodeImageOnly"}},
    }});
    let request = run::parse(&body).expect("run");
    let members = [fleet_member("a1", "a"), fleet_member("b1", "b")];
    let plan = Plan::resolve(request.goal, request.strategy.as_ref(), &members).expect("plan");
    let mut run = Run::new(Arc::new(plan));
    step(&mut run, Input::Start, 1);
    let tree = status::render(&run, "run", Detail::Documented);
    let states = [
        "/stages/0/groups/0/status/state",
        "/stages/0/groups/0/beforeGates/0/status/state",
        "/stages/0/groups/0/afterGates/0/status/state",
        "/stages/0/groups/1/status/state",
    ];
    let shown = states.map(|path| tree.pointer(path).and_then(Value::as_str).expect(path));
    assert_eq!(shown, ["Pending", "Pending", "NotStarted", "Running"]);
}

#[test]
fn choice_uncovered_members_and_reasons_are_shown_when_asked_for() {
    let mut run = update_run();
    let plain = status::render(&run, "run", Detail::Documented);
    assert!(["uncoveredMembers", "waitingOn", "kubernetesVersion"].iter().all(|key| plain.get(key).is_none()));
    let told = status::render(&run, "run", Detail::Explained(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(told["uncoveredMembers"], json!({"count": 1, "first": ["x"]}));
    assert_eq!(told["kubernetesVersion"], "1.33.2");
    assert_eq!(told["waitingOn"], json!([{"why": "NotStarted", "members": 3}]));
    step(&mut run, Input::Start, 1);
    let told = status::render(&run, "run", Detail::Explained(jiff::Timestamp::UNIX_EPOCH));
    let slot = json!([{"why": {"Slot": {"of": "first", "limit": 1}}, "members": 1}]);
    assert_eq!(told["stages"][0]["groups"][0]["waitingOn"], slot);
}

/// A run of node images alone over one member.
fn image_run(selection: Value) -> Run {
    let update = json!({"upgrade": {"type": "NodeImageOnly"}, "nodeImageSelection": selection});
    let goal = run::parse(&json!({"properties": {"managedClusterUpdate": update}})).expect("run").goal;
    Run::new(Arc::new(Plan::resolve(goal, None, &[fleet_member("a", "g")]).expect("plan")))
}

#[test]
fn a4_selected_images_are_shown_once_they_are_chosen_and_for_latest_never() {
    let shown = |run: &Run| status::render(run, "run", Detail::Documented)["nodeImageSelection"].clone();
    let one = json!({"selectedNodeImageVersions": [{"version": "A-1.0.0"}]});
    let custom = image_run(json!({"type": "Custom", "customNodeImageVersions": [{"version": "A-1.0.0"}]}));
    assert_eq!(shown(&custom), one, "before it starts, too");
    let mut latest = image_run(json!({"type": "Latest"}));
    let mut consistent = image_run(json!({"type": "Consistent"}));
    for run in [&mut latest, &mut consistent] {
        step(run, Input::Start, 1);
        assert_eq!(shown(run), json!({}));
    }
    let region = |region: &str, newest: &str, offered: &[&str]| PoolImages {
        region: region.into(),
        newest: newest.parse().expect("image"),
        offered: offered.iter().map(|image| image.parse().expect("image")).collect(),
    };
    let pools = vec![region("x", "A-1.0.0", &[]), region("y", "A-2.0.0", &["A-1.0.0", "A-2.0.0"])];
    step(&mut consistent, Input::ImagesResolved { pools }, 2);
    assert_eq!(shown(&consistent), one);
}

#[test]
fn a9_strategies_are_shown_as_sent() {
    let sent = &request()["properties"]["strategy"];
    let parsed = strategy::parse(&json!({"properties": {"strategy": sent}})).expect("strategy");
    let doc = kept(StrategyDoc { name: "s".parse().expect("name"), strategy: parsed, system_data: system_data() });
    let shown = doc.render(&format!("{FLEET}/updateStrategies/s"), "tag", ApiVersion::NEWEST);
    assert_eq!(shown["properties"], json!({"provisioningState": "Succeeded", "strategy": sent}));
    assert_eq!(
        (&shown["name"], &shown["type"]),
        (&json!("s"), &json!("Microsoft.ContainerService/fleets/updateStrategies"))
    );
}
