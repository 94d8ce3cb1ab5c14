//! Callers that append one event at a time and wait for each answer.

use std::{sync::Arc, time::Duration};

use midwatch_events::StreamName;
use midwatch_log::{Append, AppendError, Expected, Log, NewEvent, StreamAppend};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use crate::{Outcome, samples::Ids};

/// Before anything counts: connections open, statements are prepared, the first batches fill.
const WARM_UP: Duration = Duration::from_millis(500);

/// Who writes to what.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each caller has a stream of its own, and says the version it expects.
    Distinct,
    /// All write to one stream; who meets a conflict takes the version it was told and tries again.
    Hot,
    /// All write to one stream through a lane, as commands on one stream do: each follows the event that was submitted
    /// before it, and waits for its own answer.
    Lane,
}

/// The end of the lane's stream, once everything that was submitted stands.
struct End {
    version: u64,
    event_id: Uuid,
}

impl Mode {
    pub(crate) fn named(word: &str) -> Outcome<Self> {
        match word {
            "distinct" => Ok(Self::Distinct),
            "hot" => Ok(Self::Hot),
            "lane" => Ok(Self::Lane),
            _ => Err(format!("{word} is none of distinct, hot, lane").into()),
        }
    }
}

/// What was counted.
#[derive(Default)]
pub(crate) struct Counted {
    /// How long each append took, in microseconds.
    pub(crate) took_us: Vec<u64>,
    /// Answers that said "conflict".
    pub(crate) conflicts: u64,
}

/// The span in which finished appends count.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    from: Instant,
    to: Instant,
}

impl Span {
    pub(crate) fn next(seconds: Duration) -> Self {
        let from = Instant::now() + WARM_UP;
        Self { from, to: from + seconds }
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.to
    }

    pub(crate) fn count(&self, counted: &mut Counted, began: Instant) {
        let now = Instant::now();
        if self.from <= now && now < self.to {
            counted.took_us.push(u64::try_from((now - began).as_micros()).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.to - self.from).as_secs_f64()
    }
}

pub(crate) async fn callers(log: &Log, callers: usize, seconds: Duration, mode: Mode) -> Outcome<String> {
    let span = Span::next(seconds);
    let run = Ids::new()?.next()?;
    let lane = Arc::new(Mutex::new(None));
    let tasks: Vec<_> = (0..callers)
        .map(|n| {
            let name = if mode == Mode::Distinct { format!("run-{run}-{n}") } else { format!("run-{run}") };
            let (log, stream, lane) = (log.clone(), StreamName::stored(name), Arc::clone(&lane));
            tokio::spawn(async move {
                match mode {
                    Mode::Distinct | Mode::Hot => optimistic(&log, &stream, span).await,
                    Mode::Lane => through_lane(&log, &stream, &lane, span).await,
                }
            })
        })
        .collect();
    sleep_until(span.to).await;
    let mut all = Counted::default();
    for task in tasks {
        let counted = task.await??;
        all.took_us.extend(counted.took_us);
        all.conflicts += counted.conflicts;
    }
    Ok(line(callers, span.seconds(), all))
}

async fn optimistic(log: &Log, stream: &StreamName, span: Span) -> Outcome<Counted> {
    let (mut ids, mut counted, mut version) = (Ids::new()?, Counted::default(), 0);
    while !span.is_over() {
        let began = Instant::now();
        let event = ids.event()?;
        loop {
            match log.append(one(stream, Expected::Exact(version), event.clone())).await {
                Ok(_) => break,
                Err(AppendError::Conflict { actual, .. }) if !span.is_over() => {
                    counted.conflicts += 1;
                    version = actual;
                }
                Err(AppendError::Conflict { .. }) => return Ok(counted),
                Err(error) => return Err(error.into()),
            }
        }
        version += 1;
        span.count(&mut counted, began);
    }
    Ok(counted)
}

/// Submitted under the lane's lock, so that each follows the one before it; answered outside of it.
async fn through_lane(log: &Log, stream: &StreamName, lane: &Mutex<Option<End>>, span: Span) -> Outcome<Counted> {
    let (mut ids, mut counted) = (Ids::new()?, Counted::default());
    while !span.is_over() {
        let (began, event) = (Instant::now(), ids.event()?);
        let submitted = {
            let mut end = lane.lock().await;
            let (version, expected) = match *end {
                None => (0, Expected::NoStream),
                Some(End { version, event_id }) => (version, Expected::After { version, event_id }),
            };
            let next = End { version: version + 1, event_id: event.event_id };
            let submitted = log.submit(one(stream, expected, event)).await?;
            *end = Some(next);
            submitted
        };
        submitted.answer().await?;
        span.count(&mut counted, began);
    }
    Ok(counted)
}

fn one(stream: &StreamName, expected: Expected, event: NewEvent) -> Append {
    let entry = StreamAppend { stream: stream.clone(), expected, events: vec![event] };
    Append { entries: vec![entry], ..Append::default() }
}

/// The result, as JSON.
pub(crate) fn line(callers: usize, seconds: f64, mut counted: Counted) -> String {
    counted.took_us.sort_unstable();
    let events = counted.took_us.len();
    let at = |percent: usize| counted.took_us.get(events * percent / 100).copied().unwrap_or(0);
    format!(
        r#"{{"callers":{callers},"events":{events},"seconds":{seconds:.3},"p50_us":{},"p99_us":{},"conflicts":{}}}"#,
        at(50),
        at(99),
        counted.conflicts
    )
}
