//! Cron expressions: five fields, read by croner, walked here.
//!
//! croner finds the days (it knows `L`, `W` and `#`); it is not asked for instants, because it moves 02:30 in a
//! gap to the gap's end (03:00) where this calendar promises 03:30.
//!
//! Day of month and day of week: when both are restricted, either is enough, as in every cron since Version 7.
//! Restricted means anything but a plain `*`.

use croner::parser::{CronParser, Seconds, Year};
use croner::{CronPattern, Weekday};

use super::date::{Date, date_of, day_of, days_in_month, next_month, weekday_of};
use super::error::{ScheduleError, quoted};
use super::fixed::{Days, Fixed};
use super::zone::Zone;
use super::{DAY_S, Dst, LAST_S, Slot};

/// The five fields in order.
pub(super) const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, words: &[] },
    Field { name: "hour", min: 0, max: 23, words: &[] },
    Field { name: "day of month", min: 1, max: 31, words: &[] },
    Field {
        name: "month",
        min: 1,
        max: 12,
        words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { name: "day of week", min: 0, max: 7, words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const DAY_OF_MONTH: &str = "day of month";
const DAY_OF_WEEK: &str = "day of week";

/// What one field may hold.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) min: u32,
    pub(super) max: u32,
    words: &'static [&'static str],
}

impl Field {
    /// The field in croner's numbers alone, checked item by item so that an error can name the item.
    fn numbers(&self, text: &str) -> Result<String, ScheduleError> {
        let items: Result<Vec<String>, ScheduleError> = text.split(',').map(|item| self.item(item)).collect();
        Ok(items?.join(","))
    }

    fn item(&self, item: &str) -> Result<String, ScheduleError> {
        let Some((base, step)) = item.split_once('/') else {
            return self.base(item);
        };
        if base != "*" && !base.contains('-') {
            return Err(
                self.bad(item, &format!("put a range before the step, such as `*/5` or `{base}-{}/5`", self.max))
            );
        }
        match number(step) {
            Some(1..) if number(step) <= Some(self.max) => Ok(format!("{}/{step}", self.base(base)?)),
            Some(_) | None => {
                let hint = "use the kind `every` for longer intervals";
                Err(self.bad(item, &format!("the step must be 1 to {}; {hint}", self.max)))
            }
        }
    }

    fn base(&self, base: &str) -> Result<String, ScheduleError> {
        let lower = base.to_ascii_lowercase();
        if lower == "*" {
            return Ok(lower);
        }
        if let Some((from, to)) = lower.split_once('-') {
            let (from, to) = (self.value(from, base)?, self.value(to, base)?);
            // As the end of a range Sunday is 7: `fri-sun` is three days.
            let to = if self.name == DAY_OF_WEEK && to == 0 && from > 0 { 7 } else { to };
            if from > to {
                return Err(self.bad(base, "it runs backwards; write the two parts as a list"));
            }
            return Ok(format!("{from}-{to}"));
        }
        if self.name == DAY_OF_MONTH {
            match lower.as_str() {
                "?" => return Ok("*".to_owned()),
                "l" => return Ok("L".to_owned()),
                "lw" => return Ok("LW".to_owned()),
                _ => {}
            }
            if let Some(day) = lower.strip_suffix('w') {
                return Ok(format!("{}W", self.value(day, base)?));
            }
        }
        if self.name == DAY_OF_WEEK {
            if lower == "?" {
                return Ok("*".to_owned());
            }
            if let Some((day, nth)) = lower.split_once('#') {
                return match number(nth) {
                    Some(nth @ 1..=5) => Ok(format!("{}#{nth}", self.value(day, base)?)),
                    Some(_) | None => Err(self.bad(base, "after # write which one in the month, 1 to 5")),
                };
            }
            if let Some(day) = lower.strip_suffix('l') {
                return Ok(format!("{}L", self.value(day, base)?));
            }
        }
        Ok(self.value(&lower, base)?.to_string())
    }

    /// A number in range, or a name. `item` is what stands around it, for the error.
    fn value(&self, value: &str, item: &str) -> Result<u32, ScheduleError> {
        let named = self.words.iter().position(|word| *word == value).and_then(|index| u32::try_from(index).ok());
        match named.map(|index| index + self.min).or_else(|| number(value)) {
            Some(value) if (self.min..=self.max).contains(&value) => Ok(value),
            Some(_) | None => {
                let names = match (self.words.first(), self.words.last()) {
                    (Some(first), Some(last)) => format!(" or a name, {first} to {last}"),
                    _ => String::new(),
                };
                Err(self.bad(item, &format!("write a number from {} to {}{names}", self.min, self.max)))
            }
        }
    }

    fn bad(&self, item: &str, what_to_do: &str) -> ScheduleError {
        ScheduleError::value("expr", format!("has {} in its {} field; {what_to_do}", quoted(item), self.name))
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// A cron expression, by the rule that it follows through a change of the clocks.
#[derive(Clone, Debug)]
pub(super) enum Cron {
    /// Neither wildcard nor step in minute and hour.
    Fixed(Fixed),
    /// The others: they keep real time.
    RealTime(Box<RealTime>),
}

impl Cron {
    /// Reads five fields separated by single spaces.
    pub(super) fn parse(expr: &str) -> Result<Self, ScheduleError> {
        let texts: Vec<&str> = expr.split(' ').collect();
        if texts.len() != FIELDS.len() {
            let problem =
                "must have five fields: minute, hour, day of month, month, day of week, such as `0 8 * * 1-5`";
            return Err(ScheduleError::value("expr", problem));
        }
        let numbers: Result<Vec<String>, ScheduleError> =
            FIELDS.iter().zip(&texts).map(|(field, text)| field.numbers(text)).collect();
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let pattern = parser
            .parse(&numbers?.join(" "))
            .map_err(|error| ScheduleError::value("expr", format!("cannot be read: {error}; write five plain fields")))?
            .pattern;
        let minutes = pattern.minutes.values();
        let hours = pattern.hours.values();
        let days = CronDays { months: bits(&pattern.months.values()), pattern };
        // 2000 to 2400 is one whole cycle of the calendar: what is not in it never comes.
        if days.on_or_after(10_957, 10_957 + 146_097).is_none() {
            let problem = "names a date that never comes; change its day or its month field";
            return Err(ScheduleError::value("expr", problem));
        }
        let real_time = texts.iter().take(2).any(|text| text.contains(['*', '/']));
        if real_time {
            return Ok(Self::RealTime(Box::new(RealTime { minutes: bits(&minutes), hours: bits(&hours), days })));
        }
        let of_hour = |hour: &u16| {
            let hour_s = i64::from(*hour) * 3_600;
            minutes.iter().map(move |minute| hour_s + i64::from(*minute) * 60).collect::<Vec<i64>>()
        };
        Ok(Self::Fixed(Fixed { days: Days::Cron(Box::new(days)), times_s: hours.iter().flat_map(of_hour).collect() }))
    }
}

fn bits(values: &[u16]) -> u64 {
    values.iter().fold(0, |bits, value| bits | 1 << value)
}

/// The day fields of a cron expression.
#[derive(Clone, Debug)]
pub(super) struct CronDays {
    /// Bit 1 is January.
    months: u64,
    pattern: CronPattern,
}

impl CronDays {
    /// The first such day from `day` to `end`, both included.
    pub(super) fn on_or_after(&self, mut day: i64, end: i64) -> Option<i64> {
        while day <= end {
            let mut date = date_of(day);
            if self.months >> date.month & 1 == 0 {
                day = next_month(day, date);
                continue;
            }
            for _ in date.day..=days_in_month(date) {
                if day <= end && self.holds(day, date) {
                    return Some(day);
                }
                day += 1;
                date.day += 1;
            }
        }
        None
    }

    fn holds(&self, day: i64, date: Date) -> bool {
        let weekday = Weekday::from_days_from_sunday(weekday_of(day) + 1);
        // An error would mean a date that does not exist; `date_of` makes none.
        self.pattern.day_match(date.year, date.month, date.day, weekday).unwrap_or(false)
    }
}

/// A cron expression with a wildcard or a step in its minute or hour: due at each instant whose local time fits.
#[derive(Clone, Debug)]
pub(super) struct RealTime {
    minutes: u64,
    hours: u64,
    days: CronDays,
}

impl RealTime {
    /// The first window strictly later than `after_s`.
    ///
    /// Between two changes of the offset local time is UTC plus a constant, so the walk goes from change to
    /// change; that is what makes repeated local times due twice and skipped ones never.
    pub(super) fn next(&self, zone: &Zone, after_s: i64) -> Option<Slot> {
        let mut from_s = after_s + 1;
        while from_s <= LAST_S {
            let offset_s = zone.offset_s(from_s);
            let local_s = from_s + offset_s;
            let minute_s = local_s + (-local_s).rem_euclid(60);
            let end_s = zone.next_change_s(from_s).unwrap_or(LAST_S + DAY_S);
            if let Some(found_s) = self.next_local(minute_s, end_s + offset_s) {
                return Some(Slot { at_s: found_s - offset_s, dst: Dst::None });
            }
            from_s = end_s;
        }
        None
    }

    /// The first local time that fits, from a whole minute to `end_s` (exclusive).
    fn next_local(&self, from_s: i64, end_s: i64) -> Option<i64> {
        let last_day = day_of(end_s - 1);
        let today = day_of(from_s);
        let mut day = self.days.on_or_after(today, last_day)?;
        let mut time_s = self.time_from(if day == today { from_s.rem_euclid(DAY_S) } else { 0 });
        if time_s.is_none() {
            day = self.days.on_or_after(day + 1, last_day)?;
            time_s = self.time_from(0);
        }
        time_s.map(|time_s| day * DAY_S + time_s).filter(|local_s| *local_s < end_s)
    }

    /// The first time of day that fits, at or after a whole minute; in seconds.
    fn time_from(&self, time_s: i64) -> Option<i64> {
        let (hour, minute) = (time_s / 3_600, time_s / 60 % 60);
        if let Some(minute) = lowest_from(self.minutes, minute)
            && lowest_from(self.hours, hour) == Some(hour)
        {
            return Some(hour * 3_600 + minute * 60);
        }
        let hour = lowest_from(self.hours, hour + 1)?;
        Some(hour * 3_600 + lowest_from(self.minutes, 0)? * 60)
    }
}

/// The lowest bit that is set, at or above `from` (0 to 63).
fn lowest_from(bits: u64, from: i64) -> Option<i64> {
    let rest = bits >> from;
    if rest == 0 { None } else { Some(from + i64::from(rest.trailing_zeros())) }
}
