//! What the ledger has done since it was opened, in numbers: counted in plain atomics, shown in Prometheus' text format.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::append::{AppendError, Appended};

/// Upper bounds of the batch sizes, in events.
const BATCH: [u64; 7] = [1, 4, 16, 64, 256, 1_024, u64::MAX];
/// Upper bounds of the commit latencies, in microseconds.
const LATENCY_US: [u64; 10] = [500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000, 10_000_000, u64::MAX];

/// How many observations lie at or below each bound, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// `(upper bound, observations at or below it)`; the last bound is `u64::MAX` and counts them all.
    pub buckets: Vec<(u64, u64)>,
    /// Sum of all observations.
    pub sum: u64,
}

/// Numbers of one process since it opened the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Appends that were answered, by what they came to: `written`, `condition`, `duplicate`, `conflict`, `key_reused`,
    /// `invalid`, `unknown`, `failed`.
    pub appends: BTreeMap<&'static str, u64>,
    /// Events written.
    pub events: u64,
    /// Events whose content was erased by an append.
    pub erased: u64,
    /// Events in each transaction that wrote some.
    pub batch_events: Histogram,
    /// Microseconds from the lock to the flush, for each transaction that wrote something.
    pub commit_us: Histogram,
    /// Times that the connection to append or to flush was lost.
    pub losses: u64,
    /// The highest position known to be durable.
    pub head: u64,
    /// Events that each follower has still to read, by its name.
    pub followers: BTreeMap<String, u64>,
    /// Bytes of SQLite's write-ahead log; none on PostgreSQL.
    pub wal_bytes: Option<u64>,
}

/// Somebody who follows the ledger and says how far it got.
#[derive(Clone, Debug)]
pub struct Follower(Arc<AtomicU64>);

impl Follower {
    /// Everything up to `position` is read and applied.
    pub fn reached(&self, position: u64) {
        self.0.fetch_max(position, Relaxed);
    }
}

#[derive(Debug)]
struct Buckets<const N: usize> {
    bounds: [u64; N],
    counts: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Buckets<N> {
    fn new(bounds: [u64; N]) -> Self {
        Self { bounds, counts: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }

    fn observe(&self, value: u64) {
        if let Some(at) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[at].fetch_add(1, Relaxed);
            self.sum.fetch_add(value, Relaxed);
        }
    }

    fn read(&self) -> Histogram {
        let mut below = 0;
        let buckets = self.bounds.iter().zip(&self.counts).map(|(bound, count)| {
            below += count.load(Relaxed);
            (*bound, below)
        });
        Histogram { buckets: buckets.collect(), sum: self.sum.load(Relaxed) }
    }
}

/// Where it is counted.
#[derive(Debug)]
pub(crate) struct Counters {
    answers: [AtomicU64; ANSWERS.len()],
    events: AtomicU64,
    erased: AtomicU64,
    batch_events: Buckets<{ BATCH.len() }>,
    commit_us: Buckets<{ LATENCY_US.len() }>,
    followers: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
}

const ANSWERS: [&str; 8] =
    ["written", "condition", "duplicate", "conflict", "key_reused", "invalid", "unknown", "failed"];

impl Default for Counters {
    fn default() -> Self {
        Self {
            answers: Default::default(),
            events: AtomicU64::new(0),
            erased: AtomicU64::new(0),
            batch_events: Buckets::new(BATCH),
            commit_us: Buckets::new(LATENCY_US),
            followers: Mutex::default(),
        }
    }
}

impl Counters {
    pub(crate) fn done(&self, done: &Appended) {
        let at = match done {
            done if done.duplicate => 2,
            done if done.count == 0 => 1,
            _ => 0,
        };
        self.answers[at].fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, error: &AppendError) {
        let at = match error {
            AppendError::Conflict { .. } => 3,
            AppendError::KeyReused { .. } => 4,
            AppendError::Invalid(_) => 5,
            AppendError::Unknown => 6,
            AppendError::Log(_) => 7,
        };
        self.answers[at].fetch_add(1, Relaxed);
    }

    /// A transaction that wrote is durable.
    pub(crate) fn committed(&self, events: u64, erased: u64, took: Duration) {
        self.events.fetch_add(events, Relaxed);
        self.erased.fetch_add(erased, Relaxed);
        self.batch_events.observe(events);
        self.commit_us.observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn follower(&self, name: &str) -> Follower {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        Follower(Arc::clone(followers.entry(name.to_owned()).or_default()))
    }

    pub(crate) fn read(&self, head: u64, losses: u64, wal_bytes: Option<u64>) -> Metrics {
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        Metrics {
            appends: ANSWERS.into_iter().zip(self.answers.iter().map(|count| count.load(Relaxed))).collect(),
            events: self.events.load(Relaxed),
            erased: self.erased.load(Relaxed),
            batch_events: self.batch_events.read(),
            commit_us: self.commit_us.read(),
            losses,
            head,
            followers: followers
                .iter()
                .map(|(name, reached)| (name.clone(), head.saturating_sub(reached.load(Relaxed))))
                .collect(),
            wal_bytes,
        }
    }
}

impl Metrics {
    /// In Prometheus' text format 0.0.4.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        family(&mut out, "appends_total", "counter", "Appends answered, by what they came to.");
        for (answer, count) in &self.appends {
            line(&mut out, "appends_total", &format!("{{result=\"{answer}\"}}"), count);
        }
        for (name, kind, help, value) in [
            ("events_total", "counter", "Events written.", self.events),
            ("erased_total", "counter", "Events whose content was erased.", self.erased),
            ("losses_total", "counter", "Connections to append or to flush that were lost.", self.losses),
            ("head", "gauge", "The highest position known to be durable.", self.head),
        ] {
            family(&mut out, name, kind, help);
            line(&mut out, name, "", value);
        }
        if let Some(bytes) = self.wal_bytes {
            family(&mut out, "wal_bytes", "gauge", "Size of SQLite's write-ahead log.");
            line(&mut out, "wal_bytes", "", bytes);
        }
        family(&mut out, "follower_lag_events", "gauge", "Events that a follower has still to read.");
        for (name, lag) in &self.followers {
            let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            line(&mut out, "follower_lag_events", &format!("{{follower=\"{name}\"}}"), lag);
        }
        family(&mut out, "batch_events", "histogram", "Events in each transaction that wrote.");
        histogram(&mut out, "batch_events", &self.batch_events, u64::to_string);
        family(&mut out, "commit_seconds", "histogram", "From the lock to the flush, for each transaction that wrote.");
        histogram(&mut out, "commit_seconds", &self.commit_us, seconds);
        out
    }
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, "# HELP midwatch_ledger_{name} {help}\n# TYPE midwatch_ledger_{name} {kind}\n");
}

fn line(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "midwatch_ledger_{name}{labels} {value}");
}

fn histogram(out: &mut String, name: &str, histogram: &Histogram, shown: fn(&u64) -> String) {
    for (bound, count) in &histogram.buckets {
        let bound = if *bound == u64::MAX { "+Inf".to_owned() } else { shown(bound) };
        line(out, &format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), count);
    }
    line(out, &format!("{name}_sum"), "", shown(&histogram.sum));
    line(out, &format!("{name}_count"), "", histogram.buckets.last().map_or(0, |(_, count)| *count));
}

/// Microseconds as seconds.
fn seconds(us: &u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_prometheus_reads_them() {
        let counters = Counters::default();
        counters.failed(&AppendError::Unknown);
        counters.committed(5, 2, Duration::from_micros(1_500));
        counters.committed(1_024, 0, Duration::from_secs(20));
        counters.follower("a \"b\"\\").reached(7);
        let shown = counters.read(10, 1, Some(4_096)).render();
        for line in [
            "# TYPE midwatch_ledger_appends_total counter",
            "midwatch_ledger_appends_total{result=\"unknown\"} 1",
            "midwatch_ledger_appends_total{result=\"written\"} 0",
            "midwatch_ledger_events_total 1029",
            "midwatch_ledger_erased_total 2",
            "midwatch_ledger_losses_total 1",
            "midwatch_ledger_head 10",
            "midwatch_ledger_wal_bytes 4096",
            "midwatch_ledger_follower_lag_events{follower=\"a \\\"b\\\"\\\\\"} 3",
            "midwatch_ledger_batch_events_bucket{le=\"4\"} 0",
            "midwatch_ledger_batch_events_bucket{le=\"16\"} 1",
            "midwatch_ledger_batch_events_bucket{le=\"+Inf\"} 2",
            "midwatch_ledger_commit_seconds_bucket{le=\"0.001\"} 0",
            "midwatch_ledger_commit_seconds_bucket{le=\"0.0025\"} 1",
            "midwatch_ledger_commit_seconds_bucket{le=\"10\"} 1",
            "midwatch_ledger_commit_seconds_bucket{le=\"+Inf\"} 2",
            "midwatch_ledger_commit_seconds_sum 20.0015",
            "midwatch_ledger_commit_seconds_count 2",
        ] {
            assert!(shown.lines().any(|found| found == line), "{line}\nis not in\n{shown}");
        }
    }
}
