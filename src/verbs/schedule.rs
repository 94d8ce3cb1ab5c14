//! `midwatch schedule`: when a schedule would be due. Needs no ledger.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use midwatch_commands::calendar;
use midwatch_engine::world::World;
use midwatch_events::Micros;
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
    /// A zone in which the windows are shown as well, such as America/New_York
    #[arg(long, value_name = "ZONE")]
    reader_zone: Option<String>,
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
        let reader = self.reader_zone.as_deref().map(calendar::Zone::named).transpose();
        let reader = reader.map_err(|error| Failure::bad_request(error.code(), error.to_string()))?;
        let windows = schedule.preview(from, None, self.count as usize);
        let runs = schedule.runs_per_week(from, None);
        let agent_runs = if self.recording { 0.0 } else { runs };
        let zone_data = zone_data(&schedule, from);
        let shown = windows.iter().map(|window| {
            let mut shown = json!({ "utc": window.at.to_string(), "local": window.local, "dst": window.dst.as_str() });
            if let (Some(zone), Some(members)) = (&reader, shown.as_object_mut()) {
                members.insert("reader".to_owned(), zone.local(window.at).into());
            }
            shown
        });
        let answer = json!({
            "in_words": schedule.in_words(),
            "windows": shown.collect::<Vec<Value>>(),
            "notes": schedule.notes(),
            "zone_data": zone_data,
            "tzdb": calendar::tzdb_version(),
            "runs_per_week": runs,
            "agent_runs_per_week": agent_runs,
        });
        globals.output().answer(&answer, || {
            let mut text = format!("{}\n\n{}", schedule.in_words(), table(&windows, reader.as_ref()));
            text.push_str(&format!("\nThis runs about {runs} times a week: {agent_runs} agent runs\n"));
            for note in schedule.notes().into_iter().chain(zone_data) {
                text.push_str(&format!("Note: {note}\n"));
            }
            text
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Windows as a table: in the schedule's zone, in UTC, and in the reader's zone where one was named.
pub(crate) fn table(windows: &[calendar::Window], reader: Option<&calendar::Zone>) -> String {
    let mut heads = vec!["LOCAL", "UTC"];
    heads.extend(reader.map(|zone| zone.name()));
    heads.push("DAYLIGHT SAVING");
    let mut table = Table::new(&heads);
    for window in windows {
        let dst = match window.dst {
            calendar::Dst::None => "-",
            calendar::Dst::Moved => "moved: this time does not exist that day",
            calendar::Dst::FirstOfTwo => "the first of two",
        };
        let mut row = vec![window.local.clone(), window.at.to_string()];
        row.extend(reader.map(|zone| zone.local(window.at)));
        row.push(dst.to_owned());
        table.row(row);
    }
    table.or("It has no window after this instant.")
}

/// Where an older copy of the time-zone data says something else within a year; a one-off has its offset.
pub(crate) fn zone_data(schedule: &calendar::Schedule, from: Micros) -> Option<String> {
    if schedule.once_at().is_some() {
        return None;
    }
    let zone = schedule.zone().name();
    let spans = calendar::disagreements(zone, from, from.plus_s(365 * 86_400)).unwrap_or_default();
    spans.first().map(|first| first.in_words(zone))
}
