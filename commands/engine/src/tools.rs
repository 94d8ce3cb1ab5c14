//! MCP servers, and which of their tools a person has looked at.

use midwatch_commands::boundary::{ToolServers, ToolsCommand};
use midwatch_events::StreamName;

use crate::{
    Done, Engine, EngineError, Origin, Request,
    handle::{Loaded, handle},
};

impl Engine {
    /// The MCP servers there are, and the version of their stream.
    ///
    /// # Errors
    /// A fault of the database.
    pub async fn tool_servers(&self) -> Result<Loaded<ToolServers>, EngineError> {
        self.load::<ToolServers>(&StreamName::tools()).await
    }

    /// Makes a server known or forgets it, accepts tools of it or drops them.
    ///
    /// # Errors
    /// There is no such server, or what is asked makes no sense, or a fault.
    pub async fn change_tools(
        &self,
        command: ToolsCommand,
        origin: &Origin,
        request: Option<&Request>,
    ) -> Result<Done<()>, EngineError> {
        handle::<ToolServers>(self, &StreamName::tools(), origin, request, |_| Ok(command.clone())).await
    }
}
