//! Requests over sockets and into services of this process.

use axum::{Router, extract::Request as AxumRequest, response::IntoResponse, routing::get};
use bytes::Bytes;
use flotta_drivers::transport::{LARGEST_BODY, Transport, TransportError, http_transport, router_transport};
use http::{Request, StatusCode};
use tower::ServiceExt;

fn router() -> Router {
    let big = || async { vec![b'x'; LARGEST_BODY + 1] };
    let echo = |request: AxumRequest| async move { format!("{} {:?}", request.uri(), request.headers().get("x-a")) };
    Router::new()
        .route("/moved", get(|| async { (StatusCode::FOUND, [("location", "/echo")]).into_response() }))
        .route("/big", get(big))
        .route("/echo", get(echo))
}

async fn ask(transport: &Transport, url: &str) -> Result<(u16, String), TransportError> {
    let request = Request::get(url).header("x-a", "b").body(Bytes::new()).expect("request");
    let answer = transport.clone().oneshot(request).await?;
    Ok((answer.status().as_u16(), String::from_utf8_lossy(answer.body()).into_owned()))
}

#[tokio::test]
async fn redirects_are_not_followed_and_bodies_have_a_bound() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let at = format!("http://{}", listener.local_addr().expect("address"));
    tokio::spawn(async move { axum::serve(listener, router()).await });
    let signed = "/echo?t=1&c=a%2Bb%7e&s=x_-y&h='*";
    for (transport, base) in
        [(http_transport().expect("client"), at.as_str()), (router_transport(router()), "http://localhost")]
    {
        assert_eq!(ask(&transport, &format!("{base}/moved")).await, Ok((302, String::new())));
        let (status, text) = ask(&transport, &format!("{base}{signed}")).await.expect("echo");
        assert_eq!(status, 200);
        assert!(text.ends_with(r#"Some("b")"#), "{text}");
        assert!(text.contains("t=1&c=a%2Bb%7e&s=x_-y"), "{text}");
        assert!(matches!(ask(&transport, &format!("{base}/big")).await, Err(TransportError::MaybeSent(_))));
    }
}

#[tokio::test]
async fn a_refused_connection_was_never_sent_and_a_broken_one_may_have_been() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let at = format!("http://{}/?secret=signature", listener.local_addr().expect("address"));
    let transport = http_transport().expect("client");
    let broken = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("accepted");
        let mut seen = [0; 16];
        let _ = tokio::io::AsyncReadExt::read(&mut socket, &mut seen).await;
    });
    let error = ask(&transport, &at).await.expect_err("broken");
    assert!(matches!(error, TransportError::MaybeSent(_)), "{error:?}");
    assert!(!error.to_string().contains("signature"), "{error}");
    broken.await.expect("closed");
    let error = ask(&transport, &at).await.expect_err("refused");
    assert!(matches!(error, TransportError::NotSent(_)), "{error:?}");
}
