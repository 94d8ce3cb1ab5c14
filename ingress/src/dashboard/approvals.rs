//! Approvals: what waits for a person, and the card that is answered.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_boundary::BoundaryDoc;
use midwatch_commands::run::Answerer;
use midwatch_engine::{approvals::Answer, projector};
use midwatch_events::{Micros, id::ApprovalId, run::Approvers};
use midwatch_log::views::Order;
use midwatch_projections::{
    boundaries::Boundaries,
    projection::padded,
    run_approvals::{ApprovalRow, Approvals},
};

use super::{
    boundaries::RuleView,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    listing::{self, ROWS},
    names::{self, Names},
    scope,
    status::Mark,
    text::{Shown, indented},
    time::When,
    visitor::{Posted, Visitor, seen},
};
use crate::{api, app::App, auth::Caller, error::Problem};

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    frame: Frame,
    rows: Vec<Row>,
    next: Option<String>,
    first: bool,
}

struct Row {
    id: String,
    mark: Mark,
    what: Shown,
    rule: Shown,
    bot: Shown,
    asked: When,
    expires: When,
    open: bool,
}

fn mark(row: &ApprovalRow) -> Mark {
    row.answer.map_or_else(|| Mark { shape: "?", ..Mark::warn("waits for a person") }, Mark::answer)
}

/// What the call would act on, or, where that was erased, its tool.
fn what(row: &ApprovalRow) -> Shown {
    Shown::short(row.fingerprint.as_deref().unwrap_or(&row.tool), 200)
}

/// `GET /approvals`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    let frame = Frame::new(&app, &caller, Section::Watch, "Approvals", &query).await?;
    let order = Order { column: "asked_at", descending: true };
    let after = listing::after(&query);
    let first = after.is_none();
    let filters = scope::owned(&caller).into_iter().collect();
    let found = projector::page::<Approvals>(&app.engine, filters, order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next("/approvals", &query, cursor));
    let (mut rows, mut names) = (Vec::new(), Names::default());
    for (row, _) in &found {
        rows.push(Row {
            id: row.id.to_string(),
            mark: mark(row),
            what: what(row),
            rule: Shown::line(&row.rule),
            bot: names.bot(&app.engine, row.bot).await?,
            asked: When::utc(row.asked_at, frame.now),
            expires: When::utc(row.expires_at, frame.now),
            open: row.answer.is_none(),
        });
    }
    ok(&ApprovalsPage { frame, rows, next, first })
}

#[derive(Template)]
#[template(path = "approval.html")]
struct ApprovalPage {
    frame: Frame,
    error: Option<String>,
    id: String,
    mark: Mark,
    what: Shown,
    tool: Shown,
    arguments: Option<Shown>,
    rule: Option<RuleView>,
    rule_id: Shown,
    boundary: u64,
    bot: Shown,
    bot_id: String,
    run: String,
    owner: Shown,
    not_owner: bool,
    unattended: bool,
    digest: String,
    asked: When,
    expires: When,
    answered: Option<(When, Shown)>,
    spent: bool,
    /// Whether this person may answer it now.
    answers: bool,
    /// Why not, where it waits and they may not.
    why_not: Option<String>,
}

async fn found(app: &App, caller: &Caller, id: &str) -> Result<ApprovalRow, Failure> {
    let id: ApprovalId = id.parse().map_err(|_| Failure(Problem::not_found("approval")))?;
    Ok(api::approvals::seen(app, id, caller).await?)
}

/// The rule as it stood in the boundary that asked.
async fn rule(app: &App, row: &ApprovalRow) -> Result<Option<RuleView>, Failure> {
    let boundary = projector::get::<Boundaries>(&app.engine, &padded(row.boundary)).await?;
    let document = boundary.and_then(|boundary| BoundaryDoc::parse(&boundary.document).ok());
    let rule = document.and_then(|document| document.rules.into_iter().find(|rule| rule.id == row.rule));
    Ok(rule.as_ref().map(RuleView::new))
}

/// Whether this person may answer, as the ledger would say; and, where not, why.
fn may(row: &ApprovalRow, by: Result<Answerer, Problem>, now: Micros) -> Result<(), Option<String>> {
    if row.answer.is_some() {
        return Err(None);
    }
    if now >= row.expires_at {
        return Err(Some("Nobody answered in time.".to_owned()));
    }
    let by = by.map_err(|problem| Some(super::frame::capital(&problem.sentence)))?;
    let owner = by.user == Some(row.owner);
    match row.approvers {
        Approvers::NotOwner if owner => {
            Err(Some("The rule wants the answer of somebody who does not own the routine.".to_owned()))
        }
        Approvers::Any if owner => Ok(()),
        Approvers::Any | Approvers::NotOwner if by.admin => Ok(()),
        Approvers::Any | Approvers::NotOwner => Err(Some("Only an admin may answer this.".to_owned())),
    }
}

async fn view(
    app: &App,
    caller: &Caller,
    row: &ApprovalRow,
    query: &Fields,
    error: Option<String>,
) -> Result<ApprovalPage, Failure> {
    let frame = Frame::new(app, caller, Section::Watch, "A call waits for a person", query).await?;
    let now = frame.now;
    let (answers, why_not) = match may(row, api::approvals::answerer(caller), now) {
        Ok(()) => (true, None),
        Err(why) => (false, why),
    };
    let words = scope::reads_words(caller, row.owner);
    let answered = match (row.answered_at, &row.answered_by) {
        (Some(at), Some(by)) => Some((When::utc(at, now), names::actor(&app.engine, by).await?)),
        _ => None,
    };
    Ok(ApprovalPage {
        error,
        id: row.id.to_string(),
        mark: mark(row),
        what: what(row),
        tool: Shown::line(&row.tool),
        arguments: row.arguments.as_deref().filter(|_| words).map(|text| Shown::lines(&indented(text))),
        rule: rule(app, row).await?,
        rule_id: Shown::line(&row.rule),
        boundary: row.boundary,
        bot: Names::default().bot(&app.engine, row.bot).await?,
        bot_id: row.bot.to_string(),
        run: row.run.to_string(),
        owner: names::person(&app.engine, row.owner).await?,
        not_owner: row.approvers == Approvers::NotOwner,
        unattended: row.unattended,
        digest: row.digest.to_string(),
        asked: When::utc(row.asked_at, now),
        expires: When::utc(row.expires_at, now),
        answered,
        spent: row.spent_by.is_some(),
        answers,
        why_not,
        frame,
    })
}

/// `GET /approvals/{id}`.
pub(super) async fn approval(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    let row = found(&app, &caller, &id).await?;
    ok(&view(&app, &caller, &row, &query, None).await?)
}

/// `POST /approvals/{id}`: the answer names the digest that was shown.
pub(super) async fn answer(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let row = found(&app, &posted.caller, &id).await?;
    let by = api::approvals::answerer(&posted.caller)?;
    let yes = match posted.fields.get("answer") {
        "approve" => true,
        "decline" => false,
        _ => return Err(Problem::bad("invalid", "say `approve` or `decline`").into()),
    };
    let digest = posted.fields.get("digest").parse();
    let digest = digest.map_err(|_| Problem::bad("invalid", "the digest that was shown is missing"))?;
    let answer = Answer { approval: row.id, digest, yes, by };
    match app.engine.answer_approval(answer, &posted.caller.origin(), posted.request.as_ref()).await {
        Ok(done) => {
            let said = if yes { "approved" } else { "declined" };
            seen(&app, done.position, &format!("/approvals/{}?done={said}", row.id)).await
        }
        Err(error) => {
            let (status, sentence) = Failure::from(error).sentence()?;
            let row = found(&app, &posted.caller, &id).await?;
            html(status, &view(&app, &posted.caller, &row, &Fields::default(), Some(sentence)).await?)
        }
    }
}
