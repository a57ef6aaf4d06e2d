//! What outlives the process: clusters as they last changed, and every accepted start.
//!
//! One task owns the database. It takes whatever waits and writes it in one durable commit, so that many starts share
//! one sync. A start is answered after its commit; should a commit fail, every write is answered with an error from
//! then on, since what the simulator shows may no longer be what it stored.

use std::{collections::HashMap, path::Path};

use jiff::Timestamp;
use sqlx::{
    Connection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous},
};
use tokio::sync::{mpsc, oneshot};

use crate::{record::Accepted, simulator::SimulatorError, state::ClusterState};

/// Writes that wait for the database at most; more callers wait for a place.
const QUEUE: usize = 4096;

/// Writes in one commit at most.
const BATCH: usize = 512;

/// The way to the database.
#[derive(Debug)]
pub(crate) struct Journal(mpsc::Sender<Write>);

/// One change of a cluster.
#[derive(Debug)]
pub(crate) struct Write {
    key: String,
    state: String,
    accepted: Option<(i64, String)>,
    done: oneshot::Sender<()>,
}

/// A place in the queue, taken before a cluster is changed.
pub(crate) type Place = mpsc::OwnedPermit<Write>;

/// What was found in the data folder.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) birth: Timestamp,
    pub(crate) clusters: HashMap<String, ClusterState>,
    pub(crate) accepted: Vec<Accepted>,
}

impl Journal {
    /// Opens the data folder, making it if needed.
    pub(crate) async fn open(folder: &Path, seed: u64, now: Timestamp) -> Result<(Self, Stored), SimulatorError> {
        std::fs::create_dir_all(folder).map_err(|error| {
            SimulatorError::Data(format!("the data folder {} cannot be made: {error}", folder.display()))
        })?;
        let options = SqliteConnectOptions::new()
            .filename(folder.join("simulator.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .locking_mode(SqliteLockingMode::Exclusive)
            .synchronous(SqliteSynchronous::Full);
        let mut database = SqliteConnection::connect_with(&options).await?;
        let stored = load(&mut database, seed, now).await?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(write(database, receiver));
        Ok((Self(sender), stored))
    }

    /// Waits for a place in the queue; none if the database is gone.
    pub(crate) async fn place(&self) -> Option<Place> {
        self.0.clone().reserve_owned().await.ok()
    }
}

impl Write {
    /// A write, and what resolves when it is durable.
    pub(crate) fn new(
        key: &str,
        state: &ClusterState,
        accepted: Option<&Accepted>,
    ) -> Option<(Self, oneshot::Receiver<()>)> {
        let (done, durable) = oneshot::channel();
        let accepted = match accepted {
            Some(accepted) => Some((i64::try_from(accepted.number).ok()?, serde_json::to_string(accepted).ok()?)),
            None => None,
        };
        let write = Self { key: key.to_owned(), state: serde_json::to_string(state).ok()?, accepted, done };
        Some((write, durable))
    }
}

async fn load(database: &mut SqliteConnection, seed: u64, now: Timestamp) -> Result<Stored, SimulatorError> {
    for table in [
        "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS clusters (key TEXT PRIMARY KEY, state TEXT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS accepted (number INTEGER PRIMARY KEY, entry TEXT NOT NULL)",
    ] {
        sqlx::query(table).execute(&mut *database).await?;
    }
    for (name, value) in [("birth", now.to_string()), ("seed", seed.to_string()), ("format", "1".to_owned())] {
        let insert = sqlx::query("INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING");
        insert.bind(name).bind(value).execute(&mut *database).await?;
    }
    let mut meta = HashMap::new();
    for row in sqlx::query("SELECT name, value FROM meta").fetch_all(&mut *database).await? {
        meta.insert(row.get::<String, _>(0), row.get::<String, _>(1));
    }
    let broken = |what: &str| {
        SimulatorError::Data(format!("the data folder holds {what} that cannot be read; use another folder"))
    };
    if meta.get("format").map(String::as_str) != Some("1") {
        return Err(broken("a format"));
    }
    if meta.get("seed") != Some(&seed.to_string()) {
        let theirs = meta.get("seed").cloned().unwrap_or_default();
        let reason = format!(
            "the data folder belongs to a fleet with seed {theirs}, not {seed}; use that seed or another folder"
        );
        return Err(SimulatorError::Data(reason));
    }
    let birth = meta.get("birth").and_then(|birth| birth.parse().ok()).ok_or_else(|| broken("a time of birth"))?;
    let mut clusters = HashMap::new();
    for row in sqlx::query("SELECT key, state FROM clusters").fetch_all(&mut *database).await? {
        let state = serde_json::from_str(row.get(1)).map_err(|_| broken("a cluster"))?;
        clusters.insert(row.get(0), state);
    }
    let mut accepted = Vec::new();
    for row in sqlx::query("SELECT entry FROM accepted ORDER BY number").fetch_all(&mut *database).await? {
        accepted.push(serde_json::from_str(row.get(0)).map_err(|_| broken("an accepted start"))?);
    }
    Ok(Stored { birth, clusters, accepted })
}

async fn write(mut database: SqliteConnection, mut receiver: mpsc::Receiver<Write>) {
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        if let Err(error) = commit(&mut database, &batch).await {
            tracing::error!(%error, "the simulator's data folder cannot be written; restart it when there is room again");
            return;
        }
        for write in batch.drain(..) {
            // The caller may have gone away; the write stands.
            let _ = write.done.send(());
        }
    }
    if let Err(error) = database.close().await {
        tracing::warn!(%error, "the simulator's database did not close cleanly");
    }
}

async fn commit(database: &mut SqliteConnection, batch: &[Write]) -> Result<(), sqlx::Error> {
    let mut transaction = database.begin().await?;
    for write in batch {
        let upsert =
            "INSERT INTO clusters (key, state) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET state = excluded.state";
        sqlx::query(upsert).bind(&write.key).bind(&write.state).execute(&mut *transaction).await?;
        if let Some((number, entry)) = &write.accepted {
            let insert = "INSERT INTO accepted (number, entry) VALUES ($1, $2)";
            sqlx::query(insert).bind(number).bind(entry).execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await
}
