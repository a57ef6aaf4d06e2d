//! Answers and their headers (`behaviour.md` A2, `clients.md`).

use std::io;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use flotta_arm::{error::ArmError, operation};
use futures::Stream;
use http::{HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::Call;

/// Says what the domain clock shows: a scaled clock is not the wall's.
const TIME: HeaderName = HeaderName::from_static("x-flotta-time");

/// What an answer says.
#[derive(Debug)]
enum Content {
    Nothing,
    Json(Value),
    /// JSON that is sent as it comes.
    Slow(Body),
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    status: StatusCode,
    body: Content,
    headers: Vec<(HeaderName, String)>,
}

impl Reply {
    fn new(status: StatusCode, body: Option<Value>) -> Self {
        Self { status, body: body.map_or(Content::Nothing, Content::Json), headers: Vec::new() }
    }

    /// 200 with a body that takes its time.
    pub fn slow(body: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static) -> Self {
        Self { body: Content::Slow(Body::from_stream(body)), ..Self::new(StatusCode::OK, None) }
    }

    /// 200 with a body.
    pub fn ok(body: Value) -> Self {
        Self::new(StatusCode::OK, Some(body))
    }

    /// 201 with a body.
    pub fn created(body: Value) -> Self {
        Self::new(StatusCode::CREATED, Some(body))
    }

    /// 200 without a body.
    pub fn done() -> Self {
        Self::new(StatusCode::OK, None)
    }

    /// 202 with a body.
    pub fn accepted(body: Value) -> Self {
        Self::new(StatusCode::ACCEPTED, Some(body))
    }

    /// 204.
    pub fn nothing() -> Self {
        Self::new(StatusCode::NO_CONTENT, None)
    }

    /// A refusal.
    pub fn refused(error: &ArmError) -> Self {
        let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let cause = error.failure_cause.unwrap_or("service");
        Self::new(status, Some(error.body())).with(HeaderName::from_static("x-ms-failure-cause"), cause)
    }

    /// 405, with the methods that are possible.
    pub fn method_not_allowed(method: &str, allowed: &str) -> Self {
        Self::refused(&ArmError::method_not_allowed(method, allowed)).with(header::ALLOW, allowed)
    }

    fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With the way to an operation's state.
    pub fn with_operation(self, call: &Call, subscription: &str, location: &str, id: Uuid) -> Self {
        let url = operation::status_url(&call.base, subscription, location, id);
        self.with(HeaderName::from_static("azure-asyncoperation"), url)
    }

    /// With the way to an operation's result.
    pub fn with_location(self, call: &Call, subscription: &str, location: &str, id: Uuid) -> Self {
        self.with(header::LOCATION, operation::result_url(&call.base, subscription, location, id))
    }

    /// The answer as HTTP.
    pub fn into_response(self, now: Timestamp) -> Response {
        let json = !matches!(self.body, Content::Nothing);
        let mut response = Response::new(match self.body {
            Content::Nothing => Body::empty(),
            Content::Json(body) => Body::from(body.to_string()),
            Content::Slow(body) => body,
        });
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if json {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let request_id = (HeaderName::from_static("x-ms-request-id"), Uuid::new_v4().to_string());
        for (name, value) in self.headers.into_iter().chain([request_id, (TIME, now.to_string())]) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        response
    }
}
