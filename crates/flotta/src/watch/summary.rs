//! What became of a run, as lines: every stage and group, and each cause once with the members it befell.

use jiff::Timestamp;

use super::{
    render::Room,
    run::{Group, Member, Run, Stage, State},
    text::{Ink, Line, duration, seconds, wrap},
    tree::{mark, tree},
};

/// The most members named for a cause.
const MOST_NAMED: usize = 50;
/// The most causes told in a section.
const MOST_CAUSES: usize = 20;

/// What became of a run; `watched` is how long somebody looked on.
pub fn summary(run: &Run, watched: Option<std::time::Duration>, room: Room) -> Vec<Line> {
    let took = match (run.status.start_time, end_of(run)) {
        // Of what was stopped it is not said when.
        (Some(from), Some(to)) if run.status.state != State::Stopped => format!(" after {}", duration(from, to)),
        _ => String::new(),
    };
    let watched = watched.map(|time| format!(" · watched for {}", seconds(time.as_secs().cast_signed())));
    let state = run.status.state;
    let head = Line::new(Ink::Strong, format!("run {} ", run.name))
        .and(Ink::of(state), state.word())
        .and(Ink::Plain, format!("{took} · {}{}", run.goal, watched.unwrap_or_default()));
    let mut lines = vec![Line::default(), head];
    if let Some(error) = &run.status.error {
        lines.extend(paragraph("  ", "  ", Ink::Bad, &error.text(), room));
    }
    lines.extend(tree(run, room, end_of(run).unwrap_or_default(), |_| true).into_iter().map(|row| row.line));
    lines.extend(causes(run, "failed", State::Failed, room));
    lines.extend(causes(run, "skipped", State::Skipped, room));
    lines
}

/// When the run ended, or, where it is not said, when the last of it did.
fn end_of(run: &Run) -> Option<Timestamp> {
    let last = || run.members().filter_map(|(.., member)| member.status.completed_time).max();
    run.status.completed_time.or_else(last)
}

type Place<'a> = (&'a Stage, &'a Group, &'a Member);

/// The members in a state, by the cause of it, those of the most members first.
fn causes(run: &Run, title: &str, state: State, room: Room) -> Vec<Line> {
    let members: Vec<Place> = run.members().filter(|(.., member)| member.status.state == state).collect();
    if members.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::new(Ink::Strong, format!("  {title} ({})", members.len()))];
    let causes = by_cause(members);
    let hidden = causes.len().saturating_sub(MOST_CAUSES);
    for (why, members) in causes.iter().take(MOST_CAUSES) {
        lines.extend(paragraph(&format!("    {} ", mark(state)), "      ", Ink::Plain, &names(members), room));
        lines.extend(paragraph("      ", "      ", Ink::of(state), why, room));
    }
    if hidden > 0 {
        lines.push(Line::new(Ink::Faint, format!("    … and {hidden} more causes")));
    }
    lines
}

/// Causes with their members. Texts that differ in names of things alone, such as nodes, are one cause: the first tells
/// it.
fn by_cause(members: Vec<Place<'_>>) -> Vec<(String, Vec<Place<'_>>)> {
    let mut causes: Vec<(String, String, Vec<Place>)> = Vec::new();
    for place in members {
        let why = place.2.why();
        let kind = kind(&why);
        match causes.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, _, members)) => members.push(place),
            None => causes.push((kind, why, vec![place])),
        }
    }
    causes.sort_by_key(|(.., members)| std::cmp::Reverse(members.len()));
    causes.into_iter().map(|(_, why, members)| (why, members)).collect()
}

/// A text without names such as `aks-web-50801435-vmss000001`: words with both a hyphen and a digit. Versions have no
/// hyphen, and stay.
fn kind(why: &str) -> String {
    let is_name = |word: &str| word.contains('-') && word.contains(|letter: char| letter.is_ascii_digit());
    why.split_whitespace().map(|word| if is_name(word) { "…" } else { word }).collect::<Vec<_>>().join(" ")
}

/// The names of members; of one alone, with its place.
fn names(members: &[Place]) -> String {
    if let [(stage, group, member)] = members {
        return format!("{} ({}/{})", member.name, stage.name, group.name);
    }
    let named: Vec<&str> = members.iter().take(MOST_NAMED).map(|(.., member)| member.name.as_str()).collect();
    let more = match members.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} members: {}{more}", members.len(), named.join(", "))
}

/// Text in lines no wider than the room; all but the first begin with `hang`.
fn paragraph(first: &str, hang: &str, ink: Ink, text: &str, room: Room) -> Vec<Line> {
    let lines = wrap(text, room.width.saturating_sub(hang.len()));
    let begin = |index: usize| if index == 0 { first } else { hang };
    lines.iter().enumerate().map(|(index, line)| Line::new(ink, format!("{}{line}", begin(index)))).collect()
}
