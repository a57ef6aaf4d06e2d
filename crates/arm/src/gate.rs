//! Gates on the wire (`arm-api.md` §9, §11), and what flotta adds to them.

use flotta_engine::run::{Decision, Denial, GateView, State, Timing, Verdict};
use flotta_model::GateKind;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    api_version::{ApiVersion, strip},
    doc::{Principal, PrincipalKind, SystemData, envelope},
    error::ArmError,
    field::Field,
    path::Kind,
    strategy,
    time::seven_digits,
};

/// What a PATCH of a gate asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatePatch {
    /// Whether it is to open.
    pub decision: Decision,
    /// What the caller says of it.
    pub comment: Option<String>,
}

/// The longest comment, in characters.
pub const LONGEST_COMMENT: usize = 1000;

const DECISIONS: [(&str, Decision); 2] = [("Approved", Decision::Approve), ("Rejected", Decision::Reject)];

/// Reads the body of a PATCH: `state` Completed approves; `decision` says the same, or rejects.
pub fn parse(body: &Value) -> Result<GatePatch, ArmError> {
    let properties = Field::top(body).need("properties")?;
    let state = properties.get("state")?;
    let decision = properties.get("decision")?.map(|field| field.one_of(&DECISIONS)).transpose()?;
    let decision = match (&state, decision) {
        (Some(state), _) if state.text()? != "Completed" => {
            return Err(state.refuse(format!("{}: a gate can only be set to Completed", state.value)));
        }
        (Some(state), Some(Decision::Reject)) => {
            return Err(state.refuse("state Completed and decision Rejected exclude each other: send one of them"));
        }
        (_, Some(decision)) => decision,
        (Some(_), None) => Decision::Approve,
        (None, None) => {
            let reason = "this property is required and is missing: use Completed";
            return Err(ArmError::invalid_parameter(properties.below("state"), reason));
        }
    };
    let comment = properties.get("comment")?.map(|field| comment(&field)).transpose()?;
    Ok(GatePatch { decision, comment })
}

fn comment(field: &Field<'_>) -> Result<String, ArmError> {
    let text = field.text()?;
    match text.chars().count() {
        1..=LONGEST_COMMENT => Ok(text.to_owned()),
        length => Err(field.refuse(format!("use 1 to {LONGEST_COMMENT} characters, got {length}"))),
    }
}

/// A gate as a version shows it. `id` is its own, `run` that of its run.
pub fn render(view: &GateView, id: &str, run: &str, etag: &str, version: ApiVersion) -> Value {
    let gate = &view.gate;
    let mut properties = Map::new();
    properties.insert("provisioningState".into(), "Succeeded".into());
    if let Some(name) = &view.config.display_name {
        properties.insert("displayName".into(), name.clone().into());
    }
    properties.insert("gateType".into(), view.config.kind.as_str().into());
    properties.insert("target".into(), target(view, run));
    properties.insert("state".into(), format!("{:?}", shown(gate.state())).into());
    if let GateKind::ScheduledStart(start) = &view.config.kind {
        let mut start = strategy::render_start(start);
        start["absoluteStartTime"] = json!(gate.due().map(whole_seconds));
        properties.insert("scheduledStartProperties".into(), start);
    }
    add_extensions(view, &mut properties);
    // The service made it: it is nobody's until somebody decides.
    let decided = gate.approvals.last().map(|verdict| SystemData::new(user(&verdict.by), verdict.at));
    strip(Value::Object(envelope(Kind::Gate, id, etag, decided.as_ref(), properties)), version)
}

/// A gate that is shown was reached.
fn shown(state: State) -> State {
    if state == State::NotStarted { State::Pending } else { state }
}

fn user(name: &str) -> Principal {
    Principal { name: name.into(), kind: PrincipalKind::User }
}

fn whole_seconds(at: Timestamp) -> String {
    crate::time::shortest(at)
}

fn target(view: &GateView, run: &str) -> Value {
    let mut properties = Map::new();
    properties.insert("name".into(), run.rsplit('/').next().unwrap_or_default().into());
    properties.insert("stage".into(), view.stage.to_string().into());
    if let Some(group) = &view.group {
        properties.insert("group".into(), group.to_string().into());
    }
    let timing = if view.timing == Timing::Before { "Before" } else { "After" };
    properties.insert("timing".into(), timing.into());
    json!({ "id": run, "updateRunProperties": properties })
}

/// Who decided what, and what is asked of approvals.
fn add_extensions(view: &GateView, properties: &mut Map<String, Value>) {
    let gate = &view.gate;
    let policy = &view.config.policy;
    if !policy.is_default() {
        properties.insert("approvalPolicy".into(), strategy::render_policy(policy));
    }
    if let (GateKind::Approval, Some(due)) = (&view.config.kind, gate.due()) {
        properties.insert("expiresAt".into(), whole_seconds(due).into());
    }
    // One approval without a word says no more than systemData does.
    let commented = gate.approvals.iter().any(|approval| approval.comment.is_some());
    if !gate.approvals.is_empty() && (commented || !policy.is_default()) {
        properties.insert("approvals".into(), gate.approvals.iter().map(verdict).collect());
    }
    match &gate.denial {
        Some(Denial::Rejected(rejection)) => {
            properties.insert("rejection".into(), verdict(rejection));
        }
        Some(Denial::Expired { at }) => {
            properties.insert("expiredAt".into(), seven_digits(*at).into());
        }
        None => {}
    }
}

fn verdict(verdict: &Verdict) -> Value {
    let mut object = Map::new();
    object.insert("by".into(), verdict.by.clone().into());
    object.insert("at".into(), seven_digits(verdict.at).into());
    if let Some(comment) = &verdict.comment {
        object.insert("comment".into(), comment.clone().into());
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_a_patch_completes_a_gate_and_nothing_else() {
        let approve = GatePatch { decision: Decision::Approve, comment: None };
        assert_eq!(parse(&json!({"properties": {"state": "Completed"}})), Ok(approve));
        for (body, path) in [
            (json!({}), "properties"),
            (json!({"properties": {}}), "properties.state"),
            (json!({"properties": {"state": null}}), "properties.state"),
            (json!({"properties": {"state": "Pending"}}), "properties.state"),
            (json!({"properties": {"state": "completed"}}), "properties.state"),
            (json!({"properties": {"state": "Skipped"}}), "properties.state"),
            (json!({"properties": {"state": 1}}), "properties.state"),
            (json!({"properties": {"decision": "Maybe"}}), "properties.decision"),
            (json!({"properties": {"state": "Completed", "decision": "Rejected"}}), "properties.state"),
            (json!({"properties": {"state": "Completed", "comment": ""}}), "properties.comment"),
            (json!({"properties": {"state": "Completed", "comment": "x".repeat(1001)}}), "properties.comment"),
        ] {
            let error = parse(&body).expect_err("refused");
            assert_eq!((error.status, error.target.as_deref()), (400, Some(path)), "{body}");
        }
    }

    #[test]
    fn ext_a_decision_can_reject_and_say_why() {
        let body = json!({"properties": {"decision": "Rejected", "comment": "not on a Friday"}});
        let expect = GatePatch { decision: Decision::Reject, comment: Some("not on a Friday".into()) };
        assert_eq!(parse(&body), Ok(expect));
        let body = json!({"properties": {"decision": "Approved"}});
        assert_eq!(parse(&body), Ok(GatePatch { decision: Decision::Approve, comment: None }));
    }
}
