//! Bodies as AKS writes them (`aks-wire.md` §2, §5–§7, §9).

use flotta_model::KubernetesVersion;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    accept::node_name,
    draw::Draw,
    fleet::{Behaviour, Region, SupportPlan},
    releases::{Audience, Releases},
    state::{ClusterState, Ending, Operation, PoolState},
};

/// What the bodies of one simulator have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) seed: u64,
}

/// An instant as AKS writes it in operations of a region: with a fraction.
fn instant(at: Timestamp) -> String {
    format!("{at:.6}")
}

impl Writer {
    fn etag(self, key: &str, changes: u64) -> String {
        Draw::new(self.seed, key, changes, "etag").uuid().to_string()
    }

    pub(crate) fn cluster_etag(self, state: &ClusterState) -> String {
        self.etag(&state.id.to_ascii_lowercase(), state.changes)
    }

    pub(crate) fn pool_etag(self, state: &ClusterState, pool: &PoolState) -> String {
        self.etag(&format!("{}/{}", state.id.to_ascii_lowercase(), pool.name), pool.changes)
    }

    /// A cluster.
    pub(crate) fn cluster(self, state: &ClusterState) -> Value {
        let group = state.id.split('/').nth(4).unwrap_or_default();
        let mut properties = default_properties();
        properties.extend(state.properties.clone());
        properties.extend(fields(json!({
            "provisioningState": state.provisioning,
            "powerState": {"code": power(state.running)},
            "kubernetesVersion": state.asked_version,
            "currentKubernetesVersion": state.version,
            "nodeResourceGroup": format!("MC_{group}_{}_{}", state.name(), state.location),
            "supportPlan": state.support_plan,
            "maxAgentPools": 100,
            "resourceUID": &Draw::new(self.seed, &state.id.to_ascii_lowercase(), 0, "uid").uuid().simple().to_string()[..24],
        })));
        let profiles = state.pools.iter().map(|pool| {
            let mut profile = self.pool_properties(state, pool);
            profile.insert("name".into(), pool.name.clone().into());
            Value::Object(profile)
        });
        properties.insert("agentPoolProfiles".into(), profiles.collect());
        if let Some(channel) = &state.auto_upgrade_channel {
            properties["autoUpgradeProfile"]["upgradeChannel"] = channel.clone().into();
        }
        let mut body = json!({
            "id": state.id,
            "location": state.location,
            "name": state.name(),
            "type": "Microsoft.ContainerService/ManagedClusters",
            "kind": state.sku,
            "properties": properties,
            "identity": {"type": "SystemAssigned"},
            "sku": {"name": state.sku, "tier": state.tier},
            "eTag": self.cluster_etag(state),
        });
        if !state.tags.is_empty() {
            body["tags"] = json!(state.tags);
        }
        body
    }

    fn pool_properties(self, state: &ClusterState, pool: &PoolState) -> Map<String, Value> {
        let mut properties = default_pool_settings();
        properties.extend(pool.settings.clone());
        properties.extend(fields(json!({
            "count": pool.count,
            "type": "VirtualMachineScaleSets",
            "provisioningState": pool.provisioning,
            "powerState": {"code": power(pool.running)},
            "orchestratorVersion": pool.asked_version,
            "currentOrchestratorVersion": pool.version,
            "mode": pool.mode,
            "osType": pool.os_type,
            "osSKU": pool.os_sku,
            "nodeImageVersion": pool.image,
            "eTag": self.pool_etag(state, pool),
        })));
        if let Some(snapshot) = &pool.snapshot {
            properties.insert("creationData".into(), json!({"sourceResourceId": snapshot}));
        }
        properties
    }

    /// A pool.
    pub(crate) fn pool(self, state: &ClusterState, pool: &PoolState) -> Value {
        json!({
            "id": format!("{}/agentPools/{}", state.id, pool.name),
            "name": pool.name,
            "type": "Microsoft.ContainerService/managedClusters/agentPools",
            "properties": self.pool_properties(state, pool),
        })
    }

    /// The machines of a pool: what its nodes really are.
    pub(crate) fn machines(self, state: &ClusterState, pool: &PoolState, now: Timestamp) -> Vec<Value> {
        let moves = state.active().map(|operation| &operation.moves[..]).unwrap_or_default();
        let key = state.id.to_ascii_lowercase();
        let group = state.id.split('/').nth(4).unwrap_or_default();
        let subscription = state.id.split('/').nth(2).unwrap_or_default();
        let machine = |index: usize| {
            let node = pool.node_at(index, moves, now);
            let name = node_name(&key, &pool.name, index);
            let synced = node == pool.model();
            let next = moves.iter().filter(|step| step.pool == pool.name && step.at > now).map(|step| step.node).next();
            let provisioning = if next == Some(index) { &pool.provisioning } else { "Succeeded" };
            json!({
                "id": format!("{}/agentPools/{}/machines/{name}", state.id, pool.name),
                "name": name,
                "type": "Microsoft.ContainerService/managedClusters/agentPools/machines",
                "properties": {
                    "network": {"ipAddresses": [{"ip": format!("10.{}.{}.{}", 224, index / 250, index % 250 + 4), "family": "IPv4"}], "enableNodePublicIP": false},
                    "resourceId": format!(
                        "/subscriptions/{subscription}/resourceGroups/MC_{group}_{}_{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/virtualMachines/{index}",
                        state.name(), state.location, name.rsplit_once("-vmss").map_or(&*name, |(set, _)| set),
                    ),
                    "hardware": {"vmSize": pool.settings.get("vmSize").cloned().unwrap_or_else(|| "Standard_D4s_v5".into()), "gpuInstanceProfile": ""},
                    "operatingSystem": {"osType": pool.os_type, "osSKU": pool.os_sku, "osDiskSizeGB": 128, "osDiskType": "Managed", "enableFIPS": false},
                    "kubernetes": {
                        "orchestratorVersion": node.version,
                        "currentOrchestratorVersion": node.version,
                        "kubeletDiskType": "OS",
                        "maxPods": 250,
                        "nodeName": name,
                        "workloadRuntime": "",
                    },
                    "mode": pool.mode,
                    "security": {"sshAccess": "LocalUser", "enableVTPM": false, "enableSecureBoot": false},
                    "nodeImageVersion": node.image,
                    "provisioningState": provisioning,
                    "eTag": self.etag(&format!("{key}/{name}"), pool.changes),
                    "status": {"driftAction": if synced { "Synced" } else { "Upgrade" }, "vmState": if pool.running { "Running" } else { "Deallocated" }},
                },
            })
        };
        (0..pool.nodes.len()).map(machine).collect()
    }

    /// The cluster's upgrade profile. Its pools are null on the wire.
    pub(crate) fn cluster_upgrades(self, state: &ClusterState, releases: &Releases) -> Value {
        let audience = Audience::Cluster { long_term_support: state.long_term_support() };
        let upgrades = upgrades(&releases.upgrades(state.version, audience), releases);
        json!({
            "id": format!("{}/upgradeprofiles/default", state.id),
            "name": "default",
            "type": "Microsoft.ContainerService/managedClusters/upgradeprofiles",
            "properties": {
                "controlPlaneProfile": {
                    "kubernetesVersion": state.version,
                    "osType": "Linux",
                    "upgrades": upgrades,
                    "componentsByReleases": [components(state.version)],
                },
                "agentPoolProfiles": null,
            },
        })
    }

    /// A pool's upgrade profile: what lies between it and its control plane.
    ///
    /// Where images can be pinned, also the images and security patches that it can be set to, which AKS does not tell.
    pub(crate) fn pool_upgrades(
        self,
        state: &ClusterState,
        pool: &PoolState,
        releases: &Releases,
        behaviour: &Behaviour,
    ) -> Value {
        let audience = Audience::Cluster { long_term_support: state.long_term_support() };
        let mut versions = releases.upgrades(pool.version, audience);
        versions.retain(|version| *version <= state.version);
        let image =
            releases.newest_image(pool.image.family()).filter(|newest| **newest > pool.image).unwrap_or(&pool.image);
        let mut properties = json!({
            "kubernetesVersion": pool.version,
            "osType": pool.os_type,
            "latestNodeImageVersion": image,
            "componentsByReleases": [{"kubernetesVersion": minor_of(pool.version), "components": []}],
        });
        if !versions.is_empty() {
            properties["upgrades"] = upgrades(&versions, releases);
        }
        if behaviour.pin_images {
            properties["nodeImageVersions"] = json!(releases.images(pool.image.family()));
            if let Some(patched) = releases.patched(&pool.image) {
                properties["latestSecurityPatch"] = json!(patched);
            }
        }
        json!({
            "id": format!("{}/agentPools/{}/upgradeProfiles/default", state.id, pool.name),
            "name": "default",
            "type": "Microsoft.ContainerService/managedClusters/agentPools/upgradeProfiles",
            "properties": properties,
        })
    }

    /// The versions a new pool of the cluster may have.
    pub(crate) fn available_versions(self, state: &ClusterState, releases: &Releases) -> Value {
        let fits =
            |version: &&KubernetesVersion| **version <= state.version && version.minor + 3 >= state.version.minor;
        let versions = releases.versions.keys().filter(fits).map(|version| match *version == state.version {
            true => json!({"default": true, "kubernetesVersion": version}),
            false => json!({"kubernetesVersion": version}),
        });
        json!({
            "id": format!("{}/availableagentpoolversions", state.id),
            "name": "default",
            "type": "Microsoft.ContainerService/managedClusters/availableAgentpoolVersions",
            "properties": {"agentPoolVersions": versions.collect::<Value>()},
        })
    }

    /// A region's versions, in another order at each call.
    pub(crate) fn kubernetes_versions(self, region: &Region, releases: &Releases, call: u64) -> Value {
        let shuffle = |name: &str| Draw::new(self.seed, name, call, "order").number();
        let mut values = Vec::new();
        for minor in &region.kubernetes {
            let plans: &[SupportPlan] = &minor.support_plan;
            let mut patches: Vec<_> =
                releases.versions.keys().filter(|version| minor_of(**version) == minor.minor).collect();
            patches.sort_by_key(|version| shuffle(&version.to_string()));
            if patches.is_empty() {
                continue;
            }
            let mut listed = Map::new();
            for patch in patches {
                let mut upgrades = releases.upgrades(*patch, Audience::List);
                upgrades.sort_by_key(|version| shuffle(&version.to_string()));
                listed.insert(patch.to_string(), json!({"upgrades": upgrades}));
            }
            let mut value =
                json!({"version": minor.minor, "capabilities": {"supportPlan": plans}, "patchVersions": listed});
            for (flag, set) in [("isDefault", minor.default), ("isPreview", minor.preview)] {
                if set {
                    value[flag] = true.into();
                }
            }
            values.push(value);
        }
        values.sort_by_key(|value| shuffle(value["version"].as_str().unwrap_or_default()));
        json!({"values": values})
    }

    /// A maintenance configuration.
    pub(crate) fn maintenance(self, state: &ClusterState, name: &str, properties: &Value) -> Value {
        let id = format!(
            "{}/maintenanceConfigurations/{name}",
            state.id.replacen("/resourcegroups/", "/resourceGroups/", 1)
        );
        json!({"id": id, "name": name, "properties": properties})
    }

    /// An operation as its region tells it.
    pub(crate) fn operation(self, state: &ClusterState, operation: &Operation, now: Timestamp, texts: bool) -> Value {
        let mut body = operation_body(state, operation, now, texts);
        body["startTime"] = instant(operation.start).into();
        if now >= operation.end {
            body["endTime"] = instant(operation.end).into();
        }
        body
    }

    /// An operation as its cluster tells it: with an id, and whole seconds.
    pub(crate) fn cluster_operation(
        self,
        state: &ClusterState,
        operation: &Operation,
        now: Timestamp,
        texts: bool,
    ) -> Value {
        let mut body = operation_body(state, operation, now, texts);
        body["id"] = format!("{}/operations/{}", state.id, operation.id).into();
        body["startTime"] = format!("{:.0}", operation.start).into();
        if now >= operation.end {
            body["endTime"] = format!("{:.0}", operation.end).into();
        }
        body
    }
}

fn operation_body(state: &ClusterState, operation: &Operation, now: Timestamp, texts: bool) -> Value {
    let nodes = match operation.pool.as_deref().and_then(|name| state.pool(name)) {
        Some(pool) => pool.nodes.len(),
        None => state.pools.iter().map(|pool| pool.nodes.len()).sum(),
    };
    let mut body = json!({"name": operation.id, "status": operation.status(now, texts, nodes)});
    let failed = match &operation.ending {
        Ending::Failed { code, message } if now >= operation.end => Some((code, message)),
        _ => None,
    };
    let noise = operation.noise.as_ref().map(|(code, message)| (code, message));
    if let Some((code, message)) = failed.or(noise) {
        body["error"] = json!({"code": code, "message": message});
    }
    body
}

/// What a maintenance configuration becomes when it is written: a start date where there is none, no empty
/// `notAllowedTime`, and that in UTC.
pub(crate) fn echo_maintenance(properties: &Value, now: Timestamp) -> Value {
    let mut echo = properties.clone();
    if let Some(window) = echo.get_mut("maintenanceWindow").and_then(Value::as_object_mut) {
        let today = now.strftime("%Y-%m-%d").to_string();
        let date = window.entry("startDate").or_insert(Value::Null);
        if date.is_null() {
            *date = today.into();
        }
        window.entry("utcOffset").or_insert_with(|| "+00:00".into());
    }
    let Some(fields) = echo.as_object_mut() else { return echo };
    if fields.get("notAllowedTime").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        fields.remove("notAllowedTime");
    }
    for span in fields.get_mut("notAllowedTime").and_then(Value::as_array_mut).into_iter().flatten() {
        for end in ["start", "end"] {
            let utc = span[end].as_str().and_then(|text| text.parse::<Timestamp>().ok());
            if let Some(utc) = utc {
                span[end] = utc.to_string().into();
            }
        }
    }
    echo
}

fn upgrades(versions: &[KubernetesVersion], releases: &Releases) -> Value {
    let upgrade =
        |version: &KubernetesVersion| match releases.versions.get(version).is_some_and(|release| release.preview) {
            true => json!({"kubernetesVersion": version, "isPreview": true}),
            false => json!({"kubernetesVersion": version}),
        };
    versions.iter().rev().map(upgrade).collect()
}

fn components(version: KubernetesVersion) -> Value {
    let coredns = json!({"name": "coredns", "version": "v1.12.0", "hasBreakingChanges": false});
    json!({"kubernetesVersion": minor_of(version), "components": [coredns]})
}

fn minor_of(version: KubernetesVersion) -> String {
    format!("{}.{}", version.major, version.minor)
}

fn power(running: bool) -> &'static str {
    if running { "Running" } else { "Stopped" }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// What a cluster says when nobody asked for anything else.
fn default_properties() -> Map<String, Value> {
    fields(json!({
        "addonProfiles": {},
        "enableRBAC": true,
        "networkProfile": {
            "networkPlugin": "azure",
            "networkPluginMode": "overlay",
            "networkPolicy": "none",
            "networkDataplane": "azure",
            "loadBalancerSku": "standard",
            "loadBalancerProfile": {"managedOutboundIPs": {"count": 1}, "backendPoolType": "nodeIPConfiguration"},
            "podCidr": "10.244.0.0/16",
            "serviceCidr": "10.0.0.0/16",
            "dnsServiceIP": "10.0.0.10",
            "outboundType": "loadBalancer",
            "podCidrs": ["10.244.0.0/16"],
            "serviceCidrs": ["10.0.0.0/16"],
            "ipFamilies": ["IPv4"],
            "podLinkLocalAccess": "IMDS",
        },
        "autoUpgradeProfile": {"nodeOSUpgradeChannel": "NodeImage"},
        "disableLocalAccounts": false,
        "securityProfile": {},
        "storageProfile": {
            "diskCSIDriver": {"enabled": true, "version": "v1"},
            "fileCSIDriver": {"enabled": true},
            "snapshotController": {"enabled": true},
        },
        "oidcIssuerProfile": {"enabled": false},
        "workloadAutoScalerProfile": {},
        "metricsProfile": {"costAnalysis": {"enabled": false}},
        "nodeProvisioningProfile": {"mode": "Manual", "defaultNodePools": "Auto"},
        "bootstrapProfile": {"artifactSource": "Direct"},
        "hostedSystemProfile": {"enabled": false},
        "controlPlanePluginProfiles": {},
        "enableFIPS": false,
    }))
}

fn default_pool_settings() -> Map<String, Value> {
    fields(json!({
        "vmSize": "Standard_D4s_v5",
        "osDiskSizeGB": 128,
        "osDiskType": "Managed",
        "kubeletDiskType": "OS",
        "workloadRuntime": "OCIContainer",
        "maxPods": 250,
        "enableAutoScaling": false,
        "scaleDownMode": "Delete",
        "enableNodePublicIP": false,
        "enableEncryptionAtHost": false,
        "enableUltraSSD": false,
        "upgradeStrategy": "Rolling",
        "upgradeSettings": {"maxSurge": "10%", "maxUnavailable": "0"},
        "upgradeSettingsBlueGreen": {},
        "enableFIPS": false,
        "networkProfile": {},
        "securityProfile": {"sshAccess": "LocalUser", "enableVTPM": false, "enableSecureBoot": false},
    }))
}
