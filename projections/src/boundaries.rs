//! Which boundaries were published, by whom and why? Key: the version, padded so that keys sort as versions do.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    boundary::{BoundaryContent, BoundaryEvent},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, padded, rfc3339};

/// The projection.
#[derive(Debug)]
pub enum Boundaries {}

/// One published boundary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundaryRow {
    /// Its version, from 1.
    pub version: u64,
    /// Who published it.
    pub author: String,
    /// When.
    #[serde(with = "rfc3339")]
    pub at: Micros,
    /// Where in the ledger.
    pub position: u64,
    /// Why, in its author's words; absent also when they were erased.
    pub note: Option<String>,
    /// The whole document, as JSON text.
    pub document: String,
}

impl Projection for Boundaries {
    type Row = BoundaryRow;

    const TABLE: Table = Table {
        name: "boundaries",
        version: 1,
        columns: &[("version", Kind::Int), ("at", Kind::Int)],
        indexes: &[&["version"]],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Boundary(BoundaryEvent::Published { .. }, _) => vec![padded(recorded.version)],
            AnyEvent::Boundary(
                BoundaryEvent::ToolServerAdded { .. }
                | BoundaryEvent::ToolServerRemoved { .. }
                | BoundaryEvent::ToolAccepted { .. }
                | BoundaryEvent::ToolDropped { .. },
                _,
            )
            | AnyEvent::Bot(_)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<BoundaryRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Boundary(BoundaryEvent::Published { document }, content) => {
                let note = content.as_ref().map(|BoundaryContent::Published { note }| note.clone());
                let row = BoundaryRow {
                    version: recorded.version,
                    author: recorded.actor.clone(),
                    at: recorded.recorded_at,
                    position: recorded.position,
                    note,
                    document: document.clone(),
                };
                rows.put(&padded(recorded.version), row);
            }
            AnyEvent::Boundary(
                BoundaryEvent::ToolServerAdded { .. }
                | BoundaryEvent::ToolServerRemoved { .. }
                | BoundaryEvent::ToolAccepted { .. }
                | BoundaryEvent::ToolDropped { .. },
                _,
            )
            | AnyEvent::Bot(_)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => {}
        }
    }

    fn cells(row: &BoundaryRow) -> Vec<Cell> {
        vec![Cell::int(Some(row.version)), Cell::Int(row.at.0)]
    }
}
