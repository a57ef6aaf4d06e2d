//! The adapter for simulation: everything in memory, no I/O, no threads, so that it works under a paused clock.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use uuid::Uuid;

use crate::rules::{self, State};
use crate::{Append, Batch, Collection, Delete, Document, Entry, Put, Snapshot, Store, StoreError};

/// A store that lives as long as the value. Share it behind an `Arc` to let it outlive a simulated crash.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    collections: BTreeMap<Collection, Table>,
    journals: BTreeMap<Uuid, Vec<Entry>>,
    snapshots: BTreeMap<Uuid, Snapshot>,
    serial: u64,
}

/// The documents of a collection, and the ways to find them.
#[derive(Debug, Default)]
struct Table {
    documents: BTreeMap<u64, Document>,
    by_key: BTreeMap<String, u64>,
    by_parent: BTreeMap<String, BTreeSet<u64>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing in here can stop half-way, so a panic elsewhere leaves the tables whole.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, collection: Collection, key: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.tables().document(collection, key).cloned())
    }

    async fn list(
        &self,
        collection: Collection,
        parent: &str,
        after: Option<u64>,
        most: u32,
    ) -> Result<Vec<Document>, StoreError> {
        let tables = self.tables();
        let Some(table) = tables.collections.get(&collection) else { return Ok(Vec::new()) };
        let Some(serials) = table.by_parent.get(parent) else { return Ok(Vec::new()) };
        let serials = serials.range((Excluded(after.unwrap_or(0)), Unbounded)).take(most as usize);
        Ok(serials.filter_map(|serial| table.documents.get(serial)).cloned().collect())
    }

    async fn scan(&self, collection: Collection, after: Option<u64>, most: u32) -> Result<Vec<Document>, StoreError> {
        let tables = self.tables();
        let Some(table) = tables.collections.get(&collection) else { return Ok(Vec::new()) };
        let documents = table.documents.range((Excluded(after.unwrap_or(0)), Unbounded)).take(most as usize);
        Ok(documents.map(|(_, document)| document.clone()).collect())
    }

    async fn journal(&self, journal: Uuid, after: u64, most: u32) -> Result<Vec<Entry>, StoreError> {
        let tables = self.tables();
        let entries = tables.journals.get(&journal).map_or(&[][..], Vec::as_slice);
        let first = usize::try_from(after).unwrap_or(usize::MAX);
        Ok(entries.iter().skip(first).take(most as usize).cloned().collect())
    }

    async fn snapshot(&self, journal: Uuid) -> Result<Option<Snapshot>, StoreError> {
        Ok(self.tables().snapshots.get(&journal).cloned())
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        rules::validate(&batch)?;
        let mut tables = self.tables();
        rules::check(&batch, &*tables)?;
        tables.write(batch);
        Ok(())
    }
}

impl State for Tables {
    fn document(&self, collection: Collection, key: &str) -> Option<&Document> {
        let table = self.collections.get(&collection)?;
        table.documents.get(table.by_key.get(key)?)
    }

    fn last(&self, journal: Uuid) -> u64 {
        self.journals.get(&journal).map_or(0, |entries| entries.len() as u64)
    }
}

impl Tables {
    fn write(&mut self, batch: Batch) {
        batch.puts.into_iter().for_each(|put| self.put(put));
        batch.deletes.iter().for_each(|delete| self.delete(delete));
        batch.appends.into_iter().for_each(|append| self.append(append));
        for (journal, snapshot) in batch.snapshots {
            if self.snapshots.get(&journal).is_none_or(|stored| stored.number <= snapshot.number) {
                self.snapshots.insert(journal, snapshot);
            }
        }
        for journal in batch.forget {
            self.journals.remove(&journal);
            self.snapshots.remove(&journal);
        }
    }

    fn put(&mut self, put: Put) {
        let before = self.document(put.collection, &put.key).cloned();
        let document = rules::written(put, before, || {
            self.serial += 1;
            self.serial
        });
        let table = self.collections.entry(document.collection).or_default();
        table.by_key.insert(document.key.clone(), document.serial);
        table.by_parent.entry(document.parent.clone()).or_default().insert(document.serial);
        table.documents.insert(document.serial, document);
    }

    fn delete(&mut self, delete: &Delete) {
        let Some(table) = self.collections.get_mut(&delete.collection) else { return };
        let Some(serial) = table.by_key.remove(&delete.key) else { return };
        let Some(document) = table.documents.remove(&serial) else { return };
        if let Some(siblings) = table.by_parent.get_mut(&document.parent) {
            siblings.remove(&serial);
            if siblings.is_empty() {
                table.by_parent.remove(&document.parent);
            }
        }
    }

    fn append(&mut self, append: Append) {
        if append.entries.is_empty() {
            return;
        }
        let numbers = append.after + 1..;
        let entries = numbers.zip(append.entries).map(|(number, (at, body))| Entry { number, at, body });
        self.journals.entry(append.journal).or_default().extend(entries);
    }
}
