//! What is kept of a request beside its body: the list of headers, and a query that is signed.

use axum::http::{HeaderMap, HeaderValue};
use midwatch_gateway::redact::{REDACTED, redact_header};

use crate::{auth::bearer, senders::Preset};

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

/// The query byte for byte, but for secrets; none where its sender does not sign it, and it proves nothing.
pub(super) fn kept_query(query: Option<&str>, preset: &Preset) -> Option<String> {
    let query = query.filter(|query| preset.signs_url() && !query.is_empty())?;
    let kept = query.split('&').map(|pair| {
        let read = form_urlencoded::parse(pair.as_bytes()).next();
        let secret = read.is_some_and(|(name, value)| redacted(&name, &value, None) != value);
        let name = pair.split('=').next().unwrap_or_default();
        if secret { format!("{name}={REDACTED}") } else { pair.to_owned() }
    });
    Some(kept.collect::<Vec<_>>().join("&"))
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
    fn a_signed_query_is_kept_byte_for_byte_without_secrets() {
        let twilio = crate::senders::find("twilio").unwrap();
        let hash = "bodySHA256=5ccde7145dfb8f56479710896586cb9d5911809d83afbe34627818790db0aec9";
        for query in ["a=b&c", "x=%2f%2F+&x=&%20", hash, "&&a"] {
            assert_eq!(kept_query(Some(query), &twilio).as_deref(), Some(query));
        }
        let kept = kept_query(Some("a=%41&api_key=hunter2&pass%77ord=x&b=1"), &twilio).unwrap();
        assert_eq!(kept, "a=%41&api_key=[redacted]&pass%77ord=[redacted]&b=1");
        let github = crate::senders::find("github").unwrap();
        assert_eq!((kept_query(Some("a=b"), &github), kept_query(Some(""), &twilio)), (None, None));
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
