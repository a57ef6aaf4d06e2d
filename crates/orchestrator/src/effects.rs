//! What goes on outside on behalf of a member: one task each, ended when the member's turn passes.
//!
//! A task knows only what it was given; it answers through the worker's mailbox, with its ticket. Only [`send`] changes
//! anything out there, and only what was committed before.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use flotta_drivers::{ClusterDriver, Intent, Look, Operation, Progress, Trouble};
use flotta_engine::{
    Input, Plan, Run, Work,
    images::{self, PoolImages},
    plan::PlanMember,
    run::{Sighting, Ticket, Windows},
    upgrade::{self, Needs, Target},
};
use flotta_model::{
    Cluster, ClusterId, Goal, Hold, ImageSelection, KubernetesVersion, MaintenanceWindow, NodeImage, Step, UpgradeType,
    VersionTarget,
};
use futures::{StreamExt, stream};
use jiff::SignedDuration;
use tokio::{sync::mpsc, task::AbortHandle};

use crate::{
    Shared,
    check::MOST_LOOKS,
    claims::{Holder, Offered},
    worker::Observation,
};

/// Something that goes on. Dropping it ends it.
pub struct Running {
    /// What.
    pub work: Work,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a task is given.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
    holder: Holder,
    plan: Arc<Plan>,
    version: Option<KubernetesVersion>,
    images: Option<Arc<[NodeImage]>>,
    observe: mpsc::Sender<Observation>,
}

/// Looks that fail for a passing reason before the member gives its slot back: unreachable, or throttled.
const LOOKS: u32 = 6;
/// The longest pause between tries (domain time).
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// Windows that are read at once.
const READS_AT_ONCE: usize = 64;
/// What was read so far is told after this long (domain time), so that a large stage begins before all of it is read.
const TELL_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Times a cluster is asked for its images before they are chosen without it.
const TRIES: u32 = 3;
/// The pause before clusters of which none could be seen are looked at again (domain time).
const UNSEEN: Duration = Duration::from_secs(60);
/// A sighting older than this is taken again before a step is decided on it (domain time).
const FRESH: SignedDuration = SignedDuration::from_secs(5);

impl Context {
    /// What tasks of a run are given.
    pub fn new(shared: &Arc<Shared>, holder: &Holder, run: &Run, observe: &mpsc::Sender<Observation>) -> Self {
        Self {
            shared: Arc::clone(shared),
            holder: holder.clone(),
            plan: Arc::clone(run.plan()),
            version: run.version(),
            images: run.selected_images().map(Arc::from),
            observe: observe.clone(),
        }
    }

    fn spawn(self, work: Work, task: impl Future<Output = ()> + Send + 'static) -> Running {
        Running { work, task: self.shared.tasks.spawn(task).abort_handle() }
    }

    fn cluster(&self, ticket: Ticket) -> &ClusterId {
        &self.plan.members[ticket.member as usize].cluster
    }

    async fn tell(&self, observation: impl Into<Observation>) {
        // A closed mailbox means that the run is gone or folded again: nobody is to be told.
        let _ = self.observe.send(observation.into()).await;
    }

    /// A member's window, as far as it can be read just now.
    async fn window(&self, member: u32) -> Option<MaintenanceWindow> {
        let cluster = &self.plan.members[member as usize].cluster;
        let window = self.shared.driver(cluster)?.window(cluster, self.plan.goal.window_kind()).await;
        window.unwrap_or_else(|trouble| {
            tracing::debug!(%cluster, %trouble, "a maintenance window cannot be read yet");
            None
        })
    }

    async fn pause(&self, length: Duration) {
        self.shared.clock.pause(length).await;
    }

    /// Looks at a member's cluster, once.
    async fn sight(&self, ticket: Ticket, driver: &dyn ClusterDriver, machines: bool) -> Result<Sighting, Trouble> {
        sight(driver, self.cluster(ticket), &self.plan.goal, self.version, machines).await
    }

    /// The first step that the engine will ask for, if it is to be one.
    fn first_step(&self, sighting: &Sighting) -> Option<Step> {
        let target = Target {
            goal: &self.plan.goal,
            version: self.version,
            offer: sighting.offer,
            images: self.images.as_deref(),
            now: self.shared.clock.now(),
            automatic: self.plan.profile.is_some(),
        };
        match target.needs(&sighting.cluster) {
            Needs::Steps(steps) => steps.into_iter().next(),
            Needs::Nothing(_) | Needs::Hold(_) | Needs::Never(_) | Needs::Unfit { .. } => None,
        }
    }

    /// Whether somebody else has the cluster.
    fn claimed_by(&self, cluster: &ClusterId) -> Option<String> {
        self.shared.claims.other_holder(cluster.key(), self.holder.run).map(|other| other.label.to_string())
    }
}

/// Looks at a cluster, once, for what a goal needs to know of it.
pub async fn sight(
    driver: &dyn ClusterDriver,
    cluster: &ClusterId,
    goal: &Goal,
    version: Option<KubernetesVersion>,
    machines: bool,
) -> Result<Sighting, Trouble> {
    let images = goal.upgrade() != UpgradeType::ControlPlaneOnly;
    let pins = matches!(goal.images(), Some(ImageSelection::Consistent | ImageSelection::Custom(_)));
    let look = driver.observe(cluster, Look { target: version, images, pins, machines });
    let (seen, window) = tokio::try_join!(look, driver.window(cluster, goal.window_kind()))?;
    let offer = match version {
        Some(version) if seen.version < version => {
            Some(driver.catalogue(cluster, &seen.location).await?.offer(version))
        }
        _ => None,
    };
    Ok(Sighting { cluster: seen, offer, claimed_by: None, window })
}

/// Grows with each failure in a row.
fn backoff(failures: u32, asked: Option<Duration>) -> Duration {
    let own = Duration::from_secs(2).saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    asked.map_or(own, |asked| asked.clamp(Duration::from_secs(1), Duration::from_secs(3600)))
}

/// Looks at a member's cluster, waits for the provider's budget if it needs a step, and takes the claim.
pub fn look(context: &Context, ticket: Ticket, pause: Option<Duration>, machines: bool) -> Running {
    let task = {
        let context = context.clone();
        async move {
            if let Some(pause) = pause {
                context.pause(pause).await;
            }
            let observation = look_until_known(&context, ticket, machines).await;
            context.tell(observation).await;
        }
    };
    context.clone().spawn(Work::Look(ticket), task)
}

async fn look_until_known(context: &Context, ticket: Ticket, machines: bool) -> Observation {
    let cluster = context.cluster(ticket);
    let held = |hold| Input::Held(ticket, hold).into();
    if let Some(why) = upgrade::unfit_kind(cluster) {
        return Input::Unfit(ticket, why).into();
    }
    let Some(driver) = context.shared.driver(cluster) else { return held(Hold::NoDriver) };
    let (mut failures, mut permitted) = (0, false);
    loop {
        if let Some(by) = context.claimed_by(cluster) {
            return held(Hold::Claimed { by });
        }
        let at = context.shared.clock.now();
        let (lasting, after) = match context.sight(ticket, &**driver, machines).await {
            Ok(mut sighting) => {
                let shut = sighting.window.as_ref().is_some_and(|window| !window.is_open(at));
                let step = context.first_step(&sighting).filter(|_| !shut);
                let Some(step) = step else { return seen(ticket, sighting).into() };
                if !permitted {
                    driver.permit(cluster, &step).await;
                    permitted = true;
                    if context.shared.clock.now().duration_since(at) > FRESH {
                        continue; // What is decided on should not be older than the permit.
                    }
                }
                return match Offered::take(&context.shared, cluster.key(), &context.holder) {
                    Ok(claim) => Observation { claim: Some(claim), ..seen(ticket, sighting).into() },
                    Err(other) => {
                        sighting.claimed_by = Some(other.label.to_string());
                        seen(ticket, sighting).into()
                    }
                };
            }
            Err(Trouble::Wait(hold)) => return held(hold),
            Err(Trouble::Permanent(fault)) => return Input::StepFailed(ticket, fault).into(),
            Err(Trouble::Retry { lasting, after, .. }) => (lasting, after),
            Err(Trouble::Unknown(detail)) => (Hold::Unreachable(detail), None),
        };
        if failures >= LOOKS {
            return held(lasting);
        }
        context.pause(backoff(failures, after)).await;
        failures += 1;
    }
}

fn seen(ticket: Ticket, sighting: Sighting) -> Input {
    Input::Seen(ticket, Box::new(sighting))
}

/// Reads the windows of members, in their order. What cannot be read is taken for none here: the look that a step is
/// decided on reads it again, and knows better.
pub fn read_windows(context: &Context, members: Vec<u32>) -> Running {
    let task = {
        let context = context.clone();
        async move {
            let read = |member| {
                let context = &context;
                async move { (member, context.window(member).await) }
            };
            let mut reads = stream::iter(members).map(read).buffered(READS_AT_ONCE);
            let (mut windows, mut told) = (Windows::default(), context.shared.clock.now());
            while let Some((member, window)) = reads.next().await {
                windows.add(member, window);
                let now = context.shared.clock.now();
                if now.duration_since(told) > TELL_AFTER {
                    told = now;
                    windows.more = true;
                    context.tell(Input::WindowsSeen(std::mem::take(&mut windows))).await;
                }
            }
            context.tell(Input::WindowsSeen(windows)).await;
        }
    };
    context.clone().spawn(Work::ReadWindows, task)
}

/// Sees whether what holds a member is still there, again and again; `at_once`, or after the usual pause.
pub fn probe(context: &Context, ticket: Ticket, hold: Hold, at_once: bool) -> Running {
    let task = {
        let context = context.clone();
        async move {
            let cluster = context.cluster(ticket);
            // What was given back before this began, such as before a restart, is looked at once.
            let mut first = true;
            let mut at_once = at_once;
            loop {
                let wait = matches!(hold, Hold::Claimed { .. }) && (first || context.claimed_by(cluster).is_some());
                first = false;
                let freed = async {
                    match wait {
                        true => context.shared.claims.freed(cluster.key()).await,
                        false => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = context.pause(if at_once { Duration::ZERO } else { looked_at_every(&hold) }) => {}
                    () = freed => {}
                }
                at_once = false;
                let input = probe_once(&context, ticket).await;
                if let Some(input) = input {
                    context.tell(input).await;
                }
            }
        }
    };
    context.clone().spawn(Work::Probe(ticket), task)
}

async fn probe_once(context: &Context, ticket: Ticket) -> Option<Input> {
    let cluster = context.cluster(ticket);
    if let Some(why) = upgrade::unfit_kind(cluster) {
        return Some(Input::Unfit(ticket, why));
    }
    let Some(driver) = context.shared.driver(cluster) else { return Some(Input::Held(ticket, Hold::NoDriver)) };
    if let Some(by) = context.claimed_by(cluster) {
        return Some(Input::Held(ticket, Hold::Claimed { by }));
    }
    match context.sight(ticket, &**driver, false).await {
        Ok(sighting) => Some(seen(ticket, sighting)),
        Err(Trouble::Wait(hold)) => Some(Input::Held(ticket, hold)),
        // A permanent refusal is for the member's own turn to meet.
        Err(Trouble::Permanent(_) | Trouble::Retry { .. } | Trouble::Unknown(_)) => None,
    }
}

/// How often a hold is looked at again (domain time). A claim that is given back wakes by itself.
fn looked_at_every(hold: &Hold) -> Duration {
    Duration::from_secs(u64::from(hold.looked_at_every()))
}

/// Sends a step that was committed to, until it is known what became of it.
pub fn send(context: &Context, ticket: Ticket, mut intent: Intent) -> Running {
    let task = {
        let context = context.clone();
        async move {
            let Some(driver) = context.shared.driver(&intent.cluster).map(Arc::clone) else {
                // The step was committed to while a driver was there: what became of it is not known without one.
                tracing::warn!(cluster = %intent.cluster, "no driver for a cluster with an open step");
                return;
            };
            let mut unknown = 0;
            let observation = loop {
                match driver.start(&intent).await {
                    Ok(started) => {
                        let input = Input::Accepted {
                            ticket,
                            operation: started.operation.id.clone(),
                            adopted: started.adopted,
                        };
                        break Observation { operation: Some(started.operation), ..input.into() };
                    }
                    Err(Trouble::Unknown(detail)) => {
                        tracing::info!(cluster = %intent.cluster, detail, "not known whether a step was accepted; looking");
                        intent.recovering = true;
                        context.pause(backoff(unknown, None)).await;
                        unknown += 1;
                    }
                    Err(Trouble::Retry { after, detail, .. }) => {
                        tracing::debug!(cluster = %intent.cluster, detail, "a step was not accepted");
                        let pause = Some(backoff(2, after));
                        break Observation { pause, ..Input::NotAccepted(ticket).into() };
                    }
                    Err(Trouble::Wait(hold)) => break Input::Held(ticket, hold).into(),
                    Err(Trouble::Permanent(fault)) => break Input::StepFailed(ticket, fault).into(),
                }
            };
            context.tell(observation).await;
        }
    };
    context.clone().spawn(Work::Send(ticket), task)
}

/// Follows an operation to its end.
pub fn follow(context: &Context, ticket: Ticket, intent: Intent, operation: Operation) -> Running {
    let task = {
        let context = context.clone();
        async move {
            let input = match poll_to_end(&context.shared, &intent, &operation).await {
                Ok(()) => Input::StepSucceeded(ticket),
                Err(fault) => Input::StepFailed(ticket, fault),
            };
            context.tell(input).await;
        }
    };
    context.clone().spawn(Work::Follow(ticket), task)
}

/// Polls until the operation has ended. While nobody can be asked it is taken to go on.
pub async fn poll_to_end(shared: &Shared, intent: &Intent, operation: &Operation) -> Result<(), flotta_model::Fault> {
    let mut failures = 0;
    loop {
        let Some(driver) = shared.driver(&intent.cluster) else {
            shared.clock.pause(LONGEST_PAUSE).await;
            continue;
        };
        let pause = match driver.poll(intent, operation).await {
            Ok(Progress::Succeeded) => return Ok(()),
            Ok(Progress::Failed(fault)) => return Err(fault),
            Ok(Progress::Running { after, .. }) => {
                failures = 0;
                after
            }
            Err(Trouble::Permanent(fault)) => return Err(fault),
            Err(Trouble::Retry { after, .. }) => {
                failures += 1;
                backoff(failures, after)
            }
            Err(Trouble::Wait(_) | Trouble::Unknown(_)) => {
                failures += 1;
                backoff(failures + 2, None)
            }
        };
        shared.clock.pause(pause).await;
    }
}

/// Finds out what the run's minor means: the newest patch that any region of the run offers.
pub fn resolve(context: &Context) -> Running {
    let task = {
        let context = context.clone();
        async move {
            loop {
                if let Some(version) = newest_patch(&context.shared, &context.plan).await {
                    return context.tell(Input::TargetResolved(version)).await;
                }
                context.pause(Duration::from_secs(300)).await;
            }
        }
    };
    context.clone().spawn(Work::ResolveTarget, task)
}

/// The newest patch of a plan's minor that any of its regions offers.
pub async fn newest_patch(shared: &Shared, plan: &Plan) -> Option<KubernetesVersion> {
    let Some(VersionTarget::Minor { major, minor }) = plan.goal.version() else { return None };
    let mut newest = None;
    for (location, cluster) in regions(shared, plan).await {
        let Some(driver) = shared.driver(&cluster) else { continue };
        match driver.catalogue(&cluster, &location).await {
            Ok(catalogue) => newest = newest.max(catalogue.newest_patch(major, minor)),
            Err(trouble) => tracing::info!(location, %trouble, "a region's versions cannot be read"),
        }
    }
    newest
}

/// Looks at the clusters of members for the images that their pools can have, and again while regions have none in common.
pub fn resolve_images(context: &Context, members: Vec<u32>) -> Running {
    let task = {
        let context = context.clone();
        async move {
            loop {
                let pools = images_of(&context, &members).await;
                let pause = match pools {
                    Some(pools) => {
                        context.tell(Input::ImagesResolved { pools }).await;
                        Duration::from_secs(u64::from(images::LOOKED_AT_EVERY))
                    }
                    None => UNSEEN,
                };
                context.pause(pause).await;
            }
        }
    };
    context.clone().spawn(Work::ResolveImages, task)
}

/// The images that the pools of members can have, as far as their clusters can be seen; `None` where none can.
async fn images_of(context: &Context, members: &[u32]) -> Option<Vec<PoolImages>> {
    let member = |member: &u32| &context.plan.members[*member as usize];
    let fit: Vec<&PlanMember> =
        members.iter().map(member).filter(|member| upgrade::unfit_kind(&member.cluster).is_none()).collect();
    let asked = fit.len();
    let look = |member: &PlanMember| pools_of(context.shared.clone(), member.cluster.clone());
    let looks: Vec<_> = fit.into_iter().map(look).collect();
    let seen: Vec<Cluster> =
        stream::iter(looks).buffer_unordered(MOST_LOOKS).filter_map(|seen| async { seen }).collect().await;
    if seen.len() < asked {
        let unseen = asked - seen.len();
        tracing::warn!(run = %context.holder.label, unseen, "clusters that cannot be seen have no say in which node images are chosen");
    }
    let mut pools = Vec::new();
    seen.iter().for_each(|cluster| PoolImages::add(&mut pools, cluster));
    (asked == 0 || !seen.is_empty()).then_some(pools)
}

/// A cluster with its images, if it can be seen.
async fn pools_of(shared: Arc<Shared>, cluster: ClusterId) -> Option<Cluster> {
    let driver = shared.driver(&cluster)?;
    for failures in 0..TRIES {
        let seen = {
            // Nobody closes it: there is always a turn in the end.
            let _turn = shared.looks.acquire().await;
            driver.observe(&cluster, Look { images: true, ..Look::default() }).await
        };
        match seen {
            Ok(seen) => return Some(seen),
            Err(Trouble::Retry { after, .. }) if failures + 1 < TRIES => {
                shared.clock.pause(backoff(failures, after)).await;
            }
            Err(trouble) => {
                tracing::info!(%cluster, %trouble, "a cluster's node images cannot be seen");
                break;
            }
        }
    }
    None
}

/// The regions of the run, each with a cluster in it.
async fn regions(shared: &Shared, plan: &Plan) -> BTreeMap<String, ClusterId> {
    let mut regions = BTreeMap::new();
    for member in &plan.members {
        if let Some(location) = &member.location {
            regions.entry(location.to_string()).or_insert_with(|| member.cluster.clone());
        }
    }
    if !regions.is_empty() {
        return regions;
    }
    for member in plan.members.iter().take(10) {
        let Some(driver) = shared.driver(&member.cluster) else { continue };
        if let Ok(Cluster { location, .. }) = driver.observe(&member.cluster, Look::default()).await {
            regions.entry(location).or_insert_with(|| member.cluster.clone());
        }
    }
    regions
}
