//! What the database itself refuses, whoever asks.

use super::support::{Backend, all, append, event, key, to, worded};
use crate::{Append, Expected, Log};

async fn filled(backend: &Backend) -> Log {
    let log = backend.open().await;
    let entries = vec![
        to("run-a", Expected::Any, vec![worded("run.opened", "words"), event("run.taken")]),
        to("run-b", Expected::Any, vec![event("run.opened")]),
    ];
    log.append(Append { entries, keys: vec![key("k", "x")], ..Append::default() }).await.unwrap();
    log
}

/// Tries each statement, and finds the ledger as it was.
async fn refuses(backend: &Backend, log: &Log, statements: &[&str]) {
    let before = all(log).await;
    for statement in statements {
        let done = backend.sql(statement).await;
        assert!(done.is_err(), "the database did it: {statement}");
    }
    assert_eq!(all(log).await, before);
}

/// An INSERT of one event, copied from the first with these values instead.
fn insert(backend: &Backend, verb: &str, position: u64, stream: &str, version: u64, id: &str) -> String {
    let id = match (id, backend.is_sqlite()) {
        ("old", _) => "event_id",
        (_, true) => "randomblob(16)",
        (_, false) => "gen_random_uuid()",
    };
    format!(
        "{verb} INTO events (position, stream, version, event_id, event_type, schema, recorded_at, actor, facts, leaf_hash)
         SELECT {position}, '{stream}', {version}, {id}, event_type, schema, recorded_at, actor, facts, leaf_hash
         FROM events WHERE position = 1"
    )
}

pub(super) async fn events_are_only_added_at_the_head(backend: Backend) {
    let log = filled(&backend).await;
    let verbs: &[&str] = if backend.is_sqlite() { &["INSERT", "INSERT OR REPLACE", "REPLACE"] } else { &["INSERT"] };
    for verb in verbs {
        let at = |position, stream, version, id| insert(&backend, verb, position, stream, version, id);
        refuses(
            &backend,
            &log,
            &[
                &at(0, "run-c", 1, "new"),
                &at(1, "run-c", 1, "new"),
                &at(3, "run-c", 1, "new"),
                &at(5, "run-c", 1, "new"),
                &at(4, "run-c", 2, "new"),
                &at(4, "run-a", 1, "new"),
                &at(4, "run-a", 4, "new"),
                &at(4, "run-c", 1, "old"),
            ],
        )
        .await;
    }
    // A hole inside of one statement.
    let second = insert(&backend, "INSERT", 6, "run-d", 1, "new");
    let (_, second) = second.split_once("leaf_hash)").unwrap();
    let hole = format!("{} UNION ALL {second}", insert(&backend, "INSERT", 4, "run-c", 1, "new"));
    refuses(&backend, &log, &[&hole]).await;
    if backend.is_sqlite() {
        // Silence is no success either.
        backend.sql(&insert(&backend, "INSERT OR IGNORE", 3, "run-c", 1, "new")).await.ok();
        assert_eq!(log.head().await.unwrap(), 3);
    }
    let next = insert(&backend, "INSERT", 4, "run-c", 1, "new");
    backend.sql(&next).await.unwrap();
    assert_eq!(log.head().await.unwrap(), 4, "the statements above fail for their values alone");
}

pub(super) async fn events_are_never_changed_or_removed(backend: Backend) {
    let log = filled(&backend).await;
    refuses(
        &backend,
        &log,
        &[
            "DELETE FROM events",
            "DELETE FROM events WHERE position = 3",
            "UPDATE events SET position = 4 WHERE position = 3",
            "UPDATE events SET stream = 'run-x'",
            "UPDATE events SET version = 9 WHERE position = 3",
            "UPDATE events SET event_type = 'run.x'",
            "UPDATE events SET schema = 2",
            "UPDATE events SET recorded_at = recorded_at + 1",
            "UPDATE events SET actor = 'cli:0'",
            "UPDATE events SET correlation_id = 'run-x'",
            "UPDATE events SET facts = content WHERE content IS NOT NULL",
            "UPDATE events SET leaf_hash = commitment WHERE commitment IS NOT NULL",
            "UPDATE events SET position = position WHERE position = 3",
        ],
    )
    .await;
    let more: &[&str] = if backend.is_sqlite() {
        &["UPDATE OR REPLACE events SET position = 1 WHERE position = 2", "REPLACE INTO events SELECT * FROM events"]
    } else {
        &[
            "TRUNCATE events",
            "TRUNCATE events CASCADE",
            "DELETE FROM events WHERE false",
            "SET session_replication_role = replica; DELETE FROM events",
            "SET session_replication_role = replica; UPDATE events SET actor = 'x'",
            "UPDATE ledger_lock SET id = 1",
            "DELETE FROM ledger_lock",
            "TRUNCATE ledger_lock",
        ]
    };
    refuses(&backend, &log, more).await;
}

pub(super) async fn keys_are_never_changed_or_removed(backend: Backend) {
    let log = filled(&backend).await;
    refuses(
        &backend,
        &log,
        &[
            "DELETE FROM ledger_key",
            "UPDATE ledger_key SET digest = key_hash",
            "UPDATE ledger_key SET first_position = 2",
            "UPDATE ledger_key SET count = 9",
            "INSERT INTO ledger_key SELECT * FROM ledger_key",
        ],
    )
    .await;
    let more = if backend.is_sqlite() {
        "REPLACE INTO ledger_key SELECT key_hash, key_hash, 2, 1 FROM ledger_key"
    } else {
        "TRUNCATE ledger_key"
    };
    refuses(&backend, &log, &[more]).await;
    assert_eq!(log.find_key(&key("k", "x").hash).await.unwrap(), Some((1, key("k", "x").digest)));
}

pub(super) async fn content_and_salt_can_be_erased_together_only(backend: Backend) {
    let log = filled(&backend).await;
    refuses(
        &backend,
        &log,
        &[
            "UPDATE events SET content = NULL WHERE position = 1",
            "UPDATE events SET salt = NULL WHERE position = 1",
            "UPDATE events SET content = NULL, salt = NULL, commitment = NULL WHERE position = 1",
            "UPDATE events SET content = NULL, salt = NULL, actor = 'cli:0' WHERE position = 1",
            "UPDATE events SET content = facts WHERE position = 1",
            "UPDATE events SET content = NULL, salt = NULL WHERE position = 2",
        ],
    )
    .await;
    let erased = backend.sql("UPDATE events SET content = NULL, salt = NULL WHERE position = 1").await;
    assert_eq!(erased, Ok(1));
    let stored = log.read_at(1).await.unwrap().unwrap();
    assert!(stored.erased() && stored.salt.is_none());
    refuses(
        &backend,
        &log,
        &[
            "UPDATE events SET content = facts, salt = substr(leaf_hash, 1, 16) WHERE position = 1",
            "UPDATE events SET content = NULL, salt = NULL WHERE position = 1",
        ],
    )
    .await;
    // An append finds its way around it.
    log.append(append(vec![to("run-a", Expected::Exact(2), vec![event("run.ended")])])).await.unwrap();
}
