//! How rules decide together, and the threads they are judged on.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use cel_interpreter::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};

use super::*;
use crate::{Approvers, Effect, Judge, Judgement, Unattended, compile_lenient, default_document};

fn rule(id: &str, verdict: Verdict, when: &str) -> Rule {
    Rule::new(id, id, verdict, when)
}

fn shadow(id: &str, verdict: Verdict, when: &str) -> Rule {
    Rule { effect: Effect::Shadow, ..rule(id, verdict, when) }
}

fn judge(rules: Vec<Rule>) -> Judgement {
    check(&boundary(rules)).unwrap().judge(&Context::default())
}

use Verdict::{Allow, Ask, Deny};

/// Accepted on save, and broken on every call.
const BREAKS: &str = "1 / 0 == 1";

#[test]
fn deny_then_ask_then_allow_and_nothing_is_a_refusal() {
    let (t, f) = ("true", "false");
    for (rules, verdict, decided) in [
        (vec![], Deny, None),
        (vec![rule("a", Allow, f)], Deny, None),
        (vec![rule("a", Allow, t)], Allow, Some("a")),
        (vec![rule("a", Allow, t), rule("q", Ask, t)], Ask, Some("q")),
        (vec![rule("a", Allow, t), rule("q", Ask, t), rule("d", Deny, t)], Deny, Some("d")),
        (vec![rule("a", Allow, t), rule("q", Ask, t), rule("d", Deny, f)], Ask, Some("q")),
        (vec![rule("d1", Deny, f), rule("d2", Deny, t), rule("d3", Deny, t)], Deny, Some("d2")),
        (vec![rule("a1", Allow, t), rule("a2", Allow, t)], Allow, Some("a1")),
        // Broken: deny denies, ask asks, allow does not allow.
        (vec![rule("d", Deny, BREAKS), rule("a", Allow, t)], Deny, Some("d")),
        (vec![rule("q", Ask, BREAKS), rule("a", Allow, t)], Ask, Some("q")),
        (vec![rule("a", Allow, BREAKS)], Deny, None),
        (vec![rule("a", Allow, BREAKS), rule("b", Allow, t)], Allow, Some("b")),
        (vec![rule("q", Ask, BREAKS), rule("d", Deny, t)], Deny, Some("d")),
        // Shadow rules never decide, broken ones neither.
        (vec![shadow("d", Deny, t), rule("a", Allow, t)], Allow, Some("a")),
        (vec![shadow("d", Deny, BREAKS), rule("a", Allow, t)], Allow, Some("a")),
        (vec![shadow("a", Allow, t)], Deny, None),
        // G15: only a deny rule that does not match: refused, and no rule is named.
        (vec![rule("d", Deny, f)], Deny, None),
    ] {
        let shown: Vec<_> = rules.iter().map(|rule| format!("{:?} {} {}", rule.effect, rule.id, rule.when)).collect();
        let judgement = judge(rules);
        assert_eq!((judgement.verdict, judgement.rule.as_deref()), (verdict, decided), "{shown:?}");
        assert!(judgement.enforced);
    }
}

#[test]
fn every_match_and_every_break_is_named_in_document_order() {
    let judgement = judge(vec![
        rule("allow", Allow, "true"),
        shadow("shadow", Deny, "true"),
        rule("broken", Ask, BREAKS),
        rule("not", Deny, "false"),
        rule("deny", Deny, "true"),
        shadow("broken-shadow", Deny, BREAKS),
    ]);
    assert_eq!(judgement.matched, ["allow", "shadow", "deny"]);
    let broken: Vec<&str> = judgement.broken.iter().map(|broken| broken.rule.as_str()).collect();
    assert_eq!(broken, ["broken", "broken-shadow"]);
    assert_eq!(
        judgement.to_json(),
        r#"{"verdict":"deny","enforced":true,"rule":"deny","matched":["allow","shadow","deny"],"broken":[{"rule":"broken","error":"divides by zero"},{"rule":"broken-shadow","error":"divides by zero"}]}"#
    );
    assert_eq!(judge(vec![]).to_json(), r#"{"verdict":"deny","enforced":true,"rule":null,"matched":[],"broken":[]}"#);
}

#[test]
fn a_dry_run_records_the_would_be_verdict() {
    let document = BoundaryDoc { mode: Mode::DryRun, ..boundary(vec![rule("d", Deny, "true")]) };
    let judgement = check(&document).unwrap().judge(&Context::default());
    assert_eq!((judgement.verdict, judgement.enforced, judgement.rule.as_deref()), (Deny, false, Some("d")));
}

#[test]
fn an_ask_carries_what_its_rule_says() {
    let waiting = Rule { unattended: Unattended::Wait, approvers: Approvers::NotOwner, ..rule("q", Ask, "true") };
    let judgement = judge(vec![rule("a", Allow, "true"), waiting]);
    assert_eq!((judgement.unattended, judgement.approvers), (Unattended::Wait, Approvers::NotOwner));
}

/// G15: the default is explicit: one rule that allows everything.
#[test]
fn the_default_allows_by_its_one_rule() {
    let judgement = check(&default_document()).unwrap().judge(&Context::default());
    assert_eq!((judgement.verdict, judgement.rule.as_deref()), (Allow, Some("allow-all")));
}

/// G38: a deny rule about one tool must not refuse the others.
#[test]
fn rules_about_one_tool_leave_the_others_alone() {
    let click = r#"{"tool.name":"computer_click","intent":"activate","element.name":"Save","element.role":"button"}"#;
    let mcp = r#"{"tool.name":"mcp__crm__update","intent":"write_tool","mcp.server":"crm","mcp.effect":"write"}"#;
    let shell = r#"{"tool.name":"computer_run_command","intent":"run_command","command":"{ rm -rf x; }"}"#;
    for (when, refused, left_alone) in [
        ("mcp.effect == \"write\"", mcp, click),
        ("contains(command,\"rm\")", shell, mcp),
        ("contains(element.name, \"save\")", click, shell),
        ("has(args.path) && args.path == \"/etc\"", "", click),
    ] {
        let rules = check(&boundary(vec![rule("d", Deny, when), rule("a", Allow, "true")])).unwrap();
        let verdict = |context: &str| rules.judge(&Context::from_json(context).unwrap());
        assert_eq!(verdict(left_alone).verdict, Allow, "{when}");
        assert!(verdict(left_alone).broken.is_empty());
        if !refused.is_empty() {
            assert_eq!(verdict(refused).verdict, Deny, "{when}");
        }
    }
}

#[test]
fn presets_stop_what_they_say() {
    let mut rules = crate::presets();
    rules.push(rule("allow", Allow, "true"));
    let rules = check(&boundary(rules)).unwrap();
    for (context, decided) in [
        (r#"{"intent":"activate","element.name":"SUBMIT order"}"#, "no-submit"),
        (r#"{"intent":"activate","element.type":"submit","element.name":"Go"}"#, "no-submit"),
        (r#"{"intent":"read","element.name":"Submit"}"#, "allow"),
        (r#"{"intent":"type","element.type":"password"}"#, "no-password"),
        (r#"{"intent":"navigate","page.host":"www.Facebook.com"}"#, "no-social-media"),
        (r#"{"intent":"navigate","page.host":"x.com"}"#, "no-social-media"),
        (r#"{"intent":"navigate","page.host":"notx.com"}"#, "allow"),
        (r#"{"intent":"navigate","page.host":"x.com.example"}"#, "allow"),
        (r#"{"intent":"activate","repeat.count":10}"#, "no-repeats"),
        (r#"{"intent":"activate","repeat.count":9}"#, "allow"),
        (r#"{"intent":"read","repeat.count":100}"#, "allow"),
        (r#"{"intent":"activate","run.unattended":true}"#, "look-never-press"),
        (r#"{"intent":"read","run.unattended":true}"#, "allow"),
    ] {
        let judgement = rules.judge(&Context::from_json(context).unwrap());
        assert_eq!(judgement.rule.as_deref(), Some(decided), "{context}");
    }
}

/// A rule that keeps its thread for so long; no text compiles to it.
fn stalling(milliseconds: i64) -> Arc<Compiled> {
    let mut compiled = compile_lenient(&boundary(vec![rule("a", Allow, "true"), rule("slow", Deny, "false")]));
    let argument = IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Int(milliseconds.into())) };
    let call = CallExpr { func_name: "@stall".to_owned(), target: None, args: vec![argument] };
    compiled.replace_for_tests(1, IdedExpr { id: 0, expr: Expr::Call(call) });
    Arc::new(compiled)
}

fn allowing() -> Arc<Compiled> {
    Arc::new(check(&default_document()).unwrap())
}

#[test]
fn a_judgement_that_takes_too_long_is_a_refusal_and_its_thread_is_replaced() {
    let judge = Judge::new(1).unwrap();
    assert_eq!(judge.judge(&allowing(), Context::default()).verdict, Allow);
    let start = clock();
    let judgement = judge.judge(&stalling(400), Context::default());
    assert!(start.elapsed() < Duration::from_millis(350), "{:?}", start.elapsed());
    assert_eq!((judgement.verdict, judgement.rule.as_deref()), (Deny, Some("slow")));
    assert!(judgement.broken[0].error.contains("longer than 50 ms"), "{judgement:?}");
    assert!(judge.healthy());
    assert_eq!(judge.judge(&allowing(), Context::default()).verdict, Allow, "another thread judges on");
}

// A14 of docs/architecture.md.
#[test]
fn two_stuck_threads_refuse_everything_until_they_end() {
    let judge = Judge::new(2).unwrap();
    let (sender, receiver) = mpsc::channel();
    for _ in 0..2 {
        let sender = sender.clone();
        judge.submit(stalling(600), Context::default(), move |judgement| sender.send(judgement).unwrap());
    }
    for _ in 0..2 {
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)).unwrap().verdict, Deny);
    }
    assert!(!judge.healthy());
    let refused = judge.judge(&allowing(), Context::default());
    assert_eq!((refused.verdict, refused.rule), (Deny, None));
    std::thread::sleep(Duration::from_millis(900));
    assert!(judge.healthy(), "the stuck threads have ended");
    assert_eq!(judge.judge(&allowing(), Context::default()).verdict, Allow);
}

// A14 of docs/architecture.md.
/// G13: whatever happens to the decider, the call is refused: a panicking reply or a dropped judge too.
#[test]
fn a_failing_decider_refuses() {
    let judge = Judge::new(1).unwrap();
    judge.submit(allowing(), Context::default(), |_| panic!("a caller's fault"));
    assert_eq!(judge.judge(&allowing(), Context::default()).verdict, Allow, "the thread lives on");
    let (sender, receiver) = mpsc::channel();
    let slow = sender.clone();
    judge.submit(stalling(40), Context::default(), move |judgement| slow.send(judgement).unwrap());
    judge.submit(allowing(), Context::default(), move |judgement| sender.send(judgement).unwrap());
    std::thread::sleep(Duration::from_millis(5));
    drop(judge);
    assert_eq!(receiver.iter().count(), 2, "each call is answered once, however it ends");
    let broken = compile_lenient(&boundary(vec![rule("d", Deny, "((("), rule("a", Allow, "true")]));
    assert_eq!(broken.judge(&Context::default()).verdict, Deny);
}

#[test]
fn many_calls_from_many_threads_are_each_answered() {
    let judge = Judge::new(2).unwrap();
    let rules = allowing();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert_eq!(judge.judge(&rules, Context::default()).verdict, Allow);
                }
            });
        }
    });
}

/// What-if judges on its caller's thread: the deepest rules the limits allow need less than its 2 MiB.
#[test]
fn the_deepest_rules_can_be_judged_on_an_ordinary_stack() {
    let nested = |open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(24), close.repeat(24));
    for when in [
        nested("(1 + 1 * 2 - 3 + ", "1", ")") + " == 1",
        nested("(true && key == '' || !", "true", ")"),
        nested("string(", "key", ")") + " == ''",
        nested("[key, ", "key", "]") + " != []",
        format!("1{} == 1", " + 1".repeat(44)),
        format!("{}true{}", "(intent == '' ? ".repeat(16), " : false)".repeat(16)),
    ] {
        let rules = compiled(&when);
        let thread = std::thread::Builder::new().stack_size(3 << 19);
        let judged = thread.spawn(move || rules.judge(&Context::default())).unwrap().join().unwrap();
        assert!(judged.broken.is_empty(), "{when}: {judged:?}");
    }
}
