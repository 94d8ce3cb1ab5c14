//! Runs: the fence, the limits, what is unknown at the end, and cycles.

mod late;

use midwatch_events::run::{Cause, DecisionKind, RefusalCause, Verdict, WorkKind};

use super::*;
use crate::spec::{Given, at, given, id};

pub(super) fn opened() -> Opened {
    Opened {
        run: id(50),
        bot: id(3),
        owner: id(2),
        routine: Some(id(1)),
        trigger: None,
        delivery: None,
        event_type: None,
        cause: Cause::Schedule,
        window_us: None,
        work: WorkKind::Instruction,
        deadline_s: 900,
        max_turns: 2,
        unattended: true,
        retry: None,
    }
}

fn open() -> RunCommand {
    RunCommand::Open(Box::new(opened()), Work::default())
}

fn take(worker: u128, now: &str) -> RunCommand {
    RunCommand::Take { worker: id(worker), now: at(now) }
}

pub(super) fn taken() -> Given<Run> {
    given([]).after(open()).after(take(9, "08:00:00"))
}

pub(super) fn decision(call: u128, decision: DecisionKind) -> Decision {
    Decision {
        call: id(call),
        ordinal: 0,
        turn: 0,
        step: None,
        tool: "write_file".to_owned(),
        intent: "write_file".to_owned(),
        verdict: Verdict::Allow,
        decision,
        refusal: (decision == DecisionKind::Refused).then_some(RefusalCause::Rule),
        enforced: true,
        rule: None,
        matched: vec![],
        broken: vec![],
        unattended: true,
        cause: Cause::Schedule,
        run: id(50),
        bot: id(3),
        routine: Some(id(1)),
        trigger: None,
        boundary: 1,
        fingerprint: Digest([u8::try_from(call % 251).unwrap(); 32]),
        repeat_count: 1,
        repeat_same_result: 0,
        repeat_cycle: 0,
        approval: None,
    }
}

pub(super) fn decide(take: u32, call: u128, kind: DecisionKind) -> RunCommand {
    let text = String::new;
    let content = RunContent::ToolCallDecided { arguments: text(), context: text(), fingerprint: text() };
    RunCommand::Decide { take, decision: Box::new(decision(call, kind)), content }
}

fn end_call(take: u32, call: u128) -> RunCommand {
    RunCommand::EndCall {
        take,
        call: id(call),
        result: CallResult::Finished,
        result_digest: Digest([5; 32]),
        result_bytes: 4,
        duration_us: 12,
        content: RunContent::ToolCallEnded { result: None, blob: None },
    }
}

pub(super) fn end(take: Option<u32>, outcome: Outcome, now: &str) -> RunCommand {
    RunCommand::End(End { take, outcome, reason: None, headline: "done".to_owned(), error: None, now: at(now) })
}

/// Each command of a runner, with this take.
fn of_runner(take: u32) -> [RunCommand; 5] {
    [
        RunCommand::StartTurn { take },
        RunCommand::FinishTurn { take, calls: 0, messages: String::new() },
        decide(take, 70, DecisionKind::Allowed),
        end_call(take, 71),
        end(Some(take), Outcome::Succeeded, "08:01:00"),
    ]
}

#[test]
fn a_run_is_opened_once() {
    given::<Run>([]).when(open()).then([RunEvent::Opened(opened())]);
    given::<Run>([]).after(open()).when(open()).refused(&Refusal::Exists("run"));
}

// A12 of docs/architecture.md.
#[test]
fn a_run_is_taken_once_and_its_deadline_counts_from_there() {
    let waiting = given::<Run>([]).after(open());
    waiting.when(take(9, "08:00:00")).then([RunEvent::Taken { take: 1, worker: id(9), deadline_us: at("08:15:00") }]);
    let taken = waiting.after(take(9, "08:00:00"));
    taken.when(take(10, "08:01:00")).refused(&Refusal::Stale);
    taken.when(take(9, "08:01:00")).refused(&Refusal::Stale);
    given::<Run>([]).when(take(9, "08:00:00")).refused(&Refusal::NotFound("run"));
}

// A12 of docs/architecture.md.
/// A worker that was given up can change nothing any more.
#[test]
fn every_command_of_another_take_is_refused() {
    let run = taken().after(decide(1, 71, DecisionKind::Allowed));
    for command in of_runner(1) {
        assert!(run.0.decide(command.clone()).is_ok(), "{command:?}");
    }
    for stale in [0, 2, u32::MAX] {
        for command in of_runner(stale) {
            run.when(command).refused(&Refusal::Stale);
        }
    }
    // Before it was taken nobody holds it, not even with the take 0.
    let waiting = given::<Run>([]).after(open());
    for command in of_runner(0).into_iter().chain(of_runner(1)) {
        waiting.when(command).refused(&Refusal::Stale);
    }
    let again = run.and(RunEvent::Taken { take: 2, worker: id(10), deadline_us: at("09:00:00") });
    for command in of_runner(1) {
        again.when(command).refused(&Refusal::Stale);
    }
}

#[test]
fn a_run_that_ended_refuses_everything() {
    let ended = taken().after(decide(1, 71, DecisionKind::Allowed)).after(end(None, Outcome::Cancelled, "08:01:00"));
    for command in of_runner(1).into_iter().chain([take(9, "08:02:00"), end(None, Outcome::Abandoned, "08:02:00")]) {
        ended.when(command).refused(&Refusal::RunEnded);
    }
    ended.when(open()).refused(&Refusal::Exists("run"));
    for command in of_runner(1).into_iter().chain([end(None, Outcome::Abandoned, "08:02:00")]) {
        given::<Run>([]).when(command).refused(&Refusal::NotFound("run"));
    }
}

#[test]
fn turns_are_counted_up_to_their_limit() {
    let start = || RunCommand::StartTurn { take: 1 };
    let finish = RunCommand::FinishTurn { take: 1, calls: 3, messages: "[]".to_owned() };
    let first = taken().after(start());
    first.when(finish.clone()).then([RunEvent::TurnFinished { turn: 1, calls: 3 }]);
    let second = first.after(finish);
    second.when(start()).then([RunEvent::TurnStarted { turn: 2 }]);
    second.after(start()).when(start()).refused(&Refusal::TurnLimit { max: 2 });
}

#[test]
fn decisions_have_their_place_and_turn_set_here() {
    let run = taken().after(RunCommand::StartTurn { take: 1 }).after(decide(1, 70, DecisionKind::Refused));
    let placed = Decision { ordinal: 2, turn: 1, ..decision(71, DecisionKind::Allowed) };
    run.when(decide(1, 71, DecisionKind::Allowed)).then([RunEvent::ToolCallDecided(placed)]);
}

#[test]
fn a_call_ends_once_and_only_if_it_was_let_through() {
    let run = taken().after(decide(1, 70, DecisionKind::Refused)).after(decide(1, 71, DecisionKind::Allowed));
    run.when(end_call(1, 70)).refused(&Refusal::NotFound("open call"));
    run.when(end_call(1, 99)).refused(&Refusal::NotFound("open call"));
    let ended = RunEvent::ToolCallEnded {
        decision: Decision { ordinal: 2, ..decision(71, DecisionKind::Allowed) },
        result: CallResult::Finished,
        result_digest: Some(Digest([5; 32])),
        result_bytes: Some(4),
        duration_us: Some(12),
    };
    run.when(end_call(1, 71)).then([ended]);
    run.after(end_call(1, 71)).when(end_call(1, 71)).refused(&Refusal::NotFound("open call"));
}

/// G31, promise 3: what is open when the run ends is unknown, and says so before the ending.
#[test]
fn calls_without_an_outcome_become_unknown_at_the_end() {
    let run = taken()
        .after(RunCommand::StartTurn { take: 1 })
        .after(decide(1, 70, DecisionKind::Allowed))
        .after(decide(1, 71, DecisionKind::Refused))
        .after(decide(1, 72, DecisionKind::Allowed))
        .after(decide(1, 73, DecisionKind::Allowed))
        .after(end_call(1, 72));
    let unknown = |call, ordinal| RunEvent::ToolCallEnded {
        decision: Decision { ordinal, turn: 1, ..decision(call, DecisionKind::Allowed) },
        result: CallResult::Unknown,
        result_digest: None,
        result_bytes: None,
        duration_us: None,
    };
    let ended = |outcome, duration_us| {
        RunEvent::Ended(Ended {
            unattended: Some(true),
            run: id(50),
            bot: id(3),
            routine: Some(id(1)),
            trigger: None,
            cause: Cause::Schedule,
            outcome,
            reason: None,
            turns: 1,
            tool_calls: 4,
            refused_calls: 1,
            duration_us: Some(duration_us),
        })
    };
    for (take, outcome) in [(Some(1), Outcome::Failed), (None, Outcome::Abandoned)] {
        let expected = [unknown(70, 1), unknown(73, 4), ended(outcome, 60_000_000)];
        // The fold was done with the instant 0, so that the duration counts from there.
        let mut run = run.clone();
        run.0.taken_at = Some(at("08:00:00"));
        run.when(end(take, outcome, "08:01:00")).then(expected);
        // A clock that was set back gives no negative duration.
        let back = run.when(end(take, outcome, "07:00:00")).events();
        assert_eq!(back.last(), Some(&ended(outcome, 0)));
    }
    assert!(run.after(end(None, Outcome::Abandoned, "08:01:00")).0.open_calls.is_empty());
}

#[test]
fn a_run_nobody_took_has_no_duration() {
    let events = given::<Run>([]).after(open()).when(end(None, Outcome::Abandoned, "08:15:00")).events();
    let [RunEvent::Ended(ended)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((ended.duration_us, ended.turns, ended.tool_calls), (None, 0, 0));
}

#[test]
fn a_run_is_overdue_untaken_after_a_quarter_of_an_hour_or_a_minute_past_its_deadline() {
    let mut waiting = Run::default();
    assert_eq!(waiting.overdue(at("12:00:00")), None);
    waiting.evolve(&RunEvent::Opened(opened()), at("08:00:00"));
    assert_eq!(waiting.overdue(at("08:14:59.999999")), None);
    assert_eq!(waiting.overdue(at("08:15:00")), Some(Overdue::Untaken));
    assert_eq!(waiting.overdue(at("07:00:00")), None);

    let mut taken = waiting;
    let event = RunEvent::Taken { take: 1, worker: id(9), deadline_us: at("08:25:00") };
    taken.evolve(&event, at("08:10:00"));
    assert_eq!(taken.overdue(at("08:15:00")), None);
    assert_eq!(taken.overdue(at("08:25:59.999999")), None);
    assert_eq!(taken.overdue(at("08:26:00")), Some(Overdue::Deadline));
    let events = taken.decide(end(None, Outcome::TimedOut, "08:26:00")).unwrap();
    events.iter().for_each(|event| taken.evolve(&event.facts, at("08:26:00")));
    assert_eq!(taken.overdue(at("12:00:00")), None);
}

#[test]
fn the_first_opening_and_the_first_ending_stand() {
    let run = taken().after(end(Some(1), Outcome::Succeeded, "08:01:00"));
    let other = Opened { bot: id(4), ..opened() };
    let abandoned = Ended {
        unattended: Some(true),
        run: id(50),
        bot: id(3),
        routine: None,
        trigger: None,
        cause: Cause::Schedule,
        outcome: Outcome::Abandoned,
        reason: None,
        turns: 0,
        tool_calls: 0,
        refused_calls: 0,
        duration_us: None,
    };
    let late = run.and(RunEvent::Opened(other)).and(RunEvent::Ended(abandoned));
    assert_eq!(late.0.opened, Some(opened()));
    assert_eq!(late.0.ended, Some((Outcome::Succeeded, None)));
}

/// G4: sequences that come round, by letters; the newest call is the last one.
#[test]
fn cycles_of_two_to_five_calls_are_seen() {
    for (calls, expected) in [
        ("", 0),
        ("A", 0),
        // Seen for the first time: once.
        ("AB", 1),
        ("ABAB", 2),
        ("ABABABAB", 4),
        // In the middle of a round.
        ("ABABA", 2),
        ("XYABAB", 2),
        // What went before and was broken off does not count.
        ("ABABXAB", 1),
        ("ABCABC", 2),
        ("ABCABCABC", 3),
        ("ABCDABCD", 2),
        ("ABCDEABCDE", 2),
        ("ABCDEABCDEABCDE", 3),
        ("AABAAB", 2),
        ("AAABAAAB", 2),
        // Six are too long to be seen.
        ("ABCDEFABCDEF", 1),
        // The same call again and again is a repeat and no cycle.
        ("AA", 0),
        ("AAAA", 0),
        ("AAAAAAAAAAAA", 0),
        ("BAAAAA", 0),
    ] {
        let digests: Vec<_> = calls.bytes().map(|call| Digest([call; 32])).collect();
        assert_eq!(cycles(&digests), expected, "{calls}");
    }
}

#[test]
fn refused_calls_are_part_of_a_cycle() {
    let run = (0..4).fold(taken(), |run, n: u128| run.after(decide(1, 70 + n % 2, DecisionKind::Refused)));
    assert_eq!(cycles(&run.0.fingerprints), 2);
    assert_eq!((run.0.calls, run.0.refused), (4, 4));
}
