//! Bots: who does the work, and what they may use.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use midwatch_commands::{bot::BotCommand, boundary::ToolServers};
use midwatch_engine::projector;
use midwatch_events::id::BotId;
use midwatch_gateway::tools;
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    bots::{BotRow, Bots},
    routines_list::RoutinesList,
};

use super::{
    days::Choice,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    listing::{self, ROWS},
    status::Mark,
    text::{Shown, counted},
    time::When,
    visitor::{Posted, Visitor, seen},
};
use crate::{app::App, auth::Caller, error::Problem};

#[derive(Template)]
#[template(path = "bots.html")]
struct BotsPage {
    frame: Frame,
    rows: Vec<Row>,
    next: Option<String>,
    first: bool,
    error: Option<String>,
    name: String,
    agui: String,
}

struct Row {
    id: String,
    name: Shown,
    agui: Option<Shown>,
    tools: String,
    mark: Mark,
    registered: When,
}

fn mark(row: &BotRow) -> Mark {
    if row.retired { Mark::idle("retired") } else { Mark::good("takes work") }
}

async fn list(
    app: &App,
    caller: &Caller,
    query: &Fields,
    typed: &Fields,
    error: Option<String>,
) -> Result<BotsPage, Failure> {
    let frame = Frame::new(app, caller, Section::Bots, "Bots", query).await?;
    let order = Order { column: "name", descending: false };
    let after = listing::after(query);
    let first = after.is_none();
    let found = projector::page::<Bots>(&app.engine, Vec::new(), order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next("/bots", query, cursor));
    let rows = found.iter().map(|(row, _)| Row {
        id: row.id.to_string(),
        name: Shown::line(&row.name),
        agui: row.agui.as_deref().map(|url| Shown::short(url, 80)),
        tools: counted(row.tools.len() as u64, "tool", "tools"),
        mark: mark(row),
        registered: When::utc(row.registered_at, frame.now),
    });
    let (name, agui) = (typed.get("name").to_owned(), typed.get("agui").to_owned());
    Ok(BotsPage { rows: rows.collect(), next, first, error, name, agui, frame })
}

/// `GET /bots`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    ok(&list(&app, &caller, &query, &Fields::default(), None).await?)
}

/// `POST /bots`.
pub(super) async fn register(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let (name, agui) = (posted.fields.get("name"), posted.fields.filled("agui"));
    match app.engine.register_bot(name, agui, &posted.caller.origin(), posted.request.as_ref()).await {
        Ok(done) => seen(&app, done.position, &format!("/bots/{}?done=created", done.value)).await,
        Err(error) => {
            let (_, sentence) = Failure::from(error).sentence()?;
            let page = list(&app, &posted.caller, &Fields::default(), &posted.fields, Some(sentence)).await?;
            html(StatusCode::BAD_REQUEST, &page)
        }
    }
}

#[derive(Template)]
#[template(path = "bot.html")]
struct BotPage {
    frame: Frame,
    error: Option<String>,
    id: String,
    name: Shown,
    agui: Option<Shown>,
    mark: Mark,
    retired: bool,
    registered: When,
    tools: Vec<Tool>,
    routines: Vec<(String, Shown)>,
}

/// A tool that may be granted.
struct Tool {
    choice: Choice<String, Shown>,
    description: Shown,
}

async fn row(app: &App, id: &str) -> Result<BotRow, Failure> {
    let missing = || Failure(Problem::not_found("Bot"));
    let id: BotId = id.parse().map_err(|_| missing())?;
    projector::get::<Bots>(&app.engine, &id.to_string()).await?.ok_or_else(missing)
}

/// What this binary offers, what of MCP servers was accepted, and whatever else the Bot was granted.
fn offered(row: &BotRow, servers: &ToolServers) -> Vec<Tool> {
    let accepted = tools::mcp::definitions(servers).into_iter().map(|tool| (tool.name, tool.description));
    let known: Vec<_> = tools::grants().into_iter().chain(accepted).collect();
    let others: Vec<_> = row.tools.iter().filter(|name| known.iter().all(|(tool, _)| tool != *name)).collect();
    let others = others.into_iter().map(|name| (name.clone(), "This process does not offer it.".to_owned()));
    let tool = |(name, description): (String, String)| Tool {
        choice: Choice { chosen: row.tools.contains(&name), name: Shown::line(&name), value: name },
        description: Shown::short(&description, 300),
    };
    known.into_iter().chain(others).map(tool).collect()
}

async fn view(
    app: &App,
    caller: &Caller,
    row: &BotRow,
    query: &Fields,
    error: Option<String>,
) -> Result<BotPage, Failure> {
    let frame = Frame::new(app, caller, Section::Bots, row.name.clone(), query).await?;
    let mut filters = vec![
        Condition { column: "bot", is: Test::Eq(Cell::Text(row.id.to_string())) },
        Condition { column: "state", is: Test::Ne(Cell::Text("deleted".to_owned())) },
    ];
    filters.extend(super::scope::owned(caller));
    let order = Order { column: "name", descending: false };
    let routines = projector::page::<RoutinesList>(&app.engine, filters, order, 100, None).await?;
    Ok(BotPage {
        error,
        id: row.id.to_string(),
        name: Shown::line(&row.name),
        agui: row.agui.as_deref().map(Shown::line),
        mark: mark(row),
        retired: row.retired,
        registered: When::utc(row.registered_at, frame.now),
        tools: offered(row, &app.engine.tool_servers().await.map_err(Problem::from)?.state),
        routines: routines.into_iter().map(|(row, _)| (row.id.to_string(), Shown::line(&row.name))).collect(),
        frame,
    })
}

/// `GET /bots/{id}`.
pub(super) async fn bot(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    let row = row(&app, &id).await?;
    ok(&view(&app, &caller, &row, &query, None).await?)
}

async fn changed(app: &App, posted: &Posted, row: &BotRow, commands: Vec<BotCommand>, done_as: &str) -> Page {
    let mut position = 0;
    for command in commands {
        // Each is a request of its own, and twice is once by what it changes.
        match app.engine.change_bot(row.id, &posted.caller.origin(), None, command).await {
            Ok(done) => position = done.position,
            Err(error) => {
                let (status, sentence) = Failure::from(error).sentence()?;
                return html(status, &view(app, &posted.caller, row, &Fields::default(), Some(sentence)).await?);
            }
        }
    }
    seen(app, position, &format!("/bots/{}?done={done_as}", row.id)).await
}

/// `POST /bots/{id}/stop`.
pub(super) async fn stop(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = row(&app, &id).await?;
    let done = app.engine.stop_bot(row.id, &posted.caller.origin()).await?;
    seen(&app, done.position, &format!("/bots/{}?done=stopped", row.id)).await
}

/// `POST /bots/{id}/tools`: the tools that are ticked are granted, the others withdrawn.
pub(super) async fn change_tools(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = row(&app, &id).await?;
    let wanted: Vec<String> = posted.fields.all("tool").into_iter().map(str::to_owned).collect();
    let granted: Vec<String> = wanted.iter().filter(|tool| !row.tools.contains(*tool)).cloned().collect();
    let withdrawn: Vec<String> = row.tools.iter().filter(|tool| !wanted.contains(tool)).cloned().collect();
    let mut commands = Vec::new();
    if !granted.is_empty() {
        commands.push(BotCommand::Grant(granted));
    }
    if !withdrawn.is_empty() {
        commands.push(BotCommand::Withdraw(withdrawn));
    }
    changed(&app, &posted, &row, commands, "saved").await
}

/// `POST /bots/{id}/retire`.
pub(super) async fn retire(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = row(&app, &id).await?;
    changed(&app, &posted, &row, vec![BotCommand::Retire], "retired").await
}
