//! Gates as documents: what lists of gates are served from. Each is committed together with the events that changed it.

use flotta_engine::{Run, run::GateView};
use flotta_store::{Batch, Collection, Delete, Expect, Put};
use serde::{Deserialize, Serialize};

use crate::{Error, RunRef, journal};

/// A gate that was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRecord {
    /// Its run.
    pub run: RunRef,
    /// Its number in the run.
    pub number: u32,
    /// The gate.
    pub gate: GateView,
}

impl GateRecord {
    /// Changes with each change of the gate.
    pub fn etag(&self) -> String {
        etag(&self.run, self.number, self.gate.gate.revision)
    }
}

/// The etag of a gate as it is in a run.
pub fn etag_of(run: &RunRef, folded: &Run, number: u32) -> String {
    etag(run, number, folded.gate(number).revision)
}

fn etag(run: &RunRef, number: u32, revision: u32) -> String {
    format!("{}-{number}-{revision}", run.id)
}

/// What was last written of the gates of a run.
pub struct Written(Vec<u32>);

impl Written {
    /// Everything that a folded run says of its gates was committed with it.
    pub fn of(run: &Run) -> Self {
        Self((0..run.gate_count()).map(|gate| run.gate(gate).revision).collect())
    }

    /// The documents of gates that have changed since. A gate that was never reached has none.
    pub fn changed(&mut self, id: &RunRef, run: &Run) -> Result<Vec<Put>, Error> {
        let mut puts = Vec::new();
        for number in 0..run.gate_count() {
            let revision = run.gate(number).revision;
            if self.0[number as usize] == revision {
                continue;
            }
            self.0[number as usize] = revision;
            if run.gate(number).times().started.is_none() {
                continue;
            }
            let record = GateRecord { run: id.clone(), number, gate: run.gate_view(number) };
            puts.push(Put {
                collection: Collection::Gates,
                key: record.gate.id.to_string(),
                parent: id.fleet.to_string(),
                body: journal::encode(&record)?,
                etag: record.etag(),
                expect: Expect::Any,
            });
        }
        Ok(puts)
    }
}

/// Takes the documents of all gates of a run away.
pub fn forget(run: &Run, batch: &mut Batch) {
    let reached = (0..run.gate_count()).filter(|gate| run.gate(*gate).times().started.is_some());
    batch.deletes.extend(reached.map(|gate| Delete {
        collection: Collection::Gates,
        key: run.gate_view(gate).id.to_string(),
        expect: Expect::Any,
    }));
}
