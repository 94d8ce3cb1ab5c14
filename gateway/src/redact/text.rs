//! Secrets in free text: pairs of name and value, schemes, well-known shapes, what stands before the host in a URL.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::{REDACTED, names};

/// The text without what looks like a secret in it.
#[must_use]
pub fn redact_text(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { searched(text) }
}

/// Whether nothing in it can be a secret's: one word without what separates a name, a scheme or a key from what follows,
/// and of no well-known shape. Said in a fraction of the time that a search takes; most values of headers are so.
fn is_plain(text: &str) -> bool {
    let separates = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b || b"=:%@+".contains(&byte);
    text.bytes().all(|byte| byte.is_ascii() && !separates(byte)) && !SHAPE.is_match(text)
}

fn searched(text: &str) -> String {
    let text = PRIVATE_KEY.replace_all(text, REDACTED);
    let text = redact_pairs(&text);
    let text = SCHEME.replace_all(&text, redact_scheme);
    let text = SHAPE.replace_all(&text, format!("${{word}}{REDACTED}"));
    USER_INFO.replace_all(&text, format!("${{scheme}}{REDACTED}@")).into_owned()
}

static PRIVATE_KEY: LazyLock<Regex> = LazyLock::new(|| {
    literal(r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\z)")
});

static SCHEME: LazyLock<Regex> =
    LazyLock::new(|| literal(r"(?i)(?P<scheme>bearer|basic)(?P<gap>(?:\s|%20|\+)+)(?P<value>[^\s\x22'<>\[\],;]+)"));

/// Prefixes that are never a word's are looked for anywhere; the others only where a word begins (also behind an
/// escaped line break, as errors quote them).
static SHAPE: LazyLock<Regex> = LazyLock::new(|| {
    literal(
        r"(?x)
        (?: gh[pousr]_[A-Za-z0-9]{16,} | github_pat_\w{16,} | glpat-[\w-]{16,} | xox[a-z]-[\w-]{8,} | xapp-[\w-]{8,}
          | (?:AKIA|ASIA)[A-Z0-9]{16} | AIza[\w-]{30,} | [sr]k_(?:live|test)_[A-Za-z0-9]{10,} | npm_[A-Za-z0-9]{30,}
          | pypi-[\w-]{20,} | eyJ[\w-]{5,}\.[\w-]{4,}(?:\.[\w-]*)* )
        | (?P<word>\b|_|\\[nrt]) (?: sk-[\w-]{16,} | mw_[\w-]{16,} | hf_[A-Za-z0-9]{16,} | whsec_[\w+/=-]{16,} )
        ",
    )
});

static USER_INFO: LazyLock<Regex> =
    LazyLock::new(|| literal(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#\x22'<>]*@"));

/// A name and what separates it from its value; after `--` a blank does.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    literal(
        r"(?x)
        (?P<quote>\\*[\x22'])? (?P<dashes>--?)? (?P<name>[A-Za-z][A-Za-z0-9_.-]*) (?P<index>\[\w*\])? (?P<end>\\*[\x22'])?
        (?P<between> \s*(?:=>|:=|[:=]|%3[AaDd])\s* | \s+ )",
    )
});

#[expect(clippy::expect_used, reason = "the pattern is in this file, and each is compiled by a test")]
pub(super) fn literal(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this file is right")
}

fn redact_scheme(found: &Captures<'_>) -> String {
    let value = &found["value"];
    // "a basic understanding", "the bearer of this": short or plain words are no credentials.
    let plain = value.len() < 16 && value.chars().all(|c| c.is_ascii_lowercase() || c == '.');
    if plain { found[0].to_owned() } else { format!("{}{}{REDACTED}", &found["scheme"], &found["gap"]) }
}

/// Redacts `name=value`, `name: value`, `"name": "value"` and `--name value` where the name is a secret's.
fn redact_pairs(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut done = 0;
    while let Some(found) = NAME.captures_at(text, done) {
        let (Some(whole), Some(name)) = (found.get(0), found.name("name")) else { break };
        redacted.push_str(&text[done..whole.end()]);
        done = whole.end();
        let blank = found["between"].chars().all(char::is_whitespace);
        if names::is_secret(name.as_str()) && (!blank || found.name("dashes").is_some()) {
            let value = value_length(&text[done..], &found, names::is_header(name.as_str()));
            if value > 0 && !is_plain_number(&text[done..done + value], name.as_str()) {
                redacted.push_str(REDACTED);
                done += value;
            }
        }
    }
    redacted.push_str(&text[done..]);
    redacted
}

fn is_plain_number(value: &str, name: &str) -> bool {
    names::is_count(name) && value.trim_end_matches([',', '.', ';', ')', '}', ']']).chars().all(|c| c.is_ascii_digit())
}

/// How many bytes of the text belong to the value that it begins with. A quoted value keeps no quotes.
fn value_length(rest: &str, found: &Captures<'_>, header: bool) -> usize {
    if rest.starts_with(REDACTED) {
        return REDACTED.len();
    }
    let slashes = rest.len() - rest.trim_start_matches('\\').len();
    match rest[slashes..].chars().next() {
        Some(quote @ ('"' | '\'')) => slashes + 1 + to_quote(&rest[slashes + 1..], quote, slashes, true),
        _ if header => {
            // In `-H "Authorization: Bearer …"` the quote before the name closes behind the value.
            let opened = found.name("quote").filter(|_| found.name("end").is_none()).map(|q| q.as_str());
            let quote = opened.and_then(|quote| quote.chars().next_back());
            quote.map_or_else(|| to_line_end(rest), |q| to_quote(rest, q, opened.map_or(0, str::len) - 1, false))
        }
        _ => rest.find(|c: char| c.is_whitespace() || matches!(c, '&' | '"' | '\'' | '<')).unwrap_or(rest.len()),
    }
}

fn to_line_end(rest: &str) -> usize {
    rest.find(['\n', '\r']).unwrap_or(rest.len())
}

/// Up to the quote that closes, and with it: one with no more backslashes before it than the one that opened had.
/// Without one the text was cut, and all of it belongs to the value.
fn to_quote(rest: &str, quote: char, opened_with: usize, and_with_it: bool) -> usize {
    for (at, _) in rest.match_indices(quote) {
        let before = &rest[..at];
        let slashes = before.len() - before.trim_end_matches('\\').len();
        if slashes <= opened_with {
            return if and_with_it { at + 1 } else { at - slashes };
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        // What is plain is what a search would leave as it is, for any mixture of what the patterns are made of.
        #[test]
        fn plain_text_holds_nothing_that_a_search_would_find(
            pieces in proptest::collection::vec(proptest::sample::select(vec![
                "bearer", "Basic", "password", "token", "api-key", "--", "-", "_", "=", ":", "://", "@", " ", "%20", "+",
                "%3A", "\"", "'", "{", "[", "a", "Z", "0123456789abcdef", "ghp_", "sk-", "mw_", "hf_", "whsec_", "eyJ", ".",
                "AKIA", "-----BEGIN", "PRIVATE KEY-----", "npm_", "\\n", "\u{a0}", "\u{b}", "é", ";", ",", "/", "user",
            ]), 0..12)
        ) {
            let text = pieces.concat();
            if is_plain(&text) {
                proptest::prop_assert_eq!(searched(&text), text);
            }
        }
    }

    #[test]
    fn every_pattern_compiles() {
        for pattern in [&PRIVATE_KEY, &SCHEME, &SHAPE, &USER_INFO, &NAME] {
            assert!(!pattern.as_str().is_empty());
        }
    }
}
