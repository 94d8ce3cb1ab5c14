//! Who may depend on whom.

use std::{collections::BTreeMap, env, process::Command};

use serde_json::Value;

use crate::{expect_none, files, root};

/// `events ← {commands, projections, log, boundary} ← engine ← gateway ← ingress ← midwatch`: a crate may be built on
/// those further in. `midwatch-replay` stands beside the engine, so that an auditor's build has no server in it.
const LAYERS: &[&[&str]] = &[
    &["midwatch-events"],
    &["midwatch-commands", "midwatch-projections", "midwatch-log", "midwatch-boundary"],
    &["midwatch-engine", "midwatch-replay"],
    &["midwatch-gateway"],
    &["midwatch-ingress"],
    &["midwatch"],
];

/// What is so, may be and can be is worked out without I/O, clock and randomness.
const PURE: &[&str] = &["midwatch-events", "midwatch-commands", "midwatch-projections", "midwatch-boundary"];
const NOT_IN_PURE: &[&str] = &["tokio", "sqlx", "axum", "hyper", "reqwest", "rand", "getrandom", "async-trait"];

/// What the auditor's build must not hold: whatever could have written the record, or serves or calls anybody.
const NOT_FOR_AUDITORS: &[&str] =
    &["midwatch-engine", "midwatch-gateway", "midwatch-ingress", "axum", "hyper", "reqwest", "cap-std"];

/// A package of the workspace: its dependencies by name, whether each is for tests only.
type Packages = BTreeMap<String, Vec<(String, bool)>>;

fn packages(metadata: &str) -> Packages {
    let metadata: Value = serde_json::from_str(metadata).unwrap_or_else(|error| panic!("cargo metadata: {error}"));
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let dependencies = list(&package["dependencies"]);
            let dependencies = dependencies.iter().map(|one| (text(&one["name"]), text(&one["kind"]) == "dev"));
            (text(&package["name"]), dependencies.collect())
        })
        .collect()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn direction(packages: &Packages) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, dependencies) in packages {
        let Some(own) = layer(name) else {
            findings.push(format!("{name} has no place in the list"));
            continue;
        };
        for (dependency, for_tests) in dependencies.iter().filter(|(dependency, _)| packages.contains_key(dependency)) {
            let fine = layer(dependency).is_some_and(|other| {
                // Tests may look sideways as well, never outwards. Only the binary puts the replay tools together.
                other < own && (dependency != "midwatch-replay" || name == "midwatch") || *for_tests && other == own
            });
            if !fine {
                findings.push(format!("{name} depends on {dependency}"));
            }
        }
    }
    let missing = LAYERS.concat().into_iter().filter(|name| !packages.contains_key(*name));
    findings.extend(missing.map(|name| format!("{name} is in the list but not in the workspace")));
    findings
}

fn impurities(packages: &Packages) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, dependencies) in packages.iter().filter(|(name, _)| PURE.contains(&name.as_str())) {
        for (dependency, _) in dependencies.iter().filter(|(dependency, for_tests)| {
            !for_tests && NOT_IN_PURE.iter().any(|banned| dependency == banned || dependency.starts_with("tokio-"))
        }) {
            findings.push(format!("{name} depends on {dependency}"));
        }
    }
    findings
}

fn cargo(arguments: &[&str]) -> String {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(&cargo).args(arguments).current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("{cargo}: {error}"));
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn workspace() -> Packages {
    packages(&cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]))
}

// A4 of docs/architecture.md.
#[test]
fn dependencies_point_inwards() {
    expect_none(
        &direction(&workspace()),
        "Dependencies point inwards. Move the code to the crate that may know both sides, or put a trait into the \
         inner one; a new crate is given its place in tests/tidy/dependencies.rs and docs/architecture.md.",
    );
}

// A5 of docs/architecture.md.
#[test]
fn pure_crates_depend_on_nothing_impure() {
    expect_none(
        &impurities(&workspace()),
        "events, commands, projections and boundary have no I/O, no clock and no randomness: what they need comes in \
         as an argument, and what they want done goes out as a value.",
    );
}

// A19 of docs/architecture.md.
#[test]
fn the_auditors_build_holds_no_server() {
    let tree = ["tree", "--offline", "--locked", "-p", "midwatch", "--no-default-features", "-e", "normal"];
    let tree = cargo(&[&tree[..], &["--prefix", "none", "--format", "{p}"]].concat());
    assert!(tree.contains("midwatch-replay "), "this is not the auditor's build:\n{tree}");
    expect_none(
        &found_in_tree(&tree, NOT_FOR_AUDITORS),
        "`--no-default-features` replays, verifies and exports, and holds nothing that could have written the record. \
         Make the dependency optional and part of the feature `serve`.",
    );
}

fn found_in_tree(tree: &str, banned: &[&str]) -> Vec<String> {
    let holds = |name: &&&str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    banned.iter().filter(holds).map(|name| format!("it holds {name}")).collect()
}

#[test]
fn every_dependency_comes_from_the_registry() {
    let lock = files().into_iter().find(|file| file.path == "Cargo.lock");
    let lock = lock.unwrap_or_else(|| panic!("there is no Cargo.lock"));
    expect_none(
        &other_sources(&lock.text),
        "Take the crate's release: what a git branch holds today is not what was reviewed.",
    );
}

fn other_sources(lock: &str) -> Vec<String> {
    let sources = lock.lines().filter(|line| line.starts_with("source = "));
    sources.filter(|line| !line.starts_with("source = \"registry+")).map(str::to_owned).collect()
}

#[test]
fn every_crate_takes_the_workspaces_lints() {
    // What is fuzzed is built with another compiler's flags, in a workspace of its own that has no lints to take.
    let ours = |path: &str| !path.starts_with("fuzz/");
    let manifests: Vec<_> =
        files().into_iter().filter(|file| file.name() == "Cargo.toml" && ours(&file.path)).collect();
    assert!(manifests.len() >= LAYERS.concat().len(), "only {} manifests were found", manifests.len());
    let without = manifests.iter().filter(|file| !file.text.contains("[lints]\nworkspace = true"));
    let without: Vec<_> = without.map(|file| file.path.clone()).collect();
    expect_none(&without, "Add `[lints]` with `workspace = true`: a crate without it is checked for nothing.");
}

#[cfg(test)]
mod self_test {
    use super::{NOT_FOR_AUDITORS, Packages, direction, found_in_tree, impurities, other_sources, packages, workspace};

    fn with(name: &str, dependency: &str, for_tests: bool) -> Packages {
        let mut packages = workspace();
        packages.entry(name.into()).or_default().push((dependency.into(), for_tests));
        packages
    }

    #[test]
    fn metadata_is_read() {
        let text = r#"{"packages":[{"name":"a","dependencies":[{"name":"b","kind":null},{"name":"c","kind":"dev"}]}]}"#;
        assert_eq!(packages(text)["a"], [("b".to_owned(), false), ("c".to_owned(), true)]);
    }

    #[test]
    fn what_points_outwards_is_found() {
        for (name, dependency) in [
            ("midwatch-events", "midwatch-log"),
            ("midwatch-commands", "midwatch-log"),
            ("midwatch-engine", "midwatch-gateway"),
            ("midwatch-boundary", "midwatch-commands"),
            ("midwatch-replay", "midwatch-engine"),
            ("midwatch-ingress", "midwatch-replay"),
        ] {
            let findings = direction(&with(name, dependency, false));
            assert!(findings.contains(&format!("{name} depends on {dependency}")), "{findings:?}");
        }
    }

    #[test]
    fn tests_look_sideways_but_not_outwards() {
        assert_eq!(direction(&with("midwatch-projections", "midwatch-commands", true)), direction(&workspace()));
        assert_ne!(direction(&with("midwatch-projections", "midwatch-engine", true)), direction(&workspace()));
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let findings = direction(&with("midwatch-extra", "midwatch-events", false));
        assert!(findings.contains(&"midwatch-extra has no place in the list".to_owned()), "{findings:?}");
    }

    #[test]
    fn impure_dependencies_are_found() {
        assert_eq!(impurities(&with("midwatch-commands", "tokio", false)), ["midwatch-commands depends on tokio"]);
        assert_eq!(impurities(&with("midwatch-events", "tokio-util", false)).len(), 1);
        assert!(impurities(&with("midwatch-log", "tokio", false)).is_empty());
    }

    #[test]
    fn a_server_in_the_auditors_build_is_found() {
        assert_eq!(found_in_tree("midwatch v0.1.0 (/x)\naxum v0.8.9\naxum-core v0.5.0", NOT_FOR_AUDITORS).len(), 1);
    }

    #[test]
    fn git_sources_are_found() {
        assert_eq!(other_sources("source = \"registry+https://x\"\nsource = \"git+https://x\"").len(), 1);
    }
}
