//! Update strategies on the wire (`arm-api.md` §9, §13; `behaviour.md` A5, A6).

use std::ops::RangeInclusive;

use flotta_model::{
    Budget, FailureLimit, GateConfig, GateKind, Group, Selector, Stage, Strategy, SuccessFloor, Zone,
    gate::{ApprovalPolicy, Creator, Rejection, ScheduledStart, Weekday},
    window::LocalTime,
};
use serde_json::{Map, Value, json};

use crate::{error::ArmError, field::Field};

/// Minutes east of UTC that clocks can show.
const OFFSETS: RangeInclusive<i16> = -14 * 60..=14 * 60;

#[derive(Clone, Copy)]
enum GateType {
    Approval,
    ScheduledStart,
}

/// Reads the body of a PUT of an update strategy.
pub fn parse(body: &Value) -> Result<Strategy, ArmError> {
    read(&Field::top(body).need("properties")?.need("strategy")?)
}

/// Reads a strategy wherever it stands.
pub(crate) fn read(field: &Field<'_>) -> Result<Strategy, ArmError> {
    let stages = field.need("stages")?.elements()?.iter().map(stage).collect::<Result<_, _>>()?;
    Strategy::new(stages).map_err(|error| ArmError::invalid_parameter(field.below(&error.field), error.reason))
}

fn stage(field: &Field<'_>) -> Result<Stage, ArmError> {
    let groups = match field.get("groups")? {
        Some(groups) => groups.elements()?.iter().map(group).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    Ok(Stage {
        name: field.need("name")?.parse()?,
        groups,
        selector: selector(field)?,
        max_concurrency: max_concurrency(field)?,
        max_allowed_failures: max_allowed_failures(field)?,
        budget: budget(field)?,
        min_success: min_success(field)?,
        after_wait_seconds: match field.get("afterStageWaitInSeconds")? {
            Some(seconds) => seconds.seconds()?,
            None => 0,
        },
        before_gates: gates(field, "beforeGates")?,
        after_gates: gates(field, "afterGates")?,
    })
}

fn group(field: &Field<'_>) -> Result<Group, ArmError> {
    Ok(Group {
        name: field.need("name")?.parse()?,
        selector: selector(field)?,
        max_concurrency: max_concurrency(field)?,
        max_allowed_failures: max_allowed_failures(field)?,
        budget: budget(field)?,
        min_success: min_success(field)?,
        before_gates: gates(field, "beforeGates")?,
        after_gates: gates(field, "afterGates")?,
    })
}

fn selector(field: &Field<'_>) -> Result<Option<Selector>, ArmError> {
    let Some(selector) = field.get("memberSelector")? else { return Ok(None) };
    selector.need("byLabel")?.parse().map(Some)
}

fn max_concurrency(field: &Field<'_>) -> Result<Option<flotta_model::Concurrency>, ArmError> {
    let Some(limit) = field.get("maxConcurrency")? else { return Ok(None) };
    limit.text_of_number()?;
    limit.parse().map(Some)
}

/// An empty text is unset (`behaviour.md` A5).
fn max_allowed_failures(field: &Field<'_>) -> Result<Option<FailureLimit>, ArmError> {
    let Some(limit) = field.get("maxAllowedFailures")? else { return Ok(None) };
    match limit.text_of_number()? {
        "" => Ok(None),
        _ => limit.parse().map(Some),
    }
}

fn budget(field: &Field<'_>) -> Result<Budget, ArmError> {
    Ok(match field.get("strict")?.map(|strict| strict.truth()).transpose()? {
        Some(true) => Budget::Strict,
        Some(false) | None => Budget::Watched,
    })
}

/// An empty text is unset, as with the failures.
fn min_success(field: &Field<'_>) -> Result<Option<SuccessFloor>, ArmError> {
    let Some(floor) = field.get("minSuccess")? else { return Ok(None) };
    match floor.text_of_number()? {
        "" => Ok(None),
        _ => floor.parse().map(Some),
    }
}

fn gates(field: &Field<'_>, side: &str) -> Result<Vec<GateConfig>, ArmError> {
    match field.get(side)? {
        Some(gates) => gates.elements()?.iter().map(gate).collect(),
        None => Ok(Vec::new()),
    }
}

fn gate(field: &Field<'_>) -> Result<GateConfig, ArmError> {
    let display_name = field.get("displayName")?.map(|name| name.text().map(str::to_string)).transpose()?;
    let types = [("Approval", GateType::Approval), ("ScheduledStart", GateType::ScheduledStart)];
    let configuration = field.get("scheduledStartConfiguration")?;
    let policy = field.get("approvalPolicy")?;
    let kind = match (field.need("type")?.one_of(&types)?, configuration) {
        (GateType::Approval, None) => GateKind::Approval,
        (GateType::Approval, Some(configuration)) => {
            return Err(
                configuration.refuse("a gate of type Approval has no start: leave it out, or use ScheduledStart")
            );
        }
        (GateType::ScheduledStart, Some(configuration)) => scheduled(&configuration)?,
        (GateType::ScheduledStart, None) => {
            let path = field.below("scheduledStartConfiguration");
            let reason = "a gate of type ScheduledStart needs startDay, startTime and utcOffset (from api-version 2026-06-02-preview on)";
            return Err(ArmError::invalid_parameter(path, reason));
        }
    };
    let policy = match (policy, &kind) {
        (Some(policy), GateKind::Approval) => approval_policy(&policy)?,
        (Some(policy), GateKind::ScheduledStart(_)) => {
            return Err(policy.refuse("a gate of type ScheduledStart waits for nobody: leave it out, or use Approval"));
        }
        (None, _) => ApprovalPolicy::default(),
    };
    Ok(GateConfig { display_name, kind, policy })
}

fn approval_policy(field: &Field<'_>) -> Result<ApprovalPolicy, ArmError> {
    let approvers = match field.get("approvers")? {
        Some(approvers) => approvers.whole("approvers", 1..=ApprovalPolicy::MOST_APPROVERS.into())?,
        None => 1,
    };
    let seconds = 1..=Strategy::LONGEST_WAIT_SECONDS;
    let expires = field.get("expiresAfterSeconds")?.map(|expires| expires.whole("seconds", seconds)).transpose()?;
    let truth = |name| field.get(name)?.map(|field| field.truth()).transpose();
    Ok(ApprovalPolicy {
        approvers: u8::try_from(approvers).unwrap_or(ApprovalPolicy::MOST_APPROVERS),
        expires_after_seconds: expires,
        creator: match truth("creatorMayApprove")? {
            Some(false) => Creator::MayNotApprove,
            Some(true) | None => Creator::MayApprove,
        },
        rejection: match truth("rejectable")? {
            Some(true) => Rejection::Offered,
            Some(false) | None => Rejection::NotOffered,
        },
    })
}

fn scheduled(field: &Field<'_>) -> Result<GateKind, ArmError> {
    let day = field.need("startDay")?.one_of(&Weekday::NAMES)?;
    let minute = time_of_day(&field.need("startTime")?)?;
    let (zone, utc_offset_minutes) = local_time(field)?;
    Ok(GateKind::ScheduledStart(ScheduledStart { day, minute, utc_offset_minutes, zone }))
}

/// Minutes after midnight.
pub(crate) fn time_of_day(time: &Field<'_>) -> Result<u16, ArmError> {
    let minute = clock(time.text()?).filter(|minute| *minute < 24 * 60);
    minute.ok_or_else(|| time.refuse(format!("{} is not a time of day: use HH:mm, from 00:00 to 23:59", time.value)))
}

/// `timeZone` and `utcOffset`: either, or both where they agree.
pub(crate) fn local_time(field: &Field<'_>) -> Result<(Option<Zone>, i16), ArmError> {
    let zone: Option<Zone> = field.get("timeZone")?.map(|zone| zone.parse()).transpose()?;
    let offset = match (&zone, field.get("utcOffset")?) {
        (Some(zone), None) => zone.standard_offset(),
        (zone, _) => utc_offset(&field.need("utcOffset")?, zone.as_ref())?,
    };
    Ok((zone, offset))
}

/// An offset from UTC: with a zone, one that its clocks show at some time of the year.
fn utc_offset(field: &Field<'_>, zone: Option<&Zone>) -> Result<i16, ArmError> {
    let minutes = signed(field.text()?).ok_or_else(|| {
        field.refuse(format!("{} is not an offset: use +HH:mm or -HH:mm, at most 14:00", field.value))
    })?;
    match zone {
        Some(zone) if !zone.uses_offset(minutes) => {
            let used: Vec<String> = OFFSETS.filter(|minutes| zone.uses_offset(*minutes)).map(show_offset).collect();
            let used = used.join(" or ");
            Err(field.refuse(format!("{} is never the time in {zone}: use {used}, or leave it out", field.value)))
        }
        _ => Ok(minutes),
    }
}

/// Minutes of `HH:mm`.
fn clock(text: &str) -> Option<u16> {
    let digit =
        |at: usize| text.as_bytes().get(at).filter(|byte| byte.is_ascii_digit()).map(|byte| u16::from(byte - b'0'));
    let minutes = digit(3)? * 10 + digit(4)?;
    let shaped = text.len() == 5 && text.as_bytes()[2] == b':' && minutes < 60;
    let hours = digit(0)? * 10 + digit(1)?;
    shaped.then_some(hours * 60 + minutes)
}

/// Minutes of `±HH:mm`, at most fourteen hours either way.
fn signed(text: &str) -> Option<i16> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let minutes = i16::try_from(clock(text.get(1..)?)?).ok()?;
    Some(sign * minutes).filter(|minutes| OFFSETS.contains(minutes))
}

fn show_offset(minutes: i16) -> String {
    let (sign, size) = (if minutes < 0 { '-' } else { '+' }, minutes.unsigned_abs());
    format!("{sign}{:02}:{:02}", size / 60, size % 60)
}

/// Whether a property that is kept because a PUT left it out goes with what the PUT says beside it.
/// If not, the PUT counts: its sender cannot see what stands in its way.
pub(crate) fn goes_with(key: &str, kept: &Value, beside: &Map<String, Value>) -> bool {
    let said = |name| beside.get(name).and_then(Value::as_str);
    match key {
        "strict" => {
            let limit = said("maxAllowedFailures").and_then(|limit| limit.parse().ok());
            limit.is_some_and(|limit: FailureLimit| limit.resolve(u32::MAX) > 0)
        }
        "timeZone" => {
            let zone: Option<Zone> = kept.as_str().and_then(|zone| zone.parse().ok());
            let offset = said("utcOffset").and_then(signed);
            zone.zip(offset).is_none_or(|(zone, offset)| zone.uses_offset(offset))
        }
        "targetKubernetesVersion" | "longTermSupport" => said("channel") == Some("TargetKubernetesVersion"),
        "acceptNewer" => said("type") != Some("Latest"),
        "trigger" => {
            kept.get("upgradePath").is_none() || !matches!(said("channel"), Some("NodeImage" | "SecurityPatch"))
        }
        _ => true,
    }
}

/// A strategy as it was sent: what is not set is left out.
pub fn render(strategy: &Strategy) -> Value {
    let stages: Vec<Value> = strategy.stages().iter().map(render_stage).collect();
    json!({ "stages": stages })
}

fn render_stage(stage: &Stage) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), stage.name.to_string().into());
    if !stage.groups.is_empty() {
        object.insert("groups".into(), stage.groups.iter().map(render_group).collect());
    }
    if stage.after_wait_seconds > 0 {
        object.insert("afterStageWaitInSeconds".into(), stage.after_wait_seconds.into());
    }
    render_selector(&mut object, stage.selector.as_ref());
    render_text(&mut object, "maxConcurrency", stage.max_concurrency);
    render_text(&mut object, "maxAllowedFailures", stage.max_allowed_failures);
    render_budget(&mut object, stage.budget);
    render_text(&mut object, "minSuccess", stage.min_success);
    render_gates(&mut object, "beforeGates", &stage.before_gates);
    render_gates(&mut object, "afterGates", &stage.after_gates);
    Value::Object(object)
}

fn render_group(group: &Group) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), group.name.to_string().into());
    render_selector(&mut object, group.selector.as_ref());
    render_text(&mut object, "maxConcurrency", group.max_concurrency);
    render_text(&mut object, "maxAllowedFailures", group.max_allowed_failures);
    render_budget(&mut object, group.budget);
    render_text(&mut object, "minSuccess", group.min_success);
    render_gates(&mut object, "beforeGates", &group.before_gates);
    render_gates(&mut object, "afterGates", &group.after_gates);
    Value::Object(object)
}

fn render_selector(object: &mut Map<String, Value>, selector: Option<&Selector>) {
    if let Some(selector) = selector {
        object.insert("memberSelector".into(), json!({ "byLabel": selector.as_str() }));
    }
}

fn render_text(object: &mut Map<String, Value>, key: &str, value: Option<impl ToString>) {
    if let Some(value) = value {
        object.insert(key.into(), value.to_string().into());
    }
}

fn render_budget(object: &mut Map<String, Value>, budget: Budget) {
    match budget {
        Budget::Watched => {}
        Budget::Strict => {
            object.insert("strict".into(), true.into());
        }
    }
}

fn render_gates(object: &mut Map<String, Value>, side: &str, gates: &[GateConfig]) {
    if !gates.is_empty() {
        object.insert(side.into(), gates.iter().map(render_gate).collect());
    }
}

fn render_gate(gate: &GateConfig) -> Value {
    let mut object = Map::new();
    render_text(&mut object, "displayName", gate.display_name.as_ref());
    match &gate.kind {
        GateKind::Approval => {
            object.insert("type".into(), "Approval".into());
        }
        GateKind::ScheduledStart(start) => {
            object.insert("type".into(), "ScheduledStart".into());
            object.insert("scheduledStartConfiguration".into(), render_start(start));
        }
    }
    if !gate.policy.is_default() {
        object.insert("approvalPolicy".into(), render_policy(&gate.policy));
    }
    Value::Object(object)
}

/// Minutes after midnight, as `HH:mm`.
pub(crate) fn show_clock(minute: u16) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

/// What local time is, by a zone or by an offset.
pub(crate) fn render_local_time(object: &mut Map<String, Value>, local: &LocalTime) {
    match local {
        LocalTime::Offset(minutes) => object.insert("utcOffset".into(), show_offset(*minutes).into()),
        LocalTime::Zone(zone) => object.insert("timeZone".into(), zone.to_string().into()),
    };
}

pub(crate) fn render_start(start: &ScheduledStart) -> Value {
    let mut object = Map::new();
    let day = Weekday::NAMES.iter().find(|(_, day)| *day == start.day).map(|(word, _)| *word);
    render_text(&mut object, "startDay", day);
    object.insert("startTime".into(), show_clock(start.minute).into());
    object.insert("utcOffset".into(), show_offset(start.utc_offset_minutes).into());
    render_text(&mut object, "timeZone", start.zone.as_ref());
    Value::Object(object)
}

pub(crate) fn render_policy(policy: &ApprovalPolicy) -> Value {
    let mut object = Map::new();
    if policy.approvers != 1 {
        object.insert("approvers".into(), policy.approvers.into());
    }
    if let Some(seconds) = policy.expires_after_seconds {
        object.insert("expiresAfterSeconds".into(), seconds.into());
    }
    if policy.creator == Creator::MayNotApprove {
        object.insert("creatorMayApprove".into(), false.into());
    }
    if policy.rejection == Rejection::Offered {
        object.insert("rejectable".into(), true.into());
    }
    Value::Object(object)
}
