//! `midwatch mcp`: servers whose tools Bots may be granted. What a server says of a tool is looked at by a person
//! before any Bot is offered it.

use std::{collections::BTreeMap, env, io::Read as _, process::ExitCode};

use clap::{Args, Subcommand};
use midwatch_commands::boundary::{Accepted, Server, ToolsCommand};
use midwatch_engine::Engine;
use midwatch_gateway::{
    child::Supervisor,
    dialer::Reach,
    tools::mcp::{Mcp as Reached, NewPlace, Offered, Place, Way, definition_text, name_of},
};
use serde_json::{Value, json};

use crate::{cli::Globals, failure::Failure, joining, table::Table};

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// Make a server known: a program of this machine, or a web address
    Add(Add),
    /// All servers, and how many of their tools are accepted
    List,
    /// What a server offers now, beside what was accepted
    Tools {
        /// The server's name
        server: String,
    },
    /// Accept tools as they are defined now, so that Bots can be granted them
    Accept {
        /// The server's name
        server: String,
        /// The tools, by the server's names for them
        #[arg(required_unless_present = "all")]
        tools: Vec<String>,
        /// All that it offers
        #[arg(long, conflicts_with = "tools")]
        all: bool,
        /// They only read; believed where the server says so too
        #[arg(long)]
        reads: bool,
    },
    /// Accept tools no more
    Drop {
        /// The server's name
        server: String,
        #[arg(required = true)]
        tools: Vec<String>,
    },
    /// Forget a server; none of its tools can be used any more
    Remove {
        /// The server's name
        server: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Add {
    /// Its name, a part of the names of its tools: mcp__NAME__TOOL
    name: String,
    /// The address of one that speaks streamable HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command", required_unless_present = "command")]
    url: Option<String>,
    /// Read a bearer token for the address from standard input; kept sealed
    #[arg(long, requires = "url")]
    token_stdin: bool,
    /// Give the program this variable of the environment as it is now; its value is kept sealed
    #[arg(long = "env", value_name = "NAME", conflicts_with = "url")]
    variables: Vec<String>,
    /// The program and its arguments, after `--`. It runs once per Bot, in that Bot's workspace
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Mcp {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Add(add) => add.run(globals).await,
            Self::List => list(globals).await,
            Self::Tools { server } => tools(globals, &server).await,
            Self::Accept { server, tools, all, reads } => accept(globals, &server, &tools, all, reads).await,
            Self::Drop { server, tools } => {
                change(globals, &server.clone(), ToolsCommand::Drop { server, tools }).await
            }
            Self::Remove { server } => change(globals, &server.clone(), ToolsCommand::Remove { server }).await,
        }
    }
}

impl Add {
    async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let mut environment = BTreeMap::new();
        for name in self.variables {
            let missing = || Failure::bad_request("variable", format!("{name} is not set here, so it cannot be kept"));
            environment.insert(name.clone(), env::var(&name).map_err(|_| missing())?);
        }
        let token = if self.token_stdin { Some(token()?) } else { None };
        let way = match self.url {
            Some(url) => Way::Http { url },
            None => Way::Stdio { command: self.command },
        };
        let (server, new) = (self.name, NewPlace { way, environment, token });
        let added = joining::write(globals, async |engine, origin| {
            let nonce = engine.world().random();
            let kept = new.kept(&server, engine.secrets()?, nonce);
            let place = kept.map_err(|sentence| Failure::bad_request("invalid", sentence))?;
            let command = ToolsCommand::Add { server: server.clone(), place };
            Ok(engine.change_tools(command, origin, None).await?.position)
        });
        let answer = json!({ "server": server, "position": added.await? });
        globals.output().answer(&answer, || {
            format!("MCP server {server} is known; `midwatch mcp tools {server}` shows what it offers")
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A token as it comes in, without the end of its line.
fn token() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(16 << 10).read_to_string(&mut text);
    read.map_err(|error| Failure::bad_request("token", format!("the token cannot be read: {error}")))?;
    match text.trim() {
        "" => Err(Failure::bad_request("token", "there is no token on standard input")),
        token => Ok(token.to_owned()),
    }
}

async fn list(globals: &Globals) -> Result<ExitCode, Failure> {
    let servers = joining::read(globals, async |engine| Ok(engine.tool_servers().await?.state.servers)).await?;
    let rows: Vec<Value> = servers
        .iter()
        .map(|(name, server)| {
            let tools: Vec<_> = server.tools.keys().map(|tool| name_of(name, tool)).collect();
            json!({ "server": name, "reached": Place::shown(&server.place), "tools": tools })
        })
        .collect();
    globals.output().answer(&rows, || {
        let mut table = Table::new(&["SERVER", "REACHED", "ACCEPTED TOOLS"]);
        for (name, server) in &servers {
            table.row(vec![name.clone(), Place::shown(&server.place), server.tools.len().to_string()]);
        }
        table.or("There are no MCP servers; `midwatch mcp add NAME -- COMMAND` makes one known.")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// How a tool that is offered, was accepted, or both, stands.
fn state(server: &Server, offered: &Offered, tool: &str) -> &'static str {
    match (offered.get(tool), server.tools.get(tool)) {
        (Some(defined), Some(accepted)) if definition_text(defined) == accepted.definition => "accepted",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "new",
        (None, _) => "gone",
    }
}

async fn tools(globals: &Globals, name: &str) -> Result<ExitCode, Failure> {
    // With the deployment's key: what the server has to know is sealed under it.
    let (server, offered) = joining::write(globals, async |engine, _| Box::pin(look(engine, name)).await).await?;
    let names: std::collections::BTreeSet<&String> = offered.keys().chain(server.tools.keys()).collect();
    let rows: Vec<Value> = names
        .into_iter()
        .map(|tool| {
            let accepted = server.tools.get(tool);
            let was: Option<Value> = accepted.and_then(|accepted| serde_json::from_str(&accepted.definition).ok());
            let reads = accepted.is_some_and(|accepted| accepted.reads);
            json!({
                "tool": tool,
                "name": name_of(name, tool),
                "state": state(&server, &offered, tool),
                "reads": reads,
                "offered": offered.get(tool),
                "accepted": was,
            })
        })
        .collect();
    globals.output().answer(&rows, || shown(&rows))?;
    Ok(ExitCode::SUCCESS)
}

/// A table, and below it what changed, line by line.
fn shown(rows: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut table = Table::new(&["TOOL", "STATE", "DESCRIPTION"]);
    let mut changes = String::new();
    for row in rows {
        let said = if row["offered"].is_null() { &row["accepted"] } else { &row["offered"] };
        let description: String = text(&said["description"]).split_whitespace().collect::<Vec<_>>().join(" ");
        table.row(vec![text(&row["name"]), text(&row["state"]), description.chars().take(80).collect()]);
        if row["state"] == "changed" {
            changes.push_str(&format!("\n{} was accepted as\n", text(&row["name"])));
            for (name, before) in row["accepted"].as_object().into_iter().flatten() {
                if row["offered"][name] != *before {
                    changes.push_str(&format!("- {name}: {before}\n+ {name}: {}\n", row["offered"][name]));
                }
            }
            for (name, now) in row["offered"].as_object().into_iter().flatten() {
                if row["accepted"].get(name).is_none() {
                    changes.push_str(&format!("+ {name}: {now}\n"));
                }
            }
        }
    }
    table.or("It offers no tools.") + &changes
}

async fn look(engine: &Engine, name: &str) -> Result<(Server, Offered), Failure> {
    let servers = engine.tool_servers().await?.state.servers;
    let server = servers.get(name).cloned().ok_or_else(|| {
        let sentence = format!("there is no MCP server `{name}`; `midwatch mcp list` shows those there are");
        Failure::bad_request("no_server", sentence)
    })?;
    let unreachable = |sentence| Failure::fault("mcp_server", sentence);
    let place = Place::read(name, &server.place, engine.secrets()?).map_err(unreachable)?;
    // It is asked what it offers, and nothing else: it sees no Bot's files.
    let nowhere = env::temp_dir().join(format!("midwatch-mcp-{}", engine.world().uuid()));
    std::fs::create_dir(&nowhere).map_err(|error| unreachable(error.to_string()))?;
    let reached = Reached::new(Supervisor::this_binary(), Reach::Private);
    let offered = Box::pin(reached.look(&place, nowhere.clone())).await;
    // What it left there is nobody's.
    let _ = std::fs::remove_dir_all(&nowhere);
    Ok((server, offered.map_err(unreachable)?))
}

async fn accept(globals: &Globals, name: &str, tools: &[String], all: bool, reads: bool) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| {
        let (_, offered) = Box::pin(look(engine, name)).await?;
        if let Some(missing) = tools.iter().find(|tool| !offered.contains_key(*tool)) {
            let there: Vec<_> = offered.keys().map(String::as_str).collect();
            let sentence = format!("{name} does not offer `{missing}`; it offers {}", there.join(", "));
            return Err(Failure::bad_request("no_tool", sentence));
        }
        let wanted = offered.iter().filter(|(tool, _)| all || tools.contains(tool));
        let accepted = wanted
            .map(|(tool, defined)| (tool.clone(), Accepted { definition: definition_text(defined), reads }))
            .collect::<Vec<_>>();
        let names: Vec<_> = accepted.iter().map(|(tool, _)| name_of(name, tool)).collect();
        let command = ToolsCommand::Accept { server: name.to_owned(), tools: accepted };
        let position = engine.change_tools(command, origin, None).await?.position;
        Ok((names, position))
    });
    let (names, position) = done.await?;
    globals.output().answer(&json!({ "server": name, "tools": names, "position": position }), || {
        format!("Accepted as they are defined now: {}\n`midwatch bot grant BOT TOOL` grants them.", names.join(", "))
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn change(globals: &Globals, name: &str, command: ToolsCommand) -> Result<ExitCode, Failure> {
    let done =
        joining::write(globals, async |engine, origin| Ok(engine.change_tools(command, origin, None).await?.position));
    let position = done.await?;
    globals.output().answer(&json!({ "server": name, "position": position }), || {
        format!("MCP server {name} was changed, at position {position}")
    })?;
    Ok(ExitCode::SUCCESS)
}
