//! `flotta run why`: what holds a run, or a part of it, in sentences.

use reqwest::Method;
use serde_json::Value;

use crate::{
    cli::Part,
    client::{
        http::{Api, Request},
        resources::Kind,
    },
    failure::Failure,
    gates::{self, Gate},
    output::{self, Format, say},
    watch::{
        domain_time,
        waiting::{own, sentence, when},
    },
};

/// Tells why a part of a run does not move.
pub async fn why(api: &Api, format: Format, run: &str, part: &Part) -> Result<(), Failure> {
    let what = format!("ask what run '{run}' waits for");
    let mut url = api.target.action_url(Kind::Run, run, Some("waitingOn"))?;
    let asked = part.asked();
    if let Some((kind, name)) = &asked {
        url.query_pairs_mut().append_pair(kind, name);
    }
    let answer = api.send(Request::new(&what, Method::GET, url)).await?;
    if format != Format::Table {
        return say(&output::document(format, &answer.body)?);
    }
    let now = domain_time(answer.header("x-flotta-time"));
    let list = answer.body["value"].as_array().cloned().unwrap_or_default();
    let state = answer.body["state"].as_str().unwrap_or("Unknown");
    let named = asked.map_or_else(|| format!("run '{run}'"), |(kind, name)| format!("{kind} '{name}'"));
    if list.is_empty() {
        return say(&format!("{named} is {state}: {}", unheld(state, run)));
    }
    let is_member = matches!(part, Part { member: Some(_), .. });
    say(&format!("{named} is {state}, waiting"))?;
    let closed = if list.iter().any(is_gate) { closed(api, run).await } else { Vec::new() };
    for reason in &list {
        let sentence = if is_member { own(reason, now) } else { sentence(reason, now) };
        say(&format!("  - {}", output::clean(&sentence)))?;
        if let Some(way) = way(reason, run) {
            say(&format!("      {way}"))?;
        }
        if let Some(gate) = closed.iter().find(|gate| reason.pointer("/why/Gate/gate") == Some(&gate.title().into())) {
            say(&format!("      {}", gate.way()))?;
        }
    }
    if !is_member {
        return Ok(());
    }
    let earliest = answer.body["earliest"].as_str().and_then(|at| at.parse().ok());
    say(&match earliest {
        Some(at) => format!("it can move {}", when(at, now)),
        None => "no time can be told: it depends on people, or on other members".to_owned(),
    })
}

/// What ends it, where that is a command.
fn way(reason: &Value, run: &str) -> Option<String> {
    match reason["why"].as_str()? {
        "NotStarted" => Some(format!("to start it: flotta run start {run}")),
        "Stopped" | "Failed" => Some(format!("to go on: flotta run start {run}")),
        _ => None,
    }
}

fn is_gate(reason: &Value) -> bool {
    reason.pointer("/why/Gate").is_some()
}

/// Gates of a run that are waited for. Without them the reasons are told all the same.
async fn closed(api: &Api, run: &str) -> Vec<Gate> {
    let gates = gates::gates(api, "state eq 'Pending'").await.unwrap_or_default();
    gates.iter().map(Gate::read).filter(|gate| gate.is_of(run)).collect()
}

/// What there is to say where nothing holds.
fn unheld(state: &str, run: &str) -> String {
    match state {
        "Running" => "it moves".into(),
        "Stopping" => "what is under way ends, and nothing else starts".into(),
        "Failed" => format!("`flotta run show {run}` tells what failed"),
        "Completed" | "Skipped" => "it is done".into(),
        _ => "nothing holds it".into(),
    }
}
