//! What the provider says of itself, and how its long-running operations stand.

use std::time::Duration;

use flotta_arm::{
    api_version::ApiVersion,
    error::ArmError,
    operation::Operation,
    path::{Kind, NAMESPACE},
};
use flotta_store::{Batch, Collection, Delete, Expect};
use serde_json::json;
use uuid::Uuid;

use crate::{
    Call,
    documents::{self, Stored},
    reply::Reply,
};

/// The actions that roles are made of.
pub fn operations() -> Reply {
    let kinds = [Kind::Fleet, Kind::Member, Kind::Strategy, Kind::Run];
    let verbs = ["read", "write", "delete"];
    let of_kind = |kind: Kind| {
        let resource = kind.resource_type();
        verbs.map(|verb| {
            json!({
                "name": format!("{resource}/{verb}"),
                "isDataAction": false,
                "display": { "provider": NAMESPACE, "resource": resource, "operation": verb },
            })
        })
    };
    let value: Vec<serde_json::Value> = kinds.into_iter().flat_map(of_kind).collect();
    Reply::ok(json!({ "value": value }))
}

/// The provider as tools look it up: its types with their api-versions, newest first.
pub fn registration(subscription: &str) -> Reply {
    let versions: Vec<&str> = ApiVersion::all().rev().map(ApiVersion::as_str).collect();
    let of_kind = |kind: Kind| {
        let (_, name) = kind.resource_type().split_once('/').unwrap_or_default();
        json!({ "resourceType": name, "apiVersions": versions, "locations": [] })
    };
    let types: Vec<serde_json::Value> = [Kind::Fleet, Kind::Member, Kind::Strategy, Kind::Run].map(of_kind).into();
    Reply::ok(json!({
        "id": format!("/subscriptions/{subscription}/providers/{NAMESPACE}"),
        "namespace": NAMESPACE,
        "registrationState": "Registered",
        "resourceTypes": types,
    }))
}

/// How an operation stands.
pub async fn operation(call: &Call, id: Uuid) -> Result<Reply, ArmError> {
    Ok(Reply::ok(find(call, id).await?.body()))
}

/// What came of an operation: nothing to show, once it has ended.
pub async fn operation_result(call: &Call, id: Uuid) -> Result<Reply, ArmError> {
    let operation = find(call, id).await?;
    if operation.status.ended() { Ok(Reply::nothing()) } else { Ok(Reply::accepted(operation.body())) }
}

async fn find(call: &Call, id: Uuid) -> Result<Operation, ArmError> {
    let found: Option<Stored<Operation>> = call.find(Collection::Operations, &id.to_string()).await?;
    let missing = || ArmError::new(404, "OperationNotFound", format!("there is no operation '{id}'"));
    found.map(|stored| stored.value).ok_or_else(missing)
}

/// How long an operation can be asked after, at least (wall time).
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// Old operations that go whenever a new one comes: more than one, so that a heap of them melts.
const FORGOTTEN_AT_ONCE: u32 = 4;

/// An operation that has done its work by the time it is answered, for clients that follow it; and the change that
/// stores it, in which old ones are forgotten.
pub async fn ended_operation(call: &Call) -> Result<(Uuid, Batch), ArmError> {
    let id = Uuid::now_v7();
    let operation = Operation::begin(id, call.now).succeed(call.clock().now());
    let mut batch =
        documents::puts(vec![documents::put(Collection::Operations, id.to_string(), String::new(), &operation, None)?]);
    let oldest = call.app.store.scan(Collection::Operations, None, FORGOTTEN_AT_ONCE).await;
    for document in oldest.map_err(|error| documents::internal(&error))? {
        if made(&document.key).is_some_and(|made| made + KEPT_FOR < wall(id)) {
            batch.deletes.push(Delete { collection: Collection::Operations, key: document.key, expect: Expect::Any });
        }
    }
    Ok((id, batch))
}

/// When an operation was made, which its id says.
fn made(key: &str) -> Option<Duration> {
    Uuid::try_parse(key).ok().map(wall)
}

fn wall(id: Uuid) -> Duration {
    let (seconds, nanos) = id.get_timestamp().map_or((0, 0), |made| made.to_unix());
    Duration::new(seconds, nanos)
}
