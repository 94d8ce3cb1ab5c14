//! A server beside the verbs: what they hand over, it does.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::home::Home;

/// A running `midwatch serve`; it is killed with the test.
struct Server {
    process: Child,
    _out: BufReader<ChildStdout>,
    said: Value,
}

impl Server {
    fn start(home: &Home, more: &[&str]) -> Self {
        Self::of(home, &[&["serve"], more].concat())
    }

    fn of(home: &Home, verb: &[&str]) -> Self {
        let serve = [verb, &["--listen", "127.0.0.1:0", "--json"]].concat();
        let mut process = home.command(&serve).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let said = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self { process, _out: out, said }
    }

    /// Asks it to end, and gives its exit code.
    fn end(mut self) -> Option<i32> {
        assert!(Command::new("kill").arg(self.process.id().to_string()).status().unwrap().success());
        wait("the server to end", || self.process.try_wait().unwrap().is_some());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, or ended now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test waits in real time for a real process")]
fn wait(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited for {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Does what a printed `curl` would do; the status of the answer.
fn posted(curl: &str) -> u16 {
    let words: Vec<&str> = curl.split('\'').collect();
    let [command, authorization, _, content_type, _, body, ..] = words[..] else { panic!("{curl}") };
    let url = command.split(' ').find_map(|word| word.strip_prefix("http://")).unwrap();
    let (address, path) = url.split_at(url.find('/').unwrap());
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\n{authorization}\r\n{content_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn last_outcome(home: &Home) -> Value {
    home.json(&["routine", "list"])[0]["last_outcome"].clone()
}

/// Due at once: the grid began long ago, and the grace is ten minutes.
const EVERY_MINUTE: &str = r#"{"kind":"every","zone":"UTC","minutes":1,"anchor":"2026-01-01T00:00:00Z"}"#;

#[test]
fn a_routine_made_beside_the_server_runs_and_a_stop_is_in_order() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    assert!(server.said["listen"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{}", server.said);
    let url = server.said["url"].as_str().unwrap();
    assert!(server.said["link"].as_str().unwrap().starts_with(&format!("{url}/sign-in/")), "{}", server.said);
    let bot = home.id(&["bot", "add", "--name", "ops"]);
    let routine = home.routine(&bot, "Minutes", EVERY_MINUTE);
    wait("the window to run", || last_outcome(&home) == "succeeded");
    let run = home.json(&["run", "list"])[0].clone();
    assert_eq!((&run["cause"], &run["state"]), (&json!("schedule"), &json!("ended")));
    assert!(run["window"].as_str().unwrap().ends_with(":00Z"), "{run}");

    // A person's run beside it: somebody is there, so nothing is hinted at.
    let now = home.run(&["run", "now", &routine, "--json"]);
    assert_eq!((now.code, now.err.as_str()), (0, ""));
    let now: Value = serde_json::from_str(&now.out).unwrap();
    wait("the run now to end", || {
        let rows = home.json(&["run", "list", "--state", "ended"]);
        rows.as_array().unwrap().iter().any(|row| row["id"] == now["run"] && row["outcome"] == "succeeded")
    });

    let checks = home.json(&["doctor"])["checks"].clone();
    assert!(checks.as_array().unwrap().iter().any(|check| check["name"] == "process"), "{checks}");
    assert_eq!(server.end(), Some(0));
    let checks = home.json(&["doctor"])["checks"].clone();
    assert!(checks.as_array().unwrap().iter().all(|check| check["name"] != "process"), "it left: {checks}");
}

#[test]
fn what_a_killed_server_recorded_is_read_without_one() {
    let home = Home::new();
    let bot = home.id(&["bot", "add", "--name", "ops"]);
    home.routine(&bot, "Minutes", EVERY_MINUTE);
    let mut server = Server::start(&home, &["--roles", "clock,runner,projector"]);
    assert_eq!(server.said["listen"], json!(null), "no web role, no address");
    wait("the window to run", || last_outcome(&home) == "succeeded");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert_eq!(last_outcome(&home), "succeeded");
    let run = home.json(&["run", "list"])[0].clone();
    assert_eq!(run["outcome"], "succeeded");
}

#[test]
fn a_process_that_is_off_starts_nothing() {
    let home = Home::new();
    let bot = home.id(&["bot", "add", "--name", "ops"]);
    let routine = home.routine(&bot, "Minutes", EVERY_MINUTE);
    let server = Server::start(&home, &["--halted"]);
    let off = [("MIDWATCH_SCHEDULER", "off")];
    home.fails_with(&off, &["run", "now", &routine], 1, "halted");
    home.json(&["run", "now", &routine]);
    thread::sleep(Duration::from_secs(3));
    let runs = home.json(&["run", "list"]);
    assert_eq!(runs.as_array().unwrap().len(), 1, "no window was claimed: {runs}");
    assert_eq!(runs[0]["state"], "waiting", "and nothing was executed: {runs}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_demo_serves_what_it_prints() {
    let home = Home::new();
    let dir = home.path("demo").display().to_string();
    let server = Server::of(&home, &["demo", "--dir", &dir]);
    let said = &server.said;
    let url = said["url"].as_str().unwrap();
    assert!(said["link"].as_str().unwrap().starts_with(&format!("{url}/sign-in/")), "{said}");
    let (db, state) = (format!("sqlite://{dir}/midwatch.db"), format!("{dir}/state"));
    let of_demo = |arguments: &[&str]| {
        let ran =
            home.run_with(&[("XDG_STATE_HOME", &state), ("MIDWATCH_DB", &db)], &[arguments, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        serde_json::from_str::<Value>(&ran.out).unwrap()
    };
    let status =
        |answer: &Value| answer.as_array().unwrap().iter().map(|row| row["status"].clone()).collect::<Vec<_>>();
    let trigger = said["trigger"].as_str().unwrap();

    let curl = said["curl"].as_str().unwrap();
    assert_eq!(posted(curl), 202);
    assert_eq!(status(&of_demo(&["trigger", "deliveries", trigger])), ["captured"]);
    // What was sent is read on record, and its signature cannot be checked again where there is none.
    let delivery = of_demo(&["trigger", "deliveries", trigger])[0]["id"].as_str().unwrap().to_owned();
    assert!(of_demo(&["delivery", "read", &delivery])["body"].as_str().unwrap().starts_with('{'));
    let reads = of_demo(&["audit", "event:user.evidence_read"]);
    assert!(reads.to_string().contains(&delivery), "{reads}");
    assert!(said["confirm"].as_str().unwrap().ends_with(&format!("trigger confirm {trigger}")), "{said}");
    of_demo(&["trigger", "confirm", trigger]);
    assert_eq!(posted(&curl.replace("\"order\":17", "\"order\":18")), 202);
    wait("the delivery to run", || status(&of_demo(&["trigger", "deliveries", trigger]))[0] == "started");
    wait("the minute's routine to run", || {
        let rows = of_demo(&["routine", "list"]);
        rows.as_array().unwrap().iter().any(|row| row["name"] == "Every minute" && row["last_outcome"] == "succeeded")
    });
    assert_eq!(server.end(), Some(0));
}
