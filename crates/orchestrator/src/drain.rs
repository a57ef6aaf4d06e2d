//! What outlives a run, or a process: claims, and operations whose run was deleted while they were under way.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use flotta_drivers::Operation;
use flotta_engine::Run;
use flotta_store::{Batch, Collection, Delete, Expect, Put};
use uuid::Uuid;

use crate::{
    Error, RunRef, Shared,
    claims::Holder,
    effects,
    journal::{self, InFlight},
};

/// An operation under way without a run.
pub struct Orphan {
    /// The key of its document.
    pub key: String,
    /// The run it belonged to.
    pub run: RunRef,
    /// The call.
    pub call: InFlight,
}

/// What becomes of a member's step when its run is deleted: if one is open, the document that keeps its way.
pub fn orphan(run: &Run, id: &RunRef, member: u32, operation: Option<&Operation>) -> Option<(Put, Orphan)> {
    let intent = crate::worker::intent(run, member, true)?;
    // Without an operation the state of the cluster tells when whatever was sent has ended.
    let operation = operation.cloned().unwrap_or(Operation { id: "unknown".into(), url: None });
    let call = InFlight { intent, operation, orphan: true };
    let key = journal::in_flight_key(id.id, member);
    let put = Put {
        collection: Collection::InFlight,
        key: key.clone(),
        parent: id.id.to_string(),
        body: journal::encode(&call).ok()?,
        etag: "orphan".into(),
        expect: Expect::Any,
    };
    Some((put, Orphan { key, run: id.clone(), call }))
}

/// Follows an orphan to its end, then gives its cluster back.
pub fn follow(shared: &Arc<Shared>, orphan: Orphan) {
    let shared = Arc::clone(shared);
    shared.clone().tasks.spawn(async move {
        let cluster = orphan.call.intent.cluster.key().to_owned();
        tokio::select! {
            _ = effects::poll_to_end(&shared, &orphan.call.intent, &orphan.call.operation) => {}
            () = shared.shutdown.cancelled() => return,
        }
        let delete = |collection, key| Delete { collection, key, expect: Expect::Any };
        let deletes = vec![delete(Collection::InFlight, orphan.key), delete(Collection::Claims, cluster.clone())];
        match shared.store.commit(Batch { deletes, ..Batch::default() }).await {
            Ok(()) => shared.claims.free(&cluster, orphan.run.id),
            Err(error) => tracing::warn!(run = %orphan.run.label, %error, "a claim could not be given back"),
        }
    });
}

/// Takes up the orphans of an earlier process.
pub async fn take_up_orphans(shared: &Arc<Shared>) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = shared.store.scan(Collection::InFlight, after, 1000).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.serial);
        for document in page {
            let call: InFlight = journal::decode(&document.body)?;
            if call.orphan {
                let run = RunRef {
                    id: document.parent.parse().unwrap_or(Uuid::nil()),
                    label: "deleted run".into(),
                    fleet: "".into(),
                };
                follow(shared, Orphan { key: document.key, run, call });
            }
        }
    }
}

/// Reads all claims. Those of runs that are gone, and that nothing is under way for, are dropped.
pub async fn recover_claims(shared: &Arc<Shared>) -> Result<(), Error> {
    let orphans = orphaned_clusters(shared).await?;
    // A plan can be large, and a run can have many claims: each run is looked for once.
    let mut living: HashMap<Uuid, bool> = HashMap::new();
    let mut after = None;
    loop {
        let page = shared.store.scan(Collection::Claims, after, 1000).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.serial);
        for document in page {
            let run: RunRef = journal::decode(&document.body)?;
            let lives = match living.get(&run.id) {
                Some(lives) => *lives,
                None => shared.store.get(Collection::Plans, &run.id.to_string()).await?.is_some(),
            };
            living.insert(run.id, lives);
            if lives || orphans.contains(&document.key) {
                let _ = shared.claims.take(&document.key, &Holder { run: run.id, label: run.label });
            } else {
                let delete = Delete { collection: Collection::Claims, key: document.key, expect: Expect::Any };
                shared.store.commit(Batch { deletes: vec![delete], ..Batch::default() }).await?;
            }
        }
    }
}

async fn orphaned_clusters(shared: &Shared) -> Result<HashSet<String>, Error> {
    let mut found = HashSet::new();
    let mut after = None;
    loop {
        let page = shared.store.scan(Collection::InFlight, after, 1000).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.serial);
        for document in page {
            let call: InFlight = journal::decode(&document.body)?;
            if call.orphan {
                found.insert(call.intent.cluster.key().to_owned());
            }
        }
    }
}
