//! Judging tool calls by a published boundary: rules in CEL, their limits, and the verdict.
//!
//! Pure: no I/O and no clock, except the watchdog's own ([`Judge`]). It knows nothing of a gateway, so that a
//! recorded decision can be judged again by other rules wherever the record is read.
//!
//! * [`document`]: the boundary as it is published; [`mod@presets`]: rules ready to take over.
//! * [`diff`]: what is different between two of them.
//! * [`check()`]: what is refused when a boundary is saved, with the place and what to do.
//! * [`context`]: what a rule can read. Every attribute is always bound, with a neutral value where it does not
//!   apply: an unbound name would make a deny rule about one tool refuse all the others.
//! * [`Compiled::judge`]: deny, then ask, then allow; nothing matched is a refusal, and so is a broken deny rule.
//! * [`what_if`]: what another boundary would have said to calls that were decided.
//! * [`filter`]: a condition on deliveries, with the same limits.
//! * [`Judge`]: the same on threads with large stacks, watched.

pub mod context;
pub mod diff;
pub mod document;
pub mod filter;
pub mod limits;
pub mod presets;

mod arguments;
mod attributes;
mod compiled;
mod functions;
mod judgement;
mod lexical;
mod prepared;
mod signatures;
mod syntax;
mod types;
mod watchdog;
pub mod what_if;

pub use compiled::{Compiled, check, check_args, compile_lenient};
pub use context::Context;
pub use document::{
    Approvers, Boundary, BoundaryDoc, DocumentError, Effect, Mode, Rule, Unattended, Verdict, default_document,
};
pub use filter::Filter;
pub use judgement::{Broken, Judgement};
pub use presets::presets;
pub use syntax::Finding;
pub use watchdog::Judge;

#[cfg(test)]
mod tests;
