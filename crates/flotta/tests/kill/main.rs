//! The real binary is killed, again and again, while it upgrades a fleet in a cloud that goes on without it: nothing
//! that was acknowledged is lost, nothing is started twice, no limit is exceeded.

mod gates;
mod harness;

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::harness::{Client, Process, accepted, cluster_id, serve, text};

const CLUSTERS: usize = 36;
/// Clusters whose upgrade fails once, after the provider's model has jumped.
const FAILING: [usize; 2] = [5, 20];

fn fleet_file() -> String {
    let mut clusters = String::new();
    for n in 0..CLUSTERS {
        let fails = if FAILING.contains(&n) { ", fails: { attempts: 1 }" } else { "" };
        let pool =
            |name: &str| format!("{{ name: {name}, image: AKSUbuntu-2204gen2containerd-202508.20.1, count: 1 }}");
        clusters.push_str(&format!(
            "  - {{ name: c{n}, region: westeurope, version: 1.32.6, pools: [{}, {}]{fails} }}\n",
            pool("p1"),
            pool("p2"),
        ));
    }
    // An upgrade takes a second or two; node images do not come with versions, so that each pool needs a POST of its own.
    format!(
        "
seed: 11
subscription: s1
resourceGroup: rg
regions:
  westeurope:
    kubernetes:
      - {{ minor: '1.32', patches: [1.32.6] }}
      - {{ minor: '1.33', patches: [1.33.2] }}
    images: [AKSUbuntu-2204gen2containerd-202508.20.1, AKSUbuntu-2204gen2containerd-202510.03.1]
behaviour: {{ durationScale: 0.001, throttling: false, imageWithVersion: false }}
faults:
  - {{ cluster: 'c*1', call: putCluster, fault: dropAnswer }}
  - {{ cluster: 'c*2', call: upgradeNodeImage, fault: dropAnswer }}
  - {{ cluster: 'c*3', call: putCluster, fault: {{ failAfter: {{ status: 504 }} }} }}
  - {{ cluster: 'c*4', call: upgradeNodeImage, nth: 2, fault: {{ failBefore: {{ status: 503 }} }} }}
clusters:
{clusters}"
    )
}

async fn set_up(client: &Client, server: &Process) {
    client.must(server, "PUT", "", Some(json!({ "location": "westeurope" }))).await;
    for n in 0..CLUSTERS {
        let group = if n % 2 == 0 { "even" } else { "odd" };
        let body = json!({ "properties": { "clusterResourceId": cluster_id(n), "group": group } });
        client.must(server, "PUT", &format!("/members/m{n}"), Some(body)).await;
    }
    let group = |name: &str| json!({ "name": name, "maxConcurrency": "4", "maxAllowedFailures": "2" });
    let stage = json!({ "name": "all", "maxConcurrency": "7", "groups": [group("even"), group("odd")] });
    let upgrade = json!({ "type": "Full", "kubernetesVersion": "1.33.2" });
    let body = json!({ "properties": {
        "strategy": { "stages": [stage] }, "managedClusterUpdate": { "upgrade": upgrade }
    }});
    client.must(server, "PUT", "/updateRuns/r1", Some(body)).await;
}

/// The state of every member of a run, by name.
fn members(run: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for group in run["properties"]["status"]["stages"][0]["groups"].as_array().into_iter().flatten() {
        for member in group["members"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            found.insert(text(&member["name"]), text(&member["status"]["state"]));
        }
    }
    found
}

/// Nothing that somebody was told is taken back, and no limit is exceeded at any moment.
fn check(run: &Value, before: &mut BTreeMap<String, String>) {
    let now = members(run);
    for (name, state) in before.iter().filter(|(_, state)| matches!(state.as_str(), "Completed" | "Failed" | "Skipped"))
    {
        assert_eq!(now.get(name), Some(state), "member {name} was {state}");
    }
    let groups = run["properties"]["status"]["stages"][0]["groups"].as_array().expect("groups");
    let running = |group: &Value| {
        let members = group["members"].as_array().expect("members");
        members.iter().filter(|member| member["status"]["state"] == "Running").count()
    };
    let each: Vec<usize> = groups.iter().map(running).collect();
    assert!(each.iter().all(|running| *running <= 4) && each.iter().sum::<usize>() <= 7, "running: {each:?}");
    *before = now;
}

/// How many clusters are moving, as the cloud itself sees it.
async fn moving(client: &Client, cloud: &Process) -> usize {
    let url = format!(
        "{}/subscriptions/s1/providers/Microsoft.ContainerService/managedClusters?api-version=2025-10-01",
        cloud.url
    );
    let (_, list) = client.send("GET", &url, None).await.expect("the cloud answers");
    let busy = |cluster: &&Value| {
        let pools = cluster["properties"]["agentPoolProfiles"].as_array().into_iter().flatten();
        let ended = |thing: &Value| matches!(thing["provisioningState"].as_str(), Some("Succeeded" | "Failed"));
        !ended(&cluster["properties"]) || pools.into_iter().any(|pool| !ended(pool))
    };
    list["value"].as_array().expect("clusters").iter().filter(busy).count()
}

/// Kills the server at moments of a fixed sequence until the run ends; answers with how often.
async fn live_through(client: &Client, server: &mut Process, data: &Path, cloud: &Process, ends: &str) -> u32 {
    let mut before = BTreeMap::new();
    let mut kills = 0;
    let mut pause: u64 = 40;
    let deadline = Instant::now() + Duration::from_secs(150);
    loop {
        assert!(Instant::now() < deadline, "the run does not end: {:?}", before);
        pause = (pause * 7 + 13) % 900;
        let until = Instant::now() + Duration::from_millis(60 + pause);
        while Instant::now() < until {
            let run = client.must(server, "GET", "/updateRuns/r1", None).await;
            check(&run, &mut before);
            assert!(moving(client, cloud).await <= 7, "more clusters are moving than the limit allows");
            if run["properties"]["status"]["status"]["state"] == ends {
                return kills;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        server.kill();
        kills += 1;
        *server = serve(data, &cloud.url);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_started_twice_however_often_the_server_is_killed() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("fleet.yaml");
    std::fs::write(&file, fleet_file()).expect("fleet file");
    let (cloud_data, data) = (folder.path().join("cloud"), folder.path().join("flotta"));
    let cloud =
        Process::start(&["simulator", "--fleet", text(&file), "--listen", "127.0.0.1:0", "--data", text(&cloud_data)]);
    let client = Client::new();
    let mut server = serve(&data, &cloud.url);
    set_up(&client, &server).await;

    client.must(&server, "POST", "/updateRuns/r1/start", None).await;
    server.kill();
    server = serve(&data, &cloud.url);
    let run = client.must(&server, "GET", "/updateRuns/r1", None).await;
    assert_eq!(run["properties"]["status"]["status"]["state"], "Running", "an acknowledged start is not lost");

    let kills = live_through(&client, &mut server, &data, &cloud, "Completed").await;
    println!("killed {kills} times while the run went on");
    assert!(kills >= 10, "killed only {kills} times");
    let run = client.must(&server, "GET", "/updateRuns/r1", None).await;
    assert_eq!(run["properties"]["status"]["failureCount"], FAILING.len());
    let completed = members(&run).into_values().filter(|state| state == "Completed").count();
    assert_eq!(completed, CLUSTERS - FAILING.len(), "what this run moved is Completed, not Skipped");

    let mut starts: BTreeMap<String, u32> = BTreeMap::new();
    for start in accepted(&client, &cloud.url).await {
        *starts.entry(start.step).or_default() += 1;
    }
    let twice: Vec<_> = starts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "accepted more than once: {twice:?}");
    // One for each cluster, and one for each pool of those that did not fail before.
    assert_eq!(starts.len(), CLUSTERS + 2 * (CLUSTERS - FAILING.len()));
}
