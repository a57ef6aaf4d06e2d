//! flotta: upgrades fleets of Kubernetes clusters safely. This file only wires.

mod apply;
mod check;
mod cli;
mod client;
mod commands;
mod demo;
mod failure;
mod fields;
mod gates;
mod output;
mod retry;
mod serve;
mod simulator;
mod throughput;
mod watch;
mod why;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use failure::{Failure, Kind};

/// Small things are allocated and freed all the time here, by many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let command = Cli::parse().command;
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Kind::Failed, "cannot start", error.to_string()))
        .and_then(|runtime| runtime.block_on(carry_out(command)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            anstream::eprintln!("{failure:#}");
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

async fn carry_out(command: Command) -> Result<(), Failure> {
    let serving = |error: anyhow::Error| {
        let other = |error| Failure::new(Kind::Failed, "cannot serve", format!("{error:#}"));
        error.downcast().unwrap_or_else(other)
    };
    match command {
        Command::Demo(args) => demo::demo(args).await,
        Command::Serve(args) => serve::serve(args).await.map_err(serving),
        Command::Simulator(args) => simulator::simulator(args).await.map_err(serving),
        Command::Throughput(args) => throughput::throughput(args).await.map_err(serving),
        Command::Fleet(command) => commands::fleet(command).await,
        Command::Member(command) => commands::member(command).await,
        Command::Strategy(command) => commands::strategy(command).await,
        Command::Run(command) => commands::run(command).await,
        Command::Gate(command) => gates::gate(command).await,
        Command::Apply(command) => commands::apply(command).await,
        Command::Context(command) => commands::context(command),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "flotta", &mut std::io::stdout());
            Ok(())
        }
    }
}
