//! The port to clusters, and the AKS driver behind it.
//!
//! A driver observes a cluster, starts one [`Step`] on it, and polls the operation that the step began. It paces
//! itself inside the provider's budgets and sorts every error into [`Trouble`]; what to do about a cluster is never
//! its business.
//!
//! | module | what |
//! |---|---|
//! | [`aks`] | Azure Kubernetes Service through its ARM API, or anything that speaks it |
//! | [`pace`] | the provider's budgets, as token buckets in domain time |
//! | [`token`] | where access tokens come from |
//! | [`transport`] | HTTP over the network, or into a service in the same process |

pub mod aks;
pub mod pace;
pub mod token;
pub mod transport;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use flotta_model::{
    Catalogue, Cluster, ClusterId, Fault, Hold, KubernetesVersion, MaintenanceWindow, Step, WindowKind,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A way to some clusters.
#[async_trait]
pub trait ClusterDriver: Send + Sync + 'static {
    /// Whether this driver is the one for a cluster.
    fn reaches(&self, cluster: &ClusterId) -> bool;

    /// Reads a cluster, and as much around it as `look` asks for.
    async fn observe(&self, cluster: &ClusterId, look: Look) -> Result<Cluster, Trouble>;

    /// The Kubernetes versions of a region. May be remembered for some minutes.
    async fn catalogue(&self, cluster: &ClusterId, location: &str) -> Result<Arc<Catalogue>, Trouble>;

    /// Its window for that kind of upgrade; `None`: it may be changed at any time. May be remembered for 15 minutes, as AKS
    /// takes as long to notice a change. A window that cannot be read is [`Trouble::Wait`], never `None`.
    async fn window(&self, cluster: &ClusterId, kind: WindowKind) -> Result<Option<MaintenanceWindow>, Trouble>;

    /// Returns when a write for this cluster, and the read that comes before it, are inside the provider's budget. It
    /// is waited for before a step is intended, so that a stop takes hold of everything that still queues here.
    async fn permit(&self, cluster: &ClusterId, step: &Step);

    /// Starts a step, at most once: with `recovering`, what an earlier call of the same intent may have begun is
    /// looked for first, and adopted. [`Trouble::Unknown`] means: call again with `recovering`.
    async fn start(&self, intent: &Intent) -> Result<Started, Trouble>;

    /// Where the operation of a step stands.
    async fn poll(&self, intent: &Intent, operation: &Operation) -> Result<Progress, Trouble>;
}

/// What to read beside the cluster itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The version it is to reach. Where its control plane is below, the versions it may go to are read.
    pub target: Option<KubernetesVersion>,
    /// The images of each pool; not where the control plane is below the target, since images come after it.
    pub images: bool,
    /// They are read there, too: images that are pinned go with the version.
    pub pins: bool,
    /// The machines of each pool, to see nodes that lag behind their pool.
    pub machines: bool,
}

/// A step that was committed to, and what makes it safe to send twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The cluster.
    pub cluster: ClusterId,
    /// The step.
    pub step: Step,
    /// The etag of the cluster or pool that the step is about, as it was when the step was decided.
    pub guard: Option<String>,
    /// When it was committed to, in domain time.
    pub at: Timestamp,
    /// An earlier call of this intent may have been accepted.
    #[serde(default)]
    pub recovering: bool,
    /// From this instant on (domain time) it is not sent any more, whatever came before; what is already moving is
    /// adopted all the same. `None`: it may be sent at any time.
    #[serde(default)]
    pub not_after: Option<Timestamp>,
}

/// A step that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its operation.
    pub operation: Operation,
    /// It was found already moving, rather than started by this call.
    pub adopted: bool,
}

/// A provider's operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id, as people see it.
    pub id: String,
    /// Where to ask for it; signed and opaque. Without one the state of the resources tells.
    pub url: Option<String>,
}

/// Where an operation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Under way; the provider's own word for it, and how long (domain time) to leave it alone.
    Running {
        /// Free text.
        detail: String,
        /// How long to wait before the next look.
        after: Duration,
    },
    /// Ended well, or overtaken by another operation, and the resources have come to rest. Whether they are where they
    /// should be, the next look tells.
    Succeeded,
    /// Ended badly.
    Failed(Fault),
}

/// Why a call brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Passing: nothing was changed; try again, after a pause if one was asked for.
    #[error("{detail}")]
    Retry {
        /// What happened.
        detail: String,
        /// The pause the provider asked for, in domain time.
        after: Option<Duration>,
        /// What holds the cluster if this does not pass soon.
        lasting: Hold,
    },
    /// It is not known whether the call was accepted. Only [`ClusterDriver::start`] says this.
    #[error("it is not known whether the call was accepted: {0}")]
    Unknown(String),
    /// Something holds the cluster; nothing was changed.
    #[error("{0}")]
    Wait(Hold),
    /// It will never work like this.
    #[error("{0}")]
    Permanent(Fault),
}
