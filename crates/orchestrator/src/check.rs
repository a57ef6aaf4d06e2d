//! The check before a run starts: every cluster of a plan is looked at, as the run would, and judged. Nothing is changed
//! and nothing is claimed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use flotta_drivers::{ClusterDriver, Trouble};
use flotta_engine::{
    Plan,
    check::{Looked, Severity, Verdict},
    images::{self, Disagreement, PoolImages},
    upgrade::Target,
};
use flotta_model::{ClusterId, Hold, KubernetesVersion, Member, Name, NodeImage};
use futures::{StreamExt, stream};
use uuid::Uuid;

use crate::{Error, Orchestrator, Shared, effects};

/// Clusters that are looked at at once, over all checks of this process.
pub(crate) const MOST_LOOKS: usize = 32;

/// Times a cluster is asked before it counts as out of reach.
const TRIES: u32 = 3;

/// The pause between them (domain time).
const PAUSE: Duration = Duration::from_secs(2);

/// How long one look may take, with what it waits for the provider's budget (wall time).
const LOOK_WITHIN: Duration = Duration::from_secs(300);

/// What is to be checked.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The version that its minor was pinned to, if it was.
    pub version: Option<KubernetesVersion>,
    /// The images that were chosen, if they were.
    pub images: Option<Vec<NodeImage>>,
    /// Indices of the members that a start would move, ascending.
    pub members: Vec<u32>,
    /// The members of the fleet as it is now, in the order in which they joined.
    pub fleet: Vec<Member>,
    /// The run, if there is one: what it has claimed itself holds nobody.
    pub run: Option<Uuid>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The version that would be gone to, where it is known.
    pub version: Option<KubernetesVersion>,
    /// The members of the run in its order, then those of the fleet that are not in it.
    pub members: Vec<Checked>,
    /// How many of them are not in it.
    pub uncovered: usize,
}

/// What was found of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Its name.
    pub name: Name,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its stage and group, if it is in the run.
    pub place: Option<(Name, Name)>,
    /// What would happen, and why.
    pub verdict: Verdict,
}

impl Report {
    /// Findings of a severity, over all members.
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.members.iter().flat_map(|member| &member.verdict.findings);
        findings.filter(|finding| finding.severity == severity).count()
    }
}

impl Subject {
    /// A plan that no run has yet.
    pub fn of_plan(plan: Plan, fleet: Vec<Member>) -> Self {
        let members = (0..plan.members.len() as u32).collect();
        Self { version: None, images: None, members, plan: Arc::new(plan), fleet, run: None }
    }
}

impl Orchestrator {
    /// Checks a plan against its clusters as they are. It takes as long as the provider's budgets ask for.
    pub async fn check(&self, subject: Subject) -> Result<Report, Error> {
        tokio::select! {
            report = check(&self.0, subject) => Ok(report),
            () = self.0.shutdown.cancelled() => Err(Error::ShuttingDown),
        }
    }
}

async fn check(shared: &Shared, subject: Subject) -> Report {
    let Subject { plan, version, images, members, fleet, run } = subject;
    let version = match version.or_else(|| plan.goal.version().and_then(|target| target.exact())) {
        Some(version) => Some(version),
        None => effects::newest_patch(shared, &plan).await,
    };
    let here = fleet.iter().map(|member| member.name.clone()).collect();
    let checkup = &Checkup { shared, plan: &plan, version, run, here };
    let looks = members.clone().into_iter().map(|member| checkup.look_at(member));
    let looks: Vec<Option<Looked>> = stream::iter(looks).buffered(MOST_LOOKS).collect().await;
    let images = match images {
        Some(images) => Ok(Some(images)),
        None => chosen(&plan, &looks),
    };
    let judged = members.into_iter().zip(looks).map(|(member, looked)| checkup.judge(member, looked, &images));
    let mut checked: Vec<Checked> = judged.collect();
    let in_run = checked.len();
    let planned: BTreeSet<&Name> = plan.members.iter().map(|member| &member.name).collect();
    let left_out = fleet.iter().filter(|member| !planned.contains(&member.name));
    checked.extend(left_out.map(|member| Checked {
        name: member.name.clone(),
        cluster: member.cluster.clone(),
        place: None,
        verdict: Verdict::not_covered(),
    }));
    Report { version, uncovered: checked.len() - in_run, members: checked }
}

/// The images that the run would move to; an error where its regions have none in common.
fn chosen(plan: &Plan, looks: &[Option<Looked>]) -> Images {
    if !plan.chooses_images() {
        return Ok(plan.selected_images().map(Into::into));
    }
    let mut pools = Vec::new();
    for looked in looks {
        if let Some(Looked::Seen(sighting)) = looked {
            PoolImages::add(&mut pools, &sighting.cluster);
        }
    }
    images::choose(&plan.goal, &pools).map(Some)
}

type Images = Result<Option<Vec<NodeImage>>, Vec<Disagreement>>;

/// One check that is going on.
struct Checkup<'a> {
    shared: &'a Shared,
    plan: &'a Plan,
    version: Option<KubernetesVersion>,
    run: Option<Uuid>,
    here: BTreeSet<Name>,
}

impl Checkup<'_> {
    /// Looks at the cluster of a member that is still one.
    async fn look_at(&self, member: u32) -> Option<Looked> {
        let member = &self.plan.members[member as usize];
        match self.here.contains(&member.name) {
            true => Some(self.look(&member.cluster).await),
            false => None,
        }
    }

    fn judge(&self, index: u32, looked: Option<Looked>, images: &Images) -> Checked {
        let member = &self.plan.members[index as usize];
        let group = &self.plan.groups[member.group as usize];
        let stage = &self.plan.stages[group.stage as usize];
        let verdict = |images| {
            let target = Target {
                goal: &self.plan.goal,
                version: self.version,
                offer: None,
                images,
                now: self.shared.clock.now(),
                automatic: self.plan.profile.is_some(),
            };
            looked.as_ref().map(|looked| Verdict::of(&target, &member.cluster, looked))
        };
        let verdict = match images {
            Ok(images) => verdict(images.as_deref()),
            Err(apart) => verdict(None).map(|verdict| verdict.images_apart(apart)),
        };
        let verdict = verdict.unwrap_or_else(Verdict::left_the_fleet);
        let place = Some((stage.name.clone(), group.name.clone()));
        Checked { name: member.name.clone(), cluster: member.cluster.clone(), place, verdict }
    }

    async fn look(&self, cluster: &ClusterId) -> Looked {
        let Some(driver) = self.shared.driver(cluster) else { return Looked::Held(Hold::NoDriver) };
        if let Some(other) = self.shared.claims.other_holder(cluster.key(), self.run.unwrap_or_default()) {
            return Looked::Held(Hold::Claimed { by: other.label.to_string() });
        }
        // Nobody closes it: there is always a turn in the end.
        let _turn = self.shared.looks.acquire().await;
        let looked = tokio::time::timeout(LOOK_WITHIN, self.sight(&**driver, cluster)).await;
        looked.unwrap_or_else(|_| Looked::Held(Hold::Unreachable(format!("no answer within {LOOK_WITHIN:?}"))))
    }

    async fn sight(&self, driver: &dyn ClusterDriver, cluster: &ClusterId) -> Looked {
        let mut tries = 1;
        loop {
            let lasting = match effects::sight(driver, cluster, &self.plan.goal, self.version, false).await {
                Ok(sighting) => return Looked::Seen(Box::new(sighting)),
                Err(Trouble::Wait(hold)) => return Looked::Held(hold),
                Err(Trouble::Permanent(fault)) => return Looked::Refused(fault),
                Err(Trouble::Retry { lasting, .. }) => lasting,
                Err(Trouble::Unknown(detail)) => Hold::Unreachable(detail),
            };
            if tries >= TRIES {
                return Looked::Held(lasting);
            }
            self.shared.clock.pause(PAUSE).await;
            tries += 1;
        }
    }
}
