//! The one door through which a Bot acts.
//!
//! Attended or unattended, recording or model: every tool call takes the path of [`decide`], and there is no other:
//! resolve the target, count, decide, append the decision, ask where a rule says so, act, append the outcome.

pub mod act;
pub mod approval;
pub mod bots;
pub mod brief;
mod canonical;
pub mod child;
pub mod decide;
pub mod dialer;
pub mod executor;
pub mod mcp_server;
pub mod notices;
pub mod publish;
pub mod redact;
pub mod resolve;
pub mod tools;

mod gateway;

pub use gateway::{Gateway, GatewayOptions};

#[cfg(test)]
mod whole_tests;
