//! Bodies of reads, next to what AKS really answers.

use std::{collections::BTreeSet, path::PathBuf};

use serde_json::{Value, json};

use crate::cloud::{cloud, with};

/// The recorded body of the nth answer of a reference file; none where the files are missing.
fn recorded(file: &str, index: usize) -> Option<Value> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let folder = std::env::var_os("FLOTTA_REFERENCE").map_or_else(beside, PathBuf::from);
    let Ok(text) = std::fs::read_to_string(folder.join("aks").join(file)) else {
        eprintln!("skipped: no {file} in the reference folder; set FLOTTA_REFERENCE");
        return None;
    };
    let file: Value = serde_json::from_str(&text).expect("json");
    Some(file["pairs"][index]["response"]["body"].clone())
}

/// Every path of keys in a body; items of a list share one path.
fn paths(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                into.insert(format!("{at}.{key}"));
                paths(value, &format!("{at}.{key}"), into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{at}[]"), into)),
        _ => {}
    }
}

/// Asserts that both bodies have the same keys, apart from those below the paths left out.
#[track_caller]
fn same_shape(ours: &Value, theirs: &Value, leave_out: &[&str]) {
    let keys = |value: &Value| {
        let mut keys = BTreeSet::new();
        paths(value, "", &mut keys);
        keys.retain(|key| !leave_out.iter().any(|out| key.starts_with(out)));
        keys
    };
    let (ours, theirs) = (keys(ours), keys(theirs));
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let extra: Vec<_> = ours.difference(&theirs).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:?}, extra {extra:?}");
}

#[tokio::test(start_paused = true)]
async fn aks_wire_9_bodies_have_the_shape_of_recorded_ones() {
    let cloud = cloud(&with("")).await;
    let pairs = [
        (
            "c1",
            "mc_get_idle_full_2025-11.json",
            0,
            &[".properties.addonProfiles.", ".properties.controlPlanePluginProfiles."][..],
        ),
        ("c1/upgradeProfiles/default", "upgradeprofiles_2024-06.json", 0, &[]),
        // The images that a pool can be set to are told beyond what AKS tells.
        (
            "c1/agentPools/system/upgradeProfiles/default",
            "upgradeprofiles_2024-06.json",
            1,
            &[".properties.nodeImageVersions"],
        ),
    ];
    for (path, file, index, leave_out) in pairs {
        let Some(theirs) = recorded(file, index) else { return };
        same_shape(&cloud.get(path).await.expect(200).body, &theirs, leave_out);
    }
    let versions = cloud
        .get("/subscriptions/s1/providers/Microsoft.ContainerService/locations/westeurope/kubernetesVersions")
        .await
        .body;
    for file in ["k8s_versions_2025-10_centraluseuap.json", "k8s_versions_2023-11_with_preview.json"] {
        let Some(theirs) = recorded(file, 0) else { return };
        same_shape(&versions, &theirs, &[".values[].patchVersions.", ".values[].isPreview"]);
    }
    let started = cloud.full_upgrade("c1", "1.33.1").await.expect(200);
    if let Some(theirs) = recorded("mc_put_full_upgrade_2023-06.json", 2) {
        same_shape(&cloud.poll(&started).await.body, &theirs, &[]);
        same_shape(
            &cloud.finish(&started).await.body,
            &recorded("mc_put_full_upgrade_2023-06.json", 4).expect("the same file"),
            &[],
        );
    }
    if let Some(theirs) = recorded("machines_list_2025-10.json", 0) {
        let ours = cloud.get("c1/agentPools/system/machines").await.body;
        let of_this_recording = [
            ".value[].properties.kubernetes.node",
            ".value[].properties.tags",
            ".value[].properties.status.creationTimestamp",
        ];
        same_shape(&ours, &theirs, &of_this_recording);
    }
}

fn listed(versions: &Value, from: &str) -> BTreeSet<String> {
    let minors = versions["values"].as_array().expect("values");
    let patch = minors.iter().find_map(|minor| minor["patchVersions"].get(from)).expect(from);
    patch["upgrades"]
        .as_array()
        .expect("upgrades")
        .iter()
        .map(|version| version.as_str().expect("text").to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn aks_wire_5_upgrades_reach_the_next_minor_and_from_long_term_support_three() {
    let cloud = cloud(&with("")).await;
    let path = "/subscriptions/s1/providers/Microsoft.ContainerService/locations/WestEurope/kubernetesVersions";
    let versions = cloud.get(path).await.expect(200).body;
    let set = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    let cases = [
        ("1.32.6", "1.32.7 1.33.0 1.33.1 1.33.2"),
        ("1.33.1", "1.33.2"),
        ("1.33.2", ""),
        ("1.34.0", ""),
        ("1.30.14", "1.30.100 1.31.10 1.31.11 1.32.5 1.32.6 1.32.7 1.33.0 1.33.1 1.33.2"),
        ("1.30.100", "1.31.10 1.31.11 1.32.5 1.32.6 1.32.7 1.33.0 1.33.1 1.33.2"),
    ];
    for (from, expect) in cases {
        assert_eq!(listed(&versions, from), set(expect), "{from}");
    }
    let flags: Vec<_> = versions["values"]
        .as_array()
        .expect("values")
        .iter()
        .filter_map(|minor| {
            let flag = ["isDefault", "isPreview"].into_iter().find(|flag| minor.get(*flag).is_some())?;
            Some((minor["version"].as_str()?.to_owned(), flag, minor[flag].clone()))
        })
        .collect();
    assert_eq!(flags.len(), 2, "{flags:?}");
    assert!(
        flags.contains(&("1.32".into(), "isDefault", json!(true)))
            && flags.contains(&("1.34".into(), "isPreview", json!(true)))
    );
    let mut orders = BTreeSet::new();
    for _ in 0..10 {
        let versions = cloud.get(path).await.body;
        orders.insert(
            versions["values"]
                .as_array()
                .expect("values")
                .iter()
                .map(|minor| minor["version"].to_string())
                .collect::<String>(),
        );
    }
    assert!(orders.len() > 1, "the order of minors differs from call to call");
    cloud.get(&path.replace("WestEurope", "mars")).await.expect(400);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_5_upgrade_profiles_show_what_the_cluster_may_do() {
    let cloud = cloud(&with("")).await;
    let profile = cloud.get("c1/upgradeProfiles/default").await.expect(200).body;
    let upgrades = profile["properties"]["controlPlaneProfile"]["upgrades"].as_array().expect("upgrades").clone();
    let upgrades: BTreeSet<&str> =
        upgrades.iter().map(|upgrade| upgrade["kubernetesVersion"].as_str().expect("text")).collect();
    assert_eq!(upgrades, BTreeSet::from(["1.32.7", "1.33.0", "1.33.1", "1.33.2"]));
    assert_eq!(profile["properties"]["agentPoolProfiles"], Value::Null);
    let pool = "c1/agentPools/system/upgradeProfiles/default";
    let profile = cloud.get(pool).await.expect(200).body;
    assert!(profile["properties"].get("upgrades").is_none(), "no key where there is nothing to do");
    assert_eq!(profile["properties"]["latestNodeImageVersion"], "AKSUbuntu-2204gen2containerd-202510.03.1");
    let started = cloud.put("c1", crate::cloud::version_body("1.33.0")).await.expect(200);
    cloud.finish(&started).await;
    let upgrades = cloud.get(pool).await.body["properties"]["upgrades"].clone();
    assert_eq!(upgrades, json!([{"kubernetesVersion": "1.33.0"}, {"kubernetesVersion": "1.32.7"}]));
    let available = cloud.get("c1/availableAgentPoolVersions").await.expect(200).body;
    assert!(
        available["properties"]["agentPoolVersions"]
            .as_array()
            .expect("list")
            .contains(&json!({"default": true, "kubernetesVersion": "1.33.0"}))
    );
}

#[tokio::test(start_paused = true)]
async fn lists_go_by_subscription_and_by_group_page_by_page() {
    let mut more = String::new();
    for index in 0..7 {
        more += &format!(
            "\n  - {{ name: t{index}, resourceGroup: rg{}, region: westeurope, version: 1.32.6, pools: [{{ name: system }}] }}",
            index % 2
        );
    }
    let cloud = cloud(&with(&more).replace("throttling: false", "throttling: false, pageSize: 3")).await;
    for (scope, expect) in
        [("/subscriptions/S1", 8), ("/subscriptions/s1/resourcegroups/RG1", 4), ("/subscriptions/other", 0)]
    {
        let mut next = crate::cloud::uri(&format!("{scope}/providers/Microsoft.ContainerService/managedClusters"));
        let mut names = BTreeSet::new();
        loop {
            let page = cloud.call("GET", &next, &[], None).await.expect(200).body;
            let value = page["value"].as_array().expect("value");
            assert!(value.len() <= 3);
            names.extend(value.iter().map(|cluster| cluster["name"].to_string()));
            let Some(link) = page["nextLink"].as_str() else { break };
            next = link.to_owned();
        }
        assert_eq!(names.len(), expect, "{scope}");
    }
    let one = cloud
        .get("/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.ContainerService/managedClusters")
        .await
        .body;
    assert_eq!(one["value"][0], cloud.get("c1").await.body);
    let pools = cloud.get("c1/agentPools").await.expect(200).body;
    assert_eq!(pools["value"][1], cloud.get("c1/agentPools/WIN").await.body);
}

#[tokio::test(start_paused = true)]
async fn aks_wire_7_maintenance_configurations_are_echoed_with_a_start_date() {
    let cloud = cloud(&with("")).await;
    assert_eq!(cloud.get("c1/maintenanceConfigurations").await.expect(200).body, json!({"value": []}));
    let path = "c1/maintenanceConfigurations/aksManagedAutoUpgradeSchedule";
    let window = json!({"schedule": {"weekly": {"intervalWeeks": 3, "dayOfWeek": "Friday"}}, "durationHours": 8, "utcOffset": "+05:30", "startDate": "2123-01-01", "startTime": "00:00"});
    let with_date = json!({"properties": {"maintenanceWindow": window}});
    let put = cloud.put(path, with_date.clone()).await.expect(200);
    assert_eq!(put.body["properties"], with_date["properties"]);
    assert_eq!((put.header("azure-asyncoperation"), put.body.get("type")), ("", None));
    let mut without = with_date.clone();
    without["properties"]["maintenanceWindow"].as_object_mut().expect("window").remove("startDate");
    let put = cloud.put(path, without).await.expect(200);
    assert_eq!(put.body["properties"]["maintenanceWindow"]["startDate"], "2025-11-01");
    let legacy = json!({"properties": {"timeInWeek": [{"day": "Monday", "hourSlots": [1]}], "notAllowedTime": []}});
    let put = cloud.put("c1/maintenanceConfigurations/default", legacy).await.expect(200);
    assert!(put.body["properties"].get("notAllowedTime").is_none());
    let times = json!({"properties": {"notAllowedTime": [{"start": "2021-11-26T03:00:00.000Z", "end": "2021-11-30T14:00:00+02:00"}]}});
    let put = cloud.put("c1/maintenanceConfigurations/free-name", times).await.expect(200);
    assert_eq!(
        put.body["properties"]["notAllowedTime"][0],
        json!({"start": "2021-11-26T03:00:00Z", "end": "2021-11-30T12:00:00Z"})
    );
    let all = cloud.get("c1/maintenanceConfigurations").await.body;
    let names: Vec<_> =
        all["value"].as_array().expect("value").iter().map(|one| one["name"].as_str().expect("name")).collect();
    assert_eq!(names, ["aksManagedAutoUpgradeSchedule", "default", "free-name"]);
    assert_eq!(cloud.get(path).await.expect(200).body, all["value"][0]);
    assert_eq!(cloud.send("DELETE", path, None).await.expect(200).body, Value::Null);
    cloud.get(path).await.expect(404);
    assert!(cloud.accepted().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn aks_wire_d6_channels_sku_and_node_provisioning_are_as_the_fleet_file_has_them() {
    let more = [
        "sku: Automatic",
        "nodeProvisioning: Auto",
        "autoUpgradeChannel: patch, nodeOSUpgradeChannel: SecurityPatch",
        "sku: Base",
    ];
    let clusters = more.iter().enumerate().map(|(n, fields)| {
        format!("  - {{ name: x{n}, region: westeurope, version: 1.32.6, pools: [{{ name: p }}], {fields} }}\n")
    });
    let cloud = cloud(&with(&clusters.collect::<String>())).await;
    let mut seen = Vec::new();
    for n in 0..more.len() {
        let body = cloud.get(&format!("x{n}")).await.expect(200).body;
        let properties = &body["properties"];
        seen.push(json!([
            body["sku"]["name"],
            properties["autoUpgradeProfile"]["upgradeChannel"],
            properties["autoUpgradeProfile"]["nodeOSUpgradeChannel"],
            properties["nodeProvisioningProfile"]["mode"],
        ]));
    }
    let expected = [
        json!(["Automatic", "stable", "None", "Auto"]),
        json!(["Base", null, "None", "Auto"]),
        json!(["Base", "patch", "SecurityPatch", "Manual"]),
        json!(["Base", null, "None", "Manual"]),
    ];
    assert_eq!(seen, expected);
}
