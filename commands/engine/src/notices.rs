//! Telling others what happens here: who is told, what there is to tell, and what became of telling it. Posting it is
//! the gateway's part.
//!
//! A notice follows from an event as a reaction does, under the key `notice/<event>/<receiver>`: looked at twice, it is
//! raised once. An attempt is an event too, and is refused where another process made it meanwhile. A receiver is told
//! at least once, and knows by the notice's id (`webhook-id`) that it was told before.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::BoxFuture;
use midwatch_commands::{
    Refusal,
    engine::{Notice, NoticeCommand, Receiver, ReceiverCommand},
};
use midwatch_events::{
    Actor, AnyEvent, Micros, Recorded, StreamName,
    engine::{EngineContent, EngineEvent, HaltCause, NoticeKind},
    id::{NoticeId, ReceiverId},
    key::Key,
};
use midwatch_log::{
    Filter, Pending,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::{
    engine_notices::{NoticeRow, Notices},
    engine_receivers::{ReceiverRow, Receivers},
};
use serde_json::json;

mod told;

use told::told;

use crate::{Done, Engine, EngineError, Origin, Request, handle::handle, projector};

const NAME: &str = "notices";
const BATCH: u32 = 500;
/// Receivers there may be, those that were removed among them.
const RECEIVERS_MAX: u32 = 1_000;
const BY_POSITION: Order = Order { column: "position", descending: false };

/// A receiver to add.
#[derive(Clone, Debug)]
pub struct NewReceiver {
    /// What people call it.
    pub name: String,
    /// Where notices are posted to; seen to be an address one may post to.
    pub url: String,
    /// What it is told.
    pub about: Vec<NoticeKind>,
    /// How often it is told that the clock goes, in seconds.
    pub heartbeat_s: Option<u32>,
}

/// What there is to post.
#[derive(Clone, Debug, Default)]
pub struct ToPost {
    /// By receiver, in order.
    pub now: Vec<Vec<Due>>,
    /// How long until more is due; none where nothing waits.
    pub next: Option<Duration>,
}

/// What came of looking at new events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// There are none.
    Nothing,
    /// A batch was looked at; there may be more.
    Batch,
    /// There are some, but it is not known yet who is told: the projections are behind.
    Later,
}

/// A notice that is to be posted now.
#[derive(Clone, Debug)]
pub struct Due {
    /// Who is told.
    pub receiver: ReceiverId,
    /// The notice; its receiver knows it as `webhook-id`.
    pub notice: NoticeId,
    /// Which attempt it will be.
    pub attempt: u32,
    /// Where to; none where the receiver is gone or its address was erased.
    pub url: Option<String>,
    /// The key it is signed with.
    pub secret: [u8; 32],
    /// The JSON text; none where it was erased.
    pub body: Option<String>,
}

/// What came of an attempt.
#[derive(Clone, Debug)]
pub struct Attempted {
    /// The HTTP status, where there was an answer.
    pub status: Option<u16>,
    /// What stood in the way; none where the receiver took it.
    pub error: Option<String>,
    /// Trying again is of no use.
    pub hopeless: bool,
}

impl Engine {
    /// Tells somebody what happens here from now on.
    ///
    /// # Errors
    /// Anything about it that makes no sense, each with a sentence; or a fault.
    pub fn add_receiver<'a>(
        &'a self,
        new: &'a NewReceiver,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<ReceiverId>, EngineError> {
        Box::pin(async move {
            let receiver = self.new_id(request);
            let full = u64::from(RECEIVERS_MAX) <= projector::count::<Receivers>(self, &[]).await?;
            if full && self.done_before(request).await?.is_none() {
                let sentence =
                    format!("there are {RECEIVERS_MAX} receivers, removed ones counted, and that is the most");
                return Err(Refusal::Invalid(sentence).into());
            }
            let done = handle::<Receiver>(self, &StreamName::receiver(receiver), origin, request, |_| {
                Ok(ReceiverCommand::Add {
                    receiver,
                    name: new.name.clone(),
                    url: new.url.clone(),
                    about: new.about.clone(),
                    heartbeat_s: new.heartbeat_s,
                })
            })
            .await?;
            Ok(done.with(receiver))
        })
    }

    /// Tells somebody nothing more.
    ///
    /// # Errors
    /// There is no such receiver, or a fault.
    pub fn remove_receiver<'a>(
        &'a self,
        receiver: ReceiverId,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let stream = StreamName::receiver(receiver);
            handle::<Receiver>(self, &stream, origin, request, |_| Ok(ReceiverCommand::Remove)).await
        })
    }

    /// The key that a receiver's notices are signed with. It follows from the deployment's key, so it is stored nowhere.
    ///
    /// # Errors
    /// There is no such receiver; this process only reads; or a fault.
    pub fn receiver_secret(&self, receiver: ReceiverId) -> Pending<'_, [u8; 32], EngineError> {
        Box::pin(async move {
            let state = self.load::<Receiver>(&StreamName::receiver(receiver)).await?.state;
            state.id.filter(|_| !state.removed).ok_or(Refusal::NotFound("receiver"))?;
            Ok(self.secrets()?.notice(receiver))
        })
    }

    /// Posts a notice once more.
    ///
    /// # Errors
    /// There is no such notice, it is about to be posted already, or a fault.
    pub fn ask_notice_again<'a>(
        &'a self,
        notice: NoticeId,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            handle::<Notice>(self, &StreamName::notice(notice), origin, request, |_| Ok(NoticeCommand::AskAgain)).await
        })
    }

    /// What is to be posted: of each receiver at most `each`, the longest due first, and nothing of those that are being
    /// told at this moment, so that one that hangs holds up nobody else's. While scheduling is halted by a person, nothing
    /// but that it is.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn due_notices<'a>(
        &'a self,
        each: u32,
        being_told: &'a BTreeSet<ReceiverId>,
    ) -> Pending<'a, ToPost, EngineError> {
        Box::pin(async move {
            let only_the_halt = match self.halt().await?.state.halted {
                None => false,
                Some(HaltCause::Person) if !self.opening().halted => true,
                // A copy tells nobody anything.
                Some(_) => return Ok(ToPost::default()),
            };
            let not = |id: &ReceiverId| Condition { column: "receiver", is: Test::Ne(Cell::Text(id.to_string())) };
            let mut filters: Vec<Condition> = being_told.iter().map(not).collect();
            if only_the_halt {
                filters.push(Condition { column: "kind", is: Test::Eq(Cell::Text("halt".to_owned())) });
            }
            let order = Order { column: "due", descending: false };
            let ever = Condition { column: "due", is: Test::Ge(Cell::Int(0)) };
            let waiting = filters.iter().cloned().chain([ever]).collect();
            let first = projector::page::<Notices>(self, waiting, order, 1, None).await?;
            let Some(first) = first.first().and_then(|(row, _)| row.due) else { return Ok(ToPost::default()) };
            let now = self.log().store_time().await?;
            let next = Some(Duration::from_micros(u64::try_from(first.since(now)).unwrap_or(0)));
            if first > now {
                return Ok(ToPost { now: Vec::new(), next });
            }
            filters.push(Condition { column: "due", is: Test::Le(Cell::Int(now.0)) });
            // Those that were removed too: what they were still to be told is given up.
            let receivers = projector::page::<Receivers>(self, vec![], BY_POSITION, RECEIVERS_MAX, None).await?;
            let mut all = Vec::new();
            for (receiver, _) in receivers {
                let to = Condition { column: "receiver", is: Test::Eq(Cell::Text(receiver.id.to_string())) };
                let filters = filters.iter().cloned().chain([to]).collect();
                let mut due = Vec::new();
                for (row, _) in projector::page::<Notices>(self, filters, order, each, None).await? {
                    due.extend(self.due(&row, now).await?);
                }
                if !due.is_empty() {
                    all.push(due);
                }
            }
            Ok(ToPost { now: all, next })
        })
    }

    /// A notice to post. Its row may be behind: what counts is the stream.
    async fn due(&self, row: &NoticeRow, now: Micros) -> Result<Option<Due>, EngineError> {
        let stream = StreamName::notice(row.id);
        let state = self.load::<Notice>(&stream).await?.state;
        if state.due.is_none_or(|at| at > now) {
            return Ok(None);
        }
        let raised = self.log().read_stream(&stream, 1, 1).await?;
        let body = match raised.first().map(|event| event.content::<EngineEvent>()).transpose()?.flatten() {
            Some(EngineContent::NoticeRaised { body }) => Some(body),
            _ => None,
        };
        Ok(Some(Due {
            receiver: row.receiver,
            notice: row.id,
            attempt: state.attempts + 1,
            url: self.receiver_url(row.receiver).await?,
            secret: self.secrets()?.notice(row.receiver),
            body,
        }))
    }

    async fn receiver_url(&self, receiver: ReceiverId) -> Result<Option<String>, EngineError> {
        let stream = StreamName::receiver(receiver);
        if self.load::<Receiver>(&stream).await?.state.removed {
            return Ok(None);
        }
        let added = self.log().read_stream(&stream, 1, 1).await?;
        Ok(match added.first().map(|event| event.content::<EngineEvent>()).transpose()?.flatten() {
            Some(EngineContent::ReceiverAdded { url, .. }) => Some(url),
            _ => None,
        })
    }

    /// Records what came of an attempt.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn note_attempt<'a>(&'a self, due: &'a Due, came: &'a Attempted) -> Pending<'a, (), EngineError> {
        Box::pin(async move {
            let now = self.log().store_time().await?;
            let origin = Origin::of(Actor::Clock);
            let stream = StreamName::notice(due.notice);
            handle::<Notice>(self, &stream, &origin, None, |_| {
                Ok(NoticeCommand::Attempted {
                    attempt: due.attempt,
                    status: came.status,
                    error: came.error.clone(),
                    hopeless: came.hopeless,
                    now,
                })
            })
            .await
            .map(|_| ())
        })
    }

    /// Who gets heartbeats, and none while scheduling is halted or no clock goes: then their silence alarms.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn heartbeats(&self) -> Pending<'_, Vec<(ReceiverRow, [u8; 32])>, EngineError> {
        Box::pin(async move {
            if self.halt().await?.state.halted.is_some() {
                return Ok(Vec::new());
            }
            let mut all = Vec::new();
            for row in active(self).await? {
                if row.heartbeat_s.is_some() {
                    let secret = self.secrets()?.notice(row.id);
                    all.push((row, secret));
                }
            }
            Ok(all)
        })
    }
}

async fn active(engine: &Engine) -> Result<Vec<ReceiverRow>, EngineError> {
    let active = Condition { column: "state", is: Test::Eq(Cell::Text("active".to_owned())) };
    let rows = projector::page::<Receivers>(engine, vec![active], BY_POSITION, RECEIVERS_MAX, None).await?;
    Ok(rows.into_iter().map(|(row, _)| row).collect())
}

/// Whether this process tells the others' programs; one does.
///
/// # Errors
/// A fault of the database.
pub fn lead(engine: &Engine) -> Pending<'_, bool, EngineError> {
    Box::pin(async move { projector::lead(engine, NAME).await })
}

/// Lets another process tell.
pub fn give_up(engine: &Engine) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        projector::give_up(engine, NAME).await;
    })
}

/// Raises the notices that one batch of events gives.
///
/// # Errors
/// A fault; the checkpoint then stands before the event that could not be looked at.
pub fn raise(engine: &Engine) -> Pending<'_, Raised, EngineError> {
    Box::pin(async move {
        // A copy tells nobody anything.
        if engine.halt().await?.state.halted.is_some_and(|cause| cause != HaltCause::Person) {
            return Ok(Raised::Nothing);
        }
        let from = engine.views().named_checkpoint(NAME).await?;
        if engine.log().head().await? <= from {
            return Ok(Raised::Nothing);
        }
        // Read before the receivers are: who was added up to here is among them.
        let known = projector::as_of::<Receivers>(engine).await?.0;
        let receivers = active(engine).await?;
        let (events, scanned) = match receivers.is_empty() {
            // Nobody is told what happened before they were added.
            true => (Vec::new(), known),
            false => {
                let categories = ["run", "routine", "delivery", "repeat", "halt"].map(str::to_owned).to_vec();
                engine.log().read_all(from, BATCH, &Filter { categories, ..Filter::default() }).await?
            }
        };
        let scanned = scanned.min(known);
        if scanned <= from {
            return Ok(Raised::Later);
        }
        for recorded in events.iter().filter(|recorded| recorded.position <= scanned) {
            if let Err(error) = raise_of(engine, recorded, &receivers).await {
                let reached = recorded.position.saturating_sub(1);
                if reached > from {
                    engine.views().advance(NAME, from, reached).await?;
                }
                return Err(error);
            }
        }
        engine.views().advance(NAME, from, scanned).await?;
        Ok(Raised::Batch)
    })
}

async fn raise_of(engine: &Engine, recorded: &Recorded, receivers: &[ReceiverRow]) -> Result<(), EngineError> {
    let event = AnyEvent::decode(recorded)?;
    let Some(told) = told(&event) else { return Ok(()) };
    for receiver in receivers.iter().filter(|receiver| receiver.position < recorded.position) {
        // The first kind is the one that says most.
        let Some(kind) = told.kinds.iter().copied().find(|kind| receiver.about.contains(kind)) else { continue };
        let (cause, to) = (recorded.event_id.to_string(), receiver.id.to_string());
        let key = Key::new(&["notice", &cause, &to], &[cause.as_bytes(), to.as_bytes()]);
        let notice = NoticeId::derived(engine.namespace(), &key.hash);
        let body = json!({
            "type": told.name,
            "timestamp": recorded.recorded_at.to_string(),
            "data": told.data,
            "position": recorded.position,
            "subject": recorded.stream.as_str(),
        });
        let origin = Origin::of(Actor::Engine).because(recorded.event_id);
        let request = Request { key };
        handle::<Notice>(engine, &StreamName::notice(notice), &origin, Some(&request), |_| {
            Ok(NoticeCommand::Raise {
                notice,
                receiver: receiver.id,
                kind,
                subject: recorded.stream.to_string(),
                body: body.to_string(),
            })
        })
        .await?;
    }
    Ok(())
}
