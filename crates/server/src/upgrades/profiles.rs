//! What profiles make: runs, when what they follow has moved on; and why they make none.

use flotta_arm::{
    doc::{ProfileDoc, RunDoc},
    error::ArmError,
    path::{FleetRef, Kind},
    run::RunRequest,
    strategy,
    time::shortest,
};
use flotta_engine::{
    channels::{self, Decision, Facts, Judgement, Known, Memory, Reason, Trigger},
    plan::Plan,
    run::{Outcome, RunPhase},
};
use flotta_model::{Fault, Name, Strategy, profile::LastTrigger};
use flotta_store::{Batch, Collection, Put};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::chains;
use crate::{
    Call,
    documents::{self, Stored},
    fleets, profiles,
    releases::{self, Sight},
    reply::Reply,
    runs, strategies,
};

/// What was made of a profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProfileState {
    /// What became of its last attempt to make runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastTrigger>,
    /// What it has tried.
    #[serde(default)]
    memory: Memory,
    /// The runs that it made last, one after another.
    #[serde(default)]
    runs: Vec<Made>,
}

/// A run that a profile made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    run: Uuid,
    name: Name,
}

/// How old what `why` and `generateUpdateRun` judge by may be.
const ASKED_AGE: SignedDuration = SignedDuration::from_mins(2);

/// A profile with all that it is judged by.
struct Subject {
    doc: ProfileDoc,
    key: String,
    strategy: Option<Strategy>,
    /// Of the members that were seen, those that the strategy picks.
    picked: Vec<usize>,
    state: Option<Stored<ProfileState>>,
    /// The run that it made last, while that is unfinished.
    active: Option<Name>,
}

/// Makes and starts what the profiles of a fleet want.
pub async fn reconcile(call: &Call, fleet: &FleetRef, age: SignedDuration) -> Result<(), ArmError> {
    let profiles: Vec<Stored<ProfileDoc>> = call.all(Collection::Profiles, &fleet.key()).await?;
    if profiles.iter().all(|stored| stored.value.profile.disabled) {
        return Ok(());
    }
    let sight = releases::look(call, fleet, age).await?;
    for stored in profiles.into_iter().filter(|stored| !stored.value.profile.disabled) {
        let name = stored.value.profile.name.clone();
        if let Err(error) = follow(call, fleet, stored, &sight).await {
            tracing::warn!(fleet = %fleet.fleet, profile = %name, %error, "a profile cannot be followed");
        }
    }
    Ok(())
}

/// Makes and starts what one profile wants.
async fn follow(call: &Call, fleet: &FleetRef, stored: Stored<ProfileDoc>, sight: &Sight) -> Result<(), ArmError> {
    let key = stored.document.key.clone();
    let subject = match subject(call, fleet, stored, sight).await {
        Ok(subject) => subject,
        Err(error) => return failed(call, fleet, &key, &error).await,
    };
    start_made(call, fleet, &subject).await?;
    let judgement = subject.judge(sight, call.clock().now());
    let Decision::Trigger(trigger) = judgement.decision else { return Ok(()) };
    let _turn = call.app.fleets.shared().await;
    match make(call, fleet, &subject, &trigger).await {
        Ok(first) => {
            tracing::info!(fleet = %fleet.fleet, profile = %subject.doc.profile.name, run = %first.name, "made by a profile");
            chains::start(call, fleet, &first).await
        }
        Err(error) => failed(call, fleet, &key, &error).await,
    }
}

/// A run that was made and not started, since the server ended just then.
async fn start_made(call: &Call, fleet: &FleetRef, subject: &Subject) -> Result<(), ArmError> {
    let made = subject.state.as_ref().and_then(|state| state.value.runs.first());
    let Some(made) = made else { return Ok(()) };
    match runs::find(call, fleet, &made.name).await? {
        Some(stored) if stored.value.run == made.run => chains::start(call, fleet, &stored.value).await,
        _ => Ok(()),
    }
}

async fn subject(
    call: &Call,
    fleet: &FleetRef,
    stored: Stored<ProfileDoc>,
    sight: &Sight,
) -> Result<Subject, ArmError> {
    let (doc, key) = (stored.value, stored.document.key);
    let strategy = match &doc.profile.strategy_id {
        Some(id) => Some(strategies::by_id(call, fleet, id).await?),
        None => None,
    };
    let members: Vec<flotta_model::Member> = sight.members.iter().map(|(member, _)| member.clone()).collect();
    let goal = flotta_model::Goal::new(flotta_model::UpgradeType::NodeImageOnly, None, None);
    let goal = goal.map_err(|error| ArmError::conflict(error.to_string()))?;
    let plan = Plan::resolve(goal, strategy.as_ref(), &members)
        .map_err(|error| ArmError::invalid_parameter("properties.updateStrategyId", error))?;
    let planned: std::collections::BTreeSet<&Name> = plan.members.iter().map(|member| &member.name).collect();
    let picked = members.iter().enumerate().filter(|(_, member)| planned.contains(&member.name));
    let picked = picked.map(|(index, _)| index).collect();
    let state: Option<Stored<ProfileState>> = call.find(Collection::ProfileStates, &key).await?;
    let active = match &state {
        Some(state) => active(call, fleet, &state.value).await?,
        None => None,
    };
    Ok(Subject { doc, key, strategy, picked, state, active })
}

/// The first of the runs made last that is not done. What waits for one that failed is not waited for.
async fn active(call: &Call, fleet: &FleetRef, state: &ProfileState) -> Result<Option<Name>, ArmError> {
    for made in &state.runs {
        let stored = runs::find(call, fleet, &made.name).await?.filter(|stored| stored.value.run == made.run);
        let Some(Stored { value: doc, .. }) = stored else { continue };
        match chains::phase(call, fleet, &doc).await? {
            None | Some(RunPhase::Ended(Outcome::Completed | Outcome::Skipped)) => {}
            Some(RunPhase::Ended(Outcome::Failed)) => return Ok(None),
            Some(_) => return Ok(Some(doc.name)),
        }
    }
    Ok(None)
}

impl Subject {
    /// Judges by what was seen.
    fn with<T>(&self, sight: &Sight, now: jiff::Timestamp, judge: impl FnOnce(&Facts<'_>) -> T) -> T {
        let known = self.picked.iter().map(|index| {
            let (member, seen) = &sight.members[*index];
            Known { name: &member.name, cluster: &member.cluster, seen: seen.as_deref() }
        });
        let members: Vec<Known<'_>> = known.collect();
        let strategy = self.strategy.as_ref().map(|strategy| strategy::render(strategy).to_string());
        let memory = self.state.as_ref().map(|state| state.value.memory.clone()).unwrap_or_default();
        judge(&Facts {
            profile: &self.doc.profile,
            strategy: strategy.as_deref().unwrap_or("one by one"),
            members: &members,
            releases: &sight.releases,
            memory: &memory,
            active: self.active.as_ref().map(Name::as_str),
            now,
        })
    }

    fn judge(&self, sight: &Sight, now: jiff::Timestamp) -> Judgement {
        self.with(sight, now, channels::judge)
    }

    /// The documents of a run to be made, and its plan.
    async fn planned(
        &self,
        call: &Call,
        fleet: &FleetRef,
        trigger: &Trigger,
        at: usize,
    ) -> Result<(RunDoc, Plan), ArmError> {
        let new = &trigger.runs[at];
        let request = RunRequest {
            strategy: None,
            strategy_id: self.doc.profile.strategy_id.clone(),
            goal: new.goal.clone(),
            start_after: at.checked_sub(1).map(|before| trigger.runs[before].name.clone()),
        };
        let only = Some(trigger.members.as_slice());
        let profile = fleet.child_id(Kind::Profile, &self.doc.profile.name);
        let plan = runs::resolve(call, fleet, &request, self.strategy.as_ref(), only).await?;
        let plan = Plan { profile: Some(profile.clone()), ..plan };
        let doc = runs::document(call, &new.name, request, self.strategy.clone());
        Ok((RunDoc { profile_id: Some(profile), only: Some(trigger.members.clone()), ..doc }, plan))
    }

    fn put_state(&self, fleet: &FleetRef, state: &ProfileState) -> Result<Put, ArmError> {
        let before = self.state.as_ref().map(|state| &state.document);
        documents::put(Collection::ProfileStates, self.key.clone(), fleet.key(), state, before)
    }
}

/// Makes the runs of a profile, and remembers it in the same moment. Answers with the first.
async fn make(call: &Call, fleet: &FleetRef, subject: &Subject, trigger: &Trigger) -> Result<RunDoc, ArmError> {
    fleets::must_exist(call, fleet).await?;
    let mut batch = Batch::default();
    let mut made = Vec::new();
    for at in 0..trigger.runs.len() {
        let (doc, plan) = subject.planned(call, fleet, trigger, at).await?;
        if let Some(there) = runs::find(call, fleet, &doc.name).await? {
            // Somebody generated it before: it is that one.
            made.push(there.value);
            continue;
        }
        runs::add(&mut batch, fleet, &doc, &plan)?;
        made.push(doc);
    }
    let first = made.first().cloned().ok_or_else(ArmError::internal)?;
    let state = ProfileState {
        last: Some(LastTrigger {
            at: call.clock().now(),
            error: None,
            versions: trigger.memory.versions(),
            message: Some(format!("{}, by run '{}'", trigger.message, first.name)),
        }),
        memory: trigger.memory.clone(),
        runs: made.iter().map(|doc| Made { run: doc.run, name: doc.name.clone() }).collect(),
    };
    batch.puts.push(subject.put_state(fleet, &state)?);
    call.commit(batch).await?;
    Ok(first)
}

/// Remembers that a profile could make no run; once for the same reason.
async fn failed(call: &Call, fleet: &FleetRef, key: &str, error: &ArmError) -> Result<(), ArmError> {
    let stored: Option<Stored<ProfileState>> = call.find(Collection::ProfileStates, key).await?;
    let state = stored.as_ref().map(|stored| stored.value.clone()).unwrap_or_default();
    let fault = Fault::new(error.code.clone(), error.message.clone());
    if state.last.as_ref().is_some_and(|last| last.error.as_ref() == Some(&fault)) {
        return Ok(());
    }
    let last = LastTrigger { at: call.clock().now(), error: Some(fault), versions: Vec::new(), message: None };
    let state = ProfileState { last: Some(last), ..state };
    let before = stored.as_ref().map(|stored| &stored.document);
    let put = documents::put(Collection::ProfileStates, key.to_owned(), fleet.key(), &state, before)?;
    call.commit(documents::puts(vec![put])).await
}

/// Makes the run that a profile would make now, whether it is enabled or not, and does not start it. One that is there
/// already is left as it is.
pub async fn generate(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    let stored = profiles::get(call, fleet, name).await?;
    call.conditions.check(Some(&stored.document.etag))?;
    let sight = releases::look(call, fleet, ASKED_AGE).await?;
    let subject = subject(call, fleet, stored, &sight).await?;
    let trigger = subject.with(&sight, call.now, channels::on_demand).map_err(|reason| nothing(name, &reason))?;
    let mut batch = Batch::default();
    for at in 0..trigger.runs.len() {
        let (doc, plan) = subject.planned(call, fleet, &trigger, at).await?;
        if runs::find(call, fleet, &doc.name).await?.is_none() {
            runs::add(&mut batch, fleet, &doc, &plan)?;
        }
    }
    let existing = batch.puts.is_empty();
    if !existing {
        call.commit(batch).await?;
    }
    let first = trigger.runs.first().ok_or_else(ArmError::internal)?;
    Ok(Reply::ok(json!({ "id": fleet.child_id(Kind::Run, &first.name), "existing": existing })))
}

fn nothing(name: &Name, reason: &Reason) -> ArmError {
    ArmError::new(409, "OperationNotAllowed", format!("profile '{name}' has nothing to go to: {}", reason.message))
}

/// Why a profile makes a run now, or none.
pub async fn why(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    let stored = profiles::get(call, fleet, name).await?;
    let sight = releases::look(call, fleet, ASKED_AGE).await?;
    let subject = subject(call, fleet, stored, &sight).await?;
    let judgement = subject.judge(&sight, call.now);
    Ok(Reply::ok(explain(&subject, &sight, &judgement)))
}

fn explain(subject: &Subject, sight: &Sight, judgement: &Judgement) -> Value {
    let (decision, code, message, until) = match &judgement.decision {
        Decision::Trigger(trigger) => ("Trigger", "Trigger", trigger.message.clone(), None),
        Decision::Wait(reason) => ("Wait", reason.code, reason.message.clone(), reason.until),
        Decision::Nothing(reason) => ("Nothing", reason.code, reason.message.clone(), reason.until),
    };
    let members = subject.picked.iter().zip(&judgement.standings).map(|(index, standing)| {
        let (member, _) = &sight.members[*index];
        json!({ "member": member.name, "cluster": member.cluster, "standing": standing.code(),
            "message": standing.to_string() })
    });
    let picked = |index: &usize| subject.picked.binary_search(index).is_ok();
    let uncovered = (0..sight.members.len()).filter(|index| !picked(index)).map(|index| {
        let (member, _) = &sight.members[index];
        json!({ "member": member.name, "cluster": member.cluster, "standing": "NotCovered",
            "message": "no group of the profile's strategy picks it" })
    });
    let profile = &subject.doc.profile;
    let mut told = json!({
        "profile": profile.name,
        "channel": profile.channel.word(),
        "disabled": profile.disabled,
        "versions": judgement.target.as_ref().map(channels::Target::versions).unwrap_or_default(),
        "decision": decision,
        "code": code,
        "message": message,
        "members": members.chain(uncovered).collect::<Vec<Value>>(),
    });
    if let Some(until) = until {
        told["until"] = shortest(until).into();
    }
    if let Some(run) = &subject.active {
        told["run"] = run.as_str().into();
    }
    told
}
