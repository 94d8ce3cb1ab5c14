//! People and tokens: links, sessions, and who a request comes from.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use midwatch_commands::{
    bot::Bot,
    user::{User, UserCommand},
};
use midwatch_events::{
    Actor, StreamName,
    id::{BotId, TokenId, UserId},
    key::Digest,
    user::Access,
};
use midwatch_log::Pending;

use crate::{
    Done, Engine, EngineError, Origin, Request,
    deployment::first_admin,
    handle::{handle, handle_for},
    secrets::hashed,
};

/// How long a one-time link is good, in seconds.
pub const LINK_S: i64 = 3_600;
/// How long a session is good, in seconds.
pub const SESSION_S: i64 = 14 * 86_400;

/// A session that was opened. The only time its secret is known; it is never shown by itself.
#[derive(Clone)]
pub struct Session {
    /// Who signed in.
    pub user: UserId,
    /// The cookie's value.
    pub secret: String,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Who a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The actor of what they do.
    pub actor: Actor,
    /// What they may do.
    pub role: Access,
    /// The session they came with; none for a token.
    pub session: Option<Digest>,
}

/// An agent that runs elsewhere, by its token. It is nobody the API knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The token it came with.
    pub token: TokenId,
    /// Whose tools it uses.
    pub bot: BotId,
    /// To whom its runs belong.
    pub owner: UserId,
}

/// What a token's secret begins with: one for the API.
const API_PREFIX: &str = "mwt_";
/// One for an agent.
const AGENT_PREFIX: &str = "mwb_";

impl Engine {
    /// Makes a one-time sign-in link's secret for a person; the first admin, if nobody is named.
    ///
    /// # Errors
    /// There is no such person, or a fault.
    pub fn issue_link<'a>(
        &'a self,
        user: Option<UserId>,
        origin: &'a Origin,
    ) -> Pending<'a, Done<String>, EngineError> {
        Box::pin(async move {
            let user = user.unwrap_or_else(|| first_admin(self.namespace()));
            // The person's id in front: a link is looked up in one stream, without any projection.
            let secret = format!("{}.{}", user.uuid().simple(), URL_SAFE_NO_PAD.encode(self.world().random::<32>()));
            let expires = self.log().store_time().await?.plus_s(LINK_S);
            let link = hashed(&secret);
            let done = handle::<User>(self, &StreamName::user(user), origin, None, |_| {
                Ok(UserCommand::IssueLink { link, expires })
            })
            .await?;
            Ok(done.with(secret))
        })
    }

    /// Uses a link up.
    ///
    /// # Errors
    /// [`midwatch_commands::Refusal::LinkSpent`] for any link that opens nothing, or a fault.
    pub fn sign_in<'a>(&'a self, link: &'a str) -> Pending<'a, Done<Session>, EngineError> {
        Box::pin(async move {
            let user = owner_of(link).ok_or(midwatch_commands::Refusal::LinkSpent)?;
            let secret = format!("{}.{}", user.uuid().simple(), URL_SAFE_NO_PAD.encode(self.world().random::<32>()));
            let now = self.log().store_time().await?;
            let (link, session) = (hashed(link), hashed(&secret));
            let done = handle::<User>(self, &StreamName::user(user), &Origin::of(Actor::User(user)), None, |_| {
                Ok(UserCommand::SignIn { link, session, now, expires: now.plus_s(SESSION_S) })
            })
            .await?;
            Ok(done.with(Session { user, secret }))
        })
    }

    /// Ends a session.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn sign_out(&self, user: UserId, session: Digest) -> Pending<'_, Done<()>, EngineError> {
        Box::pin(async move {
            let origin = Origin::of(Actor::User(user));
            handle::<User>(self, &StreamName::user(user), &origin, None, |_| Ok(UserCommand::SignOut { session })).await
        })
    }

    /// Lets a person in.
    ///
    /// # Errors
    /// A bad name, or a fault.
    pub fn invite<'a>(
        &'a self,
        name: &'a str,
        role: Access,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<UserId>, EngineError> {
        Box::pin(async move {
            let user = self.new_id(request);
            let done = handle::<User>(self, &StreamName::user(user), origin, request, |_| {
                Ok(UserCommand::Invite { user, name: name.to_owned(), role })
            })
            .await?;
            Ok(done.with(user))
        })
    }

    /// Lets a person do nothing any more: their sessions and links open nothing, and their routines are suspended. The
    /// first admin stays: what the command line makes belongs to them.
    ///
    /// # Errors
    /// There is no such person, it is the first admin, or a fault.
    pub fn revoke_user<'a>(
        &'a self,
        user: UserId,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            if user == first_admin(self.namespace()) {
                let sentence = "this is the first admin, whose rights the command line has; it stays".to_owned();
                return Err(midwatch_commands::Refusal::Invalid(sentence).into());
            }
            handle::<User>(self, &StreamName::user(user), origin, request, |_| Ok(UserCommand::Revoke)).await
        })
    }

    /// Makes an API token; the answer is the only time its secret is known.
    ///
    /// # Errors
    /// A bad name, or a fault.
    pub fn issue_token<'a>(
        &'a self,
        name: &'a str,
        role: Access,
        origin: &'a Origin,
    ) -> Pending<'a, Done<(TokenId, String)>, EngineError> {
        Box::pin(async move {
            let token = TokenId::new(self.world().uuid());
            let secret = self.token_secret(API_PREFIX, token);
            let hash = hashed(&secret);
            let done = handle::<User>(self, &StreamName::token(token), origin, None, |_| {
                Ok(UserCommand::IssueToken { token, name: name.to_owned(), role, secret: hash })
            })
            .await?;
            Ok(done.with((token, secret)))
        })
    }

    /// Makes a token with which an agent that runs elsewhere uses a Bot's tools; the answer is the only time its secret
    /// is known. Its runs belong to `owner`, or to the first admin.
    ///
    /// # Errors
    /// A bad name, no such Bot or person, or one that is gone; or a fault.
    pub fn issue_bot_token<'a>(
        &'a self,
        name: &'a str,
        bot: BotId,
        owner: Option<UserId>,
        origin: &'a Origin,
    ) -> Pending<'a, Done<(TokenId, String)>, EngineError> {
        Box::pin(async move {
            let owner = self.owner(owner).await?;
            self.load::<Bot>(&StreamName::bot(bot)).await?.state.workable()?;
            let token = TokenId::new(self.world().uuid());
            let secret = self.token_secret(AGENT_PREFIX, token);
            let hash = hashed(&secret);
            let who = (Some(bot), Some(owner));
            let done = handle_for::<User>(self, who, &StreamName::token(token), origin, None, |_| {
                Ok(UserCommand::IssueBotToken { token, name: name.to_owned(), bot, owner, secret: hash })
            })
            .await?;
            Ok(done.with((token, secret)))
        })
    }

    fn token_secret(&self, prefix: &str, token: TokenId) -> String {
        format!("{prefix}{}_{}", token.uuid().simple(), URL_SAFE_NO_PAD.encode(self.world().random::<32>()))
    }

    /// Closes a token for good.
    ///
    /// # Errors
    /// There is no such token, or a fault.
    pub fn revoke_token<'a>(&'a self, token: TokenId, origin: &'a Origin) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            handle::<User>(self, &StreamName::token(token), origin, None, |_| Ok(UserCommand::RevokeToken)).await
        })
    }

    /// Who a session's cookie belongs to; none for any cookie that opens nothing.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn caller_by_session<'a>(&'a self, cookie: &'a str) -> Pending<'a, Option<Caller>, EngineError> {
        Box::pin(async move {
            let Some(user) = owner_of(cookie) else { return Ok(None) };
            let session = hashed(cookie);
            let state = self.load::<User>(&StreamName::user(user)).await?.state;
            // The clock that set the end judges it: a machine whose own clock is wrong keeps nobody in or out.
            let now = self.log().store_time().await?;
            let good = state.sessions.get(&session).is_some_and(|expires| now < *expires);
            Ok(state.role.filter(|_| good).map(|role| Caller {
                actor: Actor::User(user),
                role,
                session: Some(session),
            }))
        })
    }

    /// Who an API token belongs to; none for any token that opens nothing.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn caller_by_token<'a>(&'a self, secret: &'a str) -> Pending<'a, Option<Caller>, EngineError> {
        Box::pin(async move {
            let Some((token, state)) = self.token(API_PREFIX, secret).await? else { return Ok(None) };
            Ok(state.role.map(|role| Caller { actor: Actor::Token(token), role, session: None }))
        })
    }

    /// Which agent a token belongs to; none for any token that opens nothing, and for those of the API.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn agent_by_token<'a>(&'a self, secret: &'a str) -> Pending<'a, Option<Agent>, EngineError> {
        Box::pin(async move {
            let Some((token, state)) = self.token(AGENT_PREFIX, secret).await? else { return Ok(None) };
            Ok(state.agent.map(|(bot, owner)| Agent { token, bot, owner }))
        })
    }

    /// A token that opens something, by its secret.
    async fn token(&self, prefix: &str, secret: &str) -> Result<Option<(TokenId, User)>, EngineError> {
        let Some(token) = secret.strip_prefix(prefix).and_then(|rest| rest.get(..32)) else { return Ok(None) };
        let Ok(token) = token.parse::<TokenId>() else { return Ok(None) };
        let state = self.load::<User>(&StreamName::token(token)).await?.state;
        let good = !state.revoked && state.secret == Some(hashed(secret));
        Ok(good.then_some((token, state)))
    }
}

/// The person whose id stands in front of a link's or session's secret.
fn owner_of(secret: &str) -> Option<UserId> {
    let (id, rest) = secret.split_once('.')?;
    (id.len() == 32 && rest.len() == 43).then_some(())?;
    id.parse().ok()
}
