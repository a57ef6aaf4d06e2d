//! What a channel points at.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use flotta_model::{Channel, Cluster, KubernetesVersion, NodeImage, RegionReleases};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Decision, Facts, Reason};

/// What a run of a profile is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A Kubernetes version.
    Version(KubernetesVersion),
    /// Node images, one a family, by family.
    Images(Vec<NodeImage>),
}

impl Target {
    /// What it is, as people see it.
    pub fn versions(&self) -> Vec<String> {
        match self {
            Self::Version(version) => vec![version.to_string()],
            Self::Images(images) => images.iter().map(ToString::to_string).collect(),
        }
    }

    /// The image wanted of a family.
    pub(super) fn image(&self, family: &str) -> Option<&NodeImage> {
        match self {
            Self::Version(_) => None,
            Self::Images(images) => images.iter().find(|image| image.family() == family),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "Kubernetes {version}"),
            Self::Images(images) => {
                let images: Vec<&str> = images.iter().map(NodeImage::as_str).collect();
                write!(f, "node image {}", images.join(", "))
            }
        }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The profile: what it goes to must be ripe.
    ByItself,
    /// Somebody: what is published anywhere will do.
    ByHand,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The newest that is ripe.
    pub target: Option<Target>,
    /// Something newer that is not ripe, and what it lacks.
    unripe: Option<(String, Unripe)>,
    /// What the channel looks for, in words.
    looks_for: String,
}

/// What something lacks before it is gone to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unripe {
    /// Regions.
    Regions { have: usize, of: usize, percent: u8 },
    /// Age.
    Soak { until: Timestamp },
}

impl Found {
    /// Why there is nothing to go to.
    pub fn reason(&self) -> Reason {
        match &self.unripe {
            Some((what, unripe)) => unripe.reason(what),
            None => Reason::new("NothingPublished", format!("no region of the fleet offers {} yet", self.looks_for)),
        }
    }

    pub fn decision(&self) -> Decision {
        self.later().unwrap_or_else(|| Decision::Nothing(self.reason()))
    }

    /// That something newer is waited for.
    pub fn later(&self) -> Option<Decision> {
        self.unripe.as_ref().map(|(what, unripe)| Decision::Wait(unripe.reason(what)))
    }
}

impl Unripe {
    fn reason(self, what: &str) -> Reason {
        match self {
            Self::Regions { have, of, percent } => {
                let message = format!(
                    "{what} is published in {have} of the {of} regions of the members, and the profile wants {percent} % of them"
                );
                Reason::new("Regions", message)
            }
            Self::Soak { until } => {
                let message = format!("{what} is not as old yet as the profile wants");
                Reason { until: Some(until), ..Reason::new("Soak", message) }
            }
        }
    }
}

/// A sighting of something in one region.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    regions: usize,
    first: Option<Timestamp>,
}

impl Spread {
    fn add(&mut self, seen: Timestamp) {
        self.regions += 1;
        self.first = Some(self.first.map_or(seen, |first| first.min(seen)));
    }
}

impl Facts<'_> {
    /// The clusters that were seen.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.members.iter().filter_map(|member| member.seen.ok())
    }

    fn region(&self, name: &str) -> Option<&RegionReleases> {
        self.releases.regions.get(name)
    }

    /// What something lacks before it is gone to, given how many regions there are.
    fn unripe(&self, spread: Spread, of: usize, asked: Asked) -> Option<Unripe> {
        let policy = &self.profile.trigger;
        if asked == Asked::ByHand {
            return None;
        }
        if spread.regions * 100 < usize::from(policy.regions_percent) * of {
            return Some(Unripe::Regions { have: spread.regions, of, percent: policy.regions_percent });
        }
        let soak = SignedDuration::from_secs(i64::from(policy.soak_seconds));
        let until = spread.first?.saturating_add(soak).unwrap_or(Timestamp::MAX);
        (until > self.now).then_some(Unripe::Soak { until })
    }
}

/// What a profile's channel points at.
pub fn of(facts: &Facts<'_>, asked: Asked) -> Found {
    match facts.profile.channel {
        Channel::NodeImage | Channel::SecurityPatch => images(facts, asked),
        channel => versions(facts, channel, asked),
    }
}

fn versions(facts: &Facts<'_>, channel: Channel, asked: Asked) -> Found {
    let regions: BTreeSet<&str> = facts.clusters().map(|cluster| cluster.location.as_str()).collect();
    let mut offered: BTreeMap<KubernetesVersion, Spread> = BTreeMap::new();
    let lasting = matches!(channel, Channel::TargetKubernetesVersion { long_term_support: true, .. });
    for region in regions.iter().filter_map(|region| facts.region(region)) {
        let general = region.offered().filter(|(_, release)| !release.preview);
        for (version, release) in general.filter(|(_, release)| lasting || !release.long_term_support_only) {
            offered.entry(version).or_default().add(release.seen);
        }
    }
    let mut unripe: BTreeMap<KubernetesVersion, Unripe> = BTreeMap::new();
    let mut ripe: BTreeSet<KubernetesVersion> = BTreeSet::new();
    for (version, spread) in offered {
        match facts.unripe(spread, regions.len(), asked) {
            Some(lacks) => drop(unripe.insert(version, lacks)),
            None => drop(ripe.insert(version)),
        }
    }
    let all: BTreeSet<KubernetesVersion> = ripe.iter().chain(unripe.keys()).copied().collect();
    let target = pointed_at(channel, &ripe);
    let newest = pointed_at(channel, &all).filter(|newest| target.is_none_or(|target| target < *newest));
    let newest = newest.and_then(|newest| Some((format!("Kubernetes {newest}"), *unripe.get(&newest)?)));
    let looks_for = match channel {
        Channel::Stable => "a minor before its newest generally available one".into(),
        Channel::TargetKubernetesVersion { major, minor, long_term_support: false } => {
            format!("a patch of {major}.{minor} outside long-term support")
        }
        Channel::TargetKubernetesVersion { major, minor, .. } => format!("a patch of {major}.{minor}"),
        _ => "a generally available version".into(),
    };
    Found { target: target.map(Target::Version), unripe: newest, looks_for }
}

/// Of some versions, the one that a channel points at.
fn pointed_at(channel: Channel, offered: &BTreeSet<KubernetesVersion>) -> Option<KubernetesVersion> {
    let newest = *offered.last()?;
    match channel {
        Channel::Stable => offered.iter().rfind(|version| !version.same_minor(newest)).copied(),
        Channel::TargetKubernetesVersion { major, minor, .. } => {
            offered.iter().rfind(|version| (version.major, version.minor) == (major, minor)).copied()
        }
        _ => Some(newest),
    }
}

fn images(facts: &Facts<'_>, asked: Asked) -> Found {
    let patches = facts.profile.channel == Channel::SecurityPatch;
    let mut regions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for cluster in facts.clusters().filter(|cluster| !cluster.provisions_nodes) {
        let of_pools = cluster.pools.iter().filter_map(|pool| pool.image.as_ref());
        for image in of_pools.filter(|image| !patches || image.is_linux()) {
            regions.entry(image.family()).or_default().insert(&cluster.location);
        }
    }
    let mut found = Found { looks_for: "a node image of the members' families".into(), ..Found::default() };
    let mut images = Vec::new();
    for (family, regions) in &regions {
        let mut offered: Vec<(NodeImage, Spread)> = Vec::new();
        let mut add = |image: &NodeImage, seen| match offered.iter_mut().find(|(known, _)| known == image) {
            Some((_, spread)) => spread.add(seen),
            None => offered.push((image.clone(), Spread { regions: 1, first: Some(seen) })),
        };
        for region in regions.iter().filter_map(|region| facts.region(region)) {
            region.images.get(*family).into_iter().flatten().for_each(|release| add(&release.image, release.seen));
        }
        offered.sort_by(|(one, _), (other, _)| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
        let ripe = |(_, spread): &&(NodeImage, Spread)| facts.unripe(*spread, regions.len(), asked).is_none();
        let newest = offered.iter().rfind(ripe).map(|(image, _)| image.clone());
        if let Some((image, spread)) = offered.last()
            && let Some(unripe) = facts.unripe(*spread, regions.len(), asked)
        {
            found.unripe.get_or_insert((format!("node image {image}"), unripe));
        }
        let live = facts.clusters().flat_map(|cluster| &cluster.pools).filter_map(|pool| pool.live_patch.as_ref());
        let live =
            live.filter(|patch| patches && patch.family() == *family).filter_map(NodeImage::security_patch).max();
        let before = facts.remembered().and_then(|target| target.image(family)).cloned();
        let newest = match (newest, live) {
            (Some(image), Some(patch)) if image.patched_until() < Some(patch) => Some(image.with_patch(patch)),
            (image, _) => image,
        };
        // What came and went again stays wanted: it is never gone back.
        images.extend(match (newest, before) {
            (Some(newest), Some(before)) if newest < before => Some(before),
            (newest, before) => newest.or(before),
        });
    }
    found.target = (!images.is_empty()).then_some(Target::Images(images));
    found
}
