//! What goes wrong, as an answer: RFC 9457 problem details with two members more, `kind` and `code`, that programs can
//! rely on.
//!
//! | kind | status |
//! |---|---|
//! | `refusal` | 401, 403, 404, 405, 409, 412, 429 and 503 `halted`: the answer is no |
//! | `bad_request` | 400, 408, 413, 415: what was asked makes no sense |
//! | `fault` | 503, with `Retry-After`: ours or the database's |
//! | `corruption` | 500: what is stored is not what was written |

use axum::{
    Json,
    extract::rejection::{JsonRejection, QueryRejection},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use midwatch_commands::{Refusal, RefusalKind, calendar::ScheduleError};
use midwatch_engine::{EngineError, ErrorKind};
use serde::Serialize;
use utoipa::ToSchema;

/// The four kinds of error, never mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The domain says no.
    Refusal,
    /// What was asked makes no sense.
    BadRequest,
    /// Ours or the database's; trying again may help.
    Fault,
    /// What is stored is not what was written.
    Corruption,
}

/// Seconds after which a fault is worth another try.
pub const RETRY_S: u32 = 5;

/// An answer that is no, with a sentence for a person and a code for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// Which of the four it is.
    pub kind: Kind,
    /// A word for programs, such as `busy`; stable.
    pub code: &'static str,
    /// One sentence for a person.
    pub sentence: String,
    /// After how many seconds to try again.
    pub retry_after_s: Option<u32>,
    /// What exactly is wrong with a document, and where.
    pub findings: Vec<Finding>,
    /// Headers that belong to the status, such as `Allow`.
    pub headers: Vec<(HeaderName, &'static str)>,
}

/// One thing that is wrong with a boundary document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Finding {
    /// The rule it is about, where it is about one.
    pub rule: Option<String>,
    /// Line from 1: of the rule's text, or of the document where no rule is named; 0 where it is not one place.
    pub line: usize,
    /// Column of that line, from 1; 0 where it is not one place.
    pub column: usize,
    /// What is wrong and what to do.
    pub sentence: String,
    /// The rule's text as it should be, where that can be said.
    pub corrected: Option<String>,
}

/// A [`Problem`] as it is written: RFC 9457 with `kind` and `code`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Details<'a> {
    /// Always `about:blank`: the code says which problem it is.
    r#type: &'static str,
    /// The status in words.
    title: &'a str,
    /// The status.
    #[schema(value_type = u16)]
    status: u16,
    /// One sentence for a person.
    detail: &'a str,
    /// Which of the four kinds it is.
    kind: Kind,
    /// A word for programs; stable.
    code: &'a str,
    /// What exactly is wrong with a document, and where.
    #[serde(skip_serializing_if = "<[Finding]>::is_empty")]
    findings: &'a [Finding],
}

impl Problem {
    /// An answer that is no.
    #[must_use]
    pub fn new(status: StatusCode, kind: Kind, code: &'static str, sentence: impl Into<String>) -> Self {
        let sentence = sentence.into();
        Self { status, kind, code, sentence, retry_after_s: None, findings: Vec::new(), headers: Vec::new() }
    }

    /// 400: what was asked makes no sense.
    #[must_use]
    pub fn bad(code: &'static str, sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Kind::BadRequest, code, sentence)
    }

    /// 403: not with these rights.
    #[must_use]
    pub fn forbidden(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, Kind::Refusal, "forbidden", sentence)
    }

    fn refused(kind: RefusalKind, code: &'static str, sentence: String) -> Self {
        let (status, kind) = match kind {
            RefusalKind::Refused => (StatusCode::CONFLICT, Kind::Refusal),
            RefusalKind::BadRequest => (StatusCode::BAD_REQUEST, Kind::BadRequest),
            RefusalKind::NotFound => (StatusCode::NOT_FOUND, Kind::Refusal),
        };
        Self::new(status, kind, code, sentence)
    }

    /// 404: there is no such thing.
    #[must_use]
    pub fn not_found(what: &'static str) -> Self {
        Refusal::NotFound(what).into()
    }

    /// The same, worth another try after `seconds`.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// The same, with one more header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The same, with what is wrong where.
    #[must_use]
    pub fn findings(self, findings: Vec<Finding>) -> Self {
        Self { findings, ..self }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::refused(refusal.kind(), refusal.code(), refusal.to_string())
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        match error.kind() {
            ErrorKind::Refused(kind) => match error {
                EngineError::Refused(refusal) => refusal.into(),
                error => Self::refused(kind, error.code(), error.to_string()),
            },
            ErrorKind::Fault => {
                tracing::warn!(%error, "a request failed");
                let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Fault, error.code(), error.to_string());
                problem.retry_after(RETRY_S)
            }
            ErrorKind::Corruption => {
                tracing::error!(%error, "the record is not what was written");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, Kind::Corruption, error.code(), error.to_string())
            }
        }
    }
}

impl From<midwatch_log::LogError> for Problem {
    fn from(error: midwatch_log::LogError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<midwatch_events::codec::CodecError> for Problem {
    fn from(error: midwatch_events::codec::CodecError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Self {
        Self::bad(error.code(), error.to_string())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        let code = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "too_large",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "not_json",
            _ => "invalid",
        };
        // A body of the wrong shape is a bad request like any other.
        let status = if status == StatusCode::UNPROCESSABLE_ENTITY { StatusCode::BAD_REQUEST } else { status };
        Self::new(status, Kind::BadRequest, code, rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad("invalid", rejection.body_text())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let details = Details {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or_default(),
            status: self.status.as_u16(),
            detail: &self.sentence,
            kind: self.kind,
            code: self.code,
            findings: &self.findings,
        };
        let mut response = (self.status, Json(details)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        for (name, value) in self.headers {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
