//! The `clock` role: claims windows as they fall due, and closes what nobody else closes.
//!
//! No timer per routine: `due` is an indexed projection, read in pages. The clock sleeps to the next due instant, at
//! most [`SLEEP_MAX`], so a jump of the time of day or a sleeping laptop costs at most that.

mod looks;
mod presence;
mod sweep;
mod zone_data;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use midwatch_log::Pending;
use tokio::sync::watch;

use crate::{Engine, EngineError, projector, upkeep, world::told};

pub(crate) use looks::Looks;
pub use sweep::sweep;
pub use zone_data::rearm;

/// The longest the clock sleeps.
pub const SLEEP_MAX: Duration = Duration::from_secs(30);
/// Events that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(50);

/// Ticks until told to stop.
pub fn run(engine: Engine, mut stop: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut head = engine.log().follow();
        let (mut swept, mut noted) = (None, None);
        let mut looks = Looks::default();
        let rearming = Arc::new(AtomicBool::new(false));
        loop {
            let now = engine.world().clock.monotonic();
            if swept.is_none_or(|at| now.saturating_sub(at) >= SLEEP_MAX) {
                swept = Some(now);
                if let Err(error) = projector::stand_in(&engine).await {
                    tracing::warn!(%error, "projections cannot be kept; trying again");
                }
                if let Err(error) = sweep(&engine).await {
                    tracing::warn!(%error, "overdue runs cannot be closed; trying again");
                }
                rearm_beside(&engine, &rearming);
                if let Err(error) = upkeep::keep_up(&engine).await {
                    tracing::warn!(%error, "old words and held deliveries cannot be looked at; trying again");
                }
            }
            let known = *head.borrow_and_update();
            let sleep = match looks.tick(&engine, known).await {
                Ok(sleep) => {
                    ticked(&engine, &mut noted, now).await;
                    sleep
                }
                Err(error) => {
                    tracing::warn!(%error, "due windows cannot be claimed; trying again");
                    Duration::from_secs(1)
                }
            };
            tokio::select! {
                biased;
                () = told(&mut stop) => break,
                () = engine.world().clock.sleep(sleep) => {}
                // New events may have made something due; many at once are looked at together.
                _ = head.changed() => engine.world().clock.sleep(SETTLE).await,
            }
        }
        looks.leave(&engine).await;
    })
}

/// Looks for windows that newer time-zone data moves, in a task of its own: with many routines it takes long, and
/// nothing that is due waits for it.
fn rearm_beside(engine: &Engine, rearming: &Arc<AtomicBool>) {
    if rearming.swap(true, Ordering::AcqRel) {
        return;
    }
    let (engine, rearming) = (engine.clone(), Arc::clone(rearming));
    let tasks = Arc::clone(&engine.world().tasks);
    tasks.spawn(Box::pin(async move {
        if let Err(error) = rearm(&engine).await {
            tracing::warn!(%error, "windows that newer time-zone data moves cannot be looked for; trying again");
        }
        rearming.store(false, Ordering::Release);
    }));
}

/// What stands for a clock's last tick: a named checkpoint that holds seconds since the epoch.
const TICKED: &str = "clock";
/// How often it is written down that the clock goes.
const NOTED: Duration = Duration::from_secs(10);

/// Writes down that the clock goes, so that any process can tell when none does.
async fn ticked(engine: &Engine, noted: &mut Option<Duration>, now: Duration) {
    if noted.is_some_and(|at| now.saturating_sub(at) < NOTED) {
        return;
    }
    let written = async {
        let seconds = u64::try_from(engine.log().store_time().await?.seconds()).unwrap_or(0);
        let before = engine.views().named_checkpoint(TICKED).await?;
        if seconds > before {
            engine.views().advance(TICKED, before, seconds).await?;
        }
        Ok::<_, EngineError>(())
    };
    match written.await {
        Ok(()) => *noted = Some(now),
        Err(error) => tracing::debug!(%error, "it could not be written down that the clock goes"),
    }
}

/// For how many seconds no process' clock has gone round; none where none ever has.
///
/// # Errors
/// A fault of the database.
pub fn still_for_s(engine: &Engine) -> Pending<'_, Option<u64>, EngineError> {
    Box::pin(async move {
        let ticked = engine.views().named_checkpoint(TICKED).await?;
        let now = u64::try_from(engine.log().store_time().await?.seconds()).unwrap_or(0);
        Ok((ticked > 0).then(|| now.saturating_sub(ticked)))
    })
}

/// Looks at everything that is due, and says how long nothing will be. It takes for granted that somebody executes runs.
///
/// # Errors
/// A fault of the database. A target that cannot be looked at is no fault: it is logged or suspended, and the others
/// go on.
pub fn tick(engine: &Engine) -> Pending<'_, Duration, EngineError> {
    Box::pin(async move { Looks::with_runner().tick(engine, 0).await })
}
