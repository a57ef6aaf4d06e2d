//! What the regions of a fleet offer, and since when.

use std::{collections::BTreeMap, sync::Arc};

use flotta_arm::{doc::MemberDoc, error::ArmError, path::FleetRef, time::shortest};
use flotta_model::{Cluster, ClusterId, Member, RegionReleases, Releases, releases::VersionRelease};
use flotta_orchestrator::survey::Seen;
use flotta_store::Collection;
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use crate::{Call, documents, fleets, reply::Reply, runs};

/// What was seen of a fleet: its members, in the order in which they joined, with their clusters, and what the regions
/// of these offer.
pub struct Sight {
    /// The members.
    pub members: Vec<(Member, Seen)>,
    /// What their regions offer and have offered.
    pub releases: Releases,
}

/// How old what is shown may be.
const SHOWN_AGE: SignedDuration = SignedDuration::from_mins(10);

/// The releases of a fleet's regions.
pub async fn list(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    let seen = look(call, fleet, SHOWN_AGE).await?;
    let value: Vec<Value> = seen.releases.regions.iter().map(|(region, offered)| render(region, offered)).collect();
    Ok(Reply::ok(json!({ "value": value })))
}

/// Looks at a fleet. What was seen less than `age` ago is not looked at again. What the regions offer is remembered.
pub async fn look(call: &Call, fleet: &FleetRef, age: SignedDuration) -> Result<Sight, ArmError> {
    let members = call.all::<MemberDoc>(Collection::Members, &fleet.key()).await?;
    let members: Vec<Member> = members.into_iter().map(|stored| stored.value.member).collect();
    let clusters: Vec<ClusterId> = members.iter().map(|member| member.cluster.clone()).collect();
    let survey = call.app.orchestrator.survey(&clusters, age).await.map_err(runs::refused)?;
    let now = call.clock().now();
    let mut images: BTreeMap<&str, Vec<&Arc<Cluster>>> = BTreeMap::new();
    for cluster in survey.clusters.iter().flatten() {
        images.entry(&cluster.location).or_default().push(cluster);
    }
    let mut releases = Releases::default();
    for (region, clusters) in images {
        let stored = call.find::<RegionReleases>(Collection::Releases, region).await?;
        let mut offered = stored.as_ref().map(|stored| stored.value.clone()).unwrap_or_default();
        if let Some(catalogue) = survey.regions.get(region) {
            offered.saw_versions(catalogue, now);
        }
        for pool in clusters.iter().flat_map(|cluster| &cluster.pools) {
            pool.offered_images.iter().chain(&pool.latest_image).for_each(|image| offered.saw_image(image, now));
        }
        remember(call, region, &offered, stored.as_ref()).await?;
        releases.regions.insert(region.to_owned(), offered);
    }
    Ok(Sight { members: members.into_iter().zip(survey.clusters).collect(), releases })
}

/// Somebody else may have written what was seen just now: what they saw is as good.
async fn remember(
    call: &Call,
    region: &str,
    offered: &RegionReleases,
    before: Option<&documents::Stored<RegionReleases>>,
) -> Result<(), ArmError> {
    if before.is_some_and(|before| before.value == *offered) {
        return Ok(());
    }
    let document = before.map(|before| &before.document);
    let put = documents::put(Collection::Releases, region.to_owned(), String::new(), offered, document)?;
    match call.commit(documents::puts(vec![put])).await {
        Err(error) if error.status == 409 => Ok(()),
        outcome => outcome,
    }
}

fn render(region: &str, offered: &RegionReleases) -> Value {
    let versions = offered.versions.iter().rev().map(|(version, release)| {
        let mut object = Map::new();
        object.insert("version".into(), version.to_string().into());
        render_version(&mut object, release);
        Value::Object(object)
    });
    let images = offered.images.iter().flat_map(|(family, images)| {
        images.iter().rev().map(move |release| {
            json!({ "family": family, "version": release.image.as_str(), "seenAt": shortest(release.seen) })
        })
    });
    json!({
        "region": region,
        "readAt": offered.read.map(shortest),
        "versions": versions.collect::<Vec<_>>(),
        "nodeImages": images.collect::<Vec<_>>(),
    })
}

fn render_version(object: &mut Map<String, Value>, release: &VersionRelease) {
    object.insert("preview".into(), release.preview.into());
    object.insert("longTermSupportOnly".into(), release.long_term_support_only.into());
    object.insert("seenAt".into(), shortest(release.seen).into());
    if let Some(withdrawn) = release.withdrawn {
        object.insert("withdrawnAt".into(), shortest(withdrawn).into());
    }
}
