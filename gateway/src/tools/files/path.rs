//! A path as rules see it and as the workspace opens it: the same parts, from the same text.

use std::path::Path;

/// The longest name most file systems take, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// The longest path Linux takes, in bytes.
const MAX_PATH_BYTES: usize = 4_096;

/// A path inside a workspace, in its one form: no `.`, no `..`, no empty part. No parts at all is the workspace itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkspacePath(Vec<String>);

impl WorkspacePath {
    /// Reads a path as a Bot writes it.
    ///
    /// # Errors
    /// A sentence for the Bot: absolute, with `..`, empty, too long, or with control characters in it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("The path is empty; the workspace itself is \".\".".to_owned());
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(format!("The path has {} bytes; at most {MAX_PATH_BYTES} are possible.", text.len()));
        }
        // A name that hides part of itself in a terminal or a page cannot be judged by the person who reads it.
        if text.chars().any(char::is_control) {
            return Err("The path holds a control character.".to_owned());
        }
        if text.starts_with('/') {
            return Err(format!("\"{text}\" is absolute; paths are relative to the workspace."));
        }
        let mut parts = Vec::new();
        for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                return Err(format!("\"{text}\" holds \"..\"; paths stay inside the workspace."));
            }
            if part.len() > MAX_NAME_BYTES {
                let size = part.len();
                return Err(format!("A name in the path has {size} bytes; at most {MAX_NAME_BYTES} are possible."));
            }
            parts.push(part.to_owned());
        }
        Ok(Self(parts))
    }

    /// A path that can name a file, which the workspace itself cannot.
    pub(super) fn parse_file(text: &str) -> Result<Self, String> {
        let path = Self::parse(text)?;
        if path.parent_and_name().is_none() {
            return Err(format!("\"{text}\" is the workspace itself, not a file in it."));
        }
        if text.ends_with('/') {
            return Err(format!("\"{text}\" names a directory, not a file."));
        }
        Ok(path)
    }

    /// The parts, outermost first.
    pub(super) fn parts(&self) -> &[String] {
        &self.0
    }

    /// The directory's parts and the name in it; nothing for the workspace itself.
    pub(super) fn parent_and_name(&self) -> Option<(&[String], &str)> {
        self.0.split_last().map(|(name, parents)| (parents, name.as_str()))
    }

    /// As `file.path`; the workspace itself is `.`.
    pub(super) fn text(&self) -> String {
        if self.0.is_empty() { ".".to_owned() } else { self.0.join("/") }
    }

    /// As `file.name`; empty for the workspace itself.
    pub(super) fn name(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// As `file.extension`: without the dot, empty where there is none.
    pub(super) fn extension(&self) -> String {
        Path::new(self.name()).extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
