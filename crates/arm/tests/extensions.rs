//! What flotta adds to documented strategies: how it travels, and that clients that do not know it leave it alone.

use flotta_arm::{
    ApiVersion, ArmError,
    api_version::{merge_unknown, strip},
    doc::{Principal, PrincipalKind, RunDoc, SystemData},
    run, strategy,
};
use flotta_model::{
    Budget, GateConfig, GateKind, Group, Stage, Strategy,
    gate::{ApprovalPolicy, Creator, Rejection, ScheduledStart, Weekday},
};
use proptest::{
    collection::vec,
    option,
    prelude::{Just, Strategy as Generator, any},
    prop_assert_eq, prop_oneof, proptest,
    sample::{Index, select},
};
use serde_json::{Value, json};

const START: &str = "scheduledStartConfiguration";

/// A strategy of one stage `a` with one group `g`, and what these objects say besides.
fn body(stage: Value, group: Value) -> Value {
    let with = |mut base: Value, more: &Value| {
        base.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
        base
    };
    let group = with(json!({"name": "g"}), &group);
    json!({"properties": {"strategy": {"stages": [with(json!({"name": "a", "groups": [group]}), &stage)]}}})
}

fn group(group: Value) -> Value {
    body(json!({}), group)
}

fn gate(gate: Value) -> Value {
    group(json!({"beforeGates": [gate]}))
}

fn policy(policy: Value) -> Value {
    gate(json!({"type": "Approval", "approvalPolicy": policy}))
}

fn start(offset: Value, zone: Value) -> Value {
    let start = json!({"startDay": "Friday", "startTime": "18:05", "utcOffset": offset, "timeZone": zone});
    gate(json!({"type": "ScheduledStart", START: start}))
}

fn shown(strategy: &Strategy) -> Value {
    json!({"properties": {"strategy": strategy::render(strategy)}})
}

fn parsed(body: &Value) -> Strategy {
    strategy::parse(body).unwrap_or_else(|error| panic!("{body}: {error}"))
}

/// The strategy after a PUT over a stored one.
fn put(stored: &Value, body: &Value, version: ApiVersion) -> Result<Strategy, ArmError> {
    strategy::parse(&merge_unknown(&shown(&parsed(stored)), body.clone(), version))
}

fn stable() -> ApiVersion {
    ApiVersion::parse("2026-06-01").expect("version")
}

/// What a client sends back that knows the documented properties only.
fn unaware(mut value: Value) -> Value {
    match &mut value {
        Value::Object(object) => {
            let extra = ["strict", "minSuccess", "approvalPolicy", "timeZone"];
            object.retain(|key, _| !extra.contains(&key.as_str()));
            object.values_mut().for_each(|child| *child = unaware(child.take()));
        }
        Value::Array(elements) => elements.iter_mut().for_each(|child| *child = unaware(child.take())),
        _ => {}
    }
    value
}

#[test]
fn ext_what_is_sent_comes_back() {
    let policy = json!({"approvers": 2, "expiresAfterSeconds": 86400, "creatorMayApprove": false, "rejectable": true});
    let zoned = json!({"startDay": "Friday", "startTime": "18:05", "utcOffset": "+02:00", "timeZone": "Europe/Rome"});
    let sent = body(
        json!({
            "maxAllowedFailures": "10%", "strict": true, "minSuccess": "90%",
            "beforeGates": [{"type": "ScheduledStart", START: zoned}],
            "afterGates": [{"type": "Approval", "approvalPolicy": {"expiresAfterSeconds": 1}}],
        }),
        json!({
            "maxAllowedFailures": "1", "strict": true, "minSuccess": "5",
            "beforeGates": [{"type": "Approval", "displayName": "four eyes", "approvalPolicy": policy}],
            "afterGates": [{"type": "Approval", "approvalPolicy": {"rejectable": true}}],
        }),
    );
    let strategy = parsed(&sent);
    assert_eq!(shown(&strategy), sent);
    let stage = &strategy.stages()[0];
    assert_eq!((stage.budget, stage.groups[0].budget), (Budget::Strict, Budget::Strict));
    assert_eq!((stage.min_success, stage.groups[0].min_success), ("90%".parse().ok(), "5".parse().ok()));
    let expect = ApprovalPolicy {
        approvers: 2,
        expires_after_seconds: Some(86400),
        creator: Creator::MayNotApprove,
        rejection: Rejection::Offered,
    };
    assert_eq!(stage.groups[0].before_gates[0].policy, expect);
}

#[test]
fn ext_what_says_nothing_is_left_out() {
    let plain = group(json!({}));
    for nothing in [
        json!({"strict": false, "minSuccess": ""}),
        json!({"strict": null, "minSuccess": null}),
        json!({"strict": false, "minSuccess": null}),
    ] {
        assert_eq!(shown(&parsed(&body(nothing.clone(), nothing))), plain);
    }
    let usual = json!({"approvers": 1, "expiresAfterSeconds": null, "creatorMayApprove": true, "rejectable": false});
    for nothing in [json!(null), json!({}), usual] {
        assert_eq!(shown(&parsed(&policy(nothing))), gate(json!({"type": "Approval"})));
    }
}

#[test]
fn ext_an_offset_can_be_left_out_beside_a_zone_and_is_then_the_standard_one() {
    for (zone, offset) in [("Europe/Rome", "+01:00"), ("America/New_York", "-05:00"), ("UTC", "+00:00")] {
        assert_eq!(shown(&parsed(&start(json!(null), json!(zone)))), start(json!(offset), json!(zone)));
    }
    let kolkata = parsed(&start(json!("+05:30"), json!("asia/kolkata")));
    assert_eq!(shown(&kolkata), start(json!("+05:30"), json!("Asia/Kolkata")), "in the database's spelling");
}

#[test]
fn ext_bad_values_are_refused_by_their_path() {
    let (in_stage, in_group) = ("stages[0].", "stages[0].groups[0].");
    let at = |rest: &str| format!("{in_group}beforeGates[0].{rest}");
    let (approval, offset) = (at("approvalPolicy"), at("scheduledStartConfiguration.utcOffset"));
    let zone = at("scheduledStartConfiguration.timeZone");
    let scheduled = json!({"startDay": "Friday", "startTime": "18:05", "utcOffset": "+00:00"});
    let cases = [
        (group(json!({"strict": "yes"})), format!("{in_group}strict"), "expected true or false, got 'yes'"),
        (group(json!({"strict": 1})), format!("{in_group}strict"), "got a number (1)"),
        (group(json!({"strict": true})), format!("{in_group}strict"), "maxAllowedFailures of at least 1"),
        (
            body(json!({"strict": true, "maxAllowedFailures": "0"}), json!({})),
            format!("{in_stage}strict"),
            "at least 1",
        ),
        (group(json!({"minSuccess": 5})), format!("{in_group}minSuccess"), "got the number 5: write \"5\""),
        (group(json!({"minSuccess": "101%"})), format!("{in_group}minSuccess"), "'101%' is not a floor"),
        (body(json!({"minSuccess": "-1"}), json!({})), format!("{in_stage}minSuccess"), "0% to 100%"),
        (group(json!({"minSuccess": {}})), format!("{in_group}minSuccess"), "expected a string, got an object"),
        (policy(json!(2)), approval.clone(), "expected an object, got a number (2)"),
        (policy(json!({"approvers": 0})), format!("{approval}.approvers"), "from 1 to 20, got a number (0)"),
        (policy(json!({"approvers": 21})), format!("{approval}.approvers"), "from 1 to 20, got a number (21)"),
        (policy(json!({"approvers": 257})), format!("{approval}.approvers"), "got a number (257)"),
        (policy(json!({"approvers": "2"})), format!("{approval}.approvers"), "got '2'"),
        (policy(json!({"expiresAfterSeconds": 0})), format!("{approval}.expiresAfterSeconds"), "from 1 to 2147483647"),
        (
            policy(json!({"expiresAfterSeconds": 2147483648u32})),
            format!("{approval}.expiresAfterSeconds"),
            "2147483648",
        ),
        (policy(json!({"creatorMayApprove": "no"})), format!("{approval}.creatorMayApprove"), "true or false"),
        (policy(json!({"rejectable": 0})), format!("{approval}.rejectable"), "true or false"),
        (
            gate(json!({"type": "ScheduledStart", START: scheduled, "approvalPolicy": {"approvers": 2}})),
            approval,
            "use Approval",
        ),
        (start(json!(null), json!(null)), offset.clone(), "required"),
        (start(json!("+00:00"), json!("Europe/Rome")), offset.clone(), "use +01:00 or +02:00"),
        (start(json!("1:00"), json!("Europe/Rome")), offset, "not an offset"),
        (start(json!("+01:00"), json!("Rome")), zone.clone(), "'Rome' is not a time zone: use an IANA name"),
        (start(json!("+01:00"), json!("")), zone.clone(), "IANA"),
        (start(json!("+01:00"), json!(1)), zone, "expected a string, got a number (1)"),
    ];
    for (body, path, hint) in cases {
        let error = strategy::parse(&body).expect_err(&body.to_string());
        assert_eq!((error.status, error.code.as_str()), (400, "InvalidParameter"), "{body}: {error}");
        assert_eq!(error.target, Some(format!("properties.strategy.{path}")), "{body}: {error}");
        assert!(error.message.contains(hint), "{body}: {error}");
    }
}

/// One of everything.
fn rich() -> Value {
    let limits = json!({"maxAllowedFailures": "2", "strict": true, "minSuccess": "90%"});
    let approval = json!({"type": "Approval", "approvalPolicy": {"approvers": 2}});
    let start = json!({"startDay": "Friday", "startTime": "18:05", "utcOffset": "+01:00", "timeZone": "Europe/Rome"});
    let mut scope = limits;
    scope["beforeGates"] = json!([approval, {"type": "ScheduledStart", START: start}]);
    scope["afterGates"] = json!([approval]);
    body(scope.clone(), scope)
}

#[test]
fn ext_every_version_that_shows_the_parent_shows_them() {
    assert_eq!(strip(rich(), ApiVersion::NEWEST), rich());
    let stable = strip(rich(), stable());
    let group = &stable["properties"]["strategy"]["stages"][0]["groups"][0];
    assert_eq!((&group["strict"], &group["minSuccess"]), (&json!(true), &json!("90%")));
    assert_eq!(group["beforeGates"][0]["approvalPolicy"]["approvers"], 2);
    assert!(group["beforeGates"][1].get(START).is_none(), "a zone goes with its parent");
}

#[test]
fn ext_a_put_that_leaves_them_out_keeps_them_in_every_version() {
    let stored = parsed(&rich());
    for version in ApiVersion::all() {
        let sent = unaware(strip(rich(), version));
        assert_ne!(sent, rich());
        assert_eq!(put(&rich(), &sent, version), Ok(stored.clone()), "{version}");
    }
}

#[test]
fn ext_a_put_that_says_the_default_or_null_removes_them() {
    let check = |parent: &str, key: &str, nothing: Value, version: ApiVersion| {
        let parent = format!("/properties/strategy/stages/0{parent}");
        let (mut sent, mut expect) = (rich(), rich());
        let object = expect.pointer_mut(&parent).and_then(Value::as_object_mut).expect("object");
        assert!(object.remove(key).is_some(), "{parent}/{key}");
        sent.pointer_mut(&parent).expect("object")[key] = nothing;
        let merged = put(&rich(), &sent, version).map(|strategy| shown(&strategy));
        assert_eq!(merged, Ok(expect), "{parent}/{key} by {version}");
    };
    for scope in ["", "/groups/0"] {
        for version in [ApiVersion::NEWEST, stable()] {
            check(scope, "minSuccess", json!(null), version);
            check(scope, "minSuccess", json!(""), version);
            for side in ["beforeGates", "afterGates"] {
                check(&format!("{scope}/{side}/0"), "approvalPolicy", json!(null), version);
                check(&format!("{scope}/{side}/0"), "approvalPolicy", json!({}), version);
            }
        }
        check(scope, "strict", json!(false), ApiVersion::NEWEST);
        check(scope, "strict", json!(null), stable());
        check(&format!("{scope}/beforeGates/1/{START}"), "timeZone", json!(null), ApiVersion::NEWEST);
    }
}

#[test]
fn ext_what_is_said_counts_whole() {
    let stored = policy(json!({"approvers": 3, "rejectable": true}));
    let said = policy(json!({"expiresAfterSeconds": 60}));
    assert_eq!(put(&stored, &said, ApiVersion::NEWEST), Ok(parsed(&said)));
}

#[test]
fn ext_what_is_renamed_or_of_another_type_is_new() {
    let mut renamed = unaware(rich());
    renamed["properties"]["strategy"]["stages"][0]["name"] = json!("b");
    assert_eq!(put(&rich(), &renamed, ApiVersion::NEWEST), Ok(parsed(&renamed)));
    let mut group = unaware(rich());
    group["properties"]["strategy"]["stages"][0]["groups"][0]["name"] = json!("h");
    let merged = shown(&put(&rich(), &group, ApiVersion::NEWEST).expect("strategy"));
    let stage = &merged["properties"]["strategy"]["stages"][0];
    assert_eq!((stage.get("strict"), stage["groups"][0].get("strict")), (Some(&json!(true)), None));

    let stored = policy(json!({"approvers": 2}));
    let start = json!({"startDay": "Friday", "startTime": "18:05", "utcOffset": "+01:00"});
    let mut swapped = gate(json!({"type": "ScheduledStart", START: start}));
    assert_eq!(put(&stored, &swapped, ApiVersion::NEWEST), Ok(parsed(&swapped)));
    swapped = unaware(stored.clone());
    swapped["properties"]["strategy"]["stages"][0]["groups"][0]["beforeGates"] = json!([]);
    assert_eq!(put(&stored, &swapped, ApiVersion::NEWEST), Ok(parsed(&swapped)), "a gate that goes takes it along");
}

#[test]
fn ext_a_kept_zone_gives_way_to_an_offset_that_it_never_uses() {
    let stored = start(json!("+01:00"), json!("Europe/Rome"));
    let sent = |offset: &str| unaware(start(json!(offset), json!(null)));
    for (offset, zone) in [("+01:00", json!("Europe/Rome")), ("+02:00", json!("Europe/Rome")), ("-05:00", json!(null))]
    {
        let expect = parsed(&start(json!(offset), zone));
        assert_eq!(put(&stored, &sent(offset), ApiVersion::NEWEST), Ok(expect), "{offset}");
    }
    let silent = start(json!(null), json!("Europe/Rome"));
    let merged = put(&stored, &unaware(silent.clone()), ApiVersion::NEWEST);
    assert_eq!(merged, Ok(parsed(&silent)), "no offset contradicts nothing");
    let error = put(&stored, &sent("noon"), ApiVersion::NEWEST).expect_err("no offset");
    assert!(error.target.is_some_and(|target| target.ends_with("utcOffset")));
}

#[test]
fn ext_a_kept_strict_budget_gives_way_to_a_limit_that_nobody_could_start_under() {
    let stored = group(json!({"maxAllowedFailures": "2", "strict": true}));
    for (limit, strict) in
        [(json!("5"), true), (json!("1%"), true), (json!("0"), false), (json!("0%"), false), (json!(null), false)]
    {
        let sent = group(json!({"maxAllowedFailures": limit}));
        let expect = parsed(&group(json!({"maxAllowedFailures": limit, "strict": strict})));
        assert_eq!(put(&stored, &sent, ApiVersion::NEWEST), Ok(expect), "{limit}");
        let insisted = group(json!({"maxAllowedFailures": limit, "strict": true}));
        assert_eq!(put(&stored, &insisted, ApiVersion::NEWEST).is_ok(), strict, "who says it is told: {limit}");
    }
}

#[test]
fn ext_a_run_said_again_by_a_client_that_does_not_know_them_is_the_same_run() {
    let mut body = rich();
    body["properties"]["managedClusterUpdate"] = json!({"upgrade": {"type": "NodeImageOnly"}});
    let request = run::parse(&body).expect("run");
    let by = Principal { name: "ada".into(), kind: PrincipalKind::User };
    let doc = RunDoc {
        run: uuid::Uuid::nil(),
        name: "r".parse().expect("name"),
        strategy: request.strategy.clone(),
        strategy_id: None,
        goal: request.goal.clone(),
        system_data: SystemData::new(by, jiff::Timestamp::UNIX_EPOCH),
        profile_id: None,
        retry: None,
        start_after: None,
        only: None,
    };
    for version in ApiVersion::all() {
        let said = unaware(strip(body.clone(), version));
        assert_eq!(run::parse(&merge_unknown(&doc.request(), said, version)).as_ref(), Ok(&request), "{version}");
    }
}

#[test]
fn ext_newer_images_are_accepted_until_somebody_says_otherwise() {
    let update = |selection: Value| {
        json!({"properties": {"managedClusterUpdate": {
            "upgrade": {"type": "NodeImageOnly"}, "nodeImageSelection": selection}}})
    };
    let stored = update(json!({"type": "Consistent", "acceptNewer": true}));
    let custom = json!({"type": "Custom", "customNodeImageVersions": [{"version": "A-1.0.0"}]});
    for (sent, kept) in [
        (json!({"type": "Consistent"}), true),
        (custom, true),
        (json!({"type": "Consistent", "acceptNewer": false}), false),
        (json!({"type": "Consistent", "acceptNewer": null}), false),
        (json!({"type": "Latest"}), false),
    ] {
        for version in [stable(), ApiVersion::NEWEST] {
            let meant = merge_unknown(&stored, update(sent.clone()), version);
            let goal = run::parse(&meant).unwrap_or_else(|error| panic!("{sent}: {error}")).goal;
            assert_eq!(goal.accepts_newer(), kept, "{sent} by {version}");
        }
    }
}

fn policies() -> impl Generator<Value = ApprovalPolicy> {
    (1..=ApprovalPolicy::MOST_APPROVERS, option::of(1..=Strategy::LONGEST_WAIT_SECONDS), any::<bool>(), any::<bool>())
        .prop_map(|(approvers, expires_after_seconds, may, offered)| ApprovalPolicy {
            approvers,
            expires_after_seconds,
            creator: if may { Creator::MayApprove } else { Creator::MayNotApprove },
            rejection: if offered { Rejection::Offered } else { Rejection::NotOffered },
        })
}

fn approvals() -> impl Generator<Value = GateConfig> {
    (option::of("\\PC{1,100}"), policies()).prop_map(|(display_name, policy)| GateConfig {
        display_name,
        kind: GateKind::Approval,
        policy,
    })
}

fn starts() -> impl Generator<Value = GateConfig> {
    let days = [Weekday::Monday, Weekday::Tuesday, Weekday::Wednesday, Weekday::Saturday, Weekday::Sunday];
    let zones =
        [("Europe/Rome", 60), ("Europe/Rome", 120), ("Asia/Kolkata", 330), ("Pacific/Kiritimati", 840), ("UTC", 0)];
    let zoned = select(zones.to_vec()).prop_map(|(zone, minutes)| (minutes, Some(zone.parse().expect(zone))));
    let local = prop_oneof![(-840..=840i16).prop_map(|minutes| (minutes, None)), zoned];
    (option::of("[a-z ]{1,9}"), select(days.to_vec()), 0..1440u16, local).prop_map(
        |(display_name, day, minute, (utc_offset_minutes, zone))| GateConfig {
            display_name,
            ..GateConfig::new(GateKind::ScheduledStart(ScheduledStart { day, minute, utc_offset_minutes, zone }))
        },
    )
}

/// A group without a name: what stages and groups have in common.
fn scopes() -> impl Generator<Value = Group> {
    let percent = |least: u32| {
        prop_oneof![(least..=1000).prop_map(|n| n.to_string()), (least..=100).prop_map(|n| format!("{n}%"))]
    };
    let selectors = ["env=prod", "tier in (edge,web),!old", "a!=b"];
    let limits = (option::of(percent(1)), option::of(percent(0)), any::<bool>(), option::of(percent(0)));
    let before = vec(prop_oneof![approvals(), starts()], 0..3);
    (option::of(select(selectors.to_vec())), limits, before, vec(approvals(), 0..3)).prop_map(
        |(selector, (concurrency, failures, strict, successes), before_gates, after_gates)| {
            let strict = strict && failures.as_deref().is_some_and(|limit| limit.trim_end_matches('%') != "0");
            Group {
                selector: selector.map(|text| text.parse().expect(text)),
                max_concurrency: concurrency.map(|text| text.parse().expect("concurrency")),
                max_allowed_failures: failures.map(|text| text.parse().expect("failures")),
                budget: if strict { Budget::Strict } else { Budget::Watched },
                min_success: successes.map(|text| text.parse().expect("successes")),
                before_gates,
                after_gates,
                ..Group::new("unnamed".parse().expect("name"))
            }
        },
    )
}

fn strategies() -> impl Generator<Value = Strategy> {
    let waits = prop_oneof![Just(0), 1..=Strategy::LONGEST_WAIT_SECONDS];
    vec((scopes(), vec(scopes(), 0..4), waits), 1..4).prop_map(|stages| {
        let name = |text: String| text.parse().expect("name");
        let stage = |(at, (scope, groups, wait)): (usize, (Group, Vec<Group>, u32))| {
            let groups: Vec<Group> = groups
                .into_iter()
                .enumerate()
                .map(|(index, group)| Group { name: name(format!("g{at}-{index}")), ..group })
                .collect();
            let needed = groups.is_empty().then(|| "env=any".parse().expect("selector"));
            Stage {
                selector: scope.selector.or(needed),
                max_concurrency: scope.max_concurrency,
                max_allowed_failures: scope.max_allowed_failures,
                budget: scope.budget,
                min_success: scope.min_success,
                after_wait_seconds: wait,
                before_gates: scope.before_gates,
                after_gates: scope.after_gates,
                ..Stage::new(name(format!("s{at}")), groups)
            }
        };
        Strategy::new(stages.into_iter().enumerate().map(stage).collect()).expect("strategy")
    })
}

proptest! {
    #[test]
    fn ext_any_strategy_survives_the_wire(strategy in strategies()) {
        prop_assert_eq!(strategy::parse(&shown(&strategy)), Ok(strategy));
    }

    #[test]
    fn ext_any_strategy_survives_an_unaware_client_of_any_version(strategy in strategies(), index in any::<Index>()) {
        let versions: Vec<ApiVersion> = ApiVersion::all().collect();
        let version = *index.get(&versions);
        let said = unaware(strip(shown(&strategy), version));
        prop_assert_eq!(strategy::parse(&merge_unknown(&shown(&strategy), said, version)), Ok(strategy));
    }
}
