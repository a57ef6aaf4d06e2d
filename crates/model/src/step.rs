//! One thing a driver can do to a cluster (`behaviour.md` D6).

use std::{collections::BTreeMap, fmt};

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
        /// The images that some of them are to have instead of the newest, by pool. Needs a driver that can pin images.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        images: BTreeMap<String, NodeImage>,
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
        /// The image it is to have instead of the newest. Needs a driver that can pin images.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image: Option<NodeImage>,
    },
    /// One pool to the newest image of its region.
    PoolImage {
        /// The pool.
        pool: String,
        /// The image expected.
        image: NodeImage,
    },
    /// One pool to exactly this image, and away from the snapshot it was made from, if any. Where it is the pool's own image
    /// with security patches on it, they are put onto the nodes as they run. Needs a driver that can pin images.
    PoolPinned {
        /// The pool.
        pool: String,
        /// The image.
        image: NodeImage,
    },
}

impl Step {
    /// Control plane and these pools to a version, with the images that come with it.
    pub fn cluster(version: KubernetesVersion, pools: Vec<String>) -> Self {
        Self::Cluster { version, pools, images: BTreeMap::new() }
    }

    /// One pool to a version, with the image that comes with it.
    pub fn pool_version(pool: String, version: KubernetesVersion) -> Self {
        Self::PoolVersion { pool, version, image: None }
    }

    /// The pool the step is about, if it is about one.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::Cluster { .. } | Self::ControlPlane { .. } => None,
            Self::PoolVersion { pool, .. } | Self::PoolImage { pool, .. } | Self::PoolPinned { pool, .. } => Some(pool),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { version, pools, .. } => write!(f, "cluster and {} pool(s) to {version}", pools.len()),
            Self::ControlPlane { version } => write!(f, "control plane to {version}"),
            Self::PoolVersion { pool, version, .. } => write!(f, "pool '{pool}' to {version}"),
            Self::PoolImage { pool, image } | Self::PoolPinned { pool, image } => {
                write!(f, "pool '{pool}' to node image {image}")
            }
        }
    }
}
