//! Live changes, as server-sent events: what happened where, and no words. A connection that is cut loses nothing: the
//! next one goes on from the position it saw last.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{Stream, stream};
use midwatch_engine::Engine;
use midwatch_events::Recorded;
use midwatch_log::Filter;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::timeout};
use utoipa::{IntoParams, ToSchema};

use super::{Query, header_text, shapes};
use crate::{
    app::{App, Stopping},
    error::Problem,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const HEARTBEAT: Duration = Duration::from_secs(15);
const PAGE: u32 = 200;
/// The ledger's own follower wakes us; this only bounds what a missed wake-up would cost.
const POLL: Duration = Duration::from_secs(5);

/// Where to start.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct From {
    /// Changes after this position; after the head, if nothing is said. `Last-Event-ID` counts more.
    after: Option<u64>,
}

/// One change. The SSE event's id is its position, its name is `change`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Change {
    /// Where it stands in the ledger.
    position: u64,
    /// The event's type, such as `run.ended`.
    event: String,
    /// The stream it belongs to, such as `run-0198…`.
    stream: String,
}

impl std::convert::From<Recorded> for Change {
    fn from(recorded: Recorded) -> Self {
        let Recorded { position, event_type, stream, .. } = recorded;
        Self { position, event: event_type, stream: stream.as_str().to_owned() }
    }
}

/// What happens, as it happens. Each event's `id` is its position; send it as `Last-Event-ID` to go on from there.
#[utoipa::path(get, path = "/api/v1/live", tag = "status",
    params(From, ("Last-Event-ID" = Option<u64>, Header, description = "The position that was seen last")),
    responses((status = 200, content_type = "text/event-stream", body = Change), (status = 400, body = shapes::Problem)))]
pub(crate) async fn live(
    State(app): State<App>,
    Extension(stopping): Extension<Stopping>,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // Followed before the head is read: what comes between the two still wakes us.
    let head = app.engine.log().follow();
    let seen = match header_text(&headers, &LAST_EVENT_ID)? {
        None => from.after,
        Some(id) => Some(id.parse().map_err(|_| Problem::bad("invalid", format!("`{id}` is no position")))?),
    };
    let position = match seen {
        Some(position) => position,
        None => app.engine.log().head().await?,
    };
    let changes = changes(Follower { engine: app.engine, head, stopping, position, page: VecDeque::new() });
    let mut response = Sse::new(changes).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather answers would hold changes back.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

struct Follower {
    engine: Engine,
    head: watch::Receiver<u64>,
    stopping: Stopping,
    position: u64,
    page: VecDeque<Recorded>,
}

fn changes(follower: Follower) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(follower, |mut follower| async move {
        let recorded = follower.next().await?;
        let id = recorded.position.to_string();
        // A change is two texts and a number: writing it cannot fail.
        let data = serde_json::to_string(&Change::from(recorded)).unwrap_or_default();
        Some((Ok(Event::default().id(id).event("change").data(data)), follower))
    })
}

impl Follower {
    /// The next event; none when the process stops or the ledger cannot be read. The reader then comes again, and loses
    /// nothing.
    async fn next(&mut self) -> Option<Recorded> {
        loop {
            if *self.stopping.0.borrow() {
                return None;
            }
            if let Some(recorded) = self.page.pop_front() {
                return Some(recorded);
            }
            self.head.mark_unchanged();
            let (page, scanned) = match self.engine.log().read_all(self.position, PAGE, &Filter::default()).await {
                Ok(read) => read,
                Err(error) => {
                    tracing::warn!(%error, "live changes cannot be read");
                    return None;
                }
            };
            self.position = self.position.max(scanned);
            self.page = page.into();
            if self.page.is_empty() {
                tokio::select! {
                    biased;
                    () = self.stopping.wait() => return None,
                    // A follower that is gone, or silent for long, costs one look.
                    _ = timeout(POLL, self.head.changed()) => {}
                }
            }
        }
    }
}
