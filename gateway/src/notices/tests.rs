//! Notices, to a receiver that answers over a socket.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use midwatch_engine::{Opening, Origin, deployment::Outside, notices::NewReceiver, projector, world::World};
use midwatch_events::{Actor, engine::NoticeKind, id::ProcessId};
use midwatch_log::views::Order;
use midwatch_projections::engine_notices::{NoticeRow, NoticeState, Notices};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::dialer::Reach;

/// The vector that Standard Webhooks publishes.
#[test]
fn signs_as_standard_webhooks_does() {
    let secret = STANDARD.decode("C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
    let body = r#"{"email":"test@example.com","username":"test_user"}"#;
    let signed = sign(&secret, "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", "1649367553", body);
    assert_eq!(signed, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
}

/// What was posted: its header and body, each time.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

/// A receiver that answers each POST with the next of these statuses, and the last one for ever.
async fn receiver(statuses: &'static [u16]) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let heard = Heard::default();
    let keeps = Arc::clone(&heard);
    tokio::spawn(async move {
        let mut served = 0;
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut bytes = Vec::new();
            let (head, body) = loop {
                let mut chunk = [0; 4096];
                let read = socket.read(&mut chunk).await.unwrap_or(0);
                bytes.extend_from_slice(&chunk[..read]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                    if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                        break (head.to_owned(), body.to_owned());
                    }
                }
                if read == 0 {
                    return;
                }
            };
            keeps.lock().unwrap().push((head, body));
            let status = statuses.get(served).or(statuses.last()).unwrap();
            served += 1;
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (url, heard)
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {head}"))
}

struct Stage {
    engine: Engine,
    _home: tempfile::TempDir,
    _guard: midwatch_log::testing::Guard,
}

async fn stage() -> Stage {
    let (url, guard) = midwatch_log::testing::fresh_sqlite();
    let home = tempfile::TempDir::new().unwrap();
    let engine = process(&url, home.path()).await;
    Stage { engine, _home: home, _guard: guard }
}

/// One more process of a deployment.
async fn process(url: &str, home: &std::path::Path) -> Engine {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outside = Outside { deployment: None, key: None, key_file: None, state_home: home.to_owned() };
    let opening = Opening {
        url: url.to_owned(),
        outside,
        process: ProcessId::new(World::system().uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    };
    Engine::open(World::system(), opening).await.unwrap()
}

fn me() -> Origin {
    Origin::of(Actor::Cli(0))
}

async fn add(engine: &Engine, url: &str, about: &[NoticeKind]) -> ReceiverId {
    let new = NewReceiver { name: "pager".to_owned(), url: url.to_owned(), about: about.to_vec(), heartbeat_s: None };
    let receiver = engine.add_receiver(&new, &me(), None).await.unwrap().value;
    projector::catch_up(engine).await.unwrap();
    receiver
}

fn leader(engine: &Engine, dialer: &Dialer) -> Telling {
    Telling::new(engine.clone(), dialer.clone(), watch::channel(false).1)
}

async fn round(engine: &Engine, dialer: &Dialer) {
    for _ in 0..3 {
        projector::catch_up(engine).await.unwrap();
        let mut telling = leader(engine, dialer);
        telling.look().await.unwrap();
        while let Some(told) = telling.told().await {
            told.unwrap();
        }
    }
    projector::catch_up(engine).await.unwrap();
}

async fn rows(engine: &Engine) -> Vec<NoticeRow> {
    let order = Order { column: "position", descending: false };
    let rows = projector::page::<Notices>(engine, vec![], order, 100, None).await.unwrap();
    rows.into_iter().map(|(row, _)| row).collect()
}

#[tokio::test]
async fn a_halt_is_told_once_signed_and_again_only_when_it_is_asked_for() {
    let stage = stage().await;
    let engine = &stage.engine;
    let dialer = Dialer::new(Reach::Private, PATIENCE).unwrap();
    let (url, heard) = receiver(&[204]).await;
    let id = add(engine, &url, &[NoticeKind::Halt]).await;
    engine.halt_scheduling(&me(), "drill, and these words stay here", None).await.unwrap();
    round(engine, &dialer).await;
    round(engine, &dialer).await;
    {
        let heard = heard.lock().unwrap();
        let [(head, body)] = &heard[..] else { panic!("{heard:?}") };
        assert!(body.contains(r#""type":"scheduling.halted""#) && !body.contains("drill"), "{body}");
        let (webhook_id, timestamp) = (header(head, "webhook-id"), header(head, "webhook-timestamp"));
        assert_eq!(webhook_id.len(), 36);
        assert!(timestamp.parse::<i64>().is_ok());
    }
    let secret = engine.receiver_secret(id).await.unwrap();
    let (head, body) = heard.lock().unwrap()[0].clone();
    let signed = sign(&secret, header(&head, "webhook-id"), header(&head, "webhook-timestamp"), &body);
    assert_eq!(header(&head, "webhook-signature"), signed);
    let row = rows(engine).await.remove(0);
    assert_eq!((row.state, row.attempts, row.status), (NoticeState::Delivered, 1, Some(204)));

    engine.ask_notice_again(row.id, &me(), None).await.unwrap();
    round(engine, &dialer).await;
    let again = heard.lock().unwrap().clone();
    assert_eq!(again.len(), 2);
    assert_eq!(header(&again[0].0, "webhook-id"), header(&again[1].0, "webhook-id"));
    assert_eq!(again[0].1, again[1].1);
}

#[tokio::test]
async fn while_scheduling_is_halted_nothing_else_is_told_and_a_failure_waits_for_its_next_turn() {
    let stage = stage().await;
    let engine = &stage.engine;
    let dialer = Dialer::new(Reach::Private, PATIENCE).unwrap();
    let (url, heard) = receiver(&[503]).await;
    add(engine, &url, &[NoticeKind::Halt]).await;
    engine.halt_scheduling(&me(), "drill", None).await.unwrap();
    round(engine, &dialer).await;
    let row = rows(engine).await.remove(0);
    assert_eq!((row.state, row.attempts, row.status), (NoticeState::Waiting, 1, Some(503)));
    let waits_us = row.due.unwrap().since(row.attempted_at.unwrap());
    assert!((4_000_000..=5_000_000).contains(&waits_us), "five seconds: {waits_us}");
    assert!(row.error.unwrap().contains("503"));
    assert_eq!(heard.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_receiver_within_the_machine_is_not_asked_unless_the_deployment_says_so() {
    let stage = stage().await;
    let engine = &stage.engine;
    let dialer = Dialer::new(Reach::Public, PATIENCE).unwrap();
    let (url, heard) = receiver(&[204]).await;
    add(engine, &url, &[NoticeKind::Halt]).await;
    engine.halt_scheduling(&me(), "drill", None).await.unwrap();
    round(engine, &dialer).await;
    let row = rows(engine).await.remove(0);
    assert_eq!((row.state, row.attempts), (NoticeState::Failed, 1));
    assert!(row.error.unwrap().contains("not a public address"));
    assert!(heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_heartbeat_says_that_the_clock_goes_and_is_silent_when_it_does_not() {
    let stage = stage().await;
    let engine = &stage.engine;
    let dialer = Dialer::new(Reach::Private, PATIENCE).unwrap();
    let (url, heard) = receiver(&[204]).await;
    let new = NewReceiver { name: "alarm".to_owned(), url, about: vec![], heartbeat_s: Some(10) };
    engine.add_receiver(&new, &me(), None).await.unwrap();
    projector::catch_up(engine).await.unwrap();
    let mut telling = leader(engine, &dialer);
    telling.look().await.unwrap();
    assert!(telling.beats.is_empty(), "no clock goes");
    let (stop, stopped) = watch::channel(false);
    let going = tokio::spawn(clock::run(engine.clone(), stopped));
    while clock::still_for_s(engine).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rest = telling.look().await.unwrap();
    assert!(rest <= Duration::from_secs(10), "the next one is due then: {rest:?}");
    telling.look().await.unwrap();
    while heard.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.halt_scheduling(&me(), "drill", None).await.unwrap();
    let mut others = leader(engine, &dialer);
    others.look().await.unwrap();
    assert!(others.beats.is_empty(), "nobody is told that all is well while it is halted");
    let heard = heard.lock().unwrap().clone();
    let [(head, body)] = &heard[..] else { panic!("one in ten seconds: {heard:?}") };
    assert!(body.contains(r#""type":"heartbeat""#) && head.contains("webhook-signature: v1,"), "{head}{body}");
    stop.send_replace(true);
    going.await.unwrap();
}

/// A receiver that takes its time, and answers by what it hears and how often it heard it.
async fn taking(patience: Duration, answer: fn(&str, usize) -> u16) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let heard = Heard::default();
    let keeps = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let keeps = Arc::clone(&keeps);
            tokio::spawn(async move {
                let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
                while !bytes.ends_with(b"}") {
                    match socket.read(&mut chunk).await.unwrap_or(0) {
                        0 => return,
                        read => bytes.extend_from_slice(&chunk[..read]),
                    }
                }
                let text = String::from_utf8(bytes).unwrap();
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                let id = header(head, "webhook-id").to_owned();
                let before = {
                    let mut heard = keeps.lock().unwrap();
                    let before = heard.iter().filter(|(known, _)| *known == id).count();
                    heard.push((id.clone(), body.to_owned()));
                    before
                };
                tokio::time::sleep(patience).await;
                let status = answer(body, before);
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = socket.write_all(answer.as_bytes()).await;
            });
        }
    });
    (url, heard)
}

/// How often each notice was posted.
fn posted(heard: &Heard) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for (id, _) in heard.lock().unwrap().iter() {
        *times.entry(id.clone()).or_default() += 1;
    }
    times
}

const HALTS: usize = 4;

// One that takes longer than a lead lasts would be told by both, if the leader did not keep its lead meanwhile.
async fn each_notice_is_posted_by_one_of_two_processes(url: &str) {
    let home = tempfile::TempDir::new().unwrap();
    let one = process(url, home.path()).await;
    let other = process(url, home.path()).await;
    let dialer = Dialer::new(Reach::Private, PATIENCE).unwrap();
    let quick = taking(Duration::ZERO, |_, _| 204).await;
    let slow = taking(Duration::from_secs(6), |_, _| 204).await;
    let failing = taking(Duration::ZERO, |_, before| if before == 0 { 503 } else { 204 }).await;
    for url in [&quick.0, &slow.0, &failing.0] {
        add(&one, url, &[NoticeKind::Halt]).await;
    }
    let (stop, stopped) = watch::channel(false);
    let mut roles = tokio::task::JoinSet::new();
    for engine in [&one, &other] {
        roles.spawn(projector::run(engine.clone(), stopped.clone()));
        roles.spawn(run(engine.clone(), dialer.clone(), stopped.clone()));
    }
    for _ in 0..HALTS {
        one.halt_scheduling(&me(), "drill", None).await.unwrap();
        one.lift_halt(&me(), None).await.unwrap();
    }
    one.halt_scheduling(&me(), "drill", None).await.unwrap();
    let all = HALTS + 1;
    let began = one.world().clock.monotonic();
    // The slow one is told of one after the other; two of them are enough to outlast any lead.
    while posted(&quick.1).len() < all
        || posted(&failing.1).values().filter(|times| **times == 2).count() < all
        || posted(&slow.1).len() < 2
    {
        assert!(
            one.world().clock.monotonic() < began + Duration::from_secs(40),
            "{:?} {:?} {:?}",
            posted(&quick.1),
            posted(&failing.1),
            posted(&slow.1)
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.send_replace(true);
    while roles.join_next().await.is_some() {}
    projector::catch_up(&one).await.unwrap();
    assert!(posted(&quick.1).values().all(|times| *times == 1), "{:?}", posted(&quick.1));
    assert!(posted(&slow.1).values().all(|times| *times == 1), "{:?}", posted(&slow.1));
    assert!(posted(&failing.1).values().all(|times| *times == 2), "{:?}", posted(&failing.1));
    // Every POST is an attempt in the ledger, also what was being posted as they were told to stop.
    let filter = midwatch_log::Filter { event_types: vec!["engine.notice_attempted".to_owned()], ..Default::default() };
    let attempts = one.log().read_all(0, 1_000, &filter).await.unwrap().0.len();
    let heard = [&quick.1, &slow.1, &failing.1].map(|heard| heard.lock().unwrap().len());
    assert_eq!(attempts, heard.iter().sum::<usize>());
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgresql_each_notice_is_posted_by_one_of_two_processes() {
    let (url, _guard) = midwatch_log::testing::fresh_postgres().await;
    each_notice_is_posted_by_one_of_two_processes(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_each_notice_is_posted_by_one_of_two_processes() {
    let (url, _guard) = midwatch_log::testing::fresh_sqlite();
    each_notice_is_posted_by_one_of_two_processes(&url).await;
}

#[tokio::test]
async fn where_nothing_is_to_be_told_nothing_is_asked() {
    let stage = stage().await;
    let dialer = Dialer::new(Reach::Private, PATIENCE).unwrap();
    let mut telling = leader(&stage.engine, &dialer);
    projector::catch_up(&stage.engine).await.unwrap();
    while telling.look().await.unwrap() < REST {
        projector::catch_up(&stage.engine).await.unwrap();
    }
    // One that failed is looked at when it is due, and a receiver is never told twice at a time.
    let (url, heard) = receiver(&[503]).await;
    add(&stage.engine, &url, &[NoticeKind::Halt]).await;
    stage.engine.halt_scheduling(&me(), "drill", None).await.unwrap();
    projector::catch_up(&stage.engine).await.unwrap();
    while telling.look().await.unwrap() < PAUSE {
        projector::catch_up(&stage.engine).await.unwrap();
    }
    telling.look().await.unwrap();
    while let Some(told) = telling.told().await {
        told.unwrap();
    }
    projector::catch_up(&stage.engine).await.unwrap();
    while telling.look().await.unwrap() < PAUSE {}
    let rest = telling.look().await.unwrap();
    assert!((Duration::from_secs(3)..=Duration::from_secs(5)).contains(&rest), "{rest:?}");
    assert_eq!(heard.lock().unwrap().len(), 1);
}
