//! The way to the one writer of a process: what it never takes is refused here, and every caller hears something by its
//! deadline.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use crate::{
    append::{Append, AppendError, Submitted},
    desk::{Announce, Answer, Ask, Desk},
    judge::Prepared,
    log::LogError,
    postgres::Flusher,
    session::Session,
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
/// Appends that may wait before callers have to.
const QUEUE: usize = 4_096;

/// The way to the writer.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Ask>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    announce: Announce,
}

impl Writer {
    /// Starts the task, and the flusher's where there is one.
    pub(crate) fn start(session: Session, announce: Announce, flusher: Option<Flusher>) -> Self {
        let (queue, asks) = mpsc::channel(QUEUE);
        let task = tokio::spawn(Desk::new(session, asks, announce.clone(), flusher).serve_all());
        Self { queue: Mutex::new(Some(queue)), task: Mutex::new(Some(task)), announce }
    }

    /// Puts an append behind those that were submitted before.
    pub(crate) async fn submit(&self, append: Append) -> Result<Submitted, AppendError> {
        let counters = Arc::clone(&self.announce.counters);
        match self.ask(append).await {
            Ok((answer, deadline)) => Ok(Submitted::new(async move {
                let answer = match timeout_at(deadline, answer).await {
                    Ok(Ok(answer)) => answer,
                    // It is with the writer, or with a commit that has not come back.
                    Ok(Err(_)) | Err(_) => Err(AppendError::Unknown),
                };
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

    async fn ask(&self, append: Append) -> Result<(oneshot::Receiver<Answer>, Instant), AppendError> {
        self.announce.memory.check()?;
        let bytes = check(&append)?;
        let prepared = Prepared::new(append, bytes).map_err(|e| unavailable(format!("no randomness: {e}")))?;
        let closed = || unavailable("the ledger was closed".to_owned());
        let queue = self.queue.lock().await.clone().ok_or_else(closed)?;
        let asked_at = Instant::now();
        let deadline = asked_at + DEADLINE;
        let (reply, answer) = oneshot::channel();
        let ask = Ask { prepared, asked_at, attempted: false, alone: false, reply };
        match timeout_at(deadline, queue.send(ask)).await {
            Ok(sent) => sent.map_err(|_| closed())?,
            Err(_) => return Err(unavailable("too many appends are waiting".to_owned()).into()),
        }
        Ok((answer, deadline))
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

pub(crate) fn unavailable(reason: String) -> LogError {
    LogError::Unavailable { operation: "append", reason }
}

/// Refuses, before the lock, what the ledger never takes; gives the size.
pub(crate) fn check(append: &Append) -> Result<usize, AppendError> {
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
    if ids.is_empty() && !append.erase.is_empty() {
        return invalid("an erasure is recorded by an event, and it has none".to_owned());
    }
    if append.erase.len() > BATCH_EVENTS {
        return invalid(format!("it erases {} events, more than {BATCH_EVENTS}", append.erase.len()));
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

/// Tells who follows that the ledger reaches `position`; never takes anything back.
pub(crate) fn raise(head: &watch::Sender<u64>, position: u64) {
    head.send_if_modified(|seen| {
        let more = *seen < position;
        *seen = position.max(*seen);
        more
    });
}
