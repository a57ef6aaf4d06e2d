//! What an event of a run costs in instructions, at 1,000, 10,000 and 100,000 members, and how it grows.
//!
//! ```text
//! cargo bench -p flotta-engine --bench instructions
//! ```
//!
//! Instructions do not wobble as time does: valgrind's callgrind counts those of the example `events`, less those of its
//! setup. Without valgrind nothing is measured, and that is said.

use std::{error::Error, process::Command};

/// An event at 100,000 members may cost this many times one at 1,000.
const MOST_GROWTH: f64 = 1.5;

fn main() -> Result<(), Box<dyn Error>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return Ok(());
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let build = ["build", "--release", "-p", "flotta-engine", "--example", "events", "--message-format=json"];
    let built = Command::new(cargo).args(build).output()?;
    let messages = String::from_utf8(built.stdout)?;
    let example = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(String::from))
        .ok_or("the example was not built")?;
    let mut costs = Vec::new();
    for members in [1_000, 10_000, 100_000] {
        let (whole, output) = instructions(&example, &[&members.to_string()])?;
        let (setup, _) = instructions(&example, &[&members.to_string(), "setup"])?;
        let events: u64 = output.split(", ").nth(1).and_then(|part| part.split(' ').next()).ok_or("events")?.parse()?;
        let cost = (whole - setup) as f64 / events as f64;
        println!("{members:>7} members: {events:>7} events, {cost:.0} instructions/event");
        costs.push(cost);
    }
    let growth = costs[2] / costs[0];
    println!("growth from 1,000 to 100,000 members: {growth:.2} (at most {MOST_GROWTH})");
    if growth > MOST_GROWTH { Err("an event costs too much more in a big run".into()) } else { Ok(()) }
}

/// Instructions that a command took, and what it printed.
fn instructions(example: &str, arguments: &[&str]) -> Result<(u64, String), Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", example])
        .args(arguments)
        .output()?;
    let report = String::from_utf8(output.stderr)?;
    let line = report.lines().find_map(|line| line.split("Collected :").nth(1)).ok_or("callgrind says nothing")?;
    Ok((line.trim().parse()?, String::from_utf8(output.stdout)?))
}
