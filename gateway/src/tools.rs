//! The tools a Bot may be granted, and what carries them out.
//!
//! A tool family says three things: the [`ToolDefinition`]s it offers, the [`Target`] a call is about (before anything
//! acts, so that the boundary can judge it), and how a call is carried out.

pub mod command;
pub mod files;
pub mod mcp;

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
    /// Run a command in the workspace.
    RunCommand,
    /// Use a tool of an MCP server that only reads.
    ReadTool,
    /// Use a tool of an MCP server that may write.
    WriteTool,
}

impl Intent {
    /// Whether such a call only looks; those are counted against higher thresholds.
    #[must_use]
    pub const fn reads(self) -> bool {
        match self {
            Self::ListFiles | Self::ReadFile | Self::ReadTool => true,
            Self::WriteFile | Self::RunCommand | Self::WriteTool => false,
        }
    }

    /// The word a rule compares with.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::RunCommand => "run_command",
            Self::ReadTool => "read_tool",
            Self::WriteTool => "write_tool",
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
    /// A command: `command`.
    Command(String),
    /// A tool of an MCP server: `mcp.server`, `mcp.tool`. The arguments make the call what it is.
    Mcp {
        /// The server's name.
        server: String,
        /// The tool's name there.
        tool: String,
    },
}

/// The tools this binary has, whether the deployment has turned them on or not.
#[must_use]
pub fn built_in() -> Vec<ToolDefinition> {
    let mut tools = files::definitions();
    tools.push(command::definition());
    tools
}

/// What a Bot can be granted of what this binary has: names, and what they are for.
#[must_use]
pub fn grants() -> Vec<(String, String)> {
    let mut grants: Vec<_> = built_in().into_iter().map(|tool| (tool.name, tool.description)).collect();
    let unattended = "Runs a shell command while nobody is watching, too.".to_owned();
    grants.push((command::RUN_COMMAND_UNATTENDED.to_owned(), unattended));
    grants
}

/// Whether a Bot with these grants may use a tool. Commands need a grant of their own where nobody is watching.
#[must_use]
pub fn granted(grants: &BTreeSet<String>, tool: &str, unattended: bool) -> bool {
    match tool {
        command::RUN_COMMAND if unattended => grants.contains(command::RUN_COMMAND_UNATTENDED),
        command::RUN_COMMAND => grants.contains(tool) || grants.contains(command::RUN_COMMAND_UNATTENDED),
        _ => grants.contains(tool),
    }
}

/// What a call is about, from its arguments alone: nothing is opened.
///
/// # Errors
/// The sentence says which argument is wrong, is missing or is not known.
pub fn target(tool: &str, arguments: &Value) -> Result<Target, String> {
    match (tool, mcp::parts(tool)) {
        (_, Some(_)) if !arguments.is_object() => Err(format!("The arguments of {tool} must be a JSON object.")),
        (_, Some((server, name))) => Ok(Target::Mcp { server: server.to_owned(), tool: name.to_owned() }),
        (command::RUN_COMMAND, None) => command::target(arguments),
        (_, None) => files::target(tool, arguments),
    }
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
        Self::failed_with(sentence, Value::Null)
    }

    /// The same, with more for the Bot; `members` is a JSON object.
    #[must_use]
    pub fn failed_with(sentence: impl Into<String>, members: Value) -> Self {
        let mut answer = json!({ "ok": false, "error": sentence.into() });
        if let (Value::Object(answer), Value::Object(members)) = (&mut answer, members) {
            answer.extend(members);
        }
        Self { ok: false, text: answer.to_string() }
    }
}
