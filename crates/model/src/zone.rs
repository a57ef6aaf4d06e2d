//! Time zones by their IANA names, from a database inside the binary: what a zone means must not depend on the machine.

use std::{cmp::Ordering, fmt, str::FromStr, sync::OnceLock};

use jiff::{
    SignedDuration, Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};

use crate::serde_as_text;

/// A time zone of the IANA database, such as `Europe/Rome`, with its daylight saving.
#[derive(Clone, Debug)]
pub struct Zone {
    name: Box<str>,
    zone: TimeZone,
}

/// There is no such zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time zone: use an IANA name, such as Europe/Rome or UTC")]
pub struct ZoneError(String);

fn database() -> &'static TimeZoneDatabase {
    static DATABASE: OnceLock<TimeZoneDatabase> = OnceLock::new();
    DATABASE.get_or_init(TimeZoneDatabase::bundled)
}

impl Zone {
    /// The name, in the database's spelling.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The zone's rules.
    pub fn rules(&self) -> &TimeZone {
        &self.zone
    }

    /// Whether clocks there stand this many minutes east of UTC at some time of the years to come.
    pub fn uses_offset(&self, minutes: i16) -> bool {
        self.offsets().contains(&minutes)
    }

    /// The offset, in minutes east of UTC, without daylight saving.
    pub fn standard_offset(&self) -> i16 {
        self.offsets().into_iter().min().unwrap_or(0)
    }

    /// The offsets of a year far away: those of the zone's present rules.
    fn offsets(&self) -> Vec<i16> {
        let far = Timestamp::constant(4_102_444_800, 0); // 2100-01-01
        let year_before = far - SignedDuration::from_hours(366 * 24);
        let minutes = |at| (self.zone.to_offset(at).seconds() / 60) as i16;
        let changes = self.zone.preceding(far).take_while(|change| change.timestamp() > year_before);
        changes.map(|change| minutes(change.timestamp())).chain([minutes(far)]).collect()
    }
}

impl FromStr for Zone {
    type Err = ZoneError;
    fn from_str(text: &str) -> Result<Self, ZoneError> {
        let refuse = || ZoneError(text.chars().take(60).collect());
        let known = !text.eq_ignore_ascii_case("Factory");
        let zone = database().get(text).ok().filter(|_| known).ok_or_else(refuse)?;
        let name = zone.iana_name().ok_or_else(refuse)?.into();
        Ok(Self { name, zone })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl PartialOrd for Zone {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Zone {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

serde_as_text!(Zone);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_go_by_their_iana_names() {
        let rome: Zone = "europe/rome".parse().expect("rome");
        assert_eq!(rome.as_str(), "Europe/Rome");
        assert_eq!(rome.standard_offset(), 60);
        assert!(rome.uses_offset(60) && rome.uses_offset(120) && !rome.uses_offset(0));
        let india: Zone = "Asia/Kolkata".parse().expect("kolkata");
        assert!(india.uses_offset(330) && !india.uses_offset(300));
        let tokyo: Zone = "Asia/Tokyo".parse().expect("tokyo");
        assert!(tokyo.uses_offset(540) && !tokyo.uses_offset(600), "rules of long ago do not count");
        let caracas: Zone = "America/Caracas".parse().expect("caracas");
        assert_eq!(caracas.standard_offset(), -240);
        for bad in ["", "Rome", "Factory", "+01:00", "Europe/Nowhere", "../etc/passwd"] {
            assert!(bad.parse::<Zone>().is_err(), "{bad}");
        }
    }
}
