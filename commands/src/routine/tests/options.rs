//! Overlap, catch-up, held windows, the number of runs, and newer time-zone data.

use midwatch_events::routine::{Missed, Overlap, Retry, SkippedReason};

use super::*;

fn overlapping(overlap: Overlap) -> Given<Routine> {
    limited(QUARTERS, "07:56:00", Limits { overlap, ..Limits::default() })
}

fn catching_up(within_s: u32) -> Given<Routine> {
    limited(QUARTERS, "07:56:00", Limits { missed: Missed::RunOnceWithin(within_s), ..Limits::default() })
}

/// As [`limited`]; its first window has run.
fn at_eight(limits: Limits) -> Given<Routine> {
    let routine = limited(AT_EIGHT, "07:00:00", limits).after(tick("08:00:00"));
    routine.after(settle(run_of("08:00:00"), Outcome::Succeeded))
}

fn unable(now: &str, reason: MissedReason) -> RoutineCommand {
    RoutineCommand::Tick(Tick { unable: Some(reason), ..tick_of(now) })
}

fn nobody(now: &str) -> RoutineCommand {
    unable(now, MissedReason::NoRunner)
}

fn not_its_turn(now: &str) -> RoutineCommand {
    RoutineCommand::Tick(Tick { catch_up: false, ..tick_of(now) })
}

fn queued(window: &str, live: RunId, next: &str) -> RoutineEvent {
    RoutineEvent::WindowQueued { window_us: at(window), live, bot: Some(id(3)), next_us: Some(at(next)) }
}

fn held(window: &str, reason: MissedReason) -> RoutineEvent {
    RoutineEvent::WindowHeld { window_us: at(window), reason, bot: Some(id(3)) }
}

fn missed_for(reason: MissedReason, window: &str, next: &str) -> RoutineEvent {
    let (window, next_us) = (at(window), Some(at(next)));
    RoutineEvent::WindowsMissed { first_us: window, last_us: window, count: 1, bot: Some(id(3)), reason, next_us }
}

fn caught_up(window: &str, next: &str) -> RoutineEvent {
    let RoutineEvent::RunClaimed(claim) = claimed(window, Some(next)) else { unreachable!() };
    RoutineEvent::RunClaimed(RunClaimed { cause: Cause::CatchUp, ..claim })
}

fn full(window: &str, live: RunId, next: &str) -> RoutineEvent {
    let (window_us, next_us, reason) = (at(window), Some(at(next)), SkippedReason::QueueFull);
    RoutineEvent::WindowSkipped { window_us, reason, live, bot: Some(id(3)), next_us }
}

fn change(limits: Limits, now: &str) -> RoutineCommand {
    RoutineCommand::Edit(Box::new(Edit { limits: Some(limits), now: at(now), ..Edit::default() }))
}

#[test]
fn queue_one_keeps_the_first_window_and_skips_the_later_ones() {
    let live = run_of("08:00:00");
    let routine = overlapping(Overlap::QueueOne).after(tick("08:00:00"));
    routine.when(tick("08:15:00")).then([queued("08:15:00", live, "08:30:00")]);
    let routine = routine.after(tick("08:15:00"));
    routine.when(tick("08:29:59")).then([]);
    routine.when(tick("08:30:00")).then([full("08:30:00", live, "08:45:00")]);
    // Free: the window that waited runs, however late it is by now, and the cadence goes on from where it was.
    let free = routine.after(tick("08:30:00")).after(settle(live, Outcome::Failed));
    free.when(tick("08:44:00")).then([claimed("08:15:00", Some("08:45:00"))]);
    let busy = free.after(tick("08:44:00"));
    assert_eq!((busy.0.queued, busy.0.target.live), (None, Some(run_of("08:15:00"))));
    busy.when(tick("08:45:00")).then([queued("08:45:00", run_of("08:15:00"), "09:00:00")]);
}

#[test]
fn a_window_that_waits_goes_before_deliveries() {
    let queue = midwatch_events::routine::DeliveryQueued {
        delivery: id(60),
        trigger: id(4),
        expires_us: at("20:00:00"),
        redelivery: None,
    };
    let queue = RoutineCommand::Queue(Queueing { delivery: queue, queue_max: 9, newest_only: false });
    let claim_next =
        || RoutineCommand::ClaimNext(ClaimNext { namespace: NAMESPACE, process: id(9), now: at("08:20:00") });
    let routine = overlapping(Overlap::QueueOne).after(tick("08:00:00")).after(tick("08:15:00")).after(queue);
    let free = routine.after(settle(run_of("08:00:00"), Outcome::Succeeded));
    free.when(claim_next()).then([]);
    let free = free.after(tick("08:20:00")).after(settle(run_of("08:15:00"), Outcome::Succeeded));
    assert!(free.after(claim_next()).0.target.live.is_some());
}

#[test]
fn a_window_that_waits_is_undone_by_a_pause_an_edit_or_a_lift() {
    let waits = || overlapping(Overlap::QueueOne).after(tick("08:00:00")).after(tick("08:15:00"));
    let live = || settle(run_of("08:00:00"), Outcome::Succeeded);
    let paused = waits().after(pause()).after(live()).after(resume("08:20:00"));
    paused.when(tick("08:20:00")).then([]);
    let edited = waits().after(reschedule(AT_EIGHT, "08:20:00")).after(live());
    edited.when(tick("08:20:00")).then([]);
    let lifted = waits().after(live());
    lifted.when(tick_lifted("08:20:00", "08:16:00")).then([rearmed(Some("08:30:00"))]);
    // One at the instant of the lift still exists.
    lifted.when(tick_lifted("08:20:00", "08:15:00")).then([claimed("08:15:00", Some("08:30:00"))]);
}

#[test]
fn cancel_live_ends_the_old_run_and_runs_the_window_in_one_append() {
    let live = run_of("08:00:00");
    let routine = overlapping(Overlap::CancelLive).after(tick("08:00:00"));
    let (outcome, reason) = (Outcome::Cancelled, Some(Reason::Replaced));
    let replaced = RoutineEvent::RunSettled(RunSettled { run: live, outcome, reason, bot: Some(id(3)) });
    routine.when(tick("08:15:00")).then([replaced, claimed("08:15:00", Some("08:30:00"))]);
    let next = routine.clone().after(tick("08:15:00"));
    assert_eq!((next.0.target.live, next.0.target.failures), (Some(run_of("08:15:00")), 0));
    // The old run says later that it is over: that frees nobody.
    next.when(settle(live, Outcome::Succeeded)).then([]);
    // Nobody could run the new one: the old one goes on.
    routine.when(nobody("08:15:00")).then([held("08:15:00", MissedReason::NoRunner)]);
}

#[test]
fn a_run_is_not_cancelled_by_the_next_window_of_the_same_tick() {
    let limits = Limits { overlap: Overlap::CancelLive, grace_s: 1_800, ..Limits::default() };
    let routine = limited(QUARTERS, "07:56:00", limits).after(pause()).after(resume("07:56:00"));
    routine
        .when(tick("08:15:00"))
        .then([claimed("08:00:00", Some("08:15:00")), skipped("08:15:00", run_of("08:00:00"), "08:30:00")]);
}

/// Two weeks down, and one run: the newest window, as a catch-up, and one event for the others.
#[test]
fn of_many_missed_windows_the_newest_is_caught_up_on_once() {
    let routine = at_eight(Limits { missed: Missed::RunOnceWithin(21_600), ..Limits::default() });
    let (last, next) = ("2026-12-15T08:00:00Z", "2026-12-16T08:00:00Z");
    let back = "2026-12-15T09:00:00Z";
    routine
        .when(tick(back))
        .then([missed("2026-12-02T08:00:00Z", "2026-12-14T08:00:00Z", 9, last), caught_up(last, next)]);
    let routine = routine.after(tick(back)).after(settle(run_of(last), Outcome::Failed));
    routine.when(tick(back)).then([]);
    assert_eq!(routine.0.target.windows_claimed, 2);
}

#[test]
fn a_catch_up_runs_until_exactly_its_time() {
    let routine = at_eight(Limits { missed: Missed::RunOnceWithin(3_600), ..Limits::default() });
    let (window, next) = ("2026-12-02T08:00:00Z", "2026-12-03T08:00:00Z");
    routine.when(tick("2026-12-02T08:10:00Z")).then([claimed(window, Some(next))]);
    routine.when(tick("2026-12-02T08:10:00.000001Z")).then([caught_up(window, next)]);
    routine.when(tick("2026-12-02T09:00:00Z")).then([caught_up(window, next)]);
    routine.when(tick("2026-12-02T09:00:00.000001Z")).then([missed(window, window, 1, next)]);
}

#[test]
fn a_newer_window_that_is_on_time_runs_instead_of_a_catch_up() {
    catching_up(21_600)
        .when(tick("09:05:00"))
        .then([missed("08:00:00", "08:45:00", 4, "09:00:00"), claimed("09:00:00", Some("09:15:00"))]);
}

#[test]
fn a_catch_up_waits_for_its_turn_and_for_the_live_run() {
    let limits = Limits { missed: Missed::RunOnceWithin(21_600), ..Limits::default() };
    let routine = at_eight(limits);
    let (window, next) = ("2026-12-02T08:00:00Z", "2026-12-03T08:00:00Z");
    let late = "2026-12-02T10:00:00Z";
    routine.when(not_its_turn(late)).then([]);
    let busy = routine.after(run_now(50));
    busy.when(tick(late)).then([]);
    busy.when(tick("2026-12-02T14:00:00.000001Z")).then([missed(window, window, 1, next)]);
    busy.after(settle(id(50), Outcome::Succeeded)).when(tick(late)).then([caught_up(window, next)]);
}

/// Rule: held is said once; it runs when somebody can, else it is missed with that reason.
#[test]
fn a_window_nobody_can_run_is_held_once_and_runs_within_its_grace() {
    let routine = routine(QUARTERS, "07:56:00");
    routine.when(nobody("08:00:00")).then([held("08:00:00", MissedReason::NoRunner)]);
    let held = routine.after(nobody("08:00:00"));
    held.when(nobody("08:00:30")).then([]);
    held.when(tick("08:10:00")).then([claimed("08:00:00", Some("08:15:00"))]);
    let over = missed_for(MissedReason::NoRunner, "08:00:00", "08:15:00");
    held.when(nobody("08:10:00.000001")).then([over.clone()]);
    // Also when a runner has come back only now.
    held.when(tick("08:10:00.000001")).then([over]);
    let unreachable = missed_for(MissedReason::BotUnreachable, "08:00:00", "08:15:00");
    held.when(unable("08:10:01", MissedReason::BotUnreachable)).then([unreachable]);
    // What came after it was looked at by nobody, and is late.
    held.when(tick("08:31:00")).then([
        missed_for(MissedReason::NoRunner, "08:00:00", "08:15:00"),
        missed("08:15:00", "08:15:00", 1, "08:30:00"),
        claimed("08:30:00", Some("08:45:00")),
    ]);
}

#[test]
fn a_held_window_runs_within_its_catch_up_time_and_is_missed_after_it() {
    let routine = at_eight(Limits { missed: Missed::RunOnceWithin(3_600), ..Limits::default() });
    let (window, next) = ("2026-12-02T08:00:00Z", "2026-12-03T08:00:00Z");
    let reason = MissedReason::BotUnreachable;
    let routine = routine.after(unable("2026-12-02T08:00:00Z", reason));
    routine.when(unable("2026-12-02T08:30:00Z", reason)).then([]);
    routine.when(tick("2026-12-02T09:00:00Z")).then([caught_up(window, next)]);
    routine.when(unable("2026-12-02T09:00:01Z", reason)).then([missed_for(reason, window, next)]);
}

#[test]
fn a_window_that_waits_and_that_nobody_can_run_ends_as_missed() {
    let routine = overlapping(Overlap::QueueOne).after(tick("08:00:00")).after(tick("08:15:00"));
    let free = routine.after(settle(run_of("08:00:00"), Outcome::Succeeded));
    free.when(nobody("08:16:00")).then([held("08:15:00", MissedReason::NoRunner)]);
    let held = free.after(nobody("08:16:00"));
    held.when(nobody("08:17:00")).then([]);
    held.when(nobody("08:26:00")).then([missed_for(MissedReason::NoRunner, "08:15:00", "08:30:00")]);
}

#[test]
fn only_claims_of_windows_count_towards_max_runs() {
    let limits = Limits { max_runs: Some(2), ..Limits::default() };
    let routine = limited(QUARTERS, "07:56:00", limits);
    // Neither a Run now, nor a window that was skipped or missed.
    let routine = routine.after(run_now(50)).after(tick("08:00:00")).after(settle(id(50), Outcome::Succeeded));
    let routine = routine.after(tick("08:29:00")).after(tick("08:30:00"));
    assert_eq!(routine.0.target.windows_claimed, 1);
    let routine = routine.after(settle(run_of("08:30:00"), Outcome::Cancelled));
    routine.when(tick("08:45:00")).then([claimed("08:45:00", None)]);
    let over = routine.after(tick("08:45:00")).after(settle(run_of("08:45:00"), Outcome::Failed));
    for now in ["08:45:00", "09:00:00", "23:00:00"] {
        over.when(tick(now)).then([]);
    }
    // Run now still works, and a resume brings nothing back.
    assert!(over.clone().after(run_now(51)).0.target.live.is_some());
    let again = over.clone().after(pause()).after(resume("10:00:00"));
    assert_eq!(again.0.next, None);
    // More runs: it goes on, and windows before that do not exist.
    let more = Limits { max_runs: Some(3), ..Limits::default() };
    let cause = RearmCause::MaxRuns;
    let rearmed = RoutineEvent::Rearmed { next_us: Some(at("10:15:00")), cause, tzdb: None };
    over.when(change(more.clone(), "10:01:00")).then([RoutineEvent::LimitsReplaced { limits: more.clone() }, rearmed]);
    let more = over.after(change(more, "10:01:00"));
    more.when(tick("10:15:00")).then([claimed("10:15:00", None)]);
}

#[test]
fn fewer_runs_than_there_were_end_a_routine() {
    let routine = routine(QUARTERS, "07:56:00").after(tick("08:00:00"));
    let routine = routine.after(settle(run_of("08:00:00"), Outcome::Succeeded));
    let one = Limits { max_runs: Some(1), ..Limits::default() };
    let cause = RearmCause::MaxRuns;
    let ended = RoutineEvent::Rearmed { next_us: None, cause, tzdb: None };
    routine.when(change(one.clone(), "08:01:00")).then([RoutineEvent::LimitsReplaced { limits: one.clone() }, ended]);
    routine.after(change(one, "08:01:00")).when(tick("08:15:00")).then([]);
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    for (limits, name) in [
        (Limits { max_runs: Some(0), ..Limits::default() }, "max_runs is 0"),
        (Limits { missed: Missed::RunOnceWithin(0), ..Limits::default() }, "run_once_within_s is 0"),
        (Limits { missed: Missed::RunOnceWithin(9_999_999), ..Limits::default() }, "run_once_within_s"),
        (Limits { retry: Some(Retry { times: 11, backoff_s: 1 }), ..Limits::default() }, "retry.times is 11"),
        (Limits { retry: Some(Retry { times: 1, backoff_s: 0 }), ..Limits::default() }, "retry.backoff_s is 0"),
    ] {
        let create = Create { limits, ..create(QUARTERS, "08:00:00") };
        given::<Routine>([]).when(RoutineCommand::Create(Box::new(create))).invalid(name);
    }
}

mod zone_data {
    use super::*;

    const VANCOUVER: &str = r#"{"kind":"weekly","zone":"America/Vancouver","days":["mon","tue","wed","thu","fri","sat","sun"],"times":["09:00"]}"#;
    /// By the rules of 2026 nine o'clock is 16:00Z for ever; by those before it is 17:00Z in winter.
    const NEW: [&str; 3] = ["2026-12-01T16:00:00Z", "2026-12-02T16:00:00Z", "2026-12-03T16:00:00Z"];
    const OLD: [&str; 3] = ["2026-12-01T17:00:00Z", "2026-12-02T17:00:00Z", "2026-12-03T17:00:00Z"];

    /// As a process with older data wrote it: the window of the first day ran, and the next is the second day's.
    fn ran_by_older_data(schedule: &str, ran: &str, next: &str) -> Given<Routine> {
        let routine = routine(schedule, "2026-11-30T20:00:00Z");
        let RoutineEvent::RunClaimed(claim) = claimed(ran, Some(next)) else { unreachable!() };
        let claim = RunClaimed { tzdb: Some("2025b".to_owned()), ..claim };
        routine.and(RoutineEvent::RunClaimed(claim)).after(settle(run_of(ran), Outcome::Succeeded))
    }

    fn moved(next: &str) -> RoutineEvent {
        let (cause, tzdb) = (RearmCause::ZoneData, Some("2026f".to_owned()));
        RoutineEvent::Rearmed { next_us: Some(at(next)), cause, tzdb }
    }

    #[test]
    fn a_window_that_newer_data_puts_earlier_is_neither_lost_nor_doubled() {
        let routine = ran_by_older_data(VANCOUVER, OLD[0], OLD[1]);
        routine.when(RoutineCommand::Rearm("2026f")).then([moved(NEW[1])]);
        let routine = routine.after(RoutineCommand::Rearm("2026f"));
        routine.when(RoutineCommand::Rearm("2026f")).then([]);
        routine.when(tick(NEW[1])).then([claimed(NEW[1], Some(NEW[2]))]);
        // An older process looks at it afterwards and changes nothing.
        routine.when(RoutineCommand::Rearm("2025b")).then([]);
    }

    /// The data had it an hour too early, and the day's window has run by that: it does not run again an hour later.
    #[test]
    fn a_window_that_newer_data_puts_later_is_neither_lost_nor_doubled() {
        let (early, late) = (["2026-12-01T15:00:00Z", "2026-12-02T15:00:00Z"], NEW);
        let routine = ran_by_older_data(VANCOUVER, early[0], early[1]);
        routine.when(RoutineCommand::Rearm("2026f")).then([moved(late[1])]);
        // Also when nobody looked before it was due by the older data.
        routine.when(tick(early[1])).then([moved(late[1])]);
        routine.after(tick(early[1])).when(tick(late[1])).then([claimed(late[1], Some(late[2]))]);
    }

    #[test]
    fn a_first_window_that_newer_data_moves_is_not_lost() {
        // Created by older data: its first window stands an hour later than it is.
        let created = |next| {
            let mut created = routine(VANCOUVER, "2026-11-30T20:00:00Z");
            created.0.evolve(&RoutineEvent::Resumed { next_us: Some(at(next)) }, at("2026-11-30T20:00:00Z"));
            created
        };
        created(OLD[0]).when(RoutineCommand::Rearm("2026f")).then([moved(NEW[0])]);
    }

    #[test]
    fn a_window_that_newer_data_leaves_alone_stays() {
        let routine = ran_by_older_data(AT_EIGHT, "2026-12-01T08:00:00Z", "2026-12-02T08:00:00Z");
        routine.when(RoutineCommand::Rearm("2026f")).then([]);
        routine
            .when(tick("2026-12-02T08:00:00Z"))
            .then([claimed("2026-12-02T08:00:00Z", Some("2026-12-03T08:00:00Z"))]);
    }
}
