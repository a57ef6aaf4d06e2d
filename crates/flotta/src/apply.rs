//! `flotta apply`: resources from a file, put in the order in which one needs the other, and left alone where they are
//! there and equal.

use std::path::Path;

use flotta_model::{FleetName, Name};
use serde_json::{Map, Value};

use crate::{
    cli::Write,
    client::{http::Api, resources::Kind},
    failure::{Failure, Kind as Blame},
    fields,
};

/// The longest file, in bytes.
const LONGEST: usize = 16 << 20;
/// The most documents in a file.
const MOST: usize = 10_000;

/// A resource as a file wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Its kind.
    pub kind: Kind,
    /// Its fleet, where the file names one; of a fleet, itself.
    pub fleet: Option<FleetName>,
    /// Its name.
    pub name: String,
    /// The body to put.
    pub body: Value,
}

/// What became of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not there.
    Created,
    /// It was there, and is another now.
    Changed,
    /// It was there and equal.
    Unchanged,
}

impl Outcome {
    /// As people say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Reads a file, or standard input where it is `-`.
pub fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read;
    let shown = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let failed = |reason: String| Failure::new(Blame::Usage, format!("cannot read {shown}"), reason);
    let mut text = String::new();
    let limit = LONGEST as u64 + 1;
    let read = match path == Path::new("-") {
        true => std::io::stdin().take(limit).read_to_string(&mut text),
        false => std::fs::File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text)),
    };
    match read {
        Ok(_) if text.len() > LONGEST => Err(failed(format!("it is longer than {LONGEST} bytes"))),
        Ok(_) => Ok(text),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// The documents of a text, YAML or JSON.
pub fn documents(text: &str) -> Result<Vec<Value>, Failure> {
    let json: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    if let Ok(documents) = json {
        return Ok(documents);
    }
    // `no` and `on` are words here, as in YAML 1.2: a label may have them.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        Failure::new(Blame::Usage, "the file is neither YAML nor JSON", first_line(&error.to_string()))
    })
}

/// What an error says, without the picture of the place that comes after it.
pub fn first_line(error: &str) -> &str {
    error.lines().next().unwrap_or_default().trim_start_matches("error: ")
}

/// The one document of a text.
pub fn only_document(text: &str) -> Result<Value, Failure> {
    let mut documents = documents(text)?;
    match (documents.pop(), documents.len()) {
        (Some(only), 0) => Ok(only),
        (_, more) => {
            Err(Failure::new(Blame::Usage, "the file has to hold one document", format!("it holds {}", more + 1)))
        }
    }
}

/// Documents one by one: a list counts as its elements.
fn flat(documents: Vec<Value>) -> Vec<Value> {
    let elements = documents.into_iter().flat_map(|document| match document {
        Value::Array(elements) => elements,
        Value::Null => Vec::new(),
        other => vec![other],
    });
    elements.collect()
}

/// The resources of a text, in the order in which they are put.
pub fn parse(text: &str) -> Result<Vec<Wanted>, Failure> {
    let documents = flat(documents(text)?);
    if documents.is_empty() {
        return Err(Failure::new(Blame::Usage, "nothing to apply", "the file holds no document"));
    }
    if documents.len() > MOST {
        return Err(Failure::new(Blame::Usage, "the file is too large", format!("more than {MOST} documents")));
    }
    let numbered = documents.into_iter().enumerate();
    let mut wanted = numbered.map(|(index, document)| one(index + 1, document)).collect::<Result<Vec<_>, _>>()?;
    wanted.sort_by_key(|wanted| wanted.kind);
    let mut fleets =
        wanted.iter().filter(|wanted| wanted.kind == Kind::Fleet).filter_map(|wanted| wanted.fleet.clone());
    if let (Some(only), None) = (fleets.next(), fleets.next()) {
        for wanted in &mut wanted {
            wanted.fleet.get_or_insert_with(|| only.clone());
        }
    }
    Ok(wanted)
}

fn one(number: usize, document: Value) -> Result<Wanted, Failure> {
    let wrong = |field: &str, reason: String| Failure {
        field: Some(field.into()),
        ..Failure::new(Blame::Usage, format!("document {number} of the file is wrong"), reason)
    };
    let Value::Object(map) = &document else {
        return Err(wrong("", "it is not a map with 'kind', 'name' and 'properties'".into()));
    };
    let kind = kind_of(map).map_err(|reason| wrong("kind", reason))?;
    fields::check(&format!("document {number} of the file"), &document, fields::document(kind)).map_err(|failure| {
        match failure.field.as_deref().is_some_and(|field| field.contains('.')) {
            true => failure,
            false => failure.hint(format!("what describes a {} goes below 'properties'", kind.word())),
        }
    })?;
    let string = |key: &str| match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(key, format!("'{other}' is not text: put it in quotes"))),
    };
    let full = string("name")?.ok_or_else(|| wrong("name", "it is missing".into()))?;
    let named = string("fleet")?;
    // ARM templates name a child as fleet/child.
    let (owner, name) = match full.split_once('/') {
        Some((owner, name)) if kind != Kind::Fleet => (Some(owner.to_owned()), name.to_owned()),
        _ => (named, full),
    };
    let owner = if kind == Kind::Fleet { Some(name.clone()) } else { owner };
    if kind != Kind::Fleet {
        name.parse::<Name>().map_err(|error| wrong("name", error.to_string()))?;
    }
    let fleet = owner.map(|fleet| fleet.parse()).transpose().map_err(|error| wrong("fleet", format!("{error}")))?;
    // What names a resource is no part of its body, nor is what ARM writes around it.
    let in_body = |key: &str| matches!(key, "properties" | "location" | "tags" | "identity");
    let body = map.iter().filter(|(key, _)| in_body(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(Wanted { kind, fleet, name, body: Value::Object(body) })
}

fn kind_of(map: &Map<String, Value>) -> Result<Kind, String> {
    let (kind, arm) = (map.get("kind"), map.get("type"));
    let known = Kind::ALL.map(Kind::word).join(", ");
    let ways = format!("use kind: {known}, or ARM's type: such as {}", Kind::Strategy.arm_type());
    let given = kind.or(arm).ok_or_else(|| format!("it is missing: {ways}"))?;
    let text = given.as_str().unwrap_or_default();
    let known = |kind: &Kind| text.eq_ignore_ascii_case(kind.word()) || text.eq_ignore_ascii_case(kind.arm_type());
    Kind::ALL.into_iter().find(known).ok_or_else(|| format!("{given} is no kind of resource: {ways}"))
}

/// Puts a resource unless it is there and equal.
pub async fn apply(api: &Api, wanted: &Wanted, write: &Write) -> Result<Outcome, Failure> {
    let api = match &wanted.fleet {
        Some(fleet) => api.with_target(api.target.with_fleet(fleet.clone())),
        None => api.clone(),
    };
    let wanted = &with_strategy_id(&api, wanted)?;
    let what = format!("look at {} '{}'", wanted.kind.singular(), wanted.name);
    let url = api.target.resource_url(wanted.kind, &wanted.name)?;
    let before = api.find(&what, url).await?.map(|answer| answer.body);
    if before.as_ref().is_some_and(|before| essence(before, &wanted.body) == essence(&wanted.body, &wanted.body)) {
        return Ok(Outcome::Unchanged);
    }
    let verb = if before.is_some() { "change" } else { "create" };
    let body = before.as_ref().map_or_else(|| wanted.body.clone(), |before| without_the_rest(before, &wanted.body));
    let after = api.put_as(verb, wanted.kind, &wanted.name, &body, write).await?.body;
    match before {
        None => Ok(Outcome::Created),
        Some(before) if essence(&before, &wanted.body) == essence(&after, &wanted.body) => Ok(Outcome::Unchanged),
        Some(_) => Ok(Outcome::Changed),
    }
}

/// A run may name its strategy, where ARM wants the whole id.
fn with_strategy_id(api: &Api, wanted: &Wanted) -> Result<Wanted, Failure> {
    let mut wanted = wanted.clone();
    if let Some(Value::String(strategy)) = wanted.body.pointer_mut("/properties/updateStrategyId") {
        *strategy = api.target.strategy_id(strategy)?;
    }
    Ok(wanted)
}

/// What a PUT keeps where it is left out, since only flotta knows it: in stages and groups, and in gates.
const KEPT: [&str; 2] = ["strict", "minSuccess"];
const KEPT_OF_GATES: [&str; 2] = ["/approvalPolicy", "/scheduledStartConfiguration/timeZone"];

/// The body that makes a resource what is wanted, and nothing more: what only the server has is said to be gone.
fn without_the_rest(before: &Value, wanted: &Value) -> Value {
    let mut body = wanted.clone();
    let stages = "/properties/strategy/stages";
    if let (Some(before), Some(stages)) = (before.pointer(stages), body.pointer_mut(stages)) {
        each(before, stages, by_name, &mut |before, stage| {
            drop_kept(before, stage);
            if let Some(groups) = stage.get_mut("groups") {
                each(&before["groups"], groups, by_name, &mut drop_kept);
            }
        });
    }
    body
}

/// Elements of two lists that are the same thing.
fn each(
    before: &Value,
    wanted: &mut Value,
    same: fn(&[Value], usize, &Value) -> Option<usize>,
    act: &mut dyn FnMut(&Value, &mut Value),
) {
    let (Some(before), Some(wanted)) = (before.as_array(), wanted.as_array_mut()) else { return };
    for (at, wanted) in wanted.iter_mut().enumerate() {
        if let Some(found) = same(before, at, wanted) {
            act(&before[found], wanted);
        }
    }
}

/// Stages and groups are the same where their names are.
fn by_name(before: &[Value], _: usize, wanted: &Value) -> Option<usize> {
    before.iter().position(|before| before.get("name") == wanted.get("name"))
}

/// Gates are the same where place and type are.
fn by_place(before: &[Value], at: usize, wanted: &Value) -> Option<usize> {
    before.get(at).filter(|before| before.get("type") == wanted.get("type")).map(|_| at)
}

/// Says of a stage or group, and of its gates, what is gone.
fn drop_kept(before: &Value, wanted: &mut Value) {
    let gone = KEPT.into_iter().filter(|key| before.get(key).is_some());
    if let Value::Object(wanted) = wanted {
        gone.for_each(|key| {
            wanted.entry(key).or_insert(Value::Null);
        });
    }
    for side in ["beforeGates", "afterGates"] {
        let Some(gates) = wanted.get_mut(side) else { continue };
        each(&before[side], gates, by_place, &mut |before, gate| {
            for path in KEPT_OF_GATES.into_iter().filter(|path| before.pointer(path).is_some()) {
                let Some((parent, key)) = path.rsplit_once('/') else { continue };
                if let Some(Value::Object(parent)) = gate.pointer_mut(parent) {
                    parent.entry(key).or_insert(Value::Null);
                }
            }
        });
    }
}

/// What of a resource its owner decides: without what the server adds, and without what is empty.
fn essence(resource: &Value, wanted: &Value) -> Value {
    let mut essence = resource.clone();
    let strip = |value: Option<&mut Value>, keys: &[&str]| {
        if let Some(Value::Object(map)) = value {
            map.retain(|key, _| !keys.contains(&key.as_str()));
        }
    };
    strip(Some(&mut essence), &["id", "name", "type", "eTag", "systemData"]);
    if wanted.get("location").is_none() {
        strip(Some(&mut essence), &["location"]);
    }
    strip(essence.get_mut("properties"), &["provisioningState", "status", "autoUpgradeProfileId", "meshProperties"]);
    // A run made from a strategy shows its copy of it.
    if wanted.pointer("/properties/updateStrategyId").is_some() && wanted.pointer("/properties/strategy").is_none() {
        strip(essence.get_mut("properties"), &["strategy"]);
    }
    if let Some(Value::Object(labels)) = essence.pointer_mut("/properties/labels") {
        labels.retain(|key, _| !key.starts_with("fleet.azure.com/"));
    }
    without_empty(essence)
}

fn without_empty(value: Value) -> Value {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(kept.filter(|(_, value)| !empty(value)).collect())
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(without_empty).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        cli::Connection,
        client::context::{Config, resolve},
    };

    fn names(text: &str) -> Vec<(Kind, Option<String>, String)> {
        let wanted = parse(text).expect("parse");
        wanted.into_iter().map(|w| (w.kind, w.fleet.map(|fleet| fleet.to_string()), w.name)).collect()
    }

    #[test]
    fn documents_of_any_kind_come_in_the_order_they_need_each_other() {
        let text = "
kind: UpdateRun
name: up
properties: {managedClusterUpdate: {upgrade: {type: Full, kubernetesVersion: '1.34'}}}
---
type: Microsoft.ContainerService/fleets/updateStrategies
name: shop/careful
properties: {strategy: {stages: []}}
---
kind: fleetmember
name: m
fleet: other
properties: {}
---
kind: Fleet
name: shop
location: local
";
        let fleet = |name: &str| Some(name.to_owned());
        let expect = [
            (Kind::Fleet, fleet("shop"), "shop".to_owned()),
            (Kind::Member, fleet("other"), "m".into()),
            (Kind::Strategy, fleet("shop"), "careful".into()),
            (Kind::Run, fleet("shop"), "up".into()),
        ];
        assert_eq!(names(text), expect);
    }

    #[test]
    fn json_may_be_one_object_a_list_or_several() {
        let one = r#"{"kind": "Fleet", "name": "a"}"#;
        assert_eq!(names(one).len(), 1);
        assert_eq!(names(&format!("[{one}, {one}]")).len(), 2);
        assert_eq!(names(&format!("{one}\n{one}")).len(), 2);
    }

    #[test]
    fn words_that_old_yaml_took_for_booleans_are_words() {
        let wanted = parse("kind: FleetMember\nname: on\nproperties: {labels: {gpu: no, spot: true}}").expect("parse");
        assert_eq!(wanted[0].name, "on");
        assert_eq!(wanted[0].body, json!({"properties": {"labels": {"gpu": "no", "spot": true}}}));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_way_out() {
        let cases = [
            ("kind: Gate\nname: a", "UpdateStrategy"),
            ("name: a", "it is missing: use kind:"),
            ("kind: Fleet", "it is missing"),
            ("kind: UpdateStrategy\nname: a\nstages: []", "goes below 'properties'"),
            ("kind: UpdateStrategy\nname: a\nproperties: {strategy: {stage: []}}", "did you mean 'stages'?"),
            (
                "kind: UpdateRun\nname: a\nproperties: {managedClusterUpdate: {upgrade: {version: '1.34'}}}",
                "properties.managedClusterUpdate.upgrade.version",
            ),
            ("kind: Fleet\nname: 7", "quotes"),
            ("kind: FleetMember\nfleet: No\nname: a", "not a valid name"),
            ("- 7", "is not a map"),
            ("", "no document"),
            ("a: [", "neither YAML nor JSON"),
        ];
        for (text, expect) in cases {
            let failure = parse(text).expect_err(text);
            assert_eq!(failure.kind, Blame::Usage);
            assert!(failure.to_string().contains(expect), "{text}: {failure}");
        }
    }

    #[test]
    fn the_body_is_what_is_put_without_what_only_names_it() {
        let text = "type: Microsoft.ContainerService/fleets\nname: a\napiVersion: x\nlocation: local\ntags: {b: c}";
        let wanted = parse(text).expect("parse").remove(0);
        assert_eq!(wanted.body, json!({"location": "local", "tags": {"b": "c"}}));
    }

    #[test]
    fn what_the_server_adds_is_no_difference() {
        let wanted = json!({"properties": {"clusterResourceId": "x", "group": "eu", "labels": {"a": "b"}}});
        let there = json!({"id": "i", "name": "m", "eTag": "e", "systemData": {}, "properties": {
            "clusterResourceId": "x", "group": "eu", "provisioningState": "Succeeded", "status": {"lastOperationId": "o"},
            "labels": {"a": "b", "fleet.azure.com/location": "l"}}});
        assert_eq!(essence(&there, &wanted), essence(&wanted, &wanted));
        let less = json!({"properties": {"clusterResourceId": "x", "labels": {"a": "b"}}});
        assert_ne!(essence(&there, &less), essence(&less, &less), "a group that is taken away is a change");
    }

    #[test]
    fn what_only_the_server_has_is_said_to_be_gone() {
        let strategy = |stage: Value| json!({"properties": {"strategy": {"stages": [stage]}}});
        let start = |more: Value| {
            let mut gate = json!({"type": "ScheduledStart", "scheduledStartConfiguration": {"startDay": "Friday"}});
            gate["scheduledStartConfiguration"]
                .as_object_mut()
                .expect("map")
                .extend(more.as_object().cloned().expect("map"));
            gate
        };
        let approval = |more: Value| {
            let mut gate = json!({"type": "Approval"});
            gate.as_object_mut().expect("map").extend(more.as_object().cloned().expect("map"));
            gate
        };
        let policy = json!({"approvalPolicy": {"approvers": 2}});
        let before = strategy(json!({"name": "a", "strict": true, "maxAllowedFailures": "1",
            "beforeGates": [approval(policy.clone()), start(json!({"timeZone": "Europe/Rome"}))],
            "groups": [{"name": "g", "minSuccess": "5", "afterGates": [approval(policy.clone())]}, {"name": "h", "strict": true}]}));
        let wanted = strategy(json!({"name": "a", "maxAllowedFailures": "1",
            "beforeGates": [approval(json!({})), start(json!({"utcOffset": "+01:00"}))],
            "groups": [{"name": "g", "minSuccess": "7", "afterGates": [approval(json!({}))]}, {"name": "new"}]}));
        let none = json!({"approvalPolicy": null});
        let expect = strategy(json!({"name": "a", "strict": null, "maxAllowedFailures": "1",
            "beforeGates": [approval(none.clone()), start(json!({"utcOffset": "+01:00", "timeZone": null}))],
            "groups": [{"name": "g", "minSuccess": "7", "afterGates": [approval(none)]}, {"name": "new"}]}));
        assert_eq!(without_the_rest(&before, &wanted), expect);
        assert_eq!(without_the_rest(&before, &before), before, "what is said stays as it is said");
        let moved = strategy(json!({"name": "b", "beforeGates": [approval(json!({}))]}));
        assert_eq!(without_the_rest(&before, &moved), moved, "what is new has nothing to lose");
        let fleet = json!({"location": "local"});
        assert_eq!(without_the_rest(&fleet, &fleet), fleet);
    }

    #[test]
    fn a_run_may_name_its_strategy_by_name_or_id() {
        let connection = Connection { fleet: Some("shop".parse().expect("fleet")), ..Connection::default() };
        let api = Api::new(resolve(&connection, &Config::default()).expect("target")).expect("client");
        let id = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/flotta/providers/Microsoft.ContainerService/fleets/shop/updateStrategies/careful";
        for given in ["careful", id] {
            let text = format!("kind: UpdateRun\nname: up\nproperties: {{updateStrategyId: {given}}}");
            let wanted = with_strategy_id(&api, &parse(&text).expect("parse")[0]).expect("id");
            assert_eq!(wanted.body, json!({"properties": {"updateStrategyId": id}}));
        }
    }

    #[test]
    fn a_run_made_from_a_strategy_equals_itself() {
        let wanted = json!({"properties": {"updateStrategyId": "/s", "managedClusterUpdate": {"upgrade": {"type": "NodeImageOnly"}}}});
        let mut there = wanted.clone();
        there["properties"]["strategy"] = json!({"stages": [{"name": "a"}]});
        assert_eq!(essence(&there, &wanted), essence(&wanted, &wanted));
    }
}
