//! A schedule as JSON: its members, and what may stand in them.

use chrono::{DateTime, FixedOffset, SecondsFormat, Timelike};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::error::{ScheduleError, quoted};
use super::{FIRST_S, LAST_S};

/// The five kinds, member for member. Written again by the same type, so the stored form has one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Spec {
    Once {
        at: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starts_at: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends_at: Option<String>,
        #[serde(default, deserialize_with = "whole_jitter", skip_serializing_if = "Option::is_none")]
        jitter_s: Option<i64>,
    },
    Weekly {
        zone: String,
        days: Vec<String>,
        times: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starts_at: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends_at: Option<String>,
        #[serde(default, deserialize_with = "whole_jitter", skip_serializing_if = "Option::is_none")]
        jitter_s: Option<i64>,
    },
    Monthly {
        zone: String,
        /// Numbers and the word `last`.
        days: Vec<Value>,
        times: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starts_at: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends_at: Option<String>,
        #[serde(default, deserialize_with = "whole_jitter", skip_serializing_if = "Option::is_none")]
        jitter_s: Option<i64>,
    },
    Every {
        zone: String,
        #[serde(deserialize_with = "whole_minutes")]
        minutes: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        between: Option<BetweenSpec>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        anchor: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starts_at: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends_at: Option<String>,
        #[serde(default, deserialize_with = "whole_jitter", skip_serializing_if = "Option::is_none")]
        jitter_s: Option<i64>,
    },
    Cron {
        zone: String,
        expr: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starts_at: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends_at: Option<String>,
        #[serde(default, deserialize_with = "whole_jitter", skip_serializing_if = "Option::is_none")]
        jitter_s: Option<i64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BetweenSpec {
    pub(super) from: String,
    pub(super) to: String,
}

/// The members every kind may have.
pub(super) struct Limits<'a> {
    pub(super) starts_at: &'a mut Option<String>,
    pub(super) ends_at: &'a mut Option<String>,
    pub(super) jitter_s: &'a mut Option<i64>,
}

impl Spec {
    /// Reads the shape only; the values are checked one by one afterwards.
    pub(super) fn read(text: &str) -> Result<Self, ScheduleError> {
        // serde would also take an array with the members in order.
        if !text.trim_start().starts_with('{') {
            return Err(ScheduleError::Shape("write a JSON object, such as {\"kind\":\"once\",\"at\":…}".to_owned()));
        }
        serde_json::from_str(text).map_err(|error| {
            let said = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            // For a wrong member the place is the end of the text and helps nobody.
            let said = if error.is_data() { said.strip_suffix(&place).unwrap_or(&said) } else { &said };
            let what_to_do = match said {
                "missing field `kind`" => "; it is once, weekly, monthly, every or cron",
                _ if said.starts_with("missing field") => "; add it",
                _ if said.starts_with("duplicate field") => "; write it once",
                _ => "",
            };
            ScheduleError::Shape(format!("{said}{what_to_do}"))
        })
    }

    pub(super) fn limits(&mut self) -> Limits<'_> {
        match self {
            Self::Once { starts_at, ends_at, jitter_s, .. }
            | Self::Weekly { starts_at, ends_at, jitter_s, .. }
            | Self::Monthly { starts_at, ends_at, jitter_s, .. }
            | Self::Every { starts_at, ends_at, jitter_s, .. }
            | Self::Cron { starts_at, ends_at, jitter_s, .. } => Limits { starts_at, ends_at, jitter_s },
        }
    }
}

/// serde's own sentence would not name the member.
fn whole_minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    i64::deserialize(deserializer).map_err(|_| D::Error::custom("`minutes` must be a whole number"))
}

fn whole_jitter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Option::deserialize(deserializer).map_err(|_| D::Error::custom("`jitter_s` must be a whole number of seconds"))
}

/// The weekdays' words, Monday first.
pub(super) const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// An instant with its offset, whole seconds. The text is put into its canonical form.
pub(super) fn instant(member: &'static str, text: &mut String) -> Result<DateTime<FixedOffset>, ScheduleError> {
    let example = "write it with its offset, such as 2026-12-01T08:00:00+01:00";
    let Ok(at) = DateTime::parse_from_rfc3339(text) else {
        return Err(ScheduleError::value(member, format!("{} is not an instant; {example}", quoted(text))));
    };
    if at.nanosecond() != 0 {
        return Err(ScheduleError::value(member, format!("{} is not a whole second; {example}", quoted(text))));
    }
    if !(FIRST_S..=LAST_S).contains(&at.timestamp()) {
        return Err(ScheduleError::value(member, "must lie between the years 1900 and 2500"));
    }
    *text = at.to_rfc3339_opts(SecondsFormat::Secs, true);
    Ok(at)
}

/// `HH:MM`, in seconds after midnight.
pub(super) fn time_of_day(member: &'static str, text: &str) -> Result<i64, ScheduleError> {
    let part = |digits: &str, end: i64| {
        let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|value| plain && *value < end)
    };
    text.split_once(':').and_then(|(hour, minute)| Some(part(hour, 24)? * 3_600 + part(minute, 60)? * 60)).ok_or_else(
        || {
            let problem = format!("has {}; write a time from 00:00 to 23:59 with two digits each", quoted(text));
            ScheduleError::value(member, problem)
        },
    )
}

/// Times of day in seconds, ascending; the texts are put into the same order.
pub(super) fn times_of_day(texts: &mut [String]) -> Result<Vec<i64>, ScheduleError> {
    let times: Result<Vec<i64>, ScheduleError> = texts.iter().map(|text| time_of_day("times", text)).collect();
    let mut times = times?;
    times.sort_unstable();
    texts.sort_unstable();
    no_repeats("times", texts)?;
    if times.is_empty() {
        return Err(ScheduleError::value("times", "is empty; write at least one time, such as \"08:00\""));
    }
    Ok(times)
}

/// One bit for each weekday, Monday first; the words are put into that order.
pub(super) fn weekdays(words: &mut Vec<String>) -> Result<u8, ScheduleError> {
    let mut week = 0_u8;
    for word in words.iter() {
        let Some(index) = WEEKDAYS.iter().position(|known| known == word) else {
            let problem = format!("has {}; write mon, tue, wed, thu, fri, sat or sun", quoted(word));
            return Err(ScheduleError::value("days", problem));
        };
        if week >> index & 1 == 1 {
            return Err(ScheduleError::value("days", format!("has {word:?} twice; write it once")));
        }
        week |= 1 << index;
    }
    if week == 0 {
        return Err(ScheduleError::value("days", "is empty; write at least one weekday, such as \"mon\""));
    }
    let chosen = WEEKDAYS.iter().enumerate().filter(|(index, _)| week >> index & 1 == 1);
    *words = chosen.map(|(_, word)| (*word).to_owned()).collect();
    Ok(week)
}

/// One bit for each day of the month (bit 1 is the first), and whether `last` is among them.
pub(super) fn month_days(values: &mut Vec<Value>) -> Result<(u32, bool), ScheduleError> {
    let mut days = 0_u32;
    let mut last = false;
    for value in values.iter() {
        let repeated = match value.as_u64() {
            Some(day @ 1..=31) => {
                let known = days >> day & 1 == 1;
                days |= 1 << day;
                known
            }
            None if value.as_str() == Some("last") => std::mem::replace(&mut last, true),
            Some(_) | None => {
                let given = quoted(&value.to_string().replace('"', ""));
                let problem = format!("has {given}; write numbers from 1 to 31, or \"last\"");
                return Err(ScheduleError::value("days", problem));
            }
        };
        if repeated {
            return Err(ScheduleError::value("days", format!("has {value} twice; write it once")));
        }
    }
    if days == 0 && !last {
        return Err(ScheduleError::value("days", "is empty; write at least one day, such as 1 or \"last\""));
    }
    *values = (1..=31_u32).filter(|day| days >> day & 1 == 1).map(Value::from).collect();
    if last {
        values.push(Value::from("last"));
    }
    Ok((days, last))
}

fn no_repeats(member: &'static str, sorted: &[String]) -> Result<(), ScheduleError> {
    match sorted.windows(2).find_map(|pair| pair.first().filter(|first| pair.last() == Some(first))) {
        Some(text) => Err(ScheduleError::value(member, format!("has {text:?} twice; write it once"))),
        None => Ok(()),
    }
}
