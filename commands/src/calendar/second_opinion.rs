//! A second, independent copy of the time-zone data, asked only to warn.
//!
//! Offsets always come from [`super::zone`]. Where another copy says something else, one of the two is out of
//! date, and the owner of a routine in that zone should know before the window comes.

use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;
use midwatch_events::time::Micros;
use serde::Serialize;

use super::error::ScheduleError;
use super::schedule::micros;
use super::zone::{Zone, offset_text, tzdb_version};
use super::{FIRST_S, LAST_S};

/// The two copies are compared once an hour; where they begin or cease to differ is then found to the second.
/// A difference that lasts less than an hour may go unseen.
const STEP_S: i64 = 3_600;

/// A span in which the two copies of the data give different offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// Its first second.
    pub from: Micros,
    /// The first second after it, or the end of what was asked.
    pub until: Micros,
    /// Seconds east of UTC that windows are computed with.
    pub used_s: i64,
    /// Seconds east of UTC by the other copy.
    pub other_s: i64,
}

impl Disagreement {
    /// One sentence for the owner of a routine in that zone.
    #[must_use]
    pub fn in_words(&self, zone: &str) -> String {
        format!(
            "From {} on, {zone} is at UTC{} by the time-zone data in use (IANA {}), and at UTC{} by an older copy (IANA \
             {}): check the hour.",
            self.from,
            offset_text(self.used_s),
            tzdb_version(),
            offset_text(self.other_s),
            second_opinion_version(),
        )
    }
}

/// The version of the IANA data that is asked for a second opinion, e.g. `2025b`.
#[must_use]
pub fn second_opinion_version() -> &'static str {
    chrono_tz::IANA_TZDB_VERSION
}

/// Where in `from` (inclusive) to `to` (exclusive) the two copies differ for a zone, in order.
///
/// Empty when they agree, and when the other copy does not know the zone at all.
///
/// # Errors
/// [`ScheduleError::UnknownZone`] when the bundled data does not know it.
pub fn disagreements(zone: &str, from: Micros, to: Micros) -> Result<Vec<Disagreement>, ScheduleError> {
    let zone = Zone::named(zone)?;
    let Some(other) = [zone.name(), zone.canonical()].into_iter().find_map(|name| name.parse::<Tz>().ok()) else {
        return Ok(Vec::new());
    };
    let offsets = |at_s: i64| (zone.offset_s(at_s), offset_s(other, at_s));
    let end_s = to.seconds().clamp(FIRST_S, LAST_S);
    let mut start_s = from.seconds().clamp(FIRST_S, LAST_S);
    let mut found = Vec::new();
    while start_s < end_s {
        let (used_s, other_s) = offsets(start_s);
        let until_s = same_until(start_s, end_s, offsets);
        if used_s != other_s {
            found.push(Disagreement { from: micros(start_s), until: micros(until_s), used_s, other_s });
        }
        start_s = until_s;
    }
    Ok(found)
}

/// The first second after `start_s` at which the offsets are others, or `end_s`.
fn same_until(start_s: i64, end_s: i64, offsets: impl Fn(i64) -> (i64, i64)) -> i64 {
    let before = offsets(start_s);
    let mut same_s = start_s;
    while same_s < end_s {
        let next_s = (same_s + STEP_S).min(end_s);
        if offsets(next_s) == before {
            same_s = next_s;
            continue;
        }
        let (mut low, mut high) = (same_s, next_s);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if offsets(middle) == before { low = middle } else { high = middle }
        }
        return high;
    }
    end_s
}

fn offset_s(zone: Tz, at_s: i64) -> i64 {
    let utc = DateTime::from_timestamp(at_s, 0).unwrap_or_default().naive_utc();
    i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc())
}
