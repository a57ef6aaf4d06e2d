//! What can be said about gates.

use clap::{Args, Subcommand, ValueEnum};
use flotta_model::Name;

use super::Connection;

/// Gates.
#[derive(Debug, Args)]
#[command(after_help = "\
A gate is there once its run has come to it. It is named by its id or the first letters of that,
as `flotta gate list` shows them, or by where it stands, if the run waits for only one there.

Examples:
  flotta gate list --state Pending
  flotta gate approve 62b62d86 --comment \"tried in staging\"
  flotta gate approve --run up-1-34 --stage production
  flotta gate reject 62b62d86 --comment \"not on a Friday\" --as ann@example.com")]
pub struct GateCommand {
    /// Where.
    #[command(flatten)]
    pub connection: Connection,
    /// What.
    #[command(subcommand)]
    pub verb: GateVerb,
}

/// States of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum GateState {
    /// Closed.
    Pending,
    /// Left out with its stage or group.
    Skipped,
    /// Open.
    Completed,
}

/// Types of gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum GateType {
    /// Somebody approves.
    Approval,
    /// A day and time comes.
    ScheduledStart,
}

/// Which gate is meant.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// Id of the gate, or the first letters of it
    #[arg(value_name = "ID", required_unless_present_any = ["run", "stage", "group"], conflicts_with = "run")]
    pub id: Option<String>,
    /// Run that waits at the gate
    #[arg(long, value_name = "NAME")]
    pub run: Option<Name>,
    /// Stage that the gate stands at, or whose group it stands at
    #[arg(long, value_name = "NAME", requires = "run")]
    pub stage: Option<Name>,
    /// Group that the gate stands at
    #[arg(long, value_name = "NAME", requires = "run")]
    pub group: Option<Name>,
}

/// What to do with gates.
#[derive(Debug, Subcommand)]
pub enum GateVerb {
    /// List the gates that runs have come to
    List {
        /// Only those in this state: Pending, Skipped or Completed
        #[arg(long, value_enum, ignore_case = true, value_name = "STATE", hide_possible_values = true)]
        state: Option<GateState>,
        /// Only those of this type: Approval or ScheduledStart
        #[arg(long = "type", value_enum, ignore_case = true, value_name = "TYPE", hide_possible_values = true)]
        kind: Option<GateType>,
        /// Only those of this run
        #[arg(long, value_name = "NAME")]
        run: Option<Name>,
    },
    /// Show a gate, and who said what of it
    Show {
        /// The gate.
        #[command(flatten)]
        which: Which,
    },
    /// Approve a gate, or open a scheduled start before its time
    Approve {
        /// The gate.
        #[command(flatten)]
        which: Which,
        /// Why, in your own words
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
        /// Decide only if the gate still has this etag
        #[arg(long, value_name = "ETAG")]
        if_match: Option<String>,
    },
    /// Reject a gate whose strategy lets it be rejected: its run stops
    Reject {
        /// The gate.
        #[command(flatten)]
        which: Which,
        /// Why, in your own words
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
        /// Decide only if the gate still has this etag
        #[arg(long, value_name = "ETAG")]
        if_match: Option<String>,
    },
}
