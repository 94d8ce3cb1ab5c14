//! Promise 1: one live run. Promise 2: one window, one ending. Promise 7: off means off.

use std::sync::atomic::{AtomicU32, Ordering};

use midwatch_commands::{Refusal, routine::RoutineCommand, target::claim_key};
use midwatch_events::{
    New, StreamName,
    routine::{RoutineEvent, RunClaimed},
    run::{Cause, Outcome, Reason, RunEvent},
};
use tokio::{runtime::Handle, task::block_in_place};

use super::support::{Place, bot, due_routine, events, me, on_routine, once_in, refused, routine, run_now, verified};
use crate::{Engine, EngineError, Request, handle::Plan};

fn claims(events: &[RoutineEvent]) -> Vec<RunClaimed> {
    let claims = events.iter().filter_map(|event| match event {
        RoutineEvent::RunClaimed(claim) => Some(claim.clone()),
        _ => None,
    });
    claims.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_many_look_at_is_run_once() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let (schedule, at) = once_in(&engines[0], 3).await;
        let id = routine(&engines[0], bot, &schedule).await;
        super::support::until("due", async || engines[0].log().store_time().await.unwrap() >= at).await;
        let ticks = (0..12).map(|n| engines[n % 3].tick(id));
        let ticked = futures_util::future::join_all(ticks).await;
        let opened = ticked.iter().filter(|done| done.as_ref().unwrap().value.run.is_some()).count();
        let claimed = claims(&on_routine(&engines[0], id).await);
        assert_eq!((opened, claimed.len()), (1, 1), "{}", place.backend);
        assert_eq!(claimed[0].window_us, Some(at));
        assert_eq!(events::<RunEvent>(&engines[0], &StreamName::run(claimed[0].run)).await.len(), 1);
        verified(&engines[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_whose_run_has_ended_is_lost_by_its_key() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let id = due_routine(&engine, bot).await;
        let first = engine.tick(id).await.unwrap();
        let run = first.value.run.unwrap();
        engine.cancel_run(run, &me()).await.unwrap();
        let claim = claims(&on_routine(&engine, id).await).remove(0);
        // A process that knows nothing of it, and even has the version right.
        let stream = StreamName::routine(id);
        let mut plan = Plan::default();
        let again: New<RoutineEvent> = RoutineEvent::RunClaimed(claim.clone()).into();
        let version = engine.log().version(&stream).await.unwrap();
        plan.add(engine.world(), &stream, version, &[again], &me()).unwrap();
        plan.key(claim_key(&id.to_string(), &[&claim.window_us.unwrap().0.to_string()]));
        let appended = plan.commit(engine.log()).await.unwrap().unwrap();
        assert!(appended.duplicate);
        assert_eq!((appended.last(), engine.log().version(&stream).await.unwrap()), (first.position, version));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halt_between_load_and_append_is_not_passed() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let bot = bot(&one).await;
        let id = due_routine(&one, bot).await;
        let tries = AtomicU32::new(0);
        let run = midwatch_events::id::RunId::new(uuid::Uuid::from_u128(5));
        let origin = me();
        let claimed = one.claim_on_routine(id, &origin, None, |_| {
            // Loaded, and not appended yet: now the halt is answered.
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                block_in_place(|| Handle::current().block_on(two.halt_scheduling(&me(), "drill", None))).unwrap();
            }
            RoutineCommand::RunNow { run, process: one.process() }
        });
        assert!(matches!(refused(claimed.await), Refusal::Halted), "{}", place.backend);
        assert_eq!(tries.load(Ordering::Relaxed), 2);
        assert!(matches!(refused(one.tick(id).await), Refusal::Halted));
        assert_eq!(on_routine(&one, id).await.len(), 1);
        // Lifted: the window lay before the lift and does not exist.
        two.lift_halt(&me(), None).await.unwrap();
        one.tick(id).await.unwrap();
        let said = on_routine(&one, id).await;
        assert!(matches!(said[..], [_, RoutineEvent::Rearmed { .. }]), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_race_a_halt_and_its_lift_are_before_the_one_or_after_the_other() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let bot = bot(&one).await;
        let mut routines = Vec::new();
        for _ in 0..30 {
            routines.push(due_routine(&one, bot).await);
        }
        let ticks = futures_util::future::join_all(routines.iter().map(|id| one.tick(*id)));
        let switch = async {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            let halted = two.halt_scheduling(&me(), "drill", None).await.unwrap().position;
            (halted, two.lift_halt(&me(), None).await.unwrap().position)
        };
        let (ticked, (halted, _)) = tokio::join!(ticks, switch);
        for (id, done) in routines.iter().zip(ticked) {
            let claimed = claims(&on_routine(&one, *id).await);
            match done {
                Ok(done) if done.value.run.is_some() => assert!(done.position < halted, "{}", place.backend),
                Ok(_) | Err(EngineError::Refused(Refusal::Halted)) => assert!(claimed.is_empty()),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn at_once(
    engines: [&Engine; 2],
    id: midwatch_events::id::RoutineId,
    request: &Request,
) -> Vec<midwatch_events::id::RunId> {
    let origin = me();
    let asked = (0..8).map(|n| engines[n % 2].run_now(id, &origin, Some(request)));
    futures_util::future::join_all(asked).await.into_iter().map(|done| done.unwrap().value).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_to_run_now_is_one_run_however_often_it_is_sent() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let bot = bot(&one).await;
        let id = due_routine(&one, bot).await;
        let other = due_routine(&one, bot).await;
        let request = Request::new("now", &[b"POST", id.to_string().as_bytes()]);
        let runs = at_once([&one, &two], id, &request).await;
        assert!(runs.iter().all(|run| *run == runs[0]), "{}", place.backend);
        let busy = refused(two.run_now(id, &me(), None).await);
        assert_eq!(busy, Refusal::Busy { live: runs[0] });
        one.cancel_run(runs[0], &me()).await.unwrap();
        // Free again, and still the same request.
        assert_eq!(at_once([&one, &two], id, &request).await[0], runs[0]);
        let claimed = claims(&on_routine(&one, id).await);
        assert_eq!((claimed.len(), claimed[0].cause), (1, Cause::Person));
        // The same key for another routine is another request.
        let elsewhere = Request::new("now", &[b"POST", other.to_string().as_bytes()]);
        let reused = one.run_now(other, &me(), Some(&elsewhere)).await.unwrap_err();
        assert!(matches!(reused, EngineError::KeyReused), "{}: {reused}", place.backend);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_once_and_its_late_ending_frees_nobody() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let bot = bot(&one).await;
        let id = due_routine(&one, bot).await;
        let run = run_now(&one, id).await;
        let origin = me();
        let ends = futures_util::future::join_all((0..6).map(|n| [&one, &two][n % 2].cancel_run(run, &origin))).await;
        assert_eq!(ends.iter().filter(|end| end.is_ok()).count(), 1, "{}", place.backend);
        let next = run_now(&two, id).await;
        assert!(matches!(refused(one.cancel_run(run, &me()).await), Refusal::RunEnded));
        assert_eq!(refused(one.run_now(id, &me(), None).await), Refusal::Busy { live: next });
        let ended = events::<RunEvent>(&one, &StreamName::run(run)).await;
        let RunEvent::Ended(ended) = ended.last().unwrap() else { panic!("{ended:?}") };
        assert_eq!((ended.outcome, ended.reason), (Outcome::Cancelled, Some(Reason::Person)));
        verified(&two).await;
    }
}
