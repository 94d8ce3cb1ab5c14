//! A family (routine, run, trigger …) has the same name wherever it appears, and its bytes are kept.

use std::collections::{BTreeMap, BTreeSet};

use crate::{File, expect_none, files};

/// What can happen, by family: `events/src/<family>.rs`.
const FAMILIES: &[&str] = &["routine", "run", "trigger", "delivery", "bot", "boundary", "repeat", "engine", "user"];

/// Families with a decider: `commands/src/<family>.rs`.
const DECIDERS: &[&str] = &["routine", "run", "trigger", "delivery", "bot", "boundary", "repeat", "engine", "user"];

/// Projections that answer a question across families; every other one is named for its family (`run_timeline.rs`).
const ACROSS_FAMILIES: &[&str] = &["lib", "attention", "audit", "due", "projection"];

/// `runs` and `run_timeline` are of `run`, `deliveries` of `delivery`.
fn family_of(stem: &str) -> Option<&'static str> {
    let first = stem.split('_').next().unwrap_or(stem);
    FAMILIES.iter().copied().find(|family| {
        let plural = family.strip_suffix('y').map_or_else(|| format!("{family}s"), |stem| format!("{stem}ies"));
        first == *family || first == plural
    })
}

/// The stems of the files and directories that stand directly in `directory`.
fn modules(files: &[File], directory: &str) -> BTreeSet<String> {
    let inside = files.iter().filter_map(|file| file.path.strip_prefix(directory)?.strip_prefix('/'));
    inside.filter_map(|path| path.split(['/', '.']).next().map(str::to_owned)).collect()
}

fn misplaced(events: &BTreeSet<String>, commands: &BTreeSet<String>, projections: &BTreeSet<String>) -> Vec<String> {
    let mut findings = Vec::new();
    let without = |family: &&&str, modules: &BTreeSet<String>| !modules.contains(**family);
    findings.extend(FAMILIES.iter().filter(|f| without(f, events)).map(|f| format!("events/src/{f}.rs is missing")));
    findings
        .extend(DECIDERS.iter().filter(|f| without(f, commands)).map(|f| format!("commands/src/{f}.rs is missing")));
    for (directory, modules) in [("events", events), ("commands", commands)] {
        let plural = modules.iter().filter(|stem| family_of(stem).is_some_and(|family| family != *stem));
        // `run_view.rs` beside `run.rs` is a part of the family's own module, and belongs into its directory.
        findings.extend(plural.map(|stem| format!("{directory}/src/{stem}.rs is not named as its family")));
    }
    let strays =
        projections.iter().filter(|stem| family_of(stem).is_none() && !ACROSS_FAMILIES.contains(&stem.as_str()));
    findings.extend(strays.map(|stem| format!("projections/src/{stem}.rs names no family")));
    if projections.iter().all(|stem| family_of(stem).is_none()) {
        findings.push("projections/src holds no family".into());
    }
    findings
}

#[test]
fn a_family_has_one_name() {
    let files = files();
    let modules = |directory| modules(&files, directory);
    expect_none(
        &misplaced(&modules("events/src"), &modules("commands/src"), &modules("projections/src")),
        "events/src/run.rs, commands/src/run.rs and projections/src/run*.rs are about the same thing, so that who \
         knows one finds the others. A new family, or a question across families, goes into tests/tidy/families.rs.",
    );
}

/// The wire names in a family's source: string literals `"family.name/version"`.
fn wire_names(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split('"').skip(1).step_by(2))
        .filter(|name| is_wire_name(name))
        .map(str::to_owned)
        .collect()
}

fn is_wire_name(text: &str) -> bool {
    let word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    text.split_once('/').is_some_and(|(name, version)| {
        version.parse::<u32>().is_ok_and(|version| version > 0)
            && name.split_once('.').is_some_and(|(family, name)| word(family) && word(name))
    })
}

fn golden_file(wire_name: &str) -> String {
    format!("events/golden/{}.txt", wire_name.replace('/', "."))
}

fn without_golden(names: &BTreeMap<String, BTreeSet<String>>, files: &BTreeSet<&str>) -> Vec<String> {
    let mut findings = Vec::new();
    for (family, names) in names {
        if names.is_empty() {
            findings.push(format!("events/src/{family}.rs holds no wire name"));
        }
        for name in names {
            if name.split('.').next() != Some(family) {
                findings.push(format!("events/src/{family}.rs names {name}, of another family"));
            }
            if !files.contains(golden_file(name).as_str()) {
                findings.push(format!("{name} has no {}", golden_file(name)));
            }
        }
    }
    let wanted: BTreeSet<String> = names.values().flatten().map(|name| golden_file(name)).collect();
    let golden = files.iter().filter(|path| path.starts_with("events/golden/"));
    let events =
        golden.filter(|path| FAMILIES.iter().any(|family| path.starts_with(&format!("events/golden/{family}."))));
    findings
        .extend(events.filter(|path| !wanted.contains(**path)).map(|path| format!("nothing writes or reads {path}")));
    findings
}

#[test]
fn every_wire_name_has_golden_bytes() {
    let files = files();
    let of_family = |family: &str| {
        let own = |file: &&File| {
            let path = file.path.strip_prefix("events/src/").unwrap_or("");
            path == format!("{family}.rs") || path.starts_with(&format!("{family}/")) && !file.is_for_tests()
        };
        files.iter().filter(own).flat_map(|file| wire_names(&file.text)).collect::<BTreeSet<_>>()
    };
    let names = FAMILIES.iter().map(|family| ((*family).to_owned(), of_family(family))).collect();
    expect_none(
        &without_golden(&names, &files.iter().map(|file| file.path.as_str()).collect()),
        "The bytes of an event are kept for ever: write its golden file, add no field to a released version (write \
         version N+1), and keep reading what was once written.",
    );
}

/// The numbers at the heads of migrations' names, in order.
fn numbers<'a>(files: impl Iterator<Item = &'a str>, directory: &str) -> Vec<u32> {
    let names =
        files.filter_map(|path| path.strip_prefix(directory)?.strip_prefix('/')).filter(|n| n.ends_with(".sql"));
    let mut numbers: Vec<u32> =
        names.map(|name| name.split('_').next().and_then(|number| number.parse().ok()).unwrap_or(0)).collect();
    numbers.sort_unstable();
    numbers
}

fn misnumbered(sqlite: &[u32], postgres: &[u32]) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, numbers) in [("sqlite", sqlite), ("postgres", postgres)] {
        if numbers.is_empty() || numbers.iter().zip(1..).any(|(number, expected)| *number != expected) {
            findings.push(format!("migrations/{name} holds the numbers {numbers:?}, not 1, 2, 3 …"));
        }
    }
    if sqlite != postgres {
        findings.push(format!("migrations/sqlite holds {sqlite:?}, migrations/postgres {postgres:?}"));
    }
    findings
}

#[test]
fn both_databases_have_the_same_migrations() {
    let files = files();
    let numbers = |directory| numbers(files.iter().map(|file| file.path.as_str()), directory);
    expect_none(
        &misnumbered(&numbers("migrations/sqlite"), &numbers("migrations/postgres")),
        "A migration `NNNN_what.sql` has the same number in both directories, so that a ledger's version means the \
         same on both; one that has nothing to do on one of them says so in a comment.",
    );
}

#[cfg(test)]
mod self_test {
    use super::{
        BTreeMap, BTreeSet, DECIDERS, FAMILIES, family_of, misnumbered, misplaced, numbers, wire_names, without_golden,
    };

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn families_are_known_by_their_names() {
        assert_eq!(family_of("run_timeline"), Some("run"));
        assert_eq!(family_of("deliveries"), Some("delivery"));
        assert_eq!(family_of("boundary"), Some("boundary"));
        assert_eq!(family_of("runner"), None);
    }

    #[test]
    fn missing_and_misnamed_modules_are_found() {
        let (events, commands) = (set(FAMILIES), set(DECIDERS));
        assert!(misplaced(&events, &commands, &set(&["lib", "runs", "audit"])).is_empty());
        assert_eq!(misplaced(&set(&FAMILIES[1..]), &commands, &set(&["runs"])).len(), 1);
        assert_eq!(misplaced(&events, &set(&DECIDERS[1..]), &set(&["runs"])).len(), 1);
        assert_eq!(
            misplaced(&events, &commands, &set(&["runs", "things"])),
            ["projections/src/things.rs names no family"]
        );
        assert_eq!(misplaced(&events, &commands, &set(&["lib"])), ["projections/src holds no family"]);
        let mut plural = commands;
        plural.insert("routines".into());
        assert_eq!(misplaced(&events, &plural, &set(&["runs"])).len(), 1);
    }

    #[test]
    fn wire_names_are_read() {
        let text =
            "/// as \"run.opened/1\"\n#[serde(rename = \"run.taken/2\")]\n(\"text/1\", \"a.b/x\", \"run.taken/0\")";
        assert_eq!(wire_names(text), set(&["run.taken/2"]));
    }

    #[test]
    fn missing_and_orphaned_golden_bytes_are_found() {
        let names = BTreeMap::from([("run".to_owned(), set(&["run.taken/1"]))]);
        let check = |files: &[&str]| without_golden(&names, &files.iter().copied().collect());
        assert!(check(&["events/golden/run.taken.1.txt", "events/golden/leaf.txt"]).is_empty());
        assert_eq!(check(&[]).len(), 1);
        assert_eq!(check(&["events/golden/run.taken.1.txt", "events/golden/run.gone.1.txt"]).len(), 1);
        let other = BTreeMap::from([("bot".to_owned(), set(&["run.taken/1"])), ("run".to_owned(), set(&[]))]);
        assert_eq!(without_golden(&other, &BTreeSet::from(["events/golden/run.taken.1.txt"])).len(), 2);
    }

    #[test]
    fn gaps_and_differences_are_found() {
        let files = ["migrations/sqlite/0002_b.sql", "migrations/sqlite/0001_a.sql", "migrations/README.md"];
        assert_eq!(numbers(files.into_iter(), "migrations/sqlite"), [1, 2]);
        assert!(misnumbered(&[1, 2], &[1, 2]).is_empty());
        assert_eq!(misnumbered(&[1, 2], &[1]).len(), 1);
        assert_eq!(misnumbered(&[1, 3], &[1, 3]).len(), 2);
        assert_eq!(misnumbered(&[], &[]).len(), 2);
    }
}
