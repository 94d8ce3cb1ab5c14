//! What a call is about: the tool, the target, the fingerprint, and the arguments as they are recorded.

use midwatch_boundary::Context;
use midwatch_engine::secrets::Secrets;
use midwatch_events::{key::Digest, run::RefusalCause};
use serde_json::{Map, Value};

use crate::{
    canonical::canonical,
    redact::{redact, redact_text},
    tools::{Target, ToolDefinition, command, target},
};

/// Longer text in recorded arguments is replaced by its length and keyed digest, in bytes. Rules see the same.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// Longer recorded arguments are replaced as a whole, in bytes: they stand in an event twice, and it has a limit.
pub const ARGUMENTS_BYTES_MAX: usize = 20_480;

/// A call that was looked at, and not judged yet.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What the call is for; empty for a tool that does not exist.
    pub intent: &'static str,
    /// Whether it only looks.
    pub read: bool,
    /// The target's part of what rules can read, and the arguments.
    pub context: Context,
    /// The arguments as they are recorded.
    pub recorded: Value,
    /// What makes two calls the same call.
    pub fingerprint: Digest,
    /// The same for people.
    pub readable: String,
    /// The tool as the Bot is offered it, in words; none where there is no such tool.
    pub definition: Option<String>,
    /// Why it can be refused before any rule is asked.
    pub refusal: Option<(RefusalCause, String)>,
}

/// Looks at a call. `granted` says whether the Bot may use the tool at all.
#[must_use]
pub fn resolve(
    tools: &[ToolDefinition],
    secrets: &Secrets,
    tool: &str,
    arguments: &Result<Value, String>,
    granted: bool,
) -> Resolved {
    let value = arguments.as_ref().cloned().unwrap_or(Value::Null);
    let recorded = recorded(&value, secrets);
    let definition = tools.iter().find(|known| known.name == tool);
    let mut context = Context { tool_name: named(tool), ..Context::default() };
    if let Value::Object(members) = &recorded {
        context.args.clone_from(members);
    }
    let same = canonical(&value);
    let mut resolved = Resolved {
        intent: definition.map_or("", |known| known.intent.as_str()),
        read: definition.is_some_and(|known| known.intent.reads()),
        context,
        recorded,
        fingerprint: secrets.fingerprint(&[tool.as_bytes(), same.as_bytes()]),
        readable: named(tool),
        definition: definition.map(|known| format!("{}\n{}", known.description, canonical(&known.parameters))),
        refusal: None,
    };
    resolved.context.intent = resolved.intent.to_owned();
    if definition.is_none() {
        let known: Vec<_> = tools.iter().map(|known| known.name.as_str()).collect();
        let sentence = format!("there is no tool `{}`; there are {}", cut(tool), known.join(", "));
        resolved.refusal = Some((RefusalCause::UnknownTool, sentence));
        return resolved;
    }
    if !granted {
        let sentence = match tool {
            command::RUN_COMMAND => {
                let grant = command::RUN_COMMAND_UNATTENDED;
                format!("this Bot is not granted {tool} while nobody is watching; an admin can grant {grant}")
            }
            _ => format!("this Bot is not granted {tool}; an admin can grant it"),
        };
        resolved.refusal = Some((RefusalCause::NotGranted, sentence));
    }
    let target = arguments.as_ref().map_err(Clone::clone).and_then(|arguments| target(tool, arguments));
    match target {
        Ok(Target::File(file)) => {
            resolved.fingerprint = secrets.fingerprint(&[tool.as_bytes(), b"file", file.path.as_bytes()]);
            resolved.readable = format!("{tool} {}", cut(&redact_text(&file.path)));
            // Rules see what is recorded: a name can hold a secret too.
            resolved.context.file_path = redact_text(&file.path);
            resolved.context.file_name = redact_text(&file.name);
            resolved.context.file_extension = redact_text(&file.extension);
        }
        Ok(Target::Command(command)) => {
            resolved.fingerprint = secrets.fingerprint(&[tool.as_bytes(), b"command", command.as_bytes()]);
            let shown = redact_text(&command);
            resolved.readable = format!("{tool} {}", cut(&shown));
            resolved.context.command = shown;
        }
        Ok(Target::Mcp { server, tool: name }) => {
            // Server and tool are in the name, and everything else in the arguments: the fingerprint has both.
            resolved.context.mcp_effect = if resolved.read { "read" } else { "write" }.to_owned();
            resolved.readable = format!("{} {}", named(tool), cut(&redact_text(&resolved.recorded.to_string())));
            (resolved.context.mcp_server, resolved.context.mcp_tool) = (server, name);
        }
        Err(sentence) => {
            resolved.refusal.get_or_insert((RefusalCause::BadArguments, sentence));
        }
    }
    resolved
}

/// Looks at a call of a tool that is the Bot's own. What it does is not known here, so it counts as one that writes.
#[must_use]
pub fn of_the_bot(secrets: &Secrets, tool: &str, arguments: &Result<Value, String>) -> Resolved {
    let mut resolved = resolve(&[], secrets, tool, arguments, true);
    resolved.intent = "write_tool";
    resolved.context.intent = resolved.intent.to_owned();
    resolved.refusal = arguments.as_ref().err().map(|sentence| (RefusalCause::BadArguments, sentence.clone()));
    resolved
}

/// Arguments as they are recorded and as rules see them: secrets redacted, long text as length and keyed digest.
fn recorded(arguments: &Value, secrets: &Secrets) -> Value {
    let shortened = shorten(&redact(arguments), secrets);
    let bytes = shortened.to_string().len();
    if bytes <= ARGUMENTS_BYTES_MAX {
        return shortened;
    }
    let mut cut = Map::new();
    cut.insert("[cut]".to_owned(), Value::String(digested(&arguments.to_string(), secrets)));
    Value::Object(cut)
}

fn shorten(value: &Value, secrets: &Secrets) -> Value {
    match value {
        Value::String(text) if text.len() > TEXT_BYTES_MAX => Value::String(digested(text, secrets)),
        Value::Array(items) => items.iter().map(|item| shorten(item, secrets)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), shorten(member, secrets))).collect()
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn digested(text: &str, secrets: &Secrets) -> String {
    format!("[{} bytes, {}]", text.len(), secrets.digest(text.as_bytes()))
}

/// A tool's name as it may stand in a record: one that does not exist can be any text, a secret too.
fn named(tool: &str) -> String {
    cut(&redact_text(tool))
}

/// A name or path as it may stand in a record: it came from a model and can be anything.
fn cut(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::files;
    use serde_json::json;

    fn look(tool: &str, arguments: Value) -> Resolved {
        resolve(&files::definitions(), &Secrets::derive(&[1; 32]), tool, &Ok(arguments), true)
    }

    #[test]
    fn what_is_written_is_no_part_of_what_makes_calls_the_same() {
        let one = look("computer_write_file", json!({"path": "./a/b.txt", "contents": "one"}));
        let two = look("computer_write_file", json!({"path": "a/b.txt", "contents": "two", "append": true}));
        assert_eq!(one.fingerprint, two.fingerprint);
        assert_eq!(one.readable, "computer_write_file a/b.txt");
        assert_ne!(one.fingerprint, look("computer_read_file", json!({"path": "a/b.txt"})).fingerprint);
    }

    #[test]
    fn long_text_is_recorded_as_length_and_digest() {
        let call = look("computer_write_file", json!({"path": "a", "contents": "x".repeat(TEXT_BYTES_MAX + 1)}));
        let contents = call.recorded["contents"].as_str().unwrap();
        assert!(contents.starts_with("[4097 bytes, "), "{contents}");
        assert_eq!(call.context.args["contents"], contents);
    }

    #[test]
    fn what_cannot_work_is_refused_before_any_rule() {
        let refusal = |call: Resolved| call.refusal.map(|(cause, _)| cause);
        assert_eq!(refusal(look("rm", json!({}))), Some(RefusalCause::UnknownTool));
        assert_eq!(refusal(look("computer_read_file", json!({}))), Some(RefusalCause::BadArguments));
        assert_eq!(refusal(look("computer_read_file", json!({"path": "a"}))), None);
        let tools = files::definitions();
        let arguments = Ok(json!({"path": "a"}));
        let call = resolve(&tools, &Secrets::derive(&[1; 32]), "computer_read_file", &arguments, false);
        assert_eq!(refusal(call), Some(RefusalCause::NotGranted));
    }
}
