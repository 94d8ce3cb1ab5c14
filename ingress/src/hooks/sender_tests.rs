//! Senders of every kind at a real server.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use midwatch_commands::trigger::TriggerCommand;
use midwatch_engine::triggers::NewSecret;
use midwatch_events::{Micros, delivery::Received, trigger::Intake};
use reqwest::{Method, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};

use crate::{
    senders::{Outgoing, Unsigned, find, sign},
    testing::{Hook, Server, answered, by, problem},
};

const PUBLIC_URL: &str = "https://watch.example";

fn url(hook: &Hook) -> String {
    format!("{PUBLIC_URL}/hooks/{}", hook.endpoint)
}

/// What a preset's sender sends now.
fn signed(server: &Server, preset: &str, hook: &Hook, id: &str, body: &str) -> Outgoing {
    let content_type = if preset == "twilio" { "application/x-www-form-urlencoded" } else { "application/json" };
    let (secret, url, now) = (hook.secret.as_str(), url(hook), server.engine.world().clock.now());
    let unsigned =
        Unsigned { secret, body: body.as_bytes(), content_type, id, event_type: Some("push"), url: &url, now };
    sign(&find(preset).unwrap(), &unsigned).unwrap()
}

async fn post(server: &Server, hook: &Hook, out: &Outgoing) -> Response {
    let query = out.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let mut request = server.plain(Method::POST, &format!("/hooks/{}{query}", hook.endpoint)).body(out.body.clone());
    for (name, value) in &out.headers {
        request = request.header(name, value);
    }
    request.send().await.unwrap()
}

async fn received(server: &Server, answer: &Value) -> Received {
    server.received(&answer["delivery"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sender_is_let_in_and_a_changed_request_is_not() {
    let server = Server::start_at(PUBLIC_URL).await;
    for preset in crate::senders::all().filter(|preset| !["discord", "template"].contains(&preset.name.as_str())) {
        let name = preset.name.as_str();
        let secret = (preset.secret == crate::senders::Maker::Sender).then_some("given-by-the-sender");
        let hook = server.hook_of(name, secret, Intake::default()).await;
        let body = match name {
            "twilio" => "MessageSid=1&MessageStatus=sent",
            "microsoft-graph" => r#"{"value":[{"changeType":"created"}]}"#,
            _ => r#"{"id":"1","type":"t","event":{"id":"1","event_type":"t"},"source":"s"}"#,
        };
        let out = signed(&server, name, &hook, "id-1", body);
        let response = post(&server, &hook, &out).await;
        assert_eq!(response.status().as_u16(), preset.answer, "{name}: {}", response.text().await.unwrap());
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["status"], "captured", "{name}");
        assert_eq!(answered(post(&server, &hook, &out).await, StatusCode::OK).await["duplicate"], true, "{name}");
        let other = Hook { secret: "whsec_AAAA".to_owned(), ..hook.clone() };
        let refused = post(&server, &hook, &signed(&server, name, &other, "id-1", body)).await;
        problem(refused, StatusCode::UNAUTHORIZED, "not_authentic").await;
        if preset.signs() {
            let changed = Outgoing { body: format!("{body} ").into_bytes(), ..out.clone() };
            problem(post(&server, &hook, &changed).await, StatusCode::UNAUTHORIZED, "not_authentic").await;
        }
    }
}

// W8, W9: what was signed tells deliveries apart; GitHub does not sign its id.
#[tokio::test(flavor = "multi_thread")]
async fn w8_the_same_signed_body_under_another_id_is_the_same_delivery() {
    let server = Server::start().await;
    let hook = server.hook_of("github", None, Intake::default()).await;
    let first =
        answered(post(&server, &hook, &signed(&server, "github", &hook, "a", "{}")).await, StatusCode::ACCEPTED).await;
    assert_eq!(received(&server, &first).await.event_type.as_deref(), Some("push"));
    let mut nameless = signed(&server, "github", &hook, "c", "{}");
    nameless.headers.retain(|(name, _)| name != "x-github-delivery");
    for again in [signed(&server, "github", &hook, "b", "{}"), nameless] {
        let answer = answered(post(&server, &hook, &again).await, StatusCode::OK).await;
        assert_eq!(answer["delivery"], first["delivery"]);
    }
    let other = signed(&server, "github", &hook, "a", "{ }");
    let other = answered(post(&server, &hook, &other).await, StatusCode::ACCEPTED).await;
    assert!(received(&server, &other).await.id_conflict);
    assert_eq!(server.deliveries().await, 2);
}

// W6: the raw bytes are what is signed, and the form is read afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn w6_a_form_is_signed_raw_and_read_as_json() {
    let server = Server::start().await;
    let hook = server.hook_of("slack", Some("shhh"), Intake::default()).await;
    let mut out = signed(
        &server,
        "slack",
        &hook,
        "",
        "payload=%7B%22type%22%3A%22block_actions%22%2C%22n%22%3A1524831183200260097%7D",
    );
    out.headers.retain(|(name, _)| name != "content-type");
    out.headers.push(("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()));
    let answer = answered(post(&server, &hook, &out).await, StatusCode::OK).await;
    let received = received(&server, &answer).await;
    assert_eq!((received.parsed, received.event_type.as_deref()), (true, Some("block_actions")));
    let id = answer["delivery"].as_str().unwrap().parse().unwrap();
    assert_eq!(server.engine.body(id).await.unwrap().unwrap(), out.body);
    let read = server.engine.reading(id).await.unwrap().unwrap();
    assert_eq!(read, br#"{"type":"block_actions","n":1524831183200260097}"#);
}

// W16: per sender the signature is over the packed bytes or over the plain ones; others do not pack.
#[tokio::test(flavor = "multi_thread")]
async fn w16_a_packed_body_is_checked_as_its_sender_signs_it() {
    let server = Server::start().await;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(br#"{"type":"packed"}"#).unwrap();
    let packed = packed.finish().unwrap();
    let template = |rule: &str| {
        format!(
            "packed = \"{rule}\"\nevent_type = [\"body:/type\"]\n[[signature]]\nheader = \"x-sig\"\nsigned = \"{{body}}\""
        )
    };
    let signature = |bytes: &[u8]| {
        let preset = crate::senders::Preset::parse(&template("bytes")).unwrap();
        let unsigned =
            Unsigned { secret: "k", body: bytes, content_type: "x", id: "", event_type: None, url: "", now: Micros(0) };
        sign(&preset, &unsigned).unwrap().headers.into_iter().find(|(name, _)| name == "x-sig").unwrap().1
    };
    let small = Intake { body_bytes_max: 1_000, ..Intake::default() };
    for (rule, over) in [("bytes", &packed[..]), ("plain", br#"{"type":"packed"}"#)] {
        let hook = server.hook_by("template", Some(&template(rule)), Some("k"), small.clone()).await;
        let send = async |signature: String, coding: &str, body: Vec<u8>| {
            let request = server.plain(Method::POST, &format!("/hooks/{}", hook.endpoint));
            request.header("x-sig", signature).header("content-encoding", coding).body(body).send().await.unwrap()
        };
        let answer = answered(send(signature(over), "gzip", packed.clone()).await, StatusCode::ACCEPTED).await;
        assert_eq!(received(&server, &answer).await.event_type.as_deref(), Some("packed"), "{rule}");
        let id = answer["delivery"].as_str().unwrap().parse().unwrap();
        assert_eq!(server.engine.body(id).await.unwrap().unwrap(), packed);
        assert_eq!(server.engine.reading(id).await.unwrap().unwrap(), br#"{"type":"packed"}"#);
        // A bomb of a known sender costs no more than the cap; a stranger's is not even unpacked, or no further.
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&vec![b' '; 500_000]).unwrap();
        let bomb = bomb.finish().unwrap();
        assert!(bomb.len() < 1_000);
        let wanted = if rule == "bytes" { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::UNAUTHORIZED };
        assert_eq!(send(signature(&bomb), "gzip", bomb).await.status(), wanted);
        if rule == "bytes" {
            assert_eq!(send(signature(b"x"), "br", b"x".to_vec()).await.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
    }
}

// W20: no stable id, and a timestamp that changes at each attempt.
#[tokio::test(flavor = "multi_thread")]
async fn w20_an_admin_chooses_what_makes_a_delivery() {
    let server = Server::start().await;
    let intake = Intake { id_pointers: vec!["/order/id".to_owned()], ..Intake::default() };
    let hook = server.hook_of("zoom", Some("k"), intake).await;
    let send = async |body: &str| post(&server, &hook, &signed(&server, "zoom", &hook, "", body)).await;
    let first: Value = send(r#"{"attempt":1,"order":{"id":7}}"#).await.json().await.unwrap();
    let again: Value = send(r#"{"attempt":2,"order":{"id":7}}"#).await.json().await.unwrap();
    assert_eq!((&again["delivery"], &again["duplicate"]), (&first["delivery"], &json!(true)));
    let other: Value = send(r#"{"attempt":1,"order":{"id":8}}"#).await.json().await.unwrap();
    assert_ne!(other["delivery"], first["delivery"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_checked_without_a_delivery() {
    let server = Server::start_at(PUBLIC_URL).await;
    let text = async |response: Response| {
        assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(response.status(), StatusCode::OK);
        response.text().await.unwrap()
    };
    let hook = server.hook_of("slack", Some("k"), Intake::default()).await;
    let asked = r#"{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRNFdxV"}"#;
    let answer = post(&server, &hook, &signed(&server, "slack", &hook, "", asked)).await;
    assert_eq!(text(answer).await, "3eZbrw1aBm2rZgRNFdxV");
    let forged = signed(&server, "slack", &Hook { secret: "other".to_owned(), ..hook.clone() }, "", asked);
    problem(post(&server, &hook, &forged).await, StatusCode::UNAUTHORIZED, "not_authentic").await;

    let hook = server.hook_of("zoom", Some("secret"), Intake::default()).await;
    let asked = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
    let answer = answered(post(&server, &hook, &signed(&server, "zoom", &hook, "", asked)).await, StatusCode::OK).await;
    assert_eq!(answer["plainToken"], "qgg8vlvZRS6UYooatFL8Aw");
    assert_eq!(answer["encryptedToken"].as_str().unwrap().len(), 64);

    let hook = server.hook_of("microsoft-graph", None, Intake::default()).await;
    let path = format!("/hooks/{}?validationToken=Validation%3A+Token%20%3Cb%3E", hook.endpoint);
    assert_eq!(text(server.plain(Method::POST, &path).send().await.unwrap()).await, "Validation: Token <b>");

    let hook = server.hook_of("meta", Some("app"), Intake::default()).await;
    let token = crate::senders::prepare("meta", None, Some("app"), [0; 32]).unwrap().verify_token.unwrap();
    let ask = |token: &str, mode: &str| {
        let query = format!("hub.mode={mode}&hub.challenge=1158201444&hub.verify_token={token}");
        server.plain(Method::GET, &format!("/hooks/{}?{query}", hook.endpoint)).send()
    };
    assert_eq!(text(ask(&token, "subscribe").await.unwrap()).await, "1158201444");
    for (token, mode) in [("x", "subscribe"), ("", "subscribe"), (&token, "unsubscribe")] {
        problem(ask(token, mode).await.unwrap(), StatusCode::UNAUTHORIZED, "not_authentic").await;
    }

    let hook = server.hook_of("cloudevents", None, Intake::default()).await;
    let ask = server.plain(Method::OPTIONS, &format!("/hooks/{}", hook.endpoint));
    let answer = ask.header("webhook-request-origin", "eventemitter.example.com").send().await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["webhook-allowed-origin"]),
        (StatusCode::OK, &"eventemitter.example.com".parse().unwrap())
    );

    // Nobody else answers these methods, and an unknown endpoint says the same.
    let other = server.hook().await;
    for endpoint in [other.endpoint.as_str(), "AAAAAAAAAAAAAAAAAAAAAAAA"] {
        for method in [Method::GET, Method::OPTIONS] {
            let refused = server.plain(method, &format!("/hooks/{endpoint}?hub.mode=subscribe")).send().await.unwrap();
            problem(refused, StatusCode::METHOD_NOT_ALLOWED, "method").await;
        }
    }
    assert_eq!(server.deliveries().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn discord_is_known_by_its_public_key_and_gets_no_words() {
    let server = Server::start().await;
    let private = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let hook = server.hook_of("discord", Some(public), Intake::default()).await;
    let sender = Hook { secret: private.to_owned(), ..hook.clone() };
    let send = async |body: &str| post(&server, &hook, &signed(&server, "discord", &sender, "", body)).await;
    let ping = send(r#"{"version":1,"application_id":"1","type":0}"#).await;
    assert_eq!((ping.status(), ping.text().await.unwrap().as_str()), (StatusCode::NO_CONTENT, ""));
    assert_eq!(answered(send(r#"{"id":"1","type":1}"#).await, StatusCode::OK).await, json!({"type": 1}));
    assert_eq!(server.deliveries().await, 0);
    let event =
        r#"{"version":1,"type":1,"event":{"type":"APPLICATION_AUTHORIZED","timestamp":"2026-11-30T00:00:00Z"}}"#;
    assert_eq!(send(event).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(server.deliveries().await, 1);
    // Everybody has the public key: it opens nothing.
    let path = format!("/hooks/{}/deliveries/0198c0de-0000-7000-8000-000000000400", hook.endpoint);
    let asked = server.plain(Method::GET, &path).bearer_auth(public).send().await.unwrap();
    problem(asked, StatusCode::UNAUTHORIZED, "not_authentic").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signing_key_is_replaced_with_an_overlap_and_what_brought_each_delivery_is_known() {
    let server = Server::start().await;
    let hook = server.hook_of("github", Some("one"), Intake::default()).await;
    let renew = async |key: &str, overlap_s| {
        server
            .engine
            .rotate_secret(hook.id, &NewSecret::Signing(key.to_owned()), overlap_s, &by(), None)
            .await
            .unwrap();
    };
    let by_key = |key: &str| Hook { secret: key.to_owned(), ..hook.clone() };
    let send =
        async |key: &str, body: &str| post(&server, &hook, &signed(&server, "github", &by_key(key), body, body)).await;
    answered(send("one", "1").await, StatusCode::ACCEPTED).await;
    renew("two", 600).await;
    let old = answered(send("one", "2").await, StatusCode::ACCEPTED).await;
    let new = answered(send("two", "3").await, StatusCode::ACCEPTED).await;
    assert!(received(&server, &old).await.old_secret && !received(&server, &new).await.old_secret);
    // Whoever asks what became of it knows a key that is good.
    let path = format!("/hooks/{}/deliveries/{}", hook.endpoint, new["delivery"].as_str().unwrap());
    let ask = |key: &str| server.plain(Method::GET, &path).bearer_auth(key).send();
    for key in ["one", "two"] {
        answered(ask(key).await.unwrap(), StatusCode::OK).await;
    }
    renew("three", 0).await;
    for key in ["one", "two"] {
        problem(send(key, "4").await, StatusCode::UNAUTHORIZED, "not_authentic").await;
    }
    problem(ask("one").await.unwrap(), StatusCode::UNAUTHORIZED, "not_authentic").await;
    answered(send("three", "4").await, StatusCode::ACCEPTED).await;
    server.engine.change_trigger(hook.id, &by(), None, TriggerCommand::Pause).await.unwrap();
    problem(send("three", "5").await, StatusCode::NOT_FOUND, "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_not_known_here_is_no_fault_of_the_sender() {
    let server = Server::start().await;
    let hook = server.hook_of("twilio", Some("k"), Intake::default()).await;
    let response = post(&server, &hook, &signed(&server, "twilio", &hook, "", "a=b")).await;
    assert!(response.headers().contains_key("retry-after"));
    problem(response, StatusCode::SERVICE_UNAVAILABLE, "fault").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_query_is_kept_and_the_delivery_is_authentic_still() {
    let server = Server::start_at(PUBLIC_URL).await;
    let hook = server.hook_of("twilio", Some("12345678901234567890123456789012"), Intake::default()).await;
    let post = async |query: &str, body: &str| {
        let (secret, now) = (hook.secret.as_str(), server.engine.world().clock.now());
        let url = format!("{}?{query}", url(&hook));
        let (content_type, id) = ("application/x-www-form-urlencoded", "id");
        let unsigned = Unsigned { secret, body: body.as_bytes(), content_type, id, event_type: None, url: &url, now };
        let out = sign(&find("twilio").unwrap(), &unsigned).unwrap();
        let mut request = server.plain(Method::POST, &format!("/hooks/{}?{query}", hook.endpoint)).body(out.body);
        for (name, value) in out.headers.into_iter().filter(|(name, _)| name != "i-twilio-idempotency-token") {
            request = request.header(name, value);
        }
        let sent = answered(request.send().await.unwrap(), StatusCode::ACCEPTED).await;
        sent["delivery"].as_str().unwrap().to_owned()
    };
    let again = async |delivery: &str| -> Value {
        server.post(&format!("/api/v1/deliveries/{delivery}/verify"), &json!({})).await
    };
    let kept = post("order=a%2Fb&x=", "MessageStatus=sent").await;
    let found = again(&kept).await;
    assert_eq!(found["verified"], true, "{found}");
    let read = server.get(&format!("/api/v1/deliveries/{kept}/body")).await;
    assert_eq!(read["query"], "order=a%2Fb&x=");
    let secret = post("password=hunter2", "MessageStatus=delivered").await;
    let found = again(&secret).await;
    assert!(
        found["verified"] == false && found["sentence"].as_str().unwrap().contains("a secret that stood in it"),
        "{found}"
    );
    assert_eq!(server.get(&format!("/api/v1/deliveries/{secret}/body")).await["query"], "password=[redacted]");
}
