//! What people ask of a routine.

use super::*;

#[test]
fn a_routine_is_made_with_its_first_window_and_its_words() {
    let events = Routine::default().decide(RoutineCommand::Create(Box::new(create(QUARTERS, "07:56:00")))).unwrap();
    let facts = RoutineEvent::Created {
        routine: id(1),
        name: "report".to_owned(),
        owner: id(2),
        bot: id(3),
        schedule: Schedule::parse(QUARTERS).unwrap().to_json(),
        work: WorkKind::Instruction,
        limits: Limits::default(),
        anchor_us: at("07:56:00"),
        next_us: Some(at("08:00:00")),
    };
    let work = Work { instruction: Some("look".to_owned()), recording: None };
    assert_eq!(events, [New::with(facts, RoutineContent::Created(work))]);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_do() {
    let refused = |change: fn(&mut Create), words: &str| {
        let mut create = create(QUARTERS, "07:56:00");
        change(&mut create);
        given::<Routine>([]).when(RoutineCommand::Create(Box::new(create))).invalid(words);
    };
    refused(|create| create.name = " ".to_owned(), "needs a name");
    refused(|create| create.name = "a\nb".to_owned(), "control character");
    refused(|create| create.name = "ä".repeat(201), "201 characters");
    refused(|create| create.schedule = "{}".to_owned(), "kind");
    refused(|create| create.work = Work::default(), "either an instruction or a recording");
    refused(|create| create.work.recording = Some("{}".to_owned()), "either an instruction or a recording");
    refused(|create| create.work.instruction = Some("\n ".to_owned()), "instruction is empty");
    refused(|create| create.limits.grace_s = 604_801, "grace_s is 604801; it must be 0 to 604800");
    refused(|create| create.limits.deadline_s = 0, "deadline_s is 0; it must be 1 to 604800");
    refused(|create| create.limits.deadline_s = 604_801, "deadline_s");
    refused(|create| create.limits.max_turns = 0, "max_turns is 0; it must be 1 to 1000");
    refused(|create| create.limits.max_turns = 1_001, "max_turns");
    let zone = QUARTERS.replace("UTC", "Europe/Atlantis");
    given::<Routine>([]).when(RoutineCommand::Create(Box::new(create(&zone, "07:56:00")))).invalid("Atlantis");
    // S21: refused on the way of an edit too.
    routine(QUARTERS, "07:56:00").when(reschedule(&zone, "08:00:00")).invalid("Atlantis");
}

#[test]
fn the_limits_themselves_are_allowed() {
    for limits in [
        Limits { grace_s: 0, deadline_s: 1, max_turns: 1, ..Limits::default() },
        Limits { grace_s: 604_800, deadline_s: 604_800, max_turns: 1_000, ..Limits::default() },
    ] {
        let create = Create { limits, name: "ä".repeat(200), ..create(QUARTERS, "07:56:00") };
        assert!(Routine::default().decide(RoutineCommand::Create(Box::new(create))).is_ok());
    }
}

#[test]
fn a_routine_is_made_once() {
    let again = || RoutineCommand::Create(Box::new(create(QUARTERS, "08:00:00")));
    routine(QUARTERS, "07:56:00").when(again()).refused(&Refusal::Exists("routine"));
    let gone = routine(QUARTERS, "07:56:00").after(RoutineCommand::Delete);
    gone.when(again()).refused(&Refusal::Exists("routine"));
}

#[test]
fn an_edit_says_only_what_changed() {
    let routine = routine(QUARTERS, "07:56:00");
    let edit = |edit| routine.when(RoutineCommand::Edit(Box::new(edit)));
    let same = Edit {
        name: Some("report".to_owned()),
        // The same schedule, written another way.
        schedule: Some(QUARTERS.replace(':', " : ").replace("00 : 00 : 00", "00:00:00")),
        work: None,
        limits: Some(Limits::default()),
        now: at("08:05:00"),
    };
    edit(same).then([]);
    edit(Edit { now: at("08:05:00"), ..Edit::default() }).then([]);
    let limits = Limits { grace_s: 60, ..Limits::default() };
    let all = Edit {
        name: Some("brief".to_owned()),
        schedule: Some(AT_EIGHT.to_owned()),
        work: Some(Work {
            instruction: None,
            recording: Some(r#"{"steps":[{"tool":"list_files","arguments":{}}]}"#.to_owned()),
        }),
        limits: Some(limits.clone()),
        now: at("08:05:00"),
    };
    edit(all).then([
        RoutineEvent::Renamed { name: "brief".to_owned() },
        RoutineEvent::Rescheduled {
            schedule: Schedule::parse(AT_EIGHT).unwrap().to_json(),
            anchor_us: at("08:05:00"),
            next_us: Some(at("2026-12-02T08:00:00Z")),
        },
        RoutineEvent::WorkReplaced { work: WorkKind::Recording },
        RoutineEvent::LimitsReplaced { limits },
    ]);
    // Half an edit is none.
    let half = Edit { name: Some("brief".to_owned()), schedule: Some("{}".to_owned()), ..Edit::default() };
    edit(half).invalid("kind");
}

#[test]
fn an_edit_that_leaves_the_schedule_leaves_the_windows() {
    let limits = Limits { grace_s: 3_600, ..Limits::default() };
    let edit = Edit { limits: Some(limits), name: Some("brief".to_owned()), now: at("08:05:00"), ..Edit::default() };
    let routine = routine(QUARTERS, "07:56:00").after(RoutineCommand::Edit(Box::new(edit)));
    routine.when(tick("08:14:00")).then([claimed("08:00:00", Some("08:15:00"))]);
}

#[test]
fn pause_resume_and_delete_answer_what_is_so() {
    let routine = routine(QUARTERS, "07:56:00");
    routine.when(resume("08:00:00")).refused(&Refusal::AlreadySo("this routine is not paused"));
    let paused = routine.clone().after(pause());
    paused.when(pause()).refused(&Refusal::AlreadySo("this routine is paused already"));
    paused.when(suspend()).then([]);
    let suspended = routine.clone().after(suspend());
    suspended.when(suspend()).then([]);
    suspended.when(pause()).then([RoutineEvent::Paused {}]);
    let gone = routine.after(RoutineCommand::Delete);
    let edit = RoutineCommand::Edit(Box::default());
    for command in [pause(), resume("08:00:00"), suspend(), RoutineCommand::Delete, edit, run_now(50)] {
        gone.when(command.clone()).refused(&Refusal::NotFound("routine"));
        given::<Routine>([]).when(command).refused(&Refusal::NotFound("routine"));
    }
}

#[test]
fn reasons_are_words_that_can_be_erased() {
    let routine = routine(QUARTERS, "07:56:00").0;
    let events = routine.decide(pause()).unwrap();
    let reason = "lunch".to_owned();
    assert_eq!(events, [New::with(RoutineEvent::Paused {}, RoutineContent::Paused { reason })]);
    let silent = routine.decide(RoutineCommand::Pause { reason: String::new() }).unwrap();
    assert_eq!(silent, [RoutineEvent::Paused {}.into()]);
    let error = "the Bot is retired".to_owned();
    let suspended = RoutineEvent::Suspended { cause: SuspendCause::BotRetired };
    assert_eq!(routine.decide(suspend()).unwrap(), [New::with(suspended, RoutineContent::Suspended { error })]);
}

fn by_person(run: u128, next: Option<&str>) -> RoutineEvent {
    RoutineEvent::RunClaimed(RunClaimed {
        bot: Some(id(3)),
        run: id(run),
        cause: Cause::Person,
        window_us: None,
        delivery: None,
        redelivery: None,
        claimed_by: id(9),
        tzdb: None,
        next_us: next.map(at),
    })
}

#[test]
fn run_now_is_refused_while_a_run_is_live_and_names_it() {
    let routine = routine(QUARTERS, "07:56:00").after(tick("08:00:00"));
    routine.when(run_now(50)).refused(&Refusal::Busy { live: run_of("08:00:00") });
    let routine = routine.after(settle(run_of("08:00:00"), Outcome::Succeeded)).after(run_now(50));
    routine.when(run_now(51)).refused(&Refusal::Busy { live: id(50) });
}

#[test]
fn run_now_ignores_a_pause() {
    for off in [pause(), suspend()] {
        routine(QUARTERS, "07:56:00").after(off).when(run_now(50)).then([by_person(50, Some("08:00:00"))]);
    }
}

#[test]
fn run_now_does_not_eat_the_next_window_nor_count_as_one() {
    let routine = routine(QUARTERS, "07:56:00");
    routine.when(run_now(50)).then([by_person(50, Some("08:00:00"))]);
    let routine = routine.after(run_now(50)).after(settle(id(50), Outcome::Succeeded));
    assert_eq!(routine.0.target.windows_claimed, 0);
    routine.when(tick("08:00:00")).then([claimed("08:00:00", Some("08:15:00"))]);
    assert_eq!(routine.after(tick("08:00:00")).0.target.windows_claimed, 1);
}

#[test]
fn run_now_at_a_window_that_is_due_leaves_the_window_to_the_clock() {
    let routine = routine(QUARTERS, "07:56:00").after(run_now(50));
    routine.when(tick("08:00:00")).then([skipped("08:00:00", id(50), "08:15:00")]);
    let routine = routine.after(settle(id(50), Outcome::Succeeded));
    routine.when(tick("08:05:00")).then([claimed("08:00:00", Some("08:15:00"))]);
}
