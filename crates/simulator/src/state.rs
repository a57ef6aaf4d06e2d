//! What a simulated cluster is, and how time changes it.
//!
//! An operation gets its end and its outcome when it is accepted. Nothing ticks: whoever looks at a cluster first
//! [settles](ClusterState::settle) what has ended by then.

use std::collections::{BTreeMap, VecDeque};

use flotta_model::{KubernetesVersion, NodeImage};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    draw::Draw,
    fleet::{ClusterSpec, Failing, Sku, SupportPlan, Tier},
    releases::Releases,
};

/// Operations remembered for each cluster.
pub(crate) const OPERATIONS_KEPT: usize = 16;

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClusterState {
    /// Its ARM id, as it was first written.
    pub(crate) id: String,
    pub(crate) location: String,
    /// Taken away; kept for its operations.
    pub(crate) deleted: bool,
    /// The version as it was asked for, which may be a minor.
    pub(crate) asked_version: String,
    pub(crate) version: KubernetesVersion,
    pub(crate) provisioning: String,
    pub(crate) running: bool,
    #[serde(default)]
    pub(crate) sku: Sku,
    pub(crate) tier: Tier,
    pub(crate) support_plan: SupportPlan,
    pub(crate) auto_upgrade_channel: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
    /// Properties that clients wrote and the cloud only repeats.
    pub(crate) properties: Map<String, Value>,
    pub(crate) pools: Vec<PoolState>,
    /// In the order they were made.
    pub(crate) maintenance: Vec<(String, Value)>,
    /// The last ones, oldest first.
    pub(crate) operations: VecDeque<Operation>,
    pub(crate) operation_count: u64,
    /// Counts what changes the etag.
    pub(crate) changes: u64,
    pub(crate) upgrade_attempts: u32,
    pub(crate) fails: Option<Failing>,
}

/// A node pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolState {
    pub(crate) name: String,
    pub(crate) asked_version: String,
    pub(crate) version: KubernetesVersion,
    pub(crate) image: NodeImage,
    pub(crate) os_type: String,
    pub(crate) os_sku: String,
    pub(crate) mode: String,
    pub(crate) count: u32,
    pub(crate) running: bool,
    pub(crate) provisioning: String,
    pub(crate) snapshot: Option<String>,
    /// Settings that clients wrote and the cloud mostly repeats; `upgradeSettings` is read.
    pub(crate) settings: Map<String, Value>,
    pub(crate) changes: u64,
    pub(crate) nodes: Vec<Node>,
}

/// What a node really is; it may lag behind its pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) version: KubernetesVersion,
    pub(crate) image: NodeImage,
}

/// A long-running operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) id: Uuid,
    pub(crate) kind: Kind,
    /// The pool it is about, if it is about one.
    pub(crate) pool: Option<String>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) ending: Ending,
    /// An error that the body carries although the operation succeeds.
    pub(crate) noise: Option<(String, String)>,
    /// Nodes that come to their pool's version and image, and when.
    pub(crate) moves: Vec<NodeMove>,
    /// Its end has been carried out.
    pub(crate) settled: bool,
}

/// One node coming to its pool's version and image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeMove {
    pub(crate) pool: String,
    pub(crate) node: usize,
    pub(crate) at: Timestamp,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Create,
    Update,
    Upgrade,
    Scale,
    NodeImage,
    SecurityPatch,
    Start,
    Stop,
    Delete,
    Abort,
    Foreign,
}

/// How an operation ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ending {
    Succeeded,
    Failed { code: String, message: String },
    Canceled,
}

impl Ending {
    /// The word for operation and resource alike.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed { .. } => "Failed",
            Self::Canceled => "Canceled",
        }
    }
}

impl Operation {
    /// Free text on where it stands (`aks-wire.md` §2).
    pub(crate) fn status(&self, now: Timestamp, texts: bool, nodes: usize) -> String {
        if now >= self.end {
            return self.ending.word().into();
        }
        let whole = self.end.duration_since(self.start).as_secs_f64().max(1e-9);
        let share = now.duration_since(self.start).as_secs_f64() / whole;
        let done = (share * nodes as f64) as usize;
        let text = match (self.kind, self.pool.is_some()) {
            _ if !texts || share < 0.1 => "InProgress",
            (Kind::Create, true) => return format!("CreatingAgentPool: {done}/{nodes} nodes completed"),
            (Kind::Create, false) if share < 0.2 => "ProvisioningNetworkResources",
            (Kind::Create, false) if share < 0.5 => "ProvisioningControlPlane",
            (Kind::Create, false) if share < 0.6 => "ReconcilingDNS",
            (Kind::Create, false) if share < 0.9 => {
                return format!("CreatingAgentPools: {done}/{nodes} nodes completed");
            }
            (Kind::Update | Kind::Upgrade, false) if share < 0.7 => "ProvisioningControlPlane",
            (Kind::Create | Kind::Update | Kind::Upgrade, false) => "ReconcilingAddons",
            _ => "InProgress",
        };
        text.into()
    }
}

impl PoolState {
    /// Where a node is at an instant, with its operation still going on.
    pub(crate) fn node_at(&self, node: usize, moves: &[NodeMove], now: Timestamp) -> Node {
        let moved = moves.iter().any(|step| step.node == node && step.at <= now && step.pool == self.name);
        match moved {
            true => self.model(),
            false => self.nodes[node].clone(),
        }
    }

    /// What the pool's nodes should be.
    pub(crate) fn model(&self) -> Node {
        Node { version: self.version, image: self.image.clone() }
    }

    /// The nodes that are not what the pool says they are.
    pub(crate) fn lagging(&self) -> Vec<usize> {
        let model = self.model();
        (0..self.nodes.len()).filter(|node| self.nodes[*node] != model).collect()
    }

    /// How many nodes move at once: `maxSurge`, percentages rounded up.
    pub(crate) fn surge(&self) -> usize {
        let text =
            self.settings.get("upgradeSettings").and_then(|settings| settings["maxSurge"].as_str()).unwrap_or("1");
        let nodes = self.nodes.len();
        let surge = match text.strip_suffix('%') {
            Some(percent) => percent.parse::<usize>().map(|percent| (percent.min(100) * nodes).div_ceil(100)),
            None => text.parse(),
        };
        surge.unwrap_or(1).max(1)
    }

    /// Whether something is going on in the pool.
    pub(crate) fn busy(&self) -> bool {
        !matches!(self.provisioning.as_str(), "Succeeded" | "Failed" | "Canceled")
    }
}

impl ClusterState {
    /// The cluster's own name.
    pub(crate) fn name(&self) -> &str {
        self.id.rsplit('/').next().unwrap_or_default()
    }

    /// Whether the cluster has long-term support.
    pub(crate) fn long_term_support(&self) -> bool {
        self.tier == Tier::Premium && self.support_plan == SupportPlan::AksLongTermSupport
    }

    /// The operation that holds the cluster, if one does. Calling off does not count: it ends with what it calls off.
    pub(crate) fn active(&self) -> Option<&Operation> {
        self.operations.iter().rev().find(|operation| !operation.settled && operation.kind != Kind::Abort)
    }

    /// A pool by its name, whatever the casing.
    pub(crate) fn pool(&self, name: &str) -> Option<&PoolState> {
        self.pools.iter().find(|pool| pool.name.eq_ignore_ascii_case(name))
    }

    pub(crate) fn pool_mut(&mut self, name: &str) -> Option<&mut PoolState> {
        self.pools.iter_mut().find(|pool| pool.name.eq_ignore_ascii_case(name))
    }

    /// Carries out the ends that have come.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        for index in 0..self.operations.len() {
            if !self.operations[index].settled && self.operations[index].end <= now {
                self.operations[index].settled = true;
                let operation = self.operations[index].clone();
                self.finish(&operation);
            }
        }
    }

    fn finish(&mut self, operation: &Operation) {
        for step in operation.moves.iter().filter(|step| step.at <= operation.end) {
            if let Some(pool) = self.pool_mut(&step.pool) {
                let model = pool.model();
                if let Some(node) = pool.nodes.get_mut(step.node) {
                    *node = model;
                }
            }
        }
        match (operation.kind, &operation.pool) {
            (Kind::Abort, _) => {}
            (Kind::Delete, None) => self.deleted = true,
            (Kind::Delete, Some(name)) => self.pools.retain(|pool| pool.name != *name),
            (_, Some(name)) => {
                if let Some(pool) = self.pool_mut(name) {
                    pool.provisioning = operation.ending.word().into();
                    pool.changes += 1;
                }
            }
            (_, None) => {
                self.provisioning = operation.ending.word().into();
                self.changes += 1;
                for pool in self.pools.iter_mut().filter(|pool| pool.busy()) {
                    let reached = matches!(operation.ending, Ending::Failed { .. }) && pool.lagging().is_empty();
                    pool.provisioning = if reached { "Succeeded" } else { operation.ending.word() }.into();
                    pool.changes += 1;
                }
            }
        }
    }

    /// A cluster of the fleet file at its birth.
    pub(crate) fn born(
        spec: &ClusterSpec,
        id: String,
        releases: &Releases,
        birth: Timestamp,
        seed: u64,
    ) -> Option<Self> {
        let version = releases.resolve(spec.version)?;
        let pools =
            spec.pools.iter().map(|pool| PoolState::born(pool, spec, version, releases)).collect::<Option<_>>()?;
        let mut state = Self {
            location: spec.region.clone(),
            deleted: false,
            asked_version: spec.version.to_string(),
            version,
            provisioning: "Succeeded".into(),
            running: !spec.stopped,
            sku: spec.sku,
            tier: spec.tier,
            support_plan: spec.support_plan,
            auto_upgrade_channel: spec.channel().map(Into::into),
            tags: spec.tags.clone(),
            properties: Map::from_iter([
                (
                    "autoUpgradeProfile".into(),
                    serde_json::json!({"nodeOSUpgradeChannel": spec.node_os_upgrade_channel}),
                ),
                (
                    "nodeProvisioningProfile".into(),
                    serde_json::json!({"mode": spec.provisioning(), "defaultNodePools": "Auto"}),
                ),
            ]),
            pools,
            maintenance: spec.maintenance.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            operations: VecDeque::new(),
            operation_count: 0,
            changes: 0,
            upgrade_attempts: 0,
            fails: spec.fails.clone(),
            id,
        };
        if let Some(foreign) = &spec.foreign {
            state.provisioning.clone_from(&foreign.state);
            state.pools.iter_mut().for_each(|pool| pool.provisioning.clone_from(&foreign.state));
            state.operation_count = 1;
            let end =
                birth.saturating_add(SignedDuration::from_secs(i64::from(foreign.seconds))).unwrap_or(Timestamp::MAX);
            state.operations.push_back(Operation {
                id: Draw::new(seed, &state.id.to_ascii_lowercase(), 1, "operation").uuid(),
                kind: Kind::Foreign,
                pool: None,
                start: birth,
                end,
                ending: Ending::Succeeded,
                noise: None,
                moves: Vec::new(),
                settled: false,
            });
        }
        Some(state)
    }
}

impl PoolState {
    fn born(
        spec: &crate::fleet::PoolSpec,
        cluster: &ClusterSpec,
        version: KubernetesVersion,
        releases: &Releases,
    ) -> Option<Self> {
        let asked = spec.version.unwrap_or(cluster.version);
        let version = match spec.version {
            Some(target) => releases.resolve(target)?,
            None => version,
        };
        let image = match &spec.image {
            Some(image) => image.clone(),
            None => releases.newest_image(spec.family()?)?.clone(),
        };
        let mut settings = Map::new();
        settings.insert("vmSize".into(), spec.vm_size.clone().into());
        settings
            .insert("upgradeSettings".into(), serde_json::json!({"maxSurge": spec.max_surge, "maxUnavailable": "0"}));
        let node = Node { version, image: image.clone() };
        Some(Self {
            name: spec.name.clone(),
            asked_version: asked.to_string(),
            version,
            image,
            os_type: spec.os_type.clone(),
            os_sku: spec.os_sku.clone(),
            mode: spec.mode.clone(),
            count: if cluster.stopped { 0 } else { spec.count },
            running: !cluster.stopped,
            provisioning: "Succeeded".into(),
            snapshot: spec.snapshot.clone(),
            settings,
            changes: 0,
            nodes: vec![node; spec.count as usize],
        })
    }
}
