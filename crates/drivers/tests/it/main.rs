//! The AKS driver against a small service of these tests' own, and against recorded traffic.

mod fake;
mod poll;
mod start;
