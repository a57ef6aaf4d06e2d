//! A cloud in a box: simulated AKS clusters behind the real AKS ARM API.
//!
//! A [`FleetFile`] describes the cloud: regions with their releases, clusters with their pools, how long things take and
//! what goes wrong. A [`Simulator`] answers the API of `Microsoft.ContainerService/managedClusters` for it over real
//! HTTP, in the time of a [`flotta_clock::Clock`]. Inside there is no timer and no random number: an operation gets its
//! end and its outcome when it is accepted, from a hash of seed, cluster and operation number.
//!
//! | module | what |
//! |---|---|
//! | [`fleet`] | the fleet file |
//! | `state` | a cluster, and how time changes it |
//! | `accept`, `pool` | what becomes of a write |
//! | `releases` | what a region offers, and which upgrades it allows |
//! | `wire`, `refusal`, `signed` | bodies, errors and operation URLs as AKS writes them |
//! | `throttle`, [`faults`] | request limits; faults on purpose |
//! | `simulator`, `http` | what each call is answered with |
//! | `journal`, [`record`] | what outlives the process; what was asked and accepted |

mod accept;
mod call;
mod draw;
pub mod faults;
pub mod fleet;
mod http;
mod journal;
mod pattern;
mod pool;
pub mod record;
mod refusal;
mod releases;
mod signed;
mod simulator;
mod state;
mod throttle;
mod wire;

pub use call::CallKind;
pub use faults::{Fault, FaultRule};
pub use fleet::{FleetFile, FleetFileError};
pub use record::{Accepted, Request};
pub use simulator::{ClusterSummary, Options, Simulator, SimulatorError};
