//! Starting a step at most once (`behaviour.md` D6; `aks-wire.md` §3).
//!
//! A start knows first what it writes to — from the observation that its guard stands for, or from a read of its own —
//! and [`judge`] decides from that. A write carries the etag of the intent, not of that read: whatever changed in between
//! is refused by the provider, and then it reads again. The one call that has no such guard, the node
//! image upgrade of a pool, is told apart by the pool's etag, which is new as soon as a request was accepted.

use std::collections::BTreeMap;

use flotta_model::{Cluster, Hold, NodeImage, Pool, Provisioning, Step};
use http::{HeaderMap, Method};
use serde_json::Value;

use super::{
    AksDriver,
    call::{Effort, Unsent, Write, retry},
    errors::{Answer, Meaning},
    other,
    wire::{self, Pools},
    write_buckets,
};
use crate::{Intent, Operation, Started, Trouble};

/// The id of an operation that nobody can name any more.
const NAMELESS: &str = "unknown";

/// What a read showed of the thing that a step is about.
struct View {
    /// Its etag.
    etag: Option<String>,
    /// What it, or anything that keeps it from moving, is doing.
    doing: Provisioning,
    /// The busy one is the very thing, not a neighbour.
    itself: bool,
    /// It shows exactly what the step wants.
    at_target: bool,
    /// It shows that, or something newer.
    at_or_beyond: bool,
    /// Why the step cannot be sent for what is there now, although it is what the etag says.
    unlike: Option<Trouble>,
    /// The body, for the write.
    body: Value,
}

/// What may be done after a read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing of ours was accepted: send.
    Send,
    /// What is wanted is going on, or has ended.
    Adopt,
    /// Something else is going on.
    Busy(String),
    /// It is not what the step was decided on.
    Changed,
}

impl AksDriver {
    pub(super) async fn start_step(&self, intent: &Intent) -> Result<Started, Trouble> {
        let effort = if intent.recovering { Effort::Patient } else { Effort::Permitted };
        let view = match self.view(intent, effort).await {
            // Nothing was sent now; what became of the earlier call is still to be found out.
            Err(trouble) if intent.recovering => return Err(still_unknown(trouble)),
            seen => seen?,
        };
        match judge(intent, &view, intent.recovering) {
            Verdict::Send => view.unlike.map_or(Ok(()), Err)?,
            verdict => return self.settle(intent, verdict, None).await,
        }
        match self.send_step(intent, view.body).await {
            Ok(operation) => Ok(Started { operation, adopted: false }),
            Err(Unsent::Trouble(trouble)) => Err(trouble),
            Err(Unsent::Refused(answer)) => self.refused(intent, *answer).await,
        }
    }

    /// Looks at what the step is about.
    async fn view(&self, intent: &Intent, effort: Effort) -> Result<View, Trouble> {
        match &intent.step {
            Step::Cluster { version, pools, images } => {
                let seen = self.cluster_to_write(intent, effort).await?;
                let unlike = same_pools(&seen.cluster, pools).err();
                let all = |test: &dyn Fn(&Pool) -> bool| seen.cluster.pools.iter().all(test);
                let image = |pool: &Pool| images.get(&pool.name);
                let at_target = seen.cluster.version == *version
                    && all(&|pool| pool.version == *version && has_image(pool, image(pool)));
                let at_or_beyond = seen.cluster.version >= *version
                    && all(&|pool| pool.version >= *version && has_image_or_newer(pool, image(pool)));
                Ok(View { unlike, ..cluster_view(seen, at_target, at_or_beyond) })
            }
            Step::ControlPlane { version } => {
                let seen = self.cluster_to_write(intent, effort).await?;
                let (at_target, at_or_beyond) = (seen.cluster.version == *version, seen.cluster.version >= *version);
                Ok(cluster_view(seen, at_target, at_or_beyond))
            }
            Step::PoolVersion { pool, version, image } => {
                let (pool, body) = self.pool(intent, pool, effort).await?;
                let at_target = pool.version == *version && has_image(&pool, image.as_ref());
                let at_or_beyond = pool.version >= *version && has_image_or_newer(&pool, image.as_ref());
                Ok(pool_view(&pool, body, at_target, at_or_beyond))
            }
            Step::PoolImage { pool, image } => {
                let (pool, body) = self.pool(intent, pool, effort).await?;
                let upgrading = pool.provisioning.busy() == Some("UpgradingNodeImageVersion");
                let reached = pool.image.as_ref().is_some_and(|has| has >= image);
                Ok(pool_view(&pool, body, upgrading, reached))
            }
            Step::PoolPinned { pool, image } => {
                let (pool, body) = self.pool(intent, pool, effort).await?;
                let at_target = has_image(&pool, Some(image)) && !pool.from_snapshot;
                let at_or_beyond = has_image_or_newer(&pool, Some(image)) && !pool.from_snapshot;
                Ok(pool_view(&pool, body, at_target, at_or_beyond))
            }
        }
    }

    /// The cluster that a write is made from: as it was observed, if the guard still stands for that, else as it is.
    async fn cluster_to_write(&self, intent: &Intent, effort: Effort) -> Result<wire::Seen, Trouble> {
        let observed = match intent.recovering {
            true => None,
            false => self.recall_body(&intent.cluster, intent.guard.as_deref()),
        };
        match observed {
            Some(body) => wire::cluster(body),
            None => self.cluster(&intent.cluster, effort).await,
        }
    }

    async fn pool(&self, intent: &Intent, name: &str, effort: Effort) -> Result<(Pool, Value), Trouble> {
        let path = self.caller.path(&intent.cluster, &format!("/agentPools/{}", wire::encode_path(name)));
        match self.caller.read(&path, &other(&intent.cluster), effort).await {
            Ok(body) => Ok((wire::agent_pool(&body)?, body)),
            Err(Trouble::Wait(Hold::Unreachable(detail))) => Err(retry(format!("the pool is gone: {detail}"), None)),
            Err(trouble) => Err(trouble),
        }
    }

    async fn send_step(&self, intent: &Intent, body: Value) -> Result<Operation, Unsent> {
        let (cluster, step) = (&intent.cluster, &intent.step);
        let pool_path = |pool: &str, below: &str| {
            self.caller.path(cluster, &format!("/agentPools/{}{below}", wire::encode_path(pool)))
        };
        let (method, path, body) = match step {
            Step::Cluster { version, images, .. } => {
                let body = wire::cluster_put(body, *version, Pools::Follow, images);
                (Method::PUT, self.caller.path(cluster, ""), Some(body))
            }
            Step::ControlPlane { version } => {
                let body = wire::cluster_put(body, *version, Pools::Stay, &BTreeMap::new());
                (Method::PUT, self.caller.path(cluster, ""), Some(body))
            }
            Step::PoolVersion { pool, version, image } => {
                (Method::PUT, pool_path(pool, ""), Some(wire::pool_put(body, *version, image.as_ref())))
            }
            Step::PoolPinned { pool, image } => {
                (Method::PUT, pool_path(pool, ""), Some(wire::pool_put_image(body, image)))
            }
            Step::PoolImage { pool, .. } => (Method::POST, pool_path(pool, "/upgradeNodeImageVersion"), None),
        };
        let guard = if body.is_some() { intent.guard.as_deref() } else { None };
        let (buckets, not_after) = (write_buckets(cluster, step), intent.not_after);
        let write = Write { method, path, buckets: &buckets, body, guard, not_after };
        let accepted = self.caller.write(write).await?;
        Ok(self.operation(&accepted.headers))
    }

    /// The operation that an accepted request began.
    fn operation(&self, headers: &HeaderMap) -> Operation {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let link = text("azure-asyncoperation");
        let url = link.and_then(|link| self.caller.own(link));
        if link.is_some() && url.is_none() {
            tracing::warn!(
                "the operation's address is at another host than the endpoint; its state is read from the resources instead"
            );
        }
        let named = link
            .and_then(|link| link.split('?').next()?.rsplit('/').next())
            .filter(|id| !id.is_empty() && id.len() <= 200);
        let id = named.or_else(|| text("x-ms-request-id")).unwrap_or(NAMELESS).to_owned();
        Operation { id, url }
    }

    /// The provider said no. Where that may be because an earlier copy of the same request was accepted, it is looked
    /// for.
    async fn refused(&self, intent: &Intent, answer: Answer) -> Result<Started, Trouble> {
        match answer.meaning() {
            Meaning::Busy(_) | Meaning::Stale => {
                let verdict = judge(intent, &self.view(intent, Effort::Patient).await?, true);
                self.settle(intent, verdict, Some(answer)).await
            }
            Meaning::VersionNotInRegion => Err(self.not_in_region(intent, &answer).await),
            Meaning::ImageNotInRegion => Err(self.image_not_in_region(intent, &answer).await),
            Meaning::Absent if intent.step.pool().is_some() => Err(retry(answer.text(), None)),
            _ => Err(answer.trouble_in(intent.step.pool())),
        }
    }

    /// Ends a start that sends nothing (more).
    async fn settle(&self, intent: &Intent, verdict: Verdict, answer: Option<Answer>) -> Result<Started, Trouble> {
        match (verdict, answer) {
            (Verdict::Adopt, _) => Ok(Started { operation: self.latest_operation(intent).await, adopted: true }),
            (_, Some(answer)) => Err(answer.trouble()),
            (Verdict::Busy(word), None) => Err(Trouble::Wait(Hold::OtherOperation(word))),
            (Verdict::Changed | Verdict::Send, None) => {
                Err(retry("changed by somebody else since the step was decided; look again", None))
            }
        }
    }

    /// What is going on on the cluster, or went on last, as far as the provider names it. Nothing is lost where it does
    /// not: the state of the resources tells.
    async fn latest_operation(&self, intent: &Intent) -> Operation {
        match self.latest(intent).await {
            Ok(body) if !wire::text(&body, "name").is_empty() => {
                Operation { id: wire::text(&body, "name").chars().take(200).collect(), url: None }
            }
            _ => Operation { id: NAMELESS.into(), url: None },
        }
    }

    /// The provider's record of the newest operation on a cluster.
    pub(super) async fn latest(&self, intent: &Intent) -> Result<Value, Trouble> {
        let path = self.caller.path(&intent.cluster, "/operations/latest");
        self.caller.read(&path, &other(&intent.cluster), Effort::Once).await
    }

    /// A version that the region does not take may still come, unless the region is past it already.
    async fn not_in_region(&self, intent: &Intent, answer: &Answer) -> Trouble {
        let version = match &intent.step {
            Step::Cluster { version, .. } | Step::ControlPlane { version } | Step::PoolVersion { version, .. } => {
                *version
            }
            Step::PoolImage { .. } | Step::PoolPinned { .. } => return answer.trouble(),
        };
        let region = match self.cluster(&intent.cluster, Effort::Patient).await {
            Ok(seen) => seen.cluster.location,
            Err(trouble) => return trouble,
        };
        use crate::ClusterDriver as _;
        let newest = match self.catalogue(&intent.cluster, &region).await {
            Ok(catalogue) => catalogue.versions.iter().map(|offered| offered.version).max(),
            Err(trouble) => return trouble,
        };
        if newest.is_some_and(|newest| newest >= version) {
            return answer.trouble_in(intent.step.pool());
        }
        Trouble::Wait(Hold::VersionNotInRegion { version: version.to_string(), region })
    }

    /// The region had an image when the cluster was looked at, and has not now. The next look tells what to think of it.
    async fn image_not_in_region(&self, intent: &Intent, answer: &Answer) -> Trouble {
        let image = match &intent.step {
            Step::PoolPinned { image, .. } | Step::PoolVersion { image: Some(image), .. } => image,
            Step::Cluster { images, .. } => match images.values().find(|image| answer.message.contains(image.as_str()))
            {
                Some(image) => image,
                None => return answer.trouble(),
            },
            _ => return answer.trouble_in(intent.step.pool()),
        };
        match self.cluster(&intent.cluster, Effort::Patient).await {
            Ok(seen) => {
                Trouble::Wait(Hold::ImageNotInRegion { image: image.to_string(), region: seen.cluster.location })
            }
            Err(trouble) => trouble,
        }
    }
}

/// A recovery that could not look: only what is true whatever became of the earlier call is passed on.
fn still_unknown(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Retry { detail, .. } | Trouble::Unknown(detail) => Trouble::Unknown(detail),
        // Where there is no such cluster, nothing goes on that could be adopted.
        gone @ (Trouble::Wait(Hold::Unreachable(_)) | Trouble::Permanent(_)) => gone,
        Trouble::Wait(hold) => Trouble::Unknown(hold.to_string()),
    }
}

/// Decides from one look. `recovering`: an earlier copy of this very request may have been accepted.
fn judge(intent: &Intent, view: &View, recovering: bool) -> Verdict {
    let unguarded = intent.guard.is_none();
    let same = !unguarded && view.etag == intent.guard;
    if let Some(word) = view.doing.busy() {
        // Writes change the etag as they are accepted; the node image POST is told by its own word instead.
        let moving = match intent.step {
            Step::PoolImage { .. } => view.at_target,
            _ => view.at_target && !same && matches!(word, "Upgrading" | "Updating"),
        };
        return if moving && view.itself { Verdict::Adopt } else { Verdict::Busy(word.to_owned()) };
    }
    match (same, recovering) {
        (true, _) => Verdict::Send,
        (false, false) => {
            if unguarded {
                Verdict::Send
            } else {
                Verdict::Changed
            }
        }
        (false, true) if view.at_or_beyond => Verdict::Adopt,
        (false, true) => {
            if unguarded {
                Verdict::Send
            } else {
                Verdict::Changed
            }
        }
    }
}

/// Whether a pool shows exactly the image that it was to be pinned to, if any.
fn has_image(pool: &Pool, pinned: Option<&NodeImage>) -> bool {
    pinned.is_none_or(|pinned| pool.image.as_ref() == Some(pinned))
}

/// Whether it shows that, or a newer one.
pub(super) fn has_image_or_newer(pool: &Pool, pinned: Option<&NodeImage>) -> bool {
    pinned.is_none_or(|pinned| pool.image.as_ref() >= Some(pinned))
}

/// A cluster is written with exactly the pools that were read; a pool more or less is another decision.
fn same_pools(cluster: &Cluster, pools: &[String]) -> Result<(), Trouble> {
    let mut seen: Vec<&str> = cluster.pools.iter().map(|pool| pool.name.as_str()).collect();
    let mut wanted: Vec<&str> = pools.iter().map(String::as_str).collect();
    seen.sort_unstable();
    wanted.sort_unstable();
    if seen == wanted {
        return Ok(());
    }
    Err(retry(format!("the cluster's pools are now {seen:?}, no longer {wanted:?}; look again"), None))
}

fn cluster_view(seen: wire::Seen, at_target: bool, at_or_beyond: bool) -> View {
    let cluster = &seen.cluster;
    let itself = cluster.provisioning.busy().is_some();
    let doing = match cluster.busy() {
        Some(word) => Provisioning::Busy(word.to_owned()),
        None => cluster.provisioning.clone(),
    };
    View { etag: cluster.etag.clone(), doing, itself, at_target, at_or_beyond, unlike: None, body: seen.body }
}

fn pool_view(pool: &Pool, body: Value, at_target: bool, at_or_beyond: bool) -> View {
    View {
        etag: pool.etag.clone(),
        doing: pool.provisioning.clone(),
        itself: true,
        at_target,
        at_or_beyond,
        unlike: None,
        body,
    }
}
