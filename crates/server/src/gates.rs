//! Gates. They come and go with their runs; all that can be done to one is to decide on it.

use flotta_arm::{
    error::ArmError,
    gate::{self, GatePatch},
    paging::{self, GateFilter, Page},
    path::{FleetRef, Kind, Target},
};
use flotta_engine::Input;
use flotta_orchestrator::{
    Command, Error, Moment,
    gates::{GateRecord, etag_of},
};
use flotta_store::Collection;
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{Call, documents::Stored, fleets, reply::Reply, runs};

/// Gates that are looked through for one page of a filtered list, at most.
const MOST_LOOKED_AT: usize = 10_000;

/// GET, PATCH of one gate.
pub async fn one(call: &Call, target: &Target, fleet: &FleetRef, id: &Uuid) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    match call.method {
        Method::GET => {
            let stored = get(call, fleet, id).await?;
            Ok(Reply::ok(render(call, fleet, &stored.value)))
        }
        Method::PATCH => decide(call, fleet, id).await,
        _ => Err(call.method_not_allowed(target)),
    }
}

async fn get(call: &Call, fleet: &FleetRef, id: &Uuid) -> Result<Stored<GateRecord>, ArmError> {
    let found: Option<Stored<GateRecord>> = call.find(Collection::Gates, &id.to_string()).await?;
    let found = found.filter(|stored| stored.document.parent == fleet.key());
    found.ok_or_else(|| fleet.child_not_found(Kind::Gate, id))
}

fn render(call: &Call, fleet: &FleetRef, record: &GateRecord) -> Value {
    let id = format!("{}/gates/{}", fleet.id(), record.gate.id);
    let run = format!("{}/updateRuns/{}", fleet.id(), record.run.name());
    let mut shown = gate::render(&record.gate, &id, &run, &record.etag(), call.version);
    // ARM has no place for it: only a run's tree tells since when its gates are waited for.
    if let (Some("true"), Some(at)) = (call.query.get("explain"), record.gate.gate.times().started) {
        shown["properties"]["reachedAt"] = json!(at);
    }
    shown
}

/// Approves or rejects, and answers with the gate as it is then.
async fn decide(call: &Call, fleet: &FleetRef, id: &Uuid) -> Result<Reply, ArmError> {
    let GatePatch { decision, comment } = gate::parse(&call.json()?)?;
    let record = get(call, fleet, id).await?.value;
    let (run, number) = (record.run.clone(), record.number);
    let by = call.by.name.clone();
    let (conditions, checked) = (call.conditions.clone(), run.clone());
    let command = Command {
        input: Input::Gate { gate: number, decision, by: by.clone(), comment },
        by: by.as_str().into(),
        check: Box::new(move |folded, _| conditions.check(Some(&etag_of(&checked, folded, number))).is_ok()),
    };
    let decided = call.app.orchestrator.command(&run, command, Moment::After, move |run, _| run.gate_view(number));
    match decided.await {
        Ok(gate) => Ok(Reply::ok(render(call, fleet, &GateRecord { gate, ..record }))),
        Err(Error::NoSuchRun) => Err(fleet.child_not_found(Kind::Gate, id)),
        Err(Error::Changed) => {
            let message = "the gate was changed since; read it again, then repeat the request";
            Err(ArmError::precondition_failed("If-Match", message))
        }
        Err(error) => Err(runs::refused(error)),
    }
}

/// The gates of a fleet, in the order in which they were reached.
pub async fn list(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    let page = Page::of(&call.query)?;
    let filter = GateFilter::of(&call.query)?;
    let step = if filter == GateFilter::default() { page.top } else { Page::MOST };
    let (mut value, mut after, mut looked_at) = (Vec::new(), page.after, 0);
    loop {
        let next = Page { top: step, after };
        let (found, more): (Vec<Stored<GateRecord>>, bool) = call.page(Collection::Gates, &fleet.key(), next).await?;
        for (at, Stored { value: record, document }) in found.iter().enumerate() {
            let gate = &record.gate;
            if filter.wants(&format!("{:?}", gate.gate.state()), gate.config.kind.as_str()) {
                value.push(render(call, fleet, record));
            }
            (after, looked_at) = (Some(document.serial), looked_at + 1);
            if value.len() == page.top as usize || looked_at == MOST_LOOKED_AT {
                let rest = more || at + 1 < found.len();
                let next = rest.then(|| call.next_link(document.serial));
                return Ok(Reply::ok(paging::list(value, next)));
            }
        }
        if !more {
            return Ok(Reply::ok(paging::list(value, None)));
        }
    }
}
