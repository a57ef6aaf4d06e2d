//! Zones: both switches of the clocks, and zones with odd ones.

use flotta_model::{gate::Weekday, window::Schedule};

use crate::*;

const SUNDAY: Schedule = Schedule::Weekly { interval: 1, day: Weekday::Sunday };

#[test]
fn e45_rome_in_spring_and_autumn() {
    let rome = window(fields(SUNDAY, "02:30", 4, "Europe/Rome"));
    check_openings(
        &rome,
        "2026-03-20T00:00:00Z",
        "2026-04-10T00:00:00Z",
        &[
            "2026-03-22T01:30:00Z/2026-03-22T05:30:00Z",
            "2026-03-29T01:30:00Z/2026-03-29T05:30:00Z", // 02:30 is skipped: 03:30 summer time, four hours of it
            "2026-04-05T00:30:00Z/2026-04-05T04:30:00Z",
        ],
    );
    check_openings(
        &rome,
        "2026-10-18T00:00:00Z",
        "2026-11-02T00:00:00Z",
        &[
            "2026-10-18T00:30:00Z/2026-10-18T04:30:00Z",
            "2026-10-25T00:30:00Z/2026-10-25T04:30:00Z", // 02:30 comes twice: the first
            "2026-11-01T01:30:00Z/2026-11-01T05:30:00Z",
        ],
    );
}

#[test]
fn e45_new_york_in_spring_and_autumn() {
    let new_york = window(fields(SUNDAY, "01:30", 6, "America/New_York"));
    check_openings(
        &new_york,
        "2026-03-01T00:00:00Z",
        "2026-03-16T00:00:00Z",
        &[
            "2026-03-01T06:30:00Z/2026-03-01T12:30:00Z",
            "2026-03-08T06:30:00Z/2026-03-08T12:30:00Z", // six hours, until 08:30 on the clocks
            "2026-03-15T05:30:00Z/2026-03-15T11:30:00Z",
        ],
    );
    check_openings(
        &new_york,
        "2026-10-25T00:00:00Z",
        "2026-11-09T00:00:00Z",
        &[
            "2026-10-25T05:30:00Z/2026-10-25T11:30:00Z",
            "2026-11-01T05:30:00Z/2026-11-01T11:30:00Z", // the first 01:30; until 06:30 on the clocks
            "2026-11-08T06:30:00Z/2026-11-08T12:30:00Z",
        ],
    );
    let skipped = window(fields(SUNDAY, "02:15", 4, "America/New_York"));
    assert_eq!(skipped.next_open(at("2026-03-08T00:00:00Z")), Some(at("2026-03-08T07:15:00Z")), "03:15 summer time");
}

#[test]
fn e45_an_offset_shifts_by_an_hour_on_the_clocks_and_a_zone_does_not() {
    let (offset, zone) = (window(fields(SUNDAY, "04:00", 4, "60")), window(fields(SUNDAY, "04:00", 4, "Europe/Rome")));
    for (week, offset_opens, zone_opens) in [
        ("2026-03-21T12:00:00Z", "2026-03-22T03:00:00Z", "2026-03-22T03:00:00Z"),
        ("2026-03-28T12:00:00Z", "2026-03-29T03:00:00Z", "2026-03-29T02:00:00Z"),
        ("2026-10-24T12:00:00Z", "2026-10-25T03:00:00Z", "2026-10-25T03:00:00Z"),
    ] {
        assert_eq!(offset.next_open(at(week)), Some(at(offset_opens)), "offset, {week}");
        assert_eq!(zone.next_open(at(week)), Some(at(zone_opens)), "zone, {week}");
    }
}

#[test]
fn e45_days_that_are_not_allowed_follow_the_clocks() {
    let day = fields(Schedule::Daily { interval: 1 }, "00:00", 23, "Europe/Rome");
    let blocked = window(day.except(&[("2026-03-29", "2026-03-29"), ("2026-10-25", "2026-10-25")]));
    check_openings(
        &blocked,
        "2026-03-27T23:00:00Z",
        "2026-03-30T00:00:00Z",
        &["2026-03-27T23:00:00Z/2026-03-28T22:00:00Z", "2026-03-29T22:00:00Z/2026-03-30T21:00:00Z"],
    );
    check_openings(
        &blocked,
        "2026-10-23T22:00:00Z",
        "2026-10-26T00:00:00Z",
        &["2026-10-23T22:00:00Z/2026-10-24T21:00:00Z", "2026-10-25T23:00:00Z/2026-10-26T22:00:00Z"],
    );
}

#[test]
fn a_midnight_that_the_clocks_skip_is_the_moment_they_go_on() {
    // In Santiago clocks go from 24:00 on 6 September 2025 to 01:00, and from 24:00 on 4 April 2026 back to 23:00.
    let day = fields(Schedule::Daily { interval: 1 }, "00:00", 4, "America/Santiago");
    let blocked = window(day.clone().except(&[("2025-09-06", "2025-09-06"), ("2026-04-04", "2026-04-04")]));
    check_openings(
        &window(day),
        "2025-09-06T04:00:00Z",
        "2025-09-09T00:00:00Z",
        &[
            "2025-09-06T04:00:00Z/2025-09-06T08:00:00Z",
            "2025-09-07T04:00:00Z/2025-09-07T08:00:00Z",
            "2025-09-08T03:00:00Z/2025-09-08T07:00:00Z",
        ],
    );
    check_open(
        &blocked,
        &[
            ("2025-09-06T05:00:00Z", false),
            ("2025-09-07T04:00:00Z", true),
            ("2026-04-05T03:59:59Z", false), // 23:59:59 for the second time
            ("2026-04-05T04:00:00Z", true),
        ],
    );
}

#[test]
fn clocks_that_are_turned_back_over_midnight_close_nothing() {
    // In St. John's, on 29 October 2006 at 00:01, it became 23:01 on the 28th.
    let midnight = window(fields(Schedule::Daily { interval: 1 }, "00:00", 4, "America/St_Johns"));
    check_open(
        &midnight,
        &[
            ("2006-10-29T02:29:59Z", false),
            ("2006-10-29T02:30:00Z", true), // 00:00 for the first time
            ("2006-10-29T02:45:00Z", true), // 23:15 for the second time
            ("2006-10-29T03:45:00Z", true),
            ("2006-10-29T06:30:00Z", false),
        ],
    );
}

#[test]
fn a_day_that_a_zone_skips_altogether_is_no_trouble() {
    // Samoa had no 30 December 2011.
    let day = fields(Schedule::Daily { interval: 1 }, "09:00", 4, "Pacific/Apia");
    let expect = ["2011-12-29T19:00:00Z/2011-12-29T23:00:00Z", "2011-12-30T19:00:00Z/2011-12-30T23:00:00Z"];
    check_openings(&window(day.clone()), "2011-12-29T00:00:00Z", "2011-12-31T00:00:00Z", &expect);
    let skipped = [("2011-12-30", "2011-12-30")];
    let blocked = window(day.clone().except(&skipped));
    check_openings(&blocked, "2011-12-29T00:00:00Z", "2011-12-31T00:00:00Z", &expect);
    // The day is not allowed and never comes: what runs over from the day before it is not cut.
    let night = window(RecurrenceFields { start_minute: 22 * 60, ..day.except(&skipped) });
    check_openings(
        &night,
        "2011-12-30T00:00:00Z",
        "2011-12-31T00:00:00Z",
        &["2011-12-30T08:00:00Z/2011-12-30T12:00:00Z"],
    );
}

#[test]
fn whole_days_every_day_close_for_an_hour_where_clocks_are_turned_back() {
    let day = |clocks| window(fields(Schedule::Daily { interval: 1 }, "02:30", 24, clocks));
    let now = at("2026-01-01T00:00:00Z");
    assert_eq!(day("Europe/Rome").closes(now), Some(at("2026-10-26T00:30:00Z")));
    assert_eq!(day("Europe/Rome").next_open(at("2026-10-26T00:30:00Z")), Some(at("2026-10-26T01:30:00Z")));
    let within_the_last = at("2026-10-25T12:00:00Z"); // it began before the clocks were turned back
    assert_eq!(day("Europe/Rome").closes(within_the_last), Some(at("2026-10-26T00:30:00Z")));
    for never in ["0", "330", "UTC", "Asia/Kolkata"] {
        assert_eq!((day(never).is_open(now), day(never).closes(now)), (true, None), "{never}");
    }
}
