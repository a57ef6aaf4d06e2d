//! Which node images a run of selection Consistent moves to (`behaviour.md` A4): of each family the newest that every pool
//! of it can have, in every region of the run.
//!
//! What a pool is on does not matter: one that is ahead of the others keeps its image, and holds nobody back.

use std::{cmp::Ordering, collections::BTreeMap, fmt};

use flotta_model::{Cluster, Goal, NodeImage, Pool};
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};

/// The images that pools of one family can have in one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolImages {
    /// The region.
    pub region: String,
    /// The newest image.
    pub newest: NodeImage,
    /// All images a pool can be set to, ascending. Empty where the driver cannot pin one: pools can have the newest only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<NodeImage>,
}

/// What the pools of a run have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// The newest image that all pools of a family can have, by family.
    pub images: Vec<NodeImage>,
    /// Families of which no image can be had by all pools.
    pub apart: Vec<Disagreement>,
}

/// Regions that have no image of a family in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Disagreement {
    /// The family.
    pub family: String,
    /// The regions, with the newest image each has.
    pub regions: Vec<RegionImage>,
}

/// The newest image of a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RegionImage {
    /// The region.
    pub region: String,
    /// The version of the image, inside its family.
    pub version: String,
}

/// How often regions that disagree are looked at again, in seconds.
pub const LOOKED_AT_EVERY: u32 = 600;

impl PoolImages {
    /// What a pool in a region can have; `None` where the region tells no newest image for it.
    pub fn of(region: &str, pool: &Pool) -> Option<Self> {
        let newest = pool.latest_image.as_ref().or(pool.offered_images.last())?.clone();
        Some(Self { region: region.to_owned(), newest, offered: pool.offered_images.clone() })
    }

    /// Adds what the pools of a cluster can have to what is known, in order and once each. A cluster that makes its own nodes
    /// has no pools for a run to move.
    pub fn add(known: &mut Vec<Self>, cluster: &Cluster) {
        let pools = cluster.pools.iter().filter(|_| !cluster.provisions_nodes);
        for pool in pools.filter_map(|pool| Self::of(&cluster.location, pool)) {
            if let Err(at) = known.binary_search_by(|other| other.in_order(&pool)) {
                known.insert(at, pool);
            }
        }
    }

    fn in_order(&self, other: &Self) -> Ordering {
        let key = |pool: &Self| (pool.newest.as_str().to_owned(), pool.region.clone());
        let offered = |pool: &Self| pool.offered.iter().map(|image| image.as_str().to_owned()).collect::<Vec<_>>();
        key(self).cmp(&key(other)).then_with(|| offered(self).cmp(&offered(other)))
    }

    fn can_have(&self, image: &NodeImage) -> bool {
        let same = |own: &NodeImage| own.partial_cmp(image) == Some(Ordering::Equal);
        same(&self.newest) || self.offered.iter().any(same)
    }
}

/// The images of a run of selection Consistent, one a family; or the families of which there is none that all pools can
/// have. A goal that accepts newer images takes the oldest of what is newest then.
pub fn choose(goal: &Goal, pools: &[PoolImages]) -> Result<Vec<NodeImage>, Vec<Disagreement>> {
    let Common { mut images, apart } = consistent(pools);
    if !apart.is_empty() && !goal.accepts_newer() {
        return Err(apart);
    }
    images.extend(apart.iter().filter_map(|apart| oldest_of_newest(pools, &apart.family)).cloned());
    Ok(images)
}

/// Of each family the newest image that all pools of it can have; families that have none are told apart.
pub fn consistent(pools: &[PoolImages]) -> Common {
    let mut families: BTreeMap<&str, Vec<&PoolImages>> = BTreeMap::new();
    for pool in pools {
        families.entry(pool.newest.family()).or_default().push(pool);
    }
    let mut common = Common::default();
    for (family, pools) in families {
        let offered = pools.iter().flat_map(|pool| pool.offered.iter().chain([&pool.newest]));
        let everywhere = offered.filter(|image| pools.iter().all(|pool| pool.can_have(image)));
        match newest(everywhere) {
            Some(image) => common.images.push(image.clone()),
            None => common.apart.push(Disagreement::of(family, &pools)),
        }
    }
    common
}

/// The oldest of the newest images that pools of a family can have: what all can have that image or a newer one.
pub fn oldest_of_newest<'a>(pools: &'a [PoolImages], family: &str) -> Option<&'a NodeImage> {
    let newest = pools.iter().map(|pool| &pool.newest).filter(|image| image.family() == family);
    newest.min_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal))
}

/// The newest of some images of one family.
pub(crate) fn newest<'a>(images: impl Iterator<Item = &'a NodeImage>) -> Option<&'a NodeImage> {
    images.max_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal))
}

/// Days since an image was published, where its version tells.
pub fn days_old(image: &NodeImage, now: Timestamp) -> Option<u32> {
    let today = TimeZone::UTC.to_datetime(now).date();
    let days = image.published()?.until(today).ok()?.get_days();
    Some(u32::try_from(days).unwrap_or(0))
}

impl Disagreement {
    fn of(family: &str, pools: &[&PoolImages]) -> Self {
        let region =
            |pool: &&PoolImages| RegionImage { region: pool.region.clone(), version: pool.newest.version().to_owned() };
        let mut regions: Vec<RegionImage> = pools.iter().map(region).collect();
        regions.sort_unstable();
        regions.dedup();
        Self { family: family.to_owned(), regions }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let region = |RegionImage { region, version }: &RegionImage| format!("{region} has {version}");
        let regions: Vec<String> = self.regions.iter().map(region).collect();
        write!(f, "{}: {}", self.family, regions.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const FAMILIES: [&str; 3] = ["AKSUbuntu-2204gen2containerd", "AKSAzureLinux-V2gen2", "AKSWindows-2022-containerd"];

    fn image(family: usize, day: u32) -> NodeImage {
        format!("{}-202510.{day:02}.0", FAMILIES[family]).parse().expect("image")
    }

    fn pool(region: &str, newest: u32, offered: &[u32]) -> PoolImages {
        let offered = offered.iter().map(|day| image(0, *day)).collect();
        PoolImages { region: region.into(), newest: image(0, newest), offered }
    }

    #[test]
    fn a4_consistent_is_the_newest_that_every_region_has() {
        // The example of the specification: one region is at the 12th, another at the 17th.
        let pools = [pool("x", 12, &[5, 12]), pool("y", 17, &[5, 12, 17])];
        assert_eq!(consistent(&pools), Common { images: vec![image(0, 12)], apart: vec![] });
        let unpinned = [pool("x", 12, &[]), pool("y", 17, &[5, 12, 17])];
        assert_eq!(consistent(&unpinned).images, [image(0, 12)], "only one of them needs to be pinned");
        assert_eq!(consistent(&[]), Common::default());
    }

    #[test]
    fn a4_families_without_an_image_in_common_are_told_apart_with_what_each_region_has() {
        let pools = [pool("y", 17, &[]), pool("x", 12, &[]), pool("x", 12, &[])];
        let common = consistent(&pools);
        assert_eq!(common.images, []);
        let told: Vec<String> = common.apart.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["AKSUbuntu-2204gen2containerd: x has 202510.12.0, y has 202510.17.0"]);
        assert_eq!(oldest_of_newest(&pools, FAMILIES[0]), Some(&image(0, 12)));
        assert_eq!(oldest_of_newest(&pools, FAMILIES[1]), None);
    }

    fn pools() -> impl Strategy<Value = Vec<PoolImages>> {
        let pool = (0..6usize, 0..3usize, 1..9u32, any::<bool>(), vec(1..9u32, 0..6));
        let pool = pool.prop_map(|(region, family, newest, pins, mut older)| {
            older.retain(|day| *day < newest && pins);
            older.extend(Some(newest).filter(|_| pins));
            older.sort_unstable();
            older.dedup();
            let offered = older.iter().map(|day| image(family, *day)).collect();
            PoolImages { region: format!("region-{region}"), newest: image(family, newest), offered }
        });
        vec(pool, 0..12)
    }

    proptest! {
        /// Compared with a search through every image there can be.
        #[test]
        fn a4_what_is_chosen_is_there_everywhere_and_nothing_newer_is(pools in pools()) {
            let common = consistent(&pools);
            let has = |pool: &PoolImages, image: &NodeImage| pool.newest == *image || pool.offered.contains(image);
            for (family, name) in FAMILIES.iter().enumerate() {
                let of: Vec<&PoolImages> = pools.iter().filter(|pool| pool.newest.family() == *name).collect();
                let everywhere = |day: &u32| of.iter().all(|pool| has(pool, &image(family, *day)));
                let naive = (1..9).filter(everywhere).max().filter(|_| !of.is_empty());
                let chosen = common.images.iter().filter(|image| image.family() == *name).cloned();
                let naive_image: Vec<NodeImage> = naive.map(|day| image(family, day)).into_iter().collect();
                prop_assert_eq!(chosen.collect::<Vec<_>>(), naive_image);
                let apart = common.apart.iter().filter(|apart| apart.family == *name).count();
                prop_assert_eq!(apart, usize::from(!of.is_empty() && naive.is_none()));
            }
        }
    }
}
