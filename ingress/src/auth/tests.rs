//! Who may do what: the whole matrix, against a real server.

use midwatch_events::user::Access;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::testing::{Server, answered, by, problem};

const OPEN: StatusCode = StatusCode::OK;

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_without_a_secret() {
    let server = Server::start().await;
    let secret = &server.token;
    let cut = &secret[..secret.len() - 1];
    for line in ["Bearer mwt_", "Bearer", "Basic eDp5", &format!("Bearer {cut}"), &format!("Bearer {secret}x")] {
        let response = server.plain(Method::GET, "/api/v1/me").header("authorization", line).send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        problem(response, StatusCode::UNAUTHORIZED, "unauthenticated").await;
    }
    for cookie in ["midwatch_session=", "midwatch_session=x.y", "other=1"] {
        let response = server.plain(Method::GET, "/api/v1/me").header("cookie", cookie).send().await.unwrap();
        problem(response, StatusCode::UNAUTHORIZED, "unauthenticated").await;
    }
    for path in ["/api/v1/bots", "/api/v1/audit", "/api/v1/live", "/api/v1/halt"] {
        let response = server.plain(Method::GET, path).send().await.unwrap();
        problem(response, StatusCode::UNAUTHORIZED, "unauthenticated").await;
    }
    let response = server.plain(Method::GET, "/api/v1/openapi.json").send().await.unwrap();
    assert_eq!(response.status(), OPEN, "the description is no secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_opens_nothing() {
    let server = Server::start().await;
    let (token, secret) = server.engine.issue_token("gone", Access::Admin, &by()).await.unwrap().value;
    let ask = || server.plain(Method::GET, "/api/v1/me").bearer_auth(&secret).send();
    answered(ask().await.unwrap(), OPEN).await;
    server.engine.revoke_token(token, &by()).await.unwrap();
    problem(ask().await.unwrap(), StatusCode::UNAUTHORIZED, "unauthenticated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_ended_opens_nothing() {
    let server = Server::start().await;
    let session = server.sign_in("Ada", Access::Admin).await;
    let ask = || server.browser(&session, Method::GET, "/api/v1/me").send();
    let me = answered(ask().await.unwrap(), OPEN).await;
    assert_eq!(
        me,
        json!({"actor": format!("user:{}", session.user), "role": "admin", "user": session.user.to_string(), "csrf": session.csrf})
    );
    let secret = session.cookie.split_once('=').unwrap().1;
    let caller = server.engine.caller_by_session(secret).await.unwrap().unwrap();
    server.engine.sign_out(session.user, caller.session.unwrap()).await.unwrap();
    problem(ask().await.unwrap(), StatusCode::UNAUTHORIZED, "unauthenticated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles() {
    let server = Server::start().await;
    let bot = server.bot().await.to_string();
    let schedule = json!({"kind": "every", "zone": "UTC", "minutes": 15});
    let theirs = server
        .post("/api/v1/routines", &json!({"name": "theirs", "bot": bot, "schedule": schedule, "instruction": "x"}))
        .await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let hook = server.hook().await;
    let document = json!({"document": {"rules": [{"id": "a", "name": "A", "verdict": "allow", "when": "true"}]}});
    let routine = json!({"name": "mine", "bot": bot, "schedule": schedule, "instruction": "x"});
    let trigger = json!({"name": "t", "bot": bot, "instruction": "x"});
    let (post, get) = (Method::POST, Method::GET);
    let (y, n, gone) = (true, false, StatusCode::NOT_FOUND);
    let _ = gone;
    // Who may: admin, auditor, member. What is not there for a member is a 404, what is forbidden a 403.
    for (method, path, body, who) in [
        (&get, "/api/v1/me".to_owned(), Value::Null, [y, y, y]),
        (&get, "/api/v1/bots".to_owned(), Value::Null, [y, y, y]),
        (&get, "/api/v1/halt".to_owned(), Value::Null, [y, y, y]),
        (&get, "/api/v1/projections".to_owned(), Value::Null, [y, y, y]),
        (&get, "/api/v1/routines".to_owned(), Value::Null, [y, y, y]),
        (&get, format!("/api/v1/routines/{theirs}"), Value::Null, [y, y, n]),
        (&get, "/api/v1/triggers".to_owned(), Value::Null, [y, y, n]),
        (&get, format!("/api/v1/triggers/{}", hook.id), Value::Null, [y, y, n]),
        (&get, format!("/api/v1/triggers/{}/deliveries", hook.id), Value::Null, [y, y, n]),
        (&get, "/api/v1/boundary".to_owned(), Value::Null, [y, y, n]),
        (&get, "/api/v1/boundary/versions".to_owned(), Value::Null, [y, y, n]),
        (&get, "/api/v1/audit".to_owned(), Value::Null, [y, y, n]),
        (&post, "/api/v1/boundary/check".to_owned(), document.clone(), [y, y, n]),
        (&post, "/api/v1/schedules/preview".to_owned(), json!({"schedule": schedule}), [y, y, y]),
        (&post, "/api/v1/routines".to_owned(), routine, [y, n, y]),
        (&post, format!("/api/v1/routines/{theirs}/pause"), json!({}), [y, n, n]),
        (&post, "/api/v1/bots".to_owned(), json!({"name": "b"}), [y, n, n]),
        (&post, "/api/v1/triggers".to_owned(), trigger, [y, n, n]),
        (&post, format!("/api/v1/triggers/{}/rotate", hook.id), json!({}), [y, n, n]),
        (&post, format!("/api/v1/triggers/{}/pause", hook.id), json!({}), [y, n, n]),
        (&Method::PUT, "/api/v1/boundary".to_owned(), document, [y, n, n]),
        (&post, "/api/v1/halt".to_owned(), json!({"reason": "r"}), [y, n, n]),
        (&Method::DELETE, "/api/v1/halt".to_owned(), Value::Null, [y, n, n]),
    ] {
        // Those who may not first: what they try must change nothing for the admin.
        for (role, may) in [Access::Member, Access::Auditor, Access::Admin].into_iter().zip(who.iter().rev()) {
            let session = server.sign_in("somebody", role).await;
            let mut request = server.browser(&session, method.clone(), &path);
            if !body.is_null() {
                request = request.json(&body);
            }
            let status = request.send().await.unwrap().status();
            let as_said = if *may {
                status.is_success()
            } else {
                status == StatusCode::FORBIDDEN || (role == Access::Member && status == StatusCode::NOT_FOUND)
            };
            assert!(as_said, "{role:?} {method} {path}: {status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_have_their_own_routines_and_see_no_others() {
    let server = Server::start().await;
    let bot = server.bot().await.to_string();
    let new = |name: &str| json!({"name": name, "bot": bot, "schedule": {"kind": "every", "zone": "UTC", "minutes": 15}, "instruction": "x"});
    server.post("/api/v1/routines", &new("of the admin")).await;
    let (ada, bob) = (server.sign_in("Ada", Access::Member).await, server.sign_in("Bob", Access::Member).await);
    let made = server.browser(&ada, Method::POST, "/api/v1/routines").json(&new("of Ada")).send().await.unwrap();
    let made = answered(made, StatusCode::CREATED).await;
    let path = format!("/api/v1/routines/{}", made["id"].as_str().unwrap());
    let listed = answered(server.browser(&ada, Method::GET, "/api/v1/routines").send().await.unwrap(), OPEN).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["items"][0]["owner"], ada.user.to_string());
    let empty = answered(server.browser(&bob, Method::GET, "/api/v1/routines").send().await.unwrap(), OPEN).await;
    assert_eq!(empty["items"], json!([]));
    for (method, more, body) in [
        (Method::GET, "", Value::Null),
        (Method::PATCH, "", json!({"name": "Bob's"})),
        (Method::POST, "/run", json!({})),
        (Method::DELETE, "", Value::Null),
    ] {
        let request = server.browser(&bob, method, &format!("{path}{more}")).json(&body);
        let request = if body.is_null() { request.body("") } else { request };
        problem(request.send().await.unwrap(), StatusCode::NOT_FOUND, "not_found").await;
    }
    let run = server.browser(&ada, Method::POST, &format!("{path}/run")).send().await.unwrap();
    let run = answered(run, StatusCode::ACCEPTED).await;
    let run = format!("/api/v1/runs/{}", run["run"].as_str().unwrap());
    answered(server.browser(&ada, Method::GET, &run).send().await.unwrap(), OPEN).await;
    for more in ["", "/timeline"] {
        let hidden = server.browser(&bob, Method::GET, &format!("{run}{more}")).send().await.unwrap();
        problem(hidden, StatusCode::NOT_FOUND, "not_found").await;
    }
    let stolen = json!({"owner": bob.user.to_string(), "name": "n", "bot": bot, "schedule": {"kind": "every", "zone": "UTC", "minutes": 15}, "instruction": "x"});
    let stolen = server.browser(&ada, Method::POST, "/api/v1/routines").json(&stolen).send().await.unwrap();
    problem(stolen, StatusCode::FORBIDDEN, "forbidden").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsafe_method_with_a_cookie_comes_from_our_own_pages() {
    let server = Server::start().await;
    let session = server.sign_in("Ada", Access::Admin).await;
    let own = format!("http://{}", server.listen);
    for (headers, status, code) in [
        (vec![], 403, "cross_site"),
        (vec![("x-csrf-token", session.csrf.as_str())], 403, "cross_site"),
        (vec![("sec-fetch-site", "cross-site"), ("x-csrf-token", &session.csrf)], 403, "cross_site"),
        (vec![("sec-fetch-site", "same-site"), ("x-csrf-token", &session.csrf)], 403, "cross_site"),
        (vec![("sec-fetch-site", "none"), ("x-csrf-token", &session.csrf)], 403, "cross_site"),
        (vec![("sec-fetch-site", "cross-site"), ("origin", &own), ("x-csrf-token", &session.csrf)], 403, "cross_site"),
        (vec![("origin", "https://elsewhere.example"), ("x-csrf-token", &session.csrf)], 403, "cross_site"),
        (vec![("origin", "null"), ("x-csrf-token", &session.csrf)], 403, "cross_site"),
        (vec![("sec-fetch-site", "same-origin")], 403, "csrf"),
        (vec![("sec-fetch-site", "same-origin"), ("x-csrf-token", "x")], 403, "csrf"),
        (vec![("sec-fetch-site", "same-origin"), ("x-csrf-token", "")], 403, "csrf"),
        (vec![("sec-fetch-site", "same-origin"), ("x-csrf-token", &session.csrf)], 201, ""),
        (vec![("origin", &own), ("x-csrf-token", &session.csrf)], 201, ""),
    ] {
        let mut request = server.plain(Method::POST, "/api/v1/bots").header("cookie", &session.cookie);
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        let response = request.json(&json!({"name": "b"})).send().await.unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        if status.is_success() {
            answered(response, status).await;
        } else {
            problem(response, status, code).await;
        }
    }
    let other = server.sign_in("Bob", Access::Admin).await;
    let mixed = server.browser(&session, Method::POST, "/api/v1/bots").header("x-csrf-token", &other.csrf);
    let mixed = mixed.json(&json!({"name": "b"})).send().await.unwrap();
    assert_eq!(mixed.status(), StatusCode::CREATED, "the first header counts");
    let read = server.plain(Method::GET, "/api/v1/me").header("cookie", &session.cookie).send().await.unwrap();
    answered(read, OPEN).await;
    let token = server.admin(Method::POST, "/api/v1/bots").json(&json!({"name": "b"})).send().await.unwrap();
    answered(token, StatusCode::CREATED).await;
}
