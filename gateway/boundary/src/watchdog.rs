//! Judging on threads with large stacks, watched: the limits are the guarantee, this is the net.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use crate::compiled::Compiled;
use crate::context::Context;
use crate::judgement::Judgement;
use crate::limits::{PATIENCE, STACK};

/// So many threads stuck at once, and every call is refused.
const STUCK_LIMIT: usize = 2;

type Reply = Box<dyn FnOnce(Judgement) + Send>;

/// Threads that judge calls.
///
/// A judgement that takes 50 ms is answered with a refusal and its thread replaced. While two such threads are
/// stuck every call is refused and [`Judge::healthy`] is false. Dropping it ends the threads that are not stuck;
/// calls still waiting are refused.
#[derive(Debug)]
pub struct Judge {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes workers: a call waits, or all is over.
    work: Condvar,
    /// Wakes the watchdog: a worker began, or all is over.
    began: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Call>,
    running: Vec<Running>,
    workers: usize,
    stuck: usize,
    next: u64,
    over: bool,
}

struct Call {
    compiled: Arc<Compiled>,
    context: Context,
    reply: Reply,
}

/// A call that a worker is judging. Whoever takes it out of the list answers it, so it is answered once.
struct Running {
    number: u64,
    since: Instant,
    compiled: Arc<Compiled>,
    progress: Arc<AtomicUsize>,
    reply: Reply,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the watchdog times its own threads, whatever time the calls are judged at"
)]
fn instant() -> Instant {
    Instant::now()
}

impl Shared {
    /// A panic elsewhere must not stop judging: the state is only lists and counts, right after every step.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Judge {
    /// Starts `threads` judging threads (at least one) and the one that watches them.
    ///
    /// # Errors
    /// The operating system gave no thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { state, work: Condvar::new(), began: Condvar::new() });
        let judge = Self { shared: Arc::clone(&shared) };
        for _ in 0..threads.max(1) {
            spawn_worker(&shared)?;
        }
        thread::Builder::new().name("boundary-watchdog".to_owned()).spawn(move || watch(&shared))?;
        Ok(judge)
    }

    /// Judges a call on one of the threads; `reply` is called once, on the thread that judged or watched.
    pub fn submit(&self, compiled: Arc<Compiled>, context: Context, reply: impl FnOnce(Judgement) + Send + 'static) {
        let mut state = self.shared.lock();
        if state.over || state.stuck >= STUCK_LIMIT {
            drop(state);
            reply(compiled.refusal(None, ""));
            return;
        }
        state.waiting.push_back(Call { compiled, context, reply: Box::new(reply) });
        drop(state);
        self.shared.work.notify_one();
    }

    /// Judges a call and waits for the answer.
    #[must_use]
    pub fn judge(&self, compiled: &Arc<Compiled>, context: Context) -> Judgement {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(Arc::clone(compiled), context, move |judgement| {
            // The receiver is below and waits.
            let _ = sender.send(judgement);
        });
        receiver.recv().unwrap_or_else(|_| compiled.refusal(None, ""))
    }

    /// False while so many threads are stuck that every call is refused.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.shared.lock().stuck < STUCK_LIMIT
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.over = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.shared.work.notify_all();
        self.shared.began.notify_all();
        refuse(waiting);
    }
}

fn refuse(calls: VecDeque<Call>) {
    for call in calls {
        (call.reply)(call.compiled.refusal(None, ""));
    }
}

fn spawn_worker(shared: &Arc<Shared>) -> std::io::Result<()> {
    let of_worker = Arc::clone(shared);
    let thread = thread::Builder::new().name("boundary-judge".to_owned()).stack_size(STACK);
    thread.spawn(move || work(&of_worker))?;
    shared.lock().workers += 1;
    Ok(())
}

fn work(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let call = loop {
            if let Some(call) = state.waiting.pop_front() {
                break call;
            }
            if state.over {
                return;
            }
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let Call { compiled, context, reply } = call;
        let (number, progress) = (state.next, Arc::new(AtomicUsize::new(0)));
        state.next += 1;
        let running = Running {
            number,
            since: instant(),
            compiled: Arc::clone(&compiled),
            progress: Arc::clone(&progress),
            reply,
        };
        state.running.push(running);
        drop(state);
        shared.began.notify_one();
        let judged = catch_unwind(AssertUnwindSafe(|| compiled.judge_noting(&context, &progress)));
        let at = progress.load(Ordering::Relaxed);
        let judgement = judged.unwrap_or_else(|_| compiled.refusal(Some(at), "the rule could not be judged"));
        let mut state = shared.lock();
        match state.running.iter().position(|running| running.number == number) {
            Some(index) => {
                let running = state.running.swap_remove(index);
                drop(state);
                answer(running.reply, judgement);
            }
            // The watchdog answered for us and put another thread in our place.
            None => {
                state.stuck = state.stuck.saturating_sub(1);
                return;
            }
        }
    }
}

/// A caller's reply must not take a judging thread with it.
fn answer(reply: Reply, judgement: Judgement) {
    let _ = catch_unwind(AssertUnwindSafe(|| reply(judgement)));
}

fn watch(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    loop {
        if state.over && state.running.is_empty() {
            return;
        }
        let now = instant();
        let late = state.running.iter().position(|running| now.duration_since(running.since) >= PATIENCE);
        if let Some(index) = late {
            let running = state.running.swap_remove(index);
            state.stuck += 1;
            let refused = if state.stuck >= STUCK_LIMIT { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
            drop(state);
            let at = running.progress.load(Ordering::Relaxed);
            let error = format!("the rule took longer than {} ms", PATIENCE.as_millis());
            answer(running.reply, running.compiled.refusal(Some(at), &error));
            refuse(refused);
            // Without a new thread the others go on; with none left, calls wait and their callers time out.
            let _ = spawn_worker(shared);
            state = shared.lock();
            continue;
        }
        let next = state.running.iter().map(|running| running.since + PATIENCE).min();
        state = match next {
            Some(next) => {
                let wait = next.saturating_duration_since(now);
                shared.began.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.began.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
