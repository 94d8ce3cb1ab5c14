//! Whatever does not hold is named, wherever it stands.

use midwatch_events::StreamName;
use midwatch_log::{Append, Expected, Log, NewEvent, Open, StreamAppend};
use serde_json::json;

use super::*;
use crate::testing::{Ledger, new_id, on_both};

async fn verified(ledger: &Ledger) -> serde_json::Value {
    // As an auditor opens it: to read only, and without a key.
    let log = Log::open(&ledger.url, Open::ReadOnly).await.unwrap();
    let verification = verify(&log).await.unwrap();
    log.close().await;
    serde_json::to_value(verification).unwrap()
}

async fn append(ledger: &Ledger, event_type: &str, schema: u16, facts: &[u8], content: Option<&[u8]>) {
    let event = NewEvent {
        event_id: new_id(),
        event_type: event_type.to_owned(),
        schema,
        actor: "engine".to_owned(),
        correlation_id: None,
        causation_id: None,
        facts: facts.to_vec(),
        content: content.map(<[u8]>::to_vec),
    };
    let stream = StreamName::stored("run-x".to_owned());
    let entries = vec![StreamAppend { stream, expected: Expected::Any, events: vec![event] }];
    ledger.log.append(Append { entries, ..Append::default() }).await.unwrap();
}

#[tokio::test]
async fn a_record_that_holds_says_how_much_it_is() {
    on_both(async |ledger| {
        assert_eq!(verified(&ledger).await, json!({"ok": true, "events": 0}));
        ledger.story().await;
        assert_eq!(verified(&ledger).await, json!({"ok": true, "events": 22}));
        ledger.erase().await;
        assert_eq!(verified(&ledger).await, json!({"ok": true, "events": 22}));
    })
    .await;
}

#[tokio::test]
async fn a_changed_event_is_the_first_bad_one() {
    on_both(async |ledger| {
        ledger.story().await;
        ledger.drop_guards().await;
        ledger.sql("UPDATE events SET actor = 'cli:0' WHERE position = 14").await;
        let error = "its leaf hash is not that of its columns and keys";
        assert_eq!(verified(&ledger).await, json!({"ok": false, "first_bad": 14, "error": error}));
        ledger.sql("DELETE FROM events WHERE position = 9").await;
        let bad = verified(&ledger).await;
        assert_eq!((&bad["first_bad"], &bad["ok"]), (&json!(9), &json!(false)));
    })
    .await;
}

#[tokio::test]
async fn bytes_that_do_not_decode_are_found_though_their_hashes_hold() {
    on_both(async |ledger| {
        ledger.story().await;
        append(&ledger, "run.turn_started", 1, &[0xa1, 0x64, b't', b'u', b'r', b'n', 0x61, b'x'], None).await;
        let bad = verified(&ledger).await;
        assert_eq!(bad["first_bad"], 23);
        assert!(bad["error"].as_str().unwrap().contains("cannot decode run.turn_started/1"), "{bad}");
    })
    .await;
    on_both(async |ledger| {
        ledger.set_up().await;
        // Whole facts beside content that is none.
        let facts = [0xa2, 0x64, b't', b'u', b'r', b'n', 1, 0x65, b'c', b'a', b'l', b'l', b's', 0];
        append(&ledger, "run.turn_finished", 1, &facts, Some(&[0xa0])).await;
        assert_eq!(verified(&ledger).await["first_bad"], 4);
        // What stands before counts first.
        ledger.drop_guards().await;
        ledger.sql("UPDATE events SET actor = 'cli:7' WHERE position = 2").await;
        assert_eq!(verified(&ledger).await["first_bad"], 2);
    })
    .await;
}

#[tokio::test]
async fn events_of_a_newer_version_are_counted() {
    on_both(async |ledger| {
        append(&ledger, "run.dreamt", 1, &[0xa0], None).await;
        append(&ledger, "run.ended", 9, &[0xa0], None).await;
        append(&ledger, "run.ended", 9, &[0xa0], None).await;
        append(&ledger, "moon.rose", 1, &[0xa0], None).await;
        let unknown = json!({"moon.rose/1": 1, "run.dreamt/1": 1, "run.ended/9": 2});
        assert_eq!(verified(&ledger).await, json!({"ok": true, "events": 4, "unknown": unknown}));
    })
    .await;
}
