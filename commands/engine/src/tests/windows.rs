//! The options of a routine through the real clock, reactor and runner: overlap, catch-up, held windows, retries, and
//! what a Bot or an owner that goes means.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use midwatch_commands::{
    Refusal,
    bot::BotCommand,
    delivery::{Delivery, Fate},
    routine::Routine,
    run::Run,
    trigger::TriggerCommand,
};
use midwatch_events::{
    New, StreamName,
    id::{BotId, RoutineId, RunId, UserId},
    routine::{DropReason, Limits, Missed, MissedReason, Overlap, Retry, RoutineEvent, RunClaimed, SuspendCause, Work},
    run::{Cause, Outcome, Reason, RunEvent, WorkKind},
    trigger::{Intake, TriggerEvent},
    user::Access,
};

use super::support::{
    Does, Fast, Place, Roles, append, at_once, bot, done, due_routine, events, me, new_routine, new_trigger,
    on_routine, on_trigger, open_trigger, posted, refused, run_now, until,
};
use crate::{
    Engine, EngineError,
    claims::Ticking,
    clock, projector,
    runner::{self, Ending, Executor, Job},
    triggers::NewTrigger,
    world::Boxed,
};

/// A routine whose windows of the last minutes stand as its next one, as if nobody had looked since.
async fn overdue(engine: &Engine, bot: BotId, minutes: i64, limits: Limits) -> RoutineId {
    let (id, now) = (RoutineId::new(engine.world().uuid()), engine.log().store_time().await.unwrap());
    let last_minute = now.seconds() - now.seconds().rem_euclid(60);
    let next = midwatch_events::Micros((last_minute - minutes * 60) * 1_000_000);
    let facts = RoutineEvent::Created {
        routine: id,
        name: "overdue".to_owned(),
        owner: crate::deployment::first_admin(engine.namespace()),
        bot,
        // None that comes while the case goes on.
        schedule: serde_json::json!({
            "kind": "every", "zone": "UTC", "minutes": 5, "anchor": "2026-01-01T00:00:00Z", "ends_at": midwatch_events::Micros((now.seconds() - 1) * 1_000_000).to_string(),
        })
        .to_string(),
        work: WorkKind::Recording,
        limits,
        anchor_us: next,
        next_us: Some(midwatch_events::Micros(next.0 - next.0.rem_euclid(300_000_000))),
    };
    let recording = r#"{"steps":[{"tool":"computer_list_files","arguments":{}}]}"#.to_owned();
    let work = Work { instruction: None, recording: Some(recording) };
    let content = midwatch_events::routine::RoutineContent::Created(work);
    append(engine, &StreamName::routine(id), &[New::with(facts, content)]).await;
    id
}

fn claims(events: &[RoutineEvent]) -> Vec<RunClaimed> {
    let claims = events.iter().filter_map(|event| match event {
        RoutineEvent::RunClaimed(claim) => Some(claim.clone()),
        _ => None,
    });
    claims.collect()
}

fn all_roles(engine: &Engine, executor: Arc<dyn Executor>) -> Roles {
    let mut roles = Roles::new();
    roles.project(engine);
    roles.tasks.spawn(clock::run(engine.clone(), roles.stopped.clone()));
    roles.tasks.spawn(crate::reactor::run(engine.clone(), roles.stopped.clone()));
    roles.tasks.spawn(runner::run(engine.clone(), executor, roles.stopped.clone()));
    roles
}

async fn ended(engine: &Engine, run: RunId) -> (Outcome, Option<Reason>) {
    let state = async || engine.load::<Run>(&StreamName::run(run)).await.unwrap().state.ended;
    until("ended", async || state().await.is_some()).await;
    state().await.unwrap()
}

fn never() -> Arc<dyn Executor> {
    Arc::new(Does(|job| {
        Box::pin(async move {
            let _busy = job.progress.busy();
            std::future::pending().await
        })
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_takes_the_place_of_a_live_run_in_one_append() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let mut new = new_routine(bot, r#"{"kind":"every","zone":"UTC","minutes":1,"anchor":"2026-01-01T00:00:00Z"}"#);
        new.limits.overlap = Overlap::CancelLive;
        let id = engine.create_routine(&new, &me(), None).await.unwrap().value;
        let old = run_now(&engine, id).await;
        let roles = all_roles(&engine, never());
        assert_eq!(ended(&engine, old).await, (Outcome::Cancelled, Some(Reason::Replaced)), "{}", place.backend);
        let said = on_routine(&engine, id).await;
        let window = claims(&said).into_iter().find(|claim| claim.cause == Cause::Schedule).unwrap();
        let state = engine.load::<Routine>(&StreamName::routine(id)).await.unwrap().state;
        assert_eq!((state.target.live, state.target.failures), (Some(window.run), 0));
        roles.end().await;
        super::support::verified(&engine).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_waited_runs_when_the_live_run_ends() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let mut new = new_routine(bot, r#"{"kind":"every","zone":"UTC","minutes":1,"anchor":"2026-01-01T00:00:00Z"}"#);
        new.limits.overlap = Overlap::QueueOne;
        let id = engine.create_routine(&new, &me(), None).await.unwrap().value;
        let old = run_now(&engine, id).await;
        let roles = all_roles(&engine, never());
        let queued = async || engine.load::<Routine>(&StreamName::routine(id)).await.unwrap().state.queued;
        until("queued", async || queued().await.is_some()).await;
        let window = queued().await.unwrap();
        engine.cancel_run(old, &me()).await.unwrap();
        until("runs", async || claims(&on_routine(&engine, id).await).iter().any(|c| c.window_us == Some(window)))
            .await;
        assert_eq!(queued().await, None, "{}", place.backend);
        roles.end().await;
    }
}

/// A machine that was down: one catch-up for each routine, not more than ten a second, by two processes; and the
/// dashboard's reads and a pause are answered meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_each_routine_catches_up_once_and_ten_a_second_do() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let missed = Missed::RunOnceWithin(7_200);
        let mut routines = Vec::new();
        for _ in 0..25 {
            let limits = Limits { grace_s: 0, missed, ..Limits::default() };
            routines.push(overdue(&engines[0], bot, 61, limits).await);
        }
        projector::catch_up(&engines[0]).await.unwrap();
        let roles = [all_roles(&engines[0], at_once()), all_roles(&engines[1], at_once())];
        let paused = *routines.last().unwrap();
        until("first", async || !claims(&on_routine(&engines[0], routines[0]).await).is_empty()).await;
        engines[1].pause_routine(paused, "enough", &me(), None).await.ok();
        let mut at = Vec::new();
        for id in &routines[..24] {
            until("caught up", async || !claims(&on_routine(&engines[1], *id).await).is_empty()).await;
            let recorded = engines[0].log().read_stream(&StreamName::routine(*id), 1, 100).await.unwrap();
            let caught: Vec<_> = recorded
                .iter()
                .filter(|event| {
                    matches!(event.facts(), Ok(RoutineEvent::RunClaimed(claim)) if claim.cause == Cause::CatchUp)
                })
                .map(|event| event.recorded_at)
                .collect();
            assert_eq!(caught.len(), 1, "{}", place.backend);
            assert!(matches!(recorded[1].facts(), Ok(RoutineEvent::WindowsMissed { count: 11.., .. })));
            at.push(caught[0]);
        }
        at.sort();
        let most = at.iter().map(|from| at.iter().filter(|at| (0..900_000).contains(&at.since(*from))).count()).max();
        assert!(most.unwrap() <= 11, "{}: {most:?} in less than a second", place.backend);
        for roles in roles {
            roles.end().await;
        }
    }
}

/// No runner: held once; it runs when one comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_window_without_a_runner_is_held_and_runs_when_one_comes() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let id = due_routine(&engine, bot).await;
        let mut roles = Roles::new();
        roles.project(&engine);
        roles.tasks.spawn(clock::run(engine.clone(), roles.stopped.clone()));
        let held = async || matches!(on_routine(&engine, id).await[..], [_, RoutineEvent::WindowHeld { .. }, ..]);
        until("held", held).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let said = on_routine(&engine, id).await;
        assert_eq!(said.len(), 2, "{}: said once: {said:?}", place.backend);
        let reason = MissedReason::NoRunner;
        assert!(matches!(said[1], RoutineEvent::WindowHeld { reason: found, .. } if found == reason));
        roles.tasks.spawn(runner::run(engine.clone(), at_once(), roles.stopped.clone()));
        until("runs", async || !claims(&on_routine(&engine, id).await).is_empty()).await;
        roles.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_nobody_could_run_in_time_is_missed_with_that_reason() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let id = due_routine(&engine, bot).await;
        let mut now = engine.log().store_time().await.unwrap();
        for runner in [false, false] {
            engine.tick_as(id, Ticking { now, runner, turn: true }).await.unwrap();
            now = now.plus_s(700);
        }
        let said = on_routine(&engine, id).await;
        let reason = MissedReason::NoRunner;
        let [_, RoutineEvent::WindowHeld { .. }, RoutineEvent::WindowsMissed { reason: found, .. }, ..] = &said[..]
        else {
            panic!("{}: {said:?}", place.backend)
        };
        assert_eq!(*found, reason);
    }
}

/// Its first executions cannot reach the Bot.
struct Flaky {
    fails: u32,
    tried: AtomicU32,
    back: AtomicU32,
}

impl Executor for Flaky {
    fn execute(&self, _: Job) -> Boxed<'static, Ending> {
        let failed = self.tried.fetch_add(1, Ordering::Relaxed) < self.fails;
        Box::pin(async move {
            if !failed {
                return done();
            }
            let (outcome, reason) = (Outcome::Failed, Some(Reason::BotUnreachable));
            Ending { outcome, reason, headline: "no answer".to_owned(), error: Some("connection refused".to_owned()) }
        })
    }

    fn answers(&self, _: &midwatch_commands::bot::Bot) -> Boxed<'static, bool> {
        let back = self.back.load(Ordering::Relaxed) > 0;
        Box::pin(async move { back })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_failed_before_anything_acted_is_tried_again_with_longer_waits() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let mut new = new_routine(bot, super::support::FAR);
        new.limits.retry = Some(Retry { times: 2, backoff_s: 1 });
        let id = engine.create_routine(&new, &me(), None).await.unwrap().value;
        for (fails, outcome) in [(2, Outcome::Succeeded), (9, Outcome::Failed)] {
            let executor = Flaky { fails, tried: AtomicU32::new(0), back: AtomicU32::new(1) };
            let roles = all_roles(&engine, Arc::new(executor));
            let run = run_now(&engine, id).await;
            assert_eq!(ended(&engine, run).await.0, outcome, "{}", place.backend);
            let recorded = engine.log().read_stream(&StreamName::run(run), 1, 100).await.unwrap();
            let waits: Vec<i64> = recorded
                .iter()
                .filter_map(|event| match event.facts().unwrap() {
                    RunEvent::AttemptFailed { retry_at_us, .. } => Some(retry_at_us.since(event.recorded_at) / 100_000),
                    _ => None,
                })
                .collect();
            assert!(matches!(waits[..], [8..=10, 18..=20]), "{waits:?}");
            roles.end().await;
        }
    }
}

/// A Bot that does not answer: its run fails with that reason, later windows of all its routines are held, and run when
/// it answers again. Recordings need no endpoint.
#[tokio::test(flavor = "multi_thread")]
async fn windows_of_a_bot_that_does_not_answer_are_held_until_it_does() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let mut new = new_routine(bot, super::support::FAR);
        new.work = Work { instruction: Some("look".to_owned()), recording: None };
        let first = engine.create_routine(&new, &me(), None).await.unwrap().value;
        let executor = Arc::new(Flaky { fails: 1, tried: AtomicU32::new(0), back: AtomicU32::new(0) });
        let roles = all_roles(&engine, Arc::clone(&executor) as Arc<dyn Executor>);
        let run = run_now(&engine, first).await;
        assert_eq!(ended(&engine, run).await, (Outcome::Failed, Some(Reason::BotUnreachable)), "{}", place.backend);
        let marked = async || {
            let stream = StreamName::bot(bot);
            engine.load::<midwatch_commands::bot::Bot>(&stream).await.unwrap().state.unreachable
        };
        until("marked", marked).await;
        new.schedule = r#"{"kind":"every","zone":"UTC","minutes":1,"anchor":"2026-01-01T00:00:00Z"}"#.to_owned();
        let second = engine.create_routine(&new, &me(), None).await.unwrap().value;
        let held = async || {
            let reason = MissedReason::BotUnreachable;
            on_routine(&engine, second)
                .await
                .iter()
                .any(|event| matches!(event, RoutineEvent::WindowHeld { reason: found, .. } if *found == reason))
        };
        until("held", held).await;
        let recording = due_routine(&engine, bot).await;
        until("a recording runs", async || !claims(&on_routine(&engine, recording).await).is_empty()).await;
        assert!(claims(&on_routine(&engine, second).await).is_empty());
        executor.back.store(1, Ordering::Relaxed);
        until("runs", async || !claims(&on_routine(&engine, second).await).is_empty()).await;
        roles.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn routines_of_a_retired_bot_or_a_revoked_owner_are_suspended_and_nothing_is_made_for_them() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let (gone, stays) = (bot(&engine).await, bot(&engine).await);
        let owner: UserId = engine.invite("Ada", Access::Member, &me(), None).await.unwrap().value;
        let of_bot = due_routine(&engine, gone).await;
        let mut new = new_routine(stays, super::support::FAR);
        new.owner = Some(owner);
        let of_owner = engine.create_routine(&new, &me(), None).await.unwrap().value;
        engine.change_bot(gone, &me(), None, BotCommand::Retire).await.unwrap();
        engine.revoke_user(owner, &me(), None).await.unwrap();
        // At a claim, before anybody has followed up the events.
        engine.tick(of_bot).await.unwrap();
        assert_eq!(suspended(&engine, of_bot).await, Some(SuspendCause::BotRetired), "{}", place.backend);
        let roles = all_roles(&engine, at_once());
        until("suspended", async || suspended(&engine, of_owner).await == Some(SuspendCause::OwnerRevoked)).await;
        assert_eq!(refused(engine.resume_routine(of_bot, &me(), None).await), Refusal::BotRetired);
        assert_eq!(refused(engine.resume_routine(of_owner, &me(), None).await), Refusal::OwnerRevoked);
        assert_eq!(refused(engine.run_now(of_owner, &me(), None).await), Refusal::OwnerRevoked);
        let made = engine.create_routine(&new_routine(gone, super::support::FAR), &me(), None).await;
        assert_eq!(refused(made), Refusal::BotRetired);
        assert!(matches!(refused(engine.create_routine(&new, &me(), None).await), Refusal::Invalid(_)));
        assert_eq!(engine.caller_by_session("x").await.unwrap(), None);
        roles.end().await;
    }
}

/// What waits for a retired Bot or a revoked owner is dropped, its door is closed, and nothing is made for it any more.
#[tokio::test(flavor = "multi_thread")]
async fn triggers_of_a_retired_bot_or_a_revoked_owner_start_nothing() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let (gone, stays) = (bot(&engine).await, bot(&engine).await);
        let owner: UserId = engine.invite("Ada", Access::Member, &me(), None).await.unwrap().value;
        let of_bot = open_trigger(&engine, &new_trigger(gone, Intake::default())).await;
        let new = NewTrigger { owner: Some(owner), ..new_trigger(stays, Intake::default()) };
        let of_owner = open_trigger(&engine, &new).await;
        let mut waiting = Vec::new();
        for trigger in [of_bot, of_owner] {
            waiting.push(engine.receive(trigger, &posted(Some("1"), "x")).await.unwrap().delivery);
        }
        engine.change_bot(gone, &me(), None, BotCommand::Retire).await.unwrap();
        engine.revoke_user(owner, &me(), None).await.unwrap();
        let roles = all_roles(&engine, at_once());
        for (trigger, delivery) in [of_bot, of_owner].into_iter().zip(waiting) {
            let fate = async || engine.load::<Delivery>(&StreamName::delivery(delivery)).await.unwrap().state.fate;
            until("dropped", async || fate().await == Fate::Dropped(DropReason::TargetGone)).await;
            let said = on_trigger(&engine, trigger).await;
            assert!(!said.iter().any(|event| matches!(event, TriggerEvent::RunClaimed(_))), "{}", place.backend);
            assert!(matches!(engine.receive(trigger, &posted(Some("2"), "y")).await, Err(EngineError::Refused(_))));
        }
        let resume = async |trigger| engine.change_trigger(trigger, &me(), None, TriggerCommand::Resume).await;
        assert_eq!(refused(resume(of_bot).await), Refusal::BotRetired);
        assert_eq!(refused(resume(of_owner).await), Refusal::OwnerRevoked);
        let made = engine.create_trigger(&new_trigger(gone, Intake::default()), &me(), None).await;
        assert_eq!(refused(made.map(|_| ())), Refusal::BotRetired);
        roles.end().await;
    }
}

async fn suspended(engine: &Engine, id: RoutineId) -> Option<SuspendCause> {
    on_routine(engine, id).await.into_iter().find_map(|event| match event {
        RoutineEvent::Suspended { cause } => Some(cause),
        _ => None,
    })
}

/// A Bot is retired while somebody makes routines for it: each is either refused or suspended.
#[tokio::test(flavor = "multi_thread")]
async fn no_routine_is_left_that_was_made_at_the_very_moment_its_bot_was_retired() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let bot = bot(&one).await;
        let roles = all_roles(&one, at_once());
        let new = new_routine(bot, super::support::FAR);
        let origin = me();
        let making = futures_util::future::join_all((0..20).map(|_| one.create_routine(&new, &origin, None)));
        let (made, retired) = tokio::join!(making, two.change_bot(bot, &origin, None, BotCommand::Retire));
        let retired = retired.unwrap().position;
        for made in made {
            match made {
                Ok(made) => {
                    assert!(made.position < retired, "{}", place.backend);
                    until("suspended", async || suspended(&one, made.value).await.is_some()).await;
                }
                Err(error) => assert_eq!(refused::<()>(Err(error)), Refusal::BotRetired),
            }
        }
        roles.end().await;
    }
}

/// A run stops making progress after four calls and never ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_makes_no_progress_is_over_after_a_minute() {
    const TIMES: u32 = 30;
    let place = Place::sqlite();
    let engine = place.engine_in(Fast::world(TIMES)).await;
    let clock = Arc::clone(&engine.world().clock);
    let executor: Arc<dyn Executor> = Arc::new(Does(|job| {
        Box::pin(async move {
            let clock = &job.engine.world().clock;
            for _ in 0..4 {
                clock.sleep(Duration::from_secs(20)).await;
                job.progress.goes_on(clock.monotonic());
            }
            std::future::pending().await
        })
    }));
    let roles = all_roles(&engine, executor);
    let bot = bot(&engine).await;
    let id = engine.create_routine(&new_routine(bot, super::support::FAR), &me(), None).await.unwrap().value;
    let began = clock.monotonic();
    let run = run_now(&engine, id).await;
    assert_eq!(ended(&engine, run).await, (Outcome::TimedOut, Some(Reason::Silence)));
    let took = clock.monotonic().saturating_sub(began);
    assert!(took >= Duration::from_secs(140) && took < Duration::from_secs(200), "{took:?}");
    roles.end().await;
}

/// The report of a run that was given up is shown, once; an older run's changes nothing of the live one.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_comes_too_late_is_shown_and_touches_nothing() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let id = super::support::routine(&engine, bot, super::support::FAR).await;
        let executor: Arc<dyn Executor> = Arc::new(Does(|job| {
            Box::pin(async move {
                // Given up by others while it worked; it does not hear of it.
                let end = midwatch_commands::run::End {
                    take: None,
                    outcome: Outcome::Abandoned,
                    reason: Some(Reason::Lease),
                    headline: "gone".to_owned(),
                    error: None,
                    now: job.engine.log().store_time().await.unwrap(),
                };
                job.engine.settle(job.run, end, &me()).await.unwrap();
                done()
            })
        }));
        let roles = all_roles(&engine, executor);
        let run = run_now(&engine, id).await;
        let said = async || events::<RunEvent>(&engine, &StreamName::run(run)).await;
        let late = async || matches!(said().await.last(), Some(RunEvent::ReportedLate { .. } | RunEvent::Ended(_)));
        until("over", late).await;
        roles.end().await;
        let state = engine.load::<Run>(&StreamName::run(run)).await.unwrap().state;
        assert_eq!(state.ended, Some((Outcome::Abandoned, Some(Reason::Lease))), "{}", place.backend);
        let next = run_now(&engine, id).await;
        // Once more, from whoever it was: refused, and the live run of the routine stays.
        let again = crate::handle::handle::<Run>(&engine, &StreamName::run(run), &me(), None, |run| {
            let end = midwatch_commands::run::End {
                take: Some(1),
                outcome: Outcome::Succeeded,
                reason: None,
                headline: "late".to_owned(),
                error: None,
                now: run.opened_at,
            };
            Ok(midwatch_commands::run::RunCommand::ReportLate { worker: run.worker.unwrap(), end })
        })
        .await;
        if state.reported_late {
            assert_eq!(refused(again), Refusal::Stale);
        } else {
            again.unwrap();
        }
        let live = engine.load::<Routine>(&StreamName::routine(id)).await.unwrap().state.target.live;
        assert_eq!(live, Some(next));
        projector::catch_up(&engine).await.unwrap();
        let row = projector::get::<midwatch_projections::runs::Runs>(&engine, &run.to_string()).await.unwrap().unwrap();
        assert_eq!((row.outcome, row.late.unwrap().outcome), (Some(Outcome::Abandoned), Outcome::Succeeded));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halt_that_stops_runs_ends_them_with_that_reason() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let roles = all_roles(&engine, never());
        let mut runs = Vec::new();
        for _ in 0..3 {
            let id = engine.create_routine(&new_routine(bot, super::support::FAR), &me(), None).await.unwrap().value;
            runs.push(run_now(&engine, id).await);
        }
        engine.halt_scheduling(&me(), "drill", None).await.unwrap();
        let mut stopped = engine.stop_everything(&me(), "drill", None).await.unwrap().value.runs;
        stopped.sort();
        runs.sort();
        assert_eq!(stopped, runs, "{}", place.backend);
        assert_eq!(ended(&engine, runs[0]).await, (Outcome::Cancelled, Some(Reason::Halt)));
        roles.end().await;
    }
}

/// One corrupt routine among fifty: the others run, and it is suspended with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn one_routine_that_cannot_run_holds_up_none_of_the_others() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let mut well = Vec::new();
        for _ in 0..49 {
            well.push(due_routine(&engine, bot).await);
        }
        let broken = overdue(&engine, bot, 0, Limits { grace_s: 600, ..Limits::default() }).await;
        let rescheduled = RoutineEvent::Rescheduled {
            schedule: r#"{"kind":"cron","zone":"UTC","expr":"61 * * * *"}"#.to_owned(),
            anchor_us: engine.log().store_time().await.unwrap(),
            next_us: Some(engine.log().store_time().await.unwrap()),
        };
        append(&engine, &StreamName::routine(broken), &[rescheduled.into()]).await;
        let roles = all_roles(&engine, at_once());
        for id in &well {
            until("ran", async || !claims(&on_routine(&engine, *id).await).is_empty()).await;
        }
        until("suspended", async || suspended(&engine, broken).await == Some(SuspendCause::NotEvaluable)).await;
        roles.end().await;
    }
}

/// Newer time-zone data, once for a release in a deployment.
#[tokio::test(flavor = "multi_thread")]
async fn a_window_of_older_time_zone_data_is_looked_for_again_when_a_clock_starts() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let daily = r#"{"kind":"weekly","zone":"America/Vancouver","days":["mon","tue","wed","thu","fri","sat","sun"],"times":["09:00"]}"#;
        let id = super::support::routine(&engine, bot, daily).await;
        let right = engine.load::<Routine>(&StreamName::routine(id)).await.unwrap().state.next.unwrap();
        // As older data had it, an hour later.
        let stored = RoutineEvent::Resumed { next_us: Some(right.plus_s(3_600)) };
        append(&engine, &StreamName::routine(id), &[stored.into()]).await;
        projector::catch_up(&engine).await.unwrap();
        clock::rearm(&engine).await.unwrap();
        let said = on_routine(&engine, id).await;
        assert!(
            matches!(said.last(), Some(RoutineEvent::Rearmed { next_us, tzdb: Some(_), .. }) if *next_us == Some(right))
        );
        clock::rearm(&engine).await.unwrap();
        assert_eq!(on_routine(&engine, id).await.len(), said.len(), "{}", place.backend);
    }
}
