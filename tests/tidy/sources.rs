//! What source files look like.

use crate::{File, expect_none, files, has_word};

const PURE: &[&str] = &["events/src", "commands/src", "projections/src", "gateway/boundary/src"];

/// Longer files that may stay so, each with the reason. There is none, and that is the aim.
const MAY_BE_LONGER: &[(&str, &str)] = &[];

/// What one pure file may do all the same, with the reason.
const MAY_DO: &[(&str, &str, &str)] = &[(
    "gateway/boundary/src/watchdog.rs",
    "Instant::now",
    "it times its own threads, so that a rule which hangs is a refusal; no verdict depends on the time it reads",
)];

const LONGEST: usize = 600;

/// The lines a compiler sees outside tests: no comments, nothing from an inline test module on.
fn code(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let lines = file.text.lines().collect::<Vec<_>>();
    let tests = (0..lines.len()).find(|&at| {
        let opens = lines.get(at + 1).is_some_and(|next| next.trim_start().starts_with("mod ") && next.ends_with('{'));
        lines[at].trim() == "#[cfg(test)]" && opens
    });
    let end = tests.unwrap_or(lines.len());
    let numbered = lines.into_iter().take(end).enumerate().map(|(at, line)| (at + 1, line));
    numbered.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn impurities(file: &File) -> Vec<String> {
    let banned = [
        "async fn",
        "async move",
        "async {",
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "SystemTime",
        "Instant::now",
        "::now()",
        "thread_rng",
        "RandomState",
    ];
    let may = MAY_DO.iter().find(|(path, ..)| *path == file.path).map(|(_, what, _)| *what);
    let without_exception = |line: &str| may.map_or_else(|| line.to_owned(), |what| line.replace(what, ""));
    let hit = |line: &str| banned.iter().copied().find(|word| without_exception(line).contains(word));
    let hits = code(file).filter_map(|(at, line)| hit(line).map(|word| (at, word)));
    hits.map(|(at, word)| format!("{}:{at}: {word}", file.path)).collect()
}

fn pure_sources() -> Vec<File> {
    let pure: Vec<_> = files()
        .into_iter()
        .filter(|file| file.has_extension(&["rs"]) && !file.is_for_tests())
        .filter(|file| PURE.iter().any(|directory| file.is_in(directory)))
        .collect();
    for directory in PURE {
        assert!(pure.iter().any(|file| file.is_in(directory)), "{directory} holds no source: has it moved?");
    }
    pure
}

// A5 of docs/architecture.md.
#[test]
fn pure_crates_do_no_io_and_read_no_clock() {
    let findings: Vec<_> = pure_sources().iter().flat_map(impurities).collect();
    expect_none(
        &findings,
        "These crates are folded again years later and simulated with seeds. Take the time, the id or the bytes as an \
         argument; what needs the world belongs into the engine, the log or the gateway.",
    );
}

/// Values whose bytes depend on a dependency's feature flags, a hash seed or a rounding.
fn unstable_bytes(file: &File) -> Vec<String> {
    let banned = ["serde_json", "HashMap", "HashSet", "f32", "f64"];
    let hit = |line: &str| banned.iter().copied().find(|word| has_word(line, word));
    let hits = code(file).filter_map(|(at, line)| hit(line).map(|word| (at, word)));
    hits.map(|(at, word)| format!("{}:{at}: {word}", file.path)).collect()
}

// A9 of docs/architecture.md.
#[test]
fn events_have_only_stable_bytes() {
    let sources = pure_sources().into_iter().filter(|file| file.is_in("events/src"));
    let findings: Vec<_> = sources.flat_map(|file| unstable_bytes(&file)).collect();
    expect_none(
        &findings,
        "An event's bytes are hashed and kept for ever. JSON goes in as text, a map as a sorted list or BTreeMap, a \
         number with a fraction as an integer of a smaller unit.",
    );
}

// A6 of docs/architecture.md.
#[test]
fn pure_crates_name_every_variant() {
    // The boundary matches mostly over the CEL crate's own enums, of which it knows a few.
    let roots = pure_sources().into_iter().filter(|file| file.name() == "lib.rs" && !file.path.contains("boundary"));
    let without = roots.filter(|file| !file.text.contains("#![deny(clippy::wildcard_enum_match_arm)]"));
    let without: Vec<_> = without.map(|file| file.path).collect();
    expect_none(
        &without,
        "Add `#![deny(clippy::wildcard_enum_match_arm)]`: a new event must break every place that should think of it.",
    );
}

/// What the simulation could not play: tasks and time that are not handed in, and order that is drawn elsewhere.
const NOT_PLAYED: &[&str] = &[
    "tokio::spawn",
    "tokio::task",
    "tokio::time",
    "spawn_blocking",
    "HashMap",
    "HashSet",
    "RandomState",
    "thread_rng",
];

/// What may stand there all the same, with the reason.
const MAY_STAND: &[(&str, &str)] = &[
    ("commands/engine/src/world.rs", "it is the real world, which the simulation replaces"),
    ("commands/engine/src/handle.rs", "it finds folded states by their stream, and never goes through them in order"),
];

fn not_played(file: &File) -> Vec<String> {
    let hits = code(file).filter_map(|(at, line)| Some((at, *NOT_PLAYED.iter().find(|word| line.contains(**word))?)));
    let mut findings: Vec<_> = hits.map(|(at, word)| format!("{}:{at}: {word}", file.path)).collect();
    let lines: Vec<_> = code(file).collect();
    let draws = lines.windows(2).filter(|two| two[0].1.contains("select! {") && two[1].1.trim() != "biased;");
    findings.extend(draws.map(|two| format!("{}:{}: a `select!` without `biased`", file.path, two[0].0)));
    findings
}

#[test]
fn the_engine_can_be_played() {
    let files = files().into_iter().filter(|file| file.is_in("commands/engine/src") && !file.is_for_tests());
    let files = files.filter(|file| MAY_STAND.iter().all(|(path, _)| *path != file.path));
    expect_none(
        &files.flat_map(|file| not_played(&file)).collect::<Vec<_>>(),
        "The engine gets tasks, time and chance from its `World`, writes `biased;` first in a `select!`, and keeps what \
         it goes through in ordered maps: else a seed of the simulation is not one play.",
    );
}

fn is_too_long(file: &File) -> bool {
    !file.is_for_tests()
        && file.has_extension(&["rs", "sql", "html", "css", "js", "sh"])
        && file.text.lines().count() > LONGEST
        && !MAY_BE_LONGER.iter().any(|(path, _)| *path == file.path)
}

#[test]
fn no_file_is_longer_than_600_lines() {
    let files = files();
    let long = files.iter().filter(|file| is_too_long(file));
    let long: Vec<_> = long.map(|file| format!("{}: {} lines", file.path, file.text.lines().count())).collect();
    expect_none(&long, "Split it by what it is about; 300 lines are the aim. Long tests go into a `tests.rs`.");
    for (path, _) in MAY_BE_LONGER {
        let still = files.iter().any(|file| file.path == *path && file.text.lines().count() > LONGEST);
        assert!(still, "{path} is no longer long: take it off the list in tests/tidy/sources.rs");
    }
}

/// Attributes that silence a lint without saying why.
fn silenced(file: &File) -> Vec<String> {
    let text = &file.text;
    let line = |at: usize| text[..at].lines().count().max(1);
    let mut findings = Vec::new();
    for opening in ["#[", "#!["] {
        let allow = format!("{opening}allow(");
        findings.extend(text.match_indices(&allow).map(|(at, _)| format!("{}:{}: {allow}", file.path, line(at))));
        let expect = format!("{opening}expect(");
        for (at, _) in text.match_indices(&expect) {
            let attribute = text[at..].split_once(")]").map_or(&text[at..], |(attribute, _)| attribute);
            if !attribute.contains("reason") {
                findings.push(format!("{}:{}: {expect} without a reason", file.path, line(at)));
            }
        }
    }
    findings
}

#[test]
fn lints_are_silenced_only_with_a_reason() {
    let sources = files().into_iter().filter(|file| file.has_extension(&["rs"]) && !file.is_in("tests/tidy"));
    let findings: Vec<_> = sources.flat_map(|file| silenced(&file)).collect();
    expect_none(&findings, "Write `#[expect(lint, reason = \"…\")]`: it also says when it is needed no longer.");
}

#[cfg(test)]
mod self_test {
    use super::{LONGEST, impurities, is_too_long, not_played, silenced, unstable_bytes};
    use crate::File;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn impure_lines_are_found_and_comments_and_tests_are_not() {
        let text =
            "/// No `SystemTime` here.\nlet at = std::time::Instant::now();\n\n#[cfg(test)]\nmod tests {\nstd::fs";
        assert_eq!(impurities(&file("events/src/a.rs", text)), ["events/src/a.rs:2: Instant::now"]);
        assert_eq!(impurities(&file("a.rs", "use std::fs;\npub async fn load() {}\nUtc::now()")).len(), 3);
        assert!(impurities(&file("gateway/boundary/src/watchdog.rs", "Instant::now()")).is_empty());
        assert_eq!(impurities(&file("gateway/boundary/src/watchdog.rs", "use std::fs;")).len(), 1);
        assert_eq!(impurities(&file("a.rs", "#[cfg(test)]\nmod tests;\nuse std::net;")).len(), 1);
    }

    #[test]
    fn what_cannot_be_played_is_found() {
        let text = "tokio::spawn(x);\ntokio::select! {\n    a = b => c,\n}\ntokio::select! {\n    biased;\n}";
        assert_eq!(not_played(&file("a.rs", text)).len(), 2);
    }

    #[test]
    fn unstable_bytes_are_found() {
        assert_eq!(unstable_bytes(&file("a.rs", "/// no f64\nargs: serde_json::Value,\ncost: f64,")).len(), 2);
    }

    #[test]
    fn long_files_are_found() {
        let long = "\n".repeat(LONGEST + 1);
        assert!(is_too_long(&file("src/main.rs", &long)));
        assert!(!is_too_long(&file("src/main.rs", &long[1..])));
        assert!(!is_too_long(&file("commands/src/run/tests.rs", &long)));
        assert!(!is_too_long(&file("docs/promises.md", &long)));
    }

    #[test]
    fn silenced_lints_are_found() {
        assert_eq!(silenced(&file("a.rs", "\n#[allow(dead_code)]")), ["a.rs:1: #[allow("]);
        assert_eq!(silenced(&file("a.rs", "#![expect(clippy::x)]")).len(), 1);
        assert!(silenced(&file("a.rs", "#[expect(\n    x,\n    reason = \"y\"\n)]")).is_empty());
    }
}
