//! Tokens are fetched once, kept until shortly before they end, and never shown or sent elsewhere.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use flotta_drivers::{
    ClusterDriver, Look, Trouble,
    aks::AksDriver,
    token::{INSTANCE_METADATA, IdentityEndpoint, Secret, TokenError, TokenSource, Tokens},
    transport::{Transport, TransportError},
};
use flotta_model::Hold;
use http::{Method, Request};
use serde_json::json;
use tower::util::service_fn;

use crate::fake::{Answer, Fake, clock, config, driver, error, id, json_answer};

/// A token service that counts, and answers after a second.
#[derive(Clone, Default)]
struct Authority(Arc<Mutex<Desk>>);

/// Line, headers and body of each call, and the answer to the next one.
type Desk = (Vec<Call>, Option<Answer>);
type Call = (String, String, String);

impl Authority {
    fn transport(&self) -> Transport {
        let authority = self.clone();
        Transport::new(service_fn(move |request: Request<Bytes>| {
            let authority = authority.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let mut inner = authority.0.lock().expect("authority");
                let headers = format!("{:?}", request.headers());
                let body = String::from_utf8_lossy(request.body()).into_owned();
                inner.0.push((format!("{} {}", request.method(), request.uri()), headers, body));
                let count = inner.0.len();
                inner.1.take().unwrap_or_else(|| {
                    json_answer(200, &json!({"access_token": format!("token-{count}"), "expires_in": "3600"}))
                })
            }
        }))
    }

    fn calls(&self) -> Vec<Call> {
        self.0.lock().expect("authority").0.clone()
    }

    fn next(&self, answer: Answer) {
        self.0.lock().expect("authority").1 = Some(answer);
    }
}

fn secret() -> TokenSource {
    TokenSource::ClientCredentials {
        authority: "https://login.example".into(),
        tenant: "t1".into(),
        client_id: "app".into(),
        secret: Secret::new("s3cr&t"),
    }
}

fn tokens(authority: &Authority, source: TokenSource) -> Tokens {
    Tokens::new(source, "https://management.azure.com/", authority.transport())
}

#[tokio::test(start_paused = true)]
async fn one_refresh_serves_all_and_comes_before_the_end() {
    let authority = Authority::default();
    let tokens = tokens(&authority, secret());
    let headers = futures::future::join_all((0..100).map(|_| tokens.header())).await;
    assert!(headers.iter().all(|header| {
        header.as_ref().is_ok_and(|header| header.as_ref().is_some_and(|value| value == "Bearer token-1"))
    }));
    assert_eq!(authority.calls().len(), 1);
    tokio::time::advance(Duration::from_secs(3600 - 310)).await;
    assert_eq!(tokens.header().await.expect("kept").expect("token"), "Bearer token-1");
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(tokens.header().await.expect("fresh").expect("token"), "Bearer token-2");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_remembered_for_a_moment_and_an_old_token_used_while_it_lasts() {
    let authority = Authority::default();
    let tokens = tokens(&authority, secret());
    let refusal = || json_answer(401, &json!({"error": "invalid_client", "error_description": "wrong secret"}));
    authority.next(refusal());
    for header in futures::future::join_all((0..50).map(|_| tokens.header())).await {
        assert!(matches!(&header, Err(TokenError::Refused(text)) if text.contains("wrong secret")), "{header:?}");
    }
    assert_eq!(authority.calls().len(), 1);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(tokens.header().await.expect("fresh").expect("token"), "Bearer token-2");
    tokio::time::advance(Duration::from_secs(3400)).await;
    authority.next(Err(TransportError::NotSent("down".into())));
    assert_eq!(tokens.header().await.expect("old").expect("token"), "Bearer token-2");
    tokio::time::advance(Duration::from_secs(300)).await;
    authority.next(json_answer(503, &json!({})));
    assert!(matches!(tokens.header().await, Err(TokenError::Unreachable(_))));
}

#[tokio::test(start_paused = true)]
async fn each_source_asks_in_its_own_form() {
    let file = std::env::temp_dir().join(format!("flotta-token-{}", std::process::id()));
    std::fs::write(&file, "federated\n").expect("file");
    let workload = TokenSource::WorkloadIdentity {
        authority: "https://login.example/".into(),
        tenant: "t1".into(),
        client_id: "app".into(),
        token_file: file.clone(),
    };
    let metadata = TokenSource::ManagedIdentity {
        client_id: Some("mine".into()),
        endpoint: IdentityEndpoint::Metadata(INSTANCE_METADATA.into()),
    };
    let header = TokenSource::ManagedIdentity {
        client_id: None,
        endpoint: IdentityEndpoint::Header { url: "http://127.0.0.1:42/msi".into(), header: Secret::new("inside") },
    };
    let resource = "https%3A%2F%2Fmanagement.azure.com%2F";
    let scope = "https%3A%2F%2Fmanagement.azure.com%2F.default";
    let cases = [
        (
            secret(),
            "POST https://login.example/t1/oauth2/v2.0/token".to_owned(),
            "",
            format!("grant_type=client_credentials&client_id=app&scope={scope}&client_secret=s3cr%26t"),
        ),
        (
            workload,
            "POST https://login.example/t1/oauth2/v2.0/token".to_owned(),
            "",
            format!(
                "grant_type=client_credentials&client_id=app&scope={scope}&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&client_assertion=federated"
            ),
        ),
        (
            metadata,
            format!("GET {INSTANCE_METADATA}?api-version=2018-02-01&resource={resource}&client_id=mine"),
            r#""metadata": "true""#,
            String::new(),
        ),
        (
            header,
            format!("GET http://127.0.0.1:42/msi?api-version=2019-08-01&resource={resource}"),
            r#""x-identity-header": "inside""#,
            String::new(),
        ),
    ];
    for (source, line, header, body) in cases {
        let authority = Authority::default();
        let got = tokens(&authority, source).header().await.expect("header").expect("token");
        assert_eq!(got, "Bearer token-1");
        assert!(got.is_sensitive());
        let call = &authority.calls()[0];
        assert_eq!((&call.0, &call.2), (&line, &body));
        assert!(call.1.contains(header), "{}", call.1);
    }
    std::fs::remove_file(&file).expect("removed");
}

#[tokio::test(start_paused = true)]
async fn secrets_are_not_shown_and_not_sent_in_the_open() {
    let authority = Authority::default();
    let shown = format!("{:?} {:?}", tokens(&authority, secret()), TokenSource::Static(Secret::new("s3cr&t")));
    assert!(!shown.contains("s3cr") && shown.contains("***"), "{shown}");
    let open = TokenSource::ClientCredentials {
        authority: "http://login.example".into(),
        tenant: "t".into(),
        client_id: "a".into(),
        secret: Secret::new("s"),
    };
    assert!(matches!(tokens(&authority, open).header().await, Err(TokenError::Refused(_))));
    assert!(authority.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_is_replaced_once() {
    let (fake, authority) = (Fake::new(), Authority::default());
    let make = || AksDriver::new(config(), fake.transport(), tokens(&authority, secret()), clock()).expect("config");
    let driver = make();
    fake.script(Method::GET, "", error(401, "ExpiredAuthenticationToken", "m"));
    driver.observe(&id(), Look::default()).await.expect("second token");
    let used: Vec<String> = fake.with(|state| {
        state.log.iter().map(|seen| seen.headers["authorization"].to_str().expect("token").to_owned()).collect()
    });
    assert_eq!(used, ["Bearer token-1", "Bearer token-2"]);
    for _ in 0..2 {
        fake.script(Method::GET, "", error(401, "InvalidAuthenticationToken", "m"));
    }
    let trouble = driver.observe(&id(), Look::default()).await.expect_err("refused");
    assert!(matches!(trouble, Trouble::Wait(Hold::CredentialsRefused(_))), "{trouble:?}");
    authority.next(json_answer(400, &json!({"error": "invalid_client"})));
    let trouble = make().observe(&id(), Look::default()).await.expect_err("no token");
    assert!(matches!(trouble, Trouble::Wait(Hold::CredentialsRefused(_))), "{trouble:?}");
}

#[tokio::test]
async fn without_a_source_no_token_is_sent() {
    let fake = Fake::new();
    driver(&fake).observe(&id(), Look::default()).await.expect("seen");
    assert!(fake.with(|state| !state.log[0].headers.contains_key("authorization")));
}
