//! How many members a second the whole system brings to Completed: one process, HTTP over loopback between all parts,
//! durable SQLite, simulated upgrades of zero length, no provider limits.
//!
//! ```text
//! flotta throughput --members 1000
//! ```

use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::serve::{AksArgs, ServeOptions, Simulated, start};

const FLEET: &str = "/subscriptions/s1/resourceGroups/rg/providers/Microsoft.ContainerService/fleets/fl";
const GROUPS: usize = 50;

fn fleet_file(members: usize) -> String {
    format!(
        "
subscription: s1
resourceGroup: rg
regions:
  westeurope:
    kubernetes:
      - {{ minor: '1.32', patches: [1.32.6] }}
      - {{ minor: '1.33', patches: [1.33.2] }}
    images: [AKSUbuntu-2204gen2containerd-202510.03.1]
behaviour: {{ durationScale: 0, throttling: false }}
templates:
  - count: {members}
    cluster: {{ name: 'c{{n}}', region: westeurope, version: 1.32.6, pools: [{{ name: p1, count: 1 }}] }}
"
    )
}

struct Client {
    http: reqwest::Client,
    server: String,
}

impl Client {
    async fn send(&self, method: &str, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let url = format!("{}{FLEET}{path}?api-version=2026-06-02-preview", self.server);
        let mut request = self.http.request(method.parse()?, url);
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let answer = request.send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        anyhow::ensure!(status.is_success(), "{method} {path}: {status} {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// The run's state, and how many members are not Completed.
    async fn state(&self) -> anyhow::Result<(String, usize)> {
        let run = self.send("GET", "/updateRuns/r1", None).await?;
        let status = &run["properties"]["status"];
        let groups = status["stages"][0]["groups"].as_array().into_iter().flatten();
        let members = groups.flat_map(|group| group["members"].as_array().into_iter().flatten());
        let left = members.filter(|member| member["status"]["state"] != "Completed").count();
        Ok((status["status"]["state"].as_str().unwrap_or_default().into(), left))
    }
}

/// Measure how many members a second this machine brings to Completed.
#[derive(Clone, Copy, Debug, Args)]
pub struct ThroughputArgs {
    /// Members of the run
    #[arg(long, default_value_t = 1000)]
    pub members: usize,
}

/// `flotta throughput`.
pub async fn throughput(ThroughputArgs { members }: ThroughputArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let fleet = flotta_simulator::FleetFile::parse(&fleet_file(members))?;
    let options = ServeOptions {
        listen: "127.0.0.1:0".parse()?,
        data: folder.path().into(),
        speed: 1.0,
        simulated: Some(Simulated { fleet, listen: None }),
        aks: AksArgs { unpaced: true, poll_seconds: 15.0, ..AksArgs::default() },
    };
    let running = start(options).await?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let client = Client { http, server: format!("http://{}", running.address) };
    client.send("PUT", "", Some(json!({ "location": "westeurope" }))).await?;
    let joined = stream::iter(0..members).map(|n| {
        let client = &client;
        async move {
            let id = format!(
                "/subscriptions/s1/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c{}",
                n + 1
            );
            let body = json!({ "properties": { "clusterResourceId": id, "group": format!("g{}", n % GROUPS) } });
            client.send("PUT", &format!("/members/m{n}"), Some(body)).await.map(drop)
        }
    });
    let started = Instant::now();
    let outcomes: Vec<anyhow::Result<()>> = joined.buffer_unordered(64).collect().await;
    outcomes.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
    let rate = members as f64 / started.elapsed().as_secs_f64();
    println!("{members} members registered, {rate:.0} a second");

    let groups: Vec<Value> = (0..GROUPS).map(|n| json!({ "name": format!("g{n}"), "maxConcurrency": "20" })).collect();
    let body = json!({ "properties": {
        "strategy": { "stages": [{ "name": "all", "maxConcurrency": "400", "groups": groups }] },
        "managedClusterUpdate": { "upgrade": { "type": "Full", "kubernetesVersion": "1.33.2" } },
    }});
    client.send("PUT", "/updateRuns/r1", Some(body)).await?;
    let started = Instant::now();
    client.send("POST", "/updateRuns/r1/start", None).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (state, left) = client.state().await?;
        match state.as_str() {
            "Running" => {}
            "Completed" if left == 0 => break,
            other => anyhow::bail!("the run is {other} with {left} members not completed"),
        }
    }
    let took = started.elapsed().as_secs_f64();
    println!("{members} members to Completed in {took:.2} s: {:.0} a second", members as f64 / took);
    running.shutdown().await;
    Ok(())
}
