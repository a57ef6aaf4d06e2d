//! Many random lives of a run, each repeatable by its seed.
//!
//! `FLOTTA_SEEDS=20000 cargo test -p flotta-engine --test simulation` lives more of them; a failure says how to repeat
//! the one life that failed.

mod check;
mod cloud;
mod gates;
mod plans;
mod random;
mod rejects;
mod rest;
mod shut;
mod tally;
mod view;
mod world;

use std::{
    num::NonZero,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use tally::Tally;
use world::World;

/// Lives in an ordinary test.
const SEEDS: u64 = 100;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn b5_invariants_hold_after_every_event_of_random_runs() {
    let (first, count) = match number("FLOTTA_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("FLOTTA_SEEDS").unwrap_or(SEEDS)),
    };
    let sum = live_all(first, count);
    for (name, count) in sum.fields() {
        println!("{name:>24} {count}");
        assert!(count > 0 || first > 0 || number("FLOTTA_SEED").is_some(), "no {name} in all these runs");
    }
}

/// Lives all of them, on all cores.
fn live_all(first: u64, count: u64) -> Tally {
    let next = AtomicU64::new(first);
    let some = || {
        let mut sum = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return sum;
            }
            match World::new(seed).live() {
                Ok(tally) => sum.add(&tally),
                Err(broken) => {
                    next.store(first + count, Ordering::Relaxed);
                    panic!(
                        "seed {seed}: {broken}\nrepeat it with: FLOTTA_SEED={seed} cargo test -p flotta-engine --test simulation"
                    )
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        let mut sum = Tally::default();
        threads.into_iter().for_each(|thread| sum.add(&thread.join().expect("a life that holds")));
        sum
    })
}
