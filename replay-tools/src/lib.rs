//! For the investigator: what a Bot did, how things stood at any moment, what led to what, and whether the record holds.
//!
//! Read-only on a live ledger or on a restored copy, without any key, and never starts anything: an auditor's build is
//! made of this and holds nothing that could have written the record.
//!
//! * [`run`]: one run as a timeline.
//! * [`state`]: a stream folded up to a moment, and what changed between two.
//! * [`cause`]: what led to an event, and what followed from it.
//! * [`what_if`]: what another boundary would have said.
//! * [`verify`]: whether everything that stands in the ledger is what was written.
//!
//! Each asks a [`midwatch_log::Log`], answers with values that serialise to a documented JSON shape, and has its text
//! for people beside it. In JSON instants are RFC 3339 in UTC, ids bare lower-case UUIDs, what is absent is null.

pub mod cause;
mod error;
mod moment;
pub mod run;
pub mod state;
pub mod terminal;
mod titles;
pub mod verify;
pub mod what_if;
mod words;

pub use error::ReplayError;
pub use moment::Moment;
pub use words::Words;

#[cfg(test)]
mod against_the_engine;
#[cfg(test)]
mod testing;
