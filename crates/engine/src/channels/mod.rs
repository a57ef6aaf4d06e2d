//! What an auto-upgrade profile wants now, and why it makes no run (`behaviour.md` A9, E2).
//!
//! A profile is reconciled, not told: what its channel points at is compared with what the members run, as often as
//! anybody likes. What was tried is remembered, so that nothing is made twice, however what is published comes and goes.

mod name;
mod standing;
mod target;

use std::collections::BTreeSet;

use flotta_model::{
    AutoUpgradeProfile, Channel, Cluster, ClusterId, Goal, Hold, ImageSelection, KubernetesVersion, Name, NodeImage,
    Releases, UpgradeType, profile::ProfileImages, profile::UpgradePath,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{standing::Standing, target::Target};

/// A member that the profile's strategy picks, and what was seen of its cluster.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Its name.
    pub name: &'a Name,
    /// Its cluster.
    pub cluster: &'a ClusterId,
    /// What was seen of it, or why nothing was.
    pub seen: Result<&'a Cluster, &'a Hold>,
}

/// What a profile is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The profile.
    pub profile: &'a AutoUpgradeProfile,
    /// What its strategy says, as text.
    pub strategy: &'a str,
    /// The members that the strategy picks, in the order in which they joined.
    pub members: &'a [Known<'a>],
    /// What the regions of these offer.
    pub releases: &'a Releases,
    /// What was tried before.
    pub memory: &'a Memory,
    /// The run that the profile made last, while that is unfinished.
    pub active: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
}

/// What a profile has tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The channel that it followed then. Another one begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<Channel>,
    /// What the last run was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    /// The members that have been in a run for that.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    tried: BTreeSet<Name>,
}

/// What is to be done for a profile, with what it was judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What its channel points at, if anything.
    pub target: Option<Target>,
    /// What to do.
    pub decision: Decision,
    /// How each member stands to that, in the order of the members.
    pub standings: Vec<Standing>,
}

/// What is to be done for a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Runs are to be made, and the first is to be started.
    Trigger(Box<Trigger>),
    /// Not yet.
    Wait(Reason),
    /// Nothing, until something changes.
    Nothing(Reason),
}

/// Why a profile makes no run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// A short, stable word.
    pub code: &'static str,
    /// What it is, and the way out where there is one.
    pub message: String,
    /// The earliest time it can change, where known.
    pub until: Option<Timestamp>,
}

/// The runs that a profile makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// One after another.
    pub runs: Vec<NewRun>,
    /// Who is in them.
    pub members: Vec<Name>,
    /// What people should know.
    pub message: String,
    /// What is to be remembered once they are made.
    pub memory: Memory,
}

/// A run to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Its name: the same for the same goal, strategy and members to be moved.
    pub name: Name,
    /// What it wants.
    pub goal: Goal,
}

/// Whether a profile is to make a run now.
pub fn judge(facts: &Facts<'_>) -> Judgement {
    let found = target::of(facts, target::Asked::ByItself);
    let standings = facts.standings(found.target.as_ref());
    let decision = facts.decide(&found, &standings);
    Judgement { target: found.target, decision, standings }
}

/// The runs that a profile makes when somebody asks for them: also one that is disabled, of what is published anywhere,
/// and whatever was tried before.
pub fn on_demand(facts: &Facts<'_>) -> Result<Trigger, Reason> {
    let found = target::of(facts, target::Asked::ByHand);
    let Some(target) = &found.target else { return Err(found.reason()) };
    let standings = facts.standings(Some(target));
    let members = facts.members.iter().map(|member| member.name.clone()).collect();
    Ok(facts.trigger(target, &standings, members))
}

impl Facts<'_> {
    fn standings(&self, target: Option<&Target>) -> Vec<Standing> {
        self.members.iter().map(|member| Standing::of(self, member, target)).collect()
    }

    /// What was tried of the channel that is followed now.
    fn remembered(&self) -> Option<&Target> {
        self.memory.target.as_ref().filter(|_| self.memory.channel == Some(self.profile.channel))
    }

    fn decide(&self, found: &target::Found, standings: &[Standing]) -> Decision {
        if self.profile.disabled {
            let message = "the profile is disabled; enable it, or make a run with generateUpdateRun";
            return Decision::Nothing(Reason::new("Disabled", message));
        }
        let Some(target) = &found.target else { return found.decision() };
        if let (Target::Version(now), Some(Target::Version(before))) = (target, self.remembered())
            && now < before
        {
            let message = format!(
                "the last run was for {before}, and the newest on offer is {now} now: it is never gone back, and nothing is made until {before} or a newer version is offered"
            );
            return Decision::Nothing(Reason::new("Withdrawn", message));
        }
        let movers = || self.members.iter().zip(standings).filter(|(_, standing)| standing.is_to_move());
        if movers().next().is_none() {
            return found
                .later()
                .unwrap_or_else(|| Decision::Nothing(Reason::new("NothingToDo", format!("no member needs {target}"))));
        }
        if let Some(run) = self.active {
            let message = format!(
                "{target} is pending: the profile's last run '{run}' is not done; what is newest then is made when it has ended, or was deleted"
            );
            return Decision::Wait(Reason::new("RunActive", message));
        }
        let same = self.remembered() == Some(target);
        let tried = |name: &Name| same && self.memory.tried.contains(name);
        if movers().all(|(member, _)| tried(member.name)) {
            let message = format!(
                "a run for {target} was made for every member that needs it, and is not made again by itself: retry that run (`flotta run retry`), or make one with generateUpdateRun"
            );
            return Decision::Nothing(Reason::new("AlreadyTried", message));
        }
        if let Some(calendar) = self.profile.trigger.calendar.as_ref().filter(|calendar| !calendar.is_open(self.now)) {
            let until = calendar.next_open(self.now);
            let message = format!("{target} is to be gone to in the hours of the profile's calendar");
            return Decision::Wait(Reason { until, ..Reason::new("Calendar", message) });
        }
        let members = self.members.iter().map(|member| member.name).filter(|name| !tried(name)).cloned().collect();
        Decision::Trigger(Box::new(self.trigger(target, standings, members)))
    }

    fn trigger(&self, target: &Target, standings: &[Standing], members: Vec<Name>) -> Trigger {
        let in_run: BTreeSet<&Name> = members.iter().collect();
        let placed = || self.members.iter().zip(standings).filter(|(member, _)| in_run.contains(member.name));
        let mut to_move: Vec<&str> =
            placed().filter(|(_, standing)| standing.is_to_move()).map(|(member, _)| member.cluster.key()).collect();
        to_move.sort_unstable();
        let new = |goal: Goal| NewRun { name: name::of(self.profile, target, &goal, self.strategy, &to_move), goal };
        let runs = self.goals(target).into_iter().map(new).collect();
        let same = self.remembered() == Some(target);
        let before = self.memory.tried.iter().filter(|_| same);
        // Who could not be seen is in the run all the same. Who is brought within reach by hand later is not in it.
        let tried = placed().filter(|(_, standing)| standing.is_to_move() || matches!(standing, Standing::NotSeen(_)));
        let memory = Memory {
            channel: Some(self.profile.channel),
            target: Some(target.clone()),
            tried: before.chain(tried.map(|(member, _)| member.name)).cloned().collect(),
        };
        let count = to_move.len();
        let message = format!("{count} member{} to move to {target}", if count == 1 { "" } else { "s" });
        Trigger { runs, members, message, memory }
    }

    fn goals(&self, target: &Target) -> Vec<Goal> {
        let images = self.profile.images.map(|images| match images {
            ProfileImages::Latest => ImageSelection::Latest,
            ProfileImages::Consistent => ImageSelection::Consistent,
        });
        let goal = |upgrade, version, images| Goal::new(upgrade, version, images).ok();
        match target {
            Target::Version(version) => {
                let version = Some((*version).into());
                let first = self.profile.trigger.path == UpgradePath::ControlPlaneFirst;
                let first = first.then(|| goal(UpgradeType::ControlPlaneOnly, version, None)).flatten();
                first.into_iter().chain(goal(UpgradeType::Full, version, images)).collect()
            }
            Target::Images(images) => {
                let custom = Some(ImageSelection::Custom(images.clone()));
                goal(UpgradeType::NodeImageOnly, None, custom).into_iter().collect()
            }
        }
    }
}

impl Reason {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), until: None }
    }
}

impl Memory {
    /// What the last run was for, as people see it.
    pub fn versions(&self) -> Vec<String> {
        self.target.as_ref().map(Target::versions).unwrap_or_default()
    }
}

impl From<KubernetesVersion> for Target {
    fn from(version: KubernetesVersion) -> Self {
        Self::Version(version)
    }
}

impl From<Vec<NodeImage>> for Target {
    fn from(images: Vec<NodeImage>) -> Self {
        Self::Images(images)
    }
}
