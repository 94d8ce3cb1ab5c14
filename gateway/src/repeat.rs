//! Loading what counts: the end of a repeat stream, back to the window's edge and no further.

use midwatch_commands::{
    Decider,
    repeat::{Repeat, within},
};
use midwatch_engine::{Engine, EngineError};
use midwatch_events::{Micros, StreamName, repeat::RepeatEvent};

const PAGE: u32 = 64;

/// A repeat stream's state at its end, and its version.
///
/// Read backwards until an attempt lies outside the window: that attempt still says how far the thresholds had come, so
/// an old stream costs nothing.
///
/// # Errors
/// A fault of the database, or damaged bytes.
pub async fn load(engine: &Engine, stream: &StreamName, now: Micros) -> Result<(Repeat, u64), EngineError> {
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
