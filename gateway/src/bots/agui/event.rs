//! The events of a run, as far as we read them: text, reasoning, calls, results, snapshots of messages, how it ends.
//!
//! Members we do not read are not checked, and neither are events we do not read.

use json_patch::Patch;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use super::history::Message;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    RunStarted,
    RunFinished(RunFinished),
    RunError(RunError),
    Start(Item),
    Content {
        kind: Kind,
        id: String,
        delta: String,
    },
    End {
        kind: Kind,
        id: String,
    },
    Chunk(Chunk),
    Result(ToolResult),
    Snapshot(Vec<Message>),
    Encrypted(Encrypted),
    /// The Bot's own state, whole.
    State(Value),
    /// What of it changes, as RFC 6902 says; what cannot be read as that is no change.
    StateDelta(Option<Patch>),
    /// An agent that the Bot has sent off, and how it fared.
    Subagent(Subagent),
    /// One we do not read, but which ends a stream of chunks: a step, a custom event.
    ClosesChunk,
    /// One we do not read, or do not know.
    Other,
}

/// What is streamed in pieces. Each kind has names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Text,
    Reasoning,
    Call,
}

/// What a START, or the first CHUNK, says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Text { id: String, role: Role },
    Reasoning { id: String },
    Call { id: String, name: String, parent: Option<String> },
}

/// A CHUNK: what it does not say is as in the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) kind: Kind,
    pub(super) id: Option<String>,
    pub(super) role: Option<Role>,
    pub(super) name: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) delta: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    #[default]
    Assistant,
    Developer,
    System,
    User,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct RunFinished {
    #[serde(default, deserialize_with = "outcome")]
    pub(super) outcome: Outcome,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(super) usage: Vec<Usage>,
}

/// How a run ended. None, and one of a later protocol, count as a success.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Outcome {
    #[default]
    Success,
    Interrupt(Vec<Interrupt>),
    Cancelled,
}

/// Something a Bot wants to know before it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interrupt {
    /// The Bot's name for it.
    pub id: String,
    /// Why: `tool_call`, `input_required`, `confirmation` or a framework's own word.
    pub reason: String,
    /// The question, for a person.
    #[serde(default)]
    pub message: Option<String>,
    /// The call it is about.
    #[serde(default)]
    pub tool_call_id: Option<String>,
    /// JSON schema of the answer it can use.
    #[serde(default)]
    pub response_schema: Option<Value>,
}

impl Interrupt {
    /// Whether a yes or a no answers it. Anything else would have to be written by a person.
    #[must_use]
    pub fn is_yes_or_no(&self) -> bool {
        let asked = self.response_schema.as_ref().map(|schema| &schema["properties"]["approved"]);
        match asked {
            Some(approved) => approved.is_object(),
            None => matches!(self.reason.as_str(), "tool_call" | "confirmation"),
        }
    }
}

/// Something that became of an agent the Bot has sent off: recorded, and never sent back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subagent {
    /// The event: `SUBAGENT_STARTED`, `SUBAGENT_FINISHED` or `SUBAGENT_ERROR`.
    #[serde(rename = "type")]
    pub event: String,
    /// The Bot's name for its run.
    pub subagent_run_id: String,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The call that sent it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Value>,
}

/// What one model took, as the Bot says. Cached and reasoning tokens are parts of the totals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Who serves the model.
    #[serde(default)]
    pub provider: Option<String>,
    /// The model.
    #[serde(default)]
    pub model: Option<String>,
    /// Tokens read.
    #[serde(default)]
    pub input_tokens: Option<u64>,
    /// Tokens written.
    #[serde(default)]
    pub output_tokens: Option<u64>,
    /// Both.
    #[serde(default)]
    pub total_tokens: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct RunError {
    pub(super) message: String,
    #[serde(default)]
    pub(super) code: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(super) usage: Vec<Usage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolResult {
    pub(super) message_id: String,
    pub(super) tool_call_id: String,
    #[serde(deserialize_with = "text_of_parts")]
    pub(super) content: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Encrypted {
    pub(super) subtype: String,
    pub(super) entity_id: String,
    pub(super) encrypted_value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TextStart {
    message_id: String,
    #[serde(default)]
    role: Option<Role>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageNamed {
    message_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageContent {
    message_id: String,
    delta: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageChunk {
    message_id: Option<String>,
    role: Option<Role>,
    delta: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningChunk {
    message_id: Option<String>,
    delta: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallStart {
    tool_call_id: String,
    tool_call_name: String,
    parent_message_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallNamed {
    tool_call_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallContent {
    tool_call_id: String,
    delta: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallChunk {
    tool_call_id: Option<String>,
    tool_call_name: Option<String>,
    parent_message_id: Option<String>,
    delta: Option<String>,
}

#[derive(Deserialize)]
struct Snapshot {
    messages: Vec<Value>,
}

#[derive(Deserialize)]
struct StateSnapshot {
    snapshot: Value,
}

#[derive(Deserialize)]
struct StateDelta {
    delta: Vec<Value>,
}

/// Reads one event.
///
/// # Errors
/// A sentence: it is not one JSON object with a type, or an event we read lacks something or has it wrong.
pub(super) fn parse(data: &str) -> Result<Event, String> {
    #[derive(Deserialize)]
    struct Typed {
        r#type: String,
    }
    let typed: Typed =
        serde_json::from_str(data).map_err(|error| format!("sent something that is no event: {error}"))?;
    let name = typed.r#type.as_str();
    Ok(match name {
        "RUN_STARTED" => Event::RunStarted,
        "RUN_FINISHED" => Event::RunFinished(read(name, data)?),
        "RUN_ERROR" => Event::RunError(read(name, data)?),
        "TOOL_CALL_RESULT" => Event::Result(read(name, data)?),
        "MESSAGES_SNAPSHOT" => snapshot(&read(name, data)?),
        "REASONING_ENCRYPTED_VALUE" => Event::Encrypted(read(name, data)?),
        "RAW" | "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" => Event::Other,
        "STATE_SNAPSHOT" => Event::State(read::<StateSnapshot>(name, data)?.snapshot),
        "STATE_DELTA" => {
            let StateDelta { delta } = read(name, data)?;
            Event::StateDelta(serde_json::from_value(Value::Array(delta)).ok())
        }
        "SUBAGENT_STARTED" | "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => Event::Subagent(read(name, data)?),
        "STEP_STARTED" | "STEP_FINISHED" | "CUSTOM" | "REASONING_START" | "REASONING_END" => Event::ClosesChunk,
        _ => streamed(name, data)?,
    })
}

/// The events that bring something piece by piece.
fn streamed(name: &str, data: &str) -> Result<Event, String> {
    Ok(match name {
        "TEXT_MESSAGE_START" => {
            let start: TextStart = read(name, data)?;
            Event::Start(Item::Text { id: start.message_id, role: start.role.unwrap_or_default() })
        }
        "REASONING_MESSAGE_START" => {
            let start: MessageNamed = read(name, data)?;
            Event::Start(Item::Reasoning { id: start.message_id })
        }
        "TOOL_CALL_START" => {
            let start: CallStart = read(name, data)?;
            let parent = start.parent_message_id;
            Event::Start(Item::Call { id: start.tool_call_id, name: start.tool_call_name, parent })
        }
        "TEXT_MESSAGE_CONTENT" => content(Kind::Text, read(name, data)?),
        "REASONING_MESSAGE_CONTENT" => content(Kind::Reasoning, read(name, data)?),
        "TOOL_CALL_ARGS" => {
            let arguments: CallContent = read(name, data)?;
            Event::Content { kind: Kind::Call, id: arguments.tool_call_id, delta: arguments.delta }
        }
        "TEXT_MESSAGE_END" => end(Kind::Text, read(name, data)?),
        "REASONING_MESSAGE_END" => end(Kind::Reasoning, read(name, data)?),
        "TOOL_CALL_END" => {
            let end: CallNamed = read(name, data)?;
            Event::End { kind: Kind::Call, id: end.tool_call_id }
        }
        "TEXT_MESSAGE_CHUNK" => {
            let MessageChunk { message_id: id, role, delta } = read(name, data)?;
            Event::Chunk(Chunk { kind: Kind::Text, id, role, name: None, parent: None, delta })
        }
        "REASONING_MESSAGE_CHUNK" => {
            let ReasoningChunk { message_id: id, delta } = read(name, data)?;
            Event::Chunk(Chunk { kind: Kind::Reasoning, id, role: None, name: None, parent: None, delta })
        }
        "TOOL_CALL_CHUNK" => {
            let CallChunk { tool_call_id: id, tool_call_name: name, parent_message_id: parent, delta } =
                read(name, data)?;
            Event::Chunk(Chunk { kind: Kind::Call, id, role: None, name, parent, delta })
        }
        _ => Event::Other,
    })
}

fn read<T: DeserializeOwned>(name: &str, data: &str) -> Result<T, String> {
    serde_json::from_str(data).map_err(|error| format!("sent a malformed {name}: {error}"))
}

fn content(kind: Kind, MessageContent { message_id: id, delta }: MessageContent) -> Event {
    Event::Content { kind, id, delta }
}

fn end(kind: Kind, MessageNamed { message_id: id }: MessageNamed) -> Event {
    Event::End { kind, id }
}

/// The messages of a snapshot that we can send back; activity, multimodal input and what else there is stay out.
fn snapshot(snapshot: &Snapshot) -> Event {
    let messages = snapshot.messages.iter().map(|message| {
        let mut message = message.clone();
        // Older producers send null for what they do not have.
        if let Value::Object(members) = &mut message {
            members.retain(|_, value| !value.is_null());
        }
        if let Some(content) = message.get_mut("content") {
            *content = Value::String(as_text(content));
        }
        serde_json::from_value(message)
    });
    Event::Snapshot(messages.filter_map(Result::ok).collect())
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn outcome<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Outcome, D::Error> {
    use serde::de::Error;

    #[derive(Deserialize)]
    struct Interrupts {
        interrupts: Vec<Interrupt>,
    }
    let outcome = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(Outcome::Success),
        Value::Object(outcome) => outcome,
        _ => return Err(D::Error::custom("the outcome is no object")),
    };
    match outcome.get("type").and_then(Value::as_str) {
        Some("cancelled") => Ok(Outcome::Cancelled),
        Some("interrupt") => {
            let Interrupts { interrupts } = serde_json::from_value(Value::Object(outcome)).map_err(D::Error::custom)?;
            if interrupts.is_empty() {
                return Err(D::Error::custom("an interrupt without interrupts"));
            }
            Ok(Outcome::Interrupt(interrupts))
        }
        _ => Ok(Outcome::Success),
    }
}

/// Content is text or a list of parts; of the parts, the text is kept and the others are named.
fn text_of_parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        content @ (Value::String(_) | Value::Array(_)) => Ok(as_text(&content)),
        _ => Err(serde::de::Error::custom("content is neither text nor a list of parts")),
    }
}

fn as_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let parts = parts.iter().map(|part| match (part["type"].as_str(), part["text"].as_str()) {
                (Some("text"), Some(text)) => text.to_owned(),
                (kind, _) => format!("[{}]", kind.unwrap_or("part")),
            });
            parts.collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}
