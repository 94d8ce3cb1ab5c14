//! Instants as people and programs read them: RFC 3339. For serde's `with`, here and in [`option`].

use midwatch_events::{Micros, time::SECOND_US};
use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

/// Writes an instant as RFC 3339 in UTC.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(at: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

/// Reads an instant.
///
/// # Errors
/// Text that is not RFC 3339.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Micros, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is no instant")))
}

/// The same for an instant that may be absent, which is null.
pub mod option {
    use midwatch_events::Micros;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// Writes an instant as RFC 3339 in UTC, or null.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(at: &Option<Micros>, serializer: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => serializer.collect_str(at),
            None => serializer.serialize_none(),
        }
    }

    /// Reads an instant or null.
    ///
    /// # Errors
    /// Text that is not RFC 3339.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Micros>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        super::parse(&text).map(Some).ok_or_else(|| D::Error::custom(format!("`{text}` is no instant")))
    }
}

/// An instant with its offset (`2026-12-01T08:00:00+01:00`, `…Z`), with at most 6 digits of a second; or a date alone,
/// which is its midnight in UTC. Years may have more digits than four, or a sign, as [`Micros`] shows them.
#[must_use]
pub fn parse(text: &str) -> Option<Micros> {
    let (date, time) = text.split_once(['T', 't']).map_or((text, None), |(date, time)| (date, Some(time)));
    let days = parse_date(date)?;
    let (of_day, fraction, offset) = match time {
        None => (0, 0, 0),
        Some(time) => parse_time(time)?,
    };
    let seconds = days.checked_mul(86_400)?.checked_add(of_day - offset)?;
    // As one sum, because at the lower end of the range the whole seconds alone lie outside of it.
    let us = i128::from(seconds) * i128::from(SECOND_US) + i128::from(fraction);
    i64::try_from(us).ok().map(Micros)
}

fn digits(text: &str, least: usize, most: usize) -> Option<i64> {
    let fits = (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

/// Days since 1970-01-01 (Howard Hinnant's public-domain `days_from_civil`).
fn parse_date(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let least = if sign < 0 { 3 } else { 4 };
    let (year, month, day) = (sign * digits(year, least, 6)?, digits(month, 2, 2)?, digits(day, 2, 2)?);
    let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Seconds of the day, microseconds, and the offset in seconds.
fn parse_time(text: &str) -> Option<(i64, i64, i64)> {
    let at = text.find(['Z', 'z', '+', '-'])?;
    let (clock, offset) = text.split_at(at);
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(clock, fraction)| (clock, Some(fraction)));
    let fraction = match fraction {
        None => 0,
        Some(fraction) => digits(&format!("{fraction:0<6}"), 6, 6).filter(|_| !fraction.is_empty())?,
    };
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let (hour, minute, second) = (digits(hour, 2, 2)?, digits(minute, 2, 2)?, digits(second, 2, 2)?);
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let offset = if matches!(offset, "Z" | "z") {
        0
    } else {
        let (hours, minutes) = offset.get(1..)?.split_once(':')?;
        let (hours, minutes) = (digits(hours, 2, 2)?, digits(minutes, 2, 2)?);
        if hours > 23 || minutes > 59 {
            return None;
        }
        let sign = if offset.starts_with('-') { -1 } else { 1 };
        sign * (hours * 3_600 + minutes * 60)
    };
    Some((hour * 3_600 + minute * 60 + second, fraction, offset))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_any_instant_as_it_is_shown(us: i64) {
            prop_assert_eq!(parse(&Micros(us).to_string()), Some(Micros(us)));
        }

        #[test]
        fn any_text_is_an_instant_or_none(text in "[-0-9TZ:.+ö]{0,32}") {
            if let Some(at) = parse(&text) {
                prop_assert_eq!(parse(&at.to_string()), Some(at));
            }
        }
    }

    #[test]
    fn reads_what_is_shown() {
        for us in [0, -1, 1, 1_796_049_917_357_000, 951_782_400_000_001, 13_569_465_600_000_000, i64::MAX, i64::MIN] {
            assert_eq!(parse(&Micros(us).to_string()), Some(Micros(us)), "{}", Micros(us));
        }
    }

    #[test]
    fn reads_offsets_fractions_and_dates() {
        for (text, same) in [
            ("2026-12-01T08:00:00+01:00", "2026-12-01T07:00:00Z"),
            ("2026-12-01T00:30:00+05:45", "2026-11-30T18:45:00Z"),
            ("2026-12-01t08:00:00.5-00:30", "2026-12-01T08:30:00.500Z"),
            ("2026-12-01", "2026-12-01T00:00:00Z"),
            ("2024-02-29T23:59:59.999999z", "2024-02-29T23:59:59.999999Z"),
        ] {
            assert_eq!(parse(text).map(|at| at.to_string()).as_deref(), Some(same));
        }
    }

    #[test]
    fn refuses_what_is_no_instant() {
        for text in [
            "",
            "T",
            "now",
            "2026-12-01T",
            "2026-12-01T08:00:00",
            "2026-12-01T08:00Z",
            "2026-13-01",
            "2026-02-29",
            "2026-12-00",
            "26-12-01",
            "2026-12-01T24:00:00Z",
            "2026-12-01T08:60:00Z",
            "2026-12-01T08:00:00.Z",
            "2026-12-01T08:00:00.1234567Z",
            "2026-12-01T08:00:00+1:00",
            "2026-12-01T08:00:00+ö1:00",
            "2026-12-1",
            "999999-01-01",
            "2026-12-01T+8:00:00Z",
            "2026-12-01T08:00:00Z ",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
