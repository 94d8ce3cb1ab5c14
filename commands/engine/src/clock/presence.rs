//! Whether somebody is there who executes runs.

use std::time::Duration;

use crate::{Engine, EngineError, processes::runner_there};

/// An answer is good for so long.
const GOOD_FOR: Duration = Duration::from_secs(2);
/// Nobody is there when nobody was for so long: runners that take turns, or a process that starts, leave a gap.
const SURE_AFTER: Duration = Duration::from_secs(3);

/// Whether somebody is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum There {
    Yes,
    No,
    #[default]
    NotSure,
}

/// What was found when it was looked for.
#[derive(Debug, Default)]
pub(super) struct Presence {
    pub(super) there: There,
    /// In monotonic time.
    asked: Option<Duration>,
    gone_since: Option<Duration>,
    certain: bool,
}

impl Presence {
    /// Somebody is there, without asking.
    pub(super) fn certain() -> Self {
        Self { there: There::Yes, certain: true, ..Self::default() }
    }

    /// Asks, unless the last answer is still good.
    pub(super) async fn look(&mut self, engine: &Engine) -> Result<There, EngineError> {
        let now = engine.world().clock.monotonic();
        let good = self.there != There::NotSure && self.asked.is_some_and(|asked| now.saturating_sub(asked) < GOOD_FOR);
        if self.certain || good {
            return Ok(self.there);
        }
        self.asked = Some(now);
        self.there = if runner_there(engine).await? {
            self.gone_since = None;
            There::Yes
        } else {
            let since = *self.gone_since.get_or_insert(now);
            if now.saturating_sub(since) >= SURE_AFTER { There::No } else { There::NotSure }
        };
        Ok(self.there)
    }
}
