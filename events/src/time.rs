//! Instants and spans as the ledger stores them: whole microseconds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An instant: microseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
///
/// Shown as RFC 3339 in UTC, with as many fractional digits as are needed (0, 3 or 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub i64);

/// Microseconds in a second.
pub const SECOND_US: i64 = 1_000_000;

impl Micros {
    /// This instant moved by `seconds`; saturates at the ends of the range.
    #[must_use]
    pub fn plus_s(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(SECOND_US)))
    }

    /// Microseconds from `earlier` to here; negative when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND_US)
    }
}

/// Year, month and day of a day number counted from 1970-01-01 (proleptic Gregorian calendar;
/// the algorithm is Howard Hinnant's public-domain `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        let fraction = self.0.rem_euclid(SECOND_US);
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)?;
        match fraction {
            0 => f.write_str("Z"),
            us if us % 1_000 == 0 => write!(f, ".{:03}Z", us / 1_000),
            us => write!(f, ".{us:06}Z"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_rfc_3339_with_the_digits_it_needs() {
        for (us, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_796_049_917_357_000, "2026-11-30T14:45:17.357Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (13_569_465_600_000_000, "2400-01-01T00:00:00Z"),
        ] {
            assert_eq!(Micros(us).to_string(), shown);
        }
    }
}
