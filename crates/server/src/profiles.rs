//! Auto-upgrade profiles as resources. What they make by themselves is made in [`crate::upgrades`].

use flotta_arm::{
    api_version::ApiVersion,
    doc::{ProfileDoc, SystemData},
    error::ArmError,
    paging::{self, Page},
    path::{FleetRef, Kind, Target},
    profile,
};
use flotta_model::Name;
use flotta_store::{Batch, Collection, Delete, Expect};
use http::Method;
use serde_json::Value;

use crate::{
    Call,
    documents::{self, Stored},
    fleets,
    reply::Reply,
    strategies,
    upgrades::ProfileState,
};

/// GET, PUT, DELETE of one profile.
pub async fn one(call: &Call, target: &Target, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    match call.method {
        Method::GET => {
            let stored = get(call, fleet, name).await?;
            Ok(Reply::ok(render(call, fleet, &stored.value, &stored.document.etag).await?))
        }
        Method::PUT => put(call, fleet, name).await,
        Method::DELETE => {
            let before = find(call, fleet, name).await?;
            call.conditions.check(before.as_ref().map(|stored| stored.document.etag.as_str()))?;
            let Some(stored) = before else { return Ok(Reply::nothing()) };
            let state =
                Delete { collection: Collection::ProfileStates, key: stored.document.key.clone(), expect: Expect::Any };
            let deletes = vec![documents::delete(&stored.document), state];
            call.commit(Batch { deletes, ..Batch::default() }).await?;
            Ok(Reply::done())
        }
        _ => Err(call.method_not_allowed(target)),
    }
}

async fn find(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Option<Stored<ProfileDoc>>, ArmError> {
    call.find(Collection::Profiles, &documents::child_key(fleet, Kind::Profile, name)).await
}

/// A profile, or that it is not there.
pub async fn get(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Stored<ProfileDoc>, ArmError> {
    find(call, fleet, name).await?.ok_or_else(|| fleet.child_not_found(Kind::Profile, name))
}

async fn render(call: &Call, fleet: &FleetRef, doc: &ProfileDoc, etag: &str) -> Result<Value, ArmError> {
    let key = documents::child_key(fleet, Kind::Profile, &doc.profile.name);
    let state: Option<Stored<ProfileState>> = call.find(Collection::ProfileStates, &key).await?;
    let last = state.and_then(|state| state.value.last);
    Ok(doc.render(&fleet.child_id(Kind::Profile, &doc.profile.name), etag, call.version, last.as_ref()))
}

async fn put(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    let before = find(call, fleet, name).await?;
    call.conditions.check(before.as_ref().map(|stored| stored.document.etag.as_str()))?;
    let id = fleet.child_id(Kind::Profile, name);
    let known = before.as_ref().map(|stored| stored.value.render(&id, "", ApiVersion::NEWEST, None));
    let body = call.meant(known.as_ref())?;
    let profile = profile::parse(name, &body)?;
    if let Some(id) = &profile.strategy_id {
        strategies::by_id(call, fleet, id).await?;
    }
    let system_data = match &before {
        Some(stored) => stored.value.system_data.clone().touched(call.by.clone(), call.now),
        None => SystemData::new(call.by.clone(), call.now),
    };
    let doc = ProfileDoc { profile, said: profile::said(&body), system_data };
    let key = documents::child_key(fleet, Kind::Profile, name);
    let put =
        documents::put(Collection::Profiles, key, fleet.key(), &doc, before.as_ref().map(|stored| &stored.document))?;
    let etag = put.etag.clone();
    call.commit(documents::puts(vec![put])).await?;
    call.app.upgrades.look_at(&fleet.key());
    let body = render(call, fleet, &doc, &etag).await?;
    Ok(if before.is_some() { Reply::ok(body) } else { Reply::created(body) })
}

/// The profiles of a fleet.
pub async fn list(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    let page = Page::of(&call.query)?;
    let (found, more): (Vec<Stored<ProfileDoc>>, bool) = call.page(Collection::Profiles, &fleet.key(), page).await?;
    let next = found.last().filter(|_| more).map(|last| call.next_link(last.document.serial));
    let mut value = Vec::with_capacity(found.len());
    for stored in &found {
        value.push(render(call, fleet, &stored.value, &stored.document.etag).await?);
    }
    Ok(Reply::ok(paging::list(value, next)))
}
