//! Many random lives of a run, each repeatable by its seed.
//!
//! `FLOTTA_SEEDS=20000 cargo test -p flotta-engine --test simulation` lives more of them; a failure says how to repeat
//! the one life that failed.

mod check;
mod cloud;
mod gates;
mod plans;
mod random;
mod regions;
mod rejects;
mod rest;
mod shut;
mod tally;
mod view;
mod why;
mod world;

use std::{
    num::NonZero,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use tally::Tally;
use why::Judged;
use world::World;

/// Lives in an ordinary test: held to the invariants, and asked for reasons.
const SEEDS: u64 = 250;
const ASKED: u64 = 60;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn b5_invariants_hold_after_every_event_of_random_runs() {
    let sum = live("b5_invariants", SEEDS, Tally::add, |seed, sum: &mut Tally| {
        sum.add(&World::new(seed).live()?);
        Ok(())
    });
    for (name, count) in sum.fields() {
        println!("{name:>24} {count}");
        assert!(count > 0 || number("FLOTTA_SEED").is_some(), "no {name} in all these runs");
    }
}

#[test]
fn rule_3_a_member_starts_when_all_its_reasons_give_way_and_not_before() {
    let judged = live("rule_3", ASKED, Judged::add, why::judge);
    for (rule, [judged, entangled]) in judged.0 {
        println!("{rule:>24} left out {judged}, not to be told apart {entangled}");
        assert!(judged > entangled || number("FLOTTA_SEED").is_some(), "{rule} is hardly ever judged");
    }
}

/// Lives all lives that are asked for, on all cores; the test's name is told with the seed of a life that fails.
fn live<S: Default + Send>(
    test: &str,
    usual: u64,
    add: fn(&mut S, &S),
    life: impl Fn(u64, &mut S) -> Result<(), String> + Sync,
) -> S {
    let (first, count) = match number("FLOTTA_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("FLOTTA_SEEDS").unwrap_or(usual)),
    };
    let next = AtomicU64::new(first);
    let some = || {
        let mut sum = S::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return Ok(sum);
            }
            if let Err(broken) = life(seed, &mut sum) {
                next.store(first + count, Ordering::Relaxed);
                return Err(format!(
                    "seed {seed}: {broken}\nrepeat it with: FLOTTA_SEED={seed} cargo test -p flotta-engine --test simulation {test}"
                ));
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let sums: Vec<Result<S, String>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a life that comes to an end")).collect()
    });
    let mut sum = S::default();
    for some in sums {
        add(&mut sum, &some.unwrap_or_else(|broken| panic!("{broken}")));
    }
    sum
}
