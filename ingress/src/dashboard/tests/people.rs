//! Who gets in, who sees what, and who may do what.

use midwatch_engine::projector;
use midwatch_events::user::Access;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::story::{Story, recording};
use crate::testing::by;

#[tokio::test]
async fn nobody_sees_a_page_without_signing_in() {
    let story = Story::told().await;
    for path in
        ["/", "/routines", "/runs", "/audit", "/triggers", "/boundaries", "/bots", "/system", "/live", "/watch/live"]
    {
        let response = story.server.plain(Method::GET, path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        let html = response.text().await.unwrap();
        assert!(html.contains("midwatch user link"), "{path}: {html}");
        // A program's token reads the API, not the pages.
        let token = story.server.admin(Method::GET, path).send().await.unwrap();
        assert_eq!(token.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn a_link_is_shown_often_and_used_once() {
    let story = Story::told().await;
    let link = story.server.engine.issue_link(Some(story.admin.user), &by()).await.unwrap().value;
    let path = format!("/sign-in/{link}");
    // What a preview of the link does, twice.
    for _ in 0..2 {
        let seen = story.server.plain(Method::GET, &path).send().await.unwrap();
        assert_eq!(seen.status(), StatusCode::OK);
        assert!(seen.headers().get("set-cookie").is_none());
        assert!(seen.text().await.unwrap().contains("<button class=\"main\">Sign in</button>"));
    }
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let post = |site: &'static str| client.post(story.server.at(&path)).header("sec-fetch-site", site).send();
    assert_eq!(post("cross-site").await.unwrap().status(), StatusCode::FORBIDDEN);
    let used = post("same-origin").await.unwrap();
    assert_eq!(used.status(), StatusCode::SEE_OTHER);
    let cookie = used.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.starts_with("midwatch_session=") && cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(cookie.contains("Path=/;") && !cookie.contains("Secure"), "{cookie}");
    let again = post("same-origin").await.unwrap();
    assert_eq!(again.status(), StatusCode::CONFLICT);
    assert!(again.headers().get("set-cookie").is_none());
    assert!(again.text().await.unwrap().contains("was used or has expired"));
    // The cookie opens the pages, until it is given up.
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let watch = story.server.plain(Method::GET, "/").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(watch.status(), StatusCode::OK);
    let out = story.post(&story.admin, "/sign-out", &[]).await;
    assert_eq!(out.status(), StatusCode::SEE_OTHER);
    assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    story.page_for(&story.admin, "/", StatusCode::UNAUTHORIZED).await;
}

#[tokio::test]
async fn a_form_needs_its_token_and_its_own_page() {
    let story = Story::told().await;
    let pause = format!("/routines/{}/pause", story.routine);
    let none = story.posted(&story.admin, &pause, &[("reason", "x")], "").await;
    assert_eq!(none.status(), StatusCode::FORBIDDEN);
    let other = story.server.sign_in("other", Access::Admin).await;
    let theirs = story.posted(&story.admin, &pause, &[("reason", "x")], &other.csrf).await;
    assert_eq!(theirs.status(), StatusCode::FORBIDDEN);
    let body = format!("reason=x&csrf={}", story.admin.csrf);
    let from_elsewhere = story
        .server
        .plain(Method::POST, &pause)
        .header("cookie", &story.admin.cookie)
        .header("sec-fetch-site", "cross-site")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body);
    assert_eq!(from_elsewhere.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    projector::catch_up(&story.server.engine).await.unwrap();
    assert!(story.page(&format!("/routines/{}", story.routine)).await.contains(">Pause<"));
    assert_eq!(story.post(&story.admin, &pause, &[("reason", "x")]).await.status(), StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn members_see_what_is_theirs() {
    let story = Story::told().await;
    let member = story.server.sign_in("Mia", Access::Member).await;
    let work = recording(&[("computer_list_files", json!({}))]);
    let weekly = json!({ "kind": "weekly", "zone": "UTC", "days": ["mon"], "times": ["08:00"] });
    let own = Story::routine(&story.server, story.bot, "Mia's own", &weekly, work, member.user, 600).await;
    projector::catch_up(&story.server.engine).await.unwrap();
    let list = story.page_for(&member, "/routines", StatusCode::OK).await;
    assert!(list.contains("Mia&#39;s own") && !list.contains("⟨U+202E⟩exe</bdi></a>"), "{list}");
    assert!(!list.contains(&story.routine.to_string()), "{list}");
    story.page_for(&member, &format!("/routines/{own}"), StatusCode::OK).await;
    for path in [format!("/routines/{}", story.routine), format!("/runs/{}", story.run)] {
        story.page_for(&member, &path, StatusCode::NOT_FOUND).await;
    }
    for path in ["/triggers", "/boundaries", "/system", "/boundaries/edit"] {
        story.page_for(&member, path, StatusCode::FORBIDDEN).await;
    }
    // A filter that names somebody else's routine opens nothing.
    let audit = story.page_for(&member, &format!("/audit?q=routine:{}", story.routine), StatusCode::OK).await;
    assert!(audit.contains("No row passes this filter."), "{audit}");
    let all = story.page_for(&member, "/audit", StatusCode::OK).await;
    assert!(all.contains("Routine created") && !all.contains("no-passwords"), "{all}");
    assert_eq!(story.post(&member, "/halt", &[("reason", "x")]).await.status(), StatusCode::FORBIDDEN);
    let theirs = format!("/routines/{}/delete", story.routine);
    assert_eq!(story.post(&member, &theirs, &[]).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn auditors_read_everything_and_change_nothing() {
    let story = Story::told().await;
    let auditor = story.server.sign_in("Ada", Access::Auditor).await;
    let run = story.page_for(&auditor, &format!("/runs/{}", story.run), StatusCode::OK).await;
    assert!(run.contains("What the rules saw") && !run.contains("What it was told"), "{run}");
    let trigger = story.page_for(&auditor, &format!("/triggers/{}", story.trigger), StatusCode::OK).await;
    assert!(trigger.contains("not yours to read") && !trigger.contains("Read what was posted"), "{trigger}");
    assert!(!trigger.contains("I have read it"), "{trigger}");
    for path in [format!("/routines/{}/run", story.routine), format!("/runs/{}/cancel", story.run)] {
        assert_eq!(story.post(&auditor, &path, &[]).await.status(), StatusCode::FORBIDDEN, "{path}");
    }
    for path in [format!("/triggers/{}/confirm", story.trigger), "/boundaries".to_owned(), "/bots".to_owned()] {
        assert_eq!(story.post(&auditor, &path, &[]).await.status(), StatusCode::FORBIDDEN, "{path}");
    }
    story.page_for(&auditor, "/routines/new", StatusCode::FORBIDDEN).await;
}
