//! JSON as a view on the bytes: can it be read, and what does it say it is about?
//!
//! What cannot be read is never lost: the bytes are kept, with the reason. Numbers are not read at all, so that big ones
//! keep their digits.

use std::{collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::headers::kept_type;

/// Values inside values, at most.
const DEPTH_MAX: usize = 64;
/// Where a body says what it is about, best first.
const TYPE_MEMBERS: [&str; 3] = ["event", "event_type", "type"];

/// What a body says as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Why it could not be read.
    pub(super) unparsed: Option<String>,
    /// What it says it is about.
    pub(super) event_type: Option<String>,
}

/// Looks at a body.
pub(super) fn view(body: &[u8]) -> View {
    match look(body) {
        Ok(event_type) => View { unparsed: None, event_type },
        Err(reason) => View { unparsed: Some(reason), event_type: None },
    }
}

fn look(body: &[u8]) -> Result<Option<String>, String> {
    if body.is_empty() {
        return Err("the body is empty".to_owned());
    }
    if body.starts_with(b"\xef\xbb\xbf") {
        return Err("the body starts with a byte order mark".to_owned());
    }
    let text = std::str::from_utf8(body).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))?;
    let mut types: [Option<String>; 3] = [None, None, None];
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Look { depth: 0, types: Some(&mut types) }
        .deserialize(&mut deserializer)
        .and_then(|_| deserializer.end())
        .map_err(|error| reason(&error))?;
    Ok(types.into_iter().flatten().find_map(|text| kept_type(&text)))
}

/// What the reader says; in words of ours where its own mislead.
fn reason(error: &serde_json::Error) -> String {
    let said = error.to_string();
    match said.strip_prefix("unexpected end of hex escape") {
        Some(place) => format!("a lone surrogate{place}"),
        None => said,
    }
}

/// Reads one value and keeps nothing of it but its text, if it is one.
struct Look<'a> {
    depth: usize,
    /// Where the outermost object's types go.
    types: Option<&'a mut [Option<String>; 3]>,
}

impl Look<'_> {
    fn deeper<E: Error>(&self) -> Result<usize, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(format!("more than {DEPTH_MAX} values inside each other")));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        without_nul(text)?;
        Ok(Some(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let depth = self.deeper()?;
        while items.next_element_seed(Look { depth, types: None })?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Self::Value, A::Error> {
        let depth = self.deeper()?;
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            without_nul(&name)?;
            let text = members.next_value_seed(Look { depth, types: None })?;
            let place = TYPE_MEMBERS.iter().position(|member| *member == name);
            if let (Some(types), Some(place)) = (&mut self.types, place)
                && let Some(slot) = types.get_mut(place)
            {
                *slot = text;
            }
            if !seen.insert(name) {
                // Two readers would take two different values.
                return Err(A::Error::custom("an object has the same member twice"));
            }
        }
        Ok(None)
    }
}

fn without_nul<E: Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom("a text holds U+0000")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_says_why() {
        for (body, reason) in [
            (&b""[..], "the body is empty"),
            (b"\xef\xbb\xbf{}", "byte order mark"),
            (b"{\"a\":\"\xff\"}", "not UTF-8 at byte 6"),
            (br#"{"a":"\u0000"}"#, "U+0000"),
            (br#"{"\u0000":1}"#, "U+0000"),
            (br#""\ud800""#, "surrogate"),
            (br#"{"a":1,"a":2}"#, "same member twice"),
            (br#"{"b":{"a":1,"a":1}}"#, "same member twice"),
            (b"{} {}", "trailing"),
            (b"a=1&b=2", "expected"),
            (b"{\"a\":", "EOF"),
            (b"NaN", "expected"),
        ] {
            let view = view(body);
            let said = view.unparsed.unwrap_or_default();
            assert!(said.contains(reason), "{}: {said}", String::from_utf8_lossy(body));
            assert_eq!(view.event_type, None);
        }
    }

    #[test]
    fn depth_64_is_read_and_65_is_not() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(view(nested(64).as_bytes()).unparsed, None);
        assert!(view(nested(65).as_bytes()).unparsed.unwrap().contains("64"));
        assert!(view("[".repeat(1_000_000).as_bytes()).unparsed.is_some());
    }

    #[test]
    fn numbers_of_any_size_can_be_read() {
        for body in ["1524831183200260097", "123456789012345678901234567890", "-0.1e-400", "[1.0,18446744073709551616]"]
        {
            assert_eq!(view(body.as_bytes()).unparsed, None, "{body}");
        }
    }

    #[test]
    fn the_type_is_the_first_text_there_is() {
        for (body, event_type) in [
            (r#"{"type":"c","event_type":"b","event":"a"}"#, Some("a")),
            (r#"{"type":"c","event_type":"b","event":{"type":"x"}}"#, Some("b")),
            (r#"{"type":"c","event":""}"#, Some("c")),
            (r#"{"data":{"event":"inner"}}"#, None),
            (r#"{"event":7}"#, None),
            (r#"[{"event":"a"}]"#, None),
            (r#""event""#, None),
            (r#"{"a":"\u001B","event":"x\u0007y"}"#, Some("xy")),
        ] {
            let view = view(body.as_bytes());
            assert_eq!((view.unparsed, view.event_type.as_deref()), (None, event_type), "{body}");
        }
    }
}
