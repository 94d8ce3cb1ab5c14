//! Triggers by the command line alone: every preset's requests by our own test sender, deliveries as they come, what a
//! filter would let pass, and letting many run once more; on both databases.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    deployment::{Deployment, Server, wait},
    payloads,
    senders::{ED25519, PUBLIC_URL},
};

/// Presets whose sender makes the secret and shows it.
const SHOWN_BY_THE_SENDER: [&str; 9] =
    ["stripe", "slack", "linear", "shopify", "pagerduty", "sentry", "zoom", "meta", "twilio"];

/// What a sender of this preset posts at least: its kind and its body.
fn body(preset: &str) -> (&'static str, &'static str) {
    match preset {
        "twilio" => ("application/x-www-form-urlencoded", "MessageSid=SM1&MessageStatus=sent"),
        "microsoft-graph" => ("application/json", r#"{"value":[{"changeType":"created"}]}"#),
        "discord" => ("application/json", r#"{"version":1,"type":1,"event":{"type":"APPLICATION_AUTHORIZED"}}"#),
        _ => ("application/json", r#"{"id":"1","type":"t","event":{"id":"1","event_type":"t"},"source":"s"}"#),
    }
}

#[test]
fn the_test_sender_posts_as_every_preset_and_what_it_signed_verifies_again() {
    let deployment = Deployment::sqlite();
    let server = deployment.serve_with(&["--public-url", PUBLIC_URL]);
    let routine = payloads::routine(&deployment);
    let presets = deployment.run(&["trigger", "presets"]);
    assert!(presets.len() >= 20, "{presets:?}");
    for preset in &presets {
        let name = preset["name"].as_str().unwrap();
        let about = deployment.one(&["trigger", "presets", name]);
        let mut create = vec!["trigger", "create", "--name", name, "--routine", &routine, "--preset", name];
        match name {
            "template" => create.extend(["--template", about["text"].as_str().unwrap()]),
            "discord" => create.extend(["--secret", ED25519.1]),
            _ if SHOWN_BY_THE_SENDER.contains(&name) => create.extend(["--secret", "shown by the sender"]),
            _ => {}
        }
        let made = deployment.one(&create);
        let (id, path) = (made["id"].as_str().unwrap(), made["path"].as_str().unwrap());
        // What signs with a key that is kept sealed needs none; Discord's private key is its own.
        let secret = if name == "discord" { Some(ED25519.0) } else { made["secret"].as_str() };
        let signs = !["bearer", "gitlab-token", "microsoft-graph", "alertmanager", "cloudevents"].contains(&name);
        let (kind, body) = body(name);
        let to = format!("http://{}", server.address);
        let mut send = vec!["trigger", "send", id, "--to", &to, "--public-url", PUBLIC_URL];
        send.extend(["--body", body, "--content-type", kind, "--event-type", "push"]);
        if let Some(secret) = secret.filter(|_| !signs || name == "discord") {
            send.extend(["--secret", secret]);
        }
        let sent = deployment.one(&send);
        assert!([200, 202, 204].contains(&sent["status"].as_u64().unwrap()), "{name}: {sent}");
        let kept = deployment.run(&["trigger", "deliveries", id]);
        assert_eq!((kept.len(), &kept[0]["status"]), (1, &json!("captured")), "{name}: {kept:?}");
        let delivery = kept[0]["id"].as_str().unwrap();
        let (code, again) = deployment.tried(&["delivery", "verify", delivery, "--public-url", PUBLIC_URL]);
        assert_eq!((&again["verified"], code), (&json!(signs), i32::from(!signs)), "{name}: {again}");
        let stranger = server.post(path, &[("Content-Type", kind)], body.as_bytes()).unwrap();
        assert_eq!(stranger.status, 401, "{name}: what is neither signed nor brings a secret");
    }
    deployment.verify();
}

/// `midwatch trigger listen`, and the lines it has said.
struct Listening {
    process: Child,
    said: Arc<Mutex<Vec<Value>>>,
}

impl Listening {
    fn to(deployment: &Deployment, trigger: &str) -> Self {
        let mut command = deployment.command();
        command.args(["trigger", "listen", trigger, "--json"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let (out, said) = (BufReader::new(process.stdout.take().unwrap()), Arc::default());
        let keeps: Arc<Mutex<Vec<Value>>> = Arc::clone(&said);
        thread::spawn(move || {
            for line in out.lines() {
                keeps.lock().unwrap().push(serde_json::from_str(&line.unwrap()).unwrap());
            }
        });
        Self { process, said }
    }

    fn heard(&self) -> usize {
        self.said.lock().unwrap().len()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn send(deployment: &Deployment, server: &Server, trigger: &Value, id: &str, body: &str) -> Value {
    let (to, secret) = (format!("http://{}", server.address), trigger["secret"].as_str().unwrap());
    let trigger = trigger["id"].as_str().unwrap();
    deployment.one(&["trigger", "send", trigger, "--to", &to, "--secret", secret, "--id", id, "--body", body])
}

fn a_trigger_is_operated(deployment: &Deployment) {
    let server = deployment.serve();
    let routine = payloads::routine(deployment);
    let create = ["trigger", "create", "--name", "orders", "--routine", &routine, "--event-type", "order.*"];
    let trigger = deployment.one(&create);
    let id = trigger["id"].as_str().unwrap();
    let listening = Listening::to(deployment, id);
    let mut n = 0;
    wait(Duration::from_secs(30), "a delivery to be shown live", || {
        n += 1;
        send(deployment, &server, &trigger, &format!("early-{n}"), r#"{"type":"order.paid","amount":5}"#);
        listening.heard() > 0
    });
    deployment.one(&["trigger", "confirm", id]);
    for (n, amount) in [(1, 50), (2, 150), (3, 250)] {
        let body = format!(r#"{{"type":"refund.asked","amount":{amount}}}"#);
        let taken = send(deployment, &server, &trigger, &format!("refund-{n}"), &body);
        assert!(taken["body"].as_str().unwrap().contains("filtered"), "{taken}");
    }
    wait(Duration::from_secs(10), "all to be shown live", || {
        let said = listening.said.lock().unwrap();
        said.iter().filter(|line| line["status"] == "filtered").count() == 3
    });

    let wanted = [
        "trigger",
        "intake",
        id,
        "--event-type",
        "refund.*",
        "--filter",
        "has(body.amount) && body.amount > 100",
        "--preview",
    ];
    let previewed = deployment.run(&wanted);
    let with = |passes: &str| previewed.iter().filter(|row| row["passes"] == passes).count();
    assert_eq!((with("yes"), with("no")), (2, previewed.len() - 2), "{previewed:?}");
    let (code, wrong) = deployment.tried(&["trigger", "intake", id, "--filter", "body.", "--preview"]);
    assert!(code != 0 && wrong.to_string().contains("line 1"), "{wrong}");

    let which = ["delivery", "redeliver-all", "--trigger", id, "--status", "filtered", "--event-type", "refund.asked"];
    assert_eq!(deployment.one(&which)["count"], 3);
    let (code, other) = deployment.tried(&[&which[..], &["--confirm", "2"]].concat());
    assert!(code != 0 && other.to_string().contains("3 deliveries match now"), "{other}");
    let started = deployment.one(&[&which[..], &["--confirm", "3"]].concat());
    wait(Duration::from_secs(60), "all three to run once more", || {
        let rows = deployment.run(&["delivery", "redeliveries"]);
        rows[0]["id"] == started["id"] && rows[0]["state"] == "finished" && rows[0]["redelivered"] == 3
    });
    let (code, over) = deployment.tried(&["delivery", "cancel", started["id"].as_str().unwrap()]);
    assert_ne!(code, 0, "it is over: {over}");
    wait(Duration::from_secs(60), "their runs to end", || {
        let rows = deployment.run(&["delivery", "list", "--trigger", id, "--event-type", "refund.asked"]);
        rows.len() == 3 && rows.iter().all(|row| row["status"] == "started")
    });
    let found = deployment.run(&["delivery", "list", "--sender-id", "refund-2"]);
    assert_eq!(found.len(), 1, "{found:?}");
    checked(deployment, &trigger);
    deployment.verify();
}

/// A sample that was pasted, for a trigger that is there and for none.
fn checked(deployment: &Deployment, trigger: &Value) {
    let (id, secret) = (trigger["id"].as_str().unwrap(), trigger["secret"].as_str().unwrap());
    let request = |secret: &str| format!("POST /hooks/x HTTP/1.1\nAuthorization: Bearer {secret}\n\n{{}}");
    let (code, verdict) = deployment.tried(&["trigger", "check", id, "--request", &request(secret)]);
    assert_eq!((code, &verdict["verified"]), (0, &json!(true)), "{verdict}");
    let (code, verdict) = deployment.tried(&["trigger", "check", id, "--request", &request("mw_another")]);
    assert_eq!((code, &verdict["step"]), (1, &json!("secret")), "{verdict}");
    // The vector that GitHub publishes.
    let signed = "X-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let published = ["--preset", "github", "--secret", "It's a Secret to Everybody"];
    let by = |body: &str| {
        let request = format!("{signed}\n\n{body}");
        deployment.tried(&[&["trigger", "check", "--request", &request], &published[..]].concat())
    };
    assert_eq!(by("Hello, World!").0, 0);
    let (code, verdict) = by("Hello, World?");
    assert_eq!((code, &verdict["step"]), (1, &json!("signature")), "{verdict}");
}

#[test]
fn a_trigger_is_operated_from_the_command_line() {
    a_trigger_is_operated(&Deployment::sqlite());
}

#[test]
fn a_trigger_is_operated_from_the_command_line_on_postgresql() {
    a_trigger_is_operated(&Deployment::postgres("operated"));
}
