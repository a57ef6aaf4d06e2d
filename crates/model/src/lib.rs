//! The nouns of fleet upgrades. Each type is parsed once at the edge and valid ever after; nothing here does I/O or
//! reads a clock.
//!
//! | module | what |
//! |---|---|
//! | [`name`] | resource names and their patterns |
//! | [`version`] | Kubernetes versions and targets |
//! | [`image`] | node images: a family and a comparable version |
//! | [`selector`] | labels and Kubernetes label selectors |
//! | [`limit`] | concurrency and failure limits, count or percent |
//! | [`strategy`] | stages and groups |
//! | [`gate`] | gates: approvals and scheduled starts |
//! | [`window`] | maintenance windows |
//! | [`zone`] | time zones |
//! | [`goal`] | what an update run wants |
//! | [`fleet`] | fleets and members |
//! | [`profile`] | auto-upgrade profiles: what a fleet follows by itself |
//! | [`releases`] | which versions and node images each region offers, and since when |
//! | [`cluster`] | a cluster as a driver observed it |
//! | [`step`] | one thing a driver can do to a cluster |
//! | [`hold`] | why a member cannot move just now |

pub mod cluster;
pub mod fleet;
pub mod gate;
pub mod goal;
pub mod hold;
pub mod image;
pub mod limit;
pub mod name;
pub mod profile;
pub mod releases;
pub mod selector;
pub mod step;
pub mod strategy;
pub mod version;
pub mod window;
pub mod zone;

pub use cluster::{Catalogue, Cluster, ClusterId, ClusterKind, Offer, Pool, Provisioning, RegionVersion};
pub use fleet::{Fleet, Member};
pub use gate::{GateConfig, GateKind};
pub use goal::{Goal, ImageSelection, UpgradeType};
pub use hold::{Fault, Hold};
pub use image::NodeImage;
pub use limit::{Concurrency, FailureLimit, SuccessFloor};
pub use name::{FleetName, Name};
pub use profile::{AutoUpgradeProfile, Channel};
pub use releases::{RegionReleases, Releases};
pub use selector::{Labels, Selector};
pub use step::Step;
pub use strategy::{Budget, Group, Stage, Strategy};
pub use version::{KubernetesVersion, VersionTarget};
pub use window::{MaintenanceWindow, WindowKind};
pub use zone::Zone;

/// Lets serde read and write a parsed type as its text.
macro_rules! serde_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use serde_as_text;
