//! What was asked of the cloud, for those who check its callers: every accepted start, and the last requests.

use std::{collections::VecDeque, path::PathBuf, sync::PoisonError, sync::RwLock};

use flotta_model::KubernetesVersion;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::{
    fs::{File, OpenOptions},
    io::{AsyncWriteExt, BufWriter},
    sync::mpsc,
};
use uuid::Uuid;

use crate::{
    call::CallKind,
    state::{ClusterState, Kind, Operation, PoolState},
};

/// Accepted starts kept at most; further writes are refused, so that the record stays complete.
pub(crate) const MOST_ACCEPTED: usize = 5_000_000;

/// Requests remembered in memory.
const REQUESTS_KEPT: usize = 20_000;

/// The file of requests begins anew at this size; one older file is kept.
const REQUEST_FILE_BYTES: u64 = 64 << 20;

/// A write that the cloud accepted as an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// Counted from 1, over all clusters.
    pub number: u64,
    /// Domain time.
    pub time: Timestamp,
    /// The cluster's id.
    pub cluster: String,
    /// The step.
    pub step: StepKind,
    /// The pool it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Version or node image it goes to, for upgrades.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The operation's id.
    pub operation: Uuid,
}

/// What an accepted write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepKind {
    /// A cluster write that changes the versions of control plane and pools, or of pools alone.
    ClusterVersion,
    /// A cluster write that changes the control plane's version alone.
    ControlPlaneVersion,
    /// A pool write that changes its version.
    PoolVersion,
    /// A pool to its newest image, or to the one that a write pins.
    PoolImage,
    /// Security patches onto the running nodes of a pool.
    SecurityPatch,
    /// A new cluster or pool.
    Create,
    /// A write that changes neither version nor number of nodes; also the repair of a failed upgrade.
    Update,
    /// Another number of nodes.
    Scale,
    /// Switched on.
    Start,
    /// Switched off.
    Stop,
    /// Taken away.
    Delete,
    /// Called off.
    Abort,
}

impl Accepted {
    /// The record of an operation. `before` holds the versions of the pools before it was accepted.
    pub(crate) fn new(state: &ClusterState, operation: &Operation, before: &[KubernetesVersion]) -> Self {
        let pool = operation.pool.as_deref().and_then(|name| state.pool(name));
        let mut moved = state.pools.iter().zip(before).filter(|(pool, before)| pool.version != **before);
        let image = |pool: Option<&PoolState>| pool.map(|pool| pool.image.to_string());
        let (step, target) = match (operation.kind, pool) {
            (Kind::Upgrade, Some(pool)) if moved.any(|(moved, _)| moved.name == pool.name) => {
                (StepKind::PoolVersion, Some(pool.version.to_string()))
            }
            (Kind::Upgrade | Kind::NodeImage, Some(_)) => (StepKind::PoolImage, image(pool)),
            (Kind::SecurityPatch, _) => (StepKind::SecurityPatch, image(pool)),
            (Kind::Upgrade, None) if moved.next().is_some() => {
                (StepKind::ClusterVersion, Some(state.version.to_string()))
            }
            (Kind::Upgrade, None) => (StepKind::ControlPlaneVersion, Some(state.version.to_string())),
            (Kind::NodeImage, None) => (StepKind::PoolImage, None),
            (Kind::Create, _) => (StepKind::Create, None),
            (Kind::Update | Kind::Foreign, _) => (StepKind::Update, None),
            (Kind::Scale, _) => (StepKind::Scale, None),
            (Kind::Start, _) => (StepKind::Start, None),
            (Kind::Stop, _) => (StepKind::Stop, None),
            (Kind::Delete, _) => (StepKind::Delete, None),
            (Kind::Abort, _) => (StepKind::Abort, None),
        };
        let cluster = state.id.clone();
        Self {
            number: 0,
            time: operation.start,
            cluster,
            step,
            pool: operation.pool.clone(),
            target,
            operation: operation.id,
        }
    }
}

/// A request, as the log shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Counted from 1, since the simulator's last start.
    pub number: u64,
    /// Domain time.
    pub time: Timestamp,
    /// The method.
    pub method: String,
    /// The path, without the query and so without signatures.
    pub path: String,
    /// What it asks for, if it was understood.
    pub call: Option<CallKind>,
    /// The cluster's name, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The status of the answer; 0 if the connection was broken on purpose.
    pub status: u16,
    /// The operation that was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
}

/// The last requests, and the way to their file.
#[derive(Debug)]
pub(crate) struct Requests {
    kept: RwLock<(u64, VecDeque<Request>)>,
    file: Option<mpsc::Sender<Request>>,
}

impl Requests {
    /// With a folder, requests go to its `requests.jsonl` too.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        let file = folder.map(|folder| {
            let (sender, receiver) = mpsc::channel(10_000);
            tokio::spawn(async move {
                if let Err(error) = write_file(folder, receiver).await {
                    tracing::warn!(%error, "the simulator no longer writes its file of requests");
                }
            });
            sender
        });
        Self { kept: RwLock::default(), file }
    }

    pub(crate) fn push(&self, mut request: Request) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        kept.0 += 1;
        request.number = kept.0;
        if let Some(file) = &self.file {
            // A file that cannot keep up loses lines; the log in memory is the one to rely on.
            let _ = file.try_send(request.clone());
        }
        if kept.1.len() >= REQUESTS_KEPT {
            kept.1.pop_front();
        }
        kept.1.push_back(request);
    }

    /// Requests with a number above `after`, at most `limit`, oldest first.
    pub(crate) fn after(&self, after: u64, limit: usize) -> Vec<Request> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let first = kept.1.front().map_or(1, |request| request.number);
        let skip = usize::try_from(after.saturating_add(1).saturating_sub(first)).unwrap_or(usize::MAX);
        kept.1.iter().skip(skip).take(limit).cloned().collect()
    }
}

async fn write_file(folder: PathBuf, mut receiver: mpsc::Receiver<Request>) -> std::io::Result<()> {
    let path = folder.join("requests.jsonl");
    let open = async || OpenOptions::new().create(true).append(true).open(&path).await;
    let file = open().await?;
    let mut size = file.metadata().await?.len();
    let mut file: BufWriter<File> = BufWriter::new(file);
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, 1000).await > 0 {
        for request in batch.drain(..) {
            let mut line = serde_json::to_vec(&request)?;
            line.push(b'\n');
            file.write_all(&line).await?;
            size += line.len() as u64;
        }
        file.flush().await?;
        if size > REQUEST_FILE_BYTES {
            tokio::fs::rename(&path, folder.join("requests.1.jsonl")).await?;
            file = BufWriter::new(open().await?);
            size = 0;
        }
    }
    Ok(())
}
