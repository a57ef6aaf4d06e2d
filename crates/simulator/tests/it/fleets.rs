//! The fleet files that ship with the simulator, and what is wrong with others.

use std::collections::BTreeSet;

use flotta_simulator::{FleetFile, Options, Simulator};

use crate::cloud::with;

async fn shipped(text: &str) -> Vec<flotta_simulator::ClusterSummary> {
    let fleet = FleetFile::parse(text).unwrap_or_else(|error| panic!("{error}"));
    Simulator::new(fleet, flotta_clock::Clock::system(), Options::default()).await.expect("simulator").clusters()
}

#[tokio::test]
async fn the_demo_fleet_has_three_environments_in_three_regions() {
    let clusters = shipped(include_str!("../../fleets/demo.yaml")).await;
    assert_eq!(clusters.len(), 26);
    let environments: BTreeSet<_> =
        clusters.iter().filter_map(|cluster| cluster.labels.get("env").map(String::as_str)).collect();
    assert_eq!(environments, BTreeSet::from(["canary", "production", "staging"]));
    let regions: BTreeSet<_> = clusters.iter().map(|cluster| cluster.location.as_str()).collect();
    assert_eq!(regions, BTreeSet::from(["australiaeast", "eastus2", "westeurope"]));
    assert!(
        clusters.iter().all(|cluster| cluster.group.is_some() && cluster.member.parse::<flotta_model::Name>().is_ok())
    );
}

#[tokio::test]
async fn the_large_fleet_has_a_thousand_clusters_in_fifty_groups() {
    let clusters = shipped(include_str!("../../fleets/thousand.yaml")).await;
    let groups: BTreeSet<_> = clusters.iter().filter_map(|cluster| cluster.group.clone()).collect();
    assert_eq!((clusters.len(), groups.len()), (1000, 50));
    assert_eq!(
        clusters[999].id.as_str(),
        "/subscriptions/00000000-0000-0000-0000-000000000001/resourcegroups/rg-50/providers/Microsoft.ContainerService/managedClusters/cluster-1000"
    );
}

#[test]
fn a_wrong_fleet_file_is_refused_with_the_place_and_the_reason() {
    let cluster = |fields: &str| {
        with(&format!("  - {{ name: x, region: westeurope, version: 1.32.6, pools: [{{ name: p }}], {fields} }}\n"))
    };
    let cases = [
        (with("surprise: 1\n"), "surprise"),
        (cluster("colour: red"), "clusters[1]"),
        (cluster("colour: red"), "colour"),
        (cluster("member: { label: {} }"), "clusters[1].member"),
        (with("").replace("throttling: false", "failureRate: 2"), "behaviour.failureRate"),
        (
            with("").replace("throttling: false", "durations: { create: { min: 5, median: 4, max: 6 } }"),
            "behaviour.durations.create",
        ),
        (with("").replace("region: westeurope", "region: mars"), "there are: eastus2, westeurope"),
        (with("").replace("count: 2, maxSurge: \"1\", mode", "count: 2, maxSurge: some, mode"), "maxSurge 'some'"),
        (
            with("").replace("osSKU: Windows2022, image: AKSWindows-2022-containerd-20348.2700.240911", "osSKU: BeOS"),
            "no image of family",
        ),
        (with("").replace("version: \"1.32.6\"", "version: \"1.29\""), "no patch of 1.29"),
        (cluster("supportPlan: AKSLongTermSupport"), "needs tier: Premium"),
        (cluster("nodeOSUpgradeChannel: Always"), "Unmanaged"),
        (cluster("sku: Automatic, nodeProvisioning: Manual"), "nodeProvisioning: Auto"),
        (with("").replace("\"1.33.2\"", "\"1.34.2\""), "1.34.2 is not a patch of 1.33"),
        (with("  - { name: c1, region: westeurope, version: 1.32.6, pools: [{ name: p }] }\n"), "another cluster"),
        (with("templates: [{ count: 1, cluster: { name: \"{m}\" } }]\n"), "'{m}' is not a placeholder"),
        (with("templates: [{ count: 2, cluster: { name: \"t{n}\", colour: red } }]\n"), "templates[0].cluster.colour"),
        (with("templates: [{ count: 4000000, cluster: {} }]\n"), "more than the 200000 allowed"),
        (with("faults: [{ fault: { failAfter: { status: 200 } } }]\n"), "faults[0]"),
        ("seed: [".to_owned(), "cannot be read"),
    ];
    for (text, expect) in cases {
        let error = FleetFile::parse(&text).expect_err(expect).to_string();
        assert!(error.contains(expect), "expected '{expect}' in: {error}");
    }
}
