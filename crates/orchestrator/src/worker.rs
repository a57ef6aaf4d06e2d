//! The one writer of a run.
//!
//! It takes what waits in its mailbox, commands first, decides and applies in memory, commits inputs and events
//! together, and only then answers and acts. While a commit is under way the mailbox fills, so that under load many
//! inputs share one commit. A failed commit drops the state; the journal is folded again.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use flotta_drivers::{Intent, Operation};
use flotta_engine::{
    Event, Input, Run, Work,
    run::{MemberPhase, Outcome, RunPhase, Ticket},
};
use flotta_model::Name;
use flotta_store::{Append, Batch, Collection, Delete, Expect, Put, Snapshot, StoreError};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::{
    Command, Error, Moment, NumberCheck, RunRef, Shared,
    claims::{Holder, Offered},
    drain, effects, gates,
    journal::{self, InFlight, Recorded},
};

/// Looks at a run for an answer, which is given when the outcome is known; or is told why it cannot.
pub type View = Box<dyn FnOnce(Result<(&Run, u64), Error>) -> Option<Answer> + Send>;
/// Gives an answer.
pub type Answer = Box<dyn FnOnce(Result<(), Error>) + Send>;
/// Looks at a run, or is told why it cannot.
pub type Reader = Box<dyn FnOnce(Result<(&Run, u64), Error>) + Send>;

/// What people and their tools want of a run.
pub enum Message {
    /// Change it.
    Command {
        /// How.
        command: Command,
        /// When the answer is taken.
        moment: Moment,
        /// Makes the answer.
        view: View,
    },
    /// Look at it.
    Read(Reader),
    /// Forget it.
    Retire {
        /// What must be so of its number.
        check: NumberCheck,
        /// Only if it was never started.
        only_idle: bool,
        /// What else happens with it.
        batch: Batch,
        /// Where the outcome goes.
        answer: oneshot::Sender<Result<(), Error>>,
    },
    /// A member left the fleet.
    MemberLeft(Name),
}

/// What effects tell a run.
pub struct Observation {
    /// What happened.
    pub input: Input,
    /// The operation that goes with an accepted step.
    pub operation: Option<Operation>,
    /// How long to leave the cluster alone before it is looked at again.
    pub pause: Option<Duration>,
    /// The claim that was taken in case a step is to follow.
    pub claim: Option<Offered>,
}

impl From<Input> for Observation {
    fn from(input: Input) -> Self {
        Self { input, operation: None, pause: None, claim: None }
    }
}

/// The way to a worker.
#[derive(Clone)]
pub struct Mailbox {
    /// From people and their tools; taken first.
    pub commands: mpsc::Sender<Message>,
}

impl Mailbox {
    pub fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }
}

/// Messages and observations that share a commit, at most.
const MOST_IN_BATCH: usize = 512;
/// How long a worker that waits for nothing stays awake (wall time).
const STAY_AWAKE: Duration = Duration::from_secs(60);
/// How long to wait before a run whose storage failed is folded again (wall time).
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Starts the worker of a run.
pub fn spawn(shared: Arc<Shared>, run: RunRef) -> Mailbox {
    let (commands, inbox) = mpsc::channel(1024);
    let tasks = shared.tasks.clone();
    tasks.spawn(live(shared, run, inbox));
    Mailbox { commands }
}

async fn live(shared: Arc<Shared>, run: RunRef, mut inbox: mpsc::Receiver<Message>) {
    loop {
        let folded = tokio::select! {
            folded = journal::fold(&*shared.store, run.id) => folded,
            () = shared.shutdown.cancelled() => return,
        };
        match folded {
            Ok(folded) => {
                let mut worker = Worker::new(Arc::clone(&shared), run.clone(), folded);
                match worker.go(&mut inbox).await {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(run = %run.label, %error, "state dropped, folding the journal again"),
                }
            }
            Err(error) => {
                tracing::warn!(run = %run.label, %error, "the run cannot be read");
                let for_good = matches!(error, Error::NoSuchRun | Error::Corrupt(_));
                if for_good {
                    inbox.close();
                }
                refuse_all(&mut inbox, &error);
                if for_good {
                    return;
                }
            }
        }
        tokio::time::sleep(AFTER_FAILURE).await;
    }
}

/// Answers everything that waits, when a run cannot be read.
fn refuse_all(inbox: &mut mpsc::Receiver<Message>, error: &Error) {
    while let Ok(message) = inbox.try_recv() {
        let same = || match error {
            Error::NoSuchRun => Error::NoSuchRun,
            Error::Store(error) => Error::Store(error.clone()),
            other => Error::Corrupt(other.to_string()),
        };
        match message {
            Message::Command { view, .. } => drop(view(Err(same()))),
            Message::MemberLeft(_) => {}
            Message::Read(read) => read(Err(same())),
            Message::Retire { answer, .. } => drop(answer.send(Err(same()))),
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    id: RunRef,
    holder: Holder,
    run: Run,
    number: u64,
    snapshot: u64,
    last: Timestamp,
    /// Whether the store has the marker that this run is to be taken up after a restart.
    marked: bool,
    operations: HashMap<u32, Operation>,
    /// Members whose cluster has a durable claim of this run.
    claimed: HashSet<u32>,
    effects: HashMap<u32, effects::Running>,
    resolving: Option<effects::Running>,
    /// The looks out of which node images are chosen, and the members that are looked at.
    choosing: Option<(Vec<u32>, effects::Running)>,
    reading: Option<effects::Running>,
    /// What was last written of the gates.
    gates: gates::Written,
    /// Started again just now: what holds members is looked at at once.
    resumed: bool,
    observations: mpsc::Receiver<Observation>,
    observe: mpsc::Sender<Observation>,
    /// Members whose state was folded: a step that was intended may have been sent.
    recovering: bool,
}

/// What came in since the last commit, and what is to happen after it.
#[derive(Default)]
struct Pending {
    entries: Vec<(Timestamp, String)>,
    answers: Vec<Answer>,
    /// What was applied but is not committed yet is not shown to anybody.
    reads: Vec<Reader>,
    touched: BTreeSet<u32>,
    documents: Documents,
    pauses: HashMap<u32, Duration>,
    /// Everything may have changed: work is dispatched anew for all members.
    all: bool,
    ended: bool,
}

/// Changes to documents, each named once: a later change replaces an earlier one, in its place. Lists show new documents
/// in the order in which they were put.
#[derive(Default)]
struct Documents(HashMap<(Collection, String), (usize, Option<Put>)>);

impl Documents {
    fn put(&mut self, mut put: Put) {
        let key = (put.collection, put.key.clone());
        if self.0.contains_key(&key) {
            // It was ours to delete, so it is ours to put, whatever the store still has.
            put.expect = Expect::Any;
        }
        self.change(key, Some(put));
    }

    fn delete(&mut self, collection: Collection, key: String) {
        self.change((collection, key), None);
    }

    fn change(&mut self, key: (Collection, String), to: Option<Put>) {
        let last = self.0.len();
        self.0.entry(key).or_insert((last, None)).1 = to;
    }

    fn into_batch(self) -> Batch {
        let mut batch = Batch::default();
        let mut changes: Vec<_> = self.0.into_iter().collect();
        changes.sort_unstable_by_key(|(_, (place, _))| *place);
        for ((collection, key), (_, put)) in changes {
            match put {
                Some(put) => batch.puts.push(put),
                None => batch.deletes.push(Delete { collection, key, expect: Expect::Any }),
            }
        }
        batch
    }
}

impl Worker {
    fn new(shared: Arc<Shared>, id: RunRef, folded: journal::Folded) -> Self {
        let (observe, observations) = mpsc::channel(4096);
        let holder = Holder { run: id.id, label: Arc::clone(&id.label) };
        let claimed = (0..folded.run.plan().members.len() as u32)
            .filter(|member| wants_claim(&folded.run, *member, true))
            .collect();
        let marked = is_active(folded.run.phase());
        Self {
            gates: gates::Written::of(&folded.run),
            reading: None,
            resumed: true,
            last: folded.last.unwrap_or(Timestamp::MIN),
            shared,
            id,
            holder,
            run: folded.run,
            number: folded.number,
            snapshot: folded.snapshot,
            marked,
            operations: folded.in_flight,
            claimed,
            effects: HashMap::new(),
            resolving: None,
            choosing: None,
            observations,
            observe,
            recovering: true,
        }
    }

    /// Runs until the run sleeps, is forgotten, or the server shuts down.
    async fn go(&mut self, inbox: &mut mpsc::Receiver<Message>) -> Result<(), Error> {
        self.dispatch_all(&HashMap::new());
        self.recovering = false;
        let mut first = Some(Observation::from(Input::Tick));
        loop {
            let mut pending = Pending::default();
            let mut retire = None;
            match first.take() {
                Some(observation) => self.observed(observation, &mut pending)?,
                None => {
                    let Some(next) = self.next(inbox).await else { return Ok(()) };
                    self.take(next, &mut pending, &mut retire)?;
                }
            }
            for _ in 1..MOST_IN_BATCH {
                if retire.is_some() {
                    break;
                }
                let Some(next) = self.waiting(inbox) else { break };
                self.take(next, &mut pending, &mut retire)?;
            }
            self.settle(pending).await?;
            if let Some(retire) = retire
                && self.retire(retire).await?
            {
                inbox.close();
                refuse_all(inbox, &Error::NoSuchRun);
                return Ok(());
            }
        }
    }

    /// The next thing that comes in; `None` when there is nothing left to stay awake for.
    async fn next(&mut self, inbox: &mut mpsc::Receiver<Message>) -> Option<Next> {
        let wake = self.run.next_wake();
        let clock = self.shared.clock;
        let idle = !is_active(self.run.phase()) && self.effects.is_empty();
        tokio::select! {
            biased;
            message = inbox.recv() => message.map(Next::Message),
            observation = self.observations.recv() => observation.map(Next::Observation),
            () = clock.sleep_until(wake.unwrap_or(Timestamp::MAX)), if wake.is_some() => {
                Some(Next::Observation(Input::Tick.into()))
            }
            () = self.shared.shutdown.cancelled() => None,
            () = tokio::time::sleep(STAY_AWAKE), if idle => self.fall_asleep(inbox),
        }
    }

    /// Closes the mailbox, unless something came in just then.
    fn fall_asleep(&mut self, inbox: &mut mpsc::Receiver<Message>) -> Option<Next> {
        match inbox.try_recv() {
            Ok(message) => Some(Next::Message(message)),
            Err(_) => {
                inbox.close();
                inbox.try_recv().ok().map(Next::Message)
            }
        }
    }

    fn waiting(&mut self, inbox: &mut mpsc::Receiver<Message>) -> Option<Next> {
        let message = inbox.try_recv().ok().map(Next::Message);
        message.or_else(|| self.observations.try_recv().ok().map(Next::Observation))
    }

    fn take(&mut self, next: Next, pending: &mut Pending, retire: &mut Option<Retire>) -> Result<(), Error> {
        match next {
            Next::Observation(observation) => self.observed(observation, pending),
            Next::Message(Message::Command { command, moment, view }) => self.command(command, moment, view, pending),
            Next::Message(Message::Read(read)) => {
                pending.reads.push(read);
                Ok(())
            }
            Next::Message(Message::MemberLeft(name)) => {
                let member = self.run.plan().members.iter().position(|member| member.name == name);
                match member {
                    Some(member) => self.observed(Input::MemberLeft(member as u32).into(), pending),
                    None => Ok(()),
                }
            }
            Next::Message(Message::Retire { check, only_idle, batch, answer }) => {
                *retire = Some(Retire { check, only_idle, batch, answer });
                Ok(())
            }
        }
    }

    fn now(&mut self) -> Timestamp {
        self.last = self.last.max(self.shared.clock.now());
        self.last
    }

    fn command(&mut self, command: Command, moment: Moment, view: View, pending: &mut Pending) -> Result<(), Error> {
        let Command { input, by, check } = command;
        if !check(&self.run, self.number) {
            drop(view(Err(Error::Changed)));
            return Ok(());
        }
        let now = self.now();
        if let Err(refusal) = self.run.decide(&input, now) {
            drop(view(Err(refusal.into())));
            return Ok(());
        }
        let (mut view, mut answer) = (Some(view), None);
        if moment == Moment::Before {
            answer = view.take().and_then(|view| view(Ok((&self.run, self.number))));
        }
        let events = self.run.step(&input, now)?;
        self.record(Some(by), input, events, now, pending)?;
        pending.all = true;
        let after = view.and_then(|view| view(Ok((&self.run, self.number))));
        pending.answers.extend(answer.or(after));
        Ok(())
    }

    fn observed(&mut self, observation: Observation, pending: &mut Pending) -> Result<(), Error> {
        let Observation { input, operation, pause, claim } = observation;
        if matches!(&input, Input::WindowsSeen(windows) if !windows.more) {
            self.reading = None;
        }
        let now = self.now();
        let events = self.run.step(&input, now)?;
        if let (Input::Accepted { ticket, .. }, Some(operation)) = (&input, operation)
            && !events.is_empty()
        {
            self.accepted(*ticket, operation, pending)?;
        }
        if let (Some(member), Some(pause)) = (member_of(&input), pause) {
            pending.pauses.insert(member, pause);
        }
        if let Some(claim) = claim
            && events.iter().any(|event| matches!(event, Event::StepIntended { .. }))
        {
            claim.keep();
        }
        self.record(None, input, events, now, pending)
    }

    fn record(
        &mut self,
        by: Option<crate::Actor>,
        input: Input,
        events: Vec<Event>,
        now: Timestamp,
        pending: &mut Pending,
    ) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        for put in self.gates.changed(&self.id, &self.run)? {
            pending.documents.put(put);
        }
        for event in &events {
            self.resumed |= matches!(event, Event::Resumed);
            pending.touched.extend(touched_by(event));
            pending.all |= touches_all(event);
            if let Event::StepIntended { member, .. } = event {
                self.put_claim(*member, pending)?;
            }
            pending.ended |= matches!(event, Event::RunEnded(_));
        }
        self.number += 1;
        pending.entries.push((now, journal::encode(&Recorded { by, input, events })?));
        Ok(())
    }

    /// Keeps the way to an operation until it has ended.
    fn accepted(&mut self, ticket: Ticket, operation: Operation, pending: &mut Pending) -> Result<(), Error> {
        let Some(intent) = intent(&self.run, ticket.member, false) else { return Ok(()) };
        let body = journal::encode(&InFlight { intent, operation: operation.clone(), orphan: false })?;
        pending.documents.put(Put {
            collection: Collection::InFlight,
            key: journal::in_flight_key(self.id.id, ticket.member),
            parent: self.id.id.to_string(),
            body,
            etag: self.number.to_string(),
            expect: Expect::Any,
        });
        self.operations.insert(ticket.member, operation);
        Ok(())
    }

    fn put_claim(&mut self, member: u32, pending: &mut Pending) -> Result<(), Error> {
        if !self.claimed.insert(member) {
            return Ok(());
        }
        pending.documents.put(Put {
            collection: Collection::Claims,
            key: self.run.plan().members[member as usize].cluster.key().into(),
            parent: self.id.id.to_string(),
            body: journal::encode(&self.id)?,
            etag: self.id.id.to_string(),
            expect: Expect::Absent,
        });
        Ok(())
    }

    /// Commits what came in, then answers and acts.
    async fn settle(&mut self, mut pending: Pending) -> Result<(), Error> {
        let freed = self.tidy(&mut pending);
        self.mark(&mut pending)?;
        let first = self.number - pending.entries.len() as u64;
        if !pending.entries.is_empty() || !pending.documents.0.is_empty() {
            let mut batch = pending.documents.into_batch();
            if !pending.entries.is_empty() {
                batch.appends.push(Append { journal: self.id.id, after: first, entries: pending.entries });
            }
            self.add_snapshot(&mut batch, pending.ended)?;
            if let Err(error) = self.shared.store.commit(batch).await {
                for answer in pending.answers {
                    answer(Err(error.clone().into()));
                }
                for read in pending.reads {
                    read(Err(error.clone().into()));
                }
                self.give_back_on_failure(&error);
                return Err(error.into());
            }
        }
        for member in freed {
            let cluster = self.run.plan().members[member as usize].cluster.key();
            self.shared.claims.free(cluster, self.id.id);
        }
        for answer in pending.answers {
            answer(Ok(()));
        }
        for read in pending.reads {
            read(Ok((&self.run, self.number)));
        }
        if pending.ended {
            let clusters = self.run.plan().members.iter().map(|member| &member.cluster);
            self.shared.surveyed.forget(clusters, self.shared.clock.now());
            // Nobody may be listening.
            let _ = self.shared.ended.send(self.id.clone());
        }
        if pending.all {
            self.dispatch_all(&pending.pauses);
        } else {
            self.dispatch_choosing();
            self.dispatch_reading();
            for member in pending.touched {
                self.dispatch(member, pending.pauses.get(&member).copied());
            }
        }
        Ok(())
    }

    /// Drops the claims and calls of members that no longer need them; returns the members whose clusters are free.
    fn tidy(&mut self, pending: &mut Pending) -> Vec<u32> {
        let mut freed = Vec::new();
        let touched: Vec<u32> = if pending.all {
            self.claimed.iter().copied().collect()
        } else {
            pending.touched.iter().copied().collect()
        };
        for member in touched {
            let has = self.claimed.contains(&member);
            if has && !wants_claim(&self.run, member, has) {
                self.claimed.remove(&member);
                let key = self.run.plan().members[member as usize].cluster.key().into();
                pending.documents.delete(Collection::Claims, key);
                freed.push(member);
            }
        }
        let operations: Vec<u32> = pending
            .touched
            .iter()
            .copied()
            .filter(|member| {
                self.operations.contains_key(member)
                    && !matches!(self.run.member(*member).phase, MemberPhase::Moving(_))
            })
            .collect();
        for member in operations {
            self.operations.remove(&member);
            let key = journal::in_flight_key(self.id.id, member);
            pending.documents.delete(Collection::InFlight, key);
        }
        freed
    }

    /// Sets or clears the marker that this run is to be taken up after a restart.
    fn mark(&mut self, pending: &mut Pending) -> Result<(), Error> {
        let active = is_active(self.run.phase());
        if active == self.marked {
            return Ok(());
        }
        self.marked = active;
        let key = format!("{}/{}", journal::ACTIVE, self.id.id);
        if active {
            let body = journal::encode(&self.id)?;
            let parent = journal::ACTIVE.into();
            let etag = self.id.id.to_string();
            pending.documents.put(Put { collection: Collection::Meta, key, parent, body, etag, expect: Expect::Any });
        } else {
            pending.documents.delete(Collection::Meta, key);
        }
        Ok(())
    }

    /// A snapshot once in so many entries, so that folding stays short and writing stays cheap.
    fn add_snapshot(&mut self, batch: &mut Batch, ended: bool) -> Result<(), Error> {
        let every = (self.run.plan().members.len() as u64).max(1000);
        if ended || self.number - self.snapshot >= every {
            let body = journal::encode(&self.run.snapshot())?;
            batch.snapshots.push((self.id.id, Snapshot { number: self.number, body }));
            self.snapshot = self.number;
        }
        Ok(())
    }

    /// Claims that were taken for a commit that failed are taken back from what the store says.
    fn give_back_on_failure(&self, error: &StoreError) {
        if let StoreError::Unexpected { collection: Collection::Claims, key, found: Some(found) } = error
            && let Ok(other) = journal::decode::<RunRef>(&found.body)
        {
            self.shared.claims.free(key, self.id.id);
            let _ = self.shared.claims.take(key, &Holder { run: other.id, label: other.label });
        }
    }

    fn dispatch_all(&mut self, pauses: &HashMap<u32, Duration>) {
        let resolve = self.run.resolving();
        if resolve && self.resolving.is_none() {
            self.resolving = Some(effects::resolve(&self.context()));
        } else if !resolve {
            self.resolving = None;
        }
        self.dispatch_choosing();
        self.dispatch_reading();
        let wanted: BTreeSet<u32> =
            self.run.work().iter().filter_map(work_member).chain(self.effects.keys().copied()).collect();
        for member in wanted {
            self.dispatch(member, pauses.get(&member).copied());
        }
        self.resumed = false;
    }

    /// Has node images chosen where that is called for, anew when others than before have a say in it.
    fn dispatch_choosing(&mut self) {
        if !self.run.resolving_images() {
            self.choosing = None;
            return;
        }
        let members = self.run.images_to_read();
        if self.choosing.as_ref().is_none_or(|(looked_at, _)| *looked_at != members) {
            let running = effects::resolve_images(&self.context(), members.clone());
            self.choosing = Some((members, running));
        }
    }

    /// Reads windows where that is called for.
    fn dispatch_reading(&mut self) {
        let wanted = self.run.reading();
        if wanted && self.reading.is_none() {
            self.reading = Some(effects::read_windows(&self.context(), self.run.windows_to_read()));
        } else if !wanted {
            self.reading = None;
        }
    }

    /// Brings what goes on for a member in line with what should.
    fn dispatch(&mut self, member: u32, pause: Option<Duration>) {
        let work = self.run.work_of(member);
        match (&work, self.effects.get(&member)) {
            (Some(work), Some(running)) if running.work == *work => return,
            (None, None) => return,
            _ => {}
        }
        self.effects.remove(&member);
        let Some(work) = work else { return };
        let context = self.context();
        let running = match work {
            Work::Look(ticket) => effects::look(&context, ticket, pause, self.run.member(member).attempt > 1),
            Work::Probe(ticket) => match self.run.member(member).held() {
                Some(held) => effects::probe(&context, ticket, held.hold.clone(), self.resumed),
                None => return,
            },
            Work::Send(ticket) => match intent(&self.run, member, self.recovering) {
                Some(intent) => effects::send(&context, ticket, intent),
                None => return,
            },
            Work::Follow(ticket) => match (intent(&self.run, member, false), self.operations.get(&member)) {
                (Some(intent), Some(operation)) => effects::follow(&context, ticket, intent, operation.clone()),
                _ => return,
            },
            Work::ResolveTarget | Work::ResolveImages | Work::ReadWindows => return,
        };
        self.effects.insert(member, running);
    }

    fn context(&self) -> effects::Context {
        effects::Context::new(&self.shared, &self.holder, &self.run, &self.observe)
    }

    /// Forgets the run. Answers whether it did.
    async fn retire(&mut self, retire: Retire) -> Result<bool, Error> {
        let Retire { check, only_idle, mut batch, answer } = retire;
        let refusal = match () {
            () if !check(&self.run, self.number) => Some(Error::Changed),
            () if only_idle && self.run.phase() != RunPhase::Idle => Some(Error::Started),
            () => None,
        };
        if let Some(refusal) = refusal {
            drop(answer.send(Err(refusal)));
            return Ok(false);
        }
        batch.forget.push(self.id.id);
        let delete = |collection, key| Delete { collection, key, expect: Expect::Any };
        gates::forget(&self.run, &mut batch);
        batch.deletes.push(delete(Collection::Plans, self.id.id.to_string()));
        batch.deletes.push(delete(Collection::Meta, format!("{}/{}", journal::ACTIVE, self.id.id)));
        let mut orphans = Vec::new();
        for member in self.claimed.iter().copied().collect::<Vec<u32>>() {
            match drain::orphan(&self.run, &self.id, member, self.operations.get(&member)) {
                Some((put, orphan)) => {
                    batch.puts.push(put);
                    orphans.push(orphan);
                }
                None => {
                    let cluster = self.run.plan().members[member as usize].cluster.key();
                    batch.deletes.push(delete(Collection::Claims, cluster.into()));
                }
            }
        }
        let kept: HashSet<String> = orphans.iter().map(|orphan| orphan.call.intent.cluster.key().to_owned()).collect();
        match self.shared.store.commit(batch).await {
            Ok(()) => {
                self.effects.clear();
                for member in &self.claimed {
                    let cluster = self.run.plan().members[*member as usize].cluster.key();
                    if !kept.contains(cluster) {
                        self.shared.claims.free(cluster, self.id.id);
                    }
                }
                for orphan in orphans {
                    drain::follow(&self.shared, orphan);
                }
                drop(answer.send(Ok(())));
                Ok(true)
            }
            Err(error) => {
                let unexpected = matches!(error, StoreError::Unexpected { .. });
                drop(answer.send(Err(error.clone().into())));
                if unexpected { Ok(false) } else { Err(error.into()) }
            }
        }
    }
}

enum Next {
    Message(Message),
    Observation(Observation),
}

struct Retire {
    check: NumberCheck,
    only_idle: bool,
    batch: Batch,
    answer: oneshot::Sender<Result<(), Error>>,
}

fn is_active(phase: RunPhase) -> bool {
    matches!(phase, RunPhase::Going | RunPhase::Stopping | RunPhase::Failing)
}

/// Whether a member needs its cluster for itself: from its first intent until it holds no slot any more.
fn wants_claim(run: &Run, member: u32, has: bool) -> bool {
    let state = run.member(member);
    state.pledge().is_some() || (has && state.phase == MemberPhase::Looking && (state.steps_done > 0 || state.moved))
}

/// The step that a member committed to, ready to be sent.
pub fn intent(run: &Run, member: u32, recovering: bool) -> Option<Intent> {
    let pledge = run.member(member).pledge()?;
    Some(Intent {
        cluster: run.plan().members[member as usize].cluster.clone(),
        step: pledge.step.clone(),
        guard: pledge.guard.clone(),
        at: pledge.at,
        recovering,
        not_after: pledge.not_after,
    })
}

fn member_of(input: &Input) -> Option<u32> {
    match input {
        Input::Seen(ticket, _)
        | Input::Held(ticket, _)
        | Input::Unfit(ticket, _)
        | Input::Accepted { ticket, .. }
        | Input::NotAccepted(ticket)
        | Input::StepSucceeded(ticket)
        | Input::StepFailed(ticket, _) => Some(ticket.member),
        Input::MemberLeft(member) => Some(*member),
        Input::Tick | Input::Start | Input::Stop | Input::Skip(_) | Input::TargetResolved(_) => None,
        Input::Gate { .. } | Input::WindowsSeen(_) | Input::ImagesResolved { .. } => None,
    }
}

fn work_member(work: &Work) -> Option<u32> {
    match work {
        Work::ResolveTarget | Work::ResolveImages | Work::ReadWindows => None,
        Work::Look(ticket) | Work::Probe(ticket) | Work::Send(ticket) | Work::Follow(ticket) => Some(ticket.member),
    }
}

fn touched_by(event: &Event) -> Option<u32> {
    match event {
        Event::MemberStarted(member)
        | Event::StepIntended { member, .. }
        | Event::StepAccepted { member, .. }
        | Event::StepWithdrawn(member)
        | Event::StepSucceeded(member)
        | Event::MemberHeld(member, _)
        | Event::MemberReleased(member)
        | Event::MemberEnded { member, .. } => Some(*member),
        _ => None,
    }
}

/// Events after which members other than the one touched may want other work.
fn touches_all(event: &Event) -> bool {
    match event {
        Event::Started
        | Event::Resumed
        | Event::StopAsked
        | Event::Stopped
        | Event::FailedFast { .. }
        | Event::RunEnded(_)
        | Event::TargetResolved(_)
        | Event::ImagesSelected(_)
        | Event::Skipped(_)
        | Event::GateOpened(_)
        | Event::GateRejected { .. }
        | Event::GateExpired(_) => true,
        Event::GroupEnded(_, outcome) | Event::StageEnded(_, outcome) => *outcome == Outcome::Failed,
        _ => false,
    }
}
