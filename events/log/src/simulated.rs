//! A ledger in memory, for tests alone: the same promises as on a database, at the mercy of a [`Weather`].
//!
//! Appends are judged by the very code that judges them for the databases. Between request and answer the weather says
//! how long each way takes, whether the request arrives, and whether the answer comes back. An append is **committed**
//! first and **durable** later, as on PostgreSQL with several writers: in between only [`Log::load_stream`] shows it, and
//! a crash of the store loses it. What tailers hear may come late, and never out of order.
//!
//! [`Log::load_stream`]: crate::Log::load_stream

mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use midwatch_events::{Micros, Recorded, StreamName};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::{
    append::{Append, AppendError, Appended, Submitted},
    judge::Prepared,
    log::{Filter, LogError, Open},
    memory::Memory,
    metrics::Counters,
    writer::{check, raise, unavailable},
};
pub(crate) use state::State;
use state::{Flushed, Sent, Unanswered};

/// A future that is run by whoever made the weather.
pub type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a process asks of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An append.
    Append,
    /// A read of events, keys or the head.
    Read,
    /// The store's clock.
    Time,
    /// A read of rows beside the events: projections, checkpoints, leases, blobs.
    Look,
    /// A change of rows beside the events.
    Change,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It is done and answered.
    #[default]
    Answered,
    /// It never arrives, and its sender is told that there is no connection.
    Lost,
    /// It is done; its sender is not told.
    Unanswered,
}

/// How a request fares. `None` is no time at all; a zero span lets others go first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passage {
    /// Before it arrives.
    pub there: Option<Duration>,
    /// Whether it does.
    pub fate: Fate,
    /// Between its commit and its being durable; appends only.
    pub flush: Option<Duration>,
    /// Before the answer is back.
    pub back: Option<Duration>,
}

/// Time, chance and misfortune of a simulated store. None of it may use the store itself.
pub trait Weather: fmt::Debug + Send + Sync + 'static {
    /// The store's clock, as `port` is shown it; none for the store itself.
    fn now(&self, port: Option<u32>) -> Micros;
    /// Random bytes.
    fn fill(&self, bytes: &mut [u8]);
    /// How a request of `port` fares.
    fn passage(&self, port: u32, operation: Operation) -> Passage;
    /// How late the tailer of `port` hears of a new head.
    fn news(&self, port: u32) -> Option<Duration>;
    /// Whether an append that a crash has taken back is tried again by its writer; else its caller hears "unknown".
    fn tries_again(&self, port: u32) -> bool;
    /// Comes back after `span`.
    fn pause(&self, span: Duration) -> Boxed;
    /// Lets the store's own work go on beside everything else.
    fn spawn(&self, task: Boxed);
    /// Told of each append of `port`, in order, once it is durable, with the hashes of its keys.
    fn durable(&self, port: u32, events: &[Recorded], keys: &[[u8; 32]]);
}

/// A store in memory, found by its address for as long as it is registered.
#[derive(Clone, Debug)]
pub struct Store {
    name: String,
    weather: Arc<dyn Weather>,
    state: Arc<Mutex<State>>,
}

static STORES: Mutex<BTreeMap<String, Store>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// An empty store under a name of its own in this test process.
    #[must_use]
    pub fn register(name: &str, weather: Arc<dyn Weather>) -> Self {
        let store = Self { name: name.to_owned(), weather, state: Arc::default() };
        locked(&STORES).insert(name.to_owned(), store.clone());
        store
    }

    /// Forgets the store's address.
    pub fn unregister(&self) {
        locked(&STORES).remove(&self.name);
    }

    /// The address at which the process with this number finds the store.
    #[must_use]
    pub fn url(&self, port: u32) -> String {
        format!("simulated://{}/{port}", self.name)
    }

    /// Nothing that this process has asked or asks is answered any more.
    pub fn cut(&self, port: u32) {
        self.state().dead.insert(port);
    }

    /// The store crashes: what was committed and is not durable is gone.
    pub fn crash(&self) {
        let (unanswered, memories) = self.state().crash();
        memories.iter().for_each(|memory| memory.lose());
        for Unanswered { sent, .. } in unanswered {
            if self.weather.tries_again(sent.port) {
                self.write(sent);
            } else {
                let _ = sent.reply.send(Err(AppendError::Unknown));
            }
        }
    }

    /// All rows of all projections are gone, as when their file was deleted.
    pub fn lose_projections(&self) {
        self.state().views.clear();
    }

    /// From now on what is not durable is read like what is: a fault, for those who must notice it.
    pub fn open_the_gate(&self) {
        self.state().gate_is_open = true;
    }

    /// The last event's leaf hash, chained over all that were ever durable: two runs that end with the same did the same.
    #[must_use]
    pub fn last_hash(&self) -> [u8; 32] {
        self.state().chain
    }

    fn found(url: &str) -> Result<(Self, u32), LogError> {
        let unknown = || LogError::Address(url.to_owned());
        let (name, port) =
            url.strip_prefix("simulated://").and_then(|rest| rest.split_once('/')).ok_or_else(unknown)?;
        let store = locked(&STORES).get(name).cloned().ok_or_else(unknown)?;
        Ok((store, port.parse().map_err(|_| unknown())?))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Puts an append behind those that its process has sent before. On its way it needs its sender no more: who dies
    /// meanwhile has still sent it; only who was cut off before sends nothing.
    fn send(&self, sent: Sent, there: Option<Duration>) {
        let port = sent.port;
        let first = {
            let mut state = self.state();
            if state.dead.contains(&port) {
                return;
            }
            let under_way = state.under_way.entry(port).or_default();
            under_way.push_back((sent, there));
            under_way.len() == 1
        };
        match (first, there) {
            (false, _) => {}
            (true, None) => self.arrive(port),
            (true, Some(span)) => self.arrive_after(port, span),
        }
    }

    fn arrive_after(&self, port: u32, span: Duration) {
        let store = self.clone();
        self.weather.spawn(Box::pin(async move {
            store.weather.pause(span).await;
            store.arrive(port);
        }));
    }

    /// The first append that is under way arrives, and those behind it that take no time.
    fn arrive(&self, port: u32) {
        loop {
            let under_way = |state: &mut State| state.under_way.entry(port).or_default().pop_front();
            let Some((sent, _)) = under_way(&mut self.state()) else { return };
            self.write(sent);
            let next = self.state().under_way.get(&port).and_then(|under_way| under_way.front()?.1);
            if let Some(span) = next {
                return self.arrive_after(port, span);
            }
        }
    }

    /// Judges one append, and writes it; its answer leaves once it is durable.
    fn write(&self, sent: Sent) {
        let flush = sent.flush;
        let now = self.weather.now(None);
        let (position, heads) = {
            let mut state = self.state();
            let position = state.write(sent, now);
            (position, if state.gate_is_open { state.heads.clone() } else { Vec::new() })
        };
        heads.iter().for_each(|(_, head)| raise(head, position));
        match flush {
            None => self.flush(position),
            Some(span) => {
                let store = self.clone();
                self.weather.spawn(Box::pin(async move {
                    store.weather.pause(span).await;
                    store.flush(position);
                }));
            }
        }
    }

    /// Makes everything up to `position` durable, lets the answers go and spreads the news.
    fn flush(&self, position: u64) {
        let (due, heads, position) = {
            let mut state = self.state();
            for Flushed { port, events, keys } in state.flush(position) {
                self.weather.durable(port, &events, &keys);
            }
            (state.answers(), state.heads.clone(), state.durable)
        };
        for Unanswered { sent, answer, .. } in due {
            // Nobody waits any more: the append stands all the same.
            let _ = sent.reply.send(answer);
        }
        for (port, head) in heads {
            match self.weather.news(port) {
                None => raise(&head, position),
                Some(span) => {
                    let weather = Arc::clone(&self.weather);
                    self.weather.spawn(Box::pin(async move {
                        weather.pause(span).await;
                        raise(&head, position);
                    }));
                }
            }
        }
    }
}

/// One process's way to a simulated store.
#[derive(Clone, Debug)]
pub struct SimulatedLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    port: u32,
    open: Open,
    head: watch::Sender<u64>,
    memory: Arc<Memory>,
    counters: Arc<Counters>,
    closed: AtomicBool,
}

impl SimulatedLog {
    pub(crate) async fn open(url: &str, open: Open) -> Result<Self, LogError> {
        let (store, port) = Store::found(url)?;
        let head = watch::Sender::new(0);
        let memory = Arc::new(Memory::default());
        let inner = Inner { store, port, open, head, memory, counters: Arc::default(), closed: AtomicBool::new(false) };
        let log = Self(Arc::new(inner));
        let position = log
            .ask(Operation::Read, |state| match (state.made, open) {
                (false, Open::ReadOnly) => Err(LogError::Absent(url.to_owned())),
                (_, Open::ReadOnly) => Ok(state.durable),
                (_, Open::ReadWrite) => {
                    state.made = true;
                    Ok(state.durable)
                }
            })
            .await?;
        raise(&log.0.head, position);
        let mut state = log.0.store.state();
        state.heads.push((port, log.0.head.clone()));
        state.memories.push(Arc::clone(&log.0.memory));
        drop(state);
        Ok(log)
    }

    /// The store's clock, for what is done there.
    pub(crate) fn clock(&self) -> Micros {
        self.0.store.weather.now(None)
    }

    /// One request: there, done under the store's lock, and back.
    pub(crate) async fn ask<T>(
        &self,
        operation: Operation,
        act: impl FnOnce(&mut State) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let Inner { store, port, .. } = &*self.0;
        let passage = store.weather.passage(*port, operation);
        if let Some(span) = passage.there {
            store.weather.pause(span).await;
        }
        if passage.fate == Fate::Lost {
            return Err(no_connection());
        }
        let answer = {
            let mut state = store.state();
            if state.dead.contains(port) { None } else { Some(act(&mut state)) }
        };
        let Some(answer) = answer else { return std::future::pending().await };
        if let Some(span) = passage.back {
            store.weather.pause(span).await;
        }
        match passage.fate {
            Fate::Answered => answer,
            Fate::Lost | Fate::Unanswered => Err(no_connection()),
        }
    }

    /// As [`Self::ask`], for what changes something beside the events.
    pub(crate) async fn change<T>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&mut State) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        if self.0.open == Open::ReadOnly {
            return Err(LogError::Unavailable { operation, reason: "the ledger was opened to read only".to_owned() });
        }
        self.ask(Operation::Change, act).await
    }

    pub(crate) async fn submit(&self, append: Append) -> Result<Submitted, AppendError> {
        let counters = Arc::clone(&self.0.counters);
        match self.send(append).await {
            Ok(answer) => Ok(Submitted::new(async move {
                let answer = answer.await;
                match &answer {
                    Ok(done) => counters.done(done),
                    Err(error) => counters.failed(error),
                }
                answer
            })),
            Err(error) => {
                counters.failed(&error);
                Err(error)
            }
        }
    }

    /// Gives an append its place, and what will be its answer.
    async fn send(
        &self,
        append: Append,
    ) -> Result<impl Future<Output = Result<Appended, AppendError>> + Send + use<>, AppendError> {
        let Inner { store, port, open, counters, closed, .. } = &*self.0;
        if *open == Open::ReadOnly {
            return Err(unavailable("it was opened to read only".to_owned()).into());
        }
        if closed.load(Ordering::Relaxed) {
            return Err(unavailable("the ledger was closed".to_owned()).into());
        }
        let bytes = check(&append)?;
        let Ok(prepared) = Prepared::salted(append, bytes, |salt| {
            store.weather.fill(salt);
            Ok::<_, Infallible>(())
        });
        let Passage { there, fate, flush, back } = store.weather.passage(*port, Operation::Append);
        if fate == Fate::Lost {
            if let Some(span) = there {
                store.weather.pause(span).await;
            }
            return Err(no_connection().into());
        }
        let (reply, answer) = oneshot::channel();
        let sent = Sent { port: *port, prepared, flush, counters: Arc::clone(counters), reply };
        store.send(sent, there);
        let log = self.clone();
        Ok(async move {
            let answer = answer.await.unwrap_or(Err(AppendError::Unknown));
            let Inner { store, port, head, .. } = &*log.0;
            if store.state().dead.contains(port) {
                return std::future::pending().await;
            }
            if let Some(span) = back {
                store.weather.pause(span).await;
            }
            if fate == Fate::Unanswered {
                return Err(AppendError::Unknown);
            }
            if let Ok(appended) = &answer {
                raise(head, appended.last());
            }
            answer
        })
    }

    pub(crate) async fn read_stream(
        &self,
        stream: &StreamName,
        from: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        self.ask(Operation::Read, |state| Ok(state.stream(stream, from, limit, state.shown()))).await
    }

    pub(crate) async fn load_stream(
        &self,
        stream: &StreamName,
        from: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        self.ask(Operation::Read, |state| Ok(state.stream(stream, from, limit, u64::MAX))).await
    }

    pub(crate) async fn read_stream_back(
        &self,
        stream: &StreamName,
        before: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        self.ask(Operation::Read, |state| Ok(state.stream_back(stream, before, limit))).await
    }

    pub(crate) async fn read_all(
        &self,
        after: u64,
        limit: u32,
        filter: &Filter,
    ) -> Result<(Vec<Recorded>, u64), LogError> {
        self.ask(Operation::Read, |state| Ok(state.all(after, limit, filter))).await
    }

    pub(crate) async fn read_event(&self, event_id: Uuid) -> Result<Option<Recorded>, LogError> {
        self.ask(Operation::Read, |state| Ok(state.event(event_id))).await
    }

    pub(crate) async fn head(&self) -> Result<u64, LogError> {
        self.ask(Operation::Read, |state| Ok(state.durable)).await
    }

    pub(crate) async fn store_time(&self) -> Result<Micros, LogError> {
        // The clock is read where the request arrives, and the answer is older than that.
        let weather = Arc::clone(&self.0.store.weather);
        let port = self.0.port;
        self.ask(Operation::Time, move |_| Ok(weather.now(Some(port)))).await
    }

    pub(crate) async fn find_key(&self, key_hash: &[u8; 32]) -> Result<Option<(u64, [u8; 32])>, LogError> {
        self.ask(Operation::Read, |state| Ok(state.key(key_hash))).await
    }

    pub(crate) async fn keys_between(&self, first: u64, last: u64) -> Result<Vec<(u64, [u8; 32])>, LogError> {
        self.ask(Operation::Read, |state| Ok(state.keys_between(first, last))).await
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(crate) fn known_head(&self) -> u64 {
        *self.0.head.borrow()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.0.head.subscribe()
    }

    pub(crate) async fn wait_durable(&self, position: u64, patience: Duration) -> Result<bool, LogError> {
        let mut heads = self.follow();
        if *heads.borrow_and_update() >= position || self.head().await? >= position {
            return Ok(true);
        }
        let patience = self.0.store.weather.pause(patience);
        tokio::select! {
            biased;
            waited = heads.wait_for(|head| *head >= position) => Ok(waited.is_ok()),
            () = patience => Ok(false),
        }
    }

    pub(crate) async fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.0.store.state().forget(&self.0.head, &self.0.memory);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.store.state().forget(&self.head, &self.memory);
    }
}

fn no_connection() -> LogError {
    LogError::Unavailable { operation: "ask the store", reason: "no connection".to_owned() }
}
