//! The storage port: documents with etags, journals that are appended to at an expected number, snapshots of folded
//! runs. One atomic [`Store::commit`] changes all of them together.
//!
//! Everything that is not a journal is a [`Document`] in a [`Collection`]: fleets, members, strategies, runs, resolved
//! plans, operations, in-flight calls, claims of clusters. A claim is a document that may only be put where none is.
//!
//! Two adapters keep to the same rules, held by one conformance suite: [`MemoryStore`] for simulation, [`SqlStore`] for
//! service.

mod memory;
mod port;
mod rules;
mod sql;

pub use memory::MemoryStore;
pub use port::{Append, Batch, Collection, Delete, Document, Entry, Expect, Put, Snapshot, Store, StoreError};
pub use sql::SqlStore;
