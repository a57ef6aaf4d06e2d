//! Every rule of an update run, by name.

mod bench;
mod budgets;
mod check;
mod gates;
mod holds;
mod images;
mod limits;
mod rollup;
mod rows;
mod skip;
mod stop;
mod windows;
