//! Appends that are submitted on what others before them are still to make.

use tokio::task::JoinSet;

use super::support::{Backend, all, append, event, one, stream, to, write};
use crate::{Append, AppendError, Expected, Log, NewEvent, Submitted};

fn after(last: &NewEvent, version: u64, events: Vec<NewEvent>) -> Append {
    append(vec![to("run-a", Expected::After { version, event_id: last.event_id }, events)])
}

/// A chain of so many appends of one event on a stream at `version`, all submitted before any is answered.
async fn chain(log: &Log, version: u64, length: u64) -> Vec<Submitted> {
    let mut last = event("run.opened");
    let first = append(vec![to("run-a", Expected::Exact(version), vec![last.clone()])]);
    let mut submitted = vec![log.submit(first).await.unwrap()];
    for n in 1..length {
        let next = event("run.opened");
        submitted.push(log.submit(after(&last, version + n, vec![next.clone()])).await.unwrap());
        last = next;
    }
    submitted
}

pub(super) async fn a_chain_stands_in_the_order_it_was_submitted(backend: Backend) {
    let log = backend.open().await;
    // More than one transaction takes.
    for (n, submitted) in chain(&log, 0, 1_500).await.into_iter().enumerate() {
        assert_eq!(submitted.answer().await.unwrap().first, n as u64 + 1);
    }
    assert!(all(&log).await.iter().all(|event| event.version == event.position));
}

pub(super) async fn what_follows_an_append_that_was_not_made_is_not_made(backend: Backend) {
    let (log, other) = (backend.open().await, backend.open().await);
    write(&log, "run-a", 1).await;
    let (a, b, c) = (event("run.opened"), event("run.opened"), event("run.opened"));
    let first = append(vec![to("run-a", Expected::Exact(1), vec![a.clone()])]);
    // Another process' event takes the place of the first: the number that the second expects is right, its ground is
    // not.
    write(&other, "run-a", 1).await;
    let first = log.submit(first).await.unwrap();
    let second = log.submit(after(&a, 2, vec![b.clone()])).await.unwrap();
    let third = log.submit(after(&b, 3, vec![c])).await.unwrap();
    for submitted in [first, second, third] {
        assert!(matches!(submitted.answer().await, Err(AppendError::Conflict { actual: 2, .. })));
    }
    // Nor in another transaction, nor after an event of another stream, nor of one before the last.
    let elsewhere = event("run.opened");
    let on_b = append(vec![to("run-b", Expected::Any, vec![event("run.opened"), elsewhere.clone()])]);
    log.append(on_b).await.unwrap();
    let stream = stream("run-a");
    let events = log.read_stream(&stream, 1, 9).await.unwrap();
    let [before, last] = events.iter().map(|stored| stored.event_id).collect::<Vec<_>>().try_into().unwrap();
    for event_id in [a.event_id, elsewhere.event_id, before] {
        let asked = after(&NewEvent { event_id, ..event("run.opened") }, 2, vec![event("run.opened")]);
        assert!(matches!(log.append(asked).await, Err(AppendError::Conflict { actual: 2, .. })));
    }
    let asked = after(&NewEvent { event_id: last, ..event("run.opened") }, 2, vec![event("run.opened")]);
    assert_eq!(log.append(asked).await.unwrap().count, 1);
}

pub(super) async fn chains_of_two_processes_make_one_stream(backend: Backend) {
    let logs = [backend.open().await, backend.open().await];
    let mut callers = JoinSet::new();
    for log in logs.clone() {
        callers.spawn(async move {
            let mut stood: u64 = 0;
            for round in 0..40 {
                let version = log.version(&stream("run-a")).await.unwrap();
                let mut broken = false;
                for submitted in chain(&log, version, 1 + round % 7).await {
                    match submitted.answer().await {
                        Ok(done) => {
                            assert!(!broken, "what follows a broken link stands");
                            stood += done.count;
                        }
                        Err(AppendError::Conflict { .. }) => broken = true,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            stood
        });
    }
    let stood: u64 = callers.join_all().await.into_iter().sum();
    assert_eq!(logs[0].version(&stream("run-a")).await.unwrap(), stood);
}

pub(super) async fn who_does_not_wait_for_the_answer_has_appended_all_the_same(backend: Backend) {
    let log = backend.open().await;
    drop(log.submit(one("run-a", "run.opened")).await.unwrap());
    write(&log, "run-b", 1).await;
    assert_eq!(log.version(&stream("run-a")).await.unwrap(), 1);
}
