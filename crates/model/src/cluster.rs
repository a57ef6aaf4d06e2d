//! A cluster: which one it is, and what a driver last saw of it (`behaviour.md` D; `aks-wire.md` §3, §5).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{KubernetesVersion, NodeImage, serde_as_text};

/// The ARM id of a cluster. It keeps the caller's casing and compares without it.
#[derive(Clone, Debug)]
pub struct ClusterId {
    text: Box<str>,
    key: Box<str>,
}

/// What kind of cluster an id is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKind {
    /// A cluster of Azure Kubernetes Service.
    Managed,
    /// A cluster connected through Azure Arc. It can be a member, but nobody can upgrade it from here.
    Connected,
}

impl ClusterKind {
    /// Every kind, with its resource type in lower case.
    const ALL: [(Self, [&str; 2]); 2] = [
        (Self::Managed, ["microsoft.containerservice", "managedclusters"]),
        (Self::Connected, ["microsoft.kubernetes", "connectedclusters"]),
    ];
}

/// The text is not the id of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not the id of a cluster: use /subscriptions/S/resourceGroups/G/providers/Microsoft.ContainerService/managedClusters/NAME, or for a cluster connected through Arc …/providers/Microsoft.Kubernetes/connectedClusters/NAME"
)]
pub struct ClusterIdError(String);

impl ClusterId {
    /// The id in lower case: the key of claims and look-ups.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The id in the caller's casing.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn part(&self, index: usize) -> &str {
        self.text.split('/').nth(index).unwrap_or_default()
    }

    /// What kind of cluster it is.
    pub fn kind(&self) -> ClusterKind {
        match self.part(7).eq_ignore_ascii_case("connectedClusters") {
            true => ClusterKind::Connected,
            false => ClusterKind::Managed,
        }
    }

    /// The subscription.
    pub fn subscription(&self) -> &str {
        self.part(2)
    }

    /// The resource group.
    pub fn resource_group(&self) -> &str {
        self.part(4)
    }

    /// The cluster's own name.
    pub fn name(&self) -> &str {
        self.part(8)
    }
}

impl PartialEq for ClusterId {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for ClusterId {}

impl PartialOrd for ClusterId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ClusterId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl FromStr for ClusterId {
    type Err = ClusterIdError;
    fn from_str(text: &str) -> Result<Self, ClusterIdError> {
        let key = text.to_ascii_lowercase();
        let parts: Vec<&str> = key.split('/').collect();
        let fixed = [(0, ""), (1, "subscriptions"), (3, "resourcegroups"), (5, "providers")];
        let shaped = parts.len() == 9
            && fixed.iter().all(|(index, word)| parts[*index] == *word)
            && ClusterKind::ALL.iter().any(|(_, words)| parts[6..8] == *words);
        let named = |part: &str| {
            (1..=90).contains(&part.len()) && part.chars().all(|c| c.is_alphanumeric() || "-_.()".contains(c))
        };
        if !shaped || ![2, 4, 8].iter().all(|index| named(parts[*index])) {
            return Err(ClusterIdError(text.chars().take(300).collect()));
        }
        Ok(Self { text: text.into(), key: key.into() })
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(ClusterId);

/// Channels that move node images alone.
const IMAGE_CHANNELS: [&str; 3] = ["SecurityPatch", "NodeImage", "node-image"];

/// What a driver saw of a cluster, in the terms the engine judges by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The region.
    pub location: String,
    /// The control plane's version. AKS shows the target as soon as a request is accepted.
    pub version: KubernetesVersion,
    /// What the cluster as a whole is doing.
    pub provisioning: Provisioning,
    /// Whether it is switched on.
    pub running: bool,
    /// The control plane versions the upgrade profile lists. Read only where a version is the goal.
    #[serde(default)]
    pub upgrades: Vec<KubernetesVersion>,
    /// The node pools. Empty where the provider keeps them to itself.
    pub pools: Vec<Pool>,
    /// What the next write must still find, where the provider has such a thing.
    #[serde(default)]
    pub etag: Option<String>,
    /// Whether the cluster has long-term support (Premium tier and the LTS plan).
    #[serde(default)]
    pub long_term_support: bool,
    /// The provider's own automatic upgrades, where they are on: such as `patch`, or `NodeImage` for node images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub automatic_upgrades: Vec<String>,
    /// The provider makes the nodes itself (node auto-provisioning): only the control plane can be moved.
    #[serde(default)]
    pub provisions_nodes: bool,
}

/// What a driver saw of a node pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: KubernetesVersion,
    /// What it is doing.
    pub provisioning: Provisioning,
    /// The node image it is on, where known.
    #[serde(default)]
    pub image: Option<NodeImage>,
    /// The newest image of its family in the cluster's region. Read only where images are part of the goal.
    #[serde(default)]
    pub latest_image: Option<NodeImage>,
    /// The images it can be set to, ascending, the newest among them. Empty where the driver cannot pin an image: it can go to
    /// the newest only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered_images: Vec<NodeImage>,
    /// Its image with the newest security patches on it, where the driver can put them onto running nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_patch: Option<NodeImage>,
    /// Made from a node pool snapshot: Latest leaves its image alone (`behaviour.md` A4).
    #[serde(default)]
    pub from_snapshot: bool,
    /// Nodes seen to lag behind the pool's version or image, where machines were read.
    #[serde(default)]
    pub lagging_nodes: u32,
    /// What the next write must still find.
    #[serde(default)]
    pub etag: Option<String>,
}

/// What a cluster or pool is doing. Unknown words count as busy (`behaviour.md` D6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Provisioning {
    /// The last operation succeeded, and none is going on.
    Succeeded,
    /// The last operation failed.
    Failed,
    /// The last operation was canceled.
    Canceled,
    /// Something is going on: the provider's own word for it.
    Busy(String),
}

impl Provisioning {
    /// Reads the provider's word.
    pub fn from_word(word: &str) -> Self {
        match word {
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Canceled" => Self::Canceled,
            other => Self::Busy(other.into()),
        }
    }

    /// The word, if something is going on.
    pub fn busy(&self) -> Option<&str> {
        match self {
            Self::Busy(word) => Some(word),
            _ => None,
        }
    }
}

impl Cluster {
    /// What is going on on the cluster or any of its pools.
    pub fn busy(&self) -> Option<&str> {
        let pools = self.pools.iter().find_map(|pool| pool.provisioning.busy());
        self.provisioning.busy().or(pools)
    }

    /// The channel by which the provider moves the cluster's version by itself, if one is on.
    pub fn version_channel(&self) -> Option<&str> {
        self.automatic_upgrades.iter().map(String::as_str).find(|channel| !IMAGE_CHANNELS.contains(channel))
    }

    /// The channel by which the provider moves node images by itself, if one is on.
    pub fn image_channel(&self) -> Option<&str> {
        self.automatic_upgrades.iter().map(String::as_str).find(|channel| IMAGE_CHANNELS.contains(channel))
    }

    /// Whether cluster and every pool came to rest well.
    pub fn settled_well(&self) -> bool {
        self.provisioning == Provisioning::Succeeded
            && self.pools.iter().all(|pool| pool.provisioning == Provisioning::Succeeded)
    }
}

/// The Kubernetes versions of one region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    /// Full versions, ascending.
    pub versions: Vec<RegionVersion>,
}

/// A version as a region offers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionVersion {
    /// The version.
    pub version: KubernetesVersion,
    /// Not generally available.
    pub preview: bool,
    /// Only for clusters with long-term support.
    pub long_term_support_only: bool,
}

/// How a version stands in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Offer {
    /// Any cluster may have it.
    Yes,
    /// Clusters with long-term support may have it.
    WithLongTermSupport,
    /// It is newer than what there is.
    NotYet,
    /// It is older than what there is.
    NoLonger,
}

impl Catalogue {
    /// How a version stands in the region. What is not offered may still come if it is newer than what the region has
    /// of its minor, or, where the minor is absent, than all it has (`behaviour.md` D4).
    pub fn offer(&self, version: KubernetesVersion) -> Offer {
        if let Some(offered) = self.versions.iter().find(|offered| offered.version == version) {
            return match offered.long_term_support_only {
                true => Offer::WithLongTermSupport,
                false => Offer::Yes,
            };
        }
        let newest = |same_minor: bool| {
            let versions = self.versions.iter().map(|offered| offered.version);
            versions.filter(|offered| !same_minor || offered.same_minor(version)).max()
        };
        match newest(true).or_else(|| newest(false)) {
            Some(newest) if version < newest => Offer::NoLonger,
            _ => Offer::NotYet,
        }
    }

    /// The newest generally available patch of a minor.
    pub fn newest_patch(&self, major: u32, minor: u32) -> Option<KubernetesVersion> {
        let of_minor = |offered: &&RegionVersion| {
            !offered.preview && (offered.version.major, offered.version.minor) == (major, minor)
        };
        self.versions.iter().filter(of_minor).map(|offered| offered.version).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_cluster_ids_keep_their_casing_and_compare_without_it() {
        let text = "/subscriptions/s1/resourcegroups/Rg/providers/Microsoft.ContainerService/managedClusters/C1";
        let one: ClusterId = text.parse().expect(text);
        let other: ClusterId = text.to_uppercase().parse().expect("upper");
        assert_eq!(one, other);
        assert_eq!((one.as_str(), one.subscription(), one.resource_group(), one.name()), (text, "s1", "Rg", "C1"));
        for bad in [
            "",
            "/",
            "c1",
            &format!("{text}/agentPools/p"),
            &text.replace("managedClusters", "fleets"),
            &text.replace("managedClusters", "connectedClusters"),
            &text.replace("C1", ""),
        ] {
            assert!(bad.parse::<ClusterId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn e14_a_cluster_connected_through_arc_has_an_id_of_another_kind() {
        let text = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Kubernetes/ConnectedClusters/edge";
        let connected: ClusterId = text.parse().expect(text);
        assert_eq!((connected.kind(), connected.name()), (ClusterKind::Connected, "edge"));
        let managed = text.replace("Kubernetes/ConnectedClusters", "ContainerService/managedClusters");
        assert_eq!(managed.parse::<ClusterId>().expect("managed").kind(), ClusterKind::Managed);
    }
}
