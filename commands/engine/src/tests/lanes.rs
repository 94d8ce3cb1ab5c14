//! Commands on one stream at once, and long streams.

use std::time::Duration;

use midwatch_commands::{
    Decider, Refusal,
    repeat::{Repeat, RepeatCommand},
    routine::{Edit, Routine, RoutineCommand},
};
use midwatch_events::{
    New, StreamName,
    id::{CallId, RoutineId},
    key::Digest,
    repeat::RepeatEvent,
    routine::RoutineEvent,
};
use midwatch_log::snapshot::{self, Snapshot};
use tokio::task::JoinSet;

use super::support::{FAR, Place, append, bot, me, on_routine, refused, routine, until, verified};
use crate::{
    Engine, EngineError, Request, Turn,
    folds::{Folds, SNAPSHOT_EVERY},
    handle::{Plan, handle, load},
};

const CALLERS: usize = 256;

fn settle(n: u64) -> New<RepeatEvent> {
    let call = CallId::new(uuid::Uuid::from_u128(u128::from(n)));
    RepeatEvent::Settled { call, result: Digest([1; 32]) }.into()
}

async fn rename(engine: &Engine, id: RoutineId, name: String) -> Result<u64, EngineError> {
    let edit = Edit { name: Some(name), ..Edit::default() };
    handle::<Routine>(engine, &StreamName::routine(id), &me(), None, |_| {
        Ok(RoutineCommand::Edit(Box::new(edit.clone())))
    })
    .await
    .map(|done| done.position)
}

async fn names(engine: &Engine, id: RoutineId) -> Vec<String> {
    let renamed = on_routine(engine, id).await.into_iter().filter_map(|event| match event {
        RoutineEvent::Renamed { name } => Some(name),
        _ => None,
    });
    renamed.collect()
}

/// L: each is applied once, in one process and in two, and one flush carries many.
#[tokio::test(flavor = "multi_thread")]
async fn many_callers_on_one_stream_share_flushes_and_each_is_applied_once() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        for processes in [1, 2] {
            let id = routine(&engines[0], bot, FAR).await;
            let before = engines.each_ref().map(|engine| engine.log().metrics());
            let mut callers = JoinSet::new();
            for n in 0..CALLERS {
                let engine = engines[n % processes].clone();
                callers.spawn(async move { rename(&engine, id, format!("name {n}")).await.unwrap() });
            }
            let mut positions = callers.join_all().await;
            positions.sort_unstable();
            positions.dedup();
            let mut names = names(&engines[0], id).await;
            names.sort_unstable();
            names.dedup();
            let at = (place.backend, processes);
            assert_eq!((positions.len(), names.len()), (CALLERS, CALLERS), "{at:?}");
            let after = engines[0].log().metrics();
            let count = |metrics: &midwatch_log::metrics::Metrics, result| metrics.appends[result];
            let conflicts = count(&after, "conflict") - count(&before[0], "conflict");
            if processes == 1 {
                let batches = |metrics: &midwatch_log::metrics::Metrics| metrics.batch_events.buckets.last().unwrap().1;
                let batches = batches(&after) - batches(&before[0]);
                assert_eq!(conflicts, 0, "{at:?}");
                assert!(batches <= CALLERS as u64 / 4, "{at:?}: {batches} transactions for {CALLERS} appends");
            }
        }
        verified(&engines[1]).await;
        for engine in &engines {
            assert!(engine.lanes().are_closed(), "{}", place.backend);
        }
    }
}

/// Of many who ask for the same thing one is first; the others are told so, and only once that stands.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_is_refused_on_what_stands() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        for _ in 0..8 {
            let id = routine(&engine, bot, FAR).await;
            let mut callers = JoinSet::new();
            for _ in 0..32 {
                let engine = engine.clone();
                callers.spawn(async move {
                    let paused = engine.pause_routine(id, "", &me(), None).await;
                    // Everybody who has an answer can read why.
                    let seen = on_routine(&engine, id).await;
                    assert!(seen.iter().any(|event| matches!(event, RoutineEvent::Paused {})));
                    paused
                });
            }
            let (done, told): (Vec<_>, Vec<_>) = callers.join_all().await.into_iter().partition(Result::is_ok);
            assert_eq!((done.len(), told.len()), (1, 31), "{}", place.backend);
            for refusal in told {
                assert!(matches!(refused(refusal), Refusal::AlreadySo(_)));
            }
        }
    }
}

/// An append under a key that is known writes nothing: what was decided behind it is decided again.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_among_many_others_breaks_nothing() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let id = routine(&engine, bot, FAR).await;
        let mut callers = JoinSet::new();
        for n in 0..96 {
            let engine = engine.clone();
            let name = format!("name {n}");
            callers.spawn(async move {
                let request = (n % 3 == 0).then(|| Request::new("rename", &[b"PATCH"]));
                let name = if n % 3 == 0 { "the same".to_owned() } else { name };
                let edit = Edit { name: Some(name), ..Edit::default() };
                engine.edit_routine(id, edit, None, &me(), request.as_ref()).await.unwrap().duplicate
            });
        }
        let duplicates = callers.join_all().await.into_iter().filter(|duplicate| *duplicate).count();
        let names = names(&engine, id).await;
        assert_eq!(names.iter().filter(|name| *name == "the same").count(), 1, "{}", place.backend);
        assert_eq!((names.len(), duplicates), (65, 31), "{}", place.backend);
    }
}

/// Another process' event takes the very place of one that was hoped for: the number fits, and the ground does not.
/// (One thread: the writer has no turn before both are submitted.)
#[tokio::test]
async fn nothing_stands_on_what_was_hoped_for_and_did_not_come() {
    for place in Place::each().await {
        let (engine, other) = (place.engine().await, place.engine().await);
        let bot = bot(&engine).await;
        let id = routine(&engine, bot, FAR).await;
        let stream = StreamName::routine(id);
        let first = engine.enter::<Routine>(&stream).await.unwrap();
        other.delete_routine(id, &me(), None).await.unwrap();
        let named = |name: &str| [RoutineEvent::Renamed { name: name.to_owned() }.into()];
        let submit = async |turn: Turn<Routine>, name: &str| {
            let mut plan = Plan::default();
            plan.add(engine.world(), &stream, turn.expected(), &named(name), &me()).unwrap();
            turn.submit(plan, &named(name)).await.unwrap()
        };
        let second = async {
            let turn = engine.enter::<Routine>(&stream).await.unwrap();
            assert_eq!((turn.loaded().version, turn.loaded().state.name.as_str()), (2, "first"));
            submit(turn, "second").await
        };
        let done = tokio::join!(submit(first, "first"), second);
        assert_eq!(done, (None, None), "{}", place.backend);
        assert!(names(&engine, id).await.is_empty());
        assert_eq!(refused(rename(&engine, id, "third".to_owned()).await), Refusal::NotFound("routine"));
    }
}

/// A caller who goes away leaves an append that stands or not, and a lane that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn callers_who_go_away_hold_up_nobody() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let id = routine(&engine, bot, FAR).await;
        let mut callers = JoinSet::new();
        for n in 0..128_u64 {
            let engine = engine.clone();
            callers.spawn(async move {
                let renamed = rename(&engine, id, format!("name {n}"));
                if n % 2 == 0 {
                    return tokio::time::timeout(Duration::from_micros(n * 50), renamed).await.is_ok();
                }
                renamed.await.unwrap();
                true
            });
        }
        let answered = callers.join_all().await.into_iter().filter(|answered| *answered).count();
        let mut names = names(&engine, id).await;
        let written = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), written, "{}: one was applied twice", place.backend);
        assert!(answered >= 64 && written >= answered, "{}: {answered} {written}", place.backend);
        until("the lane closes", async || engine.lanes().are_closed()).await;
        verified(&engine).await;
    }
}

/// A stream that rests on instants is never decided on one that nobody has recorded yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_halt_and_its_lift_in_a_crowd_agree_with_the_record() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let mut callers = JoinSet::new();
        for n in 0..64 {
            let engine = engine.clone();
            callers.spawn(async move {
                let done = match n % 2 {
                    0 => engine.halt_scheduling(&me(), "", None).await,
                    _ => engine.lift_halt(&me(), None).await,
                };
                done.is_ok()
            });
        }
        callers.join_all().await;
        let stream = StreamName::halt();
        let kept = engine.load::<midwatch_commands::engine::Engine>(&stream).await.unwrap();
        let folded = load::<midwatch_commands::engine::Engine>(engine.log(), &Folds::default(), &stream).await.unwrap();
        assert_eq!((kept.state, kept.version), (folded.state, folded.version), "{}", place.backend);
    }
}

/// A long stream of a fingerprint, in appends of a hundred.
async fn long_stream(engine: &Engine, length: u64) -> StreamName {
    let bot = bot(engine).await;
    let stream = StreamName::repeat(bot, &[7; 32]);
    for from in (0..length).step_by(100) {
        let events: Vec<_> = (from..from + 100).map(settle).collect();
        append(engine, &stream, &events).await;
    }
    stream
}

async fn kept<D: Decider>(engine: &Engine, stream: &StreamName) -> Option<Snapshot> {
    snapshot::read(engine.log(), stream, D::FOLD_VERSION).await.unwrap()
}

/// One more command on a stream; how many events had to be read for it.
async fn reads(engine: &Engine, stream: &StreamName, n: u64) -> u64 {
    let before = engine.folds().events_read();
    let call = CallId::new(uuid::Uuid::from_u128(u128::from(n)));
    handle::<Repeat>(engine, stream, &me(), None, |_| Ok(RepeatCommand::Settle { call, result: Digest([2; 32]) }))
        .await
        .unwrap();
    engine.folds().events_read() - before
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_ten_thousand_events_reads_no_more_than_256() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let stream = long_stream(&engine, 10_000).await;
        // Nothing was kept while nobody loaded it.
        assert_eq!(reads(&engine, &stream, 1).await, 10_000, "{}", place.backend);
        until("it is kept", async || kept::<Repeat>(&engine, &stream).await.is_some()).await;
        for n in 0..300 {
            reads(&engine, &stream, n).await;
        }
        let newest = 10_001 + 300 - SNAPSHOT_EVERY;
        until("it is kept", async || kept::<Repeat>(&engine, &stream).await.is_some_and(|kept| kept.version > newest))
            .await;
        let another = place.engine().await;
        let read = reads(&another, &stream, 1).await;
        assert!(read <= SNAPSHOT_EVERY + 1, "{}: {read}", place.backend);
        let (one, whole) = (
            another.load::<Repeat>(&stream).await.unwrap(),
            load::<Repeat>(another.log(), &Folds::default(), &stream).await.unwrap(),
        );
        assert_eq!((one.version, one.state), (whole.version, whole.state));
        // Who only reads believes events alone, and makes no file.
        let reader = Engine::open_reader(crate::world::World::system(), place.opening()).await.unwrap();
        assert_eq!(kept::<Repeat>(&reader, &stream).await, None);
        reader.load::<Repeat>(&stream).await.unwrap();
        assert!(reader.folds().events_read() > 10_000);
    }
}

/// A hot lane keeps snapshots too, and leaves its state to those who come later.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_leaves_a_snapshot_and_a_state() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let id = routine(&engine, bot, FAR).await;
        let mut callers = JoinSet::new();
        for n in 0..CALLERS {
            let engine = engine.clone();
            callers.spawn(async move { rename(&engine, id, format!("name {n}")).await.unwrap() });
        }
        callers.join_all().await;
        let stream = StreamName::routine(id);
        // Where a chain broke on the way, the state is kept at the load that followed, and the next time 128 events later.
        let enough = |kept: Snapshot| kept.version >= SNAPSHOT_EVERY;
        until("it is kept", async || kept::<Routine>(&engine, &stream).await.is_some_and(enough)).await;
        let before = engine.folds().events_read();
        engine.load::<Routine>(&stream).await.unwrap();
        assert!(engine.folds().events_read() - before <= 1, "{}", place.backend);
    }
}

/// What is wrong with a snapshot costs a longer load and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_not_this_streams_is_left_aside() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let stream = long_stream(&engine, 300).await;
        engine.load::<Repeat>(&stream).await.unwrap();
        until("it is kept", async || kept::<Repeat>(&engine, &stream).await.is_some()).await;
        let good = kept::<Repeat>(&engine, &stream).await.unwrap();
        assert_eq!(good.version, 300);
        append(&engine, &stream, &[settle(1)]).await;
        let whole = load::<Repeat>(engine.log(), &Folds::default(), &stream).await.unwrap();
        let read = async |snapshot: Snapshot, fold: u32| {
            snapshot::write(engine.log(), &stream, fold, &snapshot).await.unwrap();
            let fresh = place.engine().await;
            let before = fresh.folds().events_read();
            let loaded = fresh.load::<Repeat>(&stream).await.unwrap();
            assert_eq!((loaded.version, &loaded.state), (whole.version, &whole.state), "{}", place.backend);
            let read = fresh.folds().events_read() - before;
            if read > SNAPSHOT_EVERY {
                // What it folded is kept in the place of what it left aside.
                until("it is kept", async || {
                    kept::<Repeat>(&engine, &stream).await.is_some_and(|kept| kept.version == 301)
                })
                .await;
            }
            read
        };
        let fold = Repeat::FOLD_VERSION;
        assert_eq!(read(good.clone(), fold).await, 2);
        // Changed bytes, or another state with a seal that was not made for it.
        let mut changed = good.clone();
        changed.state[1] ^= 1;
        assert_eq!(read(changed, fold).await, 301);
        let other = Snapshot { version: 299, ..good.clone() };
        assert_eq!(read(other, fold).await, 301);
        // Another history: sealed, but of a stream that had another event there, or was longer.
        for (version, event_id) in
            [(300, uuid::Uuid::nil()), (4_000, good.event_id), (u64::from(u32::MAX), good.event_id)]
        {
            let forged = engine.folds().sealed::<Repeat>(&stream, Snapshot { version, event_id, ..good.clone() });
            let read = read(forged, fold).await;
            assert!((301..=303).contains(&read), "{} {version}: {read}", place.backend);
        }
        // Sealed bytes that are no state.
        let garbage = engine.folds().sealed::<Repeat>(&stream, Snapshot { state: vec![0xff], ..good.clone() });
        assert_eq!(read(garbage, fold).await, 301);
        // Of another version of the fold, older or newer.
        place.drop_snapshots().await;
        assert_eq!(read(good.clone(), fold + 1).await, 301);
        place.drop_snapshots().await;
        assert_eq!(read(good, fold).await, 2);
    }
}
