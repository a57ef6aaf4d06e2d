//! What a node pool needs to get to the image that was chosen for its family (`behaviour.md` A4, B2, D2).
//!
//! A pool is never moved back. Where the driver can pin an image it gets exactly the one that was chosen; where it cannot, it
//! gets its region's newest, which must be that one. Images with a date of security patches are reached by a live patch, or
//! by whatever newer image there is.

use std::cmp::Ordering;

use flotta_model::{Cluster, Fault, Hold, NodeImage, Pool, Step, image::VALID_DAYS};
use jiff::{Timestamp, civil::Date};

use crate::{
    images,
    upgrade::{Needs, unsettled},
};

/// The images that were chosen, for the pools of one region.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<'a> {
    /// At most one a family.
    pub images: &'a [NodeImage],
    /// They were given, rather than chosen when the run started.
    pub custom: bool,
    /// Newer ones will do where a region has no other.
    pub accepts_newer: bool,
    /// The region.
    pub region: &'a str,
    /// Now.
    pub now: Timestamp,
}

/// How a pool gets an image.
enum Way {
    /// It is set to exactly this one.
    Pin(NodeImage),
    /// It goes to the newest of its region, which is this one.
    Newest(NodeImage),
}

type Stuck = Box<Needs>;

impl Chosen<'_> {
    fn image_for(&self, own: &NodeImage) -> Option<&NodeImage> {
        self.images.iter().find(|image| image.family() == own.family())
    }

    /// Why a pool is not for this run, if so: no image was chosen for its family.
    pub fn left_out(&self, pool: &Pool) -> Option<String> {
        let own = pool.image.as_ref().filter(|own| self.image_for(own).is_none())?;
        let (name, family) = (&pool.name, own.family());
        let patches = self.images.iter().any(|image| image.security_patch().is_some());
        Some(match self.custom {
            true if patches && !own.is_linux() => {
                format!("node pool '{name}' runs Windows, and security patches are for Linux")
            }
            true => format!("node pool '{name}' is not upgraded: the run has no version for its image family {family}"),
            false => format!(
                "node pool '{name}' is not upgraded: its image family {family} appeared after the run's images were chosen"
            ),
        })
    }

    /// Why the whole cluster is not for this run, if none of its pools is.
    pub fn all_left_out(&self, cluster: &Cluster) -> Option<String> {
        let reasons: Option<Vec<String>> = cluster.pools.iter().map(|pool| self.left_out(pool)).collect();
        reasons.filter(|reasons| !reasons.is_empty()).map(|reasons| reasons.join("; "))
    }

    /// The images that pools are to be set to while their version is upgraded; those not named get the newest.
    pub fn with_version<'p>(&self, pools: &[&'p Pool]) -> Result<Vec<(&'p Pool, NodeImage)>, Stuck> {
        let images = each(pools, |pool| self.with_version_of(pool))?;
        Ok(images.into_iter().filter_map(|(pool, image)| Some((pool, image?))).collect())
    }

    fn with_version_of(&self, pool: &Pool) -> Result<Option<NodeImage>, Stuck> {
        let Some((own, chosen)) = pool.image.as_ref().and_then(|own| Some((own, self.image_for(own)?))) else {
            return Ok(None);
        };
        // Patches are put on afterwards.
        let (own, wanted) = (own.without_patch(), chosen.without_patch());
        let ahead = own > wanted;
        let newer_will_do = ahead || self.accepts_newer || chosen.security_patch().is_some();
        match self.way(pool, if ahead { &own } else { &wanted }, newer_will_do) {
            Ok(Way::Pin(image)) => Ok(Some(image)),
            Ok(Way::Newest(_)) => Ok(None),
            Err(_) if ahead || (keeps_snapshot(pool) && own == wanted) => Ok(None),
            Err(stuck) => Err(stuck),
        }
    }

    /// The steps that take pools to their images, after their version is there.
    pub fn steps(&self, pools: &[&Pool], notes: &mut Vec<String>) -> Result<Vec<Step>, Stuck> {
        let steps = each(pools, |pool| self.step(pool, notes))?;
        Ok(steps.into_iter().filter_map(|(_, step)| step).collect())
    }

    fn step(&self, pool: &Pool, notes: &mut Vec<String>) -> Result<Option<Step>, Stuck> {
        let name = &pool.name;
        let Some((own, wanted)) = pool.image.as_ref().and_then(|own| Some((own, self.image_for(own)?))) else {
            notes.push(format!("Node pool '{name}' tells no node image, and keeps what it has."));
            return Ok(None);
        };
        if let Some(date) = wanted.security_patch() {
            return self.patch(pool, own, wanted, date, notes);
        }
        let behind = own < wanted;
        if !behind && (!unsettled(pool) || keeps_snapshot(pool)) {
            notes.push(format!("Node pool '{name}' is at or ahead of node image {wanted}."));
            return Ok(None);
        }
        let way = self.way(pool, if behind { wanted } else { own }, self.accepts_newer)?;
        Ok(Some(way.step(pool)))
    }

    /// Takes a pool to where it has the security patches of a date: live, else by a newer image.
    fn patch(
        &self,
        pool: &Pool,
        own: &NodeImage,
        wanted: &NodeImage,
        date: Date,
        notes: &mut Vec<String>,
    ) -> Result<Option<Step>, Stuck> {
        let (name, region) = (&pool.name, self.region);
        let has_them = |image: &&NodeImage| image.patched_until() >= Some(date);
        if has_them(&own) && !unsettled(pool) {
            let by = if own.security_patch().is_some() { "a live security patch" } else { "a patched node image" };
            notes.push(format!("Node pool '{name}' has the security patches of {date} by {by}: {own}."));
            return Ok(None);
        }
        if let Some(live) = pool.live_patch.as_ref().filter(has_them) {
            return Ok(Some(Step::PoolPinned { pool: name.clone(), image: live.clone() }));
        }
        let base = wanted.without_patch();
        let floor = if unsettled(pool) { Ordering::Equal } else { Ordering::Greater };
        let newer = |image: &&NodeImage| image.partial_cmp(&own).is_some_and(|order| order >= floor);
        let there = || pool.offered_images.iter().chain(&pool.latest_image).filter(newer);
        let best = images::newest(there().filter(has_them));
        let best = best.or_else(|| there().find(|image| **image == base));
        match best.or_else(|| images::newest(there().filter(|image| **image > base))) {
            Some(image) => Ok(Some(self.way(pool, image, false)?.step(pool))),
            None if own.without_patch() < base => Err(self.not_there(&base)),
            None => {
                notes.push(format!(
                    "Node pool '{name}' is on patched node image {own}; region {region} has no newer security patch for it."
                ));
                Ok(None)
            }
        }
    }

    /// How a pool that has to be moved gets an image that is not older than its own, if it can.
    fn way(&self, pool: &Pool, image: &NodeImage, newer_will_do: bool) -> Result<Way, Stuck> {
        let pins = !pool.offered_images.is_empty();
        let way = |image: &NodeImage| if pins { Way::Pin(image.clone()) } else { Way::Newest(image.clone()) };
        let same = |offered: &&NodeImage| offered.partial_cmp(&image) == Some(Ordering::Equal);
        let newest = pool.latest_image.as_ref().or(pool.offered_images.last());
        let way = match (pool.offered_images.iter().find(same), newest) {
            (Some(offered), _) => Way::Pin(offered.clone()),
            (None, Some(newest)) => match newest.partial_cmp(image) {
                Some(Ordering::Equal) => way(newest),
                Some(Ordering::Greater) if newer_will_do => way(newest),
                Some(Ordering::Greater) => return Err(self.overtaken(pool, image, newest)),
                Some(Ordering::Less) | None => return Err(self.not_there(image)),
            },
            (None, None) => return Err(self.not_there(image)),
        };
        if keeps_snapshot(pool) {
            return Err(from_snapshot(pool));
        }
        self.too_old(way.image()).map_or(Ok(way), Err)
    }

    fn not_there(&self, image: &NodeImage) -> Stuck {
        let hold = || Hold::ImageNotInRegion { image: image.to_string(), region: self.region.to_owned() };
        self.too_old(image).unwrap_or_else(|| Box::new(Needs::Hold(hold())))
    }

    fn too_old(&self, image: &NodeImage) -> Option<Stuck> {
        let days = images::days_old(image, self.now).filter(|days| *days > VALID_DAYS)?;
        Some(Box::new(Needs::Hold(Hold::ImageTooOld { image: image.to_string(), days })))
    }

    fn overtaken(&self, pool: &Pool, image: &NodeImage, newest: &NodeImage) -> Stuck {
        let message = format!(
            "node pool '{}' cannot get node image {image} any more: region {} has moved on to {}; use a run of selection Latest, or one that accepts newer images (acceptNewer)",
            pool.name,
            self.region,
            newest.version()
        );
        Box::new(Needs::Never(Fault::new("NodeImageOvertaken", message)))
    }
}

impl Way {
    fn image(&self) -> &NodeImage {
        let (Self::Pin(image) | Self::Newest(image)) = self;
        image
    }

    fn step(self, pool: &Pool) -> Step {
        let pool = pool.name.clone();
        match self {
            Self::Pin(image) => Step::PoolPinned { pool, image },
            Self::Newest(image) => Step::PoolImage { pool, image },
        }
    }
}

/// Whether a pool's image stays that of its snapshot whatever is sent.
fn keeps_snapshot(pool: &Pool) -> bool {
    pool.from_snapshot && pool.offered_images.is_empty()
}

fn from_snapshot(pool: &Pool) -> Stuck {
    let message = format!(
        "node pool '{}' was made from a snapshot, and its driver cannot set it to another image; make the pool anew without it, or use a run of selection Latest, which leaves it alone",
        pool.name
    );
    Box::new(Needs::Never(Fault::new("NodePoolFromSnapshot", message)))
}

/// Asks each pool; what can never be counts before what is waited for.
fn each<'p, T>(
    pools: &[&'p Pool],
    mut ask: impl FnMut(&'p Pool) -> Result<T, Stuck>,
) -> Result<Vec<(&'p Pool, T)>, Stuck> {
    let (mut answers, mut held) = (Vec::new(), None);
    for pool in pools {
        match ask(pool) {
            Ok(answer) => answers.push((*pool, answer)),
            Err(never) if matches!(*never, Needs::Never(_)) => return Err(never),
            Err(hold) => held = held.or(Some(hold)),
        }
    }
    held.map_or(Ok(answers), Err)
}
