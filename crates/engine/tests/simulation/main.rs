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
    let mut sum = Tally::default();
    for seed in first..first + count {
        match World::new(seed).live() {
            Ok(tally) => sum.add(&tally),
            Err(broken) => panic!(
                "seed {seed}: {broken}\nrepeat it with: FLOTTA_SEED={seed} cargo test -p flotta-engine --test simulation"
            ),
        }
    }
    for (name, count) in sum.fields() {
        println!("{name:>24} {count}");
        assert!(count > 0 || first > 0 || number("FLOTTA_SEED").is_some(), "no {name} in all these runs");
    }
}
