//! What needs no ledger, and makes none.

use serde_json::{Value, json};

use crate::home::{Home, keys};

fn preview(home: &Home, schedule: &str, from: &str, count: &str) -> Value {
    home.json(&["schedule", "preview", "--schedule", schedule, "--from", from, "--count", count])
}

#[test]
fn a_preview_shows_windows_in_both_times() {
    let home = Home::new();
    let schedule = r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","fri"],"times":["08:00","17:30"]}"#;
    let answer = preview(&home, schedule, "2026-12-04T07:00:00Z", "2");
    assert_eq!(
        answer,
        json!({
            "in_words": "Mondays and Fridays at 08:00 and 17:30, Europe/Berlin",
            "windows": [
                // Strictly after the instant, which is itself a window.
                {"utc": "2026-12-04T16:30:00Z", "local": "2026-12-04T17:30:00+01:00", "dst": "none"},
                {"utc": "2026-12-07T07:00:00Z", "local": "2026-12-07T08:00:00+01:00", "dst": "none"},
            ],
            "notes": [],
            "zone_data": null,
            "tzdb": answer["tzdb"],
            "runs_per_week": 4.0,
            "agent_runs_per_week": 4.0,
        })
    );
    assert!(!home.path("midwatch.db").exists() && !home.path("state").exists());
}

#[test]
fn a_preview_shows_the_readers_zone_and_where_the_zone_data_differs() {
    let home = Home::new();
    let schedule = r#"{"kind":"weekly","zone":"America/Vancouver","days":["mon"],"times":["08:00"]}"#;
    let words = ["schedule", "preview", "--schedule", schedule, "--from", "2026-12-01T00:00:00Z", "--count", "1"];
    let answer = home.json(&[&words[..], &["--reader-zone", "Europe/Berlin"]].concat());
    assert_eq!(answer["windows"][0]["local"], "2026-12-07T08:00:00-07:00");
    assert_eq!(answer["windows"][0]["reader"], "2026-12-07T16:00:00+01:00");
    assert!(answer["zone_data"].as_str().unwrap().contains("check the hour"), "{answer}");
    let shown = home.run(&[&words[..], &["--reader-zone", "Asia/Tokyo"]].concat()).out;
    assert!(shown.contains("Asia/Tokyo") && shown.contains("2026-12-08T00:00:00+09:00"), "{shown}");
    assert!(shown.contains("This runs about 1 times a week: 1 agent runs"), "{shown}");
    home.fails(&[&words[..], &["--reader-zone", "Mars"]].concat(), 2, "is not a time zone");
}

#[test]
fn a_preview_marks_what_daylight_saving_did() {
    let home = Home::new();
    let daily = |time: &str| {
        let days = r#"["mon","tue","wed","thu","fri","sat","sun"]"#;
        format!(r#"{{"kind":"weekly","zone":"America/New_York","days":{days},"times":["{time}"]}}"#)
    };
    let spring = preview(&home, &daily("02:30"), "2027-03-13T12:00:00Z", "2");
    assert_eq!(spring["windows"][0]["local"], "2027-03-14T03:30:00-04:00");
    assert_eq!(spring["windows"][0]["dst"], "moved");
    assert_eq!(spring["windows"][1]["local"], "2027-03-15T02:30:00-04:00");
    let autumn = preview(&home, &daily("01:30"), "2026-10-31T12:00:00Z", "2");
    assert_eq!(autumn["windows"][0]["local"], "2026-11-01T01:30:00-04:00");
    assert_eq!(autumn["windows"][0]["dst"], "first_of_two");
    assert_eq!(autumn["windows"][1]["local"], "2026-11-02T01:30:00-05:00");
}

#[test]
fn a_preview_counts_no_agent_runs_for_a_recording() {
    let home = Home::new();
    let schedule = home.write("s.json", r#"{"kind":"once","at":"2026-12-01T08:00:00+09:00"}"#);
    let from_file = format!("@{schedule}");
    let from = ["--from", "2026-11-30T00:00:00Z"];
    let answer = home.json(&[&["schedule", "preview", "--schedule", &from_file, "--recording"], &from[..]].concat());
    assert_eq!(
        answer["windows"],
        json!([
            {"utc": "2026-11-30T23:00:00Z", "local": "2026-12-01T08:00:00+09:00", "dst": "none"}
        ])
    );
    assert_eq!((&answer["runs_per_week"], &answer["agent_runs_per_week"]), (&json!(0.25), &json!(0.0)));
}

const BOUNDARY: &str = r#"{"rules":[
    {"id":"allow-all","name":"Allow","verdict":"allow","when":"true"},
    {"id":"look-never-press","name":"Look","verdict":"deny","when":"run.unattended && intent == \"activate\""},
    {"id":"shadow","name":"Shadow","verdict":"deny","effect":"shadow","when":"run.unattended"}]}"#;

#[test]
fn an_evaluation_says_what_decided() {
    let home = Home::new();
    let file = home.write("b.json", BOUNDARY);
    let eval = |context: &str| home.json(&["boundary", "eval", "--boundary", &file, "--context", context]);
    let answer = eval(r#"{"run":{"unattended":true},"intent":"activate"}"#);
    assert_eq!(
        answer,
        json!({
            "verdict": "deny",
            "enforced": true,
            "rule": "look-never-press",
            "matched": ["allow-all", "look-never-press", "shadow"],
            "broken": [],
        })
    );
    let dotted = eval(r#"{"run.unattended":true}"#);
    assert_eq!((&dotted["verdict"], &dotted["matched"]), (&json!("allow"), &json!(["allow-all", "shadow"])));
    let context = home.write("c.json", r#"{"intent":"activate"}"#);
    assert_eq!(eval(&format!("@{context}"))["rule"], "allow-all");
    assert!(!home.path("midwatch.db").exists());
}

#[test]
fn an_evaluation_with_no_rule_and_with_a_broken_one_denies() {
    let home = Home::new();
    let nothing = home.write("n.json", r#"{"mode":"dry_run","rules":[]}"#);
    let answer = home.json(&["boundary", "eval", "--boundary", &nothing, "--context", "{}"]);
    assert_eq!(answer, json!({"verdict":"deny","enforced":false,"rule":null,"matched":[],"broken":[]}));

    let rules = r#"{"rules":[{"id":"a","name":"A","verdict":"allow","when":"true"},
        {"id":"d","name":"D","verdict":"deny","when":"intent =="}]}"#;
    let broken = home.write("d.json", rules);
    let answer = home.json(&["boundary", "eval", "--boundary", &broken, "--context", "{}"]);
    assert_eq!((&answer["verdict"], &answer["rule"]), (&json!("deny"), &json!("d")));
    assert_eq!(answer["matched"], json!(["a"]));
    assert_eq!(keys(&answer["broken"][0]), ["error", "rule"]);
}

#[test]
fn an_evaluation_refuses_what_it_does_not_know() {
    let home = Home::new();
    let file = home.write("b.json", BOUNDARY);
    for (context, part) in [
        (r#"{"run":{"unatended":true}}"#, "unattended"),
        (r#"{"intents":"x"}"#, "there is no attribute `intents`"),
        (r#"{"intent":3}"#, "must be a text"),
        ("{", "not JSON"),
        ("[]", "a JSON object"),
        ("@nowhere.json", "cannot read nowhere.json"),
    ] {
        home.fails(&["boundary", "eval", "--boundary", &file, "--context", context], 2, part);
    }
    home.fails(&["boundary", "eval", "--boundary", "nowhere.json", "--context", "{}"], 2, "cannot read nowhere.json");
}

#[test]
fn a_check_says_where_and_why_not() {
    let home = Home::new();
    let good = home.write("b.json", BOUNDARY);
    let answer = home.json(&["boundary", "check", &good]);
    assert_eq!((&answer["ok"], &answer["findings"]), (&json!(true), &json!([])));
    assert!(answer["left_out"].as_str().unwrap().contains("granted tool"));

    for (text, part) in [
        (r#"{"rules":[{"id":"r","name":"R","verdict":"deny","when":"intnt == \"x\""}]}"#, "`r`"),
        (r#"{"rules":[{"id":"r","name":"R","verdict":"deny","when":"((("}]}"#, "`r`"),
        (r#"{"rules":[{"id":"r","name":"R","verdict":"never","when":"true"}]}"#, "`r`"),
        (r#"{"zone":"Europe/Berln","rules":[]}"#, "Europe/Berln"),
        ("{\n  nonsense", "line 2"),
    ] {
        let bad = home.write("bad.json", text);
        let ran = home.run(&["boundary", "check", &bad]);
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
        let ran = home.run(&["boundary", "check", &bad, "--json"]);
        let answer: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!((ran.code, &answer["ok"]), (1, &json!(false)));
        assert!(answer["findings"][0]["message"].is_string(), "{answer}");
    }
}

#[test]
fn presets_pass_the_check() {
    let home = Home::new();
    let rules = home.json(&["boundary", "presets"]);
    let file = home.write("p.json", &json!({ "rules": rules }).to_string());
    assert_eq!(home.json(&["boundary", "check", &file])["ok"], true);
}
