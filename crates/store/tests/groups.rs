//! Many batches in one transaction must come out as if each had been committed alone, one after the other.

use std::sync::Arc;

use flotta_store::{
    Append, Batch, Collection, Delete, Document, Entry, Expect, MemoryStore, Put, Snapshot, SqlStore, Store,
};
use jiff::Timestamp;
use uuid::Uuid;

const COLLECTIONS: [Collection; 2] = [Collection::Claims, Collection::Runs];
const JOURNALS: [Uuid; 3] = [Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3)];

/// A small generator (splitmix64), so that a seed tells the whole test.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (drawn ^ (drawn >> 31)) % bound
    }

    fn expect(&mut self) -> Expect {
        match self.below(5) {
            0 | 1 => Expect::Any,
            2 => Expect::Absent,
            3 => Expect::Present,
            _ => Expect::Etag(self.below(3).to_string()),
        }
    }

    /// Few names and numbers, so that batches meet.
    fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..self.below(3) {
            let (collection, key) = (COLLECTIONS[self.below(2) as usize], self.below(4).to_string());
            let (parent, etag, expect) = (self.below(2).to_string(), self.below(3).to_string(), self.expect());
            let body = self.below(1000).to_string();
            batch.puts.push(Put { collection, key, parent, body, etag, expect });
        }
        if self.below(3) == 0 {
            let (collection, key) = (COLLECTIONS[self.below(2) as usize], self.below(4).to_string());
            batch.deletes.push(Delete { collection, key, expect: self.expect() });
        }
        if self.below(2) == 0 {
            let entries = (0..self.below(3)).map(|_| (Timestamp::UNIX_EPOCH, self.below(1000).to_string())).collect();
            let (journal, after) = (JOURNALS[self.below(3) as usize], self.below(5));
            batch.appends.push(Append { journal, after, entries });
        }
        if self.below(4) == 0 {
            let snapshot = Snapshot { number: self.below(5), body: self.below(1000).to_string() };
            batch.snapshots.push((JOURNALS[self.below(3) as usize], snapshot));
        }
        if self.below(8) == 0 {
            batch.forget.push(JOURNALS[self.below(3) as usize]);
        }
        batch
    }
}

type Journal = (Vec<Entry>, Option<Snapshot>);

/// All that a store holds.
async fn contents(store: &dyn Store) -> (Vec<Document>, Vec<Journal>) {
    let mut documents = Vec::new();
    for collection in COLLECTIONS {
        documents.extend(store.scan(collection, None, 1000).await.expect("scan"));
    }
    let mut journals = Vec::new();
    for journal in JOURNALS {
        let entries = store.journal(journal, 0, 10_000).await.expect("journal");
        journals.push((entries, store.snapshot(journal).await.expect("snapshot")));
    }
    (documents, journals)
}

#[tokio::test]
async fn a_group_comes_out_as_its_batches_one_after_the_other() {
    let dir = tempfile::tempdir().expect("folder");
    let sql = Arc::new(SqlStore::open_sqlite(dir.path()).await.expect("store"));
    let memory = MemoryStore::new();
    let (mut done, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut draw = Draw(seed);
        let batches: Vec<Batch> = (0..1 + draw.below(50)).map(|_| draw.batch()).collect();
        let mut expected = Vec::new();
        for batch in &batches {
            expected.push(memory.commit(batch.clone()).await);
        }
        // On a runtime of one thread they are handed over in this order before the writer takes its turn.
        let commits: Vec<_> = batches
            .iter()
            .cloned()
            .map(|batch| {
                let sql = sql.clone();
                tokio::spawn(async move { sql.commit(batch).await })
            })
            .collect();
        for (number, (commit, expected)) in commits.into_iter().zip(expected).enumerate() {
            let got = commit.await.expect("task");
            assert_eq!(got, expected, "seed {seed}, batch {number}: {:#?}", batches[number]);
            *(if got.is_ok() { &mut done } else { &mut refused }) += 1;
        }
        assert_eq!(contents(&*sql).await, contents(&memory).await, "seed {seed}: {batches:#?}");
    }
    assert!(done > 300 && refused > 300, "{done} done, {refused} refused");
}
