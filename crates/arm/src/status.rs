//! The status tree of an update run, straight from the engine's state (`arm-api.md` §9, §10).

use flotta_engine::run::{Part, Phase, Run, State, Times, Wait};
use flotta_model::{Fault, GateConfig, ImageSelection};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{operation::render_fault, run::render_versions, time::shortest};

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The documented tree.
    Documented,
    /// With what flotta adds: `uncoveredMembers`, the resolved `kubernetesVersion`, and `waitingOn` at run, stages and
    /// groups.
    Explained,
}

/// The status of a run: `properties.status`.
pub fn render(run: &Run, detail: Detail) -> Value {
    let plan = run.plan();
    let mut tree = Map::new();
    let times = run.times();
    tree.insert("status".into(), update_status(run.state(), times, run.error(Part::Run)));
    tree.insert("failureCount".into(), run.counts().failed.into());
    tree.insert("nodeImageSelection".into(), node_images(run));
    let stages: Vec<Value> = (0..plan.stages.len() as u32).map(|stage| render_stage(run, stage, detail)).collect();
    tree.insert("stages".into(), stages.into());
    if detail == Detail::Explained {
        explain(run, Part::Run, &mut tree);
        if let Some(version) = run.version() {
            tree.insert("kubernetesVersion".into(), version.to_string().into());
        }
        let uncovered = json!({ "count": plan.uncovered.count, "first": plan.uncovered.first });
        tree.insert("uncoveredMembers".into(), uncovered);
    }
    Value::Object(tree)
}

fn explain(run: &Run, part: Part, tree: &mut Map<String, Value>) {
    let reasons = run.waiting_on(part);
    if let (false, Ok(reasons)) = (reasons.is_empty(), serde_json::to_value(&reasons)) {
        tree.insert("waitingOn".into(), reasons);
    }
}

/// Chosen by the caller, or empty: each region's latest is not one choice.
fn node_images(run: &Run) -> Value {
    match run.plan().goal.images() {
        Some(ImageSelection::Custom(images)) => json!({ "selectedNodeImageVersions": render_versions(images) }),
        _ => json!({}),
    }
}

fn render_stage(run: &Run, stage: u32, detail: Detail) -> Value {
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
    let all_ended = state.counts.ended() == state.counts.total();
    let scope = Scope {
        reached: state.phase == Phase::Entered,
        all_ended,
        skipped: gates_skipped(run.stage_state(stage), state.skip_asked),
        times: state.times,
    };
    scope.render_gates(&mut tree, &plan.before_gates, &plan.after_gates);
    let groups: Vec<Value> = plan.groups.clone().map(|group| render_group(run, group, detail)).collect();
    tree.insert("groups".into(), groups.into());
    if plan.after_wait_seconds > 0 {
        let status = wait_status(run, stage);
        let wait = json!({ "status": status, "waitDurationInSeconds": plan.after_wait_seconds });
        tree.insert("afterStageWaitStatus".into(), wait);
    }
    if detail == Detail::Explained {
        explain(run, Part::Stage(stage), &mut tree);
    }
    Value::Object(tree)
}

fn render_group(run: &Run, group: u32, detail: Detail) -> Value {
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
    let scope = Scope {
        reached: run.group_state(group) == State::Pending,
        all_ended: state.counts.ended() == state.counts.total(),
        skipped: gates_skipped(run.group_state(group), state.skip_asked),
        times: state.times,
    };
    scope.render_gates(&mut tree, &plan.before_gates, &plan.after_gates);
    let members: Vec<Value> = plan.members.clone().map(|member| render_member(run, member)).collect();
    if !members.is_empty() {
        tree.insert("members".into(), members.into());
    }
    if detail == Detail::Explained {
        explain(run, Part::Group(group), &mut tree);
    }
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
    if let Some(message) = &state.message {
        tree.insert("message".into(), message.to_string().into());
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

/// What the gates of a stage or group are judged by.
struct Scope {
    reached: bool,
    all_ended: bool,
    skipped: bool,
    times: Times,
}

fn gates_skipped(state: State, skip_asked: bool) -> bool {
    skip_asked || state == State::Skipped
}

impl Scope {
    fn render_gates(&self, tree: &mut Map<String, Value>, before: &[GateConfig], after: &[GateConfig]) {
        for (side, gates, open) in [("beforeGates", before, !self.all_ended), ("afterGates", after, self.all_ended)] {
            if !gates.is_empty() {
                tree.insert(side.into(), gates.iter().map(|gate| self.gate(gate, self.reached && open)).collect());
            }
        }
    }

    /// Pending where it is what the scope waits for. There is no gate resource yet, so there is no `gateId`.
    fn gate(&self, gate: &GateConfig, waited_for: bool) -> Value {
        let status = match () {
            () if self.skipped => {
                update_status(State::Skipped, Times { started: None, completed: self.times.completed }, None)
            }
            () if waited_for => update_status(State::Pending, Times::default(), None),
            () => update_status(State::NotStarted, Times::default(), None),
        };
        let mut tree = Map::new();
        if let Some(name) = &gate.display_name {
            tree.insert("displayName".into(), name.clone().into());
        }
        tree.insert("status".into(), status);
        Value::Object(tree)
    }
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
