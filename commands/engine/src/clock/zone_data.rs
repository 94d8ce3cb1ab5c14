//! Windows that were computed by older time-zone data, once for each release in a deployment.

use futures_util::{StreamExt as _, stream};
use midwatch_commands::{
    calendar::{Schedule, tzdb_version},
    routine::{Routine, RoutineCommand},
};
use midwatch_events::{Actor, Micros, StreamName, id::RoutineId};
use midwatch_log::{
    Pending,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::routines_list::{RoutineRow, RoutinesList};

use crate::{Engine, EngineError, Origin, handle::handle, projector};

const PAGE: u32 = 500;
const AT_ONCE: usize = 32;
/// Windows this long ago may have been moved past now, in seconds.
const LOOK_BACK_S: i64 = 3 * 3_600;

/// Looks whether this binary's data moves the next window of any routine, unless a process has done so before.
///
/// # Errors
/// A fault of the database.
pub fn rearm(engine: &Engine) -> Pending<'_, (), EngineError> {
    Box::pin(async move {
        let name = format!("zone_data/{}", tzdb_version());
        if engine.views().named_checkpoint(&name).await? > 0 || engine.halt().await?.state.halted.is_some() {
            return Ok(());
        }
        let head = engine.log().head().await?;
        if projector::as_of::<RoutinesList>(engine).await?.0 < head {
            return Ok(());
        }
        let now = engine.log().store_time().await?;
        let mut after = None;
        loop {
            let filters = vec![Condition { column: "state", is: Test::Eq(Cell::Text("active".to_owned())) }];
            let order = Order { column: "name", descending: false };
            let page = projector::page::<RoutinesList>(engine, filters, order, PAGE, after).await?;
            let mut moved = Vec::new();
            for (row, _) in &page {
                moved.extend(perhaps_moved(row, now).then_some(row.id));
            }
            let rearmed: Vec<_> =
                stream::iter(moved).map(|id| rearm_one(engine, id)).buffer_unordered(AT_ONCE).collect().await;
            rearmed.into_iter().collect::<Result<(), EngineError>>()?;
            match page.last() {
                Some((_, cursor)) if page.len() == PAGE as usize => after = Some(cursor.clone()),
                _ => break,
            }
        }
        engine.views().advance(&name, 0, 1).await?;
        Ok(())
    })
}

async fn rearm_one(engine: &Engine, id: RoutineId) -> Result<(), EngineError> {
    let (origin, stream) = (Origin::of(Actor::Clock), StreamName::routine(id));
    let done = handle::<Routine>(engine, &stream, &origin, None, |_| Ok(RoutineCommand::Rearm(tzdb_version()))).await;
    match done {
        Ok(_) | Err(EngineError::Refused(_)) => Ok(()),
        // One that cannot be read keeps nobody else from being looked at; its window is judged when it is due.
        Err(EngineError::Corrupt(error)) => {
            tracing::error!(%stream, %error, "a routine cannot be read");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// By its row, whether other data could have moved its next window; the routine's own stream then says whether it has.
fn perhaps_moved(row: &RoutineRow, now: Micros) -> bool {
    let (Ok(schedule), Some(next)) = (Schedule::parse(&row.schedule), row.next_window) else { return false };
    if schedule.kind() == "once" {
        return false;
    }
    schedule.next_after(now.plus_s(-LOOK_BACK_S), row.anchor).map(|window| window.at) != Some(next)
}
