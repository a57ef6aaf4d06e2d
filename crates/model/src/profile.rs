//! Auto-upgrade profiles: what a fleet follows by itself (`behaviour.md` A9).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Fault, MaintenanceWindow, Name,
    gate::Weekday,
    window::{LocalTime, Recurrence, RecurrenceFields, Schedule, WindowError},
};

/// A wish that makes and starts update runs when versions appear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoUpgradeProfile {
    /// Its name, unique in its fleet.
    pub name: Name,
    /// What it follows.
    pub channel: Channel,
    /// The id of the strategy of its runs, in the caller's casing; absent: one member after another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy_id: Option<String>,
    /// The node images of its runs; only the channels of Kubernetes versions heed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<ProfileImages>,
    /// It makes no run by itself.
    #[serde(default)]
    pub disabled: bool,
    /// What must be true beside a version being there.
    #[serde(default, skip_serializing_if = "TriggerPolicy::is_default")]
    pub trigger: TriggerPolicy,
}

/// What a profile follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Channel {
    /// The newest patch of the newest minor.
    Rapid,
    /// The newest patch of the minor before the newest.
    Stable,
    /// The newest patch of one minor.
    TargetKubernetesVersion {
        /// Always 1 so far.
        major: u32,
        /// The minor.
        minor: u32,
        /// Go on with the patches for long-term support when community support of the minor has ended.
        long_term_support: bool,
    },
    /// The newest node images.
    NodeImage,
    /// Security patches of Linux nodes.
    SecurityPatch,
}

impl Channel {
    /// The word of the ARM API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rapid => "Rapid",
            Self::Stable => "Stable",
            Self::TargetKubernetesVersion { .. } => "TargetKubernetesVersion",
            Self::NodeImage => "NodeImage",
            Self::SecurityPatch => "SecurityPatch",
        }
    }

    /// Whether it follows node images rather than Kubernetes versions.
    pub fn moves_images_alone(self) -> bool {
        matches!(self, Self::NodeImage | Self::SecurityPatch)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The node images of a profile's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProfileImages {
    /// The newest in each region.
    Latest,
    /// The newest that all regions have.
    Consistent,
}

/// When a profile makes a run, beyond the original. All of it must be true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerPolicy {
    /// The share of the regions of the fleet's members that must offer the version, in percent, 0–100. 0: one region.
    #[serde(default)]
    pub regions_percent: u8,
    /// Seconds that must have passed since the version was first seen in the region that had it first.
    #[serde(default)]
    pub soak_seconds: u32,
    /// The hours in which it may make runs; absent: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<Calendar>,
    /// How Kubernetes versions are moved to.
    #[serde(default)]
    pub path: UpgradePath,
}

/// Hours of the week in some local time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "CalendarFields", into = "CalendarFields")]
pub struct Calendar {
    fields: CalendarFields,
    windows: Vec<MaintenanceWindow>,
}

/// What a [`Calendar`] is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalendarFields {
    /// The days on which it opens, each once.
    pub days: Vec<Weekday>,
    /// Minutes after local midnight at which it opens, 0–1439.
    pub start_minute: u16,
    /// Hours that it stays open, 4–24.
    pub duration_hours: u8,
    /// What local time is.
    pub local: LocalTime,
}

impl Calendar {
    /// What it is made from.
    pub fn fields(&self) -> &CalendarFields {
        &self.fields
    }

    /// Whether it is open at an instant.
    pub fn is_open(&self, at: Timestamp) -> bool {
        self.windows.iter().any(|window| window.is_open(at))
    }

    /// The earliest instant, not before `at`, at which it is open.
    pub fn next_open(&self, at: Timestamp) -> Option<Timestamp> {
        self.windows.iter().filter_map(|window| window.next_open(at)).min()
    }
}

impl TryFrom<CalendarFields> for Calendar {
    type Error = WindowError;
    fn try_from(fields: CalendarFields) -> Result<Self, WindowError> {
        let mut days: Vec<Weekday> = fields.days.clone();
        days.sort_unstable();
        days.dedup();
        if days.is_empty() || days.len() != fields.days.len() {
            return Err(WindowError::new("days", "name at least one day, and each once"));
        }
        let window = |day: &Weekday| {
            let recurrence = Recurrence::try_from(RecurrenceFields {
                schedule: Schedule::Weekly { interval: 1, day: *day },
                start_minute: fields.start_minute,
                duration_hours: fields.duration_hours,
                local: fields.local.clone(),
                start_date: None,
                not_allowed: Vec::new(),
            })?;
            Ok(MaintenanceWindow::Recurring(recurrence))
        };
        let windows = fields.days.iter().map(window).collect::<Result<_, WindowError>>()?;
        Ok(Self { fields, windows })
    }
}

impl From<Calendar> for CalendarFields {
    fn from(calendar: Calendar) -> Self {
        calendar.fields
    }
}

impl TriggerPolicy {
    /// Whether it asks for nothing beyond the original.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How a profile moves clusters to a Kubernetes version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradePath {
    /// One run of type Full.
    #[default]
    Full,
    /// A run of type ControlPlaneOnly, and when it is done a run of type Full for what it left behind.
    ControlPlaneFirst,
}

/// What became of a profile's last attempt to make and start a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTrigger {
    /// When.
    pub at: Timestamp,
    /// What went wrong; absent: a run was made and started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// The Kubernetes version or node images it was for.
    pub versions: Vec<String>,
    /// What people should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_is_open_on_its_days_by_local_time() {
        let fields = CalendarFields {
            days: vec![Weekday::Tuesday, Weekday::Thursday],
            start_minute: 9 * 60,
            duration_hours: 8,
            local: LocalTime::Zone("Europe/Rome".parse().expect("zone")),
        };
        let calendar = Calendar::try_from(fields.clone()).expect("calendar");
        let at = |text: &str| text.parse::<Timestamp>().expect(text);
        assert!(calendar.is_open(at("2026-12-01T08:00:00Z")), "Tuesday, 9 in Rome");
        assert!(!calendar.is_open(at("2026-12-02T08:00:00Z")), "Wednesday");
        assert_eq!(calendar.next_open(at("2026-12-02T08:00:00Z")), Some(at("2026-12-03T08:00:00Z")));
        assert_eq!(calendar.next_open(at("2026-07-01T08:00:00Z")), Some(at("2026-07-02T07:00:00Z")), "in summer");
        let stored = serde_json::to_string(&calendar).expect("stored");
        assert_eq!(serde_json::from_str::<Calendar>(&stored).expect("read"), calendar);
        for days in [vec![], vec![Weekday::Monday, Weekday::Monday]] {
            assert!(Calendar::try_from(CalendarFields { days, ..fields.clone() }).is_err());
        }
        assert!(Calendar::try_from(CalendarFields { duration_hours: 3, ..fields }).is_err());
    }
}
