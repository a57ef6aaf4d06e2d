//! The chain of runs that brings a mixed fleet to a version, one minor after another (`behaviour.md` D1).

use std::collections::{BTreeMap, BTreeSet};

use flotta_model::{
    Cluster, Goal, Hold, KubernetesVersion, Name, RegionReleases, Releases, UpgradeType, VersionTarget,
};

use crate::channels::Known;

/// Runs that together bring every member to a version that can get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// The version that the target came to.
    pub version: KubernetesVersion,
    /// The runs, one after another.
    pub legs: Vec<Leg>,
    /// The members that cannot get there.
    pub left: Vec<Left>,
}

/// One run of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The version it goes to.
    pub version: KubernetesVersion,
    /// What it wants.
    pub goal: Goal,
    /// Whom it moves, from where.
    pub members: Vec<(Name, KubernetesVersion)>,
}

/// A member that cannot get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The member.
    pub member: Name,
    /// A short, stable word.
    pub code: &'static str,
    /// Why, and the way out.
    pub message: String,
}

/// No region offers the target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no region of the members offers Kubernetes {0}; `flotta release list` shows what they offer")]
pub struct NotOffered(VersionTarget);

/// A member on its way.
struct Traveller<'a> {
    name: &'a Name,
    cluster: &'a Cluster,
    region: &'a RegionReleases,
    at: KubernetesVersion,
}

/// The legs that bring members to a version: at each minor in between, the newest generally available patch that the
/// regions of all who pass there have; patches for long-term support only where the cluster has it.
pub fn plan(target: VersionTarget, members: &[Known<'_>], releases: &Releases) -> Result<Campaign, NotOffered> {
    let version = resolve(target, members, releases).ok_or(NotOffered(target))?;
    let mut left = Vec::new();
    let mut travellers: Vec<Traveller<'_>> = Vec::new();
    for member in members {
        match traveller(member, releases) {
            Ok(traveller) if traveller.at < version || behind(traveller.cluster, version) => travellers.push(traveller),
            Ok(_) => {}
            Err(reason) => left.push(reason),
        }
    }
    let mut legs: BTreeMap<KubernetesVersion, Vec<(Name, KubernetesVersion)>> = BTreeMap::new();
    let first = travellers.iter().map(|traveller| traveller.at.minor).min().unwrap_or(version.minor);
    for minor in first.min(version.minor)..=version.minor {
        let passing = |traveller: &Traveller<'_>| {
            traveller.at.minor + 1 == minor || (minor == version.minor && traveller.at.minor == minor)
        };
        let (mut here, rest): (Vec<_>, Vec<_>) = travellers.into_iter().partition(passing);
        travellers = rest;
        let common = common(&here, version, minor);
        for traveller in here.drain(..) {
            match common.or_else(|| newest(&traveller, version, minor)) {
                Some(next) if has(&traveller, next) => {
                    legs.entry(next).or_default().push((traveller.name.clone(), traveller.at));
                    travellers.push(Traveller { at: next, ..traveller });
                }
                _ => left.push(stuck(&traveller, version, minor)),
            }
        }
    }
    let gone: BTreeSet<&Name> = left.iter().map(|left| &left.member).collect();
    let legs = legs.into_iter().filter_map(|(version, members)| {
        // Who cannot go all the way is not set out with.
        let members: Vec<_> = members.into_iter().filter(|(name, _)| !gone.contains(name)).collect();
        let goal = Goal::new(UpgradeType::Full, Some(VersionTarget::Exact(version)), None).ok()?;
        (!members.is_empty()).then_some(Leg { version, goal, members })
    });
    let legs = legs.collect();
    Ok(Campaign { version, legs, left })
}

fn resolve(target: VersionTarget, members: &[Known<'_>], releases: &Releases) -> Option<KubernetesVersion> {
    let regions: BTreeSet<&str> =
        members.iter().filter_map(|member| member.seen.ok()).map(|cluster| cluster.location.as_str()).collect();
    let lasting = members.iter().filter_map(|member| member.seen.ok()).any(|cluster| cluster.long_term_support);
    let regions = regions.iter().filter_map(|region| releases.regions.get(*region));
    let offered = regions.flat_map(RegionReleases::offered).filter(|(_, release)| match target {
        VersionTarget::Exact(_) => true,
        VersionTarget::Minor { .. } => !release.preview && (lasting || !release.long_term_support_only),
    });
    let wanted = offered.filter(|(version, _)| match target {
        VersionTarget::Exact(exact) => *version == exact,
        VersionTarget::Minor { major, minor } => (version.major, version.minor) == (major, minor),
    });
    wanted.map(|(version, _)| version).max()
}

fn traveller<'a>(member: &Known<'a>, releases: &'a Releases) -> Result<Traveller<'a>, Left> {
    let leave = |code, message: String| Left { member: member.name.clone(), code, message };
    let cluster = member.seen.map_err(|hold: &Hold| leave(hold.code(), format!("not seen: {hold}")))?;
    if cluster.provisions_nodes {
        let message = "it makes its own nodes: upgrade it minor by minor with runs of type ControlPlaneOnly";
        return Err(leave("Unfit", message.into()));
    }
    let unread = || leave("RegionUnknown", format!("what region {} offers is not known yet", cluster.location));
    let region = releases.regions.get(&cluster.location).filter(|region| region.read.is_some()).ok_or_else(unread)?;
    Ok(Traveller { name: member.name, cluster, region, at: cluster.version })
}

/// Whether any pool was left behind.
fn behind(cluster: &Cluster, version: KubernetesVersion) -> bool {
    cluster.version == version && cluster.pools.iter().any(|pool| pool.version < version)
}

/// Whether a member may go to a version next: its region offers it, to such clusters; and where its own list of upgrades
/// is known, that has it.
fn has(traveller: &Traveller<'_>, version: KubernetesVersion) -> bool {
    let Some(release) = traveller.region.versions.get(&version) else { return false };
    let offered =
        release.withdrawn.is_none() && (!release.long_term_support_only || traveller.cluster.long_term_support);
    let first = traveller.at == traveller.cluster.version && version > traveller.at;
    let listed = &traveller.cluster.upgrades;
    offered && (!first || listed.is_empty() || listed.contains(&version))
}

/// What a member can go to at a minor; at the last one only the target itself.
fn choices(traveller: &Traveller<'_>, target: KubernetesVersion, minor: u32) -> BTreeSet<KubernetesVersion> {
    let of_minor = traveller.region.offered().filter(|(version, release)| match minor == target.minor {
        true => *version == target,
        false => (version.major, version.minor) == (target.major, minor) && !release.preview,
    });
    of_minor.map(|(version, _)| version).filter(|version| has(traveller, *version)).collect()
}

fn common(passing: &[Traveller<'_>], target: KubernetesVersion, minor: u32) -> Option<KubernetesVersion> {
    let mut choices = passing.iter().map(|traveller| choices(traveller, target, minor)).filter(|some| !some.is_empty());
    let first = choices.next()?;
    choices.fold(first, |all, some| all.intersection(&some).copied().collect()).pop_last()
}

fn newest(traveller: &Traveller<'_>, target: KubernetesVersion, minor: u32) -> Option<KubernetesVersion> {
    choices(traveller, target, minor).pop_last()
}

fn stuck(traveller: &Traveller<'_>, target: KubernetesVersion, minor: u32) -> Left {
    let (cluster, from) = (traveller.cluster, traveller.at);
    let region = &cluster.location;
    let offered = |lasting: bool| {
        traveller.region.offered().any(|(version, release)| {
            let wanted =
                if minor == target.minor { version == target } else { version.minor == minor && !release.preview };
            wanted && release.long_term_support_only == lasting
        })
    };
    let goal = if minor == target.minor { target.to_string() } else { format!("{}.{minor}", target.major) };
    let (code, message) = match (offered(false), offered(true)) {
        (false, true) if !cluster.long_term_support => (
            "NoLongTermSupport",
            format!(
                "from {from} the way leads over {goal}, which region {region} offers for long-term support only; move the cluster to the Premium tier and its support plan to AKSLongTermSupport"
            ),
        ),
        (false, false) => (
            "VersionNotInRegion",
            format!("from {from} the way leads over {goal}, which region {region} does not offer"),
        ),
        _ => {
            let listed: Vec<String> = cluster.upgrades.iter().map(ToString::to_string).collect();
            (
                "UpgradeNotListed",
                format!("its upgrade profile does not lead from {from} to {goal}; it lists [{}]", listed.join(", ")),
            )
        }
    };
    Left { member: traveller.name.clone(), code, message }
}
