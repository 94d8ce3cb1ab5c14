//! Notices: who is told is chosen on a page, and what became of it is read there and from the API.

use std::collections::BTreeSet;

use midwatch_engine::{
    notices::{self, Attempted},
    projector,
};
use midwatch_events::user::Access;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::story::{HOSTILE, Story};
use crate::testing::{answered, by, problem};

#[tokio::test]
async fn a_receiver_is_added_told_and_removed() {
    let story = Story::told().await;
    let engine = &story.server.engine;
    for (url, about, said) in [
        ("ftp://example.com", "halt", "begins with https://"),
        ("https://me:word@example.com", "halt", "leave name and password out"),
        ("http://169.254.169.254/latest", "halt", "is never asked"),
        ("https://example.com", "nothing", "say what it is told"),
    ] {
        let fields = [("name", HOSTILE), ("url", url), ("about", about)];
        let wrong = story.post(&story.admin, "/notices", &fields).await;
        assert_eq!(wrong.status(), StatusCode::BAD_REQUEST, "{url}");
        let html = wrong.text().await.unwrap().to_lowercase();
        assert!(html.contains(said) && html.contains(&format!("value=\"{url}\"")), "{url}: {html}");
    }
    let fields = [("name", HOSTILE), ("url", "http://127.0.0.1:9/hook"), ("about", "halt"), ("heartbeat", "60")];
    let made = story.post(&story.admin, "/notices", &fields).await;
    assert_eq!(made.status(), StatusCode::SEE_OTHER);
    let path = made.headers()["location"].to_str().unwrap().split('?').next().unwrap().to_owned();
    let html = story.page(&path).await;
    assert!(html.contains("whsec_") && html.contains("http://127.0.0.1:9/hook"), "{html}");

    engine.halt_scheduling(&by(), "drill", None).await.unwrap();
    projector::catch_up(engine).await.unwrap();
    while notices::raise(engine).await.unwrap() == notices::Raised::Batch {}
    projector::catch_up(engine).await.unwrap();
    let due = engine.due_notices(10, &BTreeSet::new()).await.unwrap().now.remove(0).remove(0);
    let came = Attempted { status: Some(503), error: Some("it answered 503".to_owned()), hopeless: false };
    engine.note_attempt(&due, &came).await.unwrap();
    projector::catch_up(engine).await.unwrap();
    let html = story.page("/notices").await;
    assert!(html.contains("is tried again") && html.contains("it answered 503"), "{html}");
    assert!(!story.page("/notices?state=delivered").await.contains("it answered 503"));
    let notice = format!("/notices/{}", due.notice);
    let html = story.page(&notice).await;
    let (_, posted) = html.split_once("What is posted").unwrap();
    assert!(html.contains("answered 503") && posted.contains("scheduling.halted"), "{html}");
    assert!(!posted.contains("drill"), "words stay here: {posted}");

    let listed = story.server.get("/api/v1/notices?state=waiting").await;
    assert_eq!(listed["items"][0]["id"], json!(due.notice), "{listed}");
    assert!(
        engine.due_notices(10, &BTreeSet::new()).await.unwrap().now.is_empty(),
        "it waits five seconds, unless somebody asks"
    );
    story.server.post(&format!("/api/v1{notice}/again"), &json!({})).await;
    assert_eq!(engine.due_notices(10, &BTreeSet::new()).await.unwrap().now.concat()[0].attempt, 2);
    let nobody = format!("/api/v1/notices/{}/again", story.routine);
    let nobody = story.server.admin(Method::POST, &nobody).json(&json!({})).send().await.unwrap();
    problem(nobody, StatusCode::NOT_FOUND, "not_found").await;
    assert_eq!(story.post(&story.admin, &format!("{path}/remove"), &[]).await.status(), StatusCode::SEE_OTHER);
    assert!(!story.page("/notices").await.contains("127.0.0.1:9/hook"));
    let given_up = engine.due_notices(10, &BTreeSet::new()).await.unwrap().now.concat();
    assert_eq!(given_up[0].url, None, "whoever was removed is told nothing more");
}

#[tokio::test]
async fn receivers_are_the_admins_to_see_and_change() {
    let story = Story::told().await;
    for (name, role) in [("mia", Access::Member), ("otto", Access::Auditor)] {
        let session = story.server.sign_in(name, role).await;
        story.page_for(&session, "/notices", StatusCode::FORBIDDEN).await;
    }
    let new = json!({"name": "pager", "url": "https://example.com/hook", "about": ["run_failed", "halt"]});
    let made = story.server.post("/api/v1/receivers", &new).await;
    let id = made["id"].as_str().unwrap();
    let secret = story.server.get(&format!("/api/v1/receivers/{id}/secret")).await;
    assert!(secret["secret"].as_str().unwrap().starts_with("whsec_"), "{secret}");
    let listed = story.server.get("/api/v1/receivers").await;
    assert_eq!(listed["items"][0]["about"], json!(["run_failed", "halt"]));
    let removed = story.server.admin(Method::DELETE, &format!("/api/v1/receivers/{id}")).send().await.unwrap();
    answered(removed, StatusCode::OK).await;
    let gone = story.server.admin(Method::GET, &format!("/api/v1/receivers/{id}/secret")).send().await.unwrap();
    problem(gone, StatusCode::NOT_FOUND, "not_found").await;
}
