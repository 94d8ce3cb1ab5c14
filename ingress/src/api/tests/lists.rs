//! Paging, filters, and what a list is as of.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::testing::{Server, by, problem};

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_walked_page_by_page_without_loss() {
    let server = Server::start().await;
    let mut wanted = BTreeSet::new();
    for n in 0..7 {
        // Two of each name: the order has to be total.
        let id = server.engine.register_bot(&format!("bot {}", n / 2), None, &by(), None).await.unwrap();
        wanted.insert(id.value.to_string());
        midwatch_engine::projector::wait_for(&server.engine, id.position).await;
    }
    let (mut found, mut names, mut path) = (Vec::new(), Vec::new(), "/api/v1/bots?limit=3".to_owned());
    let mut pages = 0;
    loop {
        let page = server.get(&path).await;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 3);
        found.extend(items.iter().map(|bot| bot["id"].as_str().unwrap().to_owned()));
        names.extend(items.iter().map(|bot| bot["name"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/bots?limit=3&cursor={next}");
    }
    assert_eq!(pages, 3);
    assert_eq!(found.len(), 7);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), wanted);
    assert!(names.is_sorted(), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_makes_no_sense_is_a_bad_request() {
    let server = Server::start().await;
    for name in ["one", "two"] {
        server.post("/api/v1/bots", &json!({ "name": name })).await;
    }
    // A cursor of another list, and an order by a number where this one is by a text.
    let audit = server.get("/api/v1/audit?limit=1").await["next"].as_str().unwrap().to_owned();
    for (query, code) in [
        ("limit=0".to_owned(), "invalid_limit"),
        ("limit=201".to_owned(), "invalid_limit"),
        ("limit=x".to_owned(), "invalid"),
        ("limit=-1".to_owned(), "invalid"),
        ("cursor=x".to_owned(), "invalid_cursor"),
        (format!("cursor={audit}"), "invalid_cursor"),
        ("retired=maybe".to_owned(), "invalid"),
    ] {
        let response = server.admin(Method::GET, &format!("/api/v1/bots?{query}")).send().await.unwrap();
        let problem = problem(response, StatusCode::BAD_REQUEST, code).await;
        assert_eq!(problem["kind"], "bad_request", "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_says_what_it_is_as_of() {
    let server = Server::start().await;
    let made = server.post("/api/v1/bots", &json!({"name": "ops"})).await;
    let listed = server.get("/api/v1/bots").await;
    assert!(listed["as_of"]["position"].as_u64() >= made["position"].as_u64(), "{listed}");
    assert!(listed["as_of"]["at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(listed["as_of"]["behind"], 0);
    assert_eq!(listed["items"][0]["name"], "ops", "callers read their own writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_view_is_filtered_by_its_own_language() {
    let server = Server::start().await;
    let bot = server.post("/api/v1/bots", &json!({"name": "night shift"})).await["id"].as_str().unwrap().to_owned();
    server.post("/api/v1/bots", &json!({"name": "other"})).await;
    server.post("/api/v1/halt", &json!({"reason": "a storm is coming"})).await;
    let server = &server;
    let ask = |q: &str, more: &str| {
        let url = format!("/api/v1/audit?q={}{more}", urlencoded(q));
        async move { server.get(&url).await }
    };
    let by_name = ask("bot:\"night shift\"", "").await;
    assert_eq!(by_name["items"].as_array().unwrap().len(), 1, "{by_name}");
    assert_eq!(by_name["items"][0]["bot"], bot);
    assert_eq!(by_name["items"][0]["decision"], Value::Null, "what is no decision was not allowed");
    assert_eq!(ask("event:bot.registered", "&limit=1").await["items"].as_array().unwrap().len(), 1);
    let next = ask("event:bot.registered", "&limit=1").await["next"].as_str().unwrap().to_owned();
    let rest = ask("event:bot.registered", &format!("&limit=1&cursor={next}")).await;
    assert_eq!(rest["items"][0]["bot"], bot);
    assert_eq!(rest["next"], Value::Null);
    let words = ask("text:\"night shift\"", "&limit=1").await;
    assert_eq!(words["items"].as_array().unwrap().len(), 1, "{words}");
    for q in ["nonsense", "color:red", "bot:nobody", "decision:maybe", "text:\"open"] {
        let url = format!("/api/v1/audit?q={}", urlencoded(q));
        let response = server.admin(Method::GET, &url).send().await.unwrap();
        problem(response, StatusCode::BAD_REQUEST, "invalid_filter").await;
    }
}

fn urlencoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
