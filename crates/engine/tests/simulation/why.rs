//! The property of reasons: of a member that does not move, the rules told are exactly those that hold it. When each of
//! them gives way it takes a slot; while one of them stands it does not.
//!
//! States come from random lives. On a copy of each the rules are satisfied by the inputs that real life would bring.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use flotta_engine::{
    Event, Input, Plan, Run, Work,
    images::PoolImages,
    run::{
        Decision, GatePhase, MemberPhase, Outcome, Part, Phase, RunPhase, Sighting, SkipTarget, State, Ticket, Timing,
        Why, WindowOf, Windows,
    },
};
use flotta_model::{
    Cluster, KubernetesVersion, MaintenanceWindow, Name, NodeImage, Pool, Provisioning, gate::Weekday,
    window::HoursOfWeek,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    cloud::{OLD, TARGET},
    random::Random,
    regions::{FAMILIES, image},
    world::World,
};

/// Members asked about in one state.
const ASKED: usize = 3;

/// Rules that were left out, by kind: how often that was judged, and how often it could not be.
#[derive(Debug, Default)]
pub struct Judged(pub BTreeMap<&'static str, [u64; 2]>);

impl Judged {
    fn count(&mut self, kind: &'static str, way: Way) {
        self.0.entry(kind).or_default()[usize::from(way != Way::Direct)] += 1;
    }

    pub fn add(&mut self, other: &Self) {
        for (kind, more) in &other.0 {
            let sum = self.0.entry(kind).or_default();
            *sum = [sum[0] + more[0], sum[1] + more[1]];
        }
    }
}

fn kind(why: &Why) -> &'static str {
    match why {
        Why::NotStarted => "not started",
        Why::Stopping => "stopping",
        Why::Stopped => "stopped",
        Why::Failed => "failed",
        Why::ResolvingTarget => "resolving the target",
        Why::ResolvingImages => "resolving images",
        Why::ImagesApart(_) => "images apart",
        Why::EarlierStage(_) => "earlier stage",
        Why::Gate { .. } => "gate",
        Why::StageWait(_) => "stage wait",
        Why::ReadingWindows => "reading windows",
        Why::Slot { .. } => "slot",
        Why::FailureLimit { .. } => "failure limit",
        Why::Window => "window",
        Why::Held(_) => "held",
    }
}

/// Judges some states of one life.
pub fn judge(seed: u64, judged: &mut Judged) -> Result<(), String> {
    let mut random = Random::new(seed ^ 0x0BAD_5EED);
    for (run, now) in World::new(seed).states()? {
        let still: Vec<u32> = (0..run.plan().members.len() as u32).filter(|member| waits(&run, *member)).collect();
        for _ in 0..ASKED.min(still.len()) {
            let member = *random.pick(&still);
            judge_member(&run, now, member, judged).map_err(|broken| format!("member {member} at {now}: {broken}"))?;
        }
    }
    Ok(())
}

fn waits(run: &Run, member: u32) -> bool {
    matches!(run.member_state(member), State::NotStarted | State::Pending)
}

fn judge_member(run: &Run, now: Timestamp, member: u32, judged: &mut Judged) -> Result<(), String> {
    if others_wear_out(run, now, member) {
        return Ok(());
    }
    let rules: Vec<Why> = run.waiting_on(Part::Member(member), now).into_iter().map(|reason| reason.why).collect();
    let mut copy = Copy::new(run, now, member);
    let way = copy.satisfy(&rules, None);
    judged.count("none", way);
    if way == Way::Direct && !copy.started {
        let left = copy.run.waiting_on(Part::Member(member), now);
        return Err(format!("it does not start when all of {rules:?} give way; then: {left:?}; after {:?}", copy.told));
    }
    for (at, left_out) in rules.iter().enumerate() {
        let mut copy = Copy::new(run, now, member);
        let way = copy.satisfy(&rules, Some(at));
        judged.count(kind(left_out), way);
        if way == Way::Direct && copy.started {
            return Err(format!("it starts although {left_out:?} stands, of {rules:?}; after {:?}", copy.told));
        }
    }
    Ok(())
}

/// In a run that stands still, patience with others may have run out: a start fails them, which no rule foretells.
fn others_wear_out(run: &Run, now: Timestamp, member: u32) -> bool {
    let patience = SignedDuration::from_secs(i64::from(run.plan().patience_seconds));
    let worn = |other: u32| {
        let held = run.member(other).held().filter(|held| held.hold.wears_out());
        held.is_some_and(|held| held.since + patience <= now)
    };
    (0..run.plan().members.len() as u32).any(|other| other != member && worn(other))
}

/// How rules could be satisfied.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Those and no others.
    Direct,
    /// Not without touching others.
    Entangled,
}

/// Whether a rule is that the whole run stands still.
fn halts(why: &Why) -> bool {
    matches!(why, Why::NotStarted | Why::Stopping | Why::Stopped | Why::Failed)
}

/// A copy of a run, in which the rules that hold a member give way.
struct Copy {
    run: Run,
    now: Timestamp,
    member: u32,
    started: bool,
    told: Vec<Input>,
}

impl Copy {
    fn new(run: &Run, now: Timestamp, member: u32) -> Self {
        Self { run: run.clone(), now, member, started: false, told: Vec::new() }
    }

    fn plan(&self) -> &Plan {
        self.run.plan()
    }

    fn tell(&mut self, input: Input) {
        if let Ok(events) = self.run.step(&input, self.now) {
            self.started |= events.contains(&Event::MemberStarted(self.member));
            self.told.push(input);
        }
    }

    /// Satisfies all rules but one, or all of them.
    fn satisfy(&mut self, all: &[Why], left_out: Option<usize>) -> Way {
        let rules = all.iter().enumerate().filter(|(at, _)| Some(*at) != left_out);
        let rules: Vec<Why> = rules.map(|(_, why)| why.clone()).collect();
        let has = |wanted: fn(&Why) -> bool| rules.iter().any(wanted);
        let (group, stage) = (self.plan().group_of(self.member), self.plan().stage_of(self.member));
        // A gate of its group is reached only once its stage is open: others may take the slots in between.
        let behind =
            self.run.group_gates(group, Timing::Before).any(|gate| self.run.gate(gate).phase == GatePhase::Idle);
        if has(|why| *why == Why::Window) {
            self.open_window();
        }
        if has(|why| *why == Why::ReadingWindows) {
            self.read_windows(group);
        }
        if has(|why| matches!(why, Why::Held(_))) {
            self.release();
        }
        let mut way = Way::Direct;
        for why in &rules {
            if let Why::FailureLimit { of, .. } = why {
                self.forgive(of);
                way = if self.entangled(all, left_out) { Way::Entangled } else { way };
            }
        }
        self.pass_earlier(&rules);
        if has(|why| matches!(why, Why::Slot { .. })) {
            self.clear(stage);
        }
        if has(|why| matches!(why, Why::ResolvingImages | Why::ImagesApart(_))) {
            let newest = |family: &&str| image(self.now, family, 8);
            let pool = |newest| PoolImages { region: "westeurope".into(), newest, offered: Vec::new() };
            self.tell(Input::ImagesResolved { pools: FAMILIES.iter().map(newest).map(pool).collect() });
        }
        if has(|why| *why == Why::ResolvingTarget) {
            self.tell(Input::TargetResolved(TARGET));
        }
        self.approve(&rules);
        if has(halts) {
            self.come_to_a_halt(stage);
            let gone = left_out.is_some_and(|at| !self.rules().contains(&all[at]));
            if gone {
                return Way::Entangled;
            }
            self.tell(Input::Start);
            // What began anew there.
            self.pass_earlier(&rules);
        }
        // Those of the stage, then those of the group that are reached by them.
        self.approve(&rules);
        self.approve(&rules);
        let slots_alone = |rules: &[Why]| !rules.is_empty() && rules.iter().all(|why| matches!(why, Why::Slot { .. }));
        match behind && left_out.is_none() && slots_alone(&self.rules()) {
            true => Way::Entangled,
            false => way,
        }
    }

    fn pass_earlier(&mut self, rules: &[Why]) {
        for why in rules {
            if let Why::EarlierStage(name) = why {
                self.pass(name);
            }
        }
    }

    /// Whether satisfying a rule has brought up others, or taken the one away that is to stand.
    fn entangled(&self, all: &[Why], left_out: Option<usize>) -> bool {
        let key = |why: &Why| match why {
            Why::FailureLimit { of, .. } => ("failure limit", of.to_string()),
            Why::Slot { .. } => ("slot", String::new()),
            other => (kind(other), format!("{other:?}")),
        };
        let now: Vec<_> = self.rules().iter().map(key).collect();
        let before: Vec<_> = all.iter().map(key).collect();
        now.iter().any(|rule| !before.contains(rule)) || left_out.is_some_and(|at| !now.contains(&before[at]))
    }

    /// The member's cluster gets a window that is open at any time.
    fn open_window(&mut self) {
        let days = [
            Weekday::Monday,
            Weekday::Tuesday,
            Weekday::Wednesday,
            Weekday::Thursday,
            Weekday::Friday,
            Weekday::Saturday,
            Weekday::Sunday,
        ];
        let hours = days.into_iter().flat_map(|day| (0..24).map(move |hour| (day, hour))).collect();
        let window = MaintenanceWindow::HoursOfWeek(HoursOfWeek::new(hours, Vec::new()).expect("window"));
        let mut windows = Windows::default();
        windows.add(self.member, Some(window));
        self.tell(Input::WindowsSeen(windows));
    }

    /// Nobody in the group turns out to have a window.
    fn read_windows(&mut self, group: u32) {
        let mut windows = Windows::default();
        for member in self.plan().groups[group as usize].members.clone() {
            let state = self.run.member(member);
            if state.phase == MemberPhase::Waiting && state.window == WindowOf::Unread {
                windows.add(member, None);
            }
        }
        self.tell(Input::WindowsSeen(windows));
    }

    fn release(&mut self) {
        // With nothing left to do, whatever the run wants.
        let sighting = self.sighting(self.member, TARGET);
        let ticket = self.ticket(self.member);
        self.tell(Input::Seen(ticket, Box::new(sighting)));
    }

    fn ticket(&self, member: u32) -> Ticket {
        Ticket { member, turn: self.run.member(member).turn }
    }

    /// A cluster at a version, with the window that is known. One that is behind has a pool whose image is behind too.
    fn sighting(&self, member: u32, version: KubernetesVersion) -> Sighting {
        let of_family = |image: &&NodeImage| image.family() == FAMILIES[0];
        let chosen = self.run.selected_images().and_then(|images| images.iter().find(of_family));
        let newest = chosen.cloned().unwrap_or_else(|| image(self.now, FAMILIES[0], 8));
        let pool = Pool {
            name: "pool".into(),
            version,
            provisioning: Provisioning::Succeeded,
            image: format!("{}-202301.01.0", FAMILIES[0]).parse().ok(),
            latest_image: Some(newest),
            offered_images: Vec::new(),
            live_patch: None,
            from_snapshot: false,
            lagging_nodes: 0,
            etag: None,
        };
        let cluster = Cluster {
            location: "westeurope".into(),
            version,
            provisioning: Provisioning::Succeeded,
            running: true,
            upgrades: vec![TARGET],
            pools: if version == TARGET { Vec::new() } else { vec![pool] },
            etag: None,
            long_term_support: false,
            automatic_upgrades: Vec::new(),
            provisions_nodes: false,
        };
        let window = match self.run.member(member).window {
            WindowOf::In(number) => Some(self.run.window(number).window.clone()),
            WindowOf::Free | WindowOf::Unread => None,
        };
        Sighting { cluster, offer: None, claimed_by: None, window }
    }

    /// What is under way comes to a good end.
    fn finish(&mut self, members: Range<u32>) {
        members.for_each(|member| self.end(member, TARGET));
    }

    /// What is under way for a member ends, and its cluster is seen at a version.
    fn end(&mut self, member: u32, version: KubernetesVersion) {
        while let Some(work) = self.run.work_of(member).filter(|_| member != self.member) {
            let input = match work {
                Work::Look(ticket) => Input::Seen(ticket, Box::new(self.sighting(member, version))),
                Work::Send(ticket) => Input::Accepted { ticket, operation: "it".into(), adopted: false },
                Work::Follow(ticket) => Input::StepSucceeded(ticket),
                Work::Probe(_) | Work::ResolveTarget | Work::ResolveImages | Work::ReadWindows => break,
            };
            self.tell(input);
        }
    }

    /// What is under way ends; in other stages than that of the member between two steps, so that they are not done by it.
    fn come_to_a_halt(&mut self, stage: u32) {
        let own = self.plan().stages[stage as usize].members.clone();
        // Without a stop, what is between two steps goes on to its end.
        let version = if self.run.phase() == RunPhase::Stopping { OLD } else { TARGET };
        for member in (0..self.plan().members.len() as u32).filter(|member| !own.contains(member)) {
            self.end(member, version);
        }
        self.finish(own);
    }

    /// Nobody else is left in a stage.
    fn clear(&mut self, stage: u32) {
        let members = self.plan().stages[stage as usize].members.clone();
        let halted = self.run.phase() != RunPhase::Going;
        let leaves = |member: &u32| {
            let phase = &self.run.member(*member).phase;
            let ended = matches!(phase, MemberPhase::Ended(outcome) if !halted || *outcome != Outcome::Failed);
            *member != self.member && !ended
        };
        let names = members.clone().filter(leaves).map(|member| self.plan().members[member as usize].name.clone());
        let targets: Vec<SkipTarget> = names.map(SkipTarget::Member).collect();
        self.tell(Input::Skip(targets));
        self.finish(members);
    }

    /// An earlier stage is left out, and what is under way there ends.
    fn pass(&mut self, name: &Name) {
        let stage = self.plan().stages.iter().find(|stage| stage.name == *name).expect("stage").clone();
        self.tell(Input::Skip(vec![SkipTarget::Stage(name.clone())]));
        self.finish(stage.members);
    }

    /// Failed members of a group or stage are left out until it is within its limit: rather such as belong to no group that
    /// begins anew by that.
    fn forgive(&mut self, of: &Name) {
        let plan = Arc::clone(self.run.plan());
        let (own, stage) = (plan.group_of(self.member), plan.stage_of(self.member));
        let limited = &plan.stages[stage as usize];
        let of_stage = limited.name == *of && limited.max_allowed_failures.is_some();
        let scope = if of_stage { limited.members.clone() } else { plan.groups[own as usize].members.clone() };
        let mut failed: Vec<u32> = scope.filter(|member| self.run.member_state(*member) == State::Failed).collect();
        let ended = |member: &u32| matches!(self.run.group(plan.group_of(*member)).phase, Phase::Ended(_));
        failed.sort_by_key(|member| (plan.group_of(*member) != own, ended(member)));
        for member in failed {
            let stands = |why: &Why| matches!(why, Why::FailureLimit { of: stands, .. } if stands == of);
            if !self.rules().iter().any(stands) {
                return;
            }
            self.tell(Input::Skip(vec![SkipTarget::Member(plan.members[member as usize].name.clone())]));
        }
    }

    fn rules(&self) -> Vec<Why> {
        self.run.waiting_on(Part::Member(self.member), self.now).into_iter().map(|reason| reason.why).collect()
    }

    fn approve(&mut self, rules: &[Why]) {
        for gate in 0..self.run.gate_count() {
            let title = self.run.gate_title(gate);
            if !rules.iter().any(|why| matches!(why, Why::Gate { gate, .. } if *gate == title)) {
                continue;
            }
            for by in ["one", "two", "three"] {
                self.tell(Input::Gate { gate, decision: Decision::Approve, by: by.into(), comment: None });
            }
        }
    }
}
