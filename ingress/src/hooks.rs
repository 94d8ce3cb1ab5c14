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
pub use verify::Lock;

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::any};

use crate::app::App;

/// What the hooks of one process share. All of it can be lost at any time: it only saves work.
#[derive(Debug)]
pub(crate) struct Doors {
    app: App,
    known: known::Known,
    guard: guard::Guard,
    body_deadline: Duration,
}

impl Doors {
    /// Nothing known yet. A body that is not whole after `body_deadline` is cut.
    pub(crate) fn new(app: App, body_deadline: Duration) -> Arc<Self> {
        Arc::new(Self { app, known: known::Known::default(), guard: guard::Guard::default(), body_deadline })
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
