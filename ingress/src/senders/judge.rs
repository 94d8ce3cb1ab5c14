//! Is it from who it says? One function for the door and for the check of a pasted sample, so that they never differ.
//!
//! Signatures and secrets are compared in constant time, and always with every secret that is good, so that how long it
//! takes says nothing about a secret, nor whether there is an old one.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use midwatch_engine::reading::{self, Unreadable};
use midwatch_events::{
    Micros,
    key::{Digest, hash_parts},
};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use super::{
    key::{Key, decoded, hmac},
    place::{self, lines},
    pointer,
    preset::{Algorithm, Packed, Part, Preset, Signature, Timestamp, Unit},
};

/// Signatures of one request that are looked at.
const SIGNATURES_MAX: usize = 32;
/// The longest timestamp, in digits.
const DIGITS_MAX: usize = 16;

/// A request as it came.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its query, as it came.
    pub query: Option<&'a str>,
    /// The public address that the sender posted to, without the query; none where it is not known.
    pub url: Option<&'a str>,
    /// Its body, byte for byte.
    pub body: &'a [u8],
    /// The longest body there may be once unpacked.
    pub body_bytes_max: usize,
}

/// A secret that is good now.
#[derive(Clone, Debug)]
pub struct Held {
    /// What it is recognised by.
    pub digest: Digest,
    /// The key, where the sender signs; else the digest is the secret's SHA-256.
    pub key: Option<Key>,
}

/// A request that is from who it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genuine {
    /// The secret it came with.
    pub secret: Digest,
    /// Hash of what was signed, where something was.
    pub signed: Option<[u8; 32]>,
}

/// Where a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A secret that is sent along is not there, or another.
    Secret,
    /// The body is packed in a way that cannot be checked.
    Packing,
    /// The public address is not known here.
    Url,
    /// The id that is signed is not there.
    Id,
    /// The time it was sent is not there, or too far from now.
    Timestamp,
    /// The form cannot be read.
    Form,
    /// The signature is not there.
    Header,
    /// The signature is not one.
    Encoding,
    /// The signature is another's, or of something else.
    Signature,
}

/// Why a request is not authentic. For admins; a sender is never told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Failed {
    /// Where.
    pub step: Step,
    /// What is wrong, in a sentence that holds no secret.
    pub sentence: String,
}

fn failed<T>(step: Step, sentence: impl Into<String>) -> Result<T, Failed> {
    Err(Failed { step, sentence: sentence.into() })
}

/// Judges a request by a preset, at the instant `now`, with the secrets that are good then.
///
/// # Errors
/// [`Failed`], at the first step that does.
pub fn judge(preset: &Preset, held: &[Held], request: &Request<'_>, now: Micros) -> Result<Genuine, Failed> {
    if !preset.signs() {
        return by_secret(preset, held, request);
    }
    let body = signed_body(preset, request)?;
    let sent = Sent::of(preset, request, &body, now)?;
    let genuine = by_signature(preset, held, request, &sent)?;
    // A timestamp in the body is read only now: nothing is parsed before it is authentic.
    if let Some(timestamp) = &preset.timestamp
        && let place::Place::Body(at) = &timestamp.place
    {
        let text = std::str::from_utf8(&body).ok();
        let found = text.and_then(|json| pointer::at(json, at).first().and_then(|raw| pointer::scalar(raw)));
        in_time(timestamp, found.as_deref().unwrap_or_default().as_bytes(), now)?;
    }
    Ok(genuine)
}

fn by_secret(preset: &Preset, held: &[Held], request: &Request<'_>) -> Result<Genuine, Failed> {
    let given = preset.token.iter().flat_map(|place| place.secrets(request.headers, request.query, request.body));
    let given: Vec<[u8; 32]> = given.take(SIGNATURES_MAX).map(|secret| Sha256::digest(secret).into()).collect();
    let mut found = None;
    for held in held {
        let right = given.iter().fold(Choice::from(0), |right, given| right | held.digest.0.ct_eq(given));
        if right.into() {
            found = Some(held.digest);
        }
    }
    match found {
        Some(secret) => Ok(Genuine { secret, signed: None }),
        None if given.is_empty() => {
            let places = preset.token.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            failed(Step::Secret, format!("there is no secret: it is looked for in {places}"))
        }
        None => failed(Step::Secret, "a secret is there, and it is not this trigger's"),
    }
}

/// The bytes of the body that the signature is over.
fn signed_body<'a>(preset: &Preset, request: &Request<'a>) -> Result<Cow<'a, [u8]>, Failed> {
    if preset.packed != Packed::Plain {
        return Ok(Cow::Borrowed(request.body));
    }
    let encoding = lines(request.headers, header::CONTENT_ENCODING.as_str()).next();
    let encoding = encoding.map(|line| String::from_utf8_lossy(line));
    reading::unpack(encoding.as_deref(), request.body, request.body_bytes_max)
        .or_else(|error: Unreadable| failed(Step::Packing, format!("the body cannot be unpacked: {error}")))
}

/// What the parts of the signed material are in one request.
struct Sent<'a> {
    id: &'a [u8],
    timestamp: Vec<u8>,
    body: &'a [u8],
    url: String,
    form: Vec<u8>,
}

impl<'a> Sent<'a> {
    fn of(preset: &Preset, request: &Request<'a>, body: &'a [u8], now: Micros) -> Result<Self, Failed> {
        let holds = |part| preset.signature.iter().any(|signature| signature.signed.holds(part));
        let mut sent = Self { id: b"", timestamp: Vec::new(), body, url: String::new(), form: Vec::new() };
        if holds(&Part::Url) {
            let Some(url) = request.url else {
                return failed(
                    Step::Url,
                    "the public address is signed, and it is not known here: start with --public-url",
                );
            };
            sent.url = request.query.map_or_else(|| url.to_owned(), |query| format!("{url}?{query}"));
        }
        if holds(&Part::Form) {
            sent.form = form(request)?;
        }
        if holds(&Part::Id) {
            let name = preset.signed_id().unwrap_or_default();
            match lines(request.headers, name).next().filter(|id| !id.is_empty()) {
                Some(id) => sent.id = id,
                None => return failed(Step::Id, format!("the id that is signed is not there: no header `{name}`")),
            }
        }
        if let Some(timestamp) = &preset.timestamp
            && let place::Place::Header(name) = &timestamp.place
        {
            let found = pieces(request.headers, name, timestamp.split, &timestamp.prefix).next();
            sent.timestamp = found.unwrap_or_default().to_vec();
            in_time(timestamp, &sent.timestamp, now)?;
        }
        Ok(sent)
    }

    fn parts<'s>(&'s self, signature: &'s Signature) -> Vec<&'s [u8]> {
        let part = |part: &'s Part| match part {
            Part::Text(text) => text.as_bytes(),
            Part::Id => self.id,
            Part::Timestamp => &self.timestamp,
            Part::Body => self.body,
            Part::Url => self.url.as_bytes(),
            Part::Form => &self.form,
        };
        signature.signed.0.iter().map(part).collect()
    }
}

/// The values in the lines of a header that begin with `prefix`, without it.
fn pieces<'a>(
    headers: &'a HeaderMap,
    name: &str,
    split: Option<char>,
    prefix: &'a str,
) -> impl Iterator<Item = &'a [u8]> {
    let split = split.and_then(|split| u8::try_from(split).ok());
    let each = lines(headers, name).flat_map(move |line| line.split(move |byte| Some(*byte) == split));
    each.filter_map(move |piece| piece.trim_ascii().strip_prefix(prefix.as_bytes()))
}

fn by_signature(preset: &Preset, held: &[Held], request: &Request<'_>, sent: &Sent<'_>) -> Result<Genuine, Failed> {
    let mut genuine = None;
    let (mut there, mut readable) = (false, false);
    for signature in &preset.signature {
        let given: Vec<_> = pieces(request.headers, &signature.header, signature.split, &signature.prefix)
            .take(SIGNATURES_MAX)
            .collect();
        there |= !given.is_empty();
        let given: Vec<_> = given.iter().filter_map(|text| decoded(signature.encoding, text)).collect();
        readable |= !given.is_empty();
        let parts = sent.parts(signature);
        for held in held {
            if given
                .iter()
                .fold(Choice::from(0), |right, given| right | right_one(signature, held, &parts, given))
                .into()
            {
                genuine = Some(Genuine { secret: held.digest, signed: Some(hash_parts(&parts)) });
            }
        }
    }
    if let Some(genuine) = genuine {
        return Ok(genuine);
    }
    let header = preset.signature.first().map(|signature| signature.header.as_str()).unwrap_or_default();
    match (there, readable) {
        (false, _) => {
            let prefixes = preset.signature.iter().map(|signature| format!("`{}`", signature.prefix));
            let prefixes = prefixes.collect::<Vec<_>>().join(" or ");
            failed(
                Step::Header,
                format!("there is no signature: no `{header}` with a value that begins with {prefixes}"),
            )
        }
        (true, false) => {
            failed(Step::Encoding, format!("the signature in `{header}` is not written as this sender writes it"))
        }
        (true, true) => failed(
            Step::Signature,
            "the signature is of other bytes, or was made with another secret: compare the secrets, and make sure that \
             nothing on the way changes the body",
        ),
    }
}

fn right_one(signature: &Signature, held: &Held, parts: &[&[u8]], given: &[u8]) -> Choice {
    let Some(key) = &held.key else { return Choice::from(0) };
    match signature.algorithm {
        Algorithm::HmacSha1 | Algorithm::HmacSha256 | Algorithm::HmacSha512 => match key.hmac_key() {
            Some(key) => hmac(signature.algorithm, key, parts).ct_eq(given),
            None => Choice::from(0),
        },
        Algorithm::Ed25519 => Choice::from(u8::from(key.ed25519(&parts.concat(), given))),
    }
}

/// Digits and nothing else: a sign, a fraction or a space is another timestamp than the one that was meant.
fn in_time(timestamp: &Timestamp, text: &[u8], now: Micros) -> Result<(), Failed> {
    let digits = !text.is_empty() && text.len() <= DIGITS_MAX && text.iter().all(u8::is_ascii_digit);
    let number: Option<i64> = std::str::from_utf8(text).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    let Some(number) = number else {
        let sentence = if text.is_empty() { "is not there" } else { "is no number" };
        return failed(Step::Timestamp, format!("the timestamp in {} {sentence}", timestamp.place));
    };
    let unit_us = match timestamp.unit {
        Unit::S => 1_000_000,
        Unit::Ms => 1_000,
    };
    let sent_us = i128::from(number) * unit_us;
    let late_s = (i128::from(now.0) - sent_us).div_euclid(1_000_000);
    let early_s = (sent_us - i128::from(now.0)).div_euclid(1_000_000);
    if late_s > i128::from(timestamp.past_s) {
        return failed(Step::Timestamp, format!("it was sent {late_s} s ago, and {} are the most", timestamp.past_s));
    }
    if early_s > i128::from(timestamp.future_s) {
        let sentence =
            format!("it was sent {early_s} s from now, and {} are the most: compare the clocks", timestamp.future_s);
        return failed(Step::Timestamp, sentence);
    }
    Ok(())
}

/// The fields of a form, sorted, each name and value one after the other; equal pairs once. Where the address holds the body's SHA-256
/// instead (Twilio does that for what is no form), that is compared and nothing is left to sign.
pub(super) fn form(request: &Request<'_>) -> Result<Vec<u8>, Failed> {
    if let Some(hash) = place::parameters(request.query, "bodySHA256").next() {
        let found = super::key::encoded(super::preset::Encoding::Hex, &Sha256::digest(request.body));
        let right: bool = found.as_bytes().ct_eq(hash.to_ascii_lowercase().as_bytes()).into();
        return if right {
            Ok(Vec::new())
        } else {
            failed(Step::Form, "the body is not the one whose hash the address holds")
        };
    }
    let Some(mut fields) = reading::fields(request.body) else {
        return failed(Step::Form, "the form has too many fields");
    };
    if !request.body.is_empty() && !reading::is_form(content_type(request.headers).as_deref()) {
        return failed(Step::Form, "the body is no form, and the address does not hold its hash");
    }
    fields.sort();
    fields.dedup();
    Ok(fields.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()].concat()).collect())
}

/// What kind a body says it is.
pub(super) fn content_type(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    lines(headers, header::CONTENT_TYPE.as_str()).next().map(String::from_utf8_lossy)
}
