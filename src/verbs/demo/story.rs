//! The story, played once: every part takes the path it takes in life, and is then read back from the ledger.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use midwatch_commands::Refusal;
use midwatch_engine::{Engine, EngineError, projector, world::World};
use midwatch_events::{
    AnyEvent, Micros, StreamName,
    bot::BotEvent,
    boundary::BoundaryEvent,
    engine::EngineEvent,
    id::RoutineId,
    routine::RoutineEvent,
    run::{Cause, DecisionKind, Outcome, RunEvent},
    trigger::TriggerEvent,
};
use midwatch_log::{Filter, Log, Open, verify::verify};
use midwatch_projections::routines_list::RoutinesList;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{
    Place,
    post::post,
    scene::{self, RULE, Scene},
};
use crate::{cli::Globals, failure::Failure, joining, serving, table::Table, verbs::trigger::path};

/// Each part takes a second or two; a part that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(15);
const PAGE: u32 = 500;

/// What was told, and where each sentence stands in the ledger.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    pub(super) ok: bool,
    statements: Vec<Statement>,
}

#[derive(Debug, Serialize)]
struct Statement {
    text: String,
    /// Where it was read back; null where it was not found.
    position: Option<u64>,
}

/// What cannot be read from the ledger, because nothing is what was to happen.
#[derive(Debug)]
struct Seen {
    /// Of the two processes that ticked at once, how many appended a claim.
    claims: usize,
    /// The answers to the posts: the sample, the second delivery, one while halted.
    answers: [u16; 3],
    /// Run now was refused during the halt.
    held: bool,
}

pub(super) async fn play(place: &Place, listen: SocketAddr) -> Result<Told, Failure> {
    let engine = Engine::open(World::system(), place.opening()?).await?;
    let scene = scene::set(&engine).await?;
    // Due in one to two seconds, when no clock runs yet: as if this process had been down.
    let due = Micros(engine.log().store_time().await?.0 + 1_999_999);
    let late = scene::without_grace(&engine, scene.bot, due).await?;
    let claims = two_ticks(place, &engine, scene.every_minute).await?;
    while engine.log().store_time().await?.seconds() <= due.seconds() {
        sleep(Duration::from_millis(50)).await;
    }
    let served = serving::start(engine.clone(), &place.plan(listen)).await?;
    let address = served.address.unwrap_or(listen);
    let seen = while_serving(&engine, &scene, late, address, claims).await;
    served.stop().await?;
    read_back(place, &scene, late, &seen?).await
}

/// Two processes look at the same due window at the same time. How many of them claimed it?
async fn two_ticks(place: &Place, one: &Engine, routine: RoutineId) -> Result<usize, Failure> {
    let other = Engine::open(World::system(), place.opening()?).await?;
    let (first, second) = tokio::join!(one.tick(routine), other.tick(routine));
    other.close().await;
    Ok([first?, second?].iter().filter(|ticked| ticked.value.appended && ticked.value.run.is_some()).count())
}

async fn while_serving(
    engine: &Engine,
    scene: &Scene,
    late: RoutineId,
    address: SocketAddr,
    claims: usize,
) -> Result<Seen, Failure> {
    let origin = joining::origin(engine);
    for routine in [scene.every_minute, scene.curious, late] {
        settled(engine, routine).await?;
    }
    let path = path(&scene.endpoint);
    let send = async |order: u32| {
        let body = format!(r#"{{"event":"order.created","order":{order}}}"#);
        post(address, &path, &scene.secret, &body).await
    };
    let sample = send(17).await?;
    engine.confirm_trigger(scene.trigger, None, &origin, None).await?;
    let second = send(18).await?;
    settled(engine, scene.orders).await?;

    engine.halt_scheduling(&origin, "The demo shows the halt", None).await?;
    let halted = send(19).await?;
    let now = engine.run_now(scene.orders, &origin, None).await;
    let held = matches!(now, Err(EngineError::Refused(Refusal::Halted)));
    engine.lift_halt(&origin, None).await?;
    Ok(Seen { claims, answers: [sample, second, halted], held })
}

/// Waits until a routine has come to an ending, whichever.
async fn settled(engine: &Engine, routine: RoutineId) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let row = projector::get::<RoutinesList>(engine, &routine.to_string()).await?;
        if row.is_some_and(|row| row.last_outcome.is_some() && row.live_run.is_none()) {
            return Ok(());
        }
        sleep(Duration::from_millis(25)).await;
    }
    // What is missing is said by the statement that is not found.
    Ok(())
}

/// An event as it was read back.
type Read = (u64, StreamName, AnyEvent);

/// Opens the ledger anew and looks for every part of the story in it.
async fn read_back(place: &Place, scene: &Scene, late: RoutineId, seen: &Seen) -> Result<Told, Failure> {
    let log = Log::open(&place.url(), Open::ReadOnly).await?;
    let mut events: Vec<Read> = Vec::new();
    loop {
        let after = events.last().map_or(0, |(position, ..)| *position);
        let (page, _) = log.read_all(after, PAGE, &Filter::default()).await?;
        if page.is_empty() {
            break;
        }
        for recorded in page {
            let event = AnyEvent::decode(&recorded).map_err(EngineError::from)?;
            events.push((recorded.position, recorded.stream, event));
        }
    }
    let verified = verify(&log).await?;
    log.close().await;
    let mut statements = routines(&events, scene, late, seen);
    statements.extend(deliveries(&events, scene, seen));
    statements.push(match verified.first_bad {
        None => Statement {
            text: format!("All {} events are what was written: verify found no gap and no change", verified.events),
            position: Some(verified.events),
        },
        Some(bad) => Statement { text: format!("Position {} is damaged: {}", bad.position, bad.error), position: None },
    });
    let ok = statements.iter().all(|statement| statement.position.is_some());
    Ok(Told { ok, statements })
}

/// What became true with the first event of these for which it holds.
fn said(events: &[Read], text: &str, holds: impl Fn(&StreamName, &AnyEvent) -> bool) -> Statement {
    let found = events.iter().find(|(_, stream, event)| holds(stream, event));
    Statement { text: text.to_owned(), position: found.map(|(position, ..)| *position) }
}

fn routines(events: &[Read], scene: &Scene, late: RoutineId, seen: &Seen) -> Vec<Statement> {
    let minutely = StreamName::routine(scene.every_minute);
    let windows: Vec<_> = events.iter().filter(|(_, stream, _)| *stream == minutely).filter_map(window).collect();
    let distinct: BTreeSet<_> = windows.iter().collect();
    let once = seen.claims == 1 && distinct.len() == windows.len();
    vec![
        said(events, "A Bot is known", |_, event| matches!(event, AnyEvent::Bot(BotEvent::Registered { .. }))),
        said(
            events,
            "A boundary is in force that keeps Bots off passwords",
            |_, event| matches!(event, AnyEvent::Boundary(BoundaryEvent::Published { document }, _) if document.contains(RULE)),
        ),
        said(events, "A routine's window was claimed, with nobody watching", |_, event| {
            matches!(event, AnyEvent::Run(RunEvent::Opened(opened), _)
                if opened.routine == Some(scene.every_minute) && opened.cause == Cause::Schedule && opened.unattended)
        }),
        said(
            events,
            "Another process claimed the same window at the same time and lost: this is its only claim",
            |of, event| once && *of == minutely && matches!(event, AnyEvent::Routine(RoutineEvent::RunClaimed(_), _)),
        ),
        said(events, "Its run succeeded", |_, event| ended(event, scene.every_minute, Outcome::Succeeded)),
        said(
            events,
            "A call of another routine was refused by the rule no-passwords, before anything acted",
            |_, event| {
                matches!(event, AnyEvent::Run(RunEvent::ToolCallDecided(decision), _)
                if decision.routine == Some(scene.curious)
                    && decision.decision == DecisionKind::Refused
                    && decision.rule.as_deref() == Some(RULE)
                    && decision.unattended)
            },
        ),
        said(events, "Its run ended refused", |_, event| ended(event, scene.curious, Outcome::Refused)),
        said(events, "A window at which no clock ran is recorded as missed", |of, event| {
            *of == StreamName::routine(late)
                && matches!(event, AnyEvent::Routine(RoutineEvent::WindowsMissed { count: 1, .. }, _))
        }),
    ]
}

fn deliveries(events: &[Read], scene: &Scene, seen: &Seen) -> Vec<Statement> {
    let [sample, second, halted] = seen.answers.map(|status| status == 202);
    let turned_away = seen.answers[2] == 503 && !halted && seen.held;
    vec![
        said(events, "A first webhook was captured as the sample and started nothing", |_, event| {
            sample && matches!(event, AnyEvent::Trigger(TriggerEvent::SampleCaptured { .. }, _))
        }),
        said(events, "Somebody confirmed the sample", |_, event| {
            matches!(event, AnyEvent::Trigger(TriggerEvent::Confirmed { .. }, _))
        }),
        said(events, "The next webhook was accepted and became a run", |_, event| {
            second
                && matches!(event, AnyEvent::Run(RunEvent::Opened(opened), _)
                if opened.routine == Some(scene.orders) && opened.cause == Cause::Delivery)
        }),
        said(events, "That run succeeded", |_, event| ended(event, scene.orders, Outcome::Succeeded)),
        said(events, "Scheduling was halted: a webhook and a Run now were turned away", |_, event| {
            turned_away && matches!(event, AnyEvent::Engine(EngineEvent::SchedulingHalted { .. }, _))
        }),
        said(events, "The halt was lifted", |_, event| {
            matches!(event, AnyEvent::Engine(EngineEvent::SchedulingLifted {}, _))
        }),
    ]
}

fn ended(event: &AnyEvent, routine: RoutineId, outcome: Outcome) -> bool {
    matches!(event, AnyEvent::Run(RunEvent::Ended(ended), _)
        if ended.routine == Some(routine) && ended.outcome == outcome)
}

fn window((_, _, event): &Read) -> Option<Micros> {
    match event {
        AnyEvent::Routine(RoutineEvent::RunClaimed(claim), _) => claim.window_us,
        _ => None,
    }
}

impl Told {
    pub(super) fn show(&self, globals: &Globals) -> Result<(), Failure> {
        globals.output().answer(self, || {
            let mut table = Table::new(&["POSITION", "WHAT IS IN THE LEDGER"]);
            for statement in &self.statements {
                let position = statement.position.map_or_else(|| "MISSING".to_owned(), |position| position.to_string());
                table.row(vec![position, statement.text.clone()]);
            }
            table.or("")
        })
    }
}
