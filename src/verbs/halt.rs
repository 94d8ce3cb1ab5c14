//! `midwatch halt`: nothing starts until it is lifted.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use midwatch_engine::{Engine, deployment, projector, world::World};
use midwatch_log::{Log, Open};
use midwatch_projections::engine_deployment::{Deployment, DeploymentRow, KEY};
use serde_json::{Value, json};

use super::run::left;
use crate::{cli::Globals, failure::Failure, joining};

#[derive(Args, Debug)]
pub(crate) struct Halt {
    /// Why; recorded
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Call off the runs that are live, too: from the answer on no call is decided
    #[arg(long, requires = "reason")]
    stop_runs: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Start again; windows that lay in the halt do not exist
    Lift,
    /// Whether it is halted, why, by whom, since when
    Status,
    /// Make this copy of the ledger a deployment of its own
    Adopt,
}

impl Halt {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match (self.what, self.reason) {
            (None, Some(reason)) if self.stop_runs => stop(globals, &reason).await?,
            (None, Some(reason)) => {
                let row = joining::write(globals, async |engine, origin| {
                    engine.halt_scheduling(origin, &reason, None).await?;
                    status(engine).await
                });
                show(globals, &row.await?)?;
            }
            (None, None) => {
                return Err(Failure::bad_request("reason", "say why with --reason, or lift, status or adopt"));
            }
            (Some(_), Some(_)) => {
                return Err(Failure::bad_request("reason", "--reason goes with a halt alone"));
            }
            (Some(What::Lift), None) => {
                let row = joining::write(globals, async |engine, origin| {
                    engine.lift_halt(origin, None).await?;
                    status(engine).await
                });
                show(globals, &row.await?)?;
            }
            (Some(What::Status), None) => {
                let row = joining::read(globals, async |engine| status(engine).await);
                show(globals, &row.await?)?;
            }
            (Some(What::Adopt), None) => adopt(globals).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn stop(globals: &Globals, reason: &str) -> Result<(), Failure> {
    let done = joining::write(globals, async |engine, origin| Ok(engine.stop_everything(origin, reason, None).await?));
    let done = done.await?;
    let (runs, calls) = (done.value.runs, done.value.calls);
    let answer = json!({ "halted": true, "runs": runs, "calls": calls, "position": done.position });
    globals.output().answer(&answer, || {
        let count = match runs.len() {
            0 => "no run was live".to_owned(),
            1 => "1 run was called off".to_owned(),
            many => format!("{many} runs were called off"),
        };
        format!("Scheduling is halted, and {count}{}", left(&calls))
    })
}

async fn status(engine: &Engine) -> Result<DeploymentRow, Failure> {
    projector::catch_up(engine).await?;
    Ok(projector::get::<Deployment>(engine, KEY).await?.unwrap_or_default())
}

fn show(globals: &Globals, row: &DeploymentRow) -> Result<(), Failure> {
    let since = row.since.map(|at| at.to_string());
    let answer: Value = json!({ "halted": row.halted, "reason": row.reason, "by": row.by, "since": since });
    globals.output().answer(&answer, || {
        if row.halted {
            let reason = row.reason.as_deref().unwrap_or("the reason was erased");
            let (by, since) = (row.by.as_deref().unwrap_or_default(), since.as_deref().unwrap_or_default());
            format!("Scheduling is halted since {since} by {by}: {reason}")
        } else {
            "Scheduling is not halted.".to_owned()
        }
    })
}

async fn adopt(globals: &Globals) -> Result<(), Failure> {
    let opening = joining::opening(globals)?;
    // Adopting makes no ledger: there must be one.
    Log::open(&opening.url, Open::ReadOnly).await?.close().await;
    let id = deployment::adopt(&World::system(), &opening).await?;
    globals.output().answer(&json!({ "deployment": id }), || {
        format!("This ledger is now deployment {id}. A halt that came of its being a copy is lifted.")
    })
}
