//! Each page shows what is so, and nothing that somebody wrote as markup.

use midwatch_events::user::Access;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::story::{HOSTILE, Story, recording};
use crate::testing::{Server, by};

/// Every page there is, of this story.
fn paths(story: &Story) -> Vec<String> {
    let Story { bot, routine, run, trigger, sample, missed, .. } = story;
    let mut paths: Vec<String> =
        ["/", "/routines", "/routines/new", "/runs", "/runs?show=failed", "/audit", "/triggers"]
            .into_iter()
            .chain([
                "/triggers/new",
                "/boundaries",
                "/boundaries/1",
                "/boundaries/edit",
                "/bots",
                "/system",
                "/watch/live",
            ])
            .map(str::to_owned)
            .collect();
    paths.extend([
        format!("/routines/{routine}"),
        format!("/routines/{routine}/edit"),
        format!("/routines/{missed}"),
        format!("/runs/{run}"),
        format!("/triggers/{trigger}"),
        format!("/triggers/{trigger}/intake"),
        format!("/deliveries?trigger={trigger}&status=captured"),
        format!("/redeliveries/plan?trigger={trigger}"),
        "/deliveries?since=yesterday".to_owned(),
        "/redeliveries".to_owned(),
        "/notices".to_owned(),
        "/mcp-servers".to_owned(),
        format!("/deliveries/{sample}"),
        format!("/bots/{bot}"),
        format!("/audit?q=run:{run}"),
    ]);
    paths
}

#[tokio::test]
async fn every_page_renders_and_shows_no_foreign_markup() {
    let story = Story::told().await;
    for path in paths(&story) {
        let response = story.server.browser(&story.admin, Method::GET, &path).send().await.unwrap();
        let headers = response.headers().clone();
        let (status, html) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, StatusCode::OK, "{path}: {html}");
        assert_eq!(headers["content-type"], "text/html; charset=utf-8", "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
        let csp = headers["content-security-policy"].to_str().unwrap();
        assert!(csp.contains("default-src 'none'") && !csp.contains("unsafe"), "{path}: {csp}");
        assert!(!html.contains("<script>"), "{path}: {html}");
        assert!(!html.contains("alert('x')"), "{path}: {html}");
        assert!(!html.contains('\u{202e}') || is_field(&html), "{path}: {html}");
        for inline in [" style=", "<style", " onclick=", "javascript:"] {
            assert!(!html.contains(inline), "{path} has {inline}");
        }
    }
}

/// What is edited stands in its field as it is; only there may such a character be.
fn is_field(html: &str) -> bool {
    html.split('\u{202e}').skip(1).count() == html.matches("gpj.\u{202e}exe").count()
        && html.lines().filter(|line| line.contains('\u{202e}')).all(|line| {
            line.contains("<input") || line.contains("<textarea") || line.contains("\\\"") || line.contains("&#34;")
        })
}

#[tokio::test]
async fn watch_says_what_needs_somebody() {
    let story = Story::told().await;
    let html = story.page("/").await;
    for said in
        ["Windows were missed once", "1 call refused", "A sample waits to be read", "1 sign of going in circles"]
    {
        assert!(html.contains(said), "{said}: {html}");
    }
    assert!(html.contains("/audit?q=decision:refused"), "{html}");
    assert!(html.contains("Europe/Berlin"), "the next window carries its zone: {html}");
    assert!(html.contains("⟨U+202E⟩"), "what reorders text is named: {html}");
}

// As if the database's clock had been ten minutes ahead when the newest event was written.
#[tokio::test]
async fn watch_says_that_the_clock_was_set_back() {
    let server = Server::start().await;
    let admin = server.sign_in("Ada", Access::Admin).await;
    let said = "ahead of its database&#39;s clock";
    let watch = async || server.browser(&admin, Method::GET, "/").send().await.unwrap().text().await.unwrap();
    assert!(!watch().await.contains(said));
    let insert = "INSERT INTO events (position, stream, version, event_id, event_type, schema, recorded_at, actor, facts,
        leaf_hash) SELECT (SELECT max(position) + 1 FROM events), stream, version + 1, randomblob(16), event_type, schema, recorded_at + 600000000,
        actor, facts, leaf_hash FROM events WHERE event_type = 'boundary.published' ORDER BY position DESC LIMIT 1";
    server.sql(insert).await;
    let html = watch().await;
    assert!(html.contains(said), "{html}");
}

#[tokio::test]
async fn a_run_shows_each_decision_with_rule_and_inputs() {
    let story = Story::told().await;
    let html = story.page(&format!("/runs/{}", story.run)).await;
    for said in [
        "no-passwords",
        "a deny rule matched",
        "What the rules saw",
        "nobody was watching",
        "made 3×",
        "going in circles",
        "boundary version 2",
        "Run now, by a person",
    ] {
        assert!(html.contains(said), "{said}: {html}");
    }
    assert!(html.contains(&format!("/api/v1/runs/{}/timeline", story.run)), "{html}");
}

#[tokio::test]
async fn the_audit_view_filters_pages_and_says_what_it_does_not_understand() {
    let story = Story::told().await;
    let refused = story.page("/audit?q=decision:refused").await;
    assert!(refused.contains("no-passwords") && !refused.contains("Routine created"), "{refused}");
    let missed = story.page("/audit?q=outcome:missed").await;
    assert!(missed.contains("Windows missed"), "{missed}");
    let wrong = story.page("/audit?q=colour:red").await;
    assert!(wrong.contains("is no word of a filter") && wrong.contains("value=\"colour:red\""), "{wrong}");
    let unknown = story.page("/audit?q=bot:nobody").await;
    assert!(
        unknown.contains("there is no bot with the id or name") || unknown.contains("There is no bot"),
        "{unknown}"
    );
    // More rows than a page holds: the next page begins where this one ended.
    let work = recording(&[("computer_list_files", json!({}))]);
    for number in 0..60 {
        let daily = json!({ "kind": "weekly", "zone": "UTC", "days": ["mon"], "times": ["08:00"] });
        let (name, owner) = (format!("Number {number:02}"), story.admin.user);
        Story::routine(&story.server, story.bot, &name, &daily, work.clone(), owner, 600).await;
    }
    midwatch_engine::projector::catch_up(&story.server.engine).await.unwrap();
    let first = story.page("/audit?q=event:routine.created").await;
    let (_, after) = first.split_once("<a href=\"/audit?").unwrap();
    let next = first.match_indices("rel=\"next\"").next().map(|(at, _)| &first[..at]).unwrap();
    let (_, href) = next.rsplit_once("href=\"").unwrap();
    let href = href.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    assert!(!after.is_empty() && href.contains("q=event:routine.created"), "{href}");
    let second = story.page(&href).await;
    assert!(first.contains("Number 59") && !first.contains("Number 05"), "{first}");
    assert!(second.contains("Number 05") && !second.contains("Number 59"), "{second}");
}

#[tokio::test]
async fn what_is_not_there_is_a_page_too() {
    let story = Story::told().await;
    for path in ["/runs/0198c0de-0000-7000-8000-000000000000", "/routines/nonsense", "/boundaries/999", "/bots/x"] {
        let html = story.page_for(&story.admin, path, StatusCode::NOT_FOUND).await;
        assert!(html.contains("<h1>Not here</h1>"), "{path}: {html}");
    }
}

#[tokio::test]
async fn a_halt_is_seen_on_every_page() {
    let story = Story::told().await;
    story.server.engine.halt_scheduling(&by(), HOSTILE, None).await.unwrap();
    midwatch_engine::projector::catch_up(&story.server.engine).await.unwrap();
    for path in ["/", "/routines", "/system"] {
        let html = story.page(path).await;
        assert!(html.contains("Scheduling is halted.") && html.contains("Lift the halt"), "{path}: {html}");
        assert!(!html.contains("<script>"), "{html}");
    }
}

#[tokio::test]
async fn assets_have_fixed_types_and_are_revalidated() {
    let story = Story::told().await;
    for (file, kind) in [
        ("midwatch.css", "text/css; charset=utf-8"),
        ("forms.css", "text/css; charset=utf-8"),
        ("pages.css", "text/css; charset=utf-8"),
        ("midwatch.js", "text/javascript; charset=utf-8"),
        ("htmx.min.js", "text/javascript; charset=utf-8"),
        ("hx-sse.min.js", "text/javascript; charset=utf-8"),
        ("midwatch.svg", "image/svg+xml"),
    ] {
        let response = story.server.plain(Method::GET, &format!("/assets/{file}")).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{file}");
        assert_eq!(response.headers()["content-type"], kind);
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        let etag = response.headers()["etag"].clone();
        let again = story.server.plain(Method::GET, &format!("/assets/{file}")).header("if-none-match", etag);
        assert_eq!(again.send().await.unwrap().status(), StatusCode::NOT_MODIFIED, "{file}");
    }
    let none = story.server.plain(Method::GET, "/assets/..%2fmidwatch.css").send().await.unwrap();
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
}
