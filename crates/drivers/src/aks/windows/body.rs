//! Maintenance configurations, read into the model. Errors name the field by its path below `properties`.

use std::{fmt, str::FromStr};

use flotta_model::{
    MaintenanceWindow, WindowKind, Zone,
    gate::Weekday,
    window::{HoursOfWeek, LocalTime, Recurrence, RecurrenceFields, Schedule, WeekIndex, WindowError},
};
use jiff::{Timestamp, civil::Date};
use serde_json::Value;

/// The tag of a cluster that names the zone whose clocks its windows follow. AKS knows offsets only.
const ZONE_TAG: &str = "flotta-time-zone";

/// A window that cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("its maintenance configuration {name} cannot be read: {error}")]
pub(super) struct Unreadable {
    name: &'static str,
    error: WindowError,
}

type Read<T> = Result<T, WindowError>;

/// The configuration that counts for a kind of upgrade.
fn name(kind: WindowKind) -> &'static str {
    match kind {
        WindowKind::AutoUpgrade => "aksManagedAutoUpgradeSchedule",
        WindowKind::NodeOs => "aksManagedNodeOSUpgradeSchedule",
    }
}

fn find(configurations: &[Value], kind: WindowKind) -> Option<&Value> {
    let named = |each: &&Value| each["name"].as_str().is_some_and(|given| given.eq_ignore_ascii_case(name(kind)));
    configurations.iter().find(named)
}

/// Whether the cluster's tags may say what a window means.
pub(super) fn wants_zone(configurations: &[Value]) -> bool {
    [WindowKind::AutoUpgrade, WindowKind::NodeOs].into_iter().any(|kind| {
        let window = find(configurations, kind).map(|found| &found["properties"]["maintenanceWindow"]);
        window.is_some_and(|window| window.is_object() && window["timeZone"].is_null())
    })
}

/// The window for a kind of upgrade, with what the cluster's tags say about it.
pub(super) fn window(
    configurations: &[Value],
    kind: WindowKind,
    tags: &Value,
) -> Result<Option<MaintenanceWindow>, Unreadable> {
    let name = name(kind);
    let nameless = || WindowError::new("name", "a configuration has none, so that it may be this one");
    match find(configurations, kind) {
        Some(found) => properties(&found["properties"], tags).map(Some),
        None if configurations.iter().any(|each| !each["name"].is_string()) => Err(nameless()),
        None => Ok(None),
    }
    .map_err(|error| Unreadable { name, error })
}

fn properties(properties: &Value, tags: &Value) -> Read<MaintenanceWindow> {
    let properties = Field { path: String::new(), value: properties };
    let (window, hours) = (properties.get("maintenanceWindow"), properties.get("timeInWeek"));
    let spans = properties.get("notAllowedTime").filter(|spans| spans.value != &Value::Array(Vec::new()));
    match (window, hours) {
        (Some(window), None) if spans.is_none() => recurring(&window, tags).map(MaintenanceWindow::Recurring),
        (Some(window), _) => {
            Err(window.refuse("it is there beside timeInWeek or notAllowedTime, and only one form can count"))
        }
        (None, Some(hours)) => hours_of_week(&hours, spans).map(MaintenanceWindow::HoursOfWeek),
        (None, None) => Err(WindowError::new("maintenanceWindow", "it is missing, and timeInWeek is too")),
    }
}

fn recurring(window: &Field, tags: &Value) -> Read<Recurrence> {
    let spans = window.get("notAllowedDates").map_or_else(|| Ok(Vec::new()), |spans| spans.items())?;
    let fields = RecurrenceFields {
        schedule: schedule(&window.need("schedule")?)?,
        start_minute: window.need("startTime")?.read("HH:MM, such as 02:30", minutes)?,
        duration_hours: window.need("durationHours")?.number()?,
        local: local(window, tags)?,
        start_date: window.get("startDate").map(|start| start.date()).transpose()?,
        not_allowed: spans
            .iter()
            .map(|span| Ok((span.need("start")?.date()?, span.need("end")?.date()?)))
            .collect::<Read<_>>()?,
    };
    Recurrence::try_from(fields)
        .map_err(|error| WindowError::new(format!("{}.{}", window.path, error.field), error.reason))
}

/// What local time is: the window's own zone, else that of the cluster's tags, else an offset.
fn local(window: &Field, tags: &Value) -> Read<LocalTime> {
    // Azure keeps the names of tags as they were written, and compares them without regard to case.
    let tag = tags.as_object().and_then(|tags| tags.iter().find(|(name, _)| name.eq_ignore_ascii_case(ZONE_TAG)));
    let tag = tag.map(|(name, value)| Field { path: format!("tag {name} of the cluster"), value });
    if let Some(zone) = window.get("timeZone").or(tag) {
        let zone = Zone::from_str(zone.text()?.trim()).map_err(|error| zone.refuse(error))?;
        return Ok(LocalTime::Zone(zone));
    }
    let Some(offset) = window.get("utcOffset") else { return Ok(LocalTime::Offset(0)) };
    let east = offset.read("an offset, such as +05:30 or -08:00", |text| match text.strip_prefix('-') {
        Some(west) => Some(-(minutes(west)? as i16)),
        None => Some(minutes(text.strip_prefix('+')?)? as i16),
    })?;
    Ok(LocalTime::Offset(east))
}

/// Minutes, written as hours and minutes of two digits each.
fn minutes(text: &str) -> Option<u16> {
    let two = |digits: &str| {
        let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    };
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (u16, u16) = (two(hours)?, two(minutes)?);
    (minutes < 60).then_some(hours * 60 + minutes)
}

fn schedule(schedule: &Field) -> Read<Schedule> {
    let kinds = schedule.value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let mut kinds = kinds.map(|(name, _)| name.as_str());
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        return Err(schedule.refuse("it must be one of daily, weekly, absoluteMonthly and relativeMonthly"));
    };
    let of = schedule.need(kind)?;
    Ok(match kind {
        "daily" => Schedule::Daily { interval: of.need("intervalDays")?.number()? },
        "weekly" => Schedule::Weekly {
            interval: of.need("intervalWeeks")?.number()?,
            day: of.need("dayOfWeek")?.one_of(&Weekday::NAMES)?,
        },
        "absoluteMonthly" => Schedule::AbsoluteMonthly {
            interval: of.need("intervalMonths")?.number()?,
            day: of.need("dayOfMonth")?.number()?,
        },
        "relativeMonthly" => Schedule::RelativeMonthly {
            interval: of.need("intervalMonths")?.number()?,
            week: of.need("weekIndex")?.one_of(&WEEKS)?,
            day: of.need("dayOfWeek")?.one_of(&Weekday::NAMES)?,
        },
        _ => return Err(of.refuse("flotta does not know this kind of schedule")),
    })
}

fn hours_of_week(days: &Field, spans: Option<Field>) -> Read<HoursOfWeek> {
    let mut hours = Vec::new();
    for each in days.items()? {
        let day = each.need("day")?.one_of(&Weekday::NAMES)?;
        for hour in each.need("hourSlots")?.items()? {
            hours.push((day, hour.number()?));
        }
    }
    let spans = spans.map_or_else(|| Ok(Vec::new()), |spans| spans.items())?;
    let spans = spans.iter().map(|span| Ok((span.need("start")?.instant()?, span.need("end")?.instant()?)));
    HoursOfWeek::new(hours, spans.collect::<Read<_>>()?)
}

const WEEKS: [(&str, WeekIndex); 5] = [
    ("First", WeekIndex::First),
    ("Second", WeekIndex::Second),
    ("Third", WeekIndex::Third),
    ("Fourth", WeekIndex::Fourth),
    ("Last", WeekIndex::Last),
];

/// A value, and where it stands.
struct Field<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    fn refuse(&self, reason: impl fmt::Display) -> WindowError {
        WindowError::new(self.path.clone(), reason.to_string())
    }

    /// A field of this object; null is as good as none.
    fn get(&self, name: &str) -> Option<Field<'a>> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Some(Field { path, value })
    }

    fn need(&self, name: &str) -> Read<Field<'a>> {
        let missing = Field { path: format!("{}.{name}", self.path), value: self.value };
        self.get(name).ok_or_else(|| missing.refuse("it is missing"))
    }

    fn items(&self) -> Read<Vec<Field<'a>>> {
        let items = self.value.as_array().ok_or_else(|| self.refuse("it is not a list"))?;
        let items = items.iter().enumerate();
        Ok(items.map(|(at, value)| Field { path: format!("{}[{at}]", self.path), value }).collect())
    }

    fn text(&self) -> Read<&'a str> {
        self.value.as_str().ok_or_else(|| self.refuse("it is not a text"))
    }

    /// The value as it is shown in errors.
    fn short(&self) -> String {
        let text = self.value.as_str().map_or_else(|| self.value.to_string(), str::to_owned);
        text.chars().take(60).collect()
    }

    fn number(&self) -> Read<u8> {
        let number = self.value.as_u64().and_then(|number| u8::try_from(number).ok());
        number.ok_or_else(|| self.refuse(format_args!("'{}' is not a number from 0 to 255", self.short())))
    }

    fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Read<T> {
        let text = self.text()?;
        let known = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        known.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.refuse(format_args!("'{}' is not one of {}", self.short(), words.join(", ")))
        })
    }

    /// What a text means; `what` says what it should have been.
    fn read<T>(&self, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Read<T> {
        read(self.text()?).ok_or_else(|| self.refuse(format_args!("'{}' is not {what}", self.short())))
    }

    fn date(&self) -> Read<Date> {
        self.read("a date, such as 2026-12-24", |text| text.parse().ok())
    }

    fn instant(&self) -> Read<Timestamp> {
        self.read("a time with its offset, such as 2026-12-24T18:00:00Z", |text| text.parse().ok())
    }
}
