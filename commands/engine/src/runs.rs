//! Runs: what is live, and calling one off.

use std::collections::BTreeSet;

use midwatch_commands::{Refusal, bot::Bot, run::End};
use midwatch_events::{
    StreamName,
    id::{BotId, CallId, RunId},
    run::{CallResult, Outcome, Reason, RunEvent},
};
use midwatch_log::{
    Pending,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::runs::{RunRow, Runs};

use crate::{Done, Engine, EngineError, Origin, projector};

const PAGE: u32 = 500;

/// Runs that have not ended, oldest first.
///
/// # Errors
/// A fault of the database.
pub fn live(engine: &Engine) -> Pending<'_, Vec<RunRow>, EngineError> {
    Box::pin(async move { in_states(engine, &["waiting", "running"], u32::MAX).await })
}

/// Runs in these states, oldest first, at most `limit`.
///
/// # Errors
/// A fault of the database.
pub fn in_states<'a>(engine: &'a Engine, states: &'a [&'a str], limit: u32) -> Pending<'a, Vec<RunRow>, EngineError> {
    Box::pin(async move {
        let mut rows = Vec::new();
        let mut after = None;
        loop {
            let any = states.iter().map(|state| Cell::Text((*state).to_owned())).collect();
            let filters = vec![Condition { column: "state", is: Test::In(any) }];
            let order = Order { column: "opened_at", descending: false };
            let page = projector::page::<Runs>(engine, filters, order, PAGE.min(limit), after).await?;
            let full = page.len() == PAGE as usize;
            after = page.last().map(|(_, cursor)| cursor.clone());
            rows.extend(page.into_iter().map(|(row, _)| row));
            if !full || rows.len() >= limit as usize {
                return Ok(rows);
            }
        }
    })
}

/// What was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// The runs that were called off.
    pub runs: Vec<RunId>,
    /// Calls that had been decided and had no outcome: they may have acted, and end as unknown.
    pub calls: Vec<CallId>,
}

impl Engine {
    /// Calls a run off. From the answer on none of its calls is decided any more; those that had been are listed, and
    /// recorded as unknown.
    ///
    /// # Errors
    /// There is no such run, it has ended, or a fault.
    pub fn cancel_run<'a>(&'a self, run: RunId, origin: &'a Origin) -> Pending<'a, Done<Stopped>, EngineError> {
        Box::pin(async move { self.call_off(run, Reason::Person, "Somebody called it off", origin).await })
    }

    /// Calls off every run of a Bot that is live. From the answer on none of their calls is decided any more.
    ///
    /// # Errors
    /// There is no such Bot, or a fault.
    pub fn stop_bot<'a>(&'a self, bot: BotId, origin: &'a Origin) -> Pending<'a, Done<Stopped>, EngineError> {
        Box::pin(async move {
            if self.load::<Bot>(&StreamName::bot(bot)).await?.state.id.is_none() {
                return Err(Refusal::NotFound("Bot").into());
            }
            self.stop_live(Some(bot), Reason::BotStopped, "Its Bot was stopped", origin).await
        })
    }

    /// Calls off every run that is live. After a halt nothing starts any more, so that from the answer on no call is
    /// decided at all.
    ///
    /// # Errors
    /// A fault.
    pub(crate) async fn stop_runs(&self, origin: &Origin) -> Result<Done<Stopped>, EngineError> {
        self.stop_live(None, Reason::Halt, "Everything was stopped", origin).await
    }

    async fn stop_live(
        &self,
        bot: Option<BotId>,
        reason: Reason,
        headline: &str,
        origin: &Origin,
    ) -> Result<Done<Stopped>, EngineError> {
        let (mut stopped, mut seen) = (Stopped::default(), BTreeSet::new());
        let mut position = self.log().head().await?;
        loop {
            // What was opened up to here is in the projection; what is opened meanwhile is found in the next round.
            projector::catch_up(self).await?;
            let rows = live(self).await?.into_iter().filter(|row| bot.is_none_or(|bot| row.bot == bot));
            let left: Vec<RunId> = rows.map(|row| row.id).filter(|run| seen.insert(*run)).collect();
            if left.is_empty() {
                return Ok(Done { value: stopped, position, duplicate: false });
            }
            for run in left {
                match self.call_off(run, reason, headline, origin).await {
                    Ok(done) => {
                        position = position.max(done.position);
                        stopped.runs.extend(done.value.runs);
                        stopped.calls.extend(done.value.calls);
                    }
                    // It ended by itself.
                    Err(EngineError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn call_off(
        &self,
        run: RunId,
        reason: Reason,
        headline: &str,
        origin: &Origin,
    ) -> Result<Done<Stopped>, EngineError> {
        let end = End {
            take: None,
            outcome: Outcome::Cancelled,
            reason: Some(reason),
            headline: headline.to_owned(),
            error: None,
            now: self.log().store_time().await?,
        };
        let done = self.settle(run, end, origin).await?;
        let calls = self.unknown_at_the_end(run).await?;
        Ok(done.with(Stopped { runs: vec![run], calls }))
    }

    /// The calls that a run's ending found without an outcome: they stand directly before it.
    async fn unknown_at_the_end(&self, run: RunId) -> Result<Vec<CallId>, EngineError> {
        let (stream, mut before) = (StreamName::run(run), u64::MAX);
        let (mut calls, mut over) = (Vec::new(), false);
        loop {
            let page = self.log().read_stream_back(&stream, before, PAGE).await?;
            for recorded in &page {
                before = recorded.version;
                match recorded.facts::<RunEvent>()? {
                    RunEvent::Ended(_) => over = true,
                    RunEvent::ToolCallEnded { decision, result: CallResult::Unknown, .. } if over => {
                        calls.push(decision.call);
                    }
                    _ if over => return Ok(calls),
                    _ => {}
                }
            }
            if page.len() < PAGE as usize {
                return Ok(calls);
            }
        }
    }
}
