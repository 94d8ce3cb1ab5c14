//! Trying Bots that did not answer, until they do.

use std::{sync::Arc, time::Duration};

use midwatch_commands::bot::{Bot, BotCommand};
use midwatch_events::{Actor, StreamName};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::bots::Bots;

use crate::{Engine, EngineError, Origin, projector, runner::Executor};

/// How often a Bot that does not answer is tried.
const EVERY: Duration = Duration::from_secs(10);
/// So many are tried in one round.
const BOTS_MAX: u32 = 100;

/// When they were tried last, in monotonic time.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    tried: Option<Duration>,
}

impl Probes {
    /// Tries those that did not answer, unless that was just done; what is found is said in a task of its own, so that
    /// nobody waits for it.
    pub(crate) async fn round(&mut self, engine: &Engine, executor: &Arc<dyn Executor>) {
        let now = engine.world().clock.monotonic();
        if self.tried.is_some_and(|tried| now.saturating_sub(tried) < EVERY) {
            return;
        }
        self.tried = Some(now);
        let silent = match silent(engine).await {
            Ok(silent) => silent,
            Err(error) => {
                tracing::debug!(%error, "Bots that do not answer cannot be looked up");
                return;
            }
        };
        for bot in silent {
            let (engine, executor) = (engine.clone(), Arc::clone(executor));
            let tasks = Arc::clone(&engine.world().tasks);
            tasks.spawn(Box::pin(async move {
                let Some(id) = bot.id else { return };
                if !executor.answers(&bot).await {
                    return;
                }
                let command = BotCommand::Tried(true);
                if let Err(error) = engine.change_bot(id, &Origin::of(Actor::Engine), None, command).await {
                    tracing::warn!(bot = %id, %error, "that the Bot answers again cannot be recorded");
                }
            }));
        }
    }
}

/// The Bots that do not answer.
async fn silent(engine: &Engine) -> Result<Vec<Bot>, EngineError> {
    let filters = vec![Condition { column: "unreachable", is: Test::Eq(Cell::Int(1)) }];
    let order = Order { column: "name", descending: false };
    let rows = projector::page::<Bots>(engine, filters, order, BOTS_MAX, None).await?;
    let mut bots = Vec::new();
    for (row, _) in rows {
        bots.push(engine.load::<Bot>(&StreamName::bot(row.id)).await?.state);
    }
    bots.retain(|bot| bot.unreachable);
    Ok(bots)
}
