//! How senders check an address before they use it. None of it is a delivery, and none of it changes anything.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::json;
use subtle::ConstantTimeEq as _;

use super::{
    judge::Held,
    key::{encoded, hmac},
    place::{lines, parameters},
    pointer,
    preset::{Algorithm, Encoding, Preset},
};

/// The longest text that is given back to whoever sent it.
const ECHO_BYTES_MAX: usize = 4_096;

/// A way to check an address.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Handshake {
    /// An authentic request gets one of its values back.
    Echo { when: String, is: String, value: String },
    /// An authentic request gets one of its values back, and its HMAC by the secret.
    Sign { when: String, is: String, value: String, plain: String, signed: String },
    /// An authentic request gets a fixed answer.
    Reply { when: String, is: String, unless: Option<String>, status: u16, body: Option<String> },
    /// A request with this query parameter gets its value back, before it is known who sent it.
    Query { name: String },
    /// A GET with a token that whoever has the secret knows.
    Hub,
    /// An OPTIONS that asks whether this origin may send.
    Origin,
}

/// What a sender gets for a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// What kind the body is; none without one.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: String,
    /// Headers that belong to it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Answer {
    fn text(body: String) -> Self {
        Self { status: 200, content_type: Some("text/plain; charset=utf-8"), body, headers: Vec::new() }
    }

    fn json(status: u16, body: String) -> Self {
        let content_type = (!body.is_empty()).then_some("application/json");
        Self { status, content_type, body, headers: Vec::new() }
    }
}

/// The answer to a POST that checks the address before it is known who sends it.
#[must_use]
pub fn before(preset: &Preset, query: Option<&str>) -> Option<Answer> {
    preset.handshake.iter().find_map(|handshake| match handshake {
        Handshake::Query { name } => {
            parameters(query, name).next().filter(|text| text.len() <= ECHO_BYTES_MAX).map(Answer::text)
        }
        Handshake::Echo { .. }
        | Handshake::Sign { .. }
        | Handshake::Reply { .. }
        | Handshake::Hub
        | Handshake::Origin => None,
    })
}

/// The answer to an authentic POST that is no delivery but a check. `json` is its body as JSON text.
#[must_use]
pub fn with(preset: &Preset, held: Option<&Held>, json: &str) -> Option<Answer> {
    let is = |when: &str, is: &str| {
        pointer::at(json, when).first().and_then(|raw| pointer::scalar(raw)).is_some_and(|found| found == is)
    };
    let value = |at: &str| {
        pointer::at(json, at).first().and_then(|raw| pointer::text(raw)).filter(|text| text.len() <= ECHO_BYTES_MAX)
    };
    preset.handshake.iter().find_map(|handshake| match handshake {
        Handshake::Echo { when, is: word, value: at } => {
            if is(when, word) {
                value(at).map(Answer::text)
            } else {
                None
            }
        }
        Handshake::Sign { when, is: word, value: at, plain, signed } => {
            let text = value(at).filter(|_| is(when, word))?;
            let key = held?.key.as_ref()?.hmac_key()?;
            let proof = encoded(Encoding::Hex, &hmac(Algorithm::HmacSha256, key, &[text.as_bytes()]));
            Some(Answer::json(200, json!({ plain.as_str(): text, signed.as_str(): proof }).to_string()))
        }
        Handshake::Reply { when, is: word, unless, status, body } => {
            let other = unless.as_ref().is_some_and(|at| !pointer::at(json, at).is_empty());
            (is(when, word) && !other).then(|| Answer::json(*status, body.clone().unwrap_or_default()))
        }
        Handshake::Query { .. } | Handshake::Hub | Handshake::Origin => None,
    })
}

/// The answer to a GET or OPTIONS that checks the address: none where this sender makes no such check, `Err` where it
/// does and what it says is wrong.
#[must_use]
pub fn probe(
    preset: &Preset,
    held: &[Held],
    method: &Method,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Option<Result<Answer, ()>> {
    preset.handshake.iter().find_map(|handshake| match (handshake, method) {
        (Handshake::Hub, &Method::GET) => Some(hub(held, query).ok_or(())),
        (Handshake::Origin, &Method::OPTIONS) => Some(origin(headers).ok_or(())),
        _ => None,
    })
}

fn hub(held: &[Held], query: Option<&str>) -> Option<Answer> {
    let one = |name| parameters(query, name).next();
    let given = one("hub.verify_token")?;
    let tokens = held.iter().filter_map(|held| held.key.as_ref()?.verify_token());
    let right = tokens.fold(false, |right, token| right | bool::from(token.as_bytes().ct_eq(given.as_bytes())));
    let challenge = one("hub.challenge").filter(|text| text.len() <= ECHO_BYTES_MAX)?;
    (right && one("hub.mode").as_deref() == Some("subscribe")).then(|| Answer::text(challenge))
}

fn origin(headers: &HeaderMap) -> Option<Answer> {
    let asked = lines(headers, "webhook-request-origin").next()?;
    let name = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:/".contains(byte);
    if asked.is_empty() || asked.len() > 255 || !asked.iter().all(name) {
        return None;
    }
    let headers = vec![
        (HeaderName::from_static("webhook-allowed-origin"), HeaderValue::from_bytes(asked).ok()?),
        (HeaderName::from_static("webhook-allowed-rate"), HeaderValue::from_static("*")),
        (header::ALLOW, HeaderValue::from_static("POST, OPTIONS")),
    ];
    Some(Answer { status: 200, content_type: None, body: String::new(), headers })
}

impl Preset {
    /// Whether its sender checks the address by a token that is shown beside the secret.
    #[must_use]
    pub fn has_verify_token(&self) -> bool {
        self.handshake.iter().any(|handshake| matches!(handshake, Handshake::Hub))
    }
}
