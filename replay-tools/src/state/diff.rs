//! Which members of two states differ.

use serde::Serialize;
use serde_json::Value;

/// A member that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its path from the outside in.
    pub member: String,
    /// What it was; null also where it was absent.
    pub before: Value,
    /// What it became.
    pub after: Value,
}

/// All of them, in the order of the states' members.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let mut changed = Vec::new();
    walk("", before, after, &mut changed);
    changed
}

fn walk(path: &str, before: &Value, after: &Value, changed: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        changed.push(Change { member: path.to_owned(), before: before.clone(), after: after.clone() });
        return;
    };
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    for name in new.keys().chain(gone) {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let of = |members: &serde_json::Map<String, Value>| members.get(name).cloned().unwrap_or_default();
        walk(&path, &of(old), &of(new), changed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_that_came_went_and_changed_are_named_by_their_path() {
        let before = json!({"a": 1, "b": {"c": [1], "d": 2}, "gone": true, "same": [1]});
        let after = json!({"a": 1, "b": {"c": [1, 2], "d": 2}, "came": "x", "same": [1]});
        let changed = changes(&before, &after);
        let change = |member: &str, before, after| Change { member: member.to_owned(), before, after };
        assert_eq!(
            changed,
            [
                change("b.c", json!([1]), json!([1, 2])),
                change("came", json!(null), json!("x")),
                change("gone", json!(true), json!(null)),
            ]
        );
        assert_eq!(changes(&after, &after), []);
    }
}
