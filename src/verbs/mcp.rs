//! `midwatch mcp`: servers whose tools Bots may be granted. What a server says of a tool is looked at by a person
//! before any Bot is offered it.

use std::{collections::BTreeMap, env, io::Read as _, process::ExitCode};

use clap::{Args, Subcommand};
use midwatch_commands::boundary::ToolsCommand;
use midwatch_engine::Engine;
use midwatch_gateway::{
    child::Supervisor,
    dialer::Reach,
    tools::mcp::{Difference, Line, LookError, Looked, Mcp as Reached, NewPlace, Place, Terms, Way, name_of},
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
    /// How long it may take to be there, and for each call [default: 30 and 55]
    #[arg(long, value_name = "SECONDS")]
    timeout_s: Option<u32>,
    /// Its program touches nothing but the Bot's workspace and the system's programs: `offline` reaches nothing over TCP
    /// either, `network` what this machine does [default: it may do what Midwatch's account may]
    #[arg(long, value_name = "HOW", value_parser = ["offline", "network"], conflicts_with = "url")]
    confined: Option<String>,
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
        let network = |how: String| if how == "offline" { "none" } else { "any" }.to_owned();
        let terms = Terms { timeout_s: self.timeout_s, confined: self.confined.map(network) };
        let (server, new) = (self.name, NewPlace { way, environment, token, terms });
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

async fn tools(globals: &Globals, name: &str) -> Result<ExitCode, Failure> {
    // With the deployment's key: what the server has to know is sealed under it.
    let lines = joining::write(globals, async |engine, _| Ok(Box::pin(look(engine, name)).await?.lines())).await?;
    let rows: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "tool": line.tool,
                "name": line.name,
                "state": line.standing.as_str(),
                "reads": line.reads,
                "digest": line.digest,
                "offered": line.offered,
                "accepted": line.accepted,
            })
        })
        .collect();
    globals.output().answer(&rows, || shown(&lines))?;
    Ok(ExitCode::SUCCESS)
}

/// A table, and below it what changed, line by line.
fn shown(lines: &[Line]) -> String {
    let mut table = Table::new(&["TOOL", "STATE", "DESCRIPTION"]);
    let mut changes = String::new();
    for line in lines {
        let said = line.offered.as_ref().or(line.accepted.as_ref());
        let description = said.and_then(|said| said["description"].as_str()).unwrap_or_default();
        let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        let state = line.standing.as_str().to_owned();
        table.row(vec![line.name.clone(), state, description.chars().take(80).collect()]);
        let differences = line.differences();
        if !differences.is_empty() {
            changes.push_str(&format!("\n{} was accepted as\n", line.name));
        }
        for Difference { member, before, now } in differences {
            for (sign, value) in [("-", before), ("+", now)] {
                if let Some(value) = value {
                    changes.push_str(&format!("{sign} {member}: {value}\n"));
                }
            }
        }
    }
    table.or("It offers no tools.") + &changes
}

async fn look(engine: &Engine, name: &str) -> Result<Looked, Failure> {
    let reached = Reached::new(Supervisor::this_binary(), Reach::Private);
    Box::pin(reached.visit(engine, name)).await.map_err(|error| match error {
        LookError::Unknown(_) => Failure::bad_request("no_server", error.to_string()),
        LookError::Unreachable(sentence) => Failure::fault("mcp_server", sentence),
        LookError::Engine(error) => error.into(),
    })
}

async fn accept(globals: &Globals, name: &str, tools: &[String], all: bool, reads: bool) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| {
        let looked = Box::pin(look(engine, name)).await?;
        let wanted = looked.offered.keys().filter(|tool| all || tools.contains(tool)).cloned();
        let missing = tools.iter().filter(|tool| !looked.offered.contains_key(*tool)).cloned();
        let wanted: Vec<_> = wanted.chain(missing).map(|tool| (tool, None)).collect();
        let accepted = looked.to_accept(&wanted, reads);
        let accepted = accepted.map_err(|sentence| Failure::bad_request("no_tool", sentence))?;
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
