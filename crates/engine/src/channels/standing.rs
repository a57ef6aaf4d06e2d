//! How a member stands to what a profile wants.

use std::fmt;

use flotta_model::{Channel, Cluster, Hold, KubernetesVersion, NodeImage, profile::UpgradePath};

use super::{Facts, Known, Target};

/// How a member stands to what its profile wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is to be moved; from where.
    Eligible {
        /// What it is on.
        from: String,
    },
    /// It is to be moved, and its region does not have the target yet: its run waits for that.
    RegionLacks {
        /// What it is on.
        from: String,
        /// Its region.
        region: String,
    },
    /// It would have to be moved, and fails for lack of long-term support.
    NoLongTermSupport,
    /// It is where it should be, or ahead.
    AtTarget,
    /// It is more than one minor behind: it is in runs, and skipped.
    TooFarBehind {
        /// The version it is on.
        from: KubernetesVersion,
        /// The minor to bring it to first.
        next: (u32, u32),
    },
    /// Its minor is not offered any more: its images are left alone.
    MinorUnsupported(KubernetesVersion),
    /// Runs of this kind pass over it; why.
    Unfit(&'static str),
    /// It could not be looked at.
    NotSeen(Hold),
    /// The channel points at nothing.
    NoTarget,
}

impl Standing {
    pub(super) fn of(facts: &Facts<'_>, member: &Known<'_>, target: Option<&Target>) -> Self {
        let cluster = match (member.seen, target) {
            (Err(hold), _) => return Self::NotSeen(hold.clone()),
            (Ok(_), None) => return Self::NoTarget,
            (Ok(cluster), Some(_)) => cluster,
        };
        match target {
            Some(Target::Version(version)) => of_version(facts, cluster, *version),
            Some(target) => of_images(facts, cluster, target),
            None => Self::NoTarget,
        }
    }

    /// Whether it is a reason to make a run.
    pub fn is_to_move(&self) -> bool {
        matches!(self, Self::Eligible { .. } | Self::RegionLacks { .. } | Self::NoLongTermSupport)
    }

    /// A short, stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Eligible { .. } => "Eligible",
            Self::RegionLacks { .. } => "RegionLacks",
            Self::NoLongTermSupport => "NoLongTermSupport",
            Self::AtTarget => "AtTarget",
            Self::TooFarBehind { .. } => "TooFarBehind",
            Self::MinorUnsupported(_) => "MinorUnsupported",
            Self::Unfit(_) => "Unfit",
            Self::NotSeen(_) => "NotSeen",
            Self::NoTarget => "NoTarget",
        }
    }
}

fn of_version(facts: &Facts<'_>, cluster: &Cluster, target: KubernetesVersion) -> Standing {
    let control_plane_first = facts.profile.trigger.path == UpgradePath::ControlPlaneFirst;
    if cluster.provisions_nodes && !control_plane_first {
        return Standing::Unfit("it makes its own nodes, and takes runs of type ControlPlaneOnly alone");
    }
    let pools_there = cluster.provisions_nodes || cluster.pools.iter().all(|pool| pool.version >= target);
    if cluster.version >= target && pools_there {
        return Standing::AtTarget;
    }
    let (major, minor) = (cluster.version.major, cluster.version.minor);
    if (major, minor + 1) < (target.major, target.minor) {
        return Standing::TooFarBehind { from: cluster.version, next: (major, minor + 1) };
    }
    let offer = facts
        .releases
        .regions
        .get(&cluster.location)
        .and_then(|region| region.versions.get(&target).filter(|release| release.withdrawn.is_none()));
    let lasting = |region: &flotta_model::RegionReleases| {
        region.versions.get(&target).is_some_and(|release| release.long_term_support_only)
    };
    let anywhere = facts.releases.regions.values().any(lasting);
    let from = cluster.version.to_string();
    match offer {
        Some(release) if release.long_term_support_only && !cluster.long_term_support => Standing::NoLongTermSupport,
        None if anywhere && !cluster.long_term_support => Standing::NoLongTermSupport,
        Some(_) => Standing::Eligible { from },
        None => Standing::RegionLacks { from, region: cluster.location.clone() },
    }
}

fn of_images(facts: &Facts<'_>, cluster: &Cluster, target: &Target) -> Standing {
    if cluster.provisions_nodes {
        return Standing::Unfit("it makes its own nodes, whose images a run cannot move");
    }
    let patches = facts.profile.channel == Channel::SecurityPatch;
    let behind = |image: &NodeImage| {
        let wanted = target.image(image.family())?;
        let behind = match patches {
            true => image.patched_until() < wanted.patched_until(),
            false => image < wanted,
        };
        behind.then_some(wanted)
    };
    let images = || cluster.pools.iter().filter_map(|pool| pool.image.as_ref());
    let Some(image) = images().find(|image| behind(image).is_some()) else { return Standing::AtTarget };
    // A withdrawn patch does not matter, as long as its minor is there.
    let region = facts.releases.regions.get(&cluster.location);
    let supported =
        region.is_none_or(|region| region.offered().any(|(version, _)| version.same_minor(cluster.version)));
    if !supported {
        return Standing::MinorUnsupported(cluster.version);
    }
    let from = image.to_string();
    let has = |wanted: &NodeImage| {
        let offered = region.and_then(|region| region.images.get(wanted.family()));
        offered.is_none_or(|images| images.iter().any(|release| release.image >= wanted.without_patch()))
    };
    match images().filter_map(behind).all(has) {
        true => Standing::Eligible { from },
        false => Standing::RegionLacks { from, region: cluster.location.clone() },
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eligible { from } => write!(f, "to be moved from {from}"),
            Self::RegionLacks { from, region } => {
                write!(f, "to be moved from {from}, once region {region} has the target")
            }
            Self::NoLongTermSupport => f.write_str(
                "fails: the target is for clusters with long-term support only; move the cluster to the Premium tier and its support plan to AKSLongTermSupport",
            ),
            Self::AtTarget => f.write_str("at the target, or ahead of it"),
            Self::TooFarBehind { from, next: (major, minor) } => write!(
                f,
                "skipped: {from} is more than one minor behind; bring it to {major}.{minor} first, with a run or `flotta campaign plan`"
            ),
            Self::MinorUnsupported(version) => write!(
                f,
                "left alone: minor {}.{} is not supported in its region any more; upgrade Kubernetes first",
                version.major, version.minor
            ),
            Self::Unfit(why) => write!(f, "passed over: {why}"),
            Self::NotSeen(hold) => write!(f, "not seen: {hold}"),
            Self::NoTarget => f.write_str("nothing to go to"),
        }
    }
}
