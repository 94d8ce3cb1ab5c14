//! What a database does rarely, a simulated store does when it is told to.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{
    Log,
    contract::support::{all, one, stream},
    testing::Calm,
};

/// Appends are durable when the test says so, and answered as it says.
#[derive(Debug, Default)]
struct Moody {
    slow_flush: bool,
    tries_again: bool,
    fate: AtomicU32,
}

impl Weather for Moody {
    fn now(&self, port: Option<u32>) -> Micros {
        Calm.now(port)
    }

    fn fill(&self, bytes: &mut [u8]) {
        Calm.fill(bytes);
    }

    fn passage(&self, _port: u32, operation: Operation) -> Passage {
        let flush = self.slow_flush.then_some(Duration::from_secs(3_600));
        let fate = match (operation, self.fate.load(Ordering::Relaxed)) {
            (Operation::Append, 1) => Fate::Lost,
            (Operation::Append, 2) => Fate::Unanswered,
            _ => Fate::Answered,
        };
        Passage { flush, fate, ..Passage::default() }
    }

    fn news(&self, _port: u32) -> Option<Duration> {
        None
    }

    fn tries_again(&self, _port: u32) -> bool {
        self.tries_again
    }

    fn pause(&self, span: Duration) -> Boxed {
        Calm.pause(span)
    }

    fn spawn(&self, task: Boxed) {
        Calm.spawn(task);
    }

    fn durable(&self, _port: u32, _events: &[Recorded], _keys: &[[u8; 32]]) {}
}

async fn store(name: &str, moody: Moody) -> (Store, Arc<Moody>, Log) {
    let weather = Arc::new(moody);
    let store = Store::register(name, Arc::clone(&weather) as Arc<dyn Weather>);
    let log = Log::open(&store.url(0), Open::ReadWrite).await.unwrap();
    (store, weather, log)
}

#[tokio::test]
async fn what_is_committed_is_shown_to_those_who_decide_and_lost_by_a_crash() {
    for tries_again in [false, true] {
        let moody = Moody { slow_flush: true, tries_again, ..Moody::default() };
        let (store, _, log) = store(&format!("crash-{tries_again}"), moody).await;
        let appending = tokio::spawn({
            let log = log.clone();
            async move { log.append(one("run-a", "run.opened")).await }
        });
        let shown = async || log.load_stream(&stream("run-a"), 1, 9).await.unwrap().len();
        while shown().await == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!((all(&log).await.len(), log.head().await.unwrap()), (0, 0), "not durable");
        store.crash();
        assert_eq!((shown().await, *log.losses().borrow()), (usize::from(tries_again), 1));
        if tries_again {
            store.flush(1);
            assert_eq!(appending.await.unwrap().unwrap().first, 1);
        } else {
            assert!(matches!(appending.await.unwrap(), Err(AppendError::Unknown)));
        }
        assert_eq!(all(&log).await.len(), usize::from(tries_again));
        store.unregister();
    }
}

#[tokio::test]
async fn an_append_is_lost_or_goes_unanswered_as_the_weather_says() {
    let (store, weather, log) = store("fates", Moody::default()).await;
    weather.fate.store(1, Ordering::Relaxed);
    assert!(matches!(log.append(one("run-a", "run.opened")).await, Err(AppendError::Log(_))));
    assert_eq!(log.head().await.unwrap(), 0);
    weather.fate.store(2, Ordering::Relaxed);
    assert!(matches!(log.append(one("run-a", "run.opened")).await, Err(AppendError::Unknown)));
    assert_eq!(log.head().await.unwrap(), 1);
    store.unregister();
}

#[tokio::test]
async fn a_process_that_is_cut_off_changes_nothing_and_hears_nothing() {
    let (store, _, log) = store("cut", Moody::default()).await;
    let other = Log::open(&store.url(1), Open::ReadWrite).await.unwrap();
    store.cut(0);
    let asked = tokio::time::timeout(Duration::from_millis(50), log.append(one("run-a", "run.opened"))).await;
    assert!(asked.is_err());
    assert_eq!(other.head().await.unwrap(), 0);
    store.unregister();
}
