//! The calendar: when a routine is due.
//!
//! A [`Schedule`] is read from JSON once and then answers, without a clock of its own, which window is
//! strictly later than a given instant. The rules, in short:
//!
//! * A fixed local time (weekly, monthly, a cron without wildcard or step in its minute and hour) happens once
//!   a day, whatever daylight saving does: in a gap it moves forward by the gap (02:30 becomes 03:30, and is
//!   02:30 again the next day), in a fold it is the first of the two. Two times that come to the same instant
//!   are one window.
//! * A cron with a wildcard or a step in its minute or hour keeps real time: local times that a change skips
//!   have no window, those it repeats have two.
//! * `every` counts elapsed time from an anchor, so it neither drifts nor cares about daylight saving.
//!
//! Offsets come from the data bundled with the program and from nowhere else ([`tzdb_version`]); a second,
//! independent copy is asked only to warn ([`disagreements`]).

mod cron;
mod date;
mod error;
mod every;
mod fixed;
mod jitter;
mod notes;
mod preview;
mod schedule;
mod second_opinion;
mod spec;
mod words;
mod zone;

#[cfg(test)]
mod tests;

use midwatch_events::time::{Micros, SECOND_US};
use serde::Serialize;

pub use error::ScheduleError;
pub use preview::Stretch;
pub use schedule::Schedule;
pub use second_opinion::{Disagreement, disagreements, second_opinion_version};
pub use zone::{Zone, tzdb_released, tzdb_version, zone_names};

/// The last instant at which the calendar knows windows, in seconds: 2500-01-01T00:00:00Z.
const LAST_S: i64 = 16_725_225_600;

/// The first instant at which the calendar knows windows, in seconds: 1900-01-01T00:00:00Z.
const FIRST_S: i64 = -2_208_988_800;

const DAY_S: i64 = 86_400;

/// What daylight saving did to a fixed local time. Windows that are not fixed local times are always `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dst {
    /// Nothing.
    None,
    /// The local time did not exist on that day and was moved forward by the gap.
    Moved,
    /// The local time happened twice on that day; this is the first.
    FirstOfTwo,
}

impl Dst {
    /// The word used in JSON: `none`, `moved`, `first_of_two`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Moved => "moved",
            Self::FirstOfTwo => "first_of_two",
        }
    }
}

/// One instant at which a routine is due. Its identity is `at`, the nominal time; jitter does not change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// The nominal instant, in whole seconds.
    pub at: Micros,
    /// The same instant as RFC 3339 with the offset in the routine's zone, e.g. `2026-12-01T09:00:00+01:00`.
    pub local: String,
    /// What daylight saving did to it.
    pub dst: Dst,
}

/// A window before it is shown: what the rules compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    at_s: i64,
    dst: Dst,
}

impl Slot {
    fn at(self) -> Micros {
        Micros(self.at_s.saturating_mul(SECOND_US))
    }
}
