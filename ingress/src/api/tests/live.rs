//! Live changes, and going on after a cut.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::testing::{Server, by, problem};

/// Reads changes until there are `count` of them, or the stream ends.
async fn changes(request: RequestBuilder, count: usize) -> Vec<(u64, Value)> {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut stream, mut text) = (response.bytes_stream(), String::new());
    loop {
        let found = parsed(&text);
        if found.len() >= count {
            return found;
        }
        match timeout(Duration::from_secs(10), stream.next()).await.expect("changes come") {
            Some(Ok(bytes)) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            Some(Err(_)) | None => return found,
        }
    }
}

fn parsed(text: &str) -> Vec<(u64, Value)> {
    let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
    let field = |block: &str, name: &str| {
        block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
    };
    let blocks = whole.split("\n\n").filter(|block| field(block, "event").as_deref() == Some("change"));
    blocks
        .map(|block| {
            let data = serde_json::from_str(&field(block, "data").unwrap()).unwrap();
            (field(block, "id").unwrap().parse().unwrap(), data)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_loses_nothing() {
    let server = Server::start().await;
    let start = server.engine.log().head().await.unwrap();
    let mut seen = start;
    for round in 0..3 {
        for n in 0..3 {
            server.engine.register_bot(&format!("bot {round} {n}"), None, &by(), None).await.unwrap();
        }
        // Reads two, and is cut.
        let request = server.admin(Method::GET, "/api/v1/live").header("last-event-id", seen.to_string());
        for (position, change) in changes(request, 2).await.into_iter().take(2) {
            assert_eq!(position, seen + 1, "none left out, none twice");
            assert_eq!(change["position"], position);
            assert_eq!(change["event"], "bot.registered");
            assert!(change["stream"].as_str().unwrap().starts_with("bot-"));
            assert_eq!(change.as_object().unwrap().len(), 3, "no words");
            seen = position;
        }
    }
    let request = server.admin(Method::GET, &format!("/api/v1/live?after={seen}"));
    let rest = changes(request, 3).await;
    assert_eq!(rest.last().unwrap().0, start + 9);
    let bad = server.admin(Method::GET, "/api/v1/live").header("last-event-id", "x").send().await.unwrap();
    problem(bad, StatusCode::BAD_REQUEST, "invalid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_come_as_they_happen_and_the_stream_ends_with_the_process() {
    let mut server = Server::start().await;
    let request = server.admin(Method::GET, "/api/v1/live");
    let reader = tokio::spawn(changes(request, usize::MAX));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let made = server.post("/api/v1/bots", &json!({"name": "ops"})).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let since = tokio::time::Instant::now();
    server.stopped().await;
    let seen = reader.await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert!(seen.iter().any(|(position, _)| *position == made["position"].as_u64().unwrap()), "{seen:?}");
}
