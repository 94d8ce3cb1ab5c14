//! The clock: what is missed, what cannot be evaluated, what is overdue, and that it rests when nothing is due.

use std::time::Duration;

use midwatch_events::{
    Micros, New, StreamName,
    id::{ProcessId, RoutineId, RunId},
    routine::{Limits, MissedReason, RoutineContent, RoutineEvent, SuspendCause, Work},
    run::{Outcome, Reason, RunEvent, WorkKind},
};

use super::support::{
    Place, Roles, append, bot, due_routine, events, me, new_routine, on_routine, once_in, routine, run_now, until,
};
use crate::{
    Engine,
    clock::{Looks, run, sweep, tick},
    projector,
};

/// Ticks as the role does, once the projections have everything.
async fn look(engine: &Engine, looks: &mut Looks) -> Duration {
    let head = projector::catch_up(engine).await.unwrap();
    looks.tick(engine, head).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_nobody_was_there_for_is_recorded_as_missed_once() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let (schedule, at) = once_in(&engines[0], 3).await;
        let mut new = new_routine(bot, &schedule);
        new.limits.grace_s = 0;
        let id = engines[0].create_routine(&new, &me(), None).await.unwrap().value;
        // The process is down.
        until("over", async || engines[0].log().store_time().await.unwrap() > at.plus_s(1)).await;
        projector::catch_up(&engines[1]).await.unwrap();
        let (one, two) = tokio::join!(tick(&engines[0]), tick(&engines[1]));
        one.unwrap();
        two.unwrap();
        let said = on_routine(&engines[0], id).await;
        let [_, RoutineEvent::WindowsMissed { first_us, last_us, count, reason, next_us, .. }] = &said[..] else {
            panic!("{}: {said:?}", place.backend)
        };
        assert_eq!((*first_us, *last_us, *count, *reason, *next_us), (at, at, 1, MissedReason::Late, None));
    }
}

/// No process keeps the projections: a clock does so itself, and no window and no deadline waits for one to come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_alone_keeps_the_projections_it_goes_by() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let id = due_routine(&engine, bot).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let clock = tokio::spawn(run(engine.clone(), stopped));
        until("held", async || {
            let said = on_routine(&engine, id).await;
            said.iter().any(|event| matches!(event, RoutineEvent::WindowHeld { .. }))
        })
        .await;
        stop.send_replace(true);
        clock.await.unwrap();
    }
}

/// A routine as another version may have stored it.
async fn stored(engine: &Engine, schedule: &str, work: Option<Work>) -> RoutineId {
    let (bot, id) = (bot(engine).await, RoutineId::new(engine.world().uuid()));
    let owner = crate::deployment::first_admin(engine.namespace());
    // The last full minute.
    let now = engine.log().store_time().await.unwrap().plus_s(-1).seconds();
    let due = Micros((now - now.rem_euclid(60)) * 1_000_000);
    let facts = RoutineEvent::Created {
        routine: id,
        name: "old".to_owned(),
        owner,
        bot,
        schedule: schedule.to_owned(),
        work: WorkKind::Instruction,
        limits: Limits::default(),
        anchor_us: due,
        next_us: Some(due),
    };
    let created = New { facts, content: work.map(RoutineContent::Created) };
    append(engine, &StreamName::routine(id), &[created]).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routine_that_cannot_be_evaluated_is_suspended_and_the_others_go_on() {
    for place in Place::each().await {
        let engine = place.engine().await;
        // Its next window is due with the next minute, which must not begin meanwhile.
        let early = async || engine.log().store_time().await.unwrap().seconds().rem_euclid(60) < 50;
        until("early in a minute", early).await;
        let work = Work { instruction: Some("x".to_owned()), recording: None };
        let unreadable = stored(&engine, r#"{"kind":"weekly","zone":"Mars/Olympus"}"#, Some(work)).await;
        let minutes = r#"{"kind":"every","zone":"UTC","minutes":1,"anchor":"2026-01-01T00:00:00Z"}"#;
        let erased = stored(&engine, minutes, None).await;
        let bot = bot(&engine).await;
        let well = due_routine(&engine, bot).await;
        let mut looks = Looks::with_runner();
        look(&engine, &mut looks).await;
        for id in [unreadable, erased] {
            let said = on_routine(&engine, id).await;
            let cause = SuspendCause::NotEvaluable;
            assert!(
                matches!(&said[..], [_, RoutineEvent::Suspended { cause: found }] if *found == cause),
                "{}: {said:?}",
                place.backend
            );
        }
        assert!(matches!(on_routine(&engine, well).await[..], [_, RoutineEvent::RunClaimed(_)]));
        // It rests: the next window is up to a minute away.
        let head = engine.log().head().await.unwrap();
        assert!(look(&engine, &mut looks).await > Duration::from_millis(300), "{}", place.backend);
        assert_eq!(engine.log().head().await.unwrap(), head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_newer_version_holds_up_nobody_else() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let (newer, well) = (due_routine(&engine, bot).await, due_routine(&engine, bot).await);
        projector::catch_up(&engine).await.unwrap();
        super::projector::newer_event(&engine, &StreamName::routine(newer)).await;
        let mut looks = Looks::with_runner();
        looks.tick(&engine, 0).await.unwrap();
        let claimed = engine.log().version(&StreamName::routine(well)).await.unwrap();
        assert_eq!(claimed, 2, "{}", place.backend);
        assert_eq!(engine.log().version(&StreamName::routine(newer)).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn a_window_that_waits_for_its_jitter_is_not_looked_at_over_and_over() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let bot = bot(&engine).await;
    // Due by its nominal time, and put off by up to a day; one of many ids is put off by hours.
    let schedule = r#"{"kind":"every","zone":"UTC","minutes":1,"anchor":"2026-01-01T00:00:00Z","jitter_s":86400}"#;
    let mut looks = Looks::with_runner();
    for _ in 0..5 {
        routine(&engine, bot, schedule).await;
    }
    let work = Work { instruction: Some("x".to_owned()), recording: None };
    let jittered = stored(&engine, schedule, Some(work)).await;
    let sleep = look(&engine, &mut looks).await;
    assert!(sleep > Duration::from_secs(1), "{sleep:?}");
    let again = look(&engine, &mut looks).await;
    assert!(again <= sleep && again > Duration::from_secs(1), "{again:?}");
    assert_eq!(on_routine(&engine, jittered).await.len(), 1);
}

#[tokio::test]
async fn while_due_is_behind_the_clock_looks_again_soon() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let bot = bot(&engine).await;
    let mut looks = Looks::with_runner();
    look(&engine, &mut looks).await;
    // Written, and not yet projected.
    let id = due_routine(&engine, bot).await;
    let head = engine.log().head().await.unwrap();
    let sleep = looks.tick(&engine, head).await.unwrap();
    assert!(sleep <= Duration::from_millis(200), "{sleep:?}");
    look(&engine, &mut looks).await;
    assert_eq!(on_routine(&engine, id).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_is_written_just_before_it_is_due_is_not_late() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let mut roles = Roles::new();
        roles.project(&two);
        roles.tasks.spawn(run(one.clone(), roles.stopped.clone()));
        roles.tasks.spawn(crate::runner::run(two.clone(), super::support::at_once(), roles.stopped.clone()));
        let bot = bot(&two).await;
        for _ in 0..3 {
            let (schedule, at) = once_in(&two, 1).await;
            let id = routine(&two, bot, &schedule).await;
            until("claimed", async || on_routine(&two, id).await.len() >= 2).await;
            let late = two.log().store_time().await.unwrap().since(at);
            assert!(late < 2_500_000, "{}: {late} µs late", place.backend);
        }
        roles.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_long_past_its_deadline_is_closed_whoever_holds_it_and_others_are_left() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let (late, well) = (due_routine(&engine, bot).await, due_routine(&engine, bot).await);
        let broken = due_routine(&engine, bot).await;
        let broken = run_now(&engine, broken).await;
        let runs: Vec<RunId> = vec![run_now(&engine, late).await, run_now(&engine, well).await];
        let now = engine.log().store_time().await.unwrap();
        for (run, deadline_us) in runs.iter().zip([now.plus_s(-61), now.plus_s(-59)]) {
            let worker = ProcessId::new(engine.world().uuid());
            let taken: New<RunEvent> = RunEvent::Taken { take: 1, worker, deadline_us }.into();
            append(&engine, &StreamName::run(*run), &[taken]).await;
        }
        projector::catch_up(&engine).await.unwrap();
        // One that cannot be read stands in front of them, and keeps nobody from being closed.
        let position = engine.log().read_stream(&StreamName::run(broken), 1, 1).await.unwrap()[0].position;
        place.damage(position).await;
        let fresh = place.engine().await;
        sweep(&fresh).await.unwrap();
        let ended = events::<RunEvent>(&fresh, &StreamName::run(runs[0])).await;
        let Some(RunEvent::Ended(ended)) = ended.last() else { panic!("{}: {ended:?}", place.backend) };
        assert_eq!((ended.outcome, ended.reason), (Outcome::TimedOut, Some(Reason::Deadline)));
        assert_eq!(events::<RunEvent>(&fresh, &StreamName::run(runs[1])).await.len(), 2);
        // Its routine is free.
        assert!(fresh.run_now(late, &me(), None).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_whose_main_part_is_gone_ends() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let Roles { stop, stopped, mut tasks } = Roles::new();
    tasks.spawn(run(engine.clone(), stopped.clone()));
    tasks.spawn(crate::reactor::run(engine.clone(), stopped.clone()));
    tasks.spawn(projector::run(engine.clone(), stopped.clone()));
    tasks.spawn(crate::runner::run(engine.clone(), super::support::at_once(), stopped));
    drop(stop);
    let ended = tokio::time::timeout(Duration::from_secs(5), tasks.join_all()).await;
    assert!(ended.is_ok());
}
