//! `midwatch audit`: what was done, by the filter language.

use std::process::ExitCode;

use clap::Args;
use midwatch_engine::{Engine, projector};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    Cell as PureCell,
    audit::{
        Audit as Rows, AuditRow,
        filter::{BadFilter, Filter, Op},
    },
    bots::Bots,
    routines_list::RoutinesList,
    triggers::Triggers,
};

use super::{all, equal};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, hint, word},
};

const PAGE: u32 = 500;

#[derive(Args, Debug)]
pub(crate) struct Audit {
    /// Words such as bot:ops, decision:refused, unattended:true, since:7d, text:"invoice"; all must hold
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Not more than this many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

impl Audit {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let limit = self.limit.unwrap_or(u64::MAX);
        joining::read(globals, async |engine| {
            let filter = filter(engine, &self.filter.join(" ")).await?;
            show(globals, engine, &filter, limit).await
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl From<BadFilter> for Failure {
    fn from(bad: BadFilter) -> Self {
        Self::bad_request("filter", bad.to_string())
    }
}

/// Reads a filter and finds the ids its names stand for.
async fn filter(engine: &Engine, text: &str) -> Result<Filter, Failure> {
    let mut filter = Filter::parse(text, engine.world().clock.now())?;
    for name in filter.names().to_vec() {
        let named = vec![equal("name", &name.name)];
        let order = Order { column: "name", descending: false };
        let ids: Vec<String> = match name.of {
            "bot" => all::<Bots>(engine, named, order, None).await?.iter().map(|row| row.id.to_string()).collect(),
            "routine" => {
                all::<RoutinesList>(engine, named, order, None).await?.iter().map(|row| row.id.to_string()).collect()
            }
            _ => all::<Triggers>(engine, named, order, None).await?.iter().map(|row| row.id.to_string()).collect(),
        };
        filter.resolve(&name, &ids)?;
    }
    Ok(filter)
}

fn condition(condition: &midwatch_projections::audit::filter::Condition) -> Condition {
    let cell = |cell: &PureCell| match cell {
        PureCell::Null => Cell::Null,
        PureCell::Int(value) => Cell::Int(*value),
        PureCell::Text(text) => Cell::Text(text.clone()),
    };
    let is = match &condition.is {
        Op::OneOf(cells) => Test::In(cells.iter().map(cell).collect()),
        Op::AtLeast(least) => Test::Ge(cell(least)),
        Op::Below(limit) => Test::Lt(cell(limit)),
    };
    Condition { column: condition.column, is }
}

/// Rows as they are found, newest first: a page in memory at a time.
async fn show(globals: &Globals, engine: &Engine, filter: &Filter, limit: u64) -> Result<(), Failure> {
    let output = globals.output();
    let filters: Vec<Condition> = filter.conditions().iter().map(condition).collect();
    let order = Order { column: "position", descending: true };
    let (mut found, mut after) = (0, None);
    let mut any = false;
    loop {
        let page = projector::page::<Rows>(engine, filters.clone(), order, PAGE, after).await?;
        let full = page.len() == PAGE as usize;
        after = page.last().map(|(_, cursor)| cursor.clone());
        let mut rows: Vec<AuditRow> = page.into_iter().map(|(row, _)| row).filter(|row| filter.matches(row)).collect();
        rows.truncate(usize::try_from(limit - found).unwrap_or(usize::MAX));
        found += rows.len() as u64;
        if output.json {
            for row in &rows {
                output.json_line(row)?;
            }
        } else if !rows.is_empty() {
            output.answer(&rows, || table(&rows))?;
        }
        any |= !rows.is_empty();
        if found == limit {
            let last = rows.last().map_or(0, |row| row.position);
            hint(&format!("stopped after {limit} rows, scanned down to position {last}"));
            return Ok(());
        }
        if !full {
            break;
        }
    }
    if !any {
        hint("no row passes; scanned down to position 1");
    }
    Ok(())
}

fn table(rows: &[AuditRow]) -> String {
    let mut table = Table::new(&["POSITION", "AT", "EVENT", "WHAT", "DECISION", "RULE", "WATCHED", "ACTOR", "SUBJECT"]);
    for row in rows {
        let watched = row.unattended.map(|unattended| if unattended { "no" } else { "yes" });
        let came = row.decision.map(word).or_else(|| row.outcome.clone());
        table.row(vec![
            row.position.to_string(),
            row.at.to_string(),
            row.event.clone(),
            dash(row.tool.clone().or_else(|| row.cause.map(word))),
            dash(match (came, &row.reason) {
                (Some(came), Some(reason)) => Some(format!("{came} ({reason})")),
                (came, _) => came,
            }),
            dash(row.rule.as_deref()),
            dash(watched),
            row.actor.clone(),
            dash(row.fingerprint.as_deref().or(row.subject.as_deref())),
        ]);
    }
    table.or("")
}
