//! The status tree of an update run, straight from the engine's state (`arm-api.md` §9, §10).

use std::ops::Range;

use flotta_engine::run::{Part, Run, State, Times, Timing, Wait};
use flotta_model::Fault;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{operation::render_fault, run::render_versions, time::shortest};

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The documented tree.
    Documented,
    /// With what flotta adds: `uncoveredMembers`, the resolved `kubernetesVersion`, and `waitingOn` at run, stages and
    /// groups, as things stand at this time.
    Explained(Timestamp),
}

/// The status of a run: `properties.status`.
///
/// `id` is the run's own: its gates are beside it.
pub fn render(run: &Run, id: &str, detail: Detail) -> Value {
    let gates = &format!("{}/gates", id.rsplit_once("/updateRuns/").map_or(id, |(fleet, _)| fleet));
    let plan = run.plan();
    let mut tree = Map::new();
    let times = run.times();
    tree.insert("status".into(), update_status(run.state(), times, run.error(Part::Run)));
    tree.insert("failureCount".into(), run.counts().failed.into());
    tree.insert("nodeImageSelection".into(), node_images(run));
    let stages: Vec<Value> =
        (0..plan.stages.len() as u32).map(|stage| render_stage(run, stage, gates, detail)).collect();
    tree.insert("stages".into(), stages.into());
    explain(run, Part::Run, detail, &mut tree);
    if let Detail::Explained(_) = detail {
        if let Some(version) = run.version() {
            tree.insert("kubernetesVersion".into(), version.to_string().into());
        }
        let uncovered = json!({ "count": plan.uncovered.count, "first": plan.uncovered.first });
        tree.insert("uncoveredMembers".into(), uncovered);
    }
    Value::Object(tree)
}

fn explain(run: &Run, part: Part, detail: Detail, tree: &mut Map<String, Value>) {
    let Detail::Explained(now) = detail else { return };
    let reasons = run.waiting_on(part, now);
    if let (false, Ok(reasons)) = (reasons.is_empty(), serde_json::to_value(&reasons)) {
        tree.insert("waitingOn".into(), reasons);
    }
}

/// Chosen by the caller or by the run, or empty: each region's latest is not one choice.
fn node_images(run: &Run) -> Value {
    match run.selected_images() {
        Some(images) => json!({ "selectedNodeImageVersions": render_versions(images) }),
        None => json!({}),
    }
}

fn render_stage(run: &Run, stage: u32, gates: &str, detail: Detail) -> Value {
    let plan = &run.plan().stages[stage as usize];
    let state = run.stage(stage);
    let mut tree = Map::new();
    tree.insert("name".into(), plan.name.to_string().into());
    tree.insert("status".into(), update_status(run.stage_state(stage), state.times, run.error(Part::Stage(stage))));
    tree.insert("failureCount".into(), state.counts.failed.into());
    tree.insert("maxConcurrency".into(), plan.max_concurrency.into());
    if let Some(limit) = stage_failure_limit(run, stage) {
        tree.insert("maxAllowedFailures".into(), limit.into());
    }
    render_gates(run, gates, &mut tree, |timing| run.stage_gates(stage, timing));
    let groups: Vec<Value> = plan.groups.clone().map(|group| render_group(run, group, gates, detail)).collect();
    tree.insert("groups".into(), groups.into());
    if plan.after_wait_seconds > 0 {
        let status = wait_status(run, stage);
        let wait = json!({ "status": status, "waitDurationInSeconds": plan.after_wait_seconds });
        tree.insert("afterStageWaitStatus".into(), wait);
    }
    explain(run, Part::Stage(stage), detail, &mut tree);
    Value::Object(tree)
}

fn render_group(run: &Run, group: u32, gates: &str, detail: Detail) -> Value {
    let plan = &run.plan().groups[group as usize];
    let state = run.group(group);
    let mut tree = Map::new();
    tree.insert("name".into(), plan.name.to_string().into());
    tree.insert("status".into(), update_status(run.group_state(group), state.times, run.error(Part::Group(group))));
    tree.insert("failureCount".into(), state.counts.failed.into());
    tree.insert("maxConcurrency".into(), plan.max_concurrency.into());
    let of_stage = || run.plan().stages[plan.stage as usize].max_allowed_failures;
    if let Some(limit) = plan.max_allowed_failures.or_else(of_stage) {
        tree.insert("maxAllowedFailures".into(), limit.into());
    }
    render_gates(run, gates, &mut tree, |timing| run.group_gates(group, timing));
    let members: Vec<Value> = plan.members.clone().map(|member| render_member(run, member)).collect();
    if !members.is_empty() {
        tree.insert("members".into(), members.into());
    }
    explain(run, Part::Group(group), detail, &mut tree);
    Value::Object(tree)
}

fn render_member(run: &Run, member: u32) -> Value {
    let plan = &run.plan().members[member as usize];
    let state = run.member(member);
    let mut tree = Map::new();
    tree.insert("name".into(), plan.name.to_string().into());
    tree.insert("clusterResourceId".into(), plan.cluster.as_str().into());
    if let Some(operation) = &state.operation {
        tree.insert("operationId".into(), operation.to_string().into());
    }
    if let Some(message) = run.message(member) {
        tree.insert("message".into(), message.into());
    }
    let status = update_status(run.member_state(member), state.times, run.error(Part::Member(member)));
    tree.insert("status".into(), status);
    Value::Object(tree)
}

/// The stage's own limit, or 0 where every group of it allows none; otherwise no single number is true.
fn stage_failure_limit(run: &Run, stage: u32) -> Option<u32> {
    let plan = &run.plan().stages[stage as usize];
    let strict = |group: u32| run.plan().groups[group as usize].max_allowed_failures == Some(0);
    plan.max_allowed_failures.or_else(|| plan.groups.clone().all(strict).then_some(0))
}

fn wait_status(run: &Run, stage: u32) -> Value {
    let times = match run.stage(stage).wait {
        Wait::Idle => Times::default(),
        Wait::Running { since, .. } => Times { started: Some(since), completed: None },
        Wait::Over { since, at, .. } => Times { started: since, completed: Some(at) },
    };
    update_status(run.wait_state(stage), times, None)
}

/// The gates of a stage or group. Those that were never reached have no id to be found by.
fn render_gates(run: &Run, ids: &str, tree: &mut Map<String, Value>, gates: impl Fn(Timing) -> Range<u32>) {
    for (side, timing) in [("beforeGates", Timing::Before), ("afterGates", Timing::After)] {
        let gates = gates(timing);
        if !gates.is_empty() {
            tree.insert(side.into(), gates.map(|gate| render_gate(run, ids, gate)).collect());
        }
    }
}

fn render_gate(run: &Run, ids: &str, number: u32) -> Value {
    let gate = run.gate(number);
    let mut tree = Map::new();
    if let Some(name) = &run.gate_config(number).display_name {
        tree.insert("displayName".into(), name.clone().into());
    }
    let id = run.gate_id(number);
    if gate.times().started.is_some() && !id.is_empty() {
        tree.insert("gateId".into(), format!("{ids}/{id}").into());
    }
    tree.insert("status".into(), update_status(gate.state(), gate.times(), None));
    Value::Object(tree)
}

fn update_status(state: State, times: Times, error: Option<Fault>) -> Value {
    let mut status = Map::new();
    status.insert("state".into(), format!("{state:?}").into());
    let mut time = |key: &str, at: Option<Timestamp>| {
        if let Some(at) = at {
            status.insert(key.into(), shortest(at).into());
        }
    };
    time("startTime", times.started);
    time("completedTime", times.completed);
    if let Some(error) = error {
        status.insert("error".into(), render_fault(&error));
    }
    Value::Object(status)
}
