//! Answers that say no: the two shapes of error bodies, and AKS's codes and texts (`aks-wire.md` §8,
//! `behaviour.md` D4).

use flotta_model::{KubernetesVersion, NodeImage};
use serde_json::{Value, json};

/// An error answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) author: Author,
    pub(crate) target: Option<&'static str>,
    pub(crate) retry_after: Option<u64>,
}

/// Who says no; it decides the shape of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// The ARM front end itself.
    Gateway,
    /// The ARM front end, about the service behind it.
    GatewayOnService,
    /// AKS.
    Service,
}

impl Refusal {
    pub(crate) fn service(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), author: Author::Service, target: None, retry_after: None }
    }

    pub(crate) fn gateway(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { author: Author::Gateway, ..Self::service(status, code, message) }
    }

    pub(crate) fn body(&self) -> Value {
        match (self.author, self.status, self.target) {
            (Author::Gateway | Author::GatewayOnService, ..) => {
                json!({"error": {"code": self.code, "message": self.message}})
            }
            (Author::Service, 500, _) => json!({"code": self.code, "message": self.message}),
            (Author::Service, 404, _) => json!({
                "code": self.code,
                "details": [{"code": "Unspecified", "message": "rpc error: code = NotFound desc = not found"}],
                "message": self.message,
                "subcode": "",
            }),
            (Author::Service, _, None) => {
                json!({"code": self.code, "details": null, "message": self.message, "subcode": ""})
            }
            (Author::Service, _, Some(target)) => {
                json!({"code": self.code, "details": null, "message": self.message, "subcode": "", "target": target})
            }
        }
    }

    /// What `x-ms-failure-cause` says, where the header is sent.
    pub(crate) fn cause(&self) -> Option<&'static str> {
        match (self.author, self.status) {
            (Author::Gateway, _) => Some("gateway"),
            (Author::GatewayOnService, _) | (Author::Service, 500..) => Some("service"),
            (Author::Service, _) => None,
        }
    }
}

pub(crate) fn no_cluster(name: &str, group: &str) -> Refusal {
    let message = format!(
        "The Resource 'Microsoft.ContainerService/managedClusters/{name}' under resource group '{group}' was not found. \
         For more details please go to https://aka.ms/ARMResourceNotFoundFix"
    );
    Refusal::gateway(404, "ResourceNotFound", message)
}

pub(crate) fn no_entity(what: &str) -> Refusal {
    Refusal::service(404, "NotFound", format!("Could not find {what}."))
}

pub(crate) fn bad_parameter(target: &'static str, reason: impl std::fmt::Display) -> Refusal {
    let message = format!("The value of parameter {target} is invalid. Error details: {reason}.");
    Refusal { target: Some(target), ..Refusal::service(400, "InvalidParameter", message) }
}

pub(crate) fn busy(word: &str) -> Refusal {
    let message = format!(
        "Operation is not allowed: Another operation ({word}) is in progress, please wait for it to finish before starting \
         a new operation. See https://aka.ms/aks-pending-operation for more details"
    );
    Refusal::service(409, "OperationNotAllowed", message)
}

pub(crate) fn busy_pool(pool: &str, word: &str) -> Refusal {
    let message = format!(
        "Operation is not allowed: Another agentpool operation ({pool} - {word}) is in progress, please wait for it to \
         finish before starting a new operation. See https://aka.ms/aks-pending-operation for more details"
    );
    Refusal::service(409, "OperationNotAllowed", message)
}

pub(crate) fn stopped() -> Refusal {
    let message = "Operation is not allowed: the managed cluster is in power state Stopped, please start it first";
    Refusal::service(409, "OperationNotAllowed", message)
}

pub(crate) fn etag_mismatch() -> Refusal {
    let message = "The etag of the request does not match the resource's present etag, please read it again";
    Refusal::service(412, "EtagMismatch", message)
}

pub(crate) fn not_an_upgrade(
    from: KubernetesVersion,
    to: KubernetesVersion,
    upgrades: &[KubernetesVersion],
) -> Refusal {
    let listed = upgrades.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let verb = if to < from { "Downgrading" } else { "Upgrading" };
    let message = format!("{verb} Kubernetes version {from} to {to} is not allowed. Available upgrades: [{listed}].");
    Refusal::service(409, "OperationNotAllowed", message)
}

const LIST: &str = "[az aks get-versions] command to get the supported version list in this region. For more information, \
                    please check https://aka.ms/supported-version-list";

pub(crate) fn not_in_region(cluster: &str, version: &str) -> Refusal {
    let message = format!("Managed cluster {cluster} has invalid version {version}. Please use {LIST}");
    Refusal::service(400, "K8sVersionNotSupported", message)
}

pub(crate) fn long_term_support_only(cluster: &str, version: KubernetesVersion) -> Refusal {
    let message = format!(
        "Managed cluster {cluster} is on version {version}, which is only available for Long-Term Support (LTS). If you \
         intend to onboard to LTS, please ensure the cluster is in Premium tier and LTS support plan (see \
         https://aka.ms/aks/enable-lts). Otherwise, use {LIST}"
    );
    Refusal::service(400, "K8sVersionNotSupported", message)
}

pub(crate) fn pool_not_in_region(version: &str) -> Refusal {
    let message = format!("Version {version} is not supported in this region. Please use {LIST}");
    Refusal::service(400, "AgentPoolK8sVersionNotSupported", message)
}

pub(crate) fn pool_skips_minors(from: KubernetesVersion, to: KubernetesVersion) -> Refusal {
    let message = format!(
        "Upgrade agent pool version from {from} to {to} is not allowed, you can only upgrade one minor version at a time"
    );
    Refusal { target: Some("agentPoolProfile.orchestratorVersion"), ..Refusal::service(400, "BadRequest", message) }
}

pub(crate) fn pool_downgrade(from: KubernetesVersion, to: KubernetesVersion) -> Refusal {
    let message = format!("Downgrading agent pool version from {from} to {to} is not allowed");
    Refusal { target: Some("agentPoolProfile.orchestratorVersion"), ..Refusal::service(400, "BadRequest", message) }
}

pub(crate) fn pool_skew(pool: &str, version: KubernetesVersion, control_plane: KubernetesVersion) -> Refusal {
    let message = format!(
        "Node pool {pool} version {version} and control plane version {control_plane} are incompatible. The version of a \
         node pool must not be above the control plane's, nor more than three minors below it. For more information, \
         please check https://aka.ms/aks/NodePoolMcVersionIncompatible"
    );
    Refusal::service(400, "NodePoolMcVersionIncompatible", message)
}

pub(crate) fn image_cannot_be_pinned() -> Refusal {
    let message = "Changing property 'properties.nodeImageVersion' is not allowed.";
    Refusal {
        target: Some("properties.nodeImageVersion"),
        ..Refusal::service(400, "PropertyChangeNotAllowed", message)
    }
}

pub(crate) fn image_downgrade(from: &NodeImage, to: &NodeImage) -> Refusal {
    let message = format!("Downgrading agent pool node image version from {from} to {to} is not allowed");
    Refusal { target: Some("agentPoolProfile.nodeImageVersion"), ..Refusal::service(400, "BadRequest", message) }
}

pub(crate) fn image_not_in_region(pool: &str, image: &NodeImage) -> Refusal {
    let message = format!("Node image version {image} for agent pool {pool} is not available in this region");
    Refusal::service(400, "NodeImageVersionNotAvailable", message)
}

pub(crate) fn image_too_old(pool: &str, image: &NodeImage) -> Refusal {
    let message = format!(
        "Failed to reconcile agent pool {pool}: ConfigurationVersion {} is not supported for AgentBaker. Please upgrade \
         agent pool to the latest NodeImageVersion",
        image.version()
    );
    Refusal::service(400, "ReconcileVMSSAgentPoolFailed", message)
}

pub(crate) fn control_plane_only_with_channel() -> Refusal {
    let message = "All agent pools' orchestrator versions must be specified and unchanged in a control plane upgrade of a \
                   cluster with an auto upgrade channel, which is not possible; upgrade the pools too";
    Refusal::service(400, "NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged", message)
}

pub(crate) fn new_pool_in_cluster_write() -> Refusal {
    let message = "A new agent pool was introduced. Adding agent pools to an existing cluster is not allowed through managed \
                   cluster operations. For agent pool specific change, please use per agent pool operations: \
                   https://aka.ms/agent-pool-rest-api";
    Refusal { target: Some("agentPoolProfiles"), ..Refusal::service(400, "BadRequest", message) }
}

pub(crate) fn nothing_to_abort() -> Refusal {
    let message = "Operation is not allowed: there is no operation in progress that could be aborted";
    Refusal::service(409, "OperationNotAllowed", message)
}

pub(crate) fn throttled(handler: &str, what: &str, seconds: u64) -> Refusal {
    let message =
        format!("The {handler} request limit has been exceeded for {what}, please retry again in {seconds} seconds");
    Refusal { retry_after: Some(seconds), ..Refusal::service(429, "Throttled", message) }
}
