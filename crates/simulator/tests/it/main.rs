//! The simulated cloud over its router, in virtual time.

mod cloud;
mod durability;
mod fleets;
mod reads;
mod throttling;
mod trouble;
mod wire;
mod writes;
