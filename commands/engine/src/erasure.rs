//! Erasing words: content and the bodies it names go, and so do the copies in the projections. Facts stay, and with
//! them everything that is decided, counted or proved by; that it was done is an event itself.

use std::collections::{BTreeMap, BTreeSet};

use midwatch_commands::{
    Decider as _, Refusal,
    engine::{Engine as Deployment, EngineCommand},
    run::Run,
};
use midwatch_events::{
    AnyEvent, StreamName,
    delivery::DeliveryContent,
    id::{BlobId, RunId},
    run::{RunContent, RunEvent},
};
use midwatch_log::{Append, AppendError, Appended, Pending, blob};

use crate::{
    Done, Engine, EngineError, Origin,
    handle::{Plan, TRIES},
    projector,
};

/// Positions that one append erases; the ledger takes 1,024.
const POSITIONS: usize = 1_000;
const PAGE: u32 = 512;

/// What was erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Erased {
    /// Events that lost their content.
    pub events: u64,
    /// Bodies outside of the events that went with it.
    pub blobs: u64,
}

/// An event that has words.
struct Words {
    position: u64,
    version: u64,
    blob: Option<BlobId>,
}

/// What there is to erase.
#[derive(Default)]
struct Found {
    /// By stream, in order.
    words: BTreeMap<StreamName, Vec<Words>>,
    /// Some were erased before.
    erased: bool,
}

impl Engine {
    /// Erases the words of a stream; of a run also those beside the counts of its calls. What was copied into the
    /// projections goes too: they are all built again before this answers. The words of a delivery and of the run that
    /// answered it are each their own.
    ///
    /// # Errors
    /// No reason is given; nobody wrote to the stream; it is a live run's; there is nothing left to erase; or a fault.
    /// After a fault ask again: what was left of it is done then.
    pub fn erase<'a>(
        &'a self,
        subject: &'a StreamName,
        reason: &'a str,
        origin: &'a Origin,
    ) -> Pending<'a, Done<Erased>, EngineError> {
        Box::pin(async move {
            if reason.trim().is_empty() {
                return Err(Refusal::Invalid("say why the words are erased; the reason is recorded".to_owned()).into());
            }
            if subject.category() == "run"
                && let Some(run) = subject.uuid().map(RunId::new)
                && self.load::<Run>(subject).await?.state.live().is_ok()
            {
                return Err(Refusal::Busy { live: run }.into());
            }
            let found = self.find_words(subject).await?;
            if found.words.is_empty() && found.erased {
                // Whoever erased them may not have come to the copies.
                projector::rebuild(self, None, |_, _, _| {}).await?;
            }
            let done = self.erase_found(subject, &found, reason, origin).await?;
            projector::rebuild(self, None, |_, _, _| {}).await?;
            Ok(done)
        })
    }

    /// The same for a delivery, whose only copies are in a projection that takes them out when it hears of it.
    pub(crate) async fn erase_words(
        &self,
        subject: &StreamName,
        reason: &str,
        origin: &Origin,
    ) -> Result<Done<Erased>, EngineError> {
        let found = self.find_words(subject).await?;
        self.erase_found(subject, &found, reason, origin).await
    }

    async fn erase_found(
        &self,
        subject: &StreamName,
        found: &Found,
        reason: &str,
        origin: &Origin,
    ) -> Result<Done<Erased>, EngineError> {
        let mut done = Done { value: Erased::default(), position: 0, duplicate: false };
        if found.words.is_empty() {
            self.record_erasure(subject, &[], reason, origin).await?;
        }
        for (stream, words) in &found.words {
            for words in words.chunks(POSITIONS) {
                // Bodies first: their ids stand in the words alone. Cut off here, the same erasure asked for again
                // finds and records them; the other way round they would stay, and nobody could find them.
                for blob in words.iter().filter_map(|words| words.blob) {
                    blob::expire(self.log(), blob.uuid()).await?;
                    done.value.blobs += 1;
                }
                done.position = self.record_erasure(stream, words, reason, origin).await?.last();
                done.value.events += words.len() as u64;
            }
        }
        Ok(done)
    }

    /// Records that these words go, and lets them go, in one append.
    async fn record_erasure(
        &self,
        subject: &StreamName,
        words: &[Words],
        reason: &str,
        origin: &Origin,
    ) -> Result<Appended, EngineError> {
        let stream = StreamName::engine();
        for _ in 0..TRIES {
            let loaded = self.load::<Deployment>(&stream).await?;
            let events = loaded.state.decide(EngineCommand::EraseContent {
                subject: subject.clone(),
                versions: words.iter().map(|words| words.version).collect(),
                blobs: words.iter().filter(|words| words.blob.is_some()).count() as u64,
                reason: reason.to_owned(),
            })?;
            let mut plan = Plan::default();
            plan.add(self.world(), &stream, loaded.version, &events, origin)?;
            let erase = words.iter().map(|words| words.position).collect();
            match self.log().append(Append { erase, ..plan.into() }).await {
                Ok(appended) => return Ok(appended),
                Err(AppendError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Fault(format!("{stream} is changed by too many processes at once; try again")))
    }

    async fn find_words(&self, subject: &StreamName) -> Result<Found, EngineError> {
        let mut found = Found::default();
        let counts = self.find_on(subject, None, &mut found).await?.ok_or(Refusal::NotFound("stream"))?;
        for counts in counts {
            self.find_on(&counts, Some(subject), &mut found).await?;
        }
        Ok(found)
    }

    /// Adds the words on a stream, of the events of one run only where it is named. Answers with the streams that count
    /// the calls on this one; none where nobody wrote to it.
    async fn find_on(
        &self,
        stream: &StreamName,
        of: Option<&StreamName>,
        found: &mut Found,
    ) -> Result<Option<BTreeSet<StreamName>>, EngineError> {
        let (mut counts, mut version) = (BTreeSet::new(), 0);
        loop {
            let page = self.log().read_stream(stream, version + 1, PAGE).await?;
            for recorded in &page {
                version = recorded.version;
                if of.is_some_and(|of| recorded.correlation_id.as_deref() != Some(of.as_str())) {
                    continue;
                }
                let event = AnyEvent::decode(recorded)?;
                if let AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) = &event {
                    counts.insert(StreamName::repeat(decision.bot, &decision.fingerprint.0));
                }
                found.erased |= recorded.erased();
                if recorded.content.is_some() {
                    let words = Words { position: recorded.position, version, blob: named(&event) };
                    found.words.entry(stream.clone()).or_default().push(words);
                }
            }
            if page.len() < PAGE as usize {
                return Ok((version > 0).then_some(counts));
            }
        }
    }
}

/// The body that an event's words name.
fn named(event: &AnyEvent) -> Option<BlobId> {
    let reference = match event {
        AnyEvent::Delivery(_, Some(DeliveryContent::Received { blob, .. })) => blob.as_ref(),
        AnyEvent::Run(_, Some(content)) => match content {
            RunContent::ToolCallEnded { blob, .. } | RunContent::CallOutcomeLate { blob, .. } => blob.as_ref(),
            RunContent::Opened { .. }
            | RunContent::TurnFinished { .. }
            | RunContent::ToolCallDecided { .. }
            | RunContent::AttemptFailed { .. }
            | RunContent::ApprovalRequested { .. }
            | RunContent::Ended { .. }
            | RunContent::ReportedLate { .. } => None,
        },
        AnyEvent::Bot(_)
        | AnyEvent::Boundary(..)
        | AnyEvent::Delivery(_, None)
        | AnyEvent::Engine(..)
        | AnyEvent::Repeat(..)
        | AnyEvent::Routine(..)
        | AnyEvent::Run(_, None)
        | AnyEvent::Trigger(..)
        | AnyEvent::User(..) => None,
    };
    reference.map(|reference| reference.blob)
}
