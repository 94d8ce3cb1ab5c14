//! The story that `demo --once` plays.

use serde_json::Value;

use crate::home::{Home, keys};

#[test]
fn every_statement_is_in_the_ledger() {
    let home = Home::new();
    let dir = home.path("demo").display().to_string();
    let story = home.json(&["demo", "--once", "--dir", &dir]);
    assert_eq!(keys(&story), ["ok", "statements"]);
    assert_eq!(story["ok"], true, "{story}");
    let statements = story["statements"].as_array().unwrap();
    let at = |part: &str| {
        let found = statements.iter().find(|statement| statement["text"].as_str().unwrap().contains(part));
        found.unwrap_or_else(|| panic!("{part}: {story}"))["position"].as_u64().unwrap()
    };

    // The positions hold what the sentences say, also for somebody who looks with another verb.
    let db = format!("sqlite://{dir}/midwatch.db");
    let rows = home.rows(&["audit", "--db", &db]);
    let event = |part: &str| {
        let position = at(part);
        let row = rows.iter().find(|row| row["position"].as_u64() == Some(position));
        row.unwrap_or_else(|| panic!("{part}: {position}")).clone()
    };
    assert_eq!(event("window was claimed")["cause"], "schedule");
    assert_eq!(event("window was claimed")["unattended"], true);
    assert_eq!(event("its only claim")["event"], "routine.run_claimed");
    assert_eq!(event("Its run succeeded")["outcome"], "succeeded");
    let refused = event("was refused by the rule");
    assert_eq!((&refused["decision"], &refused["rule"]), (&Value::from("refused"), &Value::from("no-passwords")));
    assert_eq!(event("is recorded as missed")["outcome"], "missed");
    assert_eq!(event("captured as the sample")["event"], "trigger.sample_captured");
    assert_eq!(event("became a run")["cause"], "delivery");
    assert_eq!(event("was halted")["event"], "engine.scheduling_halted");
    assert_eq!(event("was lifted")["event"], "engine.scheduling_lifted");
    let newest = rows.iter().map(|row| row["position"].as_u64().unwrap()).max().unwrap();
    assert!(at("verify found no gap") >= newest, "all of it was verified");

    home.fails(&["demo", "--once", "--dir", &dir], 2, "holds a demo already");
}
