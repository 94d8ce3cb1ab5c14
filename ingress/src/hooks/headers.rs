//! What the header says: the sender's own id, the event's type, and the list that is kept.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use midwatch_gateway::redact::{REDACTED, redact};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::auth::bearer;

/// Longer ids are kept as their hash: they still tell deliveries apart, and never reach an index whole.
const ID_BYTES_MAX: usize = 255;
/// Longer event types are cut.
const TYPE_CHARS_MAX: usize = 200;

/// The sender's own id for the delivery: `Idempotency-Key`, else `X-Delivery-Id`. An empty one is none; there is never
/// one shared empty key.
pub(super) fn sender_id(headers: &HeaderMap) -> Option<String> {
    let names = ["idempotency-key", "x-delivery-id"].map(HeaderName::from_static);
    names.iter().filter_map(|name| headers.get(name)).map(|value| value.as_bytes().trim_ascii()).find_map(|id| {
        if id.is_empty() {
            return None;
        }
        Some(match std::str::from_utf8(id) {
            Ok(text) if id.len() <= ID_BYTES_MAX => text.to_owned(),
            Ok(_) | Err(_) => {
                let hash = Sha256::digest(id);
                hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
            }
        })
    })
}

/// What `X-Event-Type` says.
pub(super) fn event_type(headers: &HeaderMap) -> Option<String> {
    headers.get("x-event-type").and_then(|value| kept_type(&text(value)))
}

/// An event type as it is kept: without control characters, cut at 200 characters; none if nothing is left.
pub(super) fn kept_type(given: &str) -> Option<String> {
    let kept: String = given.trim().chars().filter(|c| !c.is_control()).take(TYPE_CHARS_MAX).collect();
    (!kept.is_empty()).then_some(kept)
}

/// Names and values, the lines of one name together, without secrets. Names are in lower case, as HTTP compares them.
pub(super) fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let secret = bearer(headers).filter(|secret| !secret.is_empty());
    headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), redacted(name.as_str(), &text(value), secret)))
        .collect()
}

fn redacted(name: &str, value: &str, secret: Option<&str>) -> String {
    // A sender may repeat its secret where no rule would look for it.
    if secret.is_some_and(|secret| value.contains(secret)) {
        return REDACTED.to_owned();
    }
    match redact(&json!([name, value])) {
        Value::Array(pair) => pair.get(1).and_then(Value::as_str).unwrap_or(REDACTED).to_owned(),
        _ => REDACTED.to_owned(),
    }
}

/// A value as text. HTTP allows any byte above 0x7f: what is not UTF-8 is read as Latin-1, which loses nothing.
fn text(value: &HeaderValue) -> String {
    let bytes = value.as_bytes();
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().map(|byte| char::from(*byte)).collect(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &[u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn the_first_id_that_is_there_counts() {
        for (lines, id) in [
            (vec![("idempotency-key", &b"a"[..]), ("x-delivery-id", b"b")], Some("a")),
            (vec![("x-delivery-id", &b" b "[..])], Some("b")),
            (vec![("idempotency-key", &b""[..]), ("x-delivery-id", b"b")], Some("b")),
            (vec![("idempotency-key", &b"  "[..])], None),
            (vec![], None),
            (vec![("idempotency-key", "ä€".as_bytes())], Some("ä€")),
        ] {
            assert_eq!(sender_id(&headers(&lines)).as_deref(), id, "{lines:?}");
        }
    }

    #[test]
    fn long_and_strange_ids_still_tell_deliveries_apart() {
        let long = |last: u8| {
            let mut id = vec![b'x'; 9_000];
            id.push(last);
            sender_id(&headers(&[("idempotency-key", &id)])).unwrap()
        };
        assert_ne!(long(b'a'), long(b'b'));
        assert_eq!(long(b'a'), long(b'a'));
        assert!(long(b'a').len() < 255);
        let strange = |id: &[u8]| sender_id(&headers(&[("idempotency-key", id)])).unwrap();
        assert_ne!(strange(b"\xe9"), strange("é".as_bytes()), "Latin-1 and UTF-8 are other bytes");
    }

    #[test]
    fn secrets_are_not_kept() {
        let given = headers(&[
            ("authorization", b"Bearer mw_secret-of-ours"),
            ("cookie", b"a=b"),
            ("x-api-key", b"1234"),
            ("x-gitlab-token", b"5678"),
            ("x-copy", b"again mw_secret-of-ours"),
            ("x-hub-signature-256", b"sha256=757107ea"),
            ("content-type", b"application/json"),
            ("x-name", b"caf\xe9"),
        ]);
        let kept = kept(&given);
        let value = |name: &str| kept.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str()).unwrap();
        for secret in ["authorization", "cookie", "x-api-key", "x-gitlab-token", "x-copy"] {
            assert_eq!(value(secret), REDACTED, "{secret}");
        }
        assert_eq!(value("x-hub-signature-256"), "sha256=757107ea", "authenticity can be checked again");
        assert_eq!(value("content-type"), "application/json");
        assert_eq!(value("x-name"), "café");
    }
}
