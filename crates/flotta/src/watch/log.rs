//! A run as a log: one line for each thing that changed between two looks. For files, pipes and CI.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    run::{Run, State},
    waiting::sentence,
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
        let error = run.status.error.as_ref().map(|error| error.text()).unwrap_or_default();
        self.note(&mut lines, format!("run {}", run.name), run.status.state, error);
        for stage in &run.stages {
            let error = stage.status.error.as_ref().map(|error| error.text()).unwrap_or_default();
            self.note(&mut lines, format!("stage {}", stage.name), stage.status.state, error);
            for gate in stage.before_gates.iter().chain(&stage.after_gates) {
                let name = gate.display_name.as_deref().unwrap_or("without a name");
                self.note(
                    &mut lines,
                    format!("gate '{name}' of stage {}", stage.name),
                    gate.status.state,
                    String::new(),
                );
            }
            for group in &stage.groups {
                let error = group.status.error.as_ref().map(|error| error.text()).unwrap_or_default();
                self.note(&mut lines, format!("group {}/{}", stage.name, group.name), group.status.state, error);
                for member in &group.members {
                    let what = format!("member {} ({}/{})", member.name, stage.name, group.name);
                    self.note(&mut lines, what, member.status.state, member.why());
                }
            }
            if let Some(wait) = &stage.after_stage_wait_status {
                self.note(&mut lines, format!("wait after stage {}", stage.name), wait.status.state, String::new());
            }
        }
        self.note_waiting(&mut lines, waiting, now);
        let now = now.strftime("%H:%M:%S");
        lines.iter().map(|line| format!("{now} {}", clean(line))).collect()
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
        let new = waiting.iter().filter(|reason| !self.waiting.contains(&essence(reason)));
        lines.extend(new.map(|reason| format!("waiting: {}", sentence(reason, now))));
        self.waiting = waiting.iter().map(essence).collect();
    }
}
