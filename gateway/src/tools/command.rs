//! The command tool: a shell command in the Bot's workspace, under a supervisor that leaves nothing of it behind.
//!
//! Off unless the deployment turns it on, and in unattended runs only for a Bot that is granted that by itself.

use std::{collections::VecDeque, io, pin::pin, process::ExitStatus, time::Duration};

use futures_util::future::maybe_done;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};

use super::{Intent, Target, ToolDefinition, ToolResult, files::Workspace};
use crate::child::{Network, Program, Supervisor};

/// Runs a shell command.
pub const RUN_COMMAND: &str = "computer_run_command";
/// The grant to run commands where nobody is watching.
pub const RUN_COMMAND_UNATTENDED: &str = "computer_run_command:unattended";

/// How long a command may take, in seconds, unless the call says.
pub const TIME_S: u32 = 60;
/// How long it may take at most, in seconds.
pub const TIME_S_MAX: u32 = 600;
/// The longest command, in bytes.
pub const COMMAND_BYTES_MAX: usize = 8 * 1024;
/// Of each of its two outputs so many bytes are kept from the start, and as many from the end.
pub const OUTPUT_BYTES_KEPT: usize = 16 * 1024;
/// How long may pass between the end of a command and the end of its supervisor.
const END_MAX: Duration = Duration::from_secs(10);

/// How commands are run in this deployment.
#[derive(Clone, Debug)]
pub struct Commands {
    /// What starts them.
    pub supervisor: Supervisor,
    /// What they may touch; none leaves them all that our account may.
    pub confined: Option<Network>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    #[serde(default = "usual_time")]
    timeout_s: u32,
}

const fn usual_time() -> u32 {
    TIME_S
}

fn parse(arguments: &Value) -> Result<Arguments, String> {
    let parsed = Arguments::deserialize(arguments)
        .map_err(|error| format!("The arguments of {RUN_COMMAND} are not right: {error}."))?;
    let bytes = parsed.command.len();
    if parsed.command.trim().is_empty() || parsed.command.contains('\0') || bytes > COMMAND_BYTES_MAX {
        return Err(format!("The command must be text of 1 to {COMMAND_BYTES_MAX} bytes without NUL."));
    }
    if !(1..=TIME_S_MAX).contains(&parsed.timeout_s) {
        return Err(format!("timeout_s is from 1 to {TIME_S_MAX}."));
    }
    Ok(parsed)
}

/// What a call is about: the command as it is written.
///
/// # Errors
/// The sentence says which argument is wrong, is missing or is not known.
pub fn target(arguments: &Value) -> Result<Target, String> {
    parse(arguments).map(|parsed| Target::Command(parsed.command))
}

/// How long a call may take: what it says, and the time to end it.
#[must_use]
pub fn time_max(arguments: &Value) -> Duration {
    let seconds = parse(arguments).map_or(TIME_S, |parsed| parsed.timeout_s);
    Duration::from_secs(u64::from(seconds)) + END_MAX * 2
}

/// The command tool.
#[must_use]
pub fn definition() -> ToolDefinition {
    ToolDefinition {
        name: RUN_COMMAND.to_owned(),
        description: "Runs a shell command (sh -c) in your workspace and answers with its exit code and what it \
                      printed. It and everything it started is ended when it returns or when its time is up: nothing \
                      goes on in the background."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "description": "What sh is given." },
                "timeout_s": { "type": "integer", "minimum": 1, "maximum": TIME_S_MAX, "default": TIME_S },
            },
            "required": ["command"],
            "additionalProperties": false,
        }),
        intent: Intent::RunCommand,
    }
}

impl Commands {
    /// Runs a command. Whatever goes wrong is in the answer, for the Bot. Dropped, it ends the command.
    pub async fn call(&self, workspace: &Workspace, arguments: &Value) -> ToolResult {
        let arguments = match parse(arguments) {
            Ok(arguments) => arguments,
            Err(sentence) => return ToolResult::failed(sentence),
        };
        match self.run(workspace, &arguments).await {
            Ok(ran) => ran.result(),
            Err(error) => ToolResult::failed(format!("The command could not be run: {error}.")),
        }
    }

    async fn run(&self, workspace: &Workspace, arguments: &Arguments) -> io::Result<Ran> {
        let time = Duration::from_secs(u64::from(arguments.timeout_s));
        let program = Program {
            command: ["/bin/sh", "-c", &arguments.command].map(Into::into).to_vec(),
            directory: workspace.handle(),
            environment: Vec::new(),
            confined: self.confined,
            time: time + END_MAX,
        };
        let mut running = self.supervisor.start(&program)?;
        drop(running.stdin());
        let (out, err) = (running.stdout(), running.stderr());
        let mut reading = pin!(maybe_done(async { tokio::join!(Kept::read(out), Kept::read(err)) }));
        let ended = timeout(time, async {
            reading.as_mut().await;
            running.ended().await
        });
        let (in_time, status) = match ended.await {
            Ok(status) => (true, status?),
            Err(_) => {
                running.end();
                let rest = async {
                    // What it had printed until then.
                    reading.as_mut().await;
                    running.ended().await
                };
                let late = |_| io::Error::other("its supervisor does not end");
                (false, timeout(END_MAX, rest).await.map_err(late)??)
            }
        };
        let output = reading.as_mut().take_output().unwrap_or_default();
        Ok(Ran { status, in_time, time, output })
    }
}

struct Ran {
    status: ExitStatus,
    in_time: bool,
    time: Duration,
    output: (Kept, Kept),
}

impl Ran {
    fn result(self) -> ToolResult {
        let code = self.status.code();
        let members = json!({
            "exit_code": if self.in_time { code } else { None },
            "stdout": self.output.0.text(),
            "stderr": self.output.1.text(),
        });
        if !self.in_time {
            let sentence = format!("The command was ended after {} s, as its time was up.", self.time.as_secs());
            return ToolResult::failed_with(sentence, members);
        }
        match code {
            Some(0) => ToolResult::done(members),
            Some(code) => ToolResult::failed_with(format!("The command ended with exit code {code}."), members),
            None => ToolResult::failed("The command's supervisor was killed."),
        }
    }
}

/// The start and the end of an output; what lies between is counted.
#[derive(Default)]
struct Kept {
    start: Vec<u8>,
    end: VecDeque<u8>,
    dropped: u64,
}

impl Kept {
    /// Reads to the end, so that whoever prints never waits for us.
    async fn read(from: Option<impl AsyncRead + Unpin>) -> Self {
        let mut kept = Self::default();
        let Some(mut from) = from else { return kept };
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read) = from.read(&mut buffer).await
            && read > 0
        {
            kept.take(&buffer[..read]);
        }
        kept
    }

    fn take(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(OUTPUT_BYTES_KEPT - self.start.len()));
        self.start.extend_from_slice(first);
        self.end.extend(rest);
        let over = self.end.len().saturating_sub(OUTPUT_BYTES_KEPT);
        self.end.drain(..over);
        self.dropped += over as u64;
    }

    fn text(self) -> String {
        let end: Vec<u8> = self.end.into();
        if self.dropped == 0 {
            return String::from_utf8_lossy(&[self.start, end].concat()).into_owned();
        }
        let (start, end) = (String::from_utf8_lossy(&self.start), String::from_utf8_lossy(&end));
        format!("{start}\n[{} bytes are left out here]\n{end}", self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_kept_from_both_ends() {
        let mut kept = Kept::default();
        kept.take(b"short");
        assert_eq!(kept.text(), "short");
        let mut kept = Kept::default();
        kept.take(&vec![b'a'; OUTPUT_BYTES_KEPT - 1]);
        kept.take(b"bc");
        kept.take(&vec![b'd'; OUTPUT_BYTES_KEPT + 9]);
        let text = kept.text();
        assert!(text.contains("aab\n[10 bytes are left out here]\nddd"), "{}", &text[OUTPUT_BYTES_KEPT - 9..]);
        assert!(text.ends_with("ddd"));
    }

    #[test]
    fn what_cannot_be_run_is_said() {
        for bad in [
            json!({}),
            json!({"command": " "}),
            json!({"command": "a\0b"}),
            json!({"command": "x", "timeout_s": 0}),
            json!({"command": "x", "timeout_s": 601}),
            json!({"command": "x", "user": "root"}),
            json!({"command": "x".repeat(COMMAND_BYTES_MAX + 1)}),
        ] {
            assert!(target(&bad).is_err(), "{bad}");
        }
        assert_eq!(target(&json!({"command": "ls"})), Ok(Target::Command("ls".to_owned())));
    }
}
