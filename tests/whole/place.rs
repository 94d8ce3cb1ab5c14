//! A deployment with one Bot, and runs of recordings in it.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use crate::deployment::{Deployment, Server, wait};

pub(crate) struct Place {
    pub(crate) deployment: Deployment,
    pub(crate) bot: String,
}

impl Place {
    pub(crate) fn new(deployment: Deployment, grants: &[&str]) -> Self {
        let bot = deployment.one(&["bot", "add", "--name", "ops"])["id"].as_str().unwrap().to_owned();
        let place = Self { deployment, bot };
        if !grants.is_empty() {
            place.grant(grants);
        }
        place
    }

    pub(crate) fn grant(&self, tools: &[&str]) {
        self.deployment.one(&[&["bot", "grant", &self.bot], tools].concat());
    }

    pub(crate) fn serve(&self, more: &[&str]) -> Server {
        let workspaces = self.deployment.path("workspaces");
        self.deployment.serve_with(&[&["--workspace-dir", workspaces.to_str().unwrap()], more].concat())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.deployment.path("workspaces").join(&self.bot).join(name)
    }

    /// Lets calls run one after the other; the run's id.
    pub(crate) fn start(&self, calls: &[(&str, Value)]) -> String {
        let steps: Vec<_> =
            calls.iter().map(|(tool, arguments)| json!({"tool": tool, "arguments": arguments})).collect();
        let recording = json!({ "steps": steps }).to_string();
        let schedule = json!({"kind": "once", "at": "2400-01-01T00:00:00Z"}).to_string();
        let add = ["routine", "add", "--name", "c", "--bot", &self.bot, "--schedule", &schedule];
        let routine = self.deployment.one(&[&add[..], &["--recording", &recording]].concat());
        let run = self.deployment.one(&["run", "now", routine["id"].as_str().unwrap()]);
        run["run"].as_str().unwrap().to_owned()
    }

    /// The run once it has ended.
    pub(crate) fn ended(&self, run: &str) -> Value {
        let show = || self.deployment.one(&["run", "show", run]);
        wait(Duration::from_secs(60), "the run to end", || show()["state"] == "ended");
        show()
    }

    /// Lets calls run to their end, and gives what the Bot was told of each that came back.
    pub(crate) fn run(&self, calls: &[(&str, Value)]) -> Vec<Value> {
        let run = self.start(calls);
        self.ended(&run);
        let shown = Value::Array(self.deployment.run(&["replay", "run", &run]));
        let mut results = Vec::new();
        find(&shown, &mut results);
        assert!(!results.is_empty(), "no call came back: {shown:#}");
        results
    }

    /// The only call of a run.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        self.run(&[(tool, arguments)]).remove(0)
    }
}

/// Every result of a call in a timeline.
fn find(value: &Value, results: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| find(item, results)),
        Value::Object(members) if members.get("kind") == Some(&json!("call_ended")) => {
            let text = value["text"]["text"].as_str().unwrap();
            results.push(serde_json::from_str(text).unwrap());
        }
        Value::Object(members) => members.values().for_each(|member| find(member, results)),
        _ => {}
    }
}

/// How many processes have a word on their command line.
pub(crate) fn alive(word: &str) -> usize {
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}
