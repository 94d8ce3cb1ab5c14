//! Approvals over HTTP and on their page: who may answer, what they are shown, and that the first answer is final.

use std::time::Duration;

use midwatch_engine::{projector, runner};
use midwatch_events::{
    id::RunId,
    routine::{Limits, Work},
    user::Access,
};
use midwatch_gateway::{Gateway, GatewayOptions};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::testing::{Server, Session, answered, by, problem};

/// A server with a runner, whose boundary asks about every write.
struct Asking {
    server: Server,
    /// Whose routines ask.
    owner: Session,
    home: TempDir,
}

const SECRET: &str = "sk-live-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c";

impl Asking {
    async fn start(approvers: &str) -> Self {
        let server = Server::start().await;
        let document = json!({"rules": [
            {"id": "ask-writes", "name": "Ask before writing", "verdict": "ask", "when": "intent == \"write_file\"",
             "unattended": "wait", "approvers": approvers, "cost": "Somebody has to be there."},
            {"id": "rest", "name": "The rest", "verdict": "allow", "when": "true"},
        ]});
        server.engine.publish_boundary(&document.to_string(), "", None, &by(), None).await.unwrap();
        let home = TempDir::new().unwrap();
        let gateway = Gateway::new(GatewayOptions::files(home.path().join("workspaces"))).unwrap();
        let stopping = server.stop.subscribe();
        tokio::spawn(runner::run(server.engine.clone(), gateway.executor(), stopping));
        let owner = server.sign_in("Owner", Access::Member).await;
        Self { server, owner, home }
    }

    /// A run of one write, and its approval once it waits.
    async fn ask(&self) -> (RunId, Value) {
        let engine = &self.server.engine;
        let steps = json!({"steps": [{"tool": "computer_write_file",
            "arguments": {"path": "notes.txt", "contents": format!("Authorization: Bearer {SECRET}")}}]});
        let new = midwatch_engine::routines::NewRoutine {
            name: "writer".to_owned(),
            bot: self.server.bot().await,
            schedule: r#"{"kind":"once","at":"2400-01-01T00:00:00Z"}"#.to_owned(),
            work: Work { instruction: None, recording: Some(steps.to_string()) },
            limits: Limits::default(),
            owner: Some(self.owner.user),
        };
        let routine = engine.create_routine(&new, &by(), None).await.unwrap().value;
        let run = engine.run_now(routine, &by(), None).await.unwrap().value;
        for _ in 0..200 {
            projector::catch_up(engine).await.unwrap();
            let list = self.server.get(&format!("/api/v1/approvals?state=open&run={run}")).await;
            if let Some(row) = list["items"].as_array().unwrap().first() {
                return (run, row.clone());
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("nobody was asked");
    }

    async fn answer(&self, who: &Session, row: &Value, answer: &str) -> reqwest::Response {
        let path = format!("/api/v1/approvals/{}/answer", row["id"].as_str().unwrap());
        let body = json!({"answer": answer, "digest": row["digest"]});
        self.server.browser(who, Method::POST, &path).json(&body).send().await.unwrap()
    }

    async fn outcome(&self, run: RunId) -> String {
        for _ in 0..200 {
            let row = self.server.get(&format!("/api/v1/runs/{run}")).await;
            if let Some(outcome) = row["outcome"].as_str() {
                return outcome.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the run never ended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_in_person_answers_once_and_a_token_never() {
    let asking = Asking::start("any").await;
    let (run, row) = asking.ask().await;
    let path = format!("/api/v1/approvals/{}/answer", row["id"].as_str().unwrap());
    let body = json!({"answer": "approve", "digest": row["digest"]});
    let token = asking.server.admin(Method::POST, &path).json(&body).send().await.unwrap();
    problem(token, StatusCode::FORBIDDEN, "forbidden").await;
    let auditor = asking.server.sign_in("Auditor", Access::Auditor).await;
    problem(asking.answer(&auditor, &row, "approve").await, StatusCode::FORBIDDEN, "forbidden").await;
    // Who does not own it does not see it.
    let other = asking.server.sign_in("Other", Access::Member).await;
    problem(asking.answer(&other, &row, "approve").await, StatusCode::NOT_FOUND, "not_found").await;
    let mut changed = row.clone();
    changed["digest"] = json!("00".repeat(32));
    problem(asking.answer(&asking.owner, &changed, "approve").await, StatusCode::CONFLICT, "other_call").await;

    answered(asking.answer(&asking.owner, &row, "approve").await, StatusCode::OK).await;
    assert_eq!(asking.outcome(run).await, "succeeded");
    let admin = asking.server.sign_in("Admin", Access::Admin).await;
    problem(asking.answer(&admin, &row, "decline").await, StatusCode::CONFLICT, "run_ended").await;
    let row = asking.server.get(&format!("/api/v1/approvals/{}", row["id"].as_str().unwrap())).await;
    let members: std::collections::BTreeSet<String> = row.as_object().unwrap().keys().cloned().collect();
    assert_eq!(members, super::shapes::described("Approval"));
    assert_eq!(
        (&row["answer"], &row["answered_by"]),
        (&json!("approved"), &json!(format!("user:{}", asking.owner.user)))
    );
    assert_eq!(row["spent_by"], row["call"]);
    assert!(asking.home.path().join("workspaces").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_four_eyes_are_wanted_the_owner_does_not_answer() {
    let asking = Asking::start("not_owner").await;
    let (run, row) = asking.ask().await;
    problem(asking.answer(&asking.owner, &row, "approve").await, StatusCode::CONFLICT, "not_approver").await;
    let page = asking.page(&asking.owner, &row).await;
    assert!(page.contains("somebody who does not own the routine") && !page.contains("Approve this call"), "{page}");
    let admin = asking.server.sign_in("Admin", Access::Admin).await;
    answered(asking.answer(&admin, &row, "decline").await, StatusCode::OK).await;
    assert_eq!(asking.outcome(run).await, "refused");
}

impl Asking {
    async fn page(&self, who: &Session, row: &Value) -> String {
        let path = format!("/approvals/{}", row["id"].as_str().unwrap());
        let response = self.server.browser(who, Method::GET, &path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let csp = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(csp.contains("frame-ancestors 'none'"), "{csp}");
        response.text().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_shows_target_and_rule_and_no_secret_and_its_form_answers() {
    let asking = Asking::start("any").await;
    let (run, row) = asking.ask().await;
    let page = asking.page(&asking.owner, &row).await;
    for shown in ["computer_write_file notes.txt", "ask-writes", "Somebody has to be there.", "data-arm", "[redacted]"]
    {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains(SECRET), "{page}");
    let watch = asking.server.browser(&asking.owner, Method::GET, "/").send().await.unwrap().text().await.unwrap();
    assert!(watch.contains("1 call waits for a person"), "{watch}");

    let path = format!("/approvals/{}", row["id"].as_str().unwrap());
    let (csrf, digest) = (&asking.owner.csrf, row["digest"].as_str().unwrap());
    let fields = format!("csrf={csrf}&digest={digest}&answer=approve");
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let sent = client.post(asking.server.at(&path)).header("cookie", &asking.owner.cookie);
    let sent = sent.header("sec-fetch-site", "same-origin");
    let sent = sent.header("content-type", "application/x-www-form-urlencoded").body(fields).send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::SEE_OTHER);
    assert_eq!(asking.outcome(run).await, "succeeded");
    let page = asking.page(&asking.owner, &row).await;
    assert!(page.contains("the answer is spent") && !page.contains("Approve this call"), "{page}");
    // The decision that let it through says why.
    let steps = asking.server.get(&format!("/api/v1/runs/{run}/timeline")).await;
    let decided = steps["items"].as_array().unwrap().iter().rfind(|step| step["event"] == "run.tool_call_decided");
    let path = format!("/decisions/{}", decided.unwrap()["position"]);
    let explained =
        asking.server.browser(&asking.owner, Method::GET, &path).send().await.unwrap().text().await.unwrap();
    for shown in ["ask-writes", "run.unattended", "file.path", "what a person was asked", "Somebody has to be there."] {
        assert!(explained.contains(shown), "{shown}: {explained}");
    }
    assert!(!explained.contains(SECRET));
    let list = asking.server.browser(&asking.owner, Method::GET, "/approvals").send().await.unwrap();
    assert!(list.text().await.unwrap().contains("computer_write_file notes.txt"));
}

/// No call is decided after the answer, and what had been decided is listed.
#[tokio::test(flavor = "multi_thread")]
async fn everything_stops_at_once() {
    let asking = Asking::start("any").await;
    let (run, row) = asking.ask().await;
    let stopped = asking.server.post("/api/v1/halt", &json!({"reason": "stop", "stop_runs": true})).await;
    assert_eq!((&stopped["stopped_runs"], &stopped["live_runs"]), (&json!([run.to_string()]), &json!([])));
    assert_eq!(asking.outcome(run).await, "cancelled");
    problem(asking.answer(&asking.owner, &row, "approve").await, StatusCode::CONFLICT, "run_ended").await;
    let row = asking.server.get(&format!("/api/v1/approvals/{}", row["id"].as_str().unwrap())).await;
    assert_eq!(row["answer"], "withdrawn");
    let shown = asking.server.get("/api/v1/halt").await;
    assert_eq!(shown["halted"], true);
}
