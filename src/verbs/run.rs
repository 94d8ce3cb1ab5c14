//! `midwatch run`: starting, listing and calling off.

use std::process::ExitCode;

use clap::Subcommand;
use midwatch_commands::Refusal;
use midwatch_engine::{processes, projector};
use midwatch_events::id::{CallId, RoutineId, RunId};
use midwatch_log::views::Order;
use midwatch_projections::runs::{RunRow, Runs};
use serde_json::{Value, json};

use super::{all, equal};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, hint, pairs, word},
    typed::id,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Run {
    /// Run a routine now; a process with the runner role executes it
    Now {
        #[arg(value_parser = id::<midwatch_events::id::Routine>)]
        routine: RoutineId,
    },
    /// Runs, newest first
    List {
        /// Only this routine's
        #[arg(long, value_name = "ID", value_parser = id::<midwatch_events::id::Routine>)]
        routine: Option<RoutineId>,
        /// Only those in this state
        #[arg(long, value_parser = ["waiting", "running", "ended"])]
        state: Option<String>,
        /// Not more than this many
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// One run; `midwatch replay run` shows what it did
    Show {
        #[arg(value_parser = id::<midwatch_events::id::Run>)]
        run: RunId,
    },
    /// Call a run off
    Cancel {
        #[arg(value_parser = id::<midwatch_events::id::Run>)]
        run: RunId,
    },
}

impl Run {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Now { routine } => now(globals, routine).await,
            Self::List { routine, state, limit } => list(globals, routine, state.as_deref(), limit).await,
            Self::Show { run } => show(globals, run).await,
            Self::Cancel { run } => cancel(globals, run).await,
        }
    }
}

async fn now(globals: &Globals, routine: RoutineId) -> Result<ExitCode, Failure> {
    let claimed = joining::write(globals, async |engine, origin| {
        let done = engine.run_now(routine, origin, None).await?;
        // Whether somebody is there is a hint; the run is claimed, whatever comes of asking.
        let there = processes::runner_there(engine).await.unwrap_or(true);
        Ok((done, there))
    });
    let (done, there) = claimed.await?;
    let (run, position) = (done.value, done.position);
    globals.output().answer(&json!({ "run": run, "position": position }), || {
        format!("Run {run} was claimed, at position {position}")
    })?;
    if !there {
        hint("no process that executes runs seems to be there: the run waits for one (`midwatch serve`), 15 minutes");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(
    globals: &Globals,
    routine: Option<RoutineId>,
    state: Option<&str>,
    limit: Option<usize>,
) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        let routine = routine.map(|routine| equal("routine", routine));
        let filters = routine.into_iter().chain(state.map(|state| equal("state", state))).collect();
        all::<Runs>(engine, filters, Order { column: "opened_at", descending: true }, limit).await
    });
    let rows = rows.await?;
    let json: Vec<Value> = rows.iter().map(listed).collect();
    globals.output().answer(&json, || {
        let mut table = Table::new(&["ID", "OPENED", "STATE", "OUTCOME", "CAUSE", "ROUTINE", "BOT", "HEADLINE"]);
        for row in &rows {
            table.row(vec![
                row.id.to_string(),
                row.opened_at.to_string(),
                word(row.state),
                outcome(row),
                word(row.cause),
                dash(row.routine),
                row.bot.to_string(),
                dash(row.headline.as_deref()),
            ]);
        }
        table.or("There are no runs.")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The members scripts may rely on.
fn listed(row: &RunRow) -> Value {
    json!({
        "id": row.id,
        "routine": row.routine,
        "bot": row.bot,
        "cause": row.cause,
        "window": row.window.map(|at| at.to_string()),
        "state": row.state,
        "outcome": row.outcome,
        "reason": row.reason,
        "opened_at": row.opened_at.to_string(),
        "ended_at": row.ended_at.map(|at| at.to_string()),
    })
}

fn outcome(row: &RunRow) -> String {
    match (row.outcome, row.reason) {
        (Some(outcome), Some(reason)) => format!("{} ({})", word(outcome), word(reason)),
        (Some(outcome), None) => word(outcome),
        (None, _) => "-".to_owned(),
    }
}

async fn show(globals: &Globals, run: RunId) -> Result<ExitCode, Failure> {
    let row = joining::read(globals, async |engine| Ok(projector::get::<Runs>(engine, &run.to_string()).await?));
    let row = row.await?.ok_or(Refusal::NotFound("run"))?;
    globals.output().answer(&row, || {
        let watched = if row.unattended { "nobody was watching" } else { "somebody was watching" };
        pairs(&[
            ("id", Some(row.id.to_string())),
            ("state", Some(word(row.state))),
            ("outcome", row.outcome.map(|_| outcome(&row))),
            ("headline", row.headline.clone()),
            ("cause", Some(word(row.cause))),
            ("window", row.window.map(|at| at.to_string())),
            ("attended", Some(watched.to_owned())),
            ("routine", row.routine.map(|id| id.to_string())),
            ("trigger", row.trigger.map(|id| id.to_string())),
            ("delivery", row.delivery.map(|id| id.to_string())),
            ("Bot", Some(row.bot.to_string())),
            ("opened", Some(row.opened_at.to_string())),
            ("taken", row.taken_at.map(|at| at.to_string())),
            ("deadline", row.deadline.map(|at| at.to_string())),
            ("ended", row.ended_at.map(|at| at.to_string())),
            ("turns", Some(row.turns.to_string())),
            ("tool calls", Some(format!("{}, of which {} were refused", row.tool_calls, row.refused_calls))),
        ])
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn cancel(globals: &Globals, run: RunId) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| Ok(engine.cancel_run(run, origin).await?));
    let done = done.await?;
    let (position, calls) = (done.position, done.value.calls);
    let answer = json!({ "run": run, "position": position, "calls": calls });
    globals.output().answer(&answer, || format!("Run {run} was called off, at position {position}{}", left(&calls)))?;
    Ok(ExitCode::SUCCESS)
}

/// Calls that had been decided when their run was called off.
pub(super) fn left(calls: &[CallId]) -> String {
    if calls.is_empty() {
        return String::new();
    }
    let list = calls.iter().map(|call| format!("\n  {call}")).collect::<String>();
    format!("\nThese calls had been decided; whether they acted is unknown:{list}")
}
