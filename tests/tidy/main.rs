//! The rules of this tree that no compiler knows, each as a test that says what to do.
//!
//! A rule is a function from text to findings, so that each is also shown text that breaks it.

mod dependencies;
mod documents;
mod families;
mod sources;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A file of this tree: its path from the root, with `/`, and its text (bytes that are not UTF-8 are replaced).
struct File {
    path: String,
    text: String,
}

impl File {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
    }

    /// Whether it is there for tests or benchmarks only.
    fn is_for_tests(&self) -> bool {
        self.name() == "tests.rs" || self.path.split('/').any(|part| part == "tests" || part == "benches")
    }

    fn is_in(&self, directory: &str) -> bool {
        self.path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file that belongs to the tree: not what was built, installed or is the version control's own.
fn files() -> Vec<File> {
    let mut found = Vec::new();
    let mut directories = vec![root().to_path_buf()];
    while let Some(directory) = directories.pop() {
        for path in entries(&directory) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if ["target", "node_modules", ".git", ".venv", "__pycache__"].contains(&name.as_ref()) {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if !name.contains(".db") && !name.ends_with(".snap.new") && !name.ends_with(".pending-snap") {
                found.push(read(&path));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 50, "only {} files were found below {}", found.len(), root().display());
    found
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    read.map(|entry| entry.unwrap_or_else(|error| panic!("{}: {error}", directory.display())).path()).collect()
}

fn read(path: &Path) -> File {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let from_root = path.strip_prefix(root()).unwrap_or(path);
    File { path: from_root.to_string_lossy().replace('\\', "/"), text: String::from_utf8_lossy(&bytes).into_owned() }
}

/// Fails with everything that was found, and with what to do about it.
fn expect_none(findings: &[String], what_to_do: &str) {
    assert!(findings.is_empty(), "\n  {}\n{what_to_do}", findings.join("\n  "));
}

/// Where `word` stands in `text` by itself, neither inside a longer word nor inside a longer number.
fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        !before.is_some_and(inside) && !after.is_some_and(inside)
    })
}

#[cfg(test)]
mod self_test {
    use super::{File, has_word};

    #[test]
    fn words_stand_alone() {
        assert!(has_word("see A7.", "A7"));
        assert!(!has_word("see A71", "A7"));
        assert!(!has_word("mktemp XXXXXX", concat!("XX", "X")));
    }

    #[test]
    fn tests_are_known_by_their_place() {
        let file = |path: &str| File { path: path.into(), text: String::new() };
        assert!(file("commands/src/routine/tests.rs").is_for_tests());
        assert!(file("tests/browser/main.rs").is_for_tests());
        assert!(!file("commands/src/contests.rs").is_for_tests());
        assert!(file("events/log/src/lib.rs").is_in("events"));
        assert!(!file("events-old/lib.rs").is_in("events"));
    }
}
