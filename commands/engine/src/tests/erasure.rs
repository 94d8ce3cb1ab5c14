//! Erasing: the words are gone from everywhere, and nothing that is decided, counted or proved changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use midwatch_commands::{
    Decider, Refusal, bot::Bot, boundary::Boundary, delivery::Delivery, engine::Engine as Deployment, repeat::Repeat,
    routine::Routine, run::Run, trigger::Trigger, user::User,
};
use midwatch_events::{
    Micros, New, Recorded, StreamName,
    delivery::DeliveryEvent,
    engine::{EngineContent, EngineEvent},
    id::{CallId, DeliveryId, RunId},
    key::Digest,
    repeat::{RepeatContent, RepeatEvent},
    run::{CallResult, Cause, Decision, DecisionKind, Opened, RunContent, RunEvent, Verdict},
    trigger::Intake,
    user::Access,
};
use midwatch_log::views::{Cursor, KEY, Order, Query};
use serde_json::Value;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use super::support::{
    Place, Roles, all, at_once, bot, events, me, new_routine, new_trigger, open_trigger, posted, refused, run_now,
    until, verified,
};
use crate::{
    Engine,
    erasure::Erased,
    handle::{Folds, Plan, load},
    projector::{catch_up, tables},
    reactor, runner,
};

/// Stands in every text that is erased, and nowhere else.
const WORDS: &str = "Zaphod Beeblebrox";

fn said(what: &str) -> String {
    format!("{what}, says {WORDS}")
}

fn decision(opened: &Opened, ordinal: u8) -> Decision {
    Decision {
        call: CallId::new(uuid::Uuid::from_u128(u128::from(ordinal))),
        ordinal: u32::from(ordinal),
        turn: 1,
        step: None,
        tool: "computer_write_file".to_owned(),
        intent: "write_file".to_owned(),
        verdict: Verdict::Allow,
        decision: DecisionKind::Allowed,
        refusal: None,
        enforced: true,
        rule: None,
        matched: vec![],
        broken: vec![],
        unattended: true,
        cause: Cause::Person,
        run: opened.run,
        bot: opened.bot,
        routine: None,
        trigger: opened.trigger,
        boundary: 1,
        // Every run makes the same call.
        fingerprint: Digest([7; 32]),
        repeat_count: 1,
        repeat_same_result: 0,
        repeat_cycle: 0,
        approval: None,
    }
}

/// A call of a live run with a long result, and its count; as the gateway writes it.
async fn call(engine: &Engine, run: RunId) {
    let stream = StreamName::run(run);
    let loaded = engine.load::<Run>(&stream).await.unwrap();
    let opened = loaded.state.opened.unwrap();
    let decision = decision(&opened, 1);
    let blob = Some(engine.keep(said(&"long ".repeat(90_000)).as_bytes()).await.unwrap());
    let turn = RunContent::TurnFinished { messages: said("a message") };
    let decided = RunContent::ToolCallDecided {
        arguments: said("arguments"),
        context: said("context"),
        fingerprint: said("fingerprint"),
    };
    let ended = RunEvent::ToolCallEnded {
        decision: decision.clone(),
        result: CallResult::Finished,
        result_digest: None,
        result_bytes: Some(450_000),
        duration_us: None,
    };
    let events = [
        New::with(RunEvent::TurnFinished { turn: 1, calls: 1 }, turn),
        New::with(RunEvent::ToolCallDecided(decision.clone()), decided),
        New::with(ended, RunContent::ToolCallEnded { result: None, blob }),
    ];
    let repeat = StreamName::repeat(opened.bot, &decision.fingerprint.0);
    let attempted = RepeatEvent::Attempted { run, call: decision.call, at_us: Micros(1), count: 1, crossed: 0 };
    let crossed = RepeatEvent::ThresholdCrossed {
        threshold: 3,
        count: 3,
        bot: opened.bot,
        run,
        call: decision.call,
        tool: decision.tool,
        unattended: true,
        routine: None,
        trigger: opened.trigger,
    };
    let counted = [
        New::with(attempted, RepeatContent::Attempted { fingerprint: said("fingerprint") }),
        New::with(crossed, RepeatContent::ThresholdCrossed { fingerprint: said("fingerprint") }),
    ];
    let origin = me().within(&stream);
    let version = engine.log().version(&repeat).await.unwrap();
    let mut plan = Plan::default();
    plan.add(engine.world(), &stream, loaded.version, &events, &origin).unwrap();
    plan.add(engine.world(), &repeat, version, &counted, &origin).unwrap();
    plan.commit(engine.log()).await.unwrap().unwrap();
}

/// Two runs, one answering a long delivery, and words wherever there can be some; the last of the runs and its delivery.
async fn story(engine: &Engine) -> (RunId, DeliveryId) {
    let bot = bot(engine).await;
    let mut new = new_routine(bot, super::support::FAR);
    new.work.recording = None;
    new.work.instruction = Some(said("do it"));
    let routine = engine.create_routine(&new, &me(), None).await.unwrap().value;
    let first = run_now(engine, routine).await;
    let mut hook = new_trigger(bot, Intake::default());
    hook.instruction = Some(said("look at it"));
    let trigger = open_trigger(engine, &hook).await;
    let long = said(&"body ".repeat(90_000));
    let delivery = engine.receive(trigger, &posted(Some(WORDS), &long)).await.unwrap().delivery;
    engine.pause_routine(routine, &said("enough"), &me(), None).await.unwrap();
    engine.publish_boundary(r#"{"rules":[]}"#, &said("nothing"), None, &me(), None).await.unwrap();
    engine.issue_token(WORDS, Access::Auditor, &me()).await.unwrap();
    engine.halt_scheduling(&me(), &said("drill"), None).await.unwrap();
    engine.lift_halt(&me(), None).await.unwrap();
    let mut roles = Roles::new();
    roles.project(engine);
    roles.tasks.spawn(reactor::run(engine.clone(), roles.stopped.clone()));
    let stream = StreamName::delivery(delivery);
    let mut answered = None;
    until("the delivery became a run", async || {
        for event in events::<DeliveryEvent>(engine, &stream).await {
            if let DeliveryEvent::Started { run, .. } = event {
                answered = Some(run);
            }
        }
        answered.is_some()
    })
    .await;
    let second = answered.unwrap();
    for run in [first, second] {
        call(engine, run).await;
        assert!(matches!(
            refused(engine.erase(&StreamName::run(run), "asked", &me()).await),
            Refusal::Busy { live } if live == run
        ));
    }
    roles.tasks.spawn(runner::run(engine.clone(), at_once(), roles.stopped.clone()));
    for run in [first, second] {
        let ended = async || engine.load::<Run>(&StreamName::run(run)).await.unwrap().state.ended.is_some();
        until("a run ended", ended).await;
    }
    roles.end().await;
    catch_up(engine).await.unwrap();
    (second, delivery)
}

/// How every stream folds from its first event.
async fn states(engine: &Engine) -> BTreeMap<String, String> {
    async fn of<D: Decider + std::fmt::Debug>(engine: &Engine, stream: &StreamName) -> String {
        format!("{:?}", load::<D>(engine.log(), &Folds::default(), stream).await.unwrap().state)
    }
    let mut states = BTreeMap::new();
    for stream in all(engine).await.into_iter().map(|(recorded, _)| recorded.stream).collect::<BTreeSet<_>>() {
        let state = match stream.category() {
            "bot" => of::<Bot>(engine, &stream).await,
            "boundary" => of::<Boundary>(engine, &stream).await,
            "delivery" => of::<Delivery>(engine, &stream).await,
            "engine" | "halt" | "process" => of::<Deployment>(engine, &stream).await,
            "repeat" => of::<Repeat>(engine, &stream).await,
            "routine" => of::<Routine>(engine, &stream).await,
            "run" => of::<Run>(engine, &stream).await,
            "trigger" => of::<Trigger>(engine, &stream).await,
            "user" | "token" => of::<User>(engine, &stream).await,
            other => panic!("what folds {other}?"),
        };
        states.insert(stream.to_string(), state);
    }
    states
}

/// All rows of all projections.
async fn rows(engine: &Engine) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (_, table) in tables() {
        let mut after: Option<Cursor> = None;
        loop {
            let order = Order { column: KEY, descending: false };
            let query = Query { filters: vec![], order, limit: 500, after: after.take() };
            let page = engine.views().query(table, &query).await.unwrap();
            after = page.last().map(midwatch_log::views::Row::cursor);
            for row in page {
                found.insert(format!("{} {}", table.name, row.key), serde_json::from_slice(&row.doc).unwrap());
            }
            if after.is_none() {
                break;
            }
        }
    }
    found
}

/// Whether a row is what it was but for words of the content: `WORDS` have to be gone, other text of it may be.
fn agrees(before: &Value, after: &Value, contents: &[u8]) -> bool {
    match (before, after) {
        (Value::String(text), Value::Null | Value::String(_)) => {
            let rest = after.as_str().unwrap_or_default();
            // A fact may stand behind the words, as in `NAME, member`.
            let words = text.strip_suffix(rest).map(|words| words.trim_end_matches(", "));
            !rest.contains(WORDS)
                && words.is_some_and(|words| {
                    words.is_empty() || contents.windows(words.len()).any(|at| at == words.as_bytes())
                })
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len()
                && before.iter().zip(after).all(|(before, after)| agrees(before, after, contents))
        }
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && before
                    .iter()
                    // What says that the words went may say so.
                    .all(|(name, value)| {
                        name == "erased" || after.get(name).is_some_and(|after| agrees(value, after, contents))
                    })
        }
        (before, after) => before == after,
    }
}

/// Where the words can still be read: files, or tables.
async fn left(place: &Place) -> bool {
    if let Some(file) = place.url.strip_prefix("sqlite://") {
        let files = ["", "-wal", "-projections", "-projections-wal"].map(|suffix| format!("{file}{suffix}"));
        let has = |bytes: Vec<u8>| bytes.windows(WORDS.len()).any(|at| at == WORDS.as_bytes());
        return files.into_iter().any(|file| fs::read(file).is_ok_and(has));
    }
    let hex: String = WORDS.bytes().map(|byte| format!("{byte:02x}")).collect();
    let sql = format!(
        "SELECT sum((xpath('/row/n/text()', query_to_xml(format(
             'SELECT count(*) AS n FROM %I.%I AS t WHERE t::text LIKE %L OR t::text LIKE %L',
             schemaname, tablename, '%{WORDS}%', '%{hex}%'), false, true, '')))[1]::text::bigint)::bigint
         FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    );
    place.number(&sql).await > 0
}

fn bare(recorded: &Recorded) -> Recorded {
    Recorded { content: None, salt: None, ..recorded.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_erased_is_gone_from_everywhere_and_nothing_else_changes() {
    for place in Place::each().await {
        let engine = place.engine().await;
        story(&engine).await;
        assert!(left(&place).await, "{}: the words are not found where they are", place.backend);
        let (before, states_before, rows_before) = (all(&engine).await, states(&engine).await, rows(&engine).await);
        let worded = before.iter().filter(|(recorded, _)| recorded.content.is_some());
        let worded: BTreeSet<StreamName> = worded.map(|(recorded, _)| recorded.stream.clone()).collect();
        assert!(worded.len() >= 9, "{worded:?}");
        // Runs first: with them go the words beside their counts.
        let (runs, others): (Vec<_>, Vec<_>) = worded.into_iter().partition(|stream| stream.category() == "run");
        for stream in runs.iter().chain(others.iter().filter(|stream| stream.category() != "repeat")) {
            let done = engine.erase(stream, "they asked for it", &me()).await.unwrap();
            assert!(done.value.events > 0 && done.position > before.len() as u64, "{stream}");
        }
        assert!(!left(&place).await, "{}: words are left", place.backend);
        verified(&engine).await;
        let after = all(&engine).await;
        for ((before, _), (after, _)) in before.iter().zip(&after) {
            assert_eq!(*after, bare(before));
            assert_eq!(after.erased(), before.commitment.is_some());
        }
        assert_eq!(states(&engine).await, states_before, "{}", place.backend);
        let mut rows_after = rows(&engine).await;
        for (recorded, _) in &after[before.len()..] {
            assert_eq!(recorded.wire(), "engine.content_erased/1");
            let row = rows_after.remove(&format!("audit {:020}", recorded.position)).unwrap();
            assert_eq!((&row["event"], row["subject"].is_string()), (&"engine.content_erased".into(), true), "{row}");
        }
        let contents: Vec<u8> = before.iter().filter_map(|(recorded, _)| recorded.content.clone()).flatten().collect();
        for (key, row) in &rows_before {
            let after = rows_after.remove(key).unwrap_or_else(|| panic!("{}: {key} is gone", place.backend));
            assert!(agrees(row, &after, &contents), "{}: {key}: {row} {after}", place.backend);
        }
        assert!(rows_after.is_empty(), "{rows_after:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_runs_words_go_and_everybody_elses_stay() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let (run, delivery) = story(&engine).await;
        let stream = StreamName::run(run);
        let before = all(&engine).await;
        let own = |recorded: &Recorded| {
            recorded.stream == stream
                || recorded.stream.category() == "repeat" && recorded.correlation_id.as_deref() == Some(stream.as_str())
        };
        let worded = before.iter().filter(|(recorded, _)| own(recorded) && recorded.content.is_some()).count() as u64;
        let done = engine.erase(&stream, &said("the sender asked"), &me()).await.unwrap();
        assert_eq!(done.value, Erased { events: worded, blobs: 1 }, "{}", place.backend);
        let after = all(&engine).await;
        for ((before, _), (after, _)) in before.iter().zip(&after) {
            assert_eq!(*after, if own(before) { bare(before) } else { before.clone() });
        }
        // What was asked of the run's stream, and of the stream that counts its call.
        let [(counts, _), (erasure, _)] = &after[before.len()..] else { panic!("{}", after.len() - before.len()) };
        assert_eq!((erasure.position, erasure.stream.as_str()), (done.position, "engine"));
        let EngineEvent::ContentErased { subject, first_version, last_version, events, blobs } =
            erasure.facts().unwrap()
        else {
            panic!("{erasure:?}")
        };
        let last = engine.log().version(&stream).await.unwrap();
        assert_eq!((subject.as_str(), first_version, last_version, blobs), (stream.as_str(), 1, last, 1));
        let EngineEvent::ContentErased { events: counted, .. } = counts.facts().unwrap() else { panic!("{counts:?}") };
        assert_eq!((counted, events + counted), (2, worded));
        let reason = erasure.content::<EngineEvent>().unwrap().unwrap();
        assert!(matches!(reason, EngineContent::ContentErased { reason } if reason == said("the sender asked")));
        // The delivery is its own.
        assert!(engine.body(delivery).await.unwrap().is_some());
        let blobs = "SELECT count(*) FROM blob WHERE expired_at IS NOT NULL";
        assert_eq!(place.number(blobs).await, 1, "{}", place.backend);
        engine.erase(&StreamName::delivery(delivery), "asked", &me()).await.unwrap();
        assert_eq!(engine.body(delivery).await.unwrap(), None);
        assert_eq!(place.number(blobs).await, 2);
        // The same delivery once more is still known.
        let head = engine.log().head().await.unwrap();
        for stream in [&stream, &StreamName::delivery(delivery)] {
            let again = refused(engine.erase(stream, "asked", &me()).await);
            assert_eq!(again.to_string(), "there is nothing left to erase");
        }
        for (stream, reason) in [("run-x", "asked"), ("", "asked"), (stream.as_str(), " ")] {
            refused(engine.erase(&StreamName::stored(stream.to_owned()), reason, &me()).await);
        }
        assert_eq!(engine.log().head().await.unwrap(), head);
        verified(&engine).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_stream_takes_several_appends_and_two_who_erase_it_meet_without_harm() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let stream = StreamName::run(RunId::new(one.world().uuid()));
        for page in 0..3_u64 {
            let turn = |_| {
                let messages = RunContent::TurnFinished { messages: WORDS.to_owned() };
                New::with(RunEvent::TurnFinished { turn: 1, calls: 0 }, messages)
            };
            let turns: Vec<_> = (0..700).map(turn).collect();
            let mut plan = Plan::default();
            plan.add(one.world(), &stream, page * 700, &turns, &me()).unwrap();
            plan.commit(one.log()).await.unwrap().unwrap();
        }
        let me = me();
        let (first, second) = tokio::join!(one.erase(&stream, "asked", &me), two.erase(&stream, "asked too", &me));
        assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
        assert!(all(&one).await.iter().filter(|(event, _)| event.stream == stream).all(|(event, _)| event.erased()));
        assert_eq!(
            refused(one.erase(&stream, "asked", &me).await),
            Refusal::AlreadySo("there is nothing left to erase")
        );
        assert!(!left(&place).await, "{}", place.backend);
        verified(&two).await;
    }
}

/// Whether the database lets somebody with its password do this.
async fn allowed(place: &Place, sql: &str) -> bool {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    if let Some(file) = place.url.strip_prefix("sqlite://") {
        let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(9));
        return sql.execute(&mut options.connect().await.unwrap()).await.is_ok();
    }
    sql.execute(&mut sqlx::PgConnection::connect(&place.url).await.unwrap()).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guards_allow_nothing_but_an_erasure() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let (run, _) = story(&engine).await;
        engine.erase(&StreamName::run(run), "asked", &me()).await.unwrap();
        let before = all(&engine).await;
        let some = before.iter().find(|(recorded, _)| recorded.content.is_some()).unwrap().0.position;
        let erased = before.iter().find(|(recorded, _)| recorded.erased()).unwrap().0.position;
        let bytes = if place.backend == "sqlite" { "x'a0'" } else { "'\\xa0'::bytea" };
        for sql in [
            format!("UPDATE events SET content = {bytes} WHERE position = {some}"),
            format!("UPDATE events SET content = NULL WHERE position = {some}"),
            format!("UPDATE events SET salt = NULL WHERE position = {some}"),
            format!("UPDATE events SET content = NULL, salt = NULL, commitment = NULL WHERE position = {some}"),
            format!("UPDATE events SET content = NULL, salt = NULL, facts = {bytes} WHERE position = {some}"),
            format!("UPDATE events SET content = {bytes}, salt = commitment WHERE position = {erased}"),
            format!("UPDATE events SET actor = 'engine' WHERE position = {erased}"),
            format!("DELETE FROM events WHERE position = {erased}"),
        ] {
            assert!(!allowed(&place, &sql).await, "{}: {sql}", place.backend);
        }
        let unchanged = all(&engine).await.into_iter().zip(before).all(|(now, then)| now.0 == then.0);
        assert!(unchanged, "{}", place.backend);
        verified(&engine).await;
    }
}
