//! What this process remembers of the ledger, so that it notices when the ledger went back.
//!
//! A failover to a standby that lagged, or a restored backup, gives positions out again that somebody has seen. The
//! process that saw them must neither append nor act on what it folded.

use tokio::sync::watch;

use crate::log::LogError;

/// The ledger lacks an event that this process has seen to be durable, or holds another one at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WentBack {
    /// The highest position that this process had seen.
    pub seen: u64,
    /// The head that it found instead.
    pub head: u64,
}

/// The highest durable event that this process has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) position: u64,
    pub(crate) leaf_hash: [u8; 32],
}

/// What is remembered, for all clones of a log.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    mark: watch::Sender<Mark>,
    went_back: watch::Sender<Option<WentBack>>,
    losses: watch::Sender<u64>,
}

impl Memory {
    /// Takes note of an event that is durable.
    pub(crate) fn remember(&self, position: u64, leaf_hash: [u8; 32]) {
        self.mark.send_if_modified(|mark| {
            let more = mark.position < position;
            if more {
                *mark = Mark { position, leaf_hash };
            }
            more
        });
    }

    /// What a new connection has to find.
    pub(crate) fn mark(&self) -> Option<Mark> {
        Some(*self.mark.borrow()).filter(|mark| mark.position > 0)
    }

    /// Compares what a new connection found at the mark's position; a difference is never forgotten.
    pub(crate) fn compare(&self, mark: Mark, found: Option<[u8; 32]>, head: u64) -> Result<(), LogError> {
        if found != Some(mark.leaf_hash) {
            let went_back = WentBack { seen: mark.position, head };
            tracing::error!(seen = mark.position, head, "ledger_went_back: nothing is appended any more");
            self.went_back.send_if_modified(|known| known.replace(went_back).is_none());
        }
        self.check()
    }

    /// An error once the ledger went back.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        match *self.went_back.borrow() {
            None => Ok(()),
            Some(WentBack { seen, head }) => Err(LogError::WentBack { seen, head }),
        }
    }

    /// As if a new connection had found an older ledger.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn go_back(&self, went_back: WentBack) {
        self.went_back.send_replace(Some(went_back));
    }

    pub(crate) fn went_back(&self) -> watch::Receiver<Option<WentBack>> {
        self.went_back.subscribe()
    }

    /// A connection that appended is gone: what was written and is not durable may be gone with it.
    pub(crate) fn lose(&self) {
        self.losses.send_modify(|losses| *losses += 1);
    }

    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }
}
