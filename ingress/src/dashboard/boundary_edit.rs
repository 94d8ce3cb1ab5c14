//! Editing the boundary: as JSON, checked with the place of each fault, then published with a note.

use askama::Template;
use axum::{extract::State, http::StatusCode};
use midwatch_boundary::{BoundaryDoc, presets};
use serde_json::value::RawValue;

use super::{
    boundaries::RuleView,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, capital, html, ok},
    text::{Shown, indented},
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
    presets: Vec<Preset>,
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
    checked: Option<Checked>,
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
    Ok(EditPage { frame, document, note, version, error, checked, presets: presets.collect() })
}

/// `GET /boundaries/edit`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor) -> Page {
    caller.must_be_admin()?;
    let (document, version) = app.engine.boundary().await?;
    let document = document.unwrap_or_else(|| midwatch_boundary::default_document().to_json());
    let typed = Typed { document: indented(&document), note: String::new(), version: version.to_string() };
    ok(&edit_page(&app, &caller, typed, None, None).await?)
}

fn typed(posted: &Posted) -> Typed {
    let fields = &posted.fields;
    Typed {
        document: fields.text("document"),
        note: fields.get("note").to_owned(),
        version: fields.get("version").to_owned(),
    }
}

/// `POST /boundaries/edit`: checks what was typed, or adds a preset to it. Nothing is published.
pub(super) async fn check(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let mut typed = typed(&posted);
    if let Some(added) = posted.fields.filled("add").and_then(|id| with_preset(&typed.document, id)) {
        typed.document = added;
    }
    let (_, checked) = checked(&app, &typed.document).await?;
    ok(&edit_page(&app, &posted.caller, typed, None, Some(checked)).await?)
}

/// `POST /boundaries`.
pub(super) async fn publish(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let typed = typed(&posted);
    let (document, checked) = checked(&app, &typed.document).await?;
    let Some(document) = document else {
        let page = edit_page(&app, &posted.caller, typed, None, Some(checked)).await?;
        return html(StatusCode::BAD_REQUEST, &page);
    };
    let (expected, origin) = (typed.version.parse().ok(), posted.caller.origin());
    let done = app.engine.publish_boundary(&document, &typed.note, expected, &origin, posted.request.as_ref()).await;
    match done {
        Ok(done) => seen(&app, done.position, "/boundaries?done=published").await,
        Err(error) => {
            let (status, sentence) = Failure::from(error).sentence()?;
            html(status, &edit_page(&app, &posted.caller, typed, Some(sentence), None).await?)
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
