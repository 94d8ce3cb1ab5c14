//! Attempts before anything acted, and what arrives after the run was given up.

use midwatch_events::routine::Retry;

use super::*;

fn retried(times: u32) -> Given<Run> {
    let opened = Opened { retry: Some(Retry { times, backoff_s: 30 }), ..opened() };
    given([RunEvent::Opened(opened), RunEvent::Taken { take: 1, worker: id(9), deadline_us: at("08:15:00") }])
}

fn fail(reason: Reason, now: &str) -> RunCommand {
    RunCommand::FailAttempt { take: 1, reason: Some(reason), error: "refused".to_owned(), now: at(now) }
}

fn failed(n: u32, reason: Reason, retry_at: &str) -> RunEvent {
    RunEvent::AttemptFailed { n, reason: Some(reason), retry_at_us: at(retry_at) }
}

#[test]
fn an_attempt_that_failed_before_anything_acted_is_made_again_with_doubled_waits() {
    let unreachable = Reason::BotUnreachable;
    let run = retried(3).after(RunCommand::StartTurn { take: 1 });
    run.when(fail(unreachable, "08:00:00")).then([failed(1, unreachable, "08:00:30")]);
    let run = run.after(fail(unreachable, "08:00:00"));
    assert_eq!((run.0.turn, run.0.retry_at), (0, Some(at("08:00:30"))));
    let run = run.after(RunCommand::StartTurn { take: 1 });
    assert_eq!((run.0.turn, run.0.retry_at), (1, None));
    let run = run.after(fail(unreachable, "08:01:00"));
    assert_eq!(run.0.retry_at, Some(at("08:02:00")));
    run.when(fail(unreachable, "08:03:00")).then([failed(3, unreachable, "08:05:00")]);
    // As often as its routine says, and not beyond its deadline.
    run.clone().after(fail(unreachable, "08:03:00")).when(fail(unreachable, "08:06:00")).then([]);
    run.when(fail(unreachable, "08:13:00")).then([]);
}

#[test]
fn what_may_have_acted_is_not_done_again() {
    let unreachable = Reason::BotUnreachable;
    // Without the routine saying so.
    taken().when(fail(unreachable, "08:00:00")).then([]);
    // The Bot was asked and something else went wrong.
    let asked = retried(3).after(RunCommand::StartTurn { take: 1 });
    asked.when(fail(Reason::Error, "08:00:00")).then([]);
    // Before it was asked anything may be tried again.
    retried(3).when(fail(Reason::Error, "08:00:00")).then([failed(1, Reason::Error, "08:00:30")]);
    let answered = asked.after(RunCommand::FinishTurn { take: 1, calls: 0, messages: "[]".to_owned() });
    answered.when(fail(unreachable, "08:00:00")).then([]);
    for decision in [DecisionKind::Allowed, DecisionKind::Refused] {
        retried(3).after(decide(1, 70, decision)).when(fail(unreachable, "08:00:00")).then([]);
    }
    let stale = RunCommand::FailAttempt { take: 2, reason: None, error: String::new(), now: at("08:00:00") };
    retried(3).when(stale).refused(&Refusal::Stale);
}

fn report(worker: u128, take: Option<u32>) -> RunCommand {
    let RunCommand::End(end) = end(take, Outcome::Succeeded, "08:09:00") else { unreachable!() };
    RunCommand::ReportLate { worker: id(worker), end }
}

/// The report of a run that was given up is shown beside what was recorded, once, and changes nothing of it.
#[test]
fn the_last_holder_of_a_run_that_was_given_up_reports_once() {
    let live = taken();
    live.when(report(9, Some(1))).refused(&Refusal::Stale);
    let over = live.after(end(None, Outcome::Abandoned, "08:05:00"));
    over.when(report(9, Some(1))).then([RunEvent::ReportedLate {
        worker: id(9),
        outcome: Outcome::Succeeded,
        reason: None,
    }]);
    for (worker, take) in [(10, Some(1)), (9, Some(2)), (9, Some(0)), (9, None)] {
        over.when(report(worker, take)).refused(&Refusal::Stale);
    }
    let reported = over.after(report(9, Some(1)));
    assert_eq!(reported.0.ended, Some((Outcome::Abandoned, None)));
    reported.when(report(9, Some(1))).refused(&Refusal::Stale);
    given::<Run>([]).when(report(9, Some(1))).refused(&Refusal::NotFound("run"));
}

fn late_call(call: u128) -> RunCommand {
    let RunCommand::EndCall { take, call, result, result_digest, result_bytes, duration_us, content } =
        end_call(1, call)
    else {
        unreachable!()
    };
    RunCommand::EndCallLate { take, call, result, result_digest, result_bytes, duration_us, content }
}

#[test]
fn the_outcome_of_a_call_that_became_unknown_may_arrive_once() {
    let live = taken().after(decide(1, 70, DecisionKind::Allowed)).after(decide(1, 71, DecisionKind::Allowed));
    live.when(late_call(70)).refused(&Refusal::Stale);
    let over = live.after(end_call(1, 71)).after(end(None, Outcome::Abandoned, "08:05:00"));
    let events = over.when(late_call(70)).events();
    let [RunEvent::CallOutcomeLate { decision, result: CallResult::Finished, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(decision.call, id(70));
    // One that had its outcome in time, and one that came late already.
    over.when(late_call(71)).refused(&Refusal::NotFound("call without an outcome"));
    over.after(late_call(70)).when(late_call(70)).refused(&Refusal::NotFound("call without an outcome"));
}
