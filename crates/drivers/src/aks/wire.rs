//! The JSON of AKS, read into the model and written back (`aks-wire.md` §3, §5, §6).

use std::{cmp::Ordering, collections::BTreeMap};

use flotta_model::{Catalogue, Cluster, Fault, KubernetesVersion, NodeImage, Pool, Provisioning, RegionVersion};
use serde_json::{Map, Value};

use super::{call::retry, hints};
use crate::Trouble;

/// A cluster as it was read: in the model's terms, and what a write needs beside them.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub cluster: Cluster,
    pub body: Value,
}

/// Images of a pool that are kept at most.
const MOST_IMAGES: usize = 200;

/// Reads a managed cluster.
pub(super) fn cluster(body: Value) -> Result<Seen, Trouble> {
    let properties = &body["properties"];
    let version = version(properties, "currentKubernetesVersion", "kubernetesVersion")
        .ok_or_else(|| retry("the cluster shows no full Kubernetes version yet", None))?;
    let pools = match properties["agentPoolProfiles"].as_array() {
        Some(pools) => pools.iter().map(|body| pool(text(body, "name"), body, version)).collect(),
        None => Vec::new(),
    };
    let cluster = Cluster {
        location: region(text(&body, "location")),
        version,
        provisioning: provisioning(properties),
        running: running(properties),
        upgrades: Vec::new(),
        pools,
        etag: etag(&body),
        long_term_support: text(properties, "supportPlan") == "AKSLongTermSupport"
            && text(&body["sku"], "tier").eq_ignore_ascii_case("premium"),
        automatic_upgrades: automatic_upgrades(&body),
        provisions_nodes: automatic(&body)
            || text(&properties["nodeProvisioningProfile"], "mode").eq_ignore_ascii_case("Auto"),
    };
    Ok(Seen { cluster, body })
}

/// Whether it is an AKS Automatic cluster, which upgrades itself and makes its own nodes (`behaviour.md` A3).
fn automatic(body: &Value) -> bool {
    text(&body["sku"], "name").eq_ignore_ascii_case("Automatic")
}

/// The channels that are on. Unmanaged is not one: it patches nodes from the inside and moves no image.
fn automatic_upgrades(body: &Value) -> Vec<String> {
    let profile = &body["properties"]["autoUpgradeProfile"];
    let usual = if automatic(body) { "stable" } else { "" };
    let upgrade = match text(profile, "upgradeChannel") {
        "" => usual,
        channel => channel,
    };
    let channels = [upgrade, text(profile, "nodeOSUpgradeChannel")];
    let on = |channel: &&str| !["", "none", "unmanaged"].contains(&channel.to_ascii_lowercase().as_str());
    channels.into_iter().filter(on).map(str::to_owned).collect()
}

/// Reads an agent pool resource.
pub(super) fn agent_pool(body: &Value) -> Result<Pool, Trouble> {
    let properties = &body["properties"];
    let version = version(properties, "currentOrchestratorVersion", "orchestratorVersion")
        .ok_or_else(|| retry("the pool shows no full Kubernetes version yet", None))?;
    let mut pool = pool(text(body, "name"), properties, version);
    pool.etag = pool.etag.or_else(|| etag(body));
    Ok(pool)
}

/// A pool that shows only a minor is taken to be at `otherwise`, its control plane's version.
fn pool(name: &str, body: &Value, otherwise: KubernetesVersion) -> Pool {
    Pool {
        name: name.to_owned(),
        version: version(body, "currentOrchestratorVersion", "orchestratorVersion").unwrap_or(otherwise),
        provisioning: provisioning(body),
        image: text(body, "nodeImageVersion").parse().ok(),
        latest_image: None,
        offered_images: Vec::new(),
        live_patch: None,
        from_snapshot: !text(&body["creationData"], "sourceResourceId").is_empty(),
        lagging_nodes: 0,
        etag: etag(body),
    }
}

/// What the provider says went wrong with a resource that came to rest badly; with the pool, where it was in one.
pub(super) fn provisioning_error(pool: Option<&str>, properties: &Value, state: &Provisioning) -> Fault {
    let error = &properties["status"]["provisioningError"];
    let error = if error["error"].is_object() { &error["error"] } else { error };
    let word = if *state == Provisioning::Canceled { "Canceled" } else { "Failed" };
    match text(error, "code") {
        "" => hints::fault_in(pool, word, "the provider gives no reason; see the cluster's activity log"),
        code => hints::fault_in(pool, code, text(error, "message")),
    }
}

/// The properties of a pool inside a cluster's body.
pub(super) fn pool_properties<'a>(body: &'a Value, name: &str) -> &'a Value {
    let pools = body["properties"]["agentPoolProfiles"].as_array();
    pools.and_then(|pools| pools.iter().find(|pool| text(pool, "name") == name)).unwrap_or(&Value::Null)
}

/// The version of the control plane that an upgrade profile is about.
pub(super) fn profile_version(body: &Value) -> Option<KubernetesVersion> {
    text(&body["properties"]["controlPlaneProfile"], "kubernetesVersion").parse().ok()
}

/// The versions the control plane may go to, previews aside.
pub(super) fn upgrades(body: &Value) -> Vec<KubernetesVersion> {
    let listed = body["properties"]["controlPlaneProfile"]["upgrades"].as_array();
    let offered = listed.into_iter().flatten().filter(|upgrade| upgrade["isPreview"] != Value::Bool(true));
    let mut versions: Vec<KubernetesVersion> =
        offered.filter_map(|upgrade| text(upgrade, "kubernetesVersion").parse().ok()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

/// What a pool's upgrade profile tells of images.
#[derive(Clone, Debug, Default)]
pub(super) struct Images {
    /// The newest.
    pub latest: Option<NodeImage>,
    /// Those that it can be set to, ascending: AKS itself tells of none, other endpoints may.
    pub offered: Vec<NodeImage>,
    /// Its own with the newest security patches on it, where they can be put onto running nodes.
    pub patched: Option<NodeImage>,
}

/// Reads what a pool's upgrade profile tells of images.
pub(super) fn images(body: &Value, pool: &Pool) -> Images {
    let properties = &body["properties"];
    let own = |image: &NodeImage| pool.image.as_ref().is_some_and(|own| own.family() == image.family());
    let listed = properties["nodeImageVersions"].as_array().into_iter().flatten();
    let mut offered: Vec<NodeImage> =
        listed.filter_map(|image| image.as_str()?.parse().ok()).filter(own).take(MOST_IMAGES).collect();
    offered.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
    offered.dedup();
    let parsed = |name: &str| text(properties, name).parse::<NodeImage>().ok();
    Images { latest: parsed("latestNodeImageVersion"), offered, patched: parsed("latestSecurityPatch").filter(own) }
}

/// How many machines of a page are behind their pool: older, or on an image of another family.
pub(super) fn lagging(page: &Value, pool: &Pool) -> u32 {
    let behind = |machine: &&Value| {
        let properties = &machine["properties"];
        let older = version(&properties["kubernetes"], "currentOrchestratorVersion", "orchestratorVersion")
            .is_some_and(|version| version < pool.version);
        let image = text(properties, "nodeImageVersion").parse::<NodeImage>().ok();
        let stale = image.zip(pool.image.as_ref()).is_some_and(|(image, wanted)| {
            !matches!(image.partial_cmp(wanted), Some(Ordering::Equal | Ordering::Greater))
        });
        older || stale
    };
    let count = page["value"].as_array().map_or(0, |machines| machines.iter().filter(behind).count());
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Reads the versions of a region, which come in any order.
pub(super) fn catalogue(body: &Value) -> Catalogue {
    let mut versions = Vec::new();
    for minor in body["values"].as_array().into_iter().flatten() {
        let plans = minor["capabilities"]["supportPlan"].as_array();
        let long_term_support_only =
            plans.is_some_and(|plans| !plans.is_empty() && !plans.iter().any(|plan| plan == "KubernetesOfficial"));
        let preview = minor["isPreview"] == Value::Bool(true);
        let patches = minor["patchVersions"].as_object().into_iter().flatten();
        versions.extend(patches.filter_map(|(patch, _)| {
            Some(RegionVersion { version: patch.parse().ok()?, preview, long_term_support_only })
        }));
    }
    versions.sort_unstable_by_key(|offered| offered.version);
    versions.dedup_by_key(|offered| offered.version);
    Catalogue { versions }
}

/// Which pools of a cluster a write moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pools {
    /// All of them go with the control plane.
    Follow,
    /// All of them keep their version.
    Stay,
}

/// The body that upgrades a cluster: what was read, with another version, without what only the provider may say.
/// Pools that follow lose `creationData`: their snapshot is of another version (`behaviour.md` A4). `images` are pinned,
/// by pool.
pub(super) fn cluster_put(
    mut body: Value,
    to: KubernetesVersion,
    pools: Pools,
    images: &BTreeMap<String, NodeImage>,
) -> Value {
    for path in READ_ONLY {
        remove(&mut body, path);
    }
    let properties = &mut body["properties"];
    properties["kubernetesVersion"] = to.to_string().into();
    for pool in properties["agentPoolProfiles"].as_array_mut().into_iter().flatten() {
        match (pools, pool["orchestratorVersion"].is_string()) {
            (Pools::Follow, _) => follow(pool, to),
            // Without a version of its own a pool might be taken along: name the one it has.
            (Pools::Stay, false) if pool["currentOrchestratorVersion"].is_string() => {
                pool["orchestratorVersion"] = pool["currentOrchestratorVersion"].clone();
            }
            (Pools::Stay, _) => {}
        }
        strip_pool(pool);
        if let Some(image) = images.get(text(pool, "name")) {
            pin(pool, image);
        }
    }
    body
}

/// The body that upgrades a pool, to a certain image if one is given.
pub(super) fn pool_put(body: Value, to: KubernetesVersion, image: Option<&NodeImage>) -> Value {
    pool_body(body, |properties| {
        follow(properties, to);
        if let Some(image) = image {
            pin(properties, image);
        }
    })
}

/// The body that sets a pool to an image, whatever snapshot it was made from.
pub(super) fn pool_put_image(body: Value, image: &NodeImage) -> Value {
    pool_body(body, |properties| {
        remove(properties, &["creationData"]);
        pin(properties, image);
    })
}

/// A pool's body without what is for reading only, and with a change.
fn pool_body(body: Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut properties = match body {
        Value::Object(mut body) => body.remove("properties").unwrap_or_default(),
        _ => Value::Null,
    };
    if !properties.is_object() {
        properties = Value::Object(Map::new());
    }
    strip_pool(&mut properties);
    change(&mut properties);
    serde_json::json!({ "properties": properties })
}

fn follow(pool: &mut Value, to: KubernetesVersion) {
    pool["orchestratorVersion"] = to.to_string().into();
    remove(pool, &["creationData"]);
}

fn pin(pool: &mut Value, image: &NodeImage) {
    pool["nodeImageVersion"] = image.as_str().into();
}

/// The image goes too: sent back, it would pin the pool to it (`aks-wire.md` §3).
fn strip_pool(pool: &mut Value) {
    for name in ["provisioningState", "currentOrchestratorVersion", "nodeImageVersion", "eTag", "etag", "status"] {
        remove(pool, &[name]);
    }
}

/// What the provider alone says about a cluster; `*` is every item.
const READ_ONLY: &[&[&str]] = &[
    &["id"],
    &["name"],
    &["type"],
    &["systemData"],
    &["eTag"],
    &["etag"],
    &["identity", "principalId"],
    &["identity", "tenantId"],
    &["identity", "userAssignedIdentities", "*", "principalId"],
    &["identity", "userAssignedIdentities", "*", "clientId"],
    &["properties", "provisioningState"],
    &["properties", "powerState"],
    &["properties", "status"],
    &["properties", "currentKubernetesVersion"],
    &["properties", "maxAgentPools"],
    &["properties", "fqdn"],
    &["properties", "privateFQDN"],
    &["properties", "azurePortalFQDN"],
    &["properties", "resourceUID"],
    &["properties", "addonProfiles", "*", "identity"],
    &["properties", "oidcIssuerProfile", "issuerURL"],
    &["properties", "httpProxyConfig", "effectiveNoProxy"],
    &["properties", "ingressProfile", "webAppRouting", "identity"],
    &["properties", "networkProfile", "loadBalancerProfile", "effectiveOutboundIPs"],
    &["properties", "networkProfile", "natGatewayProfile", "effectiveOutboundIPs"],
];

fn remove(value: &mut Value, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    match value {
        Value::Object(fields) if rest.is_empty() => {
            fields.remove(*first);
        }
        Value::Object(fields) if *first == "*" => fields.values_mut().for_each(|field| remove(field, rest)),
        Value::Object(fields) => {
            if let Some(field) = fields.get_mut(*first) {
                remove(field, rest);
            }
        }
        _ => {}
    }
}

/// A region's name as it stands in addresses: "West US 2" is westus2.
pub(super) fn region(location: &str) -> String {
    location.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// A path, with everything encoded that may not stand in one.
pub(super) fn encode_path(path: &str) -> String {
    path.split('/').map(crate::token::encode).collect::<Vec<_>>().join("/")
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The truth first, what was asked for otherwise; a mere minor is neither (`behaviour.md` D1).
fn version(body: &Value, current: &str, asked: &str) -> Option<KubernetesVersion> {
    [current, asked].iter().find_map(|name| text(body, name).parse().ok())
}

fn provisioning(properties: &Value) -> Provisioning {
    match text(properties, "provisioningState") {
        "" => Provisioning::Busy("Unknown".into()),
        word => Provisioning::from_word(word),
    }
}

fn running(properties: &Value) -> bool {
    text(&properties["powerState"], "code") != "Stopped"
}

/// Written `eTag` or `etag`, depending on the api-version.
fn etag(body: &Value) -> Option<String> {
    let found = ["eTag", "etag"].iter().map(|name| text(body, name)).find(|etag| !etag.is_empty())?;
    Some(found.to_owned())
}
