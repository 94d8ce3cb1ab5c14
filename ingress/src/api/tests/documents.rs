//! Schedules, boundaries, and the description of the API.

use std::{collections::BTreeSet, env, fs, path::Path};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::testing::{Server, answered, problem};

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_shows_windows_and_what_they_add_up_to() {
    let server = Server::start().await;
    let schedule = json!({"kind": "weekly", "zone": "Europe/Berlin", "days": ["mon", "fri"], "times": ["08:00"]});
    let asked = json!({"schedule": schedule, "from": "2026-12-01T00:00:00Z", "count": 2});
    let preview = server.post("/api/v1/schedules/preview", &asked).await;
    let wanted = json!({
        "in_words": "Mondays and Fridays at 08:00, Europe/Berlin",
        "windows": [
            {"utc": "2026-12-04T07:00:00Z", "local": "2026-12-04T08:00:00+01:00", "dst": "none"},
            {"utc": "2026-12-07T07:00:00Z", "local": "2026-12-07T08:00:00+01:00", "dst": "none"},
        ],
        "notes": [],
        "zone_data": null,
        "tzdb": preview["tzdb"],
        "runs_per_week": 2.0,
        "agent_runs_per_week": 2.0,
    });
    assert_eq!(preview, wanted);
    let recording = json!({"schedule": {"kind": "every", "zone": "UTC", "minutes": 60}, "recording": true});
    let preview = server.post("/api/v1/schedules/preview", &recording).await;
    assert_eq!((&preview["runs_per_week"], &preview["agent_runs_per_week"]), (&json!(168.0), &json!(0.0)));
    assert_eq!(preview["windows"].as_array().unwrap().len(), 10);
    let vancouver = json!({
        "schedule": {"kind": "cron", "zone": "America/Vancouver", "expr": "0 8 * * *"},
        "from": "2026-12-01T12:00:00Z", "count": 1, "reader_zone": "Europe/Berlin",
    });
    let preview = server.post("/api/v1/schedules/preview", &vancouver).await;
    let window = json!({"utc": "2026-12-01T15:00:00Z", "local": "2026-12-01T08:00:00-07:00", "dst": "none",
        "reader": "2026-12-01T16:00:00+01:00"});
    assert_eq!(preview["windows"], json!([window]));
    assert!(preview["zone_data"].as_str().unwrap().contains("at UTC-08:00 by an older copy"), "{preview}");
    for (asked, code) in [
        (json!({"schedule": {"kind": "every", "zone": "UTC", "minutes": 5}, "reader_zone": "Mars"}), "unknown_zone"),
        (json!({"schedule": {"kind": "yearly"}}), "schedule_shape"),
        (json!({"schedule": {"kind": "every", "zone": "Europe/Berln", "minutes": 5}}), "unknown_zone"),
        (json!({"schedule": {"kind": "every", "zone": "UTC", "minutes": 0}}), "schedule_value"),
        (json!({"schedule": {"kind": "every", "zone": "UTC", "minutes": 5}, "from": "tomorrow"}), "invalid"),
        (json!({"schedule": {"kind": "every", "zone": "UTC", "minutes": 5}, "count": 0}), "invalid"),
        (json!({}), "invalid"),
    ] {
        let response = server.admin(Method::POST, "/api/v1/schedules/preview").json(&asked).send().await.unwrap();
        problem(response, StatusCode::BAD_REQUEST, code).await;
    }
}

fn rule(id: &str, when: &str) -> Value {
    json!({"id": id, "name": id, "verdict": "deny", "when": when})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boundary_is_checked_and_published_once() {
    let server = Server::start().await;
    server.bot().await;
    let shown = server.admin(Method::GET, "/api/v1/boundary").send().await.unwrap();
    assert_eq!(shown.headers()["etag"], "\"1\"");
    assert_eq!(answered(shown, StatusCode::OK).await["document"]["rules"][0]["id"], "allow-all");
    let document = json!({"rules": [rule("no-writes", "run.unattended && tool.name == 'computer_write_file'")]});
    let checked = server.post("/api/v1/boundary/check", &json!({"document": document})).await;
    assert_eq!(checked, json!({"ok": true, "findings": []}));
    let publish = |tag: &str, document: &Value| {
        let body = json!({"document": document, "note": "night"});
        server.admin(Method::PUT, "/api/v1/boundary").header("if-match", tag).json(&body).send()
    };
    answered(publish("\"1\"", &document).await.unwrap(), StatusCode::OK).await;
    let late = json!({"rules": [rule("late", "false")]});
    problem(publish("\"1\"", &late).await.unwrap(), StatusCode::PRECONDITION_FAILED, "changed").await;
    let versions = server.get("/api/v1/boundary/versions").await;
    assert_eq!(versions["items"].as_array().unwrap().len(), 2);
    assert_eq!((&versions["items"][0]["version"], &versions["items"][0]["note"]), (&json!(2), &json!("night")));
    assert_eq!(server.get("/api/v1/boundary/versions/1").await["version"], 1);
    let absent = server.admin(Method::GET, "/api/v1/boundary/versions/9").send().await.unwrap();
    problem(absent, StatusCode::NOT_FOUND, "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boundary_that_is_refused_says_where_and_why() {
    let server = Server::start().await;
    server.bot().await;
    // Which arguments there are is known from the tools of the Bots that the projections know.
    midwatch_engine::projector::catch_up(&server.engine).await.unwrap();
    for (document, rule_id, words) in [
        (json!({"rules": [rule("a", "true"), rule("b", "tool.name ==")]}), json!("b"), ""),
        (json!({"rules": [rule("a", "tool.nme == 'x'")]}), json!("a"), "name"),
        (json!({"rules": [rule("a", "has(args.colour) && args.colour == 'red'")]}), json!("a"), "colour"),
        (json!({"rules": [rule("a", "true"), rule("a", "true")]}), json!("a"), "earlier rule"),
        (json!({"zone": "Mars", "rules": []}), Value::Null, "Mars"),
        (json!({"rulez": []}), Value::Null, "rulez"),
        (json!([]), Value::Null, ""),
    ] {
        let body = json!({"document": document});
        let checked = server.post("/api/v1/boundary/check", &body).await;
        assert_eq!(checked["ok"], false, "{document}");
        let finding = &checked["findings"][0];
        assert_eq!(finding["rule"], rule_id, "{finding}");
        assert!(finding["sentence"].as_str().unwrap().contains(words), "{finding}");
        let refused = server.admin(Method::PUT, "/api/v1/boundary").json(&body).send().await.unwrap();
        let problem = problem(refused, StatusCode::BAD_REQUEST, "boundary").await;
        assert_eq!(problem["findings"], checked["findings"]);
    }
    let path_rule = json!({"document": {"rules": [rule("a", "has(args.path) && args.path == '/etc'")]}});
    assert_eq!(server.post("/api/v1/boundary/check", &path_rule).await["ok"], true);
    assert_eq!(server.get("/api/v1/boundary").await["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_served_description_is_the_written_one() {
    let server = Server::start().await;
    let served = server.plain(Method::GET, "/api/v1/openapi.json").send().await.unwrap();
    let served: Value = answered(served, StatusCode::OK).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&served).unwrap());
    if env::var_os("MIDWATCH_ACCEPT").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/openapi.json is stale; MIDWATCH_ACCEPT=1 writes it anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_described_is_there() {
    let server = Server::start().await;
    let described = serde_json::to_value(crate::openapi()).unwrap();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "0198c0de-0000-7000-8000-000000000000").replace("{version}", "1");
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let status = server.plain(method.clone(), &path).send().await.unwrap().status();
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path}");
        }
    }
}

/// The paths and methods of the router's own screen.
fn routed() -> BTreeSet<(String, String)> {
    let screen = include_str!("../../router.rs");
    let (_, screen) = screen.split_once("fn api_v1").unwrap();
    let routes = screen.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")?.split_once('"'));
    let methods = ["get", "post", "put", "patch", "delete"];
    routes
        .flat_map(|(path, handlers)| {
            let named = methods.into_iter().filter(|method| {
                handlers.contains(&format!(" {method}(")) || handlers.contains(&format!(".{method}("))
            });
            named.map(|method| (format!("/api/v1{path}"), method.to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn everything_that_is_there_is_described() {
    let described = serde_json::to_value(crate::openapi()).unwrap();
    let described: BTreeSet<(String, String)> = described["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone())))
        .collect();
    assert!(routed().len() > 30);
    assert_eq!(described, routed());
}
