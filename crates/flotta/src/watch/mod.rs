//! Watching a run: look, show, wait, until it has ended.

mod log;
mod render;
pub mod run;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod tree;
pub mod waiting;

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use reqwest::Method;
use serde_json::Value;

use self::{
    log::Log,
    render::Room,
    run::{Run, State},
    text::Line,
};
use crate::{
    client::{
        http::{Api, Request},
        resources::Kind as Resource,
    },
    failure::{Failure, Kind},
    output::say,
};

/// How long a server may be away while a run is watched.
const PATIENCE: Duration = Duration::from_secs(60);
/// Columns where there is no terminal.
const PLAIN_WIDTH: usize = 160;

/// How a run is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Redrawn in place where there is a terminal, else a log.
    Auto,
    /// A log.
    Plain,
}

/// One look at a run.
struct Look {
    run: Run,
    waiting: Vec<Value>,
    now: Timestamp,
}

/// Watches a run until it has ended, and tells what became of it. A run that ends Failed or Stopped, or that has no
/// member, is a failure.
pub async fn watch(api: &Api, name: &str, interval: Duration, style: Style) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut shown = Shown::new(style);
    let mut looker = Looker { api, name, asks_reasons: true, away: None };
    let run = loop {
        if let Some(look) = looker.look().await? {
            if look.run.status.state.is_end() {
                shown.end(&look)?;
                break look.run;
            }
            shown.show(&look)?;
        }
        tokio::time::sleep(interval).await;
    };
    for line in summary::summary(&run, Some(begun.elapsed()), room()) {
        say(&line.paint(usize::MAX, colours()))?;
    }
    verdict(&run)
}

/// Shows how far a run is, and what it waits for, once.
pub async fn show(api: &Api, name: &str) -> Result<(), Failure> {
    let what = format!("show run '{name}'");
    let answer = api.send(Request::new(&what, Method::GET, api.target.resource_url(Resource::Run, name)?)).await?;
    let (run, now) = (read(&answer.body)?, domain_time(answer.header("x-flotta-time")));
    let waiting = Looker { api, name, asks_reasons: true, away: None }.reasons().await;
    let room = Room { height: 500, ..room() };
    let (lines, width) = match run.status.state.is_end() {
        true => (summary::summary(&run, None, room).split_off(1), usize::MAX),
        false => (render::view(&run, &waiting, now, room), room.width),
    };
    lines.iter().try_for_each(|line| say(&line.paint(width, colours())))
}

/// The domain time that an answer tells, else the wall clock's.
pub fn domain_time(header: Option<&str>) -> Timestamp {
    header.and_then(|time| time.parse().ok()).unwrap_or_else(Timestamp::now)
}

fn read(value: &Value) -> Result<Run, Failure> {
    Run::read(value).map_err(|error| Failure::new(Kind::Failed, "cannot read the run", error.to_string()))
}

/// Whether the end of a run is a failure.
fn verdict(run: &Run) -> Result<(), Failure> {
    let what = format!("run '{}' ended {}", run.name, run.status.state.word());
    let cause = run.status.error.as_ref().map(|error| error.text());
    let go_on = format!("`flotta run start {}` goes on with what is not done", run.name);
    match run.status.state {
        State::Failed => {
            let cause = cause.unwrap_or_else(|| "see the failed members above".into());
            Err(Failure::new(Kind::Failed, what, cause).hint(format!("mend or skip what failed; then {go_on}")))
        }
        State::Stopped => {
            let cause = cause.unwrap_or_else(|| "it was stopped before it was done".into());
            Err(Failure::new(Kind::Failed, what, cause).hint(go_on))
        }
        _ if run.members().next().is_none() => {
            let hint = "`flotta member list` shows the groups and labels that a strategy can name";
            Err(Failure::new(Kind::Failed, what, "no member is in this run").hint(hint))
        }
        _ => Ok(()),
    }
}

struct Looker<'a> {
    api: &'a Api,
    name: &'a str,
    asks_reasons: bool,
    away: Option<Instant>,
}

impl Looker<'_> {
    /// A look; `None` while the server is away, which is borne for a while once it was there.
    async fn look(&mut self) -> Result<Option<Look>, Failure> {
        let what = format!("watch run '{}'", self.name);
        let url = self.api.target.resource_url(Resource::Run, self.name)?;
        let answer = match self.api.send(Request::new(&what, Method::GET, url)).await {
            Ok(answer) => answer,
            Err(failure) => return self.bear(failure).map(|()| None),
        };
        self.away = Some(Instant::now());
        let now = domain_time(answer.header("x-flotta-time"));
        let waiting = if self.asks_reasons { self.reasons().await } else { Vec::new() };
        Ok(Some(Look { run: read(&answer.body)?, waiting, now }))
    }

    fn bear(&self, failure: Failure) -> Result<(), Failure> {
        let passing = matches!(failure.kind, Kind::Unreachable | Kind::Failed);
        match self.away {
            Some(seen) if passing && seen.elapsed() < PATIENCE => Ok(()),
            _ => Err(failure),
        }
    }

    /// What the run waits for; a server that does not tell is not asked again.
    async fn reasons(&mut self) -> Vec<Value> {
        let Ok(url) = self.api.target.action_url(Resource::Run, self.name, Some("waitingOn")) else {
            return Vec::new();
        };
        let answer = self.api.send(Request::new("ask what the run waits for", Method::GET, url)).await;
        match answer.map(|mut answer| answer.body.get_mut("value").map(Value::take)) {
            Ok(Some(Value::Array(reasons))) => reasons,
            Err(failure) if failure.kind != Kind::Refused => Vec::new(),
            _ => {
                self.asks_reasons = false;
                Vec::new()
            }
        }
    }
}

/// What is on the terminal.
enum Shown {
    Live { lines: usize },
    Log(Log),
}

impl Shown {
    fn new(style: Style) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        match style == Style::Plain || dumb || !std::io::stdout().is_terminal() {
            true => Self::Log(Log::default()),
            false => Self::Live { lines: 0 },
        }
    }

    fn show(&mut self, look: &Look) -> Result<(), Failure> {
        match self {
            Self::Log(log) => {
                let changes = log.changes(&look.run, &look.waiting, look.now);
                changes.iter().try_for_each(|line| say(line))
            }
            Self::Live { lines } => {
                let room = room();
                let view = render::view(&look.run, &look.waiting, look.now, room);
                draw(&redraw(&view, *lines, room.width, colours()))?;
                *lines = view.len();
                Ok(())
            }
        }
    }

    /// The last look: a log tells it, a live view makes room for the summary.
    fn end(&mut self, look: &Look) -> Result<(), Failure> {
        match self {
            Self::Log(_) => self.show(look),
            Self::Live { lines } => draw(&redraw(&[], *lines, 0, false)),
        }
    }
}

fn draw(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new(Kind::Failed, "cannot write to the terminal", error.to_string()))
}

/// The text that replaces the last `before` lines of a terminal.
fn redraw(view: &[Line], before: usize, width: usize, colours: bool) -> String {
    let mut text = String::new();
    if before > 0 {
        text.push_str(&format!("\x1b[{before}A\r"));
    }
    for line in view {
        text.push_str(&line.paint(width, colours));
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    text
}

fn room() -> Room {
    match terminal_size::terminal_size() {
        // The last column stays free: some terminals wrap when it is written.
        Some((width, height)) => Room {
            width: usize::from(width.0).saturating_sub(1).max(20),
            height: usize::from(height.0).saturating_sub(1).max(5),
        },
        None => Room { width: PLAIN_WIDTH, height: 500 },
    }
}

fn colours() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}
