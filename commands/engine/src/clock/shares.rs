//! Which of several clocks looks first: each at its own share, and at what is the others' a little later, so that they do
//! not race for every window and none of them is needed.

use std::time::Duration;

use midwatch_events::{engine::Role, key::hash_parts};
use midwatch_log::views::Order;
use midwatch_projections::engine_processes::Processes;
use uuid::Uuid;

use crate::{Engine, EngineError, projector};

/// How long what is another's is left to it.
const OTHERS_AFTER: Duration = Duration::from_secs(2);
/// And how long all of it is, however much there is: many that are due at once are worked off by all, each at its own and
/// at a few of the others'.
const OTHERS_AT_LAST: Duration = Duration::from_secs(10);
/// How often a clock says that it is there, and looks who else is.
const EVERY: Duration = Duration::from_secs(30);
/// How long it counts as there after it said so, in seconds.
const PRESENT_S: u32 = 65;
/// More processes than this share by chance.
const OTHERS_MAX: usize = 64;

/// Whose it is to look at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// This process's.
    Own,
    /// Another's, for this long.
    Others(Duration),
    /// Another's, which has had its time: anybody's, after their own.
    Left,
}

/// The clocks there are.
#[derive(Debug, Default)]
pub(super) struct Shares {
    others: Vec<Uuid>,
    /// In monotonic time.
    said: Option<Duration>,
    looked: Option<Duration>,
}

fn name(process: Uuid) -> String {
    format!("clock/{process}")
}

impl Shares {
    /// Says that this process keeps time.
    pub(super) async fn say(&mut self, engine: &Engine) -> Result<(), EngineError> {
        let now = engine.world().clock.monotonic();
        if self.said.is_none_or(|said| now.saturating_sub(said) >= EVERY) {
            self.said = Some(now);
            let own = engine.process().uuid();
            engine.views().lead(&name(own), own, PRESENT_S, engine.world().clock.now()).await?;
        }
        Ok(())
    }

    /// Looks who else does.
    pub(super) async fn look(&mut self, engine: &Engine) -> Result<(), EngineError> {
        let now = engine.world().clock.monotonic();
        if self.looked.is_some_and(|looked| now.saturating_sub(looked) < EVERY) {
            return Ok(());
        }
        self.looked = Some(now);
        self.others.clear();
        let order = Order { column: "started_at", descending: true };
        let rows = projector::page::<Processes>(engine, Vec::new(), order, 200, None).await?;
        let clocks = rows
            .into_iter()
            .map(|(row, _)| row)
            .filter(|row| row.stopped_at.is_none() && row.roles.contains(&Role::Clock) && row.id != engine.process());
        for process in clocks.map(|row| row.id.uuid()).take(OTHERS_MAX) {
            // Nobody leads under its name: it is gone.
            if engine.views().lead(&name(process), Uuid::nil(), 1, engine.world().clock.now()).await? {
                engine.views().give_up(&name(process), Uuid::nil()).await?;
            } else {
                self.others.push(process);
            }
        }
        Ok(())
    }

    /// Whose it is to look at a target that has been due for `since`.
    pub(super) fn whose(&self, engine: &Engine, stream: &str, since: Duration) -> Whose {
        if since >= OTHERS_AT_LAST || self.others.is_empty() {
            return Whose::Own;
        }
        let weight = |process: Uuid| hash_parts(&[process.as_bytes(), stream.as_bytes()]);
        let own = weight(engine.process().uuid());
        match self.others.iter().any(|other| weight(*other) > own) {
            false => Whose::Own,
            true if since >= OTHERS_AFTER => Whose::Left,
            true => Whose::Others(OTHERS_AFTER.saturating_sub(since)),
        }
    }

    /// This process keeps time no more.
    pub(super) async fn leave(&self, engine: &Engine) {
        let own = engine.process().uuid();
        projector::give_up(engine, &name(own)).await;
    }
}
