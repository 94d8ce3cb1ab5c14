//! Why a run ran, and what it was told: the opening, and what is looked up for it in other streams.

use midwatch_events::{
    AnyEvent, Micros, Recorded, StreamName,
    bot::BotEvent,
    delivery::{DeliveryContent, DeliveryEvent},
    id::{DeliveryId, ProcessId, RunId, UserId},
    routine::{RoutineEvent, RunClaimed, Work},
    run::{Cause, Opened, RunContent, WorkKind},
    trigger::TriggerEvent,
};
use midwatch_log::{Filter, Log};
use midwatch_projections::projection::rfc3339;
use serde::Serialize;

use crate::{ReplayError, Words, error::facts};

/// A claim stands in the same append as the opening; before it come at most this many other events that matter here.
const NEAR: u32 = 8;
const RENAMES: u32 = 500;

/// What a run was opened with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Opening {
    /// Who does the work.
    pub bot: Named,
    /// Whose rights it has.
    pub owner: UserId,
    /// The routine.
    pub routine: Option<Named>,
    /// The trigger.
    pub trigger: Option<Named>,
    /// The delivery it answers.
    pub delivery: Option<Delivered>,
    /// Why it runs.
    pub cause: Cause,
    /// The window, by its own time.
    #[serde(with = "rfc3339::option")]
    pub window: Option<Micros>,
    /// The claim that opened it.
    pub claim: Option<Claim>,
    /// What kind of work it is.
    pub work: WorkKind,
    /// The instruction, or the recording as JSON text.
    pub told: Option<Words>,
    /// How long it may last, in seconds from its take.
    pub deadline_s: u32,
    /// How many turns it may take.
    pub max_turns: u32,
    /// Whether nobody was watching.
    pub unattended: bool,
}

/// Something with an id and the name it had when the run was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Its id.
    pub id: String,
    /// Its name, where its stream tells it.
    pub name: Option<String>,
}

/// The event by which one process took the window, the Run now or the delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// Where it stands.
    pub position: u64,
    /// Who asked for it: `clock`, a person, or the engine for a delivery.
    pub actor: String,
    /// The process that claimed.
    pub process: ProcessId,
    /// The release of the time-zone data that gave the window.
    pub tzdb: Option<String>,
}

/// What a sender sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delivered {
    /// The delivery.
    pub id: DeliveryId,
    /// Where it was received; null where its stream is not here.
    pub position: Option<u64>,
    /// When.
    #[serde(with = "rfc3339::option")]
    pub at: Option<Micros>,
    /// What the sender says it is about.
    pub event_type: Option<String>,
    /// Length of the body in bytes.
    pub body_bytes: Option<u64>,
    /// The body as text; bytes that are no UTF-8 are U+FFFD.
    pub body: Option<Words>,
    /// The sender's own id for it.
    pub sender_id: Option<Words>,
}

fn unnamed(id: impl ToString) -> Named {
    Named { id: id.to_string(), name: None }
}

/// What the event itself says.
pub(super) fn opening(opened: &Opened, content: Option<&RunContent>, recorded: &Recorded) -> Opening {
    let told = Words::of(recorded, content, |content| match content {
        RunContent::Opened { work: Work { instruction, recording } } => {
            instruction.as_ref().or(recording.as_ref()).map(Words::text)
        }
        _ => None,
    });
    let delivery = opened.delivery.map(|id| Delivered {
        id,
        position: None,
        at: None,
        event_type: opened.event_type.clone(),
        body_bytes: None,
        body: None,
        sender_id: None,
    });
    Opening {
        bot: unnamed(opened.bot),
        owner: opened.owner,
        routine: opened.routine.map(unnamed),
        trigger: opened.trigger.map(unnamed),
        delivery,
        cause: opened.cause,
        window: opened.window_us,
        claim: None,
        work: opened.work,
        told,
        deadline_s: opened.deadline_s,
        max_turns: opened.max_turns,
        unattended: opened.unattended,
    }
}

/// Looks up what other streams say: names, the claim, the delivery.
pub(super) async fn complete(
    opening: &mut Opening,
    log: &Log,
    run: RunId,
    recorded: &Recorded,
) -> Result<(), ReplayError> {
    let Opened { bot, routine, trigger, .. } = match facts(recorded)? {
        midwatch_events::run::RunEvent::Opened(opened) => opened,
        _ => return Ok(()),
    };
    if let Some(event) = first(log, &StreamName::bot(bot)).await?
        && let BotEvent::Registered { name, .. } = facts(&event)?
    {
        opening.bot.name = Some(name);
    }
    if let (Some(named), Some(id)) = (&mut opening.routine, routine) {
        named.name = routine_name(log, &StreamName::routine(id), recorded.position).await?;
    }
    if let (Some(named), Some(id)) = (&mut opening.trigger, trigger)
        && let Some(event) = first(log, &StreamName::trigger(id)).await?
        && let TriggerEvent::Created { name, .. } = facts(&event)?
    {
        named.name = Some(name);
    }
    if let Some(delivered) = &mut opening.delivery {
        complete_delivery(delivered, log).await?;
    }
    opening.claim = claim_before(log, run, recorded.position).await?.map(|(event, claim)| Claim {
        position: event.position,
        actor: event.actor,
        process: claim.claimed_by,
        tzdb: claim.tzdb,
    });
    Ok(())
}

async fn first(log: &Log, stream: &StreamName) -> Result<Option<Recorded>, ReplayError> {
    Ok(log.read_stream(stream, 1, 1).await?.pop())
}

/// The name a routine had at a position. Renames are found by their type: there are few, and a routine's stream is long.
async fn routine_name(log: &Log, stream: &StreamName, until: u64) -> Result<Option<String>, ReplayError> {
    let Some(created) = first(log, stream).await? else { return Ok(None) };
    let mut name = match facts(&created)? {
        RoutineEvent::Created { name, .. } => Some(name),
        _ => None,
    };
    let filter = Filter { event_types: vec!["routine.renamed".to_owned()], categories: Vec::new() };
    let mut scanned = created.position;
    while scanned < until {
        let (events, to) = log.read_all(scanned, RENAMES, &filter).await?;
        for event in events.iter().filter(|event| event.position <= until && event.stream == *stream) {
            if let RoutineEvent::Renamed { name: renamed } = facts(event)? {
                name = Some(renamed);
            }
        }
        scanned = to;
    }
    Ok(name)
}

async fn complete_delivery(delivered: &mut Delivered, log: &Log) -> Result<(), ReplayError> {
    let Some(event) = first(log, &StreamName::delivery(delivered.id)).await? else { return Ok(()) };
    let DeliveryEvent::Received(received) = facts(&event)? else { return Ok(()) };
    let content = event.content::<DeliveryEvent>().map_err(|error| ReplayError::of(&event, error))?;
    delivered.position = Some(event.position);
    delivered.at = Some(event.recorded_at);
    delivered.event_type = received.event_type;
    delivered.body_bytes = Some(received.body_bytes);
    delivered.sender_id =
        Words::of(&event, content.clone(), |DeliveryContent::Received { sender_id, .. }| sender_id.map(Words::text));
    delivered.body = Words::of(&event, content, |DeliveryContent::Received { body, blob, .. }| {
        blob.as_ref().map(Words::blob).or_else(|| body.map(|body| Words::text(String::from_utf8_lossy(&body.0))))
    });
    Ok(())
}

/// The claim that opened a run: it stands right before the opening, in the same append.
pub(crate) async fn claim_before(
    log: &Log,
    run: RunId,
    opened_at: u64,
) -> Result<Option<(Recorded, RunClaimed)>, ReplayError> {
    let after = opened_at.saturating_sub(u64::from(NEAR) + 1);
    let (events, _) = log.read_all(after, NEAR, &Filter::default()).await?;
    for event in events.into_iter().rev() {
        let claim = match AnyEvent::decode(&event) {
            Ok(
                AnyEvent::Routine(RoutineEvent::RunClaimed(claim), _)
                | AnyEvent::Trigger(TriggerEvent::RunClaimed(claim), _),
            ) => claim,
            // Others, among them those of a newer version, are no claim of this run.
            _ => continue,
        };
        if claim.run == run {
            return Ok(Some((event, claim)));
        }
    }
    Ok(None)
}
