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

/// How often a failure may look again, for each endpoint; and how old what is known of it may be.
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
    version: u64,
    /// When a failure last made us look again.
    again_at: Option<Duration>,
    /// When it was looked at.
    seen_at: Duration,
    /// Whoever looks holds it: of many that would look at the same moment one does, for all.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Door {
    /// Whether they are of one look.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
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
                let door = seen(engine, trigger).await?;
                self.keep(|known| &mut known.doors, endpoint, door.clone());
                Ok(Some(door).filter(|door| door.state.open()))
            }
        }
    }

    /// The trigger after a failure by `door`: as somebody has seen it since, else as it is now, at most once a second; none
    /// where there is nothing newer.
    pub(super) async fn again(
        &self,
        engine: &Engine,
        endpoint: &str,
        door: &Door,
    ) -> Result<Option<Door>, EngineError> {
        let _turn = door.turn.lock().await;
        let now = engine.world().clock.monotonic();
        let known = self.newest(endpoint, door);
        if known.seen_at > door.seen_at {
            return Ok(Some(known));
        }
        if known.again_at.is_some_and(|last| now.saturating_sub(last) < AGAIN) && self.is_current(engine, &known) {
            return Ok(None);
        }
        let door = Door { again_at: Some(now), ..self.seen_again(engine, door).await? };
        self.keep(|known| &mut known.doors, endpoint, door.clone());
        Ok(Some(door))
    }

    /// The trigger as it is now, before something succeeds that no append demands it for.
    pub(super) async fn refreshed(&self, engine: &Engine, endpoint: &str, door: &Door) -> Result<Door, EngineError> {
        let again_at = self.newest(endpoint, door).again_at;
        let door = Door { again_at, ..self.seen_again(engine, door).await? };
        self.keep(|known| &mut known.doors, endpoint, door.clone());
        Ok(door)
    }

    /// The trigger as it was at most a second ago, and as this process knows it to be since: enough where what follows is
    /// recorded on the condition that it still is so.
    pub(super) async fn lately(&self, engine: &Engine, endpoint: &str, door: &Door) -> Result<Door, EngineError> {
        let lately = |door: &Door| {
            engine.world().clock.monotonic().saturating_sub(door.seen_at) < AGAIN && self.is_current(engine, door)
        };
        let known = Some(self.newest(endpoint, door)).filter(lately);
        if let Some(known) = known {
            return Ok(known);
        }
        let _turn = door.turn.lock().await;
        match Some(self.newest(endpoint, door)).filter(lately) {
            Some(known) => Ok(known),
            None => self.refreshed(engine, endpoint, door).await,
        }
    }

    /// Whether it is no older than what this process has done since.
    fn is_current(&self, engine: &Engine, door: &Door) -> bool {
        engine.trigger_when_last_seen(door.trigger).is_none_or(|version| version <= door.version)
    }

    fn newest(&self, endpoint: &str, door: &Door) -> Door {
        let known = self.lock().doors.get(endpoint).cloned();
        known.filter(|known| known.seen_at >= door.seen_at).unwrap_or_else(|| door.clone())
    }

    async fn seen_again(&self, engine: &Engine, door: &Door) -> Result<Door, EngineError> {
        Ok(Door { turn: Arc::clone(&door.turn), ..seen(engine, door.trigger).await? })
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

/// A trigger as it is now.
async fn seen(engine: &Engine, trigger: TriggerId) -> Result<Door, EngineError> {
    let seen_at = engine.world().clock.monotonic();
    let loaded = engine.load::<Trigger>(&StreamName::trigger(trigger)).await?;
    let (version, state) = (loaded.version, Arc::new(loaded.state));
    let lock = Arc::new(Lock::of(engine, trigger, &state)?);
    Ok(Door { trigger, state, lock, version, again_at: None, seen_at, turn: Arc::default() })
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
