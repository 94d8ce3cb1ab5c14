//! Triggers and their deliveries.

use midwatch_events::{
    New, StreamName,
    delivery::{DeliveryContent, DeliveryEvent, Received, ReceivedStatus},
    id::DeliveryId,
    key::Digest,
    routine::{DropReason, Limits, RunClaimed, RunSettled},
    run::{Cause, Outcome},
    trigger::{Intake, TriggerEvent},
};
use midwatch_projections::{
    Cell, View,
    deliveries::{DeliveryRow, DeliveryStatus},
    triggers::{TriggerRow, TriggerState},
};

use crate::{
    samples::{BOT, DELIVERY, PROCESS, RUN, TRIGGER, USER, id},
    story::{Story, after},
};

fn stream() -> StreamName {
    StreamName::trigger(id(TRIGGER, 0))
}

fn created() -> TriggerEvent {
    TriggerEvent::Created {
        trigger: id(TRIGGER, 0),
        name: "invoices".to_owned(),
        owner: id(USER, 0),
        endpoint: "q0aZ4n9Xk2mB7-vT1_cLwE8r".to_owned(),
        routine: None,
        bot: Some(id(BOT, 0)),
        secret: Digest([0x77; 32]),
        intake: Intake::default(),
        limits: Limits::default(),
        scheme: None,
        sealed: None,
    }
}

fn received(delivery: DeliveryId, status: ReceivedStatus) -> New<DeliveryEvent> {
    let facts = DeliveryEvent::Received(Received {
        delivery,
        trigger: id(TRIGGER, 0),
        routine: None,
        status,
        event_type: Some("invoice.paid".to_owned()),
        body_bytes: 17,
        body_digest: Digest([2; 32]),
        parsed: false,
        unparsed: Some("a NUL at byte 3".to_owned()),
        id_conflict: false,
        old_secret: false,
        held: None,
        held_until_us: None,
        queued: false,
    });
    let sender_id = Some("evt_1".to_owned());
    New::with(
        facts,
        DeliveryContent::Received {
            headers: Vec::new(),
            query: None,
            body: None,
            blob: None,
            sender_id,
            filter_error: None,
        },
    )
}

fn row(story: &Story) -> TriggerRow {
    story.row(View::Triggers, id::<midwatch_events::id::Trigger>(TRIGGER, 0))
}

fn delivery(story: &Story, n: u8) -> DeliveryRow {
    story.row(View::Deliveries, id::<midwatch_events::id::Delivery>(DELIVERY, n))
}

fn deliver(story: &mut Story, n: u8, event: impl Into<New<DeliveryEvent>>) {
    story.is(&StreamName::delivery(id(DELIVERY, n)), event);
}

#[test]
fn a_trigger_captures_a_sample_and_is_confirmed() {
    let mut story = Story::default();
    story.is(&stream(), created());
    assert_eq!((row(&story).state, row(&story).confirmed, row(&story).sample), (TriggerState::Active, false, None));
    deliver(&mut story, 0, received(id(DELIVERY, 0), ReceivedStatus::Captured));
    story.is(&stream(), TriggerEvent::SampleCaptured { delivery: id(DELIVERY, 0) });
    assert_eq!(row(&story).sample, Some(id(DELIVERY, 0)));
    story.at(30).is(&stream(), TriggerEvent::Confirmed { delivery: id(DELIVERY, 0) });
    let row = row(&story);
    assert_eq!((row.confirmed, row.confirmed_at, row.version), (true, Some(after(30)), 3));
    assert_eq!((row.last_received_at, row.counts[&DeliveryStatus::Captured]), (Some(after(0)), 1));
}

// A16 of docs/architecture.md.
#[test]
fn a_secrets_hash_is_in_no_row() {
    let mut story = Story::default();
    story.is(&stream(), created());
    story.is(
        &stream(),
        TriggerEvent::SecretRotated { secret: Digest([0x77; 32]), old_until_us: after(60), sealed: None },
    );
    for (doc, _) in story.stores[&View::Triggers].values().chain(story.stores[&View::Audit].values()) {
        assert!(!String::from_utf8_lossy(doc).contains("7777"));
    }
    assert_eq!(row(&story).old_secret_until, Some(after(60)));
}

#[test]
fn the_last_use_of_each_secret_is_told_apart() {
    let mut story = Story::default();
    story.is(&stream(), created());
    let used = |story: &Story| (row(story).secret_used_at, row(story).old_secret_used_at);
    assert_eq!(used(&story), (None, None));
    deliver(&mut story, 0, received(id(DELIVERY, 0), ReceivedStatus::Captured));
    assert_eq!(used(&story), (Some(after(0)), None));
    story
        .at(10)
        .is(&stream(), TriggerEvent::SecretRotated { secret: Digest([3; 32]), old_until_us: after(60), sealed: None });
    assert_eq!(used(&story), (None, Some(after(0))));
    let mut by_the_old_one = received(id(DELIVERY, 1), ReceivedStatus::Accepted);
    let DeliveryEvent::Received(facts) = &mut by_the_old_one.facts else { panic!("not received") };
    facts.old_secret = true;
    story.at(20);
    deliver(&mut story, 1, by_the_old_one);
    assert_eq!(used(&story), (None, Some(after(20))));
    story.at(30);
    deliver(&mut story, 2, received(id(DELIVERY, 2), ReceivedStatus::Accepted));
    assert_eq!(used(&story), (Some(after(30)), Some(after(20))));
}

#[test]
fn a_delivery_is_accepted_queued_and_started() {
    let mut story = Story::default();
    let trigger = id(TRIGGER, 0);
    story.is(&stream(), created());
    deliver(&mut story, 0, received(id(DELIVERY, 0), ReceivedStatus::Accepted));
    assert_eq!((delivery(&story, 0).status, delivery(&story, 0).run), (DeliveryStatus::Accepted, None));
    deliver(&mut story, 0, DeliveryEvent::Queued { trigger });
    assert_eq!(delivery(&story, 0).status, DeliveryStatus::Queued);
    assert_eq!(row(&story).waiting.len(), 1);
    story.at(9);
    deliver(&mut story, 0, DeliveryEvent::Started { trigger, run: id(RUN, 0) });
    let started = delivery(&story, 0);
    assert_eq!((started.status, started.run), (DeliveryStatus::Started, Some(id(RUN, 0))));
    assert_eq!((started.received_at, started.changed_at, started.position), (after(0), after(9), 2));
    assert_eq!((started.sender_id.as_deref(), started.unparsed.as_deref()), (Some("evt_1"), Some("a NUL at byte 3")));
    let row = row(&story);
    assert_eq!((row.waiting.len(), row.counts[&DeliveryStatus::Started]), (0, 1));
}

#[test]
fn a_dropped_delivery_is_expired_or_refused() {
    for (reason, status) in [
        (DropReason::Expired, DeliveryStatus::Expired),
        (DropReason::QueueFull, DeliveryStatus::Refused),
        (DropReason::TargetGone, DeliveryStatus::Refused),
    ] {
        let mut story = Story::default();
        story.is(&stream(), created());
        deliver(&mut story, 0, received(id(DELIVERY, 0), ReceivedStatus::Accepted));
        deliver(&mut story, 0, DeliveryEvent::Queued { trigger: id(TRIGGER, 0) });
        deliver(&mut story, 0, DeliveryEvent::Dropped { trigger: id(TRIGGER, 0), reason });
        assert_eq!((delivery(&story, 0).status, delivery(&story, 0).reason), (status, Some(reason)));
        assert_eq!((row(&story).waiting.len(), row(&story).counts[&status]), (0, 1));
    }
}

#[test]
fn the_stored_row_is_the_json_that_scripts_are_written_against() {
    let mut story = Story::default();
    deliver(&mut story, 0, received(id(DELIVERY, 0), ReceivedStatus::AwaitingConfirmation));
    let (doc, cells) = story.stores[&View::Deliveries].values().next().unwrap();
    let doc = String::from_utf8(doc.clone()).unwrap();
    for part in [
        r#""id":"0198c0de-0000-7000-8000-000000000400""#,
        r#""received_at":"2026-11-30T14:45:17.357Z""#,
        r#""status":"awaiting_confirmation""#,
        r#""event_type":"invoice.paid""#,
        r#""run":null"#,
    ] {
        assert!(doc.contains(part), "{part} in {doc}");
    }
    assert_eq!(cells[1], Cell::text("awaiting_confirmation"));
}

#[test]
fn a_trigger_is_paused_resumed_and_deleted_and_knows_its_live_run() {
    let mut story = Story::default();
    story.is(&stream(), created());
    story.is(&stream(), TriggerEvent::Paused {});
    assert_eq!(row(&story).state, TriggerState::Paused);
    story.is(&stream(), TriggerEvent::Resumed {});
    assert_eq!(row(&story).state, TriggerState::Active);
    story.is(
        &stream(),
        TriggerEvent::RunClaimed(RunClaimed {
            bot: None,
            run: id(RUN, 0),
            cause: Cause::Delivery,
            window_us: None,
            delivery: Some(id(DELIVERY, 0)),
            redelivery: None,
            claimed_by: id(PROCESS, 0),
            tzdb: None,
            next_us: None,
        }),
    );
    assert_eq!(row(&story).live_run, Some(id(RUN, 0)));
    let settled =
        |run| TriggerEvent::RunSettled(RunSettled { bot: None, run, outcome: Outcome::Succeeded, reason: None });
    story.is(&stream(), settled(id(RUN, 1)));
    assert_eq!(row(&story).live_run, Some(id(RUN, 0)));
    story.is(&stream(), settled(id(RUN, 0)));
    assert_eq!(row(&story).live_run, None);
    story.is(&stream(), TriggerEvent::Deleted {});
    assert_eq!(row(&story).state, TriggerState::Deleted);
}
