//! Repeats: how often a Bot made the same call inside the window.
//!
//! The count is exact because attempt, thresholds and decision are one append at the version the count was made from:
//! two processes can never both be the third.

use std::collections::VecDeque;

use midwatch_events::{
    Micros, New,
    id::{BotId, CallId, RoutineId, RunId, TriggerId},
    key::Digest,
    repeat::{RepeatContent, RepeatEvent},
    time::SECOND_US,
};
use serde::{Deserialize, Serialize};

use crate::{Decider, Refusal};

/// Thresholds of calls that act.
pub const ACT_THRESHOLDS: [u32; 3] = [3, 10, 25];
/// Thresholds of calls that only look; polling is how loops look.
pub const READ_THRESHOLDS: [u32; 3] = [10, 25, 100];

/// One attempt that may still be inside the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The call.
    pub call: CallId,
    /// When.
    pub at: Micros,
    /// HMAC of its result, once it has one.
    pub result: Option<Digest>,
}

/// One repeated call as (the end of) its stream tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Attempts, oldest first.
    pub attempts: VecDeque<Attempt>,
    /// The highest threshold crossed in this run of repetition.
    pub crossed: u32,
}

/// One more attempt.
#[derive(Clone, Debug)]
pub struct Attempted {
    /// The Bot.
    pub bot: BotId,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// The call only looks.
    pub read: bool,
    /// Nobody is watching.
    pub unattended: bool,
    /// The run's routine.
    pub routine: Option<RoutineId>,
    /// The run's trigger.
    pub trigger: Option<TriggerId>,
    /// The fingerprint for people.
    pub fingerprint: String,
    /// The store's time.
    pub now: Micros,
    /// The window, in seconds.
    pub window_s: u32,
}

/// What can be asked of a repeated call.
#[derive(Clone, Debug)]
pub enum RepeatCommand {
    /// Count one more attempt.
    Attempt(Box<Attempted>),
    /// An attempt has a result.
    Settle {
        /// Its call.
        call: CallId,
        /// HMAC of the result.
        result: Digest,
    },
}

/// What a rule can read of repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Attempts inside the window, this one included.
    pub count: u32,
    /// Those of them that ended as the newest ended one did.
    pub same_result: u32,
}

impl Repeat {
    /// When the attempt would be counted: the store's time, but never before the previous attempt.
    #[must_use]
    pub fn counted_at(&self, now: Micros) -> Micros {
        self.attempts.back().map_or(now, |previous| previous.at.max(now))
    }

    /// The counts of an attempt made `now`: an attempt is inside the window while now − at < window.
    #[must_use]
    pub fn count(&self, now: Micros, window_s: u32) -> Counted {
        let at = self.counted_at(now);
        let inside = || self.attempts.iter().filter(|attempt| within(at, attempt.at, window_s));
        let newest = inside().rev().find_map(|attempt| attempt.result);
        let same = inside().filter(|attempt| newest.is_some() && attempt.result == newest).count();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Counted { count: number(inside().count()).saturating_add(1), same_result: number(same) }
    }

    fn attempt(&self, asked: Attempted) -> Vec<New<RepeatEvent>> {
        let at = self.counted_at(asked.now);
        let count = self.count(asked.now, asked.window_s).count;
        // A run of repetition ends when the window has emptied.
        let before = if count == 1 { 0 } else { self.crossed };
        let thresholds = if asked.read { READ_THRESHOLDS } else { ACT_THRESHOLDS };
        let crossed = thresholds.into_iter().filter(|threshold| *threshold > before && *threshold <= count);
        let highest = crossed.clone().max().unwrap_or(before);
        let mut events = vec![New::with(
            RepeatEvent::Attempted { run: asked.run, call: asked.call, at_us: at, count, crossed: highest },
            RepeatContent::Attempted { fingerprint: asked.fingerprint.clone() },
        )];
        events.extend(crossed.map(|threshold| {
            New::with(
                RepeatEvent::ThresholdCrossed {
                    threshold,
                    count,
                    bot: asked.bot,
                    run: asked.run,
                    call: asked.call,
                    tool: asked.tool.clone(),
                    unattended: asked.unattended,
                    routine: asked.routine,
                    trigger: asked.trigger,
                },
                RepeatContent::ThresholdCrossed { fingerprint: asked.fingerprint.clone() },
            )
        }));
        events
    }
}

/// Whether an attempt at `at` still counts for one made `now`.
#[must_use]
pub fn within(now: Micros, at: Micros, window_s: u32) -> bool {
    now.since(at) < i64::from(window_s) * SECOND_US
}

impl Decider for Repeat {
    type Event = RepeatEvent;
    type Command = RepeatCommand;

    const FOLD_VERSION: u32 = 1;

    fn decide(&self, command: RepeatCommand) -> Result<Vec<New<RepeatEvent>>, Refusal> {
        Ok(match command {
            RepeatCommand::Attempt(asked) => self.attempt(*asked),
            RepeatCommand::Settle { call, result } => vec![RepeatEvent::Settled { call, result }.into()],
        })
    }

    fn evolve(&mut self, event: &RepeatEvent, _at: Micros) {
        match event {
            RepeatEvent::Attempted { call, at_us, count, crossed, .. } => {
                self.attempts.push_back(Attempt { call: *call, at: *at_us, result: None });
                // Attempts are in order of time, so those that left the window are the first; a state that is kept
                // between calls grows no further than the window.
                let left = self.attempts.len().saturating_sub(*count as usize);
                self.attempts.drain(..left);
                self.crossed = *crossed;
            }
            RepeatEvent::ThresholdCrossed { threshold, .. } => self.crossed = self.crossed.max(*threshold),
            RepeatEvent::Settled { call, result } => {
                if let Some(attempt) = self.attempts.iter_mut().rev().find(|attempt| attempt.call == *call) {
                    attempt.result = Some(*result);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
