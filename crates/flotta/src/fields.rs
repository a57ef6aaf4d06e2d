//! Which fields a resource has, so that a mistyped one is refused here: a server of ARM ignores what it does not know,
//! and a limit that is ignored is no limit.

use serde_json::Value;

use crate::{
    client::resources::Kind,
    failure::{Failure, Kind as Blame},
};

/// The most further unknown fields that are told.
const MOST_TOLD: usize = 10;

/// What a value looks like, as far as names of fields go.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Anything: plain values, maps with keys of the user's own, and what only the server writes.
    Any,
    /// These fields.
    Fields(&'static [(&'static str, Shape)]),
    /// Elements of one shape.
    List(&'static Shape),
}

use Shape::{Any, Fields, List};

const SELECTOR: Shape = Fields(&[("byLabel", Any)]);
const GATE: Shape = Fields(&[
    ("displayName", Any),
    ("type", Any),
    (
        "scheduledStartConfiguration",
        Fields(&[("startDay", Any), ("startTime", Any), ("utcOffset", Any), ("timeZone", Any)]),
    ),
    (
        "approvalPolicy",
        Fields(&[("approvers", Any), ("expiresAfterSeconds", Any), ("creatorMayApprove", Any), ("rejectable", Any)]),
    ),
]);
const GROUP: Shape = Fields(&[
    ("name", Any),
    ("memberSelector", SELECTOR),
    ("maxConcurrency", Any),
    ("maxAllowedFailures", Any),
    ("strict", Any),
    ("minSuccess", Any),
    ("beforeGates", List(&GATE)),
    ("afterGates", List(&GATE)),
]);
const STAGE: Shape = Fields(&[
    ("name", Any),
    ("groups", List(&GROUP)),
    ("memberSelector", SELECTOR),
    ("maxConcurrency", Any),
    ("maxAllowedFailures", Any),
    ("strict", Any),
    ("minSuccess", Any),
    ("afterStageWaitInSeconds", Any),
    ("beforeGates", List(&GATE)),
    ("afterGates", List(&GATE)),
]);

/// Stages as a list.
pub const STAGES: Shape = List(&STAGE);
/// A strategy, as it stands in a run or in the resource of its own.
pub const STRATEGY: Shape = Fields(&[("stages", STAGES)]);

/// The properties of an update strategy.
pub const STRATEGY_PROPERTIES: Shape = Fields(&[("strategy", STRATEGY), ("provisioningState", Any)]);

const FLEET_PROPERTIES: Shape = Fields(&[
    (
        "hubProfile",
        Fields(&[
            ("dnsPrefix", Any),
            (
                "apiServerAccessProfile",
                Fields(&[("enablePrivateCluster", Any), ("enableVnetIntegration", Any), ("subnetId", Any)]),
            ),
            ("agentProfile", Fields(&[("subnetId", Any), ("vmSize", Any)])),
            ("fqdn", Any),
            ("kubernetesVersion", Any),
            ("portalFqdn", Any),
        ]),
    ),
    ("provisioningState", Any),
    ("status", Any),
]);
const MEMBER_PROPERTIES: Shape = Fields(&[
    ("clusterResourceId", Any),
    ("group", Any),
    ("labels", Any),
    ("provisioningState", Any),
    ("status", Any),
    ("meshProperties", Any),
]);
const RUN_PROPERTIES: Shape = Fields(&[
    ("managedClusterUpdate", UPDATE),
    ("strategy", STRATEGY),
    ("updateStrategyId", Any),
    ("provisioningState", Any),
    ("status", Any),
    ("autoUpgradeProfileId", Any),
]);
const UPDATE: Shape = Fields(&[
    ("upgrade", Fields(&[("type", Any), ("kubernetesVersion", Any)])),
    ("nodeImageSelection", Fields(&[("type", Any), ("customNodeImageVersions", List(&Fields(&[("version", Any)])))])),
]);

/// A child of a fleet in a file: what names it, what ARM puts around it, and its properties.
macro_rules! document {
    ($properties:expr $(, $own:literal)*) => {
        Fields(&[
            ("kind", Any),
            ("name", Any),
            ("fleet", Any),
            ("properties", $properties),
            ("location", Any),
            $(($own, Any),)*
            ("type", Any),
            ("id", Any),
            ("eTag", Any),
            ("systemData", Any),
            ("apiVersion", Any),
        ])
    };
}

/// A whole resource in a file, as `flotta apply` takes it and `show` writes it.
pub fn document(kind: Kind) -> Shape {
    match kind {
        Kind::Fleet => document!(FLEET_PROPERTIES, "tags", "identity"),
        Kind::Member => document!(MEMBER_PROPERTIES),
        Kind::Strategy => document!(STRATEGY_PROPERTIES),
        Kind::Run => document!(RUN_PROPERTIES),
        Kind::Gate => document!(Any),
    }
}

/// Refuses fields that are not of the shape: `what` says where they were found, such as `document 2 of the file`.
pub fn check(what: &str, value: &Value, shape: Shape) -> Result<(), Failure> {
    let mut unknown = Vec::new();
    look(value, shape, String::new(), &mut unknown);
    let mut unknown = unknown.into_iter();
    let Some((field, cause)) = unknown.next() else { return Ok(()) };
    Err(Failure {
        field: Some(field.into()),
        details: unknown.take(MOST_TOLD).map(|(_, cause)| cause.into()).collect(),
        ..Failure::new(Blame::Usage, format!("{what} has a field that means nothing"), cause)
    })
}

/// Collects unknown fields: the path of each, and what is to be said of it.
fn look(value: &Value, shape: Shape, path: String, unknown: &mut Vec<(String, String)>) {
    match (shape, value) {
        (List(element), Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                look(value, *element, format!("{path}[{index}]"), unknown);
            }
        }
        (Fields(fields), Value::Object(map)) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match fields.iter().find(|(name, _)| name == key) {
                    Some((_, shape)) => look(value, *shape, path, unknown),
                    None => unknown.push((path.clone(), format!("'{path}' is unknown: {}", way_out(key, fields)))),
                }
            }
        }
        // That a value is of the wrong kind is for the server to say.
        _ => {}
    }
}

fn way_out(key: &str, fields: &[(&str, Shape)]) -> String {
    match fields.iter().map(|(name, _)| *name).min_by_key(|name| distance(key, name)) {
        Some(name) if distance(key, name) <= (name.len() / 3).max(1) => format!("did you mean '{name}'?"),
        _ => {
            let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            format!("use {}", names.join(", "))
        }
    }
}

/// How many letters lie between two names, whatever their case.
fn distance(a: &str, b: &str) -> usize {
    strsim::osa_distance(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mistyped_field_is_refused_with_its_path_and_the_right_name() {
        let cases = [
            (json!({"stages": [{"name": "a"}, {"maxConcurency": "1"}]}), "stages[1].maxConcurency", "'maxConcurrency'"),
            (
                json!({"stages": [{"max_allowed_failures": "1"}]}),
                "stages[0].max_allowed_failures",
                "'maxAllowedFailures'",
            ),
            (
                json!({"stages": [{"groups": [{"maxconcurrency": "1"}]}]}),
                "stages[0].groups[0].maxconcurrency",
                "'maxConcurrency'",
            ),
            (
                json!({"stages": [{"memberSelector": {"byLabels": "a"}}]}),
                "stages[0].memberSelector.byLabels",
                "'byLabel'",
            ),
            (
                json!({"stages": [{"beforeGates": [{"kind": "Approval"}]}]}),
                "stages[0].beforeGates[0].kind",
                "use displayName, type",
            ),
            (json!({"stages": [], "limit": 1}), "limit", "use stages"),
        ];
        for (value, path, way_out) in cases {
            let failure = check("the strategy", &value, STRATEGY).expect_err(path);
            assert_eq!((failure.kind, failure.field.as_deref()), (Blame::Usage, Some(path)));
            assert!(failure.cause.contains(way_out), "{failure}");
        }
    }

    #[test]
    fn all_unknown_fields_are_told_at_once() {
        let failure = check("it", &json!([{"nam": "a", "group": []}]), STAGES).expect_err("two");
        assert_eq!(
            failure.to_string(),
            "error: it has a field that means nothing\n  '[0].group' is unknown: did you mean 'groups'?\n  - '[0].nam' is unknown: did you mean 'name'?"
        );
    }

    #[test]
    fn keys_of_the_users_own_and_what_the_server_writes_are_no_fields() {
        let member = json!({"kind": "FleetMember", "id": "i", "eTag": "e", "systemData": {"x": 1}, "name": "m",
            "properties": {"labels": {"any/thing": "b"}, "status": {"lastOperationId": "o"}, "provisioningState": "Succeeded"}});
        assert_eq!(check("it", &member, document(Kind::Member)), Ok(()));
        let fleet = json!({"name": "f", "tags": {"a": "b"}, "identity": {"type": "None"}, "properties": {}});
        assert_eq!(check("it", &fleet, document(Kind::Fleet)), Ok(()));
        assert!(check("it", &fleet, document(Kind::Run)).is_err(), "a run has no tags");
    }
}
