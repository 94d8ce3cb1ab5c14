//! Which Bots are there, and what may they use? Key: the Bot's id. Retired ones stay.

use std::collections::BTreeSet;

use midwatch_events::{AnyEvent, Micros, Recorded, bot::BotEvent, id::BotId};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339, stream_key};

/// The projection.
#[derive(Debug)]
pub enum Bots {}

/// One Bot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BotRow {
    /// The Bot.
    pub id: BotId,
    /// Its name.
    pub name: String,
    /// Where its AG-UI agent listens; null for one that only replays recordings.
    pub agui: Option<String>,
    /// The tools it may use.
    pub tools: BTreeSet<String>,
    /// Whether it gets no more work.
    pub retired: bool,
    /// Since when its endpoint does not answer.
    #[serde(default, with = "rfc3339::option")]
    pub unreachable_since: Option<Micros>,
    /// When it was registered.
    #[serde(with = "rfc3339")]
    pub registered_at: Micros,
    /// The version of its stream.
    pub version: u64,
}

impl Projection for Bots {
    type Row = BotRow;

    const TABLE: Table = Table {
        name: "bots",
        version: 2,
        columns: &[("name", Kind::Text), ("retired", Kind::Int), ("unreachable", Kind::Int)],
        indexes: &[&["name"], &["retired", "name"], &["unreachable"]],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Bot(_) => stream_key(recorded),
            AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<BotRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Bot(event) => {
                let Some(key) = stream_key(recorded).pop() else { return };
                bot(rows, &key, event, recorded);
                rows.change(&key, |row| row.version = recorded.version);
            }
            AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => {}
        }
    }

    fn cells(row: &BotRow) -> Vec<Cell> {
        let unreachable = row.unreachable_since.is_some() && !row.retired;
        vec![Cell::text(&row.name), Cell::Int(i64::from(row.retired)), Cell::Int(i64::from(unreachable))]
    }
}

fn bot(rows: &mut Rows<BotRow>, key: &str, event: &BotEvent, recorded: &Recorded) {
    match event {
        BotEvent::Registered { bot, name, agui, tools } => rows.put(
            key,
            BotRow {
                id: *bot,
                name: name.clone(),
                agui: agui.clone(),
                tools: tools.iter().cloned().collect(),
                retired: false,
                unreachable_since: None,
                registered_at: recorded.recorded_at,
                version: recorded.version,
            },
        ),
        BotEvent::ToolsGranted { tools } => rows.change(key, |row| row.tools.extend(tools.iter().cloned())),
        BotEvent::ToolsWithdrawn { tools } => rows.change(key, |row| row.tools.retain(|tool| !tools.contains(tool))),
        BotEvent::Retired {} => rows.change(key, |row| row.retired = true),
        BotEvent::Unreachable {} => rows.change(key, |row| row.unreachable_since = Some(recorded.recorded_at)),
        BotEvent::Reachable {} => rows.change(key, |row| row.unreachable_since = None),
    }
}
