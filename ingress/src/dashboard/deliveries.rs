//! The log of deliveries, searched by trigger, outcome, event type, sender's id and time. The whole search is in the URL.

use askama::Template;
use axum::extract::State;
use midwatch_engine::{projector, redeliveries::Matching};
use midwatch_log::views::{Condition, Order};
use midwatch_projections::deliveries::{Deliveries, DeliveryStatus};

use super::{
    days::Choice,
    delivery::DeliveryLine,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, ok},
    listing::{self, ROWS},
    names::Names,
    text::{Shown, encoded, spaced, word},
    visitor::Visitor,
};
use crate::{
    api::{deliveries::instant, equals},
    app::App,
    error::Problem,
};

/// What became of a delivery, as one may search for it.
const STATUSES: [DeliveryStatus; 11] = [
    DeliveryStatus::Accepted,
    DeliveryStatus::Captured,
    DeliveryStatus::AwaitingConfirmation,
    DeliveryStatus::Filtered,
    DeliveryStatus::Held,
    DeliveryStatus::Queued,
    DeliveryStatus::Started,
    DeliveryStatus::Coalesced,
    DeliveryStatus::Expired,
    DeliveryStatus::Redelivered,
    DeliveryStatus::Refused,
];

/// What is searched for.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    /// What many can be let run once more by.
    pub(super) matching: Matching,
    pub(super) sender_id: Option<String>,
}

/// The names of its fields.
pub(super) const FIELDS: [&str; 6] = ["trigger", "status", "event_type", "sender_id", "since", "until"];

impl Search {
    /// What a form's fields search for.
    pub(super) fn of(fields: &Fields) -> Result<Self, Failure> {
        let trigger = fields.filled("trigger").map(|id| {
            id.parse().map_err(|_| Failure(Problem::bad("invalid", "`trigger` is no trigger's id; leave it empty")))
        });
        let status = fields.filled("status").map(|wanted| {
            let found = STATUSES.iter().map(word).find(|status| status == wanted);
            found.ok_or_else(|| Failure(Problem::bad("invalid", "there is no such outcome")))
        });
        let matching = Matching {
            trigger: trigger.transpose()?,
            status: status.transpose()?,
            event_type: fields.filled("event_type").map(str::to_owned),
            since: instant("since", fields.filled("since"))?,
            until: instant("until", fields.filled("until"))?,
        };
        Ok(Self { matching, sender_id: fields.filled("sender_id").map(str::to_owned) })
    }

    fn conditions(&self) -> Vec<Condition> {
        let mut conditions = self.matching.conditions();
        conditions.extend(equals("sender_id", self.sender_id.as_ref()));
        conditions
    }
}

/// A form's fields as a query, so that the search can go on elsewhere.
pub(super) fn query_of(fields: &Fields) -> String {
    let filled = FIELDS.iter().filter_map(|name| Some(format!("{name}={}", encoded(fields.filled(name)?))));
    filled.collect::<Vec<_>>().join("&")
}

#[derive(Template)]
#[template(path = "deliveries.html")]
struct DeliveriesPage {
    frame: Frame,
    error: Option<String>,
    trigger: String,
    trigger_name: Option<Shown>,
    statuses: Vec<Choice<String, String>>,
    event_type: String,
    sender_id: String,
    since: String,
    until: String,
    /// Where the matching ones are counted, to let them run once more; none where that cannot be done.
    plan: Option<String>,
    deliveries: Vec<DeliveryLine>,
    next: Option<String>,
    first: bool,
}

/// `GET /deliveries`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_read_all()?;
    let frame = Frame::new(&app, &caller, Section::Triggers, "Deliveries", &query).await?;
    let (search, error) = match Search::of(&query) {
        Ok(search) => (Some(search), None),
        Err(failure) => (None, Some(failure.sentence()?.1)),
    };
    let after = listing::after(&query);
    let first = after.is_none();
    let order = Order { column: "position", descending: true };
    let found = match &search {
        Some(search) => projector::page::<Deliveries>(&app.engine, search.conditions(), order, ROWS, after).await?,
        None => Vec::new(),
    };
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next("/deliveries", &query, cursor));
    let trigger_name = match search.as_ref().and_then(|search| search.matching.trigger) {
        Some(id) => Some(Names::default().trigger(&app.engine, id).await?),
        None => None,
    };
    let plans = frame.admin && !found.is_empty() && search.as_ref().is_some_and(|search| search.sender_id.is_none());
    let chosen = query.get("status").to_owned();
    ok(&DeliveriesPage {
        error,
        trigger: query.get("trigger").to_owned(),
        trigger_name,
        statuses: STATUSES
            .map(|status| Choice { chosen: word(status) == chosen, value: word(status), name: spaced(status) })
            .into(),
        event_type: query.get("event_type").to_owned(),
        sender_id: query.get("sender_id").to_owned(),
        since: query.get("since").to_owned(),
        until: query.get("until").to_owned(),
        plan: plans.then(|| format!("/redeliveries/plan?{}", query_of(&query))),
        deliveries: found.iter().map(|(row, _)| DeliveryLine::new(row, frame.now)).collect(),
        next,
        first,
        frame,
    })
}
