//! A schedule as a sentence, in English.

use serde_json::Value;

use super::schedule::Schedule;
use super::spec::{BetweenSpec, Spec, WEEKDAYS};

const DAY_NAMES: [&str; 7] = ["Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays"];

impl Schedule {
    /// One line for a list: `Weekdays at 08:00, Europe/Berlin`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut words = match &self.spec {
            Spec::Once { at, .. } => format!("Once at {}", spaced(at)),
            Spec::Weekly { zone, days, times, .. } => {
                format!("{} at {}, {zone}", weekdays(days), joined(times))
            }
            Spec::Monthly { zone, days, times, .. } => {
                format!("{} of the month at {}, {zone}", month_days(days), joined(times))
            }
            Spec::Every { zone, minutes, between, anchor, .. } => {
                every(zone, *minutes, between.as_ref(), anchor.as_deref())
            }
            Spec::Cron { zone, expr, .. } => format!("Cron {expr}, {zone}"),
        };
        let mut spec = self.spec.clone();
        let limits = spec.limits();
        if let Some(starts_at) = limits.starts_at {
            words.push_str(&format!(", from {}", spaced(starts_at)));
        }
        if let Some(ends_at) = limits.ends_at {
            words.push_str(&format!(", until {}", spaced(ends_at)));
        }
        if let Some(jitter_s @ 1..) = limits.jitter_s {
            words.push_str(&format!(", up to {} later", plural(*jitter_s, "second")));
        }
        words
    }
}

fn every(zone: &str, minutes: i64, between: Option<&BetweenSpec>, anchor: Option<&str>) -> String {
    let interval = match minutes {
        1 => "minute".to_owned(),
        60 => "hour".to_owned(),
        hours if hours % 60 == 0 => plural(hours / 60, "hour"),
        _ => plural(minutes, "minute"),
    };
    // Without local times in it the zone says nothing about when it is due.
    let between = between.map(|between| format!(" from {} to {}, {zone}", between.from, between.to));
    let anchor = anchor.map(|anchor| format!(", counted from {}", spaced(anchor)));
    format!("Every {interval}{}{}", between.unwrap_or_default(), anchor.unwrap_or_default())
}

fn weekdays(days: &[String]) -> String {
    let chosen: Vec<&str> = days.iter().map(String::as_str).collect();
    match chosen.as_slice() {
        ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] => "Every day".to_owned(),
        ["mon", "tue", "wed", "thu", "fri"] => "Weekdays".to_owned(),
        ["sat", "sun"] => "Weekends".to_owned(),
        [first, _, .., last] if follow(&chosen) => joined_to(first, last),
        _ => {
            let names: Vec<&str> = WEEKDAYS
                .iter()
                .zip(DAY_NAMES)
                .filter(|(word, _)| chosen.contains(*word))
                .map(|(_, name)| name)
                .collect();
            joined(&names)
        }
    }
}

/// Whether weekdays follow each other without a gap.
fn follow(chosen: &[&str]) -> bool {
    WEEKDAYS.windows(chosen.len()).any(|run| run == chosen)
}

/// `Mondays to Saturdays`.
fn joined_to(first: &str, last: &str) -> String {
    let name = |day: &str| WEEKDAYS.iter().zip(DAY_NAMES).find(|(word, _)| **word == day).map_or("", |(_, name)| name);
    format!("{} to {}", name(first), name(last))
}

fn month_days(days: &[Value]) -> String {
    let names: Vec<String> = days
        .iter()
        .map(|day| match day.as_u64() {
            Some(day) => format!("the {day}{}", ordinal(day)),
            None => "the last day".to_owned(),
        })
        .collect();
    let sentence = joined(&names);
    format!("On {sentence}")
}

fn ordinal(day: u64) -> &'static str {
    match day {
        1 | 21 | 31 => "st",
        2 | 22 => "nd",
        3 | 23 => "rd",
        _ => "th",
    }
}

/// `a`, `a and b`, `a, b and c`.
fn joined<T: AsRef<str>>(parts: &[T]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

fn plural(count: i64, unit: &str) -> String {
    if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") }
}

/// An RFC 3339 instant for reading: `2026-12-01 08:00 +01:00`, with seconds where they are not zero.
fn spaced(instant: &str) -> String {
    let Some((date, rest)) = instant.split_once('T') else { return instant.to_owned() };
    let Some((time, offset)) = rest.split_at_checked(8) else { return instant.to_owned() };
    let time = time.strip_suffix(":00").unwrap_or(time);
    let offset = if offset == "Z" { "UTC" } else { offset };
    format!("{date} {time} {offset}")
}
