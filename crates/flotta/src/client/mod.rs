//! The client of flotta's server: where it is, what it is asked, and how its answers are followed to their end.

pub mod context;
pub mod http;
pub mod resources;
