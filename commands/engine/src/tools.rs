//! MCP servers, and which of their tools a person has looked at.

use midwatch_commands::boundary::{ToolServers, ToolsCommand};
use midwatch_events::StreamName;

use crate::{
    Done, Engine, EngineError, Origin, Request,
    handle::{Loaded, handle},
};
use midwatch_log::Pending;

impl Engine {
    /// The MCP servers there are, and the version of their stream.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn tool_servers(&self) -> Pending<'_, Loaded<ToolServers>, EngineError> {
        Box::pin(async move { self.load::<ToolServers>(&StreamName::tools()).await })
    }

    /// Makes a server known or forgets it, accepts tools of it or drops them.
    ///
    /// # Errors
    /// There is no such server, or what is asked makes no sense, or a fault.
    pub fn change_tools<'a>(
        &'a self,
        command: ToolsCommand,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            handle::<ToolServers>(self, &StreamName::tools(), origin, request, |_| Ok(command.clone())).await
        })
    }
}
