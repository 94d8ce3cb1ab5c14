//! MCP servers: how they are reached, what of theirs was accepted, and what they offer now, with what changed.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use midwatch_commands::boundary::ToolsCommand;
use midwatch_gateway::tools::mcp::{Difference, Line, NewPlace, Place, Standing, Terms, Way, name_of};
use serde_json::Value;

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, capital, html, ok},
    status::Mark,
    text::Shown,
    visitor::{Posted, Visitor, seen},
};
use crate::{
    api::mcp_servers::{accepting, adding, known, look},
    app::App,
    auth::Caller,
    error::Problem,
};

#[derive(Template)]
#[template(path = "mcp_servers.html")]
struct ServersPage {
    frame: Frame,
    error: Option<String>,
    rows: Vec<Row>,
    server: String,
    url: String,
    command: String,
}

struct Row {
    server: String,
    reached: Shown,
    tools: usize,
}

#[derive(Template)]
#[template(path = "mcp_server.html")]
struct ServerPage {
    frame: Frame,
    error: Option<String>,
    server: String,
    reached: Shown,
    accepted: Vec<Shown>,
    /// What it offers, once it was asked.
    looked: Option<Vec<Tool>>,
}

/// A tool as it was found.
struct Tool {
    tool: String,
    name: Shown,
    mark: Mark,
    description: Shown,
    reads: bool,
    /// What is accepted when it is ticked: the name, and the digest of what is shown.
    value: Option<String>,
    changes: Vec<Change>,
}

struct Change {
    member: Shown,
    before: Option<Shown>,
    now: Option<Shown>,
}

async fn list(
    app: &App,
    caller: &Caller,
    query: &Fields,
    typed: &Fields,
    error: Option<String>,
) -> Result<ServersPage, Failure> {
    let frame = Frame::new(app, caller, Section::Bots, "MCP servers", query).await?;
    let rows = known(app).await?.into_iter();
    let rows =
        rows.map(|row| Row { reached: Shown::short(&row.reached, 200), tools: row.tools.len(), server: row.server });
    let text = |name| typed.get(name).to_owned();
    let (server, url, command) = (text("server"), text("url"), typed.text("command"));
    Ok(ServersPage { rows: rows.collect(), error, server, url, command, frame })
}

/// `GET /mcp-servers`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_read_all()?;
    ok(&list(&app, &caller, &query, &Fields::default(), None).await?)
}

/// `POST /mcp-servers`.
pub(super) async fn add(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let fields = &posted.fields;
    match added(&app, &posted).await {
        Ok(position) => seen(&app, position, &format!("/mcp-servers/{}?done=created", fields.get("server"))).await,
        Err(problem) => {
            let (_, sentence) = Failure::from(problem).sentence()?;
            let page = list(&app, &posted.caller, &Fields::default(), fields, Some(sentence)).await?;
            html(StatusCode::BAD_REQUEST, &page)
        }
    }
}

async fn added(app: &App, posted: &Posted) -> Result<u64, Problem> {
    let fields = &posted.fields;
    // One argument a line: no quoting to get wrong.
    let command = fields.text("command");
    let command: Vec<String> =
        command.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let way = match (fields.filled("url"), command.is_empty()) {
        (Some(url), true) => Way::Http { url: url.to_owned() },
        (None, false) => Way::Stdio { command },
        _ => return Err(Problem::bad("invalid", "give either an address or a program")),
    };
    let token = fields.filled("token").map(str::to_owned);
    let program = matches!(way, Way::Stdio { .. });
    let confined = fields.filled("confined").filter(|_| program).map(str::to_owned);
    let terms = Terms { timeout_s: None, confined };
    let command = adding(app, fields.get("server"), &NewPlace { way, environment: BTreeMap::new(), token, terms })?;
    let done = app.engine.change_tools(command, &posted.caller.origin(), posted.request.as_ref()).await?;
    Ok(done.position)
}

async fn view(
    app: &App,
    caller: &Caller,
    name: &str,
    query: &Fields,
    looked: Option<Vec<Tool>>,
    error: Option<String>,
) -> Result<ServerPage, Failure> {
    let servers = app.engine.tool_servers().await.map_err(Problem::from)?.state.servers;
    let server = servers.get(name).ok_or_else(|| Failure(Problem::not_found("MCP server")))?;
    let frame = Frame::new(app, caller, Section::Bots, name.to_owned(), query).await?;
    Ok(ServerPage {
        error,
        server: name.to_owned(),
        reached: Shown::short(&Place::shown(&server.place), 400),
        accepted: server.tools.keys().map(|tool| Shown::line(&name_of(name, tool))).collect(),
        looked,
        frame,
    })
}

/// `GET /mcp-servers/{server}`: what was accepted. The server itself is asked nothing.
pub(super) async fn server(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(name): Path<String>,
    query: Fields,
) -> Page {
    caller.must_read_all()?;
    ok(&view(&app, &caller, &name, &query, None, None).await?)
}

/// `POST /mcp-servers/{server}/look`: asks the server what it offers now, which may start its program.
pub(super) async fn look_at(State(app): State<App>, Path(name): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let (looked, error) = match look(&app, &name).await {
        Ok(looked) => (Some(looked.lines().into_iter().map(tool).collect()), None),
        Err(problem) if problem.code == "mcp_server" => (None, Some(capital(&problem.sentence))),
        Err(problem) => return Err(problem.into()),
    };
    ok(&view(&app, &posted.caller, &name, &Fields::default(), looked, error).await?)
}

/// `POST /mcp-servers/{server}/accept`: what was ticked, as it was shown.
pub(super) async fn accept(State(app): State<App>, Path(name): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let ticked = posted.fields.all("tool").into_iter();
    let tools = ticked.filter_map(|value| value.rsplit_once(' '));
    let tools: Vec<_> = tools.map(|(tool, digest)| (tool.to_owned(), Some(digest.to_owned()))).collect();
    if tools.is_empty() {
        let error = Some("Tick what is to be accepted.".to_owned());
        return html(
            StatusCode::BAD_REQUEST,
            &view(&app, &posted.caller, &name, &Fields::default(), None, error).await?,
        );
    }
    match accepting(&app, &name, tools, posted.fields.has("reads")).await {
        Ok(command) => changed(&app, &posted, &name, command).await,
        Err(problem) => {
            let (status, sentence) = Failure::from(problem).sentence()?;
            html(status, &view(&app, &posted.caller, &name, &Fields::default(), None, Some(sentence)).await?)
        }
    }
}

/// `POST /mcp-servers/{server}/drop`.
pub(super) async fn drop_tool(State(app): State<App>, Path(name): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let tools = posted.fields.all("tool").into_iter().map(str::to_owned).collect();
    let command = ToolsCommand::Drop { server: name.clone(), tools };
    changed(&app, &posted, &name, command).await
}

/// `POST /mcp-servers/{server}/remove`.
pub(super) async fn remove(State(app): State<App>, Path(name): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let done = app.engine.change_tools(ToolsCommand::Remove { server: name }, &posted.caller.origin(), None).await?;
    seen(&app, done.position, "/mcp-servers?done=saved").await
}

async fn changed(app: &App, posted: &Posted, name: &str, command: ToolsCommand) -> Page {
    let done = app.engine.change_tools(command, &posted.caller.origin(), None).await?;
    seen(app, done.position, &format!("/mcp-servers/{name}?done=saved")).await
}

fn tool(line: Line) -> Tool {
    let said = line.offered.as_ref().or(line.accepted.as_ref());
    let description = said.and_then(|said| said["description"].as_str()).unwrap_or_default();
    let mark = match line.standing {
        Standing::Accepted => Mark::good("accepted"),
        Standing::Changed => Mark::bad("changed: refused"),
        Standing::New => Mark::idle("not accepted"),
        Standing::Gone => Mark::warn("not offered any more"),
    };
    let open = matches!(line.standing, Standing::Changed | Standing::New);
    Tool {
        name: Shown::line(&line.name),
        mark,
        description: Shown::short(description, 1_000),
        reads: line.reads,
        value: line.digest.as_ref().filter(|_| open).map(|digest| format!("{} {digest}", line.tool)),
        changes: line.differences().into_iter().map(change).collect(),
        tool: line.tool,
    }
}

fn change(one: Difference) -> Change {
    let text = |value: Option<Value>| value.map(|value| Shown::short(&value.to_string(), 4_000));
    Change { member: Shown::line(&one.member), before: text(one.before), now: text(one.now) }
}
