//! Fixed local times on chosen days: weekly, monthly, and a cron without wildcard or step in minute and hour.

use super::cron::CronDays;
use super::date::{date_of, day_of, days_in_month, weekday_of};
use super::zone::Zone;
use super::{DAY_S, Dst, LAST_S, Slot};

/// Which days.
#[derive(Clone, Debug)]
pub(super) enum Days {
    /// One bit for each weekday, Monday first.
    Week(u8),
    /// One bit for each day of the month (bit 1 is the first), and whether the last day counts.
    Month { days: u32, last: bool },
    /// The day fields of a cron expression.
    Cron(Box<CronDays>),
}

impl Days {
    /// The first such day, `day` itself included; `None` when there is none before the calendar's end.
    fn on_or_after(&self, day: i64) -> Option<i64> {
        let end = day_of(LAST_S);
        match self {
            Self::Week(week) => (day..day + 7).find(|day| week >> weekday_of(*day) & 1 == 1),
            // Two months always hold every day of the month that any two months hold.
            Self::Month { days, last } => (day..day + 63).find(|day| {
                let date = date_of(*day);
                days >> date.day & 1 == 1 || (*last && date.day == days_in_month(date))
            }),
            Self::Cron(days) => days.on_or_after(day, end),
        }
    }
}

/// Fixed local times on chosen days.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    pub(super) days: Days,
    /// Seconds after midnight, ascending, none twice, at least one.
    pub(super) times_s: Vec<i64>,
}

impl Fixed {
    /// The first window strictly later than `after_s`.
    pub(super) fn next(&self, zone: &Zone, after_s: i64) -> Option<Slot> {
        // A time that lay in a gap during the last day has a local time before `after`, and may still be due.
        // It is counted with the offset from before the gap; no gap in the data is longer than a day.
        let offset_s = zone.offset_s(after_s).min(zone.offset_s(after_s - DAY_S));
        let after_local_s = after_s + offset_s;
        let mut moved: Option<(i64, Slot)> = None;
        let mut day = self.days.on_or_after(day_of(after_local_s))?;
        loop {
            for time_s in &self.times_s {
                let local_s = day * DAY_S + time_s;
                if local_s <= after_local_s {
                    continue;
                }
                // A moved time may come after times that follow it on the clock: look on until past the gap.
                if let Some((moved_local_s, slot)) = moved
                    && local_s - moved_local_s > DAY_S
                {
                    return Some(slot);
                }
                let slot = zone.resolve(local_s);
                if slot.at_s <= after_s {
                    continue;
                }
                if slot.dst == Dst::Moved {
                    let earlier = moved.is_none_or(|(_, known)| slot.at_s < known.at_s);
                    moved = if earlier { Some((local_s, slot)) } else { moved };
                    continue;
                }
                // Two times that come to the same instant are one window, and it says that one was moved.
                return Some(match moved {
                    Some((_, known)) if known.at_s <= slot.at_s => known,
                    Some(_) | None => slot,
                });
            }
            match self.days.on_or_after(day + 1) {
                Some(next) if next * DAY_S < LAST_S + DAY_S => day = next,
                Some(_) | None => return moved.map(|(_, slot)| slot),
            }
        }
    }
}
