//! What only a store on disk can show: it survives, it is alone, and it recovers.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use flotta_store::{Append, Batch, Collection, Expect, Put, Snapshot, SqlStore, Store, StoreError};
use jiff::Timestamp;
use sqlx::{AnyConnection, Connection};
use uuid::Uuid;

/// The folder that a child process writes to until it is killed.
const CHILD: &str = "FLOTTA_STORE_CHILD";
/// The journal that it writes.
const JOURNAL: Uuid = Uuid::from_u128(7);

fn numbered(number: u64) -> Batch {
    let body = format!("{number}");
    let put = |key: String| Put {
        collection: Collection::Meta,
        key,
        parent: String::new(),
        body: body.clone(),
        etag: body.clone(),
        expect: Expect::Any,
    };
    Batch {
        puts: vec![put(format!("document {number}")), put("newest".to_owned())],
        appends: vec![Append {
            journal: JOURNAL,
            after: number - 1,
            entries: vec![(Timestamp::UNIX_EPOCH, body.clone())],
        }],
        snapshots: vec![(JOURNAL, Snapshot { number, body })],
        ..Batch::default()
    }
}

async fn open(dir: &Path) -> SqlStore {
    SqlStore::open_sqlite(dir).await.expect("open")
}

/// A connection of our own, to meddle with the database behind the store's back.
async fn raw(dir: &Path) -> AnyConnection {
    sqlx::any::install_default_drivers();
    AnyConnection::connect(&format!("sqlite://{}/flotta.db", dir.display())).await.expect("connect")
}

async fn meddle(dir: &Path, sql: &'static str) {
    let mut connection = raw(dir).await;
    sqlx::raw_sql(sql).execute(&mut connection).await.expect("statement");
    connection.close().await.expect("close");
}

/// Documents, newest, snapshot and journal must tell the same story; returns how far it goes.
async fn whole_up_to(store: &SqlStore) -> u64 {
    let entries = store.journal(JOURNAL, 0, 1_000_000).await.expect("journal");
    let count = entries.len() as u64;
    assert!(entries.iter().map(|entry| entry.number).eq(1..=count), "gaps");
    assert!(entries.iter().all(|entry| entry.body == entry.number.to_string()));
    let snapshot = store.snapshot(JOURNAL).await.expect("snapshot").expect("snapshot");
    let newest = store.get(Collection::Meta, "newest").await.expect("get").expect("newest");
    assert_eq!((snapshot.number, newest.body), (count, count.to_string()));
    assert_eq!(store.scan(Collection::Meta, None, 1_000_000).await.expect("scan").len() as u64, count + 1);
    count
}

#[tokio::test]
async fn everything_is_found_again_after_reopening() {
    let dir = tempfile::tempdir().expect("folder");
    // A folder that does not exist yet, with a name that means something in a URL.
    let folder: PathBuf = dir.path().join("a b/100%20 ?mode=memory#ü");
    let store = open(&folder).await;
    for number in 1..=10 {
        store.commit(numbered(number)).await.expect("commit");
    }
    let before = store.scan(Collection::Meta, None, 100).await.expect("scan");
    store.close().await;
    assert!(folder.join("flotta.db").is_file());

    let store = open(&folder).await;
    assert_eq!(whole_up_to(&store).await, 10);
    assert_eq!(store.scan(Collection::Meta, None, 100).await.expect("scan"), before);
    store.commit(numbered(11)).await.expect("commit");
    let after = store.scan(Collection::Meta, None, 100).await.expect("scan");
    assert!(after.last().expect("document").serial > before.last().expect("document").serial);
}

#[tokio::test]
async fn serials_are_not_used_again_after_reopening() {
    let dir = tempfile::tempdir().expect("folder");
    let store = open(dir.path()).await;
    store.commit(numbered(1)).await.expect("commit");
    let before = store.scan(Collection::Meta, None, 10).await.expect("scan");
    let deletes = before.iter().map(|document| flotta_store::Delete {
        collection: document.collection,
        key: document.key.clone(),
        expect: Expect::Present,
    });
    store.commit(Batch { deletes: deletes.collect(), ..Batch::default() }).await.expect("delete");
    store.close().await;
    let store = open(dir.path()).await;
    store.commit(numbered(2)).await.expect("commit");
    let after = store.scan(Collection::Meta, None, 10).await.expect("scan");
    assert!(after[0].serial > before.last().expect("document").serial);
}

#[tokio::test]
async fn a_second_server_is_refused_while_the_first_lives() {
    let dir = tempfile::tempdir().expect("folder");
    let first = open(dir.path()).await;
    let refused = SqlStore::open_sqlite(dir.path()).await.expect_err("refused").to_string();
    assert!(refused.contains("another server") && refused.contains(&dir.path().display().to_string()), "{refused}");
    first.commit(numbered(1)).await.expect("the first is unharmed");
    drop(first);
    let second = open(dir.path()).await;
    assert_eq!(whole_up_to(&second).await, 1);
}

#[tokio::test]
async fn batches_handed_over_before_the_drop_are_committed() {
    let dir = tempfile::tempdir().expect("folder");
    let store = Arc::new(open(dir.path()).await);
    let given_up = {
        let store = store.clone();
        tokio::spawn(async move { store.commit(numbered(1)).await })
    };
    tokio::task::yield_now().await;
    given_up.abort();
    let _ = given_up.await;
    drop(store);
    assert_eq!(whole_up_to(&open(dir.path()).await).await, 1);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let dir = tempfile::tempdir().expect("folder");
    open(dir.path()).await.close().await;
    meddle(dir.path(), "UPDATE schema_version SET version = version + 1").await;
    let refused = SqlStore::open_sqlite(dir.path()).await.expect_err("refused").to_string();
    assert!(refused.contains("version 2") && refused.contains("newer"), "{refused}");
    meddle(dir.path(), "UPDATE schema_version SET version = version - 1").await;
    open(dir.path()).await.commit(numbered(1)).await.expect("untouched by the refusal");
}

#[tokio::test]
async fn what_is_no_database_is_refused() {
    let dir = tempfile::tempdir().expect("folder");
    std::fs::write(dir.path().join("flotta.db"), "not a database, but long enough to be taken for one".repeat(100))
        .expect("write");
    let refused = SqlStore::open_sqlite(dir.path()).await.expect_err("refused").to_string();
    assert!(refused.contains(&dir.path().display().to_string()), "{refused}");
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_look_into_the_data_folder() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("folder");
    let folder = dir.path().join("data");
    let _store = open(&folder).await;
    assert_eq!(std::fs::metadata(folder).expect("metadata").permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_failed_write_leaves_nothing_and_the_next_one_works() {
    let dir = tempfile::tempdir().expect("folder");
    let store = open(dir.path()).await;
    store.commit(numbered(1)).await.expect("commit");
    // Snapshots are written last, so that documents and entries are already there when it fails.
    meddle(
        dir.path(),
        "CREATE TRIGGER broken BEFORE INSERT ON snapshots BEGIN SELECT RAISE(ABORT, 'disk of the test'); END",
    )
    .await;
    for _ in 0..3 {
        let failed = store.commit(numbered(2)).await.expect_err("failed");
        assert!(matches!(failed, StoreError::Failed(_)), "{failed:?}");
        assert!(!failed.to_string().contains("disk of the test"), "internals stay in the log: {failed}");
        assert_eq!(whole_up_to(&store).await, 1);
    }
    meddle(dir.path(), "DROP TRIGGER broken").await;
    store.commit(numbered(2)).await.expect("commit");
    assert_eq!(whole_up_to(&store).await, 2);
}

/// On a runtime of one thread, what is polled together reaches the writer together.
#[tokio::test]
async fn a_failed_write_fails_everyone_in_the_transaction() {
    let dir = tempfile::tempdir().expect("folder");
    let store = open(dir.path()).await;
    store.commit(numbered(1)).await.expect("commit");
    meddle(dir.path(), "CREATE TRIGGER broken BEFORE INSERT ON snapshots BEGIN SELECT RAISE(ABORT, 'broken'); END")
        .await;
    let other = Uuid::from_u128(8);
    let entries = vec![(Timestamp::UNIX_EPOCH, "1".to_owned())];
    let innocent = Batch { appends: vec![Append { journal: other, after: 0, entries }], ..Batch::default() };
    let refused = Batch { appends: vec![Append { journal: other, after: 9, entries: vec![] }], ..Batch::default() };
    let (first, second, third) =
        tokio::join!(biased; store.commit(innocent.clone()), store.commit(numbered(2)), store.commit(refused));
    for result in [first, second, third] {
        assert!(matches!(result, Err(StoreError::Failed(_))), "{result:?}");
    }
    assert_eq!(store.journal(other, 0, 10).await, Ok(vec![]));
    assert_eq!(whole_up_to(&store).await, 1);
    store.commit(innocent).await.expect("nothing is wrong with it");
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_was_answered() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir().expect("folder");
    let mut so_far = 0;
    // Killed early, later, and right away after reopening.
    for acknowledged in [40, 150, 1] {
        let mut child = Command::new(std::env::current_exe().expect("test binary"))
            .args(["--exact", "a_killed_process_loses_nothing_that_was_answered", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("child");
        let mut lines = BufReader::new(child.stdout.take().expect("output")).lines();
        let mut answered = Vec::new();
        while let Some(Ok(line)) = lines.next() {
            answered.extend(line.strip_prefix("answered ").and_then(|number| number.parse::<u64>().ok()));
            if answered.len() == acknowledged {
                child.kill().expect("kill");
            }
        }
        child.wait().expect("wait");
        assert!(answered.len() >= acknowledged, "the child ended by itself after {}", answered.len());

        let store = open(dir.path()).await;
        let found = whole_up_to(&store).await;
        let last = answered.last().copied().expect("answers");
        assert!(last > so_far && found >= last, "answered up to {last}, found up to {found}");
        so_far = found;
        store.close().await;
    }
}

async fn write_until_killed(dir: &Path) {
    let store = open(dir).await;
    let last = store.snapshot(JOURNAL).await.expect("snapshot").map_or(0, |snapshot| snapshot.number);
    println!();
    for number in last + 1..last + 1_000_000 {
        store.commit(numbered(number)).await.expect("commit");
        println!("answered {number}");
        std::io::stdout().flush().expect("flush");
    }
}
