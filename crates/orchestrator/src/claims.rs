//! Who has which cluster. One operation at a time on a cluster, whichever run asks: the truth is in the store, where a
//! claim can only be put where none is; this is the copy that is asked first, and that wakes those who wait, in order.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use uuid::Uuid;

/// A run that has a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The run.
    pub run: Uuid,
    /// The run, as people know it.
    pub label: Arc<str>,
}

/// Since when a run has a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Since this call.
    Now,
    /// Since an earlier one.
    Before,
}

/// All claims of this process.
#[derive(Default)]
pub struct Claims {
    entries: Mutex<HashMap<Box<str>, Entry>>,
}

#[derive(Default)]
struct Entry {
    holder: Option<Holder>,
    freed: Arc<Notify>,
    waiting: usize,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a cluster, or says who has it. Taking what one has already is fine, and not new.
    pub fn take(&self, cluster: &str, holder: &Holder) -> Result<Taken, Holder> {
        let mut entries = self.lock();
        let entry = entries.entry(cluster.into()).or_default();
        match &entry.holder {
            Some(other) if other.run != holder.run => Err(other.clone()),
            Some(_) => Ok(Taken::Before),
            None => {
                entry.holder = Some(holder.clone());
                Ok(Taken::Now)
            }
        }
    }

    /// Who else than `run` has a cluster.
    pub fn other_holder(&self, cluster: &str, run: Uuid) -> Option<Holder> {
        let entries = self.lock();
        entries.get(cluster)?.holder.clone().filter(|holder| holder.run != run)
    }

    /// Gives a cluster back, and wakes all who wait, in order: the first may have no slot, or nothing to do any more.
    pub fn free(&self, cluster: &str, run: Uuid) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(cluster) else { return };
        if entry.holder.as_ref().is_none_or(|holder| holder.run != run) {
            return;
        }
        entry.holder = None;
        entry.freed.notify_waiters();
        if entry.waiting == 0 {
            entries.remove(cluster);
        }
    }

    /// Returns when a cluster was given back; at once where nobody has it.
    pub async fn freed(&self, cluster: &str) {
        let freed = {
            let mut entries = self.lock();
            let entry = entries.entry(cluster.into()).or_default();
            entry.waiting += 1;
            Arc::clone(&entry.freed)
        };
        let _leave = Leave { claims: self, cluster };
        // From here on no waking is missed; what was given back before shows in the entry.
        let freed = freed.notified();
        if self.lock().get(cluster).is_some_and(|entry| entry.holder.is_some()) {
            freed.await;
        }
    }
}

/// A claim that is given back unless somebody keeps it: whoever is to keep it may never hear of it.
pub struct Offered(Option<(Arc<crate::Shared>, Box<str>, Uuid)>);

impl Offered {
    /// Takes a cluster for a run, or says who has it.
    pub(crate) fn take(shared: &Arc<crate::Shared>, cluster: &str, holder: &Holder) -> Result<Self, Holder> {
        Ok(match shared.claims.take(cluster, holder)? {
            Taken::Now => Self(Some((Arc::clone(shared), cluster.into(), holder.run))),
            Taken::Before => Self(None),
        })
    }

    /// The claim is to stay.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some((shared, cluster, run)) = self.0.take() {
            shared.claims.free(&cluster, run);
        }
    }
}

/// Stops waiting, also when the wait is given up.
struct Leave<'a> {
    claims: &'a Claims,
    cluster: &'a str,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut entries = self.claims.lock();
        if let Some(entry) = entries.get_mut(self.cluster) {
            entry.waiting -= 1;
            if entry.waiting == 0 && entry.holder.is_none() {
                entries.remove(self.cluster);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(run: Uuid) -> Holder {
        Holder { run, label: "fleet/run".into() }
    }

    #[tokio::test]
    async fn choice_one_cluster_in_two_runs_is_had_by_one_and_freeing_wakes_the_other() {
        let claims = Arc::new(Claims::default());
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(claims.take("c", &holder(one)), Ok(Taken::Now));
        assert_eq!(claims.take("c", &holder(one)), Ok(Taken::Before));
        assert_eq!(claims.take("c", &holder(other)).expect_err("taken").run, one);
        claims.free("c", other);
        assert!(claims.other_holder("c", other).is_some(), "only its holder frees a cluster");
        let waiting = tokio::spawn({
            let claims = Arc::clone(&claims);
            async move { claims.freed("c").await }
        });
        while claims.lock().get("c").is_none_or(|entry| entry.waiting == 0) {
            tokio::task::yield_now().await;
        }
        let another = tokio::spawn({
            let claims = Arc::clone(&claims);
            async move { claims.freed("c").await }
        });
        while claims.lock().get("c").is_none_or(|entry| entry.waiting < 2) {
            tokio::task::yield_now().await;
        }
        claims.free("c", one);
        waiting.await.expect("woken");
        another.await.expect("woken too: the first may not want it any more");
        claims.freed("c").await; // Nobody has it: there is nothing to wait for.
        assert!(claims.lock().is_empty(), "nothing is kept of clusters nobody has or wants");
    }
}
