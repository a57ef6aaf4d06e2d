//! Gates: what must be passed before or after a stage or group (`behaviour.md` A6; `arm-api.md` §11).

use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Time, Weekday as CivilDay},
    tz::{Offset, TimeZone},
};
use serde::{Deserialize, Serialize};

use crate::Zone;

/// A gate before or after a stage or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateConfig {
    /// 1–100 characters shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What opens it.
    pub kind: GateKind,
    /// Who may open it, and until when. For gates of kind Approval only.
    #[serde(default, skip_serializing_if = "ApprovalPolicy::is_default")]
    pub policy: ApprovalPolicy,
}

impl GateConfig {
    /// A gate without a name, opened as usual.
    pub fn new(kind: GateKind) -> Self {
        Self { display_name: None, kind, policy: ApprovalPolicy::default() }
    }
}

/// What opens a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GateKind {
    /// Somebody approves.
    Approval,
    /// A day and time comes. Only before a stage or group.
    ScheduledStart(ScheduledStart),
}

impl GateKind {
    /// The word that the API uses.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Approval => "Approval",
            Self::ScheduledStart(_) => "ScheduledStart",
        }
    }
}

/// What flotta can ask of an approval beyond the original. By default nothing: one person approves, at any time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalPolicy {
    /// How many different people must approve, 1–[`ApprovalPolicy::MOST_APPROVERS`].
    pub approvers: u8,
    /// Seconds after which the gate expires if it is still closed: the run then stops, with that reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after_seconds: Option<u32>,
    /// Whether the creator of the run may be one of them.
    pub creator: Creator,
    /// Whether approval may be refused outright: the run then stops, with that reason.
    pub rejection: Rejection,
}

/// What the creator of a run may do at its gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Creator {
    /// Approve like anybody else.
    #[default]
    MayApprove,
    /// Leave approval to others.
    MayNotApprove,
}

/// Whether a gate can be rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejection {
    /// It can only be approved.
    #[default]
    NotOffered,
    /// It can be rejected.
    Offered,
}

impl ApprovalPolicy {
    /// Approvers that a gate can ask for at most.
    pub const MOST_APPROVERS: u8 = 20;

    /// Whether it asks for nothing beyond the original.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self { approvers: 1, expires_after_seconds: None, creator: Creator::default(), rejection: Rejection::default() }
    }
}

/// A time of the week.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledStart {
    /// The day of the week.
    pub day: Weekday,
    /// Minutes after local midnight, 0–1439.
    pub minute: u16,
    /// Minutes east of UTC, -840 to 840. With a zone: one of the zone's offsets, for clients that do not know zones.
    pub utc_offset_minutes: i16,
    /// A zone whose clocks count instead of the offset, with their daylight saving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Zone>,
}

impl ScheduledStart {
    /// The next time after `now`, strictly later. A time that the clocks of the zone skip comes when they go on; one
    /// that they show twice counts the first time.
    pub fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let zone = match &self.zone {
            Some(zone) => zone.rules().clone(),
            None => {
                let seconds = i32::from(self.utc_offset_minutes) * 60;
                TimeZone::fixed(Offset::from_seconds(seconds).unwrap_or(Offset::UTC))
            }
        };
        let time = Time::new((self.minute / 60 % 24) as i8, (self.minute % 60) as i8, 0, 0).ok()?;
        // A day earlier, so that the offset cannot hide an occurrence.
        let mut date = zone.to_datetime(now.saturating_sub(SignedDuration::from_hours(24)).ok()?).date();
        for _ in 0..10 {
            if date.weekday() == self.day.into() {
                let at = zone.to_timestamp(date.to_datetime(time)).ok()?;
                if at > now {
                    return Some(at);
                }
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of the days say it")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Weekday {
    /// The days by the names that APIs use.
    pub const NAMES: [(&str, Self); 7] = [
        ("Monday", Self::Monday),
        ("Tuesday", Self::Tuesday),
        ("Wednesday", Self::Wednesday),
        ("Thursday", Self::Thursday),
        ("Friday", Self::Friday),
        ("Saturday", Self::Saturday),
        ("Sunday", Self::Sunday),
    ];
}

impl From<Weekday> for CivilDay {
    fn from(day: Weekday) -> Self {
        match day {
            Weekday::Monday => Self::Monday,
            Weekday::Tuesday => Self::Tuesday,
            Weekday::Wednesday => Self::Wednesday,
            Weekday::Thursday => Self::Thursday,
            Weekday::Friday => Self::Friday,
            Weekday::Saturday => Self::Saturday,
            Weekday::Sunday => Self::Sunday,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(day: Weekday, minute: u16, utc_offset_minutes: i16, zone: Option<&str>) -> ScheduledStart {
        let zone = zone.map(|name| name.parse().expect(name));
        ScheduledStart { day, minute, utc_offset_minutes, zone }
    }

    #[test]
    fn a6_the_next_occurrence_is_strictly_later() {
        let wednesday = start(Weekday::Wednesday, 120, 0, None);
        let cases = [
            ("2026-11-30T12:00:00Z", "2026-12-02T02:00:00Z"), // reached on Monday: this Wednesday
            ("2026-12-02T01:59:59Z", "2026-12-02T02:00:00Z"),
            ("2026-12-02T02:00:00Z", "2026-12-09T02:00:00Z"), // reached exactly then: next week
            ("2026-12-02T03:00:00Z", "2026-12-09T02:00:00Z"),
        ];
        for (reached, expect) in cases {
            let at = wednesday.next_after(reached.parse().expect(reached));
            assert_eq!(at.map(|at| at.to_string()).as_deref(), Some(expect), "reached {reached}");
        }
    }

    #[test]
    fn a6_offsets_count_from_utc_and_never_change() {
        let friday = start(Weekday::Friday, 18 * 60, -300, None);
        let east = start(Weekday::Monday, 60, 840, None);
        for (gate, reached, expect) in [
            (&friday, "2026-04-01T00:00:00Z", "2026-04-03T23:00:00Z"),
            (&friday, "2026-04-03T23:00:00Z", "2026-04-10T23:00:00Z"),
            (&east, "2026-11-29T10:00:00Z", "2026-11-29T11:00:00Z"), // Monday 01:00 at +14:00 is Sunday 11:00 UTC
        ] {
            let at = gate.next_after(reached.parse().expect(reached));
            assert_eq!(at.map(|at| at.to_string()).as_deref(), Some(expect), "reached {reached}");
        }
    }

    #[test]
    fn e45_zones_follow_daylight_saving() {
        let rome = start(Weekday::Sunday, 150, 60, Some("Europe/Rome"));
        for (reached, expect) in [
            ("2026-03-20T00:00:00Z", "2026-03-22T01:30:00Z"),
            ("2026-03-23T00:00:00Z", "2026-03-29T01:30:00Z"), // 02:30 does not exist: 03:30 summer time
            ("2026-03-30T00:00:00Z", "2026-04-05T00:30:00Z"),
            ("2026-10-20T00:00:00Z", "2026-10-25T00:30:00Z"), // 02:30 comes twice: the first
            ("2026-10-25T00:30:00Z", "2026-11-01T01:30:00Z"),
        ] {
            let at = rome.next_after(reached.parse().expect(reached));
            assert_eq!(at.map(|at| at.to_string()).as_deref(), Some(expect), "reached {reached}");
        }
    }
}
