//! Openings of seventy years against another implementation of calendars (iCalendar's rules) and of zones.

use chrono::{Days, LocalResult, NaiveDate, NaiveTime, TimeDelta, TimeZone as _};
use chrono_tz::Tz;
use flotta_model::{gate::Weekday, window::WeekIndex};
use jiff::{SignedDuration, Timestamp};
use rrule::RRuleSet;

use crate::*;

fn weekday(day: Weekday) -> &'static str {
    ["MO", "TU", "WE", "TH", "FR", "SA", "SU"][day as usize]
}

/// A schedule as iCalendar writes it.
fn rule(schedule: Schedule) -> String {
    match schedule {
        Schedule::Daily { interval } => format!("FREQ=DAILY;INTERVAL={interval}"),
        Schedule::Weekly { interval, day } => {
            format!("FREQ=WEEKLY;INTERVAL={interval};WKST=MO;BYDAY={}", weekday(day))
        }
        // The last of the days up to this one that the month has.
        Schedule::AbsoluteMonthly { interval, day } if day > 28 => {
            let days: Vec<String> = (28..=day).map(|day| day.to_string()).collect();
            format!("FREQ=MONTHLY;INTERVAL={interval};BYMONTHDAY={};BYSETPOS=-1", days.join(","))
        }
        Schedule::AbsoluteMonthly { interval, day } => format!("FREQ=MONTHLY;INTERVAL={interval};BYMONTHDAY={day}"),
        Schedule::RelativeMonthly { interval, week, day } => {
            let nth = if week == WeekIndex::Last { -1 } else { week as i8 + 1 };
            format!("FREQ=MONTHLY;INTERVAL={interval};BYDAY={nth:+}{}", weekday(day))
        }
    }
}

/// The days of a schedule from a start date until the end of 2059.
fn days(schedule: Schedule, start: &str) -> Vec<NaiveDate> {
    let text = format!("DTSTART:{}T000000Z\nRRULE:{};UNTIL=20591231T235959Z", start.replace('-', ""), rule(schedule));
    let set: RRuleSet = text.parse().expect(&text);
    set.all_unchecked().into_iter().map(|at| at.date_naive()).collect()
}

/// When the clocks of a zone show a time: the first time, or by the clocks before a change that skips it.
fn instant(zone: Tz, day: NaiveDate, minute: u16) -> Timestamp {
    let time = NaiveTime::MIN + TimeDelta::minutes(minute.into());
    let local = day.and_time(time);
    let utc = match zone.from_local_datetime(&local) {
        LocalResult::Single(at) | LocalResult::Ambiguous(at, _) => at.naive_utc(),
        LocalResult::None => {
            let before = local - Days::new(1);
            let offset = before - zone.from_local_datetime(&before).earliest().expect("the day before").naive_utc();
            local - offset
        }
    };
    Timestamp::from_second(utc.and_utc().timestamp()).expect("an instant")
}

/// Each opening of a window from 1990 until the end of 2059, in the order of time.
fn opened(window: &MaintenanceWindow, until: Timestamp) -> Vec<Timestamp> {
    let (mut now, mut opened) = (at("1989-01-01T00:00:00Z"), Vec::new());
    while let Some(open) = window.next_open(now).filter(|open| *open < until) {
        opened.push(open);
        now = open + SignedDuration::from_hours(4);
        if opened.len() % 16 == 0 {
            assert_eq!(window.closes(open), Some(now));
        }
    }
    opened
}

fn compare(zone: &str, schedule: Schedule, start: &str, opens: &str) -> usize {
    let fields = fields(schedule, opens, 4, zone).from(start);
    let other: Tz = zone.parse().expect(zone);
    let mut expect: Vec<Timestamp> =
        days(schedule, start).into_iter().map(|day| instant(other, day, fields.start_minute)).collect();
    expect.dedup(); // a day that a zone skipped is the next one
    let until = instant(other, NaiveDate::from_ymd_opt(2060, 1, 1).expect("2060"), 0);
    let got = opened(&window(fields), until);
    for (got, expect) in got.iter().zip(&expect) {
        assert_eq!(got, expect, "{schedule:?} from {start} at {opens} in {zone}");
    }
    assert_eq!(got.len(), expect.len(), "{schedule:?} from {start} at {opens} in {zone}");
    got.len()
}

/// Zones with all sorts of clocks: both hemispheres, halves and quarters of hours, changes at midnight, of 30 minutes, of
/// standard time, over the date line, and none. Left out are those whose rules were changed between the two databases.
const ZONES: [&str; 24] = [
    "UTC",
    "Europe/Rome",
    "America/New_York",
    "Europe/London",
    "Europe/Dublin",
    "Europe/Moscow",
    "Europe/Istanbul",
    "Atlantic/Azores",
    "Africa/Cairo",
    "Africa/Johannesburg",
    "Asia/Tehran",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Tokyo",
    "Asia/Beirut",
    "Asia/Pyongyang",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Apia",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/St_Johns",
    "America/Caracas",
];

#[test]
fn monthly_and_weekly_openings_of_seventy_years_agree_with_icalendar() {
    let mut openings = 0;
    for (number, zone) in ZONES.into_iter().enumerate() {
        let turn = number as u8;
        let opens = ["00:00", "02:30", "01:15", "23:59"][number % 4];
        let day = [Weekday::Monday, Weekday::Sunday, Weekday::Friday, Weekday::Thursday, Weekday::Saturday][number % 5];
        let weeks = [WeekIndex::First, WeekIndex::Second, WeekIndex::Third, WeekIndex::Fourth, WeekIndex::Last];
        let schedules = [
            Schedule::Weekly { interval: 3 + turn % 2, day },
            Schedule::AbsoluteMonthly { interval: 1 + turn % 6, day: 31 - turn % 4 },
            Schedule::AbsoluteMonthly { interval: 2, day: 1 + turn },
            Schedule::RelativeMonthly { interval: 1 + turn % 6, week: WeekIndex::Last, day },
            Schedule::RelativeMonthly { interval: 1 + turn % 2, week: weeks[number % 4], day },
        ];
        for schedule in schedules {
            openings += compare(zone, schedule, ["1990-01-01", "1990-01-31", "1992-02-29"][number % 3], opens);
        }
    }
    assert!(openings > 40_000, "{openings}");
}

#[test]
fn daily_openings_of_seventy_years_agree_with_icalendar() {
    let cases = [
        (1, "Europe/Rome", "02:30", "2050-01-01"),
        (3, "Australia/Lord_Howe", "01:45", "2020-02-29"),
        (5, "America/Sao_Paulo", "00:00", "1990-01-01"),
        (7, "Pacific/Apia", "12:00", "1990-01-01"),
    ];
    for (interval, zone, opens, start) in cases {
        compare(zone, Schedule::Daily { interval }, start, opens);
    }
}

#[test]
fn without_a_start_date_it_is_as_if_it_had_started_in_2001() {
    for schedule in [
        Schedule::Daily { interval: 7 },
        Schedule::Weekly { interval: 3, day: Weekday::Wednesday },
        Schedule::AbsoluteMonthly { interval: 4, day: 30 },
    ] {
        let (until, free) = (at("2060-01-01T00:00:00Z"), fields(schedule, "03:00", 4, "0"));
        let opened = opened(&window(free), until);
        let expect = days(schedule, "2001-01-01");
        let expect: Vec<Timestamp> = expect.into_iter().map(|day| instant(Tz::UTC, day, 180)).collect();
        assert!(opened.len() > expect.len() && opened.ends_with(&expect), "{schedule:?}");
    }
}
