use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn a_key_in_headers_and_in_an_error_text_is_taken_out_at_any_depth() {
    let call = json!({
        "url": "https://example.org/orders",
        "options": [{ "headers": { "authorization": "Bearer 9f8e7d6c5b4a", "accept": "text/html" } }],
        "error": "POST https://example.org/?api_key=s3cr3tvalue&page=2 answered 401",
    });
    let expected = json!({
        "url": "https://example.org/orders",
        "options": [{ "headers": { "authorization": "[redacted]", "accept": "text/html" } }],
        "error": "POST https://example.org/?api_key=[redacted]&page=2 answered 401",
    });
    assert_eq!(redact(&call), expected);
}

#[test]
fn names_are_read_whatever_their_case_and_separators() {
    for name in [
        "authorization",
        "Proxy-Authorization",
        "cookie",
        "Set-Cookie",
        "password",
        "DB_PASSWORD",
        "PGPASSWORD",
        "passwd",
        "secret",
        "clientSecret",
        "token",
        "accessToken",
        "access_token",
        "X-Auth-Token",
        "api_key",
        "apiKey",
        "APIKey",
        "x-api-key",
        "apikey",
        "access_key",
        "AWS_SECRET_ACCESS_KEY",
        "private.key",
        "privateKey",
        "credential",
        "credentials",
        "session",
        "session_id",
        "sessionId",
        "JSESSIONID",
        "refreshtoken",
    ] {
        assert_eq!(redact(&json!({ name: "abc" })), json!({ name: REDACTED }), "{name}");
        assert_eq!(redact(&json!({ name: { "inside": ["abc", 5] } })), json!({ name: REDACTED }), "{name}");
    }
    for name in ["tokenizer", "keyboard", "author", "authority", "compass", "key", "passenger", "sidebar", "possession"]
    {
        assert_eq!(redact(&json!({ name: "abc" })), json!({ name: "abc" }), "{name}");
    }
}

#[test]
fn counts_are_not_secrets() {
    let usage = json!({
        "tokens": 12, "max_tokens": 4096, "token_count": 7, "tokenCount": 7, "inputTokens": 3, "session_limit": 2,
        "usage_tokens": { "input": 1, "output": [2, 3] }, "password": null, "secret": false,
    });
    assert_eq!(redact(&usage), usage);
    assert_eq!(redact(&json!({ "tokens": ["abc"] })), json!({ "tokens": [REDACTED] }));
    assert_eq!(redact(&json!({ "otp": 123_456 })), json!({ "otp": REDACTED }));
    assert_eq!(redact_text("max_tokens=4096, tokens: 12."), "max_tokens=4096, tokens: 12.");
}

#[test]
fn header_lists_and_json_in_text_are_read() {
    assert_eq!(
        redact(&json!([{ "name": "Authorization", "value": "abc" }, ["cookie", "a=b"], ["accept", "x"]])),
        json!([{ "name": "Authorization", "value": REDACTED }, ["cookie", REDACTED], ["accept", "x"]])
    );
    assert_eq!(
        redact(&json!({ "arguments": "{\"password\":\"a\\\"b\",\"user\":\"ada\"}" })),
        json!({ "arguments": "{\"password\":\"[redacted]\",\"user\":\"ada\"}" })
    );
    assert_eq!(redact(&json!({ "ghp_0123456789abcdefghij": 1 })), json!({ REDACTED: 1 }));
}

#[test]
fn free_text_loses_schemes_pairs_and_user_info() {
    for (text, expected) in [
        ("failed: Bearer abc123DEF456 was refused", "failed: Bearer [redacted] was refused"),
        ("Basic dXNlcjpwYXNz", "Basic [redacted]"),
        (
            "curl -H \"Authorization: Bearer abc def\" https://x.org",
            "curl -H \"Authorization: [redacted]\" https://x.org",
        ),
        ("Authorization: Token abc, def\nnext line", "Authorization: [redacted]\nnext line"),
        ("Cookie: a=1; b=2", "Cookie: [redacted]"),
        ("postgres://ada:p@ss@db.example.org/x", "postgres://[redacted]@db.example.org/x"),
        ("login --password hunter2 --user ada", "login --password [redacted] --user ada"),
        ("PASSWORD='a b' run", "PASSWORD=[redacted] run"),
        ("{\"secret\": \"a\\\"b\", \"x\": 1}", "{\"secret\": [redacted], \"x\": 1}"),
        ("got \"{\\\"token\\\":\\\"a\\\\\\\"b\\\",\\\"x\\\":1}\"", "got \"{\\\"token\\\":[redacted],\\\"x\\\":1}\""),
        ("secret: \"cut off", "secret: [redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nend", "[redacted]\nend"),
        ("-----BEGIN PRIVATE KEY-----\nMIIB", "[redacted]"),
        ("task-management-system-for-teams", "task-management-system-for-teams"),
        ("a basic understanding of the bearer of this", "a basic understanding of the bearer of this"),
        ("see https://example.org/@scope/package?q=a@b", "see https://example.org/@scope/package?q=a@b"),
    ] {
        assert_eq!(redact_text(text), expected);
        assert_eq!(redact_text(expected), expected, "redacting twice is redacting once");
    }
}

#[test]
fn well_known_shapes_are_found_anywhere() {
    for secret in [
        "ghp_abcdefghij0123456789abcdefghij012345",
        "github_pat_11ABCDEFG0abcdefghij_klmnopq",
        "sk-proj-abcdefghij0123456789",
        "xoxb-123456789012-abcdef",
        "mw_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_abcde",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ] {
        for text in [format!("({secret})"), format!("error\\n{secret}"), format!("at=\"{secret}\"")] {
            let redacted = redact_text(&text);
            assert!(!redacted.contains(secret) && redacted.contains(REDACTED), "{text} became {redacted}");
        }
    }
}

/// Values that no surrounding text of these tests holds.
fn secret() -> impl Strategy<Value = String> {
    "[A-Z][A-Za-z0-9+/=_~-]{7,30}Q9z".prop_filter("stands alone", |s| !s.contains("redacted"))
}

fn secret_name() -> impl Strategy<Value = String> {
    let words =
        prop::sample::select(vec!["authorization", "cookie", "password", "passwd", "secret", "token", "credential"]);
    let styled =
        prop::sample::select(vec!["api_key", "x-api-key", "accessKey", "PRIVATE_KEY", "session", "Client-Secret"]);
    prop_oneof![words.prop_map(str::to_owned), words_upper(), styled.prop_map(str::to_owned)]
}

fn words_upper() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["DB_PASSWORD", "Authorization", "Set-Cookie", "GITHUB_TOKEN"]).prop_map(str::to_owned)
}

/// A JSON value with the planted one somewhere inside.
fn buried(planted: Value) -> impl Strategy<Value = Value> {
    prop::collection::vec((0..4_u8, "[a-z]{1,6}"), 0..8).prop_map(move |layers| {
        layers.into_iter().fold(planted.clone(), |inner, (kind, name)| match kind {
            0 => json!([1, inner, "x"]),
            1 => json!({ "a": true, (name): inner }),
            2 => json!({ "arguments": inner.to_string() }),
            _ => json!({ (name): { "items": [inner] } }),
        })
    })
}

proptest! {
    // A16 of docs/architecture.md.
    #[test]
    fn no_secret_survives_under_its_name((secret, value) in (secret_name(), secret()).prop_flat_map(|(name, secret)| {
        (Just(secret.clone()), buried(json!({ (name): secret })))
    })) {
        let redacted = redact(&value).to_string();
        prop_assert!(!redacted.contains(&secret), "{} still in {}", secret, redacted);
        prop_assert!(redacted.contains(REDACTED));
    }

    #[test]
    fn no_secret_survives_in_text(
        before in "[a-z .,:\"'{}\\\\\n]{0,20}",
        after in "[a-z .,\"'{}\\\\\n]{0,20}",
        name in secret_name(),
        secret in secret(),
        form in 0..9_u8,
    ) {
        let planted = match form {
            0 => format!("{name}={secret}"),
            1 => format!("{name}: {secret}"),
            2 => format!("\"{name}\":\"{secret}\""),
            3 => format!("\\\"{name}\\\": \\\"{secret}\\\""),
            4 => format!("Bearer {secret}"),
            5 => format!("Basic {secret}"),
            6 => format!("https://ada:{}@example.org/", secret.replace('/', "")),
            7 => format!("'{name}' => '{secret}'"),
            _ => format!("--{name} {secret}"),
        };
        let text = format!("{before} {planted} {after}");
        let redacted = redact_text(&text);
        prop_assert!(!redacted.contains(&secret.replace('/', "")), "{} became {}", text, redacted);
    }

    #[test]
    fn any_value_can_be_redacted_and_redacting_twice_changes_no_json(text in ".{0,200}") {
        let once = redact(&json!({ "text": text, "nested": { "list": [text] } }));
        prop_assert_eq!(redact(&once), once);
    }
}
