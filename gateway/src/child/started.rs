//! Starting a program under a supervisor, from our side.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::VERB;

/// Where programs are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What a command may reach over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Nothing over TCP.
    None,
    /// Whatever the machine reaches.
    Any,
}

impl Network {
    /// Its word on a command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Any => "any",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::None, Self::Any].into_iter().find(|network| network.as_str() == text)
    }
}

/// What starts programs: our own binary, once more.
#[derive(Clone, Debug)]
pub struct Supervisor {
    binary: PathBuf,
}

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program, looked for in the usual places, and its arguments.
    pub command: Vec<OsString>,
    /// Its working directory, its `HOME` and its place for temporary files.
    pub directory: PathBuf,
    /// What stands in its environment beside the usual few; ours does not.
    pub environment: Vec<(String, String)>,
    /// Whether it may touch nothing but its directory and the system's programs, and what over the network.
    pub confined: Option<Network>,
    /// The supervisor ends it after this time, should we not; zero is never.
    pub time: Duration,
}

/// A program that runs. Dropped, it and all that it started are ended.
#[derive(Debug)]
pub struct Running {
    supervisor: Child,
}

impl Supervisor {
    /// Starts programs through `binary`, which calls [`super::main`] when its first argument is [`VERB`].
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into() }
    }

    /// This very binary.
    #[must_use]
    pub fn this_binary() -> Self {
        Self::new("/proc/self/exe")
    }

    /// Starts a program, with pipes to all three of its streams.
    ///
    /// # Errors
    /// No process could be made. (That the program is not there is said on its error output, with the code 127.)
    pub fn start(&self, program: &Program) -> io::Result<Running> {
        if !cfg!(target_os = "linux") {
            return Err(io::Error::other("programs are started on Linux only: elsewhere none can be ended for sure"));
        }
        let mut command = Command::new(&self.binary);
        command.arg(VERB).arg("watch").arg(std::process::id().to_string()).arg(program.time.as_secs().to_string());
        if let Some(network) = program.confined {
            command.arg(Path::new("/proc/self/exe")).arg(VERB).arg("confined").arg(network.as_str());
        }
        command
            .args(&program.command)
            .current_dir(&program.directory)
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(Running { supervisor: command.spawn()? })
    }
}

impl Running {
    /// Where it reads from.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.supervisor.stdin.take()
    }

    /// What it says.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.supervisor.stdout.take()
    }

    /// What it says about what went wrong.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.supervisor.stderr.take()
    }

    /// Comes back when it has ended, and nothing that it started is left.
    ///
    /// # Errors
    /// The system does not tell.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.supervisor.wait().await
    }

    /// Ends it and all that it started, without waiting for that.
    pub fn end(&self) {
        // It has a number as long as it was not waited for.
        let pid = self.supervisor.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
