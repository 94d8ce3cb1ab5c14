//! Reading what many claims rest on at once: routine by routine it is three ways to the database each.

use std::collections::BTreeMap;

use midwatch_commands::routine::Routine;
use midwatch_events::{
    Recorded, StreamName,
    codec::CodecError,
    id::RoutineId,
    routine::{RoutineContent, RoutineEvent, Work},
};

use crate::{
    Engine, EngineError,
    folds::{Loaded, Read, load_many},
};

/// A routine as it was read together with others, moments ago. The append still stands on its version.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    pub(crate) loaded: Loaded<Routine>,
    /// The work it does, and the version it is the content of.
    pub(crate) work: Option<(u64, Work)>,
}

/// Reads routines and their work, in three statements. What cannot be read is left out: whoever claims reads it, and
/// hears why.
pub(crate) async fn read_ahead(engine: &Engine, routines: &[RoutineId]) -> BTreeMap<RoutineId, ReadAhead> {
    match all(engine, routines).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "routines cannot be read together; each is read by itself");
            BTreeMap::new()
        }
    }
}

async fn all(engine: &Engine, routines: &[RoutineId]) -> Result<BTreeMap<RoutineId, ReadAhead>, EngineError> {
    let streams: Vec<StreamName> = routines.iter().map(|id| StreamName::routine(*id)).collect();
    let read = load_many::<Routine>(engine.log(), engine.folds(), &streams).await?;
    let (mut found, mut asked) = (BTreeMap::new(), Vec::new());
    for (stream, Read { loaded, events }) in read {
        let Some(id) = stream.uuid().map(RoutineId::new) else { continue };
        let at = loaded.state.work_at;
        let work = match events.iter().find(|event| event.version == at) {
            Some(event) => work_in(event).ok().flatten(),
            None => {
                asked.push((stream, at));
                None
            }
        };
        found.insert(id, ReadAhead { loaded, work: work.map(|work| (at, work)) });
    }
    if !asked.is_empty() {
        for event in engine.log().read_streams(&asked, 1).await? {
            let of = event.stream.uuid().and_then(|id| found.get_mut(&RoutineId::new(id)));
            if let (Some(ahead), Ok(Some(work))) = (of, work_in(&event)) {
                ahead.work = Some((event.version, work));
            }
        }
    }
    Ok(found)
}

/// The work that an event of a routine's stream brought, unless it was erased.
pub(super) fn work_in(event: &Recorded) -> Result<Option<Work>, CodecError> {
    Ok(match event.content::<RoutineEvent>()? {
        Some(RoutineContent::Created(work) | RoutineContent::WorkReplaced(work)) => Some(work),
        _ => None,
    })
}
