//! Reading a whole ledger: read, decode and fold; and verify.

use std::collections::HashMap;

use midwatch_commands::{Decider as _, run::Run};
use midwatch_events::{Recorded, StreamName, run::RunEvent};
use midwatch_log::{Append, Expected, Filter, Log, LogError, NewEvent, Open, StreamAppend, verify};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    Outcome,
    samples::{self, Ids},
};

const PAGE: u32 = 1_024;
/// Runs in one append: below the 1,024 events that an append may have.
const RUNS: usize = 80;

/// Writes whole runs until the ledger holds at least `events`.
pub(crate) async fn fill(url: &str, events: u64) -> Outcome<String> {
    let log = Log::open(url, Open::ReadWrite).await?;
    let (mut ids, mut head, mut bytes) = (Ids::new()?, log.head().await?, 0);
    let mut under_way = JoinSet::new();
    while head < events {
        while under_way.len() < 4 {
            let mut append = Append::default();
            for _ in 0..RUNS {
                let (run, events) = samples::run(&mut ids)?;
                bytes += events.iter().map(size).sum::<usize>();
                append.entries.push(StreamAppend {
                    stream: StreamName::run(run),
                    expected: Expected::NoStream,
                    events,
                });
            }
            let log = log.clone();
            under_way.spawn(async move { log.append(append).await });
        }
        if let Some(done) = under_way.join_next().await {
            head = head.max(done??.last());
        }
    }
    while let Some(done) = under_way.join_next().await {
        head = head.max(done??.last());
    }
    log.close().await;
    Ok(format!(r#"{{"events":{head},"bytes":{bytes}}}"#))
}

fn size(event: &NewEvent) -> usize {
    event.facts.len() + event.content.as_ref().map_or(0, Vec::len)
}

/// Every event read, its facts decoded, and each run folded; the next page is read meanwhile.
pub(crate) async fn replay(url: &str) -> Outcome<String> {
    let log = Log::open(url, Open::ReadOnly).await?;
    let began = Instant::now();
    let mut runs: HashMap<StreamName, Run> = HashMap::new();
    let mut events = 0_u64;
    let mut next = tokio::spawn(page(log.clone(), 0));
    loop {
        let read = next.await??;
        let Some(last) = read.last() else { break };
        next = tokio::spawn(page(log.clone(), last.position));
        for event in &read {
            let facts: RunEvent = event.facts()?;
            fold(&mut runs, event, &facts);
        }
        events += u64::try_from(read.len())?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let ended = runs.values().filter(|run| run.ended.is_some()).count();
    if ended != runs.len() {
        return Err(format!("{ended} of {} runs ended", runs.len()).into());
    }
    Ok(format!(r#"{{"events":{events},"seconds":{seconds:.3}}}"#))
}

fn fold(runs: &mut HashMap<StreamName, Run>, event: &Recorded, facts: &RunEvent) {
    if let Some(run) = runs.get_mut(&event.stream) {
        run.evolve(facts, event.recorded_at);
    } else {
        let mut run = Run::default();
        run.evolve(facts, event.recorded_at);
        runs.insert(event.stream.clone(), run);
    }
}

async fn page(log: Log, after: u64) -> Result<Vec<Recorded>, LogError> {
    Ok(log.read_all(after, PAGE, &Filter::default()).await?.0)
}

pub(crate) async fn verify(url: &str) -> Outcome<String> {
    let log = Log::open(url, Open::ReadOnly).await?;
    let began = Instant::now();
    let verified = verify::verify(&log).await?;
    let seconds = began.elapsed().as_secs_f64();
    match verified.first_bad {
        None => Ok(format!(r#"{{"events":{},"seconds":{seconds:.3}}}"#, verified.events)),
        Some(bad) => Err(format!("position {}: {}", bad.position, bad.error).into()),
    }
}
