//! Fleets and their members (`behaviour.md` A2, A3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ClusterId, FleetName, Labels, Name};

/// A set of clusters that are upgraded together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// Its name, unique in its resource group.
    pub name: FleetName,
    /// The region it is said to be in.
    pub location: String,
    /// Free tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// A cluster in a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, unique in its fleet.
    pub name: Name,
    /// Which cluster it is.
    pub cluster: ClusterId,
    /// The update group it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// Labels given by people and, under `fleet.azure.com/`, by the service.
    #[serde(default)]
    pub labels: Labels,
}

impl Member {
    /// The label under which the service writes the region of a member's cluster.
    pub const LOCATION_LABEL: &str = "fleet.azure.com/location";

    /// The region of its cluster, where the service knows it.
    pub fn location(&self) -> Option<&str> {
        self.labels.get(Self::LOCATION_LABEL).map(String::as_str)
    }
}
