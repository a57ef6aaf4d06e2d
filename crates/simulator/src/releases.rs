//! What a region offers at one instant, and where a version may go from there (`aks-wire.md` §5).

use std::collections::BTreeMap;

use flotta_model::{KubernetesVersion, NodeImage, VersionTarget};
use jiff::{Timestamp, civil::Date};

use crate::fleet::{Region, SupportPlan};

/// A version on offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) preview: bool,
    pub(crate) long_term_support_only: bool,
    pub(crate) default: bool,
}

/// The versions and images of one region at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Releases {
    pub(crate) versions: BTreeMap<KubernetesVersion, Release>,
    images: Vec<NodeImage>,
    newest_patch: Option<Date>,
}

impl Releases {
    pub(crate) fn at(region: &Region, now: Timestamp, birth: Timestamp) -> Self {
        let mut versions = BTreeMap::new();
        for minor in &region.kubernetes {
            let release = Release {
                preview: minor.preview,
                long_term_support_only: !minor.support_plan.contains(&SupportPlan::KubernetesOfficial),
                default: minor.default,
            };
            versions
                .extend(minor.patches.iter().filter_map(|patch| patch.at(now, birth)).map(|patch| (*patch, release)));
        }
        Self {
            versions,
            images: region.images.iter().filter_map(|image| image.at(now, birth)).cloned().collect(),
            newest_patch: region.security_patches.iter().filter_map(|patch| patch.at(now, birth)).max().copied(),
        }
    }

    /// What a region that nobody described offers.
    pub(crate) fn none() -> Self {
        Self { versions: BTreeMap::new(), images: Vec::new(), newest_patch: None }
    }

    /// The versions a cluster on `from` may go to, ascending: the higher patches of its minor and every patch of the
    /// next minor on offer; from a minor that is for long-term support only, of the next three. Versions that are for
    /// long-term support only count just for clusters that have it (`for_plan`), and previews do not lead to the list
    /// of a stable version.
    pub(crate) fn upgrades(&self, from: KubernetesVersion, audience: Audience) -> Vec<KubernetesVersion> {
        let minors: Vec<(u32, u32)> = {
            let mut minors: Vec<_> = self.versions.keys().map(|version| (version.major, version.minor)).collect();
            minors.dedup();
            minors.retain(|minor| *minor > (from.major, from.minor));
            minors
        };
        let own = self.versions.iter().find(|(version, _)| version.same_minor(from)).map(|(_, release)| *release);
        let reach = if own.is_some_and(|own| own.long_term_support_only) { 3 } else { 1 };
        let from_preview = own.is_some_and(|own| own.preview);
        let allowed = |release: &Release| match audience {
            Audience::List => from_preview || !release.preview,
            Audience::Cluster { long_term_support } => long_term_support || !release.long_term_support_only,
        };
        let within = |version: &KubernetesVersion| {
            *version > from
                && (version.same_minor(from)
                    || minors.iter().take(reach).any(|minor| *minor == (version.major, version.minor)))
        };
        let listed = self.versions.iter().filter(|(version, release)| within(version) && allowed(release));
        listed.map(|(version, _)| *version).collect()
    }

    /// The full version of a target: the newest patch of a minor, generally available ones first.
    pub(crate) fn resolve(&self, target: VersionTarget) -> Option<KubernetesVersion> {
        match target {
            VersionTarget::Exact(version) => Some(version),
            VersionTarget::Minor { major, minor } => {
                self.versions.keys().rfind(|version| (version.major, version.minor) == (major, minor)).copied()
            }
        }
    }

    /// The version of clusters that ask for none.
    pub(crate) fn default_version(&self) -> Option<KubernetesVersion> {
        let default = self.versions.iter().rfind(|(_, release)| release.default);
        default.or_else(|| self.versions.iter().rfind(|(_, release)| !release.preview)).map(|(version, _)| *version)
    }

    /// The images of a family, ascending.
    pub(crate) fn images(&self, family: &str) -> Vec<&NodeImage> {
        let mut images: Vec<&NodeImage> = self.images.iter().filter(|image| image.family() == family).collect();
        images.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
        images
    }

    /// The newest image of a family.
    pub(crate) fn newest_image(&self, family: &str) -> Option<&NodeImage> {
        self.images(family).pop()
    }

    /// An image with the newest security patches on it, where they are newer than what it has.
    pub(crate) fn patched(&self, image: &NodeImage) -> Option<NodeImage> {
        let patch = self.newest_patch.filter(|patch| image.is_linux() && Some(*patch) > image.patched_until())?;
        Some(image.with_patch(patch))
    }

    /// Whether an image is on offer.
    pub(crate) fn has_image(&self, image: &NodeImage) -> bool {
        self.images.contains(image)
    }
}

/// Whose upgrades are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The region's public list.
    List,
    /// One cluster.
    Cluster {
        /// Whether it has long-term support.
        long_term_support: bool,
    },
}
