//! HTTP: the ARM routes of `Microsoft.ContainerService/fleets`, health endpoints, and what guards them.
//!
//! A request is read into a [`flotta_arm::path::Target`] and handed to the module of its resource. Whatever is wrong
//! with it is answered in ARM's shape, names the field, and changes nothing.
//!
//! | module | what |
//! |---|---|
//! | `guard` | who may ask at all: loopback only, no foreign host or origin |
//! | `reply` | answers and their headers |
//! | `documents` | keys, reading and changing documents |
//! | `fleets`, `members`, `strategies`, `runs`, `gates` | the resources |
//! | `profiles` | auto-upgrade profiles |
//! | `upgrades` | what goes on by itself: runs that profiles make, chained runs, campaigns |
//! | `releases` | what the fleet's regions offer |
//! | `check` | what a run would do, told before it starts |
//! | `retry` | a new run over the members that an earlier one left |
//! | `provider` | what the provider says of itself; operations |

mod check;
mod documents;
mod fleets;
mod gates;
mod guard;
mod members;
mod profiles;
mod provider;
mod releases;
mod reply;
mod retry;
mod runs;
mod strategies;
mod upgrades;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::{Request, State},
    response::Response,
};
use flotta_arm::{
    api_version::{ApiVersion, merge_unknown, strip},
    conditions::Conditions,
    doc::{Principal, PrincipalKind},
    error::ArmError,
    path::{FleetRef, Kind, Query, Target},
};
use flotta_clock::Clock;
use flotta_orchestrator::Orchestrator;
use flotta_store::Store;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use reply::Reply;
use upgrades::Upgrades;

/// What the server needs.
#[derive(Clone)]
pub struct App {
    store: Arc<dyn Store>,
    orchestrator: Orchestrator,
    fleets: Arc<Fleets>,
    upgrades: Arc<Upgrades>,
}

impl App {
    /// A server over a store and what drives the runs in it. What profiles and chained runs do by themselves begins.
    pub fn new(store: Arc<dyn Store>, orchestrator: Orchestrator) -> Self {
        let app = Self { store, orchestrator, fleets: Arc::default(), upgrades: Arc::default() };
        app.orchestrator.background(upgrades::go_on(app.clone()));
        app
    }
}

/// The largest body that is read, in bytes.
pub const LARGEST_BODY: usize = 4 << 20;

/// How long a body may take to arrive (wall time).
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// Everything that flotta answers over HTTP.
pub fn router(app: App) -> Router {
    let health = || async { "ok" };
    let arm = |State(app): State<App>, request: Request| arm(app, request);
    Router::new()
        .route("/healthz", axum::routing::get(health))
        .route("/readyz", axum::routing::get(ready))
        .fallback(arm)
        .with_state(app)
        .layer(axum::middleware::from_fn(guard::local_only))
}

/// Whether the store answers.
async fn ready(State(app): State<App>) -> Response {
    match app.store.scan(flotta_store::Collection::Meta, None, 1).await {
        Ok(_) => Response::new(Body::from("ok")),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            Reply::refused(&ArmError::service_unavailable("the storage does not answer"))
                .into_response(Timestamp::now())
        }
    }
}

/// A request, read as far as it concerns every resource.
pub(crate) struct Call {
    pub app: App,
    pub method: Method,
    pub path: String,
    pub query: Query,
    pub version: ApiVersion,
    pub conditions: Conditions,
    pub body: Vec<u8>,
    /// Scheme and host that the caller used: the base of links.
    pub base: String,
    pub by: Principal,
    pub now: Timestamp,
}

impl Call {
    pub fn clock(&self) -> Clock {
        self.app.orchestrator.clock()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value, ArmError> {
        flotta_arm::parse_body(&self.body)
    }

    /// The body as its api-version means it: what that cannot know is left out, and kept where `known` has it already.
    pub fn meant(&self, known: Option<&Value>) -> Result<Value, ArmError> {
        let body = self.json()?;
        Ok(match known {
            Some(known) => merge_unknown(known, body, self.version),
            None => strip(body, self.version),
        })
    }

    pub fn method_not_allowed(&self, target: &Target) -> ArmError {
        ArmError::method_not_allowed(self.method.as_str(), target.methods())
    }
}

async fn arm(app: App, request: Request) -> Response {
    let (clock, fleets) = (app.orchestrator.clock(), Arc::clone(&app.fleets));
    let outcome = match Call::read(app, request).await {
        Ok((call, target, rest)) => {
            let _turn = fleets.turn(&call.method, &target).await;
            route(&call, target, rest).await
        }
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| Reply::refused(&error)).into_response(clock.now())
}

/// Keeps a fleet from being deleted while something is put into it: that would be left behind, in a fleet that is gone
/// and in the next of its name.
#[derive(Default)]
struct Fleets(RwLock<()>);

impl Fleets {
    /// A turn to put something into a fleet.
    async fn shared(&self) -> Turn<'_> {
        Turn::Shared(self.0.read().await)
    }

    async fn turn(&self, method: &Method, target: &Target) -> Turn<'_> {
        match (method, target) {
            (&Method::DELETE, Target::Fleet(_)) => Turn::Alone(self.0.write().await),
            // A POST to a run or fleet itself is what stands beside it; some of that makes runs.
            (&Method::PUT | &Method::PATCH, _)
            | (&Method::POST, Target::Run(..) | Target::GenerateUpdateRun(..) | Target::Fleet(_)) => {
                self.shared().await
            }
            _ => Turn::Free,
        }
    }
}

#[expect(dead_code, reason = "the guards are there to be held")]
enum Turn<'a> {
    Alone(RwLockWriteGuard<'a, ()>),
    Shared(RwLockReadGuard<'a, ()>),
    Free,
}

/// A part of a path that ARM does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    WaitingOn,
    Check,
    Retry,
    Why,
    Releases,
    Campaign,
}

impl Beside {
    const ALL: [Self; 6] = [Self::WaitingOn, Self::Check, Self::Retry, Self::Why, Self::Releases, Self::Campaign];

    /// The end of the path, in lower case.
    fn suffix(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::WaitingOn => "/waitingon",
            Self::Check => "/check",
            Self::Retry => "/retry",
            Self::Why => "/why",
            Self::Releases => "/releases",
            Self::Campaign => "/campaign",
        }
    }

    /// Whether it stands beside that.
    fn goes_with(self, target: &Target) -> bool {
        match self {
            Self::Nothing => true,
            Self::WaitingOn | Self::Check | Self::Retry => matches!(target, Target::Run(..)),
            Self::Why => matches!(target, Target::Profile(..)),
            Self::Releases | Self::Campaign => matches!(target, Target::Fleet(_)),
        }
    }

    /// What a path leads to, and what stands beside it. A run may well be named `check` or `retry`.
    fn split(path: &str) -> Result<(Target, Self), ArmError> {
        let lower = path.to_ascii_lowercase();
        for beside in Self::ALL {
            let of = lower.strip_suffix(beside.suffix()).map(|rest| Target::parse(&path[..rest.len()]));
            if let Some(Ok(target)) = of
                && beside.goes_with(&target)
            {
                return Ok((target, beside));
            }
        }
        Ok((Target::parse(path)?, Self::Nothing))
    }

    fn methods(self, target: &Target) -> &'static str {
        match self {
            Self::Nothing => target.methods(),
            Self::WaitingOn | Self::Why | Self::Releases => "GET",
            Self::Check | Self::Retry | Self::Campaign => "POST",
        }
    }
}

impl Call {
    async fn read(app: App, request: Request) -> Result<(Self, Target, Beside), ArmError> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let (target, beside) = Beside::split(&path)?;
        let query = Query::parse(head.uri.query().unwrap_or_default())?;
        // Operation URLs carry a version of their own, which clients take as it is.
        let version = match target {
            Target::Operation { .. } | Target::OperationResult { .. } | Target::Provider { .. } => ApiVersion::NEWEST,
            _ => ApiVersion::of(&query)?,
        };
        let conditions = conditions(&head.headers)?;
        let body = read_body(body).await?;
        let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        let call = Self {
            now: app.orchestrator.clock().now(),
            app,
            method: head.method,
            path,
            query,
            version,
            conditions,
            body,
            base: format!("http://{host}"),
            by: principal(&head.headers)?,
        };
        Ok((call, target, beside))
    }
}

/// Who asks, as they say themselves: without authentication a name is taken on trust, and only loopback may ask at all.
fn principal(headers: &HeaderMap) -> Result<Principal, ArmError> {
    const NAME: &str = "x-ms-client-principal-name";
    const LONGEST: usize = 100;
    let Some(name) = headers.get(NAME) else {
        return Ok(Principal { name: "anonymous".into(), kind: PrincipalKind::User });
    };
    let name = name.to_str().ok().map(str::trim).filter(|name| (1..=LONGEST).contains(&name.len()));
    let bad = || {
        let message = format!("{NAME}: use 1 to {LONGEST} visible ASCII characters, or leave the header out");
        ArmError::new(400, "InvalidHeaderValue", message).at(NAME)
    };
    Ok(Principal { name: name.ok_or_else(bad)?.to_owned(), kind: PrincipalKind::User })
}

async fn read_body(body: Body) -> Result<Vec<u8>, ArmError> {
    let too_large = || ArmError::request_entity_too_large(LARGEST_BODY);
    // What says that it is too large need not be waited for.
    if body.size_hint().lower() > LARGEST_BODY as u64 {
        return Err(too_large());
    }
    let read = tokio::time::timeout(BODY_WITHIN, Limited::new(body, LARGEST_BODY).collect()).await;
    let late =
        |_| ArmError::new(408, "RequestTimeout", format!("no whole body came within {BODY_WITHIN:?}; send it again"));
    let body = read.map_err(late)?.map_err(|error| match error.is::<LengthLimitError>() {
        true => too_large(),
        false => ArmError::invalid_request_content("it broke off"),
    });
    Ok(body?.to_bytes().to_vec())
}

/// The conditions of a request; several headers of a name are one list.
fn conditions(headers: &HeaderMap) -> Result<Conditions, ArmError> {
    let list = |name: &'static str| {
        let values: Result<Vec<&str>, _> = headers.get_all(name).iter().map(HeaderValue::to_str).collect();
        let bad = |_| {
            let message = format!("{name}: use *, or etags as the eTag of an answer has them");
            ArmError::new(400, "InvalidHeaderValue", message).at(name)
        };
        values.map(|values| values.join(",")).map_err(bad)
    };
    Conditions::parse(Some(&list("If-Match")?), Some(&list("If-None-Match")?))
}

async fn route(call: &Call, target: Target, beside: Beside) -> Result<Reply, ArmError> {
    let allowed = beside.methods(&target);
    if !allowed.split(", ").any(|method| method == call.method.as_str()) {
        return Ok(Reply::method_not_allowed(call.method.as_str(), allowed));
    }
    match &target {
        Target::Run(fleet, name) if beside == Beside::WaitingOn => runs::waiting_on(call, fleet, name).await,
        Target::Run(fleet, name) if beside == Beside::Check => check::stored(call, fleet, name).await,
        Target::Run(fleet, name) if beside == Beside::Retry => retry::retry(call, fleet, name).await,
        Target::Profile(fleet, name) if beside == Beside::Why => upgrades::why(call, fleet, name).await,
        Target::Fleet(fleet) if beside == Beside::Releases => releases::list(call, fleet).await,
        Target::Fleet(fleet) if beside == Beside::Campaign => upgrades::campaign(call, fleet).await,
        Target::Fleet(fleet) => fleets::one(call, &target, fleet).await,
        Target::FleetsOfGroup { .. } | Target::FleetsOfSubscription { .. } => fleets::list(call, &target).await,
        Target::Member(fleet, name) => members::one(call, &target, fleet, name).await,
        Target::Strategy(fleet, name) => strategies::one(call, &target, fleet, name).await,
        Target::Run(fleet, name) => runs::one(call, &target, fleet, name).await,
        Target::RunAction(fleet, name, action) => runs::act(call, fleet, name, *action).await,
        Target::Children(fleet, kind) => children(call, fleet, *kind).await,
        Target::Gate(fleet, id) => gates::one(call, &target, fleet, id).await,
        Target::Profile(fleet, name) => profiles::one(call, &target, fleet, name).await,
        Target::GenerateUpdateRun(fleet, name) => upgrades::generate(call, fleet, name).await,
        Target::ListCredentials(fleet) => fleets::credentials(call, fleet).await,
        Target::ProviderOperations => Ok(provider::operations()),
        Target::Provider { subscription } => Ok(provider::registration(subscription)),
        Target::Operation { id, .. } => provider::operation(call, *id).await,
        Target::OperationResult { id, .. } => provider::operation_result(call, *id).await,
    }
}

async fn children(call: &Call, fleet: &FleetRef, kind: Kind) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    match kind {
        Kind::Member => members::list(call, fleet).await,
        Kind::Strategy => strategies::list(call, fleet).await,
        Kind::Run => runs::list(call, fleet).await,
        Kind::Gate => gates::list(call, fleet).await,
        Kind::Profile => profiles::list(call, fleet).await,
        Kind::Fleet => Ok(Reply::ok(flotta_arm::paging::list(Vec::new(), None))),
    }
}
