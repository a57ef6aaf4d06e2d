//! A run as lines: the live view, and the summary at its end. Pure: a run in, lines out.

use jiff::Timestamp;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::{
    run::{Counts, Gate, Group, Member, Run, Stage, State, Status},
    text::{Ink, Line, duration, seconds},
    waiting::sentences,
};

/// The room there is.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Columns.
    pub width: usize,
    /// Lines.
    pub height: usize,
}

impl Room {
    fn bar(self) -> usize {
        match self.width {
            100.. => 24,
            80.. => 16,
            60.. => 8,
            _ => 0,
        }
    }
}

/// The most members shown one by one in a section of the live view.
const MOST_MEMBERS: usize = 8;
/// The most members listed in a summary, per section.
const MOST_LISTED: usize = 50;
/// The most reasons shown.
const MOST_REASONS: usize = 4;

/// The live view of a run, no higher than the room.
pub fn view(run: &Run, waiting: &[Value], now: Timestamp, room: Room) -> Vec<Line> {
    let mut lines = vec![head(run, now)];
    let tree =
        tree(run, room, now, |stage| stage.status.state != State::NotStarted && stage.status.state != State::Completed);
    let reasons = reasons(waiting, now);
    // Two sections of members, each a title, one member and a line for the rest, keep their place beside many groups.
    let most = room.height.saturating_sub(reasons.len() + 8).max(3);
    let hidden = tree.len().saturating_sub(most);
    lines.extend(tree.into_iter().take(most));
    if hidden > 0 {
        lines.push(Line::new(Ink::Faint, format!("  … {hidden} more lines of groups and stages")));
    }
    let left = room.height.saturating_sub(lines.len() + reasons.len());
    let most = (left / 2).saturating_sub(2).clamp(1, MOST_MEMBERS);
    lines.extend(under_way(run, now, most, room));
    lines.extend(listed(run, "failed", State::Failed, most, room));
    lines.extend(reasons);
    lines.truncate(room.height.max(1));
    lines
}

/// What became of a run.
pub fn summary(run: &Run, wall: Option<std::time::Duration>, room: Room) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    let took = match (run.status.start_time, end_of(run)) {
        (Some(from), Some(to)) => format!(" after {}", duration(from, to)),
        _ => String::new(),
    };
    let wall = wall.map(|wall| format!(" ({} on the wall clock)", seconds(wall.as_secs().cast_signed())));
    let state = run.status.state;
    lines.push(
        Line::new(Ink::Strong, format!("run {} ", run.name))
            .and(Ink::of(state), state.word())
            .and(Ink::Plain, format!("{took}{} · {}", wall.unwrap_or_default(), run.goal)),
    );
    if let Some(error) = &run.status.error {
        lines.push(Line::new(Ink::Bad, format!("  {}", error.text())));
    }
    let now = end_of(run).unwrap_or_default();
    lines.extend(tree(run, room, now, |_| true));
    lines.extend(listed(run, "failed", State::Failed, MOST_LISTED, room));
    lines.extend(listed(run, "skipped", State::Skipped, MOST_LISTED, room));
    lines
}

/// When the run ended, or, where it is not said, when the last of it did.
fn end_of(run: &Run) -> Option<Timestamp> {
    let last = || run.members().filter_map(|(.., member)| member.status.completed_time).max();
    run.status.completed_time.or_else(last)
}

fn head(run: &Run, now: Timestamp) -> Line {
    let status = &run.status;
    let counts = Counts::of(run.members().map(|(.., member)| member));
    let elapsed = status.start_time.map(|from| format!(" · {}", duration(from, status.completed_time.unwrap_or(now))));
    Line::new(Ink::Strong, format!("run {}", run.name))
        .and(Ink::Plain, format!(" · {} · ", run.goal))
        .and(Ink::of(status.state), status.state.word())
        .and(Ink::Plain, format!(" · {} of {} members done", counts.ended(), counts.total()))
        .and(Ink::Plain, elapsed.unwrap_or_default())
}

/// Stages, and the groups of those that are `open`.
fn tree(run: &Run, room: Room, now: Timestamp, open: impl Fn(&Stage) -> bool) -> Vec<Line> {
    let names = run.stages.iter().map(|stage| stage.name.width());
    let groups = run.stages.iter().flat_map(|stage| stage.groups.iter().map(|group| group.name.width() + 2));
    let widest = names.chain(groups).max().unwrap_or(0).min(room.width / 3).clamp(4, 30);
    let mut lines = Vec::new();
    for stage in &run.stages {
        lines.push(row("  ", &stage.name, &stage.status, Counts::of(stage.members()), widest, room, now));
        if open(stage) {
            lines.extend(gates(&stage.before_gates, "    "));
            lines.extend(stage.groups.iter().flat_map(|group| group_rows(group, widest, room, now)));
            lines.extend(gates(&stage.after_gates, "    "));
            lines.extend(wait(stage, now));
        }
    }
    lines
}

fn group_rows(group: &Group, widest: usize, room: Room, now: Timestamp) -> Vec<Line> {
    let counts = Counts::of(&group.members);
    let mut lines = vec![row("    ", &group.name, &group.status, counts, widest.saturating_sub(2), room, now)];
    lines.extend(gates(&group.before_gates, "      "));
    lines.extend(gates(&group.after_gates, "      "));
    lines
}

fn row(indent: &str, name: &str, status: &Status, counts: Counts, widest: usize, room: Room, now: Timestamp) -> Line {
    let state = status.state;
    let line = Line::new(Ink::of(state), format!("{indent}{} ", mark(state)));
    let line = line.column(Ink::Plain, name, widest).column(Ink::of(state), state.word(), 10);
    let line = bar(line, counts, room.bar());
    let done = format!(" {:>3}/{}", counts.ended(), counts.total());
    let line = line.column(Ink::Plain, &done, done.len().max(9));
    let parts = [
        (counts.failed, "failed", Ink::Bad),
        (counts.skipped, "skipped", Ink::Faint),
        (counts.running, "running", Ink::Busy),
        (counts.pending, "pending", Ink::Held),
    ];
    let shown = parts.into_iter().filter(|(count, ..)| *count > 0);
    let line = shown.fold(line, |line, (count, word, ink)| line.and(ink, format!(" {count} {word}")));
    match (status.start_time, status.completed_time) {
        (Some(from), to) if room.width >= 70 => {
            line.and(Ink::Faint, format!("  {}", duration(from, to.unwrap_or(now))))
        }
        _ => line,
    }
}

fn mark(state: State) -> char {
    match state {
        State::Completed => '✓',
        State::Failed => '✗',
        State::Running | State::Stopping => '▸',
        State::Pending => '…',
        State::Stopped => '■',
        State::Skipped => '-',
        State::NotStarted | State::Unknown => '·',
    }
}

/// A bar with a share for each count, in the order in which members go through them.
fn bar(line: Line, counts: Counts, width: usize) -> Line {
    if width == 0 || counts.total() == 0 {
        return line.and(Ink::Plain, " ".repeat(width));
    }
    let parts = [
        (counts.completed, '█', Ink::Good),
        (counts.failed, '×', Ink::Bad),
        (counts.skipped, '-', Ink::Faint),
        (counts.running, '▒', Ink::Busy),
        (counts.pending, '…', Ink::Held),
        (counts.not_started, '░', Ink::Faint),
    ];
    let (mut before, mut drawn) = (0, 0);
    parts.into_iter().fold(line, |line, (count, letter, ink)| {
        before += count;
        let until = before * width / counts.total();
        let cells = until - drawn;
        drawn = until;
        if cells == 0 { line } else { line.and(ink, letter.to_string().repeat(cells)) }
    })
}

fn gates(gates: &[Gate], indent: &str) -> Vec<Line> {
    let closed = gates.iter().filter(|gate| gate.status.state == State::Pending);
    let line = |gate: &Gate| {
        let name = gate.display_name.as_deref().unwrap_or("without a name");
        Line::new(Ink::Held, format!("{indent}… gate '{name}' is closed"))
    };
    closed.map(line).collect()
}

fn wait(stage: &Stage, now: Timestamp) -> Option<Line> {
    let wait = stage.after_stage_wait_status.as_ref().filter(|wait| wait.status.state == State::Running)?;
    let waited = wait.status.start_time.map_or(0, |from| now.duration_since(from).as_secs());
    let (waited, all) = (seconds(waited), seconds(wait.wait_duration_in_seconds.into()));
    Some(Line::new(Ink::Busy, format!("    ▸ waiting after the stage: {waited} of {all}")))
}

/// Members that move or are held, those longest under way first.
fn under_way(run: &Run, now: Timestamp, most: usize, room: Room) -> Vec<Line> {
    let busy = |member: &Member| matches!(member.status.state, State::Running | State::Stopping | State::Pending);
    let mut members: Vec<_> = run.members().filter(|(.., member)| busy(member)).collect();
    members.sort_by_key(|(.., member)| (member.status.state == State::Pending, member.status.start_time));
    let row = |(stage, group, member): &(&Stage, &Group, &Member)| {
        let state = member.status.state;
        let since = member.status.start_time.map(|from| duration(from, now)).unwrap_or_default();
        named(stage, group, member, room).column(Ink::Plain, &since, 8).and(Ink::of(state), member.why())
    };
    section("under way", &members, most, row)
}

fn listed(run: &Run, title: &str, state: State, most: usize, room: Room) -> Vec<Line> {
    let members: Vec<_> = run.members().filter(|(.., member)| member.status.state == state).collect();
    section(title, &members, most, |(stage, group, member)| {
        named(stage, group, member, room).and(Ink::of(state), member.why())
    })
}

/// The beginning of a member's line: its name, and, where there is room, its stage and group.
fn named(stage: &Stage, group: &Group, member: &Member, room: Room) -> Line {
    let state = member.status.state;
    let line = Line::new(Ink::of(state), format!("    {} ", mark(state)));
    let line = line.column(Ink::Plain, &member.name, (room.width / 4).clamp(8, 24));
    match room.width {
        90.. => line.column(Ink::Faint, &format!("{}/{}", stage.name, group.name), 22),
        _ => line,
    }
}

fn section<T>(title: &str, items: &[T], most: usize, row: impl Fn(&T) -> Line) -> Vec<Line> {
    if items.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::new(Ink::Strong, format!("  {title} ({})", items.len()))];
    lines.extend(items.iter().take(most).map(row));
    if items.len() > most {
        lines.push(Line::new(Ink::Faint, format!("    … and {} more", items.len() - most)));
    }
    lines
}

fn reasons(waiting: &[Value], now: Timestamp) -> Vec<Line> {
    let sentences = sentences(waiting, now, MOST_REASONS);
    let hidden = sentences.len().saturating_sub(MOST_REASONS);
    let shown = sentences.into_iter().take(MOST_REASONS);
    let mut lines: Vec<Line> =
        shown.map(|sentence| Line::new(Ink::Held, "  waiting: ").and(Ink::Plain, sentence)).collect();
    if hidden > 0 {
        lines.push(Line::new(Ink::Faint, format!("  … and {hidden} more reasons")));
    }
    lines
}
