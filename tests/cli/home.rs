//! A place of its own for each test, and the binary run in it.

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const WEEKDAYS: &str =
    r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","tue","wed","thu","fri"],"times":["08:00"]}"#;
pub(crate) const LISTING: &str = r#"{"steps":[{"tool":"computer_list_files","arguments":{}}]}"#;

/// A directory with a ledger's place and a state directory; nothing of the machine's own is seen in it.
pub(crate) struct Home {
    directory: TempDir,
}

/// What came of running the binary.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    /// With a Bot and a routine that is due on weekdays; the ids of both.
    pub(crate) fn with_routine() -> (Self, String, String) {
        let home = Self::new();
        let bot = home.id(&["bot", "add", "--name", "ops"]);
        let routine = home.routine(&bot, "Morning", WEEKDAYS);
        (home, bot, routine)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    pub(crate) fn db(&self) -> String {
        format!("sqlite://{}", self.path("midwatch.db").display())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_midwatch"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MIDWATCH_")) {
            command.env_remove(name);
        }
        command
            .env("XDG_STATE_HOME", self.path("state"))
            .env("MIDWATCH_DB", self.db())
            // With it a panic would show a stack trace, which is what must not be seen.
            .env("RUST_BACKTRACE", "1")
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    pub(crate) fn run_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).envs(variables.iter().copied()).output().unwrap())
    }

    /// The answer of a verb that must succeed, as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", ran.out))
    }

    /// The same for `audit`: one row a line.
    pub(crate) fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn id(&self, arguments: &[&str]) -> String {
        let answer = self.json(arguments);
        answer["id"].as_str().unwrap_or_else(|| panic!("{arguments:?}: {answer}")).to_owned()
    }

    pub(crate) fn routine(&self, bot: &str, name: &str, schedule: &str) -> String {
        self.id(&["routine", "add", "--name", name, "--bot", bot, "--schedule", schedule, "--recording", LISTING])
    }

    /// A verb that must fail: with this exit code, in one sentence that holds `part`, and as `{kind, code, message}`.
    pub(crate) fn fails(&self, arguments: &[&str], exit: i32, part: &str) -> Value {
        self.fails_with(&[], arguments, exit, part)
    }

    pub(crate) fn fails_with(&self, variables: &[(&str, &str)], arguments: &[&str], exit: i32, part: &str) -> Value {
        let said = self.run_with(variables, arguments);
        let seen = format!("{arguments:?}: exit {}\n{}{}", said.code, said.out, said.err);
        assert_eq!(said.code, exit, "{seen}");
        assert_eq!(said.err.lines().count(), 1, "one sentence: {seen}");
        assert!(said.err.starts_with("midwatch: ") && said.err.contains(part), "{part}: {seen}");
        for never in ["panicked", "backtrace", "error: ", "Error("] {
            assert!(!said.err.contains(never), "{seen}");
        }
        let told = self.run_with(variables, &[arguments, &["--json"]].concat());
        assert_eq!(told.code, exit, "{seen}");
        let error: Value = serde_json::from_str(&told.err).unwrap_or_else(|error| panic!("{error}: {}", told.err));
        assert_eq!(keys(&error), ["code", "kind", "message"], "{error}");
        let kind = ["refusal", "bad_request", "fault", "corruption"][usize::try_from(exit).unwrap() - 1];
        assert_eq!(error["kind"], kind, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        error
    }
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The members of an object, sorted.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
