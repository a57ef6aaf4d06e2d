//! A run in several states, as lines.

use serde_json::{Value, json};

use super::{render, render::Room, run::Run, *};

const NOW: &str = "2026-01-01T02:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("time")
}

fn member(name: &str, state: &str) -> Value {
    let status = match state {
        "NotStarted" => json!({"state": state}),
        "Running" | "Pending" => json!({"state": state, "startTime": "2026-01-01T01:48:00Z"}),
        _ => json!({"state": state, "startTime": "2026-01-01T00:10:00Z", "completedTime": "2026-01-01T00:22:30Z"}),
    };
    json!({"name": name, "status": status})
}

fn many(prefix: &str, states: &[&str]) -> Vec<Value> {
    states.iter().enumerate().map(|(index, state)| member(&format!("{prefix}-{index}"), state)).collect()
}

fn run(state: &str, stages: Value) -> Value {
    json!({"name": "up-1-34", "properties": {
        "managedClusterUpdate": {"upgrade": {"type": "Full", "kubernetesVersion": "1.34.2"}},
        "status": {"status": {"state": state, "startTime": "2026-01-01T00:00:00Z"}, "stages": stages}}})
}

fn status(state: &str) -> Value {
    match state {
        "NotStarted" => json!({"state": state}),
        _ => json!({"state": state, "startTime": "2026-01-01T00:00:00Z"}),
    }
}

/// Canary done, staging under way with a failure and a held member, production to come.
fn midway() -> Value {
    let mut eu = many("eu", &["Completed", "Failed", "Running", "Pending", "NotStarted", "NotStarted"]);
    eu[1]["status"]["error"] = json!({"code": "PodDrainFailure", "message": "drain of node 3\nfailed"});
    eu[2]["message"] = "upgrading, step 1 of 1".into();
    eu[3]["status"]["error"] =
        json!({"code": "AnotherOperationInProgress", "message": "another operation is in progress (Updating)"});
    run(
        "Running",
        json!([
            {"name": "canary", "status": {"state": "Completed", "startTime": "2026-01-01T00:00:00Z", "completedTime": "2026-01-01T00:30:00Z"},
             "groups": [{"name": "canary", "status": status("Completed"), "members": many("canary", &["Completed", "Skipped"])}]},
            {"name": "staging", "status": status("Running"), "groups": [
                {"name": "eu", "status": status("Running"), "members": eu},
                {"name": "us", "status": status("Running"), "members": many("us", &["Running"; 4])},
                {"name": "empty", "status": {"state": "Skipped"}}]},
            {"name": "production", "status": status("NotStarted"),
             "groups": [{"name": "prod", "status": status("NotStarted"), "members": many("prod", &["NotStarted"; 30])}]},
        ]),
    )
}

fn waiting() -> Vec<Value> {
    vec![
        json!({"why": {"Slot": {"of": "eu", "limit": 1}}, "members": 2}),
        json!({"why": {"EarlierStage": "staging"}, "members": 30}),
    ]
}

fn drawn(run: &Value, waiting: &[Value], room: Room) -> String {
    let run = Run::read(run).expect("run");
    let lines = render::view(&run, waiting, now(), room);
    let painted: Vec<String> = lines.iter().map(|line| line.paint(room.width, false)).collect();
    painted.join("\n")
}

#[test]
fn a_run_under_way_shows_stages_groups_members_failures_and_reasons() {
    insta::assert_snapshot!(drawn(&midway(), &waiting(), Room { width: 110, height: 40 }));
}

#[test]
fn a_narrow_terminal_gets_the_same_without_bars() {
    insta::assert_snapshot!(drawn(&midway(), &waiting(), Room { width: 50, height: 40 }));
}

#[test]
fn the_view_is_never_larger_than_the_room() {
    for (width, height) in [(20, 5), (40, 10), (79, 12), (110, 23), (200, 60)] {
        let drawn = drawn(&midway(), &waiting(), Room { width, height });
        let widest = drawn.lines().map(unicode_width::UnicodeWidthStr::width).max().unwrap_or(0);
        assert!(drawn.lines().count() <= height && widest <= width, "{width}x{height}:\n{drawn}");
    }
}

#[test]
fn failures_and_reasons_keep_their_place_where_there_are_many_groups() {
    let groups: Vec<Value> = (0..50)
        .map(|n| json!({"name": format!("g{n}"), "status": status("Running"), "members": many("m", &["Running", "Failed"])}))
        .collect();
    let run = run("Running", json!([{"name": "all", "status": status("Running"), "groups": groups}]));
    let drawn = drawn(&run, &waiting(), Room { width: 100, height: 24 });
    for part in ["more rows, 0 of them done", "under way (50)", "failed (50)", "waiting: 2 members"] {
        assert!(drawn.contains(part), "{part} in\n{drawn}");
    }
    for height in 8..24 {
        let drawn = super::tests::drawn(&run, &waiting(), Room { width: 100, height });
        let parts = ["run up", "under way (50)", "failed (50)", "waiting: "];
        assert!(parts.iter().all(|part| drawn.contains(part)), "{height} lines:\n{drawn}");
    }
}

#[test]
fn where_rows_are_cut_failed_and_moving_groups_stay() {
    let states = ["Completed", "NotStarted", "Completed", "Running", "NotStarted", "Failed", "Completed", "Pending"];
    let groups: Vec<Value> = (0..80)
        .map(|n| {
            let state = if n < 72 { states[n % 2] } else { states[n % 8] };
            json!({"name": format!("g{n}"), "status": status(state), "members": many("m", &[state])})
        })
        .collect();
    let run = run("Running", json!([{"name": "all", "status": status("Running"), "groups": groups}]));
    let drawn = drawn(&run, &waiting(), Room { width: 100, height: 24 });
    let shown: Vec<&str> = drawn
        .lines()
        .take_while(|line| !line.contains("more rows"))
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('g')))
        .collect();
    assert_eq!(
        &shown[shown.len() - 3..],
        ["g75", "g77", "g79"],
        "running, failed and pending, in their order\n{drawn}"
    );
    assert!(shown[..shown.len() - 3].iter().all(|name| drawn.contains(&format!("· {name} "))), "not started:\n{drawn}");
    assert!(drawn.contains("more rows, 39 of them done"), "{drawn}");
}

#[test]
fn gates_and_waits_are_shown_where_they_are() {
    let run = run(
        "Pending",
        json!([
            {"name": "canary", "status": status("Running"),
             "groups": [{"name": "c", "status": status("Completed"), "members": many("c", &["Completed"])}],
             "afterStageWaitStatus": {"status": {"state": "Running", "startTime": "2026-01-01T01:50:00Z"}, "waitDurationInSeconds": 3600}},
            {"name": "prod", "status": status("Pending"),
             "beforeGates": [{"displayName": "change board", "status": {"state": "Pending"}}],
             "groups": [{"name": "p", "status": status("NotStarted"), "members": many("p", &["NotStarted"])}]},
        ]),
    );
    let drawn = drawn(&run, &[], Room { width: 80, height: 40 });
    assert!(drawn.contains("waiting after the stage: 10m 00s of 1h 00m"), "{drawn}");
    assert!(drawn.contains("gate 'change board' is closed"), "{drawn}");
}

#[test]
fn the_summary_tells_what_became_of_everyone() {
    let mut value = midway();
    value["properties"]["status"]["status"] = json!({"state": "Failed", "startTime": "2026-01-01T00:00:00Z",
        "completedTime": "2026-01-01T03:30:00Z", "error": {"code": "MaxAllowedFailuresExceeded", "message": "group 'eu' has 1 failed member(s)"}});
    value["properties"]["status"]["stages"][0]["groups"][0]["members"][1]["message"] = "skipped by request.".into();
    let run = Run::read(&value).expect("run");
    let room = Room { width: 110, height: 500 };
    let lines = summary::summary(&run, Some(Duration::from_secs(65)), room);
    let painted: Vec<String> = lines.iter().map(|line| line.paint(room.width, false)).collect();
    insta::assert_snapshot!(painted.join("\n"));
    let failure = verdict(&run).expect_err("a failed run is a failure");
    assert_eq!(failure.kind, Kind::Failed);
    assert!(failure.to_string().contains("MaxAllowedFailuresExceeded"), "{failure}");
}

#[test]
fn the_summary_tells_each_cause_once_with_its_members() {
    let mut members = many("eu-shop", &["Failed"; 14]);
    for (index, member) in members.iter_mut().enumerate() {
        let message = match index {
            5 => "quota of 100 cores is used up".to_owned(),
            _ => format!("node aks-web-{index}-vmss000001 cannot be drained: a disruption budget of 1.33.3 forbids it"),
        };
        member["status"]["error"] = json!({"code": "UpgradeFailed", "message": message});
    }
    let groups = json!([{"name": "eu", "status": status("Failed"), "members": members}]);
    let run = Run::read(&run("Failed", json!([{"name": "prod", "status": status("Failed"), "groups": groups}])));
    let room = Room { width: 70, height: 500 };
    let lines = summary::summary(&run.expect("run"), None, room);
    let painted: Vec<String> = lines.iter().map(|line| line.paint(usize::MAX, false)).collect();
    assert!(painted.iter().all(|line| line.chars().count() <= room.width), "{painted:#?}");
    insta::assert_snapshot!(painted.join("\n"));
}

#[test]
fn only_completed_and_skipped_runs_end_well() {
    let one = json!([{"name": "s", "groups": [{"name": "g", "members": [member("m", "Completed")]}]}]);
    for (state, good) in [("Completed", true), ("Skipped", true), ("Failed", false), ("Stopped", false)] {
        let ended = Run::read(&run(state, one.clone())).expect("run");
        assert!(ended.status.state.is_end());
        assert_eq!(verdict(&ended).is_ok(), good, "{state}");
        let empty = Run::read(&run(state, json!([{"name": "s", "groups": [{"name": "g"}]}]))).expect("run");
        assert!(verdict(&empty).is_err(), "{state}: a run without members did nothing");
    }
    for state in ["NotStarted", "Running", "Pending", "Stopping", "Hibernating"] {
        assert!(!Run::read(&run(state, json!([]))).expect("run").status.state.is_end(), "{state}");
    }
}

#[test]
fn the_log_has_a_line_for_each_change_and_none_for_none() {
    let mut log = Log::default();
    let read = |value: &Value| Run::read(value).expect("run");
    let first = log.changes(&read(&midway()), &waiting(), now());
    insta::assert_snapshot!(first.join("\n"));
    assert_eq!(log.changes(&read(&midway()), &waiting(), now()), Vec::<String>::new());

    let mut next = midway();
    let members = &mut next["properties"]["status"]["stages"][1]["groups"][0]["members"];
    members[2]["message"] = "upgrading, 50% of nodes".into();
    members[3]["status"] = json!({"state": "Running", "startTime": "2026-01-01T01:59:00Z"});
    let fewer = [json!({"why": {"Slot": {"of": "eu", "limit": 1}}, "members": 1}), waiting()[1].clone()];
    assert_eq!(log.changes(&read(&next), &fewer, now()), ["02:00:00 member eu-3 (staging/eu): Running"]);
}

#[test]
fn the_log_tells_the_end_of_parts_before_that_of_the_whole() {
    let of = |state: &str| {
        let member = json!({"name": "m", "status": {"state": state}});
        let group = json!([{"name": "g", "status": status(state), "members": [member]}]);
        Run::read(&run(state, json!([{"name": "s", "status": status(state), "groups": group}]))).expect("run")
    };
    let mut log = Log::default();
    let mut told = |state: &str| {
        let lines = log.changes(&of(state), &[], now());
        lines.iter().map(|line| line.split_whitespace().nth(1).unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(told("Running"), ["run", "stage", "group", "member"]);
    assert_eq!(told("Completed"), ["member", "group", "stage", "run"]);
}

#[test]
fn the_log_tells_many_waits_for_slots_in_one_line() {
    let run = Run::read(&run("Running", json!([]))).expect("run");
    let slot = |n: u32| json!({"why": {"Slot": {"of": format!("g{n}"), "limit": 1}}, "members": 3});
    let many: Vec<Value> = (0..5).map(slot).collect();
    let told = |waiting: &[Value]| Log::default().changes(&run, waiting, now()).split_off(1);
    assert_eq!(told(&many), ["02:00:00 waiting: 15 members for a slot, in 5 groups or stages"]);
    assert_eq!(told(&many[..4]).len(), 4);
}

#[test]
fn redrawing_goes_up_as_many_lines_as_were_drawn() {
    let lines = [Line::new(text::Ink::Plain, "a"), Line::new(text::Ink::Bad, "b")];
    assert_eq!(redraw(&lines, 0, 10, false), "a\u{1b}[K\nb\u{1b}[K\n\u{1b}[J");
    assert_eq!(redraw(&lines[..1], 2, 10, false), "\u{1b}[2A\ra\u{1b}[K\n\u{1b}[J");
}

#[test]
fn a_run_without_status_is_read_too() {
    let run = Run::read(&json!({"name": "a"})).expect("run");
    assert_eq!((run.status.state, run.stages.len()), (State::NotStarted, 0));
}

#[test]
fn a_closed_gate_tells_how_to_open_it_unless_it_has_stopped_the_run() {
    let gate = json!([{"displayName": "go", "gateId": "/fleets/f/gates/62b62d86-0824-4358-a380-ebba5ed54a71",
        "status": {"state": "Pending", "startTime": "2026-01-01T01:00:00Z"}}]);
    let stage = json!([{"name": "prod", "status": {"state": "Pending"}, "beforeGates": gate,
        "groups": [{"name": "eu", "status": {"state": "NotStarted"}, "members": many("eu", &["NotStarted"])}]}]);
    let mut value = run("Pending", stage);
    let room = Room { width: 100, height: 20 };
    let shown = |value: &Value| {
        let run = Run::read(value).expect("run");
        let lines = render::view(&run, &[], now(), room).into_iter().map(|line| line.paint(room.width, false));
        (lines.collect::<Vec<_>>().join("\n"), Log::default().changes(&run, &[], now()).join("\n"))
    };
    let way = "to open it: flotta gate approve 62b62d86";
    let (view, log) = shown(&value);
    assert!(view.contains(&format!("… gate 'go' is closed; {way}")), "{view}");
    assert!(log.contains(&format!("gate 'go' before stage prod: Pending: {way}")), "{log}");
    value["properties"]["status"]["status"]["error"] = json!({"code": "GateRejected", "message": "no"});
    let (view, log) = shown(&value);
    assert!(view.contains("gate 'go' is closed") && !view.contains(way) && !log.contains(way), "{view}\n{log}");
}

#[test]
fn a_gate_is_called_what_the_strategy_says_it_is() {
    let gate =
        |name: Value| json!({"displayName": name, "gateId": "/gates/62b62d86-0824", "status": {"state": "Pending"}});
    let group = json!({"name": "eu", "beforeGates": [gate(Value::Null)], "afterGates": [gate("eu is well".into())]});
    let stage =
        json!({"name": "prod", "status": {"state": "Pending"}, "beforeGates": [gate("go".into())], "groups": [group]});
    let mut value = run("Pending", json!([stage]));
    let (approval, start) = (json!([{"type": "Approval"}]), json!([{"type": "ScheduledStart"}]));
    let groups = json!([{"beforeGates": start, "afterGates": approval}]);
    value["properties"]["strategy"] = json!({"stages": [{"beforeGates": approval, "groups": groups}]});
    let view = drawn(&value, &[], Room { width: 100, height: 20 });
    let gates: Vec<&str> = view.lines().filter(|line| line.contains("is closed")).map(str::trim).collect();
    assert_eq!(
        gates,
        [
            "… approval 'go' is closed; to open it: flotta gate approve 62b62d86",
            "… scheduled start is closed; to open it before its time: flotta gate approve 62b62d86",
            "… approval 'eu is well' is closed; to open it: flotta gate approve 62b62d86",
        ]
    );
}

#[test]
fn how_long_a_stopped_run_took_is_not_guessed() {
    let stage = json!([{"name": "s", "status": {"state": "Stopped", "startTime": "2026-01-01T00:00:00Z"},
        "groups": [{"name": "g", "status": status("NotStarted"), "members": many("m", &["Completed", "NotStarted"])}]}]);
    let stopped = run("Stopped", stage);
    let lines = summary::summary(&Run::read(&stopped).expect("run"), None, Room { width: 100, height: 20 });
    let text: Vec<String> = lines.iter().map(|line| line.paint(100, false)).collect();
    assert!(text[1].starts_with("run up-1-34 Stopped · "), "{text:#?}");
    assert!(text[2].trim_end().ends_with("/2"), "{text:#?}");
}

#[test]
fn a_reason_is_told_to_its_end() {
    let reason = json!({"why": "Window", "until": "2026-01-03T02:00:00Z", "members": 3});
    let view = drawn(&run("Pending", json!([])), &[reason], Room { width: 60, height: 20 });
    let told = "  waiting: 3 members for a maintenance window to open, in 2d\n           00h at the earliest (Sat 2026-01-03 02:00 UTC)";
    assert!(view.contains(told), "{view}");
}

#[test]
fn gates_of_the_same_name_at_one_place_are_told_once_each() {
    let gates = |state: &str| {
        let gate = json!({"status": {"state": state}, "gateId": "/gates/62b62d86-0824"});
        json!([{"name": "s", "status": {"state": "Pending"}, "beforeGates": [gate, gate], "afterGates": [gate]}])
    };
    let mut log = Log::default();
    let mut look = |state: &str| log.changes(&Run::read(&run("Pending", gates(state))).expect("run"), &[], now());
    let told = |lines: Vec<String>| lines.iter().filter(|line| line.contains(" gate")).count();
    assert_eq!([told(look("Pending")), told(look("Pending")), told(look("Completed"))], [3, 0, 3]);
}
