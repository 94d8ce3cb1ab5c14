//! The boundary: stream `boundary`. The version of a published boundary is its version in this stream. And what lies
//! beyond it: stream `tools`, the MCP servers whose tools Bots may be granted.

use serde::{Deserialize, Serialize};

use crate::codec::Family;

/// What can happen to the boundary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BoundaryEvent {
    /// From here on, every call is judged by these rules.
    #[serde(rename = "boundary.published/1")]
    Published {
        /// The whole document, as JSON text.
        document: String,
    },
    /// An MCP server is known: its tools can be looked at.
    #[serde(rename = "boundary.tool_server_added/1")]
    ToolServerAdded {
        /// Its name, which is a part of the names of its tools.
        server: String,
        /// How it is reached, as JSON text. What it needs to know is sealed under the deployment's key.
        place: String,
    },
    /// An MCP server is not known any more, and none of its tools can be used.
    #[serde(rename = "boundary.tool_server_removed/1")]
    ToolServerRemoved {
        /// Its name.
        server: String,
    },
    /// A person looked at a tool's definition: the tool can be granted and used as long as it is defined so.
    #[serde(rename = "boundary.tool_accepted/1")]
    ToolAccepted {
        /// The server's name.
        server: String,
        /// The tool's name there.
        tool: String,
        /// Its name, description, schemas and annotations, as canonical JSON text.
        definition: String,
        /// The person says that it only reads.
        reads: bool,
    },
    /// A tool is not accepted any more.
    #[serde(rename = "boundary.tool_dropped/1")]
    ToolDropped {
        /// The server's name.
        server: String,
        /// The tool's name there.
        tool: String,
    },
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BoundaryContent {
    /// Beside [`BoundaryEvent::Published`].
    #[serde(rename = "boundary.published/1")]
    Published {
        /// Why it was published, in its author's words.
        note: String,
    },
}

impl Family for BoundaryEvent {
    type Content = BoundaryContent;
    const NAME: &'static str = "boundary";
}
