//! States as they were.

use midwatch_events::{
    Micros, StreamName,
    engine::{EngineContent, EngineEvent, HaltCause},
    key::Digest,
    user::{Access, UserContent, UserEvent},
};
use midwatch_events::{New, id::ProcessId};
use serde_json::json;

use super::*;
use crate::testing::{
    BOT, DELIVERY, Ledger, PROCESS, ROUTINE, RUN, TRIGGER, USER, delivery_stream, id, on_both, process, routine_stream,
    run_stream,
};

async fn at(ledger: &Ledger, stream: &StreamName, moment: &str) -> Value {
    let state = state(&ledger.log, stream, Some(moment.parse().unwrap())).await.unwrap();
    serde_json::to_value(state).unwrap()
}

fn text(n: u128) -> String {
    id::<()>(n).to_string()
}

#[tokio::test]
async fn a_routine_is_seen_before_during_and_after_its_run() {
    on_both(async |ledger| {
        ledger.story().await;
        let routine = routine_stream();
        let before = at(&ledger, &routine, "4").await;
        assert_eq!((&before["version"], &before["position"]), (&json!(1), &json!(2)));
        assert_eq!(before["state"]["schedule"], r#"{"kind":"every","minutes":60}"#);
        assert_eq!(before["state"]["next_window"], "2026-11-30T14:45:00Z");
        assert_eq!(before["state"]["target"]["live"], Value::Null);
        let waiting = at(&ledger, &routine, "5").await;
        assert_eq!(waiting["state"]["target"]["queue"][0]["delivery"], text(DELIVERY));
        let during = at(&ledger, &routine, "12").await;
        assert_eq!(during["state"]["target"]["live"], text(RUN));
        let now = state(&ledger.log, &routine, None).await.unwrap();
        assert_eq!((now.last.position, &now.state["target"]["live"]), (22, &Value::Null));
        let difference = difference(&ledger.log, &routine, Moment::Position(4), Moment::Position(12)).await.unwrap();
        let changed: Vec<_> = difference.changed.iter().map(|change| change.member.as_str()).collect();
        assert_eq!(changed, ["next_window", "target.live", "target.live_cause"]);
        assert_eq!(difference.changed[1].after, text(RUN));
        let shown = difference_text(&difference);
        assert!(shown.contains(&format!("target.live: null -> \"{}\"\n", text(RUN))), "{shown}");
        // From before it was: everything came.
        let born = super::difference(&ledger.log, &routine, Moment::Position(1), Moment::Position(2)).await.unwrap();
        assert_eq!((born.from.version, born.to.version), (0, 1));
        assert!(born.changed.iter().any(|change| change.member == "name" && change.after == "Nightly tidy"));
    })
    .await;
}

#[tokio::test]
async fn a_run_shows_the_call_that_is_under_way() {
    on_both(async |ledger| {
        ledger.story().await;
        let state = at(&ledger, &run_stream(), "14").await["state"].clone();
        assert_eq!(state["open_calls"][0]["rule"], "allow-all");
        assert_eq!((&state["turn"], &state["calls"], &state["outcome"]), (&json!(1), &json!(1), &Value::Null));
        assert_eq!(state["worker"], text(PROCESS));
        let done = at(&ledger, &run_stream(), "22").await["state"].clone();
        assert_eq!((&done["open_calls"], &done["refused"]), (&json!([]), &json!(1)));
        assert_eq!(done["outcome"], "succeeded");
        let by_time = ledger.log.read_at(14).await.unwrap().unwrap().recorded_at.to_string();
        let by_time = at(&ledger, &run_stream(), &by_time).await;
        assert!(by_time["position"].as_u64().unwrap() >= 14);
    })
    .await;
}

#[tokio::test]
async fn every_kind_of_stream_has_a_state() {
    on_both(async |ledger| {
        ledger.story().await;
        let started = EngineEvent::ProcessStarted {
            process: process(),
            version: "0.1.0".into(),
            roles: vec![],
            tzdb: "2026f".into(),
        };
        let process_stream = StreamName::process(id::<midwatch_events::id::Process>(PROCESS) as ProcessId);
        ledger.by("engine").add(&process_stream, started).write().await;
        let halted = EngineEvent::SchedulingHalted { cause: HaltCause::Person };
        let reason = EngineContent::SchedulingHalted { reason: "enough".into() };
        ledger.by("cli:0").add(&StreamName::halt(), New::with(halted, reason)).write().await;
        let invited = UserEvent::Invited { user: id(USER), role: Access::Admin };
        let name = UserContent::Invited { name: "Ada".into() };
        let link = UserEvent::LinkIssued { link: Digest([1; 32]), expires_us: Micros(0) };
        let user = StreamName::user(id(USER));
        ledger.by("cli:0").add(&user, New::with(invited, name)).add(&user, link).write().await;
        let document = midwatch_events::boundary::BoundaryEvent::Published { document: r#"{"rules":[]}"#.into() };
        ledger.by("cli:0").add(&StreamName::boundary(), document).write().await;
        let repeat = StreamName::repeat(id(BOT), &[5; 32]);
        for (stream, pointer, value) in [
            (StreamName::bot(id(BOT)), "/name", json!("ops")),
            (delivery_stream(), "/fate", json!("started")),
            (delivery_stream(), "/run", json!(text(RUN))),
            (StreamName::trigger(id(TRIGGER)), "/routine", json!(text(ROUTINE))),
            (repeat, "/crossed", json!(3)),
            (process_stream, "/running", json!(true)),
            (StreamName::halt(), "/halted", json!(true)),
            (StreamName::halt(), "/cause", json!("person")),
            (user.clone(), "/role", json!("admin")),
            (user, &format!("/links/{}", Digest([1; 32])), json!("1970-01-01T00:00:00Z")),
            (StreamName::boundary(), "/document/rules", json!([])),
        ] {
            let state = state(&ledger.log, &stream, None).await.unwrap();
            assert_eq!(state.state.pointer(pointer), Some(&value), "{stream} {pointer}");
            assert!(state_text(&state).starts_with(&format!("{stream} at version ")));
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    on_both(async |ledger| {
        ledger.set_up().await;
        let of = async |name: &str| {
            let stream = StreamName::stored(name.to_owned());
            state(&ledger.log, &stream, None).await.unwrap_err()
        };
        assert!(matches!(of("run-1").await, ReplayError::NotThere(_)));
        assert!(matches!(of("rum-1").await, ReplayError::BadRequest(_)));
        assert!(matches!(of("").await, ReplayError::BadRequest(_)));
        let early = state(&ledger.log, &routine_stream(), Some(Moment::Position(1))).await.unwrap_err();
        assert!(early.to_string().ends_with("up to position 1"), "{early}");
    })
    .await;
}
