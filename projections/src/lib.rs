//! What is so: pure folds over the events, one file per question they answer.
//!
//! Pure: no I/O, no clock, no randomness. A projection names the rows an event touches ([`Projection::keys`]) and
//! changes them ([`Projection::apply`]); the engine's projector loads and stores them. It is total: it takes every event
//! ever written, in any order, with content or with its content erased, and never panics. Holds promise 9 (rebuildable):
//! the same events give the same rows.
//!
//! A row is stored as the JSON of its `Row` type, which is also what API and command line show of it: instants are RFC
//! 3339 in UTC, ids bare lower-case UUIDs, what is absent is null.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod audit;
pub mod bots;
pub mod boundaries;
pub mod deliveries;
pub mod delivery_redeliveries;
pub mod due;
pub mod engine_deployment;
pub mod engine_notices;
pub mod engine_processes;
pub mod engine_receivers;
pub mod projection;
pub mod routines_list;
pub mod run_approvals;
pub mod run_timeline;
pub mod runs;
pub mod triggers;
pub mod users;

pub use projection::{Cell, Kind, Poison, Projection, Rows, Table, View, Write};
