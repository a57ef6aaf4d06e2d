//! Reasons why members wait, as sentences. The server's reasons are typed; a kind that is new here is shown as it is.

use jiff::Timestamp;
use serde_json::Value;

use super::text::duration;

/// The reasons as sentences, the most important first; many waits for a slot become one.
pub fn sentences(waiting: &[Value], now: Timestamp, most: usize) -> Vec<String> {
    let slot = |reason: &Value| reason.pointer("/why/Slot").is_some();
    let (slots, others): (Vec<&Value>, Vec<&Value>) = waiting.iter().partition(|reason| slot(reason));
    if waiting.len() <= most || slots.len() < 2 {
        return waiting.iter().map(|reason| sentence(reason, now)).collect();
    }
    let members: u64 = slots.iter().filter_map(|reason| reason.get("members")?.as_u64()).sum();
    let all = format!("{members} members for a slot, in {} groups or stages", slots.len());
    others.into_iter().map(|reason| sentence(reason, now)).chain([all]).collect()
}

/// A reason as a sentence, such as `14 members for a slot in 'prod' (3 at once)`.
pub fn sentence(reason: &Value, now: Timestamp) -> String {
    let members = match reason.get("members").and_then(Value::as_u64).unwrap_or(0) {
        0 => String::new(),
        1 => "1 member ".into(),
        count => format!("{count} members "),
    };
    format!("{members}{}", own(reason, now))
}

/// A reason as a sentence about one thing.
pub fn own(reason: &Value, now: Timestamp) -> String {
    let why = reason.get("message").or_else(|| reason.get("why")).unwrap_or(reason);
    let until = reason.get("until").and_then(Value::as_str).and_then(|until| until.parse::<Timestamp>().ok());
    match (why, until) {
        (Value::String(word), None) if word == "Window" => "for a maintenance window that never opens".into(),
        (why, Some(until)) if why.get("Held").is_some() => format!("{}; {}", phrase(why), next_look(until, now)),
        (why, Some(until)) => format!("{}, {}", phrase(why), when(until, now)),
        (why, None) => phrase(why),
    }
}

/// When what holds a member is looked at again: that it gives way then is not said.
fn next_look(until: Timestamp, now: Timestamp) -> String {
    match until.duration_since(now).as_secs() {
        ..=0 => "looked at again now".into(),
        _ => format!("looked at again in {}", duration(now, until)),
    }
}

/// When something can happen at the earliest; with the time itself where that is not close.
pub fn when(until: Timestamp, now: Timestamp) -> String {
    match until.duration_since(now).as_secs() {
        ..=0 => "due now".into(),
        1..3600 => format!("in {} at the earliest", duration(now, until)),
        _ => format!("in {} at the earliest ({})", duration(now, until), until.strftime("%a %Y-%m-%d %H:%M UTC")),
    }
}

fn phrase(why: &Value) -> String {
    match why {
        Value::String(word) => plain(word),
        Value::Object(map) if map.len() == 1 => {
            map.iter().next().map(|(kind, about)| with(kind, about)).unwrap_or_default()
        }
        other => other.to_string(),
    }
}

fn plain(word: &str) -> String {
    let known = match word {
        "NotStarted" => "for the run to be started",
        "Stopping" => "because the run is coming to a halt",
        "Stopped" => "because the run was stopped",
        "Failed" => "because the run failed",
        "ResolvingTarget" => "until a region of the run offers a patch of the version to go to",
        "Window" => "for a maintenance window to open",
        "ReadingWindows" => "for maintenance windows to be read",
        other => other,
    };
    known.to_owned()
}

fn with(kind: &str, about: &Value) -> String {
    let text = |key: &str| match about.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "?".into(),
    };
    match (kind, about) {
        ("EarlierStage", Value::String(stage)) => format!("for stage '{stage}', which comes earlier"),
        ("Gate", _) => format!("for {}", text("gate")),
        ("StageWait", Value::String(stage)) => format!("for the wait after stage '{stage}'"),
        ("Slot", _) => format!("for a slot in '{}' ({} at once)", text("of"), text("limit")),
        ("FailureLimit", _) if text("failures") == text("limit") => {
            format!("because '{}' has used up its strict budget of {} failures", text("of"), text("limit"))
        }
        ("FailureLimit", _) => {
            format!(
                "because '{}' has {} failures, more than its limit of {}",
                text("of"),
                text("failures"),
                text("limit")
            )
        }
        ("Held", hold) => format!("held: {}", held(hold)),
        (kind, Value::String(text)) => format!("{kind}: {text}"),
        (kind, about) => format!("{kind}: {about}"),
    }
}

/// A hold, in the model's own words.
fn held(hold: &Value) -> String {
    match serde_json::from_value::<flotta_model::Hold>(hold.clone()) {
        Ok(hold) => hold.to_string(),
        Err(_) => phrase(hold),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn many_waits_for_a_slot_hide_no_other_reason() {
        let now = "2026-01-01T00:00:00Z".parse().expect("time");
        let slot = |of: &str| json!({"why": {"Slot": {"of": of, "limit": 1}}, "members": 10});
        let waiting = [slot("a"), slot("b"), slot("c"), json!({"why": {"Held": "Throttled"}, "members": 2})];
        let merged =
            ["2 members held: the provider asked to slow down", "30 members for a slot, in 3 groups or stages"];
        assert_eq!(sentences(&waiting, now, 3), merged);
        assert_eq!(sentences(&waiting, now, 4).len(), 4);
    }

    #[test]
    fn each_kind_of_reason_has_its_sentence() {
        let now = "2026-01-01T00:00:00Z".parse().expect("time");
        let cases = [
            (
                json!({"why": {"Slot": {"of": "prod", "limit": 3}}, "members": 14}),
                "14 members for a slot in 'prod' (3 at once)",
            ),
            (json!({"why": "NotStarted", "members": 1}), "1 member for the run to be started"),
            (
                json!({"why": "ResolvingTarget", "members": 4}),
                "4 members until a region of the run offers a patch of the version to go to",
            ),
            (
                json!({"why": {"StageWait": "canary"}, "until": "2026-01-01T00:05:00Z", "members": 0}),
                "for the wait after stage 'canary', in 5m 00s at the earliest",
            ),
            (json!({"why": {"Held": {"Claimed": {"by": "f/up"}}}, "members": 2}), "2 members held: held by run f/up"),
            (json!({"why": {"Held": "Throttled"}, "members": 2}), "2 members held: the provider asked to slow down"),
            (
                json!({"why": {"Held": "ClusterStopped"}, "members": 1, "until": "2026-01-01T00:00:46Z"}),
                "1 member held: the cluster is stopped; start it, or skip the member; looked at again in 46s",
            ),
            (
                json!({"why": {"Gate": {"of": "prod", "gate": "approval 'go' before stage 'prod'"}}, "members": 3}),
                "3 members for approval 'go' before stage 'prod'",
            ),
            (
                json!({"why": {"Gate": {"of": "prod", "gate": "scheduled start before stage 'prod'"}}, "members": 0,
                    "until": "2026-01-03T02:00:00Z"}),
                "for scheduled start before stage 'prod', in 2d 02h at the earliest (Sat 2026-01-03 02:00 UTC)",
            ),
            (
                json!({"why": "Window", "until": "2026-01-01T02:00:00Z", "members": 9}),
                "9 members for a maintenance window to open, in 2h 00m at the earliest (Thu 2026-01-01 02:00 UTC)",
            ),
            (json!({"why": "Window", "members": 1}), "1 member for a maintenance window that never opens"),
            (json!({"why": "ReadingWindows", "members": 4}), "4 members for maintenance windows to be read"),
            (
                json!({"why": {"FailureLimit": {"of": "eu", "failures": 2, "limit": 2}}, "members": 4}),
                "4 members because 'eu' has used up its strict budget of 2 failures",
            ),
            (json!({"why": {"Held": {"Eclipse": "moon"}}, "members": 2}), "2 members held: Eclipse: moon"),
            (json!({"why": "waiting for the moon", "members": 2}), "2 members waiting for the moon"),
            (
                json!({"why": {"FailureLimit": {"of": "eu", "failures": 3, "limit": 2}}, "members": 4}),
                "4 members because 'eu' has 3 failures, more than its limit of 2",
            ),
            (
                json!({"why": {"EarlierStage": "canary"}, "members": 4}),
                "4 members for stage 'canary', which comes earlier",
            ),
        ];
        for (reason, expect) in cases {
            assert_eq!(sentence(&reason, now), expect);
        }
    }
}
