//! Who may ask at all. Without authentication only programs of this machine may: the server listens on loopback, and a
//! page of another site, or a name that only resolves to loopback, is refused.

use axum::{extract::Request, middleware::Next, response::Response};
use flotta_arm::error::ArmError;
use http::{HeaderValue, Uri, header};
use jiff::Timestamp;

use crate::reply::Reply;

/// Refuses requests with a foreign Host or Origin.
pub async fn local_only(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let refusal = match host {
        Some(host) if !is_local(host) => Some(format!("host '{host}' is not this machine: use localhost")),
        None => Some("the request has no Host header".into()),
        Some(_) => headers.get(header::ORIGIN).and_then(foreign_origin),
    };
    match refusal {
        None => next.run(request).await,
        Some(why) => Reply::refused(&ArmError::new(403, "ForeignOrigin", why)).into_response(Timestamp::now()),
    }
}

fn foreign_origin(origin: &HeaderValue) -> Option<String> {
    let text = origin.to_str().unwrap_or_default();
    let local = text.parse::<Uri>().ok().and_then(|uri| uri.authority().map(|host| is_local(host.as_str())));
    (local != Some(true)).then(|| format!("origin '{}' is another site", text.chars().take(200).collect::<String>()))
}

/// Whether a host, with or without a port, is this machine by a name that cannot be made to mean another.
pub fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_9_only_names_that_always_mean_this_machine_are_local() {
        for local in ["localhost", "LOCALHOST:8642", "127.0.0.1", "127.8.8.8:1", "[::1]:80", "[::1]"] {
            assert!(is_local(local), "{local}");
        }
        for foreign in ["", "example.com", "localhost.example.com:80", "127.0.0.1.example.com", "10.0.0.1", "[::2]"] {
            assert!(!is_local(foreign), "{foreign}");
        }
        let origin = |text: &str| foreign_origin(&HeaderValue::from_str(text).expect("header"));
        assert_eq!(origin("http://localhost:3000"), None);
        assert!(origin("https://example.com").is_some() && origin("null").is_some());
    }
}
