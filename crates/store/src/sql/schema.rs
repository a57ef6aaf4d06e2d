//! The tables, and how a database of an older version gets them.

use sqlx::AnyConnection;
use sqlx::{Connection, Row};

use crate::StoreError;

/// What each version adds. Only ever append: a database remembers how many it has.
const VERSIONS: &[&[&str]] = &[&[
    "CREATE TABLE documents (
        collection TEXT NOT NULL,
        key TEXT NOT NULL,
        parent TEXT NOT NULL,
        body TEXT NOT NULL,
        etag TEXT NOT NULL,
        serial BIGINT NOT NULL,
        PRIMARY KEY (collection, key)
    )",
    "CREATE UNIQUE INDEX documents_by_serial ON documents (collection, serial)",
    "CREATE UNIQUE INDEX documents_by_parent ON documents (collection, parent, serial)",
    // Where each journal ends, so that an append need not look through it.
    "CREATE TABLE journals (journal TEXT NOT NULL PRIMARY KEY, last BIGINT NOT NULL)",
    "CREATE TABLE entries (
        journal TEXT NOT NULL,
        number BIGINT NOT NULL,
        at TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (journal, number)
    )",
    "CREATE TABLE snapshots (journal TEXT NOT NULL PRIMARY KEY, number BIGINT NOT NULL, body TEXT NOT NULL)",
    "CREATE TABLE counters (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL)",
    "INSERT INTO counters (name, value) VALUES ('serial', 0)",
]];

/// Brings the tables up to date, all versions in one transaction.
pub(super) async fn migrate(connection: &mut AnyConnection, begin: &'static str) -> Result<(), StoreError> {
    let failed = |error: sqlx::Error| {
        tracing::error!(%error, "migrating the database failed");
        StoreError::Failed("the tables of the database cannot be brought up to date; the log says why".to_owned())
    };
    let mut transaction = connection.begin_with(begin).await.map_err(failed)?;
    let stored = version(&mut transaction).await.map_err(failed)?;
    let ours = VERSIONS.len() as i64;
    if stored > ours {
        return Err(StoreError::Failed(format!(
            "the database is of version {stored}, this flotta knows versions up to {ours}; use the newer flotta that \
             wrote it, or a backup from before"
        )));
    }
    for statement in VERSIONS.iter().skip(usize::try_from(stored).unwrap_or(0)).copied().flatten().copied() {
        sqlx::query(statement).execute(&mut *transaction).await.map_err(failed)?;
    }
    if stored < ours {
        sqlx::query("UPDATE schema_version SET version = $1")
            .bind(ours)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        tracing::info!(from = stored, to = ours, "the tables of the database are brought up to date");
    }
    transaction.commit().await.map_err(failed)
}

/// The version of the tables; 0: there are none.
async fn version(connection: &mut AnyConnection) -> Result<i64, sqlx::Error> {
    let table = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)";
    sqlx::query(table).execute(&mut *connection).await?;
    let row = sqlx::query("SELECT version FROM schema_version").fetch_optional(&mut *connection).await?;
    match row {
        Some(row) => row.try_get(0),
        None => {
            sqlx::query("INSERT INTO schema_version (version) VALUES (0)").execute(connection).await?;
            Ok(0)
        }
    }
}
