//! Update strategies.

use flotta_arm::{
    api_version::ApiVersion,
    doc::{StrategyDoc, SystemData},
    error::ArmError,
    paging::{self, Page},
    path::{FleetRef, Kind, Target},
    run, strategy,
};
use flotta_model::{Name, Strategy};
use flotta_store::{Batch, Collection};
use http::Method;

use crate::{
    Call,
    documents::{self, Stored},
    fleets,
    reply::Reply,
};

/// GET, PUT, DELETE of one strategy.
pub async fn one(call: &Call, target: &Target, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    fleets::must_exist(call, fleet).await?;
    match call.method {
        Method::GET => {
            let stored = get(call, fleet, name).await?;
            Ok(Reply::ok(render(call, fleet, &stored.value, &stored.document.etag)))
        }
        Method::PUT => put(call, fleet, name).await,
        Method::DELETE => {
            let before = find(call, fleet, name).await?;
            call.conditions.check(before.as_ref().map(|stored| stored.document.etag.as_str()))?;
            let Some(stored) = before else { return Ok(Reply::nothing()) };
            call.commit(Batch { deletes: vec![documents::delete(&stored.document)], ..Batch::default() }).await?;
            Ok(Reply::done())
        }
        _ => Err(call.method_not_allowed(target)),
    }
}

async fn find(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Option<Stored<StrategyDoc>>, ArmError> {
    call.find(Collection::Strategies, &documents::child_key(fleet, Kind::Strategy, name)).await
}

/// A strategy, or that it is not there.
pub async fn get(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Stored<StrategyDoc>, ArmError> {
    find(call, fleet, name).await?.ok_or_else(|| fleet.child_not_found(Kind::Strategy, name))
}

/// The strategy of an id that a property `updateStrategyId` gives: it must be in the same fleet.
pub async fn by_id(call: &Call, fleet: &FleetRef, id: &str) -> Result<Strategy, ArmError> {
    let refuse = |reason: String| ArmError::invalid_parameter("properties.updateStrategyId", reason);
    match run::strategy_of(id) {
        Some((of, name)) if of.key() == fleet.key() => match get(call, fleet, &name).await {
            Ok(stored) => Ok(stored.value.strategy),
            Err(error) if error.status == 404 => Err(refuse(format!("there is no strategy '{name}' in this fleet"))),
            Err(error) => Err(error),
        },
        _ => Err(refuse("the strategy must be in the same fleet".into())),
    }
}

fn render(call: &Call, fleet: &FleetRef, doc: &StrategyDoc, etag: &str) -> serde_json::Value {
    doc.render(&fleet.child_id(Kind::Strategy, &doc.name), etag, call.version)
}

async fn put(call: &Call, fleet: &FleetRef, name: &Name) -> Result<Reply, ArmError> {
    let before = find(call, fleet, name).await?;
    call.conditions.check(before.as_ref().map(|stored| stored.document.etag.as_str()))?;
    let id = fleet.child_id(Kind::Strategy, name);
    let known = before.as_ref().map(|stored| stored.value.render(&id, "", ApiVersion::NEWEST));
    let strategy = strategy::parse(&call.meant(known.as_ref())?)?;
    let system_data = match &before {
        Some(stored) => stored.value.system_data.clone().touched(call.by.clone(), call.now),
        None => SystemData::new(call.by.clone(), call.now),
    };
    let doc = StrategyDoc { name: name.clone(), strategy, system_data };
    let key = documents::child_key(fleet, Kind::Strategy, name);
    let put =
        documents::put(Collection::Strategies, key, fleet.key(), &doc, before.as_ref().map(|stored| &stored.document))?;
    let etag = put.etag.clone();
    call.commit(documents::puts(vec![put])).await?;
    let body = render(call, fleet, &doc, &etag);
    Ok(if before.is_some() { Reply::ok(body) } else { Reply::created(body) })
}

/// The strategies of a fleet.
pub async fn list(call: &Call, fleet: &FleetRef) -> Result<Reply, ArmError> {
    let page = Page::of(&call.query)?;
    let (found, more): (Vec<Stored<StrategyDoc>>, bool) = call.page(Collection::Strategies, &fleet.key(), page).await?;
    let next = found.last().filter(|_| more).map(|last| call.next_link(last.document.serial));
    let value = found.iter().map(|stored| render(call, fleet, &stored.value, &stored.document.etag)).collect();
    Ok(Reply::ok(paging::list(value, next)))
}
