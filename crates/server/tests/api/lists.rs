//! Lists and their pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{CLUSTERS, FIVE, FLEET, VERSION, World, full, stages};

/// Follows a list to its end; answers the names on each page.
async fn pages(world: &World, path: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut next = format!("{path}{}api-version={VERSION}", if path.contains('?') { '&' } else { '?' });
    loop {
        let page = world.raw("GET", &next, &[], "").await.with(200);
        let name = |resource: &Value| resource["name"].as_str().expect("name").to_owned();
        pages.push(page["value"].as_array().expect("value").iter().map(name).collect());
        match page.get("nextLink") {
            Some(link) => {
                next = link.as_str().expect("nextLink").strip_prefix("http://localhost:8642").expect("own").into()
            }
            None => return pages,
        }
        assert!(pages.len() < 1000, "a list without an end");
    }
}

#[tokio::test(start_paused = true)]
async fn api6_pages_hold_what_was_asked_for_in_the_order_of_joining_and_lead_to_the_end() {
    let world = World::new(FIVE).await;
    for name in ["c4", "there", "c1", "c3", "c2"] {
        world.join(name, "a").await;
    }
    let members = pages(&world, &format!("{FLEET}/members?$top=2")).await;
    assert_eq!(members, [vec!["c4", "there"], vec!["c1", "c3"], vec!["c2"]]);
    let exact = pages(&world, &format!("{FLEET}/members?$top=5")).await;
    assert_eq!(exact.len(), 1, "a last page that is full has no next one");
    for name in ["s1", "s2", "s3"] {
        let body = json!({"properties": {"strategy": stages(&[("one", &["a"])])}});
        world.put(&format!("/updateStrategies/{name}"), body).await.with(201);
        world.put(&format!("/updateRuns/{name}"), full(Value::Null)).await.with(201);
    }
    for kind in ["updateStrategies", "updateRuns"] {
        assert_eq!(pages(&world, &format!("{FLEET}/{kind}?$top=2")).await, [vec!["s1", "s2"], vec!["s3"]], "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn api6_a_page_stays_right_while_others_come_and_go() {
    let world = World::new(FIVE).await;
    for name in ["c1", "c2", "c3", "c4"] {
        world.join(name, "a").await;
    }
    let first = world.get("/members?$top=2").await;
    world.delete("/members/c1").await.with(202);
    world.join("there", "a").await;
    let next =
        first["nextLink"].as_str().expect("nextLink").strip_prefix("http://localhost:8642").expect("own").to_owned();
    let second = world.raw("GET", &next, &[], "").await.with(200);
    let names: Vec<&Value> = second["value"].as_array().expect("value").iter().map(|member| &member["name"]).collect();
    assert_eq!(names, ["c3", "c4"]);
}

#[tokio::test(start_paused = true)]
async fn api6_a_thousand_and_some_members_are_listed_once_each() {
    let world = World::new(FIVE).await;
    let mut all = BTreeSet::new();
    for number in 0..1050 {
        let name = format!("m{number:04}");
        let properties =
            json!({"clusterResourceId": format!("{CLUSTERS}/other-{number}"), "group": format!("g{}", number % 50)});
        world.put(&format!("/members/{name}"), json!({"properties": properties})).await.with(201);
        all.insert(name);
    }
    for (query, expect) in [("", 11), ("?$top=1000", 2), ("?$top=7", 150)] {
        let pages = pages(&world, &format!("{FLEET}/members{query}")).await;
        assert_eq!(pages.len(), expect, "{query}");
        let listed: Vec<String> = pages.into_iter().flatten().collect();
        assert_eq!(listed.len(), all.len(), "{query}");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), all, "{query}");
    }
    let one_group = pages(&world, &format!("{FLEET}/members?$filter=group%20eq%20'g7'")).await;
    assert_eq!(one_group.into_iter().flatten().count(), 21);
}

#[tokio::test(start_paused = true)]
async fn api3_fleets_are_listed_by_group_and_by_subscription() {
    let world = World::new(FIVE).await;
    let fleets = |group: &str, name: &str| FLEET.replace("/rg1/", &format!("/{group}/")).replace("fleet1", name);
    for (group, name) in [("rg1", "other"), ("rg2", "far")] {
        let uri = format!("{}?api-version={VERSION}", fleets(group, name));
        world.raw("PUT", &uri, &[], json!({"location": "westeurope"}).to_string()).await.with(201);
    }
    let elsewhere = fleets("rg1", "alien").replace("000000000000/", "000000000009/");
    world
        .raw("PUT", &format!("{elsewhere}?api-version={VERSION}"), &[], json!({"location": "x"}).to_string())
        .await
        .with(201);
    let (group, _) = FLEET.rsplit_once('/').expect("path");
    assert_eq!(pages(&world, group).await, [vec!["fleet1", "other"]]);
    let subscription =
        "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.ContainerService/fleets";
    assert_eq!(pages(&world, &format!("{subscription}?$top=2")).await, [vec!["fleet1", "other"], vec!["far"]]);
}
