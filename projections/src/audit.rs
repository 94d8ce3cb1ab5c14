//! What was done, by which Bot, was anybody watching, and what was decided? One row for each event that belongs there.
//!
//! Key: the position, padded so that keys sort as positions do. Left out are the counting of equal calls (only the
//! thresholds that were crossed are here) and the comings and goings of processes. An event that is no decision has no
//! decision: it is never shown as allowed. Holds promise 8 (unattended is visible).

pub mod filter;
mod rows;

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    engine::EngineEvent,
    id::{BotId, DeliveryId, RoutineId, RunId, TriggerId},
    repeat::RepeatEvent,
    run::{Cause, DecisionKind, Verdict},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, padded, rfc3339, word};

/// The projection.
#[derive(Debug)]
pub enum Audit {}

/// One row of the audit view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Where it stands in the ledger.
    pub position: u64,
    /// When it was recorded.
    #[serde(with = "rfc3339")]
    pub at: Micros,
    /// The event's type, such as `run.tool_call_decided`.
    pub event: String,
    /// Who did it.
    pub actor: String,
    /// The Bot.
    pub bot: Option<BotId>,
    /// The routine.
    pub routine: Option<RoutineId>,
    /// The run.
    pub run: Option<RunId>,
    /// The trigger.
    pub trigger: Option<TriggerId>,
    /// The delivery.
    pub delivery: Option<DeliveryId>,
    /// The tool.
    pub tool: Option<String>,
    /// What the boundary said.
    pub verdict: Option<Verdict>,
    /// What came of it.
    pub decision: Option<DecisionKind>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// Every rule that matched, in the document's order.
    pub matched: Vec<String>,
    /// Whether the verdict was enforced.
    pub enforced: Option<bool>,
    /// The boundary's version.
    pub boundary: Option<u64>,
    /// Whether nobody was watching; null where the event does not say.
    pub unattended: Option<bool>,
    /// Why the run runs.
    pub cause: Option<Cause>,
    /// How often the Bot made this call inside the window.
    pub repeat_count: Option<u32>,
    /// How it ended: a run's outcome, a call's (`finished`, `failed`, `unknown`), `missed` or `skipped`.
    pub outcome: Option<String>,
    /// Why: of a refusal, an ending, a missed or skipped window, a drop, a suspension, a halt.
    pub reason: Option<String>,
    /// What it is about, in a few words.
    pub subject: Option<String>,
    /// What the call acted on; absent also when it was erased.
    pub fingerprint: Option<String>,
}

impl Projection for Audit {
    type Row = AuditRow;

    const TABLE: Table = Table {
        name: "audit",
        version: 2,
        columns: &[
            ("position", Kind::Int),
            ("at", Kind::Int),
            ("event", Kind::Text),
            ("bot", Kind::Text),
            ("routine", Kind::Text),
            ("run", Kind::Text),
            ("trigger", Kind::Text),
            ("tool", Kind::Text),
            ("verdict", Kind::Text),
            ("decision", Kind::Text),
            ("rule", Kind::Text),
            ("unattended", Kind::Int),
            ("outcome", Kind::Text),
        ],
        indexes: &[
            &["position"],
            &["at", "position"],
            &["event", "position"],
            &["bot", "position"],
            &["routine", "position"],
            &["run", "position"],
            &["trigger", "position"],
            &["tool", "position"],
            &["decision", "position"],
            &["rule", "position"],
            &["outcome", "position"],
        ],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        let belongs = match event {
            AnyEvent::Repeat(event, _) => match event {
                RepeatEvent::ThresholdCrossed { .. } => true,
                RepeatEvent::Attempted { .. } | RepeatEvent::Settled { .. } => false,
            },
            AnyEvent::Engine(event, _) => match event {
                EngineEvent::LedgerCreated { .. }
                | EngineEvent::DeploymentAdopted { .. }
                | EngineEvent::SchedulingHalted { .. }
                | EngineEvent::SchedulingLifted {}
                | EngineEvent::ContentErased { .. }
                | EngineEvent::ReactionStarted { .. }
                | EngineEvent::ReceiverAdded { .. }
                | EngineEvent::ReceiverRemoved { .. }
                | EngineEvent::NoticeAskedAgain {} => true,
                // The log of notices shows them, and they follow from what is shown here.
                EngineEvent::NoticeRaised { .. } | EngineEvent::NoticeAttempted { .. } => false,
                EngineEvent::ProcessStarted { .. } | EngineEvent::ProcessStopped { .. } => false,
            },
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => true,
        };
        if belongs { vec![padded(recorded.position)] } else { Vec::new() }
    }

    fn apply(rows: &mut Rows<AuditRow>, event: &AnyEvent, recorded: &Recorded) {
        rows.put(&padded(recorded.position), rows::row(event, recorded));
    }

    fn cells(row: &AuditRow) -> Vec<Cell> {
        vec![
            Cell::int(Some(row.position)),
            Cell::Int(row.at.0),
            Cell::text(&row.event),
            Cell::shown(row.bot),
            Cell::shown(row.routine),
            Cell::shown(row.run),
            Cell::shown(row.trigger),
            Cell::shown(row.tool.as_deref()),
            Cell::shown(row.verdict.map(word)),
            Cell::shown(row.decision.map(word)),
            Cell::shown(row.rule.as_deref()),
            Cell::int(row.unattended),
            Cell::shown(row.outcome.as_deref()),
        ]
    }
}
