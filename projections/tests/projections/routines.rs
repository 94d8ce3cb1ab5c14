//! The routines list, and what is due.

use midwatch_events::{
    Micros, New, StreamName,
    id::{DeliveryId, RoutineId, RunId},
    routine::{
        DeliveryQueued, DropReason, Limits, MissedReason, RearmCause, RoutineContent, RoutineEvent, RunClaimed,
        RunSettled, SkippedReason, SuspendCause, Work,
    },
    run::{Cause, Outcome, Reason, WorkKind},
    trigger::{Intake, TriggerEvent},
};
use midwatch_projections::{
    Cell, View,
    due::DueRow,
    routines_list::{Attention, RECENT, RoutineRow, RoutineState},
};

use crate::{
    samples::{BOT, DELIVERY, PROCESS, ROUTINE, RUN, TRIGGER, USER, id},
    story::{Story, after},
};

const SCHEDULE: &str = r#"{"kind":"every","zone":"Europe/Berlin","minutes":60}"#;

fn routine() -> RoutineId {
    id(ROUTINE, 0)
}

fn stream() -> StreamName {
    StreamName::routine(routine())
}

fn created(next_us: Option<Micros>) -> New<RoutineEvent> {
    let facts = RoutineEvent::Created {
        routine: routine(),
        name: "Morning report".to_owned(),
        owner: id(USER, 0),
        bot: id(BOT, 0),
        schedule: SCHEDULE.to_owned(),
        work: WorkKind::Instruction,
        limits: Limits::default(),
        anchor_us: after(0),
        next_us,
    };
    let work = Work { instruction: Some("Sort the inbox.".to_owned()), recording: None };
    New::with(facts, RoutineContent::Created(work))
}

fn claimed(run: u8, cause: Cause, window_us: Option<Micros>, next_us: Option<Micros>) -> RoutineEvent {
    let run = id(RUN, run);
    RoutineEvent::RunClaimed(RunClaimed {
        bot: None,
        run,
        cause,
        window_us,
        delivery: None,
        redelivery: None,
        claimed_by: id(PROCESS, 0),
        tzdb: None,
        next_us,
    })
}

fn settled(run: u8, outcome: Outcome, reason: Option<Reason>) -> RoutineEvent {
    RoutineEvent::RunSettled(RunSettled { bot: None, run: id(RUN, run), outcome, reason })
}

fn queued(delivery: u8, expires: i64) -> RoutineEvent {
    let (delivery, trigger) = (id(DELIVERY, delivery), id(TRIGGER, 0));
    RoutineEvent::DeliveryQueued(DeliveryQueued { delivery, trigger, expires_us: after(expires), redelivery: None })
}

fn listed(story: &Story) -> RoutineRow {
    story.row(View::RoutinesList, routine())
}

fn due_at(story: &Story) -> Option<Micros> {
    let row: DueRow = story.row(View::Due, stream());
    let cell = row.at.map_or(Cell::Null, |at| Cell::Int(at.0));
    assert_eq!(story.cells(View::Due, stream()), [cell]);
    row.at
}

#[test]
fn a_new_routine_is_active_and_due_at_its_first_window() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(3_600))));
    let row = listed(&story);
    assert_eq!((row.state, row.next_window, row.version), (RoutineState::Active, Some(after(3_600)), 1));
    assert_eq!((row.last_outcome, row.live_run), (None, None));
    assert_eq!(due_at(&story), Some(after(3_600)));
}

#[test]
fn the_stored_row_is_the_json_that_scripts_are_written_against() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(3_600))));
    let doc = String::from_utf8(story.stores[&View::RoutinesList][&routine().to_string()].0.clone()).unwrap();
    for part in [
        r#""id":"0198c0de-0000-7000-8000-000000000100""#,
        r#""name":"Morning report""#,
        r#""state":"active""#,
        r#""next_window":"2026-11-30T15:45:17.357Z""#,
        r#""last_outcome":null"#,
        r#""last_reason":null"#,
        r#""live_run":null"#,
    ] {
        assert!(doc.contains(part), "{part} in {doc}");
    }
}

#[test]
fn a_claimed_window_is_live_until_it_settles() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    story.at(61).is(&stream(), claimed(0, Cause::Schedule, Some(after(60)), Some(after(120))));
    let row = listed(&story);
    assert_eq!(
        (row.live_run, row.live_cause, row.live_since),
        (Some(id(RUN, 0)), Some(Cause::Schedule), Some(after(61)))
    );
    assert_eq!(row.next_window, Some(after(120)));
    assert_eq!(due_at(&story), Some(after(120)), "the next window is looked at even while a run is live");
    story.at(70).is(&stream(), settled(0, Outcome::Failed, Some(Reason::Error)));
    let row = listed(&story);
    assert_eq!((row.live_run, row.live_cause, row.live_window), (None, None, None));
    assert_eq!((row.last_outcome.as_deref(), row.last_reason.as_deref()), (Some("failed"), Some("error")));
    assert_eq!((row.last_at, row.failures), (Some(after(70)), 1));
    assert_eq!(row.recent[0].window, Some(after(60)));
    assert_eq!(row.recent[0].run, Some(id(RUN, 0)));
}

#[test]
fn a_late_settle_of_an_older_run_frees_nothing() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    story.is(&stream(), claimed(1, Cause::Person, None, Some(after(60))));
    story.is(&stream(), settled(0, Outcome::Succeeded, None));
    assert_eq!(listed(&story).live_run, Some(id(RUN, 1)));
    let row: DueRow = story.row(View::Due, stream());
    assert_eq!(row.live, Some(id::<midwatch_events::id::Run>(RUN, 1)));
}

#[test]
fn missed_and_skipped_windows_are_endings_too() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    story.at(4_000).is(
        &stream(),
        RoutineEvent::WindowsMissed {
            bot: None,
            first_us: after(60),
            last_us: after(120),
            count: 2,
            reason: MissedReason::Late,
            next_us: Some(after(4_020)),
        },
    );
    let row = listed(&story);
    assert_eq!((row.last_outcome.as_deref(), row.last_reason.as_deref()), (Some("missed"), Some("late")));
    assert_eq!((row.missed_total, row.next_window), (2, Some(after(4_020))));
    assert_eq!((row.recent[0].window, row.recent[0].count), (Some(after(120)), 2));
    let live: RunId = id(RUN, 2);
    story.is(
        &stream(),
        RoutineEvent::WindowSkipped {
            bot: None,
            window_us: after(4_020),
            reason: SkippedReason::Live,
            live,
            next_us: None,
        },
    );
    let row = listed(&story);
    assert_eq!((row.last_outcome.as_deref(), row.last_reason.as_deref()), (Some("skipped"), Some("live")));
    assert_eq!((row.recent[1].run, row.recent.len(), row.missed_total), (Some(live), 2, 2));
}

#[test]
fn the_strip_keeps_the_last_endings() {
    let mut story = Story::default();
    story.is(&stream(), created(None));
    for second in 0..40 {
        story.at(second).is(&stream(), settled(0, Outcome::Succeeded, None));
    }
    let row = listed(&story);
    assert_eq!(row.recent.len(), RECENT);
    assert_eq!(row.recent[0].at, after(10));
    assert_eq!(row.recent[RECENT - 1].at, after(39));
}

#[test]
fn a_routine_ends_when_nothing_is_left_to_do() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    story.is(&stream(), claimed(0, Cause::Schedule, Some(after(60)), None));
    assert_eq!(listed(&story).state, RoutineState::Active, "its last run is live");
    story.is(&stream(), queued(0, 500));
    story.is(&stream(), settled(0, Outcome::Succeeded, None));
    assert_eq!(listed(&story).state, RoutineState::Active, "a delivery waits");
    let reason = DropReason::Expired;
    story.is(&stream(), RoutineEvent::DeliveryDropped { delivery: id(DELIVERY, 0), reason });
    assert_eq!(listed(&story).state, RoutineState::Ended);
    assert_eq!(due_at(&story), None);
    story.is(&stream(), claimed(1, Cause::Person, None, None));
    assert_eq!(listed(&story).state, RoutineState::Active, "somebody runs it now");
    story.is(&stream(), settled(1, Outcome::Succeeded, None));
    story.is(
        &stream(),
        RoutineEvent::Rescheduled { schedule: SCHEDULE.to_owned(), anchor_us: after(0), next_us: Some(after(900)) },
    );
    assert_eq!((listed(&story).state, due_at(&story)), (RoutineState::Active, Some(after(900))));
}

#[test]
fn a_paused_routine_says_why_and_is_due_again_when_resumed() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    let reason = RoutineContent::Paused { reason: "on holiday".to_owned() };
    story.is(&stream(), New::with(RoutineEvent::Paused {}, reason));
    let row = listed(&story);
    assert_eq!((row.state, row.reason.as_deref(), row.next_window), (RoutineState::Paused, Some("on holiday"), None));
    assert_eq!(due_at(&story), None);
    story.is(
        &stream(),
        RoutineEvent::Rescheduled { schedule: SCHEDULE.to_owned(), anchor_us: after(0), next_us: Some(after(90)) },
    );
    assert_eq!((listed(&story).next_window, due_at(&story)), (None, None), "an edit resumes nothing");
    story.is(&stream(), RoutineEvent::Resumed { next_us: Some(after(120)) });
    let row = listed(&story);
    assert_eq!((row.state, row.reason, row.next_window), (RoutineState::Active, None, Some(after(120))));
    assert_eq!(due_at(&story), Some(after(120)));
}

#[test]
fn a_suspended_routine_says_what_was_found() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    let error = RoutineContent::Suspended { error: "ten endings in a row".to_owned() };
    story.is(&stream(), New::with(RoutineEvent::Suspended { cause: SuspendCause::Failing }, error));
    let row = listed(&story);
    assert_eq!((row.state, row.suspended), (RoutineState::Suspended, Some(SuspendCause::Failing)));
    assert_eq!(row.reason.as_deref(), Some("ten endings in a row"));
    assert_eq!(due_at(&story), None);
}

#[test]
fn a_deleted_routine_stays_as_deleted_and_is_never_due() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    story.is(&stream(), claimed(0, Cause::Schedule, Some(after(60)), Some(after(120))));
    story.is(&stream(), RoutineEvent::Deleted {});
    story.is(&stream(), settled(0, Outcome::Succeeded, None));
    story.is(&stream(), rearmed(RearmCause::Lifted, Some(after(300))));
    let row = listed(&story);
    assert_eq!((row.state, row.next_window, row.live_run), (RoutineState::Deleted, None, None));
    assert_eq!(row.last_outcome.as_deref(), Some("succeeded"));
    assert!(story.find::<DueRow>(View::Due, stream()).is_none());
}

#[test]
fn edits_change_the_row() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    story.is(&stream(), RoutineEvent::Renamed { name: "Evening report".to_owned() });
    story.is(&stream(), RoutineEvent::WorkReplaced { work: WorkKind::Recording });
    let limits = Limits { grace_s: 1, deadline_s: 2, max_turns: 3, ..Limits::default() };
    story.is(&stream(), RoutineEvent::LimitsReplaced { limits: limits.clone() });
    let row = listed(&story);
    assert_eq!(
        (row.name.as_str(), row.work, row.limits, row.version),
        ("Evening report", WorkKind::Recording, limits, 4)
    );
    assert_eq!(story.cells(View::RoutinesList, routine())[0], Cell::text("Evening report"));
}

#[test]
fn ten_failures_are_counted_and_a_success_ends_the_row() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    let outcomes = [Outcome::Failed, Outcome::Abandoned, Outcome::Cancelled, Outcome::TimedOut];
    for outcome in outcomes {
        story.is(&stream(), claimed(0, Cause::Person, None, None));
        story.is(&stream(), settled(0, outcome, None));
    }
    assert_eq!(listed(&story).failures, 3);
    story.is(&stream(), claimed(0, Cause::Person, None, None));
    story.is(&stream(), settled(0, Outcome::Succeeded, None));
    assert_eq!(listed(&story).failures, 0);
}

#[test]
fn a_waiting_delivery_is_due_at_once_or_when_its_age_is_over() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(10_000))));
    story.at(5).is(&stream(), queued(0, 800));
    story.at(6).is(&stream(), queued(1, 700));
    assert_eq!(due_at(&story), Some(after(5)), "nothing is live: it can start");
    story.is(&stream(), claimed(0, Cause::Person, None, Some(after(10_000))));
    assert_eq!(due_at(&story), Some(after(700)), "a run is live: only its age counts");
    story.is(&stream(), settled(0, Outcome::Succeeded, None));
    story.is(&stream(), RoutineEvent::Paused {});
    assert_eq!(due_at(&story), Some(after(700)), "paused: only its age counts");
    story.is(&stream(), RoutineEvent::Resumed { next_us: Some(after(10_000)) });
    story.is(&stream(), RoutineEvent::DeliveryTaken { delivery: id(DELIVERY, 0), run: id(RUN, 1) });
    assert_eq!(due_at(&story), Some(after(6)));
    story.is(&stream(), RoutineEvent::DeliveryTaken { delivery: id(DELIVERY, 1), run: id(RUN, 1) });
    assert_eq!(due_at(&story), Some(after(10_000)));
}

#[test]
fn a_trigger_with_its_own_instruction_has_a_queue_and_one_for_a_routine_has_none() {
    let created = |routine: Option<RoutineId>| TriggerEvent::Created {
        trigger: id(TRIGGER, 0),
        name: "invoices".to_owned(),
        owner: id(USER, 0),
        endpoint: "q0aZ4n9Xk2mB7-vT1_cLwE8r".to_owned(),
        routine,
        bot: routine.is_none().then(|| id(BOT, 0)),
        secret: midwatch_events::key::Digest([1; 32]),
        intake: Intake::default(),
        limits: Limits::default(),
        scheme: None,
        sealed: None,
    };
    let stream = StreamName::trigger(id(TRIGGER, 0));
    let delivery: DeliveryId = id(DELIVERY, 0);
    let mut story = Story::default();
    story.is(&stream, created(Some(routine())));
    assert!(story.find::<DueRow>(View::Due, &stream).is_none());
    let mut story = Story::default();
    story.is(&stream, created(None));
    assert_eq!(story.row::<DueRow>(View::Due, &stream).at, None);
    let waiting = DeliveryQueued { delivery, trigger: id(TRIGGER, 0), expires_us: after(100), redelivery: None };
    story.at(9).is(&stream, TriggerEvent::DeliveryQueued(waiting));
    assert_eq!(story.row::<DueRow>(View::Due, &stream).at, Some(after(9)));
    story.is(&stream, TriggerEvent::Paused {});
    assert_eq!(story.row::<DueRow>(View::Due, &stream).at, Some(after(100)));
    story.is(&stream, TriggerEvent::Deleted {});
    assert!(story.find::<DueRow>(View::Due, &stream).is_none());
}

fn rearmed(cause: RearmCause, next_us: Option<Micros>) -> RoutineEvent {
    RoutineEvent::Rearmed { next_us, cause, tzdb: None }
}

#[test]
fn a_window_that_waits_is_due_as_soon_as_nothing_is_live() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    story.is(&stream(), claimed(0, Cause::Schedule, Some(after(60)), Some(after(120))));
    let (window_us, live, next_us) = (after(120), id(RUN, 0), Some(after(10_000)));
    story.is(&stream(), RoutineEvent::WindowQueued { window_us, live, bot: None, next_us });
    assert_eq!((due_at(&story), listed(&story).queued_window), (next_us, Some(window_us)));
    story.is(&stream(), settled(0, Outcome::Succeeded, None));
    assert_eq!((due_at(&story), listed(&story).state), (Some(window_us), RoutineState::Active));
    // Newer zone data leaves it; a lift, a pause and its claim do not.
    story.is(&stream(), rearmed(RearmCause::ZoneData, next_us));
    assert_eq!(due_at(&story), Some(window_us));
    let mut lifted = story.clone();
    lifted.is(&stream(), rearmed(RearmCause::Lifted, next_us));
    assert_eq!((due_at(&lifted), listed(&lifted).queued_window), (next_us, None));
    story.is(&stream(), claimed(1, Cause::Schedule, Some(window_us), next_us));
    assert_eq!((due_at(&story), listed(&story).queued_window), (next_us, None));
    assert_eq!(listed(&story).windows_claimed, 2);
}

#[test]
fn what_a_person_should_look_at_is_in_the_row() {
    let mut story = Story::default();
    story.is(&stream(), created(Some(after(60))));
    let attention = |story: &Story| listed(story).attention;
    assert_eq!(attention(&story), []);
    let reason = MissedReason::NoRunner;
    story.at(60).is(&stream(), RoutineEvent::WindowHeld { window_us: after(60), reason, bot: None });
    let held = listed(&story).held.unwrap();
    assert_eq!((held.window, held.reason, held.since), (after(60), reason, after(60)));
    assert_eq!(attention(&story), [Attention::Held]);
    let (first_us, last_us, next_us) = (after(60), after(60), Some(after(120)));
    story.is(&stream(), RoutineEvent::WindowsMissed { first_us, last_us, count: 1, bot: None, reason, next_us });
    assert_eq!((listed(&story).held, attention(&story)), (None, vec![Attention::Missed]));
    assert_eq!(listed(&story).last_reason.as_deref(), Some("no_runner"));
    assert_eq!(story.cells(View::RoutinesList, routine()).last(), Some(&Cell::Int(1)));
    // The first ending that is no success already; one success ends it.
    for (outcome, expected) in [(Outcome::Failed, vec![Attention::Failing]), (Outcome::Succeeded, vec![])] {
        story.is(&stream(), claimed(0, Cause::Person, None, next_us));
        story.is(&stream(), settled(0, outcome, None));
        assert_eq!(attention(&story), expected);
    }
    story.is(&stream(), RoutineEvent::Suspended { cause: SuspendCause::BotRetired });
    assert_eq!(attention(&story), [Attention::Suspended]);
    story.is(&stream(), RoutineEvent::Deleted {});
    assert_eq!(attention(&story), []);
}
