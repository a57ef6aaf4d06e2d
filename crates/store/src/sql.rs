//! The adapter for service: SQL that SQLite and PostgreSQL run unchanged, through sqlx's `Any` driver.
//!
//! TEXT and BIGINT columns only, `$1` placeholders, no booleans. What only SQLite knows (pragmas, `BEGIN IMMEDIATE`) is
//! in this file. Writing goes through one task (see [`writer`]) that commits many batches at once, since a durable
//! commit costs a flush of the disk however much is in it. Reading goes through a small pool of connections.

mod group;
mod rows;
mod schema;
mod writer;

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, TryLockError};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::{AnyConnection, AnyPool, Row};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::rules;
use crate::sql::writer::{Job, Writer};
use crate::{Batch, Collection, Document, Entry, Snapshot, Store, StoreError};

/// The database within the data folder.
const DATABASE: &str = "flotta.db";
/// Held for the life of the store.
const LOCK: &str = "flotta.lock";
/// How long to wait for the lock: the server before may be just ending.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Connections that read.
const READERS: u32 = 4;
/// How long a reader waits for a free connection.
const READER_PATIENCE: Duration = Duration::from_secs(30);
/// Batches that wait for the writer before callers are held back.
const QUEUE: usize = 1024;

/// Foreign keys are on by sqlx's default, too; all of it is said here so that it does not depend on defaults.
const WRITER_PRAGMAS: &str = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                              PRAGMA foreign_keys = ON";
const READER_PRAGMAS: &str = "PRAGMA busy_timeout = 5000; PRAGMA query_only = ON";

/// A durable store in a SQL database.
///
/// Dropping it lets the batches that were handed over finish in the background; [`SqlStore::close`] waits for them.
#[derive(Debug)]
pub struct SqlStore {
    jobs: mpsc::Sender<Job>,
    readers: AnyPool,
    writer: JoinHandle<()>,
}

impl SqlStore {
    /// Opens the SQLite database `flotta.db` in a data folder, and creates both where they are missing. Fails where
    /// another server uses the folder, or a newer flotta has written the database.
    pub async fn open_sqlite(dir: &Path) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let shown = dir.display();
        create_private(dir)
            .map_err(|error| StoreError::Failed(format!("data folder '{shown}' cannot be created: {error}")))?;
        let lock = lock(dir).await?;
        let options = sqlite_options(dir)?;

        let opening = |error: sqlx::Error| {
            tracing::error!(%error, folder = %shown, "opening the database failed");
            StoreError::Failed(format!(
                "the database in data folder '{shown}' cannot be opened; the log says why, and a backup can be put in \
                 its place"
            ))
        };
        let mut writer = Writer::new(options.clone(), WRITER_PRAGMAS, "BEGIN IMMEDIATE", lock);
        schema::migrate(writer.connection().await.map_err(opening)?, "BEGIN IMMEDIATE").await?;
        let readers = AnyPoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(READER_PATIENCE)
            .test_before_acquire(false)
            .after_connect(|connection, _| Box::pin(prepare(connection, READER_PRAGMAS)))
            .connect_with(options)
            .await
            .map_err(opening)?;

        let (jobs, waiting) = mpsc::channel(QUEUE);
        let writer = tokio::spawn(writer.run(waiting));
        Ok(Self { jobs, readers, writer })
    }

    /// Finishes the batches that were handed over, closes the database and frees the data folder.
    pub async fn close(self) {
        drop(self.jobs);
        self.readers.close().await;
        if let Err(error) = self.writer.await {
            tracing::error!(%error, "the writer of the database ended badly");
        }
    }
}

#[async_trait]
impl Store for SqlStore {
    async fn get(&self, collection: Collection, key: &str) -> Result<Option<Document>, StoreError> {
        let row =
            sqlx::query("SELECT key, parent, body, etag, serial FROM documents WHERE collection = $1 AND key = $2")
                .bind(collection.as_str())
                .bind(key)
                .fetch_optional(&self.readers)
                .await
                .map_err(reading)?;
        row.map(|row| document(collection, &row)).transpose().map_err(reading)
    }

    async fn list(
        &self,
        collection: Collection,
        parent: &str,
        after: Option<u64>,
        most: u32,
    ) -> Result<Vec<Document>, StoreError> {
        let rows = sqlx::query(
            "SELECT key, parent, body, etag, serial FROM documents \
             WHERE collection = $1 AND parent = $2 AND serial > $3 ORDER BY serial LIMIT $4",
        )
        .bind(collection.as_str())
        .bind(parent)
        .bind(to_sql(after.unwrap_or(0)))
        .bind(i64::from(most))
        .fetch_all(&self.readers)
        .await
        .map_err(reading)?;
        rows.iter().map(|row| document(collection, row)).collect::<Result<_, _>>().map_err(reading)
    }

    async fn scan(&self, collection: Collection, after: Option<u64>, most: u32) -> Result<Vec<Document>, StoreError> {
        let rows = sqlx::query(
            "SELECT key, parent, body, etag, serial FROM documents \
             WHERE collection = $1 AND serial > $2 ORDER BY serial LIMIT $3",
        )
        .bind(collection.as_str())
        .bind(to_sql(after.unwrap_or(0)))
        .bind(i64::from(most))
        .fetch_all(&self.readers)
        .await
        .map_err(reading)?;
        rows.iter().map(|row| document(collection, row)).collect::<Result<_, _>>().map_err(reading)
    }

    async fn journal(&self, journal: Uuid, after: u64, most: u32) -> Result<Vec<Entry>, StoreError> {
        let rows = sqlx::query(
            "SELECT number, at, body FROM entries WHERE journal = $1 AND number > $2 ORDER BY number LIMIT $3",
        )
        .bind(journal.to_string())
        .bind(to_sql(after))
        .bind(i64::from(most))
        .fetch_all(&self.readers)
        .await
        .map_err(reading)?;
        rows.iter().map(entry).collect::<Result<_, _>>().map_err(reading)
    }

    async fn snapshot(&self, journal: Uuid) -> Result<Option<Snapshot>, StoreError> {
        let row = sqlx::query("SELECT number, body FROM snapshots WHERE journal = $1")
            .bind(journal.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(reading)?;
        row.map(|row| Ok(Snapshot { number: number(&row, 0)?, body: row.try_get(1)? })).transpose().map_err(reading)
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        rules::validate(&batch)?;
        let (answer, answered) = oneshot::channel();
        let ended = || StoreError::Failed("the writer of the database has ended; restart the server".to_owned());
        self.jobs.send(Job { batch, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

/// Creates a folder that only its owner can look into: signed URLs of providers are kept there.
fn create_private(dir: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Takes the lock of a data folder, which lasts as long as the file is open.
async fn lock(dir: &Path) -> Result<Arc<File>, StoreError> {
    let shown = dir.display();
    let broken = |error: std::io::Error| StoreError::Failed(format!("'{LOCK}' in data folder '{shown}': {error}"));
    let file = File::options().create(true).truncate(false).write(true).open(dir.join(LOCK)).map_err(broken)?;
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Arc::new(file)),
            Err(TryLockError::Error(error)) => return Err(broken(error)),
            Err(TryLockError::WouldBlock) if Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Failed(format!(
                    "another server uses the data folder '{shown}'; stop it, or choose another folder"
                )));
            }
        }
    }
}

fn sqlite_options(dir: &Path) -> Result<AnyConnectOptions, StoreError> {
    let shown = dir.display();
    let unusable = |why: String| StoreError::Failed(format!("data folder '{shown}' cannot be used: {why}"));
    let path = dir.canonicalize().map_err(|error| unusable(error.to_string()))?.join(DATABASE);
    let path = path.to_str().ok_or_else(|| unusable("its path is not UTF-8; choose another folder".to_owned()))?;
    let mut url = "sqlite://".to_owned();
    for byte in path.bytes() {
        // Writing into a String cannot fail.
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => write!(url, "{}", byte as char),
            other => write!(url, "%{other:02X}"),
        };
    }
    url.push_str("?mode=rwc");
    AnyConnectOptions::from_str(&url).map_err(|error| unusable(error.to_string()))
}

/// Sets up a fresh connection.
async fn prepare(connection: &mut AnyConnection, pragmas: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(pragmas).execute(connection).await.map(|_| ())
}

/// What people see of a failed query; the log has the rest.
fn reading(error: sqlx::Error) -> StoreError {
    tracing::error!(%error, "reading the database failed");
    StoreError::Failed("the database cannot be read; the log says why".to_owned())
}

/// A document from key, parent, body, etag, serial.
fn document(collection: Collection, row: &AnyRow) -> Result<Document, sqlx::Error> {
    Ok(Document {
        collection,
        key: row.try_get(0)?,
        parent: row.try_get(1)?,
        body: row.try_get(2)?,
        etag: row.try_get(3)?,
        serial: number(row, 4)?,
    })
}

fn entry(row: &AnyRow) -> Result<Entry, sqlx::Error> {
    let at: &str = row.try_get(1)?;
    let at = at.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Entry { number: number(row, 0)?, at, body: row.try_get(2)? })
}

fn number(row: &AnyRow, column: usize) -> Result<u64, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// SQL counts to `i64::MAX`; nothing is numbered above.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WAL alone would lose the last commits when the power goes; FULL (2) flushes each of them.
    #[tokio::test]
    async fn m12_the_writer_flushes_every_commit() {
        sqlx::any::install_default_drivers();
        let dir = tempfile::tempdir().expect("folder");
        let lock = lock(dir.path()).await.expect("lock");
        let options = sqlite_options(dir.path()).expect("options");
        let mut writer = Writer::new(options, WRITER_PRAGMAS, "BEGIN IMMEDIATE", lock);
        let connection = writer.connection().await.expect("connection");
        let mut found = Vec::new();
        for pragma in ["PRAGMA synchronous", "PRAGMA foreign_keys", "PRAGMA busy_timeout"] {
            let row = sqlx::query(pragma).fetch_one(&mut *connection).await.expect("pragma");
            found.push(row.get::<i64, _>(0));
        }
        assert_eq!(found, [2, 1, 5000]);
        let mode = sqlx::query("PRAGMA journal_mode").fetch_one(connection).await.expect("pragma");
        assert_eq!(mode.get::<String, _>(0), "wal");
    }
}
