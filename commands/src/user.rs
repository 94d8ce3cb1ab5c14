//! People and tokens: who may come in, and how.

use std::collections::BTreeMap;

use midwatch_events::{
    Micros, New, StreamName,
    id::{BotId, TokenId, UserId},
    key::Digest,
    user::{Access, EvidencePart, UserContent, UserEvent},
};
use serde::{Deserialize, Serialize};

use crate::{Decider, Refusal, refusal::named};

/// A person or a token, as the streams `user-{id}` or `token-{id}` tell it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// The person, once invited.
    pub id: Option<UserId>,
    /// The token, once issued.
    pub token: Option<TokenId>,
    /// What they may do.
    pub role: Option<Access>,
    /// Links that were not used, with the instant they expire.
    pub links: BTreeMap<Digest, Micros>,
    /// Sessions that were not signed out, with the instant they expire.
    pub sessions: BTreeMap<Digest, Micros>,
    /// SHA-256 of the token's secret.
    pub secret: Option<Digest>,
    /// The Bot whose tools the token opens, and to whom its agent's runs belong.
    #[serde(default)]
    pub agent: Option<(BotId, UserId)>,
    /// The token opens nothing any more.
    pub revoked: bool,
    /// Whether they may read what senders sent and Bots were told, where that was said; else their role says it.
    pub evidence: Option<bool>,
}

/// What can be asked about a person or a token.
#[derive(Clone, Debug)]
pub enum UserCommand {
    /// Let somebody in.
    Invite {
        /// The person.
        user: UserId,
        /// Their name.
        name: String,
        /// What they may do.
        role: Access,
    },
    /// Make a one-time link.
    IssueLink {
        /// SHA-256 of its secret.
        link: Digest,
        /// It cannot be used at or after this instant.
        expires: Micros,
    },
    /// Use a link up.
    SignIn {
        /// SHA-256 of its secret.
        link: Digest,
        /// SHA-256 of the new session's secret.
        session: Digest,
        /// Now.
        now: Micros,
        /// The session ends then.
        expires: Micros,
    },
    /// End a session.
    SignOut {
        /// SHA-256 of its secret.
        session: Digest,
    },
    /// Make an API token.
    IssueToken {
        /// The token.
        token: TokenId,
        /// What it is for.
        name: String,
        /// What it may do.
        role: Access,
        /// SHA-256 of its secret.
        secret: Digest,
    },
    /// Make a token for an agent that runs elsewhere.
    IssueBotToken {
        /// The token.
        token: TokenId,
        /// What it is for.
        name: String,
        /// Whose tools it opens.
        bot: BotId,
        /// To whom its agent's runs belong.
        owner: UserId,
        /// SHA-256 of its secret.
        secret: Digest,
    },
    /// Close a token.
    RevokeToken,
    /// Let a person do nothing any more.
    Revoke,
    /// Let them read what senders sent and Bots were told, or not.
    AllowEvidence(bool),
    /// They read some of it.
    ReadEvidence {
        /// The name of the stream whose content it is.
        subject: StreamName,
        /// What of it.
        part: EvidencePart,
    },
}

impl User {
    /// Whether they may read what senders sent and what Bots were told: an admin, unless it was withdrawn; anybody else
    /// to whom it was granted.
    #[must_use]
    pub fn reads_evidence(&self) -> bool {
        self.role.is_some_and(|role| self.evidence.unwrap_or(role == Access::Admin))
    }
}

impl Decider for User {
    type Event = UserEvent;
    type Command = UserCommand;

    const FOLD_VERSION: u32 = 4;

    fn decide(&self, command: UserCommand) -> Result<Vec<New<UserEvent>>, Refusal> {
        Ok(match command {
            UserCommand::Invite { user, name, role } => {
                if self.id.is_some() {
                    return Err(Refusal::Exists("person"));
                }
                named("person", &name)?;
                vec![New::with(UserEvent::Invited { user, role }, UserContent::Invited { name })]
            }
            UserCommand::IssueLink { link, expires } => {
                self.id.filter(|_| !self.revoked).ok_or(Refusal::NotFound("person"))?;
                vec![UserEvent::LinkIssued { link, expires_us: expires }.into()]
            }
            UserCommand::SignIn { link, session, now, expires } => {
                if self.links.get(&link).is_none_or(|until| now >= *until) {
                    return Err(Refusal::LinkSpent);
                }
                vec![UserEvent::SignedIn { link, session, expires_us: expires }.into()]
            }
            UserCommand::SignOut { session } => {
                let known = self.sessions.contains_key(&session);
                if known { vec![UserEvent::SignedOut { session }.into()] } else { vec![] }
            }
            UserCommand::IssueToken { token, name, role, secret } => {
                if self.token.is_some() {
                    return Err(Refusal::Exists("token"));
                }
                named("token", &name)?;
                let facts = UserEvent::TokenIssued { token, role, secret };
                vec![New::with(facts, UserContent::TokenIssued { name })]
            }
            UserCommand::IssueBotToken { token, name, bot, owner, secret } => {
                if self.token.is_some() {
                    return Err(Refusal::Exists("token"));
                }
                named("token", &name)?;
                let facts = UserEvent::BotTokenIssued { token, bot, owner, secret };
                vec![New::with(facts, UserContent::BotTokenIssued { name })]
            }
            UserCommand::AllowEvidence(allowed) => {
                self.role.ok_or(Refusal::NotFound("person or token"))?;
                match (self.reads_evidence() == allowed, allowed) {
                    (true, _) => vec![],
                    (false, true) => vec![UserEvent::EvidenceGranted {}.into()],
                    (false, false) => vec![UserEvent::EvidenceWithdrawn {}.into()],
                }
            }
            UserCommand::ReadEvidence { subject, part } => {
                vec![UserEvent::EvidenceRead { subject: subject.to_string(), part }.into()]
            }
            UserCommand::RevokeToken => {
                let token = self.token.ok_or(Refusal::NotFound("token"))?;
                if self.revoked { vec![] } else { vec![UserEvent::TokenRevoked { token }.into()] }
            }
            UserCommand::Revoke => {
                let user = self.id.ok_or(Refusal::NotFound("person"))?;
                if self.revoked { vec![] } else { vec![UserEvent::Revoked { user }.into()] }
            }
        })
    }

    fn evolve(&mut self, event: &UserEvent, _at: Micros) {
        match event {
            UserEvent::Invited { user, role } => {
                self.id = Some(*user);
                self.role = Some(*role);
            }
            UserEvent::LinkIssued { link, expires_us } => {
                self.links.insert(*link, *expires_us);
            }
            UserEvent::SignedIn { link, session, expires_us } => {
                self.links.remove(link);
                self.sessions.insert(*session, *expires_us);
            }
            UserEvent::SignedOut { session } => {
                self.sessions.remove(session);
            }
            UserEvent::TokenIssued { token, role, secret } => {
                self.token = Some(*token);
                self.secret = Some(*secret);
                self.role = Some(*role);
            }
            UserEvent::BotTokenIssued { token, bot, owner, secret } => {
                self.token = Some(*token);
                self.secret = Some(*secret);
                self.agent = Some((*bot, *owner));
            }
            UserEvent::TokenRevoked { .. } => self.revoked = true,
            UserEvent::Revoked { .. } => {
                self.revoked = true;
                self.role = None;
                self.links.clear();
                self.sessions.clear();
            }
            UserEvent::EvidenceGranted {} => self.evidence = Some(true),
            UserEvent::EvidenceWithdrawn {} => self.evidence = Some(false),
            // It is a record and no state: who reads twice may read twice.
            UserEvent::EvidenceRead { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_one_session_before_it_expires() {
        let mut user = User::default();
        let (link, session) = (Digest([1; 32]), Digest([2; 32]));
        let sign_in = |now| UserCommand::SignIn { link, session, now, expires: Micros(1_000) };
        let invited = UserEvent::Invited { user: UserId::new(uuid::Uuid::from_u128(1)), role: Access::Admin };
        user.evolve(&invited, Micros(0));
        assert_eq!(user.decide(sign_in(Micros(1))), Err(Refusal::LinkSpent));
        user.evolve(&UserEvent::LinkIssued { link, expires_us: Micros(100) }, Micros(0));
        assert_eq!(user.decide(sign_in(Micros(100))), Err(Refusal::LinkSpent));
        for event in user.decide(sign_in(Micros(99))).unwrap() {
            user.evolve(&event.facts, Micros(99));
        }
        assert_eq!(user.decide(sign_in(Micros(99))), Err(Refusal::LinkSpent));
        assert!(user.sessions.contains_key(&session));
    }

    #[test]
    fn a_revoked_person_opens_nothing_any_more() {
        let mut user = User::default();
        let (link, session) = (Digest([1; 32]), Digest([2; 32]));
        assert_eq!(user.decide(UserCommand::Revoke), Err(Refusal::NotFound("person")));
        let id = UserId::new(uuid::Uuid::from_u128(1));
        for event in [
            UserEvent::Invited { user: id, role: Access::Member },
            UserEvent::SignedIn { link, session, expires_us: Micros(100) },
            UserEvent::LinkIssued { link, expires_us: Micros(100) },
        ] {
            user.evolve(&event, Micros(0));
        }
        assert_eq!(user.decide(UserCommand::Revoke).unwrap()[0].facts, UserEvent::Revoked { user: id });
        user.evolve(&UserEvent::Revoked { user: id }, Micros(1));
        assert_eq!((user.role, user.sessions.len()), (None, 0));
        assert_eq!(user.decide(UserCommand::Revoke), Ok(vec![]));
        let sign_in = UserCommand::SignIn { link, session, now: Micros(2), expires: Micros(100) };
        assert_eq!(user.decide(sign_in), Err(Refusal::LinkSpent));
        let another = UserCommand::IssueLink { link, expires: Micros(100) };
        assert_eq!(user.decide(another), Err(Refusal::NotFound("person")));
    }
}
