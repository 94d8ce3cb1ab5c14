//! A request out of bytes: lines of headers, an empty line, and the body; and a preset's secrets.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use midwatch_events::key::Digest;
use midwatch_ingress::senders::{Held, Preset};

/// A key of each form there is: text, `whsec_` and base64, `whpk_` and base64, and 32 bytes in hexadecimal digits.
pub const SECRETS: [&str; 4] = [
    "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    "a secret",
];

/// Headers and body. What is no header is left out.
pub fn request(bytes: &[u8]) -> (HeaderMap, &[u8]) {
    let split = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let mut headers = HeaderMap::new();
    for line in bytes[..split].split(|byte| *byte == b'\n').take(64) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(line[..colon].trim_ascii());
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    (headers, bytes.get(split + 2..).unwrap_or_default())
}

/// What opens a door of this preset.
pub fn held(preset: &Preset, secret: &str) -> Option<Held> {
    let key = if preset.signs() { Some(preset.key(secret).ok()?) } else { None };
    Some(Held { digest: Digest([7; 32]), key })
}
