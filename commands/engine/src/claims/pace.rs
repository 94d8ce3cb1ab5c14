//! How fast a deployment catches up after it was down.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Catch-ups of one deployment are started at most so often: 10 a second.
const CATCH_UP_EVERY: Duration = Duration::from_millis(100);
/// The same in microseconds of the store's time.
pub(super) const CATCH_UP_EVERY_US: i64 = 100_000;

/// Whose turn it is to catch up, in this process.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Duration>);

impl Pace {
    /// Takes the next free turn; none where that is now, else how long it is until then.
    pub(super) fn reserve(&self, now: Duration) -> Option<Duration> {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (*next).max(now);
        *next = at + CATCH_UP_EVERY;
        (at > now).then(|| at.saturating_sub(now))
    }

    /// Takes a turn after now.
    pub(super) fn next(&self, now: Duration) -> Duration {
        self.reserve(now + CATCH_UP_EVERY).unwrap_or_default() + CATCH_UP_EVERY
    }
}
