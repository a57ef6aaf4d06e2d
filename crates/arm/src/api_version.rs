//! The published api-versions and which properties each knows (`arm-api.md` §0, §1).
//!
//! What a version does not know is dropped from its answers, and kept when it writes: a client that cannot know a
//! property cannot have meant to remove it. The same holds for what flotta adds to the documented API, whatever the
//! version: typed clients drop what they do not know. Whoever knows it removes it by saying so.

use std::fmt;

use serde_json::{Map, Value};

use crate::{error::ArmError, path::Query, strategy};

/// Every published version, oldest first.
const PUBLISHED: [&str; 17] = [
    "2022-06-02-preview",
    "2022-07-02-preview",
    "2022-09-02-preview",
    "2023-03-15-preview",
    "2023-06-15-preview",
    "2023-08-15-preview",
    "2023-10-15",
    "2024-02-02-preview",
    "2024-04-01",
    "2024-05-02-preview",
    "2025-03-01",
    "2025-04-01-preview",
    "2025-08-01-preview",
    "2026-02-01-preview",
    "2026-03-02-preview",
    "2026-06-01",
    "2026-06-02-preview",
];

/// A published api-version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion(&'static str);

/// Properties that came later than their resource: a path in which `*` is each element of an array, the first preview
/// that knows it, the first stable version that does.
const FEATURES: &[(&str, &str, Option<&str>)] = &[
    ("identity", "2023-06-15-preview", Some("2023-10-15")),
    ("properties.hubProfile", "2023-03-15-preview", Some("2024-04-01")),
    ("properties.status.lastOperationId", "2025-04-01-preview", Some("2025-03-01")),
    ("properties.status.lastOperationError", "2025-04-01-preview", Some("2025-03-01")),
    ("properties.labels", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.updateStrategyId", "2023-08-15-preview", Some("2023-10-15")),
    ("properties.autoUpgradeProfileId", "2025-04-01-preview", Some("2025-03-01")),
    ("properties.targetKubernetesVersion", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.longTermSupport", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.autoUpgradeProfileStatus.lastTriggerMessage", "2026-06-02-preview", None),
    ("properties.managedClusterUpdate.nodeImageSelection", "2023-06-15-preview", Some("2023-10-15")),
    (
        "properties.managedClusterUpdate.nodeImageSelection.customNodeImageVersions",
        "2024-05-02-preview",
        Some("2025-03-01"),
    ),
    ("properties.strategy.stages.*.maxConcurrency", "2026-02-01-preview", Some("2026-06-01")),
    ("properties.strategy.stages.*.groups.*.maxConcurrency", "2026-02-01-preview", Some("2026-06-01")),
    ("properties.strategy.stages.*.maxAllowedFailures", "2026-06-02-preview", None),
    ("properties.strategy.stages.*.groups.*.maxAllowedFailures", "2026-06-02-preview", None),
    ("properties.strategy.stages.*.memberSelector", "2026-06-02-preview", None),
    ("properties.strategy.stages.*.groups.*.memberSelector", "2026-06-02-preview", None),
    ("properties.strategy.stages.*.beforeGates", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.strategy.stages.*.afterGates", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.strategy.stages.*.groups.*.beforeGates", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.strategy.stages.*.groups.*.afterGates", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.strategy.stages.*.beforeGates.*.scheduledStartConfiguration", "2026-06-02-preview", None),
    ("properties.strategy.stages.*.groups.*.beforeGates.*.scheduledStartConfiguration", "2026-06-02-preview", None),
    ("properties.status.nodeImageSelection", "2023-06-15-preview", Some("2023-10-15")),
    ("properties.status.failureCount", "2026-06-02-preview", None),
    ("properties.status.stages.*.failureCount", "2026-06-02-preview", None),
    ("properties.status.stages.*.groups.*.failureCount", "2026-06-02-preview", None),
    ("properties.status.stages.*.maxAllowedFailures", "2026-06-02-preview", None),
    ("properties.status.stages.*.groups.*.maxAllowedFailures", "2026-06-02-preview", None),
    ("properties.status.stages.*.maxConcurrency", "2026-02-01-preview", Some("2026-06-01")),
    ("properties.status.stages.*.groups.*.maxConcurrency", "2026-02-01-preview", Some("2026-06-01")),
    ("properties.scheduledStartProperties", "2026-06-02-preview", None),
    ("properties.status.stages.*.beforeGates", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.status.stages.*.afterGates", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.status.stages.*.groups.*.beforeGates", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.status.stages.*.groups.*.afterGates", "2025-04-01-preview", Some("2026-06-01")),
    ("properties.status.stages.*.groups.*.members.*.message", "2023-06-15-preview", Some("2023-10-15")),
];

/// What flotta adds to the documented API (`docs/extensions.md`): kept where a PUT leaves it out.
const EXTENSIONS: &[&str] = &[
    "properties.startAfter",
    "properties.trigger",
    "properties.managedClusterUpdate.nodeImageSelection.acceptNewer",
    "properties.strategy.stages.*.strict",
    "properties.strategy.stages.*.groups.*.strict",
    "properties.strategy.stages.*.minSuccess",
    "properties.strategy.stages.*.groups.*.minSuccess",
    "properties.strategy.stages.*.beforeGates.*.approvalPolicy",
    "properties.strategy.stages.*.afterGates.*.approvalPolicy",
    "properties.strategy.stages.*.groups.*.beforeGates.*.approvalPolicy",
    "properties.strategy.stages.*.groups.*.afterGates.*.approvalPolicy",
    "properties.strategy.stages.*.beforeGates.*.scheduledStartConfiguration.timeZone",
    "properties.strategy.stages.*.groups.*.beforeGates.*.scheduledStartConfiguration.timeZone",
];

impl ApiVersion {
    /// The newest version. It knows everything that is documented.
    pub const NEWEST: Self = Self(PUBLISHED[PUBLISHED.len() - 1]);

    /// Every published version, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        PUBLISHED.into_iter().map(Self)
    }

    /// The version a request asks for.
    pub fn of(query: &Query) -> Result<Self, ArmError> {
        match query.get("api-version") {
            None | Some("") => {
                let message = format!("the api-version query parameter is required: use ?api-version={}", Self::NEWEST);
                Err(ArmError::new(400, "MissingApiVersionParameter", message).at("api-version"))
            }
            Some(text) => Self::parse(text),
        }
    }

    /// Reads a version.
    pub fn parse(text: &str) -> Result<Self, ArmError> {
        let found = PUBLISHED.into_iter().find(|version| version.eq_ignore_ascii_case(text));
        found.map(Self).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            let supported = PUBLISHED.join(", ");
            let message = format!("the api-version '{shown}' is not supported; supported are {supported}");
            ArmError::new(400, "InvalidApiVersionParameter", message).at("api-version")
        })
    }

    /// The version as text.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    fn is_preview(self) -> bool {
        self.0.ends_with("-preview")
    }

    /// Whether a feature is known. Dates sort as text.
    fn since(self, preview: &str, stable: Option<&str>) -> bool {
        if self.is_preview() { self.0 >= preview } else { stable.is_some_and(|first| self.0 >= first) }
    }

    fn unknown(self) -> impl Iterator<Item = Vec<&'static str>> {
        let unknown = FEATURES.iter().filter(move |(_, preview, stable)| !self.since(preview, *stable));
        unknown.map(|(path, ..)| path.split('.').collect())
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Drops what a version does not know from a resource, and objects that become empty by it.
pub fn strip(mut value: Value, version: ApiVersion) -> Value {
    for path in version.unknown() {
        remove(&mut value, &path);
    }
    value
}

fn remove(value: &mut Value, path: &[&str]) {
    match (path, value) {
        ([last], Value::Object(object)) => {
            object.remove(*last);
        }
        (["*", rest @ ..], Value::Array(elements)) => elements.iter_mut().for_each(|element| remove(element, rest)),
        ([name, rest @ ..], Value::Object(object)) => {
            let Some(child) = object.get_mut(*name) else { return };
            let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
            let was_empty = empty(child);
            remove(child, rest);
            if empty(child) && !was_empty {
                object.remove(*name);
            }
        }
        _ => {}
    }
}

/// What a PUT by a version means, given the stored resource in its newest form: properties that the version cannot know
/// are taken from the stored resource, and those that flotta adds too where they are left out (`null` says: remove it).
/// Stages and groups are the same where their names are, gates where place and type are.
pub fn merge_unknown(stored: &Value, incoming: Value, version: ApiVersion) -> Value {
    let mut merged = strip(incoming, version);
    // A fleet may be sent without properties, and has some to keep all the same.
    let bare = merged.as_object_mut().filter(|top| top.get("properties").is_none_or(Value::is_null));
    let was_bare = bare.map(|top| top.insert("properties".into(), Value::Object(Map::new()))).is_some();
    for path in version.unknown() {
        keep(stored, &mut merged, &path, strategy::goes_with);
    }
    // After the others: what stands beside a property tells whether it can be kept.
    for path in EXTENSIONS {
        let path: Vec<&str> = path.split('.').collect();
        keep(stored, &mut merged, &path, |key, value, beside| {
            !beside.contains_key(key) && strategy::goes_with(key, value, beside)
        });
    }
    if let (true, Some(top)) = (was_bare, merged.as_object_mut()) {
        top.retain(|key, value| key != "properties" || value.as_object().is_none_or(|value| !value.is_empty()));
    }
    merged
}

/// Whether the property of this name and stored value is to be kept in an object.
type Wanted = fn(&str, &Value, &Map<String, Value>) -> bool;

fn keep(stored: &Value, merged: &mut Value, path: &[&str], wanted: Wanted) {
    match (path, stored, merged) {
        ([last], Value::Object(stored), Value::Object(merged)) => {
            if let Some(value) = stored.get(*last).filter(|value| wanted(last, value, merged)) {
                merged.insert((*last).into(), value.clone());
            }
        }
        (["*", rest @ ..], Value::Array(stored), Value::Array(merged)) => {
            for (index, element) in merged.iter_mut().enumerate() {
                if let Some(twin) = twin(stored, element, index) {
                    keep(twin, element, rest, wanted);
                }
            }
        }
        ([name, rest @ ..], Value::Object(stored), Value::Object(merged)) => {
            if let (Some(stored), Some(merged)) = (stored.get(*name), merged.get_mut(*name)) {
                keep(stored, merged, rest, wanted);
            }
        }
        _ => {}
    }
}

/// The stored element that an incoming one replaces.
fn twin<'a>(stored: &'a [Value], element: &Value, index: usize) -> Option<&'a Value> {
    match element.get("name") {
        Some(name) => stored.iter().find(|stored| stored.get("name") == Some(name)),
        None => stored.get(index).filter(|stored| stored.get("type") == element.get("type")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(text: &str) -> ApiVersion {
        ApiVersion::parse(text).expect(text)
    }

    fn strategy(stages: Value) -> Value {
        json!({"properties": {"strategy": {"stages": stages}}})
    }

    #[test]
    fn api0_missing_and_unknown_versions_are_refused_with_the_way_out() {
        let of = |query: &str| ApiVersion::of(&Query::parse(query).expect("query"));
        assert_eq!(of("api-version=2026-06-01").map(ApiVersion::as_str), Ok("2026-06-01"));
        assert_eq!(of("").expect_err("missing").code, "MissingApiVersionParameter");
        let unknown = of("api-version=2026-05-01-preview").expect_err("never published");
        assert_eq!((unknown.status, unknown.code.as_str()), (400, "InvalidApiVersionParameter"));
        assert!(ApiVersion::all().all(|version| unknown.message.contains(version.as_str())), "{unknown}");
    }

    #[test]
    fn api1_answers_leave_out_what_a_version_does_not_know() {
        let full = strategy(json!([{
            "name": "s", "maxConcurrency": "3", "maxAllowedFailures": "1", "memberSelector": {"byLabel": "a"},
            "beforeGates": [
                {"type": "Approval"},
                {"type": "ScheduledStart", "scheduledStartConfiguration": {"startDay": "Friday"}}
            ],
            "groups": [{"name": "g", "maxConcurrency": "3", "afterGates": [{"type": "Approval"}]}],
        }]));
        assert_eq!(strip(full.clone(), ApiVersion::NEWEST), full);
        let stable = strategy(json!([{
            "name": "s", "maxConcurrency": "3",
            "beforeGates": [{"type": "Approval"}, {"type": "ScheduledStart"}],
            "groups": [{"name": "g", "maxConcurrency": "3", "afterGates": [{"type": "Approval"}]}],
        }]));
        assert_eq!(strip(full.clone(), version("2026-06-01")), stable);
        let old = strategy(json!([{"name": "s", "groups": [{"name": "g"}]}]));
        assert_eq!(strip(full.clone(), version("2025-03-01")), old, "a later date, but stable");
        let gated = strip(full, version("2025-04-01-preview"));
        assert!(gated.pointer("/properties/strategy/stages/0/beforeGates").is_some(), "{gated}");
    }

    #[test]
    fn api1_objects_emptied_by_a_version_go_and_empty_ones_stay() {
        let member = json!({"properties": {"labels": {"a": "b"}, "status": {"lastOperationId": "x"}}});
        assert_eq!(strip(member, version("2023-10-15")), json!({}));
        let run = json!({"properties": {"status": {"nodeImageSelection": {}, "failureCount": 0}}});
        let expect = json!({"properties": {"status": {"nodeImageSelection": {}}}});
        assert_eq!(strip(run, version("2023-10-15")), expect);
        let sent_empty = json!({"properties": {"status": {}}});
        assert_eq!(strip(sent_empty.clone(), version("2023-10-15")), sent_empty);
    }

    #[test]
    fn choice_put_by_an_old_version_keeps_fields_that_it_cannot_know() {
        let stored = strategy(json!([
            {"name": "a", "maxAllowedFailures": "1", "afterStageWaitInSeconds": 5, "groups": [
                {"name": "g", "maxConcurrency": "3", "beforeGates": [{"type": "Approval"}]}]},
            {"name": "gone", "maxAllowedFailures": "2", "groups": [{"name": "h"}]},
        ]));
        let incoming = strategy(json!([
            {"name": "new", "groups": [{"name": "n", "maxConcurrency": "unknown here"}]},
            {"name": "a", "groups": [{"name": "g"}]},
        ]));
        let expect = strategy(json!([
            {"name": "new", "groups": [{"name": "n"}]},
            {"name": "a", "maxAllowedFailures": "1", "groups": [
                {"name": "g", "maxConcurrency": "3", "beforeGates": [{"type": "Approval"}]}]},
        ]));
        assert_eq!(merge_unknown(&stored, incoming.clone(), version("2023-10-15")), expect);
        assert_eq!(merge_unknown(&stored, incoming.clone(), ApiVersion::NEWEST), incoming, "the newest says it all");
    }

    #[test]
    fn choice_a_put_without_properties_keeps_those_that_its_version_cannot_know() {
        let stored = json!({"location": "a", "properties": {"hubProfile": {"dnsPrefix": "x"}}});
        let old = version("2023-10-15");
        assert_eq!(merge_unknown(&stored, json!({"location": "a"}), old), stored);
        assert_eq!(merge_unknown(&json!({}), json!({"location": "a"}), old), json!({"location": "a"}));
    }

    #[test]
    fn choice_a_scheduled_gate_survives_a_put_by_a_version_that_cannot_say_when() {
        let gate = json!({"type": "ScheduledStart", "scheduledStartConfiguration": {"startDay": "Friday"}});
        let stored = strategy(json!([{"name": "a", "beforeGates": [gate]}]));
        let incoming = strategy(json!([{"name": "a", "beforeGates": [{"type": "ScheduledStart"}]}]));
        assert_eq!(merge_unknown(&stored, incoming, version("2026-06-01")), stored);
        let approval = strategy(json!([{"name": "a", "beforeGates": [{"type": "Approval"}]}]));
        let merged = merge_unknown(&stored, approval.clone(), version("2026-06-01"));
        assert_eq!(merged, approval, "a gate of another type is another gate");
    }
}
