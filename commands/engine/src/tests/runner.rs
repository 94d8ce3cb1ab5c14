//! Runners: every execution ends, however it goes, and a runner that is gone is given up.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use midwatch_commands::run::Run;
use midwatch_events::{
    New, StreamName,
    engine::Role,
    id::{ProcessId, RunId},
    run::{Outcome, Reason, RunContent, RunEvent},
};
use midwatch_log::{Filter, lease};

use super::support::{
    Does, Fast, Place, Roles, append, at_once, bot, done, due_routine, events, me, new_routine, run_now, until,
};
use crate::{
    Engine, projector,
    runner::{self, Executor, waiting::Waiting},
    runs,
};

async fn ending(engine: &Engine, run: RunId) -> Option<(Outcome, Option<Reason>)> {
    engine.load::<Run>(&StreamName::run(run)).await.unwrap().state.ended
}

async fn ended(engine: &Engine, run: RunId) -> (Outcome, Option<Reason>) {
    until("ended", async || ending(engine, run).await.is_some()).await;
    ending(engine, run).await.unwrap()
}

async fn running(engine: &Engine, run: RunId) {
    let taken = async || engine.load::<Run>(&StreamName::run(run)).await.unwrap().state.take == 1;
    until("taken", taken).await;
}

fn roles(engine: &Engine, executor: Arc<dyn Executor>) -> Roles {
    let mut roles = Roles::new();
    roles.project(engine);
    roles.tasks.spawn(runner::run(engine.clone(), executor, roles.stopped.clone()));
    roles
}

async fn a_run(engine: &Engine) -> RunId {
    let bot = bot(engine).await;
    let routine = due_routine(engine, bot).await;
    run_now(engine, routine).await
}

/// Goes on for ever, and says so.
fn never() -> Arc<dyn Executor> {
    Arc::new(Does(|job| {
        Box::pin(async move {
            let _busy = job.progress.busy();
            std::future::pending().await
        })
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_panics_ends_its_run_and_the_next_goes_on() {
    let inside: fn() -> Arc<dyn Executor> = || Arc::new(Does(|_| Box::pin(async { panic!("in its midst") })));
    let before: fn() -> Arc<dyn Executor> = || Arc::new(Does(|_| panic!("before it began")));
    for executor in [inside, before] {
        for place in Place::each().await {
            let engine = place.engine().await;
            let roles = roles(&engine, executor());
            for _ in 0..2 {
                let run = a_run(&engine).await;
                assert_eq!(ended(&engine, run).await, (Outcome::Failed, Some(Reason::Error)), "{}", place.backend);
            }
            until("no lease", async || lease::read_all(engine.log()).await.unwrap().is_empty()).await;
            roles.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_never_ends_is_over_at_its_deadline_or_when_it_is_called_off() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let roles = roles(&engine, never());
        let bot = bot(&engine).await;
        let mut new = new_routine(bot, super::support::FAR);
        new.limits.deadline_s = 1;
        let routine = engine.create_routine(&new, &me(), None).await.unwrap().value;
        let run = run_now(&engine, routine).await;
        assert_eq!(ended(&engine, run).await, (Outcome::TimedOut, Some(Reason::Deadline)), "{}", place.backend);

        let run = a_run(&engine).await;
        running(&engine, run).await;
        engine.cancel_run(run, &me()).await.unwrap();
        // It stops, its lease is gone, and its ending is the one it was given.
        until("no lease", async || lease::read_all(engine.log()).await.unwrap().is_empty()).await;
        assert_eq!(ended(&engine, run).await, (Outcome::Cancelled, Some(Reason::Person)));
        assert_eq!(events::<RunEvent>(&engine, &StreamName::run(run)).await.len(), 3);
        roles.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ending_too_long_for_an_event_is_cut_and_recorded() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let executor = Does(|_| {
        let long = "ä".repeat(200_000);
        Box::pin(async { runner::Ending { error: Some(long.clone()), headline: long, ..done() } })
    });
    let roles = roles(&engine, Arc::new(executor));
    let run = a_run(&engine).await;
    assert_eq!(ended(&engine, run).await.0, Outcome::Succeeded);
    let last = engine.log().read_stream_back(&StreamName::run(run), u64::MAX, 1).await.unwrap().remove(0);
    let Some(RunContent::Ended { error: Some(error), .. }) = last.content::<RunEvent>().unwrap() else { panic!() };
    assert!(error.ends_with("(cut: 400000 bytes)"));
    roles.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runners_take_each_run_once() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let both = [roles(&engines[0], at_once()), roles(&engines[1], at_once())];
        let bot = bot(&engines[0]).await;
        let mut runs = Vec::new();
        for n in 0..20 {
            let routine = due_routine(&engines[n % 2], bot).await;
            runs.push(run_now(&engines[n % 2], routine).await);
        }
        for run in runs {
            assert_eq!(ended(&engines[0], run).await, (Outcome::Succeeded, None));
            let said = events::<RunEvent>(&engines[0], &StreamName::run(run)).await;
            assert!(matches!(said[..], [RunEvent::Opened(_), RunEvent::Taken { .. }, RunEvent::Ended(_)]), "{said:?}");
        }
        for roles in both {
            roles.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_read_keeps_no_other_from_being_taken() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let broken = a_run(&engine).await;
        let newer = a_run(&engine).await;
        let well = a_run(&engine).await;
        projector::catch_up(&engine).await.unwrap();
        let position = engine.log().read_stream(&StreamName::run(broken), 1, 1).await.unwrap()[0].position;
        place.damage(position).await;
        super::projector::newer_event(&engine, &StreamName::run(newer)).await;
        // Its own memory of the streams is empty.
        let fresh = place.engine().await;
        let roles = roles(&fresh, at_once());
        assert_eq!(ended(&fresh, well).await, (Outcome::Succeeded, None), "{}", place.backend);
        roles.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_gives_back_what_is_not_done() {
    let place = Place::sqlite();
    let engine = place.engine_in(Fast::world(20)).await;
    let roles = roles(&engine, never());
    let run = a_run(&engine).await;
    running(&engine, run).await;
    roles.end().await;
    assert_eq!(ending(&engine, run).await, Some((Outcome::Abandoned, Some(Reason::Lease))));
    assert!(lease::read_all(engine.log()).await.unwrap().is_empty());
}

/// So many times as fast goes time in these processes.
const TIMES: u32 = 15;

/// S2, S4: its window has run, and the next one starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_process_died_is_given_up_within_ninety_seconds_and_not_before_sixty() {
    for place in Place::each().await {
        let dead = place.engine().await;
        let roles_of_dead = roles(&dead, never());
        let run = a_run(&dead).await;
        running(&dead, run).await;
        until("leased", async || lease::read_all(dead.log()).await.unwrap().len() == 1).await;
        until("shown", async || !runs::in_states(&dead, &["running"], 9).await.unwrap().is_empty()).await;
        // As a SIGKILL would: nothing is said, nothing is given back; the lease row stays.
        let leases = lease::read_all(dead.log()).await.unwrap();
        drop(roles_of_dead);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let left = leases[0];
        lease::beat(dead.log(), left.run, left.take, left.beat).await.unwrap();

        let world = Fast::world(TIMES);
        let clock = Arc::clone(&world.clock);
        let other = place.engine_in(world).await;
        let began = clock.monotonic();
        let roles = roles(&other, at_once());
        assert_eq!(ended(&other, run).await, (Outcome::Abandoned, Some(Reason::Lease)), "{}", place.backend);
        let took = clock.monotonic() - began;
        assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(90), "{}: {took:?}", place.backend);
        roles.end().await;
    }
}

/// S9.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_renewed_is_not_given_up() {
    let place = Place::sqlite();
    let (holder, other) = (place.engine_in(Fast::world(TIMES)).await, place.engine_in(Fast::world(TIMES)).await);
    let holding = roles(&holder, never());
    let run = a_run(&holder).await;
    running(&holder, run).await;
    let watching = roles(&other, at_once());
    // A minute and a half, long enough to be given up.
    tokio::time::sleep(Duration::from_secs(90) / TIMES).await;
    assert_eq!(ending(&other, run).await, None);
    watching.end().await;
    holding.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_cannot_renew_stops_by_itself_before_others_give_it_up() {
    let place = Place::sqlite();
    let engine = place.engine_in(Fast::world(TIMES)).await;
    let holding = roles(&engine, never());
    let run = a_run(&engine).await;
    running(&engine, run).await;
    until("leased", async || lease::read_all(engine.log()).await.unwrap().len() == 1).await;
    // Another take holds the lease: this one cannot be renewed any more.
    lease::beat(engine.log(), run.uuid(), 2, 1).await.unwrap();
    let clock = Arc::clone(&engine.world().clock);
    let began = clock.monotonic();
    // It lets go of it, and as it holds no run any more it watches this one like any other.
    assert_eq!(ended(&engine, run).await, (Outcome::Abandoned, Some(Reason::Lease)));
    let took = clock.monotonic() - began;
    assert!(took >= Duration::from_secs(60), "{took:?}");
    holding.end().await;
}

#[tokio::test]
async fn a_run_of_a_runner_that_was_given_up_cannot_be_ended_by_it() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let run = a_run(&engine).await;
    let deadline_us = engine.log().store_time().await.unwrap().plus_s(60);
    let worker = ProcessId::new(engine.world().uuid());
    let taken: New<RunEvent> = RunEvent::Taken { take: 1, worker, deadline_us }.into();
    append(&engine, &StreamName::run(run), &[taken]).await;
    let end = |take| midwatch_commands::run::End {
        take: Some(take),
        outcome: Outcome::Succeeded,
        reason: None,
        headline: "late".to_owned(),
        error: None,
        now: deadline_us,
    };
    for stale in [0, 2] {
        let refused = super::support::refused(engine.settle(run, end(stale), &me()).await);
        assert_eq!(refused, midwatch_commands::Refusal::Stale);
    }
    assert!(engine.settle(run, end(1), &me()).await.is_ok());
    let again = super::support::refused(engine.settle(run, end(1), &me()).await);
    assert_eq!(again, midwatch_commands::Refusal::RunEnded);
}

// What both take costs the slower one three ways to the database, for every run.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_runners_each_takes_its_own_runs_and_later_what_the_other_leaves() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let mut waiting = [Waiting::default(), Waiting::default()];
        for (engine, waiting) in engines.iter().zip(&mut waiting) {
            engine.start_process("test", &[Role::Runner]).await.unwrap();
            waiting.say(engine).await;
        }
        let bot = bot(&engines[0]).await;
        projector::catch_up(&engines[0]).await.unwrap();
        let mut runs = BTreeSet::new();
        for _ in 0..24 {
            let routine = due_routine(&engines[0], bot).await;
            runs.insert(run_now(&engines[0], routine).await);
        }
        // The projection knows of none of them: what is taken was seen in the ledger.
        let opened = Filter { event_types: vec!["run.opened".to_owned()], ..Filter::default() };
        let (opened, _) = engines[0].log().read_all(0, 500, &opened).await.unwrap();
        let mut taken = [Vec::new(), Vec::new()];
        for ((engine, waiting), taken) in engines.iter().zip(&mut waiting).zip(&mut taken) {
            waiting.opened(engine, &opened).await;
            waiting.take(engine, taken, 256).await.unwrap();
        }
        let [one, two] = taken.map(BTreeSet::from_iter);
        assert!(one.is_disjoint(&two), "{}: {one:?} {two:?}", place.backend);
        assert_eq!(&one | &two, runs, "{}", place.backend);

        // The second does not come to it.
        tokio::time::sleep(Duration::from_millis(600)).await;
        let mut left = Vec::new();
        waiting[0].take(&engines[0], &mut left, 256).await.unwrap();
        let left = BTreeSet::from_iter(left);
        assert!(left.is_subset(&two) && left.len() == two.len().min(16), "{}: {left:?} {two:?}", place.backend);
    }
}
