//! The stages and groups of a run as rows, and which of them stay where there is no room for all.

use jiff::Timestamp;
use unicode_width::UnicodeWidthStr;

use super::{
    render::Room,
    run::{Counts, Gate, Group, Run, Stage, State, Status},
    text::{Ink, Line, duration, seconds},
};

/// A row of the tree.
#[derive(Debug)]
pub struct Row {
    /// What it shows.
    pub line: Line,
    interest: Interest,
}

/// What stays longest where rows are cut, the first before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Interest {
    /// A stage that is open: it tells where its groups belong.
    Open,
    Failed,
    Moves,
    NotStarted,
    Done,
}

impl Interest {
    fn of(status: &Status, counts: Counts) -> Self {
        match status.state {
            State::Failed => Self::Failed,
            _ if counts.failed > 0 => Self::Failed,
            State::Running | State::Stopping | State::Stopped | State::Pending => Self::Moves,
            State::NotStarted | State::Unknown => Self::NotStarted,
            State::Completed | State::Skipped => Self::Done,
        }
    }
}

/// Stages, and the groups of those that are `open`.
pub fn tree(run: &Run, room: Room, now: Timestamp, open: impl Fn(&Stage) -> bool) -> Vec<Row> {
    let names = run.stages.iter().map(|stage| stage.name.width());
    let groups = run.stages.iter().flat_map(|stage| stage.groups.iter().map(|group| group.name.width() + 2));
    let widest = names.chain(groups).max().unwrap_or(0).min(room.width / 3).clamp(4, 30);
    let mut rows = Vec::new();
    for stage in &run.stages {
        let (open, counts) = (open(stage), Counts::of(stage.members()));
        let line = row("  ", &stage.name, &stage.status, counts, widest, room, now);
        rows.push(Row { line, interest: if open { Interest::Open } else { Interest::of(&stage.status, counts) } });
        if open {
            rows.extend(gates(&stage.before_gates, "    "));
            rows.extend(stage.groups.iter().flat_map(|group| group_rows(group, widest, room, now)));
            rows.extend(gates(&stage.after_gates, "    "));
            rows.extend(wait(stage, now));
        }
    }
    rows
}

/// The rows as lines, no more than `most`: the least interesting are left out and counted, the others keep their order.
pub fn cut(rows: Vec<Row>, most: usize) -> Vec<Line> {
    if rows.len() <= most {
        return rows.into_iter().map(|row| row.line).collect();
    }
    let kept = most.saturating_sub(1);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&index| rows[index].interest);
    let mut hidden = vec![false; rows.len()];
    let mut done = 0;
    for &index in &order[kept..] {
        hidden[index] = true;
        done += usize::from(rows[index].interest == Interest::Done);
    }
    let all = rows.len() - kept;
    let shown = rows.into_iter().zip(hidden).filter(|(_, hidden)| !hidden).map(|(row, _)| row.line);
    let more = Line::new(Ink::Faint, format!("  … {all} more rows, {done} of them done"));
    shown.chain([more]).take(most).collect()
}

fn group_rows(group: &Group, widest: usize, room: Room, now: Timestamp) -> Vec<Row> {
    let counts = Counts::of(&group.members);
    let line = row("    ", &group.name, &group.status, counts, widest.saturating_sub(2), room, now);
    let mut rows = vec![Row { line, interest: Interest::of(&group.status, counts) }];
    rows.extend(gates(&group.before_gates, "      "));
    rows.extend(gates(&group.after_gates, "      "));
    rows
}

fn row(indent: &str, name: &str, status: &Status, counts: Counts, widest: usize, room: Room, now: Timestamp) -> Line {
    let state = status.state;
    let line = Line::new(Ink::of(state), format!("{indent}{} ", mark(state)));
    let line = line.column(Ink::Plain, name, widest).column(Ink::of(state), state.word(), 10);
    let line = bar(line, counts, bar_width(room));
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
    // Of what was stopped it is not said when.
    let to = status.completed_time.or_else(|| (state != State::Stopped).then_some(now));
    match (status.start_time, to) {
        (Some(from), Some(to)) if room.width >= 70 => line.and(Ink::Faint, format!("  {}", duration(from, to))),
        _ => line,
    }
}

/// A sign for a state.
pub fn mark(state: State) -> char {
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

fn bar_width(room: Room) -> usize {
    match room.width {
        100.. => 24,
        80.. => 16,
        60.. => 8,
        _ => 0,
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

fn gates(gates: &[Gate], indent: &str) -> Vec<Row> {
    let closed = gates.iter().filter(|gate| gate.status.state == State::Pending);
    let line = |gate: &Gate| {
        let way = gate.way().map(|way| format!("; {way}")).unwrap_or_default();
        let line = Line::new(Ink::Held, format!("{indent}… {} is closed", gate.named())).and(Ink::Plain, way);
        Row { line, interest: Interest::Moves }
    };
    closed.map(line).collect()
}

fn wait(stage: &Stage, now: Timestamp) -> Option<Row> {
    let wait = stage.after_stage_wait_status.as_ref().filter(|wait| wait.status.state == State::Running)?;
    let waited = wait.status.start_time.map_or(0, |from| now.duration_since(from).as_secs());
    let (waited, all) = (seconds(waited), seconds(wait.wait_duration_in_seconds.into()));
    let line = Line::new(Ink::Busy, format!("    ▸ waiting after the stage: {waited} of {all}"));
    Some(Row { line, interest: Interest::Moves })
}
