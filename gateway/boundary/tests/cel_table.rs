//! Our rules over a table of expressions, with the values that two independent implementations of CEL give.
//!
//! `cel/expressions.py` holds the expressions, written from the language definition; `cel/generate.py` asks the peers
//! (`cel-python` and `@marcbachmann/cel-js`) and writes `cel/table.jsonl`; where they differ, `cel/decided.py` says what
//! the definition says. An upgrade of the CEL crate cannot change an answer unnoticed: this test needs neither peer.

use std::{fs, path::Path};

use midwatch_boundary::{BoundaryDoc, Context, Mode, Rule, Verdict, check};
use serde_json::Value;

/// Where we answer otherwise than the definition, and why.
const OTHERWISE: &[(&str, &str)] = &[];

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cel").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a rule on this context comes to: whether it matches, or that it is refused or broken.
fn outcome(when: &str, context: &Context) -> Result<bool, String> {
    let rules = vec![Rule::new("r", "r", Verdict::Deny, when)];
    let document = BoundaryDoc { mode: Mode::Enforce, zone: "UTC".to_owned(), rules };
    let compiled = check(&document).map_err(|findings| findings[0].sentence.clone())?;
    let judgement = compiled.judge(context);
    match judgement.broken.into_iter().next() {
        Some(broken) => Err(broken.error),
        None => Ok(!judgement.matched.is_empty()),
    }
}

/// What is wrong with our answer, if anything.
fn wrong(expression: &str, expected: &str, context: &Context) -> Option<String> {
    let when = match expected {
        "true" | "false" => expression.to_owned(),
        "error" => format!("dyn({expression}) == 1"),
        _ => format!("({expression}) == {expected}"),
    };
    let found = outcome(&when, context);
    let right = match expected {
        "error" => found.is_err(),
        "false" => found == Ok(false),
        _ => found == Ok(true),
    };
    (!right).then(|| format!("{expression} is to be {expected}; {when}: {found:?}"))
}

#[test]
fn every_expression_gives_what_the_definition_says() {
    let contexts: Vec<Value> = serde_json::from_str(&read("contexts.json")).unwrap();
    let [full, neutral] = [0, 1].map(|at: usize| Context::from_json(&contexts[at].to_string()).unwrap());
    let table = read("table.jsonl");
    let rows: Vec<Value> = table.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() >= 400, "only {} expressions", rows.len());
    let mut findings = Vec::new();
    for row in &rows {
        let (expression, expected) = (row["expression"].as_str().unwrap(), row["expected"].as_str().unwrap());
        let context = if row["full"] == true { &full } else { &neutral };
        let known = OTHERWISE.iter().any(|(other, _)| *other == expression);
        match wrong(expression, expected, context) {
            Some(finding) if !known => findings.push(finding),
            None if known => findings.push(format!("{expression} is as the definition says now; take it off the list")),
            Some(_) | None => {}
        }
    }
    assert!(findings.is_empty(), "{} of {}:\n{}", findings.len(), rows.len(), findings.join("\n"));
}
