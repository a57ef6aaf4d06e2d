//! Members on the wire (`arm-api.md` §9; `behaviour.md` A2).

use flotta_model::{
    ClusterId, Labels, Member, Name,
    selector::{check_key, check_value},
};
use serde_json::Value;

use crate::{error::ArmError, field::Field};

/// Labels of one member at most, not counting the service's own.
pub const MOST_LABELS: usize = 100;
/// Labels under this prefix are the service's own.
pub const SERVICE_PREFIX: &str = "fleet.azure.com/";

/// What a PUT of a member asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRequest {
    /// Which cluster it is.
    pub cluster: ClusterId,
    /// The update group.
    pub group: Option<Name>,
    /// Labels given by people; what was sent under the service's prefix is left out.
    pub labels: Labels,
}

/// What a PATCH of a member changes; `None` leaves alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPatch {
    /// The update group; `null` or an empty text takes the member out of its group.
    pub group: Option<Option<Name>>,
    /// All labels given by people, anew.
    pub labels: Option<Labels>,
}

/// Reads the body of a PUT.
pub fn parse(body: &Value) -> Result<MemberRequest, ArmError> {
    let properties = Field::top(body).need("properties")?;
    Ok(MemberRequest {
        cluster: properties.need("clusterResourceId")?.parse()?,
        group: properties.get("group")?.map(|group| group.parse()).transpose()?,
        labels: labels(&properties)?.unwrap_or_default(),
    })
}

/// Reads the body of a PATCH.
pub fn parse_patch(body: &Value) -> Result<MemberPatch, ArmError> {
    let Some(properties) = Field::top(body).get("properties")? else {
        return Ok(MemberPatch { group: None, labels: None });
    };
    let labels = labels(&properties)?;
    let group = match properties.value.get("group") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(Value::String(text)) if text.is_empty() => Some(None),
        Some(_) => Some(Some(properties.need("group")?.parse()?)),
    };
    Ok(MemberPatch { group, labels })
}

fn labels(properties: &Field<'_>) -> Result<Option<Labels>, ArmError> {
    let Some(labels) = properties.get("labels")? else { return Ok(None) };
    let own = labels.entries()?.into_iter().filter(|(key, _)| !key.starts_with(SERVICE_PREFIX));
    let own: Vec<(&str, Field<'_>)> = own.collect();
    if own.len() > MOST_LABELS {
        return Err(labels.refuse(format!("{} labels: at most {MOST_LABELS} are allowed", own.len())));
    }
    let label = |(key, value): (&str, Field<'_>)| {
        let text = value.text()?;
        check_key(key).map_err(|error| value.refuse(error))?;
        check_value(text).map_err(|error| value.refuse(error))?;
        Ok((key.to_string(), text.to_string()))
    };
    own.into_iter().map(label).collect::<Result<_, _>>().map(Some)
}

/// A member with the labels people gave and those of the service: the location only where it is known, and nothing that
/// is no label value (resource groups may be longer).
pub fn with_service_labels(
    name: Name,
    cluster: ClusterId,
    group: Option<Name>,
    own: Labels,
    location: Option<&str>,
) -> Member {
    let mut labels = own;
    labels.retain(|key, _| !key.starts_with(SERVICE_PREFIX));
    labels.extend(service_labels(&name, &cluster, location));
    Member { name, cluster, group, labels }
}

/// The labels of the service for a member.
pub fn service_labels(name: &Name, cluster: &ClusterId, location: Option<&str>) -> Labels {
    let labels = [
        ("cluster-name", Some(cluster.name())),
        ("location", location),
        ("member-name", Some(name.as_str())),
        ("resource-group", Some(cluster.resource_group())),
        ("subscription-id", Some(cluster.subscription())),
    ];
    let known = labels.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let valid = known.filter(|(_, value)| !value.is_empty() && check_value(value).is_ok());
    valid.map(|(key, value)| (format!("{SERVICE_PREFIX}{key}"), value.to_string())).collect()
}
