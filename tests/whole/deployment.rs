//! A deployment of its own for each test: a database, a state directory, and processes of the real binary.

use std::{
    env,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::http::{self, Answer};

/// Where everything of one deployment is.
pub(crate) struct Deployment {
    directory: TempDir,
    pub(crate) url: String,
    database: Option<String>,
    variables: Vec<(&'static str, &'static str)>,
}

/// A running `midwatch serve`; it is killed with the test.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: String,
}

impl Deployment {
    pub(crate) fn sqlite() -> Self {
        let directory = TempDir::new().unwrap();
        let url = format!("sqlite://{}", directory.path().join("midwatch.db").display());
        Self { directory, url, database: None, variables: Vec::new() }
    }

    /// A database on the server that the tests were given; a missing one is a failure, not a skip.
    pub(crate) fn postgres(name: &str) -> Self {
        let server = env::var("MIDWATCH_TEST_POSTGRES")
            .unwrap_or_else(|_| panic!("MIDWATCH_TEST_POSTGRES must name the test server; `make test` starts one"));
        let database = format!("whole_{name}_{}", std::process::id());
        psql(&server, &format!("CREATE DATABASE {database}"));
        let url = format!("{}/{database}", server.rsplit_once('/').unwrap().0);
        Self { directory: TempDir::new().unwrap(), url, database: Some(database), variables: Vec::new() }
    }

    /// Every process gets this variable.
    pub(crate) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_midwatch"));
        command
            .env("XDG_STATE_HOME", self.directory.path().join("state"))
            .env("MIDWATCH_DB", &self.url)
            .env_remove("MIDWATCH_KEY")
            .env_remove("MIDWATCH_DEPLOYMENT")
            .envs(self.variables.iter().copied())
            .current_dir(self.directory.path());
        command
    }

    /// Runs a verb with `--json` and gives its lines; it must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.command().arg("--json").args(arguments).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        // A list is one array, possibly over many lines; `audit` answers one row a line.
        match serde_json::from_str(&out) {
            Ok(Value::Array(rows)) => rows,
            Ok(one) => vec![one],
            Err(_) => out.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        }
    }

    /// Runs a verb with `--json` that may fail: its exit code, and its answer or its error.
    pub(crate) fn tried(&self, arguments: &[&str]) -> (i32, Value) {
        let output = self.command().args(arguments).arg("--json").output().unwrap();
        let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
        let text = String::from_utf8(said).unwrap();
        (output.status.code().unwrap(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) fn one(&self, arguments: &[&str]) -> Value {
        let mut answers = self.run(arguments);
        assert_eq!(answers.len(), 1, "{arguments:?}: {answers:?}");
        answers.remove(0)
    }

    /// A process that is there already.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    pub(crate) fn serve_with(&self, more: &[&str]) -> Server {
        let server = self.start_with(more);
        wait(Duration::from_secs(30), "the server to be there", || server.is_there());
        server
    }

    /// A process that is being started.
    pub(crate) fn start(&self) -> Server {
        self.start_with(&[])
    }

    fn start_with(&self, more: &[&str]) -> Server {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path("serve.log")).unwrap();
        let process = self
            .command()
            .args(["serve", "--listen", &address])
            .args(more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Server { process, address }
    }

    /// An API token that may do everything.
    pub(crate) fn token(&self) -> String {
        let token = self.one(&["token", "add", "--name", "test", "--role", "admin"]);
        token["secret"].as_str().or(token["token"].as_str()).unwrap().to_owned()
    }

    /// Transactions that PostgreSQL has counted in this database. Its counters follow a second later.
    pub(crate) fn transactions(&self) -> u64 {
        let server = env::var("MIDWATCH_TEST_POSTGRES").unwrap();
        let database = self.database.as_ref().unwrap();
        let sql = format!("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{database}'");
        psql(&server, &sql).trim().parse().unwrap()
    }

    pub(crate) fn verify(&self) -> u64 {
        let verified = self.one(&["verify"]);
        assert_eq!(verified["ok"], true, "{verified}");
        verified["events"].as_u64().unwrap()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if let (Some(database), Ok(server)) = (&self.database, env::var("MIDWATCH_TEST_POSTGRES")) {
            psql(&server, &format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)"));
        }
        if thread::panicking() {
            let log = std::fs::read_to_string(self.path("serve.log")).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(40).collect();
            eprintln!("the end of the servers' log, newest first:\n{}", lines.join("\n"));
        }
    }
}

impl Server {
    /// SIGKILL: nothing is said, nothing is tidied up.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Whether it answers.
    pub(crate) fn is_there(&self) -> bool {
        http::send(&self.address, "GET", "/health", &[], b"").is_ok_and(|answer| answer.status == 200)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Sends it a signal, by its name; after `KILL` it is gone.
    pub(crate) fn signal(&mut self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
        if name == "KILL" {
            self.process.wait().unwrap();
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<Answer> {
        http::send(&self.address, "POST", path, headers, body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killed already, or killed now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn psql(server: &str, sql: &str) -> String {
    let output = Command::new("psql").args([server, "-qAtc", sql]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until something is so, and fails when it takes longer.
#[expect(clippy::disallowed_methods, reason = "a test waits in real time for real processes")]
pub(crate) fn wait(most: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < most, "waited {most:?} for {what}");
        thread::sleep(Duration::from_millis(100));
    }
}
