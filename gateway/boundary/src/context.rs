//! The facts about one call that rules are judged on.

use std::collections::BTreeMap;

use midwatch_events::Micros;
use serde_json::{Map, Value};

use crate::attributes::{NUMBERS, TEXTS};

/// Everything a rule can read about one call. `Default` is neutral: `""`, 0, false, `{}`, the epoch.
///
/// A decision records [`Context::to_json`], so any other rule can be judged on it later.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each field is the attribute of that name in the documentation of rules")]
pub struct Context {
    pub tool_name: String,
    pub intent: String,
    pub bot_id: String,
    pub bot_name: String,
    pub actor_id: String,
    pub page_url: String,
    pub page_host: String,
    pub element_ref: String,
    pub element_role: String,
    pub element_name: String,
    pub element_type: String,
    pub key: String,
    pub file_path: String,
    pub file_name: String,
    pub file_extension: String,
    pub command: String,
    pub mcp_server: String,
    pub mcp_tool: String,
    pub mcp_effect: String,
    pub run_cause: String,
    pub run_id: String,
    pub routine_id: String,
    pub trigger_id: String,
    pub trigger_event_type: String,
    /// Left empty, the zone of the boundary that judges.
    pub zone: String,
    pub run_unattended: bool,
    pub run_turn: i64,
    pub run_tool_calls: i64,
    pub repeat_count: i64,
    pub repeat_same_result: i64,
    pub repeat_cycle: i64,
    pub run_tokens: i64,
    /// Millionths of USD.
    pub run_cost: i64,
    pub now: Micros,
    /// The call's arguments, secrets redacted.
    pub args: Map<String, Value>,
}

impl Context {
    /// The text attributes in the layout's order.
    pub(crate) fn texts(&self) -> [&str; TEXTS.len()] {
        [
            &self.tool_name,
            &self.intent,
            &self.bot_id,
            &self.bot_name,
            &self.actor_id,
            &self.page_url,
            &self.page_host,
            &self.element_ref,
            &self.element_role,
            &self.element_name,
            &self.element_type,
            &self.key,
            &self.file_path,
            &self.file_name,
            &self.file_extension,
            &self.command,
            &self.mcp_server,
            &self.mcp_tool,
            &self.mcp_effect,
            &self.run_cause,
            &self.run_id,
            &self.routine_id,
            &self.trigger_id,
            &self.trigger_event_type,
            &self.zone,
        ]
    }

    fn texts_mut(&mut self) -> [&mut String; TEXTS.len()] {
        [
            &mut self.tool_name,
            &mut self.intent,
            &mut self.bot_id,
            &mut self.bot_name,
            &mut self.actor_id,
            &mut self.page_url,
            &mut self.page_host,
            &mut self.element_ref,
            &mut self.element_role,
            &mut self.element_name,
            &mut self.element_type,
            &mut self.key,
            &mut self.file_path,
            &mut self.file_name,
            &mut self.file_extension,
            &mut self.command,
            &mut self.mcp_server,
            &mut self.mcp_tool,
            &mut self.mcp_effect,
            &mut self.run_cause,
            &mut self.run_id,
            &mut self.routine_id,
            &mut self.trigger_id,
            &mut self.trigger_event_type,
            &mut self.zone,
        ]
    }

    /// The number attributes in the layout's order.
    pub(crate) fn numbers(&self) -> [i64; NUMBERS.len()] {
        [
            self.run_turn,
            self.run_tool_calls,
            self.repeat_count,
            self.repeat_same_result,
            self.repeat_cycle,
            self.run_tokens,
            self.run_cost,
        ]
    }

    fn numbers_mut(&mut self) -> [&mut i64; NUMBERS.len()] {
        [
            &mut self.run_turn,
            &mut self.run_tool_calls,
            &mut self.repeat_count,
            &mut self.repeat_same_result,
            &mut self.repeat_cycle,
            &mut self.run_tokens,
            &mut self.run_cost,
        ]
    }

    /// Reads a context from JSON that names only what differs from neutral: `{"tool.name":"…","repeat.count":3}`,
    /// or nested as rules write it: `{"tool":{"name":"…"}}`. `now` is RFC 3339 text.
    ///
    /// # Errors
    /// One sentence: not a JSON object, an unknown name, a name given twice, a value of the wrong kind.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("the context is not JSON: {error}"))?;
        let Value::Object(members) = value else { return Err("the context must be a JSON object".to_owned()) };
        let mut flat = BTreeMap::new();
        for (name, value) in members {
            match value {
                Value::Object(inner) if name != "args" && crate::attributes::is_group(&name) => {
                    for (field, value) in inner {
                        note(&mut flat, format!("{name}.{field}"), value)?;
                    }
                }
                other => note(&mut flat, name, other)?,
            }
        }
        let mut context = Self::default();
        for (name, value) in flat {
            context.set(&name, value)?;
        }
        Ok(context)
    }

    fn set(&mut self, name: &str, value: Value) -> Result<(), String> {
        let wrong = |kind: &str| format!("`{name}` must be {kind}");
        match (name, value) {
            ("args", Value::Object(args)) => self.args = args,
            ("args", _) => return Err(wrong("a JSON object")),
            ("run.unattended", Value::Bool(unattended)) => self.run_unattended = unattended,
            ("run.unattended", _) => return Err(wrong("true or false")),
            ("now", value) => {
                let instant = value.as_str().and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
                self.now = Micros(instant.ok_or_else(|| wrong("an RFC 3339 instant"))?.timestamp_micros());
            }
            (name, value) => {
                if let Some(at) = TEXTS.iter().position(|known| *known == name) {
                    let Value::String(text) = value else { return Err(wrong("a text")) };
                    *self.texts_mut()[at] = text;
                } else if let Some(at) = NUMBERS.iter().position(|known| *known == name) {
                    *self.numbers_mut()[at] = value.as_i64().ok_or_else(|| wrong("a whole number"))?;
                } else {
                    let near = crate::attributes::nearest(name, crate::attributes::names());
                    let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                    return Err(format!("there is no attribute `{name}`{hint}"));
                }
            }
        }
        Ok(())
    }

    /// What differs from neutral, as one JSON object of dotted names: what a decision records.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut members: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, text) in TEXTS.iter().zip(self.texts()) {
            if !text.is_empty() {
                members.insert(name, Value::from(text));
            }
        }
        for (name, number) in NUMBERS.iter().zip(self.numbers()) {
            if number != 0 {
                members.insert(name, Value::from(number));
            }
        }
        if self.run_unattended {
            members.insert("run.unattended", Value::Bool(true));
        }
        if self.now != Micros::default() {
            members.insert("now", Value::from(self.now.to_string()));
        }
        if !self.args.is_empty() {
            members.insert("args", Value::Object(self.args.clone()));
        }
        serde_json::to_string(&members).unwrap_or_default()
    }
}

fn note(flat: &mut BTreeMap<String, Value>, name: String, value: Value) -> Result<(), String> {
    match flat.insert(name.clone(), value) {
        Some(_) => Err(format!("`{name}` is given twice")),
        None => Ok(()),
    }
}
