//! Deliveries: one in a list, and one with its headers and body as text.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_engine::projector;
use midwatch_events::{
    Micros, StreamName,
    delivery::{DeliveryContent, DeliveryEvent},
    id::DeliveryId,
    user::Access,
};
use midwatch_projections::deliveries::{Deliveries, DeliveryRow, DeliveryStatus};

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, ok},
    names::Names,
    status::{Mark, reason},
    text::{Shown, bytes, short_id, word},
    time::When,
    visitor::Visitor,
};
use crate::{app::App, auth::Caller, error::Problem};

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
    /// None where it is not this caller's to read, or was erased.
    pub(crate) headers: Vec<(Shown, Shown)>,
    pub(crate) body: Option<Shown>,
    pub(crate) cut: bool,
    pub(crate) hidden: bool,
}

/// A delivery's headers and body. Bodies are the admins' to read.
pub(crate) async fn sample(app: &App, caller: &Caller, id: DeliveryId, now: Micros) -> Result<Option<Sample>, Failure> {
    let Some(row) = projector::get::<Deliveries>(&app.engine, &id.to_string()).await? else { return Ok(None) };
    let mut sample = Sample {
        id: id.to_string(),
        at: When::utc(row.received_at, now),
        size: bytes(row.body_bytes),
        headers: Vec::new(),
        body: None,
        cut: false,
        hidden: caller.role != Access::Admin,
    };
    if sample.hidden {
        return Ok(Some(sample));
    }
    let events = app.engine.log().read_stream(&StreamName::delivery(id), 1, 1).await?;
    let content = events.first().map(|event| event.content::<DeliveryEvent>()).transpose()?.flatten();
    if let Some(DeliveryContent::Received { headers, .. }) = content {
        sample.headers = headers.iter().map(|(name, value)| (Shown::line(name), Shown::short(value, 500))).collect();
    }
    let body = app.engine.body(id).await?;
    sample.cut = body.as_ref().is_some_and(|body| body.len() > SHOWN);
    sample.body = body.map(|body| Shown::lines(&String::from_utf8_lossy(body.get(..SHOWN).unwrap_or(&body))));
    Ok(Some(sample))
}

#[derive(Template)]
#[template(path = "delivery.html")]
struct DeliveryPage {
    frame: Frame,
    line: DeliveryLine,
    is_sample: bool,
    sample: Sample,
    trigger: Shown,
    trigger_path: String,
    sender_id: Option<Shown>,
    position: u64,
}

/// `GET /deliveries/{id}`.
pub(super) async fn page(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    caller.must_read_all()?;
    let missing = || Failure(Problem::not_found("delivery"));
    let id: DeliveryId = id.parse().map_err(|_| missing())?;
    let row = projector::get::<Deliveries>(&app.engine, &id.to_string()).await?.ok_or_else(missing)?;
    let frame = Frame::new(&app, &caller, Section::Triggers, format!("Delivery {}", short_id(id)), &query).await?;
    let sample = sample(&app, &caller, id, frame.now).await?.ok_or_else(missing)?;
    ok(&DeliveryPage {
        line: DeliveryLine::new(&row, frame.now),
        is_sample: DeliveryLine::is_sample(&row),
        sample,
        trigger: Names::default().trigger(&app.engine, row.trigger).await?,
        trigger_path: format!("/triggers/{}", row.trigger),
        sender_id: row.sender_id.as_deref().map(|id| Shown::short(id, 200)),
        position: row.position,
        frame,
    })
}
