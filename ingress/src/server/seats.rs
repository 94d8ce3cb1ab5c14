//! Room for connections, and who has to leave when there is none.
//!
//! A stranger can hold a connection for nothing: by a header or a body that never ends, or by saying nothing at all. So
//! where all seats are taken, whoever has kept us waiting longest gives way to who comes next, and a sender that has
//! something to say is heard whatever strangers do. Whose delivery is being recorded or answered never gives way.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// How long somebody may at least take for a header before they give way.
const HEADER: Duration = Duration::from_millis(100);
/// How long somebody may at least take for a body before they give way.
const BODY: Duration = Duration::from_secs(2);
/// When all seats are taken and nobody may be sent away yet, it is looked at again after this time.
const AGAIN: Duration = Duration::from_millis(10);

/// All seats of one address.
#[derive(Debug)]
pub(super) struct Seats {
    free: Arc<Semaphore>,
    taken: Mutex<BTreeMap<u64, Arc<Place>>>,
    began: Instant,
}

/// One connection's.
#[derive(Debug)]
pub(crate) struct Seat {
    place: Arc<Place>,
    seats: Arc<Seats>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Place {
    /// Milliseconds, and what it is we are waiting for since then.
    waiting: AtomicU64,
    leave: Notify,
}

/// What a connection keeps us waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Its next request.
    Header,
    /// The rest of a request.
    Body,
    /// Nothing: it is we who have to do something.
    Nothing,
}

impl Seats {
    pub(super) fn new(count: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(count));
        Arc::new(Self { free, taken: Mutex::default(), began: Instant::now() })
    }

    /// The next free seat; one is made free if it has to be.
    pub(super) async fn next(self: &Arc<Self>, number: u64) -> Seat {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            self.make_room();
            if let Ok(Ok(permit)) = tokio::time::timeout(AGAIN, Arc::clone(&self.free).acquire_owned()).await {
                break permit;
            }
        };
        let place = Arc::new(Place { waiting: AtomicU64::new(0), leave: Notify::new() });
        self.taken().insert(number, Arc::clone(&place));
        let seat = Seat { place, seats: Arc::clone(self), number, _permit: permit };
        seat.waits_for(Waiting::Header);
        seat
    }

    /// Sends away whoever has kept us waiting longest, if anybody has for long enough.
    fn make_room(&self) {
        let now = self.now();
        let taken = self.taken();
        let overdue = taken.values().filter_map(|place| {
            let word = place.waiting.load(SeqCst);
            let (since, allowed) = match word & 3 {
                1 => (word >> 2, HEADER),
                2 => (word >> 2, BODY),
                _ => return None,
            };
            let over = now.saturating_sub(since).checked_sub(millis(allowed))?;
            Some((over, place))
        });
        if let Some((_, place)) = overdue.max_by_key(|(over, _)| *over) {
            // It is asked once: until it has left, it is nobody to ask.
            place.waiting.store(0, SeqCst);
            place.leave.notify_one();
        }
    }

    fn now(&self) -> u64 {
        millis(self.began.elapsed())
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Place>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Says what this connection keeps us waiting for from now on.
    pub(crate) fn waits_for(&self, what: Waiting) {
        let kind = match what {
            Waiting::Header => 1,
            Waiting::Body => 2,
            Waiting::Nothing => 0,
        };
        self.place.waiting.store(self.seats.now() << 2 | kind, SeqCst);
    }

    /// Comes back when somebody else needs the seat.
    pub(super) async fn is_needed(&self) {
        self.place.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken().remove(&self.number);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
