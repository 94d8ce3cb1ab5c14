//! The ledger in a PostgreSQL database, for any number of processes.
//!
//! One connection appends, under a row that is locked and never updated; where several processes write, a second one
//! flushes outside of that lock, and nobody reads above what is flushed (`seat.rs`, `flush.rs`). A pool reads. Other processes' appends are
//! noticed through `NOTIFY`, which is only a hint, and through a look at the head every second.

mod connect;
mod copy;
mod flush;
mod read;
mod seat;
mod session;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use midwatch_events::{Micros, Recorded, StreamName};
use sqlx::{PgPool, postgres::PgListener};
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{sleep, timeout},
};
use uuid::Uuid;

use crate::{
    append::{Append, AppendError, Expected, StreamAppend, Submitted},
    desk::Announce,
    log::{Filter, LogError, Open, Risk},
    memory::Memory,
    metrics::Counters,
    session::Session,
    writer::{Writer, raise, unavailable},
};
#[cfg(test)]
pub(crate) use connect::options;
pub(crate) use connect::{failed, without_password};
pub(crate) use flush::Flusher;
use seat::Seat;
pub(crate) use session::PostgresSession;

/// The longest time after which another process's append is seen, whatever became of its notification.
const POLL: Duration = Duration::from_secs(1);
/// Between two notifications; a burst of batches is one hint.
const HINT_PAUSE: Duration = Duration::from_millis(5);

/// A ledger in a PostgreSQL database.
#[derive(Clone, Debug)]
pub struct PostgresLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    open: Open,
    pool: PgPool,
    writer: Option<Writer>,
    hinter: Option<AbortHandle>,
    head: watch::Sender<u64>,
    memory: Arc<Memory>,
    counters: Arc<Counters>,
    tailer: OnceLock<AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tailer.get().into_iter().chain(&self.hinter).for_each(AbortHandle::abort);
    }
}

impl PostgresLog {
    pub(crate) async fn open(url: &str, open: Open) -> Result<Self, LogError> {
        let options = connect::options(url, open)?;
        let memory = Arc::new(Memory::default());
        let counters = Arc::new(Counters::default());
        let pool = connect::migrated_pool(&options, open, &memory).await?;
        let head = watch::Sender::new(look(&pool, &memory).await?);
        let (mut writer, mut hinter) = (None, None);
        if open == Open::ReadWrite {
            // Of its own: only what this process appended is hinted at, or hints would breed hints.
            let appended = watch::Sender::new(0);
            hinter = Some(tokio::spawn(hint(pool.clone(), appended.subscribe())).abort_handle());
            let announce = Announce {
                heads: vec![head.clone(), appended],
                memory: Arc::clone(&memory),
                counters: Arc::clone(&counters),
            };
            let seat = Arc::new(Seat::new().map_err(|e| unavailable(format!("no randomness: {e}")))?);
            let flusher = Flusher::new(options.clone(), Arc::clone(&seat), announce.clone());
            let session = Session::Postgres(Box::new(PostgresSession::new(options, seat)));
            writer = Some(Writer::start(session, announce, Some(flusher)));
        }
        let log = Self(Arc::new(Inner { open, pool, writer, hinter, head, memory, counters, tailer: OnceLock::new() }));
        if open == Open::ReadWrite && read::is_unflushed(log.pool()).await? {
            tokio::spawn(log.clone().take_over());
        }
        Ok(log)
    }

    /// A process ended between its commit and its flush, and nobody else may be there to move the mark: one
    /// transaction under the lock does.
    async fn take_over(self) {
        let stream = StreamName::stored("engine".to_owned());
        let looked = StreamAppend { stream, expected: Expected::Any, events: Vec::new() };
        let asked = Append { entries: vec![looked], ..Append::default() };
        let answered = async { self.submit(asked).await?.answer().await };
        if let Err(error) = answered.await {
            // The first append does the same.
            tracing::warn!(%error, "what a process left unflushed is not to be seen yet");
        }
    }

    /// How it was opened.
    pub(crate) fn mode(&self) -> Open {
        self.0.open
    }

    /// The connections for everything but appends.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    pub(crate) async fn submit(&self, append: Append) -> Result<Submitted, AppendError> {
        let read_only =
            || LogError::Unavailable { operation: "append", reason: "it was opened to read only".to_owned() };
        self.0.writer.as_ref().ok_or_else(read_only)?.submit(append).await
    }

    pub(crate) async fn read_stream(
        &self,
        stream: &StreamName,
        from: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        read::stream(&self.0.pool, stream, from, limit).await
    }

    pub(crate) async fn read_streams(
        &self,
        asked: &[(StreamName, u64)],
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        read::streams(&self.0.pool, asked, limit).await
    }

    pub(crate) async fn load_stream(
        &self,
        stream: &StreamName,
        from: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        read::load_stream(&self.0.pool, stream, from, limit).await
    }

    pub(crate) async fn read_stream_back(
        &self,
        stream: &StreamName,
        before: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        read::stream_back(&self.0.pool, stream, before, limit).await
    }

    pub(crate) async fn read_all(
        &self,
        after: u64,
        limit: u32,
        filter: &Filter,
    ) -> Result<(Vec<Recorded>, u64), LogError> {
        let (events, scanned) = read::all(&self.0.pool, after, limit, filter).await?;
        if let Some(last) = events.last() {
            self.0.memory.remember(last.position, last.leaf_hash);
        }
        Ok((events, scanned))
    }

    pub(crate) async fn read_page(&self, after: u64, limit: u32) -> Result<Vec<Recorded>, LogError> {
        copy::page(&self.0.pool, after, limit).await
    }

    pub(crate) async fn read_event(&self, event_id: Uuid) -> Result<Option<Recorded>, LogError> {
        read::event(&self.0.pool, event_id).await
    }

    pub(crate) async fn head(&self) -> Result<u64, LogError> {
        read::head(&self.0.pool).await
    }

    pub(crate) async fn store_time(&self) -> Result<Micros, LogError> {
        read::store_time(&self.0.pool).await
    }

    pub(crate) async fn find_key(&self, key_hash: &[u8; 32]) -> Result<Option<(u64, [u8; 32])>, LogError> {
        read::find_key(&self.0.pool, key_hash).await
    }

    pub(crate) async fn keys_between(&self, first: u64, last: u64) -> Result<Vec<(u64, [u8; 32])>, LogError> {
        read::keys_between(&self.0.pool, first, last).await
    }

    pub(crate) async fn repeated_event(&self, events: Vec<(u64, Uuid)>) -> Result<Option<u64>, LogError> {
        read::repeated_event(&self.0.pool, events).await
    }

    pub(crate) async fn unvacuumed(&self) -> Result<u64, LogError> {
        read::unvacuumed(&self.0.pool).await
    }

    pub(crate) async fn durability(&self) -> Result<Vec<Risk>, LogError> {
        read::durability(&self.0.pool).await
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

    fn tail(&self) -> impl Future<Output = ()> + use<> {
        tail(self.0.pool.clone(), self.0.head.clone(), Arc::clone(&self.0.memory))
    }

    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.0.tailer.get_or_init(|| tokio::spawn(self.tail()).abort_handle());
        self.0.head.subscribe()
    }

    pub(crate) async fn close(&self) {
        self.0.tailer.get().into_iter().chain(&self.0.hinter).for_each(AbortHandle::abort);
        if let Some(writer) = &self.0.writer {
            writer.close().await;
        }
        self.0.pool.close().await;
    }
}

/// Tells other processes; never on the way of an append.
async fn hint(pool: PgPool, mut appended: watch::Receiver<u64>) {
    while appended.changed().await.is_ok() {
        let position = *appended.borrow_and_update();
        if let Err(error) = read::notify(&pool, position).await {
            // The others look every second anyway.
            tracing::debug!(%error, "no hint to other processes");
        }
        sleep(HINT_PAUSE).await;
    }
}

/// Looks for other processes' appends: when a hint comes, and every second.
async fn tail(pool: PgPool, head: watch::Sender<u64>, memory: Arc<Memory>) {
    let mut listener: Option<PgListener> = None;
    loop {
        match look(&pool, &memory).await {
            Ok(position) => raise(&head, position),
            Err(error) => tracing::warn!(%error, "the ledger's tailer cannot read the head; it tries again"),
        }
        if listener.is_none() {
            listener = listen(&pool).await;
        }
        if wait_for_hint(listener.as_mut(), &head).await.is_err() {
            // The next round reads again before it listens again, and once more after.
            listener = None;
        }
    }
}

/// The head, remembered.
async fn look(pool: &PgPool, memory: &Memory) -> Result<u64, LogError> {
    let last = read::head_event(pool).await?;
    Ok(last.map_or(0, |(position, leaf_hash)| {
        memory.remember(position, leaf_hash);
        position
    }))
}

async fn listen(pool: &PgPool) -> Option<PgListener> {
    let mut listener = PgListener::connect_with(pool).await.ok()?;
    listener.listen(read::CHANNEL).await.ok()?;
    Some(listener)
}

/// Until a hint says more than is known, or the poll is due; an error when the connection is gone.
async fn wait_for_hint(listener: Option<&mut PgListener>, head: &watch::Sender<u64>) -> Result<(), ()> {
    let Some(listener) = listener else {
        sleep(POLL).await;
        return Ok(());
    };
    let news = async {
        loop {
            let hint = listener.try_recv().await.map_err(drop)?.ok_or(())?;
            // A hint of our own append, or an old one, is no reason to look.
            if hint.payload().parse().map_or(true, |position: u64| position > *head.borrow()) {
                return Ok(());
            }
        }
    };
    timeout(POLL, news).await.unwrap_or(Ok(()))
}
