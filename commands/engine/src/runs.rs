//! Runs: what is live, and calling one off.

use midwatch_commands::run::End;
use midwatch_events::{
    id::RunId,
    run::{Outcome, Reason},
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::runs::{RunRow, Runs};

use crate::{Done, Engine, EngineError, Origin, projector};

const PAGE: u32 = 500;

/// Runs that have not ended, oldest first.
///
/// # Errors
/// A fault of the database.
pub async fn live(engine: &Engine) -> Result<Vec<RunRow>, EngineError> {
    in_states(engine, &["waiting", "running"], u32::MAX).await
}

/// Runs in these states, oldest first, at most `limit`.
///
/// # Errors
/// A fault of the database.
pub async fn in_states(engine: &Engine, states: &[&str], limit: u32) -> Result<Vec<RunRow>, EngineError> {
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
}

impl Engine {
    /// Calls a run off. From the answer on none of its calls is decided any more; a call that had started is recorded
    /// as unknown.
    ///
    /// # Errors
    /// There is no such run, it has ended, or a fault.
    pub async fn cancel_run(&self, run: RunId, origin: &Origin) -> Result<Done<()>, EngineError> {
        let end = End {
            take: None,
            outcome: Outcome::Cancelled,
            reason: Some(Reason::Person),
            headline: "Somebody called it off".to_owned(),
            error: None,
            now: self.log().store_time().await?,
        };
        self.settle(run, end, origin).await
    }
}
