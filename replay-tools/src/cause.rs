//! What led to an event, from the sender's delivery, the window or the person down to it; and what followed from it.
//!
//! ```json
//! {"origin": ORIGIN, "chain": [LINK, …], "followed": [{LINK, "because": POSITION}, …], "left_out": N,
//!  "scanned_to": POSITION, "head": POSITION}
//! ```
//!
//! A link is `{position, at, stream, event, actor, title}`; the chain's last is the event itself. `because` is the
//! position of the event it followed from, which is the event itself or stands earlier in the list. What stands in
//! the same run or delivery is found however late it came; what is only named as a consequence is looked for up to
//! `scanned_to`.

mod onwards;
mod upwards;

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    codec::CodecError,
    id::{DeliveryId, RoutineId, TriggerId},
};
use midwatch_log::Log;
use midwatch_projections::projection::rfc3339;
use serde::Serialize;

use crate::{ReplayError, terminal::clean, titles::title};

/// What led to an event and what followed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// What it all began with.
    pub origin: Origin,
    /// From there to the event, which is the last.
    pub chain: Vec<Link>,
    /// What followed from the event, in order.
    pub followed: Vec<Followed>,
    /// How many more followed than are listed.
    pub left_out: u64,
    /// Up to where consequences were looked for.
    pub scanned_to: u64,
    /// The ledger's last position as it was read.
    pub head: u64,
}

/// What a chain began with; in JSON the member `kind` says which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// A sender's delivery.
    Delivery {
        /// The delivery.
        delivery: DeliveryId,
        /// The trigger it was posted to.
        trigger: TriggerId,
        /// The trigger's name.
        trigger_name: Option<String>,
    },
    /// A window of a routine.
    Window {
        /// The routine.
        routine: Option<RoutineId>,
        /// The window, by its own time.
        #[serde(with = "rfc3339")]
        window: Micros,
    },
    /// Somebody or something acted by itself.
    Actor {
        /// Who, such as `user:…`, `cli:1000`, `clock`, `engine`.
        actor: String,
    },
}

/// One event, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Where it stands.
    pub position: u64,
    /// When it was recorded.
    #[serde(with = "rfc3339")]
    pub at: Micros,
    /// Its stream.
    pub stream: String,
    /// Its wire name.
    pub event: String,
    /// Who did it.
    pub actor: String,
    /// One line for people.
    pub title: String,
}

/// A consequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Followed {
    /// The event.
    #[serde(flatten)]
    pub link: Link,
    /// The position of what it followed from.
    pub because: u64,
}

/// An event and what it says; nothing where a newer version wrote it.
pub(super) struct Read {
    recorded: Recorded,
    event: Option<AnyEvent>,
}

impl Read {
    fn of(recorded: Recorded) -> Result<Self, ReplayError> {
        let event = match AnyEvent::decode(&recorded) {
            Ok(event) => Some(event),
            Err(CodecError::Unknown { .. }) => None,
            Err(error) => return Err(ReplayError::of(&recorded, error)),
        };
        Ok(Self { recorded, event })
    }

    fn link(&self) -> Link {
        let recorded = &self.recorded;
        let unknown = || format!("{}, which a newer version of Midwatch wrote", recorded.wire());
        Link {
            position: recorded.position,
            at: recorded.recorded_at,
            stream: recorded.stream.to_string(),
            event: recorded.wire(),
            actor: recorded.actor.clone(),
            title: self.event.as_ref().map_or_else(unknown, |event| title(event, recorded)),
        }
    }
}

/// What led to the event at `position`, and what followed from it.
///
/// # Errors
/// [`ReplayError::NotThere`] where nothing stands there; or the ledger cannot be read.
pub async fn cause(log: &Log, position: u64) -> Result<Cause, ReplayError> {
    let head = log.head().await?;
    let recorded = log.read_at(position).await?;
    let absent = || ReplayError::NotThere(format!("nothing stands at position {position}; the last is {head}"));
    let (origin, chain) = upwards::chain(log, Read::of(recorded.clone().ok_or_else(absent)?)?).await?;
    let onwards = onwards::followed(log, Read::of(recorded.ok_or_else(absent)?)?, head).await?;
    Ok(Cause {
        origin,
        chain,
        followed: onwards.followed,
        left_out: onwards.left_out,
        scanned_to: onwards.scanned_to,
        head,
    })
}

/// For people: the chain from its origin on, then what followed, each set in under what it followed from.
#[must_use]
pub fn text(cause: &Cause) -> String {
    let mut out = match &cause.origin {
        Origin::Delivery { delivery, trigger, trigger_name } => {
            let name = trigger_name.as_ref().map_or_else(String::new, |name| format!("{name} "));
            format!("A sender's delivery {delivery} to the trigger {name}({trigger})\n")
        }
        Origin::Window { routine, window } => match routine {
            Some(routine) => format!("The window {window} of the routine {routine}\n"),
            None => format!("The window {window}\n"),
        },
        Origin::Actor { actor } => format!("{actor}, acting by itself\n"),
    };
    out = clean_lines(&out);
    for link in &cause.chain {
        out.push_str(&line(link, 0));
    }
    let mut depths = std::collections::HashMap::new();
    if let Some(event) = cause.chain.last() {
        depths.insert(event.position, 0);
    }
    if !cause.followed.is_empty() {
        out.push_str("What followed\n");
    }
    for Followed { link, because } in &cause.followed {
        let depth = depths.get(because).copied().unwrap_or(0) + 1;
        depths.insert(link.position, depth);
        out.push_str(&line(link, depth.min(DEPTH_MAX)));
    }
    if cause.left_out > 0 {
        out.push_str(&format!("and {} more, left out\n", cause.left_out));
    }
    if cause.scanned_to < cause.head {
        out.push_str(&format!("Looked for consequences up to position {} of {}\n", cause.scanned_to, cause.head));
    }
    out
}

/// Deeper ones stand under each other, so that lines stay readable.
const DEPTH_MAX: usize = 8;

fn line(link: &Link, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let (at, title) = (link.at.to_string(), clean(&link.title));
    format!("{:>8}  {at:<27}  {indent}{title}  [{} {}]\n", link.position, link.event, clean(&link.stream))
}

fn clean_lines(text: &str) -> String {
    text.lines().map(|line| clean(line) + "\n").collect()
}

#[cfg(test)]
mod tests;
