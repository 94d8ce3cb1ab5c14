//! Commands: nothing of one is left behind, whatever becomes of it or of us, and none learns a secret of ours.

use std::{fs, process::Command, time::Duration};

use serde_json::json;

use crate::{
    deployment::{Deployment, wait},
    place::{Place, alive},
};

const OFFLINE: [&str; 2] = ["--commands", "offline"];
const KEY: &str = "c2VjcmV0LW9mLXRoZS1kZXBsb3ltZW50LTAwMDAwMDE";

const RUN: &str = "computer_run_command";

/// A deployment that runs commands, with one Bot.
fn place() -> Place {
    let deployment = Deployment::sqlite().with("PLANTED_SECRET", KEY);
    Place::new(deployment, &["computer_run_command:unattended"])
}

/// Commands that try to get away, all of which sleep for so long.
fn runaways(seconds: &str) -> String {
    format!(
        "sleep {seconds} & setsid sleep {seconds} & (setsid sh -c 'sleep {seconds} & setsid sleep {seconds} & exit' &) \
         ; nohup sleep {seconds} >/dev/null 2>&1 & touch started; sleep {seconds}"
    )
}

#[test]
fn a_command_is_told_what_came_of_it_and_touches_nothing_but_its_workspace() {
    let place = place();
    let server = place.serve(&OFFLINE);
    let done = place.call(RUN, json!({"command": "echo out; echo err >&2; pwd; echo kept > a.txt; exit 0"}));
    assert_eq!(
        (&done["ok"], &done["exit_code"], &done["stderr"]),
        (&json!(true), &json!(0), &json!("err\n")),
        "{done}"
    );
    assert_eq!(fs::read_to_string(place.file("a.txt")).unwrap(), "kept\n");
    let failed = place.call(RUN, json!({"command": "exit 3"}));
    assert_eq!((&failed["ok"], &failed["exit_code"]), (&json!(false), &json!(3)), "{failed}");

    // Neither our environment, nor the key and the ledger that belong to the same account, nor anything outside.
    let environment = format!("/proc/{}/environ", server.pid());
    let outside = place.deployment.path("outside.txt");
    let state = place.deployment.path("state");
    let ledger = place.deployment.path("midwatch.db");
    let command = format!(
        "env; cat {environment}; cat /proc/$PPID/environ; find {} -type f -exec cat {{}} +; cat {}; echo x > {}; \
         kill -9 $PPID {}; ls /root; cat /etc/shadow; python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {}))'; true",
        state.display(),
        ledger.display(),
        outside.display(),
        server.pid(),
        server.address.rsplit_once(':').unwrap().1,
    );
    let nosy = place.call(RUN, json!({ "command": command }));
    assert_eq!(nosy["ok"], true, "{nosy}");
    let seen = nosy["stdout"].as_str().unwrap();
    let names: Vec<&str> = seen.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    for name in &names {
        assert!(["HOME", "LANG", "PATH", "PWD", "TMPDIR", "OLDPWD", "SHLVL", "_"].contains(name), "{name} in {seen}");
    }
    assert!(names.contains(&"PATH") && !seen.contains(KEY), "{seen}");
    assert!(seen.lines().all(|line| line.contains('=')), "something was read that must not be: {seen}");
    assert!(!outside.exists() && server.is_there());
    assert!(nosy["stderr"].as_str().unwrap().contains("PermissionError"), "it reached us over TCP: {nosy}");
}

#[test]
fn nothing_of_a_command_outlives_it_its_time_its_cancelling_or_us() {
    let place = place();
    let mut server = place.serve(&OFFLINE);
    // It ends, and what it started in the background ends with it.
    place.call(
        RUN,
        json!({"command": "setsid sleep 987601 & (setsid sleep 987601 >/dev/null 2>&1 &); nohup sleep 987601 & true"}),
    );
    assert_eq!(alive("987601"), 0);

    let late = place.call(RUN, json!({"command": format!("echo before; {}", runaways("987602")), "timeout_s": 2}));
    assert_eq!((&late["ok"], &late["exit_code"]), (&json!(false), &json!(null)), "{late}");
    assert!(late["error"].as_str().unwrap().contains("2 s") && late["stdout"] == "before\n", "{late}");
    assert_eq!(alive("987602"), 0);

    let away = place.call(RUN, json!({"command": "exec >&- 2>&-; sleep 987603", "timeout_s": 2}));
    assert_eq!(away["ok"], false);
    assert_eq!(alive("987603"), 0);

    let started = || {
        let there = place.file("started").exists();
        let _ = fs::remove_file(place.file("started"));
        there
    };
    started();
    let run = place.start(&[(RUN, json!({"command": runaways("987604"), "timeout_s": 300}))]);
    wait(Duration::from_secs(20), "the command to start", started);
    assert!(alive("987604") >= 5);
    place.deployment.one(&["run", "cancel", &run]);
    wait(Duration::from_secs(5), "what was cancelled to be gone", || alive("987604") == 0);

    place.start(&[(RUN, json!({"command": runaways("987605"), "timeout_s": 300}))]);
    wait(Duration::from_secs(20), "the command to start", started);
    place.deployment.one(&["halt", "--reason", "stop it", "--stop-runs"]);
    wait(Duration::from_secs(5), "what was halted to be gone", || alive("987605") == 0);
    place.deployment.one(&["halt", "lift"]);

    place.start(&[(RUN, json!({"command": runaways("987606"), "timeout_s": 300}))]);
    wait(Duration::from_secs(20), "the command to start", started);
    server.signal("KILL");
    wait(Duration::from_secs(5), "what we left behind to be gone", || alive("987606") == 0);
    place.deployment.verify();
}

#[test]
fn a_flood_is_cut_and_a_command_is_never_run_where_it_may_not_be() {
    let place = place();
    let server = place.serve(&OFFLINE);
    let flood = place.call(RUN, json!({"command": "head -c 300000000 /dev/zero | tr '\\0' x; echo; echo the end"}));
    let (out, told) = (flood["stdout"].as_str().unwrap(), flood["exit_code"].clone());
    assert!(out.len() < 100_000 && out.contains("bytes are left out here") && out.ends_with("the end\n"), "{told}");
    // G11: a rule sees the command as it is written, and what it cannot see is refused by the executor.
    let hidden = place.call(RUN, json!({"command": "{ cat /etc/shadow; }; cat $(echo /etc/sha)dow"}));
    assert_eq!(hidden["stdout"], "", "{hidden}");
    drop(server);

    let refused = |server: &[&str], grant: bool| {
        let server = place.serve(server);
        let verb = if grant { "grant" } else { "withdraw" };
        place.deployment.one(&["bot", verb, &place.bot, "computer_run_command:unattended"]);
        let run = place.start(&[(RUN, json!({"command": "touch must-not-be"}))]);
        let ended = place.ended(&run);
        drop(server);
        assert!(!place.file("must-not-be").exists());
        ended.to_string()
    };
    let off = refused(&[], true);
    assert!(off.contains("computer_run_command"), "{off}");
    let not_granted = refused(&["--commands", "network"], false);
    assert!(not_granted.contains("while nobody is watching"), "{not_granted}");
}

#[test]
fn a_supervisor_does_nothing_for_anybody_but_us() {
    let binary = env!("CARGO_BIN_EXE_midwatch");
    for arguments in [&["__child"][..], &["__child", "watch", "1", "0", "/bin/true"], &["__child", "other"]] {
        let output = Command::new(binary).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
    }
}
