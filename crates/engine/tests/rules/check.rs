//! What is told of a member before a run starts (`behaviour.md` A3, D1, D4, E1, E4).

use flotta_engine::{
    check::{Looked, Outlook, Severity, Verdict},
    images::{self, PoolImages},
    run::Sighting,
    upgrade::Target,
};
use flotta_model::{
    Cluster, ClusterId, Fault, Goal, Hold, ImageSelection, KubernetesVersion, MaintenanceWindow, NodeImage, Offer,
    Provisioning, UpgradeType,
};

use crate::bench::{NEW_IMAGE, OLD, OLD_IMAGE, TARGET, goal, member, old_cluster, v};

fn managed() -> ClusterId {
    member("c1", None, &[]).cluster
}

fn full() -> Goal {
    goal(UpgradeType::Full, Some(TARGET))
}

fn sighted(cluster: Cluster, offer: Option<Offer>) -> Looked {
    Looked::Seen(Box::new(Sighting { cluster, offer, claimed_by: None, window: None }))
}

fn of(goal: &Goal, version: Option<KubernetesVersion>, cluster: &ClusterId, looked: &Looked) -> Verdict {
    Verdict::of(&target(goal, version, None), cluster, looked)
}

fn target<'a>(goal: &'a Goal, version: Option<KubernetesVersion>, images: Option<&'a [NodeImage]>) -> Target<'a> {
    let now = "2026-01-01T12:00:00Z".parse().expect("time");
    Target { goal, version, offer: None, images, now, automatic: false }
}

fn judge(goal: &Goal, cluster: Cluster) -> Verdict {
    let version = goal.version().and_then(|target| target.exact());
    of(goal, version, &managed(), &sighted(cluster, version.map(|_| Offer::Yes)))
}

/// `Waits; Error ClusterStopped`, and the text of the first finding.
fn summary(verdict: &Verdict) -> (String, String) {
    let outlook = match &verdict.outlook {
        Outlook::Upgrades(steps) => format!("Upgrades in {}", steps.len()),
        other => format!("{other:?}"),
    };
    let findings: Vec<String> =
        verdict.findings.iter().map(|finding| format!("; {:?} {}", finding.severity, finding.code)).collect();
    let text = verdict.findings.first().map(|finding| finding.message.clone()).unwrap_or_default();
    (outlook + &findings.concat(), text)
}

#[track_caller]
fn check(verdict: &Verdict, expect: &str, says: &str) {
    let (short, text) = summary(verdict);
    assert_eq!(short, expect, "{text}");
    assert!(text.contains(says), "expected '{says}' in: {text}");
}

fn changed(change: impl FnOnce(&mut Cluster)) -> Cluster {
    let mut cluster = old_cluster();
    change(&mut cluster);
    cluster
}

fn at_target() -> Cluster {
    changed(|cluster| {
        cluster.version = v(TARGET);
        for pool in &mut cluster.pools {
            pool.version = v(TARGET);
            pool.image = NEW_IMAGE.parse().ok();
            pool.latest_image = NEW_IMAGE.parse().ok();
        }
    })
}

#[test]
fn a4_a_cluster_that_can_go_shows_its_steps_and_one_that_is_there_says_so() {
    check(&judge(&full(), old_cluster()), "Upgrades in 1", "");
    check(&judge(&full(), at_target()), "Skipped; Note AlreadyThere", "at or above the target");
}

#[test]
fn e01_a_stopped_cluster_waits_and_is_an_error_since_nobody_else_starts_it() {
    let stopped = changed(|cluster| cluster.running = false);
    check(&judge(&full(), stopped), "Waits; Error ClusterStopped", "start it, or skip the member");
}

#[test]
fn e10_a_version_that_may_still_come_to_the_region_is_a_warning() {
    let looked = sighted(old_cluster(), Some(Offer::NotYet));
    let verdict = of(&full(), Some(v(TARGET)), &managed(), &looked);
    check(&verdict, "Waits; Warning KubernetesVersionNotAvailable", TARGET);
    let minor = goal(UpgradeType::Full, Some("1.36"));
    let verdict = of(&minor, None, &managed(), &sighted(old_cluster(), None));
    check(&verdict, "Waits; Warning KubernetesVersionNotAvailable", "1.36");
    let gone = sighted(old_cluster(), Some(Offer::NoLonger));
    check(
        &of(&full(), Some(v(TARGET)), &managed(), &gone),
        "Fails; Error K8sVersionNotSupported",
        "choose an offered version",
    );
}

#[test]
fn e10_a_pool_without_a_newest_image_in_its_region_keeps_its_own() {
    let unknown = changed(|cluster| cluster.pools[0].latest_image = None);
    let name = unknown.pools[0].name.clone();
    let verdict = judge(&goal(UpgradeType::NodeImageOnly, None), unknown);
    let warned = verdict.findings.iter().find(|finding| finding.code == "NodeImageNotAvailable").expect("a warning");
    assert!(warned.severity == Severity::Warning && warned.message.contains(&name), "{warned:?}");
    let behind = changed(|cluster| cluster.pools[0].latest_image = None);
    check(&judge(&full(), behind), "Upgrades in 1", "");
}

#[test]
fn e10_chosen_images_are_judged_before_the_run_starts() {
    let image = |day: &str| format!("AKSUbuntu-2204gen2containerd-{day}").parse::<NodeImage>().expect("image");
    let judge = |wanted: &str, cluster: Cluster| {
        let images = [image(wanted)];
        let selection = Some(ImageSelection::Custom(images.to_vec()));
        let goal = Goal::new(UpgradeType::NodeImageOnly, None, selection).expect("goal");
        Verdict::of(&target(&goal, None, Some(&images)), &managed(), &sighted(cluster, None))
    };
    let at = |own: &str, newest: &str| {
        changed(|cluster| {
            let pool = &mut cluster.pools[0];
            (pool.image, pool.latest_image) = (Some(image(own)), Some(image(newest)));
        })
    };
    check(&judge("202512.01.0", at("202511.01.0", "202512.01.0")), "Upgrades in 1", "");
    check(&judge("202511.01.0", at("202511.01.0", "202512.01.0")), "Skipped; Note AlreadyThere", "at or ahead");
    check(
        &judge("202509.01.0", at("202508.01.0", "202509.01.0")),
        "Waits; Error NodeImageTooOld",
        "was published 122 days ago",
    );
    check(
        &judge("202512.08.0", at("202511.01.0", "202512.01.0")),
        "Waits; Warning NodeImageNotAvailable",
        "not available in region westeurope",
    );
    check(
        &judge("202511.15.0", at("202511.01.0", "202512.01.0")),
        "Fails; Error NodeImageOvertaken",
        "moved on to 202512.01.0",
    );
    let mut mixed = at("202511.01.0", "202512.01.0");
    let mut other = mixed.pools[0].clone();
    other.name = "mariner".into();
    (other.image, other.latest_image) = ("AKSAzureLinux-V2gen2-202511.01.0".parse().ok(), None);
    mixed.pools.push(other);
    check(
        &judge("202512.01.0", mixed.clone()),
        "Upgrades in 1; Warning NodeImageNotSelected",
        "'mariner' is not upgraded",
    );
    mixed.pools.remove(0);
    check(&judge("202512.01.0", mixed), "Skipped; Warning NodeImageNotSelected", "no version for its image family");
}

#[test]
fn a4_regions_without_an_image_in_common_are_told_before_the_run_starts() {
    let goal = Goal::new(UpgradeType::NodeImageOnly, None, Some(ImageSelection::Consistent)).expect("goal");
    let behind = || changed(|cluster| cluster.pools[0].image = OLD_IMAGE.parse().ok());
    let mut pools = Vec::new();
    PoolImages::add(&mut pools, &behind());
    PoolImages::add(
        &mut pools,
        &changed(|cluster| {
            cluster.location = "eastus".into();
            cluster.pools[0].latest_image = OLD_IMAGE.parse().ok();
        }),
    );
    let apart = images::choose(&goal, &pools).expect_err("they disagree");
    let verdict =
        |cluster| Verdict::of(&target(&goal, None, None), &managed(), &sighted(cluster, None)).images_apart(&apart);
    check(&verdict(behind()), "Waits; Warning NodeImagesApart", "eastus has 202509.01.0, westeurope has 202510.03.1");
    let stopped = changed(|cluster| cluster.running = false);
    check(&verdict(stopped), "Waits; Error ClusterStopped", "");
}

#[test]
fn choice_a_cluster_more_than_one_minor_behind_is_told_before_an_automatic_run() {
    let goal = full();
    let behind = changed(|cluster| cluster.version = v("1.31.9"));
    let automatic = Target { automatic: true, ..target(&goal, Some(v(TARGET)), None) };
    let verdict = Verdict::of(&automatic, &managed(), &sighted(behind, Some(Offer::Yes)));
    check(&verdict, "Skipped; Warning MoreThanOneMinorBehind", "bring it to 1.32");
}

#[test]
fn e13_node_auto_provisioning_says_that_the_control_plane_alone_is_possible() {
    let provisions = |channel: &[&str]| {
        changed(|cluster| {
            cluster.provisions_nodes = true;
            cluster.automatic_upgrades = channel.iter().map(|channel| channel.to_string()).collect();
        })
    };
    check(&judge(&full(), provisions(&[])), "Skipped; Warning NodeAutoProvisioning", "ControlPlaneOnly");
    let images = judge(&goal(UpgradeType::NodeImageOnly, None), provisions(&[]));
    check(&images, "Skipped; Warning NodeAutoProvisioning", "ControlPlaneOnly");
    let alone = judge(&goal(UpgradeType::ControlPlaneOnly, Some(TARGET)), provisions(&[]));
    check(&alone, "Upgrades in 1; Note NodePoolsBehind", "on the cluster itself");
    let automatic = judge(&full(), provisions(&["stable"]));
    check(&automatic, "Skipped; Warning NodeAutoProvisioning; Warning AutoUpgradeOn", "'stable' upgrades it anyway");
}

#[test]
fn e14_a_cluster_connected_through_arc_is_skipped_however_it_was_looked_at() {
    let arc: ClusterId =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Kubernetes/connectedClusters/edge".parse().expect("id");
    for looked in [Looked::Held(Hold::NoDriver), sighted(old_cluster(), Some(Offer::Yes))] {
        let verdict = of(&full(), Some(v(TARGET)), &arc, &looked);
        check(&verdict, "Skipped; Warning NotUpgradable", "Arc");
    }
}

#[test]
fn e66_a_version_with_long_term_support_only_says_premium_and_plan() {
    let looked = |cluster| sighted(cluster, Some(Offer::WithLongTermSupport));
    let verdict = of(&full(), Some(v(TARGET)), &managed(), &looked(old_cluster()));
    check(&verdict, "Fails; Error K8sVersionNotSupported", "Premium");
    assert!(verdict.findings[0].message.contains("AKSLongTermSupport"));
    let supported = changed(|cluster| cluster.long_term_support = true);
    check(&of(&full(), Some(v(TARGET)), &managed(), &looked(supported)), "Upgrades in 1", "");
}

#[test]
fn e69_pools_that_a_control_plane_run_leaves_behind_are_named() {
    let alone = goal(UpgradeType::ControlPlaneOnly, Some(TARGET));
    let verdict = judge(&alone, old_cluster());
    check(&verdict, "Upgrades in 1; Note NodePoolsBehind", "by up to 1 minor(s)");
    assert!(verdict.findings[0].message.contains(OLD), "{verdict:?}");
    let there = changed(|cluster| cluster.version = v(TARGET));
    check(&judge(&alone, there), "Skipped; Note AlreadyThere; Note NodePoolsBehind", "at or above");
    let far = changed(|cluster| cluster.pools[0].version = v("1.29.1"));
    check(&judge(&alone, far), "Upgrades in 1; Warning NodePoolSkew", "more than Kubernetes allows");
    check(&judge(&alone, at_target()), "Skipped; Note AlreadyThere", "");
}

#[test]
fn a3_the_clusters_own_upgrades_are_a_warning_and_of_images_a_note() {
    let upgrades = |channels: &[&str]| {
        changed(|cluster| cluster.automatic_upgrades = channels.iter().map(|channel| channel.to_string()).collect())
    };
    check(
        &judge(&full(), upgrades(&["patch", "NodeImage"])),
        "Upgrades in 1; Warning AutoUpgradeOn; Note NodeImageUpgradeOn",
        "'patch'",
    );
    check(&judge(&full(), upgrades(&["NodeImage"])), "Upgrades in 1; Note NodeImageUpgradeOn", "'NodeImage'");
    let alone = judge(&goal(UpgradeType::ControlPlaneOnly, Some(TARGET)), upgrades(&["patch"]));
    check(
        &alone,
        "Fails; Error NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged; Warning AutoUpgradeOn",
        "turn the channel off",
    );
}

#[test]
fn d4_what_passes_by_itself_is_a_warning_and_what_does_not_an_error() {
    let cases = [
        (Hold::OtherOperation("Scaling".into()), "Waits; Warning AnotherOperationInProgress"),
        (Hold::Claimed { by: "shop/other".into() }, "Waits; Warning ClusterHeldByAnotherRun"),
        (Hold::Throttled, "Waits; Warning Throttled"),
        (Hold::NoDriver, "Waits; Error NoDriverForCluster"),
        (Hold::Unreachable("timed out".into()), "Waits; Error ClusterUnreachable"),
        (Hold::WindowUnreadable("startTime: 25:00 is no time".into()), "Waits; Error MaintenanceWindowUnreadable"),
        (Hold::CredentialsRefused("expired".into()), "Waits; Error CredentialsRefused"),
    ];
    for (hold, expect) in cases {
        let text = hold.to_string();
        check(&of(&full(), Some(v(TARGET)), &managed(), &Looked::Held(hold)), expect, &text);
    }
    let refused = Looked::Refused(Fault::new("AuthorizationFailed", "no right to read"));
    check(&of(&full(), Some(v(TARGET)), &managed(), &refused), "Fails; Error AuthorizationFailed", "no right");
    let busy = changed(|cluster| cluster.provisioning = Provisioning::from_word("Updating"));
    check(&judge(&full(), busy), "Waits; Warning AnotherOperationInProgress", "Updating");
    let failed = changed(|cluster| cluster.provisioning = Provisioning::Failed);
    check(&judge(&full(), failed), "Upgrades in 1; Warning LastOperationFailed", "did not end well");
    let claimed = Looked::Seen(Box::new(Sighting {
        cluster: old_cluster(),
        offer: Some(Offer::Yes),
        claimed_by: Some("shop/other".into()),
        window: None,
    }));
    check(&of(&full(), Some(v(TARGET)), &managed(), &claimed), "Waits; Warning ClusterHeldByAnotherRun", "other");
    check(&Verdict::not_covered(), "NotInRun; Warning NotCovered", "update group");
    check(&Verdict::left_the_fleet(), "Skipped; Warning MemberLeft", "left the fleet");
}

#[test]
fn a_closed_window_is_a_note_with_its_next_opening_unless_it_never_opens() {
    use flotta_model::{gate::Weekday, window::HoursOfWeek};
    let through = |cluster, hours: Vec<(Weekday, u8)>, not_allowed| {
        let window = MaintenanceWindow::HoursOfWeek(HoursOfWeek::new(hours, not_allowed).expect("window"));
        let sighting = Sighting { cluster, offer: Some(Offer::Yes), claimed_by: None, window: Some(window) };
        of(&full(), Some(v(TARGET)), &managed(), &Looked::Seen(Box::new(sighting)))
    };
    // It is Thursday, noon.
    let closed = through(old_cluster(), vec![(Weekday::Friday, 3)], vec![]);
    check(&closed, "Upgrades in 1; Note OutsideMaintenanceWindow", "2026-01-02T03:00:00Z");
    assert_eq!(closed.opens, "2026-01-02T03:00:00Z".parse().ok());
    check(&through(old_cluster(), vec![(Weekday::Thursday, 12)], vec![]), "Upgrades in 1", "");
    let for_ever = || vec![("2025-01-01T00:00:00Z".parse().expect("time"), jiff::Timestamp::MAX)];
    let never = through(old_cluster(), vec![(Weekday::Friday, 3)], for_ever());
    check(&never, "Waits; Error MaintenanceWindowNeverOpens", "never opens");
    check(&through(at_target(), vec![(Weekday::Friday, 3)], for_ever()), "Skipped; Note AlreadyThere", "");
}
