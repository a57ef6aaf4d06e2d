//! Azure Kubernetes Service, driven through its ARM API (`behaviour.md` D; `aks-wire.md`).
//!
//! Any endpoint that speaks the API will do. What decides whether a step may be sent is in `start.rs`; what an error
//! means is in `errors.rs`, and what helps against it in `hints.rs`.

mod call;
mod errors;
mod hints;
mod poll;
mod start;
mod windows;
mod wire;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use flotta_clock::Clock;
use flotta_model::{
    Catalogue, Cluster, ClusterId, ClusterKind, Hold, MaintenanceWindow, NodeImage, Pool, Step, WindowKind,
};
use http::Uri;
use jiff::{SignedDuration, Timestamp};

use self::call::{Caller, Effort};
use crate::{
    ClusterDriver, Intent, Look, Operation, Progress, Started, Trouble,
    pace::{Bucket, Budgets, Pace},
    token::Tokens,
    transport::{Transport, is_loopback},
};

/// How the driver is set up.
#[derive(Clone, Debug)]
pub struct AksConfig {
    /// Scheme, host and port of Resource Manager, such as `https://management.azure.com`.
    pub endpoint: String,
    /// The api-version of Microsoft.ContainerService.
    pub api_version: String,
    /// The clusters this driver is for.
    pub reach: Reach,
    /// The shortest pause between two looks at an operation, in domain time.
    pub poll_every: Duration,
    /// The pause while an operation has ended and its resources have not yet come to rest, in domain time.
    pub settle_every: Duration,
    /// The pause before a read is tried again, in domain time; doubled each time.
    pub backoff: Duration,
    /// How long one request may take, on the wall clock.
    pub call_timeout: Duration,
    /// The provider's budgets.
    pub budgets: Budgets,
}

impl AksConfig {
    /// The settings for an endpoint of public Azure.
    pub fn new(endpoint: impl Into<String>, reach: Reach) -> Self {
        Self {
            endpoint: endpoint.into(),
            api_version: "2025-10-01".into(),
            reach,
            poll_every: Duration::from_secs(15),
            settle_every: Duration::from_secs(5),
            backoff: Duration::from_secs(1),
            call_timeout: Duration::from_secs(90),
            budgets: Budgets::azure(),
        }
    }
}

/// Which clusters a driver is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every cluster.
    Everything,
    /// The clusters of these subscriptions, in lower case.
    Subscriptions(BTreeSet<String>),
    /// These clusters, by [`ClusterId::key`].
    Clusters(BTreeSet<String>),
}

/// The settings make no driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The endpoint is not a URL of an origin.
    #[error("endpoint '{0}' is not scheme, host and port: use something like https://management.azure.com")]
    Endpoint(String),
    /// Tokens would be readable on the way.
    #[error("endpoint '{0}' is plain http: access tokens are sent over https, or to loopback, only")]
    Plain(String),
    /// The api-version is not one.
    #[error("api-version '{0}' is not a date: use something like 2025-10-01")]
    ApiVersion(String),
}

/// Drives AKS clusters.
pub struct AksDriver {
    config: AksConfig,
    caller: Caller,
    catalogues: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Remembered>>>>,
    images: Mutex<HashMap<String, (Timestamp, wire::Images)>>,
    bodies: Mutex<HashMap<String, Body>>,
    settled: Mutex<HashMap<String, (Timestamp, wire::Seen)>>,
    windows: Mutex<HashMap<String, (Timestamp, windows::Windows)>>,
}

/// A cluster as it was last seen behind its target, and its etag then: what is written next is made from it.
struct Body {
    etag: String,
    body: serde_json::Value,
}

/// Bodies that are kept at most.
const MOST_BODIES: usize = 1024;

/// What a region offered, and when it said so. The lock around it makes callers wait for one read.
type Remembered = Option<(Timestamp, Arc<Catalogue>)>;

/// How long a region's versions are remembered, in domain time.
const REMEMBER: SignedDuration = SignedDuration::from_mins(5);

/// How long the images that a region has for a pool are remembered, in domain time.
const REMEMBER_IMAGES: SignedDuration = SignedDuration::from_secs(60);

/// How long a look at a cluster whose operation has just ended serves for the next one, in domain time.
const JUST_NOW: SignedDuration = SignedDuration::from_secs(2);

/// Regions that are remembered at most, over all subscriptions.
const MOST_REGIONS: usize = 4096;

impl fmt::Debug for AksDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AksDriver").field("config", &self.config).finish_non_exhaustive()
    }
}

impl AksDriver {
    /// A driver that sends over `transport`, with tokens from `tokens`, and paces itself by `clock`.
    pub fn new(config: AksConfig, transport: Transport, tokens: Tokens, clock: Clock) -> Result<Self, ConfigError> {
        let bad = || ConfigError::Endpoint(config.endpoint.chars().take(200).collect());
        let endpoint: Uri = config.endpoint.parse().map_err(|_| bad())?;
        let (Some(scheme), Some(host)) = (endpoint.scheme_str(), endpoint.host()) else { return Err(bad()) };
        let user = endpoint.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !["http", "https"].contains(&scheme) || endpoint.path() != "/" || endpoint.query().is_some() || user {
            return Err(bad());
        }
        if scheme == "http" && !is_loopback(host) && !tokens.absent() {
            return Err(ConfigError::Plain(config.endpoint));
        }
        let dated = config.api_version.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !dated || config.api_version.is_empty() {
            return Err(ConfigError::ApiVersion(config.api_version));
        }
        let caller = Caller {
            endpoint,
            api_version: config.api_version.clone(),
            transport,
            tokens,
            pace: Pace::new(config.budgets, clock),
            clock,
            backoff: config.backoff,
            timeout: config.call_timeout,
        };
        Ok(Self {
            config,
            caller,
            catalogues: Mutex::default(),
            images: Mutex::default(),
            bodies: Mutex::default(),
            settled: Mutex::default(),
            windows: Mutex::default(),
        })
    }

    /// Keeps a body for the write that will follow, if the cluster can be written with a guard.
    fn remember_body(&self, id: &ClusterId, etag: Option<&str>, body: serde_json::Value) {
        let Some(etag) = etag else { return };
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        if bodies.len() >= MOST_BODIES {
            bodies.clear();
        }
        bodies.insert(id.key().to_owned(), Body { etag: etag.to_owned(), body });
    }

    /// The body that a guard stands for, once.
    fn recall_body(&self, id: &ClusterId, guard: Option<&str>) -> Option<serde_json::Value> {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        let Body { etag, body } = bodies.remove(id.key())?;
        (guard == Some(etag.as_str())).then_some(body)
    }

    /// Keeps a look at a cluster that has come to rest: its owner will want to see it next.
    fn settled(&self, id: &ClusterId, seen: wire::Seen) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.len() >= MOST_BODIES {
            settled.clear();
        }
        settled.insert(id.key().to_owned(), (self.caller.clock.now(), seen));
    }

    /// That look, once, if it is from just now.
    fn just_settled(&self, id: &ClusterId) -> Option<wire::Seen> {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, seen) = settled.remove(id.key())?;
        (self.caller.clock.now().duration_since(at) < JUST_NOW).then_some(seen)
    }

    /// The cluster as it is, without anything around it.
    async fn cluster(&self, id: &ClusterId, effort: Effort) -> Result<wire::Seen, Trouble> {
        wire::cluster(self.cluster_body(id, effort).await?)
    }

    async fn cluster_body(&self, id: &ClusterId, effort: Effort) -> Result<serde_json::Value, Trouble> {
        self.caller.read(&self.caller.path(id, ""), &reads(id), effort).await
    }

    async fn around(&self, id: &ClusterId, below: &str) -> Result<serde_json::Value, Trouble> {
        self.caller.read(&self.caller.path(id, below), &other(id), Effort::Patient).await
    }

    /// The images that the cluster's region has for a pool. Pools that have no such profile have none. The answer is the
    /// same for every pool of the same image there, and remembered for a while.
    async fn images(&self, id: &ClusterId, region: &str, pool: &Pool) -> Result<wire::Images, Trouble> {
        let key = pool.image.as_ref().map(|image| format!("{}/{region}/{image}", subscription(id)));
        let now = self.caller.clock.now();
        if let Some(known) = key.as_ref().and_then(|key| self.recall_images(key, now)) {
            return Ok(known);
        }
        let path = format!("/agentPools/{}/upgradeProfiles/default", wire::encode_path(&pool.name));
        let images = match self.around(id, &path).await {
            Ok(body) => wire::images(&body, pool),
            Err(Trouble::Wait(Hold::Unreachable(_))) => wire::Images::default(),
            Err(trouble) => return Err(trouble),
        };
        let same_family =
            |latest: &NodeImage| pool.image.as_ref().is_some_and(|image| image.family() == latest.family());
        if let Some(key) = key.filter(|_| images.latest.as_ref().is_some_and(same_family)) {
            let mut remembered = self.images.lock().unwrap_or_else(PoisonError::into_inner);
            if remembered.len() >= MOST_REGIONS {
                remembered.clear();
            }
            remembered.insert(key, (now, images.clone()));
        }
        Ok(images)
    }

    fn recall_images(&self, key: &str, now: Timestamp) -> Option<wire::Images> {
        let remembered = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, images) = remembered.get(key)?;
        (now.duration_since(*at) < REMEMBER_IMAGES).then(|| images.clone())
    }

    /// Machines of a pool that lag behind it.
    async fn lagging(&self, id: &ClusterId, pool: &Pool) -> Result<u32, Trouble> {
        const MOST_PAGES: usize = 50;
        let mut url = self.caller.path(id, &format!("/agentPools/{}/machines", wire::encode_path(&pool.name)));
        let mut lagging = 0;
        for _ in 0..MOST_PAGES {
            let page = match self.caller.read(&url, &other(id), Effort::Patient).await {
                Err(Trouble::Wait(Hold::Unreachable(_))) => return Ok(0),
                page => page?,
            };
            lagging += wire::lagging(&page, pool);
            let empty = page["value"].as_array().is_none_or(Vec::is_empty);
            match page["nextLink"].as_str().and_then(|link| self.caller.own(link)) {
                Some(next) if !empty => url = next,
                _ => return Ok(lagging),
            }
        }
        Ok(lagging)
    }

    /// What is remembered of a region, or about to be.
    fn remembered(&self, key: String) -> Arc<tokio::sync::Mutex<Remembered>> {
        let mut catalogues = self.catalogues.lock().unwrap_or_else(PoisonError::into_inner);
        if catalogues.len() >= MOST_REGIONS && !catalogues.contains_key(&key) {
            catalogues.clear();
        }
        catalogues.entry(key).or_default().clone()
    }
}

#[async_trait]
impl ClusterDriver for AksDriver {
    fn reaches(&self, cluster: &ClusterId) -> bool {
        let within = match &self.config.reach {
            Reach::Everything => true,
            Reach::Subscriptions(subscriptions) => subscriptions.contains(&subscription(cluster)),
            Reach::Clusters(clusters) => clusters.contains(cluster.key()),
        };
        within && cluster.kind() == ClusterKind::Managed
    }

    async fn observe(&self, cluster: &ClusterId, look: Look) -> Result<Cluster, Trouble> {
        let wire::Seen { cluster: mut seen, body } = match self.just_settled(cluster) {
            Some(seen) => seen,
            None => self.cluster(cluster, Effort::Patient).await?,
        };
        let behind = look.target.is_some_and(|target| seen.version < target);
        if behind {
            self.remember_body(cluster, seen.etag.as_deref(), body);
            let profile = self.around(cluster, "/upgradeProfiles/default").await?;
            // Between the two reads somebody else may have started an upgrade: such a profile forbids what was allowed.
            if wire::profile_version(&profile).is_some_and(|version| version != seen.version) {
                return Err(call::retry("an upgrade began while the cluster was looked at; look again", None));
            }
            seen.upgrades = wire::upgrades(&profile);
        }
        if look.images && (look.pins || !behind) {
            let images = seen.pools.iter().map(|pool| self.images(cluster, &seen.location, pool));
            let images = futures::future::try_join_all(images).await?;
            for (pool, images) in seen.pools.iter_mut().zip(images) {
                pool.latest_image = images.latest;
                pool.offered_images = images.offered;
                pool.live_patch = images.patched;
            }
        }
        if look.machines {
            let lagging =
                futures::future::try_join_all(seen.pools.iter().map(|pool| self.lagging(cluster, pool))).await?;
            for (pool, count) in seen.pools.iter_mut().zip(lagging) {
                pool.lagging_nodes = count;
            }
        }
        Ok(seen)
    }

    async fn catalogue(&self, cluster: &ClusterId, location: &str) -> Result<Arc<Catalogue>, Trouble> {
        let region = wire::region(location);
        let remembered = self.remembered(format!("{}/{region}", subscription(cluster)));
        let mut remembered = remembered.lock().await;
        let now = self.caller.clock.now();
        if let Some((_, catalogue)) = remembered.as_ref().filter(|(at, _)| now.duration_since(*at) < REMEMBER) {
            return Ok(Arc::clone(catalogue));
        }
        let path = format!(
            "/subscriptions/{}/providers/Microsoft.ContainerService/locations/{region}/kubernetesVersions?api-version={}",
            wire::encode_path(cluster.subscription()),
            self.config.api_version,
        );
        let catalogue = Arc::new(wire::catalogue(&self.caller.read(&path, &other(cluster), Effort::Patient).await?));
        *remembered = Some((now, Arc::clone(&catalogue)));
        Ok(catalogue)
    }

    async fn window(&self, cluster: &ClusterId, kind: WindowKind) -> Result<Option<MaintenanceWindow>, Trouble> {
        self.window_of(cluster, kind).await
    }

    async fn permit(&self, cluster: &ClusterId, step: &Step) {
        // The read that comes before the write is paid here as well, so that nothing queues once a step is intended.
        let read = match step.pool() {
            Some(_) => other(cluster),
            None => reads(cluster),
        };
        self.caller.pace.pass(&read).await;
        self.caller.pace.pass(&write_buckets(cluster, step)).await;
    }

    async fn start(&self, intent: &Intent) -> Result<Started, Trouble> {
        self.start_step(intent).await
    }

    async fn poll(&self, intent: &Intent, operation: &Operation) -> Result<Progress, Trouble> {
        self.poll_step(intent, operation).await
    }
}

fn subscription(cluster: &ClusterId) -> String {
    cluster.subscription().to_ascii_lowercase()
}

fn arm_read(cluster: &ClusterId) -> Bucket {
    Bucket::ArmRead(subscription(cluster))
}

/// Reads of a cluster.
fn reads(cluster: &ClusterId) -> [Bucket; 2] {
    [Bucket::GetCluster(cluster.key().into()), arm_read(cluster)]
}

/// Reads around a cluster.
fn other(cluster: &ClusterId) -> [Bucket; 2] {
    [Bucket::Other(subscription(cluster)), arm_read(cluster)]
}

/// Reads of a cluster's operations.
fn operations(cluster: &ClusterId) -> Bucket {
    Bucket::Operation(subscription(cluster))
}

/// What a step's write is counted in.
fn write_buckets(cluster: &ClusterId, step: &Step) -> [Bucket; 2] {
    let own = match step {
        Step::Cluster { .. } | Step::ControlPlane { .. } => Bucket::PutCluster(cluster.key().into()),
        Step::PoolVersion { pool, .. } | Step::PoolPinned { pool, .. } => {
            Bucket::PutPool(format!("{}/{pool}", cluster.key()))
        }
        Step::PoolImage { .. } => Bucket::Other(subscription(cluster)),
    };
    [own, Bucket::ArmWrite(subscription(cluster))]
}
