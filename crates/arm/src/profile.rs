//! Auto-upgrade profiles on the wire (`arm-api.md` §9, §12, §13; `docs/extensions.md`).

use flotta_model::{
    AutoUpgradeProfile, Channel, Name, VersionTarget,
    gate::Weekday,
    profile::{Calendar, CalendarFields, LastTrigger, ProfileImages, TriggerPolicy, UpgradePath},
    window::LocalTime,
};
use serde_json::{Map, Value, json};

use crate::{
    error::ArmError,
    field::Field,
    operation::render_fault,
    run::strategy_of,
    strategy::{local_time, render_local_time, show_clock, time_of_day},
    time::seven_digits,
};

const IMAGES: [(&str, ProfileImages); 2] =
    [("Latest", ProfileImages::Latest), ("Consistent", ProfileImages::Consistent)];

const PATHS: [(&str, UpgradePath); 2] =
    [("Full", UpgradePath::Full), ("ControlPlaneFirst", UpgradePath::ControlPlaneFirst)];

/// Reads the body of a PUT of a profile.
pub fn parse(name: &Name, body: &Value) -> Result<AutoUpgradeProfile, ArmError> {
    let properties = Field::top(body).need("properties")?;
    let channel = channel(&properties)?;
    let strategy_id = match properties.get("updateStrategyId")? {
        Some(id) if id.value.as_str() == Some("") => None,
        Some(id) => {
            strategy_of(id.text()?).ok_or_else(|| {
                id.refuse("not the id of an update strategy: use /subscriptions/S/resourceGroups/G/providers/Microsoft.ContainerService/fleets/F/updateStrategies/NAME")
            })?;
            Some(id.text()?.to_owned())
        }
        None => None,
    };
    let images =
        properties.get("nodeImageSelection")?.map(|selection| selection.need("type")?.one_of(&IMAGES)).transpose()?;
    Ok(AutoUpgradeProfile {
        name: name.clone(),
        channel,
        strategy_id,
        images,
        disabled: properties.get("disabled")?.map(|disabled| disabled.truth()).transpose()?.unwrap_or_default(),
        trigger: properties.get("trigger")?.map(|trigger| policy(&trigger, channel)).transpose()?.unwrap_or_default(),
    })
}

fn channel(properties: &Field<'_>) -> Result<Channel, ArmError> {
    let words = ["Rapid", "Stable", "NodeImage", "SecurityPatch", "TargetKubernetesVersion"].map(|word| (word, word));
    let word = properties.need("channel")?.one_of(&words)?;
    // Clients that have nothing to say sometimes send an empty text.
    let target = properties.get("targetKubernetesVersion")?.filter(|target| target.value.as_str() != Some(""));
    let long_term_support = properties.get("longTermSupport")?;
    let lasting = long_term_support.as_ref().map(Field::truth).transpose()?.unwrap_or_default();
    if word == "TargetKubernetesVersion" {
        let target = target.ok_or_else(|| {
            let path = properties.below("targetKubernetesVersion");
            ArmError::invalid_parameter(path, "channel TargetKubernetesVersion needs it: a minor, such as 1.33")
        })?;
        return match target.parse::<VersionTarget>()? {
            VersionTarget::Minor { major, minor } => {
                Ok(Channel::TargetKubernetesVersion { major, minor, long_term_support: lasting })
            }
            VersionTarget::Exact(version) => Err(target.refuse(format!(
                "'{version}' has a patch, and the channel follows the patches of a minor: use {}.{}",
                version.major, version.minor
            ))),
        };
    }
    let only = |field: Field<'_>| {
        Err(field.refuse(format!(
            "only channel TargetKubernetesVersion has it, not {word}: leave it out, or change the channel"
        )))
    };
    match (target, long_term_support) {
        (Some(target), _) => only(target),
        (None, Some(long_term_support)) if lasting => only(long_term_support),
        _ => Ok(match word {
            "Rapid" => Channel::Rapid,
            "Stable" => Channel::Stable,
            "NodeImage" => Channel::NodeImage,
            _ => Channel::SecurityPatch,
        }),
    }
}

fn policy(field: &Field<'_>, channel: Channel) -> Result<TriggerPolicy, ArmError> {
    let path = field.get("upgradePath")?;
    let upgrade = path.as_ref().map(|path| path.one_of(&PATHS)).transpose()?.unwrap_or_default();
    if let (Some(path), UpgradePath::ControlPlaneFirst, true) = (&path, upgrade, channel.moves_images_alone()) {
        return Err(path.refuse(format!("channel {channel} moves node images alone: leave it out")));
    }
    let percent = field.get("regionsPercent")?.map(|percent| percent.whole("percent", 0..=100)).transpose()?;
    Ok(TriggerPolicy {
        regions_percent: percent.and_then(|percent| u8::try_from(percent).ok()).unwrap_or_default(),
        soak_seconds: field.get("soakInSeconds")?.map(|soak| soak.seconds()).transpose()?.unwrap_or_default(),
        calendar: field.get("calendar")?.map(|calendar| read_calendar(&calendar)).transpose()?,
        path: upgrade,
    })
}

fn read_calendar(field: &Field<'_>) -> Result<Calendar, ArmError> {
    let days =
        field.need("days")?.elements()?.iter().map(|day| day.one_of(&Weekday::NAMES)).collect::<Result<_, _>>()?;
    let hours = field.need("durationHours")?.whole("hours", 4..=24)?;
    let (zone, offset) = local_time(field)?;
    let fields = CalendarFields {
        days,
        start_minute: time_of_day(&field.need("startTime")?)?,
        duration_hours: u8::try_from(hours).unwrap_or(24),
        local: zone.map_or(LocalTime::Offset(offset), LocalTime::Zone),
    };
    Calendar::try_from(fields).map_err(|error| ArmError::invalid_parameter(field.below(&error.field), error.reason))
}

/// The switches that a body says outright: those alone are shown while they are off.
pub fn said(body: &Value) -> Vec<String> {
    let said = |name: &&str| body["properties"][*name].is_boolean();
    ["disabled", "longTermSupport"].into_iter().filter(said).map(str::to_owned).collect()
}

/// A profile's own properties, as they were sent.
pub(crate) fn render(profile: &AutoUpgradeProfile, said: &[String]) -> Map<String, Value> {
    let mut properties = Map::new();
    properties.insert("channel".into(), profile.channel.word().into());
    if let Some(id) = &profile.strategy_id {
        properties.insert("updateStrategyId".into(), id.clone().into());
    }
    if let Some(images) = profile.images {
        let word = IMAGES.iter().find(|(_, kind)| *kind == images).map_or("Latest", |(word, _)| word);
        properties.insert("nodeImageSelection".into(), json!({ "type": word }));
    }
    let mut lasting = false;
    if let Channel::TargetKubernetesVersion { major, minor, long_term_support } = profile.channel {
        properties.insert("targetKubernetesVersion".into(), format!("{major}.{minor}").into());
        lasting = long_term_support;
    }
    for (name, on) in [("disabled", profile.disabled), ("longTermSupport", lasting)] {
        if on || said.iter().any(|said| said == name) {
            properties.insert(name.into(), on.into());
        }
    }
    if !profile.trigger.is_default() {
        properties.insert("trigger".into(), render_policy(&profile.trigger));
    }
    properties
}

fn render_policy(policy: &TriggerPolicy) -> Value {
    let mut object = Map::new();
    if policy.regions_percent > 0 {
        object.insert("regionsPercent".into(), policy.regions_percent.into());
    }
    if policy.soak_seconds > 0 {
        object.insert("soakInSeconds".into(), policy.soak_seconds.into());
    }
    if let Some(calendar) = &policy.calendar {
        object.insert("calendar".into(), render_calendar(calendar.fields()));
    }
    if policy.path == UpgradePath::ControlPlaneFirst {
        object.insert("upgradePath".into(), "ControlPlaneFirst".into());
    }
    Value::Object(object)
}

fn render_calendar(fields: &CalendarFields) -> Value {
    let mut object = Map::new();
    object.insert("days".into(), fields.days.iter().map(|day| format!("{day:?}")).collect::<Vec<_>>().into());
    object.insert("startTime".into(), show_clock(fields.start_minute).into());
    object.insert("durationHours".into(), fields.duration_hours.into());
    render_local_time(&mut object, &fields.local);
    Value::Object(object)
}

/// What became of a profile's last attempt to make a run: `autoUpgradeProfileStatus`.
pub(crate) fn render_status(last: &LastTrigger) -> Value {
    let mut object = Map::new();
    object.insert("lastTriggeredAt".into(), seven_digits(last.at).into());
    let word = if last.error.is_some() { "Failed" } else { "Succeeded" };
    object.insert("lastTriggerStatus".into(), word.into());
    if let Some(error) = &last.error {
        object.insert("lastTriggerError".into(), render_fault(error));
    }
    object.insert("lastTriggerUpgradeVersions".into(), json!(last.versions));
    if let Some(message) = &last.message {
        object.insert("lastTriggerMessage".into(), message.clone().into());
    }
    Value::Object(object)
}
