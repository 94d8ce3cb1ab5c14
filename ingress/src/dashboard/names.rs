//! The names of what rows only know by id.

use std::collections::BTreeMap;

use midwatch_engine::{Engine, EngineError, projector};
use midwatch_events::{
    Actor,
    id::{BotId, RoutineId, TriggerId, UserId},
};
use midwatch_projections::{
    bots::Bots,
    routines_list::RoutinesList,
    triggers::Triggers,
    users::{People, PeopleRow, user_key},
};

use super::text::{Shown, short_id};
use crate::auth::Caller;

/// Names looked up for one page, each once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bots: BTreeMap<BotId, Shown>,
    routines: BTreeMap<RoutineId, Shown>,
    triggers: BTreeMap<TriggerId, Shown>,
}

impl Names {
    /// A Bot's name, or the end of its id where it has none yet.
    pub(crate) async fn bot(&mut self, engine: &Engine, id: BotId) -> Result<Shown, EngineError> {
        if let Some(name) = self.bots.get(&id) {
            return Ok(name.clone());
        }
        let row = projector::get::<Bots>(engine, &id.to_string()).await?;
        let name = row.map_or_else(|| Shown::line(&short_id(id)), |row| Shown::line(&row.name));
        self.bots.insert(id, name.clone());
        Ok(name)
    }

    /// The same for a routine.
    pub(crate) async fn routine(&mut self, engine: &Engine, id: RoutineId) -> Result<Shown, EngineError> {
        if let Some(name) = self.routines.get(&id) {
            return Ok(name.clone());
        }
        let row = projector::get::<RoutinesList>(engine, &id.to_string()).await?;
        let name = row.map_or_else(|| Shown::line(&short_id(id)), |row| Shown::line(&row.name));
        self.routines.insert(id, name.clone());
        Ok(name)
    }

    /// The same for a trigger.
    pub(crate) async fn trigger(&mut self, engine: &Engine, id: TriggerId) -> Result<Shown, EngineError> {
        if let Some(name) = self.triggers.get(&id) {
            return Ok(name.clone());
        }
        let row = projector::get::<Triggers>(engine, &id.to_string()).await?;
        let name = row.map_or_else(|| Shown::line(&short_id(id)), |row| Shown::line(&row.name));
        self.triggers.insert(id, name.clone());
        Ok(name)
    }
}

/// A person's name; the end of their id where it was erased.
pub(crate) async fn person(engine: &Engine, id: UserId) -> Result<Shown, EngineError> {
    let row = projector::get::<People>(engine, &user_key(id)).await?;
    let name = match row {
        Some(PeopleRow::User(user)) => user.name,
        Some(PeopleRow::Token(_) | PeopleRow::Session(_) | PeopleRow::Link(_)) | None => None,
    };
    Ok(name.map_or_else(|| Shown::line(&format!("person …{}", short_id(id))), |name| Shown::line(&name)))
}

/// Who is signed in.
pub(crate) async fn caller(engine: &Engine, caller: &Caller) -> Result<Shown, EngineError> {
    match caller.user() {
        Some(user) => person(engine, user).await,
        None => Ok(Shown::line(&caller.actor.to_string())),
    }
}

/// Who did something, for people.
pub(crate) async fn actor(engine: &Engine, actor: &str) -> Result<Shown, EngineError> {
    Ok(match actor.parse::<Actor>() {
        Ok(Actor::User(user)) => person(engine, user).await?,
        Ok(Actor::Token(id)) => Shown::line(&format!("API token …{}", short_id(id))),
        Ok(Actor::Mcp(id)) => Shown::line(&format!("agent with token …{}", short_id(id))),
        Ok(Actor::Cli(uid)) => Shown::line(&format!("command line, uid {uid}")),
        Ok(Actor::Trigger(_)) => Shown::line("a sender"),
        Ok(Actor::Clock) => Shown::line("the clock"),
        Ok(Actor::Bot(_)) => Shown::line("the Bot"),
        Ok(Actor::Engine) => Shown::line("the engine"),
        Err(_) => Shown::line(actor),
    })
}
