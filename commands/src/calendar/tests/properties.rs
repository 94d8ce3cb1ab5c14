//! The rules against a slow second reading of them: a walk over every minute.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use midwatch_events::time::Micros;
use proptest::prelude::*;

use super::super::schedule::micros;
use super::super::{DAY_S, Dst, Schedule, Zone};
use super::{at, schedule};

/// Zones with every sort of change: one hour, half an hour, two hours, a day; at midnight; ended, begun, twice a
/// year for a month (Casablanca), and none at all.
const ZONES: [&str; 16] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Antarctica/Troll",
    "America/Havana",
    "America/Santiago",
    "Asia/Gaza",
    "Asia/Pyongyang",
    "Asia/Kathmandu",
    "Europe/Dublin",
    "America/Vancouver",
    "America/St_Johns",
    "UTC",
];

/// How far the walk looks to either side: a moved time moves by a day at the most.
const MARGIN_S: i64 = 3 * DAY_S;

/// Every minute of a span with its local time.
struct Walk {
    /// The instants of each local minute, in order.
    instants: HashMap<i64, Vec<i64>>,
    /// Skipped local minutes, and the instants they moved to.
    moved: HashMap<i64, i64>,
}

impl Walk {
    fn over(zone: &Zone, from_s: i64, to_s: i64) -> Self {
        let mut walk = Self { instants: HashMap::new(), moved: HashMap::new() };
        let mut previous: Option<i64> = None;
        let start_s = from_s.div_euclid(60) * 60 - MARGIN_S;
        for minute_s in (start_s..=to_s + MARGIN_S).step_by(60) {
            let local_s = minute_s + zone.offset_s(minute_s);
            if let Some(previous) = previous {
                for (k, skipped) in (previous + 60..local_s).step_by(60).enumerate() {
                    walk.moved.insert(skipped, minute_s + k as i64 * 60);
                }
            }
            walk.instants.entry(local_s).or_default().push(minute_s);
            previous = Some(local_s);
        }
        walk
    }

    fn resolve(&self, local_s: i64) -> Option<(i64, Dst)> {
        match self.instants.get(&local_s).map(Vec::as_slice) {
            Some([first]) => Some((*first, Dst::None)),
            Some([first, ..]) => Some((*first, Dst::FirstOfTwo)),
            _ => self.moved.get(&local_s).map(|moved| (*moved, Dst::Moved)),
        }
    }
}

fn weekday(day: i64) -> usize {
    usize::try_from((day + 3).rem_euclid(7)).unwrap()
}

fn days_around(zone: &Zone, from_s: i64, to_s: i64) -> std::ops::RangeInclusive<i64> {
    let local = |at_s: i64| (at_s + zone.offset_s(at_s)).div_euclid(DAY_S);
    local(from_s) - 2..=local(to_s) + 2
}

fn found(schedule: &Schedule, after_s: i64, up_to_s: i64) -> Vec<(i64, Dst)> {
    let windows = schedule.windows(micros(after_s), micros(after_s), micros(up_to_s), usize::MAX);
    windows.iter().map(|window| (window.at.seconds(), window.dst)).collect()
}

/// A zone and an instant: near one of its changes, or anywhere up to 2400.
fn zone_and_instant() -> impl Strategy<Value = (&'static str, i64)> {
    let start = at("1985-01-01T00:00:00Z").seconds();
    let end = at("2400-01-01T00:00:00Z").seconds();
    let modern = at("2040-01-01T00:00:00Z").seconds();
    let anywhere = prop_oneof![start..modern, start..end];
    (prop::sample::select(ZONES.to_vec()), anywhere, any::<bool>(), -2 * DAY_S..DAY_S).prop_map(
        |(zone, instant, near_a_change, distance)| {
            let known = Zone::named(zone).unwrap();
            let change = if near_a_change { known.next_change_s(instant) } else { None };
            (zone, change.map_or(instant, |change| (change + distance).min(instant + 40 * 365 * DAY_S)))
        },
    )
}

fn minutes_of_day(most: usize) -> impl Strategy<Value = BTreeSet<i64>> {
    prop::collection::btree_set(prop_oneof![0_i64..1_440, 0_i64..210], 1..=most)
}

fn clock(minute: i64) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fixed_times_agree_with_a_walk(
        (zone, after_s) in zone_and_instant(),
        week in prop::collection::btree_set(0_usize..7, 1..=7),
        times in minutes_of_day(5),
    ) {
        let up_to_s = after_s + 4 * DAY_S;
        let known = Zone::named(zone).unwrap();
        let walk = Walk::over(&known, after_s, up_to_s);
        let mut expected: BTreeMap<i64, Dst> = BTreeMap::new();
        for day in days_around(&known, after_s, up_to_s).filter(|day| week.contains(&weekday(*day))) {
            for time in &times {
                let resolved = walk.resolve(day * DAY_S + time * 60);
                if let Some((at_s, dst)) = resolved.filter(|(at_s, _)| *at_s > after_s && *at_s <= up_to_s) {
                    let shown = expected.entry(at_s).or_insert(dst);
                    if dst == Dst::Moved { *shown = dst; }
                }
            }
        }
        let words = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let days: Vec<&str> = week.iter().map(|day| words[*day]).collect();
        let times: Vec<String> = times.iter().map(|minute| clock(*minute)).collect();
        let json = serde_json::json!({"kind": "weekly", "zone": zone, "days": days, "times": times});
        let expected: Vec<(i64, Dst)> = expected.into_iter().collect();
        prop_assert_eq!(found(&schedule(&json.to_string()), after_s, up_to_s), expected);
    }

    #[test]
    fn cron_agrees_with_a_walk(
        (zone, after_s) in zone_and_instant(),
        minutes in prop::collection::btree_set(0_i64..60, 1..=4),
        hours in prop::collection::btree_set(prop_oneof![0_i64..24, 0_i64..4], 1..=6),
        step in prop::option::of(1_i64..=59),
        all_hours in any::<bool>(),
        week in prop::collection::btree_set(0_usize..7, 1..=7),
    ) {
        let up_to_s = after_s + 3 * DAY_S;
        let known = Zone::named(zone).unwrap();
        let minutes: BTreeSet<i64> = step.map_or(minutes, |step| (0..60).step_by(usize::try_from(step).unwrap()).collect());
        let hours: BTreeSet<i64> = if all_hours { (0..24).collect() } else { hours };
        let list = |set: &BTreeSet<i64>| set.iter().map(i64::to_string).collect::<Vec<String>>().join(",");
        let minute_field = step.map_or_else(|| list(&minutes), |step| format!("*/{step}"));
        let hour_field = if all_hours { "*".to_owned() } else { list(&hours) };
        let day_field = list(&week.iter().map(|day| (*day as i64 + 1) % 7).collect());
        let schedule = super::cron(zone, &format!("{minute_field} {hour_field} * * {day_field}"));
        let walk = Walk::over(&known, after_s, up_to_s);
        let mut expected: BTreeMap<i64, Dst> = BTreeMap::new();
        for day in days_around(&known, after_s, up_to_s).filter(|day| week.contains(&weekday(*day))) {
            let of_hour = |hour: &i64| {
                let hour_s = day * DAY_S + hour * 3_600;
                minutes.iter().map(move |minute| hour_s + minute * 60).collect::<Vec<i64>>()
            };
            for local_s in hours.iter().flat_map(of_hour) {
                if step.is_some() || all_hours {
                    // Real time: each instant that shows this local time, and no other.
                    expected.extend(walk.instants.get(&local_s).into_iter().flatten().map(|at_s| (*at_s, Dst::None)));
                } else if let Some((at_s, dst)) = walk.resolve(local_s) {
                    let shown = expected.entry(at_s).or_insert(dst);
                    if dst == Dst::Moved { *shown = dst; }
                }
            }
        }
        let expected: Vec<(i64, Dst)> = expected.into_iter().filter(|(at_s, _)| *at_s > after_s && *at_s <= up_to_s).collect();
        prop_assert_eq!(found(&schedule, after_s, up_to_s), expected);
    }

    #[test]
    fn every_between_agrees_with_a_walk(
        (zone, after_s) in zone_and_instant(),
        step in prop_oneof![1_i64..=120, 1_i64..=3_000],
        from in 0_i64..1_440,
        length in 1_i64..1_440,
        anchored in any::<bool>(),
    ) {
        let up_to_s = after_s + 3 * DAY_S;
        let known = Zone::named(zone).unwrap();
        let walk = Walk::over(&known, after_s, up_to_s);
        let to = (from + length) % 1_440;
        let anchor_s = after_s - 10 * DAY_S;
        let span = serde_json::json!({"from": clock(from), "to": clock(to)});
        let mut json = serde_json::json!({"kind": "every", "zone": zone, "minutes": step, "between": span});
        if anchored {
            json["anchor"] = chrono::DateTime::from_timestamp(anchor_s, 0).unwrap().to_rfc3339().into();
        }
        let Ok(schedule) = Schedule::parse(&json.to_string()) else {
            // An anchor that never meets `between`; that it is one is the next line's business.
            prop_assert!(anchored);
            return Ok(());
        };
        let mut expected: BTreeSet<i64> = BTreeSet::new();
        for day in days_around(&known, after_s, up_to_s) {
            let opens = walk.resolve(day * DAY_S + from * 60);
            let closes = walk.resolve((day + i64::from(to < from)) * DAY_S + to * 60);
            let reopens = walk.resolve((day + 1) * DAY_S + from * 60);
            let (Some((open_s, _)), Some((close_s, _)), Some((reopen_s, _))) = (opens, closes, reopens) else { continue };
            let close_s = if to < from { close_s.min(reopen_s) } else { close_s };
            let grid_s = if anchored { anchor_s } else { open_s };
            expected.extend((open_s.min(after_s)..close_s).filter(|at_s| {
                *at_s >= open_s && *at_s > after_s && *at_s <= up_to_s && (at_s - grid_s).rem_euclid(step * 60) == 0
            }));
        }
        let found: Vec<i64> = found(&schedule, after_s, up_to_s).into_iter().map(|(at_s, _)| at_s).collect();
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<i64>>());
    }

    #[test]
    fn next_is_later_and_never_turns_back(
        (zone, after_s) in zone_and_instant(),
        kind in prop::sample::select(vec![
            r#""kind":"weekly","days":["mon","sat"],"times":["00:00","02:30","23:59"]"#,
            r#""kind":"monthly","days":[1,31,"last"],"times":["01:30","02:00"]"#,
            r#""kind":"every","minutes":7"#,
            r#""kind":"every","minutes":7,"between":{"from":"22:00","to":"02:30"}"#,
            r#""kind":"every","minutes":95,"between":{"from":"22:00","to":"02:30"},"anchor":"2000-01-01T00:00:00Z""#,
            r#""kind":"cron","expr":"*/7 1-3 * * *""#,
            r#""kind":"cron","expr":"30 2 29 2 *""#,
        ]),
        later_s in 0_i64..10 * DAY_S,
        fraction in 0_i64..1_000_000,
    ) {
        let schedule = schedule(&format!(r#"{{{kind},"zone":"{zone}"}}"#));
        let created = micros(after_s - DAY_S);
        let after = Micros(micros(after_s).0 + fraction);
        let first = schedule.next_after(after, created).unwrap();
        prop_assert!(first.at > after);
        let second = schedule.next_after(first.at, created).unwrap();
        prop_assert!(second.at > first.at);
        // Nothing lies between: asked from any instant before it, the same window is next.
        let between = Micros(after.0 + (first.at.0 - after.0) / 2);
        prop_assert_eq!(&schedule.next_after(between, created).unwrap(), &first);
        prop_assert_eq!(&schedule.next_after(Micros(first.at.0 - 1), created).unwrap(), &first);
        // Asked later, the answer is never earlier.
        prop_assert!(schedule.next_after(after.plus_s(later_s), created).unwrap().at >= first.at);
        // A stretch counts what the walk finds, and its ends are windows.
        let up_to = after.plus_s(20 * DAY_S);
        let windows = schedule.windows(after, created, up_to, usize::MAX);
        let stretch = schedule.stretch(after, created, up_to);
        prop_assert_eq!(stretch.as_ref().map_or(0, |stretch| stretch.count), windows.len() as u64);
        prop_assert_eq!(stretch.as_ref().map(|stretch| &stretch.first), windows.first());
        prop_assert_eq!(stretch.as_ref().map(|stretch| &stretch.last), windows.last());
    }

    #[test]
    fn any_text_is_read_or_refused(text in r#"[\{\}\[\]":,a-z0-9 /*#LW+-]{0,80}"#, field in "[0-9a-zA-Z*/,#?-]{0,12}") {
        let _ = Schedule::parse(&text);
        let json = serde_json::json!({"kind": "cron", "zone": "UTC", "expr": format!("{field} {field} {field} * {field}")});
        if let Ok(schedule) = Schedule::parse(&json.to_string()) {
            let start = at("2026-01-01T00:00:00Z");
            prop_assert!(schedule.next_after(start, start).is_some(), "{}", json);
        }
    }
}
