//! What became of a delivery, for whoever sent it: status and outcome, nothing else.

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use midwatch_commands::{
    delivery::{Delivery, Fate},
    run::Run,
};
use midwatch_events::{StreamName, id::DeliveryId, run::Outcome};
use serde::Serialize;

use super::{
    Doors,
    known::Door,
    receive::{nothing_here, opened_now},
};
use crate::error::Problem;

#[derive(Debug, Serialize)]
struct Answer {
    status: &'static str,
    outcome: Option<Outcome>,
}

/// `GET /hooks/{endpoint}/deliveries/{id}`, with the sender's secret.
pub(super) async fn status(
    doors: &Doors,
    endpoint: &str,
    delivery: &str,
    sent: &HeaderMap,
) -> Result<Response, Problem> {
    let engine = &doors.app.engine;
    let door = doors.known.find(engine, endpoint).await?.ok_or_else(nothing_here)?;
    let now = engine.world().clock.now();
    let opened = |door: &Door| Ok(door.lock.opened_by_secret(engine, sent, now)?.then_some(()));
    let (door, ()) = opened_now(doors, endpoint, door, opened).await?;
    let delivery: DeliveryId = delivery.parse().map_err(|_| nothing_here())?;
    let delivery = engine.load::<Delivery>(&StreamName::delivery(delivery)).await?.state;
    // One sender's secret says nothing about another's deliveries.
    if delivery.received.is_none_or(|received| received.trigger != door.trigger) {
        return Err(nothing_here());
    }
    let outcome = match delivery.fate {
        Fate::Started(run) => engine.load::<Run>(&StreamName::run(run)).await?.state.ended.map(|(outcome, _)| outcome),
        Fate::Absent | Fate::Received(_) | Fate::Redelivered | Fate::Queued | Fate::Dropped(_) => None,
    };
    Ok(Json(Answer { status: delivery.fate.name(), outcome }).into_response())
}
