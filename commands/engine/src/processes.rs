//! Processes: joining, leaving, and whether there is one that executes what waits.

use std::time::Duration;

use midwatch_commands::{
    calendar,
    engine::{Engine as Deployment, EngineCommand},
};
use midwatch_events::{Actor, StreamName, engine::Role};
use midwatch_log::Pending;
use uuid::Uuid;

use crate::{Done, Engine, EngineError, Origin, handle::handle};

/// What a runner holds as long as it is there. Of several runners one holds it and the others stand by.
const RUNNERS: &str = "runners";
/// How long a runner counts as there after it said so, in seconds.
const PRESENT_S: u32 = 6;
/// How often a runner says so.
pub(crate) const RENEW: Duration = Duration::from_secs(2);

impl Engine {
    /// This process joins the deployment in these roles.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn start_process<'a>(&'a self, version: &'a str, roles: &'a [Role]) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let process = self.process();
            let origin = Origin::of(Actor::Engine);
            handle::<Deployment>(self, &StreamName::process(process), &origin, None, |_| {
                let (version, roles) = (version.to_owned(), roles.to_vec());
                let tzdb = calendar::tzdb_version().to_owned();
                Ok(EngineCommand::StartProcess { process, version, roles, tzdb })
            })
            .await
        })
    }

    /// This process leaves in order. One that never joined leaves no event.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn stop_process(&self) -> Pending<'_, Done<()>, EngineError> {
        Box::pin(async move {
            let process = self.process();
            let origin = Origin::of(Actor::Engine);
            let stream = StreamName::process(process);
            handle::<Deployment>(self, &stream, &origin, None, |_| Ok(EngineCommand::StopProcess { process })).await
        })
    }
}

/// Says that this process executes runs; a runner does so every [`RENEW`].
pub(crate) async fn runner_is_there(engine: &Engine) {
    if let Err(error) = lead(engine, engine.process().uuid(), PRESENT_S).await {
        tracing::debug!(%error, "this runner could not say that it is there");
    }
}

/// Says that this process executes no more.
pub(crate) async fn runner_leaves(engine: &Engine) {
    give_up(engine, engine.process().uuid()).await;
}

/// Whether a process that executes runs was there within the last seconds. Good for a hint and for nothing else.
///
/// # Errors
/// A fault of the database.
pub fn runner_there(engine: &Engine) -> Pending<'_, bool, EngineError> {
    Box::pin(async move {
        // Asked as nobody: a runner asks whether it is there itself.
        let free = lead(engine, Uuid::nil(), 1).await?;
        if free {
            give_up(engine, Uuid::nil()).await;
        }
        Ok(!free)
    })
}

async fn lead(engine: &Engine, process: Uuid, for_s: u32) -> Result<bool, EngineError> {
    let now = engine.world().clock.now();
    Ok(engine.views().lead(RUNNERS, process, for_s, now).await?)
}

async fn give_up(engine: &Engine, process: Uuid) {
    if let Err(error) = engine.views().give_up(RUNNERS, process).await {
        tracing::debug!(%error, "it runs out by itself");
    }
}
