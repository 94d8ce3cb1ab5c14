//! Bots: streams `bot-{id}`.

use serde::{Deserialize, Serialize};

use crate::{
    codec::{Family, NoContent},
    id::BotId,
};

/// What can happen to a Bot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BotEvent {
    /// A Bot can be given work.
    #[serde(rename = "bot.registered/1")]
    Registered {
        /// The Bot.
        bot: BotId,
        /// Its name.
        name: String,
        /// Where its AG-UI agent listens; absent for a Bot that only replays recordings. Never carries credentials.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agui: Option<String>,
        /// The tools it is granted from the start.
        tools: Vec<String>,
    },
    /// It may use these tools too.
    #[serde(rename = "bot.tools_granted/1")]
    ToolsGranted {
        /// Names of tools.
        tools: Vec<String>,
    },
    /// It may not use these tools any more.
    #[serde(rename = "bot.tools_withdrawn/1")]
    ToolsWithdrawn {
        /// Names of tools.
        tools: Vec<String>,
    },
    /// It gets no more work. Its history stays.
    #[serde(rename = "bot.retired/1")]
    Retired {},
    /// Its endpoint does not answer; windows of its routines are held.
    #[serde(rename = "bot.unreachable/1")]
    Unreachable {},
    /// Its endpoint answers again.
    #[serde(rename = "bot.reachable/1")]
    Reachable {},
}

impl Family for BotEvent {
    type Content = NoContent;
    const NAME: &'static str = "bot";
}
