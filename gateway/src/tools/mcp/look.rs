//! Looking at a server: what it offers now, beside what was accepted.

use std::collections::BTreeSet;

use midwatch_commands::boundary::{Accepted, Server};
use midwatch_engine::{Engine, EngineError};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Mcp, Offered, Place, definition_text, name_of};

/// What was found.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The server's name.
    pub name: String,
    /// What is known of it.
    pub server: Server,
    /// What it offers.
    pub offered: Offered,
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// There is no such server.
    #[error("there is no MCP server `{0}`; `midwatch mcp list` shows those there are")]
    Unknown(String),
    /// It cannot be reached, or is no MCP server.
    #[error("{0}")]
    Unreachable(String),
    /// A fault of ours.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// How a tool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is offered as it was accepted.
    Accepted,
    /// It is defined otherwise by now, and refused.
    Changed,
    /// Nobody has accepted it.
    New,
    /// It was accepted, and is not offered any more.
    Gone,
}

impl Standing {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Changed => "changed",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// One tool.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name there.
    pub tool: String,
    /// Its name for Bots.
    pub name: String,
    /// How it stands.
    pub standing: Standing,
    /// A person said that it only reads.
    pub reads: bool,
    /// Its definition now.
    pub offered: Option<Value>,
    /// Its definition as it was accepted.
    pub accepted: Option<Value>,
    /// SHA-256 of its definition now, in hex: what is looked at is what is accepted.
    pub digest: Option<String>,
}

/// A member of a definition that is not what it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its name.
    pub member: String,
    /// What it was, as it was accepted.
    pub before: Option<Value>,
    /// What it is now.
    pub now: Option<Value>,
}

impl Line {
    /// What differs between the definition that was accepted and the one that is offered; nothing where one is missing.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        let (Some(Value::Object(before)), Some(Value::Object(now))) = (&self.accepted, &self.offered) else {
            return Vec::new();
        };
        let members: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let differs = members.into_iter().filter(|member| before.get(*member) != now.get(*member));
        differs
            .map(|member| Difference {
                member: member.clone(),
                before: before.get(member).cloned(),
                now: now.get(member).cloned(),
            })
            .collect()
    }
}

/// SHA-256 of a definition's text, in hex.
fn digest(definition: &Value) -> String {
    Sha256::digest(definition_text(definition)).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Looked {
    /// All tools that are offered, were accepted, or both, by name.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let names: BTreeSet<&String> = self.offered.keys().chain(self.server.tools.keys()).collect();
        names.into_iter().map(|tool| self.line(tool)).collect()
    }

    fn line(&self, tool: &str) -> Line {
        let (offered, known) = (self.offered.get(tool), self.server.tools.get(tool));
        let standing = match (offered, known) {
            (Some(defined), Some(known)) if definition_text(defined) == known.definition => Standing::Accepted,
            (Some(_), Some(_)) => Standing::Changed,
            (Some(_), None) => Standing::New,
            (None, _) => Standing::Gone,
        };
        Line {
            tool: tool.to_owned(),
            name: name_of(&self.name, tool),
            standing,
            reads: known.is_some_and(|known| known.reads),
            accepted: known.and_then(|known| serde_json::from_str(&known.definition).ok()),
            digest: offered.map(digest),
            offered: offered.cloned(),
        }
    }

    /// Tools as they are offered, to be accepted; each with the digest of what was looked at, where that is known.
    ///
    /// # Errors
    /// A sentence: one is not offered, or not as it was looked at.
    pub fn to_accept(
        &self,
        tools: &[(String, Option<String>)],
        reads: bool,
    ) -> Result<Vec<(String, Accepted)>, String> {
        let take = |(tool, seen): &(String, Option<String>)| {
            let Some(defined) = self.offered.get(tool) else {
                let there: Vec<_> = self.offered.keys().map(String::as_str).collect();
                return Err(format!("{} does not offer `{tool}`; it offers {}", self.name, there.join(", ")));
            };
            if seen.as_ref().is_some_and(|seen| *seen != digest(defined)) {
                return Err(format!("`{tool}` is defined otherwise by now than you saw it; look at it again"));
            }
            Ok((tool.clone(), Accepted { definition: definition_text(defined), reads }))
        };
        tools.iter().map(take).collect()
    }
}

impl Mcp {
    /// Asks a server what it offers, and nothing else: it sees no Bot's files.
    ///
    /// # Errors
    /// [`LookError`].
    pub async fn visit(&self, engine: &Engine, name: &str) -> Result<Looked, LookError> {
        let servers = engine.tool_servers().await?.state.servers;
        let server = servers.get(name).cloned().ok_or_else(|| LookError::Unknown(name.to_owned()))?;
        let place = Place::read(name, &server.place, engine.secrets()?).map_err(LookError::Unreachable)?;
        let nowhere = std::env::temp_dir().join(format!("midwatch-mcp-{}", engine.world().uuid()));
        std::fs::create_dir(&nowhere).map_err(|error| LookError::Unreachable(error.to_string()))?;
        let offered = Box::pin(self.look(&place, nowhere.clone())).await;
        // What it left there is nobody's.
        let _ = std::fs::remove_dir_all(&nowhere);
        let offered = offered.map_err(LookError::Unreachable)?;
        Ok(Looked { name: name.to_owned(), server, offered })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_looked_at_is_what_is_accepted_and_a_difference_is_shown() {
        let was = json!({"name": "t", "description": "a", "inputSchema": {"type": "object"}});
        let now = json!({"name": "t", "description": "b", "annotations": {"readOnlyHint": true}});
        let known = Accepted { definition: definition_text(&was), reads: false };
        let server = Server { place: String::new(), tools: BTreeMap::from([("t".to_owned(), known)]) };
        let offered = Offered::from([("t".to_owned(), now.clone()), ("u".to_owned(), was.clone())]);
        let looked = Looked { name: "s".to_owned(), server, offered };
        let lines = looked.lines();
        assert_eq!(lines.iter().map(|line| line.standing).collect::<Vec<_>>(), [Standing::Changed, Standing::New]);
        let members: Vec<_> = lines[0].differences().into_iter().map(|one| one.member).collect();
        assert_eq!(members, ["annotations", "description", "inputSchema"]);
        let seen = lines[0].digest.clone();
        let taken = looked.to_accept(&[("t".to_owned(), seen.clone())], true).unwrap();
        assert_eq!(taken[0].1.definition, definition_text(&now));
        assert!(looked.to_accept(&[("u".to_owned(), seen)], true).unwrap_err().contains("otherwise"));
        assert!(looked.to_accept(&[("v".to_owned(), None)], true).unwrap_err().contains("t, u"));
    }
}
