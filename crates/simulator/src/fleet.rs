//! The fleet file: one YAML document that says which cloud is simulated.
//!
//! | section | what |
//! |---|---|
//! | `seed` | of every draw |
//! | `subscription`, `resourceGroup` | of clusters that name none |
//! | `regions` | Kubernetes releases, node images and security patches, each from some time on |
//! | `behaviour` | lengths of operations, failures, throttling, noise |
//! | `clusters` | clusters one by one |
//! | `templates` | clusters by the hundred |
//! | `faults` | what goes wrong on the wire |

use std::collections::{BTreeMap, BTreeSet};

use flotta_model::{ClusterId, KubernetesVersion, NodeImage, VersionTarget};
use jiff::{Timestamp, civil::Date};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{faults::FaultRule, pattern};

/// The most clusters in one file.
pub const MOST_CLUSTERS: usize = 200_000;

/// AKS's channels for node images.
const NODE_OS_CHANNELS: [&str; 4] = ["None", "Unmanaged", "SecurityPatch", "NodeImage"];

/// The longest fleet file, in bytes.
pub const LONGEST_FILE: usize = 16 << 20;

/// A simulated cloud, as a file describes it. Templates are written out: `clusters` holds every cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetFile {
    /// The seed of every draw.
    #[serde(default)]
    pub seed: u64,
    /// The subscription of clusters that name none.
    #[serde(default = "default_subscription")]
    pub subscription: String,
    /// The resource group of clusters that name none.
    #[serde(default = "default_resource_group")]
    pub resource_group: String,
    /// The regions, by name.
    pub regions: BTreeMap<String, Region>,
    /// How the cloud behaves.
    #[serde(default)]
    pub behaviour: Behaviour,
    /// The clusters.
    #[serde(default)]
    pub clusters: Vec<ClusterSpec>,
    /// Generators of clusters; empty once the file is parsed.
    #[serde(default)]
    templates: Vec<Template>,
    /// What goes wrong on the wire.
    #[serde(default)]
    pub faults: Vec<FaultRule>,
}

/// The text is not a fleet file.
#[derive(Debug, thiserror::Error)]
pub enum FleetFileError {
    /// Not YAML, or not of the right shape.
    #[error("the fleet file cannot be read at '{path}': {reason}")]
    Shape {
        /// Where, as a path of keys.
        path: String,
        /// What is wrong, with line and column where known.
        reason: String,
    },
    /// Of the right shape, but it contradicts itself.
    #[error("the fleet file is wrong at '{path}': {reason}")]
    Meaning {
        /// Where, as a path of keys.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// What a region offers.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Region {
    /// The Kubernetes minors.
    pub kubernetes: Vec<Minor>,
    /// The node images; the newest of a family is what its pools go to.
    pub images: Vec<Dated<NodeImage>>,
    /// The dates of security patches that can be put onto running Linux nodes.
    #[serde(default)]
    pub security_patches: Vec<Dated<Date>>,
}

/// A Kubernetes minor in a region.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Minor {
    /// Such as `1.33`.
    pub minor: String,
    /// The plans that support it; without `KubernetesOfficial` it is for long-term support only.
    #[serde(default = "both_plans")]
    pub support_plan: Vec<SupportPlan>,
    /// The minor of clusters that name no version.
    #[serde(default)]
    pub default: bool,
    /// Not generally available.
    #[serde(default)]
    pub preview: bool,
    /// The patches on offer.
    pub patches: Vec<Dated<KubernetesVersion>>,
}

/// Something that a region has from some time on, and perhaps not for ever.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a version, node image or date, or { is, from, afterSeconds, until } around one")]
pub enum Dated<T> {
    /// From the start.
    Always(T),
    /// In a span of time.
    Span(Span<T>),
}

/// Something that a region has in a span of time. Seconds count from the simulator's first start, in domain time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Span<T> {
    /// The thing.
    pub is: T,
    /// From this instant on.
    #[serde(default)]
    pub from: Option<Timestamp>,
    /// From so many seconds on.
    #[serde(default)]
    pub after_seconds: Option<u32>,
    /// Until this instant.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

impl<T> Dated<T> {
    /// The thing itself.
    pub fn get(&self) -> &T {
        match self {
            Self::Always(thing) | Self::Span(Span { is: thing, .. }) => thing,
        }
    }

    /// The thing, if it is there at `now` in a cloud born at `birth`.
    pub fn at(&self, now: Timestamp, birth: Timestamp) -> Option<&T> {
        let Self::Span(span) = self else { return Some(self.get()) };
        let age = now.duration_since(birth).as_secs();
        let begun = span.from.is_none_or(|from| from <= now)
            && span.after_seconds.is_none_or(|seconds| i64::from(seconds) <= age);
        (begun && span.until.is_none_or(|until| now < until)).then_some(&span.is)
    }
}

/// A support plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupportPlan {
    /// Community support.
    KubernetesOfficial,
    /// Long-term support; needs tier Premium.
    #[serde(rename = "AKSLongTermSupport")]
    AksLongTermSupport,
}

/// How the cloud behaves.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Behaviour {
    /// Every length is multiplied by this; 0 makes operations end as soon as they begin.
    pub duration_scale: f64,
    /// Lengths of operations.
    pub durations: Durations,
    /// The share of upgrade operations that fail, from 0 to 1.
    pub failure_rate: f64,
    /// What they fail with.
    pub failure: Failure,
    /// Whether AKS's request limits hold.
    pub throttling: bool,
    /// Seconds of `Retry-After` on starts and polls; AKS sends none.
    pub retry_after: Option<u32>,
    /// Whether running operations say more than `InProgress`.
    pub status_texts: bool,
    /// The share of operations whose bodies carry an error although they succeed, from 0 to 1.
    pub operation_error_rate: f64,
    /// Whether a version upgrade of a pool brings the newest image of its family too.
    pub image_with_version: bool,
    /// Whether a pool may skip minors on its way to the control plane's version.
    pub pools_may_skip_minors: bool,
    /// Whether pools tell which images and security patches they can be set to, and take them. Public AKS does not.
    pub pin_images: bool,
    /// What becomes of writes that leave a pool on an image that is too old to make nodes from.
    pub expired_images: Expired,
    /// Resources on a page of a list.
    pub page_size: usize,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            duration_scale: 1.0,
            durations: Durations::default(),
            failure_rate: 0.0,
            failure: Failure::default(),
            throttling: true,
            retry_after: None,
            status_texts: true,
            operation_error_rate: 0.0,
            image_with_version: true,
            pools_may_skip_minors: false,
            pin_images: true,
            expired_images: Expired::Accept,
            page_size: 500,
        }
    }
}

/// What becomes of a write that leaves a pool on an image published more than 90 days ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Expired {
    /// It is accepted.
    Accept,
    /// It is refused, whatever it is about (`behaviour.md` E63).
    Refuse,
}

/// A length in seconds: half of the draws are below the median, and all are between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Length {
    /// The shortest.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
    /// The longest.
    pub max: f64,
}

impl Length {
    const fn new(min: f64, median: f64, max: f64) -> Self {
        Self { min, median, max }
    }

    /// The length at a share of the draws.
    pub fn at(self, share: f64) -> f64 {
        match share < 0.5 {
            true => self.min + (self.median - self.min) * share * 2.0,
            false => self.median + (self.max - self.median) * (share - 0.5) * 2.0,
        }
    }
}

/// Lengths of operations (`aks-wire.md` §4). A version upgrade takes the part of its control plane and that of each
/// batch of nodes, one pool after another; a batch is what `maxSurge` allows.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Durations {
    /// The control plane's part of a full upgrade.
    pub control_plane: Length,
    /// An upgrade of the control plane alone.
    pub control_plane_only: Length,
    /// One batch of nodes.
    pub node_batch: Length,
    /// A node image upgrade that has nothing to do.
    pub image_no_op: Length,
    /// Security patches onto the running nodes of a pool.
    pub security_patch: Length,
    /// A cluster write without a new version.
    pub cluster_update: Length,
    /// A pool write without a new version.
    pub pool_update: Length,
    /// A new cluster.
    pub create: Length,
    /// A new pool.
    pub add_pool: Length,
    /// Stopping a cluster.
    pub stop: Length,
    /// Starting a cluster.
    pub start: Length,
    /// Stopping a pool.
    pub stop_pool: Length,
    /// Starting a pool.
    pub start_pool: Length,
    /// Another number of nodes.
    pub scale: Length,
    /// Calling an operation off.
    pub abort: Length,
    /// Taking a cluster or pool away.
    pub delete: Length,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            control_plane: Length::new(300.0, 436.0, 500.0),
            control_plane_only: Length::new(80.0, 105.0, 125.0),
            node_batch: Length::new(260.0, 309.0, 370.0),
            image_no_op: Length::new(15.0, 25.0, 39.0),
            security_patch: Length::new(40.0, 60.0, 90.0),
            cluster_update: Length::new(93.0, 137.0, 687.0),
            pool_update: Length::new(3.0, 9.0, 39.0),
            create: Length::new(166.0, 305.0, 900.0),
            add_pool: Length::new(60.0, 170.0, 417.0),
            stop: Length::new(73.0, 181.0, 754.0),
            start: Length::new(129.0, 184.0, 451.0),
            stop_pool: Length::new(37.0, 58.0, 279.0),
            start_pool: Length::new(97.0, 145.0, 355.0),
            scale: Length::new(193.0, 230.0, 446.0),
            abort: Length::new(5.0, 7.0, 10.0),
            delete: Length::new(60.0, 180.0, 400.0),
        }
    }
}

impl Durations {
    fn all(&self) -> [(&'static str, Length); 16] {
        [
            ("controlPlane", self.control_plane),
            ("controlPlaneOnly", self.control_plane_only),
            ("nodeBatch", self.node_batch),
            ("imageNoOp", self.image_no_op),
            ("securityPatch", self.security_patch),
            ("clusterUpdate", self.cluster_update),
            ("poolUpdate", self.pool_update),
            ("create", self.create),
            ("addPool", self.add_pool),
            ("stop", self.stop),
            ("start", self.start),
            ("stopPool", self.stop_pool),
            ("startPool", self.start_pool),
            ("scale", self.scale),
            ("abort", self.abort),
            ("delete", self.delete),
        ]
    }
}

/// What an upgrade fails with. `{cluster}`, `{pool}` and `{node}` stand for what it stopped at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Failure {
    /// The code.
    pub code: String,
    /// The message.
    pub message: String,
}

impl Default for Failure {
    fn default() -> Self {
        Self {
            code: "PodDrainFailure".into(),
            message: "Drain node {node} failed when evicting pod web-0 failed with Too Many Requests error. This is often \
                      caused by a restrictive Pod Disruption Budget (PDB) policy. See https://aka.ms/aks/debugdrainfailures. \
                      Original error: Cannot evict pod as it would violate the pod's disruption budget.. PDB debug info: \
                      shop/web-0 blocked by pdb web with 0 unready pods."
                .into(),
        }
    }
}

/// Upgrades of one cluster that fail on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failing {
    /// How many attempts fail, from the first on.
    pub attempts: u32,
    /// The code, where it is not the usual one.
    #[serde(default)]
    pub code: Option<String>,
    /// The message, where it is not the usual one.
    #[serde(default)]
    pub message: Option<String>,
}

/// An operation that nobody here asked for, under way when the cloud is born.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreign {
    /// How long it takes, in seconds of domain time; `durationScale` leaves it alone.
    pub seconds: u32,
    /// The cluster's provisioning state meanwhile.
    #[serde(default = "updating")]
    pub state: String,
}

/// A cluster at its start.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSpec {
    /// Its name.
    pub name: String,
    /// Its subscription.
    #[serde(default)]
    pub subscription: Option<String>,
    /// Its resource group.
    #[serde(default)]
    pub resource_group: Option<String>,
    /// Its region.
    pub region: String,
    /// Its version; a minor such as `1.32` stays as an alias, on the minor's newest patch.
    pub version: VersionTarget,
    /// The name of its SKU.
    #[serde(default)]
    pub sku: Sku,
    /// The tier of its SKU.
    #[serde(default)]
    pub tier: Tier,
    /// Its support plan.
    #[serde(default = "official")]
    pub support_plan: SupportPlan,
    /// AKS's own upgrade channel.
    #[serde(default)]
    pub auto_upgrade_channel: Option<String>,
    /// AKS's own channel for node images; `None` where there is none, although AKS's default is `NodeImage`.
    #[serde(default = "no_channel", rename = "nodeOSUpgradeChannel")]
    pub node_os_upgrade_channel: String,
    /// Whether AKS makes the nodes itself.
    #[serde(default)]
    pub node_provisioning: Option<NodeProvisioning>,
    /// Whether it is switched off.
    #[serde(default)]
    pub stopped: bool,
    /// Its tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Its node pools.
    pub pools: Vec<PoolSpec>,
    /// Its maintenance configurations, by name: what ARM calls their `properties`.
    #[serde(default)]
    pub maintenance: BTreeMap<String, Value>,
    /// How it joins a fleet.
    #[serde(default)]
    pub member: MemberSpec,
    /// Upgrades that fail on purpose.
    #[serde(default)]
    pub fails: Option<Failing>,
    /// An operation under way at the start.
    #[serde(default)]
    pub foreign: Option<Foreign>,
}

/// The name of a cluster's SKU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sku {
    /// Its owner decides.
    #[default]
    Base,
    /// AKS Automatic: AKS upgrades it and makes its nodes.
    Automatic,
}

/// Who makes a cluster's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeProvisioning {
    /// AKS, as pods need them.
    Auto,
    /// Its owner, in pools.
    Manual,
}

/// The tier of a cluster's SKU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tier {
    /// No uptime promise.
    Free,
    /// With one.
    #[default]
    Standard,
    /// With long-term support on offer.
    Premium,
}

/// How a cluster joins a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSpec {
    /// The member's name; the cluster's where there is none.
    #[serde(default)]
    pub name: Option<String>,
    /// Its update group.
    #[serde(default)]
    pub group: Option<String>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A node pool at its start.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolSpec {
    /// Its name.
    pub name: String,
    /// Its version, where it is not the cluster's.
    #[serde(default)]
    pub version: Option<VersionTarget>,
    /// `Linux` or `Windows`.
    #[serde(default = "linux")]
    pub os_type: String,
    /// Such as `Ubuntu`, `AzureLinux`, `Windows2022`.
    #[serde(default = "ubuntu", rename = "osSKU")]
    pub os_sku: String,
    /// Its image; the newest of its family where there is none.
    #[serde(default)]
    pub image: Option<NodeImage>,
    /// The family of its image, where the osSKU's usual one is not meant.
    #[serde(default)]
    pub family: Option<String>,
    /// Its nodes.
    #[serde(default = "three")]
    pub count: u32,
    /// `System` or `User`.
    #[serde(default = "system")]
    pub mode: String,
    /// The size of its machines.
    #[serde(default = "size")]
    pub vm_size: String,
    /// How many nodes move at once: a number or a percentage.
    #[serde(default = "surge")]
    pub max_surge: String,
    /// The id of the snapshot it was made from.
    #[serde(default)]
    pub snapshot: Option<String>,
}

/// Clusters by the hundred: `cluster` is a cluster in which every text may hold `{n}` (1, 2, …), `{n:03}` (with
/// leading zeros), `{n%50}` (1 to 50, round and round), `{n/20}` (each number 20 times) and `{a|b|c}` (one after the
/// other).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    count: u32,
    cluster: Value,
}

fn default_subscription() -> String {
    "00000000-0000-0000-0000-000000000001".into()
}
fn default_resource_group() -> String {
    "rg-fleet".into()
}
fn both_plans() -> Vec<SupportPlan> {
    vec![SupportPlan::KubernetesOfficial, SupportPlan::AksLongTermSupport]
}
fn official() -> SupportPlan {
    SupportPlan::KubernetesOfficial
}
fn no_channel() -> String {
    "None".into()
}
fn updating() -> String {
    "Updating".into()
}
fn linux() -> String {
    "Linux".into()
}
fn ubuntu() -> String {
    "Ubuntu".into()
}
fn system() -> String {
    "System".into()
}
fn size() -> String {
    "Standard_D4s_v5".into()
}
fn surge() -> String {
    "10%".into()
}
fn three() -> u32 {
    3
}

/// The usual family of an osSKU's images (`aks-wire.md` §6).
pub(crate) fn usual_family(os_sku: &str) -> Option<&'static str> {
    let family = match os_sku.to_ascii_lowercase().as_str() {
        "ubuntu" | "ubuntu2204" => "AKSUbuntu-2204gen2containerd",
        "ubuntu2404" => "AKSUbuntu-2404gen2containerd",
        "azurelinux" | "azurelinux3" => "AKSAzureLinux-V3gen2",
        "flatcar" => "AKSFlatcar-flatcargen2",
        "windows2019" => "AKSWindows-2019-containerd",
        "windows2022" => "AKSWindows-2022-containerd",
        "windows2025" => "AKSWindows-2025-gen2",
        _ => return None,
    };
    Some(family)
}

impl PoolSpec {
    /// The family of its images.
    pub(crate) fn family(&self) -> Option<&str> {
        let named = self.family.as_deref();
        named.or_else(|| self.image.as_ref().map(NodeImage::family)).or_else(|| usual_family(&self.os_sku))
    }
}

impl FleetFile {
    /// Reads a fleet file, writes its templates out, and checks that it makes sense.
    pub fn parse(text: &str) -> Result<Self, FleetFileError> {
        if text.len() > LONGEST_FILE {
            return Err(meaning("", format!("it is longer than {LONGEST_FILE} bytes")));
        }
        let path = std::cell::RefCell::new(String::new());
        let read = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
            serde_path_to_error::deserialize::<_, Self>(deserializer).map_err(|error| {
                path.replace(error.path().to_string());
                error.into_inner()
            })
        });
        let mut file =
            read.map_err(|error| FleetFileError::Shape { path: path.borrow().clone(), reason: error.to_string() })?;
        file.write_templates_out()?;
        file.check()?;
        Ok(file)
    }

    /// The id of a cluster of this file.
    pub(crate) fn id_of(&self, cluster: &ClusterSpec) -> String {
        let subscription = cluster.subscription.as_ref().unwrap_or(&self.subscription);
        let group = cluster.resource_group.as_ref().unwrap_or(&self.resource_group);
        format!(
            "/subscriptions/{subscription}/resourcegroups/{group}/providers/Microsoft.ContainerService/managedClusters/{}",
            cluster.name
        )
    }

    fn write_templates_out(&mut self) -> Result<(), FleetFileError> {
        let templates = std::mem::take(&mut self.templates);
        let all =
            templates.iter().fold(self.clusters.len(), |all, template| all.saturating_add(template.count as usize));
        if all > MOST_CLUSTERS {
            return Err(meaning("templates", format!("{all} clusters are more than the {MOST_CLUSTERS} allowed")));
        }
        for (index, template) in templates.iter().enumerate() {
            for n in 1..=template.count {
                let at = format!("templates[{index}].cluster");
                let written = pattern::fill(&template.cluster, n).map_err(|reason| meaning(&at, reason))?;
                let cluster = serde_path_to_error::deserialize(written).map_err(|error| FleetFileError::Shape {
                    path: format!("{at}.{}", error.path()),
                    reason: error.inner().to_string(),
                })?;
                self.clusters.push(cluster);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), FleetFileError> {
        let known = || self.regions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        for (name, region) in &self.regions {
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
                return Err(meaning("regions", format!("'{name}' is not a region: use lower-case letters and digits")));
            }
            region.check(&format!("regions.{name}"))?;
        }
        self.behaviour.check()?;
        for (index, rule) in self.faults.iter().enumerate() {
            rule.check().map_err(|reason| meaning(&format!("faults[{index}]"), reason))?;
        }
        let mut ids = BTreeSet::new();
        for (index, cluster) in self.clusters.iter().enumerate() {
            let at = format!("clusters[{index}] ({})", cluster.name);
            let id: ClusterId = self
                .id_of(cluster)
                .parse()
                .map_err(|error: flotta_model::cluster::ClusterIdError| meaning(&at, error.to_string()))?;
            if !ids.insert(id) {
                return Err(meaning(&at, "another cluster of its resource group has this name".into()));
            }
            let Some(region) = self.regions.get(&cluster.region) else {
                let reason = format!("no region '{}' is described; there are: {}", cluster.region, known());
                return Err(meaning(&format!("{at}.region"), reason));
            };
            cluster.check(&at, region)?;
        }
        Ok(())
    }
}

impl Region {
    fn check(&self, at: &str) -> Result<(), FleetFileError> {
        let mut defaults = 0;
        for (index, minor) in self.kubernetes.iter().enumerate() {
            let here = format!("{at}.kubernetes[{index}]");
            let Ok(VersionTarget::Minor { major, minor: number }) = minor.minor.parse() else {
                return Err(meaning(&here, format!("'{}' is not a minor such as \"1.33\"", minor.minor)));
            };
            if let Some(patch) =
                minor.patches.iter().find(|patch| (patch.get().major, patch.get().minor) != (major, number))
            {
                return Err(meaning(&here, format!("{} is not a patch of {}", patch.get(), minor.minor)));
            }
            defaults += usize::from(minor.default);
        }
        if defaults > 1 {
            return Err(meaning(at, "more than one minor is the default".into()));
        }
        Ok(())
    }
}

impl Behaviour {
    fn check(&self) -> Result<(), FleetFileError> {
        let at = |field: &str| format!("behaviour.{field}");
        for (field, share) in [("failureRate", self.failure_rate), ("operationErrorRate", self.operation_error_rate)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(meaning(&at(field), format!("{share} is not a share from 0 to 1")));
            }
        }
        if !(0.0..=1e6).contains(&self.duration_scale) {
            return Err(meaning(
                &at("durationScale"),
                format!("{} is not a factor from 0 to 1000000", self.duration_scale),
            ));
        }
        if !(1..=10_000).contains(&self.page_size) {
            return Err(meaning(&at("pageSize"), format!("{} is not a size from 1 to 10000", self.page_size)));
        }
        for (field, length) in self.durations.all() {
            let ordered = 0.0 <= length.min && length.min <= length.median && length.median <= length.max;
            if !ordered || length.max > 1e9 {
                return Err(meaning(&at(&format!("durations.{field}")), "use 0 <= min <= median <= max <= 1e9".into()));
            }
        }
        Ok(())
    }
}

impl ClusterSpec {
    /// AKS's own upgrade channel: Automatic clusters have one whatever anybody says.
    pub(crate) fn channel(&self) -> Option<&str> {
        let named = self.auto_upgrade_channel.as_deref();
        named.or((self.sku == Sku::Automatic).then_some("stable"))
    }

    /// Who makes its nodes.
    pub(crate) fn provisioning(&self) -> NodeProvisioning {
        let usual = match self.sku {
            Sku::Base => NodeProvisioning::Manual,
            Sku::Automatic => NodeProvisioning::Auto,
        };
        self.node_provisioning.unwrap_or(usual)
    }

    fn check(&self, at: &str, region: &Region) -> Result<(), FleetFileError> {
        if self.pools.is_empty() || self.pools.len() > 100 {
            return Err(meaning(&format!("{at}.pools"), "a cluster has 1 to 100 pools".into()));
        }
        if self.support_plan == SupportPlan::AksLongTermSupport && self.tier != Tier::Premium {
            return Err(meaning(&format!("{at}.supportPlan"), "AKSLongTermSupport needs tier: Premium".into()));
        }
        if self.sku == Sku::Automatic && self.node_provisioning == Some(NodeProvisioning::Manual) {
            return Err(meaning(
                &format!("{at}.nodeProvisioning"),
                "sku Automatic means nodeProvisioning: Auto".into(),
            ));
        }
        if !NODE_OS_CHANNELS.contains(&self.node_os_upgrade_channel.as_str()) {
            let reason = format!("use one of {}", NODE_OS_CHANNELS.join(", "));
            return Err(meaning(&format!("{at}.nodeOSUpgradeChannel"), reason));
        }
        let mut names = BTreeSet::new();
        for pool in &self.pools {
            let here = format!("{at}.pools ({})", pool.name);
            if !names.insert(pool.name.to_ascii_lowercase()) {
                return Err(meaning(&here, "another pool of the cluster has this name".into()));
            }
            let plain = pool.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            if !plain || !(1..=12).contains(&pool.name.len()) {
                return Err(meaning(&here, "use 1 to 12 lower-case letters and digits as a pool's name".into()));
            }
            if pool.count > 1000 {
                return Err(meaning(&here, "a pool has at most 1000 nodes".into()));
            }
            let family = pool.family().unwrap_or_default();
            if pool.image.is_none() && !region.images.iter().any(|image| image.get().family() == family) {
                let reason = format!(
                    "region '{}' has no image of family '{family}'; name the pool's image or family",
                    self.region
                );
                return Err(meaning(&here, reason));
            }
            if pool.image.as_ref().is_some_and(|image| image.family() != family) {
                return Err(meaning(&here, format!("the image is not of family '{family}'")));
            }
            if !surge_is_valid(&pool.max_surge) {
                return Err(meaning(
                    &here,
                    format!("maxSurge '{}' is neither a number nor a percentage", pool.max_surge),
                ));
            }
        }
        let minor_known = |target: &VersionTarget| match *target {
            VersionTarget::Exact(_) => true,
            VersionTarget::Minor { major, minor } => region
                .kubernetes
                .iter()
                .any(|entry| entry.minor == format!("{major}.{minor}") && !entry.patches.is_empty()),
        };
        let versions = self.pools.iter().filter_map(|pool| pool.version.as_ref()).chain([&self.version]);
        match versions.into_iter().find(|target| !minor_known(target)) {
            Some(target) => {
                Err(meaning(&format!("{at}.version"), format!("region '{}' has no patch of {target}", self.region)))
            }
            None => Ok(()),
        }
    }
}

fn surge_is_valid(text: &str) -> bool {
    let digits = text.strip_suffix('%').unwrap_or(text);
    digits.parse::<u32>().is_ok_and(|number| number >= 1 && (digits.len() == text.len() || number <= 100))
}

fn meaning(path: &str, reason: String) -> FleetFileError {
    FleetFileError::Meaning { path: path.into(), reason }
}
