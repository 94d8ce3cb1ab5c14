//! Which opened runs a runner takes next: of its own share first, so that runners do not race for every run; what is
//! another's when that one leaves it lying.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use midwatch_events::{Recorded, StreamName, engine::Role, id::RunId};

use super::POLL;
use crate::{
    Engine, EngineError, runs,
    shares::{Patience, Shares, Whose},
};

/// Opened runs that a runner remembers while others are before them.
const OPENED_MAX: usize = 10_000;
/// Runs of others' that are taken beside each other: of those that a slow one still works off, few are raced for.
const LEFT_MAX: usize = 16;
/// A runner that is there and has room takes its own within milliseconds.
const PATIENCE: Patience = Patience { left_after: Duration::from_millis(500), at_last: Duration::MAX };

/// Runs that wait for a runner, by the position of their opening; what is too much to remember is found in the
/// projection.
#[derive(Debug)]
pub(crate) struct Waiting {
    own: BTreeMap<u64, RunId>,
    /// With when they were seen, in monotonic time.
    others: BTreeMap<u64, (RunId, Duration)>,
    /// When waiting runs were last looked for in the projection, in monotonic time.
    looked: Option<Duration>,
    shares: Shares,
}

impl Default for Waiting {
    fn default() -> Self {
        let shares = Shares::new(Role::Runner, PATIENCE);
        Self { own: BTreeMap::new(), others: BTreeMap::new(), looked: None, shares }
    }
}

impl Waiting {
    /// Says that this process executes runs.
    pub(crate) async fn say(&mut self, engine: &Engine) {
        if let Err(error) = self.shares.say(engine).await {
            tracing::debug!(%error, "other runners do not learn of this one; they race for its runs");
        }
    }

    pub(crate) async fn leave(&self, engine: &Engine) {
        self.shares.leave(engine).await;
    }

    /// Takes note of what was opened.
    pub(crate) async fn opened(&mut self, engine: &Engine, events: &[Recorded]) {
        let opened = events.iter().filter(|event| event.event_type == "run.opened");
        let opened: Vec<_> = opened.filter_map(|event| Some((event.position, event.stream.uuid()?))).collect();
        if opened.is_empty() {
            return;
        }
        if let Err(error) = self.shares.look(engine).await {
            tracing::debug!(%error, "it is not known which other runners there are");
        }
        let now = engine.world().clock.monotonic();
        for (position, run) in opened {
            let run = RunId::new(run);
            if self.own.len() + self.others.len() >= OPENED_MAX {
                return;
            }
            match self.whose(engine, run, Duration::ZERO) {
                Whose::Own => drop(self.own.insert(position, run)),
                Whose::Others(_) | Whose::Left => drop(self.others.insert(position, (run, now))),
            }
        }
    }

    fn whose(&self, engine: &Engine, run: RunId, since: Duration) -> Whose {
        self.shares.whose(engine, StreamName::run(run).as_str(), since)
    }

    /// They were taken, or have ended.
    pub(crate) fn gone(&mut self, runs: &BTreeSet<RunId>) {
        if !runs.is_empty() {
            self.own.retain(|_, run| !runs.contains(run));
            self.others.retain(|_, (run, _)| !runs.contains(run));
        }
    }

    /// Runs to take beside `waiting`, so that there are at most `free`, the longest opened first. What was opened while
    /// we followed does not wait for the projection; what was opened before we came, or could not be taken, is found in
    /// it.
    pub(crate) async fn take(
        &mut self,
        engine: &Engine,
        waiting: &mut Vec<RunId>,
        free: usize,
    ) -> Result<(), EngineError> {
        let now = engine.world().clock.monotonic();
        while waiting.len() < free
            && let Some((_, run)) = self.own.pop_first()
        {
            waiting.push(run);
        }
        let most = free.min(waiting.len() + LEFT_MAX);
        while waiting.len() < most
            && let Some(first) = self.others.first_entry()
            && now.saturating_sub(first.get().1) >= PATIENCE.left_after
        {
            waiting.push(first.remove().0);
        }
        let due = self.looked.is_none_or(|looked| now.saturating_sub(looked) >= POLL);
        if due && waiting.len() < free {
            self.looked = Some(now);
            self.find(engine, waiting, free).await?;
        }
        Ok(())
    }

    async fn find(&self, engine: &Engine, waiting: &mut Vec<RunId>, free: usize) -> Result<(), EngineError> {
        let limit = u32::try_from(free).unwrap_or(u32::MAX);
        let rows = runs::in_states(engine, &["waiting"], limit).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let now = engine.log().store_time().await?;
        let mut left = 0;
        for row in rows {
            let since = Duration::from_micros(u64::try_from(now.since(row.opened_at)).unwrap_or_default());
            let is_left = match self.whose(engine, row.id, since) {
                Whose::Own => false,
                Whose::Left => true,
                Whose::Others(_) => continue,
            };
            left += usize::from(is_left);
            if waiting.len() < free && left <= LEFT_MAX && !waiting.contains(&row.id) {
                waiting.push(row.id);
            }
        }
        Ok(())
    }

    /// When the first of what is another's is anybody's, from now.
    pub(crate) fn soon(&self, engine: &Engine) -> Option<Duration> {
        let (_, seen) = self.others.first_key_value()?.1;
        Some(PATIENCE.left_after.saturating_sub(engine.world().clock.monotonic().saturating_sub(*seen)))
    }
}
