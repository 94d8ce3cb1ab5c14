//! Real GitHub payloads, posted as they are to a running server.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    deployment::{Deployment, wait},
    http,
};

#[test]
fn every_github_payload_is_taken_in_once_and_kept_byte_for_byte() {
    let payloads = payloads();
    assert!(payloads.len() > 200, "{} payloads", payloads.len());
    let deployment = Deployment::sqlite();
    let server = deployment.serve();
    let bot = deployment.one(&["bot", "add", "--name", "reader"]);
    let routine = routine(&deployment, bot["id"].as_str().unwrap());
    let trigger = deployment.one(&["trigger", "create", "--name", "github", "--routine", &routine]);
    let secret = format!("Bearer {}", trigger["secret"].as_str().unwrap());
    let path = trigger["path"].as_str().unwrap();
    let post = |id: &str, kind: &str, body: &[u8]| {
        let headers = [
            ("Authorization", secret.as_str()),
            ("Content-Type", "application/json"),
            ("X-Delivery-Id", id),
            ("X-Event-Type", kind),
        ];
        server.post(path, &headers, body).unwrap()
    };

    let token = format!("Bearer {}", deployment.token());
    let mut first = None;
    for (at, (kind, body)) in payloads.iter().enumerate() {
        let answer = post(&format!("gh-{at}"), kind, body);
        assert_eq!(answer.status, 202, "{kind}: {}", String::from_utf8_lossy(&answer.body));
        let expected = if at == 0 { "captured" } else { "awaiting_confirmation" };
        assert_eq!(answer.json()["status"], expected);
        let delivery = answer.json()["delivery"].clone();
        let kept = format!("/api/v1/deliveries/{}/body", delivery.as_str().unwrap());
        let kept = http::send(&server.address, "GET", &kept, &[("Authorization", &token)], b"").unwrap();
        assert_eq!(kept.status, 200);
        assert!(kept.json()["body"].as_str().unwrap().as_bytes() == body, "{kind}: other bytes are kept");
        first.get_or_insert(delivery);
    }
    let first = first.unwrap();
    let again = post("gh-0", &payloads[0].0, &payloads[0].1);
    assert_eq!((again.status, &again.json()["duplicate"]), (200, &json!(true)));
    assert_eq!(again.json()["delivery"], first);

    let id = trigger["id"].as_str().unwrap();
    let deliveries = deployment.run(&["trigger", "deliveries", id]);
    assert_eq!(deliveries.len(), payloads.len());
    deployment.one(&["trigger", "confirm", id]);
    let (kind, body) = payloads.iter().find(|(kind, _)| kind == "push").unwrap();
    let accepted = post("gh-push", kind, body);
    assert_eq!((accepted.status, &accepted.json()["status"]), (202, &json!("accepted")));
    let delivery = accepted.json()["delivery"].clone();
    wait(Duration::from_secs(30), "the push to become a run that ended", || {
        let runs = deployment.run(&["run", "list"]);
        runs.iter().any(|run| run["cause"] == "delivery" && run["outcome"] == "succeeded")
    });
    let started = deployment.run(&["trigger", "deliveries", id]);
    let started = started.iter().find(|row| row["id"] == delivery).unwrap();
    assert_eq!(started["status"], "started");
    assert_eq!(started["event_type"], "push");
    deployment.verify();
}

/// A routine whose recording writes down the pushed ref, read from the payload.
fn routine(deployment: &Deployment, bot: &str) -> String {
    let recording = json!({
        "goal": "Note the push",
        "steps": [{"tool": "computer_write_file", "arguments": {"path": "push.txt", "contents": "{{ref}}"}}],
        "variables": {"ref": {"pointer": "/ref"}},
    });
    let file = deployment.path("recording.json");
    fs::write(&file, recording.to_string()).unwrap();
    let schedule = json!({"kind": "once", "at": "2400-01-01T00:00:00Z"}).to_string();
    let recording = format!("@{}", file.display());
    let arguments =
        ["routine", "add", "--name", "note", "--bot", bot, "--schedule", &schedule, "--recording", &recording];
    deployment.one(&arguments)["id"].as_str().unwrap().to_owned()
}

/// Each of GitHub's example payloads with its event type, as one POST carries it.
fn payloads() -> Vec<(String, Vec<u8>)> {
    let modules = env::var_os("MIDWATCH_TEST_NODE_MODULES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node_modules"), PathBuf::from);
    let index = modules.join("@octokit/webhooks-examples/api.github.com/index.json");
    let index = fs::read(&index).unwrap_or_else(|error| panic!("{}: {error}; run `npm ci` in tests", index.display()));
    let kinds: Vec<Value> = serde_json::from_slice(&index).unwrap();
    let of_kind = |kind: &Value| {
        let name = kind["name"].as_str().unwrap().to_owned();
        let examples = kind["examples"].as_array().unwrap().iter().map(Value::to_string);
        examples.map(|example| (name.clone(), example.into_bytes())).collect::<Vec<_>>()
    };
    kinds.iter().flat_map(of_kind).collect()
}
