//! How the outside reaches us: hooks for senders, the API for programs, the dashboard for people.
//!
//! It translates and never decides: what may happen is the engine's to say. Nothing in memory here that a second
//! process would need.

mod api;
pub mod app;
pub mod auth;
pub mod dashboard;
pub mod error;
mod hooks;
mod mcp;
mod metrics;
mod router;
pub mod senders;
pub mod server;
#[cfg(test)]
mod testing;

pub use api::openapi::description as openapi;
pub use app::{App, Settings};
pub use hooks::{Again, Lock, unparsed, verify_again};
