//! Days as numbers counted from 1970-01-01, which is what the rules step over.

use chrono::{Datelike, NaiveDate};

use super::DAY_S;

/// 1970-01-01 in chrono's count of days.
const EPOCH_FROM_CE: i64 = 719_163;

/// The day a local time lies on, both counted from the epoch.
pub(super) fn day_of(local_s: i64) -> i64 {
    local_s.div_euclid(DAY_S)
}

/// A calendar date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i32,
    /// 1 to 12.
    pub(super) month: u32,
    /// 1 to 31.
    pub(super) day: u32,
}

/// The date of a day number. Outside chrono's quarter of a million years it is the epoch: the calendar ends at
/// 2500, so no caller gets there.
pub(super) fn date_of(day: i64) -> Date {
    let date =
        i32::try_from(day + EPOCH_FROM_CE).ok().and_then(NaiveDate::from_num_days_from_ce_opt).unwrap_or_default();
    Date { year: date.year(), month: date.month(), day: date.day() }
}

/// Monday is 0, Sunday is 6. The epoch was a Thursday.
pub(super) fn weekday_of(day: i64) -> u32 {
    match (day + 3).rem_euclid(7) {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 3,
        4 => 4,
        5 => 5,
        _ => 6,
    }
}

/// The day number of the first day of the month after `date`'s, given that `date` is day number `day`.
pub(super) fn next_month(day: i64, date: Date) -> i64 {
    day + i64::from(days_in_month(date)) - i64::from(date.day) + 1
}

/// The length of the month `date` lies in.
pub(super) fn days_in_month(date: Date) -> u32 {
    match date.month {
        4 | 6 | 9 | 11 => 30,
        2 if date.year % 4 == 0 && (date.year % 100 != 0 || date.year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}
