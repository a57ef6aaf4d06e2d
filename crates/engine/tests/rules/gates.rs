//! Gates inside a run: what each policy asks for, what people may say when, and what time does (`behaviour.md` A6).

use flotta_engine::{
    Event, Input, Plan,
    run::{Decision, GatePhase, Part, State},
};
use flotta_model::{
    GateConfig, GateKind, Group, Stage, Strategy, UpgradeType,
    gate::{ApprovalPolicy, Creator, Rejection, ScheduledStart, Weekday},
};
use jiff::{SignedDuration, Timestamp};

use crate::bench::{Bench, TARGET, at_gate, goal, member, name};

const DAY: i64 = 86_400;

fn approval(policy: ApprovalPolicy) -> GateConfig {
    GateConfig { policy, display_name: Some("go".into()), ..GateConfig::new(GateKind::Approval) }
}

/// Monday noon; the bench begins on a Monday at eight.
fn noon() -> GateConfig {
    let start = ScheduledStart { day: Weekday::Monday, minute: 720, utc_offset_minutes: 0, zone: None };
    GateConfig::new(GateKind::ScheduledStart(start))
}

/// A run of `carl`'s over one stage with group a of two members, gates before the stage; started.
fn started(gates: Vec<GateConfig>) -> Bench {
    let mut group = Group::new(name("a"));
    group.max_concurrency = Some("2".parse().expect("2"));
    let stage = Stage { before_gates: gates, ..Stage::new(name("one"), vec![group]) };
    let members = [member("a-0", Some("a"), &[]), member("a-1", Some("a"), &[])];
    let strategy = Strategy::new(vec![stage]).expect("strategy");
    let goal = goal(UpgradeType::Full, Some(TARGET));
    let plan = Plan::resolve(goal, Some(&strategy), &members).expect("plan");
    let mut bench = Bench::of_plan(Plan { created_by: Some("carl".into()), ..plan });
    bench.start();
    bench
}

/// What somebody says of a gate: whether it was taken, or why not.
fn say(bench: &mut Bench, gate: u32, decision: Decision, by: &str) -> Result<Vec<Event>, String> {
    let input = Input::Gate { gate, decision, by: by.into(), comment: None };
    bench.step(&input).map_err(|refusal| refusal.to_string())
}

/// A script of what people say to one gate, such as `ann+ bob-`, and what becomes of each word: `+` taken, `O` the gate
/// opens, `S` the run stops, `x` refused.
fn check(policy: ApprovalPolicy, script: &str, expect: &str) {
    let mut bench = started(vec![approval(policy.clone())]);
    let mut became = String::new();
    for word in script.split_whitespace() {
        let (by, decision) = match word.strip_suffix('-') {
            Some(by) => (by, Decision::Reject),
            None => (word.strip_suffix('+').expect("+ or -"), Decision::Approve),
        };
        let before = (bench.run.gate(0).clone(), bench.run.state());
        let answer = say(&mut bench, 0, decision, by);
        became.push(match (&answer, bench.run.gate(0).state(), bench.run.state()) {
            (Err(_), ..) => {
                assert_eq!((bench.run.gate(0).clone(), bench.run.state()), before, "{script}: {word}");
                'x'
            }
            (Ok(_), State::Completed, _) => 'O',
            (Ok(_), _, State::Stopped) => 'S',
            (Ok(_), State::Pending, State::Pending) => '+',
            other => panic!("{script}: {word}: {other:?}"),
        });
    }
    assert_eq!(became, expect, "{script} with {policy:?}");
    let moved = bench.run.gate(0).state() == State::Completed;
    assert_eq!(bench.run.work().is_empty(), !moved, "{script}: members move if the gate is open, and only then");
}

#[test]
fn a6_each_policy_lets_in_whom_it_names() {
    let usual = ApprovalPolicy::default();
    let two = ApprovalPolicy { approvers: 2, ..usual.clone() };
    let others = ApprovalPolicy { creator: Creator::MayNotApprove, ..usual.clone() };
    let two_others = ApprovalPolicy { approvers: 2, ..others.clone() };
    let rejectable = ApprovalPolicy { rejection: Rejection::Offered, ..usual.clone() };
    let two_rejectable = ApprovalPolicy { approvers: 2, ..rejectable.clone() };
    let three = ApprovalPolicy { approvers: 3, ..usual.clone() };
    for (policy, script, expect) in [
        (&usual, "ann+", "O"),
        (&usual, "carl+", "O"),
        (&usual, "ann+ ann+ bob+", "OOO"), // what is open stays open, whoever says so again
        (&usual, "ann-", "x"),
        (&usual, "ann+ bob-", "Ox"),
        (&two, "ann+ ann+ bob+", "+xO"),
        (&two, "ann+ carl+", "+O"),
        (&three, "ann+ bob+ bob+ ann+ carl+", "++xxO"),
        (&others, "carl+ ann+", "xO"),
        (&two_others, "ann+ carl+ bob+", "+xO"),
        (&rejectable, "ann-", "S"),
        (&rejectable, "carl-", "S"),
        (&rejectable, "ann- bob+ bob-", "Sxx"), // it has stopped the run: a start asks anew
        (&rejectable, "ann+ bob-", "Ox"),
        (&two_rejectable, "ann+ ann-", "+S"), // who approved may think again
    ] {
        check(policy.clone(), script, expect);
    }
}

#[test]
fn a6_refusals_say_the_way_out() {
    let policy = ApprovalPolicy { approvers: 2, creator: Creator::MayNotApprove, ..ApprovalPolicy::default() };
    let mut bench = started(vec![approval(policy)]);
    let refused = |bench: &mut Bench, decision, by: &str| say(bench, 0, decision, by).expect_err("refused");
    assert!(refused(&mut bench, Decision::Approve, "carl").contains("somebody else must approve"));
    assert!(refused(&mut bench, Decision::Reject, "ann").contains("stop the run instead"));
    say(&mut bench, 0, Decision::Approve, "ann").expect("taken");
    assert!(refused(&mut bench, Decision::Approve, "ann").contains("(1 of 2)"));
    bench.skip(&["stage one"]);
    assert!(refused(&mut bench, Decision::Approve, "bob").contains("skipped"));
    assert!(say(&mut bench, 7, Decision::Approve, "bob").expect_err("no such gate").contains("number 7"));
}

#[test]
fn a6_a_gate_that_is_not_reached_cannot_be_decided_on() {
    for decision in [Decision::Approve, Decision::Reject] {
        let mut bench = Bench::new(&["one gate / a x1", "two gate / b x1"]);
        assert!(say(&mut bench, 0, decision, "ann").expect_err("not started").contains("not reached"));
        bench.start();
        assert!(say(&mut bench, 1, decision, "ann").expect_err("behind stage one").contains("not reached"));
        assert_eq!(bench.run.gate(1).phase, GatePhase::Idle);
    }
}

#[test]
fn a6_an_approval_expires_at_its_time_and_not_before_and_a_start_asks_anew() {
    let policy = ApprovalPolicy { approvers: 2, expires_after_seconds: Some(3600), ..ApprovalPolicy::default() };
    let mut bench = started(vec![approval(policy)]);
    say(&mut bench, 0, Decision::Approve, "ann").expect("taken");
    bench.advance(3599);
    bench.check("Pending; one Pending; a NotStarted NN");
    bench.advance(1);
    bench.check("Stopped; one NotStarted; a NotStarted NN");
    assert_eq!(bench.run.error(Part::Run).expect("error").code, "GateExpired");
    assert!(say(&mut bench, 0, Decision::Approve, "bob").is_err(), "too late");
    bench.advance(DAY);
    bench.start();
    bench.check("Pending; one Pending; a NotStarted NN");
    assert_eq!(bench.run.error(Part::Run), None);
    let again = bench.run.gate(0).clone();
    assert_eq!((again.due(), again.approvals.len()), (Some(bench.now + SignedDuration::from_secs(3600)), 0));
    for by in ["ann", "bob"] {
        say(&mut bench, 0, Decision::Approve, by).expect("taken");
    }
    bench.check("Running; one Running; a Running RR");
    bench.advance(DAY);
    bench.check("Running; one Running; a Running RR");
}

#[test]
fn a6_an_approval_that_comes_in_time_ends_the_time() {
    let policy = ApprovalPolicy { expires_after_seconds: Some(3600), ..ApprovalPolicy::default() };
    let mut bench = started(vec![approval(policy), noon()]);
    bench.advance(1800);
    say(&mut bench, 0, Decision::Approve, "ann").expect("taken");
    bench.advance(3600);
    bench.check("Pending; one Pending; a NotStarted NN");
    assert_eq!(bench.run.error(Part::Run), None);
    bench.advance(3 * 3600);
    bench.check("Running; one Running; a Running RR");
}

#[test]
fn a6_a_scheduled_start_opens_at_its_time_with_the_run_going_or_not() {
    let noon_at: Timestamp = "2026-01-05T12:00:00Z".parse().expect("time");
    let mut bench = started(vec![noon()]);
    assert_eq!((bench.run.gate(0).due(), bench.run.next_wake()), (Some(noon_at), Some(noon_at)));
    bench.advance(4 * 3600 - 1);
    bench.check("Pending; one Pending; a NotStarted NN");
    bench.advance(1);
    bench.check("Running; one Running; a Running RR");
    assert_eq!(bench.run.gate(0).times().completed, Some(noon_at));

    let mut bench = started(vec![noon()]);
    bench.stop();
    bench.advance(DAY);
    bench.check("Stopped; one NotStarted; a NotStarted NN");
    bench.start();
    bench.check("Running; one Running; a Running RR");

    let mut bench = started(vec![noon()]);
    say(&mut bench, 0, Decision::Approve, "ann").expect("by hand");
    bench.check("Running; one Running; a Running RR");
    assert_eq!(bench.run.next_wake(), None);
}

#[test]
fn a6_a_scheduled_start_is_approved_by_hand_and_never_rejected() {
    let mut bench = started(vec![noon()]);
    assert!(say(&mut bench, 0, Decision::Reject, "ann").is_err());
    bench.check("Pending; one Pending; a NotStarted NN");
}

#[test]
fn a6_approvals_are_taken_while_stopped_and_act_at_the_start() {
    let mut bench = started(vec![approval(ApprovalPolicy::default())]);
    bench.stop();
    say(&mut bench, 0, Decision::Approve, "ann").expect("taken");
    bench.check("Stopped; one NotStarted; a NotStarted NN");
    bench.start();
    bench.check("Running; one Running; a Running RR");
}

#[test]
fn a6_a_gate_stays_passed_when_members_behind_it_are_tried_again() {
    let mut bench = Bench::started(&["one gate / a gate x1"]);
    say(&mut bench, 0, Decision::Approve, "ann").expect("taken");
    say(&mut bench, 1, Decision::Approve, "ann").expect("taken");
    bench.fail("a-0");
    bench.check("Failed; one Failed; a Failed F");
    bench.start();
    bench.check("Running; one Running; a Running R");
    bench.finish("a-0");
    bench.check("Completed; one Completed; a Completed C");
}

#[test]
fn a6_a_rejection_at_a_group_lets_what_moves_elsewhere_end_and_starts_nothing() {
    let mut group = Group::new(name("a"));
    let policy = ApprovalPolicy { rejection: Rejection::Offered, ..ApprovalPolicy::default() };
    group.before_gates.push(approval(policy));
    let stage = Stage::new(name("one"), vec![group, Group::new(name("b"))]);
    let members = [("a-0", "a"), ("b-0", "b"), ("b-1", "b")].map(|(one, of)| member(one, Some(of), &[]));
    let strategy = Strategy::new(vec![stage]).expect("strategy");
    let plan = Plan::resolve(goal(UpgradeType::Full, Some(TARGET)), Some(&strategy), &members).expect("plan");
    let mut bench = Bench::of_plan(plan);
    bench.start();
    bench.move_("b-0");
    say(&mut bench, 0, Decision::Reject, "ann").expect("taken");
    assert_eq!(
        (bench.run.state(), bench.run.error(Part::Run).expect("error").code.as_str()),
        (State::Stopping, "GateRejected")
    );
    bench.finish("b-0");
    assert_eq!(bench.run.state(), State::Stopped);
    assert_eq!(bench.run.member_state(bench.index("b-1")), State::NotStarted);
    bench.start();
    assert_eq!(bench.why_member("a-0"), at_gate("a"));
    assert_eq!(bench.run.member_state(bench.index("b-1")), State::Running);
}

#[test]
fn a6_an_approval_that_expires_while_stopped_is_asked_for_anew_at_the_start() {
    let policy = ApprovalPolicy { expires_after_seconds: Some(3600), ..ApprovalPolicy::default() };
    let mut bench = started(vec![approval(policy)]);
    bench.stop();
    bench.advance(DAY);
    bench.check("Stopped; one NotStarted; a NotStarted NN");
    bench.start();
    bench.check("Pending; one Pending; a NotStarted NN");
    assert_eq!(bench.run.gate(0).due(), Some(bench.now + SignedDuration::from_secs(3600)));
    bench.advance(3599);
    say(&mut bench, 0, Decision::Approve, "ann").expect("taken");
    bench.check("Running; one Running; a Running RR");
}
