//! Repeats: streams `repeat-{bot}-{fingerprint hash}`, one for each call a Bot has made.

use serde::{Deserialize, Serialize};

use crate::{
    codec::Family,
    id::{BotId, CallId, RoutineId, RunId, TriggerId},
    key::Digest,
    time::Micros,
};

/// What can happen to one repeated call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RepeatEvent {
    /// The call was made once more; refused attempts count too.
    #[serde(rename = "repeat.attempted/1")]
    Attempted {
        /// The run that made it.
        run: RunId,
        /// The call.
        call: CallId,
        /// When, by the store's clock; never before the previous attempt.
        at_us: Micros,
        /// Attempts inside the window, this one included.
        count: u32,
        /// The highest threshold crossed so far in this run of repetition, 0 when none was. Kept here so that an old
        /// stream is read back to the window's edge and no further.
        crossed: u32,
    },
    /// The attempts inside the window reached a threshold, for the first time in this run of repetition.
    #[serde(rename = "repeat.threshold_crossed/1")]
    ThresholdCrossed {
        /// The threshold: 3, 10 or 25; for reads 10, 25 or 100.
        threshold: u32,
        /// Attempts inside the window, this one included.
        count: u32,
        /// The Bot.
        bot: BotId,
        /// The run that made the attempt.
        run: RunId,
        /// The attempt's call.
        call: CallId,
        /// The tool.
        tool: String,
        /// Whether nobody was watching.
        unattended: bool,
        /// The run's routine, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        routine: Option<RoutineId>,
        /// The run's trigger, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trigger: Option<TriggerId>,
    },
    /// An attempt came back with a result.
    #[serde(rename = "repeat.settled/1")]
    Settled {
        /// The attempt's call.
        call: CallId,
        /// HMAC of the result, or of the error.
        result: Digest,
    },
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RepeatContent {
    /// Beside [`RepeatEvent::Attempted`].
    #[serde(rename = "repeat.attempted/1")]
    Attempted {
        /// The fingerprint for people, such as `computer_write_file notes.txt`.
        fingerprint: String,
    },
    /// Beside [`RepeatEvent::ThresholdCrossed`].
    #[serde(rename = "repeat.threshold_crossed/1")]
    ThresholdCrossed {
        /// The fingerprint for people.
        fingerprint: String,
    },
}

impl Family for RepeatEvent {
    type Content = RepeatContent;
    const NAME: &'static str = "repeat";
}
