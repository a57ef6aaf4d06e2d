//! One simulated life of a run: random strategy and fleet, random commands, crashes, a cloud; virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use flotta_engine::{
    Event, Input, Plan, Run, Work,
    run::{Decision, Outcome, Part, Refusal, RunPhase, RunSnapshot, SkipTarget, State, Ticket, Why},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    check::AFTER_EACH_EVENT,
    cloud::{Cloud, Met, Weather},
    plans::{PEOPLE, random_begin, random_plan, random_windows},
    random::Random,
    rest::{AT_REST, Outlook},
    tally::Tally,
    view::View,
};

/// Something that is going to happen.
enum Coming {
    Answer {
        work: Work,
        generation: u64,
    },
    /// What was read a while ago.
    Late {
        input: Input,
        generation: u64,
    },
    Command(Command),
    Wake,
}

#[derive(Clone, Copy)]
enum Command {
    Start,
    Stop,
    Skip,
    Leave,
    Crash,
    /// Time goes by and nothing happens, as when a machine sleeps.
    Leap,
    /// Somebody decides on a gate.
    Decide {
        gate: u32,
        decision: Decision,
        by: usize,
    },
    /// Somebody decides on any gate.
    Meddle,
}

/// Seconds that a run is lived for, after each start by hand.
const HORIZON: u64 = 35 * 24 * 3600;

pub struct World {
    plan: Arc<Plan>,
    run: Run,
    journal: Vec<(Timestamp, Event)>,
    snapshot: Option<(usize, RunSnapshot)>,
    cloud: Cloud,
    random: Random,
    now: u64,
    begin: Timestamp,
    queue: BTreeMap<(u64, u64), Coming>,
    serial: u64,
    /// Grows with each crash.
    generation: u64,
    asked: BTreeSet<(u64, Option<Ticket>)>,
    /// How often the run was started again so that it ends.
    restarts: u32,
    /// Some of the states that it went through.
    states: Vec<(Run, Timestamp)>,
    steps: u64,
    tally: Tally,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let begin = random_begin(&mut random);
        let plan = Arc::new(random_plan(begin, &mut random));
        let weather = *random.pick(&[Weather::Windows, Weather::Rough]);
        let weather = if random.chance(10) { Weather::Calm } else { weather };
        let windows = random_windows(begin, &mut random);
        let cloud = Cloud::new(&plan, begin, weather, windows, Random::new(seed ^ 0xC10D));
        let mut world = Self {
            run: Run::new(Arc::clone(&plan)),
            plan,
            journal: Vec::new(),
            snapshot: None,
            cloud,
            random,
            now: 0,
            begin,
            queue: BTreeMap::new(),
            serial: 0,
            generation: 0,
            asked: BTreeSet::new(),
            restarts: 0,
            states: Vec::new(),
            steps: 0,
            tally: Tally::default(),
        };
        let start = world.random.below(100);
        world.come(start, Coming::Command(Command::Start));
        world.random_commands();
        world
    }

    /// Most in the first hours, when most is going on.
    fn random_commands(&mut self) {
        use Command::{Crash, Leap, Leave, Meddle, Skip, Start, Stop};
        for _ in 0..self.random.below(12) {
            let most = *self.random.pick(&[30_000, 30_000, 900_000]);
            let at = self.random.below(most);
            let command = *self.random.pick(&[Start, Start, Stop, Skip, Leave, Crash, Leap, Meddle]);
            self.come(at, Coming::Command(command));
        }
    }

    fn at(&self) -> Timestamp {
        self.begin + SignedDuration::from_secs(self.now as i64)
    }

    fn come(&mut self, at: u64, what: Coming) {
        self.serial += 1;
        self.queue.insert((at, self.serial), what);
    }

    /// Lives until nothing comes any more, or for as long as a run is lived for.
    pub fn live(mut self) -> Result<Tally, String> {
        self.live_on()?;
        self.end()
    }

    /// Some of the states that a life goes through.
    pub fn states(mut self) -> Result<Vec<(Run, Timestamp)>, String> {
        self.live_on()?;
        Ok(self.states)
    }

    fn live_on(&mut self) -> Result<(), String> {
        for restarts in 0.. {
            self.restarts = restarts;
            self.play()?;
            match self.run.phase() {
                RunPhase::Ended(Outcome::Completed | Outcome::Skipped) | RunPhase::Going => break,
                _ if restarts > 40 => return Err(format!("still {:?} after {restarts} starts", self.run.phase())),
                _ if restarts > 4 => (0..self.plan.members.len() as u32).for_each(|member| self.cloud.calm(member)),
                _ => {}
            }
            self.now += 1;
            if restarts > 8 {
                self.skip_what_failed()?;
            }
            self.step(&Input::Start)?;
            self.ask();
        }
        Ok(())
    }

    fn play(&mut self) -> Result<(), String> {
        let horizon = self.now + HORIZON;
        while let Some(((at, _), coming)) = self.queue.pop_first() {
            if self.journal.len() > 200_000 {
                return Err("the run goes on forever".into());
            }
            if at > horizon && self.run.counts().running == 0 && !self.run.reading() {
                self.come(at, coming);
                return Ok(());
            }
            self.now = self.now.max(at);
            // Nothing but the clock is waited for: it may as well leap.
            let wakes = |coming: &Coming| matches!(coming, Coming::Wake);
            let alone = wakes(&coming) && self.queue.values().all(wakes);
            if alone && self.random.chance(if self.now > 200_000 { 85 } else { 40 }) {
                self.leap();
            }
            self.happen(coming)?;
            self.ask();
        }
        Ok(())
    }

    fn leap(&mut self) {
        self.tally.leaps += 1;
        let most = *self.random.pick(&[7200, 150_000, 800_000]);
        self.now += self.random.range(1, most);
    }

    /// What fails for good, such as a group below its floor, is left out.
    fn skip_what_failed(&mut self) -> Result<(), String> {
        let groups = self.plan.groups.iter().zip(0..).filter(|(_, at)| self.run.group_state(*at) == State::Failed);
        let groups = groups.map(|(group, _)| SkipTarget::Group(group.name.clone()));
        let stages = self.plan.stages.iter().zip(0..).filter(|(_, at)| self.run.stage_state(*at) == State::Failed);
        let stages = stages.map(|(stage, _)| SkipTarget::Stage(stage.name.clone()));
        let targets: Vec<SkipTarget> = groups.chain(stages).collect();
        if targets.is_empty() { Ok(()) } else { self.step(&Input::Skip(targets)) }
    }

    fn happen(&mut self, coming: Coming) -> Result<(), String> {
        match coming {
            Coming::Answer { work, generation } => self.answer(&work, generation),
            Coming::Late { input, generation } => {
                if generation != self.generation {
                    return Ok(());
                }
                self.asked.remove(&(generation, ticket(&Work::ReadWindows)));
                self.step(&input)
            }
            Coming::Command(command) => self.command(command),
            Coming::Wake => {
                let due = self.run.next_wake() == Some(self.at());
                let (before, generation) = (self.journal.len(), self.generation);
                self.step(&Input::Tick)?;
                match due && self.journal.len() == before && self.generation == generation {
                    true => Err(format!("woken at {} for nothing", self.at())),
                    false => Ok(()),
                }
            }
        }
    }

    fn answer(&mut self, work: &Work, generation: u64) -> Result<(), String> {
        let lost = generation != self.generation && self.random.chance(50);
        if let Some(ticket) = ticket(work).filter(|ticket| ticket.turn < u32::MAX) {
            self.tally.stale += u64::from(self.run.member(ticket.member).turn != ticket.turn);
        }
        // What is sent arrives, even if whoever sent it is gone and the answer is lost.
        let answer = self.cloud.answer(&self.run, work, self.now, self.at())?;
        if let (Work::ReadWindows, Some(input), true) = (work, &answer, self.random.chance(10)) {
            let at = self.now + self.random.range(1, 7200);
            self.come(at, Coming::Late { input: input.clone(), generation });
            return Ok(());
        }
        if generation == self.generation {
            self.asked.remove(&(generation, ticket(work)));
        }
        match answer {
            Some(input) if !lost => self.step(&input),
            _ => Ok(()),
        }
    }

    fn command(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Start => self.step(&Input::Start),
            Command::Stop => self.step(&Input::Stop),
            Command::Skip => {
                let targets = self.random_targets();
                self.step(&Input::Skip(targets))
            }
            Command::Leave => {
                let member = self.random.below(self.plan.members.len() as u64 + 1) as u32;
                self.step(&Input::MemberLeft(member))
            }
            Command::Crash => self.crash(),
            Command::Leap => {
                self.leap();
                Ok(())
            }
            Command::Decide { gate, decision, by } => self.decide(gate, decision, by),
            Command::Meddle => {
                let gate = self.random.below(u64::from(self.run.gate_count()) + 1) as u32;
                let by = self.random.below(PEOPLE.len() as u64) as usize;
                let decision = *self.random.pick(&[Decision::Approve, Decision::Reject]);
                self.decide(gate, decision, by)
            }
        }
    }

    fn decide(&mut self, gate: u32, decision: Decision, by: usize) -> Result<(), String> {
        self.step(&Input::Gate { gate, decision, by: PEOPLE[by].into(), comment: None })
    }

    /// Somebody is asked to decide on a gate: most people do, in their own time; some may not, or do so twice.
    fn ask_people(&mut self, gate: u32) {
        let config = self.run.gate_config(gate);
        let (needed, timed) = (u64::from(config.policy.approvers), config.policy != Default::default());
        let in_earnest = self.restarts > 4;
        if in_earnest {
            for by in 1..PEOPLE.len() {
                let at = self.now + self.random.range(1, 50);
                self.come(at, Coming::Command(Command::Decide { gate, decision: Decision::Approve, by }));
            }
            return;
        }
        if self.random.chance(if timed { 20 } else { 10 }) {
            return;
        }
        let most = *self.random.pick(&[600, 40_000, 40_000, 900_000]);
        for _ in 0..needed + self.random.below(4) {
            let by = self.random.below(PEOPLE.len() as u64) as usize;
            let decision = if self.random.chance(12) { Decision::Reject } else { Decision::Approve };
            let at = self.now + self.random.range(1, most);
            self.come(at, Coming::Command(Command::Decide { gate, decision, by }));
        }
    }

    fn random_targets(&mut self) -> Vec<SkipTarget> {
        let plan = Arc::clone(&self.plan);
        let count = self.random.range(1, 4);
        let random = &mut self.random;
        let target = |_| match random.below(10) {
            0 => SkipTarget::Stage(random.pick(&plan.stages).name.clone()),
            1 => SkipTarget::AfterStageWait(random.pick(&plan.stages).name.clone()),
            2 | 3 => SkipTarget::Group(random.pick(&plan.groups).name.clone()),
            _ if plan.members.is_empty() => SkipTarget::Member(plan.stages[0].name.clone()),
            _ => SkipTarget::Member(random.pick(&plan.members).name.clone()),
        };
        (0..count).map(target).collect()
    }

    fn view(&mut self, run: &Run) -> View {
        let at = self.at();
        View::of(run, at, &Rc::new(self.cloud.outside(self.now, at)))
    }

    /// One input; every event of its outcome is held to the invariants. Sometimes the commit is lost.
    fn step(&mut self, input: &Input) -> Result<(), String> {
        let at = self.at();
        let mut shadow = self.run.clone();
        let stale = answers(input).is_some_and(|ticket| self.run.member(ticket.member).turn != ticket.turn);
        let events = match self.run.step(input, at) {
            Ok(events) => events,
            Err(_) if shadow != self.run => return Err(format!("{input:?} was refused and changed the run")),
            Err(refusal) => {
                self.tally.gate_refusals += u64::from(matches!(refusal, Refusal::Gate { .. }));
                return Ok(());
            }
        };
        if stale && events != shadow.clone().step(&Input::Tick, at).unwrap_or_default() {
            return Err(format!("an answer that is stale did something: {input:?} led to {events:?}"));
        }
        if self.random.below(400) == 0 {
            self.tally.lost_commits += 1;
            self.run = shadow;
            return self.crash();
        }
        // Mostly, what leads to nothing leaves everything as it was.
        if events.is_empty() && self.random.chance(70) {
            return if shadow == self.run {
                Ok(())
            } else {
                Err(format!("{input:?} changed the run without an event"))
            };
        }
        let mut before = self.view(&shadow);
        for event in events {
            shadow.apply(&event, at);
            let view = View::of(&shadow, at, &before.outside);
            for (name, invariant) in AFTER_EACH_EVENT {
                invariant(&self.plan, &before, &event, &view)
                    .map_err(|broken| format!("{name}: {broken}\n  by {event:?}\n  of {input:?} at {at}"))?;
            }
            self.tally.count(&self.plan, &event, &before, &view);
            self.react(&event);
            self.journal.push((at, event));
            before = view;
        }
        if shadow != self.run {
            return Err(format!("the fold of the events is not what step left, after {input:?}"));
        }
        let ask_from = self.random.chance(20).then(|| self.random.below(before.members.len() as u64) as usize);
        let rest = Outlook::of(&self.run, before, ask_from);
        for (name, invariant) in AT_REST {
            invariant(&self.plan, &rest).map_err(|broken| format!("{name}: {broken}\n  after {input:?} at {at}"))?;
        }
        self.steps += 1;
        if self.steps.is_power_of_two() || self.steps.is_multiple_of(37) {
            self.states.push((self.run.clone(), at));
        }
        if self.random.below(50) == 0 {
            self.snapshot = Some((self.journal.len(), self.run.snapshot()));
        }
        Ok(())
    }

    /// What people do because of an event.
    fn react(&mut self, event: &Event) {
        match event {
            Event::GateReached { gate, .. } => self.ask_people(*gate),
            Event::Resumed => {
                let pending = |gate: &u32| self.run.gate(*gate).state() == State::Pending;
                let gates: Vec<u32> = (0..self.run.gate_count()).filter(pending).collect();
                gates.into_iter().for_each(|gate| self.ask_people(gate));
            }
            _ => {}
        }
    }

    /// The owner of the run is gone; another folds it again, from the journal or a snapshot and the rest of it.
    fn crash(&mut self) -> Result<(), String> {
        self.tally.crashes += 1;
        self.generation += 1;
        self.asked.clear();
        let (from, mut folded) = match &self.snapshot {
            Some((from, snapshot)) if self.random.chance(50) => {
                let text = serde_json::to_string(snapshot).map_err(|error| error.to_string())?;
                let snapshot = serde_json::from_str(&text).map_err(|error| error.to_string())?;
                (*from, Run::from_snapshot(Arc::clone(&self.plan), &snapshot).ok_or("the snapshot does not fit")?)
            }
            _ => (0, Run::new(Arc::clone(&self.plan))),
        };
        for (at, event) in &self.journal[from..] {
            folded.apply(event, *at);
        }
        if folded != self.run {
            return Err("the fold is not the state that was lost".into());
        }
        self.run = folded;
        Ok(())
    }

    /// Asks for what should be going on and is not asked for yet.
    fn ask(&mut self) {
        for work in self.run.work() {
            if self.asked.insert((self.generation, ticket(&work))) {
                let at = self.now + self.cloud.delay(&work, self.now);
                self.come(at, Coming::Answer { work, generation: self.generation });
            }
        }
        if let Some(wake) = self.run.next_wake() {
            let at = wake.duration_since(self.begin).as_secs() as u64;
            if !self.queue.range((at, 0)..(at + 1, 0)).any(|(_, coming)| matches!(coming, Coming::Wake)) {
                self.come(at, Coming::Wake);
            }
        }
    }

    fn end(mut self) -> Result<Tally, String> {
        if self.run.phase() == RunPhase::Going {
            self.explain()?;
        }
        for member in 0..self.plan.members.len() as u32 {
            let done = self.run.member_state(member) == State::Completed || self.run.member(member).there;
            if done && !self.cloud.there(member, self.now, &self.run) {
                return Err(format!("member {member} is done and its cluster is not there"));
            }
        }
        self.crash()?;
        let Met { adopted, not_taken, refused, too_late, read_in_parts, reads_failed, .. } = self.cloud.met;
        (self.tally.adopted, self.tally.not_taken, self.tally.refused) = (adopted, not_taken, refused);
        self.tally.too_late = too_late;
        (self.tally.read_in_parts, self.tally.reads_failed) = (read_in_parts, reads_failed);
        self.tally.windows_changed = self.cloud.changes(self.now);
        self.tally.runs = 1;
        Ok(self.tally)
    }

    /// A run that still goes on says what it waits for, and that really is so.
    fn explain(&mut self) -> Result<(), String> {
        let at = self.at();
        let run = self.run.clone();
        let view = self.view(&run);
        let reasons = self.run.waiting_on(Part::Run, at);
        let mut explained = false;
        for reason in &reasons {
            explained |= match &reason.why {
                Why::Gate { .. } => {
                    self.tally.left_at_gate += 1;
                    view.gates.iter().any(|gate| gate.state == State::Pending)
                }
                Why::Window => {
                    self.tally.left_at_window += 1;
                    view.members.iter().any(|member| member.shut && view.stand(member).is_some_and(|stand| !stand.open))
                }
                Why::StageWait(_) => reason.until.is_some_and(|until| until > at),
                Why::Held(_) => {
                    self.tally.left_held += 1;
                    let probed = |member: &u32| matches!(self.run.work_of(*member), Some(Work::Probe(_)));
                    let mut probed = (0..self.plan.members.len() as u32).filter(probed);
                    let image = |member: u32| {
                        let hold = self.run.member(member).held().map(|held| &held.hold);
                        hold.is_some_and(|hold| self.cloud.lacks(member, hold, self.now, at))
                    };
                    probed.all(|member| image(member) || self.cloud.may_be_held(member, self.now))
                }
                _ => false,
            };
        }
        match explained {
            true => Ok(()),
            false => Err(format!("the run still goes on at {at}, and all it says is {reasons:?}")),
        }
    }
}

fn ticket(work: &Work) -> Option<Ticket> {
    match work {
        Work::ResolveTarget => None,
        Work::ResolveImages => Some(Ticket { member: 1, turn: u32::MAX }),
        // Told apart from members by a turn that none has.
        Work::ReadWindows => Some(Ticket { member: 0, turn: u32::MAX }),
        Work::Look(ticket) | Work::Probe(ticket) | Work::Send(ticket) | Work::Follow(ticket) => Some(*ticket),
    }
}

/// The ticket that an input answers to.
fn answers(input: &Input) -> Option<Ticket> {
    match input {
        Input::Seen(ticket, _)
        | Input::Held(ticket, _)
        | Input::Unfit(ticket, _)
        | Input::Accepted { ticket, .. }
        | Input::NotAccepted(ticket)
        | Input::StepSucceeded(ticket)
        | Input::StepFailed(ticket, _) => Some(*ticket),
        _ => None,
    }
}
