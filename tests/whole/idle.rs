//! A process that has nothing to do costs next to nothing.

use std::{fs, thread, time::Duration};

use crate::deployment::Deployment;

/// Resident memory of an idle server, at the most.
const RESIDENT_KIB_MAX: u64 = 80 << 10;

#[test]
fn an_idle_server_on_sqlite_is_small_and_still() {
    let deployment = Deployment::sqlite();
    let server = deployment.serve();
    thread::sleep(Duration::from_secs(3));
    let before = ticks(server.pid());
    thread::sleep(Duration::from_secs(10));
    // A tick is 10 ms: ten of them in ten seconds are 1 % of a core, built without optimisation.
    let spent = ticks(server.pid()) - before;
    assert!(spent <= 20, "{spent} ticks of 10 ms in 10 s");
    let resident = resident_kib(server.pid());
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB");
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// User and system time spent, in ticks (proc_pid_stat(5), fields 14 and 15).
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
