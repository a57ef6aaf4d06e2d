//! What can be said about fleets, members and strategies.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use flotta_model::{ClusterId, FleetName, Name};

use super::{Connection, Pair, Write, pair};

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
