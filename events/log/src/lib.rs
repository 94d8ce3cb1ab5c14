//! The ledger: where facts are kept, and the only truth.
//!
//! One log behind one interface, on SQLite or PostgreSQL, chosen by URL. It knows bytes, streams and positions, never
//! what an event means. What it promises is written at [`Log`] and held by one contract suite, looped over all
//! backends (`contract.rs`).
//!
//! Beside the events the same database keeps what is not history: blobs ([`blob`]), lease rows ([`lease`]), snapshots of folded streams ([`snapshot`]) and, in
//! tables that can be dropped at any time, the projections' rows ([`views`]).

mod append;
pub mod archive;
pub mod blob;
mod desk;
mod judge;
mod known;
mod last;
pub mod lease;
mod log;
mod memory;
pub mod metrics;
mod migrate;
mod postgres;
mod session;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod simulated;
pub mod snapshot;
mod sqlite;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
pub mod verify;
pub mod views;
mod writer;

pub use append::{Append, AppendError, Appended, Expected, NewEvent, StreamAppend, Submitted};
pub use log::{Filter, Log, LogError, Open, Pending, Risk};
pub use memory::WentBack;

// A1, A2 and A3 of docs/architecture.md, on both databases.
#[cfg(test)]
mod contract;
