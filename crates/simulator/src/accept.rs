//! What the cloud makes of a write: refused with AKS's own words, or accepted as an operation whose end, outcome and
//! moves of nodes are decided here and now (`behaviour.md` D1–D4, `aks-wire.md` §3).
//!
//! The model jumps at acceptance: the resource shows its target at once. Nodes follow during the operation.

use flotta_model::{KubernetesVersion, NodeImage, VersionTarget, image::VALID_DAYS};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde_json::{Map, Value};

use crate::{
    draw::Draw,
    fleet::{Behaviour, Durations, Expired, Failure, Length, SupportPlan, Tier, usual_family},
    pool::{PoolPlan, SKEW},
    refusal::{self, Refusal},
    releases::{Audience, Releases},
    state::{ClusterState, Ending, Kind, NodeMove, OPERATIONS_KEPT, Operation, PoolState},
};

/// The most pools of a cluster.
const MOST_POOLS: usize = 100;

/// All that a decision depends on beside the cluster and the request.
pub(crate) struct Context<'a> {
    pub(crate) seed: u64,
    pub(crate) key: &'a str,
    pub(crate) now: Timestamp,
    pub(crate) releases: &'a Releases,
    pub(crate) behaviour: &'a Behaviour,
}

/// Properties of a cluster that the cloud keeps itself.
const CLUSTER_OWN: [&str; 11] = [
    "provisioningState",
    "powerState",
    "kubernetesVersion",
    "currentKubernetesVersion",
    "agentPoolProfiles",
    "supportPlan",
    "nodeResourceGroup",
    "resourceUID",
    "maxAgentPools",
    "status",
    "upgradeSettings",
];

impl Context<'_> {
    fn length(&self, number: u64, purpose: &str, length: Length) -> f64 {
        length.at(Draw::new(self.seed, self.key, number, purpose).share()) * self.behaviour.duration_scale
    }

    fn after(&self, seconds: f64) -> Timestamp {
        self.now.saturating_add(SignedDuration::from_secs_f64(seconds.min(1e12))).unwrap_or(Timestamp::MAX)
    }

    fn durations(&self) -> &Durations {
        &self.behaviour.durations
    }

    /// Refuses an image that nodes can no longer be made from.
    pub(crate) fn check_age(&self, pool: &str, image: &NodeImage) -> Result<(), Refusal> {
        let today = TimeZone::UTC.to_datetime(self.now).date();
        let age = image.published().map(|published| today.duration_since(published));
        let too_old = age.is_some_and(|age| age > SignedDuration::from_hours(24 * i64::from(VALID_DAYS)));
        match self.behaviour.expired_images {
            Expired::Refuse if too_old => Err(refusal::image_too_old(pool, image)),
            _ => Ok(()),
        }
    }
}

impl ClusterState {
    /// Refuses while something is going on, or while the cluster is switched off.
    fn check_free(&self) -> Result<(), Refusal> {
        if let Some(operation) = self.active() {
            return Err(match operation.pool.as_deref().and_then(|name| self.pool(name)) {
                Some(pool) => refusal::busy_pool(&pool.name, &pool.provisioning),
                None => refusal::busy(&self.provisioning),
            });
        }
        Ok(())
    }

    fn check_running(&self) -> Result<(), Refusal> {
        if self.running { Ok(()) } else { Err(refusal::stopped()) }
    }

    /// PUT of a cluster that exists.
    pub(crate) fn put_cluster(&mut self, ctx: &Context<'_>, body: &Value) -> Result<Operation, Refusal> {
        self.check_free()?;
        self.check_running()?;
        let properties = object(&body["properties"], "properties")?;
        let (tier, support_plan) = self.plan_support(body)?;
        let long_term_support = tier == Tier::Premium && support_plan == SupportPlan::AksLongTermSupport;
        let (asked, version) = self.plan_version(ctx, properties.get("kubernetesVersion"), long_term_support)?;
        let plans = self.plan_pools(ctx, version, properties.get("agentPoolProfiles"))?;
        let control_plane = version != self.version;
        let pools_change = self.pools.iter().zip(&plans).any(|(pool, plan)| pool.version != plan.version);
        if control_plane
            && !pools_change
            && self.auto_upgrade_channel.is_some()
            && self.pools.iter().any(|pool| pool.version < version)
        {
            return Err(refusal::control_plane_only_with_channel());
        }
        let scales = self.pools.iter().zip(&plans).any(|(pool, plan)| pool.count != plan.count);
        let (kind, word) = match (control_plane || pools_change, scales) {
            (true, _) => (Kind::Upgrade, "Upgrading"),
            (false, true) => (Kind::Scale, "Scaling"),
            (false, false) => (Kind::Update, "Updating"),
        };
        self.asked_version = asked;
        self.version = version;
        (self.tier, self.support_plan) = (tier, support_plan);
        self.provisioning = word.into();
        self.changes += 1;
        for (pool, plan) in self.pools.iter_mut().zip(plans) {
            pool.take(plan);
            pool.provisioning = word.into();
            pool.changes += 1;
        }
        self.keep_properties(body, properties);
        let base = match (control_plane, kind) {
            (true, _) if self.lags() => ctx.durations().control_plane,
            (true, _) => ctx.durations().control_plane_only,
            (false, Kind::Scale) => ctx.durations().scale,
            (false, Kind::Upgrade) => ctx.durations().pool_update,
            _ => ctx.durations().cluster_update,
        };
        let names = self.pools.iter().map(|pool| pool.name.clone()).collect();
        Ok(self.begin(ctx, kind, None, base, names))
    }

    fn lags(&self) -> bool {
        self.pools.iter().any(|pool| pool.running && !pool.lagging().is_empty())
    }

    fn plan_version(
        &self,
        ctx: &Context<'_>,
        asked: Option<&Value>,
        long_term_support: bool,
    ) -> Result<(String, KubernetesVersion), Refusal> {
        let unchanged = || Ok((self.asked_version.clone(), self.version));
        let asked = match asked {
            None | Some(Value::Null) => return unchanged(),
            Some(Value::String(text)) if text.is_empty() => return unchanged(),
            Some(Value::String(text)) => text,
            Some(_) => return Err(refusal::bad_parameter("properties.kubernetesVersion", "it is not a text")),
        };
        let not_here = || refusal::not_in_region(self.name(), asked);
        let target: VersionTarget = asked.parse().map_err(|_| not_here())?;
        let version = match target {
            VersionTarget::Minor { major, minor } if (major, minor) == (self.version.major, self.version.minor) => {
                self.version
            }
            other => ctx.releases.resolve(other).ok_or_else(not_here)?,
        };
        if version == self.version {
            return Ok((target.to_string(), version));
        }
        let audience = Audience::Cluster { long_term_support };
        let upgrades = ctx.releases.upgrades(self.version, audience);
        if version < self.version {
            return Err(refusal::not_an_upgrade(self.version, version, &upgrades));
        }
        let release = ctx.releases.versions.get(&version).ok_or_else(not_here)?;
        if release.long_term_support_only && !long_term_support {
            return Err(refusal::long_term_support_only(self.name(), version));
        }
        if !upgrades.contains(&version) {
            return Err(refusal::not_an_upgrade(self.version, version, &upgrades));
        }
        Ok((target.to_string(), version))
    }

    /// A plan for every pool; pools that the request leaves out stay as they are.
    fn plan_pools(
        &self,
        ctx: &Context<'_>,
        control_plane: KubernetesVersion,
        asked: Option<&Value>,
    ) -> Result<Vec<PoolPlan>, Refusal> {
        let none = Vec::new();
        let asked = match asked {
            None | Some(Value::Null) => &none,
            Some(Value::Array(asked)) => asked,
            Some(_) => return Err(refusal::bad_parameter("properties.agentPoolProfiles", "it is not a list")),
        };
        let name_of = |asked: &Value| asked["name"].as_str().unwrap_or_default().to_owned();
        if asked.iter().any(|asked| self.pool(&name_of(asked)).is_none()) {
            return Err(refusal::new_pool_in_cluster_write());
        }
        let plan = |pool: &PoolState| {
            let asked = asked.iter().find(|asked| name_of(asked).eq_ignore_ascii_case(&pool.name));
            let mut asked = asked.and_then(Value::as_object).cloned().unwrap_or_default();
            // Pools are switched on and off by writes of their own.
            asked.remove("powerState");
            pool.plan(ctx, &asked, control_plane, self.pool_reach(ctx))
        };
        self.pools.iter().map(plan).collect()
    }

    /// How many minors a pool may go up at once.
    fn pool_reach(&self, ctx: &Context<'_>) -> u32 {
        let own = ctx.releases.versions.iter().find(|(version, _)| version.same_minor(self.version));
        let long_term = own.is_some_and(|(_, release)| release.long_term_support_only);
        if ctx.behaviour.pools_may_skip_minors || long_term { SKEW } else { 1 }
    }

    /// Tier and support plan; what the request leaves out stays as it is.
    fn plan_support(&self, body: &Value) -> Result<(Tier, SupportPlan), Refusal> {
        let tier = match &body["sku"]["tier"] {
            Value::Null => self.tier,
            tier => serde_json::from_value(tier.clone())
                .map_err(|_| refusal::bad_parameter("sku.tier", "it is none of Free, Standard, Premium"))?,
        };
        let plan = match &body["properties"]["supportPlan"] {
            Value::Null => self.support_plan,
            plan => serde_json::from_value(plan.clone()).map_err(|_| {
                refusal::bad_parameter(
                    "properties.supportPlan",
                    "it is neither KubernetesOfficial nor AKSLongTermSupport",
                )
            })?,
        };
        if plan == SupportPlan::AksLongTermSupport && tier != Tier::Premium {
            return Err(refusal::bad_parameter("properties.supportPlan", "AKSLongTermSupport needs tier Premium"));
        }
        Ok((tier, plan))
    }

    fn keep_properties(&mut self, body: &Value, properties: &Map<String, Value>) {
        for (key, value) in properties.iter().filter(|(key, _)| !CLUSTER_OWN.contains(&key.as_str())) {
            self.properties.insert(key.clone(), value.clone());
        }
        if let Some(channel) = properties.get("autoUpgradeProfile").and_then(|profile| profile.get("upgradeChannel")) {
            self.auto_upgrade_channel = channel.as_str().filter(|channel| *channel != "none").map(Into::into);
        }
        if let Some(tags) = body["tags"].as_object() {
            self.tags =
                tags.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
        }
    }

    /// PUT of a cluster that does not exist. `old` is what had its name before.
    pub(crate) fn create(
        ctx: &Context<'_>,
        id: &str,
        body: &Value,
        old: Option<&Self>,
    ) -> Result<(Self, Operation), Refusal> {
        let properties = object(&body["properties"], "properties")?;
        let location = body["location"].as_str().unwrap_or_default();
        let asked = properties.get("kubernetesVersion").and_then(Value::as_str).filter(|asked| !asked.is_empty());
        let name = id.rsplit('/').next().unwrap_or_default();
        let not_here = || refusal::not_in_region(name, asked.unwrap_or_default());
        let version = match asked {
            None => ctx.releases.default_version(),
            Some(asked) => ctx.releases.resolve(asked.parse().map_err(|_| not_here())?),
        };
        let version = version.filter(|version| ctx.releases.versions.contains_key(version)).ok_or_else(not_here)?;
        let mut state = Self {
            id: id.into(),
            location: location.to_ascii_lowercase().replace(' ', ""),
            deleted: false,
            asked_version: asked.map_or_else(|| version.to_string(), Into::into),
            version,
            provisioning: "Creating".into(),
            running: true,
            sku: serde_json::from_value(body["sku"]["name"].clone()).unwrap_or_default(),
            tier: Tier::Free,
            support_plan: SupportPlan::KubernetesOfficial,
            auto_upgrade_channel: None,
            tags: Default::default(),
            properties: Map::new(),
            pools: Vec::new(),
            maintenance: Vec::new(),
            operations: old.map(|old| old.operations.clone()).unwrap_or_default(),
            operation_count: old.map_or(0, |old| old.operation_count),
            changes: old.map_or(0, |old| old.changes + 1),
            upgrade_attempts: 0,
            fails: None,
        };
        (state.tier, state.support_plan) = state.plan_support(body)?;
        let pools = properties.get("agentPoolProfiles").and_then(Value::as_array).filter(|pools| !pools.is_empty());
        let pools =
            pools.ok_or_else(|| refusal::bad_parameter("properties.agentPoolProfiles", "a cluster needs a pool"))?;
        for pool in pools {
            let name = pool["name"].as_str().unwrap_or_default();
            state.add_pool(ctx, name, object(pool, "properties.agentPoolProfiles")?)?;
        }
        state.keep_properties(body, properties);
        let operation = state.begin(ctx, Kind::Create, None, ctx.durations().create, Vec::new());
        Ok((state, operation))
    }

    fn add_pool(&mut self, ctx: &Context<'_>, name: &str, properties: &Map<String, Value>) -> Result<(), Refusal> {
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !plain || !(1..=12).contains(&name.len()) || self.pool(name).is_some() {
            return Err(refusal::bad_parameter(
                "agentPoolProfile.name",
                "use 1 to 12 lower-case letters and digits, each name once",
            ));
        }
        if self.pools.len() >= MOST_POOLS {
            return Err(refusal::bad_parameter("agentPoolProfiles", "a cluster has at most 100 pools"));
        }
        let text = |key: &str, default: &str| properties.get(key).and_then(Value::as_str).unwrap_or(default).to_owned();
        let os_sku = text("osSKU", "Ubuntu");
        let family = usual_family(&os_sku)
            .ok_or_else(|| refusal::bad_parameter("agentPoolProfile.osSKU", "it is not known here"))?;
        let image = ctx.releases.newest_image(family);
        let image =
            image.ok_or_else(|| refusal::bad_parameter("agentPoolProfile.osSKU", "the region has no image for it"))?;
        let mut pool = PoolState {
            name: name.into(),
            asked_version: self.asked_version.clone(),
            version: self.version,
            image: image.clone(),
            os_type: text("osType", "Linux"),
            os_sku,
            mode: text("mode", "User"),
            count: 0,
            running: true,
            provisioning: "Creating".into(),
            snapshot: None,
            settings: Map::new(),
            changes: self.operation_count << 20,
            nodes: Vec::new(),
        };
        pool.settings.insert("upgradeSettings".into(), serde_json::json!({"maxSurge": "10%", "maxUnavailable": "0"}));
        let plan = pool.plan(ctx, properties, self.version, SKEW)?;
        pool.take(plan);
        let model = pool.model();
        pool.nodes.iter_mut().for_each(|node| node.clone_from(&model));
        self.pools.push(pool);
        Ok(())
    }

    /// PUT of a pool, new or not.
    pub(crate) fn put_pool(&mut self, ctx: &Context<'_>, name: &str, body: &Value) -> Result<Operation, Refusal> {
        self.check_free()?;
        self.check_running()?;
        let properties = object(&body["properties"], "properties")?;
        let Some(pool) = self.pool(name) else {
            self.add_pool(ctx, name, properties)?;
            return Ok(self.begin(ctx, Kind::Create, Some(name), ctx.durations().add_pool, Vec::new()));
        };
        let plan = pool.plan(ctx, properties, self.version, self.pool_reach(ctx))?;
        let moves = (pool.version, &pool.image) != (plan.version, &plan.image);
        let (kind, word, base) = match (pool.running, plan.running) {
            (true, false) => (Kind::Stop, "Stopping", ctx.durations().stop_pool),
            (false, true) => (Kind::Start, "Starting", ctx.durations().start_pool),
            _ if pool.only_patched_by(&plan) => (Kind::SecurityPatch, "Updating", ctx.durations().security_patch),
            _ if moves => (Kind::Upgrade, "Upgrading", ctx.durations().pool_update),
            _ if pool.count != plan.count && pool.running => (Kind::Scale, "Scaling", ctx.durations().scale),
            _ => (Kind::Update, "Updating", ctx.durations().pool_update),
        };
        let name = pool.name.clone();
        if let Some(pool) = self.pool_mut(&name) {
            pool.take(plan);
            pool.provisioning = word.into();
            pool.changes += 1;
        }
        Ok(self.begin(ctx, kind, Some(&name), base, vec![name.clone()]))
    }

    /// POST upgradeNodeImageVersion: to the newest image of the pool's family. The cluster itself stays as it is.
    pub(crate) fn upgrade_node_image(&mut self, ctx: &Context<'_>, name: &str) -> Result<Operation, Refusal> {
        self.check_free()?;
        self.check_running()?;
        let pool = self.pool_mut(name).ok_or_else(|| refusal::no_entity(&format!("agent pool {name}")))?;
        let newest = ctx.releases.newest_image(pool.image.family()).filter(|newest| **newest > pool.image);
        let image = newest.unwrap_or(&pool.image).clone();
        ctx.check_age(&pool.name, &image)?;
        pool.image = image;
        pool.provisioning = "UpgradingNodeImageVersion".into();
        pool.changes += 1;
        let nothing_to_do = pool.lagging().is_empty() || !pool.running;
        let name = pool.name.clone();
        let base = if nothing_to_do { ctx.durations().image_no_op } else { Length { min: 0.0, median: 0.0, max: 0.0 } };
        Ok(self.begin(ctx, Kind::NodeImage, Some(&name), base, vec![name.clone()]))
    }

    /// POST start or stop.
    pub(crate) fn switch(&mut self, ctx: &Context<'_>, kind: Kind) -> Result<Operation, Refusal> {
        self.check_free()?;
        let on = kind == Kind::Start;
        self.running = on;
        self.provisioning = if on { "Starting" } else { "Stopping" }.into();
        self.changes += 1;
        for pool in &mut self.pools {
            pool.running = on;
            pool.count = if on { pool.nodes.len() as u32 } else { 0 };
            pool.provisioning.clone_from(&self.provisioning);
            pool.changes += 1;
        }
        let base = if on { ctx.durations().start } else { ctx.durations().stop };
        let names = if on { self.pools.iter().map(|pool| pool.name.clone()).collect() } else { Vec::new() };
        Ok(self.begin(ctx, kind, None, base, names))
    }

    /// DELETE of the cluster or a pool; it overtakes what is going on.
    pub(crate) fn delete(&mut self, ctx: &Context<'_>, pool: Option<&str>) -> Result<Operation, Refusal> {
        let pool = match pool {
            Some(name) => {
                self.check_free()?;
                let pool = self.pool_mut(name).ok_or_else(|| refusal::no_entity(&format!("agent pool {name}")))?;
                pool.provisioning = "Deleting".into();
                Some(pool.name.clone())
            }
            None => {
                self.cancel(ctx.now);
                self.settle(ctx.now);
                self.provisioning = "Deleting".into();
                self.changes += 1;
                None
            }
        };
        Ok(self.begin(ctx, Kind::Delete, pool.as_deref(), ctx.durations().delete, Vec::new()))
    }

    /// POST abort of the cluster's operation, or of a pool's. What has moved stays moved.
    pub(crate) fn abort(&mut self, ctx: &Context<'_>, pool: Option<&str>) -> Result<Operation, Refusal> {
        let active = self.active().ok_or_else(refusal::nothing_to_abort)?;
        let of_pool = active.pool.clone();
        if pool.is_some_and(|pool| of_pool.as_deref().is_none_or(|of_pool| !of_pool.eq_ignore_ascii_case(pool))) {
            return Err(refusal::nothing_to_abort());
        }
        let seconds = ctx.length(self.operation_count + 1, "length", ctx.durations().abort);
        let end = ctx.after(seconds).min(active.end);
        self.cancel(end);
        match of_pool.as_deref().and_then(|name| self.pool_mut(name)) {
            Some(pool) => pool.provisioning = "Canceling".into(),
            None => {
                self.provisioning = "Canceling".into();
                self.pools
                    .iter_mut()
                    .filter(|pool| pool.busy())
                    .for_each(|pool| pool.provisioning = "Canceling".into());
            }
        }
        let mut operation = self.number(ctx, Kind::Abort, pool.map(Into::into));
        operation.end = end;
        Ok(self.push(operation))
    }

    /// Makes what is going on end canceled, at `end`.
    fn cancel(&mut self, end: Timestamp) {
        let active =
            self.operations.iter_mut().rev().find(|operation| !operation.settled && operation.kind != Kind::Abort);
        if let Some(active) = active {
            active.end = end;
            active.ending = Ending::Canceled;
            active.noise = Some(("Canceled".into(), "Operation is being canceled by user".into()));
        }
    }

    /// Decides an operation to its end. `movers` are the pools whose lagging nodes come along, one pool after another.
    fn begin(
        &mut self,
        ctx: &Context<'_>,
        kind: Kind,
        pool: Option<&str>,
        base: Length,
        movers: Vec<String>,
    ) -> Operation {
        let mut operation = self.number(ctx, kind, pool.map(Into::into));
        let number = self.operation_count;
        let mut seconds = ctx.length(number, "length", base);
        for name in &movers {
            let Some(pool) = self.pool(name).filter(|pool| pool.running) else { continue };
            let lagging = pool.lagging();
            // Patches go onto nodes that keep running, all at once.
            let batch = match kind {
                Kind::SecurityPatch => 0.0,
                _ => ctx.length(number, &format!("batch {name}"), ctx.durations().node_batch),
            };
            for (index, node) in lagging.iter().enumerate() {
                let at = ctx.after(seconds + batch * (index / pool.surge() + 1) as f64);
                operation.moves.push(NodeMove { pool: name.clone(), node: *node, at });
            }
            seconds += batch * lagging.len().div_ceil(pool.surge()) as f64;
        }
        operation.end = ctx.after(seconds);
        let upgrades = kind == Kind::Upgrade || !operation.moves.is_empty();
        if upgrades && kind != Kind::Start {
            self.upgrade_attempts += 1;
            if let Some(failure) = self.failure(ctx, number) {
                self.fail(&mut operation, failure, ctx.key);
            }
        }
        if operation.ending == Ending::Succeeded
            && Draw::new(ctx.seed, ctx.key, number, "noise").share() < ctx.behaviour.operation_error_rate
        {
            let text = "The operation has been preempted by another one. Please wait for the other operation to complete and try again.";
            operation.noise = Some(("NotLatestOperation".into(), text.into()));
        }
        self.push(operation)
    }

    fn number(&mut self, ctx: &Context<'_>, kind: Kind, pool: Option<String>) -> Operation {
        self.operation_count += 1;
        Operation {
            id: Draw::new(ctx.seed, ctx.key, self.operation_count, "operation").uuid(),
            kind,
            pool,
            start: ctx.now,
            end: ctx.now,
            ending: Ending::Succeeded,
            noise: None,
            moves: Vec::new(),
            settled: false,
        }
    }

    fn push(&mut self, operation: Operation) -> Operation {
        if self.operations.len() >= OPERATIONS_KEPT {
            self.operations.pop_front();
        }
        self.operations.push_back(operation.clone());
        operation
    }

    /// What an upgrade fails with, if it does.
    fn failure(&self, ctx: &Context<'_>, number: u64) -> Option<Failure> {
        let usual = &ctx.behaviour.failure;
        if let Some(fails) = self.fails.as_ref().filter(|fails| self.upgrade_attempts <= fails.attempts) {
            return Some(Failure {
                code: fails.code.clone().unwrap_or_else(|| usual.code.clone()),
                message: fails.message.clone().unwrap_or_else(|| usual.message.clone()),
            });
        }
        let share = Draw::new(ctx.seed, ctx.key, number, "failure").share();
        (share < ctx.behaviour.failure_rate).then(|| usual.clone())
    }

    /// Half of the nodes come along; the next one is where the upgrade stops.
    fn fail(&self, operation: &mut Operation, failure: Failure, key: &str) {
        let half = operation.moves.len() / 2;
        let stuck = operation.moves.get(half).cloned();
        if let Some(stuck) = &stuck {
            operation.end = stuck.at;
        }
        operation.moves.truncate(half);
        let first = self.pools.first().map(|pool| pool.name.as_str()).unwrap_or_default();
        let (pool, node) = stuck.as_ref().map_or((first, 0), |stuck| (stuck.pool.as_str(), stuck.node));
        let message = failure.message.replace("{cluster}", self.name()).replace("{pool}", pool);
        let message = message.replace("{node}", &node_name(key, pool, node));
        operation.ending = Ending::Failed { code: failure.code, message };
    }
}

/// The name of a machine: `aks-POOL-8 digits-vmss000000`.
pub(crate) fn node_name(key: &str, pool: &str, node: usize) -> String {
    let digits = Draw::new(0, key, 0, pool).number() % 100_000_000;
    format!("aks-{pool}-{digits:08}-vmss{node:06}")
}

fn object<'a>(value: &'a Value, name: &'static str) -> Result<&'a Map<String, Value>, Refusal> {
    value.as_object().ok_or_else(|| refusal::bad_parameter(name, "it is missing or not an object"))
}
