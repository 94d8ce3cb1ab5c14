//! What stands in the way of a command: a typed value with a sentence for a person.

use midwatch_events::id::RunId;

/// What kind of answer a refusal is, for whoever turns it into a status or an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The domain says no: 409, exit 1.
    Refused,
    /// What was asked makes no sense: 400, exit 2.
    BadRequest,
    /// It names something that is not there: 404, exit 1.
    NotFound,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What was asked makes no sense; the sentence says what to do.
    #[error("{0}")]
    Invalid(String),
    /// There is no such thing, or no more.
    #[error("there is no {0} with this id")]
    NotFound(&'static str),
    /// It is there already.
    #[error("this {0} exists already")]
    Exists(&'static str),
    /// The previous run is still live.
    #[error("busy: run {live} is still live; wait for it or cancel it")]
    Busy {
        /// The live run.
        live: RunId,
    },
    /// Nothing may start.
    #[error("scheduling is halted; `midwatch halt lift` ends it")]
    Halted,
    /// A copy of a ledger starts nothing.
    #[error("this ledger is a copy; `midwatch halt adopt` makes it a deployment of its own and lifts the halt")]
    NotAdopted,
    /// There is no halt to lift, or there is one already.
    #[error("{0}")]
    AlreadySo(&'static str),
    /// The Bot gets no more work.
    #[error("the Bot is retired; give the work to another one")]
    BotRetired,
    /// The owner may do nothing any more.
    #[error("the routine's owner was revoked; make one that belongs to somebody else")]
    OwnerRevoked,
    /// The run is over.
    #[error("the run has ended")]
    RunEnded,
    /// Another runner has the run.
    #[error("another runner took the run")]
    Stale,
    /// The run may take no more turns.
    #[error("the run has taken its {max} turns")]
    TurnLimit {
        /// How many it may take.
        max: u32,
    },
    /// A trigger has no sample to confirm.
    #[error("no delivery has arrived yet: post one, read it, then confirm")]
    NoSample,
    /// Another delivery than the sample was named.
    #[error("the sample is another delivery; read it again and confirm that one")]
    OtherSample,
    /// An approval has its one answer.
    #[error("this was answered already: {0}")]
    Answered(&'static str),
    /// Another call than the one that waits was answered.
    #[error("what was shown is not what waits; look at it again")]
    OtherCall,
    /// They may not answer this.
    #[error("{0}")]
    NotApprover(&'static str),
    /// No more deliveries may wait.
    #[error("{waiting} deliveries wait already, and no more may; wait until some have run")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// A trigger takes no more deliveries in this minute.
    #[error("this trigger takes {max} deliveries a minute; send it again in {retry_s} s")]
    OverBudget {
        /// How many it takes.
        max: u32,
        /// Seconds until the next minute.
        retry_s: u32,
    },
    /// A link was used, or is too old, or never was.
    #[error("this sign-in link was used or has expired; `midwatch user link` makes a new one")]
    LinkSpent,
}

impl Refusal {
    /// What kind of answer it is.
    #[must_use]
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::Invalid(_) => RefusalKind::BadRequest,
            Self::NotFound(_) => RefusalKind::NotFound,
            Self::Exists(_)
            | Self::Busy { .. }
            | Self::Halted
            | Self::NotAdopted
            | Self::AlreadySo(_)
            | Self::BotRetired
            | Self::OwnerRevoked
            | Self::RunEnded
            | Self::Stale
            | Self::TurnLimit { .. }
            | Self::NoSample
            | Self::OtherSample
            | Self::Answered(_)
            | Self::OtherCall
            | Self::NotApprover(_)
            | Self::QueueFull { .. }
            | Self::OverBudget { .. }
            | Self::LinkSpent => RefusalKind::Refused,
        }
    }

    /// A word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NotFound(_) => "not_found",
            Self::Exists(_) => "exists",
            Self::Busy { .. } => "busy",
            Self::Halted => "halted",
            Self::NotAdopted => "not_adopted",
            Self::AlreadySo(_) => "already_so",
            Self::BotRetired => "bot_retired",
            Self::OwnerRevoked => "owner_revoked",
            Self::RunEnded => "run_ended",
            Self::Stale => "stale",
            Self::TurnLimit { .. } => "turn_limit",
            Self::NoSample => "no_sample",
            Self::OtherSample => "other_sample",
            Self::Answered(_) => "answered",
            Self::OtherCall => "other_call",
            Self::NotApprover(_) => "not_approver",
            Self::QueueFull { .. } => "queue_full",
            Self::OverBudget { .. } => "over_budget",
            Self::LinkSpent => "link_spent",
        }
    }
}

/// A name people gave: 1 to 200 characters, no control characters.
///
/// # Errors
/// [`Refusal::Invalid`] that says what is wrong with it.
pub(crate) fn named(what: &str, name: &str) -> Result<(), Refusal> {
    let characters = name.chars().count();
    if name.trim().is_empty() {
        Err(Refusal::Invalid(format!("a {what} needs a name")))
    } else if characters > 200 {
        Err(Refusal::Invalid(format!("the {what}'s name has {characters} characters; 200 are the most")))
    } else if name.chars().any(char::is_control) {
        Err(Refusal::Invalid(format!("the {what}'s name has a line break or another control character")))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
