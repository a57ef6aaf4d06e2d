//! What went wrong for good, in the provider's words and with what we know of the way out (`behaviour.md` D4, E4).

use flotta_model::Fault;

use super::errors::contains;

/// Between the provider's message and our hint.
const HINT: &str = " Hint: ";

/// Pod disruption budgets that are named at most.
const MOST_BUDGETS: usize = 3;

/// A fault in the provider's words, with what we know of the way out. Where there is too much to say, the message is
/// cut, not the hint.
pub(super) fn fault(code: &str, message: &str) -> Fault {
    let Some(hint) = hint(code, message) else { return Fault::new(code, message.trim()) };
    let room = Fault::LONGEST.saturating_sub(HINT.len() + hint.chars().count() + 3);
    let mut text: String = message.trim().chars().take(room).collect();
    if text.chars().count() == room {
        text.push('…');
    }
    let end = if text.is_empty() || text.ends_with(['.', '!', '…']) { "" } else { "." };
    Fault::new(code, format!("{text}{end}{HINT}{hint}.").trim())
}

/// The same, of something that went wrong in a pool: that is named, by `pool` or by the node in the message.
pub(super) fn fault_in(pool: Option<&str>, code: &str, message: &str) -> Fault {
    match pool.or_else(|| pool_of_node(message)) {
        Some(pool) => fault(code, &format!("pool '{pool}': {message}")),
        None => fault(code, message),
    }
}

/// The pool of the node that a message speaks of: nodes are called `aks-<pool>-<8 digits>-vmss<number>`.
pub(super) fn pool_of_node(message: &str) -> Option<&str> {
    message.split([' ', ',', ':', '\'', '"']).find_map(|word| {
        let (pool, rest) = word.strip_prefix("aks-")?.split_once('-')?;
        let (number, machine) = rest.split_once('-')?;
        let digits = number.len() == 8 && number.bytes().all(|byte| byte.is_ascii_digit());
        let named = !pool.is_empty() && pool.len() <= 12 && pool.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (digits && named && machine.starts_with("vmss")).then_some(pool)
    })
}

/// What helps, by code or by a part of the message. The first that fits is given.
fn hint(code: &str, message: &str) -> Option<String> {
    let fits = |sign: &str| code.eq_ignore_ascii_case(sign) || contains(message, sign);
    if DISRUPTION.into_iter().any(fits) {
        return Some(disruption(&budgets(message)));
    }
    HINTS.iter().find(|(sign, _)| fits(sign)).map(|(_, hint)| (*hint).to_owned())
}

/// Signs that pods were not let go.
const DISRUPTION: [&str; 4] = ["UnsatisfiablePDB", "PodDrainFailure", "disruption budget", "blocked by pdb"];

fn disruption(budgets: &[String]) -> String {
    let who = match budgets {
        [] => "a pod disruption budget lets".to_owned(),
        [one] => format!("pod disruption budget {one} lets"),
        more => format!("pod disruption budgets {} let", more.join(", ")),
    };
    format!(
        "{who} no pod go: allow at least one disruption or add replicas, then try again; the upgrade resumes where it stopped"
    )
}

/// The budgets that a message names, as `namespace/name`: "shop/web-0 blocked by pdb web", or "PDB shop/web has
/// minAvailable(1) >= expectedPods(1)".
fn budgets(message: &str) -> Vec<String> {
    let name = |text: &str| -> Option<String> {
        let name = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let fits = (1..=253).contains(&name.len());
        (fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))).then(|| name.into())
    };
    let words: Vec<&str> = message.split_whitespace().collect();
    let mut budgets: Vec<String> = Vec::new();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| word.eq_ignore_ascii_case("pdb")) {
        let Some(next) = words.get(at + 1) else { continue };
        let blocked = at >= 3 && words[at - 1] == "by" && words[at - 2] == "blocked";
        let found = match next.split_once('/') {
            Some((namespace, budget)) => name(namespace).zip(name(budget)),
            None if blocked => words[at - 3].split_once('/').and_then(|(namespace, _)| name(namespace).zip(name(next))),
            None => None,
        };
        let Some((namespace, budget)) = found else { continue };
        let named = format!("{namespace}/{budget}");
        if !budgets.contains(&named) {
            budgets.push(named);
        }
        if budgets.len() == MOST_BUDGETS {
            break;
        }
    }
    budgets
}

const CAPACITY: &str = "free or ask for capacity or quota in the region, or lower the pool's maxSurge, then try again";
const SIZE: &str = "the node size is not to be had in this region or zone: choose another, or ask for access to it";
const SUBNET: &str =
    "the subnet has no free addresses for surge nodes: enlarge it, or set maxSurge to 0 and maxUnavailable to 1";
const REMOVED_API: &str = "workloads still use API versions that the target has removed: move them, or set upgradeSettings.overrideSettings on the cluster";
const SKEW: &str = "bring the cluster up one minor version at a time: run to the minor in between first";
const WITHDRAWN: &str = "the region does not offer the version any more: choose one that it lists";

/// Signs in order: what names a cause comes before what names a symptom.
const HINTS: &[(&str, &str)] = &[
    (
        "not supported for AgentBaker",
        "the node image is too old for this: run NodeImageOnly to Latest on the cluster first",
    ),
    (
        "nodeImageVersion' is not allowed",
        "the provider lets nobody choose a node image but the newest: use Latest, or acceptNewer",
    ),
    (
        "TooManyRequests",
        "the subscription calls its compute provider too often; wait some minutes and try again, with fewer clusters at once",
    ),
    (
        "Long-Term Support",
        "the version is for long-term support only: the cluster needs the Premium tier and the support plan AKSLongTermSupport",
    ),
    ("QuotaExceeded", CAPACITY),
    ("ErrCode_InsufficientVCPUQuota", CAPACITY),
    ("Insufficient vcpu quota", CAPACITY),
    ("exceeding approved", CAPACITY),
    ("exceeding quota", CAPACITY),
    ("AllocationFailed", CAPACITY),
    ("ZonalAllocationFailed", CAPACITY),
    ("OverconstrainedAllocationRequest", CAPACITY),
    ("OverconstrainedZonalAllocationRequest", CAPACITY),
    ("SKUNotAvailable", SIZE),
    ("SubnetIsFull", SUBNET),
    ("InsufficientSubnetSize", SUBNET),
    (
        "RequestDisallowedByPolicy",
        "an Azure policy forbids the change: exempt the cluster's node resource group, or change the policy",
    ),
    ("ScopeLocked", "a resource lock forbids the change: remove it for the time of the upgrade"),
    ("UpgradeBlockedOnDeprecatedAPIUsage", REMOVED_API),
    ("deprecated API", REMOVED_API),
    (
        "NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged",
        "the cluster upgrades itself, so its control plane cannot go alone: use Full, or switch its auto-upgrade off",
    ),
    (
        "NodePoolMcVersionIncompatible",
        "a pool would be too far behind its control plane: upgrade the pools first, with Full to their control plane's version",
    ),
    ("Available upgrades", SKEW),
    ("one minor version at a time", SKEW),
    ("K8sVersionNotSupported", WITHDRAWN),
    ("AgentPoolK8sVersionNotSupported", WITHDRAWN),
    ("Canceled", "somebody aborted the operation; try again to finish it, since nothing is rolled back"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_faults_that_have_a_known_way_out_name_it() {
        let quota =
            "Operation could not be completed as it results in exceeding approved standardDSv3Family Cores quota.";
        let cases = [
            ("UnsatisfiablePDB", "m", "disruption budget"),
            ("UpgradeFailed", "it would violate the pod's disruption budget.", "disruption budget"),
            ("QuotaExceeded", "m", "quota"),
            ("OperationNotAllowed", quota, "quota"),
            ("ErrCode_InsufficientVCPUQuota", "Insufficient vcpu quota requested 2, remaining 0", "quota"),
            ("AllocationFailed", "m", "capacity"),
            ("SkuNotAvailable", "m", "node size"),
            ("SubnetIsFull", "m", "subnet"),
            ("RequestDisallowedByPolicy", "m", "policy"),
            ("ScopeLocked", "m", "lock"),
            ("X", "ConfigurationVersion 2 is not supported for AgentBaker.", "NodeImageOnly to Latest"),
            ("X", "Changing property 'properties.nodeImageVersion' is not allowed.", "use Latest"),
            ("K8sVersionNotSupported", "only for Long-Term Support (LTS)", "Premium tier"),
            ("NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged", "m", "use Full"),
            ("UpgradeBlockedOnDeprecatedAPIUsage", "m", "overrideSettings"),
            ("NodePoolMcVersionIncompatible", "m", "pools first"),
            ("OperationNotAllowed", "Available upgrades: [1.29.7]", "one minor version"),
        ];
        for (code, message, part) in cases {
            let fault = fault(code, message);
            let (said, hint) = fault.message.split_once(HINT).unwrap_or_else(|| panic!("{code} has no hint"));
            assert!(said.starts_with(message) && hint.contains(part), "{code}: {fault}");
        }
        assert_eq!(fault("Unheard", "of"), Fault::new("Unheard", "of"));
        for code in ["QuotaExceeded", "UnsatisfiablePDB"] {
            let budget = format!("PDB {}/{} has maxUnavailable == 0 ", "n".repeat(63), "b".repeat(253));
            let long = fault(code, &format!("{budget}{}", "é".repeat(10_000))).message;
            let fits = long.chars().count() <= Fault::LONGEST && long.contains("… Hint: ") && long.ends_with('.');
            assert!(fits, "a long message leaves room for the hint: {long}");
        }
    }

    #[test]
    fn e57_the_hint_names_the_budgets_with_their_namespaces() {
        let drain = "Drain node aks-web-12345678-vmss000001 failed when evicting pod web-0 failed with Too Many Requests error. \
                     Original error: Cannot evict pod as it would violate the pod's disruption budget.. PDB debug info: \
                     shop/web-0 blocked by pdb web-pdb with 1 unready pods: [shop/web-0].";
        let old = "identity/webhook-749b9d5cc8-2chl9 blocked by pdb webhook with unready pods [].";
        let checked = "Upgrade is blocked due to invalid Pod Disruption Budgets (PDBs). Please review the PDB spec to allow \
                       disruptions. Invalid PDBs details: 3 errors occurred:\n\t* PDB ns/a has minAvailable(1) >= \
                       expectedPods(1)  can't proceed with put operation\n\t* PDB ns/a has minAvailable(1) >= \
                       expectedPods(1)  can't proceed with put operation\n\t* PDB other/b.c has maxUnavailable == 0 can't \
                       proceed with put operation";
        let cases = [
            ("UpgradeFailed", drain, "pod disruption budget shop/web-pdb lets no pod go"),
            ("UpgradeFailed", old, "pod disruption budget identity/webhook lets no pod go"),
            ("UnsatisfiablePDB", checked, "pod disruption budgets ns/a, other/b.c let no pod go"),
            ("UnsatisfiablePDB", "PDB", "a pod disruption budget lets no pod go"),
            ("UnsatisfiablePDB", "the PDB spec/ and blocked by pdb x", "a pod disruption budget lets no pod go"),
        ];
        for (code, message, expected) in cases {
            let fault = fault(code, message);
            assert!(fault.message.contains(&format!("{HINT}{expected}: ")), "{fault}");
        }
    }

    #[test]
    fn e57_the_pool_is_named_by_the_step_or_by_the_node() {
        let node = |message: &str| fault_in(None, "UpgradeFailed", message).message;
        assert!(node("Drain node aks-web-12345678-vmss00000a failed").starts_with("pool 'web': Drain node"));
        for other in ["aks-web failed", "aks-web-1-vmss1", "aks-web-12345678-x", "see aks-pending-operation", ""] {
            assert!(!node(other).contains("pool '"), "{other}");
        }
        assert_eq!(fault_in(Some("win"), "X", "m").message, "pool 'win': m");
    }
}
