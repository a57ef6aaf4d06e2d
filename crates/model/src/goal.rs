//! What an update run wants (`behaviour.md` A4).

use serde::{Deserialize, Serialize};

use crate::{NodeImage, VersionTarget, WindowKind};

/// What is upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradeType {
    /// Control plane, node pools and node images.
    Full,
    /// The control plane alone.
    ControlPlaneOnly,
    /// Node images alone.
    NodeImageOnly,
}

/// Which node images are moved to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageSelection {
    /// The newest in each cluster's region when its upgrade starts.
    Latest,
    /// The newest that every region of the run has.
    Consistent,
    /// These, at most one a family.
    Custom(Vec<NodeImage>),
}

/// The goal of a run. Full and ControlPlaneOnly have a version, NodeImageOnly has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawGoal")]
pub struct Goal {
    upgrade: UpgradeType,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<VersionTarget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<ImageSelection>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    accept_newer: bool,
}

#[derive(Deserialize)]
struct RawGoal {
    upgrade: UpgradeType,
    #[serde(default)]
    version: Option<VersionTarget>,
    #[serde(default)]
    images: Option<ImageSelection>,
    #[serde(default)]
    accept_newer: bool,
}

/// The parts do not make a goal. Fields are JSON paths below `managedClusterUpdate`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// Full or ControlPlaneOnly without a version.
    #[error("an upgrade of type {0:?} needs a kubernetesVersion, such as 1.33.2")]
    VersionMissing(UpgradeType),
    /// NodeImageOnly with a version.
    #[error("an upgrade of type NodeImageOnly must not have a kubernetesVersion: leave it out, or use Full")]
    VersionSuperfluous,
    /// Custom without versions, or two of one family.
    #[error("{0}")]
    Images(String),
}

impl Goal {
    /// Checks that type, version and images fit together.
    pub fn new(
        upgrade: UpgradeType,
        version: Option<VersionTarget>,
        images: Option<ImageSelection>,
    ) -> Result<Self, GoalError> {
        match (upgrade, version) {
            (UpgradeType::NodeImageOnly, Some(_)) => return Err(GoalError::VersionSuperfluous),
            (UpgradeType::Full | UpgradeType::ControlPlaneOnly, None) => {
                return Err(GoalError::VersionMissing(upgrade));
            }
            _ => {}
        }
        if let Some(ImageSelection::Custom(versions)) = &images {
            if versions.is_empty() {
                return Err(GoalError::Images("a selection of type Custom needs customNodeImageVersions".into()));
            }
            let mut families: Vec<&str> = versions.iter().map(NodeImage::family).collect();
            families.sort_unstable();
            if let Some(twice) = families.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(GoalError::Images(format!(
                    "image family '{}' is there twice: at most one version a family",
                    twice[0]
                )));
            }
        }
        Ok(Self { upgrade, version, images, accept_newer: false })
    }

    /// The same goal, content (or not) with images newer than the chosen ones where a region has moved on.
    pub fn accepting_newer(self, accept_newer: bool) -> Self {
        Self { accept_newer, ..self }
    }

    /// What is upgraded.
    pub fn upgrade(&self) -> UpgradeType {
        self.upgrade
    }

    /// Which of a cluster's maintenance schedules it obeys (`behaviour.md` B4).
    pub fn window_kind(&self) -> WindowKind {
        match self.upgrade {
            UpgradeType::Full | UpgradeType::ControlPlaneOnly => WindowKind::AutoUpgrade,
            UpgradeType::NodeImageOnly => WindowKind::NodeOs,
        }
    }

    /// The version asked for.
    pub fn version(&self) -> Option<VersionTarget> {
        self.version
    }

    /// Whether images newer than the chosen ones will do where a driver cannot pin them and a region has moved on.
    pub fn accepts_newer(&self) -> bool {
        self.accept_newer
    }

    /// The selection asked for; absent means [`ImageSelection::Latest`].
    pub fn images(&self) -> Option<&ImageSelection> {
        self.images.as_ref()
    }
}

impl TryFrom<RawGoal> for Goal {
    type Error = GoalError;
    fn try_from(raw: RawGoal) -> Result<Self, GoalError> {
        Ok(Self::new(raw.upgrade, raw.version, raw.images)?.accepting_newer(raw.accept_newer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a4_full_and_control_plane_need_a_version_and_node_image_must_not_have_one() {
        let version = Some("1.33.2".parse().expect("version"));
        for upgrade in [UpgradeType::Full, UpgradeType::ControlPlaneOnly] {
            assert!(Goal::new(upgrade, version, None).is_ok());
            assert_eq!(Goal::new(upgrade, None, None), Err(GoalError::VersionMissing(upgrade)));
        }
        assert!(Goal::new(UpgradeType::NodeImageOnly, None, None).is_ok(), "no selection is accepted");
        assert_eq!(Goal::new(UpgradeType::NodeImageOnly, version, None), Err(GoalError::VersionSuperfluous));
    }

    #[test]
    fn a4_custom_has_at_most_one_version_a_family() {
        let image = |text: &str| text.parse::<NodeImage>().expect(text);
        let custom = |images| Goal::new(UpgradeType::NodeImageOnly, None, Some(ImageSelection::Custom(images)));
        assert!(custom(vec![]).is_err());
        assert!(custom(vec![image("A-1.0.0"), image("B-1.0.0")]).is_ok());
        assert!(custom(vec![image("A-1.0.0"), image("A-2.0.0")]).is_err());
    }
}
