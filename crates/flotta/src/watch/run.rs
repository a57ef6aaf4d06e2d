//! An update run as the client sees it: the part of ARM's JSON that is shown, read leniently.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::gates::short;

/// A state of a run, stage, group, member, gate or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum State {
    /// Not begun.
    #[default]
    NotStarted,
    /// Under way.
    Running,
    /// Coming to a halt.
    Stopping,
    /// Halted.
    Stopped,
    /// Left out.
    Skipped,
    /// Failed.
    Failed,
    /// Held by something.
    Pending,
    /// Done.
    Completed,
    /// A word of a newer server.
    #[serde(other)]
    Unknown,
}

impl State {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotStarted => "NotStarted",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Stopped => "Stopped",
            Self::Skipped => "Skipped",
            Self::Failed => "Failed",
            Self::Pending => "Pending",
            Self::Completed => "Completed",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether a run in this state stays as it is until somebody does something.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped | Self::Stopped)
    }
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// What it wants, such as `Full to 1.34.2`.
    pub goal: String,
    /// How it stands.
    pub status: Status,
    /// Its stages.
    pub stages: Vec<Stage>,
}

/// How something stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The state.
    pub state: State,
    /// When it began.
    pub start_time: Option<Timestamp>,
    /// When it ended.
    pub completed_time: Option<Timestamp>,
    /// What went wrong.
    pub error: Option<Problem>,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// A stable word.
    pub code: Option<String>,
    /// What happened.
    pub message: Option<String>,
}

impl Problem {
    /// `(code) message`.
    pub fn text(&self) -> String {
        let code = self.code.as_ref().map(|code| format!("({code})"));
        code.into_iter().chain(self.message.clone()).collect::<Vec<_>>().join(" ")
    }
}

/// A stage.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// Its groups.
    pub groups: Vec<Group>,
    /// Gates before it.
    pub before_gates: Vec<Gate>,
    /// Gates after it.
    pub after_gates: Vec<Gate>,
    /// The wait after it.
    pub after_stage_wait_status: Option<Wait>,
}

/// A group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// Its members.
    pub members: Vec<Member>,
    /// Gates before it.
    pub before_gates: Vec<Gate>,
    /// Gates after it.
    pub after_gates: Vec<Gate>,
    /// Members at once.
    pub max_concurrency: Option<u32>,
}

/// A member.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// What is to be said about it.
    pub message: Option<String>,
}

impl Member {
    /// Why it stands as it does: the error, else the message.
    pub fn why(&self) -> String {
        match (&self.status.error, &self.message) {
            // The code of a failure is the provider's, and people look for it; what holds a member says it in its own words.
            (Some(Problem { message: Some(message), .. }), _) if self.status.state == State::Pending => message.clone(),
            (Some(error), _) => error.text(),
            (None, message) => message.clone().unwrap_or_default(),
        }
    }
}

/// A gate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gate {
    /// What it is called.
    pub display_name: Option<String>,
    /// Its ARM id, once the run has come to it.
    pub gate_id: Option<String>,
    /// How it stands.
    pub status: Status,
    /// What it waits for, as the strategy says.
    #[serde(rename = "type")]
    pub kind: GateKind,
}

/// What a gate waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum GateKind {
    /// Somebody approves.
    Approval,
    /// A day and time.
    ScheduledStart,
    /// Not known.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Gate {
    /// What it is, and its name in quotes, where it has one.
    pub fn named(&self) -> String {
        let kind = match self.kind {
            GateKind::Approval => "approval",
            GateKind::ScheduledStart => "scheduled start",
            GateKind::Unknown => "gate",
        };
        self.display_name.as_ref().map_or_else(|| kind.to_owned(), |name| format!("{kind} '{name}'"))
    }

    /// How to open it, where it is closed.
    pub fn way(&self) -> Option<String> {
        let id = self.gate_id.as_ref().filter(|_| self.status.state == State::Pending)?;
        let early = if self.kind == GateKind::ScheduledStart { " before its time" } else { "" };
        Some(format!("to open it{early}: flotta gate approve {}", short(id.rsplit('/').next().unwrap_or_default())))
    }
}

/// Takes what gates wait for from the strategy: their status does not tell it.
fn kinds_of_gates(before: &mut [Gate], after: &mut [Gate], planned: &Value) {
    for (gates, side) in [(before, "beforeGates"), (after, "afterGates")] {
        let planned = planned[side].as_array().into_iter().flatten();
        for (gate, planned) in gates.iter_mut().zip(planned) {
            gate.kind = GateKind::deserialize(&planned["type"]).unwrap_or_default();
        }
    }
}

/// The wait after a stage.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wait {
    /// How it stands.
    pub status: Status,
    /// How long it is.
    pub wait_duration_in_seconds: u32,
}

/// Members by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Completed.
    pub completed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped.
    pub skipped: usize,
    /// Under way.
    pub running: usize,
    /// Held by something, or halted.
    pub pending: usize,
    /// Not begun.
    pub not_started: usize,
}

impl Counts {
    /// The counts of members.
    pub fn of<'a>(members: impl IntoIterator<Item = &'a Member>) -> Self {
        let mut counts = Self::default();
        for member in members {
            let count = match member.status.state {
                State::Completed => &mut counts.completed,
                State::Failed => &mut counts.failed,
                State::Skipped => &mut counts.skipped,
                State::Running | State::Stopping => &mut counts.running,
                State::Pending | State::Stopped => &mut counts.pending,
                State::NotStarted | State::Unknown => &mut counts.not_started,
            };
            *count += 1;
        }
        counts
    }

    /// All members.
    pub fn total(self) -> usize {
        self.ended() + self.running + self.pending + self.not_started
    }

    /// Members that came to an end.
    pub fn ended(self) -> usize {
        self.completed + self.failed + self.skipped
    }
}

impl Stage {
    /// Its members.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.groups.iter().flat_map(|group| &group.members)
    }
}

impl Run {
    /// Reads the JSON of a run; what is not understood is not shown.
    pub fn read(value: &Value) -> Result<Self, serde_json::Error> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let part = |pointer: &str| value.pointer(pointer).filter(|part| !part.is_null());
        let upgrade = text("/properties/managedClusterUpdate/upgrade/type");
        let goal = match text("/properties/managedClusterUpdate/upgrade/kubernetesVersion") {
            "" => upgrade.to_owned(),
            version => format!("{upgrade} to {version}"),
        };
        let mut run = Self {
            name: text("/name").to_owned(),
            goal,
            status: part("/properties/status/status").map(Status::deserialize).transpose()?.unwrap_or_default(),
            stages: part("/properties/status/stages").map(Vec::deserialize).transpose()?.unwrap_or_default(),
        };
        run.kinds_of_gates(&value["properties"]["strategy"]["stages"]);
        // What was rejected or has expired cannot be approved before the run is started again.
        let code = run.status.error.as_ref().and_then(|error| error.code.as_deref());
        if matches!(code, Some("GateRejected" | "GateExpired")) {
            run.gates_mut().for_each(|gate| gate.gate_id = None);
        }
        Ok(run)
    }

    fn kinds_of_gates(&mut self, planned: &Value) {
        for (at, stage) in self.stages.iter_mut().enumerate() {
            kinds_of_gates(&mut stage.before_gates, &mut stage.after_gates, &planned[at]);
            for (within, group) in stage.groups.iter_mut().enumerate() {
                kinds_of_gates(&mut group.before_gates, &mut group.after_gates, &planned[at]["groups"][within]);
            }
        }
    }

    fn gates_mut(&mut self) -> impl Iterator<Item = &mut Gate> {
        self.stages.iter_mut().flat_map(|stage| {
            let groups = stage.groups.iter_mut();
            let of_groups = groups.flat_map(|group| group.before_gates.iter_mut().chain(&mut group.after_gates));
            stage.before_gates.iter_mut().chain(&mut stage.after_gates).chain(of_groups)
        })
    }

    /// Every member with its stage and group.
    pub fn members(&self) -> impl Iterator<Item = (&Stage, &Group, &Member)> {
        let groups = self.stages.iter().flat_map(|stage| stage.groups.iter().map(move |group| (stage, group)));
        groups.flat_map(|(stage, group)| group.members.iter().map(move |member| (stage, group, member)))
    }
}
