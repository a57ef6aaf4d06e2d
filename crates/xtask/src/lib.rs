//! Checks of the repository itself, run as tests.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, Package};

/// Which rooms a room may know, beside those that they know in turn. Arrows point down only.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("flotta-model", &[]),
    ("flotta-clock", &[]),
    ("flotta-engine", &["flotta-model"]),
    ("flotta-store", &["flotta-model"]),
    ("flotta-drivers", &["flotta-model", "flotta-clock"]),
    ("flotta-simulator", &["flotta-model", "flotta-clock"]),
    ("flotta-arm", &["flotta-model", "flotta-engine"]),
    ("flotta-orchestrator", &["flotta-model", "flotta-engine", "flotta-clock", "flotta-store", "flotta-drivers"]),
    (
        "flotta-server",
        &["flotta-model", "flotta-engine", "flotta-clock", "flotta-store", "flotta-arm", "flotta-orchestrator"],
    ),
    (
        "flotta",
        &[
            "flotta-model",
            "flotta-engine",
            "flotta-clock",
            "flotta-store",
            "flotta-drivers",
            "flotta-simulator",
            "flotta-arm",
            "flotta-orchestrator",
            "flotta-server",
        ],
    ),
    ("flotta-xtask", &[]),
];

/// What the pure rooms must never come to depend on, however indirectly.
const IMPURE: &[&str] = &["tokio", "http", "hyper", "reqwest", "axum", "sqlx", "sqlx-core", "rand", "getrandom"];

/// The pure rooms.
const PURE: &[&str] = &["flotta-model", "flotta-engine"];

/// Every arrow between rooms that is not allowed, and every room that nobody has placed.
pub fn forbidden_arrows(metadata: &Metadata) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = MAY_KNOW.iter().copied().collect();
    let mut found = Vec::new();
    for package in metadata.workspace_packages() {
        let Some(may_know) = allowed.get(package.name.as_str()) else {
            found.push(format!("{} has no place in the house: add it to the layering test", package.name));
            continue;
        };
        for room in rooms_of(package).filter(|room| !may_know.contains(&room.as_str())) {
            found.push(format!("{} must not know {room}", package.name));
        }
    }
    found
}

/// The rooms that a package's own code depends on; what its tests use is free.
fn rooms_of(package: &Package) -> impl Iterator<Item = String> + '_ {
    let own = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    own.map(|dependency| dependency.name.clone()).filter(|name| name == "flotta" || name.starts_with("flotta-"))
}

/// Everything impure that the pure rooms depend on.
pub fn impurities(metadata: &Metadata) -> Vec<String> {
    let names: BTreeMap<_, _> = metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let nodes: BTreeMap<_, _> =
        metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
    let mut found = Vec::new();
    for package in metadata.workspace_packages().into_iter().filter(|package| PURE.contains(&package.name.as_str())) {
        let mut seen = BTreeSet::from([&package.id]);
        let mut queue = vec![&package.id];
        while let Some(id) = queue.pop() {
            let Some(node) = nodes.get(id) else { continue };
            let own =
                node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
            queue.extend(own.map(|dep| &dep.pkg).filter(|dep| seen.insert(*dep)));
        }
        let names = seen.iter().filter_map(|id| names.get(id)).filter(|name| IMPURE.contains(name));
        found.extend(names.map(|name| format!("{} depends on {name}", package.name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use cargo_metadata::MetadataCommand;

    use super::*;

    fn metadata() -> Metadata {
        // Only this platform's packages were fetched when this was built.
        let options = ["--offline", "--locked", "--filter-platform", &host()].map(String::from);
        MetadataCommand::new().other_options(options.to_vec()).exec().expect("cargo metadata")
    }

    fn host() -> String {
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        let said = std::process::Command::new(rustc).arg("-vV").output().expect("rustc runs").stdout;
        let said = String::from_utf8(said).expect("text");
        said.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host").to_owned()
    }

    #[test]
    fn arrows_between_rooms_point_down_only() {
        assert_eq!(forbidden_arrows(&metadata()), Vec::<String>::new());
    }

    #[test]
    fn model_and_engine_depend_on_nothing_impure() {
        assert_eq!(impurities(&metadata()), Vec::<String>::new());
    }

    #[test]
    fn a_forbidden_dependency_is_found() {
        let mut metadata = metadata();
        let engine = metadata.packages.iter().position(|package| package.name == "flotta-engine").expect("engine");
        let store = metadata.packages.iter().find(|package| package.name == "flotta-server").expect("server");
        let arrow = store.dependencies.iter().find(|dependency| dependency.name == "flotta-store").expect("arrow");
        let arrow = arrow.clone();
        metadata.packages[engine].dependencies.push(arrow);
        assert_eq!(forbidden_arrows(&metadata), ["flotta-engine must not know flotta-store"]);
    }

    #[test]
    fn an_impure_dependency_is_found_however_indirect() {
        let mut metadata = metadata();
        let id = |name: &str| {
            metadata.packages.iter().find(|package| package.name == name).map(|package| package.id.clone())
        };
        let (thiserror, clock) = (id("thiserror").expect("thiserror"), id("flotta-clock").expect("clock"));
        let resolve = metadata.resolve.as_mut().expect("resolved");
        let borrowed = resolve.nodes.iter().find(|node| node.id == clock).expect("node").deps.clone();
        let node = resolve.nodes.iter_mut().find(|node| node.id == thiserror).expect("node");
        node.deps.extend(borrowed);
        assert!(impurities(&metadata).contains(&"flotta-engine depends on tokio".to_string()));
    }
}
