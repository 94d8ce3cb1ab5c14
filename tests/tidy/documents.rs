//! What the documents say is there, is there.

use std::{collections::BTreeSet, path::Path};

use crate::{File, expect_none, files, has_word, root};

fn document(path: &str) -> String {
    let file = files().into_iter().find(|file| file.path == path);
    file.unwrap_or_else(|| panic!("{path} is missing")).text
}

/// What stands between single backticks; fenced blocks are left out.
fn quoted(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let prose = text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Whether a quoted text means a path of this tree: its first part is there, or it ends as a source file does.
fn looks_like_a_path(quoted: &str, top: impl Fn(&str) -> bool) -> bool {
    let plain = quoted.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
    let first = quoted.split('/').next().unwrap_or("");
    let source = quoted.rsplit_once('.').is_some_and(|(name, extension)| {
        !name.is_empty() && ["rs", "toml", "md", "sql", "sh", "html", "css", "js", "mjs", "py"].contains(&extension)
    });
    plain && (source || quoted.contains('/') && !first.is_empty() && top(first))
}

fn missing_paths(text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let paths = quoted(text).into_iter().map(|quoted| quoted.split("::").next().unwrap_or(quoted));
    let missing = paths.filter(|path| looks_like_a_path(path, &exists) && !exists(path));
    missing.map(|path| format!("`{path}` is not there")).collect()
}

fn exists(path: &str) -> bool {
    root().join(Path::new(path)).exists()
}

#[test]
fn paths_in_the_architecture_exist() {
    expect_none(
        &missing_paths(&document("docs/architecture.md"), exists),
        "docs/architecture.md names files from the root of the repository (`commands/src/run.rs`); correct it together \
         with the move.",
    );
}

/// The numbers of the invariants that a text names, `A1`, `A2` …
fn invariants(text: &str) -> BTreeSet<u32> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter_map(|word| word.strip_prefix('A')?.parse().ok()).collect()
}

fn untested(text: &str, tests: &[File]) -> Vec<String> {
    let invariants = invariants(text);
    let last = invariants.last().copied().unwrap_or(0);
    let mut findings = Vec::new();
    if last == 0 {
        findings.push("docs/architecture.md numbers no invariant".to_owned());
    }
    for number in 1..=last {
        let (upper, lower) = (format!("A{number}"), format!("a{number}"));
        let named = |text: &str| {
            has_word(text, &upper)
                || text.contains(&format!("fn {lower}_"))
                || text.contains(&format!("_{lower}("))
                || text.contains(&format!("_{lower}_"))
        };
        if !invariants.contains(&number) {
            findings.push(format!("A{number} is left out"));
        } else if !tests.iter().any(|file| named(&file.text)) {
            findings.push(format!("no test names A{number}"));
        }
    }
    findings
}

#[test]
fn every_invariant_is_named_by_a_test() {
    let tests: Vec<_> = files()
        .into_iter()
        .filter(|file| file.has_extension(&["rs", "mjs", "js", "py"]))
        // This file's own examples hold no invariant.
        .filter(|file| file.path != "tests/tidy/documents.rs")
        .filter(|file| file.is_for_tests() || file.text.contains("#[cfg(test)]") || file.text.contains("#[test]"))
        .collect();
    expect_none(
        &untested(&document("docs/architecture.md"), &tests),
        "An invariant that no test holds is a wish. Name it where it is tested, in a comment (A7) or in the test's \
         name (a7_…).",
    );
}

/// The sections of promises.md, each as its number and its text.
fn promises(text: &str) -> Vec<(u32, &str)> {
    let sections = text.split("\n## ").skip(1);
    sections.filter_map(|section| Some((section.split_once('.')?.0.parse().ok()?, section))).collect()
}

fn broken_promises(text: &str, files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    let promises = promises(text);
    let numbers: Vec<_> = promises.iter().map(|(number, _)| *number).collect();
    if numbers != (1..=9).collect::<Vec<_>>() {
        findings.push(format!("the promises are numbered {numbers:?}, not 1 to 9"));
    }
    for (number, section) in promises {
        let mut named = 0;
        for (path, test) in quoted(section).into_iter().filter_map(|quoted| quoted.split_once("::")) {
            named += 1;
            let file = files.iter().find(|file| file.path == path);
            let there =
                file.is_some_and(|file| has_word(&file.text, test) && file.text.contains(&format!("fn {test}(")));
            if !there {
                findings.push(format!("promise {number}: `{path}::{test}` is not there"));
            }
        }
        if named == 0 && !section.contains("Not yet") {
            findings.push(format!("promise {number} names no test and does not say \"Not yet\""));
        }
    }
    findings
}

#[test]
fn every_promise_names_its_tests() {
    expect_none(
        &broken_promises(&document("docs/promises.md"), &files()),
        "docs/promises.md names each promise's tests as `path/from/root.rs::name_of_the_function`, or says \"Not yet\".",
    );
}

#[cfg(test)]
mod self_test {
    use super::{broken_promises, invariants, missing_paths, quoted, untested};
    use crate::File;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn quotes_are_read_outside_of_fences() {
        assert_eq!(quoted("a `b` c `d/e`\n```\n`f`\n```\n`g`"), ["b", "d/e", "g"]);
    }

    #[test]
    fn missing_paths_are_found() {
        let exists = |path: &str| ["src", "src/main.rs", "docs"].contains(&path);
        let text = "`src/main.rs` `src/gone.rs` `hooks/receive.rs` `docs/old/` `text/plain` `a b.rs` `src/gone.rs::f`";
        let found = missing_paths(text, exists);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(missing_paths("`src/main.rs::run`", exists).is_empty());
    }

    #[test]
    fn untested_invariants_are_found() {
        assert_eq!(invariants("**A1** and A2, not A2b or SHA256").len(), 2);
        let tests = [file("a.rs", "// A1 holds"), file("b.rs", "fn a2_is_tested() {}")];
        assert!(untested("A1 A2", &tests).is_empty());
        assert_eq!(untested("A1 A2 A3", &tests), ["no test names A3"]);
        assert_eq!(untested("A1 A3", &[file("a.rs", "A1 A3")]), ["A2 is left out"]);
        assert_eq!(untested("none", &tests).len(), 1);
    }

    #[test]
    fn broken_promises_are_found() {
        let whole: String = (1..=9).map(|n| format!("\n## {n}. It holds\n\nNot yet.\n")).collect();
        assert!(broken_promises(&whole, &[]).is_empty());
        assert_eq!(broken_promises("\n## 1. It holds\n\nNot yet.\n", &[]).len(), 1);
        let silent = whole.replacen("Not yet", "Surely", 1);
        assert_eq!(broken_promises(&silent, &[]).len(), 1);
        let named = whole.replacen("Not yet", "`a.rs::it_holds`", 1);
        assert_eq!(broken_promises(&named, &[file("a.rs", "fn it_holds_not() {}")]).len(), 1);
        assert!(broken_promises(&named, &[file("a.rs", "fn it_holds() {}")]).is_empty());
    }
}
