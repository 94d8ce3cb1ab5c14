//! Senders by their own libraries: what those sign is let in and what was changed is not, and what our own test sender
//! signs those let in. `signers.mjs` holds the libraries.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use crate::{
    deployment::{Deployment, Server},
    http::Answer,
    payloads,
};

pub(crate) const PUBLIC_URL: &str = "https://watch.example";
/// Of RFC 8032, 7.1, test 1: the private key and the public one.
pub(crate) const ED25519: (&str, &str) = (
    "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
);

/// One sender: its preset, what it posts, and how its library stands to it.
struct Case {
    preset: &'static str,
    /// The key, where the sender shows it.
    secret: Option<&'static str>,
    content_type: &'static str,
    body: &'static str,
    /// What stands in the body and, changed, makes another one.
    word: &'static str,
    accepted: u16,
    /// Whether it signs when it sent it.
    dated: bool,
    /// Whether its library also judges what is signed.
    judges: bool,
}

impl Case {
    /// Who signed, or judged what was signed by the documentation.
    fn library(&self) -> &'static str {
        match self.preset {
            "github" | "meta" => "@octokit/webhooks-methods signs and judges",
            "standard-webhooks" | "gitlab" => "standardwebhooks signs and judges",
            "stripe" => "stripe signs and judges",
            "twilio" => "twilio signs and judges",
            "shopify" => "@shopify/shopify-api signs and judges",
            "slack" => "@slack/bolt judges",
            "linear" => "@linear/sdk judges",
            "zoom" => "@zoom/rivet judges",
            "discord" => "discord-interactions judges",
            "cloudevents" => "cloudevents makes the request",
            _ => "none published: by its documentation",
        }
    }
}

const fn json_of(preset: &'static str, secret: Option<&'static str>, body: &'static str) -> Case {
    let content_type = "application/json";
    Case { preset, secret, content_type, body, word: "made", accepted: 202, dated: false, judges: true }
}

const fn dated(case: Case) -> Case {
    Case { dated: true, ..case }
}

const fn answered(accepted: u16, case: Case) -> Case {
    Case { accepted, ..case }
}

/// No library of this sender judges anything.
const fn unjudged(case: Case) -> Case {
    Case { judges: false, ..case }
}

const SENDERS: &[Case] = &[
    json_of("github", None, r#"{"action":"made","zen":"Design for failure."}"#),
    answered(200, json_of("meta", Some("app secret"), r#"{"object":"page","entry":[{"id":"made"}]}"#)),
    dated(json_of("standard-webhooks", None, r#"{"type":"user.made","data":{"n":1524831183200260097}}"#)),
    dated(json_of("gitlab", None, r#"{"object_kind":"push","ref":"made"}"#)),
    dated(json_of("stripe", Some("whsec_of_stripe"), r#"{"id":"evt_1","object":"event","type":"invoice.made"}"#)),
    Case {
        preset: "twilio",
        secret: Some("12345678901234567890123456789012"),
        content_type: "application/x-www-form-urlencoded",
        body: "MessageSid=SM1&MessageStatus=made&Body=a+b%26c%C3%BC&To=%2B15550100",
        ..json_of("", None, "")
    },
    answered(
        200,
        dated(json_of(
            "slack",
            Some("8f742231b10e"),
            r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"made"}}"#,
        )),
    ),
    dated(json_of("linear", Some("lin_wh_1"), r#"{"type":"Issue","action":"made","webhookTimestamp":0}"#)),
    json_of("shopify", Some("hush"), r#"{"id":820982911946154508,"name":"made"}"#),
    answered(
        200,
        dated(json_of(
            "zoom",
            Some("zoom token"),
            r#"{"event":"meeting.made","event_ts":1,"payload":{"account_id":"a"}}"#,
        )),
    ),
    answered(
        204,
        dated(json_of("discord", Some(ED25519.1), r#"{"version":1,"type":1,"event":{"type":"APPLICATION_made"}}"#)),
    ),
    unjudged(json_of("pagerduty", Some("pd"), r#"{"event":{"id":"01","event_type":"incident.made"}}"#)),
    unjudged(json_of("sentry", Some("client"), r#"{"action":"made","data":{}}"#)),
    unjudged(dated(json_of("grafana", None, r#"{"status":"made","groupKey":"g","alerts":[]}"#))),
    unjudged(json_of("cloudevents", None, r#"{"made":true}"#)),
    Case { content_type: "application/cloudevents+json", ..unjudged(json_of("cloudevents", None, r#"{"made":true}"#)) },
];

#[test]
fn every_sender_is_let_in_by_its_own_signature_and_nobody_else_is() {
    let deployment = Deployment::sqlite();
    let server = deployment.serve_with(&["--public-url", PUBLIC_URL]);
    let routine = payloads::routine(&deployment);
    let mut libraries = Libraries::start();
    for case in SENDERS {
        let mut door = Door::of(&deployment, &routine, case);
        let refused = |door: &Door, request: &Request, what: &str| {
            assert_eq!(request.post(&server, &door.path).status, 401, "{}: {what}", case.preset);
        };
        let request = libraries.signed(&door, case, now_s());
        if case.judges {
            assert!(libraries.verified(&door, case, &request), "{}: its own library refuses it", case.preset);
        }
        let changed = Request { body: request.body.replacen(case.word, "nade", 1), ..request.clone() };
        if case.preset == "cloudevents" {
            // It signs nothing; who sends is known by the secret.
            let other = Door { secret: "another".to_owned(), ..door.clone() };
            let forged = libraries.signed(&other, case, now_s());
            refused(&door, &forged, "another's secret");
        } else {
            assert_ne!(changed.body, request.body, "{}", case.preset);
            refused(&door, &changed, "a changed body");
            if case.judges {
                assert!(!libraries.verified(&door, case, &changed), "{}: its library takes a changed one", case.preset);
            }
            let other = Door { secret: other_secret(&door.secret), ..door.clone() };
            let forged = libraries.signed(&other, case, now_s());
            refused(&door, &forged, "another's signature");
        }
        if case.dated {
            for (seconds, what) in [(-3_600, "an hour old"), (3_600, "from the future")] {
                let replayed = libraries.signed(&door, case, now_s() + seconds);
                refused(&door, &replayed, what);
            }
            refused(&door, &request.dated_later(), "another time than the signed one");
        }
        let taken = request.post(&server, &door.path);
        assert_eq!(taken.status, case.accepted, "{}: {}", case.preset, String::from_utf8_lossy(&taken.body));
        if case.accepted != 204 {
            assert_eq!(taken.json()["status"], "captured", "{}", case.preset);
            let again = request.post(&server, &door.path);
            assert_eq!((again.status, &again.json()["duplicate"]), (200, &json!(true)), "{}", case.preset);
        }
        // `--no-capture` shows it.
        eprintln!("{:18} {:42} verified, tampered refused", case.preset, case.library());
        let kept = deployment.run(&["trigger", "deliveries", &door.trigger]);
        assert_eq!(kept.len(), 1, "{}: {kept:?}", case.preset);
        if case.judges {
            door.secret = if case.preset == "discord" { ED25519.0.to_owned() } else { door.secret };
            let ours = sent_by_us(&deployment, &door, case);
            assert!(libraries.verified(&door, case, &ours), "{}: its library refuses ours: {ours:?}", case.preset);
            let changed = Request { body: ours.body.replacen(case.word, "nade", 1), ..ours };
            assert!(!libraries.verified(&door, case, &changed), "{}: it verifies anything", case.preset);
        }
    }
    deployment.verify();
}

/// A trigger of this sender.
#[derive(Clone)]
struct Door {
    trigger: String,
    path: String,
    secret: String,
}

impl Door {
    fn of(deployment: &Deployment, routine: &str, case: &Case) -> Self {
        let mut create =
            vec!["trigger", "create", "--name", case.preset, "--routine", routine, "--preset", case.preset];
        if let Some(secret) = case.secret {
            create.extend(["--secret", secret]);
        }
        let made = deployment.one(&create);
        let text = |name: &str| made[name].as_str().map(str::to_owned);
        // Discord's sender holds the private key, we the public one.
        let secret = if case.preset == "discord" { Some(ED25519.0) } else { case.secret };
        let secret = secret.map(str::to_owned).or_else(|| text("secret")).unwrap();
        Self { trigger: text("id").unwrap(), path: text("path").unwrap(), secret }
    }
}

/// Another secret of the same form.
fn other_secret(secret: &str) -> String {
    match secret.strip_prefix("whsec_").filter(|rest| rest.len() == 44) {
        Some(_) => "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrs=".to_owned(),
        None if secret == ED25519.0 => ED25519.1.to_owned(),
        None => format!("{secret}x"),
    }
}

#[derive(Clone, Debug)]
struct Request {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Request {
    fn post(&self, server: &Server, path: &str) -> Answer {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        server.post(path, &headers, self.body.as_bytes()).unwrap()
    }

    /// The same signature beside a time one second later.
    fn dated_later(&self) -> Self {
        let mut later = self.clone();
        let plus_one = |text: &str| (text.parse::<i64>().unwrap() + 1).to_string();
        for (name, value) in &mut later.headers {
            if name.ends_with("timestamp") {
                *value = plus_one(value);
            } else if name == "stripe-signature" {
                let (time, rest) = value.split_once(',').unwrap();
                *value = format!("t={},{rest}", plus_one(time.trim_start_matches("t=")));
            } else if name == "linear-signature" {
                let mut body: Value = serde_json::from_str(&later.body).unwrap();
                body["webhookTimestamp"] = (body["webhookTimestamp"].as_i64().unwrap() + 1_000).into();
                later.body = body.to_string();
            }
        }
        later
    }
}

/// The process that holds the libraries.
pub(crate) struct Libraries {
    process: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Libraries {
    pub(crate) fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole/signers.mjs");
        let mut process = Command::new("node")
            .arg(script)
            .env("MIDWATCH_TEST_NODE_MODULES", payloads::modules())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (asked, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, asked, answers }
    }

    fn ask(&mut self, asked: &Value) -> Value {
        writeln!(self.asked, "{asked}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert!(answer["error"].is_null(), "{asked}: {}", answer["error"].as_str().unwrap_or_default());
        answer
    }

    /// Headers by which GitHub's own library signs a body.
    pub(crate) fn github(&mut self, secret: &str, id: &str, body: &str) -> BTreeMap<String, String> {
        let asked = json!({"op": "sign", "sender": "github", "secret": secret, "id": id, "body": body});
        texts(&self.ask(&asked)["headers"])
    }

    fn signed(&mut self, door: &Door, case: &Case, at_s: i64) -> Request {
        let body = case.body.replace(r#""webhookTimestamp":0"#, &format!(r#""webhookTimestamp":{at_s}000"#));
        let answer = self.ask(&json!({
            "op": "sign",
            "sender": case.preset,
            "secret": door.secret,
            "url": format!("{PUBLIC_URL}{}", door.path),
            "id": format!("{}-1", case.preset),
            "at_s": at_s,
            "content_type": case.content_type,
            "body": body,
        }));
        Request { headers: texts(&answer["headers"]), body: answer["body"].as_str().unwrap().to_owned() }
    }

    fn verified(&mut self, door: &Door, case: &Case, request: &Request) -> bool {
        let answer = self.ask(&json!({
            "op": "verify",
            "sender": case.preset,
            "secret": door.secret,
            "url": format!("{PUBLIC_URL}{}", door.path),
            "headers": request.headers,
            "body": request.body,
        }));
        answer["verified"].as_bool().unwrap()
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn texts(object: &Value) -> BTreeMap<String, String> {
    let members = object.as_object().unwrap().iter();
    members.map(|(name, value)| (name.to_lowercase(), value.as_str().unwrap().to_owned())).collect()
}

#[expect(clippy::disallowed_methods, reason = "a sender signs by the clock of its machine")]
fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

/// What `midwatch trigger send` posts, as a listener of ours gets it.
fn sent_by_us(deployment: &Deployment, door: &Door, case: &Case) -> Request {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}", listener.local_addr().unwrap());
    let heard = thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
                None if line.trim().is_empty() => break,
                None => None,
            };
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        Request { headers, body: String::from_utf8(body).unwrap() }
    });
    let arguments = ["trigger", "send", &door.trigger, "--to", &to, "--public-url", PUBLIC_URL, "--body", case.body];
    let more = ["--content-type", case.content_type, "--event-type", "orders/create", "--secret", &door.secret];
    deployment.one(&[&arguments[..], &more[..]].concat());
    heard.join().unwrap()
}
