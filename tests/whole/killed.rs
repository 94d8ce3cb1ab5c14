//! SIGKILL at any moment: every window ends once, nothing that was answered is lost, nothing stays live.

use std::{
    fs, process,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use midwatch_events::{Micros, time::SECOND_US};
use serde_json::{Value, json};

use crate::{
    deployment::{Deployment, Server, wait},
    ledger::Found,
};

const ROUTINES: usize = 200;
const MAKERS: usize = 10;
/// Others wait a minute before they give a runner up, and look every ten seconds.
const GIVEN_UP: Duration = Duration::from_secs(90);

#[test]
fn of_two_processes_one_is_killed_while_200_windows_fall_due_and_each_ends_once() {
    let deployment = Deployment::postgres("killed");
    let (one, two) = (deployment.serve(), deployment.serve());
    let bot = deployment.one(&["bot", "add", "--name", "ops"]);
    let due = now().as_secs() + 25;
    let window = Micros(i64::try_from(due).unwrap() * SECOND_US);
    let at = window.to_string();
    let steps: Vec<_> = (0..4)
        .map(|n| json!({"tool": "computer_write_file", "arguments": {"path": format!("{n}.txt"), "contents": "x"}}))
        .collect();
    make(&deployment, &two, ROUTINES, |n| {
        json!({
            "name": format!("r{n}"),
            "bot": bot["id"],
            "schedule": {"kind": "once", "at": at},
            "recording": {"steps": steps},
        })
    });
    assert!(now().as_secs() < due, "the routines were not made in time; give the test a later window");
    thread::sleep(Duration::from_secs(due).saturating_sub(now()) + Duration::from_millis(chance(1_500)));
    one.kill();

    wait(GIVEN_UP + Duration::from_secs(60), "every window to end", || {
        let routines = deployment.run(&["routine", "list"]);
        assert_eq!(routines.len(), ROUTINES);
        routines.iter().all(|row| row["live_run"].is_null() && !row["last_outcome"].is_null())
    });
    let mut found = Found::read(&deployment.url);
    let counts = found.check(|_| vec![window]);
    assert_eq!(found.violations, [""; 0]);
    assert_eq!((counts.windows, counts.claimed + counts.missed + counts.skipped), (ROUTINES, ROUTINES));
    deployment.verify();
    drop(two);
}

#[test]
fn killed_at_any_moment_nothing_answered_is_lost_and_nothing_stays_live() {
    let deployment = Deployment::sqlite();
    let server = deployment.serve();
    let bot = deployment.one(&["bot", "add", "--name", "ops"]);
    let bot = bot["id"].as_str().unwrap();
    let recording = deployment.path("recording.json");
    let step =
        json!({"tool": "computer_write_file", "arguments": {"path": "log.txt", "contents": "x", "append": true}});
    fs::write(&recording, json!({"steps": vec![step; 40]}).to_string()).unwrap();
    let recording = format!("@{}", recording.display());
    let schedule = json!({"kind": "once", "at": "2400-01-01T00:00:00Z"}).to_string();
    let arguments =
        ["routine", "add", "--name", "log", "--bot", bot, "--schedule", &schedule, "--recording", &recording];
    let routine = deployment.one(&arguments);
    let routine = routine["id"].as_str().unwrap();
    let trigger = deployment.one(&["trigger", "create", "--name", "t", "--routine", routine]);
    let secret = format!("Bearer {}", trigger["secret"].as_str().unwrap());
    let path = trigger["path"].as_str().unwrap();
    post(&server, path, &secret, "sample").unwrap();
    let id = trigger["id"].as_str().unwrap();
    deployment.one(&["trigger", "confirm", id]);

    let answered = Mutex::new(Vec::new());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for sender in 0..4 {
            let (server, secret, answered, over) = (&server, &secret, &answered, &over);
            scope.spawn(move || {
                for n in 0.. {
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                    if let Ok(delivery) = post(server, path, secret, &format!("{sender}-{n}")) {
                        answered.lock().unwrap().push(delivery);
                    }
                }
            });
        }
        thread::sleep(Duration::from_millis(1_000 + chance(2_000)));
        let killed = process::Command::new("kill").args(["-9", &server.pid().to_string()]).status().unwrap();
        assert!(killed.success());
        over.store(true, Ordering::Release);
    });
    drop(server);
    let answered = answered.into_inner().unwrap();
    assert!(answered.len() > 10, "only {} deliveries were answered", answered.len());

    // Without a server, as an investigator would look: everything that was answered is there.
    deployment.verify();
    let kept = deployment.run(&["trigger", "deliveries", id]);
    for delivery in &answered {
        assert!(kept.iter().any(|row| row["id"] == *delivery), "{delivery} was answered, and is lost");
    }

    let live_before: Vec<Value> =
        deployment.run(&["run", "list"]).into_iter().filter(|run| run["state"] == "running").collect();
    let server = deployment.serve();
    wait(GIVEN_UP, "nothing of before to be live", || {
        let runs = deployment.run(&["run", "list"]);
        live_before.iter().all(|before| runs.iter().any(|run| run["id"] == before["id"] && run["state"] == "ended"))
    });
    deployment.verify();
    drop(server);
}

fn post(server: &Server, path: &str, secret: &str, id: &str) -> std::io::Result<Value> {
    let body = json!({ "id": id }).to_string();
    let headers = [("Authorization", secret), ("X-Delivery-Id", id)];
    let answer = server.post(path, &headers, body.as_bytes())?;
    if answer.status != 202 {
        return Err(std::io::Error::other(format!("{}", answer.status)));
    }
    Ok(answer.json()["delivery"].clone())
}

/// Makes routines through the API, many at a time, as a person with a script would: each answer waits until it can be
/// read back.
pub(crate) fn make(deployment: &Deployment, server: &Server, routines: usize, routine: impl Fn(usize) -> Value + Sync) {
    let token = format!("Bearer {}", deployment.token());
    thread::scope(|scope| {
        for maker in 0..MAKERS {
            let (token, routine) = (&token, &routine);
            scope.spawn(move || {
                for n in (maker..routines).step_by(MAKERS) {
                    let headers = [("Authorization", token.as_str()), ("Content-Type", "application/json")];
                    let body = routine(n).to_string();
                    let answer = server.post("/api/v1/routines", &headers, body.as_bytes()).unwrap();
                    assert!(answer.status < 300, "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
                }
            });
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "a test names a real window of real processes")]
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A number below `most` that differs from run to run.
pub(crate) fn chance(most: u64) -> u64 {
    u64::from(now().subsec_nanos()) % most
}
