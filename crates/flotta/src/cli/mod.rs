//! The command line: what can be said, and how it is explained. Nothing here does anything.

mod contexts;
mod gates;
mod resources;
mod runs;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use flotta_model::{FleetName, Name};

pub use self::{
    contexts::{ContextCommand, ContextVerb},
    gates::{GateCommand, GateVerb, Which},
    resources::{FleetCommand, FleetVerb, MemberCommand, MemberVerb, StrategyCommand, StrategyVerb},
    runs::{NewRun, Part, Retry, RunCommand, RunVerb, Skip, word},
};

use crate::{demo::DemoArgs, output::Format, serve::ServeArgs, simulator::SimulatorArgs, throughput::ThroughputArgs};

/// The version of the API that is spoken where none is named.
pub const API_VERSION: &str = "2026-06-02-preview";

const EXIT_CODES: &str = "\
Exit codes:
  0  it worked
  1  it failed (such as a watched run that ended Failed or Stopped, or a check that found errors)
  2  the command line or a file is wrong
  3  the server refused it
  4  the server cannot be reached
  5  a check found warnings, and no errors

Try `flotta demo` first: a simulated fleet is upgraded before your eyes in about a minute.";

/// Upgrades fleets of Kubernetes clusters safely: stage by stage, inside limits, and it can always say why a cluster is
/// not moving.
#[derive(Debug, Parser)]
#[command(name = "flotta", version, about, max_term_width = 110, after_help = EXIT_CODES)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a whole rollout on a simulated fleet, in about a minute
    Demo(DemoArgs),
    /// Run the server
    Serve(ServeArgs),
    /// Run a simulated cloud alone
    Simulator(SimulatorArgs),
    /// Measure how many members a second this machine brings to Completed
    #[command(hide = true)]
    Throughput(ThroughputArgs),
    /// Fleets: clusters that are upgraded together
    Fleet(FleetCommand),
    /// Members: the clusters of a fleet
    Member(MemberCommand),
    /// Update strategies: the order of stages and groups, with their limits
    Strategy(StrategyCommand),
    /// Update runs: one rollout of a version or node image
    Run(RunCommand),
    /// Gates: what runs wait for people or a time at
    Gate(GateCommand),
    /// Create or update whatever a file describes
    Apply(ApplyCommand),
    /// Remember servers and fleets, so that nobody types them twice
    Context(ContextCommand),
    /// Write a completion script for a shell
    #[command(hide = true)]
    Completion {
        /// The shell.
        shell: Shell,
    },
}

/// Which server is asked, about what, and how the answer is shown.
#[derive(Clone, Debug, Default, Args)]
pub struct Connection {
    /// Server to ask [default: the context's, else http://127.0.0.1:8642]
    #[arg(long, global = true, env = "FLOTTA_SERVER", value_name = "URL", help_heading = CONNECTION, hide_env_values = true)]
    pub server: Option<String>,
    /// Subscription id [default: the context's, else all zeros]
    #[arg(long, global = true, env = "FLOTTA_SUBSCRIPTION", value_name = "ID", help_heading = CONNECTION, hide_env_values = true)]
    pub subscription: Option<String>,
    /// Resource group [default: the context's, else flotta]
    #[arg(short = 'g', long, global = true, env = "FLOTTA_RESOURCE_GROUP", value_name = "NAME", help_heading = CONNECTION, hide_env_values = true)]
    pub resource_group: Option<String>,
    /// Fleet [default: the context's]
    #[arg(long, global = true, env = "FLOTTA_FLEET", value_name = "NAME", help_heading = CONNECTION, hide_env_values = true)]
    pub fleet: Option<FleetName>,
    /// Context to take the rest from [default: the one in use, else the only one]
    #[arg(long, global = true, env = "FLOTTA_CONTEXT", value_name = "NAME", help_heading = CONNECTION, hide_env_values = true)]
    pub context: Option<Name>,
    /// Who you are [default: $USER, else anonymous]
    #[arg(long = "as", global = true, env = "FLOTTA_USER", value_name = "NAME", value_parser = user, help_heading = CONNECTION, hide_env_values = true)]
    pub user: Option<String>,
    /// Version of the API to speak
    #[arg(long, global = true, value_name = "VERSION", default_value = API_VERSION, help_heading = CONNECTION)]
    pub api_version: String,
    /// How to show the answer: table, json or yaml
    #[arg(short, long, global = true, value_enum, default_value_t, hide_possible_values = true, value_name = "FORMAT", help_heading = CONNECTION)]
    pub output: Format,
}

const CONNECTION: &str = "Connection and output";

/// The longest name of a user, as the server takes it.
const LONGEST_USER: usize = 100;

/// A name that a header can carry.
pub fn user(text: &str) -> Result<String, String> {
    let visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match text.trim() {
        name if visible && (1..=LONGEST_USER).contains(&name.len()) => Ok(name.to_owned()),
        _ => Err(format!("use 1 to {LONGEST_USER} visible ASCII characters, such as ann@example.com")),
    }
}

/// How a write is made.
#[derive(Clone, Debug, Default, Args)]
pub struct Write {
    /// Write only if the resource still has this etag; `*` for "it must exist"
    #[arg(long, value_name = "ETAG")]
    pub if_match: Option<String>,
    /// Do not wait for the operation to end
    #[arg(long)]
    pub no_wait: bool,
}

/// `key=value`.
pub type Pair = (String, String);

fn pair(text: &str) -> Result<Pair, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write it as key=value, several separated by commas".into()),
    }
}

/// Files of resources.
#[derive(Debug, Args)]
#[command(
    after_help = "A file holds one or many documents, YAML or JSON. What is there already and equal is left alone.

  kind: UpdateStrategy        # Fleet, FleetMember, UpdateStrategy or UpdateRun, or ARM's `type:`
  name: careful
  fleet: shop                 # may be left out: the context's, or the only Fleet of the file
  properties:
    strategy:
      stages:
        - {name: canary, groups: [{name: canary}]}

Examples:
  flotta apply -f fleet.yaml
  cat fleet.yaml strategy.yaml | flotta apply -f -"
)]
pub struct ApplyCommand {
    /// Where.
    #[command(flatten)]
    pub connection: Connection,
    /// File to read; `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Do not wait for operations to end
    #[arg(long)]
    pub no_wait: bool,
}
