//! Callers that keep appending, whatever happens to the database, and readers that write down what they are shown.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use uuid::Uuid;

use super::support::{append, event, key, to};
use crate::{
    Append, AppendError, Expected, Filter, Log,
    verify::{Verified, verify},
};

/// What was acknowledged: position by event id.
type Acknowledged = HashMap<Uuid, u64>;

pub(super) struct Load {
    stop: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Acknowledged>>,
    readers: Vec<JoinHandle<Vec<(u64, Uuid)>>>,
}

impl Load {
    /// `callers` on each of `logs`, and one reader on each of `readers`.
    pub(super) fn start(logs: &[&Log], callers: usize, readers: &[&Log]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let every = logs.iter().enumerate().flat_map(|(at, log)| (0..callers).map(move |n| (at, n, (*log).clone())));
        let callers = every.map(|(at, n, log)| tokio::spawn(call(log, format!("{at}x{n}"), Arc::clone(&stop))));
        let callers = callers.collect();
        let readers = readers.iter().map(|log| tokio::spawn(read((*log).clone(), Arc::clone(&stop)))).collect();
        Self { stop, callers, readers }
    }

    /// Ends it, and holds the ledger that `log` shows to what callers and readers were told. Gives the acknowledged.
    pub(super) async fn check(self, log: &Log) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        let mut acknowledged = Acknowledged::new();
        for caller in self.callers {
            acknowledged.extend(timeout(Duration::from_secs(60), caller).await.unwrap().unwrap());
        }
        let mut stands = HashMap::new();
        let mut after = 0;
        loop {
            let (page, scanned) = log.read_all(after, 1_000, &Filter::default()).await.unwrap();
            if page.is_empty() {
                break;
            }
            stands.extend(page.iter().map(|event| (event.event_id, event.position)));
            after = scanned;
        }
        for (id, position) in &acknowledged {
            assert_eq!(stands.get(id), Some(position), "an acknowledged append is gone, or elsewhere");
        }
        // Each caller repeats until it is told: nothing else was written, and nothing twice.
        assert_eq!(stands.len(), acknowledged.len());
        assert_eq!(verify(log).await.unwrap(), Verified { events: stands.len() as u64, first_bad: None });
        for reader in self.readers {
            let seen = timeout(Duration::from_secs(60), reader).await.unwrap().unwrap();
            for (at, (position, id)) in seen.iter().enumerate() {
                assert_eq!(*position, at as u64 + 1, "a reader skipped something, or saw it twice");
                assert_eq!(stands.get(id), Some(position), "a reader saw what is gone, or elsewhere");
            }
        }
        stands.len()
    }
}

/// Appends one event after the other, each under a key until it is known to stand.
async fn call(log: Log, name: String, stop: Arc<AtomicBool>) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let mut n = 0_u64;
    while !stop.load(Ordering::SeqCst) {
        n += 1;
        let new = event("run.taken");
        let id = new.event_id;
        let asked = Append {
            keys: vec![key(&format!("{name}/{n}"), "x")],
            ..append(vec![to(&format!("run-{name}"), Expected::Exact(n - 1), vec![new])])
        };
        loop {
            match log.append(asked.clone()).await {
                Ok(done) => {
                    assert_eq!(done.count, 1);
                    acknowledged.insert(id, done.first);
                    break;
                }
                Err(AppendError::Unknown | AppendError::Log(_)) => sleep(Duration::from_millis(20)).await,
                Err(other) => panic!("{name}/{n}: {other}"),
            }
        }
    }
    acknowledged
}

async fn read(log: Log, stop: Arc<AtomicBool>) -> Vec<(u64, Uuid)> {
    let (mut after, mut seen) = (0, Vec::new());
    let mut heads = log.follow();
    loop {
        // Asked before it reads, so that it reads once more after the last append.
        let last = stop.load(Ordering::SeqCst);
        match log.read_all(after, 64, &Filter::default()).await {
            Ok((page, _)) if page.is_empty() && last => return seen,
            Ok((page, _)) if page.is_empty() => {
                // Woken, or looks again anyway.
                let _ = timeout(Duration::from_millis(50), heads.changed()).await;
            }
            Ok((page, scanned)) => {
                seen.extend(page.iter().map(|event| (event.position, event.event_id)));
                after = scanned;
            }
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}
