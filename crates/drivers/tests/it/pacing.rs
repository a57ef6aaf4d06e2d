//! The provider's budgets hold however much there is to do, under a virtual clock.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use flotta_drivers::{
    ClusterDriver, Intent, Look, Operation, Progress, Trouble,
    aks::{AksConfig, AksDriver},
    pace::Budgets,
    token::{TokenSource, Tokens},
    transport::Transport,
};
use flotta_model::{ClusterId, Hold};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tower::util::service_fn;

use crate::fake::*;

fn paced(transport: Transport, clock: flotta_clock::Clock) -> AksDriver {
    let tokens = Tokens::new(TokenSource::None, "r", transport.clone());
    AksDriver::new(AksConfig { budgets: Budgets::azure(), ..config() }, transport, tokens, clock).expect("config")
}

/// The most calls in any window of this many seconds.
fn busiest(times: &[Timestamp], seconds: i64) -> usize {
    let ends = |from: usize| {
        times[from..].partition_point(|at| at.duration_since(times[from]) < SignedDuration::from_secs(seconds))
    };
    (0..times.len()).map(ends).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn d5_five_hundred_operations_in_flight_stay_inside_the_budget_of_their_subscription() {
    let clock = clock();
    let times: Arc<Mutex<Vec<Timestamp>>> = Arc::default();
    let noted = times.clone();
    let transport = Transport::new(service_fn(move |_: Request<Bytes>| {
        noted.lock().expect("times").push(clock.now());
        async { json_answer(200, &json!({"status": "InProgress"})) }
    }));
    let driver = Arc::new(paced(transport, clock));
    let start = clock.now();
    let polls = (0..500).map(|n| {
        let driver = driver.clone();
        tokio::spawn(async move {
            let cluster: ClusterId = format!("{ID}-{n}").parse().expect("id");
            let intent = Intent { cluster, ..intent(full("1.33.2"), "e", false) };
            let operation = Operation { id: "o".into(), url: Some(OPERATION.into()) };
            let mut longest = Duration::ZERO;
            while clock.now().duration_since(start) < SignedDuration::from_hours(1) {
                match driver.poll(&intent, &operation).await.expect("polled") {
                    Progress::Running { after, .. } => {
                        longest = longest.max(after);
                        clock.pause(after).await;
                    }
                    end => panic!("{end:?}"),
                }
            }
            longest
        })
    });
    let longest = futures::future::join_all(polls)
        .await
        .into_iter()
        .map(|longest| longest.expect("joined"))
        .max()
        .expect("polls");
    let times = times.lock().expect("times").clone();
    assert!(busiest(&times, 60) <= 200 + 2 * 60, "{}", busiest(&times, 60));
    assert!(busiest(&times, 600) <= 200 + 2 * 600, "{}", busiest(&times, 600));
    assert!(times.len() > 4500, "and uses most of it: {}", times.len());
    assert_eq!(longest, Duration::from_secs_f64(500.0 / 1.6));
}

#[tokio::test(start_paused = true)]
async fn d5_writes_wait_for_their_permit_and_reads_for_their_bucket() {
    let (fake, clock) = (Fake::new(), clock());
    let driver = paced(fake.transport(), clock);
    let passed = |start: Timestamp| clock.now().duration_since(start).as_secs();
    let start = clock.now();
    for _ in 0..18 {
        driver.permit(&id(), &full("1.33.2")).await;
    }
    assert!((149..152).contains(&passed(start)), "two writes beyond the 16: {}", passed(start));
    let start = clock.now();
    driver.permit(&id(), &pool_version("1.33.2")).await;
    driver.permit(&id(), &image()).await;
    assert_eq!(passed(start), 0, "pools are counted apart");
    for _ in 0..58 {
        driver.observe(&id(), Look::default()).await.expect("seen");
    }
    assert!((12..14).contains(&passed(start)), "ten reads beyond the 48: {}", passed(start));
}

#[tokio::test(start_paused = true)]
async fn d4_a_throttled_write_holds_the_next_permit_back_for_as_long_as_was_asked() {
    let (fake, clock) = (Fake::new(), clock());
    let driver = paced(fake.transport(), clock);
    let text = "The PutManagedCluster request limit has been exceeded, please retry again in 36 seconds";
    fake.script(Method::PUT, "", error(429, "Throttled", text));
    let trouble = driver.start(&intent(full("1.33.2"), "cluster-0", false)).await.expect_err("throttled");
    assert!(
        matches!(trouble, Trouble::Retry { after: Some(after), .. } if after == Duration::from_secs(36)),
        "{trouble:?}"
    );
    let start = clock.now();
    driver.permit(&id(), &full("1.33.2")).await;
    assert!((36..38).contains(&clock.now().duration_since(start).as_secs()));
    assert!(!driver.start(&intent(full("1.33.2"), "cluster-0", false)).await.expect("started").adopted);
}

#[tokio::test(start_paused = true)]
async fn d4_a_throttled_read_is_not_hammered() {
    let (fake, clock) = (Fake::new(), clock());
    let driver = paced(fake.transport(), clock);
    fake.script(Method::GET, "", error(429, "TooManyRequests", "Retry after 20 seconds."));
    let start = clock.now();
    assert!(matches!(
        driver.observe(&id(), Look::default()).await,
        Err(Trouble::Retry { after: Some(_), lasting: Hold::Throttled, .. })
    ));
    assert_eq!(fake.reads(""), 1);
    driver.observe(&id(), Look::default()).await.expect("seen");
    assert!(clock.now().duration_since(start) >= SignedDuration::from_secs(20));
}
