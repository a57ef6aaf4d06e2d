//! The AKS driver against a small service of these tests' own, and against recorded traffic.

mod fake;
mod pacing;
mod poll;
mod read;
mod replay;
mod simulated;
mod start;
mod tokens;
mod transport;
mod windows;
