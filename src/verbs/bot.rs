//! `midwatch bot`: who can be given work, and with which tools.

use std::process::ExitCode;

use clap::Subcommand;
use midwatch_commands::{Refusal, bot::BotCommand};
use midwatch_engine::{Done, projector, runs::Stopped};
use midwatch_events::id::BotId;
use midwatch_log::views::Order;
use midwatch_projections::bots::{BotRow, Bots};
use serde_json::json;

use super::{all, run::left};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, pairs},
    typed::id,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Bot {
    /// Make a Bot known
    Add {
        /// What people call it
        #[arg(long)]
        name: String,
        /// Where its AG-UI agent listens; without it, it only replays recordings
        #[arg(long, value_name = "URL")]
        agui: Option<String>,
    },
    /// All Bots
    List,
    /// One Bot
    Show {
        #[arg(value_parser = id::<midwatch_events::id::Bot>)]
        bot: BotId,
    },
    /// Grant it tools
    Grant {
        #[arg(value_parser = id::<midwatch_events::id::Bot>)]
        bot: BotId,
        #[arg(required = true, value_name = "TOOL")]
        tools: Vec<String>,
    },
    /// Withdraw tools from it
    Withdraw {
        #[arg(value_parser = id::<midwatch_events::id::Bot>)]
        bot: BotId,
        #[arg(required = true, value_name = "TOOL")]
        tools: Vec<String>,
    },
    /// Call off its runs that are live; its routines go on at their next window
    Stop {
        #[arg(value_parser = id::<midwatch_events::id::Bot>)]
        bot: BotId,
    },
    /// Give it no more work
    Retire {
        #[arg(value_parser = id::<midwatch_events::id::Bot>)]
        bot: BotId,
    },
}

impl Bot {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Add { name, agui } => add(globals, &name, agui.as_deref()).await,
            Self::List => list(globals).await,
            Self::Show { bot } => show(globals, bot).await,
            Self::Grant { bot, tools } => change(globals, bot, BotCommand::Grant(tools)).await,
            Self::Withdraw { bot, tools } => change(globals, bot, BotCommand::Withdraw(tools)).await,
            Self::Stop { bot } => stop(globals, bot).await,
            Self::Retire { bot } => change(globals, bot, BotCommand::Retire).await,
        }
    }
}

async fn add(globals: &Globals, name: &str, agui: Option<&str>) -> Result<ExitCode, Failure> {
    let made =
        joining::write(globals, async |engine, origin| Ok(engine.register_bot(name, agui, origin, None).await?));
    let id = made.await?.value;
    globals.output().answer(&json!({ "id": id }), || format!("Bot {name} is {id}"))?;
    Ok(ExitCode::SUCCESS)
}

async fn list(globals: &Globals) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        all::<Bots>(engine, Vec::new(), Order { column: "name", descending: false }, None).await
    });
    let rows = rows.await?;
    globals.output().answer(&rows, || {
        let mut table = Table::new(&["ID", "NAME", "AG-UI", "TOOLS", "RETIRED"]);
        for row in &rows {
            let retired = if row.retired { "yes" } else { "no" };
            table.row(vec![
                row.id.to_string(),
                row.name.clone(),
                dash(row.agui.as_deref()),
                row.tools.len().to_string(),
                retired.to_owned(),
            ]);
        }
        table.or("There are no Bots; `midwatch bot add --name NAME` makes one known.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn show(globals: &Globals, bot: BotId) -> Result<ExitCode, Failure> {
    let row: Option<BotRow> =
        joining::read(globals, async |engine| Ok(projector::get::<Bots>(engine, &bot.to_string()).await?)).await?;
    let row = row.ok_or(Refusal::NotFound("Bot"))?;
    globals.output().answer(&row, || {
        pairs(&[
            ("id", Some(row.id.to_string())),
            ("name", Some(row.name.clone())),
            ("AG-UI", row.agui.clone()),
            ("tools", Some(row.tools.iter().cloned().collect::<Vec<_>>().join(", "))),
            ("retired", Some(if row.retired { "yes" } else { "no" }.to_owned())),
            ("registered", Some(row.registered_at.to_string())),
        ])
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn change(globals: &Globals, bot: BotId, command: BotCommand) -> Result<ExitCode, Failure> {
    let done =
        joining::write(globals, async |engine, origin| Ok(engine.change_bot(bot, origin, None, command).await?));
    let Done { position, .. } = done.await?;
    let answer = json!({ "id": bot, "position": position });
    globals.output().answer(&answer, || format!("Bot {bot} was changed, at position {position}"))?;
    Ok(ExitCode::SUCCESS)
}

async fn stop(globals: &Globals, bot: BotId) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| Ok(engine.stop_bot(bot, origin).await?)).await?;
    let Stopped { runs, calls } = done.value;
    let answer = json!({ "id": bot, "runs": runs, "calls": calls, "position": done.position });
    globals.output().answer(&answer, || match runs.len() {
        0 => format!("Bot {bot} has no live run"),
        1 => format!("1 run was called off{}", left(&calls)),
        many => format!("{many} runs were called off{}", left(&calls)),
    })?;
    Ok(ExitCode::SUCCESS)
}
