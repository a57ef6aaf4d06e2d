//! A server with a simulated cloud behind it, and short words to talk to it.

use std::{fmt::Write, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use flotta_clock::{Anchor, Clock};
use flotta_drivers::{
    ClusterDriver,
    aks::{AksConfig, AksDriver, Reach},
    pace::Budgets,
    token::{TokenSource, Tokens},
    transport::router_transport,
};
use flotta_orchestrator::Orchestrator;
use flotta_server::{App, router};
use flotta_simulator::{FleetFile, Options, Simulator};
use flotta_store::{Collection, MemoryStore, Store};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

/// The version that tests speak unless they say otherwise.
pub const VERSION: &str = "2026-06-02-preview";
/// The fleet of most tests.
pub const FLEET: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg1/providers/Microsoft.ContainerService/fleets/fleet1";
/// Where the clusters of the simulated cloud are.
pub const CLUSTERS: &str = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg-fleet/providers/Microsoft.ContainerService/managedClusters";

/// A region with releases of 2023.
pub const REGION: &str = r"
seed: 7
behaviour: { throttling: false }
regions:
  westeurope:
    kubernetes:
      - { minor: '1.25', patches: [1.25.4, 1.25.5] }
      - { minor: '1.26', patches: [1.26.0, 1.26.1] }
    images: [AKSUbuntu-2204gen2containerd-202303.06.0]
";

/// Four clusters that can move to 1.26.1, and one that is there.
pub const FIVE: &str = r"
clusters:
  - { name: c1, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: c2, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: c3, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: c4, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: there, region: westeurope, version: 1.26.1, pools: [{ name: p1 }] }
";

/// Everything that runs.
pub struct World {
    pub clock: Clock,
    pub store: Arc<MemoryStore>,
    pub simulator: Arc<Simulator>,
    orchestrator: Orchestrator,
    router: Router,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The body of an answer that must have a status.
    #[track_caller]
    pub fn with(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// A header, which must be text; absent is empty.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect(name))
    }

    /// Status, code and target of a refusal.
    pub fn refusal(&self) -> (u16, &str, &str) {
        let error = |key: &str| self.body["error"][key].as_str().unwrap_or_default();
        (self.status, error("code"), error("target"))
    }

    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }
}

impl World {
    /// A cloud as a fleet file describes it below [`REGION`], and a server with an empty fleet.
    pub async fn new(clusters: &str) -> Self {
        let world = Self::without_fleet(&format!("{REGION}{clusters}")).await;
        world.put("", json!({"location": "westeurope"})).await.with(201);
        world
    }

    pub async fn without_fleet(cloud: &str) -> Self {
        Self::over(Arc::new(MemoryStore::new()), cloud).await
    }

    /// A server over what a store has.
    pub async fn over(store: Arc<MemoryStore>, cloud: &str) -> Self {
        let clock = Clock::scaled(Anchor { domain: "2023-03-06T08:00:00Z".parse().expect("time"), speed: 1.0 });
        let file = FleetFile::parse(cloud).expect("fleet file");
        let simulator = Simulator::new(file, clock, Options::default()).await.expect("simulator");
        Self::serving(store, simulator, clock).await
    }

    /// The server is stopped and started again over what it has stored; the cloud went on meanwhile.
    pub async fn restarted(self) -> Self {
        self.orchestrator.shutdown().await;
        Self::serving(self.store, self.simulator, self.clock).await
    }

    /// The same, after some time in which there was no server.
    pub async fn restarted_after(self, time: impl Future<Output = ()>) -> Self {
        self.orchestrator.shutdown().await;
        time.await;
        Self::serving(self.store, self.simulator, self.clock).await
    }

    async fn serving(store: Arc<MemoryStore>, simulator: Arc<Simulator>, clock: Clock) -> Self {
        let config =
            AksConfig { budgets: Budgets::unlimited(), ..AksConfig::new("http://127.0.0.1:1", Reach::Everything) };
        let transport = router_transport(simulator.router());
        let tokens = Tokens::new(TokenSource::None, "", transport.clone());
        let driver: Arc<dyn ClusterDriver> =
            Arc::new(AksDriver::new(config, transport, tokens, clock).expect("driver"));
        let shared = Arc::clone(&store) as Arc<dyn Store>;
        let orchestrator = Orchestrator::open(Arc::clone(&shared), vec![driver], clock).await.expect("orchestrator");
        let router = router(App::new(shared, orchestrator.clone()));
        Self { clock, store, simulator, orchestrator, router }
    }

    /// A request as it is: nothing is added but a Host.
    pub async fn raw(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", "localhost:8642");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).expect("request");
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.expect("body").to_bytes();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap_or_default() };
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// A request about something in the fleet, by a version.
    pub async fn by(&self, version: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.raw(method, &url(path, version), &[], body).await
    }

    /// A request about something in the fleet, with headers.
    pub async fn on(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
        self.raw(method, &url(path, VERSION), headers, body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.by(VERSION, "PUT", path, Some(body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.by(VERSION, "PATCH", path, Some(body)).await
    }

    pub async fn post(&self, path: &str) -> Answer {
        self.by(VERSION, "POST", path, None).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.by(VERSION, "DELETE", path, None).await
    }

    /// What is there; it must be there.
    pub async fn get(&self, path: &str) -> Value {
        self.by(VERSION, "GET", path, None).await.with(200)
    }

    /// The simulated cluster joins as the member of its name.
    pub async fn join(&self, cluster: &str, group: &str) -> Value {
        let properties = json!({"clusterResourceId": format!("{CLUSTERS}/{cluster}"), "group": group});
        self.put(&format!("/members/{cluster}"), json!({"properties": properties})).await.with(201)
    }

    /// A run of a strategy, created.
    pub async fn create(&self, run: &str, strategy: Value) -> Value {
        self.put(&format!("/updateRuns/{run}"), full(strategy)).await.with(201)
    }

    pub async fn start(&self, run: &str) -> Value {
        self.post(&format!("/updateRuns/{run}/start")).await.with(200)
    }

    /// Time passes until a run is in a state.
    pub async fn until(&self, run: &str, state: &str) -> Value {
        let mut seen = Value::Null;
        for _ in 0..5_000 {
            seen = self.get(&format!("/updateRuns/{run}")).await;
            if state_of(&seen) == state {
                return seen;
            }
            self.pass(30).await;
        }
        panic!("{run} is never {state}: {seen:#}");
    }

    /// Time passes.
    pub async fn pass(&self, seconds: u64) {
        self.clock.pause(Duration::from_secs(seconds)).await;
    }

    /// Starts that the cloud accepted.
    pub fn accepted(&self) -> usize {
        self.simulator.accepted(0, 100_000).1.len()
    }

    /// Everything that is stored, as text.
    pub async fn dump(&self) -> String {
        let mut dump = String::new();
        for collection in Collection::ALL {
            for document in self.store.scan(collection, None, 10_000).await.expect("scan") {
                writeln!(dump, "{document:?}").expect("text");
                let run = (collection == Collection::Runs).then(|| run_id(&document.body));
                if let Some(run) = run {
                    writeln!(dump, "{:?}", self.store.journal(run, 0, 10_000).await.expect("journal")).expect("text");
                    writeln!(dump, "{:?}", self.store.snapshot(run).await.expect("snapshot")).expect("text");
                }
            }
        }
        dump
    }
}

fn run_id(body: &str) -> Uuid {
    let document: Value = serde_json::from_str(body).expect("document");
    document["run"].as_str().and_then(|id| id.parse().ok()).expect("run id")
}

/// The URL of something in the fleet.
pub fn url(path: &str, version: &str) -> String {
    let glue = if path.contains('?') { '&' } else { '?' };
    format!("{FLEET}{path}{glue}api-version={version}")
}

/// A strategy of stages, each with its groups.
pub fn stages(stages: &[(&str, &[&str])]) -> Value {
    let stage = |(name, groups): &(&str, &[&str])| {
        let groups: Vec<Value> = groups.iter().map(|group| json!({"name": group})).collect();
        json!({"name": name, "groups": groups})
    };
    json!({"stages": stages.iter().map(stage).collect::<Vec<Value>>()})
}

/// A strategy that stands before a gate.
pub fn gated(groups: &[&str]) -> Value {
    let mut strategy = stages(&[("one", groups)]);
    strategy["stages"][0]["beforeGates"] = json!([{"type": "Approval", "displayName": "may we?"}]);
    strategy
}

/// A run of a strategy to 1.26.1; `null`: one by one.
pub fn full(strategy: Value) -> Value {
    let goal = json!({"upgrade": {"type": "Full", "kubernetesVersion": "1.26.1"}});
    json!({"properties": {"strategy": strategy, "managedClusterUpdate": goal}})
}

/// The state of a run.
pub fn state_of(run: &Value) -> &str {
    run.pointer("/properties/status/status/state").and_then(Value::as_str).expect("state")
}

/// Names of members in a run's status, in order, with their states.
pub fn members_of(run: &Value) -> Vec<(String, String)> {
    let empty = Vec::new();
    let array = |value: &Value, key: &str| value[key].as_array().unwrap_or(&empty).clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let groups = array(&run["properties"]["status"], "stages").into_iter().flat_map(|stage| array(&stage, "groups"));
    let members = groups.flat_map(|group| array(&group, "members"));
    members.map(|member| (text(&member["name"]), text(&member["status"]["state"]))).collect()
}
