//! Endings: what runs rest on that end at the same time is read together; each is appended by itself, and the ledger
//! makes one group of them.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use midwatch_commands::{
    Refusal,
    run::{End, Run, RunCommand},
};
use midwatch_events::{
    Actor, Micros, StreamName,
    id::{RoutineId, RunId},
};
use midwatch_log::LogError;
use tokio::sync::oneshot;

use super::{ERROR_BYTES_MAX, Ending};
use crate::{Engine, EngineError, Origin, claims::SettleOn, handle::handle};

/// The longest headline, in bytes.
const HEADLINE_BYTES_MAX: usize = 1 << 10;

/// The endings that a process has in hand.
#[derive(Debug, Default)]
pub(super) struct Ends {
    waiting: Mutex<Vec<Waiting>>,
    /// Held by the one who reads for all that wait.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    run: (RunId, Option<RoutineId>),
    read: oneshot::Sender<(Micros, SettleOn)>,
}

impl Ends {
    /// Records how a run ended; tries again until the database takes it or somebody else has ended the run.
    pub(super) async fn settle(
        &self,
        engine: &Engine,
        (run, routine): (RunId, Option<RoutineId>),
        take: u32,
        ending: Ending,
    ) {
        let origin = Origin::of(Actor::Engine);
        loop {
            let settled = match self.read((run, routine), engine).await {
                Ok((now, on)) => {
                    let end = End {
                        take: Some(take),
                        outcome: ending.outcome,
                        reason: ending.reason,
                        headline: cut(&ending.headline, HEADLINE_BYTES_MAX),
                        error: ending.error.as_deref().map(|error| cut(error, ERROR_BYTES_MAX)),
                        now,
                    };
                    match engine.settle_on(on, run, end.clone(), &origin).await {
                        Err(EngineError::Refused(Refusal::RunEnded)) => report_late(engine, run, end).await,
                        settled => settled.map(|_| ()),
                    }
                }
                Err(error) => Err(error.into()),
            };
            match settled {
                Ok(()) => return,
                Err(EngineError::Refused(refusal)) => {
                    tracing::info!(%run, %refusal, "the run was ended by somebody else");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%run, %error, "a run's ending cannot be recorded; trying again");
                    engine.world().clock.sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// The store's time and what the ending rests on. Whoever comes while others are read for waits, and is read for
    /// together with all who came meanwhile.
    async fn read(&self, run: (RunId, Option<RoutineId>), engine: &Engine) -> Result<(Micros, SettleOn), LogError> {
        let (read, mut answer) = oneshot::channel();
        self.lock().push(Waiting { run, read });
        let _reading = self.reading.lock().await;
        if let Ok(read) = answer.try_recv() {
            return Ok(read);
        }
        // Also those who went away, and those whose reader did: it costs a row each.
        let all = std::mem::take(&mut *self.lock());
        let now = engine.log().store_time().await?;
        let runs: Vec<_> = all.iter().map(|waiting| waiting.run).collect();
        let mut found = if runs.len() > 1 { SettleOn::read(engine, &runs).await } else { Default::default() };
        for Waiting { run, read } in all {
            // Who does not wait any more needs nothing.
            let _ = read.send((now, found.remove(&run.0).unwrap_or_default()));
        }
        // Where its own place went with a reader who was stopped, it reads for itself.
        Ok(answer.try_recv().unwrap_or((now, SettleOn::default())))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The run was ended by somebody else: what this runner saw is recorded beside that and changes nothing.
async fn report_late(engine: &Engine, run: RunId, end: End) -> Result<(), EngineError> {
    let (stream, worker) = (StreamName::run(run), engine.process());
    let origin = Origin::of(Actor::Engine).within(&stream);
    let command = |_: &Run| Ok(RunCommand::ReportLate { worker, end: end.clone() });
    handle::<Run>(engine, &stream, &origin, None, command).await.map(|_| ())
}

/// A text as an event has room for it: an ending that is too long would be no ending.
pub(super) fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}… (cut: {} bytes)", &text[..end], text.len())
}
