//! Following an operation to its end (`aks-wire.md` §2, §3).
//!
//! Only the status of an operation decides; an `error` beside another status is the provider talking to itself. An
//! operation that ended well is believed once the cluster and every pool have come to rest as well.

use std::time::Duration;

use flotta_model::{Cluster, Fault, Pool, Provisioning, Step};
use serde_json::Value;

use super::{
    AksDriver, arm_read,
    call::{Effort, Polled},
    errors, hints,
    start::has_image_or_newer,
    subscription, wire,
};
use crate::{Intent, Operation, Progress, Trouble};

/// The longest status text that is passed on, in characters.
const LONGEST_DETAIL: usize = 200;

impl AksDriver {
    pub(super) async fn poll_step(&self, intent: &Intent, operation: &Operation) -> Result<Progress, Trouble> {
        let progress = self.follow(intent, operation).await;
        if matches!(progress, Ok(Progress::Succeeded | Progress::Failed(_))) {
            self.caller.pace.landed(&subscription(&intent.cluster), intent.cluster.key());
        }
        progress
    }

    async fn follow(&self, intent: &Intent, operation: &Operation) -> Result<Progress, Trouble> {
        let own = operation.url.as_deref().and_then(|url| self.caller.own(url));
        let buckets = [super::operations(&intent.cluster), arm_read(&intent.cluster)];
        if let Some(path) = own {
            match self.caller.poll(&path, &buckets).await? {
                Polled::Body { body, after } => return self.report(intent, &body, after).await,
                Polled::Gone => tracing::info!(cluster = %intent.cluster, "the operation's address has expired"),
            }
        }
        if let Ok(body) = self.latest(intent).await
            && wire::text(&body, "name").eq_ignore_ascii_case(&operation.id)
        {
            return self.report(intent, &body, None).await;
        }
        self.by_state(intent, Record::None).await
    }

    /// What the record of an operation says.
    async fn report(&self, intent: &Intent, body: &Value, after: Option<Duration>) -> Result<Progress, Trouble> {
        let (code, message) = (wire::text(&body["error"], "code"), wire::text(&body["error"], "message"));
        match wire::text(body, "status") {
            "Succeeded" => self.by_state(intent, Record::Succeeded).await,
            "Failed" if errors::preempted(code) => self.by_state(intent, Record::Overtaken).await,
            "Failed" => {
                let code = if code.is_empty() { "Failed" } else { code };
                let pool = self.failed_in(intent, message).await;
                Ok(Progress::Failed(hints::fault_in(pool.as_deref(), code, message)))
            }
            "Canceled" => Ok(Progress::Failed(hints::fault_in(intent.step.pool(), "Canceled", message))),
            status => {
                if !code.is_empty() {
                    tracing::debug!(cluster = %intent.cluster, code, message, "the provider notes an error and goes on");
                }
                let detail = status.chars().take(LONGEST_DETAIL).collect();
                Ok(Progress::Running { detail, after: after.unwrap_or_else(|| self.interval(intent)) })
            }
        }
    }

    /// The pool that a bad end is about. A record that names none may leave it to the cluster to tell; a cluster that
    /// cannot be read keeps nobody from hearing of the bad end itself.
    async fn failed_in(&self, intent: &Intent, message: &str) -> Option<String> {
        if let Some(pool) = intent.step.pool().or_else(|| hints::pool_of_node(message)) {
            return Some(pool.to_owned());
        }
        if matches!(intent.step, Step::ControlPlane { .. }) {
            return None;
        }
        let seen = self.cluster(&intent.cluster, Effort::Once).await.ok()?;
        seen.cluster.pools.into_iter().find(|pool| bad(&pool.provisioning)).map(|pool| pool.name)
    }

    /// How long to leave an operation alone.
    pub(super) fn interval(&self, intent: &Intent) -> Duration {
        let (cluster, base) = (&intent.cluster, self.config.poll_every);
        self.caller.pace.interval(&subscription(cluster), cluster.key(), base)
    }

    /// Judges by what the resources show: after an end until they have come to rest, or all the way where no record of
    /// the operation is to be had. What was overtaken counts as ended where nothing failed: the cluster is looked at
    /// next, and what is left to do is sent anew.
    async fn by_state(&self, intent: &Intent, record: Record) -> Result<Progress, Trouble> {
        let seen = self.cluster(&intent.cluster, Effort::Once).await?;
        if let Some(word) = seen.cluster.busy() {
            let after = match record {
                Record::Succeeded => self.config.settle_every,
                Record::None | Record::Overtaken => self.interval(intent),
            };
            return Ok(Progress::Running { detail: word.chars().take(LONGEST_DETAIL).collect(), after });
        }
        if let Some(fault) = failure(&intent.step, &seen) {
            return Ok(Progress::Failed(fault));
        }
        if record == Record::None && !shows(&intent.step, &seen.cluster) {
            let text = "the operation has ended and the cluster is not at its target; it was overtaken or aborted, run again to finish it";
            return Ok(Progress::Failed(hints::fault("TargetNotReached", text)));
        }
        self.settled(&intent.cluster, seen);
        Ok(Progress::Succeeded)
    }
}

/// What is known of an operation beside the state of its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// It ended well.
    Succeeded,
    /// Another operation took its place.
    Overtaken,
    /// Nothing.
    None,
}

fn bad(state: &Provisioning) -> bool {
    matches!(state, Provisioning::Failed | Provisioning::Canceled)
}

/// What failed, of the resources that a step is about.
fn failure(step: &Step, seen: &wire::Seen) -> Option<Fault> {
    let whole = &seen.cluster;
    if step.pool().is_none() && bad(&whole.provisioning) {
        let pool = whole.pools.iter().find(|pool| bad(&pool.provisioning)).map(|pool| pool.name.as_str());
        return Some(wire::provisioning_error(pool, &seen.body["properties"], &whole.provisioning));
    }
    let concerned = |pool: &&Pool| match step {
        Step::Cluster { .. } => true,
        Step::ControlPlane { .. } => false,
        Step::PoolVersion { pool: name, .. }
        | Step::PoolImage { pool: name, .. }
        | Step::PoolPinned { pool: name, .. } => pool.name == *name,
    };
    if let Some(name) = step.pool()
        && !whole.pools.iter().any(|pool| pool.name == name)
    {
        return Some(hints::fault("AgentPoolNotFound", &format!("pool '{name}' was deleted while it was upgraded")));
    }
    let pool = whole.pools.iter().filter(concerned).find(|pool| bad(&pool.provisioning))?;
    let properties = wire::pool_properties(&seen.body, &pool.name);
    Some(wire::provisioning_error(Some(&pool.name), properties, &pool.provisioning))
}

/// Whether the model shows what a step wanted. Of images only those that were pinned are asked for: the newest may be of
/// another family.
fn shows(step: &Step, cluster: &Cluster) -> bool {
    match step {
        Step::Cluster { version, pools, images } => {
            let wanted = |pool: &&Pool| pools.contains(&pool.name);
            let there = |pool: &Pool| pool.version >= *version && has_image_or_newer(pool, images.get(&pool.name));
            cluster.version >= *version && cluster.pools.iter().filter(wanted).all(there)
        }
        Step::ControlPlane { version } => cluster.version >= *version,
        Step::PoolVersion { pool: name, version, image } => {
            let there = |pool: &Pool| pool.version >= *version && has_image_or_newer(pool, image.as_ref());
            cluster.pools.iter().any(|pool| pool.name == *name && there(pool))
        }
        Step::PoolPinned { pool: name, image } => {
            cluster.pools.iter().any(|pool| pool.name == *name && has_image_or_newer(pool, Some(image)))
        }
        Step::PoolImage { .. } => true,
    }
}
