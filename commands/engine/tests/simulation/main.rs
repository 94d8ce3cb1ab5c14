//! The engine on simulated time, with an adversary: thirty days of routines, people and senders on two to five
//! processes that die between any two polls, on a store that loses, delays and crashes. It is the engine as it is
//! shipped; only time, chance, tasks, the store and what executes runs are played.
//!
//! One seed is one play, to the last byte. `MIDWATCH_SEED=n cargo nextest run -p midwatch-engine one_seed` plays that
//! one; `make soak` plays new ones until it is told to stop.

mod chance;
mod checker;
mod climate;
mod machine;
mod mutants;
mod people;
mod play;
mod script;
mod stage;
mod workers;

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use play::{Ending, play};

/// Seeds that are played in every run of the tests.
const SEEDS: u64 = 1_000;
/// They are dealt out to so many tests, which the runner plays side by side.
const SHARDS: u64 = 20;
/// Windows that end in every play, at least.
const WINDOWS_MIN: u64 = 100;

/// Says which seed it was when a play panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("MIDWATCH_SEED={}", self.0);
        }
    }
}

fn must_hold(seed: u64) -> Ending {
    let _named = Named(seed);
    let ending = play(seed);
    if let Some((failure, tail)) = &ending.failure {
        panic!("{tail}\n{failure}");
    }
    assert!(ending.windows >= WINDOWS_MIN, "only {} windows ended", ending.windows);
    ending
}

fn asked(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|number| number.parse().ok())
}

#[test]
fn one_seed_is_one_play() {
    let seed = asked("MIDWATCH_SEED").unwrap_or(1);
    let (first, second) = (must_hold(seed), must_hold(seed));
    assert_eq!(first.hash, second.hash, "MIDWATCH_SEED={seed} was played twice, and differently");
    let Ending { appends, polls, windows, ran, .. } = first;
    eprintln!("MIDWATCH_SEED={seed}: {windows} windows ended, {ran} of them ran; {appends} appends, {polls} polls");
}

macro_rules! shards {
    ($($name:ident: $shard:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            (1..=SEEDS).filter(|seed| seed % SHARDS == $shard).for_each(|seed| drop(must_hold(seed)));
        })*
    };
}

shards! {
    seeds_0: 0, seeds_1: 1, seeds_2: 2, seeds_3: 3, seeds_4: 4, seeds_5: 5,
    seeds_6: 6, seeds_7: 7, seeds_8: 8, seeds_9: 9, seeds_10: 10, seeds_11: 11,
    seeds_12: 12, seeds_13: 13, seeds_14: 14, seeds_15: 15, seeds_16: 16, seeds_17: 17,
    seeds_18: 18, seeds_19: 19,
}

/// `make soak`: from the seed `FROM` on, `SEEDS` of them or for `MINUTES`, on all cores.
#[test]
#[ignore = "it takes as long as one likes: make soak"]
#[expect(clippy::disallowed_methods, reason = "how long it plays is no part of what is played")]
fn soak() {
    let from = asked("FROM").unwrap_or(SEEDS + 1);
    let most = asked("SEEDS").unwrap_or(u64::MAX - from);
    let span = Duration::from_secs(60 * asked("MINUTES").unwrap_or(if most == u64::MAX - from { 10 } else { 100_000 }));
    let (begun, next, played) = (Instant::now(), AtomicU64::new(from), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while begun.elapsed() < span {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - from >= most {
                        return;
                    }
                    must_hold(seed);
                    played.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    eprintln!("{} seeds from {from} on, {:?}", played.into_inner(), begun.elapsed());
}
