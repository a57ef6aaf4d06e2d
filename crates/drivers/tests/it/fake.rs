//! One cluster behind the AKS API, as far as the driver's tests need it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use flotta_clock::{Anchor, Clock};
use flotta_drivers::{
    Intent,
    aks::{AksConfig, AksDriver, Reach},
    pace::Budgets,
    token::{TokenSource, Tokens},
    transport::{Transport, TransportError},
};
use flotta_model::{ClusterId, NodeImage, Step};
use http::{HeaderMap, Method, Request, Response};
use serde_json::{Value, json};
use tower::util::service_fn;

pub const ENDPOINT: &str = "http://localhost:9";
pub const ID: &str = "/subscriptions/s1/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c1";
pub const OPERATION: &str = "/subscriptions/s1/providers/Microsoft.ContainerService/locations/eastus/operations/op-1?api-version=2025-03-01&t=1&c=ab%2Bc&s=x_-y&h=%7e";

pub type Answer = Result<Response<Bytes>, TransportError>;

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub uri: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// An answer that is given once, instead of the usual one.
struct Scripted {
    method: Method,
    part: String,
    answer: Answer,
    /// The request is carried out all the same: its answer got lost.
    carried_out: bool,
}

#[derive(Default)]
pub struct State {
    pub cluster: Value,
    pub status: Value,
    pub latest: Option<Value>,
    pub log: Vec<Seen>,
    pub etags: u32,
    /// What `Azure-AsyncOperation` says.
    pub operation: String,
    scripted: VecDeque<Scripted>,
}

/// The service; clones share their state.
#[derive(Clone)]
pub struct Fake(pub Arc<Mutex<State>>);

impl Fake {
    /// A cluster at rest at 1.32.7 with pools `sys` and `win`; etags `cluster-0`, `sys-0`, `win-0`.
    pub fn new() -> Self {
        let pool = |name: &str, image: &str, os: &str| {
            json!({
                "name": name, "count": 2, "vmSize": "Standard_D2s_v3", "mode": "System", "osType": os,
                "provisioningState": "Succeeded", "powerState": {"code": "Running"},
                "orchestratorVersion": "1.32.7", "currentOrchestratorVersion": "1.32.7",
                "nodeImageVersion": image, "eTag": format!("{name}-0"),
                "upgradeSettings": {"maxSurge": "10%"}, "newer": {"unknown": [1, 2]},
            })
        };
        let cluster = json!({
            "id": ID, "name": "c1", "type": "Microsoft.ContainerService/ManagedClusters", "location": "eastus",
            "kind": "Base", "sku": {"name": "Base", "tier": "Free"}, "tags": {"team": "a"}, "eTag": "cluster-0",
            "identity": {"type": "SystemAssigned", "principalId": "p", "tenantId": "t"},
            "properties": {
                "provisioningState": "Succeeded", "powerState": {"code": "Running"},
                "kubernetesVersion": "1.32", "currentKubernetesVersion": "1.32.7",
                "agentPoolProfiles": [
                    pool("sys", "AKSUbuntu-2204gen2containerd-202509.01.0", "Linux"),
                    pool("win", "AKSWindows-2022-containerd-20348.2700.240911", "Windows"),
                ],
                "maxAgentPools": 100, "fqdn": "c1.example", "supportPlan": "KubernetesOfficial",
                "somethingNew": {"kept": true},
            },
        });
        let state = State {
            cluster,
            status: json!({"name": "op-1", "status": "InProgress"}),
            operation: format!("{ENDPOINT}{OPERATION}"),
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().expect("state"))
    }

    /// Answers the next request of a method whose address holds `part` with this.
    pub fn script(&self, method: Method, part: &str, answer: Answer) {
        let scripted = Scripted { method, part: part.into(), answer, carried_out: false };
        self.with(|state| state.scripted.push_back(scripted));
    }

    /// Carries the next such request out and then answers with this.
    pub fn lose(&self, method: Method, part: &str, answer: Answer) {
        let scripted = Scripted { method, part: part.into(), answer, carried_out: true };
        self.with(|state| state.scripted.push_back(scripted));
    }

    /// The writes that came in.
    pub fn writes(&self) -> Vec<Seen> {
        self.with(|state| state.log.iter().filter(|seen| seen.method != Method::GET).cloned().collect())
    }

    pub fn reads(&self, part: &str) -> usize {
        self.with(|state| state.log.iter().filter(|seen| seen.method == Method::GET && seen.uri.contains(part)).count())
    }

    pub fn transport(&self) -> Transport {
        let fake = self.clone();
        Transport::new(service_fn(move |request: Request<Bytes>| {
            let answer = fake.answer(request);
            async move { answer }
        }))
    }

    pub fn answer(&self, request: Request<Bytes>) -> Answer {
        let (head, body) = request.into_parts();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let seen = Seen { method: head.method, uri: head.uri.to_string(), headers: head.headers, body };
        self.with(|state| {
            state.log.push(seen.clone());
            let at = state.scripted.iter().position(|next| next.method == seen.method && seen.uri.contains(&next.part));
            match at.and_then(|at| state.scripted.remove(at)) {
                Some(scripted) => {
                    if scripted.carried_out {
                        assert!(state.serve(&seen).expect("served").status().is_success());
                    }
                    scripted.answer
                }
                None => state.serve(&seen),
            }
        })
    }
}

impl State {
    fn serve(&mut self, seen: &Seen) -> Answer {
        let path =
            seen.uri.strip_prefix(ENDPOINT).unwrap_or(&seen.uri).split('?').next().unwrap_or_default().to_owned();
        let below = path.strip_prefix(ID).unwrap_or(&path).to_owned();
        let parts: Vec<&str> = below.split('/').collect();
        match (seen.method.as_str(), &parts[..]) {
            ("GET", [""]) => json_answer(200, &self.cluster),
            ("PUT", [""]) => self.put_cluster(seen),
            ("GET", ["", "agentPools", name]) => {
                let name = (*name).to_owned();
                match self.pool(&name) {
                    Some(pool) => {
                        let body = json!({"id": format!("{ID}/agentPools/{name}"), "name": name, "type": "t", "properties": pool});
                        json_answer(200, &body)
                    }
                    None => error(404, "NotFound", "no such pool"),
                }
            }
            ("PUT" | "POST", ["", "agentPools", name, ..]) => self.write_pool(seen, name),
            ("GET", ["", "operations", "latest"]) => match &self.latest {
                Some(latest) => json_answer(200, latest),
                None => error(404, "NotFound", "no operation"),
            },
            ("GET", _) if path.contains("/locations/eastus/operations/") => json_answer(200, &self.status),
            ("GET", _) if path.ends_with("/kubernetesVersions") => json_answer(
                200,
                &json!({"values": [
                    {"version": "1.33", "capabilities": {"supportPlan": ["KubernetesOfficial"]}, "patchVersions": {"1.33.2": {}, "1.33.0": {}}},
                    {"version": "1.34", "isPreview": true, "capabilities": {"supportPlan": ["KubernetesOfficial"]}, "patchVersions": {"1.34.0": {}}},
                    {"version": "1.30", "capabilities": {"supportPlan": ["AKSLongTermSupport"]}, "patchVersions": {"1.30.100": {}, "1.30.14": {}}},
                ]}),
            ),
            _ => error(404, "NotFound", &format!("{} {path}", seen.method)),
        }
    }

    pub fn pool(&mut self, name: &str) -> Option<&mut Value> {
        let pools = self.cluster["properties"]["agentPoolProfiles"].as_array_mut()?;
        pools.iter_mut().find(|pool| pool["name"] == name)
    }

    fn fresh(&mut self, of: &str) -> Value {
        self.etags += 1;
        format!("{of}-{}", self.etags).into()
    }

    fn put_cluster(&mut self, seen: &Seen) -> Answer {
        if seen.headers.get("if-match").is_some_and(|etag| self.cluster["eTag"] != etag.to_str().expect("etag")) {
            return error(412, "EtagMismatch", "the etag does not match");
        }
        let asked = &seen.body["properties"];
        self.cluster["eTag"] = self.fresh("cluster");
        let properties = &mut self.cluster["properties"];
        properties["provisioningState"] = "Upgrading".into();
        properties["kubernetesVersion"] = asked["kubernetesVersion"].clone();
        properties["currentKubernetesVersion"] = asked["kubernetesVersion"].clone();
        for pool in asked["agentPoolProfiles"].as_array().expect("pools") {
            let (name, version) =
                (pool["name"].as_str().expect("name").to_owned(), pool["orchestratorVersion"].clone());
            let (etag, image) = (self.fresh(&name), pool.get("nodeImageVersion"));
            let pool = self.pool(&name).expect("known pool");
            if let Some(image) = image {
                pool["nodeImageVersion"] = image.clone();
            }
            pool["orchestratorVersion"] = version.clone();
            pool["currentOrchestratorVersion"] = version;
            pool["provisioningState"] = "Upgrading".into();
            pool["eTag"] = etag;
        }
        self.accepted(200)
    }

    fn write_pool(&mut self, seen: &Seen, name: &str) -> Answer {
        let etag = self.fresh(name);
        let Some(pool) = self.pool(name) else { return error(404, "NotFound", "no such pool") };
        if seen.headers.get("if-match").is_some_and(|etag| pool["eTag"] != etag.to_str().expect("etag")) {
            return error(412, "EtagMismatch", "the etag does not match");
        }
        pool["eTag"] = etag;
        if seen.method == Method::POST {
            pool["provisioningState"] = "UpgradingNodeImageVersion".into();
            return self.accepted(202);
        }
        pool["provisioningState"] = "Upgrading".into();
        pool["orchestratorVersion"] = seen.body["properties"]["orchestratorVersion"].clone();
        pool["currentOrchestratorVersion"] = pool["orchestratorVersion"].clone();
        if let Some(image) = seen.body["properties"].get("nodeImageVersion") {
            pool["nodeImageVersion"] = image.clone();
        }
        self.accepted(200)
    }

    fn accepted(&self, status: u16) -> Answer {
        let answer = Response::builder()
            .status(status)
            .header("azure-asyncoperation", &self.operation)
            .header("x-ms-request-id", "op-1");
        Ok(answer.body(Bytes::from(self.cluster.to_string())).expect("answer"))
    }

    /// The cluster and its pools are doing this.
    pub fn doing(&mut self, word: &str) {
        self.cluster["properties"]["provisioningState"] = word.into();
        for pool in self.cluster["properties"]["agentPoolProfiles"].as_array_mut().expect("pools") {
            pool["provisioningState"] = word.into();
        }
    }
}

pub fn json_answer(status: u16, body: &Value) -> Answer {
    Ok(Response::builder().status(status).body(Bytes::from(body.to_string())).expect("answer"))
}

pub fn error(status: u16, code: &str, message: &str) -> Answer {
    json_answer(status, &json!({"code": code, "details": null, "message": message, "subcode": ""}))
}

pub fn clock() -> Clock {
    Clock::scaled(Anchor { domain: "2026-01-01T00:00:00Z".parse().expect("time"), speed: 1.0 })
}

pub fn config() -> AksConfig {
    AksConfig {
        budgets: Budgets::unlimited(),
        backoff: Duration::from_millis(1),
        ..AksConfig::new(ENDPOINT, Reach::Everything)
    }
}

pub fn driver(fake: &Fake) -> AksDriver {
    let transport = fake.transport();
    let tokens = Tokens::new(TokenSource::None, "r", transport.clone());
    AksDriver::new(config(), transport, tokens, clock()).expect("config")
}

pub fn id() -> ClusterId {
    ID.parse().expect("id")
}

pub fn intent(step: Step, guard: &str, recovering: bool) -> Intent {
    let at = "2026-01-01T00:00:00Z".parse().expect("time");
    Intent { cluster: id(), step, guard: Some(guard.into()), at, recovering, not_after: None }
}

pub fn full(version: &str) -> Step {
    Step::cluster(version.parse().expect("version"), vec!["win".into(), "sys".into()])
}

pub fn control_plane(version: &str) -> Step {
    Step::ControlPlane { version: version.parse().expect("version") }
}

pub fn pool_version(version: &str) -> Step {
    Step::pool_version("win".into(), version.parse().expect("version"))
}

pub const NEW_IMAGE: &str = "AKSUbuntu-2204gen2containerd-202510.03.1";
pub const NEW_WINDOWS: &str = "AKSWindows-2022-containerd-20348.3207.250214";

fn named(image: &str) -> NodeImage {
    image.parse().expect(image)
}

pub fn image() -> Step {
    Step::PoolImage { pool: "sys".into(), image: named(NEW_IMAGE) }
}

/// The same, with the image of `sys` pinned.
pub fn full_pinned(version: &str) -> Step {
    let images = [("sys".to_owned(), named(NEW_IMAGE))].into();
    Step::Cluster { version: version.parse().expect("version"), pools: vec!["win".into(), "sys".into()], images }
}

/// The same, with the image pinned.
pub fn pool_version_pinned(version: &str) -> Step {
    Step::PoolVersion {
        pool: "win".into(),
        version: version.parse().expect("version"),
        image: Some(named(NEW_WINDOWS)),
    }
}

pub fn pinned(image: &str) -> Step {
    Step::PoolPinned { pool: "sys".into(), image: named(image) }
}
