//! Random strategies, fleets and maintenance windows.

use std::rc::Rc;

use flotta_engine::Plan;
use flotta_model::{
    Budget, GateConfig, GateKind, Goal, Group, ImageSelection, Labels, MaintenanceWindow, Member, Name, Stage,
    Strategy, UpgradeType, VersionTarget,
    gate::{ApprovalPolicy, Creator, Rejection, ScheduledStart, Weekday},
    window::{HoursOfWeek, LocalTime, Recurrence, RecurrenceFields, Schedule, WeekIndex},
};
use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};

use crate::{
    cloud::TARGET,
    random::Random,
    regions::{FAMILIES, image},
};

/// Who decides on gates; the first may be the creator of the run.
pub const PEOPLE: [&str; 5] = ["eve", "ann", "bob", "cyd", "dan"];

const DAYS: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

/// Among them a zone of half hours, one that changes by half an hour, and one without changes.
const ZONES: [&str; 5] = ["Europe/Rome", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"];

fn name(text: String) -> Name {
    text.parse().expect("name")
}

/// Mostly small, sometimes some hundreds of members; limits as counts, as percentages, or none.
pub fn random_plan(begin: Timestamp, random: &mut Random) -> Plan {
    let images = images(begin, random);
    let goal = match random.below(4) {
        0 => Goal::new(UpgradeType::NodeImageOnly, None, images),
        1 => Goal::new(UpgradeType::Full, Some(VersionTarget::Minor { major: 1, minor: 33 }), images),
        _ => Goal::new(UpgradeType::Full, Some(TARGET.into()), images),
    };
    let goal = goal.expect("goal").accepting_newer(random.chance(40));
    let most = *random.pick(&[2, 2, 3, 3, 4, 4, 4, 6, 6, 8, 8, 8, 8, 12, 20, 50]);
    let mut members = Vec::new();
    if random.chance(5) {
        (0..random.below(6)).for_each(|_| members.push(random_member(members.len(), None)));
        return Plan::resolve(goal, None, &members).expect("plan");
    }
    let gates = if random.chance(50) { random.range(10, 50) } else { 0 };
    let mut stages = Vec::new();
    for at in 0..random.range(1, 4) {
        let mut stage = Stage::new(name(format!("s{at}")), Vec::new());
        stage.max_concurrency = concurrency(random);
        stage.max_allowed_failures = failures(random);
        stage.budget = budget(stage.max_allowed_failures, random);
        stage.min_success = floor(random);
        stage.after_wait_seconds = if random.chance(40) { random.below(9000) as u32 } else { 0 };
        (stage.before_gates, stage.after_gates) = (gate(gates, true, random), gate(gates, false, random));
        let groups = random.range(0, 4);
        for group in 0..groups {
            let mut group = random_group(name(format!("s{at}-g{group}")), random);
            (group.before_gates, group.after_gates) = (gate(gates, true, random), gate(gates, false, random));
            (0..random.below(most)).for_each(|_| members.push(random_member(members.len(), Some(&group.name))));
            stage.groups.push(group);
        }
        if groups == 0 {
            stage.selector = Some(format!("stage={at}").parse().expect("selector"));
            for _ in 0..random.below(most) {
                let mut member = random_member(members.len(), None);
                member.labels.insert("stage".into(), at.to_string());
                members.push(member);
            }
        }
        stages.push(stage);
    }
    let mut plan = Plan::resolve(goal, Some(&Strategy::new(stages).expect("strategy")), &members).expect("plan");
    plan.created_by = random.chance(80).then(|| PEOPLE[0].into());
    if random.chance(20) {
        plan.patience_seconds = 7200;
    }
    plan
}

/// Mostly the newest; sometimes such as all regions have, or such as some have, had or will have.
fn images(begin: Timestamp, random: &mut Random) -> Option<ImageSelection> {
    match random.below(10) {
        0..=2 => Some(ImageSelection::Consistent),
        3 | 4 => {
            let families = if random.chance(50) { &FAMILIES[..] } else { &FAMILIES[..1] };
            let image = |family: &&str| image(begin, family, random.range(4, 9) as u32);
            Some(ImageSelection::Custom(families.iter().map(image).collect()))
        }
        5 => Some(ImageSelection::Latest),
        _ => None,
    }
}

fn random_group(name: Name, random: &mut Random) -> Group {
    let mut group = Group::new(name);
    group.max_concurrency = concurrency(random);
    group.max_allowed_failures = failures(random);
    group.budget = budget(group.max_allowed_failures, random);
    group.min_success = floor(random);
    group
}

/// None to two gates on one side.
fn gate(percent: u64, before: bool, random: &mut Random) -> Vec<GateConfig> {
    let count = if random.chance(percent) { random.range(1, 2) } else { 0 };
    let gate = |_| {
        let gate = match before && random.chance(40) {
            true => GateConfig::new(GateKind::ScheduledStart(scheduled(random))),
            false => GateConfig { policy: policy(random), ..GateConfig::new(GateKind::Approval) },
        };
        GateConfig { display_name: Some(format!("gate {}", random.next())), ..gate }
    };
    (0..count).map(gate).collect()
}

fn policy(random: &mut Random) -> ApprovalPolicy {
    if random.chance(40) {
        return ApprovalPolicy::default();
    }
    let expires = random.chance(40);
    ApprovalPolicy {
        approvers: random.range(1, 3) as u8,
        expires_after_seconds: expires.then(|| random.range(60, 400_000) as u32),
        creator: *random.pick(&[Creator::MayApprove, Creator::MayNotApprove]),
        rejection: *random.pick(&[Rejection::Offered, Rejection::NotOffered]),
    }
}

fn scheduled(random: &mut Random) -> ScheduledStart {
    let zone = random.chance(50).then(|| random.pick(&ZONES).parse().expect("zone"));
    ScheduledStart {
        day: *random.pick(&DAYS),
        minute: random.below(1440) as u16,
        utc_offset_minutes: if zone.is_some() { 0 } else { random.range(0, 1680) as i16 - 840 },
        zone,
    }
}

fn concurrency(random: &mut Random) -> Option<flotta_model::Concurrency> {
    let text = match random.below(4) {
        0 => return None,
        1 => format!("{}%", random.range(1, 100)),
        _ => random.range(1, 9).to_string(),
    };
    Some(text.parse().expect("concurrency"))
}

fn failures(random: &mut Random) -> Option<flotta_model::FailureLimit> {
    let text = match random.below(4) {
        0 | 1 => return None,
        2 => format!("{}%", random.range(0, 60)),
        _ => random.range(0, 5).to_string(),
    };
    Some(text.parse().expect("failure limit"))
}

fn budget(limit: Option<flotta_model::FailureLimit>, random: &mut Random) -> Budget {
    let some = limit.is_some_and(|limit| limit.resolve(1000) > 0);
    if some && random.chance(40) { Budget::Strict } else { Budget::Watched }
}

fn floor(random: &mut Random) -> Option<flotta_model::SuccessFloor> {
    let text = match random.below(12) {
        0 => format!("{}%", random.range(0, 100)),
        1 => random.range(0, 5).to_string(),
        _ => return None,
    };
    Some(text.parse().expect("floor"))
}

fn random_member(at: usize, group: Option<&Name>) -> Member {
    let cluster =
        format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/m{at}");
    Member {
        name: name(format!("m{at}")),
        cluster: cluster.parse().expect("cluster"),
        group: group.cloned(),
        labels: Labels::new(),
    }
}

/// Beginnings: a quiet time of the year, and before clocks are turned forward, back, and in a leap year.
pub fn random_begin(random: &mut Random) -> Timestamp {
    let begins = ["2026-01-01T00:00:00Z", "2026-03-25T09:00:00Z", "2026-10-21T17:00:00Z", "2028-02-26T23:00:00Z"];
    random.pick(&begins).parse().expect("time")
}

/// A few windows of different kinds, among them such as never open again.
pub fn random_windows(begin: Timestamp, random: &mut Random) -> Rc<Vec<MaintenanceWindow>> {
    let mut windows = Vec::new();
    for _ in 0..random.range(1, 6) {
        let window = random_window(begin, random);
        if !windows.contains(&window) {
            windows.push(window);
        }
    }
    Rc::new(windows)
}

fn random_window(begin: Timestamp, random: &mut Random) -> MaintenanceWindow {
    if random.chance(20) {
        let hours = (0..random.range(4, 60)).map(|_| (*random.pick(&DAYS), random.below(24) as u8)).collect();
        let from = begin + SignedDuration::from_hours(random.below(300) as i64);
        let spans = random.chance(30).then(|| (from, from + SignedDuration::from_hours(random.below(100) as i64)));
        return MaintenanceWindow::HoursOfWeek(HoursOfWeek::new(hours, spans.into_iter().collect()).expect("hours"));
    }
    let day = *random.pick(&DAYS);
    let schedule = match random.below(10) {
        0..=4 => Schedule::Daily { interval: random.range(1, 3) as u8 },
        5 | 6 => Schedule::Weekly { interval: random.range(1, 2) as u8, day },
        7 => Schedule::AbsoluteMonthly { interval: 1, day: random.range(1, 31) as u8 },
        8 => Schedule::AbsoluteMonthly { interval: random.range(1, 2) as u8, day: random.range(1, 31) as u8 },
        _ => {
            let weeks = [WeekIndex::First, WeekIndex::Second, WeekIndex::Third, WeekIndex::Fourth, WeekIndex::Last];
            Schedule::RelativeMonthly { interval: random.range(1, 2) as u8, week: *random.pick(&weeks), day }
        }
    };
    let today = TimeZone::UTC.to_datetime(begin).date();
    let later = |days: u64| today.saturating_add(SignedDuration::from_hours(24 * days as i64));
    let not_allowed = match random.below(30) {
        0 => vec![(later(random.below(3)), Date::MAX)],
        1..=6 => {
            let first = random.below(20);
            vec![(later(first), later(first + random.below(9)))]
        }
        _ => Vec::new(),
    };
    let fields = RecurrenceFields {
        schedule,
        start_minute: random.below(1440) as u16,
        duration_hours: random.range(4, 24) as u8,
        local: match random.chance(50) {
            true => LocalTime::Zone(random.pick(&ZONES).parse().expect("zone")),
            false => LocalTime::Offset(random.range(0, 1680) as i16 - 840),
        },
        start_date: random.chance(40).then(|| later(random.below(6))),
        not_allowed,
    };
    MaintenanceWindow::Recurring(Recurrence::try_from(fields).expect("recurrence"))
}
