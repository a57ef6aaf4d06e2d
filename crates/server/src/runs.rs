//! Update runs.

use std::collections::HashSet;

use flotta_arm::{
    doc::{MemberDoc, RunDoc, SystemData},
    error::ArmError,
    paging::{self, Page},
    path::{FleetRef, Kind, RunAction, Target},
    run::{self, RunRequest},
    skip,
    status::Detail,
};
use flotta_engine::{
    Input, Plan, PlanError, Refusal, Run, State,
    run::{Part, Reason, RunPhase},
};
use flotta_model::{ImageSelection, Name, Strategy};
use flotta_orchestrator::{Command, Error, Moment, NumberCheck, RunRef};
use flotta_store::{Batch, Collection};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    Call, check,
    documents::{self, Stored},
    fleets,
    reply::Reply,
    strategies, upgrades,
};

/// Members shown on one page of a list of runs, roughly: a page also ends by size.
const MEMBERS_ON_A_PAGE: usize = 20_000;

/// Times that a run may be replaced while a request for it is on its way.
const MOST_REPLACED: usize = 100;

/// GET, PUT, DELETE of one run.
pub async fn one(call: &Call, target: &Target, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    match call.method {
        Method::GET => {
            let shown =
                current(call, fleet, name, |stored| async move { show(call, fleet, &stored.value).await }).await?;
            shown.map(Reply::ok).ok_or_else(|| fleet.child_not_found(Kind::Run, name))
        }
        Method::PUT => put(call, fleet, name).await,
        Method::DELETE => {
            let retired = current(call, fleet, name, |stored| async move {
                retire(call, fleet, &stored, check(call, stored.value.run), false).await
            });
            match retired.await? {
                Some(()) => Ok(Reply::done()),
                None => call.conditions.check(None).map(|()| Reply::nothing()),
            }
        }
        _ => Err(call.method_not_allowed(target)),
    }
}

/// The run of a name, if there is one.
pub async fn find(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Option<Stored<RunDoc>>, ArmError> {
    call.find(Collection::Runs, &documents::child_key(fleet, Kind::Run, name)).await
}

/// Does something with a run; anew where a PUT put another in its place meanwhile. `None`: there is none.
pub async fn current<T, F: Future<Output = Result<T, Error>>>(
    call: &Call,
    fleet: &FleetRef,
    name: &Name,
    act: impl Fn(Stored<RunDoc>) -> F,
) -> Result<Option<T>, ArmError> {
    for _ in 0..MOST_REPLACED {
        let Some(stored) = find(call, fleet, name).await? else { return Ok(None) };
        match act(stored).await {
            Err(Error::NoSuchRun) => {}
            outcome => return outcome.map(Some).map_err(refused),
        }
    }
    Err(refused(Error::NoSuchRun))
}

/// How the orchestrator knows a run.
pub fn reference(fleet: &FleetRef, doc: &RunDoc) -> RunRef {
    let label = format!("{}/{}", fleet.fleet, doc.name).into();
    RunRef { id: doc.run, label, fleet: fleet.key().into() }
}

/// The state of a run.
pub async fn state(call: &Call, fleet: &FleetRef, doc: &RunDoc) -> Result<State, Error> {
    call.app.orchestrator.read(&reference(fleet, doc), |run, _| run.state()).await
}

/// The etag of a run: its identity and the number of its last entry.
pub fn etag(id: Uuid, number: u64) -> String {
    format!("{id}-{number}")
}

/// `explain=true` asks for what ARM's tree has no place for: reasons, the version a minor came to, uncovered members.
fn detail(call: &Call) -> Detail {
    match call.query.get("explain") {
        Some("true") => Detail::Explained(call.now),
        _ => Detail::Documented,
    }
}

/// What makes the answer that shows a run.
fn shower(call: &Call, fleet: &FleetRef, doc: &RunDoc) -> impl FnOnce(&Run, u64) -> Value + Send + 'static + use<> {
    let id = fleet.child_id(Kind::Run, &doc.name);
    let (doc, version, detail) = (doc.clone(), call.version, detail(call));
    move |run, number| doc.render(&id, &etag(doc.run, number), version, run, detail)
}

async fn show(call: &Call, fleet: &FleetRef, doc: &RunDoc) -> Result<Value, Error> {
    call.app.orchestrator.read(&reference(fleet, doc), shower(call, fleet, doc)).await
}

/// A check of If-Match against a run's number, for the one who knows that number.
fn check(call: &Call, id: Uuid) -> NumberCheck {
    let conditions = call.conditions.clone();
    Box::new(move |_, number| conditions.check(Some(&etag(id, number))).is_ok())
}

async fn put(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    if dry_run(call)? {
        let (_, plan) = planned(call, fleet, &run::parse(&call.meant(None)?)?).await?;
        return check::planned(call, fleet, plan).await;
    }
    let before = find(call, fleet, name).await?;
    let known = before.as_ref().map(|stored| stored.value.request());
    let request = run::parse(&call.meant(known.as_ref())?)?;
    match before {
        None => {
            call.conditions.check(None)?;
            create(call, fleet, name, request).await
        }
        Some(stored) => update(call, fleet, &stored, request).await,
    }
}

/// `dryRun=true` asks what a new run would do, and changes nothing.
fn dry_run(call: &Call) -> Result<bool, ArmError> {
    match call.query.get("dryRun") {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            let got: String = other.chars().take(40).collect();
            Err(ArmError::invalid_parameter("dryRun", format!("'{got}' is neither true nor false")))
        }
    }
}

/// The strategy and the plan of a new run.
async fn planned(call: &Call, fleet: &FleetRef, request: &RunRequest) -> Result<(Option<Strategy>, Plan), ArmError> {
    if request.strategy.is_some() && request.strategy_id.is_some() {
        let reason = "strategy and updateStrategyId exclude each other: send one of them";
        return Err(ArmError::invalid_parameter("properties.strategy", reason));
    }
    let strategy = strategy_of(call, fleet, request).await?;
    let plan = resolve(call, fleet, request, strategy.as_ref(), None).await?;
    Ok((strategy, plan))
}

async fn create(call: &Call, fleet: &FleetRef, name: &Name, request: RunRequest) -> Result<Reply, ArmError> {
    upgrades::check_chain(call, fleet, name, request.start_after.as_ref()).await?;
    let (strategy, plan) = planned(call, fleet, &request).await?;
    make(call, fleet, &document(call, name, request, strategy), &plan).await
}

/// Keeps a new run with its plan, and answers with it.
pub async fn make(call: &Call, fleet: &FleetRef, doc: &RunDoc, plan: &Plan) -> Result<Reply, ArmError> {
    let mut batch = Batch::default();
    add(&mut batch, fleet, doc, plan)?;
    call.commit(batch).await?;
    if doc.start_after.is_some() {
        call.app.upgrades.look_at(&fleet.key());
    }
    Ok(Reply::created(show(call, fleet, doc).await.map_err(refused)?))
}

/// Before a run is started a PUT resolves it anew; afterwards it may only say again what was said.
/// Adds the documents of a run that does not exist yet.
pub fn add(batch: &mut Batch, fleet: &FleetRef, doc: &RunDoc, plan: &Plan) -> Result<(), ArmError> {
    let key = documents::child_key(fleet, Kind::Run, &doc.name);
    batch.puts.push(documents::put(Collection::Runs, key, fleet.key(), doc, None)?);
    flotta_orchestrator::journal::add_new(batch, doc.run, plan).map_err(refused)
}

async fn update(
    call: &Call,
    fleet: &FleetRef,
    stored: &Stored<RunDoc>,
    request: RunRequest,
) -> Result<Reply, ArmError> {
    let doc = &stored.value;
    let same_strategy = request.strategy == doc.strategy;
    if request.strategy.is_some() && request.strategy_id.is_some() && !same_strategy {
        let reason = "it is not the run's copy of the strategy behind updateStrategyId: send one of them";
        return Err(ArmError::invalid_parameter("properties.strategy", reason));
    }
    let run = reference(fleet, doc);
    let id = doc.run;
    let seen = call
        .app
        .orchestrator
        .read(&run, move |run, number| (run.phase(), run.state(), etag(id, number), run.plan().images.clone()));
    let (phase, state, current, images) = seen.await.map_err(refused)?;
    call.conditions.check(Some(&current))?;
    let same_id = match (&request.strategy_id, &doc.strategy_id) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        (one, other) => one.is_none() == other.is_none(),
    };
    if phase != RunPhase::Idle {
        let same_source = match (&request.strategy, &request.strategy_id) {
            (Some(_), _) => same_strategy,
            (None, Some(_)) => same_id,
            (None, None) => doc.strategy.is_none(),
        };
        if same_source && request.goal == doc.goal && request.start_after == doc.start_after {
            return Ok(Reply::ok(show(call, fleet, doc).await.map_err(refused)?));
        }
        return Err(ArmError::conflict(format!(
            "update run '{}' is {state:?}: strategy, managedClusterUpdate and startAfter can be changed only until it is started; create another run",
            doc.name
        )));
    }
    let strategy = match request.strategy {
        Some(_) => request.strategy.clone(),
        None => strategy_of(call, fleet, &request).await?,
    };
    upgrades::check_chain(call, fleet, &doc.name, request.start_after.as_ref()).await?;
    let plan = resolve(call, fleet, &request, strategy.as_ref(), doc.limited_to()).await?;
    let images = images.filter(|_| request.goal.images() == Some(&ImageSelection::Consistent));
    let plan = Plan { profile: doc.profile_id.clone(), images, ..plan };
    let (profile_id, retry, only) = (doc.profile_id.clone(), doc.retry.clone(), doc.only.clone());
    let new = RunDoc { profile_id, retry, only, ..document(call, &doc.name, request, strategy) };
    let key = documents::child_key(fleet, Kind::Run, &doc.name);
    let put = documents::put(Collection::Runs, key, fleet.key(), &new, Some(&stored.document))?;
    let mut batch = documents::puts(vec![put]);
    flotta_orchestrator::journal::add_new(&mut batch, new.run, &plan).map_err(refused)?;
    call.app.orchestrator.retire(&run, check(call, id), true, batch).await.map_err(refused)?;
    if new.start_after.is_some() {
        call.app.upgrades.look_at(&fleet.key());
    }
    Ok(Reply::ok(show(call, fleet, &new).await.map_err(refused)?))
}

/// A new run of a request.
pub fn document(call: &Call, name: &Name, request: RunRequest, strategy: Option<Strategy>) -> RunDoc {
    RunDoc {
        run: Uuid::now_v7(),
        name: name.clone(),
        strategy,
        strategy_id: request.strategy_id,
        goal: request.goal,
        system_data: SystemData::new(call.by.clone(), call.now),
        profile_id: None,
        retry: None,
        only: None,
        start_after: request.start_after,
    }
}

/// The strategy of a new run: its own, or a copy of the one it names.
async fn strategy_of(call: &Call, fleet: &FleetRef, request: &RunRequest) -> Result<Option<Strategy>, ArmError> {
    match &request.strategy_id {
        Some(id) => strategies::by_id(call, fleet, id).await.map(Some),
        None => Ok(request.strategy.clone()),
    }
}

/// The plan of a request: over the members of the fleet, or over those that alone can be in it.
pub async fn resolve(
    call: &Call,
    fleet: &FleetRef,
    request: &RunRequest,
    strategy: Option<&Strategy>,
    only: Option<&[Name]>,
) -> Result<Plan, ArmError> {
    let members: Vec<Stored<MemberDoc>> = call.all(Collection::Members, &fleet.key()).await?;
    let only: Option<HashSet<&Name>> = only.map(|only| only.iter().collect());
    let members = members.into_iter().map(|stored| stored.value.member);
    let members: Vec<flotta_model::Member> =
        members.filter(|member| only.as_ref().is_none_or(|only| only.contains(&member.name))).collect();
    let plan = Plan::resolve(request.goal.clone(), strategy, &members).map_err(|error| match error {
        PlanError::Overlap { .. } => ArmError::invalid_parameter("properties.strategy", error),
    })?;
    Ok(Plan { created_by: Some(call.by.name.clone()), ..plan })
}

/// Forgets a run if its number is as `check` wants it; with `only_idle`, only if it was never started.
pub async fn retire(
    call: &Call,
    fleet: &FleetRef,
    stored: &Stored<RunDoc>,
    check: NumberCheck,
    only_idle: bool,
) -> Result<(), Error> {
    let run = reference(fleet, &stored.value);
    let batch = Batch { deletes: vec![documents::delete(&stored.document)], ..Batch::default() };
    call.app.orchestrator.retire(&run, check, only_idle, batch).await
}

/// A run is told of members that left since it was made, before it may move them: whoever deleted them may not have
/// lived to say so, or not have seen the run yet.
pub async fn tell_who_left(call: &Call, fleet: &FleetRef, name: &Name) -> Result<(), ArmError> {
    let Some(stored) = find(call, fleet, name).await? else { return Ok(()) };
    let run = reference(fleet, &stored.value);
    let waiting = call.app.orchestrator.read(&run, |run, _| {
        let plan = run.plan().members.iter().enumerate();
        let waits = plan.filter(|(at, _)| matches!(run.member_state(*at as u32), State::NotStarted | State::Pending));
        waits.map(|(_, member)| member.name.clone()).collect::<Vec<Name>>()
    });
    let waiting = match waiting.await {
        Ok(waiting) => waiting,
        Err(Error::NoSuchRun) => return Ok(()),
        Err(error) => return Err(refused(error)),
    };
    let members: Vec<Stored<MemberDoc>> = call.all(Collection::Members, &fleet.key()).await?;
    let here: HashSet<Name> = members.into_iter().map(|stored| stored.value.member.name).collect();
    for gone in waiting.iter().filter(|name| !here.contains(*name)) {
        call.app.orchestrator.member_left(&run, gone).await.map_err(refused)?;
    }
    Ok(())
}

/// start, stop, skip.
pub async fn act(call: &Call, fleet: &FleetRef, name: &Name, action: RunAction) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    if action == RunAction::Start {
        tell_who_left(call, fleet, name).await?;
    }
    // The service answers a start with the run as it was before.
    let (input, moment) = match action {
        RunAction::Start => (Input::Start, Moment::Before),
        RunAction::Stop => (Input::Stop, Moment::After),
        RunAction::Skip => (Input::Skip(skip::parse(&call.json()?)?), Moment::After),
    };
    let shown = current(call, fleet, name, |Stored { value: doc, .. }| {
        let command = Command { input: input.clone(), by: call.by.name.as_str().into(), check: check(call, doc.run) };
        async move {
            let run = reference(fleet, &doc);
            call.app.orchestrator.command(&run, command, moment, shower(call, fleet, &doc)).await
        }
    });
    shown.await?.map(Reply::ok).ok_or_else(|| fleet.child_not_found(Kind::Run, name))
}

/// Why a run, or a part of it, does not move. Of a member: every rule that holds it; of more than one: counts by reason.
pub async fn waiting_on(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    let asked = AskedPart::of(call)?;
    let now = call.now;
    let told = current(call, fleet, name, |stored| {
        let asked = asked.clone();
        async move {
            let run = reference(fleet, &stored.value);
            let after = stored.value.start_after;
            let explain = move |run: &Run, part| explain(run, part, after.as_ref(), now);
            call.app.orchestrator.read(&run, move |run, _| asked.find(run).map(|part| explain(run, part))).await
        }
    });
    let told = told.await?.ok_or_else(|| fleet.child_not_found(Kind::Run, name))?;
    told.map(Reply::ok).ok_or_else(|| asked.not_found(name))
}

/// The part of a run that somebody asks about.
#[derive(Clone, PartialEq)]
pub enum AskedPart {
    Run,
    Stage(String),
    Group(String),
    Member(String),
}

impl AskedPart {
    /// Reads it from the query: at most one of `member`, `group` and `stage`.
    pub fn of(call: &Call) -> Result<Self, ArmError> {
        let named = |kind: &str| call.query.get(kind).map(str::to_owned);
        let member = named("member").map(Self::Member);
        let mut asked =
            member.into_iter().chain(named("group").map(Self::Group)).chain(named("stage").map(Self::Stage));
        match (asked.next(), asked.next()) {
            (Some(_), Some(other)) => {
                Err(ArmError::invalid_parameter(other.kind(), "ask about one member, group or stage at a time"))
            }
            (Some(part), None) => Ok(part),
            (None, _) => Ok(Self::Run),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Stage(_) => "stage",
            Self::Group(_) => "group",
            Self::Member(_) => "member",
        }
    }

    /// The part, if the run has it.
    pub fn find(&self, run: &Run) -> Option<Part> {
        let plan = run.plan();
        let index = |at: Option<usize>| at.map(|at| at as u32);
        match self {
            Self::Run => Some(Part::Run),
            Self::Stage(name) => {
                index(plan.stages.iter().position(|stage| stage.name.as_str() == name)).map(Part::Stage)
            }
            Self::Group(name) => {
                index(plan.groups.iter().position(|group| group.name.as_str() == name)).map(Part::Group)
            }
            Self::Member(name) => {
                index(plan.members.iter().position(|member| member.name.as_str() == name)).map(Part::Member)
            }
        }
    }

    /// That the run does not have it.
    pub fn not_found(&self, run: &Name) -> ArmError {
        let name = match self {
            Self::Run => "",
            Self::Stage(name) | Self::Group(name) | Self::Member(name) => name,
        };
        let message = format!("run '{run}' has no {} '{name}'", self.kind());
        ArmError::new(404, "NotFound", message).at(self.kind())
    }
}

fn explain(run: &Run, part: Part, after: Option<&Name>, now: Timestamp) -> Value {
    let reasons = run.waiting_on(part, now);
    let state = match part {
        Part::Run => run.state(),
        Part::Stage(stage) => run.stage_state(stage),
        Part::Group(group) => run.group_state(group),
        Part::Member(member) => run.member_state(member),
    };
    let mut told = json!({ "state": format!("{state:?}"), "value": reasons });
    if let (Part::Member(_), false, Some(at)) = (part, reasons.is_empty(), Reason::earliest(&reasons)) {
        told["earliest"] = json!(at);
    }
    if let (RunPhase::Idle, Some(after)) = (run.phase(), after) {
        told["startAfter"] = json!(after);
    }
    told
}

/// The runs of a fleet. A page ends by number, or by how many members it shows.
pub async fn list(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    let page = Page::of(&call.query)?;
    let (found, mut more): (Vec<Stored<RunDoc>>, bool) = call.page(Collection::Runs, &fleet.key(), page).await?;
    let (mut value, mut last, mut members) = (Vec::new(), None, 0);
    for stored in &found {
        if members > MEMBERS_ON_A_PAGE {
            more = true;
            break;
        }
        let shower = shower(call, fleet, &stored.value);
        let run = reference(fleet, &stored.value);
        let shown =
            call.app.orchestrator.read(&run, move |run, number| (run.plan().members.len(), shower(run, number)));
        match shown.await {
            Ok((count, shown)) => {
                members += count;
                value.push(shown);
            }
            Err(Error::NoSuchRun) => {} // Deleted while the list was made.
            Err(error) => return Err(refused(error)),
        }
        last = Some(stored.document.serial);
    }
    let next = last.filter(|_| more).map(|serial| call.next_link(serial));
    Ok(Reply::ok(paging::list(value, next)))
}

/// What the orchestrator's refusals mean to a client.
pub fn refused(error: Error) -> ArmError {
    match error {
        Error::NoSuchRun => {
            ArmError::conflict("the update run was replaced or deleted at the same time; read it again and repeat")
        }
        Error::Refused(refusal @ Refusal::State { .. }) => {
            ArmError::new(409, "OperationNotAllowed", refusal.to_string())
        }
        Error::Refused(refusal @ (Refusal::Done { .. } | Refusal::Gate { .. })) => {
            ArmError::new(409, "OperationNotAllowed", refusal.to_string())
        }
        Error::Refused(refusal @ (Refusal::NoSuchTarget { .. } | Refusal::NoTargets | Refusal::NoSuchGate(_))) => {
            ArmError::invalid_parameter("targets", refusal)
        }
        Error::Changed => ArmError::precondition_failed(
            "If-Match",
            "the update run was changed since; read it again, then repeat the request",
        ),
        Error::Started => ArmError::conflict("the update run was started meanwhile; read it again"),
        Error::Store(error) => documents::refused(&error),
        Error::Corrupt(detail) => {
            tracing::error!(detail, "a run cannot be read");
            ArmError::internal()
        }
        Error::ShuttingDown => ArmError::service_unavailable("the server is shutting down; repeat the request"),
    }
}
