//! Where access tokens come from.
//!
//! A token is kept until shortly before it expires, on the wall clock; at most one refresh is in flight. Tokens and
//! secrets are never shown, not even in `Debug`.

use std::{fmt, path::PathBuf, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Uri};
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};
use tower::ServiceExt;

use crate::transport::{Transport, is_loopback};

/// The metadata service of Azure's virtual machines.
pub const INSTANCE_METADATA: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

/// How long before its expiry a token is replaced; half its life, where that is shorter.
const MARGIN: Duration = Duration::from_secs(300);

/// How long a refusal is remembered, so that many callers do not all ask again.
const SULK: Duration = Duration::from_secs(10);

/// How long a token service may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where tokens come from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// Requests carry no token: for a simulator on loopback.
    None,
    /// One token, for ever.
    Static(Secret),
    /// A service principal with a secret.
    ClientCredentials {
        /// Such as `https://login.microsoftonline.com`.
        authority: String,
        /// The directory.
        tenant: String,
        /// The application.
        client_id: String,
        /// Its secret.
        secret: Secret,
    },
    /// A service principal that trusts a token in a file, which is read again at each refresh.
    WorkloadIdentity {
        /// Such as `https://login.microsoftonline.com`.
        authority: String,
        /// The directory.
        tenant: String,
        /// The application.
        client_id: String,
        /// Usually what `AZURE_FEDERATED_TOKEN_FILE` names.
        token_file: PathBuf,
    },
    /// The identity of the machine.
    ManagedIdentity {
        /// Which of its identities; without one, its own.
        client_id: Option<String>,
        /// Whom to ask.
        endpoint: IdentityEndpoint,
    },
}

/// Who hands out tokens for a managed identity.
#[derive(Clone, Debug)]
pub enum IdentityEndpoint {
    /// The metadata service, usually [`INSTANCE_METADATA`].
    Metadata(String),
    /// The form of App Service and Container Apps: `IDENTITY_ENDPOINT` and `IDENTITY_HEADER`.
    Header {
        /// The address.
        url: String,
        /// What proves that the caller is inside.
        header: Secret,
    },
}

/// No token was to be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token service said no.
    #[error("no access token: {0}")]
    Refused(String),
    /// The token service did not answer.
    #[error("the token service does not answer: {0}")]
    Unreachable(String),
}

/// Hands out tokens for one resource.
pub struct Tokens {
    source: TokenSource,
    resource: String,
    transport: Transport,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    token: Option<Token>,
    refused: Option<(Instant, TokenError)>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    refresh_at: Instant,
    expires_at: Instant,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("source", &self.source).field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Tokens for `resource`, such as `https://management.azure.com/`; asked for over `transport`.
    pub fn new(source: TokenSource, resource: impl Into<String>, transport: Transport) -> Self {
        Self { source, resource: resource.into(), transport, held: Mutex::default() }
    }

    /// Whether requests go without a token.
    pub fn absent(&self) -> bool {
        matches!(self.source, TokenSource::None)
    }

    /// The value of an `Authorization` header, if there is to be one.
    pub async fn header(&self) -> Result<Option<HeaderValue>, TokenError> {
        match &self.source {
            TokenSource::None => return Ok(None),
            TokenSource::Static(secret) => return bearer(secret.reveal()).map(Some),
            _ => {}
        }
        let mut held = self.held.lock().await;
        let now = Instant::now();
        if let Some(token) = held.token.as_ref().filter(|token| now < token.refresh_at) {
            return Ok(Some(token.header.clone()));
        }
        let old = held.token.clone().filter(|token| now < token.expires_at);
        let sulking = held.refused.as_ref().filter(|(at, _)| now < *at + SULK).map(|(_, error)| error.clone());
        let fresh = match sulking {
            Some(error) => Err(error),
            None => self.fetch().await,
        };
        match (fresh, old) {
            (Ok(token), _) => {
                let header = token.header.clone();
                *held = Held { token: Some(token), refused: None };
                Ok(Some(header))
            }
            (Err(error), old) => {
                if held.refused.as_ref().is_none_or(|(at, _)| now >= *at + SULK) {
                    held.refused = Some((now, error.clone()));
                }
                old.map(|token| Some(token.header)).ok_or(error)
            }
        }
    }

    /// Forgets a token that was refused, so that the next call fetches another. One that has been replaced meanwhile
    /// stays.
    pub async fn refused(&self, header: &HeaderValue) {
        let mut held = self.held.lock().await;
        if held.token.as_ref().is_some_and(|token| token.header == *header) {
            held.token = None;
        }
    }

    async fn fetch(&self) -> Result<Token, TokenError> {
        let request = self.request().await?;
        let answer = tokio::time::timeout(TIMEOUT, self.transport.clone().oneshot(request)).await;
        let answer = answer
            .map_err(|_| TokenError::Unreachable("timed out".into()))?
            .map_err(|error| TokenError::Unreachable(error.to_string()))?;
        let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        if !answer.status().is_success() {
            return Err(refusal(answer.status(), &body));
        }
        let text = body["access_token"]
            .as_str()
            .ok_or_else(|| TokenError::Refused("the answer holds no access_token".into()))?;
        let life = Duration::from_secs(seconds(&body["expires_in"]).unwrap_or(3600).min(7 * 86_400));
        let now = Instant::now();
        Ok(Token { header: bearer(text)?, refresh_at: now + (life - MARGIN.min(life / 2)), expires_at: now + life })
    }

    async fn request(&self) -> Result<Request<Bytes>, TokenError> {
        match &self.source {
            TokenSource::None | TokenSource::Static(_) => {
                Err(TokenError::Refused("this source needs no request".into()))
            }
            TokenSource::ClientCredentials { authority, tenant, client_id, secret } => {
                self.grant(authority, tenant, client_id, &[("client_secret", secret.reveal())])
            }
            TokenSource::WorkloadIdentity { authority, tenant, client_id, token_file } => {
                let assertion = tokio::fs::read_to_string(token_file).await.map_err(|error| {
                    TokenError::Refused(format!("the federated token {} cannot be read: {error}", token_file.display()))
                })?;
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                let proof = [("client_assertion_type", kind), ("client_assertion", assertion.trim())];
                self.grant(authority, tenant, client_id, &proof)
            }
            TokenSource::ManagedIdentity { client_id, endpoint } => self.identity(client_id.as_deref(), endpoint),
        }
    }

    /// A request of the OAuth 2.0 client credentials grant (RFC 6749 §4.4, RFC 7523 §2.2).
    fn grant(
        &self,
        authority: &str,
        tenant: &str,
        client_id: &str,
        proof: &[(&str, &str)],
    ) -> Result<Request<Bytes>, TokenError> {
        let url = format!("{}/{}/oauth2/v2.0/token", authority.trim_end_matches('/'), encode(tenant));
        let uri = private(&url)?;
        let scope = format!("{}/.default", self.resource.trim_end_matches('/'));
        let mut form = vec![("grant_type", "client_credentials"), ("client_id", client_id), ("scope", &scope)];
        form.extend_from_slice(proof);
        let body: Vec<String> = form.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
        let request = Request::post(uri).header("content-type", "application/x-www-form-urlencoded");
        request.body(Bytes::from(body.join("&"))).map_err(|error| TokenError::Refused(error.to_string()))
    }

    fn identity(&self, client_id: Option<&str>, endpoint: &IdentityEndpoint) -> Result<Request<Bytes>, TokenError> {
        let (url, version, name, value) = match endpoint {
            IdentityEndpoint::Metadata(url) => (url, "2018-02-01", "metadata", "true"),
            IdentityEndpoint::Header { url, header } => (url, "2019-08-01", "x-identity-header", header.reveal()),
        };
        let joint = if url.contains('?') { '&' } else { '?' };
        let mut url = format!("{url}{joint}api-version={version}&resource={}", encode(&self.resource));
        if let Some(id) = client_id {
            url = format!("{url}&client_id={}", encode(id));
        }
        let request = Request::get(url).header(name, value).body(Bytes::new());
        request.map_err(|_| TokenError::Refused("the address or header of the identity endpoint is malformed".into()))
    }
}

/// An address that a secret may be sent to: HTTPS, or this machine.
fn private(url: &str) -> Result<Uri, TokenError> {
    let uri: Uri = url.parse().map_err(|_| TokenError::Refused(format!("the authority '{url}' is not a url")))?;
    let near = uri.host().is_some_and(is_loopback);
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if near => Ok(uri),
        _ => Err(TokenError::Refused(format!("a secret is not sent to '{url}': use https, or loopback"))),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, TokenError> {
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header =
        header.map_err(|_| TokenError::Refused("the token holds characters that no header may have".into()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Entra says `{"error": "word", "error_description": "text"}`; only these two are repeated.
fn refusal(status: http::StatusCode, body: &Value) -> TokenError {
    let part = |name: &str| body[name].as_str().unwrap_or_default().chars().take(300).collect::<String>();
    let text = format!("{status} {} {}", part("error"), part("error_description"));
    if status.is_server_error() || status == http::StatusCode::TOO_MANY_REQUESTS {
        return TokenError::Unreachable(text);
    }
    TokenError::Refused(text)
}

/// `expires_in` is a number, or a number in quotes.
fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Percent-encodes everything but unreserved characters (RFC 3986 §2.3).
pub(crate) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
