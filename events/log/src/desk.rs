//! Group commit: one writer per process drains what waits into one transaction, and answers each caller for itself.
//!
//! Promises kept here: an answer, even a conflict, leaves after what it rests on is durable; a caller that stops waiting
//! loses and doubles nothing; a commit or a flush whose outcome is not known is looked up by event id, under the lock,
//! before anything is written again.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use midwatch_events::{Recorded, StreamName};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    append::{Append, AppendError, Appended, Expected},
    judge::{End, Ground, Head, KnownKey, Prepared},
    known::{Between, Known},
    log::LogError,
    memory::Memory,
    metrics::Counters,
    postgres::Flusher,
    session::{Fault, Session},
    writer::{BATCH_BYTES, BATCH_EVENTS, DEADLINE, raise, unavailable},
};

/// How long the writer tries for an append of which nothing can have been written.
const PATIENCE: Duration = Duration::from_secs(10);
/// Batches that may wait for their flush before the next one waits with them.
const UNFLUSHED: usize = 64;

/// An append that waits for its answer.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) prepared: Prepared,
    pub(crate) asked_at: Instant,
    /// A commit that held it has failed: it may be in the ledger.
    pub(crate) attempted: bool,
    /// It gets a transaction of its own.
    pub(crate) alone: bool,
    pub(crate) reply: oneshot::Sender<Result<Appended, AppendError>>,
}

pub(crate) type Answer = Result<Appended, AppendError>;

/// Who is told how far the ledger is durable, and what is remembered of it.
#[derive(Clone, Debug)]
pub(crate) struct Announce {
    pub(crate) heads: Vec<watch::Sender<u64>>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) counters: Arc<Counters>,
}

/// A committed batch whose answers may leave once `position` is durable.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) position: u64,
    /// Of the event at `position`; `None` in an empty ledger.
    pub(crate) leaf_hash: Option<[u8; 32]>,
    batch: Vec<(Ask, Answer)>,
    /// When its transaction had the lock, what it wrote, and what it erased.
    begun: Instant,
    events: u64,
    erased: u64,
}

impl Answered {
    /// Lets the answers go, and the news. Nothing of the batch is left.
    pub(crate) fn leave(self, announce: &Announce) -> Vec<Ask> {
        if let Some(leaf_hash) = self.leaf_hash {
            announce.memory.remember(self.position, leaf_hash);
        }
        announce.heads.iter().for_each(|seen| raise(seen, self.position));
        if self.events > 0 {
            announce.counters.committed(self.events, self.erased, self.begun.elapsed());
        }
        for (ask, answer) in self.batch {
            // Nobody waits any more: the append stands all the same.
            let _ = ask.reply.send(answer);
        }
        Vec::new()
    }

    /// What has to be judged again, because its flush is not known to have happened.
    pub(crate) fn take_back(self) -> Vec<Ask> {
        self.batch.into_iter().map(|(ask, _)| Ask { attempted: true, ..ask }).collect()
    }
}

/// The writer's side: what waits, and the connection.
pub(crate) struct Desk {
    session: Session,
    asks: mpsc::Receiver<Ask>,
    /// Nobody can ask any more.
    closed: bool,
    waiting: VecDeque<Ask>,
    announce: Announce,
    flusher: Option<(mpsc::Sender<Answered>, JoinHandle<()>)>,
    /// Batches that come back from the flusher, empty once they are answered.
    returned: mpsc::UnboundedReceiver<Vec<Ask>>,
    unflushed: usize,
    /// Faults since the last success; the pause grows with them.
    faults: u32,
    known: Known,
}

impl Desk {
    pub(crate) fn new(
        session: Session,
        asks: mpsc::Receiver<Ask>,
        announce: Announce,
        flusher: Option<Flusher>,
    ) -> Self {
        let (back, returned) = mpsc::unbounded_channel();
        let flusher = flusher.map(|flusher| {
            let (batches, due) = mpsc::channel(UNFLUSHED);
            (batches, tokio::spawn(flusher.run(due, back)))
        });
        let waiting = VecDeque::new();
        Self {
            session,
            asks,
            closed: false,
            waiting,
            announce,
            flusher,
            returned,
            unflushed: 0,
            faults: 0,
            known: Known::default(),
        }
    }

    /// Serves until nobody can ask any more, and everything is answered.
    pub(crate) async fn serve_all(mut self) {
        while self.wait().await {
            self.serve().await;
        }
        self.session.leave().await;
        if let Some((batches, flusher)) = self.flusher.take() {
            drop(batches);
            // A panic of the flusher was logged where it happened.
            let _ = flusher.await;
        }
    }

    /// Until there is something to do; false when there is nothing left to do for ever.
    async fn wait(&mut self) -> bool {
        while let Ok(batch) = self.returned.try_recv() {
            self.take_back(batch);
        }
        while self.waiting.is_empty() {
            if self.closed && self.unflushed == 0 {
                return false;
            }
            tokio::select! {
                Some(batch) = self.returned.recv(), if self.unflushed > 0 => self.take_back(batch),
                ask = self.asks.recv(), if !self.closed => match ask {
                    Some(ask) => self.waiting.push_back(ask),
                    None => self.closed = true,
                },
            }
        }
        true
    }

    fn take_back(&mut self, batch: Vec<Ask>) {
        self.unflushed -= 1;
        self.put_first(batch);
        self.give_up_late();
    }

    /// One transaction.
    async fn serve(&mut self) {
        let head = match self.begin().await {
            Ok(head) => head,
            Err(Fault::Refused(error) | Fault::Lost(error) | Fault::Unknown(error)) => {
                return self.recover(error).await;
            }
        };
        if self.announce.memory.check().is_err() {
            return self.stop().await;
        }
        // Drained only now: whoever came while we waited for the lock is in this batch.
        let batch = self.drain();
        let begun = Instant::now();
        match self.write(head, &batch).await {
            Ok(Written { answers, position, leaf_hash, durable, events, erased }) => {
                self.faults = 0;
                let batch = batch.into_iter().zip(answers).collect();
                let answered = Answered { position, leaf_hash, batch, begun, events, erased };
                match &self.flusher {
                    Some((flusher, _)) if !durable => {
                        self.unflushed += 1;
                        // The flusher lives as long as this side of the channel.
                        let _ = flusher.send(answered).await;
                    }
                    _ => drop(answered.leave(&self.announce)),
                }
            }
            Err(fault) => self.put_back(batch, fault).await,
        }
    }

    /// Takes the lock; on a new connection also looks whether this is the ledger that it was.
    async fn begin(&mut self) -> Result<Head, Fault> {
        let head = self.session.begin(self.waiting.len() + self.asks.len()).await?;
        if self.session.is_new()
            && let Some(mark) = self.announce.memory.mark()
        {
            let found = self.session.leaf_at(mark.position).await?;
            // Said to the callers by whoever asks the memory next.
            let _ = self.announce.memory.compare(mark, found, head.position);
        }
        Ok(head)
    }

    /// The ledger went back: everybody hears it, and nothing is written.
    async fn stop(&mut self) {
        self.session.roll_back().await;
        while let Ok(ask) = self.asks.try_recv() {
            self.waiting.push_back(ask);
        }
        for ask in self.waiting.drain(..) {
            let refused = self.announce.memory.check().err().map_or(AppendError::Unknown, AppendError::from);
            let answer = if ask.attempted { AppendError::Unknown } else { refused };
            let _ = ask.reply.send(Err(answer));
        }
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

    /// Judges and writes a batch under the lock that is held.
    async fn write(&mut self, head: Head, batch: &[Ask]) -> Result<Written, Fault> {
        let appends = || batch.iter().map(|ask| &ask.prepared.append);
        let streams: HashSet<&StreamName> =
            appends().flat_map(|append| append.entries.iter().map(|entry| &entry.stream)).collect();
        let hashes: HashSet<[u8; 32]> = appends().flat_map(|append| append.keys.iter().map(|key| key.hash)).collect();
        let (ends, keys) = self.look(&head, streams, &hashes.into_iter().collect::<Vec<_>>()).await?;
        // Event ids are looked up only where one may stand already; the index finds the rare others.
        let (doubted, fresh): (Vec<&Ask>, Vec<&Ask>) = batch.iter().partition(|ask| ask.attempted || ask.alone);
        let ids_of = |ask: &&Ask| ask.prepared.events().map(|(_, event)| event.event_id).collect::<Vec<_>>();
        // So is an event that an append has to follow, unless it is known for the last or this batch brings it.
        let fresh: HashSet<Uuid> = fresh.iter().flat_map(ids_of).collect();
        let is_end = |stream: &StreamName, id| ends.get(stream).is_some_and(|end| end.event_id == Some(id));
        let followed = appends().flat_map(followed).filter(|(stream, id)| !fresh.contains(id) && !is_end(stream, *id));
        let ids: Vec<Uuid> = doubted.iter().flat_map(ids_of).chain(followed.map(|(_, id)| id)).collect();
        let found = match ids.is_empty() {
            true => HashMap::new(),
            false => self.session.events(&ids).await?,
        };

        let mut ground = Ground::new(head, ends, keys, &found);
        let answers = batch.iter().map(|ask| judge(&mut ground, ask, &found)).collect();
        let events = ground.rows.len() as u64;
        let leaf_hash = ground.rows.last().map(|row| row.leaf_hash).or(head.leaf_hash);
        if events > 0 {
            self.session.insert(ground.rows, ground.new_keys).await?;
        }
        let erased = match ground.erased.is_empty() {
            true => 0,
            false => self.session.erase(&ground.erased).await?,
        };
        let durable = self.session.finish(events > 0, ground.head).await?;
        self.known.committed(ground.head, leaf_hash, ground.ends);
        Ok(Written { answers, position: ground.head, leaf_hash, durable, events, erased })
    }

    /// What these streams are at, and where these keys stand, under the lock that is held.
    async fn look(
        &mut self,
        head: &Head,
        streams: HashSet<&StreamName>,
        hashes: &[[u8; 32]],
    ) -> Result<(HashMap<StreamName, End>, HashMap<[u8; 32], KnownKey>), Fault> {
        match self.known.between(head) {
            Between::Nothing => {}
            Between::Events { from } => {
                let passed = self.session.passed(from).await?;
                self.known.pass(head, passed);
            }
            Between::Unknown => self.known.forget(),
        }
        let (mut ends, missing) = self.known.divide(streams.into_iter());
        let (versions, keys) = match (missing.is_empty(), hashes.is_empty()) {
            (true, true) => Default::default(),
            (true, false) => (HashMap::new(), self.session.keys(hashes).await?),
            (false, true) => (self.session.versions(&missing).await?, HashMap::new()),
            (false, false) => self.session.versions_and_keys(&missing, hashes).await?,
        };
        ends.extend(versions.into_iter().map(|(stream, version)| (stream, End::at(version))));
        Ok((ends, keys))
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
        self.announce.memory.lose();
        let now = Instant::now();
        let (late, still): (VecDeque<Ask>, VecDeque<Ask>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|ask| !ask.attempted && now - ask.asked_at > PATIENCE);
        self.waiting = still;
        for ask in late {
            let _ = ask.reply.send(Err(unavailable(error.to_string()).into()));
        }
        self.give_up_late();
        sleep(Duration::from_millis(20 << self.faults.min(5))).await;
        self.faults = self.faults.saturating_add(1);
    }

    /// Those that may be in the ledger, and whose callers were told at their deadline that it is not known.
    fn give_up_late(&mut self) {
        let now = Instant::now();
        let is_late = |ask: &Ask| ask.attempted && now - ask.asked_at > DEADLINE;
        if !self.waiting.iter().any(is_late) {
            return;
        }
        let (late, still): (VecDeque<Ask>, VecDeque<Ask>) =
            std::mem::take(&mut self.waiting).into_iter().partition(is_late);
        self.waiting = still;
        for ask in late {
            let _ = ask.reply.send(Err(AppendError::Unknown));
        }
    }
}

/// What one transaction came to.
struct Written {
    answers: Vec<Answer>,
    /// The head after it, on which each of its answers may rest.
    position: u64,
    leaf_hash: Option<[u8; 32]>,
    /// Else the answers have to wait for a flush.
    durable: bool,
    events: u64,
    erased: u64,
}

/// The events that an append has to follow.
fn followed(append: &Append) -> impl Iterator<Item = (&StreamName, Uuid)> {
    append.entries.iter().filter_map(|entry| match entry.expected {
        Expected::After { event_id, .. } => Some((&entry.stream, event_id)),
        Expected::Exact(_) | Expected::NoStream | Expected::Any => None,
    })
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
