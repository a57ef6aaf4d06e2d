//! Why a member cannot move just now, and what went wrong where it never will (`behaviour.md` A8, B2, D4).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something outside the run that keeps a member from moving. A held member is Pending, holds no slot, and goes on by
/// itself when the hold is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Hold {
    /// Another operation, not ours, is going on on the cluster. The word is the provider's.
    OtherOperation(String),
    /// Another run has a claim on the cluster.
    Claimed {
        /// That run, as `fleet/run`.
        by: String,
    },
    /// No driver knows the cluster.
    NoDriver,
    /// The cluster is switched off.
    ClusterStopped,
    /// The cluster or its provider does not answer, or does not know it.
    Unreachable(String),
    /// The provider refuses the driver's credentials.
    CredentialsRefused(String),
    /// The target version is not in the cluster's region yet.
    VersionNotInRegion {
        /// The version.
        version: String,
        /// The region.
        region: String,
    },
    /// The node image wanted is not in the cluster's region yet.
    ImageNotInRegion {
        /// The image.
        image: String,
        /// The region.
        region: String,
    },
    /// The node image wanted is older than providers guarantee nodes can be made from.
    ImageTooOld {
        /// The image.
        image: String,
        /// The days since it was published.
        days: u32,
    },
    /// The cluster's maintenance window cannot be understood. It is never taken to be open for that.
    WindowUnreadable(String),
    /// The provider asked to slow down.
    Throttled,
    /// The run was stopped between two steps of the member.
    StoppedBetweenSteps {
        /// Steps done.
        done: u32,
        /// Steps in all, as last seen.
        of: u32,
    },
}

impl Hold {
    /// A short, stable word for the kind of hold: the `error.code` on the wire, and what reasons are counted by.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OtherOperation(_) => "AnotherOperationInProgress",
            Self::Claimed { .. } => "ClusterHeldByAnotherRun",
            Self::NoDriver => "NoDriverForCluster",
            Self::ClusterStopped => "ClusterStopped",
            Self::Unreachable(_) => "ClusterUnreachable",
            Self::CredentialsRefused(_) => "CredentialsRefused",
            Self::VersionNotInRegion { .. } => "KubernetesVersionNotAvailable",
            Self::ImageNotInRegion { .. } => "NodeImageNotAvailable",
            Self::ImageTooOld { .. } => "NodeImageTooOld",
            Self::WindowUnreadable(_) => "MaintenanceWindowUnreadable",
            Self::Throttled => "Throttled",
            Self::StoppedBetweenSteps { .. } => "StoppedBetweenSteps",
        }
    }

    /// How often it is seen whether the hold is still there, in seconds. A claim that is given back wakes by itself.
    pub fn looked_at_every(&self) -> u32 {
        match self {
            Self::OtherOperation(_) | Self::Throttled => 30,
            Self::Claimed { .. } | Self::Unreachable(_) | Self::WindowUnreadable(_) => 60,
            Self::ClusterStopped => 120,
            Self::NoDriver | Self::CredentialsRefused(_) => 300,
            Self::VersionNotInRegion { .. } | Self::ImageNotInRegion { .. } => 600,
            Self::StoppedBetweenSteps { .. } | Self::ImageTooOld { .. } => 3600,
        }
    }

    /// Whether a hold that never ends becomes a failure after the run's patience.
    pub fn wears_out(&self) -> bool {
        matches!(self, Self::ClusterStopped | Self::Unreachable(_))
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherOperation(word) => write!(f, "another operation is in progress ({word})"),
            Self::Claimed { by } => write!(f, "held by run {by}"),
            Self::NoDriver => f.write_str(
                "no driver reaches this cluster; see whether its id is right and flotta drives its subscription",
            ),
            Self::ClusterStopped => f.write_str("the cluster is stopped; start it, or skip the member"),
            Self::Unreachable(detail) => write!(f, "the cluster cannot be reached: {detail}"),
            Self::CredentialsRefused(detail) => write!(f, "the provider refuses the driver's credentials: {detail}"),
            Self::VersionNotInRegion { version, region } => write!(
                f,
                "Kubernetes version {version} is not available in region {region} yet; see the provider's release tracker for when it will be (AKS: https://releases.aks.azure.com)"
            ),
            Self::ImageNotInRegion { image, region } => write!(
                f,
                "node image {image} is not available in region {region} yet; see the provider's release tracker for when it will be (AKS: https://releases.aks.azure.com)"
            ),
            Self::ImageTooOld { image, days } => write!(
                f,
                "node image {image} was published {days} days ago, and nodes cannot be relied on to be made from images past {}; skip the member, or make a new run",
                crate::image::VALID_DAYS
            ),
            Self::WindowUnreadable(detail) => {
                write!(f, "the cluster's maintenance window is taken to be closed, since {detail}; correct it there")
            }
            Self::Throttled => f.write_str("the provider asked to slow down"),
            Self::StoppedBetweenSteps { done, of } => write!(f, "stopped after step {done} of {of}"),
        }
    }
}

/// What made an upgrade fail for good: the provider's code and message, or ours in the same shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("({code}) {message}")]
pub struct Fault {
    /// A stable word.
    pub code: String,
    /// What happened, and the way out where we know one.
    pub message: String,
}

impl Fault {
    /// The longest message kept, in characters.
    pub const LONGEST: usize = 2000;

    /// A fault; long texts are cut.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let cut = |text: String, most: usize| match text.char_indices().nth(most) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        };
        Self { code: cut(code.into(), 100), message: cut(message.into(), Self::LONGEST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_a_version_that_its_region_lacks_is_told_with_region_and_where_to_look() {
        let told = Hold::VersionNotInRegion { version: "1.34.1".into(), region: "westeurope".into() }.to_string();
        for part in ["1.34.1", "westeurope", "https://releases.aks.azure.com"] {
            assert!(told.contains(part), "{told}");
        }
    }
}
