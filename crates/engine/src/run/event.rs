//! What a run is told, what it answers, and what should be going on because of it.

use flotta_model::{Cluster, Fault, Hold, KubernetesVersion, MaintenanceWindow, Name, NodeImage, Offer, Step};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    gates::Decision,
    state::{Outcome, State},
    windows::Windows,
};
use crate::images::{Disagreement, PoolImages};

/// What happened outside, or what somebody wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// Time went by.
    Tick,
    /// Start, or go on after Stopped or Failed.
    Start,
    /// Start nothing new; what is under way ends.
    Stop,
    /// Leave these out. All of them, or none if one is refused.
    Skip(Vec<SkipTarget>),
    /// The version that the run's minor means.
    TargetResolved(KubernetesVersion),
    /// The node images that the pools of the run can have.
    ImagesResolved {
        /// Once each, as [`PoolImages::add`] makes it.
        pools: Vec<PoolImages>,
    },
    /// Somebody decided on a gate.
    Gate {
        /// Its number in the run.
        gate: u32,
        /// What they want.
        decision: Decision,
        /// Who they are.
        by: String,
        /// Their own words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    /// Maintenance windows of members were read.
    WindowsSeen(Windows),
    /// A member's cluster was looked at.
    Seen(Ticket, Box<Sighting>),
    /// A member's cluster could not be looked at, or cannot be changed just now.
    Held(Ticket, Hold),
    /// A member's cluster is not for this run, through no fault of its own; why.
    Unfit(Ticket, String),
    /// The provider accepted a step.
    Accepted {
        /// Which step of which member.
        ticket: Ticket,
        /// The provider's operation id.
        operation: String,
        /// It was already moving.
        adopted: bool,
    },
    /// A step was not accepted, for a passing reason: look at the cluster again.
    NotAccepted(Ticket),
    /// A step ended well.
    StepSucceeded(Ticket),
    /// A step was refused for good, or ended badly.
    StepFailed(Ticket, Fault),
    /// A member left the fleet.
    MemberLeft(u32),
}

/// What was seen of a member's cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sighting {
    /// The cluster.
    pub cluster: Cluster,
    /// How the run's version stands in its region, where a version is the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
    /// The run that has a claim on the cluster, if not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    /// When it may be changed; absent: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<MaintenanceWindow>,
}

/// Which effect an answer belongs to. An answer whose turn has passed is stale and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket {
    /// Index of the member.
    pub member: u32,
    /// The member's turn: grows with each thing asked for on its behalf.
    pub turn: u32,
}

/// Something to leave out, by the names people use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SkipTarget {
    /// A member.
    Member(Name),
    /// A group, with its gates.
    Group(Name),
    /// A stage, with its wait and gates.
    Stage(Name),
    /// The wait after a stage, by the stage's name.
    AfterStageWait(Name),
}

/// The same, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Skipped {
    /// A member.
    Member(u32),
    /// A group.
    Group(u32),
    /// A stage.
    Stage(u32),
    /// The wait after a stage.
    Wait(u32),
}

/// A fact about a run. Journals are made of these: variants and fields may be added, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The run was started for the first time.
    Started,
    /// The run was started again after Stopped or Failed; failed members of the current stage are tried again.
    Resumed,
    /// A stop was asked for.
    StopAsked,
    /// Everything under way ended after a stop.
    Stopped,
    /// A limit of zero failures was exceeded: nothing new starts anywhere.
    FailedFast {
        /// The group in which it happened.
        group: u32,
    },
    /// The run ended.
    RunEnded(Outcome),
    /// The minor asked for came to mean this version.
    TargetResolved(KubernetesVersion),
    /// The node images that the run moves to were chosen, one a family.
    ImagesSelected(Vec<NodeImage>),
    /// The regions of the run have no node image of these families in common.
    ImagesDisagree(Vec<Disagreement>),
    /// Somebody had these left out.
    Skipped(Vec<Skipped>),
    /// A stage began.
    StageEntered(u32),
    /// The wait after a stage began.
    WaitStarted {
        /// The stage.
        stage: u32,
        /// When it ends.
        until: Timestamp,
    },
    /// The wait after a stage ran to its end.
    WaitEnded(u32),
    /// A gate was reached: it is closed until it is opened.
    GateReached {
        /// Its number in the run.
        gate: u32,
        /// When it opens (ScheduledStart) or expires (Approval) by itself.
        due: Option<Timestamp>,
    },
    /// Somebody approved a gate, or wants it open before its time.
    GateApproved {
        /// The gate.
        gate: u32,
        /// Who.
        by: String,
        /// Their own words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    /// A gate opened.
    GateOpened(u32),
    /// Somebody rejected a gate: nothing new starts.
    GateRejected {
        /// The gate.
        gate: u32,
        /// Who.
        by: String,
        /// Their own words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    /// A gate was not approved in time: nothing new starts.
    GateExpired(u32),
    /// Maintenance windows of members were read.
    WindowsRead {
        /// Windows not known before; they are numbered on from those that are.
        new: Vec<MaintenanceWindow>,
        /// Members with the number of their window; without one where they have none.
        members: Vec<(u32, Option<u32>)>,
    },
    /// What was read of a group is old, and somebody waits for it.
    WindowsStale(u32),
    /// A window opened or closed, or it is known now how it stands.
    WindowTurned {
        /// Its number in the run.
        window: u32,
        /// Whether it is open.
        open: bool,
        /// When it turns next.
        next: Option<Timestamp>,
    },
    /// A stage ended.
    StageEnded(u32, Outcome),
    /// A group ended.
    GroupEnded(u32, Outcome),
    /// A member took a slot: its cluster is looked at.
    MemberStarted(u32),
    /// A step was committed to; it is sent next.
    StepIntended {
        /// The member.
        member: u32,
        /// The step.
        step: Step,
        /// The etag it must still find.
        guard: Option<String>,
        /// Steps there were left, with this one.
        left: u32,
        /// It must not be sent from this instant on: the window closes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_after: Option<Timestamp>,
    },
    /// The provider took the step.
    StepAccepted {
        /// The member.
        member: u32,
        /// The provider's operation id.
        operation: String,
        /// It was already moving.
        adopted: bool,
    },
    /// The step was not taken; the cluster is looked at again.
    StepWithdrawn(u32),
    /// The step ended well; the cluster is looked at again.
    StepSucceeded(u32),
    /// A member cannot move just now. It gives its slot back.
    MemberHeld(u32, Hold),
    /// What held a member is gone, or it may not begin after all. It waits for its turn again.
    MemberReleased(u32),
    /// A member is done.
    MemberEnded {
        /// The member.
        member: u32,
        /// How.
        outcome: Outcome,
        /// What people should know.
        message: Option<String>,
        /// What went wrong.
        fault: Option<Fault>,
        /// It was where it should be when its turn came.
        #[serde(default)]
        there: bool,
    },
}

/// Why a command was refused. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The run's state does not allow it.
    #[error("cannot {action} a run that is {state:?}; it must be {allowed}")]
    State {
        /// What was asked.
        action: &'static str,
        /// The state it is in.
        state: State,
        /// The states in which it may be asked.
        allowed: &'static str,
    },
    /// The run has no such member, group or stage.
    #[error("the run has no {kind} '{name}'")]
    NoSuchTarget {
        /// `member`, `group`, `stage` or `wait after stage`.
        kind: &'static str,
        /// The name.
        name: Name,
    },
    /// The target is done already.
    #[error("{kind} '{name}' is {state:?} already and cannot be skipped")]
    Done {
        /// `member`, `group`, `stage` or `wait after stage`.
        kind: &'static str,
        /// The name.
        name: Name,
        /// The state it is in.
        state: State,
    },
    /// The run has no such gate.
    #[error("the run has no gate number {0}")]
    NoSuchGate(u32),
    /// The gate does not allow it.
    #[error("{gate}: {reason}")]
    Gate {
        /// The gate, as people call it.
        gate: String,
        /// Why not, and the way out.
        reason: String,
    },
    /// Nothing was named.
    #[error("name at least one target to skip")]
    NoTargets,
}

/// Something that should be going on outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Find out which version the run's minor means.
    ResolveTarget,
    /// Look at the clusters of [`super::Run::images_to_read`], and answer with [`Input::ImagesResolved`] as soon as all that
    /// can be seen were seen; if the work is still wanted then, again every [`crate::images::LOOKED_AT_EVERY`] seconds.
    ResolveImages,
    /// Read the windows of [`super::Run::windows_to_read`], and answer with [`Input::WindowsSeen`].
    ReadWindows,
    /// Look at a member's cluster, wait for the provider's budget for the step it needs, answer with
    /// [`Input::Seen`] or [`Input::Held`].
    Look(Ticket),
    /// See whether what holds a member is still there.
    Probe(Ticket),
    /// Send a step. It was committed to.
    Send(Ticket),
    /// Follow the operation of a step.
    Follow(Ticket),
}
