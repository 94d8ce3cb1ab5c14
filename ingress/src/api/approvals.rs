//! Approvals: what persons are asked. Answered by a signed-in person, never by a token.

use axum::{Json, extract::State};
use midwatch_commands::run::Answerer;
use midwatch_engine::{approvals::Answer, projector};
use midwatch_events::{
    id::{ApprovalId, RunId},
    key::Digest,
    user::Access,
};
use midwatch_log::views::Order;
use midwatch_projections::run_approvals::{ApprovalRow, Approvals};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    Asked, Listed, Paging, Path, Query, Recorded, equals, list as page, recorded, routines::own, shapes, word,
};
use crate::{app::App, auth::Caller, error::Problem};

/// How far an approval is.
#[derive(Clone, Copy, Debug, Deserialize, serde::Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApprovalState {
    /// It waits for its answer.
    Open,
    /// A person said yes.
    Approved,
    /// A person said no.
    Declined,
    /// Nobody answered in time.
    Expired,
    /// Nothing waits for it any more.
    Withdrawn,
}

/// Which approvals.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// `open`, `approved`, `declined`, `expired` or `withdrawn`.
    #[param(value_type = Option<String>)]
    state: Option<ApprovalState>,
    /// Only this run's.
    #[param(value_type = Option<String>)]
    run: Option<RunId>,
}

/// What a person says.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// Yes: this one call may act, once.
    Approve,
    /// No.
    Decline,
}

/// An answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saying {
    /// Yes or no.
    answer: Said,
    /// The digest that was shown: the answer is to exactly that.
    #[schema(value_type = String)]
    digest: Digest,
}

/// Approvals, the newest first.
#[utoipa::path(get, path = "/api/v1/approvals", tag = "approvals", params(Wanted, Paging),
    responses((status = 200, body = Listed<shapes::Approval>)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<ApprovalRow>>, Problem> {
    let conditions = [equals("state", wanted.state.and_then(word)), equals("run", wanted.run), own(&caller, "owner")];
    let order = Order { column: "asked_at", descending: true };
    let mut found = page::<Approvals>(&app.engine, conditions.into_iter().flatten().collect(), order, &paging).await?;
    found.items.iter_mut().for_each(|row| without_words(&caller, row));
    Ok(Json(found))
}

/// One approval.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", tag = "approvals",
    params(("id" = String, Path, description = "The approval")),
    responses((status = 200, body = shapes::Approval), (status = 404, body = shapes::Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<ApprovalId>,
) -> Result<Json<ApprovalRow>, Problem> {
    let mut row = seen(&app, id, &caller).await?;
    without_words(&caller, &mut row);
    Ok(Json(row))
}

/// Answers an approval. The first answer is final. Only a signed-in person answers: an admin, or, unless the rule wants
/// somebody else, the owner of what runs.
#[utoipa::path(post, path = "/api/v1/approvals/{id}/answer", tag = "approvals", request_body = Saying,
    params(("id" = String, Path, description = "The approval")),
    responses((status = 200, body = Recorded), (status = 403, body = shapes::Problem),
        (status = 409, body = shapes::Problem)))]
pub(crate) async fn answer(
    State(app): State<App>,
    Path(id): Path<ApprovalId>,
    asked: Asked<Saying>,
) -> Result<Json<Recorded>, Problem> {
    seen(&app, id, &asked.caller).await?;
    let by = answerer(&asked.caller)?;
    let yes = matches!(asked.body.answer, Said::Approve);
    let answer = Answer { approval: id, digest: asked.body.digest, yes, by };
    let done = app.engine.answer_approval(answer, &asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// An approval this caller sees.
pub(crate) async fn seen(app: &App, id: ApprovalId, caller: &Caller) -> Result<ApprovalRow, Problem> {
    let row = projector::get::<Approvals>(&app.engine, &id.to_string()).await?;
    row.filter(|row| caller.sees(row.owner)).ok_or_else(|| Problem::not_found("approval"))
}

/// Whoever answers is a person who is there: a token is nobody, and an auditor changes nothing.
pub(crate) fn answerer(caller: &Caller) -> Result<Answerer, Problem> {
    caller.must_change()?;
    if caller.session.is_none() {
        return Err(Problem::forbidden("only a signed-in person answers an approval, never a token"));
    }
    Ok(Answerer { user: caller.user(), admin: caller.role == Access::Admin })
}

/// Arguments are the admins' and the owner's to read.
fn without_words(caller: &Caller, row: &mut ApprovalRow) {
    if caller.role != Access::Admin && caller.user() != Some(row.owner) {
        row.arguments = None;
    }
}
