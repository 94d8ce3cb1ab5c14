//! The boundary: which rules are in force.

use midwatch_events::{
    Micros, New,
    boundary::{BoundaryContent, BoundaryEvent},
};
use serde::{Deserialize, Serialize};

use crate::{Decider, Refusal};

/// The boundary in force. Its version is the version of its stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Boundary {
    /// The document, as JSON text; none before the first is published.
    pub document: Option<String>,
}

/// What can be asked of the boundary.
#[derive(Clone, Debug)]
pub enum BoundaryCommand {
    /// Put a document in force that was checked before.
    Publish {
        /// The document, as canonical JSON text.
        document: String,
        /// Why.
        note: String,
    },
}

impl Decider for Boundary {
    type Event = BoundaryEvent;
    type Command = BoundaryCommand;

    const FOLD_VERSION: u32 = 1;

    fn decide(&self, command: BoundaryCommand) -> Result<Vec<New<BoundaryEvent>>, Refusal> {
        let BoundaryCommand::Publish { document, note } = command;
        if self.document.as_ref() == Some(&document) {
            return Err(Refusal::AlreadySo("this boundary is in force already"));
        }
        let facts = BoundaryEvent::Published { document };
        Ok(vec![if note.is_empty() { facts.into() } else { New::with(facts, BoundaryContent::Published { note }) }])
    }

    fn evolve(&mut self, event: &BoundaryEvent, _at: Micros) {
        match event {
            BoundaryEvent::Published { document } => self.document = Some(document.clone()),
            // They have a stream and a state of their own.
            BoundaryEvent::ToolServerAdded { .. }
            | BoundaryEvent::ToolServerRemoved { .. }
            | BoundaryEvent::ToolAccepted { .. }
            | BoundaryEvent::ToolDropped { .. } => {}
        }
    }
}

mod tools;

pub use tools::{Accepted, Server, ToolServers, ToolsCommand};

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(document: &str, note: &str) -> BoundaryCommand {
        BoundaryCommand::Publish { document: document.to_owned(), note: note.to_owned() }
    }

    #[test]
    fn a_boundary_is_published_with_its_note_and_not_twice_in_a_row() {
        let mut boundary = Boundary::default();
        let published = |document: &str| BoundaryEvent::Published { document: document.to_owned() };
        let note = "first".to_owned();
        let first = boundary.decide(publish("a", "first")).unwrap();
        assert_eq!(first, [New::with(published("a"), BoundaryContent::Published { note })]);
        boundary.evolve(&first[0].facts, Micros(0));
        let again = Refusal::AlreadySo("this boundary is in force already");
        assert_eq!(boundary.decide(publish("a", "another note")), Err(again));
        let second = boundary.decide(publish("b", "")).unwrap();
        assert_eq!(second, [published("b").into()]);
        boundary.evolve(&second[0].facts, Micros(1));
        // Back to what was in force before the last one is a change.
        assert!(boundary.decide(publish("a", "")).is_ok());
    }
}
