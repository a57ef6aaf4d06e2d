//! The rules of a commit that do not depend on where things are stored.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::{Batch, Collection, Document, Expect, Put, StoreError};

/// What a batch is checked against.
pub(crate) trait State {
    /// The document, if there is one.
    fn document(&self, collection: Collection, key: &str) -> Option<&Document>;

    /// The number of the journal's last entry; 0: none.
    fn last(&self, journal: Uuid) -> u64;
}

/// Refuses a batch that contradicts itself or is too large.
pub(crate) fn validate(batch: &Batch) -> Result<(), StoreError> {
    let mut documents = BTreeSet::new();
    if let Some((collection, key, _)) =
        expectations(batch).find(|(collection, key, _)| !documents.insert((*collection, *key)))
    {
        return Err(StoreError::Invalid(format!("{collection} '{key}' is named twice; merge its changes into one")));
    }
    let mut journals = BTreeSet::new();
    if let Some(append) = batch.appends.iter().find(|append| !journals.insert(append.journal)) {
        let journal = append.journal;
        return Err(StoreError::Invalid(format!("journal {journal} is appended to twice; merge its entries into one")));
    }
    let bytes = bytes(batch);
    if bytes > Batch::MOST_BYTES {
        let most = Batch::MOST_BYTES;
        return Err(StoreError::Invalid(format!("{bytes} bytes, at most {most} are allowed; split it")));
    }
    Ok(())
}

/// Checks all that a batch expects.
pub(crate) fn check(batch: &Batch, state: &impl State) -> Result<(), StoreError> {
    for (collection, key, expect) in expectations(batch) {
        let found = state.document(collection, key);
        let met = match expect {
            Expect::Any => true,
            Expect::Absent => found.is_none(),
            Expect::Present => found.is_some(),
            Expect::Etag(etag) => found.is_some_and(|found| found.etag == *etag),
        };
        if !met {
            let found = found.cloned().map(Box::new);
            return Err(StoreError::Unexpected { collection, key: key.to_owned(), found });
        }
    }
    for append in &batch.appends {
        let found = state.last(append.journal);
        if found != append.after {
            return Err(StoreError::JournalMoved { journal: append.journal, expected: append.after, found });
        }
    }
    Ok(())
}

/// The document that a put leaves: parent and serial stay as they were, `fresh` is the serial of a new one.
pub(crate) fn written(put: Put, before: Option<Document>, fresh: impl FnOnce() -> u64) -> Document {
    let (parent, serial) = match before {
        Some(before) => (before.parent, before.serial),
        None => (put.parent, fresh()),
    };
    Document { collection: put.collection, key: put.key, parent, body: put.body, etag: put.etag, serial }
}

/// Every document that a batch names, with what it expects of it.
pub(crate) fn expectations(batch: &Batch) -> impl Iterator<Item = (Collection, &str, &Expect)> {
    let puts = batch.puts.iter().map(|put| (put.collection, put.key.as_str(), &put.expect));
    let deletes = batch.deletes.iter().map(|delete| (delete.collection, delete.key.as_str(), &delete.expect));
    puts.chain(deletes)
}

fn bytes(batch: &Batch) -> usize {
    let puts: usize =
        batch.puts.iter().map(|put| put.key.len() + put.parent.len() + put.etag.len() + put.body.len()).sum();
    let entries: usize = batch.appends.iter().flat_map(|append| &append.entries).map(|(_, body)| body.len()).sum();
    let snapshots: usize = batch.snapshots.iter().map(|(_, snapshot)| snapshot.body.len()).sum();
    puts + entries + snapshots
}
