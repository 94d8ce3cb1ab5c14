//! JSON as a view on the bytes: can it be read?
//!
//! What cannot be read is never lost: the bytes are kept, with the reason. Numbers are not read at all, so that big ones
//! keep their digits.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Values inside values, at most.
const DEPTH_MAX: usize = 64;
/// Why a body cannot be read as JSON; none where it can.
#[must_use]
pub fn unparsed(body: &[u8]) -> Option<String> {
    look(body).err()
}

fn look(body: &[u8]) -> Result<(), String> {
    if body.is_empty() {
        return Err("the body is empty".to_owned());
    }
    if body.starts_with(b"\xef\xbb\xbf") {
        return Err("the body starts with a byte order mark".to_owned());
    }
    let text = std::str::from_utf8(body).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Look { depth: 0 }.deserialize(&mut deserializer).and_then(|()| deserializer.end()).map_err(|error| reason(&error))
}

/// What the reader says; in words of ours where its own mislead.
fn reason(error: &serde_json::Error) -> String {
    let said = error.to_string();
    match said.strip_prefix("unexpected end of hex escape") {
        Some(place) => format!("a lone surrogate{place}"),
        None => said,
    }
}

/// Reads one value and keeps nothing of it.
struct Look {
    depth: usize,
}

impl Look {
    fn deeper<E: Error>(&self) -> Result<usize, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(format!("more than {DEPTH_MAX} values inside each other")));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Look {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        without_nul(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        while items.next_element_seed(Look { depth })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        let mut seen = Names::default();
        while let Some(name) = members.next_key_seed(Name)? {
            without_nul(&name)?;
            members.next_value_seed(Look { depth })?;
            if !seen.insert(name) {
                // Two readers would take two different values.
                return Err(A::Error::custom("an object has the same member twice"));
            }
        }
        Ok(())
    }
}

/// A member's name, where it stands.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// Names of one object. Most have a few, which are compared faster than hashed.
#[derive(Default)]
struct Names<'a> {
    few: Vec<Cow<'a, str>>,
    many: HashSet<Cow<'a, str>>,
}

/// Names that are compared one by one.
const FEW: usize = 16;

impl<'a> Names<'a> {
    /// Whether the name is new.
    fn insert(&mut self, name: Cow<'a, str>) -> bool {
        if self.few.contains(&name) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(name);
            return true;
        }
        self.many.insert(name)
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
            (br#"{"a":1,"\u0061":1}"#, "same member twice"),
            (b"{} {}", "trailing"),
            (b"a=1&b=2", "expected"),
            (b"{\"a\":", "EOF"),
            (b"NaN", "expected"),
        ] {
            let said = unparsed(body).unwrap_or_default();
            assert!(said.contains(reason), "{}: {said}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_member_that_comes_twice_is_found_among_many() {
        for (count, again) in [(5, 0), (40, 3), (40, 30), (40, 39)] {
            let members = |count: usize| (0..count).map(|n| format!("\"m{n}\":{n}")).collect::<Vec<_>>().join(",");
            assert_eq!(unparsed(format!("{{{}}}", members(count)).as_bytes()), None);
            let twice = unparsed(format!("{{{},\"m{again}\":0}}", members(count)).as_bytes());
            assert!(twice.is_some_and(|said| said.contains("same member twice")), "{count} {again}");
        }
    }

    #[test]
    fn depth_64_is_read_and_65_is_not() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(unparsed(nested(64).as_bytes()), None);
        assert!(unparsed(nested(65).as_bytes()).unwrap().contains("64"));
        assert!(unparsed("[".repeat(1_000_000).as_bytes()).is_some());
    }

    #[test]
    fn numbers_of_any_size_can_be_read() {
        for body in ["1524831183200260097", "123456789012345678901234567890", "-0.1e-400", "[1.0,18446744073709551616]"]
        {
            assert_eq!(unparsed(body.as_bytes()), None, "{body}");
        }
    }
}
