//! The simulated cloud itself: its clusters, and what it answers to each call.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use flotta_clock::Clock;
use flotta_model::{ClusterId, KubernetesVersion, Labels};
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::{
    accept::Context,
    call::{Call, CallKind},
    faults::Faults,
    fleet::{FleetFile, Region},
    journal::{Journal, Place, Write},
    record::{Accepted, MOST_ACCEPTED, Requests},
    refusal::{self, Refusal},
    releases::Releases,
    signed::Signer,
    state::{ClusterState, Kind, OPERATIONS_KEPT, Operation, PoolState},
    throttle::{self, Buckets},
    wire::{self, Writer},
};

/// Where a simulator keeps what should outlive it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The data folder; without one, memory.
    pub data: Option<PathBuf>,
}

/// A simulator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// The fleet file has no version or image for a cluster at this time.
    #[error(
        "cluster '{0}' cannot be made: at the start its region has no such version, or no image of its pools' families"
    )]
    Cluster(String),
    /// The data folder cannot be used.
    #[error("{0}")]
    Data(String),
    /// The database in the data folder does not work.
    #[error("the database in the data folder cannot be used: {0}; does another simulator have it open?")]
    Database(#[from] sqlx::Error),
}

/// What a caller needs to register a cluster as a fleet member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSummary {
    /// Its ARM id.
    pub id: ClusterId,
    /// Its region.
    pub location: String,
    /// Its version as the fleet file has it, resolved.
    pub version: KubernetesVersion,
    /// The member's name.
    pub member: String,
    /// The member's update group.
    pub group: Option<String>,
    /// The member's labels.
    pub labels: Labels,
}

/// A simulated cloud.
#[derive(Debug)]
pub struct Simulator {
    pub(crate) fleet: FleetFile,
    pub(crate) clock: Clock,
    birth: Timestamp,
    clusters: RwLock<BTreeMap<String, Arc<Cell>>>,
    operations: RwLock<HashMap<Uuid, Arc<Cell>>>,
    subscriptions: Mutex<HashMap<String, Buckets>>,
    members: Vec<ClusterSummary>,
    pub(crate) faults: Faults,
    pub(crate) requests: Requests,
    accepted: RwLock<Vec<Accepted>>,
    journal: Option<Journal>,
    signer: Signer,
    writer: Writer,
    pub(crate) calls: AtomicU64,
}

/// One cluster, and the buckets that count its calls.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The cluster's id in lower case.
    key: String,
    /// `None` while a cluster of this name is only being asked for.
    state: Mutex<Option<ClusterState>>,
    buckets: Mutex<Buckets>,
}

/// A request, as far as the cloud cares.
pub(crate) struct Asked<'a> {
    pub(crate) call: &'a Call,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) query: &'a [(String, String)],
    pub(crate) body: &'a Value,
    /// Scheme and authority of URLs in answers.
    pub(crate) base: &'a str,
    pub(crate) now: Timestamp,
}

/// An answer that says yes.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Option<Value>,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) operation: Option<Uuid>,
    /// Resolves when what was changed is durable.
    pub(crate) durable: Option<oneshot::Receiver<()>>,
}

impl Reply {
    fn ok(body: Value) -> Self {
        Self { status: 200, body: Some(body), ..Self::default() }
    }

    fn empty(status: u16) -> Self {
        Self { status, ..Self::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most subscriptions whose calls are counted.
const MOST_SUBSCRIPTIONS: usize = 10_000;

impl Simulator {
    /// Makes the cloud of a fleet file. With a data folder, it goes on where it was.
    pub async fn new(fleet: FleetFile, clock: Clock, options: Options) -> Result<Arc<Self>, SimulatorError> {
        let now = clock.now();
        let (journal, birth, mut stored, accepted) = match &options.data {
            None => (None, now, HashMap::new(), Vec::new()),
            Some(folder) => {
                let (journal, stored) = Journal::open(folder, fleet.seed, now).await?;
                (Some(journal), stored.birth, stored.clusters, stored.accepted)
            }
        };
        let mut simulator = Self {
            signer: Signer::new(fleet.seed),
            writer: Writer { seed: fleet.seed },
            faults: Faults::new(fleet.faults.clone()),
            requests: Requests::new(options.data),
            clock,
            birth,
            clusters: RwLock::default(),
            operations: RwLock::default(),
            subscriptions: Mutex::default(),
            members: Vec::new(),
            accepted: RwLock::new(accepted),
            journal,
            calls: AtomicU64::new(0),
            fleet,
        };
        let mut cells = BTreeMap::new();
        simulator.populate(&mut stored, &mut cells)?;
        cells.extend(stored.into_iter().map(|(key, state)| (key.clone(), Cell::new(key, Some(state)))));
        let mut operations = HashMap::new();
        for cell in cells.values() {
            let state = lock(&cell.state);
            let ids = state.iter().flat_map(|state| &state.operations).map(|operation| operation.id);
            operations.extend(ids.map(|id| (id, cell.clone())));
        }
        simulator.operations = RwLock::new(operations);
        simulator.clusters = RwLock::new(cells);
        Ok(Arc::new(simulator))
    }

    /// The clusters of the fleet file, each as it was stored or as it is born.
    fn populate(
        &mut self,
        stored: &mut HashMap<String, ClusterState>,
        cells: &mut BTreeMap<String, Arc<Cell>>,
    ) -> Result<(), SimulatorError> {
        let regions = self.fleet.regions.iter();
        let releases: BTreeMap<&str, Releases> =
            regions.map(|(name, region)| (name.as_str(), Releases::at(region, self.birth, self.birth))).collect();
        for spec in &self.fleet.clusters {
            let failed = || SimulatorError::Cluster(spec.name.clone());
            let id = self.fleet.id_of(spec);
            let key = id.to_ascii_lowercase();
            let releases = releases.get(spec.region.as_str()).ok_or_else(failed)?;
            let mut born =
                ClusterState::born(spec, id.clone(), releases, self.birth, self.fleet.seed).ok_or_else(failed)?;
            for (_, maintenance) in &mut born.maintenance {
                *maintenance = wire::echo_maintenance(maintenance, self.birth);
            }
            self.members.push(ClusterSummary {
                id: id.parse().map_err(|_| failed())?,
                location: spec.region.clone(),
                version: born.version,
                member: spec.member.name.clone().unwrap_or_else(|| spec.name.clone()),
                group: spec.member.group.clone(),
                labels: spec.member.labels.clone(),
            });
            let state = stored.remove(&key).unwrap_or(born);
            cells.insert(key.clone(), Cell::new(key, Some(state)));
        }
        Ok(())
    }

    /// The clusters of the fleet file, in its order, with how they join a fleet.
    pub fn clusters(&self) -> Vec<ClusterSummary> {
        self.members.clone()
    }

    /// Accepted starts with a number above `after`, at most `limit`, oldest first; and how many there are.
    pub fn accepted(&self, after: u64, limit: usize) -> (usize, Vec<Accepted>) {
        let accepted = self.accepted.read().unwrap_or_else(PoisonError::into_inner);
        // Numbers may have gaps: a crash can lose one that nobody was told of.
        let skip = accepted.partition_point(|entry| entry.number <= after);
        (accepted.len(), accepted.iter().skip(skip).take(limit).cloned().collect())
    }

    fn cell(&self, key: &str) -> Option<Arc<Cell>> {
        self.clusters.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// The cell of a call's cluster, or of its operation's.
    pub(crate) fn cell_of(&self, call: &Call) -> Option<Arc<Cell>> {
        match call.kind {
            CallKind::GetOperation | CallKind::GetOperationResult => {
                let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
                operations.get(&call.name.parse().ok()?).cloned()
            }
            _ if call.cluster.is_empty() => None,
            _ => self.cell(&call.cluster_id().to_ascii_lowercase()),
        }
    }

    fn region(&self, name: &str) -> Option<&Region> {
        self.fleet.regions.get(&name.to_ascii_lowercase().replace(' ', ""))
    }

    fn releases(&self, location: &str, now: Timestamp) -> Releases {
        match self.region(location) {
            Some(region) => Releases::at(region, now, self.birth),
            None => Releases::none(),
        }
    }

    /// Counts a call against its bucket.
    pub(crate) fn throttle(&self, call: &Call, cell: Option<&Cell>, now: Timestamp) -> Result<(), Refusal> {
        if !self.fleet.behaviour.throttling {
            return Ok(());
        }
        let per_cluster = |handler: &str, name: &str, limit| {
            let Some(cell) = cell else { return Ok(()) };
            let what = if name == "pool" {
                format!("agentpool {}/agentPools/{}", call.cluster_id(), call.name)
            } else {
                call.cluster_id()
            };
            let bucket = format!("{name} {}", call.name);
            lock(&cell.buckets).take(&bucket, limit, now).map_err(|wait| refusal::throttled(handler, &what, wait))
        };
        let per_subscription = |handler: &str, name: &str, limit| {
            let mut subscriptions = lock(&self.subscriptions);
            if subscriptions.len() >= MOST_SUBSCRIPTIONS {
                subscriptions.clear();
            }
            let buckets = subscriptions.entry(call.subscription.to_ascii_lowercase()).or_default();
            let what = format!("subscription {}", call.subscription);
            buckets.take(name, limit, now).map_err(|wait| refusal::throttled(handler, &what, wait))
        };
        match call.kind {
            CallKind::PutCluster => per_cluster("PutManagedClusterHandler.PUT", "put", throttle::PUT),
            CallKind::PutPool => per_cluster("PutAgentPoolHandler.PUT", "pool", throttle::PUT),
            CallKind::GetCluster => per_cluster("GetManagedClusterHandler.GET", "get", throttle::GET_CLUSTER),
            CallKind::ListClusters if call.group.is_empty() => {
                per_subscription("ListManagedClustersBySubscriptionHandler.GET", "list", throttle::LIST)
            }
            CallKind::ListClusters => {
                let name = format!("list {}", call.group.to_ascii_lowercase());
                per_subscription("ListManagedClustersByResourceGroupHandler.GET", &name, throttle::LIST_IN_GROUP)
            }
            CallKind::GetOperation | CallKind::GetOperationResult => {
                per_subscription("GetOperationStatusHandler.GET", "operation", throttle::OPERATION_STATUS)
            }
            _ => per_subscription("AKS", "other", throttle::OTHER),
        }
    }

    /// Answers a call that was let through.
    pub(crate) async fn answer(&self, asked: &Asked<'_>) -> Result<Reply, Refusal> {
        use CallKind as K;
        match asked.call.kind {
            K::ListClusters => Ok(self.list(asked)),
            K::KubernetesVersions => self.kubernetes_versions(asked),
            K::GetOperation | K::GetOperationResult => self.operation(asked),
            K::PutCluster
            | K::DeleteCluster
            | K::StartCluster
            | K::StopCluster
            | K::AbortCluster
            | K::PutPool
            | K::DeletePool
            | K::AbortPool
            | K::UpgradeNodeImage
            | K::PutMaintenance
            | K::DeleteMaintenance => self.write(asked).await,
            _ => self.read(asked),
        }
    }

    /// A page of clusters: those of a prefix of ids, from the one after the skip token on.
    fn list(&self, asked: &Asked<'_>) -> Reply {
        let call = asked.call;
        let prefix = match call.group.is_empty() {
            true => format!("/subscriptions/{}/resourcegroups/", call.subscription),
            false => call.cluster_id(),
        };
        let prefix = prefix.to_ascii_lowercase();
        let token =
            asked.query.iter().find(|(key, _)| key.eq_ignore_ascii_case("$skiptoken")).map(|(_, token)| token.as_str());
        let from = token.filter(|token| token.starts_with(&prefix)).unwrap_or(&prefix);
        let size = self.fleet.behaviour.page_size;
        let cells: Vec<Arc<Cell>> = {
            let clusters = self.clusters.read().unwrap_or_else(PoisonError::into_inner);
            let of_prefix = clusters.range(from.to_owned()..).take_while(|(key, _)| key.starts_with(&prefix));
            of_prefix.map(|(_, cell)| cell.clone()).take(size + 1).collect()
        };
        let mut page = Vec::new();
        for cell in cells.iter().take(size) {
            let mut state = lock(&cell.state);
            if let Some(state) = existing(&mut state, asked.now) {
                page.push(self.writer.cluster(state));
            }
        }
        let mut body = json!({"value": page});
        if let Some(next) = cells.get(size) {
            let path = prefix_path(call);
            let version = asked.query.iter().find(|(key, _)| key == "api-version").map_or("", |(_, version)| version);
            let token = next.key.replace('/', "%2F");
            body["nextLink"] = format!("{}{path}?api-version={version}&%24skiptoken={token}", asked.base).into();
        }
        Reply::ok(body)
    }

    fn kubernetes_versions(&self, asked: &Asked<'_>) -> Result<Reply, Refusal> {
        let location = &asked.call.name;
        let region = self.region(location).ok_or_else(|| {
            let message = format!(
                "The location '{location}' is not available for resource type 'Microsoft.ContainerService/locations'."
            );
            Refusal::gateway(400, "LocationNotAvailableForResourceType", message)
        })?;
        let releases = Releases::at(region, asked.now, self.birth);
        let call = self.calls.load(Ordering::Relaxed);
        Ok(Reply::ok(self.writer.kubernetes_versions(region, &releases, call)))
    }

    fn operation(&self, asked: &Asked<'_>) -> Result<Reply, Refusal> {
        let call = asked.call;
        let missing = || refusal::no_entity(&format!("operation {}", call.name));
        let cell = self.cell_of(call).ok_or_else(missing)?;
        let mut state = lock(&cell.state);
        let state = state.as_mut().ok_or_else(missing)?;
        state.settle(asked.now);
        let operation =
            state.operations.iter().find(|operation| operation.id.to_string() == call.name.to_ascii_lowercase());
        let operation = operation.ok_or_else(missing)?;
        let collection = if call.kind == CallKind::GetOperation { "operations" } else { "operationresults" };
        let path = operation_path(&call.subscription, &state.location, collection, operation.id);
        if !self.signer.holds(&path, asked.query) {
            let message =
                "The signature of the operation's URL is missing or wrong; follow the URL exactly as it was given.";
            return Err(Refusal::gateway(403, "AuthorizationFailed", message));
        }
        let mut reply = match call.kind {
            CallKind::GetOperation => {
                Reply::ok(self.writer.operation(state, operation, asked.now, self.fleet.behaviour.status_texts))
            }
            _ => {
                let mut reply = Reply::empty(if asked.now < operation.end { 202 } else { 204 });
                reply
                    .headers
                    .push(("location", format!("{}{path}?{}", asked.base, self.signer.query(&path, asked.now))));
                reply
            }
        };
        if asked.now < operation.end {
            self.suggest_pause(&mut reply);
        }
        Ok(reply)
    }

    fn suggest_pause(&self, reply: &mut Reply) {
        if let Some(seconds) = self.fleet.behaviour.retry_after {
            reply.headers.push(("retry-after", seconds.to_string()));
        }
    }

    /// Answers a question about one cluster.
    fn read(&self, asked: &Asked<'_>) -> Result<Reply, Refusal> {
        let call = asked.call;
        let missing = || refusal::no_cluster(&call.cluster, &call.group);
        let cell = self.cell_of(call).ok_or_else(missing)?;
        let mut state = lock(&cell.state);
        let state = existing(&mut state, asked.now).ok_or_else(missing)?;
        let pool = || state.pool(&call.name).ok_or_else(|| refusal::no_entity(&format!("agent pool {}", call.name)));
        let releases = || self.releases(&state.location, asked.now);
        let writer = self.writer;
        Ok(Reply::ok(match call.kind {
            CallKind::ListPools => {
                json!({"value": state.pools.iter().map(|pool| writer.pool(state, pool)).collect::<Value>()})
            }
            CallKind::GetPool => writer.pool(state, pool()?),
            CallKind::ListMachines => self.machines(asked, state, pool()?),
            CallKind::ClusterUpgradeProfile => writer.cluster_upgrades(state, &releases()),
            CallKind::PoolUpgradeProfile => writer.pool_upgrades(state, pool()?, &releases(), &self.fleet.behaviour),
            CallKind::AvailableVersions => writer.available_versions(state, &releases()),
            CallKind::ListMaintenance => {
                let all =
                    state.maintenance.iter().map(|(name, properties)| writer.maintenance(state, name, properties));
                json!({"value": all.collect::<Value>()})
            }
            CallKind::GetMaintenance => {
                let found = state.maintenance.iter().find(|(name, _)| name.eq_ignore_ascii_case(&call.name));
                let (name, properties) =
                    found.ok_or_else(|| refusal::no_entity(&format!("maintenance configuration {}", call.name)))?;
                writer.maintenance(state, name, properties)
            }
            CallKind::GetClusterOperation => self.cluster_operation(asked, state)?,
            _ => writer.cluster(state),
        }))
    }

    /// The machines of a pool, with the link to an empty page that AKS sends.
    fn machines(&self, asked: &Asked<'_>, state: &ClusterState, pool: &PoolState) -> Value {
        if asked.query.iter().any(|(key, _)| key.eq_ignore_ascii_case("$skiptoken")) {
            return json!({"value": []});
        }
        let version = asked.query.iter().find(|(key, _)| key == "api-version").map_or("", |(_, version)| version);
        let next = format!(
            "{}{}/agentPools/{}/machines?api-version={version}&%24skipToken=1",
            asked.base, state.id, pool.name
        );
        json!({"value": self.writer.machines(state, pool, asked.now), "nextLink": next})
    }

    fn cluster_operation(&self, asked: &Asked<'_>, state: &ClusterState) -> Result<Value, Refusal> {
        let name = asked.call.name.to_ascii_lowercase();
        let found = match name.as_str() {
            "latest" => state.operations.back(),
            id => state.operations.iter().find(|operation| operation.id.to_string() == id),
        };
        let operation = found.ok_or_else(|| refusal::no_entity(&format!("operation {}", asked.call.name)))?;
        Ok(self.writer.cluster_operation(state, operation, asked.now, self.fleet.behaviour.status_texts))
    }

    /// Carries out a write: a place in the journal first, then the change under the cluster's lock.
    async fn write(&self, asked: &Asked<'_>) -> Result<Reply, Refusal> {
        let lost = || Refusal::service(500, "InternalOperationError", "Internal server error");
        let place = match &self.journal {
            Some(journal) => Some(journal.place().await.ok_or_else(lost)?),
            None => None,
        };
        let call = asked.call;
        let key = call.cluster_id().to_ascii_lowercase();
        let cell = match self.cell(&key) {
            Some(cell) => cell,
            None if call.kind == CallKind::PutCluster => self.new_cell(key)?,
            None if call.kind == CallKind::DeleteCluster => return Ok(Reply::empty(204)),
            None => return Err(refusal::no_cluster(&call.cluster, &call.group)),
        };
        let mut state = lock(&cell.state);
        let here = existing(&mut state, asked.now).is_some();
        match (call.kind, here) {
            (CallKind::PutCluster, _) | (_, true) => {}
            (CallKind::DeleteCluster, false) => return Ok(Reply::empty(204)),
            (_, false) => return Err(refusal::no_cluster(&call.cluster, &call.group)),
        }
        if let (CallKind::PutMaintenance | CallKind::DeleteMaintenance, Some(state)) = (call.kind, state.as_mut()) {
            let reply = self.write_maintenance(asked, state)?;
            return self.store(place, &cell, state, None, reply);
        }
        if self.accepted.read().unwrap_or_else(PoisonError::into_inner).len() >= MOST_ACCEPTED {
            let message = "The simulator's record of accepted starts is full; begin with a new data folder.";
            return Err(Refusal::service(507, "InsufficientStorage", message));
        }
        self.start(asked, &cell, &mut state, place)
    }

    /// Starts an operation, if the cluster takes it.
    fn start(
        &self,
        asked: &Asked<'_>,
        cell: &Arc<Cell>,
        slot: &mut Option<ClusterState>,
        place: Option<Place>,
    ) -> Result<Reply, Refusal> {
        let call = asked.call;
        let here = slot.as_ref().is_some_and(|state| !state.deleted);
        let location = match (&slot, here) {
            (Some(state), true) => state.location.clone(),
            _ => asked.body["location"].as_str().unwrap_or_default().to_owned(),
        };
        let releases = self.releases(&location, asked.now);
        let ctx = Context {
            seed: self.fleet.seed,
            key: &cell.key,
            now: asked.now,
            releases: &releases,
            behaviour: &self.fleet.behaviour,
        };
        self.check_etag(asked, slot.as_ref().filter(|_| here))?;
        let before: Vec<_> = slot.iter().flat_map(|state| &state.pools).map(|pool| pool.version).collect();
        let shown = |state: &ClusterState| match state.pool(&call.name) {
            Some(pool) => self.writer.pool(state, pool),
            None => self.writer.cluster(state),
        };
        let (status, operation, earlier) = match slot.as_mut().filter(|_| here) {
            None => {
                if self.region(&location).is_none() {
                    return Err(refusal::bad_parameter(
                        "location",
                        format!("'{location}' is not a region of this simulator"),
                    ));
                }
                let (state, operation) = ClusterState::create(&ctx, &call.cluster_id(), asked.body, slot.as_ref())?;
                *slot = Some(state);
                (201, operation, None)
            }
            Some(state) => {
                let earlier = matches!(call.kind, CallKind::AbortCluster | CallKind::AbortPool).then(|| shown(state));
                let new_pool = call.kind == CallKind::PutPool && state.pool(&call.name).is_none();
                let operation = accept(state, &ctx, asked)?;
                let status = match call.kind {
                    CallKind::PutPool if new_pool => 201,
                    CallKind::PutCluster | CallKind::PutPool => 200,
                    _ => 202,
                };
                (status, operation, earlier)
            }
        };
        let Some(state) = slot.as_mut() else { return Err(refusal::no_cluster(&call.cluster, &call.group)) };
        let body = match call.kind {
            CallKind::PutCluster | CallKind::PutPool | CallKind::UpgradeNodeImage => Some(shown(state)),
            _ => earlier,
        };
        let mut reply = Reply { status, body, operation: Some(operation.id), ..Reply::default() };
        self.add_urls(asked, state, &operation, &mut reply);
        self.index(cell, state, &operation);
        let accepted = Accepted::new(state, &operation, &before);
        self.store(place, cell, state, Some(accepted), reply)
    }

    fn check_etag(&self, asked: &Asked<'_>, state: Option<&ClusterState>) -> Result<(), Refusal> {
        let pool = |state: &ClusterState| state.pool(&asked.call.name).map(|pool| self.writer.pool_etag(state, pool));
        let etag = match asked.call.kind {
            CallKind::PutCluster | CallKind::DeleteCluster => state.map(|state| self.writer.cluster_etag(state)),
            CallKind::PutPool | CallKind::DeletePool => state.and_then(pool),
            _ => return Ok(()),
        };
        let has = |name: &str| {
            let value = asked.headers.get(name)?.to_str().ok()?;
            let mut tags = value.split(',').map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"'));
            Some(tags.any(|tag| etag.as_deref().is_some_and(|etag| tag == "*" || tag == etag)))
        };
        if has("if-match") == Some(false) || has("if-none-match") == Some(true) {
            return Err(refusal::etag_mismatch());
        }
        Ok(())
    }

    fn write_maintenance(&self, asked: &Asked<'_>, state: &mut ClusterState) -> Result<Reply, Refusal> {
        let name = &asked.call.name;
        let at = state.maintenance.iter().position(|(known, _)| known.eq_ignore_ascii_case(name));
        if asked.call.kind == CallKind::DeleteMaintenance {
            if let Some(at) = at {
                state.maintenance.remove(at);
            }
            return Ok(Reply::empty(200));
        }
        let properties = &asked.body["properties"];
        if !properties.is_object() {
            return Err(refusal::bad_parameter("properties", "it is missing or not an object"));
        }
        let echo = wire::echo_maintenance(properties, asked.now);
        let body = self.writer.maintenance(state, name, &echo);
        match at {
            Some(at) => state.maintenance[at].1 = echo,
            None if state.maintenance.len() >= 100 => {
                return Err(refusal::bad_parameter("name", "a cluster has at most 100 maintenance configurations"));
            }
            None => state.maintenance.push((name.clone(), echo)),
        }
        Ok(Reply::ok(body))
    }

    fn add_urls(&self, asked: &Asked<'_>, state: &ClusterState, operation: &Operation, reply: &mut Reply) {
        let url = |collection| {
            let path = operation_path(&asked.call.subscription, &state.location, collection, operation.id);
            format!("{}{path}?{}", asked.base, self.signer.query(&path, asked.now))
        };
        reply.headers.push(("azure-asyncoperation", url("operations")));
        if reply.status == 202 {
            reply.headers.push(("location", url("operationresults")));
        }
        self.suggest_pause(reply);
    }

    /// Makes an operation findable by its id, and forgets the one that its cluster has forgotten.
    fn index(&self, cell: &Arc<Cell>, state: &ClusterState, operation: &Operation) {
        let mut operations = self.operations.write().unwrap_or_else(PoisonError::into_inner);
        operations.insert(operation.id, cell.clone());
        if let Some(forgotten) = state.operation_count.checked_sub(OPERATIONS_KEPT as u64).filter(|number| *number > 0)
        {
            operations.remove(&crate::draw::Draw::new(self.fleet.seed, &cell.key, forgotten, "operation").uuid());
        }
    }

    /// Records a change, in order, while the cluster is still locked.
    fn store(
        &self,
        place: Option<Place>,
        cell: &Cell,
        state: &ClusterState,
        accepted: Option<Accepted>,
        mut reply: Reply,
    ) -> Result<Reply, Refusal> {
        let accepted = accepted.map(|mut entry| {
            let mut all = self.accepted.write().unwrap_or_else(PoisonError::into_inner);
            entry.number = all.last().map_or(0, |last| last.number) + 1;
            all.push(entry.clone());
            entry
        });
        if let Some(place) = place {
            let lost = || Refusal::service(500, "InternalOperationError", "Internal server error");
            let (write, durable) = Write::new(&cell.key, state, accepted.as_ref()).ok_or_else(lost)?;
            place.send(write);
            reply.durable = Some(durable);
        }
        Ok(reply)
    }

    fn new_cell(&self, key: String) -> Result<Arc<Cell>, Refusal> {
        let mut clusters = self.clusters.write().unwrap_or_else(PoisonError::into_inner);
        if clusters.len() >= 2 * crate::fleet::MOST_CLUSTERS {
            return Err(Refusal::service(
                507,
                "InsufficientStorage",
                "The simulator holds as many clusters as it can.",
            ));
        }
        Ok(clusters.entry(key.clone()).or_insert_with(|| Cell::new(key, None)).clone())
    }
}

impl Cell {
    fn new(key: String, state: Option<ClusterState>) -> Arc<Self> {
        Arc::new(Self { key, state: Mutex::new(state), buckets: Mutex::default() })
    }

    /// The cluster's own name.
    pub(crate) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }
}

/// The cluster, settled, if there is one.
fn existing(slot: &mut Option<ClusterState>, now: Timestamp) -> Option<&mut ClusterState> {
    let state = slot.as_mut()?;
    state.settle(now);
    (!state.deleted).then_some(state)
}

fn accept(state: &mut ClusterState, ctx: &Context<'_>, asked: &Asked<'_>) -> Result<Operation, Refusal> {
    let call = asked.call;
    match call.kind {
        CallKind::PutPool => state.put_pool(ctx, &call.name, asked.body),
        CallKind::UpgradeNodeImage => state.upgrade_node_image(ctx, &call.name),
        CallKind::StartCluster => state.switch(ctx, Kind::Start),
        CallKind::StopCluster => state.switch(ctx, Kind::Stop),
        CallKind::AbortCluster => state.abort(ctx, None),
        CallKind::AbortPool => state.abort(ctx, Some(&call.name)),
        CallKind::DeleteCluster => state.delete(ctx, None),
        CallKind::DeletePool => state.delete(ctx, Some(&call.name)),
        _ => state.put_cluster(ctx, asked.body),
    }
}

fn operation_path(subscription: &str, location: &str, collection: &str, id: Uuid) -> String {
    format!("/subscriptions/{subscription}/providers/Microsoft.ContainerService/locations/{location}/{collection}/{id}")
}

fn prefix_path(call: &Call) -> String {
    let group = if call.group.is_empty() { String::new() } else { format!("/resourceGroups/{}", call.group) };
    format!("/subscriptions/{}{group}/providers/Microsoft.ContainerService/managedClusters", call.subscription)
}
