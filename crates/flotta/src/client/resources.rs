//! The resources of the API: their kinds, names and URLs, and the bodies that commands make.

use flotta_model::{ClusterId, FleetName, Name};
use reqwest::Url;
use serde_json::{Map, Value, json};

use crate::{
    cli::{NewRun, Pair, Skip, word},
    client::context::Target,
    failure::{Failure, Kind as Blame},
    fields::{self, STRATEGY, STRATEGY_PROPERTIES},
};

const PROVIDER: &str = "Microsoft.ContainerService";

/// Kinds of resources, in the order in which one needs the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A fleet.
    Fleet,
    /// A member of a fleet.
    Member,
    /// An update strategy.
    Strategy,
    /// An update run.
    Run,
    /// A gate of a run; nobody makes one.
    Gate,
}

impl Kind {
    /// Those that people make.
    pub const ALL: [Self; 4] = [Self::Fleet, Self::Member, Self::Strategy, Self::Run];

    /// As people say it.
    pub fn singular(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Member => "member",
            Self::Strategy => "strategy",
            Self::Run => "run",
            Self::Gate => "gate",
        }
    }

    /// Several of it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Fleet => "fleets",
            Self::Member => "members",
            Self::Strategy => "strategies",
            Self::Run => "runs",
            Self::Gate => "gates",
        }
    }

    /// The short name in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fleet => "Fleet",
            Self::Member => "FleetMember",
            Self::Strategy => "UpdateStrategy",
            Self::Run => "UpdateRun",
            Self::Gate => "Gate",
        }
    }

    /// ARM's name of the type.
    pub fn arm_type(self) -> &'static str {
        match self {
            Self::Fleet => "Microsoft.ContainerService/fleets",
            Self::Member => "Microsoft.ContainerService/fleets/members",
            Self::Strategy => "Microsoft.ContainerService/fleets/updateStrategies",
            Self::Run => "Microsoft.ContainerService/fleets/updateRuns",
            Self::Gate => "Microsoft.ContainerService/fleets/gates",
        }
    }

    fn segment(self) -> Option<&'static str> {
        match self {
            Self::Fleet => None,
            Self::Member => Some("members"),
            Self::Strategy => Some("updateStrategies"),
            Self::Run => Some("updateRuns"),
            Self::Gate => Some("gates"),
        }
    }
}

impl Target {
    /// The fleet that is meant.
    pub fn fleet(&self) -> Result<&FleetName, Failure> {
        self.fleet.as_ref().ok_or_else(|| {
            Failure::new(Blame::Usage, "it is not clear which fleet is meant", "no fleet is named")
                .hint("add --fleet NAME, set FLOTTA_FLEET, or keep it with `flotta context set NAME --fleet FLEET`")
        })
    }

    /// The same target with another fleet.
    pub fn with_fleet(&self, fleet: FleetName) -> Self {
        Self { fleet: Some(fleet), ..self.clone() }
    }

    fn segments(&self) -> Vec<&str> {
        vec![
            "subscriptions",
            &self.subscription,
            "resourceGroups",
            &self.resource_group,
            "providers",
            PROVIDER,
            "fleets",
        ]
    }

    fn url(&self, segments: &[&str]) -> Result<Url, Failure> {
        let mut url = self.server.clone();
        match url.path_segments_mut() {
            Ok(mut path) => {
                path.clear().extend(segments);
            }
            Err(()) => {
                return Err(Failure::new(
                    Blame::Usage,
                    "the server's URL has no room for a path",
                    self.server.as_str(),
                ));
            }
        }
        url.query_pairs_mut().append_pair("api-version", &self.api_version);
        Ok(url)
    }

    /// The URL of all resources of a kind.
    pub fn list_url(&self, kind: Kind) -> Result<Url, Failure> {
        let mut segments = self.segments();
        if let Some(segment) = kind.segment() {
            segments.extend([self.fleet()?.as_str(), segment]);
        }
        self.url(&segments)
    }

    /// The URL of a resource.
    pub fn resource_url(&self, kind: Kind, name: &str) -> Result<Url, Failure> {
        self.action_url(kind, name, None)
    }

    /// The URL of something to do with a resource, or to ask about it.
    pub fn action_url(&self, kind: Kind, name: &str, action: Option<&str>) -> Result<Url, Failure> {
        let mut segments = self.segments();
        if let Some(segment) = kind.segment() {
            segments.extend([self.fleet()?.as_str(), segment]);
        }
        segments.push(name);
        segments.extend(action);
        self.url(&segments)
    }

    /// The ARM id of a strategy, given by name or by id.
    pub fn strategy_id(&self, name_or_id: &str) -> Result<String, Failure> {
        if name_or_id.starts_with('/') {
            return Ok(name_or_id.to_owned());
        }
        let name: Name = name_or_id.parse().map_err(|error| {
            Failure::new(Blame::Usage, "a run names its strategy by name or id", format!("{error}"))
        })?;
        let mut segments = self.segments();
        segments.extend([self.fleet()?.as_str(), "updateStrategies", name.as_str()]);
        Ok(format!("/{}", segments.join("/")))
    }
}

fn map(pairs: &[Pair]) -> Value {
    pairs.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect::<Map<_, _>>().into()
}

/// The body of a fleet.
pub fn fleet_body(location: &str, tags: &[Pair]) -> Value {
    let mut body = json!({"location": location, "properties": {}});
    if !tags.is_empty() {
        body["tags"] = map(tags);
    }
    body
}

/// The body of a member; without a cluster, that of a change.
pub fn member_body(cluster: Option<&ClusterId>, group: Option<&Name>, labels: &[Pair]) -> Value {
    let mut properties = json!({});
    if let Some(cluster) = cluster {
        properties["clusterResourceId"] = cluster.as_str().into();
    }
    if let Some(group) = group {
        properties["group"] = group.as_str().into();
    }
    if !labels.is_empty() {
        properties["labels"] = map(labels);
    }
    json!({"properties": properties})
}

/// A strategy from whatever a file holds of it: a list of stages, `{stages}`, `{strategy}` or a whole resource.
pub fn strategy_of(value: Value) -> Result<Value, Failure> {
    let resource = fields::document(Kind::Strategy);
    let shapes = [("/properties/strategy", resource), ("/strategy", STRATEGY_PROPERTIES), ("", STRATEGY)];
    if value.is_array() {
        fields::check("the strategy", &value, fields::STAGES)?;
        return Ok(json!({"stages": value}));
    }
    for (inner, shape) in shapes {
        if let Some(strategy) = value.pointer(inner).filter(|strategy| strategy.get("stages").is_some()) {
            fields::check("the strategy", &value, shape)?;
            return Ok(strategy.clone());
        }
    }
    Err(Failure::new(Blame::Usage, "there is no strategy in it", "no 'stages' was found")
        .hint("write `stages:` and a list of stages; `flotta strategy --help` shows an example"))
}

/// The body of a strategy.
pub fn strategy_body(strategy: Value) -> Value {
    json!({"properties": {"strategy": strategy}})
}

/// The body of a run.
pub fn run_body(new: &NewRun, strategy_id: Option<String>, strategy: Option<Value>) -> Value {
    let mut update = json!({"upgrade": {"type": word(new.upgrade)}});
    if let Some(version) = &new.kubernetes_version {
        update["upgrade"]["kubernetesVersion"] = version.trim_start_matches(['v', 'V']).into();
    }
    if let Some(images) = new.node_image_selection {
        update["nodeImageSelection"] = json!({"type": word(images)});
    }
    let mut properties = json!({"managedClusterUpdate": update});
    if let Some(id) = strategy_id {
        properties["updateStrategyId"] = id.into();
    }
    if let Some(strategy) = strategy {
        properties["strategy"] = strategy;
    }
    json!({"properties": properties})
}

/// The body of a skip.
pub fn skip_body(skip: &Skip) -> Value {
    let kinds = [
        ("Member", &skip.member),
        ("Group", &skip.group),
        ("Stage", &skip.stage),
        ("AfterStageWait", &skip.after_stage_wait),
    ];
    let targets = kinds
        .into_iter()
        .flat_map(|(kind, names)| names.iter().map(move |name| json!({"type": kind, "name": name.as_str()})));
    json!({"targets": targets.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Connection;
    use crate::client::context::{Config, resolve};

    fn target(fleet: Option<&str>) -> Target {
        let connection = Connection {
            server: Some("http://127.0.0.1:1".into()),
            subscription: Some("sub".into()),
            resource_group: Some("r g/x".into()),
            fleet: fleet.map(|fleet| fleet.parse().expect("fleet")),
            api_version: "2026-06-01".into(),
            ..Connection::default()
        };
        resolve(&connection, &Config::default()).expect("target")
    }

    #[test]
    fn urls_are_those_of_arm_with_every_segment_encoded() {
        let base =
            "http://127.0.0.1:1/subscriptions/sub/resourceGroups/r%20g%2Fx/providers/Microsoft.ContainerService/fleets";
        let target = target(Some("f"));
        let version = "?api-version=2026-06-01";
        let list = |kind| target.list_url(kind).expect("url").to_string();
        assert_eq!(list(Kind::Fleet), format!("{base}{version}"));
        assert_eq!(list(Kind::Member), format!("{base}/f/members{version}"));
        assert_eq!(list(Kind::Strategy), format!("{base}/f/updateStrategies{version}"));
        let url = target.resource_url(Kind::Fleet, "g").expect("url");
        assert_eq!(url.as_str(), format!("{base}/g{version}"));
        let url = target.action_url(Kind::Run, "up", Some("start")).expect("url");
        assert_eq!(url.as_str(), format!("{base}/f/updateRuns/up/start{version}"));
    }

    #[test]
    fn without_a_fleet_the_ways_to_name_one_are_told() {
        let failure = target(None).list_url(Kind::Run).expect_err("no fleet");
        assert!(failure.to_string().contains("--fleet"), "{failure}");
        assert!(target(None).list_url(Kind::Fleet).is_ok());
    }

    #[test]
    fn a_strategy_is_named_or_given_by_id() {
        let id = target(Some("f")).strategy_id("careful").expect("id");
        assert!(id.ends_with("/Microsoft.ContainerService/fleets/f/updateStrategies/careful"), "{id}");
        assert_eq!(target(None).strategy_id("/a/b").as_deref(), Ok("/a/b"));
        assert!(target(Some("f")).strategy_id("No Name").is_err());
    }

    #[test]
    fn a_strategy_file_holds_stages_in_any_of_four_shapes() {
        let stages = json!([{"name": "a"}]);
        let expect = json!({"stages": stages});
        let shapes = [
            stages.clone(),
            json!({"stages": stages}),
            json!({"strategy": {"stages": stages}}),
            json!({"type": "x", "properties": {"strategy": {"stages": stages}}}),
        ];
        for shape in shapes {
            assert_eq!(strategy_of(shape.clone()), Ok(expect.clone()), "{shape}");
        }
        assert!(strategy_of(json!({"stage": []})).is_err());
        let mistyped = json!([{"name": "a", "maxConcurency": "1"}]);
        let shapes = [
            mistyped.clone(),
            json!({"stages": mistyped}),
            json!({"strategy": {"stages": mistyped}}),
            json!({"properties": {"strategy": {"stages": mistyped}}}),
        ];
        for shape in shapes {
            let failure = strategy_of(shape).expect_err("a mistyped field");
            assert!(failure.cause.contains("[0].maxConcurency"), "{failure}");
        }
    }
}
