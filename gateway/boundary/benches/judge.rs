//! One judgement: twenty rules over a full context. The design allows 25 µs.
#![expect(clippy::expect_used, reason = "what is measured is fixed here")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use midwatch_boundary::{BoundaryDoc, Context, Mode, Rule, Verdict, check, presets, what_if::Trial};
use midwatch_events::{
    Micros, New, Recorded, StreamName, codec,
    id::Id,
    key::Digest,
    run::{Cause, Decision, DecisionKind, RunContent, RunEvent, Verdict as Decided},
};
use uuid::Uuid;

const MORE: [&str; 15] = [
    "tool.name == \"computer_run_command\" && command.contains(\"rm -rf\")",
    "mcp.effect == \"write\" && !(mcp.server in [\"tickets\", \"wiki\"])",
    "has(args.path) && args.path.startsWith(\"/etc\")",
    "page.host.endsWith(\".example.com\") && intent == \"navigate\"",
    "contains(element.name, \"delete\") || contains(element.name, \"löschen\")",
    "run.tokens > 2000000 || run.cost > 5000000",
    "now.getHours(zone) < 6 && run.unattended",
    "matches(page.url, \"/admin(/|$)\")",
    "file.extension in [\"exe\", \"sh\", \"ps1\"] && intent == \"write_file\"",
    "run.cause == \"delivery\" && trigger.event_type == \"push\"",
    "repeat.same_result >= 5 && !run.unattended",
    "repeat.cycle > 3",
    "has(args.tags) && args.tags.exists(t, t == \"secret\")",
    "element.role == \"button\" && element.name.lowerAscii().startsWith(\"pay\")",
    "intent != \"\"",
];

const CONTEXT: &str = r#"{"tool.name":"computer_click","intent":"activate","bot.id":"b1","bot.name":"Frida",
 "actor.id":"u1","page.url":"https://shop.example.com/cart?item=42","page.host":"shop.example.com","element.ref":"e14",
 "element.role":"button","element.name":"Add to basket","element.type":"button","key":"Enter","file.path":"out/report.csv",
 "file.name":"report.csv","file.extension":"csv","command":"git status","mcp.server":"tickets","mcp.tool":"update",
 "mcp.effect":"write","run.unattended":false,"run.cause":"schedule","run.id":"r1","run.turn":3,"run.tool_calls":9,
 "routine.id":"o1","trigger.id":"t1","trigger.event_type":"push","repeat.count":2,"repeat.same_result":1,
 "run.tokens":12000,"run.cost":34000,"now":"2026-03-29T01:30:15Z",
 "args":{"path":"out/report.csv","tags":["a","b","c"],"n":5}}"#;

/// The presets, and rules until there are twenty. The last lets through what none refused, so all are looked at.
fn twenty_rules() -> BoundaryDoc {
    let mut rules = presets();
    rules.truncate(20 - MORE.len());
    for (index, when) in MORE.iter().enumerate() {
        let verdict = if index == MORE.len() - 1 { Verdict::Allow } else { Verdict::Deny };
        rules.push(Rule::new(&format!("rule-{index}"), "measured", verdict, when));
    }
    assert_eq!(rules.len(), 20);
    BoundaryDoc { mode: Mode::Enforce, zone: "Europe/Berlin".to_owned(), rules }
}

/// The same without our own functions, as `benches/gateway` gives them to other implementations.
fn standard_rules() -> BoundaryDoc {
    let rules: Vec<String> =
        serde_json::from_str(include_str!("../../../benches/gateway/rules.json")).expect("a list of rules");
    let rule = |(n, when): (usize, String)| {
        let verdict = if n == 19 { Verdict::Allow } else { Verdict::Deny };
        Rule::new(&format!("rule-{n}"), "measured", verdict, &when)
    };
    let rules = rules.into_iter().enumerate().map(rule).collect();
    BoundaryDoc { rules, ..twenty_rules() }
}

/// The five presets, and the rule that lets through the rest.
fn the_presets() -> BoundaryDoc {
    let mut document = twenty_rules();
    document.rules = presets();
    document.rules.push(Rule::new("rest", "the rest", Verdict::Allow, "true"));
    document
}

/// A thousand recorded decisions on the full context.
fn decided() -> Vec<Recorded> {
    let decision = |n: u64| Decision {
        call: Id::new(Uuid::from_u128(u128::from(n))),
        ordinal: 1,
        turn: 1,
        step: None,
        tool: "computer_click".to_owned(),
        intent: "activate".to_owned(),
        verdict: Decided::Allow,
        decision: DecisionKind::Allowed,
        refusal: None,
        enforced: true,
        rule: Some("rest".to_owned()),
        matched: vec!["rest".to_owned()],
        broken: vec![],
        unattended: false,
        cause: Cause::Schedule,
        run: Id::new(Uuid::nil()),
        bot: Id::new(Uuid::nil()),
        routine: None,
        trigger: None,
        boundary: 1,
        fingerprint: Digest([0; 32]),
        repeat_count: 2,
        repeat_same_result: 1,
        repeat_cycle: 0,
        approval: None,
    };
    let context = Context::from_json(CONTEXT).expect("the context is one").to_json();
    let recorded = |n: u64| {
        let content = RunContent::ToolCallDecided {
            arguments: "{}".to_owned(),
            context: context.clone(),
            fingerprint: "computer_click button".to_owned(),
        };
        let new = New::with(RunEvent::ToolCallDecided(decision(n)), content);
        let encoded = codec::encode(&new).expect("an event can be encoded");
        Recorded {
            position: n + 1,
            stream: StreamName::run(Id::new(Uuid::nil())),
            version: n + 1,
            event_id: Uuid::nil(),
            event_type: encoded.event_type,
            schema: encoded.schema,
            recorded_at: Micros(1),
            actor: "engine".to_owned(),
            correlation_id: None,
            causation_id: None,
            facts: encoded.facts,
            content: encoded.content,
            salt: None,
            commitment: None,
            leaf_hash: [0; 32],
        }
    };
    (0..1_000).map(recorded).collect()
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let document = twenty_rules();
    let rules = check(&document).expect("the rules compile");
    let context = Context::from_json(CONTEXT).expect("the context is one");
    criterion.bench_function("judge 20 rules", |bencher| bencher.iter(|| rules.judge(black_box(&context))));
    let standard = check(&standard_rules()).expect("the rules compile");
    criterion.bench_function("judge 20 rules in standard CEL", |bencher| {
        bencher.iter(|| standard.judge(black_box(&context)));
    });
    criterion.bench_function("compile 20 rules", |bencher| bencher.iter(|| check(black_box(&document))));
    let decided = decided();
    let mut group = criterion.benchmark_group("what-if");
    group.throughput(Throughput::Elements(decided.len() as u64));
    for (name, tried) in [("20 rules", &document), ("the presets", &the_presets())] {
        group.bench_function(name, |bencher| {
            let look = |mut trial: Trial| {
                decided.iter().for_each(|recorded| trial.look(black_box(recorded)));
                trial.found().decisions
            };
            bencher.iter_batched(|| Trial::new(tried), look, BatchSize::LargeInput);
        });
    }
    group.finish();
    criterion.final_summary();
}
