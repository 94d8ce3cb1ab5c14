//! Who posts to a trigger, on pages: a sample is tried before anything is saved, another sender takes the place of the
//! one before, and a secret is replaced with an overlap that somebody chooses.

use midwatch_engine::projector;
use midwatch_events::trigger::Intake;
use midwatch_projections::triggers::Triggers;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::story::Story;
use crate::{
    senders::{Unsigned, find, sign},
    testing::{Hook, Server, answered, problem},
};

/// A request as HTTP writes it, signed as this sender does.
fn sample(server: &Server, preset: &str, secret: &str, body: &str) -> String {
    let now = server.engine.world().clock.now();
    let url = "https://watch.example/hooks/x";
    let (body, content_type) = (body.as_bytes(), "application/json");
    let unsigned = Unsigned { secret, body, content_type, id: "1", event_type: Some("push"), url, now };
    let out = sign(&find(preset).unwrap(), &unsigned).unwrap();
    let head: String = out.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{head}\r\n{}", String::from_utf8(out.body).unwrap())
}

#[tokio::test]
async fn a_sample_is_tried_before_a_trigger_is_made() {
    let story = Story::told().await;
    let pasted = sample(&story.server, "stripe", "whsec_of_stripe", r#"{"id":"evt_1","type":"a.b"}"#);
    let tried = async |secret: &str, pasted: &str| {
        let fields = [("preset", "stripe"), ("secret", secret), ("sample", pasted), ("do", "check")];
        let answer = story.post(&story.admin, "/triggers", &fields).await;
        (answer.status(), answer.text().await.unwrap())
    };
    let (status, html) = tried("whsec_of_stripe", &pasted).await;
    assert!(status == StatusCode::OK && html.contains("It verifies") && html.contains("evt_1"), "{html}");
    assert!(!html.contains("whsec_of_stripe"), "no page gives a secret back: {html}");
    let (status, html) = tried("whsec_of_another", &pasted).await;
    assert!(status == StatusCode::OK && html.contains("was made with another secret"), "{html}");
    for (secret, pasted, says) in
        [("", pasted.as_str(), "Give the secret"), ("x", "no header\n\nbody", "Line 1 is no header")]
    {
        let (status, html) = tried(secret, pasted).await;
        assert!(status == StatusCode::BAD_REQUEST && html.contains(says), "{html}");
    }
    // By a template, before it is saved: what is wrong with it is said.
    let by = async |template: &str| {
        let fields = [
            ("preset", "template"),
            ("template", template),
            ("secret", "x"),
            ("sample", "A: b\n\n{}"),
            ("do", "check"),
        ];
        story.post(&story.admin, "/triggers", &fields).await.text().await.unwrap()
    };
    assert!(by("nonsense = 1").await.contains("role=\"alert\""));
    let template = crate::senders::text("template").unwrap();
    assert!(by(template).await.contains("the id that is signed is not there"), "{}", by(template).await);
    let triggers = story.server.get("/api/v1/triggers").await;
    assert_eq!(triggers["items"].as_array().unwrap().len(), 1, "nothing was made");
}

#[tokio::test]
async fn another_sender_takes_the_place_of_the_one_before() {
    let story = Story::told().await;
    let server = &story.server;
    let hook = server.hook().await;
    projector::catch_up(&server.engine).await.unwrap();
    let path = format!("/triggers/{}/sender", hook.id);
    let form = story.page(&path).await;
    assert!(form.contains(r#"<option value="bearer" selected>"#), "{form}");
    let version = form.split("name=\"version\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let fields = [("preset", "github"), ("version", version.as_str()), ("request", "s1"), ("do", "save")];
    let unpaired = [("preset", "stripe"), ("version", version.as_str()), ("do", "save")];
    let refused = story.post(&story.admin, &path, &unpaired).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert!(refused.text().await.unwrap().contains("it is the sender who shows it"));
    let html = story.post(&story.admin, &path, &fields).await.text().await.unwrap();
    assert!(html.contains("The old secret opens nothing any more") && html.contains("Settings, Webhooks"), "{html}");
    let secret = html.split("id=\"secret\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let again = story.post(&story.admin, &path, &fields).await.text().await.unwrap();
    assert!(again.contains("was sent before") && !again.contains("id=\"secret\""), "{again}");
    let other = [("preset", "gitlab"), ("version", version.as_str()), ("do", "save")];
    assert_eq!(
        story.post(&story.admin, &path, &other).await.status(),
        StatusCode::CONFLICT,
        "it was changed meanwhile"
    );
    let old = server.deliver(&hook).body("{}").send().await.unwrap();
    problem(old, StatusCode::UNAUTHORIZED, "not_authentic").await;
    let new = Hook { secret, ..hook.clone() };
    let now = server.engine.world().clock.now();
    let unsigned = Unsigned {
        secret: &new.secret,
        body: b"{}",
        content_type: "application/json",
        id: "1",
        event_type: Some("push"),
        url: "",
        now,
    };
    let mut request = server.plain(Method::POST, &format!("/hooks/{}", hook.endpoint)).body("{}");
    for (name, value) in sign(&find("github").unwrap(), &unsigned).unwrap().headers {
        request = request.header(name, value);
    }
    assert_eq!(answered(request.send().await.unwrap(), StatusCode::ACCEPTED).await["status"], "captured");
    let page = story.page(&format!("/triggers/{}", hook.id)).await;
    assert!(page.contains("<dd>GitHub</dd>"), "{page}");
}

#[tokio::test]
async fn a_secret_is_replaced_with_the_overlap_that_was_chosen_and_each_ones_last_use_is_shown() {
    let story = Story::told().await;
    let server = &story.server;
    let hook = server.hook_with(Intake::default()).await;
    answered(server.deliver(&hook).header("x-delivery-id", "1").body("{}").send().await.unwrap(), StatusCode::ACCEPTED)
        .await;
    projector::catch_up(&server.engine).await.unwrap();
    let path = format!("/triggers/{}", hook.id);
    assert!(story.page(&path).await.contains("<dt>Secret</dt><dd>last used <time"));
    let rotated = story.post(&story.admin, &format!("{path}/rotate"), &[("overlap_s", "604800")]).await;
    let html = rotated.text().await.unwrap();
    assert!(html.contains("The old secret is good for a week more."), "{html}");
    let page = story.page(&path).await;
    assert!(
        page.contains("<dt>Secret</dt><dd>not used yet") && page.contains("<dt>Old secret</dt><dd>good until"),
        "{page}"
    );
    assert!(page.split("<dt>Old secret</dt>").nth(1).unwrap().contains("; last used <time"), "{page}");
    let row = async || projector::get::<Triggers>(&server.engine, &hook.id.to_string()).await.unwrap().unwrap();
    let until = row().await.old_secret_until.unwrap();
    let now = server.engine.log().store_time().await.unwrap();
    assert!((604_700..=604_800).contains(&(until.since(now) / 1_000_000)), "{until}");
    story.post(&story.admin, &format!("{path}/rotate"), &[("overlap_s", "0")]).await;
    let old = server.deliver(&hook).header("x-delivery-id", "2").body("{}").send().await.unwrap();
    problem(old, StatusCode::UNAUTHORIZED, "not_authentic").await;
    assert!(!story.page(&path).await.contains("<dt>Old secret</dt>"));
}

#[tokio::test]
async fn the_api_replaces_sender_and_secret_once_for_each_request() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let path = format!("/api/v1/triggers/{}", hook.id);
    let rotate = async |key: &str| {
        let request = server.admin(Method::POST, &format!("{path}/rotate")).header("idempotency-key", key);
        answered(request.json(&json!({"overlap_s": 0})).send().await.unwrap(), StatusCode::OK).await
    };
    let one = rotate("k").await;
    let two = rotate("k").await;
    assert!(one["secret"].as_str().unwrap().starts_with("mw_"), "{one}");
    assert_eq!((&two["secret"], &two["position"]), (&json!(null), &one["position"]), "the first one's is in force");
    let new = Hook { secret: one["secret"].as_str().unwrap().to_owned(), ..hook.clone() };
    answered(server.deliver(&new).body("{}").send().await.unwrap(), StatusCode::ACCEPTED).await;
    let put = async |tag: &str, body: serde_json::Value| {
        server.admin(Method::PUT, &format!("{path}/sender")).header("if-match", tag).json(&body).send().await.unwrap()
    };
    projector::catch_up(&server.engine).await.unwrap();
    let shown = server.admin(Method::GET, &path).send().await.unwrap();
    let tag = shown.headers()["etag"].to_str().unwrap().to_owned();
    let github = json!({"preset": "github"});
    problem(put("\"1\"", github.clone()).await, StatusCode::CONFLICT, "already_so").await;
    for (body, says) in [
        (json!({"preset": "nobody"}), "there is no preset"),
        (json!({"preset": "stripe"}), "the sender who shows it"),
        (json!({"preset": "standard-webhooks", "secret": "whsec_"}), "no secret of this sender"),
    ] {
        let refused = problem(put(&tag, body).await, StatusCode::BAD_REQUEST, "invalid").await;
        assert!(refused["detail"].as_str().unwrap().contains(says), "{refused}");
    }
    let replaced = answered(put(&tag, github).await, StatusCode::OK).await;
    assert!(!replaced["secret"].is_null());
    assert_eq!(server.get(&path).await["scheme"], json!({"preset": "github"}));
    problem(server.deliver(&new).body("{}").send().await.unwrap(), StatusCode::UNAUTHORIZED, "not_authentic").await;
}
