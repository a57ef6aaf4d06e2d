//! The real binary as a process that can be killed, and a client that bears with it.

use std::{
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use jiff::Timestamp;
use serde_json::Value;

const FLEET_ID: &str = "/subscriptions/s1/resourceGroups/rg/providers/Microsoft.ContainerService/fleets/fl";

/// A process of ours, killed when dropped.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub url: String,
}

impl Process {
    /// Starts the binary and waits until it says where it listens.
    pub fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_flotta"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let url = next_url(&mut lines);
        Self { child, lines, url }
    }

    /// Where the simulated cloud of the same process listens; told after its own address.
    pub fn cloud(&mut self) -> String {
        next_url(&mut self.lines)
    }

    /// SIGKILL: it can do nothing about it.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

fn next_url(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("listens on http://")));
    let line = line.expect("it says where it listens");
    line.split("listens on ").nth(1).expect("an address").trim().to_owned()
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// A server that drives the clusters of a cloud in another process.
pub fn serve(data: &Path, cloud: &str) -> Process {
    Process::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        text(data),
        "--aks-endpoint",
        cloud,
        "--aks-poll-seconds",
        "0.2",
        "--aks-unpaced",
    ])
}

pub fn cluster_id(n: usize) -> String {
    format!("/subscriptions/s1/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c{n}")
}

#[derive(Clone)]
pub struct Client(reqwest::Client);

impl Client {
    pub fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self(reqwest::Client::builder().no_proxy().build().expect("client"))
    }

    pub async fn send(&self, method: &str, url: &str, body: Option<Value>) -> Option<(u16, Value)> {
        self.send_as("tester", method, url, body).await
    }

    pub async fn send_as(&self, who: &str, method: &str, url: &str, body: Option<Value>) -> Option<(u16, Value)> {
        let method = method.parse().expect("method");
        let mut request = self.0.request(method, url).header("x-ms-client-principal-name", who);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        let text = answer.text().await.ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    pub async fn must(&self, server: &Process, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, body) = self.send(method, &arm(server, path), body).await.expect("an answer");
        assert!(status < 300, "{method} {path}: {status} {body}");
        body
    }
}

/// The address of something at or below the fleet.
pub fn arm(server: &Process, path: &str) -> String {
    format!("{}{FLEET_ID}{path}?api-version=2026-06-02-preview", server.url)
}

/// A start that the cloud accepted, from its durable log.
pub struct Start {
    /// The number in its cluster's name.
    pub cluster: usize,
    /// Cluster, kind of step, pool.
    pub step: String,
    /// When, in domain time.
    pub time: Timestamp,
}

/// Every start that the cloud ever accepted.
pub async fn accepted(client: &Client, cloud: &str) -> Vec<Start> {
    let url = format!("{cloud}/simulator/accepted?limit=100000");
    let (_, list) = client.send("GET", &url, None).await.expect("the cloud answers");
    let start = |start: &Value| {
        let cluster = start["cluster"].as_str().expect("cluster").to_lowercase();
        Start {
            cluster: cluster.rsplit("/c").next().and_then(|number| number.parse().ok()).expect("a number"),
            step: format!("{cluster} {} {}", start["step"], start["pool"]),
            time: start["time"].as_str().and_then(|time| time.parse().ok()).expect("time"),
        }
    };
    list["value"].as_array().expect("accepted").iter().map(start).collect()
}
