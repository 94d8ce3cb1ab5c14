//! Posts notices and heartbeats, signed as Standard Webhooks says, through the [`Dialer`]. Runs with the `clock` role;
//! one process leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use hmac::{Hmac, KeyInit, Mac};
use midwatch_engine::{
    Engine, EngineError, clock,
    notices::{self, Attempted, Due, Raised},
};
use midwatch_events::id::ReceiverId;
use midwatch_projections::engine_receivers::ReceiverRow;
use reqwest::StatusCode;
use sha2::Sha256;
use tokio::sync::watch;

use crate::dialer::{Barred, Dialer, cause};

/// How long a receiver may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// How often it is looked whether there is something to look at; the database is not asked for that.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the lead is renewed. It lasts a little longer, and another process takes it where it is not.
const LEAD: Duration = Duration::from_secs(2);
/// The longest rest: whatever was overlooked, by a clock that was set or a projection that was built again, is found then.
const REST: Duration = Duration::from_secs(30);
/// Notices that one receiver is told in one turn, one after the other.
const EACH: u32 = 20;
/// Receivers told at the same time.
const AT_ONCE: usize = 32;
/// A clock that has not gone round for longer than this stands still, in seconds: no heartbeat says otherwise.
const CLOCK_STILL_S: u64 = 75;

/// Posts what there is to tell until told to stop.
///
/// The leader looks when the ledger has grown, when a notice or a heartbeat is due, and when a receiver was told. It keeps
/// the lead while receivers take their time, and leaves what it was posting where it lost it: then another posts.
pub async fn run(engine: Engine, dialer: Dialer, mut stop: watch::Receiver<bool>) {
    let mut head = engine.log().follow();
    let mut telling = Telling::new(engine.clone(), dialer, stop.clone());
    let (mut leads, mut renew_at, mut look_at) = (false, Duration::ZERO, Duration::ZERO);
    loop {
        let now = engine.world().clock.monotonic();
        let stopping = *stop.borrow();
        if stopping && telling.turns.is_empty() {
            break;
        }
        if head.has_changed().unwrap_or(false) {
            head.borrow_and_update();
            look_at = Duration::ZERO;
        }
        if now >= renew_at {
            let led = notices::lead(&engine).await;
            (leads, renew_at) = (matches!(led, Ok(true)), now + LEAD);
            if !leads {
                telling.leave();
                look_at = Duration::ZERO;
            }
            led.err().inspect(complain);
        }
        if leads && !stopping && now >= look_at {
            look_at = match telling.look().await {
                Ok(rest) => now + rest,
                Err(error) => {
                    complain(&error);
                    telling.leave();
                    notices::give_up(&engine).await;
                    (leads, renew_at) = (false, now + LEAD);
                    Duration::ZERO
                }
            };
        }
        let rests = stopping || look_at > now || !leads;
        tokio::select! {
            biased;
            // What is being posted at this moment is posted, or it would be posted again.
            stopped = stop.wait_for(|stop| *stop), if !stopping => { let _ = stopped; }
            Some(told) = telling.told() => {
                told.err().inspect(complain);
                look_at = Duration::ZERO;
            }
            () = engine.world().clock.sleep(PAUSE), if rests => {}
            () = std::future::ready(()), if !rests => {}
        }
    }
    notices::give_up(&engine).await;
}

fn complain(error: &EngineError) {
    tracing::warn!(%error, "notices cannot be posted; trying again");
}

/// One receiver's turn; who it was, and whether what came of it could be recorded.
type Turn = Pin<Box<dyn Future<Output = (ReceiverId, Result<(), EngineError>)> + Send>>;

/// Who is being told what at this moment.
pub(crate) struct Telling {
    engine: Engine,
    dialer: Dialer,
    stop: watch::Receiver<bool>,
    turns: FuturesUnordered<Turn>,
    being_told: BTreeSet<ReceiverId>,
    /// When each receiver got its last heartbeat, in monotonic time.
    beats: BTreeMap<ReceiverId, Duration>,
}

impl Telling {
    pub(crate) fn new(engine: Engine, dialer: Dialer, stop: watch::Receiver<bool>) -> Self {
        let (turns, being_told) = (FuturesUnordered::new(), BTreeSet::new());
        Self { engine, dialer, stop, turns, being_told, beats: BTreeMap::new() }
    }

    /// Raises what there is to tell and begins to tell it; how long there is nothing to look at, but for a ledger that
    /// grows.
    pub(crate) async fn look(&mut self) -> Result<Duration, EngineError> {
        let raised = notices::raise(&self.engine).await?;
        let due = self.engine.due_notices(EACH, &self.being_told).await?;
        let free = AT_ONCE.saturating_sub(self.turns.len());
        for due in due.now.into_iter().take(free) {
            let Some(receiver) = due.first().map(|due| due.receiver) else { continue };
            self.being_told.insert(receiver);
            let (engine, dialer, stop) = (self.engine.clone(), self.dialer.clone(), self.stop.clone());
            self.turns.push(Box::pin(async move { (receiver, tell(&engine, &dialer, due, &stop).await) }));
        }
        let beat = self.beat().await?;
        Ok(match raised {
            Raised::Batch => Duration::ZERO,
            Raised::Later => PAUSE,
            Raised::Nothing => due.next.map_or(REST, |next| next.max(PAUSE)).min(beat).min(REST),
        })
    }

    /// The end of one receiver's turn; none where nobody is being told.
    pub(crate) async fn told(&mut self) -> Option<Result<(), EngineError>> {
        let (receiver, told) = self.turns.next().await?;
        self.being_told.remove(&receiver);
        Some(told)
    }

    /// Another process tells them from here on.
    fn leave(&mut self) {
        self.turns.clear();
        self.being_told.clear();
    }
}

/// Tells one receiver what is due, in order. One that did not answer is not asked again in this turn.
async fn tell(
    engine: &Engine,
    dialer: &Dialer,
    due: Vec<Due>,
    stop: &watch::Receiver<bool>,
) -> Result<(), EngineError> {
    for due in due {
        if *stop.borrow() {
            break;
        }
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

impl Telling {
    /// Tells whoever asked for it that the clock goes; how long until the next one is to be told. It is no event: its
    /// silence is what is heard.
    async fn beat(&mut self) -> Result<Duration, EngineError> {
        let receivers = self.engine.heartbeats().await?;
        let now = self.engine.world().clock.monotonic();
        let every = |row: &ReceiverRow| Duration::from_secs(u64::from(row.heartbeat_s.unwrap_or(u32::MAX)));
        let due_in = |beats: &BTreeMap<ReceiverId, Duration>, row: &ReceiverRow| {
            beats.get(&row.id).map_or(Duration::ZERO, |last| (*last + every(row)).saturating_sub(now))
        };
        let due: Vec<_> = receivers.iter().filter(|(row, _)| due_in(&self.beats, row).is_zero()).collect();
        if !due.is_empty() && clock::still_for_s(&self.engine).await?.is_none_or(|still_s| still_s > CLOCK_STILL_S) {
            return Ok(PAUSE);
        }
        for (row, secret) in due {
            self.beats.insert(row.id, now);
            let Some(url) = row.url.clone() else { continue };
            let (engine, dialer, id, secret) = (self.engine.clone(), self.dialer.clone(), row.id, *secret);
            // Beside everything else: a receiver that hangs holds up nobody.
            self.engine.world().tasks.spawn(Box::pin(heartbeat(engine, dialer, id, url, secret)));
        }
        Ok(receivers.iter().map(|(row, _)| due_in(&self.beats, row)).min().unwrap_or(REST))
    }
}

async fn heartbeat(engine: Engine, dialer: Dialer, receiver: ReceiverId, url: String, secret: [u8; 32]) {
    let id = engine.world().uuid().to_string();
    let at = engine.world().clock.now().to_string();
    let body = serde_json::json!({ "type": "heartbeat", "timestamp": at, "data": {} }).to_string();
    let came = send(&engine, &dialer, &url, &secret, &id, &body).await;
    if let Some(error) = came.error {
        tracing::warn!(%receiver, error, "a heartbeat was not taken");
    }
}

#[cfg(test)]
mod tests;
