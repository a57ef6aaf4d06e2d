//! The maintenance windows of a cluster, from its maintenance configurations (`behaviour.md` C1).
//!
//! One read gives both kinds. The configuration `default` is about AKS's own releases and counts for no upgrade. What
//! cannot be read holds the cluster: a window is never taken to be open because nobody understands it.

mod body;

use std::sync::PoisonError;

use flotta_model::{ClusterId, Hold, MaintenanceWindow, WindowKind};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::body::Unreadable;
use super::{AksDriver, call::Effort, other};
use crate::Trouble;

/// How long the windows of a cluster are remembered, in domain time.
const REMEMBER: SignedDuration = SignedDuration::from_mins(15);

/// Clusters whose windows are remembered at most.
const MOST_CLUSTERS: usize = 16_384;

/// Pages of maintenance configurations that are read at most.
const MOST_PAGES: usize = 20;

/// The windows of a cluster, one a kind.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    auto_upgrade: Result<Option<MaintenanceWindow>, Unreadable>,
    node_os: Result<Option<MaintenanceWindow>, Unreadable>,
}

impl Windows {
    fn of(&self, kind: WindowKind) -> Result<Option<MaintenanceWindow>, Trouble> {
        let window = match kind {
            WindowKind::AutoUpgrade => &self.auto_upgrade,
            WindowKind::NodeOs => &self.node_os,
        };
        window.clone().map_err(|unreadable| held(unreadable.to_string()))
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
        if let Some(windows) = self.recall_windows(id, now) {
            return windows.of(kind);
        }
        let configurations = self.maintenance(id).await?;
        let cluster = match body::wants_zone(&configurations) {
            true => self.cluster_body(id, Effort::Patient).await?,
            false => Value::Null,
        };
        let read = |kind| body::window(&configurations, kind, &cluster["tags"]);
        let windows = Windows { auto_upgrade: read(WindowKind::AutoUpgrade), node_os: read(WindowKind::NodeOs) };
        // What could not be read is read again as soon as it is asked for, so that a correction counts at once.
        if windows.auto_upgrade.is_ok() && windows.node_os.is_ok() {
            self.remember_windows(id, now, windows.clone());
        }
        windows.of(kind)
    }

    fn recall_windows(&self, id: &ClusterId, now: Timestamp) -> Option<Windows> {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, known) = windows.get(id.key())?;
        (now.duration_since(*at) < REMEMBER).then(|| known.clone())
    }

    fn remember_windows(&self, id: &ClusterId, now: Timestamp, seen: Windows) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= MOST_CLUSTERS && !windows.contains_key(id.key()) {
            windows.clear();
        }
        windows.insert(id.key().to_owned(), (now, seen));
    }

    /// The cluster's maintenance configurations, all of them: one that was left out might be the one that closes it.
    async fn maintenance(&self, id: &ClusterId) -> Result<Vec<Value>, Trouble> {
        let mut url = self.caller.path(id, "/maintenanceConfigurations");
        let mut all = Vec::new();
        for _ in 0..MOST_PAGES {
            let mut page = self.caller.read(&url, &other(id), Effort::Patient).await?;
            match page["value"].take() {
                Value::Array(values) => all.extend(values),
                _ => return Err(held("the list of its maintenance configurations cannot be read: value: not a list")),
            }
            url = match page["nextLink"].as_str() {
                None | Some("") => return Ok(all),
                Some(link) => self.caller.own(link).ok_or_else(|| {
                    held("the list of its maintenance configurations goes on at another host, where flotta does not follow")
                })?,
            };
        }
        Err(held("the list of its maintenance configurations does not end"))
    }
}

fn held(detail: impl Into<String>) -> Trouble {
    Trouble::Wait(Hold::WindowUnreadable(detail.into()))
}

#[cfg(test)]
mod tests {
    use flotta_clock::Clock;
    use tower::service_fn;

    use super::*;
    use crate::{
        aks::{AksConfig, Reach},
        token::{TokenSource, Tokens},
        transport::{Transport, TransportError},
    };

    #[test]
    fn windows_are_remembered_of_so_many_clusters_at_most() {
        let transport = Transport::new(service_fn(|_| async { Err(TransportError::NotSent("nobody there".into())) }));
        let tokens = Tokens::new(TokenSource::None, "r", transport.clone());
        let config = AksConfig::new("http://localhost:9", Reach::Everything);
        let driver = AksDriver::new(config, transport, tokens, Clock::system()).expect("driver");
        let (now, windows) = (Timestamp::UNIX_EPOCH, Windows { auto_upgrade: Ok(None), node_os: Ok(None) });
        let id = |number: usize| -> ClusterId {
            let name = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";
            format!("{name}{number}").parse().expect("id")
        };
        for number in 0..=MOST_CLUSTERS {
            driver.remember_windows(&id(number), now, windows.clone());
        }
        assert!(driver.windows.lock().expect("windows").len() <= MOST_CLUSTERS);
        assert!(driver.recall_windows(&id(MOST_CLUSTERS), now).is_some(), "the last one is there");
    }
}
