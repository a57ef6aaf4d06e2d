//! The wire of `Microsoft.ContainerService/fleets`: ARM's JSON, paths, api-versions, errors, etags, paging and
//! long-running operations. No server, no I/O and no clock: values in, values out.
//!
//! | module | what |
//! |---|---|
//! | [`path`] | what a URL means, ids, query strings |
//! | [`api_version`] | the published versions and what each knows |
//! | [`error`] | refusals in ARM's shape |
//! | [`fleet`], [`member`], [`strategy`], [`run`], [`gate`], [`skip`], [`profile`] | request bodies to model types, and back |
//! | [`status`] | the status tree of an update run |
//! | [`doc`] | what a server keeps of each resource, and how it answers with it |
//! | [`conditions`] | If-Match and If-None-Match |
//! | [`paging`] | `$top`, `$skipToken`, `$filter`, next links |
//! | [`operation`] | long-running operations |
//!
//! Every refusal names the field by its JSON path, says what was got and what is allowed. Unknown and read-only
//! properties are ignored, `null` is absent, and answers leave out what is not set.

pub mod api_version;
pub mod conditions;
pub mod doc;
pub mod error;
mod field;
pub mod fleet;
pub mod gate;
pub mod member;
pub mod operation;
pub mod paging;
pub mod path;
pub mod profile;
pub mod run;
pub mod skip;
pub mod status;
pub mod strategy;
pub mod time;

pub use api_version::ApiVersion;
pub use error::ArmError;
pub use field::parse_body;
pub use path::{FleetRef, Kind, Query, Target};
