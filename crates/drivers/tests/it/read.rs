//! What is seen of a cluster, and how patiently.

use std::sync::Arc;

use flotta_clock::Clock;
use flotta_drivers::{
    ClusterDriver, Look, Trouble,
    aks::{AksConfig, AksDriver, ConfigError, Reach},
    token::{Secret, TokenSource, Tokens},
    transport::TransportError,
};
use flotta_model::Provisioning;
use http::Method;
use serde_json::json;

use crate::fake::*;

#[tokio::test]
async fn d1_current_versions_are_the_truth_and_unknown_words_are_busy() {
    let fake = Fake::new();
    fake.with(|state| {
        state.cluster["location"] = "East US".into();
        state.cluster["properties"]["powerState"]["code"] = "Stopped".into();
        let pool = state.pool("win").expect("win");
        pool["orchestratorVersion"] = "1.32".into();
        pool["provisioningState"] = "Migrating".into();
        pool.as_object_mut().expect("pool").remove("currentOrchestratorVersion");
    });
    let seen = driver(&fake).observe(&id(), Look::default()).await.expect("seen");
    assert_eq!((seen.location.as_str(), seen.running), ("eastus", false));
    assert_eq!(seen.version, "1.32.7".parse().expect("version"));
    assert_eq!(seen.pools[1].version, seen.version, "a mere minor is taken for the control plane's version");
    assert_eq!(seen.pools[1].provisioning, Provisioning::Busy("Migrating".into()));
    assert_eq!(fake.reads(""), 1, "what was not asked for is not read");
}

#[tokio::test]
async fn d1_previews_are_no_upgrades_and_a_pool_without_a_profile_has_no_newer_image() {
    let fake = Fake::new();
    let upgrades = json!([{"kubernetesVersion": "1.34.0", "isPreview": true}, {"kubernetesVersion": "1.33.10"}, {"kubernetesVersion": "1.33.9", "isPreview": false}]);
    fake.script(
        Method::GET,
        "c1/upgradeProfiles/default",
        json_answer(
            200,
            &json!({"properties": {"controlPlaneProfile": {"upgrades": upgrades}, "agentPoolProfiles": null}}),
        ),
    );
    let latest = json!({"properties": {"latestNodeImageVersion": "AKSUbuntu-2204gen2containerd-202510.03.1"}});
    fake.script(Method::GET, "agentPools/sys/upgradeProfiles/default", json_answer(200, &latest));
    let target = Some("1.33.9".parse().expect("version"));
    let look = Look { target, images: true, ..Look::default() };
    let seen = driver(&fake).observe(&id(), look).await.expect("seen");
    let versions: Vec<String> = seen.upgrades.iter().map(ToString::to_string).collect();
    assert_eq!(versions, ["1.33.9", "1.33.10"]);
    assert!(seen.pools.iter().all(|pool| pool.latest_image.is_none()), "the version comes first");
    let reads = fake.reads("upgradeProfiles");
    let look = Look { images: true, ..Look::default() };
    let seen = driver(&fake).observe(&id(), look).await.expect("seen");
    assert!(seen.upgrades.is_empty() && fake.reads("c1/upgradeProfiles") == 1, "nothing is read that is not needed");
    assert_eq!(fake.reads("upgradeProfiles") - reads, seen.pools.len());
    let images: Vec<Option<&str>> =
        seen.pools.iter().map(|pool| pool.latest_image.as_ref().map(|image| image.as_str())).collect();
    assert_eq!(images, [Some("AKSUbuntu-2204gen2containerd-202510.03.1"), None]);
}

#[tokio::test]
async fn a4_images_that_can_be_pinned_are_read_below_the_target_too_where_they_are_to_go_with_the_version() {
    let fake = Fake::new();
    let upgrades = json!({"properties": {"controlPlaneProfile": {"upgrades": [{"kubernetesVersion": "1.33.9"}]}}});
    fake.script(Method::GET, "c1/upgradeProfiles/default", json_answer(200, &upgrades));
    let older = "AKSUbuntu-2204gen2containerd-202509.01.0";
    let profile = json!({"properties": {
        "latestNodeImageVersion": NEW_IMAGE,
        "nodeImageVersions": [NEW_IMAGE, "AKSAzureLinux-V3gen2-202510.03.1", older, 7, "x", older],
        "latestSecurityPatch": "AKSUbuntu-2204gen2containerd-202509.01.0-2025.12.01",
    }});
    fake.script(Method::GET, "agentPools/sys/upgradeProfiles/default", json_answer(200, &profile));
    let target = Some("1.33.9".parse().expect("version"));
    let look = Look { target, images: true, pins: true, ..Look::default() };
    let seen = driver(&fake).observe(&id(), look).await.expect("seen");
    let offered: Vec<&str> = seen.pools[0].offered_images.iter().map(|image| image.as_str()).collect();
    assert_eq!(offered, [older, NEW_IMAGE], "its family alone, in order, once each");
    let patch = seen.pools[0].live_patch.as_ref().and_then(|image| image.security_patch());
    assert_eq!(patch, Some(jiff::civil::date(2025, 12, 1)));
    let win = &seen.pools[1];
    assert_eq!((&win.latest_image, win.offered_images.len(), &win.live_patch), (&None, 0, &None));
    assert_eq!(seen.upgrades.len(), 1);
}

#[tokio::test]
async fn an_upgrade_that_begins_between_two_reads_is_no_refusal_for_ever() {
    let fake = Fake::new();
    let profile = json!({"properties": {"controlPlaneProfile": {"kubernetesVersion": "1.33.9", "upgrades": []}}});
    fake.script(Method::GET, "c1/upgradeProfiles/default", json_answer(200, &profile));
    let look = Look { target: Some("1.33.9".parse().expect("version")), ..Look::default() };
    let seen = driver(&fake).observe(&id(), look).await;
    assert!(matches!(seen, Err(Trouble::Retry { .. })), "{seen:?}");
}

#[tokio::test]
async fn machines_are_paged_and_never_from_another_host() {
    let fake = Fake::new();
    let machine = |version: &str| json!({"properties": {"kubernetes": {"currentOrchestratorVersion": version}}});
    let page = |version: &str, next: &str| json_answer(200, &json!({"value": [machine(version)], "nextLink": next}));
    fake.script(Method::GET, "sys/machines?", page("1.32.6", &format!("{ENDPOINT}{ID}/agentPools/sys/machines-2")));
    fake.script(Method::GET, "sys/machines-2", page("1.31.9", "https://evil.example/machines"));
    let look = Look { machines: true, ..Look::default() };
    let seen = driver(&fake).observe(&id(), look).await.expect("seen");
    assert_eq!(seen.pools[0].lagging_nodes, 2);
    assert!(fake.with(|state| state.log.iter().all(|seen| seen.uri.starts_with(ENDPOINT))));
    // Pages without end are left.
    for _ in 0..60 {
        fake.script(Method::GET, "sys/machines", page("1.32.6", &format!("{ENDPOINT}{ID}/agentPools/sys/machines-2")));
    }
    assert_eq!(driver(&fake).observe(&id(), look).await.expect("seen").pools[0].lagging_nodes, 50);
}

#[tokio::test]
async fn a_read_is_tried_three_times_when_it_may_help_and_once_when_not() {
    let fake = Fake::new();
    let driver = driver(&fake);
    fake.script(Method::GET, ID, error(502, "BadGateway", "m"));
    fake.script(Method::GET, ID, Err(TransportError::MaybeSent("reset".into())));
    driver.observe(&id(), Look::default()).await.expect("third time");
    assert_eq!(fake.reads(""), 3);
    for _ in 0..3 {
        fake.script(Method::GET, ID, error(503, "Unavailable", "m"));
    }
    let trouble = driver.observe(&id(), Look::default()).await.expect_err("three times");
    assert!(matches!(trouble, Trouble::Retry { .. }), "{trouble:?}");
    assert_eq!(fake.reads(""), 6);
    for (status, code) in [(404, "ClusterUnreachable"), (401, "CredentialsRefused"), (403, "CredentialsRefused")] {
        fake.script(Method::GET, ID, error(status, "Code", "m"));
        let before = fake.reads("");
        let trouble = driver.observe(&id(), Look::default()).await.expect_err("hold");
        assert!(matches!(&trouble, Trouble::Wait(hold) if hold.code() == code), "{trouble:?}");
        assert_eq!(fake.reads(""), before + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn d6_a_region_is_read_once_in_five_minutes_however_many_ask() {
    let fake = Fake::new();
    let transport = fake.transport();
    let tokens = Tokens::new(TokenSource::None, "r", transport.clone());
    let clock: Clock = clock();
    let driver = Arc::new(AksDriver::new(config(), transport, tokens, clock).expect("config"));
    let cluster = id();
    let asks = (0..50).map(|_| driver.catalogue(&cluster, "East US"));
    for catalogue in futures::future::join_all(asks).await {
        let offered: Vec<(String, bool, bool)> = catalogue
            .expect("catalogue")
            .versions
            .iter()
            .map(|offered| (offered.version.to_string(), offered.preview, offered.long_term_support_only))
            .collect();
        let expected = [
            ("1.30.14", false, true),
            ("1.30.100", false, true),
            ("1.33.0", false, false),
            ("1.33.2", false, false),
            ("1.34.0", true, false),
        ];
        assert_eq!(offered, expected.map(|(version, preview, lts)| (version.to_owned(), preview, lts)));
    }
    assert_eq!(fake.reads("/locations/eastus/kubernetesVersions"), 1);
    clock.pause(std::time::Duration::from_secs(301)).await;
    driver.catalogue(&id(), "eastus").await.expect("catalogue");
    assert_eq!(fake.reads("/locations/eastus/kubernetesVersions"), 2);
}

#[test]
fn a_driver_reaches_what_it_is_told_to() {
    const ARC: &str = "/subscriptions/s1/resourceGroups/g/providers/Microsoft.Kubernetes/connectedClusters/edge";
    let reaches_id = |reach: Reach, id: &str| {
        let transport = Fake::new().transport();
        let tokens = Tokens::new(TokenSource::None, "r", transport.clone());
        let config = AksConfig { reach, ..config() };
        AksDriver::new(config, transport, tokens, clock())
            .expect("config")
            .reaches(&id.to_uppercase().parse().expect("id"))
    };
    let reaches = |reach: Reach| reaches_id(reach, ID);
    let set = |text: &str| [text.to_owned()].into();
    assert!(reaches(Reach::Everything));
    assert!(!reaches_id(Reach::Everything, ARC), "no AKS driver is for what is connected through Arc");
    assert!(reaches(Reach::Subscriptions(set("s1"))) && !reaches(Reach::Subscriptions(set("s2"))));
    assert!(reaches(Reach::Clusters(set(&ID.to_lowercase()))) && !reaches(Reach::Clusters(set("/other"))));
}

#[test]
fn endpoints_that_would_show_a_token_are_refused() {
    let check = |endpoint: &str, source: TokenSource| {
        let transport = Fake::new().transport();
        let tokens = Tokens::new(source, "r", transport.clone());
        let config = AksConfig::new(endpoint, Reach::Everything);
        AksDriver::new(config, transport, tokens, clock()).map(|_| ())
    };
    let secret = || TokenSource::Static(Secret::new("t"));
    for good in [
        "https://management.azure.com",
        "https://management.azure.com/",
        "http://127.0.0.1:8080",
        "http://[::1]:80",
        "http://localhost:1",
    ] {
        assert_eq!(check(good, secret()), Ok(()), "{good}");
    }
    assert_eq!(check("http://10.0.0.1", secret()), Err(ConfigError::Plain("http://10.0.0.1".into())));
    assert_eq!(check("http://10.0.0.1", TokenSource::None), Ok(()));
    for bad in ["", "management.azure.com", "ftp://a", "https://a/b", "https://a?b=c", "https://u:p@a", "/x"] {
        assert_eq!(check(bad, secret()), Err(ConfigError::Endpoint(bad.into())));
    }
}
