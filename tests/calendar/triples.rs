//! Random zones, rules and instants, leaning to where schedulers go wrong: changes of the clocks, midnight, month ends.

use std::sync::LazyLock;

use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};
use midwatch_commands::calendar::zone_names;
use serde_json::{Value, json};

/// The kinds that are counted apart.
pub(crate) const KINDS: [&str; 7] =
    ["once", "weekly", "monthly", "every", "every between", "cron fixed", "cron real time"];

const DAY_S: i64 = 86_400;

/// 1972-06-01: from here on every offset is a whole number of minutes.
const WHOLE_MINUTES_S: i64 = 76_204_800;
/// 2400-01-01.
const END_S: i64 = 13_569_465_600;
/// 2040-01-01.
const SOON_S: i64 = 2_208_988_800;

/// Half an hour, two hours, a day, midnight, negative, twice a year for a month, rules of 2026, ended, begun, none.
const ODD: [&str; 30] = [
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "America/Vancouver",
    "America/Edmonton",
    "America/Winnipeg",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
    "Pacific/Chatham",
    "Europe/Dublin",
    "America/Havana",
    "Africa/Cairo",
    "America/Santiago",
    "America/Asuncion",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/Nuuk",
    "America/St_Johns",
    "America/New_York",
    "Asia/Gaza",
    "Asia/Beirut",
    "Asia/Tehran",
    "Asia/Pyongyang",
    "Asia/Kathmandu",
    "Europe/Berlin",
    "Europe/Moscow",
    "Europe/London",
    "UTC",
];

static DATA: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(zone_names);

/// jiff's own reading of a zone.
pub(crate) fn jiff_zone(name: &str) -> TimeZone {
    DATA.get(name).unwrap()
}

/// Seconds added to UTC at an instant.
pub(crate) fn offset_s(tz: &TimeZone, at_s: i64) -> i64 {
    i64::from(tz.to_offset(Timestamp::from_second(at_s).unwrap()).seconds())
}

/// SplitMix64 (Steele, Lea and Flood, 2014; public domain).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low + 1) as u64) as i64
    }

    pub(crate) fn chance(&mut self, percent: i64) -> bool {
        self.range(1, 100) <= percent
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.range(0, all.len() as i64 - 1) as usize]
    }

    /// `count` of them at most, ascending, none twice.
    fn some(&mut self, low: i64, high: i64, count: i64) -> Vec<i64> {
        let mut all: Vec<i64> = (0..self.range(1, count)).map(|_| self.range(low, high)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A minute of the day: anywhere, at night, or at midnight.
    fn minute(&mut self) -> i64 {
        match self.range(0, 9) {
            0..=3 => self.range(0, 1_439),
            4..=7 => self.range(0, 239),
            8 => self.range(0, 4) * 30,
            _ => self.range(1_380, 1_439),
        }
    }

    fn minutes(&mut self) -> Vec<i64> {
        let mut all: Vec<i64> = (0..self.range(1, 5)).map(|_| self.minute()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(crate) fn zone(&mut self) -> &'static str {
        if self.chance(60) { self.one(&ODD) } else { self.one(&NAMES) }
    }

    /// An instant: near a change of the zone's clocks, in these years, or anywhere up to 2400.
    pub(crate) fn instant(&mut self, tz: &TimeZone) -> i64 {
        let anywhere = match self.range(0, 9) {
            0..=6 => self.range(WHOLE_MINUTES_S, SOON_S),
            _ => self.range(WHOLE_MINUTES_S, END_S),
        };
        if self.chance(30) {
            return anywhere;
        }
        let change = tz.following(Timestamp::from_second(anywhere).unwrap()).next();
        let change_s = change.map_or(anywhere, |change| change.timestamp().as_second());
        let near_s = match self.range(0, 3) {
            0 => change_s + self.range(-3, 3),
            1 => change_s + self.range(-60, 60) * 60,
            _ => change_s + self.range(-2 * DAY_S, DAY_S),
        };
        near_s.min(END_S)
    }
}

/// Which days, of those rules that name local times.
#[derive(Clone, Debug)]
pub(crate) enum Days {
    /// Bit 0 is Monday.
    Week(u8),
    /// Bit 1 is the first; and whether the last counts.
    Month(u32, bool),
    /// The three day fields of a cron, as text; the bits of those that are plain, for the minute search.
    Cron { fields: [String; 3], months: u32, month_days: Option<u32>, week: Option<u8> },
}

/// A rule, so that each oracle can read it in its own way.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Once { at_s: i64 },
    Times { days: Days, minutes: Vec<i64> },
    Cron { days: Days, minute: String, hour: String, minutes: Vec<i64>, hours: Vec<i64> },
    Every { step_s: i64, between: Option<(i64, i64)>, anchor_s: Option<i64> },
}

/// A rule in its zone, with the limits every kind may have.
#[derive(Clone, Debug)]
pub(crate) struct Ruled {
    pub(crate) zone: &'static str,
    pub(crate) rule: Rule,
    pub(crate) starts_s: Option<i64>,
    pub(crate) ends_s: Option<i64>,
}

/// What is asked: which window of a rule comes after an instant?
#[derive(Clone, Debug)]
pub(crate) struct Triple {
    pub(crate) rule: Ruled,
    pub(crate) after_s: i64,
    pub(crate) created_s: i64,
}

impl Triple {
    /// Any rule, any zone, any instant.
    pub(crate) fn anywhere(random: &mut Random) -> Self {
        let zone = random.zone();
        let after_s = random.instant(&jiff_zone(zone));
        Self { rule: Ruled::random(random, zone, after_s), after_s, created_s: after_s - random.range(0, 40 * DAY_S) }
    }

    pub(crate) fn question(&self) -> Value {
        json!({"after": self.after_s, "created": self.created_s, "schedule": self.rule.json()})
    }
}

impl Ruled {
    /// Any rule, with limits near an instant now and then.
    pub(crate) fn random(random: &mut Random, zone: &'static str, near_s: i64) -> Self {
        let rule = match random.range(0, 19) {
            0 => Rule::Once { at_s: near_s + random.range(-DAY_S, DAY_S) },
            1..=4 => Rule::Times { days: Days::Week(random.range(1, 127) as u8), minutes: random.minutes() },
            5..=7 => Rule::Times { days: month(random), minutes: random.minutes() },
            8 => every(random, near_s, false),
            9..=12 => every(random, near_s, true),
            13..=15 => cron(random, false),
            _ => cron(random, true),
        };
        let limit = |random: &mut Random| random.chance(6).then(|| near_s + random.range(-3 * DAY_S, 10 * DAY_S));
        let (starts_s, ends_s) = (limit(random), limit(random));
        let ends_s = ends_s.filter(|ends_s| starts_s.is_none_or(|starts_s| starts_s <= *ends_s));
        Self { zone, rule, starts_s, ends_s }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match &self.rule {
            Rule::Once { .. } => "once",
            Rule::Times { days: Days::Week(_), .. } => "weekly",
            Rule::Times { .. } => "monthly",
            Rule::Every { between: None, .. } => "every",
            Rule::Every { between: Some(_), .. } => "every between",
            Rule::Cron { .. } if self.is_real_time() => "cron real time",
            Rule::Cron { .. } => "cron fixed",
        }
    }

    pub(crate) fn is_real_time(&self) -> bool {
        matches!(&self.rule, Rule::Cron { minute, hour, .. } if format!("{minute}{hour}").contains(['*', '/']))
    }

    pub(crate) fn has_between(&self) -> bool {
        matches!(&self.rule, Rule::Every { between: Some(_), .. })
    }

    pub(crate) fn json(&self) -> Value {
        let zone = self.zone;
        let times = |minutes: &[i64]| minutes.iter().map(|minute| clock(*minute)).collect::<Vec<String>>();
        let mut json = match &self.rule {
            Rule::Once { at_s } => json!({"kind": "once", "at": instant_text(*at_s)}),
            Rule::Times { days: Days::Week(week), minutes } => {
                let words = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
                let days: Vec<&str> = (0..7).filter(|day| week >> day & 1 == 1).map(|day| words[day]).collect();
                json!({"kind": "weekly", "zone": zone, "days": days, "times": times(minutes)})
            }
            Rule::Times { days: Days::Month(bits, last), minutes } => {
                let mut days: Vec<Value> = (1..=31).filter(|day| bits >> day & 1 == 1).map(Value::from).collect();
                days.extend(last.then(|| Value::from("last")));
                json!({"kind": "monthly", "zone": zone, "days": days, "times": times(minutes)})
            }
            Rule::Cron { days: Days::Cron { fields: [day, month, weekday], .. }, minute, hour, .. } => {
                json!({"kind": "cron", "zone": zone, "expr": format!("{minute} {hour} {day} {month} {weekday}")})
            }
            Rule::Times { .. } | Rule::Cron { .. } => unreachable!("these days belong to the other kind"),
            Rule::Every { step_s, between, anchor_s } => {
                let mut json = json!({"kind": "every", "zone": zone, "minutes": step_s / 60});
                if let Some((from, to)) = between {
                    json["between"] = json!({"from": clock(*from), "to": clock(*to)});
                }
                if let Some(anchor_s) = anchor_s {
                    json["anchor"] = instant_text(*anchor_s).into();
                }
                json
            }
        };
        for (name, limit_s) in [("starts_at", self.starts_s), ("ends_at", self.ends_s)] {
            if let Some(limit_s) = limit_s {
                json[name] = instant_text(limit_s).into();
            }
        }
        json
    }
}

fn month(random: &mut Random) -> Days {
    let ends = random.chance(50);
    let days = random.some(if ends { 27 } else { 1 }, 31, 4);
    Days::Month(days.iter().fold(0, |bits, day| bits | 1 << day), random.chance(30))
}

fn every(random: &mut Random, near_s: i64, between: bool) -> Rule {
    let steps = [1, 5, 7, 10, 15, 25, 30, 45, 60, 90, 95, 120, 360, 720, 780, 1_440];
    let step = if random.chance(60) { random.one(&steps) } else { random.range(1, 3_000) };
    let from = random.minute();
    let to = loop {
        let to = if random.chance(50) { (from + random.range(1, 1_439)) % 1_440 } else { random.minute() };
        if to != from {
            break to;
        }
    };
    let anchor_s = random.chance(40).then(|| near_s + random.range(-400 * DAY_S, 5 * DAY_S));
    Rule::Every { step_s: step * 60, between: between.then_some((from, to)), anchor_s }
}

/// A field of plain numbers, and its values.
fn numbers(random: &mut Random, low: i64, high: i64) -> (String, Vec<i64>) {
    if random.chance(25) {
        let from = random.range(low, high - 1);
        let to = random.range(from, high.min(from + 6));
        return (format!("{from}-{to}"), (from..=to).collect());
    }
    let all = random.some(low, high, 4);
    (all.iter().map(i64::to_string).collect::<Vec<String>>().join(","), all)
}

/// A field with a wildcard or a step, and its values.
fn stepped(random: &mut Random, low: i64, high: i64) -> (String, Vec<i64>) {
    if random.chance(40) {
        return ("*".to_owned(), (low..=high).collect());
    }
    let step = random.range(1, (high / 2).max(1));
    let every = |from: i64, to: i64| (from..=to).step_by(step as usize).collect();
    if random.chance(60) {
        return (format!("*/{step}"), every(low, high));
    }
    let from = random.range(low, high - 1);
    let to = random.range(from, high);
    (format!("{from}-{to}/{step}"), every(from, to))
}

fn cron(random: &mut Random, real_time: bool) -> Rule {
    let night = random.chance(50);
    let ((minute, minutes), (hour, hours)) = if real_time {
        match random.range(0, 2) {
            0 => (stepped(random, 0, 59), numbers(random, 0, if night { 4 } else { 23 })),
            1 => (numbers(random, 0, 59), stepped(random, 0, 23)),
            _ => (stepped(random, 0, 59), stepped(random, 0, 23)),
        }
    } else {
        (numbers(random, 0, 59), numbers(random, 0, if night { 4 } else { 23 }))
    };
    Rule::Cron { days: cron_days(random), minute, hour, minutes, hours }
}

fn cron_days(random: &mut Random) -> Days {
    let bits = |all: &[i64]| all.iter().fold(0_u32, |bits, value| bits | 1 << value);
    let any = || ("*".to_owned(), Vec::new());
    let (month, months) = match random.range(0, 9) {
        0..=6 => ("*".to_owned(), (1..=12).collect()),
        7 => numbers(random, 1, 12),
        8 => stepped(random, 1, 12),
        _ => ("feb".to_owned(), vec![2]),
    };
    let shape = random.range(0, 9);
    let (day, month_days) = match shape {
        0..=2 | 8..=9 => any(),
        3..=5 => numbers(random, 1, 28),
        6 => ("29-31".to_owned(), vec![29, 30, 31]),
        _ => (random.one(&["L", "LW", "1W", "15W", "28W", "?", "L,15", "1,LW"]).to_owned(), Vec::new()),
    };
    let (weekday, week) = match shape {
        0 | 4..=7 => any(),
        1..=3 => numbers(random, 0, 6),
        8 => ("mon-fri".to_owned(), vec![1, 2, 3, 4, 5]),
        _ => (random.one(&["fri-sun", "7", "sun#1", "mon#5", "friL", "?", "sat,sun", "2#2,4L"]).to_owned(), Vec::new()),
    };
    let plain = |text: &str, known: &[i64]| if text == "*" { None } else { Some(bits(known)).filter(|bits| *bits > 0) };
    Days::Cron {
        months: bits(&months),
        month_days: plain(&day, &month_days),
        week: plain(&weekday, &week).map(|week| week as u8),
        fields: [day, month, weekday],
    }
}

fn clock(minute: i64) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

fn instant_text(at_s: i64) -> String {
    Timestamp::from_second(at_s).unwrap().to_string()
}
