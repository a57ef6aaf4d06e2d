//! The verbs of fleet upgrades, as pure functions: no I/O, no clock, no async, no randomness.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | a strategy and the members of a fleet, resolved into who moves where and within which limits |
//! | [`images`] | which node images all regions of a run have |
//! | [`upgrade`] | what a cluster needs to get from here to there |
//! | [`check`] | what would happen to a member, and what stands in its way |
//! | [`run`] | an update run: a state machine that is told what happened and answers with events |

pub mod campaign;
pub mod channels;
pub mod check;
pub mod images;
mod pinned;
pub mod plan;
pub mod run;
pub mod upgrade;

pub use plan::{Plan, PlanError};
pub use run::{Event, Input, Refusal, Run, State, Work};
