//! Auto-upgrade profiles: what is refused and where, and what is taken and given back.

use flotta_arm::{
    ApiVersion,
    api_version::merge_unknown,
    doc::{Principal, PrincipalKind, ProfileDoc, SystemData},
    profile,
};
use flotta_model::{
    Channel, Fault,
    profile::{LastTrigger, UpgradePath},
};
use jiff::Timestamp;
use serde_json::{Value, json};

const ID: &str =
    "/subscriptions/s1/resourceGroups/Rg/providers/Microsoft.ContainerService/fleets/f/autoUpgradeProfiles/p";
const STRATEGY_ID: &str =
    "/subscriptions/s1/resourceGroups/Rg/providers/Microsoft.ContainerService/fleets/f/updateStrategies/s";

fn body(properties: Value) -> Value {
    json!({ "properties": properties })
}

fn target(rest: Value) -> Value {
    let mut properties = json!({"channel": "TargetKubernetesVersion", "targetKubernetesVersion": "1.33"});
    properties.as_object_mut().expect("object").extend(rest.as_object().expect("object").clone());
    body(properties)
}

fn at(text: &str) -> Timestamp {
    text.parse().expect(text)
}

fn doc(body: &Value) -> ProfileDoc {
    let profile = profile::parse(&"p".parse().expect("name"), body).expect("profile");
    let by = Principal { name: "ann".into(), kind: PrincipalKind::User };
    ProfileDoc { profile, said: profile::said(body), system_data: SystemData::new(by, at("2026-01-01T00:00:00Z")) }
}

fn shown(body: &Value) -> Value {
    let mut properties = doc(body).render(ID, "tag", ApiVersion::NEWEST, None)["properties"].take();
    assert_eq!(properties.as_object_mut().expect("object").remove("provisioningState"), Some("Succeeded".into()));
    properties
}

#[test]
fn api12_a_profile_comes_back_as_it_was_sent() {
    let calendar = json!({"days": ["Tuesday", "Thursday"], "startTime": "09:00", "durationHours": 8,
        "timeZone": "Europe/Rome"});
    for sent in [
        json!({"channel": "Rapid"}),
        json!({"channel": "Stable", "updateStrategyId": STRATEGY_ID, "nodeImageSelection": {"type": "Latest"},
            "disabled": true}),
        json!({"channel": "Rapid", "disabled": false, "longTermSupport": false}),
        json!({"channel": "NodeImage", "nodeImageSelection": {"type": "Consistent"}}),
        json!({"channel": "SecurityPatch"}),
        json!({"channel": "TargetKubernetesVersion", "targetKubernetesVersion": "1.30", "longTermSupport": true}),
        json!({"channel": "Stable", "trigger": {"regionsPercent": 60, "soakInSeconds": 86400, "calendar": calendar,
            "upgradePath": "ControlPlaneFirst"}}),
    ] {
        assert_eq!(shown(&body(sent.clone())), sent);
    }
    let silent = json!({"channel": "Rapid", "targetKubernetesVersion": "", "disabled": null, "trigger": {}});
    assert_eq!(shown(&body(silent)), json!({"channel": "Rapid"}));
}

#[test]
fn api12_what_became_of_the_last_trigger_is_shown_once_there_was_one() {
    let doc = doc(&body(json!({"channel": "Rapid"})));
    let mut last = LastTrigger {
        at: at("2026-01-02T03:04:05Z"),
        error: None,
        versions: vec!["1.33.4".into()],
        message: Some("made run auto-p".into()),
    };
    let status = |last: &LastTrigger, version: &str| {
        let version = ApiVersion::parse(version).expect(version);
        doc.render(ID, "tag", version, Some(last))["properties"]["autoUpgradeProfileStatus"].take()
    };
    let expect = json!({"lastTriggeredAt": "2026-01-02T03:04:05.0000000Z", "lastTriggerStatus": "Succeeded",
        "lastTriggerUpgradeVersions": ["1.33.4"], "lastTriggerMessage": "made run auto-p"});
    assert_eq!(status(&last, "2026-06-02-preview"), expect);
    assert_eq!(status(&last, "2026-06-01").get("lastTriggerMessage"), None, "stable versions do not know it");
    last.error = Some(Fault::new("InvalidParameter", "the strategy is gone"));
    let failed = status(&last, "2026-06-02-preview");
    assert_eq!(
        (&failed["lastTriggerStatus"], &failed["lastTriggerError"]["code"]),
        (&json!("Failed"), &json!("InvalidParameter"))
    );
}

#[test]
fn a9_bad_profiles_are_refused_by_their_path() {
    let calendar = |change: Value| {
        let mut calendar = json!({"days": ["Monday"], "startTime": "09:00", "durationHours": 8, "utcOffset": "+01:00"});
        calendar.as_object_mut().expect("object").extend(change.as_object().expect("object").clone());
        body(json!({"channel": "Rapid", "trigger": {"calendar": calendar}}))
    };
    for (sent, path, hint) in [
        (json!({}), "properties", "required"),
        (body(json!({})), "properties.channel", "required"),
        (body(json!({"channel": "rapid"})), "properties.channel", "Rapid, Stable, NodeImage, SecurityPatch"),
        (body(json!({"channel": "TargetKubernetesVersion"})), "properties.targetKubernetesVersion", "such as 1.33"),
        (target(json!({"targetKubernetesVersion": "1.33.1"})), "properties.targetKubernetesVersion", "use 1.33"),
        (target(json!({"targetKubernetesVersion": "x"})), "properties.targetKubernetesVersion", "major.minor"),
        (
            body(json!({"channel": "Stable", "targetKubernetesVersion": "1.33"})),
            "properties.targetKubernetesVersion",
            "only channel TargetKubernetesVersion",
        ),
        (
            body(json!({"channel": "NodeImage", "longTermSupport": true})),
            "properties.longTermSupport",
            "only channel TargetKubernetesVersion",
        ),
        (body(json!({"channel": "Rapid", "disabled": "no"})), "properties.disabled", "true or false"),
        (body(json!({"channel": "Rapid", "updateStrategyId": "s"})), "properties.updateStrategyId", "not the id"),
        (
            body(json!({"channel": "Rapid", "nodeImageSelection": {"type": "Custom"}})),
            "properties.nodeImageSelection.type",
            "Latest, Consistent",
        ),
        (body(json!({"channel": "Rapid", "trigger": 1})), "properties.trigger", "an object"),
        (
            body(json!({"channel": "Rapid", "trigger": {"regionsPercent": 101}})),
            "properties.trigger.regionsPercent",
            "from 0 to 100",
        ),
        (
            body(json!({"channel": "Rapid", "trigger": {"soakInSeconds": -1}})),
            "properties.trigger.soakInSeconds",
            "seconds",
        ),
        (
            body(json!({"channel": "NodeImage", "trigger": {"upgradePath": "ControlPlaneFirst"}})),
            "properties.trigger.upgradePath",
            "node images alone",
        ),
        (calendar(json!({"days": []})), "properties.trigger.calendar.days", "at least one day"),
        (calendar(json!({"days": ["Monday", "Monday"]})), "properties.trigger.calendar.days", "once"),
        (calendar(json!({"days": ["Mon"]})), "properties.trigger.calendar.days[0]", "Monday"),
        (calendar(json!({"durationHours": 3})), "properties.trigger.calendar.durationHours", "from 4 to 24"),
        (calendar(json!({"startTime": "9:00"})), "properties.trigger.calendar.startTime", "HH:mm"),
        (calendar(json!({"timeZone": "Europe/Rom"})), "properties.trigger.calendar.timeZone", "Rom"),
        (calendar(json!({"timeZone": "America/New_York"})), "properties.trigger.calendar.utcOffset", "never"),
    ] {
        let error = profile::parse(&"p".parse().expect("name"), &sent).expect_err(&sent.to_string());
        assert_eq!((error.status, error.target.as_deref()), (400, Some(path)), "{sent}: {error}");
        assert!(error.message.contains(hint), "{sent}: {error}");
    }
}

#[test]
fn choice_a_profile_keeps_what_a_put_by_an_old_version_cannot_know() {
    let stored = target(json!({"longTermSupport": true, "trigger": {"soakInSeconds": 60}}));
    let old = ApiVersion::parse("2025-03-01").expect("version");
    let same = body(json!({"channel": "TargetKubernetesVersion", "disabled": true}));
    let merged = merge_unknown(&stored, same, old);
    assert_eq!(merged, target(json!({"longTermSupport": true, "trigger": {"soakInSeconds": 60}, "disabled": true})));
    let other = body(json!({"channel": "Rapid"}));
    let merged = merge_unknown(&stored, other, old);
    assert_eq!(merged, body(json!({"channel": "Rapid", "trigger": {"soakInSeconds": 60}})));
    let parsed = profile::parse(&"p".parse().expect("name"), &merged).expect("valid");
    assert_eq!((parsed.channel, parsed.trigger.path), (Channel::Rapid, UpgradePath::Full));
}
