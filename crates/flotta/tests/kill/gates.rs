//! Killed again and again with gates ahead and maintenance windows that open and close: nothing starts outside a window
//! or before a gate, gates keep their names, and what somebody approved stays approved by them.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::harness::{Client, Process, Start, accepted, arm, cluster_id, text};

/// The update groups, four clusters each, of which every one has another window; `late` is in the second stage.
const GROUPS: [&str; 5] = ["asked", "scheduled", "free", "also-free", "late"];
const CLUSTERS: usize = 4 * GROUPS.len();
/// A day passes in about ten seconds.
const SPEED: f64 = 9000.0;
/// Hours of every day in which the clusters with a window may be changed, from its opening on.
const OPEN_HOURS: i64 = 4;
/// Between the last look at the window and the start in the cloud's log there is a request: a third of a second at most.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_mins(50);

/// The gates by where they stand, each with the groups behind it.
const GATES: [(&str, &[&str]); 4] = [
    ("Before stage first", &["asked", "scheduled", "free", "also-free"]),
    ("Before group asked", &["asked"]),
    ("Before group scheduled", &["scheduled"]),
    ("After stage first", &["late"]),
];

fn group_of(cluster: usize) -> &'static str {
    GROUPS[cluster / 4]
}

/// How long after the test's begin the window of a cluster opens, if it has one.
fn opens_after(cluster: usize) -> Option<SignedDuration> {
    match cluster % 4 {
        0 => None,
        nth => Some(SignedDuration::from_hours(6 * nth as i64)),
    }
}

fn is_open(cluster: usize, begin: Timestamp, at: Timestamp) -> bool {
    let Some(opens) = opens_after(cluster) else { return true };
    // A window begins with a minute.
    let first = begin + opens - SignedDuration::from_secs(begin.as_second() % 60);
    let into = at.duration_since(first).as_secs().rem_euclid(24 * 3600);
    into < OPEN_HOURS * 3600 + ON_ITS_WAY.as_secs()
}

fn time_of_day(at: Timestamp) -> String {
    at.strftime("%H:%M").to_string()
}

fn fleet_file(begin: Timestamp) -> String {
    let mut clusters = String::new();
    for n in 0..CLUSTERS {
        let window = opens_after(n).map(|opens| {
            let start = time_of_day(begin + opens);
            format!(
                ", maintenance: {{ aksManagedAutoUpgradeSchedule: {{ maintenanceWindow: {{ schedule: {{ daily: {{ intervalDays: 1 }} }}, durationHours: {OPEN_HOURS}, startTime: '{start}' }} }} }}"
            )
        });
        clusters.push_str(&format!(
            "  - {{ name: c{n}, region: westeurope, version: 1.32.6, pools: [{{ name: p1, image: AKSUbuntu-2204gen2containerd-202508.20.1, count: 1 }}]{} }}\n",
            window.unwrap_or_default(),
        ));
    }
    // Two steps a cluster: its version, then the image of its pool.
    format!(
        "
seed: 12
subscription: s1
resourceGroup: rg
regions:
  westeurope:
    kubernetes:
      - {{ minor: '1.32', patches: [1.32.6] }}
      - {{ minor: '1.33', patches: [1.33.2] }}
    images: [AKSUbuntu-2204gen2containerd-202508.20.1, AKSUbuntu-2204gen2containerd-202510.03.1]
behaviour: {{ throttling: false, imageWithVersion: false }}
faults:
  - {{ cluster: 'c*1', call: putCluster, fault: dropAnswer }}
  - {{ cluster: 'c*2', call: upgradeNodeImage, fault: dropAnswer }}
  - {{ cluster: 'c*3', call: listMaintenance, nth: 2, times: 3, fault: {{ failBefore: {{ status: 503 }} }} }}
clusters:
{clusters}"
    )
}

/// The server with its cloud, killed together and soon there again; time goes on meanwhile.
fn serve(data: &Path, file: &Path) -> Process {
    Process::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        text(data),
        "--simulate",
        text(file),
        "--speed",
        &SPEED.to_string(),
        "--aks-poll-seconds",
        "300",
        "--aks-unpaced",
    ])
}

async fn set_up(client: &Client, server: &Process, begin: Timestamp) {
    client.must(server, "PUT", "", Some(json!({ "location": "westeurope" }))).await;
    for n in 0..CLUSTERS {
        let body = json!({ "properties": { "clusterResourceId": cluster_id(n), "group": group_of(n) } });
        client.must(server, "PUT", &format!("/members/m{n}"), Some(body)).await;
    }
    let approval = || json!({ "type": "Approval" });
    let due = begin + SignedDuration::from_hours(22);
    let scheduled = json!({ "type": "ScheduledStart", "scheduledStartConfiguration": {
        "startDay": due.strftime("%A").to_string(), "startTime": time_of_day(due), "utcOffset": "+00:00",
    }});
    let two = json!({ "type": "Approval", "approvalPolicy": { "approvers": 2 } });
    let group = |name: &str, gates: Value| json!({ "name": name, "maxConcurrency": "8", "beforeGates": gates });
    let stages = json!([
        {
            "name": "first", "maxConcurrency": "12", "beforeGates": [two], "afterGates": [approval()],
            "groups": [
                group("asked", json!([approval()])), group("scheduled", json!([scheduled])),
                group("free", json!([])), group("also-free", json!([])),
            ],
        },
        { "name": "second", "maxConcurrency": "12", "groups": [group("late", json!([]))] },
    ]);
    let upgrade = json!({ "type": "Full", "kubernetesVersion": "1.33.2" });
    let body = json!({ "properties": {
        "strategy": { "stages": stages }, "managedClusterUpdate": { "upgrade": upgrade }
    }});
    client.must(server, "PUT", "/updateRuns/r1", Some(body)).await;
}

/// Where a gate stands.
fn place(gate: &Value) -> String {
    let at = &gate["properties"]["target"]["updateRunProperties"];
    let (kind, name) = match at["group"].as_str() {
        Some(group) => ("group", group),
        None => ("stage", at["stage"].as_str().expect("stage")),
    };
    format!("{} {kind} {name}", at["timing"].as_str().expect("timing"))
}

/// Who approved a gate, in order.
fn approvers(gate: &Value) -> Vec<String> {
    let approvals = gate["properties"]["approvals"].as_array().into_iter().flatten();
    approvals.map(|approval| approval["by"].as_str().expect("by").to_owned()).collect()
}

/// What was ever seen of the gates.
#[derive(Default)]
struct Seen {
    gates: BTreeMap<String, Value>,
    /// Who was told that they approved which.
    acknowledged: Vec<(String, String)>,
}

impl Seen {
    /// Looks at all gates: none is lost or doubled, none has another name, and no approval is taken back.
    async fn look(&mut self, client: &Client, server: &Process) {
        let list = client.must(server, "GET", "/gates", None).await;
        let mut now = BTreeMap::new();
        for gate in list["value"].as_array().expect("gates") {
            assert!(now.insert(place(gate), gate.clone()).is_none(), "twice: {list}");
        }
        for (place, before) in &self.gates {
            let gate = now.get(place).unwrap_or_else(|| panic!("{place} is lost: {list}"));
            assert_eq!(gate["name"], before["name"], "{place}");
            assert!(approvers(gate).starts_with(&approvers(before)), "{before} became {gate}");
            if before["properties"]["state"] == "Completed" {
                assert_eq!(gate, before, "{place} was open");
            }
        }
        for (place, who) in &self.acknowledged {
            assert!(approvers(&now[place]).contains(who), "{who} approved {place}: {list}");
        }
        self.gates = now;
    }

    /// A gate that waits for somebody.
    fn wanted(&self) -> Option<&Value> {
        self.gates
            .values()
            .find(|gate| gate["properties"]["state"] == "Pending" && gate["properties"]["gateType"] == "Approval")
    }
}

/// Nobody behind a gate that is still closed has started.
fn none_behind(place: &str, starts: &[Start]) {
    let (_, behind) = GATES.iter().find(|(name, _)| *name == place).expect("a gate of the strategy");
    let early: Vec<&str> = starts
        .iter()
        .filter(|start| behind.contains(&group_of(start.cluster)))
        .map(|start| start.step.as_str())
        .collect();
    assert!(early.is_empty(), "{place} is closed, but {early:?}");
}

/// Kills the server at moments of a fixed sequence, and around every approval, until the run ends; answers with how often,
/// and how often nobody heard what became of an approval.
async fn live_through(client: &Client, server: &mut Process, seen: &mut Seen, again: impl Fn() -> Process) -> [u32; 2] {
    let (mut kills, mut unheard) = (0, 0);
    let mut pause: u64 = 40;
    let deadline = Instant::now() + Duration::from_secs(100);
    loop {
        assert!(Instant::now() < deadline, "the run does not end: {:?}", seen.gates);
        pause = (pause * 7 + 13) % 900;
        let until = Instant::now() + Duration::from_millis(60 + pause);
        let cloud = server.cloud();
        while Instant::now() < until {
            seen.look(client, server).await;
            let run = client.must(server, "GET", "/updateRuns/r1", None).await;
            if run["properties"]["status"]["status"]["state"] == "Completed" {
                return [kills, unheard];
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        if let Some(gate) = seen.wanted() {
            none_behind(&place(gate), &accepted(client, &cloud).await);
            let (place, who) = (place(gate), format!("approver-{kills}"));
            let url = arm(server, &format!("/gates/{}", gate["name"].as_str().expect("name")));
            let body = json!({ "properties": { "state": "Completed", "comment": "go" } });
            let asking = client.clone();
            let by = who.clone();
            let asked = tokio::spawn(async move { asking.send_as(&by, "PATCH", &url, Some(body)).await });
            tokio::time::sleep(Duration::from_millis([2, 5, 9, 60][kills as usize % 4])).await;
            server.kill();
            match asked.await.expect("asked") {
                Some((200, gate)) if approvers(&gate).contains(&who) => seen.acknowledged.push((place, who)),
                Some((200, _)) => panic!("{who} approved {place}, but is not told so"),
                Some(refused) => panic!("{place}: {refused:?}"),
                None => unheard += 1,
            }
        } else {
            server.kill();
        }
        kills += 1;
        *server = again();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_and_windows_hold_however_often_the_server_is_killed() {
    let folder = tempfile::tempdir().expect("folder");
    let (file, data) = (folder.path().join("fleet.yaml"), folder.path().join("flotta"));
    let begin = Timestamp::now();
    std::fs::write(&file, fleet_file(begin)).expect("fleet file");
    let client = Client::new();
    let mut server = serve(&data, &file);
    set_up(&client, &server, begin).await;
    client.must(&server, "POST", "/updateRuns/r1/start", None).await;

    let mut seen = Seen::default();
    let [kills, unheard] = live_through(&client, &mut server, &mut seen, || serve(&data, &file)).await;
    println!("killed {kills} times; {unheard} approvals unheard, {} heard", seen.acknowledged.len());
    assert!(kills >= 10, "killed only {kills} times");
    let completed = json!([{ "name": "Completed", "count": CLUSTERS }]);
    let _ = completed;

    let mut server = {
        server.kill();
        serve(&data, &file)
    };
    let starts = accepted(&client, &server.cloud()).await;
    seen.look(&client, &server).await;
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for start in &starts {
        *times.entry(&start.step).or_default() += 1;
        let Start { cluster, step, time } = start;
        assert!(is_open(*cluster, begin, *time), "{step} at {time}, outside the window; begun at {begin}");
        for (place, behind) in GATES {
            let gate = &seen.gates[place];
            let opened = match gate["properties"]["scheduledStartProperties"]["absoluteStartTime"].as_str() {
                Some(due) => due,
                None => gate["systemData"]["createdAt"].as_str().expect("approved"),
            };
            let opened: Timestamp = opened.parse().expect("time");
            assert!(
                !behind.contains(&group_of(*cluster)) || *time >= opened,
                "{step} at {time}, but {place} opened at {opened}"
            );
        }
    }
    assert!(times.values().all(|count| *count == 1), "accepted more than once: {times:?}");
    assert_eq!(times.len(), 2 * CLUSTERS, "a version and an image for each cluster");
}
