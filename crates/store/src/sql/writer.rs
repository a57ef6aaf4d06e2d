//! The only task that writes. It takes all batches that wait into one transaction, so that they share the cost of one
//! durable commit.

use std::fs::File;
use std::sync::Arc;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, ConnectOptions, Connection};
use tokio::sync::{mpsc, oneshot};

use crate::sql::group::Group;
use crate::sql::prepare;
use crate::{Batch, StoreError};

/// Batches in one transaction.
const GROUP: usize = 256;

type Verdict = Result<(), StoreError>;

/// A batch, and whom to tell how it went.
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) answer: oneshot::Sender<Verdict>,
}

/// Owner of the connection that writes.
pub(super) struct Writer {
    options: AnyConnectOptions,
    pragmas: &'static str,
    begin: &'static str,
    connection: Option<AnyConnection>,
    /// Freed after the last write, not when the store is dropped.
    _lock: Arc<File>,
}

impl Writer {
    pub(super) fn new(options: AnyConnectOptions, pragmas: &'static str, begin: &'static str, lock: Arc<File>) -> Self {
        Self { options, pragmas, begin, connection: None, _lock: lock }
    }

    /// Writes until every sender of jobs is gone.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut waiting = Vec::with_capacity(GROUP);
        while jobs.recv_many(&mut waiting, GROUP).await > 0 {
            let (batches, answers): (Vec<_>, Vec<_>) = waiting.drain(..).map(|job| (job.batch, job.answer)).unzip();
            let verdicts = match self.commit(batches).await {
                Ok(verdicts) => verdicts,
                Err(error) => {
                    self.give_up(&error).await;
                    let failed = "the database cannot be written; the log says why".to_owned();
                    vec![Err(StoreError::Failed(failed)); answers.len()]
                }
            };
            for (answer, verdict) in answers.into_iter().zip(verdicts) {
                // A caller that no longer listens does not need the answer.
                let _ = answer.send(verdict);
            }
            // Lets those who were just answered hand over their next batch, so that it is in the next transaction.
            tokio::task::yield_now().await;
        }
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "closing the database failed");
        }
    }

    /// The connection, opened again where it was lost.
    pub(super) async fn connection(&mut self) -> Result<&mut AnyConnection, sqlx::Error> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let mut connection = self.options.connect().await?;
                prepare(&mut connection, self.pragmas).await?;
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    async fn commit(&mut self, batches: Vec<Batch>) -> Result<Vec<Verdict>, sqlx::Error> {
        let begin = self.begin;
        let mut transaction = self.connection().await?.begin_with(begin).await?;
        let mut group = Group::read(&mut transaction, &batches).await?;
        let verdicts: Vec<Verdict> = batches.into_iter().map(|batch| group.take(batch)).collect();
        if verdicts.iter().all(Result::is_err) {
            transaction.rollback().await?;
        } else {
            group.write(&mut transaction).await?;
            transaction.commit().await?;
        }
        Ok(verdicts)
    }

    /// Drops the connection after an error. Its state is not worth guessing, and closing it rolls back.
    async fn give_up(&mut self, error: &sqlx::Error) {
        tracing::error!(%error, "writing the database failed; the connection is opened again");
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close_hard().await
        {
            tracing::warn!(%error, "closing the database failed");
        }
    }
}
