//! Newer time-zone data: the next window was computed by other rules than those in use now.
//!
//! No window is lost or doubled. Lost: a window that the newer rules put earlier than the stored one is looked for from
//! where the stored one was counted from. Doubled: the window that ended last may itself have moved; the window the
//! newer rules put in its place has run already.

use midwatch_events::{
    Micros,
    routine::{RearmCause, RoutineEvent},
    time::SECOND_US,
};

use super::{Routine, windows::just_before};
use crate::calendar::Schedule;

/// No change of rules has ever moved a local time by more.
const MOVED_MAX_US: i64 = 3 * 3_600 * SECOND_US;

/// What the change is to be recorded as when the routine is looked at for it, with data of release `tzdb`.
pub(super) fn rearmed(routine: &Routine, schedule: &Schedule, tzdb: &str) -> Option<RoutineEvent> {
    let stored = routine.next?;
    if is_known(routine, tzdb) {
        return None;
    }
    let next = next(routine, schedule);
    let rearmed = RoutineEvent::Rearmed { next_us: next, cause: RearmCause::ZoneData, tzdb: Some(tzdb.to_owned()) };
    (next != Some(stored)).then_some(rearmed)
}

/// The same at a tick, where a glance must do: only when the stored window is none any more.
pub(super) fn moved_away(routine: &Routine, schedule: &Schedule, tzdb: &str) -> Option<RoutineEvent> {
    let stored = routine.next?;
    if is_known(routine, tzdb) || is_window(routine, schedule, stored) {
        return None;
    }
    rearmed(routine, schedule, tzdb)
}

/// Whether the routine was last looked at with data of this release or a newer one: an older process of a rolling
/// upgrade changes nothing.
fn is_known(routine: &Routine, tzdb: &str) -> bool {
    routine.tzdb.as_deref().is_some_and(|known| known >= tzdb)
}

fn is_window(routine: &Routine, schedule: &Schedule, at: Micros) -> bool {
    schedule.next_after(just_before(at), routine.anchor).is_some_and(|window| window.at == at)
}

fn next(routine: &Routine, schedule: &Schedule) -> Option<Micros> {
    let after = |instant| schedule.next_after(instant, routine.anchor).map(|window| window.at);
    let ended = routine.ended_up_to.map(|ended| place(routine, schedule, ended));
    let counted_from = routine.counted_from.max(ended);
    match counted_from {
        Some(from) => after(from),
        None => routine.next.and_then(|next| after(just_before(next))),
    }
}

/// Where the newer rules put a window that has ended; never earlier than where it was.
fn place(routine: &Routine, schedule: &Schedule, ended: Micros) -> Micros {
    if is_window(routine, schedule, ended) {
        return ended;
    }
    let (from, to) = (Micros(ended.0.saturating_sub(MOVED_MAX_US)), Micros(ended.0.saturating_add(MOVED_MAX_US)));
    let near = schedule.windows(from, routine.anchor, to, 1_000);
    let nearest = near.into_iter().map(|window| window.at).min_by_key(|at| at.since(ended).abs());
    nearest.map_or(ended, |at| at.max(ended))
}
