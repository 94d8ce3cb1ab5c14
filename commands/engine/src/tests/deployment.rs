//! Whose ledger it is. Promise 7: a copy starts nothing.

use std::{fs, os::unix::fs::PermissionsExt as _};

use midwatch_commands::Refusal;
use midwatch_events::{
    AnyEvent, StreamName,
    engine::{EngineEvent, HaltCause},
};
use midwatch_log::Open;
use serde_json::{Value, json};

use super::support::{Place, all, bot, due_routine, me, opening, outside, refused};
use crate::{
    Engine, EngineError,
    deployment::{Outside, adopt, state_dir},
    world::World,
};

fn state(place: &Place) -> (std::path::PathBuf, Value) {
    let path = state_dir(&outside(place.home.path()), &place.url).join("state.json");
    let value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    (path, value)
}

fn complaint(result: Result<Engine, EngineError>) -> String {
    match result {
        Err(EngineError::Deployment(sentence)) => sentence,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it started"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_make_a_ledger_at_once_make_one_deployment() {
    for place in Place::each().await {
        // The empty database is there: what is tried is who makes the deployment, not who makes the file.
        midwatch_log::Log::open(&place.url, Open::ReadWrite).await.unwrap().close().await;
        let makers = (0..6).map(|_| Engine::open(World::system(), place.opening()));
        let engines: Vec<_> =
            futures_util::future::join_all(makers).await.into_iter().map(|made| made.unwrap()).collect();
        let made = all(&engines[0]).await;
        let created: Vec<_> = made
            .iter()
            .filter_map(|(_, event)| match event {
                AnyEvent::Engine(EngineEvent::LedgerCreated { deployment, .. }, _) => Some(*deployment),
                _ => None,
            })
            .collect();
        assert_eq!((created.len(), made.len()), (1, 3), "{}", place.backend);
        for engine in &engines {
            assert_eq!(engine.namespace(), created[0]);
            assert_eq!(engine.secrets().unwrap().key_id(), engines[0].secrets().unwrap().key_id());
            assert_eq!(engine.halt().await.unwrap().state.halted, None, "{}", place.backend);
        }
        let (path, kept) = state(&place);
        assert_eq!(kept["deployment"], created[0].to_string());
        let key = fs::metadata(path.with_file_name("key")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_process_that_died_while_it_made_the_ledger_is_made_good_by_the_next() {
    let place = Place::sqlite();
    // Key and identity were written, and the ledger was not.
    place.engine().await.close().await;
    for suffix in ["", "-wal", "-shm", "-projections"] {
        let _ = fs::remove_file(format!("{}{suffix}", place.url.strip_prefix("sqlite://").unwrap()));
    }
    let engine = place.engine().await;
    assert_eq!(engine.halt().await.unwrap().state.halted, None);
    assert_eq!(state(&place).1["deployment"], engine.namespace().to_string());
}

#[tokio::test]
async fn key_and_identity_from_the_environment_need_no_file() {
    let place = Place::sqlite();
    let (key, identity) = ("A".repeat(43), uuid::Uuid::from_u128(7));
    let home = place.home.path().join("none");
    let given = Outside { deployment: Some(identity), key: Some(key), ..outside(&home) };
    let engine = Engine::open(World::system(), opening(&place.url, given.clone())).await.unwrap();
    assert_eq!(engine.namespace(), identity);
    engine.close().await;
    assert!(!home.exists());
    let absent = Outside { key: None, ..given.clone() };
    let sentence = complaint(Engine::open(World::system(), opening(&place.url, absent)).await);
    assert!(sentence.contains("MIDWATCH_KEY"), "{sentence}");
    let another = Outside { key: Some("B".repeat(42) + "A"), ..given.clone() };
    let sentence = complaint(Engine::open(World::system(), opening(&place.url, another)).await);
    assert!(sentence.contains("not this ledger's"), "{sentence}");
    let no_key = Outside { key: Some("short".to_owned()), ..given };
    let sentence = complaint(Engine::open(World::system(), opening(&place.url, no_key)).await);
    assert!(sentence.contains("43 characters"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_identity_starts_halted_and_says_why_until_it_is_adopted() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let routine = due_routine(&engine, bot).await;
        engine.close().await;
        let (path, mut kept) = state(&place);
        kept["deployment"] = json!(uuid::Uuid::from_u128(9));
        kept["highest_position"] = json!(1);
        fs::write(&path, kept.to_string()).unwrap();

        let foreign = place.engine().await;
        assert_eq!(foreign.halt().await.unwrap().state.halted, Some(HaltCause::ForeignDeployment));
        assert!(matches!(refused(foreign.tick(routine).await), Refusal::Halted));
        assert!(matches!(refused(foreign.run_now(routine, &me(), None).await), Refusal::Halted));
        // The mark is of another ledger: this one's head must not raise it.
        foreign.close().await;
        assert_eq!(state(&place).1, kept);

        let identity = adopt(&World::system(), &place.opening()).await.unwrap();
        assert_eq!(state(&place).1["deployment"], identity.to_string());
        let engine = place.engine().await;
        assert_eq!(engine.halt().await.unwrap().state.halted, None, "{}", place.backend);
    }
}

#[tokio::test]
async fn a_head_below_the_mark_starts_halted() {
    let place = Place::sqlite();
    place.engine().await.close().await;
    let (path, mut kept) = state(&place);
    assert_eq!(kept["highest_position"], 3);
    kept["highest_position"] = json!(1_000);
    fs::write(&path, kept.to_string()).unwrap();
    let engine = place.engine().await;
    assert_eq!(engine.halt().await.unwrap().state.halted, Some(HaltCause::LedgerWentBack));
    let said = engine.log().read_stream(&StreamName::halt(), 1, 9).await.unwrap();
    let reason = said[0].content::<EngineEvent>().unwrap();
    assert!(format!("{reason:?}").contains("1000"), "{reason:?}");
    engine.close().await;
    assert_eq!(state(&place).1, kept);
}

#[tokio::test]
async fn another_repeat_window_than_the_deployments_refuses_to_start() {
    let place = Place::sqlite();
    let asked = |seconds| crate::Opening { repeat_window_s: seconds, ..place.opening() };
    let engine = Engine::open(World::system(), asked(Some(60))).await.unwrap();
    assert_eq!(engine.repeat_window_s(), 60);
    let sentence = complaint(Engine::open(World::system(), asked(Some(61))).await);
    assert!(sentence.contains("61 s") && sentence.contains("60 s"), "{sentence}");
    assert_eq!(Engine::open(World::system(), asked(None)).await.unwrap().repeat_window_s(), 60);
}

#[tokio::test]
async fn reading_needs_no_key_and_writes_nothing() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let head = engine.log().head().await.unwrap();
    let nowhere = outside(&place.home.path().join("elsewhere"));
    let reader = Engine::open_reader(World::system(), opening(&place.url, nowhere)).await.unwrap();
    assert_eq!(crate::projector::catch_up(&reader).await.unwrap(), head);
    assert!(matches!(reader.secrets(), Err(EngineError::Deployment(_))));
    assert!(reader.register_bot("ops", None, &me(), None).await.is_err());
    reader.close().await;
    assert_eq!(engine.log().head().await.unwrap(), head);
}

#[tokio::test]
async fn nothing_secret_is_shown() {
    let place = Place::sqlite();
    let key = "S".repeat(42) + "A";
    let given = Outside { key: Some(key.clone()), ..outside(place.home.path()) };
    let mut shown = format!("{:?}", opening("postgres://me:hunter2@db/mw", given.clone()));
    let engine = Engine::open(World::system(), opening(&place.url, given)).await.unwrap();
    let link = engine.issue_link(None, &me()).await.unwrap().value;
    let session = engine.sign_in(&link).await.unwrap().value;
    let bot = bot(&engine).await;
    let made = super::support::new_trigger(bot, midwatch_events::trigger::Intake::default());
    let trigger = engine.create_trigger(&made, &me(), None).await.unwrap().value;
    shown.push_str(&format!("{engine:?}{session:?}{trigger:?}"));
    for secret in [key.as_str(), "hunter2", &session.secret, trigger.secret.as_deref().unwrap()] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}
