//! The files tools: a workspace per Bot that no path, link or race leaves.
//!
//! Rules judge the path as it is written, so what is written must be what is opened: a symbolic link is not followed,
//! not even one that stays inside, and every part is opened from its parent's handle, so that nothing can be swapped
//! between the look and the act.

mod path;
mod workspace;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{FileTarget, Intent, Target, ToolDefinition};
use path::WorkspacePath;
pub use workspace::Workspace;

/// Shows the names in a directory.
pub const LIST_FILES: &str = "computer_list_files";
/// Reads a text file.
pub const READ_FILE: &str = "computer_read_file";
/// Writes or extends a file.
pub const WRITE_FILE: &str = "computer_write_file";

/// At most this many bytes of a file are shown; the answer says when it was cut.
pub const MAX_READ_BYTES: usize = 1024 * 1024;
/// At most this many bytes are written by one call; more goes in with `append`.
pub const MAX_WRITE_BYTES: usize = 1024 * 1024;
/// At most this many names are shown; the answer says when the list was cut.
pub const MAX_ENTRIES: usize = 1_000;

/// A call whose arguments are right.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    List { path: WorkspacePath },
    Read { path: WorkspacePath },
    Write { path: WorkspacePath, contents: String, append: bool },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    #[serde(default = "workspace_itself")]
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    path: String,
    contents: String,
    #[serde(default)]
    append: bool,
}

fn workspace_itself() -> String {
    ".".to_owned()
}

impl Call {
    /// Reads a call. The sentence is for the Bot, which may try again with other arguments.
    fn parse(tool: &str, arguments: &Value) -> Result<Self, String> {
        if !arguments.is_object() {
            return Err(format!("The arguments of {tool} must be a JSON object."));
        }
        match tool {
            LIST_FILES => {
                let list: ListArguments = read(tool, arguments)?;
                Ok(Self::List { path: WorkspacePath::parse(&list.path)? })
            }
            READ_FILE => {
                let read: ReadArguments = read(tool, arguments)?;
                Ok(Self::Read { path: WorkspacePath::parse_file(&read.path)? })
            }
            WRITE_FILE => {
                let write: WriteArguments = read(tool, arguments)?;
                if write.contents.len() > MAX_WRITE_BYTES {
                    let size = write.contents.len();
                    return Err(format!(
                        "The contents have {size} bytes; one call writes at most {MAX_WRITE_BYTES}. Write the first \
                         part, then the rest with append."
                    ));
                }
                Ok(Self::Write {
                    path: WorkspacePath::parse_file(&write.path)?,
                    contents: write.contents,
                    append: write.append,
                })
            }
            _ => Err(format!("There is no files tool named {tool}.")),
        }
    }

    const fn path(&self) -> &WorkspacePath {
        match self {
            Self::List { path } | Self::Read { path } | Self::Write { path, .. } => path,
        }
    }
}

fn read<T: for<'de> Deserialize<'de>>(tool: &str, arguments: &Value) -> Result<T, String> {
    T::deserialize(arguments).map_err(|error| format!("The arguments of {tool} are not right: {error}."))
}

/// What a call is about, from its arguments alone: nothing is opened.
///
/// # Errors
/// The sentence says which argument is wrong, is missing or is not known.
pub fn target(tool: &str, arguments: &Value) -> Result<Target, String> {
    let call = Call::parse(tool, arguments)?;
    let path = call.path();
    Ok(Target::File(FileTarget { path: path.text(), name: path.name().to_owned(), extension: path.extension() }))
}

/// The three files tools.
#[must_use]
pub fn definitions() -> Vec<ToolDefinition> {
    let path = |description: &str| json!({ "type": "string", "description": description });
    let tool = |name: &str, description: &str, properties: Value, required: Value, intent| ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }),
        intent,
    };
    vec![
        tool(
            LIST_FILES,
            "Lists a directory of your workspace: names with type and size, sorted, at most 1,000.",
            json!({ "path": { "type": "string", "default": ".", "description": "Directory, relative to the workspace." } }),
            json!([]),
            Intent::ListFiles,
        ),
        tool(
            READ_FILE,
            "Reads a text file (UTF-8) of your workspace, at most its first 1,048,576 bytes.",
            json!({ "path": path("File, relative to the workspace.") }),
            json!(["path"]),
            Intent::ReadFile,
        ),
        tool(
            WRITE_FILE,
            "Writes a text file of your workspace, and the directories it needs. Replaces the whole file, or adds to \
             its end with append. At most 1,048,576 bytes a call.",
            json!({
                "path": path("File, relative to the workspace."),
                "contents": { "type": "string" },
                "append": { "type": "boolean", "default": false, "description": "Add to the end instead of replacing." },
            }),
            json!(["path", "contents"]),
            Intent::WriteFile,
        ),
    ]
}

#[cfg(test)]
mod tests;
