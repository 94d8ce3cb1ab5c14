//! Which generations a projection has, and what becomes of them. Decided here for both backends, inside their locks.

use midwatch_events::Micros;

/// What is known of a projection's generations.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) active: Option<i64>,
    /// In the order of their numbers.
    pub(super) generations: Vec<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) number: i64,
    pub(super) version: u32,
    pub(super) position: u64,
}

/// Where one generation stands.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) position: u64,
    pub(super) at: Micros,
    pub(super) stopped: Option<(u64, String)>,
}

/// Why a generation is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Make {
    /// There is none of this version.
    Missing,
    /// All of it is to be built again; what an earlier attempt left unfinished is dropped.
    Rebuild,
}

/// How a generation becomes active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swap {
    /// Readers never see an earlier position than before.
    Forward,
    /// The active rows are of another ledger, whatever position they stand at.
    Replace,
}

impl Listing {
    pub(super) fn active(&self) -> Option<Known> {
        self.generations.iter().find(|known| Some(known.number) == self.active).copied()
    }

    /// The generation that a binary of this version writes: the active one, or else the one under construction.
    pub(super) fn writes(&self, version: u32) -> Option<Known> {
        let of_version = |known: &Known| known.version == version;
        self.active().filter(of_version).or_else(|| self.generations.iter().rev().copied().find(of_version))
    }

    pub(super) fn superseded_by(&self, version: u32) -> Option<u32> {
        self.active().map(|active| active.version).filter(|active| *active > version)
    }

    /// Whether [`Make`] has to make one, and what has to go before that.
    pub(super) fn to_make(&self, make: Make, version: u32) -> Option<Vec<i64>> {
        let idle = |known: &&Known| known.version == version && Some(known.number) != self.active;
        match make {
            Make::Missing if self.writes(version).is_some() || self.superseded_by(version).is_some() => None,
            Make::Missing => Some(Vec::new()),
            Make::Rebuild => Some(self.generations.iter().filter(idle).map(|known| known.number).collect()),
        }
    }

    /// What goes when `number` becomes active; `None` when it must not become active, because readers would see an
    /// earlier position than before.
    pub(super) fn to_swap(&self, number: i64, swap: Swap) -> Option<Vec<i64>> {
        let next = self.generations.iter().find(|known| known.number == number)?;
        if swap == Swap::Forward && self.active().is_some_and(|active| active.position > next.position) {
            return None;
        }
        let goes = |known: &&Known| {
            known.number != number && (known.version <= next.version || Some(known.number) == self.active)
        };
        Some(self.generations.iter().filter(goes).map(|known| known.number).collect())
    }
}

/// A move of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) at: Micros,
}
