//! The server over HTTP, in one process and under a virtual clock: router, orchestrator, memory store, the real AKS
//! driver, and the simulated cloud.

mod bad_input;
mod check;
mod examples;
mod fleets;
mod gates;
mod harness;
mod images;
mod lists;
mod members;
mod profiles;
mod races;
mod recorded;
mod retry;
mod runs;
mod scale;
mod strategies;
mod versions;
