//! What follows from what, as a table of all events.

use midwatch_events::{
    Family, Micros, New, StreamName, bot::BotEvent, codec, key::Digest, routine::MissedReason, routine::RearmCause,
    routine::RunClaimed, routine::RunSettled, routine::SkippedReason, routine::SuspendCause, run::Cause, run::Outcome,
};

use super::*;
use crate::spec::id;

/// What is stored in `react/<event>/<reaction>`: never change one, or what was reacted to is reacted to again.
#[test]
fn names_of_reactions_are_stored_for_ever() {
    let target = TargetId::Routine(id(1));
    let stored = [
        (Reaction::Queue { delivery: id(60), trigger: id(1), target }, "queue"),
        (Reaction::ClaimNext(target), "claim_next"),
        (Reaction::MarkQueued(queued()), "mark_queued"),
        (Reaction::MarkStarted { delivery: id(60), run: id(50) }, "mark_started"),
        (Reaction::MarkDropped { delivery: id(60), reason: DropReason::Expired }, "mark_dropped"),
    ];
    for (reaction, name) in stored {
        assert_eq!(reaction.name(), name);
    }
}

fn queued() -> DeliveryQueued {
    DeliveryQueued { delivery: id(60), trigger: id(4), expires_us: Micros(9), redelivery: None }
}

fn received(status: ReceivedStatus, routine: Option<RoutineId>) -> DeliveryEvent {
    DeliveryEvent::Received(Received {
        delivery: id(60),
        trigger: id(4),
        routine,
        status,
        event_type: None,
        body_bytes: 0,
        body_digest: Digest([0; 32]),
        parsed: false,
        unparsed: None,
        id_conflict: false,
        old_secret: false,
        held: None,
        held_until_us: None,
        queued: false,
    })
}

fn recorded<F: Family>(stream: StreamName, facts: F) -> Recorded {
    let encoded = codec::encode(&New::from(facts)).unwrap();
    Recorded {
        position: 1,
        stream,
        version: 1,
        event_id: uuid::Uuid::nil(),
        event_type: encoded.event_type,
        schema: encoded.schema,
        recorded_at: Micros(0),
        actor: "engine".to_owned(),
        correlation_id: None,
        causation_id: None,
        facts: encoded.facts,
        content: None,
        salt: None,
        commitment: None,
        leaf_hash: [0; 32],
    }
}

/// As the reactor does it: from the bytes in the ledger.
fn follows<F: Family>(stream: StreamName, facts: F) -> Vec<Reaction> {
    let recorded = recorded(stream, facts);
    let reactions = reactions(&AnyEvent::decode(&recorded).unwrap(), &recorded);
    let names: std::collections::BTreeSet<_> = reactions.iter().map(Reaction::name).collect();
    assert_eq!(names.len(), reactions.len(), "two reactions to one event under one key would be one");
    reactions
}

#[test]
fn an_accepted_delivery_is_queued_where_its_work_is_done() {
    let stream = || StreamName::delivery(id(60));
    let queue = |target| Reaction::Queue { delivery: id(60), trigger: id(4), target };
    let accepted = |routine| received(ReceivedStatus::Accepted, routine);
    assert_eq!(follows(stream(), accepted(Some(id(1)))), [queue(TargetId::Routine(id(1)))]);
    assert_eq!(follows(stream(), accepted(None)), [queue(TargetId::Trigger(id(4)))]);
    for status in
        [ReceivedStatus::Captured, ReceivedStatus::AwaitingConfirmation, ReceivedStatus::Filtered, ReceivedStatus::Held]
    {
        assert_eq!(follows(stream(), received(status, Some(id(1)))), [], "{status:?} starts nothing");
    }
    for event in [
        DeliveryEvent::Queued { trigger: id(4) },
        DeliveryEvent::Started { trigger: id(4), run: id(50) },
        DeliveryEvent::Dropped { trigger: id(4), reason: DropReason::Expired },
    ] {
        assert_eq!(follows(stream(), event), []);
    }
}

fn settled() -> RunSettled {
    RunSettled { bot: None, run: id(50), outcome: Outcome::Succeeded, reason: None }
}

fn claimed() -> RunClaimed {
    RunClaimed {
        bot: None,
        run: id(50),
        cause: Cause::Delivery,
        window_us: None,
        delivery: Some(id(60)),
        redelivery: None,
        claimed_by: id(9),
        tzdb: None,
        next_us: None,
    }
}

#[test]
fn a_routine_goes_on_with_its_queue_and_tells_its_deliveries() {
    let claim_next = || Reaction::ClaimNext(TargetId::Routine(id(1)));
    let started = Reaction::MarkStarted { delivery: id(60), run: id(50) };
    let dropped = Reaction::MarkDropped { delivery: id(60), reason: DropReason::TargetGone };
    let next_us = None;
    let table = [
        (RoutineEvent::DeliveryQueued(queued()), vec![Reaction::MarkQueued(queued()), claim_next()]),
        (RoutineEvent::RunSettled(settled()), vec![claim_next()]),
        (RoutineEvent::Resumed { next_us }, vec![claim_next()]),
        (RoutineEvent::DeliveryTaken { delivery: id(60), run: id(50) }, vec![started]),
        (RoutineEvent::DeliveryDropped { delivery: id(60), reason: DropReason::TargetGone }, vec![dropped]),
        (RoutineEvent::RunClaimed(claimed()), vec![]),
        (RoutineEvent::Renamed { name: String::new() }, vec![]),
        (RoutineEvent::Paused {}, vec![]),
        (RoutineEvent::Suspended { cause: SuspendCause::Failing }, vec![]),
        (RoutineEvent::Deleted {}, vec![]),
        (RoutineEvent::Rearmed { next_us, cause: RearmCause::Lifted, tzdb: None }, vec![]),
        (
            RoutineEvent::WindowsMissed {
                bot: None,
                first_us: Micros(1),
                last_us: Micros(1),
                count: 1,
                reason: MissedReason::Late,
                next_us,
            },
            vec![],
        ),
        (
            RoutineEvent::WindowSkipped {
                bot: None,
                window_us: Micros(1),
                reason: SkippedReason::Live,
                live: id(50),
                next_us,
            },
            vec![],
        ),
    ];
    for (event, expected) in table {
        assert_eq!(follows(StreamName::routine(id(1)), event.clone()), expected, "{event:?}");
    }
}

#[test]
fn a_trigger_with_an_instruction_of_its_own_does_the_same() {
    let claim_next = || Reaction::ClaimNext(TargetId::Trigger(id(4)));
    let started = Reaction::MarkStarted { delivery: id(60), run: id(50) };
    let dropped = Reaction::MarkDropped { delivery: id(60), reason: DropReason::QueueFull };
    let table = [
        (TriggerEvent::DeliveryQueued(queued()), vec![Reaction::MarkQueued(queued()), claim_next()]),
        (TriggerEvent::RunSettled(settled()), vec![claim_next()]),
        (TriggerEvent::Resumed {}, vec![claim_next()]),
        (TriggerEvent::DeliveryTaken { delivery: id(60), run: id(50) }, vec![started]),
        (TriggerEvent::DeliveryDropped { delivery: id(60), reason: DropReason::QueueFull }, vec![dropped]),
        (TriggerEvent::RunClaimed(claimed()), vec![]),
        (TriggerEvent::SampleCaptured { delivery: id(60) }, vec![]),
        (TriggerEvent::Confirmed { delivery: id(60) }, vec![]),
        (TriggerEvent::Paused {}, vec![]),
        (TriggerEvent::Deleted {}, vec![]),
    ];
    for (event, expected) in table {
        assert_eq!(follows(StreamName::trigger(id(4)), event.clone()), expected, "{event:?}");
    }
}

#[test]
fn what_stands_on_a_stream_without_an_id_concerns_no_target() {
    let stream = StreamName::stored("routine-old".to_owned());
    assert_eq!(follows(stream, RoutineEvent::RunSettled(settled())), []);
    assert_eq!(follows(StreamName::stored("bot-old".to_owned()), BotEvent::Retired {}), []);
}

#[test]
fn routines_of_a_bot_that_retires_and_of_a_person_who_is_revoked_are_suspended() {
    let suspend = |of| vec![Reaction::Suspend(of)];
    assert_eq!(follows(StreamName::bot(id(3)), BotEvent::Retired {}), suspend(WorksFor::Bot(id(3))));
    let revoked = UserEvent::Revoked { user: id(2) };
    assert_eq!(follows(StreamName::user(id(2)), revoked), suspend(WorksFor::Owner(id(2))));
    assert_eq!(follows(StreamName::bot(id(3)), BotEvent::Unreachable {}), []);
}
