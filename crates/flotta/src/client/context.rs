//! Contexts: servers and fleets by a name, in a file of the user, and how they meet flags, environment and defaults.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use flotta_model::{FleetName, Name};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::{
    cli::Connection,
    failure::{Failure, Kind},
};

/// The server of those who name none.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8642";
/// The subscription of those who name none.
pub const DEFAULT_SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";
/// The resource group of those who name none.
pub const DEFAULT_RESOURCE_GROUP: &str = "flotta";

/// The longest file of contexts, in bytes.
const LONGEST: u64 = 1 << 20;

/// What is remembered under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Context {
    /// The server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
    /// The resource group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
    /// The fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetName>,
}

/// The file of contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Name>,
    /// All, by name.
    #[serde(default)]
    pub contexts: BTreeMap<Name, Context>,
}

/// Where requests go and what they are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The context that was used.
    pub context: Option<Name>,
    /// The server.
    pub server: Url,
    /// The subscription.
    pub subscription: String,
    /// The resource group.
    pub resource_group: String,
    /// The fleet, where one is named.
    pub fleet: Option<FleetName>,
    /// Who asks.
    pub user: Option<String>,
    /// The version of the API.
    pub api_version: String,
}

impl Config {
    /// Reads a file of contexts; a missing one is empty.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |reason: String| {
            Failure::new(Kind::Usage, format!("cannot read the contexts in {}", path.display()), reason)
                .hint("mend or remove the file, or name another with FLOTTA_CONFIG")
        };
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Ok(metadata) if metadata.len() > LONGEST => return Err(failed(format!("longer than {LONGEST} bytes"))),
            _ => {}
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))
    }

    /// Writes the file whole, or not at all.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed = |reason: String| {
            Failure::new(Kind::Failed, format!("cannot write the contexts to {}", path.display()), reason)
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let text = serde_saphyr::to_string(self).map_err(|error| failed(error.to_string()))?;
        let write = || {
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(text.as_bytes())?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|error: std::io::Error| failed(error.to_string()))
    }

    /// The context by this name, else the one in use, else the only one.
    fn chosen(&self, named: Option<&Name>) -> Result<Option<(&Name, &Context)>, Failure> {
        match named.or(self.current.as_ref()) {
            Some(name) => match self.contexts.get_key_value(name) {
                Some(found) => Ok(Some(found)),
                None => Err(self.unknown(name)),
            },
            None if self.contexts.len() == 1 => Ok(self.contexts.iter().next()),
            None => Ok(None),
        }
    }

    /// There is no such context.
    pub fn unknown(&self, name: &Name) -> Failure {
        let names: Vec<&str> = self.contexts.keys().map(Name::as_str).collect();
        let known = match names.is_empty() {
            true => "there is none yet".to_owned(),
            false => format!("there are: {}", names.join(", ")),
        };
        Failure::new(Kind::Usage, format!("there is no context '{name}'"), known)
            .hint(format!("make it with `flotta context set {name} --server URL --fleet NAME`"))
    }
}

/// The file of contexts: `FLOTTA_CONFIG`, else in the folder for configuration of the user.
pub fn config_path(env: impl Fn(&str) -> Option<String>) -> Result<PathBuf, Failure> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    if let Some(path) = env("FLOTTA_CONFIG") {
        return Ok(path.into());
    }
    let folder = env("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .or_else(|| env("HOME").map(|home| Path::new(&home).join(".config")));
    match folder {
        Some(folder) => Ok(folder.join("flotta").join("config.yaml")),
        None => Err(Failure::new(
            Kind::Usage,
            "cannot tell where contexts are kept",
            "neither HOME nor XDG_CONFIG_HOME is set",
        )
        .hint("name a file with FLOTTA_CONFIG")),
    }
}

/// The file of contexts of this process.
pub fn own_config_path() -> Result<PathBuf, Failure> {
    config_path(|name| std::env::var(name).ok())
}

/// Flags and environment (which the command line has put together) come first, then the context, then defaults.
pub fn resolve(given: &Connection, config: &Config) -> Result<Target, Failure> {
    let chosen = config.chosen(given.context.as_ref())?;
    let context = chosen.map(|(_, context)| context.clone()).unwrap_or_default();
    let or = |first: &Option<String>, second: Option<String>, last: &str| {
        first.clone().or(second).unwrap_or_else(|| last.to_owned())
    };
    Ok(Target {
        context: chosen.map(|(name, _)| name.clone()),
        server: server(&or(&given.server, context.server, DEFAULT_SERVER))?,
        subscription: or(&given.subscription, context.subscription, DEFAULT_SUBSCRIPTION),
        resource_group: or(&given.resource_group, context.resource_group, DEFAULT_RESOURCE_GROUP),
        fleet: given.fleet.clone().or(context.fleet),
        user: given.user.clone().or_else(machine_user),
        api_version: given.api_version.clone(),
    })
}

/// The user of this machine, where the environment tells the name and it is one that can be sent.
fn machine_user() -> Option<String> {
    let name = |variable: &&str| std::env::var(variable).ok().and_then(|name| crate::cli::user(&name).ok());
    ["USER", "LOGNAME"].iter().find_map(name)
}

/// A server's URL, parsed.
pub fn server(text: &str) -> Result<Url, Failure> {
    let wrong = |reason: String| {
        Failure::new(Kind::Usage, format!("'{text}' is not the URL of a server"), reason)
            .hint(format!("write it like {DEFAULT_SERVER} or https://flotta.example"))
    };
    let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
    let plain = url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    match (url.scheme(), url.has_host(), plain && url.password().is_none()) {
        ("http" | "https", true, true) => Ok(url),
        ("http" | "https", true, false) => Err(wrong("it has more than a scheme, a host and a port".into())),
        _ => Err(wrong("it does not start with http:// or https://".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("name")
    }

    fn context(server: &str, fleet: &str) -> Context {
        Context { server: Some(server.into()), fleet: Some(fleet.parse().expect("fleet")), ..Context::default() }
    }

    fn two() -> Config {
        let contexts = [(name("a"), context("http://a:1", "fa")), (name("b"), context("http://b:1", "fb"))];
        Config { current: Some(name("a")), contexts: contexts.into() }
    }

    fn asked(connection: Connection, config: &Config) -> (Option<String>, String, String, String, Option<String>) {
        let target = resolve(&connection, config).expect("target");
        let text = |name: Option<String>| name;
        (
            text(target.context.map(|name| name.to_string())),
            target.server.to_string(),
            target.subscription,
            target.resource_group,
            target.fleet.map(|fleet| fleet.to_string()),
        )
    }

    #[test]
    fn defaults_come_last() {
        let nothing = asked(Connection::default(), &Config::default());
        let expect = (None, format!("{DEFAULT_SERVER}/"), DEFAULT_SUBSCRIPTION.into(), "flotta".into(), None);
        assert_eq!(nothing, expect);
    }

    #[test]
    fn the_named_context_comes_before_the_one_in_use_and_flags_before_both() {
        let (context, server, .., fleet) = asked(Connection::default(), &two());
        assert_eq!((context.as_deref(), server.as_str(), fleet.as_deref()), (Some("a"), "http://a:1/", Some("fa")));
        let given = Connection { context: Some(name("b")), ..Connection::default() };
        let (context, server, .., fleet) = asked(given.clone(), &two());
        assert_eq!((context.as_deref(), server.as_str(), fleet.as_deref()), (Some("b"), "http://b:1/", Some("fb")));
        let given =
            Connection { fleet: Some("mine".parse().expect("fleet")), resource_group: Some("rg".into()), ..given };
        let (_, server, _, group, fleet) = asked(given, &two());
        assert_eq!((server.as_str(), group.as_str(), fleet.as_deref()), ("http://b:1/", "rg", Some("mine")));
    }

    #[test]
    fn the_only_context_is_used_without_being_named_but_none_of_several() {
        let mut config = two();
        config.current = None;
        assert_eq!(asked(Connection::default(), &config).0, None);
        config.contexts.remove(&name("b"));
        assert_eq!(asked(Connection::default(), &config).0.as_deref(), Some("a"));
    }

    #[test]
    fn an_unknown_context_is_refused_with_the_known_ones() {
        let given = Connection { context: Some(name("c")), ..Connection::default() };
        let failure = resolve(&given, &two()).expect_err("unknown");
        assert_eq!(failure.kind, Kind::Usage);
        assert!(failure.to_string().contains("there are: a, b"), "{failure}");
    }

    #[test]
    fn a_server_is_a_scheme_a_host_and_a_port() {
        for good in ["http://127.0.0.1:8642", "https://flotta.example/", "http://[::1]:1"] {
            assert!(server(good).is_ok(), "{good}");
        }
        for bad in ["", "localhost:8642", "ftp://a", "http://a/b", "http://u:p@a", "http://a?b=c"] {
            assert!(server(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_file_is_named_by_flotta_config_then_xdg_then_home() {
        let at = |pairs: &[(&str, &str)]| {
            let pairs: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            config_path(|name| pairs.get(name).cloned()).map(|path| path.display().to_string())
        };
        let (home, xdg) = (("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"));
        assert_eq!(at(&[home, xdg, ("FLOTTA_CONFIG", "/f")]).as_deref(), Ok("/f"));
        assert_eq!(at(&[home, xdg]).as_deref(), Ok("/x/flotta/config.yaml"));
        assert_eq!(at(&[home, ("XDG_CONFIG_HOME", "")]).as_deref(), Ok("/h/.config/flotta/config.yaml"));
        assert!(at(&[]).is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("deep/config.yaml");
        assert_eq!(Config::read(&path), Ok(Config::default()));
        two().write(&path).expect("write");
        assert_eq!(Config::read(&path), Ok(two()));
        std::fs::write(&path, "contexts: {a: {sever: x}}").expect("write");
        assert!(Config::read(&path).expect_err("typo").cause.contains("sever"));
    }
}
