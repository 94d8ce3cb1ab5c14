//! The process between us and a program: `watch PARENT SECONDS PROGRAM ARGUMENTS…`.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs, io,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, pidfd_open,
        set_child_subreaper, wait,
    },
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    time::sleep,
};

use super::{NOT_STARTED, refused};

/// How long what was killed may take to be gone. More than that only a process takes that hangs in the kernel.
const GONE_MAX: u32 = 5_000;

pub(super) fn main(arguments: &[OsString]) -> ExitCode {
    let [parent, seconds, program, rest @ ..] = arguments else {
        return refused(NOT_STARTED, "a supervisor needs a parent, a time and a program");
    };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<u32>().ok());
    let parent = number(parent).and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let (Some(parent), Some(seconds)) = (parent, number(seconds)) else {
        return refused(NOT_STARTED, "a supervisor's parent and time are numbers");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime
        .and_then(|runtime| runtime.block_on(watch(parent, Duration::from_secs(u64::from(seconds)), program, rest)));
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => refused(NOT_STARTED, &format!("{} cannot be started: {error}", program.to_string_lossy())),
    }
}

async fn watch(parent: Pid, time: Duration, program: &OsString, arguments: &[OsString]) -> io::Result<u8> {
    let gone = || io::Error::other("who asked for it is gone");
    // Opened while it is our parent, and it still is: the number cannot be somebody else's.
    let watched = pidfd_open(parent, PidfdFlags::empty())?;
    if getppid() != Some(parent) {
        return Err(gone());
    }
    let (say, mut parent_gone) = oneshot::channel();
    thread::spawn(move || {
        // It can be read from when the process has ended, and never before.
        while poll(&mut [PollFd::new(&watched, PollFlags::IN)], None) == Err(Errno::INTR) {}
        let _ = say.send(());
    });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (mut hang_up, mut child) = (signal(SignalKind::hangup())?, signal(SignalKind::child())?);
    set_child_subreaper(Some(getpid()))?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    // Known only here: who started us may have named the directory by a handle of its own.
    let directory = env::current_dir()?;
    for name in ["HOME", "TMPDIR"].into_iter().filter(|name| env::var_os(name).is_none()) {
        command.env(name, &directory);
    }
    let started = command.spawn()?;
    let started = i32::try_from(started.id()).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    let mut code = None;
    while code.is_none() {
        tokio::select! {
            biased;
            _ = child.recv() => code = reaped(started)?,
            _ = &mut parent_gone => break,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hang_up.recv() => break,
            () = sleep(time), if !time.is_zero() => break,
        }
    }
    // In its own words, where it ended while the others were being looked for.
    let last = end_all(started)?;
    Ok(code.or(last).unwrap_or(128 + 9))
}

/// Takes note of everything below that has ended; how the program did, if it did.
fn reaped(program: Pid) -> io::Result<Option<u8>> {
    let mut code = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => code = Some(code_of(status)),
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(code),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills everything below, again and again, until nothing is left: what was being forked meanwhile is found by the next
/// look, and whoever loses its parent becomes our own child.
fn end_all(program: Pid) -> io::Result<Option<u8>> {
    let mut code = None;
    for _ in 0..GONE_MAX {
        for pid in below(getpid())? {
            // It may be gone, and nothing of ours can have got its number: we have not reaped it.
            let _ = kill_process(pid, Signal::KILL);
        }
        code = code.or(reaped(program)?);
        if matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(code)
}

fn code_of(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => i32::from(u8::MAX),
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Everything that descends from a process.
fn below(root: Pid) -> io::Result<Vec<Pid>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // One that is gone meanwhile has no parent any more.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut to_look = vec![root.as_raw_nonzero().get()];
    while let Some(parent) = to_look.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            to_look.push(child);
            found.extend(Pid::from_raw(child));
        }
    }
    Ok(found)
}

/// The parent in a line of `/proc/PID/stat`. The name before it can hold anything, parentheses and blanks too.
fn parent_of(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (a) S 1 (b) R 9 12 12 0"), Some(9));
        assert_eq!(parent_of("12"), None);
    }

    #[test]
    fn descendants_are_found() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(below(getpid()).unwrap().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
