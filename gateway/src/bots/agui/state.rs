//! The Bot's own state: JSON that it streams to us, and gets back with the next run.

use json_patch::{Patch, PatchOperation, patch};
use serde_json::Value;

/// The state as the run's events make it.
#[derive(Debug, Default)]
pub(super) struct State {
    value: Value,
    limit: usize,
}

impl State {
    /// As it was sent. It may not grow over `limit` bytes of JSON.
    pub(super) const fn new(value: Value, limit: usize) -> Self {
        Self { value, limit }
    }

    /// The Bot says all of it.
    ///
    /// # Errors
    /// It is over the limit; a phrase that goes on after "The Bot".
    pub(super) fn replace(&mut self, value: Value) -> Result<(), String> {
        self.value = value;
        self.within()
    }

    /// The Bot says what changes: all of it, or, where a part of it cannot be, none.
    ///
    /// # Errors
    /// It is over the limit; a phrase that goes on after "The Bot".
    pub(super) fn change(&mut self, delta: Option<&Patch>) -> Result<(), String> {
        let Some(delta) = delta else { return Ok(()) };
        let before = self.value.clone();
        for operation in &delta.0 {
            if let Err(error) = patch(&mut self.value, std::slice::from_ref(operation)) {
                tracing::warn!(%error, "a change of a Bot's state does not fit it, and is left out");
                self.value = before;
                return Ok(());
            }
            // Only a copy makes more of it than was sent: ten of them can make a thousand times as much.
            if matches!(operation, PatchOperation::Copy(_)) {
                self.within()?;
            }
        }
        self.within()
    }

    fn within(&self) -> Result<(), String> {
        let limit = self.limit;
        match self.value.to_string().len() {
            bytes if bytes > limit => Err(format!("sent a state of more than {limit} bytes")),
            _ => Ok(()),
        }
    }

    /// What it has become.
    pub(super) fn into_value(self) -> Value {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(state: Value, delta: Value) -> Result<Value, String> {
        let mut state = State::new(state, 1_000);
        state.change(serde_json::from_value(delta).ok().as_ref())?;
        Ok(state.into_value())
    }

    #[test]
    fn a_change_is_made_whole_or_not_at_all() {
        let add = json!([{"op": "add", "path": "/b", "value": 2}]);
        assert_eq!(changed(json!({"a": 1}), add), Ok(json!({"a": 1, "b": 2})));
        let half = json!([{"op": "add", "path": "/b", "value": 2}, {"op": "remove", "path": "/none"}]);
        assert_eq!(changed(json!({"a": 1}), half), Ok(json!({"a": 1})));
        assert_eq!(changed(json!({"a": 1}), json!([{"op": "melt", "path": "/a"}])), Ok(json!({"a": 1})));
    }

    #[test]
    fn copies_of_copies_meet_the_limit() {
        let copies: Vec<_> = (0..40).map(|n| json!({"op": "copy", "from": "", "path": format!("/c{n}")})).collect();
        let refused = changed(json!({"a": "x"}), Value::Array(copies));
        assert_eq!(refused, Err("sent a state of more than 1000 bytes".to_owned()));
    }
}
