//! What has to be done now and then, by whatever process keeps time: held deliveries expire, and words whose trigger
//! says for how long they are kept are erased when that is over.

use midwatch_commands::{
    Refusal,
    delivery::{Delivery, DeliveryCommand},
};
use midwatch_events::{Actor, Micros, StreamName};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    deliveries::{Deliveries, DeliveryRow, DeliveryStatus},
    triggers::Triggers,
};

use crate::{Engine, EngineError, Origin, handle::handle, projector};

/// Deliveries looked at in one go; the next go comes soon.
pub(crate) const PAGE: u32 = 200;
const DAY_S: i64 = 86_400;

/// Does what is due.
///
/// # Errors
/// A fault of the database.
pub(crate) async fn keep_up(engine: &Engine) -> Result<(), EngineError> {
    if engine.halt().await?.state.halted.is_some() {
        return Ok(());
    }
    let now = engine.log().store_time().await?;
    expire_held(engine, now).await?;
    erase_old(engine, now).await
}

async fn expire_held(engine: &Engine, now: Micros) -> Result<(), EngineError> {
    let over = Condition { column: "held_until", is: Test::Le(Cell::Int(now.0)) };
    let order = Order { column: "held_until", descending: false };
    let origin = Origin::of(Actor::Clock);
    for (row, _) in projector::page::<Deliveries>(engine, vec![over], order, PAGE, None).await? {
        let stream = StreamName::delivery(row.id);
        handle::<Delivery>(engine, &stream, &origin, None, |_| Ok(DeliveryCommand::Expire { now })).await?;
    }
    Ok(())
}

pub(crate) async fn erase_old(engine: &Engine, now: Micros) -> Result<(), EngineError> {
    let order = Order { column: "name", descending: false };
    let mut after = None;
    loop {
        let page = projector::page::<Triggers>(engine, vec![], order, PAGE, after).await?;
        for (row, _) in &page {
            if let Some(days) = row.intake.kept_days {
                erase_of(engine, row.id, days, now).await?;
            }
        }
        match page.last() {
            Some((_, cursor)) if page.len() == PAGE as usize => after = Some(cursor.clone()),
            _ => return Ok(()),
        }
    }
}

async fn erase_of(
    engine: &Engine,
    trigger: midwatch_events::id::TriggerId,
    days: u32,
    now: Micros,
) -> Result<(), EngineError> {
    let before = now.plus_s(-i64::from(days) * DAY_S);
    let filters = vec![
        Condition { column: "trigger", is: Test::Eq(Cell::Text(trigger.to_string())) },
        Condition { column: "erased", is: Test::Eq(Cell::Int(0)) },
        Condition { column: "received_at", is: Test::Lt(Cell::Int(before.0)) },
    ];
    let order = Order { column: "position", descending: false };
    let reason = format!("its trigger keeps headers and bodies for {days} days");
    let mut after = None;
    loop {
        let page = projector::page::<Deliveries>(engine, filters.clone(), order, PAGE, after).await?;
        let mut erased = false;
        for (row, _) in &page {
            erased |= erase_one(engine, row, &reason).await?;
        }
        // Where something went, the rest has time until the next look; what waits keeps nothing behind it.
        match page.last() {
            Some((_, cursor)) if page.len() == PAGE as usize && !erased => after = Some(cursor.clone()),
            _ => return Ok(()),
        }
    }
}

/// Whether it was erased: what has yet to run needs its words.
async fn erase_one(engine: &Engine, row: &DeliveryRow, reason: &str) -> Result<bool, EngineError> {
    let origin = Origin::of(Actor::Clock);
    let waits = match row.status {
        DeliveryStatus::Accepted | DeliveryStatus::Held | DeliveryStatus::Queued | DeliveryStatus::Redelivered => true,
        DeliveryStatus::Captured
        | DeliveryStatus::AwaitingConfirmation
        | DeliveryStatus::Filtered
        | DeliveryStatus::Started
        | DeliveryStatus::Coalesced
        | DeliveryStatus::Expired
        | DeliveryStatus::Refused => false,
    };
    if waits {
        return Ok(false);
    }
    match engine.erase_words(&StreamName::delivery(row.id), reason, &origin).await {
        // Somebody was faster, and its row is behind.
        Ok(_) | Err(EngineError::Refused(Refusal::AlreadySo(_))) => Ok(true),
        Err(error) => Err(error),
    }
}
