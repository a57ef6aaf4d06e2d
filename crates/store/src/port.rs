//! The port: what every adapter offers, and the types it is spoken in.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

/// Where everything that must outlive the process is kept.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// One document.
    async fn get(&self, collection: Collection, key: &str) -> Result<Option<Document>, StoreError>;

    /// Documents below a parent, in the order in which they were created, after the one with the serial `after`; at
    /// most `most`, as everywhere below.
    async fn list(
        &self,
        collection: Collection,
        parent: &str,
        after: Option<u64>,
        most: u32,
    ) -> Result<Vec<Document>, StoreError>;

    /// Documents of a whole collection, in the order in which they were created.
    async fn scan(&self, collection: Collection, after: Option<u64>, most: u32) -> Result<Vec<Document>, StoreError>;

    /// Entries of a journal, after a number.
    async fn journal(&self, journal: Uuid, after: u64, most: u32) -> Result<Vec<Entry>, StoreError>;

    /// The newest snapshot of a journal.
    async fn snapshot(&self, journal: Uuid) -> Result<Option<Snapshot>, StoreError>;

    /// Changes everything in the batch, durably, or nothing. A call that is given up while it waits may still happen.
    async fn commit(&self, batch: Batch) -> Result<(), StoreError>;
}

/// The kinds of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collection {
    /// Fleets; parent: subscription and resource group.
    Fleets,
    /// Members; parent: fleet.
    Members,
    /// Update strategies; parent: fleet.
    Strategies,
    /// Update runs; parent: fleet.
    Runs,
    /// Gates that were reached; parent: fleet.
    Gates,
    /// Auto-upgrade profiles; parent: fleet.
    Profiles,
    /// What was made of auto-upgrade profiles, by the keys of these; parent: fleet.
    ProfileStates,
    /// What regions offer and have offered; key: region.
    Releases,
    /// Resolved plans of runs, named by their hash.
    Plans,
    /// Long-running operations towards our clients.
    Operations,
    /// Calls to providers that are under way, with their signed URLs; parent: run.
    InFlight,
    /// Claims of clusters; key: cluster id in lower case; parent: run.
    Claims,
    /// What the server remembers of itself.
    Meta,
}

impl Collection {
    /// Every collection.
    pub const ALL: [Self; 13] = [
        Self::Fleets,
        Self::Members,
        Self::Strategies,
        Self::Runs,
        Self::Gates,
        Self::Profiles,
        Self::ProfileStates,
        Self::Releases,
        Self::Plans,
        Self::Operations,
        Self::InFlight,
        Self::Claims,
        Self::Meta,
    ];

    /// The name it is stored under; never changes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fleets => "fleets",
            Self::Members => "members",
            Self::Strategies => "strategies",
            Self::Runs => "runs",
            Self::Gates => "gates",
            Self::Profiles => "profiles",
            Self::ProfileStates => "profile-states",
            Self::Releases => "releases",
            Self::Plans => "plans",
            Self::Operations => "operations",
            Self::InFlight => "in-flight",
            Self::Claims => "claims",
            Self::Meta => "meta",
        }
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its kind.
    pub collection: Collection,
    /// Unique in its collection.
    pub key: String,
    /// What it is listed under.
    pub parent: String,
    /// JSON.
    pub body: String,
    /// Changes with every put.
    pub etag: String,
    /// Grows with every creation; kept over changes.
    pub serial: u64,
}

/// An entry of a journal: an input and the events it led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 1, 2, 3 … without gaps.
    pub number: u64,
    /// When, in domain time.
    pub at: Timestamp,
    /// JSON.
    pub body: String,
}

/// A folded state up to a number of its journal. Discardable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry folded in.
    pub number: u64,
    /// JSON.
    pub body: String,
}

/// Changes that happen together or not at all.
///
/// All that is expected is checked against what is stored before the batch, then its parts are written in the order of
/// the fields below. A batch that names a document twice (in puts and deletes taken together), or appends to a journal
/// twice, contradicts itself and is [`StoreError::Invalid`], as is one above [`Batch::MOST_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Documents to create or change.
    pub puts: Vec<Put>,
    /// Documents to delete.
    pub deletes: Vec<Delete>,
    /// Entries to append.
    pub appends: Vec<Append>,
    /// Snapshots to keep instead of older ones; one with a lower number than the stored one is ignored.
    pub snapshots: Vec<(Uuid, Snapshot)>,
    /// Journals to forget, with their snapshots.
    pub forget: Vec<Uuid>,
}

impl Batch {
    /// Bytes in a batch, all parts together.
    pub const MOST_BYTES: usize = 256 << 20;
}

/// A document to create or change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Its kind.
    pub collection: Collection,
    /// Its key.
    pub key: String,
    /// What it is listed under; fixed at creation: a put over an existing document keeps the stored one.
    pub parent: String,
    /// JSON.
    pub body: String,
    /// Its new etag.
    pub etag: String,
    /// What must be so for the batch to happen.
    pub expect: Expect,
}

/// A document to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Its kind.
    pub collection: Collection,
    /// Its key.
    pub key: String,
    /// What must be so for the batch to happen.
    pub expect: Expect,
}

/// Entries to append to a journal, the first numbered `after + 1`. Without entries it only checks where the journal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The journal.
    pub journal: Uuid,
    /// The number of the last entry there must be; 0: none.
    pub after: u64,
    /// Time and JSON of each entry.
    pub entries: Vec<(Timestamp, String)>,
}

/// What must be so of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything.
    Any,
    /// There is none.
    Absent,
    /// There is one.
    Present,
    /// There is one with this etag.
    Etag(String),
}

/// Why a store did not do as it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A document is not as expected. Nothing was changed.
    #[error("{collection:?} '{key}' is not as expected")]
    Unexpected {
        /// Its kind.
        collection: Collection,
        /// Its key.
        key: String,
        /// What is there.
        found: Option<Box<Document>>,
    },
    /// Somebody else appended. Nothing was changed.
    #[error("journal {journal} is at {found}, not at {expected}")]
    JournalMoved {
        /// The journal.
        journal: Uuid,
        /// The number expected.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The batch contradicts itself or is too large: a mistake of the caller. Nothing was changed.
    #[error("invalid batch: {0}")]
    Invalid(String),
    /// The storage itself fails. After a commit: nothing of the batch is half-written, yet where the very end of it
    /// failed, all of it may turn out to be there.
    #[error("storage: {0}")]
    Failed(String),
}
