//! Recorded calls under another boundary.

use midwatch_events::{Actor, New, StreamName, codec, key::Digest, run::Cause};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::Rule;

fn id<Of>(n: u64) -> midwatch_events::id::Id<Of> {
    midwatch_events::id::Id::new(Uuid::from_u128(u128::from(n)))
}

fn decision(call: u64, verdict: Decided, kind: DecisionKind) -> Decision {
    Decision {
        call: id(call),
        ordinal: 1,
        turn: 0,
        step: None,
        tool: "computer_write_file".to_owned(),
        intent: "write_file".to_owned(),
        verdict,
        decision: kind,
        refusal: (kind == DecisionKind::Refused).then_some(RefusalCause::Rule),
        enforced: true,
        rule: Some("then".to_owned()),
        matched: vec![],
        broken: vec![],
        unattended: true,
        cause: Cause::Schedule,
        run: id(1),
        bot: id(2),
        routine: None,
        trigger: None,
        boundary: 1,
        fingerprint: Digest([0; 32]),
        repeat_count: 1,
        repeat_same_result: 0,
        repeat_cycle: 0,
        approval: None,
    }
}

fn recorded(position: u64, decision: Decision, context: Option<&serde_json::Value>) -> Recorded {
    let content = context.map(|context| RunContent::ToolCallDecided {
        arguments: "{}".to_owned(),
        context: context.to_string(),
        fingerprint: "computer_write_file a".to_owned(),
    });
    let encoded = codec::encode(&New { facts: RunEvent::ToolCallDecided(decision), content }).unwrap();
    Recorded {
        position,
        stream: StreamName::run(id(1)),
        version: position,
        event_id: Uuid::nil(),
        event_type: encoded.event_type,
        schema: encoded.schema,
        recorded_at: Micros(1),
        actor: Actor::Engine.to_string(),
        correlation_id: None,
        causation_id: None,
        facts: encoded.facts,
        content: encoded.content,
        salt: None,
        commitment: None,
        leaf_hash: [0; 32],
    }
}

fn trial(rules: Vec<Rule>) -> Trial {
    Trial::new(&BoundaryDoc { rules, ..crate::default_document() })
}

fn writes(path: &str) -> serde_json::Value {
    json!({"intent": "write_file", "file.path": path, "repeat.count": 4})
}

#[test]
fn each_changed_call_is_shown_with_what_was_and_what_would_be() {
    let mut trial = trial(vec![
        Rule::new("no-a", "No a", Verdict::Deny, "file.path == \"a\""),
        Rule::new("ask-often", "Ask", Verdict::Ask, "repeat.count > 3"),
        Rule::new("rest", "Rest", Verdict::Allow, "true"),
    ]);
    let (allow, deny) = (Decided::Allow, Decided::Deny);
    trial.look(&recorded(1, decision(1, allow, DecisionKind::Allowed), Some(&writes("a"))));
    trial.look(&recorded(2, decision(2, deny, DecisionKind::Refused), Some(&writes("a"))));
    trial.look(&recorded(3, decision(3, deny, DecisionKind::Refused), Some(&json!({"intent": "read_file"}))));
    trial.look(&recorded(4, decision(4, allow, DecisionKind::Allowed), Some(&writes("b"))));
    let found = trial.found();
    assert_eq!((found.decisions, found.same, found.changed, found.unevaluable), (4, 1, 3, 0));
    let changes: Vec<_> = found.changes.iter().map(|(change, count)| (change.as_str(), *count)).collect();
    assert_eq!(changes, [("allow → ask", 1), ("allow → deny", 1), ("deny → allow", 1)]);
    let positions: Vec<_> = found.calls.iter().map(|call| call.position).collect();
    assert_eq!(positions, [1, 3, 4]);
    assert_eq!(found.calls[0].would_be.as_ref().unwrap().rule.as_deref(), Some("no-a"));
    assert_eq!(found.calls[0].fingerprint, "computer_write_file a");
}

#[test]
fn what_cannot_be_told_stands_apart() {
    let mut trial = trial(vec![
        Rule::new("typed", "Typed", Verdict::Deny, "has(args.n) && args.n > 3"),
        Rule::new("rest", "Rest", Verdict::Allow, "true"),
    ]);
    let allowed = |call| decision(call, Decided::Allow, DecisionKind::Allowed);
    trial.look(&recorded(1, allowed(1), None));
    trial.look(&recorded(2, allowed(2), Some(&json!({"args": {"n": "many"}}))));
    trial.look(&recorded(3, allowed(3), Some(&json!({"no.such": 1}))));
    trial.look(&recorded(4, allowed(4), Some(&json!({"args": {"n": 4}}))));
    let unknown =
        Decision { refusal: Some(RefusalCause::UnknownTool), ..decision(5, Decided::Deny, DecisionKind::Refused) };
    trial.look(&recorded(5, unknown, Some(&json!({}))));
    let found = trial.found();
    assert_eq!((found.decisions, found.changed, found.unevaluable, found.before_any_rule), (5, 1, 3, 1));
    let why: Vec<_> = found.not_told.iter().map(|call| call.unevaluable.clone().unwrap()).collect();
    assert!(why[0].contains("erased") && why[1].starts_with("typed:") && why[2].contains("no.such"), "{why:?}");
}

#[test]
fn a_call_that_waited_is_one_call_and_a_dry_run_let_it_through() {
    let mut trial = trial(vec![Rule::new("none", "None", Verdict::Deny, "true")]);
    let context = writes("a");
    trial.look(&recorded(1, decision(1, Decided::Ask, DecisionKind::Asked), Some(&context)));
    trial.look(&recorded(2, decision(1, Decided::Ask, DecisionKind::Allowed), Some(&context)));
    let noted = Decision { enforced: false, ..decision(2, Decided::Deny, DecisionKind::Allowed) };
    trial.look(&recorded(3, noted, Some(&context)));
    let found = trial.found();
    let changes: Vec<_> = found.changes.keys().map(String::as_str).collect();
    assert_eq!((found.decisions, changes), (2, vec!["allow → deny", "ask → deny"]));
}
