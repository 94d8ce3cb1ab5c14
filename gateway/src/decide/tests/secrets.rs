//! G30: secrets in every place that a call or its result has, and none of them in the ledger's bytes.

use serde_json::Value;

use super::*;
use crate::decide::Whose;

/// Each its own, so that a finding says which place leaked.
fn secret(n: u32) -> String {
    format!("sk-live-{n:04}a8b7c6d5e4f3a2b1c0d9e8f7")
}

/// Every place in a call's arguments.
fn everywhere() -> Vec<Value> {
    let quoted = |value: Value| value.to_string();
    vec![
        json!({"password": secret(1)}),
        json!({"headers": {"authorization": format!("Bearer {}", secret(2))}}),
        json!({"headers": [["Authorization", format!("Bearer {}", secret(3))]]}),
        json!({"headers": [{"name": "x-api-key", "value": secret(4)}]}),
        json!({"url": format!("https://user:{}@example.com/", secret(5))}),
        json!({"url": format!("https://example.com/?access_token={}&x=1", secret(6))}),
        json!({"body": quoted(json!({"deep": {"client_secret": secret(7)}}))}),
        json!({"body": quoted(json!({"again": quoted(json!({"token": secret(8)}))}))}),
        json!({"text": format!("curl -H 'Authorization: Bearer {}' https://example.com", secret(9))}),
        json!({"env": format!("API_KEY={}", secret(10))}),
        json!({"a": {"b": {"c": [{"d": {"secret": {"inner": secret(11)}}}]}}}),
        json!({ secret(12): "a secret for a name" }),
        json!({"text": format!("an error said: key {} is not valid", secret(13))}),
        json!({"args": ["--password", secret(14)]}),
        json!({"cookie": format!("session={}", secret(15))}),
        json!({"path": format!("notes/{}.txt", secret(16))}),
        json!({"path": "config.txt", "contents": format!("password = \"{}\"", secret(17))}),
    ]
}

/// What a stranger would find in the database's files, and in every body kept apart.
async fn stored(engine: &Engine, url: &str) -> String {
    let mut found = String::new();
    let (events, _) = engine.log().read_all(0, 100_000, &Filter::default()).await.unwrap();
    for event in &events {
        found.push_str(&String::from_utf8_lossy(&event.facts));
        found.push_str(&String::from_utf8_lossy(event.content.as_deref().unwrap_or_default()));
    }
    let file = url.trim_start_matches("sqlite://").split('?').next().unwrap_or_default();
    for end in ["", "-wal"] {
        let bytes = std::fs::read(format!("{file}{end}")).unwrap_or_default();
        found.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(found.len() > 20_000, "the database was not read");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_call_or_its_result_reaches_the_ledger() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::new(&url, &home, World::system()).await;
    let bot = bot(&process.engine).await;
    let job = process.job(bot).await;
    let call = |tool: &str, arguments: Result<Value, String>| {
        let call = Call { tool: tool.to_owned(), arguments, step: None, whose: Whose::Ours };
        process.gateway.call(&job, call)
    };
    for arguments in everywhere() {
        // A tool that does not exist takes any arguments into the record, and so does one that refuses them.
        call("mcp__server__post", Ok(arguments.clone())).await.unwrap();
        call(WRITE, Ok(arguments)).await.unwrap();
    }
    // Names and texts that are no JSON.
    call(&format!("tool_{}", secret(20)), Ok(json!({}))).await.unwrap();
    call(&format!("password={}", secret(21)), Ok(json!({}))).await.unwrap();
    call(WRITE, Err(format!("not JSON: token={}", secret(22)))).await.unwrap();
    // Results: a file with secrets in it, short and long; an error that names what it was about.
    let workspace = home.path().join("workspaces").join(bot.to_string());
    std::fs::create_dir_all(&workspace).unwrap();
    std::fs::write(workspace.join("env"), format!("API_KEY={}\nok=1\n", secret(23))).unwrap();
    let long = format!("{}\npassword: {}\n{}", "x".repeat(40_000), secret(24), "y".repeat(40_000));
    std::fs::write(workspace.join("long"), long).unwrap();
    let read = "computer_read_file";
    for path in ["env".to_owned(), "long".to_owned(), format!("missing/{}", secret(25))] {
        call(read, Ok(json!({ "path": path }))).await.unwrap();
    }
    let found = stored(&process.engine, &url).await;
    for n in 1..=25 {
        assert!(!found.contains(&secret(n)), "secret number {n} is in the ledger");
    }
    assert!(found.contains(crate::redact::REDACTED));
    // Nor in what is shown of it: the context that rules saw, and the projections' rows.
    midwatch_engine::projector::catch_up(&process.engine).await.unwrap();
    let shown = stored(&process.engine, &url).await;
    assert!((1..=25).all(|n| !shown.contains(&secret(n))));
}
