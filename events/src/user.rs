//! People and tokens: streams `user-{id}` and `token-{id}`.
//!
//! Links, sessions and tokens are stored as SHA-256 of their secret (each is 32 random bytes, so a plain hash is
//! enough); whoever reads the ledger cannot sign in with it.

use serde::{Deserialize, Serialize};

use crate::{
    codec::Family,
    id::{BotId, TokenId, UserId},
    key::Digest,
    time::Micros,
};

/// What can happen to a person or a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UserEvent {
    /// A person may sign in, in this role.
    #[serde(rename = "user.invited/1")]
    Invited {
        /// The person.
        user: UserId,
        /// What they may do.
        role: Access,
    },
    /// A one-time sign-in link was made.
    #[serde(rename = "user.link_issued/1")]
    LinkIssued {
        /// SHA-256 of the link's secret.
        link: Digest,
        /// It cannot be used at or after this instant.
        expires_us: Micros,
    },
    /// A link was used up and became a session.
    #[serde(rename = "user.signed_in/1")]
    SignedIn {
        /// SHA-256 of the link's secret.
        link: Digest,
        /// SHA-256 of the session's secret.
        session: Digest,
        /// The session ends at this instant.
        expires_us: Micros,
    },
    /// A session was ended by its person.
    #[serde(rename = "user.signed_out/1")]
    SignedOut {
        /// SHA-256 of the session's secret.
        session: Digest,
    },
    /// An API token was made.
    #[serde(rename = "user.token_issued/1")]
    TokenIssued {
        /// The token.
        token: TokenId,
        /// What it may do.
        role: Access,
        /// SHA-256 of its secret.
        secret: Digest,
    },
    /// A token was made with which an agent that runs elsewhere uses a Bot's tools, and nothing else.
    #[serde(rename = "user.bot_token_issued/1")]
    BotTokenIssued {
        /// The token.
        token: TokenId,
        /// Whose tools.
        bot: BotId,
        /// To whom the runs belong that its agent makes.
        owner: UserId,
        /// SHA-256 of its secret.
        secret: Digest,
    },
    /// A token no longer opens anything.
    #[serde(rename = "user.token_revoked/1")]
    TokenRevoked {
        /// The token.
        token: TokenId,
    },
    /// A person may do nothing any more; their sessions and links open nothing.
    #[serde(rename = "user.revoked/1")]
    Revoked {
        /// The person.
        user: UserId,
    },
    /// They may read what senders sent and what Bots were told, whatever their role.
    #[serde(rename = "user.evidence_granted/1")]
    EvidenceGranted {},
    /// They may not, whatever their role.
    #[serde(rename = "user.evidence_withdrawn/1")]
    EvidenceWithdrawn {},
    /// They read what a sender sent, or what a Bot was told. Again within the hour is the same reading.
    #[serde(rename = "user.evidence_read/1")]
    EvidenceRead {
        /// The name of the stream whose content it is.
        subject: String,
        /// What of it.
        part: EvidencePart,
    },
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UserContent {
    /// Beside [`UserEvent::Invited`].
    #[serde(rename = "user.invited/1")]
    Invited {
        /// The person's name, as given.
        name: String,
    },
    /// Beside [`UserEvent::TokenIssued`].
    #[serde(rename = "user.token_issued/1")]
    TokenIssued {
        /// What the token is for, as given.
        name: String,
    },
    /// Beside [`UserEvent::BotTokenIssued`].
    #[serde(rename = "user.bot_token_issued/1")]
    BotTokenIssued {
        /// What the token is for, as given.
        name: String,
    },
}

impl Family for UserEvent {
    type Content = UserContent;
    const NAME: &'static str = "user";
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidencePart {
    /// Headers and body of a delivery.
    Body,
    /// What a Bot was told, said and was given by its tools.
    Prompt,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Everything.
    Admin,
    /// Sees and changes their own routines.
    Member,
    /// Reads everything, changes nothing.
    Auditor,
}
