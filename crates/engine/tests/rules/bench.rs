//! A run on a bench: strategies and fleets written in one line, a virtual clock, clusters that do what they are told.
//!
//! After every step the run is folded again from its journal, and rebuilt from a snapshot; both must equal it.

use std::sync::Arc;

use flotta_engine::{
    Event, Input, Plan, Refusal, Run, Work,
    images::PoolImages,
    run::{Part, Reason, RunSnapshot, Sighting, SkipTarget, State, Ticket, Why, Windows},
};
use flotta_model::{
    Budget, Cluster, Fault, GateConfig, GateKind, Goal, Group, Hold, KubernetesVersion, MaintenanceWindow, Member,
    Name, Pool, Provisioning, Stage, Strategy, UpgradeType,
    window::{LocalTime, RecurrenceFields, Schedule},
};
use jiff::{SignedDuration, Timestamp};

pub const OLD: &str = "1.32.6";
pub const TARGET: &str = "1.33.2";
pub const OLD_IMAGE: &str = "AKSUbuntu-2204gen2containerd-202509.01.0";
pub const NEW_IMAGE: &str = "AKSUbuntu-2204gen2containerd-202510.03.1";

pub fn v(text: &str) -> KubernetesVersion {
    text.parse().expect(text)
}

pub fn name(text: &str) -> Name {
    text.parse().expect(text)
}

pub fn goal(upgrade: UpgradeType, version: Option<&str>) -> Goal {
    Goal::new(upgrade, version.map(|text| text.parse().expect(text)), None).expect("goal")
}

/// A cluster behind the target, with one pool.
pub fn old_cluster() -> Cluster {
    let pool = Pool {
        name: "pool".into(),
        version: v(OLD),
        provisioning: Provisioning::Succeeded,
        image: Some(NEW_IMAGE.parse().expect("image")),
        latest_image: Some(NEW_IMAGE.parse().expect("image")),
        offered_images: Vec::new(),
        live_patch: None,
        from_snapshot: false,
        lagging_nodes: 0,
        etag: Some("pool-1".into()),
    };
    Cluster {
        location: "westeurope".into(),
        version: v(OLD),
        provisioning: Provisioning::Succeeded,
        running: true,
        upgrades: vec![v(TARGET)],
        pools: vec![pool],
        etag: Some("cluster-1".into()),
        long_term_support: false,
        automatic_upgrades: Vec::new(),
        provisions_nodes: false,
    }
}

/// A strategy and its fleet. A stage a line item, groups after `/`, with the number of their members:
/// `one mc=4 mf=1 wait=60 gate / a mc=2 x3 / b aftergate x1`. A stage without groups has a selector and one implicit
/// group: `one x3`. Members are named after their group: `a-0`.
fn parse(stages: &[&str]) -> (Strategy, Vec<Member>) {
    let mut members = Vec::new();
    let stages = stages.iter().map(|line| parse_stage(line, &mut members)).collect();
    (Strategy::new(stages).expect("strategy"), members)
}

fn parse_stage(line: &str, members: &mut Vec<Member>) -> Stage {
    let mut parts = line.split('/');
    let mut words = parts.next().expect("stage").split_whitespace();
    let stage_name = words.next().expect("stage name");
    let mut stage = Stage::new(name(stage_name), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some(("mc", limit)) => stage.max_concurrency = Some(limit.parse().expect(limit)),
            Some(("mf", limit)) => stage.max_allowed_failures = Some(limit.parse().expect(limit)),
            Some(("wait", seconds)) => stage.after_wait_seconds = seconds.parse().expect(seconds),
            Some(("ms", floor)) => stage.min_success = Some(floor.parse().expect(floor)),
            _ if word == "strict" => stage.budget = Budget::Strict,
            _ if word == "gate" => stage.before_gates.push(approval()),
            _ if word == "aftergate" => stage.after_gates.push(approval()),
            _ => {
                stage.selector = Some(format!("stage={stage_name}").parse().expect("selector"));
                add_members(stage_name, None, word, members);
            }
        }
    }
    for part in parts {
        let mut words = part.split_whitespace();
        let group_name = words.next().expect("group name");
        let mut group = Group::new(name(group_name));
        for word in words {
            match word.split_once('=') {
                Some(("mc", limit)) => group.max_concurrency = Some(limit.parse().expect(limit)),
                Some(("mf", limit)) => group.max_allowed_failures = Some(limit.parse().expect(limit)),
                Some(("ms", floor)) => group.min_success = Some(floor.parse().expect(floor)),
                _ if word == "strict" => group.budget = Budget::Strict,
                _ if word == "gate" => group.before_gates.push(approval()),
                _ if word == "aftergate" => group.after_gates.push(approval()),
                _ => add_members(group_name, Some(group_name), word, members),
            }
        }
        stage.groups.push(group);
    }
    stage
}

fn approval() -> GateConfig {
    GateConfig::new(GateKind::Approval)
}

fn add_members(prefix: &str, group: Option<&str>, word: &str, members: &mut Vec<Member>) {
    let count: u32 = word.strip_prefix('x').expect(word).parse().expect(word);
    for n in 0..count {
        members.push(member(&format!("{prefix}-{n}"), group, &[("stage", prefix)]));
    }
}

pub fn member(text: &str, group: Option<&str>, labels: &[(&str, &str)]) -> Member {
    let cluster =
        format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/{text}");
    Member {
        name: name(text),
        cluster: cluster.parse().expect("cluster"),
        group: group.map(name),
        labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    }
}

pub struct Bench {
    pub run: Run,
    pub now: Timestamp,
    pub journal: Vec<(Timestamp, Event)>,
    pub clusters: Vec<Cluster>,
    /// Maintenance windows, by member.
    pub windows: Vec<Option<MaintenanceWindow>>,
}

impl Bench {
    /// A run of type Full to [`TARGET`] over clusters that are behind.
    pub fn new(stages: &[&str]) -> Self {
        Self::with_goal(goal(UpgradeType::Full, Some(TARGET)), stages)
    }

    pub fn with_goal(goal: Goal, stages: &[&str]) -> Self {
        let (strategy, members) = parse(stages);
        Self::of_plan(Plan::resolve(goal, Some(&strategy), &members).expect("plan"))
    }

    pub fn of_plan(plan: Plan) -> Self {
        let clusters = vec![old_cluster(); plan.members.len()];
        let run = Run::new(Arc::new(plan));
        let windows = vec![None; clusters.len()];
        Self { run, now: "2026-01-05T08:00:00Z".parse().expect("time"), journal: Vec::new(), clusters, windows }
    }

    pub fn started(stages: &[&str]) -> Self {
        let mut bench = Self::new(stages);
        bench.start();
        bench
    }

    /// One step, and the windows read that it asks for; those events are not told.
    pub fn step(&mut self, input: &Input) -> Result<Vec<Event>, Refusal> {
        let mut events = self.step_alone(input)?;
        while self.run.reading() {
            let mut windows = Windows::default();
            for member in self.run.windows_to_read() {
                windows.add(member, self.windows[member as usize].clone());
            }
            let read = |event: &Event| !matches!(event, Event::WindowsRead { .. });
            events.extend(self.step_alone(&Input::WindowsSeen(windows))?.into_iter().filter(read));
        }
        Ok(events)
    }

    /// One step; afterwards the fold of the journal and the snapshot must both equal the run.
    pub fn step_alone(&mut self, input: &Input) -> Result<Vec<Event>, Refusal> {
        let before = self.run.clone();
        let answer = self.run.step(input, self.now);
        match &answer {
            Ok(events) => self.journal.extend(events.iter().map(|event| (self.now, event.clone()))),
            Err(_) => assert_eq!(self.run, before, "a refusal changes nothing"),
        }
        let mut folded = Run::new(Arc::clone(self.run.plan()));
        for (at, event) in &self.journal {
            let text = serde_json::to_string(event).expect("event");
            folded.apply(&serde_json::from_str(&text).expect("event"), *at);
        }
        assert_eq!(folded, self.run, "the fold of the journal is the run, after {input:?}");
        let text = serde_json::to_string(&self.run.snapshot()).expect("snapshot");
        let snapshot: RunSnapshot = serde_json::from_str(&text).expect("snapshot");
        for snapshot in [snapshot, self.run.snapshot()] {
            let rebuilt = Run::from_snapshot(Arc::clone(self.run.plan()), &snapshot).expect("it fits the plan");
            assert_eq!(rebuilt, self.run, "a snapshot is the run, after {input:?}");
        }
        answer
    }

    pub fn tell(&mut self, input: Input) -> Vec<Event> {
        self.step(&input).expect("taken")
    }

    pub fn start(&mut self) -> Vec<Event> {
        self.tell(Input::Start)
    }

    pub fn stop(&mut self) -> Vec<Event> {
        self.tell(Input::Stop)
    }

    /// Targets such as `member a-0`, `group a`, `stage one`, `wait one`.
    pub fn try_skip(&mut self, targets: &[&str]) -> Result<Vec<Event>, Refusal> {
        let parse = |text: &&str| {
            let (kind, target) = text.split_once(' ').expect("kind and name");
            match kind {
                "member" => SkipTarget::Member(name(target)),
                "group" => SkipTarget::Group(name(target)),
                "stage" => SkipTarget::Stage(name(target)),
                "wait" => SkipTarget::AfterStageWait(name(target)),
                other => panic!("skip what: {other}"),
            }
        };
        self.step(&Input::Skip(targets.iter().map(parse).collect()))
    }

    pub fn skip(&mut self, targets: &[&str]) -> Vec<Event> {
        self.try_skip(targets).expect("skipped")
    }

    /// Time goes by; the run is woken as often as it asks to be.
    pub fn advance(&mut self, seconds: i64) {
        let end = self.now + SignedDuration::from_secs(seconds);
        while let Some(wake) = self.run.next_wake().filter(|wake| *wake <= end) {
            assert!(wake >= self.now, "woken for the past: {wake} at {}", self.now);
            self.now = wake;
            let events = self.tell(Input::Tick);
            assert!(!events.is_empty(), "woken for nothing");
        }
        self.now = end;
    }

    pub fn index(&self, member: &str) -> u32 {
        let found = self.run.plan().members.iter().position(|planned| planned.name.as_str() == member);
        found.unwrap_or_else(|| panic!("no member {member}")) as u32
    }

    pub fn group(&self, group: &str) -> u32 {
        let found = self.run.plan().groups.iter().position(|planned| planned.name.as_str() == group);
        found.unwrap_or_else(|| panic!("no group {group}")) as u32
    }

    pub fn ticket(&self, member: &str) -> Ticket {
        let member = self.index(member);
        Ticket { member, turn: self.run.member(member).turn }
    }

    pub fn cluster(&mut self, member: &str) -> &mut Cluster {
        let index = self.index(member);
        &mut self.clusters[index as usize]
    }

    /// Gives a cluster an older image too, so that it needs two steps: the version, then the image.
    pub fn two_steps(&mut self, member: &str) {
        self.cluster(member).pools[0].image = Some(OLD_IMAGE.parse().expect("image"));
    }

    /// Gives a cluster a window that is open every day from `start` (UTC) for some hours.
    pub fn window(&mut self, member: &str, start: &str, hours: u8) {
        let index = self.index(member);
        self.windows[index as usize] = Some(daily(start, hours));
    }

    /// The clusters of the run are looked at for the images that their regions have.
    pub fn read_images(&mut self) -> Vec<Event> {
        let mut pools = Vec::new();
        for member in self.run.images_to_read() {
            PoolImages::add(&mut pools, &self.clusters[member as usize]);
        }
        self.tell(Input::ImagesResolved { pools })
    }

    pub fn there_already(&mut self, member: &str) {
        let cluster = self.cluster(member);
        cluster.version = v(TARGET);
        cluster.pools[0].version = v(TARGET);
    }

    pub fn seen(&self, member: &str) -> Input {
        let index = self.index(member) as usize;
        let (cluster, window) = (self.clusters[index].clone(), self.windows[index].clone());
        Input::Seen(self.ticket(member), Box::new(Sighting { cluster, offer: None, claimed_by: None, window }))
    }

    /// The cluster is looked at.
    pub fn look(&mut self, member: &str) -> Vec<Event> {
        let input = self.seen(member);
        self.tell(input)
    }

    /// The step sent is accepted.
    pub fn accept(&mut self, member: &str) -> Vec<Event> {
        let ticket = self.ticket(member);
        self.tell(Input::Accepted { ticket, operation: format!("op-{member}"), adopted: false })
    }

    /// The member is on its way: looked at, and its step accepted.
    pub fn move_(&mut self, member: &str) {
        self.look(member);
        self.accept(member);
    }

    /// The step under way ends well, and the cluster shows it; it is not looked at yet.
    pub fn step_done(&mut self, member: &str) -> Vec<Event> {
        let step = self.run.member(self.index(member)).pledge().expect("a step is under way").step.clone();
        let cluster = self.cluster(member);
        match step {
            flotta_model::Step::Cluster { version, .. } => {
                cluster.version = version;
                cluster.pools[0].version = version;
            }
            flotta_model::Step::ControlPlane { version } => cluster.version = version,
            flotta_model::Step::PoolVersion { version, .. } => cluster.pools[0].version = version,
            flotta_model::Step::PoolImage { image, .. } | flotta_model::Step::PoolPinned { image, .. } => {
                cluster.pools[0].image = Some(image)
            }
        }
        let ticket = self.ticket(member);
        self.tell(Input::StepSucceeded(ticket))
    }

    /// The member goes on from wherever it is to its good end.
    pub fn finish(&mut self, member: &str) {
        for _ in 0..10 {
            match self.run.work_of(self.index(member)) {
                Some(Work::Look(_)) => self.look(member),
                Some(Work::Send(_)) => self.accept(member),
                Some(Work::Follow(_)) => self.step_done(member),
                other => {
                    assert_eq!(other, None, "{member}");
                    return;
                }
            };
        }
        panic!("{member} does not come to an end");
    }

    /// The member goes on from wherever it is until its step fails.
    pub fn fail(&mut self, member: &str) {
        self.fail_with(member, "Boom");
    }

    pub fn fail_with(&mut self, member: &str, code: &str) {
        if let Some(Work::Look(_)) = self.run.work_of(self.index(member)) {
            self.look(member);
        }
        if let Some(Work::Send(_)) = self.run.work_of(self.index(member)) {
            self.accept(member);
        }
        let ticket = self.ticket(member);
        self.tell(Input::StepFailed(ticket, Fault::new(code, "nodes did not drain")));
    }

    pub fn hold(&mut self, member: &str, hold: Hold) -> Vec<Event> {
        let ticket = self.ticket(member);
        self.tell(Input::Held(ticket, hold))
    }

    /// All four levels in one line: `Running; one Running; a Running RNN; b Running R`. Members by the first letter of
    /// their state.
    pub fn states(&self) -> String {
        let plan = self.run.plan();
        let mut text = format!("{:?}", self.run.state());
        for (at, stage) in plan.stages.iter().enumerate() {
            text += &format!("; {} {:?}", stage.name, self.run.stage_state(at as u32));
            for group in stage.groups.clone() {
                let planned = &plan.groups[group as usize];
                text += &format!("; {} {:?} ", planned.name, self.run.group_state(group));
                text.extend(planned.members.clone().map(|member| letter(self.run.member_state(member))));
            }
        }
        text
    }

    pub fn check(&self, expect: &str) {
        assert_eq!(self.states(), expect);
    }

    pub fn message(&self, member: &str) -> String {
        self.run.message(self.index(member)).unwrap_or_default().into_owned()
    }

    pub fn attempt(&self, member: &str) -> u32 {
        self.run.member(self.index(member)).attempt
    }

    pub fn why(&self, part: Part) -> Vec<Why> {
        self.run.waiting_on(part, self.now).into_iter().map(|reason| untitled(reason.why)).collect()
    }

    pub fn why_member(&self, member: &str) -> Why {
        let reasons: Vec<Reason> = self.run.waiting_on(Part::Member(self.index(member)), self.now);
        untitled(reasons.first().unwrap_or_else(|| panic!("nothing holds {member}")).why.clone())
    }

    /// Drives every member to its end; `fails` names those that fail once. Returns the most members that ran at once:
    /// in each stage, and in each group.
    pub fn drive(&mut self, fails: &[&str]) -> (Vec<u32>, Vec<u32>) {
        let plan = Arc::clone(self.run.plan());
        let mut stages = vec![0; plan.stages.len()];
        let mut groups = vec![0; plan.groups.len()];
        loop {
            for (at, most) in stages.iter_mut().enumerate() {
                *most = (*most).max(self.run.stage(at as u32).counts.running);
            }
            for (at, most) in groups.iter_mut().enumerate() {
                *most = (*most).max(self.run.group(at as u32).counts.running);
            }
            let running =
                (0..plan.members.len() as u32).find(|member| self.run.member_state(*member) == State::Running);
            let Some(member) = running else { return (stages, groups) };
            let member = plan.members[member as usize].name.to_string();
            if fails.contains(&member.as_str()) { self.fail(&member) } else { self.finish(&member) }
        }
    }
}

/// A reason whose gate goes by its place alone.
fn untitled(why: Why) -> Why {
    match why {
        Why::Gate { of, .. } => at_gate(of.as_str()),
        other => other,
    }
}

/// A window that is open every day from `start`, such as `22:00` (UTC), for some hours.
pub fn daily(start: &str, hours: u8) -> MaintenanceWindow {
    let (hour, minute) = start.split_once(':').expect("HH:mm");
    let minutes: u16 = hour.parse::<u16>().expect("hour") * 60 + minute.parse::<u16>().expect("minute");
    let fields = RecurrenceFields {
        schedule: Schedule::Daily { interval: 1 },
        start_minute: minutes,
        duration_hours: hours,
        local: LocalTime::Offset(0),
        start_date: None,
        not_allowed: Vec::new(),
    };
    MaintenanceWindow::Recurring(fields.try_into().expect("a window"))
}

pub fn at_gate(of: &str) -> Why {
    Why::Gate { of: name(of), gate: String::new() }
}

fn letter(state: State) -> char {
    match state {
        State::NotStarted => 'N',
        State::Running => 'R',
        State::Pending => 'P',
        State::Completed => 'C',
        State::Failed => 'F',
        State::Skipped => 'S',
        State::Stopping | State::Stopped => panic!("no member is ever {state:?}"),
    }
}

/// Events that end something, in words: for whole-value comparison.
pub fn ends(events: &[Event]) -> Vec<String> {
    let word = |event: &Event| match event {
        Event::MemberEnded { member, outcome, .. } => Some(format!("member {member} {outcome:?}")),
        Event::GroupEnded(group, outcome) => Some(format!("group {group} {outcome:?}")),
        Event::StageEnded(stage, outcome) => Some(format!("stage {stage} {outcome:?}")),
        Event::RunEnded(outcome) => Some(format!("run {outcome:?}")),
        Event::Stopped => Some("stopped".into()),
        Event::FailedFast { group } => Some(format!("failed fast in group {group}")),
        _ => None,
    };
    events.iter().filter_map(word).collect()
}
