//! Posts notices and heartbeats, signed as Standard Webhooks says, through the [`Dialer`]. Runs with the `clock` role;
//! one process leads.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{StreamExt as _, stream};
use hmac::{Hmac, KeyInit, Mac};
use midwatch_engine::{
    Engine, EngineError, clock,
    notices::{self, Attempted, Due},
};
use midwatch_events::id::ReceiverId;
use reqwest::StatusCode;
use sha2::Sha256;
use tokio::sync::watch;

use crate::dialer::{Barred, Dialer, cause};

/// How long a receiver may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// How long there is nothing to look for.
const PAUSE: Duration = Duration::from_secs(1);
/// Notices that one receiver is told in one round, one after the other.
const EACH: u32 = 20;
/// Receivers told at the same time.
const AT_ONCE: usize = 32;
/// A clock that has not gone round for longer than this stands still, in seconds: no heartbeat says otherwise.
const CLOCK_STILL_S: u64 = 75;

/// Posts what there is to tell until told to stop.
pub async fn run(engine: Engine, dialer: Dialer, mut stop: watch::Receiver<bool>) {
    let mut beats = BTreeMap::new();
    loop {
        let moved = match notices::lead(&engine).await {
            Ok(true) => tell(&engine, &dialer, &mut beats).await,
            Ok(false) => Ok(false),
            Err(error) => Err(error),
        };
        if let Err(error) = &moved {
            tracing::warn!(%error, "notices cannot be posted; trying again");
            notices::give_up(&engine).await;
        }
        tokio::select! {
            biased;
            stopped = stop.wait_for(|stop| *stop) => { let _ = stopped; break }
            () = engine.world().clock.sleep(PAUSE), if !matches!(moved, Ok(true)) => {}
            () = std::future::ready(()), if matches!(moved, Ok(true)) => {}
        }
    }
    notices::give_up(&engine).await;
}

/// When each receiver got its last heartbeat, in monotonic time.
pub(crate) type Beats = BTreeMap<ReceiverId, Duration>;

/// One round; whether anything moved.
pub(crate) async fn tell(engine: &Engine, dialer: &Dialer, beats: &mut Beats) -> Result<bool, EngineError> {
    let raised = notices::raise(engine).await?;
    let due = engine.due_notices(EACH).await?;
    let posted = !due.is_empty();
    let results: Vec<Result<(), EngineError>> =
        stream::iter(due).map(|due| tell_one(engine, dialer, due)).buffer_unordered(AT_ONCE).collect().await;
    results.into_iter().collect::<Result<(), _>>()?;
    beat(engine, dialer, beats).await?;
    Ok(raised || posted)
}

/// Tells one receiver what is due, in order. One that did not answer is not asked again in this round.
async fn tell_one(engine: &Engine, dialer: &Dialer, due: Vec<Due>) -> Result<(), EngineError> {
    for due in due {
        let came = post(engine, dialer, &due).await;
        engine.note_attempt(&due, &came).await?;
        if came.status.is_none() && !came.hopeless {
            break;
        }
    }
    Ok(())
}

async fn post(engine: &Engine, dialer: &Dialer, due: &Due) -> Attempted {
    let gone = |why: &str| Attempted { status: None, error: Some(why.to_owned()), hopeless: true };
    let Some(url) = &due.url else { return gone("its receiver was removed") };
    let Some(body) = &due.body else { return gone("its words were erased") };
    send(engine, dialer, url, &due.secret, &due.notice.to_string(), body).await
}

async fn send(engine: &Engine, dialer: &Dialer, url: &str, secret: &[u8; 32], id: &str, body: &str) -> Attempted {
    let failed = |error: String, hopeless| Attempted { status: None, error: Some(error), hopeless };
    let request = match dialer.post(url) {
        Ok(request) => request,
        Err(barred @ (Barred::Address(_) | Barred::Private(_) | Barred::Never(_))) => {
            return failed(barred.to_string(), true);
        }
    };
    let timestamp = engine.world().clock.now().seconds().to_string();
    let request = request
        .header("content-type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", &timestamp)
        .header("webhook-signature", sign(secret, id, &timestamp, body))
        .body(body.to_owned());
    match request.send().await {
        Ok(answer) if answer.status().is_success() => {
            Attempted { status: Some(answer.status().as_u16()), error: None, hopeless: false }
        }
        Ok(answer) => {
            let status = answer.status();
            let error = match status.is_redirection() {
                true => format!("it answered {status}, and redirects are not followed"),
                false => format!("it answered {status}"),
            };
            Attempted { status: Some(status.as_u16()), error: Some(error), hopeless: status == StatusCode::GONE }
        }
        Err(error) => failed(cause(&error), false),
    }
}

/// A signature of Standard Webhooks: `v1,` and the HMAC-SHA256 of `{id}.{timestamp}.{body}` in base64.
#[must_use]
pub fn sign(secret: &[u8], id: &str, timestamp: &str, body: &str) -> String {
    // HMAC takes a key of any length, so this cannot fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    for part in [id, ".", timestamp, ".", body] {
        mac.update(part.as_bytes());
    }
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// A key as Standard Webhooks writes it.
#[must_use]
pub fn shown(secret: &[u8; 32]) -> String {
    format!("whsec_{}", STANDARD.encode(secret))
}

/// Tells whoever asked for it that the clock goes. It is no event: its silence is what is heard.
async fn beat(engine: &Engine, dialer: &Dialer, beats: &mut Beats) -> Result<(), EngineError> {
    let receivers = engine.heartbeats().await?;
    if receivers.is_empty() || clock::still_for_s(engine).await?.is_none_or(|still_s| still_s > CLOCK_STILL_S) {
        return Ok(());
    }
    let now = engine.world().clock.monotonic();
    for (row, secret) in receivers {
        let every = Duration::from_secs(u64::from(row.heartbeat_s.unwrap_or(u32::MAX)));
        if beats.get(&row.id).is_some_and(|last| now.saturating_sub(*last) < every) {
            continue;
        }
        beats.insert(row.id, now);
        let Some(url) = row.url.clone() else { continue };
        let (engine, dialer) = (engine.clone(), dialer.clone());
        let tasks = std::sync::Arc::clone(&engine.world().tasks);
        // Beside everything else: a receiver that hangs holds up nobody.
        tasks.spawn(Box::pin(async move {
            let id = engine.world().uuid().to_string();
            let at = engine.world().clock.now().to_string();
            let body = serde_json::json!({ "type": "heartbeat", "timestamp": at, "data": {} }).to_string();
            let came = send(&engine, &dialer, &url, &secret, &id, &body).await;
            if let Some(error) = came.error {
                tracing::warn!(receiver = %row.id, error, "a heartbeat was not taken");
            }
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
