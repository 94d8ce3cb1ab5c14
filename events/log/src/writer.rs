//! Group commit: one writer per process drains what waits into one transaction, and answers each caller for itself.
//!
//! Promises kept here: an answer, even a conflict, leaves after the commit it may rest on; a caller that stops waiting
//! loses and doubles nothing; a commit whose outcome is not known is looked up by event id on a new connection before
//! anything is written again.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use midwatch_events::{Recorded, StreamName};
use tokio::{
    sync::{Mutex, mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};
use uuid::Uuid;

use crate::{
    append::{Append, AppendError, Appended},
    judge::{Ground, Head, Prepared},
    log::LogError,
    session::{Fault, Session},
};

/// Events in one transaction, and in one append.
pub(crate) const BATCH_EVENTS: usize = 1_024;
/// Bytes in one transaction, and in one append.
pub(crate) const BATCH_BYTES: usize = 4 << 20;
/// Bytes of one event, its names included; what is larger goes to a blob first.
pub(crate) const EVENT_BYTES: usize = 64 << 10;
/// Bytes of a name; it has to fit into an index.
pub(crate) const NAME_BYTES: usize = 1_024;
/// How long a caller waits before it hears "unknown".
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// How long the writer tries for an append of which nothing can have been written.
const PATIENCE: Duration = Duration::from_secs(10);
/// Appends that may wait before callers have to.
const QUEUE: usize = 4_096;

/// The way to the writer.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Ask>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Ask {
    prepared: Prepared,
    asked_at: Instant,
    /// A commit that held it has failed: it may be in the ledger.
    attempted: bool,
    /// It gets a transaction of its own.
    alone: bool,
    reply: oneshot::Sender<Result<Appended, AppendError>>,
}

impl Writer {
    /// Starts the task; it tells each of `heads` how far the ledger reaches, after each commit.
    pub(crate) fn start(session: Session, heads: Vec<watch::Sender<u64>>) -> Self {
        let (queue, asks) = mpsc::channel(QUEUE);
        let mut desk = Desk { session, asks, waiting: VecDeque::new(), heads, faults: 0 };
        let task = tokio::spawn(async move { while desk.serve().await {} });
        Self { queue: Mutex::new(Some(queue)), task: Mutex::new(Some(task)) }
    }

    pub(crate) async fn append(&self, append: Append) -> Result<Appended, AppendError> {
        let bytes = check(&append)?;
        let prepared = Prepared::new(append, bytes).map_err(|e| unavailable(format!("no randomness: {e}")))?;
        let closed = || unavailable("the ledger was closed".to_owned());
        let queue = self.queue.lock().await.clone().ok_or_else(closed)?;
        let asked_at = Instant::now();
        let (reply, answer) = oneshot::channel();
        let ask = Ask { prepared, asked_at, attempted: false, alone: false, reply };
        match timeout_at(asked_at + DEADLINE, queue.send(ask)).await {
            Ok(sent) => sent.map_err(|_| closed())?,
            Err(_) => return Err(unavailable("too many appends are waiting".to_owned()).into()),
        }
        match timeout_at(asked_at + DEADLINE, answer).await {
            Ok(Ok(answer)) => answer,
            // It is with the writer, or with a commit that has not come back.
            Ok(Err(_)) | Err(_) => Err(AppendError::Unknown),
        }
    }

    /// Lets the writer finish what waits, and ends it.
    pub(crate) async fn close(&self) {
        drop(self.queue.lock().await.take());
        if let Some(task) = self.task.lock().await.take() {
            // A panic of the writer was logged where it happened.
            let _ = task.await;
        }
    }
}

fn unavailable(reason: String) -> LogError {
    LogError::Unavailable { operation: "append", reason }
}

/// Refuses, before the lock, what the ledger never takes; gives the size.
fn check(append: &Append) -> Result<usize, AppendError> {
    let invalid = |reason: String| Err(AppendError::Invalid(reason));
    if append.entries.is_empty() {
        return invalid("it names no stream".to_owned());
    }
    let mut ids = HashSet::new();
    let mut total = 0;
    for entry in &append.entries {
        check_name("a stream's name", entry.stream.as_str())?;
        for event in &entry.events {
            check_name("an event's type", &event.event_type)?;
            check_name("an actor", &event.actor)?;
            if let Some(correlation) = &event.correlation_id {
                check_name("a correlation id", correlation)?;
            }
            let names = entry.stream.as_str().len()
                + event.event_type.len()
                + event.actor.len()
                + event.correlation_id.as_ref().map_or(0, String::len);
            let size = names + event.facts.len() + event.content.as_ref().map_or(0, Vec::len);
            if size > EVENT_BYTES {
                return invalid(format!(
                    "an event has {size} bytes, more than {EVENT_BYTES}; put its body into a blob"
                ));
            }
            if !ids.insert(event.event_id) {
                return invalid(format!("two of its events have the id {}", event.event_id));
            }
            total += size;
        }
    }
    if ids.len() > BATCH_EVENTS || total > BATCH_BYTES {
        return invalid(format!(
            "it has {} events and {total} bytes, more than {BATCH_EVENTS} or {BATCH_BYTES}",
            ids.len()
        ));
    }
    if ids.is_empty() && !append.keys.is_empty() {
        return invalid("a key stands at an event, and it has none".to_owned());
    }
    let keys: HashSet<_> = append.keys.iter().map(|key| key.hash).collect();
    if keys.len() < append.keys.len() {
        return invalid("one of its keys is given twice".to_owned());
    }
    Ok(total + 32 * keys.len())
}

fn check_name(what: &str, name: &str) -> Result<(), AppendError> {
    if name.is_empty() {
        Err(AppendError::Invalid(format!("{what} is empty")))
    } else if name.contains('\0') {
        Err(AppendError::Invalid(format!("{what} holds a NUL")))
    } else if name.len() > NAME_BYTES {
        Err(AppendError::Invalid(format!("{what} has {} bytes, more than {NAME_BYTES}", name.len())))
    } else {
        Ok(())
    }
}

/// The writer's side: what waits, and the connection.
struct Desk {
    session: Session,
    asks: mpsc::Receiver<Ask>,
    waiting: VecDeque<Ask>,
    heads: Vec<watch::Sender<u64>>,
    /// Faults since the last success; the pause grows with them.
    faults: u32,
}

type Answers = Vec<Result<Appended, AppendError>>;

impl Desk {
    /// One transaction; false when there is nothing left to do for ever.
    async fn serve(&mut self) -> bool {
        if self.waiting.is_empty() {
            let Some(ask) = self.asks.recv().await else {
                self.session.drop_connection().await;
                return false;
            };
            self.waiting.push_back(ask);
        }
        let head = match self.session.begin().await {
            Ok(head) => head,
            Err(Fault::Refused(error) | Fault::Lost(error) | Fault::Unknown(error)) => {
                self.recover(error).await;
                return true;
            }
        };
        // Drained only now: whoever came while we waited for the lock is in this batch.
        let batch = self.drain();
        match self.write(head, &batch).await {
            Ok((answers, head)) => {
                self.faults = 0;
                self.heads.iter().for_each(|seen| raise(seen, head));
                for (ask, answer) in batch.into_iter().zip(answers) {
                    // Nobody waits any more: the append stands all the same.
                    let _ = ask.reply.send(answer);
                }
            }
            Err(fault) => self.put_back(batch, fault).await,
        }
        true
    }

    fn drain(&mut self) -> Vec<Ask> {
        let mut batch: Vec<Ask> = Vec::new();
        let (mut events, mut bytes) = (0, 0);
        loop {
            let next = match self.waiting.pop_front() {
                Some(ask) => ask,
                None => match self.asks.try_recv() {
                    Ok(ask) => ask,
                    Err(_) => return batch,
                },
            };
            events += next.prepared.seals.len().max(1);
            bytes += next.prepared.bytes;
            let full = events > BATCH_EVENTS || bytes > BATCH_BYTES || next.alone;
            if full && !batch.is_empty() {
                self.waiting.push_front(next);
                return batch;
            }
            let alone = next.alone;
            batch.push(next);
            if alone {
                return batch;
            }
        }
    }

    /// Judges and writes a batch under the lock that is held. Also gives the head after it.
    async fn write(&mut self, head: Head, batch: &[Ask]) -> Result<(Answers, u64), Fault> {
        let appends = || batch.iter().map(|ask| &ask.prepared.append);
        let streams: HashSet<&StreamName> =
            appends().flat_map(|append| append.entries.iter().map(|entry| &entry.stream)).collect();
        let hashes: HashSet<[u8; 32]> = appends().flat_map(|append| append.keys.iter().map(|key| key.hash)).collect();
        let versions = self.session.versions(&streams.into_iter().collect::<Vec<_>>()).await?;
        let keys = match hashes.is_empty() {
            true => HashMap::new(),
            false => self.session.keys(&hashes.into_iter().collect::<Vec<_>>()).await?,
        };
        // Event ids are looked up only where one may stand already; the index finds the rare others.
        let doubted = batch.iter().filter(|ask| ask.attempted || ask.alone);
        let ids: Vec<Uuid> = doubted.flat_map(|ask| ask.prepared.events().map(|(_, event)| event.event_id)).collect();
        let found = match ids.is_empty() {
            true => HashMap::new(),
            false => self.session.events(&ids).await?,
        };

        let mut ground = Ground::new(head, versions, keys);
        let answers = batch.iter().map(|ask| judge(&mut ground, ask, &found)).collect();
        if ground.rows.is_empty() {
            self.session.roll_back().await;
        } else {
            self.session.insert(&ground.rows, &ground.new_keys).await?;
            self.session.commit().await?;
        }
        Ok((answers, ground.head))
    }

    async fn put_back(&mut self, mut batch: Vec<Ask>, fault: Fault) {
        match fault {
            Fault::Refused(error) => {
                self.session.roll_back().await;
                // Who is alone in a batch is the only one in it.
                if let Some(ask) = batch.pop_if(|ask| ask.alone) {
                    let _ = ask.reply.send(Err(AppendError::Log(error)));
                    return;
                }
                // One of them spoils it for all: each gets a transaction of its own.
                batch.iter_mut().for_each(|ask| ask.alone = true);
                self.put_first(batch);
            }
            Fault::Lost(error) => {
                self.put_first(batch);
                self.recover(error).await;
            }
            Fault::Unknown(error) => {
                batch.iter_mut().for_each(|ask| ask.attempted = true);
                self.put_first(batch);
                self.recover(error).await;
            }
        }
    }

    fn put_first(&mut self, batch: Vec<Ask>) {
        batch.into_iter().rev().for_each(|ask| self.waiting.push_front(ask));
    }

    /// After a fault: gives up on those that waited too long, and pauses before the next connection.
    async fn recover(&mut self, error: LogError) {
        tracing::warn!(%error, faults = self.faults, "the ledger's writer lost its connection; it tries again");
        self.session.drop_connection().await;
        let now = Instant::now();
        let (late, still): (VecDeque<Ask>, VecDeque<Ask>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|ask| now - ask.asked_at > if ask.attempted { DEADLINE } else { PATIENCE });
        self.waiting = still;
        for ask in late {
            let attempted = ask.attempted;
            let answer = if attempted { AppendError::Unknown } else { unavailable(error.to_string()).into() };
            let _ = ask.reply.send(Err(answer));
        }
        sleep(Duration::from_millis(20 << self.faults.min(5))).await;
        self.faults = self.faults.saturating_add(1);
    }
}

/// Tells who follows that the ledger reaches `position`; never takes anything back.
pub(crate) fn raise(head: &watch::Sender<u64>, position: u64) {
    head.send_if_modified(|seen| {
        let more = *seen < position;
        *seen = position.max(*seen);
        more
    });
}

/// Judges one append; one that may stand already is first looked for among the events `found` by its ids.
fn judge(ground: &mut Ground, ask: &Ask, found: &HashMap<Uuid, Recorded>) -> Result<Appended, AppendError> {
    if ask.attempted
        && let Some(stands) = ask.prepared.stands_at(found, false)
    {
        return Ok(stands);
    }
    if ask.alone && ask.prepared.events().any(|(_, event)| found.contains_key(&event.event_id)) {
        // Keys and versions go first, as for any other; only then is it the id that speaks.
        return match ground.probe(&ask.prepared)? {
            Some(original) => Ok(original),
            None => ask
                .prepared
                .stands_at(found, true)
                .ok_or_else(|| AppendError::Invalid("one of its event ids is already in the ledger".to_owned())),
        };
    }
    ground.judge(&ask.prepared)
}
