//! The simulated cloud as an HTTP service: the ARM API, and beside it the admin surface under `/simulator/`.
//!
//! | admin call | what |
//! |---|---|
//! | `GET /simulator/health` | whether it runs, its domain time and how many clusters it has |
//! | `GET /simulator/requests?after=N&limit=M` | the last requests |
//! | `GET /simulator/accepted?after=N&limit=M` | every accepted start |
//! | `GET`, `POST`, `DELETE /simulator/faults` | the fault rules; POST takes a rule or a list of them |

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Query, Request as HttpRequest, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    call::{self, Call},
    draw::Draw,
    faults::{Fault, FaultRule},
    record,
    refusal::{Author, Refusal},
    simulator::{Asked, Reply, Simulator},
};

/// The largest request body, in bytes.
const LARGEST_BODY: usize = 4 << 20;

/// Entries in one answer of the admin surface at most.
const MOST_ENTRIES: usize = 10_000;

impl Simulator {
    /// The whole API. It can be served, or called in process.
    pub fn router(self: &Arc<Self>) -> Router {
        let faults = get(list_faults).post(add_faults).delete(clear_faults);
        Router::new()
            .route("/simulator/health", get(health))
            .route("/simulator/requests", get(requests))
            .route("/simulator/accepted", get(accepted))
            .route("/simulator/faults", faults)
            .fallback(arm)
            .with_state(self.clone())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    after: u64,
    limit: Option<usize>,
}

impl Page {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(MOST_ENTRIES).min(MOST_ENTRIES)
    }
}

async fn health(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    let clusters = simulator.fleet.clusters.len();
    Json(json!({"status": "healthy", "time": simulator.clock.now(), "clusters": clusters}))
}

async fn requests(State(simulator): State<Arc<Simulator>>, Query(page): Query<Page>) -> Json<Value> {
    Json(json!({"value": simulator.requests.after(page.after, page.limit())}))
}

async fn accepted(State(simulator): State<Arc<Simulator>>, Query(page): Query<Page>) -> Json<Value> {
    let (count, value) = simulator.accepted(page.after, page.limit());
    Json(json!({"count": count, "value": value}))
}

async fn list_faults(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    Json(json!({"value": simulator.faults.rules()}))
}

async fn clear_faults(State(simulator): State<Arc<Simulator>>) -> StatusCode {
    simulator.faults.clear();
    StatusCode::NO_CONTENT
}

async fn add_faults(State(simulator): State<Arc<Simulator>>, body: Body) -> Response {
    let refuse =
        |reason: String| (StatusCode::BAD_REQUEST, Json(json!({"error": {"code": "BadFaultRule", "message": reason}})));
    let Ok(bytes) = axum::body::to_bytes(body, LARGEST_BODY).await else {
        return refuse("the body cannot be read or is too large".into()).into_response();
    };
    let one = |value: Value| serde_path_to_error::deserialize::<_, FaultRule>(value).map_err(|error| error.to_string());
    let rules = match serde_json::from_slice(&bytes) {
        Ok(Value::Array(rules)) => rules.into_iter().map(one).collect::<Result<Vec<_>, _>>(),
        Ok(rule) => one(rule).map(|rule| vec![rule]),
        Err(error) => Err(error.to_string()),
    };
    let checked = rules.and_then(|rules| rules.iter().try_for_each(FaultRule::check).map(|()| rules));
    match checked.and_then(|rules| simulator.faults.add(rules)) {
        Ok(count) => (StatusCode::CREATED, Json(json!({"rules": count}))).into_response(),
        Err(reason) => refuse(reason).into_response(),
    }
}

/// What a request came to, for its answer and its line in the log.
struct Outcome {
    call: Option<Call>,
    cluster: Option<String>,
    result: Result<Reply, Refusal>,
    fault: Option<Fault>,
}

/// Answers a call of the ARM API.
async fn arm(State(simulator): State<Arc<Simulator>>, request: HttpRequest) -> Response {
    let number = simulator.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let now = simulator.clock.now();
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    let mut outcome = simulator.outcome(&parts, body, now).await;
    if let Ok(reply) = &mut outcome.result
        && let Some(durable) = reply.durable.take()
        && durable.await.is_err()
    {
        outcome.result = Err(Refusal::service(500, "InternalOperationError", "Internal server error"));
    }
    let operation = outcome.result.as_ref().ok().and_then(|reply| reply.operation);
    let mut response = simulator.response(&outcome.result, method, number, now);
    match outcome.fault {
        Some(Fault::DelayAnswer { seconds }) => simulator.clock.pause(Duration::from_secs_f64(seconds)).await,
        Some(Fault::FailAfter { status }) => {
            response = simulator.response(&Err(unavailable(status)), method, number, now)
        }
        Some(Fault::DropAnswer) => response = broken(),
        _ => {}
    }
    let dropped = outcome.fault == Some(Fault::DropAnswer);
    simulator.requests.push(record::Request {
        number: 0,
        time: now,
        method: method.to_owned(),
        path: path.chars().take(500).collect(),
        call: outcome.call.map(|call| call.kind),
        cluster: outcome.cluster,
        status: if dropped { 0 } else { response.status().as_u16() },
        operation,
    });
    response
}

impl Simulator {
    async fn outcome(&self, parts: &http::request::Parts, body: Body, now: Timestamp) -> Outcome {
        let refuse = |refusal| Outcome { call: None, cluster: None, result: Err(refusal), fault: None };
        let Some(call) = Call::read(parts.method.as_str(), parts.uri.path()) else {
            let message = format!(
                "The requested resource does not support http method '{}', or there is no such path.",
                parts.method
            );
            return refuse(Refusal::gateway(404, "InvalidResourceType", message));
        };
        let Some(query) = call::pairs(parts.uri.query().unwrap_or_default()) else {
            return refuse(Refusal::gateway(400, "InvalidRequestUri", "The query of the request is malformed."));
        };
        if !query.iter().any(|(key, value)| key.eq_ignore_ascii_case("api-version") && !value.is_empty()) {
            let message = "The api-version query parameter (?api-version=) is required for all requests.";
            return refuse(Refusal::gateway(400, "MissingApiVersionParameter", message));
        }
        let cell = self.cell_of(&call);
        let named = (!call.cluster.is_empty()).then(|| call.cluster.clone());
        let cluster = cell.as_ref().map(|cell| cell.name().to_owned()).or(named);
        let fault = self.faults.due(cluster.as_deref().unwrap_or_default(), call.kind);
        let early = match fault {
            Some(Fault::FailBefore { status }) => Err(unavailable(status)),
            Some(Fault::Throttle { retry_after }) => Err(Refusal {
                retry_after: Some(retry_after),
                ..Refusal::service(429, "Throttled", "Too many requests.")
            }),
            _ => self.throttle(&call, cell.as_deref(), now),
        };
        let result = match early {
            Ok(()) => self.let_through(&call, parts, &query, body, now).await,
            Err(refusal) => Err(refusal),
        };
        Outcome { call: Some(call), cluster, result, fault }
    }

    async fn let_through(
        &self,
        call: &Call,
        parts: &http::request::Parts,
        query: &[(String, String)],
        body: Body,
        now: Timestamp,
    ) -> Result<Reply, Refusal> {
        let malformed = |reason: String| Refusal::gateway(400, "InvalidRequestContent", reason);
        let bytes = axum::body::to_bytes(body, LARGEST_BODY)
            .await
            .map_err(|_| malformed(format!("The body cannot be read, or is larger than {LARGEST_BODY} bytes.")))?;
        let body = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).map_err(|error| {
                malformed(format!("The request content was invalid and could not be deserialized: '{error}'."))
            })?,
        };
        let base = base(&parts.headers, &parts.uri);
        self.answer(&Asked { call, headers: &parts.headers, query, body: &body, base: &base, now }).await
    }

    fn response(&self, result: &Result<Reply, Refusal>, method: &str, number: u64, now: Timestamp) -> Response {
        let request = Draw::new(self.fleet.seed, "request", number, "id").uuid();
        let mut headers: Vec<(&'static str, String)> = vec![
            ("cache-control", "no-cache".into()),
            ("pragma", "no-cache".into()),
            ("expires", "-1".into()),
            ("x-content-type-options", "nosniff".into()),
            ("date", now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()),
            ("x-ms-correlation-request-id", request.to_string()),
            ("x-ms-operation-identifier", format!("tenantId={0},objectId={0}/simulator/{request}", uuid::Uuid::nil())),
        ];
        let (each, global, full) = match method {
            "GET" => (
                "x-ms-ratelimit-remaining-subscription-reads",
                "x-ms-ratelimit-remaining-subscription-global-reads",
                (249, 3749),
            ),
            "DELETE" => (
                "x-ms-ratelimit-remaining-subscription-deletes",
                "x-ms-ratelimit-remaining-subscription-global-deletes",
                (199, 2999),
            ),
            _ => (
                "x-ms-ratelimit-remaining-subscription-writes",
                "x-ms-ratelimit-remaining-subscription-global-writes",
                (199, 2999),
            ),
        };
        headers.extend([(each, full.0.to_string()), (global, full.1.to_string())]);
        let (status, body) = match result {
            Ok(reply) => {
                headers.push(("x-ms-request-id", reply.operation.unwrap_or(request).to_string()));
                headers.extend(reply.headers.clone());
                (reply.status, reply.body.clone())
            }
            Err(refusal) => {
                headers.push(("x-ms-request-id", request.to_string()));
                headers.extend(refusal.cause().map(|cause| ("x-ms-failure-cause", cause.to_owned())));
                headers.extend(refusal.retry_after.map(|seconds| ("retry-after", seconds.to_string())));
                (refusal.status, Some(refusal.body()))
            }
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(body) = body {
            *response.body_mut() = Body::from(body.to_string());
            headers.push(("content-type", "application/json; charset=utf-8".into()));
        }
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

fn unavailable(status: u16) -> Refusal {
    let (code, message) = match status {
        502 => (
            "BadGatewayConnection",
            "The network connectivity issue encountered for 'Microsoft.ContainerService'; cannot fulfill the request.",
        ),
        504 => (
            "GatewayTimeout",
            "The gateway did not receive a response from 'Microsoft.ContainerService' within the specified time period.",
        ),
        500 => return Refusal::service(500, "InternalOperationError", "Internal server error"),
        _ => ("ServiceUnavailable", "The service is unavailable."),
    };
    Refusal { author: Author::GatewayOnService, ..Refusal::service(status, code, message) }
}

/// An answer whose body breaks before its first byte: over a socket, the connection closes with nothing sent.
fn broken() -> Response {
    let error = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the answer is dropped on purpose");
    let mut response = Response::new(Body::from_stream(futures::stream::once(async { Err::<bytes::Bytes, _>(error) })));
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response
}

/// Scheme and authority under which the caller sees this service.
fn base(headers: &HeaderMap, uri: &http::Uri) -> String {
    let host =
        headers.get("host").and_then(|host| host.to_str().ok()).or_else(|| uri.authority().map(|host| host.as_str()));
    let scheme = uri.scheme_str().unwrap_or("http");
    format!("{scheme}://{}", host.unwrap_or("simulator"))
}
