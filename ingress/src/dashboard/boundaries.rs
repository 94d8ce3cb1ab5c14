//! Boundaries: the document in force, rule by rule with its cost in words, and every version.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_boundary::{
    BoundaryDoc, Effect, Mode, Rule, Unattended, Verdict,
    diff::{Difference, differences},
};
use midwatch_engine::projector;
use midwatch_events::Micros;
use midwatch_log::views::Order;
use midwatch_projections::{
    boundaries::{Boundaries, BoundaryRow},
    projection::padded,
};

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, ok},
    listing::{self, ROWS},
    names,
    text::{Shown, indented},
    time::When,
    visitor::Visitor,
};
use crate::{app::App, error::Problem};

#[derive(Template)]
#[template(path = "boundaries.html")]
struct BoundariesPage {
    frame: Frame,
    shown: Option<Document>,
    /// Whether `shown` is the one in force.
    current: bool,
    versions: Vec<Version>,
    next: Option<String>,
}

/// A published document.
struct Document {
    version: Version,
    dry_run: bool,
    zone: Shown,
    rules: Vec<RuleView>,
    json: Shown,
    /// What is different from the version before; none for the first.
    changes: Option<Vec<ChangeView>>,
    /// The stored text is no document this binary can read.
    unreadable: bool,
}

/// One thing that is different from the version before.
struct ChangeView {
    what: String,
    from: Option<Shown>,
    to: Option<Shown>,
}

impl ChangeView {
    fn new(difference: &Difference) -> Self {
        let (what, from, to) = match difference {
            Difference::Changed { rule, member, from, to } => {
                let of = rule.as_ref().map_or_else(|| "the document".to_owned(), |rule| format!("the rule {rule}"));
                (format!("{member} of {of}"), Some(from.as_str()), Some(to.as_str()))
            }
            Difference::Added(rule) => (format!("the rule {}", rule.id), None, Some(rule.when.as_str())),
            Difference::Removed(rule) => (format!("the rule {}", rule.id), Some(rule.when.as_str()), None),
            Difference::Reordered { rules } => (format!("the order of the rules: {}", rules.join(", ")), None, None),
        };
        let what = Shown::short(&what, 300).to_string();
        Self { what, from: from.map(Shown::lines), to: to.map(Shown::lines) }
    }
}

/// What is different from the version before.
async fn changes(app: &App, row: &BoundaryRow, read: &BoundaryDoc) -> Result<Option<Vec<ChangeView>>, Failure> {
    let before = match row.version.checked_sub(1).filter(|version| *version > 0) {
        None => None,
        Some(version) => projector::get::<Boundaries>(&app.engine, &padded(version)).await?,
    };
    let before = before.and_then(|before| BoundaryDoc::parse(&before.document).ok());
    Ok(before.map(|before| differences(&before, read).iter().map(ChangeView::new).collect()))
}

/// One published version.
struct Version {
    number: u64,
    author: Shown,
    at: When,
    note: Option<Shown>,
    position: u64,
}

/// One rule.
pub(crate) struct RuleView {
    pub(crate) id: Shown,
    pub(crate) name: Shown,
    pub(crate) verdict: &'static str,
    pub(crate) shape: &'static str,
    pub(crate) when: Shown,
    pub(crate) shadow: bool,
    pub(crate) waits: bool,
    pub(crate) cost: Option<Shown>,
    pub(crate) note: Option<Shown>,
}

impl RuleView {
    pub(crate) fn new(rule: &Rule) -> Self {
        let (verdict, shape) = match rule.verdict {
            Verdict::Deny => ("deny", "⊘"),
            Verdict::Ask => ("ask", "?"),
            Verdict::Allow => ("allow", "✓"),
        };
        let filled = |text: &str| Some(text).filter(|text| !text.trim().is_empty()).map(Shown::line);
        Self {
            id: Shown::line(&rule.id),
            name: Shown::line(&rule.name),
            verdict,
            shape,
            when: Shown::lines(&rule.when),
            shadow: rule.effect == Effect::Shadow,
            waits: rule.verdict == Verdict::Ask && rule.unattended == Unattended::Wait,
            cost: filled(&rule.cost),
            note: filled(&rule.note),
        }
    }
}

async fn version_of(app: &App, row: &BoundaryRow, now: Micros) -> Result<Version, Failure> {
    Ok(Version {
        number: row.version,
        author: names::actor(&app.engine, &row.author).await?,
        at: When::utc(row.at, now),
        note: row.note.as_deref().filter(|note| !note.is_empty()).map(|note| Shown::short(note, 200)),
        position: row.position,
    })
}

async fn document(app: &App, row: &BoundaryRow, now: Micros) -> Result<Document, Failure> {
    let read = BoundaryDoc::parse(&row.document).ok();
    let unreadable = read.is_none();
    let read = read.unwrap_or(BoundaryDoc { mode: Mode::Enforce, zone: String::new(), rules: Vec::new() });
    let changes = changes(app, row, &read).await?;
    Ok(Document {
        changes,
        version: version_of(app, row, now).await?,
        dry_run: read.mode == Mode::DryRun,
        zone: Shown::line(&read.zone),
        rules: read.rules.iter().map(RuleView::new).collect(),
        json: Shown::lines(&indented(&row.document)),
        unreadable,
    })
}

/// `GET /boundaries`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_read_all()?;
    let frame = Frame::new(&app, &caller, Section::Boundaries, "Boundaries", &query).await?;
    let order = Order { column: "version", descending: true };
    let after = listing::after(&query);
    let newest = projector::page::<Boundaries>(&app.engine, Vec::new(), order, 1, None).await?;
    let found = projector::page::<Boundaries>(&app.engine, Vec::new(), order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next("/boundaries", &query, cursor));
    let mut versions = Vec::new();
    for (row, _) in &found {
        versions.push(version_of(&app, row, frame.now).await?);
    }
    let shown = match newest.first() {
        Some((row, _)) => Some(document(&app, row, frame.now).await?),
        None => None,
    };
    ok(&BoundariesPage { shown, current: true, versions, next, frame })
}

/// `GET /boundaries/{version}`.
pub(super) async fn version(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(version): Path<String>,
    query: Fields,
) -> Page {
    caller.must_read_all()?;
    let missing = || Failure(Problem::not_found("boundary"));
    let number: u64 = version.parse().map_err(|_| missing())?;
    let row = projector::get::<Boundaries>(&app.engine, &padded(number)).await?.ok_or_else(missing)?;
    let frame = Frame::new(&app, &caller, Section::Boundaries, format!("Boundary version {number}"), &query).await?;
    let shown = Some(document(&app, &row, frame.now).await?);
    ok(&BoundariesPage { shown, current: false, versions: Vec::new(), next: None, frame })
}
