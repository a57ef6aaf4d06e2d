//! Maintenance windows of members (`behaviour.md` B4, C).
//!
//! When a group begins, the windows of its members are read, so that the most urgent go first: those whose window is
//! open now, then those that have none. A member whose window is closed is *shut*: it holds no slot, and comes back by
//! itself. Equal windows are kept once, with one turn of the clock for all who wait behind them. What is decided on is
//! the window as it was just seen with the cluster ([`super::Sighting`]), never what was read before.

use std::collections::BTreeSet;

use flotta_model::MaintenanceWindow;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    event::Event,
    state::{MemberPhase, Phase, Run},
};

/// What is known of a member's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowOf {
    /// It was not read yet.
    #[default]
    Unread,
    /// There is none: it may move at any time.
    Free,
    /// This one, by its number in the run.
    In(u32),
}

impl From<Option<u32>> for WindowOf {
    fn from(window: Option<u32>) -> Self {
        window.map_or(Self::Free, Self::In)
    }
}

/// A window, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The window.
    pub window: MaintenanceWindow,
    /// Whether it was open at its last turn.
    pub open: bool,
    /// When it turns next, if it ever does.
    pub next: Option<Timestamp>,
    /// How often it has closed.
    pub closings: u32,
}

/// Windows that were read, each once, and which member has which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// Different windows.
    pub windows: Vec<MaintenanceWindow>,
    /// Members with the index of their window above; without one where they have none.
    pub members: Vec<(u32, Option<u32>)>,
    /// More of the same reading is to come.
    #[serde(default)]
    pub more: bool,
}

impl Windows {
    /// Adds what was read for a member.
    pub fn add(&mut self, member: u32, window: Option<MaintenanceWindow>) {
        let index = window.map(|window| {
            let known = self.windows.iter().position(|known| *known == window);
            known.unwrap_or_else(|| {
                self.windows.push(window);
                self.windows.len() - 1
            }) as u32
        });
        self.members.push((member, index));
    }
}

/// How long what was read of a group whose members wait for their windows is good: then it is read again.
const GOOD_FOR: SignedDuration = SignedDuration::from_hours(1);

impl Window {
    /// Whether it is open at an instant, not before its last turn, and when it turns after that.
    fn stands(&self, at: Timestamp) -> (bool, Option<Timestamp>) {
        match self.next {
            Some(next) if next <= at => stand(&self.window, at),
            next => (self.open, next),
        }
    }
}

/// How a window stands at an instant: open or not, and when that changes.
fn stand(window: &MaintenanceWindow, at: Timestamp) -> (bool, Option<Timestamp>) {
    let open = window.is_open(at);
    (open, if open { window.closes(at) } else { window.next_open(at) })
}

fn turned(number: u32, window: &MaintenanceWindow, now: Timestamp) -> Event {
    let (open, next) = stand(window, now);
    Event::WindowTurned { window: number, open, next }
}

impl Run {
    /// A window, by its number in the run.
    pub fn window(&self, window: u32) -> &Window {
        &self.core.windows[window as usize]
    }

    /// The window that a member waits for, if it does.
    pub fn shut_behind(&self, member: u32) -> Option<&Window> {
        match (&self.member(member).phase, self.member(member).window) {
            (MemberPhase::Shut, WindowOf::In(window)) => Some(self.window(window)),
            _ => None,
        }
    }

    /// What a member that begins nothing is doing: it waits for its turn, or for its window.
    pub(super) fn at_rest(&self, member: u32) -> MemberPhase {
        match self.member(member).window {
            WindowOf::In(window) if !self.window(window).open => MemberPhase::Shut,
            _ => MemberPhase::Waiting,
        }
    }

    /// Whether the window of a member is closed at an instant, as far as it is known. While a run stands still nobody turns
    /// windows: what was so at the last turn may be so no longer.
    pub(super) fn shut_at(&self, member: u32, now: Timestamp) -> bool {
        match self.member(member).window {
            WindowOf::In(window) => !self.window(window).stands(now).0,
            WindowOf::Free | WindowOf::Unread => false,
        }
    }

    /// When the window of a member that is closed at an instant opens next.
    pub(super) fn opens_after(&self, member: u32, now: Timestamp) -> Option<Timestamp> {
        match self.member(member).window {
            WindowOf::In(window) => self.window(window).stands(now).1,
            WindowOf::Free | WindowOf::Unread => None,
        }
    }

    /// Members whose windows are to be read now: those of all groups together, so that none gets ahead of another.
    pub fn windows_to_read(&self) -> Vec<u32> {
        let wanted = |member: &u32| match self.member(*member).phase {
            MemberPhase::Waiting => self.member(*member).window == WindowOf::Unread,
            MemberPhase::Shut => self.group(self.plan.group_of(*member)).windows_stale,
            _ => false,
        };
        let groups = self.readers.iter().copied();
        groups.flat_map(|group| self.plan.groups[group as usize].members.clone().filter(wanted)).collect()
    }

    /// The groups of the current stage.
    fn groups_at_work(&self) -> impl Iterator<Item = u32> + '_ {
        let stage = self.core.current.map(|stage| self.plan.stages[stage as usize].groups.clone());
        stage.into_iter().flatten()
    }

    /// Whether [`super::Work::ReadWindows`] is among the work, without asking for all of it.
    pub fn reading(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Whether windows of a group that may start members are to be read now.
    pub(super) fn reads_windows(&self, group: u32) -> bool {
        let state = self.group(group);
        state.unread > 0 || (state.windows_stale && state.shut > 0)
    }

    /// When the windows of a group should be read again: somebody waits for one that may have been changed.
    pub(super) fn read_again(&self, group: u32) -> Option<Timestamp> {
        let state = self.group(group);
        let waits = state.shut > 0 && !state.windows_stale && !matches!(state.phase, Phase::Ended(_));
        state.windows_read.filter(|_| waits)?.saturating_add(GOOD_FOR).ok()
    }

    /// Groups whose windows have been known for too long.
    pub(super) fn stale_windows(&self, now: Timestamp) -> Vec<Event> {
        let due = self.rereads.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, group)| Event::WindowsStale(*group)).collect()
    }

    /// Windows somebody waits behind, whose next turn has come.
    pub(super) fn due_windows(&self, now: Timestamp) -> Vec<Event> {
        let due = self.windows_due.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, window)| turned(*window, &self.window(*window).window, now)).collect()
    }

    /// What windows that were read lead to.
    pub(super) fn windows_seen(&self, seen: &Windows, now: Timestamp) -> Vec<Event> {
        let count = self.plan.members.len() as u32;
        let (mut new, mut turns, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for window in &seen.windows {
            let number = self.window_number(window).unwrap_or_else(|| {
                new.push(window.clone());
                (self.core.windows.len() + new.len() - 1) as u32
            });
            let known = self.core.windows.get(number as usize);
            // What nobody waited behind may have turned since.
            if known.is_none_or(|known| known.open != window.is_open(now) || known.next.is_some_and(|at| at <= now)) {
                turns.push(turned(number, window, now));
            }
            numbers.push(number);
        }
        let members = seen.members.iter().filter(|(member, _)| *member < count);
        let members =
            members.map(|(member, window)| (*member, window.and_then(|at| numbers.get(at as usize).copied())));
        // What is as it was known is no news: members may wait for weeks, and are read every hour.
        let news = members.filter(|(member, window)| self.member(*member).window != WindowOf::from(*window));
        let mut events = vec![Event::WindowsRead { new, members: news.collect() }];
        events.extend(turns);
        events
    }

    /// The number of a window that is known.
    fn window_number(&self, window: &MaintenanceWindow) -> Option<u32> {
        self.window_numbers.get(window).copied()
    }

    /// What follows from the window that was seen with a cluster: it is taken over where it is another, and turned
    /// where its time has come.
    pub(super) fn window_seen(&self, member: u32, window: Option<&MaintenanceWindow>, now: Timestamp) -> Vec<Event> {
        let known = match self.member(member).window {
            WindowOf::In(number) => Some(self.window(number)),
            _ => None,
        };
        let read = self.member(member).window != WindowOf::Unread;
        let same = read && known.map(|known| &known.window) == window;
        let stands = known.is_none_or(|known| known.open == known.window.is_open(now));
        if same && stands {
            return Vec::new();
        }
        let mut seen = Windows::default();
        seen.add(member, window.cloned());
        self.windows_seen(&seen, now)
    }

    pub(super) fn read_windows(&mut self, new: &[MaintenanceWindow], members: &[(u32, Option<u32>)], at: Timestamp) {
        for window in new {
            self.window_numbers.insert(window.clone(), self.core.windows.len() as u32);
            self.core.windows.push(Window { window: window.clone(), open: false, next: None, closings: 0 });
        }
        for (member, window) in members {
            let waits = matches!(self.member(*member).phase, MemberPhase::Waiting | MemberPhase::Shut);
            if waits {
                self.count_out(*member);
            }
            let closings = window.map_or(0, |window| self.window(window).closings);
            let state = &mut self.core.members[*member as usize];
            let known = WindowOf::from(*window);
            if state.window != known {
                (state.window, state.closings_before) = (known, closings);
            }
            if waits {
                let phase = self.at_rest(*member);
                self.core.members[*member as usize].phase = phase;
                self.count_in(*member);
            }
        }
        for group in self.groups_at_work().collect::<Vec<u32>>() {
            let state = &mut self.core.groups[group as usize];
            if state.unread == 0 {
                (state.windows_read, state.windows_stale) = (Some(at), false);
            }
            self.refresh_group(group);
        }
    }

    pub(super) fn turn_window(&mut self, window: u32, open: bool, next: Option<Timestamp>) {
        let state = &mut self.core.windows[window as usize];
        if let Some(old) = state.next {
            self.windows_due.remove(&(old, window));
        }
        state.closings += u32::from(state.open && !open);
        (state.open, state.next) = (open, next);
        let Some(members) = self.behind.get(&window) else { return };
        self.windows_due.extend(next.map(|next| (next, window)));
        let members: Vec<u32> = members.iter().copied().collect();
        let mut groups = BTreeSet::new();
        for member in members {
            let phase = self.at_rest(member);
            if self.member(member).phase != phase {
                self.count_out(member);
                let state = &mut self.core.members[member as usize];
                state.phase = phase;
                state.turn += 1;
                self.count_in(member);
                groups.insert(self.plan.group_of(member));
            }
        }
        for group in groups {
            self.refresh_group(group);
        }
    }

    /// Puts a member that waits among those behind its window.
    pub(super) fn stand_behind(&mut self, member: u32) {
        let WindowOf::In(window) = self.member(member).window else { return };
        let members = self.behind.entry(window).or_default();
        members.insert(member);
        if members.len() == 1 {
            self.windows_due.extend(self.core.windows[window as usize].next.map(|next| (next, window)));
        }
    }

    /// Takes it out again.
    pub(super) fn leave_from_behind(&mut self, member: u32) {
        let WindowOf::In(window) = self.member(member).window else { return };
        let Some(members) = self.behind.get_mut(&window) else { return };
        members.remove(&member);
        if members.is_empty() {
            self.behind.remove(&window);
            if let Some(next) = self.core.windows[window as usize].next {
                self.windows_due.remove(&(next, window));
            }
        }
    }

    /// How often a member's window has opened and closed again while it waited.
    pub fn missed_windows(&self, member: u32) -> u32 {
        let state = self.member(member);
        match state.window {
            WindowOf::In(window) => self.window(window).closings.saturating_sub(state.closings_before),
            _ => 0,
        }
    }
}
