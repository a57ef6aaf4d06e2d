//! `flotta simulator`: the simulated cloud alone; and how anything of ours listens.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use axum::serve::ListenerExt;
use clap::Args;
use flotta_clock::{Anchor, Clock};
use flotta_simulator::{FleetFile, Options, Simulator};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Run a simulated cloud alone.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  flotta simulator --fleet fleet.yaml --listen 127.0.0.1:8643
  flotta serve --data ./data --aks-endpoint http://127.0.0.1:8643")]
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
    /// Simulated seconds in a second; callers must have a clock of the same speed
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
}

/// `flotta simulator`.
pub async fn simulator(args: SimulatorArgs) -> anyhow::Result<()> {
    if !args.listen.ip().is_loopback() {
        bail!("refusing to listen on {}: a simulated cloud is for this machine, such as 127.0.0.1", args.listen);
    }
    let clock = match args.speed {
        1.0 => Clock::system(),
        speed if speed > 0.0 => Clock::scaled(Anchor { domain: Timestamp::now(), speed }),
        speed => bail!("--speed {speed}: use a number above 0"),
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

/// Reads a fleet file.
pub fn read_fleet(path: &Path) -> anyhow::Result<FleetFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    FleetFile::parse(&text).with_context(|| format!("in {}", path.display()))
}

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
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, "serving ended badly");
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
