//! Puts the messages of one run together from its events, and holds the Bot to the protocol's order.
//!
//! A call counts as made from its start on, and stays made whatever a later snapshot leaves out: every call must be
//! answered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Ending, Produced,
    event::{Chunk, Encrypted, Event, Item, Kind, Outcome, Role, RunError, Subagent, ToolResult, Usage},
    history::{History, Message, ToolCall},
    state::State,
};

/// More messages, calls and answers than this in one run are no conversation.
const MAX_ITEMS: usize = 1_000;

/// Why nothing more is read.
#[derive(Debug)]
pub(super) enum Stop {
    /// The Bot broke the protocol; a phrase that goes on after "The Bot".
    Violation(String),
    /// Nothing came for too long; the phrase goes on from "The Bot".
    Silent(String),
    /// The Bot said that it failed.
    Error(RunError),
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Waiting,
    Running,
    Finished(Ending),
}

/// A message, and the answers to the calls made in it.
#[derive(Debug)]
struct Entry {
    message: Message,
    answers: Vec<Message>,
    /// It is not the Bot's own words, or a snapshot left it out.
    hidden: bool,
}

#[derive(Debug)]
struct CallPlace {
    entry: usize,
    call: usize,
    answered: bool,
}

/// One run in the making.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    phase: Phase,
    entries: Vec<Entry>,
    /// Where a text or a reasoning message is, by its name.
    messages: BTreeMap<(Kind, String), usize>,
    calls: BTreeMap<String, CallPlace>,
    /// Where an answer is: the entry, and its place there.
    answers: BTreeMap<String, (usize, usize)>,
    open: BTreeSet<(Kind, String)>,
    /// What chunks without a name go on with. It is open too.
    chunk: Option<Item>,
    usage: Vec<Usage>,
    state: State,
    subagents: Vec<Subagent>,
    sent_messages: BTreeSet<String>,
    sent_calls: BTreeSet<String>,
    message_limit: usize,
}

impl Assembler {
    /// Begins a run that was sent `history` and `state`. No text, no arguments and no state may have more than
    /// `message_limit` bytes.
    pub(super) fn new(history: &History, state: &Value, message_limit: usize) -> Self {
        let messages = history.messages();
        Self {
            sent_messages: messages.iter().map(|message| message.id().to_owned()).collect(),
            sent_calls: messages.iter().flat_map(Message::tool_calls).map(|call| call.id.clone()).collect(),
            state: State::new(state.clone(), message_limit),
            message_limit,
            ..Self::default()
        }
    }

    /// Whether the Bot has said that the run is over.
    pub(super) const fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished(_))
    }

    /// Takes the next event.
    pub(super) fn take(&mut self, event: Event) -> Result<(), Stop> {
        match (&self.phase, event) {
            // A late error is an error: the Bot knows better than its earlier event.
            (_, Event::RunError(error)) => {
                self.usage.extend(error.usage.iter().cloned());
                Err(Stop::Error(error))
            }
            (_, Event::Other) => Ok(()),
            (Phase::Waiting, Event::RunStarted) => {
                self.phase = Phase::Running;
                Ok(())
            }
            (Phase::Waiting, _) => violation("sent an event before RUN_STARTED"),
            (Phase::Running, Event::RunStarted) => violation("started a run inside a run"),
            (Phase::Running, event) => {
                self.take_running(event)?;
                let items = self.entries.len() + self.calls.len() + self.answers.len() + self.subagents.len();
                if items > MAX_ITEMS {
                    return violation(format!("sent more than {MAX_ITEMS} messages and calls in one run"));
                }
                Ok(())
            }
            (Phase::Finished(_), Event::RunStarted) => violation("started a second run in one answer"),
            (Phase::Finished(_), _) => violation("sent an event after RUN_FINISHED"),
        }
    }

    fn take_running(&mut self, event: Event) -> Result<(), Stop> {
        if !matches!(event, Event::Chunk(_) | Event::Encrypted(_)) {
            self.close_chunk();
        }
        match event {
            Event::Start(item) => self.start(item),
            Event::Content { kind, id, delta } => self.append(kind, &id, &delta),
            Event::End { kind, id } => {
                let key = (kind, id);
                if self.open.remove(&key) {
                    Ok(())
                } else {
                    violation(format!("ended {} that is not open", shown(&key)))
                }
            }
            Event::Chunk(chunk) => self.take_chunk(chunk),
            Event::Result(result) => {
                self.answer(result.tool_call_id.clone(), answer_message(result));
                Ok(())
            }
            Event::Snapshot(messages) => {
                self.take_snapshot(messages);
                Ok(())
            }
            Event::Encrypted(encrypted) => {
                self.take_encrypted(encrypted);
                Ok(())
            }
            Event::State(state) => self.state.replace(state).map_or_else(violation, Ok),
            Event::StateDelta(delta) => self.state.change(delta.as_ref()).map_or_else(violation, Ok),
            Event::Subagent(subagent) => {
                self.subagents.push(subagent);
                Ok(())
            }
            Event::RunFinished(finished) => {
                if let Some(open) = self.open.first() {
                    return violation(format!("finished the run with {} open", shown(open)));
                }
                self.usage.extend(finished.usage);
                self.phase = Phase::Finished(match finished.outcome {
                    Outcome::Success => Ending::Finished,
                    Outcome::Interrupt(interrupts) => Ending::Interrupted(interrupts),
                    Outcome::Cancelled => Ending::Cancelled,
                });
                Ok(())
            }
            Event::ClosesChunk | Event::Other | Event::RunStarted | Event::RunError(_) => Ok(()),
        }
    }

    fn start(&mut self, item: Item) -> Result<(), Stop> {
        let key = key(&item);
        if self.open.contains(&key) {
            return violation(format!("started {} again while it is open", shown(&key)));
        }
        match item {
            // A message that was closed may be opened again; what follows is added to it.
            Item::Text { id, role } => {
                let at = self.entry(Kind::Text, &id);
                self.entries[at].hidden = role != Role::Assistant;
            }
            Item::Reasoning { id } => {
                self.entry(Kind::Reasoning, &id);
            }
            Item::Call { id, name, parent } => self.start_call(id, name, parent)?,
        }
        self.open.insert(key);
        Ok(())
    }

    fn start_call(&mut self, id: String, name: String, parent: Option<String>) -> Result<(), Stop> {
        if let Some(place) = self.calls.get(&id) {
            let known = self.entries[place.entry].message.tool_calls().get(place.call);
            if place.answered || known.is_none_or(|known| known.name != name) {
                return violation(format!("used the name \"{id}\" for two calls"));
            }
            return Ok(());
        }
        self.add_call(parent, ToolCall { id, name, arguments: String::new(), encrypted_value: None });
        Ok(())
    }

    /// A call belongs to its parent message, else to one of its own that has the call's name.
    fn add_call(&mut self, parent: Option<String>, call: ToolCall) {
        let mut entry = self.entry(Kind::Text, parent.as_ref().unwrap_or(&call.id));
        if self.entries[entry].hidden {
            entry = self.push(assistant(&call.id));
        }
        if let Message::Assistant { tool_calls, .. } = &mut self.entries[entry].message {
            self.calls.insert(call.id.clone(), CallPlace { entry, call: tool_calls.len(), answered: false });
            tool_calls.push(call);
        }
    }

    fn append(&mut self, kind: Kind, id: &str, delta: &str) -> Result<(), Stop> {
        let key = (kind, id.to_owned());
        if !self.open.contains(&key) {
            return violation(format!("went on with {} that is not open", shown(&key)));
        }
        let limit = self.message_limit;
        let Some(text) = self.text(&key) else { return Ok(()) };
        if text.len() + delta.len() > limit {
            return violation(format!("sent {} of more than {limit} bytes", shown(&key)));
        }
        text.push_str(delta);
        Ok(())
    }

    /// The text that grows.
    fn text(&mut self, key: &(Kind, String)) -> Option<&mut String> {
        if key.0 == Kind::Call {
            return self.call(&key.1).map(|call| &mut call.arguments);
        }
        let entry = *self.messages.get(key)?;
        match &mut self.entries[entry].message {
            Message::Assistant { content, .. } | Message::Reasoning { content, .. } => Some(content),
            Message::User { .. } | Message::Tool { .. } => None,
        }
    }

    fn call(&mut self, id: &str) -> Option<&mut ToolCall> {
        let place = self.calls.get(id)?;
        match &mut self.entries[place.entry].message {
            Message::Assistant { tool_calls, .. } => tool_calls.get_mut(place.call),
            Message::User { .. } | Message::Reasoning { .. } | Message::Tool { .. } => None,
        }
    }

    fn take_chunk(&mut self, chunk: Chunk) -> Result<(), Stop> {
        let goes_on = self.chunk.as_ref().is_some_and(|open| {
            let (kind, id) = key(open);
            kind == chunk.kind && chunk.id.as_ref().is_none_or(|named| *named == id)
        });
        if goes_on {
            if self.chunk.as_ref().is_some_and(|open| conflicts(open, &chunk)) {
                return violation("sent a chunk that contradicts the one before");
            }
        } else {
            self.close_chunk();
            let item = first(&chunk).map_or_else(violation, Ok)?;
            self.start(item.clone())?;
            self.chunk = Some(item);
        }
        match (&self.chunk, chunk.delta) {
            (Some(open), Some(delta)) => {
                let (kind, id) = key(open);
                self.append(kind, &id, &delta)
            }
            _ => Ok(()),
        }
    }

    fn close_chunk(&mut self) {
        if let Some(item) = self.chunk.take() {
            self.open.remove(&key(&item));
        }
    }

    /// Takes a result the Bot got by itself. The first answer to a call is its answer.
    fn answer(&mut self, call: String, answer: Message) {
        let id = answer.id().to_owned();
        match self.calls.get_mut(&call) {
            Some(place) if place.answered => {}
            Some(place) => {
                place.answered = true;
                let answers = &mut self.entries[place.entry].answers;
                self.answers.insert(id, (place.entry, answers.len()));
                answers.push(answer);
            }
            // It may answer a call of an earlier run; the history knows.
            None => {
                self.push(answer);
            }
        }
    }

    /// A snapshot is the Bot's own view of the whole conversation: it adds what was not streamed, and leaves out text
    /// that it has under another name. What we sent ourselves is not taken back from it.
    fn take_snapshot(&mut self, messages: Vec<Message>) {
        let listed: BTreeSet<String> = messages.iter().map(|message| message.id().to_owned()).collect();
        for (at, entry) in self.entries.iter_mut().enumerate() {
            let is_text = matches!(&entry.message, Message::Assistant { tool_calls, .. } if tool_calls.is_empty());
            let key = (Kind::Text, entry.message.id().to_owned());
            let open = self.open.contains(&key) && self.messages.get(&key) == Some(&at);
            entry.hidden |= is_text && !open && !listed.contains(entry.message.id());
        }
        for message in messages {
            match message {
                _ if self.sent_messages.contains(message.id()) => {}
                Message::User { .. } => {}
                Message::Assistant { id, content: said, tool_calls: made, .. } => {
                    let at = self.entry(Kind::Text, &id);
                    if let Message::Assistant { content, .. } = &mut self.entries[at].message {
                        *content = said;
                    }
                    for call in made {
                        if !self.calls.contains_key(&call.id) && !self.sent_calls.contains(&call.id) {
                            self.add_call(Some(id.clone()), call);
                        }
                    }
                }
                Message::Reasoning { id, content: thought, .. } => {
                    let at = self.entry(Kind::Reasoning, &id);
                    if let Message::Reasoning { content, .. } = &mut self.entries[at].message {
                        *content = thought;
                    }
                }
                Message::Tool { ref tool_call_id, .. } => self.answer(tool_call_id.clone(), message),
            }
        }
    }

    fn take_encrypted(&mut self, Encrypted { subtype, entity_id: id, encrypted_value: value }: Encrypted) {
        if subtype == "tool-call" {
            if let Some(call) = self.call(&id) {
                call.encrypted_value = Some(value);
            }
            return;
        }
        let entries = &mut self.entries;
        let message = match self.answers.get(&id) {
            Some((entry, place)) => entries[*entry].answers.get_mut(*place),
            None => [Kind::Text, Kind::Reasoning]
                .into_iter()
                .find_map(|kind| self.messages.get(&(kind, id.clone())))
                .map(|entry| &mut entries[*entry].message),
        };
        if let Some(
            Message::Assistant { encrypted_value, .. }
            | Message::Reasoning { encrypted_value, .. }
            | Message::Tool { encrypted_value, .. },
        ) = message
        {
            *encrypted_value = Some(value);
        }
    }

    /// Where the message of that name is; made if there is none.
    fn entry(&mut self, kind: Kind, id: &str) -> usize {
        let key = (kind, id.to_owned());
        if let Some(at) = self.messages.get(&key) {
            return *at;
        }
        let at = self.push(match kind {
            Kind::Reasoning => Message::Reasoning { id: id.to_owned(), content: String::new(), encrypted_value: None },
            Kind::Text | Kind::Call => assistant(id),
        });
        self.messages.insert(key, at);
        at
    }

    fn push(&mut self, message: Message) -> usize {
        self.entries.push(Entry { message, answers: Vec::new(), hidden: false });
        self.entries.len() - 1
    }

    /// The stream is over, or given up: what there is, and how the run ended if it did.
    pub(super) fn finish(self) -> (Produced, Option<Ending>) {
        let messages = self.entries.into_iter().filter(|entry| !entry.hidden && !is_empty(&entry.message));
        let messages = messages.flat_map(|entry| std::iter::once(entry.message).chain(entry.answers)).collect();
        let ending = match self.phase {
            Phase::Finished(ending) => Some(ending),
            Phase::Waiting | Phase::Running => None,
        };
        let (usage, subagents) = (self.usage, self.subagents);
        (Produced { messages, usage, subagents, state: self.state.into_value() }, ending)
    }
}

fn violation<T>(phrase: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Violation(phrase.into()))
}

fn assistant(id: &str) -> Message {
    Message::Assistant { id: id.to_owned(), content: String::new(), tool_calls: Vec::new(), encrypted_value: None }
}

fn answer_message(ToolResult { message_id: id, tool_call_id, content }: ToolResult) -> Message {
    Message::Tool { id, tool_call_id, content, error: None, encrypted_value: None }
}

/// Some Bots open and close a message without text before a call; without one either it says nothing.
fn is_empty(message: &Message) -> bool {
    matches!(message, Message::Assistant { content, tool_calls, .. } if content.is_empty() && tool_calls.is_empty())
}

fn key(item: &Item) -> (Kind, String) {
    match item {
        Item::Text { id, .. } => (Kind::Text, id.clone()),
        Item::Reasoning { id } => (Kind::Reasoning, id.clone()),
        Item::Call { id, .. } => (Kind::Call, id.clone()),
    }
}

/// What the first chunk of a stream starts, or what it lacks.
fn first(chunk: &Chunk) -> Result<Item, String> {
    let Some(id) = chunk.id.clone() else {
        return Err("sent a first chunk without a name for what it starts".to_owned());
    };
    match chunk.kind {
        Kind::Text => Ok(Item::Text { id, role: chunk.role.unwrap_or_default() }),
        Kind::Reasoning => Ok(Item::Reasoning { id }),
        Kind::Call => match chunk.name.clone() {
            Some(name) => Ok(Item::Call { id, name, parent: chunk.parent.clone() }),
            None => Err("sent a first chunk of a call without the tool's name".to_owned()),
        },
    }
}

/// Whether a further chunk says something else than the first.
fn conflicts(open: &Item, chunk: &Chunk) -> bool {
    match open {
        Item::Text { role, .. } => chunk.role.is_some_and(|said| said != *role),
        Item::Reasoning { .. } => false,
        Item::Call { name, parent, .. } => {
            chunk.name.as_ref().is_some_and(|said| said != name)
                || chunk.parent.as_ref().is_some_and(|said| Some(said) != parent.as_ref())
        }
    }
}

/// An item for a person. Names are the Bot's and may be anything, so only a piece is shown.
fn shown((kind, id): &(Kind, String)) -> String {
    let kind = match kind {
        Kind::Text => "message",
        Kind::Reasoning => "reasoning",
        Kind::Call => "call",
    };
    format!("{kind} {:?}", id.chars().take(64).collect::<String>())
}
