//! Editing the boundary: as JSON, checked with the place of each fault, then published with a note.

use askama::Template;
use axum::{extract::State, http::StatusCode};
use midwatch_boundary::{
    BoundaryDoc, presets,
    what_if::{Looked, Said, WhatIf},
};
use serde_json::value::RawValue;

use super::{
    boundaries::RuleView,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, capital, html, ok},
    text::{Shown, indented, word},
    visitor::{Posted, Visitor, seen},
};
use crate::{api, app::App, auth::Caller, error::Finding};

#[derive(Template)]
#[template(path = "boundary_edit.html")]
struct EditPage {
    frame: Frame,
    document: String,
    note: String,
    version: String,
    error: Option<String>,
    checked: Option<Checked>,
    tried: Option<Tried>,
    presets: Vec<Preset>,
}

/// What the document would have said to the last calls.
pub(crate) struct Tried {
    decisions: u64,
    same: u64,
    changed: u64,
    before_any_rule: u64,
    changes: Vec<(String, u64)>,
    calls: Vec<TriedCall>,
    not_told: Vec<TriedCall>,
    /// How many more there are than are shown.
    more: u64,
}

/// One call that would come out otherwise, or of which it cannot be told.
struct TriedCall {
    position: u64,
    run: String,
    what: Shown,
    was: String,
    would_be: String,
    why: Option<Shown>,
}

/// Changed calls shown on the page; the API gives all.
const CALLS_SHOWN: usize = 200;

impl Tried {
    fn new(found: &WhatIf) -> Self {
        let shown = |calls: &[Looked]| calls.iter().take(CALLS_SHOWN).map(TriedCall::new).collect::<Vec<_>>();
        let more = [&found.calls, &found.not_told].map(|calls| calls.len().saturating_sub(CALLS_SHOWN) as u64);
        Self {
            decisions: found.decisions,
            same: found.same,
            changed: found.changed,
            before_any_rule: found.before_any_rule,
            changes: found.changes.iter().map(|(change, count)| (change.clone(), *count)).collect(),
            calls: shown(&found.calls),
            not_told: shown(&found.not_told),
            more: more.iter().sum(),
        }
    }
}

impl TriedCall {
    fn new(call: &Looked) -> Self {
        let said = |said: &Said| match &said.rule {
            Some(rule) => format!("{} ({})", word(said.verdict), Shown::line(rule)),
            None => word(said.verdict),
        };
        let what = if call.fingerprint.is_empty() { &call.tool } else { &call.fingerprint };
        Self {
            position: call.position,
            run: call.run.to_string(),
            what: Shown::short(what, 200),
            was: said(&call.was),
            would_be: call.would_be.as_ref().map_or_else(|| "cannot be told".to_owned(), said),
            why: call.unevaluable.as_deref().map(Shown::line),
        }
    }
}

/// What checking a document came to.
pub(crate) struct Checked {
    findings: Vec<FindingView>,
    rules: usize,
}

/// One thing that is wrong.
struct FindingView {
    place: Option<String>,
    rule: Option<Shown>,
    sentence: Shown,
    corrected: Option<Shown>,
}

/// A rule ready to take over.
struct Preset {
    value: String,
    rule: RuleView,
    taken: bool,
}

/// Reads and compiles a document: its canonical text, or what is wrong with it.
async fn checked(app: &App, text: &str) -> Result<(Option<String>, Checked), Failure> {
    let rules = BoundaryDoc::parse(text).map(|document| document.rules.len());
    let outcome = match RawValue::from_string(text.to_owned()) {
        Ok(document) => api::boundary::checked(&app.engine, document).await?,
        Err(error) => {
            let sentence = format!("this is no JSON: {error}");
            let (line, column) = (error.line(), error.column());
            Err(vec![Finding { rule: None, line, column, sentence, corrected: None }])
        }
    };
    let (document, findings) = match outcome {
        Ok(document) => (Some(document), Vec::new()),
        Err(findings) => (None, findings),
    };
    let findings = findings.iter().map(FindingView::new).collect();
    Ok((document, Checked { findings, rules: rules.unwrap_or(0) }))
}

impl FindingView {
    fn new(finding: &Finding) -> Self {
        let rule = finding.rule.as_deref().filter(|rule| !rule.is_empty());
        let of = if rule.is_some() { "the rule" } else { "the document" };
        let place = format!("line {}, column {} of {of}", finding.line, finding.column);
        Self {
            place: Some(place).filter(|_| finding.line > 0),
            rule: rule.map(Shown::line),
            sentence: Shown::line(&capital(&finding.sentence)),
            corrected: finding.corrected.as_deref().map(Shown::line),
        }
    }
}

/// The document with a preset's rule before all others, where a deny rule is seen first.
fn with_preset(text: &str, id: &str) -> Option<String> {
    let rule = presets().into_iter().find(|rule| rule.id == id)?;
    let mut document = BoundaryDoc::parse(text).ok()?;
    if document.rules.iter().all(|other| other.id != rule.id) {
        document.rules.insert(0, rule);
    }
    Some(indented(&document.to_json()))
}

struct Typed {
    document: String,
    note: String,
    version: String,
}

async fn edit_page(
    app: &App,
    caller: &Caller,
    typed: Typed,
    error: Option<String>,
    (checked, tried): (Option<Checked>, Option<Tried>),
) -> Result<EditPage, Failure> {
    let frame = Frame::new(app, caller, Section::Boundaries, "Edit the boundary", &Fields::default()).await?;
    let there = BoundaryDoc::parse(&typed.document).map(|document| document.rules).unwrap_or_default();
    let offered = presets();
    let presets = offered.iter().map(|rule| Preset {
        value: rule.id.clone(),
        rule: RuleView::new(rule),
        taken: there.iter().any(|other| other.id == rule.id),
    });
    let Typed { document, note, version } = typed;
    Ok(EditPage { frame, document, note, version, error, checked, tried, presets: presets.collect() })
}

/// `GET /boundaries/edit`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor) -> Page {
    caller.must_be_admin()?;
    let (document, version) = app.engine.boundary().await?;
    let document = document.unwrap_or_else(|| midwatch_boundary::default_document().to_json());
    let typed = Typed { document: indented(&document), note: String::new(), version: version.to_string() };
    ok(&edit_page(&app, &caller, typed, None, (None, None)).await?)
}

fn typed(posted: &Posted) -> Typed {
    let fields = &posted.fields;
    Typed {
        document: fields.text("document"),
        note: fields.get("note").to_owned(),
        version: fields.get("version").to_owned(),
    }
}

/// `POST /boundaries/edit`: checks what was typed, tries it on what was decided, or adds a preset to it. Nothing is
/// published.
pub(super) async fn check(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let mut typed = typed(&posted);
    if let Some(added) = posted.fields.filled("add").and_then(|id| with_preset(&typed.document, id)) {
        typed.document = added;
    }
    let (document, checked) = checked(&app, &typed.document).await?;
    let tried = match document.filter(|_| posted.fields.has("try")) {
        None => None,
        Some(document) => {
            let found = api::boundary::tried(&app.engine, &document, api::boundary::TRY_LAST).await?;
            Some(Tried::new(&found))
        }
    };
    ok(&edit_page(&app, &posted.caller, typed, None, (Some(checked), tried)).await?)
}

/// `POST /boundaries`.
pub(super) async fn publish(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let typed = typed(&posted);
    let (document, checked) = checked(&app, &typed.document).await?;
    let Some(document) = document else {
        let page = edit_page(&app, &posted.caller, typed, None, (Some(checked), None)).await?;
        return html(StatusCode::BAD_REQUEST, &page);
    };
    let (expected, origin) = (typed.version.parse().ok(), posted.caller.origin());
    let done = app.engine.publish_boundary(&document, &typed.note, expected, &origin, posted.request.as_ref()).await;
    match done {
        Ok(done) => seen(&app, done.position, "/boundaries?done=published").await,
        Err(error) => {
            let (status, sentence) = Failure::from(error).sentence()?;
            html(status, &edit_page(&app, &posted.caller, typed, Some(sentence), (None, None)).await?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_added_once_and_checks() {
        let text = midwatch_boundary::default_document().to_json();
        let once = with_preset(&text, "no-submit").expect("a preset");
        assert_eq!(with_preset(&once, "no-submit").as_deref(), Some(once.as_str()));
        assert_eq!(with_preset("{", "no-submit"), None);
    }
}
