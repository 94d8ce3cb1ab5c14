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
        let kind = match &error {
            LogError::Address(_) => Kind::BadRequest,
            LogError::Absent(_)
            | LogError::Foreign(_)
            | LogError::Newer { .. }
            | LogError::File { .. }
            | LogError::Unavailable { .. } => Kind::Fault,
            LogError::Corrupt { .. } | LogError::WentBack { .. } => Kind::Corruption,
        };
        Self { kind, code: error.code(), message: error.to_string() }
    }
}

#[cfg(feature = "serve")]
mod serving {
    use midwatch_commands::{Refusal, RefusalKind};
    use midwatch_engine::{EngineError, ErrorKind};

    use super::{Failure, Kind};

    impl From<EngineError> for Failure {
        fn from(error: EngineError) -> Self {
            let kind = match error.kind() {
                ErrorKind::Refused(RefusalKind::BadRequest) => Kind::BadRequest,
                ErrorKind::Refused(RefusalKind::Refused | RefusalKind::NotFound) => Kind::Refusal,
                ErrorKind::Fault => Kind::Fault,
                ErrorKind::Corruption => Kind::Corruption,
            };
            Self { kind, code: error.code(), message: error.to_string() }
        }
    }

    impl From<Refusal> for Failure {
        fn from(refusal: Refusal) -> Self {
            EngineError::from(refusal).into()
        }
    }
}

#[cfg(all(test, feature = "serve"))]
mod tests {
    use midwatch_engine::EngineError;

    use super::*;

    /// Whatever the ledger says reaches the program that asked, by the way of the engine too.
    #[test]
    fn every_code_of_the_ledger_is_kept() {
        let unavailable = || LogError::Unavailable { operation: "append", reason: "no".to_owned() };
        let all = [
            (LogError::Absent("x".to_owned()), "absent", 3),
            (LogError::Foreign("x".to_owned()), "foreign", 3),
            (LogError::Newer { found: 9, known: 3 }, "newer", 3),
            (LogError::Address("x".to_owned()), "address", 2),
            (unavailable(), "unavailable", 3),
            (LogError::WentBack { seen: 8, head: 5 }, "ledger_went_back", 4),
            (LogError::Corrupt { position: 1, reason: "x".to_owned() }, "corrupt", 4),
        ];
        for (error, code, exit) in all {
            let failure = Failure::from(EngineError::from(error));
            assert_eq!((failure.code, failure.kind.exit()), (code, exit));
        }
        let unknown = Failure::from(EngineError::from(midwatch_log::AppendError::Unknown));
        assert_eq!((unknown.code, unknown.kind.exit()), ("unknown_outcome", 3));
        let failure = Failure::from(EngineError::from(midwatch_log::AppendError::Log(unavailable())));
        assert_eq!(failure.code, "unavailable");
    }
}
