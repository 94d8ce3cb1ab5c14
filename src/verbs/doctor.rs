//! `midwatch doctor`: whether everything is as it should be. Changes nothing.

mod checks;
mod outside;

use std::process::ExitCode;

use clap::Args;
use midwatch_engine::{Engine, world::World};
use serde::Serialize;
use serde_json::json;

use crate::{cli::Globals, failure::Failure, joining, table::Table};

#[derive(Args, Debug)]
pub(crate) struct Doctor {}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// As it should be.
    Ok,
    /// It works, and somebody should look at it.
    Warn,
    /// It does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    message: String,
}

impl Check {
    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, state: State::Ok, message: message.into() }
    }

    fn warn(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, state: State::Warn, message: message.into() }
    }

    fn fail(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, state: State::Fail, message: message.into() }
    }
}

impl Doctor {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let opening = joining::opening(globals)?;
        let mut checks = vec![checks::tzdb(World::system().clock.now())];
        match Engine::open_reader(World::system(), opening.clone()).await {
            Err(error) => {
                checks.insert(0, Check::fail("ledger", error.to_string()));
                show(globals, &checks)?;
                return Err(error.into());
            }
            Ok(engine) => {
                let looked = look(&engine, &opening, &mut checks).await;
                engine.close().await;
                looked?;
            }
        }
        show(globals, &checks)?;
        let failed = checks.iter().any(|check| check.state == State::Fail);
        Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}

async fn look(engine: &Engine, opening: &midwatch_engine::Opening, checks: &mut Vec<Check>) -> Result<(), Failure> {
    checks.insert(0, checks::ledger(engine).await?);
    checks.extend(checks::durability(engine).await?);
    checks.push(checks::erased(engine).await?);
    checks.extend(outside::look(engine, opening).await?);
    checks.extend(checks::projections(engine).await?);
    checks.push(checks::halt(engine).await?);
    checks.extend(checks::processes(engine).await?);
    checks.extend(checks::second_opinions(engine).await?);
    Ok(())
}

fn show(globals: &Globals, checks: &[Check]) -> Result<(), Failure> {
    let ok = checks.iter().all(|check| check.state == State::Ok);
    globals.output().answer(&json!({ "ok": ok, "checks": checks }), || {
        let mut table = Table::new(&["", "WHAT", "HOW IT IS"]);
        for check in checks {
            let state = match check.state {
                State::Ok => "ok",
                State::Warn => "warning",
                State::Fail => "FAILED",
            };
            table.row(vec![state.to_owned(), check.name.to_owned(), check.message.clone()]);
        }
        table.or("")
    })
}
