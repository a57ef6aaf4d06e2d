//! `flotta gate`: what runs wait for people or a time at, and what people say to it.

use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    check,
    cli::{GateCommand, GateVerb, Which, Write, word},
    client::{
        http::{Api, Request},
        resources::Kind,
    },
    commands::connect,
    failure::{Failure, Kind as Blame},
    output::{self, Format, grid, say, to_the_second},
};

/// Letters of an id that are shown where the whole would be in the way.
const SHORT: usize = 8;
/// Gates told where it is not clear which is meant.
const MOST_TOLD: usize = 10;

/// A gate as the client sees it, read leniently.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gate {
    /// Its id.
    pub name: String,
    properties: Properties,
    system_data: Option<Made>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Properties {
    display_name: Option<String>,
    gate_type: String,
    state: String,
    target: Target,
    scheduled_start_properties: Option<Start>,
    approval_policy: Policy,
    approvals: Vec<Verdict>,
    rejection: Option<Verdict>,
    expires_at: Option<Timestamp>,
    expired_at: Option<Timestamp>,
    reached_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Target {
    update_run_properties: Place,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Place {
    name: String,
    stage: String,
    group: Option<String>,
    timing: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Start {
    start_day: String,
    start_time: String,
    utc_offset: String,
    time_zone: Option<String>,
    absolute_start_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Policy {
    approvers: usize,
    creator_may_approve: bool,
    rejectable: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { approvers: 1, creator_may_approve: true, rejectable: false }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Verdict {
    by: String,
    at: String,
    comment: Option<String>,
}

/// Who opened a gate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Made {
    last_modified_by: String,
    last_modified_at: String,
}

impl Gate {
    /// Reads the JSON of a gate; what is not understood is not shown.
    pub fn read(value: &Value) -> Self {
        serde_json::from_value(value.clone()).unwrap_or_default()
    }

    /// The first letters of its id, which are enough to name it.
    pub fn short(&self) -> &str {
        short(&self.name)
    }

    /// How people call it, such as `approval 'go' before stage 'production'`: as the server does in its reasons.
    pub fn title(&self) -> String {
        let (kind, place) = (self.kind(), self.place());
        match &place.group {
            Some(group) => format!("{kind} {} group '{group}'", place.timing.to_lowercase()),
            None => format!("{kind} {} stage '{}'", place.timing.to_lowercase(), place.stage),
        }
    }

    /// Such as `approval 'go'`.
    fn kind(&self) -> String {
        let kind = if self.is_approval() { "approval" } else { "scheduled start" };
        let name = self.properties.display_name.as_ref().map(|name| format!(" '{name}'"));
        kind.to_owned() + &name.unwrap_or_default()
    }

    /// How to open it, or, where it has stopped its run, to ask for it anew.
    pub fn way(&self) -> String {
        match (self.has_stopped_its_run(), self.is_approval()) {
            (true, _) => format!("to ask for it anew: flotta run start {}", self.place().name),
            (false, true) => format!("to open it: flotta gate approve {}", self.short()),
            (false, false) => format!("to open it before its time: flotta gate approve {}", self.short()),
        }
    }

    fn has_stopped_its_run(&self) -> bool {
        self.properties.rejection.is_some() || self.properties.expired_at.is_some()
    }

    /// Whether it is a gate of a run.
    pub fn is_of(&self, run: &str) -> bool {
        self.place().name == run
    }

    fn is_approval(&self) -> bool {
        self.properties.gate_type == "Approval"
    }

    fn place(&self) -> &Place {
        &self.properties.target.update_run_properties
    }

    /// Its state, and what became of it where the state does not say so.
    fn state(&self) -> String {
        match (&self.properties.rejection, self.properties.expired_at) {
            (Some(_), _) => format!("{}, rejected", self.properties.state),
            (None, Some(_)) => format!("{}, expired", self.properties.state),
            (None, None) => self.properties.state.clone(),
        }
    }

    /// When it opens or expires by itself, if it is still waited for.
    fn due(&self) -> Option<Timestamp> {
        let start = self.properties.scheduled_start_properties.as_ref();
        let due = start.and_then(|start| start.absolute_start_time).or(self.properties.expires_at);
        due.filter(|_| self.properties.state == "Pending" && !self.has_stopped_its_run())
    }

    /// Who has approved it. One approval without a word stands only where ARM puts it.
    fn approvals(&self) -> Vec<Verdict> {
        match (&self.properties.approvals[..], &self.system_data) {
            ([], Some(made)) => {
                vec![Verdict { by: made.last_modified_by.clone(), at: made.last_modified_at.clone(), comment: None }]
            }
            (approvals, _) => approvals.to_vec(),
        }
    }

    /// Such as `1 of 2: ann`.
    fn counted(&self) -> String {
        let given = self.approvals();
        let by: Vec<&str> = given.iter().map(|approval| approval.by.as_str()).collect();
        match (self.is_approval(), by.is_empty()) {
            (true, true) => format!("0 of {}", self.properties.approval_policy.approvers),
            (true, false) => {
                format!("{} of {}: {}", by.len(), self.properties.approval_policy.approvers, by.join(", "))
            }
            (false, true) => "-".into(),
            (false, false) => format!("by hand: {}", by.join(", ")),
        }
    }
}

/// The first letters of an id.
pub fn short(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

fn shown(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "-".into(), |at| format!("{at:.0}"))
}

/// With a space at which a narrow column can break it.
fn to_the_minute(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "-".into(), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// `flotta gate`.
pub async fn gate(command: GateCommand) -> Result<(), Failure> {
    let api = connect(&command.connection)?;
    let format = command.connection.output;
    match command.verb {
        GateVerb::List { state, kind, run } => {
            let wanted = [("state", state.map(word)), ("gateType", kind.map(word))];
            let wanted = wanted.into_iter().filter_map(|(key, value)| Some(format!("{key} eq '{}'", value?)));
            let filter: Vec<String> = wanted.collect();
            let found = gates(&api, &filter.join(" and ")).await?;
            let of_run = |gate: &&Value| run.as_ref().is_none_or(|run| Gate::read(gate).is_of(run.as_str()));
            let found: Vec<Value> = found.iter().filter(of_run).cloned().collect();
            output::list(format, Kind::Gate, &found)
        }
        GateVerb::Show { which } => {
            let gate = read(&api, &find(&api, &which).await?).await?;
            match format {
                Format::Table => {
                    let gate = Gate::read(&gate);
                    say(&details(&gate, behind(&api, &gate).await))
                }
                format => say(&output::document(format, &gate)?),
            }
        }
        GateVerb::Approve { which, comment, if_match } => {
            let body = json!({"properties": {"state": "Completed", "comment": comment}});
            decide(&api, format, &which, body, if_match).await
        }
        GateVerb::Reject { which, comment, if_match } => {
            let body = json!({"properties": {"decision": "Rejected", "comment": comment}});
            decide(&api, format, &which, body, if_match).await
        }
    }
}

/// Gates of the fleet, in the order in which they were reached.
pub async fn gates(api: &Api, filter: &str) -> Result<Vec<Value>, Failure> {
    let mut url = api.target.list_url(Kind::Gate)?;
    url.query_pairs_mut().append_pair("explain", "true");
    if !filter.is_empty() {
        url.query_pairs_mut().append_pair("$filter", filter);
    }
    api.list("list gates", url).await
}

async fn read(api: &Api, id: &str) -> Result<Value, Failure> {
    let what = format!("show gate '{id}'");
    let mut url = api.target.resource_url(Kind::Gate, id)?;
    url.query_pairs_mut().append_pair("explain", "true");
    Ok(api.send(Request::new(&what, Method::GET, url)).await?.body)
}

/// The id of the gate that is meant.
async fn find(api: &Api, which: &Which) -> Result<String, Failure> {
    let is_whole = |id: &String| id.parse::<uuid::Uuid>().is_ok();
    if let Some(id) = which.id.as_ref().filter(|id| is_whole(id)) {
        return Ok(id.clone());
    }
    // Where a gate stands is said of one that is waited for.
    let filter = if which.id.is_some() { "" } else { "state eq 'Pending'" };
    let found = gates(api, filter).await?;
    let found = found.iter().map(Gate::read);
    let mut found: Vec<Gate> = match &which.id {
        Some(start) => {
            let start = start.to_ascii_lowercase();
            found.filter(|gate| gate.name.to_ascii_lowercase().starts_with(&start)).collect()
        }
        None => found.filter(|gate| stands_there(gate.place(), which)).collect(),
    };
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only.name),
        (None, _) => Err(Failure::new(Blame::Usage, "there is no such gate", those_meant(which, 0))
            .hint("`flotta gate list` shows those that runs have come to")),
        (Some(last), _) => {
            found.push(last);
            let told = found.iter().take(MOST_TOLD);
            let told = told.map(|gate| format!("{} {} of run '{}'", gate.name, gate.title(), gate.place().name).into());
            let cause = those_meant(which, found.len());
            let failure = Failure::new(Blame::Usage, "it is not clear which gate is meant", cause);
            let hint =
                if which.id.is_some() { "name one of them by more of its id" } else { "name one of them by its id" };
            Err(Failure { details: told.collect(), ..failure.hint(hint) })
        }
    }
}

fn stands_there(place: &Place, which: &Which) -> bool {
    let is = |wanted: &Option<flotta_model::Name>, got: Option<&str>| {
        wanted.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == got)
    };
    is(&which.run, Some(&place.name))
        && is(&which.stage, Some(&place.stage))
        && is(&which.group, place.group.as_deref())
}

/// Such as `no gate of run 'up' at stage 'production' is waited for`.
fn those_meant(which: &Which, found: usize) -> String {
    let (gates, have, are) = match found {
        0 => ("no gate".to_owned(), "has", "is"),
        found => (format!("{found} gates"), "have", "are"),
    };
    if let Some(start) = &which.id {
        return format!("{gates} {have} an id that begins with '{start}'");
    }
    let parts = [("of run", &which.run), ("at stage", &which.stage), ("at group", &which.group)];
    let parts = parts.into_iter().filter_map(|(what, name)| Some(format!("{what} '{}' ", name.as_ref()?)));
    format!("{gates} {}{are} waited for", parts.collect::<String>())
}

async fn decide(
    api: &Api,
    format: Format,
    which: &Which,
    mut body: Value,
    if_match: Option<String>,
) -> Result<(), Failure> {
    let id = find(api, which).await?;
    let what = format!("decide on gate '{}'", short(&id));
    if let Some(properties) = body["properties"].as_object_mut() {
        properties.retain(|_, value| !value.is_null());
    }
    let url = api.target.resource_url(Kind::Gate, &id)?;
    let request = Request { body: Some(&body), ..Request::new(&what, Method::PATCH, url) };
    let answer = api.write(request, &Write { if_match, no_wait: false }).await?.body;
    match format {
        Format::Table => say(&outcome(&Gate::read(&answer))),
        format => say(&output::document(format, &answer)?),
    }
}

/// What a decision led to.
fn outcome(gate: &Gate) -> String {
    let (title, run) = (gate.title(), &gate.place().name);
    let given = gate.approvals();
    if let Some(Verdict { by, .. }) = &gate.properties.rejection {
        return format!(
            "{by} rejected {title}: run '{run}' comes to a halt; `flotta run start {run}` asks for it anew"
        );
    }
    let needed = gate.properties.approval_policy.approvers;
    match gate.properties.state.as_str() {
        "Completed" => format!("{title} is open: run '{run}' goes on unless something else holds it"),
        _ => format!("{title} has {} of {needed} approvals: somebody else must approve too", given.len()),
    }
}

/// A row of a table of gates.
pub fn row(gate: &Value) -> [String; 8] {
    let gate = Gate::read(gate);
    let place = gate.place();
    let at = match &place.group {
        Some(group) => format!("{} group {group}", place.timing.to_lowercase()),
        None => format!("{} stage {}", place.timing.to_lowercase(), place.stage),
    };
    [
        gate.short().to_owned(),
        gate.kind(),
        place.name.clone(),
        at,
        gate.state(),
        to_the_minute(gate.properties.reached_at),
        to_the_minute(gate.due()),
        gate.counted(),
    ]
}

/// The headings of [`row`].
pub const HEAD: [&str; 8] = ["ID", "GATE", "RUN", "WHERE", "STATE", "SINCE", "DUE", "APPROVALS"];

/// What would come of letting those go on that a gate holds back, and how to see more of it. Who opens a gate should know
/// who is ready; where that cannot be found out, the gate is shown without it.
async fn behind(api: &Api, gate: &Gate) -> Option<String> {
    let place = gate.place();
    if gate.state() != "Pending" || place.timing != "Before" {
        return None;
    }
    let part = match &place.group {
        Some(group) => ("group", group.as_str()),
        None => ("stage", place.stage.as_str()),
    };
    let report = check::ask(api, &place.name, Some(part)).await.ok()?;
    Some(format!("{} (flotta run check {} --{} {})", check::outcomes(&report)?, place.name, part.0, part.1))
}

/// Everything about a gate.
fn details(gate: &Gate, behind: Option<String>) -> String {
    let (properties, place) = (&gate.properties, gate.place());
    let mut rows = vec![
        ["gate".to_owned(), gate.name.clone()],
        ["what".into(), gate.title()],
        ["run".into(), place.name.clone()],
        ["stage".into(), place.stage.clone()],
        ["state".into(), gate.state()],
        ["since".into(), shown(properties.reached_at)],
    ];
    if let Some(start) = &properties.scheduled_start_properties {
        let zone = start.time_zone.as_ref().unwrap_or(&start.utc_offset);
        rows.push(["schedule".into(), format!("{} {} ({zone})", start.start_day, start.start_time)]);
        rows.extend(gate.due().map(|at| ["opens".into(), shown(Some(at))]));
    }
    if gate.is_approval() {
        rows.push(["asks for".into(), asked(&properties.approval_policy)]);
        rows.extend(gate.due().map(|at| ["expires".into(), shown(Some(at))]));
    }
    let said = |verdict: &Verdict| {
        let comment = verdict.comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
        format!("{}, {}{comment}", verdict.by, to_the_second(verdict.at.clone()))
    };
    rows.extend(gate.approvals().iter().map(|approval| ["approved by".into(), said(approval)]));
    rows.extend(properties.rejection.iter().map(|rejection| ["rejected by".into(), said(rejection)]));
    rows.extend(properties.expired_at.map(|at| ["expired".into(), shown(Some(at))]));
    rows.extend(behind.map(|behind| ["behind it".into(), behind]));
    let table = grid(["", ""], rows, output::width());
    let way = if properties.state == "Pending" { format!("\n\n{}", gate.way()) } else { String::new() };
    table.trim_start_matches(['\n', ' ']).to_owned() + &way
}

fn asked(policy: &Policy) -> String {
    let people = match policy.approvers {
        1 => "1 person to approve".to_owned(),
        people => format!("{people} people to approve"),
    };
    let creator = if policy.creator_may_approve { "" } else { ", not the creator of the run" };
    let rejection = if policy.rejectable { "; it can be rejected" } else { "" };
    format!("{people}{creator}{rejection}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(group: Option<&str>, more: Value) -> Value {
        let place = json!({"name": "up", "stage": "production", "group": group, "timing": "Before"});
        let mut gate = json!({"name": "62b62d86-0824-4358-a380-ebba5ed54a71", "properties": {
            "displayName": "go", "gateType": "Approval", "state": "Pending",
            "target": {"id": "/r", "updateRunProperties": place}, "reachedAt": "2026-03-06T08:00:00.123Z"}});
        for (key, value) in more.as_object().expect("object") {
            gate["properties"][key] = value.clone();
        }
        gate
    }

    #[test]
    fn a_gate_is_a_row_that_tells_where_it_stands_and_what_it_waits_for() {
        let policy = json!({"approvers": 2});
        let cases = [
            (gate(None, json!({})), ["before stage production", "Pending", "-", "0 of 1"]),
            (
                gate(Some("eu"), json!({"approvalPolicy": policy, "approvals": [{"by": "ann", "at": "x"}]})),
                ["before group eu", "Pending", "-", "1 of 2: ann"],
            ),
            (
                gate(None, json!({"rejection": {"by": "bob"}, "expiresAt": "2026-03-07T08:00:00Z"})),
                ["before stage production", "Pending, rejected", "-", "0 of 1"],
            ),
            (
                gate(None, json!({"expiresAt": "2026-03-07T08:00:00Z"})),
                ["before stage production", "Pending", "2026-03-07 08:00 UTC", "0 of 1"],
            ),
            (
                gate(
                    None,
                    json!({"gateType": "ScheduledStart", "scheduledStartProperties": {
                    "absoluteStartTime": "2026-03-11T02:00:00Z"}}),
                ),
                ["before stage production", "Pending", "2026-03-11 02:00 UTC", "-"],
            ),
        ];
        for (gate, [at, state, due, approvals]) in cases {
            let kind = if approvals == "-" { "scheduled start 'go'" } else { "approval 'go'" };
            let expect = ["62b62d86", kind, "up", at, state, "2026-03-06 08:00 UTC", due, approvals];
            assert_eq!(row(&gate), expect);
        }
    }

    #[test]
    fn gates_fit_a_terminal_of_100_columns_without_a_broken_word() {
        let start = json!({"absoluteStartTime": "2026-03-11T02:00:00Z"});
        let gates = [
            gate(
                None,
                json!({"displayName": "canary is healthy", "approvals": [{"by": "ann"}, {"by": "bob"}],
                "expiresAt": "2026-03-07T08:00:00Z", "approvalPolicy": {"approvers": 3}}),
            ),
            gate(None, json!({"displayName": null, "gateType": "ScheduledStart", "scheduledStartProperties": start})),
            gate(Some("west-europe"), json!({"rejection": {"by": "bob"}})),
        ];
        insta::assert_snapshot!(output::table(Kind::Gate, &gates, Some(100)));
    }

    #[test]
    fn a_gate_that_has_stopped_its_run_is_not_to_be_approved() {
        let way = |more: Value| Gate::read(&gate(None, more)).way();
        assert_eq!(way(json!({})), "to open it: flotta gate approve 62b62d86");
        for more in [json!({"rejection": {"by": "bob"}}), json!({"expiredAt": "2026-03-07T08:00:00Z"})] {
            assert_eq!(way(more), "to ask for it anew: flotta run start up");
        }
    }

    #[test]
    fn one_approval_without_a_word_is_read_where_arm_puts_it() {
        let mut open = gate(None, json!({"state": "Completed"}));
        open["systemData"] = json!({"lastModifiedBy": "ann", "lastModifiedAt": "2026-03-06T09:00:00.0000000Z"});
        let open = Gate::read(&open);
        assert_eq!(open.counted(), "1 of 1: ann");
        let told = "approval 'go' before stage 'production' is open: run 'up' goes on unless something else holds it";
        assert_eq!(outcome(&open), told);
    }

    #[test]
    fn the_details_tell_the_policy_and_who_said_what() {
        let verdict =
            |by: &str, comment: &str| json!({"by": by, "at": "2026-03-06T09:00:00.0000000Z", "comment": comment});
        let asked = json!({"approvers": 2, "creatorMayApprove": false, "rejectable": true});
        let gate = gate(
            None,
            json!({"approvalPolicy": asked, "approvals": [verdict("ann", "tried it")],
            "rejection": verdict("bob", "not on a Friday"), "expiresAt": "2026-03-07T08:00:00Z"}),
        );
        let behind = "12 members: 2 would wait, 10 would be upgraded (flotta run check r --stage one)";
        insta::assert_snapshot!(details(&Gate::read(&gate), Some(behind.into())));
    }
}
