//! Why a question could not be answered.

use midwatch_events::{Family, Recorded, codec::CodecError};
use midwatch_log::LogError;

/// Why a question could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The ledger could not be read, or is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What was asked for is not in the ledger, or was not yet.
    #[error("{0}")]
    NotThere(String),
    /// What was asked makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// Without this event the answer would be wrong.
    #[error("position {position} holds {wire}, which a newer version of Midwatch wrote; use a newer midwatch")]
    Newer {
        /// Where it stands.
        position: u64,
        /// Its wire name.
        wire: String,
    },
}

impl ReplayError {
    /// What an event's bytes made the decoder say.
    pub(crate) fn of(recorded: &Recorded, error: CodecError) -> Self {
        let position = recorded.position;
        match error {
            CodecError::Unknown { wire } => Self::Newer { position, wire },
            other => LogError::Corrupt { position, reason: other.to_string() }.into(),
        }
    }
}

/// The facts of an event whose family is known.
pub(crate) fn facts<F: Family>(recorded: &Recorded) -> Result<F, ReplayError> {
    recorded.facts().map_err(|error| ReplayError::of(recorded, error))
}
