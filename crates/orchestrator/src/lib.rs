//! The shell around the engine, and the only place where engine, store and drivers meet.
//!
//! A `worker` owns each run that is awake: commands and observations go to its mailbox, it decides, applies in
//! memory, commits, and only then acts and answers. What goes on outside on behalf of a member is an `effects`
//! task; its answer carries the ticket it was given and changes nothing once that has passed. A worker of a run that
//! waits for nothing goes to sleep, and is woken by the next message. [`claims`] keeps runs off each other's clusters;
//! [`check`] tells what a run would do before it starts; [`survey`] what clusters run and regions offer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use flotta_clock::Clock;
use flotta_drivers::{ClusterDriver, Look};
use flotta_engine::{Input, Refusal, Run};
use flotta_model::{ClusterId, Name};
use flotta_store::{Batch, Collection, Store, StoreError};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

pub mod check;
pub mod claims;
mod drain;
mod effects;
pub mod gates;
pub mod journal;
pub mod survey;
mod worker;

pub use journal::{Actor, RunRef};
use worker::{Mailbox, Message};

/// Why something was not done. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such run.
    #[error("there is no such run")]
    NoSuchRun,
    /// The engine refused a command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The run is at another number than the caller expected.
    #[error("the run has changed; read it again")]
    Changed,
    /// The run was started, so that it can no longer be replaced.
    #[error("the run was started already")]
    Started,
    /// Storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is stored cannot be read.
    #[error("stored data cannot be read: {0}")]
    Corrupt(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// Drives all runs of a store. Cheap to clone.
#[derive(Clone)]
pub struct Orchestrator(Arc<Shared>);

pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub drivers: Vec<Arc<dyn ClusterDriver>>,
    pub clock: Clock,
    pub claims: claims::Claims,
    pub workers: Mutex<HashMap<Uuid, Mailbox>>,
    pub tasks: TaskTracker,
    /// Turns for looks of checks and surveys.
    pub looks: Semaphore,
    /// What surveys saw of clusters.
    pub surveyed: survey::Memory,
    /// Told of runs that ended.
    pub ended: broadcast::Sender<RunRef>,
    pub shutdown: CancellationToken,
}

/// When a run is looked at for the answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// As it was before.
    Before,
    /// As it is after.
    After,
}

/// What must be so of a run and its number.
pub type NumberCheck = Box<dyn FnOnce(&Run, u64) -> bool + Send>;

impl Orchestrator {
    /// Takes up everything that was going on when the store was last used.
    pub async fn open(
        store: Arc<dyn Store>,
        drivers: Vec<Arc<dyn ClusterDriver>>,
        clock: Clock,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            store,
            drivers,
            clock,
            claims: claims::Claims::default(),
            workers: Mutex::new(HashMap::new()),
            tasks: TaskTracker::new(),
            looks: Semaphore::new(check::MOST_LOOKS),
            surveyed: survey::Memory::default(),
            ended: broadcast::Sender::new(1024),
            shutdown: CancellationToken::new(),
        });
        drain::recover_claims(&shared).await?;
        drain::take_up_orphans(&shared).await?;
        let mut after = None;
        loop {
            let page = shared.store.list(Collection::Meta, journal::ACTIVE, after, 1000).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.serial);
            for document in &page {
                let run: RunRef = journal::decode(&document.body)?;
                tracing::info!(run = %run.label, "taking up a run that was going on");
                shared.mailbox(&run);
            }
        }
        Ok(Self(shared))
    }

    /// The domain clock.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Gives a run a command and answers with what `view` makes of it.
    pub async fn command<T: Send + 'static>(
        &self,
        run: &RunRef,
        command: Command,
        moment: Moment,
        view: impl FnOnce(&Run, u64) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let view: worker::View = Box::new(move |run| match run {
            Ok((run, number)) => {
                let seen = view(run, number);
                Some(Box::new(move |outcome| drop(answer.send(outcome.map(|()| seen)))))
            }
            Err(error) => {
                drop(answer.send(Err(error)));
                None
            }
        });
        self.0.send(run, Message::Command { command, moment, view }).await?;
        answered.await.unwrap_or(Err(Error::ShuttingDown))
    }

    /// What `view` makes of a run as it is.
    pub async fn read<T: Send + 'static>(
        &self,
        run: &RunRef,
        view: impl FnOnce(&Run, u64) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let read: worker::Reader = Box::new(move |folded| {
            let seen = folded.map(|(run, number)| view(run, number));
            drop(answer.send(seen));
        });
        self.0.send(run, Message::Read(read)).await?;
        answered.await.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Forgets a run and commits `batch` with it. What is under way on clusters ends there, and keeps its claims until
    /// then. With `only_idle`, a run that was ever started is left alone.
    pub async fn retire(&self, run: &RunRef, check: NumberCheck, only_idle: bool, batch: Batch) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.0.send(run, Message::Retire { check, only_idle, batch, answer }).await?;
        answered.await.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Tells a run that a member left its fleet.
    pub async fn member_left(&self, run: &RunRef, member: &Name) -> Result<(), Error> {
        self.0.send(run, Message::MemberLeft(member.clone())).await
    }

    /// The region of a cluster, if a driver reaches it and it answers.
    pub async fn locate(&self, cluster: &ClusterId) -> Option<String> {
        let driver = self.0.driver(cluster)?;
        driver.observe(cluster, Look::default()).await.ok().map(|seen| seen.location)
    }

    /// The runs that end from now on. Whoever lags behind misses some: it is a hint, and what it leads to must be found
    /// without it too.
    pub fn ended(&self) -> broadcast::Receiver<RunRef> {
        self.0.ended.subscribe()
    }

    /// Does something in the background until the server shuts down.
    pub fn background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.0.shutdown.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = task => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    /// Stops all work in order. What is under way on clusters goes on there, and is taken up at the next start.
    pub async fn shutdown(&self) {
        self.0.shutdown.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

/// What a client asks of a run.
pub struct Command {
    /// What.
    pub input: Input,
    /// Who.
    pub by: Actor,
    /// What must be so of the run's number.
    pub check: NumberCheck,
}

impl Shared {
    pub fn driver(&self, cluster: &ClusterId) -> Option<&Arc<dyn ClusterDriver>> {
        self.drivers.iter().find(|driver| driver.reaches(cluster))
    }

    /// The mailbox of a run's worker, which is woken if it sleeps.
    pub fn mailbox(self: &Arc<Self>, run: &RunRef) -> Mailbox {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        match workers.get(&run.id) {
            Some(mailbox) if !mailbox.is_closed() => mailbox.clone(),
            _ => {
                let mailbox = worker::spawn(Arc::clone(self), run.clone());
                workers.insert(run.id, mailbox.clone());
                mailbox
            }
        }
    }

    /// Sends a message, again if the worker went to sleep just then.
    async fn send(self: &Arc<Self>, run: &RunRef, message: Message) -> Result<(), Error> {
        let mut message = message;
        loop {
            if self.shutdown.is_cancelled() {
                return Err(Error::ShuttingDown);
            }
            match self.mailbox(run).commands.send(message).await {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(back)) => message = back,
            }
        }
    }
}
