//! The boundary: publishing a document that was checked before.

use midwatch_commands::boundary::{Boundary, BoundaryCommand};
use midwatch_events::StreamName;

use crate::{Done, Engine, EngineError, Origin, Request, handle::handle_at};
use midwatch_log::Pending;

impl Engine {
    /// Puts a boundary in force. The caller has compiled and checked it. From the answer on no decision is made by an
    /// older one: every decision carries the boundary's version as a condition.
    ///
    /// # Errors
    /// It is in force already, or a fault. With `expected`, a boundary that was published meanwhile is a refusal too.
    pub fn publish_boundary<'a>(
        &'a self,
        document: &'a str,
        note: &'a str,
        expected: Option<u64>,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let sentence = "another boundary was published meanwhile; look at it and publish again";
            let seen = expected.map(|version| (version, sentence));
            handle_at::<Boundary>(self, &StreamName::boundary(), seen, origin, request, |_| {
                Ok(BoundaryCommand::Publish { document: document.to_owned(), note: note.to_owned() })
            })
            .await
        })
    }

    /// The boundary in force, as JSON text, and its version.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn boundary(&self) -> Pending<'_, (Option<String>, u64), EngineError> {
        Box::pin(async move {
            let loaded = self.load::<Boundary>(&StreamName::boundary()).await?;
            Ok((loaded.state.document, loaded.version))
        })
    }
}
