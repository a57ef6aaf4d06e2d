//! Maintenance windows: the documented cases, what holds for all of them, and other people's calendars.

mod algebra;
mod checks;
mod clocks;
mod edges;
mod recurrence;
mod vectors;

use flotta_model::{
    MaintenanceWindow,
    gate::Weekday,
    window::{HoursOfWeek, LocalTime, Recurrence, RecurrenceFields, Schedule},
};
use jiff::{Timestamp, civil::Date};

fn at(text: &str) -> Timestamp {
    text.parse().expect(text)
}

fn date(text: &str) -> Date {
    text.parse().expect(text)
}

/// What a window is made from: a schedule, when it opens (`HH:MM`), for how many hours, and whose clocks count: an
/// offset in minutes, or the name of a zone.
fn fields(schedule: Schedule, opens: &str, duration_hours: u8, clocks: &str) -> RecurrenceFields {
    let (hour, minute) = opens.split_once(':').expect("HH:MM");
    let local = match clocks.parse() {
        Ok(minutes) => LocalTime::Offset(minutes),
        Err(_) => LocalTime::Zone(clocks.parse().expect(clocks)),
    };
    RecurrenceFields {
        schedule,
        start_minute: hour.parse::<u16>().expect("HH") * 60 + minute.parse::<u16>().expect("MM"),
        duration_hours,
        local,
        start_date: None,
        not_allowed: Vec::new(),
    }
}

fn window(fields: RecurrenceFields) -> MaintenanceWindow {
    MaintenanceWindow::Recurring(Recurrence::try_from(fields).expect("a window"))
}

fn hours(hours: &[(Weekday, u8)], not_allowed: &[(&str, &str)]) -> MaintenanceWindow {
    let not_allowed = not_allowed.iter().map(|(from, until)| (at(from), at(until))).collect();
    MaintenanceWindow::HoursOfWeek(HoursOfWeek::new(hours.to_vec(), not_allowed).expect("hours"))
}

trait With {
    fn from(self, start: &str) -> Self;
    fn except(self, spans: &[(&str, &str)]) -> Self;
}

impl With for RecurrenceFields {
    fn from(self, start: &str) -> Self {
        Self { start_date: Some(date(start)), ..self }
    }
    fn except(self, spans: &[(&str, &str)]) -> Self {
        Self { not_allowed: spans.iter().map(|(start, end)| (date(start), date(end))).collect(), ..self }
    }
}

/// The openings from an instant on, until the first that is not before another: when each begins and ends.
fn openings(window: &MaintenanceWindow, from: &str, until: &str) -> Vec<String> {
    let (mut now, mut found) = (at(from), Vec::new());
    while let Some(open) = window.next_open(now).filter(|open| *open < at(until)) {
        let Some(closed) = window.closes(open) else {
            found.push(format!("{open}/"));
            break;
        };
        found.push(format!("{open}/{closed}"));
        now = closed;
    }
    found
}

#[track_caller]
fn check_openings(window: &MaintenanceWindow, from: &str, until: &str, expect: &[&str]) {
    assert_eq!(openings(window, from, until), expect);
}

#[track_caller]
fn check_open(window: &MaintenanceWindow, cases: &[(&str, bool)]) {
    for (instant, open) in cases {
        assert_eq!(window.is_open(at(instant)), *open, "at {instant}");
    }
}
