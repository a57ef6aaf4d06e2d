//! A year in the life of profiles: weekly images and monthly patches that reach regions late, minors that come and go,
//! catalogues that flap, weeks in which nobody looks, and runs that take days.

use std::collections::{BTreeMap, BTreeSet};

use flotta_engine::channels::{Decision, Target};
use flotta_model::{Channel, Goal, ImageSelection, KubernetesVersion, NodeImage, VersionTarget};
use jiff::SignedDuration;

use crate::world::{DAY, HOUR, World, at, cluster, image, target};

const REGIONS: [&str; 3] = ["a", "b", "c"];
const DAYS: i64 = 365;
const FAMILY: &str = "AKSUbuntu-2204gen2containerd";

/// Small, seeded and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// When each region gets something.
type Plan<T> = Vec<(T, BTreeMap<&'static str, i64>)>;

fn spread(day: i64, random: &mut Random) -> BTreeMap<&'static str, i64> {
    REGIONS.iter().map(|region| (*region, day + random.below(12) as i64)).collect()
}

/// A minor every four months, a patch of each supported one every month.
fn versions(random: &mut Random) -> Plan<KubernetesVersion> {
    let mut plan = vec![(KubernetesVersion::new(1, 31, 0), REGIONS.iter().map(|region| (*region, -1)).collect())];
    for day in 0..DAYS - 20 {
        let newest = 32 + (day / 120) as u32;
        for minor in 31..=newest {
            let born = if minor <= 31 { 0 } else { i64::from(minor - 32) * 120 };
            if (day - born) >= 0 && (day - born) % 30 == 0 {
                plan.push((KubernetesVersion::new(1, minor, 1 + ((day - born) / 30) as u32), spread(day, random)));
            }
        }
    }
    plan
}

fn images(random: &mut Random) -> Plan<NodeImage> {
    let start = jiff::tz::TimeZone::UTC.to_datetime(at(0)).date();
    let weekly = (0..DAYS - 20).step_by(7).map(|day| {
        let date = start.saturating_add(SignedDuration::from_hours(24 * day));
        let version = format!("{FAMILY}-{}.0", date.strftime("%Y%m.%d"));
        (image(&version), spread(day, random))
    });
    let first = (image(&format!("{FAMILY}-202501.01.0")), REGIONS.iter().map(|region| (*region, -1)).collect());
    std::iter::once(first).chain(weekly).collect()
}

/// The versions that a region offers, of so many minors.
fn offered(plan: &Plan<KubernetesVersion>, region: &str, day: i64, minors: u32) -> Vec<KubernetesVersion> {
    let mut here: Vec<KubernetesVersion> =
        plan.iter().filter(|(_, days)| days[region] <= day).map(|(version, _)| *version).collect();
    here.sort_unstable();
    let newest = here.last().map_or(0, |version| version.minor);
    here.retain(|version| version.minor + minors > newest);
    here
}

struct Life {
    world: World,
    made: Vec<(String, Vec<String>)>,
    /// What is under way, and when each member is done.
    moving: Option<(Goal, Vec<(usize, i64)>)>,
}

impl Life {
    fn new(channel: Channel) -> Self {
        let mut world = World::new(channel);
        for (index, region) in REGIONS.iter().cycle().take(6).enumerate() {
            world.join(&format!("m{index}"), cluster(region, "1.31.0", &[&format!("{FAMILY}-202501.01.0")]));
        }
        Self { world, made: Vec::new(), moving: None }
    }

    /// Members reach what their run wants, once their region has it.
    fn work(&mut self, day: i64) {
        let Some((goal, members)) = &mut self.moving else { return };
        members.retain(|(index, done)| {
            let region = REGIONS[index % REGIONS.len()];
            let cluster = self.world.members[*index].seen.as_mut().expect("seen");
            let releases = &self.world.releases.regions[region];
            let here = match (goal.version(), goal.images()) {
                (Some(VersionTarget::Exact(version)), _) => {
                    let here = releases.offered().any(|(offered, _)| offered == version);
                    if here && *done <= day && cluster.version < version {
                        assert!(cluster.version.minor + 1 >= version.minor, "a minor is skipped");
                        cluster.version = version;
                        cluster.pools[0].version = version;
                    }
                    // A target that was withdrawn meanwhile is not waited for in this world.
                    here || *done + 30 <= day
                }
                (_, Some(ImageSelection::Custom(images))) => {
                    let here = releases.images[FAMILY].iter().any(|release| release.image >= images[0]);
                    if here && *done <= day && cluster.pools[0].image.as_ref() < Some(&images[0]) {
                        cluster.pools[0].image = Some(images[0].clone());
                    }
                    here
                }
                other => panic!("{other:?}"),
            };
            !(here && *done <= day)
        });
        if members.is_empty() {
            self.moving = None;
            self.world.active = None;
        }
    }

    fn look(&mut self, day: i64, random: &mut Random) {
        let judgement = self.world.judge();
        let Decision::Trigger(trigger) = judgement.decision else { return };
        let versions = judgement.target.as_ref().map(Target::versions).unwrap_or_default();
        self.made.push((trigger.runs[0].name.to_string(), versions));
        self.world.memory = trigger.memory.clone();
        self.world.active = Some(trigger.runs[0].name.to_string());
        let names: BTreeSet<_> = trigger.members.iter().collect();
        let members = (0..self.world.members.len()).filter(|index| names.contains(&self.world.members[*index].name));
        let members = members.map(|index| (index, day + random.below(4) as i64)).collect();
        self.moving = Some((trigger.runs[0].goal.clone(), members));
    }
}

fn live(channel: Channel, seed: u64) -> Life {
    let mut random = Random(seed);
    let (versions, images) = (versions(&mut random), images(&mut random));
    let mut life = Life::new(channel);
    let mut away_until = 0;
    // Nobody moves the versions of those whose images are followed: their minor stays supported.
    let minors = if channel == Channel::NodeImage { 10 } else { 3 };
    for hour in (0..DAYS * 24).step_by(6) {
        let day = hour / 24;
        life.world.now = at(hour * HOUR);
        life.work(day);
        if random.below(4 * 40) == 0 {
            away_until = day + random.below(25) as i64;
        }
        // It is looked at every six hours, unless flotta is down; and at last it is there.
        if day < away_until && day < DAYS - 15 {
            continue;
        }
        for region in REGIONS {
            let mut here = offered(&versions, region, day, minors);
            // Now and then a region forgets its newest version for a while.
            if random.below(40) == 0 && day < DAYS - 15 {
                here.pop();
            }
            let texts: Vec<String> = here.iter().map(ToString::to_string).collect();
            life.world.publish(region, &texts.iter().map(String::as_str).collect::<Vec<_>>());
            if let Some((newest, _)) = images.iter().rfind(|(_, days)| days[region] <= day) {
                life.world.publish_image(region, newest.as_str());
            }
        }
        life.look(day, &mut random);
    }
    assert_eq!(DAY, 24 * HOUR);
    life
}

#[test]
fn e36_a_year_with_outages_ends_each_profile_where_it_should_with_no_version_twice_and_nothing_missed() {
    let newest_image = images(&mut Random(0)).last().expect("images").0.clone();
    for seed in 0..10 {
        for channel in [Channel::Rapid, Channel::Stable, target(32, false), Channel::NodeImage] {
            let life = live(channel, seed);
            let said = format!("{channel:?}, seed {seed}: {:?}", life.made);
            let mut targets: Vec<&Vec<String>> = life.made.iter().map(|(_, versions)| versions).collect();
            let mut names: Vec<&String> = life.made.iter().map(|(name, _)| name).collect();
            targets.sort();
            targets.dedup();
            names.sort();
            names.dedup();
            assert_eq!((targets.len(), names.len()), (life.made.len(), life.made.len()), "twice: {said}");
            let versions = versions(&mut Random(seed));
            let all: BTreeSet<KubernetesVersion> = versions.iter().map(|(version, _)| *version).collect();
            let newest = |minor: u32| all.iter().rfind(|version| version.minor == minor).copied();
            let top = all.last().expect("versions").minor;
            for member in &life.world.members {
                let cluster = member.seen.as_ref().expect("seen");
                match channel {
                    Channel::Rapid => assert_eq!(Some(cluster.version), newest(top), "{said}"),
                    Channel::Stable => assert_eq!(Some(cluster.version), newest(top - 1), "{said}"),
                    Channel::NodeImage => assert_eq!(cluster.pools[0].image.as_ref(), Some(&newest_image), "{said}"),
                    _ => assert_eq!(cluster.version.minor, 32, "{said}"),
                }
            }
        }
    }
}
