//! The documented cases, each on the instant.

use flotta_model::{
    gate::Weekday,
    window::{Schedule, WeekIndex},
};

use crate::*;

#[test]
fn c4_a_weekly_window_is_open_up_to_its_end_and_not_at_it() {
    let tuesday = window(fields(Schedule::Weekly { interval: 1, day: Weekday::Tuesday }, "01:00", 4, "0"));
    check_open(
        &tuesday,
        &[
            ("2026-12-01T00:59:59.999999999Z", false),
            ("2026-12-01T01:00:00Z", true),
            ("2026-12-01T04:59:00Z", true),
            ("2026-12-01T04:59:59.999999999Z", true),
            ("2026-12-01T05:00:00Z", false),
            ("2026-12-02T02:00:00Z", false),
        ],
    );
    assert_eq!(tuesday.next_open(at("2026-12-01T05:00:00Z")), Some(at("2026-12-08T01:00:00Z")));
    assert_eq!(tuesday.closes(at("2026-12-01T03:00:00Z")), Some(at("2026-12-01T05:00:00Z")));
    assert_eq!(tuesday.closes(at("2026-12-01T05:00:00Z")), None, "it is closed already");
}

#[test]
fn c4_every_third_friday_in_india_opens_on_thursday_in_utc() {
    let friday = Schedule::Weekly { interval: 3, day: Weekday::Friday };
    let friday = window(fields(friday, "00:00", 8, "330").from("2023-01-01")); // a Sunday: its week began on 26 December
    check_openings(
        &friday,
        "2023-01-01T00:00:00Z",
        "2023-03-01T00:00:00Z",
        &["2023-01-19T18:30:00Z/2023-01-20T02:30:00Z", "2023-02-09T18:30:00Z/2023-02-10T02:30:00Z"],
    );
}

#[test]
fn c4_a_quarterly_window_is_blocked_by_dates_that_are_not_allowed() {
    let quarterly = Schedule::AbsoluteMonthly { interval: 3, day: 1 };
    let free = fields(quarterly, "09:00", 4, "-480").from("2023-06-21");
    let blocked = free.clone().except(&[("2023-11-23", "2023-11-26"), ("2023-12-23", "2024-01-05")]);
    // Months are counted from June.
    let (free, blocked) = (window(free), window(blocked));
    check_open(&blocked, &[("2023-09-01T17:00:00Z", true), ("2023-12-01T17:00:00Z", true)]);
    let from_july = fields(quarterly, "09:00", 4, "-480").from("2023-07-01");
    let spans = [("2023-11-23", "2023-11-26"), ("2023-12-23", "2024-01-05")];
    check_open(&window(from_july.clone()), &[("2024-01-01T17:00:00Z", true)]);
    check_open(&window(from_july.except(&spans)), &[("2024-01-01T17:00:00Z", false)]);
    check_openings(
        &free,
        "2023-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z",
        &["2023-09-01T17:00:00Z/2023-09-01T21:00:00Z", "2023-12-01T17:00:00Z/2023-12-01T21:00:00Z"],
    );
}

#[test]
fn c4_dates_that_are_not_allowed_are_whole_local_days_with_both_ends() {
    let blocked = fields(Schedule::Daily { interval: 1 }, "00:00", 24, "120").except(&[("2022-12-23", "2023-01-03")]);
    let blocked = window(blocked);
    check_open(
        &blocked,
        &[
            ("2022-12-22T21:59:00Z", true),
            ("2022-12-22T22:00:00Z", false),
            ("2023-01-03T21:59:00Z", false),
            ("2023-01-03T22:00:00Z", true),
        ],
    );
    assert_eq!(blocked.closes(at("2022-01-01T00:00:00Z")), Some(at("2022-12-22T22:00:00Z")));
    assert_eq!(blocked.next_open(at("2022-12-30T00:00:00Z")), Some(at("2023-01-03T22:00:00Z")));
    assert_eq!(blocked.closes(at("2023-01-03T22:00:00Z")), None, "it never closes again");
}

#[test]
fn c4_the_last_monday_is_the_fifth_where_there_are_five() {
    let last = Schedule::RelativeMonthly { interval: 2, week: WeekIndex::Last, day: Weekday::Monday };
    let last = window(fields(last, "01:00", 4, "0").from("2024-01-01"));
    check_openings(
        &last,
        "2024-01-01T00:00:00Z",
        "2024-09-01T00:00:00Z",
        &[
            "2024-01-29T01:00:00Z/2024-01-29T05:00:00Z", // the fifth
            "2024-03-25T01:00:00Z/2024-03-25T05:00:00Z", // the fourth
            "2024-05-27T01:00:00Z/2024-05-27T05:00:00Z",
            "2024-07-29T01:00:00Z/2024-07-29T05:00:00Z", // the fifth
        ],
    );
}

#[test]
fn c1_weeks_of_the_month_go_from_the_first_to_the_fourth() {
    for (week, expect) in [
        (WeekIndex::First, "2024-01-01T01:00:00Z"),
        (WeekIndex::Second, "2024-01-08T01:00:00Z"),
        (WeekIndex::Third, "2024-01-15T01:00:00Z"),
        (WeekIndex::Fourth, "2024-01-22T01:00:00Z"),
    ] {
        let nth =
            window(fields(Schedule::RelativeMonthly { interval: 1, week, day: Weekday::Monday }, "01:00", 4, "0"));
        assert_eq!(nth.next_open(at("2024-01-01T00:00:00Z")), Some(at(expect)), "{week:?}");
    }
}

#[test]
fn c2_intervals_are_counted_from_the_start_date_and_nothing_is_before_it() {
    let from = |schedule, start: &str| window(fields(schedule, "10:00", 4, "0").from(start));
    let daily = from(Schedule::Daily { interval: 3 }, "2026-03-05");
    check_open(
        &daily,
        &[
            ("2026-03-02T11:00:00Z", false), // three days before the start
            ("2026-03-05T11:00:00Z", true),
            ("2026-03-06T11:00:00Z", false),
            ("2026-03-08T11:00:00Z", true),
        ],
    );
    // A Monday in the week of the start, before the start: the first is two weeks later, not one.
    let weekly = from(Schedule::Weekly { interval: 2, day: Weekday::Monday }, "2026-03-05");
    assert_eq!(weekly.next_open(at("2020-01-01T00:00:00Z")), Some(at("2026-03-16T10:00:00Z")));
    let weekly = from(Schedule::Weekly { interval: 2, day: Weekday::Sunday }, "2026-03-05");
    assert_eq!(weekly.next_open(at("2020-01-01T00:00:00Z")), Some(at("2026-03-08T10:00:00Z")));
    let monthly = from(Schedule::AbsoluteMonthly { interval: 6, day: 2 }, "2026-03-05");
    assert_eq!(monthly.next_open(at("2020-01-01T00:00:00Z")), Some(at("2026-09-02T10:00:00Z")));
    // Without one: from Monday, 1 January 2001.
    let monthly = window(fields(Schedule::AbsoluteMonthly { interval: 6, day: 2 }, "10:00", 4, "0"));
    assert_eq!(monthly.next_open(at("2026-03-05T00:00:00Z")), Some(at("2026-07-02T10:00:00Z")));
    assert_eq!(monthly.next_open(at("1999-03-05T00:00:00Z")), Some(at("1999-07-02T10:00:00Z")));
}

#[test]
fn c2_a_month_that_is_too_short_opens_on_its_last_day() {
    let last = window(fields(Schedule::AbsoluteMonthly { interval: 1, day: 31 }, "22:00", 4, "0").from("2024-01-01"));
    check_openings(
        &last,
        "2024-01-01T00:00:00Z",
        "2024-05-01T00:00:00Z",
        &[
            "2024-01-31T22:00:00Z/2024-02-01T02:00:00Z",
            "2024-02-29T22:00:00Z/2024-03-01T02:00:00Z",
            "2024-03-31T22:00:00Z/2024-04-01T02:00:00Z",
            "2024-04-30T22:00:00Z/2024-05-01T02:00:00Z",
        ],
    );
}

#[test]
fn c2_an_occurrence_belongs_to_its_start_date_and_runs_over_midnight() {
    let sunday = Schedule::Weekly { interval: 1, day: Weekday::Sunday };
    let sunday = fields(sunday, "20:00", 10, "0").from("2026-11-01");
    check_openings(
        &window(sunday.clone()),
        "2026-10-01T00:00:00Z",
        "2026-11-10T00:00:00Z",
        &["2026-11-01T20:00:00Z/2026-11-02T06:00:00Z", "2026-11-08T20:00:00Z/2026-11-09T06:00:00Z"],
    );
    // Closed from midnight on, though it runs; closed on its own day, open again at midnight while it still runs.
    for (blocked, expect) in [
        ("2026-11-02", "2026-11-01T20:00:00Z/2026-11-02T00:00:00Z"),
        ("2026-11-01", "2026-11-02T00:00:00Z/2026-11-02T06:00:00Z"),
    ] {
        let window = window(sunday.clone().except(&[(blocked, blocked)]));
        check_openings(&window, "2026-10-01T00:00:00Z", "2026-11-03T00:00:00Z", &[expect]);
    }
}

#[test]
fn e48_it_closes_while_work_is_in_flight_and_opens_for_what_is_left_the_next_day() {
    let morning = window(fields(Schedule::Daily { interval: 1 }, "08:00", 4, "0"));
    let (started, ended) = (at("2026-12-01T11:40:00Z"), at("2026-12-01T12:15:00Z"));
    assert!(morning.is_open(started) && !morning.is_open(ended));
    assert_eq!(morning.closes(started), Some(at("2026-12-01T12:00:00Z")));
    assert_eq!(morning.next_open(ended), Some(at("2026-12-02T08:00:00Z")), "nothing starts before");
}

#[test]
fn c1_the_older_form_is_hours_of_the_week_in_utc_less_spans() {
    let days = [(Weekday::Wednesday, 1), (Weekday::Wednesday, 6), (Weekday::Tuesday, 2), (Weekday::Tuesday, 1)];
    let blocked = hours(&days, &[("2026-12-01T02:30:00Z", "2026-12-02T01:15:00Z")]);
    check_openings(
        &blocked,
        "2026-11-29T00:00:00Z",
        "2026-12-09T00:00:00Z",
        &[
            "2026-12-01T01:00:00Z/2026-12-01T02:30:00Z", // two hours in one, cut short
            "2026-12-02T01:15:00Z/2026-12-02T02:00:00Z",
            "2026-12-02T06:00:00Z/2026-12-02T07:00:00Z",
            "2026-12-08T01:00:00Z/2026-12-08T03:00:00Z",
        ],
    );
    // Sunday's last hour goes over into Monday's first.
    let over = hours(&[(Weekday::Monday, 0), (Weekday::Sunday, 23)], &[]);
    check_openings(
        &over,
        "2026-11-29T00:00:00Z",
        "2026-12-05T00:00:00Z",
        &["2026-11-29T23:00:00Z/2026-11-30T01:00:00Z"],
    );
}
