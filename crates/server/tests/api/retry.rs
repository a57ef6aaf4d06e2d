//! Trying again what an earlier run left, as a new run.

use serde_json::{Value, json};

use crate::harness::{FLEET, World, members_of, stages, state_of};

/// Two clusters that can move, two whose first upgrade fails, and one that is there.
const CLOUD: &str = r"
clusters:
  - { name: good, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: other, region: westeurope, version: 1.25.5, pools: [{ name: p1 }] }
  - { name: bad, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], fails: { attempts: 1 } }
  - { name: gone, region: westeurope, version: 1.25.5, pools: [{ name: p1 }], fails: { attempts: 1 } }
  - { name: there, region: westeurope, version: 1.26.1, pools: [{ name: p1 }] }
";

/// To the newest patch of a minor, over one stage that bears failures.
fn to_minor(failures: &str) -> Value {
    let mut strategy = stages(&[("one", &["a"])]);
    strategy["stages"][0]["maxAllowedFailures"] = failures.into();
    strategy["stages"][0]["groups"][0]["maxConcurrency"] = "5".into();
    let goal = json!({"upgrade": {"type": "Full", "kubernetesVersion": "1.26"}});
    json!({"properties": {"strategy": strategy, "managedClusterUpdate": goal}})
}

/// All clusters in one group, and a run over them that has ended: `bad` and `gone` Failed, `other` Skipped by hand.
async fn ended() -> World {
    let world = World::new(CLOUD).await;
    for cluster in ["good", "other", "bad", "gone", "there"] {
        world.join(cluster, "a").await;
    }
    world.put("/updateRuns/up", to_minor("40%")).await.with(201);
    let skip = json!({"targets": [{"type": "Member", "name": "other"}]});
    world.on("POST", "/updateRuns/up/skip", &[], skip).await.with(200);
    world.start("up").await;
    let run = world.until("up", "Completed").await;
    let states: Vec<String> = members_of(&run).into_iter().map(|(name, state)| format!("{name} {state}")).collect();
    assert_eq!(states, ["good Completed", "other Skipped", "bad Failed", "gone Failed", "there Skipped"]);
    world
}

async fn retry(world: &World, old: &str, name: &str) -> crate::harness::Answer {
    world.on("POST", &format!("/updateRuns/{old}/retry"), &[], json!({ "name": name })).await
}

fn names(run: &Value) -> Vec<String> {
    members_of(run).into_iter().map(|(name, _)| name).collect()
}

#[tokio::test(start_paused = true)]
async fn e02_failed_and_skipped_members_go_again_to_the_pinned_version_and_nobody_else() {
    let world = ended().await;
    world.delete("/members/gone").await;
    world.pass(5).await;
    let old = world.get("/updateRuns/up").await;

    let made = retry(&world, "up", "again").await.with(201);
    assert_eq!((state_of(&made), names(&made)), ("NotStarted", vec!["other".to_owned(), "bad".to_owned()]));
    let properties = &made["properties"];
    assert_eq!(properties["managedClusterUpdate"]["upgrade"]["kubernetesVersion"], "1.26.1", "1.26 is pinned");
    assert_eq!(properties["strategy"], old["properties"]["strategy"]);
    assert_eq!(properties["retryOf"], format!("{FLEET}/updateRuns/up"));
    assert_eq!(properties["status"]["stages"][0]["maxAllowedFailures"], 1, "40% of two, no longer of five");
    let explained = world.get("/updateRuns/again?explain=true").await;
    let uncovered = &explained["properties"]["status"]["uncoveredMembers"];
    assert!(uncovered.is_null() || uncovered["count"] == 0, "left out on purpose: {uncovered}");
    assert!(old["properties"].get("retryOf").is_none());

    let before = world.accepted();
    world.start("again").await;
    let done = world.until("again", "Completed").await;
    assert!(members_of(&done).iter().all(|(_, state)| state == "Completed"), "{done:#}");
    assert_eq!(world.accepted() - before, 2);
    assert_eq!(world.get("/updateRuns/up").await, old, "the earlier run stays as it was");
    // Of that run nobody is left, and its own run may be tried again only where somebody is.
    let nobody = retry(&world, "again", "third").await;
    assert_eq!(nobody.refusal(), (409, "OperationNotAllowed", ""));
    assert!(nobody.message().contains("nobody to try again"), "{}", nobody.message());
}

#[tokio::test(start_paused = true)]
async fn e02_a_retry_that_cannot_be_is_refused_with_the_way_out_and_changes_nothing() {
    let world = ended().await;
    world.put("/updateRuns/slow", to_minor("0")).await.with(201);
    world.start("slow").await;
    world.pass(60).await;
    let before = world.dump().await;
    let unlikely = "x".repeat(51);
    let refusals = [
        ("slow", "again", (409, "OperationNotAllowed", ""), "wait for its end, or stop it"),
        ("up", "slow", (409, "Conflict", "name"), "use another name"),
        ("up", "up", (409, "Conflict", "name"), "use another name"),
        ("up", &unlikely, (400, "InvalidParameter", "name"), "is not a valid name"),
        ("nobody", "again", (404, "NotFound", ""), "nobody"),
    ];
    for (old, name, expected, part) in refusals {
        let refused = retry(&world, old, name).await;
        let (status, code, target) = refused.refusal();
        assert_eq!((status, target), (expected.0, expected.2), "{old} {name}: {code} {}", refused.message());
        assert!(refused.message().contains(part), "{old} {name}: {}", refused.message());
        assert!(expected.0 != 409 || code == expected.1, "{old} {name}: {code}");
    }
    let nameless = world.on("POST", "/updateRuns/up/retry", &[], json!({})).await;
    assert_eq!((nameless.status, nameless.refusal().2), (400, "name"));
    let stale = world.on("POST", "/updateRuns/up/retry", &[("if-match", "\"old\"")], json!({"name": "again"})).await;
    assert_eq!(stale.status, 412);
    assert_eq!(world.by(crate::harness::VERSION, "GET", "/updateRuns/up/retry", None).await.status, 405);
    assert_eq!(world.dump().await, before);
}

#[tokio::test(start_paused = true)]
async fn e02_where_all_have_left_or_no_group_picks_them_any_more_the_refusal_says_so() {
    let world = ended().await;
    for member in ["bad", "gone", "other"] {
        world.patch(&format!("/members/{member}"), json!({"properties": {"group": "elsewhere"}})).await;
    }
    world.pass(5).await;
    let unpicked = retry(&world, "up", "again").await;
    assert_eq!(unpicked.refusal(), (409, "OperationNotAllowed", ""));
    assert!(unpicked.message().contains("groups or labels have changed"), "{}", unpicked.message());
    for member in ["bad", "gone", "other"] {
        world.delete(&format!("/members/{member}")).await;
    }
    world.pass(5).await;
    // A newcomer of an old name, with another cluster, is not the one that failed.
    let there =
        json!({"properties": {"clusterResourceId": format!("{}/there", crate::harness::CLUSTERS), "group": "a"}});
    world.delete("/members/there").await;
    world.pass(5).await;
    world.put("/members/bad", there).await.with(201);
    let left = retry(&world, "up", "again").await;
    assert_eq!(left.refusal(), (409, "OperationNotAllowed", ""));
    assert!(left.message().contains("all 3 member(s)"), "{}", left.message());
}

#[tokio::test(start_paused = true)]
async fn e02_a_put_of_a_retry_that_is_not_started_keeps_its_members() {
    let world = ended().await;
    let made = retry(&world, "up", "again").await.with(201);
    assert_eq!(names(&made), ["other", "bad", "gone"]);
    // Said again as it was read; then along another strategy, to the minor; a member that left is in neither.
    world.delete("/members/gone").await;
    world.pass(5).await;
    let said = world.put("/updateRuns/again", made.clone()).await.with(200);
    assert_eq!(
        (names(&said), &said["properties"]["retryOf"]),
        (vec!["other".into(), "bad".into()], &made["properties"]["retryOf"])
    );
    let mut other = to_minor("10%");
    other["properties"]["strategy"] = Value::Null;
    let changed = world.put("/updateRuns/again", other.clone()).await.with(200);
    assert_eq!(names(&changed), ["other", "bad"]);
    assert_eq!(changed["properties"]["managedClusterUpdate"]["upgrade"]["kubernetesVersion"], "1.26");
    assert_eq!(changed["properties"]["retryOf"], made["properties"]["retryOf"]);
    world.start("again").await;
    world.pass(60).await;
    world.put("/updateRuns/again", other).await.with(200);
    let done = world.until("again", "Completed").await;
    assert_eq!(names(&done), ["other", "bad"]);
}

#[tokio::test(start_paused = true)]
async fn e02_of_a_stopped_run_those_that_failed_go_again_and_the_rest_is_for_its_start() {
    let world = World::new(CLOUD).await;
    for cluster in ["bad", "good", "other"] {
        world.join(cluster, "a").await;
    }
    let mut one_by_one = to_minor("1");
    one_by_one["properties"]["strategy"]["stages"][0]["groups"][0]["maxConcurrency"] = "1".into();
    world.put("/updateRuns/up", one_by_one).await.with(201);
    world.start("up").await;
    for _ in 0..500 {
        world.pass(30).await;
        if members_of(&world.get("/updateRuns/up").await)[1].1 == "Running" {
            break;
        }
    }
    world.post("/updateRuns/up/stop").await.with(200);
    assert_eq!(retry(&world, "up", "again").await.status, 409, "still stopping");
    let stopped = world.until("up", "Stopped").await;
    assert_eq!(members_of(&stopped)[2].1, "NotStarted", "{stopped:#}");
    assert_eq!(names(&retry(&world, "up", "again").await.with(201)), ["bad"]);
}
