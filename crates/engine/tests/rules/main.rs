//! Every rule of an update run, by name.

mod bench;
mod check;
mod holds;
mod limits;
mod rollup;
mod skip;
mod stop;
