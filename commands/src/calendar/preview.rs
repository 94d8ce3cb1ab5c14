//! More than one window at once: what comes next, and what was missed.

use midwatch_events::time::Micros;

use super::schedule::{Rule, Schedule, micros};
use super::{DAY_S, Dst, Slot, Window};

/// All windows of a span of time, however many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The earliest.
    pub first: Window,
    /// The latest; the same as `first` when there is one.
    pub last: Window,
    /// How many, at least 1.
    pub count: u64,
}

impl Schedule {
    /// The next `count` windows, strictly later than `from`.
    ///
    /// `anchor` is the routine's creation; a routine that does not exist yet has none and would be created at
    /// `from`.
    #[must_use]
    pub fn preview(&self, from: Micros, anchor: Option<Micros>, count: usize) -> Vec<Window> {
        self.slots(from, anchor.unwrap_or(from), None).take(count).map(|slot| self.window(slot)).collect()
    }

    /// Windows a week, as the mean of the four weeks after `from`.
    #[must_use]
    pub fn runs_per_week(&self, from: Micros, anchor: Option<Micros>) -> f64 {
        let up_to = micros(from.seconds().saturating_add(28 * DAY_S));
        let count = self.stretch_slots(from, anchor.unwrap_or(from), up_to).map_or(0, |(_, _, count)| count);
        // At most one a minute for four weeks: far from what a u32 or an f64 holds.
        f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / 4.0
    }

    /// The windows strictly later than `after`, up to and including `up_to`, at most `limit` of them.
    #[must_use]
    pub fn windows(&self, after: Micros, anchor: Micros, up_to: Micros, limit: usize) -> Vec<Window> {
        self.slots(after, anchor, Some(up_to)).take(limit).map(|slot| self.window(slot)).collect()
    }

    /// First, last and number of the windows strictly later than `after`, up to and including `up_to`; `None`
    /// when there is none. Nothing is collected, so a minute routine that was down for a year is no burden.
    #[must_use]
    pub fn stretch(&self, after: Micros, anchor: Micros, up_to: Micros) -> Option<Stretch> {
        let (first, last, count) = self.stretch_slots(after, anchor, up_to)?;
        Some(Stretch { first: self.window(first), last: self.window(last), count })
    }

    fn stretch_slots(&self, after: Micros, anchor: Micros, up_to: Micros) -> Option<(Slot, Slot, u64)> {
        if let Rule::Every(every) = &self.rule
            && every.between.is_none()
        {
            // The walk gives the first window with all its limits; from there it is a division.
            let first = self.slots(after, anchor, Some(up_to)).next()?;
            let up_to_s = up_to.seconds().min(self.last_s());
            let more = u64::try_from((up_to_s - first.at_s).div_euclid(every.step_s)).ok()?;
            let last_s = up_to_s - (up_to_s - first.at_s).rem_euclid(every.step_s);
            return Some((first, Slot { at_s: last_s, dst: Dst::None }, more + 1));
        }
        let mut slots = self.slots(after, anchor, Some(up_to));
        let first = slots.next()?;
        let (last, count) = slots.fold((first, 1), |(_, count), slot| (slot, count + 1));
        Some((first, last, count))
    }

    fn slots(&self, after: Micros, anchor: Micros, up_to: Option<Micros>) -> impl Iterator<Item = Slot> + '_ {
        let anchor_s = anchor.seconds();
        let up_to_s = up_to.map_or(i64::MAX, Micros::seconds);
        let next = move |after_s| self.next_slot(after_s, anchor_s).filter(|slot| slot.at_s <= up_to_s);
        std::iter::successors(next(after.seconds()), move |slot| next(slot.at_s))
    }
}
