//! The whole road in one process, under a virtual clock: engine, memory store, orchestrator, the real AKS driver, and
//! the simulated cloud's own router.

mod images;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use flotta_clock::{Anchor, Clock};
use flotta_drivers::{
    ClusterDriver,
    aks::{AksConfig, AksDriver, Reach},
    token::{TokenSource, Tokens},
    transport::router_transport,
};
use flotta_engine::{
    Input, Plan, Run, State,
    run::{Part, SkipTarget},
};
use flotta_model::{Goal, Group, Member, Stage, Strategy, UpgradeType};
use flotta_orchestrator::{Command, Moment, Orchestrator, RunRef, journal};
use flotta_simulator::{FleetFile, Options, Simulator};
use flotta_store::{Batch, Collection, Delete, Document, Entry, Expect, MemoryStore, Snapshot, Store, StoreError};
use jiff::Timestamp;
use uuid::Uuid;

const REGIONS: &str = r"
seed: 7
regions:
  westeurope:
    kubernetes:
      - { minor: '1.32', patches: [1.32.6, 1.32.7] }
      - { minor: '1.33', patches: [1.33.1, 1.33.2] }
    images: [AKSUbuntu-2204gen2containerd-202510.03.1]
";

struct World {
    clock: Clock,
    store: Arc<MemoryStore>,
    simulator: Arc<Simulator>,
    orchestrator: Orchestrator,
}

impl World {
    async fn new(clusters: &str) -> Self {
        Self::of(&format!("{REGIONS}{clusters}")).await
    }

    /// The world of a fleet file.
    async fn of(fleet: &str) -> Self {
        let clock = Clock::scaled(Anchor { domain: "2026-01-05T08:00:00Z".parse().expect("time"), speed: 1.0 });
        let file = FleetFile::parse(fleet).expect("fleet file");
        let simulator = Simulator::new(file, clock, Options::default()).await.expect("simulator");
        let store = Arc::new(MemoryStore::new());
        let orchestrator = open(&store, &simulator, clock).await;
        Self { clock, store, simulator, orchestrator }
    }

    fn members(&self) -> Vec<Member> {
        let member = |cluster: &flotta_simulator::ClusterSummary| Member {
            name: cluster.member.parse().expect("name"),
            cluster: cluster.id.clone(),
            group: cluster.group.as_ref().map(|group| group.parse().expect("group")),
            labels: cluster.labels.clone(),
        };
        self.simulator.clusters().iter().map(member).collect()
    }

    async fn run(&self, name: &str, version: &str, strategy: Option<Strategy>) -> RunRef {
        let goal = Goal::new(UpgradeType::Full, Some(version.parse().expect("version")), None).expect("goal");
        self.run_of(name, Plan::resolve(goal, strategy.as_ref(), &self.members()).expect("plan")).await
    }

    async fn run_of(&self, name: &str, plan: Plan) -> RunRef {
        let run = RunRef {
            id: Uuid::from_u128(name.bytes().map(u128::from).sum()),
            label: format!("fleet/{name}").into(),
            fleet: "fleet".into(),
        };
        let mut batch = Batch::default();
        journal::add_new(&mut batch, run.id, &plan).expect("plan");
        self.store.commit(batch).await.expect("created");
        run
    }

    async fn tell(&self, run: &RunRef, input: Input) -> Result<State, flotta_orchestrator::Error> {
        let command = Command { input, by: "tester".into(), check: Box::new(|_, _| true) };
        self.orchestrator.command(run, command, Moment::After, |run, _| run.state()).await
    }

    async fn see<T: Send + 'static>(&self, run: &RunRef, view: impl FnOnce(&Run) -> T + Send + 'static) -> T {
        self.orchestrator.read(run, |run, _| view(run)).await.expect("read")
    }

    async fn until(&self, run: &RunRef, wanted: State) {
        for _ in 0..10_000 {
            if self.see(run, Run::state).await == wanted {
                return;
            }
            self.clock.pause(Duration::from_secs(30)).await;
        }
        let seen = self
            .see(run, |run| {
                format!("{:?} {:?} {:?}", run.state(), run.counts(), run.waiting_on(Part::Run, Timestamp::UNIX_EPOCH))
            })
            .await;
        panic!("never {wanted:?}: {seen}");
    }

    /// Everything of the process is gone; what is stored stays.
    async fn restart(&mut self) {
        self.orchestrator.shutdown().await;
        self.orchestrator = open(&self.store, &self.simulator, self.clock).await;
    }

    /// Upgrades that the cloud accepted, by cluster.
    fn accepted(&self) -> Vec<String> {
        let (_, accepted) = self.simulator.accepted(0, 10_000);
        accepted.iter().map(|accepted| format!("{} {:?}", accepted.cluster.to_lowercase(), accepted.step)).collect()
    }
}

fn driver(simulator: &Arc<Simulator>, clock: Clock) -> Arc<dyn ClusterDriver> {
    let config = AksConfig::new("http://127.0.0.1:1", Reach::Everything);
    let transport = router_transport(simulator.router());
    let tokens = Tokens::new(TokenSource::None, "", transport.clone());
    Arc::new(AksDriver::new(config, transport, tokens, clock).expect("driver"))
}

async fn open(store: &Arc<impl Store>, simulator: &Arc<Simulator>, clock: Clock) -> Orchestrator {
    let driver = driver(simulator, clock);
    Orchestrator::open(Arc::clone(store) as Arc<dyn Store>, vec![driver], clock).await.expect("orchestrator")
}

fn two_groups(failures: Option<&str>) -> Strategy {
    let group = |name: &str| Group {
        max_concurrency: Some("2".parse().expect("limit")),
        ..Group::new(name.parse().expect("name"))
    };
    let stage = Stage {
        max_allowed_failures: failures.map(|text| text.parse().expect("limit")),
        ..Stage::new("one".parse().expect("name"), vec![group("a"), group("b")])
    };
    Strategy::new(vec![stage]).expect("strategy")
}

const SIX: &str = r"
clusters:
  - { name: c1, region: westeurope, version: 1.32.6, pools: [{ name: p1 }], member: { group: a } }
  - { name: c2, region: westeurope, version: 1.32.6, pools: [{ name: p1 }, { name: p2 }], member: { group: a } }
  - { name: c3, region: westeurope, version: 1.33.2, pools: [{ name: p1 }], member: { group: a } }
  - { name: c4, region: westeurope, version: 1.32.7, pools: [{ name: p1 }], member: { group: b }, fails: { attempts: 1 } }
  - { name: c5, region: westeurope, version: 1.32.6, pools: [{ name: p1 }], member: { group: b } }
  - { name: c6, region: westeurope, version: 1.32.6, pools: [{ name: p1 }], member: { group: b } }
";

const ONE: &str = r"
clusters:
  - { name: c1, region: westeurope, version: 1.32.6, pools: [{ name: p1 }] }
";

#[tokio::test(start_paused = true)]
async fn a_fleet_moves_to_a_version_with_a_failure_inside_the_budget() {
    let world = World::new(SIX).await;
    let run = world.run("r1", "1.33.2", Some(two_groups(Some("1")))).await;
    world.tell(&run, Input::Start).await.expect("started");
    world.until(&run, State::Completed).await;
    let counts = world.see(&run, |run| *run.counts()).await;
    assert_eq!((counts.completed, counts.skipped, counts.failed), (4, 1, 1));
    let accepted = world.accepted();
    assert_eq!(accepted.len(), 5, "one start each, none for the cluster that was there: {accepted:?}");
}

#[tokio::test(start_paused = true)]
async fn aks_wire_3_a_failed_upgrade_is_sent_again_on_resume() {
    let world = World::new(SIX).await;
    let run = world.run("r1", "1.33.2", Some(two_groups(None))).await;
    world.tell(&run, Input::Start).await.expect("started");
    world.until(&run, State::Failed).await;
    world.tell(&run, Input::Start).await.expect("started again");
    world.until(&run, State::Completed).await;
    let of_c4 = world.accepted().iter().filter(|accepted| accepted.contains("/c4 ")).count();
    assert_eq!(of_c4, 2, "the cluster shows the target since its failed upgrade, and is sent it again");
    assert_eq!(world.see(&run, |run| run.counts().failed).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_restart_takes_up_what_was_going_on_and_starts_nothing_twice() {
    let mut world = World::new(SIX).await;
    let run = world.run("r1", "1.33.2", Some(two_groups(Some("1")))).await;
    world.tell(&run, Input::Start).await.expect("started");
    for _ in 0..12 {
        world.clock.pause(Duration::from_secs(97)).await;
        world.restart().await;
    }
    world.until(&run, State::Completed).await;
    assert_eq!(world.accepted().len(), 5, "{:?}", world.accepted());
}

#[tokio::test(start_paused = true)]
async fn choice_one_cluster_in_two_runs_the_second_waits_for_the_first() {
    let world = World::new(ONE).await;
    let (first, second) = (world.run("a", "1.33.2", None).await, world.run("b", "1.33.2", None).await);
    world.tell(&first, Input::Start).await.expect("started");
    world.clock.pause(Duration::from_secs(60)).await;
    world.tell(&second, Input::Start).await.expect("started");
    world.until(&second, State::Pending).await;
    let reason = world.see(&second, |run| run.waiting_on(Part::Member(0), Timestamp::UNIX_EPOCH)).await;
    assert!(format!("{reason:?}").contains("fleet/a"), "{reason:?}");
    world.until(&first, State::Completed).await;
    world.until(&second, State::Skipped).await;
    assert_eq!(world.accepted().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_given_back_wakes_every_run_that_waits_for_it() {
    let mut world = World::new(ONE).await;
    let mut runs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let run = world.run(name, "1.33.2", None).await;
        world.tell(&run, Input::Start).await.expect("started");
        world.clock.pause(Duration::from_secs(10)).await;
        runs.push(run);
    }
    world.restart().await;
    while world.see(&runs[0], Run::state).await != State::Completed {
        world.clock.pause(Duration::from_secs(1)).await;
    }
    world.clock.pause(Duration::from_secs(2)).await;
    for run in &runs[1..] {
        assert_eq!(world.see(run, Run::state).await, State::Skipped, "{}", run.label);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_given_back_before_a_restart_is_looked_at_after_it() {
    let mut world = World::new(ONE).await;
    let (first, second) = (world.run("a", "1.33.2", None).await, world.run("b", "1.33.2", None).await);
    world.tell(&first, Input::Start).await.expect("started");
    world.clock.pause(Duration::from_secs(20)).await;
    world.tell(&second, Input::Start).await.expect("started");
    world.until(&second, State::Pending).await;
    world.orchestrator.shutdown().await;
    // The first run goes without a trace, and its claim with it: the second has missed that.
    let claims = world.store.scan(Collection::Claims, None, 10).await.expect("claims");
    let delete = |collection, key| Delete { collection, key, expect: Expect::Any };
    let mut deletes: Vec<Delete> = claims.into_iter().map(|claim| delete(Collection::Claims, claim.key)).collect();
    deletes.push(delete(Collection::Meta, format!("active/{}", first.id)));
    world.store.commit(Batch { deletes, ..Batch::default() }).await.expect("committed");
    world.orchestrator = open(&world.store, &world.simulator, world.clock).await;
    world.clock.pause(Duration::from_secs(2)).await;
    let reason = format!("{:?}", world.see(&second, |run| run.waiting_on(Part::Run, Timestamp::UNIX_EPOCH)).await);
    assert!(!reason.contains("Claimed"), "{reason}");
}

/// A store whose journals cannot be read for a while.
struct Ailing {
    store: Arc<MemoryStore>,
    ails: AtomicBool,
}

#[async_trait::async_trait]
impl Store for Ailing {
    async fn get(&self, collection: Collection, key: &str) -> Result<Option<Document>, StoreError> {
        self.store.get(collection, key).await
    }

    async fn list(
        &self,
        collection: Collection,
        parent: &str,
        after: Option<u64>,
        most: u32,
    ) -> Result<Vec<Document>, StoreError> {
        self.store.list(collection, parent, after, most).await
    }

    async fn scan(&self, collection: Collection, after: Option<u64>, most: u32) -> Result<Vec<Document>, StoreError> {
        self.store.scan(collection, after, most).await
    }

    async fn journal(&self, journal: Uuid, after: u64, most: u32) -> Result<Vec<Entry>, StoreError> {
        match self.ails.load(Relaxed) {
            true => Err(StoreError::Failed("the disk ails".into())),
            false => self.store.journal(journal, after, most).await,
        }
    }

    async fn snapshot(&self, journal: Uuid) -> Result<Option<Snapshot>, StoreError> {
        self.store.snapshot(journal).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.store.commit(batch).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_could_not_be_read_goes_on_by_itself_once_it_can() {
    let mut world = World::new(SIX).await;
    let run = world.run("r1", "1.33.2", Some(two_groups(Some("1")))).await;
    world.tell(&run, Input::Start).await.expect("started");
    world.clock.pause(Duration::from_secs(60)).await;
    world.orchestrator.shutdown().await;
    let store = Arc::new(Ailing { store: Arc::clone(&world.store), ails: AtomicBool::new(true) });
    world.orchestrator = open(&store, &world.simulator, world.clock).await;
    let refused = world.orchestrator.read(&run, |_, _| ()).await;
    assert!(matches!(refused, Err(flotta_orchestrator::Error::Store(_))), "{refused:?}");
    store.ails.store(false, Relaxed);
    world.clock.pause(Duration::from_secs(7200)).await;
    assert_eq!(world.accepted().len(), 5, "nobody had to ask for it: {:?}", world.accepted());
}

#[tokio::test(start_paused = true)]
async fn a7_stop_lets_what_is_under_way_end_and_start_goes_on() {
    let world = World::new(SIX).await;
    let run = world.run("r1", "1.33.2", Some(two_groups(Some("1")))).await;
    world.tell(&run, Input::Start).await.expect("started");
    world.clock.pause(Duration::from_secs(120)).await;
    assert_eq!(world.tell(&run, Input::Stop).await.expect("stopped"), State::Stopping);
    let at_stop = world.accepted().len();
    world.until(&run, State::Stopped).await;
    assert_eq!(world.accepted().len(), at_stop, "nothing new starts after a stop");
    world.tell(&run, Input::Skip(vec![SkipTarget::Member("c6".parse().expect("name"))])).await.expect("skipped");
    world.tell(&run, Input::Start).await.expect("goes on");
    world.until(&run, State::Completed).await;
    assert!(!world.accepted().iter().any(|accepted| accepted.contains("/c6 ")));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_run_keeps_its_clusters_until_what_is_under_way_has_ended() {
    let mut world = World::new(SIX).await;
    let run = world.run("a", "1.33.2", Some(two_groups(Some("1")))).await;
    world.tell(&run, Input::Start).await.expect("started");
    world.clock.pause(Duration::from_secs(120)).await;
    world.orchestrator.retire(&run, Box::new(|_, _| true), false, Batch::default()).await.expect("deleted");
    let again = world.orchestrator.read(&run, |_, _| ()).await;
    assert!(matches!(again, Err(flotta_orchestrator::Error::NoSuchRun)), "{again:?}");
    world.restart().await;
    let second = world.run("b", "1.33.2", Some(two_groups(Some("1")))).await;
    world.tell(&second, Input::Start).await.expect("started");
    world.clock.pause(Duration::from_secs(5)).await;
    let held = world.see(&second, |run| run.counts().pending).await;
    let seen = world
        .see(&second, |run| format!("{:?} {:?}", run.counts(), run.waiting_on(Part::Run, Timestamp::UNIX_EPOCH)))
        .await;
    assert!(held > 0, "clusters of the deleted run are held: {seen}");
    world.until(&second, State::Completed).await;
    assert_eq!(world.accepted().len(), 6, "the one that failed is sent again: {:?}", world.accepted());
}

#[tokio::test(start_paused = true)]
async fn choice_a_minor_is_resolved_to_its_newest_patch_when_the_run_starts() {
    let world = World::new(SIX).await;
    let run = world.run("r1", "1.33", Some(two_groups(Some("1")))).await;
    assert_eq!(world.see(&run, |run| run.version()).await, None);
    world.tell(&run, Input::Start).await.expect("started");
    world.until(&run, State::Completed).await;
    assert_eq!(
        world.see(&run, |run| run.version().map(|version| version.to_string())).await.as_deref(),
        Some("1.33.2")
    );
}

/// What the cloud was asked, as its own log has it.
async fn requests(world: &World, after: u64) -> Vec<flotta_simulator::Request> {
    use tower::ServiceExt;
    let uri = format!("/simulator/requests?after={after}&limit=100000");
    let request = http::Request::builder().uri(uri).body(Default::default()).expect("request");
    let answer = router_transport(world.simulator.router()).oneshot(request).await.expect("answer");
    let mut page: serde_json::Value = serde_json::from_slice(answer.body()).expect("json");
    serde_json::from_value(page["value"].take()).expect("requests")
}

/// The most requests in any 60 s.
fn busiest_minute(times: &[jiff::Timestamp]) -> usize {
    let minute = |from: usize| times[from..].partition_point(|at| at.duration_since(times[from]).as_secs() < 60);
    (0..times.len()).map(minute).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn d5_with_500_upgrades_in_flight_every_minute_stays_below_the_provider_s_buckets() {
    use flotta_simulator::CallKind as Call;
    let template = "
behaviour: { durationScale: 8 }
templates:
  - count: 500
    cluster: { name: 'c{n}', region: westeurope, version: 1.32.6, pools: [{ name: p1 }], member: { group: a } }
";
    let world = World::new(template).await;
    let group =
        Group { max_concurrency: Some("500".parse().expect("limit")), ..Group::new("a".parse().expect("name")) };
    let stage = Stage { max_concurrency: group.max_concurrency, ..Stage::new("s".parse().expect("name"), vec![group]) };
    let run = world.run("r1", "1.33.2", Some(Strategy::new(vec![stage]).expect("strategy"))).await;
    world.tell(&run, Input::Start).await.expect("started");
    let (mut log, mut most_in_flight) = (Vec::new(), 0);
    while world.see(&run, Run::state).await != State::Completed {
        world.clock.pause(Duration::from_secs(120)).await;
        let after = log.last().map_or(0, |last: &flotta_simulator::Request| last.number);
        log.extend(requests(&world, after).await);
        let moving = |run: &Run| (0..500).filter(|member| run.member(*member).pledge().is_some()).count();
        most_in_flight = most_in_flight.max(world.see(&run, moving).await);
        assert!(log.len() < 1_000_000, "the run does not end");
    }
    assert_eq!(most_in_flight, 500, "all upgrades were in flight at one time");
    assert_eq!(log.iter().filter(|request| request.status == 429).count(), 0);
    let times = |wanted: &dyn Fn(&flotta_simulator::Request) -> bool| {
        log.iter().filter(|request| wanted(request)).map(|request| request.time).collect::<Vec<_>>()
    };
    let operations = busiest_minute(&times(&|request| request.call == Some(Call::GetOperation)));
    assert!(operations <= 200 + 120, "operation status: {operations} in a minute");
    let of_the_rest = |request: &flotta_simulator::Request| {
        !matches!(request.call, None | Some(Call::GetOperation | Call::GetCluster | Call::PutCluster | Call::PutPool))
    };
    let rest = busiest_minute(&times(&of_the_rest));
    assert!(rest <= 60 + 60, "everything else: {rest} in a minute");
    for cluster in ["c1", "c250", "c500"] {
        let of =
            |call| times(&move |request| request.call == Some(call) && request.cluster.as_deref() == Some(cluster));
        let (reads, writes) = (busiest_minute(&of(Call::GetCluster)), busiest_minute(&of(Call::PutCluster)));
        assert!(reads <= 60 + 60 && writes <= 20 + 1, "{cluster}: {reads} reads, {writes} writes in a minute");
    }
    println!("busiest minute: {operations} operation reads, {rest} other requests; {} requests in all", log.len());
}
