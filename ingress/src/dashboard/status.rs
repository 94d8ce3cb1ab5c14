//! Marks: how a state is shown, by shape and word and only then by colour.

use midwatch_commands::calendar::Schedule;
use midwatch_events::{
    Micros,
    run::{ApprovalAnswer, CallResult, DecisionKind, Outcome},
};
use midwatch_projections::{
    deliveries::DeliveryStatus,
    routines_list::{Ending, RoutineRow, RoutineState},
    runs::{RunRow, RunState},
};

use super::{
    text::{spaced, word},
    time::When,
};

/// A state as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Which colour it has.
    pub(crate) tone: &'static str,
    /// Its shape, which alone tells it from the others.
    pub(crate) shape: &'static str,
    /// Its word.
    pub(crate) word: String,
}

impl Mark {
    fn new(tone: &'static str, shape: &'static str, word: impl Into<String>) -> Self {
        Self { tone, shape, word: word.into() }
    }

    pub(crate) fn good(word: impl Into<String>) -> Self {
        Self::new("good", "✓", word)
    }

    pub(crate) fn bad(word: impl Into<String>) -> Self {
        Self::new("bad", "✕", word)
    }

    pub(crate) fn warn(word: impl Into<String>) -> Self {
        Self::new("warn", "!", word)
    }

    pub(crate) fn live(word: impl Into<String>) -> Self {
        Self::new("live", "●", word)
    }

    pub(crate) fn idle(word: impl Into<String>) -> Self {
        Self::new("idle", "○", word)
    }

    pub(crate) fn outcome(outcome: Outcome) -> Self {
        Self::ending(&word(outcome))
    }

    /// Of an outcome, `missed` or `skipped`, by its word on the wire.
    pub(crate) fn ending(outcome: &str) -> Self {
        let said = outcome.replace('_', " ");
        match outcome {
            "succeeded" | "finished" => Self::good(said),
            "failed" | "abandoned" => Self::bad(said),
            "refused" => Self::new("bad", "⊘", said),
            "timed_out" => Self::new("warn", "◷", said),
            "stopped" => Self::new("warn", "■", said),
            "unknown" => Self::new("warn", "?", said),
            "missed" => Self::new("warn", "◌", said),
            "skipped" => Self::new("idle", "»", said),
            "cancelled" => Self::new("idle", "–", said),
            _ => Self::idle(said),
        }
    }

    pub(crate) fn decision(decision: DecisionKind) -> Self {
        match decision {
            DecisionKind::Allowed => Self::good("allowed"),
            DecisionKind::Refused => Self::new("bad", "⊘", "refused"),
            DecisionKind::Asked => Self::new("warn", "?", "asked"),
        }
    }

    pub(crate) fn answer(answer: ApprovalAnswer) -> Self {
        match answer {
            ApprovalAnswer::Approved => Self::good("approved"),
            ApprovalAnswer::Declined => Self::bad("declined"),
            ApprovalAnswer::Expired => Self::new("warn", "◷", "expired"),
            ApprovalAnswer::Withdrawn => Self::idle("withdrawn"),
        }
    }

    pub(crate) fn call(result: CallResult) -> Self {
        Self::ending(&word(result))
    }

    pub(crate) fn run(run: &RunRow) -> Self {
        match (run.state, run.outcome) {
            (RunState::Waiting, _) => Self::new("live", "◔", "waiting for a runner"),
            (RunState::Running, _) => Self::live("running"),
            (RunState::Ended, Some(outcome)) => Self::outcome(outcome),
            (RunState::Ended, None) => Self::idle("ended"),
        }
    }

    pub(crate) fn routine(row: &RoutineRow) -> Self {
        match row.state {
            RoutineState::Active if row.live_run.is_some() => Self::live("running"),
            RoutineState::Active if row.held.is_some() => Self::new("warn", "◔", "held"),
            RoutineState::Active => Self::new("idle", "◷", "active"),
            RoutineState::Paused => Self::new("idle", "‖", "paused"),
            RoutineState::Suspended => Self::warn("suspended"),
            RoutineState::Ended => Self::idle("ended"),
            RoutineState::Deleted => Self::idle("deleted"),
        }
    }

    pub(crate) fn delivery(status: DeliveryStatus) -> Self {
        let said = spaced(status);
        match status {
            DeliveryStatus::Started => Self::good("became a run"),
            DeliveryStatus::Accepted | DeliveryStatus::Queued | DeliveryStatus::Redelivered => {
                Self::new("live", "◔", said)
            }
            DeliveryStatus::Captured => Self::new("idle", "◇", "sample"),
            DeliveryStatus::AwaitingConfirmation => Self::warn("not run: the sample was not confirmed yet"),
            DeliveryStatus::Held => Self::warn(said),
            DeliveryStatus::Coalesced => Self::new("idle", "»", "a newer one took its place"),
            DeliveryStatus::Filtered => Self::new("idle", "»", said),
            DeliveryStatus::Expired | DeliveryStatus::Refused => Self::bad(said),
        }
    }
}

/// Why it ended so, in words; none where the word says nothing more.
pub(crate) fn reason(reason: &str) -> String {
    match reason {
        "late" => "looked at too late".to_owned(),
        "no_runner" => "no runner took it in time".to_owned(),
        "bot_unreachable" => "the Bot's endpoint did not answer".to_owned(),
        "live" => "the previous run was still live".to_owned(),
        "queue_full" => "another one was waiting already".to_owned(),
        "error" => "something went wrong".to_owned(),
        "hand_over_failed" => "the Bot could not take over from the recording".to_owned(),
        "turns" => "it took all its turns".to_owned(),
        "deadline" => "it took too long".to_owned(),
        "silence" => "nothing came from the Bot".to_owned(),
        "repeat" => "it went in circles".to_owned(),
        "person" => "by a person".to_owned(),
        "lease" => "its runner disappeared".to_owned(),
        "replaced" => "a newer window replaced it".to_owned(),
        "target_gone" => "its target is gone".to_owned(),
        "expired" => "it waited too long".to_owned(),
        other => other.replace('_', " "),
    }
}

/// One place of a routine's strip.
pub(crate) struct Ticked {
    pub(crate) mark: Mark,
    /// What stands in its title.
    pub(crate) title: String,
    /// The run's page, where there is a run.
    pub(crate) run: Option<String>,
}

impl Ticked {
    /// With the window's time in its routine's zone, or when it was recorded.
    pub(crate) fn new(ending: &Ending, schedule: Option<&Schedule>, now: Micros) -> Self {
        let why = ending.reason.as_deref().map(|word| format!(", {}", reason(word))).unwrap_or_default();
        let many = if ending.count > 1 { format!(" ×{}", ending.count) } else { String::new() };
        let mark = Mark::ending(&ending.outcome);
        let at = match (ending.window, schedule) {
            (Some(window), Some(schedule)) => When::in_zone(window, schedule.zone(), now).text,
            (window, _) => When::utc(window.unwrap_or(ending.at), now).text,
        };
        let title = format!("{}{many}{why}: {at}", mark.word);
        Self { mark, title, run: ending.run.map(|run| run.to_string()) }
    }
}
