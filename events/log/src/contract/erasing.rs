//! Words that are erased: they are gone, and everything else stands.

use std::fs;

use midwatch_events::Recorded;

use super::support::{Backend, all, append, event, key, to, worded, write};
use crate::{
    Append, AppendError, Appended, Expected, Log,
    verify::{Verified, verify},
};

/// Four events with words, then four without.
async fn filled(backend: &Backend) -> Log {
    let log = backend.open().await;
    for at in 0..4 {
        let words = worded("run.opened", &format!("the words of number {at}"));
        log.append(append(vec![to("run-a", Expected::Any, vec![words])])).await.unwrap();
    }
    write(&log, "run-b", 4).await;
    log
}

fn erasing(positions: &[u64]) -> Append {
    let entry = to("engine", Expected::Any, vec![event("engine.content_erased")]);
    Append { erase: positions.to_vec(), ..append(vec![entry]) }
}

pub(super) async fn an_erasure_takes_content_and_salt_and_leaves_the_rest(backend: Backend) {
    let log = filled(&backend).await;
    let before = all(&log).await;
    let asked = Append { keys: vec![key("erase", "1 3")], ..erasing(&[3, 1, 3]) };
    let done = log.append(asked.clone()).await.unwrap();
    assert_eq!((done.first, done.count), (9, 1));
    let after = all(&log).await;
    for (before, after) in before.iter().zip(&after) {
        let erased = [1, 3].contains(&before.position);
        assert_eq!(after.erased(), erased, "position {}", before.position);
        let (content, salt) = if erased { (None, None) } else { (before.content.clone(), before.salt) };
        assert_eq!(*after, Recorded { content, salt, ..before.clone() });
    }
    assert_eq!(verify(&log).await.unwrap(), Verified { events: 9, first_bad: None });
    // Once more, under the same key and under another: nothing else goes.
    assert_eq!(log.append(asked).await.unwrap(), Appended { duplicate: true, ..done });
    log.append(erasing(&[1, 5])).await.unwrap();
    assert_eq!(all(&log).await[..9], after[..]);
    let metrics = log.metrics();
    assert_eq!((metrics.erased, metrics.appends["written"], metrics.appends["duplicate"]), (2, 7, 1));
}

pub(super) async fn an_erasure_that_is_not_recorded_does_not_happen(backend: Backend) {
    let log = filled(&backend).await;
    let before = all(&log).await;
    let unrecorded = Append { erase: vec![1], ..append(vec![to("engine", Expected::Any, Vec::new())]) };
    for asked in [unrecorded, erasing(&[1, 0]), erasing(&[1, 9]), erasing(&[u64::MAX]), erasing(&[1; 1_025])] {
        let refused = log.append(asked).await;
        assert!(matches!(refused, Err(AppendError::Invalid(_))), "{refused:?}");
    }
    let mut stale = erasing(&[1]);
    stale.entries[0].expected = Expected::Exact(7);
    assert!(matches!(log.append(stale).await, Err(AppendError::Conflict { .. })));
    assert_eq!(all(&log).await, before);
    log.append(erasing(&(1..=8).collect::<Vec<_>>())).await.unwrap();
    assert_eq!(all(&log).await.iter().filter(|event| event.erased()).count(), 4);
}

pub(super) async fn what_is_erased_cannot_be_read_in_the_file(backend: Backend) {
    if !backend.is_sqlite() {
        // PostgreSQL keeps a removed row's bytes until its own VACUUM.
        return;
    }
    let log = filled(&backend).await;
    let found = || {
        let both = ["", "-wal"].map(|suffix| fs::read(format!("{}{suffix}", backend.file())).unwrap_or_default());
        let has = |words: &str| both.iter().any(|bytes| bytes.windows(words.len()).any(|at| at == words.as_bytes()));
        (0..4).map(|at| has(&format!("the words of number {at}"))).collect::<Vec<_>>()
    };
    assert_eq!(found(), [true; 4]);
    log.append(erasing(&[2, 4])).await.unwrap();
    assert_eq!(found(), [true, false, true, false]);
    log.close().await;
    assert_eq!(found(), [true, false, true, false]);
}

/// What PostgreSQL keeps of an erased row is counted until it is vacuumed; SQLite overwrites it.
pub(super) async fn what_waits_for_vacuum_is_counted(backend: Backend) {
    let log = filled(&backend).await;
    log.append(erasing(&[1, 2])).await.unwrap();
    if !matches!(log, Log::Postgres(_)) {
        assert_eq!(log.unvacuumed().await.unwrap(), None);
        return;
    }
    // The server counts at the end of a transaction, at most once a second.
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
        write(&log, "run-b", 1).await;
        if log.unvacuumed().await.unwrap() == Some(2) {
            backend.sql("VACUUM events").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
            assert_eq!(log.unvacuumed().await.unwrap(), Some(0));
            return;
        }
    }
    panic!("{:?}", log.unvacuumed().await);
}
