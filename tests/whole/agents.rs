//! Agents that run elsewhere: real MCP clients use a Bot's tools through the real binary, and are judged, asked about,
//! refused and stopped like any other Bot.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use reqwest::{Client, RequestBuilder, StatusCode};
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient,
    model::{CallToolRequestParams, CallToolResult, ProgressNotificationParam, ProtocolVersion},
    service::{NotificationContext, RunningService},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use serde_json::{Value, json};

use crate::{
    deployment::{Deployment, Server, wait},
    mcp::{node, npm},
    place::Place,
};

const WRITE: &str = "computer_write_file";

/// A client that counts what it hears while it waits.
#[derive(Clone, Default)]
pub(crate) struct Ear {
    progress: Arc<AtomicU32>,
    changed: Arc<AtomicU32>,
}

impl ClientHandler for Ear {
    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) type Agent = RunningService<RoleClient, Ear>;

/// A deployment with a boundary that refuses one file and asks about another, and an agent's token for its Bot.
pub(crate) struct Site {
    pub(crate) place: Place,
    pub(crate) server: Server,
    pub(crate) secret: String,
    token: String,
    pub(crate) http: Client,
}

impl Site {
    fn new(deployment: Deployment) -> Self {
        Self::serving(Place::new(deployment, &[]), &[])
    }

    pub(crate) fn serving(place: Place, serve: &[&str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let rules = json!({"rules": [
            {"id": "no", "name": "No", "verdict": "deny", "when": "file.name == \"no.txt\""},
            {"id": "ask", "name": "Ask", "verdict": "ask", "unattended": "wait", "when": "file.name == \"ask.txt\""},
            {"id": "all", "name": "All", "verdict": "allow", "when": "true"},
        ]});
        let file = place.deployment.path("rules.json");
        std::fs::write(&file, rules.to_string()).unwrap();
        place.deployment.one(&["boundary", "publish", file.to_str().unwrap(), "--note", "for agents"]);
        let (token, secret) = token(&place.deployment, &place.bot);
        let server = place.serve(serve);
        let http = Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { place, server, secret, token, http }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.server.address)
    }

    /// An agent that only calls.
    pub(crate) async fn caller(&self) -> Agent {
        self.agent(Ear::default(), ClientLifecycleMode::Initialize).await
    }

    async fn agent(&self, ear: Ear, mode: ClientLifecycleMode) -> Agent {
        let config = StreamableHttpClientTransportConfig::with_uri(self.url()).auth_header(self.secret.clone());
        let transport = StreamableHttpClientTransport::with_client(self.http.clone(), config);
        ear.serve_with_lifecycle(transport, mode).await.unwrap()
    }

    /// A message as an MCP client posts it.
    fn post(&self, secret: &str, session: Option<&str>, message: &Value) -> RequestBuilder {
        let request = self.http.post(self.url()).header("accept", "application/json, text/event-stream");
        let request = request.bearer_auth(secret).json(message);
        match session {
            Some(session) => request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-06-18"),
            None => request,
        }
    }

    async fn status(&self, request: RequestBuilder) -> u16 {
        request.send().await.unwrap().status().as_u16()
    }

    /// An MCP session that was opened by hand.
    async fn session(&self) -> String {
        let answer = self.post(&self.secret, None, &initialize()).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let id = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.status(self.post(&self.secret, Some(&id), &initialized)).await, 202);
        id
    }

    /// A person who signed in: the cookie, and what changes carry beside it.
    pub(crate) async fn sign_in(&self) -> (String, String) {
        let link = self.place.deployment.one(&["user", "link"])["link"].as_str().unwrap().to_owned();
        let (_, path) = link.split_once("/sign-in/").unwrap();
        let base = format!("http://{}", self.server.address);
        let request = self.http.post(format!("{base}/sign-in/{path}")).header("sec-fetch-site", "same-origin");
        let signed_in = request.send().await.unwrap();
        let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let me = self.http.get(format!("{base}/api/v1/me")).header("cookie", &cookie).send().await.unwrap();
        let me: Value = serde_json::from_slice(&me.bytes().await.unwrap()).unwrap();
        (cookie, me["csrf"].as_str().unwrap().to_owned())
    }

    /// Answers what waits as a person who signed in.
    pub(crate) async fn approve(&self, approval: &Value) {
        let (cookie, csrf) = self.sign_in().await;
        let id = approval["id"].as_str().unwrap();
        let answer = self
            .http
            .post(format!("http://{}/api/v1/approvals/{id}/answer", self.server.address))
            .header("sec-fetch-site", "same-origin")
            .header("cookie", &cookie)
            .header("x-csrf-token", csrf)
            .json(&json!({"answer": "approve", "digest": approval["digest"]}));
        let answered = answer.send().await.unwrap();
        assert_eq!(answered.status(), StatusCode::OK, "{}", answered.text().await.unwrap());
    }

    fn approvals(&self, all: &[&str]) -> Vec<Value> {
        self.place.deployment.run(&[&["approval", "list"], all].concat())
    }

    /// The only call that waits, once it does.
    pub(crate) fn asked(&self) -> Value {
        wait(Duration::from_secs(20), "a call to wait for a person", || self.approvals(&[]).len() == 1);
        self.approvals(&[]).remove(0)
    }

    pub(crate) fn live(&self) -> Vec<Value> {
        let runs = self.place.deployment.run(&["run", "list"]);
        runs.into_iter().filter(|run| run["state"] == "running").collect()
    }
}

fn token(deployment: &Deployment, bot: &str) -> (String, String) {
    let made = deployment.one(&["token", "add", "--name", "editor", "--bot", bot]);
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"},
    }})
}

fn listing() -> Value {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})
}

fn write(path: &str) -> CallToolRequestParams {
    let arguments = json!({"path": path, "contents": "by an agent"});
    CallToolRequestParams::new(WRITE).with_arguments(arguments.as_object().unwrap().clone())
}

/// What the agent reads: whether it is marked as an error, and the gateway's own words.
fn read(result: &CallToolResult) -> (bool, Value) {
    let text = &result.content[0].as_text().unwrap().text;
    (result.is_error == Some(true), serde_json::from_str(text).unwrap())
}

async fn called(agent: &Agent, path: &str) -> (bool, Value) {
    read(&agent.call_tool(write(path)).await.unwrap())
}

fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

pub(crate) fn within(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(test);
}

#[test]
fn an_agent_uses_what_its_bot_is_granted_and_is_refused_and_asked_about() {
    within(async {
        let site = Site::new(Deployment::sqlite());
        let ear = Ear::default();
        let agent = site.agent(ear.clone(), ClientLifecycleMode::Initialize).await;
        let said = agent.peer_info().unwrap().instructions.clone().unwrap();
        assert!(said.contains("600 s") && said.contains("660 s"), "its time-out is not said beforehand: {said}");
        let names = async |agent: &Agent| -> Vec<String> {
            agent.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect()
        };
        assert_eq!(names(&agent).await, ["computer_list_files", "computer_read_file", WRITE]);
        assert!(site.live().is_empty(), "who only looks around makes no run");

        let (error, done) = called(&agent, "a.txt").await;
        assert!(!error && done["ok"] == true, "{done}");
        assert_eq!(std::fs::read_to_string(site.place.file("a.txt")).unwrap(), "by an agent");
        let (error, refused) = called(&agent, "no.txt").await;
        assert!(error && !site.place.file("no.txt").exists());
        assert_eq!(
            (&refused["ok"], &refused["refused"], &refused["rule"]),
            (&json!(false), &json!(true), &json!("no"))
        );
        assert!(refused["reason"].as_str().unwrap().contains("`no`"), "{refused}");

        // A person is asked, the client hears that it goes on, and the answer lets it act.
        let waiting = tokio::spawn({
            let peer = agent.peer().clone();
            async move { peer.call_tool(write("ask.txt")).await.unwrap() }
        });
        let approval = tokio::task::block_in_place(|| site.asked());
        let heard = || ear.progress.load(Ordering::Relaxed) >= 2;
        tokio::task::block_in_place(|| wait(Duration::from_secs(20), "progress", heard));
        assert!(!site.place.file("ask.txt").exists());
        site.approve(&approval).await;
        assert_eq!(read(&waiting.await.unwrap()).1["ok"], true);
        assert!(site.place.file("ask.txt").exists());

        // What it is granted changes in front of it.
        site.place.deployment.one(&["bot", "withdraw", &site.place.bot, WRITE]);
        let told = || ear.changed.load(Ordering::Relaxed) >= 1;
        tokio::task::block_in_place(|| wait(Duration::from_secs(20), "the client to be told", told));
        assert_eq!(names(&agent).await.len(), 2);
        assert!(called(&agent, "b.txt").await.1["reason"].as_str().unwrap().contains("not granted"));

        // All of it is one run, that nobody watched.
        let run = site.live().remove(0);
        assert_eq!((&run["cause"], &run["routine"]), (&json!("session"), &json!(null)), "{run}");
        let id = run["id"].as_str().unwrap();
        let shown = site.place.deployment.one(&["run", "show", id]);
        assert_eq!((&shown["unattended"], &shown["tool_calls"]), (&json!(true), &json!(4)), "{shown}");
        agent.cancel().await.unwrap();
        let ended = site.place.ended(id);
        assert_eq!((&ended["outcome"], &ended["refused_calls"]), (&json!("succeeded"), &json!(2)), "{ended}");
        site.place.deployment.verify();
    });
}

#[test]
fn nobody_comes_in_without_a_token_in_its_header_and_a_session_is_its_tokens() {
    within(async {
        let site = Site::new(Deployment::sqlite());
        let other = site.place.deployment.one(&["bot", "add", "--name", "other"])["id"].as_str().unwrap().to_owned();
        let (_, others) = token(&site.place.deployment, &other);
        let api = site.place.deployment.token();

        let nobody = site.http.post(site.url()).json(&initialize()).send().await.unwrap();
        assert_eq!((nobody.status().as_u16(), nobody.headers()["www-authenticate"].to_str().unwrap()), (401, "Bearer"));
        let in_the_query = site.http.post(format!("{}?token={}", site.url(), site.secret)).json(&initialize());
        assert_eq!(site.status(in_the_query).await, 400);
        let mut cut = site.secret.clone();
        cut.pop();
        for secret in [&api, &cut] {
            assert_eq!(site.status(site.post(secret, None, &initialize())).await, 401);
        }
        // And an agent is nobody to the API.
        let me = site.http.get(format!("http://{}/api/v1/me", site.server.address)).bearer_auth(&site.secret);
        assert_eq!(site.status(me).await, 401);
        for (name, value) in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("host", "rebound.example"),
        ] {
            let request = site.post(&site.secret, None, &initialize()).header(name, value);
            assert_eq!(site.status(request).await, 403, "{name}: {value}");
        }
        let own =
            site.post(&site.secret, None, &initialize()).header("origin", format!("http://{}", site.server.address));
        assert_eq!(site.status(own).await, 200);

        let session = site.session().await;
        assert_eq!(site.status(site.post(&site.secret, Some(&session), &listing())).await, 200);
        assert_eq!(site.status(site.post(&others, Some(&session), &listing())).await, 404);
        assert_eq!(site.status(site.post(&site.secret, Some("of-another-process"), &listing())).await, 404);
        let delete = |secret: &str| site.http.delete(site.url()).bearer_auth(secret).header("mcp-session-id", &session);
        assert_eq!(site.status(delete(&others)).await, 404);

        // Whoever goes away while a person is asked asks no more.
        let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
            "name": WRITE, "arguments": {"path": "ask.txt", "contents": "x"},
        }});
        let answer = site.post(&site.secret, Some(&session), &call).send().await.unwrap();
        tokio::task::block_in_place(|| site.asked());
        drop(answer);
        let withdrawn = || site.approvals(&["--all"]).iter().any(|row| row["answer"] == "withdrawn");
        tokio::task::block_in_place(|| wait(Duration::from_secs(20), "what was asked to be withdrawn", withdrawn));
        assert!(!site.place.file("ask.txt").exists());

        // A token that is revoked stops working in the open session, and its run ends.
        let run = site.live().remove(0)["id"].as_str().unwrap().to_owned();
        site.place.deployment.one(&["token", "revoke", &site.token]);
        assert_eq!(site.status(site.post(&site.secret, Some(&session), &listing())).await, 401);
        let ended = tokio::task::block_in_place(|| site.place.ended(&run));
        assert_eq!(ended["outcome"], "cancelled", "{ended}");
        site.place.deployment.verify();
    });
}

#[test]
fn what_was_stopped_stays_stopped_for_an_agent() {
    within(async {
        let site = Site::new(Deployment::sqlite());
        let stopped = |(error, said): (bool, Value), why: &str| {
            assert!(error && said["refused"] == true && said["reason"].as_str().unwrap().contains(why), "{said}");
        };
        // With MCP sessions and without: the protocol has had none since 2026-07-28.
        for mode in [ClientLifecycleMode::Initialize, discover()] {
            let agent = site.agent(Ear::default(), mode).await;
            assert_eq!(called(&agent, "a.txt").await.1["ok"], true);
            let waiting = tokio::spawn({
                let peer = agent.peer().clone();
                async move { peer.call_tool(write("ask.txt")).await.unwrap() }
            });
            tokio::task::block_in_place(|| site.asked());
            let run = site.live().remove(0)["id"].as_str().unwrap().to_owned();
            site.place.deployment.one(&["run", "cancel", &run]);
            stopped(read(&waiting.await.unwrap()), "was ended");
            stopped(called(&agent, "b.txt").await, "was ended");
        }
        let agent = site.agent(Ear::default(), ClientLifecycleMode::Initialize).await;
        assert_eq!(called(&agent, "a.txt").await.1["ok"], true, "a new session is a new run");
        site.place.deployment.one(&["bot", "stop", &site.place.bot]);
        stopped(called(&agent, "b.txt").await, "was ended");
        let agent = site.agent(Ear::default(), ClientLifecycleMode::Initialize).await;
        assert_eq!(called(&agent, "a.txt").await.1["ok"], true);
        site.place.deployment.one(&["halt", "--reason", "stop it", "--stop-runs"]);
        stopped(called(&agent, "b.txt").await, "was ended");
        let agent = site.agent(Ear::default(), ClientLifecycleMode::Initialize).await;
        stopped(called(&agent, "b.txt").await, "halted");
        assert!(!site.place.file("b.txt").exists() && !site.place.file("ask.txt").exists());
        site.place.deployment.verify();
    });
}

/// The inspector's command line. Its package expects to lie within the inspector's, whose version it says.
fn inspector(deployment: &Deployment) -> String {
    let program = std::fs::canonicalize(npm("mcp-inspector-cli")).unwrap();
    let build = program.parent().unwrap();
    let (home, modules) = (deployment.path("inspector"), build.ancestors().nth(3).unwrap());
    std::fs::create_dir_all(home.join("cli")).unwrap();
    assert!(Command::new("cp").arg("-r").arg(build).arg(home.join("cli/build")).status().unwrap().success());
    std::os::unix::fs::symlink(modules, home.join("node_modules")).unwrap();
    std::fs::write(home.join("package.json"), r#"{"name":"inspector","version":"1.0.3","type":"module"}"#).unwrap();
    home.join("cli/build/index.js").display().to_string()
}

#[test]
fn the_official_inspector_lists_and_calls() {
    let site = Site::new(Deployment::sqlite());
    let inspector = inspector(&site.place.deployment);
    let inspect = |arguments: &[&str]| -> Value {
        let header = format!("Authorization: Bearer {}", site.secret);
        let output = Command::new(node())
            .args([&inspector, &site.url(), "--transport", "http", "--header", &header])
            .args(arguments)
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&out).unwrap()
    };
    let listed = inspect(&["--method", "tools/list"]);
    assert_eq!(listed["tools"].as_array().unwrap().len(), 3, "{listed}");
    let call = |path: &str| {
        let path = format!("path={path}");
        inspect(&[
            "--method",
            "tools/call",
            "--tool-name",
            WRITE,
            "--tool-arg",
            &path,
            "--tool-arg",
            "contents=inspected",
        ])
    };
    assert!(call("i.txt")["content"][0]["text"].as_str().unwrap().contains("\"ok\":true"));
    assert_eq!(std::fs::read_to_string(site.place.file("i.txt")).unwrap(), "inspected");
    let refused = call("no.txt");
    assert!(refused["isError"] == true && refused.to_string().contains("refused"), "{refused}");
}
