//! What a delivery is judged by: the halt, its trigger, and the routine that the trigger names.
//!
//! Most deliveries need no look at the database to be judged: what this process saw last is what is so, and the append
//! demands it as its condition. Only where that comes to nothing are they looked at again.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use midwatch_commands::{Decider, engine::Engine as Deployment, routine::Routine, trigger::Trigger};
use midwatch_events::{StreamName, id::TriggerId};

use crate::{Engine, EngineError, handle::Loaded};

/// A look at the three.
pub(super) struct Sight {
    pub(super) halt: Loaded<Deployment>,
    pub(super) trigger: Loaded<Trigger>,
    /// None for a trigger with an instruction of its own.
    pub(super) routine: Option<Loaded<Routine>>,
}

impl Engine {
    /// The version of a trigger that this process saw last, if it saw any. What others did since is not in it.
    #[must_use]
    pub fn trigger_when_last_seen(&self, id: TriggerId) -> Option<u64> {
        self.folds().version::<Trigger>(&StreamName::trigger(id))
    }

    /// As it is now.
    pub(super) async fn look(&self, trigger: TriggerId) -> Result<Sight, EngineError> {
        let halt = self.halt().await?;
        let trigger = self.load::<Trigger>(&StreamName::trigger(trigger)).await?;
        let routine = match trigger.state.routine {
            None => None,
            Some(routine) => Some(self.load::<Routine>(&StreamName::routine(routine)).await?),
        };
        Ok(Sight { halt, trigger, routine })
    }

    /// The halt and the trigger as this process last saw them, which only a condition makes an answer of; and what changes
    /// with each run as it is now, in one look for all that ask at the same time.
    pub(super) async fn remembered(&self, id: TriggerId) -> Result<Option<Sight>, EngineError> {
        // A stream that nobody has written to is not kept: that it is still so is the condition.
        let halt = self.known::<Deployment>(&StreamName::halt()).unwrap_or_default();
        let stream = StreamName::trigger(id);
        let Some(mut trigger) = self.known::<Trigger>(&stream) else { return Ok(None) };
        let routine = match trigger.state.routine {
            // Its own queue is on its own stream.
            None => {
                trigger = self.load_together::<Trigger>(&stream).await?;
                None
            }
            Some(routine) => Some(self.load_together::<Routine>(&StreamName::routine(routine)).await?),
        };
        Ok(Some(Sight { halt, trigger, routine }))
    }

    /// As [`load`](Engine::load), in one look for all that ask at the same time. What it gives was so after it was asked
    /// for.
    async fn load_together<D: Decider>(&self, stream: &StreamName) -> Result<Loaded<D>, EngineError> {
        let gate = self.gates().of(stream);
        let mine = gate.asked.fetch_add(1, SeqCst);
        let mut seen = gate.seen.lock().await;
        // Whoever looked after this was asked for has seen it for us too.
        if *seen > mine
            && let Some(loaded) = self.known::<D>(stream)
        {
            return Ok(loaded);
        }
        let now = gate.asked.load(SeqCst);
        let loaded = self.load::<D>(stream).await?;
        *seen = now;
        Ok(loaded)
    }
}

/// Streams that many ask for at the same time.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<BTreeMap<StreamName, Arc<Gate>>>);

#[derive(Debug, Default)]
struct Gate {
    /// How many have asked.
    asked: AtomicU64,
    /// How many of them had asked when the last look began that came to an end.
    seen: tokio::sync::Mutex<u64>,
}

/// Gates kept per process; beyond it all are dropped, which costs a look each.
const GATES_MAX: usize = 4_096;

impl Gates {
    fn of(&self, stream: &StreamName) -> Arc<Gate> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= GATES_MAX {
            gates.clear();
        }
        Arc::clone(gates.entry(stream.clone()).or_default())
    }
}
