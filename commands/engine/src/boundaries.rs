//! The boundary: publishing a document that was checked before.

use midwatch_commands::boundary::{Boundary, BoundaryCommand};
use midwatch_events::StreamName;

use crate::{Done, Engine, EngineError, Origin, Request, handle::handle_at};

impl Engine {
    /// Puts a boundary in force. The caller has compiled and checked it. From the answer on no decision is made by an
    /// older one: every decision carries the boundary's version as a condition.
    ///
    /// # Errors
    /// It is in force already, or a fault. With `expected`, a boundary that was published meanwhile is a refusal too.
    pub async fn publish_boundary(
        &self,
        document: &str,
        note: &str,
        expected: Option<u64>,
        origin: &Origin,
        request: Option<&Request>,
    ) -> Result<Done<()>, EngineError> {
        let sentence = "another boundary was published meanwhile; look at it and publish again";
        let seen = expected.map(|version| (version, sentence));
        handle_at::<Boundary>(self, &StreamName::boundary(), seen, origin, request, |_| {
            Ok(BoundaryCommand::Publish { document: document.to_owned(), note: note.to_owned() })
        })
        .await
    }

    /// The boundary in force, as JSON text, and its version.
    ///
    /// # Errors
    /// A fault of the database.
    pub async fn boundary(&self) -> Result<(Option<String>, u64), EngineError> {
        let loaded = self.load::<Boundary>(&StreamName::boundary()).await?;
        Ok((loaded.state.document, loaded.version))
    }
}
