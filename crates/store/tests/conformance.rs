//! What every adapter must do, run on each of them: in memory under a paused clock, in SQL on a real file.

use std::sync::Arc;

use flotta_store::{
    Append, Batch, Collection, Delete, Document, Entry, Expect, MemoryStore, Put, Snapshot, SqlStore, Store, StoreError,
};
use jiff::Timestamp;
use uuid::Uuid;

type Shared = Arc<dyn Store>;

/// Runs each rule on each adapter.
macro_rules! conformance {
    ($($rule:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $rule() {
                super::$rule(super::Arc::new(super::MemoryStore::new())).await;
            })*
        }
        mod sql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                let dir = tempfile::tempdir().expect("folder");
                let store = super::SqlStore::open_sqlite(dir.path()).await.expect("store");
                super::$rule(super::Arc::new(store)).await;
            })*
        }
    };
}

conformance![
    a_put_happens_only_as_expected,
    a_delete_happens_only_as_expected,
    a_change_keeps_parent_and_serial,
    serials_grow_and_are_never_used_again,
    lists_page_in_order_of_creation_within_a_parent,
    scans_page_in_order_of_creation_across_parents,
    collections_do_not_see_each_other,
    journals_grow_without_gaps_at_the_expected_number,
    journals_page,
    an_append_without_entries_only_checks,
    a_snapshot_replaces_older_ones,
    forget_takes_journal_and_snapshot_and_no_other,
    parts_are_written_in_order,
    a_failing_part_undoes_every_kind_of_change,
    everything_is_checked_before_anything_is_written,
    a_batch_that_contradicts_itself_is_refused,
    a_batch_that_is_too_large_is_refused,
    large_bodies_and_unicode_keys_come_back_whole,
    many_rows_in_a_batch,
    one_of_many_appends_at_the_same_number_wins,
    one_of_many_claims_wins,
    concurrent_writers_of_many_journals_lose_nothing,
];

const C: Collection = Collection::Members;

fn put(key: &str, etag: &str, expect: Expect) -> Put {
    Put {
        collection: C,
        key: key.to_owned(),
        parent: "fleet".to_owned(),
        body: format!("{{\"of\":\"{etag}\"}}"),
        etag: etag.to_owned(),
        expect,
    }
}

fn puts(puts: impl IntoIterator<Item = Put>) -> Batch {
    Batch { puts: puts.into_iter().collect(), ..Batch::default() }
}

fn delete(key: &str, expect: Expect) -> Batch {
    Batch { deletes: vec![Delete { collection: C, key: key.to_owned(), expect }], ..Batch::default() }
}

fn append(journal: Uuid, after: u64, bodies: &[&str]) -> Batch {
    let entries = bodies.iter().map(|body| (time(after), (*body).to_owned())).collect();
    Batch { appends: vec![Append { journal, after, entries }], ..Batch::default() }
}

fn snapshot(journal: Uuid, number: u64, body: &str) -> Batch {
    Batch { snapshots: vec![(journal, Snapshot { number, body: body.to_owned() })], ..Batch::default() }
}

fn forget(journal: Uuid) -> Batch {
    Batch { forget: vec![journal], ..Batch::default() }
}

/// A time with nanoseconds, which must survive.
fn time(second: u64) -> Timestamp {
    Timestamp::new(1_800_000_000 + i64::try_from(second).expect("small"), 123_456_789).expect("time")
}

async fn keys(store: &Shared) -> Vec<String> {
    store.scan(C, None, 1000).await.expect("scan").into_iter().map(|document| document.key).collect()
}

/// The three states a document can be in before a change, and what each expectation makes of them.
fn expectations() -> Vec<(Expect, [bool; 3])> {
    // absent, there with etag "1", there with another etag
    vec![
        (Expect::Any, [true, true, true]),
        (Expect::Absent, [true, false, false]),
        (Expect::Present, [false, true, true]),
        (Expect::Etag("1".to_owned()), [false, true, false]),
    ]
}

/// Brings about one of the three states for a fresh key.
async fn prepared(store: &Shared, state: usize, key: &str) -> Option<Document> {
    if state > 0 {
        let etag = if state == 1 { "1" } else { "other" };
        store.commit(puts([put(key, etag, Expect::Absent)])).await.expect("prepare");
    }
    store.get(C, key).await.expect("get")
}

async fn a_put_happens_only_as_expected(store: Shared) {
    for (expect, outcomes) in expectations() {
        for (state, happens) in outcomes.into_iter().enumerate() {
            let key = format!("{expect:?} {state}");
            let before = prepared(&store, state, &key).await;
            let result = store.commit(puts([put(&key, "2", expect.clone())])).await;
            let after = store.get(C, &key).await.expect("get");
            if happens {
                assert_eq!(result, Ok(()), "{key}");
                let after = after.expect("document");
                assert_eq!((after.etag.as_str(), after.body.as_str()), ("2", "{\"of\":\"2\"}"), "{key}");
            } else {
                let found = before.clone().map(Box::new);
                assert_eq!(result, Err(StoreError::Unexpected { collection: C, key: key.clone(), found }), "{key}");
                assert_eq!(after, before, "{key}");
            }
        }
    }
}

async fn a_delete_happens_only_as_expected(store: Shared) {
    for (expect, outcomes) in expectations() {
        for (state, happens) in outcomes.into_iter().enumerate() {
            let key = format!("{expect:?} {state}");
            let before = prepared(&store, state, &key).await;
            let result = store.commit(delete(&key, expect.clone())).await;
            let after = store.get(C, &key).await.expect("get");
            if happens {
                assert_eq!((result, after), (Ok(()), None), "{key}");
            } else {
                let found = before.clone().map(Box::new);
                assert_eq!(result, Err(StoreError::Unexpected { collection: C, key: key.clone(), found }), "{key}");
                assert_eq!(after, before, "{key}");
            }
        }
    }
}

async fn a_change_keeps_parent_and_serial(store: Shared) {
    store.commit(puts([put("a", "1", Expect::Absent), put("b", "1", Expect::Absent)])).await.expect("create");
    let before = store.get(C, "a").await.expect("get").expect("document");
    let moved = Put { parent: "elsewhere".to_owned(), ..put("a", "2", Expect::Present) };
    store.commit(puts([moved])).await.expect("change");
    let after = store.get(C, "a").await.expect("get");
    let expected = Document { etag: "2".to_owned(), body: "{\"of\":\"2\"}".to_owned(), ..before };
    assert_eq!(after, Some(expected));
    assert_eq!(keys(&store).await, ["a", "b"]);
    assert_eq!(store.list(C, "elsewhere", None, 10).await.expect("list"), []);
    assert_eq!(store.list(C, "fleet", None, 10).await.expect("list").len(), 2);
}

async fn serials_grow_and_are_never_used_again(store: Shared) {
    let mut last = 0;
    for round in 0..5 {
        store.commit(puts([put("a", "1", Expect::Absent)])).await.expect("create");
        let serial = store.get(C, "a").await.expect("get").expect("document").serial;
        assert!(serial > last, "round {round}: {serial} after {last}");
        last = serial;
        store.commit(delete("a", Expect::Present)).await.expect("delete");
    }
}

async fn lists_page_in_order_of_creation_within_a_parent(store: Shared) {
    // Created in the reverse order of their keys, among documents of another parent.
    for number in (0..7).rev() {
        let other = Put { parent: "other".to_owned(), ..put(&format!("other{number}"), "1", Expect::Any) };
        store.commit(puts([put(&format!("{number}"), "1", Expect::Any), other])).await.expect("create");
    }
    let (mut after, mut seen, mut pages) = (None, Vec::new(), Vec::new());
    loop {
        let page = store.list(C, "fleet", after, 3).await.expect("list");
        let Some(last) = page.last() else { break };
        after = Some(last.serial);
        pages.push(page.len());
        seen.extend(page.into_iter().map(|document| document.key));
    }
    assert_eq!(pages, [3, 3, 1]);
    assert_eq!(seen, ["6", "5", "4", "3", "2", "1", "0"]);
    assert_eq!(store.list(C, "flee", None, 10).await.expect("list"), []);
    assert_eq!(store.list(C, "fleet", Some(u64::MAX), 10).await.expect("list"), []);
}

async fn scans_page_in_order_of_creation_across_parents(store: Shared) {
    for number in (0..5).rev() {
        let parent = format!("parent {}", number % 2);
        let created = Put { parent, ..put(&format!("{number}"), "1", Expect::Any) };
        store.commit(puts([created])).await.expect("create");
    }
    let first = store.scan(C, None, 2).await.expect("scan");
    let rest = store.scan(C, first.last().map(|document| document.serial), 10).await.expect("scan");
    let seen: Vec<_> = first.iter().chain(&rest).map(|document| document.key.as_str()).collect();
    assert_eq!((first.len(), seen), (2, vec!["4", "3", "2", "1", "0"]));
}

async fn collections_do_not_see_each_other(store: Shared) {
    for collection in Collection::ALL {
        let body = format!("\"{collection}\"");
        let created = Put { collection, body, ..put("same", "1", Expect::Absent) };
        store.commit(puts([created])).await.expect("create");
    }
    let gone = Delete { collection: Collection::Runs, key: "same".to_owned(), expect: Expect::Present };
    store.commit(Batch { deletes: vec![gone], ..Batch::default() }).await.expect("delete");
    for collection in Collection::ALL {
        let expected = (collection != Collection::Runs).then(|| format!("\"{collection}\""));
        let found = store.get(collection, "same").await.expect("get");
        assert_eq!(found.as_ref().map(|document| &document.body), expected.as_ref());
        assert!(found.as_ref().is_none_or(|document| document.collection == collection));
        assert_eq!(store.scan(collection, None, 10).await.expect("scan").len(), usize::from(expected.is_some()));
        assert_eq!(
            store.list(collection, "fleet", None, 10).await.expect("list").len(),
            usize::from(expected.is_some())
        );
    }
}

async fn journals_grow_without_gaps_at_the_expected_number(store: Shared) {
    let journal = Uuid::now_v7();
    assert_eq!(store.journal(journal, 0, 10).await, Ok(vec![]));
    store.commit(append(journal, 0, &["a", "b"])).await.expect("append");
    for (expected, found) in [(0, 2), (1, 2), (3, 2)] {
        let result = store.commit(append(journal, expected, &["x"])).await;
        assert_eq!(result, Err(StoreError::JournalMoved { journal, expected, found }));
    }
    store.commit(append(journal, 2, &["c"])).await.expect("append");
    let expected = [(1, 0, "a"), (2, 0, "b"), (3, 2, "c")].map(|(number, second, body)| Entry {
        number,
        at: time(second),
        body: body.to_owned(),
    });
    assert_eq!(store.journal(journal, 0, 10).await, Ok(expected.to_vec()));
    assert_eq!(store.journal(Uuid::now_v7(), 0, 10).await, Ok(vec![]));
}

async fn journals_page(store: Shared) {
    let journal = Uuid::now_v7();
    store.commit(append(journal, 0, &["1", "2", "3", "4", "5"])).await.expect("append");
    for (after, most, expected) in
        [(0, 2, vec![1, 2]), (2, 2, vec![3, 4]), (4, 2, vec![5]), (5, 2, vec![]), (u64::MAX, 2, vec![]), (0, 0, vec![])]
    {
        let page = store.journal(journal, after, most).await.expect("page");
        let numbers: Vec<_> = page.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, expected, "after {after}, most {most}");
    }
}

async fn an_append_without_entries_only_checks(store: Shared) {
    let journal = Uuid::now_v7();
    store.commit(append(journal, 0, &[])).await.expect("at 0");
    store.commit(append(journal, 0, &["a"])).await.expect("append");
    store.commit(append(journal, 1, &[])).await.expect("at 1");
    let moved = store.commit(append(journal, 0, &[])).await;
    assert_eq!(moved, Err(StoreError::JournalMoved { journal, expected: 0, found: 1 }));
    assert_eq!(store.journal(journal, 0, 10).await.expect("journal").len(), 1);
}

async fn a_snapshot_replaces_older_ones(store: Shared) {
    let (journal, other) = (Uuid::now_v7(), Uuid::now_v7());
    assert_eq!(store.snapshot(journal).await, Ok(None));
    store.commit(snapshot(other, 9, "other")).await.expect("snapshot");
    for (number, body, newest) in [(5, "a", (5, "a")), (7, "b", (7, "b")), (6, "c", (7, "b")), (7, "d", (7, "d"))] {
        store.commit(snapshot(journal, number, body)).await.expect("snapshot");
        let expected = Snapshot { number: newest.0, body: newest.1.to_owned() };
        assert_eq!(store.snapshot(journal).await, Ok(Some(expected)));
    }
    assert_eq!(store.snapshot(other).await, Ok(Some(Snapshot { number: 9, body: "other".to_owned() })));
}

async fn forget_takes_journal_and_snapshot_and_no_other(store: Shared) {
    let (journal, other) = (Uuid::now_v7(), Uuid::now_v7());
    for id in [journal, other] {
        store.commit(append(id, 0, &["a", "b"])).await.expect("append");
        store.commit(snapshot(id, 2, "s")).await.expect("snapshot");
    }
    store.commit(forget(journal)).await.expect("forget");
    store.commit(forget(journal)).await.expect("forget what is gone");
    assert_eq!((store.journal(journal, 0, 10).await, store.snapshot(journal).await), (Ok(vec![]), Ok(None)));
    assert_eq!(store.journal(other, 0, 10).await.expect("journal").len(), 2);
    assert!(store.snapshot(other).await.expect("snapshot").is_some());
    // It starts again from nothing.
    let moved = store.commit(append(journal, 2, &["c"])).await;
    assert_eq!(moved, Err(StoreError::JournalMoved { journal, expected: 2, found: 0 }));
    store.commit(append(journal, 0, &["c"])).await.expect("append");
    store.commit(snapshot(journal, 1, "t")).await.expect("snapshot");
    assert_eq!(store.journal(journal, 0, 10).await.expect("journal").len(), 1);
    assert_eq!(store.snapshot(journal).await, Ok(Some(Snapshot { number: 1, body: "t".to_owned() })));
}

async fn parts_are_written_in_order(store: Shared) {
    let journal = Uuid::now_v7();
    let batch = Batch { forget: vec![journal], ..append(journal, 0, &["a"]) };
    store.commit(Batch { snapshots: snapshot(journal, 1, "s").snapshots, ..batch }).await.expect("commit");
    assert_eq!((store.journal(journal, 0, 10).await, store.snapshot(journal).await), (Ok(vec![]), Ok(None)));
    store.commit(Batch::default()).await.expect("an empty batch is no error");
}

async fn a_failing_part_undoes_every_kind_of_change(store: Shared) {
    let (journal, forgotten, stale) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    store.commit(puts([put("there", "1", Expect::Any), put("kept", "1", Expect::Any)])).await.expect("prepare");
    store.commit(append(forgotten, 0, &["a"])).await.expect("prepare");
    store.commit(append(stale, 0, &["a"])).await.expect("prepare");
    let good = || Batch {
        puts: vec![put("new", "1", Expect::Absent), put("there", "2", Expect::Etag("1".to_owned()))],
        deletes: delete("kept", Expect::Present).deletes,
        appends: append(journal, 0, &["a"]).appends,
        snapshots: snapshot(journal, 1, "s").snapshots,
        forget: vec![forgotten],
    };
    let mut failing = vec![good(), good(), good()];
    failing[0].puts.push(put("missing", "1", Expect::Present));
    failing[1].deletes.extend(delete("missing", Expect::Etag("1".to_owned())).deletes);
    failing[2].appends.extend(append(stale, 0, &["b"]).appends);
    for batch in failing {
        store.commit(batch).await.expect_err("refused");
        assert_eq!(keys(&store).await, ["there", "kept"]);
        assert_eq!(store.get(C, "there").await.expect("get").expect("document").etag, "1");
        assert_eq!((store.journal(journal, 0, 10).await, store.snapshot(journal).await), (Ok(vec![]), Ok(None)));
        assert_eq!(store.journal(forgotten, 0, 10).await.expect("journal").len(), 1);
        assert_eq!(store.journal(stale, 0, 10).await.expect("journal").len(), 1);
    }
    store.commit(good()).await.expect("good without the failing part");
    assert_eq!(keys(&store).await, ["there", "new"]);
    assert_eq!(store.journal(journal, 0, 10).await.expect("journal").len(), 1);
    assert_eq!(store.journal(forgotten, 0, 10).await, Ok(vec![]));
}

async fn everything_is_checked_before_anything_is_written(store: Shared) {
    // The forget of a journal does not make its append at 0 right.
    let journal = Uuid::now_v7();
    store.commit(append(journal, 0, &["a"])).await.expect("append");
    let result = store.commit(Batch { forget: vec![journal], ..append(journal, 0, &["b"]) }).await;
    assert_eq!(result, Err(StoreError::JournalMoved { journal, expected: 0, found: 1 }));
    assert_eq!(store.journal(journal, 0, 10).await.expect("journal").len(), 1);
}

async fn a_batch_that_contradicts_itself_is_refused(store: Shared) {
    let journal = Uuid::now_v7();
    let mut appends = append(journal, 0, &["a"]).appends;
    appends.extend(append(journal, 1, &["b"]).appends);
    let contradictions = [
        puts([put("a", "1", Expect::Any), put("a", "2", Expect::Any)]),
        Batch { deletes: delete("a", Expect::Any).deletes, ..puts([put("a", "1", Expect::Any)]) },
        Batch { appends, ..Batch::default() },
    ];
    for batch in contradictions {
        let result = store.commit(batch).await;
        assert!(matches!(result, Err(StoreError::Invalid(_))), "{result:?}");
    }
    assert_eq!(keys(&store).await, [""; 0]);
    assert_eq!(store.journal(journal, 0, 10).await, Ok(vec![]));
}

async fn a_batch_that_is_too_large_is_refused(store: Shared) {
    let half = "x".repeat(Batch::MOST_BYTES / 2 + 1);
    let large = |key: &str| Put { body: half.clone(), ..put(key, "1", Expect::Any) };
    let result = store.commit(puts([large("a"), large("b")])).await;
    assert!(matches!(result, Err(StoreError::Invalid(_))));
    assert_eq!(keys(&store).await, [""; 0]);
}

async fn large_bodies_and_unicode_keys_come_back_whole(store: Shared) {
    let body = "ü🚢".repeat((1 << 20) / 6 + 1);
    assert!(body.len() >= 1 << 20);
    let journal = Uuid::now_v7();
    let key = "flotte/çlüster-🚢/名前/it's \"quoted\" % _ ?1 $1";
    let parent = "parent/ß'\"".to_owned();
    let batch = Batch {
        puts: vec![Put { body: body.clone(), parent: parent.clone(), ..put(key, "W/\"é\"", Expect::Absent) }],
        ..append(journal, 0, &[&body])
    };
    store.commit(Batch { snapshots: snapshot(journal, 1, &body).snapshots, ..batch }).await.expect("commit");
    let found = store.get(C, key).await.expect("get").expect("document");
    assert!(found.body == body && found.key == key && found.parent == parent && found.etag == "W/\"é\"");
    assert_eq!(store.list(C, &parent, None, 10).await.expect("list"), [found]);
    assert!(store.journal(journal, 0, 1).await.expect("journal")[0].body == body);
    assert!(store.snapshot(journal).await.expect("snapshot").expect("snapshot").body == body);
    store.commit(delete(key, Expect::Etag("W/\"é\"".to_owned()))).await.expect("delete");
    assert_eq!(store.get(C, key).await, Ok(None));
}

async fn many_rows_in_a_batch(store: Shared) {
    let many = 1_237;
    let journal = Uuid::now_v7();
    let names: Vec<String> = (0..many).map(|number| format!("{number}")).collect();
    let bodies: Vec<&str> = names.iter().map(String::as_str).collect();
    let created = puts(names.iter().map(|name| put(name, "1", Expect::Absent)));
    store.commit(Batch { appends: append(journal, 0, &bodies).appends, ..created }).await.expect("commit");
    let found = store.scan(C, None, 10_000).await.expect("scan");
    assert!(found.iter().map(|document| &document.key).eq(&names));
    let entries = store.journal(journal, 0, 10_000).await.expect("journal");
    assert!(entries.iter().map(|entry| &entry.body).eq(&names));
    assert!(entries.iter().map(|entry| entry.number).eq(1..=many));
    let gone = Batch {
        deletes: names.iter().flat_map(|name| delete(name, Expect::Etag("1".to_owned())).deletes).collect(),
        ..forget(journal)
    };
    store.commit(gone).await.expect("delete");
    assert_eq!(keys(&store).await, [""; 0]);
}

/// Commits all at once and counts who got what.
async fn race(store: &Shared, batches: Vec<Batch>) -> Vec<Result<(), StoreError>> {
    let tasks: Vec<_> = batches
        .into_iter()
        .map(|batch| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(batch).await })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("task"));
    }
    results
}

async fn one_of_many_appends_at_the_same_number_wins(store: Shared) {
    let journal = Uuid::now_v7();
    store.commit(append(journal, 0, &["first"])).await.expect("append");
    let racers: Vec<String> = (0..200).map(|racer| format!("{racer}")).collect();
    let results = race(&store, racers.iter().map(|racer| append(journal, 1, &[racer])).collect()).await;
    let winners: Vec<_> = results.iter().zip(&racers).filter(|(result, _)| result.is_ok()).collect();
    assert_eq!(winners.len(), 1);
    let lost = Err(StoreError::JournalMoved { journal, expected: 1, found: 2 });
    assert_eq!(results.iter().filter(|result| **result == lost).count(), 199);
    let entries = store.journal(journal, 0, 10).await.expect("journal");
    assert_eq!(entries.iter().map(|entry| &entry.body).collect::<Vec<_>>(), ["first", winners[0].1]);
}

async fn one_of_many_claims_wins(store: Shared) {
    let claim = |run: usize| Put { collection: Collection::Claims, ..put("cluster", &run.to_string(), Expect::Absent) };
    let results = race(&store, (0..100).map(|run| puts([claim(run)])).collect()).await;
    let winners: Vec<_> = (0..100).filter(|run| results[*run].is_ok()).collect();
    assert_eq!(winners.len(), 1);
    let claim = store.get(Collection::Claims, "cluster").await.expect("get").expect("claim");
    assert_eq!(claim.etag, winners[0].to_string());
    // Each of the others is told who holds it.
    let found = Some(Box::new(claim));
    let lost = Err(StoreError::Unexpected { collection: Collection::Claims, key: "cluster".to_owned(), found });
    assert_eq!(results.iter().filter(|result| **result == lost).count(), 99);
}

async fn concurrent_writers_of_many_journals_lose_nothing(store: Shared) {
    let journals: Vec<Uuid> = (0..20).map(|_| Uuid::now_v7()).collect();
    let tasks: Vec<_> = journals
        .iter()
        .map(|journal| {
            let (store, journal) = (store.clone(), *journal);
            tokio::spawn(async move {
                for number in 0..20 {
                    let document = put(&format!("{journal} {number}"), "1", Expect::Absent);
                    let batch = Batch { puts: vec![document], ..append(journal, number, &["x"]) };
                    store.commit(batch).await.expect("commit");
                    // What was answered is seen.
                    let seen = store.journal(journal, number, 10).await.expect("journal");
                    assert_eq!(seen.len(), 1);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("task");
    }
    let documents = store.scan(C, None, 1000).await.expect("scan");
    assert_eq!(documents.len(), 400);
    assert!(documents.is_sorted_by(|a, b| a.serial < b.serial));
    for journal in journals {
        let entries = store.journal(journal, 0, 100).await.expect("journal");
        assert!(entries.iter().map(|entry| entry.number).eq(1..=20));
    }
}
