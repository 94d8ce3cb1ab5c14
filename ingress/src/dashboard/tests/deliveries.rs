//! Deliveries on pages: reading one is permitted and recorded, its signature is checked again, many are searched and let
//! run once more, and what a trigger takes is tried before it is saved.

use midwatch_engine::{evidence::Reader, projector};
use midwatch_events::{StreamName, trigger::Intake, user::Access};
use midwatch_log::Filter;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::story::Story;
use crate::{
    senders::{self, Unsigned, find, sign},
    testing::{Hook, Server, answered, by, problem},
};

async fn readings(server: &Server) -> usize {
    let filter = Filter { event_types: vec!["user.evidence_read".to_owned()], ..Filter::default() };
    server.engine.log().read_all(0, 1_000, &filter).await.unwrap().0.len()
}

#[tokio::test]
async fn reading_what_was_sent_is_a_permission_and_is_recorded() {
    let story = Story::told().await;
    let (server, admin) = (&story.server, &story.admin);
    let path = format!("/deliveries/{}", story.sample);
    let html = story.page(&path).await;
    assert!(html.contains("Read what was posted") && !html.contains("Body, as text"), "{html}");
    assert_eq!(readings(server).await, 0);
    let html = story.post(admin, &format!("{path}/read"), &[]).await.text().await.unwrap();
    assert!(html.contains("Body, as text") && html.contains("Body, as a tree") && html.contains("title"), "{html}");
    assert_eq!(readings(server).await, 1);
    let read = server.engine.log().read_stream(&StreamName::user(admin.user), 1, 100).await.unwrap().pop().unwrap();
    let fact = format!("{:?}", read.facts::<midwatch_events::user::UserEvent>().unwrap());
    assert!(fact.contains(&story.sample.to_string()), "{fact}");

    let auditor = server.sign_in("otto", Access::Auditor).await;
    assert!(story.page_for(&auditor, &path, StatusCode::OK).await.contains("not yours to read"));
    assert_eq!(story.post(&auditor, &format!("{path}/read"), &[]).await.status(), StatusCode::FORBIDDEN);
    let otto = Reader::User(auditor.user);
    server.engine.allow_evidence(otto, true, &by(), None).await.unwrap();
    assert_eq!(story.post(&auditor, &format!("{path}/read"), &[]).await.status(), StatusCode::OK);
    server.engine.allow_evidence(Reader::User(admin.user), false, &by(), None).await.unwrap();
    assert_eq!(story.post(admin, &format!("{path}/read"), &[]).await.status(), StatusCode::FORBIDDEN);
    let body = server.browser(admin, Method::GET, &format!("/api/v1{path}/body")).send().await.unwrap();
    problem(body, StatusCode::FORBIDDEN, "forbidden").await;
    assert_eq!(readings(server).await, 2, "what was not shown was not read");
    // Another site's form, or a link, makes nobody read anything.
    let forged = story.posted(&auditor, &format!("{path}/read"), &[], "of another session").await;
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    assert_eq!(readings(server).await, 2);
}

async fn delivered(server: &Server, hook: &Hook, secret: &str, id: &str) -> String {
    let body = br#"{"n":1524831183200260097}"#;
    let url = format!("https://watch.example/hooks/{}", hook.endpoint);
    let now = server.engine.world().clock.now();
    let unsigned =
        Unsigned { secret, body, content_type: "application/json", id, event_type: Some("push"), url: &url, now };
    let out = sign(&find("github").unwrap(), &unsigned).unwrap();
    let mut request = server.plain(Method::POST, &format!("/hooks/{}", hook.endpoint)).body(out.body.clone());
    for (name, value) in &out.headers {
        request = request.header(name, value);
    }
    let sent = answered(request.send().await.unwrap(), StatusCode::ACCEPTED).await;
    projector::catch_up(&server.engine).await.unwrap();
    sent["delivery"].as_str().unwrap().to_owned()
}

async fn rotate(server: &Server, hook: &Hook, secret: &str) {
    let state = server.engine.load::<midwatch_commands::trigger::Trigger>(&StreamName::trigger(hook.id)).await.unwrap();
    let random = server.engine.world().random::<32>();
    let renewed = senders::renew(state.state.scheme.as_ref(), Some(secret), random).unwrap();
    server.engine.rotate_secret(hook.id, &renewed.secret, 60, &by(), None).await.unwrap();
}

#[tokio::test]
async fn a_signature_is_checked_again_with_the_keys_that_are_sealed_now() {
    let story = Story::told().await;
    let server = &story.server;
    let hook = server.hook_of("github", Some("It's a Secret to Everybody"), Intake::default()).await;
    let delivery = delivered(server, &hook, "It's a Secret to Everybody", "one").await;
    let verify = async || -> Value { server.post(&format!("/api/v1/deliveries/{delivery}/verify"), &json!({})).await };
    let found = verify().await;
    assert_eq!((&found["verified"], &found["key"]), (&json!(true), &json!("current")), "{found}");
    rotate(server, &hook, "another secret altogether").await;
    let found = verify().await;
    assert_eq!((&found["verified"], &found["key"]), (&json!(true), &json!("previous")), "{found}");
    let html = story.post(&story.admin, &format!("/deliveries/{delivery}/verify"), &[]).await.text().await.unwrap();
    assert!(html.contains("It verifies") && html.contains("the key before the last rotation"), "{html}");
    rotate(server, &hook, "and a third one after that").await;
    let found = verify().await;
    assert_eq!((&found["verified"], &found["key"]), (&json!(false), &json!(null)), "{found}");
    assert!(found["sentence"].as_str().unwrap().contains("another secret"), "{found}");
    assert_eq!(found["body_unchanged"], json!(true));
    // A bearer's secret is not kept, so there is nothing to check it by.
    let bearer = server.post(&format!("/api/v1/deliveries/{}/verify", story.sample), &json!({})).await;
    assert_eq!((&bearer["verified"], &bearer["body_unchanged"]), (&json!(false), &json!(true)), "{bearer}");
    assert_eq!(readings(server).await, 0, "checking shows nobody's words");
}

#[tokio::test]
async fn what_a_trigger_takes_is_tried_before_it_is_saved() {
    let story = Story::told().await;
    let path = format!("/triggers/{}/intake", story.trigger);
    let form = story.page(&path).await;
    let was = form.split("name=\"was\" value=\"").nth(1).unwrap().split('"').next().unwrap().replace("&#34;", "\"");
    let with = async |filter: &str, what: &str| {
        let fields = [
            ("was", was.as_str()),
            ("filter", filter),
            ("event_types", ""),
            ("id_pointers", "/order/id"),
            ("when_busy", "coalesce"),
            ("queue_max", "7"),
            ("queue_age_s", "3600"),
            ("per_minute_max", "60"),
            ("kept_days", "30"),
            ("body_bytes_max", "1000000"),
            ("duplicate_window_s", "600"),
            ("do", what),
        ];
        story.post(&story.admin, &path, &fields).await
    };
    let tried = with("has(body.title)", "preview").await.text().await.unwrap();
    assert!(tried.contains("1 would pass, 0 would not, 0 would be held"), "{tried}");
    let wrong = with("body.", "save").await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    let html = wrong.text().await.unwrap();
    assert!(html.contains("The filter, line 1") && html.contains("/order/id"), "{html}");
    let saved = with("has(body.title)", "save").await;
    assert_eq!(saved.status(), StatusCode::SEE_OTHER);
    let page = story.page(&format!("/triggers/{}", story.trigger)).await;
    for said in
        ["has(body.title)", "the newest delivery alone waits", "at most 60 a minute", "for 30 days", "/order/id"]
    {
        assert!(page.contains(said), "{said}: {page}");
    }
    let stale = with("true", "save").await;
    assert_eq!(stale.status(), StatusCode::CONFLICT);
}

#[tokio::test]
async fn many_are_counted_let_run_and_stopped() {
    let story = Story::told().await;
    let trigger = story.trigger.to_string();
    let listed = story.page(&format!("/deliveries?trigger={trigger}&status=captured")).await;
    assert!(listed.contains(&story.sample.to_string()) && listed.contains("/redeliveries/plan?trigger="), "{listed}");
    let other = story.page("/deliveries?sender_id=nobody").await;
    assert!(other.contains("No delivery matches"), "{other}");
    assert!(story.page("/deliveries?since=yesterday").await.contains("write it as 2026-12-01T08:00:00Z"));
    let planned = story.page(&format!("/redeliveries/plan?trigger={trigger}&status=captured")).await;
    assert!(planned.contains("<strong>1 delivery</strong>"), "{planned}");
    let through = planned.split("name=\"through\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let fields = [("trigger", trigger.as_str()), ("status", "captured"), ("count", "9"), ("through", through.as_str())];
    let other = story.post(&story.admin, "/redeliveries", &fields).await;
    assert_eq!(other.status(), StatusCode::BAD_REQUEST, "another count than is there");
    let fields = [("trigger", trigger.as_str()), ("status", "captured"), ("count", "1"), ("through", through.as_str())];
    assert_eq!(story.post(&story.admin, "/redeliveries", &fields).await.status(), StatusCode::SEE_OTHER);
    let html = story.page("/redeliveries").await;
    assert!(html.contains("goes on") && html.contains("0 let run, 0 left out, of 1"), "{html}");
    let cancel = html.split("action=\"").find(|part| part.starts_with("/redeliveries/")).unwrap();
    let cancel = cancel.split('"').next().unwrap().to_owned();
    assert_eq!(story.post(&story.admin, &cancel, &[]).await.status(), StatusCode::SEE_OTHER);
    assert!(story.page("/redeliveries").await.contains("stopped"));
    let again = format!("/deliveries/{}/redeliver", story.sample);
    assert_eq!(story.post(&story.admin, &again, &[]).await.status(), StatusCode::SEE_OTHER);
}
