//! Lanes: of the commands of one process on one stream each is decided on the state that the one before it will make,
//! and handed to the ledger without waiting for the disk, so that one flush carries many of them.
//!
//! What holds it together:
//!
//! * Only one caller at a time is in a lane; they come in in the order in which they asked.
//! * An append that was decided on another's outcome says so ([`Expected::After`]): the ledger makes it only if the other
//!   was made. So a chain that breaks, because another process was quicker, breaks for all that hang on it; they decide
//!   again on what is so.
//! * An append's answer comes when it is durable, and it is not made before all that it rests on. So a caller who waits
//!   for their own answer has waited for everything.
//! * Whoever appends nothing, a refusal above all, has no such answer. So nothing is refused on a state that is only
//!   hoped for: it is judged once more on what is durable ([`Engine::decide`]).
//! * A state that depends on when an event was recorded cannot be known before the ledger said so: the next in the lane
//!   waits for that answer ([`Decider::rests_on_instant`]).
//!
//! A lane is there as long as somebody is in it or waits for an answer; there are never more lanes than callers. A caller
//! who goes away leaves an append that stands or falls like any other.

use std::{
    any::Any,
    collections::BTreeMap,
    marker::PhantomData,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use midwatch_commands::{Decider, Refusal};
use midwatch_events::{Micros, New, StreamName};
use midwatch_log::{Append, AppendError, Appended, Expected, Pending};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::{
    Engine, EngineError,
    handle::{Loaded, Plan, TRIES, contended, unless_conflict},
};

/// The lanes of a process.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<StreamName, Lane>>);

type Lane = Arc<tokio::sync::Mutex<Tip>>;

/// The state after the last append that was submitted in a lane.
#[derive(Default)]
struct Tip {
    /// A [`Loaded`] of the stream's decider; none where it has to be loaded.
    loaded: Option<Box<dyn Any + Send + Sync>>,
    /// The appends that it rests on.
    chain: Arc<Chain>,
    /// Closed once the last of them is answered; none where nothing was appended since the state was loaded.
    last: Option<watch::Receiver<()>>,
}

impl std::fmt::Debug for Tip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tip")
    }
}

/// Appends that were each decided on what the one before it was to make.
#[derive(Debug, Default)]
struct Chain {
    /// One of them was not made: what is decided on them is decided again.
    broken: AtomicBool,
    /// The version up to which they are known to stand.
    durable: AtomicU64,
}

#[cfg(test)]
impl Lanes {
    pub(crate) fn are_closed(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

/// Somebody's place in a lane, from when they queue until they have their answer.
struct Place<D: Decider> {
    engine: Engine,
    stream: StreamName,
    lane: Option<Lane>,
    decider: PhantomData<fn() -> D>,
}

impl<D: Decider> Place<D> {
    fn take(engine: &Engine, stream: &StreamName) -> (Self, Lane) {
        let mut lanes = engine.lanes().0.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = Arc::clone(lanes.entry(stream.clone()).or_default());
        let taken = Some(Arc::clone(&lane));
        (Self { engine: engine.clone(), stream: stream.clone(), lane: taken, decider: PhantomData }, lane)
    }
}

impl<D: Decider> Drop for Place<D> {
    fn drop(&mut self) {
        let mut lanes = self.engine.lanes().0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.lane.take());
        if lanes.get(&self.stream).is_none_or(|lane| Arc::strong_count(lane) > 1) {
            return;
        }
        let last_out = lanes.remove(&self.stream).and_then(Arc::into_inner);
        drop(lanes);
        // The last one out leaves the state to those who come later, if all of it stands.
        let Some(Tip { loaded: Some(loaded), chain, .. }) = last_out.map(tokio::sync::Mutex::into_inner) else {
            return;
        };
        if let Ok(loaded) = loaded.downcast::<Loaded<D>>()
            && loaded.version <= chain.durable.load(SeqCst)
            && !chain.broken.load(SeqCst)
        {
            self.engine.folds().put(&self.stream, *loaded);
        }
    }
}

/// The state while somebody has their turn. It goes back into the lane when they leave, however they do.
struct Held<D: Decider> {
    tip: OwnedMutexGuard<Tip>,
    loaded: Box<Loaded<D>>,
    /// Nobody knows it before the last append is answered.
    unknown: bool,
}

impl<D: Decider> Drop for Held<D> {
    fn drop(&mut self) {
        if !self.unknown {
            let loaded = std::mem::take(&mut self.loaded);
            self.tip.loaded = Some(loaded);
        }
    }
}

/// Somebody's turn in a lane.
pub struct Turn<D: Decider> {
    // Let go before the place is.
    held: Held<D>,
    place: Place<D>,
    /// The state was loaded for this turn: it is durable, and as new as the turn.
    fresh: bool,
}

impl<D: Decider> std::fmt::Debug for Turn<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("stream", &self.place.stream).finish_non_exhaustive()
    }
}

impl<D: Decider> Turn<D> {
    /// The state after everything that was submitted in this lane.
    #[must_use]
    pub fn loaded(&self) -> &Loaded<D> {
        &self.held.loaded
    }

    /// Whether the state was loaded for this turn; else it rests on appends that may come to nothing, or is behind.
    #[must_use]
    pub(crate) fn is_durable(&self) -> bool {
        self.fresh
    }

    /// Where the stream has to be for what is decided on that state.
    #[must_use]
    pub fn expected(&self) -> Expected {
        let Loaded { version, last, .. } = *self.held.loaded;
        match last {
            Some(event_id) if self.held.tip.last.is_some() => Expected::After { version, event_id },
            _ => Expected::Exact(version),
        }
    }

    /// Submits what was decided, `events` on this stream among it, lets the next in, and waits for the answer. A conflict
    /// comes back as `Ok(None)`: decide again.
    ///
    /// # Errors
    /// Anything but a conflict.
    pub fn submit(self, plan: Plan, events: &[New<D::Event>]) -> Pending<'_, Option<Appended>, EngineError> {
        Box::pin(async move { unless_conflict(self.append(plan, events).await) })
    }

    /// As [`submit`](Self::submit), with what the ledger says.
    pub(crate) async fn append(self, plan: Plan, events: &[New<D::Event>]) -> Result<Appended, AppendError> {
        let Self { mut held, place, .. } = self;
        let (log, folds) = (place.engine.log(), place.engine.folds());
        let append = Append::from(plan);
        let on_this = append.entries.iter().rfind(|entry| entry.stream == place.stream);
        let last = on_this.and_then(|entry| entry.events.last()).map(|event| event.event_id);
        let submitted = log.submit(append).await?;

        let (answering, answered) = watch::channel(());
        held.tip.last = Some(answered);
        let chain = Arc::clone(&held.tip.chain);
        held.unknown = events.iter().any(|event| D::rests_on_instant(&event.facts));
        for event in events {
            // Where the instant matters, what comes of this is not used.
            held.loaded.state.evolve(&event.facts, Micros(0));
            held.loaded.version += 1;
        }
        held.loaded.last = last.or(held.loaded.last);
        let version = held.loaded.version;
        let snapshot = if held.unknown { None } else { folds.due(&place.stream, &mut held.loaded) };
        drop(held);

        let answer = submitted.answer().await;
        match &answer {
            Ok(appended) if !appended.duplicate => {
                chain.durable.fetch_max(version, SeqCst);
                folds.keep::<D>(log, &place.stream, snapshot);
            }
            // A duplicate has written nothing here either.
            Ok(_) | Err(_) => chain.broken.store(true, SeqCst),
        }
        drop(answering);
        answer
    }
}

impl Engine {
    /// Takes a turn in the lane of a stream, as soon as those who asked before have submitted what they had to.
    ///
    /// What is decided on its state may be appended and nothing else: a refusal needs [`Engine::decide`].
    ///
    /// # Errors
    /// As [`crate::handle::load`].
    pub async fn enter<D: Decider>(&self, stream: &StreamName) -> Result<Turn<D>, EngineError> {
        self.enter_as(stream, false).await
    }

    /// As [`Engine::enter`]; where it has to be `durable`, everything that was submitted is answered first.
    pub(crate) async fn enter_as<D: Decider>(
        &self,
        stream: &StreamName,
        durable: bool,
    ) -> Result<Turn<D>, EngineError> {
        self.enter_with(stream, durable, None).await
    }

    /// As [`Engine::enter_as`]; where nobody was in the lane, `ahead`, a durable state of this stream that was read
    /// before, stands for the load. It may be behind, as any state in a lane may.
    pub(crate) async fn enter_with<D: Decider>(
        &self,
        stream: &StreamName,
        durable: bool,
        ahead: Option<Loaded<D>>,
    ) -> Result<Turn<D>, EngineError> {
        let (place, lane) = Place::<D>::take(self, stream);
        let mut tip = lane.lock_owned().await;
        if tip.chain.broken.load(SeqCst) {
            *tip = Tip::default();
        }
        if durable {
            tip.loaded = None;
        } else if tip.loaded.is_none() && tip.last.is_none() {
            tip.loaded = ahead.map(|ahead| Box::new(ahead) as Box<dyn Any + Send + Sync>);
        }
        let kept = tip.loaded.take().and_then(|any| any.downcast::<Loaded<D>>().ok());
        let fresh = kept.is_none();
        let loaded = match kept {
            Some(loaded) => loaded,
            None => {
                if let Some(last) = std::mem::take(&mut *tip).last {
                    answered(last).await;
                }
                Box::new(self.load::<D>(stream).await?)
            }
        };
        Ok(Turn { held: Held { tip, loaded, unknown: false }, place, fresh })
    }

    /// Decides in the lane of a stream. Where something is to be appended, the turn to submit it in and the events;
    /// nothing where `decide` found nothing to do on a state that is durable.
    ///
    /// # Errors
    /// The refusal, on a state that is durable; or a fault.
    pub async fn decide<D: Decider>(
        &self,
        stream: &StreamName,
        decide: impl Fn(&Loaded<D>) -> Result<Vec<New<D::Event>>, Refusal>,
    ) -> Result<Option<(Turn<D>, Vec<New<D::Event>>)>, EngineError> {
        self.decide_on(stream, None, decide).await
    }

    /// As [`Engine::decide`], first on `ahead`, as [`Engine::enter_with`] has it.
    pub(crate) async fn decide_on<D: Decider>(
        &self,
        stream: &StreamName,
        mut ahead: Option<Loaded<D>>,
        decide: impl Fn(&Loaded<D>) -> Result<Vec<New<D::Event>>, Refusal>,
    ) -> Result<Option<(Turn<D>, Vec<New<D::Event>>)>, EngineError> {
        for _ in 0..TRIES {
            let turn = self.enter_with::<D>(stream, false, ahead.take()).await?;
            let mut decided = decide(turn.loaded());
            if matches!(&decided, Ok(events) if !events.is_empty()) {
                return Ok(decided.ok().map(|events| (turn, events)));
            }
            if !turn.fresh {
                let last = turn.held.tip.last.clone();
                drop(turn);
                if let Some(last) = last {
                    answered(last).await;
                }
                decided = decide(&self.load::<D>(stream).await?);
            }
            match decided {
                // What was hoped for did not come about.
                Ok(events) if !events.is_empty() => {}
                Ok(_) => return Ok(None),
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Err(contended(stream))
    }
}

/// Waits until an append is answered, or its caller is gone.
async fn answered(mut last: watch::Receiver<()>) {
    // Nothing is ever sent: the end of the channel is the news.
    let _ = last.changed().await;
}
