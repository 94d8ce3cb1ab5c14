//! A fixed interval of elapsed time, all day or between two local times.

use super::date::day_of;
use super::zone::Zone;
use super::{DAY_S, Dst, LAST_S, Slot};

/// How many times the search for a grid point between two local times may jump. A jump is a day or an interval,
/// so this is more than ten years: what has no window by then has none.
const JUMPS: usize = 4_000;

/// Local times of day in seconds: `from` belongs to it, `to` does not; `to` before `from` is on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Between {
    pub(super) from_s: i64,
    pub(super) to_s: i64,
}

impl Between {
    /// The instants at which it opens and closes on a local day. It closes at the latest when it opens again.
    fn on(self, zone: &Zone, day: i64) -> (i64, i64) {
        let from_s = day * DAY_S + self.from_s;
        let open_s = zone.resolve(from_s).at_s;
        let close_s = if self.to_s > self.from_s {
            zone.resolve(day * DAY_S + self.to_s).at_s
        } else {
            let reopens_s = zone.resolve(from_s + DAY_S).at_s;
            zone.resolve((day + 1) * DAY_S + self.to_s).at_s.min(reopens_s)
        };
        (open_s, close_s)
    }

    /// The openings that may hold or follow an instant, in order. It starts two days back: an opening may have
    /// begun yesterday, and a zone that skipped a whole day moved it by one more.
    fn around(self, zone: &Zone, at_s: i64) -> impl Iterator<Item = (i64, i64)> + '_ {
        let today = day_of(at_s + zone.offset_s(at_s));
        (today - 2..today + 5).map(move |day| self.on(zone, day)).filter(|(open_s, close_s)| open_s < close_s)
    }
}

/// A fixed interval of elapsed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Every {
    /// At least 60.
    pub(super) step_s: i64,
    pub(super) between: Option<Between>,
    pub(super) anchor_s: Option<i64>,
}

impl Every {
    /// The first window strictly later than `after_s`. `creation_s` is the grid's start when the schedule names
    /// no other: then the first window is one interval later.
    pub(super) fn next(&self, zone: &Zone, after_s: i64, creation_s: i64) -> Option<Slot> {
        let at_s = match (self.between, self.anchor_s) {
            (None, None) => self.on_grid(creation_s, after_s.max(creation_s)),
            (None, Some(anchor_s)) => self.on_grid(anchor_s, after_s),
            (Some(between), None) => self.anew_at_each_opening(between, zone, after_s)?,
            (Some(between), Some(anchor_s)) => self.on_grid_between(between, anchor_s, zone, after_s)?,
        };
        Some(Slot { at_s, dst: Dst::None })
    }

    /// The first of `start`, `start + step`, … that is strictly later than `after_s`.
    fn on_grid(&self, start_s: i64, after_s: i64) -> i64 {
        let steps = (after_s - start_s).div_euclid(self.step_s) + 1;
        start_s + steps.max(0) * self.step_s
    }

    fn anew_at_each_opening(&self, between: Between, zone: &Zone, after_s: i64) -> Option<i64> {
        between
            .around(zone, after_s)
            .map(|(open_s, close_s)| (self.on_grid(open_s, after_s), close_s))
            .find(|(at_s, close_s)| at_s < close_s)
            .map(|(at_s, _)| at_s)
    }

    fn on_grid_between(&self, between: Between, anchor_s: i64, zone: &Zone, after_s: i64) -> Option<i64> {
        let mut at_s = self.on_grid(anchor_s, after_s);
        for _ in 0..JUMPS {
            let (open_s, _) = between.around(zone, at_s).find(|(_, close_s)| at_s < *close_s)?;
            if open_s <= at_s {
                return Some(at_s);
            }
            at_s = self.on_grid(anchor_s, open_s - 1);
            if at_s > LAST_S {
                return None;
            }
        }
        None
    }
}
