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
    errors, subscription, wire,
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
            "Failed" if errors::preempted(code) => self.by_state(intent, Record::None).await,
            "Failed" if code.is_empty() => Ok(Progress::Failed(errors::fault("Failed", message))),
            "Failed" => Ok(Progress::Failed(errors::fault(code, message))),
            "Canceled" => Ok(Progress::Failed(errors::fault("Canceled", message))),
            status => {
                if !code.is_empty() {
                    tracing::debug!(cluster = %intent.cluster, code, message, "the provider notes an error and goes on");
                }
                let detail = status.chars().take(LONGEST_DETAIL).collect();
                Ok(Progress::Running { detail, after: after.unwrap_or_else(|| self.interval(intent)) })
            }
        }
    }

    /// How long to leave an operation alone.
    pub(super) fn interval(&self, intent: &Intent) -> Duration {
        let (cluster, base) = (&intent.cluster, self.config.poll_every);
        self.caller.pace.interval(&subscription(cluster), cluster.key(), base)
    }

    /// Judges by what the resources show: after a good end until they have come to rest, or all the way where no record
    /// of the operation is to be had.
    async fn by_state(&self, intent: &Intent, record: Record) -> Result<Progress, Trouble> {
        let seen = self.cluster(&intent.cluster, Effort::Once).await?;
        if let Some(word) = seen.cluster.busy() {
            let after = match record {
                Record::Succeeded => self.config.settle_every,
                Record::None => self.interval(intent),
            };
            return Ok(Progress::Running { detail: word.chars().take(LONGEST_DETAIL).collect(), after });
        }
        if let Some(fault) = failure(&intent.step, &seen) {
            return Ok(Progress::Failed(fault));
        }
        if record == Record::None && !shows(&intent.step, &seen.cluster) {
            let text = "the operation has ended and the cluster is not at its target; it was overtaken or aborted, run again to finish it";
            return Ok(Progress::Failed(errors::fault("TargetNotReached", text)));
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
    /// Nothing.
    None,
}

/// What failed, of the resources that a step is about.
fn failure(step: &Step, seen: &wire::Seen) -> Option<Fault> {
    let bad = |state: &Provisioning| matches!(state, Provisioning::Failed | Provisioning::Canceled);
    let whole = &seen.cluster;
    if step.pool().is_none() && bad(&whole.provisioning) {
        return Some(wire::provisioning_error(&seen.body["properties"], &whole.provisioning));
    }
    let concerned = |pool: &&Pool| match step {
        Step::Cluster { .. } => true,
        Step::ControlPlane { .. } => false,
        Step::PoolVersion { pool: name, .. } | Step::PoolImage { pool: name, .. } => pool.name == *name,
    };
    if let Some(name) = step.pool()
        && !whole.pools.iter().any(|pool| pool.name == name)
    {
        return Some(errors::fault("AgentPoolNotFound", &format!("pool '{name}' was deleted while it was upgraded")));
    }
    let pool = whole.pools.iter().filter(concerned).find(|pool| bad(&pool.provisioning))?;
    let fault = wire::provisioning_error(wire::pool_properties(&seen.body, &pool.name), &pool.provisioning);
    Some(Fault::new(fault.code, format!("pool '{}': {}", pool.name, fault.message)))
}

/// Whether the model shows what a step wanted. An image is not asked for: its family may have changed.
fn shows(step: &Step, cluster: &Cluster) -> bool {
    match step {
        Step::Cluster { version, pools } => {
            let wanted = |pool: &&Pool| pools.contains(&pool.name);
            cluster.version >= *version && cluster.pools.iter().filter(wanted).all(|pool| pool.version >= *version)
        }
        Step::ControlPlane { version } => cluster.version >= *version,
        Step::PoolVersion { pool: name, version } => {
            cluster.pools.iter().any(|pool| pool.name == *name && pool.version >= *version)
        }
        Step::PoolImage { .. } => true,
    }
}
