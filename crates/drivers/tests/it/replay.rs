//! Recorded traffic of the real service, served over loopback to the real driver. Skipped aloud where the recordings
//! are not at hand.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State};
use flotta_drivers::{
    ClusterDriver, Intent, Look, Operation, Progress, Started, Trouble,
    aks::AksDriver,
    token::{Secret, TokenSource, Tokens},
    transport::http_transport,
};
use flotta_model::{ClusterId, Hold, Provisioning, Step};
use http::{Method, Request, Response};
use serde_json::{Value, json};

use crate::fake::{clock, config};

const AZURE: &str = "https://management.azure.com";
const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg1/providers/Microsoft.ContainerService/managedClusters";

/// The folder of recordings, if it is there.
pub fn recording(name: &str) -> Option<Value> {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let folder = std::env::var_os("FLOTTA_REFERENCE").map_or(workspace, PathBuf::from);
    match std::fs::read(folder.join("aks").join(name).with_extension("json")) {
        Ok(text) => Some(serde_json::from_slice(&text).expect("a recording is json")),
        Err(_) => {
            eprintln!("SKIPPED: no recording '{name}'; set FLOTTA_REFERENCE to the folder that holds aks/");
            None
        }
    }
}

/// Plays pairs of request and response. Writes and reads of operations move time on; reads of resources show what was
/// recorded before the next write.
struct Player {
    pairs: Vec<Value>,
    at: Option<usize>,
    /// Writes that came in, with their `If-Match`.
    writes: Vec<(Value, Option<String>)>,
    endpoint: String,
}

#[derive(Clone)]
struct Stage(Arc<Mutex<Player>>);

/// The path without the api-version, which recordings do not agree on; operations keep their whole query.
fn address(url: &str) -> String {
    let url = url.strip_prefix(AZURE).unwrap_or(url);
    if url.contains("/operations/") && url.contains("/locations/") {
        return url.to_owned();
    }
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let token = query.split('&').find(|pair| pair.starts_with("skipToken")).unwrap_or_default();
    format!("{}{token}", path.to_ascii_lowercase())
}

impl Player {
    fn find(&self, method: &Method, uri: &str) -> Option<usize> {
        let wanted = address(uri);
        let matches = |at: &usize| {
            let request = &self.pairs[*at]["request"];
            request["method"] == method.as_str() && address(request["url"].as_str().expect("url")) == wanted
        };
        let next = self.at.map_or(0, |at| at + 1);
        let write = |at: &usize| self.pairs[*at]["request"]["method"] != "GET";
        let horizon = match *method == Method::GET && !uri.contains("/locations/") {
            true => (next..self.pairs.len()).find(write).unwrap_or(self.pairs.len()),
            false => self.pairs.len(),
        };
        (next..horizon).find(matches).or_else(|| (0..next).rev().find(matches))
    }

    fn play(&mut self, request: Request<Bytes>) -> Response<String> {
        let (head, body) = request.into_parts();
        assert_eq!(head.headers["authorization"], "Bearer recorded");
        if head.method != Method::GET {
            let guard = head.headers.get("if-match").map(|guard| guard.to_str().expect("guard").to_owned());
            self.writes.push((serde_json::from_slice(&body).unwrap_or_default(), guard));
        }
        let Some(at) = self.find(&head.method, &head.uri.to_string()) else {
            let body = json!({"error": {"code": "NotFound", "message": format!("nothing recorded for {} {}", head.method, head.uri)}});
            return Response::builder().status(404).body(body.to_string()).expect("answer");
        };
        if head.method != Method::GET || head.uri.path().contains("/locations/") {
            self.at = Some(at);
        }
        let answer = &self.pairs[at]["response"];
        let mut response = Response::builder().status(answer["status"].as_u64().expect("status") as u16);
        for (name, value) in answer["headers"].as_object().into_iter().flatten() {
            if name != "content-length" {
                response = response.header(name, value.as_str().expect("header").replace(AZURE, &self.endpoint));
            }
        }
        let body = if answer["body"].is_null() { String::new() } else { answer["body"].to_string() };
        response.body(body.replace(AZURE, &self.endpoint)).expect("answer")
    }
}

/// Serves pairs on loopback and drives them with a token.
async fn stage(pairs: Vec<Value>) -> (AksDriver, Stage) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let endpoint = format!("http://{}", listener.local_addr().expect("address"));
    let stage = Stage(Arc::new(Mutex::new(Player { pairs, at: None, writes: Vec::new(), endpoint: endpoint.clone() })));
    let play = |State(stage): State<Stage>, request: axum::extract::Request| async move {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.expect("body");
        stage.0.lock().expect("stage").play(Request::from_parts(head, body))
    };
    let router = Router::new().fallback(play).with_state(stage.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let transport = http_transport().expect("client");
    let tokens = Tokens::new(TokenSource::Static(Secret::new("recorded")), "r", transport.clone());
    let config = flotta_drivers::aks::AksConfig { endpoint, ..config() };
    (AksDriver::new(config, transport, tokens, clock()).expect("config"), stage)
}

impl Stage {
    fn writes(&self) -> Vec<(Value, Option<String>)> {
        self.0.lock().expect("stage").writes.clone()
    }
}

fn pairs(recording: &Value) -> Vec<Value> {
    recording["pairs"].as_array().expect("pairs").clone()
}

fn id(name: &str) -> ClusterId {
    format!("{GROUP}/{name}").parse().expect("id")
}

fn intent(cluster: &str, step: Step, guard: Option<&str>) -> Intent {
    let at = "2026-01-01T00:00:00Z".parse().expect("time");
    Intent { cluster: id(cluster), step, guard: guard.map(str::to_owned), at, recovering: false, not_after: None }
}

fn get(url: String, body: Value) -> Value {
    json!({"request": {"method": "GET", "url": url}, "response": {"status": 200, "headers": {}, "body": body}})
}

/// A cluster around a pool that was recorded alone.
fn around(cluster: &str, pool: &Value) -> Value {
    let mut inner = pool["properties"].clone();
    inner["name"] = pool["name"].clone();
    let version = inner["currentOrchestratorVersion"].clone();
    let properties =
        json!({"provisioningState": "Succeeded", "kubernetesVersion": version, "agentPoolProfiles": [inner]});
    get(format!("{GROUP}/{cluster}"), json!({"location": "eastus", "properties": properties}))
}

/// Polls to the end, and notes the words on the way.
async fn follow(driver: &AksDriver, intent: &Intent, operation: &Operation) -> (Vec<String>, Progress) {
    let mut words = Vec::new();
    for _ in 0..20 {
        match driver.poll(intent, operation).await.expect("polled") {
            Progress::Running { detail, .. } => words.push(detail),
            end => return (words, end),
        }
    }
    panic!("no end after {words:?}");
}

/// Whether everything in `small` is in `large`; lists item by item.
fn within(small: &Value, large: &Value) -> bool {
    match (small, large) {
        (Value::Object(small), Value::Object(large)) => {
            small.iter().all(|(name, value)| large.get(name).is_some_and(|other| within(value, other)))
        }
        (Value::Array(small), Value::Array(large)) => {
            small.len() == large.len() && small.iter().zip(large).all(|(a, b)| within(a, b))
        }
        (small, large) => small == large,
    }
}

fn version(text: &str) -> flotta_model::KubernetesVersion {
    text.parse().expect(text)
}

async fn started(driver: &AksDriver, intent: &Intent) -> Started {
    let started = driver.start(intent).await.expect("started");
    assert!(!started.adopted && started.operation.url.is_some(), "{started:?}");
    started
}

#[tokio::test]
async fn recorded_full_upgrade_and_pool_at_the_same_version() {
    let Some(recording) = recording("mc_put_full_upgrade_2023-06") else { return };
    let (driver, stage) = stage(pairs(&recording)).await;
    let seen = driver.observe(&id("aks1"), Look::default()).await.expect("seen");
    assert_eq!(
        (seen.version, seen.location.as_str(), seen.running, seen.busy()),
        (version("1.26.3"), "westus2", true, None)
    );
    let names: Vec<String> = seen.pools.iter().map(|pool| pool.name.clone()).collect();
    let step = Step::cluster(version("1.27.1"), names);
    let whole = intent("aks1", step, None);
    let start = started(&driver, &whole).await;
    assert_eq!(start.operation.id, "936fb684-fde3-4c1c-9368-473cc1d2020a");
    let (words, end) = follow(&driver, &whole, &start.operation).await;
    assert_eq!((words, end), (vec!["InProgress".into(), "InProgress".into()], Progress::Succeeded));
    assert!(within(&recording["pairs"][1]["request"]["body"], &stage.writes()[0].0), "{:#}", stage.writes()[0].0);

    let pool = intent("aks1", Step::pool_version("npwin".into(), version("1.27.1")), None);
    let start = started(&driver, &pool).await;
    assert_eq!(follow(&driver, &pool, &start.operation).await.1, Progress::Succeeded);
    let sent = &stage.writes()[1].0;
    assert_eq!(sent["properties"]["orchestratorVersion"], "1.27.1");
    assert!(within(
        &recording["pairs"][7]["request"]["body"]["properties"]["upgradeSettings"],
        &sent["properties"]["upgradeSettings"]
    ));
}

#[tokio::test]
async fn recorded_full_upgrade_of_snapshot_pools_leaves_their_snapshot_out() {
    let Some(recording) = recording("mc_put_full_upgrade_snapshot_pools_2022-11") else { return };
    let (driver, stage) = stage(pairs(&recording)).await;
    let seen = driver.observe(&id("aks3"), Look::default()).await.expect("seen");
    assert!(seen.pools.iter().all(|pool| pool.from_snapshot));
    let step = Step::cluster(version("1.25.2"), vec!["pool4".into(), "pool5".into()]);
    let whole = intent("aks3", step, None);
    let start = started(&driver, &whole).await;
    assert_eq!(follow(&driver, &whole, &start.operation).await.1, Progress::Succeeded);
    let (sent, _) = &stage.writes()[0];
    assert!(within(&recording["pairs"][1]["request"]["body"], sent));
    assert!(!sent.to_string().contains("creationData"));
    let after = driver.observe(&id("aks3"), Look::default()).await.expect("seen");
    assert!(after.pools.iter().all(|pool| !pool.from_snapshot && pool.version == version("1.25.2")));
}

#[tokio::test]
async fn recorded_control_plane_alone_is_judged_by_state_where_its_operation_is_not_on_record() {
    let Some(recording) = recording("mc_put_control_plane_only_2022-05") else { return };
    let mut pairs = pairs(&recording);
    let mut before = pairs[1].clone();
    before["response"]["body"]["properties"]["kubernetesVersion"] = "1.22.6".into();
    pairs.insert(0, before);
    let (driver, stage) = stage(pairs).await;
    let alone = intent("aks1", Step::ControlPlane { version: version("1.23.3") }, None);
    let start = started(&driver, &alone).await;
    assert_eq!(start.operation.id, "eef269bd-a0fb-4088-ad15-42a5d0a62872");
    assert_eq!(driver.poll(&alone, &start.operation).await, Ok(Progress::Succeeded));
    assert!(within(&recording["pairs"][0]["request"]["body"], &stage.writes()[0].0));
    let after = driver.observe(&id("aks1"), Look::default()).await.expect("seen");
    assert_eq!((after.version, after.pools[0].version), (version("1.23.3"), version("1.22.6")));
}

#[tokio::test]
async fn recorded_node_image_upgrades() {
    let cases = [
        ("ap_post_upgradeNodeImageVersion_2025-10", "aks1", "default", false),
        ("ap_post_upgradeNodeImageVersion_snapshot_2022-11", "aks3", "pool5", true),
    ];
    for (name, cluster, pool, snapshot) in cases {
        let Some(recording) = recording(name) else { return };
        let mut pairs = pairs(&recording);
        let around = around(cluster, &pairs[0]["response"]["body"]);
        pairs.push(around);
        let (driver, stage) = stage(pairs).await;
        let image = "AKSUbuntu-2204containerd-202510.29.0".parse().expect("image");
        let step = intent(cluster, Step::PoolImage { pool: pool.into(), image }, None);
        let start = started(&driver, &step).await;
        let (words, end) = follow(&driver, &step, &start.operation).await;
        assert!(words.iter().all(|word| word == "InProgress"), "{words:?}");
        assert_eq!(end, Progress::Succeeded, "{name}");
        assert_eq!(stage.writes(), [(Value::Null, None)]);
        let after = driver.observe(&id(cluster), Look::default()).await.expect("seen");
        assert_eq!(after.pools[0].from_snapshot, snapshot);
    }
}

#[tokio::test]
async fn recorded_pool_upgrade_carries_the_etag_and_passes_every_status_text_on() {
    let Some(recording) = recording("ap_put_bluegreen_upgrade_2025-09") else { return };
    let mut pairs = pairs(&recording);
    let last = pairs.last().expect("pairs")["response"]["body"].clone();
    pairs.push(around("aks2", &last));
    let (driver, stage) = stage(pairs).await;
    let etag = recording["pairs"][0]["response"]["body"]["properties"]["eTag"].as_str().expect("etag");
    let stale = intent("aks2", Step::pool_version("pool3".into(), version("1.33.2")), Some("older"));
    assert!(matches!(driver.start(&stale).await, Err(Trouble::Retry { .. })));
    let step = Intent { guard: Some(etag.into()), ..stale };
    let start = started(&driver, &step).await;
    assert_eq!(stage.writes()[0].1.as_deref(), Some(etag));
    let (words, end) = follow(&driver, &step, &start.operation).await;
    let expected = [
        "InProgress",
        "BlueGreenCreatingGreenNodes",
        "BlueGreenSoakingBatch: 1/2 nodes completed",
        "BlueGreenSoakingFinal",
        "BlueGreenCommittingGreenNodes",
    ];
    assert_eq!((&words[..], end), (&expected.map(String::from)[..], Progress::Succeeded));
}

#[tokio::test]
async fn recorded_status_texts_are_progress() {
    let Some(values) = recording("operation_status_values") else { return };
    let url = format!(
        "{AZURE}/subscriptions/x/providers/Microsoft.ContainerService/locations/l/operations/o?api-version=1&s=S"
    );
    let texts =
        values["in_progress"].as_object().expect("texts").keys().map(|text| json!({"name": "o", "status": text}));
    let bodies: Vec<Value> =
        texts.chain(values["bodies"].as_array().expect("bodies").iter().take(2).cloned()).collect();
    assert!(bodies.len() > 10);
    for body in bodies {
        let (driver, stage) = stage(vec![get(url.clone(), body.clone())]).await;
        let at = stage.0.lock().expect("stage").endpoint.clone();
        let operation = Operation { id: "o".into(), url: Some(url.replace(AZURE, &at)) };
        let progress =
            driver.poll(&intent("aks1", Step::ControlPlane { version: version("1.33.0") }, None), &operation).await;
        let status = body["status"].as_str().expect("status").to_owned();
        assert!(matches!(&progress, Ok(Progress::Running { detail, .. }) if *detail == status), "{progress:?}");
    }
}

async fn seen(recording: &Value, at: usize) -> flotta_model::Cluster {
    let pair = recording["pairs"][at].clone();
    let url = pair["request"]["url"].as_str().expect("url");
    let name = url.split('?').next().and_then(|path| path.rsplit('/').next()).expect("name").to_owned();
    let (driver, _) = stage(vec![pair]).await;
    driver.observe(&id(&name), Look::default()).await.expect("seen")
}

#[tokio::test]
async fn recorded_clusters_at_rest_and_at_work() {
    let Some(idle) = recording("mc_get_idle_full_2025-11") else { return };
    let cluster = seen(&idle, 0).await;
    assert_eq!(
        (cluster.version, cluster.etag.as_deref()),
        (version("1.32.9"), Some("de49bdc0-58f5-4654-8f92-2a88075257c2"))
    );
    assert_eq!(cluster.pools[0].etag.as_deref(), Some("caa7fe2d-f923-42a4-b8e2-c1cd8af8376c"));
    assert_eq!(
        cluster.pools[0].image.as_ref().map(|image| image.as_str()),
        Some("AKSUbuntu-2204containerd-202510.29.0")
    );
    assert!(cluster.settled_well() && !cluster.long_term_support && !cluster.provisions_nodes);
    assert_eq!((cluster.version_channel(), cluster.image_channel()), (None, Some("NodeImage")));

    let Some(lts) = recording("mc_get_lts_2024-03") else { return };
    let cluster = seen(&lts, 0).await;
    assert!(cluster.long_term_support);
    assert_eq!(cluster.etag.as_deref(), Some("21938257-b36c-45ab-bf9c-6d4d8315e043"));

    let Some(busy) = recording("mc_get_updating_automatic_2025-10") else { return };
    for (at, word) in [(1, Some("Updating")), (2, Some("Updating")), (4, None)] {
        assert_eq!(seen(&busy, at).await.busy(), word);
    }
    let automatic = seen(&busy, 4).await;
    assert!(automatic.provisions_nodes && automatic.version_channel() == Some("stable"), "{automatic:?}");
    let Some(image) = recording("mc_get_while_pool_upgrades_image_2022-11") else { return };
    let cluster = seen(&image, 1).await;
    assert_eq!(
        (cluster.provisioning.clone(), cluster.busy()),
        (Provisioning::Succeeded, Some("UpgradingNodeImageVersion"))
    );
}

#[tokio::test]
async fn recorded_cluster_with_hosted_system_pool_has_no_pools_and_its_overtaken_operation_is_canceled() {
    let Some(recording) = recording("mc_get_automatic_hosted_system_2025-10") else { return };
    let cluster = seen(&recording, 0).await;
    assert_eq!((cluster.pools.len(), cluster.busy()), (0, Some("Updating")));
    let pairs = pairs(&recording);
    let url = pairs[1]["request"]["url"].as_str().expect("url").to_owned();
    let (driver, _) = stage(pairs).await;
    let step = Step::cluster(version("1.33.0"), vec![]);
    let end = driver.poll(&intent("aks1", step, None), &Operation { id: "o".into(), url: Some(url) }).await;
    assert!(matches!(&end, Ok(Progress::Failed(fault)) if fault.code == "Canceled"), "{end:?}");
}

#[tokio::test]
async fn recorded_upgrade_profiles_and_machines() {
    let (Some(profiles), Some(machines)) = (recording("upgradeprofiles_2024-06"), recording("machines_list_2025-10"))
    else {
        return;
    };
    let mut pool = json!({"name": "nodepool1", "provisioningState": "Succeeded", "orchestratorVersion": "1.28.9"});
    let properties =
        json!({"provisioningState": "Succeeded", "kubernetesVersion": "1.28.9", "agentPoolProfiles": [pool.clone()]});
    let mut played = pairs(&profiles);
    played.push(get(format!("{GROUP}/aks2"), json!({"location": "westus2", "properties": properties})));
    let (driver, _) = stage(played).await;
    let look = Look { target: Some(version("1.29.4")), ..Look::default() };
    let cluster = driver.observe(&id("aks2"), look).await.expect("seen");
    assert_eq!(cluster.upgrades, [version("1.29.2"), version("1.29.4")]);
    let look = Look { images: true, ..Look::default() };
    let cluster = driver.observe(&id("aks2"), look).await.expect("seen");
    assert_eq!(
        cluster.pools[0].latest_image.as_ref().map(|image| image.as_str()),
        Some("AKSUbuntu-2204gen2TLcontainerd-202405.27.0")
    );

    // One machine at 1.32.7 with an image of October; then a page without any.
    for (at, image, lagging) in
        [("1.32.7", "202510.03.0", 0), ("1.33.0", "202510.03.0", 1), ("1.32.7", "202511.01.0", 1)]
    {
        pool["name"] = "pool3".into();
        pool["orchestratorVersion"] = at.into();
        pool["nodeImageVersion"] = format!("AKSUbuntu-2204gen2containerd-{image}").into();
        let properties = json!({"provisioningState": "Succeeded", "kubernetesVersion": "1.33.0", "agentPoolProfiles": [pool.clone()]});
        let mut played = pairs(&machines);
        let next = played[0]["response"]["body"]["nextLink"].as_str().expect("link").to_owned();
        played.push(get(next, json!({"value": []})));
        played.push(get(format!("{GROUP}/aks2"), json!({"location": "westus2", "properties": properties})));
        let (driver, _) = stage(played).await;
        let look = Look { machines: true, ..Look::default() };
        let cluster = driver.observe(&id("aks2"), look).await.expect("seen");
        assert_eq!(cluster.pools[0].lagging_nodes, lagging, "{at} {image}");
    }
}

#[tokio::test]
async fn recorded_version_lists() {
    let cases = [
        ("k8s_versions_2025-10_centraluseuap", "centraluseuap", "1.33", false),
        ("k8s_versions_2025-09_westcentralus", "West Central US", "1.33", false),
        ("k8s_versions_2023-11_with_preview", "eastus", "1.28", true),
    ];
    for (name, region, newest, preview) in cases {
        let Some(recording) = recording(name) else { return };
        let (driver, _) = stage(pairs(&recording)).await;
        let catalogue = driver.catalogue(&id("aks1"), region).await.expect("catalogue");
        assert!(catalogue.versions.is_sorted_by_key(|offered| offered.version));
        let last = catalogue.versions.last().expect("versions");
        assert!(last.version.to_string().starts_with(newest), "{name}: {last:?}");
        assert_eq!(last.preview, preview, "{name}");
        if name.contains("centraluseuap") {
            let only = |text: &str| {
                catalogue
                    .versions
                    .iter()
                    .find(|offered| offered.version == version(text))
                    .expect("listed")
                    .long_term_support_only
            };
            assert!(only("1.30.100") && !only("1.31.11"));
        }
    }
}

/// What a recorded error is expected to be, in a word.
fn kind(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Retry { after, .. } => format!("retry {:?}", after.map(|after| after.as_secs())),
        Trouble::Unknown(_) => "unknown".into(),
        Trouble::Wait(Hold::OtherOperation(word)) => format!("busy {word}"),
        Trouble::Wait(hold) => hold.code().into(),
        Trouble::Permanent(fault) => format!("permanent {}", fault.code),
    }
}

#[tokio::test]
async fn d4_every_recorded_error_is_sorted() {
    let Some(recording) = recording("errors") else { return };
    let expected = [
        ("arm_404", "ClusterUnreachable"),
        ("rp_404", "ClusterUnreachable"),
        ("rp_404_machine", "ClusterUnreachable"),
        ("rp_400_BadRequest", "permanent BadRequest"),
        ("rp_400_subcode", "permanent BadRequest"),
        ("rp_400_InvalidParameter", "permanent InvalidParameter"),
        ("rp_400_target", "permanent SystemPoolHasRestrictedTaint"),
        ("arm_429_identity", "retry Some(2)"),
        ("rp_500", "unknown"),
        ("arm_502", "retry None"),
        ("arm_504", "retry None"),
        ("arm_403", "CredentialsRefused"),
        ("rp_400_K8sVersionNotSupported_LTS", "permanent K8sVersionNotSupported"),
        ("rp_400_new_pool_in_cluster_put", "retry None"),
        ("rp_400_AgentPoolK8sVersionNotSupported", "KubernetesVersionNotAvailable"),
        ("rp_409_OperationNotAllowed_cluster", "busy Updating"),
        ("rp_409_OperationNotAllowed_agentpool", "busy nodepool1 - Creating"),
        ("rp_409_EtagMismatch", "retry None"),
        ("rp_429_put_bucket", "retry Some(36)"),
    ];
    let errors = recording["errors"].as_array().expect("errors");
    let mut sorted = 0;
    for error in errors.iter().filter(|error| error["status"] != 200) {
        let name = error["kind"].as_str().expect("kind");
        let (_, want) =
            expected.iter().find(|(kind, _)| *kind == name).unwrap_or_else(|| panic!("{name} is not in the table"));
        let method =
            if error["request"].as_str().is_some_and(|request| request.starts_with("GET")) { "GET" } else { "PUT" };
        let answer = json!({"request": {"method": method, "url": format!("{GROUP}/aks1")}, "response": error});
        let versions = json!({"values": [{"version": "1.33", "patchVersions": {"1.33.0": {}}}]});
        let list = format!(
            "{}/locations/eastus/kubernetesVersions",
            GROUP.replace("/resourceGroups/rg1", "").trim_end_matches("/managedClusters")
        );
        let properties = json!({"provisioningState": "Succeeded", "kubernetesVersion": "1.33.0"});
        let mut played = vec![answer, get(list, versions)];
        if method == "PUT" {
            played.insert(0, get(format!("{GROUP}/aks1"), json!({"location": "eastus", "properties": properties})));
        }
        let (driver, _) = stage(played).await;
        let trouble = if method == "GET" {
            driver.observe(&id("aks1"), Look::default()).await.expect_err(name)
        } else {
            let step = Step::cluster(version("1.34.0"), vec![]);
            driver.start(&intent("aks1", step, None)).await.expect_err(name)
        };
        assert_eq!(kind(&trouble), *want, "{name}: {trouble:?}");
        sorted += 1;
    }
    assert_eq!(sorted, expected.len());
}

#[tokio::test]
async fn d4_recorded_operation_bodies_with_errors_are_judged_by_their_status() {
    let Some(recording) = recording("errors") else { return };
    let url = format!("{AZURE}/subscriptions/x/providers/Microsoft.ContainerService/locations/l/operations/o");
    let properties = json!({"provisioningState": "Succeeded", "kubernetesVersion": "1.33.0"});
    for error in recording["errors"].as_array().expect("errors").iter().filter(|error| error["status"] == 200) {
        let (name, body) = (error["kind"].as_str().expect("kind"), &error["body"]);
        let cluster = get(format!("{GROUP}/aks1"), json!({"location": "l", "properties": properties.clone()}));
        let (driver, stage) = stage(vec![get(url.clone(), body.clone()), cluster]).await;
        let at = stage.0.lock().expect("stage").endpoint.clone();
        let operation = Operation { id: "o".into(), url: Some(url.replace(AZURE, &at)) };
        let progress = driver
            .poll(&intent("aks1", Step::ControlPlane { version: version("1.33.0") }, None), &operation)
            .await
            .expect(name);
        match (body["status"].as_str().expect("status"), progress) {
            ("Succeeded", Progress::Succeeded) => {}
            ("Canceled", Progress::Failed(fault)) => assert_eq!(fault.code, "Canceled"),
            ("Failed", Progress::Failed(fault)) => {
                assert_eq!(fault.code, body["error"]["code"].as_str().expect("code"));
                assert!(fault.message.contains("Hint: "), "{name}: {fault}");
            }
            (status, Progress::Running { detail, .. }) => assert_eq!(status, detail),
            (status, progress) => panic!("{name}: {status} became {progress:?}"),
        }
    }
}
