//! A sample request that an admin pastes: would it be let in? Says at which step it fails, which no sender is told.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use midwatch_engine::{reading, secrets::hashed};
use midwatch_events::{Micros, key::Digest};
use serde::Serialize;

use super::{
    judge::{Held, Request, Step, content_type, judge},
    look::look,
    place::lines,
    preset::{Preset, find},
};

/// The longest sample, in bytes.
pub const SAMPLE_BYTES_MAX: usize = 1 << 20;

/// A request that was pasted.
#[derive(Clone, Debug)]
pub struct Pasted {
    /// Its query, if a first line says one.
    pub query: Option<String>,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

/// What became of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// It would be let in.
    pub verified: bool,
    /// Where it failed.
    pub step: Option<Step>,
    /// What that means, in a sentence.
    pub sentence: String,
    /// The signature itself is right, and only the time is not: usual for a request that was sent a while ago.
    pub only_too_old: bool,
    /// The sender's own id.
    pub id: Option<String>,
    /// What it is about.
    pub event_type: Option<String>,
}

/// Reads a request as HTTP writes it: a first line if there is one, headers, an empty line, and the body.
///
/// # Errors
/// A sentence that says what a pasted request looks like.
pub fn paste(text: &str) -> Result<Pasted, String> {
    if text.len() > SAMPLE_BYTES_MAX {
        return Err(format!("a sample has at most {SAMPLE_BYTES_MAX} bytes"));
    }
    let text = text.trim_start();
    let (head, body) = match (text.find("\r\n\r\n"), text.find("\n\n")) {
        (Some(at), other) if other.is_none_or(|other| at < other) => text.split_at(at),
        (_, Some(at)) => text.split_at(at),
        (_, None) => (text.trim_end(), ""),
    };
    let body = body.strip_prefix("\r\n\r\n").or_else(|| body.strip_prefix("\n\n")).unwrap_or(body);
    let mut headers = HeaderMap::new();
    let mut query = None;
    for (n, line) in head.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        if n == 0 && line.ends_with(|c: char| c.is_ascii_digit()) && line.contains(" HTTP/") {
            let path = words.nth(1).unwrap_or_default();
            query = path.split_once('?').map(|(_, query)| query.to_owned());
            continue;
        }
        let wrong = || format!("line {} is no header: headers come first, then an empty line, then the body", n + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
        headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| wrong())?);
    }
    Ok(Pasted { query, headers, body: body.as_bytes().to_vec() })
}

/// Judges a sample by a preset and a secret, before there is a trigger. `url` is the public address it was posted to.
///
/// # Errors
/// A sentence: no such preset, no such template, or a secret that is none of this sender's.
pub fn by_preset(
    (preset, template): (&str, Option<&str>),
    secret: &str,
    pasted: &Pasted,
    url: Option<&str>,
    now: Micros,
) -> Result<Verdict, String> {
    let (preset, held) = by(preset, template, secret)?;
    let cap = u32::try_from(reading::UNPACKED_BYTES_MAX).unwrap_or(u32::MAX);
    Ok(check(&preset, &[held], &[], pasted, url, cap, now))
}

fn by(preset: &str, template: Option<&str>, secret: &str) -> Result<(Arc<Preset>, Held), String> {
    let preset = match template.filter(|text| !text.trim().is_empty()) {
        Some(text) => Arc::new(Preset::parse(text)?),
        None => find(preset).map_err(|error| error.to_string())?,
    };
    let key = if preset.signs() { Some(preset.key(secret)?) } else { None };
    let digest = if key.is_some() { Digest([0; 32]) } else { hashed(secret.trim()) };
    Ok((preset, Held { digest, key }))
}

/// Judges a sample as the door would, at the instant `now`.
#[must_use]
pub fn check(
    preset: &Preset,
    held: &[Held],
    chosen: &[String],
    pasted: &Pasted,
    url: Option<&str>,
    body_bytes_max: u32,
    now: Micros,
) -> Verdict {
    let Pasted { query, headers, body } = pasted;
    let cap = body_bytes_max as usize;
    let request = Request { headers, query: query.as_deref(), url, body, body_bytes_max: cap };
    let encoding = lines(headers, "content-encoding").next().map(String::from_utf8_lossy);
    let json = reading::read(content_type(headers).as_deref(), encoding.as_deref(), body, cap).unwrap_or_default();
    let looked = look(preset, chosen, &request, std::str::from_utf8(&json).ok());
    let judged = judge(preset, held, &request, now);
    let (step, sentence) = match &judged {
        Ok(_) => (None, "It verifies.".to_owned()),
        Err(failed) => (Some(failed.step), failed.sentence.clone()),
    };
    let only_too_old = step == Some(Step::Timestamp) && {
        let timeless = preset.timeless();
        judge(&timeless, held, &request, now).is_ok()
    };
    Verdict { verified: judged.is_ok(), step, sentence, only_too_old, id: looked.id, event_type: looked.event_type }
}
