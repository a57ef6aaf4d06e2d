//! What a request asks for: its path, read without regard to case.

use serde::{Deserialize, Serialize};

/// The kinds of calls that the simulated cloud answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallKind {
    /// GET managedClusters of a subscription or resource group.
    ListClusters,
    /// GET of a cluster.
    GetCluster,
    /// PUT of a cluster.
    PutCluster,
    /// DELETE of a cluster.
    DeleteCluster,
    /// POST start.
    StartCluster,
    /// POST stop.
    StopCluster,
    /// POST abort of a cluster.
    AbortCluster,
    /// GET agentPools.
    ListPools,
    /// GET of a pool.
    GetPool,
    /// PUT of a pool.
    PutPool,
    /// DELETE of a pool.
    DeletePool,
    /// POST abort of a pool.
    AbortPool,
    /// POST upgradeNodeImageVersion.
    UpgradeNodeImage,
    /// GET machines.
    ListMachines,
    /// GET upgradeProfiles/default of a cluster.
    ClusterUpgradeProfile,
    /// GET upgradeProfiles/default of a pool.
    PoolUpgradeProfile,
    /// GET availableAgentPoolVersions.
    AvailableVersions,
    /// GET kubernetesVersions of a region.
    KubernetesVersions,
    /// GET maintenanceConfigurations.
    ListMaintenance,
    /// GET of a maintenance configuration.
    GetMaintenance,
    /// PUT of a maintenance configuration.
    PutMaintenance,
    /// DELETE of a maintenance configuration.
    DeleteMaintenance,
    /// GET operations of a region, by id.
    GetOperation,
    /// GET operationresults of a region, by id.
    GetOperationResult,
    /// GET operations of a cluster, `latest` or by id.
    GetClusterOperation,
}

/// A request that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    pub(crate) subscription: String,
    /// As written; empty for calls about a region or subscription.
    pub(crate) group: String,
    /// The cluster's name as written, or empty.
    pub(crate) cluster: String,
    /// A pool, a maintenance configuration, an operation or a region: what the call names last.
    pub(crate) name: String,
}

impl Call {
    /// The cluster's id, with the casing of the request and AKS's own `resourcegroups`.
    pub(crate) fn cluster_id(&self) -> String {
        format!(
            "/subscriptions/{}/resourcegroups/{}/providers/Microsoft.ContainerService/managedClusters/{}",
            self.subscription, self.group, self.cluster
        )
    }

    /// Reads method and path; none if there is no such call.
    pub(crate) fn read(method: &str, path: &str) -> Option<Self> {
        let decoded: Vec<String> = path.strip_prefix('/')?.split('/').map(decode).collect::<Option<_>>()?;
        let lower: Vec<String> = decoded.iter().map(|part| part.to_ascii_lowercase()).collect();
        let words: Vec<&str> = lower.iter().map(String::as_str).collect();
        let of = |kind, group: usize, cluster: usize, name: usize| {
            let plain = |text: &String| {
                (1..=90).contains(&text.len()) && text.chars().all(|c| c.is_alphanumeric() || "-_.()".contains(c))
            };
            let named =
                [1, group, cluster, name].into_iter().filter(|index| *index > 0).all(|index| plain(&decoded[index]));
            let text = |index: usize| if index == 0 { String::new() } else { decoded[index].clone() };
            named.then(|| Self {
                kind,
                subscription: text(1),
                group: text(group),
                cluster: text(cluster),
                name: text(name),
            })
        };
        let (scope, rest) = match &words[..] {
            ["subscriptions", _, "providers", "microsoft.containerservice", rest @ ..] => (4, rest),
            ["subscriptions", _, "resourcegroups", _, "providers", "microsoft.containerservice", rest @ ..] => {
                (6, rest)
            }
            _ => return None,
        };
        use CallKind as K;
        match (method, scope, rest) {
            ("GET", 4, ["managedclusters"]) => of(K::ListClusters, 0, 0, 0),
            ("GET", 4, ["locations", _, "kubernetesversions"]) => of(K::KubernetesVersions, 0, 0, 5),
            ("GET", 4, ["locations", _, "operations", _]) => of(K::GetOperation, 0, 0, 7),
            ("GET", 4, ["locations", _, "operationresults", _]) => of(K::GetOperationResult, 0, 0, 7),
            ("GET", 6, ["managedclusters"]) => of(K::ListClusters, 3, 0, 0),
            ("GET", 6, ["managedclusters", _]) => of(K::GetCluster, 3, 7, 0),
            ("PUT", 6, ["managedclusters", _]) => of(K::PutCluster, 3, 7, 0),
            ("DELETE", 6, ["managedclusters", _]) => of(K::DeleteCluster, 3, 7, 0),
            ("POST", 6, ["managedclusters", _, "start"]) => of(K::StartCluster, 3, 7, 0),
            ("POST", 6, ["managedclusters", _, "stop"]) => of(K::StopCluster, 3, 7, 0),
            ("POST", 6, ["managedclusters", _, "abort"]) => of(K::AbortCluster, 3, 7, 0),
            ("GET", 6, ["managedclusters", _, "agentpools"]) => of(K::ListPools, 3, 7, 0),
            ("GET", 6, ["managedclusters", _, "agentpools", _]) => of(K::GetPool, 3, 7, 9),
            ("PUT", 6, ["managedclusters", _, "agentpools", _]) => of(K::PutPool, 3, 7, 9),
            ("DELETE", 6, ["managedclusters", _, "agentpools", _]) => of(K::DeletePool, 3, 7, 9),
            ("POST", 6, ["managedclusters", _, "agentpools", _, "abort"]) => of(K::AbortPool, 3, 7, 9),
            ("POST", 6, ["managedclusters", _, "agentpools", _, "upgradenodeimageversion"]) => {
                of(K::UpgradeNodeImage, 3, 7, 9)
            }
            ("GET", 6, ["managedclusters", _, "agentpools", _, "machines"]) => of(K::ListMachines, 3, 7, 9),
            ("GET", 6, ["managedclusters", _, "agentpools", _, "upgradeprofiles", "default"]) => {
                of(K::PoolUpgradeProfile, 3, 7, 9)
            }
            ("GET", 6, ["managedclusters", _, "upgradeprofiles", "default"]) => of(K::ClusterUpgradeProfile, 3, 7, 0),
            ("GET", 6, ["managedclusters", _, "availableagentpoolversions"]) => of(K::AvailableVersions, 3, 7, 0),
            ("GET", 6, ["managedclusters", _, "maintenanceconfigurations"]) => of(K::ListMaintenance, 3, 7, 0),
            ("GET", 6, ["managedclusters", _, "maintenanceconfigurations", _]) => of(K::GetMaintenance, 3, 7, 9),
            ("PUT", 6, ["managedclusters", _, "maintenanceconfigurations", _]) => of(K::PutMaintenance, 3, 7, 9),
            ("DELETE", 6, ["managedclusters", _, "maintenanceconfigurations", _]) => of(K::DeleteMaintenance, 3, 7, 9),
            ("GET", 6, ["managedclusters", _, "operations", _]) => of(K::GetClusterOperation, 3, 7, 9),
            _ => None,
        }
    }
}

/// The pairs of a query, percent-decoded; `None` if it is malformed.
pub(crate) fn pairs(query: &str) -> Option<Vec<(String, String)>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key)?, decode(value)?))
        })
        .collect()
}

/// Percent-decodes a text.
fn decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
                rest = after;
            }
            (b'%', _) => return None,
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aks_wire_9_paths_are_read_without_regard_to_case() {
        let path = "/Subscriptions/s/resourcegroups/G/providers/microsoft.containerservice/managedclusters/C1/abort";
        let call = Call::read("POST", path).expect(path);
        assert_eq!((call.kind, call.group.as_str(), call.cluster.as_str()), (CallKind::AbortCluster, "G", "C1"));
        assert_eq!(Call::read("PATCH", path), None);
        assert_eq!(Call::read("GET", "/subscriptions/s"), None);
        assert_eq!(Call::read("POST", &path.replace("C1", "C%2F1")), None);
    }

    #[test]
    fn query_keys_may_be_percent_encoded() {
        let expect = vec![("api-version".to_owned(), "2025-10-01".to_owned())];
        assert_eq!(pairs("api%2Dversion=2025%2d10-01"), Some(expect));
        assert_eq!(pairs("a=%zz"), None);
    }
}
