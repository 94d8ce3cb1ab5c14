//! The audit view.

use midwatch_events::{
    Actor, New, StreamName,
    bot::BotEvent,
    engine::{EngineContent, EngineEvent, HaltCause},
    id::RunId,
    key::Digest,
    repeat::{RepeatContent, RepeatEvent},
    routine::{MissedReason, RoutineEvent},
    run::{CallResult, DecisionKind, Outcome, RunContent, RunEvent},
    user::{Access, UserEvent},
};
use midwatch_projections::{
    View,
    audit::{AuditRow, filter::Filter},
    projection::padded,
};

use crate::{
    runs::{decision, ended, opened},
    samples::{BOT, CALL, Draw, PROCESS, ROUTINE, RUN, USER, all, id},
    story::{Story, after, project},
};

fn row(story: &Story, position: u64) -> AuditRow {
    story.row(View::Audit, padded(position))
}

fn stream() -> StreamName {
    StreamName::run(id(RUN, 0))
}

fn decided(kind: DecisionKind) -> New<RunEvent> {
    let content = RunContent::ToolCallDecided {
        arguments: "{}".to_owned(),
        context: "{}".to_owned(),
        fingerprint: "computer_write_file notes.txt".to_owned(),
    };
    New::with(RunEvent::ToolCallDecided(decision(kind)), content)
}

#[test]
fn a_decision_says_everything_about_itself() {
    let mut story = Story::default();
    story.at(5).by(&Actor::Bot(id(BOT, 0)), &stream(), decided(DecisionKind::Refused));
    let doc = String::from_utf8(story.stores[&View::Audit][&padded(1)].0.clone()).unwrap();
    for part in [
        r#""position":1"#,
        r#""at":"2026-11-30T14:45:22.357Z""#,
        r#""event":"run.tool_call_decided""#,
        r#""bot":"0198c0de-0000-7000-8000-000000000500""#,
        r#""routine":"0198c0de-0000-7000-8000-000000000100""#,
        r#""run":"0198c0de-0000-7000-8000-000000000200""#,
        r#""tool":"computer_write_file""#,
        r#""verdict":"deny""#,
        r#""decision":"refused""#,
        r#""rule":"no-writes""#,
        r#""matched":["no-writes","all"]"#,
        r#""enforced":true"#,
        r#""unattended":true"#,
        r#""cause":"schedule""#,
        r#""repeat_count":3"#,
        r#""outcome":null"#,
        r#""fingerprint":"computer_write_file notes.txt""#,
        r#""actor":"bot:0198c0de-0000-7000-8000-000000000500""#,
    ] {
        assert!(doc.contains(part), "{part} in {doc}");
    }
}

#[test]
fn an_outcome_row_carries_the_decision() {
    let mut story = Story::default();
    let ended = RunEvent::ToolCallEnded {
        decision: decision(DecisionKind::Allowed),
        result: CallResult::Unknown,
        result_digest: None,
        result_bytes: None,
        duration_us: None,
    };
    story.is(&stream(), ended);
    let row = row(&story, 1);
    assert_eq!((row.decision, row.outcome.as_deref()), (Some(DecisionKind::Allowed), Some("unknown")));
    assert_eq!((row.unattended, row.rule.as_deref()), (Some(true), Some("all")));
}

#[test]
fn what_is_no_decision_is_never_shown_as_one() {
    for sample in all(&mut Draw::fixed()) {
        let mut store = crate::story::Store::new();
        project(View::Audit, &mut store, &sample.event, &sample.at(1));
        for (doc, _) in store.values() {
            let row: AuditRow = serde_json::from_slice(doc).unwrap();
            let is_decision = sample.event_type.starts_with("run.tool_call_");
            assert_eq!(row.event, sample.event_type);
            assert_eq!(row.decision.is_some(), is_decision, "{}", row.event);
            assert_eq!(row.verdict.is_some(), is_decision, "{}", row.event);
        }
    }
}

#[test]
fn counting_and_processes_are_left_out_and_thresholds_are_not() {
    let mut story = Story::default();
    let repeat = StreamName::repeat(id(BOT, 0), &[1; 32]);
    let run: RunId = id(RUN, 0);
    story.is(&repeat, RepeatEvent::Attempted { run, call: id(CALL, 0), at_us: after(0), count: 3, crossed: 0 });
    let crossed = RepeatEvent::ThresholdCrossed {
        threshold: 3,
        count: 3,
        bot: id(BOT, 0),
        run,
        call: id(CALL, 0),
        tool: "computer_write_file".to_owned(),
        unattended: true,
        routine: Some(id(ROUTINE, 0)),
        trigger: None,
    };
    let words = RepeatContent::ThresholdCrossed { fingerprint: "computer_write_file notes.txt".to_owned() };
    story.is(&repeat, New::with(crossed, words));
    story.is(&repeat, RepeatEvent::Settled { call: id(CALL, 0), result: Digest([1; 32]) });
    let process = id(PROCESS, 0);
    story.is(&StreamName::process(process), EngineEvent::ProcessStopped { process });
    let rows: Vec<AuditRow> = story.rows(View::Audit);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].repeat_count, rows[0].unattended, rows[0].decision), (Some(3), Some(true), None));
    assert_eq!(rows[0].fingerprint.as_deref(), Some("computer_write_file notes.txt"));
}

#[test]
fn admin_acts_say_who_and_what() {
    let mut story = Story::default();
    let halted = EngineEvent::SchedulingHalted { cause: HaltCause::Person };
    let words = EngineContent::SchedulingHalted { reason: "moving".to_owned() };
    story.by(&Actor::User(id(USER, 0)), &StreamName::halt(), New::with(halted, words));
    let role = Access::Auditor;
    story.is(&StreamName::user(id(USER, 1)), UserEvent::Invited { user: id(USER, 1), role });
    story.is(&StreamName::bot(id(BOT, 0)), BotEvent::ToolsGranted { tools: vec!["a".to_owned(), "b".to_owned()] });
    let halt = row(&story, 1);
    assert_eq!(halt.actor, format!("user:{}", id::<midwatch_events::id::User>(USER, 0)));
    assert_eq!((halt.reason.as_deref(), halt.subject.as_deref()), (Some("person"), Some("moving")));
    assert_eq!(row(&story, 2).subject.as_deref(), Some("auditor"));
    assert_eq!((row(&story, 3).bot, row(&story, 3).subject.as_deref()), (Some(id(BOT, 0)), Some("a, b")));
}

#[test]
fn filters_find_their_rows_in_a_real_story() {
    let mut story = Story::default();
    story.is(&stream(), opened());
    story.is(&stream(), decided(DecisionKind::Refused));
    story.is(&stream(), decided(DecisionKind::Allowed));
    story.is(&stream(), ended(Outcome::Refused, None));
    let missed = RoutineEvent::WindowsMissed {
        bot: None,
        first_us: after(60),
        last_us: after(120),
        count: 2,
        reason: MissedReason::NoRunner,
        next_us: None,
    };
    story.is(&StreamName::routine(id(ROUTINE, 0)), missed);
    let found = |filter: &str| {
        let filter = Filter::parse(filter, after(10)).unwrap();
        let rows: Vec<AuditRow> = story.rows(View::Audit);
        rows.iter().filter(|row| filter.matches(row)).map(|row| row.position).collect::<Vec<_>>()
    };
    assert_eq!(found(""), [1, 2, 3, 4, 5]);
    assert_eq!(found("decision:refused"), [2]);
    assert_eq!(found("outcome:refused"), [4]);
    assert_eq!(found("outcome:missed"), [5]);
    assert_eq!(found("event:run.ended"), [4]);
    assert_eq!(found("unattended:true"), [1, 2, 3]);
    assert_eq!(found("run:0198c0de-0000-7000-8000-000000000200"), [1, 2, 3, 4]);
    assert_eq!(found("routine:0198c0de-0000-7000-8000-000000000100"), [1, 2, 3, 4, 5]);
    assert_eq!(found("rule:no-writes tool:computer_write_file"), [2]);
    assert_eq!(found(r#"text:"wrote one note""#), [4]);
    assert_eq!(found("text:notes"), [2, 3]);
    assert_eq!(found("text:windows"), [5]);
}
