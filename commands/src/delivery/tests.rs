//! What a delivery is taken in as, and what became of it.

use super::*;
use crate::{
    spec::{Given, given, id},
    trigger::{Create, TriggerCommand},
};
use midwatch_events::{key::Digest, routine::Limits, trigger::Intake};

fn received(status: ReceivedStatus) -> Received {
    Received {
        delivery: id(60),
        trigger: id(1),
        routine: None,
        status,
        event_type: None,
        body_bytes: 2,
        body_digest: Digest([7; 32]),
        parsed: true,
        unparsed: None,
        id_conflict: false,
        old_secret: false,
        held: None,
        held_until_us: None,
        queued: false,
    }
}

fn receive(status: ReceivedStatus) -> DeliveryCommand {
    let content = DeliveryContent::Received {
        headers: vec![],
        query: None,
        body: None,
        blob: None,
        sender_id: None,
        filter_error: None,
    };
    DeliveryCommand::Receive(Box::new(received(status)), content)
}

fn delivery(status: ReceivedStatus) -> Given<Delivery> {
    given([]).after(receive(status))
}

#[test]
fn a_delivery_is_received_once() {
    let first = given::<Delivery>([]);
    first.when(receive(ReceivedStatus::Held)).then([DeliveryEvent::Received(received(ReceivedStatus::Held))]);
    delivery(ReceivedStatus::Held).when(receive(ReceivedStatus::Accepted)).refused(&Refusal::Exists("delivery"));
}

#[test]
fn the_first_is_the_sample_and_nothing_runs_before_the_confirmation() {
    let create = Create {
        trigger: id(1),
        name: "builds".to_owned(),
        owner: id(2),
        endpoint: "AAAAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        routine: Some(id(4)),
        bot: None,
        instruction: None,
        scheme: None,
        secret: crate::trigger::Secret { digest: Digest([1; 32]), sealed: None },
        intake: Intake::default(),
        limits: Limits::default(),
    };
    let new = given::<Trigger>([]).after(TriggerCommand::Create(Box::new(create)));
    let sampled = new.clone().after(TriggerCommand::Capture(id(60)));
    let confirmed = sampled.clone().after(TriggerCommand::Confirm { delivery: None });
    for (trigger, may_start, expected) in [
        (&new, true, ReceivedStatus::Captured),
        (&new, false, ReceivedStatus::Captured),
        (&sampled, true, ReceivedStatus::AwaitingConfirmation),
        (&sampled, false, ReceivedStatus::AwaitingConfirmation),
        (&confirmed, true, ReceivedStatus::Accepted),
        (&confirmed, false, ReceivedStatus::Held),
    ] {
        let target = if may_start { Standing::Busy } else { Standing::Off };
        assert_eq!(status(&trigger.0, Passing::Passes, target).0, expected);
    }
}

#[test]
fn only_an_accepted_delivery_waits() {
    let queue = || DeliveryCommand::MarkQueued(id(1));
    delivery(ReceivedStatus::Accepted).when(queue()).then([DeliveryEvent::Queued { trigger: id(1) }]);
    for status in
        [ReceivedStatus::Captured, ReceivedStatus::AwaitingConfirmation, ReceivedStatus::Filtered, ReceivedStatus::Held]
    {
        delivery(status).when(queue()).then([]);
    }
    given::<Delivery>([]).when(queue()).then([]);
    delivery(ReceivedStatus::Accepted).after(queue()).when(queue()).then([]);
}

/// The reactor may be behind, or react twice: what became of a delivery stays.
#[test]
fn a_delivery_has_one_fate() {
    let queue = || DeliveryCommand::MarkQueued(id(1));
    let start = || DeliveryCommand::MarkStarted(id(1), id(50));
    let drop = || DeliveryCommand::MarkDropped(id(1), DropReason::Expired);
    let started = DeliveryEvent::Started { trigger: id(1), run: id(50) };
    let dropped = DeliveryEvent::Dropped { trigger: id(1), reason: DropReason::Expired };
    let accepted = delivery(ReceivedStatus::Accepted);
    for waiting in [accepted.clone(), accepted.after(queue())] {
        waiting.when(start()).then([started.clone()]);
        waiting.when(drop()).then([dropped.clone()]);
        for over in [waiting.clone().after(start()), waiting.after(drop())] {
            for command in [queue(), start(), drop(), DeliveryCommand::MarkStarted(id(1), id(51))] {
                over.when(command).then([]);
            }
        }
    }
    for command in [start(), drop()] {
        given::<Delivery>([]).when(command).then([]);
    }
}

#[test]
fn fates_have_the_names_of_the_design() {
    let names = [
        (Fate::Absent, "absent"),
        (Fate::Received(ReceivedStatus::Accepted), "accepted"),
        (Fate::Received(ReceivedStatus::Captured), "captured"),
        (Fate::Received(ReceivedStatus::AwaitingConfirmation), "awaiting_confirmation"),
        (Fate::Received(ReceivedStatus::Filtered), "filtered"),
        (Fate::Received(ReceivedStatus::Held), "held"),
        (Fate::Queued, "queued"),
        (Fate::Started(id(50)), "started"),
        (Fate::Dropped(DropReason::Expired), "expired"),
        (Fate::Dropped(DropReason::QueueFull), "refused"),
        (Fate::Dropped(DropReason::TargetGone), "refused"),
    ];
    for (fate, name) in names {
        assert_eq!(fate.name(), name);
    }
}
