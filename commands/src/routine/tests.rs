//! Routines: what people ask of them, how windows end, and a random walk.

mod asking;
mod ending;
mod options;
mod walk;
mod windows;

use super::*;
use crate::spec::{Given, at, given, id};

/// Every quarter of an hour.
const QUARTERS: &str = r#"{"kind":"every","zone":"UTC","minutes":15,"anchor":"2026-12-01T00:00:00Z"}"#;
const AT_EIGHT: &str = r#"{"kind":"weekly","zone":"UTC","days":["mon","tue","wed","thu","fri"],"times":["08:00"]}"#;
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(77);

fn create(schedule: &str, now: &str) -> Create {
    Create {
        routine: id(1),
        name: "report".to_owned(),
        owner: id(2),
        bot: id(3),
        schedule: schedule.to_owned(),
        work: Work { instruction: Some("look".to_owned()), recording: None },
        limits: Limits::default(),
        now: at(now),
    }
}

fn routine(schedule: &str, now: &str) -> Given<Routine> {
    given([]).after(RoutineCommand::Create(Box::new(create(schedule, now))))
}

fn with_grace(schedule: &str, now: &str, grace_s: u32) -> Given<Routine> {
    limited(schedule, now, Limits { grace_s, ..Limits::default() })
}

fn limited(schedule: &str, now: &str, limits: Limits) -> Given<Routine> {
    given([]).after(RoutineCommand::Create(Box::new(Create { limits, ..create(schedule, now) })))
}

fn tick_of(now: &str) -> Tick {
    Tick {
        now: at(now),
        process: id(9),
        namespace: NAMESPACE,
        lifted_at: None,
        tzdb: "2026f",
        unable: None,
        catch_up: true,
    }
}

fn tick(now: &str) -> RoutineCommand {
    RoutineCommand::Tick(tick_of(now))
}

/// A tick after a halt that was lifted then.
fn tick_lifted(now: &str, lifted: &str) -> RoutineCommand {
    RoutineCommand::Tick(Tick { lifted_at: Some(at(lifted)), ..tick_of(now) })
}

fn run_of(window: &str) -> RunId {
    let routine: RoutineId = id(1);
    RunId::derived(NAMESPACE, &claim_key(&routine.to_string(), &[&at(window).0.to_string()]).hash)
}

fn claimed(window: &str, next: Option<&str>) -> RoutineEvent {
    RoutineEvent::RunClaimed(RunClaimed {
        bot: Some(id(3)),
        run: run_of(window),
        cause: Cause::Schedule,
        window_us: Some(at(window)),
        delivery: None,
        redelivery: None,
        claimed_by: id(9),
        tzdb: Some("2026f".to_owned()),
        next_us: next.map(at),
    })
}

fn missed(first: &str, last: &str, count: u64, next: &str) -> RoutineEvent {
    RoutineEvent::WindowsMissed {
        bot: Some(id(3)),
        first_us: at(first),
        last_us: at(last),
        count,
        reason: midwatch_events::routine::MissedReason::Late,
        next_us: Some(at(next)),
    }
}

fn skipped(window: &str, live: RunId, next: &str) -> RoutineEvent {
    let reason = midwatch_events::routine::SkippedReason::Live;
    RoutineEvent::WindowSkipped { bot: Some(id(3)), window_us: at(window), reason, live, next_us: Some(at(next)) }
}

fn rearmed(next: Option<&str>) -> RoutineEvent {
    RoutineEvent::Rearmed { next_us: next.map(at), cause: RearmCause::Lifted, tzdb: None }
}

fn settle(run: RunId, outcome: Outcome) -> RoutineCommand {
    RoutineCommand::Settle { run, outcome, reason: None }
}

fn pause() -> RoutineCommand {
    RoutineCommand::Pause { reason: "lunch".to_owned() }
}

fn resume(now: &str) -> RoutineCommand {
    RoutineCommand::Resume { now: at(now) }
}

fn suspend() -> RoutineCommand {
    RoutineCommand::Suspend { cause: SuspendCause::BotRetired, error: "the Bot is retired".to_owned() }
}

fn reschedule(schedule: &str, now: &str) -> RoutineCommand {
    RoutineCommand::Edit(Box::new(Edit { schedule: Some(schedule.to_owned()), now: at(now), ..Edit::default() }))
}

fn run_now(run: u128) -> RoutineCommand {
    RoutineCommand::RunNow { run: id(run), process: id(9) }
}
