//! Hours of the week, the older form of a window.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{MOST_EXCLUSIONS, NEVER, Openings, WindowError, merge};
use crate::gate::Weekday;

const HOURS: i64 = 168;
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Hours of the week in UTC, less spans of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Fields")]
pub struct HoursOfWeek {
    /// At least one, each once, in order.
    hours: Vec<(Weekday, u8)>,
    /// From, until (exclusive); in order, none touching the next.
    not_allowed: Vec<(Timestamp, Timestamp)>,
}

#[derive(Deserialize)]
struct Fields {
    hours: Vec<(Weekday, u8)>,
    not_allowed: Vec<(Timestamp, Timestamp)>,
}

impl TryFrom<Fields> for HoursOfWeek {
    type Error = WindowError;
    fn try_from(fields: Fields) -> Result<Self, WindowError> {
        Self::new(fields.hours, fields.not_allowed)
    }
}

impl HoursOfWeek {
    /// The hours at which it is open, as days with an hour 0–23, in any order; and up to [`MOST_EXCLUSIONS`] spans, from
    /// and until (exclusive), in which it is closed all the same.
    pub fn new(mut hours: Vec<(Weekday, u8)>, not_allowed: Vec<(Timestamp, Timestamp)>) -> Result<Self, WindowError> {
        if let Some((day, hour)) = hours.iter().find(|(_, hour)| *hour > 23) {
            return Err(WindowError::new("timeInWeek", format!("hour {hour} of {day:?} is not from 0 to 23")));
        }
        if hours.is_empty() {
            return Err(WindowError::new("timeInWeek", "it names no hour, so that the window would never open"));
        }
        hours.sort_unstable();
        hours.dedup();
        if not_allowed.len() > MOST_EXCLUSIONS {
            let reason = format!("{} spans; at most {MOST_EXCLUSIONS} are allowed", not_allowed.len());
            return Err(WindowError::new("notAllowedTime", reason));
        }
        if let Some(at) = not_allowed.iter().position(|(from, until)| from > until) {
            let (from, until) = not_allowed[at];
            let reason = format!("it ends at {until}, before it starts at {from}");
            return Err(WindowError::new(format!("notAllowedTime[{at}]"), reason));
        }
        let spans = not_allowed.into_iter().filter(|(from, until)| from < until).collect();
        Ok(Self { hours, not_allowed: merge(spans, |until| until) })
    }

    /// Whether it is open in an hour, counted from 1970.
    fn holds(&self, hour: i64) -> bool {
        let of_week = (hour + 3 * 24).rem_euclid(HOURS); // 1970 began on a Thursday.
        self.hours.binary_search_by_key(&of_week, |(day, hour)| *day as i64 * 24 + i64::from(*hour)).is_ok()
    }
}

/// The hour that an instant is in, counted from 1970.
fn hour_of(at: Timestamp) -> i64 {
    at.as_nanosecond().div_euclid(HOUR.as_nanos()) as i64
}

fn start_of(hour: i64) -> Timestamp {
    Timestamp::from_second(hour * 3600).unwrap_or(NEVER)
}

impl Openings for HoursOfWeek {
    fn open_until(&self, at: Timestamp) -> Option<Timestamp> {
        let hour = hour_of(at);
        if at == NEVER || !self.holds(hour) {
            return None;
        }
        let closed = (hour + 1..=hour + HOURS).find(|hour| !self.holds(*hour));
        Some(closed.map_or(NEVER, start_of))
    }

    fn opens_after(&self, at: Timestamp) -> Option<Timestamp> {
        let hour = hour_of(at);
        (hour + 1..=hour + HOURS).find(|hour| self.holds(*hour)).map(start_of)
    }

    fn excluded_until(&self, at: Timestamp) -> Option<Timestamp> {
        self.not_allowed.iter().find(|(from, until)| *from <= at && at < *until).map(|(_, until)| *until)
    }

    fn excluded_after(&self, at: Timestamp) -> Option<Timestamp> {
        self.not_allowed.iter().map(|(from, _)| *from).find(|from| *from > at)
    }
}
