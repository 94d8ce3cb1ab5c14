//! The boundary: which rules are in force.

use midwatch_events::{
    Micros, New,
    boundary::{BoundaryContent, BoundaryEvent},
};

use crate::{Decider, Refusal};

/// The boundary in force. Its version is the version of its stream.
#[derive(Clone, Debug, Default, PartialEq)]
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

    fn decide(&self, command: BoundaryCommand) -> Result<Vec<New<BoundaryEvent>>, Refusal> {
        let BoundaryCommand::Publish { document, note } = command;
        if self.document.as_ref() == Some(&document) {
            return Err(Refusal::AlreadySo("this boundary is in force already"));
        }
        let facts = BoundaryEvent::Published { document };
        Ok(vec![if note.is_empty() { facts.into() } else { New::with(facts, BoundaryContent::Published { note }) }])
    }

    fn evolve(&mut self, event: &BoundaryEvent, _at: Micros) {
        let BoundaryEvent::Published { document } = event;
        self.document = Some(document.clone());
    }
}
