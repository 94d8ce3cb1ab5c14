//! What stands behind work: the Bot that does it, and the person it belongs to.
//!
//! Whatever is made, woken or started for them rests on the versions at which they were seen: those are conditions of the
//! append. So a Bot that is retired at this very moment gets no work any more, whoever is quicker.

use midwatch_commands::{Decider, Refusal, bot::Bot, user::User};
use midwatch_events::{
    StreamName,
    id::{BotId, UserId},
    routine::SuspendCause,
};

use crate::{
    Engine, EngineError,
    deployment::first_admin,
    handle::{Loaded, Plan},
};

/// Bot and person behind some work; what it has of them.
pub(crate) type Who = (Option<BotId>, Option<UserId>);

/// What was seen of them.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    versions: Vec<(StreamName, u64)>,
    /// One of them is gone for good.
    pub(crate) gone: Option<SuspendCause>,
    /// The Bot's endpoint did not answer when it was last tried.
    pub(crate) unreachable: bool,
}

impl Behind {
    /// Makes what was seen a condition.
    pub(crate) fn condition(&self, plan: &mut Plan) {
        self.versions.iter().for_each(|(stream, version)| plan.condition(stream.clone(), *version));
    }
}

/// Why nothing can be started any more where the Bot or owner is gone.
pub(crate) fn gone_refusal(cause: SuspendCause) -> Refusal {
    if cause == SuspendCause::OwnerRevoked { Refusal::OwnerRevoked } else { Refusal::BotRetired }
}

impl Engine {
    /// What stands behind some work. Unless it has to be `fresh`, what is good by what this process knows is not read
    /// again: knowing too long breaks the condition, and costs a second look and nothing else.
    pub(crate) async fn behind(&self, (bot, owner): Who, fresh: bool) -> Result<Behind, EngineError> {
        let mut behind = Behind::default();
        if let Some(owner) = owner {
            let stream = StreamName::user(owner);
            let seen = self.seen_of::<User>(&stream, |user| !fresh && !user.revoked).await?;
            behind.gone = seen.state.revoked.then_some(SuspendCause::OwnerRevoked);
            behind.versions.push((stream, seen.version));
        }
        if let Some(bot) = bot {
            let stream = StreamName::bot(bot);
            let seen = self.seen_of::<Bot>(&stream, |bot| !fresh && !bot.retired && !bot.unreachable).await?;
            behind.gone = if seen.state.retired { Some(SuspendCause::BotRetired) } else { behind.gone };
            behind.unreachable = seen.state.unreachable;
            behind.versions.push((stream, seen.version));
        }
        Ok(behind)
    }

    async fn seen_of<D: Decider>(
        &self,
        stream: &StreamName,
        good: impl Fn(&D) -> bool,
    ) -> Result<Loaded<D>, EngineError> {
        match self.known::<D>(stream).filter(|known| good(&known.state)) {
            Some(known) => Ok(known),
            None => self.load::<D>(stream).await,
        }
    }

    /// The person something new belongs to: the one named, if there is such a person, else the first admin.
    pub(crate) async fn owner(&self, named: Option<UserId>) -> Result<UserId, EngineError> {
        let Some(user) = named else { return Ok(first_admin(self.namespace())) };
        let loaded = self.load::<User>(&StreamName::user(user)).await?;
        loaded.state.id.filter(|_| !loaded.state.revoked).ok_or_else(|| {
            Refusal::Invalid(format!("there is no person {user}; `midwatch user list` shows those there are")).into()
        })
    }
}
