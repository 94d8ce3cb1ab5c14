//! A delivery's way in. The order of the checks is written here once, top to bottom, and nowhere else.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Request as Incoming, State},
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use midwatch_commands::Refusal;
use midwatch_engine::{
    EngineError,
    intake::{Posted, Taken},
    reading::{self, Unreadable},
};
use midwatch_events::{Micros, delivery::ReceivedStatus, id::DeliveryId};
use serde::Serialize;

use super::{Doors, body, headers, json, known::Door, status};
use crate::{
    error::{Kind, Problem, RETRY_S},
    senders::{self, Failed, Genuine, Packed, Preset, Request, Step},
    server::{Peer, Seat, Waiting},
};

/// Seconds after which a sender should try again while scheduling is halted: a halt lasts as long as people need.
const HALTED_RETRY_S: u32 = 60;

/// What a sender is told of its delivery.
#[derive(Debug, Serialize)]
struct Answer {
    status: ReceivedStatus,
    delivery: DeliveryId,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

/// What a path under `/hooks/` names.
#[derive(Debug, PartialEq, Eq)]
enum Target<'a> {
    Endpoint(&'a str),
    Delivery { endpoint: &'a str, delivery: &'a str },
    Nothing,
}

impl<'a> Target<'a> {
    /// Reads the path as it came. Nothing is decoded: `%2F`, `%00` and `..` are in no endpoint's alphabet.
    fn of(path: &'a str) -> Self {
        let rest = path.strip_prefix("/hooks/").unwrap_or_default();
        match rest.split_once('/') {
            None if well_formed(rest) => Self::Endpoint(rest),
            Some((endpoint, rest)) if well_formed(endpoint) => match rest.strip_prefix("deliveries/") {
                Some(delivery) => Self::Delivery { endpoint, delivery },
                None => Self::Nothing,
            },
            None | Some(_) => Self::Nothing,
        }
    }
}

/// 144 random bits in base64url.
fn well_formed(endpoint: &str) -> bool {
    endpoint.len() == 24 && endpoint.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Everything under `/hooks/`.
pub(super) async fn answer(State(doors): State<Arc<Doors>>, request: Incoming) -> Response {
    let (parts, mut body) = request.into_parts();
    let answered = in_order(&doors, &parts, &mut body).await;
    // What was refused before it was read is thrown away beside the answer; a slow sender had its time, and one of a
    // thousand little pieces its work.
    let had = |problem: &Problem| problem.status == StatusCode::REQUEST_TIMEOUT || problem.code == "too_many_pieces";
    if !answered.as_ref().is_err_and(had) {
        body::drain(&parts.headers, body);
    }
    answered.unwrap_or_else(IntoResponse::into_response)
}

async fn in_order(doors: &Doors, parts: &Parts, body: &mut Body) -> Result<Response, Problem> {
    if doors.halted().await? {
        return Err(halted());
    }
    let target = Target::of(parts.uri.path());
    match (&parts.method, &target) {
        // Whoever probes learns nothing and changes nothing.
        (&Method::HEAD, _) => return Ok(StatusCode::OK.into_response()),
        (&Method::POST, Target::Endpoint(_) | Target::Nothing) | (&Method::GET, Target::Delivery { .. }) => {}
        // Some senders check the address with these.
        (&Method::GET | &Method::OPTIONS, Target::Endpoint(_)) => {}
        (_, Target::Delivery { .. }) => return Err(wrong_method("GET, HEAD")),
        (_, Target::Endpoint(_) | Target::Nothing) => return Err(wrong_method("POST, HEAD")),
    }
    let address = parts.extensions.get::<Peer>().map_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    let clock = &doors.app.engine.world().clock;
    let answered = match target {
        Target::Nothing => Err(nothing_here()),
        _ if !doors.guard.admits(address, clock.monotonic()) => {
            let sentence = "too many failed requests from this address reached this process";
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, Kind::Refusal, "too_many", sentence);
            return Err(problem.retry_after(1));
        }
        Target::Endpoint(endpoint) if parts.method == Method::POST => deliver(doors, endpoint, parts, body).await,
        Target::Endpoint(endpoint) => checked(doors, endpoint, parts).await,
        Target::Delivery { endpoint, delivery } => status::status(doors, endpoint, delivery, &parts.headers).await,
    };
    // A sender over its budget is no stranger: it was authentic.
    if let Err(problem) = &answered
        && problem.status.is_client_error()
        && problem.status != StatusCode::TOO_MANY_REQUESTS
    {
        doors.guard.charge(address, clock.monotonic());
    }
    answered
}

/// A sender that checks the address before it uses it. Every other endpoint takes no such method, whether it is there or
/// not.
async fn checked(doors: &Doors, endpoint: &str, parts: &Parts) -> Result<Response, Problem> {
    let engine = &doors.app.engine;
    let other = || wrong_method("POST, HEAD");
    let door = doors.known.find(engine, endpoint).await?.ok_or_else(other)?;
    let now = engine.world().clock.now();
    let probe = |door: &Door| {
        senders::probe(&door.lock.preset, &door.lock.held(now), &parts.method, parts.uri.query(), &parts.headers)
    };
    if probe(&door).is_none() {
        return Err(other());
    }
    let opens = |door: &Door| Ok(probe(door).and_then(Result::ok));
    let (_, answer) = opened_now(doors, endpoint, door, opens).await?;
    Ok(handshake(answer))
}

fn handshake(answer: senders::Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let mut response = (status, answer.body).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    if let Some(kind) = answer.content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response.headers_mut().extend(answer.headers);
    response
}

#[tracing::instrument(name = "receive", skip_all)]
async fn deliver(doors: &Doors, endpoint: &str, parts: &Parts, body: &mut Body) -> Result<Response, Problem> {
    let engine = &doors.app.engine;
    let sent = &parts.headers;
    let door = doors.known.find(engine, endpoint).await?.ok_or_else(nothing_here)?;
    let cap = door.state.intake.body_bytes_max;
    body::check_declared(sent, cap)?;
    if let Some(answer) = senders::before(&door.lock.preset, parts.uri.query()) {
        return Ok(handshake(answer));
    }
    let seat = parts.extensions.get::<Arc<Seat>>();
    let waits_for = |what| seat.into_iter().for_each(|seat| seat.waits_for(what));
    waits_for(Waiting::Body);
    let bytes = body::read(body, cap, doors.body_deadline).await?;
    waits_for(Waiting::Nothing);
    let url =
        doors.app.settings.public_url.as_deref().map(|url| format!("{}/hooks/{endpoint}", url.trim_end_matches('/')));
    let (query, url) = (parts.uri.query(), url.as_deref());
    let asked = Request { headers: sent, query, url, body: &[], body_bytes_max: cap as usize };
    let request = Request { body: &bytes, ..asked };
    let now = engine.world().clock.now();
    let opens = |door: &Door| verified(door, &request, now);
    let (door, genuine) = opened_lately(doors, endpoint, door, opens).await?;
    let preset = &door.lock.preset;
    let json = readable(preset, &request)?;
    let text = std::str::from_utf8(&json).ok();
    let held = door.lock.held(now).into_iter().find(|held| held.digest == genuine.secret);
    if let Some(answer) = text.and_then(|json| senders::with(preset, held.as_ref(), json)) {
        opened_now(doors, endpoint, door.clone(), opens).await?;
        return Ok(handshake(answer));
    }
    let unparsed = json::unparsed(&json);
    let looked = senders::look(preset, &door.state.intake.id_pointers, &request, text.filter(|_| unparsed.is_none()));
    drop(json);
    let posted = Posted {
        headers: headers::kept(sent, &preset.secret_headers()),
        query: headers::kept_query(parts.uri.query(), preset),
        sender_id: looked.id,
        id_alone: looked.id_alone,
        signed: genuine.signed,
        alike: looked.alike,
        secret: Some(genuine.secret),
        event_type: looked.event_type,
        unparsed,
        body: bytes,
    };
    let taken = match engine.receive(door.trigger, &posted).await {
        Err(EngineError::Refused(Refusal::NotFound(_))) => {
            // The door is no longer what it was a moment ago: what that means for this request is judged anew.
            let request = Request { body: &posted.body, ..asked };
            opened_now(doors, endpoint, door.clone(), |door: &Door| verified(door, &request, now)).await?;
            return Err(nothing_here());
        }
        taken => taken.map_err(not_taken)?,
    };
    tracing::debug!(delivery = %taken.delivery, duplicate = taken.duplicate, "a delivery was taken in");
    Ok(told(taken, preset.answer))
}

/// What a sender is told of its delivery, with the status it wants to see.
fn told(taken: Taken, wanted: u16) -> Response {
    let Taken { delivery, status, duplicate } = taken;
    let code = if duplicate { StatusCode::OK } else { StatusCode::from_u16(wanted).unwrap_or(StatusCode::ACCEPTED) };
    // For senders that try again: it was recorded, but sent again it is new.
    let code = if !duplicate && status == ReceivedStatus::Refused { StatusCode::CONFLICT } else { code };
    if wanted == 204 && code != StatusCode::CONFLICT {
        return StatusCode::NO_CONTENT.into_response();
    }
    (code, Json(Answer { status, delivery, duplicate })).into_response()
}

/// Whether a door lets a request in. That the address is not known here is a fault of ours, and no sender's.
#[tracing::instrument(name = "verify", skip_all)]
fn verified(door: &Door, request: &Request<'_>, now: Micros) -> Result<Option<Genuine>, Problem> {
    match senders::judge(&door.lock.preset, &door.lock.held(now), request, now) {
        Ok(genuine) => Ok(Some(genuine)),
        Err(Failed { step: Step::Url, sentence }) => {
            tracing::error!(trigger = %door.trigger, "a delivery could not be checked: {sentence}");
            let told = "the delivery could not be checked; send it again later";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Fault, "fault", told).retry_after(RETRY_S))
        }
        Err(failed) => {
            tracing::debug!(trigger = %door.trigger, step = ?failed.step, "a request is not authentic");
            Ok(None)
        }
    }
}

/// The door as it is now, if it opens. A success is judged again by the trigger and the halt of now, because nothing is
/// recorded that would demand them: a secret that was just taken away opens nothing. A failure looks again, for one that
/// was just given, if nobody did in the last second.
pub(super) async fn opened_now<T>(
    doors: &Doors,
    endpoint: &str,
    door: Door,
    opens: impl Fn(&Door) -> Result<Option<T>, Problem>,
) -> Result<(Door, T), Problem> {
    let engine = &doors.app.engine;
    let current = match opens(&door)? {
        Some(_) if doors.halted_now().await? => return Err(halted()),
        Some(_) => doors.known.refreshed(engine, endpoint, &door).await?,
        None => doors.known.again(engine, endpoint, &door).await?.ok_or_else(not_authentic)?,
    };
    if !current.state.open() {
        return Err(nothing_here());
    }
    let opened = opens(&current)?.ok_or_else(not_authentic)?;
    Ok((current, opened))
}

/// The door as it was at most a second ago, if it opens: for what is recorded on the condition that it still is so. What
/// does not open costs no look but the one a second that a failure has.
async fn opened_lately<T>(
    doors: &Doors,
    endpoint: &str,
    door: Door,
    opens: impl Fn(&Door) -> Result<Option<T>, Problem>,
) -> Result<(Door, T), Problem> {
    let Some(opened) = opens(&door)? else { return opened_now(doors, endpoint, door, opens).await };
    let lately = doors.known.lately(&doors.app.engine, endpoint, &door).await?;
    if lately.is(&door) {
        return Ok((door, opened));
    }
    match opens(&lately)? {
        Some(opened) if lately.state.open() => Ok((lately, opened)),
        _ => opened_now(doors, endpoint, lately, opens).await,
    }
}

/// An authentic body as JSON text. Whoever packs it must be known to: else there is nothing it was checked against.
fn readable<'a>(preset: &Preset, request: &Request<'a>) -> Result<Cow<'a, [u8]>, Problem> {
    let encodings: Vec<_> = request
        .headers
        .get_all(header::CONTENT_ENCODING)
        .into_iter()
        .map(|value| value.to_str().unwrap_or("?").trim())
        .collect();
    let packed = encodings.iter().any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"));
    let unpacks = preset.packed != Packed::Refused && encodings.len() == 1;
    if packed && !unpacks {
        return Err(cannot_unpack("send the body without a Content-Encoding", "identity"));
    }
    let kind = request.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    match reading::read(kind, encodings.first().copied(), request.body, request.body_bytes_max) {
        Ok(json) => Ok(json),
        Err(Unreadable::TooLong) => Err(body::too_long(u32::try_from(request.body_bytes_max).unwrap_or(u32::MAX))),
        Err(Unreadable::Encoding | Unreadable::Broken) => {
            Err(cannot_unpack("send the body plain, or as gzip", "gzip, identity"))
        }
    }
}

fn cannot_unpack(sentence: &str, accepted: &'static str) -> Problem {
    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::BadRequest, "packed", sentence);
    problem.header(header::ACCEPT_ENCODING, accepted)
}

fn not_taken(error: EngineError) -> Problem {
    match error {
        EngineError::Refused(Refusal::Halted) => halted(),
        EngineError::Refused(Refusal::NotFound(_)) => nothing_here(),
        EngineError::Refused(refusal @ Refusal::OverBudget { retry_s, .. }) => {
            let sentence = refusal.to_string();
            Problem::new(StatusCode::TOO_MANY_REQUESTS, Kind::Refusal, refusal.code(), sentence).retry_after(retry_s)
        }
        // It was authentic, so that it cannot be recorded is our fault and never the sender's.
        EngineError::Refused(_) | EngineError::KeyReused => {
            tracing::error!(%error, "an authentic delivery could not be recorded");
            let sentence = "the delivery could not be recorded; send it again later";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Fault, "fault", sentence).retry_after(RETRY_S)
        }
        EngineError::Unknown
        | EngineError::Fault(_)
        | EngineError::Deployment(_)
        | EngineError::Corrupt(_)
        | EngineError::Ledger(_) => error.into(),
    }
}

fn halted() -> Problem {
    let sentence = "scheduling is halted; nothing was recorded, send it again later";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Refusal, "halted", sentence);
    problem.retry_after(HALTED_RETRY_S)
}

/// One answer for unknown, paused and deleted endpoints: who asks learns nothing.
pub(super) fn nothing_here() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, Kind::Refusal, "not_found", "there is nothing here")
}

/// One answer for every failure of authenticity.
fn not_authentic() -> Problem {
    let sentence = "the request is not authentic";
    let problem = Problem::new(StatusCode::UNAUTHORIZED, Kind::Refusal, "not_authentic", sentence);
    problem.header(header::WWW_AUTHENTICATE, "Bearer")
}

fn wrong_method(allowed: &'static str) -> Problem {
    let sentence = "this address does not take this method";
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, Kind::Refusal, "method", sentence);
    problem.header(header::ALLOW, allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_alphabet_names_an_endpoint() {
        let endpoint = "AZaz09-_AZaz09-_AZaz09-_";
        assert_eq!(Target::of(&format!("/hooks/{endpoint}")), Target::Endpoint(endpoint));
        let delivery = format!("/hooks/{endpoint}/deliveries/x");
        assert_eq!(Target::of(&delivery), Target::Delivery { endpoint, delivery: "x" });
        for path in [
            "/hooks/",
            "/hooks",
            "/hooks/AZaz09-_AZaz09-_AZaz09-",
            "/hooks/AZaz09-_AZaz09-_AZaz09-_A",
            "/hooks/AZaz09-_AZaz09-_AZaz0%2F",
            "/hooks/AZaz09-_AZaz09-_AZaz0%00",
            "/hooks/../hooks/AZaz09-_AZaz09-_AZaz09-_",
            "/hooks/AZaz09-_AZaz09-_AZaz09-_/",
            "/hooks/AZaz09-_AZaz09-_AZaz09-_/..",
            "/hooks//AZaz09-_AZaz09-_AZaz09-_",
            "/hooks/AZaz09-_AZaz09-_AZaz09+/",
        ] {
            assert_eq!(Target::of(path), Target::Nothing, "{path}");
        }
    }
}
