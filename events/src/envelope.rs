//! What every event carries, whatever its family.

use std::{fmt, str::FromStr};

use uuid::Uuid;

use crate::{
    codec::{CodecError, Family, decode_content, decode_facts},
    id::{
        BotId, DeliveryId, NoticeId, ProcessId, ReceiverId, RedeliveryId, RoutineId, RunId, TokenId, TriggerId, UserId,
    },
    time::Micros,
};

/// The name of a stream, such as `run-0198c0de-…`: a category, and for most of them an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName(String);

impl StreamName {
    /// The stream of published boundaries.
    #[must_use]
    pub fn boundary() -> Self {
        Self("boundary".to_owned())
    }
    /// The stream of MCP servers and their tools.
    #[must_use]
    pub fn tools() -> Self {
        Self("tools".to_owned())
    }
    /// The stream of what the whole deployment shares.
    #[must_use]
    pub fn engine() -> Self {
        Self("engine".to_owned())
    }
    /// The stream of the scheduling halt.
    #[must_use]
    pub fn halt() -> Self {
        Self("halt".to_owned())
    }
    /// A Bot's stream.
    #[must_use]
    pub fn bot(id: BotId) -> Self {
        Self(format!("bot-{id}"))
    }
    /// A routine's stream.
    #[must_use]
    pub fn routine(id: RoutineId) -> Self {
        Self(format!("routine-{id}"))
    }
    /// A run's stream.
    #[must_use]
    pub fn run(id: RunId) -> Self {
        Self(format!("run-{id}"))
    }
    /// A trigger's stream.
    #[must_use]
    pub fn trigger(id: TriggerId) -> Self {
        Self(format!("trigger-{id}"))
    }
    /// A delivery's stream.
    #[must_use]
    pub fn delivery(id: DeliveryId) -> Self {
        Self(format!("delivery-{id}"))
    }
    /// The stream that counts one Bot's equal calls. `fingerprint` is the fingerprint's hash.
    #[must_use]
    pub fn repeat(bot: BotId, fingerprint: &[u8; 32]) -> Self {
        use fmt::Write as _;
        let mut name = format!("repeat-{bot}-");
        for byte in fingerprint {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        Self(name)
    }
    /// A process's stream.
    #[must_use]
    pub fn process(id: ProcessId) -> Self {
        Self(format!("process-{id}"))
    }
    /// The stream of a redelivery of many.
    #[must_use]
    pub fn redelivery(id: RedeliveryId) -> Self {
        Self(format!("redelivery-{id}"))
    }
    /// The stream of a receiver of notices.
    #[must_use]
    pub fn receiver(id: ReceiverId) -> Self {
        Self(format!("receiver-{id}"))
    }
    /// A notice's stream.
    #[must_use]
    pub fn notice(id: NoticeId) -> Self {
        Self(format!("notice-{id}"))
    }
    /// A person's stream.
    #[must_use]
    pub fn user(id: UserId) -> Self {
        Self(format!("user-{id}"))
    }
    /// An API token's stream.
    #[must_use]
    pub fn token(id: TokenId) -> Self {
        Self(format!("token-{id}"))
    }

    /// A name as it was stored or typed. Any text is a name: a stream nobody wrote is an empty one.
    #[must_use]
    pub fn stored(name: String) -> Self {
        Self(name)
    }

    /// The name as stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands before the first hyphen: `run`, `routine`, `boundary` …
    #[must_use]
    pub fn category(&self) -> &str {
        self.0.split('-').next().unwrap_or_default()
    }

    /// The UUID behind the category, where there is one and nothing else.
    #[must_use]
    pub fn uuid(&self) -> Option<Uuid> {
        Uuid::try_parse(self.0.split_once('-')?.1).ok()
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who did it. Opaque ids: names and addresses never stand here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A signed-in person.
    User(UserId),
    /// An API token.
    Token(TokenId),
    /// Somebody on the command line, by numeric uid.
    Cli(u32),
    /// An agent that uses `/mcp`, by its token.
    Mcp(TokenId),
    /// A sender, by the trigger it posted to.
    Trigger(TriggerId),
    /// The clock role.
    Clock,
    /// A Bot.
    Bot(BotId),
    /// The engine itself.
    Engine,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => write!(f, "user:{id}"),
            Self::Token(id) => write!(f, "token:{id}"),
            Self::Cli(uid) => write!(f, "cli:{uid}"),
            Self::Mcp(id) => write!(f, "mcp:{id}"),
            Self::Trigger(id) => write!(f, "trigger:{id}"),
            Self::Clock => f.write_str("clock"),
            Self::Bot(id) => write!(f, "bot:{id}"),
            Self::Engine => f.write_str("engine"),
        }
    }
}

impl FromStr for Actor {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || format!("`{text}` is no actor");
        let (kind, id) = text.split_once(':').unwrap_or((text, ""));
        Ok(match kind {
            "user" => Self::User(id.parse().map_err(|_| bad())?),
            "token" => Self::Token(id.parse().map_err(|_| bad())?),
            "cli" => Self::Cli(id.parse().map_err(|_| bad())?),
            "mcp" => Self::Mcp(id.parse().map_err(|_| bad())?),
            "trigger" => Self::Trigger(id.parse().map_err(|_| bad())?),
            "bot" => Self::Bot(id.parse().map_err(|_| bad())?),
            "clock" if id.is_empty() => Self::Clock,
            "engine" if id.is_empty() => Self::Engine,
            _ => return Err(bad()),
        })
    }
}

/// One event as it stands in the ledger. Bytes are as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Place in the whole ledger: 1, 2, 3 … without gaps, in order of commit.
    pub position: u64,
    /// The stream it belongs to.
    pub stream: StreamName,
    /// Place in its stream: 1, 2, 3 … without gaps.
    pub version: u64,
    /// UUIDv7, made before the first attempt to append.
    pub event_id: Uuid,
    /// The wire name without its version.
    pub event_type: String,
    /// The wire name's version.
    pub schema: u16,
    /// When it was appended, by the store's clock.
    pub recorded_at: Micros,
    /// Who did it, as [`Actor`] shows it.
    pub actor: String,
    /// The stream name of the run or delivery it belongs to.
    pub correlation_id: Option<String>,
    /// The event that caused it.
    pub causation_id: Option<Uuid>,
    /// CBOR map of what became true; never erased.
    pub facts: Vec<u8>,
    /// CBOR map of the words that went with it; none where there were none, or once erased.
    pub content: Option<Vec<u8>>,
    /// 16 random bytes; none where there is no content, or once erased.
    pub salt: Option<[u8; 16]>,
    /// SHA-256(salt ‖ content); none where there never was content.
    pub commitment: Option<[u8; 32]>,
    /// SHA-256(0x00 ‖ leaf), see [`crate::leaf`].
    pub leaf_hash: [u8; 32],
}

impl Recorded {
    /// The wire name, such as `run.tool_call_decided/1`.
    #[must_use]
    pub fn wire(&self) -> String {
        format!("{}/{}", self.event_type, self.schema)
    }

    /// The family part of the wire name.
    #[must_use]
    pub fn family(&self) -> &str {
        self.event_type.split('.').next().unwrap_or_default()
    }

    /// Its facts, as an event of family `F`.
    ///
    /// # Errors
    /// As [`decode_facts`].
    pub fn facts<F: Family>(&self) -> Result<F, CodecError> {
        decode_facts(&self.event_type, self.schema, &self.facts)
    }

    /// Its content, as of family `F`; none where there is none or it was erased.
    ///
    /// # Errors
    /// As [`decode_content`].
    pub fn content<F: Family>(&self) -> Result<Option<F::Content>, CodecError> {
        self.content.as_deref().map(|bytes| decode_content::<F>(&self.event_type, self.schema, bytes)).transpose()
    }

    /// Whether it had content that has been erased.
    #[must_use]
    pub fn erased(&self) -> bool {
        self.commitment.is_some() && self.content.is_none()
    }
}
