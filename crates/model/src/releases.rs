//! What the regions offer, and since when: every Kubernetes version and node image that was ever seen there.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Catalogue, KubernetesVersion, NodeImage};

/// What the regions offer, by region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Releases {
    /// The regions.
    pub regions: BTreeMap<String, RegionReleases>,
}

/// What one region offers and has offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionReleases {
    /// When its versions were last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Timestamp>,
    /// Its versions.
    pub versions: BTreeMap<KubernetesVersion, VersionRelease>,
    /// Its node images, by family, ascending.
    pub images: BTreeMap<String, Vec<ImageRelease>>,
}

/// A version in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRelease {
    /// Not generally available.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preview: bool,
    /// Only for clusters with long-term support.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub long_term_support_only: bool,
    /// When it was first seen.
    pub seen: Timestamp,
    /// When it was first seen to be gone. Cleared when it comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Timestamp>,
}

/// A node image in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRelease {
    /// The image.
    pub image: NodeImage,
    /// When it was first seen.
    pub seen: Timestamp,
}

impl RegionReleases {
    /// Takes in the versions that the region was seen to offer. A version keeps the time it was first seen, also when it
    /// goes and comes back.
    pub fn saw_versions(&mut self, catalogue: &Catalogue, now: Timestamp) {
        self.read = Some(now);
        for offered in &catalogue.versions {
            let seen = self.versions.get(&offered.version).map_or(now, |known| known.seen);
            let release = VersionRelease {
                preview: offered.preview,
                long_term_support_only: offered.long_term_support_only,
                seen,
                withdrawn: None,
            };
            self.versions.insert(offered.version, release);
        }
        let offered =
            |version: &KubernetesVersion| catalogue.versions.iter().any(|offered| offered.version == *version);
        for (_, gone) in self.versions.iter_mut().filter(|(version, _)| !offered(version)) {
            gone.withdrawn.get_or_insert(now);
        }
    }

    /// Takes in a node image that the region was seen to offer.
    pub fn saw_image(&mut self, image: &NodeImage, now: Timestamp) {
        let images = self.images.entry(image.family().to_owned()).or_default();
        if images.iter().any(|known| known.image == *image) {
            return;
        }
        let at = images.partition_point(|known| known.image < *image);
        images.insert(at, ImageRelease { image: image.clone(), seen: now });
        if images.len() > Self::MOST_IMAGES {
            images.remove(0);
        }
    }

    /// Images of one family that are remembered.
    pub const MOST_IMAGES: usize = 30;

    /// The versions on offer now, as far as is known.
    pub fn offered(&self) -> impl DoubleEndedIterator<Item = (KubernetesVersion, &VersionRelease)> {
        self.versions
            .iter()
            .filter(|(_, release)| release.withdrawn.is_none())
            .map(|(version, release)| (*version, release))
    }

    /// The newest image of each family.
    pub fn newest_images(&self) -> impl Iterator<Item = &ImageRelease> {
        self.images.values().filter_map(|images| images.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionVersion;

    fn catalogue(versions: &[&str]) -> Catalogue {
        let offer = |text: &&str| RegionVersion {
            version: text.parse().expect(text),
            preview: false,
            long_term_support_only: false,
        };
        Catalogue { versions: versions.iter().map(offer).collect() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("instant")
    }

    #[test]
    fn a_version_keeps_the_time_it_was_first_seen_when_it_goes_and_comes_back() {
        let mut region = RegionReleases::default();
        region.saw_versions(&catalogue(&["1.33.1"]), at(1));
        region.saw_versions(&catalogue(&["1.33.1", "1.33.2"]), at(2));
        region.saw_versions(&catalogue(&["1.33.2"]), at(3));
        region.saw_versions(&catalogue(&["1.33.2"]), at(4));
        let version = |text: &str, region: &RegionReleases| region.versions[&text.parse().expect(text)];
        assert_eq!((version("1.33.1", &region).seen, version("1.33.1", &region).withdrawn), (at(1), Some(at(3))));
        assert_eq!(region.offered().map(|(version, _)| version.patch).collect::<Vec<_>>(), [2]);
        region.saw_versions(&catalogue(&["1.33.1", "1.33.2"]), at(5));
        assert_eq!((version("1.33.1", &region).seen, version("1.33.1", &region).withdrawn), (at(1), None));
    }

    #[test]
    fn images_are_kept_in_order_once_each_and_not_without_end() {
        let mut region = RegionReleases::default();
        for day in [3, 1, 2, 3] {
            region.saw_image(&format!("A-202501.{day:02}.0").parse().expect("image"), at(day));
        }
        let days: Vec<i64> = region.images["A"].iter().map(|release| release.seen.as_second()).collect();
        assert_eq!(days, [1, 2, 3]);
        for number in 0..60 {
            region.saw_image(&format!("A-202502.01.{number}").parse().expect("image"), at(9));
        }
        assert_eq!(region.images["A"].len(), RegionReleases::MOST_IMAGES);
        assert_eq!(region.newest_images().next().expect("newest").image.version(), "202502.01.59");
    }
}
