//! Two processes on one database, at once.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
};

use crate::Outcome;

/// Half of the callers each. Gives their two lines as one array.
pub(crate) fn two_processes(url: &str, callers: usize, seconds: &str) -> Outcome<String> {
    let mut both = [start(url, callers / 2, seconds)?, start(url, callers - callers / 2, seconds)?];
    let mut outputs = Vec::new();
    for child in &mut both {
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut said = String::new();
        output.read_line(&mut said)?;
        if said.trim() != "ready" {
            return Err(said.into());
        }
        outputs.push(output);
    }
    for child in &mut both {
        child.stdin.take().ok_or("no input")?.write_all(b"go\n")?;
    }
    let mut lines = Vec::new();
    for (child, output) in both.iter_mut().zip(&mut outputs) {
        let mut said = String::new();
        output.read_line(&mut said)?;
        if !child.wait()?.success() {
            return Err(said.into());
        }
        lines.push(said.trim().to_owned());
    }
    Ok(format!("[{}]", lines.join(",")))
}

fn start(url: &str, callers: usize, seconds: &str) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["append", url, &callers.to_string(), seconds, "distinct", "on-go"]);
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}
