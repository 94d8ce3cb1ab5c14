//! A delivery's way in. The order of the checks is written here once, top to bottom, and nowhere else.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use midwatch_commands::Refusal;
use midwatch_engine::{
    EngineError,
    intake::{Posted, Taken},
};
use midwatch_events::{
    delivery::ReceivedStatus,
    id::{DeliveryId, TriggerId},
    key::Digest,
};
use serde::Serialize;

use super::{Doors, body, headers, json, known::Door, status, verify};
use crate::{
    error::{Kind, Problem, RETRY_S},
    server::Peer,
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
pub(super) async fn answer(State(doors): State<Arc<Doors>>, request: Request) -> Response {
    let (parts, mut body) = request.into_parts();
    let answered = in_order(&doors, &parts, &mut body).await;
    // What was refused before it was read is thrown away beside the answer; a slow sender had its time.
    if !answered.as_ref().is_err_and(|problem| problem.status == StatusCode::REQUEST_TIMEOUT) {
        body::drain(&parts.headers, body);
    }
    answered.unwrap_or_else(IntoResponse::into_response)
}

async fn in_order(doors: &Doors, parts: &Parts, body: &mut Body) -> Result<Response, Problem> {
    if doors.app.engine.halt().await?.state.halted.is_some() {
        return Err(halted());
    }
    let target = Target::of(parts.uri.path());
    match (&parts.method, &target) {
        // Whoever probes learns nothing and changes nothing.
        (&Method::HEAD, _) => return Ok(StatusCode::OK.into_response()),
        (&Method::POST, Target::Endpoint(_) | Target::Nothing) | (&Method::GET, Target::Delivery { .. }) => {}
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
        Target::Endpoint(endpoint) => deliver(doors, endpoint, &parts.headers, body).await,
        Target::Delivery { endpoint, delivery } => status::status(doors, endpoint, delivery, &parts.headers).await,
    };
    if let Err(problem) = &answered
        && problem.status.is_client_error()
    {
        doors.guard.charge(address, clock.monotonic());
    }
    answered
}

#[tracing::instrument(name = "receive", skip_all)]
async fn deliver(doors: &Doors, endpoint: &str, sent: &HeaderMap, body: &mut Body) -> Result<Response, Problem> {
    let engine = &doors.app.engine;
    let door = doors.known.find(engine, endpoint).await?.ok_or_else(nothing_here)?;
    let cap = door.state.intake.body_bytes_max;
    body::check_declared(sent, cap)?;
    let bytes = body::read(body, cap, doors.body_deadline).await?;
    let (trigger, secret) = authentic(doors, endpoint, door, sent).await?;
    check_encoding(sent)?;
    let view = json::view(&bytes);
    let posted = Posted {
        headers: headers::kept(sent),
        body: bytes,
        sender_id: headers::sender_id(sent),
        id_alone: false,
        signed: None,
        alike: None,
        secret: Some(secret),
        event_type: headers::event_type(sent).or(view.event_type),
        unparsed: view.unparsed,
    };
    let taken = engine.receive(trigger, &posted).await.map_err(not_taken)?;
    tracing::debug!(delivery = %taken.delivery, duplicate = taken.duplicate, "a delivery was taken in");
    let Taken { delivery, status, duplicate } = taken;
    let code = if duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((code, Json(Answer { status, delivery, duplicate })).into_response())
}

/// The trigger, if the sender knows its secret. A success is judged again by the trigger of now, so that a secret that
/// was just taken away opens nothing; a failure looks again, for one that was just given.
#[tracing::instrument(name = "verify", skip_all)]
pub(super) async fn authentic(
    doors: &Doors,
    endpoint: &str,
    door: Door,
    sent: &HeaderMap,
) -> Result<(TriggerId, Digest), Problem> {
    let engine = &doors.app.engine;
    let now = engine.world().clock.now();
    let current = if verify::authentic(&door.state, sent, now).is_some() {
        doors.known.refreshed(engine, endpoint, &door).await?
    } else {
        doors.known.again(engine, endpoint, &door).await?.ok_or_else(not_authentic)?
    };
    if !current.state.open() {
        return Err(nothing_here());
    }
    let secret = verify::authentic(&current.state, sent, now).ok_or_else(not_authentic)?;
    Ok((current.trigger, secret))
}

/// A bearer sender signs nothing, so there is nothing that packed bytes could be checked against.
fn check_encoding(sent: &HeaderMap) -> Result<(), Problem> {
    let packed = sent.get_all(header::CONTENT_ENCODING).into_iter().any(|value| {
        let value = value.as_bytes().trim_ascii();
        !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
    });
    if packed {
        let sentence = "send the body without a Content-Encoding";
        let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::BadRequest, "packed", sentence);
        return Err(problem.header(header::ACCEPT_ENCODING, "identity"));
    }
    Ok(())
}

fn not_taken(error: EngineError) -> Problem {
    match error {
        EngineError::Refused(Refusal::Halted) => halted(),
        EngineError::Refused(Refusal::NotFound(_)) => nothing_here(),
        // It was authentic, so that it cannot be recorded is our fault and never the sender's.
        EngineError::Refused(_) | EngineError::KeyReused => {
            tracing::error!(%error, "an authentic delivery could not be recorded");
            let sentence = "the delivery could not be recorded; send it again later";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Fault, "fault", sentence).retry_after(RETRY_S)
        }
        EngineError::Unknown | EngineError::Fault(_) | EngineError::Deployment(_) | EngineError::Corrupt(_) => {
            error.into()
        }
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
