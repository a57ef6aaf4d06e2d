//! `flotta demo`: a fleet of simulated clusters is upgraded through the API, before the eyes of the user.
//!
//! Server and simulated cloud run in this process; everything that is done to them goes through HTTP, as any client
//! would do it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use flotta_model::KubernetesVersion;
use flotta_simulator::{
    ClusterSummary, FleetFile,
    fleet::{Region, SupportPlan},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    cli::{Connection, Write},
    client::{
        context::{Config, resolve},
        http::{Api, Request},
        resources::{Kind, strategy_body},
    },
    failure::{Failure, Kind as Blame},
    output::say,
    serve::{AksArgs, Running, ServeOptions, Simulated, start},
    simulator::{member_properties, until_told},
    watch,
};

/// The fleet of the demo.
const FLEET: &str = include_str!("../../simulator/fleets/demo.yaml");
const FLEET_NAME: &str = "demo";
const STRATEGY: &str = "careful";
/// When the maintenance windows of the demo's clusters open: a while after production has begun.
const WINDOW_OPENS_AFTER: SignedDuration = SignedDuration::from_mins(150);
/// How long a gate is left for people to see, in simulated seconds.
const SEEN_FOR_SECONDS: f64 = 600.0;
/// The most runs looked for in a data folder that was used before.
const MOST_RUNS: u32 = 100;

/// Show a whole rollout on a simulated fleet.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Nothing outside this machine is touched: the clusters are simulated, in this process.

Examples:
  flotta demo
  flotta demo --speed 30          # slower, to look closely
  flotta demo --keep              # and keep the server, to try commands on it")]
pub struct DemoArgs {
    /// Simulated seconds in a second
    #[arg(long, default_value_t = 200.0, value_parser = speed)]
    pub speed: f64,
    /// Keep the server up afterwards, for commands of your own
    #[arg(long)]
    pub keep: bool,
    /// Folder that keeps everything [default: a temporary one]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.1..=10_000.0).contains(&speed) => Ok(speed),
        _ => Err("use a number from 0.1 to 10000".into()),
    }
}

/// `flotta demo`.
pub async fn demo(args: DemoArgs) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Blame::Failed, "cannot make a temporary folder", error.to_string());
    let temporary = tempfile::tempdir().map_err(failed)?;
    let data = args.data.clone().unwrap_or_else(|| temporary.path().to_owned());
    let mut fleet = FleetFile::parse(FLEET)
        .map_err(|error| Failure::new(Blame::Failed, "the demo's own fleet file is wrong", error.to_string()))?;
    open_windows_soon(&mut fleet, Timestamp::now());
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let running = serve(&fleet, &data, args.speed, free).await?;
    let clusters = running.simulator.as_ref().map(|cloud| cloud.clusters()).unwrap_or_default();
    let shown = tokio::select! {
        shown = show(&fleet, &clusters, running.address, args.speed) => shown,
        told = until_told() => told.map_err(|error| Failure::new(Blame::Failed, "cannot wait for signals", error.to_string()))
            .and(Err(Failure::new(Blame::Failed, "the demo was ended before the run was", "somebody wants the process to end"))),
    };
    let address = running.address;
    running.shutdown().await;
    let target = shown?;
    match args.keep {
        true => keep(&fleet, &data, target, address).await,
        false => say("\nTry `flotta demo --keep` next: it leaves the server up, for commands of your own."),
    }
}

async fn serve(fleet: &FleetFile, data: &Path, speed: f64, listen: SocketAddr) -> Result<Running, Failure> {
    let simulated = Simulated { fleet: fleet.clone(), listen: None };
    let options = ServeOptions {
        listen,
        data: data.to_owned(),
        speed,
        simulated: Some(simulated),
        aks: AksArgs { poll_seconds: 15.0, ..AksArgs::default() },
    };
    start(options)
        .await
        .map_err(|error| Failure::new(Blame::Failed, "cannot start the demo's server", format!("{error:#}")))
}

/// Starts the server again, in the same place and at normal speed, and says what moves something now: the cluster that
/// failed may go on.
async fn keep(fleet: &FleetFile, data: &Path, target: KubernetesVersion, address: SocketAddr) -> Result<(), Failure> {
    let running = serve(fleet, data, 1.0, address).await?;
    say(&format!(
        "
The server stays up at http://{address}, at normal speed now. Try, in another terminal:
  export FLOTTA_SERVER=http://{address} FLOTTA_FLEET={FLEET_NAME}
  flotta run create again --type Full --kubernetes-version {target} --strategy {STRATEGY} --start
  flotta run watch again          # the cluster that failed gets its second attempt
  flotta strategy show {STRATEGY} -o yaml
  flotta member list
Ctrl-C ends it."
    ))?;
    let told = until_told().await;
    running.shutdown().await;
    told.map_err(|error| Failure::new(Blame::Failed, "cannot wait for signals", error.to_string()))
}

/// The demo itself, as a client of the server: the version that everything went to.
async fn show(
    fleet: &FleetFile,
    clusters: &[ClusterSummary],
    address: SocketAddr,
    speed: f64,
) -> Result<KubernetesVersion, Failure> {
    let api = Api::new(resolve(&connection(address)?, &Config::default())?)?;
    let target = newest_legal(fleet, clusters).ok_or_else(|| {
        Failure::new(Blame::Failed, "the demo has no version to go to", "no region offers a newer one")
    })?;
    let (count, regions) = (clusters.len(), fleet.regions.len());
    say(&format!("A simulated cloud: {count} clusters in {regions} regions; {speed} seconds pass in each second."))?;
    api.put(Kind::Fleet, FLEET_NAME, &json!({"location": "local", "properties": {}}), &Write::default()).await?;
    join(&api, clusters).await?;
    say(&format!("Fleet '{FLEET_NAME}': all {count} clusters joined it as members."))?;
    api.put(Kind::Strategy, STRATEGY, &strategy_body(strategy(clusters)), &Write::default()).await?;
    say(&format!("Strategy '{STRATEGY}': canary, staging, production; limits on what moves and what may fail."))?;
    let run = start_run(&api, target).await?;
    say(&format!(
        "Run '{run}': everything to Kubernetes {target}. One cluster will fail on the way, production waits for an
approval, and some clusters may only be changed inside a maintenance window that is closed at first.\n"
    ))?;
    // Somebody has to approve; here the demo does, after a while.
    let approval = approve(&api, &run, speed);
    let (watched, approved) =
        tokio::join!(watch::watch(&api, &run, Duration::from_millis(300), watch::Style::Auto), approval);
    watched?;
    if approved? {
        say("\nThe gate before production was approved by the demo itself; `flotta gate approve` does it by hand.")?;
    }
    Ok(target)
}

/// Lets every maintenance window of the demo's clusters open a while after it begins, whatever the time of day.
fn open_windows_soon(fleet: &mut FleetFile, now: Timestamp) {
    let opens = (now + WINDOW_OPENS_AFTER).strftime("%H:%M").to_string();
    for maintenance in fleet.clusters.iter_mut().flat_map(|cluster| cluster.maintenance.values_mut()) {
        if let Some(window) = maintenance.pointer_mut("/maintenanceWindow") {
            window["utcOffset"] = "+00:00".into();
            window["startTime"] = opens.clone().into();
        }
    }
}

/// Waits for the run's gate, lets people see it for some minutes of simulated time, and approves it. Answers whether there
/// was one before the run ended.
async fn approve(api: &Api, run: &str, speed: f64) -> Result<bool, Failure> {
    let pause = Duration::from_secs_f64(SEEN_FOR_SECONDS / speed);
    loop {
        let shown = api.get(Kind::Run, run).await?;
        if let Some(gate) = pending_gate(&shown) {
            tokio::time::sleep(pause).await;
            let body = json!({"properties": {"state": "Completed", "comment": "staging looks good"}});
            let mut url = api.target.resource_url(Kind::Run, run)?;
            url.set_path(gate);
            let request =
                Request { body: Some(&body), ..Request::new("approve the gate", reqwest::Method::PATCH, url) };
            api.send(request).await?;
            return Ok(true);
        }
        let state = shown.pointer("/properties/status/status/state").and_then(Value::as_str);
        if !matches!(state, Some("NotStarted" | "Running" | "Pending")) {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The id of a gate before a stage that is waited for.
fn pending_gate(run: &Value) -> Option<&str> {
    let stages = run.pointer("/properties/status/stages")?.as_array()?;
    let gates = stages.iter().filter_map(|stage| stage["beforeGates"].as_array()).flatten();
    let mut pending = gates.filter(|gate| gate["status"]["state"] == "Pending");
    pending.find_map(|gate| gate["gateId"].as_str())
}

fn connection(address: SocketAddr) -> Result<Connection, Failure> {
    let wrong =
        |error: flotta_model::name::NameError| Failure::new(Blame::Failed, "the demo's fleet", error.to_string());
    Ok(Connection {
        server: Some(format!("http://{address}")),
        fleet: Some(FLEET_NAME.parse().map_err(wrong)?),
        api_version: crate::cli::API_VERSION.into(),
        ..Connection::default()
    })
}

/// Lets every simulated cluster join, one after the other: groups take their members in that order.
async fn join(api: &Api, clusters: &[ClusterSummary]) -> Result<(), Failure> {
    for cluster in clusters {
        let body = json!({"properties": member_properties(cluster)});
        api.put(Kind::Member, &cluster.member, &body, &Write::default()).await?;
    }
    Ok(())
}

/// Canary, staging, production: each with the groups whose names begin so.
fn strategy(clusters: &[ClusterSummary]) -> Value {
    let groups = |prefix: &str, at_once: &str| {
        let all = clusters.iter().filter_map(|cluster| cluster.group.as_deref());
        let mut names: Vec<&str> = all.filter(|group| group.starts_with(prefix)).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| json!({"name": name, "maxConcurrency": at_once})).collect::<Vec<_>>()
    };
    json!({"stages": [
        {"name": "canary", "groups": groups("canary-", "1"), "maxAllowedFailures": "0", "afterStageWaitInSeconds": 900},
        {"name": "staging", "groups": groups("staging-", "50%"), "maxConcurrency": "5", "maxAllowedFailures": "1",
         "afterStageWaitInSeconds": 900},
        {"name": "production", "groups": groups("prod-", "50%"), "maxConcurrency": "8", "maxAllowedFailures": "10%",
         "beforeGates": [{"type": "Approval", "displayName": "go to production"}]},
    ]})
}

/// The newest version that every region has, no more than one minor above any cluster.
fn newest_legal(fleet: &FleetFile, clusters: &[ClusterSummary]) -> Option<KubernetesVersion> {
    let offers = |region: &Region| -> Vec<KubernetesVersion> {
        let general = region.kubernetes.iter().filter(|minor| !minor.preview);
        let general = general.filter(|minor| minor.support_plan.contains(&SupportPlan::KubernetesOfficial));
        general.flat_map(|minor| minor.patches.iter().map(|patch| *patch.get())).collect()
    };
    let oldest = clusters.iter().map(|cluster| cluster.version).min()?;
    let regions: Vec<Vec<KubernetesVersion>> = fleet.regions.values().map(offers).collect();
    let everywhere = regions.first()?.iter().filter(|version| regions.iter().all(|offers| offers.contains(version)));
    everywhere.filter(|version| version.minor <= oldest.minor + 1).max().copied()
}

/// Creates and starts a run under the first name that is free.
async fn start_run(api: &Api, target: KubernetesVersion) -> Result<String, Failure> {
    let body = json!({"properties": {
        "updateStrategyId": api.target.strategy_id(STRATEGY)?,
        "managedClusterUpdate": {
            "upgrade": {"type": "Full", "kubernetesVersion": target.to_string()},
            "nodeImageSelection": {"type": "Latest"},
        },
    }});
    let first = format!("to-{}", target.to_string().replace('.', "-"));
    for number in 1..=MOST_RUNS {
        let name = if number == 1 { first.clone() } else { format!("{first}-{number}") };
        let url = api.target.resource_url(Kind::Run, &name)?;
        if api.find("look for a free name", url).await?.is_none() {
            api.put(Kind::Run, &name, &body, &Write::default()).await?;
            api.act(Kind::Run, &name, "start", None, &Write::default()).await?;
            return Ok(name);
        }
    }
    Err(Failure::new(Blame::Failed, "cannot name a run", format!("the folder has {MOST_RUNS} runs already"))
        .hint("name another folder with --data"))
}

#[cfg(test)]
mod tests {
    use flotta_clock::Clock;
    use flotta_simulator::{Options, Simulator};

    use super::*;

    #[tokio::test]
    async fn the_strategy_covers_every_group_and_the_target_is_legal_for_every_cluster() {
        let fleet = FleetFile::parse(FLEET).expect("fleet file");
        let cloud = Simulator::new(fleet.clone(), Clock::system(), Options::default()).await.expect("simulator");
        let clusters = cloud.clusters();
        let strategy = strategy(&clusters).to_string();
        for cluster in &clusters {
            let group = cluster.group.as_deref().expect("group");
            assert!(strategy.contains(&format!("\"{group}\"")), "{group} is in no stage");
        }
        let target = newest_legal(&fleet, &clusters).expect("target");
        assert_eq!(target, KubernetesVersion::new(1, 33, 3));
        assert!(clusters.iter().all(|cluster| cluster.version < target && cluster.version.minor + 1 >= target.minor));
    }
}
