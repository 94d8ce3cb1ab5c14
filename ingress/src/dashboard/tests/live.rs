//! What an open page hears.

use std::time::Duration;

use midwatch_events::user::Access;
use reqwest::{Method, Response, StatusCode};
use tokio::time::timeout;

use super::story::Story;
use crate::testing::{Session, by};

const PATIENCE: Duration = Duration::from_secs(15);

async fn listening(story: &Story, session: &Session, path: &str) -> Response {
    let response = story.server.browser(session, Method::GET, path).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response
}

/// What comes until it holds `wanted`.
async fn heard(stream: &mut Response, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = timeout(PATIENCE, stream.chunk()).await.unwrap().unwrap();
        let chunk = chunk.unwrap_or_else(|| panic!("the stream ended before {wanted:?}: {text}"));
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    text
}

/// Whether the stream ends, whatever else it says before.
async fn ends(stream: &mut Response) {
    let ended = timeout(PATIENCE, async { while let Ok(Some(_)) = stream.chunk().await {} });
    ended.await.unwrap();
}

#[tokio::test]
async fn an_open_page_hears_what_is_new_until_its_session_ends() {
    let story = Story::told().await;
    let head = story.server.engine.log().head().await.unwrap();
    let mut stream = listening(&story, &story.admin, &format!("/live?since={head}")).await;
    let first = heard(&mut stream, "\n\n").await;
    assert!(first.contains(&format!("id: {head}")) && first.contains("0 live runs"), "{first}");
    assert!(!first.contains("event: newer"), "{first}");
    story.server.engine.pause_routine(story.routine, "<b>", &by(), None).await.unwrap();
    let next = heard(&mut stream, "1 newer event").await;
    assert!(next.contains("event: newer") && !next.contains("<b>\n"), "{next}");
    let session = story.server.engine.caller_by_session(story.admin.cookie.split_once('=').unwrap().1).await.unwrap();
    story.server.engine.sign_out(story.admin.user, session.unwrap().session.unwrap()).await.unwrap();
    ends(&mut stream).await;
}

#[tokio::test]
async fn what_the_rows_learn_late_is_announced_without_another_event() {
    let story = Story::told().await;
    let engine = &story.server.engine;
    let head = engine.log().head().await.unwrap();
    let mut stream = listening(&story, &story.admin, &format!("/live?since={head}")).await;
    heard(&mut stream, "\n\n").await;
    // Another process leads the projector, and is slow: the event is there, the rows do not know it.
    let other = engine.world().uuid();
    while !engine.views().lead("projector", other, 60, engine.world().clock.now()).await.unwrap() {
        engine.views().give_up("projector", engine.process().uuid()).await.unwrap();
    }
    engine.pause_routine(story.routine, "", &by(), None).await.unwrap();
    let behind = heard(&mut stream, "1 event behind").await;
    assert!(!behind.contains("event: newer"), "{behind}");
    engine.views().give_up("projector", other).await.unwrap();
    heard(&mut stream, "1 newer event").await;
}

#[tokio::test]
async fn a_page_that_connects_late_hears_what_came_before() {
    let story = Story::told().await;
    let head = story.server.engine.log().head().await.unwrap();
    story.server.engine.pause_routine(story.routine, "", &by(), None).await.unwrap();
    let mut stream = listening(&story, &story.admin, &format!("/live?since={head}")).await;
    heard(&mut stream, "1 newer event").await;
}

#[tokio::test]
async fn a_member_hears_of_their_own_only() {
    let story = Story::told().await;
    let member = story.server.sign_in("Mia", Access::Member).await;
    let head = story.server.engine.log().head().await.unwrap();
    let mut stream = listening(&story, &member, "/live?since=0").await;
    story.server.engine.pause_routine(story.routine, "", &by(), None).await.unwrap();
    let text = heard(&mut stream, &format!("id: {}", head + 1)).await;
    assert!(!text.contains("event: newer"), "{text}");
    let theirs = format!("/live?since=0&run={}", story.run);
    let hidden = story.server.browser(&member, Method::GET, &theirs).send().await.unwrap();
    assert_eq!(hidden.status(), StatusCode::NOT_FOUND);
    let mut own = listening(&story, &story.admin, &theirs).await;
    heard(&mut own, "newer steps").await;
}

#[tokio::test]
async fn a_stopping_server_ends_what_pages_hear() {
    let mut story = Story::told().await;
    let mut stream = listening(&story, &story.admin, "/live?since=0").await;
    heard(&mut stream, "\n\n").await;
    story.server.stopped().await;
    ends(&mut stream).await;
}
