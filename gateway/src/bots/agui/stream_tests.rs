//! Answers as a socket brings them: every stream of `tests-data/agui_streams.json`, and what TCP and HTTP can do.

use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::tools::files;

#[derive(Deserialize)]
struct Case {
    name: String,
    /// What the official client (1.0.0 for JavaScript) makes of it, where that was measured.
    official: Option<String>,
    ours: String,
    /// Why ours differs.
    why: Option<String>,
    text: Option<String>,
    pending: Option<Vec<String>>,
    events: Option<Vec<Value>>,
    raw: Option<String>,
    status: Option<u16>,
    content_type: Option<String>,
    body: Option<String>,
}

fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn http(status: u16, content_type: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

/// What the server does once it has answered.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Closes,
    StaysOpen,
}

/// Serves one answer, in the given pieces with a pause between them, and gives the request it got.
async fn serve(pieces: Vec<Vec<u8>>, then: Then) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/agent", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let request = read_request(&mut socket).await;
        for piece in pieces {
            // The client may have hung up already.
            let _ = socket.write_all(&piece).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if then == Then::StaysOpen {
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        request
    });
    (url, server)
}

async fn read_request(socket: &mut tokio::net::TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() >= length.parse().unwrap() {
                return String::from_utf8(request).unwrap();
            }
        }
        assert_ne!(socket.read_buf(&mut request).await.unwrap(), 0, "the request is complete");
    }
}

fn client(url: &str, options: AguiOptions) -> AguiClient {
    let _ = rustls::crypto::ring::default_provider().install_default();
    AguiClient::new(url, options).unwrap()
}

fn quick() -> AguiOptions {
    AguiOptions { stall: Duration::from_millis(300), ..AguiOptions::default() }
}

async fn run(url: &str, options: AguiOptions) -> Result<RunOutcome, RunFailure> {
    let mut history = History::new();
    history.say("go");
    let input = RunInput { thread_id: "t", run_id: "r", history: &history, tools: &[], state: &json!({}), resume: &[] };
    client(url, options).run(input).await
}

async fn answered(answer: Vec<u8>, options: AguiOptions) -> Result<RunOutcome, RunFailure> {
    let (url, _server) = serve(vec![answer], Then::Closes).await;
    run(&url, options).await
}

fn verdict(result: &Result<RunOutcome, RunFailure>) -> &'static str {
    match result {
        Ok(RunOutcome { ending: Ending::Finished, .. }) => "finished",
        Ok(RunOutcome { ending: Ending::Interrupted(_), .. }) => "interrupted",
        Ok(RunOutcome { ending: Ending::Cancelled, .. }) => "cancelled",
        Err(RunFailure::Unreachable { .. }) => "unreachable",
        Err(RunFailure::Rejected { .. }) => "rejected",
        Err(RunFailure::Broken { .. } | RunFailure::Silent { .. }) => "broken",
        Err(RunFailure::BotError { .. }) => "bot_error",
    }
}

#[tokio::test]
async fn every_known_stream_has_our_verdict() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../tests-data/agui_streams.json")).unwrap();
    assert!(cases.len() > 80);
    for case in cases {
        let body = case.events.map(|events| sse(&events)).or(case.raw).or(case.body).unwrap();
        let content_type = case.content_type.as_deref().unwrap_or("text/event-stream");
        let result = answered(http(case.status.unwrap_or(200), content_type, &body), AguiOptions::default()).await;
        assert_eq!(verdict(&result), case.ours, "{}: {result:?}", case.name);
        let accepted = matches!(case.ours.as_str(), "finished" | "interrupted" | "cancelled");
        if case.official.is_some_and(|official| accepted != (official == "accepted")) && case.ours != "bot_error" {
            assert!(case.why.is_some(), "{}: say why ours differs", case.name);
        }
        if let Ok(RunOutcome { produced, .. }) = &result {
            let pending: Vec<_> = produced.pending().map(|call| call.id.clone()).collect();
            assert_eq!(pending, case.pending.unwrap_or_default(), "{}", case.name);
            assert_eq!(produced.last_text(), case.text.as_deref(), "{}", case.name);
            let answers: Vec<_> = produced.messages.iter().filter_map(Message::answers).collect();
            let distinct: std::collections::BTreeSet<_> = answers.iter().collect();
            assert_eq!(distinct.len(), answers.len(), "{}: a call has one answer", case.name);
        }
        if let Err(failure) = result {
            let sentence = failure.to_string();
            assert!(sentence.starts_with("The Bot"), "{}: {sentence}", case.name);
        }
    }
}

#[tokio::test]
async fn the_request_carries_everything_both_eras_need() {
    let events = [json!({ "type": "RUN_STARTED" }), json!({ "type": "RUN_FINISHED" })];
    let (url, server) = serve(vec![http(200, "text/event-stream; charset=utf-8", &sse(&events))], Then::Closes).await;
    let mut history = History::new();
    history.say("go");
    let input = RunInput {
        thread_id: "any thread",
        run_id: "any run",
        history: &history,
        tools: &files::definitions(),
        state: &json!({}),
        resume: &[],
    };
    let options = AguiOptions { authorization: Some("Bearer abc".to_owned()), ..AguiOptions::default() };
    client(&url, options).run(input).await.unwrap();
    let request = server.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    for line in [
        "post /agent http/1.1",
        "content-type: application/json",
        "accept: text/event-stream",
        "authorization: bearer abc",
    ] {
        assert!(head.lines().any(|sent| sent == line), "{line} in {head}");
    }
    let mut body: Value = serde_json::from_str(body).unwrap();
    let tools = body["tools"].take();
    assert_eq!(tools[1]["name"], "computer_read_file");
    assert_eq!(tools[1]["parameters"]["required"], json!(["path"]));
    assert_eq!(tools[1].as_object().unwrap().len(), 3);
    let expected = json!({
        "threadId": "any thread", "runId": "any run", "protocolVersion": "1.0", "tools": null, "context": [], "state": {},
        "forwardedProps": {}, "messages": [{ "id": "user-0", "role": "user", "content": "go" }],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn bytes_in_any_pieces_are_the_same_stream() {
    let events = [
        json!({ "type": "RUN_STARTED" }),
        json!({ "type": "TEXT_MESSAGE_CHUNK", "messageId": "ü", "delta": "grün" }),
        json!({ "type": "RUN_FINISHED" }),
    ];
    let answer = http(200, "text/event-stream", &sse(&events));
    let pieces = answer.chunks(9).map(<[u8]>::to_vec).collect();
    let (url, _server) = serve(pieces, Then::Closes).await;
    assert_eq!(run(&url, AguiOptions::default()).await.unwrap().produced.last_text(), Some("grün"));
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    for url in [url.as_str(), "http://bot.invalid/"] {
        let failure = run(url, AguiOptions::default()).await.unwrap_err();
        assert!(matches!(failure, RunFailure::Unreachable { .. }), "{failure:?}");
        assert!(failure.to_string().starts_with("The Bot cannot be reached: "), "{failure}");
    }
    // One that takes the request and hangs up.
    let (url, _server) = serve(vec![], Then::Closes).await;
    assert_eq!(verdict(&run(&url, AguiOptions::default()).await), "unreachable");
}

#[tokio::test]
async fn silence_is_noticed_before_and_within_an_answer() {
    let (url, _server) = serve(vec![], Then::StaysOpen).await;
    assert_eq!(verdict(&run(&url, quick()).await), "unreachable");
    let started = sse(&[
        json!({ "type": "RUN_STARTED" }),
        json!({ "type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "so far" }),
    ]);
    let (url, _server) = serve(vec![http(200, "text/event-stream", &started)], Then::StaysOpen).await;
    let Err(RunFailure::Silent { sentence, produced }) = run(&url, quick()).await else { panic!("it is silent") };
    assert_eq!(sentence, "The Bot was silent for 300ms.");
    assert_eq!(produced.last_text(), Some("so far"), "what came until then is kept");
}

#[tokio::test]
async fn a_connection_left_open_after_the_end_is_not_waited_for() {
    let events = [json!({ "type": "RUN_STARTED" }), json!({ "type": "RUN_FINISHED" })];
    let (url, _server) = serve(vec![http(200, "text/event-stream", &sse(&events))], Then::StaysOpen).await;
    let outcome = tokio::time::timeout(Duration::from_secs(5), run(&url, AguiOptions::default())).await.unwrap();
    assert_eq!(verdict(&outcome), "finished");
}

#[tokio::test]
async fn an_answer_cut_by_the_connection_is_broken() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let piece = b"1a\r\ndata: {\"type\":\"RUN_STARTED\"".to_vec();
    let (url, _server) = serve(vec![head, piece], Then::Closes).await;
    let failure = run(&url, AguiOptions::default()).await.unwrap_err();
    assert!(matches!(failure, RunFailure::Broken { .. }), "{failure:?}");
}

#[tokio::test]
async fn lines_messages_and_runs_have_limits() {
    let options =
        || AguiOptions { line_limit: 1_000, message_limit: 1_500, run_limit: 3_000, ..AguiOptions::default() };
    let chunk = |n: usize| json!({ "type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "x".repeat(n) });
    let custom = json!({ "type": "CUSTOM", "name": "n", "value": "x".repeat(800) });
    for (events, why) in [
        (vec![chunk(1_000)], "a line of more than 1000 bytes"),
        (vec![chunk(800), chunk(800)], "message \"m\" of more than 1500 bytes"),
        (vec![custom.clone(), custom.clone(), custom.clone(), custom], "more than 3000 bytes in one run"),
    ] {
        let stream = sse(&[&[json!({ "type": "RUN_STARTED" })], events.as_slice()].concat());
        let failure = answered(http(200, "text/event-stream", &stream), options()).await.unwrap_err();
        assert!(failure.to_string().contains(why), "{failure}");
    }
    let calls =
        (0..600).map(|n| json!({ "type": "TOOL_CALL_CHUNK", "toolCallId": format!("c{n}"), "toolCallName": "f" }));
    let stream = sse(&std::iter::once(json!({ "type": "RUN_STARTED" })).chain(calls).collect::<Vec<_>>());
    let failure = answered(http(200, "text/event-stream", &stream), AguiOptions::default()).await.unwrap_err();
    assert!(failure.to_string().contains("more than 1000 messages and calls"), "{failure}");
}

#[tokio::test]
async fn redirects_are_not_followed_and_error_pages_lose_their_secrets() {
    let (elsewhere, _server) = serve(vec![http(200, "text/event-stream", "")], Then::Closes).await;
    let redirect = format!("HTTP/1.1 307 X\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n").into_bytes();
    let failure = answered(redirect, AguiOptions::default()).await.unwrap_err();
    assert_eq!(failure.to_string(), "The Bot answered HTTP 307.");
    assert!(matches!(failure, RunFailure::Rejected { status: 307, .. }));

    let page = "<h1>No</h1>\n\n  api_key=abc123 is\u{7} wrong";
    let failure = answered(http(401, "text/html", page), AguiOptions::default()).await.unwrap_err();
    assert_eq!(failure.to_string(), "The Bot answered HTTP 401: <h1>No</h1> api_key=[redacted] is wrong.");

    let events = [json!({ "type": "RUN_ERROR", "message": "model refused Bearer abcDEF123456", "code": "auth" })];
    let failure = answered(http(200, "text/event-stream", &sse(&events)), AguiOptions::default()).await.unwrap_err();
    assert_eq!(failure.to_string(), "The Bot reported an error: model refused Bearer [redacted]");
}

#[tokio::test]
async fn reasoning_and_what_the_bot_wants_back_are_kept() {
    let content = json!([{ "type": "text", "text": "09:00" }, { "type": "image" }]);
    let usage = json!([{ "model": "m", "inputTokens": 50, "outputTokens": 7, "totalTokens": 57 }]);
    let events = [
        json!({ "type": "RUN_STARTED" }),
        json!({ "type": "REASONING_START", "messageId": "q" }),
        json!({ "type": "REASONING_MESSAGE_START", "messageId": "q", "role": "reasoning" }),
        json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": "q", "delta": "hm" }),
        json!({ "type": "REASONING_MESSAGE_END", "messageId": "q" }),
        json!({ "type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "q", "encryptedValue": "sig" }),
        json!({ "type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "clock", "parentMessageId": "m" }),
        json!({ "type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool-call", "entityId": "c", "encryptedValue": "call" }),
        json!({ "type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": content }),
        json!({ "type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "t", "encryptedValue": "result" }),
        json!({ "type": "RUN_FINISHED", "usage": usage }),
    ];
    let RunOutcome { produced, .. } =
        answered(http(200, "text/event-stream", &sse(&events)), AguiOptions::default()).await.unwrap();
    assert_eq!(
        serde_json::to_value(&produced.messages).unwrap(),
        json!([
            { "role": "reasoning", "id": "q", "content": "hm", "encryptedValue": "sig" },
            { "role": "assistant", "id": "m", "content": "", "toolCalls": [
                { "id": "c", "type": "function", "function": { "name": "clock", "arguments": "" }, "encryptedValue": "call" },
            ] },
            { "role": "tool", "id": "t", "toolCallId": "c", "content": "09:00\n[image]", "encryptedValue": "result" },
        ])
    );
    assert_eq!(produced.pending().count(), 0);
    assert_eq!(produced.usage[0].total_tokens, Some(57));
}

#[tokio::test]
async fn a_snapshot_of_what_was_sent_brings_nothing_twice() {
    let mut history = History::new();
    history.say("refund");
    let call = ToolCall { id: "c1".into(), name: "f".into(), arguments: "{}".into(), encrypted_value: None };
    let made =
        Message::Assistant { id: "a1".into(), content: String::new(), tool_calls: vec![call], encrypted_value: None };
    history.extend(&[made]);
    history.answer("c1", "R-9", None);
    let mut snapshot = serde_json::to_value(&history).unwrap();
    // A Bot may give the messages it was sent names of its own.
    snapshot[1]["id"] = json!("renamed");
    snapshot.as_array_mut().unwrap().push(json!({ "id": "a2", "role": "assistant", "content": "Done." }));
    let events = [
        json!({ "type": "RUN_STARTED" }),
        json!({ "type": "MESSAGES_SNAPSHOT", "messages": snapshot }),
        json!({ "type": "RUN_FINISHED" }),
    ];
    let (url, _server) = serve(vec![http(200, "text/event-stream", &sse(&events))], Then::Closes).await;
    let input = RunInput { thread_id: "t", run_id: "r", history: &history, tools: &[], state: &json!({}), resume: &[] };
    let outcome = client(&url, AguiOptions::default()).run(input).await.unwrap();
    assert_eq!(outcome.produced.pending().count(), 0);
    assert_eq!(outcome.produced.messages.len(), 1);
    history.extend(&outcome.produced.messages);
    assert_eq!(history.messages().len(), 4);
}

#[test]
fn an_endpoint_that_cannot_be_one_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for url in ["", "bot", "file:///etc/passwd", "ftp://example.org/"] {
        assert!(AguiClient::new(url, AguiOptions::default()).is_err(), "{url}");
    }
    let options = AguiOptions { authorization: Some("a\nb".to_owned()), ..AguiOptions::default() };
    assert!(AguiClient::new("https://example.org/", options).is_err());
}
