//! Recordings: tool steps that are replayed without a model.
//!
//! The whole plan is made and checked before step 1: a missing value, a secret or a name that looks like one refuses
//! it, so that a recording never stops half-way for a reason that was known before.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Steps a recording has at the most.
pub const STEPS_MAX: usize = 80;

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// Values the steps name as `{{name}}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Variable>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// The tool.
    pub tool: String,
    /// Its arguments, an object.
    pub arguments: Value,
    /// A remark for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where a variable's value comes from. One of the two is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// The value itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// A JSON pointer (RFC 6901) into the delivery's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Marked as secret: a recording must not carry one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// One sentence that says what is wrong and what to do.
    pub fn parse(text: &str) -> Result<Self, String> {
        let recording: Self =
            serde_json::from_str(text).map_err(|error| format!("the recording is not right: {error}"))?;
        if recording.steps.is_empty() {
            return Err("the recording has no steps; give at least one `{\"tool\": …, \"arguments\": {…}}`".to_owned());
        }
        if recording.steps.len() > STEPS_MAX {
            return Err(format!("the recording has {} steps; {STEPS_MAX} are the most", recording.steps.len()));
        }
        for (name, variable) in &recording.variables {
            variable.check(name)?;
        }
        for (at, step) in recording.steps.iter().enumerate() {
            if !step.arguments.is_object() {
                return Err(format!("the arguments of step {} are no JSON object", at + 1));
            }
            let mut unknown = None;
            each_name(&step.arguments, &mut |name| {
                if !recording.variables.contains_key(name) {
                    unknown.get_or_insert_with(|| name.to_owned());
                }
            });
            if let Some(name) = secret_in(&step.arguments) {
                return Err(format!(
                    "step {} has an argument {name}, which is named like a secret; a recording must not carry one: \
                     leave it out, and let the tool find it where it is kept",
                    at + 1
                ));
            }
            if let Some(name) = unknown {
                return Err(format!("step {} uses {{{{{name}}}}}, but the recording has no such variable", at + 1));
            }
        }
        Ok(recording)
    }

    /// The steps with all values filled in. `body` is the delivery's, as JSON, where there is one.
    ///
    /// # Errors
    /// One sentence: which value is missing.
    pub fn plan(&self, body: Option<&Value>) -> Result<Vec<Step>, String> {
        let mut values = BTreeMap::new();
        for (name, variable) in &self.variables {
            values.insert(name.as_str(), variable.resolve(name, body)?);
        }
        let filled = |step: &Step| Step { arguments: fill(&step.arguments, &values), ..step.clone() };
        Ok(self.steps.iter().map(filled).collect())
    }
}

impl Variable {
    fn check(&self, name: &str) -> Result<(), String> {
        if self.secret || is_telling(name) {
            return Err(format!(
                "the variable {name} is a secret, or is named like one; a recording must not carry one"
            ));
        }
        match (&self.value, &self.pointer) {
            (Some(_), None) => Ok(()),
            (None, Some(pointer)) if pointer.is_empty() || pointer.starts_with('/') => Ok(()),
            (None, Some(_)) => Err(format!("the pointer of variable {name} must begin with /")),
            _ => Err(format!("give variable {name} either a value or a pointer")),
        }
    }

    fn resolve(&self, name: &str, body: Option<&Value>) -> Result<String, String> {
        if let Some(value) = &self.value {
            return Ok(value.clone());
        }
        let pointer = self.pointer.as_deref().unwrap_or_default();
        let found = body.and_then(|body| body.pointer(pointer));
        match found {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Null) | None => {
                Err(format!("the variable {name} has no value: the delivery has nothing at {pointer}"))
            }
            Some(value) => Ok(value.to_string()),
        }
    }
}

/// What the names of secrets hold, without case and separators.
const TELLING: [&str; 13] = [
    "accesskey",
    "apikey",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "signingkey",
    "token",
];

fn is_telling(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    TELLING.iter().any(|word| plain.contains(word))
}

/// A name at any depth that says that a secret stands under it, and something does that could be one: a number, a yes or
/// a no is none.
fn secret_in(value: &Value) -> Option<&str> {
    let holds = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        Value::Array(items) => items.iter().find_map(secret_in),
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            if is_telling(name) && holds(member) { Some(name.as_str()) } else { secret_in(member) }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Calls `each` with every name between double braces.
fn each_name(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => {
            for part in text.split("{{").skip(1) {
                if let Some((name, _)) = part.split_once("}}") {
                    each(name.trim());
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| each_name(item, each)),
        Value::Object(members) => members.values().for_each(|member| each_name(member, each)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn fill(value: &Value, values: &BTreeMap<&str, String>) -> Value {
    match value {
        Value::String(text) => Value::String(fill_text(text, values)),
        Value::Array(items) => items.iter().map(|item| fill(item, values)).collect(),
        Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), fill(member, values))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// One pass: a value that itself has braces is text and is not filled again.
fn fill_text(text: &str, values: &BTreeMap<&str, String>) -> String {
    let mut parts = text.split("{{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("}}").and_then(|(name, rest)| Some((values.get(name.trim())?, rest))) {
            Some((value, rest)) => {
                out.push_str(value);
                out.push_str(rest);
            }
            None => {
                out.push_str("{{");
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_its_values_before_step_one() {
        let text = r#"{"steps":[{"tool":"computer_write_file","arguments":{"path":"{{name}}.txt","contents":"{{ body }}"}}],
            "variables":{"name":{"value":"{{body}}"},"body":{"pointer":"/commits/0"}}}"#;
        let recording = Recording::parse(text).unwrap();
        let body = serde_json::json!({"commits": [17]});
        let plan = recording.plan(Some(&body)).unwrap();
        assert_eq!(plan[0].arguments, serde_json::json!({"path": "{{body}}.txt", "contents": "17"}));
        assert!(recording.plan(None).unwrap_err().contains("/commits/0"));
        // What only counts, or says yes, is no secret, whatever it is called.
        let counts = r#"{"steps":[{"tool":"t","arguments":{"max_tokens":100,"token":"","cookies":false}}]}"#;
        assert!(Recording::parse(counts).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("{", "not right"),
            (r#"{"steps":[]}"#, "no steps"),
            (r#"{"steps":[{"tool":"t","arguments":[]}]}"#, "no JSON object"),
            (r#"{"steps":[{"tool":"t","arguments":{"a":"{{x}}"}}]}"#, "no such variable"),
            (r#"{"steps":[{"tool":"t","arguments":{}}],"variables":{"api_token":{"value":"x"}}}"#, "secret"),
            (r#"{"steps":[{"tool":"t","arguments":{}}],"variables":{"a":{"value":"x","secret":true}}}"#, "secret"),
            (r#"{"steps":[{"tool":"t","arguments":{"a":[{"API-Key":"x"}]}}]}"#, "argument API-Key"),
            (r#"{"steps":[{"tool":"t","arguments":{"headers":{"authorization":["x"]}}}]}"#, "authorization"),
            (r#"{"steps":[{"tool":"t","arguments":{}}],"variables":{"a":{}}}"#, "either"),
            (r#"{"steps":[{"tool":"t","arguments":{},"extra":1}]}"#, "extra"),
        ] {
            let error = Recording::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let many = format!(r#"{{"steps":[{}]}}"#, [r#"{"tool":"t","arguments":{}}"#; 81].join(","));
        assert!(Recording::parse(&many).unwrap_err().contains("81 steps"));
    }
}
