//! The answers that scripts are written against, member by member.

use serde_json::{Value, json};

use crate::home::{Home, LISTING, WEEKDAYS, keys};

#[test]
fn a_routine_from_its_making_to_its_end() {
    let home = Home::new();
    let bot = home.json(&["bot", "add", "--name", "ops", "--agui", "http://127.0.0.1:9/agent"]);
    assert_eq!(keys(&bot), ["id"]);
    let bot = bot["id"].as_str().unwrap();
    let recording = home.write("r.json", LISTING);
    let add = ["routine", "add", "--name", "Morning", "--bot", bot, "--schedule", WEEKDAYS];
    let from_file = format!("@{recording}");
    let made = home.json(&[&add[..], &["--recording", &from_file]].concat());
    assert_eq!(keys(&made), ["id"]);
    let id = made["id"].as_str().unwrap();

    let listed = || home.json(&["routine", "list"]);
    let row = listed()[0].clone();
    assert_eq!(
        keys(&row),
        ["attention", "id", "last_outcome", "last_reason", "live_run", "name", "next_window", "state"]
    );
    assert_eq!((&row["id"], &row["name"], &row["state"]), (&json!(id), &json!("Morning"), &json!("active")));
    assert!(row["next_window"].as_str().unwrap().ends_with(":00:00Z"), "{row}");
    assert_eq!(
        (&row["last_outcome"], &row["last_reason"], &row["live_run"]),
        (&json!(null), &json!(null), &json!(null))
    );

    home.json(&["routine", "pause", id, "--reason", "holidays"]);
    let row = listed()[0].clone();
    assert_eq!((&row["state"], &row["next_window"]), (&json!("paused"), &json!(null)));
    assert_eq!(home.json(&["routine", "show", id])["reason"], "holidays");
    home.fails(&["routine", "pause", id], 1, "paused already");
    home.json(&["routine", "resume", id]);

    home.json(&["routine", "edit", id, "--name", "Evening", "--instruction", "Tidy up", "--deadline-s", "60"]);
    let shown = home.json(&["routine", "show", id]);
    assert_eq!(
        (&shown["name"], &shown["instruction"], &shown["recording"]),
        (&json!("Evening"), &json!("Tidy up"), &json!(null))
    );
    assert_eq!(shown["limits"], json!({"grace_s": 600, "deadline_s": 60, "max_turns": 20}));
    home.fails(&["routine", "edit", id, "--name", "Night", "--expect", "1"], 1, "changed meanwhile");

    home.json(&["routine", "delete", id]);
    assert_eq!(listed(), json!([]));
    home.fails(&["routine", "resume", id], 1, "there is no routine");
}

#[test]
fn a_run_that_waits_and_is_called_off() {
    let (home, bot, routine) = Home::with_routine();
    let now = home.run(&["run", "now", &routine, "--json"]);
    assert_eq!(now.code, 0, "{}", now.err);
    assert!(now.err.contains("no process that executes runs"), "{}", now.err);
    let answer: Value = serde_json::from_str(&now.out).unwrap();
    assert_eq!(keys(&answer), ["position", "run"]);
    let run = answer["run"].as_str().unwrap();

    let rows = home.json(&["run", "list"]);
    assert_eq!(
        keys(&rows[0]),
        ["bot", "cause", "ended_at", "id", "opened_at", "outcome", "reason", "routine", "state", "window"]
    );
    let opened_at = rows[0]["opened_at"].clone();
    assert_eq!(
        rows,
        json!([{
            "id": run, "routine": routine, "bot": bot, "cause": "person", "window": null, "state": "waiting",
            "outcome": null, "reason": null, "opened_at": opened_at, "ended_at": null,
        }])
    );
    assert_eq!(home.json(&["routine", "list"])[0]["live_run"], run);

    let busy = home.fails(&["run", "now", &routine], 1, run);
    assert_eq!(busy["code"], "busy");
    home.json(&["run", "cancel", run]);
    let row = home.json(&["run", "list", "--state", "ended", "--routine", &routine])[0].clone();
    assert_eq!((&row["outcome"], &row["reason"]), (&json!("cancelled"), &json!("person")));
    assert_eq!(home.json(&["run", "list", "--state", "waiting"]), json!([]));
    home.fails(&["run", "cancel", run], 1, "has ended");
    let row = home.json(&["routine", "list"])[0].clone();
    assert_eq!((&row["last_outcome"], &row["last_reason"]), (&json!("cancelled"), &json!("person")));
}

#[test]
fn a_trigger_and_its_secret() {
    let (home, bot, routine) = Home::with_routine();
    let made = home.json(&["trigger", "create", "--name", "Orders", "--routine", &routine]);
    assert_eq!(keys(&made), ["endpoint", "id", "path", "secret"]);
    let (id, endpoint) = (made["id"].as_str().unwrap(), made["endpoint"].as_str().unwrap());
    assert_eq!(made["path"], format!("/hooks/{endpoint}"));
    assert_eq!(endpoint.len(), 24);
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("mw_") && secret.len() == 46, "{secret}");
    home.json(&["trigger", "create", "--name", "Own", "--bot", &bot, "--instruction", "Sort it"]);

    assert_eq!(home.json(&["trigger", "deliveries", id]), json!([]));
    assert_eq!(home.fails(&["trigger", "confirm", id], 1, "no delivery has arrived")["code"], "no_sample");
    let rotated = home.json(&["trigger", "rotate", id, "--overlap-s", "60"]);
    // Another kind of sender, and ids that stand in the body.
    let preset = |name: &str| home.json(&["trigger", "show", id])["scheme"]["preset"] == name;
    let edited = home.json(&["trigger", "edit", id, "--preset", "github", "--secret", "long enough to sign with it"]);
    assert!(preset("github") && edited["secret"] == json!(null), "{edited}");
    home.json(&["trigger", "edit", id, "--id-pointer", "/order/id"]);
    let shown = home.json(&["trigger", "show", id]);
    assert_eq!((&shown["intake"]["id_pointers"], &shown["old_secret_until"]), (&json!(["/order/id"]), &json!(null)));
    home.fails(&["trigger", "edit", id, "--id-pointer", "order"], 2, "is no JSON pointer");
    home.fails(&["trigger", "edit", id, "--preset", "nobody"], 2, "nobody");
    let back = home.json(&["trigger", "edit", id, "--preset", "bearer", "--id-pointer", ""]);
    assert!(back["secret"].as_str().unwrap().starts_with("mw_"), "{back}");
    assert_eq!(home.json(&["trigger", "show", id])["intake"].get("id_pointers"), None);
    assert_ne!(rotated["secret"], made["secret"]);
    for shown in [home.run(&["trigger", "list"]).out, home.run(&["trigger", "show", id, "--json"]).out] {
        assert!(!shown.contains("mw_"), "the secret is shown once: {shown}");
    }
    home.json(&["trigger", "pause", id]);
    home.json(&["trigger", "resume", id]);
    home.json(&["trigger", "delete", id]);
    assert_eq!(home.json(&["trigger", "list"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_halt_from_its_reason_to_its_lift() {
    let (home, _, routine) = Home::with_routine();
    let calm = json!({"halted": false, "reason": null, "by": null, "since": null});
    assert_eq!(home.json(&["halt", "status"]), calm);
    let halted = home.json(&["halt", "--reason", "fire drill"]);
    assert_eq!(keys(&halted), ["by", "halted", "reason", "since"]);
    assert_eq!((&halted["halted"], &halted["reason"]), (&json!(true), &json!("fire drill")));
    assert!(halted["by"].as_str().unwrap().starts_with("cli:"), "{halted}");
    assert!(halted["since"].as_str().unwrap().ends_with('Z'), "{halted}");
    assert_eq!(home.json(&["halt", "status"]), halted);
    assert_eq!(home.fails(&["run", "now", &routine], 1, "halted")["code"], "halted");
    home.fails(&["halt", "--reason", "again"], 1, "halted already");
    assert_eq!(home.json(&["halt", "lift"]), calm);
    home.fails(&["halt", "lift"], 1, "not halted");
    home.json(&["run", "now", &routine]);
}

#[test]
fn an_audit_has_one_row_a_line() {
    let (home, bot, routine) = Home::with_routine();
    home.json(&["run", "now", &routine]);
    let rows = home.rows(&["audit"]);
    for row in &rows {
        for pinned in [
            "position",
            "at",
            "event",
            "bot",
            "routine",
            "run",
            "tool",
            "verdict",
            "decision",
            "rule",
            "matched",
            "enforced",
            "unattended",
            "cause",
            "repeat_count",
            "outcome",
        ] {
            assert!(row.get(pinned).is_some(), "{pinned}: {row}");
        }
        assert_eq!(row["decision"], json!(null), "what is no decision is never shown as one: {row}");
    }
    let positions: Vec<_> = rows.iter().map(|row| row["position"].as_u64().unwrap()).collect();
    assert!(positions.is_sorted_by(|a, b| a > b), "newest first: {positions:?}");
    assert_eq!(rows[0]["event"], "run.opened");

    let of_bot = home.rows(&["audit", "bot:ops", "since:1h"]);
    assert!(!of_bot.is_empty() && of_bot.iter().all(|row| row["bot"] == json!(bot)), "{of_bot:?}");
    assert_eq!(home.rows(&["audit", "bot:ops since:1h"]), of_bot, "as one word or as two");
    assert_eq!(home.rows(&["audit", "--limit", "2"]).len(), 2);
    assert_eq!(home.rows(&["audit", "decision:refused"]).len(), 0);
    assert!(home.run(&["audit", "--limit", "2"]).err.contains("scanned down to position"));
}

#[test]
fn projections_are_rebuilt_to_the_same_rows() {
    let (home, _, routine) = Home::with_routine();
    home.json(&["run", "now", &routine]);
    let look = || {
        (
            home.json(&["routine", "list"]),
            home.json(&["run", "list"]),
            home.json(&["bot", "list"]),
            home.rows(&["audit"]),
        )
    };
    let before = look();
    assert_eq!(home.json(&["rebuild", "runs"]), json!({"rebuilt": ["runs"]}));
    let all = home.json(&["rebuild"]);
    assert!(all["rebuilt"].as_array().unwrap().len() > 8, "{all}");
    assert_eq!(look(), before);
    // They are a cache: without them the next reader makes them anew.
    for name in ["midwatch.db-projections", "midwatch.db-projections-wal", "midwatch.db-projections-shm"] {
        let _ = std::fs::remove_file(home.path(name));
    }
    assert_eq!(look(), before);
}

#[test]
fn people_and_tokens() {
    let home = Home::new();
    let ann = home.id(&["user", "invite", "--name", "Ann", "--role", "auditor"]);
    let people = home.json(&["user", "list"]);
    let found = people.as_array().unwrap().iter().find(|row| row["id"] == json!(ann)).unwrap();
    assert_eq!(
        (&found["name"], &found["role"], &found["signed_in_at"]),
        (&json!("Ann"), &json!("auditor"), &json!(null))
    );
    assert_eq!(people.as_array().unwrap().len(), 2, "the first admin is made with the ledger: {people}");
    for link in [home.json(&["user", "link"]), home.json(&["user", "link", &ann, "--public-url", "https://w.example/"])]
    {
        assert!(link["link"].as_str().unwrap().contains("/sign-in/"), "{link}");
    }

    let token = home.json(&["token", "add", "--name", "ci", "--role", "admin"]);
    assert_eq!(keys(&token), ["id", "secret"]);
    let listed = home.json(&["token", "list"]);
    assert_eq!(keys(&listed[0]), ["bot", "id", "issued_at", "issued_by", "name", "revoked_at", "role"]);
    home.json(&["token", "revoke", token["id"].as_str().unwrap()]);
    assert!(home.json(&["token", "list"])[0]["revoked_at"].is_string());
}

#[test]
fn bots_and_their_tools() {
    let (home, bot, _) = Home::with_routine();
    assert_eq!(home.json(&["bot", "show", &bot])["tools"].as_array().unwrap().len(), 3);
    home.json(&["bot", "withdraw", &bot, "computer_write_file"]);
    assert_eq!(home.json(&["bot", "show", &bot])["tools"], json!(["computer_list_files", "computer_read_file"]));
    home.json(&["bot", "grant", &bot, "computer_write_file"]);
    assert_eq!(home.json(&["bot", "list"])[0]["tools"].as_array().unwrap().len(), 3);
    home.json(&["bot", "retire", &bot]);
    assert_eq!(home.fails(&["bot", "retire", &bot], 1, "retired")["code"], "bot_retired");
}

#[test]
fn boundaries_are_published_in_versions() {
    let home = Home::new();
    let rules = r#"{"rules":[{"id":"d","name":"D","verdict":"deny","when":"intent == \"write_file\""}]}"#;
    let file = home.write("b.json", rules);
    let published = home.json(&["boundary", "publish", &file, "--note", "No writing"]);
    assert_eq!((keys(&published), &published["version"]), (vec!["position", "version"], &json!(2)));
    assert_eq!(home.json(&["boundary", "show"])["document"]["rules"][0]["id"], "d");
    assert_eq!(home.json(&["boundary", "show", "--version", "1"])["document"]["rules"][0]["id"], "allow-all");
    let versions = home.json(&["boundary", "versions"]);
    assert_eq!((&versions[0]["version"], &versions[0]["note"]), (&json!(2), &json!("No writing")));
    home.fails(&["boundary", "publish", &file], 1, "in force already");
    let other = home.write("c.json", r#"{"rules":[]}"#);
    home.fails(&["boundary", "publish", &other, "--expect", "1"], 1, "published meanwhile");
}

#[test]
fn the_ledger_is_named_before_or_after_the_verb() {
    let home = Home::new();
    let db = format!("sqlite://{}", home.path("other.db").display());
    let add = |arguments: &[&str]| home.id(arguments);
    add(&["--db", &db, "bot", "add", "--name", "one"]);
    add(&["bot", "--db", &db, "add", "--name", "two"]);
    add(&["bot", "add", "--name", "three", "--db", &db]);
    assert_eq!(home.json(&["bot", "list", "--db", &db]).as_array().unwrap().len(), 3);
    assert!(!home.path("midwatch.db").exists());
    // Without either it is a file here.
    let mut here = home.command(&["bot", "add", "--name", "four"]);
    assert!(here.env_remove("MIDWATCH_DB").status().unwrap().success());
    assert!(home.path("midwatch.db").exists());
}

#[test]
fn people_read_aligned_rows_and_no_terminal_is_moved() {
    let home = Home::new();
    let file = home.write("b.json", r#"{"rules":[]}"#);
    let note = "quiet\u{1b}[2J\u{202e}note";
    home.json(&["boundary", "publish", &file, "--note", note]);
    let shown = home.run(&["boundary", "versions"]).out;
    assert!(shown.starts_with("VERSION  PUBLISHED"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{202e}']) && shown.contains("note"), "{shown}");
    let json = home.run(&["boundary", "versions", "--json"]).out;
    assert!(!json.contains(['\u{1b}', '\u{202e}']), "{json}");
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()[0]["note"], note, "and it means the same");
}
