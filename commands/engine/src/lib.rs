//! Where deciding meets the world: load, decide, append, and what has to happen by itself.
//!
//! * [`handle`]: the one shell around every decider; [`lane`]: many commands on one stream, one flush.
//! * One file per thing that is asked: [`routines`], [`runs`], [`triggers`], [`intake`] and [`reading`], [`approvals`],
//!   [`bots`], [`boundaries`], [`people`], [`halt`], [`erasure`].
//! * [`filters`] says which deliveries a trigger wants; [`redeliveries`] lets some run once more.
//! * The roles: [`clock`] claims windows, [`reactor`] lets follow what follows, [`runner`] executes runs under
//!   [`leases`], [`projector`] keeps the projections.
//! * [`sessions`]: runs of agents that run elsewhere, held by the process they came to.
//! * [`deployment`]: whose ledger this is; a copy starts nothing.
//!
//! The engine reaches the world only through the log, the views, a [`world::World`] and an [`runner::Executor`].

pub mod approvals;
mod behind;
pub mod bots;
pub mod boundaries;
pub mod claims;
pub mod clock;
pub mod deployment;
mod engine;
pub mod erasure;
mod error;
pub mod evidence;
pub mod filters;
mod folds;
pub mod halt;
pub mod handle;
pub mod intake;
pub mod lane;
pub mod leases;
pub mod notices;
pub mod people;
mod probes;
pub mod processes;
pub mod progress;
pub mod projector;
pub mod reactor;
pub mod reading;
pub mod redeliveries;
pub mod routines;
pub mod runner;
pub mod runs;
pub mod secrets;
pub mod sessions;
mod shares;
#[cfg(test)]
mod tests;
mod tools;
pub mod triggers;
mod upkeep;
pub mod world;

pub use engine::{Engine, Opening};
pub use error::{EngineError, ErrorKind};
pub use handle::{Done, Origin, Request};
pub use lane::Turn;
