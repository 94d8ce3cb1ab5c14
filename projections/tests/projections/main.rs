//! Given events, as they are stored, then rows.

#![expect(clippy::unwrap_used, reason = "what tells the stories is part of the tests, and stands outside of them")]

#[path = "../../../events/tests/events/samples.rs"]
mod samples;

mod audit;
mod engine;
mod properties;
mod routines;
mod runs;
mod story;
mod tables;
mod triggers;
mod users;
