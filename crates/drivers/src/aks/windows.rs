//! The maintenance windows of a cluster, from its maintenance configurations (`behaviour.md` C1).
//!
//! One read gives both kinds. The configuration `default` is about AKS's own releases and counts for no upgrade. What
//! cannot be read holds the cluster: a window is never taken to be open because nobody understands it.

use std::sync::PoisonError;

use flotta_model::{ClusterId, Hold, MaintenanceWindow, WindowKind};
use jiff::SignedDuration;
use serde_json::Value;

use super::{AksDriver, call, call::Effort, other};
use crate::Trouble;

/// How long the windows of a cluster are remembered, in domain time.
const REMEMBER: SignedDuration = SignedDuration::from_mins(15);

/// Clusters whose windows are remembered at most.
const MOST_CLUSTERS: usize = 16_384;

/// Pages of maintenance configurations that are read at most.
const MOST_PAGES: usize = 20;

/// The windows of a cluster, one a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    auto_upgrade: Option<MaintenanceWindow>,
    node_os: Option<MaintenanceWindow>,
}

impl Windows {
    fn of(&self, kind: WindowKind) -> Option<MaintenanceWindow> {
        match kind {
            WindowKind::AutoUpgrade => self.auto_upgrade.clone(),
            WindowKind::NodeOs => self.node_os.clone(),
        }
    }
}

impl AksDriver {
    /// The window for a kind of upgrade.
    pub(super) async fn window_of(
        &self,
        id: &ClusterId,
        kind: WindowKind,
    ) -> Result<Option<MaintenanceWindow>, Trouble> {
        let now = self.caller.clock.now();
        {
            let known = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, windows)) = known.get(id.key())
                && now.duration_since(*at) < REMEMBER
            {
                return Ok(windows.of(kind));
            }
        }
        let windows = Windows::default();
        if let Some(name) = self.maintenance(id).await?.iter().find_map(|each| scheduled(each)) {
            let detail = format!("its maintenance configuration {name} cannot be read yet");
            return Err(Trouble::Wait(Hold::Unreachable(detail)));
        }
        let mut known = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_CLUSTERS {
            known.clear();
        }
        known.insert(id.key().to_owned(), (now, windows.clone()));
        Ok(windows.of(kind))
    }

    /// The cluster's maintenance configurations.
    async fn maintenance(&self, id: &ClusterId) -> Result<Vec<Value>, Trouble> {
        let mut url = self.caller.path(id, "/maintenanceConfigurations");
        let mut all = Vec::new();
        for _ in 0..MOST_PAGES {
            let mut page = self.caller.read(&url, &other(id), Effort::Patient).await?;
            let next = page["nextLink"].as_str().and_then(|link| self.caller.own(link));
            match page["value"].take() {
                Value::Array(values) if !values.is_empty() => all.extend(values),
                _ => return Ok(all),
            }
            match next {
                Some(next) => url = next,
                None => return Ok(all),
            }
        }
        Err(call::retry("the cluster lists more maintenance configurations than anybody has", None))
    }
}

fn scheduled(configuration: &Value) -> Option<&str> {
    let name = configuration["name"].as_str()?;
    ["aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(name))
}
