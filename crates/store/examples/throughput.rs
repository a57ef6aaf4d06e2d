//! How many durable commits a second the SQL store takes from 64 concurrent committers.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flotta_store::{Append, Batch, SqlStore, Store, StoreError};
use jiff::Timestamp;
use uuid::Uuid;

const COMMITTERS: usize = 64;
const LENGTH: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let store = Arc::new(SqlStore::open_sqlite(dir.path()).await?);
    let started = Instant::now();
    let committers: Vec<_> = (0..COMMITTERS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { commit_until(&*store, started + LENGTH).await })
        })
        .collect();
    let mut commits = 0;
    let mut slowest = Duration::ZERO;
    for committer in committers {
        let (count, longest) = committer.await??;
        commits += count;
        slowest = slowest.max(longest);
    }
    let rate = commits as f64 / started.elapsed().as_secs_f64();
    println!("{COMMITTERS} committers: {commits} commits, {rate:.0} commits/s, slowest {slowest:?}");
    Ok(())
}

/// Appends one entry a commit to a journal of its own; returns how many, and how long the slowest took.
async fn commit_until(store: &dyn Store, until: Instant) -> Result<(u64, Duration), StoreError> {
    let journal = Uuid::now_v7();
    let body = format!("{{\"event\":\"{}\"}}", "x".repeat(300));
    let (mut after, mut slowest) = (0, Duration::ZERO);
    while Instant::now() < until {
        let entries = vec![(Timestamp::now(), body.clone())];
        let batch = Batch { appends: vec![Append { journal, after, entries }], ..Batch::default() };
        let started = Instant::now();
        store.commit(batch).await?;
        slowest = slowest.max(started.elapsed());
        after += 1;
    }
    Ok((after, slowest))
}
