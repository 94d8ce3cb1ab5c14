//! One judgement: twenty rules over a full context. The design allows 25 µs.
#![expect(clippy::expect_used, reason = "what is measured is fixed here")]

use std::hint::black_box;

use criterion::Criterion;
use midwatch_boundary::{BoundaryDoc, Context, Mode, Rule, Verdict, check, presets};

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

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let document = twenty_rules();
    let rules = check(&document).expect("the rules compile");
    let context = Context::from_json(CONTEXT).expect("the context is one");
    criterion.bench_function("judge 20 rules", |bencher| bencher.iter(|| rules.judge(black_box(&context))));
    criterion.bench_function("compile 20 rules", |bencher| bencher.iter(|| check(black_box(&document))));
    criterion.final_summary();
}
