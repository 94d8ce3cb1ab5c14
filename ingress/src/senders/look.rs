//! What an authentic request says of itself: its id, what it is about, and what makes another one the same.

use midwatch_events::key::hash_parts;
use sha2::{Digest as _, Sha256};

use super::{judge::Request, place::Place, pointer, preset::Preset};

/// Longer ids are kept as their hash: they still tell deliveries apart, and never reach an index whole.
const ID_BYTES_MAX: usize = 255;
/// Longer event types are cut.
const TYPE_CHARS_MAX: usize = 200;

/// What a request says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// The sender's own id for it.
    pub id: Option<String>,
    /// The id counts whatever the body.
    pub id_alone: bool,
    /// What it is about.
    pub event_type: Option<String>,
    /// Hash of what makes two bodies without an id the same.
    pub alike: Option<[u8; 32]>,
}

/// Looks at a request. `json` is its body as JSON text, where it can be read. `chosen` are the JSON pointers that an
/// admin chose for the id; where they find nothing, the preset's places count.
#[must_use]
pub fn look(preset: &Preset, chosen: &[String], request: &Request<'_>, json: Option<&str>) -> Looked {
    let first = |place: &Place| place.first(request.headers, request.query, json);
    let event_type = preset.event_type.iter().find_map(|place| match place {
        // A number says what a thing is to a program, never to a person.
        Place::Body(at) => {
            pointer::at(json?, at).first().and_then(|raw| pointer::text(raw)).and_then(|text| kept_type(&text))
        }
        _ => first(place).and_then(|value| kept_type(&latin(&value))),
    });
    let mut looked = Looked { event_type, ..Looked::default() };
    if let Some(id) = json.and_then(|json| chosen_id(chosen, json)) {
        (looked.id, looked.id_alone) = (Some(id), true);
        return looked;
    }
    for places in preset.id.iter().map(|together| &together.0) {
        let Some(values) = places.iter().map(first).collect::<Option<Vec<_>>>() else { continue };
        looked.id = Some(kept_id(&values.join(&b' ')));
        // A header may be anything that came by; an id in the body is a part of what was sent.
        looked.id_alone = places.iter().all(|place| matches!(place, Place::Body(_)));
        break;
    }
    if looked.id.is_none() {
        looked.alike = json.and_then(|json| alike(&preset.alike, json));
    }
    looked
}

fn chosen_id(chosen: &[String], json: &str) -> Option<String> {
    let values = chosen.iter().map(|at| pointer::at(json, at).first().and_then(|raw| pointer::scalar(raw)));
    let values: Vec<_> = values.collect::<Option<Vec<_>>>().filter(|values| !values.is_empty())?;
    // Each with its length, so that `a b` and `c` are not `a` and `b c`.
    let parts: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
    Some(if let [one] = values.as_slice() { kept_id(one.as_bytes()) } else { hashed(&hash_parts(&parts)) })
}

fn alike(pointers: &[String], json: &str) -> Option<[u8; 32]> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut found = false;
    for at in pointers {
        let values = pointer::at(json, at);
        found |= !values.is_empty();
        parts.extend(values.iter().map(|raw| raw.as_bytes()));
        parts.push(b"");
    }
    found.then(|| hash_parts(&parts))
}

/// An id as it is kept. Bytes that are no UTF-8, and ids that are very long, are kept as their hash.
fn kept_id(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text) if id.len() <= ID_BYTES_MAX => text.trim().to_owned(),
        Ok(_) | Err(_) => hashed(&Sha256::digest(id)),
    }
}

fn hashed(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// HTTP allows any byte above 0x7f: what is not UTF-8 is read as Latin-1, which loses nothing.
fn latin(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().map(|byte| char::from(*byte)).collect(), str::to_owned)
}

/// An event type as it is kept: without control characters, cut at 200 characters; none if nothing is left.
fn kept_type(given: &str) -> Option<String> {
    let kept: String = given.trim().chars().filter(|c| !c.is_control()).take(TYPE_CHARS_MAX).collect();
    (!kept.is_empty()).then_some(kept)
}
