//! Whether a run goes on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

/// A run that makes no progress for so long is ended.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Where whoever executes a run says that it goes on.
#[derive(Clone, Debug)]
pub struct Progress {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_ms: AtomicU64,
    busy: AtomicU32,
}

/// As long as it lives, somebody else sees to it that the run is not silent for too long.
#[derive(Debug)]
pub struct Busy {
    inner: Arc<Inner>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.inner.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Progress {
    /// A run that begins at `now`, in monotonic time.
    #[must_use]
    pub fn from(now: Duration) -> Self {
        let progress = Self { inner: Arc::default() };
        progress.goes_on(now);
        progress
    }

    /// It made progress at `now`, in monotonic time.
    pub fn goes_on(&self, now: Duration) {
        self.inner.last_ms.fetch_max(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// Something with a time limit of its own goes on until the guard is dropped.
    #[must_use]
    pub fn busy(&self) -> Busy {
        self.inner.busy.fetch_add(1, Ordering::AcqRel);
        Busy { inner: Arc::clone(&self.inner) }
    }

    /// How long it may still be silent at `now`, in monotonic time.
    pub(crate) fn left(&self, now: Duration) -> Duration {
        if self.inner.busy.load(Ordering::Acquire) > 0 {
            self.goes_on(now);
        }
        let last = Duration::from_millis(self.inner.last_ms.load(Ordering::Acquire));
        (last + SILENCE).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_without_a_word_is_too_long_unless_it_is_busy() {
        let second = Duration::from_secs;
        let progress = Progress::from(second(10));
        assert_eq!(progress.left(second(69)), second(1));
        assert_eq!(progress.left(second(70)), Duration::ZERO);
        progress.goes_on(second(60));
        assert_eq!(progress.left(second(70)), second(50));
        let busy = progress.busy();
        assert_eq!(progress.left(second(500)), SILENCE);
        drop(busy);
        assert_eq!(progress.left(second(530)), second(30));
        assert_eq!(progress.left(second(560)), Duration::ZERO);
    }
}
