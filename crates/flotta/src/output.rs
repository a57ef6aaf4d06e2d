//! How answers are shown: tables for people, JSON and YAML for programs.

use std::io::Write;

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use crate::{
    client::resources::Kind,
    failure::{Failure, Kind as Blame},
    gates,
};

/// How an answer is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// As the server sent it.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Writes to standard output; a reader that went away is no failure of ours.
pub fn say(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Blame::Failed, "cannot write the answer", error.to_string()))
        }
        _ => Ok(()),
    }
}

/// One resource.
pub fn show(format: Format, kind: Kind, value: &Value) -> Result<(), Failure> {
    match format {
        Format::Table => say(&table(kind, std::slice::from_ref(value), width())),
        _ => say(&document(format, value)?),
    }
}

/// Several resources.
pub fn list(format: Format, kind: Kind, values: &[Value]) -> Result<(), Failure> {
    match format {
        Format::Table if values.is_empty() => say(&format!("no {} found", kind.plural())),
        Format::Table => say(&table(kind, values, width())),
        _ => say(&document(format, &Value::Array(values.to_vec()))?),
    }
}

/// A value as JSON or YAML.
pub fn document(format: Format, value: &Value) -> Result<String, Failure> {
    let failed = |reason: String| Failure::new(Blame::Failed, "cannot write the answer", reason);
    match format {
        Format::Yaml => serde_saphyr::to_string(value)
            .map(|text| text.trim_end().to_owned())
            .map_err(|error| failed(error.to_string())),
        Format::Table | Format::Json => serde_json::to_string_pretty(value).map_err(|error| failed(error.to_string())),
    }
}

/// Columns of the terminal, where there is one.
pub fn width() -> Option<u16> {
    terminal_size::terminal_size().map(|(width, _)| width.0)
}

/// Text from outside without control characters, so that it cannot play with the terminal. Line breaks and tabs become
/// spaces.
pub fn clean(text: &str) -> String {
    let shown = |letter: char| match letter {
        '\n' | '\r' | '\t' => ' ',
        letter if letter.is_control() || is_direction(letter) => '\u{fffd}',
        letter => letter,
    };
    text.trim_end().chars().map(shown).collect()
}

/// Marks that turn the direction of text around.
fn is_direction(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Rows under upper-case headings, no wider than the terminal.
pub fn grid<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    width: Option<u16>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for row in rows {
        table.add_row(row.map(|cell| clean(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.trim_fmt()
}

/// A table of resources of one kind.
pub fn table(kind: Kind, values: &[Value], width: Option<u16>) -> String {
    let rows = values.iter();
    match kind {
        Kind::Fleet => grid(["NAME", "LOCATION", "STATE", "TAGS"], rows.map(fleet_row), width),
        Kind::Member => grid(["NAME", "GROUP", "STATE", "CLUSTER", "LABELS"], rows.map(member_row), width),
        Kind::Strategy => grid(["NAME", "STAGES"], rows.map(strategy_row), width),
        Kind::Gate => grid(gates::HEAD, rows.map(gates::row), width),
        Kind::Run => grid(["NAME", "TYPE", "VERSION", "STATE", "DONE", "STARTED"], rows.map(run_row), width),
    }
}

fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// `key=value` pairs; what the service itself adds to labels is left out.
fn pairs(value: Option<&Value>) -> String {
    let Some(map) = value.and_then(Value::as_object) else { return "-".into() };
    let own = map.iter().filter(|(key, _)| !key.starts_with("fleet.azure.com/"));
    let pairs: Vec<String> = own.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "-".into() } else { pairs.join(",") }
}

fn fleet_row(fleet: &Value) -> [String; 4] {
    let state = text(fleet, "/properties/provisioningState");
    [text(fleet, "/name"), text(fleet, "/location"), state, pairs(fleet.get("tags"))]
}

fn member_row(member: &Value) -> [String; 5] {
    let cluster = text(member, "/properties/clusterResourceId");
    let name = cluster.rsplit('/').next().unwrap_or_default().to_owned();
    let state = text(member, "/properties/provisioningState");
    let labels = pairs(member.pointer("/properties/labels"));
    [text(member, "/name"), text(member, "/properties/group"), state, name, labels]
}

fn strategy_row(strategy: &Value) -> [String; 2] {
    let stages = strategy.pointer("/properties/strategy/stages").and_then(Value::as_array);
    let stage = |stage: &Value| match stage.get("groups").and_then(Value::as_array).map_or(0, Vec::len) {
        0 | 1 => text(stage, "/name"),
        groups => format!("{} ({groups} groups)", text(stage, "/name")),
    };
    let stages: Vec<String> = stages.into_iter().flatten().map(stage).collect();
    [text(strategy, "/name"), stages.join(" → ")]
}

fn run_row(run: &Value) -> [String; 6] {
    let state = text(run, "/properties/status/status/state");
    let (ended, all) = members_ended(run);
    [
        text(run, "/name"),
        text(run, "/properties/managedClusterUpdate/upgrade/type"),
        text(run, "/properties/managedClusterUpdate/upgrade/kubernetesVersion"),
        state,
        format!("{ended}/{all}"),
        to_the_second(text(run, "/properties/status/status/startTime")),
    ]
}

/// A time as people read it; what is no time stays as it is.
pub fn to_the_second(time: String) -> String {
    time.parse::<jiff::Timestamp>().map_or(time, |at| format!("{at:.0}"))
}

/// Members of a run that came to an end, and all.
pub fn members_ended(run: &Value) -> (usize, usize) {
    let children = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let status = run.pointer("/properties/status").cloned().unwrap_or_default();
    let groups = children(&status, "stages").into_iter().flat_map(|stage| children(&stage, "groups"));
    let states: Vec<String> =
        groups.flat_map(|group| children(&group, "members")).map(|member| text(&member, "/status/state")).collect();
    let ended = states.iter().filter(|state| matches!(state.as_str(), "Completed" | "Failed" | "Skipped")).count();
    (ended, states.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(name: &str, labels: Value) -> Value {
        json!({"name": name, "properties": {
            "clusterResourceId": format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/{name}"),
            "group": "eu", "provisioningState": "Succeeded", "labels": labels}})
    }

    #[test]
    fn members_are_a_table_without_the_labels_of_the_service() {
        let members = [
            member("a", json!({"env": "prod", "fleet.azure.com/location": "westeurope"})),
            member("long-name", json!({})),
        ];
        insta::assert_snapshot!(table(Kind::Member, &members, None));
    }

    #[test]
    fn a_table_is_no_wider_than_the_terminal() {
        let members =
            [member("a-rather-long-name-of-a-member", json!({"environment": "production", "region": "westeurope"}))];
        let shown = table(Kind::Member, &members, Some(60));
        assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
    }

    #[test]
    fn fleets_strategies_and_runs_have_their_columns() {
        let fleet = json!({"name": "shop", "location": "local", "tags": {"a": "b"}, "properties": {"provisioningState": "Succeeded"}});
        let strategy = json!({"name": "careful", "properties": {"strategy": {"stages": [
            {"name": "canary", "groups": [{"name": "c"}]}, {"name": "prod", "groups": [{"name": "eu"}, {"name": "us"}]}]}}});
        let run = json!({"name": "up", "properties": {
            "managedClusterUpdate": {"upgrade": {"type": "Full", "kubernetesVersion": "1.34.2"}},
            "status": {"status": {"state": "Running", "startTime": "2026-01-01T00:00:00.920970856Z"}, "stages": [{"groups": [
                {"members": [{"status": {"state": "Completed"}}, {"status": {"state": "Running"}}]}, {"name": "empty"}]}]}}});
        let shown = [
            table(Kind::Fleet, &[fleet], None),
            table(Kind::Strategy, &[strategy], None),
            table(Kind::Run, &[run], None),
        ];
        insta::assert_snapshot!(shown.join("\n\n"));
    }

    #[test]
    fn text_from_outside_cannot_play_with_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\nc\u{202e}d\n"), "a\u{fffd}[2Jb c\u{fffd}d");
    }

    #[test]
    fn yaml_and_json_hold_the_same() {
        let value = json!({"b": [1, "2", {"c": "yes"}], "a": null});
        let yaml = document(Format::Yaml, &value).expect("yaml");
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).expect("read back"), value);
        let text = document(Format::Json, &value).expect("json");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("read back"), value);
    }
}
