//! A whole run of N members in 50 groups, all in memory: what an event costs, and what a member takes.
//!
//! ```text
//! cargo run --release -p flotta-engine --example events -- 100000
//! cargo run --release -p flotta-engine --example events -- 100000 setup    # only what comes before the run
//! ```
//!
//! One member in a hundred fails, one in fifty is held for a while; the limits allow it.

use std::{collections::VecDeque, error::Error, hint::black_box, sync::Arc, time::Instant};

use flotta_engine::{
    Event, Input, Plan, Run, Work,
    run::{Sighting, State, Ticket, Windows},
};
use flotta_model::{
    Cluster, Fault, Goal, Group, Hold, KubernetesVersion, Member, Pool, Provisioning, Stage, Strategy, UpgradeType,
};
use jiff::{SignedDuration, Timestamp};

const GROUPS: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let members: usize = arguments.next().ok_or("say how many members")?.parse()?;
    let setup_only = arguments.next().is_some();
    let before = resident_bytes();
    let plan = Arc::new(plan(members)?);
    let run = Run::new(Arc::clone(&plan));
    let idle = resident_bytes() - before;
    let mut drive = Drive::new(run)?;
    if setup_only {
        black_box(&drive);
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "the stopwatch of a benchmark")]
    let begin = Instant::now();
    let events = drive.finish()?;
    let nanoseconds = begin.elapsed().as_nanos() as f64 / events as f64;
    if drive.run.state() != State::Completed {
        return Err(format!("the run is {:?}", drive.run.state()).into());
    }
    let ended = resident_bytes().saturating_sub(before);
    println!(
        "{members} members, {events} events, {nanoseconds:.0} ns/event, {} B/member at rest, {} B/member at the end",
        idle / members,
        ended / members
    );
    Ok(())
}

fn plan(members: usize) -> Result<Plan, Box<dyn Error>> {
    let mut stage = Stage::new("stage".parse()?, Vec::new());
    stage.max_concurrency = Some("1000".parse()?);
    for group in 0..GROUPS {
        let mut group = Group::new(format!("group-{group}").parse()?);
        group.max_concurrency = Some("20".parse()?);
        group.max_allowed_failures = Some("50%".parse()?);
        stage.groups.push(group);
    }
    let member = |at: usize| -> Result<Member, Box<dyn Error>> {
        let cluster = format!(
            "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg-{}/providers/Microsoft.ContainerService/managedClusters/cluster-{at:06}",
            at % 100
        );
        Ok(Member {
            name: format!("member-{at:06}").parse()?,
            cluster: cluster.parse()?,
            group: Some(format!("group-{}", at % GROUPS).parse()?),
            labels: Default::default(),
        })
    };
    let fleet: Vec<Member> = (0..members).map(member).collect::<Result<_, _>>()?;
    let goal = Goal::new(UpgradeType::Full, Some("1.33.2".parse()?), None)?;
    Ok(Plan::resolve(goal, Some(&Strategy::new(vec![stage])?), &fleet)?)
}

fn sighting(version: KubernetesVersion) -> Result<Box<Sighting>, Box<dyn Error>> {
    let pool = |name: &str| Pool {
        name: name.into(),
        version,
        provisioning: Provisioning::Succeeded,
        image: None,
        latest_image: None,
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
        upgrades: vec!["1.33.2".parse()?],
        pools: ["system", "user"].map(pool).into(),
        etag: Some("etag".into()),
        long_term_support: false,
        automatic_upgrades: Vec::new(),
        provisions_nodes: false,
    };
    Ok(Box::new(Sighting { cluster, offer: None, claimed_by: None, window: None }))
}

/// Answers work in the order in which it came up.
struct Drive {
    run: Run,
    queue: VecDeque<u32>,
    /// Whether the cluster is at the target; whether it was held once.
    there: Vec<bool>,
    held: Vec<bool>,
    behind: Box<Sighting>,
    arrived: Box<Sighting>,
    now: Timestamp,
}

impl Drive {
    fn new(run: Run) -> Result<Self, Box<dyn Error>> {
        let members = run.plan().members.len();
        Ok(Self {
            run,
            queue: VecDeque::new(),
            there: vec![false; members],
            held: vec![false; members],
            behind: sighting("1.32.6".parse()?)?,
            arrived: sighting("1.33.2".parse()?)?,
            now: "2026-01-01T00:00:00Z".parse()?,
        })
    }

    fn finish(&mut self) -> Result<usize, Box<dyn Error>> {
        let mut events = self.step(&Input::Start)?;
        events += self.read_windows()?;
        while let Some(member) = self.queue.pop_front() {
            let Some(work) = self.run.work_of(member) else { continue };
            events += self.answer(member, &work)?;
            events += self.read_windows()?;
        }
        Ok(events)
    }

    /// No member has a window.
    fn read_windows(&mut self) -> Result<usize, Box<dyn Error>> {
        let mut events = 0;
        while self.run.reading() {
            let mut windows = Windows::default();
            self.run.windows_to_read().into_iter().for_each(|member| windows.add(member, None));
            events += self.step(&Input::WindowsSeen(windows))?;
        }
        Ok(events)
    }

    fn answer(&mut self, member: u32, work: &Work) -> Result<usize, Box<dyn Error>> {
        let at = member as usize;
        match work {
            Work::Look(ticket) if member % 50 == 7 && !self.held[at] => {
                self.held[at] = true;
                self.step(&Input::Held(*ticket, Hold::Throttled))
            }
            Work::Look(ticket) | Work::Probe(ticket) => self.seen(*ticket, self.there[at]),
            Work::Send(ticket) => {
                self.step(&Input::Accepted { ticket: *ticket, operation: "operation".into(), adopted: false })
            }
            Work::Follow(ticket) if member % 100 == 3 => {
                self.step(&Input::StepFailed(*ticket, Fault::new("UpgradeFailed", "nodes did not drain")))
            }
            Work::Follow(ticket) => {
                self.there[at] = true;
                self.step(&Input::StepSucceeded(*ticket))
            }
            Work::ResolveTarget | Work::ResolveImages | Work::ReadWindows => Err("not the work of a member".into()),
        }
    }

    /// Tells what was seen, without making it anew each time.
    fn seen(&mut self, ticket: Ticket, there: bool) -> Result<usize, Box<dyn Error>> {
        let spare = Box::new(Sighting { cluster: self.empty(), offer: None, claimed_by: None, window: None });
        let seen = std::mem::replace(if there { &mut self.arrived } else { &mut self.behind }, spare);
        let input = Input::Seen(ticket, seen);
        let events = self.step(&input);
        if let Input::Seen(_, seen) = input {
            *(if there { &mut self.arrived } else { &mut self.behind }) = seen;
        }
        events
    }

    fn empty(&self) -> Cluster {
        Cluster {
            location: String::new(),
            version: self.behind.cluster.version,
            provisioning: Provisioning::Succeeded,
            running: true,
            upgrades: Vec::new(),
            pools: Vec::new(),
            etag: None,
            long_term_support: false,
            automatic_upgrades: Vec::new(),
            provisions_nodes: false,
        }
    }

    fn step(&mut self, input: &Input) -> Result<usize, Box<dyn Error>> {
        self.now += SignedDuration::from_millis(1);
        let events = self.run.step(input, self.now)?;
        for event in &events {
            match event {
                Event::MemberStarted(member)
                | Event::StepIntended { member, .. }
                | Event::StepAccepted { member, .. }
                | Event::StepSucceeded(member)
                | Event::MemberHeld(member, _) => self.queue.push_back(*member),
                _ => {}
            }
        }
        Ok(events.len())
    }
}

/// What the process has in memory; 0 where that cannot be read.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
