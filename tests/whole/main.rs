//! The whole program: the real binary, real databases, real payloads, and `kill -9`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod alertmanager;
mod commands;
mod deployment;
mod hostile;
mod http;
mod idle;
mod killed;
mod ledger;
mod mcp;
mod operated;
mod payloads;
mod place;
mod secrets;
mod senders;
mod soaked;
