//! A small cloud: clusters that take their time, fail, refuse, are busy with others, are switched off, belong to others.
//! It checks what only it can see: one operation at a time on a cluster, each step accepted once, never a downgrade.

use std::{collections::BTreeMap, ops::Range, rc::Rc};

use flotta_engine::{
    Input, Plan, Work,
    images::{self, PoolImages},
    run::{MemberPhase, Run, Sighting, Ticket, Windows},
};
use flotta_model::{
    Cluster, Fault, Hold, KubernetesVersion, MaintenanceWindow, NodeImage, Offer, Pool, Provisioning, Step,
    image::VALID_DAYS,
};
use jiff::Timestamp;

use crate::{
    random::Random,
    regions::{FAMILIES, Region},
    view::{self, Outside, Stand},
};

pub const OLD: KubernetesVersion = KubernetesVersion::new(1, 32, 6);
pub const TARGET: KubernetesVersion = KubernetesVersion::new(1, 33, 2);

/// One cluster and its troubles. Times are seconds since the beginning.
struct Site {
    cluster: Cluster,
    region: Rc<Region>,
    operation: Option<Operation>,
    /// Accepted steps, by attempt and serial: the operation, and how it ended.
    accepted: BTreeMap<(u32, u32), usize>,
    operations: Vec<Option<Result<(), Fault>>>,
    /// Upgrades that will fail: before acceptance, after acceptance.
    refusals: u32,
    failures: u32,
    /// Percent of sends that are not taken for a passing reason.
    passing: u64,
    busy: Range<u64>,
    off: Range<u64>,
    unreachable: Range<u64>,
    claimed: Range<u64>,
    not_in_region: Range<u64>,
    /// Its maintenance window, from when on: somebody changes it now and then.
    windows: Vec<(u64, Option<usize>)>,
    /// No run of this kind can move it, which is seen with the cluster or known without a look.
    unfit: Option<Unfit>,
}

#[derive(Clone, Copy, PartialEq)]
enum Unfit {
    Seen,
    Known,
}

struct Operation {
    step: Step,
    until: u64,
    fails: bool,
    number: usize,
    /// The images that its pools come to have.
    images: Vec<(String, NodeImage)>,
}

/// What was met, for the summary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub adopted: u64,
    pub not_taken: u64,
    pub refused: u64,
    pub failed: u64,
    pub held: u64,
    pub accepted: u64,
    pub too_late: u64,
    pub read_in_parts: u64,
    pub reads_failed: u64,
}

/// What the spells of a cluster are like.
#[derive(Clone, Copy, PartialEq)]
pub enum Weather {
    /// Nothing goes wrong, and nobody has a window.
    Calm,
    /// Things go wrong, and nobody has a window.
    Rough,
    /// Things go wrong, and many have windows.
    Windows,
}

pub struct Cloud {
    sites: Vec<Site>,
    windows: Rc<Vec<MaintenanceWindow>>,
    /// How windows stood when it was last asked.
    stands: Vec<Option<Stand>>,
    /// The images of all pools, until something changes them.
    images: Option<view::PoolImages>,
    /// How often images were read for the choice.
    image_reads: u32,
    pub met: Met,
    pub random: Random,
}

impl Cloud {
    pub fn new(
        plan: &Plan,
        begin: Timestamp,
        weather: Weather,
        windows: Rc<Vec<MaintenanceWindow>>,
        mut random: Random,
    ) -> Self {
        let moves = plan.selected_images().is_some() || plan.chooses_images();
        let region = |at| Rc::new(Region::random(format!("region{at}"), begin, moves, &mut random));
        let regions: Vec<Rc<Region>> = (0..3).map(region).collect();
        let mut site = |_| {
            let region = Rc::clone(random.pick(&regions));
            let windows = random_windows(weather, windows.len(), &mut random);
            Site { windows, ..Site::random(weather, region, &mut random) }
        };
        let sites = (0..plan.members.len()).map(&mut site).collect();
        let stands = vec![None; windows.len()];
        Self { sites, windows, stands, images: None, image_reads: 0, met: Met::default(), random }
    }

    /// How it really is now.
    pub fn outside(&mut self, now: u64, at: Timestamp) -> Outside {
        for (stand, window) in self.stands.iter_mut().zip(self.windows.iter()) {
            if stand.is_none_or(|stand| stand.turns.is_some_and(|turns| turns <= at)) {
                *stand = Some(Stand::of(window, at));
            }
        }
        Outside {
            windows: Rc::clone(&self.windows),
            stands: self.stands.iter().flatten().copied().collect(),
            of: self.sites.iter().map(|site| site.window(now)).collect(),
            images: Rc::clone(
                self.images.get_or_insert_with(|| Rc::new(self.sites.iter().map(Site::images).collect())),
            ),
        }
    }

    /// Whether what is said of a node image is so, or was not long ago.
    pub fn lacks(&self, member: u32, hold: &Hold, now: u64, at: Timestamp) -> bool {
        let parse = |image: &str| image.parse::<NodeImage>().expect("image");
        match hold {
            Hold::ImageNotInRegion { image, .. } => {
                !self.sites[member as usize].region.has(&parse(image), now - now / 4 - now.min(7200) / 2)
            }
            Hold::ImageTooOld { image, .. } => {
                images::days_old(&parse(image), at).is_some_and(|days| days > VALID_DAYS)
            }
            _ => false,
        }
    }

    fn window(&self, member: u32, now: u64) -> Option<MaintenanceWindow> {
        self.sites[member as usize].window(now).map(|which| self.windows[which].clone())
    }

    /// How often windows were changed until now.
    pub fn changes(&self, now: u64) -> u64 {
        let changes = self.sites.iter().flat_map(|site| &site.windows[1..]);
        changes.filter(|(from, _)| *from <= now).count() as u64
    }

    /// Whether something holds a member that may last until the end of its days.
    pub fn may_be_held(&self, member: u32, now: u64) -> bool {
        let site = &self.sites[member as usize];
        let spells = [&site.busy, &site.off, &site.unreachable, &site.claimed, &site.not_in_region];
        // It is looked at again only now and then.
        spells.into_iter().any(|spell| !spell.is_empty() && now < spell.end.saturating_add(now / 4))
    }

    fn site(&mut self, member: u32, now: u64) -> &mut Site {
        let site = &mut self.sites[member as usize];
        if site.settle(now) {
            self.images = None;
        }
        site
    }

    /// How long the answer to a piece of work takes.
    pub fn delay(&mut self, work: &Work, now: u64) -> u64 {
        match work {
            Work::ReadWindows if self.random.chance(5) => self.random.range(1, 9000),
            Work::ResolveImages if self.image_reads > 0 => self.random.range(600, 7200.max(now / 8)),
            Work::ResolveTarget | Work::ResolveImages | Work::ReadWindows => self.random.range(1, 100),
            Work::Send(_) if self.random.chance(3) => self.random.range(1, 40_000),
            Work::Look(_) | Work::Send(_) => self.random.range(1, 30),
            Work::Probe(_) => self.random.range(60, 7200.max(now / 8)),
            Work::Follow(ticket) => {
                let until =
                    self.sites[ticket.member as usize].operation.as_ref().map_or(now, |operation| operation.until);
                until.saturating_sub(now) + self.random.range(0, 30)
            }
        }
    }

    /// Does a piece of work, and answers. `None`: the answer is that there is no news.
    pub fn answer(&mut self, run: &Run, work: &Work, now: u64, at: Timestamp) -> Result<Option<Input>, String> {
        let current = |ticket: &Ticket| run.member(ticket.member).turn == ticket.turn;
        Ok(match work {
            Work::ResolveTarget => Some(Input::TargetResolved(TARGET)),
            Work::ResolveImages => self.read_images(&run.images_to_read(), now),
            Work::ReadWindows => Some(Input::WindowsSeen(self.read(&run.windows_to_read(), now))),
            Work::Look(ticket) | Work::Probe(ticket) => Some(self.look(*ticket, now)),
            Work::Send(ticket) if current(ticket) => Some(self.send(run, *ticket, now, at)?),
            Work::Send(ticket) => Some(Input::Accepted { ticket: *ticket, operation: "late".into(), adopted: true }),
            Work::Follow(ticket) if current(ticket) => self.follow(run, *ticket, now, at)?,
            Work::Follow(ticket) if now.is_multiple_of(2) => Some(Input::StepSucceeded(*ticket)),
            Work::Follow(ticket) => Some(Input::StepFailed(*ticket, Fault::new("Late", "too late"))),
        })
    }

    /// What pools can have of images, as far as clusters are within reach.
    fn read_images(&mut self, members: &[u32], now: u64) -> Option<Input> {
        self.image_reads += 1;
        let (mut pools, mut seen) = (Vec::new(), 0);
        for member in members {
            let site = self.site(*member, now);
            if !site.unreachable.contains(&now) {
                seen += 1;
                PoolImages::add(&mut pools, &site.seen(now));
            }
        }
        (seen > 0).then_some(Input::ImagesResolved { pools })
    }

    /// Reads windows, or the first of them; what cannot be read is taken for none.
    fn read(&mut self, members: &[u32], now: u64) -> Windows {
        let parts = members.len() > 1 && self.random.chance(25);
        let count = if parts { self.random.range(1, members.len() as u64 - 1) as usize } else { members.len() };
        self.met.read_in_parts += u64::from(parts);
        let mut windows = Windows { more: parts, ..Windows::default() };
        for member in &members[..count] {
            let window = self.window(*member, now);
            let fails = window.is_some() && self.random.chance(5);
            self.met.reads_failed += u64::from(fails);
            windows.add(*member, window.filter(|_| !fails));
        }
        windows
    }

    fn look(&mut self, ticket: Ticket, now: u64) -> Input {
        let window = self.window(ticket.member, now);
        let site = self.site(ticket.member, now);
        if site.unfit == Some(Unfit::Known) {
            return Input::Unfit(ticket, "it is of another kind".into());
        }
        let hold = match () {
            () if site.unreachable.contains(&now) => Some(Hold::Unreachable(format!("no answer at {}", now / 9000))),
            () => None,
        };
        let sighting = Sighting {
            cluster: site.seen(now),
            offer: Some(if site.not_in_region.contains(&now) { Offer::NotYet } else { Offer::Yes }),
            claimed_by: site.claimed.contains(&now).then(|| "fleet/other".into()),
            window,
        };
        match hold {
            Some(hold) => {
                self.met.held += 1;
                Input::Held(ticket, hold)
            }
            None => Input::Seen(ticket, Box::new(sighting)),
        }
    }

    fn send(&mut self, run: &Run, ticket: Ticket, now: u64, at: Timestamp) -> Result<Input, String> {
        let state = run.member(ticket.member);
        let MemberPhase::Intended(pledge) = &state.phase else {
            return Err(format!("a send for a member that is {:?}", state.phase));
        };
        let key = (state.attempt, state.steps_done);
        let (unlucky, takes, fails) = (self.random.below(100), self.random.range(60, 3600), self.random.chance(50));
        let site = self.site(ticket.member, now);
        if let Some(number) = site.accepted.get(&key) {
            let operation = format!("{}/{number}", ticket.member);
            self.met.adopted += 1;
            return Ok(Input::Accepted { ticket, operation, adopted: true });
        }
        // What was not sent before the window closed is not sent any more; what is under way was adopted above.
        if pledge.not_after.is_some_and(|end| end <= at) {
            self.met.too_late += 1;
            return Ok(Input::NotAccepted(ticket));
        }
        if site.operation.is_some() {
            return Err(format!("member {}: a second operation at once", ticket.member));
        }
        let held = site.busy.contains(&now) || site.off.contains(&now) || site.unreachable.contains(&now);
        if held && unlucky.is_multiple_of(2) {
            self.met.held += 1;
            return Ok(Input::Held(ticket, Hold::Throttled));
        }
        if held || unlucky < site.passing {
            self.met.not_taken += 1;
            return Ok(Input::NotAccepted(ticket));
        }
        if site.refusals > 0 {
            site.refusals -= 1;
            self.met.refused += 1;
            return Ok(Input::StepFailed(ticket, Fault::new("Refused", "quota exceeded")));
        }
        if !site.may_take(&pledge.step, now) {
            self.met.not_taken += 1;
            return Ok(Input::NotAccepted(ticket));
        }
        let fails = fails && site.failures > 0;
        let number = site.begin(pledge.step.clone(), now, takes, fails, key)?;
        self.met.accepted += 1;
        Ok(Input::Accepted { ticket, operation: format!("{}/{number}", ticket.member), adopted: false })
    }

    fn follow(&mut self, run: &Run, ticket: Ticket, now: u64, at: Timestamp) -> Result<Option<Input>, String> {
        let state = run.member(ticket.member);
        if state.pledge().is_some_and(|pledge| pledge.at > at) {
            return Err(format!("member {}: a step committed to in the future", ticket.member));
        }
        let operation = state.operation.as_deref().unwrap_or_default();
        let number = operation.split('/').nth(1).and_then(|number| number.parse::<usize>().ok());
        let number = number.ok_or_else(|| format!("member {} follows '{operation}'", ticket.member))?;
        let site = self.site(ticket.member, now);
        Ok(match site.operations[number].clone() {
            None => None,
            Some(Ok(())) => Some(Input::StepSucceeded(ticket)),
            Some(Err(fault)) => {
                self.met.failed += 1;
                Some(Input::StepFailed(ticket, fault))
            }
        })
    }

    /// Whether a cluster really is where a run wants it.
    pub fn there(&mut self, member: u32, now: u64, run: &Run) -> bool {
        let version = run.plan().goal.version().is_some();
        let site = self.site(member, now);
        let (cluster, newest) = (&site.cluster, site.region.newest(now));
        let there = |pool: &Pool| {
            let Some(own) = &pool.image else { return false };
            let image = match run.selected_images() {
                None => pool.from_snapshot || *own == site.region.image(own.family(), newest),
                // What no image was chosen for is left as it was.
                Some(images) => match images.iter().find(|image| image.family() == own.family()) {
                    Some(chosen) => own >= chosen,
                    None => return true,
                },
            };
            image && pool.provisioning == Provisioning::Succeeded && (!version || pool.version >= TARGET)
        };
        cluster.provisioning == Provisioning::Succeeded
            && cluster.pools.iter().all(there)
            && (!version || cluster.version >= TARGET)
    }

    /// Nothing goes wrong any more with a cluster.
    pub fn calm(&mut self, member: u32) {
        let site = &mut self.sites[member as usize];
        (site.refusals, site.failures) = (0, 0);
    }
}

/// A window or none, and what somebody makes of it later.
fn random_windows(weather: Weather, count: usize, random: &mut Random) -> Vec<(u64, Option<usize>)> {
    if weather != Weather::Windows {
        return vec![(0, None)];
    }
    let pick = |random: &mut Random| random.chance(75).then(|| random.below(count as u64) as usize);
    let mut windows = vec![(0, pick(random))];
    let mut from = 0;
    while random.chance(20) {
        from += random.below(400_000);
        windows.push((from, pick(random)));
    }
    windows
}

impl Site {
    /// The window that the cluster has.
    fn window(&self, now: u64) -> Option<usize> {
        self.windows.iter().rev().find(|(from, _)| *from <= now).and_then(|(_, window)| *window)
    }

    /// The images of its pools.
    fn images(&self) -> Vec<(String, NodeImage)> {
        let image = |pool: &Pool| Some((pool.name.clone(), pool.image.clone()?));
        self.cluster.pools.iter().filter_map(image).collect()
    }

    fn random(weather: Weather, region: Rc<Region>, random: &mut Random) -> Self {
        let calm = weather == Weather::Calm;
        let ahead = random.chance(15);
        let pools = random.range(0, 3);
        let version = if ahead || random.chance(10) { TARGET } else { OLD };
        let newest = region.newest(0);
        let pool = |n: u64| {
            let week = if ahead || random.chance(50) { newest } else { random.below(u64::from(newest)) as u32 };
            Pool {
                name: format!("pool{n}"),
                version: if ahead || random.chance(20) { version } else { OLD },
                provisioning: Provisioning::Succeeded,
                image: Some(region.image(FAMILIES[usize::from(random.chance(20))], week)),
                latest_image: None,
                offered_images: Vec::new(),
                live_patch: None,
                from_snapshot: random.chance(4),
                lagging_nodes: 0,
                etag: None,
            }
        };
        let pools = (0..pools).map(pool).collect();
        let cluster = Cluster {
            location: region.name.clone(),
            version,
            provisioning: Provisioning::Succeeded,
            running: true,
            upgrades: vec![TARGET],
            pools,
            etag: None,
            long_term_support: false,
            automatic_upgrades: Vec::new(),
            provisions_nodes: false,
        };
        let mut spell = |percent: u64, longest: u64| {
            if calm || !random.chance(percent) {
                return 0..0;
            }
            let from = random.below(20_000);
            // A few never come back.
            from..if random.chance(2) { u64::MAX } else { from + random.below(longest) }
        };
        Self {
            cluster,
            region,
            operation: None,
            accepted: BTreeMap::new(),
            operations: Vec::new(),
            busy: spell(15, 10_000),
            off: spell(8, 200_000),
            unreachable: spell(8, 200_000),
            claimed: spell(10, 10_000),
            not_in_region: spell(8, 20_000),
            refusals: if calm { 0 } else { random.below(16).saturating_sub(13) as u32 },
            failures: if calm { 0 } else { random.below(12).saturating_sub(8) as u32 },
            passing: if calm { 0 } else { random.below(40) },
            windows: vec![(0, None)],
            unfit: match random.below(50) {
                _ if calm => None,
                0 => Some(Unfit::Seen),
                1 => Some(Unfit::Known),
                _ => None,
            },
        }
    }

    /// Brings an operation whose time has come to its end. Answers whether there was one.
    fn settle(&mut self, now: u64) -> bool {
        let Some(operation) = self.operation.take_if(|operation| operation.until <= now) else { return false };
        let word = if operation.fails { Provisioning::Failed } else { Provisioning::Succeeded };
        let fault = Fault::new("UpgradeFailed", "nodes did not drain");
        self.operations[operation.number] = Some(if operation.fails { Err(fault) } else { Ok(()) });
        for (name, image) in operation.images.iter().filter(|_| !operation.fails) {
            let pool = self.cluster.pools.iter_mut().find(|seen| seen.name == *name);
            if let Some(pool) = pool {
                pool.image = Some(image.clone());
                pool.from_snapshot &= matches!(operation.step, Step::PoolImage { .. });
            }
        }
        self.mark(&operation.step, word);
        true
    }

    /// Whether a region still has every image that a step sets pools to.
    fn may_take(&self, step: &Step, now: u64) -> bool {
        let has = |image: &NodeImage| self.region.has(image, now);
        match step {
            Step::Cluster { images, .. } => images.values().all(has),
            Step::PoolVersion { image, .. } => image.iter().all(has),
            Step::PoolPinned { image, .. } => has(image),
            Step::ControlPlane { .. } | Step::PoolImage { .. } => true,
        }
    }

    /// The images that the pools of a step come to have: those it says, else the newest, unless a snapshot keeps them.
    fn images_of(&self, step: &Step, now: u64) -> Vec<(String, NodeImage)> {
        let newest = |pool: &Pool| {
            let family = pool.image.as_ref().filter(|_| !pool.from_snapshot)?.family();
            Some(self.region.image(family, self.region.newest(now)))
        };
        let image = |pool: &Pool| match step {
            Step::Cluster { pools, images, .. } if pools.contains(&pool.name) => {
                images.get(&pool.name).cloned().or_else(|| newest(pool))
            }
            Step::PoolVersion { image, .. } if step.pool() == Some(&pool.name) => {
                image.clone().or_else(|| newest(pool))
            }
            Step::PoolImage { .. } if step.pool() == Some(&pool.name) => newest(pool),
            Step::PoolPinned { image, .. } if step.pool() == Some(&pool.name) => Some(image.clone()),
            _ => None,
        };
        self.cluster.pools.iter().filter_map(|pool| Some((pool.name.clone(), image(pool)?))).collect()
    }

    /// Shows a word where a step works.
    fn mark(&mut self, step: &Step, word: Provisioning) {
        match step.pool() {
            None => self.cluster.provisioning = word,
            Some(name) => {
                if let Some(pool) = self.cluster.pools.iter_mut().find(|pool| pool.name == name) {
                    pool.provisioning = word;
                }
            }
        }
    }

    /// Accepts a step. The model jumps at once: the target shows although the work has only begun.
    fn begin(&mut self, step: Step, now: u64, takes: u64, fails: bool, key: (u32, u32)) -> Result<usize, String> {
        let images = self.images_of(&step, now);
        self.refuse_older(&images)?;
        match &step {
            Step::Cluster { version, pools, .. } => {
                if *version < self.cluster.version || pools.is_empty() != self.cluster.pools.is_empty() {
                    return Err(format!("{step} on a cluster at {}", self.cluster.version));
                }
                self.cluster.version = *version;
                for pool in self.cluster.pools.iter_mut().filter(|pool| pools.contains(&pool.name)) {
                    pool.version = *version;
                    pool.provisioning = Provisioning::Succeeded;
                }
            }
            Step::ControlPlane { version } => {
                if *version < self.cluster.version {
                    return Err(format!("{step} on a cluster at {}", self.cluster.version));
                }
                self.cluster.version = *version;
            }
            Step::PoolVersion { pool, version, .. } => {
                let pool = self.cluster.pools.iter_mut().find(|seen| seen.name == *pool).ok_or("no such pool")?;
                if *version < pool.version {
                    return Err(format!("{step} on a pool at {}", pool.version));
                }
                pool.version = *version;
            }
            Step::PoolImage { pool, .. } | Step::PoolPinned { pool, .. } => {
                self.cluster.pools.iter().find(|seen| seen.name == *pool).ok_or("no such pool")?;
            }
        }
        if fails {
            self.failures -= 1;
        }
        self.mark(&step, Provisioning::Busy("Upgrading".into()));
        let number = self.operations.len();
        self.operations.push(None);
        if self.accepted.insert(key, number).is_some() {
            return Err(format!("{step} was accepted twice for attempt and serial {key:?}"));
        }
        self.operation = Some(Operation { step, until: now + takes, fails, number, images });
        Ok(number)
    }

    /// A pool is never moved back.
    fn refuse_older(&self, images: &[(String, NodeImage)]) -> Result<(), String> {
        for (name, image) in images {
            let own = self.cluster.pools.iter().find(|pool| pool.name == *name).and_then(|pool| pool.image.as_ref());
            if own.is_some_and(|own| image < own) {
                return Err(format!("pool {name} is taken from {own:?} back to {image}"));
            }
        }
        Ok(())
    }

    /// What a driver sees.
    fn seen(&self, now: u64) -> Cluster {
        let mut cluster = self.cluster.clone();
        if self.operation.is_none() && self.busy.contains(&now) {
            cluster.provisioning = Provisioning::Busy("Updating".into());
        }
        cluster.running = self.operation.is_some() || !self.off.contains(&now);
        cluster.provisions_nodes = self.unfit == Some(Unfit::Seen);
        cluster.pools.iter_mut().for_each(|pool| self.region.offer(pool, now));
        cluster
    }
}
