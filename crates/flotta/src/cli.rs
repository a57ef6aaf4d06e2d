//! The command line: what can be said, and how it is explained. Nothing here does anything.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use flotta_model::{ClusterId, FleetName, Name};

use crate::{demo::DemoArgs, output::Format, serve::ServeArgs, simulator::SimulatorArgs, throughput::ThroughputArgs};

/// The version of the API that is spoken where none is named.
pub const API_VERSION: &str = "2026-06-02-preview";

const EXIT_CODES: &str = "\
Exit codes:
  0  it worked
  1  it failed (such as a watched run that ended Failed or Stopped)
  2  the command line or a file is wrong
  3  the server refused it
  4  the server cannot be reached

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
    /// Version of the API to speak
    #[arg(long, global = true, value_name = "VERSION", default_value = API_VERSION, help_heading = CONNECTION)]
    pub api_version: String,
    /// How to show the answer: table, json or yaml
    #[arg(short, long, global = true, value_enum, default_value_t, hide_possible_values = true, value_name = "FORMAT", help_heading = CONNECTION)]
    pub output: Format,
}

const CONNECTION: &str = "Connection and output";

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

/// Fleets.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flotta fleet create shop --location westeurope --tags team=platform,env=prod
  flotta fleet list -o yaml")]
pub struct FleetCommand {
    /// Where.
    #[command(flatten)]
    pub connection: Connection,
    /// What.
    #[command(subcommand)]
    pub verb: FleetVerb,
}

/// What to do with fleets.
#[derive(Debug, Subcommand)]
pub enum FleetVerb {
    /// Create a fleet, or update the one of that name
    #[command(after_help = "Example:\n  flotta fleet create shop --location westeurope --tags team=platform")]
    Create {
        /// The fleet.
        name: FleetName,
        /// Region that the fleet is recorded in; its clusters may be anywhere
        #[arg(long, default_value = "local")]
        location: String,
        /// Tags, as key=value
        #[arg(long, value_parser = pair, value_delimiter = ',', value_name = "KEY=VALUE,…")]
        tags: Vec<Pair>,
        /// How.
        #[command(flatten)]
        write: Write,
    },
    /// Show a fleet
    Show {
        /// The fleet [default: that of the context]
        name: Option<FleetName>,
    },
    /// List the fleets of the resource group
    List,
    /// Delete a fleet with its members, strategies and runs
    Delete {
        /// The fleet.
        name: FleetName,
        /// How.
        #[command(flatten)]
        write: Write,
    },
}

/// Members.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flotta member create shop-eu-1 --group eu --labels env=prod,region=eu \\
      --cluster-id /subscriptions/S/resourceGroups/G/providers/Microsoft.ContainerService/managedClusters/shop-eu-1
  flotta member update shop-eu-1 --group canary
  flotta member list")]
pub struct MemberCommand {
    /// Where.
    #[command(flatten)]
    pub connection: Connection,
    /// What.
    #[command(subcommand)]
    pub verb: MemberVerb,
}

/// What to do with members.
#[derive(Debug, Subcommand)]
pub enum MemberVerb {
    /// Let a cluster join the fleet
    Create {
        /// The member.
        name: Name,
        /// ARM id of the cluster
        #[arg(long, value_name = "ID")]
        cluster_id: ClusterId,
        /// Update group, for strategies that name groups
        #[arg(long)]
        group: Option<Name>,
        /// Labels, as key=value, for strategies that select by label
        #[arg(long, value_parser = pair, value_delimiter = ',', value_name = "KEY=VALUE,…")]
        labels: Vec<Pair>,
        /// How.
        #[command(flatten)]
        write: Write,
    },
    /// Give a member another group or other labels
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
    Update {
        /// The member.
        name: Name,
        /// Its new update group
        #[arg(long, group = "change")]
        group: Option<Name>,
        /// Its new labels, in place of those it has
        #[arg(long, value_parser = pair, value_delimiter = ',', value_name = "KEY=VALUE,…", group = "change")]
        labels: Vec<Pair>,
        /// How.
        #[command(flatten)]
        write: Write,
    },
    /// Show a member
    Show {
        /// The member.
        name: Name,
    },
    /// List the members of the fleet
    List,
    /// Let a cluster leave the fleet; the cluster itself stays
    Delete {
        /// The member.
        name: Name,
        /// How.
        #[command(flatten)]
        write: Write,
    },
}

/// Strategies.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flotta strategy create careful -f strategy.yaml
  flotta strategy show careful -o yaml

A strategy file:
  stages:
    - name: canary
      groups: [{name: canary}]
      afterStageWaitInSeconds: 3600
    - name: production
      maxConcurrency: \"25%\"
      maxAllowedFailures: \"2\"
      groups:
        - {name: eu, maxConcurrency: \"3\"}
        - {name: us, maxConcurrency: \"3\"}")]
pub struct StrategyCommand {
    /// Where.
    #[command(flatten)]
    pub connection: Connection,
    /// What.
    #[command(subcommand)]
    pub verb: StrategyVerb,
}

/// What to do with strategies.
#[derive(Debug, Subcommand)]
pub enum StrategyVerb {
    /// Create a strategy, or replace the one of that name
    Create {
        /// The strategy.
        name: Name,
        /// YAML or JSON file with the stages; `-` for standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// How.
        #[command(flatten)]
        write: Write,
    },
    /// Show a strategy
    Show {
        /// The strategy.
        name: Name,
    },
    /// List the strategies of the fleet
    List,
    /// Delete a strategy; runs made from it keep their copy
    Delete {
        /// The strategy.
        name: Name,
        /// How.
        #[command(flatten)]
        write: Write,
    },
}

/// Runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flotta run create up-1-34 --type Full --kubernetes-version 1.34.2 --strategy careful --start
  flotta run watch up-1-34
  flotta run skip up-1-34 --member shop-eu-1 --after-stage-wait canary
  flotta run stop up-1-34")]
pub struct RunCommand {
    /// Where.
    #[command(flatten)]
    pub connection: Connection,
    /// What.
    #[command(subcommand)]
    pub verb: RunVerb,
}

/// Node images to bring the pools to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Images {
    /// The newest of each region.
    Latest,
    /// The newest that every region has; not in this version of the server yet.
    Consistent,
}

/// What is upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Upgrade {
    /// Control plane, node pools and node images.
    Full,
    /// The control plane alone.
    ControlPlaneOnly,
    /// Node images alone.
    NodeImageOnly,
}

/// The word that the API uses for a choice.
pub fn word(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// What a new run is to do.
#[derive(Debug, Args)]
#[command(after_help = "Without --strategy or --stages the members are upgraded one by one.

Examples:
  flotta run create up-1-34 --type Full --kubernetes-version 1.34.2 --strategy careful --start
  flotta run create images --type NodeImageOnly --node-image-selection Latest
  flotta run create small --type ControlPlaneOnly --kubernetes-version 1.34.2 \\
      --stages '[{\"name\": \"only\", \"groups\": [{\"name\": \"canary\"}]}]'")]
pub struct NewRun {
    /// The run.
    pub name: Name,
    /// What is upgraded
    #[arg(long = "type", value_enum, ignore_case = true, value_name = "TYPE")]
    pub upgrade: Upgrade,
    /// Version to go to, such as 1.34.2, or 1.34 for its newest patch; not with NodeImageOnly
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<String>,
    /// Node images to bring the pools to
    #[arg(long, value_enum, ignore_case = true, value_name = "WHICH")]
    pub node_image_selection: Option<Images>,
    /// Strategy to follow, by name or id
    #[arg(long, value_name = "NAME", conflicts_with = "stages")]
    pub strategy: Option<String>,
    /// Stages to follow: a YAML or JSON file, or JSON itself
    #[arg(long, value_name = "FILE|JSON")]
    pub stages: Option<String>,
    /// Start it at once
    #[arg(long)]
    pub start: bool,
    /// How.
    #[command(flatten)]
    pub write: Write,
}

/// What to skip.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("target").required(true).multiple(true)))]
#[command(
    after_help = "Example:\n  flotta run skip up-1-34 --member shop-eu-1 --member shop-eu-2 --after-stage-wait canary"
)]
pub struct Skip {
    /// The run.
    pub name: Name,
    /// Member to skip; may be repeated
    #[arg(long, group = "target", value_name = "NAME")]
    pub member: Vec<Name>,
    /// Group to skip; may be repeated
    #[arg(long, group = "target", value_name = "NAME")]
    pub group: Vec<Name>,
    /// Stage to skip, with the wait after it; may be repeated
    #[arg(long, group = "target", value_name = "NAME")]
    pub stage: Vec<Name>,
    /// Stage whose wait is skipped; may be repeated
    #[arg(long, group = "target", value_name = "STAGE")]
    pub after_stage_wait: Vec<Name>,
    /// How.
    #[command(flatten)]
    pub write: Write,
}

/// What to do with runs.
#[derive(Debug, Subcommand)]
pub enum RunVerb {
    /// Create a run
    Create(Box<NewRun>),
    /// Show how far a run is
    Show {
        /// The run.
        name: Name,
    },
    /// List the runs of the fleet
    List,
    /// Start a run, or go on with one that failed or was stopped
    Start {
        /// The run.
        name: Name,
        /// How.
        #[command(flatten)]
        write: Write,
    },
    /// Stop a run; clusters under way finish
    Stop {
        /// The run.
        name: Name,
        /// How.
        #[command(flatten)]
        write: Write,
    },
    /// Skip members, groups, stages or the wait after a stage; cannot be taken back
    Skip(Skip),
    /// Delete a run; operations under way on clusters go on
    Delete {
        /// The run.
        name: Name,
        /// How.
        #[command(flatten)]
        write: Write,
    },
    /// Watch a run until it ends
    #[command(
        after_help = "Ends with exit code 0 when the run is Completed or Skipped, 1 when it is Failed or Stopped or has no member."
    )]
    Watch {
        /// The run.
        name: Name,
        /// Write one line a change, without redrawing
        #[arg(long)]
        plain: bool,
        /// Seconds between two looks
        #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
        interval: std::time::Duration,
    },
}

fn seconds(text: &str) -> Result<std::time::Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(std::time::Duration::from_secs_f64(seconds)),
        _ => Err("use a number of seconds from 0.1 to 3600".into()),
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

/// Contexts.
#[derive(Debug, Args)]
#[command(
    after_help = "Flags and FLOTTA_SERVER, FLOTTA_SUBSCRIPTION, FLOTTA_RESOURCE_GROUP, FLOTTA_FLEET come before the context.
Contexts are kept in $FLOTTA_CONFIG, else in $XDG_CONFIG_HOME/flotta/config.yaml.

Example:
  flotta context set prod --server https://flotta.example --resource-group platform --fleet shop
  flotta context use prod"
)]
pub struct ContextCommand {
    /// What.
    #[command(subcommand)]
    pub verb: ContextVerb,
}

/// What to do with contexts.
#[derive(Debug, Subcommand)]
pub enum ContextVerb {
    /// Make a context, or change what is named of it
    Set {
        /// The context.
        name: Name,
        /// Server
        #[arg(long, value_name = "URL")]
        server: Option<String>,
        /// Subscription id
        #[arg(long, value_name = "ID")]
        subscription: Option<String>,
        /// Resource group
        #[arg(short = 'g', long, value_name = "NAME")]
        resource_group: Option<String>,
        /// Fleet
        #[arg(long, value_name = "NAME")]
        fleet: Option<FleetName>,
    },
    /// Use a context from now on
    Use {
        /// The context.
        name: Name,
    },
    /// List the contexts
    List {
        /// How to show them: table, json or yaml
        #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "FORMAT")]
        output: Format,
    },
    /// Show what commands use just now, from flags, environment, context and defaults together
    Show {
        /// Where.
        #[command(flatten)]
        connection: Box<Connection>,
    },
}
