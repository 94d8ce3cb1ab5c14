//! Deliveries: one in a list, and one with its headers and body as text.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_engine::{projector, reading};
use midwatch_events::{Micros, id::DeliveryId};
use midwatch_projections::deliveries::{Deliveries, DeliveryRow, DeliveryStatus};

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    names::Names,
    status::{Mark, reason},
    text::{Shown, bytes, short_id, word},
    time::When,
    tree::{Tree, tree},
    visitor::{Posted, Visitor, seen},
};
use crate::{
    app::App,
    auth::Caller,
    error::Problem,
    hooks::{Again, verify_again},
};

/// What of a body is shown, in bytes.
const SHOWN: usize = 64 << 10;

/// A delivery in a list.
pub(crate) struct DeliveryLine {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) at: When,
    pub(crate) mark: Mark,
    pub(crate) why: Option<String>,
    pub(crate) event_type: Option<Shown>,
    pub(crate) size: String,
    pub(crate) run: Option<String>,
    /// Something about it that a person should know.
    pub(crate) remark: Option<Shown>,
}

impl DeliveryLine {
    pub(crate) fn new(row: &DeliveryRow, now: Micros) -> Self {
        let conflict = row.id_conflict.then(|| "its sender used this id before, for another body".to_owned());
        let unparsed = row.unparsed.as_deref().map(|why| format!("not read as JSON: {why}"));
        Self {
            id: row.id.to_string(),
            short: short_id(row.id),
            at: When::utc(row.received_at, now),
            mark: Mark::delivery(row.status),
            why: row.reason.map(|why| reason(&word(why))),
            event_type: row.event_type.as_deref().map(|text| Shown::short(text, 80)),
            size: bytes(row.body_bytes),
            run: row.run.map(|run| run.to_string()),
            remark: conflict.or(unparsed).map(|text| Shown::short(&text, 160)),
        }
    }

    /// Whether it is the trigger's sample.
    fn is_sample(row: &DeliveryRow) -> bool {
        row.status == DeliveryStatus::Captured
    }
}

/// What was posted, as text to read.
pub(crate) struct Sample {
    pub(crate) id: String,
    pub(crate) at: When,
    pub(crate) size: String,
    /// It is not this caller's to read.
    pub(crate) hidden: bool,
    pub(crate) erased: bool,
    /// It was asked for, and is below.
    pub(crate) read: bool,
    /// Where it is asked for.
    pub(crate) read_path: String,
    pub(crate) query: Option<Shown>,
    pub(crate) headers: Vec<(Shown, Shown)>,
    pub(crate) body: Option<Shown>,
    pub(crate) cut: bool,
    pub(crate) tree: Option<Tree>,
}

/// A delivery's headers and body, where they are asked for: that they were read is recorded.
pub(crate) async fn sample(
    app: &App,
    caller: &Caller,
    row: &DeliveryRow,
    read_path: String,
    read: bool,
    now: Micros,
) -> Result<Sample, Failure> {
    let mut sample = Sample {
        id: row.id.to_string(),
        at: When::utc(row.received_at, now),
        size: bytes(row.body_bytes),
        hidden: caller.must_read_evidence(app).await.is_err(),
        erased: row.erased,
        read: false,
        read_path,
        query: None,
        headers: Vec::new(),
        body: None,
        cut: false,
        tree: None,
    };
    if sample.hidden || !read {
        return Ok(sample);
    }
    let Some(found) = app.engine.read_delivery(row.id, &caller.origin()).await? else {
        sample.erased = true;
        return Ok(sample);
    };
    sample.read = true;
    sample.query = found.query.as_deref().map(|query| Shown::short(query, 2_000));
    sample.headers = found.headers.iter().map(|(name, value)| (Shown::line(name), Shown::short(value, 500))).collect();
    sample.cut = found.body.len() > SHOWN;
    let start = found.body.get(..SHOWN).unwrap_or(&found.body);
    sample.body = Some(Shown::lines(&String::from_utf8_lossy(start)));
    let header = |wanted: &str| found.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let (kind, packed) = (header("content-type"), header("content-encoding"));
    let json = reading::read(kind, packed, &found.body, reading::UNPACKED_BYTES_MAX);
    sample.tree = json.ok().and_then(|json| tree(std::str::from_utf8(&json).ok()?));
    Ok(sample)
}

#[derive(Template)]
#[template(path = "delivery.html")]
struct DeliveryPage {
    frame: Frame,
    error: Option<String>,
    line: DeliveryLine,
    is_sample: bool,
    sample: Sample,
    trigger: Shown,
    trigger_path: String,
    sender_id: Option<Shown>,
    redeliveries: u32,
    again: Option<Again>,
    position: u64,
}

/// What was asked for, beside what is known of it.
#[derive(Default)]
struct With {
    read: bool,
    again: Option<Again>,
    error: Option<String>,
}

async fn row(app: &App, caller: &Caller, id: &str) -> Result<DeliveryRow, Failure> {
    caller.must_read_all()?;
    let missing = || Failure(Problem::not_found("delivery"));
    let id: DeliveryId = id.parse().map_err(|_| missing())?;
    projector::get::<Deliveries>(&app.engine, &id.to_string()).await?.ok_or_else(missing)
}

async fn view(
    app: &App,
    caller: &Caller,
    row: &DeliveryRow,
    query: &Fields,
    with: With,
) -> Result<DeliveryPage, Failure> {
    let id = row.id;
    let frame = Frame::new(app, caller, Section::Triggers, format!("Delivery {}", short_id(id)), query).await?;
    let sample = sample(app, caller, row, format!("/deliveries/{id}/read#posted"), with.read, frame.now).await?;
    Ok(DeliveryPage {
        error: with.error,
        line: DeliveryLine::new(row, frame.now),
        is_sample: DeliveryLine::is_sample(row),
        sample,
        trigger: Names::default().trigger(&app.engine, row.trigger).await?,
        trigger_path: format!("/triggers/{}", row.trigger),
        sender_id: row.sender_id.as_deref().map(|id| Shown::short(id, 200)),
        redeliveries: row.redeliveries,
        again: with.again,
        position: row.position,
        frame,
    })
}

/// `GET /deliveries/{id}`.
pub(super) async fn page(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    let row = row(&app, &caller, &id).await?;
    ok(&view(&app, &caller, &row, &query, With::default()).await?)
}

/// `POST /deliveries/{id}/read`: what was posted. A form, so that no other page and no browser by itself makes somebody
/// read it.
pub(super) async fn read(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    posted.caller.must_read_evidence(&app).await?;
    let row = row(&app, &posted.caller, &id).await?;
    let with = With { read: true, ..With::default() };
    ok(&view(&app, &posted.caller, &row, &Fields::default(), with).await?)
}

/// `POST /deliveries/{id}/verify`: its signature again, with the keys that are sealed now.
pub(super) async fn verify(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let row = row(&app, &posted.caller, &id).await?;
    let again = verify_again(&app.engine, app.settings.public_url.as_deref(), row.id).await?;
    let with = With { again: Some(again), ..With::default() };
    ok(&view(&app, &posted.caller, &row, &Fields::default(), with).await?)
}

/// `POST /deliveries/{id}/redeliver`.
pub(super) async fn redeliver(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = row(&app, &posted.caller, &id).await?;
    match app.engine.redeliver(row.id, &posted.caller.origin(), posted.request.as_ref()).await {
        Ok(done) => seen(&app, done.position, &format!("/deliveries/{}?done=redelivered", row.id)).await,
        Err(error) => {
            let (status, sentence) = Failure::from(error).sentence()?;
            let with = With { error: Some(sentence), ..With::default() };
            html(status, &view(&app, &posted.caller, &row, &Fields::default(), with).await?)
        }
    }
}
