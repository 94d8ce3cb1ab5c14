//! Names that say that a secret stands under them, whatever their case and separators.

use std::sync::LazyLock;

use regex::Regex;

/// A name with one of these words in it is a secret's.
const WORDS: &[&str] = &[
    "auth",
    "bearer",
    "credential",
    "credentials",
    "cookie",
    "cookies",
    "jwt",
    "otp",
    "pass",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "pwd",
    "secret",
    "secrets",
    "session",
    "sessionid",
    "sid",
    "token",
    "tokens",
];

/// A name with one of these in it is a secret's even where its words are not separated: `accesskey`, `PGPASSWORD`.
const PARTS: &[&str] = &[
    "accesskey",
    "accountkey",
    "apikey",
    "authkey",
    "authorization",
    "authtoken",
    "accesstoken",
    "cookie",
    "credential",
    "encryptionkey",
    "idtoken",
    "masterkey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "refreshtoken",
    "secret",
    "sessionid",
    "sessionkey",
    "sessiontoken",
    "sharedkey",
    "signingkey",
    "sshkey",
    "storagekey",
];

/// A name with one of these words counts or measures, so a number under it is no secret.
const COUNTS: &[&str] = &[
    "budget",
    "count",
    "counts",
    "cost",
    "estimate",
    "length",
    "limit",
    "max",
    "min",
    "num",
    "size",
    "total",
    "usage",
    "used",
    "left",
    "remaining",
    "per",
];

/// Whether what stands under the name is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    ANY_PART.is_match(&squashed(name)) || has_secret_word(name)
}

/// All of [`PARTS`] in one pass.
static ANY_PART: LazyLock<Regex> = LazyLock::new(|| super::text::literal(&PARTS.join("|")));

fn has_secret_word(name: &str) -> bool {
    // Without capitals words are told apart by what stands between them alone: most names of headers.
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| WORDS.contains(&word));
    }
    words(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

/// Whether a number under the name is a count: `tokens`, `max_tokens`, `token_count`, `sessionLimit`.
pub(super) fn is_count(name: &str) -> bool {
    let words = words(name);
    words.last().is_some_and(|word| word == "tokens") || words.iter().any(|word| COUNTS.contains(&word.as_str()))
}

/// Whether the rest of the line belongs to the value, as in `Authorization: scheme value` and `Cookie: a=1; b=2`.
pub(super) fn is_header(name: &str) -> bool {
    let whole = squashed(name);
    whole.contains("authorization") || whole.contains("cookie")
}

/// Letters and digits alone, in lower case.
fn squashed(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The words of `api_key`, `X-Api-Key`, `apiKey` and `APIKey`, in lower case.
fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| chars.get(i));
        let after = chars.get(i + 1);
        let starts_word =
            c.is_uppercase() && before.is_some_and(|b| !b.is_uppercase() || after.is_some_and(|a| a.is_lowercase()));
        if !c.is_alphanumeric() || starts_word {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
