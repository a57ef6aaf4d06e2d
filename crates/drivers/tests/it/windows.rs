//! Maintenance configurations, and what is made of them.

use std::time::Duration;

use flotta_drivers::{
    ClusterDriver, Trouble,
    aks::{AksConfig, AksDriver, Reach},
    token::{TokenSource, Tokens},
    transport::router_transport,
};
use flotta_model::{
    Hold, MaintenanceWindow, WindowKind,
    gate::Weekday,
    window::{HoursOfWeek, LocalTime, Recurrence, RecurrenceFields, Schedule, WeekIndex},
};
use flotta_simulator::{FleetFile, Options, Simulator};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{fake::*, replay::recording};

const AUTO: &str = "aksManagedAutoUpgradeSchedule";
const NODE_OS: &str = "aksManagedNodeOSUpgradeSchedule";

fn at(text: &str) -> Timestamp {
    text.parse().expect(text)
}

fn configuration(name: &str, properties: &Value) -> Value {
    json!({"id": format!("{ID}/maintenanceConfigurations/{name}"), "name": name, "properties": properties})
}

/// A cluster that lists these, once.
fn listing(configurations: &[Value]) -> Fake {
    let fake = Fake::new();
    list(&fake, configurations);
    fake
}

fn list(fake: &Fake, configurations: &[Value]) {
    fake.script(Method::GET, "/maintenanceConfigurations?", json_answer(200, &json!({ "value": configurations })));
}

/// A window of every Tuesday, 01:00 to 05:00.
fn tuesday() -> Value {
    json!({
        "schedule": {"weekly": {"intervalWeeks": 1, "dayOfWeek": "Tuesday"}},
        "durationHours": 4, "startTime": "01:00", "utcOffset": "+00:00", "startDate": "2025-01-01",
    })
}

fn of_tuesday(local: LocalTime) -> RecurrenceFields {
    RecurrenceFields {
        schedule: Schedule::Weekly { interval: 1, day: Weekday::Tuesday },
        start_minute: 60,
        duration_hours: 4,
        local,
        start_date: Some("2025-01-01".parse().expect("date")),
        not_allowed: Vec::new(),
    }
}

fn recurring(fields: RecurrenceFields) -> MaintenanceWindow {
    MaintenanceWindow::Recurring(Recurrence::try_from(fields).expect("a window"))
}

async fn seen(driver: &AksDriver, kind: WindowKind) -> Option<MaintenanceWindow> {
    driver.window(&id(), kind).await.expect("a window, or none")
}

/// What is read of one configuration for upgrades.
async fn read(properties: &Value) -> Result<MaintenanceWindow, String> {
    let fake = listing(&[configuration(AUTO, properties)]);
    match driver(&fake).window(&id(), WindowKind::AutoUpgrade).await {
        Ok(window) => Ok(window.expect("a window")),
        Err(Trouble::Wait(Hold::WindowUnreadable(detail))) => {
            let prefix = format!("its maintenance configuration {AUTO} cannot be read: ");
            Err(detail.strip_prefix(&prefix).unwrap_or_else(|| panic!("{detail}")).to_owned())
        }
        Err(trouble) => panic!("{trouble:?}"),
    }
}

/// The window of Tuesday, with one field changed, or taken away.
fn with(pointer: &str, value: Value) -> Value {
    let mut window = tuesday();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    window.pointer_mut(parent).expect(parent)[name] = value;
    json!({ "maintenanceWindow": window })
}

#[tokio::test]
async fn b4_each_kind_has_its_own_configuration_and_default_counts_for_none() {
    let hours = json!({"timeInWeek": [{"day": "Monday", "hourSlots": [1]}]});
    let images = json!({"maintenanceWindow": {
        "schedule": {"relativeMonthly": {"intervalMonths": 2, "weekIndex": "Last", "dayOfWeek": "monday"}},
        "durationHours": 12, "utcOffset": "-08:00", "startTime": "09:30",
        "notAllowedDates": [{"start": "2025-12-23", "end": "2026-01-05"}],
    }});
    let fake = listing(&[
        configuration("default", &hours),
        configuration("AKSManagedAutoUpgradeSchedule", &json!({ "maintenanceWindow": tuesday() })),
        configuration("aksmanagednodeosupgradeschedule", &images),
    ]);
    let driver = driver(&fake);
    let upgrades = recurring(of_tuesday(LocalTime::Offset(0)));
    let images = recurring(RecurrenceFields {
        schedule: Schedule::RelativeMonthly { interval: 2, week: WeekIndex::Last, day: Weekday::Monday },
        start_minute: 570,
        duration_hours: 12,
        local: LocalTime::Offset(-480),
        start_date: None,
        not_allowed: vec![("2025-12-23".parse().expect("date"), "2026-01-05".parse().expect("date"))],
    });
    assert_eq!(seen(&driver, WindowKind::AutoUpgrade).await, Some(upgrades));
    assert_eq!(seen(&driver, WindowKind::NodeOs).await, Some(images));
    assert_eq!(fake.reads("maintenanceConfigurations"), 1, "one read gives both");

    let fake = listing(&[configuration("default", &hours), configuration("mine", &json!({}))]);
    let driver = crate::fake::driver(&fake);
    assert_eq!(seen(&driver, WindowKind::AutoUpgrade).await, None);
    assert_eq!(seen(&driver, WindowKind::NodeOs).await, None);
    assert_eq!(fake.with(|state| state.log.len()), 1, "without a window the tags are not read");
}

#[tokio::test]
async fn c1_every_kind_of_schedule_is_read() {
    let day = Weekday::Friday;
    for (schedule, expect) in [
        (json!({"daily": {"intervalDays": 2}}), Schedule::Daily { interval: 2 }),
        (
            json!({"daily": null, "weekly": {"intervalWeeks": 3, "dayOfWeek": "Friday"}}),
            Schedule::Weekly { interval: 3, day },
        ),
        (
            json!({"absoluteMonthly": {"intervalMonths": 3, "dayOfMonth": 31}}),
            Schedule::AbsoluteMonthly { interval: 3, day: 31 },
        ),
        (
            json!({"relativeMonthly": {"intervalMonths": 1, "weekIndex": "Second", "dayOfWeek": "Friday"}}),
            Schedule::RelativeMonthly { interval: 1, week: WeekIndex::Second, day },
        ),
    ] {
        let window = read(&with("/schedule", schedule)).await;
        let fields = RecurrenceFields { schedule: expect, ..of_tuesday(LocalTime::Offset(0)) };
        assert_eq!(window, Ok(recurring(fields)));
    }
}

#[tokio::test]
async fn c1_the_older_form_is_read_under_the_names_of_schedules() {
    let properties = json!({
        "timeInWeek": [{"day": "Tuesday", "hourSlots": [2, 1]}, {"day": "Wednesday", "hourSlots": [6]}],
        "notAllowedTime": [{"start": "2026-05-26T03:00:00Z", "end": "2026-05-30T14:00:00.5+02:00"}],
    });
    let hours = vec![(Weekday::Tuesday, 1), (Weekday::Tuesday, 2), (Weekday::Wednesday, 6)];
    let spans = vec![(at("2026-05-26T03:00:00Z"), at("2026-05-30T12:00:00.5Z"))];
    let expect = HoursOfWeek::new(hours, spans).expect("hours");
    assert_eq!(read(&properties).await, Ok(MaintenanceWindow::HoursOfWeek(expect)));
}

#[tokio::test]
async fn what_cannot_be_read_is_never_open_and_the_field_is_named() {
    let both = json!({"maintenanceWindow": tuesday(), "timeInWeek": [{"day": "Monday", "hourSlots": [1]}]});
    let spans = json!({"maintenanceWindow": tuesday(), "notAllowedTime": [{"start": "x", "end": "y"}]});
    let two = json!({"daily": {"intervalDays": 1}, "weekly": {"intervalWeeks": 1, "dayOfWeek": "Monday"}});
    let cases = [
        (json!({}), "maintenanceWindow: it is missing, and timeInWeek is too"),
        (json!({"maintenanceWindowId": "/subscriptions/s"}), "maintenanceWindow: it is missing, and timeInWeek is too"),
        (both, "maintenanceWindow: it is there beside timeInWeek or notAllowedTime, and only one form can count"),
        (spans, "maintenanceWindow: it is there beside timeInWeek or notAllowedTime, and only one form can count"),
        (json!({"maintenanceWindow": "never"}), "maintenanceWindow.schedule: it is missing"),
        (
            with("/schedule", json!({})),
            "maintenanceWindow.schedule: it must be one of daily, weekly, absoluteMonthly and relativeMonthly",
        ),
        (
            with("/schedule", two),
            "maintenanceWindow.schedule: it must be one of daily, weekly, absoluteMonthly and relativeMonthly",
        ),
        (
            with("/schedule", json!({"hourly": {}})),
            "maintenanceWindow.schedule.hourly: flotta does not know this kind of schedule",
        ),
        (
            with("/schedule/weekly/dayOfWeek", json!("Caturday")),
            "maintenanceWindow.schedule.weekly.dayOfWeek: 'Caturday' is not one of Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
        ),
        (
            with("/schedule/weekly/intervalWeeks", json!(5)),
            "maintenanceWindow.schedule.weekly.intervalWeeks: 5 is not from 1 to 4",
        ),
        (
            with("/schedule/weekly/intervalWeeks", json!("1")),
            "maintenanceWindow.schedule.weekly.intervalWeeks: '1' is not a number from 0 to 255",
        ),
        (
            with("/schedule/weekly/intervalWeeks", Value::Null),
            "maintenanceWindow.schedule.weekly.intervalWeeks: it is missing",
        ),
        (with("/durationHours", json!(3)), "maintenanceWindow.durationHours: 3 is not from 4 to 24"),
        (with("/durationHours", json!(4.5)), "maintenanceWindow.durationHours: '4.5' is not a number from 0 to 255"),
        (with("/durationHours", Value::Null), "maintenanceWindow.durationHours: it is missing"),
        (with("/startTime", json!("1:00")), "maintenanceWindow.startTime: '1:00' is not HH:MM, such as 02:30"),
        (with("/startTime", json!("+1:00")), "maintenanceWindow.startTime: '+1:00' is not HH:MM, such as 02:30"),
        (with("/startTime", json!("24:00")), "maintenanceWindow.startTime, in minutes: 1440 is not from 0 to 1439"),
        (
            with("/utcOffset", json!("05:30")),
            "maintenanceWindow.utcOffset: '05:30' is not an offset, such as +05:30 or -08:00",
        ),
        (with("/utcOffset", json!("+14:01")), "maintenanceWindow.utcOffset, in minutes: 841 is not from -840 to 840"),
        (with("/utcOffset", json!(0)), "maintenanceWindow.utcOffset: it is not a text"),
        (with("/startDate", json!("soon")), "maintenanceWindow.startDate: 'soon' is not a date, such as 2026-12-24"),
        (with("/notAllowedDates", json!({})), "maintenanceWindow.notAllowedDates: it is not a list"),
        (
            with("/notAllowedDates", json!([{"start": "2026-01-01"}])),
            "maintenanceWindow.notAllowedDates[0].end: it is missing",
        ),
        (
            with("/notAllowedDates", json!([{"start": "2026-01-02", "end": "2026-01-01"}])),
            "maintenanceWindow.notAllowedDates[0]: it ends on 2026-01-01, before it starts on 2026-01-02",
        ),
        (
            with("/timeZone", json!("Mars/Olympus")),
            "maintenanceWindow.timeZone: 'Mars/Olympus' is not a time zone: use an IANA name, such as Europe/Rome or UTC",
        ),
        (
            json!({"timeInWeek": [{"day": "Monday", "hourSlots": [24]}]}),
            "timeInWeek: hour 24 of Monday is not from 0 to 23",
        ),
        (json!({"timeInWeek": [{"day": "Monday"}]}), "timeInWeek[0].hourSlots: it is missing"),
        (json!({"timeInWeek": []}), "timeInWeek: it names no hour, so that the window would never open"),
        (
            json!({"timeInWeek": [{"day": "Monday", "hourSlots": [1]}], "notAllowedTime": [{"start": "2026-01-01", "end": "2026-01-02"}]}),
            "notAllowedTime[0].start: '2026-01-01' is not a time with its offset, such as 2026-12-24T18:00:00Z",
        ),
    ];
    for (properties, expect) in cases {
        assert_eq!(read(&properties).await, Err(expect.to_owned()), "{properties}");
    }
}

#[tokio::test]
async fn a_list_that_is_not_whole_is_no_list() {
    let page = |value: Value, next: &str| json_answer(200, &json!({"value": value, "nextLink": next}));
    let held = async |answers: Vec<Answer>| {
        let fake = Fake::new();
        for answer in answers {
            fake.script(Method::GET, "/maintenanceConfigurations", answer);
        }
        match driver(&fake).window(&id(), WindowKind::AutoUpgrade).await {
            Err(Trouble::Wait(Hold::WindowUnreadable(detail))) => detail,
            other => panic!("{other:?}"),
        }
    };
    assert!(held(vec![json_answer(200, &json!({}))]).await.contains("value: not a list"));
    assert!(held(vec![page(json!([]), "https://elsewhere.example/more")]).await.contains("another host"));
    let more = format!("{ENDPOINT}{ID}/maintenanceConfigurations?api-version=x&$skipToken=1");
    assert!(held((0..50).map(|_| page(json!([]), &more)).collect()).await.contains("does not end"));
    let nameless = held(vec![page(json!([{"properties": {}}]), "")]).await;
    assert!(nameless.contains("name: a configuration has none"), "{nameless}");
    // The second page has it, and the first is empty.
    let fake = Fake::new();
    fake.script(
        Method::GET,
        "skipToken",
        page(json!([configuration(AUTO, &json!({ "maintenanceWindow": tuesday() }))]), ""),
    );
    fake.script(Method::GET, "/maintenanceConfigurations?", page(json!([]), &more));
    let window = seen(&driver(&fake), WindowKind::AutoUpgrade).await;
    assert_eq!(window, Some(recurring(of_tuesday(LocalTime::Offset(0)))));
    // A cluster that is not there has no windows either, but that is not what is asked.
    let fake = Fake::new();
    let trouble = driver(&fake).window(&id(), WindowKind::AutoUpgrade).await;
    assert!(matches!(trouble, Err(Trouble::Wait(Hold::Unreachable(_)))), "{trouble:?}");
}

#[tokio::test]
async fn e45_a_tag_of_the_cluster_names_its_zone_and_a_window_may_have_its_own() {
    let rome = || LocalTime::Zone("Europe/Rome".parse().expect("zone"));
    let fake = listing(&[
        configuration(AUTO, &json!({ "maintenanceWindow": tuesday() })),
        configuration(NODE_OS, &with("/timeZone", json!("America/New_York"))),
    ]);
    fake.with(|state| state.cluster["tags"]["Flotta-Time-Zone"] = "europe/rome".into());
    let driver = crate::fake::driver(&fake);
    let new_york = LocalTime::Zone("America/New_York".parse().expect("zone"));
    assert_eq!(seen(&driver, WindowKind::AutoUpgrade).await, Some(recurring(of_tuesday(rome()))));
    assert_eq!(seen(&driver, WindowKind::NodeOs).await, Some(recurring(of_tuesday(new_york))));
    assert_eq!(fake.with(|state| state.log.len()), 2, "the configurations and the cluster");

    let fake = listing(&[configuration(AUTO, &with("/timeZone", json!("Europe/Rome")))]);
    assert_eq!(seen(&crate::fake::driver(&fake), WindowKind::AutoUpgrade).await, Some(recurring(of_tuesday(rome()))));
    assert_eq!(fake.with(|state| state.log.len()), 1, "its own zone needs no tag");

    // A tag that is no zone holds what follows it, and nothing else.
    let fake = listing(&[
        configuration(AUTO, &json!({ "maintenanceWindow": tuesday() })),
        configuration(NODE_OS, &with("/timeZone", json!("Europe/Rome"))),
    ]);
    fake.with(|state| state.cluster["tags"]["flotta-time-zone"] = "Rome".into());
    let driver = crate::fake::driver(&fake);
    assert_eq!(seen(&driver, WindowKind::NodeOs).await, Some(recurring(of_tuesday(rome()))));
    list(&fake, &[configuration(AUTO, &json!({ "maintenanceWindow": tuesday() }))]);
    let trouble = driver.window(&id(), WindowKind::AutoUpgrade).await.expect_err("no zone").to_string();
    assert!(trouble.contains("tag flotta-time-zone of the cluster: 'Rome' is not a time zone"), "{trouble}");
}

#[tokio::test(start_paused = true)]
async fn windows_are_remembered_for_a_quarter_of_an_hour_and_errors_are_not() {
    let fake = listing(&[configuration(AUTO, &with("/durationHours", json!(0)))]);
    let driver = driver(&fake);
    assert!(driver.window(&id(), WindowKind::AutoUpgrade).await.is_err());
    list(&fake, &[configuration(AUTO, &json!({ "maintenanceWindow": tuesday() }))]);
    assert!(seen(&driver, WindowKind::AutoUpgrade).await.is_some(), "a correction counts at once");
    list(&fake, &[]);
    tokio::time::advance(Duration::from_secs(14 * 60)).await;
    assert!(seen(&driver, WindowKind::AutoUpgrade).await.is_some());
    assert_eq!(fake.reads("maintenanceConfigurations"), 2);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(seen(&driver, WindowKind::AutoUpgrade).await.is_none());
    assert_eq!(fake.reads("maintenanceConfigurations"), 3);
}

#[tokio::test]
async fn recorded_configurations_are_all_read() {
    let mut bodies = 0;
    for name in ["maintenance_custom_name_2025-04", "maintenance_default_2023-06", "maintenance_schedules_2023-06"] {
        let Some(recording) = recording(name) else { return };
        for pair in recording["pairs"].as_array().expect("pairs") {
            let body = &pair["response"]["body"];
            let listed = body["value"].as_array().cloned().unwrap_or_default();
            for configuration in listed.iter().chain([body]).filter(|each| each["properties"].is_object()) {
                read(&configuration["properties"]).await.unwrap_or_else(|error| panic!("{error}: {configuration}"));
                bodies += 1;
            }
        }
    }
    assert!(bodies >= 10, "{bodies}");
}

#[tokio::test]
async fn recorded_lists_give_both_windows() {
    let Some(recording) = recording("maintenance_schedules_2023-06") else { return };
    let lists = recording["pairs"].as_array().expect("pairs").iter().map(|pair| &pair["response"]["body"]);
    let list =
        lists.into_iter().find(|body| body["value"].as_array().is_some_and(|all| all.len() == 2)).expect("a list");
    let fake = Fake::new();
    fake.script(Method::GET, "/maintenanceConfigurations?", json_answer(200, list));
    let driver = crate::fake::driver(&fake);
    let now = at("2026-12-01T00:00:00Z");
    let opens = async |kind| seen(&driver, kind).await.expect("a window").next_open(now);
    // Friday, 1 January 2123, 00:00 in India; Tuesday, 26 January, 09:00 at -08:00.
    assert_eq!(opens(WindowKind::AutoUpgrade).await, Some(at("2122-12-31T18:30:00Z")));
    assert_eq!(opens(WindowKind::NodeOs).await, Some(at("2123-01-26T17:00:00Z")));
}

const CLOUD: &str = r#"
regions:
  westeurope:
    kubernetes: [{ minor: "1.32", default: true, patches: ["1.32.7"] }]
    images: [AKSUbuntu-2204gen2containerd-202508.20.1]
clusters:
  - name: zoned
    region: westeurope
    version: "1.32.7"
    pools: [{ name: sys }]
    tags: { flotta-time-zone: Europe/Rome }
    maintenance:
      aksManagedAutoUpgradeSchedule:
        maintenanceWindow: { schedule: { weekly: { intervalWeeks: 1, dayOfWeek: Tuesday } }, durationHours: 4, startTime: "01:00" }
      aksManagedNodeOSUpgradeSchedule:
        timeInWeek: [{ day: Monday, hourSlots: [3] }]
        notAllowedTime: []
  - name: free
    region: westeurope
    version: "1.32.7"
    pools: [{ name: sys }]
"#;

#[tokio::test(start_paused = true)]
async fn what_the_simulator_serves_is_read() {
    for text in [CLOUD, include_str!("../../../simulator/fleets/demo.yaml")] {
        let fleet = FleetFile::parse(text).expect("fleet file");
        let simulator = Simulator::new(fleet, clock(), Options::default()).await.expect("simulator");
        let transport = router_transport(simulator.router());
        let tokens = Tokens::new(TokenSource::None, "r", transport.clone());
        let config = AksConfig::new("http://localhost:8080", Reach::Everything);
        let driver = AksDriver::new(config, transport, tokens, clock()).expect("config");
        for cluster in simulator.clusters() {
            let window = async |kind| driver.window(&cluster.id, kind).await.expect("a window, or none");
            let (upgrades, images) = (window(WindowKind::AutoUpgrade).await, window(WindowKind::NodeOs).await);
            match cluster.id.name() {
                "zoned" => {
                    // The simulator fills in its own first day, as the service does.
                    let start_date = Some("2026-01-01".parse().expect("date"));
                    let rome = of_tuesday(LocalTime::Zone("Europe/Rome".parse().expect("zone")));
                    assert_eq!(upgrades, Some(recurring(RecurrenceFields { start_date, ..rome })));
                    let monday = HoursOfWeek::new(vec![(Weekday::Monday, 3)], Vec::new()).expect("hours");
                    assert_eq!(images, Some(MaintenanceWindow::HoursOfWeek(monday)));
                }
                "free" => assert_eq!((upgrades, images), (None, None)),
                _ => {}
            }
        }
    }
}
