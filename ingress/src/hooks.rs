//! Where senders knock: `POST /hooks/{endpoint}`, and the status of what they sent.
//!
//! The order of the checks is the promise, see [`receive`]: nothing is parsed before it is authentic, nothing is looked
//! up while scheduling is halted, and a stranger costs no more than a header, a hash and the cap. Holds promise 4:
//! nothing accepted is lost.

mod again;
mod body;
mod guard;
mod headers;
mod json;
mod known;
mod receive;
mod status;
mod verify;

pub use again::{Again, verify_again};
pub use json::unparsed;
pub use verify::Lock;

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::any};

use midwatch_engine::EngineError;

use crate::app::App;

/// What the hooks of one process share. All of it can be lost at any time: it only saves work.
#[derive(Debug)]
pub(crate) struct Doors {
    app: App,
    known: known::Known,
    guard: guard::Guard,
    body_deadline: Duration,
    /// When the halt was last looked at. Whoever looks holds it, and the others wait for what is seen.
    halt_seen: tokio::sync::Mutex<Option<Duration>>,
}

impl Doors {
    /// Nothing known yet. A body that is not whole after `body_deadline` is cut.
    pub(crate) fn new(app: App, body_deadline: Duration) -> Arc<Self> {
        let (known, guard) = (known::Known::default(), guard::Guard::default());
        Arc::new(Self { app, known, guard, body_deadline, halt_seen: tokio::sync::Mutex::default() })
    }

    /// Whether scheduling is halted, as it was at most a second ago in other processes, and is now in this one. What is
    /// recorded is not judged by it, since that carries the halt's version as a condition; nor is any other success, see
    /// [`halted_now`](Self::halted_now). So what a stranger is told costs no look at the database.
    async fn halted(&self) -> Result<bool, EngineError> {
        let mut seen = self.halt_seen.lock().await;
        let now = self.app.engine.world().clock.monotonic();
        if seen.is_some_and(|seen| now.saturating_sub(seen) < known::AGAIN) {
            return Ok(self.app.engine.halted_when_last_seen());
        }
        let halted = self.halted_now().await?;
        *seen = Some(now);
        Ok(halted)
    }

    /// Whether scheduling is halted now, for what succeeds without an append that would demand it.
    async fn halted_now(&self) -> Result<bool, EngineError> {
        Ok(self.app.engine.halt().await?.state.halted.is_some())
    }
}

/// `/hooks/*`. The path is looked at as it came, so that nothing is decoded into an endpoint's name.
pub(crate) fn router(doors: Arc<Doors>) -> Router {
    Router::new()
        .route("/hooks", any(receive::answer))
        .route("/hooks/", any(receive::answer))
        .route("/hooks/{*rest}", any(receive::answer))
        .with_state(doors)
}

#[cfg(test)]
mod sender_tests;
#[cfg(test)]
mod tests;
