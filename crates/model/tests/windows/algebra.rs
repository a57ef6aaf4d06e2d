//! What holds for every window, and a model that walks through time step by step.

use std::collections::BTreeSet;

use flotta_model::{
    gate::Weekday,
    window::{Schedule, WeekIndex},
};
use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Date, Time},
    tz::{Offset, TimeZone},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::*;

const DAYS: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

fn schedules() -> impl Strategy<Value = Schedule> {
    let weeks = [WeekIndex::First, WeekIndex::Second, WeekIndex::Third, WeekIndex::Fourth, WeekIndex::Last];
    prop_oneof![
        (1..=7u8).prop_map(|interval| Schedule::Daily { interval }),
        Just(Schedule::Daily { interval: 1 }),
        (1..=4u8, select(&DAYS)).prop_map(|(interval, day)| Schedule::Weekly { interval, day }),
        (1..=6u8, 1..=31u8).prop_map(|(interval, day)| Schedule::AbsoluteMonthly { interval, day }),
        (1..=6u8, select(weeks.to_vec()), select(&DAYS)).prop_map(|(interval, week, day)| Schedule::RelativeMonthly {
            interval,
            week,
            day
        }),
    ]
}

fn clocks() -> impl Strategy<Value = LocalTime> {
    let zones = [
        "Europe/Rome",
        "America/New_York",
        "Australia/Lord_Howe",
        "America/Santiago",
        "Asia/Kathmandu",
        "Africa/Casablanca",
    ];
    prop_oneof![
        (-56..=56i16).prop_map(|quarters| LocalTime::Offset(quarters * 15)),
        select(zones.to_vec()).prop_map(|name| LocalTime::Zone(name.parse().expect(name))),
    ]
}

/// A day of the ten years around 2025.
fn dates() -> impl Strategy<Value = Date> {
    (0..3650i64).prop_map(|days| date("2020-01-01").saturating_add(SignedDuration::from_hours(24 * days)))
}

/// Windows whose every turn is at a quarter of an hour.
fn recurring() -> impl Strategy<Value = RecurrenceFields> {
    let spans = vec((dates(), 0..40i64), 0..30)
        .prop_map(|spans| spans.into_iter().map(|(start, days)| (start, start.saturating_add(days.days()))).collect());
    let duration = prop_oneof![4..=24u8, 23..=24u8];
    (schedules(), 0..96u16, duration, clocks(), option::of(dates()), spans).prop_map(
        |(schedule, quarter, duration_hours, local, start_date, not_allowed)| RecurrenceFields {
            schedule,
            start_minute: quarter * 15,
            duration_hours,
            local,
            start_date,
            not_allowed,
        },
    )
}

/// Hours of the week, and spans.
type Weekly = (Vec<(Weekday, u8)>, Vec<(Timestamp, Timestamp)>);

/// Spans in quarters of an hour from 2020 on.
fn weekly_hours() -> impl Strategy<Value = Weekly> {
    let quarter = |count: i64| at("2020-01-01T00:00:00Z") + SignedDuration::from_mins(15 * count);
    let spans = vec((0..350_000i64, 0..2000i64), 0..30)
        .prop_map(move |spans| spans.into_iter().map(|(from, long)| (quarter(from), quarter(from + long))).collect());
    (vec((select(&DAYS), 0..24u8), 1..60), spans)
}

fn windows() -> impl Strategy<Value = MaintenanceWindow> {
    let hours = weekly_hours()
        .prop_map(|(hours, spans)| MaintenanceWindow::HoursOfWeek(HoursOfWeek::new(hours, spans).expect("hours")));
    prop_oneof![4 => recurring().prop_map(window), 1 => hours]
}

fn instants() -> impl Strategy<Value = Timestamp> {
    // From 2018 to 2032, and to the nanosecond.
    (1_514_764_800_000_000_000..1_956_528_000_000_000_000i128)
        .prop_map(|nanos| Timestamp::from_nanosecond(nanos).expect("an instant"))
}

fn naive_schedule(fields: &RecurrenceFields, day: Date) -> bool {
    let anchor = fields.start_date.unwrap_or(date("2001-01-01"));
    let apart = |from: Date| from.duration_until(day).as_hours() / 24;
    let months = (i64::from(day.year()) - i64::from(anchor.year())) * 12 + i64::from(day.month() - anchor.month());
    if fields.start_date.is_some_and(|start| day < start) {
        return false;
    }
    match fields.schedule {
        Schedule::Daily { interval } => apart(anchor) % i64::from(interval) == 0,
        Schedule::Weekly { interval, day: wanted } => {
            let mut monday = anchor;
            while monday.weekday() != jiff::civil::Weekday::Monday {
                monday = monday.yesterday().expect("a day");
            }
            // Both counted from Mondays.
            let weeks = (0..7).map(|back| apart(monday) - back).find(|days| days % 7 == 0).expect("a week") / 7;
            day.weekday() == wanted.into() && weeks % i64::from(interval) == 0
        }
        Schedule::AbsoluteMonthly { interval, day: wanted } => {
            let last = day.tomorrow().is_ok_and(|next| next.month() != day.month());
            months % i64::from(interval) == 0 && (day.day() == wanted as i8 || last && (day.day() as u8) < wanted)
        }
        Schedule::RelativeMonthly { interval, week, day: wanted } => {
            let (before, after) = ((day.day() - 1) / 7, (day.days_in_month() - day.day()) / 7);
            let right = if week == WeekIndex::Last { after == 0 } else { before == week as i8 };
            day.weekday() == wanted.into() && months % i64::from(interval) == 0 && right
        }
    }
}

/// Whether a window is open, by looking at the days around one after another.
fn naive(fields: &RecurrenceFields, at: Timestamp) -> bool {
    let clocks = match &fields.local {
        LocalTime::Offset(minutes) => TimeZone::fixed(Offset::from_seconds(i32::from(*minutes) * 60).expect("offset")),
        LocalTime::Zone(zone) => zone.rules().clone(),
    };
    let today = clocks.to_datetime(at).date();
    if fields.not_allowed.iter().any(|(start, end)| *start <= today && today <= *end) {
        return false;
    }
    let opens = Time::new((fields.start_minute / 60) as i8, (fields.start_minute % 60) as i8, 0, 0).expect("time");
    (-3..=3).map(|days| today.saturating_add(days.days())).any(|day| {
        let start = clocks.to_timestamp(day.to_datetime(opens)).expect("start");
        let end = start + SignedDuration::from_hours(fields.duration_hours.into());
        naive_schedule(fields, day) && start <= at && at < end
    })
}

fn naive_hours(hours: &[(Weekday, u8)], spans: &[(Timestamp, Timestamp)], at: Timestamp) -> bool {
    let now = TimeZone::UTC.to_datetime(at);
    let listed = hours.iter().any(|(day, hour)| now.weekday() == (*day).into() && now.hour() as u8 == *hour);
    listed && !spans.iter().any(|(from, until)| *from <= at && at < *until)
}

/// Walks eight days in quarters of an hour, from two days before an opening if there is one, and compares all three
/// answers with what the steps show.
fn walk(window: &MaintenanceWindow, from: Timestamp, open: impl Fn(Timestamp) -> bool) -> Result<(), TestCaseError> {
    let from = window.next_open(from).map_or(from, |open| open - SignedDuration::from_hours(48));
    let from = Timestamp::from_second(from.as_second() / 900 * 900).expect("a quarter");
    let steps: Vec<(Timestamp, bool)> =
        (0..8 * 96).map(|step| from + SignedDuration::from_mins(15 * step)).map(|at| (at, open(at))).collect();
    let (mut opening, mut closing) = (None, None);
    for (at, open) in steps.iter().rev().copied() {
        prop_assert_eq!(window.is_open(at), open, "at {}", at);
        if open {
            opening = Some(at)
        } else {
            closing = Some(at)
        }
        if let Some(opening) = opening {
            prop_assert_eq!(window.next_open(at), Some(opening), "from {}", at);
        }
        match closing {
            Some(closing) if open => prop_assert_eq!(window.closes(at), Some(closing), "from {}", at),
            _ if !open => prop_assert_eq!(window.closes(at), None, "from {}", at),
            _ => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_three_answers_agree(window in windows(), at in instants(), share in 0..=1000i32) {
        let next = window.next_open(at);
        prop_assert_eq!(window.is_open(at), next == Some(at));
        if let Some(next) = next {
            prop_assert!(next >= at && window.is_open(next));
            if next > at {
                let before = next.checked_sub(SignedDuration::from_nanos(1)).expect("before");
                prop_assert!(!window.is_open(before));
                let between = at + next.duration_since(at) / 1000 * share;
                prop_assert_eq!(window.next_open(between), Some(next));
            }
            let closes = window.closes(next);
            let horizon = closes.unwrap_or(next + SignedDuration::from_hours(24 * 3650));
            prop_assert!(horizon > next);
            let between = next + horizon.duration_since(next) / 1001 * share;
            prop_assert!(window.is_open(between), "closed at {}", between);
            prop_assert_eq!(window.closes(between), closes);
            if let Some(closes) = closes {
                prop_assert!(!window.is_open(closes));
                let last = closes.checked_sub(SignedDuration::from_nanos(1)).expect("last");
                prop_assert!(window.is_open(last));
            }
        } else {
            prop_assert!(!window.is_open(at) && window.closes(at).is_none());
        }
    }

    #[test]
    fn windows_read_back_are_the_same(window in windows()) {
        let text = serde_json::to_string(&window).expect("json");
        prop_assert_eq!(serde_json::from_str::<MaintenanceWindow>(&text).expect("window"), window);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn they_agree_with_a_walk_through_time(fields in recurring(), at in instants()) {
        walk(&window(fields.clone()), at, |at| naive(&fields, at))?;
    }

    #[test]
    fn so_do_hours_of_the_week((hours, spans) in weekly_hours(), at in instants()) {
        let window = MaintenanceWindow::HoursOfWeek(HoursOfWeek::new(hours.clone(), spans.clone()).expect("hours"));
        walk(&window, at, |at| naive_hours(&hours, &spans, at))?;
    }
}

#[test]
fn the_walk_sees_both_sides() {
    // The model above would prove nothing if it were always closed.
    let fields = fields(Schedule::Daily { interval: 1 }, "08:00", 4, "Europe/Rome");
    let hours = (0..24).map(|hour| at("2026-06-01T00:00:00Z") + SignedDuration::from_hours(hour));
    let open: BTreeSet<i64> = hours.filter(|at| naive(&fields, *at)).map(|at| at.as_second() % 86_400 / 3600).collect();
    assert_eq!(open, BTreeSet::from([6, 7, 8, 9]));
}
