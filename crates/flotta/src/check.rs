//! What a run would do to its members, as `flotta run check` and `--dry-run` show it, and what that means for the exit
//! code.

use std::{collections::BTreeMap, fmt::Write, iter};

use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    client::{
        http::{Api, Request},
        resources::Kind as Resource,
    },
    failure::{Failure, Kind},
    output::{self, Format, say},
};

/// Rows of members alike that are shown of each outcome; the rest is counted.
const MOST_SHOWN: usize = 50;

/// Members named in a row; the rest is counted.
const MOST_NAMED: usize = 4;

/// What a check found.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    value: Vec<Member>,
    kubernetes_version: Option<String>,
    errors: usize,
    warnings: usize,
    #[serde(default)]
    notes: usize,
}

#[derive(Debug, Deserialize)]
struct Member {
    member: String,
    stage: Option<String>,
    group: Option<String>,
    outcome: String,
    #[serde(default)]
    steps: Vec<String>,
    #[serde(default)]
    findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    severity: String,
    code: String,
    message: String,
}

/// Outcomes in the order in which they matter, with the words for them.
const OUTCOMES: [(&str, &str); 5] = [
    ("Fails", "would fail"),
    ("Waits", "would wait"),
    ("NotInRun", "not in the run"),
    ("Skipped", "would be skipped"),
    ("Upgrades", "would be upgraded"),
];

/// Asks what a run, or a part of it, would do to its members: `member`, `group` or `stage`, and its name.
pub async fn ask(api: &Api, run: &str, part: Option<(&str, &str)>) -> Result<Value, Failure> {
    let what = format!("check run '{run}'");
    let mut url = api.target.action_url(Resource::Run, run, Some("check"))?;
    if let Some((kind, name)) = part {
        url.query_pairs_mut().append_pair(kind, name);
    }
    Ok(api.send(Request::new(&what, Method::POST, url)).await?.body)
}

/// What a report comes to in one line, such as `12 members: 2 would wait, 10 would be upgraded`.
pub fn outcomes(body: &Value) -> Option<String> {
    let members = body["value"].as_array()?;
    let of = |outcome: &str| members.iter().filter(|member| member["outcome"] == outcome).count();
    let counts = OUTCOMES.iter().map(|(outcome, words)| (of(outcome), words)).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, words)| format!("{count} {words}")).collect();
    let members = match members.len() {
        0 => return None,
        1 => "1 member".to_owned(),
        many => format!("{many} members"),
    };
    Some(format!("{members}: {}", counts.join(", ")))
}

/// Shows a report. Errors and warnings in it are failures, each with its own exit code.
pub fn show(format: Format, name: &str, body: &Value) -> Result<(), Failure> {
    let report: Report = serde_json::from_value(body.clone()).map_err(|error| {
        let cannot = format!("cannot read the check of run '{name}'");
        Failure::new(Kind::Failed, cannot, error.to_string()).hint("does this server know checks?")
    })?;
    match format {
        Format::Table => say(&table(name, &report, output::width()))?,
        format => say(&output::document(format, body)?)?,
    }
    verdict(name, &report)
}

fn verdict(name: &str, report: &Report) -> Result<(), Failure> {
    let found = counted(report);
    match (report.errors, report.warnings) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::new(Kind::Warned, format!("run '{name}' may not go as you expect"), found)),
        _ => Err(Failure::new(Kind::Failed, format!("run '{name}' would not bring every member there"), found)),
    }
}

fn counted(report: &Report) -> String {
    let count = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let counts = [(report.errors, "error"), (report.warnings, "warning"), (report.notes, "note")];
    counts.map(|(number, word)| count(number, word)).join(", ")
}

fn table(name: &str, report: &Report, width: Option<u16>) -> String {
    let mut text = match &report.kubernetes_version {
        Some(version) => format!("run '{name}' would go to Kubernetes {version}"),
        None => format!("what run '{name}' would do"),
    };
    let known = |outcome: &str| OUTCOMES.iter().any(|(word, _)| *word == outcome);
    let others = report.value.iter().map(|member| member.outcome.as_str()).find(|outcome| !known(outcome));
    let others = others.map(|outcome| (outcome, outcome));
    for (outcome, words) in OUTCOMES.into_iter().chain(others) {
        let mut members: Vec<&Member> = report.value.iter().filter(|member| member.outcome == outcome).collect();
        if members.is_empty() {
            continue;
        }
        members.sort_by_key(|member| member.findings.first().map_or(3, |finding| rank(&finding.severity)));
        let alike = alike(&members);
        let rows = alike.iter().take(MOST_SHOWN).flat_map(rows);
        // Writing to a text cannot fail.
        let _ = write!(text, "\n\n{}: {}\n", output::clean(words), members.len());
        text += &output::grid(["MEMBER", "STAGE/GROUP", "LEVEL", "WHY"], rows, width);
        let left: usize = alike.iter().skip(MOST_SHOWN).map(|(_, names)| names.len()).sum();
        if left > 0 {
            let _ = write!(text, "\n… and {left} more: -o json shows all");
        }
    }
    text + "\n\n" + &counted(report)
}

fn rank(severity: &str) -> u8 {
    match severity {
        "Error" => 0,
        "Warning" => 1,
        _ => 2,
    }
}

/// What is told of a member: its place, then a level and a text for what is done and for each finding.
type Told = (String, Vec<[String; 2]>);

fn told(member: &Member) -> Told {
    let place = match (&member.stage, &member.group) {
        (Some(stage), Some(group)) => format!("{stage}/{group}"),
        _ => "-".into(),
    };
    let steps = (!member.steps.is_empty()).then(|| [String::new(), member.steps.join(", then ")]);
    let findings = member.findings.iter();
    let findings =
        findings.map(|finding| [finding.severity.to_lowercase(), format!("{}: {}", finding.code, finding.message)]);
    (place, steps.into_iter().chain(findings).collect())
}

/// Members of which the same is told, together, in the order of their firsts.
fn alike<'a>(members: &[&'a Member]) -> Vec<(Told, Vec<&'a str>)> {
    let mut places: BTreeMap<Told, usize> = BTreeMap::new();
    let mut alike: Vec<(Told, Vec<&str>)> = Vec::new();
    for member in members {
        let told = told(member);
        let place = *places.entry(told.clone()).or_insert(alike.len());
        match alike.get_mut(place) {
            Some((_, names)) => names.push(&member.member),
            None => alike.push((told, vec![&member.member])),
        }
    }
    alike
}

/// The rows of members of which the same is told; their names stand in the first.
fn rows(((place, lines), names): &(Told, Vec<&str>)) -> Vec<[String; 4]> {
    let mut shown = names.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NAMED {
        // Writing to a text cannot fail.
        let _ = write!(shown, " and {} more", names.len() - MOST_NAMED);
    }
    let lines = if lines.is_empty() { &[Default::default()][..] } else { lines };
    let heads = iter::once([shown, place.clone()]).chain(iter::repeat_with(Default::default));
    heads.zip(lines.to_vec()).map(|([names, place], [level, why])| [names, place, level, why]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn e10_a_report_comes_to_one_line_for_who_opens_a_gate() {
        let member = |outcome: &str| serde_json::json!({"member": "m", "outcome": outcome});
        let body =
            |members: &[&str]| serde_json::json!({"value": members.iter().map(|o| member(o)).collect::<Vec<_>>()});
        let line = |members: &[&str]| outcomes(&body(members));
        assert_eq!(line(&[]), None);
        assert_eq!(line(&["Waits"]).as_deref(), Some("1 member: 1 would wait"));
        let many = ["Upgrades", "Waits", "Upgrades", "Skipped"];
        assert_eq!(line(&many).as_deref(), Some("4 members: 1 would wait, 1 would be skipped, 2 would be upgraded"));
    }

    fn report(members: Value, errors: usize, warnings: usize) -> Report {
        let body = json!({"value": members, "kubernetesVersion": "1.34.2", "errors": errors, "warnings": warnings,
            "notes": 0, "uncoveredMembers": 0});
        serde_json::from_value(body).expect("report")
    }

    #[test]
    fn members_are_shown_by_what_would_happen_with_what_matters_most_first() {
        let finding = |severity: &str, code: &str| json!({"severity": severity, "code": code, "message": "do this"});
        let member = |name: &str, outcome: &str, steps: Value, findings: Value| {
            json!({"member": name, "stage": "one", "group": "a", "cluster": "/c", "outcome": outcome, "steps": steps,
                "findings": findings})
        };
        let mut outside = member("outside", "NotInRun", json!([]), json!([finding("Warning", "NotCovered")]));
        outside.as_object_mut().expect("object").retain(|key, _| !["stage", "group"].contains(&key.as_str()));
        let members = json!([
            member("ready", "Upgrades", json!(["cluster and 1 pool(s) to 1.34.2", "pool 'a' to x"]), json!([])),
            member(
                "own",
                "Upgrades",
                json!(["control plane to 1.34.2"]),
                json!([finding("Warning", "AutoUpgradeOn"), finding("Note", "NodeImageUpgradeOn")])
            ),
            member("busy", "Waits", json!([]), json!([finding("Warning", "AnotherOperationInProgress")])),
            member("stopped", "Waits", json!([]), json!([finding("Error", "ClusterStopped")])),
            outside,
        ]);
        insta::assert_snapshot!(table("up", &report(members, 1, 3), None));
    }

    #[test]
    fn a_large_section_is_cut_and_says_so() {
        let member = |n: usize| json!({"member": format!("m{n}"), "outcome": "Upgrades", "steps": [format!("to {n}")]});
        let members: Vec<Value> = (0..51).map(member).collect();
        let shown = table("up", &report(members.into(), 0, 0), None);
        assert!(shown.contains("would be upgraded: 51") && shown.contains("… and 1 more: -o json"), "{shown}");
        assert!(shown.contains("m49") && !shown.contains("m50"), "{shown}");
    }

    #[test]
    fn members_alike_share_a_row() {
        let member = |n: usize| json!({"member": format!("m{n}"), "outcome": "Upgrades", "steps": ["to 1"]});
        let members: Vec<Value> = (0..7).map(member).chain([json!({"member": "x", "outcome": "Upgrades"})]).collect();
        let shown = table("up", &report(members.into(), 0, 0), None);
        assert!(shown.contains("m0, m1, m2, m3 and 3 more   -                     to 1\nx "), "{shown}");
    }

    #[test]
    fn errors_end_with_1_warnings_alone_with_5_and_notes_with_0() {
        let code = |errors, warnings| {
            verdict("up", &report(json!([]), errors, warnings)).map_or_else(|failure| failure.kind.exit_code(), |()| 0)
        };
        assert_eq!([code(0, 0), code(0, 2), code(1, 0), code(1, 2)], [0, 5, 1, 1]);
    }
}
