//! Reading what senders sent: a permission of its own, and each reading is recorded before anything is shown.

use midwatch_commands::{
    Refusal,
    user::{User, UserCommand},
};
use midwatch_events::{
    Actor, StreamName,
    delivery::DeliveryContent,
    id::{DeliveryId, TokenId, UserId},
    user::EvidencePart,
};

use crate::{Done, Engine, EngineError, Origin, Request, deployment::first_admin, handle::handle};
use midwatch_log::Pending;

/// What a sender sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Names and values in the order they came, secrets redacted.
    pub headers: Vec<(String, String)>,
    /// The query, secrets redacted, where it is kept: its sender signs it.
    pub query: Option<String>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// Where the reading stands in the ledger.
    pub position: u64,
}

/// Who may read, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A person.
    User(UserId),
    /// A program, by its token.
    Token(TokenId),
}

impl Engine {
    /// Lets somebody read what senders sent, or not. Admins may, unless it is withdrawn; others, once it is granted.
    ///
    /// # Errors
    /// There is no such person or token, or a fault.
    pub fn allow_evidence<'a>(
        &'a self,
        reader: Reader,
        allowed: bool,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let stream = match reader {
                Reader::User(id) => StreamName::user(id),
                Reader::Token(id) => StreamName::token(id),
            };
            handle::<User>(self, &stream, origin, request, |_| Ok(UserCommand::AllowEvidence(allowed))).await
        })
    }

    /// Whether an actor may read what senders sent.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn reads_evidence<'a>(&'a self, actor: &'a Actor) -> Pending<'a, bool, EngineError> {
        Box::pin(async move {
            match self.reader(actor) {
                None => Ok(false),
                Some(stream) => Ok(self.load::<User>(&stream).await?.state.reads_evidence()),
            }
        })
    }

    /// The stream that says what an actor may read. The command line has the first admin's rights.
    fn reader(&self, actor: &Actor) -> Option<StreamName> {
        match actor {
            Actor::User(id) => Some(StreamName::user(*id)),
            Actor::Token(id) => Some(StreamName::token(*id)),
            Actor::Cli(_) => Some(StreamName::user(first_admin(self.namespace()))),
            Actor::Mcp(_) | Actor::Trigger(_) | Actor::Clock | Actor::Bot(_) | Actor::Engine => None,
        }
    }

    /// Headers and body of a delivery, for somebody who may read them. That they did is recorded first. None once they
    /// were erased: then nothing is read.
    ///
    /// # Errors
    /// There is no such delivery; they may not read it, or no longer; or a fault.
    pub fn read_delivery<'a>(
        &'a self,
        id: DeliveryId,
        origin: &'a Origin,
    ) -> Pending<'a, Option<Evidence>, EngineError> {
        Box::pin(async move {
            let refused = || {
                let sentence = "you may not read what senders sent; an admin grants that with `midwatch user evidence`";
                Refusal::Invalid(sentence.to_owned())
            };
            let stream = self.reader(&origin.actor).ok_or_else(refused)?;
            let Some((DeliveryContent::Received { headers, query, .. }, body)) =
                self.content(id).await?.zip(self.body(id).await?)
            else {
                return Ok(None);
            };
            let done = handle::<User>(self, &stream, origin, None, |reader: &User| {
                // Withdrawn meanwhile, and nothing is shown.
                if !reader.reads_evidence() {
                    return Err(refused());
                }
                Ok(UserCommand::ReadEvidence { subject: StreamName::delivery(id), part: EvidencePart::Body })
            })
            .await?;
            Ok(Some(Evidence { headers, query, body, position: done.position }))
        })
    }
}
