//! One text for equal arguments, however they were written.

use serde_json::{Map, Number, Value};

/// JSON with sorted names and no blanks, in which equal numbers are written alike: `1.0` is `1`.
pub(crate) fn canonical(value: &Value) -> String {
    ordered(value).to_string()
}

fn ordered(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
        Value::Number(number) => Value::Number(plain(number)),
        Value::Array(items) => items.iter().map(ordered).collect(),
        Value::Object(members) => {
            let mut names: Vec<_> = members.keys().collect();
            names.sort_unstable();
            let sorted: Map<_, _> = names.into_iter().map(|name| (name.clone(), ordered(&members[name]))).collect();
            Value::Object(sorted)
        }
    }
}

/// A whole number as such, where a double can still tell it from its neighbours.
fn plain(number: &Number) -> Number {
    if number.is_i64() || number.is_u64() {
        return number.clone();
    }
    let Some(double) = number.as_f64() else { return number.clone() };
    if double.fract() == 0.0 && double.abs() < 9_007_199_254_740_992.0 {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and far inside of what an i64 holds")]
        return Number::from(double as i64);
    }
    Number::from_f64(double).unwrap_or_else(|| number.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    // G6.
    #[test]
    fn equal_arguments_have_one_text() {
        let text = |json: &str| canonical(&serde_json::from_str(json).unwrap());
        for (one, other) in [
            (r#"{"a":1.0,"b":[2.50,-0.0]}"#, r#"{"b":[2.5,0],"a":1}"#),
            (r#"{"n":1e3}"#, r#"{"n":1000}"#),
            (r#"{"a":{"y":1,"x":2}}"#, r#"{ "a" : {"x":2.0,"y":1.0} }"#),
        ] {
            assert_eq!(text(one), text(other));
        }
        for (one, other) in [
            (r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#),
            (r#"{"n":1}"#, r#"{"n":"1"}"#),
            (r#"{"n":1.5}"#, r#"{"n":1}"#),
            (r#"[1,2]"#, r#"[2,1]"#),
            (r#"{"a":null}"#, "{}"),
        ] {
            assert_ne!(text(one), text(other));
        }
    }
}
