//! Idempotency keys: what makes two appends the same append.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// 32 bytes of a hash or an HMAC: a byte string in CBOR, lower-case hex in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut out = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err("a digest is 64 hex digits".to_owned());
        }
        for (at, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).map_err(|e| e.to_string())?;
        }
        Ok(Self(out))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { serializer.serialize_bytes(&self.0) }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer)?.parse().map_err(D::Error::custom);
        }
        let bytes = Bytes::deserialize(deserializer)?;
        bytes.0.try_into().map(Self).map_err(|_| D::Error::custom("a digest is 32 bytes"))
    }
}

/// Bytes as they came: a byte string in CBOR, an array of numbers in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a byte string")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
            fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Bytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Visitor)
    }
}

/// SHA-256 over `parts`, each as its length in 4 big-endian bytes and then its bytes.
///
/// The lengths keep parts apart (`a_`+`b` is not `a`+`_b`), and a sender's long header never reaches an index.
#[must_use]
pub fn hash_parts(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        hasher.update(length.to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// One key of an append: its hash, and a digest of **what was asked** (never of the events that came of it).
///
/// The same key with the same digest is the same request and gets its original positions; with another digest it is
/// another request that reuses the key, and is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// SHA-256 over the key's parts.
    pub hash: [u8; 32],
    /// SHA-256 over the parts of what was asked.
    pub digest: [u8; 32],
}

impl Key {
    /// The key named by `parts`, for a request that is described by `asked`.
    #[must_use]
    pub fn new(parts: &[&str], asked: &[&[u8]]) -> Self {
        let bytes: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        Self { hash: hash_parts(&bytes), digest: hash_parts(asked) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_run_together() {
        assert_ne!(hash_parts(&[b"a_", b"b"]), hash_parts(&[b"a", b"_b"]));
        assert_ne!(hash_parts(&[b"ab"]), hash_parts(&[b"a", b"b"]));
    }

    #[test]
    fn hashes_length_then_bytes() {
        let expected: [u8; 32] = Sha256::digest(b"\0\0\0\x05claim\0\0\0\x011").into();
        assert_eq!(hash_parts(&[b"claim", b"1"]), expected);
    }
}
