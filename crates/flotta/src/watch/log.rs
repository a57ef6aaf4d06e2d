//! A run as a log: one line for each thing that changed between two looks. For files, pipes and CI.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    render::MOST_REASONS,
    run::{Gate, Problem, Run, Stage, State, Status},
    waiting::sentences,
};
use crate::output::clean;

/// What was seen last.
#[derive(Debug, Default)]
pub struct Log {
    seen: HashMap<String, State>,
    why: HashMap<String, String>,
    waiting: Vec<String>,
}

impl Log {
    /// The lines for what changed since the last look.
    pub fn changes(&mut self, run: &Run, waiting: &[Value], now: Timestamp) -> Vec<String> {
        let mut lines = Vec::new();
        self.around(&mut lines, format!("run {}", run.name), &run.status, |log, lines| {
            for stage in &run.stages {
                log.stage(lines, stage);
            }
        });
        self.note_waiting(&mut lines, waiting, now);
        let now = now.strftime("%H:%M:%S");
        lines.iter().map(|line| format!("{now} {}", clean(line))).collect()
    }

    fn stage(&mut self, lines: &mut Vec<String>, stage: &Stage) {
        self.around(lines, format!("stage {}", stage.name), &stage.status, |log, lines| {
            log.gates(lines, &stage.before_gates, &format!("before stage {}", stage.name));
            for group in &stage.groups {
                let place = format!("{}/{}", stage.name, group.name);
                log.around(lines, format!("group {place}"), &group.status, |log, lines| {
                    log.gates(lines, &group.before_gates, &format!("before group {place}"));
                    for member in &group.members {
                        log.note(lines, format!("member {} ({place})", member.name), member.status.state, member.why());
                    }
                    log.gates(lines, &group.after_gates, &format!("after group {place}"));
                });
            }
            log.gates(lines, &stage.after_gates, &format!("after stage {}", stage.name));
            if let Some(wait) = &stage.after_stage_wait_status {
                log.note(lines, format!("wait after stage {}", stage.name), wait.status.state, String::new());
            }
        });
    }

    /// Notes a whole with its parts: it begins before they do, and whatever else becomes of it comes from them.
    fn around(
        &mut self,
        lines: &mut Vec<String>,
        what: String,
        status: &Status,
        parts: impl FnOnce(&mut Self, &mut Vec<String>),
    ) {
        let error = status.error.as_ref().map(Problem::text).unwrap_or_default();
        if matches!(status.state, State::NotStarted | State::Running) {
            self.note(lines, what, status.state, error);
            return parts(self, lines);
        }
        parts(self, lines);
        self.note(lines, what, status.state, error);
    }

    fn gates(&mut self, lines: &mut Vec<String>, gates: &[Gate], at: &str) {
        for (index, gate) in gates.iter().enumerate() {
            let name = gate.named();
            // Gates of one place may well be called the same.
            let number = match gates[..index].iter().filter(|other| other.named() == name).count() {
                0 => String::new(),
                others => format!(" ({})", others + 1),
            };
            self.note(lines, format!("{name}{number} {at}"), gate.status.state, gate.way().unwrap_or_default());
        }
    }

    fn note(&mut self, lines: &mut Vec<String>, what: String, state: State, why: String) {
        let before = self.seen.insert(what.clone(), state).unwrap_or_default();
        // Progress texts of what runs change all the time; reasons of what stands still are worth a line.
        let still = matches!(state, State::Pending | State::Failed | State::Skipped | State::Stopped);
        let told = if still { self.why.insert(what.clone(), why.clone()).unwrap_or_default() } else { why.clone() };
        if before == state && told == why {
            return;
        }
        match why.is_empty() {
            true => lines.push(format!("{what}: {}", state.word())),
            false => lines.push(format!("{what}: {}: {why}", state.word())),
        }
    }

    fn note_waiting(&mut self, lines: &mut Vec<String>, waiting: &[Value], now: Timestamp) {
        // Counts and times change at every look; the log tells a reason when it is new.
        let essence = |reason: &Value| reason.get("why").unwrap_or(reason).to_string();
        let new: Vec<Value> =
            waiting.iter().filter(|reason| !self.waiting.contains(&essence(reason))).cloned().collect();
        lines.extend(sentences(&new, now, MOST_REASONS).iter().map(|sentence| format!("waiting: {sentence}")));
        self.waiting = waiting.iter().map(essence).collect();
    }
}
