//! What an event has to tell. Facts alone: words of people, senders and Bots are never among them.

use midwatch_events::{
    AnyEvent,
    delivery::{DeliveryEvent, ReceivedStatus},
    engine::{EngineEvent, NoticeKind},
    repeat::RepeatEvent,
    routine::RoutineEvent,
    run::{Ended, Outcome, RunEvent},
};
use serde_json::{Value, json};

/// Its name, the kinds of notice it is (the one that says most first), and its facts.
pub(super) struct Told {
    pub(super) name: &'static str,
    pub(super) kinds: Vec<NoticeKind>,
    pub(super) data: Value,
}

/// What an event has to tell; none where it is nobody's business.
pub(super) fn told(event: &AnyEvent) -> Option<Told> {
    let of = |name, kind, data| Some(Told { name, kinds: vec![kind], data });
    match event {
        AnyEvent::Run(RunEvent::Ended(ended), _) => Some(ending(ended)),
        AnyEvent::Run(RunEvent::ApprovalRequested(asked), _) => {
            let data = json!({
                "approval": asked.approval, "run": asked.run, "bot": asked.bot, "routine": asked.routine,
                "tool": asked.tool, "rule": asked.rule, "unattended": asked.unattended,
                "expires": asked.expires_us.to_string(),
            });
            of("approval.waiting", NoticeKind::ApprovalWaiting, data)
        }
        AnyEvent::Routine(RoutineEvent::WindowsMissed { first_us, last_us, count, reason, .. }, _) => {
            let data = json!({
                "first": first_us.to_string(), "last": last_us.to_string(), "count": count, "reason": reason,
            });
            of("window.missed", NoticeKind::Missed, data)
        }
        AnyEvent::Routine(RoutineEvent::WindowHeld { window_us, reason, bot }, _) => {
            let data = json!({ "window": window_us.to_string(), "reason": reason, "bot": bot });
            of("window.held", NoticeKind::Held, data)
        }
        AnyEvent::Routine(RoutineEvent::Suspended { cause }, _) => {
            of("routine.suspended", NoticeKind::Suspended, json!({ "cause": cause }))
        }
        AnyEvent::Delivery(DeliveryEvent::Received(received), _) if received.status == ReceivedStatus::Held => {
            let data = json!({
                "delivery": received.delivery, "trigger": received.trigger, "why": received.held,
                "until": received.held_until_us.map(|until| until.to_string()),
            });
            of("delivery.held", NoticeKind::Held, data)
        }
        AnyEvent::Repeat(RepeatEvent::ThresholdCrossed { threshold, count, bot, run, tool, routine, .. }, _) => {
            let data = json!({
                "threshold": threshold, "count": count, "bot": bot, "run": run, "tool": tool, "routine": routine,
            });
            of("bot.going_in_circles", NoticeKind::GoingInCircles, data)
        }
        AnyEvent::Engine(EngineEvent::SchedulingHalted { cause }, _) => {
            of("scheduling.halted", NoticeKind::Halt, json!({ "cause": cause }))
        }
        AnyEvent::Engine(EngineEvent::SchedulingLifted {}, _) => of("scheduling.lifted", NoticeKind::Halt, json!({})),
        _ => None,
    }
}

fn ending(ended: &Ended) -> Told {
    let (name, kind) = match ended.outcome {
        Outcome::Succeeded if ended.refused_calls > 0 => ("run.ended", Some(NoticeKind::RunRefused)),
        Outcome::Succeeded => ("run.ended", None),
        Outcome::Cancelled => ("run.cancelled", None),
        Outcome::Refused => ("run.refused", Some(NoticeKind::RunRefused)),
        Outcome::Failed | Outcome::Stopped | Outcome::TimedOut | Outcome::Abandoned => {
            ("run.failed", Some(NoticeKind::RunFailed))
        }
    };
    let mut kinds: Vec<NoticeKind> = kind.into_iter().collect();
    if ended.outcome == Outcome::Refused {
        kinds.push(NoticeKind::RunFailed);
    }
    kinds.push(NoticeKind::RunEnded);
    let data = json!({
        "run": ended.run,
        "bot": ended.bot,
        "routine": ended.routine,
        "trigger": ended.trigger,
        "cause": ended.cause,
        "outcome": ended.outcome,
        "reason": ended.reason,
        "turns": ended.turns,
        "tool_calls": ended.tool_calls,
        "refused_calls": ended.refused_calls,
    });
    Told { name, kinds, data }
}
