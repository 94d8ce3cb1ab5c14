//! MCP servers whose tools Bots may be granted. Admins and auditors see them, admins alone change them: how a server is
//! reached may name what only an admin should know of.

use std::collections::BTreeMap;

use axum::{Json, extract::State, http::StatusCode};
use midwatch_commands::boundary::ToolsCommand;
use midwatch_gateway::tools::mcp::{LookError, Looked, Mcp, NewPlace, Place, Terms, Way, name_of};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Asked, Made, Nothing, Path, Recorded, made, recorded, shapes};
use crate::{
    app::App,
    auth::Caller,
    error::{Kind, Problem},
};

/// An MCP server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct McpServer {
    /// Its name, a part of the names of its tools.
    pub(crate) server: String,
    /// How it is reached, without secrets.
    pub(crate) reached: String,
    /// Its accepted tools, by the names that Bots are granted.
    pub(crate) tools: Vec<String>,
}

/// A tool of an MCP server: what is offered now, beside what was accepted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct McpTool {
    /// Its name there.
    tool: String,
    /// Its name for Bots.
    name: String,
    /// `accepted`, `changed`, `new` or `gone`.
    state: &'static str,
    /// A person said that it only reads.
    reads: bool,
    /// SHA-256 of its definition now: what is accepted is what was looked at.
    digest: Option<String>,
    /// Its definition now.
    offered: Option<Value>,
    /// Its definition as it was accepted.
    accepted: Option<Value>,
    /// What differs between the two.
    differences: Vec<McpDifference>,
}

/// A member of a definition that is not what it was.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct McpDifference {
    /// Its name.
    member: String,
    /// What it was.
    before: Option<Value>,
    /// What it is now.
    now: Option<Value>,
}

/// An MCP server to make known: with a `command` or a `url`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMcpServer {
    /// Its name: 1 to 24 of a to z, 0 to 9 and `-`.
    server: String,
    /// The program and its arguments; it runs once per Bot, in that Bot's workspace.
    #[serde(default)]
    command: Vec<String>,
    /// The address of one that speaks streamable HTTP.
    url: Option<String>,
    /// Variables of its program's environment; the values are kept sealed.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// What it is shown as a bearer, over HTTP; kept sealed.
    token: Option<String>,
    /// How long it may take to be there, and for each call, in seconds: 1 to 55; 30 and 55 where that is not said.
    timeout_s: Option<u32>,
    /// Its program touches nothing but the Bot's workspace and the system's programs, and over the network what this
    /// says: `none` over TCP, or `any`.
    confined: Option<String>,
}

/// Tools to accept as they were looked at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpAccept {
    /// For each tool, the digest of the definition that was looked at.
    tools: BTreeMap<String, String>,
    /// They only read; believed where the server says so too.
    #[serde(default)]
    reads: bool,
}

/// Tools to accept no more.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpDrop {
    /// Their names there.
    tools: Vec<String>,
}

/// All servers that are known, by name.
pub(crate) async fn known(app: &App) -> Result<Vec<McpServer>, Problem> {
    let servers = app.engine.tool_servers().await?.state.servers;
    let row = |(name, server): (&String, &midwatch_commands::boundary::Server)| McpServer {
        server: name.clone(),
        reached: Place::shown(&server.place),
        tools: server.tools.keys().map(|tool| name_of(name, tool)).collect(),
    };
    Ok(servers.iter().map(row).collect())
}

/// What a server offers now, asked from this process.
pub(crate) async fn look(app: &App, server: &str) -> Result<Looked, Problem> {
    let looked = Box::pin(reached(app)?.visit(&app.engine, server)).await;
    looked.map_err(|error| match error {
        LookError::Unknown(_) => Problem::new(StatusCode::NOT_FOUND, Kind::Refusal, "not_found", error.to_string()),
        LookError::Unreachable(sentence) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Fault, "mcp_server", sentence)
        }
        LookError::Engine(error) => error.into(),
    })
}

fn reached(app: &App) -> Result<&Mcp, Problem> {
    app.agents.as_ref().and_then(|agents| agents.gateway().mcp()).ok_or_else(|| {
        let sentence = "this process reaches no MCP servers: ask one with the role runner that is not halted";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Refusal, "no_runner", sentence)
    })
}

/// The command that makes a server known.
pub(crate) fn adding(app: &App, server: &str, new: &NewPlace) -> Result<ToolsCommand, Problem> {
    let kept = new.kept(server, app.engine.secrets()?, app.engine.world().random());
    let place = kept.map_err(|sentence| Problem::bad("invalid", sentence))?;
    Ok(ToolsCommand::Add { server: server.to_owned(), place })
}

/// The command that accepts what was looked at.
pub(crate) async fn accepting(
    app: &App,
    server: &str,
    tools: Vec<(String, Option<String>)>,
    reads: bool,
) -> Result<ToolsCommand, Problem> {
    let looked = look(app, server).await?;
    let taken = looked.to_accept(&tools, reads);
    let conflict = |sentence| Problem::new(StatusCode::CONFLICT, Kind::Refusal, "not_as_seen", sentence);
    Ok(ToolsCommand::Accept { server: server.to_owned(), tools: taken.map_err(conflict)? })
}

/// All MCP servers.
#[utoipa::path(get, path = "/api/v1/mcp-servers", tag = "mcp",
    responses((status = 200, body = Vec<McpServer>), (status = 403, body = shapes::Problem)))]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Vec<McpServer>>, Problem> {
    caller.must_read_all()?;
    Ok(Json(known(&app).await?))
}

/// Makes a server known. None of its tools is accepted yet.
#[utoipa::path(post, path = "/api/v1/mcp-servers", tag = "mcp", request_body = NewMcpServer,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request one request")),
    responses((status = 201, body = Made), (status = 400, body = shapes::Problem),
        (status = 409, body = shapes::Problem)))]
pub(crate) async fn add(
    State(app): State<App>,
    asked: Asked<NewMcpServer>,
) -> Result<(StatusCode, Json<Made>), Problem> {
    asked.caller.must_be_admin()?;
    let origin = asked.origin();
    let NewMcpServer { server, command, url, environment, token, timeout_s, confined } = asked.body;
    let way = match (command.is_empty(), url) {
        (false, None) => Way::Stdio { command },
        (true, Some(url)) => Way::Http { url },
        _ => return Err(Problem::bad("invalid", "give either a `command` or a `url`")),
    };
    let command = adding(&app, &server, &NewPlace { way, environment, token, terms: Terms { timeout_s, confined } })?;
    let done = app.engine.change_tools(command, &origin, asked.request.as_ref()).await?;
    Ok(made(&app.engine, server, &done).await)
}

/// What a server offers now, beside what was accepted. The server is asked for it, which may start its program.
#[utoipa::path(get, path = "/api/v1/mcp-servers/{server}/tools", tag = "mcp",
    params(("server" = String, Path, description = "The server's name")),
    responses((status = 200, body = Vec<McpTool>), (status = 404, body = shapes::Problem),
        (status = 503, body = shapes::Problem)))]
pub(crate) async fn tools(
    State(app): State<App>,
    caller: Caller,
    Path(server): Path<String>,
) -> Result<Json<Vec<McpTool>>, Problem> {
    caller.must_be_admin()?;
    let lines = look(&app, &server).await?.lines();
    let tool = |line: midwatch_gateway::tools::mcp::Line| McpTool {
        state: line.standing.as_str(),
        differences: line
            .differences()
            .into_iter()
            .map(|one| McpDifference { member: one.member, before: one.before, now: one.now })
            .collect(),
        tool: line.tool,
        name: line.name,
        reads: line.reads,
        digest: line.digest,
        offered: line.offered,
        accepted: line.accepted,
    };
    Ok(Json(lines.into_iter().map(tool).collect()))
}

/// Accepts tools as they were looked at, so that Bots can be granted them. 409 where one is defined otherwise by now.
#[utoipa::path(post, path = "/api/v1/mcp-servers/{server}/accept", tag = "mcp", request_body = McpAccept,
    params(("server" = String, Path, description = "The server's name")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn accept(
    State(app): State<App>,
    Path(server): Path<String>,
    asked: Asked<McpAccept>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let origin = asked.origin();
    let tools = asked.body.tools.into_iter().map(|(tool, digest)| (tool, Some(digest))).collect();
    let command = accepting(&app, &server, tools, asked.body.reads).await?;
    let done = app.engine.change_tools(command, &origin, asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// Accepts tools no more: none of their calls is let through from the answer on.
#[utoipa::path(post, path = "/api/v1/mcp-servers/{server}/drop", tag = "mcp", request_body = McpDrop,
    params(("server" = String, Path, description = "The server's name")),
    responses((status = 200, body = Recorded), (status = 400, body = shapes::Problem)))]
pub(crate) async fn drop_tools(
    State(app): State<App>,
    Path(server): Path<String>,
    asked: Asked<McpDrop>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let origin = asked.origin();
    let command = ToolsCommand::Drop { server, tools: asked.body.tools };
    let done = app.engine.change_tools(command, &origin, asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// Forgets a server, and all that was accepted of it.
#[utoipa::path(delete, path = "/api/v1/mcp-servers/{server}", tag = "mcp",
    params(("server" = String, Path, description = "The server's name")),
    responses((status = 200, body = Recorded), (status = 400, body = shapes::Problem)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Path(server): Path<String>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let command = ToolsCommand::Remove { server };
    let done = app.engine.change_tools(command, &asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}
