//! The numbers, from a real server.

use std::collections::BTreeMap;

use midwatch_engine::{projector, routines::NewRoutine};
use midwatch_events::routine::{Limits, Work};
use midwatch_projections::View;
use reqwest::Method;

use crate::testing::{Server, by};

/// The value of each series; every line is a comment or `name{labels} value`, and every series has its type said before.
fn parsed(text: &str) -> BTreeMap<&str, f64> {
    assert!(text.ends_with('\n'));
    let name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let (mut series, mut family) = (BTreeMap::new(), "");
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let (kind, rest) = comment.split_once(' ').unwrap();
            assert!(["HELP", "TYPE"].contains(&kind), "{line}");
            family = rest.split_once(' ').unwrap().0;
            assert!(name(family), "{line}");
            continue;
        }
        let (key, value) = line.rsplit_once(' ').unwrap();
        let (found, labels) = key.split_once('{').unwrap_or((key, "}"));
        assert!(name(found) && found.starts_with(family) && !family.is_empty(), "{line}");
        for label in labels.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once('=').unwrap();
            assert!(name(label) && value.starts_with('"') && value.ends_with('"') && value.len() > 1, "{line}");
        }
        assert_eq!(series.insert(key, value.parse().unwrap()), None, "{line} stands twice");
    }
    series
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_read_without_signing_in_and_name_nobody() {
    let server = Server::start().await;
    let bot = server.engine.register_bot("Zaphod", None, &by(), None).await.unwrap();
    let schedule = r#"{"kind":"once","at":"2400-01-01T00:00:00Z"}"#;
    let work = Work { instruction: Some("Zaphod".to_owned()), recording: None };
    let (name, limits) = ("Zaphod".to_owned(), Limits::default());
    let new = NewRoutine { name, bot: bot.value, schedule: schedule.to_owned(), work, limits, owner: None };
    let routine = server.engine.create_routine(&new, &by(), None).await.unwrap().value;
    server.engine.run_now(routine, &by(), None).await.unwrap();
    server.engine.halt_scheduling(&by(), "Zaphod", None).await.unwrap();
    let head = server.engine.log().head().await.unwrap();
    projector::wait_for(&server.engine, head).await;

    let response = server.plain(Method::GET, "/metrics").send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.unwrap();
    let series = parsed(&text);
    assert_eq!(series["midwatch_scheduling_halted"], 1.0);
    assert_eq!(series["midwatch_runs_live"], 1.0);
    assert!(series["midwatch_ledger_head"] >= 1.0 && series["midwatch_ledger_events_total"] >= 1.0, "{text}");
    assert_eq!(series["midwatch_ledger_follower_lag_events{follower=\"projector\"}"], 0.0, "{text}");
    for view in View::ALL {
        let name = view.table().name;
        for of in ["lag_events", "lag_seconds", "stopped"] {
            assert_eq!(series[format!("midwatch_projection_{of}{{projection=\"{name}\"}}").as_str()], 0.0, "{text}");
        }
    }
    // No name and no id.
    assert!(!text.contains("Zaphod") && !text.contains(&bot.value.to_string()), "{text}");
    let hex = |byte: char| byte.is_ascii_hexdigit() || byte == '-';
    let longest = text.split(|byte| !hex(byte)).filter(|word| word.contains('-')).map(str::len).max();
    assert!(longest.is_none_or(|longest| longest < 32), "{text}");
}

/// How far behind the reactor is, until it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_catches_up_is_no_longer_behind() {
    let server = Server::start().await;
    let hook = server.hook().await;
    server.plain(Method::POST, &format!("/hooks/{}", hook.endpoint)).bearer_auth(&hook.secret).send().await.unwrap();
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let text = server.plain(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
        let series = parsed(&text);
        let lag = |name: &str| series[format!("midwatch_ledger_follower_lag_events{{follower=\"{name}\"}}").as_str()];
        assert!(lag("reactor") <= series["midwatch_ledger_head"], "{text}");
        if lag("reactor") == 0.0 && lag("projector") == 0.0 {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{text}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
