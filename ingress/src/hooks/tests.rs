//! The cases of broken receivers, against a real server.

use std::time::Duration;

use midwatch_commands::trigger::TriggerCommand;
use midwatch_engine::triggers::NewSecret;
use midwatch_events::{id::DeliveryId, trigger::Intake};
use reqwest::{Body, Method, StatusCode};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::Instant};

use crate::testing::{Hook, Server, answered, by, heard, problem};

fn capped(bytes: u32) -> Intake {
    Intake { body_bytes_max: bytes, ..Intake::default() }
}

/// A POST's header, up to its empty line.
fn head(hook: &Hook, more: &str) -> String {
    format!("POST /hooks/{} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n{more}\r\n", hook.endpoint, hook.secret)
}

async fn confirm(server: &Server, hook: &Hook) {
    let sample = answered(server.deliver(hook).body("sample").send().await.unwrap(), StatusCode::ACCEPTED).await;
    assert_eq!(sample["status"], "captured");
    server.engine.confirm_trigger(hook.id, None, &by(), None).await.unwrap();
}

async fn body_of(server: &Server, answer: &Value) -> Vec<u8> {
    let id: DeliveryId = answer["delivery"].as_str().unwrap().parse().unwrap();
    server.engine.body(id).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_is_the_sample_and_nothing_runs_before_it_is_confirmed() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let post = |body: &'static str| server.deliver(&hook).body(body).send();
    let first = answered(post("1").await.unwrap(), StatusCode::ACCEPTED).await;
    assert_eq!(first["status"], "captured");
    assert!(first.get("duplicate").is_none(), "{first}");
    let second = answered(post("2").await.unwrap(), StatusCode::ACCEPTED).await;
    assert_eq!(second["status"], "awaiting_confirmation");
    server.engine.confirm_trigger(hook.id, None, &by(), None).await.unwrap();
    assert_eq!(answered(post("3").await.unwrap(), StatusCode::ACCEPTED).await["status"], "accepted");
    let again = answered(post("1").await.unwrap(), StatusCode::OK).await;
    assert_eq!(again, json!({"status": "captured", "delivery": first["delivery"], "duplicate": true}));
    assert_eq!(server.deliveries().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn w1_bytes_are_kept_as_they_came() {
    let server = Server::start().await;
    let hook = server.hook().await;
    for body in [&br#"{"a":"\u001B"}"#[..], b"1.0", b"{ \"a\" : 1 }\r\n", b"\x00\xff\xfe", b"1524831183200260097"] {
        let answer = answered(server.deliver(&hook).body(body).send().await.unwrap(), StatusCode::ACCEPTED).await;
        assert_eq!(body_of(&server, &answer).await, body);
    }
    let long = vec![b'x'; 900_000];
    let answer = answered(server.deliver(&hook).body(long.clone()).send().await.unwrap(), StatusCode::ACCEPTED).await;
    assert_eq!(body_of(&server, &answer).await, long, "also where it is too long for an event");
}

#[tokio::test(flavor = "multi_thread")]
async fn w2_a_chunked_body_over_the_cap_is_refused_before_authenticity() {
    let server = Server::start().await;
    let hook = server.hook_with(capped(100)).await;
    let chunks = (0..5).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 100]));
    let body = Body::wrap_stream(futures_util::stream::iter(chunks));
    let request = server.plain(Method::POST, &format!("/hooks/{}", hook.endpoint)).bearer_auth("mw_wrong").body(body);
    problem(request.send().await.unwrap(), StatusCode::PAYLOAD_TOO_LARGE, "too_large").await;
    assert_eq!(server.deliveries().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn w3_a_stranger_with_64_mib_gets_the_answer_and_costs_the_cap() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let chunks = (0..1_024).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 64 << 10]));
    let body = Body::wrap_stream(futures_util::stream::iter(chunks));
    let before = resident_kb();
    let request = server.plain(Method::POST, &format!("/hooks/{}", hook.endpoint)).body(body);
    problem(request.send().await.unwrap(), StatusCode::PAYLOAD_TOO_LARGE, "too_large").await;
    let grown = resident_kb().saturating_sub(before);
    assert!(grown < 16_000, "grew by {grown} kB");
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn w4_bytes_are_counted_whatever_is_declared() {
    let server = Server::start().await;
    let hook = server.hook_with(capped(100)).await;
    // More than declared: what follows is no part of the body.
    let more =
        server.raw(format!("{}12345", head(&hook, "content-length: 3\r\nconnection: close\r\n")).as_bytes()).await;
    assert!(more.starts_with("HTTP/1.1 202"), "{more}");
    let answer: Value = serde_json::from_str(more.lines().last().unwrap()).unwrap();
    assert_eq!(body_of(&server, &answer).await, b"123");
    // Less than declared, then silence; and less than declared, then the end.
    let silent = server.raw(format!("{}123", head(&hook, "content-length: 9\r\n")).as_bytes()).await;
    assert!(silent.starts_with("HTTP/1.1 408"), "{silent}");
    let mut stream = TcpStream::connect(server.listen).await.unwrap();
    stream.write_all(format!("{}123", head(&hook, "content-length: 9\r\n")).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let cut = heard(&mut stream).await;
    assert!(!cut.contains(" 202 "), "{cut}");
    // Declared over the cap: at once, and nothing has to be sent.
    let declared = server.raw(head(&hook, "content-length: 101\r\n").as_bytes()).await;
    assert!(declared.starts_with("HTTP/1.1 413"), "{declared}");
    let expecting = server.raw(head(&hook, "content-length: 101\r\nexpect: 100-continue\r\n").as_bytes()).await;
    assert!(expecting.starts_with("HTTP/1.1 413") && !expecting.contains("100 Continue"), "{expecting}");
    // Two lengths, and a length beside chunks, are how requests are smuggled.
    for lines in ["content-length: 3\r\ncontent-length: 4\r\n", "content-length: abc\r\n"] {
        let refused = server.raw(format!("{}1234", head(&hook, lines)).as_bytes()).await;
        assert!(refused.starts_with("HTTP/1.1 400"), "{lines}: {refused}");
    }
    assert_eq!(server.deliveries().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn w4_whoever_asks_before_sending_is_told_to_go_on() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let mut stream = TcpStream::connect(server.listen).await.unwrap();
    let head = head(&hook, "content-length: 3\r\nexpect: 100-continue\r\nconnection: close\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut buffer = [0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut buffer).await.unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"123").await.unwrap();
    assert!(heard(&mut stream).await.starts_with("HTTP/1.1 202"));
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_one_byte_over_the_cap_is_refused_and_nothing_is_stored() {
    let server = Server::start().await;
    let hook = server.hook_with(capped(100)).await;
    let chunked = |bytes: usize| {
        let chunks = [Ok::<_, std::io::Error>(vec![b'x'; bytes])];
        server.deliver(&hook).body(Body::wrap_stream(futures_util::stream::iter(chunks))).send()
    };
    problem(chunked(101).await.unwrap(), StatusCode::PAYLOAD_TOO_LARGE, "too_large").await;
    assert_eq!(server.deliveries().await, 0);
    answered(chunked(100).await.unwrap(), StatusCode::ACCEPTED).await;
    assert_eq!(server.deliveries().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn w9_a_missing_id_falls_back_to_the_body() {
    let server = Server::start().await;
    let hook = server.hook().await;
    for (id, body, status) in [
        ("", "a", StatusCode::ACCEPTED),
        ("", "b", StatusCode::ACCEPTED),
        ("", "a", StatusCode::OK),
        ("1", "a", StatusCode::ACCEPTED),
        ("1", "a", StatusCode::OK),
        ("2", "a", StatusCode::ACCEPTED),
        // The same id for another body is a delivery of its own.
        ("1", "c", StatusCode::ACCEPTED),
        ("1", "c", StatusCode::OK),
    ] {
        let response = server.deliver(&hook).header("x-delivery-id", id).body(body).send().await.unwrap();
        let answer = answered(response, status).await;
        assert_eq!(server.received(&answer["delivery"]).await.id_conflict, body == "c", "{id} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w10_two_at_the_same_moment_are_one_delivery_and_one_run() {
    let server = Server::start().await;
    let other = server.another().await;
    let hook = server.hook().await;
    confirm(&server, &hook).await;
    let before = server.deliveries().await;
    for round in 0..5 {
        let id = format!("id-{round}");
        let post = |server: &Server| server.deliver(&hook).header("idempotency-key", &id).body("same").send();
        let (one, two, three) = tokio::join!(post(&server), post(&other), post(&server));
        let mut answers = Vec::new();
        for response in [one, two, three] {
            let response = response.unwrap();
            let status = response.status();
            answers.push((status, response.json::<Value>().await.unwrap()));
        }
        let first: Vec<_> = answers.iter().filter(|(status, _)| *status == StatusCode::ACCEPTED).collect();
        assert_eq!(first.len(), 1, "{answers:?}");
        for (status, answer) in &answers {
            assert!(*status == StatusCode::ACCEPTED || *status == StatusCode::OK, "{answers:?}");
            assert_eq!(answer["delivery"], first[0].1["delivery"]);
            assert_eq!(answer["status"], first[0].1["status"]);
        }
    }
    assert_eq!(server.deliveries().await, before + 5);
    let opened = midwatch_log::Filter { event_types: vec!["run.opened".to_owned()], ..Default::default() };
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let runs = server.engine.log().read_all(0, 100, &opened).await.unwrap().0;
        assert!(runs.len() <= 1, "one live run");
        if runs.len() == 1 {
            break;
        }
        assert!(Instant::now() < until, "no run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_what_is_no_json_is_kept_with_the_reason() {
    let server = Server::start().await;
    let hook = server.hook().await;
    for (body, reason) in [
        (&br#"{"a":"\u0000"}"#[..], "U+0000"),
        (br#""\ud800""#, "surrogate"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"{\"a\":1,\"a\":2}", "twice"),
        (b"\xff", "UTF-8"),
        (b"", "empty"),
    ] {
        let answer = answered(server.deliver(&hook).body(body).send().await.unwrap(), StatusCode::ACCEPTED).await;
        let received = server.received(&answer["delivery"]).await;
        assert!(!received.parsed);
        assert!(received.unparsed.unwrap().contains(reason));
        assert_eq!(body_of(&server, &answer).await, body);
    }
    let deep = "[".repeat(200_000);
    answered(server.deliver(&hook).body(deep).send().await.unwrap(), StatusCode::ACCEPTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w13_the_secret_and_nothing_else_opens() {
    let server = Server::start().await;
    let (hook, other) = (server.hook().await, server.hook().await);
    let path = format!("/hooks/{}", hook.endpoint);
    let mut bodies = std::collections::HashSet::new();
    let cut = hook.secret[..hook.secret.len() - 1].to_owned();
    let longer = format!("{}A", hook.secret);
    for line in [
        None,
        Some(String::new()),
        Some("Bearer ".to_owned()),
        Some(format!("Bearer {}", other.secret)),
        Some(format!("Bearer {cut}")),
        Some(format!("Bearer {longer}")),
        Some(format!("Bearer {}", hook.secret.to_uppercase())),
        Some(format!("Basic {}", hook.secret)),
        Some(hook.secret.clone()),
        Some(format!("Bearer {}", server.token)),
    ] {
        let mut request = server.plain(Method::POST, &path).body("x");
        if let Some(line) = &line {
            request = request.header("authorization", line);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer", "{line:?}");
        bodies.insert(problem(response, StatusCode::UNAUTHORIZED, "not_authentic").await.to_string());
    }
    assert_eq!(bodies.len(), 1, "one body for every failure");
    assert_eq!(server.deliveries().await, 0);
    answered(server.deliver(&hook).body("x").send().await.unwrap(), StatusCode::ACCEPTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w14_a_header_that_never_ends_is_cut() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.listen).await.unwrap();
    stream.write_all(b"POST /hooks/x HTTP/1.1\r\nhost: x\r\nx-a: ").await.unwrap();
    let since = Instant::now();
    let mut answer = Vec::new();
    let closed = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer);
    tokio::time::timeout(Duration::from_secs(5), closed).await.unwrap().unwrap();
    assert!(since.elapsed() >= Duration::from_millis(300), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    assert!(!String::from_utf8_lossy(&answer).contains(" 200 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn w14_a_connection_that_asks_nothing_more_is_closed() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.listen).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let closed = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer);
    tokio::time::timeout(Duration::from_secs(5), closed).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn w16_packed_bytes_are_refused() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let packed = server.deliver(&hook).header("content-encoding", "gzip").body("x").send().await.unwrap();
    assert_eq!(packed.headers()["accept-encoding"], "identity");
    problem(packed, StatusCode::UNSUPPORTED_MEDIA_TYPE, "packed").await;
    let stranger = server.plain(Method::POST, &format!("/hooks/{}", hook.endpoint)).header("content-encoding", "gzip");
    problem(stranger.body("x").send().await.unwrap(), StatusCode::UNAUTHORIZED, "not_authentic").await;
    let plain = server.deliver(&hook).header("content-encoding", "identity").body("x").send().await.unwrap();
    answered(plain, StatusCode::ACCEPTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w18_probes_change_nothing() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let path = format!("/hooks/{}", hook.endpoint);
    let before = server.engine.log().head().await.unwrap();
    let probe = |method| server.plain(method, &path).bearer_auth(&hook.secret).send();
    let head = probe(Method::HEAD).await.unwrap();
    assert_eq!(head.status(), StatusCode::OK);
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH] {
        let refused = probe(method.clone()).await.unwrap();
        assert_eq!(refused.headers()["allow"], "POST, HEAD", "{method}");
        problem(refused, StatusCode::METHOD_NOT_ALLOWED, "method").await;
    }
    assert_eq!(server.engine.log().head().await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paused_and_deleted_endpoints_are_all_alike() {
    let server = Server::start().await;
    let (unknown, paused, deleted) = (server.hook().await, server.hook().await, server.hook().await);
    let unknown = Hook { endpoint: "AAAAAAAAAAAAAAAAAAAAAAAA".to_owned(), ..unknown };
    // Known here before: what is cached must not answer.
    for hook in [&paused, &deleted] {
        answered(server.deliver(hook).body("x").send().await.unwrap(), StatusCode::ACCEPTED).await;
    }
    server.engine.change_trigger(paused.id, &by(), None, TriggerCommand::Pause).await.unwrap();
    server.engine.change_trigger(deleted.id, &by(), None, TriggerCommand::Delete).await.unwrap();
    let mut bodies = std::collections::HashSet::new();
    for hook in [&unknown, &paused, &deleted] {
        let response = server.deliver(hook).body("y").send().await.unwrap();
        bodies.insert(problem(response, StatusCode::NOT_FOUND, "not_found").await.to_string());
    }
    for path in
        ["/hooks/AAAAAAAAAAAAAAAAAAAAAA%2F", "/hooks/AAAAAAAAAAAAAAAAAAAAA%00", "/hooks/", "/hooks", "/hooks/x/y/z"]
    {
        let answer =
            server.raw(format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        bodies.insert(answer.lines().last().unwrap().to_owned());
    }
    let dots = server.raw(b"POST /hooks/../hooks/x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(dots.starts_with("HTTP/1.1 404"), "{dots}");
    let values: std::collections::HashSet<_> =
        bodies.iter().map(|body| serde_json::from_str::<Value>(body).unwrap().to_string()).collect();
    assert_eq!(values.len(), 1, "{bodies:?}");
    server.engine.change_trigger(paused.id, &by(), None, TriggerCommand::Resume).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    answered(server.deliver(&paused).body("z").send().await.unwrap(), StatusCode::ACCEPTED).await;
    assert_eq!(server.deliveries().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_another_process_just_made_works_at_once() {
    let (server, hook) = {
        let server = Server::start().await;
        let other = server.another().await;
        let hook = other.hook().await;
        (server, hook)
    };
    answered(server.deliver(&hook).body("x").send().await.unwrap(), StatusCode::ACCEPTED).await;
}

/// The projections come to the head while the first delivery looks its trigger up: at every moment of it, it is found.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_delivery_of_a_new_trigger_always_finds_it() {
    let server = Server::start().await;
    for n in 0..60 {
        let hook = server.hook().await;
        tokio::time::sleep(Duration::from_micros(n * 100)).await;
        answered(server.deliver(&hook).body("x").send().await.unwrap(), StatusCode::ACCEPTED).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_and_its_old_one_are_good_as_long_as_said() {
    let server = Server::start().await;
    let other = server.another().await;
    let hook = server.hook().await;
    answered(server.deliver(&hook).body("1").send().await.unwrap(), StatusCode::ACCEPTED).await;
    // By another process, while this one knows the trigger as it was.
    let new = other.engine.rotate_secret(hook.id, &NewSecret::Made, 600, &by(), None).await.unwrap().value.unwrap();
    let rotated = Hook { secret: new, ..hook.clone() };
    answered(server.deliver(&rotated).body("2").send().await.unwrap(), StatusCode::ACCEPTED).await;
    answered(server.deliver(&hook).body("3").send().await.unwrap(), StatusCode::ACCEPTED).await;
    let new = other.engine.rotate_secret(hook.id, &NewSecret::Made, 0, &by(), None).await.unwrap().value.unwrap();
    let newest = Hook { secret: new, ..hook.clone() };
    for gone in [&hook, &rotated] {
        let refused = server.deliver(gone).body("4").send().await.unwrap();
        problem(refused, StatusCode::UNAUTHORIZED, "not_authentic").await;
    }
    answered(server.deliver(&newest).body("5").send().await.unwrap(), StatusCode::ACCEPTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halt_answers_before_anything_is_looked_at() {
    let server = Server::start().await;
    let hook = server.hook().await;
    server.engine.halt_scheduling(&by(), "storm", None).await.unwrap();
    let before = server.engine.log().head().await.unwrap();
    for request in [
        server.deliver(&hook).body("x"),
        server.plain(Method::POST, "/hooks/nonsense").body("x"),
        server.plain(Method::GET, &format!("/hooks/{}", hook.endpoint)),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["retry-after"], "60");
        problem(response, StatusCode::SERVICE_UNAVAILABLE, "halted").await;
    }
    assert_eq!(server.engine.log().head().await.unwrap(), before);
    server.engine.lift_halt(&by(), None).await.unwrap();
    answered(server.deliver(&hook).body("x").send().await.unwrap(), StatusCode::ACCEPTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_is_cut_and_nothing_is_recorded() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let mut stream = TcpStream::connect(server.listen).await.unwrap();
    stream.write_all(head(&hook, "transfer-encoding: chunked\r\n").as_bytes()).await.unwrap();
    let since = Instant::now();
    let drip = async {
        // Each byte comes in time; together they do not.
        for _ in 0..50 {
            if stream.write_all(b"1\r\nx\r\n").await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut buffer = [0; 512];
            if let Ok(length @ 1..) = stream.try_read(&mut buffer) {
                return String::from_utf8_lossy(&buffer[..length]).into_owned();
            }
        }
        String::new()
    };
    let answer = drip.await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(since.elapsed() < Duration::from_secs(2));
    assert_eq!(server.deliveries().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_any_length_and_bytes_tell_deliveries_apart() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let long = "x".repeat(10_000);
    let ids: [Vec<u8>; 4] = [format!("{long}a").into(), format!("{long}b").into(), vec![0xe9], "é".into()];
    for id in &ids {
        let value = || reqwest::header::HeaderValue::from_bytes(id).unwrap();
        let post = || server.deliver(&hook).header("idempotency-key", value()).body("same").send();
        let first = answered(post().await.unwrap(), StatusCode::ACCEPTED).await;
        assert_eq!(answered(post().await.unwrap(), StatusCode::OK).await["delivery"], first["delivery"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_type_is_the_headers_else_the_bodys() {
    let server = Server::start().await;
    let hook = server.hook().await;
    let post = |header: &'static str, body: &'static str| {
        server.deliver(&hook).header("x-event-type", header).body(body).send()
    };
    for (header, body, event_type) in [
        ("push", r#"{"event":"other"}"#, Some("push")),
        ("", r#"{"event":"body"}"#, Some("body")),
        ("", r#"{"type":"t","n":1524831183200260097}"#, Some("t")),
        ("", "no json", None),
        ("named", "no json either", Some("named")),
    ] {
        let answer = answered(post(header, body).await.unwrap(), StatusCode::ACCEPTED).await;
        assert_eq!(server.received(&answer["delivery"]).await.event_type.as_deref(), event_type, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_sees_what_became_of_its_own_deliveries() {
    let server = Server::start().await;
    let (hook, other) = (server.hook().await, server.hook().await);
    confirm(&server, &hook).await;
    let answer = answered(server.deliver(&hook).body("x").send().await.unwrap(), StatusCode::ACCEPTED).await;
    let delivery = answer["delivery"].as_str().unwrap();
    let ask = |hook: &Hook, secret: &str, delivery: &str| {
        let path = format!("/hooks/{}/deliveries/{delivery}", hook.endpoint);
        server.plain(Method::GET, &path).bearer_auth(secret).send()
    };
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let status = answered(ask(&hook, &hook.secret, delivery).await.unwrap(), StatusCode::OK).await;
        if status == json!({"status": "started", "outcome": null}) {
            break;
        }
        assert!(Instant::now() < until, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    problem(ask(&hook, "mw_x", delivery).await.unwrap(), StatusCode::UNAUTHORIZED, "not_authentic").await;
    problem(ask(&other, &other.secret, delivery).await.unwrap(), StatusCode::NOT_FOUND, "not_found").await;
    problem(ask(&hook, &hook.secret, "x").await.unwrap(), StatusCode::NOT_FOUND, "not_found").await;
    let posted = server.plain(Method::POST, &format!("/hooks/{}/deliveries/{delivery}", hook.endpoint)).body("x");
    problem(posted.send().await.unwrap(), StatusCode::METHOD_NOT_ALLOWED, "method").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_slowed_down_and_senders_are_not() {
    let server = Server::start().await;
    let hook = server.hook().await;
    for n in 0..450 {
        let response = server.deliver(&hook).body(n.to_string()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::ACCEPTED);
    }
    let mut last = StatusCode::OK;
    for _ in 0..1_000 {
        let response = server.plain(Method::POST, "/hooks/AAAAAAAAAAAAAAAAAAAAAAAA").body("x").send().await.unwrap();
        last = response.status();
        if last == StatusCode::TOO_MANY_REQUESTS {
            assert_eq!(response.headers()["retry-after"], "1");
            break;
        }
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
}
