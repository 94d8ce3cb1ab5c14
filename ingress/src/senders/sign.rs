//! Signing as a sender does: for the test sender and the tests.

use axum::http::HeaderMap;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use midwatch_engine::reading;
use midwatch_events::Micros;
use ring::signature::Ed25519KeyPair;
use serde_json::Value;

use super::{
    judge::{Request, Step},
    key::{Form, decoded, encoded, hmac},
    place::Place,
    preset::{Algorithm, Encoding, Part, Preset, Signature, Unit},
};

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned<'a> {
    /// The secret; for Ed25519 the private key's 32 bytes, written as the public key is.
    pub secret: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// What kind it is.
    pub content_type: &'a str,
    /// The delivery's id, for senders that give one.
    pub id: &'a str,
    /// What it is about, for senders that say so in a header.
    pub event_type: Option<&'a str>,
    /// The public address it is posted to.
    pub url: &'a str,
    /// The instant.
    pub now: Micros,
}

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body: as it was given, but for a timestamp that belongs into it.
    pub body: Vec<u8>,
    /// A query that is added to the address.
    pub query: Option<String>,
}

/// Signs as this sender does.
///
/// # Errors
/// A sentence: the secret is not of this sender, or the body has no place for what belongs into it.
pub fn sign(preset: &Preset, unsigned: &Unsigned<'_>) -> Result<Outgoing, String> {
    let mut out = Outgoing { headers: vec![], body: unsigned.body.to_vec(), query: None };
    let mut add = |name: &str, value: String| out.headers.push((name.to_owned(), value));
    add("content-type", unsigned.content_type.to_owned());
    if let Some([Place::Header(name)]) = preset.id.first().map(|together| together.0.as_slice()) {
        add(name, unsigned.id.to_owned());
    }
    let named = preset.event_type.iter().find_map(|place| match place {
        Place::Header(name) => Some(name),
        _ => None,
    });
    if let (Some(name), Some(event_type)) = (named, unsigned.event_type) {
        add(name, event_type.to_owned());
    }
    if !preset.signs() {
        along(preset, unsigned.secret, &mut out)?;
        return Ok(out);
    }
    let timestamp = stamped(preset, unsigned.now, &mut out)?;
    for signature in &preset.signature {
        let Some(text) = one(preset, signature, unsigned, &timestamp, &out.body)? else { continue };
        let value = format!("{}{text}", signature.prefix);
        match out.headers.iter_mut().find(|(name, _)| *name == signature.header) {
            Some((_, there)) => *there = format!("{there}{}{value}", signature.split.unwrap_or(',')),
            None => out.headers.push((signature.header.clone(), value)),
        }
    }
    Ok(out)
}

/// A secret that is sent along, at the first place a request can hold it.
fn along(preset: &Preset, secret: &str, out: &mut Outgoing) -> Result<(), String> {
    match preset.token.first() {
        Some(Place::Header(name)) => out.headers.push((name.clone(), secret.to_owned())),
        Some(Place::Bearer) => out.headers.push(("authorization".to_owned(), format!("Bearer {secret}"))),
        Some(Place::Basic) => {
            let pair = STANDARD.encode(format!("midwatch:{secret}"));
            out.headers.push(("authorization".to_owned(), format!("Basic {pair}")));
        }
        Some(Place::Query(name)) => {
            let mut pairs = form_urlencoded::Serializer::new(String::new());
            out.query = Some(pairs.append_pair(name, secret).finish());
        }
        Some(Place::Body(at)) => {
            let parts: Vec<_> = at.split('/').skip(1).collect();
            let text = Value::String(secret.to_owned());
            put_into(&mut out.body, |json| put_everywhere(json, &parts, &text))?;
        }
        None => {}
    }
    Ok(())
}

fn put_into(body: &mut Vec<u8>, put: impl FnOnce(&mut Value) -> bool) -> Result<(), String> {
    let json = serde_json::from_slice(body).ok().and_then(|mut json: Value| put(&mut json).then_some(json));
    let json = json.ok_or("the body must be JSON with the place this sender writes to")?;
    *body = json.to_string().into_bytes();
    Ok(())
}

fn put_everywhere(json: &mut Value, at: &[&str], value: &Value) -> bool {
    match (at, json) {
        ([name], Value::Object(members)) => members.insert((*name).to_owned(), value.clone()).is_none_or(|_| true),
        (["*", rest @ ..], Value::Array(items)) => {
            !items.is_empty() && items.iter_mut().all(|item| put_everywhere(item, rest, value))
        }
        ([name, rest @ ..], Value::Object(members)) => {
            members.get_mut(*name).is_some_and(|inside| put_everywhere(inside, rest, value))
        }
        _ => false,
    }
}

/// Puts the instant where this sender says it, and answers with its text.
fn stamped(preset: &Preset, now: Micros, out: &mut Outgoing) -> Result<String, String> {
    let Some(timestamp) = &preset.timestamp else { return Ok(String::new()) };
    let number = match timestamp.unit {
        Unit::S => now.0 / 1_000_000,
        Unit::Ms => now.0 / 1_000,
    };
    match &timestamp.place {
        Place::Header(name) => out.headers.push((name.clone(), format!("{}{number}", timestamp.prefix))),
        Place::Body(at) => {
            let parts: Vec<_> = at.split('/').skip(1).collect();
            put_into(&mut out.body, |json| put_everywhere(json, &parts, &Value::from(number)))?;
        }
        Place::Query(_) | Place::Bearer | Place::Basic => {}
    }
    Ok(number.to_string())
}

/// One signature as text; none where the secret is another kind's.
fn one(
    preset: &Preset,
    signature: &Signature,
    unsigned: &Unsigned<'_>,
    timestamp: &str,
    body: &[u8],
) -> Result<Option<String>, String> {
    let form = if signature.signed.holds(&Part::Form) { form(unsigned, body)? } else { Vec::new() };
    let part = |part: &Part| match part {
        Part::Text(text) => text.clone().into_bytes(),
        Part::Id => unsigned.id.as_bytes().to_vec(),
        Part::Timestamp => timestamp.as_bytes().to_vec(),
        Part::Body => body.to_vec(),
        Part::Url => unsigned.url.as_bytes().to_vec(),
        Part::Form => form.clone(),
    };
    let signed: Vec<u8> = signature.signed.0.iter().flat_map(part).collect();
    let bytes = match signature.algorithm {
        Algorithm::Ed25519 => match private(preset, unsigned.secret) {
            Some(pair) => pair.sign(&signed).as_ref().to_vec(),
            None if preset.signature.len() > 1 => return Ok(None),
            None => return Err("give the private key's 32 bytes, written as the public key is".to_owned()),
        },
        algorithm @ (Algorithm::HmacSha1 | Algorithm::HmacSha256 | Algorithm::HmacSha512) => {
            if private(preset, unsigned.secret).is_some() {
                return Ok(None);
            }
            let key = preset.key(unsigned.secret)?;
            let Some(key) = key.hmac_key() else { return Ok(None) };
            hmac(algorithm, key, &[&signed])
        }
    };
    Ok(Some(encoded(signature.encoding, &bytes)))
}

/// A private key, where a form for Ed25519 fits it: `whsk_` where the public one has `whpk_`.
fn private(preset: &Preset, secret: &str) -> Option<Ed25519KeyPair> {
    let form = preset.key.iter().find(|form| form.algorithm == Algorithm::Ed25519)?;
    let inside = secret.strip_prefix(&form.prefix.replace("pk_", "sk_"))?;
    let encoding = if form.form == Form::Hex { Encoding::Hex } else { Encoding::Base64 };
    let bytes = decoded(encoding, inside.as_bytes())?;
    Ed25519KeyPair::from_seed_unchecked(bytes.get(..32)?).ok()
}

fn form(unsigned: &Unsigned<'_>, body: &[u8]) -> Result<Vec<u8>, String> {
    let mut headers = HeaderMap::new();
    if let Ok(value) = unsigned.content_type.parse() {
        headers.insert(axum::http::header::CONTENT_TYPE, value);
    }
    let request =
        Request { headers: &headers, query: None, url: None, body, body_bytes_max: reading::UNPACKED_BYTES_MAX };
    super::judge::form(&request).map_err(|failed| match failed.step {
        Step::Form => "this sender signs forms: give a body of application/x-www-form-urlencoded".to_owned(),
        _ => failed.sentence,
    })
}
