//! `midwatch token`: secrets by which programs use the API, and agents that run elsewhere a Bot's tools.

use std::process::ExitCode;

use clap::Subcommand;
use midwatch_engine::evidence::Reader;
use midwatch_events::id::{BotId, TokenId, UserId};
use midwatch_log::views::Order;
use midwatch_projections::users::{People, PeopleRow, TokenRow};
use serde_json::{Value, json};

use super::{
    all, equal,
    user::{Role, evidence},
};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, word},
    typed::id,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token; its secret is shown this once
    Add {
        /// What it is for
        #[arg(long)]
        name: String,
        /// What it may do over the API
        #[arg(long, value_enum, default_value_t = Role::Member, conflicts_with = "bot")]
        role: Role,
        /// Opens this Bot's tools at /mcp, for an agent that runs elsewhere, and nothing of the API
        #[arg(long, value_parser = id::<midwatch_events::id::Bot>)]
        bot: Option<BotId>,
        /// Whose the agent's runs are [default: the first admin's]
        #[arg(long, value_name = "USER", requires = "bot", value_parser = id::<midwatch_events::id::User>)]
        owner: Option<UserId>,
    },
    /// All tokens, never their secrets
    List,
    /// Let its bearer read what senders sent, or not; each reading is recorded
    Evidence {
        #[arg(value_parser = id::<midwatch_events::id::Token>)]
        token: TokenId,
        #[arg(value_parser = ["allow", "deny"])]
        what: String,
    },
    /// Close a token for good
    Revoke {
        #[arg(value_parser = id::<midwatch_events::id::Token>)]
        token: TokenId,
    },
}

impl Token {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Add { name, role, bot: None, .. } => add(globals, &name, role).await,
            Self::Add { name, bot: Some(bot), owner, .. } => add_for_bot(globals, &name, bot, owner).await,
            Self::List => list(globals).await,
            Self::Evidence { token, what } => evidence(globals, Reader::Token(token), &token.to_string(), &what).await,
            Self::Revoke { token } => revoke(globals, token).await,
        }
    }
}

async fn add(globals: &Globals, name: &str, role: Role) -> Result<ExitCode, Failure> {
    let done =
        joining::write(globals, async |engine, origin| Ok(engine.issue_token(name, role.into(), origin).await?));
    let (id, secret) = done.await?.value;
    globals.output().answer(&json!({ "id": id, "secret": secret }), || {
        format!("{secret}\nThis is token {id}; its secret is shown this once.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn add_for_bot(globals: &Globals, name: &str, bot: BotId, owner: Option<UserId>) -> Result<ExitCode, Failure> {
    let done =
        joining::write(globals, async |engine, origin| Ok(engine.issue_bot_token(name, bot, owner, origin).await?));
    let (id, secret) = done.await?.value;
    globals.output().answer(&json!({ "id": id, "secret": secret, "bot": bot }), || {
        format!(
            "{secret}\nThis is token {id}, for the tools of Bot {bot} at /mcp; its secret is shown this once. An agent \
             sends it as `Authorization: Bearer`, in a header and nowhere else."
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn list(globals: &Globals) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        all::<People>(engine, vec![equal("kind", "token")], Order { column: "name", descending: false }, None).await
    });
    let rows = rows.await?;
    let tokens: Vec<_> = rows
        .iter()
        .filter_map(|row| match row {
            PeopleRow::Token(row) => Some(row),
            PeopleRow::User(_) | PeopleRow::Session(_) | PeopleRow::Link(_) => None,
        })
        .collect();
    let json: Vec<Value> = tokens.iter().map(|row| listed(row)).collect();
    globals.output().answer(&json, || {
        let mut table = Table::new(&["ID", "NAME", "ROLE", "ISSUED", "BY", "REVOKED"]);
        for row in &tokens {
            table.row(vec![
                row.id.to_string(),
                dash(row.name.as_deref()),
                row.bot.map_or_else(|| dash(row.role.map(word)), |bot| format!("agent of Bot {bot}")),
                row.issued_at.to_string(),
                row.issued_by.clone(),
                dash(row.revoked_at),
            ]);
        }
        table.or("There are no tokens.")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn listed(row: &TokenRow) -> Value {
    json!({
        "id": row.id,
        "name": row.name,
        "role": row.role,
        "bot": row.bot,
        "issued_by": row.issued_by,
        "issued_at": row.issued_at.to_string(),
        "revoked_at": row.revoked_at.map(|at| at.to_string()),
    })
}

async fn revoke(globals: &Globals, token: TokenId) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| Ok(engine.revoke_token(token, origin).await?));
    let position = done.await?.position;
    let answer = json!({ "id": token, "position": position });
    globals.output().answer(&answer, || format!("Token {token} opens nothing any more"))?;
    Ok(ExitCode::SUCCESS)
}
