//! Time, timers and tasks on one thread. Nothing here depends on the machine it runs on.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use crate::chance::Chance;

/// A task's future.
pub(crate) type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;
/// The process a task belongs to; none for the store's own.
pub(crate) type Owner = Option<u32>;

/// How exactly a sleeper is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// At its instant.
    Exactly,
    /// Not before its instant: a machine may always be late, and what only polls need not be woken while nothing can
    /// have happened.
    NotBefore,
}

/// What tasks share with whoever polls them.
#[derive(Debug)]
pub(crate) struct Stage(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    now_us: u64,
    next: u64,
    exact: BTreeMap<(u64, u64), Waker>,
    late: BTreeMap<(u64, u64), Waker>,
    spawned: Vec<(Owner, Boxed)>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inner")
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// Microseconds since the beginning; the true time, which nobody is shown.
    pub(crate) fn now_us(&self) -> u64 {
        locked(&self.0).now_us
    }

    pub(crate) fn spawn(&self, owner: Owner, task: Boxed) {
        locked(&self.0).spawned.push((owner, task));
    }

    pub(crate) fn sleep(self: &Arc<Self>, span: Duration, wakes: Wakes) -> Sleep {
        let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let at = self.now_us().saturating_add(span);
        Sleep { stage: Arc::clone(self), at, wakes, id: None }
    }

    /// The next instant at which somebody is to be woken exactly, and the next at which somebody may be.
    pub(crate) fn next_wakes(&self) -> (Option<u64>, Option<u64>) {
        let inner = locked(&self.0);
        let first = |timers: &BTreeMap<(u64, u64), Waker>| timers.keys().next().map(|(at, _)| *at);
        (first(&inner.exact), first(&inner.late))
    }

    /// Lets time pass up to `at`, and wakes all whose instant has come.
    pub(crate) fn pass(&self, at: u64) {
        let mut woken = Vec::new();
        {
            let mut inner = locked(&self.0);
            inner.now_us = inner.now_us.max(at);
            let end = (inner.now_us, u64::MAX);
            let Inner { exact, late, .. } = &mut *inner;
            for timers in [exact, late] {
                let later = timers.split_off(&end);
                woken.extend(std::mem::replace(timers, later).into_values());
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

/// See [`Stage::sleep`].
pub(crate) struct Sleep {
    stage: Arc<Stage>,
    at: u64,
    wakes: Wakes,
    id: Option<u64>,
}

impl Sleep {
    fn with_timers<T>(&self, change: impl FnOnce(&mut BTreeMap<(u64, u64), Waker>, u64) -> T) -> T {
        let mut inner = locked(&self.stage.0);
        inner.next += u64::from(self.id.is_none());
        let id = self.id.unwrap_or(inner.next);
        match self.wakes {
            Wakes::Exactly => change(&mut inner.exact, id),
            Wakes::NotBefore => change(&mut inner.late, id),
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Also a sleep of no time lets others go first, once.
        let first = self.id.is_none();
        if self.stage.now_us() >= self.at && !first {
            return Poll::Ready(());
        }
        let at = self.at;
        let id = self.with_timers(|timers, id| {
            timers.insert((at, id), context.waker().clone());
            id
        });
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.id.is_some() {
            self.with_timers(|timers, id| timers.remove(&(self.at, id)));
        }
    }
}

struct Ready {
    id: u64,
    ready: Arc<Mutex<BTreeSet<u64>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        locked(&self.ready).insert(self.id);
    }
}

struct Task {
    owner: Owner,
    future: Boxed,
    waker: Waker,
}

/// All tasks, and who of them wants to go on.
pub(crate) struct Troupe {
    stage: Arc<Stage>,
    tasks: BTreeMap<u64, Task>,
    ready: Arc<Mutex<BTreeSet<u64>>>,
    next: u64,
}

impl Troupe {
    pub(crate) fn new(stage: Arc<Stage>) -> Self {
        Self { stage, tasks: BTreeMap::new(), ready: Arc::default(), next: 0 }
    }

    fn take_in(&mut self) {
        let spawned = std::mem::take(&mut locked(&self.stage.0).spawned);
        for (owner, future) in spawned {
            self.next += 1;
            let waker = Waker::from(Arc::new(Ready { id: self.next, ready: Arc::clone(&self.ready) }));
            locked(&self.ready).insert(self.next);
            self.tasks.insert(self.next, Task { owner, future, waker });
        }
    }

    /// Polls one of the tasks that want to go on and may; whose it was. None where nobody does.
    pub(crate) fn step(&mut self, chance: &mut Chance, may: impl Fn(Owner) -> bool) -> Option<Owner> {
        self.take_in();
        let able: Vec<u64> = {
            let mut ready = locked(&self.ready);
            ready.retain(|id| self.tasks.contains_key(id));
            ready.iter().copied().filter(|id| self.tasks.get(id).is_some_and(|task| may(task.owner))).collect()
        };
        if able.is_empty() {
            return None;
        }
        let id = chance.pick(&able);
        locked(&self.ready).remove(&id);
        let task = self.tasks.get_mut(&id)?;
        let owner = task.owner;
        let waker = task.waker.clone();
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(&id);
        }
        Some(owner)
    }

    /// Drops all that a process was doing, wherever it stands.
    pub(crate) fn drop_all_of(&mut self, owner: u32) {
        self.take_in();
        drop(self.tasks.extract_if(.., |_, task| task.owner == Some(owner)).collect::<Vec<_>>());
    }
}

impl Drop for Troupe {
    fn drop(&mut self) {
        // What tasks do as they go may spawn others; they never begin.
        self.tasks.clear();
        drop(std::mem::take(&mut locked(&self.stage.0).spawned));
    }
}
