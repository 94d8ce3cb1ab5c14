//! Whatever was tampered with, behind the guards, is found.

use super::support::{Backend, append, event, key, to, worded, write};
use crate::{
    Append, Expected, Log, Open,
    verify::{Verified, verify},
};

async fn filled(backend: &Backend) -> Log {
    let log = backend.open().await;
    for (at, name) in ["run-a", "run-b", "run-a", "run-c"].into_iter().enumerate() {
        let mut first = worded("run.opened", &format!("words {at}"));
        first.causation_id = Some(first.event_id);
        first.correlation_id = Some(name.to_owned());
        let entries = vec![to(name, Expected::Any, vec![first, event("run.taken")])];
        log.append(Append { entries, keys: vec![key(&at.to_string(), "x")], ..Append::default() }).await.unwrap();
    }
    log
}

pub(super) async fn a_ledger_as_written_verifies(backend: Backend) {
    let log = backend.open().await;
    assert_eq!(verify(&log).await.unwrap(), Verified { events: 0, first_bad: None });
    write(&log, "run-z", 1_000).await;
    let log = filled(&backend).await;
    write(&log, "run-z", 1_024).await;
    let reader = Log::open(&backend.url, Open::ReadOnly).await.unwrap();
    assert_eq!(verify(&reader).await.unwrap(), Verified { events: 2_032, first_bad: None });
}

pub(super) async fn erased_content_verifies(backend: Backend) {
    let log = filled(&backend).await;
    let erase = "UPDATE events SET content = NULL, salt = NULL WHERE content IS NOT NULL";
    assert_eq!(backend.sql(erase).await, Ok(4));
    assert_eq!(verify(&log).await.unwrap(), Verified { events: 8, first_bad: None });
    log.append(append(vec![to("run-a", Expected::Exact(4), vec![event("run.ended")])])).await.unwrap();
    assert_eq!(verify(&log).await.unwrap(), Verified { events: 9, first_bad: None });
}

pub(super) async fn every_kind_of_tampering_is_found(backend: Backend) {
    let log = filled(&backend).await;
    backend.drop_guards().await;
    let id = if backend.is_sqlite() { "randomblob(16)" } else { "gen_random_uuid()" };
    let (hash, blob) =
        if backend.is_sqlite() { ("randomblob(32)", "x'a161')") } else { ("sha256('x')", "'\\xa161'::bytea)") };
    let mut cases: Vec<(u64, &str, String)> = vec![
        (7, "leaf hash", "UPDATE events SET stream = 'run-q' WHERE stream = 'run-c'".into()),
        (5, "version", "UPDATE events SET version = version + 9 WHERE stream = 'run-a' AND version > 2".into()),
        (3, "leaf hash", format!("UPDATE events SET event_id = {id} WHERE position = 3")),
        (3, "leaf hash", "UPDATE events SET event_type = 'run.x' WHERE position = 3".into()),
        (3, "leaf hash", "UPDATE events SET schema = 2 WHERE position = 3".into()),
        (3, "leaf hash", "UPDATE events SET recorded_at = recorded_at + 1 WHERE position >= 3".into()),
        (4, "before the event", "UPDATE events SET recorded_at = recorded_at - 99999999 WHERE position = 4".into()),
        (3, "leaf hash", "UPDATE events SET actor = 'cli:0' WHERE position = 3".into()),
        (3, "leaf hash", "UPDATE events SET correlation_id = NULL WHERE position = 3".into()),
        (3, "leaf hash", "UPDATE events SET causation_id = NULL WHERE position = 3".into()),
        (4, "leaf hash", format!("UPDATE events SET facts = ({blob} WHERE position = 4")),
        (3, "commitment", format!("UPDATE events SET content = ({blob} WHERE position = 3")),
        (3, "commitment", "UPDATE events SET salt = substr(leaf_hash, 1, 16) WHERE position = 3".into()),
        (3, "commitment", "UPDATE events SET commitment = leaf_hash WHERE position = 3".into()),
        (3, "leaf hash", "UPDATE events SET commitment = NULL, content = NULL, salt = NULL WHERE position = 3".into()),
        (4, "leaf hash", "UPDATE events SET commitment = leaf_hash WHERE position = 4".into()),
        (3, "leaf hash", format!("UPDATE events SET leaf_hash = {hash} WHERE position = 3")),
        (4, "missing", "DELETE FROM events WHERE position = 4".into()),
        (1, "missing", "DELETE FROM events WHERE position <= 2".into()),
        (3, "leaf hash", "DELETE FROM ledger_key WHERE first_position = 3".into()),
        (3, "leaf hash", "UPDATE ledger_key SET first_position = 4 WHERE first_position = 3".into()),
        (3, "leaf hash", format!("UPDATE ledger_key SET key_hash = {hash} WHERE first_position = 3")),
        (4, "leaf hash", format!("INSERT INTO ledger_key VALUES ({hash}, {hash}, 4, 1)")),
        (9, "not there", format!("INSERT INTO ledger_key VALUES ({hash}, {hash}, 9, 1)")),
    ];
    if !backend.is_sqlite() {
        // SQLite's own index of a UNIQUE column cannot be dropped.
        backend.sql("ALTER TABLE events DROP CONSTRAINT events_event_id_key").await.unwrap();
        let twice = "UPDATE events SET event_id = (SELECT event_id FROM events WHERE position = 2) WHERE position = 6";
        cases.push((6, "earlier position", twice.into()));
    }
    let keep =
        "CREATE TABLE kept AS SELECT position, stream, version, event_id, event_type, schema, recorded_at, actor,
        correlation_id, causation_id, facts, content, salt, commitment, leaf_hash FROM events;
        CREATE TABLE kept_key AS SELECT * FROM ledger_key";
    backend.sql(keep).await.unwrap();
    for (position, word, statement) in cases {
        assert_ne!(backend.sql(&statement).await.unwrap(), 0, "{statement}");
        let verified = verify(&log).await.unwrap();
        let bad = verified.first_bad.unwrap_or_else(|| panic!("not found: {statement}"));
        assert_eq!(bad.position, position, "{statement}: {}", bad.error);
        assert!(bad.error.contains(word), "{statement}: {}", bad.error);
        assert_eq!(verified.events, position - 1, "{statement}");
        let back = "DELETE FROM events; DELETE FROM ledger_key; INSERT INTO ledger_key SELECT * FROM kept_key;
            INSERT INTO events (position, stream, version, event_id, event_type, schema, recorded_at, actor,
            correlation_id, causation_id, facts, content, salt, commitment, leaf_hash)
            SELECT * FROM kept ORDER BY position";
        backend.sql(back).await.unwrap();
        assert_eq!(verify(&log).await.unwrap(), Verified { events: 8, first_bad: None });
    }
}
