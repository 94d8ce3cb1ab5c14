//! One run as a timeline: what it was told and why, each turn with the Bot's words, each call with its arguments, the
//! rule that let it through or stopped it, whether anybody was watching, and how it ended.
//!
//! ```json
//! {"run": ID, "entries": [ENTRY, …], "state": "waiting" | "running" | "ended", "ended": ENTRY | null, "until": POSITION}
//! ```
//!
//! `ended` is the entry of kind `ended`, once more, so that a reader finds the ending without looking for it; `until`
//! is the position of the last event of the run that was read. What an entry holds is written at [`Entry`]. The
//! document is written page by page ([`json_head`], [`json_entries`], [`json_tail`]), so that a run of any length
//! streams; while following, each entry is a document on a line of its own.

mod entry;
mod opening;
mod text;

use midwatch_events::{AnyEvent, Recorded, StreamName, codec::CodecError, id::RunId, repeat::RepeatEvent};
use midwatch_log::{Filter, Log};
use serde::Serialize;
use tokio::sync::watch;

use crate::{Moment, ReplayError, terminal::clean_json};

pub use entry::{Asked, CallEnded, Decided, Ending, Entry, Repeated, What};
pub(crate) use opening::claim_before;
pub use opening::{Claim, Delivered, Named, Opening};
pub use text::text;

/// Events of the run in a page.
pub const PAGE: u32 = 500;
/// Thresholds read at once; there are few.
const THRESHOLDS: u32 = 100;

/// A run that is being read.
#[derive(Debug)]
pub struct Timeline {
    log: Log,
    run: RunId,
    stream: StreamName,
    until: Option<Moment>,
    head: Option<watch::Receiver<u64>>,
    /// The version read up to.
    version: u64,
    /// The position read up to; thresholds up to it are told.
    position: u64,
    taken: bool,
    ended: Option<Entry>,
    /// The moment asked for lies behind.
    cut: bool,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for a runner.
    Waiting,
    /// A runner took it.
    Running,
    /// It is over.
    Ended,
}

impl Timeline {
    /// Opens a run's timeline, up to a moment or as far as it goes.
    ///
    /// # Errors
    /// [`ReplayError::NotThere`] where there is no such run, or was not yet; or the ledger cannot be read.
    pub async fn open(log: &Log, run: RunId, until: Option<Moment>) -> Result<Self, ReplayError> {
        let stream = StreamName::run(run);
        let first = log.read_stream(&stream, 1, 1).await?;
        let first = first.first().ok_or_else(|| ReplayError::NotThere(format!("there is no run {run}")))?;
        if let Some(moment) = until.filter(|moment| !moment.includes(first)) {
            let sentence = format!("the run {run} was opened later than {moment}, at position {}", first.position);
            return Err(ReplayError::NotThere(sentence));
        }
        Ok(Self {
            log: log.clone(),
            run,
            stream,
            until,
            head: None,
            version: 0,
            position: first.position.saturating_sub(1),
            taken: false,
            ended: None,
            cut: false,
        })
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The next entries, those of at most [`PAGE`] events of the run; none where there is nothing more, or not yet.
    ///
    /// # Errors
    /// The ledger cannot be read, or is damaged.
    pub async fn page(&mut self) -> Result<Vec<Entry>, ReplayError> {
        if self.over() {
            return Ok(Vec::new());
        }
        let mut events = self.log.read_stream(&self.stream, self.version + 1, PAGE).await?;
        if let Some(moment) = self.until {
            let before = events.len();
            events.retain(|event| moment.includes(event));
            self.cut = events.len() < before;
        }
        let Some(last) = events.last() else { return Ok(Vec::new()) };
        let (after, end) = (self.position, last.position);
        (self.version, self.position) = (last.version, end);
        let mut entries = self.thresholds(after, end).await?;
        for recorded in &events {
            let entry = self.entry(recorded).await?;
            match &entry.what {
                What::Taken { .. } => self.taken = true,
                // The first ending stands, as it does for the run itself.
                What::Ended(_) if self.ended.is_none() => self.ended = Some(entry.clone()),
                _ => {}
            }
            entries.push(entry);
        }
        entries.sort_by_key(|entry| entry.position);
        Ok(entries)
    }

    /// Whether nothing can follow: it has ended, or the moment that was asked for is reached.
    #[must_use]
    pub fn over(&self) -> bool {
        self.ended.is_some() || self.cut
    }

    /// How far it is, up to what was read.
    #[must_use]
    pub fn state(&self) -> State {
        match (&self.ended, self.taken) {
            (Some(_), _) => State::Ended,
            (None, true) => State::Running,
            (None, false) => State::Waiting,
        }
    }

    /// How it ended, if it was read so far and has.
    #[must_use]
    pub fn ended(&self) -> Option<&Entry> {
        self.ended.as_ref()
    }

    /// The position of the last event of the run that was read.
    #[must_use]
    pub fn until(&self) -> u64 {
        self.position
    }

    /// Waits until the ledger has grown. [`Timeline::page`] may still have nothing then.
    ///
    /// # Errors
    /// The ledger was closed.
    pub async fn wait(&mut self) -> Result<(), ReplayError> {
        let head = self.head.get_or_insert_with(|| self.log.follow());
        let closed = |_| ReplayError::NotThere("the ledger was closed while it was followed".to_owned());
        head.changed().await.map_err(closed)
    }

    async fn entry(&self, recorded: &Recorded) -> Result<Entry, ReplayError> {
        let event = match AnyEvent::decode(recorded) {
            Ok(event) => event,
            Err(CodecError::Unknown { wire }) => return Ok(entry::unknown(recorded, wire)),
            Err(error) => return Err(ReplayError::of(recorded, error)),
        };
        let mut entry = entry::of(&event, recorded);
        if let What::Opened(opening) = &mut entry.what {
            opening::complete(opening, &self.log, self.run, recorded).await?;
        }
        Ok(entry)
    }

    /// The thresholds that this run's calls crossed between two positions. They stand in the streams of the repeated
    /// calls, in the same append as the decision.
    async fn thresholds(&self, after: u64, end: u64) -> Result<Vec<Entry>, ReplayError> {
        let filter = Filter { event_types: vec!["repeat.threshold_crossed".to_owned()], categories: Vec::new() };
        let mut entries = Vec::new();
        let mut scanned = after;
        while scanned < end {
            let (events, to) = self.log.read_all(scanned, THRESHOLDS, &filter).await?;
            for recorded in events.iter().take_while(|recorded| recorded.position <= end) {
                let event = match AnyEvent::decode(recorded) {
                    Ok(event) => event,
                    // Of a newer version, and perhaps of another run: the decisions tell the counts all the same.
                    Err(CodecError::Unknown { .. }) => continue,
                    Err(error) => return Err(ReplayError::of(recorded, error)),
                };
                if let AnyEvent::Repeat(RepeatEvent::ThresholdCrossed { run, .. }, _) = &event
                    && *run == self.run
                {
                    entries.push(entry::of(&event, recorded));
                }
            }
            scanned = to;
        }
        Ok(entries)
    }
}

/// How the document begins.
#[must_use]
pub fn json_head(timeline: &Timeline) -> String {
    format!("{{\"run\":\"{}\",\"entries\":[", timeline.run)
}

/// Entries of the document; `first` for the first that are written.
#[must_use]
pub fn json_entries(entries: &[Entry], first: bool) -> String {
    let mut out = String::new();
    for (n, entry) in entries.iter().enumerate() {
        if n > 0 || !first {
            out.push(',');
        }
        out.push('\n');
        out.push_str(&json_entry(entry));
    }
    out
}

/// One entry as a document of its own.
#[must_use]
pub fn json_entry(entry: &Entry) -> String {
    // Text keys and no floats: serde_json cannot fail on it.
    clean_json(&serde_json::to_string(entry).unwrap_or_default())
}

/// How the document ends.
#[must_use]
pub fn json_tail(timeline: &Timeline) -> String {
    let ended = timeline.ended.as_ref().map_or_else(|| "null".to_owned(), json_entry);
    let state = serde_json::to_string(&timeline.state()).unwrap_or_default();
    format!("\n],\"state\":{state},\"ended\":{ended},\"until\":{}}}", timeline.position)
}

#[cfg(test)]
mod tests;
