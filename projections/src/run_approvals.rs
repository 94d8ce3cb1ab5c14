//! What were persons asked, and what did they say? Key: the approval's id.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    id::{ApprovalId, BotId, CallId, RoutineId, RunId, TriggerId, UserId},
    key::Digest,
    run::{ApprovalAnswer, ApprovalRequested, Approvers, DecisionKind, RunContent, RunEvent},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339, word};

/// The projection.
#[derive(Debug)]
pub enum Approvals {}

/// One approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRow {
    /// The approval.
    pub id: ApprovalId,
    /// What became of it; null while it waits.
    pub answer: Option<ApprovalAnswer>,
    /// The run.
    pub run: RunId,
    /// The call that asked first.
    pub call: CallId,
    /// The Bot.
    pub bot: BotId,
    /// The routine.
    pub routine: Option<RoutineId>,
    /// The trigger.
    pub trigger: Option<TriggerId>,
    /// Whose rights the run has.
    pub owner: UserId,
    /// The tool.
    pub tool: String,
    /// The rule that says to ask.
    pub rule: String,
    /// The boundary's version.
    pub boundary: u64,
    /// What is answered: HMAC over Bot, tool, definition, target, arguments and boundary version.
    pub digest: Digest,
    /// Who may answer.
    pub approvers: Approvers,
    /// Whether nobody was watching.
    pub unattended: bool,
    /// What the call would act on; absent also when it was erased.
    pub fingerprint: Option<String>,
    /// Its arguments as JSON text, secrets redacted; absent also when they were erased.
    pub arguments: Option<String>,
    /// When it was asked.
    #[serde(with = "rfc3339")]
    pub asked_at: Micros,
    /// When it expires.
    #[serde(with = "rfc3339")]
    pub expires_at: Micros,
    /// When it was answered.
    #[serde(with = "rfc3339::option")]
    pub answered_at: Option<Micros>,
    /// Who answered: a person, the clock, the engine.
    pub answered_by: Option<String>,
    /// The call that it let through.
    pub spent_by: Option<CallId>,
    /// The position of its last event.
    pub position: u64,
}

impl Projection for Approvals {
    type Row = ApprovalRow;

    const TABLE: Table = Table {
        name: "approvals",
        version: 1,
        columns: &[
            ("state", Kind::Text),
            ("owner", Kind::Text),
            ("run", Kind::Text),
            ("asked_at", Kind::Int),
            ("expires_at", Kind::Int),
        ],
        indexes: &[&["asked_at"], &["state", "asked_at"], &["state", "expires_at"], &["run", "asked_at"]],
    };

    fn keys(event: &AnyEvent, _recorded: &Recorded) -> Vec<String> {
        of(event).map(|id| id.to_string()).into_iter().collect()
    }

    fn apply(rows: &mut Rows<ApprovalRow>, event: &AnyEvent, recorded: &Recorded) {
        let (Some(id), AnyEvent::Run(event, content)) = (of(event), event) else { return };
        let key = id.to_string();
        match event {
            RunEvent::ApprovalRequested(asked) => {
                if rows.get(&key).is_none() {
                    rows.put(&key, ApprovalRow::new(asked, content.as_ref(), recorded));
                }
            }
            RunEvent::ApprovalAnswered(answered) => rows.change(&key, |row| {
                // The first answer is final.
                if row.answer.is_none() {
                    row.answer = Some(answered.answer);
                    row.answered_at = Some(recorded.recorded_at);
                    row.answered_by = Some(recorded.actor.clone());
                    row.position = recorded.position;
                }
            }),
            RunEvent::ToolCallDecided(decision) => rows.change(&key, |row| {
                if decision.decision == DecisionKind::Allowed {
                    row.spent_by = Some(decision.call);
                    row.position = recorded.position;
                }
            }),
            RunEvent::Opened(_)
            | RunEvent::Taken { .. }
            | RunEvent::TurnStarted { .. }
            | RunEvent::TurnFinished { .. }
            | RunEvent::ToolCallEnded { .. }
            | RunEvent::AttemptFailed { .. }
            | RunEvent::CallOutcomeLate { .. }
            | RunEvent::ReportedLate { .. }
            | RunEvent::Ended(_) => {}
        }
    }

    fn cells(row: &ApprovalRow) -> Vec<Cell> {
        vec![
            Cell::Text(row.answer.map_or_else(|| "open".to_owned(), word)),
            Cell::shown(Some(row.owner)),
            Cell::shown(Some(row.run)),
            Cell::Int(row.asked_at.0),
            Cell::Int(row.expires_at.0),
        ]
    }
}

/// The approval an event is about.
fn of(event: &AnyEvent) -> Option<ApprovalId> {
    match event {
        AnyEvent::Run(event, _) => match event {
            RunEvent::ApprovalRequested(asked) => Some(asked.approval),
            RunEvent::ApprovalAnswered(answered) => Some(answered.approval),
            RunEvent::ToolCallDecided(decision) => decision.approval,
            RunEvent::Opened(_)
            | RunEvent::Taken { .. }
            | RunEvent::TurnStarted { .. }
            | RunEvent::TurnFinished { .. }
            | RunEvent::ToolCallEnded { .. }
            | RunEvent::AttemptFailed { .. }
            | RunEvent::CallOutcomeLate { .. }
            | RunEvent::ReportedLate { .. }
            | RunEvent::Ended(_) => None,
        },
        AnyEvent::Bot(_)
        | AnyEvent::Boundary(..)
        | AnyEvent::Delivery(..)
        | AnyEvent::Engine(..)
        | AnyEvent::Repeat(..)
        | AnyEvent::Routine(..)
        | AnyEvent::Trigger(..)
        | AnyEvent::User(..) => None,
    }
}

impl ApprovalRow {
    fn new(asked: &ApprovalRequested, content: Option<&RunContent>, recorded: &Recorded) -> Self {
        let words = match content {
            Some(RunContent::ApprovalRequested { fingerprint, arguments }) => Some((fingerprint, arguments)),
            Some(
                RunContent::Opened { .. }
                | RunContent::TurnFinished { .. }
                | RunContent::ToolCallDecided { .. }
                | RunContent::ToolCallEnded { .. }
                | RunContent::AttemptFailed { .. }
                | RunContent::CallOutcomeLate { .. }
                | RunContent::ReportedLate { .. }
                | RunContent::Ended { .. },
            )
            | None => None,
        };
        Self {
            id: asked.approval,
            answer: None,
            run: asked.run,
            call: asked.call,
            bot: asked.bot,
            routine: asked.routine,
            trigger: asked.trigger,
            owner: asked.owner,
            tool: asked.tool.clone(),
            rule: asked.rule.clone(),
            boundary: asked.boundary,
            digest: asked.digest,
            approvers: asked.approvers,
            unattended: asked.unattended,
            fingerprint: words.map(|(fingerprint, _)| fingerprint.clone()),
            arguments: words.map(|(_, arguments)| arguments.clone()),
            asked_at: recorded.recorded_at,
            expires_at: asked.expires_us,
            answered_at: None,
            answered_by: None,
            spent_by: None,
            position: recorded.position,
        }
    }
}
