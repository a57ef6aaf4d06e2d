//! Request bodies: what is refused and where, and what is taken and given back.

use flotta_arm::{ArmError, fleet, member, parse_body, run, skip, strategy};
use serde_json::{Value, json};

const CLUSTER: &str = "/subscriptions/s1/resourcegroups/Rg/providers/Microsoft.ContainerService/managedClusters/c1";
const STRATEGY_ID: &str =
    "/subscriptions/s1/resourceGroups/Rg/providers/Microsoft.ContainerService/fleets/f/updateStrategies/s";

/// Checks that a body is refused with 400 and `InvalidParameter` at a path, in words that contain a hint.
fn check<T: std::fmt::Debug>(parse: impl Fn(&Value) -> Result<T, ArmError>, body: &Value, path: &str, hint: &str) {
    let error = parse(body).expect_err(&body.to_string());
    assert_eq!((error.status, error.code.as_str()), (400, "InvalidParameter"), "{body}: {error}");
    assert_eq!(error.target.as_deref(), Some(path), "{body}: {error}");
    assert!(error.message.contains(hint), "{body}: {error}");
}

fn stages(stages: Value) -> Value {
    json!({"properties": {"strategy": {"stages": stages}}})
}

fn group(properties: Value) -> Value {
    let mut group = json!({"name": "g"});
    let target = group.as_object_mut().expect("object");
    target.extend(properties.as_object().expect("object").clone());
    stages(json!([{"name": "a", "groups": [{"name": "x"}]}, {"name": "b", "groups": [group]}]))
}

#[test]
fn a2_a5_a6_bad_strategies_are_refused_by_their_path() {
    let in_group = |rest: &str| format!("properties.strategy.stages[1].groups[0].{rest}");
    let long = "x".repeat(51);
    let start = |day: &str, time: &str, offset: &str| {
        group(json!({"beforeGates": [{"type": "ScheduledStart", "scheduledStartConfiguration":
            {"startDay": day, "startTime": time, "utcOffset": offset}}]}))
    };
    let configuration = in_group("beforeGates[0].scheduledStartConfiguration");
    let cases = [
        (json!({}), "properties".to_string(), "required"),
        (json!({"properties": null}), "properties".into(), "required"),
        (json!({"properties": []}), "properties".into(), "expected an object, got an array"),
        (json!({"properties": {}}), "properties.strategy".into(), "required"),
        (json!({"properties": {"strategy": "x"}}), "properties.strategy".into(), "expected an object, got 'x'"),
        (json!({"properties": {"strategy": {}}}), "properties.strategy.stages".into(), "required"),
        (stages(json!({})), "properties.strategy.stages".into(), "expected an array"),
        (stages(json!([])), "properties.strategy.stages".into(), "at least one stage"),
        (stages(json!([7])), "properties.strategy.stages[0]".into(), "got a number (7)"),
        (stages(json!([{}])), "properties.strategy.stages[0].name".into(), "required"),
        (stages(json!([{"name": "A"}])), "properties.strategy.stages[0].name".into(), "lower-case"),
        (stages(json!([{"name": long}])), "properties.strategy.stages[0].name".into(), "1 to 50"),
        (stages(json!([{"name": "a"}])), "properties.strategy.stages[0].groups".into(), "at least one group"),
        (stages(json!([{"name": "a", "groups": []}])), "properties.strategy.stages[0].groups".into(), "memberSelector"),
        (
            stages(json!([{"name": "a", "groups": [{"name": "g"}, {"name": "g"}]}])),
            "properties.strategy.stages[0].groups[1].name".into(),
            "twice",
        ),
        (
            stages(json!([{"name": "a", "groups": [{"name": "g"}], "afterStageWaitInSeconds": "60"}])),
            "properties.strategy.stages[0].afterStageWaitInSeconds".into(),
            "whole number of seconds",
        ),
        (
            stages(json!([{"name": "a", "groups": [{"name": "g"}], "afterStageWaitInSeconds": -1}])),
            "properties.strategy.stages[0].afterStageWaitInSeconds".into(),
            "got a number (-1)",
        ),
        (
            stages(json!([{"name": "a", "groups": [{"name": "g"}], "afterStageWaitInSeconds": 2147483648u32}])),
            "properties.strategy.stages[0].afterStageWaitInSeconds".into(),
            "2147483647",
        ),
        (group(json!({"maxConcurrency": 3})), in_group("maxConcurrency"), "got the number 3: write \"3\""),
        (group(json!({"maxConcurrency": "0"})), in_group("maxConcurrency"), "at least 1"),
        (group(json!({"maxConcurrency": ""})), in_group("maxConcurrency"), "not a concurrency"),
        (group(json!({"maxConcurrency": "101%"})), in_group("maxConcurrency"), "1% to 100%"),
        (group(json!({"maxConcurrency": "5000"})), in_group("maxConcurrency"), "at most 1000"),
        (group(json!({"maxAllowedFailures": 0})), in_group("maxAllowedFailures"), "write \"0\""),
        (group(json!({"maxAllowedFailures": "-1"})), in_group("maxAllowedFailures"), "at least 0"),
        (group(json!({"memberSelector": {}})), in_group("memberSelector.byLabel"), "required"),
        (group(json!({"memberSelector": "env=prod"})), in_group("memberSelector"), "expected an object"),
        (group(json!({"memberSelector": {"byLabel": "a in ("}})), in_group("memberSelector.byLabel"), "label selector"),
        (group(json!({"memberSelector": {"byLabel": "x".repeat(513)}})), in_group("memberSelector.byLabel"), "512"),
        (group(json!({"beforeGates": {}})), in_group("beforeGates"), "expected an array"),
        (group(json!({"afterGates": [{}]})), in_group("afterGates[0].type"), "required"),
        (
            group(json!({"afterGates": [{"type": "approval"}]})),
            in_group("afterGates[0].type"),
            "Approval, ScheduledStart",
        ),
        (
            group(json!({"afterGates": [{"type": "Approval", "displayName": ""}]})),
            in_group("afterGates[0].displayName"),
            "1 to 100",
        ),
        (
            group(json!({"beforeGates": [{"type": "Approval"}, {"type": "Approval", "displayName": "x".repeat(101)}]})),
            in_group("beforeGates[1].displayName"),
            "1 to 100",
        ),
        (group(json!({"beforeGates": [{"type": "ScheduledStart"}]})), configuration.clone(), "startDay"),
        (
            group(json!({"beforeGates": [{"type": "Approval", "scheduledStartConfiguration": {}}]})),
            configuration.clone(),
            "leave it out",
        ),
        (start("friday", "18:00", "-05:00"), format!("{configuration}.startDay"), "Monday, Tuesday"),
        (start("Friday", "24:00", "-05:00"), format!("{configuration}.startTime"), "HH:mm"),
        (start("Friday", "8:00", "-05:00"), format!("{configuration}.startTime"), "HH:mm"),
        (start("Friday", "18:60", "-05:00"), format!("{configuration}.startTime"), "HH:mm"),
        (start("Friday", "18:00", "05:00"), format!("{configuration}.utcOffset"), "+HH:mm"),
        (start("Friday", "18:00", "+14:01"), format!("{configuration}.utcOffset"), "at most 14:00"),
        (start("Friday", "18:00", "+é:00"), format!("{configuration}.utcOffset"), "+HH:mm"),
    ];
    for (body, path, hint) in cases {
        check(strategy::parse, &body, &path, hint);
    }
    let after = json!({"afterGates": [{"type": "ScheduledStart", "scheduledStartConfiguration":
        {"startDay": "Friday", "startTime": "18:00", "utcOffset": "+00:00"}}]});
    check(strategy::parse, &group(after), &in_group("afterGates[0].type"), "beforeGates");
}

#[test]
fn a5_a6_strategies_come_back_as_they_were_sent() {
    let sent = json!({"stages": [
        {"name": "canary", "maxConcurrency": "25%", "maxAllowedFailures": "0%", "afterStageWaitInSeconds": 3600,
         "memberSelector": {"byLabel": "env in (a, b),!old"}, "afterGates": [{"type": "Approval"}],
         "groups": [
            {"name": "one", "maxConcurrency": "2", "maxAllowedFailures": "1", "memberSelector": {"byLabel": "tier=1"},
             "beforeGates": [
                {"type": "Approval", "displayName": "sign off \u{1F680}"},
                {"type": "ScheduledStart", "displayName": "friday", "scheduledStartConfiguration":
                    {"startDay": "Friday", "startTime": "18:05", "utcOffset": "-05:30"}},
                {"type": "ScheduledStart", "scheduledStartConfiguration":
                    {"startDay": "Sunday", "startTime": "00:00", "utcOffset": "+14:00"}}]},
            {"name": "two"}]},
        {"name": "rest", "memberSelector": {"byLabel": "env=prod"}},
    ]});
    let parsed = strategy::parse(&json!({"properties": {"strategy": sent}})).expect("strategy");
    assert_eq!(strategy::render(&parsed), sent);
}

#[test]
fn clients_what_says_nothing_is_ignored() {
    let noisy = json!({
        "id": "/x", "name": "other", "type": "T", "eTag": "\"e\"", "systemData": {}, "location": "westus", "tags": {"a": 1},
        "surprise": [1],
        "properties": {
            "provisioningState": "Failed", "surprise": true,
            "strategy": {"stages": [{
                "name": "a", "surprise": {}, "maxConcurrency": null, "maxAllowedFailures": "", "memberSelector": null,
                "beforeGates": [], "afterGates": null, "afterStageWaitInSeconds": 0,
                "groups": [{"name": "g", "beforeGates": [], "afterGates": []}],
            }]},
        },
    });
    let expect = json!({"stages": [{"name": "a", "groups": [{"name": "g"}]}]});
    assert_eq!(strategy::render(&strategy::parse(&noisy).expect("strategy")), expect);
}

fn update(update: Value) -> Value {
    json!({"properties": {"managedClusterUpdate": update}})
}

#[test]
fn a4_bad_runs_are_refused_by_their_path() {
    let goal = |rest: &str| format!("properties.managedClusterUpdate.{rest}");
    let images =
        |selection: Value| update(json!({"upgrade": {"type": "NodeImageOnly"}, "nodeImageSelection": selection}));
    let upgrade = |upgrade: Value| update(json!({ "upgrade": upgrade }));
    let version = goal("upgrade.kubernetesVersion");
    let custom = goal("nodeImageSelection.customNodeImageVersions");
    let cases = [
        (json!({"properties": {}}), "properties.managedClusterUpdate".to_string(), "required"),
        (update(json!({})), goal("upgrade"), "required"),
        (upgrade(json!({})), goal("upgrade.type"), "required"),
        (upgrade(json!({"type": "full"})), goal("upgrade.type"), "Full, NodeImageOnly, ControlPlaneOnly"),
        (upgrade(json!({"type": 1})), goal("upgrade.type"), "expected a string"),
        (upgrade(json!({"type": "Full"})), version.clone(), "needs a kubernetesVersion"),
        (
            upgrade(json!({"type": "ControlPlaneOnly", "kubernetesVersion": ""})),
            version.clone(),
            "needs a kubernetesVersion",
        ),
        (upgrade(json!({"type": "NodeImageOnly", "kubernetesVersion": "1.33.2"})), version.clone(), "must not have"),
        (upgrade(json!({"type": "Full", "kubernetesVersion": "latest"})), version.clone(), "major.minor.patch"),
        (
            upgrade(json!({"type": "Full", "kubernetesVersion": 1.33})),
            version,
            "expected a string, got a number (1.33)",
        ),
        (images(json!({})), goal("nodeImageSelection.type"), "required"),
        (images(json!({"type": "Newest"})), goal("nodeImageSelection.type"), "Latest, Consistent, Custom"),
        (images(json!({"type": "Custom"})), custom.clone(), "needs customNodeImageVersions"),
        (
            images(json!({"type": "Latest", "customNodeImageVersions": [{"version": "A-1.0.0"}]})),
            custom.clone(),
            "only a selection of type Custom",
        ),
        (
            images(json!({"type": "Custom", "customNodeImageVersions": [{}]})),
            format!("{custom}[0].version"),
            "required",
        ),
        (
            images(json!({"type": "Custom", "customNodeImageVersions": [{"version": "A-1.0.0"}, {"version": "x"}]})),
            format!("{custom}[1].version"),
            "not a node image version",
        ),
        (
            images(
                json!({"type": "Custom", "customNodeImageVersions": [{"version": "A-1.0.0"}, {"version": "A-2.0.0"}]}),
            ),
            custom,
            "twice",
        ),
        (
            images(json!({"type": "Consistent", "acceptNewer": 1})),
            goal("nodeImageSelection.acceptNewer"),
            "true or false",
        ),
        (
            images(json!({"type": "Latest", "acceptNewer": true})),
            goal("nodeImageSelection.acceptNewer"),
            "newest anyway",
        ),
        (
            json!({"properties": {"updateStrategyId": "s", "managedClusterUpdate": {"upgrade": {"type": "NodeImageOnly"}}}}),
            "properties.updateStrategyId".into(),
            "updateStrategies/NAME",
        ),
        (
            json!({"properties": {"strategy": {"stages": [{"name": "-"}]}, "managedClusterUpdate": {}}}),
            "properties.strategy.stages[0].name".into(),
            "valid name",
        ),
    ];
    for (body, path, hint) in cases {
        check(run::parse, &body, &path, hint);
    }
}

#[test]
fn a4_goals_come_back_as_they_were_sent() {
    let goals = [
        json!({"upgrade": {"type": "Full", "kubernetesVersion": "1.33.2"}}),
        json!({"upgrade": {"type": "Full", "kubernetesVersion": "1.33"}, "nodeImageSelection": {"type": "Latest"}}),
        json!({"upgrade": {"type": "ControlPlaneOnly", "kubernetesVersion": "1.30.100"}}),
        json!({"upgrade": {"type": "NodeImageOnly"}}),
        json!({"upgrade": {"type": "NodeImageOnly"}, "nodeImageSelection": {"type": "Consistent"}}),
        json!({"upgrade": {"type": "Full", "kubernetesVersion": "1.33"},
            "nodeImageSelection": {"type": "Consistent", "acceptNewer": true}}),
        json!({"upgrade": {"type": "NodeImageOnly"}, "nodeImageSelection":
            {"type": "Custom", "customNodeImageVersions": [{"version": "A-1.0.0"}, {"version": "B-2.0.0"}]}}),
    ];
    for goal in goals {
        let request = run::parse(&update(goal.clone())).expect("run");
        assert_eq!((request.strategy, request.strategy_id), (None, None));
        assert_eq!(run::render_goal(&request.goal), goal);
    }
}

#[test]
fn a4_strategy_and_strategy_id_are_both_handed_on() {
    let body = json!({"properties": {
        "updateStrategyId": STRATEGY_ID,
        "strategy": {"stages": [{"name": "a", "groups": [{"name": "g"}]}]},
        "managedClusterUpdate": {"upgrade": {"type": "NodeImageOnly"}},
    }});
    let request = run::parse(&body).expect("run");
    assert!(request.strategy.is_some());
    assert_eq!(request.strategy_id.as_deref(), Some(STRATEGY_ID));
    let (fleet, name) = run::strategy_of(&STRATEGY_ID.to_uppercase()).expect("id");
    assert_eq!((fleet.fleet.as_str(), name.as_str()), ("f", "s"));
}

#[test]
fn a2_bad_fleets_are_refused_by_their_path() {
    let tags: Value = (0..51).map(|n| (format!("t{n}"), json!(""))).collect::<serde_json::Map<_, _>>().into();
    let hub = |hub: Value| json!({"location": "westus", "properties": {"hubProfile": hub}});
    let cases = [
        (json!({}), "location", "required"),
        (json!({"location": 1}), "location", "expected a string"),
        (json!({"location": " "}), "location", "westeurope"),
        (json!({"location": "a/b"}), "location", "westeurope"),
        (json!({"location": "westus", "tags": []}), "tags", "expected an object"),
        (json!({"location": "westus", "tags": {"a": 1}}), "tags['a']", "expected a string"),
        (json!({"location": "westus", "tags": {"a": "x".repeat(257)}}), "tags['a']", "256"),
        (json!({"location": "westus", "tags": tags}), "tags", "at most 50"),
        (json!({"location": "westus", "identity": {}}), "identity.type", "required"),
        (json!({"location": "westus", "identity": {"type": "none"}}), "identity.type", "None, SystemAssigned"),
        (json!({"location": "westus", "properties": 1}), "properties", "expected an object"),
        (hub(json!({"dnsPrefix": "-a"})), "properties.hubProfile.dnsPrefix", "inner hyphens"),
        (hub(json!({"agentProfile": 1})), "properties.hubProfile.agentProfile", "expected an object"),
    ];
    for (body, path, hint) in cases {
        check(fleet::parse, &body, path, hint);
    }
    check(fleet::parse_patch, &json!({"tags": "x"}), "tags", "expected an object");
}

#[test]
fn clients_fleets_with_identity_none_are_taken_and_patches_change_only_what_they_name() {
    let request = fleet::parse(&json!({"location": "East US", "identity": {"type": "None"}})).expect("fleet");
    assert_eq!((request.identity, fleet::region(&request.location)), (Some(json!({"type": "None"})), "eastus".into()));
    let patch = fleet::parse_patch(&json!({})).expect("patch");
    assert_eq!(patch, fleet::FleetPatch { tags: None, identity: None });
    let patch = fleet::parse_patch(&json!({"tags": {}, "location": 7})).expect("patch");
    assert_eq!(patch.tags.map(|tags| tags.len()), Some(0));
}

#[test]
fn a2_bad_members_are_refused_by_their_path() {
    let with = |key: &str, value: Value| {
        let mut properties = json!({"clusterResourceId": CLUSTER});
        properties[key] = value;
        json!({ "properties": properties })
    };
    let labels: Value = (0..101).map(|n| (format!("l{n}"), json!(""))).collect::<serde_json::Map<_, _>>().into();
    let cases = [
        (json!({}), "properties", "required"),
        (json!({"properties": {}}), "properties.clusterResourceId", "required"),
        (with("clusterResourceId", json!("c1")), "properties.clusterResourceId", "managedClusters/NAME"),
        (with("group", json!("Canary")), "properties.group", "lower-case"),
        (with("group", json!("")), "properties.group", "1 to 50"),
        (with("group", json!(["a"])), "properties.group", "expected a string, got an array"),
        (with("labels", json!("a=b")), "properties.labels", "expected an object"),
        (with("labels", json!({"a": true})), "properties.labels['a']", "got a boolean (true)"),
        (with("labels", json!({"a b": "c"})), "properties.labels['a b']", "label key"),
        (with("labels", json!({"a": "b c"})), "properties.labels['a']", "label value"),
        (with("labels", labels), "properties.labels", "at most 100"),
    ];
    for (body, path, hint) in cases {
        check(member::parse, &body, path, hint);
    }
    check(member::parse_patch, &json!({"properties": {"group": "A"}}), "properties.group", "lower-case");
}

#[test]
fn a2_service_labels_are_computed_and_those_sent_back_are_overwritten() {
    let body = json!({"location": "x", "tags": {}, "properties": {
        "clusterResourceId": CLUSTER,
        "labels": {"team": "web", "fleet.azure.com/cluster-name": "forged", "fleet.azure.com/made-up": "not a value!"},
    }});
    let request = member::parse(&body).expect("member");
    assert_eq!(json!(request.labels), json!({"team": "web"}));
    let name = || "m1".parse().expect("name");
    let with = |location| {
        let own = request.labels.clone();
        json!(member::with_service_labels(name(), request.cluster.clone(), None, own, location).labels)
    };
    let mut expect = json!({
        "team": "web",
        "fleet.azure.com/cluster-name": "c1",
        "fleet.azure.com/member-name": "m1",
        "fleet.azure.com/resource-group": "Rg",
        "fleet.azure.com/subscription-id": "s1",
    });
    assert_eq!(with(None), expect, "no location where it is not known");
    expect["fleet.azure.com/location"] = json!("westus");
    assert_eq!(with(Some("westus")), expect);
    let stored = member::with_service_labels(name(), request.cluster.clone(), None, request.labels, Some("westus"));
    let moved = member::with_service_labels(name(), request.cluster, None, stored.labels, None);
    assert_eq!(moved.location(), None, "a stored location does not outlive what is known");
}

#[test]
fn a2_a_member_patch_sets_clears_or_leaves_alone() {
    let group =
        |body: Value| member::parse_patch(&body).expect("patch").group.map(|group| group.map(|name| name.to_string()));
    assert_eq!(group(json!({})), None);
    assert_eq!(group(json!({"properties": {"labels": {"a": "b"}}})), None);
    assert_eq!(group(json!({"properties": {"group": "g"}})), Some(Some("g".into())));
    assert_eq!(group(json!({"properties": {"group": null}})), Some(None));
    assert_eq!(group(json!({"properties": {"group": ""}})), Some(None));
}

#[test]
fn a7_skip_names_targets_by_type_and_name() {
    use flotta_engine::run::SkipTarget;
    let name = |text: &str| text.parse().expect(text);
    let body = json!({"targets": [{"type": "Member", "name": "m"}, {"type": "Group", "name": "g"},
        {"type": "Stage", "name": "s"}, {"type": "AfterStageWait", "name": "s"}]});
    let expect = vec![
        SkipTarget::Member(name("m")),
        SkipTarget::Group(name("g")),
        SkipTarget::Stage(name("s")),
        SkipTarget::AfterStageWait(name("s")),
    ];
    assert_eq!(skip::parse(&body).expect("targets"), expect);
    let cases = [
        (json!({}), "targets", "required"),
        (json!({"targets": []}), "targets", "1 to 10000"),
        (json!({"targets": {}}), "targets", "expected an array"),
        (json!({"targets": [{"name": "m"}]}), "targets[0].type", "required"),
        (
            json!({"targets": [{"type": "member", "name": "m"}]}),
            "targets[0].type",
            "Member, Group, Stage, AfterStageWait",
        ),
        (json!({"targets": [{"type": "Member", "name": "m"}, {"type": "Group"}]}), "targets[1].name", "required"),
        (json!({"targets": [{"type": "Member", "name": "M"}]}), "targets[0].name", "lower-case"),
    ];
    for (body, path, hint) in cases {
        check(skip::parse, &body, path, hint);
    }
}

#[test]
fn api7_bodies_that_are_no_object_are_invalid_content() {
    for bad in [&b""[..], b"{", b"[]", b"1", b"null", b"{} {}", b"\xff"] {
        let error = parse_body(bad).expect_err("not an object");
        assert_eq!((error.status, error.code.as_str()), (400, "InvalidRequestContent"), "{error}");
    }
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert_eq!(parse_body(&deep).expect_err("too deep").status, 400);
    assert_eq!(parse_body(b"{\"a\": 1}"), Ok(json!({"a": 1})));
    let error = strategy::parse(&json!([])).expect_err("array");
    assert_eq!(error.code, "InvalidRequestContent");
}
