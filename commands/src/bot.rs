//! Bots: who can be given work, and with which tools.

use std::collections::BTreeSet;

use midwatch_events::{Micros, New, bot::BotEvent, id::BotId};
use serde::{Deserialize, Serialize};

use crate::{Decider, Refusal, refusal::named};

/// A Bot as its stream tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bot {
    /// Its id, once registered.
    pub id: Option<BotId>,
    /// Its name.
    pub name: String,
    /// Where its AG-UI agent listens.
    pub agui: Option<String>,
    /// The tools it is granted.
    pub tools: BTreeSet<String>,
    /// It gets no more work.
    pub retired: bool,
    /// Its endpoint did not answer when it was last tried.
    pub unreachable: bool,
}

/// What can be asked of a Bot.
#[derive(Clone, Debug)]
pub enum BotCommand {
    /// Make it known.
    Register {
        /// Its id.
        bot: BotId,
        /// Its name.
        name: String,
        /// Where its AG-UI agent listens: an `http` or `https` URL without credentials.
        agui: Option<String>,
        /// The tools it is granted.
        tools: Vec<String>,
    },
    /// Grant it tools.
    Grant(Vec<String>),
    /// Withdraw tools from it.
    Withdraw(Vec<String>),
    /// Give it no more work.
    Retire,
    /// Its endpoint was tried; whether it answered.
    Tried(bool),
}

impl Bot {
    /// The Bot's id, if it can be given work.
    ///
    /// # Errors
    /// Not registered, or retired.
    pub fn workable(&self) -> Result<BotId, Refusal> {
        match self.id {
            None => Err(Refusal::NotFound("Bot")),
            Some(_) if self.retired => Err(Refusal::BotRetired),
            Some(id) => Ok(id),
        }
    }
}

/// An endpoint has a scheme we speak and carries no secret into the ledger.
fn endpoint(url: &str) -> Result<(), Refusal> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if rest.is_none() || authority.is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Refusal::Invalid(format!("`{url}` is no AG-UI endpoint; give an http:// or https:// URL")));
    }
    if authority.contains('@') {
        return Err(Refusal::Invalid("an endpoint must not carry a user name or password".to_owned()));
    }
    Ok(())
}

impl Decider for Bot {
    type Event = BotEvent;
    type Command = BotCommand;

    const FOLD_VERSION: u32 = 2;

    fn decide(&self, command: BotCommand) -> Result<Vec<New<BotEvent>>, Refusal> {
        Ok(match command {
            BotCommand::Register { bot, name, agui, tools } => {
                if self.id.is_some() {
                    return Err(Refusal::Exists("Bot"));
                }
                named("Bot", &name)?;
                agui.as_deref().map(endpoint).transpose()?;
                vec![BotEvent::Registered { bot, name, agui, tools }.into()]
            }
            BotCommand::Grant(tools) => {
                self.workable()?;
                let new: Vec<_> = tools.into_iter().filter(|tool| !self.tools.contains(tool)).collect();
                if new.is_empty() { vec![] } else { vec![BotEvent::ToolsGranted { tools: new }.into()] }
            }
            BotCommand::Withdraw(tools) => {
                self.workable()?;
                let gone: Vec<_> = tools.into_iter().filter(|tool| self.tools.contains(tool)).collect();
                if gone.is_empty() { vec![] } else { vec![BotEvent::ToolsWithdrawn { tools: gone }.into()] }
            }
            BotCommand::Retire => {
                self.workable()?;
                vec![BotEvent::Retired {}.into()]
            }
            BotCommand::Tried(answered) => match (self.workable().is_ok(), answered) {
                (true, false) if !self.unreachable => vec![BotEvent::Unreachable {}.into()],
                (true, true) if self.unreachable => vec![BotEvent::Reachable {}.into()],
                (true | false, _) => vec![],
            },
        })
    }

    fn evolve(&mut self, event: &BotEvent, _at: Micros) {
        match event {
            BotEvent::Registered { bot, name, agui, tools } => {
                self.id = Some(*bot);
                self.name.clone_from(name);
                self.agui.clone_from(agui);
                self.tools = tools.iter().cloned().collect();
            }
            BotEvent::ToolsGranted { tools } => self.tools.extend(tools.iter().cloned()),
            BotEvent::ToolsWithdrawn { tools } => tools.iter().for_each(|tool| {
                self.tools.remove(tool);
            }),
            BotEvent::Retired {} => self.retired = true,
            BotEvent::Unreachable {} => self.unreachable = true,
            BotEvent::Reachable {} => self.unreachable = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(agui: Option<&str>) -> Result<Vec<New<BotEvent>>, Refusal> {
        Bot::default().decide(BotCommand::Register {
            bot: BotId::new(uuid::Uuid::from_u128(1)),
            name: "ops".to_owned(),
            agui: agui.map(str::to_owned),
            tools: vec![],
        })
    }

    #[test]
    fn endpoints_are_urls_without_credentials() {
        assert!(register(None).is_ok());
        assert!(register(Some("https://bots.example/agent")).is_ok());
        for bad in ["", "bots.example", "ftp://x/", "http://", "http://u:p@x/", "http://x /", "https:///path"] {
            assert!(matches!(register(Some(bad)), Err(Refusal::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn whether_it_answers_is_said_when_that_changes() {
        let mut bot = Bot::default();
        assert_eq!(bot.decide(BotCommand::Tried(false)), Ok(vec![]));
        for event in register(None).unwrap() {
            bot.evolve(&event.facts, Micros(0));
        }
        assert_eq!(bot.decide(BotCommand::Tried(true)), Ok(vec![]));
        assert_eq!(bot.decide(BotCommand::Tried(false)), Ok(vec![BotEvent::Unreachable {}.into()]));
        bot.evolve(&BotEvent::Unreachable {}, Micros(1));
        assert_eq!(bot.decide(BotCommand::Tried(false)), Ok(vec![]));
        assert_eq!(bot.decide(BotCommand::Tried(true)), Ok(vec![BotEvent::Reachable {}.into()]));
        bot.evolve(&BotEvent::Reachable {}, Micros(2));
        assert!(!bot.unreachable);
    }

    #[test]
    fn a_retired_bot_gets_no_work() {
        let mut bot = Bot::default();
        assert_eq!(bot.workable(), Err(Refusal::NotFound("Bot")));
        for event in register(None).unwrap() {
            bot.evolve(&event.facts, Micros(0));
        }
        assert!(bot.workable().is_ok());
        bot.evolve(&BotEvent::Retired {}, Micros(1));
        assert_eq!(bot.workable(), Err(Refusal::BotRetired));
        assert_eq!(bot.decide(BotCommand::Retire), Err(Refusal::BotRetired));
    }
}
