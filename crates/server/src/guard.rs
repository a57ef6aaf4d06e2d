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
    let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let hosts: Vec<&str> = named.chain(request.uri().authority().map(|authority| authority.as_str())).collect();
    let refusal = match hosts.iter().find(|host| !is_local(host)) {
        Some(host) => Some(format!("host '{host}' is not this machine: use localhost")),
        None if hosts.is_empty() => Some("the request has no Host header".into()),
        None => headers.get_all(header::ORIGIN).iter().find_map(foreign_origin),
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
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    if !port.is_empty() && port.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_err()) {
        return false;
    }
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
        for foreign in [
            "localhost:80@example.com",
            "[::1].example.com",
            "[::1",
            "",
            "example.com",
            "localhost.example.com:80",
            "127.0.0.1.example.com",
            "10.0.0.1",
            "[::2]",
        ] {
            assert!(!is_local(foreign), "{foreign}");
        }
        let origin = |text: &str| foreign_origin(&HeaderValue::from_str(text).expect("header"));
        assert_eq!(origin("http://localhost:3000"), None);
        assert!(origin("https://example.com").is_some() && origin("null").is_some());
    }
}
