//! How requests travel: over the network, or into a service in the same process.
//!
//! A driver speaks to a [`Transport`] and cannot tell which it is, so that simulations run the real driver. Time-outs
//! of connecting and reading are on the wall clock.

use std::{error::Error, fmt::Display, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use tower::{
    Service, ServiceExt,
    util::{BoxCloneSyncService, service_fn},
};

/// Sends a request and brings the whole answer.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, TransportError>;

/// The largest body that is read, in bytes.
pub const LARGEST_BODY: usize = 16 << 20;

/// How long a connection may take to come about.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may stay silent.
pub const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// No answer came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The request certainly never reached anybody.
    #[error("no connection: {0}")]
    NotSent(String),
    /// The request may have been received and acted on.
    #[error("no answer: {0}")]
    MaybeSent(String),
}

/// The HTTP client could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the http client cannot be set up: {0}; check the machine's certificate store and proxy settings")]
pub struct SetupError(#[from] reqwest::Error);

/// HTTP and HTTPS over the network. Redirects are answers like any other, never followed. The environment's proxy is
/// used, except towards loopback and the link-local metadata service.
pub fn http_transport() -> Result<Transport, SetupError> {
    // Another part of the program may have installed the same provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("flotta/", env!("CARGO_PKG_VERSION")))
    };
    let (proxied, direct) = (builder().build()?, builder().no_proxy().build()?);
    Ok(Transport::new(service_fn(move |request: Request<Bytes>| {
        let near = request.uri().host().is_some_and(|host| is_loopback(host) || host == "169.254.169.254");
        let client = if near { direct.clone() } else { proxied.clone() };
        async move { send(&client, request).await }
    })))
}

async fn send(client: &reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
    let lost = |error: reqwest::Error| TransportError::MaybeSent(chain(&error.without_url()));
    let request = request.map(reqwest::Body::from);
    let request = reqwest::Request::try_from(request).map_err(|error| TransportError::NotSent(chain(&error)))?;
    let mut answer = client.execute(request).await.map_err(|error| match error.is_connect() {
        true => TransportError::NotSent(chain(&error.without_url())),
        false => lost(error),
    })?;
    let mut body = BytesMut::new();
    while let Some(piece) = answer.chunk().await.map_err(lost)? {
        if body.len() + piece.len() > LARGEST_BODY {
            return Err(TransportError::MaybeSent(format!("the answer is larger than {LARGEST_BODY} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    let mut whole = Response::new(body.freeze());
    *whole.status_mut() = answer.status();
    *whole.headers_mut() = std::mem::take(answer.headers_mut());
    Ok(whole)
}

/// Requests go into a service of this process, such as an axum router.
pub fn router_transport<S, P>(service: S) -> Transport
where
    S: Service<Request<Full<Bytes>>, Response = Response<P>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Display,
    P: BodyExt<Data = Bytes> + Send + 'static,
    P::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Transport::new(service_fn(move |request: Request<Bytes>| {
        let service = service.clone();
        async move {
            let lost = |text: String| TransportError::MaybeSent(text);
            let answer = service.oneshot(request.map(Full::new)).await.map_err(|error| lost(error.to_string()))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|error| lost(error.to_string()))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        }
    }))
}

/// Whether a host name or address of a URI is this machine itself.
pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// An error with its causes: the outermost alone rarely says what happened.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
