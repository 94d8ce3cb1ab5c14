//! Facts and content as CBOR, and back.
//!
//! A family is a plain serde enum whose variants carry hand-written, versioned wire names. serde writes such a value
//! as a one-entry map `{wire name: fields}`; the ledger keeps the name in columns of its own, so the entry's head is
//! cut off when storing and put back when reading. The fields' bytes are never decoded and encoded again.

use serde::{Serialize, de::DeserializeOwned};

/// One kind of stream and everything that can happen in it.
///
/// `Self` holds the facts, which are never erased; [`Family::Content`] holds the words of people and senders, which
/// can be. Both are enums with the same wire names; content has only the variants that have content.
pub trait Family: Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static {
    /// What can be erased of this family's events.
    type Content: Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static;

    /// The first part of each wire name, before the dot.
    const NAME: &'static str;
}

/// A family whose events have no content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub enum NoContent {}

/// An event that has not been appended yet.
#[derive(Clone, Debug, PartialEq)]
pub struct New<F: Family> {
    /// What became true.
    pub facts: F,
    /// The words that go with it, if any.
    pub content: Option<F::Content>,
}

impl<F: Family> New<F> {
    /// An event with content.
    pub fn with(facts: F, content: F::Content) -> Self {
        Self { facts, content: Some(content) }
    }
}

impl<F: Family> From<F> for New<F> {
    fn from(facts: F) -> Self {
        Self { facts, content: None }
    }
}

/// An event as it is stored: bytes, and the two columns its wire name is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The wire name without its version, such as `routine.window_skipped`.
    pub event_type: String,
    /// The wire name's version.
    pub schema: u16,
    /// CBOR map of the variant's facts.
    pub facts: Vec<u8>,
    /// CBOR map of the variant's content, or none.
    pub content: Option<Vec<u8>>,
}

/// Bytes that are not what their wire name says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A value serde or CBOR cannot write; a bug in a family's types.
    #[error("cannot encode a {family} event: {reason}")]
    Encode {
        /// The family's name.
        family: &'static str,
        /// What the encoder said.
        reason: String,
    },
    /// Stored bytes that do not decode as the event they claim to be.
    #[error("cannot decode {wire}: {reason}")]
    Decode {
        /// The wire name.
        wire: String,
        /// What the decoder said.
        reason: String,
    },
    /// A wire name this binary does not know: written by a newer one.
    #[error("unknown event {wire}: written by a newer version of Midwatch")]
    Unknown {
        /// The wire name.
        wire: String,
    },
}

/// The bytes to store for `event`.
///
/// # Errors
/// [`CodecError::Encode`] when a family's types do not follow the rules above.
pub fn encode<F: Family>(event: &New<F>) -> Result<Encoded, CodecError> {
    let (wire, facts) = split::<F>(&event.facts)?;
    let content = match &event.content {
        None => None,
        Some(content) => {
            let (content_wire, bytes) = split::<F>(content)?;
            if content_wire != wire {
                return Err(encode_error::<F>(format!("content of {content_wire} beside facts of {wire}")));
            }
            Some(bytes)
        }
    };
    let (event_type, schema) =
        split_wire(&wire).ok_or_else(|| encode_error::<F>(format!("{wire} is no `family.name/version`")))?;
    Ok(Encoded { event_type: event_type.to_owned(), schema, facts, content })
}

/// The facts stored under a wire name.
///
/// # Errors
/// [`CodecError::Unknown`] for a name this binary does not know, [`CodecError::Decode`] for bytes that are not it.
pub fn decode_facts<F: Family>(event_type: &str, schema: u16, facts: &[u8]) -> Result<F, CodecError> {
    join(event_type, schema, facts)
}

/// The content stored under a wire name.
///
/// # Errors
/// As [`decode_facts`].
pub fn decode_content<F: Family>(event_type: &str, schema: u16, content: &[u8]) -> Result<F::Content, CodecError> {
    join(event_type, schema, content)
}

/// `routine.paused/1` as `("routine.paused", 1)`.
#[must_use]
pub fn split_wire(wire: &str) -> Option<(&str, u16)> {
    let (event_type, schema) = wire.rsplit_once('/')?;
    event_type.contains('.').then_some(())?;
    Some((event_type, schema.parse().ok()?))
}

fn encode_error<F: Family>(reason: String) -> CodecError {
    CodecError::Encode { family: F::NAME, reason }
}

fn split<F: Family>(value: &impl Serialize) -> Result<(String, Vec<u8>), CodecError> {
    let mut bytes = Vec::with_capacity(128);
    ciborium::into_writer(value, &mut bytes).map_err(|e| encode_error::<F>(e.to_string()))?;
    let (name_at, name_len) = match bytes.as_slice() {
        [0xa1, head @ 0x60..=0x77, ..] => (2, usize::from(head - 0x60)),
        [0xa1, 0x78, length, ..] => (3, usize::from(*length)),
        _ => return Err(encode_error::<F>("a variant must hold a struct".to_owned())),
    };
    let fields = bytes.split_off((name_at + name_len).min(bytes.len()));
    let wire = String::from_utf8_lossy(bytes.get(name_at..).unwrap_or_default()).into_owned();
    if !matches!(fields.first(), Some(0xa0..=0xbf)) {
        return Err(encode_error::<F>(format!("{wire} must hold a struct with named fields")));
    }
    Ok((wire, fields))
}

fn join<T: DeserializeOwned>(event_type: &str, schema: u16, fields: &[u8]) -> Result<T, CodecError> {
    let wire = format!("{event_type}/{schema}");
    let mut head = Vec::with_capacity(wire.len() + 3);
    head.push(0xa1);
    match u8::try_from(wire.len()) {
        Ok(length @ 0..=23) => head.push(0x60 + length),
        Ok(length) => head.extend([0x78, length]),
        Err(_) => return Err(CodecError::Unknown { wire }),
    }
    head.extend_from_slice(wire.as_bytes());
    let mut rest = fields;
    let decoded = ciborium::from_reader(std::io::Read::chain(head.as_slice(), &mut rest));
    match decoded {
        Ok(value) if rest.is_empty() => Ok(value),
        Ok(_) => Err(CodecError::Decode { wire, reason: "bytes after the end of the map".to_owned() }),
        Err(ciborium::de::Error::Semantic(_, reason)) if reason.contains("unknown variant") => {
            Err(CodecError::Unknown { wire })
        }
        Err(error) => Err(CodecError::Decode { wire, reason: error.to_string() }),
    }
}
