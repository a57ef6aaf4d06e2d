//! What can be said about contexts.

use clap::{Args, Subcommand};
use flotta_model::{FleetName, Name};

use super::Connection;
use crate::output::Format;

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
