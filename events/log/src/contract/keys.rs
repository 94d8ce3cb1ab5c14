//! The same request, again.

use super::support::{Backend, all, event, key, to, write};
use crate::{Append, AppendError, Appended, Expected, Log};

fn keyed(expected: Expected, keys: &[(&str, &str)]) -> Append {
    Append {
        entries: vec![to("run-a", expected, vec![event("run.opened"), event("run.taken")])],
        keys: keys.iter().map(|(part, asked)| key(part, asked)).collect(),
        ..Append::default()
    }
}

pub(super) async fn the_same_request_gets_its_original_positions(backend: Backend) {
    let log = backend.open().await;
    write(&log, "run-b", 3).await;
    let first = log.append(keyed(Expected::NoStream, &[("k", "x")])).await.unwrap();
    assert_eq!((first.first, first.count, first.duplicate), (4, 2, false));
    write(&log, "run-a", 5).await;
    for expected in [Expected::NoStream, Expected::Exact(0), Expected::Exact(99), Expected::Any] {
        // Other event ids, as a retry by another process has.
        let again = log.append(keyed(expected, &[("k", "x")])).await.unwrap();
        assert_eq!(again, Appended { duplicate: true, ..first.clone() }, "{expected:?}");
    }
    assert_eq!(log.head().await.unwrap(), 10);
    let found = log.find_key(&key("k", "x").hash).await.unwrap();
    assert_eq!(found, Some((4, key("k", "x").digest)));
    assert_eq!(log.find_key(&key("other", "x").hash).await.unwrap(), None);
}

pub(super) async fn another_request_under_the_same_key_is_refused(backend: Backend) {
    let log = backend.open().await;
    log.append(keyed(Expected::Any, &[("k", "x")])).await.unwrap();
    for keys in [&[("k", "y")][..], &[("new", "y"), ("k", "y")][..]] {
        match log.append(keyed(Expected::Any, keys)).await {
            Err(AppendError::KeyReused { key_hash, position: 1 }) => assert_eq!(key_hash, key("k", "x").hash),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(log.find_key(&key("new", "y").hash).await.unwrap(), None);
    assert_eq!(log.head().await.unwrap(), 2);
}

pub(super) async fn each_of_several_keys_stands_for_the_append(backend: Backend) {
    let log = backend.open().await;
    write(&log, "run-b", 1).await;
    let first = log.append(keyed(Expected::Any, &[("a", "x"), ("b", "y"), ("c", "z")])).await.unwrap();
    for keys in [&[("a", "x")][..], &[("c", "z"), ("b", "y")][..], &[("b", "y"), ("unknown", "x")][..]] {
        let again = log.append(keyed(Expected::NoStream, keys)).await.unwrap();
        assert_eq!(again, Appended { duplicate: true, ..first.clone() });
    }
    let mut hashes = vec![(2, key("a", "").hash), (2, key("b", "").hash), (2, key("c", "").hash)];
    hashes.sort_unstable();
    assert_eq!(log.keys_between(2, 2).await.unwrap(), hashes);
    assert_eq!(log.keys_between(3, u64::MAX).await.unwrap(), []);
    assert_eq!(log.keys_between(0, 1).await.unwrap(), []);
}

pub(super) async fn a_key_is_known_after_many_events(backend: Backend) {
    let log = backend.open().await;
    let first = log.append(keyed(Expected::Any, &[("k", "x")])).await.unwrap();
    for _ in 0..3 {
        write(&log, "run-b", 1_024).await;
    }
    log.close().await;
    let log = backend.open().await;
    let again = log.append(keyed(Expected::Any, &[("k", "x")])).await.unwrap();
    assert_eq!(again, Appended { duplicate: true, ..first });
}

pub(super) async fn a_key_is_known_within_its_own_batch(backend: Backend) {
    let log = backend.open().await;
    let tasks: Vec<_> = (0..40).map(|_| tokio::spawn(ask(log.clone(), "x"))).collect();
    let others: Vec<_> = (0..40).map(|_| tokio::spawn(ask(log.clone(), "y"))).collect();
    let (mut written, mut duplicates, mut refused) = (0, 0, 0);
    for task in tasks.into_iter().chain(others) {
        match task.await.unwrap() {
            Ok(appended) => {
                assert_eq!((appended.first, appended.count), (1, 2));
                *(if appended.duplicate { &mut duplicates } else { &mut written }) += 1;
            }
            Err(AppendError::KeyReused { position: 1, .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((written, duplicates, refused), (1, 39, 40));
    assert_eq!(all(&log).await.len(), 2);
}

async fn ask(log: Log, asked: &'static str) -> Result<Appended, AppendError> {
    log.append(keyed(Expected::Any, &[("k", asked)])).await
}
