//! What a run would do to a member, and what stands in its way, told before it starts (`behaviour.md` A3, D1, D4; E01,
//! E10, E13, E14, E66, E69).
//!
//! What a cluster needs is judged by [`Target::needs`], as the run itself will; here it is put in words and weighed.
//! What nobody but a person can change is an error, what may pass or surprise is a warning, the rest is a note.

use std::cmp::Ordering;

use flotta_model::{
    Cluster, ClusterId, Fault, Goal, Hold, KubernetesVersion, MaintenanceWindow, Pool, Step, UpgradeType, VersionTarget,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    images::Disagreement,
    run::Sighting,
    upgrade::{NOT_SELECTED, Needs, Target, unfit_kind},
};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// The member will not get there unless somebody acts.
    Error,
    /// It may take longer than thought, or end differently.
    Warning,
    /// Worth knowing.
    Note,
}

/// Something to know about a member before the run starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// A stable word for it.
    pub code: String,
    /// What it is, and the way out.
    pub message: String,
}

impl Finding {
    /// A finding; long texts are cut.
    pub fn new(severity: Severity, code: &str, message: impl Into<String>) -> Self {
        let Fault { code, message } = Fault::new(code, message);
        Self { severity, code, message }
    }
}

/// What would happen to a member if the run began now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outlook {
    /// These steps, as far as can be seen from here.
    Upgrades(Vec<Step>),
    /// It would be passed over.
    Skipped,
    /// It would wait.
    Waits,
    /// It would fail.
    Fails,
    /// It is not in the run at all.
    NotInRun,
}

/// What became of a look at a member's cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Looked {
    /// It was seen.
    Seen(Box<Sighting>),
    /// Something kept it from being seen.
    Held(Hold),
    /// The provider refused for good.
    Refused(Fault),
}

/// A member, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What would happen.
    pub outlook: Outlook,
    /// What to know about it, what matters most first.
    pub findings: Vec<Finding>,
    /// When its maintenance window opens, if it would be upgraded and that is closed now.
    pub opens: Option<Timestamp>,
}

/// The largest distance, in minors, at which nodes may be behind their control plane (`behaviour.md` D1).
const MOST_SKEW: u32 = 3;

impl Verdict {
    /// Judges a member. The target's version is what the goal's came to; a minor that no region offers came to nothing. How
    /// the version stands in the member's region is told by `looked`.
    pub fn of(target: &Target<'_>, cluster: &ClusterId, looked: &Looked) -> Self {
        if let Some(why) = unfit_kind(cluster) {
            return Self::new(Outlook::Skipped, Finding::new(Severity::Warning, "NotUpgradable", why));
        }
        match looked {
            Looked::Held(hold) => Self::held(hold),
            Looked::Refused(fault) => Self::never(fault),
            Looked::Seen(sighting) => {
                let needs = Self::needs(target, sighting);
                let mut verdict = needs.inside(sighting.window.as_ref(), target.now);
                verdict.findings.extend(beside(target, &sighting.cluster, &verdict.outlook));
                verdict.findings.sort_by_key(|finding| finding.severity);
                verdict
            }
        }
    }

    /// The same where the regions of the run have no node image of these families in common: nobody starts.
    pub fn images_apart(mut self, apart: &[Disagreement]) -> Self {
        if matches!(self.outlook, Outlook::Upgrades(_)) {
            self.outlook = Outlook::Waits;
            let apart: Vec<String> = apart.iter().map(ToString::to_string).collect();
            let why = format!(
                "the regions of the run have no node image in common: {}; it starts when they have, or at once if it accepts newer images (acceptNewer)",
                apart.join("; ")
            );
            self.findings.insert(0, Finding::new(Severity::Warning, "NodeImagesApart", why));
        }
        self
    }

    /// A member of the fleet that no group of the run has.
    pub fn not_covered() -> Self {
        let why = "no group of the run picks this member; give it an update group or labels that one picks";
        Self::new(Outlook::NotInRun, Finding::new(Severity::Warning, "NotCovered", why))
    }

    /// A member of the run that is no member of the fleet any more.
    pub fn left_the_fleet() -> Self {
        let why = "it left the fleet since the run was created; create the run again to have it without";
        Self::new(Outlook::Skipped, Finding::new(Severity::Warning, "MemberLeft", why))
    }

    /// What a maintenance window adds where the member would be upgraded.
    fn inside(mut self, window: Option<&MaintenanceWindow>, now: Timestamp) -> Self {
        let Some(window) = window.filter(|window| !window.is_open(now)) else { return self };
        if !matches!(self.outlook, Outlook::Upgrades(_)) {
            return self;
        }
        self.opens = window.next_open(now);
        self.findings.push(match self.opens {
            Some(opens) => {
                let why = format!("maintenance window closed; it opens at {opens}");
                Finding::new(Severity::Note, "OutsideMaintenanceWindow", why)
            }
            None => {
                self.outlook = Outlook::Waits;
                let why = "the cluster's maintenance window never opens again; change its maintenance configuration";
                Finding::new(Severity::Error, "MaintenanceWindowNeverOpens", why)
            }
        });
        self
    }

    fn new(outlook: Outlook, finding: Finding) -> Self {
        Self { outlook, findings: vec![finding], opens: None }
    }

    fn held(hold: &Hold) -> Self {
        let severity = match hold {
            Hold::ClusterStopped
            | Hold::Unreachable(_)
            | Hold::WindowUnreadable(_)
            | Hold::NoDriver
            | Hold::ImageTooOld { .. }
            | Hold::CredentialsRefused(_) => Severity::Error,
            _ => Severity::Warning,
        };
        Self::new(Outlook::Waits, Finding::new(severity, hold.code(), hold.to_string()))
    }

    fn never(fault: &Fault) -> Self {
        Self::new(Outlook::Fails, Finding::new(Severity::Error, &fault.code, &*fault.message))
    }

    fn needs(target: &Target<'_>, sighting: &Sighting) -> Self {
        let cluster = &sighting.cluster;
        if let Some(by) = &sighting.claimed_by {
            return Self::held(&Hold::Claimed { by: by.clone() });
        }
        if let (Some(asked @ VersionTarget::Minor { .. }), None) = (target.goal.version(), target.version) {
            let (version, region) = (asked.to_string(), cluster.location.clone());
            return Self::held(&Hold::VersionNotInRegion { version, region });
        }
        let note = |code, message| Self::new(Outlook::Skipped, Finding::new(Severity::Note, code, message));
        match (Target { offer: sighting.offer, ..*target }).needs(cluster) {
            Needs::Steps(steps) => Self { outlook: Outlook::Upgrades(steps), findings: Vec::new(), opens: None },
            Needs::Nothing(why) => note("AlreadyThere", why),
            Needs::Hold(hold) => Self::held(&hold),
            Needs::Never(fault) => Self::never(&fault),
            Needs::Unfit { code, why } => Self::new(Outlook::Skipped, Finding::new(Severity::Warning, code, why)),
        }
    }
}

/// What is worth knowing about a cluster whatever becomes of it.
fn beside(target: &Target<'_>, cluster: &Cluster, outlook: &Outlook) -> impl Iterator<Item = Finding> + use<> {
    let (goal, version) = (target.goal, target.version);
    let channel = cluster.version_channel().map(|channel| {
        let message = format!(
            "the cluster's own upgrade channel '{channel}' is on and may upgrade it outside this run's order; set its upgrade channel to none"
        );
        Finding::new(Severity::Warning, "AutoUpgradeOn", message)
    });
    let images = cluster.image_channel().map(|channel| {
        let message = format!(
            "the cluster's own channel '{channel}' upgrades its node images outside this run's order; set its node OS upgrade channel to None if the run is to decide"
        );
        Finding::new(Severity::Note, "NodeImageUpgradeOn", message)
    });
    let moves = matches!(outlook, Outlook::Upgrades(_));
    let unwell = (moves && !cluster.settled_well()).then(|| {
        let message = "the last operation on the cluster or one of its pools did not end well; the upgrade is sent all the same and may end like it";
        Finding::new(Severity::Warning, "LastOperationFailed", message)
    });
    let alone =
        goal.upgrade() == UpgradeType::ControlPlaneOnly && matches!(outlook, Outlook::Upgrades(_) | Outlook::Skipped);
    let skew = version.filter(|_| alone).and_then(|version| left_behind(version, cluster));
    let unknown = if target.images.is_none() { unknown_images(goal, version, cluster) } else { None };
    let left_out = target.left_out(cluster).map(|why| Finding::new(Severity::Warning, NOT_SELECTED, why));
    [channel, unwell, skew, unknown, left_out, images].into_iter().flatten()
}

/// Pools that stay below a control plane that is moved alone (`behaviour.md` E69).
fn left_behind(version: KubernetesVersion, cluster: &Cluster) -> Option<Finding> {
    let plane = version.max(cluster.version);
    let behind: Vec<_> = cluster.pools.iter().filter(|pool| pool.version < plane).collect();
    let oldest = behind.iter().map(|pool| pool.version).min()?;
    let shown: Vec<String> = behind.iter().take(5).map(|pool| format!("'{}' at {}", pool.name, pool.version)).collect();
    let more = if behind.len() > shown.len() { ", …" } else { "" };
    let minors = plane.minor.saturating_sub(oldest.minor);
    let (severity, code, limit) = match minors.cmp(&MOST_SKEW) {
        Ordering::Greater => (Severity::Warning, "NodePoolSkew", ", which is more than Kubernetes allows"),
        _ => (Severity::Note, "NodePoolsBehind", ""),
    };
    let way_out = match cluster.provisions_nodes {
        true => "upgrade them on the cluster itself",
        false => "bring them up with a run of type Full",
    };
    let message = format!(
        "{} node pool(s) stay behind the control plane at {plane}, by up to {minors} minor(s){limit}: {}{more}; {way_out}",
        behind.len(),
        shown.join(", ")
    );
    Some(Finding::new(severity, code, message))
}

/// Pools that are to move to their newest image where none is told: images are read once the version is there.
fn unknown_images(goal: &Goal, version: Option<KubernetesVersion>, cluster: &Cluster) -> Option<Finding> {
    let read =
        goal.upgrade() != UpgradeType::ControlPlaneOnly && version.is_none_or(|version| cluster.version >= version);
    let lacks = |pool: &&Pool| pool.image.is_some() && pool.latest_image.is_none() && !pool.from_snapshot;
    let pools: Vec<&str> = cluster.pools.iter().filter(lacks).map(|pool| pool.name.as_str()).take(5).collect();
    (read && cluster.running && !pools.is_empty()).then(|| {
        let message = format!(
            "region {} tells no newest node image for node pool(s) {}; their images stay as they are",
            cluster.location,
            pools.join(", ")
        );
        Finding::new(Severity::Warning, "NodeImageNotAvailable", message)
    })
}
