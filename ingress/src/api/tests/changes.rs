//! Making and changing things: keys, versions, refusals.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::testing::{Server, answered, problem};

fn routine(bot: &str) -> Value {
    let schedule = json!({"kind": "weekly", "zone": "Europe/Berlin", "days": ["mon"], "times": ["08:00"]});
    json!({"name": "reports", "bot": bot, "schedule": schedule, "instruction": "write them"})
}

async fn made(server: &Server) -> (String, String) {
    let bot = server.bot().await.to_string();
    let id = server.post("/api/v1/routines", &routine(&bot)).await["id"].as_str().unwrap().to_owned();
    (bot, format!("/api/v1/routines/{id}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_is_one_request() {
    let server = Server::start().await;
    let post = |path: &str, key: &str, body: &Value| {
        server.admin(Method::POST, path).header("idempotency-key", key).json(body).send()
    };
    let new = json!({"name": "ops"});
    let first = answered(post("/api/v1/bots", "k", &new).await.unwrap(), StatusCode::CREATED).await;
    let again = answered(post("/api/v1/bots", "k", &new).await.unwrap(), StatusCode::CREATED).await;
    assert_eq!(first, again);
    let other = post("/api/v1/bots", "k", &json!({"name": "other"})).await.unwrap();
    problem(other, StatusCode::CONFLICT, "key_reused").await;
    let bot = first["id"].as_str().unwrap();
    let routine = routine(bot);
    let one = answered(post("/api/v1/routines", "r", &routine).await.unwrap(), StatusCode::CREATED).await;
    let two = answered(post("/api/v1/routines", "r", &routine).await.unwrap(), StatusCode::CREATED).await;
    assert_eq!(one["id"], two["id"]);
    assert_eq!(server.get("/api/v1/routines").await["items"].as_array().unwrap().len(), 1);
    let trigger = json!({"name": "door", "bot": bot, "instruction": "look"});
    let one = answered(post("/api/v1/triggers", "t", &trigger).await.unwrap(), StatusCode::CREATED).await;
    let two = answered(post("/api/v1/triggers", "t", &trigger).await.unwrap(), StatusCode::CREATED).await;
    assert_eq!((&one["id"], &one["endpoint"]), (&two["id"], &two["endpoint"]));
    assert!(one["secret"].as_str().unwrap().starts_with("mw_"));
    assert_eq!(two["secret"], Value::Null, "it is shown once");
    for bad in ["", &"k".repeat(256)] {
        problem(post("/api/v1/bots", bad, &new).await.unwrap(), StatusCode::BAD_REQUEST, "invalid_key").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_run_now_is_one_run_and_another_finds_it_busy() {
    let server = Server::start().await;
    let (_, path) = made(&server).await;
    let run =
        |key: &'static str| server.admin(Method::POST, &format!("{path}/run")).header("idempotency-key", key).send();
    let first = answered(run("k").await.unwrap(), StatusCode::ACCEPTED).await;
    let again = answered(run("k").await.unwrap(), StatusCode::ACCEPTED).await;
    assert_eq!(first["run"], again["run"]);
    let busy = problem(run("other").await.unwrap(), StatusCode::CONFLICT, "busy").await;
    let live = first["run"].as_str().unwrap();
    assert!(busy["detail"].as_str().unwrap().contains(live), "{busy}");
    let shown = server.get(&format!("/api/v1/runs/{live}")).await;
    assert_eq!((&shown["state"], &shown["cause"]), (&json!("waiting"), &json!("person")));
    assert_eq!(server.get(&path).await["live_run"], live);
    let cancelled = server.admin(Method::POST, &format!("/api/v1/runs/{live}/cancel")).send().await.unwrap();
    answered(cancelled, StatusCode::OK).await;
    let timeline = server.get(&format!("/api/v1/runs/{live}/timeline?limit=1")).await;
    assert_eq!(timeline["items"][0]["event"], "run.opened");
    let next = timeline["next"].as_str().unwrap();
    let rest = server.get(&format!("/api/v1/runs/{live}/timeline?cursor={next}")).await;
    assert_eq!(rest["items"][0]["event"], "run.ended");
    let again = server.admin(Method::POST, &format!("/api/v1/runs/{live}/cancel")).send().await.unwrap();
    problem(again, StatusCode::CONFLICT, "run_ended").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_admins_never_overwrite_each_other() {
    let server = Server::start().await;
    let (_, path) = made(&server).await;
    let shown = server.admin(Method::GET, &path).send().await.unwrap();
    let tag = shown.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(tag, "\"1\"");
    let edit = |tag: &str, name: &str| {
        server.admin(Method::PATCH, &path).header("if-match", tag).json(&json!({"name": name})).send()
    };
    answered(edit(&tag, "first").await.unwrap(), StatusCode::OK).await;
    problem(edit(&tag, "second").await.unwrap(), StatusCode::PRECONDITION_FAILED, "changed").await;
    assert_eq!(server.get(&path).await["name"], "first");
    for bad in ["2", "W/\"2\"", "\"x\"", ""] {
        problem(edit(bad, "third").await.unwrap(), StatusCode::BAD_REQUEST, "invalid_etag").await;
    }
    answered(edit("*", "third").await.unwrap(), StatusCode::OK).await;
    let shown = server.admin(Method::GET, &path).send().await.unwrap();
    assert_eq!(shown.headers()["etag"], "\"3\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routine_is_paused_resumed_edited_and_deleted() {
    let server = Server::start().await;
    let (_, path) = made(&server).await;
    assert_eq!(server.get(&path).await["state"], "active");
    server.post(&format!("{path}/pause"), &json!({"reason": "holiday"})).await;
    let paused = server.get(&path).await;
    assert_eq!((&paused["state"], &paused["reason"]), (&json!("paused"), &json!("holiday")));
    let again = server.admin(Method::POST, &format!("{path}/pause")).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::CONFLICT);
    server.post(&format!("{path}/resume"), &json!({})).await;
    let limits = json!({"limits": {"max_turns": 3}, "recording": {"steps": [{"tool": "t", "arguments": {"n": 1524831183200260097_u64}}]}});
    let edited = server.admin(Method::PATCH, &path).json(&limits).send().await.unwrap();
    answered(edited, StatusCode::OK).await;
    let shown = server.get(&path).await;
    assert_eq!(shown["limits"], json!({"grace_s": 600, "deadline_s": 900, "max_turns": 3}));
    assert_eq!(shown["work"], "recording");
    let deleted = server.admin(Method::DELETE, &path).send().await.unwrap();
    answered(deleted, StatusCode::OK).await;
    for method in [Method::GET, Method::DELETE] {
        problem(server.admin(method, &path).send().await.unwrap(), StatusCode::NOT_FOUND, "not_found").await;
    }
    assert_eq!(server.get("/api/v1/routines").await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_one_clear_sentence() {
    let server = Server::start().await;
    let bot = server.bot().await.to_string();
    let nobody = "0198c0de-0000-7000-8000-000000000000";
    let with = |member: &str, value: Value| {
        let mut new = routine(&bot);
        new[member] = value;
        new
    };
    for (body, code, words) in [
        (with("schedule", json!({"kind": "weekly"})), "invalid", "zone"),
        (with("schedule", json!({"kind": "every", "zone": "Mars/Olympus", "minutes": 5})), "invalid", "Mars/Olympus"),
        (with("schedule", json!("daily")), "invalid", "JSON object"),
        (with("bot", json!(nobody)), "invalid", nobody),
        (with("bot", json!("x")), "invalid", "UUID"),
        (with("name", json!("")), "invalid", "name"),
        (with("name", json!(7)), "invalid", "string"),
        (with("colour", json!("red")), "invalid", "colour"),
        (with("recording", json!({"steps": []})), "invalid", ""),
        (json!([]), "invalid", ""),
    ] {
        let response = server.admin(Method::POST, "/api/v1/routines").json(&body).send().await.unwrap();
        let problem = problem(response, StatusCode::BAD_REQUEST, code).await;
        let said = problem["detail"].as_str().unwrap();
        assert!(said.contains(words) && !said.contains('\n'), "{body}: {said}");
    }
    let text = server.admin(Method::POST, "/api/v1/bots").body("{\"name\":\"x\"}").send().await.unwrap();
    problem(text, StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json").await;
    let long = json!({"name": "x".repeat(2 << 20)});
    let long = server.admin(Method::POST, "/api/v1/bots").json(&long).send().await.unwrap();
    problem(long, StatusCode::PAYLOAD_TOO_LARGE, "body").await;
    for path in ["/api/v1/bots/x", "/api/v1/runs/%00", &format!("/api/v1/triggers/{nobody}"), "/api/v1/nothing"] {
        let response = server.admin(Method::GET, path).send().await.unwrap();
        problem(response, StatusCode::NOT_FOUND, "not_found").await;
    }
    let method = server.admin(Method::PUT, "/api/v1/bots").send().await.unwrap();
    problem(method, StatusCode::METHOD_NOT_ALLOWED, "method").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bots_get_tools_and_retire() {
    let server = Server::start().await;
    let id = server.bot().await;
    let path = format!("/api/v1/bots/{id}");
    server.post(&format!("{path}/tools"), &json!({"withdraw": ["computer_write_file"]})).await;
    assert_eq!(server.get(&path).await["tools"], json!(["computer_list_files", "computer_read_file"]));
    server.post(&format!("{path}/tools"), &json!({"grant": ["computer_write_file"]})).await;
    let both = server.admin(Method::POST, &format!("{path}/tools")).json(&json!({"grant": ["a"], "withdraw": ["b"]}));
    problem(both.send().await.unwrap(), StatusCode::BAD_REQUEST, "invalid").await;
    server.post(&format!("{path}/retire"), &json!({})).await;
    assert_eq!(server.get("/api/v1/bots?retired=false").await["items"], json!([]));
    let work = server.admin(Method::POST, "/api/v1/routines").json(&routine(&id.to_string())).send().await.unwrap();
    problem(work, StatusCode::CONFLICT, "bot_retired").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_from_its_making_to_its_first_run() {
    let server = Server::start().await;
    let bot = server.bot().await.to_string();
    let made = server.post("/api/v1/triggers", &json!({"name": "door", "bot": bot, "instruction": "look"})).await;
    let (id, path) = (made["id"].as_str().unwrap(), made["path"].as_str().unwrap());
    assert_eq!(path, format!("/hooks/{}", made["endpoint"].as_str().unwrap()));
    assert_eq!(made["url"], Value::Null, "nobody guesses an address");
    let trigger = format!("/api/v1/triggers/{id}");
    let early = server.admin(Method::POST, &format!("{trigger}/confirm")).send().await.unwrap();
    problem(early, StatusCode::CONFLICT, "no_sample").await;
    let deliver = |body: &'static [u8]| {
        let secret = made["secret"].as_str().unwrap();
        let request = server.plain(Method::POST, path).bearer_auth(secret).header("x-api-key", "hidden");
        request.header("x-event-type", "push").body(body).send()
    };
    let sample = answered(deliver(b"{\"n\":1524831183200260097}").await.unwrap(), StatusCode::ACCEPTED).await;
    let sample = sample["delivery"].as_str().unwrap();
    let other = json!({"delivery": "0198c0de-0000-7000-8000-000000000000"});
    let other = server.admin(Method::POST, &format!("{trigger}/confirm")).json(&other).send().await.unwrap();
    problem(other, StatusCode::CONFLICT, "other_sample").await;
    let sent = server.get(&format!("/api/v1/deliveries/{sample}/body")).await;
    assert_eq!((&sent["encoding"], &sent["body"]), (&json!("utf8"), &json!("{\"n\":1524831183200260097}")));
    let headers = sent["headers"].to_string();
    assert!(!headers.contains("hidden") && !headers.contains("mw_") && headers.contains("push"), "{headers}");
    server.post(&format!("{trigger}/confirm"), &json!({"delivery": sample})).await;
    let next = answered(deliver(b"\xff").await.unwrap(), StatusCode::ACCEPTED).await;
    assert_eq!(next["status"], "accepted");
    let binary = server.get(&format!("/api/v1/deliveries/{}/body", next["delivery"].as_str().unwrap())).await;
    assert_eq!((&binary["encoding"], &binary["body"]), (&json!("base64"), &json!("/w==")));
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    let started = loop {
        let listed = server.get(&format!("{trigger}/deliveries?event_type=push")).await;
        if listed["items"].as_array().unwrap().len() == 2 && listed["items"][0]["status"] == "started" {
            break listed["items"][0].clone();
        }
        assert!(tokio::time::Instant::now() < until, "{listed}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let run = server.get(&format!("/api/v1/runs/{}", started["run"].as_str().unwrap())).await;
    assert_eq!((&run["cause"], &run["trigger"]), (&json!("delivery"), &json!(id)));
    let rotated = server.post(&format!("{trigger}/rotate"), &json!({"overlap_s": 0})).await;
    assert_ne!(rotated["secret"], made["secret"]);
    assert_eq!(deliver(b"1").await.unwrap().status(), StatusCode::UNAUTHORIZED);
    answered(server.admin(Method::DELETE, &trigger).send().await.unwrap(), StatusCode::OK).await;
    problem(server.admin(Method::GET, &trigger).send().await.unwrap(), StatusCode::NOT_FOUND, "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halt_is_seen_lifted_and_refused_twice() {
    let server = Server::start().await;
    let (_, path) = made(&server).await;
    assert_eq!(server.get("/api/v1/halt").await, json!({"halted": false, "reason": null, "by": null, "since": null}));
    let halted = server.post("/api/v1/halt", &json!({"reason": "storm"})).await;
    assert_eq!(halted["live_runs"], json!([]));
    let status = server.get("/api/v1/halt").await;
    assert_eq!((&status["halted"], &status["reason"]), (&json!(true), &json!("storm")));
    let again = server.admin(Method::POST, "/api/v1/halt").json(&json!({"reason": "x"})).send().await.unwrap();
    problem(again, StatusCode::CONFLICT, "already_so").await;
    let run = server.admin(Method::POST, &format!("{path}/run")).send().await.unwrap();
    problem(run, StatusCode::CONFLICT, "halted").await;
    answered(server.admin(Method::DELETE, "/api/v1/halt").send().await.unwrap(), StatusCode::OK).await;
    let again = server.admin(Method::DELETE, "/api/v1/halt").send().await.unwrap();
    problem(again, StatusCode::CONFLICT, "already_so").await;
}
