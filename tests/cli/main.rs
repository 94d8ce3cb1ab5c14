//! The command line as scripts see it: the real binary, its answers, its exit codes, and what it says when it cannot.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod copies;
mod demo;
mod doctor;
mod erase;
mod home;
mod replay;
mod serving;
mod shapes;
mod without_ledger;
