//! Lines of coloured text that know how wide they are.

use jiff::Timestamp;
use owo_colors::{OwoColorize, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::run::State;
use crate::output::clean;

/// What colour a piece of text has, by what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Nothing special.
    Plain,
    /// A heading.
    Strong,
    /// Less important.
    Faint,
    /// Went well.
    Good,
    /// Went wrong.
    Bad,
    /// Under way.
    Busy,
    /// Held.
    Held,
}

impl Ink {
    /// The colour of a state.
    pub fn of(state: State) -> Self {
        match state {
            State::Completed => Self::Good,
            State::Failed => Self::Bad,
            State::Running | State::Stopping => Self::Busy,
            State::Pending | State::Stopped => Self::Held,
            State::Skipped | State::NotStarted | State::Unknown => Self::Faint,
        }
    }

    fn colour(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Strong => Style::new().bold(),
            Self::Faint => Style::new().dimmed(),
            Self::Good => Style::new().green(),
            Self::Bad => Style::new().red(),
            Self::Busy => Style::new().cyan(),
            Self::Held => Style::new().yellow(),
        }
    }
}

/// A line of text in pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(Vec<(Ink, String)>);

impl Line {
    /// A line of one piece.
    pub fn new(ink: Ink, text: impl AsRef<str>) -> Self {
        Self::default().and(ink, text)
    }

    /// The line with a piece more.
    pub fn and(mut self, ink: Ink, text: impl AsRef<str>) -> Self {
        self.0.push((ink, clean_inside(text.as_ref())));
        self
    }

    /// The line with a piece more, filled up with spaces to a width.
    pub fn column(self, ink: Ink, text: &str, width: usize) -> Self {
        let text = cut(&clean_inside(text), width);
        let space = " ".repeat(width.saturating_sub(text.width()) + 1);
        self.and(ink, text).and(Ink::Plain, space)
    }

    /// The line as text no wider than `width`; what was cut off is shown by `…`.
    pub fn paint(&self, width: usize, colours: bool) -> String {
        let all: usize = self.0.iter().map(|(_, text)| text.width()).sum();
        let mut left = width;
        let mut painted = String::new();
        for (ink, text) in &self.0 {
            let fits = text.width() < left || (all <= width && text.width() <= left);
            let shown = if fits { text.clone() } else { cut(text, left) };
            left = left.saturating_sub(shown.width());
            match colours && *ink != Ink::Plain {
                true => painted.push_str(&shown.style(ink.colour()).to_string()),
                false => painted.push_str(&shown),
            }
            if !fits {
                break;
            }
        }
        match colours {
            true => painted,
            false => painted.trim_end().to_owned(),
        }
    }
}

/// Without control characters, keeping spaces at the end.
fn clean_inside(text: &str) -> String {
    let kept = text.len() - text.trim_end_matches(' ').len();
    clean(text) + &" ".repeat(kept)
}

/// Text cut to a width, with `…` where something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used >= width {
            break;
        }
        cut.push(letter);
    }
    if width > 0 {
        cut.push('…');
    }
    cut
}

/// Text in lines no wider than `width`, broken between words; a word that is wider has a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in clean(text).split_whitespace() {
        match lines.last_mut().filter(|line| line.width() + 1 + word.width() <= width) {
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The time from one instant to another, such as `45s`, `12m 05s`, `2h 07m` or `3d 04h`.
pub fn duration(from: Timestamp, to: Timestamp) -> String {
    seconds(to.duration_since(from).as_secs())
}

/// A number of seconds as people say it.
pub fn seconds(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m {:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{days}d {:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_never_wider_than_asked() {
        let line = Line::new(Ink::Strong, "héllo ").and(Ink::Bad, "wörld, 世界").and(Ink::Plain, " and more");
        for width in 0..40 {
            let plain = line.paint(width, false);
            assert!(plain.width() <= width, "{width}: {plain}");
        }
        assert_eq!(line.paint(40, false), "héllo wörld, 世界 and more");
        assert_eq!(line.paint(26, false), "héllo wörld, 世界 and more");
        assert_eq!(line.paint(12, false), "héllo wörld…");
    }

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("one two  three\nfour", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("a much-too-long-word b", 8), ["a", "much-too-long-word", "b"]);
        assert_eq!(wrap(" ", 8), Vec::<String>::new());
    }

    #[test]
    fn colours_add_nothing_that_shows() {
        let line = Line::new(Ink::Good, "done").and(Ink::Plain, " x");
        assert_eq!(line.paint(80, true), "\u{1b}[32mdone\u{1b}[0m x");
    }

    #[test]
    fn durations_read_like_people_say_them() {
        let cases = [(0, "0s"), (59, "59s"), (725, "12m 05s"), (7620, "2h 07m"), (273_600, "3d 04h"), (-5, "0s")];
        for (count, expect) in cases {
            assert_eq!(seconds(count), expect);
        }
    }
}
