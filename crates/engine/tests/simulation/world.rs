//! One simulated life of a run: random strategy and fleet, random commands, crashes, a cloud; virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flotta_engine::{
    Event, Input, Plan, Run, Work,
    run::{Outcome, RunPhase, RunSnapshot, SkipTarget, State, Ticket},
};
use flotta_model::{
    GateConfig, GateKind, Goal, Group, Labels, Member, Name, Stage, Strategy, UpgradeType, VersionTarget,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    check::{AFTER_EACH_EVENT, AT_REST, Outlook, View},
    cloud::{Cloud, Met, TARGET},
    random::Random,
};

/// What happened, for the summary and to know that each was met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub runs: u64,
    pub events: u64,
    pub stops: u64,
    pub skips: u64,
    pub retries: u64,
    pub failures: u64,
    pub crashes: u64,
    pub lost_commits: u64,
    pub holds: u64,
    pub worn_out: u64,
    pub put_back: u64,
    pub between_steps: u64,
    pub fail_fasts: u64,
    pub failed_groups: u64,
    pub waits: u64,
    pub left_the_fleet: u64,
    pub stale: u64,
    pub adopted: u64,
    pub not_taken: u64,
    pub refused: u64,
    pub completed_runs: u64,
    pub failed_runs: u64,
    pub skipped_runs: u64,
    pub gated_runs: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        for (sum, (_, more)) in self.fields_mut().into_iter().zip(other.fields()) {
            *sum += more;
        }
    }

    pub fn fields(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("runs", self.runs),
            ("events", self.events),
            ("stops", self.stops),
            ("skips", self.skips),
            ("retries", self.retries),
            ("failures", self.failures),
            ("crashes", self.crashes),
            ("lost commits", self.lost_commits),
            ("holds", self.holds),
            ("worn out", self.worn_out),
            ("put back", self.put_back),
            ("stopped between steps", self.between_steps),
            ("fail-fasts", self.fail_fasts),
            ("failed groups", self.failed_groups),
            ("waits", self.waits),
            ("left the fleet", self.left_the_fleet),
            ("stale answers", self.stale),
            ("adopted", self.adopted),
            ("not taken", self.not_taken),
            ("refused", self.refused),
            ("completed runs", self.completed_runs),
            ("failed runs", self.failed_runs),
            ("skipped runs", self.skipped_runs),
            ("runs left at a gate", self.gated_runs),
        ]
    }

    fn fields_mut(&mut self) -> Vec<&mut u64> {
        vec![
            &mut self.runs,
            &mut self.events,
            &mut self.stops,
            &mut self.skips,
            &mut self.retries,
            &mut self.failures,
            &mut self.crashes,
            &mut self.lost_commits,
            &mut self.holds,
            &mut self.worn_out,
            &mut self.put_back,
            &mut self.between_steps,
            &mut self.fail_fasts,
            &mut self.failed_groups,
            &mut self.waits,
            &mut self.left_the_fleet,
            &mut self.stale,
            &mut self.adopted,
            &mut self.not_taken,
            &mut self.refused,
            &mut self.completed_runs,
            &mut self.failed_runs,
            &mut self.skipped_runs,
            &mut self.gated_runs,
        ]
    }

    fn count(&mut self, event: &Event, before: &View) {
        self.events += 1;
        match event {
            Event::StopAsked => self.stops += 1,
            Event::Skipped(targets) => self.skips += targets.len() as u64,
            Event::Resumed => self.retries += u64::from(before.counts.failed),
            Event::MemberEnded { outcome: Outcome::Failed, message, .. } => {
                self.failures += 1;
                self.worn_out += u64::from(message.as_ref().is_some_and(|text| text.contains("; waited ")));
            }
            Event::MemberEnded { message: Some(text), .. } if text.contains("left the fleet") => {
                self.left_the_fleet += 1;
            }
            Event::MemberHeld(_, hold) => {
                self.holds += 1;
                self.between_steps += u64::from(hold.code() == "StoppedBetweenSteps");
            }
            Event::MemberReleased(member) => {
                self.put_back += u64::from(before.members[*member as usize].state == State::Running);
            }
            Event::FailedFast { .. } => self.fail_fasts += 1,
            Event::GroupEnded(_, Outcome::Failed) => self.failed_groups += 1,
            Event::WaitStarted { .. } => self.waits += 1,
            Event::RunEnded(Outcome::Completed) => self.completed_runs += 1,
            Event::RunEnded(Outcome::Failed) => self.failed_runs += 1,
            Event::RunEnded(Outcome::Skipped) => self.skipped_runs += 1,
            _ => {}
        }
    }
}

/// Something that is going to happen.
enum Coming {
    Answer { work: Work, generation: u64 },
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
}

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
    tally: Tally,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let plan = Arc::new(random_plan(&mut random));
        let calm = random.chance(10);
        let cloud = Cloud::new(plan.members.len(), calm, Random::new(seed ^ 0xC10D));
        let mut world = Self {
            run: Run::new(Arc::clone(&plan)),
            plan,
            journal: Vec::new(),
            snapshot: None,
            cloud,
            random,
            now: 0,
            begin: "2026-01-01T00:00:00Z".parse().expect("time"),
            queue: BTreeMap::new(),
            serial: 0,
            generation: 0,
            asked: BTreeSet::new(),
            tally: Tally::default(),
        };
        let start = world.random.below(100);
        world.come(start, Coming::Command(Command::Start));
        for _ in 0..world.random.below(9) {
            let at = world.random.below(30_000);
            let command =
                *world.random.pick(&[Command::Start, Command::Stop, Command::Skip, Command::Leave, Command::Crash]);
            world.come(at, Coming::Command(command));
        }
        world
    }

    fn at(&self) -> Timestamp {
        self.begin + SignedDuration::from_secs(self.now as i64)
    }

    fn come(&mut self, at: u64, what: Coming) {
        self.serial += 1;
        self.queue.insert((at, self.serial), what);
    }

    /// Lives until nothing comes any more.
    pub fn live(mut self) -> Result<Tally, String> {
        for restarts in 0.. {
            while let Some(((at, _), coming)) = self.queue.pop_first() {
                if self.journal.len() > 200_000 {
                    return Err("the run goes on forever".into());
                }
                self.now = self.now.max(at);
                self.happen(coming)?;
                self.ask();
            }
            match self.run.phase() {
                RunPhase::Ended(Outcome::Completed | Outcome::Skipped) => break,
                RunPhase::Going => break,
                _ if restarts > 30 => return Err(format!("still {:?} after {restarts} starts", self.run.phase())),
                _ if restarts > 4 => (0..self.plan.members.len() as u32).for_each(|member| self.cloud.calm(member)),
                _ => {}
            }
            self.now += 1;
            self.step(&Input::Start)?;
            self.ask();
        }
        self.end()
    }

    fn happen(&mut self, coming: Coming) -> Result<(), String> {
        match coming {
            Coming::Answer { work, generation } => self.answer(&work, generation),
            Coming::Command(command) => self.command(command),
            Coming::Wake => self.step(&Input::Tick),
        }
    }

    fn answer(&mut self, work: &Work, generation: u64) -> Result<(), String> {
        let lost = generation != self.generation && self.random.chance(50);
        if generation == self.generation {
            self.asked.remove(&(generation, ticket(work)));
        }
        if let Some(ticket) = ticket(work).filter(|ticket| ticket.turn < u32::MAX) {
            self.tally.stale += u64::from(self.run.member(ticket.member).turn != ticket.turn);
        }
        // What is sent arrives, even if whoever sent it is gone and the answer is lost.
        let answer = self.cloud.answer(&self.run, work, self.now, self.at())?;
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

    /// One input; every event of its outcome is held to the invariants. Sometimes the commit is lost.
    fn step(&mut self, input: &Input) -> Result<(), String> {
        let at = self.at();
        let mut shadow = self.run.clone();
        let stale = answers(input).is_some_and(|ticket| self.run.member(ticket.member).turn != ticket.turn);
        let Ok(events) = self.run.step(input, at) else {
            return if shadow == self.run { Ok(()) } else { Err(format!("{input:?} was refused and changed the run")) };
        };
        if stale && events != shadow.clone().step(&Input::Tick, at).unwrap_or_default() {
            return Err(format!("an answer that is stale did something: {input:?} led to {events:?}"));
        }
        if self.random.below(400) == 0 {
            self.tally.lost_commits += 1;
            self.run = shadow;
            return self.crash();
        }
        let mut before = View::of(&shadow);
        for event in events {
            shadow.apply(&event, at);
            let view = View::of(&shadow);
            for (name, invariant) in AFTER_EACH_EVENT {
                invariant(&self.plan, &before, &event, &view)
                    .map_err(|broken| format!("{name}: {broken}\n  by {event:?}\n  of {input:?}"))?;
            }
            self.tally.count(&event, &before);
            self.journal.push((at, event));
            before = view;
        }
        if shadow != self.run {
            return Err(format!("the fold of the events is not what step left, after {input:?}"));
        }
        let rest = Outlook::of(&self.run, at);
        for (name, invariant) in AT_REST {
            invariant(&self.plan, &rest).map_err(|broken| format!("{name}: {broken}\n  after {input:?}"))?;
        }
        if self.random.below(50) == 0 {
            self.snapshot = Some((self.journal.len(), self.run.snapshot()));
        }
        Ok(())
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
        let stages = self.plan.stages.iter().map(|stage| stage.before_gates.len() + stage.after_gates.len());
        let groups = self.plan.groups.iter().map(|group| group.before_gates.len() + group.after_gates.len());
        let gated = stages.chain(groups).any(|gates| gates > 0);
        self.tally.gated_runs += u64::from(self.run.phase() == RunPhase::Going);
        if self.run.phase() == RunPhase::Going && !gated {
            return Err("nothing comes any more and the run has not ended".into());
        }
        for member in 0..self.plan.members.len() as u32 {
            let completed = self.run.member_state(member) == State::Completed;
            let with_version = self.plan.goal.version().is_some();
            if completed && !self.cloud.there(member, self.now, with_version) {
                return Err(format!("member {member} is Completed and its cluster is not there"));
            }
        }
        self.crash()?;
        let Met { adopted, not_taken, refused, .. } = self.cloud.met;
        (self.tally.adopted, self.tally.not_taken, self.tally.refused) = (adopted, not_taken, refused);
        self.tally.runs = 1;
        Ok(self.tally)
    }
}

fn ticket(work: &Work) -> Option<Ticket> {
    match work {
        Work::ResolveTarget => None,
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

fn name(text: String) -> Name {
    text.parse().expect("name")
}

/// Mostly small, sometimes some hundreds of members; limits as counts, as percentages, or none.
fn random_plan(random: &mut Random) -> Plan {
    let goal = match random.below(4) {
        0 => Goal::new(UpgradeType::NodeImageOnly, None, None),
        1 => Goal::new(UpgradeType::Full, Some(VersionTarget::Minor { major: 1, minor: 33 }), None),
        _ => Goal::new(UpgradeType::Full, Some(TARGET.into()), None),
    };
    let goal = goal.expect("goal");
    let most = *random.pick(&[2, 2, 4, 4, 4, 8, 8, 8, 8, 20, 20, 60]);
    let mut members = Vec::new();
    if random.chance(5) {
        (0..random.below(6)).for_each(|_| members.push(random_member(members.len(), None)));
        return Plan::resolve(goal, None, &members).expect("plan");
    }
    let gates = if random.chance(15) { 20 } else { 0 };
    let mut stages = Vec::new();
    for at in 0..random.range(1, 4) {
        let mut stage = Stage::new(name(format!("s{at}")), Vec::new());
        stage.max_concurrency = concurrency(random);
        stage.max_allowed_failures = failures(random);
        stage.after_wait_seconds = if random.chance(40) { random.below(9000) as u32 } else { 0 };
        (stage.before_gates, stage.after_gates) = (gate(gates / 2, random), gate(gates / 2, random));
        let groups = random.range(0, 4);
        for group in 0..groups {
            let mut group = random_group(name(format!("s{at}-g{group}")), random);
            (group.before_gates, group.after_gates) = (gate(gates, random), gate(gates, random));
            (0..random.below(most)).for_each(|_| members.push(random_member(members.len(), Some(&group.name))));
            stage.groups.push(group);
        }
        if groups == 0 {
            stage.selector = Some(format!("stage={at}").parse().expect("selector"));
            for _ in 0..random.below(most) {
                let mut member = random_member(members.len(), None);
                member.labels.insert("stage".into(), at.to_string());
                members.push(member);
            }
        }
        stages.push(stage);
    }
    Plan::resolve(goal, Some(&Strategy::new(stages).expect("strategy")), &members).expect("plan")
}

fn random_group(name: Name, random: &mut Random) -> Group {
    let mut group = Group::new(name);
    group.max_concurrency = concurrency(random);
    group.max_allowed_failures = failures(random);
    group
}

fn gate(percent: u64, random: &mut Random) -> Vec<GateConfig> {
    let gate = GateConfig::new(GateKind::Approval);
    if random.chance(percent) { vec![gate] } else { Vec::new() }
}

fn concurrency(random: &mut Random) -> Option<flotta_model::Concurrency> {
    let text = match random.below(4) {
        0 => return None,
        1 => format!("{}%", random.range(1, 100)),
        _ => random.range(1, 9).to_string(),
    };
    Some(text.parse().expect("concurrency"))
}

fn failures(random: &mut Random) -> Option<flotta_model::FailureLimit> {
    let text = match random.below(4) {
        0 | 1 => return None,
        2 => format!("{}%", random.range(0, 60)),
        _ => random.range(0, 5).to_string(),
    };
    Some(text.parse().expect("failure limit"))
}

fn random_member(at: usize, group: Option<&Name>) -> Member {
    let cluster =
        format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/m{at}");
    Member {
        name: name(format!("m{at}")),
        cluster: cluster.parse().expect("cluster"),
        group: group.cloned(),
        labels: Labels::new(),
    }
}
