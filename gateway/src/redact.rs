//! Takes secrets out of what is recorded: values under names that say so, at any depth, and what looks like a secret in
//! any text, errors included.
//!
//! When in doubt it takes out too much: a record that lost a word can be read, a secret in it cannot be unread.

mod names;
mod text;

use serde_json::{Map, Value};

pub use text::redact_text;

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";

/// The value without its secrets. Numbers under a counting name (`max_tokens`) stay.
#[must_use]
pub fn redact(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => Value::String(redact_string(text)),
        Value::Array(items) => redact_array(items),
        Value::Object(members) => redact_object(members),
    }
}

/// A header's value without its secrets.
#[must_use]
pub fn redact_header(name: &str, value: &str) -> String {
    if names::is_secret(name) { REDACTED.to_owned() } else { redact_string(value) }
}

/// Text that is itself JSON, as tool arguments often are, is redacted by its names.
fn redact_string(text: &str) -> String {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(inside @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str::<Value>(text)
    {
        let redacted = redact(&inside);
        if redacted != inside {
            return redacted.to_string();
        }
    }
    redact_text(text)
}

/// An array, or a pair of name and value as header lists hold them: `["authorization", "Bearer …"]`.
fn redact_array(items: &[Value]) -> Value {
    if let [Value::String(name), value] = items
        && names::is_secret(name)
    {
        return Value::Array(vec![Value::String(name.clone()), redact_under(name, value)]);
    }
    Value::Array(items.iter().map(redact).collect())
}

fn redact_object(members: &Map<String, Value>) -> Value {
    // `{"name": "authorization", "value": "Bearer …"}`: the name is a value here.
    let named = ["name", "key", "header", "field"]
        .iter()
        .find_map(|member| members.get(*member).and_then(Value::as_str))
        .filter(|name| names::is_secret(name));
    let redacted = members.iter().map(|(name, value)| {
        let redacted = match named {
            Some(named) if name == "value" || name == "values" => redact_under(named, value),
            _ if names::is_secret(name) => redact_under(name, value),
            _ => redact(value),
        };
        (redact_text(name), redacted)
    });
    Value::Object(redacted.collect())
}

/// What stands under a secret's name. Nothing is no secret, nor is yes or no, nor the number under a counting name.
fn redact_under(name: &str, value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) => value.clone(),
        Value::Number(_) if names::is_count(name) => value.clone(),
        Value::Array(items) if names::is_count(name) => {
            Value::Array(items.iter().map(|item| redact_under(name, item)).collect())
        }
        Value::Object(members) if names::is_count(name) => {
            Value::Object(members.iter().map(|(k, v)| (redact_text(k), redact_under(name, v))).collect())
        }
        Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => Value::String(REDACTED.to_owned()),
    }
}

#[cfg(test)]
mod tests;
