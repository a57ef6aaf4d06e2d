//! What a cluster needs to get from where it is to what a run wants (`behaviour.md` A4, B2, D1, D2; `aks-wire.md` §3).
//!
//! The answer is derived afresh from every observation: after each step the cluster is looked at again, and the next
//! step, if any, follows from what is seen. A cluster is "there" only when its version (and images) are at or above
//! the target and it has come to rest well: the provider's model shows a target as soon as a request is accepted, so
//! a failed upgrade must be sent again.

use std::collections::BTreeMap;

use flotta_model::{
    Cluster, ClusterId, ClusterKind, Fault, Goal, Hold, ImageSelection, KubernetesVersion, NodeImage, Offer, Pool,
    Provisioning, Step, UpgradeType,
};
use jiff::Timestamp;

use crate::pinned::Chosen;

/// What a cluster needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It is there already; why, in words.
    Nothing(String),
    /// These, one after another, as far as can be seen from here. Never empty.
    Steps(Vec<Step>),
    /// Something holds it.
    Hold(Hold),
    /// It cannot get there.
    Never(Fault),
    /// It is not for a run of this kind, through no fault of its own.
    Unfit {
        /// A stable word for it.
        code: &'static str,
        /// Why, and what would do, in words.
        why: String,
    },
}

/// Why no run can move a cluster of this kind, if so (`behaviour.md` E14).
pub fn unfit_kind(cluster: &ClusterId) -> Option<String> {
    match cluster.kind() {
        ClusterKind::Managed => None,
        ClusterKind::Connected => {
            Some("a cluster connected through Arc cannot be upgraded from here; upgrade it where it runs".into())
        }
    }
}

/// Why Full and NodeImageOnly pass over a cluster that makes its own nodes (`behaviour.md` A3, E13).
fn self_provisioned(cluster: &Cluster) -> String {
    let why = "node auto-provisioning makes the cluster's nodes, which a run cannot move";
    match cluster.version_channel() {
        None => format!("{why}; use a run of type ControlPlaneOnly, and its nodes will follow"),
        Some(channel) => format!(
            "{why}; its upgrade channel '{channel}' upgrades it anyway, and where that can be turned off a run of type ControlPlaneOnly can do it"
        ),
    }
}

/// The code of what is passed over since no image was chosen for its family.
pub(crate) const NOT_SELECTED: &str = "NodeImageNotSelected";

/// What a run wants, with version and images pinned.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The goal.
    pub goal: &'a Goal,
    /// The exact version. Absent only for NodeImageOnly.
    pub version: Option<KubernetesVersion>,
    /// How the version stands in the cluster's region, where that was read.
    pub offer: Option<Offer>,
    /// The images that were chosen, one a family. Absent for Latest.
    pub images: Option<&'a [NodeImage]>,
    /// Now: it tells how old an image is.
    pub now: Timestamp,
    /// An auto-upgrade profile made the run: it takes no cluster over more than one minor.
    pub automatic: bool,
}

impl Target<'_> {
    /// What `cluster` needs to get there.
    pub fn needs(&self, cluster: &Cluster) -> Needs {
        let chosen = self.chosen(cluster);
        if let Some(unfit) = self.unfit(cluster, chosen.as_ref()) {
            return unfit;
        }
        if !cluster.running {
            return Needs::Hold(Hold::ClusterStopped);
        }
        if let Some(word) = cluster.busy() {
            return Needs::Hold(Hold::OtherOperation(word.into()));
        }
        self.steps(cluster, chosen.as_ref()).unwrap_or_else(|stuck| *stuck)
    }

    /// Why some of a cluster's pools, but not all, are not for this run.
    pub(crate) fn left_out(&self, cluster: &Cluster) -> Option<String> {
        let chosen = self.chosen(cluster)?;
        let reasons: Vec<String> = cluster.pools.iter().filter_map(|pool| chosen.left_out(pool)).collect();
        let some = !reasons.is_empty() && reasons.len() < cluster.pools.len();
        some.then(|| reasons.join("; "))
    }

    /// The images that were chosen, if they are for this kind of upgrade.
    fn chosen<'c>(&'c self, cluster: &'c Cluster) -> Option<Chosen<'c>> {
        let images = self.images.filter(|_| self.goal.upgrade() != UpgradeType::ControlPlaneOnly)?;
        Some(Chosen {
            images,
            custom: matches!(self.goal.images(), Some(ImageSelection::Custom(_))),
            accepts_newer: self.goal.accepts_newer(),
            region: &cluster.location,
            now: self.now,
        })
    }

    fn unfit(&self, cluster: &Cluster, chosen: Option<&Chosen<'_>>) -> Option<Needs> {
        let unfit = |code, why| Some(Needs::Unfit { code, why });
        if cluster.provisions_nodes && self.goal.upgrade() != UpgradeType::ControlPlaneOnly {
            return unfit("NodeAutoProvisioning", self_provisioned(cluster));
        }
        if let Some(why) = self.version.filter(|_| self.automatic).and_then(|version| too_far(version, cluster)) {
            return unfit("MoreThanOneMinorBehind", why);
        }
        unfit(NOT_SELECTED, chosen?.all_left_out(cluster)?)
    }

    fn steps(&self, cluster: &Cluster, chosen: Option<&Chosen<'_>>) -> Result<Needs, Box<Needs>> {
        let (mut notes, mut pools) = (Vec::new(), Vec::new());
        for pool in &cluster.pools {
            match chosen.and_then(|chosen| chosen.left_out(pool)) {
                Some(why) => notes.push(sentence(&why)),
                None => pools.push(pool),
            }
        }
        let mut steps = match self.version {
            Some(version) => self.version_steps(version, cluster, &pools, chosen, &mut notes)?,
            None => Vec::new(),
        };
        let whole_cluster = matches!(steps.first(), Some(Step::Cluster { .. }));
        if self.goal.upgrade() != UpgradeType::ControlPlaneOnly && !whole_cluster {
            pools.retain(|pool| !steps.iter().any(|step| step.pool() == Some(&pool.name)));
            steps.extend(match chosen {
                Some(chosen) => chosen.steps(&pools, &mut notes)?,
                None => latest(&pools, &mut notes),
            });
        }
        Ok(if steps.is_empty() { Needs::Nothing(notes.join(" ")) } else { Needs::Steps(steps) })
    }

    fn version_steps(
        &self,
        version: KubernetesVersion,
        cluster: &Cluster,
        pools: &[&Pool],
        chosen: Option<&Chosen<'_>>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Step>, Box<Needs>> {
        let images = |pools: &[&Pool]| -> Result<BTreeMap<String, NodeImage>, Box<Needs>> {
            let images = chosen.map_or(Ok(Vec::new()), |chosen| chosen.with_version(pools))?;
            Ok(images.into_iter().map(|(pool, image)| (pool.name.clone(), image)).collect())
        };
        let whole = || match self.goal.upgrade() {
            UpgradeType::ControlPlaneOnly => Ok(vec![Step::ControlPlane { version }]),
            _ => {
                let names = pools.iter().map(|pool| pool.name.clone()).collect();
                Ok(vec![Step::Cluster { version, pools: names, images: images(pools)? }])
            }
        };
        if cluster.version < version {
            self.allowed(version, cluster)?;
            return whole();
        }
        let well = |provisioning: &Provisioning| *provisioning == Provisioning::Succeeded;
        let pools_well = || pools.iter().all(|pool| well(&pool.provisioning));
        let alone = self.goal.upgrade() == UpgradeType::ControlPlaneOnly;
        if cluster.version == version && !(well(&cluster.provisioning) && (alone || pools_well())) {
            return whole();
        }
        notes.push(format!("The control plane is at {}, at or above the target {version}.", cluster.version));
        if alone {
            return Ok(Vec::new());
        }
        let behind = |pool: &Pool| pool.version < version || (pool.version == version && unsettled(pool));
        let behind: Vec<&Pool> = pools.iter().copied().filter(|pool| behind(pool)).collect();
        if behind.is_empty() && !pools.is_empty() {
            let which = if pools.len() == cluster.pools.len() { "Every" } else { "Every other" };
            notes.push(format!("{which} node pool is at or above the target version."));
        }
        let mut images = images(&behind)?;
        let step = |pool: &&Pool| {
            let image = images.remove(&pool.name);
            Step::PoolVersion { pool: pool.name.clone(), version, image }
        };
        Ok(behind.iter().map(step).collect())
    }

    /// Never down, only what the upgrade profile lists, and only what the region offers.
    fn allowed(&self, version: KubernetesVersion, cluster: &Cluster) -> Result<(), Box<Needs>> {
        let never = |code: &str, message: String| Err(Box::new(Needs::Never(Fault::new(code, message))));
        let alone = self.goal.upgrade() == UpgradeType::ControlPlaneOnly;
        let leaves_behind = alone && cluster.pools.iter().any(|pool| pool.version < version);
        if let Some(channel) = cluster.version_channel().filter(|_| leaves_behind) {
            let message = format!(
                "the control plane cannot be upgraded alone while the cluster's own upgrade channel '{channel}' is on; turn the channel off, or use a run of type Full"
            );
            return never("NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged", message);
        }
        let region = &cluster.location;
        match self.offer {
            Some(Offer::NotYet) => {
                let hold = Hold::VersionNotInRegion { version: version.to_string(), region: region.clone() };
                return Err(Box::new(Needs::Hold(hold)));
            }
            Some(Offer::NoLonger) => {
                let message = format!(
                    "Kubernetes version {version} is not offered in region {region} and is older than what is; choose an offered version"
                );
                return never("K8sVersionNotSupported", message);
            }
            Some(Offer::WithLongTermSupport) if !cluster.long_term_support => {
                let message = format!(
                    "Kubernetes version {version} is for clusters with long-term support only; move the cluster to the Premium tier and its support plan to AKSLongTermSupport, or choose a newer version"
                );
                return never("K8sVersionNotSupported", message);
            }
            _ => {}
        }
        if cluster.upgrades.contains(&version) {
            return Ok(());
        }
        let mut listed: Vec<KubernetesVersion> = cluster.upgrades.clone();
        listed.sort_unstable();
        let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
        let message = format!(
            "an upgrade from {} to {version} is not allowed; the cluster's upgrade profile lists [{}]",
            cluster.version,
            listed.join(", ")
        );
        never("OperationNotAllowed", message)
    }
}

/// The steps that take pools to the newest image of their region.
fn latest(pools: &[&Pool], notes: &mut Vec<String>) -> Vec<Step> {
    let mut steps = Vec::new();
    for pool in pools {
        let Some(latest) = &pool.latest_image else { continue };
        if pool.from_snapshot {
            notes.push(format!("Node pool '{}' was made from a snapshot and keeps its node image.", pool.name));
            continue;
        }
        let behind = pool.image.as_ref().is_some_and(|image| image < latest);
        if behind || unsettled(pool) {
            steps.push(Step::PoolImage { pool: pool.name.clone(), image: latest.clone() });
        } else {
            notes.push(format!("Node pool '{}' is at or ahead of node image {latest}.", pool.name));
        }
    }
    steps
}

/// Why an automatic run passes over a cluster: no cluster is taken over a minor without somebody's doing.
fn too_far(version: KubernetesVersion, cluster: &Cluster) -> Option<String> {
    let own = cluster.version;
    let before = version.minor.checked_sub(1)?;
    let far = own.major == version.major && own.minor < before;
    far.then(|| {
        format!(
            "it is at {own}, more than one minor behind {version}, and automatic upgrades do not skip minors; first bring it to {}.{before}, minor by minor, with runs of its own",
            version.major
        )
    })
}

/// A reason as a sentence of its own.
fn sentence(why: &str) -> String {
    let mut rest = why.chars();
    let first = rest.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(rest).chain(['.']).collect()
}

/// A pool whose last operation did not end well, or whose nodes lag behind what it says of itself.
pub(crate) fn unsettled(pool: &Pool) -> bool {
    pool.provisioning != Provisioning::Succeeded || pool.lagging_nodes > 0
}

#[cfg(test)]
mod tests {
    use flotta_model::{Catalogue, RegionVersion};

    use super::*;

    const OLD_IMAGE: &str = "AKSUbuntu-2204gen2containerd-202509.01.0";
    const NEW_IMAGE: &str = "AKSUbuntu-2204gen2containerd-202510.03.1";

    fn v(text: &str) -> KubernetesVersion {
        text.parse().expect(text)
    }

    fn pool(name: &str, version: &str, image: &str) -> Pool {
        Pool {
            name: name.into(),
            version: v(version),
            provisioning: Provisioning::Succeeded,
            image: Some(image.parse().expect(image)),
            latest_image: Some(NEW_IMAGE.parse().expect(NEW_IMAGE)),
            offered_images: Vec::new(),
            live_patch: None,
            from_snapshot: false,
            lagging_nodes: 0,
            etag: None,
        }
    }

    fn cluster(version: &str, pools: Vec<Pool>) -> Cluster {
        Cluster {
            location: "westeurope".into(),
            version: v(version),
            provisioning: Provisioning::Succeeded,
            running: true,
            upgrades: ["1.32.7", "1.33.0", "1.33.2"].map(v).to_vec(),
            pools,
            etag: None,
            long_term_support: false,
            automatic_upgrades: Vec::new(),
            provisions_nodes: false,
        }
    }

    fn catalogue() -> Catalogue {
        let offer =
            |text: &str, lts: bool| RegionVersion { version: v(text), preview: false, long_term_support_only: lts };
        Catalogue {
            versions: vec![
                offer("1.30.100", true),
                offer("1.32.6", false),
                offer("1.32.7", false),
                offer("1.33.2", false),
                offer("1.34.0", false),
            ],
        }
    }

    fn target(goal: &Goal, version: Option<KubernetesVersion>, offer: Option<Offer>) -> Target<'_> {
        Target { goal, version, offer, images: None, now: Timestamp::UNIX_EPOCH, automatic: false }
    }

    fn needs(upgrade: UpgradeType, version: Option<&str>, cluster: &Cluster) -> Needs {
        let goal = Goal::new(upgrade, version.map(|text| text.parse().expect(text)), None).expect("goal");
        let offer = version.map(|version| catalogue().offer(v(version)));
        target(&goal, version.map(v), offer).needs(cluster)
    }

    fn full(version: &str, cluster: &Cluster) -> Needs {
        needs(UpgradeType::Full, Some(version), cluster)
    }

    #[test]
    fn d1_full_is_one_request_for_control_plane_and_exactly_the_pools_seen() {
        let cluster = cluster("1.32.6", vec![pool("a", "1.32.6", OLD_IMAGE), pool("b", "1.31.1", NEW_IMAGE)]);
        let step = Step::cluster(v("1.33.2"), vec!["a".into(), "b".into()]);
        assert_eq!(full("1.33.2", &cluster), Needs::Steps(vec![step]));
    }

    #[test]
    fn d1_after_the_version_left_over_pools_and_images_follow() {
        let cluster = cluster("1.33.2", vec![pool("a", "1.33.2", OLD_IMAGE), pool("b", "1.32.6", OLD_IMAGE)]);
        let Needs::Steps(steps) = full("1.33.2", &cluster) else { panic!("steps") };
        let image = NEW_IMAGE.parse().expect("image");
        assert_eq!(steps, [Step::pool_version("b".into(), v("1.33.2")), Step::PoolImage { pool: "a".into(), image }]);
    }

    #[test]
    fn d1_never_down_and_at_target_is_nothing_with_a_reason() {
        let there = cluster("1.33.2", vec![pool("a", "1.33.2", NEW_IMAGE)]);
        for target in ["1.33.2", "1.32.7"] {
            let Needs::Nothing(why) = full(target, &there) else { panic!("nothing to do for {target}") };
            assert!(why.contains("at or above the target") && why.contains("at or ahead of node image"), "{why}");
        }
    }

    #[test]
    fn choice_control_plane_only_is_judged_by_the_control_plane_alone() {
        let mut at_target = cluster("1.33.2", vec![pool("a", "1.32.6", OLD_IMAGE)]);
        at_target.pools[0].provisioning = Provisioning::Failed;
        let answer = needs(UpgradeType::ControlPlaneOnly, Some("1.33.2"), &at_target);
        assert!(matches!(answer, Needs::Nothing(_)), "{answer:?}");
        let behind = cluster("1.32.6", vec![pool("a", "1.32.6", OLD_IMAGE)]);
        let step = Step::ControlPlane { version: v("1.33.2") };
        assert_eq!(needs(UpgradeType::ControlPlaneOnly, Some("1.33.2"), &behind), Needs::Steps(vec![step]));
    }

    #[test]
    fn d1_only_what_the_upgrade_profile_lists() {
        let cluster = cluster("1.32.6", vec![]);
        let Needs::Never(fault) = full("1.34.0", &cluster) else { panic!("a minor is skipped") };
        assert_eq!(fault.code, "OperationNotAllowed");
        assert!(fault.message.contains("[1.32.7, 1.33.0, 1.33.2]"), "{fault}");
    }

    #[test]
    fn d4_a_version_not_in_the_region_is_waited_for_if_it_may_still_come() {
        let cluster = cluster("1.32.6", vec![]);
        for newer in ["1.33.5", "1.35.0"] {
            assert!(matches!(full(newer, &cluster), Needs::Hold(Hold::VersionNotInRegion { .. })), "{newer}");
        }
        let older = Catalogue {
            versions: vec![RegionVersion { version: v("1.33.9"), preview: false, long_term_support_only: false }],
        };
        let goal = Goal::new(UpgradeType::Full, Some(v("1.33.2").into()), None).expect("goal");
        let target = target(&goal, Some(v("1.33.2")), Some(older.offer(v("1.33.2"))));
        assert!(matches!(target.needs(&cluster), Needs::Never(_)));
    }

    #[test]
    fn d4_a_version_with_long_term_support_only_needs_a_cluster_with_it() {
        let mut cluster = cluster("1.30.14", vec![]);
        cluster.upgrades = vec![v("1.30.100")];
        let Needs::Never(fault) = full("1.30.100", &cluster) else { panic!("no long-term support") };
        assert!(fault.message.contains("Premium"), "{fault}");
        cluster.long_term_support = true;
        assert!(matches!(full("1.30.100", &cluster), Needs::Steps(_)));
    }

    #[test]
    fn aks_wire_3_a_failed_upgrade_is_sent_again_although_the_model_shows_the_target() {
        let mut failed = cluster("1.33.2", vec![pool("a", "1.33.2", NEW_IMAGE)]);
        failed.provisioning = Provisioning::Failed;
        assert!(matches!(full("1.33.2", &failed), Needs::Steps(steps) if matches!(steps[0], Step::Cluster { .. })));
        let mut pool_failed = cluster("1.33.2", vec![pool("a", "1.33.2", NEW_IMAGE)]);
        pool_failed.pools[0].provisioning = Provisioning::Canceled;
        assert!(matches!(full("1.33.2", &pool_failed), Needs::Steps(_)));
        assert!(matches!(needs(UpgradeType::NodeImageOnly, None, &pool_failed), Needs::Steps(_)));
    }

    #[test]
    fn aks_wire_3_machines_tell_the_truth_about_nodes() {
        let mut lagging = cluster("1.33.2", vec![pool("a", "1.33.2", NEW_IMAGE)]);
        lagging.pools[0].lagging_nodes = 2;
        assert!(matches!(full("1.33.2", &lagging), Needs::Steps(_)));
    }

    #[test]
    fn e13_a_cluster_that_provisions_its_nodes_is_for_control_plane_runs_only() {
        let mut cluster = cluster("1.32.6", vec![pool("a", "1.32.6", OLD_IMAGE)]);
        cluster.provisions_nodes = true;
        for (upgrade, version) in [(UpgradeType::Full, Some("1.33.2")), (UpgradeType::NodeImageOnly, None)] {
            let Needs::Unfit { why, .. } = needs(upgrade, version, &cluster) else {
                panic!("{upgrade:?} is not for it")
            };
            assert!(why.contains("ControlPlaneOnly"), "{why}");
        }
        let step = Step::ControlPlane { version: v("1.33.2") };
        assert_eq!(needs(UpgradeType::ControlPlaneOnly, Some("1.33.2"), &cluster), Needs::Steps(vec![step]));
    }

    #[test]
    fn d1_the_control_plane_does_not_move_alone_while_the_cluster_upgrades_itself() {
        let mut cluster = cluster("1.32.6", vec![pool("a", "1.32.6", OLD_IMAGE)]);
        let alone = |cluster: &Cluster| needs(UpgradeType::ControlPlaneOnly, Some("1.33.2"), cluster);
        cluster.automatic_upgrades = vec!["NodeImage".into()];
        assert!(matches!(alone(&cluster), Needs::Steps(_)), "images are no version");
        cluster.automatic_upgrades.insert(0, "patch".into());
        let Needs::Never(fault) = alone(&cluster) else { panic!("refused by the provider") };
        assert!(fault.message.contains("'patch'") && fault.message.contains("Full"), "{fault}");
        assert!(matches!(full("1.33.2", &cluster), Needs::Steps(_)));
        cluster.pools.clear();
        assert!(matches!(alone(&cluster), Needs::Steps(_)), "nobody is left behind");
    }

    #[test]
    fn a4_node_image_only_moves_each_pool_behind_and_names_those_ahead() {
        let cluster = cluster("1.32.6", vec![pool("a", "1.32.6", OLD_IMAGE), pool("b", "1.32.6", NEW_IMAGE)]);
        let step = Step::PoolImage { pool: "a".into(), image: NEW_IMAGE.parse().expect("image") };
        assert_eq!(needs(UpgradeType::NodeImageOnly, None, &cluster), Needs::Steps(vec![step]));
    }

    #[test]
    fn a4_latest_leaves_snapshot_pools_alone() {
        let mut cluster = cluster("1.32.6", vec![pool("a", "1.32.6", OLD_IMAGE)]);
        cluster.pools[0].from_snapshot = true;
        let Needs::Nothing(why) = needs(UpgradeType::NodeImageOnly, None, &cluster) else { panic!("left alone") };
        assert!(why.contains("snapshot"), "{why}");
    }

    #[test]
    fn aks_wire_3_a_cluster_at_rest_with_a_busy_pool_is_busy() {
        let mut cluster = cluster("1.32.6", vec![pool("a", "1.32.6", OLD_IMAGE)]);
        cluster.pools[0].provisioning = Provisioning::from_word("UpgradingNodeImageVersion");
        assert!(matches!(full("1.33.2", &cluster), Needs::Hold(Hold::OtherOperation(word)) if word.contains("Image")));
        cluster.running = false;
        assert_eq!(full("1.33.2", &cluster), Needs::Hold(Hold::ClusterStopped));
    }
}
