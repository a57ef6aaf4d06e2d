//! An update run: a state machine that does no I/O.
//!
//! ```text
//! decide(&Run, Input, now) -> Result<Vec<Event>, Refusal>     what happens, or why not
//! apply(&mut Run, &Event, at)                                 state is a fold over the journal
//! next_wake(&Run) -> Option<Timestamp>                        when time alone will change something
//! work(&Run) -> Vec<Work>                                     what should be going on out there right now
//! waiting_on(&Run, Part, now) -> Vec<Reason>                  why it is not moving, and until when at the earliest
//! ```
//!
//! [`Run::step`] is decide and apply until nothing more follows. Decisions are made one layer at a time: each layer
//! sees the state that the layer before left, so a limit is checked against what is really so.

mod apply;
mod decide;
mod event;
mod gates;
mod images;
mod state;
mod status;
mod why;
mod windows;

pub use event::{Event, Input, Refusal, Sighting, SkipTarget, Skipped, Ticket, Work};
pub use gates::{Decision, Denial, Gate, GatePhase, GateView, Timing, Verdict};
pub use state::{
    Counts, Group, Held, Member, MemberPhase, Outcome, Phase, Pledge, Run, RunPhase, RunSnapshot, Stage, State, Times,
    Wait,
};
pub use status::Part;
pub use why::{Reason, Why};
pub use windows::{Window, WindowOf, Windows};
