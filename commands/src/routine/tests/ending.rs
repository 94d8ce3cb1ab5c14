//! Ends of runs, deliveries, and events that cannot have happened.

use midwatch_events::routine::{DeliveryQueued, DropReason};

use super::*;

fn settled(run: RunId, outcome: Outcome) -> RoutineEvent {
    RoutineEvent::RunSettled(RunSettled { bot: Some(id(3)), run, outcome, reason: None })
}

#[test]
fn a_settle_frees_the_routine_once() {
    let run = run_of("08:00:00");
    let routine = routine(QUARTERS, "07:56:00").after(tick("08:00:00"));
    routine.when(settle(run, Outcome::Succeeded)).then([settled(run, Outcome::Succeeded)]);
    let routine = routine.after(settle(run, Outcome::Succeeded));
    assert_eq!(routine.0.target.live, None);
    routine.when(settle(run, Outcome::Failed)).then([]);
}

/// S34: what an older run reports changes nothing of the live one.
#[test]
fn the_settle_of_an_older_run_changes_nothing() {
    let (older, live) = (run_of("08:00:00"), run_of("08:15:00"));
    let routine = routine(QUARTERS, "07:56:00").after(tick("08:00:00"));
    let routine = routine.after(settle(older, Outcome::Abandoned)).after(tick("08:15:00"));
    routine.when(settle(older, Outcome::Succeeded)).then([]);
    let late = routine.and(settled(older, Outcome::Succeeded));
    assert_eq!((late.0.target.live, late.0.target.failures), (Some(live), 1));
}

#[test]
fn a_live_run_of_a_routine_that_was_switched_off_still_settles() {
    let run = run_of("08:00:00");
    for off in [pause(), suspend(), RoutineCommand::Delete] {
        let routine = routine(QUARTERS, "07:56:00").after(tick("08:00:00")).after(off);
        routine.when(settle(run, Outcome::Succeeded)).then([settled(run, Outcome::Succeeded)]);
    }
}

/// One more run, started by hand, that ends so.
fn ran(routine: Given<Routine>, run: u128, outcome: Outcome) -> Given<Routine> {
    routine.after(run_now(run)).after(settle(id(run), outcome))
}

#[test]
fn ten_endings_in_a_row_that_are_no_success_suspend() {
    let bad =
        [Outcome::Failed, Outcome::Refused, Outcome::Stopped, Outcome::TimedOut, Outcome::Abandoned, Outcome::Failed];
    let mut routine = routine(QUARTERS, "07:56:00");
    for (run, outcome) in (100..).zip(bad.into_iter().chain(bad).take(9)) {
        routine = ran(routine, run, outcome);
        // Called off by a person: says nothing about the routine.
        routine = ran(routine, run + 100, Outcome::Cancelled);
        assert_eq!(routine.0.phase, Phase::Active);
    }
    let saved = ran(ran(routine.clone(), 300, Outcome::Succeeded), 301, Outcome::Failed);
    assert_eq!((saved.0.phase, saved.0.target.failures), (Phase::Active, 1));

    let tenth = routine.after(run_now(400));
    let suspended = RoutineEvent::Suspended { cause: SuspendCause::Failing };
    tenth.when(settle(id(400), Outcome::Stopped)).then([settled(id(400), Outcome::Stopped), suspended]);
    let off = tenth.after(settle(id(400), Outcome::Stopped));
    off.when(tick("08:00:00")).then([]);
    // A person may try again, and has ten endings again.
    let on = ran(off.after(resume("08:05:00")), 401, Outcome::Failed);
    assert_eq!((on.0.phase, on.0.target.failures), (Phase::Active, 1));
}

#[test]
fn a_paused_routine_is_not_suspended_by_failing_by_hand() {
    let routine = (100..111)
        .fold(routine(QUARTERS, "07:56:00").after(pause()), |routine, run| ran(routine, run, Outcome::Failed));
    assert_eq!(routine.0.phase, Phase::Paused);
}

fn delivery(n: u128, expires: &str) -> DeliveryQueued {
    DeliveryQueued { delivery: id(n), trigger: id(4), expires_us: at(expires), redelivery: None }
}

fn queue(n: u128) -> RoutineCommand {
    RoutineCommand::Queue(Queueing { delivery: delivery(n, "20:00:00"), queue_max: 2, newest_only: false })
}

fn claim_next(now: &str) -> RoutineCommand {
    RoutineCommand::ClaimNext(ClaimNext { namespace: NAMESPACE, process: id(9), now: at(now) })
}

fn run_of_delivery(n: u128) -> RunId {
    let (routine, delivery) = (id::<midwatch_events::id::Routine>(1), id::<midwatch_events::id::Delivery>(n));
    RunId::derived(NAMESPACE, &claim_key(&routine.to_string(), &["delivery", &delivery.to_string()]).hash)
}

#[test]
fn a_delivery_is_claimed_and_leaves_the_next_window_alone() {
    let routine = routine(QUARTERS, "07:56:00").after(queue(60));
    let claim = RoutineEvent::RunClaimed(RunClaimed {
        bot: Some(id(3)),
        run: run_of_delivery(60),
        cause: Cause::Delivery,
        window_us: None,
        delivery: Some(id(60)),
        redelivery: None,
        claimed_by: id(9),
        tzdb: None,
        next_us: Some(at("08:00:00")),
    });
    let taken = RoutineEvent::DeliveryTaken { delivery: id(60), run: run_of_delivery(60) };
    routine.when(claim_next("07:51:00")).then([claim, taken]);
    let busy = routine.after(claim_next("07:51:00"));
    assert!(busy.0.target.queue.is_empty());
    assert_eq!(busy.0.target.windows_claimed, 0);
    busy.when(tick("08:00:00")).then([skipped("08:00:00", run_of_delivery(60), "08:15:00")]);
}

#[test]
fn a_window_goes_before_the_deliveries_that_wait() {
    let routine = routine(QUARTERS, "07:56:00").after(queue(60)).after(tick("08:00:00"));
    routine.when(claim_next("08:00:00")).then([]);
    let free = routine.after(settle(run_of("08:00:00"), Outcome::Succeeded));
    assert_eq!(free.after(claim_next("08:01:00")).0.target.live, Some(run_of_delivery(60)));
}

#[test]
fn deliveries_wait_for_a_routine_that_is_off() {
    for off in [pause(), suspend()] {
        let routine = routine(QUARTERS, "07:56:00").after(off);
        routine.when(queue(60)).then([RoutineEvent::DeliveryQueued(delivery(60, "20:00:00"))]);
        let routine = routine.after(queue(60));
        routine.when(claim_next("08:00:00")).then([]);
        let expired = RoutineEvent::DeliveryDropped { delivery: id(60), reason: DropReason::Expired };
        routine.when(claim_next("20:00:00")).then([expired]);
        let on = routine.after(resume("09:00:00")).after(claim_next("09:00:00"));
        assert_eq!(on.0.target.live, Some(run_of_delivery(60)));
    }
}

/// Promise 4: what was accepted has an ending, also when its routine is deleted while it waits.
#[test]
fn deliveries_that_wait_for_a_routine_end_with_it() {
    let dropped = |n| RoutineEvent::DeliveryDropped { delivery: id(n), reason: DropReason::TargetGone };
    let routine = routine(QUARTERS, "07:56:00").after(queue(60)).after(queue(61));
    routine.when(RoutineCommand::Delete).then([RoutineEvent::Deleted {}, dropped(60), dropped(61)]);
    let gone = routine.after(RoutineCommand::Delete);
    assert!(gone.0.target.queue.is_empty());
    gone.when(queue(62)).then([dropped(62)]);
    gone.when(claim_next("08:00:00")).then([]);
    given::<Routine>([]).when(queue(62)).then([dropped(62)]);
}

#[test]
fn events_that_cannot_have_happened_leave_the_routine_alone() {
    let again = Routine::default().decide(RoutineCommand::Create(Box::new(create(AT_EIGHT, "09:00:00")))).unwrap();
    let again = || again[0].facts.clone();
    let gone = routine(QUARTERS, "07:56:00").after(RoutineCommand::Delete);
    for event in [
        again(),
        RoutineEvent::Paused {},
        RoutineEvent::Resumed { next_us: Some(at("08:00:00")) },
        RoutineEvent::Suspended { cause: SuspendCause::Failing },
    ] {
        assert_eq!(gone.clone().and(event.clone()).0.phase, Phase::Deleted, "{event:?}");
    }
    let on = routine(QUARTERS, "07:56:00").and(again());
    assert_eq!(on.0.next, Some(at("08:00:00")));
    let absent = given::<Routine>([RoutineEvent::Resumed { next_us: None }, claimed("08:00:00", None)]);
    assert_eq!(absent.0.existing(), Err(Refusal::NotFound("routine")));
    absent.when(tick("09:00:00")).then([]);
}
