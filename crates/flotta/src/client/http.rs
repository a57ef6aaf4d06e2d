//! One request and its answer over HTTP; lists page by page; long-running operations to their end.
//!
//! Links and operation URLs are followed on the server that was asked, whatever host they name: nothing a server says
//! can send the client elsewhere.

use std::time::Duration;

use reqwest::{Method, StatusCode, Url, header};
use serde_json::Value;

use crate::{
    cli::Write,
    client::{context::Target, resources::Kind as Resource},
    failure::{Failure, Kind},
};

/// The largest answer taken, in bytes.
const LARGEST: usize = 512 << 20;
/// The most pages of a list.
const MOST_PAGES: usize = 10_000;
/// How long an operation is followed.
const LONGEST_OPERATION: Duration = Duration::from_secs(3600);
/// Tells who asks; taken on trust by a server that nobody but this machine reaches.
const PRINCIPAL: &str = "x-ms-client-principal-name";
/// The longest pause between two looks at an operation.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Api {
    /// Where requests go.
    pub target: Target,
    http: reqwest::Client,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: header::HeaderMap,
    /// The body; `null` where it is empty.
    pub body: Value,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What it does, such as `create run 'up'`.
    pub what: &'a str,
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// The body.
    pub body: Option<&'a Value>,
    /// The condition.
    pub if_match: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// A request without body or condition.
    pub fn new(what: &'a str, method: Method, url: Url) -> Self {
        Self { what, method, url, body: None, if_match: None }
    }
}

impl Answer {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Where the operation that the answer began can be watched.
    fn monitor(&self) -> Option<&str> {
        let location = || self.header("location").filter(|_| self.status == StatusCode::ACCEPTED);
        self.header("azure-asyncoperation").or_else(location)
    }

    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.header("retry-after")?.parse().ok()?;
        (seconds > 0).then(|| Duration::from_secs(seconds).min(LONGEST_PAUSE))
    }
}

impl Api {
    /// A client for a target.
    pub fn new(target: Target) -> Result<Self, Failure> {
        // Another provider may be there already; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("flotta/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(Duration::from_secs(60));
        if is_loopback(&target.server) {
            builder = builder.no_proxy();
        }
        let http =
            builder.build().map_err(|error| Failure::new(Kind::Failed, "cannot make a client", causes(&error)))?;
        Ok(Self { target, http })
    }

    /// The same client for another target on the same server.
    pub fn with_target(&self, target: Target) -> Self {
        Self { target, http: self.http.clone() }
    }

    /// Asks once; an answer that is an error becomes a failure.
    pub async fn send(&self, request: Request<'_>) -> Result<Answer, Failure> {
        let what = request.what;
        let answer = self.exchange(request).await?;
        match answer.status {
            status if status.is_success() => Ok(answer),
            _ => Err(refusal(what, &answer)),
        }
    }

    /// Asks for a resource; `None` if there is none.
    pub async fn find(&self, what: &str, url: Url) -> Result<Option<Answer>, Failure> {
        let answer = self.exchange(Request::new(what, Method::GET, url)).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(answer)),
            _ => Err(refusal(what, &answer)),
        }
    }

    async fn exchange(&self, request: Request<'_>) -> Result<Answer, Failure> {
        let cannot = format!("cannot {}", request.what);
        let mut sent = self.http.request(request.method, request.url).header(header::ACCEPT, "application/json");
        if let Some(user) = &self.target.user {
            sent = sent.header(PRINCIPAL, user);
        }
        if let Some(etag) = request.if_match {
            sent = sent.header(header::IF_MATCH, etag);
        }
        if let Some(body) = request.body {
            sent = sent.header(header::CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let unreachable = |error: reqwest::Error| self.unreachable(&cannot, &error);
        let mut response = sent.send().await.map_err(unreachable)?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if bytes.len() + chunk.len() > LARGEST {
                return Err(Failure::new(Kind::Failed, cannot, format!("the answer is larger than {LARGEST} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        let body = match bytes.is_empty() {
            true => Value::Null,
            false => match serde_json::from_slice(&bytes) {
                Ok(body) => body,
                Err(_) if !status.is_success() => {
                    Value::String(String::from_utf8_lossy(&bytes).chars().take(500).collect())
                }
                Err(error) => {
                    return Err(Failure::new(Kind::Failed, cannot, format!("the answer is not JSON: {error}"))
                        .hint(format!("is {} a server of flotta?", self.target.server)));
                }
            },
        };
        Ok(Answer { status, headers, body })
    }

    fn unreachable(&self, cannot: &str, error: &reqwest::Error) -> Failure {
        if error.is_builder() {
            return Failure::new(Kind::Usage, cannot, causes(error));
        }
        let server = self.target.server.as_str().trim_end_matches('/');
        if let Some(rest) = server.strip_prefix("https://").filter(|_| answers_in_plain(error)) {
            return Failure::new(Kind::Unreachable, cannot, format!("what answers at {server} does not speak TLS"))
                .hint(format!("use http://{rest}"));
        }
        Failure::new(Kind::Unreachable, cannot, format!("{server} cannot be reached: {}", causes(error)))
            .hint("start a server with `flotta serve`, or name another with --server, FLOTTA_SERVER or a context")
    }

    /// All resources of a list.
    pub async fn list(&self, what: &str, url: Url) -> Result<Vec<Value>, Failure> {
        let mut values = Vec::new();
        let mut next = Some(url);
        for _ in 0..MOST_PAGES {
            let Some(url) = next.take() else { return Ok(values) };
            let mut answer = self.send(Request::new(what, Method::GET, url)).await?;
            match answer.body.get_mut("value").map(Value::take) {
                Some(Value::Array(page)) => values.extend(page),
                _ => return Err(Failure::new(Kind::Failed, format!("cannot {what}"), "the answer is not a list")),
            }
            next = match answer.body.get("nextLink").and_then(Value::as_str) {
                Some(link) => Some(self.here(link)?),
                None => None,
            };
        }
        Err(Failure::new(Kind::Failed, format!("cannot {what}"), format!("the list has more than {MOST_PAGES} pages")))
    }

    /// The link on the server that was asked.
    fn here(&self, link: &str) -> Result<Url, Failure> {
        let server = &self.target.server;
        let linked = server.join(link).map_err(|error| {
            Failure::new(Kind::Failed, "cannot follow a link of the server", format!("'{link}': {error}"))
        })?;
        let mut url = server.clone();
        url.set_path(linked.path());
        url.set_query(linked.query());
        Ok(url)
    }

    /// Asks for a change and waits for its end: the resource as it is then, or the answer where that is the end.
    pub async fn write(&self, request: Request<'_>, write: &Write) -> Result<Answer, Failure> {
        let (what, method, url) = (request.what, request.method.clone(), request.url.clone());
        let answer = self.exchange(Request { if_match: write.if_match.as_deref(), ..request }).await?;
        if !answer.status.is_success() {
            let refused = refusal(what, &answer);
            let missing = answer.status == StatusCode::PRECONDITION_FAILED && self.find(what, url).await?.is_none();
            return Err(if missing { refused.hint(nothing_to_match(&method)) } else { refused });
        }
        let Some(monitor) = answer.monitor().filter(|_| !write.no_wait) else { return Ok(answer) };
        self.follow(what, self.here(monitor)?, answer.retry_after()).await?;
        match method {
            Method::PUT | Method::PATCH => {
                let last = self.send(Request::new(what, Method::GET, url)).await?;
                Ok(Answer { status: answer.status, ..last })
            }
            _ => Ok(answer),
        }
    }

    /// Looks at an operation until it ends.
    async fn follow(&self, what: &str, mut url: Url, first: Option<Duration>) -> Result<(), Failure> {
        let begun = tokio::time::Instant::now();
        // Most operations end at once; a file may hold thousands.
        let mut pause = Duration::from_millis(5);
        let mut asked = first.map(|asked| asked.min(Duration::from_secs(1)));
        while begun.elapsed() < LONGEST_OPERATION {
            tokio::time::sleep(asked.unwrap_or(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(2));
            let answer = self.send(Request::new(what, Method::GET, url.clone())).await?;
            match ended(what, &answer)? {
                true => return Ok(()),
                false => asked = answer.retry_after(),
            }
            if let Some(next) = answer.header("location").filter(|_| answer.status == StatusCode::ACCEPTED) {
                url = self.here(next)?;
            }
        }
        Err(Failure::new(Kind::Failed, format!("cannot {what}"), "its operation did not end within an hour")
            .hint("look at it again later; --no-wait does not wait at all"))
    }

    /// A resource by name.
    pub async fn get(&self, kind: Resource, name: &str) -> Result<Value, Failure> {
        let what = format!("show {} '{name}'", kind.singular());
        let url = self.target.resource_url(kind, name)?;
        Ok(self.send(Request::new(&what, Method::GET, url)).await?.body)
    }

    /// Creates or replaces a resource.
    pub async fn put(&self, kind: Resource, name: &str, body: &Value, write: &Write) -> Result<Answer, Failure> {
        self.put_as("create", kind, name, body, write).await
    }

    /// The same, under the word for it that a failure uses.
    pub async fn put_as(
        &self,
        verb: &str,
        kind: Resource,
        name: &str,
        body: &Value,
        write: &Write,
    ) -> Result<Answer, Failure> {
        let what = format!("{verb} {} '{name}'", kind.singular());
        let request = Request::new(&what, Method::PUT, self.target.resource_url(kind, name)?);
        self.write(Request { body: Some(body), ..request }, write).await
    }

    /// Does something with a resource.
    pub async fn act(
        &self,
        kind: Resource,
        name: &str,
        action: &str,
        body: Option<&Value>,
        write: &Write,
    ) -> Result<Answer, Failure> {
        let what = format!("{action} {} '{name}'", kind.singular());
        let request = Request::new(&what, Method::POST, self.target.action_url(kind, name, Some(action))?);
        self.write(Request { body, ..request }, write).await
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Whether the operation ended well; a failure if it ended badly. Unknown words mean that it goes on.
fn ended(what: &str, answer: &Answer) -> Result<bool, Failure> {
    match answer.body.get("status").and_then(Value::as_str) {
        Some("Succeeded") => Ok(true),
        Some(status @ ("Failed" | "Canceled")) => {
            let error = answer.body.get("error").cloned().unwrap_or_default();
            let cause = said(&error).unwrap_or_else(|| format!("the operation ended {status}"));
            Err(Failure { details: details(&error), ..Failure::new(Kind::Failed, format!("cannot {what}"), cause) })
        }
        Some(_) => Ok(false),
        None => Ok(answer.status != StatusCode::ACCEPTED),
    }
}

/// An error answer as a failure.
fn refusal(what: &str, answer: &Answer) -> Failure {
    let error = answer.body.get("error").cloned().unwrap_or_default();
    let plain = || match &answer.body {
        Value::String(text) => format!("the server answered {}: {text}", answer.status),
        _ => format!("the server answered {}", answer.status),
    };
    let kind = if answer.status.is_client_error() { Kind::Refused } else { Kind::Failed };
    Failure {
        field: error.get("target").and_then(Value::as_str).map(Into::into),
        details: details(&error),
        hint: part_hint(&error).or_else(|| hint(answer.status)).map(Into::into),
        ..Failure::new(kind, format!("cannot {what}"), said(&error).unwrap_or_else(plain))
    }
}

/// The way out where a condition is set on a resource that is not there.
fn nothing_to_match(method: &Method) -> &'static str {
    match *method {
        Method::PUT => "there is none of that name: without --if-match it is created",
        _ => "there is none of that name: `list` shows what there is",
    }
}

/// The way out where a run is there, but not the part of it that was asked for.
fn part_hint(error: &Value) -> Option<&'static str> {
    let of_run = ["member", "group", "stage"].iter().any(|part| error["target"] == *part);
    (of_run && error["code"] == "NotFound").then_some("`flotta run show RUN -o yaml` shows what is in it")
}

fn hint(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::NOT_FOUND => Some("`list` shows what there is; `flotta context show` tells which fleet was asked"),
        StatusCode::PRECONDITION_FAILED => Some("show it again, and use the eTag it has now"),
        StatusCode::TOO_MANY_REQUESTS => Some("wait a moment and try again"),
        status if status.is_server_error() => Some("the server's log knows more; trying again does no harm"),
        _ => None,
    }
}

/// `(Code) message` of an ARM error.
fn said(error: &Value) -> Option<String> {
    let code = error.get("code").and_then(Value::as_str);
    let message = error.get("message").and_then(Value::as_str);
    match (code, message) {
        (Some(code), Some(message)) => Some(format!("({code}) {message}")),
        (Some(text), None) | (None, Some(text)) => Some(text.to_owned()),
        (None, None) => None,
    }
}

/// The first further causes of an ARM error.
fn details(error: &Value) -> Box<[Box<str>]> {
    error
        .get("details")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(said)
        .take(10)
        .map(Into::into)
        .collect()
}

/// Whether the other side answered a TLS greeting with something that is no TLS.
fn answers_in_plain(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let tls = causes.find_map(tls_error);
    matches!(tls, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}

/// The error of TLS itself, which comes in one or more errors of input and output that do not name it as their source.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = || tls_error(error.downcast_ref::<std::io::Error>()?.get_ref()?);
    error.downcast_ref().or_else(inner)
}

/// An error with its causes, without repeating the URL.
fn causes(error: &dyn std::error::Error) -> String {
    let mut causes = vec![];
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes.pop().unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        cli::Connection,
        client::context::{Config, resolve},
    };

    fn answer(status: u16, body: Value) -> Answer {
        Answer { status: StatusCode::from_u16(status).expect("status"), headers: header::HeaderMap::new(), body }
    }

    #[test]
    fn a_refusal_shows_code_message_field_and_details() {
        let body = json!({"error": {"code": "Bad", "message": "no", "target": "properties.group", "details": [{"code": "D", "message": "d"}]}});
        let failure = refusal("create member 'a'", &answer(400, body));
        let expect = Failure {
            field: Some("properties.group".into()),
            details: ["(D) d".into()].into(),
            ..Failure::new(Kind::Refused, "cannot create member 'a'", "(Bad) no")
        };
        assert_eq!(failure, expect);
        assert_eq!(refusal("x", &answer(503, Value::Null)).kind, Kind::Failed);
        assert!(refusal("x", &answer(502, "bad gateway".into())).cause.contains("bad gateway"));
    }

    #[test]
    fn only_the_three_last_words_end_an_operation() {
        let look = |status: u16, word: &str| ended("x", &answer(status, json!({"status": word})));
        assert_eq!(look(200, "Succeeded"), Ok(true));
        assert_eq!(look(200, "CreatingAgentPools: 0/3 nodes completed"), Ok(false));
        assert!(look(200, "Failed").is_err());
        assert!(look(200, "Canceled").is_err());
        assert_eq!(ended("x", &answer(204, Value::Null)), Ok(true));
        assert_eq!(ended("x", &answer(202, Value::Null)), Ok(false));
    }

    #[test]
    fn links_are_followed_on_the_server_that_was_asked() {
        let connection = Connection { server: Some("http://127.0.0.1:1".into()), ..Connection::default() };
        let api = Api::new(resolve(&connection, &Config::default()).expect("target")).expect("client");
        for link in ["https://elsewhere.example/a?b=c%20d", "/a?b=c%20d"] {
            assert_eq!(api.here(link).expect("link").as_str(), "http://127.0.0.1:1/a?b=c%20d");
        }
    }
}
