//! Load, decide, append: many at once, again under the same key, and on what was looked at.

use std::collections::BTreeSet;

use midwatch_commands::{
    Refusal,
    routine::{Edit, Phase, Routine},
};
use midwatch_events::{StreamName, routine::RoutineEvent, user::UserEvent};
use tokio::task::JoinSet;

use super::support::{FAR, Place, bot, events, me, new_routine, on_routine, refused, routine, verified};
use crate::{EngineError, Request, deployment::first_admin};

#[tokio::test(flavor = "multi_thread")]
async fn of_many_callers_on_one_stream_each_is_applied_once() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let mut callers = JoinSet::new();
        for n in 0..128 {
            let engine = engines[n % 2].clone();
            callers.spawn(async move { engine.issue_link(None, &me()).await.map(|done| done.position) });
        }
        let answered: BTreeSet<u64> = callers.join_all().await.into_iter().map(|position| position.unwrap()).collect();
        assert_eq!(answered.len(), 128, "{}", place.backend);
        let stream = StreamName::user(first_admin(engines[0].namespace()));
        let links: BTreeSet<_> = events::<UserEvent>(&engines[0], &stream)
            .await
            .into_iter()
            .filter_map(|event| if let UserEvent::LinkIssued { link, .. } = event { Some(link) } else { None })
            .collect();
        assert_eq!(links.len(), 128, "{}", place.backend);
        verified(&engines[1]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_again_is_the_first_ones_success_whatever_is_so_now() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let bot = bot(&one).await;
        let new = new_routine(bot, FAR);
        let create = Request::new("create", &[b"POST"]);
        let made = one.create_routine(&new, &me(), Some(&create)).await.unwrap();
        let id = made.value;
        let pause = Request::new("pause", &[b"POST", b"pause"]);
        let paused = one.pause_routine(id, "tired", &me(), Some(&pause)).await.unwrap();
        assert!(!paused.duplicate);
        // It is paused already, which would be refused.
        let again = two.pause_routine(id, "tired", &me(), Some(&pause)).await.unwrap();
        assert_eq!((again.position, again.duplicate), (paused.position, true), "{}", place.backend);
        two.resume_routine(id, &me(), None).await.unwrap();
        // It could be paused now, and is not: that request was done.
        assert!(one.pause_routine(id, "tired", &me(), Some(&pause)).await.unwrap().duplicate);
        let state = one.load::<Routine>(&StreamName::routine(id)).await.unwrap().state;
        assert_eq!(state.phase, Phase::Active);
        // The Bot gets no more work, which would be refused.
        one.change_bot(bot, &me(), None, midwatch_commands::bot::BotCommand::Retire).await.unwrap();
        let again = two.create_routine(&new, &me(), Some(&create)).await.unwrap();
        assert_eq!((again.value, again.position, again.duplicate), (id, made.position, true));
        let other = Request::new("pause", &[b"POST", b"resume"]);
        let reused = one.resume_routine(id, &me(), Some(&other)).await.unwrap_err();
        assert!(matches!(reused, EngineError::KeyReused), "{reused}");
        // Also where nothing would be appended.
        let edit = one.edit_routine(id, Edit::default(), None, &me(), Some(&other)).await.unwrap_err();
        assert!(matches!(edit, EngineError::KeyReused), "{edit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_looked_at_the_same_one_is_told_so() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let id = routine(&engines[0], bot, FAR).await;
        for round in 0..10 {
            let version = engines[0].load::<Routine>(&StreamName::routine(id)).await.unwrap().version;
            let boundary = engines[0].boundary().await.unwrap().1;
            let edits = (0..2).map(|n: usize| {
                let edit = Edit { name: Some(format!("name {round} {n}")), ..Edit::default() };
                let engine = engines[n].clone();
                async move { engine.edit_routine(id, edit, Some(version), &me(), None).await }
            });
            let edited = futures_util::future::join_all(edits).await;
            let publishes = (0..2).map(|n: usize| {
                let engine = engines[n].clone();
                async move { engine.publish_boundary(&format!("{round} {n}"), "", Some(boundary), &me(), None).await }
            });
            let published = futures_util::future::join_all(publishes).await;
            for results in [edited, published] {
                let (done, told): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
                assert_eq!((done.len(), told.len()), (1, 1), "{} {round}", place.backend);
                for result in told {
                    assert!(matches!(refused(result), Refusal::AlreadySo(_)));
                }
            }
        }
        assert_eq!(on_routine(&engines[0], id).await.len(), 11);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_edit_of_what_was_looked_at_is_the_first_ones_success() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let bot = bot(&engine).await;
    let id = routine(&engine, bot, FAR).await;
    let request = Request::new("edit", &[b"PATCH"]);
    let edit = Edit { name: Some("another".to_owned()), ..Edit::default() };
    let first = engine.edit_routine(id, edit.clone(), Some(1), &me(), Some(&request)).await.unwrap();
    let again = engine.edit_routine(id, edit, Some(1), &me(), Some(&request)).await.unwrap();
    assert_eq!((again.position, again.duplicate), (first.position, true));
    let renamed = on_routine(&engine, id).await;
    assert_eq!(renamed.iter().filter(|event| matches!(event, RoutineEvent::Renamed { .. })).count(), 1);
}
