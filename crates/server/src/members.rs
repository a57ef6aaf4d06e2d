//! Members of a fleet.

use std::time::Duration;

use flotta_arm::{
    api_version::ApiVersion,
    doc::{MemberDoc, ProvisioningState, RunDoc, SystemData},
    error::ArmError,
    member,
    paging::{self, MemberFilter, Page},
    path::{FleetRef, Kind, Target},
};
use flotta_model::{ClusterId, Member, Name};
use flotta_store::{Collection, Delete, Expect, Put};
use http::Method;
use uuid::Uuid;

use crate::{
    Call,
    documents::{self, Stored},
    fleets, provider,
    reply::Reply,
    runs,
};

/// How long a cluster is asked for its region before a member joins without (wall time).
const LOCATE_WITHIN: Duration = Duration::from_secs(5);

/// GET, PUT, PATCH, DELETE of one member.
pub async fn one(call: &Call, target: &Target, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    let location = fleets::get(call, fleet).await?.value.fleet.location;
    match call.method {
        Method::GET => {
            let stored = get(call, fleet, name).await?;
            Ok(Reply::ok(render(call, fleet, &stored.value, &stored.document.etag)))
        }
        Method::PUT => put(call, fleet, name, &location).await,
        Method::PATCH => patch(call, fleet, name).await,
        Method::DELETE => delete(call, fleet, name, &location).await,
        _ => Err(call.method_not_allowed(target)),
    }
}

async fn get(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Stored<MemberDoc>, ArmError> {
    find(call, fleet, name).await?.ok_or_else(|| fleet.child_not_found(Kind::Member, name))
}

async fn find(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Option<Stored<MemberDoc>>, ArmError> {
    call.find(Collection::Members, &documents::child_key(fleet, Kind::Member, name)).await
}

fn render(call: &Call, fleet: &FleetRef, doc: &MemberDoc, etag: &str) -> serde_json::Value {
    doc.render(&fleet.child_id(Kind::Member, &doc.member.name), etag, call.version)
}

/// The region of a cluster, where somebody knows it soon enough.
async fn locate(call: &Call, cluster: &ClusterId) -> Option<String> {
    tokio::time::timeout(LOCATE_WITHIN, call.app.orchestrator.locate(cluster)).await.ok().flatten()
}

async fn put(call: &Call, fleet: &FleetRef, name: &Name, location: &str) -> Result<Reply, ArmError> {
    let before = find(call, fleet, name).await?;
    call.conditions.check(before.as_ref().map(|stored| stored.document.etag.as_str()))?;
    let id = fleet.child_id(Kind::Member, name);
    let known = before.as_ref().map(|stored| stored.value.render(&id, "", ApiVersion::NEWEST));
    let request = member::parse(&call.meant(known.as_ref())?)?;
    if let Some(stored) = &before
        && stored.value.member.cluster != request.cluster
    {
        let reason = format!(
            "member '{name}' is cluster '{}', which cannot be changed; delete the member first",
            stored.value.member.cluster
        );
        return Err(ArmError::invalid_parameter("properties.clusterResourceId", reason));
    }
    let region = locate(call, &request.cluster).await;
    let known = before.as_ref().and_then(|stored| stored.value.member.location().map(str::to_owned));
    let member = member::with_service_labels(
        name.clone(),
        request.cluster,
        request.group,
        request.labels,
        region.or(known).as_deref(),
    );
    let (operation, mut batch) = provider::ended_operation(call).await?;
    if before.is_none() {
        batch.puts.push(join(call, fleet, name, &member.cluster).await?);
    }
    let system_data = match &before {
        Some(stored) => stored.value.system_data.clone().touched(call.by.clone(), call.now),
        None => SystemData::new(call.by.clone(), call.now),
    };
    let doc = member_doc(member, system_data, operation);
    let key = documents::child_key(fleet, Kind::Member, name);
    let put =
        documents::put(Collection::Members, key, fleet.key(), &doc, before.as_ref().map(|stored| &stored.document))?;
    let etag = put.etag.clone();
    batch.puts.push(put);
    call.commit(batch).await?;
    let shown = match before {
        Some(_) => ProvisioningState::Updating,
        None => ProvisioningState::Joining,
    };
    let body = render(call, fleet, &MemberDoc { provisioning_state: shown, ..doc }, &etag);
    let reply = if before.is_some() { Reply::ok(body) } else { Reply::created(body) };
    Ok(reply.with_operation(call, &fleet.subscription, location, operation))
}

fn member_doc(member: Member, system_data: SystemData, operation: Uuid) -> MemberDoc {
    MemberDoc {
        member,
        system_data,
        provisioning_state: ProvisioningState::Succeeded,
        last_operation_id: Some(operation),
        last_operation_error: None,
    }
}

/// A cluster is in one fleet only, as one member.
async fn join(call: &Call, fleet: &FleetRef, name: &Name, cluster: &ClusterId) -> Result<Put, ArmError> {
    let key = documents::joined_key(cluster);
    let id = fleet.child_id(Kind::Member, name);
    let joined: Option<Stored<String>> = call.find(Collection::Meta, &key).await?;
    if let Some(other) = joined {
        let message =
            format!("cluster '{cluster}' is a member already, as '{}'; delete that member first", other.value);
        return Err(ArmError::new(409, "ClusterAlreadyJoinedAnotherFleet", message).at("properties.clusterResourceId"));
    }
    documents::put(Collection::Meta, key, "joined".into(), &id, None)
}

async fn patch(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    let change = member::parse_patch(&call.meant(None)?)?;
    let Stored { mut value, document } = get(call, fleet, name).await?;
    call.conditions.check(Some(&document.etag))?;
    let Member { cluster, group, labels, .. } = value.member.clone();
    let location = value.member.location().map(str::to_owned);
    value.member = member::with_service_labels(
        name.clone(),
        cluster,
        change.group.unwrap_or(group),
        change.labels.unwrap_or(labels),
        location.as_deref(),
    );
    value.system_data = value.system_data.touched(call.by.clone(), call.now);
    let put = documents::put(Collection::Members, document.key.clone(), fleet.key(), &value, Some(&document))?;
    let etag = put.etag.clone();
    call.commit(documents::puts(vec![put])).await?;
    Ok(Reply::ok(render(call, fleet, &value, &etag)))
}

async fn delete(call: &Call, fleet: &FleetRef, name: &Name, location: &str) -> Result<Reply, ArmError> {
    let before = find(call, fleet, name).await?;
    call.conditions.check(before.as_ref().map(|stored| stored.document.etag.as_str()))?;
    let Some(Stored { value, document }) = before else {
        // An earlier request may have deleted it, and not lived to say so.
        tell_runs(call, fleet, name).await?;
        return Ok(Reply::nothing());
    };
    let (operation, mut batch) = provider::ended_operation(call).await?;
    let key = documents::joined_key(&value.member.cluster);
    let joined = Delete { collection: Collection::Meta, key, expect: Expect::Any };
    batch.deletes.extend([documents::delete(&document), joined]);
    call.commit(batch).await?;
    tell_runs(call, fleet, name).await?;
    let shown =
        MemberDoc { provisioning_state: ProvisioningState::Leaving, last_operation_id: Some(operation), ..value };
    Ok(Reply::accepted(render(call, fleet, &shown, &document.etag))
        .with_operation(call, &fleet.subscription, location, operation)
        .with_location(call, &fleet.subscription, location, operation))
}

/// Tells every run of the fleet that a member left. What is not told here is told when the run is started.
async fn tell_runs(call: &Call, fleet: &FleetRef, name: &Name) -> Result<(), ArmError> {
    for run in call.all::<RunDoc>(Collection::Runs, &fleet.key()).await? {
        let told = call.app.orchestrator.member_left(&runs::reference(fleet, &run.value), name).await;
        if let Err(error) = told {
            tracing::warn!(run = %run.value.name, %error, "a run was not told that a member left");
        }
    }
    Ok(())
}

/// The members of a fleet, in the order in which they joined.
pub async fn list(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    let filter = MemberFilter::of(&call.query)?;
    let page = Page::of(&call.query)?;
    let (found, more): (Vec<Stored<MemberDoc>>, bool) = call.page(Collection::Members, &fleet.key(), page).await?;
    let next = found.last().filter(|_| more).map(|last| call.next_link(last.document.serial));
    let wanted = found.iter().filter(|stored| filter.wants(&stored.value.member));
    let value = wanted.map(|stored| render(call, fleet, &stored.value, &stored.document.etag)).collect();
    Ok(Reply::ok(paging::list(value, next)))
}
