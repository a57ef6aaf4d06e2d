//! A run on disk: its plan, its journal, its snapshots; and how it is folded again.

use std::{collections::HashMap, sync::Arc};

use flotta_drivers::{Intent, Operation};
use flotta_engine::{Event, Input, Plan, Run, run::RunSnapshot};
use flotta_store::{Batch, Collection, Expect, Put, Store};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Error;

/// What identifies a run: kept in its document by whoever owns that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRef {
    /// Its identity. A new run of the same name has another.
    pub id: Uuid,
    /// How people know it: `fleet/run`.
    pub label: Arc<str>,
    /// What the documents of its fleet are listed under.
    #[serde(default = "nowhere")]
    pub fleet: Arc<str>,
}

impl RunRef {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.label.rsplit('/').next().unwrap_or_default()
    }
}

fn nowhere() -> Arc<str> {
    "".into()
}

/// Who asked for something.
pub type Actor = Arc<str>;

/// An entry of a journal, as it is stored: what came in, and what followed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Who, for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    /// What came in.
    pub input: Input,
    /// What followed.
    pub events: Vec<Event>,
}

/// A call that is under way, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InFlight {
    /// What was called for.
    pub intent: Intent,
    /// The provider's operation.
    pub operation: Operation,
    /// The run was deleted: only the operation's end is waited for.
    #[serde(default)]
    pub orphan: bool,
}

/// A folded run and what belongs to it.
pub struct Folded {
    /// The run.
    pub run: Run,
    /// Entries in its journal.
    pub number: u64,
    /// The time of the last entry.
    pub last: Option<Timestamp>,
    /// Its newest snapshot's number.
    pub snapshot: u64,
    /// Operations under way, by member.
    pub in_flight: HashMap<u32, Operation>,
}

const PAGE: u32 = 1000;

/// Reads a plan, its snapshot and the entries after it, and folds them.
pub async fn fold(store: &dyn Store, id: Uuid) -> Result<Folded, Error> {
    let plan = store.get(Collection::Plans, &id.to_string()).await?.ok_or(Error::NoSuchRun)?;
    let plan: Arc<Plan> = Arc::new(decode(&plan.body)?);
    let snapshot = store.snapshot(id).await?;
    let restored = snapshot.as_ref().and_then(|snapshot| {
        let body: RunSnapshot = serde_json::from_str(&snapshot.body).ok()?;
        Some((Run::from_snapshot(Arc::clone(&plan), &body)?, snapshot.number))
    });
    let (mut run, snapshot) = restored.unwrap_or_else(|| (Run::new(plan), 0));
    let (mut number, mut last) = (snapshot, None);
    if snapshot > 0 {
        // Time does not go back behind the last entry, also where the snapshot has folded it in already.
        last = store.journal(id, snapshot - 1, 1).await?.first().map(|entry| entry.at);
    }
    loop {
        let entries = store.journal(id, number, PAGE).await?;
        let full = entries.len() == PAGE as usize;
        for entry in entries {
            let recorded: Recorded = decode(&entry.body)?;
            for event in &recorded.events {
                run.apply(event, entry.at);
            }
            (number, last) = (entry.number, Some(entry.at));
        }
        if !full {
            break;
        }
    }
    let in_flight = in_flight(store, id).await?;
    Ok(Folded { run, number, last, snapshot, in_flight })
}

async fn in_flight(store: &dyn Store, id: Uuid) -> Result<HashMap<u32, Operation>, Error> {
    let mut found = HashMap::new();
    let mut after = None;
    loop {
        let page = store.list(Collection::InFlight, &id.to_string(), after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.serial);
        for document in &page {
            let call: InFlight = decode(&document.body)?;
            let member = document.key.rsplit('/').next().and_then(|member| member.parse().ok());
            found.extend(member.map(|member| (member, call.operation)));
        }
    }
}

/// The key of a call that is under way.
pub fn in_flight_key(run: Uuid, member: u32) -> String {
    format!("{run}/{member}")
}

/// The parent of the markers of runs that must be taken up again after a restart.
pub const ACTIVE: &str = "active";

/// Adds the documents of a run that does not exist yet.
pub fn add_new(batch: &mut Batch, id: Uuid, plan: &Plan) -> Result<(), Error> {
    batch.puts.push(Put {
        collection: Collection::Plans,
        key: id.to_string(),
        parent: String::new(),
        body: named(plan)?,
        etag: id.to_string(),
        expect: Expect::Absent,
    });
    Ok(())
}

/// The plan, with ids for its gates.
fn named(plan: &Plan) -> Result<String, Error> {
    if plan.gate_count() == 0 {
        return encode(plan);
    }
    let mut plan = plan.clone();
    plan.name_gates(|| Uuid::new_v4().to_string().into());
    encode(&plan)
}

/// JSON of something of ours.
pub fn encode(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt(error.to_string()))
}

/// Something of ours from JSON.
pub fn decode<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Corrupt(error.to_string()))
}
