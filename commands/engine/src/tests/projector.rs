//! Promise 9: projections can be dropped and built again, any number of processes keep them, and a broken one holds up
//! nobody.

use std::{collections::BTreeMap, time::Duration};

use midwatch_commands::run::Run;
use midwatch_events::{
    Micros, StreamName,
    id::RunId,
    run::{ApprovalRequested, Approvers, RunEvent},
};
use midwatch_log::{
    Append, Expected, NewEvent, Open, StreamAppend,
    views::{Attached, Cursor, KEY, Order, Query, Table, Views},
};
use midwatch_projections::{View, routines_list::RoutinesList, runs::Runs};

use super::support::{
    Place, Roles, all, at_once, bot, due_routine, me, new_trigger, open_trigger, posted, run_now, until,
};
use crate::{
    Engine, EngineError, clock,
    handle::{Folds, Plan},
    projector::{catch_up, get, looks_at, rebuild, status, tables, wait_for},
    reactor, runner,
};

/// Appends an event that only a newer version knows.
pub(super) async fn newer_event(engine: &Engine, stream: &StreamName) -> u64 {
    let event = NewEvent {
        event_id: engine.world().uuid(),
        event_type: format!("{}.teleported", stream.category()),
        schema: 1,
        actor: "engine".to_owned(),
        correlation_id: None,
        causation_id: None,
        facts: vec![0xa0],
        content: None,
    };
    let entries = vec![StreamAppend { stream: stream.clone(), expected: Expected::Any, events: vec![event] }];
    engine.log().append(Append { entries, ..Append::default() }).await.unwrap().last()
}

/// Everything: two routines, a trigger, runs of both, a halt, people.
async fn story(engine: &Engine) {
    let mut roles = Roles::new();
    roles.tasks.spawn(clock::run(engine.clone(), roles.stopped.clone()));
    roles.tasks.spawn(reactor::run(engine.clone(), roles.stopped.clone()));
    roles.tasks.spawn(runner::run(engine.clone(), at_once(), roles.stopped.clone()));
    engine.start_process("1", &[]).await.unwrap();
    let bot = bot(engine).await;
    let (one, _) = (due_routine(engine, bot).await, due_routine(engine, bot).await);
    let trigger = open_trigger(engine, &new_trigger(bot, midwatch_events::trigger::Intake::default())).await;
    for n in 0..5 {
        engine.receive(trigger, &posted(Some(&n.to_string()), "x")).await.unwrap();
    }
    engine.pause_routine(one, "enough", &me(), None).await.unwrap();
    let link = engine.issue_link(None, &me()).await.unwrap().value;
    engine.sign_in(&link).await.unwrap();
    engine.issue_token("ci", midwatch_events::user::Access::Auditor, &me()).await.unwrap();
    engine.publish_boundary(r#"{"rules":[]}"#, "nothing", None, &me(), None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    engine.halt_scheduling(&me(), "drill", None).await.unwrap();
    engine.lift_halt(&me(), None).await.unwrap();
    engine.stop_process().await.unwrap();
    roles.end().await;
    let run = run_now(engine, due_routine(engine, bot).await).await;
    asked(engine, run).await;
}

/// A question of a run's, as the gateway writes it.
async fn asked(engine: &Engine, run: RunId) {
    let stream = StreamName::run(run);
    let loaded = engine.load::<Run>(&stream).await.unwrap();
    let opened = loaded.state.opened.unwrap();
    let asked = RunEvent::ApprovalRequested(ApprovalRequested {
        approval: midwatch_events::id::ApprovalId::new(engine.world().uuid()),
        call: midwatch_events::id::CallId::new(engine.world().uuid()),
        digest: midwatch_events::key::Digest([1; 32]),
        tool: "computer_write_file".to_owned(),
        rule: "ask".to_owned(),
        boundary: 1,
        approvers: Approvers::Any,
        owner: opened.owner,
        unattended: true,
        run,
        bot: opened.bot,
        routine: opened.routine,
        trigger: None,
        expires_us: Micros(0),
    });
    let mut plan = Plan::default();
    plan.add(engine.world(), &stream, loaded.version, &[asked.into()], &me()).unwrap();
    plan.commit(engine.log()).await.unwrap().unwrap();
}

type Rows = BTreeMap<String, Vec<u8>>;

/// All rows of all projections, as they are stored.
async fn rows(engine: &Engine) -> BTreeMap<&'static str, Rows> {
    let mut found = BTreeMap::new();
    for (_, table) in tables() {
        let (mut rows, mut after): (Rows, Option<Cursor>) = (Rows::new(), None);
        loop {
            let order = Order { column: KEY, descending: false };
            let query = Query { filters: vec![], order, limit: 500, after: after.take() };
            let page = engine.views().query(table, &query).await.unwrap();
            after = page.last().map(midwatch_log::views::Row::cursor);
            rows.extend(page.into_iter().map(|row| (row.key, row.doc)));
            if after.is_none() {
                break;
            }
        }
        found.insert(table.name, rows);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn two_projectors_apply_each_event_once_and_a_rebuild_gives_the_same_bytes() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let mut roles = Roles::new();
        roles.project(&engines[0]);
        roles.project(&engines[1]);
        // Without the lead, as well: it is no lock.
        let (other, stopped) = (engines[1].clone(), roles.stopped.clone());
        roles.tasks.spawn(async move {
            while !*stopped.borrow() {
                catch_up(&other).await.unwrap();
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
        story(&engines[0]).await;
        let head = engines[0].log().head().await.unwrap();
        wait_for(&engines[0], head).await;
        let live = rows(&engines[0]).await;
        for (name, rows) in &live {
            // Nobody is told anything in this story, and nothing runs again.
            let silent = ["notices", "receivers", "redeliveries"].contains(name);
            assert!(silent || !rows.is_empty(), "{name} says nothing");
        }
        // While it serves.
        let rebuilt = rebuild(&engines[1], None, |_, _, _| {}).await.unwrap();
        assert_eq!(rebuilt.len(), View::ALL.len());
        assert!(rows(&engines[0]).await == live, "{}: a rebuild differs", place.backend);
        let states = status(&engines[1]).await.unwrap();
        assert!(states.iter().all(|state| state.behind == 0 && state.stopped.is_none()), "{states:?}");
        // The read set that damage is judged by covers what the projections say they look at.
        for (recorded, event) in all(&engines[0]).await {
            for view in View::ALL {
                assert!(view.keys(&event, &recorded).is_empty() || looks_at(view, recorded.family()), "{view:?}");
            }
        }
        roles.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rebuilds_at_once_end_and_one_of_them_may_be_told_so() {
    let place = Place::sqlite();
    let (one, two) = (place.engine().await, place.engine().await);
    story(&one).await;
    catch_up(&one).await.unwrap();
    let live = rows(&one).await;
    let both = async { tokio::join!(rebuild(&one, None, |_, _, _| {}), rebuild(&two, None, |_, _, _| {})) };
    let (first, second) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
    for result in [first, second] {
        assert!(matches!(result, Ok(_) | Err(EngineError::Fault(_))), "{result:?}");
    }
    rebuild(&one, Some("runs"), |_, _, _| {}).await.unwrap();
    assert!(rows(&two).await == live);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_version_is_built_beside_the_old_one_and_takes_its_place() {
    for place in Place::each().await {
        place.engine().await.close().await;
        // What a binary of the version before had made.
        let old = |table: &'static Table| -> &'static Table {
            Box::leak(Box::new(Table { version: table.version - 1, ..*table }))
        };
        let table = tables().iter().find(|(view, _)| *view == View::Runs).map(|(_, table)| table).unwrap();
        match place.url.strip_prefix("sqlite://") {
            Some(file) => std::fs::remove_file(format!("{file}-projections")).unwrap(),
            None => place.sql("DROP SCHEMA midwatch_projections CASCADE").await,
        }
        let views = Views::open(&place.url, Open::ReadWrite).await.unwrap();
        assert!(matches!(views.attach(old(table)).await.unwrap(), Attached::Active(_)));
        let engine = place.engine().await;
        assert!(matches!(views.attach(table).await.unwrap(), Attached::Building(_)), "{}", place.backend);
        let bot = bot(&engine).await;
        let routine = due_routine(&engine, bot).await;
        let run = run_now(&engine, routine).await;
        assert!(get::<Runs>(&engine, &run.to_string()).await.unwrap().is_none());
        catch_up(&engine).await.unwrap();
        assert!(get::<Runs>(&engine, &run.to_string()).await.unwrap().is_some(), "{}", place.backend);
        assert!(matches!(views.attach(old(table)).await.unwrap(), Attached::Superseded { .. }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_event_stops_who_looks_at_it_with_its_reason_and_nobody_else() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let routine = due_routine(&engine, bot).await;
        let run = run_now(&engine, routine).await;
        let damaged = engine.log().read_stream(&StreamName::run(run), 1, 1).await.unwrap()[0].position;
        place.damage(damaged).await;
        let later = due_routine(&engine, bot).await;
        let mut roles = Roles::new();
        roles.project(&engine);
        let head = engine.log().head().await.unwrap();
        let well = async || {
            let all = status(&engine).await.unwrap();
            all.into_iter().filter(|state| state.stopped.is_none()).all(|state| state.position == head)
        };
        until("the others at the head", well).await;
        for state in status(&engine).await.unwrap() {
            match state.name {
                "runs" | "audit" | "run_timeline" | "approvals" => {
                    let (position, error) = state.stopped.unwrap();
                    assert_eq!((state.position, position), (damaged - 1, damaged), "{}", place.backend);
                    assert!(error.contains("run.opened/1"), "{error}");
                }
                _ => assert_eq!((state.position, state.stopped), (head, None), "{} {}", place.backend, state.name),
            }
        }
        assert!(get::<RoutinesList>(&engine, &later.to_string()).await.unwrap().is_some());
        // A stopped projection answers at once, and what is built anew says where it stops.
        let began = tokio::time::Instant::now();
        wait_for(&engine, head).await;
        assert!(began.elapsed() < Duration::from_millis(900));
        let error = rebuild(&engine, Some("runs"), |_, _, _| {}).await.unwrap_err();
        assert!(matches!(&error, EngineError::Corrupt(text) if text.contains(&damaged.to_string())), "{error}");
        // The stream itself is corrupt to whoever decides on it.
        let (folds, stream) = (Folds::default(), StreamName::run(run));
        let loaded = crate::handle::load::<midwatch_commands::run::Run>(engine.log(), &folds, &stream).await;
        assert!(matches!(loaded, Err(EngineError::Corrupt(_))));
        roles.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_newer_version_is_no_poison_and_the_lead_is_left_to_a_newer_process() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let routine = due_routine(&engine, bot).await;
        let newer = newer_event(&engine, &StreamName::routine(routine)).await;
        due_routine(&engine, bot).await;
        catch_up(&engine).await.unwrap();
        for state in status(&engine).await.unwrap() {
            assert_eq!((state.position, state.stopped), (newer - 1, None), "{} {}", place.backend, state.name);
        }
        let mut roles = Roles::new();
        roles.project(&engine);
        tokio::time::sleep(Duration::from_millis(400)).await;
        let (other, now) = (uuid::Uuid::from_u128(1), engine.world().clock.now());
        assert!(engine.views().lead("projector", other, 1, now).await.unwrap(), "{}", place.backend);
        let error = rebuild(&engine, Some("due"), |_, _, _| {}).await.unwrap_err();
        assert!(matches!(&error, EngineError::Fault(text) if text.contains("newer")), "{error}");
        // Readable, and never decided on.
        let paused = engine.pause_routine(routine, "", &me(), None).await.unwrap_err();
        assert!(matches!(paused, EngineError::Fault(_)), "{paused}");
        roles.end().await;
    }
}
