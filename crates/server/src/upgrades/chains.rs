//! Chained runs: a run that names another starts by itself when that one has come to a good end.

use flotta_arm::{
    doc::RunDoc,
    error::ArmError,
    path::{FleetRef, Kind},
};
use flotta_engine::{
    Input,
    run::{Outcome, RunPhase},
};
use flotta_model::Name;
use flotta_orchestrator::{Command, Error, Moment};
use flotta_store::Collection;

use crate::{Call, documents::Stored, runs};

/// The longest chain that is followed to see that it has an end.
const LONGEST: usize = 1000;

/// That the run after which another is to start is there, and does not wait for that one in turn.
pub async fn check(call: &Call, fleet: &FleetRef, name: &Name, after: Option<&Name>) -> Result<(), ArmError> {
    let refuse = |reason: String| Err(ArmError::invalid_parameter("properties.startAfter", reason));
    let mut next = after.cloned();
    for _ in 0..LONGEST {
        let Some(before) = next else { return Ok(()) };
        if before == *name {
            return refuse(format!("update run '{name}' would wait for itself"));
        }
        next = match runs::find(call, fleet, &before).await? {
            Some(stored) => stored.value.start_after,
            None if after == Some(&before) => {
                return refuse(format!("there is no update run '{before}' in this fleet: create it first"));
            }
            None => None,
        };
    }
    refuse(format!("the chain has more than {LONGEST} runs"))
}

/// Starts the runs of a fleet whose predecessor has come to a good end.
pub async fn go_on(call: &Call, fleet: &FleetRef) -> Result<(), ArmError> {
    for stored in call.all::<RunDoc>(Collection::Runs, &fleet.key()).await? {
        let doc = stored.value;
        let Some(before) = &doc.start_after else { continue };
        if phase(call, fleet, &doc).await? == Some(RunPhase::Idle) && ended_well(call, fleet, before).await? {
            start(call, fleet, &doc).await?;
        }
    }
    Ok(())
}

async fn ended_well(call: &Call, fleet: &FleetRef, name: &Name) -> Result<bool, ArmError> {
    let Some(Stored { value: doc, .. }) = runs::find(call, fleet, name).await? else { return Ok(false) };
    let phase = phase(call, fleet, &doc).await?;
    Ok(matches!(phase, Some(RunPhase::Ended(Outcome::Completed | Outcome::Skipped))))
}

/// Where a run stands; `None`: it is gone.
pub async fn phase(call: &Call, fleet: &FleetRef, doc: &RunDoc) -> Result<Option<RunPhase>, ArmError> {
    match call.app.orchestrator.read(&runs::reference(fleet, doc), |run, _| run.phase()).await {
        Err(Error::NoSuchRun) => Ok(None),
        phase => phase.map(Some).map_err(runs::refused),
    }
}

/// Starts a run that was not started yet. Somebody else may have been faster.
pub async fn start(call: &Call, fleet: &FleetRef, doc: &RunDoc) -> Result<(), ArmError> {
    runs::tell_who_left(call, fleet, &doc.name).await?;
    let command = Command {
        input: Input::Start,
        by: call.by.name.as_str().into(),
        check: Box::new(|run, _| run.phase() == RunPhase::Idle),
    };
    match call.app.orchestrator.command(&runs::reference(fleet, doc), command, Moment::After, |_, _| ()).await {
        Ok(()) => {
            tracing::info!(run = %fleet.child_id(Kind::Run, &doc.name), "started by itself");
            Ok(())
        }
        Err(Error::NoSuchRun | Error::Changed) => Ok(()),
        Err(error) => Err(runs::refused(error)),
    }
}
