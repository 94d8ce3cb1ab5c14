//! Secrets, each its own, in every place where a call, a tool, a sender or an admin can put one: none of them is found
//! in the ledger's files, the server's log, pages, answers of the API or what the command line shows.

use std::fs;

use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};

use crate::{
    agents::{Agent, Site, within},
    deployment::Deployment,
    http,
    mcp::{node, ours},
    place::Place,
};

/// Each its own, so that a finding says which place leaked.
fn planted(n: u32) -> String {
    format!("sk-live-{n:04}a8b7c6d5e4f3a2b1c0d9e8f7")
}

const IN_THE_ENVIRONMENT: &str = "sk-live-0001a8b7c6d5e4f3a2b1c0d9e8f7";
const PLANTED: u32 = 16;
/// What a server of the tests' own plants by itself.
const BY_A_SERVER: [&str; 2] = ["planted-in-a-result", "planted-in-an-error-0123456789"];
const WRITE: &str = "computer_write_file";
const RUN: &str = "computer_run_command";

async fn call(agent: &Agent, tool: &str, arguments: &Value) -> String {
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.as_object().unwrap().clone());
    agent.call_tool(params).await.unwrap().content[0].as_text().unwrap().text.clone()
}

/// Secrets in arguments, results, errors, files, commands and what persons are asked.
async fn by_calls(site: &Site, agent: &Agent) {
    for arguments in [
        json!({"path": "a.txt", "contents": format!("password = \"{}\"", planted(2))}),
        json!({"path": "b.txt", "contents": "x", "headers": {"authorization": format!("Bearer {}", planted(3))}}),
        json!({"path": format!("c/{}.txt", planted(4)), "contents": "x"}),
        json!({"path": "d.txt", "contents": "x", "a": [{"b": {"client_secret": planted(5)}}]}),
    ] {
        call(agent, WRITE, &arguments).await;
    }
    call(agent, "computer_read_file", &json!({"path": "a.txt"})).await;
    call(agent, "computer_read_file", &json!({"path": format!("missing/{}", planted(6))})).await;
    call(agent, &format!("tool_{}", planted(7)), &json!({})).await;
    let command = format!("echo API_KEY={}; echo 'token: {}' >&2; exit 3", planted(8), planted(9));
    assert!(call(agent, RUN, &json!({ "command": command })).await.contains("API_KEY"));
    let long = format!("head -c 90000 /dev/zero | tr '\\0' x; echo; echo password={}", planted(10));
    call(agent, RUN, &json!({ "command": long })).await;
    // The agent itself is told what the server said; the record is not.
    assert!(call(agent, "mcp__ours__tell", &json!({})).await.contains(IN_THE_ENVIRONMENT));
    call(agent, "mcp__ours__break", &json!({})).await;
    let waiting = tokio::spawn({
        let peer = agent.peer().clone();
        let arguments = json!({"path": "ask.txt", "contents": format!("secret: {}", planted(11))});
        let params = CallToolRequestParams::new(WRITE).with_arguments(arguments.as_object().unwrap().clone());
        async move { peer.call_tool(params).await.unwrap() }
    });
    let asked = tokio::task::block_in_place(|| site.asked());
    site.approve(&asked).await;
    waiting.await.unwrap();
}

/// Secrets in what people save, and in what a sender sends beside the body.
fn by_people(site: &Site) {
    let deployment = &site.place.deployment;
    let schedule = json!({"kind": "once", "at": "2400-01-01T00:00:00Z"}).to_string();
    let add = ["routine", "add", "--name", "r", "--bot", &site.place.bot, "--schedule", &schedule];
    for recording in [
        json!({"steps": [{"tool": "t", "arguments": {"deep": [{"api_key": planted(12)}]}}]}),
        json!({"steps": [{"tool": "t", "arguments": {}}], "variables": {"a": {"value": planted(13), "secret": true}}}),
    ] {
        let (code, error) = deployment.tried(&[&add[..], &["--recording", &recording.to_string()]].concat());
        assert!(code == 2 && error.to_string().contains("must not carry one"), "{error}");
    }
    let in_the_command = format!("--token={}", planted(14));
    assert_ne!(deployment.tried(&["mcp", "add", "bad", "--", "server", &in_the_command]).0, 0);
    let made = deployment.one(&["trigger", "create", "--name", "t", "--bot", &site.place.bot, "--instruction", "x"]);
    let (path, secret) = (made["path"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let bearer = format!("Bearer {secret}");
    let headers = [("authorization", bearer.as_str()), ("x-api-key", &planted(15)), ("cookie", &planted(16))];
    let sent = http::send(&site.server.address, "POST", path, &headers, b"{\"a\":1}").unwrap();
    assert_eq!(sent.status, 202);
}

/// Everything anybody is shown, with where it is from.
async fn shown(site: &Site, run: &str) -> Vec<(String, String)> {
    let deployment = &site.place.deployment;
    let (token, (cookie, _)) = (deployment.token(), site.sign_in().await);
    let approval = deployment.run(&["approval", "list", "--all"])[0]["id"].as_str().unwrap().to_owned();
    let bot = &site.place.bot;
    let mut found = Vec::new();
    for path in [
        "bots",
        "runs",
        "approvals",
        "audit",
        "triggers",
        "deliveries",
        "mcp-servers",
        "projections",
        "boundary",
        "routines",
        "receivers",
        &format!("runs/{run}"),
        &format!("runs/{run}/timeline"),
        &format!("approvals/{approval}"),
    ] {
        let url = format!("http://{}/api/v1/{path}", site.server.address);
        let answer = site.http.get(url).bearer_auth(&token).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        found.push((format!("API {path}"), answer.text().await.unwrap()));
    }
    for path in [
        "/",
        "/runs",
        "/audit",
        "/approvals",
        "/triggers",
        "/deliveries",
        "/mcp-servers",
        "/mcp-servers/ours",
        "/bots",
        "/system",
        "/boundaries",
        &format!("/runs/{run}"),
        &format!("/approvals/{approval}"),
        &format!("/bots/{bot}"),
    ] {
        let request = site.http.get(format!("http://{}{path}", site.server.address)).header("cookie", &cookie);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        found.push((format!("page {path}"), answer.text().await.unwrap()));
    }
    for verb in [&["replay", "run", run][..], &["audit"], &["run", "list"], &["token", "list"], &["mcp", "list"]] {
        found.push((format!("{verb:?}"), Value::Array(deployment.run(verb)).to_string()));
    }
    found
}

/// The ledger's and the projections' files, and what the server said.
fn stored(deployment: &Deployment) -> Vec<(String, String)> {
    let here = deployment.path("");
    let files = fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let named = |name: &str| name.starts_with("midwatch.db") || name == "serve.log";
    let name = |path: &std::path::Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let files: Vec<_> = files.filter(|path| named(&name(path))).collect();
    assert!(files.len() > 2, "{files:?}");
    let read = |path: &std::path::PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    files.iter().map(|path| (name(path), read(path))).collect()
}

#[test]
fn no_secret_is_found_in_ledger_log_pages_answers_or_output() {
    within(async {
        let deployment = Deployment::sqlite().with("PLANTED_KEY", IN_THE_ENVIRONMENT);
        let place = Place::new(deployment, &["computer_run_command:unattended"]);
        let definition = place.deployment.path("definition").display().to_string();
        let (node, ours) = (node(), ours());
        let command = [node.as_str(), &ours, &definition];
        place.deployment.one(&[&["mcp", "add", "ours", "--env", "PLANTED_KEY", "--"][..], &command].concat());
        place.accept("ours", &[], true);
        let site = Site::serving(place, &["--commands", "offline"]);
        let agent = site.caller().await;
        by_calls(&site, &agent).await;
        tokio::task::block_in_place(|| by_people(&site));
        let run = site.live().remove(0)["id"].as_str().unwrap().to_owned();
        let mut everything = shown(&site, &run).await;
        everything.extend(stored(&site.place.deployment));
        let secrets = (1..=PLANTED).map(planted).chain(BY_A_SERVER.map(str::to_owned));
        let secrets: Vec<String> = secrets.chain([site.secret.clone()]).collect();
        for (place, text) in &everything {
            let leaked: Vec<_> = secrets.iter().filter(|secret| text.contains(*secret)).collect();
            assert!(leaked.is_empty(), "{place}: {leaked:?}");
        }
        let redacted = everything.iter().filter(|(_, text)| text.contains("[redacted]")).count();
        assert!(redacted >= 4, "what was redacted is shown as that, in the record and in what shows it: {redacted}");
        // Kept where it belongs: the file is the Bot's.
        assert!(fs::read_to_string(site.place.file("a.txt")).unwrap().contains(&planted(2)));
    });
}
