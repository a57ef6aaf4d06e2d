//! Update runs on the wire: what a PUT asks for (`arm-api.md` §9, §10; `behaviour.md` A4).

use flotta_model::{Goal, ImageSelection, Name, NodeImage, Strategy, UpgradeType, VersionTarget, goal::GoalError};
use serde_json::{Map, Value, json};

use crate::{
    error::ArmError,
    field::Field,
    path::{FleetRef, Target},
    strategy,
};

const UPGRADE_TYPES: [(&str, UpgradeType); 3] = [
    ("Full", UpgradeType::Full),
    ("NodeImageOnly", UpgradeType::NodeImageOnly),
    ("ControlPlaneOnly", UpgradeType::ControlPlaneOnly),
];

/// What a PUT of an update run asks for. Whether strategy and strategy id may stand together is for the caller to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// The strategy written out.
    pub strategy: Option<Strategy>,
    /// The id of a strategy to copy, in the caller's casing.
    pub strategy_id: Option<String>,
    /// What the run wants.
    pub goal: Goal,
    /// The name of the run at whose good end it is to start by itself.
    pub start_after: Option<Name>,
}

/// Reads the body of a PUT of an update run.
pub fn parse(body: &Value) -> Result<RunRequest, ArmError> {
    let properties = Field::top(body).need("properties")?;
    let strategy_id = match properties.get("updateStrategyId")? {
        Some(id) => {
            strategy_of(id.text()?).ok_or_else(|| {
                id.refuse("not the id of an update strategy: use /subscriptions/S/resourceGroups/G/providers/Microsoft.ContainerService/fleets/F/updateStrategies/NAME")
            })?;
            Some(id.text()?.to_string())
        }
        None => None,
    };
    Ok(RunRequest {
        strategy: properties.get("strategy")?.map(|field| strategy::read(&field)).transpose()?,
        strategy_id,
        goal: goal(&properties.need("managedClusterUpdate")?)?,
        start_after: properties.get("startAfter")?.map(|name| name.parse()).transpose()?,
    })
}

/// What somebody wants of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignRequest {
    /// Where to.
    pub target: VersionTarget,
    /// What the names of its runs begin with.
    pub name: Option<Name>,
    /// The id of the strategy of its runs.
    pub strategy_id: Option<String>,
    /// Whether the runs are to be made.
    pub create: bool,
}

/// Reads the body of `campaign`.
pub fn parse_campaign(body: &Value) -> Result<CampaignRequest, ArmError> {
    let top = Field::top(body);
    Ok(CampaignRequest {
        target: top.need("kubernetesVersion")?.parse()?,
        name: top.get("name")?.map(|name| name.parse()).transpose()?,
        strategy_id: top.get("updateStrategyId")?.map(|id| id.text().map(str::to_owned)).transpose()?,
        create: top.get("create")?.map(|create| create.truth()).transpose()?.unwrap_or_default(),
    })
}

/// Reads the body of `retry`: the name of the run that is to be made.
pub fn retry_name(body: &Value) -> Result<Name, ArmError> {
    Field::top(body).need("name")?.parse()
}

/// The fleet and name in the id of an update strategy, all in lower case: ids compare without regard to it.
pub fn strategy_of(id: &str) -> Option<(FleetRef, Name)> {
    match Target::parse(&id.to_ascii_lowercase()) {
        Ok(Target::Strategy(fleet, name)) => Some((fleet, name)),
        _ => None,
    }
}

fn goal(field: &Field<'_>) -> Result<Goal, ArmError> {
    let upgrade = field.need("upgrade")?;
    let kind = upgrade.need("type")?.one_of(&UPGRADE_TYPES)?;
    // Clients that have nothing to say sometimes send an empty text.
    let version = upgrade.get("kubernetesVersion")?.filter(|version| version.value.as_str() != Some(""));
    let version = version.map(|version| version.parse()).transpose()?;
    let selection = field.get("nodeImageSelection")?.map(|selection| images(&selection)).transpose()?;
    let (images, accept_newer) = selection.map_or((None, false), |(images, newer)| (Some(images), newer));
    let goal = Goal::new(kind, version, images).map_err(|error| {
        let path = match error {
            GoalError::VersionMissing(_) | GoalError::VersionSuperfluous => upgrade.below("kubernetesVersion"),
            GoalError::Images(_) => field.below("nodeImageSelection.customNodeImageVersions"),
        };
        ArmError::invalid_parameter(path, error)
    })?;
    Ok(goal.accepting_newer(accept_newer))
}

/// The selection, and whether newer images than it chooses will do.
fn images(field: &Field<'_>) -> Result<(ImageSelection, bool), ArmError> {
    let types = [
        ("Latest", ImageSelection::Latest),
        ("Consistent", ImageSelection::Consistent),
        ("Custom", ImageSelection::Custom(Vec::new())),
    ];
    let selection = field.need("type")?.one_of(&types)?;
    let custom = field.get("customNodeImageVersions")?;
    let versions: Vec<NodeImage> = match &custom {
        Some(custom) => {
            custom.elements()?.iter().map(|element| element.need("version")?.parse()).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let selection = match (selection, custom) {
        (ImageSelection::Custom(_), _) => ImageSelection::Custom(versions),
        (_, Some(custom)) if !versions.is_empty() => {
            return Err(custom.refuse("only a selection of type Custom has versions: leave them out, or use Custom"));
        }
        (selection, _) => selection,
    };
    let accept_newer = match field.get("acceptNewer")? {
        Some(newer) if newer.truth()? && selection == ImageSelection::Latest => {
            return Err(newer.refuse("Latest is the newest anyway: leave it out, or use Consistent or Custom"));
        }
        Some(newer) => newer.truth()?,
        None => false,
    };
    Ok((selection, accept_newer))
}

/// A goal as `managedClusterUpdate`, as it was sent.
pub fn render_goal(goal: &Goal) -> Value {
    let mut upgrade = Map::new();
    upgrade.insert("type".into(), word(goal.upgrade()).into());
    if let Some(version) = goal.version() {
        upgrade.insert("kubernetesVersion".into(), version.to_string().into());
    }
    let mut update = Map::new();
    update.insert("upgrade".into(), Value::Object(upgrade));
    if let Some(selection) = goal.images() {
        let mut selection = render_images(selection);
        if goal.accepts_newer() {
            selection["acceptNewer"] = true.into();
        }
        update.insert("nodeImageSelection".into(), selection);
    }
    Value::Object(update)
}

fn word(upgrade: UpgradeType) -> &'static str {
    UPGRADE_TYPES.iter().find(|(_, kind)| *kind == upgrade).map_or("Full", |(word, _)| word)
}

fn render_images(selection: &ImageSelection) -> Value {
    match selection {
        ImageSelection::Latest => json!({ "type": "Latest" }),
        ImageSelection::Consistent => json!({ "type": "Consistent" }),
        ImageSelection::Custom(images) => {
            json!({ "type": "Custom", "customNodeImageVersions": render_versions(images) })
        }
    }
}

pub(crate) fn render_versions(images: &[NodeImage]) -> Value {
    images.iter().map(|image| json!({ "version": image.as_str() })).collect()
}
