//! flotta.
fn main() {}
