//! Gates before and after stages and groups (`behaviour.md` A6; `arm-api.md` §11).
//!
//! A gate is reached when all that is left to do before, or after, its stage or group is to pass it. It stays passed when
//! members behind it are tried again.

use std::ops::Range;

use flotta_model::{
    Fault, GateConfig, GateKind, Name,
    gate::{Creator, Rejection},
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    event::{Event, Refusal},
    state::{Phase, Run, RunPhase, State, Times},
};
use crate::plan::Plan;

/// Which side of its stage or group a gate is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timing {
    /// Before it begins.
    Before,
    /// After its members are done, before it is done itself.
    After,
}

/// Where a gate is in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub place: Place,
    pub timing: Timing,
    /// Its place in the list of gates there.
    nth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Stage(u32),
    Group(u32),
}

/// All gates of a plan in one row: those of the stages, then those of the groups; before, then after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub spots: Vec<Spot>,
    stages: Vec<[Range<u32>; 2]>,
    groups: Vec<[Range<u32>; 2]>,
}

impl Layout {
    pub fn of(plan: &Plan) -> Self {
        let mut layout = Self::default();
        for (index, stage) in plan.stages.iter().enumerate() {
            let ranges = layout.add(Place::Stage(index as u32), &stage.before_gates, &stage.after_gates);
            layout.stages.push(ranges);
        }
        for (index, group) in plan.groups.iter().enumerate() {
            let ranges = layout.add(Place::Group(index as u32), &group.before_gates, &group.after_gates);
            layout.groups.push(ranges);
        }
        layout
    }

    fn add(&mut self, place: Place, before: &[GateConfig], after: &[GateConfig]) -> [Range<u32>; 2] {
        [(Timing::Before, before), (Timing::After, after)].map(|(timing, gates)| {
            let first = self.spots.len() as u32;
            self.spots.extend((0..gates.len() as u32).map(|nth| Spot { place, timing, nth }));
            first..self.spots.len() as u32
        })
    }

    pub fn at(&self, place: Place, timing: Timing) -> Range<u32> {
        let ranges = match place {
            Place::Stage(stage) => &self.stages[stage as usize],
            Place::Group(group) => &self.groups[group as usize],
        };
        ranges[timing as usize].clone()
    }
}

/// What is remembered of a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Where it stands.
    pub phase: GatePhase,
    /// Who approved it, or opened it by hand, since it was last asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Verdict>,
    /// Why it stopped the run, until that is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Denial>,
    /// Grows with each change.
    #[serde(default)]
    pub revision: u32,
}

/// Where a gate stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GatePhase {
    /// Not reached yet.
    #[default]
    Idle,
    /// Reached, and closed.
    Pending {
        /// When it was reached.
        since: Timestamp,
        /// When it opens (ScheduledStart) or expires (Approval) by itself.
        due: Option<Timestamp>,
    },
    /// Open for good, or left out.
    Over {
        /// When it was reached, unless it never was.
        since: Option<Timestamp>,
        /// When it was opened or left out.
        at: Timestamp,
        /// When it would have opened or expired by itself.
        due: Option<Timestamp>,
        /// It was left out, with what it stood for.
        skipped: bool,
    },
}

/// What somebody said of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// In their own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Why a gate stopped its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denial {
    /// Somebody rejected it.
    Rejected(Verdict),
    /// Nobody approved it in time.
    Expired {
        /// When it expired.
        at: Timestamp,
    },
}

/// What somebody wants of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Let it open.
    Approve,
    /// Let the run stop here.
    Reject,
}

/// A gate as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateView {
    /// Its id; empty where the plan gave none.
    pub id: Box<str>,
    /// The stage that it stands at, or whose group it stands at.
    pub stage: Name,
    /// The group that it stands at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// On which side.
    pub timing: Timing,
    /// How it was configured.
    pub config: GateConfig,
    /// What is remembered of it.
    pub gate: Gate,
}

impl Gate {
    /// NotStarted, Pending, Completed or Skipped.
    pub fn state(&self) -> State {
        match self.phase {
            GatePhase::Idle => State::NotStarted,
            GatePhase::Pending { .. } => State::Pending,
            GatePhase::Over { skipped: true, .. } => State::Skipped,
            GatePhase::Over { .. } => State::Completed,
        }
    }

    /// When it was reached, and when it was over.
    pub fn times(&self) -> Times {
        match self.phase {
            GatePhase::Idle => Times::default(),
            GatePhase::Pending { since, .. } => Times { started: Some(since), completed: None },
            GatePhase::Over { since, at, .. } => Times { started: since, completed: Some(at) },
        }
    }

    /// When it opens (ScheduledStart) or expires (Approval) by itself, or would have.
    pub fn due(&self) -> Option<Timestamp> {
        match self.phase {
            GatePhase::Idle => None,
            GatePhase::Pending { due, .. } | GatePhase::Over { due, .. } => due,
        }
    }
}

impl Run {
    /// How many gates the run has, reached or not. They are numbered from 0.
    pub fn gate_count(&self) -> u32 {
        self.layout.spots.len() as u32
    }

    /// What is remembered of a gate.
    pub fn gate(&self, gate: u32) -> &Gate {
        &self.core.gates[gate as usize]
    }

    /// A gate as people see it.
    pub fn gate_view(&self, gate: u32) -> GateView {
        let spot = self.layout.spots[gate as usize];
        let (stage, group) = match spot.place {
            Place::Stage(stage) => (stage, None),
            Place::Group(group) => (self.plan.groups[group as usize].stage, Some(group)),
        };
        GateView {
            id: self.gate_id(gate).into(),
            stage: self.plan.stages[stage as usize].name.clone(),
            group: group.map(|group| self.plan.groups[group as usize].name.clone()),
            timing: spot.timing,
            config: self.gate_config(gate).clone(),
            gate: self.gate(gate).clone(),
        }
    }

    /// The id of a gate.
    pub fn gate_id(&self, gate: u32) -> &str {
        self.plan.gate_ids.get(gate as usize).map_or("", |id| id)
    }

    /// The gates of a stage.
    pub fn stage_gates(&self, stage: u32, timing: Timing) -> Range<u32> {
        self.layout.at(Place::Stage(stage), timing)
    }

    /// The gates of a group.
    pub fn group_gates(&self, group: u32, timing: Timing) -> Range<u32> {
        self.layout.at(Place::Group(group), timing)
    }

    /// How a gate was configured.
    pub fn gate_config(&self, gate: u32) -> &GateConfig {
        let Spot { place, timing, nth } = self.layout.spots[gate as usize];
        let (before, after) = match place {
            Place::Stage(stage) => {
                let plan = &self.plan.stages[stage as usize];
                (&plan.before_gates, &plan.after_gates)
            }
            Place::Group(group) => {
                let plan = &self.plan.groups[group as usize];
                (&plan.before_gates, &plan.after_gates)
            }
        };
        let side = if timing == Timing::Before { before } else { after };
        &side[nth as usize]
    }

    /// How people call a gate, such as `approval 'go' before stage 'production'`.
    pub fn gate_title(&self, gate: u32) -> String {
        let view = self.gate_view(gate);
        let kind = match view.config.kind {
            GateKind::Approval => "approval",
            GateKind::ScheduledStart(_) => "scheduled start",
        };
        let name = view.config.display_name.map(|name| format!(" '{name}'")).unwrap_or_default();
        let side = if view.timing == Timing::Before { "before" } else { "after" };
        match view.group {
            Some(group) => format!("{kind}{name} {side} group '{group}'"),
            None => format!("{kind}{name} {side} stage '{}'", view.stage),
        }
    }

    /// The gates among some that are not over.
    pub(super) fn closed(&self, gates: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        gates.filter(|gate| !matches!(self.gate(*gate).phase, GatePhase::Over { .. }))
    }

    /// Whether a gate is closed at an instant: a scheduled start whose time has come while the run stood still holds
    /// nothing any more.
    pub(super) fn closed_at(&self, gate: u32, now: Timestamp) -> bool {
        let scheduled = matches!(self.gate_config(gate).kind, GateKind::ScheduledStart(_));
        match self.gate(gate).phase {
            GatePhase::Over { .. } => false,
            GatePhase::Pending { due: Some(due), .. } if scheduled => due > now,
            GatePhase::Idle | GatePhase::Pending { .. } => true,
        }
    }

    /// The gates among some that nobody has come to yet.
    fn idle(&self, gates: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        gates.filter(|gate| self.gate(*gate).phase == GatePhase::Idle)
    }

    /// Whether gates that are still closed stand before a stage that has members left to move.
    pub(super) fn stage_gated(&self, stage: u32) -> bool {
        let state = self.stage(stage);
        let left = state.counts.total() > state.counts.ended();
        left && !state.skip_asked && self.closed(self.stage_gates(stage, Timing::Before)).next().is_some()
    }

    /// Whether gates that are still closed stand before a group.
    pub(super) fn group_gated(&self, group: u32) -> bool {
        self.closed(self.group_gates(group, Timing::Before)).next().is_some()
    }

    /// Whether gates that are still closed stand after a stage.
    pub(super) fn stage_gated_after(&self, stage: u32) -> bool {
        self.closed(self.stage_gates(stage, Timing::After)).next().is_some()
    }

    /// Whether gates that are still closed stand after a group.
    pub(super) fn group_gated_after(&self, group: u32) -> bool {
        self.closed(self.group_gates(group, Timing::After)).next().is_some()
    }

    /// The first gate of a group that is reached now and was not before: all of one side are reached together.
    pub(super) fn group_reaches(&self, group: u32) -> Option<Timing> {
        let plan = &self.plan.groups[group as usize];
        let state = self.group(group);
        let here = self.core.current == Some(plan.stage) && !matches!(state.phase, Phase::Ended(_));
        if !here || state.skip_asked || self.stage_gated(plan.stage) {
            return None;
        }
        let left = state.counts.total() > state.counts.ended();
        let (before, after) = (self.group_gates(group, Timing::Before), self.group_gates(group, Timing::After));
        match left {
            true => self.idle(before).next().map(|_| Timing::Before),
            false if self.group_done(group) => self.idle(after).next().map(|_| Timing::After),
            false => None,
        }
    }

    /// Gates that are reached now: those before the stage, then those of its groups.
    pub(super) fn reach_gates(&self, stage: u32, now: Timestamp) -> Vec<Event> {
        if self.stage_gated(stage) {
            return self.reach(self.stage_gates(stage, Timing::Before), now);
        }
        let mut events = Vec::new();
        for group in &self.reaching {
            if let Some(timing) = self.group_reaches(*group) {
                events.extend(self.reach(self.group_gates(*group, timing), now));
            }
        }
        events
    }

    /// Reaches those of some gates that are not reached yet.
    pub(super) fn reach(&self, gates: Range<u32>, now: Timestamp) -> Vec<Event> {
        self.idle(gates).map(|gate| Event::GateReached { gate, due: self.due(gate, now) }).collect()
    }

    /// When a gate that is reached now opens or expires by itself.
    pub(super) fn due(&self, gate: u32, now: Timestamp) -> Option<Timestamp> {
        let config = self.gate_config(gate);
        match &config.kind {
            GateKind::ScheduledStart(start) => start.next_after(now),
            GateKind::Approval => {
                let length = SignedDuration::from_secs(i64::from(config.policy.expires_after_seconds?));
                now.saturating_add(length).ok()
            }
        }
    }

    /// Gates whose time has come.
    pub(super) fn due_gates(&self, now: Timestamp) -> Vec<Event> {
        let due = self.gates_due.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, gate)| match self.gate_config(*gate).kind {
            GateKind::ScheduledStart(_) => Event::GateOpened(*gate),
            GateKind::Approval => Event::GateExpired(*gate),
        })
        .collect()
    }

    /// What somebody's decision on a gate leads to.
    pub(super) fn decide_gate(
        &self,
        gate: u32,
        decision: Decision,
        by: &str,
        comment: Option<&str>,
    ) -> Result<Vec<Event>, Refusal> {
        if gate >= self.gate_count() {
            return Err(Refusal::NoSuchGate(gate));
        }
        let refuse = |reason: String| Err(Refusal::Gate { gate: self.gate_title(gate), reason });
        let state = self.gate(gate);
        match (state.phase, decision, &state.denial) {
            (GatePhase::Idle, ..) => return refuse("it is not reached yet, and cannot be decided before".into()),
            (GatePhase::Over { skipped: true, .. }, ..) => return refuse("it was skipped".into()),
            (GatePhase::Over { .. }, Decision::Approve, _) => return Ok(Vec::new()),
            (GatePhase::Over { .. }, Decision::Reject, _) => {
                return refuse("it is open already; stop the run instead".into());
            }
            (GatePhase::Pending { .. }, _, Some(_)) => {
                return refuse("it has stopped the run; start the run again to ask anew".into());
            }
            (GatePhase::Pending { .. }, ..) => {}
        }
        let (by, comment) = (by.to_owned(), comment.map(str::to_owned));
        match decision {
            Decision::Approve => self.approve(gate, by, comment),
            Decision::Reject => self.reject(gate, by, comment),
        }
    }

    fn approve(&self, gate: u32, by: String, comment: Option<String>) -> Result<Vec<Event>, Refusal> {
        let (config, state) = (self.gate_config(gate), self.gate(gate));
        let refuse = |reason: String| Err(Refusal::Gate { gate: self.gate_title(gate), reason });
        let creator = self.plan.created_by.as_deref() == Some(by.as_str());
        if config.policy.creator == Creator::MayNotApprove && creator {
            return refuse(format!("'{by}' created the run; somebody else must approve"));
        }
        let needed = usize::from(config.policy.approvers);
        if state.approvals.iter().any(|approval| approval.by == by) {
            let given = state.approvals.len();
            return refuse(format!("'{by}' has approved it already ({given} of {needed}); somebody else must"));
        }
        let enough = state.approvals.len() + 1 >= needed;
        let mut events = vec![Event::GateApproved { gate, by, comment }];
        events.extend(enough.then_some(Event::GateOpened(gate)));
        Ok(events)
    }

    fn reject(&self, gate: u32, by: String, comment: Option<String>) -> Result<Vec<Event>, Refusal> {
        if self.gate_config(gate).policy.rejection == Rejection::NotOffered {
            let reason = "its strategy does not let it be rejected (approvalPolicy.rejectable); stop the run instead";
            return Err(Refusal::Gate { gate: self.gate_title(gate), reason: reason.into() });
        }
        Ok(vec![Event::GateRejected { gate, by, comment }])
    }

    /// A gate as events change it.
    pub(super) fn apply_to_gate(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::GateReached { gate, due } => {
                self.change_gate(*gate, |state| state.phase = GatePhase::Pending { since: at, due: *due });
            }
            Event::GateApproved { gate, by, comment } => {
                let verdict = Verdict { by: by.clone(), at, comment: comment.clone() };
                self.change_gate(*gate, |state| state.approvals.push(verdict));
            }
            Event::GateOpened(gate) => self.end_gate(*gate, at, false),
            Event::GateRejected { gate, by, comment } => {
                let verdict = Verdict { by: by.clone(), at, comment: comment.clone() };
                self.deny(*gate, Denial::Rejected(verdict));
            }
            Event::GateExpired(gate) => self.deny(*gate, Denial::Expired { at }),
            other => unreachable!("{other:?} is not about a gate"),
        }
    }

    /// A gate that was not passed stops the run. What is stopped already stays as it is.
    fn deny(&mut self, gate: u32, denial: Denial) {
        self.change_gate(gate, |state| state.denial = Some(denial));
        if self.core.phase == RunPhase::Going {
            self.halt(RunPhase::Stopping);
        }
    }

    /// Leaves out what is not over of some gates.
    pub(super) fn skip_gates(&mut self, gates: Range<u32>, at: Timestamp) {
        let closed: Vec<u32> = self.closed(gates).collect();
        for gate in closed {
            self.end_gate(gate, at, true);
        }
    }

    fn end_gate(&mut self, gate: u32, at: Timestamp, skipped: bool) {
        let (since, due) = match self.gate(gate).phase {
            GatePhase::Pending { since, due } => (Some(since), due),
            _ => (None, None),
        };
        self.change_gate(gate, |state| {
            state.denial = None;
            state.phase = GatePhase::Over { since, at, due, skipped };
        });
        if let Place::Stage(stage) = self.layout.spots[gate as usize].place {
            self.refresh_stage(stage);
        }
    }

    /// Gates that stopped the run, or expired while it stood still, are asked for again, with all the time there is for it.
    pub(super) fn ask_again(&mut self, at: Timestamp) {
        for gate in 0..self.gate_count() {
            let approval = self.gate_config(gate).kind == GateKind::Approval;
            let expired = approval && listed_due(self.gate(gate)).is_some_and(|due| due <= at);
            if self.gate(gate).denial.is_some() || expired {
                let due = self.due(gate, at);
                self.change_gate(gate, |state| {
                    state.denial = None;
                    state.approvals.clear();
                    state.phase = GatePhase::Pending { since: at, due };
                });
            }
        }
    }

    fn change_gate(&mut self, gate: u32, change: impl FnOnce(&mut Gate)) {
        let state = &mut self.core.gates[gate as usize];
        if let Some(due) = listed_due(state) {
            self.gates_due.remove(&(due, gate));
        }
        change(state);
        state.revision += 1;
        if let Some(due) = listed_due(state) {
            self.gates_due.insert((due, gate));
        }
        if let Place::Group(group) = self.layout.spots[gate as usize].place {
            self.refresh_group(group);
        }
    }

    /// Derives what is kept in order of the gates.
    pub(super) fn list_gates(&mut self) {
        self.core.gates.resize(self.layout.spots.len(), Gate::default());
        let due = self.core.gates.iter().enumerate();
        self.gates_due = due.filter_map(|(gate, state)| Some((listed_due(state)?, gate as u32))).collect();
    }

    /// Why a gate stopped the run, for as long as the run is not started again.
    pub(super) fn denied(&self) -> Option<Fault> {
        (0..self.gate_count()).find_map(|gate| {
            let denial = self.gate(gate).denial.as_ref()?;
            let title = self.gate_title(gate);
            Some(match denial {
                Denial::Rejected(Verdict { by, comment, .. }) => {
                    let why = comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
                    Fault::new("GateRejected", format!("'{by}' rejected {title}{why}; start the run to ask again"))
                }
                Denial::Expired { .. } => {
                    let needed = self.gate_config(gate).policy.expires_after_seconds.unwrap_or_default();
                    let message =
                        format!("nobody decided on {title} within {needed} seconds; start the run to ask again");
                    Fault::new("GateExpired", message)
                }
            })
        })
    }
}

/// When a gate that is still waited for is due.
fn listed_due(gate: &Gate) -> Option<Timestamp> {
    match gate.phase {
        GatePhase::Pending { due, .. } if gate.denial.is_none() => due,
        _ => None,
    }
}
