//! Five processes, and a few minutes in which one of them is always being killed or frozen, and the database too.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use midwatch_events::{Micros, time::SECOND_US};
use serde_json::json;

use crate::{
    deployment::{Deployment, Server, wait},
    killed::{chance, make, now},
    ledger::Found,
};

const ROUTINES: usize = 500;
const PROCESSES: usize = 5;
/// From when a process is frozen until it goes on.
const FROZEN: Duration = Duration::from_secs(60);
/// Processes that are frozen at the same time, at the most.
const FROZEN_MAX: usize = 3;
/// The deadline of the runs; others close what is over it a minute later.
const DEADLINE_S: u64 = 120;

/// One of the processes.
struct Seat {
    server: Server,
    /// When it goes on, if it is frozen.
    frozen_until: Option<Duration>,
    was_there: bool,
}

#[derive(Debug, Default)]
struct Done {
    kills: usize,
    stops: usize,
    restarts: usize,
}

#[test]
#[ignore = "it takes minutes, and a PostgreSQL that it may restart: make soak-processes"]
fn five_processes_killed_and_frozen_end_every_window_once() {
    let restart = PathBuf::from(env::var("MIDWATCH_TEST_POSTGRES_RESTART").unwrap_or_else(|_| {
        panic!("MIDWATCH_TEST_POSTGRES_RESTART must restart the test server; `make soak-processes` sets it")
    }));
    let minutes = env::var("MINUTES").map_or(5, |minutes| minutes.parse().unwrap());
    let deployment = Deployment::postgres("soaked").with("MIDWATCH_REPEAT_WINDOW", "10s");
    let mut seats: Vec<Seat> = (0..PROCESSES).map(|_| Seat::new(deployment.serve())).collect();
    let first = now().as_secs() + 60;
    let last = first + minutes * 60;
    make_all(&deployment, &seats[0].server, first, last);
    assert!(now().as_secs() < first, "the routines were not made in time");

    let mut done = Done::default();
    let (begins, ends) = (Duration::from_secs(first), Duration::from_secs(last));
    let third = (ends - begins) / 3;
    while now() < ends {
        thread::sleep(Duration::from_millis(1_500 + chance(3_000)));
        disturb(&deployment, &mut seats, &mut done);
        if done.restarts < 2 && now() > begins + third * (u32::try_from(done.restarts).unwrap() + 1) {
            // The first time as an administrator does it, the second time as a crash.
            let mode = ["fast", "immediate"][done.restarts];
            assert!(Command::new(&restart).arg(mode).status().unwrap().success());
            done.restarts += 1;
        }
    }
    for seat in &mut seats {
        seat.thaw();
        seat.stand_in(&deployment);
    }
    wait(Duration::from_secs(DEADLINE_S + 600), "every run to end", || {
        let rows = deployment.run(&["routine", "list"]);
        assert_eq!(rows.len(), ROUTINES);
        rows.iter().all(|row| row["live_run"].is_null() && row["next_window"].is_null())
    });
    drop(seats);
    deployment.verify();
    let mut found = Found::read(&deployment.url);
    let counts = found.check(|story| windows(&story.name, first, last));
    acted_as_decided(&deployment, &mut found);
    let endings = &found.endings;
    eprintln!("{minutes} minutes: {done:?}; {counts:?}; runs {endings:?}; {} violations", found.violations.len());
    assert_eq!(found.violations, [""; 0]);
    assert_eq!(counts.windows, counts.claimed + counts.missed + counts.skipped);
    assert!(done.restarts == 2 && done.kills > 0 && done.stops > 0 && counts.claimed > 0, "{done:?} {counts:?}");
}

/// A minute apart from each other, from the first second on, ROUTINES of them within a minute.
fn windows(name: &str, first: u64, last: u64) -> Vec<Micros> {
    let offset = name.trim_start_matches('r').parse::<u64>().unwrap() % 60;
    let times = (first + offset..=last).step_by(60);
    times.map(|at| Micros(i64::try_from(at).unwrap() * SECOND_US)).collect()
}

fn make_all(deployment: &Deployment, server: &Server, first: u64, last: u64) {
    let bot = deployment.one(&["bot", "add", "--name", "ops"]);
    let instant = |second: u64| Micros(i64::try_from(second).unwrap() * SECOND_US).to_string();
    make(deployment, server, ROUTINES, |n| {
        let step = |file| {
            let arguments = json!({"path": format!("{file}-{n}.txt"), "contents": "x\n", "append": true});
            json!({"tool": "computer_write_file", "arguments": arguments})
        };
        let second = first + n as u64 % 60;
        let (grace_s, overlap) = ([20, 50, 600][n % 3], ["skip", "queue_one", "cancel_live"][n / 3 % 3]);
        let mut limits = json!({
            "deadline_s": DEADLINE_S,
            "grace_s": grace_s,
            "overlap": overlap,
        });
        if n.is_multiple_of(4) {
            limits["missed"] = json!({"run_once_within_s": 90});
        }
        json!({
            "name": format!("r{n}"),
            "bot": bot["id"],
            "schedule": {
                "kind": "every", "zone": "UTC", "minutes": 1, "anchor": instant(second),
                "starts_at": instant(second), "ends_at": instant(last),
            },
            "recording": {"steps": [step("a"), step("b")]},
            "limits": limits,
        })
    });
}

/// Kills or freezes one of them by chance, lets go on whose time is over, and starts again whoever is gone.
fn disturb(deployment: &Deployment, seats: &mut [Seat], done: &mut Done) {
    let frozen = seats.iter().filter(|seat| seat.frozen_until.is_some()).count();
    let count = u64::try_from(seats.len()).unwrap();
    let chosen = usize::try_from(chance(count * 1_000) % count).unwrap();
    let seat = &mut seats[chosen];
    if seat.frozen_until.is_none() && chance(100_000).is_multiple_of(2) && frozen < FROZEN_MAX {
        seat.freeze();
        done.stops += 1;
    } else {
        // A frozen one dies as well.
        seat.server.signal("KILL");
        seat.was_there = false;
        seat.server = deployment.start();
        seat.frozen_until = None;
        done.kills += 1;
    }
    for seat in seats {
        if seat.frozen_until.is_some_and(|until| now() >= until) {
            seat.thaw();
        }
        seat.stand_in(deployment);
    }
}

impl Seat {
    fn new(server: Server) -> Self {
        Self { server, frozen_until: None, was_there: true }
    }

    fn freeze(&mut self) {
        self.server.signal("STOP");
        self.frozen_until = Some(now() + FROZEN);
    }

    fn thaw(&mut self) {
        if self.frozen_until.take().is_some() {
            self.server.signal("CONT");
        }
    }

    /// One that was started while the database was away says so and ends, and is started again; one that served never
    /// ends by itself.
    fn stand_in(&mut self, deployment: &Deployment) {
        if self.frozen_until.is_some() {
            return;
        }
        self.was_there |= self.server.is_there();
        if self.server.has_ended() {
            assert!(!self.was_there, "a process that served has ended by itself");
            self.server = deployment.start();
        }
    }
}

/// What the tools did, against what the ledger let them do: each step writes one line.
fn acted_as_decided(deployment: &Deployment, found: &mut Found) {
    let mut lines = BTreeMap::<String, usize>::new();
    count_lines(&deployment.path("state"), &mut lines);
    for story in found.routines.values() {
        let wrote = lines.get(&story.name).copied().unwrap_or(0);
        if wrote > story.let_through || wrote < story.finished {
            let (name, let_through, finished) = (&story.name, story.let_through, story.finished);
            found.violations.push(format!("{name}: {wrote} acts; {let_through} let through, {finished} finished"));
        }
    }
}

fn count_lines(directory: &Path, lines: &mut BTreeMap<String, usize>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            count_lines(&path, lines);
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix("a-").or(name.strip_prefix("b-")).and_then(|n| n.strip_suffix(".txt")) {
            let wrote = fs::read_to_string(&path).unwrap().lines().count();
            *lines.entry(format!("r{number}")).or_default() += wrote;
        }
    }
}
