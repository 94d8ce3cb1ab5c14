//! Four kinds of error, never mixed: refusal, bad request, fault, corruption.

use midwatch_commands::{Refusal, RefusalKind};
use midwatch_events::codec::CodecError;
use midwatch_log::{AppendError, LogError};

/// Why an operation did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The domain says no, or what was asked makes no sense; see [`Refusal::kind`].
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An idempotency key was used before for another request.
    #[error("this idempotency key was already used for another request; use a new one")]
    KeyReused,
    /// It is not known whether it happened; asking again with the same key is safe.
    #[error("it is not known whether this happened; ask again with the same idempotency key")]
    Unknown,
    /// Ours or the database's; trying again may help.
    #[error("{0}")]
    Fault(String),
    /// This deployment's outside does not fit the ledger, or is missing.
    #[error("{0}")]
    Deployment(String),
    /// What is stored is not what was written.
    #[error("{0}")]
    Corrupt(String),
    /// The ledger could not do its part, or is not the one that this process knew.
    #[error(transparent)]
    Ledger(LogError),
}

/// What kind of error it is; see [`midwatch_commands::RefusalKind`] for the two of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The domain says no, or what was asked makes no sense.
    Refused(RefusalKind),
    /// Ours, the machine's or the database's.
    Fault,
    /// What is stored is not what was written.
    Corruption,
}

impl EngineError {
    /// Which of the kinds it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(refusal) => ErrorKind::Refused(refusal.kind()),
            Self::KeyReused => ErrorKind::Refused(RefusalKind::Refused),
            Self::Ledger(LogError::Address(_)) => ErrorKind::Refused(RefusalKind::BadRequest),
            Self::Corrupt(_) | Self::Ledger(LogError::Corrupt { .. } | LogError::WentBack { .. }) => {
                ErrorKind::Corruption
            }
            Self::Unknown | Self::Fault(_) | Self::Deployment(_) | Self::Ledger(_) => ErrorKind::Fault,
        }
    }

    /// A word for programs; stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::KeyReused => "key_reused",
            Self::Unknown => "unknown_outcome",
            Self::Fault(_) => "fault",
            Self::Deployment(_) => "deployment",
            Self::Corrupt(_) => "corrupt",
            Self::Ledger(error) => error.code(),
        }
    }
}

impl From<LogError> for EngineError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Corrupt { .. } => Self::Corrupt(error.to_string()),
            other => Self::Ledger(other),
        }
    }
}

impl From<CodecError> for EngineError {
    fn from(error: CodecError) -> Self {
        match error {
            // A stream with an event of a newer version is never decided on by an older one.
            CodecError::Unknown { .. } => Self::Fault(error.to_string()),
            CodecError::Decode { .. } => Self::Corrupt(error.to_string()),
            CodecError::Encode { .. } => Self::Fault(error.to_string()),
        }
    }
}

impl From<AppendError> for EngineError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::KeyReused { .. } => Self::KeyReused,
            AppendError::Unknown => Self::Unknown,
            AppendError::Invalid(reason) => Self::Refused(Refusal::Invalid(reason)),
            AppendError::Log(error) => error.into(),
            AppendError::Conflict { .. } => {
                Self::Fault(format!("too many processes change the same thing at once: {error}; try again"))
            }
        }
    }
}
