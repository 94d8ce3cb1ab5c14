//! The list of headers that is kept.

use axum::http::{HeaderMap, HeaderValue};
use midwatch_gateway::redact::{REDACTED, redact_header};

use crate::auth::bearer;

/// Names and values, the lines of one name together, without secrets. Names are in lower case, as HTTP compares them.
/// `secret_in` names headers that hold this sender's secret.
pub(super) fn kept(headers: &HeaderMap, secret_in: &[&str]) -> Vec<(String, String)> {
    let secret = bearer(headers).filter(|secret| !secret.is_empty());
    headers
        .iter()
        .map(|(name, value)| {
            let name = name.as_str();
            let shown =
                if secret_in.contains(&name) { REDACTED.to_owned() } else { redacted(name, &text(value), secret) };
            (name.to_owned(), shown)
        })
        .collect()
}

fn redacted(name: &str, value: &str, secret: Option<&str>) -> String {
    // A sender may repeat its secret where no rule would look for it.
    if secret.is_some_and(|secret| value.contains(secret)) {
        return REDACTED.to_owned();
    }
    redact_header(name, value)
}

/// A value as text. HTTP allows any byte above 0x7f: what is not UTF-8 is read as Latin-1, which loses nothing.
fn text(value: &HeaderValue) -> String {
    let bytes = value.as_bytes();
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().map(|byte| char::from(*byte)).collect(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &[u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        lines.iter().map(line).collect()
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
            ("x-of-a-template", b"hunter2"),
        ]);
        let kept = kept(&given, &["x-of-a-template"]);
        let value = |name: &str| kept.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str()).unwrap();
        for secret in ["authorization", "cookie", "x-api-key", "x-gitlab-token", "x-copy", "x-of-a-template"] {
            assert_eq!(value(secret), REDACTED, "{secret}");
        }
        assert_eq!(value("x-hub-signature-256"), "sha256=757107ea", "authenticity can be checked again");
        assert_eq!(value("content-type"), "application/json");
        assert_eq!(value("x-name"), "café");
    }
}
