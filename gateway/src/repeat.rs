//! Loading what counts: the end of a repeat stream, back to the window's edge and no further.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use midwatch_commands::{
    Decider,
    repeat::{Repeat, within},
};
use midwatch_engine::{Engine, EngineError};
use midwatch_events::{Micros, StreamName, repeat::RepeatEvent};

const PAGE: u32 = 64;
/// Streams remembered; beyond it all are forgotten, which costs a reload each and nothing else.
const KEPT_MAX: usize = 4_096;

/// The ends of repeat streams as this process saw them last. Streams are append-only: what is kept is never wrong, only
/// behind, and a call in a loop reads what is new and not the whole window again.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    kept: Mutex<HashMap<StreamName, (Repeat, u64)>>,
}

impl Ends {
    /// A repeat stream's state at its end, and its version.
    ///
    /// # Errors
    /// A fault of the database, or damaged bytes.
    pub(crate) async fn load(
        &self,
        engine: &Engine,
        stream: &StreamName,
        now: Micros,
    ) -> Result<(Repeat, u64), EngineError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(stream).cloned();
        let (state, version) = match kept {
            Some((state, version)) => forwards(engine, stream, state, version).await?,
            None => backwards(engine, stream, now).await?,
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX && !kept.contains_key(stream) {
            kept.clear();
        }
        kept.insert(stream.clone(), (state.clone(), version));
        Ok((state, version))
    }
}

/// What came since.
async fn forwards(
    engine: &Engine,
    stream: &StreamName,
    mut state: Repeat,
    mut version: u64,
) -> Result<(Repeat, u64), EngineError> {
    loop {
        let page = engine.log().read_stream(stream, version + 1, PAGE).await?;
        for recorded in &page {
            state.evolve(&recorded.facts()?, recorded.recorded_at);
            version = recorded.version;
        }
        if page.len() < PAGE as usize {
            return Ok((state, version));
        }
    }
}

/// Read backwards until an attempt lies outside the window: that attempt still says how far the thresholds had come, so
/// an old stream costs nothing.
async fn backwards(engine: &Engine, stream: &StreamName, now: Micros) -> Result<(Repeat, u64), EngineError> {
    let mut newest_first = Vec::new();
    let mut before = u64::MAX;
    let mut version = 0;
    'pages: loop {
        let page = engine.log().read_stream_back(stream, before, PAGE).await?;
        for recorded in &page {
            version = version.max(recorded.version);
            before = recorded.version;
            let event: RepeatEvent = recorded.facts()?;
            let outside = matches!(&event, RepeatEvent::Attempted { at_us, .. }
                if !within(now, *at_us, engine.repeat_window_s()));
            newest_first.push((event, recorded.recorded_at));
            if outside {
                break 'pages;
            }
        }
        if page.len() < PAGE as usize {
            break;
        }
    }
    let mut state = Repeat::default();
    for (event, at) in newest_first.iter().rev() {
        state.evolve(event, *at);
    }
    Ok((state, version))
}
