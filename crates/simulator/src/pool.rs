//! What a write makes of one pool (`behaviour.md` D1, D4; `aks-wire.md` §3).

use flotta_model::{KubernetesVersion, NodeImage, VersionTarget};
use serde_json::{Map, Value};

use crate::{
    accept::Context,
    fleet::usual_family,
    refusal::{self, Refusal},
    state::PoolState,
};

/// Minors that a pool may be behind its control plane.
pub(crate) const SKEW: u32 = 3;

/// The most nodes of a pool.
const MOST_NODES: u64 = 1000;

/// What a write asks of one pool, checked.
pub(crate) struct PoolPlan {
    pub(crate) asked_version: String,
    pub(crate) version: KubernetesVersion,
    pub(crate) image: NodeImage,
    pub(crate) os_sku: String,
    pub(crate) count: u32,
    pub(crate) running: bool,
    pub(crate) mode: String,
    pub(crate) snapshot: Option<String>,
    pub(crate) settings: Map<String, Value>,
}

/// Properties of a pool that the cloud keeps itself.
const POOL_OWN: [&str; 16] = [
    "name",
    "count",
    "orchestratorVersion",
    "currentOrchestratorVersion",
    "nodeImageVersion",
    "osType",
    "osSKU",
    "mode",
    "provisioningState",
    "powerState",
    "creationData",
    "eTag",
    "type",
    "recentlyUsedVersions",
    "status",
    "nodeInitializationTaints",
];

impl PoolState {
    /// Checks what a write asks of the pool and fills in the rest. It may go `reach` minors up at once.
    pub(crate) fn plan(
        &self,
        ctx: &Context<'_>,
        asked: &Map<String, Value>,
        control_plane: KubernetesVersion,
        reach: u32,
    ) -> Result<PoolPlan, Refusal> {
        let (asked_version, version) =
            self.plan_version(ctx, asked.get("orchestratorVersion"), control_plane, reach)?;
        let os_sku = asked.get("osSKU").and_then(Value::as_str).unwrap_or(&self.os_sku).to_owned();
        let created_from = asked.get("creationData").and_then(|data| data["sourceResourceId"].as_str());
        let pinned = asked.get("nodeImageVersion").and_then(Value::as_str);
        let keeps_snapshot = version == self.version && pinned.is_none();
        let kept = self.snapshot.clone().filter(|_| keeps_snapshot);
        let snapshot = kept.or_else(|| created_from.map(Into::into));
        let may_pin = ctx.behaviour.pin_images && os_sku.eq_ignore_ascii_case(&self.os_sku);
        let image = match pinned {
            Some(pinned) if may_pin => self.pin(ctx, pinned, version)?,
            Some(pinned) if pinned != self.image.as_str() => return Err(refusal::image_cannot_be_pinned()),
            _ => self.plan_image(ctx, version, &os_sku, snapshot.is_some())?,
        };
        ctx.check_age(&self.name, &image)?;
        let stopping = asked
            .get("powerState")
            .and_then(|state| state["code"].as_str())
            .map(|code| code.eq_ignore_ascii_case("Stopped"));
        let running = stopping.map_or(self.running, |stopping| !stopping);
        let count = match asked.get("count") {
            None | Some(Value::Null) => self.nodes.len() as u64,
            Some(count) => count.as_u64().filter(|count| *count <= MOST_NODES).ok_or_else(|| {
                refusal::bad_parameter("agentPoolProfile.count", format!("it is not a number from 0 to {MOST_NODES}"))
            })?,
        };
        let count = match (self.running, running) {
            (_, false) => 0,
            (false, true) => self.nodes.len() as u32,
            (true, true) => count as u32,
        };
        let text = |key: &str, own: &str| asked.get(key).and_then(Value::as_str).unwrap_or(own).to_owned();
        let settings = asked.iter().filter(|(key, _)| !POOL_OWN.contains(&key.as_str()));
        let settings = settings.map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(PoolPlan {
            asked_version,
            version,
            image,
            os_sku,
            count,
            running,
            mode: text("mode", &self.mode),
            snapshot,
            settings,
        })
    }

    fn plan_version(
        &self,
        ctx: &Context<'_>,
        asked: Option<&Value>,
        control_plane: KubernetesVersion,
        reach: u32,
    ) -> Result<(String, KubernetesVersion), Refusal> {
        let (asked, version) = match asked {
            None | Some(Value::Null) => (self.asked_version.clone(), self.version),
            Some(Value::String(text)) => {
                let not_here = || refusal::pool_not_in_region(text);
                let version = match text.parse().map_err(|_| not_here())? {
                    VersionTarget::Minor { major, minor }
                        if (major, minor) == (self.version.major, self.version.minor) =>
                    {
                        self.version
                    }
                    VersionTarget::Minor { major, minor }
                        if (major, minor) == (control_plane.major, control_plane.minor) =>
                    {
                        control_plane
                    }
                    other => ctx.releases.resolve(other).ok_or_else(not_here)?,
                };
                (text.clone(), version)
            }
            Some(_) => return Err(refusal::bad_parameter("agentPoolProfile.orchestratorVersion", "it is not a text")),
        };
        let offered =
            version == self.version || version == control_plane || ctx.releases.versions.contains_key(&version);
        if !offered {
            return Err(refusal::pool_not_in_region(&asked));
        }
        if version < self.version {
            return Err(refusal::pool_downgrade(self.version, version));
        }
        if version > control_plane || version.minor + SKEW < control_plane.minor {
            return Err(refusal::pool_skew(&self.name, version, control_plane));
        }
        if version.minor > self.version.minor + reach {
            return Err(refusal::pool_skips_minors(self.version, version));
        }
        Ok((asked, version))
    }

    /// The image that a write pins: one of the pool's family that the region has, and not an older one. The pool's own image
    /// with the region's newest security patches on it goes onto the nodes as they run.
    fn pin(&self, ctx: &Context<'_>, pinned: &str, version: KubernetesVersion) -> Result<NodeImage, Refusal> {
        let wrong = |reason: &str| refusal::bad_parameter("agentPoolProfile.nodeImageVersion", reason);
        let image: NodeImage = pinned.parse().map_err(|_| wrong("it is not a node image version"))?;
        if image.family() != self.image.family() {
            return Err(wrong("it is not of the pool's family"));
        }
        if image < self.image {
            return Err(refusal::image_downgrade(&self.image, &image));
        }
        let live =
            || version == self.version && ctx.releases.patched(&self.image).is_some_and(|newest| image <= newest);
        let offered = match image.without_patch() == self.image.without_patch() {
            true => image == self.image || live(),
            false => ctx.releases.has_image(&image),
        };
        if offered { Ok(image) } else { Err(refusal::image_not_in_region(&self.name, &image)) }
    }

    /// The image of a pool that pins none: with another osSKU the newest of its usual family; with another version the
    /// newest of its own.
    fn plan_image(
        &self,
        ctx: &Context<'_>,
        version: KubernetesVersion,
        os_sku: &str,
        from_snapshot: bool,
    ) -> Result<NodeImage, Refusal> {
        if !os_sku.eq_ignore_ascii_case(&self.os_sku) {
            let newest = usual_family(os_sku).and_then(|family| ctx.releases.newest_image(family));
            return newest
                .cloned()
                .ok_or_else(|| refusal::bad_parameter("agentPoolProfile.osSKU", "the region has no image for it"));
        }
        let brings_image = version != self.version && ctx.behaviour.image_with_version && !from_snapshot;
        let newest =
            ctx.releases.newest_image(self.image.family()).filter(|newest| brings_image && **newest > self.image);
        Ok(newest.unwrap_or(&self.image).clone())
    }

    /// Whether a write puts security patches onto its nodes and changes nothing else of them.
    pub(crate) fn only_patched_by(&self, plan: &PoolPlan) -> bool {
        plan.version == self.version
            && plan.image != self.image
            && plan.image.without_patch() == self.image.without_patch()
    }

    /// Becomes what was planned: the model jumps, the nodes stay behind.
    pub(crate) fn take(&mut self, plan: PoolPlan) {
        self.asked_version = plan.asked_version;
        self.version = plan.version;
        self.image = plan.image;
        self.os_sku = plan.os_sku;
        self.mode = plan.mode;
        self.snapshot = plan.snapshot;
        self.settings.extend(plan.settings);
        if plan.running && self.running {
            let model = self.model();
            self.nodes.resize(plan.count as usize, model);
        }
        self.count = plan.count;
        self.running = plan.running;
    }
}
