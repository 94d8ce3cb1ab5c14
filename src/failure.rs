//! How a verb fails: four kinds, never mixed, each with its exit code.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use midwatch_log::LogError;
use serde_json::json;

use midwatch_replay::terminal::clean;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The domain says no.
    #[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "who only reads is refused nothing"))]
    Refusal,
    /// What was asked makes no sense.
    BadRequest,
    /// Ours, the machine's or the database's.
    Fault,
    /// What is stored is not what was written.
    Corruption,
}

/// Why a verb did not do what was asked: one sentence for a person, two words for a program.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    code: &'static str,
    message: String,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Refusal => "refusal",
            Self::BadRequest => "bad_request",
            Self::Fault => "fault",
            Self::Corruption => "corruption",
        }
    }

    fn exit(self) -> u8 {
        match self {
            Self::Refusal => 1,
            Self::BadRequest => 2,
            Self::Fault => 3,
            Self::Corruption => 4,
        }
    }
}

impl Failure {
    /// What was asked makes no sense; `code` is a word for programs.
    pub(crate) fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self { kind: Kind::BadRequest, code, message: message.into() }
    }

    /// Ours, the machine's or the database's.
    pub(crate) fn fault(code: &'static str, message: impl Into<String>) -> Self {
        Self { kind: Kind::Fault, code, message: message.into() }
    }

    /// Says it on standard error, and with which code the program ends.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let message = clean(&self.message);
        let line = if json {
            json!({ "kind": self.kind.word(), "code": self.code, "message": message }).to_string()
        } else {
            format!("midwatch: {message}")
        };
        // Nobody reads standard error: there is nobody left to tell.
        let _ = writeln!(io::stderr(), "{line}");
        ExitCode::from(self.kind.exit())
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        let (kind, code) = match &error {
            LogError::Address(_) => (Kind::BadRequest, "address"),
            LogError::Absent(_) => (Kind::Fault, "absent"),
            LogError::Foreign(_) => (Kind::Fault, "foreign"),
            LogError::Newer { .. } => (Kind::Fault, "newer"),
            LogError::File { .. } => (Kind::Fault, "file"),
            LogError::Unavailable { .. } => (Kind::Fault, "unavailable"),
            LogError::Corrupt { .. } => (Kind::Corruption, "corrupt"),
        };
        Self { kind, code, message: error.to_string() }
    }
}

#[cfg(feature = "serve")]
mod serving {
    use midwatch_commands::{Refusal, RefusalKind};
    use midwatch_engine::EngineError;

    use super::{Failure, Kind};

    impl From<EngineError> for Failure {
        fn from(error: EngineError) -> Self {
            let (kind, code) = match &error {
                EngineError::Refused(refusal) => (kind_of(refusal), refusal.code()),
                EngineError::KeyReused => (Kind::Refusal, "key_reused"),
                EngineError::Unknown => (Kind::Fault, "unknown"),
                EngineError::Fault(_) => (Kind::Fault, "fault"),
                EngineError::Deployment(_) => (Kind::Fault, "deployment"),
                EngineError::Corrupt(_) => (Kind::Corruption, "corrupt"),
            };
            Self { kind, code, message: error.to_string() }
        }
    }

    impl From<Refusal> for Failure {
        fn from(refusal: Refusal) -> Self {
            EngineError::from(refusal).into()
        }
    }

    fn kind_of(refusal: &Refusal) -> Kind {
        match refusal.kind() {
            RefusalKind::BadRequest => Kind::BadRequest,
            RefusalKind::Refused | RefusalKind::NotFound => Kind::Refusal,
        }
    }
}
