//! Regions of the small cloud: their node images, which move on while a run lives.

use flotta_model::{NodeImage, Pool};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use crate::random::Random;

pub const FAMILIES: [&str; 2] = ["AKSUbuntu-2204gen2containerd", "AKSAzureLinux-V2gen2"];

/// The newest image that any region ever gets.
pub const LAST: u32 = 10;

/// Images that a region offers beside its newest, where it lets pools be set to one.
const OLDER: u32 = 3;

pub struct Region {
    pub name: String,
    pins: bool,
    begin: Timestamp,
    /// The newest image, from when on.
    newest: Vec<(u64, u32)>,
}

/// The image of a week; the first is ten weeks old when a life begins.
pub fn image(begin: Timestamp, family: &str, week: u32) -> NodeImage {
    let published = begin - SignedDuration::from_hours(24 * (70 - 7 * i64::from(week)));
    let date = TimeZone::UTC.to_datetime(published).date();
    format!("{family}-{}.0", date.strftime("%Y%m.%d")).parse().expect("image")
}

impl Region {
    /// In the end all regions have the same images.
    pub fn random(name: String, begin: Timestamp, moves: bool, random: &mut Random) -> Self {
        let mut newest = vec![(0, if moves { random.range(6, 8) as u32 } else { 8 })];
        while let Some((from, week)) = newest.last().copied().filter(|(_, week)| moves && *week < LAST) {
            let most = *random.pick(&[20_000, 200_000, 900_000]);
            newest.push((from + random.range(1, most), week + 1));
        }
        Self { name, pins: random.chance(60), begin, newest }
    }

    pub fn newest(&self, now: u64) -> u32 {
        self.newest.iter().rev().find(|(from, _)| *from <= now).map_or(0, |(_, week)| *week)
    }

    pub fn image(&self, family: &str, week: u32) -> NodeImage {
        image(self.begin, family, week)
    }

    /// What the region has for a pool.
    pub fn offer(&self, pool: &mut Pool, now: u64) {
        let Some(family) = pool.image.as_ref().map(|image| image.family().to_owned()) else { return };
        let newest = self.newest(now);
        pool.latest_image = Some(self.image(&family, newest));
        if self.pins {
            pool.offered_images = (newest - OLDER..=newest).map(|week| self.image(&family, week)).collect();
        }
    }

    /// Whether a pool can be set to an image.
    pub fn has(&self, wanted: &NodeImage, now: u64) -> bool {
        let newest = self.newest(now);
        let oldest = if self.pins { newest - OLDER } else { newest };
        (oldest..=newest).any(|week| self.image(wanted.family(), week) == *wanted)
    }
}
