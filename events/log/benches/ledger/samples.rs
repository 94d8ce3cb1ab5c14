//! Events to append: 200 bytes to keep each, of which 80 can be erased.

use midwatch_events::{
    Micros, New,
    codec::encode,
    id::{BotId, ProcessId, RoutineId, RunId, UserId},
    run::{Cause, Ended, Opened, Outcome as Ending, RunContent, RunEvent, Work, WorkKind},
};
use midwatch_log::NewEvent;
use tokio::time::Instant;
use uuid::{Builder, Uuid};

use crate::Outcome;

/// UUIDv7 that rise with time, from an arbitrary first millisecond on.
pub(crate) struct Ids {
    began: Instant,
}

const FIRST_MS: u64 = 1_767_225_600_000;

impl Ids {
    pub(crate) fn new() -> Outcome<Self> {
        Ok(Self { began: Instant::now() })
    }

    pub(crate) fn next(&mut self) -> Outcome<Uuid> {
        let mut random = [0; 10];
        getrandom::fill(&mut random)?;
        let passed_ms = u64::try_from(self.began.elapsed().as_millis())?;
        Ok(Builder::from_unix_timestamp_millis(FIRST_MS + passed_ms, &random).into_uuid())
    }

    /// 120 bytes of facts and 80 of content; the ledger never looks inside.
    pub(crate) fn event(&mut self) -> Outcome<NewEvent> {
        let map = |length: u8| {
            let mut bytes = vec![0xa1, 0x61, b'x', 0x58, length];
            bytes.resize(usize::from(length) + 5, 0x6d);
            bytes
        };
        Ok(NewEvent {
            event_id: self.next()?,
            event_type: "run.turn_finished".to_owned(),
            schema: 1,
            actor: "engine".to_owned(),
            correlation_id: None,
            causation_id: None,
            facts: map(115),
            content: Some(map(75)),
        })
    }
}

/// A whole run of eleven events that decode and fold; the messages make it 200 bytes an event.
pub(crate) fn run(ids: &mut Ids) -> Outcome<(RunId, Vec<NewEvent>)> {
    let run = RunId::new(ids.next()?);
    let (bot, owner, routine) = (BotId::new(ids.next()?), UserId::new(ids.next()?), RoutineId::new(ids.next()?));
    let opened = Opened {
        run,
        bot,
        owner,
        routine: Some(routine),
        trigger: None,
        delivery: None,
        event_type: None,
        cause: Cause::Schedule,
        window_us: Some(Micros(1_767_225_600_000_000)),
        work: WorkKind::Instruction,
        deadline_s: 1_800,
        max_turns: 40,
        unattended: true,
        retry: None,
    };
    let instruction = "Look through the new reports and file what is due this week.".to_owned();
    let work = Work { instruction: Some(instruction), recording: None };
    let taken =
        RunEvent::Taken { take: 1, worker: ProcessId::new(ids.next()?), deadline_us: Micros(1_767_227_400_000_000) };
    let mut events = vec![New::with(RunEvent::Opened(opened), RunContent::Opened { work }), taken.into()];
    for turn in 1..=4 {
        let messages = format!(r#"[{{"role":"assistant","content":"{}"}}]"#, "All is well. ".repeat(22));
        events.push(RunEvent::TurnStarted { turn }.into());
        events.push(New::with(RunEvent::TurnFinished { turn, calls: 0 }, RunContent::TurnFinished { messages }));
    }
    let ended = Ended {
        run,
        bot,
        routine: Some(routine),
        trigger: None,
        cause: Cause::Schedule,
        outcome: Ending::Succeeded,
        reason: None,
        unattended: Some(true),
        turns: 4,
        tool_calls: 0,
        refused_calls: 0,
        duration_us: Some(48_000_000),
    };
    let headline = "Three reports filed".to_owned();
    events.push(New::with(RunEvent::Ended(ended), RunContent::Ended { headline, error: None }));
    let events = events.iter().map(|event| {
        let bytes = encode(event)?;
        Ok(NewEvent {
            event_id: ids.next()?,
            event_type: bytes.event_type,
            schema: bytes.schema,
            actor: "engine".to_owned(),
            correlation_id: Some(format!("run-{run}")),
            causation_id: None,
            facts: bytes.facts,
            content: bytes.content,
        })
    });
    Ok((run, events.collect::<Outcome<_>>()?))
}
