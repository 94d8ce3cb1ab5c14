//! Bots: registering them and granting them tools.

use midwatch_commands::{
    Refusal,
    bot::{Bot, BotCommand},
};
use midwatch_events::{StreamName, id::BotId};

use crate::{Done, Engine, EngineError, Origin, Request, handle::handle};
use midwatch_log::Pending;

/// The tools a new Bot is granted.
pub const FIRST_TOOLS: [&str; 3] = ["computer_list_files", "computer_read_file", "computer_write_file"];

impl Engine {
    /// Makes a Bot known.
    ///
    /// # Errors
    /// A bad name or endpoint, or a fault.
    pub fn register_bot<'a>(
        &'a self,
        name: &'a str,
        agui: Option<&'a str>,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<BotId>, EngineError> {
        Box::pin(async move {
            let bot = self.new_id(request);
            let tools: Vec<String> = FIRST_TOOLS.iter().map(|&tool| tool.to_owned()).collect();
            let done = handle::<Bot>(self, &StreamName::bot(bot), origin, request, |_| {
                let (name, agui) = (name.to_owned(), agui.map(str::to_owned));
                Ok(BotCommand::Register { bot, name, agui, tools: tools.clone() })
            })
            .await?;
            Ok(done.with(bot))
        })
    }

    /// Changes which tools a Bot is granted, or retires it.
    ///
    /// # Errors
    /// There is no such Bot, or it is retired, or a fault.
    pub fn change_bot<'a>(
        &'a self,
        bot: BotId,
        origin: &'a Origin,
        request: Option<&'a Request>,
        command: BotCommand,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(
            async move { handle::<Bot>(self, &StreamName::bot(bot), origin, request, |_| Ok(command.clone())).await },
        )
    }

    /// A Bot that can be given work.
    ///
    /// # Errors
    /// There is no such Bot, or it is retired, or a fault.
    pub fn workable_bot(&self, bot: BotId) -> Pending<'_, Bot, EngineError> {
        Box::pin(async move {
            let loaded = self.load::<Bot>(&StreamName::bot(bot)).await?;
            match loaded.state.workable() {
                Ok(_) => Ok(loaded.state),
                Err(Refusal::NotFound(_)) => {
                    let sentence = format!("there is no Bot {bot}; `midwatch bot list` shows those there are");
                    Err(Refusal::Invalid(sentence).into())
                }
                Err(refusal) => Err(refusal.into()),
            }
        })
    }

    /// The id of a thing that a request makes: derived from the request, so that twice is once; else a new one.
    pub(crate) fn new_id<Of>(&self, request: Option<&Request>) -> midwatch_events::id::Id<Of> {
        match request {
            Some(request) => midwatch_events::id::Id::derived(self.namespace(), &request.key.hash),
            None => midwatch_events::id::Id::new(self.world().uuid()),
        }
    }
}

impl Done<()> {
    /// The same, with an answer.
    #[must_use]
    pub fn with<T>(self, value: T) -> Done<T> {
        Done { value, position: self.position, duplicate: self.duplicate }
    }
}
