//! JSON pointers (RFC 6901) into text that stays text: numbers keep their digits, and nothing is built in memory.

use std::{collections::BTreeMap, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Values that a `*` may find; more of them are as good as none.
const FOUND_MAX: usize = 10_000;

/// Whether a text is a pointer to something inside.
#[must_use]
pub fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.len() <= 200 && text.split('/').count() <= 16
}

/// The values at a pointer, as the JSON text they are. A `*` stands for every item of a list. Nothing where there is
/// nothing, or where the text is no JSON.
pub(super) fn at<'a>(json: &'a str, pointer: &str) -> Vec<&'a str> {
    let mut found = vec![json];
    for segment in pointer.split('/').skip(1) {
        let name = segment.replace("~1", "/").replace("~0", "~");
        found = found.into_iter().flat_map(|raw| step(raw, &name)).take(FOUND_MAX + 1).collect();
        if found.len() > FOUND_MAX {
            return Vec::new();
        }
    }
    found
}

/// Whether a pointer with a `*` found something in every item of its list; true for one without.
pub(super) fn whole(pointer: &str, found: usize, json: &[u8]) -> bool {
    let Some((list, _)) = pointer.split_once("/*") else { return true };
    let items = std::str::from_utf8(json).map(|json| at(json, &format!("{list}/*")).len());
    items == Ok(found)
}

/// A text's characters; none for what is no text.
pub(super) fn text(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

/// A text's characters, or a number's digits.
pub(super) fn scalar(raw: &str) -> Option<String> {
    let number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    if number { Some(raw.to_owned()) } else { text(raw) }
}

fn step<'a>(raw: &'a str, name: &str) -> Vec<&'a str> {
    if raw.starts_with('[') {
        let Ok(Items(items)) = serde_json::from_str::<Items<'_>>(raw) else { return Vec::new() };
        if name == "*" {
            return items;
        }
        return name.parse().ok().and_then(|at: usize| items.get(at).copied()).into_iter().collect();
    }
    let Ok(members) = serde_json::from_str::<BTreeMap<std::borrow::Cow<'_, str>, &RawValue>>(raw) else {
        return Vec::new();
    };
    members.get(name).map(|value| value.get()).into_iter().collect()
}

/// The items of a list, up to one more than a `*` may find.
struct Items<'a>(Vec<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Items<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element::<&RawValue>()? {
                    if items.len() <= FOUND_MAX {
                        items.push(item.get());
                    }
                }
                Ok(Items(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Items<'de>, A::Error> {
                Ok(Items(Vec::new()))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_the_text_as_it_stands() {
        let json = r#" {"a":{"b/c":[{"x":1524831183200260097},{"x":"y"},{"x":null}]},"~":1.0} "#;
        assert_eq!(at(json, "/a/b~1c/0/x"), ["1524831183200260097"]);
        assert_eq!(at(json, "/a/b~1c/*/x"), ["1524831183200260097", "\"y\"", "null"]);
        assert_eq!(at(json, "/~0"), ["1.0"]);
        assert_eq!(at(json, ""), [json]);
        for nothing in ["/b", "/a/b~1c/9/x", "/a/b~1c/-/x", "/~0/x", "/a/*"] {
            assert!(at(json, nothing).is_empty(), "{nothing}");
        }
        assert!(at("no json", "/a").is_empty());
        assert!(at(&"[".repeat(100_000), "/0/0").is_empty());
        assert_eq!(scalar("\"\\u00e9\"").as_deref(), Some("é"));
        assert_eq!(scalar("-1.50").as_deref(), Some("-1.50"));
        assert_eq!((scalar("null"), scalar("{}"), scalar("true")), (None, None, None));
    }

    #[test]
    fn a_list_is_whole_where_every_item_has_it() {
        assert!(whole("/v/*/s", 2, br#"{"v":[{"s":1},{"s":1}]}"#));
        assert!(!whole("/v/*/s", 1, br#"{"v":[{"s":1},{}]}"#));
        assert!(whole("/v", 1, b"{}"));
    }
}
