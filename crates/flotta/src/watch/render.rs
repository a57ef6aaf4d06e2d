//! A run under way as lines. Pure: a run in, lines out.

use std::iter;

use jiff::Timestamp;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::{
    run::{Counts, Group, Member, Run, Stage, State},
    text::{Ink, Line, duration, wrap},
    tree::{cut, mark, tree},
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

/// The most members shown one by one in a section.
const MOST_MEMBERS: usize = 8;
/// The lines that a section of members keeps beside many groups: a title, one member, and a line for the rest.
const LEAST_SECTION: usize = 3;
/// The most reasons told at once; more waits for slots become one.
pub const MOST_REASONS: usize = 4;

/// The live view of a run, no higher than the room.
pub fn view(run: &Run, waiting: &[Value], now: Timestamp, room: Room) -> Vec<Line> {
    let (busy, failed) = (under_way(run, now, room), members_in(run, State::Failed, room));
    let reasons = reasons(waiting, now, (room.height / 5).clamp(1, MOST_REASONS), room);
    let free = room.height.saturating_sub(1 + reasons.len());
    let least = |members: &[Line]| section_height(members).min(LEAST_SECTION);
    let closed = |stage: &Stage| matches!(stage.status.state, State::NotStarted | State::Completed);
    let tree = cut(tree(run, room, now, |stage| !closed(stage)), free.saturating_sub(least(&busy) + least(&failed)));

    let left = free.saturating_sub(tree.len());
    // Each section may have half of what is left, and what the other does not need.
    let for_failed = section_height(&failed).min((left / 2).max(left.saturating_sub(section_height(&busy))));
    let mut lines = vec![head(run, now)];
    lines.extend(tree);
    lines.extend(section("under way", busy, left - for_failed));
    lines.extend(section("failed", failed, for_failed));
    lines.extend(reasons);
    lines.truncate(room.height.max(1));
    lines
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

/// Members that move or are held, those longest under way first.
fn under_way(run: &Run, now: Timestamp, room: Room) -> Vec<Line> {
    let busy = |member: &Member| matches!(member.status.state, State::Running | State::Stopping | State::Pending);
    let mut members: Vec<_> = run.members().filter(|(.., member)| busy(member)).collect();
    members.sort_by_key(|(.., member)| (member.status.state == State::Pending, member.status.start_time));
    let columns = Columns::of(run, room);
    let row = |(stage, group, member): (&Stage, &Group, &Member)| {
        let state = member.status.state;
        let since = member.status.start_time.map(|from| duration(from, now)).unwrap_or_default();
        columns.named(stage, group, member).column(Ink::Plain, &since, 8).and(Ink::of(state), member.why())
    };
    members.into_iter().map(row).collect()
}

fn members_in(run: &Run, state: State, room: Room) -> Vec<Line> {
    let members = run.members().filter(|(.., member)| member.status.state == state);
    let columns = Columns::of(run, room);
    let row = |(stage, group, member): (&Stage, &Group, &Member)| {
        columns.named(stage, group, member).and(Ink::of(state), member.why())
    };
    members.map(row).collect()
}

/// Widths of what a member's line begins with: its name, and, where there is room, its stage and group. No wider than any
/// member of the run needs, so that they stay the same while it goes on.
struct Columns {
    name: usize,
    place: Option<usize>,
}

impl Columns {
    fn of(run: &Run, room: Room) -> Self {
        let names = run.members().map(|(.., member)| member.name.width());
        let places = run.stages.iter().flat_map(|stage| stage.groups.iter().map(|group| place(stage, group).width()));
        let widest_place = places.max().unwrap_or(0).min(22);
        Self {
            name: names.max().unwrap_or(0).min((room.width / 4).clamp(8, 24)),
            place: (room.width >= 90).then_some(widest_place),
        }
    }

    fn named(&self, stage: &Stage, group: &Group, member: &Member) -> Line {
        let state = member.status.state;
        let line = Line::new(Ink::of(state), format!("    {} ", mark(state)));
        let line = line.column(Ink::Plain, &member.name, self.name);
        match self.place {
            Some(width) => line.column(Ink::Faint, &place(stage, group), width),
            None => line,
        }
    }
}

fn place(stage: &Stage, group: &Group) -> String {
    format!("{}/{}", stage.name, group.name)
}

/// The lines that a section of these members wants.
fn section_height(members: &[Line]) -> usize {
    match members.len() {
        0 => 0,
        all @ 1..=MOST_MEMBERS => 1 + all,
        _ => 1 + MOST_MEMBERS + 1,
    }
}

/// Members under a title that counts them, in no more lines than there are for it.
fn section(title: &str, members: Vec<Line>, height: usize) -> Vec<Line> {
    if members.is_empty() || height == 0 {
        return Vec::new();
    }
    let all = members.len();
    let room = height.min(section_height(&members)) - 1;
    let shown = if all > room { room.saturating_sub(1) } else { all };
    let mut lines = vec![Line::new(Ink::Strong, format!("  {title} ({all})"))];
    lines.extend(members.into_iter().take(shown));
    if shown < all && room > 0 {
        lines.push(Line::new(Ink::Faint, format!("    … and {} more", all - shown)));
    }
    lines
}

fn reasons(waiting: &[Value], now: Timestamp, most: usize, room: Room) -> Vec<Line> {
    const TITLE: &str = "  waiting: ";
    let sentences = sentences(waiting, now, most);
    let hidden = sentences.len().saturating_sub(most);
    // What matters most, a time or a way out, stands at the end.
    let shown = sentences.iter().take(most).flat_map(|sentence| {
        let heads = iter::once(TITLE.to_owned()).chain(iter::repeat(" ".repeat(TITLE.len())));
        heads.zip(wrap(sentence, room.width.saturating_sub(TITLE.len())))
    });
    let mut lines: Vec<Line> =
        shown.map(|(head, sentence)| Line::new(Ink::Held, head).and(Ink::Plain, sentence)).collect();
    if hidden > 0 {
        lines.push(Line::new(Ink::Faint, format!("  … and {hidden} more reasons")));
    }
    lines
}
