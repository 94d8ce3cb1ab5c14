//! One line for people about any event.

use midwatch_events::{
    AnyEvent, Recorded,
    bot::BotEvent,
    boundary::BoundaryEvent,
    delivery::DeliveryEvent,
    engine::EngineEvent,
    repeat::RepeatEvent,
    routine::{DropReason, RoutineEvent, RunClaimed},
    trigger::TriggerEvent,
    user::UserEvent,
};
use midwatch_projections::{Projection as _, Rows, run_timeline::RunTimeline};
use serde::Serialize;

/// The word of the wire, for people.
pub(crate) fn spaced(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default().trim_matches('"').replace('_', " ")
}

/// What happened, in one line. Steps of a run read as they do in the run's own timeline.
pub(crate) fn title(event: &AnyEvent, recorded: &Recorded) -> String {
    match event {
        AnyEvent::Run(..) => step(event, recorded).unwrap_or_else(|| recorded.event_type.clone()),
        AnyEvent::Repeat(repeat, _) => step(event, recorded).unwrap_or_else(|| of_repeat(repeat)),
        AnyEvent::Bot(event) => of_bot(event),
        AnyEvent::Boundary(BoundaryEvent::Published { .. }, _) => {
            format!("Boundary version {} published", recorded.version)
        }
        AnyEvent::Boundary(BoundaryEvent::ToolServerAdded { server, .. }, _) => format!("MCP server {server} added"),
        AnyEvent::Boundary(BoundaryEvent::ToolServerRemoved { server }, _) => format!("MCP server {server} removed"),
        AnyEvent::Boundary(BoundaryEvent::ToolAccepted { server, tool, .. }, _) => {
            format!("Tool {tool} of MCP server {server} accepted as it is defined")
        }
        AnyEvent::Boundary(BoundaryEvent::ToolDropped { server, tool }, _) => {
            format!("Tool {tool} of MCP server {server} not accepted any more")
        }
        AnyEvent::Delivery(event, _) => of_delivery(event),
        AnyEvent::Engine(event, _) => of_engine(event),
        AnyEvent::Routine(event, _) => of_routine(event),
        AnyEvent::Trigger(event, _) => of_trigger(event),
        AnyEvent::User(event, _) => of_user(event),
    }
}

/// The title a run's timeline gives it, if it is a step there.
fn step(event: &AnyEvent, recorded: &Recorded) -> Option<String> {
    let keys = RunTimeline::keys(event, recorded);
    let mut rows = Rows::new(keys.iter().map(|key| (key.clone(), None)).collect());
    RunTimeline::apply(&mut rows, event, recorded);
    keys.first().and_then(|key| rows.get(key)).map(|row| row.title.clone())
}

fn of_repeat(event: &RepeatEvent) -> String {
    match event {
        RepeatEvent::Attempted { count, .. } => format!("Counted as attempt {count} of the same call"),
        RepeatEvent::ThresholdCrossed { threshold, .. } => format!("The same call reached {threshold} attempts"),
        RepeatEvent::Settled { .. } => "The attempt's result was noted".to_owned(),
    }
}

fn of_bot(event: &BotEvent) -> String {
    match event {
        BotEvent::Registered { name, .. } => format!("Bot {name} registered"),
        BotEvent::ToolsGranted { tools } => format!("Tools granted: {}", tools.join(", ")),
        BotEvent::ToolsWithdrawn { tools } => format!("Tools withdrawn: {}", tools.join(", ")),
        BotEvent::Retired {} => "Bot retired".to_owned(),
        BotEvent::Unreachable {} => "Bot does not answer".to_owned(),
        BotEvent::Reachable {} => "Bot answers again".to_owned(),
    }
}

fn of_delivery(event: &DeliveryEvent) -> String {
    match event {
        DeliveryEvent::Received(received) => {
            let about = received.event_type.as_ref().map_or_else(String::new, |about| format!(" ({about})"));
            let status = spaced(received.status);
            format!("Delivery received{about}, {} bytes: {status}", received.body_bytes)
        }
        DeliveryEvent::Queued { .. } => "Delivery waits for its turn".to_owned(),
        DeliveryEvent::Started { run, .. } => format!("Delivery became the run {run}"),
        DeliveryEvent::Dropped { reason, .. } => dropped(*reason),
        DeliveryEvent::Redelivered { redelivery, .. } => format!("Delivery let run once more, time {redelivery}"),
        DeliveryEvent::RedeliveryStarted(started) => format!("{} deliveries to be let run once more", started.count),
        DeliveryEvent::RedeliveryProgressed { redelivered, .. } => format!("{redelivered} deliveries let run so far"),
        DeliveryEvent::RedeliveryFinished { redelivered, left_out } => {
            format!("{redelivered} deliveries let run once more, {left_out} left out")
        }
        DeliveryEvent::RedeliveryCancelled {} => "Redelivery cancelled".to_owned(),
    }
}

fn dropped(reason: DropReason) -> String {
    format!("Delivery will not run: {}", spaced(reason))
}

fn of_engine(event: &EngineEvent) -> String {
    match event {
        EngineEvent::LedgerCreated { .. } => "Ledger created".to_owned(),
        EngineEvent::DeploymentAdopted { .. } => "Copy adopted as a deployment of its own".to_owned(),
        EngineEvent::SchedulingHalted { cause } => format!("Scheduling halted: {}", spaced(cause)),
        EngineEvent::SchedulingLifted {} => "Scheduling halt lifted".to_owned(),
        EngineEvent::ProcessStarted { version, .. } => format!("Process started, Midwatch {version}"),
        EngineEvent::ProcessStopped { .. } => "Process stopped".to_owned(),
        EngineEvent::ContentErased { subject, events, .. } => format!("Words of {events} events of {subject} erased"),
        EngineEvent::ReactionStarted { reaction, after } => {
            format!("Reaction {reaction} answers what happens after position {after}")
        }
        EngineEvent::ReceiverAdded { .. } => "Receiver of notices added".to_owned(),
        EngineEvent::ReceiverRemoved { .. } => "Receiver of notices removed".to_owned(),
        EngineEvent::NoticeRaised { kind, subject, .. } => format!("Notice about {subject}: {}", spaced(kind)),
        EngineEvent::NoticeAttempted { attempt, delivered: true, .. } => format!("Notice taken at attempt {attempt}"),
        EngineEvent::NoticeAttempted { attempt, status, .. } => {
            let answer = status.map_or_else(|| "no answer".to_owned(), |status| format!("answer {status}"));
            format!("Notice not taken at attempt {attempt}: {answer}")
        }
        EngineEvent::NoticeAskedAgain {} => "Notice to be posted once more".to_owned(),
    }
}

fn claimed(claim: &RunClaimed) -> String {
    let what = match (claim.window_us, claim.delivery) {
        (Some(window), _) => format!("the window {window}"),
        (None, Some(delivery)) => format!("the delivery {delivery}"),
        (None, None) => "Run now".to_owned(),
    };
    format!("Process {} claimed {what} for the run {}", claim.claimed_by, claim.run)
}

fn of_routine(event: &RoutineEvent) -> String {
    match event {
        RoutineEvent::Created { name, .. } => format!("Routine {name} created"),
        RoutineEvent::Renamed { name } => format!("Routine renamed to {name}"),
        RoutineEvent::Rescheduled { .. } => "Routine given another schedule".to_owned(),
        RoutineEvent::WorkReplaced { .. } => "Routine given other work".to_owned(),
        RoutineEvent::LimitsReplaced { .. } => "Routine given other limits".to_owned(),
        RoutineEvent::Paused {} => "Routine paused".to_owned(),
        RoutineEvent::Resumed { .. } => "Routine resumed".to_owned(),
        RoutineEvent::Suspended { cause } => format!("Routine suspended: {}", spaced(cause)),
        RoutineEvent::Deleted {} => "Routine deleted".to_owned(),
        RoutineEvent::Rearmed { cause, .. } => format!("Next window looked for again: {}", spaced(cause)),
        RoutineEvent::WindowQueued { window_us, live, .. } => {
            format!("Window {window_us} waits for the end of the run {live}")
        }
        RoutineEvent::WindowHeld { window_us, reason, .. } => format!("Window {window_us} held: {}", spaced(reason)),
        RoutineEvent::RunClaimed(claim) => claimed(claim),
        RoutineEvent::RunSettled(settled) => settled_title(settled.outcome),
        RoutineEvent::WindowsMissed { first_us, count: 1, reason, .. } => {
            format!("Window {first_us} missed: {}", spaced(reason))
        }
        RoutineEvent::WindowsMissed { first_us, last_us, count, reason, .. } => {
            format!("{count} windows missed, {first_us} to {last_us}: {}", spaced(reason))
        }
        RoutineEvent::WindowSkipped { window_us, reason, live, .. } => {
            format!("Window {window_us} skipped: {}, because of the run {live}", spaced(reason))
        }
        RoutineEvent::DeliveryQueued(queued) => format!("Delivery {} joined the queue", queued.delivery),
        RoutineEvent::DeliveryTaken { delivery, .. } => format!("Delivery {delivery} left the queue for its run"),
        RoutineEvent::DeliveryDropped { reason, .. } => dropped(*reason),
    }
}

fn settled_title(outcome: midwatch_events::run::Outcome) -> String {
    format!("Free for the next run; the last one {}", spaced(outcome))
}

fn of_trigger(event: &TriggerEvent) -> String {
    match event {
        TriggerEvent::Created { name, .. } => format!("Trigger {name} created"),
        TriggerEvent::SecretRotated { .. } => "Trigger given another secret".to_owned(),
        TriggerEvent::IntakeReplaced { .. } => "Trigger takes deliveries in by other rules".to_owned(),
        TriggerEvent::SenderReplaced { .. } => "Trigger given another kind of sender".to_owned(),
        TriggerEvent::SampleCaptured { delivery } => format!("Sample captured: the delivery {delivery}"),
        TriggerEvent::Confirmed { .. } => "Trigger confirmed".to_owned(),
        TriggerEvent::Paused {} => "Trigger paused".to_owned(),
        TriggerEvent::Resumed {} => "Trigger resumed".to_owned(),
        TriggerEvent::Deleted {} => "Trigger deleted".to_owned(),
        TriggerEvent::RunClaimed(claim) => claimed(claim),
        TriggerEvent::RunSettled(settled) => settled_title(settled.outcome),
        TriggerEvent::DeliveryQueued(queued) => format!("Delivery {} joined the queue", queued.delivery),
        TriggerEvent::DeliveryTaken { delivery, .. } => format!("Delivery {delivery} left the queue for its run"),
        TriggerEvent::DeliveryDropped { reason, .. } => dropped(*reason),
    }
}

fn of_user(event: &UserEvent) -> String {
    match event {
        UserEvent::Invited { role, .. } => format!("Person invited as {}", spaced(role)),
        UserEvent::LinkIssued { .. } => "Sign-in link made".to_owned(),
        UserEvent::SignedIn { .. } => "Person signed in".to_owned(),
        UserEvent::SignedOut { .. } => "Person signed out".to_owned(),
        UserEvent::TokenIssued { role, .. } => format!("Token made for {}", spaced(role)),
        UserEvent::BotTokenIssued { bot, .. } => format!("Token made for an agent that uses the tools of Bot {bot}"),
        UserEvent::TokenRevoked { .. } => "Token revoked".to_owned(),
        UserEvent::Revoked { .. } => "Person revoked".to_owned(),
        UserEvent::EvidenceGranted {} => "May read what senders sent and Bots were told".to_owned(),
        UserEvent::EvidenceWithdrawn {} => "May not read what senders sent and Bots were told".to_owned(),
        UserEvent::EvidenceRead { subject, part } => format!("Read the {} of {subject}", spaced(part)),
    }
}
