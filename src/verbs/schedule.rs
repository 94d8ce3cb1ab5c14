//! `midwatch schedule`: when a schedule would be due. Needs no ledger.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use midwatch_commands::calendar;
use midwatch_engine::world::World;
use midwatch_projections::projection::rfc3339;
use serde_json::{Value, json};

use crate::{cli::Globals, failure::Failure, table::Table, typed::text_or_file};

#[derive(Debug, Subcommand)]
pub(crate) enum Schedule {
    /// The next windows, and how many runs a week that is
    Preview(Preview),
}

#[derive(Args, Debug)]
pub(crate) struct Preview {
    /// When, as JSON
    #[arg(long, value_name = "JSON|@FILE")]
    schedule: String,
    /// Windows strictly after this instant [default: now]
    #[arg(long, value_name = "INSTANT")]
    from: Option<String>,
    /// How many windows
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// The work is a recording: no agent runs
    #[arg(long)]
    recording: bool,
}

impl Schedule {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let Self::Preview(preview) = self;
        preview.run(globals)
    }
}

impl Preview {
    fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let text = text_or_file(&self.schedule)?;
        let schedule = calendar::Schedule::parse(&text);
        let schedule = schedule.map_err(|error| Failure::bad_request(error.code(), error.to_string()))?;
        let from = match &self.from {
            None => World::system().clock.now(),
            Some(text) => rfc3339::parse(text).ok_or_else(|| {
                let sentence = format!("`{text}` is no instant; write one such as 2026-12-01T08:00:00+01:00");
                Failure::bad_request("from", sentence)
            })?,
        };
        let windows = schedule.preview(from, None, self.count as usize);
        let runs = schedule.runs_per_week(from, None);
        let agent_runs = if self.recording { 0.0 } else { runs };
        let shown = windows
            .iter()
            .map(|window| json!({ "utc": window.at.to_string(), "local": window.local, "dst": window.dst.as_str() }));
        let answer = json!({
            "windows": shown.collect::<Vec<Value>>(),
            "runs_per_week": runs,
            "agent_runs_per_week": agent_runs,
        });
        globals.output().answer(&answer, || {
            let mut table = Table::new(&["LOCAL", "UTC", "DAYLIGHT SAVING"]);
            for window in &windows {
                let dst = match window.dst {
                    calendar::Dst::None => "-",
                    calendar::Dst::Moved => "moved: this time does not exist that day",
                    calendar::Dst::FirstOfTwo => "the first of two",
                };
                table.row(vec![window.local.clone(), window.at.to_string(), dst.to_owned()]);
            }
            let mut text = format!("{}\n\n{}", schedule.in_words(), table.or("It has no window after this instant."));
            text.push_str(&format!("\n{runs} runs a week, {agent_runs} of them by an agent\n"));
            for note in schedule.notes() {
                text.push_str(&format!("Note: {note}\n"));
            }
            text
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
