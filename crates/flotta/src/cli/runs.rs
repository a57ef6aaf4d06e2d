//! What can be said about update runs.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use flotta_model::Name;

use super::{Connection, Write};

/// Runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flotta run create up-1-34 --type Full --kubernetes-version 1.34.2 --strategy careful
  flotta run check up-1-34 && flotta run start up-1-34
  flotta run watch up-1-34
  flotta run why up-1-34 shop-eu-1
  flotta run skip up-1-34 --member shop-eu-1 --after-stage-wait canary
  flotta run stop up-1-34
  flotta run retry up-1-34 --start")]
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
  flotta run create up-1-34 --type Full --kubernetes-version 1.34 --strategy careful --dry-run
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
    /// Create nothing: show what the run would do to each member, as `flotta run check` does
    #[arg(long, conflicts_with_all = ["start", "if_match", "no_wait"])]
    pub dry_run: bool,
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

/// What to try again.
#[derive(Debug, Args)]
#[command(after_help = RETRY_HELP)]
pub struct Retry {
    /// Run that left them
    #[arg(value_name = "RUN")]
    pub name: Name,
    /// Name of the new run; RUN-retry, RUN-retry-2 and so on if left out, whichever is free
    #[arg(long = "name", value_name = "NAME")]
    pub new_name: Option<Name>,
    /// Start it at once
    #[arg(long)]
    pub start: bool,
    /// How.
    #[command(flatten)]
    pub write: Write,
}

const RETRY_HELP: &str = "\
The new run has the strategy of RUN and goes to the very version that RUN came to, with the members \
that failed in RUN, or were skipped before they were at the target, as far as they are still in the \
fleet. RUN must have come to its end or be stopped; it stays as it is.

To go on with RUN itself and all that is left of it, use `flotta run start RUN`.

Examples:
  flotta run retry up-1-34
  flotta run retry up-1-34 --name up-1-34-rest --start";

const START_HELP: &str = "\
A run that is Failed or Stopped goes on where it is: members of its current stage that failed are tried \
again, to the same version, and then comes what had not begun. What was skipped stays skipped.

For members that failed or were skipped in a run that is over, or to try them apart from the rest, use \
`flotta run retry`.";

const CHECK_HELP: &str = "\
Looks at the clusters that the run would move, as it would, and changes nothing.
`flotta run create … --dry-run` does the same for a run that is not there yet.

Exit codes: 0 where there are at most notes, 5 where there are warnings, 1 where there are errors.

Example:
  flotta run check up-1-34 && flotta run start up-1-34";

const WHY_HELP: &str = "\
Of a member every rule is told that holds it, and when all of them can have given way at the
earliest; of more than one member, how many wait for what. Changes nothing; exit code 0.

Examples:
  flotta run why up-1-34
  flotta run why up-1-34 shop-eu-1
  flotta run why up-1-34 --group eu";

/// A part of a run.
#[derive(Clone, Debug, Default, Args)]
#[command(group(clap::ArgGroup::new("part").multiple(false)))]
pub struct Part {
    /// Member to ask about [default: the whole run]
    #[arg(group = "part", value_name = "MEMBER")]
    pub member: Option<Name>,
    /// Stage to ask about
    #[arg(long, group = "part", value_name = "NAME")]
    pub stage: Option<Name>,
    /// Group to ask about
    #[arg(long, group = "part", value_name = "NAME")]
    pub group: Option<Name>,
}

impl Part {
    /// Kind and name of the part; none where all is meant.
    pub fn asked(&self) -> Option<(&'static str, &str)> {
        let parts = [("member", &self.member), ("stage", &self.stage), ("group", &self.group)];
        parts.into_iter().find_map(|(kind, name)| Some((kind, name.as_ref()?.as_str())))
    }
}

/// What to do with runs.
#[derive(Debug, Subcommand)]
pub enum RunVerb {
    /// Create a run
    Create(Box<NewRun>),
    /// Show what a run would do to each member, before it is started
    #[command(after_help = CHECK_HELP)]
    Check {
        /// The run.
        name: Name,
        /// The part; the whole run if there is none.
        #[command(flatten)]
        part: Part,
    },
    /// Tell why a run, or a part of it, does not move, and when it can at the earliest
    #[command(after_help = WHY_HELP)]
    Why {
        /// The run.
        name: Name,
        /// The part.
        #[command(flatten)]
        part: Part,
    },
    /// Show how far a run is
    Show {
        /// The run.
        name: Name,
    },
    /// List the runs of the fleet
    List,
    /// Start a run, or go on with one that failed or was stopped
    #[command(after_help = START_HELP)]
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
    /// Try the members again that failed or were skipped, in a run of their own
    Retry(Retry),
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
        interval: Duration,
    },
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("use a number of seconds from 0.1 to 3600".into()),
    }
}
