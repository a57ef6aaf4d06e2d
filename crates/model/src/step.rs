//! One thing a driver can do to a cluster (`behaviour.md` D6).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{KubernetesVersion, NodeImage};

/// One request to a provider, which starts one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Control plane and exactly these pools to a version, in one request.
    Cluster {
        /// The version.
        version: KubernetesVersion,
        /// Every pool that was seen.
        pools: Vec<String>,
    },
    /// The control plane alone to a version.
    ControlPlane {
        /// The version.
        version: KubernetesVersion,
    },
    /// One pool, left behind by its control plane, to a version.
    PoolVersion {
        /// The pool.
        pool: String,
        /// The version.
        version: KubernetesVersion,
    },
    /// One pool to the newest image of its region.
    PoolImage {
        /// The pool.
        pool: String,
        /// The image expected.
        image: NodeImage,
    },
}

impl Step {
    /// The pool the step is about, if it is about one.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::Cluster { .. } | Self::ControlPlane { .. } => None,
            Self::PoolVersion { pool, .. } | Self::PoolImage { pool, .. } => Some(pool),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { version, pools } => write!(f, "cluster and {} pool(s) to {version}", pools.len()),
            Self::ControlPlane { version } => write!(f, "control plane to {version}"),
            Self::PoolVersion { pool, version } => write!(f, "pool '{pool}' to {version}"),
            Self::PoolImage { pool, image } => write!(f, "pool '{pool}' to node image {image}"),
        }
    }
}
