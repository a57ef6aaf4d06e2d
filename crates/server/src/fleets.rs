//! Fleets.

use flotta_arm::{
    api_version::ApiVersion,
    doc::{FleetDoc, MemberDoc, ProfileDoc, ProvisioningState, RunDoc, StrategyDoc, SystemData},
    error::ArmError,
    fleet,
    paging::{self, Page},
    path::{FleetRef, Kind, Target},
};
use flotta_engine::State;
use flotta_model::Fleet;
use flotta_orchestrator::Error;
use flotta_store::{Batch, Collection, Delete, Expect};
use http::Method;

use crate::{
    Call,
    documents::{self, Stored},
    provider,
    reply::Reply,
    runs,
};

/// GET, PUT, PATCH, DELETE of one fleet.
pub async fn one(call: &Call, target: &Target, fleet: &FleetRef) -> Result<Reply, ArmError> {
    match call.method {
        Method::GET => {
            let stored = get(call, fleet).await?;
            Ok(Reply::ok(stored.value.render(&id(&stored.value), &stored.document.etag, call.version)))
        }
        Method::PUT => put(call, fleet).await,
        Method::PATCH => patch(call, fleet).await,
        Method::DELETE => delete(call, fleet).await,
        _ => Err(call.method_not_allowed(target)),
    }
}

/// A fleet, or that it is not there.
pub async fn get(call: &Call, fleet: &FleetRef) -> Result<Stored<FleetDoc>, ArmError> {
    call.find(Collection::Fleets, &fleet.key()).await?.ok_or_else(|| fleet.not_found())
}

/// Refuses what is asked of a fleet that is not there.
pub async fn must_exist(call: &Call, fleet: &FleetRef) -> Result<(), ArmError> {
    get(call, fleet).await.map(drop)
}

/// The id of a fleet, in the casing of its creation.
fn id(doc: &FleetDoc) -> String {
    flotta_arm::path::fleet_id(&doc.subscription, &doc.resource_group, &doc.fleet.name)
}

async fn put(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    let before: Option<Stored<FleetDoc>> = call.find(Collection::Fleets, &fleet.key()).await?;
    let known = before.as_ref().map(|stored| stored.value.render(&id(&stored.value), "", ApiVersion::NEWEST));
    let request = fleet::parse(&call.meant(known.as_ref())?)?;
    call.conditions.check(before.as_ref().map(|stored| stored.document.etag.as_str()))?;
    if let Some(stored) = &before
        && fleet::region(&stored.value.fleet.location) != fleet::region(&request.location)
    {
        let reason = format!("the fleet is in '{}'; a fleet cannot be moved", stored.value.fleet.location);
        return Err(ArmError::invalid_parameter("location", reason));
    }
    let (operation, mut batch) = provider::ended_operation(call).await?;
    let system_data = match &before {
        Some(stored) => stored.value.system_data.clone().touched(call.by.clone(), call.now),
        None => SystemData::new(call.by.clone(), call.now),
    };
    let doc = FleetDoc {
        fleet: Fleet { name: fleet.fleet.clone(), location: request.location, tags: request.tags },
        subscription: before.as_ref().map_or(&fleet.subscription, |stored| &stored.value.subscription).clone(),
        resource_group: before.as_ref().map_or(&fleet.resource_group, |stored| &stored.value.resource_group).clone(),
        system_data,
        provisioning_state: ProvisioningState::Succeeded,
        last_operation_id: Some(operation),
        last_operation_error: None,
        hub_profile: request.hub_profile,
        identity: request.identity,
    };
    let parent = documents::group_key(&fleet.subscription, &fleet.resource_group);
    let put =
        documents::put(Collection::Fleets, fleet.key(), parent, &doc, before.as_ref().map(|stored| &stored.document))?;
    let etag = put.etag.clone();
    batch.puts.push(put);
    call.commit(batch).await?;
    let shown = match before {
        Some(_) => ProvisioningState::Updating,
        None => ProvisioningState::Creating,
    };
    let body = FleetDoc { provisioning_state: shown, ..doc.clone() }.render(&id(&doc), &etag, call.version);
    let reply = if before.is_some() { Reply::ok(body) } else { Reply::created(body) };
    Ok(reply.with_operation(call, &fleet.subscription, &doc.fleet.location, operation))
}

async fn patch(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    let change = fleet::parse_patch(&call.meant(None)?)?;
    let Stored { mut value, document } = get(call, fleet).await?;
    call.conditions.check(Some(&document.etag))?;
    value.fleet.tags = change.tags.unwrap_or(value.fleet.tags);
    value.identity = change.identity.or(value.identity);
    value.system_data = value.system_data.touched(call.by.clone(), call.now);
    let put = documents::put(Collection::Fleets, fleet.key(), document.parent.clone(), &value, Some(&document))?;
    let etag = put.etag.clone();
    call.commit(documents::puts(vec![put])).await?;
    Ok(Reply::ok(value.render(&id(&value), &etag, call.version)))
}

async fn delete(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    let before: Option<Stored<FleetDoc>> = call.find(Collection::Fleets, &fleet.key()).await?;
    call.conditions.check(before.as_ref().map(|stored| stored.document.etag.as_str()))?;
    let Some(Stored { value, document }) = before else { return Ok(Reply::nothing()) };
    let mut ended = Vec::new();
    for stored in call.all::<RunDoc>(Collection::Runs, &fleet.key()).await? {
        let state = match runs::state(call, fleet, &stored.value).await {
            Err(Error::NoSuchRun) => continue, // Deleted just now.
            state => state.map_err(runs::refused)?,
        };
        if matches!(state, State::Running | State::Pending | State::Stopping | State::Stopped) {
            let message = format!(
                "update run '{}' is {state:?}; stop it and delete it, or let it end, before the fleet is deleted",
                stored.value.name
            );
            return Err(ArmError::conflict(message));
        }
        ended.push((stored, state == State::NotStarted));
    }
    for (stored, only_idle) in &ended {
        match runs::retire(call, fleet, stored, Box::new(|_, _| true), *only_idle).await {
            Err(Error::NoSuchRun) => {}
            retired => retired.map_err(runs::refused)?,
        }
    }
    let (operation, mut batch) = provider::ended_operation(call).await?;
    batch.deletes.push(documents::delete(&document));
    add_children(call, fleet, &mut batch).await?;
    call.commit(batch).await?;
    let etag = document.etag;
    let body = FleetDoc {
        provisioning_state: ProvisioningState::Deleting,
        last_operation_id: Some(operation),
        ..value.clone()
    };
    Ok(Reply::accepted(body.render(&id(&value), &etag, call.version))
        .with_operation(call, &fleet.subscription, &value.fleet.location, operation)
        .with_location(call, &fleet.subscription, &value.fleet.location, operation))
}

/// Members and strategies go with their fleet.
async fn add_children(call: &Call, fleet: &FleetRef, batch: &mut Batch) -> Result<(), ArmError> {
    for stored in call.all::<MemberDoc>(Collection::Members, &fleet.key()).await? {
        let key = documents::joined_key(&stored.value.member.cluster);
        batch.deletes.push(Delete { collection: Collection::Meta, key, expect: Expect::Any });
        batch.deletes.push(documents::delete(&stored.document));
    }
    for stored in call.all::<ProfileDoc>(Collection::Profiles, &fleet.key()).await? {
        let (collection, key) = (Collection::ProfileStates, stored.document.key.clone());
        batch.deletes.push(Delete { collection, key, expect: Expect::Any });
        batch.deletes.push(documents::delete(&stored.document));
    }
    for stored in call.all::<StrategyDoc>(Collection::Strategies, &fleet.key()).await? {
        batch.deletes.push(documents::delete(&stored.document));
    }
    Ok(())
}

/// The fleets of a subscription or of a resource group.
pub async fn list(call: &Call, target: &Target) -> Result<Reply, ArmError> {
    let page = Page::of(&call.query)?;
    let (found, more) = match target {
        Target::FleetsOfGroup { subscription, resource_group } => {
            call.page(Collection::Fleets, &documents::group_key(subscription, resource_group), page).await?
        }
        Target::FleetsOfSubscription { subscription } => of_subscription(call, subscription, page).await?,
        _ => (Vec::new(), false),
    };
    let next = found.last().filter(|_| more).map(|last| call.next_link(last.document.serial));
    let value = found
        .iter()
        .map(|stored: &Stored<FleetDoc>| stored.value.render(&id(&stored.value), &stored.document.etag, call.version));
    Ok(Reply::ok(paging::list(value.collect(), next)))
}

async fn of_subscription(
    call: &Call,
    subscription: &str,
    page: Page,
) -> Result<(Vec<Stored<FleetDoc>>, bool), ArmError> {
    let mut found = Vec::new();
    let mut after = page.after;
    loop {
        let documents = call.app.store.scan(Collection::Fleets, after, 1000).await;
        let documents = documents.map_err(|error| documents::internal(&error))?;
        let Some(last) = documents.last() else { return Ok((found, false)) };
        after = Some(last.serial);
        for document in documents {
            let Ok(value) = serde_json::from_str::<FleetDoc>(&document.body) else { continue };
            if !value.subscription.eq_ignore_ascii_case(subscription) {
                continue;
            }
            if found.len() == page.top as usize {
                return Ok((found, true));
            }
            found.push(Stored { value, document });
        }
    }
}

/// A fleet of flotta has no hub cluster.
pub async fn credentials(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    must_exist(call, fleet).await?;
    let message =
        format!("{} '{}' has no hub cluster, so there are no credentials", Kind::Fleet.resource_type(), fleet.fleet);
    Err(ArmError::new(400, "FleetHasNoHub", message))
}
