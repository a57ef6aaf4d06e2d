//! Fleets on the wire (`arm-api.md` §9).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{error::ArmError, field::Field};

/// Tags of one resource at most, as ARM has it.
pub const MOST_TAGS: usize = 50;

/// What a PUT of a fleet asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetRequest {
    /// The region, as it was written.
    pub location: String,
    /// Free tags.
    pub tags: BTreeMap<String, String>,
    /// Kept and given back.
    pub identity: Option<Value>,
    /// Kept and given back; flotta has no hub.
    pub hub_profile: Option<Value>,
}

/// What a PATCH of a fleet changes; `None` leaves alone.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPatch {
    /// All tags, anew.
    pub tags: Option<BTreeMap<String, String>>,
    /// The identity.
    pub identity: Option<Value>,
}

/// Reads the body of a PUT.
pub fn parse(body: &Value) -> Result<FleetRequest, ArmError> {
    let top = Field::top(body);
    let location = top.need("location")?;
    let text = location.text()?;
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ' || c == '-');
    if region(text).is_empty() || text.len() > 90 || !plain {
        return Err(location.refuse("not a region: use a name such as westeurope"));
    }
    let properties = top.get("properties")?;
    let hub_profile = properties.map(|properties| properties.get("hubProfile")).transpose()?.flatten();
    Ok(FleetRequest {
        location: text.into(),
        tags: tags(&top)?.unwrap_or_default(),
        identity: identity(&top)?,
        hub_profile: hub_profile.map(|hub| hub_profile_of(&hub)).transpose()?,
    })
}

/// Reads the body of a PATCH.
pub fn parse_patch(body: &Value) -> Result<FleetPatch, ArmError> {
    let top = Field::top(body);
    Ok(FleetPatch { tags: tags(&top)?, identity: identity(&top)? })
}

/// A region as it stands in URLs: `East US` is `eastus`.
pub fn region(location: &str) -> String {
    location.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase()
}

fn tags(top: &Field<'_>) -> Result<Option<BTreeMap<String, String>>, ArmError> {
    let Some(tags) = top.get("tags")? else { return Ok(None) };
    let entries = tags.entries()?;
    if entries.len() > MOST_TAGS {
        return Err(tags.refuse(format!("{} tags: at most {MOST_TAGS} are allowed", entries.len())));
    }
    let tag = |(key, value): (&str, Field<'_>)| {
        let text = value.text()?;
        if key.is_empty() || key.chars().count() > 512 || text.chars().count() > 256 {
            return Err(value.refuse("a tag has a name of 1 to 512 characters and a value of at most 256"));
        }
        Ok((key.to_string(), text.to_string()))
    };
    entries.into_iter().map(tag).collect::<Result<_, _>>().map(Some)
}

fn identity(top: &Field<'_>) -> Result<Option<Value>, ArmError> {
    let Some(identity) = top.get("identity")? else { return Ok(None) };
    let types = ["None", "SystemAssigned", "UserAssigned", "SystemAssigned, UserAssigned"].map(|word| (word, ()));
    identity.need("type")?.one_of(&types)?;
    if let Some(assigned) = identity.get("userAssignedIdentities")? {
        assigned.entries()?;
    }
    Ok(Some(without(identity.value, &["principalId", "tenantId"])))
}

fn hub_profile_of(hub: &Field<'_>) -> Result<Value, ArmError> {
    if let Some(prefix) = hub.get("dnsPrefix")? {
        let text = prefix.text()?;
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !(1..=54).contains(&text.len()) || !plain || text.starts_with('-') || text.ends_with('-') {
            return Err(prefix.refuse("use 1 to 54 letters, digits and inner hyphens"));
        }
    }
    for name in ["apiServerAccessProfile", "agentProfile"] {
        if let Some(profile) = hub.get(name)? {
            profile.entries()?;
        }
    }
    Ok(without(hub.value, &["fqdn", "kubernetesVersion", "portalFqdn"]))
}

/// An object without its read-only and its null properties.
fn without(value: &Value, read_only: &[&str]) -> Value {
    let kept = value.as_object().into_iter().flatten();
    let kept = kept.filter(|(key, value)| !read_only.contains(&key.as_str()) && !value.is_null());
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}
