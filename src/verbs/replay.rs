//! `midwatch replay`: what a Bot did, how things stood, what led to what. Reads only, and needs no key.

use std::{
    io::{self, ErrorKind, Write as _},
    process::ExitCode,
};

use clap::Subcommand;
use midwatch_events::{StreamName, id::RunId};
use midwatch_log::{Log, Open};
use midwatch_replay::{
    Moment, ReplayError, cause, run,
    run::{Entry, State, Timeline},
    state, what_if,
};

use crate::{cli::Globals, failure::Failure, typed::read_file};

#[derive(Debug, Subcommand)]
pub(crate) enum Replay {
    /// One run as a timeline: what it was told, each call, the rule that let it through or stopped it, how it ended
    Run {
        #[arg(value_name = "ID", value_parser = run_id)]
        run: RunId,
        /// Stop at a position such as 1234, or a time such as 2026-12-01T03:00:00+01:00
        #[arg(long, value_name = "POSITION|TIME")]
        at: Option<Moment>,
        /// Go on until the run has ended
        #[arg(long, conflicts_with = "at")]
        follow: bool,
    },
    /// The state of a stream, such as routine-ID, at any moment
    State {
        /// Its name: boundary, engine, halt, bot-ID, delivery-ID, process-ID, routine-ID, run-ID, trigger-ID, user-ID …
        stream: String,
        /// At a position or a time; now, if nothing is said
        #[arg(long, value_name = "POSITION|TIME")]
        at: Option<Moment>,
        /// What changed from one moment to another
        #[arg(long, num_args = 2, value_names = ["FROM", "TO"], conflicts_with = "at")]
        diff: Option<Vec<Moment>>,
    },
    /// What led to the event at a position, and all that followed from it
    Cause { position: u64 },
    /// What a boundary would have said to the calls that were decided. Exits with 1 where anything would change
    WhatIf {
        /// The boundary to try
        #[arg(long, value_name = "FILE")]
        boundary: String,
        /// Only decisions from this position or time on
        #[arg(long, value_name = "POSITION|TIME")]
        since: Option<Moment>,
        /// At most this many, the last ones
        #[arg(long, value_name = "N", default_value_t = what_if::LAST)]
        last: u32,
    },
}

impl Replay {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let log = Log::open(&globals.db, Open::ReadOnly).await?;
        let done = |()| ExitCode::SUCCESS;
        let shown = match self {
            Self::Run { run, at, follow } => timeline(globals, &log, run, at, follow).await.map(done),
            Self::State { stream, at, diff } => state(globals, &log, stream, at, diff).await.map(done),
            Self::Cause { position } => cause(globals, &log, position).await.map(done),
            Self::WhatIf { boundary, since, last } => tried(globals, &log, &boundary, since, last).await,
        };
        log.close().await;
        shown
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Log(error) => error.into(),
            ReplayError::NotThere(sentence) => Self::bad_request("not_found", sentence),
            ReplayError::BadRequest(sentence) => Self::bad_request("invalid", sentence),
            ReplayError::Newer { .. } => Self::fault("newer", error.to_string()),
        }
    }
}

/// A run's id, bare or as its stream is named.
fn run_id(text: &str) -> Result<RunId, String> {
    let id = text.strip_prefix("run-").unwrap_or(text);
    id.parse().map_err(|_| "it is no id; an id is a UUID, as `midwatch run list` shows it".to_owned())
}

/// A page in memory at a time, however long the run is.
async fn timeline(globals: &Globals, log: &Log, run: RunId, at: Option<Moment>, follow: bool) -> Result<(), Failure> {
    let mut timeline = Timeline::open(log, run, at).await?;
    let document = globals.json && !follow;
    if document {
        print(&run::json_head(&timeline))?;
    }
    let mut first = true;
    loop {
        let page = timeline.page().await?;
        if !page.is_empty() {
            print(&shown(globals.json, follow, &page, first))?;
            first = false;
        } else if follow && !timeline.over() {
            timeline.wait().await?;
        } else {
            break;
        }
    }
    if document {
        print(&run::json_tail(&timeline))?;
        return print("\n");
    }
    match (globals.json, timeline.state()) {
        (true, _) | (_, State::Ended) => Ok(()),
        (false, State::Waiting) => print(&format!("It waited for a runner, up to position {}\n", timeline.until())),
        (false, State::Running) => print(&format!("It had not ended, up to position {}\n", timeline.until())),
    }
}

fn shown(json: bool, follow: bool, page: &[Entry], first: bool) -> String {
    match (json, follow) {
        (false, _) => run::text(page),
        (true, false) => run::json_entries(page, first),
        (true, true) => page.iter().map(|entry| run::json_entry(entry) + "\n").collect(),
    }
}

async fn state(
    globals: &Globals,
    log: &Log,
    stream: String,
    at: Option<Moment>,
    diff: Option<Vec<Moment>>,
) -> Result<(), Failure> {
    let stream = StreamName::stored(stream);
    if let Some(&[from, to]) = diff.as_deref() {
        let difference = state::difference(log, &stream, from, to).await?;
        return globals.output().answer(&difference, || state::difference_text(&difference));
    }
    let state = state::state(log, &stream, at).await?;
    globals.output().answer(&state, || state::state_text(&state))
}

async fn cause(globals: &Globals, log: &Log, position: u64) -> Result<(), Failure> {
    let cause = cause::cause(log, position).await?;
    globals.output().answer(&cause, || cause::text(&cause))
}

async fn tried(
    globals: &Globals,
    log: &Log,
    boundary: &str,
    since: Option<Moment>,
    last: u32,
) -> Result<ExitCode, Failure> {
    let found = what_if::what_if(log, &read_file(boundary)?, since, last).await?;
    globals.output().answer(&found, || what_if::text(&found))?;
    Ok(if found.changed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A piece of an answer, harmless already and with its own line feeds.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // Whoever read it has seen enough (`| head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::fault("output", format!("standard output cannot be written: {error}"))),
    }
}
