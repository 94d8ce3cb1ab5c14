//! The queue: order, length, age, and each delivery once.

use super::*;
use crate::spec::{at, id};

const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(77);

fn delivery(n: u128, expires: &str) -> DeliveryQueued {
    DeliveryQueued { delivery: id(n), trigger: id(4), expires_us: at(expires), redelivery: None }
}

fn holding(waiting: &[DeliveryQueued]) -> Target {
    let mut target = Target::default();
    waiting.iter().for_each(|delivery| target.queued(delivery));
    target
}

fn asked(n: u128, queue_max: u32) -> Queueing {
    Queueing { delivery: delivery(n, "09:00:00"), queue_max, newest_only: false }
}

fn claim(now: &str) -> ClaimNext {
    ClaimNext { namespace: NAMESPACE, process: id(9), now: at(now) }
}

fn run_of(n: u128) -> RunId {
    RunId::derived(
        NAMESPACE,
        &claim_key("scope", &["delivery", &id::<midwatch_events::id::Delivery>(n).to_string()]).hash,
    )
}

fn claimed(n: u128) -> [TargetEvent; 2] {
    let claim = RunClaimed {
        bot: None,
        run: run_of(n),
        cause: Cause::Delivery,
        window_us: None,
        delivery: Some(id(n)),
        redelivery: None,
        claimed_by: id(9),
        tzdb: None,
        next_us: None,
    };
    [TargetEvent::Claimed(claim), TargetEvent::Taken(id(n), run_of(n))]
}

fn expired(n: u128) -> TargetEvent {
    TargetEvent::Dropped(id(n), DropReason::Expired)
}

#[test]
fn a_queue_holds_its_length_and_no_more() {
    let target = holding(&[delivery(1, "09:00:00")]);
    assert_eq!(target.queue(asked(2, 2), false), [TargetEvent::Queued(delivery(2, "09:00:00"))]);
    let full = holding(&[delivery(1, "09:00:00"), delivery(2, "09:00:00")]);
    assert_eq!(full.queue(asked(3, 2), false), [TargetEvent::Dropped(id(3), DropReason::QueueFull)]);
    assert_eq!(Target::default().queue(asked(3, 0), false), [TargetEvent::Dropped(id(3), DropReason::QueueFull)]);
}

#[test]
fn the_same_delivery_waits_once_also_in_a_full_queue_and_for_a_target_that_is_gone() {
    let mut target = holding(&[delivery(1, "09:00:00")]);
    assert_eq!(target.queue(asked(1, 1), false), []);
    assert_eq!(target.queue(asked(1, 1), true), []);
    target.queued(&delivery(1, "10:00:00"));
    assert_eq!(target.queue, [delivery(1, "09:00:00")]);
}

#[test]
fn nothing_waits_for_a_target_that_is_gone() {
    assert_eq!(Target::default().queue(asked(1, 9), true), [TargetEvent::Dropped(id(1), DropReason::TargetGone)]);
    let waiting = holding(&[delivery(1, "09:00:00"), delivery(2, "09:00:00")]);
    let gone = |n| TargetEvent::Dropped(id(n), DropReason::TargetGone);
    assert_eq!(waiting.drop_all(), [gone(1), gone(2)]);
}

#[test]
fn the_oldest_is_claimed_first() {
    let mut target = holding(&[delivery(2, "09:00:00"), delivery(1, "09:00:00")]);
    assert_eq!(target.claim_next("scope", claim("08:00:00"), true), claimed(2));
    target.left_queue(id(2));
    assert_eq!(target.claim_next("scope", claim("08:00:00"), true), claimed(1));
}

#[test]
fn a_delivery_waits_while_a_run_is_live_or_the_target_is_off() {
    let mut target = holding(&[delivery(1, "09:00:00")]);
    assert_eq!(target.claim_next("scope", claim("08:00:00"), false), []);
    let TargetEvent::Claimed(live) = &claimed(2)[0] else { panic!("a claim") };
    target.claimed(live);
    assert_eq!(target.claim_next("scope", claim("08:00:00"), true), []);
    // Its age is over at its instant, not after it, whatever it waits for.
    assert_eq!(target.claim_next("scope", claim("08:59:59.999999"), true), []);
    assert_eq!(target.claim_next("scope", claim("09:00:00"), true), [expired(1)]);
}

/// Triggers that share a routine have ages of their own.
#[test]
fn what_is_too_old_is_dropped_wherever_it_stands() {
    let target =
        holding(&[delivery(1, "09:00:00"), delivery(2, "12:00:00"), delivery(3, "09:00:00"), delivery(4, "09:00:01")]);
    let [claim_2, taken_2] = claimed(2);
    assert_eq!(target.claim_next("scope", claim("09:00:00"), true), [expired(1), expired(3), claim_2, taken_2]);
    assert_eq!(target.claim_next("scope", claim("09:00:00"), false), [expired(1), expired(3)]);
    let all = target.claim_next("scope", claim("12:00:00"), true);
    assert_eq!(all, [expired(1), expired(2), expired(3), expired(4)]);
}

#[test]
fn attention_is_due_at_once_when_free_else_when_the_first_is_too_old() {
    assert_eq!(Target::default().attention_at(true), None);
    let mut target = holding(&[delivery(1, "12:00:00"), delivery(2, "09:00:00")]);
    assert_eq!(target.attention_at(true), Some(Micros(0)));
    assert_eq!(target.attention_at(false), Some(at("09:00:00")));
    let TargetEvent::Claimed(live) = &claimed(2)[0] else { panic!("a claim") };
    target.claimed(live);
    assert_eq!(target.attention_at(true), Some(at("09:00:00")));
}

#[test]
fn a_delivery_has_one_run_and_one_key_per_target() {
    let key = |scope, what: &[&str]| claim_key(scope, what).hash;
    assert_ne!(key("a", &["delivery", "1"]), key("b", &["delivery", "1"]));
    assert_ne!(key("a", &["delivery", "1"]), key("a", &["delivery", "2"]));
    // S35: parts do not run together.
    assert_ne!(key("a_", &["b"]), key("a", &["_b"]));
    assert_ne!(key("a", &["b", "c"]), key("a", &["bc"]));
}

#[test]
fn endings_in_a_row_are_counted() {
    let failing = Target { failures: 3, ..Target::default() };
    for (outcome, after) in [
        (Outcome::Succeeded, 0),
        (Outcome::Cancelled, 3),
        (Outcome::Failed, 4),
        (Outcome::Refused, 4),
        (Outcome::Stopped, 4),
        (Outcome::TimedOut, 4),
        (Outcome::Abandoned, 4),
    ] {
        assert_eq!(failing.failures_after(outcome), after, "{outcome:?}");
        let mut target = Target { live: Some(id(1)), ..failing.clone() };
        target.settled(&RunSettled { bot: None, run: id(1), outcome, reason: None });
        assert_eq!((target.live, target.failures), (None, after));
    }
}
