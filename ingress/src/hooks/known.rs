//! Endpoints this process has seen: a saving, never an authority.
//!
//! That an endpoint is a trigger's stays true for ever. What the trigger is like may be old here, by a second at the most;
//! so what is recorded carries the trigger's version as a condition, any other success is judged again by the state of
//! now, and a failure looks again, at most once a second for each endpoint.

use std::{collections::HashMap, sync::Arc, sync::Mutex, time::Duration};

use midwatch_commands::trigger::Trigger;
use midwatch_engine::{Engine, EngineError, projector};
use midwatch_events::{StreamName, id::TriggerId};
use midwatch_log::views::{Cell, Condition, KEY, Order, Test};
use midwatch_projections::triggers::Triggers;

use super::verify::Lock;

/// How often a failure may look again, for each endpoint.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// Endpoints remembered of each kind; beyond it all are forgotten, which costs a look-up each.
const ENDPOINTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Known {
    endpoints: Mutex<Endpoints>,
}

#[derive(Debug, Default)]
struct Endpoints {
    doors: HashMap<String, Door>,
    /// Endpoints that were not there, and when that was seen.
    nothing: HashMap<String, Duration>,
}

/// A trigger as it was when it was last looked at.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) trigger: TriggerId,
    pub(super) state: Arc<Trigger>,
    pub(super) lock: Arc<Lock>,
    /// When a failure last made us look again.
    again_at: Option<Duration>,
    /// When it was looked at.
    seen_at: Duration,
}

impl Known {
    /// The open trigger at an endpoint. Unknown, paused and deleted ones are all the same: none.
    pub(super) async fn find(&self, engine: &Engine, endpoint: &str) -> Result<Option<Door>, EngineError> {
        let now = engine.world().clock.monotonic();
        let (door, nothing_at) = {
            let known = self.lock();
            (known.doors.get(endpoint).cloned(), known.nothing.get(endpoint).copied())
        };
        match (door, nothing_at) {
            (Some(door), _) if door.state.open() => Ok(Some(door)),
            (Some(door), _) => Ok(self.again(engine, endpoint, &door).await?.filter(|door| door.state.open())),
            (None, Some(at)) if now.saturating_sub(at) < AGAIN => Ok(None),
            (None, _) => {
                let Some(trigger) = look_up(engine, endpoint).await? else {
                    self.keep(|known| &mut known.nothing, endpoint, now);
                    return Ok(None);
                };
                Ok(Some(self.now(engine, endpoint, trigger, None).await?).filter(|door| door.state.open()))
            }
        }
    }

    /// The trigger as it is now, after a failure; none when that was looked at a moment ago.
    pub(super) async fn again(
        &self,
        engine: &Engine,
        endpoint: &str,
        door: &Door,
    ) -> Result<Option<Door>, EngineError> {
        let now = engine.world().clock.monotonic();
        let last = self.lock().doors.get(endpoint).map_or(door.again_at, |door| door.again_at);
        if last.is_some_and(|last| now.saturating_sub(last) < AGAIN) {
            return Ok(None);
        }
        self.now(engine, endpoint, door.trigger, Some(now)).await.map(Some)
    }

    /// The trigger as it is now, before something is recorded.
    pub(super) async fn refreshed(&self, engine: &Engine, endpoint: &str, door: &Door) -> Result<Door, EngineError> {
        self.now(engine, endpoint, door.trigger, door.again_at).await
    }

    /// The trigger as it was at most a second ago: enough where what follows is recorded on the condition that it still
    /// is so.
    pub(super) async fn lately(&self, engine: &Engine, endpoint: &str, door: Door) -> Result<Door, EngineError> {
        if engine.world().clock.monotonic().saturating_sub(door.seen_at) < AGAIN {
            return Ok(door);
        }
        self.refreshed(engine, endpoint, &door).await
    }

    async fn now(
        &self,
        engine: &Engine,
        endpoint: &str,
        trigger: TriggerId,
        again_at: Option<Duration>,
    ) -> Result<Door, EngineError> {
        let seen_at = engine.world().clock.monotonic();
        let state = Arc::new(engine.load::<Trigger>(&StreamName::trigger(trigger)).await?.state);
        let lock = Arc::new(Lock::of(engine, trigger, &state)?);
        let door = Door { trigger, state, lock, again_at, seen_at };
        self.keep(|known| &mut known.doors, endpoint, door.clone());
        Ok(door)
    }

    fn keep<T>(&self, of: impl Fn(&mut Endpoints) -> &mut HashMap<String, T>, endpoint: &str, what: T) {
        let mut known = self.lock();
        let kept = of(&mut known);
        if kept.len() >= ENDPOINTS_MAX {
            kept.clear();
        }
        kept.insert(endpoint.to_owned(), what);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The trigger with this endpoint. A projection that is behind is caught up first: a trigger that another process has
/// just made works at once.
async fn look_up(engine: &Engine, endpoint: &str) -> Result<Option<TriggerId>, EngineError> {
    // Before the row: a projection that comes to the head after it was read would hide that the row was too old.
    let behind = projector::as_of::<Triggers>(engine).await?.0 < engine.log().head().await?;
    let found = row(engine, endpoint).await?;
    if found.is_some() || !behind {
        return Ok(found);
    }
    projector::catch_up(engine).await?;
    row(engine, endpoint).await
}

async fn row(engine: &Engine, endpoint: &str) -> Result<Option<TriggerId>, EngineError> {
    let filters = vec![Condition { column: "endpoint", is: Test::Eq(Cell::Text(endpoint.to_owned())) }];
    let order = Order { column: KEY, descending: false };
    let rows = projector::page::<Triggers>(engine, filters, order, 1, None).await?;
    Ok(rows.first().map(|(row, _)| row.id))
}
