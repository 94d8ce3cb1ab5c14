//! Who may do what, and by which secret are they known?
//!
//! Keys: `user-<id>`, `token-<id>`, `session-<hash>` and `link-<hash>`, the hash in lower-case hex. One look-up by
//! `kind` and `hash` authenticates: each row says what its bearer may do. A revoked token stays, and says so.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    id::{BotId, TokenId, UserId},
    key::Digest,
    user::{Access, UserContent, UserEvent},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, of_stream, rfc3339};

/// The projection.
#[derive(Debug)]
pub enum People {}

/// A person, or something that stands for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeopleRow {
    /// A person.
    User(UserRow),
    /// An API token.
    Token(TokenRow),
    /// A signed-in person's session.
    Session(SessionRow),
    /// A one-time sign-in link.
    Link(LinkRow),
}

/// A person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserRow {
    /// The person.
    pub id: UserId,
    /// Their name; absent also when it was erased.
    pub name: Option<String>,
    /// What they may do.
    pub role: Access,
    /// When they were invited.
    #[serde(with = "rfc3339")]
    pub invited_at: Micros,
    /// Whether they may read what senders sent and Bots were told.
    pub reads_evidence: bool,
    /// When they last signed in.
    #[serde(with = "rfc3339::option")]
    pub signed_in_at: Option<Micros>,
    /// Since when they may do nothing any more.
    #[serde(default, with = "rfc3339::option")]
    pub revoked_at: Option<Micros>,
    /// The version of their stream.
    pub version: u64,
}

/// An API token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenRow {
    /// The token.
    pub id: TokenId,
    /// What it is for; absent also when that was erased.
    pub name: Option<String>,
    /// What it may do over the API; none for an agent's.
    pub role: Option<Access>,
    /// The Bot whose tools an agent uses with it.
    #[serde(default)]
    pub bot: Option<BotId>,
    /// SHA-256 of its secret.
    pub secret: Digest,
    /// Who made it.
    pub issued_by: String,
    /// When.
    #[serde(with = "rfc3339")]
    pub issued_at: Micros,
    /// Whether it may read what senders sent and Bots were told.
    pub reads_evidence: bool,
    /// Since when it opens nothing any more.
    #[serde(with = "rfc3339::option")]
    pub revoked_at: Option<Micros>,
}

/// A signed-in person's session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// SHA-256 of its secret.
    pub session: Digest,
    /// The person.
    pub user: UserId,
    /// What they may do.
    pub role: Access,
    /// When it began.
    #[serde(with = "rfc3339")]
    pub since: Micros,
    /// It is no session at or after this instant.
    #[serde(with = "rfc3339")]
    pub expires: Micros,
}

/// A one-time sign-in link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkRow {
    /// SHA-256 of its secret.
    pub link: Digest,
    /// Whom it signs in.
    pub user: UserId,
    /// It cannot be used at or after this instant.
    #[serde(with = "rfc3339")]
    pub expires: Micros,
    /// Whether it was used up.
    pub used: bool,
}

/// The key of a person's row.
#[must_use]
pub fn user_key(id: UserId) -> String {
    format!("user-{id}")
}

/// The key of a token's row.
#[must_use]
pub fn token_key(id: TokenId) -> String {
    format!("token-{id}")
}

/// The key of a session's row.
#[must_use]
pub fn session_key(session: Digest) -> String {
    format!("session-{session}")
}

/// The key of a link's row.
#[must_use]
pub fn link_key(link: Digest) -> String {
    format!("link-{link}")
}

impl Projection for People {
    type Row = PeopleRow;

    const TABLE: Table = Table {
        name: "people",
        version: 4,
        columns: &[("kind", Kind::Text), ("hash", Kind::Text), ("name", Kind::Text), ("expires", Kind::Int)],
        indexes: &[&["kind", "hash"], &["kind", "name"], &["kind", "expires"]],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::User(event, _) => touched(event, recorded),
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<PeopleRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::User(event, content) => user(rows, event, content.as_ref(), recorded),
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..) => {}
        }
    }

    fn cells(row: &PeopleRow) -> Vec<Cell> {
        let (kind, hash, name, expires) = match row {
            PeopleRow::User(row) => ("user", None, row.name.as_deref(), None),
            PeopleRow::Token(row) => ("token", Some(row.secret), row.name.as_deref(), None),
            PeopleRow::Session(row) => ("session", Some(row.session), None, Some(row.expires)),
            PeopleRow::Link(row) => ("link", Some(row.link), None, Some(row.expires)),
        };
        vec![Cell::text(kind), Cell::shown(hash), Cell::shown(name), Cell::at(expires)]
    }
}

fn touched(event: &UserEvent, recorded: &Recorded) -> Vec<String> {
    let own = of_stream(recorded).map(user_key).into_iter();
    match event {
        UserEvent::Invited { user, .. } => vec![user_key(*user)],
        UserEvent::LinkIssued { link, .. } => own.chain([link_key(*link)]).collect(),
        UserEvent::SignedIn { link, session, .. } => own.chain([link_key(*link), session_key(*session)]).collect(),
        UserEvent::SignedOut { session } => own.chain([session_key(*session)]).collect(),
        UserEvent::Revoked { user } => vec![user_key(*user)],
        UserEvent::TokenIssued { token, .. }
        | UserEvent::BotTokenIssued { token, .. }
        | UserEvent::TokenRevoked { token } => vec![token_key(*token)],
        // The stream is a person's or a token's, and its name is the row's key.
        UserEvent::EvidenceGranted {} | UserEvent::EvidenceWithdrawn {} => vec![recorded.stream.to_string()],
        UserEvent::EvidenceRead { .. } => Vec::new(),
    }
}

fn user(rows: &mut Rows<PeopleRow>, event: &UserEvent, content: Option<&UserContent>, recorded: &Recorded) {
    let at = recorded.recorded_at;
    let name = content.map(|content| match content {
        UserContent::Invited { name } | UserContent::TokenIssued { name } | UserContent::BotTokenIssued { name } => {
            name.clone()
        }
    });
    match event {
        UserEvent::Invited { user, role } => {
            let version = recorded.version;
            let row = UserRow {
                id: *user,
                name,
                role: *role,
                invited_at: at,
                signed_in_at: None,
                revoked_at: None,
                reads_evidence: *role == Access::Admin,
                version,
            };
            rows.put(&user_key(*user), PeopleRow::User(row));
        }
        UserEvent::TokenIssued { token, role, secret } => {
            let row = token_row(*token, name, *secret, recorded);
            let reads_evidence = *role == Access::Admin;
            let row = TokenRow { role: Some(*role), reads_evidence, ..row };
            rows.put(&token_key(*token), PeopleRow::Token(row));
        }
        UserEvent::BotTokenIssued { token, bot, secret, .. } => {
            let row = TokenRow { bot: Some(*bot), ..token_row(*token, name, *secret, recorded) };
            rows.put(&token_key(*token), PeopleRow::Token(row));
        }
        UserEvent::TokenRevoked { token } => rows.change(&token_key(*token), |row| {
            if let PeopleRow::Token(token) = row {
                token.revoked_at = Some(at);
            }
        }),
        UserEvent::Revoked { user } => rows.change(&user_key(*user), |row| {
            if let PeopleRow::User(person) = row {
                person.revoked_at = Some(at);
                person.version = recorded.version;
            }
        }),
        UserEvent::EvidenceGranted {} | UserEvent::EvidenceWithdrawn {} => {
            let allowed = *event == UserEvent::EvidenceGranted {};
            rows.change(&recorded.stream.to_string(), |row| match row {
                PeopleRow::User(user) => {
                    user.reads_evidence = allowed;
                    user.version = recorded.version;
                }
                PeopleRow::Token(token) => token.reads_evidence = allowed,
                PeopleRow::Session(_) | PeopleRow::Link(_) => {}
            });
        }
        UserEvent::EvidenceRead { .. } => {}
        UserEvent::LinkIssued { .. } | UserEvent::SignedIn { .. } | UserEvent::SignedOut { .. } => {
            if let Some(user) = of_stream(recorded) {
                of_person(rows, user, event, recorded);
            }
        }
    }
}

fn token_row(id: TokenId, name: Option<String>, secret: Digest, recorded: &Recorded) -> TokenRow {
    TokenRow {
        id,
        name,
        role: None,
        bot: None,
        secret,
        issued_by: recorded.actor.clone(),
        issued_at: recorded.recorded_at,
        reads_evidence: false,
        revoked_at: None,
    }
}

fn of_person(rows: &mut Rows<PeopleRow>, user: UserId, event: &UserEvent, recorded: &Recorded) {
    // Nobody signs in who was not invited.
    let Some(PeopleRow::User(person)) = rows.get(&user_key(user)) else { return };
    let role = person.role;
    let mut signed_in = None;
    match event {
        UserEvent::LinkIssued { link, expires_us } => {
            let row = LinkRow { link: *link, user, expires: *expires_us, used: false };
            rows.put(&link_key(*link), PeopleRow::Link(row));
        }
        UserEvent::SignedIn { link, session, expires_us } => {
            rows.change(&link_key(*link), |row| {
                if let PeopleRow::Link(link) = row {
                    link.used = true;
                }
            });
            let since = recorded.recorded_at;
            let row = SessionRow { session: *session, user, role, since, expires: *expires_us };
            rows.put(&session_key(*session), PeopleRow::Session(row));
            signed_in = Some(since);
        }
        UserEvent::SignedOut { session } => rows.remove(&session_key(*session)),
        UserEvent::Invited { .. }
        | UserEvent::TokenIssued { .. }
        | UserEvent::BotTokenIssued { .. }
        | UserEvent::TokenRevoked { .. }
        | UserEvent::Revoked { .. }
        | UserEvent::EvidenceGranted {}
        | UserEvent::EvidenceWithdrawn {}
        | UserEvent::EvidenceRead { .. } => {}
    }
    rows.change(&user_key(user), |row| {
        if let PeopleRow::User(person) = row {
            person.version = recorded.version;
            person.signed_in_at = signed_in.or(person.signed_in_at);
        }
    });
}
