//! Is a delivery that was recorded still authentic? The bytes and headers that are kept are checked with the keys that
//! are sealed now. It shows nobody's words, so whoever sees deliveries may ask.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use midwatch_commands::{Refusal, trigger::Trigger};
use midwatch_engine::{Engine, EngineError};
use midwatch_events::{
    StreamName,
    delivery::{DeliveryContent, DeliveryEvent},
    id::DeliveryId,
};
use midwatch_gateway::redact::REDACTED;
use serde::Serialize;
use utoipa::ToSchema;

use super::Lock;
use crate::senders::{Request, judge};

/// What became of checking a delivery again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Again {
    /// Its signature is right, with a key that is sealed now.
    pub verified: bool,
    /// Which key it is right with: `current`, or `previous` for the one before the last rotation.
    #[schema(value_type = Option<String>)]
    pub key: Option<&'static str>,
    /// Whether the body is byte for byte what was received, by the digest in the ledger; absent once it was erased.
    pub body_unchanged: Option<bool>,
    /// What that means, in a sentence.
    pub sentence: String,
}

/// Checks a delivery's signature again. Its timestamp is left out: that was judged when it came.
///
/// # Errors
/// There is no such delivery, or a fault.
pub async fn verify_again(engine: &Engine, public_url: Option<&str>, id: DeliveryId) -> Result<Again, EngineError> {
    let missing = || EngineError::from(Refusal::NotFound("delivery"));
    let events = engine.log().read_stream(&StreamName::delivery(id), 1, 1).await?;
    let first = events.first().ok_or_else(missing)?;
    let DeliveryEvent::Received(received) = first.facts::<DeliveryEvent>()? else { return Err(missing()) };
    let (Some(DeliveryContent::Received { headers, query, .. }), Some(body)) =
        (first.content::<DeliveryEvent>()?, engine.body(id).await?)
    else {
        return Ok(no(None, "its headers and body were erased: there is nothing to check"));
    };
    let unchanged = engine.secrets()?.digest(&body) == received.body_digest;
    if !unchanged {
        return Ok(no(Some(false), "the body is not the one that was received: what is stored was changed"));
    }
    let state = engine.load::<Trigger>(&StreamName::trigger(received.trigger)).await?.state;
    let lock = Lock::of(engine, received.trigger, &state)?;
    if !lock.preset.signs() {
        let sentence = "this sender sends its secret along and signs nothing, and secrets are not kept: that the body is \
                        unchanged is all there is to check";
        return Ok(no(Some(true), sentence));
    }
    let url = public_url.map(|url| format!("{}/hooks/{}", url.trim_end_matches('/'), state.endpoint));
    let headers = header_map(&headers);
    let cap = body.len().max(state.intake.body_bytes_max as usize);
    let request =
        Request { headers: &headers, query: query.as_deref(), url: url.as_deref(), body: &body, body_bytes_max: cap };
    let timeless = lock.preset.timeless();
    let mut why = "this trigger has no key by now".to_owned();
    for (name, held) in lock.named() {
        match judge(&timeless, std::slice::from_ref(held), &request, first.recorded_at) {
            Ok(_) => {
                let sentence = match name {
                    "current" => "the signature is right, with the key that is in force".to_owned(),
                    _ => "the signature is right, with the key before the last rotation".to_owned(),
                };
                return Ok(Again { verified: true, key: Some(name), body_unchanged: Some(true), sentence });
            }
            Err(failed) => why = failed.sentence,
        }
    }
    if query.is_some_and(|query| query.contains(REDACTED)) {
        why.push_str("; this sender signs the query too, and a secret that stood in it is not kept");
    }
    Ok(no(Some(true), &why))
}

fn no(body_unchanged: Option<bool>, sentence: &str) -> Again {
    Again { verified: false, key: None, body_unchanged, sentence: sentence.to_owned() }
}

/// What was kept of the headers. What cannot be a header by now (it was read as another text) is left out.
fn header_map(kept: &[(String, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in kept {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            headers.append(name, value);
        }
    }
    headers
}
