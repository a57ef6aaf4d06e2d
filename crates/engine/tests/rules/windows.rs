//! Maintenance windows inside a run: who goes first, who waits, and what a close does (`behaviour.md` B2, B4, C2, C3).

use flotta_engine::{
    Event, Input, Work,
    run::{Part, Reason, State, Why, Windows},
};
use flotta_model::Hold;
use jiff::{SignedDuration, Timestamp};

use crate::bench::{Bench, daily};

const HOUR: i64 = 3600;

fn at(text: &str) -> Timestamp {
    text.parse().expect(text)
}

/// A run that is not started; it is Monday, eight o'clock.
fn bench(stages: &[&str], windows: &[(&str, &str, u8)]) -> Bench {
    let mut bench = Bench::new(stages);
    for (member, start, hours) in windows {
        bench.window(member, start, *hours);
    }
    bench
}

#[test]
fn b4_members_go_by_urgency_open_now_then_soon_then_without_a_window_then_closed() {
    // a-0 closed, a-1 opens within four hours, a-2 has none, a-3 and a-4 are open now.
    let windows = [("a-0", "20:00", 4), ("a-1", "10:00", 4), ("a-3", "06:00", 4), ("a-4", "07:00", 4)];
    let mut bench = bench(&["s / a mc=1 x5"], &windows);
    bench.start();
    bench.check("Running; s Running; a Running PPNRN");
    bench.finish("a-3");
    bench.check("Running; s Running; a Running PPNCR");
    bench.finish("a-4");
    // An idle slot would help nobody: the member without a window goes, although another opens soon.
    bench.check("Running; s Running; a Running PPRCC");
    bench.advance(2 * HOUR);
    bench.check("Running; s Running; a Running PNRCC");
    bench.finish("a-2");
    bench.check("Running; s Running; a Running PRCCC");
    bench.finish("a-1");
    bench.check("Pending; s Pending; a Pending PCCCC");
    bench.advance(10 * HOUR);
    bench.check("Running; s Running; a Running RCCCC");
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed CCCCC");
}

#[test]
fn b4_one_that_opens_takes_the_next_slot_before_those_without_a_window() {
    let mut bench = bench(&["s / a mc=1 x4"], &[("a-3", "09:00", 4)]);
    bench.start();
    bench.check("Running; s Running; a Running RNNP");
    bench.advance(HOUR);
    bench.check("Running; s Running; a Running RNNN");
    bench.finish("a-0");
    bench.check("Running; s Running; a Running CNNR");
}

#[test]
fn e11_no_member_is_started_while_its_window_is_closed() {
    let mut bench = bench(&["s / a mc=3 x2"], &[("a-0", "20:00", 4), ("a-1", "20:00", 4)]);
    bench.start();
    bench.check("Pending; s Pending; a Pending PP");
    assert_eq!(bench.run.work(), [], "nobody is looked at, and nobody holds a slot");
    assert_eq!(bench.why(Part::Run), [Why::Window]);
    bench.advance(12 * HOUR);
    bench.check("Running; s Running; a Running RR");
    assert_eq!(bench.now, at("2026-01-05T20:00:00Z"));
}

#[test]
fn e11_what_counts_is_the_window_seen_with_the_cluster_not_the_one_read_before() {
    let mut bench = bench(&["s / a mc=1 x2"], &[("a-0", "06:00", 4)]);
    bench.start();
    bench.check("Running; s Running; a Running RN");
    // Somebody has moved the window since.
    bench.window("a-0", "20:00", 4);
    let events = bench.look("a-0");
    assert!(!events.iter().any(|event| matches!(event, Event::StepIntended { .. })), "{events:?}");
    bench.check("Running; s Running; a Running PR");
    bench.finish("a-1");
    bench.advance(12 * HOUR);
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed CC");
}

#[test]
fn e48_what_is_under_way_at_the_close_ends_and_nothing_new_starts() {
    let windows = [("a-0", "07:00", 4), ("a-1", "07:00", 4)];
    let mut bench = bench(&["s / a mc=1 x2"], &windows);
    bench.start();
    bench.move_("a-0");
    bench.advance(3 * HOUR);
    bench.check("Running; s Running; a Running RP");
    bench.step_done("a-0");
    bench.look("a-0");
    bench.check("Pending; s Pending; a Pending CP");
    bench.advance(20 * HOUR);
    assert_eq!(bench.now, at("2026-01-06T07:00:00Z"));
    bench.check("Running; s Running; a Running CR");
}

#[test]
fn e48_a_step_is_not_sent_after_the_close() {
    let mut bench = bench(&["s / a x1"], &[("a-0", "07:00", 4)]);
    bench.start();
    bench.look("a-0");
    let pledge = bench.run.member(0).pledge().expect("a step is intended").clone();
    assert_eq!(pledge.not_after, Some(at("2026-01-05T11:00:00Z")));
    // The driver was held up until after the close, and did not send it.
    bench.advance(4 * HOUR);
    let ticket = bench.ticket("a-0");
    bench.tell(Input::NotAccepted(ticket));
    bench.look("a-0");
    bench.check("Pending; s Pending; a Pending P");
    assert!(bench.message("a-0").contains("closed until 2026-01-06T07:00:00Z"), "{}", bench.message("a-0"));
}

#[test]
fn mechanics_4_between_two_steps_a_member_waits_for_its_window_and_goes_first_when_it_opens() {
    let windows = [("a-0", "07:00", 4), ("a-1", "07:00", 4), ("a-2", "07:00", 4)];
    let mut bench = bench(&["s / a mc=1 x4"], &windows);
    bench.two_steps("a-2");
    bench.start();
    bench.finish("a-0");
    bench.finish("a-1");
    bench.move_("a-2");
    bench.step_done("a-2");
    bench.advance(4 * HOUR);
    bench.look("a-2");
    bench.check("Running; s Running; a Running CCPR");
    assert!(bench.message("a-2").contains("step 1 of the upgrade is done, the rest waits"), "{}", bench.message("a-2"));
    bench.finish("a-3");
    bench.check("Pending; s Pending; a Pending CCPC");
    bench.advance(20 * HOUR);
    bench.check("Running; s Running; a Running CCRC");
    assert!(matches!(bench.run.work()[..], [Work::Look(_)]));
}

#[test]
fn e49_a_window_is_not_a_trigger_and_the_reason_says_what_else_is_missing() {
    let mut bench = bench(&["s gate / a x2"], &[("a-0", "07:00", 4), ("a-1", "07:00", 4)]);
    let why = |bench: &Bench, member: u32| -> Vec<Why> {
        bench.run.waiting_on(Part::Member(member), bench.now).into_iter().map(|reason| reason.why).collect()
    };
    assert_eq!(why(&bench, 0)[0], Why::NotStarted, "the window is open, the run is not started");
    bench.start();
    bench.check("Pending; s Pending; a NotStarted NN");
    assert!(matches!(why(&bench, 0)[0], Why::Gate { .. }), "a gate and a window must both allow it");
}

#[test]
fn e50_a_missed_window_is_told_with_the_next_opening_and_how_many_were_missed() {
    let mut bench = bench(&["s / a mc=1 x2"], &[("a-0", "07:00", 4), ("a-1", "07:00", 4)]);
    bench.start();
    bench.move_("a-0");
    let message = |bench: &Bench| bench.message("a-1");
    bench.advance(3 * HOUR);
    let closed = "maintenance window closed until";
    assert_eq!(
        message(&bench),
        format!("{closed} 2026-01-06T07:00:00Z; it was open once since the member began to wait")
    );
    bench.advance(24 * HOUR);
    assert_eq!(
        message(&bench),
        format!("{closed} 2026-01-07T07:00:00Z; it was open 2 times since the member began to wait")
    );
    let error = bench.run.error(Part::Member(1)).expect("what holds it");
    assert_eq!(error.code, "MaintenanceWindowClosed");
    let reasons = bench.run.waiting_on(Part::Member(1), bench.now);
    let window = reasons.iter().find(|reason| reason.why == Why::Window).expect("its window");
    assert_eq!(window.until, Some(at("2026-01-07T07:00:00Z")));
}

#[test]
fn e52_a_failed_member_is_tried_again_inside_its_window_only() {
    let mut bench = bench(&["s / a x1"], &[("a-0", "07:00", 4)]);
    bench.start();
    bench.fail("a-0");
    bench.check("Failed; s Failed; a Failed F");
    bench.advance(HOUR);
    bench.start();
    bench.check("Running; s Running; a Running R");
    bench.fail("a-0");
    bench.advance(5 * HOUR);
    bench.start();
    bench.check("Pending; s Pending; a Pending P");
    bench.advance(18 * HOUR);
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed C");
}

#[test]
fn c3_a_member_that_waits_for_its_window_can_be_skipped_or_stopped() {
    let windows = [("a-0", "20:00", 4), ("a-1", "20:00", 4)];
    let mut bench = bench(&["s / a mc=2 x2"], &windows);
    bench.start();
    bench.skip(&["member a-0"]);
    bench.check("Pending; s Pending; a Pending SP");
    bench.stop();
    assert_eq!(bench.run.state(), State::Stopped);
    assert_eq!(bench.run.next_wake(), None, "time alone changes nothing while stopped");
    bench.advance(13 * HOUR);
    bench.start();
    bench.check("Running; s Running; a Running SR");
}

#[test]
fn c2_a_window_that_was_changed_is_noticed_within_the_hour() {
    let mut bench = bench(&["s / a x1"], &[("a-0", "20:00", 4)]);
    bench.start();
    bench.check("Pending; s Pending; a Pending P");
    bench.windows[0] = Some(daily("08:30", 4));
    bench.advance(HOUR);
    bench.check("Running; s Running; a Running R");
}

#[test]
fn choice_equal_windows_turn_together_and_wake_the_run_once() {
    let mut bench = Bench::new(&["s mc=100 / a mc=100 x50 / b mc=100 x50"]);
    bench.windows = vec![Some(daily("09:00", 4)); 100];
    bench.start();
    assert_eq!(bench.run.next_wake(), Some(at("2026-01-05T09:00:00Z")));
    bench.now = at("2026-01-05T09:00:00Z");
    let events = bench.tell(Input::Tick);
    let turns = events.iter().filter(|event| matches!(event, Event::WindowTurned { .. })).count();
    let starts = events.iter().filter(|event| matches!(event, Event::MemberStarted(_))).count();
    assert_eq!((turns, starts), (1, 100));
}

#[test]
fn choice_a_large_stage_begins_before_all_of_its_windows_are_read() {
    let mut bench = Bench::new(&["s mc=9 / a mc=9 x3"]);
    bench.step_alone(&Input::Start).expect("started");
    assert_eq!(bench.run.windows_to_read(), [0, 1, 2]);
    assert_eq!(bench.why(Part::Run), [Why::ReadingWindows]);
    let mut part = Windows { more: true, ..Windows::default() };
    part.add(0, None);
    part.add(1, Some(daily("20:00", 4)));
    bench.step_alone(&Input::WindowsSeen(part)).expect("taken");
    bench.check("Running; s Running; a Running RPN");
    assert_eq!(bench.run.windows_to_read(), [2]);
}

#[test]
fn rule_3_a_member_behind_a_window_and_a_hold_is_told_both() {
    let mut bench = bench(&["s / a x1"], &[("a-0", "07:00", 4)]);
    bench.start();
    bench.hold("a-0", Hold::ClusterStopped);
    bench.advance(4 * HOUR);
    let reasons: Vec<Reason> = bench.run.waiting_on(Part::Member(0), bench.now);
    let why: Vec<&Why> = reasons.iter().map(|reason| &reason.why).collect();
    assert_eq!(why, [&Why::Held(Hold::ClusterStopped), &Why::Window]);
    let opens = at("2026-01-06T07:00:00Z");
    assert_eq!(reasons[0].until, Some(bench.now + SignedDuration::from_mins(2)), "looked at again in two minutes");
    assert_eq!((reasons[1].until, Reason::earliest(&reasons)), (Some(opens), Some(opens)));
}
