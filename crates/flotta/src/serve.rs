//! `flotta serve`: the server, its drivers, and, where asked for, a simulated cloud in the same process.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use flotta_clock::{Anchor, Clock};
use flotta_drivers::{
    ClusterDriver,
    aks::{AksConfig, AksDriver, Reach},
    pace::Budgets,
    token::{INSTANCE_METADATA, IdentityEndpoint, Secret, TokenSource, Tokens},
    transport::http_transport,
};
use flotta_orchestrator::Orchestrator;
use flotta_server::App;
use flotta_simulator::{FleetFile, Options, Simulator};
use flotta_store::{Batch, Collection, Expect, Put, SqlStore, Store};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::simulator::{listen, loopback};

/// Run the server.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  flotta serve --data ./data
  flotta serve --data ./data --simulate fleet.yaml --speed 60
  flotta serve --data ./data --aks-endpoint https://management.azure.com \\
      --aks-auth workload-identity")]
pub struct ServeArgs {
    /// Address to listen on; loopback only, since there is no authentication yet
    #[arg(long, default_value = "127.0.0.1:8642", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Folder that keeps everything; created if it is missing
    #[arg(long, default_value = "flotta-data", value_name = "FOLDER")]
    pub data: PathBuf,
    /// Simulate the cloud that this fleet file describes, in the same process
    #[arg(long, value_name = "FLEET.yaml")]
    pub simulate: Option<PathBuf>,
    /// Simulated seconds in a second
    #[arg(long, default_value_t = 1.0, value_parser = speed, requires = "simulate")]
    pub speed: f64,
    /// Address of the simulated cloud [default: a free port of loopback]
    #[arg(long, value_name = "ADDRESS", requires = "simulate")]
    pub simulator_listen: Option<SocketAddr>,
    /// How AKS clusters are reached.
    #[command(flatten)]
    pub aks: AksArgs,
}

/// How AKS clusters are reached.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "AKS")]
pub struct AksArgs {
    /// Drive AKS clusters through this endpoint of Azure Resource Manager, or of anything that speaks its API
    #[arg(long = "aks-endpoint", value_name = "URL")]
    pub endpoint: Option<String>,
    /// Where access tokens come from; the details are read from the environment: FLOTTA_AKS_TOKEN, or AZURE_TENANT_ID,
    /// AZURE_CLIENT_ID, AZURE_CLIENT_SECRET, AZURE_FEDERATED_TOKEN_FILE, AZURE_AUTHORITY_HOST, IDENTITY_ENDPOINT,
    /// IDENTITY_HEADER
    #[arg(long = "aks-auth", value_enum, default_value_t, requires = "endpoint")]
    pub auth: Auth,
    /// Subscription that is driven; repeat for several [default: all that members name]
    #[arg(long = "aks-subscription", value_name = "ID", requires = "endpoint")]
    pub subscriptions: Vec<String>,
    /// Shortest pause between two looks at an operation, in seconds
    #[arg(long = "aks-poll-seconds", value_name = "SECONDS", default_value_t = 15.0, value_parser = pause)]
    pub poll_seconds: f64,
    /// Do not pace requests by Azure's limits: for a simulated cloud without limits
    #[arg(long = "aks-unpaced")]
    pub unpaced: bool,
}

/// Where access tokens come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// Send none: for a simulated cloud
    #[default]
    None,
    /// One token
    Token,
    /// A service principal with a secret
    ClientCredentials,
    /// A service principal that trusts a token in a file
    WorkloadIdentity,
    /// The identity of the machine
    ManagedIdentity,
}

/// Reads a speed that a clock can have.
pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.001..=100_000.0).contains(&speed) => Ok(speed),
        _ => Err("use a number from 0.001 to 100000".into()),
    }
}

fn pause(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(pause) if (0.01..=3600.0).contains(&pause) => Ok(pause),
        _ => Err("use a number from 0.01 to 3600".into()),
    }
}

/// A simulated cloud to run beside the server.
pub struct Simulated {
    /// What it is like.
    pub fleet: FleetFile,
    /// Where it listens; `None`: a free port.
    pub listen: Option<SocketAddr>,
}

/// What a server is started with.
pub struct ServeOptions {
    /// Where it listens; port 0: a free one.
    pub listen: SocketAddr,
    /// Its data folder.
    pub data: PathBuf,
    /// Simulated seconds in a second.
    pub speed: f64,
    /// The simulated cloud, if there is one.
    pub simulated: Option<Simulated>,
    /// How other AKS clusters are reached.
    pub aks: AksArgs,
}

/// A server that runs.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where the simulated cloud listens.
    pub simulator_address: Option<SocketAddr>,
    /// The simulated cloud.
    pub simulator: Option<Arc<Simulator>>,
    orchestrator: Orchestrator,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    /// Ends it in order: requests are answered, what was decided is stored.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.orchestrator.shutdown().await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// `flotta serve`.
pub async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let simulated = match &args.simulate {
        Some(path) => Some(Simulated { fleet: crate::simulator::read_fleet(path)?, listen: args.simulator_listen }),
        None => None,
    };
    let ServeArgs { listen, data, speed, aks, .. } = args;
    let running = start(ServeOptions { listen, data: data.clone(), speed, simulated, aks: aks.clone() }).await?;
    anstream::println!("flotta listens on http://{}", running.address);
    if let Some(address) = running.simulator_address {
        anstream::println!("the simulated cloud listens on http://{address}");
    }
    for (what, is) in about(&running, &data, speed, &aks) {
        anstream::println!("  {what:<9} {is}");
    }
    crate::simulator::until_told().await?;
    anstream::println!("ending in order");
    running.shutdown().await;
    Ok(())
}

/// What whoever starts a server wants to be sure of.
fn about(running: &Running, data: &Path, speed: f64, aks: &AksArgs) -> Vec<(&'static str, String)> {
    let shown = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    let mut about = vec![("data:", shown.display().to_string())];
    if speed != 1.0 {
        about.push(("speed:", format!("{speed} simulated seconds in each second")));
    }
    let simulated = running.simulator.iter().map(|cloud| format!("{} simulated", cloud.clusters().len()));
    let subscriptions = match aks.subscriptions.as_slice() {
        [] => "of every subscription".to_owned(),
        some => format!("of {}", some.join(", ")),
    };
    let real = aks.endpoint.iter().map(|endpoint| format!("AKS {subscriptions}, through {endpoint}"));
    let driven: Vec<String> = simulated.chain(real).collect();
    about.push((
        "clusters:",
        match driven.is_empty() {
            true => "none are reached: add --aks-endpoint, or --simulate to try things out".into(),
            false => driven.join("; "),
        },
    ));
    about
}

/// Starts a server.
pub async fn start(options: ServeOptions) -> anyhow::Result<Running> {
    loopback(options.listen, "there is no authentication yet, so nobody else may reach it")?;
    let store: Arc<dyn Store> = Arc::new(SqlStore::open_sqlite(&options.data).await?);
    let clock = clock(&*store, options.speed).await?;
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let mut drivers: Vec<Arc<dyn ClusterDriver>> = Vec::new();
    let (mut simulator, mut simulator_address) = (None, None);
    if let Some(simulated) = options.simulated {
        let cloud = simulate(simulated.fleet, clock, &options.data).await?;
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = listen(simulated.listen.unwrap_or(free), cloud.router(), &stop, &tasks).await?;
        drivers.push(simulated_driver(&cloud, address, clock, &options.aks)?);
        (simulator, simulator_address) = (Some(cloud), Some(address));
    }
    if let Some(endpoint) = &options.aks.endpoint {
        drivers.push(aks_driver(endpoint, clock, &options.aks)?);
    }
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {}; choose another with --listen", options.listen))?;
    let orchestrator = Orchestrator::open(Arc::clone(&store), drivers, clock).await?;
    let router = flotta_server::router(App::new(store, orchestrator.clone()));
    let address = crate::simulator::serve_on(listener, router, &stop, &tasks)?;
    Ok(Running { address, simulator_address, simulator, orchestrator, stop, tasks })
}

async fn simulate(fleet: FleetFile, clock: Clock, data: &Path) -> anyhow::Result<Arc<Simulator>> {
    Ok(Simulator::new(fleet, clock, Options { data: Some(data.join("simulator")) }).await?)
}

fn simulated_driver(
    cloud: &Simulator,
    address: SocketAddr,
    clock: Clock,
    args: &AksArgs,
) -> anyhow::Result<Arc<dyn ClusterDriver>> {
    let ids: BTreeSet<String> = cloud.clusters().iter().map(|cluster| cluster.id.key().to_owned()).collect();
    let config = config(format!("http://{address}"), Reach::Clusters(ids), args);
    driver(config, TokenSource::None, clock)
}

fn aks_driver(endpoint: &str, clock: Clock, args: &AksArgs) -> anyhow::Result<Arc<dyn ClusterDriver>> {
    let reach = match args.subscriptions.is_empty() {
        true => Reach::Everything,
        false => Reach::Subscriptions(args.subscriptions.iter().map(|id| id.to_ascii_lowercase()).collect()),
    };
    driver(config(endpoint.to_owned(), reach, args), token_source(args.auth)?, clock)
}

fn config(endpoint: String, reach: Reach, args: &AksArgs) -> AksConfig {
    let mut config = AksConfig::new(endpoint, reach);
    config.poll_every = Duration::from_secs_f64(args.poll_seconds);
    config.settle_every = config.settle_every.min(config.poll_every);
    if args.unpaced {
        config.budgets = Budgets::unlimited();
    }
    config
}

fn driver(config: AksConfig, source: TokenSource, clock: Clock) -> anyhow::Result<Arc<dyn ClusterDriver>> {
    let transport = http_transport()?;
    let tokens = Tokens::new(source, config.endpoint.clone(), transport.clone());
    Ok(Arc::new(AksDriver::new(config, transport, tokens, clock)?))
}

/// Credentials come from the environment alone: a command line can be read by others.
fn token_source(auth: Auth) -> anyhow::Result<TokenSource> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let need = |name: &str| variable(name).with_context(|| format!("environment variable {name} is not set"));
    let authority = || variable("AZURE_AUTHORITY_HOST").unwrap_or_else(|| "https://login.microsoftonline.com".into());
    Ok(match auth {
        Auth::None => TokenSource::None,
        Auth::Token => TokenSource::Static(Secret::new(need("FLOTTA_AKS_TOKEN")?)),
        Auth::ClientCredentials => TokenSource::ClientCredentials {
            authority: authority(),
            tenant: need("AZURE_TENANT_ID")?,
            client_id: need("AZURE_CLIENT_ID")?,
            secret: Secret::new(need("AZURE_CLIENT_SECRET")?),
        },
        Auth::WorkloadIdentity => TokenSource::WorkloadIdentity {
            authority: authority(),
            tenant: need("AZURE_TENANT_ID")?,
            client_id: need("AZURE_CLIENT_ID")?,
            token_file: need("AZURE_FEDERATED_TOKEN_FILE")?.into(),
        },
        Auth::ManagedIdentity => TokenSource::ManagedIdentity {
            client_id: variable("AZURE_CLIENT_ID"),
            endpoint: match (variable("IDENTITY_ENDPOINT"), variable("IDENTITY_HEADER")) {
                (Some(url), Some(header)) => IdentityEndpoint::Header { url, header: Secret::new(header) },
                _ => IdentityEndpoint::Metadata(INSTANCE_METADATA.into()),
            },
        },
    })
}

/// Where the domain clock stood, and when.
#[derive(Serialize, Deserialize)]
struct ClockDoc {
    wall: Timestamp,
    anchor: Anchor,
}

const CLOCK: &str = "clock";

/// The domain clock: the system's, unless it was ever scaled in this data folder. Then it goes on from where it would
/// be now, so that time never goes back.
async fn clock(store: &dyn Store, speed: f64) -> anyhow::Result<Clock> {
    let wall = Timestamp::now();
    let before: Option<ClockDoc> = match store.get(Collection::Meta, CLOCK).await? {
        Some(document) => Some(serde_json::from_str(&document.body).context("the stored clock cannot be read")?),
        None => None,
    };
    let domain = match &before {
        None if speed == 1.0 => return Ok(Clock::system()),
        None => wall,
        Some(ClockDoc { wall: then, anchor }) => {
            let passed = wall.duration_since(*then).as_secs_f64().max(0.0) * anchor.speed;
            anchor.domain.saturating_add(SignedDuration::from_secs_f64(passed))?
        }
    };
    let anchor = Anchor { domain, speed };
    let body = serde_json::to_string(&ClockDoc { wall, anchor })?;
    let (key, parent, etag) = (CLOCK.to_owned(), String::new(), wall.to_string());
    let put = Put { collection: Collection::Meta, key, parent, body, etag, expect: Expect::Any };
    store.commit(Batch { puts: vec![put], ..Batch::default() }).await?;
    Ok(Clock::scaled(anchor))
}
