//! `midwatch approval`: calls that wait for a person.

use std::process::ExitCode;

use clap::Subcommand;
use midwatch_commands::{Refusal, run::Answerer};
use midwatch_engine::{approvals::Answer, projector};
use midwatch_events::{Actor, id::ApprovalId, key::Digest};
use midwatch_log::views::Order;
use midwatch_projections::run_approvals::{ApprovalRow, Approvals};
use serde_json::json;

use super::{all, equal};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, pairs, word},
    typed::id,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Approval {
    /// Calls that wait for a person, newest first
    List {
        /// Those that have their answer, too
        #[arg(long)]
        all: bool,
    },
    /// One call: what would be done, and which rule says to ask
    Show {
        #[arg(value_parser = id::<midwatch_events::id::Approval>)]
        approval: ApprovalId,
    },
    /// Let this one call act, once
    Approve {
        #[arg(value_parser = id::<midwatch_events::id::Approval>)]
        approval: ApprovalId,
        /// The digest that `approval show` showed: the answer is to exactly that
        #[arg(long, value_name = "HEX")]
        digest: Digest,
    },
    /// Refuse it
    Decline {
        #[arg(value_parser = id::<midwatch_events::id::Approval>)]
        approval: ApprovalId,
        /// The digest that `approval show` showed
        #[arg(long, value_name = "HEX")]
        digest: Digest,
    },
}

impl Approval {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::List { all } => list(globals, all).await,
            Self::Show { approval } => show(globals, approval).await,
            Self::Approve { approval, digest } => answer(globals, approval, digest, true).await,
            Self::Decline { approval, digest } => answer(globals, approval, digest, false).await,
        }
    }
}

fn state(row: &ApprovalRow) -> String {
    row.answer.map_or_else(|| "open".to_owned(), word)
}

async fn list(globals: &Globals, answered: bool) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        let filters = if answered { Vec::new() } else { vec![equal("state", "open")] };
        all::<Approvals>(engine, filters, Order { column: "asked_at", descending: true }, None).await
    });
    let rows = rows.await?;
    globals.output().answer(&rows, || {
        let mut table = Table::new(&["ID", "STATE", "ASKED", "EXPIRES", "RULE", "CALL"]);
        for row in &rows {
            table.row(vec![
                row.id.to_string(),
                state(row),
                row.asked_at.to_string(),
                row.expires_at.to_string(),
                row.rule.clone(),
                row.fingerprint.clone().unwrap_or_else(|| row.tool.clone()),
            ]);
        }
        table.or("No call waits for a person.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn show(globals: &Globals, id: ApprovalId) -> Result<ExitCode, Failure> {
    let row: Option<ApprovalRow> =
        joining::read(globals, async |engine| Ok(projector::get::<Approvals>(engine, &id.to_string()).await?)).await?;
    let row = row.ok_or(Refusal::NotFound("approval"))?;
    globals.output().answer(&row, || {
        pairs(&[
            ("id", Some(row.id.to_string())),
            ("state", Some(state(&row))),
            ("call", Some(dash(row.fingerprint.as_deref()))),
            ("tool", Some(row.tool.clone())),
            ("arguments", row.arguments.clone()),
            ("rule", Some(format!("{}, in boundary version {}", row.rule, row.boundary))),
            ("may answer", Some(word(row.approvers).replace('_', " "))),
            ("run", Some(row.run.to_string())),
            ("Bot", Some(row.bot.to_string())),
            ("asked", Some(row.asked_at.to_string())),
            ("expires", Some(row.expires_at.to_string())),
            ("answered", row.answered_at.map(|at| at.to_string())),
            ("answered by", row.answered_by.clone()),
            ("digest", Some(row.digest.to_string())),
        ])
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn answer(globals: &Globals, approval: ApprovalId, digest: Digest, yes: bool) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| {
        projector::catch_up(engine).await?;
        // Whoever can write to the ledger with the deployment's key is its admin; who exactly it is nobody can tell.
        let user = match origin.actor {
            Actor::User(user) => Some(user),
            _ => None,
        };
        let by = Answerer { user, admin: true };
        Ok(engine.answer_approval(Answer { approval, digest, yes, by }, origin, None).await?)
    });
    let position = done.await?.position;
    let said = if yes { "approved" } else { "declined" };
    let json = json!({ "id": approval, "answer": said, "position": position });
    globals.output().answer(&json, || format!("The call is {said}, at position {position}"))?;
    Ok(ExitCode::SUCCESS)
}
