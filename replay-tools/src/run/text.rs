//! A timeline for people: positions in the margin, times in UTC, everything that came from outside escaped.

use std::fmt::Write as _;

use midwatch_events::run::{CallResult, DecisionKind, RefusalCause, WorkKind};
use serde_json::Value;

use super::{CallEnded, Decided, Ending, Entry, Named, Opening, What};
use crate::{
    Words,
    terminal::{block, clean},
    titles::spaced,
};

/// Where details begin.
const INDENT: usize = 12;

/// Entries as lines, each ended by a line feed.
#[must_use]
pub fn text(entries: &[Entry]) -> String {
    entries.iter().map(entry).collect()
}

fn entry(entry: &Entry) -> String {
    let mut out = format!("{:>8}  {:<27}  {}\n", entry.position, entry.at.to_string(), clean(&entry.title));
    match &entry.what {
        What::Opened(opening) => opened(&mut out, opening),
        What::Taken { worker, .. } => line(&mut out, &format!("by the process {worker}")),
        What::TurnFinished { messages, .. } => {
            if let Some(messages) = messages {
                out.push_str(&said(messages));
            }
        }
        What::Decided(decision) => decided(&mut out, decision),
        What::CallEnded(ended) | What::CallLate(ended) => call_ended(&mut out, ended),
        What::AttemptFailed { error, .. } => words(&mut out, "error", error.as_ref()),
        What::ReportedLate { worker, headline, error, .. } => {
            line(&mut out, &format!("by the process {worker}"));
            words(&mut out, "headline", headline.as_ref());
            words(&mut out, "error", error.as_ref());
        }
        What::Repeated(repeated) => {
            words(&mut out, "call", repeated.same_as.as_ref());
            line(&mut out, watched(repeated.unattended));
        }
        What::Asked(asked) => {
            words(&mut out, "target", asked.target.as_ref());
            words(&mut out, "arguments", asked.arguments.as_ref());
            line(&mut out, &format!("{}; until {}", watched(asked.unattended), asked.expires));
        }
        What::Answered { .. } => line(&mut out, &format!("answered by {}", entry.actor)),
        What::Ended(ended) => ending(&mut out, ended),
        What::TurnStarted { .. } | What::Unknown {} => {}
    }
    out
}

/// One line of detail; `text` is already harmless or is made so here.
fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{:INDENT$}{}", "", clean(text));
}

fn words(out: &mut String, label: &str, words: Option<&Words>) {
    if let Some(words) = words {
        out.push_str(&words.labelled(label, INDENT));
    }
}

fn named(what: &str, named: &Named) -> String {
    match &named.name {
        Some(name) => format!("{what} {name} ({})", named.id),
        None => format!("{what} {}", named.id),
    }
}

fn watched(unattended: bool) -> &'static str {
    if unattended { "nobody was watching" } else { "a person was watching" }
}

fn opened(out: &mut String, opening: &Opening) {
    line(out, &format!("{}, with the rights of user {}", named("Bot", &opening.bot), opening.owner));
    if let Some(routine) = &opening.routine {
        line(out, &named("routine", routine));
    }
    if let Some(trigger) = &opening.trigger {
        line(out, &named("trigger", trigger));
    }
    if let Some(claim) = &opening.claim {
        let tzdb = claim.tzdb.as_ref().map_or_else(String::new, |tzdb| format!(", time-zone data {tzdb}"));
        let by = format!("claimed at position {} by {}, process {}{tzdb}", claim.position, claim.actor, claim.process);
        line(out, &by);
    }
    if let Some(delivery) = &opening.delivery {
        let mut text = format!("delivery {}", delivery.id);
        if let (Some(position), Some(at)) = (delivery.position, delivery.at) {
            let _ = write!(text, " at position {position}, {at}");
        }
        if let Some(event_type) = &delivery.event_type {
            let _ = write!(text, ", {event_type}");
        }
        if let Some(bytes) = delivery.body_bytes {
            let _ = write!(text, ", {bytes} bytes");
        }
        line(out, &text);
        words(out, "sender's id", delivery.sender_id.as_ref());
        words(out, "payload", delivery.body.as_ref());
    }
    let label = match opening.work {
        WorkKind::Instruction => "instruction",
        WorkKind::Recording => "recording",
        WorkKind::Session => "session",
    };
    words(out, label, opening.told.as_ref());
    line(out, &format!("at most {} s and {} turns", opening.deadline_s, opening.max_turns));
}

/// What the Bot said and asked for. Messages that are not as we know them are shown as they are.
fn said(messages: &Words) -> String {
    let Words::Text { text } = messages else { return messages.labelled("messages", INDENT) };
    let Ok(Value::Array(list)) = serde_json::from_str::<Value>(text) else {
        return messages.labelled("messages", INDENT);
    };
    let mut out = String::new();
    for message in &list {
        let role = message["role"].as_str().unwrap_or("message");
        let label = if role == "assistant" { "Bot" } else { role };
        match &message["content"] {
            Value::Null => {}
            Value::String(content) if content.is_empty() => {}
            Value::String(content) => out.push_str(&Words::text(content).labelled(&clean(label), INDENT)),
            other => out.push_str(&Words::text(other.to_string()).labelled(&clean(label), INDENT)),
        }
        for call in message["toolCalls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let (name, arguments) = (function["name"].as_str(), function["arguments"].as_str());
            let asks = format!("{} {}", name.unwrap_or("?"), arguments.unwrap_or_default());
            out.push_str(&block(&format!("Bot asks for {}", asks.replace('\n', " ")), INDENT));
        }
    }
    out
}

fn decided(out: &mut String, decided: &Decided) {
    let place = match (decided.step, decided.turn) {
        (Some(step), _) => format!("step {step}"),
        (None, turn) => format!("turn {turn}"),
    };
    line(out, &format!("call {} of the run, {place}, intent {}", decided.ordinal, decided.intent));
    words(out, "arguments", decided.arguments.as_ref());
    let mut why = format!("verdict {}", spaced(decided.verdict));
    if !decided.enforced {
        why.push_str(", only noted");
    }
    if let Some(rule) = &decided.rule {
        let _ = write!(why, ", by the rule {rule}");
    }
    // That a rule refused it is said by the rule itself.
    if let Some(refusal) = decided.refusal.filter(|refusal| *refusal != RefusalCause::Rule) {
        let _ = write!(why, ", refused because: {}", spaced(refusal));
    }
    let _ = write!(why, "; boundary version {}", decided.boundary);
    line(out, &why);
    let list = |rules: &[String]| if rules.is_empty() { "none".to_owned() } else { rules.join(", ") };
    line(out, &format!("matched: {}", list(&decided.matched)));
    if !decided.broken.is_empty() {
        line(out, &format!("could not be evaluated: {}", list(&decided.broken)));
    }
    words(out, "the rules saw", decided.context.as_ref());
    let count = match decided.repeat_count {
        0 => "not counted".to_owned(),
        1 => "made once inside the window".to_owned(),
        count => format!("made {count} times inside the window, {} with the same result", decided.repeat_same_result),
    };
    let cycle = match decided.repeat_cycle {
        0 | 1 => String::new(),
        cycle => format!("; the last calls have come round {cycle} times"),
    };
    line(out, &format!("{}; {count}{cycle}", watched(decided.unattended)));
    if decided.decision == DecisionKind::Refused {
        line(out, "it never acted");
    }
}

fn call_ended(out: &mut String, ended: &CallEnded) {
    let label = match ended.result {
        CallResult::Finished => "result",
        CallResult::Failed => "error",
        CallResult::Unknown => "outcome",
    };
    line(out, &format!("call {} of the run", ended.ordinal));
    words(out, label, ended.text.as_ref());
}

fn ending(out: &mut String, ended: &Ending) {
    words(out, "headline", ended.headline.as_ref());
    // An erased error may never have been there: one line says that the words are gone.
    if !matches!((&ended.headline, &ended.error), (Some(Words::Erased { .. }), Some(Words::Erased { .. }))) {
        words(out, "error", ended.error.as_ref());
    }
    let watched = ended.unattended.map_or_else(String::new, |unattended| format!("; {}", watched(unattended)));
    line(out, &format!("turns: {}{watched}", ended.turns));
}
