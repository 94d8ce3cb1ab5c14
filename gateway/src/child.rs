//! Programs that are started here, each under a supervisor that leaves nothing of it behind.
//!
//! A program may start others, which may leave its process group and its session. A process of ours between the two
//! (`midwatch __child`) is the subreaper of all of them, so that none can get away from it; it ends them when the
//! program ends, when its time is up, when it is asked to, and when we are gone, however that came: it holds a
//! descriptor of our process, which says so at once. Holds promise 5.

#[cfg(target_os = "linux")]
mod confine;
mod started;
#[cfg(target_os = "linux")]
mod supervisor;

use std::{ffi::OsString, process::ExitCode};

pub use started::{Network, Program, Running, Supervisor};

/// The first argument of the binary that makes it a supervisor.
pub const VERB: &str = "__child";

/// How it ends when it could not even start the program: what a shell says of a command that is not there.
const NOT_STARTED: u8 = 127;
/// How it ends when the program may not be started: what a shell says of a command that cannot be executed.
const NOT_ALLOWED: u8 = 126;

/// What the binary does when its first argument is [`VERB`], with the arguments after it.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    match arguments.split_first() {
        #[cfg(target_os = "linux")]
        Some((first, rest)) if first == "watch" => supervisor::main(rest),
        #[cfg(target_os = "linux")]
        Some((first, rest)) if first == "confined" => confine::main(rest),
        _ => refused(NOT_ALLOWED, "this is for Midwatch itself"),
    }
}

/// Lets no process of the same account read our environment and memory; root's can all the same.
///
/// # Errors
/// The system does not know how.
pub(crate) fn hide() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// What goes wrong here is said where the program would have spoken: nobody else listens.
#[expect(clippy::print_stderr, reason = "the program's error output is read by who started it")]
fn refused(code: u8, sentence: &str) -> ExitCode {
    eprintln!("midwatch: {sentence}");
    ExitCode::from(code)
}
