//! The leaf: what of an event goes into the proof of record.
//!
//! A hand-encoded, deterministic CBOR array, so that anybody can recompute it from the columns with a page of code:
//! integers in their shortest form, definite lengths, absent = null. Content is not in it; its commitment is, so the
//! proof survives an erasure.

use sha2::{Digest, Sha256};

use crate::envelope::Recorded;

/// The leaf's bytes:
/// `[position, stream, version, event_id, event_type, schema, recorded_at, actor, correlation_id, causation_id,
/// key hashes, facts, commitment]`.
///
/// `key_hashes` are the hashes of the append's keys on its first event, and empty on all others; they are sorted here.
/// The stored `leaf_hash` of `event` is not read.
#[must_use]
pub fn leaf(event: &Recorded, key_hashes: &[[u8; 32]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(160 + event.facts.len());
    head(&mut out, ARRAY, 13);
    head(&mut out, UNSIGNED, event.position);
    text(&mut out, event.stream.as_str());
    head(&mut out, UNSIGNED, event.version);
    bytes(&mut out, event.event_id.as_bytes());
    text(&mut out, &event.event_type);
    head(&mut out, UNSIGNED, u64::from(event.schema));
    integer(&mut out, event.recorded_at.0);
    text(&mut out, &event.actor);
    match &event.correlation_id {
        Some(correlation) => text(&mut out, correlation),
        None => out.push(NULL),
    }
    match &event.causation_id {
        Some(causation) => bytes(&mut out, causation.as_bytes()),
        None => out.push(NULL),
    }
    let mut sorted = key_hashes.to_vec();
    sorted.sort_unstable();
    head(&mut out, ARRAY, sorted.len() as u64);
    for hash in &sorted {
        bytes(&mut out, hash);
    }
    bytes(&mut out, &event.facts);
    match &event.commitment {
        Some(commitment) => bytes(&mut out, commitment),
        None => out.push(NULL),
    }
    out
}

/// SHA-256(0x00 ‖ leaf): a leaf's hash in an RFC 6962 tree.
#[must_use]
pub fn leaf_hash(event: &Recorded, key_hashes: &[[u8; 32]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update([0]);
    hasher.update(leaf(event, key_hashes));
    hasher.finalize().into()
}

/// SHA-256(salt ‖ content): what binds an event to its content without keeping it.
#[must_use]
pub fn commitment(salt: &[u8; 16], content: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(salt);
    hasher.update(content);
    hasher.finalize().into()
}

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const ARRAY: u8 = 4 << 5;
const NULL: u8 = 0xf6;

/// A CBOR head: major type and argument in the shortest form (RFC 8949, 4.2.1).
fn head(out: &mut Vec<u8>, major: u8, argument: u64) {
    match argument {
        0..=23 => out.push(major | argument.to_be_bytes()[7]),
        24..=0xff => out.extend([major | 24, argument.to_be_bytes()[7]]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&argument.to_be_bytes()[6..]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&argument.to_be_bytes()[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&argument.to_be_bytes());
        }
    }
}

fn integer(out: &mut Vec<u8>, value: i64) {
    match u64::try_from(value) {
        Ok(unsigned) => head(out, UNSIGNED, unsigned),
        // CBOR writes a negative n as -1 - n, which for two's complement is the complement.
        Err(_) => head(out, NEGATIVE, !value.cast_unsigned()),
    }
}

fn text(out: &mut Vec<u8>, value: &str) {
    head(out, TEXT, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    head(out, BYTES, value.len() as u64);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests;
