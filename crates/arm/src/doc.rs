//! What a server keeps of each resource, as JSON whose fields may be added but never changed, and the answers made from
//! it (`arm-api.md` §7, §9).

use flotta_engine::Run;
use flotta_model::{AutoUpgradeProfile, Fault, Fleet, Goal, Member, Name, Strategy, profile::LastTrigger};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    api_version::{ApiVersion, strip},
    conditions::body_etag,
    operation::render_fault,
    path::Kind,
    profile,
    run::render_goal,
    status::{self, Detail},
    strategy,
    time::seven_digits,
};

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// The name shown.
    pub name: String,
    /// What it is.
    pub kind: PrincipalKind,
}

/// What somebody is: the `createdByType` of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrincipalKind {
    /// A person.
    User,
    /// A program.
    Application,
    /// A program with an identity of its platform.
    ManagedIdentity,
    /// The bearer of a key.
    Key,
}

/// Who made and who last changed a resource, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemData {
    /// Who made it.
    pub created_by: Principal,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who last changed it.
    pub last_modified_by: Principal,
    /// When it was last changed.
    pub last_modified_at: Timestamp,
}

impl SystemData {
    /// Of something made now.
    pub fn new(by: Principal, now: Timestamp) -> Self {
        Self { created_by: by.clone(), created_at: now, last_modified_by: by, last_modified_at: now }
    }

    /// Of the same thing, changed now.
    #[must_use]
    pub fn touched(self, by: Principal, now: Timestamp) -> Self {
        Self { last_modified_by: by, last_modified_at: now, ..self }
    }

    fn render(&self) -> Value {
        json!({
            "createdBy": self.created_by.name,
            "createdByType": format!("{:?}", self.created_by.kind),
            "createdAt": seven_digits(self.created_at),
            "lastModifiedBy": self.last_modified_by.name,
            "lastModifiedByType": format!("{:?}", self.last_modified_by.kind),
            "lastModifiedAt": seven_digits(self.last_modified_at),
        })
    }
}

/// How the resource itself stands, apart from what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the documented ones")]
pub enum ProvisioningState {
    Succeeded,
    Failed,
    Canceled,
    Creating,
    Updating,
    Deleting,
    Joining,
    Leaving,
}

/// A fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetDoc {
    /// The fleet.
    pub fleet: Fleet,
    /// Its subscription, in the casing of its creation.
    pub subscription: String,
    /// Its resource group, in the casing of its creation.
    pub resource_group: String,
    /// Who and when.
    pub system_data: SystemData,
    /// How it stands.
    pub provisioning_state: ProvisioningState,
    /// The last long-running operation on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation_id: Option<Uuid>,
    /// What went wrong in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation_error: Option<Fault>,
    /// As it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_profile: Option<Value>,
    /// As it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Value>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDoc {
    /// The member, with all its labels.
    pub member: Member,
    /// Who and when.
    pub system_data: SystemData,
    /// How it stands.
    pub provisioning_state: ProvisioningState,
    /// The last long-running operation on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation_id: Option<Uuid>,
    /// What went wrong in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation_error: Option<Fault>,
}

/// An update strategy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyDoc {
    /// Its name.
    pub name: Name,
    /// What it says.
    pub strategy: Strategy,
    /// Who and when.
    pub system_data: SystemData,
}

/// An update run: what does not change while it goes on. The rest is in its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDoc {
    /// Its identity, by which its plan and journal are kept. Its name is only a look-up.
    pub run: Uuid,
    /// Its name.
    pub name: Name,
    /// Its own copy of the strategy; absent: one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Where the strategy was copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy_id: Option<String>,
    /// What it wants.
    pub goal: Goal,
    /// Who and when.
    pub system_data: SystemData,
    /// The profile that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// What it tries again, if it was made for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Who alone can be in it, if not everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<Name>>,
    /// The name of the run at whose good end it starts by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_after: Option<Name>,
}

/// An auto-upgrade profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileDoc {
    /// The profile.
    pub profile: AutoUpgradeProfile,
    /// The switches that it says outright ([`crate::profile::said`]).
    #[serde(default)]
    pub said: Vec<String>,
    /// Who and when.
    pub system_data: SystemData,
}

/// What a run tries again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The id of the run that left its members. That one may be gone by now.
    pub of: String,
    /// The members that it is for; nobody else gets into it.
    pub members: Vec<Name>,
}

impl FleetDoc {
    /// The fleet as a version shows it.
    pub fn render(&self, id: &str, etag: &str, version: ApiVersion) -> Value {
        let mut properties = Map::new();
        put(&mut properties, "hubProfile", self.hub_profile.clone());
        let state = self.provisioning_state;
        operation_status(&mut properties, state, self.last_operation_id, self.last_operation_error.as_ref());
        let mut resource = envelope(Kind::Fleet, id, etag, Some(&self.system_data), properties);
        resource.insert("location".into(), self.fleet.location.clone().into());
        put(&mut resource, "identity", self.identity.clone());
        if !self.fleet.tags.is_empty() {
            resource.insert("tags".into(), json!(self.fleet.tags));
        }
        strip(Value::Object(resource), version)
    }
}

impl MemberDoc {
    /// The member as a version shows it.
    pub fn render(&self, id: &str, etag: &str, version: ApiVersion) -> Value {
        let mut properties = Map::new();
        properties.insert("clusterResourceId".into(), self.member.cluster.as_str().into());
        put(&mut properties, "group", self.member.group.as_ref().map(|group| group.to_string().into()));
        if !self.member.labels.is_empty() {
            properties.insert("labels".into(), json!(self.member.labels));
        }
        let state = self.provisioning_state;
        operation_status(&mut properties, state, self.last_operation_id, self.last_operation_error.as_ref());
        strip(Value::Object(envelope(Kind::Member, id, etag, Some(&self.system_data), properties)), version)
    }
}

impl StrategyDoc {
    /// The strategy as a version shows it.
    pub fn render(&self, id: &str, etag: &str, version: ApiVersion) -> Value {
        let mut properties = Map::new();
        properties.insert("provisioningState".into(), "Succeeded".into());
        properties.insert("strategy".into(), strategy::render(&self.strategy));
        strip(Value::Object(envelope(Kind::Strategy, id, etag, Some(&self.system_data), properties)), version)
    }
}

impl ProfileDoc {
    /// The profile as a version shows it, with what became of its last attempt to make a run.
    pub fn render(&self, id: &str, etag: &str, version: ApiVersion, last: Option<&LastTrigger>) -> Value {
        let mut properties = profile::render(&self.profile, &self.said);
        properties.insert("provisioningState".into(), "Succeeded".into());
        put(&mut properties, "autoUpgradeProfileStatus", last.map(profile::render_status));
        strip(Value::Object(envelope(Kind::Profile, id, etag, Some(&self.system_data), properties)), version)
    }
}

impl RunDoc {
    /// Who alone can be in it, if not everybody.
    pub fn limited_to(&self) -> Option<&[Name]> {
        self.retry.as_ref().map(|retry| &retry.members).or(self.only.as_ref()).map(Vec::as_slice)
    }

    /// The run as a version shows it.
    pub fn render(&self, id: &str, etag: &str, version: ApiVersion, run: &Run, detail: Detail) -> Value {
        let mut properties = self.asked();
        properties.insert("provisioningState".into(), "Succeeded".into());
        properties.insert("status".into(), status::render(run, id, detail));
        put(&mut properties, "autoUpgradeProfileId", self.profile_id.clone().map(Value::from));
        put(&mut properties, "retryOf", self.retry.as_ref().map(|retry| retry.of.clone().into()));
        strip(Value::Object(envelope(Kind::Run, id, etag, Some(&self.system_data), properties)), version)
    }

    /// What was asked for, in the shape of a request by the newest version: what a later PUT is merged with.
    pub fn request(&self) -> Value {
        json!({ "properties": self.asked() })
    }

    fn asked(&self) -> Map<String, Value> {
        let mut properties = Map::new();
        put(&mut properties, "updateStrategyId", self.strategy_id.clone().map(Value::from));
        put(&mut properties, "strategy", self.strategy.as_ref().map(strategy::render));
        properties.insert("managedClusterUpdate".into(), render_goal(&self.goal));
        put(&mut properties, "startAfter", self.start_after.as_ref().map(|name| name.to_string().into()));
        properties
    }
}

/// What every resource has. The service's own have no `systemData`.
pub(crate) fn envelope(
    kind: Kind,
    id: &str,
    etag: &str,
    system_data: Option<&SystemData>,
    properties: Map<String, Value>,
) -> Map<String, Value> {
    let name = id.rsplit('/').next().unwrap_or_default();
    let mut resource = Map::from_iter([
        ("id".into(), id.into()),
        ("name".into(), name.into()),
        ("type".into(), kind.resource_type().into()),
        ("eTag".into(), body_etag(etag).into()),
    ]);
    put(&mut resource, "systemData", system_data.map(SystemData::render));
    resource.insert("properties".into(), Value::Object(properties));
    resource
}

fn put(object: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(key.into(), value);
    }
}

fn operation_status(
    properties: &mut Map<String, Value>,
    state: ProvisioningState,
    id: Option<Uuid>,
    error: Option<&Fault>,
) {
    properties.insert("provisioningState".into(), format!("{state:?}").into());
    let mut status = Map::new();
    put(&mut status, "lastOperationId", id.map(|id| id.to_string().into()));
    put(&mut status, "lastOperationError", error.map(render_fault));
    if !status.is_empty() {
        properties.insert("status".into(), Value::Object(status));
    }
}
