//! flotta.

mod serve;
mod simulator;

use clap::Parser;

#[derive(Parser)]
enum Cli {
    Serve(serve::ServeArgs),
    Simulator(simulator::SimulatorArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match Cli::parse() {
        Cli::Serve(args) => serve::serve(args).await,
        Cli::Simulator(args) => simulator::simulator(args).await,
    }
}
