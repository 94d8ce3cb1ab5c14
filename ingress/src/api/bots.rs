//! Bots. Everybody sees them; admins register, equip and retire them.

use axum::{Json, extract::State, http::StatusCode, response::Response};
use midwatch_commands::bot::BotCommand;
use midwatch_engine::projector;
use midwatch_events::id::BotId;
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::bots::{BotRow, Bots};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    Asked, Listed, Made, Paging, Path, Query, Recorded, list as page, made, recorded,
    runs::{Called, called},
    shapes, tagged,
};
use crate::{app::App, error::Problem};

/// Which Bots.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Only those that are retired, or only those that are not.
    retired: Option<bool>,
}

/// A Bot to register.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBot)]
pub(crate) struct New {
    /// Its name.
    name: String,
    /// Where its AG-UI agent listens; left out for one that only replays recordings. Never carries credentials.
    agui: Option<String>,
}

/// Tools to grant and to withdraw.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolChange {
    /// Tools it may use from now on.
    #[serde(default)]
    grant: Vec<String>,
    /// Tools it may not use any more.
    #[serde(default)]
    withdraw: Vec<String>,
}

/// All Bots, by name.
#[utoipa::path(get, path = "/api/v1/bots", tag = "bots", params(Wanted, Paging),
    responses((status = 200, body = Listed<shapes::Bot>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<BotRow>>, Problem> {
    let retired =
        wanted.retired.map(|retired| Condition { column: "retired", is: Test::Eq(Cell::Int(i64::from(retired))) });
    let order = Order { column: "name", descending: false };
    Ok(Json(page::<Bots>(&app.engine, retired.into_iter().collect(), order, &paging).await?))
}

/// One Bot. Its `ETag` is the version of its stream.
#[utoipa::path(get, path = "/api/v1/bots/{id}", tag = "bots", params(("id" = String, Path, description = "The Bot")),
    responses((status = 200, body = shapes::Bot), (status = 404, body = shapes::Problem)))]
pub(crate) async fn show(State(app): State<App>, Path(id): Path<BotId>) -> Result<Response, Problem> {
    let row = projector::get::<Bots>(&app.engine, &id.to_string()).await?.ok_or_else(|| Problem::not_found("Bot"))?;
    Ok(tagged(row.version, row))
}

/// Registers a Bot.
#[utoipa::path(post, path = "/api/v1/bots", tag = "bots", request_body = New,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request one request")),
    responses((status = 201, body = Made), (status = 400, body = shapes::Problem)))]
pub(crate) async fn create(State(app): State<App>, asked: Asked<New>) -> Result<(StatusCode, Json<Made>), Problem> {
    asked.caller.must_be_admin()?;
    let New { name, agui } = &asked.body;
    let request = asked.request.as_ref();
    let done = app.engine.register_bot(name, agui.as_deref(), &asked.origin(), request).await?;
    Ok(made(&app.engine, done.value, &done).await)
}

/// Gives a Bot no more work.
#[utoipa::path(post, path = "/api/v1/bots/{id}/retire", tag = "bots",
    params(("id" = String, Path, description = "The Bot")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn retire(
    State(app): State<App>,
    Path(id): Path<BotId>,
    asked: Asked<super::Nothing>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let done = app.engine.change_bot(id, &asked.origin(), asked.request.as_ref(), BotCommand::Retire).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// Calls off every run of a Bot that is live. From the answer on none of their calls is decided any more; those that
/// had been and have no outcome are listed. Its routines go on at their next window: pause them, or retire it.
#[utoipa::path(post, path = "/api/v1/bots/{id}/stop", tag = "bots",
    params(("id" = String, Path, description = "The Bot")),
    responses((status = 200, body = Called), (status = 404, body = shapes::Problem)))]
pub(crate) async fn stop(
    State(app): State<App>,
    Path(id): Path<BotId>,
    asked: Asked<super::Nothing>,
) -> Result<Json<Called>, Problem> {
    asked.caller.must_be_admin()?;
    let done = app.engine.stop_bot(id, &asked.origin()).await?;
    called(&app, done).await
}

/// Grants a Bot tools, or withdraws them; one of the two in one request.
#[utoipa::path(post, path = "/api/v1/bots/{id}/tools", tag = "bots", request_body = ToolChange,
    params(("id" = String, Path, description = "The Bot")),
    responses((status = 200, body = Recorded), (status = 400, body = shapes::Problem)))]
pub(crate) async fn change_tools(
    State(app): State<App>,
    Path(id): Path<BotId>,
    asked: Asked<ToolChange>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let origin = asked.origin();
    let command = match (asked.body.grant, asked.body.withdraw) {
        (grant, withdraw) if withdraw.is_empty() && !grant.is_empty() => BotCommand::Grant(grant),
        (grant, withdraw) if grant.is_empty() && !withdraw.is_empty() => BotCommand::Withdraw(withdraw),
        _ => return Err(Problem::bad("invalid", "name tools either in `grant` or in `withdraw`")),
    };
    let done = app.engine.change_bot(id, &origin, asked.request.as_ref(), command).await?;
    Ok(recorded(&app.engine, &done).await)
}
