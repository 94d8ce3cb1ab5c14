//! Measures one judgement: 20 rules over a full context. The design allows 25 µs.

use std::process::ExitCode;
use std::time::Instant;

use midwatch_boundary::{BoundaryDoc, Compiled, Context, Mode, Rule, Verdict, check, presets};

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

fn boundary() -> BoundaryDoc {
    let mut rules = presets();
    for (index, when) in MORE.iter().enumerate() {
        let verdict = if index == MORE.len() - 1 { Verdict::Allow } else { Verdict::Deny };
        rules.push(Rule::new(&format!("rule-{index}"), "measured", verdict, when));
    }
    BoundaryDoc { mode: Mode::Enforce, zone: "Europe/Berlin".to_owned(), rules }
}

const CONTEXT: &str = r#"{"tool.name":"computer_click","intent":"activate","bot.id":"b1","bot.name":"Frida","actor.id":"u1",
 "page.url":"https://shop.example.com/cart?item=42","page.host":"shop.example.com","element.ref":"e14","element.role":"button",
 "element.name":"Add to basket","element.type":"button","key":"Enter","file.path":"out/report.csv","file.name":"report.csv",
 "file.extension":"csv","command":"git status","mcp.server":"tickets","mcp.tool":"update","mcp.effect":"write",
 "run.unattended":false,"run.cause":"schedule","run.id":"r1","run.turn":3,"run.tool_calls":9,"routine.id":"o1",
 "trigger.id":"t1","trigger.event_type":"push","repeat.count":2,"repeat.same_result":1,"run.tokens":12000,"run.cost":34000,
 "now":"2026-03-29T01:30:15Z","args":{"path":"out/report.csv","tags":["a","b","c"],"n":5}}"#;

fn measure(rules: &Compiled, context: &Context) -> f64 {
    const ROUNDS: u32 = 20_000;
    #[expect(clippy::disallowed_methods, reason = "this measures, and nothing else")]
    let start = Instant::now();
    for _ in 0..ROUNDS {
        std::hint::black_box(rules.judge(std::hint::black_box(context)));
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

#[expect(clippy::print_stdout, reason = "an example's output")]
fn main() -> ExitCode {
    let (Ok(rules), Ok(context)) = (check(&boundary()), Context::from_json(CONTEXT)) else { return ExitCode::FAILURE };
    measure(&rules, &context);
    let judgement = rules.judge(&context);
    println!("{}", judgement.to_json());
    println!("{:.1} µs for 20 rules", measure(&rules, &context));
    for rule in boundary().rules {
        let document = BoundaryDoc { rules: vec![rule.clone()], ..boundary() };
        let Ok(one) = check(&document) else { return ExitCode::FAILURE };
        println!("{:6.2} µs  {}", measure(&one, &context), rule.when);
    }
    ExitCode::SUCCESS
}
