//! Real GitHub payloads, posted as they are to a running server.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    deployment::{Deployment, wait},
    http,
    senders::Libraries,
};

// W6, W8: GitHub signs the bytes it sends, JSON or a form; it does not sign its delivery's id.
#[test]
fn every_github_payload_is_taken_in_once_and_kept_byte_for_byte() {
    let payloads = payloads();
    assert_eq!(payloads.len(), 329);
    let deployment = Deployment::sqlite();
    let server = deployment.serve();
    let routine = routine(&deployment);
    let trigger =
        deployment.one(&["trigger", "create", "--name", "github", "--routine", &routine, "--preset", "github"]);
    let secret = trigger["secret"].as_str().unwrap();
    let path = trigger["path"].as_str().unwrap();
    let mut libraries = Libraries::start();
    let mut post = |id: &str, kind: &str, content_type: &str, body: &str| {
        let mut headers = libraries.github(secret, id, body);
        headers.insert("x-github-event".to_owned(), kind.to_owned());
        headers.insert("content-type".to_owned(), content_type.to_owned());
        headers.insert("user-agent".to_owned(), "GitHub-Hookshot/044aadd".to_owned());
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        server.post(path, &headers, body.as_bytes()).unwrap()
    };

    let token = format!("Bearer {}", deployment.token());
    let mut first = BTreeMap::new();
    for (at, (kind, json)) in payloads.iter().enumerate() {
        let form = format!("payload={}", form_encoded(json));
        for (content_type, body) in [("application/json", json), ("application/x-www-form-urlencoded", &form)] {
            let answer = post(&format!("gh-{at}-{}", body.len()), kind, content_type, body);
            let said = answer.json();
            let Some(delivery) = first.get(body) else {
                assert_eq!(answer.status, 202, "{kind}: {said}");
                let expected = if first.is_empty() { "captured" } else { "awaiting_confirmation" };
                assert_eq!(said["status"], expected);
                let kept = format!("/api/v1/deliveries/{}/body", said["delivery"].as_str().unwrap());
                let kept = http::send(&server.address, "GET", &kept, &[("Authorization", &token)], b"").unwrap();
                assert_eq!(kept.status, 200);
                assert!(kept.json()["body"].as_str().unwrap() == body, "{kind}: other bytes are kept");
                first.insert(body.clone(), said["delivery"].clone());
                continue;
            };
            // Some examples are the same twice: so is the delivery, under whatever id.
            assert_eq!((answer.status, &said["duplicate"], &said["delivery"]), (200, &json!(true), delivery));
        }
    }
    let id = trigger["id"].as_str().unwrap();
    let deliveries = deployment.run(&["trigger", "deliveries", id]);
    assert_eq!(deliveries.len(), first.len());
    assert!(first.len() > 640, "{}", first.len());
    let unread: Vec<_> = deliveries.iter().filter(|row| row["parsed"] == false).collect();
    assert!(unread.is_empty(), "{unread:?}");
    deployment.one(&["trigger", "confirm", id]);
    let (kind, body) = payloads.iter().find(|(kind, _)| kind == "push").unwrap();
    let body = body.replacen("refs/tags/", "refs/heads/", 1) + "\n";
    let accepted = post("gh-push", kind, "application/json", &body);
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

/// As a browser encodes the value of a form's field.
fn form_encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'*' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        b' ' => "+".to_owned(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(one).collect()
}

/// A routine whose recording writes down the pushed ref, read from the payload.
pub(crate) fn routine(deployment: &Deployment) -> String {
    let bot = deployment.one(&["bot", "add", "--name", "reader"]);
    let bot = bot["id"].as_str().unwrap();
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
pub(crate) fn payloads() -> Vec<(String, String)> {
    let index = modules().join("@octokit/webhooks-examples/api.github.com/index.json");
    let index = fs::read(&index).unwrap_or_else(|error| panic!("{}: {error}; run `npm ci` in tests", index.display()));
    let kinds: Vec<Value> = serde_json::from_slice(&index).unwrap();
    let of_kind = |kind: &Value| {
        let name = kind["name"].as_str().unwrap().to_owned();
        let examples = kind["examples"].as_array().unwrap().iter().map(Value::to_string);
        examples.map(|example| (name.clone(), example)).collect::<Vec<_>>()
    };
    kinds.iter().flat_map(of_kind).collect()
}

/// Where the packages of `tests/package-lock.json` are.
pub(crate) fn modules() -> PathBuf {
    env::var_os("MIDWATCH_TEST_NODE_MODULES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node_modules"), PathBuf::from)
}
