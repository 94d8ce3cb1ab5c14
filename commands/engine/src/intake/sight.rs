//! What a delivery is judged by: the halt, its trigger, and the routine that the trigger names.
//!
//! Most deliveries need no look at the database to be judged: what this process saw last is what is so, and the append
//! demands it as its condition. Only where that comes to nothing are they looked at again.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
};

use midwatch_commands::{Decider, engine::Engine as Deployment, routine::Routine, trigger::Trigger};
use midwatch_events::{StreamName, id::TriggerId};

use crate::{Engine, EngineError, handle::Loaded};

/// A look at the three.
pub(super) struct Sight {
    pub(super) halt: Arc<Loaded<Deployment>>,
    pub(super) trigger: Arc<Loaded<Trigger>>,
    /// None for a trigger with an instruction of its own.
    pub(super) routine: Option<Arc<Loaded<Routine>>>,
    /// The routine was not looked at: that it is as it was seen last has to be a condition too.
    pub(super) unlooked: bool,
}

impl Engine {
    /// The version of a trigger that this process saw last, if it saw any. What others did since is not in it.
    #[must_use]
    pub fn trigger_when_last_seen(&self, id: TriggerId) -> Option<u64> {
        self.folds().shared::<Trigger>(&StreamName::trigger(id)).map(|loaded| loaded.version)
    }

    /// As it is now.
    pub(super) async fn look(&self, trigger: TriggerId) -> Result<Sight, EngineError> {
        let halt = Arc::new(self.halt().await?);
        let trigger = self.load::<Trigger>(&StreamName::trigger(trigger)).await?;
        let routine = match trigger.state.routine {
            None => None,
            Some(routine) => Some(Arc::new(self.load::<Routine>(&StreamName::routine(routine)).await?)),
        };
        Ok(Sight { halt, trigger: Arc::new(trigger), routine, unlooked: false })
    }

    /// The halt and the trigger as this process last saw them, which only a condition makes an answer of. So is the
    /// target where it stands still; where it changes with each run a condition would fail each time, and it is given as
    /// it is now, in one look for all that ask at the same time.
    pub(super) async fn remembered(&self, id: TriggerId) -> Result<Option<Sight>, EngineError> {
        // A stream that nobody has written to is not kept: that it is still so is the condition.
        let halt = self.known_shared::<Deployment>(&StreamName::halt()).unwrap_or_default();
        let stream = StreamName::trigger(id);
        let Some(trigger) = self.known_shared::<Trigger>(&stream) else { return Ok(None) };
        let (trigger, routine, unlooked) = match trigger.state.routine {
            // Its own queue is on its own stream.
            None => {
                let (trigger, unlooked) = self.target::<Trigger>(&stream).await?;
                (trigger, None, unlooked)
            }
            Some(routine) => {
                let (routine, unlooked) = self.target::<Routine>(&StreamName::routine(routine)).await?;
                (trigger, Some(routine), unlooked)
            }
        };
        Ok(Some(Sight { halt, trigger, routine, unlooked }))
    }

    /// What was remembered was no longer so.
    pub(super) fn forget_calm(&self, id: TriggerId) {
        let stream = StreamName::trigger(id);
        let routine = self.known_shared::<Trigger>(&stream).and_then(|trigger| trigger.state.routine);
        let target = routine.map_or(stream, StreamName::routine);
        self.gates().of(&target).calm.store(0, SeqCst);
    }

    /// A target as this process saw it last, and true, where it stands still; else as it is now.
    async fn target<D: Decider>(&self, stream: &StreamName) -> Result<(Arc<Loaded<D>>, bool), EngineError> {
        let gate = self.gates().of(stream);
        match self.known_shared::<D>(stream) {
            Some(known) if gate.calm.load(SeqCst) >= CALM => Ok((known, true)),
            _ => Ok((self.load_together::<D>(stream, &gate).await?, false)),
        }
    }

    /// As [`load`](Engine::load), in one look for all that ask at the same time. What it gives was so after it was asked
    /// for.
    async fn load_together<D: Decider>(&self, stream: &StreamName, gate: &Gate) -> Result<Arc<Loaded<D>>, EngineError> {
        let mine = gate.asked.fetch_add(1, SeqCst);
        let mut seen = gate.seen.lock().await;
        // Whoever looked after this was asked for has seen it for us too.
        if *seen > mine
            && let Some(loaded) = self.known_shared::<D>(stream)
        {
            return Ok(loaded);
        }
        let now = gate.asked.load(SeqCst);
        let before = self.known_shared::<D>(stream).map(|known| known.version);
        let loaded = self.load::<D>(stream).await?;
        match before == Some(loaded.version) {
            true => gate.calm.fetch_add(1, SeqCst),
            false => gate.calm.swap(0, SeqCst),
        };
        *seen = now;
        Ok(Arc::new(loaded))
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
    /// Looks since the stream was last seen to have changed.
    calm: AtomicU32,
}

/// Looks that find nothing new, after which a stream is taken to stand still until a condition says otherwise.
const CALM: u32 = 8;

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
