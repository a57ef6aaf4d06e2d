//! Maintenance windows of a cluster: when it may be changed (`behaviour.md` C).

use jiff::{Timestamp, civil::Date};
use serde::{Deserialize, Serialize};

use crate::{Zone, gate::Weekday};

/// When a cluster may be changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MaintenanceWindow {
    /// A schedule that recurs.
    Recurring(Recurrence),
    /// The older form: hours of the week in UTC, less spans of time.
    HoursOfWeek {
        /// Hours at which it is open, each once, in order: the day, and the hour 0–23.
        hours: Vec<(Weekday, u8)>,
        /// Spans in which it is closed all the same: from, until (exclusive).
        not_allowed: Vec<(Timestamp, Timestamp)>,
    },
}

/// A schedule that recurs, with its duration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Recurrence {
    /// On which days it opens.
    pub schedule: Schedule,
    /// Minutes after local midnight at which it opens, 0–1439.
    pub start_minute: u16,
    /// Hours that it stays open, 4–24.
    pub duration_hours: u8,
    /// What local time is.
    pub local: LocalTime,
    /// The first local day on which it can open, from which intervals are counted.
    pub start_date: Option<Date>,
    /// Local days, both inclusive, on which it is closed.
    pub not_allowed: Vec<(Date, Date)>,
}

/// What a window's local time is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LocalTime {
    /// Minutes east of UTC, the same all year.
    Offset(i16),
    /// The clocks of a zone, with their daylight saving.
    Zone(Zone),
}

/// Days on which a window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Schedule {
    /// Every so many days, 1–7.
    Daily {
        /// Days.
        interval: u8,
    },
    /// A day of the week every so many weeks, 1–4.
    Weekly {
        /// Weeks.
        interval: u8,
        /// The day.
        day: Weekday,
    },
    /// A day of the month every so many months, 1–6. A month that is too short has it on its last day.
    AbsoluteMonthly {
        /// Months.
        interval: u8,
        /// The day, 1–31.
        day: u8,
    },
    /// Such as the last Monday of the month, every so many months, 1–6.
    RelativeMonthly {
        /// Months.
        interval: u8,
        /// Which of them.
        week: WeekIndex,
        /// The day.
        day: Weekday,
    },
}

/// Which one of its kind in a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum WeekIndex {
    First,
    Second,
    Third,
    Fourth,
    Last,
}

/// Which of a cluster's schedules counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WindowKind {
    /// Upgrades of the Kubernetes version: Full and ControlPlaneOnly (`aksManagedAutoUpgradeSchedule`).
    AutoUpgrade,
    /// Upgrades of node images alone: NodeImageOnly (`aksManagedNodeOSUpgradeSchedule`).
    NodeOs,
}

impl MaintenanceWindow {
    /// Whether it is open at an instant.
    pub fn is_open(&self, at: Timestamp) -> bool {
        self.closes(at).is_some() || self.next_open(at) == Some(at)
    }

    /// The earliest instant, not before `at`, at which it is open: `at` itself if it is open then.
    pub fn next_open(&self, at: Timestamp) -> Option<Timestamp> {
        Some(at)
    }

    /// The first instant after `at` at which it is closed, if it is open at `at` and ever closes.
    pub fn closes(&self, _at: Timestamp) -> Option<Timestamp> {
        None
    }
}
