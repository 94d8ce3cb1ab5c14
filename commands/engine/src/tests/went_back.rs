//! A ledger that lacks what a running process has seen, as after a failover to a standby that lagged: it stops.

use midwatch_commands::{Refusal, routine::Routine};
use midwatch_events::{
    StreamName,
    engine::{EngineEvent, HaltCause},
};
use midwatch_log::WentBack;

use super::support::{Place, Roles, at_once, bot, due_routine, events, me, refused, until};
use crate::{Engine, EngineError, ErrorKind, clock, reactor, runner};

/// Nothing is decided on what was folded, nothing starts, and everybody hears why.
async fn stands_still(engine: &Engine, seen: u64, head: u64) {
    assert_eq!(engine.went_back(), Some(WentBack { seen, head }));
    assert_eq!(engine.halt().await.unwrap().state.halted, Some(HaltCause::LedgerWentBack));
    let error = engine.register_bot("late", None, &me(), None).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Corruption, "ledger_went_back"));
    let said = error.to_string();
    assert!(said.contains(&format!("position {seen}")) && said.contains(&format!("ends at {head}")), "{said}");
    assert_eq!(clock::tick(engine).await.unwrap(), clock::SLEEP_MAX);
    assert!(!reactor::react(engine).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_ledger_went_back_starts_nothing_and_the_next_records_why() {
    let Some(place) = Place::each().await.into_iter().find(|place| place.backend == "postgres") else { panic!() };
    let engine = place.engine().await;
    let bot = bot(&engine).await;
    let kept = due_routine(&engine, bot).await;
    let head = engine.log().head().await.unwrap();
    let lost = due_routine(&engine, bot).await;
    let seen = engine.log().head().await.unwrap();
    assert_eq!(engine.load::<Routine>(&StreamName::routine(lost)).await.unwrap().version, 1);
    // The database is an older copy of itself, and the connections to what it was are gone.
    place.sql(&format!("ALTER TABLE events DISABLE TRIGGER ALL; DELETE FROM events WHERE position > {head}")).await;
    place
        .sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    until("it is noticed", async || {
        let _ = engine.pause_routine(kept, "", &me(), None).await;
        engine.went_back().is_some()
    })
    .await;
    stands_still(&engine, seen, head).await;
    assert!(matches!(refused(engine.tick(kept).await), Refusal::Halted));
    assert!(matches!(refused(engine.run_now(kept, &me(), None).await), Refusal::Halted));
    assert_eq!(engine.load::<Routine>(&StreamName::routine(lost)).await.unwrap().version, 0, "it never was");
    let mut roles = Roles::new();
    roles.tasks.spawn(clock::run(engine.clone(), roles.stopped.clone()));
    roles.tasks.spawn(reactor::run(engine.clone(), roles.stopped.clone()));
    roles.tasks.spawn(runner::run(engine.clone(), at_once(), roles.stopped.clone()));
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(engine.log().head().await.unwrap(), head);
    roles.end().await;
    engine.close().await;

    let next = place.engine().await;
    assert_eq!(next.went_back(), None);
    assert_eq!(next.halt().await.unwrap().state.halted, Some(HaltCause::LedgerWentBack));
    let recorded = next.log().read_stream(&StreamName::halt(), 1, 9).await.unwrap();
    let facts: EngineEvent = recorded[0].facts().unwrap();
    assert!(matches!(facts, EngineEvent::SchedulingHalted { cause: HaltCause::LedgerWentBack, .. }), "{facts:?}");
    let said = format!("{:?}", recorded[0].content::<EngineEvent>().unwrap());
    assert!(said.contains(&format!("ends at position {head}")) && said.contains(&format!("seen {seen}")), "{said}");
    assert_eq!(events::<EngineEvent>(&next, &StreamName::halt()).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_the_same_on_every_backend() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        due_routine(&engine, bot).await;
        let head = engine.log().head().await.unwrap();
        engine.log().go_back(WentBack { seen: head + 7, head });
        match engine.register_bot("late", None, &me(), None).await {
            Err(EngineError::Ledger(_)) => stands_still(&engine, head + 7, head).await,
            other => panic!("{}: {other:?}", place.backend),
        }
    }
}
