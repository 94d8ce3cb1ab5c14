//! The tools a Bot may be granted, and what carries them out.
//!
//! A tool family says three things: the [`ToolDefinition`]s it offers, the [`Target`] a call is about (before anything
//! acts, so that the boundary can judge it), and how a call is carried out.

pub mod files;

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// What a call is for, as rules read it in `intent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Show the names in a directory of the workspace.
    ListFiles,
    /// Read a file of the workspace.
    ReadFile,
    /// Write a file of the workspace.
    WriteFile,
}

impl Intent {
    /// Whether such a call only looks; those are counted against higher thresholds.
    #[must_use]
    pub const fn reads(self) -> bool {
        match self {
            Self::ListFiles | Self::ReadFile => true,
            Self::WriteFile => false,
        }
    }

    /// The word a rule compares with.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
        }
    }
}

/// A tool as it is offered to a Bot.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// The name a Bot calls it by.
    pub name: String,
    /// What it does, for the Bot.
    pub description: String,
    /// JSON schema of its arguments.
    pub parameters: Value,
    /// What its calls are for.
    pub intent: Intent,
}

/// The names of all arguments that `tools` take: a rule that reads another one would never match.
#[must_use]
pub fn argument_names(tools: &[ToolDefinition]) -> BTreeSet<String> {
    let properties = tools.iter().filter_map(|tool| tool.parameters["properties"].as_object());
    properties.flat_map(|members| members.keys().cloned()).collect()
}

/// What a call is about, as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file or directory of the Bot's workspace.
    File(FileTarget),
}

/// A path in the workspace. It is text: whether anything is there is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTarget {
    /// `file.path`: relative to the workspace, `/` between the parts, without `./`; the workspace itself is `.`.
    pub path: String,
    /// `file.name`: the last part, empty for the workspace itself.
    pub name: String,
    /// `file.extension`: what follows the name's last dot, without the dot; empty for `.env` and `Makefile`.
    pub extension: String,
}

/// What the Bot is told when a call has been carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether the tool did what it was asked.
    pub ok: bool,
    /// JSON text for the Bot: an object whose `ok` says the same, with an `error` sentence where it is false.
    pub text: String,
}

impl ToolResult {
    /// The tool did it; `members` is a JSON object.
    #[must_use]
    pub fn done(members: Value) -> Self {
        let mut answer = json!({ "ok": true });
        if let (Value::Object(answer), Value::Object(members)) = (&mut answer, members) {
            answer.extend(members);
        }
        Self { ok: true, text: answer.to_string() }
    }

    /// The tool did not do it, and why.
    #[must_use]
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self { ok: false, text: json!({ "ok": false, "error": sentence.into() }).to_string() }
    }
}
