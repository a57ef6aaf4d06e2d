//! Fleets, regions and profiles in few words.

use flotta_engine::channels::{self, Decision, Facts, Judgement, Known, Memory, Reason, Standing, Trigger};
use flotta_model::{
    AutoUpgradeProfile, Catalogue, Channel, Cluster, ClusterId, Hold, KubernetesVersion, Name, NodeImage, Pool,
    Provisioning, RegionVersion, Releases, profile::TriggerPolicy,
};
use jiff::Timestamp;

pub const HOUR: i64 = 3600;
pub const DAY: i64 = 24 * HOUR;

pub fn v(text: &str) -> KubernetesVersion {
    text.parse().expect(text)
}

pub fn image(text: &str) -> NodeImage {
    text.parse().expect(text)
}

pub fn name(text: &str) -> Name {
    text.parse().expect(text)
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_750_000_000 + second).expect("instant")
}

pub fn target(minor: u32, long_term_support: bool) -> Channel {
    Channel::TargetKubernetesVersion { major: 1, minor, long_term_support }
}

/// What regions offer: versions with `p` behind them are previews, with `l` for long-term support only.
pub fn offer(versions: &[&str]) -> Catalogue {
    let version = |text: &&str| RegionVersion {
        version: v(text.trim_end_matches(['p', 'l'])),
        preview: text.ends_with('p'),
        long_term_support_only: text.ends_with('l'),
    };
    Catalogue { versions: versions.iter().map(version).collect() }
}

pub struct Member {
    pub name: Name,
    pub id: ClusterId,
    pub seen: Result<Cluster, Hold>,
}

pub fn cluster(region: &str, version: &str, images: &[&str]) -> Cluster {
    let pool = |(index, text): (usize, &&str)| Pool {
        name: format!("p{index}"),
        version: v(version),
        provisioning: Provisioning::Succeeded,
        image: Some(image(text)),
        latest_image: None,
        offered_images: Vec::new(),
        live_patch: None,
        from_snapshot: false,
        lagging_nodes: 0,
        etag: None,
    };
    Cluster {
        location: region.into(),
        version: v(version),
        provisioning: Provisioning::Succeeded,
        running: true,
        upgrades: Vec::new(),
        pools: images.iter().enumerate().map(pool).collect(),
        etag: None,
        long_term_support: false,
        automatic_upgrades: Vec::new(),
        provisions_nodes: false,
    }
}

pub struct World {
    pub profile: AutoUpgradeProfile,
    pub members: Vec<Member>,
    pub releases: Releases,
    pub memory: Memory,
    pub active: Option<String>,
    pub now: Timestamp,
}

impl World {
    pub fn new(channel: Channel) -> Self {
        Self {
            profile: AutoUpgradeProfile {
                name: name("aup"),
                channel,
                strategy_id: None,
                images: None,
                disabled: false,
                trigger: TriggerPolicy::default(),
            },
            members: Vec::new(),
            releases: Releases::default(),
            memory: Memory::default(),
            active: None,
            now: at(0),
        }
    }

    pub fn publish(&mut self, region: &str, versions: &[&str]) {
        self.releases.regions.entry(region.into()).or_default().saw_versions(&offer(versions), self.now);
    }

    pub fn publish_image(&mut self, region: &str, text: &str) {
        self.releases.regions.entry(region.into()).or_default().saw_image(&image(text), self.now);
    }

    pub fn join(&mut self, member: &str, cluster: Cluster) {
        let id =
            format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/{member}");
        self.members.push(Member { name: name(member), id: id.parse().expect("id"), seen: Ok(cluster) });
    }

    pub fn cluster(&mut self, member: &str) -> &mut Cluster {
        let found = self.members.iter_mut().find(|known| known.name == name(member)).expect(member);
        found.seen.as_mut().expect("seen")
    }

    pub fn known(&self) -> Vec<Known<'_>> {
        self.members
            .iter()
            .map(|member| Known { name: &member.name, cluster: &member.id, seen: member.seen.as_ref() })
            .collect()
    }

    fn with<T>(&self, judge: impl FnOnce(&Facts<'_>) -> T) -> T {
        let members = self.known();
        judge(&Facts {
            profile: &self.profile,
            strategy: "one by one",
            members: &members,
            releases: &self.releases,
            memory: &self.memory,
            active: self.active.as_deref(),
            now: self.now,
        })
    }

    pub fn judge(&self) -> Judgement {
        self.with(channels::judge)
    }

    pub fn on_demand(&self) -> Result<Trigger, Reason> {
        self.with(channels::on_demand)
    }

    /// The code of the decision, `Trigger` where runs are made.
    pub fn code(&self) -> &'static str {
        match self.judge().decision {
            Decision::Trigger(_) => "Trigger",
            Decision::Wait(reason) | Decision::Nothing(reason) => reason.code,
        }
    }

    pub fn reason(&self) -> Reason {
        match self.judge().decision {
            Decision::Trigger(trigger) => panic!("it triggers: {trigger:?}"),
            Decision::Wait(reason) | Decision::Nothing(reason) => reason,
        }
    }

    pub fn trigger(&self) -> Trigger {
        match self.judge().decision {
            Decision::Trigger(trigger) => *trigger,
            Decision::Wait(reason) | Decision::Nothing(reason) => panic!("it does not trigger: {reason:?}"),
        }
    }

    /// Makes the runs that are wanted, and answers with them.
    pub fn make(&mut self) -> Trigger {
        let trigger = self.trigger();
        self.memory = trigger.memory.clone();
        trigger
    }

    pub fn standing(&self, member: &str) -> Standing {
        let index = self.members.iter().position(|known| known.name == name(member)).expect(member);
        self.judge().standings[index].clone()
    }

    /// What the channel points at.
    pub fn versions(&self) -> Vec<String> {
        self.judge().target.map(|target| target.versions()).unwrap_or_default()
    }
}
