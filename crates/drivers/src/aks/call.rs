//! One request and its answer: address, token, pace, time-out, and what an error means.

use std::time::Duration;

use bytes::Bytes;
use flotta_clock::Clock;
use flotta_model::{ClusterId, Hold};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use jiff::Timestamp;
use serde_json::Value;
use tower::ServiceExt;
use uuid::Uuid;

use super::{errors, wire};
use crate::{
    Trouble,
    pace::{Bucket, Pace},
    token::{TokenError, Tokens},
    transport::{Transport, TransportError},
};

/// How often a read is tried.
const TRIES: u32 = 3;

/// Whether a read is tried again when something passing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Up to three times.
    Patient,
    /// Once: the caller comes back anyway.
    Once,
    /// Up to three times, and the budget of the first was waited for already.
    Permitted,
}

/// Sends requests to the endpoint, and to nobody else.
pub(super) struct Caller {
    pub endpoint: Uri,
    pub api_version: String,
    pub transport: Transport,
    pub tokens: Tokens,
    pub pace: Pace,
    pub clock: Clock,
    pub backoff: Duration,
    pub timeout: Duration,
}

/// A request that changes something.
pub(super) struct Write<'a> {
    pub method: Method,
    pub path: String,
    pub buckets: &'a [Bucket],
    pub body: Option<Value>,
    /// The etag that it is meant for.
    pub guard: Option<&'a str>,
    /// From this instant on it is not sent.
    pub not_after: Option<Timestamp>,
}

/// A write that was accepted.
pub(super) struct Accepted {
    pub headers: HeaderMap,
}

/// A write that was not, or about which nothing is known.
pub(super) enum Unsent {
    /// The provider answered no: [`errors::Answer`] says why.
    Refused(Box<errors::Answer>),
    /// Anything else.
    Trouble(Trouble),
}

/// What came of asking for an operation.
pub(super) enum Polled {
    /// Its record, and the pause the provider asked for.
    Body { body: Value, after: Option<Duration> },
    /// It cannot be asked for like this any more.
    Gone,
}

impl Caller {
    /// The path and query of something at or below a cluster.
    pub fn path(&self, cluster: &ClusterId, below: &str) -> String {
        format!("{}{below}?api-version={}", wire::encode_path(cluster.as_str()), self.api_version)
    }

    /// An address the provider gave, as a path and query of the endpoint, character for character. `None` if it is at
    /// another place: a token must never go there.
    pub fn own(&self, link: &str) -> Option<String> {
        if link.starts_with('/') && !link.starts_with("//") {
            return link.parse::<Uri>().is_ok().then(|| link.to_owned());
        }
        let uri: Uri = link.parse().ok()?;
        let port = |uri: &Uri| uri.port_u16().or_else(|| (uri.scheme_str()? == "https").then_some(443)).unwrap_or(80);
        let same = uri.scheme() == self.endpoint.scheme()
            && uri.host()?.eq_ignore_ascii_case(self.endpoint.host()?)
            && port(&uri) == port(&self.endpoint)
            && !uri.authority()?.as_str().contains('@');
        same.then(|| uri.path_and_query().map(|path| path.as_str().to_owned())).flatten()
    }

    /// Reads something, inside the budgets.
    pub async fn read(&self, path: &str, buckets: &[Bucket], effort: Effort) -> Result<Value, Trouble> {
        let tries = if effort == Effort::Once { 1 } else { TRIES };
        let (mut tried, mut renewed, mut pause) = (0, false, self.backoff);
        loop {
            if tried > 0 || renewed || effort != Effort::Permitted {
                self.pace.pass(buckets).await;
            }
            tried += 1;
            let token = self.token().await?;
            let trouble = match self.send(Method::GET, path, token.as_ref(), None, None).await {
                Ok(answer) if answer.status().is_success() => match serde_json::from_slice(answer.body()) {
                    Ok(body) => return Ok(body),
                    Err(error) => retry(format!("the answer to a read is not json: {error}"), None),
                },
                Ok(answer) => {
                    let answer = self.heed(answer, buckets);
                    if let (StatusCode::UNAUTHORIZED, Some(token), false) = (answer.status, &token, renewed) {
                        self.tokens.refused(token).await;
                        renewed = true;
                        continue;
                    }
                    if answer.status == StatusCode::TOO_MANY_REQUESTS {
                        return Err(answer.trouble());
                    }
                    answer.trouble()
                }
                Err(error) => retry(error.to_string(), None),
            };
            if tried >= tries || !matches!(trouble, Trouble::Retry { .. }) {
                return Err(trouble);
            }
            self.clock.pause(pause).await;
            pause *= 2;
        }
    }

    /// Asks for an operation, once.
    pub async fn poll(&self, path: &str, buckets: &[Bucket]) -> Result<Polled, Trouble> {
        self.pace.pass(buckets).await;
        let token = self.token().await?;
        let answer = self
            .send(Method::GET, path, token.as_ref(), None, None)
            .await
            .map_err(|error| retry(error.to_string(), None))?;
        if answer.status().is_success() {
            let after = errors::pause(answer.headers());
            return Ok(serde_json::from_slice(answer.body()).map_or(Polled::Gone, |body| Polled::Body { body, after }));
        }
        let answer = self.heed(answer, buckets);
        match (answer.status, &token) {
            (StatusCode::UNAUTHORIZED, Some(token)) => {
                self.tokens.refused(token).await;
                Err(answer.trouble())
            }
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT, _) => Err(answer.trouble()),
            (status, _) if status.is_server_error() => Err(answer.trouble()),
            // An expired signature, an operation that was forgotten. Credentials that are refused show at the next read.
            _ => Ok(Polled::Gone),
        }
    }

    /// Writes something, once, and not when its time is over. The caller has waited for its budget; a pause that is
    /// asked for is heeded by whoever comes next.
    pub async fn write(&self, write: Write<'_>) -> Result<Accepted, Unsent> {
        let Write { method, path, buckets, body, guard, not_after } = write;
        let token = self.token().await.map_err(Unsent::Trouble)?;
        // Looked at last: reads and tokens take their time.
        if not_after.is_some_and(|end| self.clock.now() >= end) {
            return Err(Unsent::Trouble(retry("the maintenance window closed before the step was sent", None)));
        }
        let answer = match self.send(method, &path, token.as_ref(), body.as_ref(), guard).await {
            Ok(answer) => answer,
            Err(TransportError::NotSent(text)) => return Err(Unsent::Trouble(retry(text, None))),
            Err(error) => return Err(Unsent::Trouble(Trouble::Unknown(error.to_string()))),
        };
        let status = answer.status();
        if status.is_success() {
            return Ok(Accepted { headers: answer.into_parts().0.headers });
        }
        let answer = self.heed(answer, buckets);
        if status == StatusCode::UNAUTHORIZED
            && let Some(token) = &token
        {
            self.tokens.refused(token).await;
        }
        // The front end may have given up on a request that goes on behind it.
        if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
            return Err(Unsent::Trouble(Trouble::Unknown(answer.text())));
        }
        Err(Unsent::Refused(Box::new(answer)))
    }

    /// Reads an error, and holds the buckets back for as long as it asks for.
    fn heed(&self, answer: Response<Bytes>, buckets: &[Bucket]) -> errors::Answer {
        let answer = errors::Answer::read(&answer);
        if answer.status == StatusCode::TOO_MANY_REQUESTS
            && let (Some(pause), Some(bucket)) = (answer.after, buckets.first())
        {
            self.pace.block(bucket, pause);
        }
        answer
    }

    async fn token(&self) -> Result<Option<HeaderValue>, Trouble> {
        self.tokens.header().await.map_err(|error| match error {
            TokenError::Refused(text) => Trouble::Wait(Hold::CredentialsRefused(text)),
            TokenError::Unreachable(_) => retry(error.to_string(), None),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&HeaderValue>,
        body: Option<&Value>,
        guard: Option<&str>,
    ) -> Result<Response<Bytes>, TransportError> {
        let malformed = |error: http::Error| TransportError::NotSent(error.to_string());
        let authority = self.endpoint.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let uri = format!("{}://{authority}{path}", self.endpoint.scheme_str().unwrap_or("https"));
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::HOST, authority)
            .header(header::ACCEPT, "application/json")
            .header("x-ms-client-request-id", Uuid::now_v7().to_string());
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        if let Some(guard) = guard {
            request = request.header(header::IF_MATCH, guard);
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let request = request.body(bytes).map_err(malformed)?;
        match tokio::time::timeout(self.timeout, self.transport.clone().oneshot(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(TransportError::MaybeSent(format!("nothing came within {} s", self.timeout.as_secs()))),
        }
    }
}

pub(super) fn retry(detail: impl Into<String>, after: Option<Duration>) -> Trouble {
    let detail = detail.into();
    let lasting = Hold::Unreachable(detail.clone());
    Trouble::Retry { detail, after, lasting }
}
