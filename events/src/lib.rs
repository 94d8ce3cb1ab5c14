//! What can happen: every event Midwatch may append, and the bytes it is stored as.
//!
//! Pure: no I/O, no clock, no randomness. The same file name stands for the same family in `events`,
//! `commands` and `projections`.
//!
//! * [`envelope`]: what every event carries, whatever its family.
//! * [`codec`]: facts and content to CBOR and back.
//! * [`leaf`]: the bytes that are hashed into the proof of record.
//! * [`key`]: idempotency keys and digests over parts.
//! * One file per family: [`bot`], [`boundary`], [`delivery`], [`engine`], [`repeat`], [`routine`], [`run`],
//!   [`trigger`], [`user`].

#![deny(clippy::wildcard_enum_match_arm)]

pub mod any;
pub mod bot;
pub mod boundary;
pub mod codec;
pub mod delivery;
pub mod engine;
pub mod envelope;
pub mod id;
pub mod key;
pub mod leaf;
pub mod repeat;
pub mod routine;
pub mod run;
pub mod time;
pub mod trigger;
pub mod user;

pub use any::AnyEvent;
pub use codec::{Family, New};
pub use envelope::{Actor, Recorded, StreamName};
pub use time::Micros;
