//! What makes no window, and what is stored.

use flotta_model::{gate::Weekday, window::WindowError};
use serde_json::{Value, json};

use crate::*;

const MONDAY: Schedule = Schedule::Weekly { interval: 1, day: Weekday::Monday };

fn error(fields: RecurrenceFields) -> String {
    let WindowError { field, reason } = Recurrence::try_from(fields).expect_err("no window");
    format!("{field}: {reason}")
}

#[test]
fn c1_each_field_has_its_bounds_and_errors_name_it() {
    let of = |schedule| fields(schedule, "00:00", 4, "0");
    let good = of(MONDAY);
    let over = vec![(date("2026-01-01"), date("2026-01-01")); 101];
    let turned = vec![(date("2026-01-01"), date("2026-01-01")), (date("2026-01-02"), date("2026-01-01"))];
    let cases = [
        (of(Schedule::Daily { interval: 0 }), "schedule.daily.intervalDays: 0 is not from 1 to 7"),
        (of(Schedule::Daily { interval: 8 }), "schedule.daily.intervalDays: 8 is not from 1 to 7"),
        (
            of(Schedule::Weekly { interval: 5, day: Weekday::Monday }),
            "schedule.weekly.intervalWeeks: 5 is not from 1 to 4",
        ),
        (
            of(Schedule::AbsoluteMonthly { interval: 7, day: 1 }),
            "schedule.absoluteMonthly.intervalMonths: 7 is not from 1 to 6",
        ),
        (
            of(Schedule::AbsoluteMonthly { interval: 1, day: 0 }),
            "schedule.absoluteMonthly.dayOfMonth: 0 is not from 1 to 31",
        ),
        (
            of(Schedule::AbsoluteMonthly { interval: 1, day: 32 }),
            "schedule.absoluteMonthly.dayOfMonth: 32 is not from 1 to 31",
        ),
        (RecurrenceFields { duration_hours: 3, ..good.clone() }, "durationHours: 3 is not from 4 to 24"),
        (RecurrenceFields { duration_hours: 25, ..good.clone() }, "durationHours: 25 is not from 4 to 24"),
        (RecurrenceFields { start_minute: 1440, ..good.clone() }, "startTime, in minutes: 1440 is not from 0 to 1439"),
        (
            RecurrenceFields { local: LocalTime::Offset(-841), ..good.clone() },
            "utcOffset, in minutes: -841 is not from -840 to 840",
        ),
        (RecurrenceFields { not_allowed: over, ..good.clone() }, "notAllowedDates: 101 spans; at most 100 are allowed"),
        (
            RecurrenceFields { not_allowed: turned, ..good },
            "notAllowedDates[1]: it ends on 2026-01-01, before it starts on 2026-01-02",
        ),
    ];
    for (fields, expect) in cases {
        assert_eq!(error(fields), expect);
    }
    let span = (at("2026-01-02T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    for (hours, spans, expect) in [
        (vec![(Weekday::Monday, 24)], vec![], "timeInWeek: hour 24 of Monday is not from 0 to 23"),
        (vec![], vec![], "timeInWeek: it names no hour, so that the window would never open"),
        (
            vec![(Weekday::Monday, 1)],
            vec![span],
            "notAllowedTime[0]: it ends at 2026-01-01T00:00:00Z, before it starts at 2026-01-02T00:00:00Z",
        ),
        (vec![(Weekday::Monday, 1)], vec![(span.1, span.0); 101], "notAllowedTime: 101 spans; at most 100 are allowed"),
    ] {
        assert_eq!(HoursOfWeek::new(hours, spans).expect_err("no hours").to_string(), expect);
    }
}

#[test]
fn windows_are_stored_as_they_are_and_checked_when_they_are_read() {
    let zoned = fields(MONDAY, "01:30", 8, "Europe/Rome").from("2026-01-01").except(&[("2026-12-24", "2026-12-26")]);
    let stored = json!({"Recurring": {
        "schedule": {"Weekly": {"interval": 1, "day": "Monday"}},
        "start_minute": 90, "duration_hours": 8, "local": {"Zone": "Europe/Rome"},
        "start_date": "2026-01-01", "not_allowed": [["2026-12-24", "2026-12-26"]],
    }});
    assert_eq!(serde_json::to_value(window(zoned.clone())).expect("json"), stored);
    assert_eq!(serde_json::from_value::<MaintenanceWindow>(stored.clone()).expect("window"), window(zoned));

    let older = hours(&[(Weekday::Monday, 1)], &[("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")]);
    let kept = json!({"HoursOfWeek": {
        "hours": [["Monday", 1]], "not_allowed": [["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]],
    }});
    assert_eq!(serde_json::to_value(&older).expect("json"), kept);
    assert_eq!(serde_json::from_value::<MaintenanceWindow>(kept.clone()).expect("window"), older);

    let refused = |mut stored: Value, pointer: &str, value: Value, expect: &str| {
        *stored.pointer_mut(pointer).expect(pointer) = value;
        let error = serde_json::from_value::<MaintenanceWindow>(stored).expect_err(pointer).to_string();
        assert!(error.contains(expect), "{error}");
    };
    refused(stored.clone(), "/Recurring/duration_hours", json!(0), "durationHours: 0 is not from 4 to 24");
    refused(stored.clone(), "/Recurring/schedule/Weekly/interval", json!(0), "schedule.weekly.intervalWeeks");
    refused(stored, "/Recurring/local/Zone", json!("Europe/Nowhere"), "is not a time zone");
    refused(kept, "/HoursOfWeek/hours", json!([]), "timeInWeek");
}
