//! The domain clock: the time that engine, simulator, windows, waits and driver pacing live in.
//!
//! It is the system's time, or a scaled one (so that an hour passes in seconds), or, under tokio's paused clock, a
//! virtual one. Sockets, tokens and limits towards clients use the wall clock instead, always.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// A source of domain time. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    System,
    Scaled { started: Instant, from: Timestamp, speed: f64 },
}

/// Where a scaled clock stands, to be stored so that it goes on after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Anchor {
    /// Domain time at the anchor.
    pub domain: Timestamp,
    /// Domain seconds in a wall second.
    pub speed: f64,
}

impl Clock {
    /// The system's time.
    pub fn system() -> Self {
        Self(Kind::System)
    }

    /// A clock that stands at `anchor.domain` now and runs `anchor.speed` times as fast as the wall clock. Under
    /// tokio's paused clock it is virtual.
    pub fn scaled(anchor: Anchor) -> Self {
        Self(Kind::Scaled { started: Instant::now(), from: anchor.domain, speed: anchor.speed.max(1e-6) })
    }

    /// The domain time.
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Kind::System => Timestamp::now(),
            Kind::Scaled { started, from, speed } => {
                let passed = started.elapsed().as_secs_f64() * speed;
                from.saturating_add(SignedDuration::from_secs_f64(passed)).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Domain seconds in a wall second.
    pub fn speed(&self) -> f64 {
        match self.0 {
            Kind::System => 1.0,
            Kind::Scaled { speed, .. } => speed,
        }
    }

    /// Where the clock stands now.
    pub fn anchor(&self) -> Anchor {
        Anchor { domain: self.now(), speed: self.speed() }
    }

    /// Sleeps until the domain time is reached; at once if it has passed.
    pub async fn sleep_until(&self, until: Timestamp) {
        loop {
            let left = until.duration_since(self.now());
            if left <= SignedDuration::ZERO {
                return;
            }
            self.sleep(left.unsigned_abs()).await;
        }
    }

    /// Sleeps for a length of domain time. Long sleeps end early once a wall minute, so that callers that wait for an
    /// instant look at the clock again.
    async fn sleep(&self, length: Duration) {
        let wall = Duration::from_secs_f64((length.as_secs_f64() / self.speed()).min(60.0));
        tokio::time::sleep(wall.max(Duration::from_micros(200))).await;
    }

    /// Sleeps for a length of domain time.
    pub async fn pause(&self, length: Duration) {
        let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
        let until = self.now().saturating_add(length).unwrap_or(Timestamp::MAX);
        self.sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_hour_of_domain_time_passes_in_a_minute_of_wall_time() {
        let domain: Timestamp = "2026-01-01T00:00:00Z".parse().expect("time");
        let clock = Clock::scaled(Anchor { domain, speed: 60.0 });
        let wall = Instant::now();
        clock.pause(Duration::from_secs(3600)).await;
        let passed = wall.elapsed().as_secs_f64();
        assert!((60.0..60.1).contains(&passed), "{passed}");
        assert!(clock.now() >= domain + SignedDuration::from_hours(1));
    }
}
