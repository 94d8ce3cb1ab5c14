//! What `doctor` sees.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::Value;

use crate::{bad_input::sql, home::Home};

fn check<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let checks = answer["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {answer}"))
}

fn key(home: &Home) -> PathBuf {
    let deployment = fs::read_dir(home.path("state/midwatch")).unwrap().next().unwrap().unwrap().path();
    deployment.join("key")
}

#[test]
fn a_sound_deployment() {
    let (home, ..) = Home::with_routine();
    let answer = home.json(&["doctor"]);
    for name in [
        "ledger",
        "durability",
        "erased words",
        "identity",
        "key",
        "key beside database",
        "projections",
        "halt",
        "time zones",
        "second opinion",
    ] {
        assert_eq!(check(&answer, name)["state"], "ok", "{answer}");
    }
    assert_eq!(check(&answer, "runner")["state"], "warn", "{answer}");
    assert_eq!(answer["ok"], false);
    let shown = home.run(&["doctor"]);
    assert!(shown.out.contains("warning  runner"), "{}", shown.out);
}

#[test]
fn what_is_not_as_it_should_be() {
    let (home, bot, _) = Home::with_routine();
    // The older of the two copies of the zone data does not know that British Columbia stopped changing its clocks.
    let zone = r#"{"kind":"weekly","zone":"America/Vancouver","days":["mon"],"times":["08:00"]}"#;
    home.routine(&bot, "Vancouver", zone);
    home.json(&["halt", "--reason", "fire drill"]);
    fs::copy(key(&home), home.path("backup-of-key")).unwrap();
    let answer = home.json(&["doctor"]);
    assert_eq!(check(&answer, "halt")["state"], "warn");
    assert!(check(&answer, "second opinion")["message"].as_str().unwrap().contains("America/Vancouver"), "{answer}");
    let beside = check(&answer, "key beside database");
    assert_eq!(beside["state"], "warn");
    assert!(beside["message"].as_str().unwrap().contains("backup-of-key"), "{beside}");

    fs::set_permissions(key(&home), fs::Permissions::from_mode(0o644)).unwrap();
    let ran = home.run(&["doctor", "--json"]);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &check(&answer, "key")["state"]), (1, &Value::from("fail")));
}

#[test]
fn a_ledger_that_is_not_there() {
    let home = Home::new();
    let ran = home.run(&["doctor", "--json"]);
    assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(check(&answer, "ledger")["state"], "fail");
    assert!(!home.path("midwatch.db").exists());
}

// The newest event was written while the database's clock was ten minutes ahead; since then it was set right.
#[test]
fn a_clock_that_was_set_back() {
    let (home, ..) = Home::with_routine();
    let insert = "INSERT INTO events (position, stream, version, event_id, event_type, schema, recorded_at, actor, facts,
        leaf_hash) SELECT position + 1, stream, version + 1, randomblob(16), event_type, schema, recorded_at + 600000000,
        actor, facts, leaf_hash FROM events ORDER BY position DESC LIMIT 1";
    sql(&home.path("midwatch.db"), insert);
    let answer = home.json(&["doctor"]);
    let ledger = check(&answer, "ledger");
    assert_eq!(ledger["state"], "warn", "{answer}");
    assert!(ledger["message"].as_str().unwrap().contains("s ahead of the database's clock"), "{ledger}");
}
