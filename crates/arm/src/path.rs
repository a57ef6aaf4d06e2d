//! What a URL means: ARM paths, resource ids, query strings (`arm-api.md` §2, §3).
//!
//! The fixed words of a path are read without regard to case, as ARM does; subscription and resource group keep the
//! caller's casing; names are parsed by the types of the model.

use std::{fmt, str::FromStr};

use flotta_model::{FleetName, Name};
use uuid::Uuid;

use crate::error::ArmError;

/// The provider's namespace.
pub const NAMESPACE: &str = "Microsoft.ContainerService";

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A fleet.
    Fleet,
    /// A member.
    Member,
    /// An update strategy.
    Strategy,
    /// An update run.
    Run,
    /// A gate.
    Gate,
    /// An auto-upgrade profile.
    Profile,
}

impl Kind {
    /// The `type` of a resource, in its exact casing.
    pub fn resource_type(self) -> &'static str {
        match self {
            Self::Fleet => "Microsoft.ContainerService/fleets",
            Self::Member => "Microsoft.ContainerService/fleets/members",
            Self::Strategy => "Microsoft.ContainerService/fleets/updateStrategies",
            Self::Run => "Microsoft.ContainerService/fleets/updateRuns",
            Self::Gate => "Microsoft.ContainerService/fleets/gates",
            Self::Profile => "Microsoft.ContainerService/fleets/autoUpgradeProfiles",
        }
    }

    /// The segment before the name in a path.
    pub fn segment(self) -> &'static str {
        self.resource_type().rsplit('/').next().unwrap_or_default()
    }
}

/// Which fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRef {
    /// The subscription, in the caller's casing.
    pub subscription: String,
    /// The resource group, in the caller's casing.
    pub resource_group: String,
    /// The fleet's name.
    pub fleet: FleetName,
}

impl FleetRef {
    /// The id of the fleet.
    pub fn id(&self) -> String {
        fleet_id(&self.subscription, &self.resource_group, &self.fleet)
    }

    /// The id of something in the fleet.
    pub fn child_id(&self, kind: Kind, name: impl fmt::Display) -> String {
        format!("{}/{}/{name}", self.id(), kind.segment())
    }

    /// The fleet's id in lower case: what equal fleets share, however they were written.
    pub fn key(&self) -> String {
        self.id().to_ascii_lowercase()
    }

    /// That the fleet is not there.
    pub fn not_found(&self) -> ArmError {
        ArmError::resource_not_found(&format!("{}/{}", Kind::Fleet.resource_type(), self.fleet), &self.resource_group)
    }

    /// That something in the fleet is not there.
    pub fn child_not_found(&self, kind: Kind, name: impl fmt::Display) -> ArmError {
        let path = format!("{}/{}/{}/{name}", Kind::Fleet.resource_type(), self.fleet, kind.segment());
        ArmError::resource_not_found(&path, &self.resource_group)
    }
}

/// The id of a fleet.
pub fn fleet_id(subscription: &str, resource_group: &str, fleet: &FleetName) -> String {
    format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{NAMESPACE}/fleets/{fleet}")
}

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAction {
    /// `start`
    Start,
    /// `stop`
    Stop,
    /// `skip`
    Skip,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The list of what the provider can do.
    ProviderOperations,
    /// The provider as a subscription sees it.
    Provider {
        /// The subscription.
        subscription: String,
    },
    /// The fleets of a subscription.
    FleetsOfSubscription {
        /// The subscription.
        subscription: String,
    },
    /// The fleets of a resource group.
    FleetsOfGroup {
        /// The subscription.
        subscription: String,
        /// The resource group.
        resource_group: String,
    },
    /// A fleet.
    Fleet(FleetRef),
    /// The credentials of a fleet's hub.
    ListCredentials(FleetRef),
    /// The members, strategies, runs, gates or profiles of a fleet.
    Children(FleetRef, Kind),
    /// A member.
    Member(FleetRef, Name),
    /// An update strategy.
    Strategy(FleetRef, Name),
    /// An update run.
    Run(FleetRef, Name),
    /// An action on an update run.
    RunAction(FleetRef, Name, RunAction),
    /// A gate.
    Gate(FleetRef, Uuid),
    /// An auto-upgrade profile.
    Profile(FleetRef, Name),
    /// Making the run that a profile would make now.
    GenerateUpdateRun(FleetRef, Name),
    /// The state of a long-running operation.
    Operation {
        /// The subscription.
        subscription: String,
        /// The region in the path.
        location: String,
        /// The operation.
        id: Uuid,
    },
    /// The result of a long-running operation.
    OperationResult {
        /// The subscription.
        subscription: String,
        /// The region in the path.
        location: String,
        /// The operation.
        id: Uuid,
    },
}

impl Target {
    /// Reads the path of a URL, percent-encoded as it came, without the query.
    pub fn parse(path: &str) -> Result<Self, ArmError> {
        let no_route = || ArmError::no_such_route(path);
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        let inner = trimmed.strip_prefix('/').ok_or_else(no_route)?;
        let segments: Vec<String> =
            inner.split('/').map(|segment| decode(segment, false)).collect::<Option<_>>().ok_or_else(no_route)?;
        if segments.iter().any(|segment| segment.contains('/') || segment.chars().any(char::is_control)) {
            return Err(no_route());
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let is = |index: usize, word: &str| segments.get(index).is_some_and(|got| got.eq_ignore_ascii_case(word));
        if segments.len() == 3 && is(0, "providers") && is(1, NAMESPACE) && is(2, "operations") {
            return Ok(Self::ProviderOperations);
        }
        if !is(0, "subscriptions") || segments.len() < 4 {
            return Err(no_route());
        }
        let subscription = group_name(segments[1], "subscriptionId")?;
        let found = if is(2, "providers") && is(3, NAMESPACE) {
            below_subscription(subscription, &segments[4..])
        } else if is(2, "resourceGroups") && is(4, "providers") && is(5, NAMESPACE) && is(6, "fleets") {
            below_group(subscription, group_name(segments[3], "resourceGroupName")?, &segments[7..])
        } else {
            Ok(None)
        };
        found?.ok_or_else(no_route)
    }

    /// The fleet the path is about, if it is about one.
    pub fn fleet(&self) -> Option<&FleetRef> {
        match self {
            Self::Fleet(fleet)
            | Self::ListCredentials(fleet)
            | Self::Children(fleet, _)
            | Self::Member(fleet, _)
            | Self::Strategy(fleet, _)
            | Self::Run(fleet, _)
            | Self::RunAction(fleet, ..)
            | Self::Gate(fleet, _)
            | Self::Profile(fleet, _)
            | Self::GenerateUpdateRun(fleet, _) => Some(fleet),
            _ => None,
        }
    }

    /// The methods the path takes, as the `Allow` header has them.
    pub fn methods(&self) -> &'static str {
        match self {
            Self::Fleet(_) | Self::Member(..) => "GET, PUT, PATCH, DELETE",
            Self::Strategy(..) | Self::Run(..) | Self::Profile(..) => "GET, PUT, DELETE",
            Self::Gate(..) => "GET, PATCH",
            Self::ListCredentials(_) | Self::RunAction(..) | Self::GenerateUpdateRun(..) => "POST",
            _ => "GET",
        }
    }
}

fn below_subscription(subscription: String, rest: &[&str]) -> Result<Option<Target>, ArmError> {
    Ok(match rest {
        [] => Some(Target::Provider { subscription }),
        [fleets] if fleets.eq_ignore_ascii_case("fleets") => Some(Target::FleetsOfSubscription { subscription }),
        [locations, location, word, id] if locations.eq_ignore_ascii_case("locations") => {
            let location = group_name(location, "location")?;
            let id = uuid(id, "operationId");
            match word.to_ascii_lowercase().as_str() {
                "operations" => Some(Target::Operation { subscription, location, id: id? }),
                "operationresults" => Some(Target::OperationResult { subscription, location, id: id? }),
                _ => None,
            }
        }
        _ => None,
    })
}

fn below_group(subscription: String, resource_group: String, rest: &[&str]) -> Result<Option<Target>, ArmError> {
    let Some((fleet, rest)) = rest.split_first() else {
        return Ok(Some(Target::FleetsOfGroup { subscription, resource_group }));
    };
    let fleet = FleetRef { subscription, resource_group, fleet: name(fleet, "fleetName")? };
    let lower: Vec<String> = rest.iter().map(|segment| segment.to_ascii_lowercase()).collect();
    let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
    let run = |index: usize| name::<Name>(rest[index], "updateRunName");
    let profile = |index: usize| name::<Name>(rest[index], "autoUpgradeProfileName");
    Ok(Some(match lower[..] {
        [] => Target::Fleet(fleet),
        ["listcredentials"] => Target::ListCredentials(fleet),
        ["members"] => Target::Children(fleet, Kind::Member),
        ["members", _] => Target::Member(fleet, name(rest[1], "fleetMemberName")?),
        ["updatestrategies"] => Target::Children(fleet, Kind::Strategy),
        ["updatestrategies", _] => Target::Strategy(fleet, name(rest[1], "updateStrategyName")?),
        ["updateruns"] => Target::Children(fleet, Kind::Run),
        ["updateruns", _] => Target::Run(fleet, run(1)?),
        ["updateruns", _, "start"] => Target::RunAction(fleet, run(1)?, RunAction::Start),
        ["updateruns", _, "stop"] => Target::RunAction(fleet, run(1)?, RunAction::Stop),
        ["updateruns", _, "skip"] => Target::RunAction(fleet, run(1)?, RunAction::Skip),
        ["gates"] => Target::Children(fleet, Kind::Gate),
        ["gates", _] => Target::Gate(fleet, uuid(rest[1], "gateName")?),
        ["autoupgradeprofiles"] => Target::Children(fleet, Kind::Profile),
        ["autoupgradeprofiles", _] => Target::Profile(fleet, profile(1)?),
        ["autoupgradeprofiles", _, "generateupdaterun"] => Target::GenerateUpdateRun(fleet, profile(1)?),
        _ => return Ok(None),
    }))
}

fn name<T: FromStr<Err: fmt::Display>>(text: &str, segment: &str) -> Result<T, ArmError> {
    text.parse().map_err(|error| ArmError::invalid_resource_name(segment, error))
}

fn uuid(text: &str, segment: &str) -> Result<Uuid, ArmError> {
    let hyphenated = text.len() == 36;
    Uuid::try_parse(text).ok().filter(|_| hyphenated).ok_or_else(|| {
        let shown: String = text.chars().take(80).collect();
        ArmError::invalid_resource_name(segment, format!("'{shown}' is not a GUID"))
    })
}

/// A subscription, resource group or region: 1–90 letters, digits, `-`, `_`, `.`, `(`, `)`, not ending in a dot.
fn group_name(text: &str, segment: &str) -> Result<String, ArmError> {
    let count = text.chars().count();
    let plain = text.chars().all(|c| c.is_alphanumeric() || "-_.()".contains(c));
    if (1..=90).contains(&count) && plain && !text.ends_with('.') {
        return Ok(text.into());
    }
    let shown: String = text.chars().take(100).collect();
    let reason = format!("'{shown}' is not valid: use 1 to 90 letters, digits, '-', '_', '.', '(' and ')'");
    Err(ArmError::invalid_resource_name(segment, reason))
}

/// Undoes percent-encoding. `None` where it is broken, or is not UTF-8.
fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes everything but letters, digits and `-._~$`.
pub(crate) fn encode(text: &str) -> String {
    use fmt::Write;
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~$".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// A decoded query string. Keys are found without regard to case; of equal keys the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parameters in one query at most.
    pub const MOST: usize = 64;

    /// Reads what stands after the `?`. Keys may be percent-encoded, too: some clients send `api%2Dversion`.
    pub fn parse(text: &str) -> Result<Self, ArmError> {
        let broken = || ArmError::new(400, "InvalidQueryString", "the query string is not valid percent-encoding");
        let pairs: Vec<&str> = text.split('&').filter(|pair| !pair.is_empty()).take(Self::MOST + 1).collect();
        if pairs.len() > Self::MOST {
            let message = format!("more than {} query parameters: leave some out", Self::MOST);
            return Err(ArmError::new(400, "InvalidQueryString", message));
        }
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key, true)?, decode(value, true)?))
        };
        pairs.into_iter().map(pair).collect::<Option<_>>().map(Self).ok_or_else(broken)
    }

    /// The value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(got, _)| got.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
    }

    /// The query with a parameter set, encoded again.
    pub fn with(&self, key: &str, value: &str) -> String {
        let kept = self.0.iter().filter(|(got, _)| !got.eq_ignore_ascii_case(key));
        let pairs = kept.map(|(key, value)| (key.as_str(), value.as_str())).chain([(key, value)]);
        let pairs: Vec<String> = pairs.map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
        pairs.join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "/subscriptions/S1/resourceGroups/Rg-1/providers/Microsoft.ContainerService/fleets";

    fn fleet() -> FleetRef {
        FleetRef { subscription: "S1".into(), resource_group: "Rg-1".into(), fleet: "fl".parse().expect("fleet") }
    }

    fn named(text: &str) -> Name {
        text.parse().expect(text)
    }

    #[test]
    fn api3_every_path_of_the_contract_is_understood_in_any_casing() {
        let id = "12345678-9abc-def0-1234-56789abcdef0";
        let uuid: Uuid = id.parse().expect("uuid");
        let run = || named("r1");
        let cases = [
            ("", Target::FleetsOfGroup { subscription: "S1".into(), resource_group: "Rg-1".into() }),
            ("/fl", Target::Fleet(fleet())),
            ("/fl/listCredentials", Target::ListCredentials(fleet())),
            ("/fl/members", Target::Children(fleet(), Kind::Member)),
            ("/fl/members/m1", Target::Member(fleet(), named("m1"))),
            ("/fl/updateStrategies", Target::Children(fleet(), Kind::Strategy)),
            ("/fl/updateStrategies/s1", Target::Strategy(fleet(), named("s1"))),
            ("/fl/updateRuns", Target::Children(fleet(), Kind::Run)),
            ("/fl/updateRuns/r1", Target::Run(fleet(), run())),
            ("/fl/updateRuns/r1/start", Target::RunAction(fleet(), run(), RunAction::Start)),
            ("/fl/updateRuns/r1/stop", Target::RunAction(fleet(), run(), RunAction::Stop)),
            ("/fl/updateRuns/r1/skip", Target::RunAction(fleet(), run(), RunAction::Skip)),
            ("/fl/gates", Target::Children(fleet(), Kind::Gate)),
            (&format!("/fl/gates/{id}"), Target::Gate(fleet(), uuid)),
            ("/fl/autoUpgradeProfiles", Target::Children(fleet(), Kind::Profile)),
            ("/fl/autoUpgradeProfiles/p1", Target::Profile(fleet(), named("p1"))),
            ("/fl/autoUpgradeProfiles/p1/generateUpdateRun", Target::GenerateUpdateRun(fleet(), named("p1"))),
        ];
        for (rest, expect) in cases {
            assert_eq!(Target::parse(&format!("{GROUP}{rest}")), Ok(expect.clone()), "{rest}");
            assert_eq!(Target::parse(&format!("{GROUP}{rest}/")), Ok(expect.clone()), "{rest}/");
            let shouted = rest.split('/').enumerate().map(|(at, word)| match (at, word) {
                (1 | 3, name) => name.to_string(),
                (_, word) => word.to_uppercase(),
            });
            let shouted: Vec<String> = shouted.collect();
            let words = GROUP.replace("resourceGroups", "RESOURCEGROUPS").replace("Microsoft", "mICROSOFT");
            assert_eq!(Target::parse(&format!("{words}{}", shouted.join("/"))), Ok(expect), "{rest} in upper case");
        }
        let provider = "/subscriptions/S1/providers/Microsoft.ContainerService";
        let subscription = || "S1".to_string();
        let location = || "westus".to_string();
        let cases = [
            (provider.to_string(), Target::Provider { subscription: subscription() }),
            (format!("{provider}/fleets"), Target::FleetsOfSubscription { subscription: subscription() }),
            (
                format!("{provider}/locations/westus/operations/{id}"),
                Target::Operation { subscription: subscription(), location: location(), id: uuid },
            ),
            (
                format!("{provider}/locations/westus/operationResults/{id}"),
                Target::OperationResult { subscription: subscription(), location: location(), id: uuid },
            ),
            ("/providers/Microsoft.ContainerService/operations".into(), Target::ProviderOperations),
        ];
        for (path, expect) in cases {
            assert_eq!(Target::parse(&path), Ok(expect), "{path}");
        }
    }

    #[test]
    fn api3_what_is_no_path_or_no_name_is_refused_by_its_segment() {
        let cases = [
            ("/", 404, None),
            ("", 404, None),
            ("/subscriptions/S1", 404, None),
            ("/subscriptions/S1/providers/Microsoft.Other/fleets", 404, None),
            (&format!("{GROUP}/fl/members/m1/x"), 404, None),
            (&format!("{GROUP}/fl/things"), 404, None),
            (&format!("{GROUP}/fl/updateRuns/r1/pause"), 404, None),
            (&format!("{GROUP}/fl%"), 404, None),
            (&format!("{GROUP}/a%2Fb"), 404, None),
            (&format!("{GROUP}//members"), 400, Some("fleetName")),
            (&format!("{GROUP}/Fleet_1"), 400, Some("fleetName")),
            (&format!("{GROUP}/{}", "f".repeat(64)), 400, Some("fleetName")),
            (&format!("{GROUP}/fl/members/-m"), 400, Some("fleetMemberName")),
            (&format!("{GROUP}/fl/updateStrategies/{}", "s".repeat(51)), 400, Some("updateStrategyName")),
            (&format!("{GROUP}/fl/updateRuns/R/start"), 400, Some("updateRunName")),
            (&format!("{GROUP}/fl/gates/nope"), 400, Some("gateName")),
            (&format!("{GROUP}/fl/gates/{}", "a".repeat(32)), 400, Some("gateName")),
            (&format!("{GROUP}/fl/autoUpgradeProfiles/a.b"), 400, Some("autoUpgradeProfileName")),
            ("/subscriptions/S*/providers/Microsoft.ContainerService/fleets", 400, Some("subscriptionId")),
            (&GROUP.replace("Rg-1", "rg%20one"), 400, Some("resourceGroupName")),
        ];
        for (path, status, segment) in cases {
            let error = Target::parse(path).expect_err(path);
            assert_eq!((error.status, error.target.as_deref()), (status, segment), "{path}");
        }
    }

    #[test]
    fn api2_ids_have_the_exact_casing_of_types_and_the_callers_casing_of_the_rest() {
        let path = format!("{}/fl", GROUP.to_lowercase().replace("s1", "S1").replace("rg-1", "Rg-1"));
        let target = Target::parse(&path).expect("path");
        let fleet = target.fleet().expect("fleet");
        assert_eq!(fleet.id(), format!("{GROUP}/fl"));
        assert_eq!(fleet.child_id(Kind::Run, "r1"), format!("{GROUP}/fl/updateRuns/r1"));
        assert_eq!(fleet.key(), fleet.id().to_lowercase());
        let missing = fleet.child_not_found(Kind::Member, "m");
        assert!(missing.message.contains("'Microsoft.ContainerService/fleets/fl/members/m'"), "{missing}");
    }

    #[test]
    fn clients_query_keys_may_be_percent_encoded_and_in_any_casing() {
        let query = Query::parse("api%2Dversion=2026-06-01&%24top=5&$filter=state+eq%20'Pending'&x").expect("query");
        assert_eq!(query.get("api-version"), Some("2026-06-01"));
        assert_eq!(query.get("$TOP"), Some("5"));
        assert_eq!(query.get("$filter"), Some("state eq 'Pending'"));
        assert_eq!((query.get("x"), query.get("y")), (Some(""), None));
        assert_eq!(
            query.with("$top", "7"),
            "api-version=2026-06-01&$filter=state%20eq%20%27Pending%27&x=&$top=7",
            "set and encoded again"
        );
        assert!(Query::parse("a=%4").is_err() && Query::parse("%ff=1").is_err());
        assert!(Query::parse(&"a=1&".repeat(65)).is_err());
    }
}
