//! Forms do what they say, once, and keep what was typed.

use midwatch_engine::projector;
use midwatch_projections::triggers::Triggers;
use reqwest::StatusCode;

use super::story::{HOSTILE, Story, ended, newest};

/// Where a form led.
fn led_to(response: &reqwest::Response) -> String {
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    response.headers()["location"].to_str().unwrap().to_owned()
}

fn routine<'a>(bot: &'a str, extra: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        ("bot", bot),
        ("work", "recording"),
        ("recording", r#"{"steps":[{"tool":"computer_list_files","arguments":{}}]}"#),
        ("zone", "Europe/Berlin"),
        ("grace_s", "600"),
        ("deadline_s", "900"),
        ("max_turns", "20"),
    ];
    fields.extend(extra);
    fields
}

#[tokio::test]
async fn a_routine_is_made_changed_paused_run_and_deleted() {
    let story = Story::told().await;
    let bot = story.bot.to_string();
    let weekly = [("name", "Morning"), ("kind", "weekly"), ("days", "mon"), ("days", "wed"), ("times", "08:00")];
    let fields = routine(&bot, &[&weekly[..], &[("request", "r1")]].concat());
    let made = led_to(&story.post(&story.admin, "/routines", &fields).await);
    // Sent twice by accident it is one routine.
    assert_eq!(led_to(&story.post(&story.admin, "/routines", &fields).await), made);
    let path = made.split('?').next().unwrap().to_owned();
    let html = story.page(&made).await;
    assert!(html.contains("Mondays and Wednesdays at 08:00, Europe/Berlin"), "{html}");
    assert!(html.contains("It was created."), "{html}");

    let edit = story.page(&format!("{path}/edit")).await;
    let version = edit.split("name=\"version\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert!(edit.contains("value=\"mon\" checked") && !edit.contains("value=\"tue\" checked"), "{edit}");
    let daily = [("name", "Evening"), ("kind", "every"), ("minutes", "90"), ("version", version.as_str())];
    let saved = led_to(&story.post(&story.admin, &path, &routine(&bot, &daily)).await);
    let html = story.page(&saved).await;
    assert!(html.contains("Evening") && html.contains("Every 90 minutes"), "{html}");
    // Somebody else's change is never overwritten.
    let stale = story.post(&story.admin, &path, &routine(&bot, &daily)).await;
    assert_eq!(stale.status(), StatusCode::CONFLICT);
    let html = stale.text().await.unwrap();
    assert!(html.contains("changed meanwhile") && html.contains("value=\"Evening\""), "{html}");

    let run = led_to(&story.post(&story.admin, &format!("{path}/run"), &[]).await);
    assert!(run.starts_with("/runs/"), "{run}");
    let row = newest(&story.server).await;
    ended(&story.server, row.id).await;
    led_to(&story.post(&story.admin, &format!("{path}/pause"), &[("reason", HOSTILE)]).await);
    assert!(story.page(&path).await.contains("⟨U+202E⟩"));
    let busy = story.post(&story.admin, &format!("{path}/pause"), &[("reason", "again")]).await;
    assert_eq!(busy.status(), StatusCode::CONFLICT);
    assert!(busy.text().await.unwrap().contains("class=\"wrong\""));
    led_to(&story.post(&story.admin, &format!("{path}/resume"), &[]).await);
    led_to(&story.post(&story.admin, &format!("{path}/delete"), &[]).await);
    story.page_for(&story.admin, &path, StatusCode::NOT_FOUND).await;
}

#[tokio::test]
async fn what_was_typed_is_kept_until_it_is_right() {
    let story = Story::told().await;
    let bot = story.bot.to_string();
    for (wrong, said) in [
        (vec![("name", HOSTILE), ("kind", "weekly"), ("times", "08:00")], "at least one weekday"),
        (vec![("name", HOSTILE), ("kind", "every"), ("minutes", "soon")], "Write a whole number"),
        (vec![("name", HOSTILE), ("kind", "once"), ("at", "2001-01-01T00:00")], "has passed"),
        (vec![("name", ""), ("kind", "every"), ("minutes", "5")], "needs a name"),
        (vec![("name", HOSTILE), ("kind", "json"), ("schedule", "{")], "The schedule cannot be read"),
    ] {
        let answer = story.post(&story.admin, "/routines", &routine(&bot, &wrong)).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{wrong:?}");
        let html = answer.text().await.unwrap();
        assert!(html.contains(said), "{said}: {html}");
        assert!(html.contains("computer_list_files"), "the recording is kept: {html}");
        assert!(!html.contains("<script>"), "{html}");
        assert!(wrong[0].1.is_empty() || html.contains("gpj.\u{202e}exe"), "the name is kept: {html}");
    }
    // What is wrong stands with its field, and only there; whatever it is in stays open.
    let wrong = [("name", "x"), ("kind", "monthly"), ("month_days", "32"), ("times", "08:00")];
    let html = story.post(&story.admin, "/routines", &routine(&bot, &wrong)).await.text().await.unwrap();
    assert!(html.contains("id=\"month_days-wrong\"") && html.contains("href=\"#month_days\""), "{html}");
    assert_eq!(html.matches("aria-invalid").count(), 1, "{html}");
    let mut wrong = routine(&bot, &[("name", "x"), ("kind", "every"), ("minutes", "5")]);
    wrong.iter_mut().filter(|(name, _)| *name == "grace_s").for_each(|(_, value)| *value = "soon");
    let html = story.post(&story.admin, "/routines", &wrong).await.text().await.unwrap();
    assert!(html.contains("id=\"grace_s-wrong\"") && html.contains("<details open><summary>Late windows"), "{html}");
    let no_bot = story.post(&story.admin, "/routines", &routine("", &[("name", "x"), ("kind", "every")])).await;
    assert!(no_bot.text().await.unwrap().contains("Choose the Bot"));
}

#[tokio::test]
async fn a_preview_says_what_a_schedule_comes_to() {
    let story = Story::told().await;
    let html = story
        .page("/routines/preview?kind=weekly&days=mon&days=fri&times=08:00,17:30&zone=Europe/Berlin&work=instruction")
        .await;
    assert!(html.contains("Mondays and Fridays at 08:00 and 17:30, Europe/Berlin"), "{html}");
    assert!(html.contains("This runs about <b>4</b> times a week: <b>4</b> agent runs."), "{html}");
    assert_eq!(html.matches("<li>").count(), 6, "{html}");
    let recorded = story.page("/routines/preview?kind=every&minutes=15&zone=UTC&work=recording").await;
    assert!(recorded.contains("about <b>672</b> times a week: <b>no</b> agent runs"), "{recorded}");
    let wrong = story.page("/routines/preview?kind=weekly&days=mon&times=08:00&zone=Mars").await;
    assert!(wrong.contains("class=\"wrong\"") && wrong.contains("Mars"), "{wrong}");
    // Without a script the same stands on the form's own page.
    let page = story.page("/routines/new?kind=every&minutes=30&zone=UTC&name=Half").await;
    assert!(page.contains("about <b>336</b> times a week") && page.contains("value=\"Half\""), "{page}");
}

#[tokio::test]
async fn a_trigger_shows_its_secret_once_and_its_sample_is_confirmed() {
    let story = Story::told().await;
    let routine = story.routine.to_string();
    let fields = [("name", "Orders"), ("work", "routine"), ("routine", routine.as_str()), ("request", "t1")];
    let made = story.post(&story.admin, "/triggers", &fields).await;
    assert_eq!(made.status(), StatusCode::OK);
    assert_eq!(made.headers()["cache-control"], "no-store");
    let html = made.text().await.unwrap();
    let secret = html.split("id=\"secret\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert!(secret.starts_with("mw_") && html.contains("This is the only time it is shown."), "{html}");
    assert!(html.contains("--public-url") && html.contains("curl -sS"), "{html}");
    let again = story.post(&story.admin, "/triggers", &fields).await.text().await.unwrap();
    assert!(again.contains("was sent before") && !again.contains(&secret), "{again}");

    let path = format!("/triggers/{}", story.trigger);
    let html = story.page(&path).await;
    assert!(!html.contains("I have read it: confirm") && !html.contains("Body, as text"), "{html}");
    let html = story.post(&story.admin, &format!("{path}/sample"), &[]).await.text().await.unwrap();
    assert!(html.contains("I have read it: confirm") && html.contains("⟨U+202E⟩"), "{html}");
    assert!(!html.contains(&secret), "{html}");
    let other = [("delivery", "0198c0de-0000-7000-8000-000000000000")];
    let unread = story.post(&story.admin, &format!("{path}/confirm"), &other).await;
    assert_eq!(unread.status(), StatusCode::CONFLICT);
    let sample = story.sample.to_string();
    led_to(&story.post(&story.admin, &format!("{path}/confirm"), &[("delivery", &sample)]).await);
    let row = projector::get::<Triggers>(&story.server.engine, &story.trigger.to_string()).await.unwrap().unwrap();
    assert!(row.confirmed);
    let rotated = story.post(&story.admin, &format!("{path}/rotate"), &[]).await.text().await.unwrap();
    assert!(rotated.contains("id=\"secret\" value=\"mw_"), "{rotated}");
}

#[tokio::test]
async fn a_boundary_is_checked_before_it_is_published() {
    let story = Story::told().await;
    let broken = r#"{"rules":[{"id":"a","name":"A","verdict":"deny","when":"run.unatended"}]}"#;
    let checked = story.post(&story.admin, "/boundaries/edit", &[("document", broken)]).await.text().await.unwrap();
    assert!(checked.contains("class=\"findings\"") && checked.contains("line 1, column"), "{checked}");
    assert!(checked.contains("run.unatended"), "it is kept: {checked}");
    let refused = story.post(&story.admin, "/boundaries", &[("document", broken), ("note", "x")]).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let json = story.post(&story.admin, "/boundaries/edit", &[("document", "{")]).await.text().await.unwrap();
    assert!(json.contains("This is no JSON"), "{json}");

    let good = r#"{"rules":[{"id":"all","name":"All","verdict":"allow","when":"true"}]}"#;
    let fields = [("document", good), ("add", "no-submit")];
    let added = story.post(&story.admin, "/boundaries/edit", &fields).await.text().await.unwrap();
    assert!(added.contains("could be published") && added.contains("2 rules compile"), "{added}");
    let stale = story.post(&story.admin, "/boundaries", &[("document", good), ("version", "1")]).await;
    assert_eq!(stale.status(), StatusCode::CONFLICT);
    let fields = [("document", good), ("note", HOSTILE), ("version", "2")];
    assert_eq!(led_to(&story.post(&story.admin, "/boundaries", &fields).await), "/boundaries?done=published");
    assert!(story.page("/boundaries").await.contains("In force: version 3"));
}

#[tokio::test]
async fn scheduling_is_halted_with_a_reason_and_lifted() {
    let story = Story::told().await;
    let silent = story.post(&story.admin, "/halt", &[("reason", "")]).await;
    assert_eq!(silent.status(), StatusCode::BAD_REQUEST);
    assert!(silent.text().await.unwrap().contains("Say why"));
    assert_eq!(led_to(&story.post(&story.admin, "/halt", &[("reason", "maintenance")]).await), "/?done=halted");
    let halted = story.page("/").await;
    assert!(halted.contains("“maintenance”"), "{halted}");
    let run = story.post(&story.admin, &format!("/routines/{}/run", story.routine), &[]).await;
    assert_eq!(run.status(), StatusCode::CONFLICT);
    assert_eq!(led_to(&story.post(&story.admin, "/halt/lift", &[]).await), "/?done=lifted");
}

#[tokio::test]
async fn a_bot_is_registered_granted_and_retired() {
    let story = Story::told().await;
    let wrong = story.post(&story.admin, "/bots", &[("name", "Ops"), ("agui", "ftp://x")]).await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    assert!(wrong.text().await.unwrap().contains("value=\"ftp://x\""));
    let made = led_to(&story.post(&story.admin, "/bots", &[("name", "Ops"), ("agui", "")]).await);
    let path = made.split('?').next().unwrap().to_owned();
    assert_eq!(story.page(&path).await.matches(" checked").count(), 3);
    led_to(&story.post(&story.admin, &format!("{path}/tools"), &[("tool", "computer_read_file")]).await);
    assert_eq!(story.page(&path).await.matches(" checked").count(), 1);
    led_to(&story.post(&story.admin, &format!("{path}/retire"), &[]).await);
    assert!(story.page(&path).await.contains("retired"));
}

#[tokio::test]
async fn windows_are_shown_in_the_readers_zone_without_a_script() {
    let story = Story::told().await;
    let path = format!("/routines/{}", story.routine);
    assert!(story.page(&path).await.contains("Your time zone: <span data-reader-zone>UTC</span>"));
    let html = story.page(&format!("{path}?tz=Asia/Tokyo")).await;
    assert!(html.contains("16:00 Asia/Tokyo") || html.contains("15:00 Asia/Tokyo"), "{html}");
    let chosen = [("zone", "America/New_York"), ("back", path.as_str())];
    let answer = story.post(&story.admin, "/viewing", &chosen).await;
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.starts_with("midwatch_zone=America/New_York; Path=/"), "{cookie}");
    assert_eq!(led_to(&answer), path);
    let elsewhere = [("zone", "UTC"), ("back", "//evil.example")];
    assert_eq!(led_to(&story.post(&story.admin, "/viewing", &elsewhere).await), "/");
    let unknown = story.post(&story.admin, "/viewing", &[("zone", "Mars"), ("back", "/")]).await;
    assert_eq!(unknown.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_routines_page_says_where_the_zone_data_differs() {
    let story = Story::told().await;
    let bot = story.bot.to_string();
    let mut fields = routine(&bot, &[("name", "West"), ("kind", "weekly"), ("days", "mon"), ("times", "08:00")]);
    fields.iter_mut().filter(|(name, _)| *name == "zone").for_each(|(_, value)| *value = "America/Vancouver");
    let made = led_to(&story.post(&story.admin, "/routines", &fields).await);
    let html = story.page(&made).await;
    assert!(html.contains("America/Vancouver is at UTC-07:00 by the time-zone data in use"), "{html}");
    assert!(!story.page(&format!("/routines/{}", story.routine)).await.contains("older copy"));
}

#[tokio::test]
async fn what_did_not_run_and_why_it_is_off_is_on_the_page() {
    let story = Story::told().await;
    let html = story.page(&format!("/routines/{}", story.missed)).await;
    assert!(html.contains("Where nothing ran") && html.contains("looked at too late"), "{html}");
    let path = format!("/routines/{}", story.routine);
    led_to(&story.post(&story.admin, &format!("{path}/pause"), &[("reason", "Moving house")]).await);
    let html = story.page(&path).await;
    assert!(html.contains("Paused.") && html.contains("Moving house"), "{html}");
    assert!(html.contains("None is due while it is switched off"), "{html}");
    // Nothing is live: calling off changes nothing, and is no error.
    assert_eq!(led_to(&story.post(&story.admin, &format!("{path}/cancel"), &[]).await), path);
}

#[tokio::test]
async fn every_option_is_edited_in_the_form_and_said_on_the_page() {
    let story = Story::told().await;
    let bot = story.bot.to_string();
    let options = [
        ("name", "Careful"),
        ("kind", "every"),
        ("minutes", "5"),
        ("missed", "run_once"),
        ("within_s", "21600"),
        ("overlap", "queue_one"),
        ("max_runs", "12"),
        ("retry_times", "2"),
        ("retry_backoff_s", "30"),
    ];
    let made = led_to(&story.post(&story.admin, "/routines", &routine(&bot, &options)).await);
    let html = story.page(&made).await;
    for said in ["0 of at most 12 claimed", "up to 6 h late", "one window waits", "tried 2 times more"] {
        assert!(html.contains(said), "{said}: {html}");
    }
    let edit = story.page(&format!("{}/edit", made.split('?').next().unwrap())).await;
    for kept in ["value=\"queue_one\" checked", "value=\"run_once\" checked", "value=\"21600\"", "value=\"12\""] {
        assert!(edit.contains(kept), "{kept}: {edit}");
    }
    let mut wrong = options.to_vec();
    wrong.push(("retry_times", "2"));
    wrong.retain(|(name, _)| *name != "retry_backoff_s");
    let html = story.post(&story.admin, "/routines", &routine(&bot, &wrong)).await.text().await.unwrap();
    assert!(html.contains("id=\"retry_backoff_s-wrong\""), "{html}");
}
