//! Notices, to a receiver that answers over a socket.

use std::sync::{Arc, Mutex};

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
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (url, guard) = midwatch_log::testing::fresh_sqlite();
    let home = tempfile::TempDir::new().unwrap();
    let outside = Outside { deployment: None, key: None, key_file: None, state_home: home.path().to_owned() };
    let opening = Opening {
        url,
        outside,
        process: ProcessId::new(World::system().uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    };
    let engine = Engine::open(World::system(), opening).await.unwrap();
    Stage { engine, _home: home, _guard: guard }
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

async fn round(engine: &Engine, dialer: &Dialer) {
    for _ in 0..3 {
        projector::catch_up(engine).await.unwrap();
        tell(engine, dialer, &mut Beats::new()).await.unwrap();
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
    let mut beats = Beats::new();
    tell(engine, &dialer, &mut beats).await.unwrap();
    assert!(beats.is_empty(), "no clock goes");
    let (stop, stopped) = watch::channel(false);
    let going = tokio::spawn(clock::run(engine.clone(), stopped));
    while clock::still_for_s(engine).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tell(engine, &dialer, &mut beats).await.unwrap();
    tell(engine, &dialer, &mut beats).await.unwrap();
    while heard.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.halt_scheduling(&me(), "drill", None).await.unwrap();
    let mut others = Beats::new();
    tell(engine, &dialer, &mut others).await.unwrap();
    assert!(others.is_empty(), "nobody is told that all is well while it is halted");
    let heard = heard.lock().unwrap().clone();
    let [(head, body)] = &heard[..] else { panic!("one in ten seconds: {heard:?}") };
    assert!(body.contains(r#""type":"heartbeat""#) && head.contains("webhook-signature: v1,"), "{head}{body}");
    stop.send_replace(true);
    going.await.unwrap();
}
