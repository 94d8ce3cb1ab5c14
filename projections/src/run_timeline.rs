//! What happened in a run, step by step? Key: `<run>/<padded position>`.
//!
//! A step holds facts only. Words (instructions, arguments, results, messages) are the content of the event at its
//! position, and are read from the ledger, so that an erasure has nothing to do here.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    id::{BotId, CallId, DeliveryId, ProcessId, RoutineId, RunId, TriggerId, UserId},
    repeat::RepeatEvent,
    run::{
        ApprovalAnswer, ApprovalAnswered, ApprovalRequested, CallResult, Cause, Decision, DecisionKind, Ended, Opened,
        Outcome, Reason, RefusalCause, RunEvent, WorkKind,
    },
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, of_stream, padded, rfc3339, word};

/// The projection.
#[derive(Debug)]
pub enum RunTimeline {}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineRow {
    /// The run.
    pub run: RunId,
    /// Where it stands in the ledger.
    pub position: u64,
    /// When it was recorded.
    #[serde(with = "rfc3339")]
    pub at: Micros,
    /// The event's type, such as `run.tool_call_decided`.
    pub event: String,
    /// Who did it.
    pub actor: String,
    /// The turn, from 1; 0 in a recording.
    pub turn: Option<u32>,
    /// One line for people.
    pub title: String,
    /// What else is known.
    pub detail: Detail,
}

/// What is known of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// A claim opened the run.
    Opened(Opening),
    /// A runner took it.
    Taken {
        /// Which take.
        take: u32,
        /// The process.
        worker: ProcessId,
        /// The instant at which the run is out of time.
        #[serde(with = "rfc3339")]
        deadline: Micros,
    },
    /// The Bot was asked to go on.
    TurnStarted {},
    /// The Bot answered.
    TurnFinished {
        /// How many calls it asks for.
        calls: u32,
    },
    /// A call was judged.
    Decided(Decision),
    /// A call has an outcome.
    CallEnded {
        /// The decision it followed from.
        decision: Decision,
        /// What became of it.
        result: CallResult,
        /// Length of the result in bytes.
        result_bytes: Option<u64>,
        /// How long the act took, in microseconds.
        duration_us: Option<u64>,
    },
    /// Equal calls reached a threshold.
    Repeated {
        /// The threshold.
        threshold: u32,
        /// How many there were.
        count: u32,
        /// The call that reached it.
        call: CallId,
        /// The tool.
        tool: String,
        /// Whether nobody was watching.
        unattended: bool,
    },
    /// A person was asked about one exact call.
    Asked(ApprovalRequested),
    /// And that came of it.
    Answered(ApprovalAnswered),
    /// The run is over.
    Ended(Ended),
    /// It failed before anything acted, and is tried again.
    AttemptFailed {
        /// Which attempt, from 1.
        n: u32,
        /// Why.
        reason: Option<Reason>,
        /// When the next one begins.
        #[serde(with = "rfc3339")]
        retry_at: Micros,
    },
    /// The outcome of a call arrived after the run was over.
    CallLate {
        /// The decision it followed from.
        decision: Decision,
        /// What became of it.
        result: CallResult,
        /// Length of the result in bytes.
        result_bytes: Option<u64>,
    },
    /// Its runner said how it went after the run had been ended by somebody else.
    ReportedLate {
        /// The process that reports.
        worker: ProcessId,
        /// How it went there.
        outcome: Outcome,
        /// Why.
        reason: Option<Reason>,
    },
}

/// What a run was opened with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// Who does the work.
    pub bot: BotId,
    /// Whose rights it has.
    pub owner: UserId,
    /// The routine.
    pub routine: Option<RoutineId>,
    /// The trigger.
    pub trigger: Option<TriggerId>,
    /// The delivery.
    pub delivery: Option<DeliveryId>,
    /// The delivery's event type.
    pub event_type: Option<String>,
    /// Why it runs.
    pub cause: Cause,
    /// The window, by its own time.
    #[serde(with = "rfc3339::option")]
    pub window: Option<Micros>,
    /// What kind of work it is.
    pub work: WorkKind,
    /// How long it may last, in seconds from its take.
    pub deadline_s: u32,
    /// How many turns it may take.
    pub max_turns: u32,
    /// Whether nobody was watching.
    pub unattended: bool,
}

/// The key of a step.
#[must_use]
pub fn key(run: RunId, position: u64) -> String {
    format!("{run}/{}", padded(position))
}

impl Projection for RunTimeline {
    type Row = TimelineRow;

    const TABLE: Table = Table {
        name: "run_timeline",
        version: 2,
        columns: &[("run", Kind::Text), ("position", Kind::Int)],
        indexes: &[&["run", "position"]],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        run_of(event, recorded).map(|run| key(run, recorded.position)).into_iter().collect()
    }

    fn apply(rows: &mut Rows<TimelineRow>, event: &AnyEvent, recorded: &Recorded) {
        let Some(run) = run_of(event, recorded) else { return };
        let Some((turn, title, detail)) = step(event) else { return };
        let row = TimelineRow {
            run,
            position: recorded.position,
            at: recorded.recorded_at,
            event: recorded.event_type.clone(),
            actor: recorded.actor.clone(),
            turn,
            title,
            detail,
        };
        rows.put(&key(run, recorded.position), row);
    }

    fn cells(row: &TimelineRow) -> Vec<Cell> {
        vec![Cell::shown(Some(row.run)), Cell::int(Some(row.position))]
    }
}

/// The run an event is a step of.
fn run_of(event: &AnyEvent, recorded: &Recorded) -> Option<RunId> {
    match event {
        AnyEvent::Run(..) => of_stream(recorded),
        AnyEvent::Repeat(event, _) => match event {
            RepeatEvent::ThresholdCrossed { run, .. } => Some(*run),
            RepeatEvent::Attempted { .. } | RepeatEvent::Settled { .. } => None,
        },
        AnyEvent::Bot(_)
        | AnyEvent::Boundary(..)
        | AnyEvent::Delivery(..)
        | AnyEvent::Engine(..)
        | AnyEvent::Routine(..)
        | AnyEvent::Trigger(..)
        | AnyEvent::User(..) => None,
    }
}

type Step = (Option<u32>, String, Detail);

fn step(event: &AnyEvent) -> Option<Step> {
    match event {
        AnyEvent::Run(event, _) => Some(of_run(event)),
        AnyEvent::Repeat(event, _) => of_repeat(event),
        AnyEvent::Bot(_)
        | AnyEvent::Boundary(..)
        | AnyEvent::Delivery(..)
        | AnyEvent::Engine(..)
        | AnyEvent::Routine(..)
        | AnyEvent::Trigger(..)
        | AnyEvent::User(..) => None,
    }
}

fn of_repeat(event: &RepeatEvent) -> Option<Step> {
    let RepeatEvent::ThresholdCrossed { threshold, count, call, tool, unattended, .. } = event else { return None };
    let title = format!("Going in circles: {tool} made the same call {count} times (threshold {threshold})");
    let detail = Detail::Repeated {
        threshold: *threshold,
        count: *count,
        call: *call,
        tool: tool.clone(),
        unattended: *unattended,
    };
    Some((None, title, detail))
}

fn of_run(event: &RunEvent) -> Step {
    match event {
        RunEvent::Opened(opened) => (None, opened_title(opened), Detail::Opened(opening(opened))),
        RunEvent::Taken { take, worker, deadline_us } => {
            let title = format!("Taken by a runner (take {take}), out of time at {deadline_us}");
            (None, title, Detail::Taken { take: *take, worker: *worker, deadline: *deadline_us })
        }
        RunEvent::TurnStarted { turn } => (Some(*turn), format!("Turn {turn} started"), Detail::TurnStarted {}),
        RunEvent::TurnFinished { turn, calls } => {
            let title = format!("Turn {turn} finished with {}", counted(u64::from(*calls), "call", "calls"));
            (Some(*turn), title, Detail::TurnFinished { calls: *calls })
        }
        RunEvent::ToolCallDecided(decision) => {
            (Some(decision.turn), decided_title(decision), Detail::Decided(decision.clone()))
        }
        RunEvent::ToolCallEnded { decision, result, result_digest: _, result_bytes, duration_us } => {
            let title = call_ended_title(&decision.tool, *result, *result_bytes, *duration_us);
            let detail = Detail::CallEnded {
                decision: decision.clone(),
                result: *result,
                result_bytes: *result_bytes,
                duration_us: *duration_us,
            };
            (Some(decision.turn), title, detail)
        }
        RunEvent::ApprovalRequested(asked) => {
            let title = format!("{}: a person is asked, as the rule {} says", asked.tool, asked.rule);
            (None, title, Detail::Asked(asked.clone()))
        }
        RunEvent::ApprovalAnswered(answered) => (None, answered_title(answered), Detail::Answered(answered.clone())),
        RunEvent::Ended(ended) => (None, ended_title(ended), Detail::Ended(ended.clone())),
        RunEvent::AttemptFailed { n, reason, retry_at_us } => {
            let why = reason.map_or_else(String::new, |reason| format!(" ({})", spaced(reason)));
            let title = format!("Attempt {n} failed before anything acted{why}; the next begins at {retry_at_us}");
            (None, title, Detail::AttemptFailed { n: *n, reason: *reason, retry_at: *retry_at_us })
        }
        RunEvent::CallOutcomeLate { decision, result, result_digest: _, result_bytes, duration_us } => {
            let outcome = call_ended_title(&decision.tool, *result, *result_bytes, *duration_us);
            let (decision, result, result_bytes) = (decision.clone(), *result, *result_bytes);
            let title = format!("Late, and without effect: {outcome}");
            (Some(decision.turn), title, Detail::CallLate { decision, result, result_bytes })
        }
        RunEvent::ReportedLate { worker, outcome, reason } => {
            let why = reason.map_or_else(String::new, |reason| format!(" ({})", spaced(reason)));
            let title = format!("Late, and without effect: its runner reports {}{why}", spaced(outcome));
            (None, title, Detail::ReportedLate { worker: *worker, outcome: *outcome, reason: *reason })
        }
    }
}

fn opening(opened: &Opened) -> Opening {
    Opening {
        bot: opened.bot,
        owner: opened.owner,
        routine: opened.routine,
        trigger: opened.trigger,
        delivery: opened.delivery,
        event_type: opened.event_type.clone(),
        cause: opened.cause,
        window: opened.window_us,
        work: opened.work,
        deadline_s: opened.deadline_s,
        max_turns: opened.max_turns,
        unattended: opened.unattended,
    }
}

/// A word of the wire, for people.
fn spaced(value: impl Serialize) -> String {
    word(value).replace('_', " ")
}

fn counted(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

fn opened_title(opened: &Opened) -> String {
    let why = match opened.cause {
        Cause::Schedule => "by its schedule",
        Cause::CatchUp => "to catch up on a missed window",
        Cause::Person => "because a person asked for it",
        Cause::Delivery => "by a delivery",
        Cause::Session => "by an agent's session",
    };
    let window = opened.window_us.map_or_else(String::new, |window| format!(" for the window {window}"));
    let watched = if opened.unattended { "nobody is watching" } else { "a person is watching" };
    format!("Opened {why}{window}; {watched}")
}

fn decided_title(decision: &Decision) -> String {
    let tool = &decision.tool;
    let what = match decision.decision {
        DecisionKind::Allowed => "allowed",
        DecisionKind::Refused => "refused",
        DecisionKind::Asked => "waits for a person",
    };
    let why = match (decision.refusal, &decision.rule) {
        (None, _) if decision.decision == DecisionKind::Allowed && decision.approval.is_some() => {
            ", a person said yes".to_owned()
        }
        (None | Some(RefusalCause::Rule | RefusalCause::AskUnattended), Some(rule)) => format!(" by the rule {rule}"),
        (Some(refusal), _) => format!(" ({})", spaced(refusal)),
        (None, None) => String::new(),
    };
    let noted = if decision.enforced { "" } else { ", only noted" };
    format!("{tool}: {what}{why}{noted}")
}

fn answered_title(answered: &ApprovalAnswered) -> String {
    let tool = &answered.tool;
    match answered.answer {
        ApprovalAnswer::Approved => format!("{tool}: a person said yes"),
        ApprovalAnswer::Declined => format!("{tool}: a person said no"),
        ApprovalAnswer::Expired => format!("{tool}: nobody answered in time"),
        ApprovalAnswer::Withdrawn => format!("{tool}: nobody needs to answer any more"),
    }
}

fn call_ended_title(tool: &str, result: CallResult, bytes: Option<u64>, duration_us: Option<u64>) -> String {
    let mut title = match result {
        CallResult::Finished => format!("{tool}: finished"),
        CallResult::Failed => format!("{tool}: failed"),
        CallResult::Unknown => format!("{tool}: nobody knows whether it acted"),
    };
    if let Some(us) = duration_us {
        title.push_str(&format!(" in {}", duration(us)));
    }
    if let Some(bytes) = bytes {
        title.push_str(&format!(", {}", counted(bytes, "byte", "bytes")));
    }
    title
}

fn duration(us: u64) -> String {
    match us {
        0..=999 => format!("{us} µs"),
        1_000..=999_999 => format!("{} ms", us / 1_000),
        _ => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
    }
}

fn ended_title(ended: &Ended) -> String {
    let reason = ended.reason.map_or_else(String::new, |reason| format!(" ({})", spaced(reason)));
    let outcome = spaced(ended.outcome);
    let calls = counted(u64::from(ended.tool_calls), "call", "calls");
    let refused = ended.refused_calls;
    let took = ended.duration_us.map_or_else(String::new, |us| format!(", after {}", duration(us)));
    format!("Ended: {outcome}{reason}; {calls}, {refused} refused{took}")
}
