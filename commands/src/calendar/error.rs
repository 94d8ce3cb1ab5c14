//! Why a text is not a schedule, in one sentence for the person who wrote it.

/// A schedule that cannot be used, and what to do about it. A bad request, never a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The JSON does not have the shape of one of the five kinds.
    #[error("the schedule cannot be read: {0}")]
    Shape(String),
    /// The zone is not in the bundled time-zone data.
    #[error("`zone` {name:?} is not a time zone of IANA {version}; {}", suggestion(.nearest.as_deref()))]
    UnknownZone {
        /// What was given, cut at 60 characters.
        name: String,
        /// The known name nearest to it, if one is near.
        nearest: Option<String>,
        /// The version of the zone data that was searched.
        version: &'static str,
    },
    /// One member has a value that cannot be used.
    #[error("`{member}` {problem}")]
    Value {
        /// The member's name in the JSON.
        member: &'static str,
        /// What is wrong, and what to write.
        problem: String,
    },
}

impl ScheduleError {
    /// A stable word for programs: `schedule_shape`, `unknown_zone` or `schedule_value`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Shape(_) => "schedule_shape",
            Self::UnknownZone { .. } => "unknown_zone",
            Self::Value { .. } => "schedule_value",
        }
    }

    pub(super) fn value(member: &'static str, problem: impl Into<String>) -> Self {
        Self::Value { member, problem: problem.into() }
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("did you mean {name}?"),
        None => "write a name such as Europe/Berlin or UTC".to_owned(),
    }
}

/// What a person wrote, short enough to be repeated in a sentence.
pub(super) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
