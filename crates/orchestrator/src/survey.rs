//! The survey of a fleet: what its clusters run and what their regions offer, for those who judge without a run.
//! Nothing is changed and nothing is claimed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flotta_drivers::{Look, Trouble};
use flotta_model::{Catalogue, Cluster, ClusterId, Hold};
use futures::{StreamExt, future, stream};
use jiff::{SignedDuration, Timestamp};

use crate::{Error, Orchestrator, Shared, check::MOST_LOOKS};

/// What was seen of one cluster, or why nothing was.
pub type Seen = Result<Arc<Cluster>, Hold>;

/// What a survey found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The clusters that were asked for, in their order.
    pub clusters: Vec<Seen>,
    /// The versions of the regions of those that were seen; a region that could not be read is not there.
    pub regions: BTreeMap<String, Arc<Catalogue>>,
}

/// Times a cluster is asked before it counts as out of reach, and the pause between them (domain time).
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);

/// What surveys remember of clusters.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<Box<str>, Sighting>>);

/// A cluster, and when it was seen; `None`: when it was moved, and what was seen before is not to be remembered.
type Sighting = (Timestamp, Option<Arc<Cluster>>);

impl Memory {
    /// Clusters that are remembered at most.
    const MOST: usize = 200_000;

    fn recall(&self, cluster: &ClusterId, since: Timestamp) -> Option<Arc<Cluster>> {
        let known = self.lock();
        let (_, seen) = known.get(cluster.key()).filter(|(at, _)| *at >= since)?;
        seen.clone()
    }

    fn keep(&self, cluster: &ClusterId, asked: Timestamp, seen: &Arc<Cluster>) {
        let mut known = self.lock();
        if known.len() >= Self::MOST {
            known.clear();
        }
        let moved_since = known.get(cluster.key()).is_some_and(|(at, _)| *at > asked);
        if !moved_since {
            known.insert(cluster.key().into(), (asked, Some(Arc::clone(seen))));
        }
    }

    /// These clusters were moved.
    pub fn forget<'a>(&self, clusters: impl Iterator<Item = &'a ClusterId>, now: Timestamp) {
        let mut known = self.lock();
        for cluster in clusters {
            if let Some(sighting) = known.get_mut(cluster.key()) {
                *sighting = (now, None);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Sighting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Orchestrator {
    /// Looks at clusters with their node images, and at their regions. What was seen less than `age` ago (domain time)
    /// is not looked at again. It takes as long as the provider's budgets ask for.
    pub async fn survey(&self, clusters: &[ClusterId], age: SignedDuration) -> Result<Survey, Error> {
        tokio::select! {
            survey = survey(&self.0, clusters, age) => Ok(survey),
            () = self.0.shutdown.cancelled() => Err(Error::ShuttingDown),
        }
    }
}

async fn survey(shared: &Shared, clusters: &[ClusterId], age: SignedDuration) -> Survey {
    let since = shared.clock.now().saturating_sub(age).unwrap_or(Timestamp::MIN);
    let looks: Vec<_> = clusters.iter().map(|cluster| look(shared, cluster, since)).collect();
    let clusters_seen: Vec<Seen> = stream::iter(looks).buffered(MOST_LOOKS).collect().await;
    let mut regions: BTreeMap<&str, &ClusterId> = BTreeMap::new();
    for (seen, cluster) in clusters_seen.iter().zip(clusters) {
        if let Ok(seen) = seen {
            regions.entry(&seen.location).or_insert(cluster);
        }
    }
    let catalogues: Vec<_> = regions.into_iter().map(|(region, cluster)| catalogue(shared, region, cluster)).collect();
    let regions = stream::iter(catalogues).buffered(MOST_LOOKS).filter_map(future::ready).collect().await;
    Survey { clusters: clusters_seen, regions }
}

async fn catalogue(shared: &Shared, region: &str, cluster: &ClusterId) -> Option<(String, Arc<Catalogue>)> {
    match shared.driver(cluster)?.catalogue(cluster, region).await {
        Ok(catalogue) => Some((region.to_owned(), catalogue)),
        Err(trouble) => {
            tracing::info!(region, %trouble, "the versions of a region cannot be read");
            None
        }
    }
}

async fn look(shared: &Shared, cluster: &ClusterId, since: Timestamp) -> Seen {
    if let Some(known) = shared.surveyed.recall(cluster, since) {
        return Ok(known);
    }
    let driver = shared.driver(cluster).ok_or(Hold::NoDriver)?;
    // Nobody closes it: there is always a turn in the end.
    let _turn = shared.looks.acquire().await;
    let mut tries = 1;
    loop {
        let asked = shared.clock.now();
        let lasting = match driver.observe(cluster, Look { images: true, ..Look::default() }).await {
            Ok(seen) => {
                let seen = Arc::new(seen);
                shared.surveyed.keep(cluster, asked, &seen);
                return Ok(seen);
            }
            Err(Trouble::Wait(hold)) => return Err(hold),
            Err(Trouble::Permanent(fault)) => return Err(Hold::Unreachable(fault.to_string())),
            Err(Trouble::Retry { lasting, .. }) => lasting,
            Err(Trouble::Unknown(detail)) => Hold::Unreachable(detail),
        };
        if tries >= TRIES {
            return Err(lasting);
        }
        shared.clock.pause(PAUSE).await;
        tries += 1;
    }
}
