//! `flotta simulator`: the simulated cloud alone; and how anything of ours listens.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use axum::serve::ListenerExt;
use clap::Args;
use flotta_clock::{Anchor, Clock};
use flotta_simulator::{ClusterSummary, FleetFile, FleetFileError, Options, Simulator};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    apply::first_line,
    client::resources::Kind,
    failure::{Failure, Kind as Blame},
    output::{Format, document, say},
};

/// Run a simulated cloud alone.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  flotta simulator --fleet fleet.yaml --listen 127.0.0.1:8643
  flotta serve --data ./data --aks-endpoint http://127.0.0.1:8643
  flotta simulator --fleet fleet.yaml --print-members | flotta apply --fleet shop -f -")]
pub struct SimulatorArgs {
    /// Address to listen on; loopback only
    #[arg(long, default_value = "127.0.0.1:8643", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// What the cloud is like
    #[arg(long, value_name = "FLEET.yaml")]
    pub fleet: PathBuf,
    /// Folder that keeps its state [default: memory]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Simulated seconds in a second, for callers with a clock of the same speed; `flotta serve` has one only where it
    /// simulates the cloud itself
    #[arg(long, default_value_t = 1.0, value_parser = crate::serve::speed)]
    pub speed: f64,
    /// Print the clusters as members, for `flotta apply -f -`, instead of running
    #[arg(long)]
    pub print_members: bool,
}

/// `flotta simulator`.
pub async fn simulator(args: SimulatorArgs) -> anyhow::Result<()> {
    if args.print_members {
        let members = member_documents(read_fleet(&args.fleet)?).await?;
        return Ok(say(&document(Format::Yaml, &members)?)?);
    }
    loopback(args.listen, "a simulated cloud is for this machine alone")?;
    let clock = match args.speed {
        1.0 => Clock::system(),
        speed => Clock::scaled(Anchor { domain: Timestamp::now(), speed }),
    };
    let cloud = Simulator::new(read_fleet(&args.fleet)?, clock, Options { data: args.data }).await?;
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let address = listen(args.listen, cloud.router(), &stop, &tasks).await?;
    anstream::println!("the simulated cloud listens on http://{address}");
    until_told().await?;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// The clusters as the fleet file wants them to join, in the shape of `flotta apply`.
async fn member_documents(fleet: FleetFile) -> anyhow::Result<Value> {
    let cloud = Simulator::new(fleet, Clock::system(), Options::default()).await?;
    let clusters = cloud.clusters();
    let documents = clusters.iter().map(|cluster| {
        json!({"kind": Kind::Member.word(), "name": cluster.member, "properties": member_properties(cluster)})
    });
    Ok(documents.collect())
}

/// The properties of the member that a cluster is to be.
pub fn member_properties(cluster: &ClusterSummary) -> Value {
    let mut properties = json!({"clusterResourceId": cluster.id.as_str(), "labels": cluster.labels});
    if let Some(group) = &cluster.group {
        properties["group"] = group.as_str().into();
    }
    properties
}

/// Reads a fleet file.
pub fn read_fleet(path: &Path) -> anyhow::Result<FleetFile> {
    let wrong = |what: &str, why: String| Failure::new(Blame::Usage, format!("{what} {}", path.display()), why);
    let text = std::fs::read_to_string(path).map_err(|error| wrong("cannot read", error.to_string()))?;
    Ok(FleetFile::parse(&text).map_err(|error| {
        let (FleetFileError::Shape { path: field, reason } | FleetFileError::Meaning { path: field, reason }) = error;
        // A text that is no YAML ends at a place without a name.
        let field = field.trim_end_matches(['.', '?']);
        Failure {
            field: (!field.is_empty()).then(|| field.into()),
            ..wrong("cannot use", first_line(&reason).to_owned())
        }
    })?)
}

/// Refuses to listen where others can call.
pub fn loopback(address: SocketAddr, why: &str) -> Result<(), Failure> {
    match address.ip().is_loopback() {
        true => Ok(()),
        false => Err(Failure::new(Blame::Usage, format!("refusing to listen on {address}"), why)
            .hint(format!("use an address of loopback, such as 127.0.0.1:{}", address.port()))),
    }
}

/// How long requests under way are waited for at the end: half a request can take for ever (wall time).
const PATIENCE: Duration = Duration::from_secs(5);

/// Listens, and serves until told to stop.
pub async fn listen(
    address: SocketAddr,
    router: axum::Router,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    serve_on(listener, router, stop, tasks)
}

/// Serves until told to stop.
pub fn serve_on(
    listener: TcpListener,
    router: axum::Router,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let stop = stop.clone();
    // Answers are small and waited for.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    tasks.spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        let patience = async {
            stop.cancelled().await;
            tokio::time::sleep(PATIENCE).await;
        };
        tokio::select! {
            served = served => if let Err(error) = served {
                tracing::error!(%error, "serving ended badly");
            },
            () = patience => tracing::warn!("ending with requests that did not come to their end"),
        }
    });
    Ok(address)
}

/// Returns when somebody wants the process to end.
pub async fn until_told() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, net::TcpStream};

    use super::*;

    #[tokio::test]
    async fn half_a_request_does_not_keep_the_process_from_ending() {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let router = axum::Router::new().route("/", axum::routing::get(|| async { "ok" }));
        let address = listen(SocketAddr::from(([127, 0, 0, 1], 0)), router, &stop, &tasks).await.expect("address");
        let mut client = TcpStream::connect(address).await.expect("connected");
        client.write_all(b"GET / HTTP/1.1\r\nHost: ").await.expect("sent");
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel();
        tasks.close();
        tokio::time::timeout(2 * PATIENCE, tasks.wait()).await.expect("ended");
    }

    #[tokio::test]
    async fn members_are_printed_as_apply_takes_them() {
        let fleet = FleetFile::parse(include_str!("../../simulator/fleets/thousand.yaml")).expect("fleet file");
        let printed = document(Format::Yaml, &member_documents(fleet).await.expect("members")).expect("yaml");
        let wanted = crate::apply::parse(&printed).expect("parse");
        assert_eq!(wanted.len(), 1000);
        assert!(wanted.iter().all(|wanted| wanted.kind == Kind::Member));
        assert_eq!(wanted[20].body["properties"]["group"], "group-02");
        assert_eq!(wanted[20].body["properties"]["labels"], json!({"env": "production", "wave": "1"}));
    }

    #[test]
    fn a_wrong_fleet_file_is_the_fault_of_who_wrote_it() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("fleet.yaml");
        assert_eq!(usage(&path).cause.lines().count(), 1, "it is missing");
        std::fs::write(&path, "regions: {}\nclustres: []\n").expect("write");
        assert!(usage(&path).cause.starts_with("line 2 column 1: unknown field `clustres`"));
        std::fs::write(&path, "seed: x\n").expect("write");
        assert_eq!(usage(&path).field.as_deref(), Some("seed"));
    }

    fn usage(path: &Path) -> Failure {
        let failure: Failure = read_fleet(path).expect_err("a wrong file").downcast().expect("a failure");
        assert_eq!(failure.kind, Blame::Usage);
        failure
    }
}
