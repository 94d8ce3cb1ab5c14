//! The second oracle: every minute of two weeks with its local time by jiff, searched one after the other.

use std::collections::HashMap;

use midwatch_commands::calendar::Schedule;

use crate::{
    Compared, ours, shared,
    triples::{Days, Random, Rule, Ruled, jiff_zone, offset_s},
};

/// How long a walk is, and what of it at either end is only there to be looked at.
const WALK: usize = 16 * 1_440;
const MARGIN: usize = 3 * 1_440;

/// How many triples one walk answers.
const EACH: usize = 400;

/// One minute of a clock on the wall.
#[derive(Clone, Copy)]
struct Minute {
    /// Local minutes since the epoch, as if they were UTC.
    local: i64,
    /// The same, within its day.
    of_day: usize,
    /// Monday is 0.
    weekday: u32,
    month: i8,
    day: i8,
    last: bool,
    /// The same local minute was there before, or will come again.
    again: bool,
    more: bool,
    /// Skipped minutes moved to this one.
    lands: bool,
}

/// Every minute of a stretch of real time.
struct Walk {
    start_s: i64,
    minutes: Vec<Minute>,
    /// Local minutes that were skipped, by the minute they moved to.
    moved: HashMap<usize, Vec<Minute>>,
    /// Where a fixed local minute comes to.
    resolved: HashMap<i64, usize>,
}

fn shown(local: i64) -> Minute {
    let date = jiff::civil::date(1970, 1, 1) + jiff::Span::new().days(local.div_euclid(1_440));
    Minute {
        local,
        of_day: local.rem_euclid(1_440) as usize,
        weekday: date.weekday().to_monday_zero_offset() as u32,
        month: date.month(),
        day: date.day(),
        last: date.day() == date.days_in_month(),
        again: false,
        more: false,
        lands: false,
    }
}

impl Walk {
    fn new(zone: &str, start_s: i64) -> Self {
        let tz = jiff_zone(zone);
        let mut walk =
            Self { start_s, minutes: Vec::with_capacity(WALK), moved: HashMap::new(), resolved: HashMap::new() };
        for index in 0..WALK {
            let at_s = start_s + index as i64 * 60;
            let local_s = at_s + offset_s(&tz, at_s);
            assert_eq!(local_s % 60, 0, "{zone} has an offset with seconds at {at_s}");
            let local = local_s / 60;
            let before = walk.minutes.last().copied();
            let mut minute = match before {
                Some(before) if before.local + 1 == local && before.of_day < 1_439 => {
                    Minute { local, of_day: before.of_day + 1, again: false, more: false, lands: false, ..before }
                }
                _ => shown(local),
            };
            // A skipped minute moves forward by as much as was skipped.
            for (k, skipped) in before.map_or(local..local, |before| before.local + 1..local).enumerate() {
                walk.moved.entry(index + k).or_default().push(shown(skipped));
                walk.resolved.insert(skipped, index + k);
            }
            minute.lands = walk.moved.contains_key(&index);
            if let Some(earlier) = walk.resolved.get(&local) {
                minute.again = true;
                walk.minutes[*earlier].more = true;
            } else {
                walk.resolved.insert(local, index);
            }
            walk.minutes.push(minute);
        }
        walk
    }

    fn at_s(&self, index: usize) -> i64 {
        self.start_s + index as i64 * 60
    }

    /// The first window after an instant, if it is in the walk, by looking at each minute.
    fn search(&self, rule: &Ruled, after_s: i64, created_s: i64) -> Option<(i64, &'static str)> {
        let low_s = rule.starts_s.map_or(after_s + 1, |starts_s| starts_s.max(after_s + 1));
        let first = ((low_s - self.start_s).div_euclid(60)).clamp(0, WALK as i64) as usize;
        let found = match &rule.rule {
            Rule::Once { at_s } => (*at_s >= low_s && *at_s < self.at_s(WALK - MARGIN)).then_some((*at_s, "none")),
            Rule::Every { .. } => self.elapsed(rule, first, low_s, created_s).map(|at_s| (at_s, "none")),
            Rule::Times { .. } | Rule::Cron { .. } => self.on_the_wall(rule, first, low_s),
        };
        found.filter(|(at_s, _)| rule.ends_s.is_none_or(|ends_s| *at_s <= ends_s))
    }

    fn on_the_wall(&self, rule: &Ruled, first: usize, low_s: i64) -> Option<(i64, &'static str)> {
        let times = times(rule);
        let real_time = rule.is_real_time();
        let fits = |minute: &Minute| times[minute.of_day] && on_day(rule, minute);
        let mut at_s = self.at_s(first);
        for (index, minute) in self.minutes.iter().enumerate().take(WALK - MARGIN).skip(first) {
            if (times[minute.of_day] || minute.lands) && at_s >= low_s {
                if real_time {
                    if fits(minute) {
                        return Some((at_s, "none"));
                    }
                } else if minute.lands && self.moved[&index].iter().any(fits) {
                    return Some((at_s, "moved"));
                } else if !minute.again && fits(minute) {
                    return Some((at_s, if minute.more { "first_of_two" } else { "none" }));
                }
            }
            at_s += 60;
        }
        None
    }

    fn elapsed(&self, rule: &Ruled, first: usize, low_s: i64, created_s: i64) -> Option<i64> {
        let Rule::Every { step_s, between, anchor_s } = &rule.rule else { return None };
        let end_s = self.at_s(WALK - MARGIN);
        // The creation itself is no window; an anchor is one.
        let grid_s = anchor_s.unwrap_or(created_s);
        let spans = match between {
            None => vec![(if anchor_s.is_some() { grid_s } else { grid_s + 1 }, end_s)],
            Some(between) => self.spans(*between),
        };
        let second_s = if anchor_s.is_some() || between.is_none() { (grid_s - self.start_s).rem_euclid(60) } else { 0 };
        let mut at_s = self.at_s(first) + second_s;
        while at_s < end_s {
            if at_s >= low_s {
                for (open_s, close_s) in &spans {
                    let from_s = if between.is_some() && anchor_s.is_none() { *open_s } else { grid_s };
                    if *open_s <= at_s && at_s < *close_s && at_s >= from_s && (at_s - from_s) % step_s == 0 {
                        return Some(at_s);
                    }
                }
            }
            at_s += 60;
        }
        None
    }

    /// From when to when `between` is open, for each local day.
    fn spans(&self, (from, to): (i64, i64)) -> Vec<(i64, i64)> {
        let days = self.minutes[0].local.div_euclid(1_440) + 1..self.minutes[WALK - 1].local.div_euclid(1_440) - 1;
        let place = |day: i64, minute: i64| self.resolved.get(&(day * 1_440 + minute)).map(|at| self.at_s(*at));
        let span = |day: i64| {
            let close_s = if from < to { place(day, to)? } else { place(day + 1, to)?.min(place(day + 1, from)?) };
            Some((place(day, from)?, close_s))
        };
        days.filter_map(span).filter(|(open_s, close_s)| open_s < close_s).collect()
    }
}

/// Which minutes of a day the rule names.
fn times(rule: &Ruled) -> Vec<bool> {
    let mut times = vec![false; 1_440];
    match &rule.rule {
        Rule::Times { minutes, .. } => minutes.iter().for_each(|minute| times[*minute as usize] = true),
        Rule::Cron { minutes, hours, .. } => {
            for hour in hours {
                minutes.iter().for_each(|minute| times[(hour * 60 + minute) as usize] = true);
            }
        }
        Rule::Once { .. } | Rule::Every { .. } => {}
    }
    times
}

/// Whether the rule names the day of this minute.
fn on_day(rule: &Ruled, minute: &Minute) -> bool {
    let (Rule::Times { days, .. } | Rule::Cron { days, .. }) = &rule.rule else { return false };
    match days {
        Days::Week(week) => week >> minute.weekday & 1 == 1,
        Days::Month(days, last) => days >> minute.day & 1 == 1 || (*last && minute.last),
        Days::Cron { months, month_days, week, .. } => {
            let by_date = month_days.map(|days| days >> minute.day & 1 == 1);
            let by_weekday = week.map(|week| week >> ((minute.weekday + 1) % 7) & 1 == 1);
            let day = match (by_date, by_weekday) {
                (Some(by_date), Some(by_weekday)) => by_date || by_weekday,
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => true,
            };
            months >> minute.month & 1 == 1 && day
        }
    }
}

/// Whether the bits of a cron's day fields say all of them: `L`, `W` and `#` are the other oracle's.
fn plain(rule: &Ruled) -> bool {
    match &rule.rule {
        Rule::Cron { days: Days::Cron { fields: [day, _, weekday], month_days, week, .. }, .. } => {
            (day == "*" || month_days.is_some()) && (weekday == "*" || week.is_some())
        }
        Rule::Once { .. } | Rule::Times { .. } | Rule::Cron { .. } | Rule::Every { .. } => true,
    }
}

#[test]
fn a_search_over_every_minute_agrees() {
    shared("minute by minute", compared);
}

fn compared(seed: u64, count: usize) -> Compared {
    let mut random = Random::new(seed);
    let mut compared = Compared::default();
    let mut left = count;
    while left > 0 {
        let zone = random.zone();
        let middle_s = random.instant(&jiff_zone(zone));
        // The instant lies in the first half, with room to look back.
        let before = random.range(MARGIN as i64 + 1_440, WALK as i64 / 2);
        let walk = Walk::new(zone, middle_s.div_euclid(60) * 60 - before * 60);
        let end_s = walk.at_s(WALK - MARGIN);
        for _ in 0..EACH.min(left) {
            let spread_s = if random.chance(50) { 2 * 3_600 } else { 3 * 86_400 };
            let near_s = middle_s + random.range(-spread_s, spread_s);
            let after_s = near_s.max(walk.at_s(MARGIN));
            let rule = loop {
                let rule = Ruled::random(&mut random, zone, after_s);
                if plain(&rule) {
                    break rule;
                }
            };
            let created_s = after_s - random.range(0, 86_400);
            let found = Schedule::parse(&rule.json().to_string())
                .map_or_else(|_| Vec::new(), |schedule| ours(&schedule, after_s, created_s, 1));
            let found = found.first().filter(|(at_s, _)| *at_s < end_s).map(|(at_s, mark)| (*at_s, mark.as_str()));
            let expected = walk.search(&rule, after_s, created_s);
            compared.count(rule.kind(), expected.is_some());
            if found != expected {
                let json = rule.json();
                let said =
                    format!("{json} created {created_s} after {after_s}\n  ours {found:?}\n  theirs {expected:?}");
                compared.differences.push(said);
            }
        }
        left -= EACH.min(left);
    }
    compared
}
