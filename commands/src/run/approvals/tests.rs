//! Approvals: one answer, spent once, for exactly what was shown.

use midwatch_events::run::{Outcome, RefusalCause};

use super::*;
use crate::{
    Decider as _,
    run::{
        RunCommand,
        tests::{decide, decision, end, opened, taken},
    },
    spec::{Given, at, id},
};

const SHOWN: Digest = Digest([7; 32]);

fn asked(approval: u128, call: u128, approvers: Approvers) -> ApprovalRequested {
    ApprovalRequested {
        approval: id(approval),
        call: id(call),
        digest: SHOWN,
        tool: "write_file".to_owned(),
        rule: "ask".to_owned(),
        boundary: 1,
        approvers,
        owner: opened().owner,
        unattended: true,
        run: id(50),
        bot: id(3),
        routine: Some(id(1)),
        trigger: None,
        expires_us: at("08:10:00"),
    }
}

fn asking(call: u128, approval: u128, kind: DecisionKind) -> Decision {
    Decision { approval: Some(id(approval)), ..decision(call, kind) }
}

fn judged(decision: Decision) -> RunCommand {
    let RunCommand::Decide { take, content, .. } = decide(1, 0, DecisionKind::Refused) else { unreachable!() };
    RunCommand::Decide { take, decision: Box::new(decision), content }
}

fn ask(call: u128, approval: u128, approvers: Approvers) -> RunCommand {
    let decision = Box::new(asking(call, approval, DecisionKind::Asked));
    let RunCommand::Decide { take, content, .. } = decide(1, 0, DecisionKind::Refused) else { unreachable!() };
    let words = RunContent::ApprovalRequested { fingerprint: String::new(), arguments: String::new() };
    RunCommand::Ask { take, decision, content, asked: Box::new(asked(approval, call, approvers)), words }
}

fn answer(approval: u128, yes: bool, by: Answerer, now: &str) -> RunCommand {
    RunCommand::AnswerApproval { approval: id(approval), digest: SHOWN, yes, by, now: at(now) }
}

fn admin() -> Answerer {
    Answerer { user: Some(id(77)), admin: true }
}

fn waiting() -> Given<Run> {
    taken().after(ask(70, 90, Approvers::Any))
}

#[test]
fn a_call_that_waits_is_counted_once_and_keeps_its_place() {
    let run = taken().after(decide(1, 69, DecisionKind::Refused)).after(ask(70, 90, Approvers::Any));
    assert_eq!((run.0.calls, run.0.refused, run.0.open_calls.len()), (2, 1, 0));
    assert!(run.0.waits_for_a_person());
    let run = run.after(answer(90, true, admin(), "08:01:00"));
    let through = Decision { ordinal: 2, ..asking(70, 90, DecisionKind::Allowed) };
    run.when(judged(asking(70, 90, DecisionKind::Allowed))).then([RunEvent::ToolCallDecided(through)]);
    let run = run.after(judged(asking(70, 90, DecisionKind::Allowed)));
    assert_eq!((run.0.calls, run.0.fingerprints.len(), run.0.open_calls.len()), (2, 2, 1));
}

// G23.
#[test]
fn one_yes_lets_one_call_through() {
    let run = waiting().after(answer(90, true, admin(), "08:01:00"));
    assert_eq!(run.0.asking(&SHOWN), Asking::Spend(id(90)));
    let spent = run.after(judged(asking(70, 90, DecisionKind::Allowed)));
    assert_eq!(spent.0.asking(&SHOWN), Asking::Anew);
    let again = Refusal::AlreadySo("the approval is spent, or is none");
    spent.when(judged(asking(71, 90, DecisionKind::Allowed))).refused(&again);
}

#[test]
fn nothing_acts_on_an_approval_that_nobody_gave() {
    let none = Refusal::AlreadySo("the approval is spent, or is none");
    waiting().when(judged(asking(70, 90, DecisionKind::Allowed))).refused(&none);
    let declined = waiting().after(answer(90, false, admin(), "08:01:00"));
    declined.when(judged(asking(70, 90, DecisionKind::Allowed))).refused(&none);
    taken().when(judged(asking(70, 91, DecisionKind::Allowed))).refused(&Refusal::NotFound("approval"));
}

#[test]
fn the_first_answer_is_final_and_a_no_stays_a_no() {
    let run = waiting();
    assert_eq!(run.0.asking(&SHOWN), Asking::Join(id(90)));
    let declined = run.after(answer(90, false, admin(), "08:01:00"));
    declined.when(answer(90, true, admin(), "08:01:01")).refused(&Refusal::Answered("a person said no"));
    assert_eq!(declined.0.asking(&SHOWN), Asking::Declined(id(90)));
    assert_eq!(declined.0.asking(&Digest([8; 32])), Asking::Anew);
    let refused = Decision { refusal: Some(RefusalCause::Declined), ..asking(70, 90, DecisionKind::Refused) };
    let refused = declined.after(judged(refused));
    assert_eq!((refused.0.calls, refused.0.refused), (1, 1));
}

// G28: nobody's silence is recorded as somebody's no.
#[test]
fn what_nobody_answers_expires_after_ten_minutes_and_no_sooner() {
    let expire = |now| RunCommand::ExpireApproval { approval: id(90), now: at(now) };
    let early = Refusal::AlreadySo("the approval has not expired yet");
    waiting().when(expire("08:09:59")).refused(&early);
    let late = Refusal::Answered("nobody answered in time");
    waiting().when(answer(90, true, admin(), "08:10:00")).refused(&late);
    let expired = waiting().after(expire("08:10:00"));
    assert_eq!(expired.0.approvals[0].answer, Some(ApprovalAnswer::Expired));
    assert_eq!(expired.0.asking(&SHOWN), Asking::Expired(id(90)));
    expired.when(answer(90, true, admin(), "08:10:01")).refused(&late);
}

#[test]
fn another_digest_than_the_one_shown_answers_nothing() {
    let other = RunCommand::AnswerApproval {
        approval: id(90),
        digest: Digest([8; 32]),
        yes: true,
        by: admin(),
        now: at("08:01:00"),
    };
    waiting().when(other).refused(&Refusal::OtherCall);
    waiting().when(answer(91, true, admin(), "08:01:00")).refused(&Refusal::NotFound("approval"));
}

#[test]
fn the_end_of_a_run_withdraws_what_waits_and_a_late_yes_does_nothing() {
    let events = waiting().when(end(Some(1), Outcome::Failed, "08:02:00")).events();
    let [RunEvent::ApprovalAnswered(withdrawn), RunEvent::Ended(ended)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!((withdrawn.answer, ended.tool_calls), (ApprovalAnswer::Withdrawn, 1));
    let over = waiting().after(end(Some(1), Outcome::Failed, "08:02:00"));
    over.when(answer(90, true, admin(), "08:03:00")).refused(&Refusal::RunEnded);
}

// G22.
#[test]
fn a_call_that_is_judged_anew_withdraws_what_it_asked_before() {
    let events = waiting().when(ask(70, 91, Approvers::Any)).events();
    let [RunEvent::ApprovalAnswered(withdrawn), RunEvent::ApprovalRequested(asked), RunEvent::ToolCallDecided(decided)] =
        events.as_slice()
    else {
        panic!("{events:?}");
    };
    assert_eq!((withdrawn.approval, withdrawn.answer), (id(90), ApprovalAnswer::Withdrawn));
    assert_eq!((asked.approval, decided.ordinal), (id(91), 1));
    // One that only goes on waiting withdraws nothing.
    let joined = waiting().when(judged(asking(70, 90, DecisionKind::Asked))).events();
    assert_eq!(joined.len(), 1);
}

#[test]
fn who_may_answer() {
    let owner = Answerer { user: Some(opened().owner), admin: false };
    let owning_admin = Answerer { admin: true, ..owner };
    let member = Answerer { user: Some(id(78)), admin: false };
    let typing = Answerer { user: None, admin: true };
    let may =
        |approvers, by| taken().after(ask(70, 90, approvers)).0.decide(answer(90, true, by, "08:01:00")).map(|_| ());
    for by in [admin(), owner, owning_admin, typing] {
        assert_eq!(may(Approvers::Any, by), Ok(()));
    }
    assert_eq!(may(Approvers::NotOwner, admin()), Ok(()));
    for (approvers, by) in [
        (Approvers::Any, member),
        (Approvers::NotOwner, member),
        (Approvers::NotOwner, owner),
        (Approvers::NotOwner, owning_admin),
        (Approvers::NotOwner, typing),
    ] {
        assert!(matches!(may(approvers, by), Err(Refusal::NotApprover(_))), "{approvers:?} {by:?}");
    }
}
