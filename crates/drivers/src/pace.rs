//! The provider's budgets, as token buckets in domain time (`behaviour.md` D5).
//!
//! Callers reserve a slot and sleep until it comes, so that they are served in order of arrival. What the provider
//! allows is used to 80 %: somebody else may be calling too, and its clock is not ours.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
    time::Duration,
};

use flotta_clock::Clock;
use jiff::{SignedDuration, Timestamp};

/// The part of a budget that is used.
const SHARE: f64 = 0.8;

/// Idle buckets are dropped when there are this many more than at the last sweep.
const SWEEP_EVERY: usize = 1024;

/// A token bucket: so many calls at once, and so many a second after that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Calls at once, at least 1.
    pub burst: u32,
    /// Calls a second of domain time.
    pub per_second: f64,
}

impl Budget {
    /// The part that is used: the time between two calls, and the calls at once.
    fn used(self) -> (Duration, u32) {
        let gap = Duration::from_secs_f64(1.0 / (self.per_second * SHARE).max(1e-6));
        (gap, (f64::from(self.burst) * SHARE).floor().max(1.0) as u32)
    }
}

/// What the provider counts together. The text is what it counts for, in lower case: a cluster, a pool or a
/// subscription.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// Writes of one cluster.
    PutCluster(String),
    /// Writes of one pool.
    PutPool(String),
    /// Reads of one cluster.
    GetCluster(String),
    /// Lists of clusters in a subscription.
    List(String),
    /// Reads of operations in a subscription.
    Operation(String),
    /// Everything else in a subscription.
    Other(String),
    /// What Resource Manager itself lets through to a subscription: reads.
    ArmRead(String),
    /// The same: writes.
    ArmWrite(String),
}

/// The budget of each bucket; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budgets {
    /// See [`Bucket::PutCluster`].
    pub put_cluster: Option<Budget>,
    /// See [`Bucket::PutPool`].
    pub put_pool: Option<Budget>,
    /// See [`Bucket::GetCluster`].
    pub get_cluster: Option<Budget>,
    /// See [`Bucket::List`].
    pub list: Option<Budget>,
    /// See [`Bucket::Operation`].
    pub operation: Option<Budget>,
    /// See [`Bucket::Other`].
    pub other: Option<Budget>,
    /// See [`Bucket::ArmRead`].
    pub arm_read: Option<Budget>,
    /// See [`Bucket::ArmWrite`].
    pub arm_write: Option<Budget>,
}

impl Budgets {
    /// What AKS and Resource Manager document.
    pub fn azure() -> Self {
        let budget = |burst, per_second| Some(Budget { burst, per_second });
        Self {
            put_cluster: budget(20, 1.0 / 60.0),
            put_pool: budget(20, 1.0 / 60.0),
            get_cluster: budget(60, 1.0),
            list: budget(500, 1.0),
            operation: budget(200, 2.0),
            other: budget(60, 1.0),
            arm_read: budget(250, 25.0),
            arm_write: budget(200, 10.0),
        }
    }

    /// No limits at all.
    pub fn unlimited() -> Self {
        let none = None;
        Self {
            put_cluster: none,
            put_pool: none,
            get_cluster: none,
            list: none,
            operation: none,
            other: none,
            arm_read: none,
            arm_write: none,
        }
    }

    fn of(&self, bucket: &Bucket) -> Option<Budget> {
        match bucket {
            Bucket::PutCluster(_) => self.put_cluster,
            Bucket::PutPool(_) => self.put_pool,
            Bucket::GetCluster(_) => self.get_cluster,
            Bucket::List(_) => self.list,
            Bucket::Operation(_) => self.operation,
            Bucket::Other(_) => self.other,
            Bucket::ArmRead(_) => self.arm_read,
            Bucket::ArmWrite(_) => self.arm_write,
        }
    }
}

/// Keeps calls inside the budgets.
#[derive(Debug)]
pub struct Pace {
    clock: Clock,
    budgets: Budgets,
    buckets: Mutex<Buckets>,
    flights: Mutex<BTreeMap<String, Flights>>,
}

#[derive(Debug, Default)]
struct Buckets {
    states: HashMap<Bucket, State>,
    swept_at: usize,
}

/// `full_at` is when the bucket will be full again; the emptier it is, the later. A caller may go when that is at most
/// a whole bucket away.
#[derive(Clone, Copy, Debug)]
struct State {
    full_at: Timestamp,
    blocked_until: Timestamp,
}

/// The operations that are being polled in one subscription, and when each was last asked for.
#[derive(Debug, Default)]
struct Flights {
    seen: HashMap<String, Timestamp>,
    swept: Option<Timestamp>,
}

impl Pace {
    /// Full buckets.
    pub fn new(budgets: Budgets, clock: Clock) -> Self {
        Self { clock, budgets, buckets: Mutex::default(), flights: Mutex::default() }
    }

    /// Waits until a call of each bucket is inside its budget. Cancelling the wait may waste its slot.
    pub async fn pass(&self, buckets: &[Bucket]) {
        for bucket in buckets {
            loop {
                let at = self.reserve(bucket);
                self.clock.sleep_until(at).await;
                if self.blocked_until(bucket) <= self.clock.now() {
                    break;
                }
            }
        }
    }

    /// Lets nobody through until the provider's pause has passed, and then one after the other: its own bucket is empty,
    /// whatever this one held. Works for unlimited buckets too.
    pub fn block(&self, bucket: &Bucket, pause: Duration) {
        let now = self.clock.now();
        let until = later(now, pause);
        let emptied = self.budgets.of(bucket).map_or(now, |budget| {
            let (gap, burst) = budget.used();
            later(until, gap.saturating_mul(burst - 1))
        });
        let mut buckets = locked(&self.buckets);
        buckets.sweep(now);
        let state = buckets.states.entry(bucket.clone()).or_insert(State { full_at: now, blocked_until: now });
        state.blocked_until = state.blocked_until.max(until);
        state.full_at = state.full_at.max(emptied);
    }

    fn blocked_until(&self, bucket: &Bucket) -> Timestamp {
        locked(&self.buckets).states.get(bucket).map_or(Timestamp::MIN, |state| state.blocked_until)
    }

    /// The next free slot of a bucket.
    fn reserve(&self, bucket: &Bucket) -> Timestamp {
        let now = self.clock.now();
        let mut buckets = locked(&self.buckets);
        let Some(budget) = self.budgets.of(bucket) else {
            return buckets.states.get(bucket).map_or(now, |state| state.blocked_until.max(now));
        };
        buckets.sweep(now);
        let state = buckets.states.entry(bucket.clone()).or_insert(State { full_at: now, blocked_until: now });
        let (gap, burst) = budget.used();
        let start = state.full_at.max(now).max(state.blocked_until);
        state.full_at = later(start, gap);
        earlier(state.full_at, gap.saturating_mul(burst)).max(now).max(state.blocked_until)
    }

    /// Notes that the operation of a cluster is being polled, and answers how long to leave it alone: at least `base`,
    /// and longer where so many are in flight in its subscription that asking for each would exceed the budget of
    /// [`Bucket::Operation`]. Never more than ten minutes: beyond that the bucket itself holds them back.
    pub fn interval(&self, subscription: &str, cluster: &str, base: Duration) -> Duration {
        const LONGEST: Duration = Duration::from_secs(600);
        const FORGET: Duration = Duration::from_secs(3600);
        let now = self.clock.now();
        let mut flights = locked(&self.flights);
        let flights = flights.entry(subscription.to_owned()).or_default();
        flights.seen.insert(cluster.to_owned(), now);
        if flights.swept.is_none_or(|at| later(at, LONGEST) < now) {
            flights.seen.retain(|_, seen| later(*seen, FORGET) >= now);
            flights.swept = Some(now);
        }
        let Some(budget) = self.budgets.operation else { return base };
        let wanted = flights.seen.len() as f64 / (budget.per_second * SHARE).max(1e-6);
        base.max(Duration::from_secs_f64(wanted).min(LONGEST))
    }

    /// Notes that the operation of a cluster has ended.
    pub fn landed(&self, subscription: &str, cluster: &str) {
        let mut flights = locked(&self.flights);
        if let Some(of) = flights.get_mut(subscription) {
            of.seen.remove(cluster);
            if of.seen.is_empty() {
                flights.remove(subscription);
            }
        }
    }

    /// Buckets that are kept in mind.
    #[cfg(test)]
    fn kept(&self) -> usize {
        locked(&self.buckets).states.len()
    }
}

impl Buckets {
    /// Forgets full buckets: a new one is full too.
    fn sweep(&mut self, now: Timestamp) {
        if self.states.len() >= self.swept_at + SWEEP_EVERY {
            self.states.retain(|_, state| state.full_at > now || state.blocked_until > now);
            self.swept_at = self.states.len();
        }
    }
}

/// A lock that a panic elsewhere does not close: what it guards is valid between any two statements.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.saturating_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flotta_clock::Anchor;

    use super::*;

    fn clock() -> Clock {
        Clock::scaled(Anchor { domain: "2026-01-01T00:00:00Z".parse().expect("time"), speed: 1.0 })
    }

    #[tokio::test(start_paused = true)]
    async fn d5_a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let clock = clock();
        let pace = Pace::new(Budgets::azure(), clock);
        let bucket = [Bucket::PutCluster("c".into())];
        let start = clock.now();
        for _ in 0..16 {
            pace.pass(&bucket).await;
        }
        assert!(clock.now().duration_since(start) < SignedDuration::from_secs(1), "16 of 20 pass at once");
        pace.pass(&bucket).await;
        let passed = clock.now().duration_since(start);
        assert!((74..76).contains(&passed.as_secs()), "the 17th waits for 1 / (0.8 a minute): {passed:?}");
        pace.pass(&[Bucket::PutCluster("other".into())]).await;
        assert_eq!(clock.now().duration_since(start).as_secs(), passed.as_secs(), "others are not held back");
    }

    #[tokio::test(start_paused = true)]
    async fn d5_a_pause_asked_for_holds_back_even_those_that_already_wait() {
        let clock = clock();
        let pace = Arc::new(Pace::new(Budgets::azure(), clock));
        let bucket = Bucket::Operation("s".into());
        for _ in 0..160 {
            pace.pass(std::slice::from_ref(&bucket)).await;
        }
        let start = clock.now();
        let waiting = tokio::spawn({
            let (pace, bucket) = (pace.clone(), bucket.clone());
            async move { pace.pass(&[bucket]).await }
        });
        tokio::task::yield_now().await;
        pace.block(&bucket, Duration::from_secs(36));
        waiting.await.expect("waiter");
        assert!(clock.now().duration_since(start) >= SignedDuration::from_secs(36));
    }

    #[tokio::test(start_paused = true)]
    async fn d5_after_a_pause_the_bucket_is_taken_to_be_empty() {
        let clock = clock();
        let pace = Pace::new(Budgets::azure(), clock);
        let (bucket, start) = (Bucket::Other("s".into()), clock.now());
        pace.block(&bucket, Duration::from_secs(10));
        for _ in 0..9 {
            pace.pass(std::slice::from_ref(&bucket)).await;
        }
        let passed = clock.now().duration_since(start).as_secs_f64();
        assert!((19.9..20.2).contains(&passed), "one after the pause, eight more at 0.8 a second: {passed}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_without_budgets_too() {
        let clock = clock();
        let pace = Pace::new(Budgets::unlimited(), clock);
        let (bucket, start) = (Bucket::Other("s".into()), clock.now());
        for _ in 0..1000 {
            pace.pass(std::slice::from_ref(&bucket)).await;
        }
        assert_eq!(clock.now(), start);
        pace.block(&bucket, Duration::from_secs(2));
        pace.pass(&[bucket]).await;
        assert!(clock.now().duration_since(start) >= SignedDuration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_buckets_are_forgotten() {
        let clock = clock();
        let pace = Pace::new(Budgets::azure(), clock);
        for index in 0..10_000 {
            pace.pass(&[Bucket::GetCluster(index.to_string())]).await;
            clock.pause(Duration::from_millis(100)).await;
        }
        assert!(pace.kept() < 2 * SWEEP_EVERY, "{}", pace.kept());
    }

    #[tokio::test(start_paused = true)]
    async fn d5_the_poll_interval_grows_with_what_is_in_flight() {
        let pace = Pace::new(Budgets::azure(), clock());
        let base = Duration::from_secs(15);
        assert_eq!(pace.interval("s", "c0", base), base);
        for index in 0..100 {
            pace.interval("s", &format!("c{index}"), base);
        }
        assert_eq!(pace.interval("s", "c0", base), Duration::from_secs_f64(100.0 / 1.6));
        assert_eq!(pace.interval("other", "c0", base), base);
        for index in 1..100 {
            pace.landed("s", &format!("c{index}"));
        }
        assert_eq!(pace.interval("s", "c0", base), base);
    }
}
