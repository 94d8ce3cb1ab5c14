//! Replay and verify: reads only, without a key, and whatever was changed is found.

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::home::{Home, keys};

/// A home in which a routine was run now; the run waits for a runner that never comes.
fn with_run() -> (Home, String, String) {
    let (home, _, routine) = Home::with_routine();
    let run = home.json(&["run", "now", &routine]);
    (home, routine, run["run"].as_str().unwrap().to_owned())
}

/// Changes the file as somebody who can write to it could.
fn tamper(home: &Home, sql: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = sqlx::SqliteConnection::connect(&home.db()).await.unwrap();
        connection.execute(sql).await.unwrap();
        connection.close().await.unwrap();
    });
}

#[test]
fn a_changed_event_is_found_and_named() {
    let (home, ..) = with_run();
    let verified = home.json(&["verify"]);
    assert_eq!(keys(&verified), ["events", "ok"], "{verified}");
    assert_eq!(verified["ok"], true);
    assert_eq!(home.run(&["verify"]).code, 0);

    tamper(&home, "DROP TRIGGER events_only_erased; UPDATE events SET actor = 'cli:7' WHERE position = 3");
    let found = home.run(&["verify", "--json"]);
    assert_eq!((found.code, found.err.as_str()), (1, ""), "{}", found.out);
    let found: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!(keys(&found), ["error", "first_bad", "ok"], "{found}");
    assert_eq!((&found["ok"], &found["first_bad"]), (&json!(false), &json!(3)));
    let said = home.run(&["verify"]);
    assert!(said.code == 1 && said.out.contains("position 3"), "{}", said.out);
}

#[test]
fn a_copy_is_replayed_without_any_key() {
    let (home, routine, run) = with_run();
    std::fs::copy(home.path("midwatch.db"), home.path("copy.db")).unwrap();
    let db = format!("sqlite://{}", home.path("copy.db").display());
    std::fs::remove_dir_all(home.path("state")).unwrap();
    let ask = |arguments: &[&str]| home.json(&[arguments, &["--db", &db]].concat());

    let told = ask(&["replay", "run", &run]);
    assert_eq!(keys(&told), ["ended", "entries", "run", "state", "until"], "{told}");
    assert_eq!((&told["run"], &told["state"], &told["ended"]), (&json!(run), &json!("waiting"), &Value::Null));
    assert_eq!(told["entries"][0]["cause"], "person");
    assert_eq!(told["entries"][0]["routine"]["name"], "Morning");
    let opened = told["until"].as_u64().unwrap();

    let caused = ask(&["replay", "cause", &opened.to_string()]);
    assert_eq!(caused["origin"]["kind"], "actor");
    assert_eq!(caused["chain"].as_array().unwrap().len(), 2, "{caused}");
    let stream = format!("routine-{routine}");
    let state = ask(&["replay", "state", &stream]);
    assert_eq!(state["state"]["target"]["live"], json!(run));
    let difference = ask(&["replay", "state", &stream, "--diff", &(opened - 2).to_string(), &opened.to_string()]);
    let changed: Vec<_> = difference["changed"].as_array().unwrap().iter().map(|c| c["member"].clone()).collect();
    assert_eq!(changed, ["target.live", "target.live_cause"]);
    assert_eq!(ask(&["verify"])["ok"], true);
    assert!(!home.path("state").exists(), "nothing was written beside it");

    let text = home.run(&["replay", "run", &run, "--db", &db]);
    assert!(text.out.contains("Opened because a person asked for it; nobody is watching"), "{}", text.out);
    assert!(text.out.contains("It waited for a runner"), "{}", text.out);
}

#[test]
fn what_is_not_there_is_said_in_a_sentence() {
    let home = Home::new();
    home.fails(&["verify"], 3, "no ledger");
    home.fails(&["replay", "cause", "1"], 3, "no ledger");
    let (home, _, run) = with_run();
    let nobody = "0198c0de-0000-7000-8000-000000000001";
    home.fails(&["replay", "run", nobody], 2, "there is no run");
    home.fails(&["replay", "run", "nonsense"], 2, "it is no id");
    home.fails(&["replay", "run", &run, "--at", "1"], 2, "later than position 1");
    home.fails(&["replay", "run", &run, "--at", "soon"], 2, "no moment");
    home.fails(&["replay", "state", "moon-1"], 2, "is no stream");
    home.fails(&["replay", "state", &format!("run-{nobody}")], 2, "nothing was written");
    home.fails(&["replay", "cause", "999999"], 2, "nothing stands at position 999999");
}
