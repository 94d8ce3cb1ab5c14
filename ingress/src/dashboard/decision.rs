//! One decision explained: the rule that decided, every rule that matched, and everything they saw.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_boundary::{BoundaryDoc, Rule};
use midwatch_engine::projector;
use midwatch_events::{
    Recorded,
    id::RunId,
    run::{Decision, DecisionKind, RunContent, RunEvent},
};
use midwatch_projections::{boundaries::Boundaries, projection::padded, runs::Runs};
use serde_json::Value;

use super::{
    boundaries::RuleView,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, ok},
    names::Names,
    run_steps::refusal,
    scope,
    status::Mark,
    text::{Shown, spaced},
    time::When,
    visitor::Visitor,
};
use crate::{app::App, auth::Caller, error::Problem};

#[derive(Template)]
#[template(path = "decision.html")]
struct DecisionPage {
    frame: Frame,
    position: u64,
    at: When,
    mark: Mark,
    what: Shown,
    tool: Shown,
    intent: Shown,
    verdict: String,
    refusal: Option<&'static str>,
    enforced: bool,
    unattended: bool,
    run: String,
    bot: Shown,
    bot_id: String,
    boundary: u64,
    /// The rule that decided, as it stood.
    rule: Option<RuleView>,
    /// Every other rule that matched, as it stood.
    matched: Vec<RuleView>,
    broken: Vec<Shown>,
    /// The rules that were there and did not match.
    others: Vec<Shown>,
    /// What the rules saw: what differs from neutral. None once it was erased.
    saw: Option<Vec<(Shown, Shown)>>,
    approval: Option<String>,
    repeat_count: u32,
    repeat_same_result: u32,
    repeat_cycle: u32,
}

/// `GET /decisions/{position}`.
pub(super) async fn page(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(position): Path<String>,
    query: Fields,
) -> Page {
    let missing = || Failure(Problem::not_found("decision"));
    let position: u64 = position.parse().map_err(|_| missing())?;
    let recorded = app.engine.log().read_at(position).await?.ok_or_else(missing)?;
    let Ok(RunEvent::ToolCallDecided(decision)) = recorded.facts::<RunEvent>() else { return Err(missing()) };
    let run = projector::get::<Runs>(&app.engine, &decision.run.to_string()).await?;
    let run = run.filter(|run| caller.sees(run.owner)).ok_or_else(missing)?;
    let words = scope::reads_words(&caller, run.owner);
    ok(&view(&app, &caller, &recorded, decision, words, &query).await?)
}

async fn view(
    app: &App,
    caller: &Caller,
    recorded: &Recorded,
    decision: Decision,
    words: bool,
    query: &Fields,
) -> Result<DecisionPage, Failure> {
    let frame = Frame::new(app, caller, Section::Audit, "A decision", query).await?;
    let rules = rules(app, decision.boundary).await?;
    let of = |id: &String| rules.iter().find(|rule| rule.id == *id).map(RuleView::new);
    let content = recorded.content::<RunEvent>()?;
    let (saw, fingerprint) = match content {
        Some(RunContent::ToolCallDecided { context, fingerprint, .. }) => {
            (Some(saw(&context, words)), Some(fingerprint))
        }
        _ => (None, None),
    };
    let deciding = decision.rule.as_ref();
    let named = |id: &String| decision.matched.contains(id) || decision.broken.contains(id);
    let run: RunId = decision.run;
    Ok(DecisionPage {
        position: recorded.position,
        at: When::utc(recorded.recorded_at, frame.now),
        mark: mark(&decision),
        what: Shown::short(fingerprint.as_deref().unwrap_or(&decision.tool), 300),
        tool: Shown::line(&decision.tool),
        intent: Shown::line(&decision.intent.replace('_', " ")),
        verdict: spaced(decision.verdict),
        refusal: decision.refusal.map(refusal),
        enforced: decision.enforced,
        unattended: decision.unattended,
        run: run.to_string(),
        bot: Names::default().bot(&app.engine, decision.bot).await?,
        bot_id: decision.bot.to_string(),
        boundary: decision.boundary,
        rule: deciding.and_then(of),
        matched: decision.matched.iter().filter(|id| Some(*id) != deciding).filter_map(of).collect(),
        broken: decision.broken.iter().map(|id| Shown::line(id)).collect(),
        others: rules.iter().filter(|rule| !named(&rule.id)).map(|rule| Shown::line(&rule.id)).collect(),
        saw,
        approval: decision.approval.map(|id| id.to_string()),
        repeat_count: decision.repeat_count,
        repeat_same_result: decision.repeat_same_result,
        repeat_cycle: decision.repeat_cycle,
        frame,
    })
}

fn mark(decision: &Decision) -> Mark {
    match (decision.decision, decision.enforced) {
        (DecisionKind::Allowed, false) => Mark::warn("allowed: a dry run"),
        (kind, _) => Mark::decision(kind),
    }
}

/// The rules of a boundary, as they stood.
async fn rules(app: &App, version: u64) -> Result<Vec<Rule>, Failure> {
    let row = projector::get::<Boundaries>(&app.engine, &padded(version)).await?;
    Ok(row.and_then(|row| BoundaryDoc::parse(&row.document).ok()).map(|document| document.rules).unwrap_or_default())
}

/// Name and value of what the rules saw. Arguments are the admins' and the owner's to read.
fn saw(context: &str, words: bool) -> Vec<(Shown, Shown)> {
    let Ok(Value::Object(members)) = serde_json::from_str::<Value>(context) else { return Vec::new() };
    let seen = members.into_iter().filter(|(name, _)| words || name != "args");
    let shown = seen.map(|(name, value)| {
        let text = match &value {
            Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        };
        (Shown::line(&name), Shown::lines(&text))
    });
    shown.collect()
}
