//! Far ends: of time, of schedules, and of work.

use flotta_model::{
    gate::Weekday,
    window::{Schedule, WeekIndex},
};
use jiff::{SignedDuration, Timestamp};

use crate::*;

/// One window of each kind, with everything that can be far away.
fn all() -> Vec<MaintenanceWindow> {
    let schedules = [
        Schedule::Daily { interval: 1 },
        Schedule::Daily { interval: 7 },
        Schedule::Weekly { interval: 4, day: Weekday::Sunday },
        Schedule::AbsoluteMonthly { interval: 6, day: 31 },
        Schedule::RelativeMonthly { interval: 5, week: WeekIndex::Last, day: Weekday::Monday },
    ];
    let spans: [&[(&str, &str)]; 5] = [
        &[],
        &[("-009999-01-01", "-009998-01-01"), ("9999-12-01", "9999-12-31")],
        &[("-009999-01-01", "9999-12-31")],
        &[("2027-01-01", "9999-12-31")],
        &[("-009999-01-01", "2027-01-01")],
    ];
    let mut all = vec![
        hours(&[(Weekday::Monday, 0)], &[("-009999-01-02T01:59:59Z", "9999-12-30T22:00:00Z")]),
        hours(&[(Weekday::Sunday, 23)], &[]),
    ];
    for schedule in schedules {
        for clocks in ["-840", "840", "Pacific/Apia", "Europe/Rome"] {
            for spans in spans {
                for start in [None, Some("-009999-01-01"), Some("9999-12-31"), Some("2026-01-31")] {
                    let fields = fields(schedule, "23:59", 24, clocks).except(spans);
                    all.push(window(match start {
                        Some(start) => fields.from(start),
                        None => fields,
                    }));
                }
            }
        }
    }
    all
}

#[test]
fn no_instant_is_too_early_or_too_late() {
    let ends = [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH];
    for window in all() {
        for end in ends {
            for hours in [-400_000, -100, -25, -1, 0, 1, 25, 100, 400_000] {
                let Ok(instant) = end.checked_add(SignedDuration::from_hours(hours)) else { continue };
                let open = window.is_open(instant);
                assert_eq!(window.next_open(instant) == Some(instant), open, "{window:?} at {instant}");
                assert!(window.next_open(instant).is_none_or(|next| next >= instant && window.is_open(next)));
                let closes = window.closes(instant);
                assert!(closes.is_none_or(|closes| open && closes > instant && !window.is_open(closes)));
            }
        }
    }
}

#[test]
fn the_next_opening_is_found_however_far_away() {
    let weekly = Schedule::Weekly { interval: 3, day: Weekday::Friday };
    let far = window(fields(weekly, "00:00", 8, "330").from("2123-01-01"));
    assert_eq!(far.next_open(at("2026-12-01T00:00:00Z")), Some(at("2122-12-31T18:30:00Z")));
    let blocked = window(fields(weekly, "00:00", 8, "0").except(&[("2020-01-01", "2999-12-31")]));
    let open = blocked.next_open(at("2026-12-01T00:00:00Z")).expect("an opening");
    assert!(open >= at("3000-01-01T00:00:00Z") && open < at("3000-01-23T00:00:00Z"), "{open}");
    let never = window(fields(weekly, "00:00", 8, "0").except(&[("2020-01-01", "9999-12-31")]));
    assert_eq!(never.next_open(at("2026-12-01T00:00:00Z")), None);
}

#[test]
fn a_hundred_exclusions_that_hit_every_opening_are_passed() {
    let monthly = Schedule::AbsoluteMonthly { interval: 6, day: 1 };
    let spans: Vec<(String, String)> = (0..100)
        .map(|half| format!("{}-{:02}-01", 2027 + half / 2, 1 + half % 2 * 6))
        .map(|day| (day.clone(), day))
        .collect();
    let spans: Vec<(&str, &str)> = spans.iter().map(|(start, end)| (start.as_str(), end.as_str())).collect();
    let blocked = window(fields(monthly, "12:00", 4, "Europe/Rome").from("2027-01-01").except(&spans));
    assert_eq!(blocked.next_open(at("2026-12-01T00:00:00Z")), Some(at("2077-01-01T11:00:00Z")));
}

#[test]
fn adjacent_exclusions_are_one_and_order_does_not_matter() {
    let day = fields(Schedule::Daily { interval: 1 }, "00:00", 24, "0");
    let spans = [("2026-01-05", "2026-01-06"), ("2026-01-01", "2026-01-02"), ("2026-01-03", "2026-01-04")];
    let merged = window(day.clone().except(&spans));
    assert_eq!(merged, window(day.except(&[("2026-01-01", "2026-01-06")])));
    assert_eq!(merged.next_open(at("2026-01-01T12:00:00Z")), Some(at("2026-01-07T00:00:00Z")));
}

#[test]
fn a_window_that_is_open_at_every_hour_never_closes() {
    let days = [
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
        Weekday::Sunday,
    ];
    let all: Vec<(Weekday, u8)> = days.into_iter().flat_map(|day| (0..24).map(move |hour| (day, hour))).collect();
    assert_eq!(hours(&all, &[]).closes(at("2026-01-01T00:00:00Z")), None);
    let span = [("2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z")];
    assert_eq!(hours(&all, &span).closes(at("2026-01-01T00:00:00Z")), Some(at("2026-02-01T00:00:00Z")));
}
