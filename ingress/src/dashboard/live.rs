//! What is new, for pages that are open: a stream of tiny fragments and hints.
//!
//! Nothing here replaces what somebody is reading: the line at the top is renewed, and newer rows are announced, to be
//! shown when their reader asks for them.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use askama::Template;
use axum::{
    Extension,
    extract::State,
    response::{
        IntoResponse,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use midwatch_engine::projector;
use midwatch_events::id::RunId;
use midwatch_log::views::{Cell, Condition, Test};
use midwatch_projections::{audit::Audit, run_timeline::RunTimeline};
use tokio::sync::watch;

use super::{
    fields::Fields,
    frame::{Failure, Page, Standing, lag, live_runs, standing},
    scope,
    text::{counted, grouped},
    visitor::Visitor,
    watch::live_rows,
};
use crate::{
    app::{App, Stopping},
    auth::Caller,
};

/// At most one look in this time, however much happens.
const PAUSE: Duration = Duration::from_millis(500);
/// A look at least this often: a session that ended is told so.
const IDLE: Duration = Duration::from_secs(20);
/// The longest that is waited while a look failed, or saw rows that are behind the head: when they catch up no new
/// event says so, and what is new would stay unsaid until the next one.
const BEHIND: Duration = Duration::from_secs(2);

#[derive(Template)]
#[template(path = "standing.html")]
struct Foot {
    position_text: String,
    lag: String,
    live_runs: String,
}

/// `GET /live?since=POSITION`; with `run=ID`, only that run's steps are announced.
pub(super) async fn stream(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Extension(stopping): Extension<Stopping>,
    query: Fields,
) -> Page {
    let since = query.get("since").parse().unwrap_or(0);
    let run = match query.filled("run") {
        Some(id) => Some(scope::run(&app, &caller, id).await?.id),
        None => None,
    };
    let head = app.engine.log().follow();
    let look =
        Look { app, caller, since, run, head, stopping, queue: VecDeque::new(), shown: None, begun: false, behind: 0 };
    let events = stream::unfold(look, |mut look| async move {
        let event = look.next().await?;
        Some((Ok::<_, Infallible>(event), look))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response())
}

/// One open page's view of what is new.
struct Look {
    app: App,
    caller: Caller,
    since: u64,
    run: Option<RunId>,
    head: watch::Receiver<u64>,
    stopping: Stopping,
    queue: VecDeque<Event>,
    shown: Option<Snapshot>,
    begun: bool,
    /// Looks in a row that failed, or saw rows behind the head.
    behind: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Snapshot {
    standing: Standing,
    live: u64,
    newer: u64,
    runs: Vec<(String, String)>,
}

impl Look {
    /// The next event; none once the process stops or the session has ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            if self.begun && !self.wait().await {
                return None;
            }
            self.begun = true;
            // A fault passes; the next look may see more.
            match self.look().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(Failure(problem)) => {
                    self.behind = self.behind.saturating_add(1);
                    tracing::debug!(code = problem.code, "a live page could not be brought up to date")
                }
            }
        }
    }

    /// Until something may be new; false when the process is to stop.
    async fn wait(&mut self) -> bool {
        let clock = self.app.engine.world().clock.clone();
        let idle = clock.sleep(match self.behind {
            0 => IDLE,
            // One projection that has stopped is behind for ever: the looks grow rare again.
            1..10 => BEHIND.min(PAUSE * self.behind),
            _ => IDLE,
        });
        tokio::select! {
            biased;
            () = self.stopping.wait() => return false,
            changed = self.head.changed() => {
                if changed.is_err() {
                    return false;
                }
                self.behind = 0;
            }
            () = idle => {}
        }
        tokio::select! {
            biased;
            () = self.stopping.wait() => false,
            () = clock.sleep(PAUSE) => true,
        }
    }

    /// Queues what has changed; false when this caller may see nothing any more.
    async fn look(&mut self) -> Result<bool, Failure> {
        if !self.signed_in().await? {
            return Ok(false);
        }
        let head = *self.head.borrow_and_update();
        projector::wait_for(&self.app.engine, head).await;
        let now = self.snapshot().await?;
        self.behind = if now.standing.behind == 0 { 0 } else { self.behind.saturating_add(1) };
        let before = self.shown.replace(now.clone());
        let before = before.as_ref();
        if before.map(|before| (before.standing, before.live)) != Some((now.standing, now.live)) {
            let Standing { position, behind, lag_ms } = now.standing;
            let foot = Foot {
                position_text: grouped(position),
                lag: lag(behind, lag_ms),
                live_runs: counted(now.live, "live run", "live runs"),
            };
            let html = foot.render().unwrap_or_default();
            self.queue.push_back(Event::default().id(position.to_string()).data(html));
        }
        if before.is_some_and(|before| before.runs != now.runs) {
            self.queue.push_back(Event::default().event("runs").data("changed"));
        }
        if now.newer > 0 && before.is_none_or(|before| before.newer != now.newer) {
            let text = match self.run {
                Some(_) => counted(now.newer, "newer step", "newer steps"),
                None => counted(now.newer, "newer event", "newer events"),
            };
            self.queue.push_back(Event::default().event("newer").data(text));
        }
        Ok(true)
    }

    async fn signed_in(&self) -> Result<bool, Failure> {
        let (Some(user), Some(session)) = (self.caller.user(), self.caller.session) else { return Ok(false) };
        let stream = midwatch_events::StreamName::user(user);
        let person = self.app.engine.load::<midwatch_commands::user::User>(&stream).await?.state;
        let now = self.app.engine.world().clock.now();
        Ok(person.role == Some(self.caller.role) && person.sessions.get(&session).is_some_and(|until| now < *until))
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let standing = standing(&self.app).await?;
        let newer = self.newer(standing.position).await?;
        let mut runs = Vec::new();
        for unattended in [false, true] {
            let rows = live_rows(&self.app, &self.caller, unattended).await?;
            runs.extend(rows.iter().map(|row| (row.id.to_string(), super::runs::state(row))));
        }
        let live = live_runs(&self.app, &self.caller).await?;
        Ok(Snapshot { standing, live, newer, runs })
    }

    /// How much there is that the page does not show.
    async fn newer(&self, position: u64) -> Result<u64, Failure> {
        let engine = &self.app.engine;
        let since = i64::try_from(self.since).unwrap_or(i64::MAX);
        let after = Condition { column: "position", is: Test::Gt(Cell::Int(since)) };
        if let Some(run) = self.run {
            let of_run = Condition { column: "run", is: Test::Eq(Cell::Text(run.to_string())) };
            return Ok(projector::count::<RunTimeline>(engine, &[of_run, after]).await?);
        }
        match scope::of_own_routines(&self.app, &self.caller).await? {
            Some(own) => Ok(projector::count::<Audit>(engine, &[after, own]).await?),
            // Whoever sees everything needs no counting.
            None => Ok(position.saturating_sub(self.since)),
        }
    }
}
