//! The sockets, and what every answer says.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use midwatch_events::{StreamName, id::BotId, user::Access};
use midwatch_log::{Append, Expected, NewEvent, StreamAppend, WentBack};
use reqwest::{Method, StatusCode};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::watch};

use super::{Limits, serve};
use crate::{
    App, Settings,
    api::status::unwell,
    testing::{Server, answered, heard, problem, quick},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_one_clear_sentence() {
    let server = Server::start().await;
    let app = App { engine: server.engine.clone(), settings: Arc::new(Settings::default()), agents: None };
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let (_stop, stopping) = watch::channel(false);
    let taken = serve(app.clone(), server.listen, None, stopping.clone()).await.unwrap_err().to_string();
    let port = server.listen.port();
    let wanted = format!(
        "cannot listen on 127.0.0.1:{port}: another process uses this port; stop it, or choose another with --listen"
    );
    assert_eq!(taken, wanted);
    let second = serve(app.clone(), any, Some(server.listen), stopping.clone()).await.unwrap_err().to_string();
    assert!(second.ends_with("choose another with --hooks-listen"), "{second}");
    let foreign = serve(app, "192.0.2.1:1".parse().unwrap(), None, stopping).await.unwrap_err().to_string();
    assert!(foreign.starts_with("cannot listen on 192.0.2.1:1: "), "{foreign}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_address_serves_hooks_and_nothing_else() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let at = |path: &str| format!("http://{}{path}", server.hooks_listen);
    let health = server.client.get(at("/health")).send().await.unwrap();
    assert_eq!(answered(health, StatusCode::OK).await["ok"], true);
    let posted = server.client.post(at(&format!("/hooks/{}", hook.endpoint))).bearer_auth(&hook.secret).body("x");
    answered(posted.send().await.unwrap(), StatusCode::ACCEPTED).await;
    for path in ["/", "/ready", "/api/v1/me", "/api/v1/openapi.json", "/metrics"] {
        let response = server.client.get(at(path)).bearer_auth(&server.token).send().await.unwrap();
        problem(response, StatusCode::NOT_FOUND, "not_found").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_carries_the_security_headers() {
    let server = Server::start().await;
    for path in ["/health", "/ready", "/nothing", "/api/v1/me", "/api/v1/openapi.json", "/hooks/x"] {
        let response = server.plain(Method::GET, path).send().await.unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        let csp = header("content-security-policy");
        assert!(csp.contains("default-src 'none'") && csp.contains("frame-ancestors 'none'"), "{csp}");
        assert!(!csp.contains("unsafe"), "{csp}");
        assert_eq!(header("referrer-policy"), "same-origin", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_what_is_under_way_and_closes() {
    let mut server = Server::start_within(Limits { body_deadline: Duration::from_secs(10), ..quick() }).await;
    let hook = server.hook().await;
    let mut idle = TcpStream::connect(server.listen).await.unwrap();
    let mut stream = TcpStream::connect(server.listen).await.unwrap();
    let head = format!(
        "POST /hooks/{} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 4\r\n\r\nab",
        hook.endpoint, hook.secret
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let rest = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stream.write_all(b"cd").await.unwrap();
        heard(&mut stream).await
    });
    server.stopped().await;
    let answer = rest.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202") && answer.contains("connection: close"), "{answer}");
    assert_eq!(heard(&mut idle).await, "");
    assert!(TcpStream::connect(server.listen).await.is_err(), "nobody listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_cap_whoever_keeps_us_waiting_longest_gives_way() {
    let limits = Limits { connections: 2, header_deadline: Duration::from_secs(60), ..quick() };
    let server = Server::start_within(limits).await;
    let hook = server.hook().await;
    // Somebody who is being read from, and somebody who says nothing.
    let mut sender = TcpStream::connect(server.listen).await.unwrap();
    let (endpoint, secret) = (&hook.endpoint, &hook.secret);
    let head = format!("POST /hooks/{endpoint} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n");
    sender.write_all(format!("{head}connection: close\r\ncontent-length: 4\r\n\r\nab").as_bytes()).await.unwrap();
    let mut silent = TcpStream::connect(server.listen).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let since = tokio::time::Instant::now();
    let health = server.plain(Method::GET, "/health").send().await.unwrap();
    assert_eq!(health.status(), StatusCode::OK);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let mut nothing = [0; 8];
    let cut = tokio::io::AsyncReadExt::read(&mut silent, &mut nothing);
    let cut = tokio::time::timeout(Duration::from_secs(1), cut).await.unwrap();
    assert!(matches!(cut, Ok(0) | Err(_)), "{cut:?}");
    sender.write_all(b"cd").await.unwrap();
    let answer = heard(&mut sender).await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_says_when_a_projection_stopped() {
    let server = Server::start().await;
    // Nobody keeps time yet: what is due is not done.
    let ready = server.plain(Method::GET, "/ready").send().await.unwrap();
    let said = problem(ready, StatusCode::SERVICE_UNAVAILABLE, "not_ready").await;
    assert!(said["detail"].as_str().unwrap().contains("clock"), "{said}");
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(midwatch_engine::clock::run(server.engine.clone(), stopped));
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while server.plain(Method::GET, "/ready").send().await.unwrap().status() != StatusCode::OK {
        assert!(tokio::time::Instant::now() < until, "never ready");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let ready = server.plain(Method::GET, "/ready").send().await.unwrap();
    assert_eq!(answered(ready, StatusCode::OK).await["ok"], true);
    append_what_cannot_be_read(&server).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let ready = server.plain(Method::GET, "/ready").send().await.unwrap();
        if ready.status() == StatusCode::SERVICE_UNAVAILABLE {
            assert!(ready.headers().contains_key("retry-after"));
            let said = problem(ready, StatusCode::SERVICE_UNAVAILABLE, "not_ready").await;
            assert!(said["detail"].as_str().unwrap().contains("stopped at position"), "{said}");
            break;
        }
        assert!(tokio::time::Instant::now() < until, "still ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let health = server.plain(Method::GET, "/health").send().await.unwrap();
    assert_eq!(health.status(), StatusCode::OK, "it serves all the same");
}

/// Both heads are shown wherever somebody looks, and a program hears the ledger's own code.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_went_back_is_said_everywhere() {
    let server = Server::start().await;
    let session = server.sign_in("Ada", Access::Admin).await;
    server.engine.log().go_back(WentBack { seen: 4_711, head: 3 });
    let ready = server.plain(Method::GET, "/ready").send().await.unwrap();
    let said = problem(ready, StatusCode::SERVICE_UNAVAILABLE, "not_ready").await;
    let said = said["detail"].as_str().unwrap().to_owned();
    assert!(said.contains("seen position 4711") && said.contains("ends at 3"), "{said}");
    let asked = server.admin(Method::POST, "/api/v1/bots").json(&serde_json::json!({"name": "late"}));
    let refused = asked.send().await.unwrap();
    let refused = problem(refused, StatusCode::INTERNAL_SERVER_ERROR, "ledger_went_back").await;
    assert_eq!(refused["kind"], "corruption");
    let metrics = server.plain(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("midwatch_scheduling_halted 1"), "{metrics}");
    let page = server.browser(&session, Method::GET, "/").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("Scheduling is halted") && page.contains("seen position 4711"), "{page}");
}

/// Somebody with another binary, or a damaged one, wrote this.
async fn append_what_cannot_be_read(server: &Server) {
    let event = NewEvent {
        event_id: server.engine.world().uuid(),
        event_type: "bot.registered".to_owned(),
        schema: 1,
        actor: "engine".to_owned(),
        correlation_id: None,
        causation_id: None,
        facts: vec![0xa0],
        content: None,
    };
    let stream = StreamName::bot(BotId::new(server.engine.world().uuid()));
    let entries = vec![StreamAppend { stream, expected: Expected::Exact(0), events: vec![event] }];
    server.engine.log().append(Append { entries, ..Append::default() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_that_nobody_keeps_stands_still() {
    let mut server = Server::start().await;
    midwatch_engine::projector::catch_up(&server.engine).await.unwrap();
    assert_eq!(unwell(&server.engine, 0).await.unwrap(), None);
    // Nobody projects any more.
    server.stopped().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.bot().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let said = unwell(&server.engine, 0).await.unwrap().unwrap();
    assert!(said.contains("stands still at position"), "{said}");
    let behind = midwatch_engine::projector::status(&server.engine).await.unwrap();
    assert!(behind.iter().all(|status| status.behind > 0 && (20..60_000).contains(&status.lag_ms)), "{behind:?}");
    assert_eq!(unwell(&server.engine, 60).await.unwrap(), None, "it has a moment");
}
