//! Where a process tries first: savings, and never an authority.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use midwatch_events::id::TriggerId;

/// Which place in a minute's budget a process tries first, for each trigger. Losing it costs a few look-ups.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<BTreeMap<TriggerId, (i64, u32)>>);

impl Slots {
    pub(super) fn next(&self, trigger: TriggerId, minute: i64) -> u32 {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(&trigger).filter(|(known, _)| *known == minute).map_or(0, |(_, next)| *next)
    }

    pub(super) fn took(&self, trigger: TriggerId, minute: i64, slot: u32) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= PLACES_MAX {
            slots.clear();
        }
        let next = slots.entry(trigger).or_insert((minute, 0));
        let behind = if next.0 == minute { next.1 } else { 0 };
        *next = (minute, behind.max(slot.saturating_add(1)));
    }
}

/// Where the last delivery of a body stands whose window is over: the keys of a body that comes again and again are a
/// chain, and without this it would be followed from its beginning each time. Losing it costs that once.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<BTreeMap<[u8; 32], u64>>);

/// Bodies whose place is kept per process; beyond it all are dropped.
const PLACES_MAX: usize = 4_096;

impl Places {
    pub(super) fn get(&self, body: &[u8; 32]) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(body).copied().unwrap_or(0)
    }

    pub(super) fn put(&self, body: [u8; 32], place: u64) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        places.insert(body, place);
    }
}
