//! A small cloud for tests, and a caller of its API.

use std::{path::PathBuf, time::Duration};

use axum::{Router, body::Body};
use flotta_clock::{Anchor, Clock};
use flotta_simulator::{Accepted, FleetFile, Options, Simulator};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

/// One region with two supported minors, an older one for long-term support and a preview; `c1` has a Linux and a
/// Windows pool of two nodes each.
pub const FLEET: &str = r#"
seed: 7
subscription: s1
resourceGroup: rg1
regions:
  westeurope:
    kubernetes:
      - { minor: "1.34", preview: true, patches: ["1.34.0"] }
      - { minor: "1.33", patches: ["1.33.0", "1.33.1", "1.33.2"] }
      - { minor: "1.32", default: true, patches: ["1.32.5", "1.32.6", "1.32.7"] }
      - { minor: "1.31", patches: ["1.31.10", "1.31.11"] }
      - { minor: "1.30", supportPlan: [AKSLongTermSupport], patches: ["1.30.14", "1.30.100"] }
    images:
      - AKSUbuntu-2204gen2containerd-202508.20.1
      - AKSUbuntu-2204gen2containerd-202510.03.1
      - AKSWindows-2022-containerd-20348.2700.240911
      - AKSWindows-2022-containerd-20348.3207.250214
  eastus2:
    kubernetes:
      - { minor: "1.32", patches: ["1.32.6", { is: "1.32.7", afterSeconds: 3600 }] }
    images: [AKSUbuntu-2204gen2containerd-202510.03.1]
behaviour: { throttling: false }
clusters:
  - name: c1
    region: westeurope
    version: "1.32.6"
    pools:
      - { name: system, count: 2, maxSurge: "1", image: AKSUbuntu-2204gen2containerd-202508.20.1 }
      - { name: win, count: 2, maxSurge: "1", mode: User, osType: Windows, osSKU: Windows2022, image: AKSWindows-2022-containerd-20348.2700.240911 }
"#;

/// The fleet of [`FLEET`] with more clusters, behaviour or faults below it.
pub fn with(more: &str) -> String {
    format!("{FLEET}{more}")
}

/// A caller of one simulated cloud.
#[derive(Clone)]
pub struct Cloud {
    pub router: Router,
    pub clock: Clock,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("header"))
    }

    /// The code of an error body of either shape.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().or_else(|| self.body["error"]["code"].as_str()).unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().or_else(|| self.body["error"]["message"].as_str()).unwrap_or_default()
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }
}

pub async fn cloud(fleet: &str) -> Cloud {
    let domain = "2025-11-01T00:00:00Z".parse().expect("time");
    at(fleet, Clock::scaled(Anchor { domain, speed: 1.0 }), None).await
}

pub async fn at(fleet: &str, clock: Clock, data: Option<PathBuf>) -> Cloud {
    let fleet = FleetFile::parse(fleet).unwrap_or_else(|error| panic!("{error}"));
    let simulator = Simulator::new(fleet, clock, Options { data }).await.unwrap_or_else(|error| panic!("{error}"));
    Cloud { router: simulator.router(), clock }
}

impl Cloud {
    pub async fn call(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let answer = self.router.clone().oneshot(request.body(body).expect("request")).await.expect("answer");
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.expect("body").to_bytes();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).expect("json") };
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.call(method, &uri(path), &[], body).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, Some(&body)).await
    }

    pub async fn post(&self, path: &str) -> Answer {
        self.send("POST", path, None).await
    }

    /// Cluster and pools to a version, in one request, from what was read.
    pub async fn full_upgrade(&self, cluster: &str, version: &str) -> Answer {
        let mut body = self.get(cluster).await.expect(200).body;
        body["properties"]["kubernetesVersion"] = version.into();
        for pool in body["properties"]["agentPoolProfiles"].as_array_mut().expect("pools") {
            pool["orchestratorVersion"] = version.into();
            pool.as_object_mut().expect("pool").remove("nodeImageVersion");
        }
        self.put(cluster, body).await
    }

    /// A step that a started operation stands at.
    pub async fn poll(&self, started: &Answer) -> Answer {
        self.call("GET", started.header("azure-asyncoperation"), &[], None).await
    }

    /// Waits until a started operation ends, in virtual time.
    pub async fn finish(&self, started: &Answer) -> Answer {
        for _ in 0..2000 {
            let answer = self.poll(started).await.expect(200);
            if ["Succeeded", "Failed", "Canceled"].contains(&answer.body["status"].as_str().expect("status")) {
                return answer;
            }
            self.pass(10).await;
        }
        panic!("the operation does not end");
    }

    /// Lets seconds of domain time pass.
    pub async fn pass(&self, seconds: u64) {
        self.clock.pause(Duration::from_secs(seconds)).await;
    }

    pub async fn accepted(&self) -> Vec<Accepted> {
        let answer = self.call("GET", "/simulator/accepted", &[], None).await.expect(200);
        serde_json::from_value(answer.body["value"].clone()).expect("accepted")
    }
}

/// Paths below the resource group's clusters, or absolute ones; with an api-version.
pub fn uri(path: &str) -> String {
    let base = "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.ContainerService/managedClusters";
    let path = if path.starts_with('/') { path.to_owned() } else { format!("{base}/{path}") };
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}api-version=2025-10-01")
}

/// The provisioning states of a cluster body: its own, then its pools'.
pub fn states(body: &Value) -> Vec<String> {
    let text = |value: &Value| value["provisioningState"].as_str().expect("state").to_owned();
    let pools = body["properties"]["agentPoolProfiles"].as_array().expect("pools").iter().map(text);
    std::iter::once(text(&body["properties"])).chain(pools).collect()
}

pub fn version_body(version: &str) -> Value {
    json!({"location": "westeurope", "properties": {"kubernetesVersion": version}})
}

pub fn pool_body(version: &str) -> Value {
    json!({"properties": {"orchestratorVersion": version}})
}
