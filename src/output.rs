//! What is printed: JSON for programs, aligned text for people; never a character that moves somebody's terminal.

use std::io::{self, ErrorKind, Write as _};

use midwatch_replay::terminal::{clean, clean_json};
use serde::Serialize;

use crate::failure::Failure;

/// Where answers go, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// For programs.
    pub(crate) json: bool,
}

impl Output {
    /// One answer: the JSON document, or the text.
    pub(crate) fn answer(self, json: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json {
            return self.json_line(json);
        }
        let text = text();
        let lines: Vec<String> = text.lines().map(clean).collect();
        print(&lines.join("\n"))
    }

    /// One document on a line of its own.
    pub(crate) fn json_line(self, json: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(json).map_err(|error| Failure::fault("json", error.to_string()))?;
        print(&clean_json(&text))
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // Whoever read it has seen enough (`| head`), and there is nothing left to do here: writes come before answers.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::fault("output", format!("standard output cannot be written: {error}"))),
    }
}
