//! The batches of one transaction: what they name is read at once, they are folded over it one after the other, and
//! what came out is written at once.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::AnyConnection;
use sqlx::Row;
use uuid::Uuid;

use crate::rules::{self, State};
use crate::sql::rows::Shape;
use crate::sql::{number, to_sql};
use crate::{Append, Batch, Collection, Document, Entry, Snapshot, StoreError};

const DOCUMENTS: Shape = Shape {
    head: "SELECT key, parent, body, etag, serial, collection FROM documents WHERE ",
    row: "(collection = ? AND key = ?)",
    between: " OR ",
    tail: "",
};
const PUT: Shape = Shape {
    head: "INSERT INTO documents (collection, key, parent, body, etag, serial) VALUES ",
    row: "(?, ?, ?, ?, ?, ?)",
    between: ", ",
    tail: " ON CONFLICT (collection, key) DO UPDATE SET \
           parent = excluded.parent, body = excluded.body, etag = excluded.etag, serial = excluded.serial",
};
const DELETE: Shape =
    Shape { head: "DELETE FROM documents WHERE ", row: "(collection = ? AND key = ?)", between: " OR ", tail: "" };
const JOURNALS: Shape =
    Shape { head: "SELECT journal, last FROM journals WHERE journal IN (", row: "?", between: ", ", tail: ")" };
const LAST: Shape = Shape {
    head: "INSERT INTO journals (journal, last) VALUES ",
    row: "(?, ?)",
    between: ", ",
    tail: " ON CONFLICT (journal) DO UPDATE SET last = excluded.last",
};
const APPEND: Shape = Shape {
    head: "INSERT INTO entries (journal, number, at, body) VALUES ",
    row: "(?, ?, ?, ?)",
    between: ", ",
    tail: "",
};
const SNAPSHOT: Shape = Shape {
    head: "INSERT INTO snapshots (journal, number, body) VALUES ",
    row: "(?, ?, ?)",
    between: ", ",
    tail: " ON CONFLICT (journal) DO UPDATE SET number = excluded.number, body = excluded.body \
           WHERE snapshots.number <= excluded.number",
};
const FORGET: [Shape; 3] = [
    Shape { head: "DELETE FROM entries WHERE journal IN (", row: "?", between: ", ", tail: ")" },
    Shape { head: "DELETE FROM snapshots WHERE journal IN (", row: "?", between: ", ", tail: ")" },
    Shape { head: "DELETE FROM journals WHERE journal IN (", row: "?", between: ", ", tail: ")" },
];

/// What the batches of a transaction name, as it will be once they are written.
#[derive(Debug, Default)]
pub(super) struct Group {
    documents: BTreeMap<Collection, BTreeMap<String, Slot>>,
    journals: BTreeMap<Uuid, Journal>,
    /// The last serial given out.
    serial: u64,
    stored_serial: u64,
}

#[derive(Debug, Default)]
struct Slot {
    now: Option<Document>,
    changed: bool,
}

#[derive(Debug, Default)]
struct Journal {
    last: u64,
    /// What is stored goes first; what follows is added afterwards.
    forget: bool,
    appended: Vec<Entry>,
    snapshot: Option<Snapshot>,
}

impl Group {
    /// Reads all that the batches name.
    pub(super) async fn read(connection: &mut AnyConnection, batches: &[Batch]) -> Result<Self, sqlx::Error> {
        let mut group = Self::default();
        // Written first: on PostgreSQL this row is the lock that makes writers take turns (SQLite has it from BEGIN
        // IMMEDIATE), so that a lower serial never appears after a higher one was read.
        let serial = sqlx::query("UPDATE counters SET value = value WHERE name = 'serial' RETURNING value")
            .fetch_one(&mut *connection)
            .await?;
        group.serial = number(&serial, 0)?;
        group.stored_serial = group.serial;

        let named: BTreeSet<(Collection, &str)> =
            batches.iter().flat_map(rules::expectations).map(|(collection, key, _)| (collection, key)).collect();
        let rows = DOCUMENTS
            .fetch(connection, named.into_iter().collect(), |query, (collection, key)| {
                query.bind(collection.as_str()).bind(key.to_owned())
            })
            .await?;
        for row in rows {
            let name: &str = row.try_get(5)?;
            let Some(collection) = Collection::ALL.into_iter().find(|known| known.as_str() == name) else { continue };
            let document = super::document(collection, &row)?;
            let slot = Slot { now: Some(document.clone()), changed: false };
            group.documents.entry(collection).or_default().insert(document.key, slot);
        }

        let named: BTreeSet<Uuid> =
            batches.iter().flat_map(|batch| &batch.appends).map(|append| append.journal).collect();
        let rows = JOURNALS
            .fetch(connection, named.into_iter().collect(), |query, journal| query.bind(journal.to_string()))
            .await?;
        for row in rows {
            let journal: &str = row.try_get(0)?;
            let journal = journal.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            group.journals.entry(journal).or_default().last = number(&row, 1)?;
        }
        Ok(group)
    }

    /// Takes a batch in, or refuses all of it.
    pub(super) fn take(&mut self, batch: Batch) -> Result<(), StoreError> {
        rules::check(&batch, self)?;
        for put in batch.puts {
            let slot = self.documents.entry(put.collection).or_default().entry(put.key.clone()).or_default();
            let document = rules::written(put, slot.now.take(), || {
                self.serial += 1;
                self.serial
            });
            *slot = Slot { now: Some(document), changed: true };
        }
        for delete in batch.deletes {
            let slot = Slot { now: None, changed: true };
            self.documents.entry(delete.collection).or_default().insert(delete.key, slot);
        }
        for append in batch.appends {
            self.journals.entry(append.journal).or_default().append(append);
        }
        for (journal, snapshot) in batch.snapshots {
            let stored = &mut self.journals.entry(journal).or_default().snapshot;
            if stored.as_ref().is_none_or(|stored| stored.number <= snapshot.number) {
                *stored = Some(snapshot);
            }
        }
        for journal in batch.forget {
            self.journals.insert(journal, Journal { forget: true, ..Journal::default() });
        }
        Ok(())
    }

    /// Writes what the batches left.
    pub(super) async fn write(self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        if self.serial > self.stored_serial {
            sqlx::query("UPDATE counters SET value = $1 WHERE name = 'serial'")
                .bind(to_sql(self.serial))
                .execute(&mut *connection)
                .await?;
        }
        write_documents(connection, self.documents).await?;
        write_journals(connection, self.journals).await
    }
}

impl State for Group {
    fn document(&self, collection: Collection, key: &str) -> Option<&Document> {
        self.documents.get(&collection)?.get(key)?.now.as_ref()
    }

    fn last(&self, journal: Uuid) -> u64 {
        self.journals.get(&journal).map_or(0, |journal| journal.last)
    }
}

impl Journal {
    fn append(&mut self, append: Append) {
        for (at, body) in append.entries {
            self.last += 1;
            self.appended.push(Entry { number: self.last, at, body });
        }
    }
}

async fn write_documents(
    connection: &mut AnyConnection,
    documents: BTreeMap<Collection, BTreeMap<String, Slot>>,
) -> Result<(), sqlx::Error> {
    let mut puts = Vec::new();
    let mut deletes = Vec::new();
    for (collection, slots) in documents {
        for (key, slot) in slots.into_iter().filter(|(_, slot)| slot.changed) {
            match slot.now {
                Some(document) => puts.push(document),
                None => deletes.push((collection, key)),
            }
        }
    }
    DELETE.execute(connection, deletes, |query, (collection, key)| query.bind(collection.as_str()).bind(key)).await?;
    PUT.execute(connection, puts, |query, document| {
        query
            .bind(document.collection.as_str())
            .bind(document.key)
            .bind(document.parent)
            .bind(document.body)
            .bind(document.etag)
            .bind(to_sql(document.serial))
    })
    .await
}

async fn write_journals(connection: &mut AnyConnection, journals: BTreeMap<Uuid, Journal>) -> Result<(), sqlx::Error> {
    let forget: Vec<Uuid> = journals.iter().filter(|(_, journal)| journal.forget).map(|(id, _)| *id).collect();
    for shape in &FORGET {
        shape.execute(connection, forget.clone(), |query, journal| query.bind(journal.to_string())).await?;
    }
    let mut lasts = Vec::new();
    let mut entries = Vec::new();
    let mut snapshots = Vec::new();
    for (id, journal) in journals {
        if !journal.appended.is_empty() {
            lasts.push((id, journal.last));
        }
        entries.extend(journal.appended.into_iter().map(|entry| (id, entry)));
        snapshots.extend(journal.snapshot.map(|snapshot| (id, snapshot)));
    }
    LAST.execute(connection, lasts, |query, (id, last)| query.bind(id.to_string()).bind(to_sql(last))).await?;
    APPEND
        .execute(connection, entries, |query, (id, entry)| {
            query.bind(id.to_string()).bind(to_sql(entry.number)).bind(entry.at.to_string()).bind(entry.body)
        })
        .await?;
    SNAPSHOT
        .execute(connection, snapshots, |query, (id, snapshot)| {
            query.bind(id.to_string()).bind(to_sql(snapshot.number)).bind(snapshot.body)
        })
        .await
}
