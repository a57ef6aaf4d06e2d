//! Schedules that recur by a local calendar.

use std::iter::successors;

use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, Time},
    tz::{Offset, TimeZone},
};
use serde::{Deserialize, Serialize};

use super::{MOST_EXCLUSIONS, NEVER, Openings, WindowError, merge};
use crate::{Zone, gate::Weekday};

/// Where intervals are counted from without a start date: a Monday, the first day of a month and of a year.
const EPOCH: Date = Date::constant(2001, 1, 1);

/// A schedule that recurs, with its duration. An occurrence belongs to the local day on which it starts, and runs on
/// from there for so many hours, over midnight and over changes of the clocks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "RecurrenceFields")]
pub struct Recurrence(RecurrenceFields);

/// What a [`Recurrence`] is made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecurrenceFields {
    /// On which days it opens.
    pub schedule: Schedule,
    /// Minutes after local midnight at which it opens, 0–1439. A time that the clocks skip comes as much later; one
    /// that they show twice counts the first time.
    pub start_minute: u16,
    /// Hours that it stays open, 4–24.
    pub duration_hours: u8,
    /// What local time is.
    pub local: LocalTime,
    /// The first local day on which it can open. Intervals are counted from it: days from the day itself, weeks from
    /// its week, months from its month. Without one they are counted from Monday, 1 January 2001.
    pub start_date: Option<Date>,
    /// Local days, both inclusive, on which it is closed, from midnight to midnight. Up to [`MOST_EXCLUSIONS`].
    pub not_allowed: Vec<(Date, Date)>,
}

/// What a window's local time is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LocalTime {
    /// Minutes east of UTC, -840 to 840, the same all year.
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
    /// A day of the week every so many weeks, 1–4. Weeks start on Monday, as those of ISO 8601 and of iCalendar do.
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

impl TryFrom<RecurrenceFields> for Recurrence {
    type Error = WindowError;
    fn try_from(mut fields: RecurrenceFields) -> Result<Self, WindowError> {
        fields.schedule.check()?;
        within("startTime, in minutes", fields.start_minute.into(), 0, 1439)?;
        within("durationHours", fields.duration_hours.into(), 4, 24)?;
        if let LocalTime::Offset(minutes) = fields.local {
            within("utcOffset, in minutes", minutes.into(), -840, 840)?;
        }
        if fields.not_allowed.len() > MOST_EXCLUSIONS {
            let reason = format!("{} spans; at most {MOST_EXCLUSIONS} are allowed", fields.not_allowed.len());
            return Err(WindowError::new("notAllowedDates", reason));
        }
        if let Some(at) = fields.not_allowed.iter().position(|(start, end)| start > end) {
            let (start, end) = fields.not_allowed[at];
            let reason = format!("it ends on {end}, before it starts on {start}");
            return Err(WindowError::new(format!("notAllowedDates[{at}]"), reason));
        }
        fields.not_allowed = merge(fields.not_allowed, |end| end.tomorrow().unwrap_or(end));
        Ok(Self(fields))
    }
}

fn within(field: &str, got: i64, least: i64, most: i64) -> Result<(), WindowError> {
    match (least..=most).contains(&got) {
        true => Ok(()),
        false => Err(WindowError::new(field, format!("{got} is not from {least} to {most}"))),
    }
}

impl Schedule {
    fn check(self) -> Result<(), WindowError> {
        let (field, interval, most) = match self {
            Self::Daily { interval } => ("schedule.daily.intervalDays", interval, 7),
            Self::Weekly { interval, .. } => ("schedule.weekly.intervalWeeks", interval, 4),
            Self::AbsoluteMonthly { interval, .. } => ("schedule.absoluteMonthly.intervalMonths", interval, 6),
            Self::RelativeMonthly { interval, .. } => ("schedule.relativeMonthly.intervalMonths", interval, 6),
        };
        within(field, interval.into(), 1, most)?;
        match self {
            Self::AbsoluteMonthly { day, .. } => within("schedule.absoluteMonthly.dayOfMonth", day.into(), 1, 31),
            _ => Ok(()),
        }
    }

    /// The first of its days that is not before `from`, counted from `anchor`.
    fn next(self, from: Date, anchor: Date) -> Option<Date> {
        match self {
            Self::Daily { interval } => {
                let day = days(from);
                date(day + (days(anchor) - day).rem_euclid(interval.into()))
            }
            Self::Weekly { interval, day: wanted } => {
                let day = days(from) + (wanted as i64 - days(from)).rem_euclid(7);
                let weeks = days(anchor).div_euclid(7) - day.div_euclid(7);
                date(day + 7 * weeks.rem_euclid(interval.into()))
            }
            Self::AbsoluteMonthly { interval, .. } | Self::RelativeMonthly { interval, .. } => {
                let month = months(from) + (months(anchor) - months(from)).rem_euclid(interval.into());
                let date = self.in_month(month)?;
                if date < from { self.in_month(month + i64::from(interval)) } else { Some(date) }
            }
        }
    }

    /// Its day in a month, by the month's number; for the monthly ones.
    fn in_month(self, month: i64) -> Option<Date> {
        let first = Date::new(month.div_euclid(12) as i16, month.rem_euclid(12) as i8 + 1, 1).ok()?;
        match self {
            Self::RelativeMonthly { week, day, .. } => {
                let nth = if week == WeekIndex::Last { -1 } else { week as i8 + 1 };
                first.nth_weekday_of_month(nth, day.into()).ok()
            }
            Self::AbsoluteMonthly { day, .. } => {
                Date::new(first.year(), first.month(), first.days_in_month().min(day as i8)).ok()
            }
            Self::Daily { .. } | Self::Weekly { .. } => None,
        }
    }
}

/// Days since the epoch, which was a Monday.
fn days(date: Date) -> i64 {
    date.duration_since(EPOCH).as_hours() / 24
}

fn date(days: i64) -> Option<Date> {
    EPOCH.checked_add(SignedDuration::from_hours(24 * days)).ok()
}

/// Months since the year 0.
fn months(date: Date) -> i64 {
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

/// Some days earlier or later, as far as there are days.
fn near(date: Date, days: i64) -> Date {
    date.saturating_add(SignedDuration::from_hours(24 * days))
}

impl Recurrence {
    /// The clocks that count.
    fn clocks(&self) -> TimeZone {
        match &self.0.local {
            LocalTime::Offset(minutes) => {
                TimeZone::fixed(Offset::from_seconds(i32::from(*minutes) * 60).unwrap_or(Offset::UTC))
            }
            LocalTime::Zone(zone) => zone.rules().clone(),
        }
    }

    /// The days on which occurrences start, from a day on.
    fn dates(&self, from: Date) -> impl Iterator<Item = Date> {
        let (schedule, start_date) = (self.0.schedule, self.0.start_date);
        let next = move |from: Date| {
            schedule.next(start_date.map_or(from, |start| from.max(start)), start_date.unwrap_or(EPOCH))
        };
        successors(next(from), move |date| next(date.tomorrow().ok()?))
    }

    /// When the occurrence of a day starts.
    fn start(&self, clocks: &TimeZone, date: Date) -> Timestamp {
        let minute = self.0.start_minute;
        let time = Time::new((minute / 60) as i8, (minute % 60) as i8, 0, 0).unwrap_or(Time::midnight());
        instant(clocks, date, time)
    }

    /// Open for whole days, every day: each occurrence goes over into the next while nobody touches the clocks.
    fn is_seamless(&self) -> bool {
        self.0.schedule == Schedule::Daily { interval: 1 } && self.0.duration_hours == 24
    }

    /// The exclusions that may matter near a day, as instants.
    fn exclusions(&self, clocks: &TimeZone, from: Date) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let first = self.0.not_allowed.partition_point(|(_, end)| *end < from);
        let stretches = self.0.not_allowed[first..].iter().map(|(start, end)| {
            let end = end.tomorrow().map_or(NEVER, |end| instant(clocks, end, Time::midnight()));
            (instant(clocks, *start, Time::midnight()), end)
        });
        // A zone that moved over the date line may have skipped the very day.
        stretches.filter(|(start, end)| start < end)
    }
}

/// A local time as an instant; one that is skipped comes as much later, one that is shown twice is the first.
fn instant(clocks: &TimeZone, date: Date, time: Time) -> Timestamp {
    let beyond = if date < EPOCH { Timestamp::MIN } else { NEVER };
    clocks.to_timestamp(date.to_datetime(time)).unwrap_or(beyond)
}

impl Openings for Recurrence {
    fn open_until(&self, at: Timestamp) -> Option<Timestamp> {
        let clocks = self.clocks();
        let today = clocks.to_datetime(at).date();
        let duration = SignedDuration::from_hours(self.0.duration_hours.into());
        // Clocks that are turned back over midnight show a day after it has ended: tomorrow's may be running.
        let tomorrow = near(today, 1);
        let running = self.dates(near(today, -2)).take_while(|date| *date <= tomorrow);
        let running = running.map(|date| self.start(&clocks, date)).filter_map(|start| {
            let end = start.checked_add(duration).unwrap_or(NEVER);
            (start <= at && at < end).then_some((start, end))
        });
        let (start, end) = running.max()?;
        if !self.is_seamless() {
            return Some(end);
        }
        // Until the clocks change after it started, one follows the other.
        let change = clocks.following(start).next().map_or(NEVER, |change| change.timestamp());
        Some(end.max(change))
    }

    fn opens_after(&self, at: Timestamp) -> Option<Timestamp> {
        let clocks = self.clocks();
        let yesterday = near(clocks.to_datetime(at).date(), -1);
        self.dates(yesterday).map(|date| self.start(&clocks, date)).find(|start| *start > at)
    }

    fn excluded_until(&self, at: Timestamp) -> Option<Timestamp> {
        let clocks = self.clocks();
        let yesterday = near(clocks.to_datetime(at).date(), -1);
        let mut near = self.exclusions(&clocks, yesterday).take_while(|(start, _)| *start <= at);
        near.find(|(_, end)| at < *end).map(|(_, end)| end)
    }

    fn excluded_after(&self, at: Timestamp) -> Option<Timestamp> {
        let clocks = self.clocks();
        let yesterday = near(clocks.to_datetime(at).date(), -1);
        self.exclusions(&clocks, yesterday).map(|(start, _)| start).find(|start| *start > at)
    }
}
