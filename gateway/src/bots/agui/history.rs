//! The messages a Bot is sent: all of them, each time.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// What is left of a result that is cut, in characters.
const CUT_CHARS: usize = 200;

/// One message, as it is on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Message {
    /// What the Bot is asked or told.
    User {
        /// Any string, its own in this history.
        id: String,
        /// The text.
        content: String,
    },
    /// What the Bot said, and the calls it made there.
    Assistant {
        /// The Bot's own name for it.
        id: String,
        /// The text, often empty beside calls.
        #[serde(default)]
        content: String,
        /// The calls, in the order they were started.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// Something the Bot wants back unread.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        encrypted_value: Option<String>,
    },
    /// What the Bot thought. Some models refuse to go on without it.
    Reasoning {
        /// The Bot's own name for it.
        id: String,
        /// The text.
        content: String,
        /// Something the Bot wants back unread.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        encrypted_value: Option<String>,
    },
    /// The answer to one call.
    Tool {
        /// Any string, its own in this history.
        id: String,
        /// The call it answers.
        tool_call_id: String,
        /// The result, for the Bot.
        content: String,
        /// Why the call failed, or was refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Something the Bot wants back unread.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        encrypted_value: Option<String>,
    },
}

impl Message {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::User { id, .. } | Self::Assistant { id, .. } | Self::Reasoning { id, .. } | Self::Tool { id, .. } => {
                id
            }
        }
    }

    /// The calls made in it.
    #[must_use]
    pub fn tool_calls(&self) -> &[ToolCall] {
        match self {
            Self::Assistant { tool_calls, .. } => tool_calls,
            Self::User { .. } | Self::Reasoning { .. } | Self::Tool { .. } => &[],
        }
    }

    /// The call it answers.
    pub(super) fn answers(&self) -> Option<&str> {
        match self {
            Self::Tool { tool_call_id, .. } => Some(tool_call_id),
            Self::User { .. } | Self::Assistant { .. } | Self::Reasoning { .. } => None,
        }
    }
}

/// One call a Bot made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WireCall", into = "WireCall")]
pub struct ToolCall {
    /// The Bot's own name for it: any string.
    pub id: String,
    /// The tool, which need not be one that was offered.
    pub name: String,
    /// The arguments as they were sent: text that need not be JSON.
    pub arguments: String,
    /// Something the Bot wants back unread.
    pub encrypted_value: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCall {
    id: String,
    #[serde(rename = "type", default)]
    kind: FunctionKind,
    function: WireFunction,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encrypted_value: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum FunctionKind {
    #[default]
    Function,
}

#[derive(Serialize, Deserialize)]
struct WireFunction {
    name: String,
    arguments: String,
}

impl From<WireCall> for ToolCall {
    fn from(wire: WireCall) -> Self {
        let WireFunction { name, arguments } = wire.function;
        Self { id: wire.id, name, arguments, encrypted_value: wire.encrypted_value }
    }
}

impl From<ToolCall> for WireCall {
    fn from(call: ToolCall) -> Self {
        let function = WireFunction { name: call.name, arguments: call.arguments };
        Self { id: call.id, kind: FunctionKind::Function, function, encrypted_value: call.encrypted_value }
    }
}

/// The complete conversation so far. The next run carries all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History {
    messages: Vec<Message>,
}

impl History {
    /// Nothing said yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { messages: Vec::new() }
    }

    /// All messages, oldest first.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Tells or asks the Bot something.
    pub fn say(&mut self, content: impl Into<String>) {
        let id = self.free_id("user");
        self.messages.push(Message::User { id, content: content.into() });
    }

    /// Takes in what a run produced. Answers to calls of an earlier run are put where they belong.
    pub fn extend(&mut self, produced: &[Message]) {
        for message in produced {
            match message {
                Message::Tool { tool_call_id, .. } => {
                    self.insert_answer(tool_call_id, message.clone());
                }
                _ => self.messages.push(self.under_a_free_id(message.clone())),
            }
        }
    }

    /// Answers a call, right behind the message that made it and the answers already there. `error` says why it failed
    /// or was refused.
    ///
    /// Returns whether there was such a call without an answer; otherwise nothing is changed.
    pub fn answer(&mut self, call: &str, content: impl Into<String>, error: Option<String>) -> bool {
        let message = Message::Tool {
            id: self.free_id("tool"),
            tool_call_id: call.to_owned(),
            content: content.into(),
            error,
            encrypted_value: None,
        };
        self.insert_answer(call, message)
    }

    /// The last call of that name.
    #[must_use]
    pub fn call(&self, id: &str) -> Option<&ToolCall> {
        self.messages.iter().rev().flat_map(Message::tool_calls).find(|call| call.id == id)
    }

    /// Calls without an answer. A run must not be started before each has one.
    #[must_use]
    pub fn unanswered(&self) -> Vec<&ToolCall> {
        let calls = self.messages.iter().enumerate().flat_map(|(at, m)| m.tool_calls().iter().map(move |c| (at, c)));
        calls.filter(|(at, call)| !self.is_answered(*at, &call.id)).map(|(_, call)| call).collect()
    }

    /// The same conversation in at most about `limit` bytes, as it is sent: while it is longer, the oldest results of
    /// tools are cut first, and each says that it was. What was said, thought and called is never cut.
    #[must_use]
    pub fn fitted(&self, limit: usize) -> Cow<'_, Self> {
        let mut bytes = self.to_json().map_or(0, |text| text.len());
        if bytes <= limit {
            return Cow::Borrowed(self);
        }
        let mut fitted = self.clone();
        for message in &mut fitted.messages {
            if let Message::Tool { content, .. } = message
                && content.len() > CUT_CHARS * 4
            {
                let whole = content.len();
                let start: String = content.chars().take(CUT_CHARS).collect();
                *content = format!("{start}\n[cut: this result had {whole} bytes; the conversation became too long]");
                bytes -= whole - content.len();
            }
            if bytes <= limit {
                break;
            }
        }
        Cow::Owned(fitted)
    }

    /// As JSON text: an array of messages, the same bytes for the same messages.
    ///
    /// # Errors
    /// Never for a history made here; the codec's error is handed on.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// From the JSON text of [`History::to_json`].
    ///
    /// # Errors
    /// The text is not such an array.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// A Bot may use a call's name again in a later run, so it is the last call of that name that is answered.
    fn insert_answer(&mut self, call: &str, answer: Message) -> bool {
        let Some(made) = self.messages.iter().rposition(|m| m.tool_calls().iter().any(|c| c.id == call)) else {
            return false;
        };
        if self.is_answered(made, call) {
            return false;
        }
        let behind = self.answers_behind(made).count();
        let answer = self.under_a_free_id(answer);
        self.messages.insert(made + 1 + behind, answer);
        true
    }

    fn is_answered(&self, made: usize, call: &str) -> bool {
        self.answers_behind(made).any(|answered| answered == call)
    }

    /// The calls that the messages right behind this one answer.
    fn answers_behind(&self, made: usize) -> impl Iterator<Item = &str> {
        self.messages[made + 1..].iter().map_while(Message::answers)
    }

    /// A Bot that uses a name twice must not make two messages one.
    fn under_a_free_id(&self, mut message: Message) -> Message {
        let free = self.free_id_like(message.id());
        match &mut message {
            Message::User { id, .. }
            | Message::Assistant { id, .. }
            | Message::Reasoning { id, .. }
            | Message::Tool { id, .. } => *id = free,
        }
        message
    }

    fn free_id_like(&self, id: &str) -> String {
        if self.messages.iter().all(|message| message.id() != id) { id.to_owned() } else { self.free_id(id) }
    }

    fn free_id(&self, kind: &str) -> String {
        let mut n = self.messages.len();
        loop {
            let id = format!("{kind}-{n}");
            if self.messages.iter().all(|message| message.id() != id) {
                return id;
            }
            n += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "read_orders".into(), arguments: "{bad".into(), encrypted_value: None }
    }

    fn assistant(id: &str, content: &str, calls: Vec<ToolCall>) -> Message {
        Message::Assistant { id: id.into(), content: content.into(), tool_calls: calls, encrypted_value: None }
    }

    #[test]
    fn it_is_written_as_the_protocol_says_and_read_back() {
        let mut history = History::new();
        history.say("go");
        history.extend(&[assistant("m", "Let me look.", vec![call("a"), call("b")])]);
        assert!(history.answer("b", "declined by Ana", Some("refused".into())));
        assert!(history.answer("a", "3", None));
        let expected = json!([
            { "role": "user", "id": "user-0", "content": "go" },
            { "role": "assistant", "id": "m", "content": "Let me look.", "toolCalls": [
                { "id": "a", "type": "function", "function": { "name": "read_orders", "arguments": "{bad" } },
                { "id": "b", "type": "function", "function": { "name": "read_orders", "arguments": "{bad" } },
            ] },
            { "role": "tool", "id": "tool-2", "toolCallId": "b", "content": "declined by Ana", "error": "refused" },
            { "role": "tool", "id": "tool-3", "toolCallId": "a", "content": "3" },
        ]);
        let text = history.to_json().unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
        assert_eq!(History::from_json(&text).unwrap(), history);
    }

    #[test]
    fn answers_stand_right_behind_their_message_and_once() {
        let mut history = History::new();
        history.extend(&[assistant("one", "", vec![call("a")]), assistant("two", "", vec![call("b")])]);
        assert_eq!(history.unanswered(), [&call("a"), &call("b")]);
        assert!(history.answer("b", "B", None));
        assert!(history.answer("a", "A", None));
        assert!(!history.answer("a", "again", None));
        assert!(!history.answer("never made", "x", None));
        let order: Vec<_> = history.messages().iter().map(|m| m.answers().unwrap_or(m.id())).collect();
        assert_eq!(order, ["one", "a", "two", "b"]);
        assert!(history.unanswered().is_empty());
    }

    #[test]
    fn a_calls_name_used_again_in_a_later_run_is_another_call() {
        let mut history = History::new();
        history.extend(&[assistant("one", "", vec![call("a")])]);
        assert!(history.answer("a", "A", None));
        history.extend(&[assistant("two", "", vec![call("a")])]);
        assert_eq!(history.unanswered().len(), 1);
        assert!(history.answer("a", "A again", None));
        assert!(history.unanswered().is_empty());
        assert_eq!(history.messages()[3].answers(), Some("a"));
    }

    #[test]
    fn the_oldest_results_are_cut_first_and_say_so() {
        let mut history = History::new();
        history.say("w".repeat(5_000));
        for name in ["a", "b", "c"] {
            history.extend(&[assistant(&format!("m-{name}"), "", vec![call(name)])]);
            assert!(history.answer(name, "r".repeat(10_000), None));
        }
        assert_eq!(*history.fitted(100_000), history);
        let fitted = history.fitted(27_000);
        let results = fitted.messages().iter().filter_map(|message| match message {
            Message::Tool { content, .. } => Some(content.as_str()),
            _ => None,
        });
        let results: Vec<_> = results.collect();
        assert!(results[0].ends_with("[cut: this result had 10000 bytes; the conversation became too long]"));
        assert_eq!((results[1].len(), results[2].len()), (10_000, 10_000));
        assert!(fitted.to_json().unwrap().len() <= 27_000);
        // What was said stays, whatever the limit.
        assert!(history.fitted(10).to_json().unwrap().contains(&"w".repeat(5_000)));
    }

    #[test]
    fn a_name_used_twice_makes_two_messages() {
        let mut history = History::new();
        history.extend(&[assistant("m", "first", vec![])]);
        history.extend(&[assistant("m", "second", vec![])]);
        assert_eq!(history.messages()[1], assistant("m-1", "second", vec![]));
    }
}
