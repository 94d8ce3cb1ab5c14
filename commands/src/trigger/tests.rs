//! Triggers: the sample, the switch, the secret, and runs of an instruction of its own.

use midwatch_events::{
    routine::{DeliveryQueued, DropReason},
    run::Cause,
};

use super::*;
use crate::spec::{Given, at, given, id};
use crate::target::claim_key;

const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(77);

fn secret(n: u8) -> Secret {
    Secret { digest: Digest([n; 32]), sealed: None }
}

fn signing(n: u8) -> Secret {
    Secret { digest: Digest([n; 32]), sealed: Some(Bytes(vec![n])) }
}

/// With an instruction of its own.
fn own() -> Create {
    Create {
        trigger: id(1),
        name: "builds".to_owned(),
        owner: id(2),
        endpoint: "AAAAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        routine: None,
        bot: Some(id(3)),
        instruction: Some("look at the build".to_owned()),
        scheme: None,
        secret: secret(1),
        intake: Intake::default(),
        limits: Limits::default(),
    }
}

/// That hands its work to a routine.
fn forwarding() -> Create {
    Create { routine: Some(id(4)), bot: None, instruction: None, ..own() }
}

fn create(create: Create) -> TriggerCommand {
    TriggerCommand::Create(Box::new(create))
}

fn trigger() -> Given<Trigger> {
    given([]).after(create(own()))
}

fn confirm(delivery: Option<u128>) -> TriggerCommand {
    TriggerCommand::Confirm { delivery: delivery.map(id) }
}

#[test]
fn a_trigger_is_made_with_its_instruction_as_words() {
    let events = Trigger::default().decide(create(own())).unwrap();
    let work = Work { instruction: Some("look at the build".to_owned()), recording: None };
    assert_eq!(events[0].content, Some(TriggerContent::Created(work)));
    assert_eq!(events.len(), 1);
    let events = Trigger::default().decide(create(forwarding())).unwrap();
    assert_eq!(events[0].content, None);
    trigger().when(create(own())).refused(&Refusal::Exists("trigger"));
}

#[test]
fn a_trigger_has_a_routine_or_a_bot_with_an_instruction() {
    let none = given::<Trigger>([]);
    let either = "either a routine, or a Bot with an instruction";
    none.when(create(Create { bot: None, instruction: None, ..own() })).invalid(either);
    none.when(create(Create { bot: None, ..own() })).invalid(either);
    none.when(create(Create { routine: Some(id(4)), ..own() })).invalid(either);
    none.when(create(Create { bot: Some(id(3)), ..forwarding() })).invalid(either);
    none.when(create(Create { instruction: None, ..own() })).invalid("--instruction");
    none.when(create(Create { instruction: Some(" ".to_owned()), ..own() })).invalid("--instruction");
    none.when(create(Create { name: String::new(), ..own() })).invalid("needs a name");
    let limits = Limits { max_turns: 0, ..Limits::default() };
    none.when(create(Create { limits, ..own() })).invalid("max_turns");
}

/// W10: of two that arrive together the append decides; the loser loads again and is refused here.
#[test]
fn the_first_delivery_is_the_sample_and_no_other() {
    let trigger = trigger();
    trigger.when(TriggerCommand::Capture(id(60))).then([TriggerEvent::SampleCaptured { delivery: id(60) }]);
    let sampled = trigger.after(TriggerCommand::Capture(id(60)));
    sampled.when(TriggerCommand::Capture(id(61))).refused(&Refusal::Exists("sample"));
    let late = sampled.and(TriggerEvent::SampleCaptured { delivery: id(61) });
    assert_eq!(late.0.sample, Some(id(60)));
}

#[test]
fn a_confirmation_needs_the_sample_and_that_one() {
    trigger().when(confirm(None)).refused(&Refusal::NoSample);
    trigger().when(confirm(Some(60))).refused(&Refusal::NoSample);
    let sampled = trigger().after(TriggerCommand::Capture(id(60)));
    sampled.when(confirm(Some(61))).refused(&Refusal::OtherSample);
    for read in [None, Some(60)] {
        sampled.when(confirm(read)).then([TriggerEvent::Confirmed { delivery: id(60) }]);
    }
    let confirmed = sampled.after(confirm(None));
    confirmed.when(confirm(None)).refused(&Refusal::AlreadySo("this trigger is confirmed already"));
    confirmed.when(confirm(Some(61))).refused(&Refusal::OtherSample);
}

#[test]
fn pause_resume_and_delete_answer_what_is_so() {
    let open = trigger();
    open.when(TriggerCommand::Resume).refused(&Refusal::AlreadySo("this trigger is not paused"));
    open.when(TriggerCommand::Pause).then([TriggerEvent::Paused {}]);
    let paused = open.clone().after(TriggerCommand::Pause);
    paused.when(TriggerCommand::Pause).refused(&Refusal::AlreadySo("this trigger is paused already"));
    paused.when(TriggerCommand::Resume).then([TriggerEvent::Resumed {}]);
    open.when(TriggerCommand::Close).then([TriggerEvent::Paused {}]);
    paused.when(TriggerCommand::Close).then([]);
    let resumed = paused.clone().after(TriggerCommand::Resume);
    let gone = paused.clone().after(TriggerCommand::Delete);
    let found = [given([]), open, paused, resumed, gone.clone()].map(|trigger| trigger.0.open());
    assert_eq!(found, [false, true, false, true, false]);
    for command in [
        TriggerCommand::Pause,
        TriggerCommand::Resume,
        TriggerCommand::Delete,
        TriggerCommand::Capture(id(60)),
        TriggerCommand::Rotate { secret: secret(2), old_until: at("09:00:00") },
        confirm(None),
    ] {
        gone.when(command.clone()).refused(&Refusal::NotFound("trigger"));
        given::<Trigger>([]).when(command).refused(&Refusal::NotFound("trigger"));
    }
    gone.when(create(own())).refused(&Refusal::Exists("trigger"));
}

#[test]
fn a_rotated_secret_is_good_until_its_instant_and_only_the_last_one() {
    let rotate = |n, until| TriggerCommand::Rotate { secret: secret(n), old_until: at(until) };
    let trigger = trigger().after(rotate(2, "09:00:00"));
    assert_eq!(trigger.0.secret, Some(secret(2)));
    assert_eq!(trigger.0.old_secret, Some((secret(1), at("09:00:00"))));
    let trigger = trigger.after(rotate(3, "10:00:00"));
    assert_eq!(trigger.0.old_secret, Some((secret(2), at("10:00:00"))));
}

#[test]
fn a_secret_is_replaced_by_one_of_its_kind_and_another() {
    let rotate = |secret| TriggerCommand::Rotate { secret, old_until: at("09:00:00") };
    trigger().when(rotate(secret(1))).refused(&Refusal::AlreadySo("this is the secret the trigger has already"));
    for (of, to, said) in [(secret(1), signing(2), "sent along"), (signing(1), secret(2), "the new key it signs with")]
    {
        let trigger = given::<Trigger>([]).after(create(Create { secret: of, ..own() }));
        match trigger.0.decide(rotate(to)) {
            Err(Refusal::Invalid(sentence)) => assert!(sentence.contains(said), "{sentence}"),
            other => panic!("{other:?}"),
        }
    }
    let trigger = given::<Trigger>([]).after(create(Create { secret: signing(1), ..own() })).after(rotate(signing(2)));
    assert_eq!(trigger.0.secret, Some(signing(2)));
    assert_eq!(trigger.0.old_secret, Some((signing(1), at("09:00:00"))));
}

fn queue(n: u128) -> TriggerCommand {
    let delivery = DeliveryQueued { delivery: id(n), trigger: id(1), expires_us: at("20:00:00"), redelivery: None };
    TriggerCommand::Queue(crate::target::Queueing { delivery, queue_max: 2, newest_only: false })
}

fn claim_next(now: &str) -> TriggerCommand {
    TriggerCommand::ClaimNext(ClaimNext { namespace: NAMESPACE, process: id(9), now: at(now) })
}

fn dropped(n: u128, reason: DropReason) -> TriggerEvent {
    TriggerEvent::DeliveryDropped { delivery: id(n), reason }
}

#[test]
fn its_own_instruction_runs_one_delivery_after_the_other() {
    let trigger = trigger().after(queue(60)).after(queue(61));
    trigger.when(queue(62)).then([dropped(62, DropReason::QueueFull)]);
    trigger.when(queue(61)).then([]);
    let events = trigger.when(claim_next("08:00:00")).events();
    let [TriggerEvent::RunClaimed(claim), TriggerEvent::DeliveryTaken { delivery, run }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((claim.cause, claim.delivery, claim.run), (Cause::Delivery, Some(id(60)), *run));
    assert_eq!((*delivery, claim.next_us), (id(60), None));
    let new: Vec<_> = events.iter().cloned().map(New::from).collect();
    let text = (trigger_text(), id::<midwatch_events::id::Delivery>(60).to_string());
    assert_eq!(keys(id(1), &new), [claim_key(&text.0, &["delivery", &text.1])]);

    let busy = trigger.after(claim_next("08:00:00"));
    busy.when(claim_next("08:00:00")).then([]);
    let settle = |run| TriggerCommand::Settle { run, outcome: Outcome::Failed, reason: None };
    busy.when(settle(id(99))).then([]);
    let settled = RunSettled { bot: Some(id(3)), run: *run, outcome: Outcome::Failed, reason: None };
    busy.when(settle(*run)).then([TriggerEvent::RunSettled(settled)]);
    let free = busy.after(settle(*run)).after(claim_next("08:01:00"));
    assert!(free.0.target.live.is_some_and(|live| live != *run));
    assert!(free.0.target.queue.is_empty());
}

fn trigger_text() -> String {
    id::<midwatch_events::id::Trigger>(1).to_string()
}

#[test]
fn deliveries_wait_for_a_trigger_that_is_paused_and_end_with_one_that_is_deleted() {
    let paused = trigger().after(queue(60)).after(TriggerCommand::Pause);
    paused.when(claim_next("08:00:00")).then([]);
    paused.when(claim_next("20:00:00")).then([dropped(60, DropReason::Expired)]);
    let deleted = [TriggerEvent::Deleted {}, dropped(60, DropReason::TargetGone)];
    paused.when(TriggerCommand::Delete).then(deleted);
    let gone = paused.after(TriggerCommand::Delete);
    assert!(gone.0.target.queue.is_empty());
    gone.when(claim_next("08:00:00")).then([]);
    gone.when(queue(61)).then([dropped(61, DropReason::TargetGone)]);
}

#[test]
fn nothing_waits_at_a_trigger_that_hands_its_work_to_a_routine() {
    let forwarding = given::<Trigger>([]).after(create(forwarding()));
    forwarding.when(queue(60)).then([dropped(60, DropReason::TargetGone)]);
    given::<Trigger>([]).when(queue(60)).then([dropped(60, DropReason::TargetGone)]);
}
