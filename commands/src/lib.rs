//! What may happen: one decider per family, the calendar, and what follows from what.
//!
//! Pure: no I/O, no clock, no randomness, no async. `decide` is given everything, the time and the ids included;
//! `evolve` is total: it takes every event ever written, in any order, and never panics. A refusal is an answer, with
//! a sentence for a person, and not an error.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod bot;
pub mod boundary;
pub mod calendar;
pub mod delivery;
pub mod engine;
pub mod mutant;
pub mod reactions;
pub mod recording;
mod refusal;
pub mod repeat;
pub mod routine;
pub mod run;
#[cfg(test)]
mod spec;
pub mod target;
pub mod trigger;
pub mod user;

use midwatch_events::{Family, Micros, New};
use serde::{Serialize, de::DeserializeOwned};

pub use refusal::{Refusal, RefusalKind};

/// One family's rules: what its streams' state is, and what may be appended to it.
///
/// A state may be kept as its CBOR bytes, so that a long stream need not be read from its first event.
pub trait Decider: Default + Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The family's events.
    type Event: Family;
    /// What can be asked of it.
    type Command;

    /// Raised by one whenever the state's shape changes, or what [`evolve`](Self::evolve) makes of an event: what was
    /// kept under another number is not used. A test that folds all golden events notices (`spec/folds.rs`).
    const FOLD_VERSION: u32;

    /// Whether the state depends on the instant at which this event is recorded. Where it does not, the next command can
    /// be decided before the ledger has said when that was.
    fn rests_on_instant(_event: &Self::Event) -> bool {
        false
    }

    /// What follows from `command` now, or why nothing does.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing is to be appended then.
    fn decide(&self, command: Self::Command) -> Result<Vec<New<Self::Event>>, Refusal>;

    /// Takes in one event, recorded `at` this instant. An event that cannot have happened leaves the state alone.
    fn evolve(&mut self, event: &Self::Event, at: Micros);
}
