//! Which MCP servers there are, and which of their tools a person has looked at.

use std::collections::BTreeMap;

use midwatch_events::{Micros, New, boundary::BoundaryEvent};
use serde::{Deserialize, Serialize};

use crate::{Decider, Refusal};

/// The longest name of a server, in characters. Models allow 64 for the name of a tool, which holds it.
const NAME_MAX: usize = 24;
/// The longest name of a tool, in characters.
const TOOL_MAX: usize = 64;
/// The longest definition of a tool, in bytes: an event has a limit.
const DEFINITION_BYTES_MAX: usize = 32 << 10;
/// The longest description of a place, in bytes.
const PLACE_BYTES_MAX: usize = 16 << 10;
/// At most so many servers, and so many accepted tools of one.
const SERVERS_MAX: usize = 64;
const TOOLS_MAX: usize = 512;

/// The MCP servers, as the stream `tools` tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolServers {
    /// By their names.
    pub servers: BTreeMap<String, Server>,
}

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// How it is reached, as JSON text.
    pub place: String,
    /// What a person has looked at, by the tools' names there.
    pub tools: BTreeMap<String, Accepted>,
}

/// A tool that a person has looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its definition then, as canonical JSON text.
    pub definition: String,
    /// The person says that it only reads.
    pub reads: bool,
}

/// What can be asked of it.
#[derive(Clone, Debug)]
pub enum ToolsCommand {
    /// Make a server known.
    Add {
        /// Its name.
        server: String,
        /// How it is reached, as JSON text.
        place: String,
    },
    /// Forget a server.
    Remove {
        /// Its name.
        server: String,
    },
    /// Accept tools as they are defined now.
    Accept {
        /// The server.
        server: String,
        /// The tools by name.
        tools: Vec<(String, Accepted)>,
    },
    /// Accept tools no more.
    Drop {
        /// The server.
        server: String,
        /// Their names.
        tools: Vec<String>,
    },
}

/// The names of servers are a part of what models call.
fn server_name(name: &str) -> Result<(), Refusal> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(fine) {
        return Ok(());
    }
    let sentence = format!("a server's name is 1 to {NAME_MAX} of a to z, 0 to 9 and `-`");
    Err(Refusal::Invalid(sentence))
}

fn acceptable(name: &str, accepted: &Accepted) -> Result<(), Refusal> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !(1..=TOOL_MAX).contains(&name.len()) || !name.chars().all(fine) {
        let sentence = "a tool whose name is not 1 to 64 of a to z, A to Z, 0 to 9, `-`, `_` and `.` cannot be used";
        return Err(Refusal::Invalid(sentence.to_owned()));
    }
    if accepted.definition.len() > DEFINITION_BYTES_MAX {
        let sentence = format!("the definition of `{name}` has more than {DEFINITION_BYTES_MAX} bytes");
        return Err(Refusal::Invalid(sentence));
    }
    Ok(())
}

impl ToolServers {
    fn server(&self, name: &str) -> Result<&Server, Refusal> {
        self.servers.get(name).ok_or_else(|| {
            Refusal::Invalid(format!("there is no MCP server `{name}`; `midwatch mcp list` shows those there are"))
        })
    }
}

impl Decider for ToolServers {
    type Event = BoundaryEvent;
    type Command = ToolsCommand;

    const FOLD_VERSION: u32 = 1;

    fn decide(&self, command: ToolsCommand) -> Result<Vec<New<BoundaryEvent>>, Refusal> {
        Ok(match command {
            ToolsCommand::Add { server, place } => {
                server_name(&server)?;
                if self.servers.contains_key(&server) {
                    return Err(Refusal::Exists("MCP server"));
                }
                if self.servers.len() >= SERVERS_MAX {
                    return Err(Refusal::Invalid(format!("there are {SERVERS_MAX} MCP servers, which is the most")));
                }
                if place.len() > PLACE_BYTES_MAX {
                    return Err(Refusal::Invalid("how the server is reached takes too many words".to_owned()));
                }
                vec![BoundaryEvent::ToolServerAdded { server, place }.into()]
            }
            ToolsCommand::Remove { server } => {
                self.server(&server)?;
                vec![BoundaryEvent::ToolServerRemoved { server }.into()]
            }
            ToolsCommand::Accept { server, tools } => {
                let known = self.server(&server)?;
                let new: Vec<_> =
                    tools.into_iter().filter(|(tool, accepted)| known.tools.get(tool) != Some(accepted)).collect();
                if known.tools.len() + new.len() > TOOLS_MAX {
                    return Err(Refusal::Invalid(format!("of one server at most {TOOLS_MAX} tools are accepted")));
                }
                for (tool, accepted) in &new {
                    acceptable(tool, accepted)?;
                }
                let event = |(tool, Accepted { definition, reads })| {
                    BoundaryEvent::ToolAccepted { server: server.clone(), tool, definition, reads }.into()
                };
                new.into_iter().map(event).collect()
            }
            ToolsCommand::Drop { server, tools } => {
                let known = self.server(&server)?;
                let gone = tools.into_iter().filter(|tool| known.tools.contains_key(tool));
                gone.map(|tool| BoundaryEvent::ToolDropped { server: server.clone(), tool }.into()).collect()
            }
        })
    }

    fn evolve(&mut self, event: &BoundaryEvent, _at: Micros) {
        match event {
            BoundaryEvent::Published { .. } => {}
            BoundaryEvent::ToolServerAdded { server, place } => {
                self.servers.insert(server.clone(), Server { place: place.clone(), tools: BTreeMap::new() });
            }
            BoundaryEvent::ToolServerRemoved { server } => {
                self.servers.remove(server);
            }
            BoundaryEvent::ToolAccepted { server, tool, definition, reads } => {
                if let Some(known) = self.servers.get_mut(server) {
                    known.tools.insert(tool.clone(), Accepted { definition: definition.clone(), reads: *reads });
                }
            }
            BoundaryEvent::ToolDropped { server, tool } => {
                if let Some(known) = self.servers.get_mut(server) {
                    known.tools.remove(tool);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(commands: &[ToolsCommand]) -> ToolServers {
        let mut servers = ToolServers::default();
        for command in commands {
            for event in servers.decide(command.clone()).unwrap() {
                servers.evolve(&event.facts, Micros(0));
            }
        }
        servers
    }

    fn add(server: &str) -> ToolsCommand {
        ToolsCommand::Add { server: server.to_owned(), place: "{}".to_owned() }
    }

    fn accept(definition: &str) -> ToolsCommand {
        let accepted = Accepted { definition: definition.to_owned(), reads: false };
        ToolsCommand::Accept { server: "git".to_owned(), tools: vec![("status".to_owned(), accepted)] }
    }

    #[test]
    fn a_tool_is_accepted_as_it_is_defined_and_again_when_that_changes() {
        let servers = after(&[add("git"), accept("a")]);
        assert_eq!(servers.decide(accept("a")), Ok(vec![]));
        let servers = after(&[add("git"), accept("a"), accept("b")]);
        assert_eq!(servers.servers["git"].tools["status"].definition, "b");
        let drop = ToolsCommand::Drop { server: "git".to_owned(), tools: vec!["status".to_owned()] };
        assert!(after(&[add("git"), accept("a"), drop]).servers["git"].tools.is_empty());
    }

    #[test]
    fn a_server_that_comes_back_under_its_name_is_looked_at_anew() {
        let remove = ToolsCommand::Remove { server: "git".to_owned() };
        let servers = after(&[add("git"), accept("a"), remove.clone(), add("git")]);
        assert!(servers.servers["git"].tools.is_empty());
        assert!(ToolServers::default().decide(remove).is_err());
        assert_eq!(servers.decide(add("git")), Err(Refusal::Exists("MCP server")));
    }

    #[test]
    fn names_are_such_that_models_can_call_them() {
        for bad in ["", "Git", "a_b", "a b", "ä", &"a".repeat(25)] {
            assert!(ToolServers::default().decide(add(bad)).is_err(), "{bad}");
        }
        let named = |name: &str| {
            let accepted = Accepted { definition: String::new(), reads: true };
            let tools = vec![(name.to_owned(), accepted)];
            after(&[add("git")]).decide(ToolsCommand::Accept { server: "git".to_owned(), tools })
        };
        assert!(named("a.b-c_D9").is_ok());
        assert!(named("a b").is_err() && named("").is_err() && named(&"a".repeat(65)).is_err());
    }
}
