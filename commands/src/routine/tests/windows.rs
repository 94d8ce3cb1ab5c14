//! How each window ends.

use super::*;

fn once(at: &str) -> String {
    format!(r#"{{"kind":"once","at":"{at}"}}"#)
}

/// S10: a window that another process left is claimed as long as its grace lasts, and not within some look-back.
#[test]
fn a_window_is_claimed_from_its_instant_to_exactly_its_grace() {
    let routine = routine(QUARTERS, "07:56:00");
    routine.when(tick("07:59:59.999999")).then([]);
    for now in ["08:00", "08:09:59.999999", "08:10"] {
        let now = if now.len() == 5 { format!("{now}:00") } else { now.to_owned() };
        routine.when(tick(&now)).then([claimed("08:00:00", Some("08:15:00"))]);
    }
}

#[test]
fn one_microsecond_after_its_grace_it_is_missed() {
    routine(QUARTERS, "07:56:00").when(tick("08:10:00.000001")).then([missed("08:00:00", "08:00:00", 1, "08:15:00")]);
}

#[test]
fn without_grace_only_the_instant_itself_runs() {
    let routine = with_grace(QUARTERS, "07:56:00", 0);
    routine.when(tick("08:00:00")).then([claimed("08:00:00", Some("08:15:00"))]);
    routine.when(tick("08:00:00.000001")).then([missed("08:00:00", "08:00:00", 1, "08:15:00")]);
}

/// S24: a minute job whose machine was down from Friday evening to Monday morning.
#[test]
fn a_weekend_down_is_one_missed_event_and_then_normal() {
    let minutes = r#"{"kind":"cron","zone":"UTC","expr":"* * * * *"}"#;
    let routine = with_grace(minutes, "2026-11-27T18:00:00Z", 30).after(tick("2026-11-27T18:01:00Z"));
    let routine = routine.after(settle(run_of("2026-11-27T18:01:00Z"), Outcome::Succeeded));
    let back = tick("2026-11-30T08:00:30Z");
    routine.when(back.clone()).then([
        missed("2026-11-27T18:02:00Z", "2026-11-30T07:59:00Z", 3_718, "2026-11-30T08:00:00Z"),
        claimed("2026-11-30T08:00:00Z", Some("2026-11-30T08:01:00Z")),
    ]);
    let routine = routine.after(back).after(settle(run_of("2026-11-30T08:00:00Z"), Outcome::Succeeded));
    routine.when(tick("2026-11-30T08:01:00Z")).then([claimed("2026-11-30T08:01:00Z", Some("2026-11-30T08:02:00Z"))]);
}

/// S11: a process that is started more often than the routine is due changes nothing of when that is.
#[test]
fn a_weekly_window_comes_although_the_process_never_stays_up_for_a_week() {
    let mondays = r#"{"kind":"weekly","zone":"UTC","days":["mon"],"times":["08:00"]}"#;
    let mut routine = routine(mondays, "2026-12-01T09:00:00Z");
    for week in [[1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14]] {
        for day in week {
            for up in ["00:30", "07:59"] {
                let up = tick(&format!("2026-12-{day:02}T{up}:00Z"));
                routine.when(up.clone()).then([]);
                routine = routine.after(up);
            }
        }
        let (due, next) =
            (format!("2026-12-{:02}T08:00:00Z", week[6]), format!("2026-12-{:02}T08:00:00Z", week[6] + 7));
        routine.when(tick(&due)).then([claimed(&due, Some(&next))]);
        routine = routine.after(tick(&due)).after(settle(run_of(&due), Outcome::Succeeded));
    }
}

/// S11: every six hours on a machine that is up for four hours a day.
#[test]
fn windows_stay_where_their_anchor_puts_them_on_a_machine_that_is_seldom_up() {
    let sixths = r#"{"kind":"every","zone":"UTC","minutes":360,"anchor":"2026-11-01T00:00:00Z"}"#;
    let mut routine = routine(sixths, "2026-12-01T10:00:00Z");
    for day in 1..9 {
        let at = |hour: &str| format!("2026-12-{day:02}T{hour}:00:00Z");
        if day > 1 {
            let evening = format!("2026-12-{:02}T18:00:00Z", day - 1);
            routine.when(tick(&at("09"))).then([missed(&evening, &at("06"), 3, &at("12"))]);
            routine = routine.after(tick(&at("09")));
        }
        routine.when(tick(&at("12"))).then([claimed(&at("12"), Some(&at("18")))]);
        routine = routine.after(tick(&at("12"))).after(settle(run_of(&at("12")), Outcome::Succeeded));
        routine.when(tick(&at("13"))).then([]);
    }
}

/// S5: two weeks down start one run, and the rest is one event.
#[test]
fn a_gap_with_several_windows_in_the_grace_starts_one_run() {
    let routine = with_grace(QUARTERS, "07:56:00", 1_800).after(pause()).after(resume("07:56:00"));
    routine.when(tick("09:00:00")).then([
        missed("08:00:00", "08:15:00", 2, "08:30:00"),
        claimed("08:30:00", Some("08:45:00")),
        skipped("08:45:00", run_of("08:30:00"), "09:00:00"),
        skipped("09:00:00", run_of("08:30:00"), "09:15:00"),
    ]);
}

/// S3: windows that find the previous run live are skipped, with its id, and the routine goes on afterwards.
#[test]
fn a_live_run_makes_windows_skipped() {
    let live = run_of("08:00:00");
    let routine = routine(QUARTERS, "07:56:00").after(tick("08:00:00"));
    routine.when(tick("08:15:00")).then([skipped("08:15:00", live, "08:30:00")]);
    let routine = routine.after(tick("08:15:00"));
    routine.when(tick("08:15:00")).then([]);
    let routine = routine.after(settle(live, Outcome::Succeeded));
    // The skipped window is over: it does not run once the routine is free.
    routine.when(tick("08:16:00")).then([]);
    routine.when(tick("08:30:00")).then([claimed("08:30:00", Some("08:45:00"))]);
}

#[test]
fn a_live_run_of_another_cause_makes_windows_skipped_too() {
    let routine = routine(QUARTERS, "07:56:00").after(run_now(50));
    routine.when(tick("08:00:00")).then([skipped("08:00:00", id(50), "08:15:00")]);
}

/// S1, S22, S7, S12: the next window moves from the window, not from the tick, and only by an event.
#[test]
fn the_next_window_follows_from_the_window_and_never_comes_back() {
    let routine = routine(QUARTERS, "07:56:00").after(tick("08:09:00"));
    let routine = routine.after(settle(run_of("08:00:00"), Outcome::Succeeded));
    assert_eq!(routine.0.next, Some(at("08:15:00")));
    for back in ["08:00:00", "08:14:59", "07:00:00"] {
        routine.when(tick(back)).then([]);
    }
    routine.when(tick("08:15:00")).then([claimed("08:15:00", Some("08:30:00"))]);
}

#[test]
fn windows_before_the_lift_of_a_halt_do_not_exist() {
    let routine = routine(QUARTERS, "07:56:00");
    // 08:00 is inside its grace and 08:15 is not due: neither is claimed or recorded as missed.
    routine.when(tick_lifted("08:05:00", "08:04:00")).then([rearmed(Some("08:15:00"))]);
    routine
        .when(tick_lifted("12:01:00", "11:50:00"))
        .then([rearmed(Some("12:00:00")), claimed("12:00:00", Some("12:15:00"))]);
    let later = routine.after(tick_lifted("08:05:00", "08:04:00"));
    later.when(tick_lifted("08:15:00", "08:04:00")).then([claimed("08:15:00", Some("08:30:00"))]);
}

#[test]
fn a_window_at_the_instant_of_the_lift_exists() {
    let routine = routine(QUARTERS, "07:56:00");
    routine.when(tick_lifted("08:00:00", "08:00:00")).then([claimed("08:00:00", Some("08:15:00"))]);
    routine
        .when(tick_lifted("08:15:00", "08:15:00"))
        .then([rearmed(Some("08:15:00")), claimed("08:15:00", Some("08:30:00"))]);
    routine.when(tick_lifted("08:15:00", "08:15:00.000001")).then([rearmed(Some("08:30:00"))]);
}

#[test]
fn a_lift_long_ago_changes_nothing() {
    routine(QUARTERS, "07:56:00")
        .when(tick_lifted("08:00:00", "07:00:00"))
        .then([claimed("08:00:00", Some("08:15:00"))]);
}

#[test]
fn a_lift_after_the_only_window_leaves_nothing_due() {
    let routine = routine(&once("2026-12-01T08:00:00Z"), "07:00:00");
    let lifted = tick_lifted("08:06:00", "08:05:00");
    routine.when(lifted.clone()).then([rearmed(None)]);
    routine.after(lifted.clone()).when(lifted).then([]);
}

#[test]
fn a_routine_that_is_off_records_nothing() {
    let routine = routine(QUARTERS, "07:56:00");
    for off in [pause(), suspend(), RoutineCommand::Delete] {
        let off = routine.clone().after(off);
        off.when(tick("08:00:00")).then([]);
        off.when(tick("23:00:00")).then([]);
        off.when(tick_lifted("23:00:00", "22:00:00")).then([]);
    }
    given::<Routine>([]).when(tick("08:00:00")).then([]);
}

#[test]
fn windows_before_the_resume_do_not_exist_and_one_at_it_does() {
    for off in [pause(), suspend()] {
        let off = routine(QUARTERS, "07:56:00").after(off);
        off.when(resume("08:05:00")).then([RoutineEvent::Resumed { next_us: Some(at("08:15:00")) }]);
        let on = off.clone().after(resume("08:05:00"));
        on.when(tick("08:05:00")).then([]);
        on.when(tick("08:15:00")).then([claimed("08:15:00", Some("08:30:00"))]);
        off.when(resume("08:15:00")).then([RoutineEvent::Resumed { next_us: Some(at("08:15:00")) }]);
        off.when(resume("08:15:00.000001")).then([RoutineEvent::Resumed { next_us: Some(at("08:30:00")) }]);
    }
}

/// S23: a schedule edited to a time between the last run and now does not fire at once.
#[test]
fn windows_before_an_edit_do_not_exist() {
    let routine = routine(AT_EIGHT, "07:00:00").after(tick("08:00:00"));
    let routine = routine.after(settle(run_of("08:00:00"), Outcome::Succeeded));
    let nine = AT_EIGHT.replace("08:00", "09:00");
    let routine = routine.after(reschedule(&nine, "09:05:00"));
    routine.when(tick("09:05:00")).then([]);
    assert_eq!(routine.0.next, Some(at("2026-12-02T09:00:00Z")));
}

#[test]
fn an_edit_takes_the_place_of_windows_that_were_due_and_not_claimed() {
    let routine = routine(QUARTERS, "07:56:00").after(reschedule(AT_EIGHT, "08:00:00"));
    routine.when(tick("08:00:00")).then([claimed("08:00:00", Some("2026-12-02T08:00:00Z"))]);
    let hourly = r#"{"kind":"every","zone":"UTC","minutes":60}"#;
    let hourly = routine.after(reschedule(hourly, "08:20:00"));
    // Without an anchor the grid starts at the edit.
    hourly.when(tick("09:19:59")).then([]);
    hourly.when(tick("09:20:00")).then([claimed("09:20:00", Some("10:20:00"))]);
}

/// A clock that was set back while somebody switches a routine off and on: no window runs twice.
#[test]
fn a_resume_or_edit_on_an_earlier_clock_repeats_no_window() {
    let run = run_of("08:00:00");
    let ran = routine(QUARTERS, "07:56:00").after(tick("08:00:00")).after(settle(run, Outcome::Succeeded));
    let resumed = ran.clone().after(pause()).after(resume("07:40:00"));
    resumed.when(tick("07:45:00")).then([]);
    resumed.when(tick("08:00:00")).then([]);
    resumed.when(tick("08:15:00")).then([claimed("08:15:00", Some("08:30:00"))]);

    let edited = ran.after(reschedule(AT_EIGHT, "07:40:00"));
    edited.when(tick("08:00:00")).then([]);
    assert_eq!(edited.0.next, Some(at("2026-12-02T08:00:00Z")));

    let missed = routine(QUARTERS, "07:56:00").after(tick("08:29:00"));
    let resumed = missed.after(pause()).after(resume("07:40:00"));
    assert_eq!(resumed.0.next, Some(at("08:30:00")), "08:00 and 08:15 were missed");
}

/// On a clock that was set back behind its creation, a routine that is switched off and on has no window before it.
#[test]
fn a_resume_on_a_clock_before_its_creation_brings_no_window_before_it() {
    let resumed = routine(QUARTERS, "07:56:00").after(pause()).after(resume("06:10:00"));
    assert_eq!(resumed.0.next, Some(at("08:00:00")));
    resumed.when(tick("07:30:00")).then([]);
}

/// "Weekdays at eight", written at three past eight, runs today.
#[test]
fn a_routine_written_inside_the_grace_of_a_window_runs_it() {
    for now in ["08:00:00", "08:03:00", "08:10:00"] {
        routine(AT_EIGHT, now).when(tick(now)).then([claimed("08:00:00", Some("2026-12-02T08:00:00Z"))]);
    }
}

#[test]
fn a_routine_written_after_the_grace_neither_runs_nor_records_the_window() {
    let routine = routine(AT_EIGHT, "08:10:00.000001");
    routine.when(tick("08:10:00.000001")).then([]);
    assert_eq!(routine.0.next, Some(at("2026-12-02T08:00:00Z")));
    routine.when(tick("2026-12-02T08:00:00Z")).then([claimed("2026-12-02T08:00:00Z", Some("2026-12-03T08:00:00Z"))]);
}

#[test]
fn of_several_windows_before_the_creation_only_the_newest_runs() {
    let routine = with_grace(QUARTERS, "08:40:00", 3_600);
    routine.when(tick("08:40:00")).then([claimed("08:30:00", Some("08:45:00"))]);
}

#[test]
fn an_interval_without_an_anchor_is_due_one_interval_after_the_creation() {
    let routine = routine(r#"{"kind":"every","zone":"UTC","minutes":60}"#, "08:03:00");
    routine.when(tick("08:03:00")).then([]);
    routine.when(tick("09:03:00")).then([claimed("09:03:00", Some("10:03:00"))]);
}

/// S33.
#[test]
fn a_past_once_is_refused_when_it_is_new_and_can_be_renamed_when_it_is_old() {
    let past = once("2026-12-01T08:00:00Z");
    let new = RoutineCommand::Create(Box::new(create(&past, "08:00:00.000001")));
    given::<Routine>([]).when(new).invalid("has passed");

    let old = routine(&past, "07:00:00").after(tick("08:00:00"));
    let rename =
        Edit { name: Some("old".to_owned()), schedule: Some(past.clone()), now: at("12:00:00"), ..Edit::default() };
    old.when(RoutineCommand::Edit(Box::new(rename))).then([RoutineEvent::Renamed { name: "old".to_owned() }]);
    old.when(pause()).then([RoutineEvent::Paused {}]);
    old.when(reschedule(&once("2026-12-01T09:00:00Z"), "12:00:00")).invalid("has passed");
    // Switched off and on again it stays over.
    let again = old.after(pause()).after(resume("12:00:00"));
    assert_eq!(again.0.next, None);
}

#[test]
fn a_once_is_due_once() {
    let routine = routine(&once("2026-12-01T09:00:00+01:00"), "08:00:00");
    routine.when(tick("08:00:00")).then([claimed("08:00:00", None)]);
    let routine = routine.after(tick("08:00:00")).after(settle(run_of("08:00:00"), Outcome::Failed));
    for now in ["08:00:00", "08:05:00", "2027-12-01T08:00:00Z"] {
        routine.when(tick(now)).then([]);
    }
}

#[test]
fn a_once_at_the_instant_of_its_edit_runs() {
    let routine = routine(QUARTERS, "07:56:00").after(reschedule(&once("2026-12-01T07:55:00Z"), "07:55:00"));
    routine.when(tick("07:55:00")).then([claimed("07:55:00", None)]);
}

/// S8, S6: whoever ticks, one window is one run under one key, so that one of them loses the append.
#[test]
fn two_processes_claim_one_window_as_the_same_run_under_the_same_key() {
    let routine = routine(QUARTERS, "07:56:00");
    let tick = |now, process| RoutineCommand::Tick(Tick { process: id(process), ..tick_of(now) });
    let decide = |command| routine.0.decide(command).unwrap();
    let (one, other) = (decide(tick("08:00:00", 9)), decide(tick("08:07:00", 10)));
    let run = |events: &[New<RoutineEvent>]| {
        let RoutineEvent::RunClaimed(claim) = &events[0].facts else { panic!("{events:?}") };
        claim.run
    };
    assert_eq!(run(&one), run(&other));
    assert_eq!(keys(id(1), &one), keys(id(1), &other));
    assert_eq!(keys(id(1), &one).len(), 1);

    assert_ne!(run_of("08:00:00"), run_of("08:15:00"));
    assert_ne!(keys(id(1), &one), keys(id(2), &one), "of another routine");
    let elsewhere = Tick { namespace: uuid::Uuid::from_u128(78), ..tick_of("08:00:00") };
    assert_ne!(run(&one), run(&decide(RoutineCommand::Tick(elsewhere))), "of another deployment");
}

#[test]
fn claims_and_missed_windows_have_keys_and_nothing_else_has() {
    let key = |parts: &[&str]| {
        let asked: Vec<&[u8]> = parts[1..].iter().map(|part| part.as_bytes()).collect();
        Key::new(parts, &asked)
    };
    let (routine, delivery) = (id::<midwatch_events::id::Routine>(1).to_string(), id(60));
    let by_delivery = RoutineEvent::RunClaimed(RunClaimed {
        bot: Some(id(3)),
        run: id(50),
        cause: Cause::Delivery,
        window_us: None,
        delivery: Some(delivery),
        redelivery: None,
        claimed_by: id(9),
        tzdb: None,
        next_us: None,
    });
    let events = [
        claimed("08:00:00", None),
        missed("08:15:00", "08:30:00", 2, "08:45:00"),
        skipped("08:45:00", id(50), "09:00:00"),
        by_delivery,
        rearmed(None),
        RoutineEvent::Paused {},
    ];
    let expected = [
        key(&["claim", &routine, &at("08:00:00").0.to_string()]),
        key(&["missed", &routine, &at("08:30:00").0.to_string()]),
        key(&["claim", &routine, "delivery", &delivery.to_string()]),
    ];
    assert_eq!(keys(id(1), &events.map(New::from)), expected);
}

/// Quarter hours with up to an hour of jitter, and how long this routine's windows are put off.
fn jittered() -> (String, i64) {
    let text = QUARTERS.replace(r#""minutes""#, r#""jitter_s":3600,"minutes""#);
    let routine: RoutineId = id(1);
    let schedule = Schedule::parse(&text).unwrap();
    let delay_us = schedule.effective_at(at("08:00:00"), routine.uuid().as_bytes()).since(at("08:00:00"));
    assert!(delay_us > 900_000_000, "a delay longer than the interval makes the tests below mean something");
    (text, delay_us)
}

#[test]
fn jitter_puts_a_window_off_and_leaves_its_name() {
    let (text, delay_us) = jittered();
    let tick =
        |us: i64| RoutineCommand::Tick(Tick { now: Micros(at("12:00:00").0 + delay_us + us), ..tick_of("12:00:00") });
    let routine = routine(&text, "08:00:00").after(pause()).after(resume("12:00:00"));
    let grace = 600 * 1_000_000;
    routine.when(tick(-1)).then([]);
    for inside in [0, grace] {
        routine.when(tick(inside)).then([claimed("12:00:00", Some("12:15:00"))]);
    }
    routine.when(tick(grace + 1)).then([missed("12:00:00", "12:00:00", 1, "12:15:00")]);
}

#[test]
fn a_gap_of_jittered_windows_is_one_event() {
    let (text, delay_us) = jittered();
    let routine = routine(&text, "08:00:00").after(pause()).after(resume("12:00:00"));
    let now = Micros(at("18:00:00").0 + delay_us);
    routine
        .when(RoutineCommand::Tick(Tick { now, ..tick_of("18:00:00") }))
        .then([missed("12:00:00", "17:45:00", 24, "18:00:00"), claimed("18:00:00", Some("18:15:00"))]);
}

#[test]
fn a_routine_written_before_the_jitter_of_a_window_is_over_runs_it() {
    let text = AT_EIGHT.replace(r#""times""#, r#""jitter_s":3600,"times""#);
    let (_, delay_us) = jittered();
    let due = Micros(at("08:00:00").0 + delay_us);
    let written =
        |now| given::<Routine>([]).after(RoutineCommand::Create(Box::new(Create { now, ..create(&text, "08:00:00") })));
    let tick = |now| RoutineCommand::Tick(Tick { now, ..tick_of("08:00:00") });
    for now in [due.plus_s(-1), due, due.plus_s(600)] {
        written(now).when(tick(now.max(due))).then([claimed("08:00:00", Some("2026-12-02T08:00:00Z"))]);
    }
    let late = due.plus_s(601);
    written(late).when(tick(late)).then([]);
}

/// A tick handles a bounded number of windows; the next one goes on where it stopped.
#[test]
fn a_very_long_grace_is_worked_off_in_steps() {
    let minutes = r#"{"kind":"cron","zone":"UTC","expr":"* * * * *"}"#;
    let mut routine = with_grace(minutes, "2026-11-29T08:00:30Z", 7 * 86_400);
    // Only windows from the creation on: the newest before it is the first.
    let mut ended = 0;
    loop {
        let events = routine.when(tick("2026-12-01T08:00:30Z")).events();
        assert!(events.len() <= 1_000);
        if events.is_empty() {
            break;
        }
        ended += events.len();
        routine = events.into_iter().fold(routine, Given::and);
    }
    assert_eq!(ended, 2 * 1_440 + 1);
}

#[test]
fn a_schedule_that_cannot_be_read_any_more_is_never_due_and_can_be_replaced() {
    let created = RoutineEvent::Created {
        routine: id(1),
        name: "report".to_owned(),
        owner: id(2),
        bot: id(3),
        schedule: r#"{"kind":"lunar"}"#.to_owned(),
        work: WorkKind::Instruction,
        limits: Limits::default(),
        anchor_us: at("07:00:00"),
        next_us: Some(at("08:00:00")),
    };
    let routine = given::<Routine>([created]);
    routine.when(tick("08:00:00")).then([]);
    let off = routine.after(RoutineCommand::Suspend { cause: SuspendCause::NotEvaluable, error: "?".to_owned() });
    off.when(resume("08:00:00")).invalid("cannot be read");
    let mended = off.after(reschedule(QUARTERS, "08:05:00")).after(resume("08:06:00"));
    mended.when(tick("08:15:00")).then([claimed("08:15:00", Some("08:30:00"))]);
}
