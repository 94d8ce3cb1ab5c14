//! The calendar against two readings of its rules that share no code with it: Python's zoneinfo (`oracle.py`), and a
//! search over every minute (`minutes.rs`). Each compares at least 200,000 random triples of zone, rule and instant.
//!
//! `MIDWATCH_SEED` repeats a run; `MIDWATCH_TRIPLES` asks for more.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod minutes;
mod python;
mod triples;

use std::{collections::BTreeMap, env, hash::BuildHasher, thread};

use midwatch_commands::calendar::Schedule;
use midwatch_events::Micros;

/// What each oracle is asked at least.
const TRIPLES: usize = 204_800;

/// How many threads compare, and so how many seeds follow from one.
const SHARES: u64 = 4;

/// How many triples each kind had, and how many of them had a window; and every difference.
#[derive(Debug, Default)]
struct Compared {
    kinds: BTreeMap<&'static str, (usize, usize)>,
    differences: Vec<String>,
}

impl Compared {
    fn count(&mut self, kind: &'static str, found: bool) {
        let counts = self.kinds.entry(kind).or_default();
        counts.0 += 1;
        counts.1 += usize::from(found);
    }

    fn add(&mut self, other: Self) {
        for (kind, (asked, found)) in other.kinds {
            let counts = self.kinds.entry(kind).or_default();
            counts.0 += asked;
            counts.1 += found;
        }
        self.differences.extend(other.differences);
    }

    fn agrees(&self, with: &str, seed: u64) {
        let asked: usize = self.kinds.values().map(|(asked, _)| asked).sum();
        let kinds: Vec<String> =
            self.kinds.iter().map(|(kind, (asked, found))| format!("{kind} {asked} ({found} with a window)")).collect();
        let differences = self.differences.len();
        eprintln!("{with}: MIDWATCH_SEED={seed}, {asked} triples, {differences} differences: {}", kinds.join(", "));
        let first: Vec<&str> = self.differences.iter().take(10).map(String::as_str).collect();
        assert!(first.is_empty(), "MIDWATCH_SEED={seed}: {differences} of {asked} differ\n{}", first.join("\n"));
        assert!(asked >= TRIPLES.min(wanted()), "{asked} triples are too few");
        assert_eq!(self.kinds.len(), triples::KINDS.len(), "a kind was never asked: {:?}", self.kinds);
    }
}

fn seed() -> u64 {
    let given = env::var("MIDWATCH_SEED").ok().map(|seed| seed.parse().unwrap());
    given.unwrap_or_else(|| std::collections::hash_map::RandomState::new().hash_one(0) >> 16)
}

fn wanted() -> usize {
    env::var("MIDWATCH_TRIPLES").map_or(TRIPLES, |count| count.parse().unwrap())
}

/// The triples shared out over threads, each with a seed that follows from the one that is printed.
fn shared(with: &str, compare: impl Fn(u64, usize) -> Compared + Sync) {
    let seed = seed();
    eprintln!("{with}: MIDWATCH_SEED={seed}");
    let each = wanted().div_ceil(SHARES as usize);
    let mut all = Compared::default();
    thread::scope(|scope| {
        let compare = &compare;
        let shares: Vec<_> =
            (0..SHARES).map(|share| scope.spawn(move || compare(seed.wrapping_add(share << 48), each))).collect();
        for share in shares {
            all.add(share.join().unwrap());
        }
    });
    all.agrees(with, seed);
}

/// The next windows as seconds and marks, at most `count`.
fn ours(schedule: &Schedule, after_s: i64, created_s: i64, count: usize) -> Vec<(i64, String)> {
    let seconds = |at_s: i64| Micros(at_s * 1_000_000);
    let windows = schedule.preview(seconds(after_s), Some(seconds(created_s)), count);
    windows.iter().map(|window| (window.at.seconds(), window.dst.as_str().to_owned())).collect()
}
