//! Runs and their timelines.

use midwatch_events::{
    New, StreamName,
    id::RunId,
    key::Digest,
    repeat::RepeatEvent,
    run::{
        CallResult, Cause, Decision, DecisionKind, Ended, Opened, Outcome, Reason, RefusalCause, RunContent, RunEvent,
        Verdict, Work, WorkKind,
    },
};
use midwatch_projections::{
    View,
    run_timeline::{Detail, TimelineRow, key},
    runs::{RunRow, RunState},
};

use crate::{
    samples::{BOT, CALL, PROCESS, ROUTINE, RUN, USER, id},
    story::{Story, after},
};

fn run() -> RunId {
    id(RUN, 0)
}

fn stream() -> StreamName {
    StreamName::run(run())
}

pub(crate) fn opened() -> New<RunEvent> {
    let facts = RunEvent::Opened(Opened {
        run: run(),
        bot: id(BOT, 0),
        owner: id(USER, 0),
        routine: Some(id(ROUTINE, 0)),
        trigger: None,
        delivery: None,
        event_type: None,
        cause: Cause::Schedule,
        window_us: Some(after(60)),
        work: WorkKind::Recording,
        deadline_s: 900,
        max_turns: 20,
        unattended: true,
        retry: None,
    });
    New::with(facts, RunContent::Opened { work: Work::default() })
}

pub(crate) fn decision(kind: DecisionKind) -> Decision {
    let allowed = kind == DecisionKind::Allowed;
    Decision {
        call: id(CALL, 0),
        ordinal: 1,
        turn: 2,
        step: None,
        tool: "computer_write_file".to_owned(),
        intent: "write_file".to_owned(),
        verdict: if allowed { Verdict::Allow } else { Verdict::Deny },
        decision: kind,
        refusal: (!allowed).then_some(RefusalCause::Rule),
        enforced: true,
        rule: Some(if allowed { "all" } else { "no-writes" }.to_owned()),
        matched: vec!["no-writes".to_owned(), "all".to_owned()],
        broken: Vec::new(),
        unattended: true,
        cause: Cause::Schedule,
        run: run(),
        bot: id(BOT, 0),
        routine: Some(id(ROUTINE, 0)),
        trigger: None,
        boundary: 4,
        fingerprint: Digest([1; 32]),
        repeat_count: 3,
        repeat_same_result: 0,
        repeat_cycle: 0,
        approval: None,
    }
}

pub(crate) fn ended(outcome: Outcome, reason: Option<Reason>) -> New<RunEvent> {
    let facts = RunEvent::Ended(Ended {
        unattended: None,
        run: run(),
        bot: id(BOT, 0),
        routine: Some(id(ROUTINE, 0)),
        trigger: None,
        cause: Cause::Schedule,
        outcome,
        reason,
        turns: 2,
        tool_calls: 2,
        refused_calls: 1,
        duration_us: Some(9_540_000),
    });
    New::with(facts, RunContent::Ended { headline: "Wrote one note.".to_owned(), error: None })
}

fn told() -> Story {
    let mut story = Story::default();
    let taken = RunEvent::Taken { take: 1, worker: id(PROCESS, 0), deadline_us: after(961) };
    story.at(60).is(&stream(), opened());
    story.at(61).is(&stream(), taken);
    story.at(62).is(&stream(), RunEvent::TurnStarted { turn: 1 });
    story.at(63).is(&stream(), RunEvent::TurnFinished { turn: 1, calls: 1 });
    story.at(64).is(&stream(), RunEvent::ToolCallDecided(decision(DecisionKind::Refused)));
    let second = Decision { ordinal: 2, ..decision(DecisionKind::Allowed) };
    story.at(65).is(&stream(), RunEvent::ToolCallDecided(second));
    story.at(66).is(
        &stream(),
        RunEvent::ToolCallEnded {
            decision: decision(DecisionKind::Allowed),
            result: CallResult::Finished,
            result_digest: None,
            result_bytes: Some(1),
            duration_us: Some(12_345),
        },
    );
    story
}

fn row(story: &Story) -> RunRow {
    story.row(View::Runs, run())
}

#[test]
fn a_run_waits_runs_and_ends() {
    let mut story = Story::default();
    story.at(60).is(&stream(), opened());
    let waiting = row(&story);
    assert_eq!((waiting.state, waiting.take, waiting.opened_at), (RunState::Waiting, 0, after(60)));
    assert_eq!((waiting.window, waiting.unattended), (Some(after(60)), true));
    let mut story = told();
    let running = row(&story);
    assert_eq!((running.state, running.take, running.worker), (RunState::Running, 1, Some(id(PROCESS, 0))));
    assert_eq!((running.taken_at, running.deadline), (Some(after(61)), Some(after(961))));
    assert_eq!((running.turns, running.tool_calls, running.refused_calls), (1, 2, 1));
    story.at(70).is(&stream(), ended(Outcome::Failed, Some(Reason::Error)));
    let over = row(&story);
    assert_eq!((over.state, over.outcome, over.reason), (RunState::Ended, Some(Outcome::Failed), Some(Reason::Error)));
    assert_eq!((over.ended_at, over.headline.as_deref()), (Some(after(70)), Some("Wrote one note.")));
    assert_eq!((over.version, over.position), (8, 8));
}

#[test]
fn a_late_take_brings_no_run_back() {
    let mut story = told();
    story.is(&stream(), ended(Outcome::Abandoned, Some(Reason::Lease)));
    story.is(&stream(), RunEvent::Taken { take: 2, worker: id(PROCESS, 1), deadline_us: after(99) });
    assert_eq!(row(&story).state, RunState::Ended);
}

#[test]
fn the_stored_row_is_the_json_that_scripts_are_written_against() {
    let mut story = told();
    story.at(70).is(&stream(), ended(Outcome::TimedOut, Some(Reason::Deadline)));
    let doc = String::from_utf8(story.stores[&View::Runs][&run().to_string()].0.clone()).unwrap();
    for part in [
        r#""id":"0198c0de-0000-7000-8000-000000000200""#,
        r#""routine":"0198c0de-0000-7000-8000-000000000100""#,
        r#""bot":"0198c0de-0000-7000-8000-000000000500""#,
        r#""cause":"schedule""#,
        r#""window":"2026-11-30T14:46:17.357Z""#,
        r#""state":"ended""#,
        r#""outcome":"timed_out""#,
        r#""reason":"deadline""#,
        r#""opened_at":"2026-11-30T14:46:17.357Z""#,
        r#""ended_at":"2026-11-30T14:46:27.357Z""#,
    ] {
        assert!(doc.contains(part), "{part} in {doc}");
    }
}

#[test]
fn a_timeline_tells_each_step_in_order() {
    let mut story = told();
    let repeat = StreamName::repeat(id(BOT, 0), &[1; 32]);
    story.is(
        &repeat,
        RepeatEvent::ThresholdCrossed {
            threshold: 3,
            count: 3,
            bot: id(BOT, 0),
            run: run(),
            call: id(CALL, 0),
            tool: "computer_write_file".to_owned(),
            unattended: true,
            routine: None,
            trigger: None,
        },
    );
    story.at(70).is(&stream(), ended(Outcome::Failed, Some(Reason::BotUnreachable)));
    let steps: Vec<TimelineRow> = story.rows(View::RunTimeline);
    let titles: Vec<_> = steps.iter().map(|step| (step.position, step.turn, step.title.as_str())).collect();
    assert_eq!(
        titles,
        [
            (1, None, "Opened by its schedule for the window 2026-11-30T14:46:17.357Z; nobody is watching"),
            (2, None, "Taken by a runner (take 1), out of time at 2026-11-30T15:01:18.357Z"),
            (3, Some(1), "Turn 1 started"),
            (4, Some(1), "Turn 1 finished with 1 call"),
            (5, Some(2), "computer_write_file: refused by the rule no-writes"),
            (6, Some(2), "computer_write_file: allowed by the rule all"),
            (7, Some(2), "computer_write_file: finished in 12 ms, 1 byte"),
            (8, None, "Going in circles: computer_write_file made the same call 3 times (threshold 3)"),
            (9, None, "Ended: failed (bot unreachable); 2 calls, 1 refused, after 9.5 s"),
        ]
    );
    let refused: TimelineRow = story.row(View::RunTimeline, key(run(), 5));
    let Detail::Decided(decided) = refused.detail else { panic!("{:?}", refused.detail) };
    assert_eq!((decided.boundary, decided.repeat_count, decided.matched.len()), (4, 3, 2));
}

#[test]
fn a_refusal_without_a_rule_says_what_it_was() {
    let title = |change: fn(&mut Decision)| {
        let mut decided = decision(DecisionKind::Refused);
        change(&mut decided);
        let mut story = Story::default();
        story.is(&stream(), RunEvent::ToolCallDecided(decided));
        story.row::<TimelineRow>(View::RunTimeline, key(run(), 1)).title
    };
    let no_rule = title(|decided| (decided.refusal, decided.rule) = (Some(RefusalCause::NoRule), None));
    assert_eq!(no_rule, "computer_write_file: refused (no rule)");
    let not_granted = title(|decided| decided.refusal = Some(RefusalCause::NotGranted));
    assert_eq!(not_granted, "computer_write_file: refused (not granted)");
    let noted = title(|decided| {
        (decided.refusal, decided.decision, decided.enforced) = (None, DecisionKind::Allowed, false);
    });
    assert_eq!(noted, "computer_write_file: allowed by the rule no-writes, only noted");
}

#[test]
fn attempts_before_anything_acted_and_a_late_report_stand_beside_the_ending() {
    let mut story = Story::default();
    story.at(60).is(&stream(), opened());
    let taken = RunEvent::Taken { take: 1, worker: id(PROCESS, 0), deadline_us: after(961) };
    story.at(61).is(&stream(), taken);
    let failed = RunEvent::AttemptFailed { n: 1, reason: Some(Reason::BotUnreachable), retry_at_us: after(90) };
    story.at(62).is(&stream(), failed);
    let row = story.row::<RunRow>(View::Runs, run());
    assert_eq!((row.attempts_failed, row.retry_at), (1, Some(after(90))));
    story.at(90).is(&stream(), RunEvent::TurnStarted { turn: 1 });
    story.at(95).is(&stream(), ended(Outcome::Abandoned, Some(Reason::Lease)));
    let late = RunEvent::ReportedLate { worker: id(PROCESS, 0), outcome: Outcome::Succeeded, reason: None };
    let said = RunContent::ReportedLate { headline: "Wrote it after all.".to_owned(), error: None };
    story.at(99).is(&stream(), New::with(late, said));
    let row = story.row::<RunRow>(View::Runs, run());
    assert_eq!((row.retry_at, row.outcome, row.ended_at), (None, Some(Outcome::Abandoned), Some(after(95))));
    let late = row.late.unwrap();
    assert_eq!((late.outcome, late.headline.as_deref()), (Outcome::Succeeded, Some("Wrote it after all.")));
    assert_eq!(late.at, after(99));
}
