//! Routines: streams `routine-{id}`.
//!
//! Each event that moves the next window says where it moved to (`next_us`), so that no reader has to compute a
//! calendar: absent means that no window is due any more.

use serde::{Deserialize, Serialize};

use crate::{
    codec::Family,
    id::{BotId, DeliveryId, ProcessId, RoutineId, RunId, UserId},
    run::{Cause, Outcome, Reason, WorkKind},
    time::Micros,
};

/// What can happen to a routine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RoutineEvent {
    /// A routine exists and is due at its next window.
    #[serde(rename = "routine.created/1")]
    Created {
        /// The routine.
        routine: RoutineId,
        /// Its name.
        name: String,
        /// Whose it is.
        owner: UserId,
        /// Who does the work.
        bot: BotId,
        /// When, as the schedule's JSON text.
        schedule: String,
        /// What kind of work its content holds.
        work: WorkKind,
        /// How it runs.
        limits: Limits,
        /// The instant its windows are counted from.
        anchor_us: Micros,
        /// The first window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_us: Option<Micros>,
    },
    /// It has another name.
    #[serde(rename = "routine.renamed/1")]
    Renamed {
        /// The new name.
        name: String,
    },
    /// It has another schedule. Windows before this instant do not exist.
    #[serde(rename = "routine.rescheduled/1")]
    Rescheduled {
        /// The schedule's JSON text.
        schedule: String,
        /// The instant its windows are counted from.
        anchor_us: Micros,
        /// The next window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_us: Option<Micros>,
    },
    /// It has other work.
    #[serde(rename = "routine.work_replaced/1")]
    WorkReplaced {
        /// What kind of work its content holds.
        work: WorkKind,
    },
    /// It runs under other limits.
    #[serde(rename = "routine.limits_replaced/1")]
    LimitsReplaced {
        /// How it runs from now on.
        limits: Limits,
    },
    /// It is not due any more, until resumed.
    #[serde(rename = "routine.paused/1")]
    Paused {},
    /// It is due again. Windows before this instant do not exist.
    #[serde(rename = "routine.resumed/1")]
    Resumed {
        /// The next window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_us: Option<Micros>,
    },
    /// The engine switched it off; a person can resume it.
    #[serde(rename = "routine.suspended/1")]
    Suspended {
        /// Why.
        cause: SuspendCause,
    },
    /// It is gone from every list. Its history stays.
    #[serde(rename = "routine.deleted/1")]
    Deleted {},
    /// Its next window was looked for again.
    #[serde(rename = "routine.rearmed/1")]
    Rearmed {
        /// The next window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_us: Option<Micros>,
        /// Why; a lifted halt where nothing is said.
        #[serde(default, skip_serializing_if = "RearmCause::is_lifted")]
        cause: RearmCause,
        /// The release of the time-zone data that gave the window, where newer data is the cause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tzdb: Option<String>,
    },
    /// One process took a window, a Run now or a delivery for execution.
    #[serde(rename = "routine.run_claimed/1")]
    RunClaimed(RunClaimed),
    /// Its live run ended; the routine is free.
    #[serde(rename = "routine.run_settled/1")]
    RunSettled(RunSettled),
    /// Nothing ran at these windows.
    #[serde(rename = "routine.windows_missed/1")]
    WindowsMissed {
        /// The first of them.
        first_us: Micros,
        /// The last of them.
        last_us: Micros,
        /// How many there were.
        count: u64,
        /// The routine's Bot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bot: Option<BotId>,
        /// Why.
        reason: MissedReason,
        /// The next window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_us: Option<Micros>,
    },
    /// A window found the previous run still live.
    #[serde(rename = "routine.window_skipped/1")]
    WindowSkipped {
        /// The window.
        window_us: Micros,
        /// Why.
        reason: SkippedReason,
        /// The run that was live.
        live: RunId,
        /// The routine's Bot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bot: Option<BotId>,
        /// The next window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_us: Option<Micros>,
    },
    /// A window found the previous run still live and waits for its end; a later window is skipped.
    #[serde(rename = "routine.window_queued/1")]
    WindowQueued {
        /// The window.
        window_us: Micros,
        /// The run that was live.
        live: RunId,
        /// The routine's Bot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bot: Option<BotId>,
        /// The next window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_us: Option<Micros>,
    },
    /// Nobody can run a window at present. It stays due; this is said once.
    #[serde(rename = "routine.window_held/1")]
    WindowHeld {
        /// The window.
        window_us: Micros,
        /// Why.
        reason: MissedReason,
        /// The routine's Bot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bot: Option<BotId>,
    },
    /// An accepted delivery waits for its turn.
    #[serde(rename = "routine.delivery_queued/1")]
    DeliveryQueued(DeliveryQueued),
    /// A waiting delivery became a run.
    #[serde(rename = "routine.delivery_taken/1")]
    DeliveryTaken {
        /// The delivery.
        delivery: DeliveryId,
        /// Its run.
        run: RunId,
    },
    /// A delivery will not run.
    #[serde(rename = "routine.delivery_dropped/1")]
    DeliveryDropped {
        /// The delivery.
        delivery: DeliveryId,
        /// Why.
        reason: DropReason,
    },
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RoutineContent {
    /// Beside [`RoutineEvent::Created`].
    #[serde(rename = "routine.created/1")]
    Created(Work),
    /// Beside [`RoutineEvent::WorkReplaced`].
    #[serde(rename = "routine.work_replaced/1")]
    WorkReplaced(Work),
    /// Beside [`RoutineEvent::Paused`].
    #[serde(rename = "routine.paused/1")]
    Paused {
        /// Why, in a person's words.
        reason: String,
    },
    /// Beside [`RoutineEvent::Suspended`].
    #[serde(rename = "routine.suspended/1")]
    Suspended {
        /// What was found, for a person.
        error: String,
    },
}

impl Family for RoutineEvent {
    type Content = RoutineContent;
    const NAME: &'static str = "routine";
}

/// What a run is to do. One of the two is present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// What the Bot is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// The recording's JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<String>,
}

/// How a routine runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// How late a window may still be claimed, in seconds; exactly this late still runs.
    pub grace_s: u32,
    /// How long a run may last, in seconds from its take.
    pub deadline_s: u32,
    /// How many turns a run may take.
    pub max_turns: u32,
    /// How many windows may be claimed in all, whatever becomes of their runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u64>,
    /// What becomes of windows that are later than the grace.
    #[serde(default, skip_serializing_if = "Missed::is_record")]
    pub missed: Missed,
    /// What becomes of a window that finds the previous run live.
    #[serde(default, skip_serializing_if = "Overlap::is_skip")]
    pub overlap: Overlap,
    /// Whether a run that failed before anything acted is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            grace_s: 600,
            deadline_s: 900,
            max_turns: 20,
            max_runs: None,
            missed: Missed::Record,
            overlap: Overlap::Skip,
            retry: None,
        }
    }
}

/// What becomes of windows that are later than the grace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They are recorded.
    #[default]
    Record,
    /// The newest of them runs once, if it is not later than this many seconds; the others are recorded.
    #[serde(rename = "run_once_within_s")]
    RunOnceWithin(u32),
}

impl Missed {
    /// Whether they are recorded and nothing more.
    #[must_use]
    pub fn is_record(&self) -> bool {
        matches!(self, Self::Record)
    }
}

/// What becomes of a window that finds the previous run live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// The first of them waits for the run's end; later ones are skipped.
    QueueOne,
    /// The run is cancelled, and the window runs in its place.
    CancelLive,
}

impl Overlap {
    /// Whether it is skipped.
    #[must_use]
    pub fn is_skip(&self) -> bool {
        matches!(self, Self::Skip)
    }
}

/// How a run that failed before anything acted is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How many more times.
    pub times: u32,
    /// How long before the first of them, in seconds; each further wait is twice as long.
    pub backoff_s: u32,
}

/// Why the next window was looked for again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RearmCause {
    /// A halt was lifted; windows before that do not exist.
    #[default]
    Lifted,
    /// Newer time-zone data moved it.
    ZoneData,
    /// How many windows may be claimed was changed, or is reached.
    MaxRuns,
}

impl RearmCause {
    /// Whether a halt was lifted.
    #[must_use]
    pub fn is_lifted(&self) -> bool {
        matches!(self, Self::Lifted)
    }
}

/// One process took a window, a Run now or a delivery for execution. In a routine's stream, or in that of a trigger
/// with an instruction of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaimed {
    /// The run that was opened by the same append.
    pub run: RunId,
    /// Why it runs.
    pub cause: Cause,
    /// Who does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot: Option<BotId>,
    /// The window, by its own time, where a schedule is the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_us: Option<Micros>,
    /// The delivery, where one is the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryId>,
    /// Which of that delivery's redeliveries it is, from 1; absent for the delivery itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redelivery: Option<u32>,
    /// The process that claimed.
    pub claimed_by: ProcessId,
    /// The release of the time-zone data that gave the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tzdb: Option<String>,
    /// The next window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_us: Option<Micros>,
}

/// The live run ended; its target is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSettled {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Who did the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot: Option<BotId>,
}

/// An accepted delivery waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryQueued {
    /// The delivery.
    pub delivery: DeliveryId,
    /// The trigger it came through.
    pub trigger: crate::id::TriggerId,
    /// It is dropped when it has not been taken by this instant.
    pub expires_us: Micros,
    /// Which of its redeliveries it is, from 1; absent for the delivery itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redelivery: Option<u32>,
}

/// Why a window was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissedReason {
    /// Looked at later than the grace allows.
    Late,
    /// No runner was alive.
    NoRunner,
    /// The Bot's endpoint did not answer.
    BotUnreachable,
}

/// Why a window was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkippedReason {
    /// The previous run was live.
    Live,
    /// Another window was already waiting for it.
    QueueFull,
}

/// Why a routine was suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendCause {
    /// Ten endings in a row were no success.
    Failing,
    /// Its owner may not do anything any more.
    OwnerRevoked,
    /// Its Bot was retired.
    BotRetired,
    /// Its schedule cannot be evaluated.
    NotEvaluable,
}

/// Why a delivery will not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// It waited longer than its trigger allows.
    Expired,
    /// The queue was full.
    QueueFull,
    /// Its target was deleted or its Bot retired.
    TargetGone,
    /// A newer one came while it waited, and its trigger takes the newest only.
    Coalesced,
}
