//! Maintenance windows of a cluster: when it may be changed (`behaviour.md` C).
//!
//! A window is openings less exclusions. Both are stretches of time from an instant on until another, which is not
//! part of them; openings that touch or overlap are one. Every answer is computed, not searched for: what it costs
//! depends on the number of exclusions alone, however far away the next opening is.

mod hours;
mod recurrence;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    hours::HoursOfWeek,
    recurrence::{LocalTime, Recurrence, RecurrenceFields, Schedule, WeekIndex},
};

/// When a cluster may be changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MaintenanceWindow {
    /// A schedule that recurs.
    Recurring(Recurrence),
    /// The older form: hours of the week in UTC, less spans of time.
    HoursOfWeek(HoursOfWeek),
}

/// Which of a cluster's schedules counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WindowKind {
    /// Upgrades of the Kubernetes version: Full and ControlPlaneOnly (`aksManagedAutoUpgradeSchedule`).
    AutoUpgrade,
    /// Upgrades of node images alone: NodeImageOnly (`aksManagedNodeOSUpgradeSchedule`).
    NodeOs,
}

/// What was given makes no window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct WindowError {
    /// The field, by its path inside the window and its name in the API.
    pub field: String,
    /// What was got, and what is allowed.
    pub reason: String,
}

impl WindowError {
    /// An error about a field.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// Exclusions that a window can have at most.
pub const MOST_EXCLUSIONS: usize = 100;

/// What stands for "never" where an end is asked for.
const NEVER: Timestamp = Timestamp::MAX;

/// What a window is made of.
trait Openings {
    /// Where an opening holds at `at`, an instant up to which it is sure to be open, exclusions aside. What follows may
    /// touch it.
    fn open_until(&self, at: Timestamp) -> Option<Timestamp>;

    /// The first opening that begins after `at`.
    fn opens_after(&self, at: Timestamp) -> Option<Timestamp>;

    /// Where an exclusion holds at `at`, its end.
    fn excluded_until(&self, at: Timestamp) -> Option<Timestamp>;

    /// The first exclusion that begins after `at`.
    fn excluded_after(&self, at: Timestamp) -> Option<Timestamp>;
}

impl MaintenanceWindow {
    /// Whether it is open at an instant.
    pub fn is_open(&self, at: Timestamp) -> bool {
        let openings = self.openings();
        openings.excluded_until(at).is_none() && openings.open_until(at).is_some()
    }

    /// The earliest instant, not before `at`, at which it is open: `at` itself if it is open then. `None`: it never
    /// opens again.
    pub fn next_open(&self, mut at: Timestamp) -> Option<Timestamp> {
        let openings = self.openings();
        // Each turn leaves an exclusion behind, or comes to an opening: about two for each exclusion at most.
        while at < NEVER {
            if let Some(end) = openings.excluded_until(at) {
                at = end;
            } else if openings.open_until(at).is_some() {
                return Some(at);
            } else {
                at = openings.opens_after(at)?;
            }
        }
        None
    }

    /// The first instant after `at` at which it is closed, if it is open at `at` and ever closes.
    pub fn closes(&self, at: Timestamp) -> Option<Timestamp> {
        let openings = self.openings();
        if openings.excluded_until(at).is_some() {
            return None;
        }
        let excluded = openings.excluded_after(at).unwrap_or(NEVER);
        let mut end = openings.open_until(at)?;
        while end < excluded {
            match openings.open_until(end) {
                Some(later) => end = later,
                None => break,
            }
        }
        Some(end.min(excluded)).filter(|end| *end < NEVER)
    }

    fn openings(&self) -> &dyn Openings {
        match self {
            Self::Recurring(recurrence) => recurrence,
            Self::HoursOfWeek(hours) => hours,
        }
    }
}

/// Sorts stretches and makes one of those that touch or overlap. `next` is what comes right after an end.
fn merge<T: Ord + Copy>(mut stretches: Vec<(T, T)>, next: impl Fn(T) -> T) -> Vec<(T, T)> {
    stretches.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(stretches.len());
    for (start, end) in stretches {
        match merged.last_mut() {
            Some(last) if start <= next(last.1) => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}
