//! Which of several clocks, or runners, looks first: each at its own share, and at what is the others' a little later, so
//! that they do not race for every window and every run, and none of them is needed.

use std::time::Duration;

use midwatch_events::{engine::Role, key::hash_parts};
use midwatch_log::views::Order;
use midwatch_projections::engine_processes::Processes;
use uuid::Uuid;

use crate::{Engine, EngineError, projector};

/// How often a process says that it is there, and looks who else is.
const EVERY: Duration = Duration::from_secs(30);
/// How long it counts as there after it said so, in seconds.
const PRESENT_S: u32 = 65;
/// More processes than this share by chance.
const OTHERS_MAX: usize = 64;

/// Whose a target, or a run, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This process's.
    Own,
    /// Another's, for this long.
    Others(Duration),
    /// Another's, which has had its time: anybody's, after their own.
    Left,
}

/// Until when what is another's is left to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long.
    pub(crate) left_after: Duration,
    /// And how long all of it is, however much there is.
    pub(crate) at_last: Duration,
}

/// The processes there are that do the same.
#[derive(Debug)]
pub(crate) struct Shares {
    role: Role,
    patience: Patience,
    others: Vec<Uuid>,
    /// In monotonic time.
    said: Option<Duration>,
    looked: Option<Duration>,
}

impl Shares {
    pub(crate) fn new(role: Role, patience: Patience) -> Self {
        Self { role, patience, others: Vec::new(), said: None, looked: None }
    }

    fn name(&self, process: Uuid) -> String {
        format!("{}/{process}", self.role.name())
    }

    /// Says that this process is one of them.
    pub(crate) async fn say(&mut self, engine: &Engine) -> Result<(), EngineError> {
        let now = engine.world().clock.monotonic();
        if self.said.is_none_or(|said| now.saturating_sub(said) >= EVERY) {
            self.said = Some(now);
            let own = engine.process().uuid();
            engine.views().lead(&self.name(own), own, PRESENT_S, engine.world().clock.now()).await?;
        }
        Ok(())
    }

    /// Looks who else does.
    pub(crate) async fn look(&mut self, engine: &Engine) -> Result<(), EngineError> {
        let now = engine.world().clock.monotonic();
        if self.looked.is_some_and(|looked| now.saturating_sub(looked) < EVERY) {
            return Ok(());
        }
        self.looked = Some(now);
        self.others.clear();
        let order = Order { column: "started_at", descending: true };
        let rows = projector::page::<Processes>(engine, Vec::new(), order, 200, None).await?;
        let there = rows
            .into_iter()
            .map(|(row, _)| row)
            .filter(|row| row.stopped_at.is_none() && row.roles.contains(&self.role) && row.id != engine.process());
        for process in there.map(|row| row.id.uuid()).take(OTHERS_MAX) {
            // Nobody leads under its name: it is gone.
            if engine.views().lead(&self.name(process), Uuid::nil(), 1, engine.world().clock.now()).await? {
                engine.views().give_up(&self.name(process), Uuid::nil()).await?;
            } else {
                self.others.push(process);
            }
        }
        Ok(())
    }

    /// Whose it is to look at a target that has been due, or a run that has been waiting, for `since`.
    pub(crate) fn whose(&self, engine: &Engine, stream: &str, since: Duration) -> Whose {
        if since >= self.patience.at_last || self.others.is_empty() {
            return Whose::Own;
        }
        let weight = |process: Uuid| hash_parts(&[process.as_bytes(), stream.as_bytes()]);
        let own = weight(engine.process().uuid());
        match self.others.iter().any(|other| weight(*other) > own) {
            false => Whose::Own,
            true if since >= self.patience.left_after => Whose::Left,
            true => Whose::Others(self.patience.left_after.saturating_sub(since)),
        }
    }

    /// This process is none of them any more.
    pub(crate) async fn leave(&self, engine: &Engine) {
        let own = engine.process().uuid();
        projector::give_up(engine, &self.name(own)).await;
    }
}
