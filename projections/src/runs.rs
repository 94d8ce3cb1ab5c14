//! Which runs are there, and how did they go? Key: the run's id.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    id::{BotId, DeliveryId, ProcessId, RoutineId, RunId, TriggerId, UserId},
    run::{Cause, DecisionKind, Ended, Opened, Outcome, Reason, RunContent, RunEvent, WorkKind},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339, stream_key, word};

/// The projection.
#[derive(Debug)]
pub enum Runs {}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It waits for a runner.
    Waiting,
    /// A runner took it.
    Running,
    /// It is over.
    Ended,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// The run.
    pub id: RunId,
    /// The routine it belongs to.
    pub routine: Option<RoutineId>,
    /// The trigger it came through.
    pub trigger: Option<TriggerId>,
    /// The delivery it answers.
    pub delivery: Option<DeliveryId>,
    /// The delivery's event type.
    pub event_type: Option<String>,
    /// Who does the work.
    pub bot: BotId,
    /// Whose rights it has.
    pub owner: UserId,
    /// Why it runs.
    pub cause: Cause,
    /// The window, by its own time.
    #[serde(with = "rfc3339::option")]
    pub window: Option<Micros>,
    /// What kind of work it is.
    pub work: WorkKind,
    /// How far it is.
    pub state: RunState,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why.
    pub reason: Option<Reason>,
    /// When it was claimed.
    #[serde(with = "rfc3339")]
    pub opened_at: Micros,
    /// When a runner took it, the last time.
    #[serde(with = "rfc3339::option")]
    pub taken_at: Option<Micros>,
    /// When it ended.
    #[serde(with = "rfc3339::option")]
    pub ended_at: Option<Micros>,
    /// Which take it is in, from 1; 0 while it waits.
    pub take: u32,
    /// The process that took it.
    pub worker: Option<ProcessId>,
    /// The instant at which it is out of time.
    #[serde(with = "rfc3339::option")]
    pub deadline: Option<Micros>,
    /// How long it may last, in seconds from its take.
    pub deadline_s: u32,
    /// How many turns it may take.
    pub max_turns: u32,
    /// Turns started.
    pub turns: u32,
    /// Calls decided.
    pub tool_calls: u32,
    /// Of those, how many were refused.
    pub refused_calls: u32,
    /// From its take to its ending, in microseconds.
    pub duration_us: Option<u64>,
    /// One line that says how it went; absent also when it was erased.
    pub headline: Option<String>,
    /// Attempts that failed before anything acted.
    #[serde(default)]
    pub attempts_failed: u32,
    /// When the next attempt begins, while it waits for that.
    #[serde(default, with = "rfc3339::option")]
    pub retry_at: Option<Micros>,
    /// What its runner said after the run had been ended by somebody else.
    #[serde(default)]
    pub late: Option<LateReport>,
    /// Whether nobody was watching as it opened.
    pub unattended: bool,
    /// The version of its stream.
    pub version: u64,
    /// The position of its last event.
    pub position: u64,
}

/// How a run went for its runner, which said so after the run had been ended by somebody else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateReport {
    /// How.
    pub outcome: Outcome,
    /// Why.
    pub reason: Option<Reason>,
    /// One line that says how it went; absent also when it was erased.
    pub headline: Option<String>,
    /// When that was recorded.
    #[serde(with = "rfc3339")]
    pub at: Micros,
}

impl Projection for Runs {
    type Row = RunRow;

    const TABLE: Table = Table {
        name: "runs",
        version: 2,
        columns: &[
            ("state", Kind::Text),
            ("routine", Kind::Text),
            ("trigger", Kind::Text),
            ("bot", Kind::Text),
            ("owner", Kind::Text),
            ("outcome", Kind::Text),
            ("unattended", Kind::Int),
            ("opened_at", Kind::Int),
            ("ended_at", Kind::Int),
            ("deadline", Kind::Int),
        ],
        indexes: &[
            &["opened_at"],
            &["state", "opened_at"],
            &["routine", "opened_at"],
            &["trigger", "opened_at"],
            &["bot", "opened_at"],
            &["owner", "opened_at"],
            &["outcome", "opened_at"],
        ],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Run(..) => stream_key(recorded),
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<RunRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Run(event, content) => {
                let Some(key) = stream_key(recorded).pop() else { return };
                if let RunEvent::Opened(opened) = event {
                    rows.put(&key, RunRow::new(opened, recorded));
                }
                rows.change(&key, |row| {
                    row.evolve(event, content.as_ref(), recorded.recorded_at);
                    row.version = recorded.version;
                    row.position = recorded.position;
                });
            }
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => {}
        }
    }

    fn cells(row: &RunRow) -> Vec<Cell> {
        vec![
            Cell::Text(word(row.state)),
            Cell::shown(row.routine),
            Cell::shown(row.trigger),
            Cell::shown(Some(row.bot)),
            Cell::shown(Some(row.owner)),
            Cell::shown(row.outcome.map(word)),
            Cell::Int(i64::from(row.unattended)),
            Cell::Int(row.opened_at.0),
            Cell::at(row.ended_at),
            Cell::at(row.deadline),
        ]
    }
}

impl RunRow {
    fn new(opened: &Opened, recorded: &Recorded) -> Self {
        Self {
            id: opened.run,
            routine: opened.routine,
            trigger: opened.trigger,
            delivery: opened.delivery,
            event_type: opened.event_type.clone(),
            bot: opened.bot,
            owner: opened.owner,
            cause: opened.cause,
            window: opened.window_us,
            work: opened.work,
            state: RunState::Waiting,
            outcome: None,
            reason: None,
            opened_at: recorded.recorded_at,
            taken_at: None,
            ended_at: None,
            take: 0,
            worker: None,
            deadline: None,
            deadline_s: opened.deadline_s,
            max_turns: opened.max_turns,
            turns: 0,
            tool_calls: 0,
            refused_calls: 0,
            duration_us: None,
            headline: None,
            attempts_failed: 0,
            retry_at: None,
            late: None,
            unattended: opened.unattended,
            version: recorded.version,
            position: recorded.position,
        }
    }

    fn evolve(&mut self, event: &RunEvent, content: Option<&RunContent>, at: Micros) {
        match event {
            RunEvent::Taken { take, worker, deadline_us } => {
                if self.state != RunState::Ended {
                    self.state = RunState::Running;
                }
                self.take = *take;
                self.worker = Some(*worker);
                self.taken_at = Some(at);
                self.deadline = Some(*deadline_us);
            }
            RunEvent::TurnStarted { turn } => {
                self.turns = self.turns.max(*turn);
                self.retry_at = None;
            }
            RunEvent::AttemptFailed { n, retry_at_us, .. } => {
                self.attempts_failed = *n;
                self.retry_at = Some(*retry_at_us);
            }
            RunEvent::ReportedLate { outcome, reason, .. } => {
                let headline = content.and_then(said_late);
                self.late = Some(LateReport { outcome: *outcome, reason: *reason, headline, at });
            }
            RunEvent::ToolCallDecided(decision) => {
                // A call that waited for a person is decided more than once, in the same place.
                self.tool_calls = self.tool_calls.max(decision.ordinal);
                let refused = decision.decision == DecisionKind::Refused;
                self.refused_calls = self.refused_calls.saturating_add(u32::from(refused));
            }
            RunEvent::Ended(ended) => self.ended(ended, content, at),
            RunEvent::Opened(_)
            | RunEvent::TurnFinished { .. }
            | RunEvent::ToolCallEnded { .. }
            | RunEvent::CallOutcomeLate { .. }
            | RunEvent::ApprovalRequested(_)
            | RunEvent::ApprovalAnswered(_) => {}
        }
    }

    fn ended(&mut self, ended: &Ended, content: Option<&RunContent>, at: Micros) {
        self.state = RunState::Ended;
        self.outcome = Some(ended.outcome);
        self.reason = ended.reason;
        self.ended_at = Some(at);
        self.retry_at = None;
        self.turns = ended.turns;
        self.tool_calls = ended.tool_calls;
        self.refused_calls = ended.refused_calls;
        self.duration_us = ended.duration_us;
        self.headline = match content {
            Some(RunContent::Ended { headline, .. }) => Some(headline.clone()),
            Some(
                RunContent::Opened { .. }
                | RunContent::TurnFinished { .. }
                | RunContent::ToolCallDecided { .. }
                | RunContent::ToolCallEnded { .. }
                | RunContent::AttemptFailed { .. }
                | RunContent::ApprovalRequested { .. }
                | RunContent::CallOutcomeLate { .. }
                | RunContent::ReportedLate { .. },
            )
            | None => None,
        };
    }
}

fn said_late(content: &RunContent) -> Option<String> {
    if let RunContent::ReportedLate { headline, .. } = content { Some(headline.clone()) } else { None }
}
